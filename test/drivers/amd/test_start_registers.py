"""What a start leaves in registers, and in which order, against amdgpu's sequence: what a card needs and no model would miss."""

from __future__ import annotations

import pytest

import ringup
from ringup.silicon import card as virtual

VRAM = 512 << 20
MEC1 = 1


def connect(radeon, **options):
    return ringup.open(radeon.name, transport={"card": radeon}, **options)


@pytest.fixture
def radeon():
    return virtual("navi31", vram_bytes=VRAM)


def test_every_pipe_of_the_micro_engine_starts_where_its_image_says(radeon):
    # gc_11_0_0_mec.bin of linux-firmware: ucode_start_addr_lo 0x3000, ucode_start_addr_hi 0x70000;
    # gfx_v11_0_config_gfx_rs64 writes lo >> 2 | hi << 30 and hi >> 2
    with connect(radeon):
        cells = radeon.gc.grbm.cells
        for pipe in range(4):
            assert cells.of((MEC1, pipe), "CP_MEC_RS64_PRGRM_CNTR_START") == 0xC00
            assert cells.of((MEC1, pipe), "CP_MEC_RS64_PRGRM_CNTR_START_HI") == 0x1_C000
