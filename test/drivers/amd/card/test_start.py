"""Starts of a whole card: cold, warm, dirty, foreign; what a close leaves behind; each stage fails in turn."""

import re

import numpy as np
import pytest

import ringup
from ringup.autogen.amd import atom
from ringup.autogen.amd.gc import SCRATCH_REG5, SCRATCH_REG7
from ringup.autogen.amd.smu_v13_0_0 import PPCLK_GFXCLK, PPCLK_UCLK  # 13.0.7 has the same numbers
from ringup.drivers.amd.psp.processor import Psp
from ringup.errors import DeviceHung, DeviceLost, DeviceTimeout, FirmwareError, RingupError
from ringup.firmware.amd import vbios
from ringup.silicon import card as virtual

CHIPS = ("navi31", "navi32", "navi33", "navi44", "navi48", "mi300x")
VRAM = 512 << 20
COLD_STAGES = [
    "waking the bus", "reading what the card is", "looking who was here", "opening bus and doorbells", "booting the secure OS",
    "loading firmware", "taking up the power controller", "making address spaces", "starting the graphics core",
    "letting interrupts come", "starting the copy engines", "testing the queues",
]  # fmt: skip
WARM_STAGES = [name for name in COLD_STAGES if name not in ("booting the secure OS", "loading firmware")]


def connect(radeon, **options):
    return ringup.open(radeon.name, transport={"card": radeon}, **options)


def works(card, size=20_000):
    """Tell whether bytes go in, are copied by the compute queue's command processor, and come back."""
    data = np.random.default_rng(size).bytes(size)
    with card.alloc(size) as source, card.alloc(size) as target:
        done = card.copy.upload(source, data)
        stream = card.compute.stream()
        stream.append(stream.pm4.copy_memory(target.gpu_va, source.gpu_va, size))
        stream.wait_for(done)
        card.copy.wait_for(card.compute.submit(stream))
        return card.copy.download(target) == data


def mapped(radeon):
    """The compute queues that the model's command processor has mapped."""
    return [slot for slot, queue in radeon.gc.cp.queues.items() if queue.hqd.active]


@pytest.fixture
def radeon(request):
    return virtual(getattr(request, "param", "navi31"), vram_bytes=VRAM)


GENERATIONS = ("navi31", "navi44", "navi48", "mi300x")
of_each_generation = pytest.mark.parametrize("radeon", GENERATIONS, indirect=True)


@pytest.mark.parametrize("bar0_bytes", [256 << 20, 1 << 30])
@pytest.mark.parametrize("chip", CHIPS)
def test_a_cold_card_comes_up_and_works(virtual_card, chip, bar0_bytes):
    radeon = virtual_card(chip, vram_bytes=VRAM, bar0_bytes=bar0_bytes)
    with connect(radeon) as card:
        assert card.info.found == "cold"
        assert card.info.chip == chip
        assert card.info.window_bytes == min(VRAM, bar0_bytes)
        assert [stage.name for stage in card.stages] == COLD_STAGES
        assert mapped(radeon)
        assert works(card)


def test_memory_that_the_card_s_firmware_keeps_is_not_given_to_buffers(virtual_card, monkeypatch):
    """Neither by the start that is told of it nor by the next, which loads no firmware and asks nobody."""
    radeon = virtual_card("navi31", vram_bytes=VRAM)
    with connect(radeon) as card:
        before, end = card.spaces.vram.free_bytes, card.blocks.layout.end
    kept, tmr = 64 << 20, 0
    monkeypatch.setattr(Psp, "reserved", property(lambda psp: (end - kept,), lambda psp, value: None), raising=False)
    radeon = virtual_card("navi31", vram_bytes=VRAM)
    for found in ("cold", "clean"):
        with connect(radeon) as card:
            assert card.info.found == found
            tmr = tmr or card.blocks.psp.tmr_bytes
            assert card.spaces.vram.free_bytes == before - kept + tmr


@pytest.mark.parametrize("chip", ["navi44", "navi48"])
def test_memory_that_the_vbios_leaves_to_firmware_is_not_given_to_buffers(virtual_card, chip):
    """The firmware of before 2026 does not say it, and the driver does not read this VBIOS; half a GiB is no detail."""
    radeon = virtual_card(chip)
    table = atom.atom_firmware_info_v3_4.view(bytearray(vbios.parse(radeon.image, chip).table_bytes("firmwareinfo")))
    kept = table.fw_reserved_size_in_kb << 10
    assert kept > 64 << 20
    with connect(radeon) as card:
        assert card.spaces.vram.free_bytes <= radeon.vram.size_bytes - kept - card.blocks.layout.pool


@pytest.mark.parametrize(("chip", "count"), [(chip, 10 if chip in ("navi31", "mi300x") else 4) for chip in CHIPS])
def test_starts_in_a_row_behave_alike_and_each_close_leaves_the_card_quiet(virtual_card, chip, count):
    radeon = virtual_card(chip, vram_bytes=VRAM)
    seen = []
    for _ in range(count):
        with connect(radeon) as card:
            assert works(card)
            registers = card.blocks.registers
            counts = registers.reads, registers.writes
            seen.append((card.info.found, [stage.name for stage in card.stages], counts, card.spaces.vram.free_bytes))
        assert not mapped(radeon)
        assert not radeon.gpu.masters_bus
        assert not radeon.host._bases, "host memory stayed with the card"
        table = radeon.chip.power.frequencies
        for clock in (PPCLK_GFXCLK, PPCLK_UCLK):
            assert radeon.smu.power.bounds(clock) == (table[clock][0], table[clock][0])
    assert [found for found, *_ in seen] == ["cold"] + ["clean"] * (count - 1)
    assert seen[0][1] == COLD_STAGES
    assert seen[1][1] == WARM_STAGES
    assert all(one == seen[1] for one in seen[2:])
    assert seen[0][3] == seen[1][3]


@of_each_generation
def test_a_card_whose_owner_died_is_taken_over_without_loading_firmware(radeon):
    first = connect(radeon)
    endless = first.compute.stream()
    # Nobody ever writes there.
    endless.append(endless.pm4.wait_mem(first.compute.timeline.gpu_va + 8, 1))
    first.compute.submit(endless)
    radeon.kill_holder()

    def watch(stage):
        # Until now, the dead owner's queue still reads freed memory.
        if stage == "opening bus and doorbells":
            radeon.violations.clear()

    with connect(radeon, watch=watch) as second:
        assert second.info.found == "dirty"
        assert second.info.resets == ("queue: verified; survived: firmware, VRAM, clocks",)
        assert "loading firmware" not in [stage.name for stage in second.stages]
        assert works(second)
    assert radeon.violations == []


@of_each_generation
@pytest.mark.parametrize(
    "change",
    [{SCRATCH_REG7: 0xA000_0006}, {SCRATCH_REG5: 0x1234_5678}],
    ids=["another driver's mark", "other firmware"],
)
def test_a_card_that_is_not_ours_is_reset_before_it_is_used(radeon, change):
    first = connect(radeon)
    for word, value in change.items():
        first.blocks.gfx.block.write(word(value))
    first.device.close()
    boots = radeon.log.find("reset")
    with connect(radeon) as second:
        assert second.info.found == "foreign"
        assert second.info.resets == ("mode1: verified; survived: the VBIOS's initialisation",)
        assert "loading firmware" in [stage.name for stage in second.stages]
        assert works(second)
    assert len(radeon.log.find("reset")) == len(boots) + 1


FAILURES = [  # fault, its argument, the stage that meets it, the error
    ("psp_bootloader_error", 3, "booting the secure OS", FirmwareError),
    ("psp_no_sign_of_life", -1, "booting the secure OS", DeviceTimeout),
    ("psp_stuck_fence", -1, "loading firmware", DeviceTimeout),
    ("psp_status", 7, "loading firmware", FirmwareError),
    ("smu_silent", -1, "taking up the power controller", DeviceTimeout),
    ("smu_answer", 0xFF, "taking up the power controller", RingupError),
    ("stuck_tlb_ack", -1, "opening bus and doorbells", DeviceTimeout),
    ("stuck_tlb_semaphore", -1, "opening bus and doorbells", DeviceTimeout),
    ("sdma_stuck_fence", -1, "testing the queues", DeviceTimeout),
]


# gmc_v9_0_use_invalidate_semaphore: nobody takes the semaphore of an MI300X
MET = [(chip, *row) for chip in GENERATIONS for row in FAILURES if (chip, row[0]) != ("mi300x", "stuck_tlb_semaphore")]


@pytest.mark.parametrize(
    ("radeon", "fault", "argument", "stage", "error"),
    MET,
    indirect=["radeon"],
    ids=[f"{row[1]}-{row[0]}" for row in MET],
)
def test_a_failing_stage_is_named_and_the_next_start_recovers(radeon, fault, argument, stage, error):
    if fault == "psp_bootloader_error" and radeon.chip.name.startswith("navi4"):
        # psp_v14_0.c looks at bit 31 of the boot loader's answer alone, so only the secure OS's silence tells
        error = DeviceTimeout
    radeon.faults.inject(fault, argument)
    with pytest.raises(error, match=f"{radeon.name}: {stage}: "):
        connect(radeon)
    assert not radeon.gpu.masters_bus
    assert not mapped(radeon)
    assert not radeon.host._bases, "host memory stayed with the card"
    radeon.faults.clear()
    with connect(radeon) as card:
        assert works(card)


def test_an_interrupt_that_never_comes_costs_time_only(radeon):
    radeon.faults.inject("lost_interrupt")
    with connect(radeon) as card:
        assert works(card)


def test_a_card_whose_vbios_never_ran_starts_when_its_memory_works(radeon):
    radeon.nbio.reset(keep_scratch=False)
    radeon.nbio.cells["BIF_BX0_BIOS_SCRATCH_7"] = 0
    with connect(radeon) as card:
        assert works(card)


def test_missing_firmware_is_said_before_anything_is_started(radeon, tmp_path):
    (tmp_path / "gc_11_0_0_mec.bin").write_bytes(radeon.firmware("gc_11_0_0_mec.bin"))
    radeon.firmware = lambda name: None
    reads = len(radeon.log.find("reset"))
    with pytest.raises(FirmwareError, match=r"reading what the card is: amdgpu/psp_13_0_0_sos\.bin is not in"):
        connect(radeon, firmware=[tmp_path])
    assert not radeon.psp.alive
    assert len(radeon.log.find("reset")) == reads


@pytest.mark.parametrize("name", ["empty", "gc_11_0_3_mec.bin", "other/gc_11_0_0_mec.txt"])
def test_a_named_firmware_folder_that_serves_nothing_is_an_error_for_a_virtual_card_too(radeon, tmp_path, name):
    good, named = tmp_path / "good", tmp_path / name
    good.mkdir()
    (good / "gc_11_0_0_mec.bin").write_bytes(radeon.firmware("gc_11_0_0_mec.bin"))
    named.parent.mkdir(exist_ok=True)
    if name == "empty":
        named.mkdir()
    else:
        named.write_bytes(b"text")
    with pytest.raises(
        FirmwareError, match=rf"what the card is: {named}, where firmware should be, has none of the card's files"
    ):
        connect(radeon, firmware=[good, named])
    assert not radeon.psp.alive
    with connect(radeon, firmware=[good]) as card:
        assert works(card)


@pytest.mark.parametrize(
    ("radeon", "name", "cut"),
    [
        *(("navi31", "gc_11_0_0_mec.bin", cut) for cut in (0, 31, 256, -1)),
        ("navi48", "gc_12_0_1_mec.bin", -1),
        *(("mi300x", name, -1) for name in ("gc_9_4_3_mec.bin", "sdma_4_4_2.bin", "psp_13_0_6_sos.bin")),
    ],
    indirect=["radeon"],
)
def test_a_damaged_file_is_refused_before_it_is_sent(radeon, tmp_path, name, cut):
    whole = radeon.firmware(name)
    (tmp_path / name).write_bytes(whole[:cut])
    with pytest.raises(FirmwareError, match=re.escape(name)):
        connect(radeon, firmware=[tmp_path])
    assert not radeon.psp.alive


@pytest.mark.parametrize(
    ("radeon", "name", "other"),
    [
        ("navi31", "gc_11_0_0_mec.bin", "gc_11_0_0_rlc.bin"),
        ("mi300x", "gc_9_4_3_mec.bin", "gc_9_4_3_rlc.bin"),
        ("mi300x", "sdma_4_4_2.bin", "psp_13_0_6_sos.bin"),
    ],
    indirect=["radeon"],
)
def test_another_part_s_file_is_refused_and_the_right_one_starts_the_card(radeon, tmp_path, name, other):
    (tmp_path / name).write_bytes(radeon.firmware(other))
    with pytest.raises(FirmwareError, match=re.escape(name)):
        connect(radeon, firmware=[tmp_path])
    with connect(radeon) as card:
        assert works(card)
    assert radeon.violations == []


def test_a_card_that_is_gone_says_so(radeon):
    radeon.unplug()
    with pytest.raises(DeviceLost, match="nothing answers at its place on the bus"):
        connect(radeon)
    radeon.replug()
    with connect(radeon) as card:
        assert works(card)


@of_each_generation
def test_a_warm_start_that_fails_ends_in_a_reset_of_the_whole_card(radeon):
    connect(radeon).close()
    radeon.faults.inject("sdma_stuck_fence")
    radeon.log.watch(lambda event: radeon.faults.clear() if event.kind == "reset" else None)
    with connect(radeon) as card:
        assert card.info.found == "failed"
        assert card.info.resets == ("mode1: verified; survived: the VBIOS's initialisation",)
        names = [stage.name for stage in card.stages]
        assert names.count("testing the queues") == 2
        assert [stage.name for stage in card.stages if stage.error] == ["testing the queues"]
        assert works(card)


def test_when_all_resets_fail_the_error_has_each_ones_message(radeon):
    first = connect(radeon)
    first.device.close()
    # This command processor releases no queue, not even after a reset.
    for queue in radeon.gc.cp.queues.values():
        queue.stop = lambda how: None
    radeon.gc.cp.grbm.on_soft_reset = lambda *engines: None
    radeon.faults.inject("smu_silent")
    radeon.resets = lambda: ()
    with pytest.raises(
        DeviceHung,
        match=r"resetting what was left: .*queue: failed: .*engine: failed: .*mode1: failed: .*switch the card's power off",
    ):
        connect(radeon)
