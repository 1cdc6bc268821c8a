"""Control flow of a warp: branches, convergence barriers, barriers of the group, calls, the end of threads.

Source: PTX ISA, "Divergence of Threads in Control Constructs", bar, exit; Mesa's NAK for BSSY, BSYNC, BREAK, BMOV
(MIT); Volta's white paper, "Independent Thread Scheduling". Where a warp parts, the threads that do not branch run
first; which ones do so on a card is not documented, and programs must not depend on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ringup.errors import Unmodelled
from ringup.silicon.shader.nv.decoding.instruction import WORD_BYTES, Kind
from ringup.silicon.shader.nv.interpreter.step import RuleBroken
from ringup.silicon.shader.nv.state import EVERY, LANES, GroupBarrier, Wait, lanes

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringup.silicon.shader.nv.interpreter.step import Step
    from ringup.silicon.shader.nv.state import Group, Warp


def park(warp: Warp, mask: int, pc: int, why: Wait = Wait.NOTHING, at: int = 0) -> None:
    """Take threads out of the path; they are ready at `pc`, or wait there."""
    warp.active &= ~mask
    for lane in lanes(mask):
        warp.pcs[lane], warp.waits[lane], warp.waits_at[lane] = pc, why, at


def wake(warp: Warp, mask: int, pc: int) -> None:
    """Make waiting threads ready at `pc`."""
    for lane in lanes(mask):
        warp.pcs[lane], warp.waits[lane] = pc, Wait.NOTHING


def _next(step: Step) -> None:
    step.warp.pc = step.pc + WORD_BYTES


def _bra(step: Step) -> None:
    """Branch in the lanes whose guard and predicate are true."""
    mask = step.mask
    for one in step.ins.operands:
        if one.kind in (Kind.PREDICATE, Kind.UNIFORM_PREDICATE):
            mask &= step.predicate_mask(one)
        elif one.kind is Kind.UNIFORM:
            mask &= step.uniform(one.value) ^ EVERY * one.invert
    offset = step.ins.operands[-1].value
    _go(step, mask, step.pc + WORD_BYTES + offset)


def _go(step: Step, mask: int, target: int) -> None:
    warp = step.warp
    if mask == warp.active:
        warp.pc = target
        return
    if mask:
        park(warp, mask, target)
    warp.pc = step.pc + WORD_BYTES


def _brx(step: Step) -> None:
    """Branch to a register pair, or a uniform one, plus an offset from the next instruction."""
    source, offset = step.ins.operands
    values = step.raw64(source)
    _jump(step, [int(one) + step.pc + WORD_BYTES + _signed(offset.value) for one in values])


def _signed(value: int) -> int:
    """Return an offset: a target has its sign already, a number is its lower 32 bits."""
    return value - (1 << 32) if value >= 0 and value >> 31 else value


def _jump(step: Step, targets: list[int]) -> None:
    warp, rest = step.warp, step.warp.active & ~step.mask
    if rest:
        park(warp, rest, step.pc + WORD_BYTES)
    for lane in lanes(step.mask):
        target = targets[lane] & (1 << 64) - 1
        if target % WORD_BYTES:
            raise RuleBroken("alignment", f"lane {lane} jumps to {target:#x}, which is no multiple of 16", lane)
        park(warp, 1 << lane, target)


def _call(step: Step) -> None:
    """Jump, to a register pair as `RET` does; the program has put the return address into registers itself."""
    ins = step.ins
    if ins.operands and ins.operands[0].kind is Kind.REGISTER:
        _ret(step)
        return
    if ins.has("REL") and len(ins.operands) == 1:
        _go(step, step.mask, step.pc + WORD_BYTES + ins.operands[0].value)
        return
    raise Unmodelled(f"{ins.text}: this form of a call")


def _ret(step: Step) -> None:
    """Jump to a register pair plus the constant, which is relative to the next instruction with `.REL`."""
    source, *offset = step.ins.operands
    base = step.pc + WORD_BYTES if step.ins.has("REL") else 0
    base += sum(_signed(one.value) for one in offset)
    _jump(step, [int(one) + base for one in step.raw64(source)])


def _exit(step: Step) -> None:
    warp = step.warp
    mask = step.mask
    warp.alive &= ~mask
    warp.active &= ~mask
    warp.pc = step.pc + WORD_BYTES
    settle(warp)
    settle_group(step.group)


# convergence barriers -------------------------------------------------------------------------------------------------


def _bssy(step: Step) -> None:
    """Begin a convergence barrier: its threads are those of the path."""
    warp, barrier = step.warp, step.ins.operands[0].value
    if step.machine.strict:
        _check_reuse(step, barrier)
    for lane in lanes(step.mask):
        warp.convergence[barrier, lane] = step.mask
    _next(step)


def _check_reuse(step: Step, barrier: int) -> None:
    """Raise if a thread begins a barrier anew for which another thread waits already: that one would wait forever."""
    warp = step.warp
    for lane in lanes(warp.alive & ~warp.active):
        waits = warp.waits[lane] is Wait.CONVERGENCE and warp.waits_at[lane] == barrier
        if waits and int(warp.convergence[barrier, lane]) & step.mask:
            raise RuleBroken("hazard", f"B{barrier} begins anew while lane {lane} waits at it for these threads", lane)


def _bsync(step: Step) -> None:
    """Wait for all threads of the barrier that live and have not left it."""
    barrier = step.ins.operands[0].value
    park(step.warp, step.mask, step.pc, Wait.CONVERGENCE, barrier)
    if step.warp.active:
        step.warp.pc = step.pc + WORD_BYTES
    settle(step.warp)


def _break(step: Step) -> None:
    """Leave a barrier: its other threads no longer wait for these."""
    warp, barrier = step.warp, step.ins.operands[-1].value
    mask = step.mask
    for one in step.ins.operands[:-1]:
        mask &= step.predicate_mask(one)
    row = warp.convergence[barrier]
    members = 0
    for lane in lanes(mask):
        members |= int(row[lane])
    for lane in lanes(members):
        row[lane] &= np.uint32(~mask & EVERY)
    _next(step)
    settle(warp)


def _bmov(step: Step) -> None:
    """Move a convergence barrier to or from a register."""
    to, source = step.ins.operands
    if step.ins.has("PQUAD"):
        raise Unmodelled(f"{step.ins.text}: this form of BMOV")
    warp = step.warp
    if to.kind is Kind.BARRIER and source.kind is Kind.REGISTER:
        values = step.raw(source)
        for lane in lanes(step.mask):
            warp.convergence[to.value, lane] = values[lane]
    elif to.kind is Kind.REGISTER and source.kind is Kind.BARRIER:
        step.write(to, warp.convergence[source.value].copy())
        if step.ins.has("CLEAR"):
            for lane in lanes(step.mask):
                warp.convergence[source.value, lane] = 0
    else:
        raise Unmodelled(f"{step.ins.text}: this form of BMOV")
    _next(step)


def _warpsync(step: Step) -> None:
    """Wait for the threads of a mask."""
    values = step.raw(step.ins.operands[0])
    if step.ins.has("EXCLUSIVE"):
        raise Unmodelled(f"{step.ins.text}: .EXCLUSIVE")
    for lane in lanes(step.mask):
        mask = int(values[lane])
        if not mask >> lane & 1:
            raise RuleBroken("hazard", f"lane {lane} is not in the mask {mask:#x} of its WARPSYNC", lane)
        park(step.warp, 1 << lane, step.pc, Wait.WARP, mask)
    if step.warp.active:
        step.warp.pc = step.pc + WORD_BYTES
    settle(step.warp)


def settle(warp: Warp) -> None:
    """Wake the threads whose barrier is complete."""
    for lane in lanes(warp.alive & ~warp.active):
        why, at = warp.waits[lane], warp.waits_at[lane]
        if why is Wait.CONVERGENCE:
            members = (int(warp.convergence[at, lane]) | 1 << lane) & warp.alive
        elif why is Wait.WARP:
            members = at & warp.alive
        else:
            continue
        if all(warp.waits[one] is why and warp.waits_at[one] == at for one in lanes(members)) and not (
            members & warp.active
        ):
            wake(warp, members, warp.pcs[lane] + WORD_BYTES)


# barriers of the group ------------------------------------------------------------------------------------------------


def _bar(step: Step) -> None:
    """Wait for the threads of the group, or for as many as the instruction says. `.RED` combines their predicates, and
    `.ARV` does not wait.

    Source: PTX ISA, "bar, barrier": the number of threads is a multiple of the warp's size, and a warp that arrives as
    a whole counts fully, however many threads it has.
    """
    ins = step.ins
    number, *rest = ins.operands
    if any(one.kind is Kind.REGISTER for one in (number, *rest)):
        raise Unmodelled(f"{ins.text}: a barrier's number or threads in a register")
    launched = step.group.launch.barriers
    if number.value >= max(launched, 1):
        raise RuleBroken("register", f"barrier {number.value} is beyond the {launched} barriers of the launch")
    barrier = step.group.barriers[number.value]
    needs = next((one.value for one in rest if one.kind is Kind.IMMEDIATE), 0)
    if needs % LANES:
        raise RuleBroken("illegal", f"a barrier of {needs} threads, which is no multiple of {LANES}")
    if barrier.arrived and barrier.needs != needs:
        raise RuleBroken("hazard", f"barrier {number.value} is for {needs} threads here, for {barrier.needs} elsewhere")
    barrier.needs = needs
    for one in rest:
        if one.kind is Kind.PREDICATE:
            mask = step.predicate_mask(one) & step.mask
            barrier.how = ins.modifiers[1]
            barrier.count += mask.bit_count()
            barrier.every &= mask == step.mask
            barrier.some |= mask != 0
    whole = needs and step.mask == step.warp.alive
    barrier.arrived += LANES if whole else step.mask.bit_count()
    if ins.has("ARV"):
        _next(step)
    else:
        barrier.waiting.append((step.warp, step.mask))
        park(step.warp, step.mask, step.pc, Wait.GROUP, number.value)
        if step.warp.active:
            step.warp.pc = step.pc + WORD_BYTES
    settle_group(step.group)


def settle_group(group: Group) -> None:
    """Open the barriers of a group at which all its living threads wait, or as many as they are for."""
    for number, barrier in enumerate(group.barriers):
        if barrier.arrived and barrier.arrived >= (barrier.needs or group.threads_left):
            group.barriers[number] = GroupBarrier()
            for warp, mask in barrier.waiting:
                if barrier.how:
                    warp.reduced = barrier.reduced
                for lane in lanes(mask & warp.alive):
                    wake(warp, 1 << lane, warp.pcs[lane] + WORD_BYTES)


def _yield(step: Step) -> None:
    """Let other threads of the warp run first."""
    _next(step)
    park(step.warp, step.warp.active, step.pc + WORD_BYTES)


def _kill(step: Step) -> None:
    raise Unmodelled(f"{step.ins.text}: pixel shaders")


RULES: dict[str, Callable[[Step], None]] = {
    "BRA": _bra, "BRX": _brx, "BRXU": _brx, "CALL": _call, "RET": _ret, "EXIT": _exit, "BSSY": _bssy, "BSYNC": _bsync,
    "BREAK": _break, "BMOV": _bmov, "WARPSYNC": _warpsync, "BAR": _bar, "YIELD": _yield, "KILL": _kill,
}  # fmt: skip
