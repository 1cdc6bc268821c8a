"""The system calls on NVIDIA's device nodes: of the machine itself, or of a model of one in this process."""

from __future__ import annotations

import ctypes
import enum
import errno
import os
import select
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from ringup.drivers.transport.clock import HostClock
from ringup.drivers.transport.linux.kernel import Kernel
from ringup.drivers.transport.linux.mapping import give_up
from ringup.drivers.transport.linux.mmio import MappedWindow, WriteCombining
from ringup.drivers.transport.seam import Clock

CONTROL_NODE = "/dev/nvidiactl"
UVM_NODE = "/dev/nvidia-uvm"
CARD_NODE = "/dev/nvidia{}"
MAX_SIGNALS = 100
EVENTS = select.POLLIN | select.POLLPRI


class Kind(enum.Enum):
    """What is mapped: registers, the card's memory through the processor's write-combining buffers, the host's own."""

    REGISTERS = enum.auto()
    VRAM = enum.auto()
    HOST = enum.auto()


class Happened(enum.Enum):
    """What ended a wait for nodes: an event, the time, or that the card is gone."""

    EVENT = enum.auto()
    NOTHING = enum.auto()
    GONE = enum.auto()


class Mapping(Protocol):
    """What a node maps into this process."""

    @property
    def view(self) -> memoryview | None:
        """Its bytes as plain memory; None for registers."""
        ...

    def read32(self, offset: int) -> int:
        """Read a dword in one access."""
        ...

    def write32(self, offset: int, value: int) -> None:
        """Write a dword in one access."""
        ...

    def close(self) -> None:
        """Unmap it."""
        ...


class System(Protocol):
    """Where the nodes are."""

    @property
    def clock(self) -> Clock:
        """Time, as work on the card takes it."""
        ...

    @property
    def combining(self) -> WriteCombining:
        """What drains the processor's write-combining buffers."""
        ...

    def open(self, path: str) -> int:
        """Open a node. Raises `OSError`."""
        ...

    def close(self, node: int) -> None:
        """Close a node."""
        ...

    def ioctl(self, node: int, request: int, data: bytearray) -> None:
        """Call a node with a request's bytes, which the answer replaces. Raises `OSError`."""
        ...

    def map(self, node: int, size_bytes: int, kind: Kind) -> Mapping:
        """Map what the last call on the node allowed. Raises `OSError` or `RingupError`."""
        ...

    def poll(self, nodes: Sequence[int], timeout_ms: float) -> Happened:
        """Wait until one of the nodes has an event, at most that long."""
        ...

    def text(self, path: str) -> str:
        """Return a file's text; empty where it cannot be read."""
        ...

    def mistakes(self) -> list[str]:
        """Return the mistakes that a virtual card saw so far; none for a real machine."""
        ...

    def end(self) -> None:
        """Give the machine up: its nodes are closed."""
        ...


class NodeMapping:
    """Memory or registers of a node, mapped by Linux."""

    def __init__(self, window: MappedWindow, kind: Kind) -> None:
        self._window = window
        self.read32, self.write32 = window.read32, window.write32
        self.view = None if kind is Kind.REGISTERS else window.map()

    def close(self) -> None:
        """Unmap it. Views that a caller still has show zeros from then on."""
        if self.view is not None:
            self.view.release()
        self._window.close()


class LinuxSystem:
    """This machine."""

    def __init__(self, kernel: Kernel | None = None) -> None:
        self.kernel = kernel or Kernel()
        self.clock = HostClock()
        self.combining = WriteCombining()

    def open(self, path: str) -> int:
        """Open a node."""
        return os.open(self.kernel.path(path), os.O_RDWR | os.O_CLOEXEC)

    def close(self, node: int) -> None:
        """Close a node."""
        os.close(node)

    def ioctl(self, node: int, request: int, data: bytearray) -> None:
        """Call a node. A signal that interrupts the wait before the call, as while the machine goes to sleep, does not
        end it.
        """
        for _ in range(MAX_SIGNALS):
            try:
                self.kernel.call(node, request, data)
            except InterruptedError:
                continue
            return
        raise InterruptedError(errno.EINTR, os.strerror(errno.EINTR))

    def map(self, node: int, size_bytes: int, kind: Kind) -> NodeMapping:
        """Map what the last call on the node allowed."""
        mapping = self.kernel.map(node, size_bytes, "mapping memory of the card")
        try:
            window = MappedWindow(
                kind.name.lower(),
                mapping,
                size_bytes,
                memory_like=kind is not Kind.REGISTERS,
                combining=self.combining,
                combined=kind is Kind.VRAM,
            )
        except BaseException:
            give_up(mapping)
            raise
        return NodeMapping(window, kind)

    def poll(self, nodes: Sequence[int], timeout_ms: float) -> Happened:
        """Wait for an event."""
        waiting = select.poll()
        for node in nodes:
            waiting.register(node, EVENTS)
        seen = waiting.poll(timeout_ms)
        # nv.c, nvidia_poll: a card that is gone hangs up
        if any(bits & ~EVENTS for _, bits in seen):
            return Happened.GONE
        return Happened.EVENT if seen else Happened.NOTHING

    def text(self, path: str) -> str:
        """Return a file's text."""
        return self.kernel.text(self.kernel.path(path))

    def mistakes(self) -> list[str]:
        """Return none."""
        return []

    def end(self) -> None:
        """Do nothing: the machine stays."""


class RegionMapping:
    """What a model of a machine maps: memory of this process, or registers that only its functions reach."""

    def __init__(self, region: Any) -> None:
        self._region = region
        self.read32, self.write32 = region.read32, region.write32
        whole = (ctypes.c_ubyte * region.size_bytes).from_address(region.address) if region.address else None
        self.view = None if whole is None else memoryview(whole).cast("B")

    def close(self) -> None:
        """Unmap it."""
        if self.view is not None:
            self.view.release()
        self._region.close()


class ModelSystem:
    """A machine whose system calls are functions of this process: the interface of `ringup.silicon.nvidia_kernel`."""

    def __init__(self, model: Any, *, owned: bool = False) -> None:
        """`owned`: the model ends with the path to its card."""
        self.model, self._owned = model, owned
        self.clock: Clock = model.card.clock
        self.combining = WriteCombining()
        self.open, self.close, self.ioctl = model.open, model.close, model.ioctl

    def map(self, node: int, size_bytes: int, kind: Kind) -> RegionMapping:
        """Map what the last call on the node allowed."""
        return RegionMapping(self.model.mmap(node, size_bytes))

    def poll(self, nodes: Sequence[int], timeout_ms: float) -> Happened:
        """Wait for an event."""
        return Happened.EVENT if self.model.poll(nodes, timeout_ms) else Happened.NOTHING

    def text(self, path: str) -> str:
        """Return a file's text."""
        found: str = self.model.texts.get(path, "")
        return found

    def mistakes(self) -> list[str]:
        """Return the mistakes that the model's card saw so far."""
        return [f"{event.block}: {event.text}" for event in self.model.card.violations]

    def end(self) -> None:
        """End the model if it is the path's own."""
        if self._owned:
            self.model.end()


def node_of(minor: int) -> str:
    """Return the path of a card's node."""
    return CARD_NODE.format(minor)


def exists(kernel: Kernel, path: str) -> bool:
    """Tell whether a node is there."""
    return Path(kernel.path(path)).exists()
