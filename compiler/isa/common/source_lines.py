"""Source lines of machine code: reads file and line by address from DWARF's line table, versions 2 to 5.

Source: DWARF 5, chapter 6.2 "Line Number Information"; DWARF 4, the same; relocations: LLVM AMDGPUUsage, "Relocation
Records".
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

MAX_ROWS = 1_000_000
# data1, 2, 4, 8, 16; line_strp, strp, sec_offset.
_DW_FORM_SIZES = {0x0B: 1, 0x05: 2, 0x06: 4, 0x07: 8, 0x1E: 16, 0x1F: 4, 0x0E: 4, 0x17: 4}
_LINE_STRP, _STRP, _STRING, _UDATA, _BLOCK = 0x1F, 0x0E, 0x08, 0x0F, 0x09
_PATH = 1


class _Reader:
    def __init__(self, data: bytes, at: int, end: int) -> None:
        self.data, self.at, self.end = data, at, end

    def number(self, size: int) -> int:
        """Return an unsigned number of `size` bytes."""
        if self.at + size > self.end:
            raise IndexError("the line table ends inside a number")
        value = int.from_bytes(self.data[self.at : self.at + size], "little")
        self.at += size
        return value

    def leb(self, *, signed: bool = False) -> int:
        """Return a number in LEB128."""
        value = shift = 0
        while True:
            byte = self.number(1)
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value - (1 << shift) if signed and byte & 0x40 else value
            if shift > 70:
                raise IndexError("a number is too long")

    def string(self) -> str:
        """Return a string that ends with a zero byte."""
        end = self.data.index(b"\0", self.at, self.end)
        text = self.data[self.at : end].decode("utf-8", "replace")
        self.at = end + 1
        return text


def line_table(sections: Mapping[str, bytes]) -> dict[int, str]:
    """Return {address: "file:line"} for the starts of lines. Return an empty dictionary if there is no table, or if it
    cannot be read.
    """
    found: dict[int, str] = {}
    data = sections.get(".debug_line", b"")
    at = 0
    try:
        while at + 4 <= len(data):
            length = int.from_bytes(data[at : at + 4], "little")
            end = at + 4 + length
            if length >= 0xFFFF_FFF0 or end > len(data):
                break
            _unit(_Reader(data, at + 4, end), sections, found)
            at = end
    except (IndexError, ValueError, struct.error):
        return {}
    return found


def _unit(reader: _Reader, sections: Mapping[str, bytes], found: dict[int, str]) -> None:
    version = reader.number(2)
    if not 2 <= version <= 5:
        return
    if version == 5:
        # Sizes of an address and of a segment selector.
        reader.number(2)
    program = reader.number(4)
    start = reader.at + program
    shortest = reader.number(1)
    if version >= 4:
        # Operations in one instruction.
        reader.number(1)
    # Whether rows start as statements.
    reader.number(1)
    base = reader.number(1)
    base -= (base & 0x80) << 1
    spread, first_special = reader.number(1), reader.number(1)
    lengths = [reader.number(1) for _ in range(first_special - 1)]
    names = _names_5(reader, sections) if version == 5 else _names(reader)
    reader.at = start
    _run(reader, shortest, base, max(spread, 1), first_special, lengths, names, found)


def _names(reader: _Reader) -> dict[int, str]:
    while reader.string():  # directories
        pass
    names: dict[int, str] = {}
    while name := reader.string():
        names[len(names) + 1] = name
        reader.leb(), reader.leb(), reader.leb()
    return names


def _names_5(reader: _Reader, sections: Mapping[str, bytes]) -> dict[int, str]:
    _entries(reader, sections)
    return dict(enumerate(_entries(reader, sections)))


def _entries(reader: _Reader, sections: Mapping[str, bytes]) -> list[str]:
    forms = [(reader.leb(), reader.leb()) for _ in range(reader.number(1))]
    names = []
    for _ in range(reader.leb()):
        path = ""
        for content, form in forms:
            text = _value(reader, form, sections)
            path = text if content == _PATH else path
        names.append(path)
        if len(names) > MAX_ROWS:
            raise IndexError("too many files")
    return names


def _value(reader: _Reader, form: int, sections: Mapping[str, bytes]) -> str:
    if form == _STRING:
        return reader.string()
    if form == _UDATA:
        return str(reader.leb())
    if form == _BLOCK:
        reader.at += reader.leb()
        return ""
    number = reader.number(_DW_FORM_SIZES[form]) if form in _DW_FORM_SIZES else None
    if number is None:
        raise IndexError(f"form {form:#x}")
    if form in (_LINE_STRP, _STRP):
        table = sections.get(".debug_line_str" if form == _LINE_STRP else ".debug_str", b"")
        return _Reader(table, number, len(table)).string()
    return str(number)


def _run(
    reader: _Reader,
    shortest: int,
    base: int,
    spread: int,
    first_special: int,
    lengths: list[int],
    names: Mapping[int, str],
    found: dict[int, str],
) -> None:
    """Run a line program. Each row adds the line of its address."""
    address, file, line = 0, 1, 1
    while reader.at < reader.end:
        code = reader.number(1)
        if code >= first_special:
            step = code - first_special
            address += step // spread * shortest
            line += base + step % spread
            found[address] = f"{names.get(file, '?')}:{line}"
        elif code == 0:
            size = reader.leb()
            end = reader.at + size
            kind = reader.number(1)
            if kind == 1:
                address, file, line = 0, 1, 1
            elif kind == 2:
                address = reader.number(size - 1)
            reader.at = end
        elif code == 1:
            found[address] = f"{names.get(file, '?')}:{line}"
        elif code == 2:
            address += reader.leb() * shortest
        elif code == 3:
            line += reader.leb(signed=True)
        elif code == 4:
            file = reader.leb()
        elif code == 8:
            address += (255 - first_special) // spread * shortest
        elif code == 9:
            address += reader.number(2)
        else:
            for _ in range(lengths[code - 1]):
                reader.leb()
        if len(found) > MAX_ROWS:
            raise IndexError("too many rows")
