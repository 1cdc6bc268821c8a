"""The booter, a signed program that SEC2 runs: it loads GSP-RM into the protected region and starts it on the GSP's
RISC-V core, and takes both down again. Before a sleep it saves the region, and afterwards it loads that instead.

Sources: GspFwWprMeta in gsp_fw_wpr_meta.h; kernel_gsp_tu102.c (the layout that the driver computes),
kernel_gsp_booter_tu102.c (mailboxes); radix3 tables: kgspCreateRadix3. GUESS: the codes of errors, which only have to
be non-zero, and the order of the checks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum

from ringup.autogen.nv import gsp_boot
from ringup.autogen.nv.gsp_boot import GspFwSRMeta, GspFwWprMeta
from ringup.autogen.structs import memory
from ringup.silicon.common.faults import Faults
from ringup.silicon.nv.board.falcon import Falcon, Target
from ringup.silicon.nv.chips.row import ChipRow
from ringup.silicon.nv.common.faults import BOOTER_ERROR
from ringup.silicon.nv.common.signed import Identity, Part, identify
from ringup.silicon.nv.memory.protected import ProtectedVram

PAGE = 4096
ENTRIES = PAGE // 8
MAX_IMAGE_BYTES = 512 << 20
SIGNATURE_BYTES = 4096


class BooterError(IntEnum):
    """What goes into mailbox 0."""

    NO_METADATA = 0x11
    BAD_LAYOUT = 0x12
    NO_FRTS = 0x13
    BAD_IMAGE = 0x14
    GSP_NOT_READY = 0x15
    GSP_RUNS = 0x16


@dataclass(frozen=True, slots=True)
class Loaded:
    """What was loaded: GSP-RM's release, the memory layout of the metadata, the bus address of its arguments, and
    whether it goes on after a sleep; then it remembers its arguments itself.
    """

    release: str
    reserved_start: int
    fb_bytes: int
    arguments: int
    resumes: bool = False


class _Refused(Exception):  # it never leaves this module
    def __init__(self, error: BooterError, why: str) -> None:
        super().__init__(why)
        self.error = error


class Booter:
    """Both programs. `gsp` is the falcon that GSP-RM runs on; `on_start` starts what is behind it."""

    def __init__(
        self, chip: ChipRow, vram: ProtectedVram, gsp: Falcon, on_start: Callable[[Loaded], None], faults: Faults
    ) -> None:
        self._chip, self._vram, self._gsp, self._on_start, self._faults = chip, vram, gsp, on_start, faults

    def load(self, falcon: Falcon) -> int:
        """Check and copy GSP-RM as the metadata says whose bus address the mailboxes hold; return 0 or an error."""
        address = falcon.mailbox0.value | falcon.mailbox1.value << 32
        injected = self._faults.get(BOOTER_ERROR)
        if injected is not None:
            return injected if injected > 0 else 1
        try:
            loaded = self._load(falcon, address)
        except _Refused as refusal:
            falcon.mistake("the booter: {}", str(refusal))
            return int(refusal.error)
        self._on_start(loaded)
        return 0

    def unload(self, falcon: Falcon) -> int:
        """Take the protected region down; return 0 or an error."""
        if self._gsp.riscv_active:
            falcon.mistake("the booter: it is to unload GSP-RM while the GSP runs it")
            return int(BooterError.GSP_RUNS)
        if (falcon.mailbox0.value, falcon.mailbox1.value) != (0xFF, 0xFF):
            try:
                self._save(falcon, falcon.mailbox0.value | falcon.mailbox1.value << 32)
            except _Refused as refusal:
                falcon.mistake("the booter: {}", str(refusal))
                return int(refusal.error)
        # GUESS: the region is scrubbed, so that nothing secret stays
        self._vram.clear(self._vram.first, self._vram.end)
        self._vram.protect(0, 0)
        return 0

    def _load(self, falcon: Falcon, address: int) -> Loaded:
        raw = falcon.fetch(Target.COHERENT_SYSMEM, address, GspFwWprMeta.SIZE)
        meta = GspFwWprMeta.view(bytearray(raw))
        if meta.magic == gsp_boot.GSP_FW_SR_META_MAGIC:
            return self._resume(falcon, address)
        if meta.magic != gsp_boot.GSP_FW_WPR_META_MAGIC or meta.revision != 1 or meta.verified:
            raise _Refused(BooterError.NO_METADATA, f"there is no metadata at bus address {address:#x}")
        self._check_layout(meta)
        if not self._vram.up or self._vram.first != meta.frtsOffset:
            raise _Refused(BooterError.NO_FRTS, f"FWSEC has not protected {meta.frtsOffset:#x}")
        if not self._gsp.selects_riscv:
            raise _Refused(BooterError.GSP_NOT_READY, "the GSP's BCR_CTRL does not select RISC-V")
        identity, image, bootloader = self._images(falcon, meta)
        vram = self._vram.vram
        vram.write(meta.gspFwOffset, image)
        vram.write(meta.bootBinOffset, bootloader)
        # the driver left 0: everything is checked
        meta.verified, meta.bootCount = gsp_boot.GSP_FW_WPR_META_VERIFIED, 1
        vram.write(meta.gspFwWprStart, bytes(memory(meta)))
        self._vram.protect(meta.gspFwWprStart, meta.gspFwWprEnd)
        arguments = self._gsp.mailbox0.value | self._gsp.mailbox1.value << 32
        return Loaded(identity.releases[0], meta.nonWprHeapOffset, meta.fbSize, arguments)

    # --- sleep ------------------------------------------------------------------------------------------------------
    def _saved(self, falcon: Falcon, address: int) -> tuple[int, int]:
        """Read the metadata of a sleep: the root of the tables that say where the region is kept, and its size."""
        raw = falcon.fetch(Target.COHERENT_SYSMEM, address, GspFwSRMeta.SIZE)
        meta = GspFwSRMeta.view(bytearray(raw))
        if meta.magic != gsp_boot.GSP_FW_SR_META_MAGIC or meta.revision != gsp_boot.GSP_FW_SR_META_REVISION:
            raise _Refused(BooterError.NO_METADATA, f"there is no metadata of a sleep at bus address {address:#x}")
        return meta.sysmemAddrOfSuspendResumeData, meta.sizeOfSuspendResumeData

    def _save(self, falcon: Falcon, address: int) -> None:
        """Copy the protected region to host memory. GUESS: metal encrypts and signs it."""
        root, size_bytes = self._saved(falcon, address)
        if not self._vram.up or size_bytes != self._vram.end - self._vram.first:
            raise _Refused(BooterError.BAD_LAYOUT, f"{size_bytes:#x} bytes are to be saved of the protected region")
        vram_pa = self._vram.first
        for place, length in _runs(self._pages(falcon, root, size_bytes)):
            falcon.store(Target.COHERENT_SYSMEM, place, self._vram.vram.read(vram_pa, length))
            vram_pa += length

    def _resume(self, falcon: Falcon, address: int) -> Loaded:
        """Load the region that was saved, and let GSP-RM go on."""
        root, size_bytes = self._saved(falcon, address)
        region = self._image(falcon, root, size_bytes)
        meta = GspFwWprMeta.view(bytearray(region[: GspFwWprMeta.SIZE]))
        if meta.magic != gsp_boot.GSP_FW_WPR_META_MAGIC or meta.verified != gsp_boot.GSP_FW_WPR_META_VERIFIED:
            raise _Refused(BooterError.NO_METADATA, "what was saved holds no GSP-RM")
        self._check_layout(meta)
        start = meta.gspFwWprStart
        if meta.gspFwWprEnd - start != size_bytes:
            raise _Refused(BooterError.BAD_LAYOUT, f"{size_bytes:#x} bytes were saved of a region of another size")
        image_at = meta.gspFwOffset - start
        image = region[image_at : image_at + meta.sizeOfRadix3Elf]
        identity = identify(image)
        if identity is None or identity.part is not Part.GSP_RM or self._chip.name not in identity.chips:
            raise _Refused(BooterError.BAD_IMAGE, "the GSP-RM that was saved is none for this chip")
        self._vram.vram.write(start, region)
        self._vram.protect(start, meta.gspFwWprEnd)
        return Loaded(identity.releases[0], meta.nonWprHeapOffset, meta.fbSize, 0, resumes=True)

    def _check_layout(self, meta: GspFwWprMeta) -> None:
        """Check that the parts follow each other, aligned, inside the board's memory."""
        edges = (
            ("nonWprHeapOffset", meta.nonWprHeapOffset, 1 << 20),
            ("the end of the non-WPR heap", meta.nonWprHeapOffset + meta.nonWprHeapSize, 1 << 20),
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
                raise _Refused(BooterError.BAD_LAYOUT, f"{name} is {place:#x}, with {before:#x} before it")
            before = place
        if meta.fbSize != self._chip.vram_bytes:
            raise _Refused(
                BooterError.BAD_LAYOUT, f"fbSize is {meta.fbSize:#x}, the board has {self._chip.vram_bytes:#x}"
            )
        end = meta.bootloaderManifestOffset, meta.bootloaderDataOffset, meta.bootloaderCodeOffset
        if max(end) >= meta.sizeOfBootloader:
            raise _Refused(BooterError.BAD_LAYOUT, "the bootloader's parts lie behind its end")

    def _images(self, falcon: Falcon, meta: GspFwWprMeta) -> tuple[Identity, bytes, bytes]:
        """Fetch GSP-RM, its signature and its bootloader, and check that they belong together and to this chip."""
        fetch = falcon.fetch
        if meta.sizeOfSignature != SIGNATURE_BYTES:
            raise _Refused(BooterError.BAD_IMAGE, f"the signature has {meta.sizeOfSignature} bytes")
        signature = fetch(Target.COHERENT_SYSMEM, meta.sysmemAddrOfSignature, SIGNATURE_BYTES)
        bootloader = fetch(Target.COHERENT_SYSMEM, meta.sysmemAddrOfBootloader, meta.sizeOfBootloader)
        image = self._image(falcon, meta.sysmemAddrOfRadix3Elf, meta.sizeOfRadix3Elf)
        found = []
        for part, data in ((Part.SIGNATURE, signature), (Part.BOOTLOADER, bootloader), (Part.GSP_RM, image)):
            identity = identify(data)
            if identity is None or identity.part is not part:
                digest = hashlib.sha256(data).hexdigest()[:16]
                raise _Refused(
                    BooterError.BAD_IMAGE, f"the {part.value} is none that is known: {len(data)} bytes, {digest}"
                )
            if self._chip.name not in identity.chips:
                chips = ", ".join(identity.chips)
                raise _Refused(BooterError.BAD_IMAGE, f"the {part.value} is for {chips}, not for {self._chip.name}")
            found.append(identity)
        if not set.intersection(*(set(identity.releases) for identity in found)):
            releases = ", ".join(f"{one.part.value} of {' or '.join(one.releases)}" for one in found)
            raise _Refused(BooterError.BAD_IMAGE, f"the images are of different releases: {releases}")
        return found[-1], image, bootloader

    def _image(self, falcon: Falcon, root: int, size_bytes: int) -> bytes:
        """Fetch an image by its tables."""
        places = _runs(self._pages(falcon, root, size_bytes))
        return b"".join(falcon.fetch(Target.COHERENT_SYSMEM, place, length) for place, length in places)[:size_bytes]

    def _pages(self, falcon: Falcon, root: int, size_bytes: int) -> list[int]:
        """Read tables of three levels: each entry is the bus address of a page."""
        if not 0 < size_bytes <= MAX_IMAGE_BYTES:
            raise _Refused(BooterError.BAD_IMAGE, f"GSP-RM has {size_bytes:#x} bytes")
        pages = -(-size_bytes // PAGE)
        tables = -(-pages // ENTRIES)
        level1 = self._table(falcon, root, 1)[0]
        level2 = self._table(falcon, level1, tables)
        return [entry for table in level2 for entry in self._table(falcon, table, ENTRIES)][:pages]

    def _table(self, falcon: Falcon, address: int, count: int) -> list[int]:
        if address % PAGE:
            raise _Refused(BooterError.BAD_IMAGE, f"a table of GSP-RM's pages is at bus address {address:#x}")
        table = falcon.fetch(Target.COHERENT_SYSMEM, address, 8 * count)
        return [int.from_bytes(table[at : at + 8], "little") for at in range(0, len(table), 8)]


def _runs(pages: list[int]) -> Iterator[tuple[int, int]]:
    """Return pages that follow each other as one piece: address and bytes. There is at least one page."""
    start, length = pages[0], PAGE
    for page in pages[1:]:
        if page == start + length:
            length += PAGE
        else:
            yield start, length
            start, length = page, PAGE
    yield start, length
