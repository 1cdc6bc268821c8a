"""clang as the reference: one C source compiled for the GPU (clang 19: gfx1100, gfx1151, gfx1201, gfx942) and for this
computer, and run on the same data.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import random_source
from language.rdna4_code import compile_with

from ringup.silicon.shader import workbench
from ringup.silicon.shader.amd.interpreter.engine import Interpreter
from ringup.silicon.shader.amd.translator.engine import Translator
from ringup.silicon.shader.program import load
from ringup.tools.common.paths import cache_folder

HERE = Path(__file__).parent
GROUP = 64
# Without the processor.
GPU_FLAGS = (
    "-x", "cl", "-cl-std=CL2.0", "-target", "amdgcn-amd-amdhsa", "-nogpulib", "-ffp-contract=off",
    "-cl-fp32-correctly-rounded-divide-sqrt", "-Werror=implicit-function-declaration", "-w",
)  # fmt: skip
HOST_FLAGS = (
    "-x",
    "c",
    "-O1",
    "-fwrapv",
    "-ffp-contract=off",
    "-fno-strict-aliasing",
    "-Xclang",
    "-ffloat16-excess-precision=none",
    "-fPIC",
    "-shared",
    "-w",
)
CXX_FLAGS = ("-x", "c++", "-std=c++17", "-fno-exceptions", "-fno-rtti")
TYPES = {
    "u8": np.uint8, "i8": np.int8, "u16": np.uint16, "i16": np.int16, "u32": np.uint32, "i32": np.int32, "u64": np.uint64,
    "i64": np.int64, "f16": np.float16, "f32": np.float32, "f64": np.float64,
}  # fmt: skip
_NAMED = re.compile(r"^(MAP|KERNEL|GROUP_KERNEL)\((\w+), (\w+), (\w+),(?: (\w+)\))?", re.MULTILINE)


@dataclass(frozen=True)
class Case:
    """A kernel of the corpus, and the element types of its output and inputs."""

    source: str
    name: str
    types: tuple[str, str, str]

    def __str__(self) -> str:
        return self.name


# This source runs at all levels and wave sizes.
BOUNDS = "bounds.c"
# Kernels with instructions that GFX9 lacks.
RDNA_ONLY = frozenset(("dpp_share_xmask", "dpp8", "permlane16", "permlanex16", "permlane64"))
# QUIRK: LLVM 22's StructurizeCFG loses values of a loop that has two entries (llvm-project issue 210695), so this
# kernel's code for gfx1100 does not end either when LLVM 22 makes it. Without optimisation, it is right.
WRONG_BY_LLVM_22 = frozenset(("goto_irreducible",))
ALL_WAYS = [(level, wave_size) for level in ("-O1", "-O2", "-O3", "-Os") for wave_size in (32, 64)]


def flags_of(source: str, *more: str, processor: str = "") -> tuple[str, ...]:
    """Return the compiler's flags for a source, as OpenCL C or C, or as C++; `processor` is that of the GPU."""
    flags = (*GPU_FLAGS, f"-mcpu={processor}") if processor else HOST_FLAGS
    if source.endswith(".cpp"):
        flags = (*CXX_FLAGS, *(one for one in flags[2:] if not one.startswith("-cl-")))
    return *flags, *more


def cases(pattern: str = "[!b]*.c*") -> list[Case]:
    """List the kernels in the sources by their macros."""
    found = []
    for path in sorted(HERE.glob(pattern)):
        for macro, name, out, first, second in _NAMED.findall(path.read_text()):
            found.append(Case(path.name, name, (out, first, first if macro == "MAP" else second)))
    return found


def compiled(source: str | Path, flags: tuple[str, ...], folder: Path | None = None) -> Path:
    """Compile a source of this folder, or any other into `folder`. What was compiled before is reused. A missing clang
    fails the test.
    """
    text = (HERE / source).read_bytes() + (HERE / "common.h").read_bytes()
    processor = next((one.removeprefix("-mcpu=") for one in flags if one.startswith("-mcpu=")), "")
    key = repr(flags) + " and llc 22" * processor.startswith("gfx12")
    name = hashlib.sha256(key.encode() + text).hexdigest()[:32]
    path = (folder or cache_folder() / "corpus") / name
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        made = path.with_suffix(".new")
        compile_with(["clang-19", *flags, "-I", str(HERE), str(HERE / source)], processor, made)
        made.rename(path)
    return path


def values(draw: np.random.Generator, name: str, count: int) -> np.ndarray:
    """Draw numbers of a type: integers of all magnitudes, and floats that fit in 32-bit integers."""
    kind = np.dtype(TYPES[name])
    if kind.kind in "ui":
        raw = np.frombuffer(draw.bytes(count * kind.itemsize), f"u{kind.itemsize}")
        found = (raw >> draw.integers(0, kind.itemsize * 8, count).astype(raw.dtype)).astype(kind)
        return np.where(draw.random(count) < 0.3, ~found, found).astype(kind)
    found = draw.standard_normal(count) * 10.0 ** draw.integers(-3, 3, count)
    found[:: max(count // 7, 1)] = 0.0
    return found.astype(kind)


def launch(engine, program, name: str, groups: int, buffers: list[np.ndarray], n: int) -> None:
    """Run a kernel over `groups` groups to its end. A broken rule fails the test."""
    workbench.run(
        engine, program, name, [*buffers, n], groups=(groups, 1, 1), group_size=(GROUP, 1, 1), limit=200_000_000
    )


def pytest_generate_tests(metafunc):
    """Give each test its kernels: all of them with their number, or every eighth for the slow engine."""
    found = cases()
    if "turn" in metafunc.fixturenames:
        metafunc.parametrize(
            ("case", "turn"), [(case, i) for i, case in enumerate(found)], ids=[case.name for case in found]
        )
    elif "case" in metafunc.fixturenames:
        metafunc.parametrize("case", found, ids=str)
    elif "case_of_bounds" in metafunc.fixturenames:
        found = cases(BOUNDS)
        if "way" not in metafunc.fixturenames:
            metafunc.parametrize("case_of_bounds", found[::4], ids=str)
            return
        # Each kernel runs in three of eight ways, in turn. `make fuzz` runs the others.
        metafunc.parametrize(
            ("case_of_bounds", "way"),
            [
                pytest.param(
                    case,
                    way,
                    id=f"{case.name}{way[0]}-{way[1]}",
                    marks=() if (at - i) % 8 in (0, 3, 5) else pytest.mark.fuzz,
                )
                for i, case in enumerate(found)
                for at, way in enumerate(ALL_WAYS)
            ],
        )
    elif "case_of_few" in metafunc.fixturenames:
        metafunc.parametrize("case_of_few", found[::8], ids=str)
    elif "case_of_rdna4" in metafunc.fixturenames:
        # Every eighth kernel, others than those above. `make fuzz` runs all.
        metafunc.parametrize(
            ("case_of_rdna4", "number"),
            [
                pytest.param(case, i, id=case.name, marks=() if i % 8 == 4 else pytest.mark.fuzz)
                for i, case in enumerate(found)
                if case.name not in WRONG_BY_LLVM_22
            ],
        )
    elif "case_of_rdna3_5" in metafunc.fixturenames:
        metafunc.parametrize(
            ("case_of_rdna3_5", "number"),
            [
                pytest.param(case, i, id=case.name, marks=() if i % 32 == 12 else pytest.mark.fuzz)
                for i, case in enumerate(found)
            ],
        )
    elif "case_of_cdna3" in metafunc.fixturenames:
        metafunc.parametrize(
            ("case_of_cdna3", "number"),
            [
                pytest.param(case, i, id=case.name, marks=() if i % 16 == 8 else pytest.mark.fuzz)
                for i, case in enumerate(found)
                if case.name not in RDNA_ONLY
            ],
        )


ENGINES = {"interpreter": Interpreter, "translator": Translator}


@pytest.fixture(scope="session")
def judge():
    """`judge(case, level, wave_size, engine, groups)` returns the kernel's output and this computer's on the same
    inputs.
    """
    engines, programs, hosts = {}, {}, {}

    def run(case, level, wave_size, engine, groups, processor="gfx1100"):
        if (engine, processor) not in engines:
            engines[engine, processor] = ENGINES[engine](target=processor)
        lanes = f"-m{'no-' if wave_size == 32 else ''}wavefrontsize64"
        flags = flags_of(case.source, level, lanes, processor=processor)
        key = case.source, flags
        if key not in programs:
            programs[key] = load(compiled(case.source, flags).read_bytes())
        if (case.source, wave_size) not in hosts:
            flags = flags_of(case.source, f"-DWAVE={wave_size}")
            hosts[case.source, wave_size] = ctypes.CDLL(str(compiled(case.source, flags)))
        n = groups * GROUP
        draw = np.random.default_rng(list(case.name.encode()))
        inputs = [values(draw, name, n) for name in case.types[1:]]
        found = [np.zeros(n, TYPES[case.types[0]]), *(one.copy() for one in inputs)]
        wanted = [np.zeros(n, TYPES[case.types[0]]), *(one.copy() for one in inputs)]
        pointers = [ctypes.c_void_p(one.ctypes.data) for one in wanted]
        getattr(hosts[case.source, wave_size], case.name)(*pointers, ctypes.c_uint32(n), ctypes.c_uint32(groups))
        launch(engines[engine, processor], programs[key], case.name, groups, found, n)
        return found[0], wanted[0]

    return run


@pytest.fixture(scope="session")
def corpus():
    """Compiles and runs sources that tests generate."""
    return SimpleNamespace(
        Source=random_source.Source, GPU_FLAGS=GPU_FLAGS, HOST_FLAGS=(*HOST_FLAGS, "-DWAVE=32"), GROUP=GROUP,
        compiled=compiled, values=values, launch=launch,
        engines=(Translator(), Translator(target="gfx1201"), Translator(target="gfx942"), Translator(target="gfx1151")),
    )  # fmt: skip


def _same(found, wanted):
    """Compare bit for bit. NaNs count as equal, because no document says which payload arithmetic gives a NaN."""
    if found.dtype.kind != "f":
        return found == wanted
    return (found == wanted) | (np.isnan(found) & np.isnan(wanted))


@pytest.fixture(scope="session")
def check(judge):
    """`check(case, level, wave_size, engine, groups, processor)` asserts that the kernel's output equals this
    computer's.
    """

    def compare(*of):
        found, wanted = judge(*of)
        wrong = np.flatnonzero(~_same(found, wanted))
        assert not wrong.size, f"{wrong.size} differ, first [{wrong[0]}]: {found[wrong[0]]!r}, not {wanted[wrong[0]]!r}"

    return compare
