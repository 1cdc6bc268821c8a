"""One memory hub: apertures, TLBs, the sixteen VM contexts, the invalidation engine and the fault registers.

A hub translates its clients' addresses: VMID 0 reaches VRAM through the frame buffer aperture without tables, all other
addresses go through the tables of their context. Source: amdgpu mmhub_v3_0.c, gfxhub_v3_0.c, gfxhub_v3_0_3.c,
mmhub_v4_1_0.c, gfxhub_v12_0.c; gmc_v11_0.c.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from ringup.autogen.amd.gc_vm import GCVM_CONTEXT0_CNTL
from ringup.autogen.amd.mmhub import MMVM_CONTEXT0_CNTL, MMVM_L2_BANK_SELECT_RESERVED_CID2
from ringup.autogen.amd.vm import AMDGPU_PTE_VALID
from ringup.drivers.amd.bus.registers import Block
from ringup.drivers.amd.gmc import faults as gmc_faults
from ringup.drivers.amd.gmc.words import HubWords, Pair
from ringup.errors import NotSupported, RingupError
from ringup.firmware.stated import within

CONTEXTS = 16
ENGINES = 18
TIMEOUT_US = 100_000  # TIMEOUT: amdgpu's own bound, AMDGPU_MAX_USEC_TIMEOUT in amdgpu.h
APERTURE_SHIFT = 18  # the system aperture is given in units of 256 KiB
LOCATION_SHIFT = 24  # the frame buffer's place, its offset and AGP in units of 16 MiB
PAGE_SHIFT = 12
LAST_PAGE = (1 << 36) - 1  # of the 48 bit address space
# an invalidation engine's range: all pages its 37 bits can name. Source: gfxhub_v3_0_program_invalidation
EVERY_PAGE = 0x1F_FFFF_FFFF
MTYPE_UC = 3  # Source: navi10_enum.h, soc24_enum.h, enum MTYPE
# reset values that the driver starts from; some versions differ in fields that are set below. Source: mmhub_v3_0.c,
# regMMVM_L2_CNTL*_DEFAULT
L2_CNTL3, L2_CNTL4, L2_CNTL5 = 0x8010_0007, 0x0000_00C1, 0x0000_3FE0
_FAULT_KINDS = ("range", "dummy_page", "pde0", "valid", "read", "write", "execute")
# both at once: a fault is reported and answered from the default page, so that one bad access does not stop the memory
# path
_REPORTED = {f"{kind}_protection_fault_enable_interrupt": 1 for kind in _FAULT_KINDS}
_DEFAULTED = {f"{kind}_protection_fault_enable_default": 1 for kind in _FAULT_KINDS}
_HUB_DEFAULTED = _DEFAULTED | {
    f"{kind}_protection_fault_enable_default": 1 for kind in ("pde1", "pde2", "translate_further", "nack")
}


@dataclass(frozen=True, slots=True)
class Apertures:
    """Where VRAM lies for the hubs, and their pages for stray accesses. All in bytes.

    `fb_base`: address of VRAM's first byte for VMID 0; `fb_offset`: what is added to a vram_pa in tables and table
    bases; `scratch_pa`: a page of VRAM for accesses outside all apertures; `default_bus_addr`: a page of host memory
    for accesses that faulted.
    """

    fb_base: int
    fb_offset: int
    vram_bytes: int
    scratch_pa: int
    default_bus_addr: int

    def __post_init__(self) -> None:
        """Refuse values from the firmware's registers that are impossible for memory of this size."""
        most = (LAST_PAGE + 1 << PAGE_SHIFT) - self.vram_bytes
        for name, value in (("MC_VM_FB_LOCATION_BASE", self.fb_base), ("MC_VM_FB_OFFSET", self.fb_offset)):
            within(
                value >> LOCATION_SHIFT,
                0,
                most >> LOCATION_SHIFT,
                f"{name} in units of 16 MiB",
                bits=24,
                todo="reset the card",
            )


class Context(NamedTuple):
    """Page tables of a VMID: the root directory's place in VRAM, the pages it covers, how many levels lie below it (3:
    four levels).
    """

    root_pa: int
    first_page: int
    last_page: int
    depth: int


class Hub:
    """One hub. `semaphore`: the semaphore of its engine must be held during an invalidation (MMHUB), or power gating
    may lose the answer.
    """

    def __init__(self, name: str, block: Block, words: HubWords, *, semaphore: bool) -> None:
        self.name, self.block, self.words = name, block, words
        self._semaphore = semaphore
        self._taken = False
        self._context_step = block.distance(words.context_cntl, words.context1_cntl)
        self._table_step = block.distance(words.table_base[0], words.table1_base[0])
        if self._context_step != 1 or block.distance(words.engine_range[0], words.engine1_range[0]) != 2:
            raise NotSupported(
                f"contexts and engines of {name} {block.version} do not follow one another as in those known"
            )

    @property
    def fb_base(self) -> int:
        """Where the card's firmware put VRAM in this hub's address space."""
        return int(self.block.read(self.words.fb_location).fb_base) << LOCATION_SHIFT

    @property
    def fb_offset(self) -> int:
        """What is added to an offset in VRAM in tables."""
        return int(self.block.read(self.words.fb_offset).fb_offset) << LOCATION_SHIFT

    def start(self, apertures: Apertures) -> None:
        """Set apertures, TLBs, cache and faults; every context is off until `set_context`."""
        if self._semaphore:  # an owner that died while it flushed holds it still
            self.block.write(self.words.invalidate_sem.at(self.block.version)(semaphore=0))
        self._start_apertures(apertures)
        self._start_cache()
        self._disable_contexts()
        self._disable_identity()
        self._start_engines()
        # an earlier owner's fault goes too: the hub keeps the first one only
        self.block.update(self.words.fault_cntl, **_HUB_DEFAULTED, clear_protection_fault_status_addr=1)

    def _start_apertures(self, apertures: Apertures) -> None:
        block, words = self.block, self.words
        block.write(words.agp_base.at(block.version)(0))
        block.write(words.agp_bot.at(block.version)(agp_bot=0xFF_FFFF))  # bottom above top: there is no AGP aperture
        block.write(words.agp_top.at(block.version)(0))
        fb_end = apertures.fb_base + apertures.vram_bytes - 1
        block.write(words.aperture_low.at(block.version)(logical_addr=apertures.fb_base >> APERTURE_SHIFT))
        block.write(words.aperture_high.at(block.version)(logical_addr=fb_end >> APERTURE_SHIFT))
        self._write_pair(words.aperture_default, apertures.scratch_pa + apertures.fb_offset >> PAGE_SHIFT)
        self._write_pair(words.fault_default, apertures.default_bus_addr >> PAGE_SHIFT)
        block.update(words.fault_cntl2, active_page_migration_pte_read_retry=1)

    def _start_cache(self) -> None:
        block, words = self.block, self.words
        block.update(
            words.l1_tlb_cntl,
            enable_l1_tlb=1,
            system_access_mode=3,
            enable_advanced_driver_model=1,
            system_aperture_unmapped_access=0,
            eco_bits=0,
            mtype=MTYPE_UC,
        )
        block.update(
            words.l2_cntl,
            enable_l2_cache=1,
            enable_l2_fragment_processing=0,
            enable_default_page_out_to_system_memory=1,
            l2_pde0_cache_tag_generation_mode=0,
            pde_fault_classification=0,
            context1_identity_access_mode=1,
            identity_mode_fragment_size=0,
        )
        block.update(words.l2_cntl2, invalidate_all_l1_tlbs=1, invalidate_l2_cache=1)
        block.write(words.l2_cntl3.at(block.version)(L2_CNTL3, bank_select=9, l2_cache_bigk_fragment_size=6))
        block.write(
            words.l2_cntl4.at(block.version)(L2_CNTL4, vmc_tap_pde_request_physical=0, vmc_tap_pte_request_physical=0)
        )
        block.write(words.l2_cntl5.at(block.version)(L2_CNTL5, l2_cache_smallk_fragment_size=0))

    def _disable_identity(self) -> None:
        """Low above high: no context is mapped one to one."""
        self._write_pair(self.words.identity_low, LAST_PAGE)
        self._write_pair(self.words.identity_high, 0)
        self._write_pair(self.words.identity_offset, 0)

    def _start_engines(self) -> None:
        """Set the range of every invalidation engine to all pages. Low and high halves follow one another.

        A process that died while it held the engine's semaphore left it taken. The engine belongs to this driver now,
        so the semaphore is released.
        """
        halves = (EVERY_PAGE & 0xFFFF_FFFF, EVERY_PAGE >> 32)
        self.block.registers.write_run(self.block.address(self.words.engine_range[0]), halves * ENGINES)
        if self._semaphore:
            self.block.write(self.words.invalidate_sem.at(self.block.version)(semaphore=0))

    def _disable_contexts(self) -> None:
        self.block.registers.write_run(self.block.address(self.words.context_cntl), (0,) * CONTEXTS)

    def stop(self) -> None:
        """Switch contexts, TLBs and cache off; VMID 0 still reaches VRAM. Source: mmhub_v3_0_gart_disable."""
        self._disable_contexts()
        self.block.update(self.words.l1_tlb_cntl, enable_l1_tlb=0, enable_advanced_driver_model=0)
        self.block.update(self.words.l2_cntl, enable_l2_cache=0)
        self.block.write(self.words.l2_cntl3.at(self.block.version)(0))

    def set_context(self, vmid: int, context: Context, fb_offset: int) -> None:
        """Set a VMID's page tables. ORDER: the enable comes after what it enables; the caller flushes."""
        words, version, tables = self.words, self.block.version, vmid * self._table_step
        self._write_pair(words.table_base, context.root_pa + fb_offset | AMDGPU_PTE_VALID, tables)
        self._write_pair(words.table_start, context.first_page, tables)
        self._write_pair(words.table_end, context.last_page, tables)
        control = words.context_cntl.at(version)(
            enable_context=1,
            page_table_depth=context.depth,
            page_table_block_size=0,  # 512 entries a table: log2 less 9
            retry_permission_or_invalid_page_fault=0,  # a fault is final; nobody fills tables behind it
            **_REPORTED,
            **_DEFAULTED,
        )
        self.block.write(control, vmid * self._context_step)

    def context(self, vmid: int) -> tuple[MMVM_CONTEXT0_CNTL | GCVM_CONTEXT0_CNTL, int]:
        """Return a VMID's control register and table base; nothing is changed."""
        control = self.block.read(self.words.context_cntl, vmid * self._context_step)
        return control, self.block.read_pair(*self.words.table_base, vmid * self._table_step)

    def disable_context(self, vmid: int) -> None:
        """Remove a VMID's page tables."""
        self.block.write(self.words.context_cntl.at(self.block.version)(0), vmid * self._context_step)

    def flush(self, vmid: int) -> None:
        """Drop every cached translation of a VMID. Raises `DeviceTimeout` when the hub does not acknowledge."""
        doing = f"flushing the TLB of vmid {vmid} on {self.name}"
        if self._semaphore:
            self._take(doing)
        try:
            self._invalidate(vmid, doing)
        except BaseException:
            if self._semaphore:
                with suppress(RingupError):  # hides nothing that went wrong before
                    self._release()
            raise
        if self._semaphore:
            self._release()
            # MMHUB alone keeps translations of some clients in a private cache
            self.block.update(MMVM_L2_BANK_SELECT_RESERVED_CID2, reserved_cache_private_invalidation=1)
            self.block.read(MMVM_L2_BANK_SELECT_RESERVED_CID2)  # the read returns when the invalidation is done

    def _take(self, doing: str) -> None:
        """Take the engine's semaphore. Only this driver uses the engine, so a semaphore that an interrupted flush left
        taken is released first.
        """
        if self._taken:
            self._release()
        self._taken = True  # ORDER: before the read that takes it, whose answer may be lost
        self.block.wait(  # it reads 1 to the one who gets it
            self.words.invalidate_sem,
            lambda sem: bool(sem.semaphore),
            TIMEOUT_US,
            f"{doing}: taking the engine's semaphore",
        )

    def _release(self) -> None:
        self.block.write(self.words.invalidate_sem.at(self.block.version)(semaphore=0))
        self._taken = False

    def _invalidate(self, vmid: int, doing: str) -> None:
        mask = 1 << vmid
        request = self.words.invalidate_req.at(self.block.version)(
            per_vmid_invalidate_req=mask,
            flush_type=0,
            invalidate_l2_ptes=1,
            invalidate_l2_pde0=1,
            invalidate_l2_pde1=1,
            invalidate_l2_pde2=1,
            invalidate_l1_ptes=1,
            clear_protection_fault_status_addr=0,
        )
        self.block.write(request)
        self.block.wait(
            self.words.invalidate_ack, lambda ack: bool(ack.per_vmid_invalidate_ack & mask), TIMEOUT_US, doing
        )

    def kept_fault(self) -> gmc_faults.Fault | None:
        """Return the fault that the hub holds, without clearing it; None when there is none."""
        words, block = self.words, self.block
        # QUIRK: the first read may come before the register is up to date. Source: gmc_v11_0.c
        block.read(words.fault_status)
        status = block.read(words.fault_status)
        if not int(status):
            return None
        return gmc_faults.decode(self.name, block.version, status, block.read_pair(*words.fault_address))

    def read_fault(self) -> gmc_faults.Fault | None:
        """Return the fault that the hub holds and clear it, so that it records the next; None when there is none."""
        fault = self.kept_fault()
        if fault is not None:
            self.block.update(self.words.fault_cntl, clear_protection_fault_status_addr=1)
        return fault

    def _write_pair(self, pair: Pair, value: int, plus_dwords: int = 0) -> None:
        self.block.write_pair(*pair, value, plus_dwords)
