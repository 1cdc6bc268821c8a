"""Fixtures for the shader cores: LLVM 22's assembler, memory with exact bounds, and runs of one program."""

from __future__ import annotations

import ctypes
import struct
import subprocess
from dataclasses import dataclass, field

import numpy as np
import pytest

from ringup.autogen.generate.isa.probe import llvm_mc
from ringup.silicon.shader.common.launch import Group
from ringup.silicon.shader.common.state import Dispatch, MemoryFault, Region
from ringup.silicon.shader.host.emitter import Code
from ringup.silicon.shader.host.native import HostCode
from ringup.silicon.shader.rdna.interpreter import engine as interpreter
from ringup.silicon.shader.rdna.interpreter.engine import Interpreter
from ringup.silicon.shader.rdna.translator.engine import Translator
from ringup.silicon.shader.rdna.translator.translations import QUICK, THOROUGH, THREADED
from ringup.silicon.shader.rdna.writer.wave import RULES, Wave

CODE_VA = 0x10_0000


def text_section(elf: bytes) -> bytes:
    """Return `.text` of an ELF64 object file."""
    (sections,) = struct.unpack_from("<Q", elf, 0x28)
    size, count, names = struct.unpack_from("<HHH", elf, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", elf, sections + size * i) for i in range(count)]
    strings = headers[names][4]
    for name, _, _, _, offset, length in headers:
        if elf[strings + name :].startswith(b".text\0"):
            return elf[offset : offset + length]
    raise AssertionError("no .text")


@pytest.fixture(scope="session")
def assemble(headers):
    """`assemble(text, wave_size=32, processor="gfx1100")` returns LLVM 22's machine code. A line that it rejects fails
    the test.
    """
    command = llvm_mc(headers("llvm-22"))
    done = {}

    def run(text, wave_size=32, processor="gfx1100"):
        key = text, wave_size, processor
        if key not in done:
            argv = [*command, "-triple=amdgcn-amd-amdhsa", f"-mcpu={processor}", "-filetype=obj", "-o", "-"]
            # Halves of registers have names in texts for gfx1201.
            features = ["+real-true16"] * (processor == "gfx1201") + ["+wavefrontsize64"] * (wave_size == 64)
            if features:
                argv.append(f"-mattr={','.join(features)}")
            result = subprocess.run(argv, input=text.encode(), capture_output=True, timeout=60, check=False)
            assert not result.returncode, result.stderr.decode()
            done[key] = text_section(result.stdout)
        return done[key]

    return run


@dataclass
class Arena:
    """Memory made of allocations. An address between them faults."""

    regions: list[tuple[Region, np.ndarray]] = field(default_factory=list)
    epoch: int = 0

    def place(self, gpu_va: int, data, *, writable: bool = True, executable: bool = False) -> np.ndarray:
        """Map a copy of `data` (bytes, or a number of zeros) and return its bytes."""
        raw = np.zeros(data, np.uint8) if isinstance(data, int) else np.frombuffer(bytes(data), np.uint8).copy()
        self.regions.append((Region(gpu_va, raw.size, raw.ctypes.data, writable, executable), raw))
        return raw

    def region(self, gpu_va: int, write: bool, execute: bool = False) -> Region:
        """Find an allocation."""
        for one, _ in self.regions:
            if one.gpu_va <= gpu_va < one.gpu_va + one.size_bytes:
                if (write and not one.writable) or (execute and not one.executable):
                    raise MemoryFault(gpu_va, write, "not permitted")
                return one
        raise MemoryFault(gpu_va, write, "not mapped")


class Heard:
    """Records the messages of waves. Its clock stands at 0x1_2345_6789."""

    def __init__(self) -> None:
        self.messages = []

    def message(self, code, m0, wave):
        """Record a message and answer with 7."""
        self.messages.append((code, m0, wave.name))
        return 7

    def realtime(self):
        """Return a value of more than 32 bits."""
        return 0x1_2345_6789


@dataclass
class Machine:
    """Memory, and one engine to run programs in it."""

    assemble: object
    engine: object = field(default_factory=Interpreter)
    arena: Arena = field(default_factory=Arena)
    heard: Heard = field(default_factory=Heard)
    code_end: int = CODE_VA

    def buffer(self, gpu_va: int, values, dtype="<u4", **rights) -> np.ndarray:
        """Map an array; return the view of it that kernels change."""
        raw = self.arena.place(gpu_va, np.asarray(values, dtype).tobytes(), **rights)
        return raw.view(dtype)

    def start(self, text, *, engine=None, strict=True, **dispatch):
        """Assemble `text` and begin its dispatch. By default it is one wave32 of 32 work-items, with `user_sgprs` from
        s[0:1] on.
        """
        values = {"wave_size": 32, "group_size": (32, 1, 1), "group_count": (1, 1, 1), "vgpr_count": 48} | dispatch
        code = self.assemble(text, values["wave_size"], self.engine.target)
        pc = self.code_end
        self.arena.place(pc, code, executable=True, writable=False)
        self.code_end = pc + len(code) + 0xFF & ~0xFF
        return (engine or self.engine).start(Dispatch(pc=pc, **values), self.arena, self.heard, strict=strict)

    def run(self, text, **dispatch):
        """Run `text` to its end. It may break no rule."""
        run = self.start(text, **dispatch)
        for _ in range(1000):
            if run.step(10_000):
                break
            assert not run.violations, "\n".join(map(str, run.violations))
        else:
            raise AssertionError("the program does not end")
        assert not run.violations, "\n".join(map(str, run.violations))
        return run

    def broken(self, text, **dispatch):
        """Run `text` until it breaks a rule; return that violation."""
        run = self.start(text, **dispatch)
        assert not run.step(10_000)
        assert run.violations, "no rule was broken"
        return run.violations[0]


# The tests of these modules hold for every engine.
SHARED_PROMISES = ("test_interpreter_", "test_strict")
# None is the interpreter; the others are levels of the translator.
ENGINES = {
    "interpreter": None, "threaded translator": THREADED, "translator": QUICK, "thorough translator": THOROUGH,
}  # fmt: skip
# These tests read counters of memory, which the translator keeps only on request.
COUNTS = {
    "test_counters_tell_classes_places_and_lanes", "test_conflicts_are_counted_by_bank",
}  # fmt: skip


def pytest_generate_tests(metafunc):
    """Run the tests of these modules on every engine."""
    if "machine" in metafunc.fixturenames and metafunc.module.__name__.rpartition(".")[2].startswith(SHARED_PROMISES):
        metafunc.parametrize("machine", ENGINES, indirect=True)
    if "rdna4" in metafunc.fixturenames:
        metafunc.parametrize("rdna4", ENGINES, indirect=True)


@pytest.fixture
def rdna4(request, assemble):
    """A `Machine` of gfx1201 with empty memory, on the interpreter unless a test says otherwise."""
    level = ENGINES[getattr(request, "param", "interpreter")]
    engine = Interpreter(target="gfx1201") if level is None else Translator(level=level, target="gfx1201")
    return Machine(assemble, engine)


@pytest.fixture
def machine(request, assemble):
    """A `Machine` with empty memory, on the interpreter unless a test says otherwise."""
    level = ENGINES[getattr(request, "param", "interpreter")]
    counts = request.function.__name__ in COUNTS
    return Machine(assemble, Interpreter() if level is None else Translator(counting=counts, level=level))


class _Bailed(Exception):
    """The rule leaves its instruction to the interpreter."""


class _OneRule(Wave):
    """A wave for one rule alone. What the rule leaves to the interpreter is not translated."""

    def bail(self, ins):
        raise _Bailed


def _rule_of(ins):
    return RULES.get(ins.mnemonic) or RULES[ins.mnemonic.replace("v_dual_", "v_", 1)]


def _translated(ins, name, lanes, vgprs, mode):
    """Return the IR of one instruction as a function of the wave's words, and the IR's declarations. Return None if the
    rule bails.
    """
    code = Code()
    wave = _OneRule(code, lanes, vgprs, strict=False, counting=False, in_state=True, generation=ins.generation)
    wave.mode = wave.mode_of(mode)
    wave.begin()
    try:
        if ins.parts:
            with wave.together():
                for part in ins.parts:
                    _rule_of(part)(wave, part)
        else:
            _rule_of(ins)(wave, ins)
    except _Bailed:
        return None
    wave.flush()
    return [f"define void @{name}(ptr %wave) {{", *code.lines, "ret void", "}"], code.declarations


@pytest.fixture(scope="session")
def translated():
    """`translated(instructions, lanes, vgprs, mode)` compiles the rule of each instruction. It returns a list of
    functions of a `WaveState`; None where the rule bails.
    """
    # Owns the code to which the functions point.
    kept = []

    def build(instructions, lanes, vgprs, mode):
        found = [_translated(ins, f"f{i}", lanes, vgprs, mode) for i, ins in enumerate(instructions)]
        declarations, lines = {}, []
        for body, needs in (one for one in found if one is not None):
            declarations |= needs
            lines += body
        code = HostCode.of("\n".join([*lines, ""]), level=QUICK, declarations=declarations)
        kept.append(code)
        signature = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

        def call(number):
            function = signature(code.address(f"f{number}"))
            return lambda wave: function(wave.address)

        return [None if one is None else call(i) for i, one in enumerate(found)]

    return build


@pytest.fixture(scope="session")
def interpreted():
    """`interpreted(instructions, lanes, vgprs)` returns a list of functions of a `WaveState`. Each executes one
    instruction.
    """

    def build(instructions, lanes, vgprs):
        arena = Arena()
        arena.place(CODE_VA, b"".join(one.raw for one in instructions) + bytes(64), executable=True)
        dispatch = Dispatch(
            pc=CODE_VA, wave_size=lanes, group_size=(lanes, 1, 1), group_count=(1, 1, 1), vgpr_count=vgprs
        )
        common = interpreter.Machine(dispatch, arena, Heard(), strict=False, generation=instructions[0].generation)
        group = Group(dispatch, (0, 0, 0), np.zeros(0, np.uint8), np.zeros(0, np.bool_))
        places = np.cumsum([CODE_VA, *(len(one.raw) for one in instructions)])

        def call(number):
            def run(wave):
                wave.pc = int(places[number])
                assert interpreter.step_one(wave, group, common) is interpreter.Exit.NEXT

            return run

        return [call(i) for i in range(len(instructions))]

    return build
