"""MFMA and SMFMAC of CDNA on the host: D = A x B + C of blocks of matrices.

A product is a helper function of the module. It puts the elements of A and B into tables by element of a lane and lane,
and C by register and lane. There a row of A, B, C or D is contiguous, or has a constant step, see `decoding/products`.
Then it calls the function of a row of D for every row. The sums are those of `values/matrix_sums.py`, bit for bit:
products are cut to multiples of a unit, as 32-bit integers, and sums of those are exact in f64. The interpreter
executes products with NaNs, infinities or numbers that are so large that a product of two might be infinite.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from ringup.silicon.shader.amd.decoding.products import BITS, CDNA4_NAMES, LANES, NAMES, Shape, shape_of
from ringup.silicon.shader.amd.rules.eight_bits import FORMATS, widened_small
from ringup.silicon.shader.amd.writer.arithmetic import widened
from ringup.silicon.shader.amd.writer.wave import rule
from ringup.silicon.shader.host.emitter import Code, Value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ringup.silicon.shader.amd.decoding.decode import Instruction, Operand
    from ringup.silicon.shader.amd.writer.wave import Wave

# Products that are added at a time; those of 8 bits apart for even and odd places.
GROUPS = {"f16": 8, "bf16": 8, "xf32": 4, "fp8": 16, "bf8": 16}
CUT, SUM_CUT = 24, 31
NOWHERE = -126
NAN, INFINITY = 0x7FC0_0000, 0x7F80_0000
EIGHT_BITS = ("fp8", "bf8")
# Their products, and the exponents of these, fit in f32. Those of the others need f64.
SINGLE = ("f16", *EIGHT_BITS)
XF32_MASK = 0xFFFF_E000
ROW = f"<{LANES} x i32>"
# Of helpers that compute with all lanes.
ATTRIBUTES = 'nounwind noinline "prefer-vector-width"="512" "min-legal-vector-width"="512"'
# By type: bits of the fraction, bias.
_FIELDS = {"f16": (10, 15), "bf16": (7, 127), "xf32": (23, 127)}
# A field of exponents from which on a product of two may be infinite.
_LARGE_FIELD = 190


class Variant(NamedTuple):
    """What one helper function depends on: fields of the instruction, a row of its generation."""

    mnemonic: str
    blgp: int
    cbsz: int
    abid: int
    octets: str  # which 8-bit floats there are

    @property
    def name(self) -> str:
        """The function's name."""
        return f"{self.mnemonic}.{self.blgp}.{self.cbsz}.{self.abid}"

    @property
    def shape(self) -> Shape:
        """The opcode's."""
        found = shape_of(self.mnemonic)
        assert found is not None
        return found


class Layout(NamedTuple):
    """Where elements are in the tables: `held` of A and B in a lane, each a row of lanes.

    The elements of a lane follow each other along K, or are of `parts` parts of K.
    """

    held: tuple[int, int]
    parts: int

    @classmethod
    def of(cls, shape: Shape) -> Layout:
        """Return the layout of a shape."""
        b = shape.depth * shape.blocks * shape.size // LANES
        return cls((b // 2 if shape.is_sparse else b, b), shape.parts)

    def at(self, source: int, k: int, shape: Shape) -> int:
        """Return the distance of element `k` along K of A (0) or B (1) from the first one of its row."""
        together = self.held[source] // self.parts
        part, within = divmod(k, together * LANES // (shape.blocks * shape.size))
        lane, element = divmod(within, together)
        return (part * together + element) * LANES + lane * shape.blocks * shape.size


def _work(types: tuple[str, str]) -> str:
    """Return the type of elements in the tables."""
    if types[0] == "i8":
        return "i32"
    return "float" if types[0] in (*SINGLE, "f32") else "double"


def _bits_of(kind: str) -> str:
    return "i64" if kind == "double" else "i32"


def _width(kind: str) -> tuple[int, int]:
    """Return the bits of the fraction and the bias of float or double."""
    return (52, 1023) if kind == "double" else (23, 127)


# ---- tables


def _elements(code: Code, registers: list[Value], type_: str) -> list[Value]:
    """Return the elements of a lane as vectors of integers with zeroes above, one for each place."""
    width = BITS[type_]
    if width == 64:
        pairs = zip(registers[::2], registers[1::2], strict=True)
        wide = [[code.resize(one, "i64") for one in pair] for pair in pairs]
        return [code.op("or", low, code.op("shl", high, code.const(32, high.type))) for low, high in wide]
    found = []
    for one in registers:
        for low in range(0, 32, width):
            moved = code.op("lshr", one, code.const(low, ROW)) if low else one
            found.append(code.op("and", moved, code.const((1 << width) - 1, ROW)) if low + width < 32 else moved)
    return found


def _number(code: Code, element: Value, type_: str, octets: str) -> Value:
    """Return an element as a number of the table's type."""
    match type_:
        case "i8":
            return code.op("ashr", code.op("shl", element, code.const(24, ROW)), code.const(24, ROW))
        case "f16":
            return widened(code, code.resize(element, "i16"))
        case "bf16":
            single = code.op("shl", element, code.const(16, ROW))
            return code.cast("fpext", code.cast("bitcast", single, "float"), "double")
        case "xf32":
            single = code.op("and", element, code.const(XF32_MASK, ROW))
            return code.cast("fpext", code.cast("bitcast", single, "float"), "double")
        case "f32":
            return code.cast("bitcast", element, "float")
        case "f64":
            return code.cast("bitcast", element, "double")
        case _:
            return widened_small(code, element, FORMATS[octets][type_])


def _power(code: Code, element: Value, type_: str, octets: str, kind: str) -> Value:
    """Return 2 to the power of an element's exponent, which is that of the smallest normal number for a denormal; 0 for
    a zero.
    """
    if type_ in EIGHT_BITS:
        form = FORMATS[octets][type_]
        fraction, bias = form.fraction, form.bias
    else:
        fraction, bias = _FIELDS[type_]
    size_bits = BITS[type_] - 1
    if type_ == "xf32":
        element = code.op("and", element, code.const(XF32_MASK, ROW))
    size = code.op("and", element, code.const((1 << size_bits) - 1, ROW))
    field = code.intrinsic("umax", code.op("lshr", size, code.const(fraction, ROW)), code.const(1, ROW))
    places, own_bias = _width(kind)
    field = code.resize(code.op("add", field, code.const(own_bias - bias, ROW)), _bits_of(kind))
    power = code.op("shl", field, code.const(places, field.type))
    none = code.icmp("eq", size, code.const(0, ROW))
    return code.bitcast(code.select(none, code.const(0, power.type), power), f"<{LANES} x {kind}>")


def table_of(code: Code, rows: Sequence[Value]) -> Value:
    """Store rows of lanes in memory; return its address."""
    table = code.emit(f"alloca [{len(rows)} x {rows[0].type}], align 64", "ptr")
    for at, row in enumerate(rows):
        code.store(row, code.gep(table, at, row.type), 64)
    return table


def _source_table(code: Code, registers: list[Value], type_: str, octets: str) -> Value:
    """Return the table of A or B: numbers, and behind them the powers of their exponents if sums are cut."""
    elements = _elements(code, registers, type_)
    rows = [_number(code, one, type_, octets) for one in elements]
    if type_ in GROUPS:
        rows += [_power(code, one, type_, octets, rows[0].element) for one in elements]
    return table_of(code, rows)


def _indices(code: Code, index: Value, held: int, variant: Variant) -> Value:
    """Return the table of the places of a sparse A's elements among four. ABID selects a set of them if CBSZ is 0."""
    chosen = variant.abid % (32 // (2 * held)) if variant.cbsz == 0 else 0
    rows = []
    for at in range(held):
        moved = code.op("lshr", index, code.const(2 * (at + chosen * held), ROW))
        rows.append(code.op("and", moved, code.const(3, ROW)))
    return table_of(code, rows)


# ---- a row of D


class _Row:
    """Writes the function of one row of D: `void row(ptr a, ptr b, ptr c, ptr index)`, C becoming D."""

    def __init__(self, mnemonic: str, shape: Shape) -> None:
        self.name, self.shape, self.layout = f"row.{mnemonic}", shape, Layout.of(shape)
        self.code, self.kind = Code(), _work(shape.types)
        self.result = "i64" if shape.result == "f64" else "i32"
        self.row = f"<{shape.size} x {self.result}>"
        self.align = 8 if self.kind == "double" else 4

    def _factor_places(self, k: int) -> tuple[Value, Value]:
        """Return the addresses of element `k` of A and of the row of B that it is multiplied with."""
        code, shape, layout = self.code, self.shape, self.layout
        a = code.gep(Value("%a", "ptr"), layout.at(0, k, shape), self.kind)
        if not shape.is_sparse:
            return a, code.gep(Value("%b", "ptr"), layout.at(1, k, shape), self.kind)
        index = code.load(code.gep(Value("%index", "ptr"), layout.at(0, k, shape), "i32"), "i32", 4)
        moved = code.op("mul", code.resize(index, "i64"), code.const(LANES, "i64"))
        first = code.const(layout.at(1, k // 2 * 4, shape), "i64")
        return a, code.gep(Value("%b", "ptr"), code.op("add", moved, first), self.kind)

    def _load(self, a: Value, b: Value, powers: int = 0) -> tuple[Value, Value]:
        """Return an element of A in all lanes and a row of B: numbers, or what is in the tables behind those."""
        code, size = self.code, self.shape.size
        if powers:
            a, b = (code.gep(one, held * LANES, self.kind) for one, held in zip((a, b), self.layout.held, strict=True))
        element = code.splat(code.load(a, self.kind, self.align), size)
        return element, code.load(b, f"<{size} x {self.kind}>", self.align)

    def write(self) -> str:
        """Return the function's definition."""
        code, shape = self.code, self.shape
        place = Value("%c", "ptr")
        total = code.load(place, self.row, 4)
        kept = shape.depth // (2 if shape.is_sparse else 1)
        places = [self._factor_places(k) for k in range(kept)]
        step = GROUPS.get(shape.types[0], kept)
        for first in range(0, kept, step):
            group = places[first : first + step]
            total = self._cut_group(group, total) if shape.types[0] in GROUPS else self._plain_group(group, total)
        code.store(total, place, 4)
        code.line("ret void")
        head = f"define internal void @{self.name}(ptr %a, ptr %b, ptr %c, ptr %index) {ATTRIBUTES} {{"
        return "\n".join([head, *code.lines, "}"])

    def _plain_group(self, places: list[tuple[Value, Value]], total: Value) -> Value:
        """Add integers, or fused products of f32 or f64 one after the other."""
        code = self.code
        value = code.bitcast(total, f"<{self.shape.size} x {self.kind}>")
        for place in places:
            a, b = self._load(*place)
            value = (
                code.op("add", value, code.op("mul", a, b))
                if self.kind == "i32"
                else code.intrinsic("fma", a, b, value)
            )
        return code.bitcast(value, total.type)

    # sums that are cut ------------------------------------------------------------------------------------------------

    def _real(self, value: float, kind: str = "double") -> Value:
        return self.code.real(value, f"<{self.shape.size} x {kind}>")

    def _larger(self, a: Value, b: Value) -> Value:
        return self.code.select(self.code.fcmp("ogt", a, b), a, b)

    def _inverse(self, power: Value, above: int = 0) -> Value:
        """Return 2**above divided by a power of two."""
        code, (fraction, bias) = self.code, _width(power.element)
        raw = code.cast("bitcast", power, _bits_of(power.element))
        raw = code.op("sub", code.const(2 * bias + above << fraction, raw.type), raw)
        return code.bitcast(raw, power.type)

    def _cut_sum(self, places: list[tuple[Value, Value]]) -> tuple[Value, Value, Value]:
        """Return the sum of products in units (f64), 2 to the power of the largest exponent (f64), and integers whose
        signs say whether all products are negative.
        """
        code, kind = self.code, self.kind
        products, largest, signs = [], None, None
        for place in places:
            product = code.op("fmul", *self._load(*place))
            power = code.op("fmul", *self._load(*place, powers=1))
            # A product that is zero has an exponent too. In f32 that is far below those of all others.
            if kind == "double":
                none = code.fcmp("oeq", power, self._real(0.0))
                power = code.select(none, self._real(2.0**NOWHERE), power)
            raw = code.cast("bitcast", product, _bits_of(kind))
            products.append(product)
            largest = power if largest is None else self._larger(power, largest)
            signs = raw if signs is None else code.op("and", signs, raw)
        assert largest is not None
        assert signs is not None
        # If all are zero, the unit does not matter.
        unit = largest if kind == "double" else self._larger(largest, self._real(2.0**-60, kind))
        scale = self._inverse(unit, CUT)
        total = None
        for product in products:
            cut = code.cast("fptosi", code.op("fmul", product, scale), "i32")
            total = cut if total is None else code.op("add", total, cut)
        assert total is not None
        if kind == "float":
            largest = self._larger(code.cast("fpext", largest, "double"), self._real(2.0**NOWHERE))
        signs = code.resize(code.op("lshr", signs, code.const(63 if kind == "double" else 31, signs.type)), "i32")
        return code.cast("sitofp", total, "double"), largest, signs

    def _floor(self, value: Value, *scales: Value) -> Value:
        for one in scales:
            value = self.code.op("fmul", value, one)
        return self.code.intrinsic("floor", value)

    def _cut_group(self, places: list[tuple[Value, Value]], addend: Value) -> Value:
        """Add a group of products to a row of f32."""
        code, is_small = self.code, self.shape.types[0] in EIGHT_BITS
        if is_small:
            (even, first, signs), (odd, second, others) = (self._cut_sum(places[at::2]) for at in (0, 1))
            largest, signs = self._larger(first, second), code.op("and", signs, others)
            down = self._inverse(largest)
            total = code.op(
                "fadd",
                self._floor(even, code.op("fmul", first, down)),
                self._floor(odd, code.op("fmul", second, down)),
            )
        else:
            total, largest, signs = self._cut_sum(places)
        number = code.cast("fpext", code.cast("bitcast", addend, "float"), "double")
        size = code.op("and", addend, code.const(0x7FFF_FFFF, addend.type))
        field = code.intrinsic("umax", code.op("lshr", size, code.const(23, size.type)), code.const(1, size.type))
        raised = code.resize(code.op("add", field, code.const(1023 - 127, field.type)), "i64")
        power = code.cast("bitcast", code.op("shl", raised, code.const(52, raised.type)), "double")
        whole = self._larger(largest, power)
        down = self._inverse(whole)
        more = 2.0 ** (SUM_CUT - CUT)
        total = self._floor(total, code.op("fmul", largest, down), self._real(more))
        below = self._floor(number, down, self._real(2.0**CUT))
        if is_small:
            is_far = code.fcmp("olt", power, code.op("fmul", whole, self._real(2.0 ** -(CUT + 1))))
            below = code.select(is_far, self._real(0.0), below)
        total = code.op("fadd", total, code.op("fmul", below, self._real(more)))
        found = code.cast("fptrunc", code.op("fmul", code.op("fmul", total, whole), self._real(2.0**-SUM_CUT)), "float")
        raw = code.cast("bitcast", found, "i32")
        # Only zeroes of one sign give that sign.
        negative = code.op("and", signs, code.op("lshr", addend, code.const(31, addend.type)))
        zero = code.op("shl", negative, code.const(31, addend.type))
        raw = code.select(code.fcmp("oeq", total, self._real(0.0)), zero, raw)
        large = code.icmp("uge", size, code.const(INFINITY, size.type))
        special = code.select(
            code.icmp("eq", size, code.const(INFINITY, size.type)), addend, code.const(NAN, size.type)
        )
        return code.select(large, special, raw)


# ---- the whole product


def broadcast_lanes(pattern: int) -> list[int]:
    """Return by lane of B the lane whose elements it takes: BLGP."""
    if pattern in (1, 2):
        return [lane % 32 + 32 * (pattern - 1) for lane in range(LANES)]
    if pattern == 3:
        return [(lane + 16) % LANES for lane in range(LANES)]
    return list(range(LANES)) if pattern == 0 else [lane % 16 + 16 * (pattern - 4) for lane in range(LANES)]


def _signed(code: Code, registers: list[Value], *, negative: bool) -> list[Value]:
    """Return pairs of registers with f64s, their signs changed if `negative`."""
    sign = code.const(0x8000_0000, ROW)
    return [code.op("xor", one, sign) if at % 2 and negative else one for at, one in enumerate(registers)]


def counts(shape: Shape) -> tuple[int, int, int]:
    """Return how many registers A, B, and C and D have."""
    held = Layout.of(shape).held
    bits = BITS[shape.types[0]]
    results = shape.blocks * shape.size * shape.size // LANES * (2 if shape.result == "f64" else 1)
    return held[0] * bits // 32, held[1] * bits // 32, results


@cache
def _function(variant: Variant) -> Mapping[str, str]:
    """Return the helper and its declarations, by name. It takes registers of A, B, C and an index, and returns D's."""
    shape, code = variant.shape, Code()
    layout, kind = Layout.of(shape), _work(shape.types)
    a, b, c = (
        [Value(f"%{letter}{i}", ROW) for i in range(count)] for letter, count in zip("abc", counts(shape), strict=True)
    )
    index = Value("%index", ROW)
    names = [*a, *b, *c, *[index] * shape.is_sparse]
    if shape.result == "f64":
        a, b, c = (_signed(code, one, negative=bool(variant.blgp >> at & 1)) for at, one in enumerate((a, b, c)))
    elif variant.blgp and not shape.is_sparse:
        b = [code.shuffle(one, None, broadcast_lanes(variant.blgp)) for one in b]
    left, right = (
        _source_table(code, one, type_, variant.octets) for one, type_ in zip((a, b), shape.types, strict=True)
    )
    places = _indices(code, index, layout.held[0], variant) if shape.is_sparse else Value("null", "ptr")
    table = table_of(code, _elements(code, c, shape.result) if shape.result == "f64" else c)
    row = _Row(variant.mnemonic, shape)
    code.define(row.name, row.write())
    for name, text in row.code.declarations.items():
        code.define(name, text)
    group = min(1 << variant.cbsz, shape.blocks) if not shape.is_sparse else 1
    lanes, registers = shape.places
    for block in range(shape.blocks):
        taken = block // group * group + variant.abid % group
        for i in range(shape.size):
            at = int(registers[block, i, 0]) * LANES + int(lanes[block, i, 0])
            code.call(
                row.name, "void", code.gep(left, taken * shape.size + i, kind), code.gep(right, block * shape.size, kind),
                code.gep(table, at, row.result), code.gep(places, i, "i32") if shape.is_sparse else places,
            )  # fmt: skip
    defined(code, variant.name, names, _results(code, table, shape, len(c)))
    return code.declarations


def defined(code: Code, name: str, arguments: Sequence[Value], results: Sequence[Value]) -> None:
    """Make the code that was written the helper of a product, which returns registers of D."""
    result = f"{{ {', '.join([ROW] * len(results))} }}"
    whole = "poison"
    for i, one in enumerate(results):
        whole = code.emit(f"insertvalue {result} {whole}, {ROW} {one.text}, {i}", result).text
    code.line(f"ret {result} {whole}")
    head = f"define internal {result} @{name}({', '.join(f'{ROW} {one.text}' for one in arguments)})"
    code.define(name, "\n".join([f"{head} {ATTRIBUTES} {{", *code.lines, "}"]))


def _results(code: Code, table: Value, shape: Shape, count: int) -> list[Value]:
    """Return the registers of D from the table."""
    if shape.result != "f64":
        return [code.load(code.gep(table, at, ROW), ROW, 64) for at in range(count)]
    found = []
    for at in range(count // 2):
        pair = code.load(code.gep(table, at, f"<{LANES} x i64>"), f"<{LANES} x i64>", 64)
        found += [code.resize(pair, "i32"), code.resize(code.op("lshr", pair, code.const(32, pair.type)), "i32")]
    return found


def _is_special(wave: Wave, registers: list[Value], type_: str) -> Value | None:
    """Return whether some element is NaN, infinite, or too large (i1); None if that does not matter."""
    if type_ not in GROUPS:
        return None
    code, is_alone = wave.code, False
    if type_ in EIGHT_BITS:
        form = FORMATS[wave.generation.octets][type_]
        # A NaN with the bits of -0 is the only one, and there is no infinity.
        is_alone = not form.signs_zero
        width, mask, limit = 8, 0xFF if is_alone else 0x7F, form.overflow
    elif type_ == "xf32":
        width, mask, limit = 32, INFINITY, _LARGE_FIELD << 23
    else:
        fraction = _FIELDS[type_][0]
        width, mask = 16, 0x7FFF >> fraction << fraction
        limit = mask if type_ == "f16" else _LARGE_FIELD << fraction
    some = None
    for one in registers:
        parts = code.bitcast(one, f"<{LANES * 32 // width} x i{width}>")
        parts = code.op("and", parts, code.const(mask, parts.type))
        found = code.icmp("eq" if is_alone else "uge", parts, code.const(limit, parts.type))
        some = found if some is None else code.op("or", some, found)
    assert some is not None
    whole = code.bitcast(some, f"i{some.lanes}")
    return code.icmp("ne", whole, code.const(0, whole.type))


def matrix_of(wave: Wave, operand: Operand, count: int) -> list[Value]:
    """Return the dwords of a matrix: registers, or a constant for every element."""
    if operand.kind == "vgpr":
        return [wave.vgpr(operand.index + i) for i in range(count)]
    # The constants of f64 are pairs.
    halves = (operand.bits, operand.bits >> 32 if operand.type == "f64" else operand.bits)
    return [wave.const(halves[i % 2], "i32") for i in range(count)]


@rule(*dict.fromkeys((*NAMES, *CDNA4_NAMES)))
def _product(wave: Wave, ins: Instruction) -> None:
    code = wave.code
    blgp, cbsz, abid = (ins.fields[name] for name in ("blgp", "cbsz", "abid"))
    variant = Variant(ins.mnemonic, blgp, cbsz, abid, wave.generation.octets)
    shape = variant.shape
    inputs, others, results = counts(shape)
    operands = {one.field: one for one in ins.uses}
    a, b = matrix_of(wave, operands["src0"], inputs), matrix_of(wave, operands["src1"], others)
    odd = [_is_special(wave, one, type_) for one, type_ in zip((a, b), shape.types, strict=True)]
    values = [*a, *b, *matrix_of(wave, operands["vdst" if shape.is_sparse else "src2"], results)]
    if shape.is_sparse:
        values.append(wave.vgpr(operands["src2"].index))
    if odd[0] is None or odd[1] is None:
        compute(wave, ins, variant.name, _function(variant), values)
        return
    with wave.unless(code.op("or", odd[0], odd[1]), ins):
        compute(wave, ins, variant.name, _function(variant), values)


def compute(wave: Wave, ins: Instruction, name: str, helpers: Mapping[str, str], values: Sequence[Value]) -> None:
    """Call the helper of a product, and write D, whatever EXEC is."""
    code, results = wave.code, ins.defs[0].size_bits // 32
    for one, text in helpers.items():
        code.define(one, text)
    result = f"{{ {', '.join([ROW] * results)} }}"
    whole = code.call(name, result, *values)
    for i in range(results):
        value = code.emit(f"extractvalue {result} {whole.text}, {i}", ROW)
        wave.set_vgpr(ins.defs[0].index + i, value, masked=False)


# ---- strict mode


def undefined_products(wave: Wave, ins: Instruction, a: Value, b: Value, place: int) -> Value:
    """Return as a lane mask which elements in register `place` of D are undefined, from the undefined lanes of A (and
    its index) and B. They are whole rows and columns.
    """
    shape = shape_of(ins.mnemonic)
    assert shape is not None
    code, together = wave.code, shape.blocks * shape.size
    held = []
    for mask in (a, b):
        every = mask
        for part in range(1, LANES // together):
            every = code.op("or", every, code.op("lshr", mask, code.const(together * part, mask.type)))
        held.append(code.bitcast(every, wave.bools))
    number = place // 2 if shape.result == "f64" else place
    rows, columns = [0] * LANES, [0] * LANES
    lanes, registers = shape.places
    for block in range(shape.blocks):
        for i in range(shape.size):
            for j in range(shape.size):
                if registers[block, i, j] == number:
                    rows[lanes[block, i, j]], columns[lanes[block, i, j]] = (
                        block * shape.size + i,
                        block * shape.size + j,
                    )
    found = code.op("or", code.shuffle(held[0], None, rows), code.shuffle(held[1], None, columns))
    return code.bitcast(found, wave.mask_type)
