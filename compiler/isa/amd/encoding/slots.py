"""Operands of one encoding: the bits of each, and the kinds of operand that it can be.

Sources: the rows (`autogen/isa`); ISA documents, "Microcode Formats", "DPP", "SDWA".
"""

from __future__ import annotations

from collections.abc import Iterator

from ringup.autogen.isa import FormatFacts, InstructionFacts, OperandFacts

SDWA_CODE, DPP16_CODE, DPP8_CODE, DPP8_FI_CODE = 249, 250, 233, 234
GFX9_ARITHMETIC = ("VOP1", "VOP2", "VOPC", "VOP3A")
HALVES = ("f16", "i16", "u16", "b16")
# Of a second source.
SDWA_KINDS = "vstcxmkzFXpPif"
LETTERS = {
    "vgpr": "v", "agpr": "a", "sgpr": "s", "ttmp": "t", "vcc": "c", "exec": "x", "m0": "m", "null": "n", "scc": "k", "aperture": "p",
    "lds_direct": "d", "off": "o", "flat_scratch": "F", "xnack_mask": "X", "pops": "P", "imm": "i", "float": "f", "literal": "l",
    "label": "L", "waitcnt": "W", "hwreg": "H", "sendmsg": "G", "delay": "D", "attribute": "A", "export": "E", "symbol": "U",
}  # fmt: skip


class Slot:
    """One operand of the text: the bits that hold it, and the kinds of operand that they can hold.

    `codec` is the form of the bits: `src` (a code of the 9-bit source space), `vgpr` (8 bits), `imm` (a number),
    `literal`, `implied` (no bits), `compare` (a compare's result in SDWA: VCC, or a register if a bit says so), `attr`,
    `target`, `address` (an image's, several registers). `scale`: log2 of the number of registers in one unit of the
    field.
    """

    __slots__ = (
        "abs_bit",
        "acc_bit",
        "codec",
        "direction",
        "field",
        "half_bit",
        "index",
        "kinds",
        "neg_bit",
        "scalar_bit",
        "scale",
        "sext_bit",
        "shift",
        "short_half",
        "size",
        "spread",
        "text",
        "type",
        "width",
    )  # fmt: skip

    def __init__(self, facts: OperandFacts, kinds: str, codec: str, shift: int, width: int) -> None:
        self.field, self.direction, self.kinds, self.codec = facts.field, facts.direction, kinds, codec
        self.size, self.type, self.text = facts.size_bits, facts.type, facts.text
        self.shift, self.width, self.scale, self.index = shift, width, 0, 0
        self.half_bit = self.neg_bit = self.abs_bit = self.sext_bit = self.acc_bit = self.scalar_bit = -1
        # A matrix: in waves of 64 lanes, it has half as many registers.
        self.spread = False
        # The half's bit is the top one of the register's own field.
        self.short_half = False

    @property
    def count(self) -> int:
        """Return how many dword registers the operand covers; 1 for a half."""
        return max(1, self.size // 32)

    def registers(self, wave_size: int) -> int:
        """Return the number of dword registers in waves of that size. Lane masks are wider in larger waves; matrices
        are spread over more lanes.
        """
        if self.type == "mask":
            return wave_size // 32
        return max(1, self.count // 2) if self.spread and wave_size == 64 else self.count


def slots_of(
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
        if slot.type == "f16" and row.format == "SOP2":
            # Constants are those of scalar halves. With one source and in compares, they are those of integers.
            slot.size = 16
        elif slot.type == "f16" and row.format in ("SOP1", "SOPC"):
            slot.size, slot.type = 16, "i16"
        elif (
            row.format in GFX9_ARITHMETIC
            and slot.size == 32
            and slot.type in HALVES
            and not row.mnemonic.startswith(("v_pk_", "v_sat_pk_", "v_dot"))
        ):
            # Registers are whole there; constants are those of halves.
            slot.size = 16
        elif row.mnemonic.startswith("v_fma_mix"):
            slot.size, slot.type = 16, "f16"
        elif row.mnemonic.startswith("v_s_") and slot.type == "f16":
            slot.size = 16
        slot.spread = _is_spread(row, fmt, facts.field)
        if facts.field in ("sbase", "srsrc", "ssamp"):
            slot.scale = 1 if facts.field == "sbase" else 2
        if facts.field == "vdsty":
            # Its lowest bit is the opposite of vdstx's.
            slot.scale = 1
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
        elif ext_format is not None and ext == "SDWAB" and facts.field == "implied" and facts.direction == "def":
            hi, lo = ext_format.fields["sdst"]
            slot.codec, slot.kinds = "compare", "stcx"
            slot.shift, slot.width = fmt.width_bits + lo, hi - lo + 1
            slot.scalar_bit = fmt.width_bits + ext_format.fields["sd"][1]
        yield slot


def _is_spread(row: InstructionFacts, fmt: FormatFacts, field: str) -> bool:
    """Return whether an operand is a matrix that waves of 64 lanes hold in half as many registers. Source: RDNA3, RDNA4
    ISA, "WMMA".
    """
    if row.mnemonic.startswith("global_load_tr"):
        return field == "vdst"
    if not row.mnemonic.startswith(("v_wmma", "v_swmmac")):
        return False
    # RDNA4 spreads all matrices, RDNA3 only the result.
    if "cm" in fmt.fields:
        return field in ("vdst", "src0", "src1") or (field == "src2" and row.mnemonic.startswith("v_wmma"))
    return field in ("vdst", "src2")


def _accumulation_field(field: str, fmt: FormatFacts, mnemonic: str) -> int:
    """Return the bit that makes a vector operand an accumulation register, -1 if there is none. Source: CDNA3 ISA,
    "ACC".
    """
    if mnemonic == "v_mfma_ld_scale_b32" or mnemonic.startswith("v_accvgpr"):
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
    """Add kinds that the enumeration does not show, since the disassembler prints another operand of the same kind
    first.
    """
    if facts.field in ("implied", "literal"):
        return kinds
    if facts.field == "ssrc0" and "s" not in kinds and "m" in kinds:
        # A barrier's number, or M0.
        return "mi"
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
    if row.mnemonic == "v_writelane_b32" and row.format == "VOP3A":
        kinds += "" if facts.field == "vdst" else "tcxmFXP"
    if row.format == "SMEM" and facts.field == "soffset":
        kinds += "n" * ("n" not in kinds)
    if row.format == "SMEM" and facts.field == "offset":
        kinds = "stcxmFXi"
    if facts.field == "sbase":
        kinds = "stcxn" if facts.size_bits == 64 else "st"
    if kinds == "n" and facts.field == "sdst":
        kinds = "stcxmn"
    if facts.field in ("srsrc", "ssamp", "rsrc", "samp"):
        kinds = "st"
    return kinds


def _vector_bits(slot: Slot, fmt: FormatFacts, effects: dict[tuple[str, str], int], ext: str) -> None:
    """Find the bits for sign, absolute value and half of a vector instruction's operand."""
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
    constants = slot.kinds.replace("l", "").replace("a", "")
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
        _allow_scalar(slot, base + ext_format.fields["s0"][1], constants)


def _allow_scalar(slot: Slot, bit: int, kinds: str) -> None:
    """Allow an operand of SDWA to be a scalar register or a constant, which `bit` selects, but not a literal. Source:
    CDNA3 ISA, "SDWA", S0 and S1.
    """
    if slot.type in HALVES[1:]:
        kinds = kinds.replace("f", "")
    slot.codec, slot.kinds, slot.scalar_bit = "src", kinds, bit


def _extend_second(slot: Slot, fmt: FormatFacts, ext: str, ext_format: FormatFacts, signed: int) -> None:
    base = fmt.width_bits
    if ext in ("DPP16", "DPP", "SDWA", "SDWAB") and signed & 2:
        slot.neg_bit = base + ext_format.fields["src1_neg"][1]
        slot.abs_bit = base + ext_format.fields["src1_abs"][1]
    if ext.startswith("SDWA"):
        if slot.type[:1] in "iub" and slot.type:
            slot.sext_bit = base + ext_format.fields["src1_sext"][1]
        _allow_scalar(slot, base + ext_format.fields["s1"][1], SDWA_KINDS)
