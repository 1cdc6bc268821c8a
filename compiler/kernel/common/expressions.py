"""The values of graph nodes at given points, as machine IR. Movement becomes index arithmetic, adjacent loads become
vectors.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeAlias, cast

from ringup.compiler.graph import dtypes
from ringup.compiler.graph.index import Expr, Int, atom_of, bounds, runtime_value
from ringup.compiler.graph.nodes import ELEMENTWISE, LINES, MOVEMENT, Node, Op
from ringup.compiler.kernel.common import element_forms
from ringup.compiler.kernel.common.arith import apply
from ringup.compiler.kernel.common.numbers import Numbers
from ringup.compiler.kernel.common.recursion import Call, run
from ringup.compiler.machine.build import Builder
from ringup.compiler.machine.ir import I1, I32, I64, Loop, Value
from ringup.compiler.machine.scoped import Scoped
from ringup.compiler.schedule.views import Point, flat, source_point, within

# Negative zero is not among them.
_ZEROS = ("0", "0.0", "False")
# Nodes that are in memory, or that have their own lowering.
_OF_THEIR_OWN = LINES | {Op.BUFFER, Op.AFTER, Op.REDUCE}
# Of one load or store.
WIDEST_BYTES = 16
# A point, and the condition under which its value is used. Where the condition is false, the value is arbitrary.
Request: TypeAlias = "tuple[Point, Value | None]"
Values: TypeAlias = "Call[list[Value]]"


class Expressions:
    """Evaluates nodes in one kernel.

    `params`: the argument number of each node in memory. `inputs`: the nodes that are read from memory; the kernel
    computes the others. `define` gives the values of reductions. A node that one of `stores` wrote, and that is not an
    input, has the stored value.
    """

    def __init__(
        self, builder: Builder, params: Mapping[Node, int], inputs: Collection[Node], stores: Collection[Node] = ()
    ) -> None:
        self.builder, self._params, self._inputs, self._stores = builder, params, frozenset(inputs), stores
        self.numbers = Numbers(builder)
        self._known: Scoped[tuple[Node, Point, Value | None], Value] = Scoped()
        self._folded: dict[Node, Value | dict[Point, Value]] = {}

    # Regions

    @contextmanager
    def loop(
        self,
        variable: Int,
        start: Value | int,
        stop: Value | int,
        step: int,
        initial: Sequence[Value],
        *,
        unroll: int = 1,
    ) -> Iterator[Loop]:
        """Open a loop; `variable` is its index in expressions. Values evaluated inside must not be used after it."""
        with self.builder.loop(start, stop, step, initial, unroll=unroll) as loop:
            self.enter()
            self.numbers.bind(atom_of(variable), loop.index)
            yield loop
            self.leave()

    @contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        """Open a conditional region. Values evaluated inside must not be used after it."""
        with self.builder.when(condition):
            self.enter()
            yield
            self.leave()

    def enter(self) -> None:
        """Enter a region. Values evaluated in it are dropped at its end."""
        self._known.enter()
        self.numbers.enter()

    def leave(self) -> None:
        """Leave the innermost region."""
        self._known.leave()
        self.numbers.leave()

    def forget(self) -> None:
        """Drop every cached value: memory may have changed."""
        self._known.clear()

    def define(self, node: Node, value: Value | dict[Point, Value]) -> None:
        """Set a reduction's value: one value if the thread uses it at one point, else one for each point."""
        self._folded[node] = value

    # Values

    def value(self, node: Node, point: Point, mask: Value | None = None) -> Value:
        """Return one value in its register form."""
        return self.values(node, [(point, mask)])[0]

    def values(self, node: Node, requests: Sequence[Request]) -> list[Value]:
        """Return a node's values at several points, in their register form. Points adjacent in memory are loaded
        together.
        """
        return run(self._values(node, requests))

    def _values(self, node: Node, requests: Sequence[Request]) -> Values:
        found = [self._find(node, *request) for request in requests]
        missing = dict.fromkeys(request for request, value in zip(requests, found, strict=True) if value is None)
        if missing:
            values = yield from self._made(node, list(missing))
            made = dict(zip(missing, values, strict=True))
            for request, value in made.items():
                self._known.put((node, *request), value)
            found = [made[request] if value is None else value for request, value in zip(requests, found, strict=True)]
        return cast("list[Value]", found)

    def _find(self, node: Node, point: Point, mask: Value | None) -> Value | None:
        value = self._known.get((node, point, mask))
        return self._known.get((node, point, None)) if value is None and mask is not None else value

    def _made(self, node: Node, requests: list[Request]) -> Values:
        if node in self._inputs:
            return self._loaded(node, requests)
        if node in self._folded:
            folded = self._folded[node]
            return [folded if isinstance(folded, Value) else folded[point] for point, _ in requests]
        if node.op in ELEMENTWISE:
            columns = []
            for source in node.sources:
                columns.append((yield self._values(source, requests)))
            return [apply(self.builder, node, args) for args in zip(*columns, strict=True)]
        if node.op is Op.PAD:
            return (yield from self._padded(node, requests))
        if node.op in MOVEMENT:
            return (yield self._moved_to(node, requests))
        return (yield from self._special(node, requests))

    def _moved_to(self, node: Node, requests: list[Request]) -> Values:
        """Return the values below a chain of movement nodes. Nothing is cached for the nodes of the chain."""
        points = [point for point, _ in requests]
        while node.op in MOVEMENT and node.op is not Op.PAD and node not in self._inputs and node not in self._folded:
            points = [source_point(node, point)[0] for point in points]
            node = node.sources[0]
        return self._values(node, [(point, mask) for point, (_, mask) in zip(points, requests, strict=True)])

    def _special(self, node: Node, requests: list[Request]) -> Values:
        build = self.builder
        if node.op is Op.CONST:
            return [element_forms.constant(build, node.arg, node.dtype)] * len(requests)
        if node.op is Op.CONTIGUOUS:
            return (yield self._values(node.sources[0], requests))
        if node.op is Op.AFTER and node.sources[1] in self._stores:
            return (yield self._values(node.sources[1].sources[1], requests))
        if node.op is Op.IOTA:
            type_ = element_forms.held(node.dtype)
            return [self._number(point[0], type_ is I64) for point, _ in requests]
        if node.op is Op.SIZE:
            return [self._number(node.arg, element_forms.held(node.dtype) is I64)] * len(requests)
        if node.op is Op.CAT:
            found = []
            for point, mask in requests:
                found += yield from self._joined(node, point, mask)
            return found
        if node.op is Op.GATHER:
            return (yield from self._gathered(node, requests))
        # No point of the kernel meets the conditions here, so the node is not an input. Only spare threads evaluate it,
        # and nothing reads their values.
        if node.op in _OF_THEIR_OWN and all(mask is not None for _, mask in requests):
            return [element_forms.constant(build, 0, node.dtype)] * len(requests)
        raise ValueError(f"{node} has no value in the middle of a kernel")

    def _number(self, number: Int, wide: bool) -> Value:
        value = self.numbers.emit(number)
        if wide and value.type is I32:
            return self.builder.op("sext", I64, value)
        return value if wide or value.type is I32 else self.builder.op("truncate", I32, value)

    def _padded(self, node: Node, requests: list[Request]) -> Values:
        build, source = self.builder, node.sources[0]
        _, fill = node.arg
        filler = element_forms.constant(build, fill, node.dtype)
        found: list[Value | None] = [None] * len(requests)
        inner: list[Request] = []
        places: list[int] = []
        for i, (point, mask) in enumerate(requests):
            moved, conditions = source_point(node, point)
            if conditions is None:
                found[i] = filler
                continue
            places.append(i)
            inner.append((moved, self.numbers.all_of(conditions, mask)))
        values = (yield self._values(source, inner)) if inner else []
        for i, (_, mask), value in zip(places, inner, values, strict=True):
            outer = requests[i][1]
            if mask is None or mask is outer or (str(fill) in _ZEROS and _is_masked_zero(value, mask)):
                found[i] = value
            else:
                found[i] = build.op("select", value.type, mask, value, filler)
        return cast("list[Value]", found)

    def _joined(self, node: Node, point: Point, mask: Value | None) -> Values:
        """Return the element of a CAT at a point. Each source that the index may fall into is evaluated; selects choose
        among them.
        """
        axis: int = node.arg
        build = self.builder
        start: Int = 0
        value: Value | None = None
        for source in node.sources:
            size = source.shape[axis]
            inner = point[axis] - start
            start = start + size
            condition = within(inner, 0, size)
            if condition is False:
                continue
            moved = (*point[:axis], inner, *point[axis + 1 :])
            if condition is True:
                return (yield self._values(source, [(moved, mask)]))
            test = self.numbers.condition(condition)
            both = test if mask is None else build.op("and", I1, test, mask)
            (part,) = yield self._values(source, [(moved, both)])
            value = part if value is None else build.op("select", part.type, test, part, value)
        # Only spare threads get here, and nothing reads their values.
        if value is None and mask is not None:
            value = element_forms.constant(build, 0, node.dtype)
        if value is None:
            raise ValueError(f"{node} has no element at {point}")
        return [value]

    def _gathered(self, node: Node, requests: list[Request]) -> Values:
        """Return elements at indices known only at run time. An index outside gives 0 and reads no memory."""
        axis: int = node.arg
        source, index = node.sources
        build = self.builder
        size = source.shape[axis]
        zero = element_forms.constant(build, 0, node.dtype)
        found: list[Value] = []
        numbers = yield self._values(index, requests)
        for (point, mask), number in zip(requests, numbers, strict=True):
            wide = index.dtype.bits == 64 or (index.dtype is dtypes.uint32)
            number = (
                build.op("sext" if index.dtype.kind == "int" else "zext", I64, number)
                if wide and number.type is I32
                else number
            )
            most = bounds(size)[1]
            limit = self.numbers.emit(size, I64 if wide else I32) if most < 1 << 31 or wide else None
            inside = None if limit is None else build.compare("lt_u", number, limit)
            narrow = build.op("truncate", I32, number) if wide and most <= 1 << 31 else number
            position: Int = 0 if most == 1 else runtime_value("index", 0, most - 1, narrow)
            both = inside if mask is None else mask if inside is None else build.op("and", I1, inside, mask)
            (value,) = yield self._values(source, [((*point[:axis], position, *point[axis + 1 :]), both)])
            if inside is not None and not _is_masked_zero(value, both):
                value = build.op("select", value.type, inside, value, zero)
            found.append(value)
        return found

    # Memory

    def _loaded(self, node: Node, requests: list[Request]) -> list[Value]:
        build = self.builder
        type_ = element_forms.stored(node.dtype)
        size = node.dtype.size_bytes
        places = [flat(point, node.shape) for point, _ in requests]
        masks = [mask for _, mask in requests]
        found: list[Value] = []
        i = 0
        while i < len(requests):
            mask = masks[i]
            count = run_length(places, i, size, masks)
            base, offset, constant = self.address(node, places[i], masked=mask is not None)
            vector = build.load(type_.of(count), base, offset, constant=constant, mask=mask)
            found += [element_forms.from_memory(build, build.extract(vector, k), node.dtype) for k in range(count)]
            i += count
        return found

    def store(self, node: Node, points: Sequence[Point], values: Sequence[Value], mask: Value | None = None) -> None:
        """Store the values of a node in memory at points. Adjacent ones share one access."""
        self.store_at(node, [flat(point, node.shape) for point in points], values, mask)

    def store_at(self, node: Node, places: Sequence[Int], values: Sequence[Value], mask: Value | None = None) -> None:
        """Store values at positions, counted in elements from the start of a node in memory."""
        build = self.builder
        lying = [element_forms.to_memory(build, value, node.dtype) for value in values]
        i = 0
        while i < len(places):
            count = run_length(places, i, node.dtype.size_bytes)
            base, offset, constant = self.address(node, places[i], masked=mask is not None)
            build.store(base, offset, build.vector(lying[i : i + count]), constant=constant, mask=mask)
            i += count

    def address(self, node: Node, place: Int, *, masked: bool = False) -> tuple[Value, Value, int]:
        """Return (base, offset, constant) of an element's address in bytes: the base holds the uniform part, the offset
        the part that varies between lanes.

        A masked access keeps its base where a 32-bit offset reaches all of the memory: a back end can then mask the
        access through the offset alone.
        """
        build = self.builder
        base = build.param(self._params[node])
        place = place * node.dtype.size_bytes
        size_bytes = bounds(node.size)[1] * node.dtype.size_bytes
        if masked and isinstance(place, Expr) and size_bytes < 1 << 31 and -(1 << 31) <= place.lo <= place.hi < 1 << 31:
            return base, self.numbers.emit(place, I32), 0
        if isinstance(place, int):
            return self._based(base, place - place % 4096), build.const(0), place % 4096
        constant = place.constant % 4096
        uniform = tuple(term for term in place.terms if self.numbers.is_uniform(term[0]))
        rest = tuple(term for term in place.terms if term not in uniform)
        moved = self._based(base, Expr(place.constant - constant, uniform))
        if not rest:
            return moved, build.const(0), constant
        varying = Expr(0, rest)
        # A 32-bit offset is unsigned.
        unsigned = varying.lo >= 0 and varying.hi < 1 << 32
        return moved, self.numbers.emit(varying, I32 if unsigned else I64), constant

    def _based(self, base: Value, by: Int) -> Value:
        build = self.builder
        number = by if isinstance(by, int) or by.terms else by.constant
        if isinstance(number, int):
            return build.add(base, number) if number else base
        value = self.numbers.emit(number)
        if value.type is I32:
            value = build.op("zext" if number.lo >= 0 else "sext", I64, value)
        return build.add(base, value)


def run_length(places: Sequence[Int], first: int, size_bytes: int, masks: Sequence[Value | None] = ()) -> int:
    """Return how many elements from `first` on are adjacent and have one mask, limited to a width that an access can
    have and that divides their position.
    """
    count = 1
    start = places[first]
    while first + count < len(places) and count * size_bytes < WIDEST_BYTES:
        step = places[first + count] - start
        if not isinstance(step, int) or step != count or (masks and masks[first + count] is not masks[first]):
            break
        count += 1
    while count > 1 and (count & count - 1 or not divides(count, start)):
        count -= 1
    return count


def divides(divisor: int, number: Int) -> bool:
    """Return whether every value of a number is known to be a multiple of the divisor."""
    if isinstance(number, int):
        return number % divisor == 0
    return number.constant % divisor == 0 and all(factor % divisor == 0 for _, factor in number.terms)


def _is_masked_zero(value: Value, mask: Value | None) -> bool:
    """Return whether a value is a load, possibly converted, that gives 0 where the mask is false."""
    while value.op in ("extract", "zext", "sext", "fconvert"):
        value = value.args[0]
    return value.op == "load" and mask is not None and len(value.args) == 3 and value.args[2] is mask
