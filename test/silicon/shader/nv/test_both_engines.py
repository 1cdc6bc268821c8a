"""Both engines leave the same registers: random instructions of every row, random accesses to memory of all kinds."""

import random

import numpy as np
import pytest

from ringup.autogen.isa import sass
from ringup.autogen.isa.sass import Choice, Number, Optional
from ringup.compiler.isa.sass import Control, machine
from ringup.errors import Unmodelled
from ringup.silicon.shader.nv import workbench
from ringup.silicon.shader.nv.decoding.decode import IllegalInstruction, decode
from ringup.silicon.shader.nv.interpreter import control, memory
from ringup.silicon.shader.nv.interpreter.accesses import accesses
from ringup.silicon.shader.nv.interpreter.engine import Interpreter
from ringup.silicon.shader.nv.interpreter.step import RuleBroken
from ringup.silicon.shader.nv.translator.engine import NativeRun, Translator

# Random instructions read and write registers from FIRST on, predicates 0 to 3, uniform registers from 4 on.
FIRST, COUNT, LAUNCHED = 8, 12, 24
UNIFORM, UNIFORMS = 4, 5
PREDICATES = 4
WORD_BYTES = 16
# What a program stores: registers, uniform registers, predicates of both kinds; then a page for random accesses.
ROWS, PAGE = LAUNCHED + UNIFORMS + 2 * PREDICATES, 8
SHARED, LOCAL = workbench.SHARED_WINDOW >> 32, workbench.LOCAL_WINDOW >> 32
# This uniform register and the next one describe constant bank 0.
DESCRIPTOR = 2
PACKED = workbench.CONSTANTS >> 4 | 256 >> 4 << 45


class Program:
    """Words with a common beginning, that loads registers, and a common end, that stores them."""

    def __init__(self, target):
        self.isa = machine(target)
        self.words = []
        self.load, self.store = ("LDG.E.SYS", "STG.E.SYS") if target == "sm_75" else ("LDG.E", "STG.E")

    def add(self, *texts):
        for text in texts:
            self.words.append(self.isa.encode(text, Control(stall=15), len(self.words) * WORD_BYTES))

    def begin(self):
        self.add("S2R R0, SR_TID.X", "MOV R1, 0x4", "IMAD.WIDE.U32 R2, R0, R1, c[0x0][0x0]")
        self.add("IMAD.WIDE.U32 R4, R0, R1, c[0x0][0x8]")
        for number in range(FIRST, LAUNCHED):
            self.add(f"{self.load} R{number}, [R2+{128 * number:#x}]")
        self.add(f"UMOV UR{DESCRIPTOR}, {PACKED & 0xFFFF_FFFF:#x}", f"UMOV UR{DESCRIPTOR + 1}, {PACKED >> 32:#x}")
        for number in range(UNIFORMS):
            self.add(f"R2UR UR{UNIFORM + number}, R{FIRST + number}")
        for number in range(PREDICATES):
            self.add(f"ISETP.LT.AND P{number}, PT, R{FIRST + number}, RZ, PT")
            self.add(f"UISETP.LT.AND UP{number}, UPT, UR{UNIFORM + number}, URZ, UPT")

    def end(self):
        for number in range(FIRST, LAUNCHED):
            self.add(f"{self.store} [R4+{128 * number:#x}], R{number}")
        for number in range(UNIFORMS):
            self.add(f"MOV R0, UR{UNIFORM + number}", f"{self.store} [R4+{128 * (LAUNCHED + number):#x}], R0")
        for number in range(PREDICATES):
            self.add(f"SEL R0, RZ, 0x1, P{number}", f"USEL UR0, URZ, 0x1, UP{number}", "MOV R1, UR0")
            self.add(f"{self.store} [R4+{128 * (LAUNCHED + UNIFORMS + 2 * number):#x}], R0")
            self.add(f"{self.store} [R4+{128 * (LAUNCHED + UNIFORMS + 2 * number + 1):#x}], R1")
        self.add("EXIT")

    def run(self, engine, given):
        found = np.zeros((ROWS + PAGE, 32), np.uint32)
        code = b"".join(word.to_bytes(WORD_BYTES, "little") for word in self.words)
        done = workbench.run(
            engine, code, [given.copy(), found, given[:2].tobytes()[:100]], groups=(1, 1, 1), group_size=(32, 1, 1), registers=LAUNCHED + 4,
            shared_bytes=4096, local_bytes=512, parameters_at=0,
        )  # fmt: skip
        return done, found


def values(draw):
    """Numbers of all kinds: random bits, small integers, floats, halves, and what is special of them."""
    shape = LAUNCHED, 32
    kinds = [
        draw.integers(0, 1 << 32, shape, np.uint32), draw.integers(0, 40, shape, np.uint32),
        draw.normal(0, 100, shape).astype(np.float32).view(np.uint32),
        draw.normal(0, 3, (LAUNCHED, 64)).astype(np.float16).view(np.uint32),
        draw.choice(np.array([0, 0x8000_0000, 0x7F80_0000, 0xFF80_0000, 0x7FC0_0001, 1, 0x3F80_0000, 0x7C00_FC00, 0x0001_8001,
                              0xFFFF_FFFF, 0x7FFF_FFFF, 0x4F00_0000, 0x7E00_3C00, 0x7BFF_7BFF], np.uint32), shape),
    ]  # fmt: skip
    # Pairs that are doubles.
    doubles = (draw.normal(0, 1000, (LAUNCHED // 2, 32))).view(np.uint64)
    pairs = np.empty(shape, np.uint32)
    pairs[0::2], pairs[1::2] = doubles & 0xFFFF_FFFF, doubles >> 32
    kinds.append(pairs)
    which = draw.integers(0, len(kinds), (LAUNCHED // 2, 1)).repeat(2, 0)
    return np.choose(which, kinds).astype(np.uint32)


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


SKIPPED = {*control.RULES, *memory.RULES, "S2R", "S2UR", "CS2R"}
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


def both(target, make, given):
    """Run a program on both engines; return what each stored."""
    found = []
    for engine in (Interpreter(target, strict=False), Translator(target, strict=False, worthwhile=0)):
        program = Program(target)
        program.begin()
        make(program)
        program.end()
        done, result = program.run(engine, given)
        found.append(result)
    assert isinstance(done, NativeRun)
    return found


AT_ONCE = 200


@pytest.mark.parametrize("target", ["sm_75", "sm_86"])
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
    assert len({ins.name for _, ins in words}) >= 60


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
