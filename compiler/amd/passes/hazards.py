"""Inserts instructions against hazards that the hardware does not resolve. Each rule is a row:

| rule | processors | what goes wrong | remedy |
|---|---|---|---|
| trans | gfx1100 | reads a transcendental's result, at most 5 VALU and 1 such between | s_waitcnt_depctr va_vdst(0) |
| permute | gfx11 | v_permlane* after v_cmpx without a VALU between | v_mov of a register to itself |
| matrix | gfx11, gfx12 | a WMMA reads as A or B what the WMMA before wrote | v_nop |
| mask | gfx11 wave64 | SALU writes an SGPR that a VALU read as a lane mask | s_waitcnt_depctr sa_sdst(0) |
| forwarding | gfx11 wave64 | VALU reads VGPRs written around a change of EXEC | s_waitcnt_depctr va_vdst(0) |
| direct | gfx11, gfx12 | lds_param_load, lds_direct_load write a VGPR in use | s_waitcnt_depctr va_vdst(0) vm_vsrc(0) |
| pair | gfx12 | a dword of an SGPR pair that VALU has read is written, then read | s_wait_alu |

Sources: LLVM GCNHazardRecognizer.cpp (fixVALUTransUseHazard, fixVcmpxPermlaneHazards, fixWMMAHazards,
fixVALUMaskWriteHazard, fixVALUPartialForwardingHazard), AMDGPU.td (which processor has which); ACO README-ISA, "RDNA3 /
GFX11 hazards"; RDNA3 ISA reference, "Parameter Load Data Hazard Avoidance"; RDNA4 ISA reference, "Data Dependency
Resolution", "Requirements for WMMA data hazards".

Hardware resolves all other hazards since gfx10 (SGPR written by VALU and read by VMEM, v_readlane with a fresh lane
number, s_getreg after s_setreg…). Source: LLVM AMDGPU.td, FeatureNoDataDepHazard.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ringup.compiler.amd.instructions.code import Instr, Operand
from ringup.compiler.amd.instructions.effects import EXEC_LO, VCC_HI, VCC_LO, VECTOR
from ringup.compiler.amd.instructions.steps import SGPR, VGPR, Program, Step

# s_waitcnt_depctr and s_wait_alu with the named fields 0 and all others at their maximum.
VA_VDST, SA_SDST, VA_SDST, VA_VCC, DIRECT = 0x0FFF, 0xFFFE, 0xF1FF, 0xFFFD, 0x0FE3
TRANS_VALUS, TRANS_TRANS = 5, 1
FORWARD_BETWEEN, FORWARD_BEHIND = 2, 4
# Written since the last change of EXEC, or before it. Where control flow joins, both may be set.
FRESH, BEFORE = 1, 2
# Kinds of instructions that some rule starts at, besides v_cmpx.
BEGINNING: Final = frozenset(("trans", "wmma", "ldsdir"))
RULES: Final = {
    "gfx1100": frozenset(("trans", "permute", "matrix", "mask", "forwarding", "direct")),
    "gfx1151": frozenset(("permute", "matrix", "mask", "forwarding", "direct")),
    "gfx1201": frozenset(("matrix", "direct", "pair")),
}


class _State:
    """The state of the rules at one point of the program. States are merged where control flow joins."""

    __slots__ = ("compared", "masks", "matrix", "pairs", "pending", "trans", "written")

    def __init__(self) -> None:
        # VGPR unit: VALU and transcendental instructions issued since the transcendental that wrote it.
        self.trans: dict[int, tuple[int, int]] = {}
        # A v_cmpx was issued, and no VALU since.
        self.compared = False
        # Units that the WMMA just before wrote.
        self.matrix: frozenset[int] = frozenset()
        # SGPR units that VALU read as lane masks.
        self.masks: frozenset[int] = frozenset()
        # SGPR pairs that VALU has read.
        self.pairs: frozenset[int] = frozenset()
        # SGPR unit: fields of s_wait_alu that its next read needs.
        self.pending: dict[int, int] = {}
        # VGPR unit: VALU instructions issued since it was written, and FRESH, BEFORE or both.
        self.written: dict[int, tuple[int, int]] = {}

    @property
    def waits(self) -> bool:
        """Return whether the trans, permute or matrix rule may still affect the next instruction. The other rules look
        at every instruction (`_Hazards._begins`).
        """
        return bool(self.trans or self.compared or self.matrix)

    def copy(self) -> _State:
        """Return an independent copy."""
        made = _State()
        made.trans, made.pending, made.written = dict(self.trans), dict(self.pending), dict(self.written)
        made.compared, made.matrix, made.masks, made.pairs = self.compared, self.matrix, self.masks, self.pairs
        return made

    def join(self, other: _State) -> bool:
        """Merge the state of another path; return whether this one changed."""
        changed = False
        for unit, (valus, others) in other.trans.items():
            old = self.trans.get(unit, (valus, others))
            new = (min(old[0], valus), min(old[1], others))
            if new != self.trans.get(unit):
                self.trans[unit], changed = new, True
        for unit, (valus, when) in other.written.items():
            old = self.written.get(unit, (valus, when))
            new = (min(old[0], valus), old[1] | when)
            if new != self.written.get(unit):
                self.written[unit], changed = new, True
        for unit, fields in other.pending.items():
            if self.pending.get(unit, 0xFFFF) & fields != self.pending.get(unit):
                self.pending[unit], changed = self.pending.get(unit, 0xFFFF) & fields, True
        for name in ("matrix", "masks", "pairs"):
            joined = getattr(self, name) | getattr(other, name)
            if joined != getattr(self, name):
                setattr(self, name, joined)
                changed = True
        if other.compared and not self.compared:
            self.compared = changed = True
        return changed


def avoid_hazards(program: Program) -> int:
    """Insert the instructions that the processor's rules require; return their number."""
    return _Hazards(program).run()


class _Hazards:
    def __init__(self, program: Program) -> None:
        self.program = program
        rules = RULES[program.code.target]
        if program.wave_size == 32:
            rules -= {"mask", "forwarding"}
        self.rules = rules
        self._any_begins = not rules.isdisjoint(("pair", "mask", "forwarding"))

    def run(self) -> int:
        blocks, edges = self.program.blocks, self.program.edges()
        begins = [[self._begins(step) for step in steps] for steps in blocks]
        if not any(map(any, begins)):
            return 0
        entering: list[_State | None] = [None] * len(blocks)
        entering[0] = _State()
        todo = {0}
        while todo:
            b = min(todo)
            todo.discard(b)
            before = entering[b]
            assert before is not None
            state = before.copy()
            for step, begun in zip(blocks[b], begins[b], strict=True):
                if begun or state.waits:
                    self._step(state, step)
            for after in edges[b]:
                there = entering[after]
                if there is None:
                    entering[after] = state.copy()
                    todo.add(after)
                elif there.join(state):
                    todo.add(after)
        inserted = 0
        for b, steps in enumerate(blocks):
            state = (entering[b] or _State()).copy()
            made: list[Step] = []
            for step, begun in zip(steps, begins[b], strict=True):
                if not (begun or state.waits):
                    made.append(step)
                    continue
                front, behind = self._step(state, step)
                made += map(self.program.step, front)
                made.append(step)
                made += map(self.program.step, behind)
                inserted += len(front) + len(behind)
            blocks[b] = made
        return inserted

    def _begins(self, step: Step) -> bool:
        """Return whether a step matters even if no earlier one does. With some rules, every step does."""
        if self._any_begins:
            return True
        effects = step.effects
        kind = effects.kind
        return kind in BEGINNING or (kind in VECTOR and EXEC_LO in effects.hidden_defs)

    def _step(self, state: _State, step: Step) -> tuple[list[Instr], list[Instr]]:
        """Return the instructions to insert before and after a step, and update the state by all of them."""
        effects, rules = step.effects, self.rules
        kind, front, behind = effects.kind, [], []
        vector = kind in VECTOR
        name = step.instr.mnemonic
        if "pair" in rules:
            front += self._pair(state, step, vector)
        if kind == "ldsdir":
            front.append(self._depctr(DIRECT))
            state.trans.clear()
        elif effects.counters and effects.memory != "scalar":
            # Vector memory and export instructions wait for all vector results.
            state.trans.clear()
        fields = step.instr.operands[0] if name in ("s_waitcnt_depctr", "s_wait_alu") else None
        if isinstance(fields, int) and not fields & 0xF000:
            state.trans.clear()
        if vector:
            if state.trans and any(unit in state.trans for unit in step.reads):
                front.append(self._depctr(VA_VDST))
                state.trans.clear()
                state.written.clear()
            if state.compared and name.startswith("v_permlane") and "permute" in rules:
                source = step.instr.operands[1]
                front.append(Instr("v_mov_b32", source, source))
            if kind == "wmma" and state.matrix and not state.matrix.isdisjoint(self._factors(step)):
                front.append(Instr("v_nop"))
            if "forwarding" in rules and self._forwarded(state, step):
                front.append(self._depctr(VA_VDST))
                state.written.clear()
            self._issued(state, step)
        elif kind == "salu":
            if "mask" in rules and not state.masks.isdisjoint(step.writes):
                behind.append(self._depctr(SA_SDST))
                state.masks -= set(step.writes)
            if EXEC_LO in step.writes and state.written:
                state.written = {unit: (count, BEFORE) for unit, (count, _) in state.written.items()}
        return front, behind

    def _depctr(self, fields: int) -> Instr:
        return Instr("s_wait_alu" if "pair" in self.rules else "s_waitcnt_depctr", fields)

    def _factors(self, step: Step) -> Iterable[int]:
        """Return the units of A and B. A sparse product reads an index too, as its last operand."""
        operands: list[Operand] = list(step.instr.operands[1:3])
        if step.instr.mnemonic.startswith("v_swmmac"):
            operands.append(step.instr.operands[3])
        return [unit for one in operands for unit in self.program.units(one)]

    def _issued(self, state: _State, step: Step) -> None:
        """Update the state by a vector instruction."""
        effects, rules = step.effects, self.rules
        trans = effects.kind == "trans"
        state.compared = EXEC_LO in effects.hidden_defs or (state.compared and step.instr.mnemonic == "v_nop")
        state.matrix = frozenset(step.writes) if effects.kind == "wmma" else frozenset()
        if state.trans:
            kept = {}
            for unit, (valus, others) in state.trans.items():
                if valus < TRANS_VALUS and others + trans <= TRANS_TRANS:
                    kept[unit] = (valus + 1, others + trans)
            state.trans = kept
        if trans and "trans" in rules:
            for unit in step.writes:
                if unit >= VGPR:
                    state.trans[unit] = (0, 0)
        if "mask" in rules:
            for operand in (
                step.instr.operands[3:] if "cndmask" in step.instr.mnemonic or "_co_ci_" in step.instr.mnemonic else ()
            ):
                state.masks |= frozenset(
                    unit for unit in self.program.units(operand) if unit >= SGPR or unit in (VCC_LO, VCC_HI)
                )
            if "div_fmas" in step.instr.mnemonic:
                state.masks |= {VCC_LO, VCC_HI}
        if "forwarding" in rules:
            limit = FORWARD_BETWEEN + FORWARD_BEHIND + 2
            state.written = {
                unit: (count + 1, changes) for unit, (count, changes) in state.written.items() if count < limit
            }
            for unit in step.writes:
                if VGPR <= unit < SGPR:
                    state.written[unit] = (0, FRESH)

    def _forwarded(self, state: _State, step: Step) -> bool:
        """Return whether a step reads VGPRs from both sides of a change of EXEC, written so recently that one is
        partially forwarded.
        """
        found = [state.written[unit] for unit in step.reads if unit in state.written]
        return any(
            when & BEFORE and other & FRESH and last <= FORWARD_BEHIND and count - last <= FORWARD_BETWEEN + 1
            for count, when in found
            for last, other in found
        )

    def _pair(self, state: _State, step: Step, vector: bool) -> list[Instr]:
        fields = 0xFFFF
        scalar = step.effects.kind in ("salu", "smem", "branch")
        if vector or scalar or step.effects.counters:
            for unit in step.reads:
                needed = state.pending.get(unit, 0xFFFF)
                # Hardware itself holds scalar instructions back for what VALU writes.
                fields &= needed if vector else needed | SA_SDST
        if fields != 0xFFFF:
            for unit, waits in list(state.pending.items()):
                left = waits | (~fields & 0xFFFF)
                if left == 0xFFFF:
                    del state.pending[unit]
                else:
                    state.pending[unit] = left
        for unit in step.writes:
            pair = _pair_of(unit)
            if pair is not None and pair in state.pairs and (vector or step.effects.kind == "salu"):
                if unit in (VCC_LO, VCC_HI):
                    state.pending[unit] = VA_VCC if vector else SA_SDST
                else:
                    # A write by the other ALU before this one still has to be waited for.
                    state.pending[unit] = state.pending.get(unit, 0xFFFF) & (VA_SDST if vector else SA_SDST)
        if vector:
            read = {pair for pair in map(_pair_of, step.reads) if pair is not None}
            if not read <= state.pairs:
                state.pairs |= read
        return [Instr("s_wait_alu", fields)] if fields != 0xFFFF else []


def _pair_of(unit: int) -> int | None:
    if unit in (VCC_LO, VCC_HI):
        return -1
    return (unit - SGPR) // 2 if unit >= SGPR else None
