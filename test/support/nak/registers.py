"""Programs for NVIDIA's cores that load registers from a buffer, do something, and store them; on both engines."""

import numpy as np

from ringup.compiler.isa.sass import Control, machine
from ringup.silicon.shader.nv import workbench
from ringup.silicon.shader.nv.interpreter.engine import Interpreter
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

    def run(self, engine, given, more=(), **pools):
        found = np.zeros((ROWS + PAGE, 32), np.uint32)
        code = b"".join(word.to_bytes(WORD_BYTES, "little") for word in self.words)
        done = workbench.run(
            engine, code, [given.copy(), found, given[:2].tobytes()[:100], *more], groups=(1, 1, 1), group_size=(32, 1, 1),
            registers=LAUNCHED + 4,
            shared_bytes=4096, local_bytes=512, parameters_at=0, **pools,
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


def both(target, make, given, more=(), **pools):
    """Run a program on both engines; return what each stored. `more` are buffers behind the program's own."""
    found = []
    for engine in (Interpreter(target, strict=False), Translator(target, strict=False, worthwhile=0)):
        program = Program(target)
        program.begin()
        make(program)
        program.end()
        done, result = program.run(engine, given, more() if callable(more) else more, **pools)
        found.append(result)
    assert isinstance(done, NativeRun)
    return found
