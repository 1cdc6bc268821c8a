"""Read NVIDIA's macro-only headers: `dev_*.h` registers, class methods, launch descriptors. Text in, rows out.

Such a header is a list of `#define`s whose names give the hierarchy: a place (`NV_PFSP_EMEMC(i)`), its bit ranges
(`NV_PFSP_EMEMC_OFFS 7:2`), and the values of a field (`NV_PFSP_EMEMC_AINCW_TRUE 1`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from ringup.autogen.generate.c.tokens import Unreadable, integer
from ringup.autogen.generate.emit.facts import BitRange, Rejected
from ringup.errors import HeaderError

_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)(\(([\w, \t]*)\))?[ \t]*(.*)$", re.MULTILINE)
_COMMENT = re.compile(r"/\*.*?\*/|//.*", re.DOTALL)
# NVIDIA's access code, such as RW-4R: access, width in bytes, kind.
_NOTE = re.compile(r"/\*\s*([\w-]{5})\s*\*/")
_TOKEN = re.compile(r"\s*(\w+|[-+*():,])")
_HEADER_BYTES_MAX = 4 << 20
DEPTH_MAX = 40


class Define(NamedTuple):
    """One `#define` with its access code, without its comment."""

    name: str
    params: tuple[str, ...]
    body: str
    note: str
    where: str


@dataclass(frozen=True, slots=True)
class Range:
    """A bit range, or an array of equal ones: element (i, j) is `i * strides[0] + j * strides[1]` bits higher."""

    name: str
    hi: int
    lo: int
    strides: tuple[int, ...]
    counts: tuple[int, ...]  # 0 if the header gives no size
    values: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Place:
    """A register or method: its place and its bits. `offset` is None for a packet or descriptor without a place."""

    name: str
    offset: int | None
    strides: tuple[int, ...]
    counts: tuple[int, ...]
    ranges: tuple[Range, ...]
    access: str = ""
    where: str = ""


@dataclass
class Ranges:
    """The contents of one header, or of several of one chip."""

    places: dict[str, Place] = field(default_factory=dict)
    constants: dict[str, int] = field(default_factory=dict)  # numbers that belong to no field
    apertures: dict[str, BitRange] = field(default_factory=dict)  # `high address:low address` of a whole unit
    rejected: list[Rejected] = field(default_factory=list)


def read_defines(path: Path) -> list[Define]:
    """List the macros of a header in order; raise `HeaderError` if it is not readable text."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise HeaderError(
            f"header {path.name} cannot be read: {error.strerror}; is the header package unpacked whole?"
        ) from error
    if len(data) > _HEADER_BYTES_MAX or b"\0" in data:
        raise HeaderError(f"header {path.name} is no C header: {len(data)} bytes, {data.count(0)} of them zero")
    text = data.decode("latin-1").replace("\\\r\n", " ").replace("\\\n", " ")
    found = []
    line, last = 1, 0
    for match in _DEFINE.finditer(text):
        line, last = line + text.count("\n", last, match.start()), match.start()
        name, call, params, rest = match.groups()
        note = _NOTE.search(rest)
        if "/" in rest:
            rest = _COMMENT.sub(" ", rest)
            # a comment that continues on the next line
            rest = rest.split("/*", 1)[0]
        names = tuple(word.strip() for word in params.split(",")) if call and params.strip() else ()
        found.append(Define(name, names, rest.strip(), note[1] if note else "", f"{path.name}:{line}"))
    return found


class Evaluator:
    """Evaluates sums and products over numbers, parameters and other macros of the same headers.

    `hi:lo` is allowed at the top. Nothing is executed.
    """

    def __init__(self, defines: Mapping[str, Define]) -> None:
        self._defines = defines
        self._plain: dict[str, int | BitRange] = {}

    def __call__(self, define: Define, arguments: Sequence[int] = ()) -> int | BitRange:
        """Return the value of `define` with its parameters bound to `arguments`, or raise `Unreadable` with the
        reason.
        """
        if not arguments and define.name in self._plain:
            return self._plain[define.name]
        value = self._value(define, arguments, 0)
        if not arguments:
            self._plain[define.name] = value
        return value

    def _value(self, define: Define, arguments: Sequence[int], depth: int) -> int | BitRange:
        body = define.body
        if not body:
            raise Unreadable("no value: a mark only")
        simple = integer(body)
        if simple is not None:
            return simple[0]
        tokens = _TOKEN.findall(body)
        if "".join(tokens) != re.sub(r"\s", "", body):
            raise Unreadable("neither a number nor a bit range")
        if depth > DEPTH_MAX:
            raise Unreadable(f"macros nested more than {DEPTH_MAX} deep")
        reader = _Reader(tokens, dict(zip(define.params, arguments, strict=True)), self._defines, self, depth)
        value = reader.range_or_sum()
        if reader.at < len(tokens):
            raise Unreadable(f"unexpected {tokens[reader.at]!r}")
        return value


@dataclass
class _Reader:
    """Recursive descent over the tokens of one macro body."""

    tokens: list[str]
    bound: dict[str, int]
    defines: Mapping[str, Define]
    evaluator: Evaluator
    depth: int
    at: int = 0

    def _peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def _take(self, wanted: str) -> bool:
        if self._peek() == wanted:
            self.at += 1
            return True
        return False

    def range_or_sum(self) -> int | BitRange:
        hi = self._sum()
        if not self._take(":"):
            return hi
        lo = self._sum()
        if isinstance(hi, BitRange) or isinstance(lo, BitRange):
            raise Unreadable("a bit range of bit ranges")
        if not 0 <= lo <= hi:
            raise Unreadable(f"bits {hi}:{lo} run upwards or below zero")
        return BitRange(hi, lo)

    def _sum(self) -> int | BitRange:
        value = self._product()
        while self._peek() in ("+", "-"):
            sign = 1 if self._take("+") else -1 if self._take("-") else 0
            value = self._number(value) + sign * self._number(self._product())
        return value

    def _product(self) -> int | BitRange:
        value = self._atom()
        while self._take("*"):
            value = self._number(value) * self._number(self._atom())
        return value

    def _atom(self) -> int | BitRange:
        token = self._peek()
        self.at += 1
        if token == "(":
            if self.at > DEPTH_MAX * 10:
                raise Unreadable("too long")
            value = self.range_or_sum()
            if not self._take(")"):
                raise Unreadable("a parenthesis is not closed")
            return value
        if token in self.bound:
            return self.bound[token]
        if token[:1].isdigit():
            number = integer(token)
            if number is None:
                raise Unreadable(f"{token} is no integer")
            return number[0]
        # Multi-word range of a descriptor: `MW(hi:lo)` is `hi:lo`.
        if token == "MW" and self._peek() == "(":
            return self._atom()
        if token in self.defines:
            define = self.defines[token]
            given: list[int] = []
            if define.params:
                given = self._arguments()
                if len(given) != len(define.params):
                    raise Unreadable(f"{token} takes {len(define.params)} arguments, not {len(given)}")
            return self.evaluator._value(define, given, self.depth + 1)
        raise Unreadable(f"{token or 'the end'} has no value here")

    def _arguments(self) -> list[int]:
        if not self._take("("):
            raise Unreadable("arguments are missing")
        given = [self._number(self._sum())]
        while self._take(","):
            given.append(self._number(self._sum()))
        if not self._take(")"):
            raise Unreadable("a parenthesis is not closed")
        return given

    @staticmethod
    def _number(value: int | BitRange) -> int:
        if isinstance(value, BitRange):
            raise Unreadable("arithmetic on a bit range")
        return value


class _Shape(NamedTuple):
    """The form of an array macro: its value at zero and what each index adds."""

    value: int | BitRange
    strides: tuple[int, ...]


def _low(value: int | BitRange) -> int:
    return value.lo if isinstance(value, BitRange) else value


def _shape(evaluate: Evaluator, define: Define) -> _Shape:
    """Find base and strides by evaluating at 0, 1 and 2 for each index; anything that is not linear is rejected."""
    zeros = [0] * len(define.params)
    base = evaluate(define, zeros)
    strides = []
    for axis in range(len(zeros)):
        steps = []
        for index in (1, 2):
            value = evaluate(define, [*zeros[:axis], index, *zeros[axis + 1 :]])
            if isinstance(value, BitRange) and isinstance(base, BitRange) and value.hi - value.lo != base.hi - base.lo:
                raise Unreadable("the width of the field depends on its index")
            steps.append(_low(value) - _low(base))
        if steps[1] != 2 * steps[0]:
            raise Unreadable("elements do not lie at equal distances")
        strides.append(steps[0])
    return _Shape(base, tuple(strides))


def _owner(name: str, known: Mapping[str, object]) -> str | None:
    """Return the longest known name that `name` extends by `_…`."""
    end = len(name)
    while (end := name.rfind("_", 0, end)) > 0:
        if name[:end] in known:
            return name[:end]
        if name[end - 1] == "_" and name[: end - 1] in known:  # `…__SIZE_1`
            return name[: end - 1]
    return None


def _counts(name: str, strides: Sequence[int], numbers: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(numbers.get(f"{name}__SIZE_{axis + 1}", 0) for axis in range(len(strides)))


@dataclass
class _Sorting:
    """The three levels during sorting."""

    shapes: dict[str, _Shape] = field(default_factory=dict)
    defines: dict[str, Define] = field(default_factory=dict)
    values: dict[str, list[tuple[str, int]]] = field(default_factory=dict)  # by range
    ranges: dict[str, list[str]] = field(default_factory=dict)  # by place


def read_ranges(paths: Sequence[Path], packets: Sequence[str] = (), prefix: str = "") -> Ranges:
    """Read headers of one chip or class. `packets` are name stems that own ranges without being macros (`GP_ENTRY0`).

    With `prefix` (`NVC7C0_`) only macros with that prefix are read, and names lose it.
    """
    out = Ranges()
    sorting = _Sorting()
    evaluate = Evaluator(sorting.defines)
    for path in paths:
        for define in read_defines(path):
            if prefix and not define.name.startswith(prefix):
                continue
            old = sorting.defines.get(define.name)
            if old is not None and old.body.lower() != define.body.lower():
                out.rejected.append(
                    Rejected(define.name, define.where, f"defined as {old.body} before, at {old.where}")
                )
                continue
            sorting.defines.setdefault(define.name, define)
    for define in sorting.defines.values():
        if not define.body:
            continue  # an include guard or a marker
        try:
            sorting.shapes[define.name] = _shape(evaluate, define)
        except (Unreadable, ValueError) as error:
            out.rejected.append(Rejected(define.name, define.where, str(error)))
    _sort(out, sorting, packets, prefix)
    return out


def _sort(out: Ranges, sorting: _Sorting, packets: Sequence[str], prefix: str) -> None:
    shapes, defines = sorting.shapes, sorting.defines
    numbers = {name: shape.value for name, shape in shapes.items() if isinstance(shape.value, int)}
    marked = {name for name in numbers if defines[name].note[-1:] in ("R", "A", "P")}
    stems: dict[str, object] = dict.fromkeys(prefix + packet for packet in packets)
    bits = {
        name: shape
        for name, shape in shapes.items()
        if isinstance(shape.value, BitRange) and defines[name].note[-1:] != "D"
    }
    roots = {name: None for name in numbers if name in marked or _owner(name, bits) is None}
    for name, shape in shapes.items():
        if isinstance(shape.value, BitRange):
            if name not in bits:
                out.apertures[name] = shape.value
                continue
            owner = _owner(name, stems) or _owner(name, roots)
            if owner is None:
                # A range without owner is kept, since an unlisted packet may own it.
                out.apertures[name] = shape.value
            else:
                sorting.ranges.setdefault(owner, []).append(name)
    for name, number in numbers.items():
        if name in marked or (name in sorting.ranges and name in roots):
            continue
        owner = _owner(name, bits)
        if owner is None:
            out.constants[name] = number
        elif not name.removeprefix(owner).startswith("__SIZE_"):
            sorting.values.setdefault(owner, []).append((name, number))
    for name in [*stems, *(name for name in numbers if name in marked or name in sorting.ranges)]:
        place, define = shapes.get(name), defines.get(name)
        ranges = tuple(_ranges_of(name, sorting, numbers))
        if place is None or define is None:
            if ranges:
                out.places[name] = Place(name, None, (), (), ranges)
            continue
        counts = _counts(name, place.strides, numbers)
        out.places[name] = Place(name, numbers[name], place.strides, counts, ranges, define.note, define.where)


def _ranges_of(place: str, sorting: _Sorting, numbers: Mapping[str, int]) -> Iterator[Range]:
    for name in sorting.ranges.get(place, ()):
        shape = sorting.shapes[name]
        if isinstance(shape.value, BitRange):
            counts = _counts(name, shape.strides, numbers)
            yield Range(
                name, shape.value.hi, shape.value.lo, shape.strides, counts, tuple(sorting.values.get(name, ()))
            )
