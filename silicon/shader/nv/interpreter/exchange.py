"""Instructions that look at other lanes of the warp, and special registers.

Source: PTX ISA, shfl.sync, vote.sync, match.sync, redux.sync, "Special Registers"; numbers by Mesa's NAK (MIT).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ringup.errors import Unmodelled
from ringup.silicon.shader.common.lanes import lanes_of
from ringup.silicon.shader.nv.decoding.instruction import Kind
from ringup.silicon.shader.nv.state import LANES, lanes

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringup.silicon.shader.nv.interpreter.step import Lanes, Step

_LANE = np.arange(LANES, dtype=np.int64)


def _shfl(step: Step) -> None:
    """Read another lane's register. `c` has the bound in bits 4:0 and the mask of segments in 12:8."""
    pu, rd, source, lane, c = step.ins.operands
    bits, which, limits = step.raw(source), step.raw(lane).astype(np.int64), step.raw(c).astype(np.int64)
    bound, segment = limits & 31, limits >> 8 & 31
    low = _LANE & segment
    highest = low | bound & ~segment
    how = step.ins.modifiers[0]
    which &= 31
    if how == "IDX":
        target = low | which & ~segment
        valid = target <= highest
    elif how == "UP":
        # The bound is the lowest lane here.
        target = _LANE - which
        valid = target >= highest
    elif how == "DOWN":
        target = _LANE + which
        valid = target <= highest
    else:
        target = _LANE ^ which
        valid = target <= highest
    target = np.where(valid, target, _LANE) & 31
    step.write(rd, bits[target])
    step.set_flags(pu, valid)


def _vote(step: Step) -> None:
    """Ask all threads of the path for a predicate; the register gets the mask of those for which it is true."""
    rd, pu, asked = step.ins.operands
    mask = step.predicate_mask(asked) & step.mask
    how = step.ins.modifiers[0]
    found = {"ALL": mask == step.mask, "ANY": mask != 0, "EQ": mask in (0, step.mask)}[how]
    step.write(rd, np.full(LANES, mask, np.uint32))
    step.set_flags(pu, np.full(LANES, found))


def _match(step: Step) -> None:
    """Find the threads of the path that have the same value."""
    if step.ins.has("ALL"):
        pu, rd, source = step.ins.operands
    else:
        (rd, source), pu = step.ins.operands, None
    values = (step.raw64(source) if step.ins.has("U64") else step.raw(source)).tolist()
    here = lanes(step.mask)
    if pu is not None:
        same = len({values[lane] for lane in here}) <= 1
        step.write(rd, np.full(LANES, step.mask if same else 0, np.uint32))
        step.set_flags(pu, np.full(LANES, same))
        return
    found = np.zeros(LANES, np.uint32)
    for lane in here:
        found[lane] = sum(1 << other for other in here if values[other] == values[lane])
    step.write(rd, found)


def _redux(step: Step) -> None:
    rd, source = step.ins.operands
    values = step.raw(source)[lanes_of(step.mask, LANES)]
    if not values.size:
        return
    signed = step.ins.has("S32")
    how = next((one for one in step.ins.modifiers if one != "S32"), "AND")
    typed = values.view(np.int32) if signed else values
    found = {
        "AND": lambda: np.bitwise_and.reduce(values), "OR": lambda: np.bitwise_or.reduce(values),
        "XOR": lambda: np.bitwise_xor.reduce(values), "SUM": lambda: np.add.reduce(values, dtype=np.uint32),
        "MIN": lambda: typed.min(), "MAX": lambda: typed.max(),
    }[how]()  # fmt: skip
    step.write(rd, np.full(LANES, int(found) & 0xFFFF_FFFF, np.uint32))


def _r2ur(step: Step) -> None:
    """Copy the register of the lowest active lane to a uniform register."""
    rd, source = [one for one in step.ins.operands if one.kind is not Kind.PREDICATE]
    if step.mask:
        lane = (step.mask & -step.mask).bit_length() - 1
        step.write(rd, np.full(LANES, step.raw(source)[lane], np.uint32))


def _thread(step: Step) -> tuple[Lanes, Lanes, Lanes]:
    x, y, _ = step.group.launch.block
    number = np.arange(LANES, dtype=np.uint32) + np.uint32(step.warp.number * LANES)
    return number % np.uint32(x), number // np.uint32(x) % np.uint32(y), number // np.uint32(x * y)


def special(step: Step, name: str) -> Lanes:
    """Return a special register."""
    lane = np.arange(LANES, dtype=np.uint64)
    if name in ("SR_TID.X", "SR_TID.Y", "SR_TID.Z"):
        return _thread(step)["XYZ".index(name[-1])]
    if name in ("SR_CTAID.X", "SR_CTAID.Y", "SR_CTAID.Z"):
        return np.full(LANES, step.group.ident["XYZ".index(name[-1])], np.uint32)
    if name == "SR_TID":
        x, y, z = _thread(step)
        packed: Lanes = x | y << np.uint32(16) | z << np.uint32(26)
        return packed
    masks = {
        "SR_LANEID": lane, "SR_EQMASK": np.uint64(1) << lane, "SR_LTMASK": (np.uint64(1) << lane) - np.uint64(1),
        "SR_LEMASK": (np.uint64(2) << lane) - np.uint64(1), "SR_GTMASK": ~((np.uint64(2) << lane) - np.uint64(1)),
        "SR_GEMASK": ~((np.uint64(1) << lane) - np.uint64(1)),
    }  # fmt: skip
    if name in masks:
        return masks[name].astype(np.uint32)
    if name == "SRZ":
        return np.zeros(LANES, np.uint32)
    clock = step.warp.turn if "CLOCK" in name else step.machine.now_ns()
    if name in ("SR_CLOCKLO", "SR_GLOBALTIMERLO"):
        return np.full(LANES, clock & 0xFFFF_FFFF, np.uint32)
    if name in ("SR_CLOCKHI", "SR_GLOBALTIMERHI"):
        return np.full(LANES, clock >> 32 & 0xFFFF_FFFF, np.uint32)
    raise Unmodelled(f"{step.ins.text}: the special register {name}")


def _s2r(step: Step) -> None:
    rd, source = step.ins.operands
    values = special(step, source.name)
    if rd.kind is Kind.UNIFORM and step.mask:
        # GUESS: a uniform register gets the value of the lowest active lane.
        values = np.full(LANES, values[(step.mask & -step.mask).bit_length() - 1], np.uint32)
    step.write(rd, values)


def _cs2r(step: Step) -> None:
    """Read a special register of 32 bits, or two of them."""
    rd, source = step.ins.operands
    low = special(step, source.name)
    if step.ins.has("32"):
        step.write(rd, low)
        return
    upper = source.name.replace("LO", "HI") if source.name.endswith("LO") else source.name
    high = np.zeros(LANES, np.uint32) if upper == "SRZ" else special(step, upper)
    step.write64(rd, low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32))


def _b2r(step: Step) -> None:
    """Read what the warp's last BAR.RED found. GUESS: the register gets the count of POPC, or all bits or none, and the
    predicate whether that is not 0.
    """
    rd, *flags = step.ins.operands
    step.write(rd, np.full(LANES, step.warp.reduced, np.uint32))
    for flag in flags:
        step.set_flags(flag, np.full(LANES, step.warp.reduced != 0))


RULES: dict[str, Callable[[Step], None]] = {
    "SHFL": _shfl, "VOTE": _vote, "VOTEU": _vote, "MATCH": _match, "REDUX": _redux, "R2UR": _r2ur, "S2R": _s2r,
    "S2UR": _s2r, "CS2R": _cs2r, "B2R": _b2r,
}  # fmt: skip
