"""A whole card in a slot: what a host sees first, time, resets, faults, and DMA that the bus forbids."""

from __future__ import annotations

import mmap
import struct

import pytest

from ringup.drivers.transport.seam import Device
from ringup.errors import CardBusy, GuestError, NoSuchCard, NotSupported
from ringup.silicon import card, cards, fixtures, transport
from ringup.silicon.amd.board.chips import CHIPS

MEMSIZE = 0xDE3 * 4
SCRATCH_0 = 0x4C * 4
# regMMMC_VM_FB_LOCATION_BASE and regGCMC_VM_FB_LOCATION_BASE in each chip's headers, relative to 0x1a000 and 0x1260.
FB_LOCATIONS = {
    "navi31": (0x1A8EC * 4, 0x28D8 * 4),  # mmhub_3_0_0, gc_11_0_0
    "navi32": (0x1A8EC * 4, 0x28E8 * 4),  # gc_11_0_3
    "navi33": (0x1A86C * 4, 0x28D8 * 4),  # mmhub_3_0_2
    "navi44": (0x1A554 * 4, 0x2874 * 4),  # mmhub_4_1_0, gc_12_0_0
    "navi48": (0x1A554 * 4, 0x2874 * 4),
}
ONES = 0xFFFF_FFFF


@pytest.mark.parametrize(
    # From pci.ids. The RX 7600 has eight lanes on its slot. The RX 9000 have links of 32 GT/s.
    ("name", "gpu", "revision", "companions", "lanes", "generation"),
    [
        ("navi31", 0x744C_1002, 0xC8, {"audio": 0xAB30_1002, "usb": 0x7446_1002, "ucsi": 0x7444_1002}, 16, 4),
        ("navi32", 0x747E_1002, 0xC8, {"audio": 0xAB30_1002}, 16, 4),
        ("navi33", 0x7480_1002, 0xCF, {"audio": 0xAB30_1002}, 8, 4),
        ("navi44", 0x7590_1002, 0xC0, {"audio": 0xAB40_1002}, 16, 5),
        ("navi48", 0x7550_1002, 0xC0, {"audio": 0xAB40_1002}, 16, 5),
    ],
)
def test_a_host_finds_the_board(name, gpu, revision, companions, lanes, generation):
    radeon = card(name, vram_bytes=64 << 20)
    ids = {name: radeon.tree.read(*place, 0) for name, place in radeon.places.items()}
    assert ids == {"upstream": 0x1478_1002, "downstream": 0x1479_1002, "gpu": gpu, **companions}
    assert radeon.config.read(8, 1) == revision
    # Link status.
    status = radeon.tree.read(*radeon.places["upstream"], 0x58 + 0x12, 2)
    assert (status >> 4 & 0x3F, status & 0xF) == (lanes, generation)
    # There are several functions.
    assert radeon.tree.read(*radeon.places["gpu"], 0xE, 1) & 0x80


def test_bars_are_as_large_as_config_space_says(radeon):
    assert {index: bar.size_bytes for index, bar in radeon.bars.items()} == {0: 256 << 20, 2: 2 << 20, 5: 1 << 20}
    radeon.config.write(4, 0, 2)
    # 2^n MiB, so that all of VRAM fits.
    largest = {"navi31": 15, "navi32": 14, "navi33": 13, "navi44": 14, "navi48": 14}[radeon.chip.name]
    assert radeon.config.read(0x204) >> 4 == sum(1 << n for n in range(8, largest + 1))
    radeon.config.write(0x208, largest << 8)
    assert radeon.bars[0].size_bytes == 1 << largest + 20


def test_the_discovery_binary_lies_below_the_top_of_vram(radeon):
    assert radeon.bars[0].read32((64 << 20) - (64 << 10)) == 0x28211407
    assert [radeon.bars[5].read32(place) for place in FB_LOCATIONS[radeon.chip.name]] == [0x8000, 0x8000]


def test_the_rom_is_read_through_its_bar_and_through_smuio(radeon):
    assert radeon.rom.read32(0) == ONES  # not enabled
    radeon.violations.clear()
    radeon.config.write(0x30, radeon.config.read(0x30) | 1)
    image = radeon.rom.read_block(0, 64 << 10)
    assert image[:2] == b"\x55\xaa"
    regs = radeon.bars[5]
    regs.write32(0x5A390, 0)
    read = b"".join(struct.pack("<I", regs.read32(0x5A394)) for _ in range(64))
    assert read == image[:256]
    assert radeon.rom.read32(64 << 10) == ONES


def test_accesses_cost_time_and_let_the_card_work(radeon):
    done = []
    start = radeon.clock.now_ns
    radeon.clock.after(2.5, lambda: done.append(radeon.clock.now_ns))
    for _ in range(3):
        radeon.bars[5].read32(MEMSIZE)
    assert radeon.clock.now_ns - start == 3_000
    assert done == [start + 2_500]


@pytest.mark.parametrize("offset", [-4, 2, 1 << 20])
def test_an_access_outside_a_bar_is_the_callers_mistake(radeon, offset):
    with pytest.raises(ValueError, match="BAR 5 has no 4 bytes"):
        radeon.bars[5].read32(offset)


def test_registers_take_quadwords_and_give_bytes(radeon):
    regs = radeon.bars[5]
    regs.write64(SCRATCH_0, 0x1122334455667788)
    assert regs.read32(SCRATCH_0 + 4) == 0x11223344
    assert regs.read(SCRATCH_0 + 1, 1) == 0x77
    with pytest.raises(GuestError, match="dwords"):
        regs.write(SCRATCH_0, 1, 1)


def test_memory_decoding_off_answers_with_ones_and_is_logged(radeon):
    radeon.config.write(4, 0, 2)
    assert radeon.bars[5].read32(MEMSIZE) == ONES
    # AER: unsupported request.
    assert radeon.config.read(0x154) & 0x0010_0000
    assert len(radeon.violations) == 1


def test_a_sleeping_function_answers_with_ones(radeon):
    radeon.config.write(0x54, 3, 2)
    assert radeon.bars[0].read32(0) == ONES
    radeon.config.write(0x54, 0, 2)
    assert radeon.bars[5].read32(MEMSIZE) == 64


def test_dma_without_bus_mastering_never_leaves_the_card(radeon):
    buffer = radeon.alloc_host(4096)
    radeon.host.write(buffer.bus_addr(), b"secret")
    assert bytes(buffer.view[:6]) == bytes(6)
    assert "bus mastering is off" in radeon.violations[0].text
    # BIF_BME_STATUS.DMA_ON_BME_LOW
    assert radeon.bars[5].read32(0xE0B * 4) & 1
    radeon.config.write(4, 6, 2)
    radeon.host.write(buffer.bus_addr(), b"secret")
    assert bytes(buffer.view[:6]) == b"secret"


def test_dma_to_memory_that_was_freed_is_a_mistake(radeon):
    radeon.config.write(4, 6, 2)
    buffer = radeon.alloc_host(4096)
    address = buffer.bus_addr()
    buffer.free()
    assert radeon.host.read(address, 2) == b"\xff\xff"
    assert f"{address:#x}, where no memory is" in radeon.violations[0].text


def test_an_interrupt_of_a_block_arrives_as_an_msi(radeon):
    radeon.config.write(4, 6, 2)
    radeon.config.write(0xA2, 1, 2)
    ring = radeon.alloc_host(4096)
    regs, names = radeon.bars[5], radeon.ih.cells
    regs.write32(names.address("IH_RB_BASE"), ring.bus_addr() >> 8 & ONES)
    regs.write32(names.address("IH_RB_BASE_HI"), ring.bus_addr() >> 40)
    control = names.replace("IH_RB_CNTL", 0, RB_ENABLE=1, RB_SIZE=10, ENABLE_INTR=1, MC_SPACE=2)
    regs.write32(names.address("IH_RB_CNTL"), control)
    radeon.ih.interrupt(0x14, 181, data=(0xABCD,))
    assert radeon.interrupts.wait(100) == (0,)
    entry = struct.unpack_from("<8I", ring.view)
    assert (entry[0] & 0xFFFF, entry[4]) == (0x14 | 181 << 8, 0xABCD)
    assert radeon.violations == []


def test_waiting_for_an_interrupt_that_never_comes_takes_virtual_time(radeon):
    before = radeon.clock.now_us
    assert radeon.interrupts.wait(1_000_000) == ()
    assert radeon.clock.now_us - before == 1_000_000


def test_mode_1_forgets_the_chip_and_keeps_config_space_and_scratch(radeon):
    regs = radeon.bars[5]
    regs.write32(SCRATCH_0, 5)
    regs.write32(0xDE0 * 4, 1)
    radeon.vram.write(0, b"work")
    radeon.mode1_reset()
    # Memory decoding is still on.
    assert regs.read32(MEMSIZE) == 64
    assert regs.read32(SCRATCH_0) == 5
    assert regs.read32(0x53 * 4) & 0x200
    assert regs.read32(0xDE0 * 4) == 0
    assert radeon.vram.read(0, 4) == bytes(4)
    assert radeon.bars[0].read32((64 << 20) - (64 << 10)) == 0x28211407


def test_what_was_under_way_does_not_survive_a_reset(radeon):
    late = []
    radeon.clock.after(10, lambda: late.append(1))
    radeon.mode1_reset()
    radeon.clock.sleep_us(100)
    assert late == []


def test_a_hot_reset_returns_the_card_as_it_was_found(radeon):
    radeon.bars[5].write32(SCRATCH_0, 5)
    radeon.hot_reset()
    assert radeon.bars[5].read32(SCRATCH_0) == 0
    assert radeon.bars[5].read32(MEMSIZE) == 64
    assert not radeon.gpu.masters_bus


def test_a_card_without_link_is_lost_until_it_is_plugged_in_again(radeon):
    radeon.unplug()
    assert radeon.lost
    assert radeon.bars[5].read32(MEMSIZE) == ONES
    assert radeon.config.read(0) == ONES
    radeon.bars[5].write32(SCRATCH_0, 5)
    radeon.replug()
    assert not radeon.lost
    assert radeon.bars[5].read32(SCRATCH_0) == 0
    assert radeon.violations == []


def test_a_card_falls_off_the_bus_after_so_many_reads(radeon):
    radeon.faults.inject("all_ones_after_reads", 3)
    seen = [radeon.bars[5].read32(MEMSIZE) for _ in range(5)]
    assert seen == [64, 64, 64, ONES, ONES]
    assert radeon.lost
    radeon.faults.clear()
    assert radeon.bars[5].read32(MEMSIZE) == 64


def test_a_link_drops_in_the_middle_of_a_copy(radeon):
    radeon.faults.inject("link_drop_after_bytes", 10_000)
    for place in range(0, 16_384, 4096):
        radeon.bars[0].write_block(place, b"x" * 4096)
    assert radeon.lost
    assert not radeon.tree.link_up


def test_a_register_that_is_only_storage_is_noted_once(radeon):
    # The model has no athub.
    address = radeon.board.space
    place = next(at for at in range(0x3000, 0x3228, 4) if address.owner(at) and address.owner(at).block == "athub")
    for _ in range(3):
        radeon.bars[5].write32(place, 1)
    radeon.settle()
    assert len(radeon.log.find("unmodelled", "athub")) == 1


def test_accesses_are_logged_by_name_when_asked(radeon):
    radeon.log.accesses = True
    radeon.bars[5].write32(SCRATCH_0, 0x12)
    radeon.settle()
    bus = radeon.chip.bus.block
    assert [event.text for event in radeon.log.find("write", bus)] == [f"{bus}.BIF_BX0_BIOS_SCRATCH_0 = 0x00000012"]


@pytest.mark.parametrize(
    ("option", "match"), [({"vram_bytes": 100}, "16 MiB"), ({"bar0_bytes": 3 << 20}, "BAR 0 is 256 MiB")]
)
def test_a_card_that_cannot_be_is_refused(option, match):
    with pytest.raises(ValueError, match=match):
        card("navi31", **option)


def test_a_queue_is_loaded_by_writing_all_its_dwords(radeon):
    # amdgpu_amdkfd_gfx_v11.c, hqd_load_v11: regCP_MQD_BASE_ADDR to regCP_HQD_PQ_WPTR_HI. 0x3219 has no name.
    for dword in range(0x3209, 0x3241):
        radeon.bars[5].write32(dword * 4, 0)
    assert radeon.bars[5].read32(0x3219 * 4) == 0


def test_the_dump_of_a_hung_sdma_engine_1_may_ask_where_no_register_is(radeon):
    # sdma_v6_0.c, sdma_reg_list_6_0: GRBM_STATUS2 at the distance of engine 1.
    assert radeon.bars[5].read32(0x2602 * 4) == 0


# AMD's data sheets: CUs, ROPs (eight for each backend), memory channels of 16 bits, L2.
SHAPES = {
    "navi31": (6, 4, 2, 96, 192, 24, 6144, 1536),
    "navi32": (3, 5, 2, 60, 96, 16, 4096, 1536),
    "navi33": (2, 4, 2, 32, 64, 8, 2048, 1024),
    "navi44": (2, 4, 2, 32, 64, 8, 4096, 1536),
    "navi48": (4, 4, 2, 64, 128, 16, 8192, 1536),
}
# Pipes and queues of the compute engine: sw_init of gfx_v11_0.c and gfx_v12_0.c in amdgpu.
QUEUES = {11: (4, 8), 12: (2, 4)}


def test_the_discovery_table_in_vram_and_the_graphics_core_tell_the_chips_shape(radeon):
    # DISCOVERY_TMR_OFFSET of amdgpu_discovery.h
    binary = (64 << 20) - (64 << 10)
    # The second entry of the table list.
    table = binary + (radeon.bars[0].read32(binary + 20) & 0xFFFF)
    # gc_info_v1_2, behind its header.
    gc = [radeon.bars[0].read32(table + 12 + 4 * n) for n in range(35)]
    assert radeon.bars[0].read32(table) & 0xFFFF == 0x4347
    engines, wgps, backends, channels, registers, arrays, l2_kib = gc[0], gc[1], gc[3], gc[4], gc[5], gc[16], gc[29]
    cus, rops = engines * arrays * wgps * 2, engines * backends * 8
    assert (engines, wgps, arrays, cus, rops, channels, l2_kib, registers) == SHAPES[radeon.chip.name]
    row = radeon.gc.grbm.row
    assert (row.shader_engines, row.wgps_per_array, row.arrays_per_engine) == (engines, wgps, arrays)
    assert (row.mec_pipes, row.queues_per_pipe) == QUEUES[row.version[0]]


def test_a_driver_with_one_header_for_a_generation_may_dump_what_a_chip_lacks(radeon):
    # regGRBM_STATUS_SE3 to 5 and regCP_MES_DEBUG_INTERRUPT_INSTR_PNTR, from gc_11_0_0_offset.h. gfx_v11_0.c dumps these
    # on every chip, and gfx_v12_0.c the first three.
    dwords = (0x1260 + 0x0DAF, 0x1260 + 0x0DB0, 0x1260 + 0x0DB1, 0xA000 + 0x2842)
    values = [radeon.bars[5].read32(dword * 4) for dword in dwords]
    assert values[3] == 0
    # Only chips with more than three engines have the registers.
    assert any(values[:3]) == (radeon.chip.name in ("navi31", "navi48"))
    assert radeon.violations == []


def test_an_unknown_card_is_refused_with_the_known_ones():
    with pytest.raises(NoSuchCard, match=f"there are: {', '.join(cards())}"):
        card("navi99")


def test_the_transport_lists_every_card_as_one_that_can_be_opened():
    bridges = ("", "@asm2464pd", "@asm2464pd-patched", "@asm2464pd-stock")
    names = {f"virtual:{name}{bridge}" for name in CHIPS for bridge in bridges} | {"virtual:mi300x"}
    names |= {"virtual:tu102", "virtual:ga100", "virtual:ga102", "virtual:ad102", "virtual:gh100", "virtual:gb202"}
    names |= {f"virtual:{name}@nvidia" for name in ("tu102", "ga100", "ga102", "ad102", "gh100")}
    assert {(found.name, found.skipped) for found in transport.find()} == {(name, "") for name in names}


def test_opening_a_name_makes_a_new_card_unless_one_is_given():
    small = {"vram_bytes": 64 << 20}
    one, other = transport.open("navi31", **small), transport.open("navi31", **small)
    one.bars[0].write32(0, 0x55)
    assert other.bars[0].read32(0) == 0
    with pytest.raises(CardBusy, match="held by process"):
        transport.open("navi31", card=one)
    one.close()
    assert transport.open("navi31", card=one) is one
    assert isinstance(one, Device)
    assert one.name == "virtual:navi31"
    with pytest.raises(ValueError, match="vram_bytes"):
        transport.open("navi31", card=one, **small)
    with pytest.raises(NoSuchCard):
        transport.open("navi99@asm2464pd")
    with pytest.raises(NoSuchCard, match="does not fit into an enclosure's slot"):
        transport.open("mi300x@asm2464pd")
    with pytest.raises(NoSuchCard, match="no virtual bridge 'asm1'"):
        transport.open("navi31@asm1")


def test_a_batch_tells_what_it_read_when_it_has_ended(radeon):
    with radeon.bars[5].batch() as batch:
        batch.write64(SCRATCH_0, 0x11_0000_0022)
        batch.write32(SCRATCH_0, 0x33)
        replies = [batch.read32(SCRATCH_0), batch.read32(SCRATCH_0 + 4)]
        with pytest.raises(ValueError, match="when its batch has ended"):
            assert replies[0].value
    assert [reply.value for reply in replies] == [0x33, 0x11]
    with pytest.raises(ValueError, match="has ended"):
        batch.write32(SCRATCH_0, 1)


def test_memory_of_the_callers_is_reached_where_it_was_pinned(radeon):
    radeon.config.write(4, 6, 2)
    memory = memoryview(mmap.mmap(-1, 3 * 4096))
    buffer = radeon.pin(memory[4096:])
    assert list(buffer.runs()) == [(buffer.bus_addr(), 8192)]
    radeon.host.write(buffer.bus_addr(4096), b"from the card")
    assert bytes(memory[8192:8205]) == b"from the card"
    buffer.free()
    buffer.free()
    radeon.host.write(buffer.bus_addr(4096), b"too late")
    assert bytes(memory[8192:8205]) == b"from the card"
    assert "where no memory is" in radeon.violations[0].text


@pytest.mark.parametrize("piece", [slice(1, 4097), slice(0, 100), slice(0, 0)])
def test_only_whole_pages_are_pinned(radeon, piece):
    with pytest.raises(ValueError, match="pinned"):
        radeon.pin(memoryview(mmap.mmap(-1, 3 * 4096))[piece])


def test_a_reset_from_the_slot_keeps_configuration_space_and_nothing_else(radeon):
    regs = radeon.bars[5]
    radeon.config.write(4, 0, 2)
    radeon.config.write(0x208, 10 << 8)  # BAR 0 to 1 GiB
    radeon.config.write(4, 6, 2)
    # The address that MSIs go to.
    radeon.config.write(0xA4, 0xFEE0_0000)
    radeon.bars[0].write32(0, 0x55)
    regs.write32(SCRATCH_0, 5)
    places = [node.function for node in radeon.tree.nodes()]
    before = [[function.read(at) for at in range(0, 256, 4)] for function in places]
    assert radeon.resets() == ("slot",)
    radeon.reset("slot")
    assert [[function.read(at) for at in range(0, 256, 4)] for function in places] == before
    assert radeon.bars[0].size_bytes == 1 << 30
    assert regs.read32(SCRATCH_0) == 0
    assert regs.read32(MEMSIZE) == 64
    with pytest.raises(ValueError, match="no reset 'function'; it has slot"):
        radeon.reset("function")


def test_closing_a_card_takes_its_dma_away(radeon):
    radeon.config.write(4, 6, 2)
    radeon.close()
    radeon.close()
    assert radeon.config.read(4, 2) & 7 == 2
    assert not radeon.host.reachable


def test_registers_cannot_be_mapped(radeon):
    with pytest.raises(NotSupported, match="BAR 5"):
        radeon.bars[5].map()


def test_the_fixture_fails_a_test_whose_card_saw_a_mistake(radeon):
    fixtures.check([radeon])
    radeon.bars[2].write64(0, 1)
    with pytest.raises(pytest.fail.Exception, match="RCC_DOORBELL_APER_EN"):
        fixtures.check([radeon])


def test_a_soft_reset_by_grbm_reaches_the_copy_engine_it_names(radeon):
    cells = radeon.gc.grbm.cells
    for number in range(2):
        cells[f"SDMA{number}_FREEZE"] = 1 << 4
    address = cells.address("GRBM_SOFT_RESET")
    # SOFT_RESET_SDMA1: gc_11_0_0_sh_mask.h
    radeon.bars[5].write32(address, 1 << 24)
    radeon.settle()
    assert [cells[f"SDMA{number}_FREEZE"] for number in range(2)] == [1 << 4, 0]
