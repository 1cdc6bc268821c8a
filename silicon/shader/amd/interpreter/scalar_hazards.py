"""RDNA4's hazard of scalars that the vector ALU has read: a value that is written to them later is read too early
without `s_wait_alu`.

Once the vector ALU has read a pair of SGPRs, a read of a new value must wait: after a write by the scalar ALU for
`sa_sdst`, after one by the vector ALU for `va_sdst`, or `va_vcc` where it is VCC. The scalar ALU waits by itself for
what the vector ALU wrote, and memory instructions wait for both. EXEC, M0 and NULL are exempt. Eleven scalar
instructions later a scalar's value is there. Only what both sources count as a hazard is one here. Source: LLVM
AMDGPUWaitSGPRHazards.cpp; Mesa aco_insert_NOPs.cpp, VALUReadSGPRHazard.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ringup.silicon.shader.amd.decoding.decode import remembered
from ringup.silicon.shader.common.state import M0, NULL, VCC_HI, VCC_LO

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from ringup.silicon.shader.amd.decoding.decode import Instruction

VALU_FORMATS = frozenset(("VOP1", "VOP2", "VOP3", "VOP3SD", "VOP3P", "VOPC", "VOPD", "VINTERP"))
_SALU = frozenset(("SOP1", "SOP2", "SOPC", "SOPK", "SOPP"))
_MEMORY = frozenset(("SMEM", "FLAT", "GLOBAL", "SCRATCH", "MUBUF", "MTBUF", "VIMAGE", "VSAMPLE"))
# Fields of s_wait_alu; a field of 0 waits.
VA_SDST, VA_VCC, SA_SDST = 0xE00, 0x2, 0x1
# Scalar instructions behind a write after which another one, or a vector instruction, may read it.
SALU_AGE, VALU_AGE = 10, 11
# So many ds_nop in a row make the hardware forget what the vector ALU has read, in wave32 and in wave64.
NOPS = {32: 4, 64: 8}


class ScalarState(NamedTuple):
    """What the rule needs of earlier instructions."""

    # pairs that the vector ALU has read, by half their number
    tracked: frozenset[int] = frozenset()
    # SGPRs that the scalar ALU wrote since, and how many scalar instructions ago
    by_salu: tuple[tuple[int, int], ...] = ()
    by_valu: frozenset[int] = frozenset()
    nops: int = 0


class _Scalars(NamedTuple):
    """What an instruction does to SGPRs."""

    is_valu: bool
    is_salu: bool
    uses: tuple[int, ...]
    defs: tuple[int, ...]


def _registers(ins: Instruction, *, written: bool) -> tuple[int, ...]:
    found: list[int] = []
    for operand in ins.defs if written else ins.uses:
        if operand.kind == "sgpr" and operand.index < M0 and operand.index != NULL:
            found += range(operand.index, operand.index + max(operand.size_bits // 32, 1))
    return tuple(dict.fromkeys(found))


@remembered
def _scalars(ins: Instruction) -> _Scalars:
    is_valu = ins.format in VALU_FORMATS
    is_salu = ins.format in _SALU
    if not is_valu and not is_salu:
        return _Scalars(is_valu, is_salu, (), ())
    uses = _registers(ins, written=False)
    if ins.mnemonic.startswith("s_cbranch_vcc"):
        uses = (VCC_LO, VCC_HI)
    return _Scalars(is_valu, is_salu, uses, _registers(ins, written=True))


def wait_of(register: int, *, by_salu: bool) -> str:
    """Return the wait that a read of a register needs."""
    field = "sa_sdst" if by_salu else "va_vcc" if register in (VCC_LO, VCC_HI) else "va_sdst"
    return f"s_wait_alu depctr_{field}(0)"


class ScalarHazards:
    """Follows a wave's instructions. `watched` limits it to some pairs of SGPRs. With `merged` the state is that of
    several paths, of which one may have done less than another: then only a wait ends a hazard.
    """

    def __init__(
        self,
        lanes: int,
        state: ScalarState | None = None,
        watched: Container[int] | None = None,
        *,
        merged: bool = False,
    ) -> None:
        before = state or ScalarState()
        self._nops_needed, self._watched, self._merged = NOPS[lanes], watched, merged
        self._tracked, self._by_valu, self._nops = set(before.tracked), set(before.by_valu), before.nops
        self._by_salu = dict(before.by_salu)

    @property
    def state(self) -> ScalarState:
        """The state for the instructions that follow."""
        if not self._tracked:
            return ScalarState()
        by_salu = tuple(sorted(self._by_salu.items()))
        return ScalarState(frozenset(self._tracked), by_salu, frozenset(self._by_valu), self._nops)

    def step(self, ins: Instruction) -> list[tuple[int, bool]]:
        """Add the next instruction; return the SGPRs that it reads too early, and whether the scalar ALU wrote them."""
        if ins.mnemonic == "ds_nop":
            self._nops += 1
            if self._nops >= self._nops_needed:
                self._tracked.clear()
            return []
        self._nops = 0
        if ins.format in _MEMORY:
            self._by_salu.clear()
            self._by_valu.clear()
            return []
        if ins.mnemonic == "s_waitcnt_depctr":
            self._wait(ins.fields["simm16"])
            return []
        scalars = _scalars(ins)
        early = self._read(scalars) if self._by_salu or self._by_valu else []
        if scalars.is_valu:
            self._tracked.update(one >> 1 for one in scalars.uses if self._watched is None or one >> 1 in self._watched)
        if scalars.is_salu and ins.format != "SOPP" and self._by_salu:
            self._by_salu = {one: age + 1 for one, age in self._by_salu.items() if age < VALU_AGE}
        for one in scalars.defs:
            if one >> 1 in self._tracked:
                self._write(one, scalars)
        return early

    def _read(self, scalars: _Scalars) -> list[tuple[int, bool]]:
        # The scalar ALU waits for the vector ALU: for VCC, or for all other SGPRs.
        if scalars.is_salu and not self._merged:
            for one in scalars.uses:
                if one >> 1 in self._tracked:
                    is_vcc = one in (VCC_LO, VCC_HI)
                    self._by_valu = {other for other in self._by_valu if (other in (VCC_LO, VCC_HI)) != is_vcc}
        limit = SALU_AGE if scalars.is_salu else VALU_AGE
        uses = [one for one in scalars.uses if one >> 1 in self._tracked]
        early = [(one, True) for one in uses if self._by_salu.get(one, limit) < limit]
        return early + [(one, False) for one in uses if scalars.is_valu and one in self._by_valu]

    def _write(self, register: int, scalars: _Scalars) -> None:
        if not self._merged:
            self._by_salu.pop(register, None)
            if register in (VCC_LO, VCC_HI):
                self._by_valu.discard(register)
        if scalars.is_salu:
            self._by_salu[register] = 0
        else:
            self._by_valu.add(register)

    def _wait(self, depctr: int) -> None:
        if not depctr & SA_SDST:
            self._by_salu.clear()
        if not depctr & VA_SDST:
            self._by_valu -= {one for one in self._by_valu if one not in (VCC_LO, VCC_HI)}
        if not depctr & VA_VCC:
            self._by_valu -= {VCC_LO, VCC_HI}


def settling_pairs(program: Iterable[Instruction]) -> set[int]:
    """Return the pairs of SGPRs that both ALUs read: where the scalar ALU reads one of them, it waits for all that the
    vector ALU wrote. A `watched` pair needs these too, once the vector ALU writes it.
    """
    by_scalars: set[int] = set()
    by_vectors: set[int] = set()
    for ins in program:
        scalars = _scalars(ins)
        if scalars.is_salu or scalars.is_valu:
            (by_scalars if scalars.is_salu else by_vectors).update(one >> 1 for one in scalars.uses)
    return by_scalars & by_vectors


def join(one: ScalarState, other: ScalarState) -> ScalarState:
    """Return the state behind either of two paths, for `merged`."""
    by_salu = dict(one.by_salu)
    for register, age in other.by_salu:
        by_salu[register] = min(age, by_salu.get(register, age))
    return ScalarState(
        one.tracked | other.tracked,
        tuple(sorted(by_salu.items())),
        one.by_valu | other.by_valu,
        min(one.nops, other.nops),
    )
