"""Reads the facts of NVIDIA's instruction set (SASS): one row for each operand form of an instruction. `rows("sm_90")`
opens those of one chip; a row's template is read when asked for.

An instruction has 128 bits: 0 to 11 are the opcode, 12 to 15 the guard predicate, 105 to 125 the control word. The file
`sass.tsv` is kept by hand; docs/nvidia.md says from which sources. A line `i` has these columns, parted by tabs:
  chips, opcode in hexadecimal, operand forms, template, further bits, source.
With forms other than `-` the opcode is 9 bits; bits 9 to 11 hold the form. A form is two letters, for the second and
the third source: r register, u uniform register, i immediate, c constant bank, x constant bank of a descriptor, _ none.
`c` and `x` do not exist from sm_100 on. A template is the text of the instruction with holes:
  {.FTZ@80}              the text `.FTZ` where bit 80 is set
  {=rnd@78-79}           a text for each value of the bits, low bits first, by a `table` line
  {%R@24:8}              a number of 8 bits from bit 24 on: R, U, P, Q, B registers; x, s integers; f32, f64, f16, bf16;
                         rel an offset from the next instruction; set a list of bit numbers. `~` before the kind: the
                         bits are inverted. `<<2`: these bits are bits 2 and up of a number in several parts.
  {?name}                a name by an `alias` line: its first text of which a condition on bits holds, or none
  <81-83=7:{%P@81:3}, >  left out where the bits hold the value; `!40-63=0` before the colon: but not where these do;
                         `^` before the bits: left out where they do not hold the value
  {A.f} {B.f} {C.f}      the sources, {UA.i} … those of uniform instructions; {S.f}: the second, which is in the third's
                         place in some forms. The letters are those of KINDS.
  {Rd} {Pu} …            names of MACROS
Every bit below 105 that no template shows has one value, zero unless the further bits say another (`72-75=f`) or that
any is right (`24-31=*`, `24-31=*ff` if that is the usual one). `!63,72=3` there: these bits must not hold this value.
"""

from __future__ import annotations

import re
from functools import cache, cached_property
from importlib import resources
from typing import NamedTuple

from ringup.errors import HeaderError

CHIPS = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
FILE = "sass.tsv"
# Bits of the guard and of the control word.
GUARD_BITS, CONTROL_FROM = 0xF000, 105
# From this chip on a uniform register has 8 bits (6 before), and no source is in a constant bank.
WIDE_UNIFORM = "sm_100"
Bits = tuple[int, ...]


class Choice(NamedTuple):
    """A text for each legal value of `bits` (numbers of bits, the value's lowest first)."""

    bits: Bits
    texts: dict[int, str]


class Part(NamedTuple):
    """`width` bits from bit `lo` on are the bits from `shift` on of a number."""

    lo: int
    width: int
    shift: int


class Number(NamedTuple):
    """A number in the text. `kind`: R, U, P, Q, B, S, x, s, f32, f64, f16, rel or set."""

    kind: str
    parts: tuple[Part, ...]
    inverted: bool = False


class Condition(NamedTuple):
    """The bits of `mask` hold `value`."""

    mask: int
    value: int

    def holds(self, word: int) -> bool:
        """Return whether it is so in a word."""
        return word & self.mask == self.value


class Optional(NamedTuple):
    """Text that is left out where `hidden` is true and none of `unless` is; `negated`: left out where it is false."""

    hidden: Condition
    unless: tuple[Condition, ...]
    pieces: tuple[Piece, ...]
    negated: bool

    def left_out(self, word: int) -> bool:
        """Return whether a word has no such text."""
        if self.negated:
            return not self.hidden.holds(word)
        return self.hidden.holds(word) and not any(each.holds(word) for each in self.unless)


class Alias(NamedTuple):
    """A name for what an instruction does with its present operands: the first text of which a condition holds."""

    choices: tuple[tuple[str, tuple[Condition, ...]], ...]

    def text(self, word: int) -> str:
        """Return the name, or an empty text."""
        for text, conditions in self.choices:
            if any(each.holds(word) for each in conditions):
                return text
        return ""


Piece = str | Choice | Number | Optional | Alias


class Tables(NamedTuple):
    """What templates name: the texts of fields, and aliases."""

    texts: dict[str, dict[int, str]]
    aliases: dict[str, Alias]


class Line(NamedTuple):
    """One `i` line of the file."""

    chips: tuple[str, ...]
    opcode: int
    forms: tuple[str, ...]
    template: str
    bits: str
    source: str


class Row:
    """One operand form of an instruction on one chip.

    `opcode`: bits 0 to 11. `form`: two letters, or empty. `source`: where the row was read. `reuse`: the first bits of
    the source registers that bits 122, 123 and 124 keep for the next instruction, 0 for none. `uniform`: the guard is a
    uniform predicate.
    """

    def __init__(self, line: Line, form: str, chip: str, tables: Tables) -> None:
        wide = CHIPS.index(chip) >= CHIPS.index(WIDE_UNIFORM)
        self.form = "" if form == "-" else form
        self.opcode = line.opcode | FORM_CODES[form] << 9 if self.form else line.opcode
        self.template, self.source = expand(line.template, self.form, wide=wide), line.source
        self._tables, self._line = tables, line
        self.reuse = tuple(_place(line.template, slots, self.form or "rr") for slots in ("A", "B", "CS"))

    @cached_property
    def pieces(self) -> tuple[Piece, ...]:
        """The template, taken apart."""
        try:
            found, at = _pieces(self.template, 0, self._tables)
        except (ValueError, KeyError, IndexError) as error:
            raise HeaderError(f"instruction facts of SASS are damaged at {self.template!r}: {error}") from error
        if at != len(self.template):
            raise HeaderError(f"instruction facts of SASS are damaged at {self.template!r}, column {at + 1}")
        return found

    @cached_property
    def fixed(self) -> Condition:
        """What the bits below 105 hold that neither the text nor the guard shows, the opcode among them."""
        bits = f"{self._line.bits} {FORM_BITS.get(self.form, '')}"
        seen = shown(self.pieces)
        mask = (1 << CONTROL_FROM) - 1 & ~GUARD_BITS & ~seen | 0xFFF
        if self.form:
            # The place of a source that the instruction does not have. NAK leaves 0 or RZ there.
            mask &= ~sum(0xFF << place for place in (24, 64) if not seen >> place & 0xFF)
        value = self.opcode
        for each in bits.split():
            if each.startswith("!"):
                continue
            if "*" in each:
                mask &= ~_condition(each.partition("*")[0] + "0").mask
            else:
                condition = _condition(each)
                mask |= condition.mask
                value |= condition.value
        return Condition(mask, value)

    @cached_property
    def default(self) -> int:
        """The bits as an encoder sets them: `fixed`, and the usual value of those that may hold any."""
        usual = (_condition(each.replace("*", "")) for each in self._line.bits.split() if re.search(r"=\*\w", each))
        return self.fixed.value | sum(each.value for each in usual)

    @cached_property
    def refused(self) -> tuple[Condition, ...]:
        """What no such instruction may hold."""
        return tuple(_condition(each[1:]) for each in self._line.bits.split() if each.startswith("!"))

    @property
    def bits(self) -> str:
        """The further bits, as the file has them."""
        return self._line.bits

    @cached_property
    def uniform(self) -> bool:
        """Whether the guard is a uniform predicate: that of instructions whose result is in uniform registers."""
        return self.mnemonic.startswith("U") or self.mnemonic == "LDCU"

    @cached_property
    def unguarded(self) -> bool:
        """Whether the guard has one legal value, because no source says what the others mean."""
        return self.fixed.mask & GUARD_BITS != 0

    @property
    def mnemonic(self) -> str:
        """The name before the first dot."""
        match = re.match(r"[A-Z0-9_]+", self.template)
        return match[0] if match else ""


# The form field (bits 9 to 11) by the files of the second and third source. Source: Mesa NAK, sm70_encode.rs,
# encode_alu_base.
FORM_CODES = {
    "r_": 1, "rr": 1, "_r": 1, "__": 1,
    "ri": 2, "_i": 2, "rc": 3, "_c": 3, "rx": 3, "_x": 3,
    "i_": 4, "ir": 4, "c_": 5, "cr": 5, "x_": 5, "xr": 5, "u_": 6, "ur": 6, "ru": 7, "_u": 7,
}  # fmt: skip
# Bit 91: a uniform register or a descriptor is in the place of bits 32 to 39.
FORM_BITS = {form: "91=1" if set(form) & set("ux") else "" for form in FORM_CODES}
_MORE = "<40-63=0:+{%s@40:24}>"
_OFFSET = "<40-63=0:<24-31=ff:+{%s@40:24}><^24-31=ff:{%x@40:24}>>"
MACROS = {
    "Rd": "{%R@16:8}", "Ra": "{%R@24:8}", "Rb": "{%R@32:8}", "Rc": "{%R@64:8}",
    "Ud": "{%U@16:6}", "Ua": "{%U@24:6}", "Ub": "{%U@32:6}", "Uc": "{%U@64:6}",
    "Pu": "{%P@81:3}", "Pv": "{%P@84:3}", "Pp": "{!@90}{%P@87:3}", "Pq": "{!@80}{%P@77:3}", "Pr": "{!@71}{%P@68:3}",
    "Qu": "{%Q@81:3}", "Qv": "{%Q@84:3}", "Qp": "{!@90}{%Q@87:3}", "Qq": "{!@80}{%Q@77:3}", "Qr": "{!@71}{%Q@68:3}",
    # Predicates that are left out when they are true (results: thrown away), or false for a carry.
    "Pu?": "<81-83=7:{%P@81:3}, >", "Pv?": "<84-86=7:{%P@84:3}, >",
    "Qu?": "<81-83=7:{%Q@81:3}, >", "Qv?": "<84-86=7:{%Q@84:3}, >",
    ",Pr?": "<68-71=7:, {!@71}{%P@68:3}>", "Pp?": "<87-90=7:{!@90}{%P@87:3}, >",
    ",Pp?": "<87-90=7:, {!@90}{%P@87:3}>", ",Pp!": "<87-90=f:, {!@90}{%P@87:3}>",
    ",Pq!": "<77-80=f:, {!@80}{%P@77:3}>", ",Qp!": "<87-90=f:, {!@90}{%Q@87:3}>", ",Qq!": "<77-80=f:, {!@80}{%Q@77:3}>",
    # Of a load: backwards.
    ",pl": "<64-67=0:, {!@67}{%~P@64:3}>",
    "Ud?": "<16-21=3f:{%U@16:6}, >",
    # Addresses: s with the stride of the register; u with a uniform register; the bit that says that the register is a
    # pair.
    "a": "<24-31=ff!40-63=0:{%R@24:8}>" + _OFFSET, "as": "<24-31=ff!40-63=0:{%R@24:8}<24-31=ff:{=stride@78-79}>>" + _OFFSET,
    "aub": "<24-31=ff:{%R@24:8}+>{%U@32:6}" + _MORE, "aubs": "<24-31,78-79=ff:{%R@24:8}{=stride@78-79}+>{%U@32:6}" + _MORE,
    "auc": "<24-31=ff:{%R@24:8}+>{%U@64:6}" + _MORE, "aucs": "<24-31,78-79=ff:{%R@24:8}{=stride@78-79}+>{%U@64:6}" + _MORE,
    "asts": "<16-23=ff!44-63=0:{%R@16:8}><44-63=0:<16-23=ff:+>{%s@44:20}>",
    "aubpair": "<24-31=ff:{%R@24:8}{=pair@90}+>{%U@32:6}" + _MORE,
    "aucpair": "<24-31=ff:{%R@24:8}{=pair@90}+>{%U@64:6}" + _MORE,
    "atompair": "<24-31=ff:{%R@24:8}{=pair@70}+>{%U@64:6}" + _MORE,
    "desced": "{%R@24:8}.64" + _MORE, "aldsm": "<24-31=ff!40-63=0:{%R@24:8}><40-63=0:<24-31=ff:+>{%s@40:24}>",
}  # fmt: skip
KINDS = {
    "f": "a float", "e": "a float without a sign", "d": "a double", "h": "a pair of halves", "b": "a pair of bf16",
    "j": "a pair of halves, as it is", "k": "a pair of halves or a float", "o": "a pair of halves without bars",
    "g": "one half", "i": "an integer", "s": "an integer whose immediate is signed", "n": "the same with a minus",
    "v": "the same with a complement", "m": "like n; the immediate is unsigned, no sign at bit 64",
    "w": "like v; the immediate is unsigned, no sign at bit 64", "y": "a byte of a register", "z": "half a register",
}  # fmt: skip
_SIGNS = {
    # By the place of the register: minus, bar of the absolute value, half.
    24: ("{-@72}", "{|@73}", "{=half@74-75}"),
    32: ("{-@63}", "{|@62}", "{=half@60-61}"),
    64: ("{-@75}", "{|@74}", ""),
}
_PAIR_SIGNS = {**_SIGNS, 64: ("{-@84}", "{|@83}", "{=half@81-82}")}
# The names of an IMAD by its operands: the register of the second source is at bit 32 or at 64.
_PRODUCTS = {"rr": "{?mul32}", "ri": "{?mul64}", "rc": "{?mul64}", "ir": "{?muli}"}
_IMMEDIATES = {
    "f": "{%f32@32:32}", "d": "{%f64@32:32}", "h": "{%f16@48:16}, {%f16@32:16}", "i": "{%x@32:32}", "s": "{%s@32:32}",
    "n": "{%s@32:32}", "v": "{%s@32:32}", "m": "{%x@32:32}", "w": "{%x@32:32}",
    "b": "{%bf16@48:16}, {%bf16@32:16}", "g": "{%f16@32:16}", "j": "{%f16@48:16}, {%f16@32:16}", "k": "{%f16@48:16}, {%f16@32:16}",
    "e": "{%f32@32:32}", "y": "{%s@32:32}", "z": "{%s@32:32}",
}  # fmt: skip


_SLOT = re.compile(r"(U?)([ABCS])\.([a-z])")


def expand(template: str, form: str, *, wide: bool) -> str:
    """Return a template with its macros replaced, for one form; `wide`: uniform registers have 8 bits."""

    def replace(match: re.Match[str]) -> str:
        name = match[1]
        if (slot := _SLOT.fullmatch(name)) is not None:
            return _source(slot[2], slot[3], form, "U" if slot[1] else "R")
        return MACROS[name]

    template = template.replace("{?mul}", _PRODUCTS.get(form, ""))
    text = re.sub(r"\{([A-Za-z,]+[?!]?(?:\.[a-z])?)\}", replace, template)
    return re.sub(r"(%U@\d+):6", r"\1:8", text).replace("16-21=3f", "16-23=ff") if wide else text


def _place(template: str, slots: str, form: str) -> int:
    """Return where the thread's register of one of these sources begins, 0 if it has none. The sources that the next
    instruction may use again are numbered in the order of the text, wherever they are in the word.
    """
    for slot in slots:
        if f"{{{slot}." in template:
            letter, place = _slot(slot, form)
            return place if letter == "r" else 0
    return 0


def _slot(slot: str, form: str) -> tuple[str, int]:
    """Return the letter of a source in a form, and where it begins if it is a register."""
    if slot == "A":
        return "r", 24
    letter = form[0] if slot == "B" or (slot == "S" and form[0] != "_") else form[1]
    # The source that is no plain register is at bit 32, the other one then at 64.
    third = slot == "C" or (slot == "S" and form[0] == "_")
    return letter, 64 if third != (form[1] in "icxu") else 32


def _source(slot: str, kind: str, form: str, file: str) -> str:
    letter, place = _slot(slot, form or "rr")
    if letter == "r":
        return _register(file, place, kind)
    if letter == "u":
        return _register("U", 32, kind)
    if letter == "i":
        return _IMMEDIATES[kind]
    bank = "c[{%x@54:5}][{%s@40:14<<2}]" if letter == "c" else "cx[{%U@32:6}][{%x@40:14<<2}]"
    return _signed(bank, 32, kind)


def _register(file: str, place: int, kind: str) -> str:
    return _signed(f"{{%{file}@{place}:{8 if file == 'R' else 6}}}", place, kind)


def _signed(text: str, place: int, kind: str) -> str:
    minus, bar, half = (_PAIR_SIGNS if kind in "hbjko" else _SIGNS)[place]
    if kind in "mw" and place == 64:
        return text
    if kind in "vw":
        return minus.replace("-", "~") + text
    if kind in "nm":
        return minus + text
    if kind == "o":
        return minus + text + half
    if kind in "fd":
        return minus + bar + text + bar
    if kind == "g":
        return minus + bar + text + "{=half1@60-61}" + bar
    if kind == "j":
        return minus + bar + text + bar
    if kind in "yz":
        return text + ("{=byte@60-61}" if kind == "y" else "{=half1@60-61}")
    if kind in "hbk":
        half = half.replace("=half", "=halves") if kind == "k" else half
        return minus + bar + (text + half + bar if place == 32 and "%R" not in text else text + bar + half)
    return text


@cache
def rows(chip: str) -> tuple[Row, ...]:
    """Open the rows of a chip of `CHIPS`. Raises ValueError for another."""
    if chip not in CHIPS:
        raise ValueError(f"no instruction facts for {chip}; there are {', '.join(CHIPS)}")
    lines, tables = _file()
    banks = CHIPS.index(chip) < CHIPS.index(WIDE_UNIFORM)
    return tuple(
        Row(line, form, chip, tables)
        for line in lines
        if chip in line.chips
        for form in line.forms
        if banks or not set(form) & set("cx")
    )


@cache
def _file() -> tuple[tuple[Line, ...], Tables]:
    return parse((resources.files(__package__) / FILE).read_bytes())


def parse(data: bytes) -> tuple[tuple[Line, ...], Tables]:
    """Read the facts file; a damaged one is a HeaderError."""
    try:
        return _parse(data)
    except (ValueError, KeyError, IndexError) as error:
        raise HeaderError(
            f"instruction facts of SASS ({len(data)} bytes) are damaged: {error}; install ringup again"
        ) from error


def _parse(data: bytes) -> tuple[tuple[Line, ...], Tables]:
    body, _, end = data.decode().removesuffix("\n").rpartition("\n")
    lines = body.split("\n")
    if end != "end":
        raise ValueError("its last line is not `end`")
    if lines[0] != "ringup-sass\t2":
        raise ValueError(f"it begins {lines[0]!r}")
    tables = Tables({}, {})
    found = []
    for line in lines[1:]:
        tag, *fields = line.split("\t")
        if tag == "table":
            name, texts = fields
            tables.texts[name] = _table(texts)
        elif tag == "alias":
            name, choices = fields
            tables.aliases[name] = Alias(tuple(_alias(each) for each in choices.split(" ")))
        elif tag == "i":
            chips, opcode, forms, template, bits, source = fields
            found.append(Line(_chips(chips), int(opcode, 16), tuple(forms.split(" ")), template, bits, source))
        elif tag and not tag.startswith("#"):
            raise ValueError(f"a line begins {tag!r}")
    return tuple(found), tables


def _table(texts: str) -> dict[int, str]:
    """Read `_ .RM .RP` (texts of 0, 1, 2; `!` an illegal value, `_` no text) or `33=SR_TID.X 34=…`."""
    each = texts.split(" ")
    if "=" in each[0]:
        return {int(value): _plain(text) for value, _, text in (part.partition("=") for part in each)}
    return {value: _plain(text) for value, text in enumerate(each) if text != "!"}


def _chips(text: str) -> tuple[str, ...]:
    found: list[str] = []
    for each in text.split(","):
        first, _, last = each.partition("-")
        found += CHIPS[CHIPS.index(f"sm_{first}") : CHIPS.index(f"sm_{last or first}") + 1]
    return tuple(found)


def _plain(text: str) -> str:
    return {"_": ""}.get(text, text)


def _alias(text: str) -> tuple[str, tuple[Condition, ...]]:
    name, _, conditions = text.partition("=")
    return name, tuple(_condition(each.replace(":", "=")) for each in conditions.split("|"))


_ALIAS = re.compile(r"\{\?(\w+)\}")
_NUMBER = re.compile(r"\{%(~?)([A-Za-z]+\d*)@([^}]*)\}")
_PART = re.compile(r"(\d+):(\d+)(?:<<(\d+))?")
_CHOICE = re.compile(r"\{([^@}]*)@([\d,-]+)\}")
_OPTIONAL = re.compile(r"<(\^?)([\d,-]+=[0-9a-f]+)((?:![\d,-]+=[0-9a-f]+)*):")


def _pieces(text: str, at: int, tables: Tables) -> tuple[tuple[Piece, ...], int]:
    found: list[Piece] = []
    while at < len(text) and text[at] != ">":
        if match := _NUMBER.match(text, at):
            parts = tuple(Part(int(lo), int(width), int(shift or 0)) for lo, width, shift in _PART.findall(match[3]))
            found.append(Number(match[2], parts, inverted=bool(match[1])))
        elif match := _ALIAS.match(text, at):
            found.append(tables.aliases[match[1]])
        elif match := _CHOICE.match(text, at):
            found.append(_choice(match[1], match[2], tables))
        elif match := _OPTIONAL.match(text, at):
            inner, after = _pieces(text, match.end(), tables)
            unless = tuple(_condition(each) for each in match[3].split("!") if each)
            found.append(Optional(_condition(match[2]), unless, inner, negated=bool(match[1])))
            at = after + 1
            continue
        else:
            end = min(place for mark in "{<>" if (place := (text + mark).find(mark, at)) >= 0)
            if end == at:
                raise ValueError(f"{text!r}, column {at + 1}")
            found.append(text[at:end])
            at = end
            continue
        at = match.end()
    return tuple(found), at


def _choice(texts: str, places: str, tables: Tables) -> Choice:
    bits = _bits(places)
    if texts.startswith("="):
        return Choice(bits, {value: text for value, text in tables.texts[texts[1:]].items() if value < 1 << len(bits)})
    if len(bits) != 1:
        raise ValueError(f"one text for {len(bits)} bits: {texts!r}")
    return Choice(bits, {0: "", 1: texts})


def _bits(places: str) -> Bits:
    found: list[int] = []
    for each in places.split(","):
        first, _, last = each.partition("-")
        found += range(int(first), int(last or first) + 1)
    return tuple(found)


def _condition(text: str) -> Condition:
    places, _, value = text.partition("=")
    bits = _bits(places)
    number = int(value, 16)
    return Condition(
        sum(1 << bit for bit in bits), sum(1 << bit for index, bit in enumerate(bits) if number >> index & 1)
    )


def mask_of(piece: Choice | Number) -> int:
    """Return the bits of a piece as a mask of the word."""
    if isinstance(piece, Choice):
        return sum(1 << bit for bit in piece.bits)
    return sum(((1 << part.width) - 1) << part.lo for part in piece.parts)


def shown(parts: tuple[Piece, ...]) -> int:
    """Return the bits that the text of these pieces shows, as a mask."""
    found = 0
    for part in parts:
        if isinstance(part, Choice | Number):
            found |= mask_of(part)
        elif isinstance(part, Optional):
            found |= part.hidden.mask | shown(part.pieces)
    return found


class Index:
    """The rows of a chip by opcode: finds the row of a word."""

    def __init__(self, chip: str) -> None:
        self.by_opcode: dict[int, list[Row]] = {}
        for row in rows(chip):
            self.by_opcode.setdefault(row.opcode, []).append(row)

    def find(self, word: int) -> Row | None:
        """Return the row of an instruction; None if the word is no instruction that the facts explain in full.

        A choice may still hold a value without a text: such a word is no instruction either.
        """
        for row in self.by_opcode.get(word & 0xFFF, ()):
            if row.fixed.holds(word) and legal(row.pieces, word):
                return None if any(each.holds(word) for each in row.refused) else row
        return None


def legal(parts: tuple[Piece, ...], word: int) -> bool:
    """Return whether every choice of these pieces has a text in a word."""
    for part in parts:
        if isinstance(part, Choice):
            if sum((word >> bit & 1) << index for index, bit in enumerate(part.bits)) not in part.texts:
                return False
        elif isinstance(part, Optional) and not part.left_out(word) and not legal(part.pieces, word):
            return False
    return True


@cache
def index(chip: str) -> Index:
    """Open the index of a chip of `CHIPS`."""
    return Index(chip)
