"""The seam: what a transport supplies, which is all that a driver sees of its card. Protocols only; nothing inherits
from them.

Offsets and sizes are bytes, times are microseconds of the transport's own clock. An impossible access (outside the
window, misaligned) raises a `ValueError`. On a link that is gone, reads return all ones, writes have no effect, and
`Device.lost` is true.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, runtime_checkable


class Reply(Protocol):
    """A read that was queued in a batch; `value` is set once the batch has ended."""

    @property
    def value(self) -> int:
        """The value that was read; raises a `ValueError` before the batch has ended."""
        ...


class Batch(Protocol):
    """Accesses that are sent together, in order: writes are posted, reads are answered at the end. One round trip on a
    slow link.
    """

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
        """The window's size."""
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
        """Return the window as plain memory, format B. Raises `NotSupported` where it cannot be mapped."""
        ...

    def batch(self) -> AbstractContextManager[Batch]:
        """Group accesses for a slow link; on a fast link each is sent at once."""
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
        """Whether the bus addresses have no gap."""
        ...

    @property
    def coherent(self) -> bool:
        """Whether the CPU's caches see the card's writes by themselves."""
        ...

    def bus_addr(self, offset_bytes: int = 0) -> int:
        """Return what the card puts on the bus to reach that byte."""
        ...

    def runs(self) -> Iterator[tuple[int, int]]:
        """Yield (bus_addr, size_bytes) of every contiguous piece, in order."""
        ...

    def free(self) -> None:
        """Make the memory unreachable for the card and free it. Twice is harmless."""
        ...


class Interrupts(Protocol):
    """Message-signalled interrupts of the card."""

    def wait(self, timeout_us: float) -> tuple[int, ...]:
        """Wait for an interrupt, at most that long; return the vectors that came, none when the time is over.
        Transports without interrupts only let the time pass.
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
        """The memory's address for the card."""
        ...

    @property
    def total_bytes(self) -> int:
        """All bytes of the memory."""
        ...

    @property
    def size_bytes(self) -> int:
        """The bytes that may be filled, from the memory's start on."""
        ...

    @property
    def windows(self) -> tuple[range, ...]:
        """Parts of the memory, as byte offsets, of which one may be filled while the card reads the others."""
        ...

    @property
    def progress_bus_addr(self) -> int | None:
        """A dword that the card may write and the host can read during fills; None where there is none."""
        ...

    @property
    def go_bus_addr(self) -> int | None:
        """Address for the card of the byte that `tell` stores; nothing else stores in that dword."""
        ...

    @property
    def release_bus_addr(self) -> int | None:
        """The dword that the card writes to start a drain; None where bytes are read when the card's work is known to
        be done.
        """
        ...

    @property
    def min_fill_bytes(self) -> int:
        """The size below which MMIO through a window is faster than a fill and the wait for it."""
        ...

    @property
    def drain_bytes(self) -> int:
        """The largest drain possible now, in bytes; 0 where nothing can be drained."""
        ...

    def fill(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Begin to send bytes to the start of the memory or of a window. Bytes that were sent may not have arrived.

        Returns while this fill and perhaps the one before are in flight. Bytes up to a multiple of 512 are overwritten
        too.
        """
        ...

    def settle(self, under_way: int) -> None:
        """Wait until at most that many fills are in flight."""
        ...

    def progress(self) -> int:
        """Read the dword at `progress_bus_addr`."""
        ...

    def land(self) -> None:
        """Wait until the bytes of all fills are in the memory. To find out, the host overwrites the first 512 bytes."""
        ...

    def tell(self, value: int) -> None:
        """Store a byte at `go_bus_addr` for the card, without waiting. A bridge has both `go_bus_addr` and
        `release_bus_addr` or neither.
        """
        ...

    def arm(self, offset: int, size_bytes: int) -> None:
        """Begin a drain from a slot's start; ORDER: before the card writes to `release_bus_addr`."""
        ...

    def drain(self) -> bytes:
        """Wait for the bytes of the drain that was armed."""
        ...

    def give_up(self) -> None:
        """Mark the memory as unusable, because bytes that were sent never arrived. Nothing is moved any more; closing
        repairs the bridge.
        """
        ...


class Remote(Protocol):
    """Faster ways that a path offers where nothing is mapped and every access is a round trip."""

    @property
    def bulk(self) -> Bulk | None:
        """Moves bytes at full rate; None where the path has no such memory."""
        ...

    @property
    def stray_bus_addr(self) -> int:
        """A page for stray accesses of the card. Drains overwrite it, and may contain what was written there."""
        ...

    def flush(self) -> None:
        """Send the posted requests that are still queued, without waiting for them to arrive."""
        ...

    def push(self, bar: int, offset: int) -> None:
        """Read a dword of a BAR so that requests posted before arrive before later ones; the value is dropped."""
        ...

    def poll(self, bar: int, offset: int, size_bytes: int) -> bytes:
        """Read whole dwords of a BAR as cheaply as possible. Errors are not reported: the caller must see from the
        bytes whether anything answered.
        """
        ...

    def power_off(self) -> None:
        """Switch the card's slot off; the device is unusable then. Raises `NotSupported` where the bridge cannot."""
        ...


class Observation(Protocol):
    """One event that a virtual card saw. Addresses are -1 where there is none."""

    @property
    def key(self) -> str:
        """A key that no other observation has."""
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
        """The address space of these addresses; -1 where it is unknown."""
        ...


class Witness(Protocol):
    """What a virtual card reports of its driver's mistakes: `Device.witness`. A real card has none."""

    def mistakes(self) -> Sequence[Observation]:
        """Return the mistakes of the driver and its work that a real card punishes, oldest first. Reading changes
        nothing.
        """
        ...

    def unfinished(self) -> Sequence[Observation]:
        """Return unfinished work that waits: packets and what they wait for, waves and where they are."""
        ...


def witness_of(device: Device) -> Witness | None:
    """Return the witness of a device that has one."""
    found: Witness | None = getattr(device, "witness", None)
    return found


@runtime_checkable
class Reaches(Protocol):
    """What a device may have besides: a way over the bus to other devices' BARs, without the host's memory between."""

    def reach(self, other: Device, bar: int, offset: int, size_bytes: int) -> DmaMemory:
        """Let this device reach a part of another one's BAR, in whole pages, until the result is freed.

        Nobody says whether the switches and the root on the way pass such requests on: try with a pattern first. Raises
        `NotSupported` for a device that is not on the same bus, and what the kernel refuses.
        """
        ...


@runtime_checkable
class Device(Protocol):
    """One function of a card, held by this process. A virtual device may also have a `witness`: see `witness_of`. Some
    have `Reaches` too.
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
        """For errors once the card is lost, after its name: what was seen, and what to do."""
        ...

    @property
    def polls_vram(self) -> bool:
        """Whether rings and polled words lie in VRAM, since the card cannot reach host memory (behind a USB bridge)."""
        ...

    @property
    def remote(self) -> Remote | None:
        """Faster ways on a path that maps nothing; None elsewhere."""
        ...

    def alloc_host(self, size_bytes: int) -> DmaMemory:
        """Return zeroed host memory that the card reaches."""
        ...

    def pin(self, buffer: memoryview) -> DmaMemory:
        """Let the card reach the caller's memory, in whole pages. Raises `NotSupported` where that is impossible."""
        ...

    def resets(self) -> tuple[str, ...]:
        """Return the names of the resets that this path offers, gentle ones first: of `function` and `slot`."""
        ...

    def reset(self, method: str) -> None:
        """Do one of `resets()` and restore configuration space."""
        ...

    def firmware(self, name: str) -> bytes | None:
        """Return a firmware image of this device alone, such as a model's; None: use the system's firmware files."""
        ...

    def close(self) -> None:
        """Switch bus mastering off and release the card. Twice is harmless."""
        ...


@runtime_checkable
class Driven(Protocol):
    """The path to a card that a kernel's driver has started: there are no registers for a driver of ringup's own."""

    @property
    def name(self) -> str:
        """The card's name."""
        ...

    @property
    def driver_module(self) -> str:
        """The module whose `start` makes a card of it."""
        ...

    def close(self) -> None:
        """Release the card. Twice is harmless."""
        ...


@runtime_checkable
class TellsLinked(Protocol):
    """A `Device` that knows the other cards of the machine."""

    def linked_holders(self) -> Sequence[str]:
        """Say of each card that it may be linked with, and that is not this process's, who holds it."""
        ...


@runtime_checkable
class TellsDma(Protocol):
    """A `Device` that knows the path between the card and the host's memory."""

    def dma_state(self) -> str:
        """Return in words how the IOMMU treats the card, and which bridges above it block its requests."""
        ...
