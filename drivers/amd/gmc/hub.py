"""One VM hub: apertures, TLBs, the sixteen VM contexts, the invalidation engine and the fault registers.

A hub translates the addresses of its clients. VMID 0 reaches VRAM through the frame buffer aperture, without page
tables. All other addresses are translated by the page tables of their context. Source: amdgpu mmhub_v3_0.c,
gfxhub_v3_0.c, gfxhub_v3_0_3.c, mmhub_v4_1_0.c, gfxhub_v12_0.c; gmc_v11_0.c; mmhub_v1_8.c, gfxhub_v1_2.c, gmc_v9_0.c.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import NamedTuple

from ringup.autogen.amd.mmhub import (
    DAGB0_WRCLI_GPU_SNOOP_OVERRIDE,
    DAGB0_WRCLI_GPU_SNOOP_OVERRIDE_VALUE,
    DAGB1_WRCLI_GPU_SNOOP_OVERRIDE,
    MMVM_L2_BANK_SELECT_RESERVED_CID2,
)
from ringup.autogen.amd.vm import AMDGPU_PTE_VALID
from ringup.drivers.amd.bus.registers import Block
from ringup.drivers.amd.gmc import faults as gmc_faults
from ringup.drivers.amd.gmc.words import ContextCntl, HubWords, Pair, hub_row
from ringup.errors import NotSupported, RingupError
from ringup.firmware.stated import within

CONTEXTS = 16
ENGINES = 18
# TIMEOUT: amdgpu's own bound, AMDGPU_MAX_USEC_TIMEOUT in amdgpu.h
TIMEOUT_US = 100_000
# the registers of the system aperture count in units of 256 KiB
APERTURE_SHIFT = 18
# the registers of the frame buffer's location, its offset and AGP count in units of 16 MiB
LOCATION_SHIFT = 24
PAGE_SHIFT = 12
# of the 48 bit address space
LAST_PAGE = (1 << 36) - 1
# the range of an invalidation engine: all pages that its 37 bits can name. Source: gfxhub_v3_0_program_invalidation
EVERY_PAGE = 0x1F_FFFF_FFFF
# Source: navi10_enum.h, soc24_enum.h, enum MTYPE
MTYPE_UC = 3
# the reset values, of which the driver changes some fields. Where versions differ, it sets the field. Source:
# mmhub_v3_0.c, regMMVM_L2_CNTL*_DEFAULT
FURTHER_BLOCK_SIZE = 9
# what a card has several hubs of a kind on
DIES = {gmc_faults.GFXHUB: "XCC", gmc_faults.MMHUB: "I/O die"}
# parts of MMHUB's data path on an I/O die, and the bit of the copy engines among their clients. Source:
# mmhub_v1_8_init_snoop_override_regs
DAGBS, SDMA_CLIENT = 5, 1 << 15
L2_CNTL3, L2_CNTL4, L2_CNTL5 = 0x8010_0007, 0x0000_00C1, 0x0000_3FE0
_FAULT_KINDS = ("range", "dummy_page", "pde0", "valid", "read", "write", "execute")
# a context has both: a fault is reported, and the access goes to the default page. So one wrong access does not stop
# the memory path
_REPORTED = {f"{kind}_protection_fault_enable_interrupt": 1 for kind in _FAULT_KINDS}
_DEFAULTED = {f"{kind}_protection_fault_enable_default": 1 for kind in _FAULT_KINDS}
_HUB_DEFAULTED = _DEFAULTED | {
    f"{kind}_protection_fault_enable_default": 1 for kind in ("pde1", "pde2", "translate_further", "nack")
}


@dataclass(frozen=True, slots=True)
class Apertures:
    """Where the hubs see VRAM, and their pages for stray accesses. All values are in bytes.

    `fb_base`: the address of VRAM's first byte for VMID 0. `fb_offset`: the offset that is added to a vram_pa in page
    tables and in their base registers. `scratch_pa`: a page of VRAM for accesses outside all apertures.
    `default_bus_addr`: a page of host memory for accesses that faulted. `hive`: the first and last address of the
    memory of all cards that are linked by XGMI; None: the card is alone.
    """

    fb_base: int
    fb_offset: int
    vram_bytes: int
    scratch_pa: int
    default_bus_addr: int
    hive: tuple[int, int] | None = None

    @property
    def frame_buffer(self) -> tuple[int, int]:
        """The first and last address of the frame buffer aperture."""
        return self.hive or (self.fb_base, self.fb_base + self.vram_bytes - 1)

    def __post_init__(self) -> None:
        """Raise an error for values that are impossible with this amount of memory. They come from registers that the
        firmware set.
        """
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
    """The page tables of a VMID: the root directory's address in VRAM, the pages that it covers, and the number of
    levels below it (`depth` 3 is four levels).
    """

    root_pa: int
    first_page: int
    last_page: int
    depth: int


class Hub:
    """One hub. `kind` is "mmhub" or "gfxhub"; `number` tells those of a kind apart, where there are several."""

    def __init__(self, kind: str, block: Block, words: HubWords, number: int | None = None) -> None:
        self.kind, self.name = kind, kind if number is None else f"{kind} of {DIES[kind]} {number}"
        self.block, self.words, self.row = block, words, hub_row(words)
        self._semaphore = kind == gmc_faults.MMHUB and self.row.semaphore
        self._taken = False
        self._context_step = block.distance(words.context_cntl, words.context1_cntl)
        self._table_step = block.distance(words.table_base[0], words.table1_base[0])
        if self._context_step != 1 or block.distance(words.engine_range[0], words.engine1_range[0]) != 2:
            raise NotSupported(
                f"contexts and engines of {self.name} {block.version} do not follow one another as in those known"
            )

    @property
    def fb_base(self) -> int:
        """The address at which the card's firmware put VRAM in this hub's address space."""
        return int(self.block.read(self.words.fb_location).fb_base) << LOCATION_SHIFT

    @property
    def fb_offset(self) -> int:
        """The offset that page tables add to an offset in VRAM."""
        return int(self.block.read(self.words.fb_offset).fb_offset) << LOCATION_SHIFT

    def start(self, apertures: Apertures) -> None:
        """Set up apertures, TLBs, cache and faults. All contexts are off until `set_context`."""
        # an owner that died during a flush still holds the semaphore
        if self._semaphore:
            self.block.write(self.words.invalidate_sem.at(self.block.version)(semaphore=0))
        self._start_apertures(apertures)
        if self.kind == gmc_faults.MMHUB and self.row.snooped_writes:
            self._snoop_copies()
        self._start_cache()
        self._disable_contexts()
        self._disable_identity()
        self._start_engines()
        # also clear the fault of an earlier owner: a hub holds only the first fault
        self.block.update(self.words.fault_cntl, **_HUB_DEFAULTED, clear_protection_fault_status_addr=1)

    def _start_apertures(self, apertures: Apertures) -> None:
        block, words = self.block, self.words
        block.write(words.agp_base.at(block.version)(0))
        # the bottom is above the top: there is no AGP aperture
        block.write(words.agp_bot.at(block.version)(agp_bot=0xFF_FFFF))
        block.write(words.agp_top.at(block.version)(0))
        first, last = apertures.frame_buffer
        block.write(words.aperture_low.at(block.version)(logical_addr=first >> APERTURE_SHIFT))
        block.write(words.aperture_high.at(block.version)(logical_addr=last >> APERTURE_SHIFT))
        self._write_pair(words.aperture_default, apertures.scratch_pa + apertures.fb_offset >> PAGE_SHIFT)
        self._write_pair(words.fault_default, apertures.default_bus_addr >> PAGE_SHIFT)
        block.ensure(words.fault_cntl2, active_page_migration_pte_read_retry=1)

    def _snoop_copies(self) -> None:
        """Make writes of the copy engines probe caches, so that lines of memory type RW there become invalid. Source:
        mmhub_v1_8_init_snoop_override_regs.
        """
        block, word = self.block, DAGB0_WRCLI_GPU_SNOOP_OVERRIDE
        step = block.distance(word, DAGB1_WRCLI_GPU_SNOOP_OVERRIDE)
        for at in range(0, DAGBS * step, step):
            for each in (word, DAGB0_WRCLI_GPU_SNOOP_OVERRIDE_VALUE):
                seen = int(block.read(each, at))
                if not seen & SDMA_CLIENT:
                    block.write(each.at(block.version)(seen | SDMA_CLIENT), at)

    def _start_cache(self) -> None:
        block, words, row = self.block, self.words, self.row
        block.update(
            words.l1_tlb_cntl,
            enable_l1_tlb=1,
            system_access_mode=3,
            enable_advanced_driver_model=1,
            system_aperture_unmapped_access=0,
            mtype=MTYPE_UC,
            **row.tlb,
        )
        block.update(
            words.l2_cntl,
            enable_l2_cache=1,
            l2_pde0_cache_tag_generation_mode=0,
            pde_fault_classification=0,
            context1_identity_access_mode=1,
            identity_mode_fragment_size=0,
            **row.cache,
        )
        block.update(words.l2_cntl2, invalidate_all_l1_tlbs=1, invalidate_l2_cache=1)
        block.write(words.l2_cntl3.at(block.version)(L2_CNTL3, **row.cache3))
        block.write(
            words.l2_cntl4.at(block.version)(L2_CNTL4, vmc_tap_pde_request_physical=0, vmc_tap_pte_request_physical=0)
        )
        if words.l2_cntl5 is not None:
            block.write(words.l2_cntl5.at(block.version)(L2_CNTL5, l2_cache_smallk_fragment_size=0))

    def _disable_identity(self) -> None:
        """Set the low end of the identity aperture above its high end: no address is mapped one to one."""
        self._write_pair(self.words.identity_low, LAST_PAGE)
        self._write_pair(self.words.identity_high, 0)
        self._write_pair(self.words.identity_offset, 0)

    def _start_engines(self) -> None:
        """Set the range of every invalidation engine to all pages. The registers of the low and high halves alternate.

        A process that died may still hold the engine's semaphore. The engine belongs to this driver now, so the
        semaphore is released.
        """
        halves = (EVERY_PAGE & 0xFFFF_FFFF, EVERY_PAGE >> 32)
        self.block.registers.write_run(self.block.address(self.words.engine_range[0]), halves * ENGINES)
        if self._semaphore:
            self.block.write(self.words.invalidate_sem.at(self.block.version)(semaphore=0))

    def _disable_contexts(self) -> None:
        self.block.registers.write_run(self.block.address(self.words.context_cntl), (0,) * CONTEXTS)

    def stop(self) -> None:
        """Switch contexts, TLBs and cache off. VMID 0 still reaches VRAM. Source: mmhub_v3_0_gart_disable."""
        self._disable_contexts()
        self.block.update(self.words.l1_tlb_cntl, enable_l1_tlb=0, enable_advanced_driver_model=0)
        self.block.update(self.words.l2_cntl, enable_l2_cache=0)
        self.block.write(self.words.l2_cntl3.at(self.block.version)(0))

    def set_context(self, vmid: int, context: Context, fb_offset: int) -> None:
        """Set a VMID's page tables. The caller then flushes the TLB. ORDER: the enable bit comes after the base and the
        range.
        """
        words, version, tables = self.words, self.block.version, vmid * self._table_step
        self._write_pair(words.table_base, context.root_pa + fb_offset | AMDGPU_PTE_VALID, tables)
        self._write_pair(words.table_start, context.first_page, tables)
        self._write_pair(words.table_end, context.last_page, tables)
        control = words.context_cntl.at(version)(
            enable_context=1,
            page_table_depth=context.depth - (1 if self.row.further else 0),
            # log2 of the entries of a table, minus 9: 512 entries. Where entries may translate further, log2 of the
            # pages that an entry of the last level without that covers
            page_table_block_size=FURTHER_BLOCK_SIZE if self.row.further else 0,
            # a fault is final: the driver does not fill page tables after a fault
            retry_permission_or_invalid_page_fault=0,
            **_REPORTED,
            **_DEFAULTED,
        )
        self.block.write(control, vmid * self._context_step)

    def context(self, vmid: int) -> tuple[ContextCntl, int]:
        """Return a VMID's control register and table base. Nothing is changed."""
        control = self.block.read(self.words.context_cntl, vmid * self._context_step)
        return control, self.block.read_pair(*self.words.table_base, vmid * self._table_step)

    def disable_context(self, vmid: int) -> None:
        """Remove a VMID's page tables."""
        self.block.write(self.words.context_cntl.at(self.block.version)(0), vmid * self._context_step)

    @contextmanager
    def invalidating(self, vmid: int) -> Iterator[None]:
        """Let the hub begin to drop every cached translation of a VMID; inside, `wait_invalidated` must be called."""
        if self._semaphore:
            self._take(_flushing(vmid, self))
        try:
            self._invalidate(vmid)
            yield
        except BaseException:
            if self._semaphore:
                # the first error is raised, not a later one
                with suppress(RingupError):
                    self._release()
            raise
        if self._semaphore:
            self._release()
            # only MMHUB with a semaphore keeps translations of some clients in a private cache
            self.block.update(MMVM_L2_BANK_SELECT_RESERVED_CID2, reserved_cache_private_invalidation=1)
            # the read returns when the invalidation is done
            self.block.read(MMVM_L2_BANK_SELECT_RESERVED_CID2)

    def _take(self, doing: str) -> None:
        """Take the engine's semaphore. Only this driver uses the engine, so a semaphore that an interrupted flush still
        holds is released first.
        """
        if self._taken:
            self._release()
        # ORDER: set before the read that takes the semaphore, because the read's value may be lost
        self._taken = True
        # the read returns 1 if it took the semaphore
        self.block.wait(
            self.words.invalidate_sem,
            lambda sem: bool(sem.semaphore),
            TIMEOUT_US,
            f"{doing}: taking the engine's semaphore",
        )

    def _release(self) -> None:
        self.block.write(self.words.invalidate_sem.at(self.block.version)(semaphore=0))
        self._taken = False

    def _invalidate(self, vmid: int) -> None:
        request = self.words.invalidate_req.at(self.block.version)(
            per_vmid_invalidate_req=1 << vmid,
            flush_type=0,
            invalidate_l2_ptes=1,
            invalidate_l2_pde0=1,
            invalidate_l2_pde1=1,
            invalidate_l2_pde2=1,
            invalidate_l1_ptes=1,
            clear_protection_fault_status_addr=0,
        )
        self.block.write(request)

    def wait_invalidated(self, vmid: int) -> None:
        """Wait until the translations of a VMID are dropped. Raises `DeviceTimeout` if the hub does not acknowledge."""
        self.block.wait(
            self.words.invalidate_ack,
            lambda ack: bool(ack.per_vmid_invalidate_ack & 1 << vmid),
            TIMEOUT_US,
            _flushing(vmid, self),
        )

    def kept_fault(self) -> gmc_faults.Fault | None:
        """Return the fault that the hub holds, without clearing it. None if there is none."""
        words, block = self.words, self.block
        # QUIRK: the first read may come before the register is up to date. Source: gmc_v11_0.c
        block.read(words.fault_status)
        status = block.read(words.fault_status)
        if not int(status):
            return None
        return gmc_faults.decode(self.name, block.version, status, block.read_pair(*words.fault_address))

    def read_fault(self) -> gmc_faults.Fault | None:
        """Return the fault that the hub holds, and clear it, so that the hub records the next. None without a fault."""
        fault = self.kept_fault()
        if fault is not None:
            self.block.update(self.words.fault_cntl, clear_protection_fault_status_addr=1)
        return fault

    def _write_pair(self, pair: Pair, value: int, plus_dwords: int = 0) -> None:
        self.block.write_pair(*pair, value, plus_dwords)


def flush(hubs: Sequence[Hub], vmid: int) -> None:
    """Invalidate every cached translation of a VMID on several hubs, which work at the same time. Raises
    `DeviceTimeout` if one does not acknowledge.
    """
    with ExitStack() as begun:
        for hub in hubs:
            begun.enter_context(hub.invalidating(vmid))
        for hub in hubs:
            hub.wait_invalidated(vmid)


def _flushing(vmid: int, hub: Hub) -> str:
    return f"flushing the TLB of vmid {vmid} on {hub.name}"
