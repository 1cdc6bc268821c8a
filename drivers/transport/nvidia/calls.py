"""The calls of NVIDIA's kernel driver on its control node and on a card's: objects, controls, mappings, events.

Every request holds the layout of the driver's release, which is read before anything else. A release that is newer than
all known ones gets the layouts of the newest. Source: NVIDIA open-gpu-kernel-modules, nv-ioctl.h, nv_escape.h, nvos.h;
kernel-open/nvidia/nv.c (nvidia_ioctl), arch/nvalloc/unix/src/escape.c.
"""

from __future__ import annotations

import ctypes
import errno
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ringup.autogen.nv import rm
from ringup.autogen.nv.classes import NV01_MEMORY_SYSTEM_OS_DESCRIPTOR
from ringup.autogen.releases import release_key
from ringup.autogen.structs import Struct, memory
from ringup.drivers.cleanup import Teardown, undone_on_error
from ringup.drivers.transport.linux.kernel import explained
from ringup.drivers.transport.nvidia.status import refusal
from ringup.drivers.transport.nvidia.system import CONTROL_NODE, Kind, Mapping, System, node_of
from ringup.errors import DeviceLost, NotSupported, RingupError, TransportError

LOG = logging.getLogger(__name__)
READ_WRITE = 3
MAX_CARDS = 32  # NV_MAX_DEVICES of nv-limits.h: what CARD_INFO has room for
OLDEST, NEWEST = rm.READ_FROM[0], rm.READ_FROM[-1]
MAX_RELEASE_BYTES = 40


def number_of(escape: int, size_bytes: int) -> int:
    """Return the number of an ioctl, as the C macro _IOWR makes it."""
    return READ_WRITE << 30 | size_bytes << 16 | rm.NV_IOCTL_MAGIC << 8 | escape


def address_of(data: bytearray) -> int:
    """Return where bytes lie, for a pointer in a request; 0 for no bytes. The caller keeps them."""
    return ctypes.addressof(ctypes.c_char.from_buffer(data)) if data else 0


def layouts_for(release: str, name: str) -> str:
    """Return the release whose layouts a driver's release gets: its own, if its branch is known.

    Raises `NotSupported` for one before the first known branch.
    """
    major = release_key(release)[0]
    if major < release_key(OLDEST)[0]:
        raise NotSupported(
            f"{name}: the kernel's driver is NVIDIA's release {release}; ringup knows the layouts of {OLDEST} and later: "
            "install a newer driver"
        )
    if major > release_key(NEWEST)[0]:
        LOG.warning(
            "%s: the kernel's driver is NVIDIA's release %s, which is newer than all that ringup knows: the layouts of "
            "%s are used",
            name, release, NEWEST,
        )  # fmt: skip
        return NEWEST
    return release


@dataclass(frozen=True, slots=True)
class CardRow:
    """A card of the machine, as the driver lists it. `gpu_id` is its number in controls, `minor` that of its node."""

    minor: int
    gpu_id: int
    address: str
    vendor_id: int
    device_id: int
    bar1_bytes: int


@dataclass(eq=False, slots=True)
class MappedMemory:
    """An object that is mapped into this process. `linear`: the number by which the driver unmaps it."""

    client: int
    device: int
    memory: int
    linear: int
    mapping: Mapping


class Calls:
    """One control node, and the objects that were made through it. They end when it is closed."""

    def __init__(self, system: System, name: str) -> None:
        """Open the control node and ask for the driver's release. `name`: the card's, for errors.

        Raises `OSError` where the node cannot be opened, `NotSupported` for a release that is too old.
        """
        self.system, self.name = system, name
        # the card's node, once it is open, and its number
        self._card: int | None = None
        self._minor = 0
        self.node = system.open(CONTROL_NODE)
        with undone_on_error(self.close):
            self.release = self._ask_release()
            self.layouts = layouts_for(self.release, name)

    # --- the frame of a call ----------------------------------------------------------------------------------------
    def make(self, layout: type[Struct], **values: Any) -> Any:
        """Return a struct of the driver's release."""
        return layout.at(self.layouts)(**values)

    def escape(self, number: int, request: Any, doing: str, status: str, node: int | None = None) -> Any:
        """Call a node with a struct, which the answer replaces; return it.

        `status`: where the answer has its status, empty for one without. Raises `RmRefused`, or the error for what the
        kernel says.
        """
        data = bytearray(memory(request))
        self._call(self.node if node is None else node, number, data, doing)
        memory(request)[:] = data
        code = request
        for part in status.split(".") if status else ():
            code = getattr(code, part)
        if status and code:
            raise refusal(int(code), f"{self.name}: {doing}")
        return request

    def _call(self, node: int, number: int, data: bytearray, doing: str) -> None:
        try:
            self.system.ioctl(node, number_of(number, len(data)), data)
        except OSError as error:
            if error.errno in (errno.ENODEV, errno.EIO):
                raise DeviceLost(
                    f"{self.name}: {doing}: the kernel says {error.strerror}: the card is gone, or its driver gave it up; "
                    "see `dmesg`"
                ) from error
            # nv.c, nvidia_ioctl: a node of a card that is gone answers so
            if error.errno == errno.EINVAL and node != self.node and not self._has(self._minor):
                raise DeviceLost(f"{self.name}: {doing}: the kernel's driver no longer has the card") from error
            raise explained(error, f"{self.name}: {doing}") from error

    def _ask_release(self) -> str:
        # the one layout that has to be known before the release is: it is the same in all of them
        request = rm.nv_ioctl_rm_api_version_t(cmd=rm.NV_RM_API_VERSION_CMD_QUERY)
        data = bytearray(memory(request))
        self._call(self.node, rm.NV_ESC_CHECK_VERSION_STR, data, "asking for the driver's release")
        text = bytes(data[rm.nv_ioctl_rm_api_version_t.SIZE - rm.NV_RM_API_VERSION_STRING_LENGTH :])
        release = text.partition(b"\0")[0].decode("ascii", "replace")
        try:
            release_key(release)
        except ValueError:
            release = ""
        if not release or len(release) > MAX_RELEASE_BYTES:
            raise TransportError(f"{self.name}: the kernel's driver calls its release {text[:MAX_RELEASE_BYTES]!r}")
        return release

    # --- cards ------------------------------------------------------------------------------------------------------
    def cards(self) -> list[CardRow]:
        """List the cards that the driver has."""
        layout = rm.nv_ioctl_card_info_t.at(self.layouts)
        data = bytearray(layout.SIZE * MAX_CARDS)
        self._call(self.node, rm.NV_ESC_CARD_INFO, data, "listing the driver's cards")
        rows = (layout.view(data, at) for at in range(0, len(data), layout.SIZE))
        return [_card_row(row) for row in rows if row.valid]

    def _has(self, minor: int) -> bool:
        try:
            return any(row.minor == minor for row in self.cards())
        except RingupError:
            return False

    def register(self, node: int) -> None:
        """Tie a card's node to the control node, so that objects made there may be mapped through it."""
        request = self.make(rm.nv_ioctl_register_fd_t, ctl_fd=self.node)
        self.escape(rm.NV_ESC_REGISTER_FD, request, "registering the card's node", "", node)

    # --- objects ----------------------------------------------------------------------------------------------------
    def alloc(
        self, client: int, parent: int, handle: int, class_id: int, params: bytes = b"", doing: str = ""
    ) -> bytes:
        """Make an object; return its parameters as the driver left them."""
        body = bytearray(params)
        request = self.make(
            rm.NVOS21_PARAMETERS,
            hRoot=client,
            hObjectParent=parent,
            hObjectNew=handle,
            hClass=class_id,
            pAllocParms=address_of(body),
            paramsSize=len(body),
        )
        self.escape(rm.NV_ESC_RM_ALLOC, request, doing or f"making an object of class {class_id:#06x}", "status")
        return bytes(body)

    def root(self, class_id: int) -> int:
        """Make a client, and return the handle that the driver gave it."""
        request = self.make(rm.NVOS21_PARAMETERS, hClass=class_id)
        made = self.escape(rm.NV_ESC_RM_ALLOC, request, "making a client of the resource manager", "status")
        return int(made.hObjectNew)

    def control(self, client: int, handle: int, command: int, params: bytes = b"", doing: str = "") -> bytes:
        """Send an object a control; return its parameters as the driver left them."""
        body = bytearray(params)
        request = self.make(
            rm.NVOS54_PARAMETERS,
            hClient=client,
            hObject=handle,
            cmd=command,
            params=address_of(body),
            paramsSize=len(body),
        )
        self.escape(rm.NV_ESC_RM_CONTROL, request, doing or f"control {command:#010x}", "status")
        return bytes(body)

    def free(self, client: int, parent: int, handle: int) -> None:
        """Free an object and all below it."""
        request = self.make(rm.NVOS00_PARAMETERS, hRoot=client, hObjectParent=parent, hObjectOld=handle)
        self.escape(rm.NV_ESC_RM_FREE, request, f"freeing object {handle:#x}", "status")

    # --- mappings ---------------------------------------------------------------------------------------------------
    def map_memory(
        self,
        client: int,
        device: int,
        handle: int,
        size_bytes: int,
        kind: Kind,
        *,
        flags: int = 0,
        doing: str = "",
    ) -> MappedMemory:
        """Map an object of `size_bytes` into this process."""
        doing = doing or f"mapping {size_bytes:#x} bytes into this process"
        # each mapping takes a file of its own: a file remembers only the last that was allowed
        path = CONTROL_NODE if kind is Kind.HOST else node_of(self._minor)
        node = self._open(path, doing)
        try:
            request = self.make(rm.nv_ioctl_nvos33_parameters_with_fd, fd=node)
            asked = request.params
            asked.hClient, asked.hDevice, asked.hMemory = client, device, handle
            asked.length, asked.flags = size_bytes, flags
            self.escape(rm.NV_ESC_RM_MAP_MEMORY, request, doing, "params.status")
            linear = int(request.params.pLinearAddress)
            with undone_on_error(partial(self._unmap, client, device, handle, linear)):
                try:
                    mapping = self.system.map(node, size_bytes, kind)
                except OSError as error:
                    raise explained(error, f"{self.name}: {doing}") from error
        finally:
            self.system.close(node)
        return MappedMemory(client, device, handle, linear, mapping)

    def unmap_memory(self, mapped: MappedMemory) -> None:
        """Take an object out of this process."""
        mapped.mapping.close()
        self._unmap(mapped.client, mapped.device, mapped.memory, mapped.linear)

    def _unmap(self, client: int, device: int, handle: int, linear: int) -> None:
        request = self.make(rm.NVOS34_PARAMETERS, hClient=client, hDevice=device, hMemory=handle, pLinearAddress=linear)
        self.escape(rm.NV_ESC_RM_UNMAP_MEMORY, request, "unmapping memory from this process", "status")

    def map_dma(
        self, client: int, device: int, virtual: int, handle: int, size_bytes: int, *, flags: int = 0, doing: str = ""
    ) -> int:
        """Map memory into the addresses that the object `virtual` stands for; return its address there."""
        request = self.make(
            rm.NVOS46_PARAMETERS,
            hClient=client,
            hDevice=device,
            hDma=virtual,
            hMemory=handle,
            length=size_bytes,
            flags=flags,
        )
        made = self.escape(rm.NV_ESC_RM_MAP_MEMORY_DMA, request, doing or "mapping memory for the card", "status")
        return int(made.dmaOffset)

    def unmap_dma(self, client: int, device: int, virtual: int, handle: int, gpu_va: int) -> None:
        """Take memory out of an address space."""
        request = self.make(
            rm.NVOS47_PARAMETERS, hClient=client, hDevice=device, hDma=virtual, hMemory=handle, dmaOffset=gpu_va
        )
        self.escape(rm.NV_ESC_RM_UNMAP_MEMORY_DMA, request, "unmapping memory from the card", "status")

    def pin(self, client: int, device: int, handle: int, address: int, size_bytes: int, doing: str) -> None:
        """Make an object of this process's own memory, in whole pages. The driver holds the pages until it is freed."""
        request = self.make(rm.nv_ioctl_nvos02_parameters_with_fd, fd=-1)
        asked = request.params
        asked.hRoot, asked.hObjectParent, asked.hObjectNew = client, device, handle
        asked.hClass = NV01_MEMORY_SYSTEM_OS_DESCRIPTOR
        asked.pMemory, asked.limit = address, size_bytes - 1
        asked.flags = int(
            rm.NVOS02_FLAGS(
                location=rm.NVOS02_FLAGS_LOCATION_PCI,
                physicality=rm.NVOS02_FLAGS_PHYSICALITY_NONCONTIGUOUS,
                coherency=rm.NVOS02_FLAGS_COHERENCY_CACHED,
                mapping=rm.NVOS02_FLAGS_MAPPING_NO_MAP,
            )
        )
        self.escape(rm.NV_ESC_RM_ALLOC_MEMORY, request, doing, "params.status", self._card_node())

    # --- events -----------------------------------------------------------------------------------------------------
    def listen(self, client: int, device: int, node: int) -> None:
        """Let an open node of the card get events of a client."""
        request = self.make(rm.nv_ioctl_alloc_os_event_t, hClient=client, hDevice=device, fd=node)
        self.escape(rm.NV_ESC_ALLOC_OS_EVENT, request, "listening for the card's events", "Status", node)

    def stop_listening(self, client: int, device: int, node: int) -> None:
        """Let it get none any more."""
        request = self.make(rm.nv_ioctl_free_os_event_t, hClient=client, hDevice=device, fd=node)
        self.escape(rm.NV_ESC_FREE_OS_EVENT, request, "no longer listening for the card's events", "Status", node)

    # --- nodes ------------------------------------------------------------------------------------------------------
    def attach(self, minor: int, doing: str, explain: Callable[[OSError], Exception]) -> int:
        """Open a card's node, which starts the card if nothing uses it yet, and tie it to the control node."""
        try:
            node = self.system.open(node_of(minor))
        except OSError as error:
            raise explain(error) from error
        with undone_on_error(partial(self.system.close, node)):
            self.register(node)
        self._card, self._minor = node, minor
        return node

    def _card_node(self) -> int:
        if self._card is None:
            raise TransportError(f"{self.name}: no card's node is open")
        return self._card

    def _open(self, path: str, doing: str) -> int:
        try:
            return self.system.open(path)
        except OSError as error:
            raise explained(error, f"{self.name}: {doing}: opening {path}") from error

    def close(self) -> None:
        """Close the nodes: the driver frees all that was made through them. Twice is harmless."""
        nodes, self._card, self.node = (self._card, self.node), None, -1
        with Teardown(f"{self.name}: closing") as teardown:
            for node in nodes:
                if node is not None and node >= 0:
                    teardown.attempt(partial(self.system.close, node))


def _card_row(row: Any) -> CardRow:
    place = row.pci_info
    return CardRow(
        minor=row.minor_number,
        gpu_id=row.gpu_id,
        address=f"{place.domain:04x}:{place.bus:02x}:{place.slot:02x}.{place.function}",
        vendor_id=place.vendor_id,
        device_id=place.device_id,
        bar1_bytes=row.fb_size,
    )
