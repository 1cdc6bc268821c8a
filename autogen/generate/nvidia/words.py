"""From bit ranges to modules: one `Word` for each register, method or descriptor, its places, and differences.

Places and differences are by chip or class.
"""

from __future__ import annotations

import keyword
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ringup.autogen.generate.emit.facts import Rejected
from ringup.autogen.generate.emit.structs import HEAD
from ringup.autogen.generate.nvidia.ranges import Place, Range
from ringup.autogen.layout import Word
from ringup.errors import HeaderError

ELEMENTS_MAX = 4096

Bits = tuple[int, ...]  # hi, lo or hi, lo, count, stride
Key = str | int  # a chip's name or a class id


@dataclass(frozen=True, slots=True)
class WordFacts:
    """One word for one chip or class."""

    name: str
    fields: Mapping[str, Bits]
    place: tuple[int, ...] | None  # offset, or offset, stride, count; None for a packet
    values: tuple[tuple[str, int], ...] = ()  # names of a field's values in the header, and the values


@dataclass
class Sheet:
    """All words of one module, by chip or class."""

    words: dict[Key, dict[str, WordFacts]] = field(default_factory=dict)
    width: dict[str, int] = field(default_factory=dict)  # if it is not 32
    constants: dict[Key, dict[str, int]] = field(default_factory=dict)
    rejected: list[Rejected] = field(default_factory=list)


def field_name(name: str, owner: str) -> str:
    """Return a field's name without its owner's: lower case, with an underscore where Python or `Word` needs it."""
    short = name.removeprefix(owner).lstrip("_").lower() or "value"
    if short[0].isdigit():
        return f"_{short}"
    return f"{short}_" if keyword.iskeyword(short) or short in Word.RESERVED else short


def _elements(hi: int, lo: int, stride: int, index: int) -> tuple[int, int]:
    return hi + index * stride, lo + index * stride


def _without_digits(name: str) -> str:
    return "".join(letter for letter in name if not letter.isdigit())


def _listed(item: Range, axis: int, scalars: Mapping[tuple[int, int], set[str]]) -> int:
    """Count the elements that are also separate fields (`RELEASE0_ENABLE` for `RELEASE_ENABLE(0)`)."""
    wanted = _without_digits(item.name)
    count = 0
    while wanted in scalars.get(_elements(item.hi, item.lo, item.strides[axis], count), ()):
        count += 1
    return count


def _fitting(item: Range, items: Sequence[Range], width: int) -> int:
    """Count the elements before one overlaps another field, or passes the end. Fields that overlap element 0 are its
    aliases.
    """
    mask = (1 << item.hi - item.lo + 1) - 1 << item.lo
    taken = 0
    for other in items:
        bits = (1 << other.hi - other.lo + 1) - 1 << other.lo
        if not bits & mask:
            taken |= bits
    count = 0
    while count < ELEMENTS_MAX and not mask & taken and not mask >> width:
        mask <<= item.strides[0]
        count += 1
    return count


def fields_of(place: Place, width: int, rejected: list[Rejected]) -> dict[str, Bits]:
    """Return the fields of a place.

    Arrays without a size in the header get as many elements as fit before the next field. Interleaved arrays (same
    stride, within one stride of each other) have the same number of elements.
    """
    scalars: dict[tuple[int, int], set[str]] = {}
    for item in place.ranges:
        if not item.strides:
            scalars.setdefault((item.hi, item.lo), set()).add(_without_digits(item.name))
    counts = {item.name: _count(item, place.ranges, scalars, width) for item in place.ranges if len(item.strides) == 1}
    arrays = [item for item in place.ranges if item.name in counts]
    for item in arrays:
        for other in arrays:
            near = item.strides == other.strides and 0 < other.lo - item.lo < item.strides[0]
            if near and not item.counts[0]:
                least = min(counts[item.name], counts[other.name])
                counts[item.name] = counts[other.name] = least
    out: dict[str, Bits] = {}
    for item in place.ranges:
        name = field_name(item.name, place.name)
        if len(item.strides) > 1:
            rejected.append(
                Rejected(item.name, place.where, "an array of arrays; its elements stand as fields of their own")
            )
            continue
        bits: Bits = (item.hi, item.lo)
        if item.strides:
            if counts[item.name] < 1 or item.strides[0] < item.hi - item.lo + 1:
                rejected.append(Rejected(item.name, place.where, "an array whose elements lie on other fields"))
                continue
            bits = (item.hi, item.lo, counts[item.name], item.strides[0])
        if item.hi >= width:
            raise HeaderError(f"{item.name} reaches bit {item.hi}; {place.name} is read as {width} bits wide")
        if out.get(name, bits) != bits:
            raise HeaderError(f"{place.name}.{name} would be both {out[name]} and {bits}")
        out[name] = bits
    return out


def _count(item: Range, items: Sequence[Range], scalars: Mapping[tuple[int, int], set[str]], width: int) -> int:
    if item.counts[0]:
        return min(item.counts[0], (width - 1 - item.hi) // item.strides[0] + 1) if item.strides[0] else 0
    return _listed(item, 0, scalars) or (_fitting(item, items, width) if item.strides[0] > 0 else 0)


def width_of(place: Place) -> int:
    """Return the bits of a descriptor: up to its last field, in whole dwords."""
    return max(((item.hi | 31) + 1 for item in place.ranges), default=32)


def places_of(places: Iterable[Place], limit: int) -> dict[str, tuple[int, ...] | None]:
    """Return offset, or offset, stride and count, by name.

    An array without a size ends at the next name's place, or at `limit`.
    """
    listed = list(places)
    starts = sorted({place.offset for place in listed if place.offset is not None})
    out: dict[str, tuple[int, ...] | None] = {}
    for place in listed:
        if place.offset is None:
            out[place.name] = None
        elif not place.strides:
            out[place.name] = (place.offset,)
        elif len(place.strides) == 1 and place.strides[0] > 0:
            stride = place.strides[0]
            count = place.counts[0] or _until_next(place.offset, stride, starts, limit)
            out[place.name] = (place.offset, stride, count)
        else:
            # a second index or an unknown length: count 0
            out[place.name] = (place.offset, place.strides[0], 0)
    return out


def _until_next(offset: int, stride: int, starts: Sequence[int], limit: int) -> int:
    if not limit:
        return 0
    others = {start for start in starts if start != offset}
    count = 1
    while count < ELEMENTS_MAX and offset + count * stride < limit and offset + count * stride not in others:
        count += 1
    return count


def word_facts(
    place: Place, lies: tuple[int, ...] | None, width: int, prefix: str, rejected: list[Rejected]
) -> WordFacts:
    """Return a place as a word; its name and its values' names are without `prefix`."""
    values = tuple((name.removeprefix(prefix), value) for item in place.ranges for name, value in item.values)
    return WordFacts(place.name.removeprefix(prefix), fields_of(place, width, rejected), lies, values)


# -------------------------------------------------------------------------------------------------------------- writing


def _bits_text(bits: Bits) -> str:
    hi, lo, *array = bits
    if array:
        return f"Field({hi}, {lo}, count={array[0]}, stride={array[1]})"
    return f"Field({hi})" if hi == lo else f"Field({hi}, {lo})"


def overlapping(fields: Iterable[Bits]) -> bool:
    """Return whether two of the fields share a bit."""
    taken = 0
    for hi, lo, *array in fields:
        one = (1 << hi - lo + 1) - 1 << lo
        mask = one
        for index in range(1, array[0] if array else 1):
            mask |= one << index * array[1]
        if taken & mask:
            return True
        taken |= mask
    return False


def word_text(name: str, fields: Mapping[str, Bits], width: int = 32) -> str:
    """Return the class of a word."""
    options = ("Word", f"width={width}" if width != 32 else "", "overlaps=True" if overlapping(fields.values()) else "")
    lines = [f"class {name}({', '.join(option for option in options if option)}):"]
    lines += [f"    {field} = {_bits_text(bits)}" for field, bits in fields.items()] or ["    pass"]
    return "\n".join(lines) + "\n"


def _number(value: int) -> str:
    return f"{value:#x}" if value > 9 else str(value)


def _place_text(place: tuple[int, ...]) -> str:
    if len(place) == 1:
        return f"{place[0]:#x}"
    offset, stride, count = place
    return f"({offset:#x}, {stride:#x}, {count})"


@dataclass
class _Merged:
    """One word over all chips or classes: the first one's fields are in the class, differences of others in CHANGES."""

    first: WordFacts
    by_key: dict[Key, WordFacts] = field(default_factory=dict)

    def changes(self) -> Iterator[tuple[Key, str]]:
        for key, facts in self.by_key.items():
            if not facts.fields or facts.fields == self.first.fields:
                # a header that names a word but none of its bits contradicts nothing
                continue
            gone = [f'"{name}": None' for name in self.first.fields if name not in facts.fields]
            moved = [
                f'"{name}": {bits!r}' for name, bits in facts.fields.items() if self.first.fields.get(name) != bits
            ]
            yield key, "{" + ", ".join(gone + moved) + "}"


def _merge(sheet: Sheet) -> dict[str, _Merged]:
    merged: dict[str, _Merged] = {}
    for key, words in sheet.words.items():
        for name, facts in words.items():
            merged.setdefault(name, _Merged(facts)).by_key[key] = facts
    return merged


def _values(sheet: Sheet) -> tuple[dict[str, int], dict[Key, dict[str, int]]]:
    """Return the first chip's or class's named values, and for the others those that differ."""
    common: dict[str, int] = {}
    rows: dict[Key, dict[str, int]] = {}
    for key, words in sheet.words.items():
        named = [*sheet.constants.get(key, {}).items(), *(value for facts in words.values() for value in facts.values)]
        for name, value in named:
            if common.setdefault(name, value) != value:
                rows.setdefault(key, {})[name] = value
    return common, rows


def _key_text(key: Key) -> str:
    return f"{key:#06x}" if isinstance(key, int) else f'"{key}"'


def emit_words(doc: str, source: str, sheet: Sheet, table: str) -> str:
    """Return a whole module; `table` is the name of its places: METHODS by class id or PLACES by chip."""
    merged = _merge(sheet)
    head = HEAD.format(doc=doc, source=source)
    parts = [f"{head}\nfrom __future__ import annotations\n\nfrom ringup.autogen.layout import Field, Word\n"]
    values, rows = _values(sheet)
    if values:
        parts.append("\n" + "".join(f"{name} = {_number(value)}\n" for name, value in values.items()))
    for name, one in merged.items():
        parts.append("\n\n" + word_text(name, one.first.fields, sheet.width.get(name, 32)))
    out = "".join(parts)
    key_type = "int" if all(isinstance(key, int) for key in sheet.words) else "str"
    out += f"\n\n{table}: dict[{key_type}, dict[type[Word], int | tuple[int, int, int]]] = {{\n"
    out += "".join(_table_row(key, words, sheet) for key, words in sheet.words.items()) + "}\n"
    changes: dict[Key, list[str]] = {}
    for name, one in merged.items():
        for key, text in one.changes():
            changes.setdefault(key, []).append(f"{name}: {text}")
    out += f"CHANGES: dict[{key_type}, dict[type[Word], dict[str, tuple[int, ...] | None]]] = {{\n"
    for key, rows_of_key in changes.items():
        out += f"    {_key_text(key)}: {{\n" + "".join(f"        {row},\n" for row in rows_of_key) + "    },\n"
    out += "}\n"
    if rows:
        out += f"VALUES: dict[{key_type}, dict[str, int]] = {{  # names that mean another value there\n"
        for key, named in rows.items():
            cells = ", ".join(f'"{name}": {_number(value)}' for name, value in named.items())
            out += f"    {_key_text(key)}: {{{cells}}},\n"
        out += "}\n"
    return out


def _table_row(key: Key, words: Mapping[str, WordFacts], sheet: Sheet) -> str:
    cells = [f"{name}: {_place_text(facts.place)}" for name, facts in words.items() if facts.place is not None]
    text = f"    {_key_text(key)}: {{\n"
    line = "       "
    for cell in cells:
        if len(line) + len(cell) + 2 > 118:
            text += line + "\n"
            line = "       "
        line += f" {cell},"
    return text + (line + "\n" if line.strip() else "") + "    },\n"
