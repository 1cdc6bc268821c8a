"""One PCI function held by this process: what sysfs and VFIO share. The path below supplies windows, memory, interrupts
and resets.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from ringup.autogen.linux import pci
from ringup.drivers.cleanup import Teardown, undone_on_error
from ringup.drivers.transport import config_space
from ringup.drivers.transport.clock import HostClock
from ringup.drivers.transport.config_space import ABSENT, GONE, NodeConfig
from ringup.drivers.transport.linux.dma import HostMemory
from ringup.drivers.transport.linux.lock import CardLock
from ringup.drivers.transport.linux.mmio import FileWindow, MappedWindow, PatchedWindow
from ringup.drivers.transport.seam import Clock, Device, Interrupts, Mmio, Remote
from ringup.errors import DeviceLost, NotSupported, RingupError, TransportError

LOG = logging.getLogger(__name__)
FUNCTION, SLOT = "function", "slot"
FORGET_AFTER = 64
TAKEN_BACK = (
    "was taken back by the kernel, which removes it or gives it to another driver; open it again when it is there"
)
Window = MappedWindow | FileWindow | PatchedWindow


class Way(Protocol):
    """What sysfs and VFIO each supply. `config` works from the start; windows once memory decoding is on."""

    config: NodeConfig

    @property
    def shown(self) -> str:
        """The path's name for the user, such as "vfio (iommufd)"."""
        ...

    @property
    def interrupts(self) -> Interrupts:
        """The seam's."""
        ...

    def map_windows(self) -> tuple[dict[int, Window], Window | None]:
        """Return the memory BARs by number, and the ROM."""
        ...

    @property
    def revoked(self) -> bool:
        """Whether the kernel wants the function back."""
        ...

    def alloc_host(self, size_bytes: int) -> HostMemory:
        """Return zeroed memory."""
        ...

    def pin(self, buffer: memoryview) -> HostMemory:
        """Give the card memory of a caller's."""
        ...

    def reach(self, start: int, view: memoryview) -> HostMemory:
        """Let the card reach part of another function's BAR: its physical address, and its mapping here."""
        ...

    def resets(self) -> tuple[str, ...]:
        """Name the resets that work, gentle first."""
        ...

    def bar_start(self, bar: int) -> int:
        """Return the physical address of a BAR."""
        ...

    def reset(self, method: str) -> None:
        """Do one of them."""
        ...

    def dma_state(self) -> str:
        """Say what lies between the card and the host's memory."""
        ...

    def close(self) -> None:
        """Release everything."""
        ...


class PciDevice:
    """The seam's `Device`. Memory decoding is on and bus mastering off: a driver switches it on when the card is
    quiet.
    """

    polls_vram = False
    remote: Remote | None = None

    def __init__(
        self,
        name: str,
        way: Way,
        lock: CardLock,
        clock: Clock | None = None,
        linked: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        """Take over a path and a lock. `close` releases both; so does this constructor when it fails. `linked`: what
        `linked_holders` says.
        """
        self.name, self._way, self._lock, self._linked = name, way, lock, linked
        self.path = way.shown
        self.config: NodeConfig = way.config
        self.clock: Clock = clock or HostClock()
        self.interrupts: Interrupts = way.interrupts
        self._lost = self._closed = False
        # the memory that `close` frees. Freed entries are removed from time to time
        self._memory: list[HostMemory] = []
        self._look_at = FORGET_AFTER
        self._windows: dict[int, Window] = {}
        self._rom: Window | None = None
        with undone_on_error(self.close):
            self._start()
        LOG.info("%s is open over %s", name, way.shown)

    def _start(self) -> None:
        if self.lost:
            raise DeviceLost(f"opening {self.name}: its class and revision read {ABSENT:#x}; check power and cable")
        config_space.wake(self.config, self.clock)
        # ORDER: what a killed process left running may still write to memory that is no longer its own, so mastering
        # ends first
        config_space.change_command(self.config, off=pci.PCI_COMMAND_MASTER)
        config_space.change_command(self.config, on=pci.PCI_COMMAND_MEMORY)
        self._windows, self._rom = self._way.map_windows()

    @property
    def bars(self) -> Mapping[int, Mmio]:
        """Memory BARs by number."""
        return self._windows

    @property
    def rom(self) -> Mmio | None:
        """The expansion ROM, where there is one."""
        return self._rom

    @property
    def lost(self) -> bool:
        """Whether the card is gone from the bus, or the kernel takes it back. Stays true."""
        if not self._lost and (self._way.revoked or not config_space.answers(self.config)):
            self._lost = True
            LOG.warning("%s is gone from the bus", self.name)
        return self._lost

    @property
    def why_lost(self) -> str:
        """What is seen and what to do once it is lost."""
        return TAKEN_BACK if self._way.revoked else GONE

    def alloc_host(self, size_bytes: int) -> HostMemory:
        """Return zeroed host memory that the card reaches, in whole pages."""
        return self._kept(self._way.alloc_host(size_bytes))

    def pin(self, buffer: memoryview) -> HostMemory:
        """Let the card reach the caller's memory. Raises a `ValueError` unless it is writable, contiguous, whole
        pages.
        """
        return self._kept(self._way.pin(buffer))

    def reach(self, other: Device, bar: int, offset: int, size_bytes: int) -> HostMemory:
        """Let the card reach a part of another function's BAR, see `seam.Reaches`."""
        if not isinstance(other, PciDevice):
            raise NotSupported(f"{other.name} is no function of this machine's PCI bus, on which {self.name} is")
        start, view = other.window(bar, offset, size_bytes)
        return self._kept(self._way.reach(start, view))

    def window(self, bar: int, offset: int, size_bytes: int) -> tuple[int, memoryview]:
        """Return the physical address of a part of a BAR, and its mapping in this process."""
        return self._way.bar_start(bar) + offset, self._windows[bar].map()[offset : offset + size_bytes]

    def resets(self) -> tuple[str, ...]:
        """Return the names of the resets that this path offers, gentle ones first: of `function` and `slot`."""
        return self._way.resets()

    def reset(self, method: str) -> None:
        """Reset, wait for the function's answer and put its header back. Host memory and interrupts stay set up.

        Raises `ValueError` for a reset that is not offered, `DeviceLost` for a function that is gone, which is left
        alone, and for one that never answers again, `TransportError` when its header does not hold what it held.
        """
        offered = self.resets()
        if method not in offered:
            raise ValueError(
                f"{self.name} has no reset {method!r} over {self.path}; it has {', '.join(offered) or 'none'}"
            )
        doing = f"resetting {self.name} ({method})"
        # the header of a lost card reads as ones, so it could not be restored after the reset
        if self.lost:
            raise DeviceLost(f"{doing}: {self.name} {self.why_lost}")
        saved = config_space.save(self.config, doing)
        self._way.reset(method)
        config_space.wait_for_answer(self.config, self.clock, doing)
        config_space.restore(self.config, saved)
        now = config_space.save(self.config, doing)
        wrong = [offset for offset, value in saved.items() if offset != pci.PCI_COMMAND and now[offset] != value]
        if wrong:
            listed = ", ".join(f"{offset:#x} reads {now[offset]:#010x} for {saved[offset]:#010x}" for offset in wrong)
            raise TransportError(
                f"{doing}: configuration space did not come back: {listed}; close the card and open it again"
            )

    def linked_holders(self) -> Sequence[str]:
        """Say of each card that it may be linked with, and that is not this process's, who holds it."""
        return self._linked()

    def dma_state(self) -> str:
        """Return in words how the IOMMU treats the card, and which bridges above it block its requests."""
        return self._way.dma_state()

    def firmware(self, name: str) -> bytes | None:
        """Return None: a real card's firmware lies where the system keeps it."""
        return None

    def close(self) -> None:
        """Switch bus mastering off and release the function. Twice is harmless."""
        if self._closed:
            return
        self._closed = True
        teardown = Teardown(f"closing {self.name}", logged=(RingupError, OSError), kept=(), level=logging.WARNING)
        teardown.attempt(self._stop_mastering)
        for memory in self._memory:
            teardown.attempt(memory.free)
        teardown.attempt(self._close_windows)
        teardown.attempt(self._way.close)
        self._lock.release()

    def _stop_mastering(self) -> None:
        config_space.change_command(self.config, off=pci.PCI_COMMAND_MASTER)
        # ORDER: answered after the card's last write went out, so its memory may go
        self.config.read(pci.PCI_COMMAND, 2)

    def _close_windows(self) -> None:
        for window in (*self._windows.values(), *([self._rom] if self._rom else [])):
            window.close()

    def _kept(self, memory: HostMemory) -> HostMemory:
        if len(self._memory) >= self._look_at:
            self._memory = [kept for kept in self._memory if not kept.freed]
            self._look_at = 2 * len(self._memory) + FORGET_AFTER
        self._memory.append(memory)
        return memory
