"""The instruction set of one processor: `processor("gfx1100")` encodes, decodes and prints its instructions.

`encode` searches the form once for each mnemonic and combination of operand shapes (register or constant, number of
dwords, halves, signs), and keeps the plan. The same instruction with other registers then takes a few microseconds.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from functools import cache, cached_property, lru_cache
from typing import Any

from ringup.autogen import isa as facts_of
from ringup.compiler.isa.amd.encoding import constants, decode, text
from ringup.compiler.isa.amd.encoding.decode import Instruction
from ringup.compiler.isa.amd.encoding.dual import DualEncoder
from ringup.compiler.isa.amd.encoding.encode import bind
from ringup.compiler.isa.amd.encoding.forms import Form, forms_of
from ringup.compiler.isa.amd.encoding.mnemonics import aliases_of, split_suffix
from ringup.compiler.isa.amd.encoding.modifiers import DPP16_NAMES
from ringup.compiler.isa.amd.encoding.plan import MAX_PLANS, Plan, Refused
from ringup.compiler.isa.amd.encoding.registers import Operand, Register
from ringup.compiler.isa.amd.encoding.target import LIMITS
from ringup.errors import CompileError

_OFFSETS = frozenset(("offset", "offset0", "offset1"))
# Of one instruction with everything that may follow it.
MAX_BYTES = 24


class _ListGiven(Exception):
    """Addresses of an image came as a list, which cannot be part of a key."""


class Processor:
    """The instruction set of one processor for one wave size."""

    def __init__(self, name: str, wave_size: int) -> None:
        self.name, self.wave_size = name, wave_size
        self.limits = LIMITS[name]
        self.facts = facts_of.target(self.limits.instructions)
        self._plans: dict[object, Plan] = {}
        self._forms: dict[str, tuple[Form, ...]] = {}
        self._decoders: dict[tuple[str, int], tuple[Form, ...]] = {}
        self._dual = DualEncoder(self)

    def __repr__(self) -> str:
        return f"processor({self.name!r}, wave_size={self.wave_size})"

    def encode(self, mnemonic: str, operands: Sequence[Operand] = (), **modifiers: Any) -> bytes:
        """Return the bytes of one instruction. Operands are in the order of the text, modifiers have LLVM's names
        (`offset=16`, `op_sel=(0, 1)`).

        Raises `CompileError` with the mnemonic, the operand and what the encoding can hold.
        """
        try:
            plan = self._lookup(mnemonic, operands, modifiers)
        except _ListGiven:
            operands = _tuples(operands)
            plan = self._lookup(mnemonic, operands, modifiers)
        word = plan.base
        for i, down, mask, up in plan.registers:
            word |= (operands[i].code >> down & mask) << up  # type: ignore[union-attr]
        if plan.others or plan.literals or plan.offsets or plan.check is not None:
            word = plan.word(operands, modifiers)
        return word.to_bytes(plan.nbytes, "little")

    def encode_dual(self, first: tuple[str, Sequence[Operand]], second: tuple[str, Sequence[Operand]]) -> bytes:
        """Return the bytes of a dual instruction (VOPD): two pairs of mnemonic and operands. The X unit executes the
        first.
        """
        return self._dual.encode(first, second)

    def form(self, mnemonic: str, operands: Sequence[Operand] = (), **modifiers: Any) -> Form:
        """Return the form that `encode` would choose."""
        return self._lookup(mnemonic, _tuples(operands), modifiers).form

    def _lookup(self, mnemonic: str, operands: Sequence[Operand], modifiers: dict[str, Any]) -> Plan:
        """Return the plan for operands of these shapes; create it on first use."""
        shapes: list[object] = [mnemonic]
        for operand in operands:
            if type(operand) is Register:
                shapes.append(operand.shape)
            elif type(operand) is int:
                if -16 <= operand <= 64:
                    shapes.append("i")
                else:
                    # A number that may be the bits of an inline float has its own plan.
                    shapes.append(operand if operand >= 0xFFF0 or operand in constants.ALL_PATTERNS else "l")
            elif type(operand) is float:
                # As text, since 1.0 equals 1 and -0.0 equals 0.0.
                shapes.append(f"float {operand!r}")
            elif isinstance(operand, tuple):
                shapes.append(tuple([register.shape for register in operand]))
            elif isinstance(operand, list):
                raise _ListGiven
            else:
                try:
                    shapes.append(operand.shape)  # type: ignore[union-attr]
                except AttributeError:
                    raise TypeError(
                        f"{mnemonic}: {operand!r} is not an operand; expected a register, an integer or a float"
                    ) from None
        if modifiers:
            for name, value in modifiers.items():
                shapes.append(name)
                if name not in _OFFSETS or type(value) is not int:
                    shapes.append(tuple(value) if type(value) is list else value)
        key = tuple(shapes)
        plan = self._plans.get(key)
        if plan is None:
            if len(self._plans) >= MAX_PLANS:
                # Plans in use are created again within microseconds.
                self._plans.clear()
            plan = self._plans[key] = self._plan(mnemonic, operands, modifiers)
        return plan

    def forms(self, mnemonic: str) -> tuple[Form, ...]:
        """Return every form of a mnemonic without suffix, the shortest first; an empty tuple if there is none."""
        found = self._forms.get(mnemonic)
        if found is None:
            rows = self.facts.by_mnemonic(mnemonic)
            made = [form for row in rows for form in self._restricted(forms_of(self.facts, row, rows))]
            found = self._forms[mnemonic] = tuple(sorted(made, key=lambda form: (bool(form.ext), form.width)))
        return found

    def _restricted(self, forms: tuple[Form, ...]) -> tuple[Form, ...]:
        """Remove kinds of operands that sources of DPP forms cannot have. Source: RDNA3 ISA, "DPP"; RDNA3.5 allows the
        second one to be scalar.
        """
        for form in forms:
            if form.ext.startswith("DPP") and form.format.width_bits == 64:
                for slot in form.slots:
                    vector = self.limits.instructions == "gfx1100" or form.name.startswith(("v_dot4_f32", "v_fma_mix"))
                    if slot.field == "src1" and vector:
                        slot.kinds = "v" if "v" in slot.kinds else slot.kinds.replace("l", "")
                    elif slot.field == "src2" and form.name.startswith("v_dot4_f32"):
                        slot.kinds = "v"
                    elif slot.field in ("src1", "src2"):
                        slot.kinds = slot.kinds.replace("l", "")
        return forms

    @cached_property
    def mnemonics(self) -> tuple[str, ...]:
        """Return every mnemonic, without suffixes, sorted."""
        return tuple(sorted({row.mnemonic for row in self.facts.instructions}))

    def suggestions(self, mnemonic: str) -> list[str]:
        """Return mnemonics similar to one that does not exist."""
        return _close(mnemonic, self.mnemonics)

    def _plan(self, mnemonic: str, operands: Sequence[Operand], modifiers: dict[str, Any]) -> Plan:
        name, wanted = split_suffix(mnemonic)
        forms = self.forms(name)
        if not forms:
            for alias in aliases_of(name, self.limits.generation):
                forms = forms or self.forms(alias)
        if not forms or forms[0].row.format in ("VOPDX", "VOPDY"):
            raise CompileError(f"{self.name} has no {mnemonic}{self._did_you_mean(name)}")
        if wanted is None:
            ext = "DPP8" if "dpp8" in modifiers else "DPP16" if DPP16_NAMES & modifiers.keys() else ""
            forms = tuple(
                f
                for f in forms
                if bool(f.ext) == bool(ext)
                and (not ext or (f.ext.startswith(ext[:3]) and (f.ext == "DPP8") == (ext == "DPP8")))
            )
        else:
            forms = tuple(
                form
                for form in forms
                if form.suffix in wanted or (form.suffix == "" and wanted[0] in _own_suffix(form))
            )
            if "_dpp" in mnemonic:
                eight = "dpp8" in modifiers
                forms = tuple(form for form in forms if (form.ext == "DPP8") == eight)
        best: Refused | None = None
        try:
            for form in forms:
                try:
                    return bind(form, operands, modifiers, self.limits, self.wave_size)
                except Refused as refused:
                    if best is None or refused.depth >= best.depth:
                        best = refused
            if best is None:
                raise CompileError(
                    f"{name} has no encoding {mnemonic.removeprefix(name) or 'with these modifiers'} on {self.name}"
                )
            raise best
        finally:
            # An error refers to its frame. Kept in a variable there, it would keep all objects of the callers alive
            # until the garbage collector runs.
            best = None

    def _did_you_mean(self, name: str) -> str:
        close = self.suggestions(name)
        return f"; did you mean {', '.join(close)}?" if close else ""

    def decode(self, data: bytes | memoryview, offset: int = 0) -> Instruction | None:
        """Return the instruction at `offset`, None if there is none or if bytes are missing."""
        piece = bytes(data[offset : offset + MAX_BYTES])
        word = int.from_bytes(piece, "little")
        if len(piece) < 4:
            return None
        for fmt in self._formats[word >> 23 & 0x1FF]:
            if word & fmt.mask != fmt.value or len(piece) * 8 < fmt.width_bits:
                continue
            if "opx" in fmt.fields:
                return self._dual.decode(word, len(piece))
            hi, lo = fmt.fields.get("op", (-1, 0))
            forms = self._rows(fmt.name, word >> lo & (1 << hi - lo + 1) - 1)
            if forms:
                form = decode.choose(forms, word)
                return decode.read(form, word, len(piece), self.limits, self.wave_size) if form else None
        return None

    @cached_property
    def _formats(self) -> list[list[Any]]:
        formats = sorted(
            (f for f in self.facts.formats.values() if not f.is_extension), key=lambda f: -f.mask.bit_count()
        )
        top = 0x1FF << 23
        return [[f for f in formats if (key << 23 ^ f.value) & f.mask & top == 0] for key in range(512)]

    def _rows(self, format_name: str, op: int) -> tuple[Form, ...]:
        key = (format_name, op)
        found = self._decoders.get(key)
        if found is None:
            row = self.facts.by_opcode(format_name, op)
            if row is None:
                found = ()
            else:
                found = tuple(
                    form
                    for form in self.forms(row.mnemonic)
                    if form.row is row or (form.row.format, form.row.op) == key
                )
            self._decoders[key] = found
        return found

    def text(self, instruction: Instruction) -> str:
        """Return an instruction's text in LLVM's form."""
        return text.text(instruction, self.limits)

    def encode_again(self, instruction: Instruction) -> bytes:
        """Return the bytes of a decoded instruction."""
        if instruction.second is not None:
            second = instruction.second
            return self.encode_dual((instruction.mnemonic, instruction.operands), (second.mnemonic, second.operands))
        return self.encode(instruction.mnemonic, instruction.operands, **instruction.modifiers)

    def walk(self, data: bytes) -> Iterator[tuple[int, Instruction | None]]:
        """Yield (byte offset, instruction or None) through code. Where no instruction starts, one dword is skipped."""
        offset = 0
        while offset < len(data):
            found = self.decode(data, offset)
            yield offset, found
            offset += found.size_bytes if found else 4


def _tuples(operands: Sequence[Any]) -> list[Operand]:
    """Return operands with lists of addresses converted to tuples."""
    return [tuple(one) if isinstance(one, list) else one for one in operands]


@lru_cache(maxsize=1024)
def _close(mnemonic: str, known: tuple[str, ...]) -> list[str]:
    return difflib.get_close_matches(mnemonic, known, n=3, cutoff=0.75)


def _own_suffix(form: Form) -> tuple[str, ...]:
    """Return the suffix that a form without one may be written with."""
    if form.ext:
        return ("_dpp",) if form.format.width_bits == 32 else ()
    return ("_e32",) if form.format.width_bits == 32 else ("_e64",) if form.row.format.startswith("VOP") else ()


@cache
def processor(name: str, wave_size: int = 0) -> Processor:
    """Return the instruction set of a processor such as gfx1100. Waves have 32 lanes if the processor supports them,
    unless `wave_size` is 64.
    """
    limits = LIMITS.get(name)
    if limits is None:
        raise CompileError(f"no instruction set {name}; there are {', '.join(LIMITS)}")
    size = wave_size or limits.wave_sizes[0]
    if size not in limits.wave_sizes:
        raise CompileError(f"{name} has waves of {' or '.join(map(str, limits.wave_sizes))} lanes, not {size}")
    return Processor(name, size)
