"""The memory hubs: VRAM without tables, page tables, what a flush drops, faults with their address and client."""

from __future__ import annotations

import pytest

from ringup.autogen.amd.mmhub import MMVM_L2_PROTECTION_FAULT_STATUS
from ringup.drivers.amd import gmc_faults
from ringup.errors import DeviceTimeout


def test_hubs_start_in_turn_and_vram_is_where_firmware_put_it(hands):
    card = hands()
    assert card.gmc.fb_base == 0x80_0000_0000  # Linux on a navi31: "VRAM: 24560M 0x0000008000000000"
    card.gmc.start_mmhub()
    assert card.gmc.hubs == ("mmhub",)
    card.vram(0x5000, 4)[:] = b"here"
    assert card.radeon.mmhub.read(0, card.gmc.fb_base + 0x5000, 4, "test") == b"here"
