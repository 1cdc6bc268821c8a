"""Forms of instructions: what is left of one when register numbers, constants and offsets are taken out.

All instructions of a form share one host function, its handler (`handlers.py`). What was taken out are the operand
words of the instruction's record, which the handler reads when it runs. Operands keep their order, so `v_add_f32 v1,
v2, 3.0` and `v_add_f32 v7, v7, s4` have two forms, and the first has that of `v_add_f32 v5, v0, 0.5`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from ringup.autogen import isa
from ringup.silicon.shader.amd.decoding.analysis import VECTOR_FORMATS, registers
from ringup.silicon.shader.amd.decoding.decode import remembered
from ringup.silicon.shader.amd.decoding.gcn import TABLE_FIELDS
from ringup.silicon.shader.amd.decoding.generations import GENERATIONS
from ringup.silicon.shader.amd.decoding.memory_effects import UNITS
from ringup.silicon.shader.amd.rules.lds import PAIRS
from ringup.silicon.shader.common import state

if TYPE_CHECKING:
    from ringup.silicon.shader.amd.decoding.decode import Instruction, Operand

# In a form the operands have these registers, one after the other, whatever the instruction has.
SCALAR_SPAN, VECTOR_SPAN = 16, 32
MAX_SCALARS, MAX_VECTORS = state.SGPR_COUNT // SCALAR_SPAN, 256 // VECTOR_SPAN
# Fields of encodings that change what an instruction does, registers and offsets aside.
_FIELDS = ("gds", "idxen", "offen", "tfe", "lds", "cbsz", "abid", "blgp", "dst_sel", "dst_u")
# What else changes what these do. Their op_sel is no half of an operand: it selects a byte, a part of the result, or a
# set of indices.
_SELECTING: dict[tuple[str, ...], tuple[str, ...]] = {
    (
        "v_swmmac_", "v_cvt_f32_fp8", "v_cvt_f32_bf8", "v_cvt_sr_", "v_cvt_pk_fp8_f32", "v_cvt_pk_bf8_f32", "v_cvt_scalef32_",
        "v_ashr_pk_", "v_permlane16_swap", "v_permlane32_swap",
    ): ("opsel",),
    ("v_mfma_scale_",): ("opsel", "opsel_hi"),
    ("v_bitop3_",): TABLE_FIELDS,
}  # fmt: skip
# Formats whose constants may be operand words. Those of packed instructions and matrices are part of the form.
_COMPUTED = frozenset(("VOP1", "VOP2", "VOPC", "VOP3", "VOP3SD", "VOPDX", "VOPDY", "SOP1", "SOP2", "SOPC", "SOPK"))
_VECTORS = frozenset(("VOP1", "VOP2", "VOP3", "VOPDX", "VOPDY"))
# Fields of the formats in `_VECTORS`, by their names in VOP3.
_RENAMED = {
    "vsrc1": "src1", "srcx0": "src0", "srcy0": "src0", "vsrcx1": "src1", "vsrcy1": "src1", "vdstx": "vdst", "vdsty": "vdst",
}  # fmt: skip
# Fields of encodings that hold registers, constants and offsets.
_TAKEN_OUT = frozenset(
    ("sdst", "ssrc0", "ssrc1", "simm16", "sdata", "sbase", "soffset", "offset", "vdst", "vsrc1", "src0", "src1", "src2", "offset0",
     "offset1", "data0", "data1", "addr", "data", "saddr", "vaddr", "vdata", "srsrc", "rsrc", "ioffset", "vsrc",
     "scale_src0", "scale_src1")
)  # fmt: skip
# Their offset selects lanes.
_LANE_OFFSETS = frozenset(("ds_swizzle_b32",))
# Offsets of the instruction that stands for a form.
_OFFSET = 4
_FAR = 0x80


VECTOR, SCALAR, CONSTANT, WIDE_CONSTANT = "vector", "scalar", "constant", "wide constant"


class Place(NamedTuple):
    """Where an operand of a form is. Constants are scalars to the form's instruction."""

    kind: str
    number: int  # among the vectors, or among the others

    @property
    def words(self) -> int:
        """How many operand words it takes."""
        return 2 if self.kind == WIDE_CONSTANT else 1


@dataclass(frozen=True, slots=True)
class Form:
    """An instruction in which operands stand for others; see `Place` for those that are operand words.

    Forms without an instruction are parts of control flow.
    """

    name: str  # of its handler
    what: str
    ins: Instruction | None
    places: tuple[Place, ...]
    offsets: int  # how many offsets follow the operands
    has_site: bool  # the first operand word is the byte offset of its region cache
    lanes: int
    full: bool
    mode: int
    strict: bool
    counting: bool

    @property
    def words(self) -> int:
        """How many operand words a record has."""
        return self.has_site + sum(one.words for one in self.places) + self.offsets


class Operation(NamedTuple):
    """A form, and the operand words of an instruction, the region cache excepted."""

    form: Form
    words: tuple[int, ...]


class Way(NamedTuple):
    """What forms of a program have in common."""

    lanes: int
    strict: bool
    counting: bool


def part(way: Way, what: str, offsets: int = 0, ins: Instruction | None = None) -> Operation:
    """Return a part of control flow that has so many operand words, and those of an instruction's first operand."""
    if ins is None:
        return Operation(_part(way, what, offsets), ())
    places: list[Place] = []
    first = replace(ins, operands=ins.operands[:1], parts=())
    stand_in = _stripped(first, _stand_in(first.operands, way, places))
    key = (what, way, places, offsets, stand_in.operands)
    form = Form(
        _name(key), what, stand_in, tuple(places), offsets, False, way.lanes, False, 0, way.strict, way.counting
    )
    return Operation(form, _kinds(first, way.lanes)[1])


@cache
def _part(way: Way, what: str, offsets: int) -> Form:
    key = (what, way, offsets)
    return Form(_name(key), what, None, (), offsets, False, way.lanes, False, 0, way.strict, way.counting)


@remembered
def operations(ins: Instruction, way: Way, mode: int, full: bool) -> tuple[Operation, ...]:
    """Return what an instruction does, one after the other: forms with operand words.

    The parts of a dual instruction are separate, unless each reads what the other writes.
    """
    # Scalar instructions read EXEC from the wave's state.
    full = full and ins.format in VECTOR_FORMATS
    return tuple(_operation(one, way, mode, full=full) for one in _separate(ins, way.lanes))


def _separate(ins: Instruction, lanes: int) -> tuple[Instruction, ...]:
    if not ins.parts:
        return (ins,)
    x, y = ins.parts
    if not _registers(x.defs, lanes) & _registers(y.uses, lanes):
        return x, y
    return (ins,) if _registers(y.defs, lanes) & _registers(x.uses, lanes) else (y, x)


def _registers(operands: tuple[Operand, ...], lanes: int) -> int:
    found = 0
    for one in operands:
        found |= registers(one, lanes)
    return found


# Forms by what is left of their instructions' bytes, and by the kinds of their operands.
_FORMS: dict[tuple[object, ...], Form] = {}
MAX_FORMS = 1 << 14


def _operation(ins: Instruction, way: Way, mode: int, *, full: bool) -> Operation:
    kinds, words = _kinds(ins, way.lanes)
    offsets, kind = _offsets(ins)
    of = ins.generation
    word = int.from_bytes(ins.raw, "little") & _kept_bits(ins.format, of.name) if not ins.parts else 0
    part = (ins.fields.get("dst_sel"), ins.fields.get("dst_u")) if ins.sdwa else None
    key = (of.name, ins.format, word, ins.mnemonic, ins.dpp, part, kinds, kind, way, mode, full)
    form = _FORMS.get(key)
    if form is None:
        if len(_FORMS) >= MAX_FORMS:
            _FORMS.clear()
        form = _FORMS[key] = _form(ins, way, mode, full=full)
    return Operation(form, words + offsets)


@cache
def _kept_bits(format_: str, generation: str) -> int:
    """Return the bits of an encoding that are neither registers and constants nor offsets."""
    of = GENERATIONS[generation]
    names = {ours: theirs for theirs, ours in of.formats.items()}
    facts = isa.target(of.facts).formats.get(names.get(format_, format_))
    # part of a dual instruction
    if facts is None:
        return 0
    kept = (1 << facts.width_bits) - 1
    for name, (high, low) in facts.fields.items():
        if name in _TAKEN_OUT:
            kept &= ~((1 << high + 1) - (1 << low))
    return kept


def _kinds(ins: Instruction, lanes: int) -> tuple[tuple[object, ...], tuple[int, ...]]:
    """Return the kinds of an instruction's operands, which its form depends on, and its operand words."""
    is_computed = ins.format in _COMPUTED or bool(ins.parts)
    kinds: list[object] = []
    words: list[int] = []
    known: set[tuple[str, str, int]] = set()
    for one in ins.operands:
        place = _place(one, lanes, is_computed=is_computed)
        if place is None:
            kinds.append((one.kind, one.index, one.bits))
            continue
        # A lane permutation has signs of its own.
        kinds.append((place, one.high, one.neg, one.abs, one.select, one.extends))
        register = (one.field, one.kind, one.index)
        # a destination that is also read
        if place != CONSTANT and place != WIDE_CONSTANT and register in known:
            kinds.append("again")
            continue
        known.add(register)
        if place == VECTOR:
            words.append(4 * (state.RESERVED_WORDS + one.index * lanes))
        elif place == SCALAR:
            words.append(4 * one.index)
        else:
            words.append(one.bits & 0xFFFF_FFFF)
            if place == WIDE_CONSTANT:
                words.append(one.bits >> 32 & 0xFFFF_FFFF)
    return tuple(kinds), tuple(words)


def _place(operand: Operand, lanes: int, *, is_computed: bool) -> str | None:
    """Return which kind of place an operand gets in a form, None for one that is part of it."""
    if operand.kind == "vgpr":
        return VECTOR
    if operand.kind == "sgpr":
        return SCALAR if operand.index < state.SGPR_COUNT and operand.field != "implied" else None
    if operand.kind == "constant" and not operand.index and is_computed and operand.direction == "use":
        is_wide = operand.size_bits == 64 or (operand.type == "mask" and lanes == 64)
        return WIDE_CONSTANT if is_wide else CONSTANT
    return None


def _form(ins: Instruction, way: Way, mode: int, *, full: bool) -> Form:
    places: list[Place] = []
    parts = tuple(_stripped(one, _stand_in(one.operands, way, places, is_computed=True)) for one in ins.parts)
    if parts:
        stand_in = replace(_stripped(ins, parts[0].operands + parts[1].operands), parts=parts)
    else:
        stand_in = _stripped(ins, _stand_in(ins.operands, way, places, is_computed=ins.format in _COMPUTED))
    offsets, _ = _offsets(ins)
    if offsets:
        stand_in = _with_any_offset(stand_in, ins)
    key = (
        stand_in.mnemonic, stand_in.format, stand_in.operands, sorted(stand_in.fields.items()), stand_in.offset, stand_in.dpp,
        stand_in.sdwa, stand_in.clamp, stand_in.omod, [(one.mnemonic, one.operands) for one in parts], places, way, full, mode,
        ins.generation.name,
    )  # fmt: skip
    has_site = ins.format in UNITS and ins.format != "DS"
    return Form(
        _name(key), "", stand_in, tuple(places), len(offsets), has_site, way.lanes, full, mode, way.strict, way.counting
    )


def _name(key: object) -> str:
    return f"h{sha256(repr(key).encode()).hexdigest()[:24]}"


def _stripped(ins: Instruction, operands: tuple[Operand, ...]) -> Instruction:
    """Return an instruction with other operands and without what its form does not depend on."""
    is_vector = ins.format in _VECTORS
    if ins.format in ("VOPDX", "VOPDY"):
        ins = replace(ins, mnemonic=ins.mnemonic.replace("v_dual_", "v_", 1))
    if is_vector:
        operands = tuple(replace(one, field=_RENAMED.get(one.field, one.field)) for one in operands)
    more = next((fields for names, fields in _SELECTING.items() if ins.mnemonic.startswith(names)), ())
    names = (*_FIELDS, *more)
    fields = {name: ins.fields[name] for name in names if name in ins.fields}
    return replace(
        ins, format="VOP3" if is_vector else ins.format, op=0, size_bytes=0, raw=b"", operands=operands, fields=fields,
        literal=None, flags=frozenset(),
    )  # fmt: skip


def _stand_in(
    operands: tuple[Operand, ...], way: Way, places: list[Place], *, is_computed: bool = False
) -> tuple[Operand, ...]:
    """Return the operands of a form for those of an instruction; add the places that they take.

    Rules read all operands before they write any, so a form need not say which of them are the same register.
    """
    found = []
    known: dict[tuple[str, str, int], Operand] = {}
    for one in operands:
        kind, made = _place(one, way.lanes, is_computed=is_computed), one
        register = (one.field, one.kind, one.index)
        if kind in (VECTOR, SCALAR) and register in known:
            made = replace(one, index=known[register].index)
        elif kind == VECTOR:
            number = sum(place.kind == VECTOR for place in places)
            assert number < MAX_VECTORS
            places.append(Place(VECTOR, number))
            made = known[register] = replace(one, index=number * VECTOR_SPAN)
        elif kind is not None:
            number = sum(place.kind != VECTOR for place in places)
            assert number < MAX_SCALARS
            places.append(Place(kind, number))
            high = one.high and kind == SCALAR
            made = known[register] = replace(one, kind="sgpr", index=number * SCALAR_SPAN, bits=0, high=high)
        found.append(made)
    return tuple(found)


def _pair_of(ins: Instruction) -> tuple[int, int] | None:
    """Return bytes and scale of an LDS access with two offsets, None for every other instruction."""
    if ins.format != "DS":
        return None
    return PAIRS.get(ins.mnemonic.removeprefix("ds_load_").removeprefix("ds_store_"))


def _offsets(ins: Instruction) -> tuple[tuple[int, ...], str]:
    """Return the offsets of a memory instruction in bytes, and what its form depends on of them."""
    if ins.format not in UNITS or ins.mnemonic in _LANE_OFFSETS:
        return (), str(ins.offset)
    pair = _pair_of(ins)
    if pair is None:
        return (ins.offset & 0xFFFF_FFFF,), "negative" if _looks_negative(ins) else ""
    size_bytes, scale = pair
    first, second = (ins.fields[name] * scale for name in ("offset0", "offset1"))
    # Adjacent accesses are one.
    return (first, second), "adjacent" if second == first + size_bytes else "apart"


def _looks_negative(ins: Instruction) -> bool:
    """Return whether an instruction has a negative offset and a rule that looks at the sign, as scalar loads do."""
    return ins.format == "SMEM" and ins.offset < 0


def _with_any_offset(stand_in: Instruction, ins: Instruction) -> Instruction:
    """Return an instruction whose offsets stand for all of its form."""
    if _pair_of(ins) is None:
        return replace(stand_in, offset=-_OFFSET if _looks_negative(ins) else _OFFSET)
    adjacent = _offsets(ins)[1] == "adjacent"
    return replace(stand_in, fields=stand_in.fields | {"offset0": 1, "offset1": 2 if adjacent else _FAR}, offset=0)
