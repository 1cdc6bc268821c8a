"""GSP-RM in the protected region: what a loader checks before it starts it, whether that is the booter on SEC2 or the
FMC on the GSP itself.

Sources: GspFwWprMeta in gsp_fw_wpr_meta.h; kernel_gsp_tu102.c (the layout); radix3 tables: kgspCreateRadix3. GUESS: the
codes of errors, which only have to be non-zero, and the order of the checks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from ringup.autogen.nv import gsp_boot
from ringup.autogen.nv.gsp_boot import GspFwWprMeta
from ringup.autogen.structs import memory
from ringup.silicon.nv.common.pages import PAGE, runs
from ringup.silicon.nv.common.signed import Identity, Part, identify
from ringup.silicon.nv.memory.protected import ProtectedVram

ENTRIES = PAGE // 8
MAX_IMAGE_BYTES = 512 << 20
SIGNATURE_BYTES = 4096
# reads the host's memory: bus address, bytes
Fetch = Callable[[int, int], bytes]


class LoadError(IntEnum):
    """What goes into mailbox 0."""

    NO_METADATA = 0x11
    BAD_LAYOUT = 0x12
    NO_FRTS = 0x13
    BAD_IMAGE = 0x14
    GSP_RUNS = 0x15
    BAD_ARGUMENTS = 0x16


@dataclass(frozen=True, slots=True)
class Loaded:
    """What was loaded: GSP-RM's release, the memory layout of the metadata, the bus address of its arguments, and
    whether it goes on after a sleep; then it remembers its arguments itself.
    """

    release: str
    reserved_start: int
    frts_start: int
    fb_bytes: int
    arguments: int
    resumes: bool = False


class Refused(Exception):  # a loader turns it into its answer
    """What is to be loaded is not right."""

    def __init__(self, error: LoadError, why: str) -> None:
        super().__init__(why)
        self.error = error


def check_layout(meta: GspFwWprMeta, vram_bytes: int) -> None:
    """Check that the parts follow each other, aligned, inside the board's memory. Raises `Refused`."""
    edges = (
        ("nonWprHeapOffset", meta.nonWprHeapOffset, 1 << 20),
        ("the end of the non-WPR heap", meta.nonWprHeapOffset + meta.nonWprHeapSize, 128 << 10),
        ("gspFwWprStart", meta.gspFwWprStart, 128 << 10),
        ("gspFwHeapOffset", meta.gspFwHeapOffset, 1 << 20),
        ("the end of the heap", meta.gspFwHeapOffset + meta.gspFwHeapSize, 1 << 20),
        ("gspFwOffset", meta.gspFwOffset, 64 << 10),
        ("the end of GSP-RM", meta.gspFwOffset + meta.sizeOfRadix3Elf, 1),
        ("bootBinOffset", meta.bootBinOffset, PAGE),
        ("the end of the bootloader", meta.bootBinOffset + meta.sizeOfBootloader, 1),
        ("frtsOffset", meta.frtsOffset, 128 << 10),
        ("the end of FRTS", meta.frtsOffset + meta.frtsSize, 128 << 10),
        ("gspFwWprEnd", meta.gspFwWprEnd, 128 << 10),
        ("vgaWorkspaceOffset", meta.vgaWorkspaceOffset, 1),
        ("fbSize", meta.fbSize, 1 << 20),
    )
    before = 0
    for name, place, alignment in edges:
        if place < before or place % alignment:
            raise Refused(LoadError.BAD_LAYOUT, f"{name} is {place:#x}, with {before:#x} before it")
        before = place
    if meta.fbSize != vram_bytes:
        raise Refused(LoadError.BAD_LAYOUT, f"fbSize is {meta.fbSize:#x}, the board has {vram_bytes:#x}")
    end = meta.bootloaderManifestOffset, meta.bootloaderDataOffset, meta.bootloaderCodeOffset
    if max(end) >= meta.sizeOfBootloader:
        raise Refused(LoadError.BAD_LAYOUT, "the bootloader's parts lie behind its end")


def install(chip: str, fetch: Fetch, region: ProtectedVram, meta: GspFwWprMeta, arguments: int) -> Loaded:
    """Copy GSP-RM and its bootloader to their places, mark the metadata as checked, and protect all of it. `arguments`:
    the bus address of GSP-RM's. Raises `Refused`.
    """
    identity, gsp, bootloader = _images(chip, fetch, meta)
    vram = region.vram
    vram.write(meta.gspFwOffset, gsp)
    vram.write(meta.bootBinOffset, bootloader)
    # the driver left 0: everything is checked
    meta.verified, meta.bootCount = gsp_boot.GSP_FW_WPR_META_VERIFIED, 1
    vram.write(meta.gspFwWprStart, bytes(memory(meta)))
    region.protect(meta.gspFwWprStart, meta.gspFwWprEnd)
    return Loaded(identity.releases[0], meta.nonWprHeapOffset, meta.frtsOffset, meta.fbSize, arguments)


def _images(chip: str, fetch: Fetch, meta: GspFwWprMeta) -> tuple[Identity, bytes, bytes]:
    """Fetch GSP-RM, its signature and its bootloader, and check that they belong together and to this chip."""
    if meta.sizeOfSignature != SIGNATURE_BYTES:
        raise Refused(LoadError.BAD_IMAGE, f"the signature has {meta.sizeOfSignature} bytes")
    signature = fetch(meta.sysmemAddrOfSignature, SIGNATURE_BYTES)
    bootloader = fetch(meta.sysmemAddrOfBootloader, meta.sizeOfBootloader)
    gsp = image(fetch, meta.sysmemAddrOfRadix3Elf, meta.sizeOfRadix3Elf)
    found = []
    for part, data in ((Part.SIGNATURE, signature), (Part.BOOTLOADER, bootloader), (Part.GSP_RM, gsp)):
        identity = identify(data)
        if identity is None or identity.part is not part:
            digest = hashlib.sha256(data).hexdigest()[:16]
            raise Refused(LoadError.BAD_IMAGE, f"the {part.value} is none that is known: {len(data)} bytes, {digest}")
        if chip not in identity.chips:
            chips = ", ".join(identity.chips)
            raise Refused(LoadError.BAD_IMAGE, f"the {part.value} is for {chips}, not for {chip}")
        found.append(identity)
    if not set.intersection(*(set(identity.releases) for identity in found)):
        releases = ", ".join(f"{one.part.value} of {' or '.join(one.releases)}" for one in found)
        raise Refused(LoadError.BAD_IMAGE, f"the images are of different releases: {releases}")
    return found[-1], gsp, bootloader


def image(fetch: Fetch, root: int, size_bytes: int) -> bytes:
    """Fetch an image by its tables. Raises `Refused`."""
    return b"".join(fetch(place, length) for place, length in runs(pages(fetch, root, size_bytes)))[:size_bytes]


def pages(fetch: Fetch, root: int, size_bytes: int) -> list[int]:
    """Read tables of three levels: each entry is the bus address of a page. Raises `Refused`."""
    if not 0 < size_bytes <= MAX_IMAGE_BYTES:
        raise Refused(LoadError.BAD_IMAGE, f"GSP-RM has {size_bytes:#x} bytes")
    count = -(-size_bytes // PAGE)
    tables = -(-count // ENTRIES)
    level1 = _table(fetch, root, 1)[0]
    level2 = _table(fetch, level1, tables)
    return [entry for table in level2 for entry in _table(fetch, table, ENTRIES)][:count]


def _table(fetch: Fetch, address: int, count: int) -> list[int]:
    if address % PAGE:
        raise Refused(LoadError.BAD_IMAGE, f"a table of GSP-RM's pages is at bus address {address:#x}")
    table = fetch(address, 8 * count)
    return [int.from_bytes(table[at : at + 8], "little") for at in range(0, len(table), 8)]
