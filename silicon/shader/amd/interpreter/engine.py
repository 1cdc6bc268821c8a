"""The reference engine: it executes one instruction of one wave at a time as the ISA document says, and checks every
rule.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ringup.errors import Unmodelled
from ringup.silicon.shader.amd.decoding.decode import (
    LONGEST_BYTES,
    MATRIX_PRODUCTS,
    IllegalInstruction,
    Instruction,
    decode,
    of_wave,
)
from ringup.silicon.shader.amd.decoding.generations import generation, relatives
from ringup.silicon.shader.amd.decoding.text import text
from ringup.silicon.shader.amd.interpreter.alu import scalar_alu, vector_alu
from ringup.silicon.shader.amd.interpreter.buffer import vector_buffer
from ringup.silicon.shader.amd.interpreter.control import HANDLERS, enter_trap
from ringup.silicon.shader.amd.interpreter.gcn_hazards import GcnSequence, check_alignment
from ringup.silicon.shader.amd.interpreter.hazards import Sequence
from ringup.silicon.shader.amd.interpreter.images import image_memory
from ringup.silicon.shader.amd.interpreter.lds import data_share, direct_load
from ringup.silicon.shader.amd.interpreter.memory import scalar_memory, vector_memory
from ringup.silicon.shader.amd.interpreter.samples import image_samples
from ringup.silicon.shader.amd.interpreter.scalar_hazards import ScalarHazards
from ringup.silicon.shader.amd.interpreter.step import Exit, Machine, Step
from ringup.silicon.shader.amd.strict.history import RuleBroken, Tracker, misaligned
from ringup.silicon.shader.amd.strict.registers import Registers
from ringup.silicon.shader.common.launch import (
    STATUS_PRIV,
    STATUS_TRAP_EN,
    check_wave_size,
    does_not_fit,
    group_idents,
    occupancy,
    start_group,
    waves_in_group,
)
from ringup.silicon.shader.common.state import (
    STATUS,
    TRAPSTS,
    WAVE_IN_GROUP,
    Counters,
    Dispatch,
    Events,
    Memory,
    Violation,
    WaveState,
)

if TYPE_CHECKING:
    from ringup.silicon.shader.common.launch import Group

__all__ = ["Exit", "Interpreter", "Machine", "step_one"]

NAVI31_WGPS = 48
SLICE = 128  # instructions that a wave issues before the next one of its group runs
TRAPSTS_MEMORY, TRAPSTS_ILLEGAL = 1 << 8, 1 << 11
_TRAPPED = {"memory": TRAPSTS_MEMORY, "alignment": TRAPSTS_MEMORY, "illegal": TRAPSTS_ILLEGAL}
_MESSAGES = frozenset(("s_sendmsg", "s_sendmsghalt", "s_sendmsg_rtn_b32", "s_sendmsg_rtn_b64"))


def _then_next(function: Callable[[Step], None]) -> Callable[[Step], Exit]:
    def execute(step: Step) -> Exit:
        function(step)
        return Exit.NEXT

    return execute


def _refused(step: Step) -> Exit:
    raise Unmodelled(f"{step.ins.mnemonic} at {step.pc:#x}: graphics and images")


# By format: the function that executes it, and the class in which it is counted.
UNITS: dict[str, tuple[Callable[[Step], Exit], str]] = {
    **dict.fromkeys(("SOP1", "SOP2", "SOPC", "SOPK"), (scalar_alu, "salu")),
    **dict.fromkeys(
        ("VOP1", "VOP2", "VOP3", "VOP3SD", "VOP3P", "VOP3P-MAI", "VOP3PX2", "VOPC", "VOPD"), (vector_alu, "valu")
    ),
    "SMEM": (_then_next(scalar_memory), "smem"),
    "DS": (_then_next(data_share), "lds"),
    "LDSDIR": (_then_next(direct_load), "lds"),
    "FLAT": (_then_next(vector_memory), "flat"),
    **dict.fromkeys(("GLOBAL", "SCRATCH"), (_then_next(vector_memory), "vmem")),
    **dict.fromkeys(("MUBUF", "MTBUF"), (_then_next(vector_buffer), "vmem")),
    "VIMAGE": (_then_next(image_memory), "vmem"),
    "VSAMPLE": (_then_next(image_samples), "vmem"),
    **dict.fromkeys(("MIMG", "EXP", "VINTERP"), (_refused, "vmem")),
}
_VECTOR_CLASSES = frozenset(("valu", "wmma", "vmem", "flat", "lds"))


def unit(ins: Instruction) -> tuple[Callable[[Step], Exit], str]:
    """Return the function that executes an instruction, and the class in which it is counted."""
    handler = HANDLERS.get(ins.mnemonic)
    if handler is not None:
        if ins.mnemonic in _MESSAGES:
            return handler, "message"
        is_branch = "branch" in ins.mnemonic or "pc_b64" in ins.mnemonic or ins.mnemonic in ("s_call_b64", "s_rfe_b64")
        return handler, "branch" if is_branch else "salu" if ins.format != "SOPP" else "control"
    execute, name = UNITS[ins.format]
    return execute, "wmma" if ins.mnemonic.startswith(MATRIX_PRODUCTS) else name


def step_one(wave: WaveState, group: Group, machine: Machine) -> Exit:
    """Execute exactly the instruction at the wave's PC, on the wave's own words.

    The group's LDS and `machine.memory` are accessed at once, and results are written at once. Memory faults,
    misalignment and illegal code are always found. Rules that need a wave's history (loads in flight, undefined
    registers) are checked only by `Interpreter`, which keeps that history.
    """
    return _step(Registers(wave, None, strict=machine.strict, generation=machine.generation), group, machine)


def _step(regs: Registers, group: Group, machine: Machine, sequence: Sequence | GcnSequence | None = None) -> Exit:
    wave = regs.wave
    pc, step = wave.pc, None
    try:
        ins, execute, name = _fetch(machine, pc)
        _count(machine.counters, regs, pc, name)
        step = Step(ins, pc, regs, group, machine)
        regs.ins, regs.birth, regs.inactive_birth = ins, "", ""
        if machine.strict and machine.generation.is_gcn:
            check_alignment(ins)
        if sequence is not None:
            sequence.check(ins)
        wave.pc = pc + ins.size_bytes
        return execute(step)
    except RuleBroken as broken:
        wave.pc = pc
        return _broken(broken, pc, step, regs, machine)


def _fetch(machine: Machine, pc: int) -> tuple[Instruction, Callable[[Step], Exit], str]:
    if pc % 4:
        raise misaligned(pc)
    found = machine.code.get(pc)
    if found is None:
        try:
            ins = of_wave(_decoded(machine, pc), machine.dispatch.wave_size)
        except IllegalInstruction as error:
            raise RuleBroken("illegal", str(error)) from error
        found = machine.code[pc] = (ins, *unit(ins))
    return found


def _decoded(machine: Machine, pc: int) -> Instruction:
    """Decode an instruction.

    At the end of a memory region the next one is read only if the instruction is incomplete: reading it may be a fault
    of the card.
    """
    code = machine.fetch(pc, LONGEST_BYTES)
    try:
        return decode(code, 0, machine.generation)
    except IllegalInstruction:
        if len(code) == LONGEST_BYTES:
            raise
    with suppress(RuleBroken):
        code += machine.fetch(pc + len(code), LONGEST_BYTES - len(code))
    return decode(code, 0, machine.generation)


def _count(counters: Counters, regs: Registers, pc: int, name: str) -> None:
    counters.instructions += 1
    counters.by_class[name] = counters.by_class.get(name, 0) + 1
    counters.by_pc[pc] = counters.by_pc.get(pc, 0) + 1
    if name in _VECTOR_CLASSES:
        counters.lanes += regs.wave.exec_mask.bit_count()


def _broken(broken: RuleBroken, pc: int, step: Step | None, regs: Registers, machine: Machine) -> Exit:
    """Record a broken rule. Outside strict mode enter the trap handler instead, if there is one and hardware traps."""
    status = int(regs.words[STATUS])
    if (
        not machine.strict
        and step is not None
        and broken.kind in _TRAPPED
        and status & STATUS_TRAP_EN
        and not status & STATUS_PRIV
    ):
        regs.words[TRAPSTS] |= _TRAPPED[broken.kind]
        enter_trap(step, 0)
        return Exit.NEXT
    shown = text(step.ins) if step is not None else "no instruction"
    found = Violation(broken.kind, pc, shown, regs.wave.name, broken.detail, lane=broken.lane, gpu_va=broken.gpu_va)
    machine.violations.append(found)
    return Exit.FAULT


@dataclass(slots=True, eq=False)
class _Issuing:
    """A wave on the machine. `sequence` is tracked in strict mode."""

    regs: Registers
    sequence: Sequence | GcnSequence | None


@dataclass(slots=True)
class _Resident:
    """A group on the machine. `waiting` are the waves at its barrier, `running` those that can continue."""

    group: Group
    first_slot: int
    running: list[_Issuing] = field(default_factory=list)
    waiting: list[_Issuing] = field(default_factory=list)
    stopped: list[_Issuing] = field(default_factory=list)  # waves that have halted or broken a rule

    @property
    def has_ended(self) -> bool:
        """Whether every wave has ended."""
        return not self.running and not self.waiting and not self.stopped

    def wake_complete(self) -> None:
        """Let the waves run again that may pass one of the group's barriers: they execute s_barrier_wait once more."""
        complete = {wave for barrier in self.group.barriers.values() for wave in barrier.complete}
        woken = [one for one in self.waiting if int(one.regs.words[WAVE_IN_GROUP]) in complete]
        self.waiting = [one for one in self.waiting if one not in woken]
        self.running += woken


class InterpreterRun:
    """A dispatch under way. Groups take turns, and so do their waves, so waves that wait for each other make
    progress.
    """

    def __init__(self, machine: Machine, resident_limit: int) -> None:
        self.machine = machine
        self._limit = resident_limit
        self._idents = group_idents(machine.dispatch)
        self._next = next(self._idents, None)
        self._residents: deque[_Resident] = deque()
        self._free_slots: list[int] = []
        self._slots_made = 0
        # turns since a group started or ended
        self._since_change = 0

    @property
    def counters(self) -> Counters:
        """The counters so far."""
        return self.machine.counters

    @property
    def instructions(self) -> int:
        """How many wave-instructions have been executed."""
        return self.machine.counters.instructions

    @property
    def violations(self) -> list[Violation]:
        """The violations so far."""
        return self.machine.violations

    @property
    def waves(self) -> list[WaveState]:
        """The waves that were started and have not ended."""
        return [one.regs.wave for group in self._residents for one in (*group.running, *group.waiting, *group.stopped)]

    @property
    def arrived(self) -> list[WaveState]:
        """Those of `waves` that wait at their group's barrier."""
        return [one.regs.wave for group in self._residents for one in group.waiting]

    @property
    def waiting(self) -> bool:
        """Always False: nothing here needs waiting."""
        return False

    @property
    def repeating(self) -> bool:
        """Always False: it does not look."""
        return False

    def step(self, instructions: int) -> bool:
        """Run up to about `instructions` wave-instructions; return True once every wave has ended.

        A dispatch with violations never ends.
        """
        left, idle = instructions, 0
        while left > 0:
            self._admit()
            if not self._residents:
                break
            resident = self._residents.popleft()
            used = self._turn(resident, left)
            left -= used
            self._since_change += 1
            if resident.has_ended:
                self._free_slots.append(resident.first_slot)
                self._since_change = 0
            else:
                self._residents.append(resident)
            idle = 0 if used else idle + 1
            if idle > len(self._residents) and (self._next is None or len(self._residents) >= self._limit):
                # All waves left have halted, or wait for a wave that has.
                break
        ended = not self._residents and self._next is None
        if ended:
            self.machine.settle()
        return ended

    def kill(self) -> None:
        """Drop all waves (queue reset)."""
        self._residents.clear()
        self._next = None
        self.machine.settle()

    def _admit(self) -> None:
        """Start another group if none runs, or if all had a turn and none ended: one of them may wait for it."""
        while (
            self._next is not None and len(self._residents) < self._limit and self._since_change >= len(self._residents)
        ):
            dispatch = self.machine.dispatch
            if not self._free_slots:
                self._free_slots.append(self._slots_made)
                self._slots_made += waves_in_group(dispatch)
            slot = self._free_slots.pop()
            group = start_group(dispatch, self._next, slot, self.machine.generation.start)
            running = [self._issuing(wave, group) for wave in group.waves]
            self._residents.appendleft(_Resident(group, slot, running))
            self.counters.waves += len(running)
            self._next = next(self._idents, None)
            self._since_change = 0

    def _issuing(self, wave: WaveState, group: Group) -> _Issuing:
        generation = self.machine.generation
        if not self.machine.strict:
            return _Issuing(Registers(wave, None, strict=False, generation=generation), None)
        tracker = Tracker(wave, group, generation)
        regs = Registers(wave, tracker, strict=True, generation=generation)
        if generation.is_gcn:
            return _Issuing(regs, GcnSequence())
        follows = generation.trails_scalars and not self.machine.trusts_scalars
        scalars = ScalarHazards(wave.wave_size) if follows else None
        return _Issuing(regs, Sequence(trails_transcendentals=generation.trails_transcendentals, scalars=scalars))

    def _turn(self, resident: _Resident, budget: int) -> int:
        used = 0
        for one in tuple(resident.running):
            for _ in range(min(SLICE, max(budget - used, 1))):
                outcome = _step(one.regs, resident.group, self.machine, one.sequence)
                used += 1
                if outcome is not Exit.NEXT:
                    self._leave(resident, one, outcome)
                    break
        if self.machine.generation.splits_barriers:
            resident.wake_complete()
        elif resident.waiting and not resident.running and not resident.stopped:
            resident.running, resident.waiting = resident.waiting, []
        return used

    def _leave(self, resident: _Resident, one: _Issuing, outcome: Exit) -> None:
        if outcome is Exit.YIELD:
            return
        resident.running.remove(one)
        if outcome is Exit.BARRIER:
            resident.waiting.append(one)
        elif outcome is not Exit.END:
            resident.stopped.append(one)
        else:
            for barrier in resident.group.barriers.values():
                barrier.end(int(one.regs.words[WAVE_IN_GROUP]))


@dataclass(frozen=True, slots=True)
class Interpreter:
    """The shader cores of a card with `wgp_count` work-group processors of the processor `target`: the engine that is
    correct rather than fast. `trusts_scalars`: see `Translator`.
    """

    wgp_count: int = NAVI31_WGPS
    target: str = "gfx1100"
    trusts_scalars: bool = False

    @property
    def runs(self) -> tuple[str, ...]:
        """The processors whose code these cores run."""
        return relatives(self.target)

    def start(self, dispatch: Dispatch, memory: Memory, events: Events, *, strict: bool = True) -> InterpreterRun:
        """Begin a dispatch; nothing runs before the first `step`."""
        of = generation(self.target)
        check_wave_size(dispatch, of.start, self.target)
        fitting = occupancy(dispatch, of.start)
        if not fitting:
            raise ValueError(does_not_fit(dispatch))
        return InterpreterRun(
            Machine(dispatch, memory, events, strict, of, trusts_scalars=self.trusts_scalars),
            resident_limit(dispatch, fitting, self.wgp_count),
        )


def resident_limit(dispatch: Dispatch, fitting: int, wgp_count: int) -> int:
    """Return the largest number of resident groups: as many as fit on all WGPs and in scratch memory."""
    if not (dispatch.scratch_wave_bytes and dispatch.scratch_waves):
        return fitting * wgp_count
    return min(fitting * wgp_count, max(dispatch.scratch_waves // waves_in_group(dispatch), 1))
