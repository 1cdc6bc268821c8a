"""The path from the host to a virtual card's function: BARs, batches, configuration space, and the cost of accesses.

The classes have the shapes of the seam (`Mmio`, `Clock`): a driver that works over PCI works with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from ringup.autogen.linux import pci as regs
from ringup.errors import NotSupported
from ringup.silicon.common.clock import READ_NS, WRITE_NS, PowerDomain, VirtualClock
from ringup.silicon.common.faults import Faults
from ringup.silicon.common.log import EventLog
from ringup.silicon.common.posted import PostedWrites
from ringup.silicon.pci.function import Function
from ringup.silicon.pci.tree import Tree

# a block transfer is one request for each line
LINE_BYTES = 64
FALLEN, DROPPED = "all_ones_after_reads", "link_drop_after_bytes"


class Target(Protocol):
    """The memory or registers behind a BAR."""

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Return bytes."""
        ...

    def write(self, offset: int, data: bytes | memoryview) -> None:
        """Store bytes."""
        ...

    def check(self, offset: int, size_bytes: int) -> bool:
        """Check a write before it is posted; return False if only its arrival, after all earlier writes, shows whether
        it is possible.

        Raises `GuestError` for a write that is never possible.
        """
        ...


class Path:
    """The path from the host to one function: the cost of an access, and whether it arrives."""

    def __init__(self, tree: Tree, function: Function, clock: VirtualClock, faults: Faults, log: EventLog) -> None:
        self.tree, self.function = tree, function
        self.clock, self.faults, self.log = clock, faults, log
        self.posted = PostedWrites(clock.machine if isinstance(clock, PowerDomain) else clock)
        self.memory_open = False
        self.on_lost: Callable[[], None] = lambda: None
        self._was_lost = False
        self.refresh()

    def refresh(self) -> None:
        """Recompute whether memory requests are claimed: command registers, power states or links have changed."""
        self.memory_open = self.function.decodes_memory and self.tree.passes(self.function, regs.PCI_COMMAND_MEMORY)
        self._report_loss()

    @property
    def fallen(self) -> bool:
        """Whether the fault that makes the function answer all ones has struck."""
        return self.faults.get(FALLEN) in (0, -1)

    @property
    def lost(self) -> bool:
        """Whether the function is gone: link down, or fallen off the bus."""
        return self.fallen or not self.tree.link_up

    def arrives(self, size_bytes: int, write: bool) -> bool:
        """Count an access for the faults, and return whether it reaches the function."""
        if self.faults.none_on and self.tree.link_up and not self._was_lost:
            return True
        if self.faults.reached(DROPPED, size_bytes):
            self.faults.clear(DROPPED)
            self.tree.set_link(up=False)
        lost = self.lost
        if not write:
            self.faults.reached(FALLEN)
        self._report_loss()
        return not lost

    def _report_loss(self) -> None:
        """Tell the card that it is lost, once for each loss."""
        lost, before = self.lost, self._was_lost
        self._was_lost = lost
        if lost and not before:
            self.posted.lose()
            self.on_lost()

    def refuse(self, what: str) -> None:
        """Handle a memory request that nothing claims: an unsupported request, and a mistake of the guest."""
        self.function.unsupported_request()
        self.log.note(
            "pci", "violation", "{} was accessed while memory decoding is off or the function is not in D0", what
        )


class Bar:
    """A window into a function: the seam's `Mmio`. Offsets are bytes; an impossible access raises `ValueError`."""

    def __init__(
        self, name: str, path: Path, target: Target, size: Callable[[], int], enabled: Callable[[], bool] | None = None
    ) -> None:
        """`enabled`: an enable in addition to memory decoding, such as the ROM's."""
        self.name = name
        self._path, self._target, self._size, self._enabled = path, target, size, enabled
        # False makes `map` fail, so that accesses go through the posted-write buffers, which stores through a view do
        # not
        self.mappable = True
        # whether the processor maps the window with write combining, if it has the buffers: see `PostedWrites`
        self.combined = False
        # whether there is memory behind it, which does not see how many writes its bytes came in
        self.is_memory = False

    @property
    def size_bytes(self) -> int:
        """The current size of the window; a resizable BAR may change it."""
        return self._size()

    def read(self, offset: int, size_bytes: int) -> int:
        """Read 1, 2, 4 or 8 bytes, aligned; all ones if nothing answers."""
        if offset % size_bytes or not 0 <= offset <= self._size() - size_bytes:
            raise ValueError(f"{self.name} has no {size_bytes} bytes at {offset:#x}")
        path = self._path
        path.posted.push()
        path.clock.advance_ns(READ_NS)
        if not self._claimed(size_bytes, write=False):
            return (1 << 8 * size_bytes) - 1
        return int.from_bytes(self._target.read(offset, size_bytes), "little")

    def write(self, offset: int, value: int, size_bytes: int) -> None:
        """Write 1, 2, 4 or 8 bytes, aligned; dropped if nothing claims it."""
        if offset % size_bytes or not 0 <= offset <= self._size() - size_bytes:
            raise ValueError(f"{self.name} has no {size_bytes} bytes at {offset:#x}")
        path = self._path
        data = value.to_bytes(size_bytes, "little")
        claimed = self._claimed(size_bytes, write=True)
        path.clock.advance_ns(WRITE_NS)
        if claimed:
            self._post(offset, data)

    def read32(self, offset: int) -> int:
        """Read a dword."""
        return self.read(offset, 4)

    def write32(self, offset: int, value: int) -> None:
        """Write a dword."""
        self.write(offset, value, 4)

    def read64(self, offset: int) -> int:
        """Read a quadword in one request."""
        return self.read(offset, 8)

    def write64(self, offset: int, value: int) -> None:
        """Write a quadword in one request."""
        self.write(offset, value, 8)

    def read_block(self, offset: int, size_bytes: int) -> bytes:
        """Read many bytes, with one request for each 64."""
        self._check_block(offset, size_bytes)
        path = self._path
        path.posted.push()
        path.clock.advance_ns(READ_NS * -(-size_bytes // LINE_BYTES))
        if not self._claimed(size_bytes, write=False):
            return b"\xff" * size_bytes
        return self._target.read(offset, size_bytes)

    def write_block(self, offset: int, data: bytes | memoryview) -> None:
        """Write many bytes, with one request for each 64."""
        self._check_block(offset, len(data))
        path = self._path
        claimed = self._claimed(len(data), write=True)
        path.clock.advance_ns(WRITE_NS * -(-len(data) // LINE_BYTES))
        if claimed:
            self._post(offset, bytes(data))

    def write_run(self, offset: int, data: bytes, size_bytes: int) -> None:
        """Write adjacent words of `size_bytes` each, aligned, in the order of their addresses; each is one request.
        Memory gets their bytes together, registers word by word.
        """
        path = self._path
        if not self.is_memory or not path.memory_open or not path.faults.none_on:
            for at in range(0, len(data), size_bytes):
                self.write(offset + at, int.from_bytes(data[at : at + size_bytes], "little"), size_bytes)
            return
        if offset % size_bytes or len(data) % size_bytes:
            raise ValueError(f"{len(data)} bytes at {offset:#x} are no words of {size_bytes} bytes")
        self._check_block(offset, len(data))
        claimed = self._claimed(len(data), write=True)
        path.clock.advance_ns(WRITE_NS * (len(data) // size_bytes))
        if claimed:
            self._post(offset, data)

    def answer(self, offset: int, size_bytes: int) -> bytes | None:
        """Handle a read that another bus routes here and times; return None if nothing answers."""
        self._path.posted.push()
        return self._target.read(offset, size_bytes) if self._claimed(size_bytes, write=False) else None

    def accept(self, offset: int, data: bytes | memoryview) -> bool:
        """Handle a write that another bus routes here and times; return False if nothing claims it."""
        claimed = self._claimed(len(data), write=True)
        if claimed:
            self._post(offset, bytes(data))
        return claimed

    def map(self) -> memoryview:
        """Return the window as plain memory, whose stores take effect at once. Raises `NotSupported` if it is not plain
        memory.
        """
        mapper: Callable[[int], memoryview] | None = getattr(self._target, "map", None)
        if mapper is None or not self.mappable:
            raise NotSupported(f"{self.name} is no plain memory: use its read and write methods")
        self._path.posted.push()
        return mapper(self._size())

    @contextmanager
    def batch(self) -> Iterator[Batch]:
        """Group accesses. On this link each is done at once; values read are available at the end."""
        batch = Batch(self)
        try:
            yield batch
        finally:
            batch.open = False

    def _post(self, offset: int, data: bytes) -> None:
        """Post a write. The guest's mistake is raised here, not when the write arrives."""
        posted = self._path.posted
        if not self._target.check(offset, len(data)):
            posted.push()
            self._target.write(offset, data)
        elif self.combined and posted.combining is not None:
            posted.combining.write(self._send, offset, data)
        else:
            posted.post(self._target.write, offset, data)

    def _send(self, offset: int, data: bytes) -> None:
        self._path.posted.send(self._target.write, offset, data)

    def _claimed(self, size_bytes: int, write: bool) -> bool:
        path = self._path
        if not path.arrives(size_bytes, write):
            return False
        if path.memory_open and (self._enabled is None or self._enabled()):
            return True
        path.refuse(self.name)
        return False

    def _check_block(self, offset: int, size_bytes: int) -> None:
        if not 0 <= offset <= self._size() - size_bytes:
            raise ValueError(f"{self.name} has no {size_bytes:#x} bytes at {offset:#x}")


class Batch:
    """Accesses of one window that belong together; closed at the end of its `with`."""

    def __init__(self, bar: Bar) -> None:
        self.open = True
        self._bar = bar

    def _access(self) -> Bar:
        if not self.open:
            raise ValueError(f"a batch of {self._bar.name} has ended: nothing can be added")
        return self._bar

    def read32(self, offset: int) -> Reply:
        """Read a dword; its value is available once the batch has ended."""
        return Reply(self, self._access().read32(offset))

    def write32(self, offset: int, value: int) -> None:
        """Write a dword."""
        self._access().write32(offset, value)

    def write64(self, offset: int, value: int) -> None:
        """Write a quadword in one request."""
        self._access().write64(offset, value)


class Reply:
    """The result of a read in a batch."""

    def __init__(self, batch: Batch, value: int) -> None:
        self._batch, self._value = batch, value

    @property
    def value(self) -> int:
        """The dword. Raises `ValueError` before the batch has ended."""
        if self._batch.open:
            raise ValueError("a read's value is known only when its batch has ended")
        return self._value


class ConfigAccess:
    """The configuration space of one function, as the host accesses it."""

    def __init__(self, path: Path, function: Function) -> None:
        self._path, self._function = path, function

    def read(self, offset: int, size_bytes: int = 4) -> int:
        """Read 1, 2 or 4 bytes inside a dword; all ones if nothing answers."""
        self._path.posted.push()
        self._path.clock.advance_ns(READ_NS)
        if not self._path.arrives(size_bytes, write=False):
            return (1 << 8 * size_bytes) - 1
        return self._function.read(offset, size_bytes)

    def write(self, offset: int, value: int, size_bytes: int = 4) -> None:
        """Write 1, 2 or 4 bytes inside a dword; configuration writes wait for their completion."""
        self._path.posted.push()
        if self._path.arrives(size_bytes, write=True):
            self._function.write(offset, value, size_bytes)
        self._path.clock.advance_ns(READ_NS)
