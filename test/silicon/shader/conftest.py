"""Fixtures for the shader cores: LLVM 22's assembler, memory with exact bounds, and runs of one program."""

from __future__ import annotations

import ctypes
import functools
import re
import struct
import subprocess
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import pytest

from ringup.autogen import isa
from ringup.autogen.generate.isa.probe import llvm_mc
from ringup.silicon.shader.amd.decoding.gcn_names import engine_name
from ringup.silicon.shader.amd.interpreter import engine as interpreter
from ringup.silicon.shader.amd.interpreter.engine import Interpreter
from ringup.silicon.shader.amd.translator.engine import Translator
from ringup.silicon.shader.amd.translator.translations import QUICK, THOROUGH, THREADED
from ringup.silicon.shader.amd.writer.wave import Wave, rule_of
from ringup.silicon.shader.common.launch import Group
from ringup.silicon.shader.common.state import Dispatch, MemoryFault, Region
from ringup.silicon.shader.host.context import SPARE_WORD
from ringup.silicon.shader.host.emitter import Code
from ringup.silicon.shader.host.native import HostCode

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


# The counters of RDNA4 that one of RDNA3 became.
_RDNA4_COUNTERS = {"vm": ("load",), "lgkm": ("ds", "km"), "exp": ("exp",)}


def _rdna4_waits(found):
    """Return RDNA4's waits for exactly what an s_waitcnt of RDNA3 waits for."""
    limits = re.findall(r"(\w+)cnt\((\w+)\)", found[0])
    assert limits, found[0]
    return "\n ".join(f"s_wait_{new}cnt {limit}" for old, limit in limits for new in _RDNA4_COUNTERS[old])


# Spellings of RDNA3, and those of RDNA4: barriers, waits for several counters, no scalar offset, returning atomics.
_RDNA4_SPELLINGS = (
    (r"s_barrier\b(?!_)", "s_barrier_signal -1\n s_barrier_wait -1"),
    (r"s_waitcnt_vscnt null, 0(x0)?", "s_wait_storecnt 0x0"), (r"s_waitcnt [^\n]*", _rdna4_waits),
    (r"(buffer_[^\n]*\]), 0 ", r"\1, null "), (r" glc\b", " th:TH_ATOMIC_RETURN"),
    (r"ds_(min|max)_(rtn_)?f", r"ds_\1_num_\2f"),
)  # fmt: skip


# Those of CDNA3, besides mnemonics. v46 has the lane's number times 4 there.
_CDNA3_SPELLINGS = (
    (r"s_waitcnt_vscnt null, 0(x0)?", "s_waitcnt vmcnt(0)"), (r", null\b", ", 0x0"), (r" glc\b", " sc0"),
    (r"global_load_addtid_b32 (v\d+), (\S+)", r"global_load_dword \1, v46, \2"),
    (r"global_store_addtid_b32 (v\d+), (\S+)", r"global_store_dword v46, \1, \2"),
)  # fmt: skip
# Processors whose waves have 64 lanes only.
CDNA = ("gfx942", "gfx950")
_LANE_OFFSETS = "v_mbcnt_lo_u32_b32 v46, -1, 0\nv_mbcnt_hi_u32_b32 v46, -1, v46\nv_lshlrev_b32 v46, 2, v46"


@functools.cache
def _gcn_names():
    """Return GCN's mnemonics by those of RDNA3."""
    return {engine_name(one.mnemonic): one.mnemonic for one in isa.target("gfx942").instructions}


def _spelled_for_cdna3(text):
    """Return a program for gfx1100 as one for CDNA, with wait states between all instructions."""
    for old, new in _CDNA3_SPELLINGS:
        text = re.sub(old, new, text)
    names = _gcn_names()
    lines = [
        re.sub(r"^\s*(\w+)(?!:)\b", lambda found: names.get(found[1], found[1]), line) for line in text.splitlines()
    ]
    return "\n".join([_LANE_OFFSETS, *(f"{line}\ns_nop 15" for line in lines)])


def spelled_for(processor, text):
    """Return a program for gfx1100 as one for another processor."""
    if processor in CDNA:
        return _spelled_for_cdna3(text)
    if processor == "gfx1201":
        for old, new in _RDNA4_SPELLINGS:
            text = re.sub(old, new, text)
    return text


@dataclass
class Machine:
    """Memory, and one engine to run programs in it. If it `respells`, programs are written for gfx1100."""

    assemble: object
    engine: object = field(default_factory=Interpreter)
    arena: Arena = field(default_factory=Arena)
    heard: Heard = field(default_factory=Heard)
    code_end: int = CODE_VA
    respells: bool = False

    def buffer(self, gpu_va: int, values, dtype="<u4", **rights) -> np.ndarray:
        """Map an array; return the view of it that kernels change."""
        raw = self.arena.place(gpu_va, np.asarray(values, dtype).tobytes(), **rights)
        return raw.view(dtype)

    def start(self, text, *, engine=None, strict=True, **dispatch):
        """Assemble `text` and begin its dispatch. By default it is one wave32 of 32 work-items, with `user_sgprs` from
        s[0:1] on.
        """
        lanes = 64 if self.engine.target in CDNA else 32
        values = {
            "wave_size": lanes,
            "group_size": (lanes, 1, 1),
            "group_count": (1, 1, 1),
            "vgpr_count": 48,
        } | dispatch
        if self.respells:
            text = spelled_for(self.engine.target, text)
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


# Tests of `test_strict*` that name counters, hazards or barriers of RDNA3: `test_rdna4_rules.py` has RDNA4's in its own
# words. The others hold for RDNA4 too; under `--fuzz` they run there with respelled programs.
OF_RDNA3 = {
    "test_a_dispatch_that_broke_a_rule_never_ends_and_others_go_on", "test_a_register_in_flight_may_not_be_touched",
    "test_a_wait_that_covers_a_load_frees_its_register", "test_halves_are_waited_for_apart",
    "test_instructions_far_enough_apart_are_right", "test_instructions_may_not_follow_too_closely",
    "test_lds_that_nobody_wrote_may_be_computed_with", "test_what_an_instruction_reaches_at_run_time_is_held_to_the_rules",
    "test_what_comes_of_lds_that_nobody_wrote_may_not_decide", "test_what_is_stored_to_lds_is_there_before_a_barrier",
    "test_what_nobody_wrote_may_not_decide", "test_what_nobody_wrote_of_a_matrix_stays_in_its_row_and_column",
}  # fmt: skip
ON_RDNA4 = " of gfx1201"


def pytest_generate_tests(metafunc):
    """Run the tests of these modules on every engine, those of strict mode under `--fuzz` on RDNA4's too."""
    module = metafunc.module.__name__.rpartition(".")[2]
    if "machine" in metafunc.fixturenames and module.startswith(SHARED_PROMISES):
        found = list(ENGINES)
        if module.startswith("test_strict") and metafunc.function.__name__ not in OF_RDNA3:
            found += [pytest.param(one + ON_RDNA4, marks=pytest.mark.fuzz) for one in ENGINES]
        metafunc.parametrize("machine", found, indirect=True)
    if "rdna4" in metafunc.fixturenames:
        # Code between threaded and thorough is seldom wrong alone, and thorough code mostly in what it suspends. What
        # strict mode must check at run time is never threaded code.
        few = {"interpreter", "threaded translator"}
        if module.startswith("test_split"):
            few.add("thorough translator")
        found = [pytest.param(one, marks=() if one in few else pytest.mark.fuzz) for one in ENGINES]
        metafunc.parametrize("rdna4", found, indirect=True)
    for name, few in (
        ("cdna3", {"interpreter", "threaded translator", "translator"}),
        ("cdna4", {"interpreter", "threaded translator"}),
    ):
        if name in metafunc.fixturenames:
            found = [pytest.param(one, marks=() if one in few else pytest.mark.fuzz) for one in ENGINES]
            metafunc.parametrize(name, found, indirect=True)


def _machine_of(target, request, assemble):
    level = ENGINES[getattr(request, "param", "interpreter")]
    engine = Interpreter(target=target) if level is None else Translator(level=level, target=target)
    return Machine(assemble, engine)


@pytest.fixture
def rdna4(request, assemble):
    """A `Machine` of gfx1201 with empty memory, on the interpreter unless a test says otherwise."""
    return _machine_of("gfx1201", request, assemble)


@pytest.fixture
def cdna3(request, assemble):
    """A `Machine` of gfx942 with empty memory, on the interpreter unless a test says otherwise. Its programs are one
    wave of 64 work-items unless a test says otherwise.
    """
    return _machine_of("gfx942", request, assemble)


@pytest.fixture
def cdna4(request, assemble):
    """A `Machine` of gfx950, as `cdna3` is one of gfx942."""
    return _machine_of("gfx950", request, assemble)


@pytest.fixture
def machine(request, assemble):
    """A `Machine` with empty memory, on the interpreter unless a test says otherwise."""
    name = getattr(request, "param", "interpreter")
    target = "gfx1201" if name.endswith(ON_RDNA4) else "gfx1100"
    level, counts = ENGINES[name.removesuffix(ON_RDNA4)], request.function.__name__ in COUNTS
    engine = Interpreter(target=target) if level is None else Translator(counting=counts, level=level, target=target)
    return Machine(assemble, engine, respells=target != "gfx1100")


@pytest.fixture(params=["gfx1100", "gfx1201", "gfx942", pytest.param("gfx950", marks=pytest.mark.fuzz)])
def machine_of_each(request, assemble):
    """A `Machine` of each generation with empty memory, for programs that are written for gfx1100."""
    return Machine(assemble, Interpreter(target=request.param), respells=True)


class _Bailed(Exception):
    """The rule leaves its instruction to the interpreter."""


class _OneRule(Wave):
    """A wave for one rule alone. What the rule leaves to the interpreter is not translated."""

    def bail(self, ins):
        raise _Bailed

    @contextmanager
    def unless(self, condition, ins):
        """Change nothing if the rule leaves its instruction to the interpreter, and note that in the wave's words."""
        self.code.store(self.code.cast("zext", condition, "i32"), self.state_place(SPARE_WORD), 4)
        with self.when(self.code.invert(condition)):
            yield


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
                    rule_of(part)(wave, part)
        else:
            rule_of(ins)(wave, ins)
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


class Held(Executor):
    """An executor that runs its jobs only when a test calls `work`."""

    def __init__(self):
        self.given = []

    def submit(self, function, /, *args, **options):
        future = Future()
        self.given.append((future, lambda: function(*args, **options)))
        return future

    def work(self):
        """Run the jobs that have come so far; return how many there were."""
        given, self.given = self.given, []
        for future, action in given:
            try:
                future.set_result(action())
            except ZeroDivisionError as error:
                future.set_exception(error)
        return len(given)


@pytest.fixture
def held():
    return Held()
