"""Forms of instructions: what is left of one when register numbers, constants and offsets are taken out.

All instructions of a form share one host function, its handler (`handlers.py`). What was taken out are the operand
words of the instruction's record, which the handler reads when it runs. Operands keep their order, so `v_add_f32 v1,
v2, 3.0` and `v_add_f32 v7, v7, s4` have two forms, and the first has that of `v_add_f32 v5, v0, 0.5`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from ringup.silicon.shader.common import state
from ringup.silicon.shader.rdna.decoding.analysis import VECTOR_FORMATS, registers
from ringup.silicon.shader.rdna.decoding.memory_effects import UNITS
from ringup.silicon.shader.rdna.rules.lds import PAIRS

if TYPE_CHECKING:
    from ringup.silicon.shader.rdna.decoding.decode import Instruction, Operand

# In a form the operands have these registers, one after the other, whatever the instruction has.
SCALAR_SPAN, VECTOR_SPAN = 16, 32
MAX_SCALARS, MAX_VECTORS = state.SGPR_COUNT // SCALAR_SPAN, 256 // VECTOR_SPAN
# Fields of encodings that change what an instruction does, registers and offsets aside.
_FIELDS = ("gds", "idxen", "offen", "tfe")
# Formats whose constants may be operand words. Those of packed instructions and matrices are part of the form.
_COMPUTED = frozenset(("VOP1", "VOP2", "VOPC", "VOP3", "VOP3SD", "VOPDX", "VOPDY", "SOP1", "SOP2", "SOPC", "SOPK"))
_VECTORS = frozenset(("VOP1", "VOP2", "VOP3", "VOPDX", "VOPDY"))
# Fields of the formats in `_VECTORS`, by their names in VOP3.
_RENAMED = {
    "vsrc1": "src1", "srcx0": "src0", "srcy0": "src0", "vsrcx1": "src1", "vsrcy1": "src1", "vdstx": "vdst", "vdsty": "vdst",
}  # fmt: skip
# Their offset selects lanes.
_LANE_OFFSETS = frozenset(("ds_swizzle_b32",))
# Offsets of the instruction that stands for a form.
_OFFSET = 4
_FAR = 0x80


class Place(NamedTuple):
    """Where an operand of a form is: a scalar, a vector or a constant, and how many words of the record it takes."""

    kind: str
    number: int  # among those of its bank
    words: int = 1


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
    places: list[Place] = []
    words: list[int] = []
    if ins is not None:
        ins = _stripped(ins, _stand_in(ins.operands[:1], way, places, words))
    key = (what, way, places, offsets, ins and ins.operands)
    form = Form(_name(key), what, ins, tuple(places), offsets, False, way.lanes, False, 0, way.strict, way.counting)
    return Operation(form, tuple(words))


def operation(way: Way, ins: Instruction, mode: int, *, full: bool) -> Operation:
    """Return an instruction's form and its operand words."""
    places: list[Place] = []
    words: list[int] = []
    parts = tuple(
        _stripped(one, _stand_in(one.operands, way, places, words, is_computed=one.format in _COMPUTED))
        for one in ins.parts
    )
    if parts:
        stand_in = replace(_stripped(ins, parts[0].operands + parts[1].operands), parts=parts)
    else:
        found = _stand_in(ins.operands, way, places, words, is_computed=ins.format in _COMPUTED)
        stand_in = _stripped(ins, found)
    offsets: tuple[int, ...] = ()
    if ins.format in UNITS and ins.mnemonic not in _LANE_OFFSETS:
        stand_in, offsets = _without_offsets(stand_in, ins)
    # Scalar instructions read EXEC from the wave's state.
    full = full and ins.format in VECTOR_FORMATS
    key = (
        stand_in.mnemonic, stand_in.format, stand_in.operands, sorted(stand_in.fields.items()), stand_in.offset, stand_in.dpp,
        stand_in.clamp, stand_in.omod, [(one.mnemonic, one.operands) for one in parts], places, way, full, mode,
    )  # fmt: skip
    form = Form(
        _name(key), "", stand_in, tuple(places), len(offsets), ins.format in UNITS and ins.format != "DS", way.lanes, full, mode,
        way.strict, way.counting,
    )  # fmt: skip
    return Operation(form, (*words, *offsets))


def separately(ins: Instruction, lanes: int) -> tuple[Instruction, ...]:
    """Return instructions that do one after the other what a dual instruction does: its parts, unless each reads what
    the other writes.
    """
    if not ins.parts:
        return (ins,)
    x, y = (replace(one, mnemonic=one.mnemonic.replace("v_dual_", "v_", 1)) for one in ins.parts)
    if not _written(x, lanes) & _read(y, lanes):
        return x, y
    return (ins,) if _written(y, lanes) & _read(x, lanes) else (y, x)


def _written(ins: Instruction, lanes: int) -> int:
    found = 0
    for one in ins.defs:
        found |= registers(one, lanes)
    return found


def _read(ins: Instruction, lanes: int) -> int:
    found = 0
    for one in ins.uses:
        found |= registers(one, lanes)
    return found


def _name(key: object) -> str:
    return f"h{sha256(repr(key).encode()).hexdigest()[:24]}"


def _stripped(ins: Instruction, operands: tuple[Operand, ...]) -> Instruction:
    """Return an instruction with other operands and without what its form does not depend on."""
    is_vector = ins.format in _VECTORS
    if is_vector:
        operands = tuple(replace(one, field=_RENAMED.get(one.field, one.field)) for one in operands)
    fields = {name: ins.fields[name] for name in _FIELDS if name in ins.fields}
    return replace(
        ins, format="VOP3" if is_vector else ins.format, op=0, size_bytes=0, raw=b"", operands=operands, fields=fields,
        literal=None, flags=frozenset(),
    )  # fmt: skip


def _stand_in(
    operands: tuple[Operand, ...], way: Way, places: list[Place], words: list[int], *, is_computed: bool = False
) -> tuple[Operand, ...]:
    """Return the operands of a form for those of an instruction; add the places and the operand words that they take.

    Rules read all operands before they write any, so a form need not say which of them are the same register.
    """
    found = []
    known: dict[tuple[str, str, int], Operand] = {}
    for one in operands:
        key = one.field, one.kind, one.index
        # a destination that is also read
        if key in known and one.kind != "constant":
            found.append(replace(one, index=known[key].index))
            continue
        made = one
        if one.kind == "vgpr":
            number = sum(place.kind == "vector" for place in places)
            places.append(Place("vector", number))
            words.append(4 * (state.RESERVED_WORDS + one.index * way.lanes))
            made = replace(one, index=number * VECTOR_SPAN)
        elif one.kind == "sgpr" and one.index < state.SGPR_COUNT and one.field != "implied":
            made = _as_scalar(one, Place("scalar", _scalars(places)), places)
            words.append(4 * one.index)
        elif one.kind == "constant" and one.index == 0 and is_computed and one.direction == "use":
            is_wide = one.size_bits == 64 or (one.type == "mask" and way.lanes == 64)
            made = _as_scalar(one, Place("constant", _scalars(places), 1 + is_wide), places)
            words += [one.bits & 0xFFFF_FFFF, one.bits >> 32 & 0xFFFF_FFFF][: 1 + is_wide]
        known[key] = made
        found.append(made)
    return tuple(found)


def _scalars(places: list[Place]) -> int:
    return sum(place.kind != "vector" for place in places)


def _as_scalar(operand: Operand, place: Place, places: list[Place]) -> Operand:
    places.append(place)
    assert place.number < MAX_SCALARS
    high = operand.high and place.kind == "scalar"
    return replace(operand, kind="sgpr", index=place.number * SCALAR_SPAN, bits=0, high=high)


def _without_offsets(stand_in: Instruction, ins: Instruction) -> tuple[Instruction, tuple[int, ...]]:
    """Take the offsets out of a memory instruction; return them in bytes."""
    pair = PAIRS.get(ins.mnemonic.removeprefix("ds_load_").removeprefix("ds_store_"))
    if pair is None or ins.format != "DS":
        # The rules of scalar loads look at the sign.
        return replace(stand_in, offset=-_OFFSET if ins.offset < 0 else _OFFSET), (ins.offset & 0xFFFF_FFFF,)
    size_bytes, scale = pair
    first, second = (ins.fields[name] * scale for name in ("offset0", "offset1"))
    # Adjacent accesses are one.
    adjacent = second == first + size_bytes
    fields = stand_in.fields | {"offset0": 1, "offset1": 2 if adjacent else _FAR}
    return replace(stand_in, fields=fields, offset=0), (first, second)

