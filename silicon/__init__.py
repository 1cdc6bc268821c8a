"""Virtual cards: device models written from public documents, strict enough that a driver which works here has obeyed
them.

`card("navi31")` is a whole card in a slot; `ringup.silicon.fixtures` has the pytest fixture for users' own tests.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing the package must not cost the models
if TYPE_CHECKING:
    from concurrent.futures import Executor

    from ringup.silicon.amd.card import VirtualRadeon
    from ringup.silicon.common.clock import VirtualClock
    from ringup.silicon.shader.common.state import Engine

__all__ = ["card", "cards"]


def card(
    name: str = "navi31",
    *,
    vram_bytes: int | None = None,
    bar0_bytes: int = 256 << 20,
    enumerated: bool = True,
    engine: Engine | None = None,
    strict: bool = True,
    clock: VirtualClock | None = None,
    beside: Executor | None = None,
    caches: bool = False,
) -> VirtualRadeon:
    """Return a virtual card, powered and posted; see `VirtualRadeon`. An unknown name is a `NoSuchCard` that lists the
    known ones.
    """
    from ringup.silicon.amd.card import VirtualRadeon

    return VirtualRadeon(
        name,
        vram_bytes=vram_bytes,
        bar0_bytes=bar0_bytes,
        enumerated=enumerated,
        engine=engine,
        strict=strict,
        clock=clock,
        beside=beside,
        caches=caches,
    )


def cards() -> list[str]:
    """Return the names that `card` knows."""
    from ringup.silicon.amd.board.chips import CHIPS

    return sorted(CHIPS)
