"""Open device nodes, and what a process maps through them."""

from __future__ import annotations

import ctypes
import enum
import errno
import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ringup.silicon.pci.path import Bar

if TYPE_CHECKING:
    from ringup.silicon.nv.kernel.uvm import UvmSpace

ONES = 0xFF


class Node(enum.Enum):
    """The device nodes, by the last part of their path."""

    CONTROL = "nvidiactl"
    CARD = "nvidia0"
    UVM = "nvidia-uvm"


def failure(number: int) -> OSError:
    """Return the error of a system call."""
    return OSError(number, os.strerror(number))


class MemoryRegion:
    """Memory that is mapped into this process. `address`: of its first byte."""

    def __init__(self, address: int, size_bytes: int, *, writable: bool) -> None:
        self.address, self.size_bytes, self._writable = address, size_bytes, writable
        self._view = memoryview((ctypes.c_ubyte * size_bytes).from_address(address)).cast("B")
        self._gone = False

    def _check(self, offset: int, size_bytes: int) -> None:
        if not 0 <= offset <= self.size_bytes - size_bytes:
            raise IndexError(f"{size_bytes} bytes at {offset:#x} of a mapping of {self.size_bytes:#x}")

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Return bytes; ones after the memory has been freed."""
        self._check(offset, size_bytes)
        return bytes([ONES]) * size_bytes if self._gone else bytes(self._view[offset : offset + size_bytes])

    def write(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Store bytes. Raises `PermissionError` where the process may only read: metal ends the process."""
        self._check(offset, len(data))
        if not self._writable:
            raise PermissionError(errno.EACCES, "the mapping is for reading only")
        if not self._gone:
            self._view[offset : offset + len(data)] = data

    def read32(self, offset: int) -> int:
        """Return a word."""
        return int.from_bytes(self.read(offset, 4), "little")

    def write32(self, offset: int, value: int) -> None:
        """Store a word."""
        self.write(offset, value.to_bytes(4, "little"))

    def revoke(self) -> None:
        """The memory is gone."""
        self._gone = True
        self.address = 0

    def close(self) -> None:
        """Unmap it."""
        self.revoke()


class RegisterRegion:
    """Registers that are mapped into this process. They have no address: every access must reach the card."""

    address = 0

    def __init__(self, bar: Bar, offset: int, size_bytes: int) -> None:
        self._bar, self._offset, self.size_bytes = bar, offset, size_bytes

    def _place(self, offset: int) -> int:
        if not 0 <= offset <= self.size_bytes - 4 or offset % 4:
            raise IndexError(f"a register at {offset:#x} of a mapping of {self.size_bytes:#x}")
        return self._offset + offset

    def read32(self, offset: int) -> int:
        """Return a register."""
        return self._bar.read32(self._place(offset))

    def write32(self, offset: int, value: int) -> None:
        """Write a register."""
        self._bar.write32(self._place(offset), value)

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Return registers as bytes."""
        return b"".join(self.read32(at).to_bytes(4, "little") for at in range(offset, offset + size_bytes, 4))

    def write(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Write registers."""
        for at in range(0, len(data), 4):
            self.write32(offset + at, int.from_bytes(data[at : at + 4], "little"))

    def revoke(self) -> None:
        """Nothing is to do: registers stay."""

    def close(self) -> None:
        """Unmap it."""


Region = MemoryRegion | RegisterRegion


@dataclass(eq=False, slots=True)
class CpuMapping:
    """What MAP_MEMORY allowed: `make` maps it when the process says so. `linear`: the address by which it is unmapped.

    `release` gives the window's addresses back.
    """

    client: int
    memory: int
    linear: int
    size_bytes: int
    make: Callable[[int, bool], Region]
    release: Callable[[], None]
    writable: bool
    exact: bool
    regions: list[Region] = field(default_factory=list)
    ended: bool = False

    def revoke(self) -> None:
        """The memory is gone, or was unmapped."""
        if not self.ended:
            self.ended = True
            self.release()
            for region in self.regions:
                region.revoke()


@dataclass(eq=False, slots=True)
class File:
    """An open node. `control`: the control node that it was registered with; `allowed`: what the next mmap maps."""

    node: Node
    descriptor: int
    control: File | None = None
    allowed: CpuMapping | None = None
    events: deque[tuple[int, int, int, int]] = field(default_factory=deque)
    # an event without data has come
    signalled: bool = False
    cards: tuple[int, ...] = ()
    space: UvmSpace | None = None
    closed: bool = False

    @property
    def owner(self) -> File:
        """The file that its clients belong to."""
        return self.control or self
