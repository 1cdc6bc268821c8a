"""Assignment: tensors that own memory, and writing into it or into a part of it. The rule of reads and writes is `realize`'s."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self, cast

from ringup.compiler import graph
from ringup.compiler.graph import Node, Op
from ringup.compiler.tensor import order
from ringup.compiler.tensor.core import Core, spread
from ringup.compiler.tensor.indexing import without_leading_ones
from ringup.compiler.tensor.layers import Layers


class Memory(Layers):
    """Assignment in place."""

    __slots__ = ()

    def _adopt(self) -> None:
        """Give a computed value memory of its own, which later assignments write."""
        if not self._owns:
            place = graph.buffer(self.dtype, self.shape)
            self._node = _stored(place, place, self._node)
            self._owns = True

    def assign(self, value: Any) -> Self:
        """Put `value` (broadcast and cast to this tensor) here, in place: the memory stays, and who read it before sees the old value.

        On a plain view (numbers, slices of step 1, reshape, permute, flip of a tensor that is still there) the tensor viewed is written.
        """
        return self._put_here(value, copies=False)

    def _put_here(self, value: Any, *, copies: bool) -> Self:
        new = self._fitting(value)
        if self._base is None or (copies and self._base[0] is None):
            self._node = _stored(self._node, self._node, new) if self._owns and self._base is None else new
            return self
        found, seen, view = self._base
        base = None if found is None else cast("Self | None", found())
        if base is None:
            raise TypeError(
                "assign to a part that is a copy (index arrays, steps, or of a tensor that is gone): write t[...] = value"
            )
        self._node = base._write(_path(view, seen), new)
        return self

    def _fitting(self, value: Any) -> Node:
        y = self._lift(value)
        have = (1,) * (self.ndim - y.ndim) + y.shape
        if len(have) != self.ndim or any(
            size not in (1, wanted) for size, wanted in zip(have, self.shape, strict=True)
        ):
            raise ValueError(f"a value of shape {list(y.shape)} does not go into {list(self.shape)}")
        return spread(graph.cast(y._node, self.dtype), self.shape)

    def _write(self, path: Callable[[Node], Node], value: Node) -> Node:
        """Store a value through a view of this tensor; return the view of what is there then."""
        self._adopt()  # ORDER: the path is laid over the node after this
        self._node = _stored(self._node, path(self._node), value)
        return path(self._node)

    def __setitem__(self, key: Any, value: Any) -> None:
        part, advanced = self._basic(key)
        if isinstance(value, Core) and value._node is part._node:
            return  # t[key] += x has written already
        if advanced or not order.is_view(part._node, self._node):
            self._put_here(self._with_part(key, value), copies=True)
            return
        y = self._lift(value)
        new = part._fitting(y.reshape(without_leading_ones(y.shape, part.ndim)) if y.ndim > part.ndim else y)
        base = None if self._base is None or self._base[0] is None else cast("Self | None", self._base[0]())
        if base is None or self._base is None:
            self._adopt()
            self._write(_path(self._basic(key)[0]._node, self._node), new)
            return
        mine, inner = _path(self._base[2], self._base[1]), _path(part._node, self._node)
        base._write(lambda state: inner(mine(state)), new)
        self._node = mine(base._node)

    def __iadd__(self, other: Any) -> Self:
        return self._put_here(self + other, copies=True)

    def __isub__(self, other: Any) -> Self:
        return self._put_here(self - other, copies=True)

    def __imul__(self, other: Any) -> Self:
        return self._put_here(self * other, copies=True)

    def __itruediv__(self, other: Any) -> Self:
        return self._put_here(self / other, copies=True)

    def __ifloordiv__(self, other: Any) -> Self:
        return self._put_here(self // other, copies=True)

    def __imod__(self, other: Any) -> Self:
        return self._put_here(self % other, copies=True)

    def __ipow__(self, other: Any) -> Self:
        return self._put_here(self**other, copies=True)

    def __iand__(self, other: Any) -> Self:
        return self._put_here(self & other, copies=True)

    def __ior__(self, other: Any) -> Self:
        return self._put_here(self | other, copies=True)

    def __ixor__(self, other: Any) -> Self:
        return self._put_here(self ^ other, copies=True)

    def __ilshift__(self, other: Any) -> Self:
        return self._put_here(self << other, copies=True)

    def __irshift__(self, other: Any) -> Self:
        return self._put_here(self >> other, copies=True)


def _stored(state: Node, view: Node, value: Node) -> Node:
    store = graph.node(Op.STORE, view.dtype, view.shape, (view, value))
    return graph.node(Op.AFTER, state.dtype, state.shape, (state, store))


def _path(view: Node, state: Node) -> Callable[[Node], Node]:
    """Return what makes the same view of another node that `view` is of `state`."""
    steps: list[Node] = []
    while view is not state:
        if view.op not in order.WRITABLE:
            raise TypeError(f"assign to a part that is a copy (there is a {view.op.value} in it): write t[...] = value")
        steps.append(view)
        view = view.sources[0]

    def made(node: Node) -> Node:
        for step in reversed(steps):
            node = graph.node(step.op, step.dtype, step.shape, (node,), step.arg)
        return node

    return made
