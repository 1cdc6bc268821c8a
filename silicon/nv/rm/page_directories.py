"""Roots of address spaces: who tells them, and which channels they reach.

A root comes by SET_PAGE_DIRECTORY (an address space that someone else owns, such as UVM), or by
COPY_SERVER_RESERVED_PDES, where the CPU's driver says where the levels above the firmware's part are.
"""

from __future__ import annotations

from ringup.autogen.nv import rm_alloc, status
from ringup.silicon.nv.rm import channels
from ringup.silicon.nv.rm.classes import Kind
from ringup.silicon.nv.rm.manager import Manager
from ringup.silicon.nv.rm.objects import AddressSpace, Resource, state_of
from ringup.silicon.nv.rm.parts import Aperture, PageDirectory, RmError

# NV0080_CTRL_DMA_SET_PAGE_DIRECTORY_FLAGS_APERTURE_*: ctrl0080dma.h
_APERTURES = {0: Aperture.VRAM, 1: Aperture.SYSMEM, 2: Aperture.SYSMEM}
# gmmu_fmt.h, GMMU_APERTURE_*: video memory, and system memory without and with coherence
_LEVEL_APERTURES = {1: Aperture.VRAM, 3: Aperture.SYSMEM, 4: Aperture.SYSMEM}
PAGE = 4096


def described(address: int, entries: int, flags: int) -> PageDirectory:
    """Return the root that SET_PAGE_DIRECTORY describes."""
    aperture = _APERTURES.get(flags & 3)
    if aperture is None or address % PAGE:
        raise RmError(status.NV_ERR_INVALID_ARGUMENT, f"a page directory at {address:#x} with flags {flags:#x}")
    return PageDirectory(aperture, address, entries)


def of_level(address: int, aperture: int) -> PageDirectory:
    """Return the root that the first level of COPY_SERVER_RESERVED_PDES describes."""
    where = _LEVEL_APERTURES.get(aperture)
    if where is None or address % PAGE:
        raise RmError(status.NV_ERR_INVALID_ARGUMENT, f"a page directory at {address:#x} in aperture {aperture}")
    return PageDirectory(where, address)


def set_root(manager: Manager, space: AddressSpace, root: PageDirectory | None) -> None:
    """Give an address space its root, and write it into the instance blocks of its channels."""
    space.page_directory = root
    for channel in space.channels:
        channel.page_directory = root
        try:
            channels.write_page_directory(manager.memory, channel)
        except ValueError as error:
            raise RmError(status.NV_ERR_INVALID_ADDRESS, f"an instance block cannot be written: {error}") from error
        manager.effects.page_directory_set(channel)


def set_by_device(manager: Manager, device: Resource, handle: int, root: PageDirectory | None) -> None:
    """Set or take away the root of a device's address space: the one named, or the default one.

    Source: gpu_vaspace.c, gvaspaceExternalRootDirCommit and …Revoke.
    """
    if device.row.kind is not Kind.DEVICE:
        raise RmError(status.NV_ERR_INVALID_OBJECT_HANDLE, f"{device} is no device")
    if handle:
        found = manager.clients.find(device.client, handle)
        if found.row.kind is not Kind.VASPACE:
            raise RmError(status.NV_ERR_INVALID_OBJECT_HANDLE, f"{found} is no address space")
        space = state_of(found, AddressSpace)
    else:
        found, space = device, state_of(device, AddressSpace)
    if space.flags & rm_alloc.NV_VASPACE_ALLOCATION_FLAGS_IS_MIRRORED and not space.external:
        raise RmError(status.NV_ERR_NOT_SUPPORTED, f"{found} is mirrored")
    if root is None:
        _take_away(manager, found, space)
    elif space.external:
        if space.page_directory is not None:
            raise RmError(status.NV_ERR_INVALID_STATE, f"{found} has a page directory")
        set_root(manager, space, root)
    elif not space.shared:
        raise RmError(status.NV_ERR_NOT_SUPPORTED, f"{found} is the resource manager's alone")
    else:
        if space.replaced is None:
            space.replaced = (space.page_directory,)
        set_root(manager, space, root)


def _take_away(manager: Manager, found: Resource, space: AddressSpace) -> None:
    """Take someone else's root away; where the resource manager had one, that is in force again."""
    if space.external:
        set_root(manager, space, None)
        return
    if space.replaced is None:
        raise RmError(status.NV_ERR_INVALID_STATE, f"nobody gave {found} a page directory")
    (before,), space.replaced = space.replaced, None
    set_root(manager, space, before)
