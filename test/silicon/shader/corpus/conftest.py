"""Other people's compiler as the judge: one C source for the GPU (clang 19, gfx1100) and for this computer, run on the same data."""

from __future__ import annotations

import ctypes
import hashlib
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from ringup.silicon.shader.interpreter import Interpreter
from ringup.silicon.shader.program import USER_REGISTERS, load
from ringup.silicon.shader.state import Dispatch, MemoryFault, Region
from ringup.silicon.shader.translate import Translator
from ringup.tools.paths import cache_folder

HERE = Path(__file__).parent
GROUP = 64
GPU_FLAGS = (
    "-x", "cl", "-cl-std=CL2.0", "-target", "amdgcn-amd-amdhsa", "-mcpu=gfx1100", "-nogpulib", "-ffp-contract=off",
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
CODE, KERNARG, PACKET, SCRATCH = 0x10_0000_0000, 0x20_0000_0000, 0x30_0000_0000, 0x40_0000_0000
BUFFERS = (0x7F00_0000_0000, 0x7E00_0000_1000, 0x7D00_0000_2000)
SHARED_APERTURE, PRIVATE_APERTURE = 1, 2  # gpu_va >> 48. Source: amdkfd kfd_flat_memory.c, MAKE_LDS_APP_BASE_V9
TYPES = {
    "u8": np.uint8, "i8": np.int8, "u16": np.uint16, "i16": np.int16, "u32": np.uint32, "i32": np.int32, "u64": np.uint64,
    "i64": np.int64, "f16": np.float16, "f32": np.float32, "f64": np.float64,
}  # fmt: skip
_NAMED = re.compile(r"^(MAP|KERNEL|GROUP_KERNEL)\((\w+), (\w+), (\w+),(?: (\w+)\))?", re.MULTILINE)


@dataclass(frozen=True)
class Case:
    """A kernel of the corpus and the element types of its output and inputs."""

    source: str
    name: str
    types: tuple[str, str, str]

    def __str__(self) -> str:
        return self.name


def cases() -> list[Case]:
    """List the kernels of every source, by its macros."""
    found = []
    for path in sorted(HERE.glob("*.c")):
        for macro, name, out, first, second in _NAMED.findall(path.read_text()):
            found.append(Case(path.name, name, (out, first, first if macro == "MAP" else second)))
    return found


def compiled(source: str, flags: tuple[str, ...]) -> Path:
    """Compile a source, or find what was compiled before; no clang is a failure."""
    text = (HERE / source).read_bytes() + (HERE / "common.h").read_bytes()
    name = hashlib.sha256(repr(flags).encode() + text).hexdigest()[:32]
    path = cache_folder() / "corpus" / name
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        made = path.with_suffix(".new")
        done = subprocess.run(
            ["clang-19", *flags, str(HERE / source), "-o", str(made)],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        made.rename(path)
    return path


def values(draw: np.random.Generator, name: str, count: int) -> np.ndarray:
    """Draw numbers of a type: integers over all magnitudes, floats that conversions to 32-bit integers can hold."""
    kind = np.dtype(TYPES[name])
    if kind.kind in "ui":
        raw = np.frombuffer(draw.bytes(count * kind.itemsize), f"u{kind.itemsize}")
        found = (raw >> draw.integers(0, kind.itemsize * 8, count).astype(raw.dtype)).astype(kind)
        return np.where(draw.random(count) < 0.3, ~found, found).astype(kind)
    found = draw.standard_normal(count) * 10.0 ** draw.integers(-3, 3, count)
    found[:: max(count // 7, 1)] = 0.0
    return found.astype(kind)


@dataclass
class Arena:
    """Memory made of allocations of exact size; an address between them faults."""

    regions: list[tuple[Region, np.ndarray]] = field(default_factory=list)
    epoch: int = 0

    def place(self, gpu_va: int, data: np.ndarray, *, writable: bool = True, executable: bool = False) -> None:
        """Map an array, which stays the caller's."""
        self.regions.append((Region(gpu_va, data.nbytes, data.ctypes.data, writable, executable), data))

    def region(self, gpu_va: int, write: bool, execute: bool = False) -> Region:
        """Find an allocation."""
        for one, _ in self.regions:
            if one.gpu_va <= gpu_va < one.gpu_va + one.size_bytes:
                if (write and not one.writable) or (execute and not one.executable):
                    raise MemoryFault(gpu_va, write, "not permitted")
                return one
        raise MemoryFault(gpu_va, write, "not mapped")


class Quiet:
    """A card that hears nothing."""

    def message(self, code, m0, wave):
        """s_sendmsg: s_endpgm's dealloc_vgprs among others."""
        return 0

    def realtime(self):
        """A clock that stands."""
        return 0


def kernarg(kernel, groups: int, arguments: list[bytes]) -> np.ndarray:
    """Lay out explicit and hidden arguments as the metadata has them."""
    hidden = {
        "hidden_block_count_x": groups, "hidden_block_count_y": 1, "hidden_block_count_z": 1, "hidden_group_size_x": GROUP,
        "hidden_group_size_y": 1, "hidden_group_size_z": 1, "hidden_grid_dims": 1,
        "hidden_private_base": PRIVATE_APERTURE << 16, "hidden_shared_base": SHARED_APERTURE << 16,
    }  # fmt: skip
    data = bytearray(kernel.kernarg_bytes)
    explicit = iter(arguments)
    for one in kernel.arguments:
        is_hidden = one.kind.startswith("hidden_")
        part = hidden.get(one.kind, 0).to_bytes(one.size_bytes, "little") if is_hidden else next(explicit)
        data[one.offset : one.offset + one.size_bytes] = part
    return np.frombuffer(bytes(data), np.uint8).copy()


def launch(engine, program, name: str, groups: int, buffers: list[np.ndarray], n: int) -> None:
    """Run a kernel over `groups` groups to its end; a broken rule fails."""
    kernel = program.kernels[name]
    arena = Arena()
    arena.place(CODE, np.frombuffer(program.image(CODE), np.uint8).copy(), executable=True)
    for gpu_va, data in zip(BUFFERS, buffers, strict=True):
        arena.place(gpu_va, data)
    arguments = [gpu_va.to_bytes(8, "little") for gpu_va in BUFFERS] + [n.to_bytes(4, "little")]
    arena.place(KERNARG, kernarg(kernel, groups, arguments), writable=False)
    packet = np.zeros(64, np.uint8)  # hsa_kernel_dispatch_packet_t
    packet[4:10].view(np.uint16)[:] = (GROUP, 1, 1)
    packet[12:24].view(np.uint32)[:] = (GROUP * groups, 1, 1)
    arena.place(PACKET, packet, writable=False)
    wave_bytes = -(-kernel.scratch_bytes * kernel.wave_size // 1024) * 1024
    waves = groups * (GROUP // kernel.wave_size)
    if wave_bytes:
        arena.place(SCRATCH, np.zeros(wave_bytes * waves, np.uint8))
    pointers = {"dispatch_ptr": PACKET, "kernarg_segment_ptr": KERNARG, "private_segment_size": kernel.scratch_bytes}
    user = [
        pointers.get(register, 0) >> 32 * word & 0xFFFF_FFFF
        for register, (_, words) in USER_REGISTERS.items()
        if kernel.wants(register)
        for word in range(words)
    ]
    user += [0] * ((kernel.rsrc2 >> 1 & 31) - len(user))
    dispatch = Dispatch(
        pc=CODE + kernel.entry_address, wave_size=kernel.wave_size, group_size=(GROUP, 1, 1), group_count=(groups, 1, 1),
        vgpr_count=kernel.vgpr_count, user_sgprs=tuple(user),
        enable_group_id=(bool(kernel.rsrc2 >> 7 & 1), bool(kernel.rsrc2 >> 8 & 1), bool(kernel.rsrc2 >> 9 & 1)),
        enable_group_info=bool(kernel.rsrc2 >> 10 & 1), tidig_comp_cnt=kernel.rsrc2 >> 11 & 3, lds_size_bytes=kernel.lds_bytes,
        scratch_base=SCRATCH if wave_bytes else 0, scratch_wave_bytes=wave_bytes, float_mode=kernel.rsrc1 >> 12 & 0xFF,
        dx10_clamp=bool(kernel.rsrc1 >> 21 & 1), ieee_mode=bool(kernel.rsrc1 >> 23 & 1),
        shared_aperture=SHARED_APERTURE, private_aperture=PRIVATE_APERTURE,
    )  # fmt: skip
    run = engine.start(dispatch, arena, Quiet())
    for _ in range(2000):
        if run.step(100_000):
            break
        assert not run.violations, "\n".join(map(str, run.violations[:3]))
    else:
        raise AssertionError(f"{name} does not end: {run.counters.instructions} instructions")


def pytest_generate_tests(metafunc):
    """Give each test its kernels: all with their number, or every eighth for the slow engine."""
    found = cases()
    if "turn" in metafunc.fixturenames:
        metafunc.parametrize(
            ("case", "turn"), [(case, i) for i, case in enumerate(found)], ids=[case.name for case in found]
        )
    elif "case" in metafunc.fixturenames:
        metafunc.parametrize("case", found, ids=str)
    elif "case_of_few" in metafunc.fixturenames:
        metafunc.parametrize("case_of_few", found[::8], ids=str)


ENGINES = {"interpreter": Interpreter, "translator": Translator}


@pytest.fixture(scope="session")
def judge():
    """`judge(case, level, wave_size, engine, groups)`: the kernel's output and this computer's, on the same inputs."""
    engines = {name: make() for name, make in ENGINES.items()}
    programs, hosts = {}, {}

    def run(case, level, wave_size, engine, groups):
        flags = (*GPU_FLAGS, level, f"-m{'no-' if wave_size == 32 else ''}wavefrontsize64")
        key = case.source, flags
        if key not in programs:
            programs[key] = load(compiled(case.source, flags).read_bytes())
        if (case.source, wave_size) not in hosts:
            hosts[case.source, wave_size] = ctypes.CDLL(
                str(compiled(case.source, (*HOST_FLAGS, f"-DWAVE={wave_size}")))
            )
        n = groups * GROUP
        draw = np.random.default_rng(list(case.name.encode()))
        inputs = [values(draw, name, n) for name in case.types[1:]]
        found = [np.zeros(n, TYPES[case.types[0]]), *(one.copy() for one in inputs)]
        wanted = [np.zeros(n, TYPES[case.types[0]]), *(one.copy() for one in inputs)]
        pointers = [ctypes.c_void_p(one.ctypes.data) for one in wanted]
        getattr(hosts[case.source, wave_size], case.name)(*pointers, ctypes.c_uint32(n), ctypes.c_uint32(groups))
        launch(engines[engine], programs[key], case.name, groups, found, n)
        return found[0], wanted[0]

    return run
