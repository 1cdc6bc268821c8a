"""Encodings of one instruction, built from its row of facts.

A row gives one form for its own format, and one for every extension dword that it accepts (DPP16, DPP8, SDWA). Encoder,
decoder and text use forms only. Sources: the rows (`autogen/isa`); ISA documents, "Microcode Formats".
"""

from __future__ import annotations

from collections.abc import Sequence

from ringup.autogen.isa import FormatFacts, InstructionFacts, Target
from ringup.compiler.isa.amd.encoding.form_modifiers import ORDER, modifiers_of
from ringup.compiler.isa.amd.encoding.slots import Slot, slots_of

SHORT = {"VOP1": "e32", "VOP2": "e32", "VOPC": "e32"}
# Of these, only the long encoding has a suffix in texts.
NO_OPERANDS = ("v_nop", "v_pipeflush", "v_clrexcp")
LONG = ("VOP3", "VOP3SD", "VOP3A", "VOP3B")
# Formats in which compilers fill the source fields that no operand uses.
UNUSED_IN = ("VOP3", "VOP3SD", "VOP3P")


# gfx9 writes bitop3 first.
_OTHER_ORDER: dict[str, dict[str, float]] = {"VINTERP": {"clamp": -1}, "VOP3A": {"bitop3": ORDER["op_sel"] - 0.5}}


class Form:
    """One encoding of one instruction. `base` holds its opcode and identifying bits. `mask` selects these bits."""

    __slots__ = (
        "base", "ext", "format", "implicit_reads", "mask", "mnemonic", "modifiers", "name", "needs", "row", "slots", "sources",
        "suffix", "tail", "unused_sources", "width",
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
            # Set where it has no meaning, as the assembler writes it.
            self.base |= 1 << fmt.fields["opsel_hi2"][1]
            if not any(m.field == "opsel_hi" for m in row.modifiers):
                self.base |= 3 << fmt.fields["opsel_hi"][1]
        if row.mnemonic in ("v_accvgpr_write_b32", "v_accvgpr_read_b32"):
            # As in packed arithmetic: op_sel_hi of all sources.
            self.base |= 1 << 14 | 3 << 59
        elif row.mnemonic == "v_mfma_ld_scale_b32":
            self.base |= 1 << 14
        elif row.format == "VOP3PX2":
            self.base |= 1 << fmt.fields["abid"][1]
        if ext == "SDWA" and row.mnemonic.startswith(("v_cvt_f32_", "v_cvt_pk_f32_")) and row.mnemonic.endswith("8"):
            # dst_sel: the whole register.
            self.base |= 6 << fmt.width_bits + 8
        self.needs: tuple[tuple[str, int], ...] = tuple(
            (name, int(value)) for name, value in (f[6:].split("=") for f in row.flags if f.startswith("needs-"))
        )
        optional = {m.field for m in row.modifiers}
        self.needs = tuple((name, value) for name, value in self.needs if name not in optional)
        for name, value in self.needs:
            self.base |= value << fmt.fields[name][1]
        self.slots: tuple[Slot, ...] = tuple(slots_of(row, fmt, ext, ext_format, signed))
        self.sources = tuple(slot for slot in self.slots if slot.field.startswith(("src", "vsrc", "ssrc")))
        # The lowest bits of source fields that no operand uses.
        self.unused_sources = tuple(
            fmt.fields[name][1]
            for name in ("src1", "src2")
            if row.format in UNUSED_IN and name in fmt.fields and all(slot.field != name for slot in self.slots)
        )
        self.implicit_reads = any(
            o.field == "hidden" and o.direction == "use" and "vcc" in o.kinds for o in row.operands
        )
        order = ORDER | _OTHER_ORDER.get(row.format, {})
        self.modifiers = {m.name: m for m in sorted(modifiers_of(self, ext_format), key=lambda m: order[m.name])}

    def __repr__(self) -> str:
        return f"Form({self.mnemonic}, {self.format.name}{'+' + self.ext if self.ext else ''})"

    def place(self, field: str) -> tuple[int, int]:
        """Return (lowest bit, width) of a field of the base format."""
        hi, lo = self.format.fields[field]
        return lo, hi - lo + 1


def forms_of(facts: Target, row: InstructionFacts, rows: Sequence[InstructionFacts]) -> tuple[Form, ...]:
    """Return all forms of a row, the plain one first. `rows` are all rows of its mnemonic, in short
    and long encodings.
    """
    in_both = any(each.format in SHORT for each in rows) and any(each.format in LONG for each in rows)
    signed = next((m.bits for each in rows if each.format in LONG for m in each.modifiers if m.effect == "neg"), -1)
    # There is no long encoding that shows which sources take a sign: all floats do.
    if signed < 0:
        signed = 3 if row.mnemonic.startswith("v_dot2") and "_f32_" in row.mnemonic else 0
    fmt = facts.formats["VOPD" if row.format in ("VOPDX", "VOPDY") else row.format]
    short, long = row.format in SHORT, row.format in LONG
    plain = "_e32" if short and in_both else "_e64" if long and in_both else ""
    if row.mnemonic in NO_OPERANDS and short:
        plain = ""
    made = [Form(row, fmt, "", None, plain, signed)]
    for name in ("DPP16", "DPP8", "DPP", "SDWA", "SDWAB"):
        if name.lower() in row.flags or (name == "DPP" and "dpp-newbcast" in row.flags):
            suffix = "_sdwa" if name.startswith("SDWA") else "_dpp" if short else "_e64_dpp"
            if row.mnemonic in NO_OPERANDS or (row.format == "VOPC" and name != "SDWAB"):
                # Of compares, only the short DPP encoding has a text without suffix.
                suffix = ""
            made.append(Form(row, fmt, name, facts.formats[name], suffix, signed))
    return tuple(made)
