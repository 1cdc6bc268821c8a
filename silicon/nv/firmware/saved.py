"""The protected region over a sleep: where the driver's metadata say, it is saved in host memory, and loaded again.

Source: GspFwSRMeta in gsp_fw_sr_meta.h, kgspPrepareSuspendResumeData_TU102. GUESS: metal encrypts and signs what it
saves, and checks that.
"""

from __future__ import annotations

from collections.abc import Callable

from ringup.autogen.nv import gsp_boot
from ringup.autogen.nv.gsp_boot import GspFwSRMeta, GspFwWprMeta
from ringup.silicon.nv.common.pages import runs
from ringup.silicon.nv.common.signed import Part, identify
from ringup.silicon.nv.firmware.region import Fetch, Loaded, LoadError, Refused, check_layout, image, pages
from ringup.silicon.nv.memory.protected import ProtectedVram

# writes the host's memory: bus address, bytes
Store = Callable[[int, bytes], None]


def _place(fetch: Fetch, address: int) -> tuple[int, int]:
    """Read the metadata: the root of the tables that say where the region is kept, and its size."""
    meta = GspFwSRMeta.view(bytearray(fetch(address, GspFwSRMeta.SIZE)))
    if meta.magic != gsp_boot.GSP_FW_SR_META_MAGIC or meta.revision != gsp_boot.GSP_FW_SR_META_REVISION:
        raise Refused(LoadError.NO_METADATA, f"there is no metadata of a sleep at bus address {address:#x}")
    return meta.sysmemAddrOfSuspendResumeData, meta.sizeOfSuspendResumeData


def save(region: ProtectedVram, fetch: Fetch, store: Store, address: int) -> None:
    """Copy the protected region to where the metadata at a bus address say. Raises `Refused`."""
    root, size_bytes = _place(fetch, address)
    if not region.up or size_bytes != region.end - region.first:
        raise Refused(LoadError.BAD_LAYOUT, f"{size_bytes:#x} bytes are to be saved of the protected region")
    vram_pa = region.first
    for place, length in runs(pages(fetch, root, size_bytes)):
        store(place, region.vram.read(vram_pa, length))
        vram_pa += length


def restore(chip: str, vram_bytes: int, region: ProtectedVram, fetch: Fetch, address: int) -> Loaded:
    """Load the region that was saved, and let GSP-RM go on. Raises `Refused`."""
    root, size_bytes = _place(fetch, address)
    content = image(fetch, root, size_bytes)
    meta = GspFwWprMeta.view(bytearray(content[: GspFwWprMeta.SIZE]))
    if meta.magic != gsp_boot.GSP_FW_WPR_META_MAGIC or meta.verified != gsp_boot.GSP_FW_WPR_META_VERIFIED:
        raise Refused(LoadError.NO_METADATA, "what was saved holds no GSP-RM")
    check_layout(meta, vram_bytes)
    start = meta.gspFwWprStart
    if meta.gspFwWprEnd - start != size_bytes:
        raise Refused(LoadError.BAD_LAYOUT, f"{size_bytes:#x} bytes were saved of a region of another size")
    image_at = meta.gspFwOffset - start
    identity = identify(content[image_at : image_at + meta.sizeOfRadix3Elf])
    if identity is None or identity.part is not Part.GSP_RM or chip not in identity.chips:
        raise Refused(LoadError.BAD_IMAGE, "the GSP-RM that was saved is none for this chip")
    region.vram.write(start, content)
    region.protect(start, meta.gspFwWprEnd)
    return Loaded(identity.releases[0], meta.nonWprHeapOffset, meta.frtsOffset, meta.fbSize, 0, resumes=True)
