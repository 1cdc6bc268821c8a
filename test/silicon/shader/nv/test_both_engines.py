"""Both engines leave the same registers: random instructions of every row, random accesses to memory of all kinds."""

import random

import numpy as np
import pytest
from nak.registers import (
    COUNT,
    DESCRIPTOR,
    FIRST,
    LOCAL,
    PACKED,
    ROWS,
    SHARED,
    UNIFORM,
    UNIFORMS,
    both,
    values,
)

from ringup.autogen.isa import sass
from ringup.autogen.isa.sass import Choice, Number, Optional
from ringup.compiler.isa.sass import Control, machine
from ringup.errors import Unmodelled
from ringup.silicon.shader.nv import workbench
from ringup.silicon.shader.nv.decoding.decode import IllegalInstruction, decode
from ringup.silicon.shader.nv.interpreter import control, matrices, memory, surfaces, textures
from ringup.silicon.shader.nv.interpreter.accesses import accesses
from ringup.silicon.shader.nv.interpreter.step import RuleBroken
from ringup.silicon.shader.nv.translator.engine import NativeRun, Translator


def parts_of(pieces):
    for piece in pieces:
        yield piece
        if isinstance(piece, Optional):
            yield from parts_of(piece.pieces)


def put(word, number, value):
    for part in number.parts:
        bits = value >> part.shift & (1 << part.width) - 1
        if number.inverted:
            bits ^= (1 << part.width) - 1
        word = word & ~((1 << part.width) - 1 << part.lo) | bits << part.lo
    return word


def random_word(row, draw):
    word = draw.getrandbits(105) & sass.shown(row.pieces) & ~row.fixed.mask
    windows = {
        "R": lambda: draw.choice((*range(FIRST, FIRST + COUNT), 255)), "P": lambda: draw.choice((0, 1, 2, 3, 7)),
        "U": lambda: draw.choice((*range(UNIFORM, UNIFORM + UNIFORMS - 1), 63)), "Q": lambda: draw.choice((0, 1, 2, 3, 7)),
    }  # fmt: skip
    before = ""
    for part in parts_of(row.pieces):
        if isinstance(part, str):
            before = part
        elif isinstance(part, Number) and before.endswith("c["):
            word, before = put(word, part, 0), ""
        elif isinstance(part, Number) and before.endswith("cx["):
            word, before = put(word, part, DESCRIPTOR), ""
        elif isinstance(part, Number) and before.endswith("]["):
            word, before = put(word, part, draw.randrange(16, 80, 8)), ""
        elif isinstance(part, Choice):
            value = draw.choice(sorted(part.texts))
            word &= ~sass.mask_of(part)
            word |= sum((value >> index & 1) << bit for index, bit in enumerate(part.bits))
        elif isinstance(part, Number) and part.kind in windows:
            word = put(word, part, windows[part.kind]())
    word = word & ~row.fixed.mask | row.fixed.value
    guard = draw.choice((7, 7, 7, 0, 1, 8 | 2))
    if not row.unguarded:
        word = word & ~0xF000 | guard << 12
    return word | 15 << 105 | 7 << 110 | 7 << 113


SKIPPED = {*control.RULES, *memory.RULES, *matrices.RULES, *textures.RULES, *surfaces.RULES, "S2R", "S2UR", "CS2R"}
REFUSED = (
    ArithmeticError, AttributeError, IllegalInstruction, LookupError, RuleBroken, StopIteration, TypeError, Unmodelled,
    ValueError,
)  # fmt: skip


def body(target, times, draw):
    """Yield random words that the reference knows."""
    for row in sass.rows(target):
        if row.mnemonic in SKIPPED:
            continue
        for _ in range(times):
            word = random_word(row, draw)
            try:
                ins = decode(target, word)
                accesses(target, ins)
            except REFUSED:
                continue
            yield word, ins


AT_ONCE = 200


@pytest.mark.parametrize("target", ["sm_75", "sm_86", "sm_90"])
@pytest.mark.seeds(1)
def test_random_instructions_leave_the_same_registers(target, seed):
    draw = random.Random(seed)
    words = list(body(target, 1, draw))
    draw.shuffle(words)
    for at in range(0, len(words), AT_ONCE):
        part = words[at : at + AT_ONCE]
        one, other = both(
            target, lambda program, part=part: program.words.extend(word for word, _ in part),
            values(np.random.default_rng(seed + at)),
        )  # fmt: skip
        assert np.array_equal(one, other), [ins.text for _, ins in part]
    assert len({ins.name for _, ins in words}) >= 55


SIZES = {".U8": 1, ".S8": 1, ".U16": 2, ".S16": 2, "": 4, ".64": 8, ".128": 16}
ATOMS = (
    "ADD", "MIN", "MIN.S32", "MAX", "MAX.S32", "INC", "DEC", "AND", "OR", "XOR", "EXCH", "ADD.64", "MAX.S64", "EXCH.64",
)  # fmt: skip
FLOAT_ATOMS = ("ADD.F32.FTZ.RN", "ADD.F64.RN", "ADD.F16x2.RN")


def accesses_of(program, draw, count):
    """Add random accesses at offsets below 512: in R1, the address of memory in R2, a generic one in R6."""
    program.add("LOP3.LUT R1, R8, 0xf0, RZ, 0xc0, !PT", f"MOV R2, {128 * ROWS:#x}", "MOV R3, c[0x0][0xc]")
    program.add("IADD3 R2, P0, PT, R2, c[0x0][0x8], RZ", "IADD3.X R3, PT, PT, R3, RZ, RZ, P0, !PT")
    # Generic addresses: those of shared memory in some lanes, of local memory in others.
    program.add("ISETP.LT.AND P2, PT, R9, RZ, PT", "ISETP.LT.AND P3, PT, R10, RZ, PT", f"MOV R0, {SHARED:#x}")
    program.add(f"MOV R7, {LOCAL:#x}", "SEL R7, R7, R0, P2", "SEL R7, R7, R3, P3", "SEL R6, RZ, R2, P3")
    for low in (2, 6):
        program.add(f"IADD3 R{low}, P0, PT, R{low}, R1, RZ", f"IADD3.X R{low + 1}, PT, PT, R{low + 1}, RZ, RZ, P0, !PT")
    for _ in range(count):
        name, size = draw.choice(list(SIZES.items()))
        register = draw.randrange(FIRST, FIRST + COUNT - 3)
        at = draw.randrange(0, 256, size)
        guard = draw.choice(("", "", "@P2 ", "@!P1 "))
        atom, floats = draw.choice(ATOMS), draw.choice(FLOAT_ATOMS)
        wide = "64" in atom
        place = f"{draw.randrange(0, 256, 8):#x}"
        program.add(guard + draw.choice((
            f"LDS{name} R{register}, [R1+{at:#x}]", f"STS{name} [R1+{at:#x}], R{register}",
            f"LDL{name} R{register}, [R1+{at:#x}]", f"STL{name} [R1+{at:#x}], R{register}",
            f"LDL{name} R{register}, [{at:#x}]", f"STL{name} [{at:#x}], R{register}",
            f"LD.E{name} R{register}, [R6.64+{at:#x}]", f"ST.E{name} [R6.64+{at:#x}], R{register}",
            f"LDG.E{name} R{register}, [R2+{at:#x}]", f"STG.E{name} [R2+{at:#x}], R{register}",
            f"LDC{name} R{register}, c[0x0][R1]" if size <= 8 else "NOP",
            f"LDGSTS.E{name} [R1+{at:#x}], [R2.64+{255 // size * size - at:#x}]" if size >= 4 else "NOP",
            f"ATOMS.{atom} R{register}, [R1+{place}], R{register + 1}" if not wide else "NOP",
            f"ATOM.E.{atom}.STRONG.GPU PT, R{register}, [R6.64+{place}], R{register + 2}",
            f"ATOMG.E.{atom}.STRONG.GPU PT, R{register}, [R2+{place}], R{register + 2}",
            f"ATOMG.E.{floats}.STRONG.GPU PT, R{register}, [R2+{place}], R{register + 2}",
            f"RED.E.{floats}.STRONG.GPU [R2+{place}], R{register}",
            f"ATOMS.CAS R{register}, [R1+{place}], R{register + 1}, R{register + 2}",
            f"ATOMG.E.CAS.64.STRONG.GPU PT, R{register}, [R2+{place}], R{register + 1}, R{register + 2}",
        )))  # fmt: skip


@pytest.mark.seeds(2)
def test_random_accesses_find_and_leave_the_same_memory(seed):
    given = values(np.random.default_rng(seed))
    one, other = both("sm_86", lambda program: accesses_of(program, random.Random(seed), 120), given)
    assert np.array_equal(one, other)


@pytest.mark.parametrize("texts", [
    ("STL [R1+-0x10], R8", "LDL R9, [R1+-0x10]"), ("STS.64 [R1+-0x20], R8", "LDS.64 R10, [R1+-0x20]"),
])  # fmt: skip
def test_a_negative_offset_is_translated_in_strict_mode_too(texts):
    """The whole program ran on the interpreter once."""
    isa = machine("sm_86")
    body = ("MOV R1, 0x40", "MOV R8, 0x5", *texts, "EXIT")
    waits = {2: Control(stall=2, read=0), 3: Control(stall=2, write=1, wait=1), 4: Control(stall=5, wait=2)}
    words = [isa.encode(text, waits.get(at, Control(stall=6)), 16 * at) for at, text in enumerate(body)]
    done = workbench.run(
        Translator("sm_86", worthwhile=0), b"".join(word.to_bytes(16, "little") for word in words), [], groups=(1, 1, 1),
        group_size=(32, 1, 1), registers=16, shared_bytes=256, local_bytes=256, parameters_at=0,
    )  # fmt: skip
    assert isinstance(done, NativeRun)


def test_a_constant_behind_a_descriptor_has_its_value_in_strict_mode_too():
    """One that is an operand was zero once."""
    isa = machine("sm_86")
    found = np.zeros(32, np.uint32)
    body = (
        "S2R R0, SR_TID.X", f"UMOV UR2, {PACKED & 0xFFFF_FFFF:#x}", f"UMOV UR3, {PACKED >> 32:#x}", "MOV R4, 0x4",
        "IMAD.WIDE.U32 R2, R0, R4, c[0x0][0x0]", "IADD3 R5, RZ, cx[UR2][0x8], RZ", "STG.E [R2], R5", "EXIT",
    )  # fmt: skip
    waits = {0: Control(stall=2, write=0), 4: Control(stall=15, wait=1), 6: Control(stall=2, read=0)}
    words = [isa.encode(text, waits.get(at, Control(stall=15)), 16 * at) for at, text in enumerate(body)]
    done = workbench.run(
        Translator("sm_86", worthwhile=0), b"".join(word.to_bytes(16, "little") for word in words), [found, np.uint32(77)],
        groups=(1, 1, 1), group_size=(32, 1, 1), registers=16, parameters_at=0,
    )  # fmt: skip
    assert isinstance(done, NativeRun)
    assert (found == 77).all()


def test_an_f64_result_has_one_nan_whatever_it_is_made_of():
    given = values(np.random.default_rng(1))
    given[FIRST : FIRST + 4] = np.array([5, 0x7FF1_2345, 1, 0xFFF8_0001], np.uint32)[:, None]
    texts = ("DADD R12, R8, -R10", "DMUL R14, -R8, R10", "DFMA R16, R10, R8, -R10")
    one, other = both("sm_86", lambda program: program.add(*texts), given)
    assert np.array_equal(one, other)
    assert {(int(low), int(high)) for low, high in one[12:18, 0].reshape(3, 2)} == {(0, 0xFFF8_0000)}


@pytest.mark.parametrize(("condition", "taken"), [("UP0", True), ("!UP0", False), ("UP1", False), ("!UP1", True)])
def test_a_branch_by_a_uniform_predicate_takes_the_whole_path(condition, taken):
    """Mesa since 25.2 makes them. UP0 is true, UP1 is false."""
    given = values(np.random.default_rng(2))
    texts = (
        "MOV R8, 0x1", "UISETP.EQ.AND UP0, UPT, URZ, URZ, UPT", "UISETP.NE.AND UP1, UPT, URZ, URZ, UPT",
        "ISETP.LT.AND P0, PT, R0, 0x7, PT",
    )  # fmt: skip

    def make(program):
        program.add(*texts)
        at = len(program.words) * 16
        program.add(f"BRA.U {condition}, {at + 32:#x}", "MOV R8, 0x2")
        # some lanes of the path
        at = len(program.words) * 16
        program.add("MOV R9, 0x1", f"@P0 BRA.U {condition}, {at + 48:#x}", "MOV R9, 0x2")

    one, other = both("sm_86", make, given)
    assert np.array_equal(one, other)
    lanes = np.arange(32)
    assert (one[8] == (1 if taken else 2)).all()
    assert np.array_equal(one[9], np.where((lanes < 7) & taken, 1, 2))
