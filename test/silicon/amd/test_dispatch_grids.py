"""Compute dispatches: registers become grids, and grids run on the cores. Dispatches that metal never finishes hang.

clang 19 assembled the code for gfx1100. The captured buffers are those that RADV of Mesa 25 submits for a dispatch of 5
x 3 x 2 groups on a navi31.
"""

from __future__ import annotations

from concurrent.futures import Executor, Future

import pytest

from ringup.errors import Unmodelled
from ringup.silicon.amd.gc.dispatch import Order
from ringup.silicon.amd.gc.grbm import Slot
from ringup.silicon.shader.amd.translator.engine import Translator

CODE, TARGET = 0x40_0000, 0x50_0000
# v_lshl_add_u32 v1, s2, 5, v0; v_lshlrev_b32 v2, 2, v1; global_store_b32 v2, v1, s[0:1]; s_endpgm
NUMBERS = {
    11: (0xD646_0001, 0x0401_0A02, 0x3004_0282, 0xDC6A_0000, 0x0000_0102, 0xBFB0_0000),
    # For gfx1201, where ttmp9 holds the group's number.
    12: (0xD646_0001, 0x0401_0A75, 0x3004_0282, 0xEE06_8000, 0x0080_0000, 0x0000_0002, 0xBFB0_0000),
}
# spin: s_load_b32 s4, s[0:1], 0x0 glc; s_waitcnt lgkmcnt(0); s_cmp_eq_u32 s4, 0; s_cbranch_scc1 spin; s_endpgm
SPIN = (0xF400_4100, 0xF800_0000, 0xBF89_FC07, 0xBF06_8004, 0xBFA2_FFFB, 0xBFB0_0000)
# s_mov_b32 m0, 0x123456; s_sendmsg sendmsg(MSG_INTERRUPT); s_endpgm
SEND = (0xBEFD_00FF, 0x0012_3456, 0xBFB6_0001, 0xBFB0_0000)
# This is no instruction.
NONE = 0xFFFF_FFFF
W32 = 0x8001 | 1 << 2  # COMPUTE_SHADER_EN, FORCE_START_AT_000, CS_W32_EN
NUM_THREAD_X, PGM_LO, RSRC1, TMPRING, THREAD_MGMT, START_X, USER_DATA = (
    0x207,
    0x20C,
    0x212,
    0x218,
    0x216,
    0x204,
    0x240,
)  # SET_SH_REG offsets
RADV = (  # ib_000_0_ip1, ib_000_1_ip1
    "c00279000000038000000000 00000000c00176000000020d00000080c002760000000216ffffffffffffffffc002760000000219ffffffffffffffffc0047600"
    "00000224000000000000000000000000 00000000c00576000000022bffffffffffffffff000000000000000000000040c00176000000027d00000000c0037600"
    "00000204000000000000000000000000c006580000000000ffffffff00ffffff00000000000000000000000a0000c3b1c00176000000020a00000001c0031000"
    "00000000000000000000000000000000ffff1000ffff1000ffff1000ffff1000",
    "c00550006020000000000000ffff800000000000ffff800080000060c00176000000024200040000c00176000000020c00000000c002760000000212602c0002"
    "00000086c00176000000022800000000c00176000000021501000000c003760000000207000000400000000100000001c0031502000000050000000300000002"
    "00002045c000460000000407c006580000000000ffffffff00ffffff00000000000000000000000a0000c030ffff1000ffff1000ffff1000ffff1000ffff1000",
)


def sh(offset, *values):
    return [0xC000_0000 | len(values) << 16 | 0x7600, offset, *values]


def program(core, code=None, group=(32, 1, 1), rsrc1=0x602C_0000, rsrc2=2 << 1 | 1 << 7, target=TARGET, user=()):
    core.put(CODE, *(code or NUMBERS[core.gc.grbm.row.version[0]]))
    user = user or (target, 0)
    return [*sh(PGM_LO, CODE >> 8, 0), *sh(RSRC1, rsrc1, rsrc2), *sh(NUM_THREAD_X, *group), *sh(USER_DATA, *user)]


def dispatch(x, y=1, z=1, initiator=W32):
    return [0xC003_1500, x, y, z, initiator]


FLUSH = (0xC000_4600, 0x407)  # EVENT_WRITE: CS_PARTIAL_FLUSH, index 4


def store(at, value):
    return [0xC003_3700, 5 << 8 | 1 << 20, at, 0, value]


def test_a_grid_writes_its_numbers(core, mec):
    mec.run(*program(core), *dispatch(3), *FLUSH, *store(core.DATA, 1))
    assert core.violations() == []
    assert core.words(TARGET, 97) == [*range(96), 0]
    assert core.number(core.DATA) == 1


def test_the_parser_goes_on_while_a_grid_runs_and_flush_waits_for_it(core, mec):
    mec.run(*program(core, SPIN), *dispatch(1), *store(core.DATA, 1), *FLUSH, *store(core.DATA + 4, 1))
    assert core.words(core.DATA, 2) == [1, 0]
    core.put(TARGET, 1)
    core.clock.sleep_us(200)
    assert core.words(core.DATA, 2) == [1, 1]


def test_release_mem_waits_for_the_grids_before_it_without_holding_the_parser(core, mec):
    release = [0xC006_4900, 0x1428_0514, 2 << 29 | 2 << 24, core.DATA + 8, 0, 7, 0, 0]
    mec.run(*program(core, SPIN), *dispatch(1), *release, *store(core.DATA, 1))
    assert (core.number(core.DATA), core.number(core.DATA + 8), core.ih.entries) == (1, 0, [])
    core.put(TARGET, 1)
    core.clock.sleep_us(200)
    assert core.number(core.DATA + 8) == 7
    assert [entry[1] for entry in core.ih.entries] == [181]


def test_grids_of_one_queue_run_side_by_side(core, mec):
    mec.run(*program(core, SPIN), *dispatch(1), *program(core, target=TARGET + 0x1000), us=1)
    core.put(CODE + 0x1000, *NUMBERS[11])
    mec.run(*sh(PGM_LO, CODE + 0x1000 >> 8, 0), *dispatch(1))
    assert core.words(TARGET + 0x1000, 32) == list(range(32))


def test_queues_share_the_cores(core, mec):
    other = core.queue(pipe=1, doorbell=8)
    mec.run(*program(core, SPIN), *dispatch(1))
    core.put(CODE + 0x1000, *NUMBERS[11])
    other.run(
        *program(core, SPIN, target=TARGET + 0x1000),
        *sh(PGM_LO, CODE + 0x1000 >> 8, 0),
        *dispatch(2),
        *FLUSH,
        *store(core.DATA, 1),
    )
    assert core.number(core.DATA) == 1
    assert core.words(TARGET + 0x1000, 64) == list(range(64))


def test_use_thread_dimensions_counts_items_and_leaves_the_rest_off(core, mec):
    initiator = W32 & ~4 | 1 << 5 | 1 << 1
    mec.run(*program(core), *sh(START_X, 1, 0, 0), *dispatch(72, initiator=initiator), *FLUSH)
    assert core.words(TARGET, 73) == [0] * 32 + [*range(32, 72), 0]


def test_partial_groups_come_from_num_thread_partial(core, mec):
    start = sh(START_X, 1, 0, 0)
    mec.run(*program(core, group=(32 | 7 << 16, 1, 1)), *start, *dispatch(3, initiator=W32 & ~4 | 1 << 1), *FLUSH)
    assert core.words(TARGET, 72) == [0] * 32 + [*range(32, 71), 0]


def test_dimensions_end_behind_the_start(core, mec):
    mec.run(*program(core), *sh(START_X, 1, 0, 0), *dispatch(3, initiator=W32 & ~4), *FLUSH)
    assert core.words(TARGET, 97) == [0] * 32 + [*range(32, 96), 0]


def test_dispatch_indirect_reads_its_dimensions_from_memory(core, mec):
    core.put(core.DATA + 0x100, 2, 1, 1)
    mec.run(*program(core), 0xC002_1600, core.DATA + 0x100, 0, W32, *FLUSH)
    assert core.words(TARGET, 65) == [*range(64), 0]


def test_an_empty_grid_ends_at_once(core, mec):
    mec.run(*program(core), *dispatch(0), *FLUSH, *store(core.DATA, 1))
    assert core.number(core.DATA) == 1


def test_s_sendmsg_interrupts_with_the_word_kfd_decodes(core, mec):
    mec.run(*program(core, SEND), *dispatch(1), *FLUSH)
    client, source, _, vmid, data = core.ih.entries[0]
    assert (client, source, vmid, data[0] & 0xFF_FFFF, data[1] >> 6) == (0x0A, 239, 0, 0x12_3456, 1)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"group": (0, 1, 1)}, "work-items"),
        ({"group": (1024, 2, 1)}, "more than 1024"),
        ({"rsrc1": 0x602C_0000 | 40}, "VGPRs"),
        ({"rsrc2": 2 << 1 | 1 << 7 | 129 << 15}, "LDS"),
        ({"rsrc2": 17 << 1}, "user SGPRs"),
        ({"rsrc2": 2 << 1 | 1}, "scratch"),
    ],
)
def test_a_dispatch_no_core_can_start_hangs_its_queue(core, mec, change, text):
    mec.run(*program(core, **change), *dispatch(1), *FLUSH, *store(core.DATA, 1))
    assert core.number(core.DATA) == 0
    assert text in core.violations()[0]


def test_a_group_that_fits_on_no_work_group_processor_of_the_chip_hangs(any_core):
    """32 waves of 144 VGPRs: a SIMD of 1536 VGPRs holds ten, one of 1024 holds seven."""
    queue = any_core.queue()
    queue.run(
        *program(any_core, group=(1024, 1, 1), rsrc1=0x602C_0000 | 17), *dispatch(1), *FLUSH, *store(any_core.DATA, 1)
    )
    fits = any_core.gc.grbm.row.version != (11, 0, 2)
    assert any_core.number(any_core.DATA) == int(fits)
    assert bool(any_core.violations()) != fits


def test_a_grid_runs_on_every_chip(any_core):
    any_core.queue().run(*program(any_core), *dispatch(3), *FLUSH, *store(any_core.DATA, 1))
    assert any_core.violations() == []
    assert any_core.words(TARGET, 97) == [*range(96), 0]


def test_programs_of_another_generation_than_the_engines_do_not_run(navi48_core):
    navi48_core.gc.dispatcher.engine = Translator()
    with pytest.raises(Unmodelled, match="gfx1201's programs on an engine for gfx1100"):
        navi48_core.queue().run(*program(navi48_core), *dispatch(1))


def test_waves_that_change_their_registers_are_no_success(navi48_core):
    """COMPUTE_PGM_RSRC2.dynamic_vgpr, which takes the place of trap_present."""
    with pytest.raises(Unmodelled, match="dynamic_vgpr"):
        navi48_core.queue().run(*program(navi48_core, rsrc2=2 << 1 | 1 << 6 | 1 << 7), *dispatch(1))


@pytest.mark.parametrize(("handler", "traps"), [(0, False), (1 << 31, True)])
def test_a_program_traps_where_its_vmid_has_a_handler(navi48_core, handler, traps):
    """SQ_SHADER_TBA_HI.trap_en."""
    navi48_core.select(vmid=0)
    navi48_core.set("SQ_SHADER_TBA_HI", handler)
    navi48_core.queue().run(*program(navi48_core))
    order = Order(Slot(1, 0, 0), 0, (1, 1, 1), W32, 0)
    assert navi48_core.gc.dispatcher.describe(order).trap_enabled == traps


def test_a_mask_without_cus_hangs(core, mec):
    masks = [*sh(THREAD_MGMT, 0, 0), *sh(0x219, 0, 0), *sh(0x22B, 0, 0)]
    mec.run(*program(core), *masks, *dispatch(1), *FLUSH, *store(core.DATA, 1))
    assert core.number(core.DATA) == 0
    assert "no CU" in core.violations()[0]


def test_an_initiator_without_compute_starts_nothing(core, mec):
    mec.run(*program(core), *dispatch(1, initiator=W32 & ~1), *FLUSH, *store(core.DATA, 1))
    assert (core.number(TARGET + 4), core.number(core.DATA)) == (0, 1)
    assert "nothing starts" in core.violations()[0]


def test_a_fault_of_a_wave_hangs_the_dispatch_with_an_sq_interrupt(core, mec):
    core.hub.unmapped.add(TARGET // 4096)
    mec.run(*program(core), *dispatch(1), *FLUSH, *store(core.DATA, 1))
    assert core.number(core.DATA) == 0
    assert core.ih.entries[0][:2] == (0x0A, 239)
    assert core.ih.entries[0][4] == (2 << 21, 2 << 6)  # MEMVIOL, encoding ERROR


def test_illegal_code_hangs_the_dispatch(core, mec):
    mec.run(*program(core, (NONE, NONE)), *dispatch(1), *FLUSH, *store(core.DATA, 1))
    assert core.number(core.DATA) == 0
    assert "illegal" in core.violations()[0]


def test_a_queue_reset_drops_a_hung_grid(core, mec):
    mec.run(*program(core, SPIN), *dispatch(1), *FLUSH)
    # A drain waits for the waves.
    assert not core.dequeue(core.DRAIN)
    assert core.dequeue(core.RESET)


def test_resetting_the_waves_of_a_queue_leaves_it_connected(core, mec):
    mec.run(*program(core, SPIN), *dispatch(1), *FLUSH, *store(core.DATA, 1))
    core.select(1, 0, 0)
    core.set("SPI_COMPUTE_QUEUE_RESET", 1)
    core.clock.sleep_us(100)
    assert (core.get("CP_HQD_ACTIVE"), core.number(core.DATA)) == (1, 1)


BROADCAST_KILL = 1 << 4 | 3  # SQ_CMD: MODE, CMD


@pytest.mark.parametrize("code", [SPIN, (NONE,)], ids=["that spin", "that broke a rule"])
@pytest.mark.parametrize(("command", "value"), [(6 << 28 | 1 << 7, 1), (0, 1), (5 << 28 | 1 << 7, 0)])
def test_waves_of_a_vmid_are_killed_by_command_and_their_queue_goes_on(core, code, command, value):
    # gfx_v11_0_ring_soft_recovery does this for a job that hangs.
    queue = core.queue(vmid=6)
    queue.run(*program(core, code), *dispatch(3), *FLUSH, *store(core.DATA, 1))
    assert core.number(core.DATA) == 0
    core.set("GRBM_GFX_INDEX", 0xE000_0000)
    core.set("SQ_CMD", command | BROADCAST_KILL)
    core.clock.sleep_us(100)
    assert core.number(core.DATA) == value


@pytest.mark.parametrize(("where", "command"), [(0xE000_0000, 1 << 4 | 1), (0xE000_0000, 3), (0x6000_0000, 1 << 4 | 3)])
def test_other_commands_to_waves_are_reported_to_be_missing(core, where, command):
    core.set("GRBM_GFX_INDEX", where)
    with pytest.raises(Unmodelled, match="SQ_CMD"):
        core.set("SQ_CMD", command)


def test_saved_waves_go_on_when_the_queue_comes_back(core):
    queue = core.queue(CP_HQD_PERSISTENT_STATE=1 << 30)  # QSWITCH_MODE
    queue.run(*program(core, SPIN), *dispatch(1))
    assert core.dequeue(core.SAVE)
    core.put(TARGET, 1)
    core.clock.sleep_us(100)
    wrong = core.gc.cp.map_queue(core.gc.grbm.slot(), core.MQD, 0, 6)
    queue.run(*FLUSH, *store(core.DATA, 1))
    assert (wrong, core.number(core.DATA)) == ("", 1)


def test_busy_time_is_what_the_waves_took(core, mec):
    mec.run(*program(core), *dispatch(3), *FLUSH)
    # Three waves of four instructions, 1 ns each.
    assert core.gc.busy_ns == 3 * 4


def test_the_buffers_of_radv_execute(core, mec):
    """The capture lacks the shader binary. An s_endpgm at address 0 stands for it, and its prefetch reads from there
    too.
    """
    core.put(0, *[0xBFB0_0000] * 64)
    for number, text in enumerate(RADV):
        words = [int(text.replace(" ", "")[at : at + 8], 16) for at in range(0, len(text.replace(" ", "")), 8)]
        if number:
            # The prefetch's address, upper half.
            words[3] = words[5] = 0
        else:
            words[6] = 0  # COMPUTE_PGM_HI
        at = core.DATA + 0x1000 * (number + 1)
        core.put(at, *words)
        mec.write(0xC002_3F00, at, 0, len(words) | 1 << 23)
    mec.run(*store(core.DATA, 1))
    assert core.violations() == []
    assert core.number(core.DATA) == 1
    core.select(1, 0, 0)
    assert (core.get("COMPUTE_NUM_THREAD_X"), core.get("COMPUTE_USER_DATA_2")) == (64, 0x40000)
    # 30 groups of one wave.
    assert core.gc.busy_ns == 30


class Held(Executor):
    """An executor that runs its jobs only when a test calls `work`."""

    def __init__(self):
        self.given = []

    def submit(self, function, /, *args):
        self.given.append((Future(), function, args))
        return self.given[-1][0]

    def work(self):
        for future, function, args in self.given:
            future.set_result(function(*args))
        self.given.clear()


@pytest.fixture
def held(core):
    """Holds the cores' translations back until a test lets them run."""
    executor = Held()
    core.gc.dispatcher.engine = Translator(beside=executor)
    return executor


def test_a_card_goes_on_while_a_program_is_translated(core, mec, held):
    core.set("SCRATCH_REG0", 0x1234)
    mec.run(*program(core), *dispatch(3), *store(core.DATA, 1), *FLUSH, *store(core.DATA + 4, 1), us=100_000)
    assert core.words(core.DATA, 2) == [1, 0]
    assert core.get("SCRATCH_REG0") == 0x1234
    assert core.gc.busy_ns == 0
    assert len(held.given) == 1
    held.work()
    core.clock.sleep_us(2000)
    assert core.words(core.DATA, 2) == [1, 1]
    assert core.words(TARGET, 97) == [*range(96), 0]
    assert core.gc.busy_ns == 3 * 4
    assert core.violations() == []


def test_a_reset_drops_what_waits_for_its_translation(core, mec, held):
    mec.run(*program(core), *dispatch(3), *FLUSH, *store(core.DATA, 1), us=1000)
    core.gc.reset()
    core.boot()
    held.work()
    core.clock.sleep_us(2000)
    assert core.words(TARGET, 96) == [0] * 96
    core.queue().run(*program(core), *dispatch(1), *FLUSH, *store(core.DATA + 4, 1))
    assert core.words(core.DATA, 2) == [0, 1]
    assert core.words(TARGET, 33) == [*range(32), 0]
