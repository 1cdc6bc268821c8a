"""Numbers and registers as nvdisasm writes them, in both directions.

A table maps a field's bits to its text; texts are made when first asked for and kept. `parse` is the way back.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from functools import cache

# The most texts a table keeps: immediates have many values.
MAX_KEPT = 1 << 16
# nvdisasm writes numbers below this with %.20g, from it on with %.20e.
LONG_FROM = 1e9
_SPECIAL = re.compile(r"([+-])(INF|QNAN|SNAN)")
REGISTERS = {"R": ("R", "Z"), "U": ("UR", "Z"), "P": ("P", "T"), "Q": ("UP", "T"), "B": ("B", "")}


class Texts(dict[int, str]):
    """The texts of a field, made by `write` when they are needed."""

    def __init__(self, write: Callable[[int], str]) -> None:
        super().__init__()
        self.write = write

    def __missing__(self, value: int) -> str:
        text = self.write(value)
        if len(self) < MAX_KEPT:
            self[value] = text
        return text


def register_writer(kind: str, width: int, *, inverted: bool) -> Callable[[int], str]:
    """Return the function that names a register. The last one of a file is RZ, URZ, PT or UPT."""
    name, last = REGISTERS[kind]
    top = (1 << width) - 1

    def write(value: int) -> str:
        number = value ^ top if inverted else value
        return name + (last if last and number == top else str(number))

    return write


def register_reader(kind: str, width: int, *, inverted: bool) -> Callable[[str], int]:
    """Return the function that reads a register's name; anything else is a ValueError."""
    name, last = REGISTERS[kind]
    top = (1 << width) - 1

    def read(text: str) -> int:
        rest = text.removeprefix(name)
        if rest == text:
            raise ValueError(text)
        number = top if last and rest == last else int(rest)
        if not 0 <= number <= top or (last and number == top and rest != last):
            raise ValueError(f"there is no {text}")
        return number ^ top if inverted else number

    return read


def float_text(value: float, *, negative: bool, quiet: bool) -> str:
    """Return a float as nvdisasm writes it."""
    sign = "-" if negative else "+"
    if math.isnan(value):
        return f"{sign}{'Q' if quiet else 'S'}NAN"
    if math.isinf(value):
        return f"{sign}INF"
    if value == 0:
        return "-0.0" if negative else "0"
    return f"{value:.20g}" if abs(value) < LONG_FROM else f"{value:.20e}"


class FloatKind:
    """One kind of immediate: `bits` of it are in the instruction, as the top bits of a float of the format `code`."""

    def __init__(self, bits: int, code: str, mantissa_bits: int) -> None:
        self.bits, self.code, self.mantissa_bits = bits, code, mantissa_bits
        self.size_bits = struct.calcsize(code) * 8
        self.missing = self.size_bits - bits
        self.integer = {2: "<H", 4: "<I", 8: "<Q"}[self.size_bits // 8]

    def text(self, raw: int) -> str:
        """Return the text of the bits."""
        whole = raw << self.missing
        (value,) = struct.unpack(self.code, struct.pack(self.integer, whole))
        quiet = bool(whole >> self.mantissa_bits - 1 & 1)
        return float_text(value, negative=bool(raw >> self.bits - 1), quiet=quiet)

    def parse(self, text: str) -> int:
        """Return the bits of a number. A number that the bits cannot hold is rounded, except for a double, of which the
        instruction has the upper half: that is a ValueError.
        """
        if special := _SPECIAL.fullmatch(text):
            sign = (special[1] == "-") << self.bits - 1
            exponent = ((1 << self.size_bits - self.mantissa_bits - 1) - 1) << self.mantissa_bits - self.missing
            mantissa = {"INF": 0, "QNAN": 1 << self.mantissa_bits - self.missing - 1, "SNAN": 1}[special[2]]
            return sign | exponent | mantissa
        if not re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", text):
            raise ValueError(f"{text} is no number")
        try:
            whole: int
            (whole,) = struct.unpack(self.integer, struct.pack(self.code, float(text)))
        except OverflowError as error:
            raise ValueError(f"{text} is too large") from error
        rest = whole & (1 << self.missing) - 1
        if self.code == "<d" and rest:
            raise ValueError(f"{text} needs all 64 bits of a double; the instruction has the upper 32")
        # The shorter formats round to nearest even.
        whole >>= self.missing
        half = 1 << self.missing - 1 if self.missing else 0
        return whole + (rest > half or (rest == half and bool(whole & 1))) if half else whole


FLOATS = {
    "f32": FloatKind(32, "<f", 23),
    "f64": FloatKind(32, "<d", 52),
    "f16": FloatKind(16, "<e", 10),
    "bf16": FloatKind(16, "<f", 23),
}


def integer_text(value: int) -> str:
    """Return an integer in hexadecimal, with its sign before the 0x."""
    return f"-{-value:#x}" if value < 0 else f"{value:#x}"


def integer(text: str) -> int:
    """Read an integer in any of Python's notations; anything else is a ValueError."""
    return int(text, 0)


@cache
def set_texts(width: int) -> dict[int, str]:
    """Return the texts of a set of bit numbers, highest first: 0b101 is {2,0}."""
    return {
        value: "{" + ",".join(str(bit) for bit in reversed(range(width)) if value >> bit & 1) + "}"
        for value in range(1, 1 << width)
    }
