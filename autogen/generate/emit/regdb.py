"""Write the register database: one file per block version, one small file per chip. The same facts give the same
bytes.
"""

from __future__ import annotations

import json
import zlib
from array import array
from collections.abc import Iterable, Mapping, Sequence

from ringup.autogen.generate.emit.register_facts import FieldFacts, RegisterFacts
from ringup.autogen.regdb import ChipRow
from ringup.autogen.regfile import BLOCK_MAGIC, CHIP_MAGIC, COLUMN, COLUMNS, FORMATS, FRAME, WHOLE
from ringup.errors import HeaderError


class _Names:
    """Texts by index, each a sequence of words from one table."""

    def __init__(self) -> None:
        self._index: dict[str, int] = {}
        self._words: dict[str, int] = {}
        self.starts: list[int] = [0]
        self.runs: list[int] = []

    def __call__(self, text: str) -> int:
        index = self._index.get(text)
        if index is None:
            if "\n" in text:
                raise HeaderError(f"a name in the register database has no line feed: {text!r}")
            index = self._index[text] = len(self._index)
            words = self._words
            self.runs += [words.setdefault(word, len(words)) for word in text.split("_")]
            self.starts.append(len(self.runs))
        return index

    @property
    def words(self) -> bytes:
        return "\n".join(self._words).encode()


class _Lists:
    """Sequences of integers by index, each stored once."""

    def __init__(self) -> None:
        self._index: dict[tuple[int, ...], int] = {}
        self.starts: list[int] = [0]
        self.flat: list[int] = []

    def __call__(self, run: tuple[int, ...]) -> int:
        index = self._index.setdefault(run, len(self._index))
        if index == len(self.starts) - 1:
            self.flat += run
            self.starts.append(len(self.flat))
        return index


class _Fields:
    """Distinct fields and distinct lists of fields."""

    def __init__(self, names: _Names) -> None:
        self._names = names
        self._index: dict[FieldFacts, int] = {}
        self._layouts: dict[tuple[FieldFacts, ...], int] = {}
        self._values = _Lists()
        self.lists = _Lists()
        self.columns: dict[str, list[int]] = {name: [] for name in COLUMNS if name.startswith("field_")}
        self._values(())

    def layout(self, fields: tuple[FieldFacts, ...]) -> int:
        index = self._layouts.get(fields)
        if index is None:
            index = self._layouts[fields] = self.lists(tuple([self._field(field) for field in fields]))
        return index

    def _field(self, field: FieldFacts) -> int:
        index = self._index.get(field)
        if index is not None:
            return index
        _check(field)
        index = self._index[field] = len(self._index)
        row = (
            self._names(field.name),
            field.hi,
            field.lo,
            field.mask or 0,
            self._values(tuple([number for name, value in field.values for number in (self._names(name), value)])),
            self._names(field.variant),
            self._names(field.note),
        )
        for column, value in zip(self.columns.values(), row, strict=True):
            column.append(value)
        return index

    def value_columns(self) -> dict[str, Sequence[int]]:
        return {
            "values_start": [start // 2 for start in self._values.starts],
            "value_name": self._values.flat[::2],
            "value_number": self._values.flat[1::2],
        }


def _check(field: FieldFacts) -> None:
    mask = field.mask
    bits_fit = 0 <= field.lo <= field.hi < 256
    if mask is not None:
        bits_fit = bits_fit and mask > 0 and mask >> field.hi == 1 and mask & -mask == 1 << field.lo
    if not bits_fit:
        raise HeaderError(f"field {field.name} has bits {field.hi}:{field.lo} and mask {mask}, which is no field")
    for name, value in field.values:
        if not 0 <= value < 1 << 64:
            raise HeaderError(f"value {name} = {value} of field {field.name} does not fit in 64 bits")


def write_block(registers: Iterable[RegisterFacts]) -> bytes:
    """Return the file of one block version. Registers keep their order, but those of one name become adjacent."""
    by_name: dict[str, list[RegisterFacts]] = {}
    for register in registers:
        by_name.setdefault(register.name, []).append(register)
    names = _Names()
    fields = _Fields(names)
    firsts: dict[str, int] = {}
    rows: list[tuple[int, ...]] = []
    for name, same in by_name.items():
        firsts[name] = len(rows)
        for register in same:
            if register.offset is not None and not 0 <= register.offset < (1 << 64) - 1:
                raise HeaderError(f"register {name} at {register.offset:#x}: an offset has 64 bits")
            rows.append(
                (
                    names(name),
                    names(register.kind),
                    0 if register.offset is None else register.offset + 1,
                    0 if register.segment is None else register.segment + 2,
                    register.unit_bytes,
                    register.width_bits,
                    register.stride,
                    register.count,
                    fields.layout(register.fields),
                    names(register.variant),
                    names(register.note),
                )
            )
    tags, slots = _hash_table(firsts)
    columns: dict[str, Sequence[int]] = {"hash_tag": tags, "hash_register": slots, **fields.columns}
    of_registers = [name for name in COLUMNS if name.startswith("register_")]
    columns |= (
        dict(zip(of_registers, zip(*rows, strict=True), strict=True)) if rows else dict.fromkeys(of_registers, ())
    )
    columns |= {"layout_start": fields.lists.starts, "layout_fields": fields.lists.flat}
    columns |= fields.value_columns()
    columns |= {"words": names.words, "name_start": names.starts, "name_words": names.runs}
    return _frame(BLOCK_MAGIC, _pack(columns))


def _hash_table(firsts: Mapping[str, int]) -> tuple[Sequence[int], Sequence[int]]:
    """Return the tag and the first register of each slot: linear probing, at most half full."""
    size = 2
    while size < 2 * len(firsts):
        size *= 2
    tags, slots = bytearray(size), [0] * size
    for name, first in firsts.items():
        digest = zlib.crc32(name.encode())
        slot = digest & size - 1
        while tags[slot]:
            slot = slot + 1 & size - 1
        tags[slot], slots[slot] = digest >> 24 | 1, first
    return tags, slots


def _pack(columns: Mapping[str, Sequence[int]]) -> bytes:
    directory, body = bytearray(), bytearray()
    begin = FRAME.size + COLUMN.size * len(COLUMNS)
    for name in COLUMNS:
        values = columns[name]
        most = max(values, default=0)
        if values and min(values) == most and name not in WHOLE:
            directory += COLUMN.pack(0, len(values), most)
            continue
        size = 1 if most < 1 << 8 else 2 if most < 1 << 16 else 4 if most < 1 << 32 else 8
        directory += COLUMN.pack(size, len(values), begin + len(body))
        packed = array(FORMATS[size], values)
        body += packed.tobytes()
    return bytes(directory + body)


def _frame(magic: bytes, body: bytes) -> bytes:
    return FRAME.pack(magic, FRAME.size + len(body), zlib.crc32(body)) + body


def write_chip(chip: ChipRow) -> bytes:
    """Return the file that says which blocks a chip has, and where."""
    row = {
        "name": chip.name,
        "target": chip.target,
        "vendor": chip.vendor,
        "note": chip.note,
        "blocks": [
            [place.block, place.version, place.file, place.bases, place.source, place.guess] for place in chip.places
        ],
    }
    return _frame(CHIP_MAGIC, json.dumps(row, separators=(",", ":"), ensure_ascii=True).encode())
