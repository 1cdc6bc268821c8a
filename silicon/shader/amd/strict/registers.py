"""Access to one wave's registers: ranges, privilege, alignment, and the checks of strict mode."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import numpy as np

from ringup.silicon.shader.amd.decoding.analysis import FIRST_VGPR
from ringup.silicon.shader.amd.decoding.generations import RDNA3
from ringup.silicon.shader.amd.strict.history import RuleBroken, Tracker
from ringup.silicon.shader.common.lanes import every, lanes_of, some
from ringup.silicon.shader.common.launch import STATUS_NO_VGPRS, STATUS_PRIV
from ringup.silicon.shader.common.state import (
    EXEC_LO,
    FIRST_ACC,
    M0,
    NULL,
    SCC,
    SGPR_COUNT,
    STATUS,
    TTMP0,
    VCC_LO,
    WaveState,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ringup.silicon.shader.amd.decoding.decode import Instruction
    from ringup.silicon.shader.amd.decoding.generations import Generation

    Lanes = NDArray[np.bool_]
    Words = NDArray[np.uint32]

TTMP_END = TTMP0 + 16
# Ranges that a multi-word operand may not leave. Source: RDNA3 ISA reference, "SGPR Out of Range Behavior".
REGIONS = ((0, TTMP0), (TTMP0, TTMP_END), (NULL, NULL + 1), (M0, M0 + 1), (EXEC_LO, EXEC_LO + 2))
_SPECIAL = {
    VCC_LO: "vcc_lo",
    VCC_LO + 1: "vcc_hi",
    NULL: "null",
    M0: "m0",
    EXEC_LO: "exec_lo",
    EXEC_LO + 1: "exec_hi",
    SCC: "scc",
}


def scalar_name(index: int) -> str:
    """Return the assembly name of a word of the scalar file."""
    if index < SGPR_COUNT:
        return f"s{index}"
    return f"ttmp{index - TTMP0}" if TTMP0 <= index < TTMP_END else _SPECIAL[index]


def vector_name(index: int) -> str:
    """Return the assembly name of a VGPR."""
    return f"v{index}" if index < FIRST_ACC else f"a{index - FIRST_ACC}"


def undefined_text(name: str, birth: str) -> str:
    """Return the message for an undefined register, or lane of one, that decides something. `birth` is the origin."""
    return f"{name} is undefined: it comes from {birth}" if birth else f"{name} was never written"


class Registers:
    """Reads and writes of one wave. Without a `tracker` they do only what hardware does.

    A read with `decides` uses the value, so it must be defined. Other reads only pass the value on.
    """

    def __init__(
        self, wave: WaveState, tracker: Tracker | None, *, strict: bool, generation: Generation = RDNA3
    ) -> None:
        self.wave, self.tracker, self.strict = wave, tracker, strict
        self._reads_ttmp = generation.start.numbers_in_ttmp
        self.words = wave.words
        self.vgpr_count = 0 if wave.words[STATUS] & STATUS_NO_VGPRS else wave.vgpr_count
        self.lane_count = wave.wave_size
        # The instruction that reads and writes now.
        self.ins: Instruction | None = None
        # Origin of the first undefined value that it has read in an active lane.
        self.birth = ""
        self.inactive_birth = ""

    # ---- scalars

    def scalar(self, index: int, count: int = 1, *, decides: bool = True) -> int:
        """Read `count` words from `index` up as one little-endian integer."""
        if index == NULL:
            return 0
        if count > 1:
            index = self._aligned(index, count)
        if TTMP0 <= index < TTMP_END and not (self._reads_ttmp or self.privileged):
            return 0
        value = 0
        for at in range(count):
            if self.tracker is not None:
                self._check_scalar(self.tracker, index + at, decides)
            value |= int(self.words[index + at]) << 32 * at
        return value

    def set_scalar(
        self, index: int, value: int, count: int = 1, *, undefined: int = 0, order: dict[str, str] | None = None
    ) -> None:
        """Write `count` words; the bits in `undefined` become undefined.

        Writes to null are dropped, and writes to trap registers outside a trap handler.
        """
        if index == NULL:
            return
        if count > 1:
            index = self._aligned(index, count)
        if TTMP0 <= index < TTMP_END and not self.privileged:
            return
        if undefined and any(index + at in (EXEC_LO, EXEC_LO + 1) for at in range(count)):
            self.refuse_exec(undefined)
        for at in range(count):
            if self.tracker is not None:
                if self.tracker.waits.sgprs:
                    self.tracker.check_flight(self.tracker.waits.sgprs, index + at, scalar_name(index + at), order)
                self.tracker.scalars[index + at] = undefined >> 32 * at & 0xFFFF_FFFF
                if undefined:
                    self.tracker.births[index + at] = {0: self.origin}
            self.words[index + at] = value >> 32 * at & 0xFFFF_FFFF

    def refuse_exec(self, undefined: int) -> NoReturn:
        """Raise because undefined bits would be written to EXEC."""
        birth = f": they come from {self.birth}" if self.birth else ""
        undefined &= (1 << 64) - 1
        raise RuleBroken("uninitialised", f"EXEC would get bits {undefined:#x} that were never written{birth}")

    def scalar_undefined(self, index: int, count: int = 1) -> int:
        """Return the undefined bits of these words."""
        if self.tracker is None or index == NULL:
            return 0
        found = sum(int(self.tracker.scalars[index + at]) << 32 * at for at in range(count))
        if found and not self.birth:
            first = index + ((found & -found).bit_length() - 1) // 32
            self.birth = self.tracker.born(first, 0) or f"{scalar_name(first)}, which was never written"
        return found

    @property
    def origin(self) -> str:
        """Origin of the undefined values that the instruction writes; that of an inactive lane if there is no other."""
        return self.birth or self.inactive_birth

    @property
    def scc_undefined(self) -> bool:
        """Whether SCC is undefined."""
        return bool(self.scalar_undefined(SCC))

    @property
    def scc(self) -> int:
        """SCC as an operand."""
        if self.tracker is not None:
            self._check_scalar(self.tracker, SCC, decides=True)
        return int(self.words[SCC]) & 1

    @scc.setter
    def scc(self, value: int) -> None:
        if self.tracker is not None:
            self.tracker.scalars[SCC] = 0
        self.words[SCC] = value & 1

    @property
    def privileged(self) -> bool:
        """STATUS.priv: whether the wave is in the trap handler."""
        return bool(self.words[STATUS] & STATUS_PRIV)

    def _aligned(self, index: int, count: int) -> int:
        """Return where hardware reads a group of words: it ignores the low bits of a misaligned register number."""
        step = 2 if count == 2 else 4
        if index % step:
            if self.strict:
                raise RuleBroken(
                    "alignment",
                    f"{count} scalar registers begin at {scalar_name(index)}, which is not a multiple of {step}",
                )
            index -= index % step
        if not any(low <= index and index + count <= high for low, high in REGIONS):
            raise RuleBroken("register", f"{count} scalar registers from {scalar_name(index)} leave their range")
        return index

    def _check_scalar(self, tracker: Tracker, index: int, decides: bool) -> None:
        if tracker.waits.sgprs:
            tracker.check_flight(tracker.waits.sgprs, index, scalar_name(index), None)
        if decides and tracker.scalars[index]:
            raise RuleBroken("uninitialised", undefined_text(scalar_name(index), tracker.born(index, 0)))

    # ---- vectors

    def exec_lanes(self) -> Lanes:
        """Return EXEC as one boolean a lane; the array is read-only."""
        return lanes_of(self.wave.exec_mask, self.lane_count)

    def vector_fits(self, first: int, count: int = 1) -> bool:
        """Return whether VGPRs are allocated; strict mode raises if they are not."""
        is_acc = first >= FIRST_ACC
        last, allocated = (first - FIRST_ACC, self.wave.acc_count) if is_acc else (first, self.vgpr_count)
        last += count - 1
        if last < allocated:
            return True
        if self.strict:
            what = f"a{last} is beyond the {allocated} accumulation" if is_acc else f"v{last} is beyond the {allocated}"
            raise RuleBroken("register", f"{what} VGPRs allocated")
        return False

    def vector(self, index: int, lanes: Lanes, *, decides: bool = True) -> Words:
        """Read a VGPR for `lanes`. A VGPR beyond the allocation reads as v0."""
        if not self.vector_fits(index):
            index = 0
        tracker = self.tracker
        if tracker is not None:
            if tracker.waits.vgprs:
                tracker.check_vector(index, None, self.ins)
            if decides:
                self.check_lanes(index, lanes & ~tracker.vgprs[index])
        row: Words = self.wave.vgprs[index]
        return row

    def vector_undefined(self, index: int) -> Lanes:
        """Return the lanes of a VGPR that are undefined; the array may be read-only."""
        if self.tracker is None or index >= len(self.wave.vgprs):
            return lanes_of(0, self.lane_count)
        written: Lanes = self.tracker.vgprs[index]
        if every(written):
            return lanes_of(0, self.lane_count)
        undefined: Lanes = ~written
        if not self.birth:
            active = undefined & self.exec_lanes()
            is_active = some(active)
            born = self.tracker.born(FIRST_VGPR + index, int((active if is_active else undefined).argmax()))
            born = born or f"{vector_name(index)}, which was never written"
            if is_active:
                self.birth = born
            else:
                self.inactive_birth = self.inactive_birth or born
        return undefined

    def check_lanes(self, index: int, undefined: Lanes) -> None:
        """Raise if an undefined lane of VGPR `index` decides something."""
        if some(undefined):
            lane = int(undefined.argmax())
            born = self.tracker.born(FIRST_VGPR + index, lane) if self.tracker is not None else ""
            raise RuleBroken("uninitialised", undefined_text(f"lane {lane} of {vector_name(index)}", born), lane=lane)

    def set_vector(
        self,
        index: int,
        values: Words,
        lanes: Lanes,
        *,
        undefined: Lanes | None = None,
        order: dict[str, str] | None = None,
    ) -> None:
        """Write the `lanes` of a VGPR. `order` is the order of the load that writes it."""
        if not self.vector_fits(index):
            return
        tracker = self.tracker
        if tracker is not None:
            if tracker.waits.vgprs:
                tracker.check_vector(index, order, self.ins)
            written = tracker.vgprs[index]
            np.logical_or(written, lanes, out=written)
            if undefined is not None and some(missing := undefined & lanes):
                written[missing] = False
                births = dict.fromkeys(np.flatnonzero(missing).tolist(), self.origin)
                tracker.births[FIRST_VGPR + index] = tracker.births.get(FIRST_VGPR + index, {}) | births
        np.copyto(self.wave.vgprs[index], values, where=lanes)
