"""Reverse-mode gradients: one rule an Op, in a table. Gradients are graphs of the same Ops, so they have gradients too.

Where a function has a rule of its own (`core.RULES`), it is used and the inside not looked at. No gradient passes
BITCAST (`detach` is one), comparisons, integers and bools. At kinks, ties and infinities they are PyTorch's: the table
"Gradients at corners" in docs/tensors.md.

The gradient by a complex number is that by its real part plus i times that by its imaginary part, as PyTorch has it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

from ringup.compiler.graph import dtypes
from ringup.compiler.graph import nodes as graph
from ringup.compiler.graph.index import Int
from ringup.compiler.graph.nodes import Node, Op
from ringup.compiler.tensor import order
from ringup.compiler.tensor.core import RULES, Core
from ringup.compiler.tensor.history import LEAVES, MAX_GENERATIONS, MAX_HELD_BYTES, lost, made_of, origin
from ringup.compiler.tensor.indexing import put
from ringup.compiler.tensor.movement import add_edges, cut, cut_axes
from ringup.compiler.tensor.reductions import reduce_axes

if TYPE_CHECKING:
    from ringup.compiler.tensor.tensor import Tensor

# (gradient of the result, result, operands, the node) -> a gradient or None for each operand
OpRule: TypeAlias = "Callable[[Tensor, Tensor, list[Tensor], Node], Sequence[Tensor | None]]"


def gradient(loss: Tensor, targets: Sequence[Tensor], seed: Tensor | None = None) -> list[Tensor]:
    """Return the gradients of a tensor by `targets`, as graphs; `seed` is the gradient of the loss itself, needed
    unless that is one number.

    A target is a tensor, not its value: of two equal tensors each has its own gradient. It is 0 where the loss depends
    on a target only through rounding, or, beside other targets, through what has no gradient (`detach`, integers). A
    ValueError where the loss does not depend on a target at all, or on all of them only through the latter.
    """
    for one in targets:
        if not one.dtype.is_inexact:
            raise TypeError(f"a gradient by a tensor of {one.dtype}: only floats and complex numbers have one")
    roots = [origin(one.node) for one in targets]
    found = _gradients(loss, set(roots), seed)
    for one, root in zip(targets, roots, strict=True):
        if root not in found.reached:
            raise ValueError(
                f"the loss does not depend on the target {one!r}: it was made without it, or from another tensor of the same value"
            )
    if targets and not found.flows:
        raise ValueError(
            f"the loss does not depend on {', '.join(map(repr, targets))} but through what has no gradient (integers, comparisons, detach)"
        )
    return [found.of(root, one) for one, root in zip(targets, roots, strict=True)]


def gradient_where(loss: Tensor, targets: Sequence[Tensor], seed: Tensor | None = None) -> list[Tensor | None]:
    """Return the gradients of a tensor by `targets`, None where it does not depend on one, or through what has no
    gradient only.
    """
    roots = [origin(one.node) for one in targets]
    found = _gradients(loss, set(roots), seed)
    return [
        found.of(root, one) if root in found.flows and one.dtype.is_inexact else None
        for one, root in zip(targets, roots, strict=True)
    ]


def backward(loss: Tensor, seed: Tensor | None = None) -> None:
    """Add to `grad` of every live tensor that asked for gradients and that the loss depends on; a ValueError where
    there is none.
    """
    leaves = {id(one): one for one in LEAVES.values()}
    roots = {key: origin(one.node) for key, one in leaves.items()}
    found = _gradients(loss, set(roots.values()), seed)
    if not found.flows:
        raise ValueError(
            "the loss depends on no tensor made with requires_grad=True, or these were assigned to and computed since: backward comes first"
        )
    for key, one in leaves.items():
        if roots[key] in found.flows:
            made = found.of(roots[key], one)
            one.grad = made if one.grad is None else one.grad + made


def custom_gradient(function: Callable[..., Tensor], rule: Callable[..., Any]) -> Callable[..., Tensor]:
    """Return a function of tensors with a gradient of its own: what `function` is made of is not looked at.

    `rule(gradient, result, *tensors)` returns the gradient by each tensor, None for none, or one tensor if there is
    only one. Arguments that are no tensors, and those by name, go to `function` alone.
    """

    @wraps(function)
    def made(*given: Any, **named: Any) -> Tensor:
        operands = [one for one in given if isinstance(one, Core)]
        if not operands:
            raise TypeError(f"{function.__name__} got no tensor, so there is nothing it could have a gradient by")
        result = function(*given, **named)
        return result._of(graph.alias(result.node))._with_rule(partial(_of_rule, rule, function.__name__), *operands)

    return made


def _of_rule(rule: Callable[..., Any], name: str, gradient: Tensor, result: Tensor, *operands: Tensor) -> list[Any]:
    """Return what a rule of the user's gives, checked."""
    found = rule(gradient, result, *operands)
    parts = list(found) if isinstance(found, (tuple, list)) else [found]
    if len(parts) != len(operands):
        raise ValueError(f"the gradient of {name} gave {len(parts)} gradients for {len(operands)} tensors")
    for part, operand in zip(parts, operands, strict=True):
        if part is not None and part.shape != operand.shape:
            raise ValueError(
                f"the gradient of {name} gave one of shape {list(part.shape)} for a tensor of {list(operand.shape)}"
            )
    return parts


class _Found(NamedTuple):
    """What a loss depends on, of the nodes that were asked for: gradients; those that it is made of (`reached`); those
    that it depends on through floats, rounding included (`flows`).
    """

    by_node: dict[Node, Tensor]
    reached: set[Node]
    flows: set[Node]

    def of(self, root: Node, target: Core) -> Tensor:
        """Return the gradient by a target whose node is `root`."""
        return self.by_node[root] if root in self.by_node else cast("Tensor", target).full_like(0)


def _operands(node: Node) -> tuple[Node, ...]:
    """Return what a node's gradient goes to."""
    if node in RULES:
        return RULES[node][1]
    before = made_of(node)
    return node.sources if before is None else (before,)


def _ordered(root: Node) -> list[Node]:
    done: dict[Node, None] = {}
    stack: list[tuple[Node, Iterator[Node]]] = [(root, iter(_operands(root)))]
    while stack:
        node, operands = stack[-1]
        following = next((one for one in operands if one not in done), None)
        if following is None:
            done[node] = None
            stack.pop()
        else:
            stack.append((following, iter(_operands(following))))
    return list(done)


def _gradients(loss: Tensor, roots: set[Node], seed: Tensor | None) -> _Found:
    cls = type(loss)
    if not loss.dtype.is_inexact:
        raise TypeError(f"a gradient of a tensor of {loss.dtype}: only floats and complex numbers have one")
    if seed is None:
        if loss.dtype.is_complex:
            raise TypeError(
                f"a gradient of a tensor of {loss.dtype} needs the gradient of the tensor itself; a loss is real: .real,"
                " .imag or abs()"
            )
        if loss.size != 1:
            raise ValueError(
                f"a gradient of a tensor of shape {list(loss.shape)} needs the gradient of the tensor itself; a loss is one number"
            )
        seed = loss.full_like(1)
    elif seed.shape != loss.shape:
        raise ValueError(f"a gradient of shape {list(seed.shape)} for a tensor of shape {list(loss.shape)}")
    nodes = _ordered(origin(loss.node))
    leads: set[Node] = set()
    for node in nodes:
        if node in roots or (_depends(node) and any(one in leads for one in _operands(node))):
            leads.add(node)
    found: dict[Node, Tensor] = {nodes[-1]: (seed if loss.dtype.is_complex else seed.real).cast(loss.dtype)}
    flows = {nodes[-1]}
    for node in reversed(nodes):
        if node in flows:
            _check_kept(node, roots)
            flows.update(_operands(node) if _depends(node) else ())
        if node not in found or not _passes(node) or not any(one in leads for one in _operands(node)):
            continue
        for operand, part in zip(_operands(node), _parts(cls, node, found[node]), strict=True):
            if part is None or operand not in leads:
                continue
            fitting = (part if operand.dtype.is_complex else part.real).cast(operand.dtype)
            found[operand] = found[operand] + fitting if operand in found else fitting
    return _Found({root: found[root] for root in roots if root in found}, roots.intersection(nodes), roots & flows)


def _check_kept(node: Node, roots: set[Node]) -> None:
    """Raise ValueError if a node was made of one of the roots, and its graph is not kept."""
    reads = lost(node)
    if reads is not None and not roots.isdisjoint(reads):
        raise ValueError(
            f"the loss depends on a target through a tensor {list(node.shape)} that was computed long ago, and what made"
            f" it is not kept ({MAX_GENERATIONS} evaluations, {MAX_HELD_BYTES >> 20} MiB): make the target with"
            " requires_grad=True, or detach() that tensor"
        )


def _passes(node: Node) -> bool:
    """Return whether a gradient goes through a node."""
    return (node.dtype.is_inexact and node.op not in NO_GRADIENT) or node in RULES


def _depends(node: Node) -> bool:
    """Return whether a node's gradient by what it is made of is defined: 0 through rounding."""
    return _passes(node) or (node.op in ROUNDING and node.dtype.is_float)


def _parts(cls: type[Tensor], node: Node, given: Tensor) -> Sequence[Tensor | None]:
    result = cls._of(node)
    if node in RULES:
        rule, operands = RULES[node]
        return rule(given, result, *(cls._of(one) for one in operands))  # type: ignore[return-value]
    if made_of(node) is not None:
        return [given]
    return OP_RULES[node.op](given, result, [cls._of(one) for one in node.sources], node)


ROUNDING = frozenset((Op.FLOOR, Op.CEIL, Op.TRUNC, Op.ROUND))
NO_GRADIENT = ROUNDING | {
    Op.BITCAST, Op.IDIV, Op.AND, Op.OR, Op.XOR, Op.SHL, Op.SHR, Op.NOT, Op.CONST, Op.IOTA, Op.SIZE,
    Op.LT, Op.LE, Op.EQ, Op.NE,
}  # fmt: skip


def _share(mine: Tensor, other: Tensor, given: Tensor, *, greater: bool) -> Tensor:
    loses = mine < other if greater else mine > other
    return (mine == other).where(given * 0.5, loses.where(0, given))


def _pow(given: Tensor, result: Tensor, sources: list[Tensor], _node: Node) -> list[Tensor]:
    x, y = sources
    by_x = (y == 0).where(0, given * y * x.pow(y - 1))
    by_y = (x == 0).logical_and(y >= 0).where(0, given * result * x.log())
    return [by_x, by_y]


def _uncast(given: Tensor, source: Tensor) -> Tensor | None:
    """Return the gradient before a conversion: of a real number made complex, the real part."""
    if not source.dtype.is_inexact:
        return None
    return (given if source.dtype.is_complex else given.real).cast(source.dtype)


def _expand(given: Tensor, _result: Tensor, sources: list[Tensor], node: Node) -> list[Tensor]:
    axes = [i for i, (old, new) in enumerate(zip(sources[0].shape, node.shape, strict=True)) if old != new]
    return [given.sum(axes, keepdims=True)]


def _pad(given: Tensor, _result: Tensor, sources: list[Tensor], node: Node) -> list[Tensor]:
    widths: tuple[tuple[Int, Int], ...] = node.arg[0]
    inside = zip(widths, sources[0].shape, strict=True)
    return [cut_axes(given, [(before, before + size) for (before, _), size in inside])]


def _shrink(given: Tensor, _result: Tensor, sources: list[Tensor], node: Node) -> list[Tensor]:
    bounds: tuple[tuple[Int, Int], ...] = node.arg
    around = zip(bounds, sources[0].shape, strict=True)
    return [add_edges(given, [(start, size - stop) for (start, stop), size in around])]


def _permute(given: Tensor, _result: Tensor, _sources: list[Tensor], node: Node) -> list[Tensor]:
    axes: tuple[int, ...] = node.arg
    return [given.permute([axes.index(axis) for axis in range(len(axes))])]


def _cat(given: Tensor, _result: Tensor, sources: list[Tensor], node: Node) -> list[Tensor]:
    axis: int = node.arg
    made, start = [], 0
    for one in sources:
        stop: Any = start + one.shape[axis]
        made.append(cut(given, axis, start, stop))
        start = stop
    return made


def _reduce(given: Tensor, result: Tensor, sources: list[Tensor], node: Node) -> list[Tensor]:
    op: Op = node.arg[0]
    axes: tuple[int, ...] = node.arg[1]
    (x,) = sources
    if op is Op.ADD:
        return [given.expand(x.shape)]
    # a zero's gradient is the product of the others, 0 where there is a second one
    if op is Op.MUL:
        zero = x == 0
        full = zero.where(1, x)
        zeros = zero.cast(dtypes.int32).sum(axes, keepdims=True)
        others = reduce_axes(full, Op.MUL, axes, keepdims=True)
        kept = (zeros == 0).where(others / full, zero.logical_and(zeros == 1).where(others, 0))
        return [given * kept]
    if op is Op.LOGADDEXP:
        return [given * (x - result).exp()]
    hit = (x == result).cast(x.dtype)
    return [given / hit.sum(axes, keepdims=True) * hit]


def _scan(given: Tensor, result: Tensor, sources: list[Tensor], node: Node) -> list[Tensor | None]:
    x, *keys = sources
    op, axis, stretch = node.arg

    def back(one: Tensor) -> Tensor:
        """Return the sum of each element and what follows it in its run."""
        runs = keys[0].flip(axis).node if keys else None
        return one._of(graph.scan(op=Op.ADD, source=one.flip(axis).node, axis=axis, keys=runs)).flip(axis)

    if stretch is not None or (keys and op is not Op.ADD):
        raise ValueError(f"no gradient of {node}: the language makes no such node")
    if op is Op.ADD:
        made = back(given)
    elif op is Op.MUL:
        made = _scanned_product(given, result, x, axis, back)
    elif op is Op.LOGADDEXP:
        made = _scanned_logarithm(given, result, x, axis)
    else:
        made = _scanned_extreme(given, result, x, axis)
    return [made, *(None for _ in keys)]


def _scanned_product(given: Tensor, result: Tensor, x: Tensor, axis: int, back: Callable[[Tensor], Tensor]) -> Tensor:
    """Return a running product's gradient: what follows over the element itself; a row's first zero gets the products
    without it, up to the second one, and what stands behind it nothing.
    """
    zero = x == 0
    zeros = zero.cast(dtypes.int32).cumsum(axis)
    first = zero.logical_and(zeros == 1)
    without = first.where(1, x)._of(graph.scan(Op.MUL, first.where(1, x).node, axis))
    at_zero = (zeros == 1).where(given * without, 0).sum(axis, keepdims=True)
    before = back(given * result) / zero.where(1, x)
    return first.where(at_zero, (zeros == 0).where(before, 0))


def _scanned_logarithm(given: Tensor, result: Tensor, x: Tensor, axis: int) -> Tensor:
    """Return the gradient of a running sum of exponentials, a sum of given * e**(x - result) over what follows: of
    logarithms too, what is positive and what is negative each by itself, since the exponentials alone may be out of
    range.
    """

    def back(part: Tensor) -> Tensor:
        there = (part > 0).logical_and(result > -math.inf)
        terms = there.where(there.where(part, 1).log() - there.where(result, 0), -math.inf).flip(axis)
        return (x + terms._of(graph.scan(Op.LOGADDEXP, terms.node, axis)).flip(axis)).exp()

    return back(given) - back(-given)


def _scanned_extreme(given: Tensor, result: Tensor, x: Tensor, axis: int) -> Tensor:
    """Return a running extreme's gradient: each element of the result is the last one equal to it by then."""
    hit = (x == result).logical_or(x.isnan())
    # a hit and what follows up to the next one
    runs = hit.cast(dtypes.int32).cumsum(axis).flip(axis)
    later = given.flip(axis)
    summed = later._of(graph.scan(Op.ADD, later.node, axis, keys=runs.node)).flip(axis)
    return hit.where(summed, 0)


def _gather(given: Tensor, _result: Tensor, sources: list[Tensor], node: Node) -> list[Tensor | None]:
    x, places = sources
    axis: int = node.arg
    nodes = (x.full_like(0).node, places.node, given.cast(x.dtype).node)
    return [x._of(graph.node(Op.SCATTER, x.dtype, x.shape, nodes, (axis, Op.ADD))), None]


def _scatter(given: Tensor, result: Tensor, sources: list[Tensor], node: Node) -> list[Tensor | None]:
    x, places, y = sources
    axis: int = node.arg[0]
    op: Op | None = node.arg[1]

    def gathered(one: Tensor) -> Tensor:
        sizes = enumerate(zip(one.shape, places.shape, strict=True))
        part = cut_axes(one, [(0, size if i == axis else wanted) for i, (size, wanted) in sizes])
        return one._of(graph.node(Op.GATHER, one.dtype, places.shape, (part.node, places.node), axis))

    if op is Op.ADD:
        return [given, None, gathered(given)]
    if op is Op.MUL:
        zero = y == 0
        zeros = put(x.full_like(0).cast(dtypes.int32), axis, places, zero.cast(dtypes.int32), Op.ADD)
        rest = gathered(given * put(x, axis, places, zero.where(1, y), Op.MUL))
        alone = gathered(zeros) == zero.cast(dtypes.int32)
        by_y = alone.where(rest / zero.where(1, y), 0)
        return [given * put(x.full_like(1), axis, places, y, Op.MUL), None, by_y]
    if op is None:
        number = y._of(graph.node(Op.IOTA, dtypes.int32, (y.numel(),))).reshape(y.shape)
        winner = put(x.full_like(-1).cast(dtypes.int32), axis, places, number, None)
        # of several at one place the last one stayed
        last = gathered(winner) == number
        return [(winner < 0).where(given, 0), None, last.where(gathered(given), 0)]
    mine = (x == result).cast(given.dtype)
    theirs = (y == gathered(result)).cast(given.dtype)
    share = given / put(mine, axis, places, theirs, Op.ADD)
    return [share * mine, None, gathered(share) * theirs]


def _after(given: Tensor, _result: Tensor, sources: list[Tensor], node: Node) -> list[Tensor]:
    before, made = given, []
    for store in node.sources[1:]:
        view = store.sources[0]
        made.append(given._of(_through(view, given.node)))
        whole = 1 + 1j if view.dtype.is_complex else 1
        written = _back(given._of(graph.const(whole, view.dtype, view.shape)), view, given)
        if given.dtype.is_complex:
            # one part may have been written alone
            real, imag = (written.real != 0).where(0, before.real), (written.imag != 0).where(0, before.imag)
            before = real.complex(imag)
        else:
            before = (written != 0).where(0, before)
    return [before, *made]


def _through(view: Node, state: Node) -> Node:
    """Return another tensor seen through the view of a state."""
    if view.op in order.STATES:
        return state
    return graph.node(view.op, view.dtype, view.shape, (_through(view.sources[0], state),), view.arg)


def _back(given: Tensor, view: Node, like: Tensor) -> Tensor:
    """Return what a view's elements come to at their places in the state, 0 elsewhere."""
    while view.op not in order.STATES:
        (given,) = OP_RULES[view.op](given, given, [like._of(view.sources[0])], view)  # type: ignore[assignment]
        view = view.sources[0]
    return given


def _op_rules() -> dict[Op, OpRule]:
    """Return the table. It stands in a function because mypy reads the module's own statements before `Tensor`."""
    return {
        Op.NEG: lambda g, y, s, n: [-g],
        Op.ABS: lambda g, y, s, n: [g * (s[0] > 0).where(1.0, (s[0] < 0).where(-1.0, 0.0)).cast(g.dtype)],
        Op.SQRT: lambda g, y, s, n: [g * 0.5 / y],
        Op.RECIP: lambda g, y, s, n: [-(g * y * y)],
        Op.RSQRT: lambda g, y, s, n: [g * -0.5 * y * y * y],
        Op.EXP2: lambda g, y, s, n: [g * y * math.log(2)],
        Op.LOG2: lambda g, y, s, n: [g / (s[0] * math.log(2))],
        Op.SIN: lambda g, y, s, n: [g * s[0].cos()],
        Op.CAST: lambda g, y, s, n: [_uncast(g, s[0])],
        Op.CONTIGUOUS: lambda g, y, s, n: [g],
        Op.ADD: lambda g, y, s, n: [g, g],
        Op.SUB: lambda g, y, s, n: [g, -g],
        Op.MUL: lambda g, y, s, n: [g * s[1].conj(), g * s[0].conj()],
        Op.DIV: lambda g, y, s, n: (
            [g / s[1].conj(), -(g * (y / s[1]).conj())] if g.dtype.is_complex else [g / s[1], -(g * y / s[1])]
        ),
        Op.COMPLEX: lambda g, y, s, n: [g.real, g.imag],
        Op.REAL: lambda g, y, s, n: [g.complex(0.0)],
        Op.IMAG: lambda g, y, s, n: [g.full_like(0).complex(g)],
        Op.MOD: lambda g, y, s, n: [g, -(g * (s[0] // s[1]))],
        Op.MAX: lambda g, y, s, n: [_share(s[0], s[1], g, greater=True), _share(s[1], s[0], g, greater=True)],
        Op.MIN: lambda g, y, s, n: [_share(s[0], s[1], g, greater=False), _share(s[1], s[0], g, greater=False)],
        Op.POW: _pow,
        Op.LOGADDEXP: lambda g, y, s, n: [g * (s[0] - s[1]).sigmoid(), g * (s[1] - s[0]).sigmoid()],
        Op.WHERE: lambda g, y, s, n: [None, s[0].where(g, 0), s[0].where(0, g)],
        Op.RESHAPE: lambda g, y, s, n: [g.reshape(s[0].shape)],
        Op.PERMUTE: _permute,
        Op.EXPAND: _expand,
        Op.PAD: _pad,
        Op.SHRINK: _shrink,
        Op.FLIP: lambda g, y, s, n: [g.flip(n.arg)],
        Op.CAT: _cat,
        Op.REDUCE: _reduce,
        Op.SCAN: _scan,
        Op.GATHER: _gather,
        Op.SCATTER: _scatter,
        Op.AFTER: _after,
        Op.STORE: lambda g, y, s, n: [None, g],
        Op.BUFFER: lambda g, y, s, n: [],
    }


OP_RULES = _op_rules()
