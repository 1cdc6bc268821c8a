"""Split barriers: a wave signals that it has arrived, and waits for the others with another instruction.

Source: RDNA4 ISA reference, "Work-groups and Barriers", "S_BARRIER_SIGNAL", "S_BARRIER_WAIT".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringup.silicon.shader.amd.decoding.operands import signed as as_signed
from ringup.silicon.shader.amd.interpreter.step import Exit
from ringup.silicon.shader.amd.strict.history import RuleBroken
from ringup.silicon.shader.common.launch import STATUS_IN_GROUP, TRAP_BARRIER
from ringup.silicon.shader.common.state import NULL, STATUS, WAVE_IN_GROUP

if TYPE_CHECKING:
    from ringup.silicon.shader.amd.interpreter.step import Step
    from ringup.silicon.shader.common.launch import Barrier


def _numbered(step: Step, number: int) -> Barrier | None:
    """Return a barrier that a wave may use now; None if the instruction does nothing."""
    if not step.regs.words[STATUS] & STATUS_IN_GROUP or number == 0:
        return None
    if number == TRAP_BARRIER and not step.regs.privileged:
        return None
    found = step.group.barriers.get(number)
    if found is None:
        raise RuleBroken("illegal", f"barrier {number} of {step.ins.mnemonic}: RDNA4 has -1 of the group, and -2")
    return found


def _barrier_operand(step: Step) -> Barrier | None:
    operand = next(one for one in step.ins.uses if one.field == "ssrc0")
    return _numbered(step, as_signed(operand.bits, 32))


def signal(step: Step) -> Exit:
    """Signal a barrier. Stores to LDS must have finished, since other waves may read them after it."""
    barrier = _barrier_operand(step)
    first = barrier is not None and not barrier.signals
    if barrier is not None:
        if step.regs.tracker is not None:
            step.regs.tracker.waits.check_lds(step.orders.lds)
        barrier.signal()
    if step.ins.mnemonic.endswith("isfirst"):
        step.regs.scc = int(first)
    return Exit.NEXT


def wait_for_barrier(step: Step) -> Exit:
    """Wait until the barrier is complete. A wave that waits stands before the instruction."""
    number = as_signed(step.field["simm16"], 16)
    barrier = _numbered(step, min(max(number, TRAP_BARRIER), 0))
    if barrier is None or barrier.passes(int(step.regs.words[WAVE_IN_GROUP])):
        return Exit.NEXT
    step.regs.wave.pc = step.pc
    return Exit.BARRIER


def barrier_state(step: Step) -> Exit:
    """Read the number of signals, that of members, and whether the barrier is valid."""
    barrier, first = _barrier_operand(step), step.field["sdst"]
    value = 0 if barrier is None else barrier.signals << 16 | len(barrier.members) << 4 | 1
    step.regs.set_scalar(first, value)
    step.issue(step.orders.reply, sgprs=range(first, first + 1) if first != NULL else range(0))
    return Exit.NEXT
