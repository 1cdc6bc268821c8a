"""A PCI function through VFIO: the kernel lets this process map its BARs, puts an IOMMU before its DMA and turns its
interrupts into events.

The kernel disables mastering, interrupts and mappings by itself when this process ends, however it ends.
Source: Linux vfio.h; driver-api/vfio.rst; vfio_pci_core.c.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Protocol

from ringup.autogen.linux import vfio
from ringup.drivers.cleanup import undone_on_error
from ringup.drivers.transport.config_space import NodeConfig
from ringup.drivers.transport.linux import dma
from ringup.drivers.transport.linux.device import FUNCTION, SLOT, Window
from ringup.drivers.transport.linux.dma import HostMemory
from ringup.drivers.transport.linux.function import Function, way_up
from ringup.drivers.transport.linux.iommufd import IommufdSpace, node_of
from ringup.drivers.transport.linux.iova import Iovas, Range
from ringup.drivers.transport.linux.kernel import explained
from ringup.drivers.transport.linux.mmio import FileWindow, MappedWindow, PatchedWindow, WriteCombining
from ringup.drivers.transport.linux.vfio_group import GroupSpace, asked_again, capabilities
from ringup.drivers.transport.linux.vfio_irq import EventInterrupts, Notice
from ringup.errors import LinkDown, NotSupported, RingupError

LOG = logging.getLogger(__name__)
NOTICES = (vfio.VFIO_PCI_REQ_IRQ_INDEX, vfio.VFIO_PCI_ERR_IRQ_INDEX)
# the only entry of `reset_method` that resets more than the function
BUS_RESET = "bus"


class Space(Protocol):
    """A function behind an IOMMU: what the group's and iommufd's interface share."""

    device_node: int

    @property
    def shown(self) -> str:
        """Its name for the user."""
        ...

    @property
    def reset_nodes(self) -> tuple[int, ...]:
        """The file descriptors that prove to a hot reset that all its functions are ours."""
        ...

    def owns(self, group: int, flags: int) -> bool:
        """Whether a function that a hot reset would reach is ours."""
        ...

    def usable(self) -> Iterator[Range]:
        """Yield the addresses that can be mapped."""
        ...

    def map(self, iova: int, address: int, size_bytes: int) -> None:
        """Map pages of this process."""
        ...

    def unmap(self, iova: int, size_bytes: int) -> None:
        """Unmap them."""
        ...

    def close(self) -> None:
        """Release it."""
        ...


class VfioWay:
    """A function behind VFIO: iommufd where the kernel has it, else container and group."""

    def __init__(self, function: Function) -> None:
        self._function, self._kernel = function, function.kernel
        self._doing = f"opening pci:{function.address}"
        self._space: Space = IommufdSpace(function) if node_of(function) else GroupSpace(function)
        self.shown = self._space.shown
        self._node = self._space.device_node
        self._notices: list[Notice] = []
        with ExitStack() as undo:
            undo.callback(self._space.close)
            self._info = self._device_info()
            start, _, _ = self._region(vfio.VFIO_PCI_CONFIG_REGION_INDEX)
            self.config = NodeConfig(self._node, start)
            self._iovas = Iovas(self._space.usable(), self._bridged())
            self._hot_reset = self._can_hot_reset()
            for index in NOTICES:
                self._notices.append(Notice(self._kernel, self._node, index))
                undo.callback(self._notices[-1].close)
            self.interrupts = EventInterrupts(self._kernel, self._node)
            undo.callback(self.interrupts.close)
            self._open = undo.pop_all()

    @property
    def revoked(self) -> bool:
        """Whether the kernel wants the function back, and waits for this process, or its link had an uncorrectable
        error.
        """
        return any(notice.came for notice in self._notices)

    def map_windows(self) -> tuple[dict[int, Window], Window | None]:
        """Return windows for the memory BARs; never write-combined, since VFIO maps uncached."""
        combining = WriteCombining()
        bars: dict[int, Window] = {}
        for index, bar in self._function.bars().items():
            window = self._window(index, bar.prefetchable, combining)
            if window is not None:
                bars[index] = window
        start, size, _ = self._region(vfio.VFIO_PCI_ROM_REGION_INDEX)
        rom = FileWindow(f"ROM of {self._function.address}", self._node, start, size, writable=False) if size else None
        return bars, rom

    def alloc_host(self, size_bytes: int) -> HostMemory:
        """Return pages mapped at one run of bus addresses."""
        return dma.lend_own(size_bytes, self._lend)

    def pin(self, buffer: memoryview) -> HostMemory:
        """Map the caller's pages in place."""
        return dma.lend_callers(buffer, self._lend)

    def reach(self, start: int, view: memoryview) -> HostMemory:
        """Let the IOMMU map the other function's BAR for the card, where this process has mapped it.

        Source: Linux vfio_iommu_type1.c, vaddr_get_pfns, which takes mappings of devices; iommufd's pages.c pins pages
        of memory alone (pin_user_pages_remote), so it refuses them.
        """
        try:
            return self.pin(view)
        except RingupError as error:
            raise NotSupported(
                f"the IOMMU maps no memory of another card at {start:#x} over {self.shown}: {error}"
            ) from error

    def bar_start(self, bar: int) -> int:
        """Return the address of a BAR that the kernel has assigned."""
        return self._function.bars()[bar].start

    def resets(self) -> tuple[str, ...]:
        """Return the names of the resets that work; a function that only a bus reset reaches has none of its own."""
        methods = self._kernel.text(self._function.path / "reset_method").split()
        function = self._info.flags & vfio.VFIO_DEVICE_FLAGS_RESET and methods != [BUS_RESET]
        return (*([FUNCTION] if function else []), *([SLOT] if self._hot_reset else []))

    def reset(self, method: str) -> None:
        """Make the kernel reset the function; it saves and restores its configuration space."""
        doing = f"resetting pci:{self._function.address} ({method})"
        if method == FUNCTION:
            self._kernel.ask(self._node, vfio.VFIO_DEVICE_RESET, 0, doing)
            return
        head, nodes = vfio.vfio_pci_hot_reset.SIZE, self._space.reset_nodes
        call = bytearray(head) + b"".join(node.to_bytes(4, "little") for node in nodes)
        fields = vfio.vfio_pci_hot_reset.view(call)
        fields.argsz, fields.count = len(call), len(nodes)
        del fields
        try:
            self._kernel.ask(self._node, vfio.VFIO_DEVICE_PCI_HOT_RESET, call, doing)
        # the kernel supports the reset; it also returns ENOTTY if the link stays down afterwards
        except NotSupported as error:
            raise LinkDown(
                f"{doing}: the link did not train again; check the slot's power, `dmesg` may say more"
            ) from error

    def dma_state(self) -> str:
        """Say that the IOMMU maps what the card is given, and which bridges are shut."""
        iommu = f"the IOMMU maps its addresses for group {self._function.group} ({self.shown})"
        return "; ".join(filter(None, (iommu, way_up(self._function))))

    def close(self) -> None:
        """Disable interrupts, then release the function and its addresses. Twice is harmless."""
        self._open.close()

    def _device_info(self) -> vfio.vfio_device_info:
        info = vfio.vfio_device_info(argsz=vfio.vfio_device_info.SIZE)
        self._kernel.ask(self._node, vfio.VFIO_DEVICE_GET_INFO, info, self._doing)
        if not info.flags & vfio.VFIO_DEVICE_FLAGS_PCI:
            raise NotSupported(f"{self._doing}: VFIO says that it is no PCI function (flags {info.flags:#x})")
        return info

    def _region(self, index: int) -> tuple[int, int, bytearray]:
        """Return (offset in the node, bytes, the whole answer) of a region; no bytes where the function lacks it."""

        def ask(reply: bytearray) -> None:
            reply[vfio.vfio_region_info.offset_of("index")] = index
            try:
                self._kernel.call(self._node, vfio.VFIO_DEVICE_GET_REGION_INFO, reply)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise explained(error, f"{self._doing}: asking for region {index}") from error

        reply = asked_again(ask)
        info = vfio.vfio_region_info.view(reply)
        return info.offset, info.size, reply

    def _window(self, index: int, prefetchable: bool, combining: WriteCombining) -> Window | None:
        start, size, reply = self._region(index)
        if not size:
            return None
        flags = vfio.vfio_region_info.view(reply).flags
        name = f"BAR {index} of {self._function.address}"
        rest = FileWindow(name, self._node, start, size, writable=bool(flags & vfio.VFIO_REGION_INFO_FLAG_WRITE))
        if not flags & vfio.VFIO_REGION_INFO_FLAG_MMAP:
            LOG.info("%s cannot be mapped: each access is a call", name)
            return rest
        pieces = [
            (at, self._map(name, start + at, length, prefetchable, combining)) for at, length in _areas(reply, size)
        ]
        return (
            pieces[0][1] if len(pieces) == 1 and pieces[0][1].size_bytes == size else PatchedWindow(name, rest, pieces)
        )

    def _map(self, name: str, start: int, size: int, prefetchable: bool, combining: WriteCombining) -> MappedWindow:
        mapping = self._kernel.map(self._node, size, f"{self._doing}: mapping {name}", start=start)
        return MappedWindow(name, mapping, size, memory_like=prefetchable, combining=combining, combined=False)

    def _bridged(self) -> Iterator[Range]:
        """Yield bus addresses that never reach the IOMMU: bridges on the way send them to a BAR.

        Source: PCI-to-PCI bridge architecture specification 1.2, "Memory Base and Limit".
        """
        for function in (*self._function.mates(), *self._function.above()):
            for row in function.resources():
                if row.memory:
                    yield row.start, row.start + row.size_bytes

    def _lend(self, anchor: dma.Anchor, size_bytes: int) -> tuple[list[dma.Run], dma.Release]:
        iova = self._iovas.alloc(size_bytes)
        with undone_on_error(partial(self._iovas.free, iova, size_bytes)):
            self._space.map(iova, anchor.address, size_bytes)

        def take_back() -> None:
            self._space.unmap(iova, size_bytes)
            self._iovas.free(iova, size_bytes)

        return [(iova, size_bytes)], take_back

    def _can_hot_reset(self) -> bool:
        """Ask which functions a reset of the slot would reach: this process must hold all of them."""
        head, row = vfio.vfio_pci_hot_reset_info, vfio.vfio_pci_dependent_device
        reply = bytearray(head.SIZE)
        # the first call returns how many there are
        for _ in range(2):
            head.view(reply).argsz = len(reply)
            try:
                self._kernel.call(self._node, vfio.VFIO_DEVICE_GET_PCI_HOT_RESET_INFO, reply)
                break
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    return False
            reply = bytearray(head.SIZE + head.view(reply).count * row.SIZE)
        info = head.view(reply)
        reached = [row.view(reply, head.SIZE + index * row.SIZE) for index in range(info.count)]
        return bool(reached) and all(self._space.owns(other.group_id, info.flags) for other in reached)


def _areas(reply: bytearray, size: int) -> list[tuple[int, int]]:
    """Return (first byte, bytes) of what may be mapped of a region, in order: all of it unless the kernel names
    pieces.
    """
    head, row = vfio.vfio_region_info_cap_sparse_mmap, vfio.vfio_region_sparse_mmap_area
    info = vfio.vfio_region_info.view(reply)
    first = info.cap_offset if info.flags & vfio.VFIO_REGION_INFO_FLAG_CAPS else 0
    for at in capabilities(reply, first, vfio.VFIO_REGION_INFO_CAP_SPARSE_MMAP):
        count = head.view(reply, at).nr_areas
        rows = [row.view(reply, at + head.SIZE + index * row.SIZE) for index in range(count)]
        return sorted((area.offset, area.size) for area in rows if area.size)
    return [(0, size)]
