"""A broken rule is reported where the user looks: in the error of `wait` and in the first lines of the report, also
behind a bridge and in a recording.
"""

import logging
import re
import struct

import pytest

import ringup
from ringup.drivers import select
from ringup.drivers.mistakes import MAX_NOTES, SAW, STANDS
from ringup.drivers.transport.recording.record import Recorder
from ringup.drivers.transport.recording.replay import Replay
from ringup.errors import DeviceFault, DeviceHung, DeviceTimeout, GuestError, RingupError

HEX = "0x[0-9a-f]+"
SOURCE = """
typedef __global uint *words;
#define WORK_ITEM __builtin_amdgcn_workitem_id_x()
__kernel void spin(__global volatile uint *flag) { while (flag[0] == 0) ; }
__kernel void store(words out, uint value) { out[WORK_ITEM] = value; }
__kernel void undefined(words out) { __asm__ volatile("global_store_b32 v[40:41], %0, off" :: "v"(WORK_ITEM) : "v40", "v41"); }
__kernel void early(words out) {
    __asm__ volatile("global_load_b32 v42, %0, off\\n global_store_b32 %0, v42, off" :: "v"(out) : "v42"); }
__kernel void illegal(words out) { __asm__ volatile(".long 0xfffffff0"); }
__kernel void half_way(__global volatile uint *out) {
    if (WORK_ITEM < 32) while (out[0] == 0) ;
    __builtin_amdgcn_s_barrier();
    out[1] = 2; }
"""


class Kinds:
    """Ways to break a rule or to wait forever, on one card."""

    def __init__(self, card, code):
        self.card, self.program = card, card.load(code, "faulty")
        self.flag = card.alloc(4096, name="flag")
        card.copy.fill(self.flag, 0).wait()

    def dispatch(self, kernel, size, args, groups=1):
        stream = self.card.compute.stream()
        stream.dispatch(self.program[kernel], groups, size, args)
        self.card.compute.submit(stream).wait(0.005)

    def packets(self, *dwords):
        stream = self.card.compute.stream()
        stream.append(list(dwords))
        self.card.compute.submit(stream).wait(0.005)

    def copies(self, *dwords):
        stream = self.card.copy.stream()
        stream.body += struct.pack(f"<{len(dwords)}I", *dwords)
        self.card.copy.submit(stream).wait(0.005)


# Each row: what is done, the class of the error, its message, and a second line where one tells more. The instruction
# is followed by kernel and buffer.
MISTAKES = {
    "a store into no buffer": (
        lambda it: it.dispatch("store", 32, [it.flag.gpu_va + 8192, 1]),
        DeviceFault,
        rf"memory at {HEX} in wave \(0, 0, 0, 0\): global_store_b32 .*write to {HEX}: .*in store\+{HEX} of faulty; "
        rf"{HEX} is 0x1000 bytes behind the end of <Buffer 'flag'",
    ),
    "an address that nobody wrote": (
        lambda it: it.dispatch("undefined", 32, [it.flag]),
        DeviceTimeout,
        rf"uninitialised at {HEX} in wave \(0, 0, 0, 0\): global_store_b32 v\[40:41\].*in undefined\+{HEX} of faulty",
    ),
    "a load that is not waited for": (
        lambda it: it.dispatch("early", 32, [it.flag]),
        DeviceTimeout,
        rf"hazard at {HEX} in wave \(0, 0, 0, 0\): global_store_b32 .*in early\+{HEX} of faulty",
    ),
    "an instruction that is none": (
        lambda it: it.dispatch("illegal", 32, [it.flag]),
        DeviceTimeout,
        rf"illegal at {HEX} in wave \(0, 0, 0, 0\): .*in illegal\+{HEX} of faulty",
    ),
    "a packet that is none": (
        lambda it: it.packets(0xC0007700, 0),
        DeviceHung,
        rf"cp: queue \S+ stops: SET_SH_REG_OFFSET at {HEX} is no packet of this engine",
    ),
    "a packet that writes where nothing is": (
        lambda it: it.packets(*it.card.compute.stream().pm4.write_data(it.flag.gpu_va + 8192, 1)),
        DeviceFault,
        rf"gfxhub vmid 8: write to {HEX}: .* by CPC, queue \S+, WRITE_DATA at {HEX} .*0x1000 bytes behind the end of <Buffer 'flag'",
    ),
    "a copy packet that is none": (
        lambda it: it.copies(0xEE),
        (DeviceHung, DeviceTimeout),
        rf"sdma0: queue \d stops: packet at {HEX}: header 0x000000ee: there is no packet 238",
    ),
    "a fill where nothing is": (
        lambda it: it.copies(*it.card.copy.commands.sdma.fill(it.flag.gpu_va + 8192, 1, 64)),
        DeviceFault,
        rf"write to {HEX}: .*0x1000 bytes behind the end of <Buffer 'flag'",
    ),
}
WAITS = {
    "a loop without end": (
        lambda it: it.dispatch("spin", 64, [it.flag]),
        rf"2 waves running, before {HEX}: \w+ .*; the first is \(0, 0, 0, 0\), of \d+ instructions so far \(in spin\+{HEX} of faulty\)",
        "",
    ),
    "a barrier that not all waves reach": (
        lambda it: it.dispatch("half_way", 64, [it.flag]),
        rf"1 wave running, before {HEX}: .*the first is \(0, 0, 0, 0\).*\(in half_way\+{HEX} of faulty\)",
        rf"1 wave at a barrier that not all waves of the group have reached, before {HEX}: .*the first is \(0, 0, 0, 1\)",
    ),
    "groups that wait for one that does not come": (
        lambda it: it.dispatch("spin", 32, [it.flag], groups=3),
        rf"3 waves running, before {HEX}: .*\(in spin\+{HEX} of faulty\)",
        "",
    ),
    "a queue that waits for a value": (
        lambda it: it.packets(*it.card.compute.stream().pm4.wait_mem(it.flag.gpu_va, 7)),
        rf"waits in WAIT_REG_MEM at {HEX}: memory at {HEX} holds 0x0, wanted is >= 0x7",
        "",
    ),
    "a copy queue that waits for a value": (
        lambda it: it.copies(*it.card.copy.commands.sdma.wait_mem(it.flag.gpu_va, 9)),
        rf"sdma0 queue \d waits in a packet at {HEX}: POLL_REGMEM: memory at {HEX} holds 0x0, wanted is >= 0x9",
        "",
    ),
}


def head(card):
    return "\n".join(str(card.report()).splitlines()[:4])


def test_every_broken_rule_is_named_by_the_error_and_the_report(virtual_card, opencl):
    radeon = virtual_card("navi31", vram_bytes=256 << 20)
    with ringup.open("virtual:navi31", transport={"card": radeon}) as card:
        it = Kinds(card, opencl(SOURCE, "gfx1100"))
        for what, (act, kind, pattern) in MISTAKES.items():
            with pytest.raises(kind) as caught:
                act(it)
            told = str(caught.value)
            assert re.search(pattern, told), (what, told)
            assert told.count(SAW) == 1, what
            assert isinstance(caught.value.__cause__, GuestError), what
            assert re.search(pattern, str(caught.value.__cause__)), what
            assert re.search(pattern, str(card.report()).splitlines()[0]), (what, head(card))
            assert re.search(pattern, card.mistakes[0]), what
            card.reset()
            assert str(card.report()).startswith("virtual:navi31: nothing is wrong with it"), what
            assert card.mistakes == []
    radeon.violations.clear()


def test_an_endless_wait_is_named_by_the_error_and_the_report(virtual_card, opencl):
    radeon = virtual_card("navi31", vram_bytes=256 << 20)
    with ringup.open("virtual:navi31", transport={"card": radeon}) as card:
        it = Kinds(card, opencl(SOURCE, "gfx1100"))
        for what, (act, pattern, more) in WAITS.items():
            with pytest.raises(DeviceTimeout) as caught:
                act(it)
            assert re.search(f"{STANDS}: .*{pattern}", str(caught.value)), (what, str(caught.value))
            report = card.report()
            assert re.search(pattern, str(report).splitlines()[0]), (what, head(card))
            assert any(re.search(pattern, line) for line in report.unfinished), what
            assert any(re.search(more, line) for line in report.unfinished), what
            assert "nothing is wrong" not in str(report), what
            card.reset()
            assert "what stands still" not in str(card.report()), what


def test_a_waiting_queue_that_continues_is_no_mistake(bench):
    bench = bench()
    hung = bench.hang()
    assert "nothing has failed, and work is under way: " in str(bench.card.report()).splitlines()[0]
    with pytest.raises(DeviceTimeout):
        hung.wait(0.001)
    bench.store(bench.flag, 1, bench.card.new_compute_queue()).wait(0.1)
    hung.wait(0.1)
    assert str(bench.card.report()).startswith("virtual:navi31: nothing is wrong with it")


def test_a_mistake_that_stops_nothing_is_reported_all_the_same(bench, caplog):
    bench = bench()
    bench.radeon.bars[2].write64(0xFF8, 1)
    # A doorbell is a posted write: it arrives a little later.
    bench.radeon.clock.sleep_us(1)
    (seen,) = bench.card.mistakes
    assert re.search(r"nbio: doorbell 0x3fe \(0x1\) reached .*, where no queue listens to it", seen)
    assert (
        "it goes on after a mistake that a real card punishes: nbio: doorbell"
        in str(bench.card.report()).splitlines()[0]
    )
    bench.radeon.bars[2].write64(0xFF0, 1)
    with caplog.at_level(logging.WARNING, "ringup.drivers.amd.card"):
        bench.card.close()
    # This is the one that no error reported.
    assert [record.message.count("doorbell") for record in caplog.records] == [1]
    assert len(bench.card.report().mistakes) == 2
    bench.radeon.violations.clear()


def test_an_unheard_doorbell_is_reported_where_work_stands(bench):
    bench = bench()
    assert bench.card.report().unfinished == []
    bench.radeon.bars[2].write64(0x1FF8, 1)
    # A doorbell is a posted write: it arrives a little later.
    bench.radeon.clock.sleep_us(1)
    assert re.search(r"doorbell 0x7fe \(0x1\) reached .*, where no queue listens", bench.card.report().unfinished[0])
    assert bench.card.mistakes == []


def test_the_first_mistake_is_the_cause_and_others_follow_in_short(bench):
    bench = bench()
    hung = bench.hang()
    for number in range(MAX_NOTES + 5):
        bench.radeon.clock.advance_ns(1000)
        bench.radeon.log.note("nbio", "violation", "mistake {} {}", number, "x" * 300)
    with pytest.raises(DeviceTimeout) as caught:
        hung.wait(0.001)
    assert f"{SAW}: nbio: mistake 0 " in str(caught.value)
    notes = [note for note in caught.value.__notes__ if note.startswith("then: ")]
    assert [note.split()[3] for note in notes] == [str(number) for number in range(1, 1 + MAX_NOTES)]
    assert max(map(len, notes)) < 260
    assert "and 4 more; `card.report()` has them" in caught.value.__notes__
    bench.card.reset()
    bench.radeon.violations.clear()


def test_a_translation_that_was_not_flushed_is_reported(bench):
    bench = bench()
    radeon = bench.radeon
    (leaf,) = [
        one
        for one in radeon.gfxhub._cache[8].leaves.values()
        if one.gpu_va <= bench.flag.gpu_va < one.gpu_va + one.size_bytes
    ]
    assert bench.card.report().unfinished == []
    radeon.gfxhub._cache[8].keep(leaf._replace(address=leaf.address ^ 0x1000))
    (line,) = bench.card.report().unfinished
    assert re.search(rf"gfxhub still translates {leaf.gpu_va:#x} of vmid 8 by .*: an invalidation is missing", line)
    radeon.gfxhub._cache[8].keep(leaf)


def test_a_start_that_fails_names_its_mistake_and_none_of_before(virtual_card):
    radeon = virtual_card("navi31", vram_bytes=256 << 20)
    radeon.log.note("psp", "violation", "of before")
    radeon.faults.inject("psp_status", 4)
    with pytest.raises(RingupError) as caught:
        select.start(radeon)
    assert "of before" not in str(caught.value)
    radeon.violations.clear()


def test_the_same_is_reported_behind_a_bridge(opencl):
    with ringup.open("virtual:navi31@asm2464pd", transport={"vram_bytes": 256 << 20}) as card:
        it = Kinds(card, opencl(SOURCE, "gfx1100"))
        act, kind, pattern = MISTAKES["a store into no buffer"]
        with pytest.raises(kind, match=pattern):
            act(it)
        assert re.search(pattern, str(card.report()).splitlines()[0])
        card.reset()
        act, pattern, _ = WAITS["a queue that waits for a value"]
        with pytest.raises(DeviceTimeout, match=pattern):
            act(it)


def test_a_recording_reports_what_its_card_reported(virtual_card, opencl, tmp_path):
    radeon, code = virtual_card("navi31", vram_bytes=256 << 20), opencl(SOURCE, "gfx1100")

    def session(device):
        told = []
        with select.start(device) as card:
            it = Kinds(card, code)
            for act in (MISTAKES["a store into no buffer"][0], WAITS["a queue that waits for a value"][0]):
                with pytest.raises((DeviceFault, DeviceTimeout)) as caught:
                    act(it)
                told += [str(caught.value), *caught.value.__notes__, str(card.report()).splitlines()[0]]
                card.reset()
        return told

    with Recorder(radeon, tmp_path / "session") as recorder:
        recorded = session(recorder)
    assert re.search(MISTAKES["a store into no buffer"][2], recorded[0])
    replay = Replay(tmp_path / "session")
    assert session(replay) == recorded
    radeon.violations.clear()
