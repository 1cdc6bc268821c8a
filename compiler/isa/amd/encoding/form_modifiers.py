"""Modifiers of one encoding: the bits and the spelling of each.

Sources: the rows (`autogen/isa`); ISA documents, "Microcode Formats"; LLVM AMDGPUOperandSyntax, "Modifiers".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ringup.autogen.isa import FormatFacts

if TYPE_CHECKING:
    from ringup.compiler.isa.amd.encoding.forms import Form

# The order of modifiers in texts.
MODIFIER_ORDER = (
    "format", "idxen", "offen", "offset0", "offset1", "offset", "dmask", "dim", "unorm", "glc", "sc0", "nt", "sc1", "slc", "dlc", "th",
    "scope", "nv", "gds", "r128", "a16", "lds", "tfe", "lwe", "d16", "wait_vdst", "wait_va_vdst", "wait_vm_vsrc", "done", "row_en",
    "index_key", "op_sel", "op_sel_hi", "neg_lo", "neg_hi", "bitop3", "byte_sel", "clamp", "omod", "wait_exp", "cbsz", "abid", "blgp", "neg",
    "dst_sel", "dst_unused", "src0_sel", "src1_sel", "dpp8", "dpp_ctrl", "row_mask", "bank_mask", "bound_ctrl", "fi",
)  # fmt: skip
ORDER = {name: i for i, name in enumerate(MODIFIER_ORDER)}
FLAGS = frozenset((
    "idxen", "offen", "unorm", "glc", "sc0", "nt", "sc1", "slc", "dlc", "nv", "gds", "r128", "a16", "lds", "tfe", "lwe", "d16", "done",
    "row_en", "clamp",
))  # fmt: skip
VECTORS = frozenset(("op_sel", "op_sel_hi", "neg_lo", "neg_hi", "neg"))


class Modifier:
    """One modifier. `kind` is flag, number, vector (one bit for each operand), or the name of a special spelling.
    `bits` are positions.
    """

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


def modifiers_of(form: Form, ext_format: FormatFacts | None) -> Iterator[Modifier]:
    row, fmt = form.row, form.format
    seen: set[str] = set()
    effects = {(m.field, m.effect): m for m in row.modifiers}
    for (field, effect), facts in effects.items():
        if effect in ("half", "abs", "operands", "mnemonic", *seen) or effect not in ORDER:
            continue
        if effect == "offset" and field == "soe":
            yield Modifier("offset", "soe", fmt.fields["offset"][1], 21, signed=True)
            continue
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
                yield Modifier("format", "split_format", lo, 7, default=1)
        elif effect in FLAGS:
            yield Modifier(effect, "flag", lo)
        elif effect in ("byte_sel", "index_key"):
            low = (facts.bits & -facts.bits).bit_length() - 1
            # QUIRK: here the first op_sel bit is the upper one of the number.
            swapped = effect == "byte_sel" and low == 0
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
    """Return the bits of v_bitop3's truth table, lowest first. They occupy the places of neg, abs and omod."""
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
            # The text has a place for a third source, which does not exist.
            count = 3
        compare = row.mnemonic.startswith("v_cmp")
        if facts.bits & 8 or (halves and not compare):
            places = [lo + i for i in range(count)] + [lo + 3]
        else:
            places = [lo + i for i in range(facts.bits.bit_length())]
        if row.mnemonic == "v_fmac_f16":
            # The text counts the register that is added to as a third source.
            places.insert(2, -1)
        if row.format == "VOP3PX2":
            places.append(-1)
        # The first sources have no selectable halves: their places in the text stay zero.
        if facts.bits & ~3 == 12:
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
            # The text has a third element without meaning.
            places.append(-1)
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
        if form.row.operands[0].type in ("f16", "f32"):
            yield Modifier("omod", "omod", base + fields["omod"][1], 2)
