"""The state of a wave, and the dispatch that the cores get: the interface between CP, interpreter and translator."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

# Scalar file by SSRC/SDST encoding. Source: RDNA3 ISA reference, "Scalar ALU operands".
SGPR_COUNT = 106
VCC_LO, VCC_HI = 106, 107
TTMP0 = 108
NULL = 124
M0 = 125
EXEC_LO, EXEC_HI = 126, 127
SCALAR_FILE_WORDS = 128

# Status words, after the scalar file.
SCC = 128
MODE = 129  # HW_REG_MODE: round 3:0, denorm 7:4, dx10_clamp 8, ieee 9, ...
STATUS = 130
TRAPSTS = 131
PC_LO, PC_HI = 132, 133
FLAT_SCRATCH_LO, FLAT_SCRATCH_HI = 134, 135  # the wave's own scratch base (hidden register on gfx11)
STEPS = 136  # instructions this wave may still issue before it must yield
HW_ID1, HW_ID2 = 137, 138
GROUP_X, GROUP_Y, GROUP_Z, WAVE_IN_GROUP = 139, 140, 141, 142
LDS_BASE_LO, LDS_BASE_HI = 144, 145  # host address of the workgroup's LDS
EXCP_USER, TRAP_CTRL, SCHED_MODE = 156, 157, 158  # hardware registers of RDNA4: HW_REG_EXCP_FLAG_USER, …
# Split barriers that are complete and that the wave has not passed yet: bit 0 the group's, bit 1 the trap handler's.
BARRIERS_COMPLETE = 159
FIRST_ACC = 256  # row of the first accumulation register of CDNA
RESERVED_WORDS = 192  # VGPRs begin here: 64-byte aligned rows for both wave sizes


class Dispatch(NamedTuple):
    """One grid as SPI starts it.

    Source: amdgpu COMPUTE_* registers in gc_11_0_0; LLVM AMDGPUUsage, "Initial kernel execution state". `user_sgprs` go
    to s0 up. The enabled ones of these follow, in this order: group id x, y, z, tg_size word. VGPR 0 holds the
    work-item ids, packed x 9:0, y 19:10, z 29:20, as many as `tidig_comp_cnt` (0 x, 1 xy, 2 xyz) selects.
    """

    pc: int  # gpu_va of the first instruction, 256-byte aligned
    wave_size: int  # 32 or 64
    group_size: tuple[int, int, int]  # work-items in a group: COMPUTE_NUM_THREAD_X/Y/Z
    group_count: tuple[int, int, int]  # groups in the grid
    vgpr_count: int  # allocated to a wave, from RSRC1.vgprs; without accumulation registers
    user_sgprs: tuple[int, ...] = ()
    group_start: tuple[int, int, int] = (0, 0, 0)
    partial_size: tuple[int, int, int] = (0, 0, 0)  # work-items in the last group of each axis; 0: it is full
    enable_group_id: tuple[bool, bool, bool] = (True, False, False)
    enable_group_info: bool = False
    tidig_comp_cnt: int = 0
    lds_size_bytes: int = 0
    scratch_base: int = 0  # gpu_va
    scratch_wave_bytes: int = 0  # of one wave
    # Waves that fit in scratch memory, COMPUTE_TMPRING_SIZE.waves; 0: not limited.
    scratch_waves: int = 0
    float_mode: int = 0xC0  # MODE 7:0 at start: round to nearest even, f32 denormals flushed, f16/f64 kept
    dx10_clamp: bool = True
    ieee_mode: bool = False
    privileged: bool = False
    trap_enabled: bool = False
    exceptions: int = 0  # EXCP_EN
    trap_base: int = 0  # gpu_va of the trap handler, 0: none
    vmid: int = 0
    shared_aperture: int = 0  # gpu_va >> 48 of the LDS aperture, SH_MEM_BASES.shared_base
    private_aperture: int = 0
    simd_vgprs: int = 1536  # rows of 32 lanes that a SIMD has: 1024 on small chips
    mtype_unaligned: bool = True  # SH_MEM_CONFIG.alignment_mode == unaligned: misaligned vector memory is allowed
    acc_count: int = 0  # accumulation registers of a wave on CDNA: those above RSRC3.accum_offset
    xcc_id: int = 0  # of the die that runs the grid, which s_getreg_b32 reads
    # Which groups of the grid run here: (own number, number of dies, groups in a chunk). Chunks go to the dies in turn.
    share: tuple[int, int, int] = (0, 1, 1)
    # The waves of a group run on both compute units of a WGP: COMPUTE_PGM_RSRC1.wgp_mode.
    wgp_mode: bool = True


@dataclass(frozen=True, slots=True)
class Region:
    """Mapped memory around an address: `size_bytes` from `gpu_va` are at host address `pointer`, contiguous."""

    gpu_va: int
    size_bytes: int
    pointer: int
    writable: bool = True
    executable: bool = True


class MemoryFault(Exception):
    """Address translation refused an access. The memory has already reported it to the card; the wave stops."""

    def __init__(self, gpu_va: int, write: bool, reason: str) -> None:
        super().__init__(f"{'write to' if write else 'read of'} {gpu_va:#x}: {reason}")
        self.gpu_va, self.write, self.reason = gpu_va, write, reason


class Memory(Protocol):
    """Address translation of one VMID as the cores see it."""

    @property
    def epoch(self) -> int:
        """Increases whenever regions returned before may be wrong (a TLB was invalidated)."""
        ...

    def region(self, gpu_va: int, write: bool, execute: bool = False) -> Region:
        """Return the region that holds `gpu_va`, or raise `MemoryFault`."""
        ...


class Scope(IntEnum):
    """How far an access to memory reaches: a cache whose scope is smaller passes it on.

    Source: LLVM AMDGPUUsage, "Memory Model GFX12".
    """

    CU = 0
    SE = 1
    DEV = 2
    SYS = 3


class Access(NamedTuple):
    """Who accesses memory: the number of a compute unit, or of a WGP for its scalar cache; the address of its wave."""

    unit: int
    scope: Scope
    is_scalar: bool = False
    wave: int = 0


class ScopedMemory(Protocol):
    """Lines of memory behind the caches of compute units. `line` is a region of `Memory`, `at` are bytes of it."""

    def load(self, line: Region, at: NDArray[np.int64], access: Access) -> NDArray[np.uint8]:
        """Return bytes as the access finds them; they may be old."""
        ...

    def store(self, line: Region, at: NDArray[np.int64], data: NDArray[np.uint8], access: Access) -> None:
        """Store bytes."""
        ...

    def maintain(self, access: Access, *, invalidate: bool, write_back: bool) -> None:
        """Invalidate the caches whose scope is smaller than the access's, or write them back."""
        ...

    def issued(self, wave: int) -> None:
        """Count an operation of a wave that its counter of stores counts; its stores have been made."""
        ...

    def wait(self, wave: int, left: int) -> None:
        """Complete a wave's stores, except those of its last `left` operations that the counter counts."""
        ...

    def settle(self) -> None:
        """Complete the stores of all waves: their dispatch has ended."""
        ...


@runtime_checkable
class CachingMemory(Protocol):
    """A `Memory` that may have caches in the compute units."""

    @property
    def scoped(self) -> ScopedMemory | None:
        """Those caches; None if every access reaches memory at once."""
        ...


class Events(Protocol):
    """The events that waves send to the card."""

    def message(self, code: int, m0: int, wave: WaveState) -> int:
        """Handle s_sendmsg of `code`, except the release of VGPRs; s_sendmsg_rtn gets the returned value."""
        ...

    def realtime(self) -> int:
        """Return the 100 MHz counter."""
        ...


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that a program broke.

    `wave` is (group x, y, z, wave in group). `lane` and `gpu_va` are set if the rule concerns one.
    """

    kind: str  # hazard, uninitialised, alignment, memory, register, illegal, lds, trap
    pc: int
    text: str  # the instruction
    wave: tuple[int, int, int, int]
    detail: str
    lane: int | None = None
    gpu_va: int | None = None  # the address of the access

    def __str__(self) -> str:
        return f"{self.kind} at {self.pc:#x} in wave {self.wave}: {self.text}: {self.detail}"


def register_rows(vgpr_count: int, acc_count: int) -> int:
    """Return how many rows of lanes a wave's state has. Accumulation registers have those from FIRST_ACC up."""
    return FIRST_ACC + acc_count if acc_count else vgpr_count


class WaveState:
    """Registers of one wave in one flat array, so that interpreted and translated code work on the same words."""

    __slots__ = ("acc_count", "address", "sgprs", "vgpr_count", "vgprs", "wave_size", "words")

    def __init__(self, wave_size: int, vgpr_count: int, acc_count: int = 0) -> None:
        self.vgpr_count, self.acc_count = vgpr_count, acc_count
        vgpr_count = register_rows(vgpr_count, acc_count)
        raw = np.zeros(RESERVED_WORDS + vgpr_count * wave_size + 16, np.uint32)
        skip = (-raw.ctypes.data % 64) // 4
        self.words: NDArray[np.uint32] = raw[skip : skip + RESERVED_WORDS + vgpr_count * wave_size]
        self.address: int = self.words.ctypes.data
        self.wave_size = wave_size
        self.sgprs: NDArray[np.uint32] = self.words[:SCALAR_FILE_WORDS]
        self.vgprs: NDArray[np.uint32] = self.words[RESERVED_WORDS:].reshape(vgpr_count, wave_size)  # (register, lane)

    @property
    def pc(self) -> int:
        """The gpu_va of the next instruction."""
        return int(self.words[PC_LO]) | int(self.words[PC_HI]) << 32

    @pc.setter
    def pc(self, gpu_va: int) -> None:
        self.words[PC_LO], self.words[PC_HI] = gpu_va & 0xFFFF_FFFF, gpu_va >> 32

    @property
    def exec_mask(self) -> int:
        """EXEC; bits 63:32 are 0 for a wave32."""
        mask = int(self.words[EXEC_LO])
        return mask if self.wave_size == 32 else mask | int(self.words[EXEC_HI]) << 32

    @property
    def name(self) -> tuple[int, int, int, int]:
        """Group id x, y, z and the wave's number in the group."""
        words = self.words
        return int(words[GROUP_X]), int(words[GROUP_Y]), int(words[GROUP_Z]), int(words[WAVE_IN_GROUP])


@dataclass(slots=True)
class Counters:
    """The counters of a dispatch.

    Instruction counts are wave-instructions; `lanes` counts active lanes over all vector instructions.
    """

    waves: int = 0
    instructions: int = 0
    lanes: int = 0
    # salu, valu, smem, vmem, lds, flat, branch, message, wmma, ...
    by_class: dict[str, int] = field(default_factory=dict)
    by_pc: dict[int, int] = field(default_factory=dict)
    memory_transactions: int = 0
    cache_lines: int = 0  # 128-byte lines accessed, summed over instructions
    lds_conflicts: int = 0  # extra cycles by bank conflicts (64 banks of a dword)


class Run(Protocol):
    """A dispatch under way."""

    @property
    def counters(self) -> Counters:
        """The counters so far."""
        ...

    @property
    def instructions(self) -> int:
        """How many wave-instructions have been executed. It is one of the counters, but cheaper to read."""
        ...

    @property
    def violations(self) -> list[Violation]:
        """The violations so far."""
        ...

    @property
    def waves(self) -> list[WaveState]:
        """The waves that were started and have not ended. Callers may inspect them between two steps."""
        ...

    @property
    def arrived(self) -> list[WaveState]:
        """Those of `waves` that wait at their group's barrier."""
        ...

    def step(self, instructions: int) -> bool:
        """Run up to about `instructions` wave-instructions; return True once every wave has ended.

        A dispatch with violations never ends.
        """
        ...

    @property
    def waiting(self) -> bool:
        """Whether steps do nothing at present, because the run waits for background work."""
        ...

    @property
    def repeating(self) -> bool:
        """Whether the last steps came back to an earlier state: the waves wait for memory to change."""
        ...

    def kill(self) -> None:
        """Drop all waves (queue reset)."""
        ...


class Engine(Protocol):
    """The cores of a card: `interpreter.engine.Interpreter` and `translator.engine.Translator`."""

    @property
    def target(self) -> str:
        """The processor that the cores are, such as `gfx1100`."""
        ...

    @property
    def runs(self) -> tuple[str, ...]:
        """The processors whose code they run: those of one generation."""
        ...

    def start(self, dispatch: Dispatch, memory: Memory, events: Events, *, strict: bool = True) -> Run:
        """Begin a dispatch; nothing runs before the first `step`."""
        ...
