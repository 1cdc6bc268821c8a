"""The registers of the VM hubs. MMHUB and the graphics core's hub are one design, with two prefixes of names.

Source: amdgpu mmhub_v3_0.c, gfxhub_v3_0.c, gfxhub_v12_0.c.
"""

from __future__ import annotations

from typing import NamedTuple

from ringup.autogen.amd import gc_vm as gc
from ringup.autogen.amd import mmhub as mm
from ringup.autogen.layout import Word
from ringup.drivers.amd.bus.registers import Version

Pair = tuple[type[Word], type[Word]]  # low half, high half
FaultStatus = (
    mm.MMVM_L2_PROTECTION_FAULT_STATUS
    | mm.MMVM_L2_PROTECTION_FAULT_STATUS_LO32
    | gc.GCVM_L2_PROTECTION_FAULT_STATUS
    | gc.GCVM_L2_PROTECTION_FAULT_STATUS_LO32
)


class HubWords(NamedTuple):
    """The registers of a hub. Of the registers that repeat, only those of context 0 and engine 0 are listed. Those of
    context 1 and engine 1 give the distance to the next one.
    """

    fb_location: type[mm.MMMC_VM_FB_LOCATION_BASE | gc.GCMC_VM_FB_LOCATION_BASE]
    fb_location_top: type[Word]
    fb_offset: type[mm.MMMC_VM_FB_OFFSET | gc.GCMC_VM_FB_OFFSET]
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
    l2_cntl5: type[Word]
    identity_low: Pair
    identity_high: Pair
    identity_offset: Pair
    context_cntl: type[mm.MMVM_CONTEXT0_CNTL | gc.GCVM_CONTEXT0_CNTL]
    context1_cntl: type[Word]
    table_base: Pair
    table1_base: Pair
    table_start: Pair
    table_end: Pair
    engine_range: Pair
    engine1_range: Pair
    invalidate_sem: type[mm.MMVM_INVALIDATE_ENG17_SEM | gc.GCVM_INVALIDATE_ENG17_SEM]
    invalidate_req: type[Word]
    invalidate_ack: type[mm.MMVM_INVALIDATE_ENG17_ACK | gc.GCVM_INVALIDATE_ENG17_ACK]
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

# from these versions on, the fault status has 64 bits; the fields that are decoded are in its low half
MMHUB_STATUS_LO32_SINCE: Version = (4, 1, 0)
GFXHUB_STATUS_LO32_SINCE: Version = (12, 0, 0)


def mmhub_words(version: Version) -> HubWords:
    """Return the registers of MMHUB; `version` is MMHUB's."""
    if version < MMHUB_STATUS_LO32_SINCE:
        return MMHUB_WORDS
    return MMHUB_WORDS._replace(fault_status=mm.MMVM_L2_PROTECTION_FAULT_STATUS_LO32)


def gfxhub_words(version: Version) -> HubWords:
    """Return the registers of the graphics core's hub; `version` is the graphics core's."""
    if version < GFXHUB_STATUS_LO32_SINCE:
        return GFXHUB_WORDS
    return GFXHUB_WORDS._replace(fault_status=gc.GCVM_L2_PROTECTION_FAULT_STATUS_LO32)
