"""Write words of registers and packets as a Python module: one class each, and rows for differences by version."""

from __future__ import annotations

import keyword
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ringup.autogen.layout import Word
from ringup.errors import HeaderError

LINE = 120
Version = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FieldRow:
    """Bits `hi` to `lo` of a word; `note` becomes a comment."""

    hi: int
    lo: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class WordRow:
    """One word in one version. `place` is a row of PLACES."""

    name: str
    fields: Mapping[str, FieldRow]
    place: tuple[int, ...]
    width: int = 32
    note: str = ""


@dataclass(frozen=True, slots=True)
class ConstantGroup:
    """Named numbers under one comment; each is (name, value, comment)."""

    title: str
    rows: Sequence[tuple[str, int, str]]
    hexadecimal: bool = False


@dataclass
class Module:
    """The contents of one generated module. `tables` are further assignments, as text."""

    doc: str
    source: str
    versions: Mapping[Version, Sequence[WordRow]]
    constants: Sequence[ConstantGroup] = ()
    tables: Sequence[str] = field(default_factory=list)
    places_doc: str = "dword offset, segment and, of an array, stride and count; by version"
    aliases: Mapping[Version, Version] = field(default_factory=dict)  # a version to the one whose rows it shares


def field_name(name: str) -> str:
    """Return the attribute name of a header's field: lower case, with an underscore where Python or `Word` needs it."""
    name = name.lower()
    if name[:1].isdigit():
        name = f"_{name}"
    return f"{name}_" if keyword.iskeyword(name) or name in Word.RESERVED else name


def _comment(text: str) -> str:
    return f"  # {text}" if text else ""


def _line(text: str, comment: str = "") -> str:
    whole = text + _comment(comment)
    return whole if len(whole) <= LINE else text


def _class(word: WordRow) -> list[str]:
    taken, overlaps = 0, False
    for row in word.fields.values():
        mask = (1 << row.hi + 1) - (1 << row.lo)
        overlaps |= bool(taken & mask)
        taken |= mask
    if taken >> word.width:
        raise HeaderError(f"{word.name}: fields reach bit {taken.bit_length() - 1} of {word.width}")
    options = ", width=" + str(word.width) if word.width != 32 else ""
    options += ", overlaps=True" if overlaps else ""
    lines = ["", "", f"class {word.name}(Word{options}):"]
    lines += textwrap.wrap(word.note, LINE, initial_indent="    # ", subsequent_indent="    # ")
    for name, row in sorted(word.fields.items(), key=lambda item: (item[1].lo, item[1].hi)):
        bits = str(row.hi) if row.hi == row.lo else f"{row.hi}, {row.lo}"
        lines.append(_line(f"    {name} = Field({bits})", row.note))
    return lines if word.fields else [*lines, "    pass"]


def _place(place: tuple[int, ...]) -> str:
    first = f"0x{place[0]:X}" if place[0] > 9 else str(place[0])
    return ", ".join([first, *map(str, place[1:])]) + "," * (len(place) == 1)


def _wrapped(name: str, rows: Sequence[str]) -> str:
    line = f"{name}: {{{', '.join(rows)}}},"
    if len(line) + 8 <= LINE:
        return line
    return "\n".join([f"{name}: {{", *(f"            {row}," for row in rows), "        },"])


def _changes(base: WordRow, other: WordRow) -> list[str]:
    rows: dict[str, tuple[int, int] | None] = {name: None for name in base.fields if name not in other.fields}
    for name, row in other.fields.items():
        known = base.fields.get(name)
        if known is None or (known.hi, known.lo) != (row.hi, row.lo):
            rows[name] = (row.hi, row.lo)
    return [f'"{name}": {bits}' for name, bits in rows.items()]


def _constants(groups: Iterable[ConstantGroup], taken: dict[str, str]) -> list[str]:
    lines: list[str] = []
    for group in groups:
        lines += ["", f"# {group.title}"]
        for name, value, note in group.rows:
            name = f"_{name}" if name[0].isdigit() else f"{name}_" if keyword.iskeyword(name) else name
            text = f"0x{value:X}" if group.hexadecimal else str(value)
            if taken.setdefault(name, text) != text:
                raise HeaderError(f"{name} of {group.title} is {text}, and {taken[name]} elsewhere; leave one out")
            lines.append(_line(f"{name} = {text}", note))
    return lines


def emit(module: Module) -> str:
    """Return the module's text. A word takes its class from the first version that has it."""
    bases: dict[str, WordRow] = {}
    changes: dict[Version, list[str]] = {}
    places: dict[Version, list[str]] = {}
    for version, words in module.versions.items():
        seen: set[str] = set()
        for word in words:
            if word.name in seen:
                raise HeaderError(f"{word.name} appears twice in version {version}")
            seen.add(word.name)
            base = bases.setdefault(word.name, word)
            if base.width != word.width:
                raise HeaderError(f"{word.name} has {base.width} bits in one version and {word.width} in {version}")
            places.setdefault(version, []).append(f"{word.name}: ({_place(word.place)}),")
            difference = _changes(base, word)
            if difference:
                changes.setdefault(version, []).append(_wrapped(word.name, difference))
    lines = [
        f'"""{module.doc}',
        "",
        f"Generated by autogen/generate from {module.source}; not edited by hand.",
        '"""',
        "",
        "from __future__ import annotations",
    ]
    if bases:
        names = "Field, Word" if any(word.fields for word in bases.values()) else "Word"
        lines += ["", f"from ringup.autogen.layout import {names}"]
    taken = dict.fromkeys(bases, "a class")
    lines += _constants(module.constants, taken)
    for word in bases.values():
        lines += _class(word)
    if bases:
        lines += ["", "", f"# {module.places_doc}"]
        lines += _table("PLACES: dict[tuple[int, ...], dict[type[Word], tuple[int, ...]]]", places)
        lines += ["", "# fields that differ from the class above; None: absent"]
        lines += _table("CHANGES: dict[tuple[int, ...], dict[type[Word], dict[str, tuple[int, ...] | None]]]", changes)
        for version, same in module.aliases.items():
            lines.append(f"PLACES[{_key(version)}] = PLACES[{_key(same)}]")
            if same in changes:
                lines.append(f"CHANGES[{_key(version)}] = CHANGES[{_key(same)}]")
    for table in module.tables:
        lines += ["", table]
    return "\n".join(lines) + "\n"


def _key(version: Version) -> str:
    return ", ".join(map(str, version))


def _table(head: str, rows: Mapping[Version, Sequence[str]]) -> list[str]:
    if not rows:
        return [f"{head} = {{}}"]
    lines = [f"{head} = {{"]
    for version, entries in rows.items():
        lines += [f"    {version}: {{", *(f"        {entry}" for entry in entries), "    },"]
    return [*lines, "}"]
