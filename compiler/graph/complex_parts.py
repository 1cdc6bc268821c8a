"""Takes complex numbers apart: a graph of them becomes a graph of their real and imaginary parts, so that neither the
scheduler nor a kernel knows complex numbers.

In memory, the parts of a number follow each other. So a BUFFER of complex numbers is one of floats with a last axis of
2, and so is what a root comes to. Between memory and roots each part is a node of its own. A part that is exactly zero
by construction (of a real number made complex, of a constant) is None and costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from ringup.compiler.graph import dtypes, nodes
from ringup.compiler.graph.dtypes import DType
from ringup.compiler.graph.nodes import MOVEMENT, Node, Op, Shape

Part: TypeAlias = Node | None


class Parts(NamedTuple):
    """The real and the imaginary part of a complex value, None for zeros."""

    real: Part
    imag: Part


def has_complex(graph: Sequence[Node]) -> bool:
    """Return whether complex numbers are anywhere among the nodes of a graph."""
    return any(one.dtype.kind == "complex" for one in graph)


def without_complex(roots: Sequence[Node]) -> list[Node]:
    """Return the roots of the same graphs of real numbers. For a root of complex numbers it is their parts one after
    the other in some shape: nothing but their bytes is asked for.
    """
    work = _Work()
    for one in nodes.ordered(roots):
        work.take_apart(one)
    return [_unshaped(work.whole(one)) if one.dtype.is_complex else work.made[one] for one in roots]


def _unshaped(whole: Node) -> Node:
    """Return what has the same elements in the same order: a kernel keeps the axes that the work has."""
    while whole.op is Op.RESHAPE:
        whole = whole.sources[0]
    return whole


class _Work:
    """What the nodes of one graph became."""

    def __init__(self) -> None:
        # nodes of real numbers, and STOREs
        self.made: dict[Node, Node] = {}
        # nodes of complex numbers
        self.parts: dict[Node, Parts] = {}
        # memory of complex numbers, with its last axis of 2
        self.memory: dict[Node, Node] = {}

    def take_apart(self, one: Node) -> None:
        """Add what a node becomes; its sources are there."""
        if one.op in (Op.BUFFER, Op.AFTER) and one.dtype.is_complex:
            self.memory[one] = _memory(one, self)
            self.parts[one] = _halves(self.memory[one], one.shape)
        elif one.op is Op.STORE and one.dtype.is_complex:
            view = self.whole(one.sources[0])
            self.made[one] = nodes.node(Op.STORE, view.dtype, view.shape, (view, self.whole(one.sources[1])))
        elif one.dtype.is_complex:
            self.parts[one] = _RULES[one.op](one, self)
        elif one.op in _TO_REAL and one.sources[0].dtype.is_complex:
            self.made[one] = _TO_REAL[one.op](one, self)
        else:
            sources = tuple(self.made[source] for source in one.sources)
            self.made[one] = _rejoined(one, sources) or (
                one if sources == one.sources else nodes.node(one.op, one.dtype, one.shape, sources, one.arg)
            )

    def filled(self, one: Node) -> tuple[Node, Node]:
        """Return both parts of a complex value as nodes."""
        zero = nodes.const(0, one.dtype.part, one.shape)
        real, imag = self.parts[one]
        return zero if real is None else real, zero if imag is None else imag

    def whole(self, one: Node) -> Node:
        """Return a complex value with its parts along a last axis of 2: where it is one already, the node itself."""
        if one in self.memory:
            return self.memory[one]
        real, imag = self.filled(one)
        found = _undivided(real, imag)
        if found is not None:
            return found
        shape = (*one.shape, 1)
        parts = (nodes.reshape(real, shape), nodes.reshape(imag, shape))
        return nodes.node(Op.CAT, real.dtype, (*one.shape, 2), parts, len(one.shape))


def _memory(one: Node, work: _Work) -> Node:
    """Return memory of complex numbers as memory of floats."""
    shape, kind = (*one.shape, 2), one.dtype.part
    if one.op is Op.BUFFER:
        return nodes.node(Op.BUFFER, kind, shape, (), one.arg)
    state, *stores = one.sources
    return nodes.node(Op.AFTER, kind, shape, (work.memory[state], *(work.made[store] for store in stores)))


def _halves(whole: Node, shape: Shape) -> Parts:
    """Return the two parts that lie along a last axis of 2."""
    full = tuple((0, size) for size in shape)
    real, imag = (
        nodes.reshape(nodes.node(Op.SHRINK, whole.dtype, (*shape, 1), (whole,), (*full, (at, at + 1))), shape)
        for at in range(2)
    )
    return Parts(real, imag)


def _undivided(real: Node, imag: Node) -> Node | None:
    """Return the node of which two nodes are the halves along a last axis of 2, moved in the same way; None where they
    are something else.
    """
    moves: list[Node] = []
    while real.op is imag.op and real.shape == imag.shape and real.op in MOVEMENT:
        found = _of_halves(real, imag)
        if found is not None:
            for one in reversed(moves):
                found = _moved(one, found, (*one.shape, 2))
            return found
        if real.arg != imag.arg:
            return None
        moves.append(real)
        real, imag = real.sources[0], imag.sources[0]
    return None


def _of_halves(real: Node, imag: Node) -> Node | None:
    """Return the node of which two nodes are the halves, in their shape with a last axis of 2."""
    first, second = (one.sources[0] if one.op is Op.RESHAPE else one for one in (real, imag))
    if first.op is not Op.SHRINK or second.op is not Op.SHRINK or first.sources[0] is not second.sources[0]:
        return None
    source = first.sources[0]
    full = tuple((0, size) for size in source.shape[:-1])
    if not source.shape or source.shape[-1] != 2 or (first.arg, second.arg) != ((*full, (0, 1)), (*full, (1, 2))):
        return None
    return nodes.reshape(source, (*real.shape, 2))


def _rejoined(one: Node, sources: tuple[Node, ...]) -> Node | None:
    """Return the node whose two halves a CAT puts together again, as view_as_real does; None for other nodes."""
    if one.op is not Op.CAT or len(sources) != 2 or one.arg != len(one.shape) - 1 or one.shape[-1] != 2:
        return None
    return _undivided(*(nodes.reshape(source, one.shape[:-1]) for source in sources))


def _moved(one: Node, source: Node, shape: Shape) -> Node:
    """Return the movement of a node done to a source with one more axis behind."""
    last = len(one.shape)
    if one.op is Op.RESHAPE:
        return nodes.reshape(source, shape)
    if one.op is Op.EXPAND:
        return nodes.expand(source, shape)
    if one.op is Op.PERMUTE:
        return nodes.permute(source, (*one.arg, last))
    arg = one.arg
    if one.op is Op.PAD:
        arg = ((*arg[0], (0, 0)), arg[1])
    elif one.op is Op.SHRINK:
        arg = (*arg, (0, 2))
    return nodes.node(one.op, source.dtype, shape, (source,), arg)


# arithmetic on parts, of which None is zero


def _plus(a: Part, b: Part) -> Part:
    if a is None or b is None:
        return b if a is None else a
    return nodes.elementwise(Op.ADD, a, b)


def _minus(a: Part, b: Part) -> Part:
    if b is None:
        return a
    if a is None:
        a = nodes.const(0, b.dtype, b.shape)
    return nodes.elementwise(Op.SUB, a, b)


def _times(a: Part, b: Part) -> Part:
    return None if a is None or b is None else nodes.elementwise(Op.MUL, a, b)


def _by_part(function: Callable[..., Part]) -> Callable[[Node, _Work], Parts]:
    """Return a rule that does the same to both parts of one source."""

    def rule(one: Node, work: _Work) -> Parts:
        return Parts(*(None if part is None else function(part, one) for part in work.parts[one.sources[0]]))

    return rule


def _again(source: Node, one: Node) -> Node:
    """Return a node's operation done to a source in place of its own."""
    return nodes.node(one.op, source.dtype, one.shape, (source,), one.arg)


def _is_zero(node: Node) -> bool:
    """Return whether all elements are the constant 0.0."""
    while node.op in (Op.EXPAND, Op.RESHAPE, Op.CAST):
        node = node.sources[0]
    return node.op is Op.CONST and str(node.arg) in ("0.0", "0", "False")


def _constant(one: Node, _work: _Work) -> Parts:
    value = complex(one.arg)
    return Parts(*(_of_number(number, one.dtype.part, one.shape) for number in (value.real, value.imag)))


def _of_number(number: float, kind: DType, shape: Shape) -> Part:
    # -0.0 is kept: it tells the sides of a branch cut apart
    return None if str(number) == "0.0" else nodes.const(number, kind, shape)


def _paired(one: Node, work: _Work) -> Parts:
    return Parts(*(None if _is_zero(source) else work.made[source] for source in one.sources))


def _cast(one: Node, work: _Work) -> Parts:
    source, kind = one.sources[0], one.dtype.part
    if not source.dtype.is_complex:
        return Parts(nodes.cast(work.made[source], kind), None)
    return Parts(*(None if part is None else nodes.cast(part, kind) for part in work.parts[source]))


def _negated(one: Node, work: _Work) -> Parts:
    real, imag = work.filled(one.sources[0])
    return Parts(nodes.elementwise(Op.NEG, real), nodes.elementwise(Op.NEG, imag))


def _sum(one: Node, work: _Work) -> Parts:
    (a, b), (c, d) = (work.parts[source] for source in one.sources)
    return Parts(_plus(a, c), _plus(b, d))


def _difference(one: Node, work: _Work) -> Parts:
    (a, b), (c, d) = (work.parts[source] for source in one.sources)
    return Parts(_minus(a, c), _minus(b, d))


def _product(one: Node, work: _Work) -> Parts:
    (a, b), (c, d) = (work.parts[source] for source in one.sources)
    return Parts(_minus(_times(a, c), _times(b, d)), _plus(_times(a, d), _times(b, c)))


def _quotient(one: Node, work: _Work) -> Parts:
    """Divide by the scaled divisor (R. Smith, 1962), so that no square overflows. By zero, each part is."""
    (a, b), (c, d) = (work.parts[source] for source in one.sources)
    if d is None and c is not None:
        return Parts(*(None if part is None else nodes.elementwise(Op.DIV, part, c) for part in (a, b)))
    c, d = work.filled(one.sources[1])
    zero = nodes.const(0, c.dtype, c.shape)

    def choose(test: Node, yes: Part, no: Part) -> Part:
        if yes is None and no is None:
            return None
        return nodes.elementwise(Op.WHERE, test, zero if yes is None else yes, zero if no is None else no)

    wide = nodes.elementwise(Op.LE, nodes.elementwise(Op.ABS, d), nodes.elementwise(Op.ABS, c))
    great, small = nodes.elementwise(Op.WHERE, wide, c, d), nodes.elementwise(Op.WHERE, wide, d, c)
    by_zero = nodes.elementwise(Op.EQ, great, zero)
    ratio = nodes.elementwise(Op.WHERE, by_zero, zero, nodes.elementwise(Op.DIV, small, great))
    scale = nodes.elementwise(Op.ADD, great, nodes.elementwise(Op.MUL, small, ratio))
    real = choose(wide, _plus(a, _times(b, ratio)), _plus(_times(a, ratio), b))
    imag = choose(wide, _minus(b, _times(a, ratio)), _minus(_times(b, ratio), a))
    return Parts(*(None if part is None else nodes.elementwise(Op.DIV, part, scale) for part in (real, imag)))


def _chosen(one: Node, work: _Work) -> Parts:
    test, yes, no = one.sources
    pairs = list(zip(work.parts[yes], work.parts[no], strict=True))
    filled = list(zip(work.filled(yes), work.filled(no), strict=True))
    return Parts(
        *(
            None if pair == (None, None) else nodes.elementwise(Op.WHERE, work.made[test], *both)
            for pair, both in zip(pairs, filled, strict=True)
        )
    )


def _padded(one: Node, work: _Work) -> Parts:
    widths, fill = one.arg
    value = complex(fill)
    return Parts(
        *(
            None
            if part is None and not number
            else nodes.node(Op.PAD, one.dtype.part, one.shape, (source,), (widths, number))
            for part, source, number in zip(
                work.parts[one.sources[0]], work.filled(one.sources[0]), (value.real, value.imag), strict=True
            )
        )
    )


def _joined(one: Node, work: _Work) -> Parts:
    found: list[Part] = []
    for place in range(2):
        if all(work.parts[source][place] is None for source in one.sources):
            found.append(None)
            continue
        sources = tuple(work.filled(source)[place] for source in one.sources)
        found.append(nodes.node(Op.CAT, one.dtype.part, one.shape, sources, one.arg))
    return Parts(*found)


def _reduced(one: Node, work: _Work) -> Parts:
    """Sum each part; of products that are broadcast, as those of matrices are, each product of two parts by itself:
    that is what the scheduler knows as a contraction.
    """
    op, axes = one.arg
    if op is not Op.ADD:
        raise TypeError(f"{op.value} of {one.dtype} along axes: complex numbers are only summed")

    def summed(part: Part) -> Part:
        return None if part is None else nodes.reduce(Op.ADD, part, axes)

    source = one.sources[0]
    if source.op is not Op.MUL or any(factor.op is not Op.EXPAND for factor in source.sources):
        return Parts(*map(summed, work.parts[source]))
    (a, b), (c, d) = (work.parts[factor] for factor in source.sources)
    real = _minus(summed(_times(a, c)), summed(_times(b, d)))
    return Parts(real, _plus(summed(_times(a, d)), summed(_times(b, c))))


def _scanned(one: Node, work: _Work) -> Parts:
    source, *keys = one.sources
    if one.arg[0] is not Op.ADD:
        raise TypeError(f"a running {one.arg[0].value} of {one.dtype}: complex numbers are only summed")
    others = [work.made[key] for key in keys]
    return Parts(
        *(
            None if part is None else nodes.node(Op.SCAN, part.dtype, one.shape, (part, *others), one.arg)
            for part in work.parts[source]
        )
    )


def _gathered(one: Node, work: _Work) -> Parts:
    source, places = one.sources
    return Parts(
        *(
            None if part is None else nodes.node(Op.GATHER, part.dtype, one.shape, (part, work.made[places]), one.arg)
            for part in work.parts[source]
        )
    )


def _scattered(one: Node, work: _Work) -> Parts:
    before, places, values = one.sources
    if one.arg[1] not in (None, Op.ADD):
        raise TypeError(f"a scatter by {one.arg[1].value} of {one.dtype}: complex numbers are put or added")
    return Parts(
        *(
            nodes.node(Op.SCATTER, state.dtype, one.shape, (state, work.made[places], value), one.arg)
            for state, value in zip(work.filled(before), work.filled(values), strict=True)
        )
    )


_RULES: dict[Op, Callable[[Node, _Work], Parts]] = {
    Op.CONST: _constant,
    Op.COMPLEX: _paired,
    Op.CAST: _cast,
    Op.BITCAST: lambda one, work: work.parts[one.sources[0]],
    Op.CONTIGUOUS: _by_part(lambda source, one: nodes.contiguous(source)),
    Op.NEG: _negated,
    Op.ADD: _sum,
    Op.SUB: _difference,
    Op.MUL: _product,
    Op.DIV: _quotient,
    Op.WHERE: _chosen,
    Op.RESHAPE: _by_part(lambda source, one: nodes.reshape(source, one.shape)),
    Op.EXPAND: _by_part(lambda source, one: nodes.expand(source, one.shape)),
    Op.PERMUTE: _by_part(lambda source, one: nodes.permute(source, one.arg)),
    Op.SHRINK: _by_part(_again),
    Op.FLIP: _by_part(_again),
    Op.PAD: _padded,
    Op.CAT: _joined,
    Op.REDUCE: _reduced,
    Op.SCAN: _scanned,
    Op.GATHER: _gathered,
    Op.SCATTER: _scattered,
}


# operations on complex numbers whose result is real


def _equal(one: Node, work: _Work) -> Node:
    (a, b), (c, d) = (work.filled(source) for source in one.sources)
    both = (nodes.elementwise(one.op, a, c), nodes.elementwise(one.op, b, d))
    return nodes.elementwise(Op.AND if one.op is Op.EQ else Op.OR, *both)


def _truth(one: Node, work: _Work) -> Node:
    parts = [nodes.cast(part, dtypes.bool_) for part in work.filled(one.sources[0])]
    return nodes.elementwise(Op.OR, *parts)


_TO_REAL: dict[Op, Callable[[Node, _Work], Node]] = {
    Op.REAL: lambda one, work: work.filled(one.sources[0])[0],
    Op.IMAG: lambda one, work: work.filled(one.sources[0])[1],
    Op.EQ: _equal,
    Op.NE: _equal,
    Op.CAST: _truth,
}
