"""The work of SPI for a compute grid: the waves of a group, their registers at the first instruction, occupancy.

Source: RDNA3 and RDNA4 ISA references, "Initial Wave State" and "Work-groups"; LLVM AMDGPUUsage, "Initial Kernel
Execution State".
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ringup.silicon.shader.common.state import (
    EXEC_HI,
    EXEC_LO,
    FLAT_SCRATCH_LO,
    GROUP_X,
    HW_ID1,
    HW_ID2,
    LDS_BASE_HI,
    LDS_BASE_LO,
    MODE,
    SGPR_COUNT,
    STATUS,
    TRAP_CTRL,
    TRAPSTS,
    TTMP0,
    WAVE_IN_GROUP,
    Dispatch,
    WaveState,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

# Source: RDNA3 ISA reference, "Work-group Processor", "Work-groups"; LLVM GCNSubtarget, features of gfx1100.
SIMDS = 4  # of a WGP
WAVES_PER_SIMD = 16
# By the size of a SIMD's register file. Both are in rows of 32 lanes; a wave64 takes two for each VGPR.
VGPR_GRANULE = {1536: 24, 1024: 16}
WIDE = 64  # lanes of every wave of CDNA
# On CDNA both files of a SIMD are one: 512 registers of 64 lanes, in eights.
UNIFIED_VGPRS, UNIFIED_GRANULE = 512, 8
LDS_BYTES_PER_WGP = 128 * 1024
LDS_GRANULE_BYTES = 1024
# TTMP registers with a group's numbers on RDNA4. Source: RDNA4 ISA reference, "CS SGPR Load".
TTMP_GROUP_YZ, TTMP_WAVE, TTMP_GROUP_X = 7, 8, 9
# The barriers of a group on RDNA4, by number. Source: RDNA4 ISA reference, "Work-groups and Barriers".
GROUP_BARRIER, TRAP_BARRIER = -1, -2
GROUPS_PER_WGP = 32  # limited by barriers; groups of one wave need none

# HW_REG_STATUS. Source: RDNA3 ISA reference, "Status register".
STATUS_PRIV = 1 << 5
STATUS_TRAP_EN = 1 << 6
STATUS_EXECZ = 1 << 9
STATUS_VCCZ = 1 << 10
STATUS_IN_GROUP = 1 << 11
STATUS_HALT = 1 << 13
STATUS_VALID = 1 << 16
STATUS_NO_VGPRS = 1 << 24
STATUS_SCRATCH_EN = 1 << 29
# HW_REG_MODE.
MODE_DX10_CLAMP = 1 << 8
MODE_IEEE = 1 << 9
MODE_EXCP_SHIFT = 12


@dataclass(slots=True)
class Barrier:
    """A barrier that waves signal and wait for with two instructions.

    It is complete once every wave that has not ended has signalled it; then each of them may pass it once.
    """

    members: set[int]
    signals: int = 0
    complete: set[int] = field(default_factory=set)  # waves that have not passed it since

    def signal(self) -> None:
        """Count a signal."""
        self.signals += 1
        self._settle()

    def end(self, wave: int) -> None:
        """Forget a wave that has ended."""
        self.members.discard(wave)
        self._settle()

    def passes(self, wave: int) -> bool:
        """Return whether a wave may pass; if so, it has passed."""
        found = wave in self.complete
        self.complete.discard(wave)
        return found

    def _settle(self) -> None:
        if self.signals and self.signals >= len(self.members):
            self.complete |= self.members
            self.signals = 0


@dataclass(slots=True)
class Group:
    """One resident work-group: its waves and its LDS, exactly as large as allocated."""

    dispatch: Dispatch
    ident: tuple[int, int, int]
    lds: NDArray[np.uint8]
    lds_written: NDArray[np.bool_]  # by byte, for strict mode
    waves: list[WaveState] = field(default_factory=list)
    barriers: dict[int, Barrier] = field(default_factory=dict)  # those of RDNA4, by number


class Start(NamedTuple):
    """How a generation starts waves."""

    # TTMP registers hold the group's number, and programs may read them. Else SGPRs hold it.
    numbers_in_ttmp: bool
    # MODE has IEEE, DX10_CLAMP and the enables of exceptions.
    has_float_modes: bool
    # The word that holds the low half of the wave's scratch base.
    flat_scratch: int = FLAT_SCRATCH_LO
    # The SGPR with the size of the group has the wave's number too.
    numbers_waves: bool = True
    # Waves of 64 lanes only.
    is_wide: bool = False
    # How much a compute unit (a work-group processor on RDNA) holds: waves of a SIMD, bytes of LDS, the granule of its
    # allocation, groups of more than one wave.
    waves_per_simd: int = WAVES_PER_SIMD
    lds_bytes: int = LDS_BYTES_PER_WGP
    lds_granule: int = LDS_GRANULE_BYTES
    groups: int = GROUPS_PER_WGP


RDNA3_START, RDNA4_START = Start(False, True), Start(True, False)
# Source: LLVM AMDGPUBaseInfo.cpp, getMaxWavesPerEU, getLocalMemorySize, getMaxWorkGroupsPerCU; CDNA3 ISA reference.
CDNA3_START = Start(
    False, True, flat_scratch=102, numbers_waves=False, is_wide=True, waves_per_simd=8, lds_bytes=64 * 1024, lds_granule=512, groups=16,
)  # fmt: skip

# Source: CDNA4 ISA reference, "LDS"; LLVM AMDGPUBaseInfo.cpp, getLocalMemorySize, getLdsDwGranularity.
CDNA4_START = CDNA3_START._replace(lds_bytes=160 * 1024, lds_granule=1280)


def group_idents(dispatch: Dispatch) -> Iterator[tuple[int, int, int]]:
    """Yield the groups of the grid in the dispatcher's order, x first: those of the dispatch's share."""
    own, dies, chunk = dispatch.share
    for number, ident in enumerate(_all_idents(dispatch)):
        if number // chunk % dies == own:
            yield ident


def _all_idents(dispatch: Dispatch) -> Iterator[tuple[int, int, int]]:
    (x0, y0, z0), (nx, ny, nz) = dispatch.group_start, dispatch.group_count
    for z in range(z0, z0 + nz):
        for y in range(y0, y0 + ny):
            for x in range(x0, x0 + nx):
                yield x, y, z


def group_shape(dispatch: Dispatch, ident: tuple[int, int, int]) -> tuple[int, int, int]:
    """Return the work-items of a group along x, y, z; the last group of an axis may be partial."""
    axes = zip(
        dispatch.group_size, dispatch.partial_size, ident, dispatch.group_start, dispatch.group_count, strict=True
    )
    x, y, z = (partial if partial and at == start + count - 1 else full for full, partial, at, start, count in axes)
    return x, y, z


def waves_in_group(dispatch: Dispatch, ident: tuple[int, int, int] | None = None) -> int:
    """Return the number of waves in a group; in a full one without `ident`."""
    x, y, z = dispatch.group_size if ident is None else group_shape(dispatch, ident)
    return -(-x * y * z // dispatch.wave_size)


def check_wave_size(dispatch: Dispatch, how: Start, target: str) -> None:
    """Raise `ValueError` for waves that the processor `target` does not have."""
    if how.is_wide and dispatch.wave_size != WIDE:
        raise ValueError(f"{target} has waves of {WIDE} lanes only, not of {dispatch.wave_size}")


def does_not_fit(dispatch: Dispatch) -> str:
    """Return the message for a dispatch of which not even one group fits on a WGP."""
    return (
        f"not one group of {dispatch.group_size} work-items with {dispatch.vgpr_count} VGPRs and {dispatch.lds_size_bytes} bytes of LDS "
        "fits on a work-group processor"
    )


def local_groups(dispatch: Dispatch) -> int:
    """Return how many groups of the grid are in the dispatch's share."""
    own, dies, chunk = dispatch.share
    rounds, rest = divmod(math.prod(dispatch.group_count), chunk * dies)
    return rounds * chunk + min(max(rest - own * chunk, 0), chunk)


def occupancy(dispatch: Dispatch, how: Start = RDNA3_START) -> int:
    """Return how many groups fit on one WGP (compute unit on CDNA) at the same time; 0 if not even one does."""
    if how.is_wide:
        used = max(dispatch.vgpr_count + dispatch.acc_count, 1)
        fitting = UNIFIED_VGPRS // (-(-used // UNIFIED_GRANULE) * UNIFIED_GRANULE)
    else:
        granule = VGPR_GRANULE[dispatch.simd_vgprs]
        rows = -(-max(dispatch.vgpr_count, 1) * dispatch.wave_size // 32 // granule) * granule
        fitting = dispatch.simd_vgprs // rows
    slots = SIMDS * min(how.waves_per_simd, fitting)
    waves = waves_in_group(dispatch)
    limits = [slots // waves]
    if waves > 1:
        limits.append(how.groups)
    if dispatch.lds_size_bytes:
        limits.append(how.lds_bytes // (-(-dispatch.lds_size_bytes // how.lds_granule) * how.lds_granule))
    return min(limits)


def scalar_start(
    dispatch: Dispatch, ident: tuple[int, int, int], wave: int, waves: int, how: Start = RDNA3_START
) -> list[int]:
    """Return the contents of s0 and up in wave number `wave` of `waves` of a group. Source: "CS SGPR Load"."""
    values = list(dispatch.user_sgprs)
    if how.numbers_in_ttmp:
        return values + [waves] * dispatch.enable_group_info
    values += [at for at, enabled in zip(ident, dispatch.enable_group_id, strict=True) if enabled]
    if dispatch.enable_group_info:
        values.append((wave == 0) << 31 | (wave << 20) * how.numbers_waves | waves)
    return values


def trap_start(dispatch: Dispatch, ident: tuple[int, int, int], wave: int) -> dict[int, int]:
    """Return the contents of TTMP registers, by number, where they hold the group's number.

    Source: RDNA4 ISA reference, "CS SGPR Load".
    """
    x, y, z = ident
    has_yz = any(dispatch.enable_group_id[1:])
    return {TTMP_GROUP_YZ: z << 16 | y if has_yz else 0, TTMP_WAVE: has_yz << 30 | wave << 25, TTMP_GROUP_X: x}


def work_item_ids(dispatch: Dispatch, shape: tuple[int, int, int], wave: int) -> tuple[NDArray[np.uint32], int]:
    """Return VGPR 0 of a wave and its EXEC.

    Items are numbered x first and packed into waves. Lanes beyond the group are inactive.
    """
    x, y, _ = shape
    number = np.arange(wave * dispatch.wave_size, (wave + 1) * dispatch.wave_size, dtype=np.uint32)
    active = number < np.prod(shape)
    packed = number % x
    if dispatch.tidig_comp_cnt >= 1:
        packed |= number // x % y << np.uint32(10)
    if dispatch.tidig_comp_cnt >= 2:
        packed |= number // (x * y) << np.uint32(20)
    mask = (1 << int(active.sum())) - 1
    return np.where(active, packed, 0).astype(np.uint32), mask


def start_wave(group: Group, wave: int, scratch_slot: int, how: Start = RDNA3_START) -> WaveState:
    """Make wave number `wave` of a group as SPI does; `scratch_slot` selects its part of the scratch memory."""
    dispatch, ident = group.dispatch, group.ident
    shape, waves = group_shape(dispatch, ident), waves_in_group(dispatch, ident)
    state = WaveState(dispatch.wave_size, dispatch.vgpr_count, dispatch.acc_count)
    words = state.words
    state.pc = dispatch.pc
    scalars = scalar_start(dispatch, ident, wave, waves, how)
    words[: len(scalars)] = scalars
    if how.numbers_in_ttmp:
        for number, value in trap_start(dispatch, ident, wave).items():
            words[TTMP0 + number] = value
    ids, mask = work_item_ids(dispatch, shape, wave)
    state.vgprs[0] = ids
    words[EXEC_LO], words[EXEC_HI] = mask & 0xFFFF_FFFF, mask >> 32
    words[MODE] = dispatch.float_mode
    if how.has_float_modes:
        words[MODE] |= (
            MODE_DX10_CLAMP * dispatch.dx10_clamp
            | MODE_IEEE * dispatch.ieee_mode
            | dispatch.exceptions << MODE_EXCP_SHIFT
        )
    else:
        words[TRAP_CTRL] = dispatch.exceptions
    words[STATUS] = (
        STATUS_VALID
        | STATUS_PRIV * dispatch.privileged
        | STATUS_TRAP_EN * dispatch.trap_enabled
        | STATUS_IN_GROUP * (waves > 1)
        | STATUS_SCRATCH_EN * bool(dispatch.scratch_wave_bytes)
    )
    words[TRAPSTS] = 0
    scratch = dispatch.scratch_base + scratch_slot * dispatch.scratch_wave_bytes
    words[how.flat_scratch], words[how.flat_scratch + 1] = scratch & 0xFFFF_FFFF, scratch >> 32
    words[HW_ID1], words[HW_ID2] = hardware_ids(dispatch, scratch_slot)
    words[GROUP_X : GROUP_X + 3] = ident
    words[WAVE_IN_GROUP] = wave
    lds = group.lds.ctypes.data
    words[LDS_BASE_LO], words[LDS_BASE_HI] = lds & 0xFFFF_FFFF, lds >> 32
    return state


def hardware_ids(dispatch: Dispatch, slot: int) -> tuple[int, int]:
    """Return HW_ID1 and HW_ID2 of the wave in resident slot `slot`.

    Slots go to SIMDs, WGPs and shader arrays in turn. Source: RDNA3 ISA reference, "Hardware Internal Registers":
    wave_id 4:0, simd_id 9:8, wgp_id 13:10, sa_id 16, se_id 20:18; vm_id 27:24.
    """
    simd, slot = slot % SIMDS, slot // SIMDS
    wave, slot = slot % WAVES_PER_SIMD, slot // WAVES_PER_SIMD
    wgp, slot = slot % 4, slot // 4
    array, engine = slot % 2, slot // 2 % 6
    return wave | simd << 8 | wgp << 10 | array << 16 | engine << 18, dispatch.vmid << 24


class Gfx9Place(NamedTuple):
    """Where a wave runs, by GFX9's numbers: wave slot of a SIMD, SIMD of a compute unit, unit and engine."""

    wave: int
    simd: int
    unit: int
    engine: int


def gfx9_place(hw_id1: int) -> Gfx9Place:
    """Return a wave's place from its HW_ID1. GFX9 has one array to an engine; the second array's units follow here."""
    unit = hw_id1 >> 10 & 3 | (hw_id1 >> 16 & 1) << 2
    return Gfx9Place(hw_id1 & 0xF, hw_id1 >> 8 & 3, unit, hw_id1 >> 18 & 3)


def start_group(dispatch: Dispatch, ident: tuple[int, int, int], first_slot: int, how: Start = RDNA3_START) -> Group:
    """Make a resident group with all its waves. Hardware does not clear LDS; here a fresh one holds zeroes."""
    group = Group(
        dispatch, ident, np.zeros(dispatch.lds_size_bytes, np.uint8), np.zeros(dispatch.lds_size_bytes, np.bool_)
    )
    numbers = range(waves_in_group(dispatch, ident))
    group.waves = [start_wave(group, wave, first_slot + wave, how) for wave in numbers]
    group.barriers = {number: Barrier(set(numbers)) for number in (GROUP_BARRIER, TRAP_BARRIER)}
    return group


def initialised(dispatch: Dispatch, how: Start = RDNA3_START) -> tuple[frozenset[int], int]:
    """Return which words of the scalar file SPI wrote, and how many VGPRs (from 0 up)."""
    count = len(scalar_start(dispatch, (0, 0, 0), 0, 1, how))
    scratch = range(how.flat_scratch, how.flat_scratch + 2) if how.flat_scratch < SGPR_COUNT else ()
    return frozenset((*range(count), EXEC_LO, EXEC_HI, *scratch)), 1
