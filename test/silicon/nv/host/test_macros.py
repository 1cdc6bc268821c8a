"""Macros of the 3D and compute classes. Instructions are encoded here by the bit numbers of Mesa's mme_tu104.c."""

import struct

import pytest

DRAW, COMPUTE = 0, 1
ZERO, IMM, IMM_PAIR, LOAD0, LOAD1 = 24, 25, 26, 28, 29
ADD, ADDC, MERGE, STATE, LOOP, BEQ, BLT, EXTENDED, DREAD, DWRITE = 0, 1, 16, 22, 23, 29, 25, 7, 30, 31
ALU0, ALU1, OUT_LOAD0, OUT_LOAD1, OUT_IMM0, OUT_IMM1 = 1, 2, 3, 4, 5, 6
# methods, as dwords: the report semaphore, macro scratch 0 and up, memory address, a read into the FIFO
REPORT, SCRATCH, ADDRESS, READ_FIFOED = 0x1B00 // 4, 0x3400 // 4, 0x550 // 4, 0x560 // 4
NEXT = 1 << 12
ONE_WORD = 0x1000_0000


def instruction(
    alu0=(ADD, ZERO, ZERO, ZERO), alu1=(ADD, ZERO, ZERO, ZERO), imm=(0, 0), out=((0, 0), (0, 0)), pred=(0, ZERO), end=0
):
    """Return the three words of an instruction: an operation is (op, destination, first source, second source)."""
    bits = end | pred[0] << 1 | pred[1] << 5 | imm[0] << 30 | imm[1] << 66
    for first, (op, to, a, b) in ((10, alu0), (46, alu1)):
        bits |= op << first | to << first + 5 | a << first + 10 | b << first + 15
    for first, (method, emit) in ((82, out[0]), (89, out[1])):
        bits |= method << first | emit << first + 3
    return [bits >> 64 & 0xFFFFFFFF, bits >> 32 & 0xFFFFFFFF, bits & 0xFFFFFFFF]


END = [*instruction(end=1), *instruction()]


def load(bench, subchannel, number, *instructions, at=0):
    """Return the methods that load a macro: 0x11c and 0x120 its start, 0x114 and 0x118 its words."""
    words = [word for one in instructions for word in one]
    return [*bench.incr(subchannel, 0x11C, number, at), *bench.once(subchannel, 0x114, at, *words)]


def call(bench, subchannel, number, *parameters):
    return bench.once(subchannel, 0x3800 + 8 * number, *parameters)


@pytest.mark.parametrize("subchannel", [DRAW, COMPUTE])
def test_a_macro_adds_its_parameters_and_reports(graphics, subchannel):
    """A macro of 64-bit numbers: the carry of one operation goes to the other of the instruction."""
    graphics.push(*load(
        graphics, subchannel, 4,
        instruction((ADD, 0, LOAD0, ZERO), (ADD, 1, LOAD1, ZERO)),
        instruction((ADD, 0, 0, LOAD0), (ADDC, 1, 1, LOAD1)),
        instruction(imm=(SCRATCH | NEXT, 0), out=((OUT_IMM0, 0), (0, 0))),
        instruction((ADD, ZERO, 0, ZERO), (ADD, ZERO, 1, ZERO), out=((0, ALU0), (0, ALU1))),
        instruction((STATE, 2, IMM, ZERO), imm=(SCRATCH + 1, 0)),
        instruction(imm=(REPORT | NEXT, 0), out=((OUT_IMM0, OUT_IMM1), (0, 0))),
        instruction(imm=(0x8000, 0), out=((0, OUT_IMM0), (0, 0))),
        instruction((ADD, ZERO, 2, ZERO), imm=(0, ONE_WORD >> 16), out=((0, ALU0), (0, 0))),
        instruction(imm=(ONE_WORD >> 16, 0), out=((0, 10), (0, 0)), end=1),
        instruction(),
        at=0x60,
    ))  # fmt: skip
    graphics.push(*call(graphics, subchannel, 4, 0xFFFFFFFF, 7, 2, 0x100))
    assert graphics.failed == []
    # 0x7_ffffffff + 0x100_00000002, the high half
    assert graphics.word(0x8000) == 0x108


def test_compute_calls_a_macro_that_3d_has_loaded_and_each_has_its_own_scratch(graphics):
    """Source: Mesa, sanity_compute in mme_tu104_sim_hw_test.cpp, which ran on Ampere, and nvk_mme.h. The macro reports
    scratch word 3, and stores its parameter there.
    """
    graphics.push(*load(
        graphics, DRAW, 5,
        instruction((STATE, 0, IMM, ZERO), (ADD, 1, LOAD0, ZERO), imm=(SCRATCH + 3, 0)),
        instruction((ADD, ZERO, 1, ZERO), imm=(SCRATCH + 3 | NEXT, 0), out=((OUT_IMM0, ALU0), (0, 0))),
        instruction(imm=(REPORT | NEXT, 0), out=((OUT_IMM0, OUT_IMM1), (0, 0))),
        instruction((ADD, ZERO, 0, ZERO), imm=(0x8000, 0), out=((0, OUT_IMM0), (0, ALU0))),
        instruction(imm=(ONE_WORD >> 16, 0), out=((0, 10), (0, 0)), end=1),
        instruction(),
    ))  # fmt: skip
    graphics.push(*call(graphics, DRAW, 5, 0x77))
    seen = []
    for subchannel, parameter in ((COMPUTE, 0x88), (DRAW, 0x99), (COMPUTE, 0xAA)):
        graphics.push(*call(graphics, subchannel, 5, parameter))
        seen.append(graphics.word(0x8000))
    assert graphics.failed == []
    assert seen == [0, 0x77, 0x88]


def test_a_macro_loops_and_branches(graphics):
    """Nine rounds of a loop add 1; a branch leaves out what follows."""
    graphics.push(*load(
        graphics, DRAW, 0,
        instruction((ADD, 0, ZERO, ZERO), (ADD, 1, LOAD0, ZERO)),
        instruction((LOOP, ZERO, 1, ZERO), imm=(2, 0)),
        instruction((ADD, 0, 0, IMM), imm=(1, 0)),
        # equal: skip the instruction that spoils the sum
        instruction((BEQ, ZERO, 0, 1), imm=(0x8000 | 2, 0)),
        instruction((ADD, 0, ZERO, ZERO)),
        instruction(imm=(REPORT | NEXT, 0), out=((OUT_IMM0, OUT_IMM1), (0, 0))),
        instruction((ADD, ZERO, 0, ZERO), imm=(0x8000, 0), out=((0, OUT_IMM0), (0, ALU0))),
        instruction(imm=(ONE_WORD >> 16, 0), out=((0, 10), (0, 0)), end=1),
        instruction(),
    ))  # fmt: skip
    graphics.push(*call(graphics, DRAW, 0, 9))
    assert graphics.failed == []
    assert graphics.word(0x8000) == 9


def test_a_macro_reads_memory_into_its_parameters(graphics):
    """Indirect launches do this: address and count, the barrier, then loads come from memory."""
    graphics.poke(0x9000, struct.pack("<3I", 11, 22, 33))
    graphics.push(*load(
        graphics, DRAW, 1,
        instruction(imm=(ADDRESS | NEXT, 0), out=((OUT_IMM0, OUT_LOAD0), (0, OUT_LOAD1))),
        instruction(imm=(READ_FIFOED, 3), out=((OUT_IMM0, OUT_IMM1), (0, 0))),
        instruction((EXTENDED, ZERO, IMM, IMM_PAIR), imm=(0x1000, 1)),
        instruction((ADD, 0, LOAD0, LOAD1)),
        instruction(imm=(REPORT | NEXT, 0), out=((OUT_IMM0, OUT_IMM1), (0, 0))),
        instruction((ADD, ZERO, 0, LOAD0), imm=(0x8000, 0), out=((0, OUT_IMM0), (0, ALU0))),
        instruction(imm=(ONE_WORD >> 16, 0), out=((0, 10), (0, 0)), end=1),
        instruction(),
    ))  # fmt: skip
    graphics.push(*call(graphics, DRAW, 1, 0, 0x9000))
    assert graphics.failed == []
    assert graphics.word(0x8000) == 66


def test_the_firmwares_register_method_answers_in_the_scratch(graphics):
    """NVK's start: a macro waits until the firmware has changed a register."""
    graphics.push(*load(
        graphics, DRAW, 2,
        instruction(imm=(SCRATCH | NEXT, 0), out=((OUT_IMM0, OUT_IMM1), (0, 0))),
        instruction(out=((0, OUT_LOAD0), (0, OUT_LOAD1))),
        instruction(imm=(0x2310 // 4, 0), out=((OUT_IMM0, OUT_LOAD0), (0, 0))),
        # until scratch 0 is 1
        instruction((STATE, 0, IMM, ZERO), imm=(SCRATCH, 0)),
        instruction((BEQ, ZERO, 0, IMM_PAIR), imm=(0x1FFF, 1)),
        END[:3], END[3:],
    ))  # fmt: skip
    graphics.push(*call(graphics, DRAW, 2, 0, 8, 0x419BA4))
    graphics.push(*graphics.incr(DRAW, 0x1B00, 0, 0x8000, 1, ONE_WORD))
    assert graphics.failed == []
    assert graphics.word(0x8000) == 1
    assert any("register 0x419ba4" in event.text for event in graphics.card.log.find("channel", "host"))


def test_a_constant_buffer_is_loaded_word_by_word(graphics):
    graphics.push(*graphics.incr(DRAW, 0x2380, 32, 0, 0x9000), *graphics.once(DRAW, 0x238C, 8, 1, 2, 3))
    assert graphics.peek(0x9000, 24) == struct.pack("<6I", 0, 0, 1, 2, 3, 0)
    graphics.push(*graphics.once(DRAW, 0x238C, 28, 1, 2))
    assert "word 0x20 of a constant buffer of 0x20 bytes" in graphics.error[1]


@pytest.mark.parametrize(
    ("macro", "why"),
    [
        ([instruction((ADD, ZERO, 31, ZERO))], "a macro has source 31, which is none"),
        ([instruction((DREAD, 0, IMM, ZERO), imm=(0x7000, 0))], "word 0x7000 of its data memory"),
        ([instruction((EXTENDED, ZERO, ZERO, ZERO))], "extended operation 0x0, 0x0 is not modelled"),
        ([instruction((24, ZERO, ZERO, ZERO), imm=(0xFFFF, 0))], "a macro runs beyond its memory"),
        ([instruction(imm=(0x3800 // 4, 0), out=((OUT_IMM0, OUT_IMM0), (0, 0)))], "is called within a macro"),
        ([instruction(imm=(0x3804 // 4, 0), out=((OUT_IMM0, OUT_IMM0), (0, 0)))], "CALL_MME_DATA within a macro"),
    ],
)
def test_a_macros_mistake_stops_the_channel(graphics, macro, why):
    graphics.push(*load(graphics, DRAW, 0, *macro, END[:3], END[3:]), *call(graphics, DRAW, 0, 1))
    graphics.card.clock.sleep_us(1_000)
    code, text = graphics.error
    assert code == 69
    assert why in text


def test_a_macro_that_lacks_a_parameter_waits_for_it(graphics):
    take = instruction((ADD, 0, LOAD0, LOAD1))
    graphics.push(*load(graphics, DRAW, 0, take, END[:3], END[3:]), *call(graphics, DRAW, 0, 1))
    assert graphics.failed == []
    graphics.push(*graphics.incr(DRAW, 0x3804, 2), *graphics.incr(DRAW, 0x1B00, 0, 0x8000, 1, ONE_WORD))
    assert graphics.word(0x8000) == 1
    graphics.push(*call(graphics, DRAW, 0, 1), *graphics.incr(DRAW, 0x100, 0))
    assert "method 0x100 while a macro waits for a parameter" in graphics.error[1]
