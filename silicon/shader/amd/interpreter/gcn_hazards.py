"""Hazards of CDNA3 and CDNA4 that software resolves: an instruction must be so many wait states behind another one.

Every instruction is one wait state, s_nop its number and one more. Source: LLVM 22 GCNHazardRecognizer.cpp for gfx940
and gfx950 (checkMAIHazards90A, checkMAIVALUHazards, checkVALUHazards, checkDPPHazards, checkVMEMHazards, …),
SISchedule.td for the passes of matrix products; CDNA3 ISA reference, "Manually Inserted Wait States (NOPs)"; AMD's
rocRoller, VALUWriteSGPRVCC94x.hpp: a carry needs none (LLVM puts s_nop there; ROCr's blit kernels have none). Several
VGPRs begin at an even one: LLVM AMDGPUAsmParser.cpp, validateVGPRAlign.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ringup.silicon.shader.amd.decoding.decode import remembered
from ringup.silicon.shader.amd.decoding.gcn import FACTOR_FORMATS, WHOLE_DWORD
from ringup.silicon.shader.amd.decoding.products import Shape, shape_of
from ringup.silicon.shader.amd.strict.history import RuleBroken
from ringup.silicon.shader.amd.strict.registers import scalar_name, vector_name
from ringup.silicon.shader.common.state import EXEC_LO, M0, VCC_LO

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ringup.silicon.shader.amd.decoding.decode import Instruction, Operand

_VALU = frozenset(("VOP1", "VOP2", "VOP3", "VOP3SD", "VOP3P", "VOP3P-MAI", "VOP3PX2", "VOPC"))
_VMEM = frozenset(("FLAT", "GLOBAL", "SCRATCH", "MUBUF", "MTBUF"))
_SALU = frozenset(("SOP1", "SOP2", "SOPC", "SOPK"))
_TRANS = ("v_exp_", "v_log_", "v_rcp_", "v_rsq_", "v_sqrt_", "v_sin_", "v_cos_")
_READS_LANE = frozenset(("v_readlane_b32", "v_readfirstlane_b32"))
_PERMUTES = ("v_permlane16_swap_b32", "v_permlane32_swap_b32")
# They write a part of their register.
_PART_WRITERS = ("v_cvt_scalef32_", "v_cvt_sr_", "v_cvt_pk_fp8_f32", "v_cvt_pk_bf8_f32")
_READS_M0 = ("s_movrel", "s_sendmsg", "ds_gws")
# Several VGPRs of it may begin at an odd one. Source: CDNA4 ISA reference, "MFMA Transpose Load from LDS".
UNALIGNED = "ds_load_b96_tr_b6"
# No rule looks further back.
LONGEST = 20
# Wait states by the kinds of the two instructions.
EXEC_TO_MATRIX, EXEC_TO_DPP, EXEC_TO_LANE = 4, 5, 4
VECTOR_TO_MATRIX, VECTOR_TO_DPP, VECTOR_TO_LANE, TRANS_TO_VECTOR, PART_TO_VECTOR = 2, 2, 1, 1, 1
SCALAR_TO_VECTOR, SCALAR_TO_MEMORY, SCALAR_TO_LANE, VCC_TO_FMAS = 2, 5, 4, 4
DOT_TO_OTHER, STORE_TO_VECTOR, SETREG, M0_READ, DOUBLES_TO_FMA = 3, 2, 2, 1, 2
VECTOR_TO_PERMUTE, EXEC_TO_PERMUTE = 2, 4
# How far the rules look back, by what `GcnState.written` holds.
_LONGEST = (2, TRANS_TO_VECTOR, PART_TO_VECTOR, STORE_TO_VECTOR, 5, SETREG)


class Product(NamedTuple):
    """A matrix product as later instructions need it."""

    shape: Shape
    passes: int
    is_xdl: bool
    result: frozenset[int]
    addend: frozenset[int]
    is_late: bool = False

    @property
    def is_double(self) -> bool:
        """Whether it is of f64."""
        return self.shape.result == "f64"

    @property
    def to_factor(self) -> int:
        """Wait states until A or B of another product may be its result."""
        if self.is_double and self.shape.size != 4 and self.is_late:
            return 19
        return self.to_overwritten

    @property
    def to_overwritten(self) -> int:
        """Wait states until another instruction may write its result."""
        if self.is_double:
            return 6 if self.shape.size == 4 else 11
        return self.passes + (3 + (self.is_late and self.passes != 2) if self.is_xdl else 2)

    def to_reader(self, *, is_memory: bool) -> int:
        """Wait states until another instruction may read its result."""
        if self.is_double and is_memory:
            return 9 if self.shape.size == 4 else 18
        return self.to_factor

    def to_addend(self, other: Product) -> int:
        """Wait states until C of another product may overlap its result."""
        if self.result == other.addend:
            if self.is_double and other.is_double and self.shape.size == other.shape.size == 4:
                return 4
            return 2 if self.passes == 2 else 0
        if self.is_double:
            return 0 if other.is_xdl else 4 if self.shape.size == 4 else 17 if self.is_late else 9
        if other.is_xdl and not self.is_xdl:
            return 0
        is_later = self.is_late and self.is_xdl and (other.is_xdl or self.passes != 2)
        return self.passes + self.is_xdl + is_later

    @property
    def to_overwritten_addend(self) -> int:
        """Wait states until another instruction may write its C."""
        return {2: 1, 4: 3, 8: 7, 16: 15}[self.passes] if self.is_xdl else 0


class Needs(NamedTuple):
    """The registers of an instruction, scalars apart from VGPRs."""

    reads: tuple[int, ...]
    writes: tuple[int, ...]
    # those that the vector ALU reads as constants or masks, without a carry
    scalar_reads: tuple[int, ...]
    scalar_writes: tuple[int, ...]
    addend: tuple[int, ...]
    product: Product | None
    is_vector: bool
    is_memory: bool


def passes(shape: Shape, *, is_late: bool = False, has_octets: bool = False) -> int:
    """Return how many passes of four cycles a matrix product takes: on CDNA4 if `is_late`. A product of small floats
    takes twice as many if one factor `has_octets`.
    """
    if shape.result == "f64":
        return 4 if shape.size == 4 else 16 if is_late else 8
    if has_octets:
        return 8 if shape.size == 16 else 16
    if shape.size == 4:
        return 2
    is_quick = shape.is_sparse or shape.types[0] == "xf32" or (shape.blocks == 1 and shape.depth >= 8)
    return (4 if is_quick else 8) if shape.size == 16 else 8 if is_quick else 16


def _numbers(operands: Iterable[Operand], kind: str) -> tuple[int, ...]:
    found: list[int] = []
    for one in operands:
        if one.kind == kind:
            found.extend(range(one.index, one.index + max(-(-one.size_bits // 32), 1)))
    return tuple(found)


@remembered
def needs(ins: Instruction) -> Needs:
    """Return what the rules need of an instruction."""
    shape, product = shape_of(ins.mnemonic), None
    addend: tuple[int, ...] = ()
    if shape is not None:
        addend = _numbers((one for one in ins.uses if one.field == ("vdst" if shape.is_sparse else "src2")), "vgpr")
        is_xdl = shape.types[0] not in ("f32", "f64")
        is_late = ins.generation.late_products
        count = passes(shape, is_late=is_late, has_octets=_has_octets(ins))
        result = frozenset(_numbers(ins.defs, "vgpr"))
        product = Product(shape, count, is_xdl, result, frozenset(addend), is_late)
    carry = ("implied", "src2") if "_co_ci_" in ins.mnemonic else ()
    scalars = (one for one in ins.uses if one.field not in carry)
    return Needs(
        _numbers(ins.uses, "vgpr"), _numbers(ins.defs, "vgpr"), _numbers(scalars, "sgpr"), _numbers(ins.defs, "sgpr"),
        addend, product, ins.format in _VALU, ins.format in _VMEM or ins.format == "DS",
    )  # fmt: skip


def _has_octets(ins: Instruction) -> bool:
    """Return whether A or B of a product of small floats has eight bits."""
    return ins.mnemonic.endswith("_f8f6f4") and any(ins.fields[one] < 2 for one in FACTOR_FORMATS.values())


@remembered
def misaligned(ins: Instruction) -> int | None:
    """Return the first of several VGPRs, if its number is odd."""
    if ins.mnemonic == UNALIGNED:
        return None
    return next(
        (one.index for one in ins.operands if one.kind == "vgpr" and one.size_bits > 32 and one.index % 2), None
    )


def check_alignment(ins: Instruction) -> None:
    """Raise if several VGPRs begin at an odd one."""
    first = misaligned(ins)
    if first is not None:
        raise RuleBroken("alignment", f"several VGPRs begin at {vector_name(first)}, whose number is odd")


class GcnState(NamedTuple):
    """What the rules need of the instructions before. Times are wait states: the next instruction is at 0."""

    # By kind, as in `GcnSequence`: registers with the time behind the instruction that wrote them.
    written: tuple[tuple[tuple[int, int], ...], ...] = ((),) * 6
    dots: tuple[tuple[int, int, str], ...] = ()
    products: tuple[tuple[int, Product], ...] = ()
    m0: int = -LONGEST


class GcnSequence:
    """The last instructions of a wave, as far as the rules need them. Times are wait states since it started."""

    def __init__(self, before: GcnState | None = None) -> None:
        start = before or GcnState()
        self._now = 0
        # By register: the time behind the last instruction of a kind that wrote it.
        self._vectors, self._trans, self._parts, self._stores, self._scalars, self._hardware = map(dict, start.written)
        self._dots = {register: (since, name) for register, since, name in start.dots}
        self._m0 = start.m0
        self._products = list(start.products)

    @property
    def state(self) -> GcnState:
        """The state for the instructions that follow, without what no rule looks back to."""
        kinds = (self._vectors, self._trans, self._parts, self._stores, self._scalars, self._hardware)
        written = tuple(
            tuple(sorted((one, since - self._now) for one, since in times.items() if self._now - since < longest))
            for times, longest in zip(kinds, _LONGEST, strict=True)
        )
        dots = tuple(
            sorted((one, since - self._now, name) for one, (since, name) in self._dots.items()
                   if self._now - since < DOT_TO_OTHER)
        )  # fmt: skip
        products = tuple((since - self._now, one) for since, one in self._products if self._now - since < LONGEST)
        return GcnState(written, dots, products, self._m0 - self._now if self._now - self._m0 < M0_READ else -LONGEST)

    @property
    def is_settled(self) -> bool:
        """Whether what was before it matters no longer."""
        return self._now >= LONGEST

    def check(self, ins: Instruction) -> None:
        """Add the next instruction; raise if it comes too early."""
        of = needs(ins)
        self._products = [one for one in self._products if self._now - one[0] < LONGEST]
        if of.is_vector or of.is_memory:
            self._check_products(ins, of)
            self._check_dots(ins, of)
        if of.is_vector:
            self._check_vector(ins, of)
        elif ins.format in _VMEM:
            self._far(self._scalars, of.scalar_reads, SCALAR_TO_MEMORY, scalar_name, "written by the vector ALU")
        self._check_scalar(ins)
        self._now += ins.fields["simm16"] + 1 if ins.mnemonic == "s_nop" else 1
        self._record(ins, of)

    def _require(self, since: int, needed: int, what: str) -> None:
        if self._now - since < needed:
            raise RuleBroken(
                "hazard", f"{what} {self._now - since} wait states before; {needed} are needed: put an s_nop between"
            )

    def _far(self, times: Mapping[int, int], registers: Iterable[int], needed: int, name: object, what: str) -> None:
        """Raise if one of the registers was written less than `needed` wait states before."""
        for register in registers:
            since = times.get(register)
            if since is not None and self._now - since < needed:
                shown = scalar_name(register) if name is scalar_name else vector_name(register)
                self._require(since, needed, f"{shown} was {what}")

    def _check_products(self, ins: Instruction, of: Needs) -> None:
        for since, before in self._products:
            for register in of.reads:
                if register in before.result:
                    if of.product is None:
                        needed = before.to_reader(is_memory=of.is_memory)
                    elif register in of.addend:
                        needed = before.to_addend(of.product)
                    else:
                        needed = before.to_factor
                    self._require(since, needed, f"{vector_name(register)} was written by a matrix product")
            if of.product is not None:
                continue
            for register in of.writes:
                if register in before.result:
                    self._require(
                        since, before.to_overwritten, f"{vector_name(register)} was written by a matrix product"
                    )
                elif register in before.addend:
                    needed = before.to_overwritten_addend
                    self._require(since, needed, f"{vector_name(register)} was read as C by a matrix product")
            if before.is_double and ins.mnemonic in ("v_fma_f64", "v_fmac_f64"):
                self._require(since, DOUBLES_TO_FMA, "a matrix product of f64 was")

    def _check_dots(self, ins: Instruction, of: Needs) -> None:
        if not self._dots or of.product is not None:
            return
        accumulates = {
            register for one in ins.uses if one.field in ("src2", "vdst") for register in _numbers((one,), "vgpr")
        }
        for register in (*of.reads, *of.writes):
            since, name = self._dots.get(register, (-LONGEST, ""))
            if name and not (name == ins.mnemonic and register in accumulates):
                self._require(since, DOT_TO_OTHER, f"{vector_name(register)} was written by {name}")

    def _check_vector(self, ins: Instruction, of: Needs) -> None:
        if of.product is not None:
            self._far(self._scalars, (EXEC_LO,), EXEC_TO_MATRIX, scalar_name, "written by the vector ALU")
            self._far(self._vectors, of.reads, VECTOR_TO_MATRIX, vector_name, "written by the vector ALU")
            return
        if not ins.mnemonic.startswith(_TRANS):
            self._far(self._trans, of.reads, TRANS_TO_VECTOR, vector_name, "a transcendental result")
        self._far(self._parts, of.reads, PART_TO_VECTOR, vector_name, "written in part")
        self._far(self._scalars, of.scalar_reads, SCALAR_TO_VECTOR, scalar_name, "written by the vector ALU")
        self._far(self._stores, of.writes, STORE_TO_VECTOR, vector_name, "given to a store of more than two dwords")
        if ins.dpp is not None:
            source = _numbers((one for one in ins.uses if one.field == "src0"), "vgpr")
            self._far(self._vectors, source, VECTOR_TO_DPP, vector_name, "written by the vector ALU")
            self._far(self._scalars, (EXEC_LO,), EXEC_TO_DPP, scalar_name, "written by the vector ALU")
        if ins.mnemonic in _PERMUTES:
            self._far(self._vectors, of.reads, VECTOR_TO_PERMUTE, vector_name, "written by the vector ALU")
            self._far(self._scalars, (EXEC_LO,), EXEC_TO_PERMUTE, scalar_name, "written by the vector ALU")
        if ins.mnemonic in _READS_LANE:
            self._far(self._vectors, of.reads, VECTOR_TO_LANE, vector_name, "written by the vector ALU")
        if ins.mnemonic in _READS_LANE or ins.mnemonic == "v_writelane_b32":
            self._far(self._scalars, (EXEC_LO,), EXEC_TO_LANE, scalar_name, "written by the vector ALU")
            select = _numbers((one for one in ins.uses if one.field == "src1"), "sgpr")
            self._far(self._scalars, select, SCALAR_TO_LANE, scalar_name, "written by the vector ALU")
        if ins.mnemonic.startswith("v_div_fmas"):
            self._far(self._scalars, (VCC_LO,), VCC_TO_FMAS, scalar_name, "written by the vector ALU")

    def _check_scalar(self, ins: Instruction) -> None:
        name = ins.mnemonic
        if name.startswith(("s_getreg", "s_setreg")):
            since = self._hardware.get(ins.fields["simm16"] & 0x3F)
            if since is not None:
                self._require(since, SETREG, "the same hardware register was set")
        if name.startswith(_READS_M0) or "_load_lds_" in name or (ins.format == "MUBUF" and ins.fields["lds"]):
            self._require(self._m0, M0_READ, "M0 was written")

    def _record(self, ins: Instruction, of: Needs) -> None:
        now = self._now
        if of.product is not None:
            self._products.append((now, of.product))
            for register in of.writes:
                self._vectors.pop(register, None)
        elif of.is_vector:
            self._record_vector(ins, of)
        elif of.is_memory:
            data = next((one for one in ins.uses if one.field in ("data", "vdata")), None)
            by_register = ins.format == "MUBUF" and any(
                one.field == "soffset" and one.kind == "sgpr" for one in ins.uses
            )
            if data is not None and data.size_bits > 64 and "store" in ins.mnemonic and not by_register:
                self._stores.update(dict.fromkeys(_numbers((data,), "vgpr"), now))
        elif ins.format in _SALU:
            if M0 in of.scalar_writes:
                self._m0 = now
            if ins.mnemonic.startswith("s_setreg"):
                self._hardware[ins.fields["simm16"] & 0x3F] = now
        # What the scalar ALU writes needs no wait states.
        if not of.is_vector:
            for register in of.scalar_writes:
                self._scalars.pop(register, None)

    def _record_vector(self, ins: Instruction, of: Needs) -> None:
        now = self._now
        is_dot = ins.mnemonic.startswith("v_dot")
        is_trans = ins.mnemonic.startswith(_TRANS)
        is_part = ins.fields["dst_sel"] != WHOLE_DWORD if ins.sdwa and "dst_sel" in ins.fields else _high_result(ins)
        for register in of.writes:
            for times, holds in ((self._trans, is_trans), (self._parts, is_part), (self._vectors, not is_dot)):
                if holds:
                    times[register] = now
                else:
                    times.pop(register, None)
            if is_dot:
                self._dots[register] = now, ins.mnemonic
            else:
                self._dots.pop(register, None)
        self._scalars.update(dict.fromkeys(of.scalar_writes, now))


def _high_result(ins: Instruction) -> bool:
    """Return whether op_sel puts the result in the high half of its register, or on CDNA4 in any part of it."""
    if ins.generation.late_products and ins.mnemonic.startswith(_PART_WRITERS) and ins.defs[0].size_bits == 32:
        return True
    return ins.format == "VOP3" and bool(ins.fields.get("opsel", 0) >> 3 & 1) and any(one.high for one in ins.defs)
