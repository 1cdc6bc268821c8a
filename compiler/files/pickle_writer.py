"""A writer of pickles of plain data: numbers, texts, bytes, lists, tuples, dicts, and what the caller describes.

Protocol 2, without a memo: an object that comes twice is written twice. Source: CPython's pickletools.py.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

# how deep lists and dicts may stand in one another; one that holds itself is deeper
MAX_DEPTH = 200
_ORDERED = b"ccollections\nOrderedDict\n)R"


class Name(NamedTuple):
    """A thing of a module, by its name there."""

    module: str
    name: str


class Call(NamedTuple):
    """What a function of a module returns."""

    function: Name
    arguments: tuple[Any, ...]


class Identifier(NamedTuple):
    """Stands for an object that lies outside of the pickle."""

    value: Any


def pickled(value: object, described: Callable[[object], object]) -> bytes:
    """Return the pickle of a value. `described` returns a `Call` or a `Name`, or plain data, for what is no plain data;
    a TypeError of its says that there is no way.
    """
    return b"\x80\x02" + b"".join(_pieces(value, described, 0)) + b"."


def _pieces(value: Any, described: Callable[[object], object], depth: int) -> Iterator[bytes]:
    if depth > MAX_DEPTH:
        raise ValueError(f"lists or dicts stand more than {MAX_DEPTH} deep in one another, or hold themselves")
    kind = type(value)
    if kind in _ATOMS:
        yield _ATOMS[kind](value)
    elif kind is Name:
        yield f"c{value.module}\n{value.name}\n".encode("ascii")
    elif kind is Call:
        yield from _pieces(value.function, described, depth + 1)
        yield from _pieces(value.arguments, described, depth + 1)
        yield b"R"
    elif kind is Identifier:
        yield from _pieces(value.value, described, depth + 1)
        yield b"Q"
    elif kind in (dict, OrderedDict):
        yield b"}" if kind is dict else _ORDERED
        yield b"("
        for one in value.items():
            for part in one:
                yield from _pieces(part, described, depth + 1)
        yield b"u"
    elif kind in (list, tuple):
        yield b"](" if kind is list else b"("
        for one in value:
            yield from _pieces(one, described, depth + 1)
        yield b"e" if kind is list else b"t"
    else:
        yield from _pieces(described(value), described, depth + 1)


def _integer(value: int) -> bytes:
    if -(1 << 31) <= value < 1 << 31:
        return b"J" + struct.pack("<i", value)
    data = value.to_bytes((value.bit_length() + 8) // 8, "little", signed=True)
    # of 255 bytes at most, or of any number
    head = b"\x8a" + bytes((len(data),)) if len(data) < 256 else b"\x8b" + struct.pack("<i", len(data))
    return head + data


def _text(value: str) -> bytes:
    data = value.encode("utf-8", "surrogatepass")
    return b"X" + struct.pack("<I", len(data)) + data


_ATOMS: dict[type, Callable[[Any], bytes]] = {
    type(None): lambda value: b"N",
    bool: lambda value: b"\x88" if value else b"\x89",
    int: _integer,
    float: lambda value: b"G" + struct.pack(">d", value),
    str: _text,
    # as protocol 2 has bytes: a text of the characters 0 to 255
    bytes: lambda value: b"c_codecs\nencode\n(" + _text(value.decode("latin1")) + _text("latin1") + b"tR",
}
