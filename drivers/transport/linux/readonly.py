"""Reading a function that another process holds: its BARs are mapped for reading; nothing is locked or written.

`open_readonly(address)` maps through sysfs, which works beside VFIO as well; `ReadOnly.of(device)` reads through a
device of this process. Source: Linux PCI/sysfs-pci.rst.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import NoReturn

from ringup.autogen.linux import pci
from ringup.drivers.cleanup import undone_on_error
from ringup.drivers.transport.clock import HostClock
from ringup.drivers.transport.config_space import GONE, NodeConfig, answers, ask
from ringup.drivers.transport.linux.function import Function
from ringup.drivers.transport.linux.function import find as find_function
from ringup.drivers.transport.linux.kernel import Kernel, Nodes
from ringup.drivers.transport.linux.lock import CardLock
from ringup.drivers.transport.linux.mmio import MappedWindow, WriteCombining
from ringup.drivers.transport.polling import Polling
from ringup.drivers.transport.seam import Batch, Clock, ConfigSpace, Device, Interrupts, Mmio, Remote
from ringup.errors import CardBusy, NotSupported

# with these drivers, no kernel driver uses the card
OPEN_BESIDE = ("", "vfio-pci")
AWAKE = "D0"


def refused(what: str) -> ValueError:
    """Return the error for an access that would change something; the caller raises it."""
    return ValueError(f"{what}: the card is open for looking only")


class ReadOnlyWindow:
    """A window that refuses writes."""

    def __init__(self, window: Mmio, name: str) -> None:
        self._window, self._name = window, name
        self.read32, self.read64, self.read_block = window.read32, window.read64, window.read_block

    @property
    def size_bytes(self) -> int:
        """How large it is."""
        return self._window.size_bytes

    def write32(self, offset: int, value: int) -> None:
        """Refuse."""
        raise refused(f"writing {value:#x} at {offset:#x} of {self._name}")

    def write64(self, offset: int, value: int) -> None:
        """Refuse."""
        raise refused(f"writing {value:#x} at {offset:#x} of {self._name}")

    def write_block(self, offset: int, data: bytes | memoryview) -> None:
        """Refuse."""
        raise refused(f"writing {len(data)} bytes at {offset:#x} of {self._name}")

    def map(self) -> memoryview:
        """Return the window as plain memory that cannot be written."""
        return self._window.map().toreadonly()

    def batch(self) -> AbstractContextManager[Batch]:
        """Refuse: batches are for writes."""
        raise refused(f"a batch on {self._name}")


class ReadOnlyConfig:
    """Configuration space that refuses writes."""

    def __init__(self, config: ConfigSpace) -> None:
        self.read = config.read

    def write(self, offset: int, value: int, size_bytes: int = 4) -> None:
        """Refuse."""
        raise refused(f"writing {value:#x} to configuration space at {offset:#x}")


class ReadOnly:
    """The seam's `Device` for reading only. A context manager."""

    rom: Mmio | None = None
    polls_vram = False
    why_lost = GONE
    remote: Remote | None = None

    def __init__(
        self, name: str, config: ConfigSpace, windows: Mapping[int, Mmio], clock: Clock, close: Callable[[], None]
    ) -> None:
        self.name, self.clock = name, clock
        self.config = ReadOnlyConfig(config)
        self.bars: Mapping[int, Mmio] = {n: ReadOnlyWindow(one, f"BAR {n} of {name}") for n, one in windows.items()}
        self.interrupts: Interrupts = Polling(clock)
        self._close = close

    @classmethod
    def of(cls, device: Device) -> ReadOnly:
        """Read through a device that this process has open; it stays open."""
        return cls(device.name, device.config, device.bars, device.clock, lambda: None)

    @property
    def lost(self) -> bool:
        """Whether the card is gone from the bus."""
        return not answers(self.config)

    def alloc_host(self, size_bytes: int) -> NoReturn:
        """Refuse."""
        raise refused(f"giving the card {size_bytes} bytes of host memory")

    def pin(self, buffer: memoryview) -> NoReturn:
        """Refuse."""
        raise refused(f"giving the card {len(buffer)} bytes of host memory")

    def resets(self) -> tuple[str, ...]:
        """Name none."""
        return ()

    def reset(self, method: str) -> NoReturn:
        """Refuse."""
        raise refused(f"resetting the {method}")

    def firmware(self, name: str) -> bytes | None:
        """Return None."""
        return None

    def close(self) -> None:
        """Unmap everything. Twice is harmless."""
        close, self._close = self._close, lambda: None
        close()

    def __enter__(self) -> ReadOnly:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_readonly(address: str, kernel: Kernel | None = None) -> ReadOnly:
    """Map the function at `address` for reading, whatever process holds it.

    Raises `NoSuchCard`, `CardBusy` when a driver of the kernel's works it, `NotSupported` when it sleeps or answers
    nobody, `PermissionNeeded`.
    """
    function = find_function(kernel or Kernel(), address)
    name, doing = f"pci:{function.address}", f"looking at pci:{function.address}"
    if function.driver not in OPEN_BESIDE:
        raise CardBusy(f"{doing}: {function.driver} works it; ask that driver (its files are in {function.path}/hwmon)")
    power = function.kernel.text(function.path / "power_state") or AWAKE
    nodes = Nodes(function.kernel, doing)
    windows: dict[int, MappedWindow] = {}

    def close() -> None:
        for window in windows.values():
            window.close()
        nodes.close()

    with undone_on_error(close):
        config = NodeConfig(nodes.open(function.path / "config", os.O_RDONLY))
        _check_answers(config, power, doing)
        for index in function.bars():
            windows[index] = _map(function, index, doing, nodes)
    return ReadOnly(name, config, windows, HostClock(), close)


def holder(address: str, kernel: Kernel | None = None) -> str:
    """Return the process that holds ringup's lock of the function at `address`; empty when none is seen."""
    function = find_function(kernel or Kernel(), address)
    return str(CardLock(function.kernel, function.address).holder() or "")


def _check_answers(config: ConfigSpace, power: str, doing: str) -> None:
    if power != AWAKE or not ask(config, pci.PCI_COMMAND, 2, doing) & pci.PCI_COMMAND_MEMORY:
        raise NotSupported(f"{doing}: it is in {power} and answers nobody; a process that drives it wakes it")


def _map(function: Function, index: int, doing: str, nodes: Nodes) -> MappedWindow:
    bar = function.bars()[index]
    node = nodes.open(function.path / f"resource{index}", os.O_RDONLY)
    remedy = "the kernel keeps claimed ranges to their holder: boot with iomem=relaxed"
    mapping = function.kernel.map(node, bar.size_bytes, f"{doing}: mapping BAR {index}", remedy, writable=False)
    return MappedWindow(
        f"BAR {index} of {function.address}",
        mapping,
        bar.size_bytes,
        memory_like=bar.prefetchable,
        combining=WriteCombining(),
        combined=False,
    )
