"""Where GSP-RM lies in the card's memory: the write-protected region 2 (WPR2) at its end, and what the boot programs
are told of it (`GspFwWprMeta`).

From the end of memory down: the VBIOS' workspace, FRTS data, the boot program, the firmware, its heap, the metadata:
all of these are WPR2, up to the workspace. A heap outside of the protection is below. FSP's chips work out the places
themselves and are told the sizes. Source: OGKM kernel_gsp_tu102.c, kgspCalculateFbLayout_TU102; kernel_gsp_gh100.c,
kgspCalculateFbLayout_GH100; kernel_gsp.c, _kgspCalculateFwHeapSize.
"""

from __future__ import annotations

from dataclasses import dataclass

from ringup.autogen.nv import gsp_boot
from ringup.autogen.nv.boot import NV_FUSE_STATUS_OPT_DISPLAY, NV_USABLE_FB_SIZE_IN_MB
from ringup.autogen.nv.gsp_boot import GspFwWprMeta
from ringup.autogen.nv.mmu import (
    NV_PFB_PRI_MMU_LOCK_ADDR_HI,
    NV_PFB_PRI_MMU_LOCK_ADDR_LO,
    NV_PFB_PRI_MMU_WPR2_ADDR_HI,
    NV_PFB_PRI_MMU_WPR2_ADDR_LO,
)
from ringup.autogen.structs import memory
from ringup.drivers.nv.bus.chips import Family
from ringup.drivers.nv.bus.registers import Block
from ringup.drivers.nv.bus.words import NV_PDISP_VGA_WORKSPACE_BASE, NV_PFB_PRI_MMU_LOCAL_MEMORY_RANGE
from ringup.drivers.nv.gsp.releases import constant, struct
from ringup.errors import FirmwareError

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
# of the VBIOS' workspace, where it does not say, and where it lies too low. Source: DRF_SIZE(NV_PRAMIN),
# VBIOS_WORKSPACE_SIZE in kgspCalculateFbLayout_TU102
WORKSPACE_BYTES, MOVED_WORKSPACE_BYTES = MIB, 128 * KIB
WPR_ALIGN, BOOT_ALIGN, ELF_ALIGN, HEAP_ALIGN = 128 * KIB, 4 * KIB, 64 * KIB, MIB
FRTS_BYTES = MIB
# WPR2's registers count 4 KiB
WPR_SHIFT = 12
MIN_BYTES = 512 * MIB


@dataclass(frozen=True, slots=True)
class Region:
    """Bytes `start` up to `end` of the card's memory."""

    start: int
    end: int

    @property
    def size_bytes(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Sizes:
    """The bytes of what is placed: GSP-RM's image, and the boot program."""

    elf: int
    boot: int


@dataclass(frozen=True, slots=True)
class FbLayout:
    """The end of the card's memory. `wpr2` begins with the metadata. Offsets are `vram_pa`."""

    fb_bytes: int
    workspace: Region
    frts: Region
    boot: Region
    elf: Region
    wpr_heap: Region
    wpr2: Region
    heap: Region


@dataclass(frozen=True, slots=True)
class Images:
    """Where the images lie in the host's memory, and the boot program's parts, for the metadata."""

    sizes: Sizes
    radix3: int
    boot: int
    code_offset: int
    data_offset: int
    manifest_offset: int
    signature: int
    signature_bytes: int


def memory_bytes(block: Block) -> int:
    """Return the size of the card's memory. Raises `FirmwareError` for a size that no card has."""
    if block.has(NV_USABLE_FB_SIZE_IN_MB):
        total = int(block.read(NV_USABLE_FB_SIZE_IN_MB)) * MIB
    else:
        seen = block.read(NV_PFB_PRI_MMU_LOCAL_MEMORY_RANGE)
        total = (seen.lower_mag << seen.lower_scale) * MIB
        if seen.ecc_mode_enabled:
            # a sixteenth holds the check bits
            total = total // 16 * 15
    if total < MIN_BYTES:
        raise FirmwareError(f"the card says that it has {total} bytes of memory: its VBIOS has not set it up; reset it")
    return total


def wpr2(block: Block) -> Region | None:
    """Return the write-protected region as the memory controller has it; None while there is none."""
    high = block.read(NV_PFB_PRI_MMU_WPR2_ADDR_HI)
    if not high.val:
        return None
    low = block.read(NV_PFB_PRI_MMU_WPR2_ADDR_LO)
    return Region(low.val << WPR_SHIFT, high.val << WPR_SHIFT)


def heap_bytes(family: Family, release: str, fb_bytes: int) -> int:
    """Return the size of GSP-RM's heap inside of WPR2, for a card with that much memory."""

    def fact(name: str) -> int:
        return constant(gsp_boot, f"GSP_FW_HEAP_{name}", release)

    older = family.libos == 2
    if older:
        system, least, most = "PARAM_OS_SIZE_LIBOS2", "LIBOS2_MIN_MB", "LIBOS2_MAX_MB"
    else:
        # the name has the word since release 545
        system = "PARAM_OS_SIZE_LIBOS3" + ("" if release.startswith("535.") else "_BAREMETAL")
        least, most = "LIBOS3_BAREMETAL_MIN_MB", "LIBOS3_BAREMETAL_MAX_MB"
    gigabytes = -(-fb_bytes // GIB)
    total = (
        fact(system)
        + constant(gsp_boot, family.rm_heap, release)
        + _up(fact("PARAM_SIZE_PER_GB_FB") * gigabytes, MIB)
        + _up(fact("PARAM_CLIENT_ALLOC_SIZE"), MIB)
    )
    least_bytes, most_bytes = (fact(f"SIZE_OVERRIDE_{name}") * MIB for name in (least, most))
    return min(max(total, least_bytes), most_bytes)


def place(block: Block, family: Family, release: str, sizes: Sizes) -> FbLayout:
    """Work out the layout for chips whose boot program is told it. Raises `FirmwareError` if memory is too small."""
    fb = memory_bytes(block)
    workspace = _workspace(block, fb)
    reserved = workspace
    if (locked := _locked(block, family)) is not None:
        reserved = min(reserved, locked)
    end = _down(reserved, WPR_ALIGN)
    frts = end - (FRTS_BYTES if family.frts else 0)
    boot = _down(frts - sizes.boot, BOOT_ALIGN)
    elf = _down(boot - sizes.elf, ELF_ALIGN)
    wpr_heap = _down(elf - heap_bytes(family, release, fb), HEAP_ALIGN)
    start = _down(wpr_heap - GspFwWprMeta.SIZE, HEAP_ALIGN)
    heap = _down(start - family.non_wpr_heap_bytes, HEAP_ALIGN)
    if heap <= 0:
        raise FirmwareError(f"GSP firmware of {sizes.elf} bytes does not fit into {fb} bytes of memory")
    return FbLayout(
        fb,
        Region(workspace, fb),
        Region(frts, end),
        Region(boot, boot + sizes.boot),
        Region(elf, elf + sizes.elf),
        Region(wpr_heap, wpr_heap + _down(elf - wpr_heap, HEAP_ALIGN)),
        Region(start, end),
        Region(heap, heap + family.non_wpr_heap_bytes),
    )


def metadata(layout: FbLayout, images: Images, release: str) -> bytes:
    """Return `GspFwWprMeta` for a layout that the booter is told."""
    values = {
        "gspFwRsvdStart": layout.heap.start,
        "nonWprHeapOffset": layout.heap.start,
        "nonWprHeapSize": layout.heap.size_bytes,
        "gspFwWprStart": layout.wpr2.start,
        "gspFwHeapOffset": layout.wpr_heap.start,
        "gspFwHeapSize": layout.wpr_heap.size_bytes,
        "gspFwOffset": layout.elf.start,
        "bootBinOffset": layout.boot.start,
        "frtsOffset": layout.frts.start,
        "frtsSize": layout.frts.size_bytes,
        "gspFwWprEnd": layout.wpr2.end,
        "fbSize": layout.fb_bytes,
        "vgaWorkspaceOffset": layout.workspace.start,
        "vgaWorkspaceSize": layout.workspace.size_bytes,
    }
    return _meta(images, release, values)


def sizes_alone(block: Block, family: Family, images: Images, release: str) -> bytes:
    """Return `GspFwWprMeta` for FSP's chips, with sizes alone."""
    values = {
        "vgaWorkspaceSize": MOVED_WORKSPACE_BYTES,
        "pmuReservedSize": family.pmu_bytes,
        "nonWprHeapSize": family.non_wpr_heap_bytes,
        "gspFwHeapSize": heap_bytes(family, release, memory_bytes(block)),
        "frtsSize": FRTS_BYTES,
    }
    return _meta(images, release, values)


def _meta(images: Images, release: str, values: dict[str, int]) -> bytes:
    made = struct(GspFwWprMeta, release)(
        magic=gsp_boot.GSP_FW_WPR_META_MAGIC,
        revision=gsp_boot.GSP_FW_WPR_META_REVISION,
        sysmemAddrOfRadix3Elf=images.radix3,
        sizeOfRadix3Elf=images.sizes.elf,
        sysmemAddrOfBootloader=images.boot,
        sizeOfBootloader=images.sizes.boot,
        bootloaderCodeOffset=images.code_offset,
        bootloaderDataOffset=images.data_offset,
        bootloaderManifestOffset=images.manifest_offset,
        sysmemAddrOfSignature=images.signature,
        sizeOfSignature=images.signature_bytes,
        **values,
    )
    return bytes(memory(made))


def _workspace(block: Block, fb_bytes: int) -> int:
    default = fb_bytes - WORKSPACE_BYTES
    if block.read(NV_FUSE_STATUS_OPT_DISPLAY).data:
        return default
    seen = block.read(NV_PDISP_VGA_WORKSPACE_BASE)
    if not seen.status_valid:
        return default
    at: int = seen.addr << 16
    # the VBIOS' own place may be anywhere; then it is moved to the end
    return fb_bytes - MOVED_WORKSPACE_BYTES if at < default else min(at, fb_bytes)


def _locked(block: Block, family: Family) -> int | None:
    """Return where memory begins that the VBIOS has locked; None where it has not, or where the chip cannot.

    Source: OGKM mem_mgr_ga100.c, memmgrReadMmuLock_GA100.
    """
    if not family.mmu_lock:
        return None
    low, high = block.read(NV_PFB_PRI_MMU_LOCK_ADDR_LO), block.read(NV_PFB_PRI_MMU_LOCK_ADDR_HI)
    if high.val <= low.val:
        return None
    return int(low.val) << WPR_SHIFT


def _down(value: int, to: int) -> int:
    return value // to * to


def _up(value: int, to: int) -> int:
    return -(-value // to) * to
