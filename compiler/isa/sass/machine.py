"""The instruction set of one chip: words to text and back."""

from __future__ import annotations

import re
from functools import cache, cached_property
from typing import NamedTuple

from ringup.autogen.isa.sass import Alias, Row, rows
from ringup.compiler.isa.sass import control, values
from ringup.compiler.isa.sass.control import Control
from ringup.compiler.isa.sass.form import (
    Constraint,
    Form,
    Plan,
    Read,
    Variant,
    deciding_bits,
    preferred,
    spread,
)
from ringup.errors import CompileError

WORD_BYTES = 16
# What an assembler remembers of the operands that it has seen.
MAX_KEPT = 1 << 16
_GUARDS = tuple(
    f"@{'!' * (each >> 3)}P{'T' if each & 7 == 7 else each & 7} " if each != 7 else "" for each in range(16)
)
_UNIFORM_GUARDS = tuple(each.replace("P", "UP") for each in _GUARDS)
_GUARD = re.compile(r"@(!?)(U?)P([0-6T])\s+")
_PLACE = re.compile("\0(-?\\d+)\0")


class Instruction:
    """A decoded instruction. `text` is nvdisasm's."""

    def __init__(self, isa: Machine, row: Row, word: int, text: str, address: int) -> None:
        self.row, self.word, self.text = row, word, text
        self._isa, self._address = isa, address

    @cached_property
    def control(self) -> Control:
        """The control word."""
        return control.of(self.word)

    @cached_property
    def rest(self) -> int:
        """The bits that differ from those of the same text and control word when assembled."""
        return self.word ^ self._isa.encode(self.text, self.control, self._address)


class _Opcode:
    """The forms of one opcode. `key_mask`: the bits that decide which form a word has, and its modifiers."""

    def __init__(self, forms: tuple[Form, ...]) -> None:
        self.forms = forms
        free = (1 << 105) - (1 << 16)
        for form in forms:
            # Bits of no form at all decide nothing either.
            free &= ~(deciding_bits(form.row.pieces) | form.mask)
            for each in form.row.refused:
                free &= ~each.mask
        self.key_mask = (1 << 105) - (1 << 16) & ~free
        self.plans: dict[int, Plan | None] = {}

    def plan(self, key: int) -> Plan | None:
        """Return the plan of the words with these deciding bits, None if there is no such instruction."""
        found = None
        for form in self.forms:
            if key & form.mask == form.value and not any(each.holds(key) for each in form.row.refused):
                try:
                    found = form.plan(key)
                    break
                except KeyError:
                    continue
        if len(self.plans) < MAX_KEPT:
            self.plans[key] = found
        return found


class _Candidate(NamedTuple):
    """A variant whose head has been read."""

    variant: Variant
    bits: int
    constraints: tuple[Constraint, ...]
    alias: Alias | None
    # The operand that is an address to go to, or -1.
    target: int


class _Shape(dict[str, list[_Candidate]]):
    """The candidates whose operands may begin with the same characters as these. If one is an address in brackets,
    which has many forms: those that read it, by its text.
    """

    def __init__(self, candidates: list[_Candidate], operands: list[str]) -> None:
        super().__init__()
        self.candidates = [each for each in candidates if self._may_begin(each.variant, operands)]
        brackets = (index for index, text in enumerate(operands) if text.startswith("["))
        self.place = next(brackets, -1) if len(self.candidates) > 1 else -1

    @staticmethod
    def _may_begin(variant: Variant, operands: list[str]) -> bool:
        return all(text[:1] in slot.beginnings for slot, text in zip(variant.slots, operands, strict=True))

    def __missing__(self, text: str) -> list[_Candidate]:
        found = [each for each in self.candidates if each.variant.slots[self.place][text] is not None]
        if len(self) < MAX_KEPT:
            self[text] = found
        return found


class Machine:
    """The instructions of one chip."""

    def __init__(self, chip: str) -> None:
        self.chip = chip
        forms: dict[int, list[Form]] = {}
        for row in rows(chip):
            forms.setdefault(row.opcode, []).append(Form(row))
        self.forms = {opcode: tuple(each) for opcode, each in forms.items()}
        self._opcodes = {opcode: _Opcode(each) for opcode, each in self.forms.items()}
        self._heads: dict[tuple[str, int], list[_Candidate]] = {}
        self._shapes: dict[tuple[str, int, str], _Shape] = {}

    @cached_property
    def _by_mnemonic(self) -> dict[str, list[Form]]:
        found: dict[str, list[Form]] = {}
        for forms in self.forms.values():
            for form in forms:
                for name in form.heads:
                    found.setdefault(name, []).append(form)
        return found

    @property
    def mnemonics(self) -> tuple[str, ...]:
        """Return the names of all instructions."""
        return tuple(sorted(self._by_mnemonic))

    def text(self, word: int, address: int = 0) -> str:
        """Return an instruction as nvdisasm writes it. `address`: its place in bytes, for branches. Raises
        `CompileError` for a word that is no known instruction.
        """
        found = self._find(word)
        if found is None:
            raise CompileError(f"{word:#034x} is no instruction of {self.chip} that ringup knows")
        return _placed(found[1], address)

    def _find(self, word: int) -> tuple[Form, str] | None:
        opcode = self._opcodes.get(word & 0xFFF)
        if opcode is None:
            return None
        key = word & opcode.key_mask
        plan = opcode.plans[key] if key in opcode.plans else opcode.plan(key)
        if plan is None or word >> 126:
            return None
        try:
            body = plan.text(word)
        except KeyError:
            return None
        guard = word >> 12 & 15
        if guard == 7:
            return plan.form, body
        if plan.form.row.unguarded:
            return None
        return plan.form, (_UNIFORM_GUARDS if plan.uniform else _GUARDS)[guard] + body

    def knows(self, word: int) -> bool:
        """Return whether a word is a known instruction."""
        return self._find(word) is not None

    def decode(self, word: int, address: int = 0) -> Instruction:
        """Decode an instruction. Raises `CompileError` for a word that is no known instruction."""
        found = self._find(word)
        if found is None:
            raise CompileError(f"{word:#034x} is no instruction of {self.chip} that ringup knows")
        form, body = found
        return Instruction(self, form.row, word, _placed(body, address), address)

    def line(self, word: int, address: int = 0) -> str:
        """Return an instruction with its control word, as the assembler reads it."""
        found = self.decode(word, address)
        shown = found.control
        if shown.stay:
            shown = shown._replace(hint=shown.hint & ~kept_bits(found.row))
        return f"{shown.text(found.rest)} {found.text}"

    def encode(self, text: str, word: Control = Control(), address: int = 0) -> int:  # noqa: B008
        """Return the word of an instruction's text, without its control word. Raises ValueError for a text that is no
        instruction of this chip.
        """
        guard, uniform = 7, False
        if text.startswith("@"):
            match = _GUARD.match(text)
            if match is None:
                raise ValueError(f"{text.split()[0]} is no guard; one looks like @P0 or @!UP1")
            guard = (8 if match[1] else 0) | (7 if match[3] == "T" else int(match[3]))
            uniform = bool(match[2])
            text = text[match.end() :]
        head, _, rest = text.partition(" ")
        operands = rest.split(", ") if rest else []
        kept = ".reuse" in rest
        plain = [each.replace(".reuse", "") for each in operands] if kept else operands
        shape = (head, len(plain), "".join([each[:1] for each in plain]))
        fitting = self._shapes.get(shape)
        if fitting is None:
            fitting = _Shape(self._candidates(head, len(plain)), plain)
            if len(self._shapes) < MAX_KEPT:
                self._shapes[shape] = fitting
        for candidate in fitting.candidates if fitting.place < 0 else fitting[plain[fitting.place]]:
            bits = _encode(candidate, head, plain, address)
            if bits is not None:
                break
        else:
            raise ValueError(_complaint(self._candidates(head, len(plain)), head, plain, address))
        variant = candidate.variant
        if guard != 7 and variant.form.row.unguarded:
            raise ValueError(f"no source says which predicate guards {head}")
        if guard != 7 and uniform != variant.form.row.uniform:
            raise ValueError(f"{head} is guarded by a {'' if variant.form.row.uniform else 'non-'}uniform predicate")
        bits |= guard << 12 | word.bits()
        return bits | _kept(variant, operands, word, head) << control.REUSE if kept else bits

    def _candidates(self, head: str, count: int) -> list[_Candidate]:
        """Return the variants with this head and number of operands, their heads read. Raises ValueError."""
        key = (head, count)
        if key in self._heads:
            return self._heads[key]
        name = head.partition(".")[0]
        forms = self._by_mnemonic.get(name)
        if forms is None:
            raise ValueError(f"{self.chip} has no {name}")
        having = [variant for form in forms for variant in form.variants if variant.head[head] is not None]
        if not having:
            raise ValueError(f"{self.chip} has no {head}: it has {name}, not with these modifiers")
        found = []
        for variant in having:
            read = variant.head[head]
            if len(variant.slots) != count or read is None:
                continue
            bits, constraints = (read, ()) if isinstance(read, int) else read
            target = next((index for index, slot in enumerate(variant.slots) if slot.relative), -1)
            alias = variant.form.alias
            found.append(_Candidate(variant, variant.bits | bits, constraints, alias, target))
        if not found:
            counts = sorted({len(variant.slots) for variant in having})
            raise ValueError(f"{head} has {' or '.join(map(str, counts))} operands, not {count}")
        if len(self._heads) < MAX_KEPT:
            self._heads[key] = found
        return found


def kept_bits(row: Row) -> int:
    """Return the bits of 122 to 124 that keep a register of a row, as a number of three bits."""
    return sum(1 << index for index, place in enumerate(row.reuse) if place)


def _placed(text: str, address: int) -> str:
    """Fill in the address that a branch goes to."""
    if "\0" not in text:
        return text
    return _PLACE.sub(lambda match: values.integer_text(int(match[1]) + address + WORD_BYTES), text)


def _encode(candidate: _Candidate, head: str, operands: list[str], address: int) -> int | None:
    variant, bits, constraints, alias, target = candidate
    if target >= 0:
        # A target counts from the next instruction.
        operands = operands.copy()
        try:
            operands[target] = variant.slots[target].target(operands[target], address + WORD_BYTES)
        except ValueError:
            return None
    for slot, text in zip(variant.slots, operands):  # noqa: B905 - as many as the candidates of this head have
        found = slot[text]
        if found is None:
            return None
        if found.__class__ is int:
            bits |= found
        else:
            assert isinstance(found, Read)
            bits |= found.bits
            constraints += found.constraints
    if alias is not None and not _named_rightly(alias, bits, head):
        return None
    return bits if not constraints else _settle(variant, bits, constraints)


def _named_rightly(alias: Alias, bits: int, head: str) -> bool:
    """Return whether the head has no name by operands, or the right one."""
    marks = head.split(".")
    given = [text for text, _ in alias.choices if text[1:] in marks]
    return not given or given == [alias.text(bits)]


def _settle(variant: Variant, bits: int, constraints: tuple[Constraint, ...]) -> int | None:
    legal: dict[tuple[int, ...], frozenset[int]] = {}
    for places, having in constraints:
        legal[places] = legal.get(places, having) & having
    for places, having in legal.items():
        if not having:
            return None
        bits |= spread(places, preferred(places, having, variant.form.row.default))
    return bits


def _kept(variant: Variant, operands: list[str], word: Control, head: str) -> int:
    found = 0
    for slot, text in zip(variant.slots, operands, strict=True):
        if ".reuse" in text:
            places = variant.form.row.reuse
            if not slot.register or slot.register not in places:
                raise ValueError(f"{head} cannot keep {text.replace('.reuse', '')}")
            found |= 1 << places.index(slot.register)
    if not word.stay:
        raise ValueError(f"{head} keeps a register (.reuse), so its warp may not yield: write - in place of Y")
    return found


def _complaint(candidates: list[_Candidate], head: str, operands: list[str], address: int) -> str:
    """Return why none of the candidates reads these operands: the first operand that the best of them refuses."""
    best, why = -1, ""
    for candidate in candidates:
        for index, (slot, text) in enumerate(zip(candidate.variant.slots, operands, strict=True)):
            slot.complaint = ""
            slot.pop(text, None)
            try:
                found = slot[slot.target(text, address + WORD_BYTES) if index == candidate.target else text]
            except ValueError:
                found = None
            if found is None:
                if index > best or (index == best and not why):
                    best, why = index, slot.complaint
                break
        else:
            return f"{head}: these operands do not go with these modifiers"
    return f"{head}: operand {best + 1}, {operands[best]}: {why or 'this instruction has no such operand there'}"


@cache
def machine(chip: str) -> Machine:
    """Return the instructions of a chip of `CHIPS`. Raises ValueError for another."""
    return Machine(chip)
