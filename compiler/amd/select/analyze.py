"""One walk over a legal function before selection: finds the uses of values, constants, views and scalars.

A *view* is a value that needs no instruction: it is some dwords of another value's registers (`extract`, most
`bitcast`s, the lower half of an i64, a byte that its load has extended). Positions number items in order, to compare
which comes first.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from ringup.compiler.amd.instructions.code import Bank
from ringup.compiler.machine.ir import Function, If, Loop, Region, Type, Value

# Operations of the SALU for integers of 16, 32 and 64 bits. Other uniform values are computed in VGPRs.
SCALAR_INTEGER = frozenset((
    "add", "sub", "mul", "mul_hi_u", "mul_hi_s", "mad", "mad_wide_u", "and", "or", "xor", "not", "shl", "shr_u", "shr_s",
    "min_s", "max_s", "min_u", "max_u", "bit_count", "leading_zeros", "zext", "sext", "truncate", "select", "bitcast", "vector", "extract",
    "to_int_s", "to_int_u", "frexp_exponent", "load", "group_id", "wave_id", "param", "read_lane", "first_lane", "index", "carried", "result",
    "lds_load", "shuffle_xor", "shuffle", "dot4_s", "dot4_u", "undef",
))  # fmt: skip
# Operations on floats that only move bits.
_SCALAR_MOVES = frozenset(("select", "bitcast", "vector", "extract", "fneg", "fabs"))
# Float operations that the SALU of RDNA3.5 and RDNA4 computes, for f32 and f16.
SCALAR_FLOAT = frozenset((
    "fadd", "fsub", "fmul", "fma", "fmin", "fmax", "floor", "ceil", "trunc", "round", "to_float_s", "to_float_u", "fconvert",
))  # fmt: skip
_FORMS = {"f16": "<e", "f32": "<f", "f64": "<d"}


def dwords(type_: Type, wave_size: int) -> int:
    """Return the number of registers of a value of that type. A condition is a mask of the wave's lanes."""
    if type_.element == "i1":
        return wave_size // 32
    return -(-type_.bits * type_.count // 32)


def bits_of(value: float, type_: Type) -> int:
    """Return the bit pattern of a constant."""
    if not type_.is_float:
        return int(value) & (1 << type_.bits) - 1
    if type_.element == "bf16":
        (wide,) = struct.unpack("<I", struct.pack("<f", value))
        return int(wide + 0x7FFF + (wide >> 16 & 1) >> 16) if value == value else 0x7FC0
    form = _FORMS[type_.element]
    try:
        return int.from_bytes(struct.pack(form, value), "little")
    except OverflowError:
        return int.from_bytes(struct.pack(form, float("inf") if value > 0 else float("-inf")), "little")


class Analysis:
    """The known facts about a function's values.

    `uses`: the number of uses by operations and structures. `position`: the number of each item. `region`: the region
    of a value. `last_use`: the last position that reads the registers of a root. `views`: (root, first dword, dwords).
    `bits`: constants. `_signed_loads`: the uses of each load of a byte or halfword. Such a load extends with zeros
    unless every use is a sext.
    """

    def __init__(self, function: Function, scalar_floats: bool) -> None:
        self.uses: dict[Value, int] = {}
        self.position: dict[Value | Loop | If, int] = {}
        self.end: dict[Region, int] = {}
        self.region: dict[Value, Region] = {}
        self.last_use: dict[Value, int] = {}
        self.views: dict[Value, tuple[Value, int, int]] = {}
        self.bits: dict[Value, int] = {}
        self.banks: dict[Value, Bank] = {}
        # For results: the loop and the index of the result.
        self.loop_of: dict[Value, tuple[Loop, int]] = {}
        self.written: set[int | None] = {i for i, one in enumerate(function.params) if one.written}
        # Whether a load or atomic may read what the kernel stores.
        self.reads_written = False
        self.touches_lds = False
        self._signed_loads: dict[Value, list[int]] = {}
        self._scalar_floats = scalar_floats
        self._wave_size = function.wave_size
        self._clock = 0
        self._sources: dict[Value, int | None] = {}
        self._count_loads(function.body)
        self._walk(function.body)

    def _count_loads(self, region: Region) -> None:
        """Count the uses of each narrow load: as a sign extension, or otherwise."""
        counts = self._signed_loads
        for item in region.items:
            if isinstance(item, Value):
                op = item.op
                if op == "load" or op == "lds_load":
                    if item.type.bits < 32 and item.type.count == 1:
                        counts[item] = [0, 0]
                elif counts:
                    for one in item.args:
                        if one in counts:
                            counts[one][op == "sext"] += 1
            else:
                self._count_loads(item.body)
                if isinstance(item, Loop):
                    for one in item.following + item.initial:
                        if one in counts:
                            counts[one][0] += 1

    def extends_signed(self, load: Value) -> bool:
        """Return whether a narrow load extends the sign."""
        counts = self._signed_loads.get(load)
        return counts is not None and counts[1] > 0 and counts[0] == 0

    def source(self, value: Value) -> int | None:
        """Return the number of the parameter that an address comes from, None if it is not known."""
        sources = self._sources
        if value not in sources:
            sources[value] = None
            if value.op == "param":
                sources[value] = value.imm if isinstance(value.imm, int) else None
            elif value.op in ("add", "bitcast", "select", "first_lane"):
                found = {self.source(one) for one in value.args if one.type.element == "i64"} - {None}
                if len(found) == 1:
                    sources[value] = found.pop()
        return sources[value]

    def _use(self, value: Value, position: int) -> None:
        self.uses[value] = self.uses.get(value, 0) + 1
        view = self.views.get(value)
        self.last_use[view[0] if view else value] = position

    def _walk(self, region: Region) -> None:
        uses, views, last_use, where, regions, bits = (
            self.uses,
            self.views,
            self.last_use,
            self.position,
            self.region,
            self.bits,
        )
        clock = self._clock
        for item in region.items:
            clock += 1
            where[item] = clock
            if isinstance(item, Value):
                op = item.op
                if op == "const":
                    bits[item] = bits_of(item.imm, item.type)
                    continue
                regions[item] = region
                for one in item.args:
                    uses[one] = uses.get(one, 0) + 1
                    view = views.get(one)
                    last_use[view[0] if view else one] = clock
                rule = _VIEWS.get(op)
                if rule is not None:
                    rule(self, item)
                elif op == "load":
                    source = self.source(item.args[0])
                    self.reads_written |= source is None or source in self.written
                elif op == "atomic":
                    self.reads_written = True
                elif op == "lds_load" or op == "lds_store":
                    self.touches_lds = True
                continue
            self._clock = clock
            if isinstance(item, If):
                self._use(item.condition, clock)
                self._walk(item.body)
            else:
                self._loop(item, clock)
            clock = self._clock
        self._clock = clock + 1
        self.end[region] = clock + 1

    def _loop(self, loop: Loop, clock: int) -> None:
        body = loop.body
        for one in (loop.start, *loop.initial):
            self._use(one, clock)
        self.region[loop.index] = body
        for one in loop.carried:
            self.region[one] = body
        for i, one in enumerate(loop.results):
            self.loop_of[one] = loop, i
            # One register holds both.
            self.banks[one] = self.bank(loop.carried[i])
        self._walk(body)
        end = self.end[body]
        for one in (loop.stop, *loop.following):
            self._use(one, end)

    def bank(self, value: Value) -> Bank:
        """Return the register bank of a value: s for SGPRs, v for VGPRs."""
        found = self.banks.get(value)
        if found is None:
            found = self.banks[value] = self._bank(value)
        return found

    def _bank(self, value: Value) -> Bank:
        view = self.views.get(value)
        if view is not None:
            return self.bank(view[0])
        element, op = value.type.element, value.op
        if element == "i1" or op == "param":
            return "s"
        if not value.uniform:
            return "v"
        if op == "load":
            return "s" if self.loads_scalar(value) or not value.type.is_float else "v"
        if op in ("carried", "result", "index"):
            return "v" if value.type.is_float else "s"
        if ("f" not in element and value.type.count * value.type.bits <= 64) or op in (
            "vector",
            "extract",
            "select",
            "bitcast",
        ):
            if op in ("vector", "select", "extract") and ("f" in element or value.type.count > 1):
                return "s" if all(one in self.bits or self.bank(one) == "s" for one in value.args) else "v"
            if op == "bitcast":
                return self.bank(value.args[0])
            return "s" if op in SCALAR_INTEGER else "v"
        if op in _SCALAR_MOVES or (self._scalar_floats and op in SCALAR_FLOAT and self._scalar_type(value)):
            return "s" if all(one in self.bits or self.bank(one) == "s" for one in value.args) else "v"
        return "v"

    @staticmethod
    def _scalar_type(value: Value) -> bool:
        if value.type.count > 1 or value.type.element not in ("f32", "f16"):
            return False
        if value.op == "fconvert":
            return value.args[0].type.element in ("f32", "f16")
        return value.args[0].type.element == ("i32" if value.op.startswith("to_float") else value.type.element)

    def loads_scalar(self, value: Value) -> bool:
        """Return whether a load goes through the scalar cache: it is uniform, of whole dwords, and from memory that the
        kernel does not write.
        """
        if not value.uniform or len(value.args) > 2 or value.type.size_bytes % 4 or value.type.size_bytes > 64:
            return False
        source = self.source(value.args[0])
        return source is not None and source not in self.written


def _view(known: Analysis, value: Value, of: Value, first: int, count: int) -> None:
    base = known.views.get(of)
    if base is not None:
        of, first = base[0], base[1] + first
    known.views[value] = of, first, count


def _constant_slice(known: Analysis, value: Value, of: Value, first_bit: int) -> bool:
    bits = known.bits.get(of)
    if bits is None:
        return False
    known.bits[value] = bits >> first_bit & (1 << value.type.bits * value.type.count) - 1
    return True


def _bitcast(known: Analysis, value: Value) -> None:
    of = value.args[0]
    if value.type.element != "i1" and not _constant_slice(known, value, of, 0):
        _view(known, value, of, 0, dwords(value.type, known._wave_size))


def _extract(known: Analysis, value: Value) -> None:
    bit = value.imm * value.type.bits
    if bit % 32 == 0 and not _constant_slice(known, value, value.args[0], bit):
        _view(known, value, value.args[0], bit // 32, dwords(value.type, known._wave_size))


def _vector(known: Analysis, value: Value) -> None:
    """Make consecutive elements of one vector a view of that vector."""
    first = value.args[0]
    if first.op != "extract" or value.type.bits < 32:
        return
    of, start = first.args[0], first.imm
    if of.type.of(1) != first.type or start % len(value.args):
        return
    for i, one in enumerate(value.args):
        if one.op != "extract" or one.args[0] is not of or one.imm != start + i:
            return
    width = value.type.bits // 32
    _view(known, value, of, start * width, len(value.args) * width)


def _truncate(known: Analysis, value: Value) -> None:
    of = value.args[0]
    if value.type.element != "i1" and not _constant_slice(known, value, of, 0):
        _view(known, value, of, 0, dwords(value.type, known._wave_size))


def _extend(known: Analysis, value: Value) -> None:
    of = value.args[0]
    if value.type.bits > 32 or of.type.element == "i1":
        return
    if of in known.bits:
        number, width = known.bits[of], of.type.bits
        if value.op == "sext" and number >> width - 1:
            number -= 1 << width
        known.bits[value] = number & (1 << value.type.bits) - 1
    elif of in known._signed_loads and known.extends_signed(of) == (value.op == "sext"):
        _view(known, value, of, 0, 1)


def _same_lane(known: Analysis, value: Value) -> None:
    of = value.args[0]
    if value.type.element != "i1" and known.bank(of) == "s" and of not in known.bits:
        _view(known, value, of, 0, dwords(value.type, known._wave_size))
    elif of in known.bits:
        known.bits[value] = known.bits[of]


def _sign(known: Analysis, value: Value) -> None:
    bits, sign = known.bits.get(value.args[0]), 1 << value.type.bits - 1
    if bits is not None and value.type.count == 1:
        known.bits[value] = bits ^ sign if value.op == "fneg" else bits & ~sign


_VIEWS: dict[str, Callable[[Analysis, Value], None]] = {
    "bitcast": _bitcast, "vector": _vector, "extract": _extract, "truncate": _truncate, "zext": _extend, "sext": _extend,
    "fneg": _sign, "fabs": _sign, "first_lane": _same_lane, "read_lane": _same_lane,
}  # fmt: skip
