"""The bus interface: sizes, indirect windows, HDP flushes and doorbell routing. Dword offsets are those that amdgpu
uses on NBIO 4.3.
"""

from __future__ import annotations

import pytest

from ringup.errors import GuestError, Unmodelled

MM_INDEX, MM_DATA, MM_INDEX_HI = 0x0, 0x4, 0x18
RSMU_INDEX, RSMU_DATA = 0x14 * 4, 0x15 * 4
MEMSIZE, IOV = 0xDE3 * 4, 0xDE5 * 4
SCRATCH_7 = 0x53 * 4
APER_EN = 0xDE0 * 4
# regS2A_DOORBELL_ENTRY_0_CTRL of nbio_4_3_0_offset.h, regGDC_S2A0_S2A_DOORBELL_ENTRY_0_CTRL of nbif_6_3_1_offset.h.
S2A = {"nbio": 0x141E900, "nbif": 0xEEB * 4}
# RCC_STRAP0_RCC_DEV0_EPF0_STRAP0 in the same headers.
STRAPS = {"nbio": 0xD36 * 4, "nbif": 0xD3C * 4}
FLUSH_REQ, FLUSH_DONE = 0xE26 * 4, 0xE27 * 4
REMAP_MEM = 0xE4D * 4
MEM_FLUSH = 0x385C


class Listener:
    """An engine whose queues listen to some doorbells."""

    def __init__(self, *indices):
        self.indices, self.rung = indices, []

    def doorbell(self, index, value, size_bytes):
        if index not in self.indices:
            return False
        self.rung.append((index, value, size_bytes))
        return True


DEVICE_IDS = {"navi31": 0x744C, "navi32": 0x747E, "navi33": 0x7480, "navi44": 0x7590, "navi48": 0x7550}  # pci.ids


@pytest.fixture
def s2a(radeon):
    return S2A[radeon.chip.bus.block]


@pytest.fixture
def regs(radeon):
    return radeon.bars[5]


def smn_write(regs, address, value):
    regs.write32(RSMU_INDEX, address)
    regs.write32(RSMU_DATA, value)


def smn_read(regs, address):
    regs.write32(RSMU_INDEX, address)
    return regs.read32(RSMU_DATA)


def test_the_card_tells_its_memory_and_that_it_is_no_virtual_function(radeon, regs):
    assert regs.read32(MEMSIZE) == 64
    regs.write32(MEMSIZE, 1)
    assert regs.read32(MEMSIZE) == 64
    assert regs.read32(IOV) == 0
    assert regs.read32(STRAPS[radeon.chip.bus.block]) & 0xFFFF == DEVICE_IDS[radeon.chip.name]


def test_the_card_has_been_posted(regs):
    assert regs.read32(SCRATCH_7) & 0x200
    # Before amdgpu has read the VBIOS, it reads register 7 in place of that one.
    assert regs.read32(7 * 4) == 0


def test_mm_index_reaches_registers_and_all_of_vram(radeon, regs):
    radeon.vram.write((64 << 20) - 4, b"\x44\x33\x22\x11")
    regs.write32(MM_INDEX_HI, 0)
    regs.write32(MM_INDEX, 1 << 31 | (64 << 20) - 4)
    assert regs.read32(MM_DATA) == 0x11223344
    regs.write32(MM_DATA, 5)
    radeon.settle()
    assert radeon.vram.read((64 << 20) - 4, 4) == b"\5\0\0\0"
    regs.write32(MM_INDEX, SCRATCH_7 - 4)
    regs.write32(MM_DATA, 7)
    assert regs.read32(0x52 * 4) == 7


def test_mm_index_hi_counts_2_gib(radeon, regs):
    regs.write32(MM_INDEX_HI, 1)
    regs.write32(MM_INDEX, 1 << 31)
    assert regs.read32(MM_DATA) == 0xFFFF_FFFF
    assert "vram_pa 0x80000000" in radeon.violations[0].text


def test_registers_beyond_the_bar_are_reached_through_rsmu(regs, s2a):
    smn_write(regs, s2a, 0x30000007)
    assert smn_read(regs, s2a) == 0x30000007
    assert smn_read(regs, MEMSIZE) == 64


def test_a_window_onto_itself_is_refused(regs):
    regs.write32(RSMU_INDEX, RSMU_DATA)
    with pytest.raises(GuestError, match="RSMU_DATA was used"):
        regs.read32(RSMU_DATA)


def test_a_register_that_no_header_names_is_refused(regs):
    with pytest.raises(GuestError, match="0x2c"):
        regs.read32(0x2C)


def test_config_space_is_seen_as_registers(radeon, regs):
    assert smn_read(regs, 0x10140000) == DEVICE_IDS[radeon.chip.name] << 16 | 0x1002
    # regBIF_CFG_DEV0_EPF0_PCIE_LTR_CAP, as in nbio_v4_3_program_aspm.
    smn_write(regs, 0x10140324, 0x1001_1001)
    assert radeon.config.read(0x324) == 0x1001_1001
    assert smn_read(regs, 0x10141000) >> 16 == (0xAB30 if radeon.chip.bus.block == "nbio" else 0xAB40)
    # nbif_6_3_1_offset.h does not name the ports of the switch.
    if radeon.chip.bus.block == "nbio":
        assert smn_read(regs, 0x10100018) == radeon.tree.read(2, 0, 0, 0x18)


# --- the host data path ---------------------------------------------------------------------------------------------


def test_engines_do_not_see_a_write_through_bar_0_before_a_flush(radeon, regs):
    radeon.bars[0].write32(0x1000, 0xCAFE)
    assert radeon.bars[0].read32(0x1000) == 0xCAFE
    assert radeon.vram.read(0x1000, 4) == bytes(4)
    regs.write32(MEM_FLUSH, 0)
    radeon.settle()
    assert radeon.vram.read(0x1000, 4) == b"\xfe\xca\0\0"


def test_a_write_without_a_flush_is_late_and_not_lost(radeon):
    radeon.bars[0].write32(0x1000, 1)
    radeon.clock.sleep_us(5)
    assert radeon.vram.read(0x1000, 1) == b"\0"
    radeon.clock.sleep_us(10)
    assert radeon.vram.read(0x1000, 1) == b"\1"


def test_a_missing_flush_can_be_made_to_show_for_ever(radeon):
    radeon.hdp.drain_us = None
    radeon.bars[0].write32(0x1000, 1)
    radeon.clock.sleep_us(1_000_000)
    assert radeon.vram.read(0x1000, 1) == b"\0"


def test_what_waits_does_not_cover_what_engines_wrote_beside_it(radeon, regs):
    radeon.bars[0].write32(0x1000, 1)
    radeon.settle()
    radeon.vram.write(0x1004, b"\2\0\0\0")
    assert radeon.bars[0].read64(0x1000) == 0x2_0000_0001
    regs.write32(MEM_FLUSH, 0)
    radeon.settle()
    assert radeon.vram.read(0x1000, 8) == b"\1\0\0\0\2\0\0\0"


def test_a_long_write_leaves_the_buffer_but_for_its_end(radeon):
    data = bytes(range(1, 256)) * 4096
    radeon.bars[0].write_block(0x10_0003, data)
    radeon.settle()
    assert radeon.vram.read(0x10_0003, 4096) == data[:4096]
    assert radeon.vram.read(0x10_0003 + len(data) - 16, 16) == bytes(16)
    assert radeon.bars[0].read_block(0x10_0003, len(data)) == data
    radeon.hdp.flush()
    assert radeon.vram.read(0x10_0003, len(data)) == data


def test_the_flush_registers_can_be_moved_to_a_page_of_their_own(radeon, regs):
    assert regs.read32(REMAP_MEM) == MEM_FLUSH  # nbio_2_3_default.h
    regs.write32(REMAP_MEM, 0x7F000)
    radeon.bars[0].write32(0, 1)
    regs.write32(0x7F000, 0)
    radeon.settle()
    assert radeon.hdp.holds == 0
    regs.write32(REMAP_MEM, 0x7E000)
    radeon.settle()
    with pytest.raises(GuestError):
        regs.write32(0x7F000, 0)


def test_an_engines_flush_is_done_when_its_bit_says_so(radeon, regs):
    radeon.bars[0].write32(0, 1)
    radeon.settle()
    radeon.board.space.write(FLUSH_REQ, 1 << 10)  # SDMA0
    assert radeon.board.space.read(FLUSH_DONE) == 0
    radeon.clock.sleep_us(1)
    assert regs.read32(FLUSH_DONE) == 1 << 10
    assert radeon.hdp.holds == 0


def test_a_mapping_of_vram_takes_the_buffer_out_of_the_way(radeon):
    radeon.bars[0].write32(0, 7)
    view = radeon.bars[0].map()
    assert view[0] == 7
    radeon.bars[0].write32(4, 8)
    radeon.settle()
    assert view[4] == 8


def test_a_closed_frame_buffer_reads_as_ones(radeon, regs):
    radeon.vram.write(0, b"\1\0\0\0")
    regs.write32(0xE20 * 4, 0)  # BIF_FB_EN
    assert radeon.bars[0].read32(0) == 0xFFFF_FFFF
    regs.write32(0xE20 * 4, 3)
    assert radeon.bars[0].read32(0) == 1


# --- doorbells ------------------------------------------------------------------------------------------------------


@pytest.fixture
def engines(radeon):
    made = {"gc": Listener(0x6, 0x800), "sdma": Listener(0x200, 0x900), "ih": Listener(0x2F0)}
    for name, engine in made.items():
        radeon.nbio.listen(name, engine)
    return made


@pytest.fixture
def opened(regs, s2a):
    """The ranges that nbio_v4_3.c sets on a navi31, and nbif_v6_3_1.c on a navi48."""
    regs.write32(APER_EN, 1)
    smn_write(regs, s2a, 0x30000007)
    smn_write(regs, s2a + 12, 0x3000000D)
    smn_write(regs, s2a + 4, 1 | 0 << 1 | 0x2F0 << 7 | 2 << 17)
    smn_write(regs, s2a + 8, 1 | 0xE << 1 | 0x200 << 7 | 40 << 17 | 3 << 28)


def test_doorbells_reach_the_engine_of_their_range(radeon, engines, opened):
    bell = radeon.bars[2]
    bell.write64(0x6 * 4, 64)
    bell.write64(0x200 * 4, 0x1_0000_0040)
    bell.write32(0x2F0 * 4, 32)
    bell.write64(0x800 * 4, 1)
    # The SDMA queue of a user, outside the kernel's range.
    bell.write64(0x900 * 4, 2)
    radeon.settle()
    assert engines["gc"].rung == [(0x6, 64, 8), (0x800, 1, 8)]
    assert engines["sdma"].rung == [(0x200, 0x1_0000_0040, 8), (0x900, 2, 8)]
    assert engines["ih"].rung == [(0x2F0, 32, 4)]
    assert radeon.violations == []


def test_a_doorbell_to_which_nobody_listens_is_noted(radeon, engines, opened):
    radeon.bars[2].write64(0x202 * 4, 1)
    radeon.settle()
    assert "doorbell 0x202 (0x1) reached sdma" in radeon.violations[0].text


def test_a_process_may_ring_while_its_queue_is_not_mapped(radeon, engines, opened):
    radeon.bars[2].write64(0x1202 * 4, 1)
    radeon.settle()
    assert radeon.violations == []
    assert "doorbell 0x1202 (0x1)" in radeon.log.find("unheard")[0].text


def test_doorbells_are_dropped_while_the_aperture_is_closed(radeon, engines, opened, regs):
    regs.write32(APER_EN, 0)
    radeon.bars[2].write64(0x6 * 4, 64)
    radeon.settle()
    assert engines["gc"].rung == []
    assert "APER_EN" in radeon.violations[0].text


def test_a_doorbell_outside_every_range_is_dropped(radeon, engines, regs, s2a):
    regs.write32(APER_EN, 1)
    smn_write(regs, s2a + 8, 1 | 0xE << 1 | 0x200 << 7 | 40 << 17)
    radeon.bars[2].write64(0x6 * 4, 64)
    radeon.settle()
    assert "no range" in radeon.violations[0].text
    radeon.bars[2].write64(0x200 * 4, 64)
    radeon.settle()
    assert engines["sdma"].rung == [(0x200, 64, 8)]


def test_a_range_of_size_0_is_off(radeon, engines, opened, regs, s2a):
    smn_write(regs, s2a + 4, 1 | 0x2F0 << 7)
    radeon.bars[2].write32(0x2F0 * 4, 32)
    radeon.settle()
    assert engines["ih"].rung == []


def test_a_doorbell_has_32_or_64_bits(radeon, opened):
    with pytest.raises(GuestError, match="4 or 8 bytes"):
        radeon.bars[2].write(0x10, 1, 2)


@pytest.mark.parametrize("dword", [0x90, 0xE4F], ids=["register CAM", "BIF ring"])
def test_what_the_model_lacks_says_so_when_it_is_switched_on(radeon, regs, dword):
    regs.write32(dword * 4, 1)
    with pytest.raises(Unmodelled):
        radeon.settle()


def test_a_window_that_shows_itself_is_refused(radeon, regs):
    regs.write32(MM_INDEX, MM_DATA)
    with pytest.raises(GuestError, match="MM_DATA was used"):
        regs.read32(MM_DATA)
    regs.write32(MM_INDEX, RSMU_DATA)
    regs.write32(RSMU_INDEX, MM_DATA)
    for access in (lambda: regs.read32(MM_DATA), lambda: regs.read32(RSMU_DATA)):
        with pytest.raises(GuestError, match="was used with"):
            access()
    regs.write32(MM_DATA, 0)
    with pytest.raises(GuestError, match="was used with"):
        radeon.settle()


def test_configuration_space_behind_a_window_is_read_by_dwords(radeon, regs):
    place = radeon.nbio.cells.address("BIF_CFG_DEV0_EPF0_VENDOR_ID")
    assert smn_read(regs, place) == DEVICE_IDS[radeon.chip.name] << 16 | 0x1002
    with pytest.raises(GuestError, match="no dword"):
        smn_read(regs, place + 2)
