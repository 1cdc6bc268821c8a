"""The shader cores: kernels that clang compiled for gfx1100, in strict mode and not, compared with tinygrad's emulator
on the same code and data; and the same kernels for gfx1201 and gfx942, compared with those for gfx1100.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringup.errors import RingupError
from ringup.silicon.shader import workbench
from ringup.silicon.shader.amd.translator.engine import Translator
from ringup.silicon.shader.amd.translator.handler_store import handlers
from ringup.silicon.shader.common.state import Run
from ringup.silicon.shader.program import CodeObject, load
from ringup.silicon.shader.workbench_arguments import Size
from ringup.tools.bench.bench import Bench
from ringup.tools.bench.figure import Figure, Goal
from ringup.tools.bench.timing import median

Arrays = list[NDArray[Any]]
TARGET, OTHER_TARGETS = "gfx1100", ("gfx1201", "gfx942")
RUNS = 7
PEER_RUNS = 3
# wave-instructions of one run of tinygrad, 1 to 3 s; of a larger grid it runs that many groups
PEER_INSTRUCTIONS = 600_000
CHECKOUT = "tinygrad"  # next to tinygrad's environment
COMPILE_TIMEOUT_S = 120  # TIMEOUT: a second of an idle core
FLAGS = (
    "-x",
    "cl",
    "-cl-std=CL2.0",
    "-target",
    "amdgcn-amd-amdhsa",
    "-mcumode",
    "-nogpulib",
    "-O2",
    "-w",
)
ALU_GOAL, MEMORY_GOAL = Goal("ours", 1000), Goal("ours", 300)
SAME_GOAL = Goal("ratio", 0.8)
NOTE = (
    "wall time, warm; peer: its emulator, which checks no rule of strict mode; of a large grid it was given "
    "a part of the groups, and its time scaled"
)
FIRST_NOTE = "one group, nothing translated before: decoding, translation, host compilation and the run"
SOURCE = r"""
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
typedef unsigned u32;
typedef half half4 __attribute__((ext_vector_type(4)));
typedef half half8 __attribute__((ext_vector_type(8)));
typedef half half16 __attribute__((ext_vector_type(16)));
typedef float float4 __attribute__((ext_vector_type(4)));
typedef float float8 __attribute__((ext_vector_type(8)));
#define X __builtin_amdgcn_workitem_id_x()
#define Y __builtin_amdgcn_workitem_id_y()
#define GX __builtin_amdgcn_workgroup_id_x()
#define GY __builtin_amdgcn_workgroup_id_y()
#define BARRIER() do { __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup"); __builtin_amdgcn_s_barrier(); \
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup"); } while (0)
#define KERNEL(x, y, name, T) __kernel __attribute__((reqd_work_group_size(x, y, 1))) \
  void name(__global float *out, __global const T *a, __global const T *b, u32 n)

KERNEL(256, 1, add, float) { u32 i = GX * 256 + X; out[i] = a[i] + b[i]; }

KERNEL(16, 16, matmul, float) {
  u32 row = GY * 16 + Y, column = GX * 16 + X;
  float sum = 0;
  for (u32 k = 0; k < n; k++) sum = __builtin_fmaf(a[row * n + k], b[k * n + column], sum);
  out[row * n + column] = sum;
}

KERNEL(16, 16, tiled, float) {
  __local float left[16][16], right[16][16];
  u32 row = GY * 16 + Y, column = GX * 16 + X;
  float sum = 0;
  for (u32 k = 0; k < n; k += 16) {
    left[Y][X] = a[row * n + k + X];
    right[Y][X] = b[(k + Y) * n + column];
    BARRIER();
    for (u32 i = 0; i < 16; i++) sum = __builtin_fmaf(left[Y][i], right[i][X], sum);
    BARRIER();
  }
  out[row * n + column] = sum;
}

#ifdef __gfx1201__ /* half of the lanes hold half of K, and of the rows */
#define PART half8
#define FROM (k + X / 16 * 8)
#define ROW (X / 16 * 8 + i)
#define PRODUCT __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12
#elif defined(__gfx942__) /* a quarter of the lanes holds a quarter of K, and of the rows */
#define PART half4
#define FROM (k + X / 16 * 4)
#define ROW (X / 16 * 4 + i)
#define PRODUCT(a, b, c) __builtin_amdgcn_mfma_f32_16x16x16f16(a, b, c, 0, 0, 0)
#else
#define PART half16
#define FROM k
#define ROW (2 * i + X / 16)
#define PRODUCT __builtin_amdgcn_wmma_f32_16x16x16_f16_w32
#endif
#ifdef __gfx942__
#define LANES 64
#define SUM float4
#else
#define LANES 32
#define SUM float8
#endif
KERNEL(LANES, 1, wmma, half) { /* b is transposed */
  u32 line = X % 16;
  SUM sum = 0;
  for (u32 k = 0; k < n; k += 16)
    sum = PRODUCT(*(__global PART *)(a + (GY * 16 + line) * n + FROM),
                  *(__global PART *)(b + (GX * 16 + line) * n + FROM), sum);
  for (u32 i = 0; i < 256 / LANES; i++) out[(GY * 16 + ROW) * n + GX * 16 + line] = sum[i];
}

KERNEL(256, 1, reduce, float) { /* a sum of each 4096 */
  __local float tile[256];
  float sum = 0;
  for (u32 i = X; i < 4096; i += 256) sum += a[GX * 4096 + i];
  tile[X] = sum;
  for (u32 step = 128; step; step /= 2) {
    BARRIER();
    if (X < step) tile[X] += tile[X + step];
  }
  if (X == 0) out[GX] = tile[0];
}

#define MIX(r) h ^= h << (r % 13 + 3); x = x * y + (float)(h & 0xFF); h = h * 0x9E3779B1u + r; y = x > 1e6f ? y * 0.5f : y + x;
#define MIX4(r) MIX(r) MIX(r + 1) MIX(r + 2) MIX(r + 3)
#define MIX16(r) MIX4(r) MIX4(r + 4) MIX4(r + 8) MIX4(r + 12)
KERNEL(256, 1, mix, float) {
  u32 i = GX * 256 + X, h = i;
  float x = a[i], y = b[i];
  for (u32 round = 0; round < n; round++) { MIX16(0) MIX16(16) MIX16(32) MIX16(48) }
  out[i] = x + y + (float)h;
}
"""


@dataclass(frozen=True)
class Case:
    """A kernel with its arguments: `size` is its `n`; `inputs` draws a and b; `wanted` gives the output, within
    `tolerance` of it.
    """

    name: str
    kernel: str
    size: int
    out: tuple[int, ...]
    groups: Size
    group_size: Size
    inputs: Callable[[np.random.Generator], Arrays]
    wanted: Callable[[Arrays], NDArray[Any]] | None
    tolerance: float
    goal: Goal
    quick: bool = False  # tinygrad takes seconds, not minutes


def _floats(*shape: int) -> Callable[[np.random.Generator], Arrays]:
    return lambda draw: [draw.random(shape, np.float32) for _ in range(2)]


def _halves(size: int) -> Callable[[np.random.Generator], Arrays]:
    return lambda draw: [draw.random((size, size)).astype(np.float16) for _ in range(2)]


def _product(inputs: Arrays) -> NDArray[Any]:
    return inputs[0].astype(np.float64) @ inputs[1]


def _product_transposed(inputs: Arrays) -> NDArray[Any]:
    return inputs[0].astype(np.float64) @ inputs[1].T


def _sums(inputs: Arrays) -> NDArray[Any]:
    sums: NDArray[Any] = inputs[0].reshape(-1, 4096).sum(1, np.float64)
    return sums


def _square(kernel: str, title: str, size: int, goal: Goal) -> Case:
    """Return a product of two square matrices of f32."""
    grid, shape = (size // 16, size // 16, 1), (size, size)
    return Case(
        f"{title} {size}", kernel, size, shape, grid, (16, 16, 1), _floats(*shape), _product, 1e-3, goal, size <= 64
    )


def _wmma(size: int) -> Case:
    grid, shape = (size // 16, size // 16, 1), (size, size)
    return Case(
        f"matmul f16 by WMMA {size}",
        "wmma",
        size,
        shape,
        grid,
        (32, 1, 1),
        _halves(size),
        _product_transposed,
        1e-2,
        ALU_GOAL,
    )


M = 1 << 20
SIZES = (64, 128, 256, 512)
MIX_ITEMS, MIX_ROUNDS = 1 << 14, 16
CASES = (
    Case("add 1 M floats", "add", M, (M,), (M // 256, 1, 1), (256, 1, 1), _floats(M), lambda given: given[0] + given[1], 0, MEMORY_GOAL, True),
    Case("sum 1 M floats", "reduce", M, (M // 4096,), (M // 4096, 1, 1), (256, 1, 1), _floats(M), _sums, 1e-2, MEMORY_GOAL, True),
    *(_square("matmul", "matmul", size, MEMORY_GOAL) for size in SIZES),
    *(_square("tiled", "matmul tiled in LDS", size, MEMORY_GOAL) for size in SIZES),
    *(_wmma(size) for size in SIZES[2:]),
    Case("mixed arithmetic", "mix", MIX_ROUNDS, (MIX_ITEMS,), (MIX_ITEMS // 256, 1, 1), (256, 1, 1), _floats(MIX_ITEMS), None, 0, ALU_GOAL),
)  # fmt: skip


def measure(bench: Bench) -> Iterator[Figure]:
    """Run every kernel with both, and on all generations. Outputs are compared before times."""
    program, *others = (load(compiled(target=one)) for one in (TARGET, *OTHER_TARGETS))
    checkout = _checkout(bench)
    for case in CASES:
        bench.say(case.name)
        arguments = [np.zeros(case.out, np.float32), *case.inputs(np.random.default_rng(1))]
        work = _work(case, program, arguments)
        strict, loose = (_seconds(case, program, arguments, strict=strict) for strict in (True, False))
        peer = None
        if checkout is not None and (case.quick or not bench.quick):
            peer = _peer_seconds(bench, checkout, case, program, arguments, work.instructions)
        warm, first = (None, None) if peer is None else peer
        yield Figure(case.name, "ms", strict * 1e3, warm and warm * 1e3, note=NOTE)
        yield Figure(f"{case.name}, not strict", "ms", loose * 1e3, warm and warm * 1e3, note=NOTE)
        lanes = work.lanes / 1e6
        yield Figure(
            f"{case.name}, lane-instructions",
            "M/s",
            lanes / strict,
            warm and lanes / warm,
            case.goal,
            "more",
            note=NOTE,
        )
        for target, other in zip(OTHER_TARGETS, others, strict=True):
            beside = strict if is_strict(target) else loose
            yield _other_figure(case, other, target, arguments, lanes / beside)
        if case.kernel == "mix":
            for text, checked in (("", True), (", not strict", False)):
                time_s, count = _first_seconds(case, program, arguments, strict=checked)
                title = f"first run of {count} instructions{text}"
                yield Figure(title, "ms", time_s * 1e3, first and first * 1e3, note=FIRST_NOTE)


def is_strict(target: str) -> bool:
    """Return whether kernels for a processor run in strict mode: clang 19 leaves out RDNA4's `s_wait_alu`."""
    return not target.startswith("gfx12")


def _other_figure(case: Case, program: CodeObject, target: str, arguments: Arrays, beside: float) -> Figure:
    """Return the rate of a kernel for another processor beside that of the one for gfx1100."""
    arguments[0][:] = 0
    # The kernel of matrix instructions runs in one wave.
    if case.kernel == "wmma" and target == "gfx942":
        case = replace(case, group_size=(64, 1, 1))
    work = _work(case, program, arguments, target)
    strict = is_strict(target)
    seconds = _seconds(case, program, arguments, strict=strict, target=target)
    return Figure(
        f"{case.name}, lane-instructions, {target}", "M/s", work.lanes / 1e6 / seconds, beside, SAME_GOAL, "more", TARGET,
        f"wall time, warm, {'' if strict else 'not '}in strict mode",
    )  # fmt: skip


@dataclass(frozen=True)
class Work:
    """The work of a dispatch: wave-instructions, and the sum of active lanes over its vector instructions."""

    instructions: int
    lanes: int


def compiled(text: str = SOURCE, target: str = TARGET) -> bytes:
    """Return the code object of OpenCL source. Raises `RingupError` without a clang that has `target`."""
    clang = shutil.which("clang-19") or shutil.which("clang")
    if clang is None:
        raise RingupError("bench: no clang-19 and no clang to compile the kernels with")
    with tempfile.TemporaryDirectory(prefix="ringup-bench-") as folder:
        source, made = Path(folder, "kernels.cl"), Path(folder, "kernels.co")
        source.write_text(text, encoding="utf-8")
        done = subprocess.run(
            [clang, *FLAGS, f"-mcpu={target}", str(source), "-o", str(made)],
            capture_output=True,
            text=True,
            timeout=COMPILE_TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            raise RingupError(f"bench: {clang}: {(done.stderr.strip().splitlines() or ['no word of why'])[-1]}")
        return made.read_bytes()


def _run(
    engine: Translator,
    case: Case,
    program: CodeObject,
    arguments: Arrays,
    *,
    strict: bool,
    groups: Size | None = None,
) -> Run:
    given: list[workbench.Argument] = [*arguments, case.size]
    return workbench.run(
        engine, program, case.kernel, given, groups=groups or case.groups, group_size=case.group_size, strict=strict
    )


def _work(case: Case, program: CodeObject, arguments: Arrays, target: str = TARGET) -> Work:
    """Run once with counting, and check the output."""
    counters = _run(
        Translator(counting=True, target=target), case, program, arguments, strict=is_strict(target)
    ).counters
    if case.wanted is not None:
        wrong = np.abs(arguments[0] - case.wanted(arguments[1:])).max()
        if wrong > case.tolerance:
            raise RingupError(f"bench shader: {case.name}: the output is wrong by {wrong}")
    return Work(counters.instructions, counters.lanes)


def _seconds(case: Case, program: CodeObject, arguments: Arrays, *, strict: bool, target: str = TARGET) -> float:
    engine = Translator(target=target)
    _run(engine, case, program, arguments, strict=strict)  # translates
    return median([_timed(engine, case, program, arguments, strict=strict) for _ in range(RUNS)])


def _first_seconds(case: Case, program: CodeObject, arguments: Arrays, *, strict: bool) -> tuple[float, int]:
    """Return the time of one group on cores with an empty cache, and the program's number of instructions."""
    times = []
    for _ in range(RUNS):
        handlers.cache_clear()
        engine = Translator()
        times.append(_timed(engine, case, program, arguments, strict=strict, groups=(1, 1, 1)))
    (known,) = engine.cache.values()
    return median(times), sum(len(block.code) for block in known[0].program.blocks.values())


def _timed(
    engine: Translator,
    case: Case,
    program: CodeObject,
    arguments: Arrays,
    *,
    strict: bool,
    groups: Size | None = None,
) -> float:
    start = time.perf_counter()
    _run(engine, case, program, arguments, strict=strict, groups=groups)
    return time.perf_counter() - start


def _checkout(bench: Bench) -> Path | None:
    """Return tinygrad's source tree: its packages lack the emulator."""
    if bench.peer.python is None:
        return None
    folder = bench.peer.python.parents[2] / CHECKOUT
    if not (folder / "test" / "mockgpu").is_dir():
        bench.peer.say(
            f"no figure of tinygrad: its packages have no emulator; put a checkout of its repository in {folder}"
        )
        return None
    return folder


def part(groups: Size, instructions: int) -> Size:
    """Return the number of groups of a grid, at least one, that execute about `PEER_INSTRUCTIONS`."""
    share = min(1.0, PEER_INSTRUCTIONS / instructions)
    rows = max(1, int(groups[1] * share))
    return max(1, int(groups[0] * min(1.0, share * groups[1] / rows))), rows, 1


def _peer_seconds(
    bench: Bench, checkout: Path, case: Case, program: CodeObject, arguments: Arrays, instructions: int
) -> tuple[float, float] | None:
    """Return tinygrad's time of the whole grid when warm, and of its first group; its output is compared with ours."""
    kernel, groups = program.kernels[case.kernel], part(case.groups, instructions)
    with tempfile.TemporaryDirectory(prefix="ringup-bench-") as folder:
        out = Path(folder, "out")
        files = [Path(folder, name) for name in ("a", "b")]
        for file, data in zip(files, arguments[1:], strict=True):
            file.write_bytes(data.tobytes())
        job = {
            "checkout": str(checkout), "compiler": shutil.which("clang-19") or shutil.which("clang"), "image": program.image(0).hex(),
            "entry": kernel.entry_address, "rsrc2": kernel.rsrc2 | -(-kernel.lds_bytes // 512) << 15, "groups": groups,
            "group_size": case.group_size, "inputs": [str(file) for file in files], "out": str(out), "out_bytes": arguments[0].nbytes,
            "n": case.size, "runs": PEER_RUNS,
        }  # fmt: skip
        answer = bench.peer.call("shader", job)
        if answer is None:
            return None
        found = np.fromfile(out, np.float32).reshape(case.out)
    if np.abs(found - arguments[0])[found != 0].max() > case.tolerance:
        raise RingupError(f"bench shader: {case.name}: tinygrad does not compute what we do")
    whole, done = (x * y * z for x, y, z in (case.groups, groups))
    return answer["warm_s"] * whole / done, answer["first_s"]
