"""Assignment: tensors that own memory, and writing into it or into a part of it. The rule of reads and writes is
`realize`'s.
"""

from __future__ import annotations

from typing import Any, Self

from ringup.compiler.graph import nodes
from ringup.compiler.graph.nodes import Node, Op
from ringup.compiler.tensor.core import Core, Steps, spread
from ringup.compiler.tensor.indexing import without_leading_ones
from ringup.compiler.tensor.layers import Layers


class Memory(Layers):
    """Assignment in place."""

    __slots__ = ()

    def _adopt(self) -> None:
        """Give a computed value memory of its own, which later assignments write."""
        if not self._owns:
            place = nodes.buffer(self.dtype, self.shape)
            self._node = _stored(place, place, self._node)
            self._owns = True

    def assign(self, value: Any) -> Self:
        """Put `value` (broadcast and cast to this tensor) here, in place: the memory stays, and who read it before sees
        the old value.

        On a plain view (numbers, slices of step 1, reshape, permute, flip of a tensor that is still there) the tensor
        viewed is written.
        """
        return self._put_here(value, copies=False)

    def _put_here(self, value: Any, *, copies: bool) -> Self:
        new, base = self._fitting(value), self._viewed()
        if base is not self and self._base is not None:
            self._node = base._write(self._base[1], new)
        elif self._base is None:
            self._node = _stored(self._node, self._node, new) if self._owns else new
        elif copies:
            self._node = new
        else:
            raise TypeError(
                "assign to a part that is a copy (index arrays, steps, or of a tensor that is gone): write t[...] = value"
            )
        return self

    def _fitting(self, value: Any) -> Node:
        y = self._lift(value)
        have = (1,) * (self.ndim - y.ndim) + y.shape
        if len(have) != self.ndim or any(
            size not in (1, wanted) for size, wanted in zip(have, self.shape, strict=True)
        ):
            raise ValueError(f"a value of shape {list(y.shape)} does not go into {list(self.shape)}")
        return spread(nodes.cast(y._node, self.dtype), self.shape)

    def _write(self, steps: Steps, value: Node) -> Node:
        """Store a value through a view of this tensor; return the view of what is there then."""
        self._adopt()  # ORDER: the view is laid over the node after this
        self._node = _stored(self._node, _laid(steps, self._node), value)
        return _laid(steps, self._node)

    def __setitem__(self, key: Any, value: Any) -> None:
        part, advanced = self._basic(key)
        if isinstance(value, Core) and value._node is part._node:
            return  # t[key] += x has written already
        base = self._viewed()
        if advanced or not (part is self or part._is_view_of(base)):
            if base is not self and self._base is not None:  # what is not written stays as it is there now
                self._node = _laid(self._base[1], base._node)
            self._put_here(self._with_part(key, value), copies=True)
            return
        y = self._lift(value)
        new = part._fitting(y.reshape(without_leading_ones(y.shape, part.ndim)) if y.ndim > part.ndim else y)
        base._write(() if part is base or part._base is None else part._base[1], new)
        if base is not self and self._base is not None:
            self._node = _laid(self._base[1], base._node)

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
    store = nodes.node(Op.STORE, view.dtype, view.shape, (view, value))
    return nodes.node(Op.AFTER, state.dtype, state.shape, (state, store))


def _laid(steps: Steps, node: Node) -> Node:
    """Return the view of a node that the steps make."""
    for step in steps:
        node = step(node)
    return node
