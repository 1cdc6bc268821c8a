"""VFIO's second interface: each function is a node of its own, and address spaces are objects of /dev/iommu. Source:
Linux iommufd.h, vfio.h.
"""

from __future__ import annotations

import ctypes
import errno
from collections.abc import Iterator
from typing import Final

from ringup.autogen.linux import iommufd, vfio
from ringup.drivers.cleanup import undone_on_error
from ringup.drivers.transport.linux import advice
from ringup.drivers.transport.linux.function import Function
from ringup.drivers.transport.linux.iova import Range
from ringup.drivers.transport.linux.kernel import Nodes, explained
from ringup.errors import CardBusy, PermissionNeeded

REMAPPING = "the IOMMU cannot remap interrupts (then iommufd.allow_unsafe_interrupts=1 lets it through)"
MAP_FLAGS = iommufd.IOMMU_IOAS_MAP_FIXED_IOVA | iommufd.IOMMU_IOAS_MAP_READABLE | iommufd.IOMMU_IOAS_MAP_WRITEABLE
# how many ranges the first call asks for; the kernel says if there are more
RANGES = 64


def node_of(function: Function) -> str:
    """Return the name of the function's VFIO node, such as vfio0; empty where the kernel makes none, or has no
    /dev/iommu.
    """
    kernel = function.kernel
    names = kernel.names(function.path / "vfio-dev")
    there = names and kernel.path("dev/iommu").exists() and kernel.path("dev/vfio/devices", names[0]).exists()
    return names[0] if there else ""


class IommufdSpace:
    """One address space (IOAS) that one function is attached to. `device_node` is the function's."""

    shown: Final = "vfio (iommufd)"
    # a hot reset checks which functions the iommufd owns, so it needs no nodes
    reset_nodes: tuple[int, ...] = ()

    def __init__(self, function: Function) -> None:
        """Raises `CardBusy` when another process holds a function of the group, `PermissionNeeded`."""
        self._kernel, self._doing = function.kernel, f"opening pci:{function.address}"
        self._nodes = Nodes(self._kernel, self._doing, advice.of_vfio_node)
        self.device_node = -1
        with undone_on_error(self.close):
            self._iommu = self._nodes.open(self._kernel.path("dev/iommu"))
            self.device_node = self._nodes.open(self._kernel.path(f"dev/vfio/devices/{node_of(function)}"))
            self._space = self._attach()

    def owns(self, devid: int, flags: int) -> bool:
        """Whether the function that a hot reset would reach is ours: the kernel has checked that for all of them."""
        return bool(flags & vfio.VFIO_PCI_HOT_RESET_FLAG_DEV_ID_OWNED)

    def usable(self) -> Iterator[Range]:
        """Yield the addresses that the IOMMU takes."""
        count = RANGES
        while True:
            rows = bytearray(count * iommufd.iommu_iova_range.SIZE)
            call = iommufd.iommu_ioas_iova_ranges(
                size=iommufd.iommu_ioas_iova_ranges.SIZE,
                ioas_id=self._space,
                num_iovas=count,
                allowed_iovas=address_of(rows),
            )
            try:
                self._kernel.call(self._iommu, iommufd.IOMMU_IOAS_IOVA_RANGES, call)
            except OSError as error:
                if error.errno != errno.EMSGSIZE or call.num_iovas <= count:
                    raise explained(error, f"{self._doing}: asking the IOMMU") from error
                count = call.num_iovas
                continue
            for index in range(call.num_iovas):
                row = iommufd.iommu_iova_range.view(rows, index * iommufd.iommu_iova_range.SIZE)
                yield row.start, row.last + 1
            return

    def map(self, iova: int, address: int, size_bytes: int) -> None:
        """Pin pages of this process and let the card reach them at `iova`."""
        call = iommufd.iommu_ioas_map(
            size=iommufd.iommu_ioas_map.SIZE,
            flags=MAP_FLAGS,
            ioas_id=self._space,
            user_va=address,
            length=size_bytes,
            iova=iova,
        )
        self._kernel.ask(
            self._iommu,
            iommufd.IOMMU_IOAS_MAP,
            call,
            f"mapping {size_bytes} bytes for the card",
            lambda code: advice.of_mapping(self._kernel, code, size_bytes),
        )

    def unmap(self, iova: int, size_bytes: int) -> None:
        """Unmap pages from the card and unpin them."""
        call = iommufd.iommu_ioas_unmap(
            size=iommufd.iommu_ioas_unmap.SIZE, ioas_id=self._space, iova=iova, length=size_bytes
        )
        self._kernel.ask(self._iommu, iommufd.IOMMU_IOAS_UNMAP, call, f"unmapping {size_bytes} bytes from the card")

    def close(self) -> None:
        """Release the function, then its address space. Twice is harmless."""
        self._nodes.close()

    def _attach(self) -> int:
        bind = vfio.vfio_device_bind_iommufd(argsz=vfio.vfio_device_bind_iommufd.SIZE, iommufd=self._iommu)
        try:
            self._kernel.ask(self.device_node, vfio.VFIO_DEVICE_BIND_IOMMUFD, bind, self._doing)
        except PermissionNeeded as error:
            # rights were asked for when the node was opened: EPERM now means that the group has another owner
            raise CardBusy(
                f"{error}; another process holds a function of its group, or a kernel driver does, or {REMAPPING}"
            ) from error
        space = iommufd.iommu_ioas_alloc(size=iommufd.iommu_ioas_alloc.SIZE)
        self._kernel.ask(self._iommu, iommufd.IOMMU_IOAS_ALLOC, space, f"{self._doing}: making an address space")
        attach = vfio.vfio_device_attach_iommufd_pt(
            argsz=vfio.vfio_device_attach_iommufd_pt.SIZE, pt_id=space.out_ioas_id
        )
        self._kernel.ask(
            self.device_node,
            vfio.VFIO_DEVICE_ATTACH_IOMMUFD_PT,
            attach,
            f"{self._doing}: attaching it to its addresses",
        )
        return int(space.out_ioas_id)


def address_of(buffer: bytearray) -> int:
    """Return where a buffer lies, for a call that takes a pointer; valid while the buffer is not resized."""
    return ctypes.addressof((ctypes.c_char * len(buffer)).from_buffer(buffer))
