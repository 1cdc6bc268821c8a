"""Decode machine code to `Instruction`s, which interpreter and translator share.

Encodings come from `autogen.isa`. Nothing here says what instructions compute.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, wraps
from typing import Any, Literal, TypeVar, TypeVarTuple, cast

from ringup.autogen import isa
from ringup.silicon.shader.amd.decoding import gcn, images
from ringup.silicon.shader.amd.decoding import operands as enc
from ringup.silicon.shader.amd.decoding.gcn_names import engine_name
from ringup.silicon.shader.amd.decoding.generations import RDNA3, Generation, generation
from ringup.silicon.shader.amd.decoding.reserved import required_bits, signs_taken, unused_halves

Kind = Literal["vgpr", "sgpr", "constant", "off"]
# No instruction is longer: two dwords and a literal, a DPP or an NSA dword; three dwords of memory on RDNA4; four of a
# scaled matrix product on CDNA4.
LONGEST_BYTES = 16
MAX_DECODED = 1 << 16
SPECIAL = {-code: name for code, name in enc.SPECIAL.items()}  # index of an operand of kind constant
SCC, VCCZ, EXECZ, LDS_DIRECT = -enc.SCC, -enc.VCCZ, -enc.EXECZ, -enc.LDS_DIRECT
SHARED_BASE, SHARED_LIMIT = -enc.SHARED_BASE, -enc.SHARED_LIMIT
PRIVATE_BASE, PRIVATE_LIMIT = -enc.PRIVATE_BASE, -enc.PRIVATE_LIMIT


class IllegalInstruction(Exception):
    """Bytes that are not an instruction of the processor."""


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand.

    Scalar registers of every sort are `sgpr` by encoding number (vcc 106, ttmp0 108, null 124, m0 125, exec 126).
    `bits` is a constant's value in the operand's type: inline integers are sign-extended to `size_bits`, inline floats
    are in the operand's own float type, literals are widened as the ISA does. For `imm` fields (simm16, offsets) it is
    the sign-extended integer, masked to 64 bits. Special sources (SCC, apertures, see SPECIAL) have a negative `index`
    and kind `constant`.
    """

    kind: Kind
    index: int
    size_bits: int  # 16, 32, 64, 96, ... ; 0 if it is not a register
    type: str  # f32, u16, b64, mask, ...; from the mnemonic
    direction: str  # def, use, both
    field: str  # encoding field, or implied
    bits: int = 0
    neg: bool = False
    abs: bool = False
    high: bool = False  # op_sel: the high half of a 16-bit operand
    # Packed operands (VOP3P): the half that feeds each half of the result, and its sign change.
    sel: tuple[bool, bool] = (False, True)
    neg_halves: tuple[bool, bool] = (False, False)
    # SDWA: the byte or word that is taken, and whether its sign is extended.
    select: int = gcn.WHOLE_DWORD
    extends: bool = False
    fills: bool = False  # on GCN: a 16-bit result that clears the other half of its register


@dataclass(frozen=True, slots=True)
class Dpp:
    """A lane permutation of src0. `ctrl` is DPP16's dpp_ctrl; `lanes` the eight selectors of DPP8."""

    ctrl: int = 0
    row_mask: int = 0xF
    bank_mask: int = 0xF
    bound_ctrl: bool = False
    fetch_inactive: bool = False
    lanes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Instruction:
    """One decoded instruction.

    A dual instruction (VOPD) has two `parts` that read their sources before either writes. `mnemonic`, `format` and the
    names of `fields` are the engines' own (`generations.py`); `spelling` is the processor's mnemonic.
    """

    mnemonic: str
    format: str
    op: int
    size_bytes: int
    raw: bytes
    operands: tuple[Operand, ...]
    fields: dict[str, int]  # every encoding field by name: offset, glc, simm16, ... as raw unsigned numbers
    dpp: Dpp | None = None
    clamp: bool = False
    omod: int = 0
    literal: int | None = None
    parts: tuple[Instruction, ...] = ()
    flags: frozenset[str] = frozenset()
    sdwa: bool = False
    offset: int = 0  # signed byte offset of a memory instruction
    spelling: str = ""
    generation: Generation = RDNA3
    # What functions of it have returned, see `remembered`.
    memo: dict[Any, Any] = field(default_factory=dict, init=False, compare=False, repr=False)
    # Operands that are read, and those that are written, in the order of the text.
    uses: tuple[Operand, ...] = field(init=False, compare=False, repr=False)
    defs: tuple[Operand, ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "uses", tuple([one for one in self.operands if one.direction != "def"]))
        object.__setattr__(self, "defs", tuple([one for one in self.operands if one.direction != "use"]))


Arguments = TypeVarTuple("Arguments")
Found = TypeVar("Found")
_NOTHING = object()


def remembered(
    function: Callable[[Instruction, *Arguments], Found],
) -> Callable[[Instruction, *Arguments], Found]:
    """Keep what a function of an instruction returns with the instruction, so that the cache of `decode` keeps it."""

    @wraps(function)
    def wrapped(ins: Instruction, *args: *Arguments) -> Found:
        key = function, *args
        found: Any = ins.memo.get(key, _NOTHING)
        if found is _NOTHING:
            found = ins.memo[key] = function(ins, *args)
        return cast("Found", found)

    return wrapped


# Formats in which src0 may select a second dword with a lane permutation.
_PERMUTED = frozenset(("VOP1", "VOP2", "VOPC", "VOP3", "VOP3SD", "VOP3P"))
# Formats in which the contents of an operand's field are all that it depends on, literals excepted.
_SIMPLE = frozenset(("VOP1", "VOP2", "VOPC", "VOP3", "VOP3SD", "VOPDX", "VOPDY", "SOP1", "SOP2", "SOPC"))
_IMMEDIATES = frozenset(("simm16", "attr", "target"))
_IMPLIED = {"vcc_lo": 106, "exec_lo": 126, "vcc": 106, "exec": 126}
# These are both GDS and LDS instructions.
_WITHOUT_GDS = frozenset(("ds_append", "ds_consume", "ds_load_addtid_b32", "ds_store_addtid_b32"))
# A register of more than a dword is in one of these ranges.
_SCALAR_RUNS = ((0, 106), (106, 108), (108, 124), (124, 126), (126, 128))
# GCN also has registers for scratch memory and retries there, and no NULL.
_GCN_RUNS = ((0, 102), (102, 104), (104, 106), (106, 108), (108, 124), (124, 125), (125, 126), (126, 128))
# flat_scratch and xnack_mask of GCN, vcc, m0, exec: their second dword does not begin a pair.
_EXACT_PAIRS = frozenset((102, 104, 106, 124, 126))
# Quad permutations; shifts and rotations of a row; mirrors; shares; xor masks. Source: RDNA3 ISA reference, "DPP16"
_DPP16_CONTROLS = (
    (0, 0xFF), (0x101, 0x10F), (0x111, 0x11F), (0x121, 0x12F), (0x140, 0x141), (0x150, 0x15F), (0x160, 0x16F),
)  # fmt: skip
_MIX_BITS = {"src0": ("opsel_hi", 0), "src1": ("opsel_hi", 1), "src2": ("opsel_hi2", 0)}  # set: the source is an f16
_PARTIAL_LOAD = re.compile(r"(flat|global|scratch)_load_d16_")
_EXEC_HI = 127
MATRIX_PRODUCTS = ("v_wmma_", "v_swmmac_")
CDNA_PRODUCTS = ("v_mfma_", "v_smfmac_")
# RDNA4's loads of factors whose rows are columns in memory.
TRANSPOSING_LOADS = "global_load_tr_"
_NO_REGISTER = enc.NULL  # saddr of vector memory that has no scalar address


@dataclass(frozen=True, slots=True)
class _Shape:
    """A format as the decoder needs it."""

    name: str
    size_bytes: int
    mask: int
    value: int
    fields: tuple[tuple[str, int, int], ...]  # name, lowest bit, mask


class _Decoder:
    """The decoder of one generation."""

    def __init__(self, of: Generation) -> None:
        self._generation = of
        self._runs = _GCN_RUNS if of.is_gcn else _SCALAR_RUNS
        facts = isa.target(of.facts)
        formats = {fmt.name: fmt for fmt in (_renamed_format(fmt, of) for fmt in facts.formats.values())}
        rows = [_renamed_row(row, of) for row in facts.instructions]
        self._spellings = {
            (new.format, new.op): old.mnemonic for new, old in zip(rows, facts.instructions, strict=True)
        }
        self._rows = {(row.format, row.op): row for row in rows if row.mnemonic not in of.reserved}
        self._required = {
            key: required_bits(row, formats[row.format], of) for key, row in self._rows.items() if row.format in formats
        }
        self._unused_halves = {row.op: 0 if of.is_gcn else unused_halves(row) for row in rows if row.format == "VOP3"}
        self._signs = {row.mnemonic: signs_taken(row, of) for row in rows if row.format in ("VOP3", "VOP3SD")}
        shapes = [_shape(fmt) for fmt in formats.values()]
        self._extensions = {
            one.name: one for one, fmt in zip(shapes, formats.values(), strict=True) if fmt.is_extension
        }
        words = sorted(
            (one for one in shapes if one.name not in self._extensions), key=lambda one: -one.mask.bit_count()
        )
        # operands of `_SIMPLE` formats: by format, opcode, number, contents of the field
        self._known: dict[tuple[str, int, int, int], Operand] = {}
        # The top nine bits determine the format, except for FLAT's three segments.
        self._by_top = {
            top: tuple(one for one in words if not (top << 23 ^ one.value) & one.mask & 0xFF80_0000)
            for top in range(512)
        }

    def decode(self, window: bytes) -> Instruction:
        if len(window) < 4:
            raise IllegalInstruction(f"{len(window)} bytes left")
        word = int.from_bytes(window, "little")
        for shape in self._by_top[word >> 23 & 0x1FF]:
            if word & shape.mask != shape.value:
                continue
            if len(window) < shape.size_bytes:
                raise IllegalInstruction(f"{shape.name} cut short")
            fields = {name: word >> low & mask for name, low, mask in shape.fields}
            if shape.name == "VOPD":
                return self._dual(shape, fields, window)
            row = self._rows.get((shape.name, fields.get("op", 0)))
            if row is not None:
                mask, value = self._required[row.format, row.op]
                if self._generation.is_gcn:
                    gcn.prepare(row, fields)
                if word & mask != value:
                    raise IllegalInstruction(f"{row.mnemonic} with reserved bits {word & mask ^ value:#x}")
                if (
                    row.format == "VOP3"
                    and fields["neg"] | fields["abs"]
                    and fields["opsel"] & self._unused_halves[row.op]
                ):
                    raise IllegalInstruction(f"{row.mnemonic} with op_sel {fields['opsel']:#x} and signs")
                return self._single(shape, row, fields, window)
        raise IllegalInstruction(f"{window[:8].hex()} is no instruction")

    def _single(self, shape: _Shape, row: isa.InstructionFacts, fields: dict[str, int], window: bytes) -> Instruction:
        for flag in row.flags:
            if flag.startswith("needs-"):
                name, _, wanted = flag.removeprefix("needs-").partition("=")
                if fields[name] != int(wanted) and row.mnemonic not in _WITHOUT_GDS:
                    raise IllegalInstruction(f"{row.mnemonic} with {name} {fields[name]}")
        size, dpp, literal, sdwa = shape.size_bytes, None, None, False
        if self._generation.is_gcn and fields.get("src0") in (gcn.SDWA, gcn.DPP) and shape.size_bytes == 4:
            extra, dpp = self._gcn_extension(row, fields, window[size : size + 4])
            sdwa = dpp is None
            fields |= extra
            size += 4
        elif self._generation.is_gcn:
            if _has_literal(row, fields):
                literal = _dword(window, size, row.mnemonic)
                size += 4
        elif shape.name in _PERMUTED and fields["src0"] in (enc.DPP16, enc.DPP8, enc.DPP8_FI) and row.operands:
            extra, dpp = self._permutation(row, fields, window[size : size + 4])
            fields |= extra
            size += 4
        elif shape.name == "MIMG" and fields["nsa"]:
            fields |= self._extension("NSA", window[size : size + 4])
            size += 4
        elif _has_literal(row, fields):
            literal = _dword(window, size, row.mnemonic)
            size += 4
        if row.format == "MUBUF" and self._generation.is_gcn and fields["lds"] and fields["acc"]:
            raise IllegalInstruction(f"{row.mnemonic} to LDS with an accumulation register")
        # RDNA4's atomics return if bit 0 of the temporal hint is set, those of RDNA3 with GLC.
        if "th" in fields and ("returns" in row.flags or row.mnemonic.startswith("image_atomic")):
            fields["glc"] = fields["th"] & 1
        found = self._operands(row, fields, literal, dpp, sdwa)
        width = self._generation.offset_bits.get(shape.name)
        offset = fields.get("offset", 0)
        if shape.name == "DS":
            offset = fields["offset1"] << 8 | fields["offset0"]
        return Instruction(
            row.mnemonic, shape.name, row.op, size, window[:size], found, fields, dpp, bool(fields.get("clmp")),
            fields.get("omod", 0) if sdwa or any(one.effect == "omod" for one in row.modifiers) else 0,
            literal, (), row.flags, sdwa, enc.signed(offset, width) if width else offset, self._spellings[row.format, row.op],
            self._generation,
        )  # fmt: skip

    def _dual(self, shape: _Shape, fields: dict[str, int], window: bytes) -> Instruction:
        rows = [self._rows.get((f"VOPD{end}", fields[f"op{end.lower()}"])) for end in "XY"]
        first, second = rows
        if first is None or second is None:
            raise IllegalInstruction(f"VOPD with opx {fields['opx']} and opy {fields['opy']}")
        # one destination is even, the other odd
        fields["vdsty"] = fields["vdsty"] << 1 | ~fields["vdstx"] & 1
        for row, name in ((first, "vsrcx1"), (second, "vsrcy1")):
            if fields[name] and all(one.field != name for one in row.operands):
                raise IllegalInstruction(f"{row.mnemonic} with a {name}")
        literal, size = None, shape.size_bytes
        if _has_literal(first, fields) or _has_literal(second, fields):
            literal = _dword(window, size, first.mnemonic)
            size += 4
        parts = tuple(
            Instruction(row.mnemonic, row.format, row.op, size, window[:size], self._operands(row, fields, literal, None), fields,
                        literal=literal, flags=row.flags, spelling=self._spellings[row.format, row.op],
                        generation=self._generation)
            for row in (first, second)
        )  # fmt: skip
        return Instruction(
            f"{first.mnemonic} :: {second.mnemonic}", shape.name, first.op, size, window[:size],
            parts[0].operands + parts[1].operands, fields, literal=literal, parts=parts,
            spelling=" :: ".join(part.spelling for part in parts), generation=self._generation,
        )  # fmt: skip

    def _operands(
        self,
        row: isa.InstructionFacts,
        fields: Mapping[str, int],
        literal: int | None,
        dpp: Dpp | None,
        sdwa: bool = False,
    ) -> tuple[Operand, ...]:
        if (
            dpp is not None
            and not self._generation.permutes_beside_scalars
            and fields.get("src1", enc.FIRST_VGPR) < enc.FIRST_VGPR
            and any(one.field == "src1" for one in row.operands)
        ):
            raise IllegalInstruction(f"{row.mnemonic} with a lane permutation and src1 {fields['src1']}, no VGPR")
        found: list[Operand] = []
        if sdwa:
            found = [_selected(row, one, fields) for one in row.operands]
        elif row.format in _SIMPLE and literal is None:
            found += [self._simple(row, number, fields) for number in range(len(row.operands))]
        else:
            for facts in row.operands:
                if row.format in images.ADDRESS_FIELDS and "vaddr" in facts.field:
                    if facts.field in ("vaddr", "vaddr0"):
                        found += _image_addresses(row, facts, fields)
                else:
                    operand = _operand(row, facts, fields, literal)
                    if operand is not None:
                        found.append(operand)
            for one in found:
                _check_range(row, one, self._runs)
        changes = _changes(row, fields, (dpp is not None and not dpp.lanes) or sdwa)
        return tuple(_changed(one, changes) for one in found) if changes else tuple(found)

    def _simple(self, row: isa.InstructionFacts, number: int, fields: Mapping[str, int]) -> Operand:
        """Return an operand of a format in which it depends on its own field only. Equal ones are the same object."""
        facts = row.operands[number]
        key = row.format, row.op, number, fields.get(facts.field, 0)
        found = self._known.get(key)
        if found is None:
            found = _operand(row, facts, fields, None)
            assert found is not None
            _check_range(row, found, self._runs)
            self._known[key] = found
        return found

    def _extension(self, name: str, data: bytes) -> dict[str, int]:
        if len(data) < 4:
            raise IllegalInstruction(f"{name} dword cut short")
        word = int.from_bytes(data, "little")
        return {field: word >> low & mask for field, low, mask in self._extensions[name].fields}

    def _permutation(
        self, row: isa.InstructionFacts, fields: Mapping[str, int], data: bytes
    ) -> tuple[dict[str, int], Dpp]:
        name = "DPP16" if fields["src0"] == enc.DPP16 else "DPP8"
        if name.lower() not in row.flags:
            raise IllegalInstruction(f"{row.mnemonic} with a {name} source")
        extra = self._extension(name, data)
        extra["src0"] |= enc.FIRST_VGPR
        if name == "DPP8":
            lanes = tuple(extra[f"lane_sel{i}"] for i in range(8))
            return extra, Dpp(fetch_inactive=fields["src0"] == enc.DPP8_FI, lanes=lanes)
        if not any(first <= extra["dpp_ctrl"] <= last for first, last in _DPP16_CONTROLS):
            raise IllegalInstruction(f"{row.mnemonic} with dpp_ctrl {extra['dpp_ctrl']:#x}")
        if row.format in ("VOP1", "VOP2", "VOPC"):
            taken = self._signs.get(row.mnemonic, 3)
            if any(extra[f"src{i}_{sign}"] and not taken >> i & 1 for i in (0, 1) for sign in ("neg", "abs")):
                raise IllegalInstruction(f"{row.mnemonic} with a sign on a DPP source that takes none")
        return extra, Dpp(
            extra["dpp_ctrl"], extra["row_mask"], extra["bank_mask"], bool(extra["bc"]), bool(extra["fi"])
        )

    def _gcn_extension(
        self, row: isa.InstructionFacts, fields: Mapping[str, int], data: bytes
    ) -> tuple[dict[str, int], Dpp | None]:
        """Return the fields of a DPP or SDWA dword of GCN; the permutation is None for SDWA."""
        if fields["src0"] == gcn.SDWA:
            name = next((one for one in ("sdwa", "sdwab") if one in row.flags), None)
            if name is None:
                raise IllegalInstruction(f"{row.mnemonic} with an SDWA source")
            extra = self._extension(name.upper(), data)
            if not gcn.is_selection(row, extra):
                raise IllegalInstruction(f"{row.mnemonic} with reserved fields of SDWA")
            return extra, None
        if row.flags.isdisjoint(("dpp", "dpp-newbcast")):
            raise IllegalInstruction(f"{row.mnemonic} with a DPP source")
        extra = self._extension("DPP", data)
        if not gcn.is_permutation(row, extra["dpp_ctrl"]):
            raise IllegalInstruction(f"{row.mnemonic} with dpp_ctrl {extra['dpp_ctrl']:#x}")
        if not row.mnemonic.startswith(gcn.ANY_SIGNS) and any(
            extra[f"src{i}_neg"] | extra[f"src{i}_abs"] and not gcn.takes_signs(row, i) for i in (0, 1)
        ):
            raise IllegalInstruction(f"{row.mnemonic} with a sign on a DPP source that takes none")
        extra["src0"] |= enc.FIRST_VGPR
        return extra, Dpp(extra["dpp_ctrl"], extra["row_mask"], extra["bank_mask"], bool(extra["bc"]))


def _selected(row: isa.InstructionFacts, facts: isa.OperandFacts, fields: Mapping[str, int]) -> Operand:
    """Return an operand of an SDWA instruction: its sources may be scalars, and parts of registers."""
    if facts.field == "implied" and facts.direction == "def" and fields.get("sd"):
        return Operand("sgpr", gcn.swapped(fields["sdst"]), facts.size_bits, facts.type, "def", "sdst")
    number = {"src0": 0, "vsrc1": 1}.get(facts.field)
    if number is None:
        found = _operand(row, facts, fields, None)
        assert found is not None
        return found
    code = fields[facts.field]
    if fields[f"s{number}"]:
        kinds = ("sgpr", "ttmp", "vcc", "m0", "exec", "imm", "float")
        found = _source(row, facts._replace(kinds=kinds), gcn.swapped(code), None, facts.direction)
    else:
        found = Operand("vgpr", code, facts.size_bits, facts.type, facts.direction, facts.field)
    return replace(found, select=fields[f"src{number}_sel"], extends=bool(fields[f"src{number}_sext"]))


def _renamed_format(fmt: isa.FormatFacts, of: Generation) -> isa.FormatFacts:
    """Return a format with the engines' names."""
    names = of.fields.get(fmt.name, {})
    fields = {names.get(name, name): place for name, place in fmt.fields.items()}
    return fmt._replace(name=of.formats.get(fmt.name, fmt.name), fields=fields)


def _renamed_row(row: isa.InstructionFacts, of: Generation) -> isa.InstructionFacts:
    """Return an instruction with the engines' names."""
    names = of.fields.get(row.format, {})
    found = row._replace(
        format=of.formats.get(row.format, row.format),
        mnemonic=engine_name(row.mnemonic) if of.is_gcn else of.renamed.get(row.mnemonic, row.mnemonic),
        operands=tuple(
            one._replace(field=names.get(one.field, one.field), kinds=_kinds(row, one, of)) for one in row.operands
        ),
        modifiers=tuple(one._replace(field=names.get(one.field, one.field)) for one in row.modifiers),
    )
    return gcn.row_of(found) if of.is_gcn else found


def _kinds(row: isa.InstructionFacts, operand: isa.OperandFacts, of: Generation) -> tuple[str, ...]:
    """Return what an operand may be; LLVM also has numbers of barriers in M0, which RDNA4 reserves."""
    if of.numbers_barriers and "barrier" in row.mnemonic and operand.field == "ssrc0":
        return tuple(one for one in operand.kinds if one in ("imm", "float"))
    return operand.kinds


def _shape(fmt: isa.FormatFacts) -> _Shape:
    fields = tuple((name, lo, (1 << hi - lo + 1) - 1) for name, (hi, lo) in fmt.fields.items())
    return _Shape(fmt.name, fmt.width_bits // 8, fmt.mask, fmt.value, fields)


def _dword(window: bytes, at: int, mnemonic: str) -> int:
    if len(window) < at + 4:
        raise IllegalInstruction(f"{mnemonic} without its literal")
    return int.from_bytes(window[at : at + 4], "little")


def _has_literal(row: isa.InstructionFacts, fields: Mapping[str, int]) -> bool:
    return "tail" in row.flags or any(
        "literal" in one.kinds and fields.get(one.field) == enc.LITERAL for one in row.operands
    )


def _operand(
    row: isa.InstructionFacts, facts: isa.OperandFacts, fields: Mapping[str, int], literal: int | None
) -> Operand | None:
    name, size, direction = facts.field, facts.size_bits, facts.direction
    if row.mnemonic.endswith("_f8f6f4"):
        facts = gcn.factor_of(facts, fields)
    if name in ("implied", "hidden"):
        return Operand("sgpr", _IMPLIED[facts.text], size, facts.type, direction, name)
    if name == "literal":
        assert literal is not None
        return Operand("constant", 0, 0, facts.type, direction, name, enc.widened(literal, facts.size_bits, facts.type))
    code = fields[name]
    if name in _IMMEDIATES or facts.kinds[0] in ("sendmsg", "symbol"):
        is_signed = facts.kinds[0] == "label" or (facts.kinds[0] == "imm" and row.mnemonic.endswith("_i32"))
        return Operand(
            "constant", 0, 0, facts.type, direction, name, _wrapped(enc.signed(code, 16)) if is_signed else code
        )
    if name == "saddr" and code == _NO_REGISTER:
        return Operand("off", 0, 0, facts.type, direction, name)
    if name == "saddr" and code == _EXEC_HI:
        raise IllegalInstruction(f"{row.mnemonic} with saddr {code}")
    # A load to LDS has no data in registers.
    if name == "vdata" and row.format == "MUBUF" and fields.get("lds"):
        return None
    if name == "sbase":
        return Operand("sgpr", code << 1, size, facts.type, direction, name)
    if name in ("srsrc", "ssamp"):
        return Operand("sgpr", code << 2, size, facts.type, direction, name)
    if name == "soffset" and row.format == "SMEM" and code == enc.NULL:
        return Operand("sgpr", code, size, facts.type, direction, name)
    # SMEM's cache policies in sdata
    if facts.kinds == ("imm",):
        return Operand("constant", 0, 0, facts.type, direction, name, code)
    if not fields.get("glc", 1) and ("returns" in row.flags or row.mnemonic.startswith("image_atomic")):
        if name == "vdst":
            return None
        direction = "use"
    elif name == "vdst" and _PARTIAL_LOAD.match(row.mnemonic):
        # the other half of the register is kept
        direction = "both"
    if row.format == "EXP" and not fields["en"] >> int(name[-1]) & 1:
        return Operand("off", 0, 0, facts.type, direction, name)
    if facts.kinds in (("vgpr",), ("agpr",)) and not name.startswith("src"):
        return _memory_operand(row, facts, fields, direction)
    if row.mnemonic.startswith("v_fma_mix") and name in _MIX_BITS:
        field, bit = _MIX_BITS[name]
        facts = facts._replace(type="f16" if fields[field] >> bit & 1 else "f32")
    found = _source(row, facts, code, literal, direction)
    if found.kind == "vgpr" and gcn.is_acc(row, facts, fields):
        return replace(found, index=found.index + gcn.FIRST_ACC)
    return found


def _memory_operand(
    row: isa.InstructionFacts, facts: isa.OperandFacts, fields: Mapping[str, int], direction: str
) -> Operand:
    name, size = facts.field, facts.size_bits
    if name == "addr" and fields.get("saddr", _NO_REGISTER) != _NO_REGISTER:
        # an offset from the scalar address
        size = 32
    if row.format == "SCRATCH" and name == "addr" and not fields["sve"]:
        return Operand("off", 0, 0, facts.type, direction, name)
    if row.format in ("MUBUF", "MTBUF"):
        if name == "vaddr":
            size = 32 * (fields["idxen"] + fields["offen"])
            if not size:
                return Operand("off", 0, 0, facts.type, direction, name)
        elif fields.get("tfe"):
            size += 32  # the status dword
    if row.format in images.ADDRESS_FIELDS and name == "vdata":
        size = 32 * images.data_dwords(row.mnemonic, fields, any(one.field == "d16" for one in row.modifiers))
    register, fills = fields[name] + gcn.FIRST_ACC * gcn.is_acc(row, facts, fields), gcn.FILLS in row.flags
    return Operand("vgpr", register, size, facts.type, direction, name, fills=fills and name == "vdst")


def _image_addresses(row: isa.InstructionFacts, facts: isa.OperandFacts, fields: Mapping[str, int]) -> list[Operand]:
    return [
        Operand("vgpr", fields[name], 32 * dwords, facts.type, facts.direction, name)
        for name, dwords in zip(
            images.ADDRESS_FIELDS[row.format], images.address_dwords(row.format, row.mnemonic, fields), strict=False
        )
    ]


def _check_range(row: isa.InstructionFacts, operand: Operand, runs: tuple[tuple[int, int], ...]) -> None:
    """Raise for registers beyond the end of their file.

    A misaligned scalar register counts as the aligned one that hardware reads.
    """
    count = (operand.size_bits + 31) // 32
    if operand.kind == "vgpr":
        fits = operand.index % gcn.FIRST_ACC + count <= gcn.FIRST_ACC
    elif operand.kind == "sgpr" and count > 1 and (operand.index != enc.NULL or runs is _GCN_RUNS):
        first, end = next((first, end) for first, end in runs if operand.index < end)
        align = 2 if count == 2 else 4
        fits = operand.index - (operand.index - first) % align + count <= end
        fits = fits and (operand.index % 2 == 0 or first not in _EXACT_PAIRS)
    else:
        return
    if not fits:
        raise IllegalInstruction(f"{row.mnemonic} with {count} registers from {operand.field} {operand.index}")


def _source(
    row: isa.InstructionFacts, facts: isa.OperandFacts, code: int, literal: int | None, direction: str
) -> Operand:
    name, size, type_ = facts.field, facts.size_bits, facts.type
    if code >= enc.FIRST_VGPR and ("vgpr" in facts.kinds or "agpr" in facts.kinds):
        return Operand("vgpr", code & 0xFF, size, type_, direction, name)
    if facts.kinds == ("vgpr",):
        raise IllegalInstruction(f"{row.mnemonic} with {name} {code}, no VGPR")
    kind = enc.SCALAR_KINDS.get(code)
    if kind is not None and (kind in facts.kinds or facts.kinds in (("sgpr",), ("null",))):
        return Operand("sgpr", code, size, type_, direction, name)
    if code == enc.LITERAL and literal is not None:
        return Operand("constant", 0, size, type_, direction, name, enc.widened(literal, size, type_))
    if (
        code in enc.SPECIAL
        and size <= 64
        and "imm" in facts.kinds
        and not (code == enc.LDS_DIRECT and (size == 64 or not name.startswith("src")))
    ):
        return Operand("constant", -code, size, type_, direction, name)
    value = enc.inline(row.mnemonic, code, size, type_)
    if value is None or "imm" not in facts.kinds:
        raise IllegalInstruction(f"{row.mnemonic} with {name} {code}")
    return Operand("constant", 0, size, type_, direction, name, value)


def _wrapped(value: int) -> int:
    return value & 0xFFFF_FFFF_FFFF_FFFF


# Effect: the operand's attribute, and the position in it if it is a pair.
_EFFECTS = {
    "neg": ("neg", None), "abs": ("abs", None), "half": ("high", None), "op_sel": ("high", None), "neg_lo": ("neg_halves", 0),
    "neg_hi": ("neg_halves", 1),
}  # fmt: skip
_PACKED_EFFECTS = _EFFECTS | {"op_sel": ("sel", 0), "op_sel_hi": ("sel", 1)}
NUMBERED = {0: "src0", 1: "src1", 2: "src2", 3: "vdst"}  # by bit of neg, abs and opsel: its operand


def _changes(
    row: isa.InstructionFacts, fields: Mapping[str, int], has_signs: bool
) -> dict[str, list[tuple[str, int | None, bool]]]:
    """Return, by operand field, the changes of its modifier bits: attribute, position in it, value."""
    found: dict[str, list[tuple[str, int | None, bool]]] = {}
    # The product itself applies its signs.
    if row.format in gcn.MATRICES:
        return found
    effects = _PACKED_EFFECTS if row.format == "VOP3P" else _EFFECTS
    for one in row.modifiers:
        if one.effect not in effects:
            continue
        attribute, place = effects[one.effect]
        # Bit 7 of a register number selects its high half.
        if one.field in ("src0", "vsrc1", "vdst"):
            found.setdefault(one.field, []).append(("half", None, bool(fields[one.field] & 0x80)))
            continue
        first = 2 if one.field == "opsel_hi2" else 0
        for bit, name in NUMBERED.items():
            if one.bits >> bit & 1:
                value = bool(fields[one.field] >> bit & 1)
                found.setdefault(NUMBERED[bit + first] if first else name, []).append((attribute, place, value))
    # Signs in the dword of a lane permutation or of SDWA.
    if has_signs and row.format in ("VOP1", "VOP2", "VOPC"):
        for name, field in (("src0", "src0"), ("src1", "vsrc1")):
            for attribute in ("neg", "abs"):
                found.setdefault(field, []).append((attribute, None, bool(fields[f"{name}_{attribute}"])))
    return found


def _changed(operand: Operand, changes: Mapping[str, list[tuple[str, int | None, bool]]]) -> Operand:
    if operand.field not in changes:
        return operand
    values: dict[str, Any] = {}
    for attribute, place, value in changes[operand.field]:
        if place is None:
            values[attribute] = value
        else:
            pair = values.get(attribute, getattr(operand, attribute))
            assert isinstance(pair, tuple)
            values[attribute] = (value, pair[1]) if place == 0 else (pair[0], value)
    half = values.pop("half", None)
    if half is not None and operand.kind == "vgpr":
        return replace(operand, index=operand.index & 0x7F, **values | {"high": half})
    return replace(operand, **values)


@cache
def _decoder(facts: str) -> _Decoder:
    return _Decoder(generation(facts))


@cache
def _decoded(facts: str) -> dict[bytes, Instruction]:
    """Return the instructions decoded so far, by their bytes. No instruction begins with the bytes of another."""
    del facts
    return {}


def selected_byte(ins: Instruction) -> int:
    """Return the byte of a conversion's 8-bit float: of the source, with reversed bits of op_sel, or of the result.

    Source: RDNA4 ISA reference, "V_CVT_F32_FP8", "V_CVT_SR_FP8_F32".
    """
    bits = ins.fields.get("opsel", 0)
    return bits >> 2 if ins.mnemonic.startswith("v_cvt_sr") else (bits & 1) << 1 | bits >> 1 & 1


def waitcnt(simm16: int, of: Generation = RDNA3) -> tuple[int, int, int]:
    """Return vmcnt, expcnt and lgkmcnt of an s_waitcnt. Source: RDNA3 ISA reference, "S_WAITCNT"."""
    if of.is_gcn:
        return gcn.waitcnt(simm16)
    return simm16 >> 10 & 0x3F, simm16 & 7, simm16 >> 4 & 0x3F


def decode(data: bytes, offset: int = 0, of: Generation = RDNA3) -> Instruction:
    """Decode the instruction at byte `offset` of `data`; raise `IllegalInstruction` if there is none.

    Results are cached by their bytes.
    """
    window, known = bytes(data[offset : offset + LONGEST_BYTES]), _decoded(of.facts)
    found = known.get(window[:4]) or known.get(window[:8]) or known.get(window[:12]) or known.get(window)
    if found is None:
        found = _decoder(of.facts).decode(window)
        if len(known) >= MAX_DECODED:
            known.clear()
        known[found.raw] = found
    return found


# A of this product is so short that the low half of a wave64 holds it.
SHORT_SPARSE = "v_swmmac_i32_16x16x32_iu4"


def index_sets(mnemonic: str, wave_size: int) -> int:
    """Return how many sets of indices of a sparse product fit in a register: two bits for each element that a lane has.

    Source: RDNA4 ISA reference, "Structured Sparse Matrices".
    """
    kept = 16 * int(mnemonic.split("_")[3].rpartition("x")[2]) // 2
    lanes = 32 if mnemonic == SHORT_SPARSE else wave_size
    return max(32 * lanes // (2 * kept), 1)


def of_wave(ins: Instruction, wave_size: int) -> Instruction:
    """Return an instruction as a wave of that size executes it.

    C and D of a matrix product have half as many registers in a wave64. So have A and B on RDNA4, where a wave holds
    them once, and what a transposing load fills. Raises `IllegalInstruction` for what only the other size has: dual
    instructions, sets of indices.
    """
    if wave_size != 32 and ins.parts:
        raise IllegalInstruction(f"{ins.spelling} in a wave{wave_size}: dual instructions are for a wave32")
    if ins.mnemonic.startswith("v_swmmac_") and ins.fields["opsel"] >= index_sets(ins.mnemonic, wave_size):
        raise IllegalInstruction(f"{ins.mnemonic} with index {ins.fields['opsel']} in a wave{wave_size}")
    if wave_size == 32 or not ins.mnemonic.startswith((*MATRIX_PRODUCTS, TRANSPOSING_LOADS)):
        return ins
    halved = ("vdst", "src2") if ins.generation.copies_matrices else ("vdst", "src0", "src1", "src2")
    operands = tuple(
        replace(one, size_bits=one.size_bits // 2) if one.field in halved and one.size_bits > 32 else one
        for one in ins.operands
    )
    return replace(ins, operands=operands)
