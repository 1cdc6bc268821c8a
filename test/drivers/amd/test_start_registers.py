"""The register values that a start leaves, and their order, compared with amdgpu's sequence: what a real card needs but
the model does not check.
"""

from __future__ import annotations

import pytest

import ringup
from ringup.autogen.amd.mmhub import MMVM_INVALIDATE_ENG17_SEM
from ringup.errors import FirmwareError
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


def die(radeon):
    """A first owner starts the card and is killed."""
    connect(radeon)
    radeon.kill_holder()


def written(radeon, name):
    """Return the values that the driver wrote to a register since recording began, in order."""
    rows = [event.text.split(" = ") for event in radeon.log.find("write")]
    return [int(value, 16) for register, value in rows if register == name]


def test_a_dead_owners_interrupt_ring_is_off_before_the_card_may_write_to_memory(radeon):
    die(radeon)
    ring = radeon.ih.cells
    assert ring.get("IH_RB_CNTL", "rb_enable")
    seen = []
    write = radeon.config.write

    def watch(offset, value, size_bytes=4):
        # PCI_COMMAND, PCI_COMMAND_MASTER
        if offset == 4 and value & 4:
            seen.append((ring.get("IH_RB_CNTL", "rb_enable"), ring.get("IH_RB_CNTL", "enable_intr")))
        write(offset, value, size_bytes)

    radeon.config.write = watch
    with connect(radeon) as card:
        assert card.info.found == "dirty"
    assert seen[0] == (0, 0)


def test_a_semaphore_that_died_with_its_owner_is_taken_anyway(radeon):
    first = connect(radeon)
    hub = first.blocks.ips.block("mmhub")
    assert hub.read(MMVM_INVALIDATE_ENG17_SEM).semaphore
    radeon.kill_holder()
    with connect(radeon) as card:
        assert card.info.found == "dirty"


def test_a_warm_start_resets_engines_that_may_be_in_the_middle_of_work(radeon):
    connect(radeon).close()
    radeon.log.accesses = True
    with connect(radeon) as card:
        assert card.info.found == "clean"
        # gc_11_0_0_sh_mask.h, GRBM_SOFT_RESET: CP 0x1, CPC 0x40000, SDMA0 0x800000, SDMA1 0x1000000
        assert written(radeon, "gc.GRBM_SOFT_RESET") == [0x4_0001, 0, 0x80_0000, 0, 0x100_0000, 0]
        # gc_11_0_0_sh_mask.h, CLEAR_PROTECTION_FAULT_STATUS_ADDR 0x1
        assert written(radeon, "gc.GCVM_L2_PROTECTION_FAULT_CNTL")[0] & 1


def test_a_cold_start_leaves_the_engines_as_the_firmware_started_them(radeon):
    radeon.log.accesses = True
    with connect(radeon):
        assert written(radeon, "gc.GRBM_SOFT_RESET") == []


def test_a_card_that_did_not_stop_well_is_reset_at_the_next_start(radeon):
    first = connect(radeon)
    radeon.faults.inject("smu_silent")
    first.close()
    radeon.faults.clear()
    assert radeon.gc.grbm.cells["SCRATCH_REG7"] == 0
    with connect(radeon) as card:
        assert card.info.found == "foreign"
        assert card.info.resets == ("mode1: verified; survived: the VBIOS's initialisation",)


def test_the_link_does_not_sleep_while_the_card_is_open(radeon):
    at = 0x34
    while (
        radeon.config.read(at, 1) and radeon.config.read(radeon.config.read(at, 1), 1) != 0x10
    ):  # PCI Express capability
        at = radeon.config.read(at, 1) + 1
    link_control = radeon.config.read(at, 1) + 0x10
    radeon.config.write(link_control, 0x42, 2)  # common clock, ASPM L1
    with connect(radeon):
        assert radeon.config.read(link_control, 2) == 0x40


def test_the_watchdog_of_a_copy_engine_waits_for_the_longest_packet(radeon):
    with connect(radeon):
        # gc_11_0_0_sh_mask.h, SDMA0_WATCHDOG_CNTL.QUEUE_HANG_COUNT: bits 7:0, of 100 ms (sdma_v6_0_gfx_resume)
        for engine in (0, 1):
            assert radeon.gc.grbm.cells[f"SDMA{engine}_WATCHDOG_CNTL"] & 0xFF == 100


def test_hubs_are_left_alone_until_the_cards_own_firmware_is_through(radeon):
    radeon.faults.inject("psp_bootloader_error", 3)
    with pytest.raises(FirmwareError):
        connect(radeon)
    # The boot loader stays stuck, and only the bus can reset the card.
    radeon.faults.clear()
    reset, loader = radeon.reset, radeon.psp.cells
    ready_ns = []

    def slow(method):
        reset(method)
        loader["MP0_SMN_C2PMSG_35"] = 0
        radeon.clock.after(1_000_000, lambda: loader.__setitem__("MP0_SMN_C2PMSG_35", 0x8000_0000))
        ready_ns.append(radeon.clock.now_ns + 1_000_000_000)
        radeon.log.accesses = True

    radeon.reset = slow
    with connect(radeon) as card:
        assert card.info.found == "stuck"
    hub = [event.time_ns for event in radeon.log.find("write", "mmhub") if event.time_ns > ready_ns[0] - 1_000_000_000]
    assert hub
    assert hub[0] >= ready_ns[0]


def test_the_micro_engine_runs_only_when_its_hub_has_tables(radeon):
    # gfx_v11_0_hw_init: gfxhub_v3_0_gart_enable comes before gfx_v11_0_cp_compute_enable
    radeon.log.accesses = True
    with connect(radeon):
        order = [event.text for event in radeon.log.find("write", "gc")]
    control = "gc.GCVM_CONTEXT0_CNTL = "
    on = next(
        at for at, text in enumerate(order) if text.startswith(control) and int(text.removeprefix(control), 16) & 1
    )
    # gc_11_0_0_sh_mask.h: MEC_PIPE0..3_ACTIVE, not halted
    assert on < order.index("gc.CP_MEC_RS64_CNTL = 0x3c000000")
