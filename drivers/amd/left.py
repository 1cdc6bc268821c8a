"""A Radeon that nobody has started: what `drivers.left` asks of every vendor's card."""

from __future__ import annotations

from functools import cached_property

from ringup.drivers.amd.bus.hdp import Hdp
from ringup.drivers.amd.lifecycle import shutdown
from ringup.drivers.amd.lifecycle.inspect import Bare
from ringup.drivers.amd.observe.post_mortem import LeftRadeonReport, examine
from ringup.drivers.left import Rest
from ringup.drivers.rung import Rung


class _Flushed:
    """VRAM through the window, behind a cache that is emptied after each write."""

    def __init__(self, bare: Bare) -> None:
        self._bare = bare
        self.size_bytes, self.visible_bytes = bare.window.size_bytes, bare.window.visible_bytes

    @cached_property
    def _hdp(self) -> Hdp:
        hdp = Hdp(self._bare.ips.block("nbio"))
        hdp.start()
        return hdp

    def read(self, vram_pa: int, size_bytes: int) -> bytes:
        """Return bytes."""
        return self._bare.window.read(vram_pa, size_bytes)

    def write(self, vram_pa: int, data: bytes) -> None:
        """Store bytes."""
        hdp = self._hdp
        self._bare.window.write(vram_pa, data)
        hdp.flush()


class LeftRadeon(Bare):
    """One Radeon as found."""

    @cached_property
    def memory(self) -> _Flushed:
        """The card's memory."""
        return _Flushed(self)

    def offered(self) -> tuple[str, ...]:
        """Return the names of the resets of the whole card that the path to it offers, gentle ones first."""
        return shutdown.offered(self.device)

    def reset(self, first: str | None = None) -> list[Rung]:
        """Reset the whole card; see `shutdown.reset`."""
        return shutdown.reset(self, first)

    def rest(self, *, sleep: bool = True) -> Rest:
        """Shut the card down; see `shutdown.rest`."""
        return shutdown.rest(self, sleep=sleep)

    def examine(self, holder: str = "") -> LeftRadeonReport:
        """Report on the card as found; see `post_mortem.examine`."""
        return examine(self, holder)


LEFT = LeftRadeon
