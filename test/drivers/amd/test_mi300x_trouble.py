"""A virtual MI300X in trouble: one die of its graphics core (XCC) that faults or hangs is named, and all work again
after a reset; dies that are half fused off, or that the discovery table contradicts; a process that died.
"""

import re
import struct

import pytest

import ringup
from ringup.errors import DeviceFault, DeviceHung, DeviceTimeout, FirmwareError
from ringup.silicon import card as virtual

XCCS = 8
LATE = 5
KERNELS = """
#define X __builtin_amdgcn_workitem_id_x()
#define GX __builtin_amdgcn_workgroup_id_x()
__kernel void late(__global uint *out, uint which) { if (GX == which) out[X] = 1; }
__kernel void spin(__global volatile uint *flag) { while (!*flag); }
__kernel void all(__global uint *out, uint apart) { out[GX * apart + X] = GX; }
"""
NOWHERE = 0x7000_0000_0000


def connect(radeon, **options):
    return ringup.open(radeon.name, transport={"card": radeon}, **options)


@pytest.fixture(scope="module")
def radeon():
    return virtual("mi300x", vram_bytes=2 << 30)


@pytest.fixture
def card(radeon):
    with connect(radeon) as one:
        yield one
    assert radeon.violations == []


@pytest.fixture
def program(card, opencl):
    return card.load(opencl(KERNELS, "gfx942"))


def works(card, groups=2 * XCCS):
    """Tell whether all dies take part in work and it comes back."""
    with card.alloc(256 * groups) as out:
        stream = card.compute.stream()
        for group in range(groups):
            stream.store(out.gpu_va + 256 * group, group)
        card.copy.wait_for(card.compute.submit(stream))
        data = card.copy.download(out)
    return struct.unpack_from(f"<{64 * groups}I", data)[::64] == tuple(range(groups))


def on_die(stream, xcc, words):
    """Append packets that one die alone runs: PRED_EXEC of pm4_mi, with one bit of DEVICE_SELECT for each die."""
    stream.append([0xC000_2300, 1 << xcc << 24 | len(words), *words])


def dispatch(card, kind, kernel, *args):
    queue = getattr(card, kind)
    stream = queue.stream()
    stream.dispatch(kernel, XCCS, 64, list(args))
    return queue.submit(stream)


@pytest.mark.parametrize("kind", ["compute", "aql"])
def test_a_page_fault_names_the_die_and_all_work_again_after_a_reset(radeon, card, program, kind):
    # groups of a dispatch go to the dies in turn
    with pytest.raises(DeviceFault, match=f"gfxhub of XCC {LATE}: TCP wrote page {NOWHERE:#x} of vmid 8: .*no buffer"):
        dispatch(card, kind, program["late"], NOWHERE, LATE).wait(1)
    assert [rung.name for rung in card.reset()] == ["queue"]
    radeon.violations.clear()
    assert works(card)


def test_faults_of_all_dies_leave_none_behind_for_the_next(radeon, card, program):
    apart = 1 << 18
    with pytest.raises(DeviceFault, match=f"gfxhub of XCC .*: TCP wrote page {NOWHERE >> 32:#x}"):
        dispatch(card, "compute", program["all"], NOWHERE, apart).wait(1)
    card.reset()
    other = NOWHERE + (1 << 40)
    with pytest.raises(DeviceFault, match=f"gfxhub of XCC {LATE}: TCP wrote page {other:#x}"):
        dispatch(card, "compute", program["late"], other, LATE).wait(1)
    card.reset()
    radeon.violations.clear()
    assert works(card)


def test_a_packet_that_one_die_refuses_names_the_die(radeon, card):
    stream = card.compute.stream()
    on_die(stream, LATE, [0xC000_EE00, 0])
    with pytest.raises(DeviceHung, match=rf"bad opcode: queue 1\.0\.0 of XCC {LATE} vmid 8"):
        card.compute.submit(stream).wait(1)
    assert [rung.name for rung in card.reset()] == ["queue"]
    radeon.violations.clear()
    assert works(card)


@pytest.mark.parametrize("first", ["queue", "engine", "mode2", "mode1"])
def test_a_die_that_waits_for_ever_is_named_and_every_rung_brings_all_back(card, first):
    stream = card.compute.stream()
    # nobody ever writes there
    on_die(stream, LATE, stream.pm4.wait_mem(card.compute.timeline.gpu_va + 8, 1))
    hung = card.compute.submit(stream)
    with pytest.raises(DeviceTimeout) as caught:
        hung.wait(0.001)
    assert f"compute 0: XCC {LATE} is behind the other dies" in " ".join(caught.value.__notes__)
    report = str(card.report())
    assert f"rptr 0x12c (of XCC {LATE}, behind the others)" in report
    assert "> [0x000f] WAIT_REG_MEM" in report
    assert [(rung.name, rung.error) for rung in card.reset(first)] == [(first, "")]
    with pytest.raises(DeviceHung, match="was reset before the work was done"):
        hung.wait()
    assert works(card)


def test_waves_that_spin_are_named_on_every_die(card, program):
    flag = card.alloc(4096, name="flag")
    card.copy.fill(flag, 0).wait()
    stream = card.compute.stream()
    stream.dispatch(program["spin"], 3 * XCCS, 64, [flag])
    with pytest.raises(DeviceTimeout, match="waiting for"):
        card.compute.submit(stream).wait(0.02)
    waves = card.report().waves
    for xcc in range(XCCS):
        assert sum(wave.startswith(f"wave XCC {xcc} ") and "spin+0x" in wave for wave in waves) == 3
    assert len(waves) == 3 * XCCS
    card.reset()
    assert works(card)


def hang_copies(card, radeon, monkeypatch, engine=5):
    """Let a copy engine wait for a word that nobody writes, and not let go before it is reset; return its queue and the
    point.
    """
    model, held = radeon.sdma[engine], [True]
    real = model.reset
    queue = card.new_copy_queue(engine)
    stream = queue.stream()
    stream.append(stream.sdma.wait_mem(queue.timeline.gpu_va + 8, 1))
    hung = queue.submit(stream)
    # IDLE of the engine is bit 0, of a queue's context bit 2
    for name in ("SDMA_STATUS_REG", "SDMA_RLC0_CONTEXT_STATUS"):
        model.cells.on_read(name, lambda: 0 if held else 5)
    monkeypatch.setattr(model, "reset", lambda: (held.clear(), real()))
    return queue, hung


def test_mode_2_frees_a_copy_engine_and_keeps_memory_programs_and_queues(monkeypatch, opencl):
    """Such an engine has no reset of its own. Before, its reset cost the card's memory."""
    radeon = virtual("mi300x", vram_bytes=1 << 30)
    with connect(radeon) as card:
        kept, program = card.alloc(4096, name="kept"), card.load(opencl(KERNELS, "gfx942"))
        header = [radeon.config.read(at, 4) for at in range(0, 64, 4)]
        card.copy.fill(kept, 0xA5A5_A5A5).wait()
        stream = card.compute.stream()
        stream.dispatch(program["all"], XCCS, 64, [kept, 64])
        again = card.compute.keep(stream, copies=1)
        card.aql.submit(card.aql.stream()).wait()
        queue, hung = hang_copies(card, radeon, monkeypatch)
        rungs = card.reset()
        assert [(rung.name, bool(rung.error)) for rung in rungs] == [
            ("queue", True),
            ("engine", True),
            ("mode2", False),
        ]
        assert "VRAM" in rungs[-1].survived
        with pytest.raises(DeviceHung, match="was reset before the work was done"):
            hung.wait()
        # GfxDriverReset(2), then GfxDriverResetRecovery: smu_v13_0_6_ppsmc.h
        told = [str(event).split()[-3] for event in radeon.log.find("message")]
        assert told[-2:] == ["0x3(0x2)", "0x2e(0x0)"]
        # the reset took configuration space: bases of BARs and the right to access the host
        assert [radeon.config.read(at, 4) for at in range(0, 64, 4)] == header
        assert card.copy.download(kept) == struct.pack("<I", 0xA5A5_A5A5) * 1024
        card.copy.wait_for(again.submit())
        assert card.copy.download(kept)[: 256 * XCCS : 256] == bytes(range(XCCS))
        queue.fill(kept, 3).wait()
        dispatch(card, "aql", program["all"], kept, 64).wait()
        assert card.copy.download(kept)[: 256 * XCCS : 256] == bytes(range(XCCS))
        again.free()
        assert works(card)
    with connect(radeon) as card:
        assert card.info.found == "clean"
    assert radeon.violations == []


@pytest.mark.parametrize(
    ("fault", "text", "rungs"),
    [
        ("psp_status", "the security processor answered LOAD_IP_FW with status", ["mode2", "mode1"]),
        ("smu_silent", r"SMU message GfxDriverReset\(0x2\): .* for 4000 ms", ["mode2", "mode1", "slot"]),
    ],
)
def test_a_mode_2_reset_that_fails_leads_to_the_next_rung(fault, text, rungs):
    radeon = virtual("mi300x", vram_bytes=1 << 30)

    def watch(stage):
        # the trouble is over when the secure OS boots anew
        if stage == "booting the secure OS":
            radeon.faults.clear()

    with connect(radeon, watch=watch) as card:
        kept = card.alloc(4096, name="kept")
        radeon.faults.inject(fault)
        taken = card.reset("mode2")
        assert [rung.name for rung in taken] == rungs
        assert re.search(text, taken[0].error)
        with pytest.raises(ValueError, match=rf"'kept'.* was lost in a reset of the card \({rungs[-1]}\)"):
            card.copy.fill(kept, 0)
        assert works(card)


def test_a_card_that_a_dead_process_left_with_a_hung_copy_engine_starts_warm_behind_mode_2(monkeypatch):
    radeon = virtual("mi300x", vram_bytes=1 << 30)
    hang_copies(connect(radeon), radeon, monkeypatch)
    radeon.clock.sleep_us(1000)
    radeon.kill_holder()
    stages = []

    def watch(stage):
        stages.append(stage)
        # until now, the dead owner's engines still access freed memory
        if stage == "opening bus and doorbells":
            radeon.violations.clear()

    with connect(radeon, watch=watch) as card:
        assert card.info.found == "dirty"
        assert [text.partition(":")[0] for text in card.info.resets] == ["queue", "engine", "mode2"]
        assert card.info.resets[-1] == "mode2: verified; survived: the secure OS, VRAM, clocks"
        assert "booting the secure OS" not in stages
        assert works(card)
    assert radeon.violations == []


@pytest.mark.parametrize("parts", [2, 8])
def test_a_card_that_was_left_split_is_joined_by_the_next_start(radeon, parts):
    """As amdgpu leaves one in DPX or CPX; the start is warm, so that nothing else needs the security processor."""
    with connect(radeon) as card:
        card.blocks.psp.partition(parts)
    with connect(radeon) as card:
        assert card.info.found == "clean"
        assert works(card)
    assert radeon.violations == []


# --- dies that are not as they should be ------------------------------------------------------------------------------
def test_a_die_with_half_of_its_units_works_with_the_others(opencl):
    radeon = virtual("mi300x", vram_bytes=1 << 30)
    radeon.faults.inject("half_core", 3)
    radeon.mode1_reset()
    with connect(radeon) as card:
        units = [core.shape.cu_total for core in card.blocks.cores]
        assert units == [38, 38, 38, 20, 38, 38, 38, 38]
        assert card.info.compute_units == sum(units)
        program = card.load(opencl(KERNELS, "gfx942"))
        with card.alloc(256 * XCCS) as out:
            card.copy.fill(out, 0xFFFF_FFFF).wait()
            card.copy.wait_for(dispatch(card, "compute", program["all"], out, 64))
            assert struct.unpack(f"<{64 * XCCS}I", card.copy.download(out))[::64] == tuple(range(XCCS))
    assert radeon.violations == []


@pytest.mark.parametrize(
    ("how", "text"),
    [
        (1, r"starting the graphics core: .*lists 7 dies .*firmware contradicts it: each says that it is one of 8"),
        (2, r"reading what the card is: of dies of the graphics core \(XCCs\), .*lists number 0 twice"),
        (3, r"reading what the card is: .*discovery table: the bytes of the binary .* add up to"),
    ],
    ids=["fewer", "twice", "sum"],
)
def test_a_table_that_contradicts_the_card_is_refused_and_the_card_left_quiet(how, text):
    radeon = virtual("mi300x", vram_bytes=1 << 30, bar0_bytes=1 << 30)
    radeon.faults.inject("discovery_contradicts", how)
    radeon.mode1_reset()
    with pytest.raises(FirmwareError, match=text):
        connect(radeon)
    assert not radeon.gpu.masters_bus
    assert not radeon.host._bases, "host memory stayed with the card"
    radeon.faults.clear()
    radeon.mode1_reset()
    with connect(radeon) as card:
        assert works(card)
    assert radeon.violations == []
