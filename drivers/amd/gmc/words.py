"""The registers of the VM hubs, and what differs in how they are set. MMHUB and the graphics core's hub are one design,
with two prefixes of names; those of GFX9 have none.

Source: amdgpu mmhub_v3_0.c, gfxhub_v3_0.c, gfxhub_v12_0.c; mmhub_v1_8.c, gfxhub_v1_2.c; gmc_v9_0.c.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ringup.autogen.amd import gc_vm as gc
from ringup.autogen.amd import gc_vm_v9 as gc9
from ringup.autogen.amd import mmhub as mm
from ringup.autogen.amd import mmhub_v1 as mm1
from ringup.autogen.layout import Word
from ringup.drivers.amd.bus.registers import Version

Pair = tuple[type[Word], type[Word]]  # low half, high half
FaultStatus = (
    mm.MMVM_L2_PROTECTION_FAULT_STATUS
    | mm.MMVM_L2_PROTECTION_FAULT_STATUS_LO32
    | gc.GCVM_L2_PROTECTION_FAULT_STATUS
    | gc.GCVM_L2_PROTECTION_FAULT_STATUS_LO32
    | mm1.VM_L2_PROTECTION_FAULT_STATUS
    | gc9.VM_L2_PROTECTION_FAULT_STATUS
)
ContextCntl = mm.MMVM_CONTEXT0_CNTL | gc.GCVM_CONTEXT0_CNTL | mm1.VM_CONTEXT0_CNTL | gc9.VM_CONTEXT0_CNTL


class HubWords(NamedTuple):
    """The registers of a hub. Of the registers that repeat, only those of context 0 and engine 0 are listed. Those of
    context 1 and engine 1 give the distance to the next one.
    """

    fb_location: type[
        mm.MMMC_VM_FB_LOCATION_BASE
        | gc.GCMC_VM_FB_LOCATION_BASE
        | mm1.MC_VM_FB_LOCATION_BASE
        | gc9.MC_VM_FB_LOCATION_BASE
    ]
    fb_location_top: type[
        mm.MMMC_VM_FB_LOCATION_TOP | gc.GCMC_VM_FB_LOCATION_TOP | mm1.MC_VM_FB_LOCATION_TOP | gc9.MC_VM_FB_LOCATION_TOP
    ]
    fb_offset: type[mm.MMMC_VM_FB_OFFSET | gc.GCMC_VM_FB_OFFSET | mm1.MC_VM_FB_OFFSET | gc9.MC_VM_FB_OFFSET]
    agp_base: type[Word]
    agp_bot: type[Word]
    agp_top: type[Word]
    aperture_low: type[Word]
    aperture_high: type[Word]
    aperture_default: Pair
    l1_tlb_cntl: type[Word]
    l2_cntl: type[Word]
    l2_cntl2: type[Word]
    l2_cntl3: type[Word]
    l2_cntl4: type[Word]
    l2_cntl5: type[Word] | None
    identity_low: Pair
    identity_high: Pair
    identity_offset: Pair
    context_cntl: type[ContextCntl]
    context1_cntl: type[Word]
    table_base: Pair
    table1_base: Pair
    table_start: Pair
    table_end: Pair
    engine_range: Pair
    engine1_range: Pair
    invalidate_sem: type[
        mm.MMVM_INVALIDATE_ENG17_SEM
        | gc.GCVM_INVALIDATE_ENG17_SEM
        | mm1.VM_INVALIDATE_ENG17_SEM
        | gc9.VM_INVALIDATE_ENG17_SEM
    ]
    invalidate_req: type[Word]
    invalidate_ack: type[
        mm.MMVM_INVALIDATE_ENG17_ACK
        | gc.GCVM_INVALIDATE_ENG17_ACK
        | mm1.VM_INVALIDATE_ENG17_ACK
        | gc9.VM_INVALIDATE_ENG17_ACK
    ]
    fault_cntl: type[Word]
    fault_cntl2: type[Word]
    fault_status: type[FaultStatus]
    fault_address: Pair
    fault_default: Pair


MMHUB_WORDS = HubWords(
    fb_location=mm.MMMC_VM_FB_LOCATION_BASE,
    fb_location_top=mm.MMMC_VM_FB_LOCATION_TOP,
    fb_offset=mm.MMMC_VM_FB_OFFSET,
    agp_base=mm.MMMC_VM_AGP_BASE,
    agp_bot=mm.MMMC_VM_AGP_BOT,
    agp_top=mm.MMMC_VM_AGP_TOP,
    aperture_low=mm.MMMC_VM_SYSTEM_APERTURE_LOW_ADDR,
    aperture_high=mm.MMMC_VM_SYSTEM_APERTURE_HIGH_ADDR,
    aperture_default=(mm.MMMC_VM_SYSTEM_APERTURE_DEFAULT_ADDR_LSB, mm.MMMC_VM_SYSTEM_APERTURE_DEFAULT_ADDR_MSB),
    l1_tlb_cntl=mm.MMMC_VM_MX_L1_TLB_CNTL,
    l2_cntl=mm.MMVM_L2_CNTL,
    l2_cntl2=mm.MMVM_L2_CNTL2,
    l2_cntl3=mm.MMVM_L2_CNTL3,
    l2_cntl4=mm.MMVM_L2_CNTL4,
    l2_cntl5=mm.MMVM_L2_CNTL5,
    identity_low=(
        mm.MMVM_L2_CONTEXT1_IDENTITY_APERTURE_LOW_ADDR_LO32,
        mm.MMVM_L2_CONTEXT1_IDENTITY_APERTURE_LOW_ADDR_HI32,
    ),
    identity_high=(
        mm.MMVM_L2_CONTEXT1_IDENTITY_APERTURE_HIGH_ADDR_LO32,
        mm.MMVM_L2_CONTEXT1_IDENTITY_APERTURE_HIGH_ADDR_HI32,
    ),
    identity_offset=(
        mm.MMVM_L2_CONTEXT_IDENTITY_PHYSICAL_OFFSET_LO32,
        mm.MMVM_L2_CONTEXT_IDENTITY_PHYSICAL_OFFSET_HI32,
    ),
    context_cntl=mm.MMVM_CONTEXT0_CNTL,
    context1_cntl=mm.MMVM_CONTEXT1_CNTL,
    table_base=(mm.MMVM_CONTEXT0_PAGE_TABLE_BASE_ADDR_LO32, mm.MMVM_CONTEXT0_PAGE_TABLE_BASE_ADDR_HI32),
    table1_base=(mm.MMVM_CONTEXT1_PAGE_TABLE_BASE_ADDR_LO32, mm.MMVM_CONTEXT1_PAGE_TABLE_BASE_ADDR_HI32),
    table_start=(mm.MMVM_CONTEXT0_PAGE_TABLE_START_ADDR_LO32, mm.MMVM_CONTEXT0_PAGE_TABLE_START_ADDR_HI32),
    table_end=(mm.MMVM_CONTEXT0_PAGE_TABLE_END_ADDR_LO32, mm.MMVM_CONTEXT0_PAGE_TABLE_END_ADDR_HI32),
    engine_range=(mm.MMVM_INVALIDATE_ENG0_ADDR_RANGE_LO32, mm.MMVM_INVALIDATE_ENG0_ADDR_RANGE_HI32),
    engine1_range=(mm.MMVM_INVALIDATE_ENG1_ADDR_RANGE_LO32, mm.MMVM_INVALIDATE_ENG1_ADDR_RANGE_HI32),
    invalidate_sem=mm.MMVM_INVALIDATE_ENG17_SEM,
    invalidate_req=mm.MMVM_INVALIDATE_ENG17_REQ,
    invalidate_ack=mm.MMVM_INVALIDATE_ENG17_ACK,
    fault_cntl=mm.MMVM_L2_PROTECTION_FAULT_CNTL,
    fault_cntl2=mm.MMVM_L2_PROTECTION_FAULT_CNTL2,
    fault_status=mm.MMVM_L2_PROTECTION_FAULT_STATUS,
    fault_address=(mm.MMVM_L2_PROTECTION_FAULT_ADDR_LO32, mm.MMVM_L2_PROTECTION_FAULT_ADDR_HI32),
    fault_default=(mm.MMVM_L2_PROTECTION_FAULT_DEFAULT_ADDR_LO32, mm.MMVM_L2_PROTECTION_FAULT_DEFAULT_ADDR_HI32),
)

MMHUB_V1_WORDS = HubWords(
    fb_location=mm1.MC_VM_FB_LOCATION_BASE,
    fb_location_top=mm1.MC_VM_FB_LOCATION_TOP,
    fb_offset=mm1.MC_VM_FB_OFFSET,
    agp_base=mm1.MC_VM_AGP_BASE,
    agp_bot=mm1.MC_VM_AGP_BOT,
    agp_top=mm1.MC_VM_AGP_TOP,
    aperture_low=mm1.MC_VM_SYSTEM_APERTURE_LOW_ADDR,
    aperture_high=mm1.MC_VM_SYSTEM_APERTURE_HIGH_ADDR,
    aperture_default=(mm1.MC_VM_SYSTEM_APERTURE_DEFAULT_ADDR_LSB, mm1.MC_VM_SYSTEM_APERTURE_DEFAULT_ADDR_MSB),
    l1_tlb_cntl=mm1.MC_VM_MX_L1_TLB_CNTL,
    l2_cntl=mm1.VM_L2_CNTL,
    l2_cntl2=mm1.VM_L2_CNTL2,
    l2_cntl3=mm1.VM_L2_CNTL3,
    l2_cntl4=mm1.VM_L2_CNTL4,
    l2_cntl5=None,
    identity_low=(
        mm1.VM_L2_CONTEXT1_IDENTITY_APERTURE_LOW_ADDR_LO32,
        mm1.VM_L2_CONTEXT1_IDENTITY_APERTURE_LOW_ADDR_HI32,
    ),
    identity_high=(
        mm1.VM_L2_CONTEXT1_IDENTITY_APERTURE_HIGH_ADDR_LO32,
        mm1.VM_L2_CONTEXT1_IDENTITY_APERTURE_HIGH_ADDR_HI32,
    ),
    identity_offset=(
        mm1.VM_L2_CONTEXT_IDENTITY_PHYSICAL_OFFSET_LO32,
        mm1.VM_L2_CONTEXT_IDENTITY_PHYSICAL_OFFSET_HI32,
    ),
    context_cntl=mm1.VM_CONTEXT0_CNTL,
    context1_cntl=mm1.VM_CONTEXT1_CNTL,
    table_base=(mm1.VM_CONTEXT0_PAGE_TABLE_BASE_ADDR_LO32, mm1.VM_CONTEXT0_PAGE_TABLE_BASE_ADDR_HI32),
    table1_base=(mm1.VM_CONTEXT1_PAGE_TABLE_BASE_ADDR_LO32, mm1.VM_CONTEXT1_PAGE_TABLE_BASE_ADDR_HI32),
    table_start=(mm1.VM_CONTEXT0_PAGE_TABLE_START_ADDR_LO32, mm1.VM_CONTEXT0_PAGE_TABLE_START_ADDR_HI32),
    table_end=(mm1.VM_CONTEXT0_PAGE_TABLE_END_ADDR_LO32, mm1.VM_CONTEXT0_PAGE_TABLE_END_ADDR_HI32),
    engine_range=(mm1.VM_INVALIDATE_ENG0_ADDR_RANGE_LO32, mm1.VM_INVALIDATE_ENG0_ADDR_RANGE_HI32),
    engine1_range=(mm1.VM_INVALIDATE_ENG1_ADDR_RANGE_LO32, mm1.VM_INVALIDATE_ENG1_ADDR_RANGE_HI32),
    invalidate_sem=mm1.VM_INVALIDATE_ENG17_SEM,
    invalidate_req=mm1.VM_INVALIDATE_ENG17_REQ,
    invalidate_ack=mm1.VM_INVALIDATE_ENG17_ACK,
    fault_cntl=mm1.VM_L2_PROTECTION_FAULT_CNTL,
    fault_cntl2=mm1.VM_L2_PROTECTION_FAULT_CNTL2,
    fault_status=mm1.VM_L2_PROTECTION_FAULT_STATUS,
    fault_address=(mm1.VM_L2_PROTECTION_FAULT_ADDR_LO32, mm1.VM_L2_PROTECTION_FAULT_ADDR_HI32),
    fault_default=(mm1.VM_L2_PROTECTION_FAULT_DEFAULT_ADDR_LO32, mm1.VM_L2_PROTECTION_FAULT_DEFAULT_ADDR_HI32),
)

GFXHUB_WORDS = HubWords(
    fb_location=gc.GCMC_VM_FB_LOCATION_BASE,
    fb_location_top=gc.GCMC_VM_FB_LOCATION_TOP,
    fb_offset=gc.GCMC_VM_FB_OFFSET,
    agp_base=gc.GCMC_VM_AGP_BASE,
    agp_bot=gc.GCMC_VM_AGP_BOT,
    agp_top=gc.GCMC_VM_AGP_TOP,
    aperture_low=gc.GCMC_VM_SYSTEM_APERTURE_LOW_ADDR,
    aperture_high=gc.GCMC_VM_SYSTEM_APERTURE_HIGH_ADDR,
    aperture_default=(gc.GCMC_VM_SYSTEM_APERTURE_DEFAULT_ADDR_LSB, gc.GCMC_VM_SYSTEM_APERTURE_DEFAULT_ADDR_MSB),
    l1_tlb_cntl=gc.GCMC_VM_MX_L1_TLB_CNTL,
    l2_cntl=gc.GCVM_L2_CNTL,
    l2_cntl2=gc.GCVM_L2_CNTL2,
    l2_cntl3=gc.GCVM_L2_CNTL3,
    l2_cntl4=gc.GCVM_L2_CNTL4,
    l2_cntl5=gc.GCVM_L2_CNTL5,
    identity_low=(
        gc.GCVM_L2_CONTEXT1_IDENTITY_APERTURE_LOW_ADDR_LO32,
        gc.GCVM_L2_CONTEXT1_IDENTITY_APERTURE_LOW_ADDR_HI32,
    ),
    identity_high=(
        gc.GCVM_L2_CONTEXT1_IDENTITY_APERTURE_HIGH_ADDR_LO32,
        gc.GCVM_L2_CONTEXT1_IDENTITY_APERTURE_HIGH_ADDR_HI32,
    ),
    identity_offset=(
        gc.GCVM_L2_CONTEXT_IDENTITY_PHYSICAL_OFFSET_LO32,
        gc.GCVM_L2_CONTEXT_IDENTITY_PHYSICAL_OFFSET_HI32,
    ),
    context_cntl=gc.GCVM_CONTEXT0_CNTL,
    context1_cntl=gc.GCVM_CONTEXT1_CNTL,
    table_base=(gc.GCVM_CONTEXT0_PAGE_TABLE_BASE_ADDR_LO32, gc.GCVM_CONTEXT0_PAGE_TABLE_BASE_ADDR_HI32),
    table1_base=(gc.GCVM_CONTEXT1_PAGE_TABLE_BASE_ADDR_LO32, gc.GCVM_CONTEXT1_PAGE_TABLE_BASE_ADDR_HI32),
    table_start=(gc.GCVM_CONTEXT0_PAGE_TABLE_START_ADDR_LO32, gc.GCVM_CONTEXT0_PAGE_TABLE_START_ADDR_HI32),
    table_end=(gc.GCVM_CONTEXT0_PAGE_TABLE_END_ADDR_LO32, gc.GCVM_CONTEXT0_PAGE_TABLE_END_ADDR_HI32),
    engine_range=(gc.GCVM_INVALIDATE_ENG0_ADDR_RANGE_LO32, gc.GCVM_INVALIDATE_ENG0_ADDR_RANGE_HI32),
    engine1_range=(gc.GCVM_INVALIDATE_ENG1_ADDR_RANGE_LO32, gc.GCVM_INVALIDATE_ENG1_ADDR_RANGE_HI32),
    invalidate_sem=gc.GCVM_INVALIDATE_ENG17_SEM,
    invalidate_req=gc.GCVM_INVALIDATE_ENG17_REQ,
    invalidate_ack=gc.GCVM_INVALIDATE_ENG17_ACK,
    fault_cntl=gc.GCVM_L2_PROTECTION_FAULT_CNTL,
    fault_cntl2=gc.GCVM_L2_PROTECTION_FAULT_CNTL2,
    fault_status=gc.GCVM_L2_PROTECTION_FAULT_STATUS,
    fault_address=(gc.GCVM_L2_PROTECTION_FAULT_ADDR_LO32, gc.GCVM_L2_PROTECTION_FAULT_ADDR_HI32),
    fault_default=(gc.GCVM_L2_PROTECTION_FAULT_DEFAULT_ADDR_LO32, gc.GCVM_L2_PROTECTION_FAULT_DEFAULT_ADDR_HI32),
)

GFXHUB_V9_WORDS = HubWords(
    fb_location=gc9.MC_VM_FB_LOCATION_BASE,
    fb_location_top=gc9.MC_VM_FB_LOCATION_TOP,
    fb_offset=gc9.MC_VM_FB_OFFSET,
    agp_base=gc9.MC_VM_AGP_BASE,
    agp_bot=gc9.MC_VM_AGP_BOT,
    agp_top=gc9.MC_VM_AGP_TOP,
    aperture_low=gc9.MC_VM_SYSTEM_APERTURE_LOW_ADDR,
    aperture_high=gc9.MC_VM_SYSTEM_APERTURE_HIGH_ADDR,
    aperture_default=(gc9.MC_VM_SYSTEM_APERTURE_DEFAULT_ADDR_LSB, gc9.MC_VM_SYSTEM_APERTURE_DEFAULT_ADDR_MSB),
    l1_tlb_cntl=gc9.MC_VM_MX_L1_TLB_CNTL,
    l2_cntl=gc9.VM_L2_CNTL,
    l2_cntl2=gc9.VM_L2_CNTL2,
    l2_cntl3=gc9.VM_L2_CNTL3,
    l2_cntl4=gc9.VM_L2_CNTL4,
    l2_cntl5=None,
    identity_low=(
        gc9.VM_L2_CONTEXT1_IDENTITY_APERTURE_LOW_ADDR_LO32,
        gc9.VM_L2_CONTEXT1_IDENTITY_APERTURE_LOW_ADDR_HI32,
    ),
    identity_high=(
        gc9.VM_L2_CONTEXT1_IDENTITY_APERTURE_HIGH_ADDR_LO32,
        gc9.VM_L2_CONTEXT1_IDENTITY_APERTURE_HIGH_ADDR_HI32,
    ),
    identity_offset=(
        gc9.VM_L2_CONTEXT_IDENTITY_PHYSICAL_OFFSET_LO32,
        gc9.VM_L2_CONTEXT_IDENTITY_PHYSICAL_OFFSET_HI32,
    ),
    context_cntl=gc9.VM_CONTEXT0_CNTL,
    context1_cntl=gc9.VM_CONTEXT1_CNTL,
    table_base=(gc9.VM_CONTEXT0_PAGE_TABLE_BASE_ADDR_LO32, gc9.VM_CONTEXT0_PAGE_TABLE_BASE_ADDR_HI32),
    table1_base=(gc9.VM_CONTEXT1_PAGE_TABLE_BASE_ADDR_LO32, gc9.VM_CONTEXT1_PAGE_TABLE_BASE_ADDR_HI32),
    table_start=(gc9.VM_CONTEXT0_PAGE_TABLE_START_ADDR_LO32, gc9.VM_CONTEXT0_PAGE_TABLE_START_ADDR_HI32),
    table_end=(gc9.VM_CONTEXT0_PAGE_TABLE_END_ADDR_LO32, gc9.VM_CONTEXT0_PAGE_TABLE_END_ADDR_HI32),
    engine_range=(gc9.VM_INVALIDATE_ENG0_ADDR_RANGE_LO32, gc9.VM_INVALIDATE_ENG0_ADDR_RANGE_HI32),
    engine1_range=(gc9.VM_INVALIDATE_ENG1_ADDR_RANGE_LO32, gc9.VM_INVALIDATE_ENG1_ADDR_RANGE_HI32),
    invalidate_sem=gc9.VM_INVALIDATE_ENG17_SEM,
    invalidate_req=gc9.VM_INVALIDATE_ENG17_REQ,
    invalidate_ack=gc9.VM_INVALIDATE_ENG17_ACK,
    fault_cntl=gc9.VM_L2_PROTECTION_FAULT_CNTL,
    fault_cntl2=gc9.VM_L2_PROTECTION_FAULT_CNTL2,
    fault_status=gc9.VM_L2_PROTECTION_FAULT_STATUS,
    fault_address=(gc9.VM_L2_PROTECTION_FAULT_ADDR_LO32, gc9.VM_L2_PROTECTION_FAULT_ADDR_HI32),
    fault_default=(gc9.VM_L2_PROTECTION_FAULT_DEFAULT_ADDR_LO32, gc9.VM_L2_PROTECTION_FAULT_DEFAULT_ADDR_HI32),
)

# from these versions on, the fault status has 64 bits; the fields that are decoded are in its low half
MMHUB_STATUS_LO32_SINCE: Version = (4, 1, 0)
GFXHUB_STATUS_LO32_SINCE: Version = (12, 0, 0)


@dataclass(frozen=True, slots=True)
class HubRow:
    """How the hubs of one generation are set. `tlb`, `cache`, `cache3`: fields of the L1's control, of L2_CNTL and
    L2_CNTL3.

    `semaphore`: whether the driver must hold the semaphore of its engine during an invalidation on MMHUB; otherwise
    power gating may lose the acknowledgement. `further`: directories are one level less deep, and entries of the last
    one that point to a table say so (translate further); see `pte.GFX9`. `snooped_writes`: whether the copy engines'
    writes must be made to probe caches.
    """

    tlb: Mapping[str, int]
    cache: Mapping[str, int]
    cache3: Mapping[str, int]
    semaphore: bool = True
    further: bool = False
    snooped_writes: bool = False


ROW = HubRow(
    tlb={"eco_bits": 0},
    cache={"enable_l2_fragment_processing": 0, "enable_default_page_out_to_system_memory": 1},
    cache3={"bank_select": 9, "l2_cache_bigk_fragment_size": 6},
)
ROW_V9 = HubRow(
    tlb={"atc_en": 1},
    cache={"enable_l2_fragment_processing": 1},
    cache3={"bank_select": 12, "l2_cache_bigk_fragment_size": 9},
    semaphore=False,
    further=True,
    snooped_writes=True,
)


def mmhub_words(version: Version) -> HubWords:
    """Return the registers of MMHUB; `version` is MMHUB's."""
    if version[0] == 1:
        return MMHUB_V1_WORDS
    if version < MMHUB_STATUS_LO32_SINCE:
        return MMHUB_WORDS
    return MMHUB_WORDS._replace(fault_status=mm.MMVM_L2_PROTECTION_FAULT_STATUS_LO32)


def gfxhub_words(version: Version) -> HubWords:
    """Return the registers of the graphics core's hub; `version` is the graphics core's."""
    if version[0] == 9:
        return GFXHUB_V9_WORDS
    if version < GFXHUB_STATUS_LO32_SINCE:
        return GFXHUB_WORDS
    return GFXHUB_WORDS._replace(fault_status=gc.GCVM_L2_PROTECTION_FAULT_STATUS_LO32)


def hub_row(words: HubWords) -> HubRow:
    """Return how hubs with these registers are set."""
    return ROW_V9 if words in (MMHUB_V1_WORDS, GFXHUB_V9_WORDS) else ROW
