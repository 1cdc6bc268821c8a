"""Inserts s_nop where GFX942 and GFX950 need wait states between two instructions. An instruction is one wait state,
and s_nop n is n + 1. Each rule is a row of the tables below:

| after | an instruction that | needs wait states |
|---|---|---|
| VALU writes an SGPR or VCC | is VMEM and reads it | 5 |
| | reads it as the number of a lane, or is v_div_fmas and reads VCC | 4 |
| | is VALU and reads it | 2 |
| VALU writes EXEC | is a DPP instruction | 5 |
| | is v_readlane, v_readfirstlane, v_writelane or a matrix instruction | 4 |
| VALU writes a VGPR | is a DPP or a matrix instruction and reads it | 2 |
| a load writes a VGPR | is a DPP instruction and reads it | 2 |
| | is v_readlane or v_readfirstlane and reads it | 1 |
| a transcendental writes a VGPR | is VALU, not transcendental, and reads it | 1 |
| VALU writes half of a VGPR | is VALU and reads or writes it | 1 |
| a dot product writes a VGPR | is another VALU instruction that reads or writes it, or the same with it as factor | 3 |
| VMEM stores more than 8 bytes | is VALU and writes the data's VGPRs | 2 |
| a matrix instruction writes VGPRs | reads or writes them | `_after_matrix` |
| a matrix instruction with XDL reads C | is VALU and writes it | passes - 1 |
| a matrix instruction of f64 | is v_fma_f64 | 2 |
| a clause: accesses of one kind in a row | is in it, and stores, or writes what one of them reads, or the reverse | 1 |

The code also runs with XNACK, which may repeat the accesses of a clause. So a clause ends before an access that changes
what the others read.

Sources: LLVM GCNHazardRecognizer.cpp (checkVMEMHazards, checkDPPHazards, checkDivFMasHazards, checkVALUHazards,
checkRWLaneHazards, checkMAIHazards90A, checkMAIVALUHazards), AMDGPU.td (which processor has which); CDNA3 ISA
reference, "Manually Inserted Wait States (NOPs)". Hardware resolves all others.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from ringup.compiler.amd.instructions.code import Instr, Operand
from ringup.compiler.amd.instructions.effects import (
    DPP_CONTROLS,
    EXEC_HI,
    EXEC_LO,
    MODE,
    VCC_HI,
    VCC_LO,
    VECTOR,
    passes,
)
from ringup.compiler.amd.instructions.steps import SGPR, VGPR, Program, Step

# The most wait states that a rule asks for, and those of one s_nop. Source: getMaxLookAhead, insertNoopsInBundle.
MAX_WAITS: Final = 20
MAX_NOP: Final = 8
EXEC_UNITS: Final = frozenset((EXEC_LO, EXEC_HI))
VCC_UNITS: Final = frozenset((VCC_LO, VCC_HI))
LANE_READS: Final = frozenset(("v_readlane_b32", "v_readfirstlane_b32"))
LANE_OPS: Final = LANE_READS | {"v_writelane_b32"}
# A unit that stands for "a matrix instruction of f64 was issued".
DOUBLE_ISSUED: Final = MODE


class Cause(NamedTuple):
    """What an instruction did to a register, as far as rules depend on it. `what`: valu, trans, half, dot, store,
    load, matrix, matrix_c, or double. `name`: the mnemonic of a dot product. For matrices: `xdl`, `double`, the number
    of `passes`, the units of the result, (first, count), and `late`: on gfx950, whose results come later.
    """

    what: str
    name: str = ""
    xdl: bool = False
    double: bool = False
    passes: int = 0
    result: tuple[int, int] = (0, 0)
    late: bool = False


VALU, TRANS, HALF, STORE, LOAD = Cause("valu"), Cause("trans"), Cause("half"), Cause("store"), Cause("load")


class _Reader(NamedTuple):
    """What rules ask about the instruction that may have to wait."""

    name: str
    vector: bool
    matrix: bool
    trans: bool
    memory: bool
    vmem: bool
    dpp: bool
    xdl: bool
    double: bool


class Clause(NamedTuple):
    """The memory accesses just before: scalar ones or vector ones, and the units that they write and read."""

    scalar: bool
    writes: frozenset[int]
    reads: frozenset[int]


class _Entry:
    """What is known where a block begins: how many wait states ago each cause happened, and the clause."""

    def __init__(self, ages: dict[int, dict[Cause, int]], clause: Clause | None) -> None:
        self.ages, self.clause = ages, clause

    def join(self, other: _Entry) -> bool:
        """Merge what another path brings; return whether that changed anything."""
        changed = False
        for unit, found in other.ages.items():
            mine = self.ages.setdefault(unit, {})
            for cause, age in found.items():
                if cause not in mine or age < mine[cause]:
                    mine[cause] = age
                    changed = True
        clause, more = self.clause, other.clause
        if more is not None and clause is not None and clause.scalar == more.scalar:
            more = Clause(more.scalar, clause.writes | more.writes, clause.reads | more.reads)
        if more is not None and more != clause and (clause is None or clause.scalar == more.scalar):
            self.clause, changed = more, True
        return changed


class _State:
    """The causes that may still matter, by unit, with the time they happened. `now` counts wait states."""

    __slots__ = ("causes", "clause", "now")

    def __init__(self, entry: _Entry) -> None:
        self.now, self.clause = 0, entry.clause
        self.causes = {unit: {cause: -age for cause, age in found.items()} for unit, found in entry.ages.items()}

    def leave(self) -> _Entry:
        """Return what the next block begins with, without causes that no longer matter."""
        found: dict[int, dict[Cause, int]] = {}
        for unit, causes in self.causes.items():
            kept = {cause: self.now - at for cause, at in causes.items() if self.now - at <= MAX_WAITS}
            if kept:
                found[unit] = kept
        return _Entry(found, self.clause)


def insert_wait_states(program: Program) -> int:
    """Insert the wait states that the rules require; return the number of s_nop."""
    blocks, edges = program.blocks, program.edges()
    entering: list[_Entry | None] = [None] * len(blocks)
    entering[0] = _Entry({}, None)
    todo = {0}
    while todo:
        b = min(todo)
        todo.discard(b)
        state = _State(entering[b] or _Entry({}, None))
        for step in blocks[b]:
            _take(state, step, program)
        for after in edges[b]:
            there = entering[after]
            if there is None:
                entering[after] = state.leave()
                todo.add(after)
            elif there.join(state.leave()):
                todo.add(after)
    inserted = 0
    for b, steps in enumerate(blocks):
        state = _State(entering[b] or _Entry({}, None))
        made: list[Step] = []
        for step in steps:
            missing = _take(state, step, program)
            while missing > 0:
                count = min(missing, MAX_NOP)
                made.append(program.step(Instr("s_nop", count - 1)))
                missing -= count
                inserted += 1
            made.append(step)
        blocks[b] = made
    return inserted


def _take(state: _State, step: Step, program: Program) -> int:
    """Return how many wait states are missing before a step, and update the state by these and the step."""
    effects, instr = step.effects, step.instr
    name = instr.mnemonic
    missing = 0
    if state.causes and (effects.kind in VECTOR or effects.memory):
        missing = max(0, _needed(state, step, program))
    missing = _extend_clause(state, step, missing)
    state.now += missing
    taken = 1
    if name == "s_nop":
        more = instr.operands[0]
        assert isinstance(more, int)
        taken += more
    state.now += taken
    if effects.kind in VECTOR:
        _record(state, step, program)
    elif effects.access == "write" and effects.memory in ("global", "scratch", "flat") and _stored_dwords(step) > 2:
        for unit in _stored(step, program):
            state.causes.setdefault(unit, {})[STORE] = state.now
    elif effects.memory and effects.memory != "scalar":
        for unit in step.writes:
            state.causes.setdefault(unit, {})[LOAD] = state.now
    return missing


def _extend_clause(state: _State, step: Step, missing: int) -> int:
    """Add a step to the clause, or begin or end one; return the wait states before the step."""
    effects = step.effects
    scalar = effects.kind == "smem"
    if not scalar and effects.kind != "vmem":
        state.clause = None
        return missing
    mine = Clause(scalar, frozenset(step.writes), frozenset(step.reads))
    clause = state.clause
    if missing or clause is None or clause.scalar != scalar:
        state.clause = mine
        return missing
    both = Clause(scalar, clause.writes | mine.writes, clause.reads | mine.reads)
    stores = effects.access != "read"
    if clause.writes and (stores or not both.writes.isdisjoint(both.reads)):
        state.clause = mine
        return 1
    state.clause = both
    return missing


def _needed(state: _State, step: Step, program: Program) -> int:
    effects, instr = step.effects, step.instr
    name = instr.mnemonic
    matrix = effects.kind == "wmma"
    reader = _Reader(
        name, effects.kind in VECTOR, matrix, effects.kind == "trans", bool(effects.memory) and effects.memory != "scalar",
        effects.kind == "vmem", not DPP_CONTROLS.isdisjoint(instr.modifiers), matrix and _is_xdl(name), matrix and name.endswith("_f64"),
    )  # fmt: skip
    if effects.memory == "scalar":
        return 0
    addend = set(program.units(instr.operands[3])) if matrix and not isinstance(instr.operands[3], int) else set()
    lanes = set(program.units(instr.operands[2])) if name in ("v_readlane_b32", "v_writelane_b32") else set()
    factors = _factors(step, program) if matrix or name.startswith("v_dot") else frozenset()
    causes, now, needed = state.causes, state.now, 0
    for unit in step.reads:
        for cause, at in causes.get(unit, {}).items():
            count = _after(cause, reader, unit, lanes, addend, factors)
            if matrix and cause.what == "matrix":
                count = count if unit in factors else 0
                if unit in addend:
                    count = max(count, _matrix_addend(cause, reader, instr, program))
            needed = max(needed, count - (now - at))
    for unit in step.writes:
        for cause, at in causes.get(unit, {}).items():
            needed = max(needed, _before_write(cause, reader) - (now - at))
    if name == "v_fma_f64":
        for at in causes.get(DOUBLE_ISSUED, {}).values():
            needed = max(needed, 2 - (now - at))
    return needed


def _after(cause: Cause, reader: _Reader, unit: int, lanes: set[int], addend: set[int], factors: frozenset[int]) -> int:
    """Return the wait states between a cause and an instruction that reads the register."""
    what = cause.what
    if what == "valu":
        if unit in EXEC_UNITS:
            return 5 if reader.dpp else 4 if reader.matrix or reader.name in LANE_OPS else 0
        if unit >= SGPR or unit in VCC_UNITS:
            if unit in lanes or reader.name.startswith("v_div_fmas"):
                return 4
            return 2 if reader.vector else 5 if reader.vmem else 0
        return 2 if reader.dpp or reader.matrix else 1 if reader.name in LANE_READS else 0
    if what == "load":
        return 2 if reader.dpp else 0
    if what == "trans":
        return int(reader.vector and not reader.trans)
    if what == "half":
        return int(reader.vector)
    if what == "dot":
        same = reader.name == cause.name
        return 3 if (reader.vector or reader.memory) and not reader.matrix and (not same or unit in factors) else 0
    if what == "matrix":
        return _after_matrix(cause, reader)
    return 0


def _after_matrix(cause: Cause, reader: _Reader) -> int:
    """Return the wait states before a read, as A or B, by VALU, or by a memory access."""
    if cause.double:
        large = cause.passes > 4
        if reader.memory:
            return 18 if large else 9
        return (19 if cause.late else 11) if large else 6
    return _behind_matrix(cause)


def _behind_matrix(cause: Cause) -> int:
    """Return the wait states before a result that is not f64 may be read or written."""
    return cause.passes + (3 + (cause.late and cause.passes != 2) if cause.xdl else 2)


def _matrix_addend(cause: Cause, reader: _Reader, instr: Instr, program: Program) -> int:
    """Return the wait states before a matrix instruction that reads a result as C."""
    units = list(program.units(instr.operands[3]))
    if cause.result == (units[0], len(units)):
        # The same registers: only the fastest ones do not forward.
        if cause.double and reader.double and cause.passes <= 4:
            return 4
        return 2 if cause.passes == 2 else 0
    if reader.xdl and not cause.xdl:
        return 0
    if cause.double:
        return (17 if cause.late else 9) if cause.passes > 4 else 4
    late = cause.late and cause.xdl and (reader.xdl or cause.passes != 2)
    return cause.passes + cause.xdl + late


def _before_write(cause: Cause, reader: _Reader) -> int:
    """Return the wait states between a cause and an instruction that writes the register."""
    if cause.what == "store":
        return 2 if reader.vector else 0
    if cause.what == "half":
        return int(reader.vector)
    if reader.matrix:
        return 0
    if cause.what == "dot":
        return 3 if cause.name != reader.name else 0
    if cause.what == "matrix":
        if cause.double:
            return 11 if cause.passes > 4 else 6
        return _behind_matrix(cause)
    if cause.what == "matrix_c":
        return cause.passes - 1 if reader.vector or reader.memory else 0
    return 0


def _record(state: _State, step: Step, program: Program) -> None:
    """Add what a vector instruction causes."""
    effects, instr, now = step.effects, step.instr, state.now
    name = instr.mnemonic
    found: Iterable[Cause]
    if effects.kind == "wmma":
        late = program.code.target == "gfx950"
        xdl, double, count = _is_xdl(name), name.endswith("_f64"), passes(name, late=late)
        units = list(step.writes)
        found = (Cause("matrix", "", xdl, double, count, (units[0], len(units)), late),)
        if xdl and not isinstance(instr.operands[3], int):
            for unit in program.units(instr.operands[3]):
                state.causes.setdefault(unit, {})[Cause("matrix_c", passes=count)] = now
        if double:
            state.causes.setdefault(DOUBLE_ISSUED, {})[Cause("double")] = now
    else:
        found = [VALU]
        if effects.kind == "trans":
            found.append(TRANS)
        if name.startswith("v_dot"):
            found = [Cause("dot", name)]
        elif _writes_half(instr, effects.defs):
            found.append(HALF)
    for unit in step.writes:
        # As in LLVM, a later write does not end what an earlier one caused, except that of a matrix instruction.
        causes = state.causes.setdefault(unit, {})
        if effects.kind == "wmma":
            for cause in [one for one in causes if one.what == "matrix"]:
                del causes[cause]
        causes.update(dict.fromkeys(found, now))


def _writes_half(instr: Instr, defs: tuple[int, ...]) -> bool:
    op_sel = instr.modifiers.get("op_sel")
    return isinstance(op_sel, (tuple, list)) and len(op_sel) == len(instr.operands) and bool(op_sel[-1])


def _is_xdl(name: str) -> bool:
    """Return whether a matrix instruction runs on the unit for narrow types. Source: LLVM VOP3PInstructions.td, the
    classes of MAIInst with XDL.
    """
    return not name.endswith(("_f32", "_f64")) or name.endswith("_xf32")


def _factors(step: Step, program: Program) -> frozenset[int]:
    operands: list[Operand] = step.instr.operands[1:3]
    return frozenset(unit for one in operands for unit in program.units(one))


def _data(step: Step) -> Operand:
    """Return the operand with the data of a store."""
    return step.instr.operands[0 if step.instr.mnemonic.startswith("buffer") else 1]


def _stored(step: Step, program: Program) -> Iterable[int]:
    return [unit for unit in program.units(_data(step)) if VGPR <= unit < SGPR]


def _stored_dwords(step: Step) -> int:
    data = _data(step)
    return getattr(data, "count", 1)
