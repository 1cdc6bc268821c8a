"""The struct the field bench measures: ten parts of twenty plain fields, and twenty bit-fields; for ringup, ctypes
and cffi.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from functools import partial
from typing import Any

from cffi import FFI

from ringup.autogen.layout import Struct

PARTS = 10
KINDS = ("u8", "u16", "u32", "u64")  # the kinds of a part's fields, in turn
# one value for each kind, larger than Python's cached integers if the kind can hold it
VALUES = (200, 50_000, 3_000_000_000, 1 << 40 | 1)
WIDTHS = (3, 5, 8, 16)  # the widths of bit-fields, in turn; four fill 32 bits
BIT_VALUES = (5, 21, 200, 50_000)
FIELDS = 20  # the number of fields of a part, and of bit-fields
CTYPES = {"u8": ctypes.c_uint8, "u16": ctypes.c_uint16, "u32": ctypes.c_uint32, "u64": ctypes.c_uint64}
C_NAMES = {"u8": "uint8_t", "u16": "uint16_t", "u32": "uint32_t", "u64": "uint64_t"}


def part_rows() -> Iterator[tuple[str, str, int]]:
    """Yield name, kind and byte of the fields of a part, with C's layout."""
    end = 0
    for i in range(FIELDS):
        kind = KINDS[i % len(KINDS)]
        size = int(kind[1:]) // 8
        byte = (end + size - 1) // size * size
        yield f"f{i}", kind, byte
        end = byte + size


def bit_rows() -> Iterator[tuple[str, int, int, int]]:
    """Yield name, byte, lowest bit in it and width of the bit-fields."""
    at = 0
    for i in range(FIELDS):
        width = WIDTHS[i % len(WIDTHS)]
        yield f"f{i}", at // 8, at % 8, width
        at += width


PART_BYTES = FIELDS // len(KINDS) * 16  # 1 + 2 + 4 + 8 and a byte of padding
BIT_BYTES = FIELDS // len(WIDTHS) * 4


class Part(Struct):
    """Twenty plain fields."""

    SIZE, ALIGN = PART_BYTES, 8
    LAYOUT = " ".join(f"{name}:{kind}@{byte}" for name, kind, byte in part_rows())


class Whole(Struct):
    """Ten parts: 200 fields."""

    SIZE, ALIGN = PARTS * PART_BYTES, 8
    LAYOUT = " ".join(f"p{i}:Part@{i * PART_BYTES}" for i in range(PARTS))


class Bits(Struct):
    """Twenty bit-fields."""

    SIZE, ALIGN = BIT_BYTES, 4
    LAYOUT = " ".join(f"{name}:u32@{byte}.{bit}+{width}" for name, byte, bit, width in bit_rows())


class CtypesPart(ctypes.Structure):
    """`Part` in ctypes."""

    _fields_ = [(name, CTYPES[kind]) for name, kind, _ in part_rows()]


class CtypesWhole(ctypes.Structure):
    """`Whole` in ctypes."""

    _fields_ = [(f"p{i}", CtypesPart) for i in range(PARTS)]


class CtypesBits(ctypes.Structure):
    """`Bits` in ctypes."""

    _fields_ = [(name, ctypes.c_uint32, width) for name, _, _, width in bit_rows()]


def new_struct() -> type[Struct]:
    """Return a new struct type like `Part`."""
    return type(
        "Fresh", (Struct,), {"__module__": __name__, "SIZE": Part.SIZE, "ALIGN": Part.ALIGN, "LAYOUT": Part.LAYOUT}
    )


def new_ctypes() -> type[ctypes.Structure]:
    """Return the same for ctypes."""
    return type("Fresh", (ctypes.Structure,), {"_fields_": CtypesPart._fields_})


def ours() -> dict[str, Any]:
    """Return the names the statements use, for our types: `s`, `p`, `b` are views over memory, `S` makes a struct,
    `lay` a view.
    """
    memory, bits = bytearray(Whole.SIZE), bytearray(Bits.SIZE)
    whole: Any = Whole.view(memory)
    views = {"s": whole, "p": whole.p3, "b": Bits.view(bits)}
    return {**views, "S": Whole, "B": Bits, "lay": Whole.view, "memory": memory, "bits": bits, "new": new_struct}


def with_ctypes() -> dict[str, Any]:
    """Return the same for ctypes."""
    memory, bits = bytearray(Whole.SIZE), bytearray(Bits.SIZE)
    whole = CtypesWhole.from_buffer(memory)
    views = {"s": whole, "p": whole.p3, "b": CtypesBits.from_buffer(bits)}
    return {
        **views,
        "S": CtypesWhole,
        "lay": CtypesWhole.from_buffer,
        "memory": memory,
        "bits": bits,
        "new": new_ctypes,
    }


def with_cffi() -> dict[str, Any]:
    """Return the same for cffi, whose structs are declared as C text."""
    ffi = FFI()
    part = "".join(f" {C_NAMES[kind]} {name};" for name, kind, _ in part_rows())
    whole = "".join(f" struct part p{i};" for i in range(PARTS))
    fields = "".join(f" uint32_t {name}:{width};" for name, _, _, width in bit_rows())
    ffi.cdef(f"struct part {{{part} }}; struct whole {{{whole} }}; struct bits {{{fields} }};")
    memory, bits = bytearray(Whole.SIZE), bytearray(Bits.SIZE)
    kind = ffi.typeof("struct whole *")
    whole_view: Any = ffi.from_buffer(kind, memory)
    views = {"s": whole_view, "p": whole_view.p3, "b": ffi.from_buffer("struct bits *", bits)}
    return {**views, "S": partial(ffi.new, kind), "lay": partial(ffi.from_buffer, kind), "memory": memory, "bits": bits}
