"""The tensor graph: immutable nodes. This module defines the meaning of every node, independent of a target.

Nodes are of two kinds. Equal shared nodes are the same object: the compiler works on these. The tensor language works
on distinct nodes, each an object of its own even if another one means the same, because gradients are taken by tensors
and not by values. What is made of a distinct node is distinct too, and `shared` turns a whole graph into shared nodes.

Shapes are tuples of `int` or symbolic sizes (`index.Expr`). There is no implicit broadcast: the operands of an
elementwise node have exactly its shape, and EXPAND repeats an axis of size 1. The tensor language (`compiler/tensor`)
creates graphs, and the scheduler cuts them into kernels.

Complex numbers are values of the tensor language only: `complex_parts` turns graphs of them into graphs of real ones.
The operations on them are BUFFER, CONST, NEG, CAST, BITCAST to the same type, CONTIGUOUS, ADD, SUB, MUL, DIV, EQ, NE,
WHERE, movement, REDUCE and SCAN by ADD, GATHER, SCATTER of values or by ADD, AFTER, STORE, and the three under
"Complex numbers".
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Container, Iterator, Sequence
from enum import Enum
from threading import RLock
from typing import Any

from ringup.compiler.graph import dtypes
from ringup.compiler.graph.dtypes import DType, Number
from ringup.compiler.graph.index import Int, product

Shape = tuple[Int, ...]


class Op(Enum):
    """The operation of a node: `sources -> result`, with `arg` in brackets; x and y are elements at
    the same position.
    """

    # leaves
    BUFFER = "buffer"  # [Storage] elements in memory, row-major in the node's shape
    CONST = "const"  # [number] shape ()
    IOTA = "iota"  # [None] shape (n,): 0, 1, … n-1; int32 or int64
    SIZE = "size"  # [Expr] shape (): a symbolic size as a number; int32 or int64
    # Elementwise, one operand. Floats follow IEEE 754 unless stated otherwise. Results of f16, bf16 and float8 are
    # computed in f32 and rounded.
    NEG = "neg"  # integers wrap
    ABS = "abs"
    NOT = "not"  # bool: logical; integers: bitwise
    SQRT = "sqrt"
    RECIP = "recip"  # 1 / x
    RSQRT = "rsqrt"  # 1 / sqrt(x), within 1 ulp
    EXP2 = "exp2"
    LOG2 = "log2"
    SIN = "sin"  # radians, accurate for large ones too
    FLOOR = "floor"
    CEIL = "ceil"
    TRUNC = "trunc"
    ROUND = "round"  # to nearest, halves to even
    # To the node's dtype. To float: rounds to nearest even. Float to integer: truncates and saturates, NaN is 0. To
    # bool: x != 0. Complex numbers become complex numbers or bools only.
    CAST = "cast"
    BITCAST = "bitcast"  # the same bits, same width
    CONTIGUOUS = "contiguous"  # the value itself, stored in memory
    # Elementwise, two operands of one dtype.
    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    DIV = "div"  # floats only
    IDIV = "idiv"  # integers, rounded down like Python's //; by zero: 0
    MOD = "mod"  # has the sign of the divisor, like Python's %; integers by zero: 0; floats too
    MAX = "max"  # NaN if either is
    MIN = "min"
    POW = "pow"  # floats: C's pow; integers: by repeated squaring, negative exponents give 0 (1 and -1 excepted)
    LOGADDEXP = "logaddexp"  # floats: log(e**x + e**y), accurate to the last places of the greatest of |x|, |y| and 1
    AND = "and"
    OR = "or"
    XOR = "xor"
    SHL = "shl"  # by 0 … bits-1; other amounts give 0
    SHR = "shr"  # arithmetic for signed types; larger amounts shift everything out
    LT = "lt"  # to bool; comparisons with NaN are false, NE true
    LE = "le"
    EQ = "eq"
    NE = "ne"
    # Three operands.
    WHERE = "where"  # (bool, x, y)
    # Complex numbers.
    COMPLEX = "complex"  # (real part, imaginary part)
    REAL = "real"
    IMAG = "imag"
    # Movement: the same elements at other places.
    RESHAPE = "reshape"  # the node's shape; the row-major order stays
    PERMUTE = "permute"  # [axes] axis i of the result is axis axes[i] of the source
    EXPAND = "expand"  # axes of size 1 become the node's shape
    PAD = "pad"  # [((before, after), …), value]
    SHRINK = "shrink"  # [((start, stop), …)]
    FLIP = "flip"  # [axes]
    CAT = "cat"  # [axis] sources one after the other along an axis
    # Others.
    # [(Op of ADD, MUL, MAX, MIN, LOGADDEXP, AND, OR, XOR; axes)] Axes become 1. Sums of f16, bf16 and float8 are
    # accumulated in f32.
    REDUCE = "reduce"
    # (x[, keys]) [(Op, axis, stretch)] Combines each element with those before it along the axis. With a stretch, each
    # segment of so many elements is separate (None: the whole axis). With keys, which are integers, each run of equal
    # keys is separate; equal keys must be adjacent. Operations and rounding as for REDUCE.
    SCAN = "scan"
    # [(axis, stretch)] Integers in ascending order along the axis, in separate segments of `stretch` elements (None:
    # the whole axis).
    SORT = "sort"
    # (x, integer index) [axis] result[p] = x[p, p[axis] replaced by index[p]]. An index outside x gives 0.
    GATHER = "gather"
    # (x, index, y) [(axis, op or None)] x with the values y stored (None: the last one stays) or combined at index;
    # values outside are dropped.
    SCATTER = "scatter"
    AFTER = "after"  # (buffer, stores…) the buffer after the stores
    # (view of a buffer, value) Writes the value to the places of the view. It has the shape of the view, and no value.
    STORE = "store"

    # Members are equal only to themselves. Enum's own hash is slow, and operations are looked up in sets all the time.
    __hash__ = object.__hash__


UNARY = frozenset((
    Op.NEG, Op.ABS, Op.NOT, Op.SQRT, Op.RECIP, Op.RSQRT, Op.EXP2, Op.LOG2, Op.SIN, Op.FLOOR, Op.CEIL, Op.TRUNC, Op.ROUND, Op.CAST,
    Op.BITCAST,
))  # fmt: skip
COMPARISONS = frozenset((Op.LT, Op.LE, Op.EQ, Op.NE))
BINARY = COMPARISONS | {
    Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.IDIV, Op.MOD, Op.MAX, Op.MIN, Op.POW, Op.LOGADDEXP, Op.AND, Op.OR, Op.XOR,
    Op.SHL, Op.SHR,
}  # fmt: skip
ELEMENTWISE = UNARY | BINARY | {Op.WHERE}
# Operations that need a whole axis and keep it. Their arg ends with (axis, stretch).
LINES = frozenset((Op.SCAN, Op.SORT))
MOVEMENT = frozenset((Op.RESHAPE, Op.PERMUTE, Op.EXPAND, Op.PAD, Op.SHRINK, Op.FLIP))
FLOAT_ONLY = frozenset((
    Op.SQRT, Op.RECIP, Op.RSQRT, Op.EXP2, Op.LOG2, Op.SIN, Op.FLOOR, Op.CEIL, Op.TRUNC, Op.ROUND, Op.DIV, Op.LOGADDEXP,
))  # fmt: skip


class Storage:
    """The memory that a BUFFER node stands for: `size` elements of `dtype`. Two are equal only if they are the same
    object. `data` belongs to the runtime (None: not there yet). `home` evaluates graphs that read this memory if no
    other evaluator was chosen (None: there is none).
    """

    __slots__ = ("__weakref__", "data", "dtype", "home", "name", "size")

    def __init__(self, dtype: DType, size: Int, name: str = "", data: object = None) -> None:
        self.dtype, self.size, self.name, self.data = dtype, size, name, data
        self.home: object = None

    def __repr__(self) -> str:
        return f"Storage({self.name or hex(id(self))}, {self.size} {self.dtype})"


class Node:
    """One value of the graph. Only the functions below create nodes. Equal nodes that are `shared` are one object, and
    `is` compares them.
    """

    __slots__ = ("__weakref__", "_meaning", "arg", "dtype", "op", "shape", "shared", "sources")

    def __init__(
        self, op: Op, dtype: DType, shape: Shape, sources: tuple[Node, ...], arg: object, *, shared: bool
    ) -> None:
        self.op, self.dtype, self.shape, self.sources, self.shared = op, dtype, shape, sources, shared
        # The comment of its operation defines it.
        self.arg: Any = arg
        # the shared node of a distinct one, once it was asked for
        self._meaning: Node | None = None

    def __repr__(self) -> str:
        arg = "" if self.arg is None else f" {self.arg}"
        return f"<{self.op.value}{arg} {self.dtype}{list(self.shape)}>"

    @property
    def size(self) -> Int:
        """Return the number of elements."""
        return product(self.shape)

    def ordered(self) -> list[Node]:
        """Return every node it depends on and itself, sources before users. The order is the same each time."""
        return ordered([self])


_known: weakref.WeakValueDictionary[tuple[object, ...], Node] = weakref.WeakValueDictionary()
# Two threads must not create two nodes of the same meaning. The lock is reentrant: the garbage collector can run at any
# point, and a finalizer may create nodes.
_making = RLock()


def node(op: Op, dtype: DType, shape: Shape, sources: tuple[Node, ...] = (), arg: object = None) -> Node:
    """Return the node of that meaning: a new one if a source is distinct, otherwise the one shared by all who ask for
    it. Nothing is checked here; the tensor language checks its input.
    """
    for source in sources:
        if not source.shared:
            return Node(op, dtype, shape, sources, arg, shared=False)
    return _shared(op, dtype, shape, sources, arg)


def _shared(op: Op, dtype: DType, shape: Shape, sources: tuple[Node, ...], arg: object) -> Node:
    """Return the one node of that meaning; its sources are shared."""
    # -0.0 and NaN are separate constants.
    mark = (type(arg), repr(arg)) if isinstance(arg, (float, complex)) else arg
    key = (op, dtype, shape, tuple(map(id, sources)), mark, type(arg))
    found = _known.get(key)
    if found is None:
        with _making:
            found = _known.get(key)
            if found is None:
                found = _known[key] = Node(op, dtype, shape, sources, arg, shared=True)
    return found


def distinct(source: Node) -> Node:
    """Return a new node of the same meaning, which is equal to no other."""
    return Node(source.op, source.dtype, source.shape, source.sources, source.arg, shared=False)


def alias(source: Node) -> Node:
    """Return a new node whose value is the source's: a gradient by one of the two is not the other's."""
    return Node(Op.RESHAPE, source.dtype, source.shape, (source,), None, shared=False)


def stop(source: Node) -> Node:
    """Return a new node whose value is the source's, and which no gradient passes."""
    return Node(Op.BITCAST, source.dtype, source.shape, (source,), None, shared=False)


def is_stop(node: Node) -> bool:
    """Return whether it changes nothing but that no gradient passes it."""
    return node.op is Op.BITCAST and node.dtype is node.sources[0].dtype


def shared(roots: Sequence[Node]) -> list[Node]:
    """Return the graphs in shared nodes, so that equal values are one node. Movements that do nothing are left out."""
    return [_meaning_of(root) for root in roots]


def _meaning_of(root: Node) -> Node:
    """Return the shared node of the same value. Not recursive, so graphs may be deep."""
    stack = [root]
    while stack:
        one = stack[-1]
        if one.shared or one._meaning is not None:
            stack.pop()
            continue
        waiting = [source for source in one.sources if not source.shared and source._meaning is None]
        if waiting:
            stack += waiting
            continue
        sources = tuple([source._meaning or source for source in one.sources])
        remake = _SIMPLIFIED.get(one.op)
        one._meaning = (
            _shared(one.op, one.dtype, one.shape, sources, one.arg) if remake is None else remake(one, sources[0])
        )
    return root._meaning or root


def buffer(dtype: DType, shape: Shape, name: str = "", data: object = None) -> Node:
    """Return a new leaf with memory of its own."""
    return node(Op.BUFFER, dtype, shape, (), Storage(dtype, product(shape), name, data))


def const(value: Number, dtype: DType, shape: Shape = ()) -> Node:
    """Return a constant of any shape. Integers wrap to the dtype; floats are rounded when they are used."""
    if dtype.kind == "bool":
        value = bool(value)
    elif dtype.is_complex:
        value = complex(value)
    elif isinstance(value, complex):
        raise TypeError(f"{value} is complex and does not fit {dtype}")
    elif dtype.is_float:
        value = float(value)
    else:
        value = int(value) & (1 << dtype.bits) - 1
        if dtype.kind == "int" and value >> dtype.bits - 1:
            value -= 1 << dtype.bits
    made = node(Op.CONST, dtype, (), (), value)
    return expand(reshape(made, (1,) * len(shape)), shape)


def reshape(source: Node, shape: Shape) -> Node:
    """Return the elements in row-major order in another shape with as many elements."""
    if shape == source.shape:
        return source
    if source.op is Op.RESHAPE and source.shared:
        return reshape(source.sources[0], shape)
    return node(Op.RESHAPE, source.dtype, shape, (source,))


def expand(source: Node, shape: Shape) -> Node:
    """Return the source with axes of size 1 repeated."""
    return source if shape == source.shape else node(Op.EXPAND, source.dtype, shape, (source,))


def permute(source: Node, axes: Sequence[int]) -> Node:
    """Return the source with its axes in another order."""
    axes = tuple(axes)
    if axes == tuple(range(len(axes))):
        return source
    if source.op is Op.PERMUTE and source.shared:
        before: tuple[int, ...] = source.arg
        return permute(source.sources[0], [before[axis] for axis in axes])
    return node(Op.PERMUTE, source.dtype, tuple(source.shape[axis] for axis in axes), (source,), axes)


def elementwise(op: Op, *sources: Node, dtype: DType | None = None) -> Node:
    """Return an elementwise node. Comparisons give bool, others `dtype`, or the dtype of the last source."""
    result = dtypes.bool_ if op in COMPARISONS else dtype or sources[-1].dtype
    return node(op, result, sources[0].shape, sources)


def cast(source: Node, dtype: DType) -> Node:
    """Return the source converted to another dtype; a TypeError where that would drop imaginary parts."""
    if source.dtype is dtype:
        return source
    if source.dtype.kind == "complex" and dtype.kind not in ("complex", "bool"):
        raise TypeError(f"{source.dtype} to {dtype} would drop the imaginary parts: use .real, .imag or abs()")
    return node(Op.CAST, dtype, source.shape, (source,))


def joined(real: Node, imag: Node) -> Node:
    """Return the complex numbers of two parts, which are of one float type, f32 or f64."""
    return node(Op.COMPLEX, dtypes.WITH_PARTS[real.dtype], real.shape, (real, imag))


def part(op: Op, source: Node) -> Node:
    """Return the real (REAL) or the imaginary (IMAG) part of complex numbers."""
    return node(op, source.dtype.part, source.shape, (source,))


def contiguous(source: Node) -> Node:
    """Return the source, stored in memory."""
    if source.op in (Op.BUFFER, Op.CONTIGUOUS):
        return source
    return node(Op.CONTIGUOUS, source.dtype, source.shape, (source,))


def reduce(op: Op, source: Node, axes: Sequence[int]) -> Node:
    """Return the source reduced along `axes`, which become 1."""
    axes = tuple(sorted(axes))
    if not axes:
        return source
    shape = tuple(1 if i in axes else size for i, size in enumerate(source.shape))
    return node(Op.REDUCE, source.dtype, shape, (source,), (op, axes))


def scan(op: Op, source: Node, axis: int, *, keys: Node | None = None, stretch: int | None = None) -> Node:
    """Return the running reduction of the source along an axis. An axis of one element does not change."""
    if source.shape[axis] == 1:
        return source
    return node(Op.SCAN, source.dtype, source.shape, (source, keys) if keys else (source,), (op, axis, stretch))


def sort(source: Node, axis: int, *, stretch: int | None = None) -> Node:
    """Return integers in ascending order along an axis. An axis of one element does not change."""
    if source.shape[axis] == 1:
        return source
    return node(Op.SORT, source.dtype, source.shape, (source,), (axis, stretch))


def ordered(roots: Sequence[Node], known: Container[Node] = ()) -> list[Node]:
    """Return every node that the roots depend on, each once, sources before users. Nodes that are `known`, and what
    only they depend on, are left out. Not recursive, so graphs may be deep.
    """
    done: dict[Node, None] = {}
    stack: list[tuple[Node, Iterator[Node]]] = []
    for root in roots:
        if root in done or root in known:
            continue
        stack.append((root, iter(root.sources)))
        while stack:
            current, sources = stack[-1]
            following = next((one for one in sources if one not in done and one not in known), None)
            if following is None:
                done[current] = None
                stack.pop()
            else:
                stack.append((following, iter(following.sources)))
    return list(done)


# Operations whose constructors simplify shared graphs.
_SIMPLIFIED: dict[Op, Callable[[Node, Node], Node]] = {
    Op.RESHAPE: lambda one, source: reshape(source, one.shape),
    Op.PERMUTE: lambda one, source: permute(source, one.arg),
    Op.EXPAND: lambda one, source: expand(source, one.shape),
    Op.CAST: lambda one, source: cast(source, one.dtype),
    Op.BITCAST: lambda one, source: (
        source if one.dtype is source.dtype else node(Op.BITCAST, one.dtype, one.shape, (source,))
    ),
}
