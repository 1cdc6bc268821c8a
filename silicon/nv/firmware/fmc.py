"""How the FSP boots the GSP by a chain of trust (COT): it verifies the GSP's first code, the FMC, sets the FRTS region
up, and starts the FMC on the GSP's RISC-V core; that lays GSP-RM out in the protected region and starts it. When GSP-RM
has ended, the FMC takes the region down and the core halts.

While the FSP has the GSP, the register bus answers for it with 0xbadf41xx; then the FMC runs in lockdown, until GSP-RM
starts or an error code is in mailbox 0. The FMC writes the layout into the driver's metadata, too. Before a sleep it
saves the region where GSP-RM was told (FBSR_INIT); the command after it has no FRTS data, and the FMC loads what it
saved, FRTS data included (kgspBootstrap_GH100). Sources: kern_fsp_gh100.c, kernel_gsp_gh100.c, kern_fsp_cot_payload.h
and gspifpub.h of NVIDIA's open kernel modules 570.144; nouveau's fsp/gh100.c and gsp/gh100.c (Linux 6.16). GUESS: codes
of errors, the times, the order of the checks, and that a running GSP is not booted again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial

from ringup.autogen.nv import fsp, gsp_boot
from ringup.autogen.structs import memory
from ringup.silicon.common.clock import VirtualClock
from ringup.silicon.common.faults import Faults
from ringup.silicon.nv.board.falcon import Falcon, Target
from ringup.silicon.nv.board.fsp import Fsp, FspError
from ringup.silicon.nv.board.vbios import build as build_vbios
from ringup.silicon.nv.chips.row import ChipRow, FspRow
from ringup.silicon.nv.common.faults import BOOTER_ERROR, FSP_ERROR
from ringup.silicon.nv.common.registers import Registers
from ringup.silicon.nv.common.signed import STAMP_BYTES, Part, identify, stamped_bytes
from ringup.silicon.nv.firmware import saved
from ringup.silicon.nv.firmware.images import fmc_key, fmc_signature
from ringup.silicon.nv.firmware.region import Loaded, LoadError, Refused, check_layout, install
from ringup.silicon.nv.memory.protected import ProtectedVram

# from the FSP's answer until the FMC lets the CPU at the GSP, from then until GSP-RM starts, and until the core halts
LOCKED_US, FMC_US, SHUTDOWN_US = 2_000, 3_000, 1_000
# the low byte tells more. Source: _kfspIsGspTargetMaskReleased
LOCKED = 0xBADF_4100
FRTS_BYTES, FRTS_ALIGNMENT = 1 << 20, 2 << 20
MIB, IMAGE_ALIGNMENT, PAGE = 1 << 20, 64 << 10, 4096
NONE = (1 << 64) - 1
RELEASE = "570.195.03"  # whose generated layouts apply to 570.144 as well: gsp/releases.py
PARAMETERS = fsp.GSP_FMC_BOOT_PARAMS.at(RELEASE)
META = gsp_boot.GspFwWprMeta.at(RELEASE)


class ChainOfTrust:
    """The COT command, and the FMC that it starts. `on_reset` is called when the FSP takes the GSP over, `on_start`
    when GSP-RM starts.
    """

    def __init__(
        self,
        chip: ChipRow,
        row: FspRow,
        processor: Fsp,
        gsp: Falcon,
        registers: Registers,
        vram: ProtectedVram,
        clock: VirtualClock,
        faults: Faults,
        on_reset: Callable[[], None],
        on_start: Callable[[Loaded], None],
    ) -> None:
        self._chip, self._row, self._fsp, self._gsp = chip, row, processor, gsp
        self._vram, self._clock, self._faults = vram, clock, faults
        self._on_reset, self._on_start = on_reset, on_start
        self._run = 0
        self._locked = False
        processor.commands[fsp.NVDM_TYPE_COT] = self._boot
        registers.lock(gsp.row.base, 2 * PAGE, lambda: self._locked, LOCKED)

    def reset(self) -> None:
        """Let the GSP go: the chip was reset."""
        self._run += 1
        self._locked = False

    def _fetch(self, address: int, size_bytes: int) -> bytes:
        return self._gsp.fetch(Target.COHERENT_SYSMEM, address, size_bytes)

    # --- the FSP ----------------------------------------------------------------------------------------------------
    def _boot(self, payload: bytes) -> int:
        """Verify the FMC and start it; return an error."""
        injected = self._faults.get(FSP_ERROR)
        if injected is not None:
            return injected if injected > 0 else int(FspError.INVALID_STATE)
        if self._gsp.riscv_active or self._locked:
            self._fsp.mistake("COT: the GSP runs already")
            return FspError.INVALID_STATE
        size = fsp.NVDM_PAYLOAD_COT.SIZE
        # a driver may send more: tinygrad fills up with zeros
        cot = fsp.NVDM_PAYLOAD_COT.view(bytearray(payload[:size].ljust(size, b"\0")))
        why = self._refusal(payload, cot)
        if why:
            self._fsp.mistake("COT: {}", why)
            return FspError.INVALID_DATA
        if cot.frtsVidmemSize:
            self._place_frts(cot)
        self._locked = True
        self._on_reset()
        self._run += 1
        self._later(LOCKED_US, lambda: self._release(cot))
        return FspError.OK

    def _refusal(self, payload: bytes, cot: fsp.NVDM_PAYLOAD_COT) -> str:
        """Return what is wrong with the payload; nothing if it is right."""
        row, size = self._row, fsp.NVDM_PAYLOAD_COT.SIZE
        if len(payload) < size or cot.size != size:
            return f"the payload has {len(payload)} bytes, and says {cot.size}, of {size}"
        if cot.version != row.cot_version:
            return f"its version is {cot.version}, this chip's is {row.cot_version}"
        if cot.gspFmcSysmemOffset == NONE or cot.gspFmcSysmemOffset % PAGE:
            return f"there is no FMC at bus address {cot.gspFmcSysmemOffset:#x}"
        return self._unverified(cot) or self._bad_frts(cot)

    def _unverified(self, cot: fsp.NVDM_PAYLOAD_COT) -> str:
        """Return why the FMC is not trusted. GUESS: the image says how long it is, since the command does not."""
        length = stamped_bytes(self._fetch(cot.gspFmcSysmemOffset, STAMP_BYTES))
        image = self._fetch(cot.gspFmcSysmemOffset, length)
        identity = identify(image)
        if identity is None or identity.part is not Part.FMC:
            return "the FMC is none that is known"
        if self._chip.name not in identity.chips:
            return f"the FMC is for {', '.join(identity.chips)}, not for {self._chip.name}"
        digest, key, signature = (
            b"".join(word.to_bytes(4, "little") for word in words)
            for words in (cot.hash384, cot.publicKey, cot.signature)
        )
        if digest != hashlib.sha384(image).digest():
            return "the hash is not the FMC's"
        if key != fmc_key(self._row).ljust(len(key), b"\0"):
            return "the public key is none that the chip trusts"
        if signature != fmc_signature(self._row, digest).ljust(len(signature), b"\0"):
            return "the signature is not the FMC's"
        return ""

    def _bad_frts(self, cot: fsp.NVDM_PAYLOAD_COT) -> str:
        """Return what is wrong with where FRTS data is to be. GUESS: the alignment, which drivers keep to and say that
        it seems to be required.
        """
        from_end, size = cot.frtsVidmemOffset, cot.frtsVidmemSize
        if not size and not from_end:
            return "a protected region is up" if self._vram.up else ""
        if size != FRTS_BYTES or from_end % FRTS_ALIGNMENT or from_end + size > self._chip.vram_bytes:
            return f"FRTS is to have {size:#x} bytes, {from_end:#x} from the end of memory"
        if self._vram.up:
            return "a protected region is up"
        return ""

    def _place_frts(self, cot: fsp.NVDM_PAYLOAD_COT) -> None:
        """Put FRTS data, the VBIOS, where the driver wants it, and protect it."""
        end = self._chip.vram_bytes - cot.frtsVidmemOffset
        first, image = end - cot.frtsVidmemSize, build_vbios(self._chip)
        self._vram.vram.write(first, image)
        self._vram.protect(first, end)
        if cot.frtsSysmemSize:
            self._gsp.store(Target.COHERENT_SYSMEM, cot.frtsSysmemOffset, image[: cot.frtsSysmemSize])

    def _later(self, delay_us: float, action: Callable[[], None]) -> None:
        run = self._run
        self._clock.after(delay_us, lambda: action() if run == self._run else None)

    # --- the FMC ----------------------------------------------------------------------------------------------------
    def _release(self, cot: fsp.NVDM_PAYLOAD_COT) -> None:
        """Let the CPU see the GSP, whose FMC has taken its arguments out of the mailboxes."""
        self._locked = False
        self._gsp.lockdown = True
        self._gsp.mailbox0.value = self._gsp.mailbox1.value = 0
        self._later(FMC_US, lambda: self._load(cot.gspBootArgsSysmemOffset))

    def _load(self, address: int) -> None:
        injected = self._faults.get(BOOTER_ERROR)
        if injected is not None:
            self._gsp.mailbox0.value = injected if injected > 0 else 1
            return
        try:
            loaded = self._gsp_rm(address)
        except Refused as refusal:
            self._gsp.mistake("the FMC: {}", str(refusal))
            self._gsp.mailbox0.value = int(refusal.error)
            return
        self._gsp.lockdown = False
        self._on_start(loaded)

    def _gsp_rm(self, address: int) -> Loaded:
        """Read the arguments and the metadata, fill in the places of the parts, and load GSP-RM."""
        if address == NONE or address % PAGE:
            raise Refused(LoadError.BAD_ARGUMENTS, f"there are no arguments at bus address {address:#x}")
        arguments = PARAMETERS.view(bytearray(self._fetch(address, PARAMETERS.SIZE)))
        boot, gsp_rm = arguments.bootGspRmParams, arguments.gspRmParams
        sysmem = (fsp.GSP_DMA_TARGET_COHERENT_SYSTEM, fsp.GSP_DMA_TARGET_NONCOHERENT_SYSTEM)
        if not boot.bIsGspRmBoot or boot.target not in sysmem or gsp_rm.target not in sysmem:
            raise Refused(LoadError.BAD_ARGUMENTS, f"the arguments name targets {boot.target} and {gsp_rm.target}")
        # those of a sleep are as long
        if boot.gspRmDescSize != META.SIZE:
            raise Refused(LoadError.NO_METADATA, f"the metadata has {boot.gspRmDescSize:#x} bytes")
        meta = META.view(bytearray(self._fetch(boot.gspRmDescOffset, META.SIZE)))
        if meta.magic == gsp_boot.GSP_FW_SR_META_MAGIC and not self._vram.up:
            chip = self._chip
            return saved.restore(chip.name, chip.vram_bytes, self._vram, self._fetch, boot.gspRmDescOffset)
        if meta.magic != gsp_boot.GSP_FW_WPR_META_MAGIC or meta.revision != 1 or meta.verified:
            raise Refused(LoadError.NO_METADATA, f"there is no metadata at bus address {boot.gspRmDescOffset:#x}")
        if not self._vram.up:
            raise Refused(LoadError.NO_FRTS, "there is no FRTS data for a first start")
        self._divide(meta)
        check_layout(meta, self._chip.vram_bytes)
        # Inference: drivers reckon with the offsets before a sleep, and do not compute them on these chips
        self._gsp.store(Target.COHERENT_SYSMEM, boot.gspRmDescOffset, bytes(memory(meta)))
        return install(self._chip.name, self._fetch, self._vram, meta, gsp_rm.bootArgsOffset)

    def _divide(self, meta: gsp_boot.GspFwWprMeta) -> None:
        """Lay the parts out below FRTS data; the driver gives sizes only (kgspCalculateFbLayout_GH100)."""
        total, frts, end = self._chip.vram_bytes, self._vram.first, self._vram.end
        behind = meta.vgaWorkspaceSize + meta.pmuReservedSize
        if meta.frtsSize != FRTS_BYTES or total - end < behind:
            raise Refused(LoadError.BAD_LAYOUT, f"{behind:#x} bytes are to be behind FRTS data at {frts:#x}")
        bootloader = _down(frts - meta.sizeOfBootloader, PAGE)
        gsp_rm = _down(bootloader - meta.sizeOfRadix3Elf, IMAGE_ALIGNMENT)
        heap = _down(gsp_rm, MIB) - _up(meta.gspFwHeapSize, MIB)
        # the region begins where the other heap ends: kgspPrepareSuspendResumeData_TU102
        below = _down(heap - META.SIZE - meta.nonWprHeapSize, MIB)
        start = below + meta.nonWprHeapSize
        if below < 0:
            raise Refused(LoadError.BAD_LAYOUT, f"the parts do not fit into {total:#x} bytes")
        meta.fbSize, meta.vgaWorkspaceOffset = total, total - meta.vgaWorkspaceSize
        meta.gspFwWprEnd, meta.frtsOffset, meta.bootBinOffset, meta.gspFwOffset = end, frts, bootloader, gsp_rm
        meta.gspFwHeapOffset, meta.gspFwHeapSize = heap, _down(gsp_rm, MIB) - heap
        meta.gspFwWprStart, meta.nonWprHeapOffset, meta.gspFwRsvdStart = start, below, below

    def ended(self, metadata: int) -> None:
        """GSP-RM has ended: take the region down, then halt (kgspTeardown_GH100). `metadata`: the bus address of those
        of a sleep, for which the region is saved; or 0. GUESS: the region is scrubbed.
        """
        self._later(SHUTDOWN_US, lambda: self._halt(metadata))

    def _halt(self, metadata: int) -> None:
        if metadata:
            try:
                saved.save(self._vram, self._fetch, partial(self._gsp.store, Target.COHERENT_SYSMEM), metadata)
            except Refused as refusal:
                self._gsp.mistake("the FMC: {}", str(refusal))
        self._vram.clear(self._vram.first, self._vram.end)
        self._vram.protect(0, 0)
        self._gsp.riscv_active = False


def _down(place: int, alignment: int) -> int:
    return place // alignment * alignment


def _up(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment
