"""The seam: what a transport supplies and all that a driver sees of its card. Shapes only (`typing.Protocol`); nothing
inherits from them.

Offsets and sizes are bytes, times are microseconds of the transport's own clock. An access that cannot be (outside the
window, misaligned) is a `ValueError`; a link that is gone answers reads with all ones and swallows writes, and
`Device.lost` says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, runtime_checkable


class Reply(Protocol):
    """A read that was queued in a batch; `value` is there once the batch has ended."""

    @property
    def value(self) -> int:
        """What was read; a `ValueError` before the batch has ended."""
        ...


class Batch(Protocol):
    """Accesses that go together, in order: writes posted, reads answered at the end. One round trip on a slow link."""

    def read32(self, offset: int) -> Reply:
        """Queue a dword read."""
        ...

    def write32(self, offset: int, value: int) -> None:
        """Queue a dword write."""
        ...

    def write64(self, offset: int, value: int) -> None:
        """Queue a quadword write."""
        ...


class Mmio(Protocol):
    """A window into a card's memory space, such as a BAR."""

    @property
    def size_bytes(self) -> int:
        """How large the window is."""
        ...

    def read32(self, offset: int) -> int:
        """Read a dword."""
        ...

    def write32(self, offset: int, value: int) -> None:
        """Write a dword; posted."""
        ...

    def read64(self, offset: int) -> int:
        """Read a quadword in one request."""
        ...

    def write64(self, offset: int, value: int) -> None:
        """Write a quadword in one request; posted."""
        ...

    def read_block(self, offset: int, size_bytes: int) -> bytes:
        """Read many bytes."""
        ...

    def write_block(self, offset: int, data: bytes | memoryview) -> None:
        """Write many bytes."""
        ...

    def map(self) -> memoryview:
        """Return the window as plain memory, format B; `NotSupported` where it is none."""
        ...

    def batch(self) -> AbstractContextManager[Batch]:
        """Group accesses for a slow link; on a fast one each goes at once."""
        ...


class DmaMemory(Protocol):
    """Host memory that the card reaches. Zeroed when it comes from `alloc_host`."""

    @property
    def view(self) -> memoryview:
        """The bytes as the CPU sees them, format B."""
        ...

    @property
    def size_bytes(self) -> int:
        """A whole number of 4 KiB pages."""
        ...

    @property
    def contiguous(self) -> bool:
        """Whether bus addresses run on without a gap."""
        ...

    @property
    def coherent(self) -> bool:
        """Whether the CPU's caches see the card's writes by themselves."""
        ...

    def bus_addr(self, offset_bytes: int = 0) -> int:
        """Return what the card puts on the bus to reach that byte."""
        ...

    def runs(self) -> Iterator[tuple[int, int]]:
        """Give (bus_addr, size_bytes) of every contiguous piece, in order."""
        ...

    def free(self) -> None:
        """Take it from the card. Twice is harmless."""
        ...


class Interrupts(Protocol):
    """Message-signalled interrupts of the card."""

    def wait(self, timeout_us: float) -> tuple[int, ...]:
        """Wait for an interrupt, at most that long; return the vectors that came, none after the time. Polling
        transports only let time pass.
        """
        ...


class Clock(Protocol):
    """The transport's time; nothing above the seam asks another clock."""

    @property
    def now_us(self) -> int:
        """Microseconds since some moment in the past."""
        ...

    def sleep_us(self, time_us: float) -> None:
        """Let time pass."""
        ...


class ConfigSpace(Protocol):
    """Configuration space of the card's function."""

    def read(self, offset: int, size_bytes: int = 4) -> int:
        """Read 1, 2 or 4 bytes inside a dword; all ones when nothing answers."""
        ...

    def write(self, offset: int, value: int, size_bytes: int = 4) -> None:
        """Write 1, 2 or 4 bytes inside a dword."""
        ...


class Bulk(Protocol):
    """Memory inside a bridge that its bus fills and drains at full rate, and that the card reaches at `bus_addr`."""

    @property
    def bus_addr(self) -> int:
        """Where the card finds it."""
        ...

    @property
    def total_bytes(self) -> int:
        """How much there is."""
        ...

    @property
    def size_bytes(self) -> int:
        """How much of it, from its start on, may be filled."""
        ...

    @property
    def windows(self) -> tuple[range, ...]:
        """Parts of it, as byte offsets, of which one may be filled while the others are emptied."""
        ...

    @property
    def progress_bus_addr(self) -> int | None:
        """A dword that the card may write and the host can look at while fills go on; None where there is none."""
        ...

    @property
    def go_bus_addr(self) -> int | None:
        """Where the card finds the byte of `tell`, in a dword that nobody else stores."""
        ...

    @property
    def release_bus_addr(self) -> int | None:
        """The dword that the card writes to let a drain's bytes go; None: they are read when the card's work is known
        to be done.
        """
        ...

    @property
    def worth_bytes(self) -> int:
        """From how many bytes on a fill, and the wait for it, is quicker than the same bytes through a window."""
        ...

    @property
    def drain_bytes(self) -> int:
        """How many bytes one drain takes at most, as things are now; 0 where nothing can be drained."""
        ...

    def fill(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Begin to send bytes to the start of the memory or of a window. That they were sent does not mean that they
        are there.

        Returns while this fill and perhaps the one before are under way. Bytes up to a multiple of 512 are overwritten
        too.
        """
        ...

    def settle(self, under_way: int) -> None:
        """Wait until at most so many fills are under way."""
        ...

    def progress(self) -> int:
        """Look at the dword of `progress_bus_addr`."""
        ...

    def land(self) -> None:
        """Wait until the bytes of all fills are in the memory, as far as the host can tell: its first 512 bytes are
        overwritten for that.
        """
        ...

    def tell(self, value: int) -> None:
        """Show the card a byte at `go_bus_addr`, without waiting. One of these and `release_bus_addr` is never there
        without the other.
        """
        ...

    def arm(self, offset: int, size_bytes: int) -> None:
        """Begin a drain from a slot's start; ORDER: before the card writes to `release_bus_addr`."""
        ...

    def drain(self) -> bytes:
        """Wait for the bytes of the drain that was armed."""
        ...

    def give_up(self) -> None:
        """Take the memory as out of order: what was sent never came there. Nothing is moved any more, and closing sets
        the bridge right.
        """
        ...


class Remote(Protocol):
    """What a path offers that maps nothing and whose every access is a round trip: ways past that."""

    @property
    def bulk(self) -> Bulk | None:
        """Bytes at full rate; None where the path has no such way."""
        ...

    @property
    def stray_bus_addr(self) -> int:
        """A page for accesses of the card that go astray. Drains pass over it, so it keeps nothing, and what is written
        there may be in one.
        """
        ...

    def flush(self) -> None:
        """Send what was posted and still stands in line, without waiting for it to arrive."""
        ...

    def push(self, bar: int, offset: int) -> None:
        """Read a dword of a BAR so that what was posted before it has arrived before anything that follows; its value
        is nobody's.
        """
        ...

    def poll(self, bar: int, offset: int, size_bytes: int) -> bytes:
        """Read whole dwords of a BAR as cheaply as can be. Whether anything answered is not told: what was read must
        show it.
        """
        ...

    def power_off(self) -> None:
        """Switch the card's slot off; the device is of no use then. `NotSupported` where the bridge keeps it on."""
        ...


class Observation(Protocol):
    """One thing that the other end of the path saw. Addresses are -1 where there is none."""

    @property
    def key(self) -> str:
        """Tells it apart from all others."""
        ...

    @property
    def text(self) -> str:
        """What was seen: the rule, the address, the instruction or packet."""
        ...

    @property
    def pc(self) -> int:
        """The gpu_va of the instruction."""
        ...

    @property
    def gpu_va(self) -> int:
        """The address that was accessed."""
        ...

    @property
    def vmid(self) -> int:
        """Whose addresses these are; -1 where that is not known."""
        ...


class Witness(Protocol):
    """What the other end of a path says of its driver's mistakes: `Device.witness` of a virtual card. A real card has
    none.
    """

    def mistakes(self) -> Sequence[Observation]:
        """Return what the driver and its work did that a real card punishes, oldest first. Asking changes nothing."""
        ...

    def unfinished(self) -> Sequence[Observation]:
        """Return what is under way and waits: packets and for what, waves and where they are."""
        ...


def witness_of(device: Device) -> Witness | None:
    """Return the witness of a device that has one."""
    found: Witness | None = getattr(device, "witness", None)
    return found


@runtime_checkable
class Device(Protocol):
    """One function of a card, held by this process. A device that is no metal may have `witness` too: see
    `witness_of`.
    """

    @property
    def name(self) -> str:
        """The card's name, such as `pci:0000:03:00.0`."""
        ...

    @property
    def config(self) -> ConfigSpace:
        """Configuration space."""
        ...

    @property
    def bars(self) -> Mapping[int, Mmio]:
        """Memory BARs by number."""
        ...

    @property
    def rom(self) -> Mmio | None:
        """The expansion ROM, where there is one."""
        ...

    @property
    def interrupts(self) -> Interrupts:
        """Interrupts; masked until a driver waits."""
        ...

    @property
    def clock(self) -> Clock:
        """Time."""
        ...

    @property
    def lost(self) -> bool:
        """Whether the card is gone from the bus; never true again after false without a new `open`."""
        ...

    @property
    def why_lost(self) -> str:
        """What to say of it once it is lost, behind its name: what is seen, what to do."""
        ...

    @property
    def polls_vram(self) -> bool:
        """Whether the CPU should poll, and rings lie, in VRAM since host memory is out of the card's reach (a USB
        bridge).
        """
        ...

    @property
    def remote(self) -> Remote | None:
        """Ways past the round trips, on a path that maps nothing; None elsewhere."""
        ...

    def alloc_host(self, size_bytes: int) -> DmaMemory:
        """Return zeroed host memory that the card reaches."""
        ...

    def pin(self, buffer: memoryview) -> DmaMemory:
        """Let the card reach memory of the caller's, whole pages; `NotSupported` where that cannot be."""
        ...

    def resets(self) -> tuple[str, ...]:
        """Name the resets this path can do, gentle first: of `function` and `slot`."""
        ...

    def reset(self, method: str) -> None:
        """Do one of `resets()` and put configuration space back as it was."""
        ...

    def firmware(self, name: str) -> bytes | None:
        """Return an image that belongs to this device alone, such as a model's; None: look where firmware lies."""
        ...

    def close(self) -> None:
        """Switch bus mastering off and let go. Twice is harmless."""
        ...


@runtime_checkable
class TellsDma(Protocol):
    """A `Device` that knows what lies between the card and the host's memory."""

    def dma_state(self) -> str:
        """Say how the IOMMU treats the card, and which bridges above it let no request through."""
        ...
