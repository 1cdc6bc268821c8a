"""VFIO's first interface: a container holds the IOMMU's address space, a group the functions that share it.

Source: Linux vfio.h; driver-api/vfio.rst.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from ringup.autogen.linux import vfio
from ringup.drivers.cleanup import undone_on_error
from ringup.drivers.transport.linux import advice
from ringup.drivers.transport.linux.function import Function
from ringup.drivers.transport.linux.iova import Range
from ringup.drivers.transport.linux.kernel import Nodes
from ringup.errors import CardBusy, NotSupported, TransportError

# for calls whose reply ends in a chain of capabilities; the kernel says if it needs more
REPLY_BYTES = 4096
MAX_REPLY = 1 << 20
READ_WRITE = vfio.VFIO_DMA_MAP_FLAG_READ | vfio.VFIO_DMA_MAP_FLAG_WRITE


class GroupSpace:
    """The address space of one group in a container of its own. `device_node` is the function's."""

    shown: Final = "vfio (group)"

    def __init__(self, function: Function) -> None:
        """Raises `CardBusy` when another process holds the group or a function of it, `PermissionNeeded`,
        `NotSupported` for another IOMMU.
        """
        self._kernel, self._doing = function.kernel, f"opening pci:{function.address}"
        self._function = function
        self._nodes = Nodes(self._kernel, self._doing, advice.of_vfio_node)
        self.device_node = -1
        with undone_on_error(self.close):
            self._container = self._nodes.open(self._kernel.path("dev/vfio/vfio"))
            self._check_container()
            self._group = self._nodes.open(self._kernel.path(f"dev/vfio/{function.group}"))
            self._join()
            self.device_node = self._device()

    @property
    def reset_nodes(self) -> tuple[int, ...]:
        """The file descriptors that prove to a hot reset that all its functions are ours."""
        return (self._group,)

    def owns(self, group: int, flags: int) -> bool:
        """Whether the function that a hot reset would reach is ours; `group` as the kernel reports it."""
        return not flags & vfio.VFIO_PCI_HOT_RESET_FLAG_DEV_ID and str(group) == self._function.group

    def usable(self) -> Iterator[Range]:
        """Yield the addresses that the IOMMU takes; all of 32 bits' where an old kernel does not say."""
        reply = asked_again(
            lambda reply: self._kernel.ask(
                self._container, vfio.VFIO_IOMMU_GET_INFO, reply, f"{self._doing}: asking the IOMMU"
            )
        )
        info = vfio.vfio_iommu_type1_info.view(reply)
        at = info.cap_offset if info.flags & vfio.VFIO_IOMMU_INFO_CAPS else 0
        for offset in capabilities(reply, at, vfio.VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE):
            head = vfio.vfio_iommu_type1_info_cap_iova_range
            count = head.view(reply, offset).nr_iovas
            for start in range(
                offset + head.SIZE, offset + head.SIZE + count * vfio.vfio_iova_range.SIZE, vfio.vfio_iova_range.SIZE
            ):
                row = vfio.vfio_iova_range.view(reply, start)
                yield row.start, row.end + 1
            return
        yield 0, 1 << 32

    def map(self, iova: int, address: int, size_bytes: int) -> None:
        """Pin pages of this process and let the card reach them at `iova`."""
        call = vfio.vfio_iommu_type1_dma_map(
            argsz=vfio.vfio_iommu_type1_dma_map.SIZE, flags=READ_WRITE, vaddr=address, iova=iova, size=size_bytes
        )
        self._kernel.ask(
            self._container,
            vfio.VFIO_IOMMU_MAP_DMA,
            call,
            f"mapping {size_bytes} bytes for the card",
            lambda code: advice.of_mapping(self._kernel, code, size_bytes),
        )

    def unmap(self, iova: int, size_bytes: int) -> None:
        """Unmap pages from the card and unpin them."""
        call = vfio.vfio_iommu_type1_dma_unmap.view(bytearray(vfio.vfio_iommu_type1_dma_unmap.SIZE))
        call.argsz, call.iova, call.size = vfio.vfio_iommu_type1_dma_unmap.SIZE, iova, size_bytes
        self._kernel.ask(
            self._container, vfio.VFIO_IOMMU_UNMAP_DMA, call, f"unmapping {size_bytes} bytes from the card"
        )
        if call.size != size_bytes:
            raise TransportError(f"unmapping {size_bytes} bytes from the card: the kernel unmapped {call.size}")

    def close(self) -> None:
        """Release the function, the group and the container, in that order. Twice is harmless."""
        self._nodes.close()

    def _check_container(self) -> None:
        version = self._kernel.ask(self._container, vfio.VFIO_GET_API_VERSION, 0, self._doing)
        if version != vfio.VFIO_API_VERSION:
            raise NotSupported(f"{self._doing}: VFIO speaks version {version}, ringup {vfio.VFIO_API_VERSION}")
        if not self._kernel.ask(self._container, vfio.VFIO_CHECK_EXTENSION, vfio.VFIO_TYPE1v2_IOMMU, self._doing):
            raise NotSupported(f"{self._doing}: VFIO has no type 1 IOMMU here; as root: modprobe vfio_iommu_type1")

    def _join(self) -> None:
        status = vfio.vfio_group_status(argsz=vfio.vfio_group_status.SIZE)
        self._kernel.ask(self._group, vfio.VFIO_GROUP_GET_STATUS, status, self._doing)
        if not status.flags & vfio.VFIO_GROUP_FLAGS_VIABLE:
            mates = ", ".join(f"{mate.address} ({mate.driver or 'no driver'})" for mate in self._function.mates())
            raise CardBusy(
                f"{self._doing}: group {self._function.group} is not viable, a member belongs to the kernel: {mates}; "
                f"`ringup bind {self._function.address}` takes them all"
            )
        container = bytearray(self._container.to_bytes(4, "little"))
        self._kernel.ask(self._group, vfio.VFIO_GROUP_SET_CONTAINER, container, self._doing)
        self._kernel.ask(
            self._container,
            vfio.VFIO_SET_IOMMU,
            vfio.VFIO_TYPE1v2_IOMMU,
            f"{self._doing}: setting the IOMMU up",
            advice.of_set_iommu,
        )

    def _device(self) -> int:
        name = bytearray(self._function.address.encode() + b"\0")
        node = self._kernel.ask(self._group, vfio.VFIO_GROUP_GET_DEVICE_FD, name, self._doing)
        return self._nodes.hold(node)


def asked_again(ask: Callable[[bytearray], object]) -> bytearray:
    """Make a call whose first dword says how long the reply may be, and again with more room when the kernel asks for
    it.
    """
    size = REPLY_BYTES
    while True:
        reply = bytearray(size)
        reply[:4] = size.to_bytes(4, "little")
        ask(reply)
        wanted = int.from_bytes(reply[:4], "little")
        if wanted <= size:
            return reply
        if wanted > MAX_REPLY:
            raise TransportError(
                f"the kernel wants to answer with {wanted} bytes, {MAX_REPLY} are the most that make sense"
            )
        size = wanted


def capabilities(reply: bytearray, first: int, wanted: int) -> Iterator[int]:
    """Yield the offsets of capabilities with that id. The chain only runs forward, inside the reply."""
    at, size = first, vfio.vfio_info_cap_header.SIZE
    while at and at + size <= len(reply):
        header = vfio.vfio_info_cap_header.view(reply, at)
        if header.id == wanted:
            yield at
        if header.next <= at:
            return
        at = header.next
