"""Rules about consecutive instructions: hazards that the vector ALU does not interlock, and the contents of clauses.

Source: RDNA3 and RDNA4 ISA references, "Wave Matrix Multiply Accumulate", "Instruction Clauses"; LLVM
GCNHazardRecognizer, hazards of gfx11 (VALUTransUse, VcmpxPermlane), of which gfx12 has the latter. `scalar_hazards.py`
has RDNA4's hazard of SGPRs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ringup.silicon.shader.amd.decoding.decode import MATRIX_PRODUCTS
from ringup.silicon.shader.amd.interpreter.scalar_hazards import VALU_FORMATS, ScalarHazards, ScalarState, wait_of
from ringup.silicon.shader.amd.strict.birth import register_name
from ringup.silicon.shader.amd.strict.history import RuleBroken

if TYPE_CHECKING:
    from ringup.silicon.shader.amd.decoding.decode import Instruction

# These issue once every vector result is written. Source: LLVM GCNHazardRecognizer, "Instructions which cause
# va_vdst==0"; Mesa aco_insert_NOPs.cpp, parse_vdst_wait
_BEHIND_VALU = frozenset(("FLAT", "GLOBAL", "SCRATCH", "MUBUF", "MTBUF", "MIMG", "DS", "EXP"))
_TRANSCENDENTAL = ("v_exp_", "v_log_", "v_rcp_", "v_rsq_", "v_sqrt_", "v_sin_", "v_cos_")
# Vector instructions that matter to those behind them.
_REMEMBERED = (*_TRANSCENDENTAL, *MATRIX_PRODUCTS, "v_cmpx")
_PERMLANES = ("v_permlane16", "v_permlanex16", "v_permlane64")
# A transcendental result is safe to read after more instructions than these.
MAX_BETWEEN, MAX_TRANS_BETWEEN = 5, 1
# Field of s_waitcnt_depctr: vector results still to be written; 0 waits for all.
DEPCTR_VA_VDST = 0xF000
CLAUSE_LENGTH = 0x3F
_INTERNAL = ("s_nop", "s_waitcnt", "s_sleep", "s_delay_alu")


def _registers(ins: Instruction, fields: tuple[str, ...] | None, *, written: bool) -> set[int]:
    found: set[int] = set()
    for operand in ins.defs if written else ins.uses:
        if operand.kind == "vgpr" and (fields is None or operand.field in fields):
            found.update(range(operand.index, operand.index + max(operand.size_bits // 32, 1)))
    return found


def clause_type(ins: Instruction) -> str:
    """Return the kind of clause in which an instruction may be; empty for none."""
    if ins.format in VALU_FORMATS:
        return "VALU"
    if ins.format in ("SMEM", "DS"):
        return ins.format
    if ins.format in ("FLAT", "GLOBAL", "SCRATCH", "MUBUF", "MTBUF", "VIMAGE", "VSAMPLE"):
        unit = "FLAT" if ins.format == "FLAT" else "buffer, global and scratch"
        verb = next((one for one in ("load", "store", "atomic") if one in ins.mnemonic), "invalidation")
        if ins.format == "VSAMPLE":
            verb = "load"
        return f"{unit} {verb}"
    return ""


def is_vector(ins: Instruction) -> bool:
    """Return whether the vector ALU executes an instruction."""
    return ins.format in VALU_FORMATS


class State(NamedTuple):
    """What the rules need of the instructions before."""

    # VGPR of a transcendental result, instructions and transcendentals issued since.
    pending: tuple[tuple[int, int, int], ...] = ()
    matrix: frozenset[int] = frozenset()  # result of the previous instruction, if that is a WMMA
    compared: bool = False  # the previous vector instruction wrote EXEC
    left: int = 0  # instructions left in the clause
    type_: str = ""
    scalars: ScalarState = ScalarState()


class Sequence:
    """The last instructions of a wave, as far as the rules need them. `scalars` follows SGPRs where these have rules;
    it begins where `before` ends.
    """

    def __init__(
        self,
        before: State | None = None,
        *,
        trails_transcendentals: bool = True,
        scalars: ScalarHazards | None = None,
    ) -> None:
        start = before or State()
        self._scalars = scalars
        self._trails = trails_transcendentals
        self._pending = {one: [instructions, others] for one, instructions, others in start.pending}
        self._matrix = set(start.matrix)
        self._compared, self._left, self._type = start.compared, start.left, start.type_
        # Instructions since the start, and vector instructions among them; what was left of the clause then.
        self._count = self._vectors = 0
        self._first_left = start.left

    @property
    def state(self) -> State:
        """The state for the instructions that follow."""
        pending = tuple((one, since[0], since[1]) for one, since in sorted(self._pending.items()))
        scalars = ScalarState() if self._scalars is None else self._scalars.state
        type_ = self._type if self._left else ""
        return State(pending, frozenset(self._matrix), self._compared, self._left, type_, scalars)

    @property
    def is_settled(self) -> bool:
        """Whether what was before it matters no longer: it matters for a few vector instructions, or to the end of a
        clause. SGPRs matter longer.
        """
        return self._scalars is None and self._vectors > MAX_BETWEEN and self._count > self._first_left

    def check(self, ins: Instruction) -> None:
        """Add the next instruction; raise if it comes too early."""
        self._count += 1
        self._vectors += is_vector(ins)
        if self._left:
            self._in_clause(ins)
        if self._scalars is not None and (early := self._scalars.step(ins)):
            register, by_salu = early[0]
            raise RuleBroken(
                "hazard",
                f"{register_name(register)} is read too early: the vector ALU read it before it was written again;"
                f" wait with {wait_of(register, by_salu=by_salu)}, which LLVM 20 and later put there",
            )
        if ins.mnemonic == "s_clause":
            self._left, self._type = (ins.fields["simm16"] & CLAUSE_LENGTH) + 1, ""
        elif (
            ins.mnemonic == "s_waitcnt_depctr" and not ins.fields["simm16"] & DEPCTR_VA_VDST
        ) or ins.format in _BEHIND_VALU:
            self._pending.clear()
        elif ins.format in VALU_FORMATS:
            self._vector(ins)

    def _in_clause(self, ins: Instruction) -> None:
        self._left -= 1
        kind = clause_type(ins)
        if not self._type:
            self._type = kind
        if not kind and ins.mnemonic.startswith(_INTERNAL):
            return
        if not kind or kind != self._type:
            expected = f"a clause of {self._type} instructions" if self._type else "a clause"
            raise RuleBroken("illegal", f"{ins.mnemonic} inside {expected}")

    def _vector(self, ins: Instruction) -> None:
        if not (self._pending or self._matrix or self._compared or ins.mnemonic.startswith(_REMEMBERED)):
            return
        is_matrix = ins.mnemonic.startswith(MATRIX_PRODUCTS)
        read = _registers(ins, None, written=False)
        early = sorted(read & self._pending.keys())
        if early:
            raise RuleBroken(
                "hazard", f"v{early[0]} of a transcendental instruction is read too early; wait with s_waitcnt_depctr"
            )
        taken = ("src0", "src1", "src2") if ins.mnemonic.startswith("v_swmmac") else ("src0", "src1")
        if is_matrix and self._matrix & _registers(ins, taken, written=False):
            raise RuleBroken("hazard", "matrix A or B is the result of the previous WMMA; put a v_nop between")
        if self._compared and ins.mnemonic.startswith(_PERMLANES):
            raise RuleBroken("hazard", "a lane permutation right after v_cmpx; put a vector instruction between")
        is_trans = self._trails and ins.mnemonic.startswith(_TRANSCENDENTAL)
        written = _registers(ins, None, written=True)
        for register, since in tuple(self._pending.items()):
            since[0] += 1
            since[1] += is_trans
            if register in written or since[0] > MAX_BETWEEN or since[1] > MAX_TRANS_BETWEEN:
                del self._pending[register]
        if is_trans:
            self._pending.update((register, [0, 0]) for register in written)
        self._matrix = written if is_matrix else set()
        self._compared = ins.mnemonic.startswith("v_cmpx")
