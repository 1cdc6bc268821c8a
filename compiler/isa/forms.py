"""Encodings of one instruction, built from its row of facts: where each operand and modifier lies, and what may stand there.

A row gives one form for its own format and one for every extension dword it takes (DPP16, DPP8, SDWA). Encoder, decoder and text work from
forms alone. Sources: the rows (`autogen/isa`); ISA documents, "Microcode Formats".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ringup.autogen.isa import FormatFacts, InstructionFacts, OperandFacts, Target

SDWA_CODE, DPP16_CODE, DPP8_CODE, DPP8_FI_CODE = 249, 250, 233, 234
SCALAR_KINDS = "stcx"  # general scalar registers
SHORT = {"VOP1": "e32", "VOP2": "e32", "VOPC": "e32"}
LONG = ("VOP3", "VOP3SD", "VOP3A", "VOP3B")
LETTERS = {
    "vgpr": "v", "agpr": "a", "sgpr": "s", "ttmp": "t", "vcc": "c", "exec": "x", "m0": "m", "null": "n", "scc": "k", "aperture": "p",
    "lds_direct": "d", "off": "o", "flat_scratch": "F", "xnack_mask": "X", "pops": "P", "imm": "i", "float": "f", "literal": "l",
    "label": "L", "waitcnt": "W", "hwreg": "H", "sendmsg": "G", "delay": "D", "attribute": "A", "export": "E", "symbol": "U",
}  # fmt: skip
# order in which texts name modifiers
MODIFIER_ORDER = (
    "format", "idxen", "offen", "offset0", "offset1", "offset", "dmask", "dim", "unorm", "glc", "sc0", "nt", "sc1", "slc", "dlc", "th",
    "scope", "nv", "gds", "r128", "a16", "lds", "tfe", "lwe", "d16", "wait_vdst", "wait_va_vdst", "wait_vm_vsrc", "done", "row_en",
    "index_key", "op_sel", "op_sel_hi", "neg_lo", "neg_hi", "bitop3", "byte_sel", "clamp", "omod", "wait_exp", "cbsz", "abid", "blgp", "neg",
    "dst_sel", "dst_unused", "src0_sel", "src1_sel", "dpp8", "dpp_ctrl", "row_mask", "bank_mask", "bound_ctrl", "fi",
)  # fmt: skip
_ORDER = {name: i for i, name in enumerate(MODIFIER_ORDER)}
FLAGS = frozenset((
    "idxen", "offen", "unorm", "glc", "sc0", "nt", "sc1", "slc", "dlc", "nv", "gds", "r128", "a16", "lds", "tfe", "lwe", "d16", "done",
    "row_en", "clamp",
))  # fmt: skip
VECTORS = frozenset(("op_sel", "op_sel_hi", "neg_lo", "neg_hi", "neg"))


class Slot:
    """One operand of the text: the bits that hold it and the kinds of operand they can hold.

    `codec` is how: `src` (a code of the 9-bit source space), `vgpr` (8 bits), `imm` (a number), `literal`, `implied` (in no bits),
    `attr`, `target`, `address` (an image's, several registers). `scale` is log2 of the registers one unit of the field counts.
    """

    __slots__ = (
        "abs_bit", "acc_bit", "codec", "direction", "field", "half_bit", "index", "kinds", "neg_bit", "scale", "sext_bit", "short_half",
        "shift", "size", "spread", "text", "type", "width",
    )  # fmt: skip

    def __init__(self, facts: OperandFacts, kinds: str, codec: str, shift: int, width: int) -> None:
        self.field, self.direction, self.kinds, self.codec = facts.field, facts.direction, kinds, codec
        self.size, self.type, self.text = facts.size_bits, facts.type, facts.text
        self.shift, self.width, self.scale, self.index = shift, width, 0, 0
        self.half_bit = self.neg_bit = self.abs_bit = self.sext_bit = self.acc_bit = -1
        self.spread = False  # a matrix: in waves of 64 lanes half the registers
        self.short_half = False  # the half's bit is the top one of the register's own field

    @property
    def count(self) -> int:
        """Return how many dword registers the operand covers; 1 for a half."""
        return max(1, self.size // 32)

    def registers(self, wave_size: int) -> int:
        """Return the dword registers in waves of that size: lane masks widen with it, matrices spread over its lanes."""
        if self.type == "mask":
            return wave_size // 32
        return max(1, self.count // 2) if self.spread and wave_size == 64 else self.count


class Modifier:
    """One modifier: `kind` is flag, number, vector (one bit an operand) or the name of a spelling of its own; `bits` are positions."""

    __slots__ = ("bits", "default", "kind", "name", "shift", "signed", "width")

    def __init__(
        self,
        name: str,
        kind: str,
        shift: int = 0,
        width: int = 1,
        *,
        bits: tuple[int, ...] = (),
        signed: bool = False,
        default: int = 0,
    ) -> None:
        self.name, self.kind, self.shift, self.width = name, kind, shift, width
        self.bits, self.signed, self.default = bits, signed, default


class Form:
    """One encoding of one instruction. `base` holds its opcode and identifying bits, `mask` the bits that tell it apart."""

    __slots__ = (
        "base", "ext", "format", "implicit_reads", "mask", "mnemonic", "modifiers", "name", "needs", "row", "slots", "sources",
        "suffix", "tail", "width",
    )  # fmt: skip

    def __init__(
        self,
        row: InstructionFacts,
        fmt: FormatFacts,
        ext: str,
        ext_format: FormatFacts | None,
        suffix: str,
        signed: int,
    ) -> None:
        self.row, self.format, self.ext, self.suffix = row, fmt, ext, suffix
        self.name = row.mnemonic
        self.mnemonic = row.mnemonic + suffix
        self.width = fmt.width_bits + (32 if ext else 0)
        self.tail = "tail" in row.flags
        self.base = fmt.value
        self.mask = fmt.mask
        op_field = {"VOPDX": "opx", "VOPDY": "opy"}.get(row.format, "op")
        if op_field in fmt.fields:
            hi, lo = fmt.fields[op_field]
            self.base |= row.op << lo
            self.mask |= (1 << hi - lo + 1) - 1 << lo
        if (
            row.format == "VOP3P"
            and "opsel_hi2" in fmt.fields
            and not any(m.field == "opsel_hi2" for m in row.modifiers)
        ):
            self.base |= 1 << fmt.fields["opsel_hi2"][1]  # set where it has no meaning, as the assembler leaves it
            if not any(m.field == "opsel_hi" for m in row.modifiers):
                self.base |= 3 << fmt.fields["opsel_hi"][1]
        if row.mnemonic in ("v_accvgpr_write_b32", "v_accvgpr_read_b32"):
            self.base |= 1 << 14 | 3 << 59  # as packed arithmetic has them: op_sel_hi of all sources
        elif row.mnemonic == "v_mfma_ld_scale_b32":
            self.base |= 1 << 14
        elif row.format == "VOP3PX2":
            self.base |= 1 << fmt.fields["abid"][1]
        if ext == "SDWA" and row.mnemonic.startswith(("v_cvt_f32_", "v_cvt_pk_f32_")) and row.mnemonic.endswith("8"):
            self.base |= 6 << fmt.width_bits + 8  # dst_sel: the whole register
        self.needs: tuple[tuple[str, int], ...] = tuple(
            (name, int(value)) for name, value in (f[6:].split("=") for f in row.flags if f.startswith("needs-"))
        )
        optional = {m.field for m in row.modifiers}
        self.needs = tuple((name, value) for name, value in self.needs if name not in optional)
        for name, value in self.needs:
            self.base |= value << fmt.fields[name][1]
        self.slots: tuple[Slot, ...] = tuple(_slots(row, fmt, ext, ext_format, signed))
        self.sources = tuple(slot for slot in self.slots if slot.field.startswith(("src", "vsrc", "ssrc")))
        self.implicit_reads = any(
            o.field == "hidden" and o.direction == "use" and "vcc" in o.kinds for o in row.operands
        )
        order = _ORDER | {"clamp": -1} if row.format == "VINTERP" else _ORDER
        self.modifiers = {m.name: m for m in sorted(_modifiers(self, ext_format), key=lambda m: order[m.name])}

    def __repr__(self) -> str:
        return f"Form({self.mnemonic}, {self.format.name}{'+' + self.ext if self.ext else ''})"

    def place(self, field: str) -> tuple[int, int]:
        """Return (lowest bit, width) of a field of the base format."""
        hi, lo = self.format.fields[field]
        return lo, hi - lo + 1


def forms_of(facts: Target, row: InstructionFacts, rows: Sequence[InstructionFacts]) -> tuple[Form, ...]:
    """Return all forms of a row: the plain one first. `rows` are all of its mnemonic, in short and long encodings."""
    in_both = any(each.format in SHORT for each in rows) and any(each.format in LONG for each in rows)
    signed = next((m.bits for each in rows if each.format in LONG for m in each.modifiers if m.effect == "neg"), -1)
    if signed < 0:  # no long encoding tells which sources take a sign: of floats all do
        signed = 3 if row.mnemonic.startswith("v_dot2") else 0
    fmt = facts.formats["VOPD" if row.format in ("VOPDX", "VOPDY") else row.format]
    short, long = row.format in SHORT, row.format in LONG
    plain = "_e32" if short and in_both else "_e64" if long and in_both else ""
    if row.mnemonic in ("v_nop", "v_pipeflush") and short:
        plain = ""
    made = [Form(row, fmt, "", None, plain, signed)]
    for name in ("DPP16", "DPP8", "DPP", "SDWA", "SDWAB"):
        if name.lower() in row.flags:
            suffix = "_sdwa" if name.startswith("SDWA") else "_dpp" if short else "_e64_dpp"
            if row.format == "VOPC" and name != "SDWAB":
                suffix = ""  # of compares only the short DPP encoding has a text without suffix
            made.append(Form(row, fmt, name, facts.formats[name], suffix, signed))
    return tuple(made)


def _slots(
    row: InstructionFacts, fmt: FormatFacts, ext: str, ext_format: FormatFacts | None, signed: int
) -> Iterator[Slot]:
    vector = row.format.startswith("VOP") or row.format == "VINTERP"
    effects = {(m.field, m.effect): m.bits for m in row.modifiers}
    for i, facts in enumerate(o for o in row.operands if o.field != "hidden"):
        kinds = "".join(LETTERS[kind] for kind in facts.kinds)
        hi, lo = fmt.fields.get(facts.field, (-1, 0))
        codec = _codec(facts, kinds, hi - lo + 1)
        slot = Slot(facts, _all_kinds(facts, kinds, row), codec, lo, hi - lo + 1)
        slot.index = i
        if slot.type == "f16" and row.format in ("SOP1", "SOP2"):
            slot.size = 16  # constants of scalar halves are those of 16 bits; of compares, of 32
        elif slot.type == "f16" and row.format == "SOPC":
            slot.type = "i16"
        elif row.mnemonic.startswith("v_fma_mix"):
            slot.type = "f16"
        slot.spread = _is_spread(row, fmt, facts.field)
        if facts.field in ("sbase", "srsrc", "ssamp"):
            slot.scale = 1 if facts.field == "sbase" else 2
        if facts.field == "vdsty":
            slot.scale = 1  # its lowest bit is the opposite of vdstx's
        acc = _accumulation_field(facts.field, fmt, row.mnemonic)
        if acc >= 0 and codec in ("src", "vgpr") and "v" in slot.kinds:
            slot.acc_bit = acc
            slot.kinds += "a" * ("a" not in slot.kinds)
        if vector and codec in ("src", "vgpr"):
            _vector_bits(slot, fmt, effects, ext)
        if ext_format is not None and facts.field == "src0":
            _extend(slot, fmt, ext, ext_format, signed)
        elif ext_format is not None and ext.startswith(("SDWA", "DPP")) and facts.field == "vsrc1":
            _extend_second(slot, fmt, ext, ext_format, signed)
        yield slot


def _is_spread(row: InstructionFacts, fmt: FormatFacts, field: str) -> bool:
    """Tell whether an operand is a matrix that waves of 64 lanes hold in half the registers. Source: RDNA3, RDNA4 ISA, "WMMA"."""
    if row.mnemonic.startswith("global_load_tr"):
        return field == "vdst"
    if not row.mnemonic.startswith(("v_wmma", "v_swmmac")):
        return False
    if "cm" in fmt.fields:  # RDNA4 spreads all matrices, RDNA3 the result only
        return field in ("vdst", "src0", "src1") or (field == "src2" and row.mnemonic.startswith("v_wmma"))
    return field in ("vdst", "src2")


def _accumulation_field(field: str, fmt: FormatFacts, mnemonic: str) -> int:
    """Return the bit that makes a vector operand an accumulation register, -1 where there is none. Source: CDNA3 ISA, "ACC"."""
    if mnemonic == "v_mfma_ld_scale_b32":
        return -1
    if fmt.name in ("VOP3P-MAI", "VOP3PX2"):
        if field in ("src0", "src1"):
            return fmt.fields["acc"][1] + int(field[-1])
        sparse_index = field == "src2" and mnemonic.startswith("v_smfmac")
        return fmt.fields["acc_cd"][1] if field in ("vdst", "src2") and not sparse_index else -1
    if "acc" in fmt.fields and field in ("vdst", "vdata", "data", "data0", "data1"):
        return fmt.fields["acc"][1]
    return -1


def _codec(facts: OperandFacts, kinds: str, width: int) -> str:
    if facts.field in ("implied", "literal"):
        return facts.field
    if facts.field == "offset":
        return "soe"
    if kinds in ("A", "E"):
        return "attr" if kinds == "A" else "target"
    if set(kinds) & set("LWHGDU") or kinds == "i":
        return "imm"
    return "vgpr" if width <= 8 and set(kinds) <= {"v", "a"} else "src"


def _all_kinds(facts: OperandFacts, kinds: str, row: InstructionFacts) -> str:
    """Add kinds that the enumeration does not show because the disassembler prints another operand of the same kind first."""
    if facts.field in ("implied", "literal"):
        return kinds
    if facts.field == "ssrc0" and "s" not in kinds and "m" in kinds:
        return "mi"  # a barrier's number, or M0
    if "i" in kinds and "s" in kinds and facts.field.startswith(("src", "ssrc", "vsrc")):
        kinds += "kz" + "p" * ("p" not in kinds)
    if kinds == "s" and facts.field in ("vdst", "sdst"):
        kinds = "stcxmn" if facts.size_bits <= 32 else "stcxn"
        if row.mnemonic.startswith(("v_readfirstlane", "v_readlane")):
            kinds = "stcxn"
        elif row.mnemonic.startswith("v_s_"):
            kinds = "stcmn"
    if row.mnemonic == "v_mfma_ld_scale_b32":
        kinds += "tcxm"
    if row.format == "SMEM" and facts.field == "offset":
        kinds = "stcxmFXi"
    if facts.field == "sbase":
        kinds = "stcx" if facts.size_bits == 64 else "st"
    if kinds == "n" and facts.field == "sdst":
        kinds = "stcxmn"
    if facts.field in ("srsrc", "ssamp", "rsrc", "samp"):
        kinds = "st"
    return kinds


def _vector_bits(slot: Slot, fmt: FormatFacts, effects: dict[tuple[str, str], int], ext: str) -> None:
    """Find the bits of sign, absolute value and half of a vector instruction's operand."""
    number = int(slot.field[-1]) if slot.field[-1:].isdigit() else -1
    if "opsel" in fmt.fields:
        half = effects.get(("opsel", "half"), 0)
        bit = number if number >= 0 else 3
        if slot.size == 16 and half >> bit & 1 and slot.field != "sdst":
            slot.half_bit = fmt.fields["opsel"][1] + bit
        if number >= 0:
            for name, field in (("neg", "neg"), ("abs", "abs"), ("abs", "neg_hi")):
                if effects.get((field, name), 0) >> number & 1:
                    setattr(slot, f"{name}_bit", fmt.fields[field][1] + number)
    elif "neg" in fmt.fields and number >= 0:  # VOP3SD, VOP3B
        if effects.get(("neg", "neg"), 0) >> number & 1:
            slot.neg_bit = fmt.fields["neg"][1] + number
        if effects.get(("abs", "abs"), 0) >> number & 1:
            slot.abs_bit = fmt.fields["abs"][1] + number
    elif (slot.field, "half") in effects:
        slot.half_bit, slot.short_half = slot.shift + 7, True


def _extend(slot: Slot, fmt: FormatFacts, ext: str, ext_format: FormatFacts, signed: int) -> None:
    """Move the first source to the extension dword, where it is a vector register (SDWA: or a scalar one)."""
    base = fmt.width_bits
    hi, lo = ext_format.fields["src0"]
    slot.shift, slot.width = base + lo, hi - lo + 1
    slot.codec = "vgpr"
    slot.kinds = "v"
    if slot.short_half:
        slot.half_bit = slot.shift + 7
    short = fmt.width_bits == 32
    if short and ext in ("DPP16", "DPP", "SDWA", "SDWAB") and signed & 1:
        slot.neg_bit = base + ext_format.fields["src0_neg"][1]
        slot.abs_bit = base + ext_format.fields["src0_abs"][1]
    if ext.startswith("SDWA"):
        if slot.type[:1] in "iub" and slot.type:
            slot.sext_bit = base + ext_format.fields["src0_sext"][1]
        slot.kinds = "vstcxm"
        slot.acc_bit = base + ext_format.fields["s0"][1]  # SDWA: this bit says scalar


def _extend_second(slot: Slot, fmt: FormatFacts, ext: str, ext_format: FormatFacts, signed: int) -> None:
    base = fmt.width_bits
    if ext in ("DPP16", "DPP", "SDWA", "SDWAB") and signed & 2:
        slot.neg_bit = base + ext_format.fields["src1_neg"][1]
        slot.abs_bit = base + ext_format.fields["src1_abs"][1]
    if ext.startswith("SDWA"):
        if slot.type[:1] in "iub" and slot.type:
            slot.sext_bit = base + ext_format.fields["src1_sext"][1]
        slot.kinds = "vstcxm"
        slot.acc_bit = base + ext_format.fields["s1"][1]


def _modifiers(form: Form, ext_format: FormatFacts | None) -> Iterator[Modifier]:
    row, fmt = form.row, form.format
    seen: set[str] = set()
    effects = {(m.field, m.effect): m for m in row.modifiers}
    for (field, effect), facts in effects.items():
        if effect in ("half", "abs", "operands", "mnemonic", *seen) or effect not in _ORDER:
            continue
        if effect == "offset" and field == "soe":
            yield Modifier("offset", "soe", fmt.fields["offset"][1], 21, signed=True)
            continue
        if effect in ("a16", "neg_lo") and field in ("acc", "src0"):
            continue  # the name of an accumulation register, taken for a modifier
        lo = fmt.fields[field][1]
        if effect == "neg" and (field == "neg" or field == "neg_hi"):
            continue
        if effect in VECTORS:
            seen.add(effect)
            yield _vector(form, effect, effects)  # type: ignore[arg-type]
        elif effect == "offset" and field in ("offset0", "offset1"):
            if field == "offset0":
                yield Modifier("offset", "number", lo, 16)
        elif effect == "format" and field in ("dfmt", "nfmt"):
            if field == "dfmt":
                yield Modifier("format", "split_format", lo, 7)
        elif effect in FLAGS:
            yield Modifier(effect, "flag", lo)
        elif effect in ("byte_sel", "index_key"):
            low = (facts.bits & -facts.bits).bit_length() - 1
            swapped = (
                effect == "byte_sel" and low == 0
            )  # QUIRK: here the first op_sel bit is the upper one of the number
            yield Modifier(effect, "swapped" if swapped else "number", lo + low, (facts.bits >> low).bit_length())
        elif effect in ("omod", "dim", "th", "scope", "format"):
            yield Modifier(effect, effect, lo, facts.bits.bit_length(), default={"format": 1, "dim": -1}.get(effect, 0))
        elif effect == "bitop3":
            seen.add(effect)
            yield Modifier(effect, "bitop3", bits=_bitop3_bits(fmt))
        elif effect in ("wait_vdst", "wait_va_vdst", "wait_vm_vsrc", "wait_exp"):
            yield Modifier(effect, "number", lo, facts.bits.bit_length(), default=-1)
        else:
            low = (facts.bits & -facts.bits).bit_length() - 1
            yield Modifier(effect, "number", lo + low, (facts.bits >> low).bit_length(), signed=facts.signed)
    if row.mnemonic in ("image_bvh_intersect_ray", "image_bvh64_intersect_ray") and not any(
        m.effect == "a16" for m in row.modifiers
    ):
        yield Modifier("a16", "flag", fmt.fields["a16"][1])
    if ("gds", 1) in form.needs:
        yield Modifier("gds", "flag", fmt.fields["gds"][1])
    if ext_format is not None:
        yield from _extension_modifiers(form, ext_format)


def _bitop3_bits(fmt: FormatFacts) -> tuple[int, ...]:
    """Return the bits of the truth table of v_bitop3, lowest first: it takes the places of neg, abs and omod."""
    neg, abs_, omod = (fmt.fields[name][1] for name in ("neg", "abs", "omod"))
    return (neg, neg + 1, neg + 2, abs_, abs_ + 1, abs_ + 2, omod, omod + 1)


def _vector(form: Form, effect: str, effects: dict[tuple[str, str], object]) -> Modifier:
    fmt, row = form.format, form.row
    count = sum(o.field.startswith("src") for o in row.operands)
    if effect == "op_sel":
        field = "scale_opsel" if "scale_opsel" in fmt.fields else "opsel"
        facts = next(m for m in row.modifiers if m.effect == effect)
        lo = fmt.fields[facts.field][1]
        halves = any(m.effect == "half" for m in row.modifiers)
        if row.mnemonic.startswith(("v_cvt_sr_fp8", "v_cvt_sr_bf8", "v_cvt_scalef32_pk_fp4_")) and count == 2:
            count = 3  # the text has a place for a third source that is not there
        compare = row.mnemonic.startswith("v_cmp")
        if facts.bits & 8 or (halves and not compare):
            places = [lo + i for i in range(count)] + [lo + 3]
        else:
            places = [lo + i for i in range(facts.bits.bit_length())]
        if row.mnemonic == "v_fmac_f16":
            places.insert(2, -1)  # the text counts the register that is added to as a third source
        if row.format == "VOP3PX2":
            places.append(-1)
        if facts.bits & ~3 == 12:  # the first sources have no halves to choose: their places in the text stay zero
            places = [place if facts.bits >> i & 1 else -1 for i, place in enumerate(places)]
        if compare and not form.ext and not row.mnemonic.startswith("v_cmpx"):
            places.append(-1)
        return Modifier(effect, "vector", bits=tuple(places))
    if effect == "op_sel_hi":
        mixed = any(m.effect == "abs" for m in row.modifiers)
        masks = {m.field: m.bits for m in row.modifiers if m.effect == effect}
        places = []
        for field in ("opsel_hi", "opsel_hi2", "scale_opsel_hi", "acc"):
            if field in masks:
                lo = fmt.fields[field][1]
                places += [lo + i for i in range(masks[field].bit_length())]
        if row.format == "VOP3PX2":
            places.append(-1)  # the text has a third element, which means nothing
        return Modifier(effect, "vector", bits=tuple(places), default=0 if mixed else 1)
    field = {"neg_lo": "neg", "neg_hi": "neg_hi", "neg": "blgp"}[effect]
    bits = next(m.bits for m in row.modifiers if m.effect == effect)
    lo = fmt.fields[field][1]
    places = [lo + i if bits >> i & 1 else -1 for i in range(max(count, bits.bit_length()))]
    return Modifier(effect, "vector", bits=tuple(places))


def _extension_modifiers(form: Form, ext_format: FormatFacts) -> Iterator[Modifier]:
    base, fields = form.format.width_bits, ext_format.fields
    if form.ext == "DPP8":
        yield Modifier("dpp8", "dpp8", base + 8, 24, default=-1)
        yield Modifier("fi", "dpp8_fi", form.place("src0")[0], 9)
        return
    if form.ext in ("DPP16", "DPP"):
        yield Modifier("dpp_ctrl", "dpp_ctrl", base + fields["dpp_ctrl"][1], 9, default=-1)
        yield Modifier("row_mask", "mask", base + fields["row_mask"][1], 4, default=15)
        yield Modifier("bank_mask", "mask", base + fields["bank_mask"][1], 4, default=15)
        yield Modifier("bound_ctrl", "number", base + fields["bc"][1], 1)
        if "fi" in fields:
            yield Modifier("fi", "number", base + fields["fi"][1], 1)
        return
    source_only = form.row.mnemonic.startswith(
        ("v_cvt_f32_fp8", "v_cvt_f32_bf8", "v_cvt_pk_f32_fp8", "v_cvt_pk_f32_bf8")
    )
    for name in ("dst_sel", "dst_u", "src0_sel", "src1_sel"):
        if source_only and name.startswith("dst"):
            continue
        if name in fields and not (name == "src1_sel" and "vsrc1" not in form.format.fields):
            hi, lo = fields[name]
            yield Modifier(
                "dst_unused" if name == "dst_u" else name, "sdwa_" + name, base + lo, hi - lo + 1, default=-1
            )
    if "clmp" in fields:
        yield Modifier("clamp", "flag", base + fields["clmp"][1])
        if any(o.type in ("f16", "f32") for o in form.row.operands):
            yield Modifier("omod", "omod", base + fields["omod"][1], 2)
