"""Assignment: tensors that own memory, and writing into it or into a part of it. The rule of reads and writes is
`realize`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from ringup.compiler.graph import nodes
from ringup.compiler.graph.nodes import Node, Op
from ringup.compiler.tensor.composed.parts import with_masked
from ringup.compiler.tensor.conversions import bits_as
from ringup.compiler.tensor.core import Core, Steps, spread
from ringup.compiler.tensor.indexing import as_elements, basic_part, with_part, without_leading_ones
from ringup.compiler.tensor.movement import base_of, is_view_of

if TYPE_CHECKING:
    from ringup.compiler.tensor.tensor import Tensor


def adopt(tensor: Tensor) -> None:
    """Give a computed value memory of its own, which later assignments write."""
    if not tensor._owns:
        place = nodes.buffer(tensor.dtype, tensor.shape)
        tensor._node = _stored(place, place, tensor._node)
        tensor._owns = True


def assign(tensor: Tensor, value: Any) -> Tensor:
    """Replace its elements by `value` (broadcast and cast to this tensor) in place: the memory stays the same, and what
    was made of the tensor before still reads the old elements.

    A view (numbers, slices, reshape, permute, flip, detach, bitcast) writes the tensor viewed. A TypeError for a copy,
    whose source would not change: parts by index arrays, expand, diagonal.
    """
    return _put(tensor, value, copies=False)


def _put(tensor: Tensor, value: Any, *, copies: bool) -> Tensor:
    """Do what `assign` says; with `copies`, a part by index arrays takes the value alone, since Python assigns it to
    its place next.
    """
    new, base, view = _fitting(tensor, value), base_of(tensor), tensor._view
    _check_writable(tensor)
    parent = None if view is None or view.key is None or view.base is None else view.base()
    if base is not tensor and view is not None:
        _write(base, view.steps, new)
        tensor._node = _seen(base, view.steps)
    elif parent is not None and view is not None:
        whole = cast("Tensor", parent)
        whole[view.key] = tensor._of(new)
        tensor._node = whole[view.key]._node
    elif view is None:
        tensor._node = _stored(tensor._node, tensor._node, new) if tensor._owns else new
    elif copies or view.base is not None:
        # the tensor it was taken from is gone: nobody else could see a change
        tensor._node = new
    else:
        raise TypeError("assign to a part by index arrays, which is a copy: write t[...] = value")
    return tensor


def _check_writable(tensor: Tensor) -> None:
    if tensor._view is not None and tensor._view.refuses:
        raise TypeError(
            f"assign to {tensor._view.refuses}: it is a copy, and the tensor it was made from would not change; assign to that"
            " tensor's own elements, or to a clone()"
        )


def _fitting(tensor: Tensor, value: Any) -> Node:
    """Return a value cast and broadcast to this tensor; a number that does not fit its type is a ValueError."""
    y = as_elements(tensor, value)
    have = (1,) * (tensor.ndim - y.ndim) + y.shape
    if len(have) != tensor.ndim or any(
        size not in (1, wanted) for size, wanted in zip(have, tensor.shape, strict=True)
    ):
        raise ValueError(f"a value of shape {list(y.shape)} does not go into {list(tensor.shape)}")
    return spread(nodes.cast(y._node, tensor.dtype), tensor.shape)


def _write(tensor: Tensor, steps: Steps, value: Node) -> None:
    """Store a value through a view of this tensor."""
    if tensor._view is not None and tensor._view.key is not None:
        # a part that no store can write through: changed apart, and put back
        changed = tensor.clone()
        _write(changed, steps, value)
        _put(tensor, changed, copies=True)
        return
    # ORDER: the view is laid over the node that `adopt` leaves
    adopt(tensor)
    # the bits are turned back instead of the places: a store writes its state's own type, or that of its parts
    places = [step for step in steps if not _is_bits(step)]
    kind = tensor.dtype.part if any(map(_is_part, steps)) else tensor.dtype
    stored = value if value.dtype is kind else bits_as(value, kind)
    tensor._node = _stored(tensor._node, _laid(places, tensor._node), stored)


def _is_bits(step: Callable[[Node], Node]) -> bool:
    return isinstance(step, partial) and step.func is bits_as


def _is_part(step: Callable[[Node], Node]) -> bool:
    return isinstance(step, partial) and step.func is nodes.part


def _seen(tensor: Tensor, steps: Steps) -> Node:
    """Return what a view of this tensor shows now."""
    node = _laid(steps, tensor._node)
    return nodes.alias(node) if node is tensor._node else node


def setitem(tensor: Tensor, key: Any, value: Any) -> None:
    """Replace the elements at `key` by `value`, in place."""
    _check_writable(tensor)
    if isinstance(key, Core) and key.dtype.kind == "bool":
        _put(tensor, with_masked(tensor, cast("Tensor", key), value), copies=True)
        return
    part, advanced = basic_part(tensor, key)
    # t[key] += x has written already
    if isinstance(value, Core) and _same_part(value._node, part._node):
        return
    base = base_of(tensor)
    if advanced or not (part is tensor or is_view_of(part, base)):
        # what is not written stays as it is there now
        if base is not tensor and tensor._view is not None:
            tensor._node = _seen(base, tensor._view.steps)
        _put(tensor, with_part(tensor, key, value), copies=True)
        return
    y = as_elements(tensor, value)
    new = _fitting(part, y.reshape(without_leading_ones(y.shape, part.ndim)) if y.ndim > part.ndim else y)
    _write(base, () if part is base or part._view is None else part._view.steps, new)
    if base is not tensor and tensor._view is not None:
        tensor._node = _seen(base, tensor._view.steps)


def _same_part(one: Node, other: Node) -> bool:
    """Return whether two nodes are the same part of the same state of memory."""
    while one is not other:
        if len(one.sources) != 1 or (one.op, one.dtype, one.shape, one.arg) != (
            other.op,
            other.dtype,
            other.shape,
            other.arg,
        ):
            return False
        one, other = one.sources[0], other.sources[0]
    return True


def add_in_place(tensor: Tensor, other: Any) -> Tensor:
    """Add `other` in place."""
    return put(tensor, tensor + other)


def sub_in_place(tensor: Tensor, other: Any) -> Tensor:
    """Subtract `other` in place."""
    return put(tensor, tensor - other)


def mul_in_place(tensor: Tensor, other: Any) -> Tensor:
    """Multiply by `other` in place."""
    return put(tensor, tensor * other)


def div_in_place(tensor: Tensor, other: Any) -> Tensor:
    """Divide by `other` in place."""
    return put(tensor, tensor / other)


def floordiv_in_place(tensor: Tensor, other: Any) -> Tensor:
    """Divide by `other` in place, rounded down."""
    return put(tensor, tensor // other)


def mod_in_place(tensor: Tensor, other: Any) -> Tensor:
    """Replace it by the remainder of a division by `other`."""
    return put(tensor, tensor % other)


def power_in_place(tensor: Tensor, other: Any) -> Tensor:
    """Raise it to the power of `other`, in place."""
    return put(tensor, tensor**other)


def bits_and_in_place(tensor: Tensor, other: Any) -> Tensor:
    """Keep the bits that `other` has too, in place."""
    return put(tensor, tensor & other)


def bits_or_in_place(tensor: Tensor, other: Any) -> Tensor:
    """Set the bits of `other`, in place."""
    return put(tensor, tensor | other)


def bits_xor_in_place(tensor: Tensor, other: Any) -> Tensor:
    """Invert the bits of `other`, in place."""
    return put(tensor, tensor ^ other)


def shift_left_in_place(tensor: Tensor, other: Any) -> Tensor:
    """Shift its bits left by `other`, in place."""
    return put(tensor, tensor << other)


def shift_right_in_place(tensor: Tensor, other: Any) -> Tensor:
    """Shift its bits right by `other`, in place."""
    return put(tensor, tensor >> other)


def put(tensor: Tensor, value: Tensor) -> Tensor:
    """Replace its elements by a result as operators in place do: a part that is a copy takes the result alone. A
    TypeError for floats into integers, for complex numbers into real ones, and for numbers into bools.
    """
    kinds = value.dtype.kind, tensor.dtype.kind
    if (
        value.dtype.is_inexact > tensor.dtype.is_inexact
        or value.dtype.is_complex > tensor.dtype.is_complex
        or (kinds[1] == "bool" and kinds[0] != "bool")
    ):
        raise TypeError(
            f"a result of {value.dtype} does not go into a tensor of {tensor.dtype} in place: cast the tensor or the result"
        )
    return _put(tensor, value, copies=True)


def _stored(state: Node, view: Node, value: Node) -> Node:
    """Return a state of memory after a value is stored through a view of it."""
    store = nodes.node(Op.STORE, view.dtype, view.shape, (view, value))
    return nodes.node(Op.AFTER, state.dtype, state.shape, (state, store))


def _laid(steps: Sequence[Callable[[Node], Node]], node: Node) -> Node:
    """Return the view of a node that the steps make."""
    for step in steps:
        node = step(node)
    return node
