"""Virtual cards: device models written from public documents. They check as strictly as metal does, so a driver that
works here follows the rules.

`card("navi31")` makes a whole Radeon in a slot, `nvidia_card("ga102")` a card with NVIDIA's chip.
`ringup.silicon.fixtures` has the pytest fixture for users' own tests.
"""

from __future__ import annotations

# importing the package must not cost the models
TYPE_CHECKING = False
if TYPE_CHECKING:
    from concurrent.futures import Executor
    from pathlib import Path

    from ringup.silicon.amd.card import VirtualRadeon
    from ringup.silicon.common.clock import VirtualClock
    from ringup.silicon.nv.card import VirtualNvidia
    from ringup.silicon.nv.kernel.system import VirtualKernel
    from ringup.silicon.shader.common.state import Engine

__all__ = ["card", "cards", "nvidia_card", "nvidia_cards", "nvidia_firmware", "nvidia_kernel"]


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
    code_folder: Path | None = None,
    for_other_drivers: bool = False,
) -> VirtualRadeon:
    """Return a virtual card, powered and posted; see `VirtualRadeon`. An unknown name raises `NoSuchCard`, which lists
    the known names.
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
        code_folder=code_folder,
        for_other_drivers=for_other_drivers,
    )


def nvidia_card(
    name: str = "ga102",
    *,
    vram_bytes: int | None = None,
    enumerated: bool = True,
    clock: VirtualClock | None = None,
    beside: Executor | None = None,
    code_folder: Path | None = None,
) -> VirtualNvidia:
    """Return a virtual NVIDIA card, powered and posted; see `VirtualNvidia`. An unknown name raises `NoSuchCard`, which
    lists the known names.
    """
    from ringup.silicon.nv.card import VirtualNvidia

    return VirtualNvidia(
        name, vram_bytes=vram_bytes, enumerated=enumerated, clock=clock, beside=beside, code_folder=code_folder
    )


def nvidia_kernel(name: str = "ga102", *, release: str = "535.261.03", vram_bytes: int | None = None) -> VirtualKernel:
    """Return a machine with a virtual NVIDIA card and NVIDIA's kernel driver of a release: the system calls on its
    device nodes, in this process; see `VirtualKernel`. An unknown name raises `NoSuchCard`, an unknown release
    `NotSupported`.
    """
    from ringup.silicon.nv.kernel.system import VirtualKernel

    return VirtualKernel(nvidia_card(name, vram_bytes=vram_bytes), release)


def nvidia_cards() -> list[str]:
    """Return the names that `nvidia_card` accepts."""
    from ringup.silicon.nv.chips import CHIPS

    return list(CHIPS)


def nvidia_firmware(name: str) -> dict[str, bytes]:
    """Return the made-up GSP firmware that Linux's nouveau and NVIDIA's open kernel modules load for a card, by the
    file's name below /lib/firmware. An unknown card raises `NoSuchCard`.
    """
    from ringup.silicon.nv.chips import find
    from ringup.silicon.nv.firmware import modules, nouveau

    chip = find(name)
    return {**nouveau.files(chip), **modules.files(chip)}


def cards() -> list[str]:
    """Return the names that `card` accepts."""
    from ringup.silicon.amd.board.chips import every

    return list(every())
