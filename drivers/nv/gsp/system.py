"""What GSP-RM is told of the system before it starts, and what it tells of the card.

Source: OGKM rpc.c, rpcGspSetSystemInfo_v17_00, rpcSetRegistry_v17_00; gsp_static_config.h; Linux nouveau r535.c,
r535_gsp_rpc_set_system_info, r535_gsp_rpc_set_registry, r535_gsp_rpc_get_gsp_static_info.
"""

from __future__ import annotations

import re
import struct as packing
from collections.abc import Mapping
from dataclasses import dataclass

from ringup.autogen.linux import pci
from ringup.autogen.nv.gsp_rpc import PACKED_REGISTRY_ENTRY, PACKED_REGISTRY_TABLE, REGISTRY_TABLE_ENTRY_TYPE_DWORD
from ringup.autogen.nv.gsp_static import GspStaticConfigInfo, GspSystemInfo
from ringup.autogen.structs import memory
from ringup.drivers.nv.bus.chips import Boot, Chip
from ringup.drivers.nv.gsp.releases import struct
from ringup.drivers.transport.config_space import ask
from ringup.drivers.transport.seam import Device
from ringup.errors import DeviceHung

# Settings of GSP-RM that every start gives. Source: nouveau r535.c, r535_registry_entries: the bridge above may reset
# its bus, and GSP-RM keeps configuration space over that; the ids need not be the firmware's own
REGISTRY: Mapping[str, int] = {"RMSecBusResetEnable": 1, "RMForcePcieConfigSave": 1, "RMDevidCheckIgnore": 1}
# where BAR 0 shows configuration space. Source: OGKM kbifGetPciConfigSpacePriMirror_GM107, _GH100
MIRRORS = {Boot.BOOTER: (0x08_8000, 0x1000), Boot.FSP: (0x09_2000, 0x1000)}
# the end of a process's address space on x86-64. Source: osGetMaxUserVa
MAX_USER_VA = 1 << 47
PAGE_BYTES = 4096
PCI_NAME = re.compile(r"pci:([0-9a-f]{4}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])")
BAR_IO, BAR_64_BIT, BAR_FLAGS = 0x1, 0x4, 0xF
BAR_COUNT = 6
BARS_TOLD = ("gpuPhysAddr", "gpuPhysFbAddr", "gpuPhysInstAddr")
# NV2080_CTRL_CMD_FB_GET_FB_REGION_INFO_MEM_TYPES and MAX_ENTRIES, in the generated struct
MAX_REGIONS = 16
GID_BYTES = 16


@dataclass(frozen=True, slots=True)
class FbRegion:
    """A region of the card's memory: `vram_pa` from `base` up to and with `limit`. `performance`: higher is faster."""

    base: int
    limit: int
    reserved: int
    performance: int
    compressible: bool
    iso: bool
    protected: bool


@dataclass(frozen=True, slots=True)
class StaticInfo:
    """What GSP-RM tells of the card at its start. Handles are those of GSP-RM's own client, for internal controls."""

    name: str
    short_name: str
    gid: bytes
    fb_bytes: int
    fb_bus_bits: int
    l2_bytes: int
    regions: tuple[FbRegion, ...]
    bar1_pde_base: int
    bar2_pde_base: int
    engine_caps: tuple[int, ...]
    client: int
    device: int
    subdevice: int
    raw: bytes


def bar_address(device: Device, number: int) -> int:
    """Return where a memory BAR lies on the bus, from configuration space."""
    at = pci.PCI_BASE_ADDRESS_0 + 4 * number
    low = ask(device.config, at, 4, f"reading BAR {number}")
    high = ask(device.config, at + 4, 4, f"reading BAR {number}") if low & BAR_64_BIT else 0
    return high << 32 | low & ~BAR_FLAGS


def memory_bars(device: Device) -> tuple[int, ...]:
    """Return where the memory BARs lie on the bus, in order: registers, the card's memory, instance memory.

    A BAR of 64 bits takes two places, so the numbers differ by chip: GH100's registers have such a one. Raises
    `DeviceHung` for a card with fewer than three. Source: OGKM nv-pci.c, nv_pci_probe; Linux nouveau device/pci.c.
    """
    found, number = [], 0
    while number < BAR_COUNT:
        low = ask(device.config, pci.PCI_BASE_ADDRESS_0 + 4 * number, 4, f"reading BAR {number}")
        if not low & BAR_IO and (address := bar_address(device, number)):
            found.append(address)
        number += 1 if low & BAR_IO or not low & BAR_64_BIT else 2
    if len(found) < len(BARS_TOLD):
        raise DeviceHung(f"{device.name}: {len(found)} of its BARs have addresses of memory; rescan the bus")
    return tuple(found)


def system_info(device: Device, chip: Chip, release: str) -> bytes:
    """Return `GspSystemInfo` of a release. Nothing of ACPI is told: GSP-RM needs it for displays and laptops."""
    made = struct(GspSystemInfo, release)()
    for member, address in zip(BARS_TOLD, memory_bars(device), strict=False):
        setattr(made, member, address)
    made.nvDomainBusDeviceFunc = _bus_device_function(device.name)
    made.maxUserVa = MAX_USER_VA
    made.pciConfigMirrorBase, made.pciConfigMirrorSize = MIRRORS[chip.family.boot]
    members = struct(GspSystemInfo, release).members()
    newer = {
        "PCIDeviceID": (pci.PCI_VENDOR_ID, 4),
        "PCISubDeviceID": (pci.PCI_SUBSYSTEM_VENDOR_ID, 4),
        "PCIRevisionID": (pci.PCI_REVISION_ID, 1),
    }
    for member, (at, size_bytes) in newer.items():
        if member in members:
            setattr(made, member, ask(device.config, at, size_bytes, "reading the card's ids"))
    if "hostPageSize" in members:
        made.hostPageSize = PAGE_BYTES
    return bytes(memory(made))


def registry(settings: Mapping[str, int] = REGISTRY) -> bytes:
    """Return the packed table of settings: entries first, then their names. All are dwords."""
    head, each = PACKED_REGISTRY_TABLE.SIZE, PACKED_REGISTRY_ENTRY.SIZE
    names = bytearray()
    entries = bytearray()
    for name, value in settings.items():
        at = head + each * len(settings) + len(names)
        entries += packing.pack("<IBxxxII", at, REGISTRY_TABLE_ENTRY_TYPE_DWORD, value, 4)
        names += name.encode() + b"\0"
    size = head + len(entries) + len(names)
    return packing.pack("<II", size, len(settings)) + bytes(entries) + bytes(names)


def static_info(payload: bytes, release: str) -> StaticInfo:
    """Decode GSP-RM's answer. Raises `DeviceHung` for one that is too short or that cannot be."""
    layout = struct(GspStaticConfigInfo, release)
    if len(payload) < layout.SIZE:
        raise DeviceHung(f"GSP-RM tells {len(payload)} bytes of the card, release {release} has {layout.SIZE}")
    info = layout.view(bytearray(payload[: layout.SIZE]))
    listed = info.fbRegionInfoParams
    if listed.numFBRegions > MAX_REGIONS:
        raise DeviceHung(f"GSP-RM tells of {listed.numFBRegions} regions of memory; the most are {MAX_REGIONS}")
    regions = tuple(
        FbRegion(
            one.base,
            one.limit,
            one.reserved,
            one.performance,
            bool(one.supportCompressed),
            bool(one.supportISO),
            bool(one.bProtected),
        )
        for one in (listed.fbRegion[index] for index in range(listed.numFBRegions))
    )
    return StaticInfo(
        _text(bytes(info.gpuNameString)),
        _text(bytes(info.gpuShortNameString)),
        bytes(info.gidInfo.data[index] for index in range(min(info.gidInfo.length, GID_BYTES))),
        info.fb_length,
        info.fb_bus_width,
        info.l2_cache_size,
        regions,
        info.bar1PdeBase,
        info.bar2PdeBase,
        tuple(info.engineCaps),
        info.hInternalClient,
        info.hInternalDevice,
        info.hInternalSubdevice,
        bytes(payload[: layout.SIZE]),
    )


def _bus_device_function(name: str) -> int:
    """Return a card's place from its name, 0 for a path that has none. Source: OGKM g_gpu_nvoc.h,
    NVGPU_BUSDEVICE_DOMAIN, _BUS, _DEVICE; there is no field for the function.
    """
    found = PCI_NAME.fullmatch(name)
    if found is None:
        return 0
    domain, bus, device, _ = (int(part, 16) for part in found.groups())
    return domain << 32 | bus << 8 | device


def _text(raw: bytes) -> str:
    return raw.split(b"\0", 1)[0].decode("ascii", "replace")
