"""The graphics engine's classes: uploads, reports, launches. Methods are those of clc7c0.h, clc797.h and cla140.h."""

import ctypes
import struct
from types import SimpleNamespace

import pytest

from ringup.autogen.nv import methods_3d
from ringup.silicon.nv.compute.launch import Bank, Pool, Windows
from ringup.silicon.nv.engines.engine import State
from ringup.silicon.nv.engines.graphics import Drawing
from ringup.silicon.nv.engines.shader_memory import ShaderMemory
from ringup.silicon.shader.common.state import Violation

DRAW, COMPUTE, UPLOAD = 0, 1, 2
GR_EXCEPTION, CLASS_ERROR, PAGE_FAULT = 13, 69, 31
DESCRIPTOR, PROGRAM = 0x20000, 0x30000


def upload(bench, subchannel, target, data, *, launch=0x41, pitch=0, lines=1):
    """Return an upload: 0x180 length, lines, address, pitch; 0x1b0 launch; 0x1b4 the words."""
    words = struct.unpack(f"<{-(-len(data) // 4)}I", data.ljust(-(-len(data) // 4) * 4, b"\xee"))
    return [
        *bench.incr(subchannel, 0x180, len(data) // lines, lines, 0, target, pitch),
        *bench.incr(subchannel, 0x1B0, launch),
        *bench.repeat(subchannel, 0x1B4, *words),
    ]


@pytest.mark.parametrize("subchannel", [DRAW, COMPUTE, UPLOAD])
@pytest.mark.parametrize("data", [b"abcd", b"abcdefg", bytes(range(256)) * 5], ids=len)
def test_the_words_of_an_upload_reach_memory(graphics, subchannel, data):
    graphics.push(*upload(graphics, subchannel, 0x10000, data))
    assert graphics.failed == []
    # no byte of the last word beyond the length
    assert graphics.peek(0x10000, len(data) + 1) == data + b"\0"


def test_an_upload_has_lines_and_releases_a_semaphore(graphics):
    graphics.push(
        *graphics.incr(COMPUTE, 0x1DC, 0, 0x8000, 77),
        *upload(graphics, COMPUTE, 0x10000, b"aaaaabbbbbccccc", lines=3, pitch=8, launch=0x1 | 2 << 4 | 1 << 12),
    )
    assert graphics.peek(0x10000, 24) == b"aaaaa\0\0\0bbbbb\0\0\0ccccc\0\0\0"
    assert graphics.peek(0x8000, 8) == struct.pack("<II", 77, 0)


def test_an_upload_fills_blocks(graphics):
    data = bytes(range(80))
    graphics.push(
        *graphics.incr(COMPUTE, 0x194, 1 << 4, 64, 16, 1, 0, 4, 6),
        *upload(graphics, COMPUTE, 0x10000, data, lines=4, launch=0),
    )
    assert graphics.failed == []
    # line 6, columns 4 to 15, then 16 to 23; line 8 is in the next GOB
    assert graphics.peek(0x10000 + 0x80 + 0x20 + 4, 12) == data[:12]
    assert graphics.peek(0x10000 + 0xC0 + 0x20, 8) == data[12:20]
    assert graphics.peek(0x10000 + 0x200 + 4, 12) == data[40:52]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([(COMPUTE, 0x1B4, 1)], "without a launch"),
        ([(COMPUTE, 0x180, 4, 1), (COMPUTE, 0x1B0, 1), (COMPUTE, 0x1B4, 1), (COMPUTE, 0x1B4, 1)], "without a launch"),
        ([(COMPUTE, 0x180, 5, 1), (COMPUTE, 0x1B0, 1), (COMPUTE, 0x1B0, 1)], "before the last upload has its 5 bytes"),
        ([(COMPUTE, 0x3800, 1)], "macro 0 is called, and was never loaded"),
        ([(COMPUTE, 0x500, 1)], "firmware method SET_FALCON00"),
        ([(DRAW, 0x19D0, 1)], "CLEAR_SURFACE of class 0xc797: drawing is not modelled"),
        (
            [(DRAW, 0x504, 3 | 0xFC << 8), (DRAW, 0x508, 1), (DRAW, 0x508, 1)],
            "byte 0x100 of a root table of 0x100 bytes",
        ),
        ([(DRAW, 0x504, 0x102), (DRAW, 0x508, 1)], "byte 0x1 of a root table of 0x100 bytes"),
        ([(3, 0x860, 1)], "PIXELS_FROM_CPU_DATA of class 0x902d: drawing is not modelled"),
    ],
)
def test_what_the_engine_refuses_stops_the_channel(graphics, words, why):
    for one in words:
        graphics.push(*graphics.incr(*one))
    code, text = graphics.error
    assert code == CLASS_ERROR
    assert why in text


def test_root_tables_keep_the_words_that_are_loaded_one_behind_the_other():
    """Mesa since 25.2 clears all eight when it makes a queue."""
    nobody = SimpleNamespace(faulted=lambda fault: False, state=State())
    drawing = Drawing(0xC797, methods_3d, nobody)
    for table in range(8):
        list(drawing.run(0x504, 0, [table]))
        list(drawing.run(0x508, 0, [1000 * table + word for word in range(64)]))
    list(drawing.run(0x504, 2, [5 | 8 << 8, 77, 78]))
    for table, found in enumerate(drawing.root_tables):
        words = [1000 * table + word for word in range(64)]
        words[2:4] = (77, 78) if table == 5 else words[2:4]
        assert struct.unpack("<64I", found) == tuple(words)


# SET_REPORT_SEMAPHORE_D: one word, wake the CPU, reduce
ONE, AWAKEN, REDUCE = 1 << 28, 1 << 20, 1 << 3


@pytest.mark.parametrize("subchannel", [DRAW, COMPUTE])
def test_a_report_semaphore_has_one_word_or_four(graphics, subchannel):
    graphics.poke(0x8000, b"\xff" * 48)
    graphics.push(
        *graphics.incr(subchannel, 0x1B00, 0, 0x8000, 7, ONE), *graphics.incr(subchannel, 0x1B00, 0, 0x8010, 8, 0)
    )
    assert graphics.peek(0x8000, 16) == struct.pack("<I", 7) + b"\xff" * 12
    payload, time_ns = struct.unpack("<QQ", graphics.peek(0x8010, 16))
    assert payload == 8
    assert 0 < time_ns <= graphics.card.clock.now_ns


@pytest.mark.parametrize(
    ("operation", "value", "payload", "result"), [(0, 5, 6, 11), (2, 5, 6, 6), (5, 7, 12, 4), (7, 7, 12, 11)]
)
def test_a_report_semaphore_may_reduce(graphics, operation, value, payload, result):
    graphics.poke(0x8000, struct.pack("<I", value))
    graphics.push(*graphics.incr(COMPUTE, 0x1B00, 0, 0x8000, payload, ONE | REDUCE | operation << 9))
    assert graphics.word(0x8000) == result


def test_a_report_wakes_the_cpu_only_if_asked(graphics):
    # GR0's vector of notifications is the first one
    pending = lambda: graphics.card.bars[0].read32(0xB81000) & 1  # noqa: E731
    graphics.push(*graphics.incr(COMPUTE, 0x1B00, 0, 0x8000, 1, ONE))
    assert pending() == 0
    graphics.push(*graphics.incr(COMPUTE, 0x1B00, 0, 0x8000, 2, ONE | AWAKEN))
    assert pending() == 1


def test_the_newer_report_waits_and_releases_wide_words(graphics):
    # 0x158: payload, address; 0x168: acquire of 32 bits, then release of two words
    graphics.push(
        *graphics.incr(COMPUTE, 0x158, 5, 0, 0x8000, 0, 1),
        *graphics.incr(COMPUTE, 0x158, 9, 1, 0x8010, 0, 2 << 3 | 1 << 12),
    )
    assert graphics.peek(0x8010, 8) == bytes(8)
    graphics.poke(0x8000, struct.pack("<I", 5))
    graphics.card.clock.sleep_us(5_000)
    assert graphics.peek(0x8010, 8) == struct.pack("<II", 9, 1)


class FakeRun:
    """A launch of so many slices. Each stores its number where the first constant bank points."""

    def __init__(self, core, launch, memory):
        self.core, self.launch, self.memory = core, launch, memory
        self.instructions, self.violations, self.waiting, self.repeating = 0, [], False, False
        self.killed = False

    def step(self, instructions):
        self.core.steps += 1
        self.instructions += instructions
        if self.core.fails == "memory":
            try:
                self.memory.region(0x7777_0000, True)
            except Exception as fault:  # noqa: BLE001
                self.violations = [Violation("memory", 0, "STG", (0, 0, 0, 0), str(fault))]
        elif self.core.fails:
            self.violations = [Violation("illegal", PROGRAM, "BPT.TRAP", (0, 0, 0, 1), "because")]
        return self.instructions >= instructions * self.core.slices

    def kill(self):
        self.killed = True


class FakeCore:
    """Shader cores that note what they are asked."""

    def __init__(self):
        self.launches, self.slices, self.fails, self.steps = [], 1, "", 0

    def start(self, launch, memory):
        self.launches.append(launch)
        return FakeRun(self, launch, memory)


def descriptor(**bits):
    """Return a descriptor of version 3.0: a grid of (2, 3, 4) groups of (64, 1, 1) threads."""
    fields = {"b580": 3, "b384": 2, "b416": 3, "b448": 4, "b592": 64, "b608": 1, "b624": 1, "b648": 32,
              "b1536": PROGRAM, "b640": 1, "b1024": 0x9000, "b1075": 16} | bits  # fmt: skip
    value = 0
    for name, number in fields.items():
        value |= number << int(name[1:])
    return value.to_bytes(256, "little")


def send(bench, address=DESCRIPTOR, action=3):
    """Return SEND_PCAS_A and SEND_SIGNALING_PCAS2_B."""
    return [*bench.incr(COMPUTE, 0x2B4, address >> 8), *bench.incr(COMPUTE, 0x2C0, action)]


def inline(bench, raw, address=DESCRIPTOR):
    """Return an inline launch."""
    return [*bench.incr(COMPUTE, 0x318, 0, address >> 8), *bench.incr(COMPUTE, 0x320, *struct.unpack("<64I", raw))]


@pytest.fixture
def core(graphics):
    graphics.card.engines.core = FakeCore()
    return graphics.card.engines.core


# release 0 of version 3.0: enabled, one word, at 0x8000, payload 5
RELEASE = {"b823": 1, "b830": 1, "b768": 0x8000, "b832": 5}
WAIT = 200


@pytest.mark.parametrize("way", ["inline", "sent"])
def test_a_launch_reaches_the_cores_with_the_channels_state(graphics, core, way):
    graphics.push(
        *graphics.incr(COMPUTE, 0x2A0, 1, 0x2000_0000), *graphics.incr(COMPUTE, 0x7B0, 2, 0x3000_0000),
        *graphics.incr(COMPUTE, 0x790, 3, 0x1000), *graphics.incr(COMPUTE, 0x2E4, 0, 0x8000, 0xFF),
        *graphics.incr(COMPUTE, 0x1574, 4, 0x2000, 99), *graphics.incr(COMPUTE, 0x155C, 5, 0x3000, 9),
    )  # fmt: skip
    raw = descriptor(**RELEASE)
    if way == "inline":
        graphics.push(*inline(graphics, raw))
        assert graphics.peek(DESCRIPTOR, 256) == raw
    else:
        graphics.poke(DESCRIPTOR, raw)
        graphics.push(*send(graphics))
    graphics.card.clock.sleep_us(WAIT)
    assert graphics.failed == []
    (launch,) = core.launches
    assert (launch.descriptor, launch.program, launch.grid, launch.block) == (
        DESCRIPTOR,
        PROGRAM,
        (2, 3, 4),
        (64, 1, 1),
    )
    assert launch.constants[:2] == (Bank(0x9000, 256), None)
    assert launch.windows == Windows(
        shared=0x1_2000_0000, local=0x2_3000_0000, local_base=0x3_0000_1000, local_bytes_per_sm=0x4000,
        headers=Pool(0x4_0000_2000, 99), samplers=Pool(0x5_0000_3000, 9),
    )  # fmt: skip
    assert graphics.word(0x8000) == 5


def test_a_launch_runs_in_slices_and_releases_at_its_end(graphics, core):
    core.slices = 50
    graphics.push(*inline(graphics, descriptor(**RELEASE)), *graphics.incr(COMPUTE, 0x1B00, 0, 0x8010, 6, ONE))
    assert (core.steps > 2, graphics.word(0x8000), graphics.word(0x8010)) == (True, 0, 0)
    graphics.card.clock.sleep_us(WAIT)
    assert (core.steps, graphics.word(0x8000), graphics.word(0x8010)) == (50, 5, 6)


def test_dependent_descriptors_follow(graphics, core):
    graphics.poke(0x20200, descriptor(b384=9, **RELEASE))
    graphics.poke(DESCRIPTOR, descriptor(b512=1, b513=3, b480=0x202))
    graphics.push(*send(graphics))
    graphics.card.clock.sleep_us(WAIT)
    assert [launch.grid[0] for launch in core.launches] == [2, 9]
    assert graphics.word(0x8000) == 5


def test_a_descriptor_waits_for_what_it_depends_on(graphics, core):
    graphics.poke(DESCRIPTOR, descriptor(b142=2))
    graphics.push(*send(graphics))
    graphics.push(*send(graphics, action=7))
    graphics.card.clock.sleep_us(WAIT)
    assert core.launches == []
    graphics.push(*send(graphics, action=7))
    graphics.card.clock.sleep_us(WAIT)
    assert len(core.launches) == 1


def test_nothing_is_launched_that_rendering_rules_out(graphics, core):
    graphics.poke(DESCRIPTOR, descriptor())
    graphics.push(*graphics.incr(COMPUTE, 0x1550, 0, 0x8000, 0), *send(graphics))
    graphics.push(*graphics.incr(COMPUTE, 0x1944, 2), *graphics.incr(COMPUTE, 0x1550, 0, 0x8000, 1), *send(graphics))
    assert (core.launches, graphics.failed) == ([], [])
    graphics.push(*graphics.incr(COMPUTE, 0x1944, 1), *graphics.incr(COMPUTE, 0x1550, 0, 0x8000, 0), *send(graphics))
    graphics.card.clock.sleep_us(WAIT)
    assert len(core.launches) == 1


@pytest.mark.parametrize(
    ("bits", "code", "why"),
    [
        ({"b580": 2, "b576": 2}, CLASS_ERROR, "has version 2.2; class 0xc7c0 takes 2.3, 2.4, 3.0"),
        ({"b544": 100 << 10}, CLASS_ERROR, "wants 102400 bytes of shared memory, of 101376"),
        ({"b648": 255, "b592": 1024}, CLASS_ERROR, "wants 255 registers for each of 1024 threads"),
        ({"b136": 1}, CLASS_ERROR, "is a queue; queues are not modelled"),
        ({"b517": 1}, CLASS_ERROR, "has a second dependent"),
        ({"b592": 0}, CLASS_ERROR, "has groups of (0, 1, 1) threads"),
    ],
)
def test_a_descriptor_that_the_chip_refuses_stops_the_channel(graphics, core, bits, code, why):
    graphics.push(*inline(graphics, descriptor(**bits)))
    found, text = graphics.error
    assert found == code
    assert why in text
    assert core.launches == []


def test_a_card_without_cores_refuses_a_launch(graphics):
    graphics.card.engines.core = None
    graphics.push(*inline(graphics, descriptor(**RELEASE)))
    code, text = graphics.error
    assert (code, graphics.word(0x8000)) == (CLASS_ERROR, 0)
    assert "a launch of (2, 3, 4) groups at 0x30000: a card without shader cores is not modelled" in text
    assert [event.kind for event in graphics.card.log.find("unmodelled", "host")] == ["unmodelled"]


def test_a_violation_and_a_fault_of_a_program_stop_the_channel(graphics, core):
    core.fails = "illegal"
    graphics.push(*inline(graphics, descriptor(**RELEASE)))
    assert graphics.error == (
        GR_EXCEPTION, "channel 5 on runlist 0: illegal at 0x30000 in wave (0, 0, 0, 1): BPT.TRAP: because",
    )  # fmt: skip
    core.fails = "memory"
    graphics.again()
    graphics.push(*inline(graphics, descriptor(**RELEASE)))
    code, text = graphics.error
    assert code == PAGE_FAULT
    assert (
        "ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x0_77770000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_WRITE"
        in text
    )
    assert graphics.word(0x8000) == 0


def test_cores_see_memory_by_regions(graphics, core):
    graphics.push(*inline(graphics, descriptor()))
    graphics.card.clock.sleep_us(WAIT)
    running = next(iter(graphics.card.engines._channels.values()))
    memory = ShaderMemory(running._space)
    region = memory.region(0x3010, False)
    # all pages of the channel lie next to each other
    assert (region.gpu_va, region.size_bytes, region.writable) == (0x3000, 61 << 12, True)
    graphics.poke(0x3010, b"seen")
    assert ctypes.string_at(region.pointer + 0x10, 4) == b"seen"


@pytest.mark.parametrize("subcontext", [0, 1])
def test_the_channels_of_a_group_share_their_subcontexts_state(graphics, subcontext):
    """One sets the address of a report, another one reports; the state ends with the group's last channel."""
    graphics.push(*graphics.incr(COMPUTE, 0x1B00, 0, 0x8000))
    other = graphics.second(6)
    other.slice, other.subcontext = graphics.channel.slice, subcontext
    graphics.card.engines.remove(graphics.channel)
    # of another subcontext the address is 0, which is a page too
    graphics.submit(other, *graphics.incr(COMPUTE, 0x1B08, 7, 1 << 28))
    assert (graphics.word(0x8000), graphics.word(0)) == ((0, 7) if subcontext else (7, 0))
    graphics.card.engines.remove(other)
    graphics.poke(0x8000, bytes(4))
    graphics.again()
    graphics.push(*graphics.incr(COMPUTE, 0x1B08, 9, 1 << 28))
    assert (graphics.word(0x8000), graphics.word(0)) == (0, 9)
