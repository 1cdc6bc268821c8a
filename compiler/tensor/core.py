"""The state of a tensor: a lazy graph node, and where assignments to it are written. Also what every operation needs:
operands made tensors, shapes made equal, axes checked. The operations themselves are functions in the modules above.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from typing import Any, ClassVar, NamedTuple, NoReturn, Self, TypeAlias, TypeGuard, cast
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np

from ringup.compiler.graph import dtypes, index
from ringup.compiler.graph import nodes as graph
from ringup.compiler.graph.dtypes import DType, Number
from ringup.compiler.graph.index import Int
from ringup.compiler.graph.nodes import Node, Op, Shape
from ringup.compiler.tensor.arrays import as_array, memory_of
from ringup.compiler.tensor.spelling.count import Count, OpenCount, counted

# also NumPy's dtypes
DTypeLike: TypeAlias = DType | str | type[Any] | np.dtype[Any]
Axes: TypeAlias = int | Sequence[int] | None
Steps: TypeAlias = tuple[Callable[[Node], Node], ...]

# every live tensor, by identity: `realize` finds here the tensors that still read what an assignment overwrites
LIVE: WeakValueDictionary[int, Core] = WeakValueDictionary()

# gradients of whole functions, by their result: (rule, operands); the rule gets (gradient, result, *operands) and
# returns one gradient each
Rule: TypeAlias = "Callable[..., Sequence[Core | None]]"
RULES: WeakKeyDictionary[Node, tuple[Rule, tuple[Node, ...]]] = WeakKeyDictionary()

# whether what is computed has gradients: `history.no_grad` says no
RECORDING: ContextVar[bool] = ContextVar("ringup gradients", default=True)
_LEAVES = frozenset((Op.BUFFER, Op.CONST, Op.IOTA, Op.SIZE, Op.BITCAST))

# what operations of the graph there are of complex numbers, element by element
COMPLEX_OPS = frozenset((Op.NEG, Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.EQ, Op.NE))
# constants are kept as Python's floats
LARGEST_FLOAT = int(sys.float_info.max)


def refuse_complex(what: str, dtype: DType) -> NoReturn:
    """Raise TypeError: complex numbers have no such operation."""
    raise TypeError(f"{what} of {dtype}: complex numbers have none, nor an order; use abs(), .real or .imag")


def Size(name: str, lo: int, hi: int) -> Int:
    """Return a size known only when a tensor is realized (`numpy(n=17)`): `lo` to `hi`, both inclusive; usable in
    shapes and bounds.
    """
    if not name.isidentifier():
        raise ValueError(f"{name!r} is no name for a size: letters, digits and _")
    if not isinstance(lo, int) or not isinstance(hi, int):
        raise TypeError(f"size {name} of {lo!r} to {hi!r}: whole numbers bound it")
    if lo > hi:
        raise ValueError(f"size {name} of {lo} to {hi}: nothing lies between")
    if lo < 0:
        raise ValueError(f"size {name} of {lo} to {hi}: sizes are not negative")
    return index.variable(name, lo, hi)


def as_dtype(kind: DTypeLike) -> DType:
    """Return the element type that a name or a type of NumPy, PyTorch or Python means, or itself."""
    if isinstance(kind, DType):
        return kind
    found = dtypes.find(kind)
    if found is None:
        raise ValueError(f"there is no element type {kind!r}; there are {', '.join(dtypes.BY_NAME)}")
    return found


def is_size(value: object) -> bool:
    """Return whether it may stand in a shape."""
    return isinstance(value, (int, index.Expr, np.integer)) and not isinstance(value, bool)


def plain_size(size: Int | np.integer[Any]) -> Int:
    """Return a size as it stands in shapes: NumPy's integers and numbers of elements made Python's."""
    if isinstance(size, index.Expr):
        return size.plain() if isinstance(size, OpenCount) else size
    return int(size)


def as_shape(sizes: Sequence[object]) -> Shape:
    """Return sizes given one by one or as one tuple, checked."""
    if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)):
        sizes = sizes[0]
    for size in sizes:
        if not is_size(size):
            raise TypeError(f"a shape holds whole numbers and sizes, not {size!r}")
    shape = tuple(plain_size(cast("Int", size)) for size in sizes)
    if any(index.bounds(size)[0] < 0 for size in shape):
        raise ValueError(f"a shape of {list(shape)}: sizes are not negative")
    return shape


def is_list(value: object) -> TypeGuard[Sequence[Any]]:
    """Return whether something holds numbers one by one, where one alone may stand too."""
    return isinstance(value, (tuple, list, range, np.ndarray))


def whole_number(value: object, what: str) -> int:
    """Return a count, a size or a step as a plain int; a TypeError where it is none."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{what} of {value!r}: it is a whole number")
    return int(value)


def number_of(size: Int, why: str) -> int:
    """Return a size that has to be a plain number here."""
    if not isinstance(size, int):
        raise ValueError(f"{why} needs a size known now, not {size}")  # noqa: TRY004
    return size


class View(NamedTuple):
    """What a tensor was taken from, and so where an assignment to it is written.

    With `steps`, it is a plain view: they make its node of the base's. With `key`, it is the part `base[key]`, which
    no store can write through. Without a base it is a copy: assignment in place changes that alone, or is an error
    where it `refuses` one, because the reader would expect another tensor to change.
    """

    base: Callable[[], Core | None] | None
    steps: Steps = ()
    key: object = None
    refuses: str = ""


class Core:
    """The state of a lazy tensor. Tensors hash by identity, because `==` compares elements."""

    __slots__ = ("__weakref__", "_node", "_owns", "_pasts", "_view", "_wants_gradient", "grad")

    # NumPy leaves `array * tensor` to us
    __array_ufunc__: ClassVar[None] = None
    __hash__ = object.__hash__

    _node: Node
    # None: it stands for itself
    _view: View | None
    # whether the node is a state of memory that is this tensor's alone
    _owns: bool
    # graphs of realized values that read this tensor: `history` keeps them here
    _pasts: WeakKeyDictionary[Node, Node] | None
    grad: Self | None
    _wants_gradient: bool

    def __init__(self, node: Node) -> None:
        self._setup(node)

    def _setup(self, node: Node, *, owns: bool = False) -> None:
        # a gradient is taken by a tensor: no other tensor's graph may have come to the same node by itself
        self._node = graph.distinct(node) if node.shared else node
        self._view, self._owns, self._pasts, self.grad, self._wants_gradient = None, owns, None, None, False
        LIVE[id(self)] = self

    @classmethod
    def _of(cls, node: Node) -> Self:
        made = object.__new__(cls)
        made._setup(node if RECORDING.get() else _without_gradient(node))
        return made

    @property
    def node(self) -> Node:
        """Return the graph it stands for."""
        return self._node

    @property
    def requires_grad(self) -> bool:
        """Return whether `backward` gives it a gradient; assigned to, it does what `requires_grad_` does."""
        return self._wants_gradient

    @requires_grad.setter
    def requires_grad(self, wanted: bool) -> None:
        cast("Any", self).requires_grad_(wanted)

    @property
    def shape(self) -> Shape:
        """Return the sizes of its axes."""
        return self._node.shape

    @property
    def dtype(self) -> DType:
        """Return its element type."""
        return self._node.dtype

    @property
    def ndim(self) -> int:
        """Return the number of axes."""
        return len(self._node.shape)

    @property
    def size(self) -> Count | OpenCount:
        """Return the number of elements; called, it is the shape (`t.size()`) or the size of an axis (`t.size(0)`)."""
        return counted(self._node.size, self._node.shape)

    def numel(self) -> Int:
        """Return the number of elements."""
        return self._node.size

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a tensor of shape [] has no length")
        return number_of(self.shape[0], "len")

    # numbers, arrays and lists beside tensors

    @classmethod
    def _constant(cls, value: Number, dtype: DType, shape: Shape = ()) -> Self:
        return cls._of(graph.const(value, dtype, shape))

    @classmethod
    def _from_array(cls, array: object, name: str = "") -> Self:
        """Return a tensor of the bytes of an array, or of a list of numbers in their default types."""
        made = cls._of(memory_of(as_array(array, None), name))
        made._owns = True
        return made

    def _lift(self, other: object, *, weak: bool = True) -> Self:
        """Return an operand as a tensor; a Python number takes this tensor's type where it can."""
        if isinstance(other, Core):
            return cast("Self", other)
        if isinstance(other, (bool, int, float, complex)) and weak:
            return self._constant(other, self._scalar_dtype(other))
        if isinstance(other, index.Expr):
            return self._of(graph.node(Op.SIZE, dtypes.int32 if other.hi < 1 << 31 else dtypes.int64, (), (), other))
        if isinstance(other, (np.ndarray, np.generic, list, tuple, bool, int, float, complex)):
            return self._from_array(other)
        raise TypeError(
            f"a tensor and {type(other).__name__} do not go together: give a number, a list, an array or a tensor"
        )

    @classmethod
    def _counted(cls, count: Int, dtype: DType = dtypes.int32) -> Self:
        """Return 0, 1, … before `count`."""
        return cls._of(graph.node(Op.IOTA, dtype, as_shape((count,))))

    def _scalar_dtype(self, value: Number) -> DType:
        """Return the type of a Python number beside this tensor; a ValueError where it does not fit."""
        kind = dtypes.of_scalar(value, self.dtype)
        if kind.is_integer and isinstance(value, int) and not int(kind.least) <= value <= int(kind.greatest):
            raise ValueError(
                f"{value} does not fit {kind} ({kind.least} to {kind.greatest}); cast the tensor to a wider type first"
            )
        if kind.is_inexact and isinstance(value, int) and abs(value) > LARGEST_FLOAT:
            raise ValueError(f"a whole number of {value.bit_length()} bits does not fit {kind}")
        return dtypes.promote(self.dtype, kind)

    def _fit(self, *others: object) -> list[Self]:
        """Return this tensor and others in one dtype and one shape."""
        lifted = [self, *(self._lift(other) for other in others)]
        kind = lifted[0].dtype
        for one in lifted[1:]:
            kind = dtypes.promote(kind, one.dtype)
        shape = broadcast_shapes(*(one.shape for one in lifted))
        return [self._of(spread(graph.cast(one._node, kind), shape)) for one in lifted]

    def _apply(self, op: Op, *others: Core) -> Self:
        """Return the elementwise operation on operands of one dtype and one shape."""
        if self.dtype.is_complex and op not in COMPLEX_OPS:
            refuse_complex(op.value, self.dtype)
        return self._of(graph.elementwise(op, self._node, *(one._node for one in others)))

    def _with_rule(self, rule: Rule, *operands: Core) -> Self:
        """Give this result a gradient of its own instead of that of the nodes it is made of."""
        # a function wins over those it is made of
        if RECORDING.get() and all(one._node is not self._node for one in operands):
            RULES[self._node] = (rule, tuple(one._node for one in operands))
        return self

    def _axis(self, axis: int, extra: int = 0) -> int:
        """Return an axis counted from the front, checked; `extra` for places between axes."""
        if isinstance(axis, bool) or not isinstance(axis, (int, np.integer)):
            raise TypeError(f"an axis is a whole number, not {axis!r}")
        ndim = self.ndim + extra
        if not -ndim <= axis < ndim:
            raise IndexError(f"axis {axis} of a tensor of shape {list(self.shape)}: there are {ndim}")
        return int(axis) % ndim

    def _is_one(self, axis: Axes) -> bool:
        """Return whether an axis is that of a tensor without axes, which counts as one of one element."""
        return not self._node.shape and type(axis) is int and axis in (0, -1)

    def _as_one(self, function: Callable[..., Any], *given: Any, **named: Any) -> Any:
        """Return what a function of one axis makes of a tensor without axes, in a tuple too: results without axes."""
        made = function(self._of(graph.reshape(self._node, (1,))), *given, **named)
        if isinstance(made, Core):
            return self._of(graph.reshape(made._node, ()))
        parts = [self._of(graph.reshape(one._node, ())) for one in made]
        return made._make(parts) if hasattr(made, "_make") else tuple(parts)

    def _axes(self, axes: Axes) -> tuple[int, ...]:
        """Return axes counted from the front in rising order, all for None; a ValueError where one comes twice.

        A tensor without axes has none at 0 and -1, as in PyTorch.
        """
        if axes is None or self._is_one(axes) or (not self._node.shape and axes in ((0,), (-1,), [0], [-1])):
            return tuple(range(self.ndim))
        found = sorted(
            self._axis(axis) for axis in (axes if isinstance(axes, (tuple, list, range)) else [cast("int", axes)])
        )
        if len(set(found)) != len(found):
            raise ValueError(f"axes {axes} of a tensor of shape {list(self.shape)}: one comes twice")
        return tuple(found)


def _without_gradient(node: Node) -> Node:
    """Return the same value, which no gradient passes."""
    if node.op in _LEAVES or not node.dtype.is_inexact:
        return node
    return graph.stop(node)


def broadcast_shapes(*shapes: Shape) -> Shape:
    """Return the shape that all of them spread to, aligned at the last axis, axes of 1 repeated."""
    first = shapes[0]
    if all(one == first for one in shapes):
        return first
    ndim = max(map(len, shapes))
    made: list[Int] = []
    for place in range(-ndim, 0):
        sizes = {shape[place] for shape in shapes if len(shape) >= -place} - {1}
        if len(sizes) > 1:
            raise ValueError(
                f"shapes {' and '.join(str(list(one)) for one in shapes)} do not broadcast: axis {place} is {' and '.join(map(str, sizes))}"
            )
        made.append(sizes.pop() if sizes else 1)
    return tuple(made)


def spread(source: Node, shape: Shape) -> Node:
    """Return a node broadcast to a shape that it is known to spread to."""
    if source.shape == shape:
        return source
    if len(source.shape) != len(shape):
        source = graph.reshape(source, (1,) * (len(shape) - len(source.shape)) + source.shape)
    return graph.expand(source, shape)


def total(sizes: Iterable[Int]) -> Int:
    """Return the product of sizes."""
    return index.product(sizes)
