"""The same elements in other places: shapes changed, axes moved, edges padded and cut, tensors joined and split."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast
from weakref import ref

from ringup.compiler.graph import dtypes, index, nodes
from ringup.compiler.graph.dtypes import Scalar
from ringup.compiler.graph.index import Int
from ringup.compiler.graph.nodes import Node, Op
from ringup.compiler.tensor.core import (
    Axes,
    View,
    as_shape,
    broadcast_shapes,
    is_list,
    is_size,
    number_of,
    spread,
    total,
    whole_number,
)

if TYPE_CHECKING:
    from ringup.compiler.tensor.tensor import Tensor

PADDINGS = ("constant", "reflect", "replicate", "circular")


def as_view(tensor: Tensor, step: Callable[[Node], Node]) -> Tensor:
    """Return a plain view, which remembers what it is a view of: `assign` on it writes there."""
    node = step(tensor._node)
    # a view that changes nothing is another tensor too, with a gradient of its own
    made, viewed = tensor._of(nodes.alias(node) if node is tensor._node else node), base_of(tensor)
    if viewed._view is not None and viewed._view.refuses:
        made._view = viewed._view
        return made
    before = tensor._view.steps if tensor._view is not None and viewed is not tensor else ()
    # a part that no store can write through is kept: what is written to it goes on to the tensor it is of
    is_part = viewed._view is not None and viewed._view.key is not None
    made._view = View((lambda: viewed) if is_part else ref(viewed), (*before, step))
    return made


def as_copy(tensor: Tensor, what: str) -> Tensor:
    """Return it as a tensor that refuses assignment: it has copies of another one's elements, and whoever assigns
    expects that one to change.
    """
    tensor._view = View(None, refuses=what)
    return tensor


def base_of(tensor: Tensor) -> Tensor:
    """Return the tensor whose memory an assignment to views of this one writes: the one that this is a plain view of,
    or else this one.
    """
    found = None
    if tensor._view is not None and tensor._view.steps and tensor._view.base is not None:
        found = tensor._view.base()
    return tensor if found is None else cast("Tensor", found)


def is_view_of(tensor: Tensor, other: Tensor) -> bool:
    """Return whether it is a plain view of another tensor."""
    return tensor is not other and base_of(tensor) is other


def reshape(tensor: Tensor, *sizes: Int | Sequence[Int]) -> Tensor:
    """Return the elements in row-major order under another shape; one size may be -1 and follows from the
    others.
    """
    wanted = list(sizes[0] if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else sizes)
    for size in wanted:
        if not is_size(size):
            raise TypeError(f"a shape holds whole numbers and sizes, not {size!r}")
    open_ones = [i for i, size in enumerate(wanted) if not isinstance(size, index.Expr) and size == -1]
    if len(open_ones) > 1:
        raise ValueError(f"reshape of {list(tensor.shape)} to {wanted}: one -1 at most")
    if open_ones:
        wanted[open_ones[0]] = _missing(tensor, wanted)
    shape = as_shape(wanted)
    if total(shape) != tensor._node.size:
        raise ValueError(
            f"{list(tensor.shape)} ({tensor.size} elements) does not reshape to {list(shape)} ({total(shape)})"
        )
    return as_view(tensor, partial(nodes.reshape, shape=shape))


def _missing(tensor: Tensor, wanted: list[Any]) -> Int:
    """Return the size that -1 stands for."""
    have, given = list(tensor.shape), [size for size in wanted if not (isinstance(size, int) and size == -1)]
    # equal sizes cancel, so that symbolic ones need no division
    for size in list(given):
        if size in have:
            have.remove(size)
            given.remove(size)
    left, known = total(have), total(given)
    if any(isinstance(size, int) and size == 0 for size in wanted):
        raise ValueError(f"reshape of {list(tensor.shape)} to {wanted}: -1 beside a size of 0 says nothing")
    found = left // known
    if found * known != left:
        raise ValueError(
            f"{list(tensor.shape)} ({tensor.size} elements) does not reshape to {wanted}: no whole number for -1"
        )
    return found


def view_as(tensor: Tensor, other: Tensor) -> Tensor:
    """Return the elements under the shape of another tensor."""
    return tensor.reshape(other.shape)


def flatten(tensor: Tensor, start: int = 0, end: int = -1) -> Tensor:
    """Return axes `start` to `end` (inclusive) made one."""
    if not tensor.shape:
        return tensor.reshape(1)
    first, last = tensor._axis(start), tensor._axis(end)
    if first > last:
        raise ValueError(f"flatten of {list(tensor.shape)} from axis {start} to {end}: they are in the wrong order")
    return tensor.reshape((*tensor.shape[:first], total(tensor.shape[first : last + 1]), *tensor.shape[last + 1 :]))


def unflatten(tensor: Tensor, axis: int, sizes: Sequence[Int]) -> Tensor:
    """Return one axis split into several; one of them may be -1."""
    at = tensor._axis(axis)
    if -1 in sizes:
        rest = total(size for size in sizes if not (isinstance(size, int) and size == -1))
        sizes = [tensor.shape[at] // rest if isinstance(size, int) and size == -1 else size for size in sizes]
    if total(sizes) != tensor.shape[at]:
        raise ValueError(f"axis {axis} of {list(tensor.shape)} does not split into {list(sizes)}")
    return tensor.reshape((*tensor.shape[:at], *sizes, *tensor.shape[at + 1 :]))


def squeeze(tensor: Tensor, axis: Axes = None) -> Tensor:
    """Return it without axes of size 1: all of them, or those named, which have to be."""
    if axis is None:
        return tensor.reshape(tuple(size for size in tensor.shape if size != 1))
    gone = tensor._axes(axis)
    for one in gone:
        if tensor.shape[one] != 1:
            raise ValueError(f"squeeze of axis {one} of {list(tensor.shape)}: it is {tensor.shape[one]}, not 1")
    return tensor.reshape(tuple(size for i, size in enumerate(tensor.shape) if i not in gone))


def unsqueeze(tensor: Tensor, axis: int) -> Tensor:
    """Return it with an axis of size 1 put in at `axis` of the result."""
    at = tensor._axis(axis, extra=1)
    return tensor.reshape((*tensor.shape[:at], 1, *tensor.shape[at:]))


def permute(tensor: Tensor, *axes: int | Sequence[int]) -> Tensor:
    """Return its axes in another order: axis i of the result is axis axes[i] of this."""
    given = cast("Sequence[int]", axes[0] if len(axes) == 1 and isinstance(axes[0], (tuple, list)) else axes)
    order = [tensor._axis(axis) for axis in given]
    if sorted(order) != list(range(tensor.ndim)):
        raise ValueError(f"permute of {list(tensor.shape)} by {list(given)}: every axis once")
    return as_view(tensor, partial(nodes.permute, axes=order))


def transpose(tensor: Tensor, first: int = -2, second: int = -1) -> Tensor:
    """Return it with two axes swapped."""
    if tensor._is_one(first) and tensor._is_one(second):
        return tensor
    a, b = tensor._axis(first), tensor._axis(second)
    order = list(range(tensor.ndim))
    order[a], order[b] = b, a
    return tensor.permute(order)


def movedim(tensor: Tensor, source: int | Sequence[int], target: int | Sequence[int]) -> Tensor:
    """Return it with axes at `source` moved to `target`, the others in their order."""
    sources = [source] if isinstance(source, int) else list(source)
    targets = [target] if isinstance(target, int) else list(target)
    start, end = [tensor._axis(one) for one in sources], [tensor._axis(one) for one in targets]
    if len(start) != len(end) or len(set(start)) != len(start) or len(set(end)) != len(end):
        raise ValueError(f"movedim of {list(tensor.shape)} from {source} to {target}: as many, each once")
    order = [axis for axis in range(tensor.ndim) if axis not in start]
    for to, axis in sorted(zip(end, start, strict=True)):
        order.insert(to, axis)
    return tensor.permute(order)


def expand(tensor: Tensor, *sizes: Int | Sequence[Int]) -> Tensor:
    """Return it with axes of size 1 repeated and new ones in front; -1 keeps an axis."""
    wanted = list(sizes[0] if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else sizes)
    have = (1,) * (len(wanted) - tensor.ndim) + tensor.shape
    keep = [size if isinstance(new, int) and new == -1 else new for new, size in zip(wanted, have, strict=False)]
    shape = as_shape(keep)
    if len(have) != len(shape) or any(size not in (1, new) for size, new in zip(have, shape, strict=True)):
        raise ValueError(
            f"{list(tensor.shape)} does not expand to {wanted}: only axes of 1 repeat, new axes come in front"
        )
    if shape == tensor.shape:
        return as_view(tensor, partial(nodes.reshape, shape=shape))
    return as_copy(tensor._of(spread(tensor._node, shape)), "a tensor whose elements are repeated (expand)")


def expand_as(tensor: Tensor, other: Tensor) -> Tensor:
    """Return it broadcast to the shape of another tensor."""
    return tensor.expand(other.shape)


def shrink(tensor: Tensor, bounds: Sequence[tuple[Int, Int] | None]) -> Tensor:
    """Return the part from `start` to before `stop` of each axis; None keeps one whole."""
    if len(bounds) != tensor.ndim:
        raise ValueError(f"shrink of {list(tensor.shape)} by {len(bounds)} pairs of bounds: one for each axis")
    pairs = tuple(
        (0, size) if pair is None else (pair[0], pair[1]) for pair, size in zip(bounds, tensor.shape, strict=True)
    )
    for axis, ((start, stop), size) in enumerate(zip(pairs, tensor.shape, strict=True)):
        outside = index.bounds(start)[1] < 0 or index.bounds(stop - start)[1] < 0 or index.bounds(size - stop)[1] < 0
        if outside or (isinstance(start, int) and start < 0):
            raise IndexError(f"shrink of axis {axis} of {list(tensor.shape)} from {start} to {stop}: outside of it")
    return cut_axes(tensor, pairs)


def cut_axes(tensor: Tensor, pairs: Sequence[tuple[Int, Int]]) -> Tensor:
    """Return the part between bounds (start, stop) of each axis, which are known to lie inside."""
    if all(pair == (0, size) for pair, size in zip(pairs, tensor.shape, strict=True)):
        return tensor
    return as_view(tensor, partial(_shrunk, pairs=tuple(pairs)))


def cut(tensor: Tensor, axis: int, start: Int, stop: Int) -> Tensor:
    """Return the part from `start` to before `stop` of one axis; the bounds are known to lie inside."""
    return cut_axes(tensor, [(start, stop) if i == axis else (0, size) for i, size in enumerate(tensor.shape)])


def flip(tensor: Tensor, axis: Axes = None) -> Tensor:
    """Return it with axes reversed, all of them for None."""
    axes = tuple(one for one in tensor._axes(axis) if tensor.shape[one] != 1)
    return as_view(tensor, partial(_flipped, axes=axes)) if axes else tensor


def add_edges(tensor: Tensor, widths: Sequence[tuple[Int, Int]], value: Scalar = 0) -> Tensor:
    """Return it with `value` around it: (before, after) for each axis, none negative."""
    if all(pair == (0, 0) for pair in widths):
        return tensor
    shape = tuple(before + size + after for size, (before, after) in zip(tensor.shape, widths, strict=True))
    filled = nodes.const(dtypes.fitting(value, tensor.dtype), tensor.dtype).arg
    return tensor._of(
        nodes.node(Op.PAD, tensor.dtype, shape, (tensor._node,), (tuple((a, b) for a, b in widths), filled))
    )


def pad(
    tensor: Tensor, widths: int | Sequence[tuple[Int, Int] | int | None], value: Scalar = 0, mode: str = "constant"
) -> Tensor:
    """Return it with edges added: a pair (before, after) or one width for each axis, or one width for all; negative
    ones cut off.

    `mode`: constant (`value`), reflect (mirrored without the edge), replicate (the edge), circular (from the other
    side).
    """
    if mode not in PADDINGS:
        raise ValueError(f"there is no padding {mode!r}; there are {', '.join(PADDINGS)}")
    given = list(widths) if is_list(widths) else [whole_number(widths, "a width")] * tensor.ndim
    if len(given) != tensor.ndim:
        raise ValueError(f"pad of {list(tensor.shape)} by {len(given)} widths: one for each axis")
    pairs: list[tuple[Int, Int]] = [
        (0, 0) if one is None else one if isinstance(one, tuple) else (one, one) for one in given
    ]
    if not all(len(pair) == 2 and all(map(is_size, pair)) for pair in pairs):
        raise TypeError(
            f"pad of {list(tensor.shape)} by {widths!r}: whole numbers, one or a pair (before, after) for each axis"
        )
    kept = tuple((max(-a, 0) if isinstance(a, int) else 0, size - max(-b, 0) if isinstance(b, int) else size)
                 for (a, b), size in zip(pairs, tensor.shape, strict=True))  # fmt: skip
    grown = [tuple(max(one, 0) if isinstance(one, int) else one for one in pair) for pair in pairs]
    if mode == "constant":
        return add_edges(tensor.shrink(kept), cast("list[tuple[Int, Int]]", grown), value)
    # mirrored and repeated edges are made of what is cut off too; in a circle that is gone
    made = tensor.shrink(kept) if mode == "circular" else tensor
    bounds: list[tuple[Int, Int] | None] = []
    for axis, ((before, after), (start, stop)) in enumerate(zip(grown, kept, strict=True)):
        made = _pad_from_inside(made, axis, number_of(before, "pad"), number_of(after, "pad"), mode)
        bounds.append(None if mode == "circular" else (start, stop + before + after))
    return made.shrink(bounds)


def _pad_from_inside(tensor: Tensor, axis: int, before: int, after: int, mode: str) -> Tensor:
    """Return it with edges along an axis that are made of its own elements."""
    if not before and not after:
        return tensor
    size = number_of(tensor.shape[axis], f"padding by {mode}")
    most = {"reflect": size - 1, "circular": size, "replicate": before + after if size else 0}[mode]
    if max(before, after) > most:
        raise ValueError(
            f"{mode} padding of axis {axis} of {list(tensor.shape)} by ({before}, {after}): {most} at most"
        )
    if mode == "reflect":
        parts = [
            cut(tensor, axis, 1, before + 1).flip(axis),
            tensor,
            cut(tensor, axis, size - 1 - after, size - 1).flip(axis),
        ]
    elif mode == "circular":
        parts = [cut(tensor, axis, size - before, size), tensor, cut(tensor, axis, 0, after)]
    else:
        wide = [tuple(n if i == axis else one for i, one in enumerate(tensor.shape)) for n in (before, after)]
        parts = [cut(tensor, axis, 0, 1).expand(wide[0]), tensor, cut(tensor, axis, size - 1, size).expand(wide[1])]
    return _join([one for one in parts if one.shape[axis] != 0], axis)


def _join(parts: Sequence[Tensor], axis: int) -> Tensor:
    """Return tensors of one dtype that differ along `axis` at most, one after the other."""
    first = parts[0]
    if len(parts) == 1:
        return first
    shape = list(first.shape)
    shape[axis] = sum((one.shape[axis] for one in parts), 0)
    return first._of(nodes.node(Op.CAT, first.dtype, tuple(shape), tuple(one._node for one in parts), axis))


def cat(tensor: Tensor, *others: object, axis: int = 0) -> Tensor:
    """Return this and others one after the other along `axis`; the other axes have to be equal. Nothing along one
    axis, of shape (0,), goes with any shape, as in PyTorch.
    """
    given = [tensor, *(tensor._lift(one, weak=False) for one in others)]
    kind = tensor.dtype
    for one in given[1:]:
        kind = dtypes.promote(kind, one.dtype)
    parts = [one for one in given if one.shape != (0,)] or given[:1]
    tensor = parts[0]
    at = tensor._axis(axis)
    for one in parts[1:]:
        if one.ndim != tensor.ndim or any(
            a != b for i, (a, b) in enumerate(zip(one.shape, tensor.shape, strict=True)) if i != at
        ):
            raise ValueError(
                f"cat along axis {axis} of {' and '.join(str(list(part.shape)) for part in parts)}: the other axes differ"
            )
    return _join([one.cast(kind) for one in parts], at)


def stack(tensor: Tensor, *others: object, axis: int = 0) -> Tensor:
    """Return this and others of the same shape side by side along a new axis."""
    parts = [tensor, *(tensor._lift(one, weak=False) for one in others)]
    for one in parts:
        if one.shape != tensor.shape:
            raise ValueError(f"stack of {list(tensor.shape)} and {list(one.shape)}: shapes differ")
    first, *rest = (one.unsqueeze(axis) for one in parts)
    return first.cat(*rest, axis=axis)


def split(tensor: Tensor, sizes: int | Sequence[int], axis: int = 0) -> list[Tensor]:
    """Return pieces of `sizes` (all of one size but the last, or as listed) along `axis`."""
    at = tensor._axis(axis)
    whole = number_of(tensor.shape[at], "split")
    if not is_list(sizes):
        sizes = whole_number(sizes, "a size")
        if sizes <= 0:
            raise ValueError(f"split of axis {axis} of {list(tensor.shape)} into pieces of {sizes}: give 1 or more")
        sizes = [min(sizes, whole - start) for start in range(0, whole, sizes)] or [0]
    if sum(sizes) != whole or min(sizes) < 0:
        raise ValueError(f"split of axis {axis} of {list(tensor.shape)} into {list(sizes)}: they make {sum(sizes)}")
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    return [cut(tensor, at, end - size, end) for end, size in zip(ends, sizes, strict=True)]


def chunk(tensor: Tensor, count: int, axis: int = 0) -> list[Tensor]:
    """Return up to `count` pieces of equal size (the last may be smaller) along `axis`."""
    count = whole_number(count, "a count")
    if count <= 0:
        raise ValueError(f"chunk into {count} pieces: give 1 or more")
    size = number_of(tensor.shape[tensor._axis(axis)], "chunk")
    return tensor.split(max(-(-size // count), 1), axis)


def repeat(tensor: Tensor, *counts: int | Sequence[int]) -> Tensor:
    """Return it repeated whole along each axis; more counts than axes put new ones in front."""
    given = cast("Sequence[int]", counts[0] if len(counts) == 1 and isinstance(counts[0], (tuple, list)) else counts)
    given = [whole_number(count, "a count") for count in given]
    if len(given) < tensor.ndim or any(count < 0 for count in given):
        raise ValueError(f"repeat of {list(tensor.shape)} by {list(given)}: a count for each axis, none negative")
    shape = (1,) * (len(given) - tensor.ndim) + tensor.shape
    pairs = [(1, size) if count != 1 else (size,) for count, size in zip(given, shape, strict=True)]
    wide = [(count, size) if count != 1 else (size,) for count, size in zip(given, shape, strict=True)]
    made = tensor.reshape([one for pair in pairs for one in pair]).expand([one for pair in wide for one in pair])
    return made.reshape([count * size for count, size in zip(given, shape, strict=True)])


def tile(tensor: Tensor, *counts: int | Sequence[int]) -> Tensor:
    """Return it repeated whole as NumPy's tile: missing counts in front are 1."""
    given = list(
        cast("Sequence[int]", counts[0] if len(counts) == 1 and isinstance(counts[0], (tuple, list)) else counts)
    )
    return tensor.repeat([1] * (tensor.ndim - len(given)) + given)


def repeat_interleave(tensor: Tensor, count: int, axis: int | None = None) -> Tensor:
    """Return each element repeated in place along `axis`, of the flattened tensor for None."""
    if axis is None:
        return tensor.flatten().repeat_interleave(count, 0)
    count = whole_number(count, "a count")
    if count < 0:
        raise ValueError(f"repeat_interleave by {count}: give 0 or more")
    at = tensor._axis(axis)
    wide = (*tensor.shape[: at + 1], count, *tensor.shape[at + 1 :])
    return tensor.unsqueeze(at + 1).expand(wide).flatten(at, at + 1)


def roll(tensor: Tensor, shift: int | Sequence[int], axis: Axes = None) -> Tensor:
    """Return it rotated by `shift` along axes: what leaves at one end comes in at the other. None: as the flattened
    tensor.
    """
    if axis is None:
        if is_list(shift):
            return roll(tensor, sum(whole_number(one, "a shift") for one in shift))
        return tensor.flatten().roll(shift, 0).reshape(tensor.shape)
    shifts = [whole_number(one, "a shift") for one in (shift if is_list(shift) else [shift])]
    axes = [axis] if isinstance(axis, int) else list(axis)
    shifts = shifts * len(axes) if len(shifts) == 1 else shifts
    if len(shifts) != len(axes):
        raise ValueError(f"roll by {shift} along {axis}: as many shifts as axes")
    made = tensor
    for by, one in zip(shifts, axes, strict=True):
        at = tensor._axis(one)
        size = number_of(tensor.shape[at], "roll")
        first = -by % size if size else 0
        if first:
            made = _join([cut(made, at, first, size), cut(made, at, 0, first)], at)
    return made


# windows and strides


def every_nth(tensor: Tensor, axis: int, step: int) -> Tensor:
    """Return every `step`-th element along an axis, the first one first."""
    size = tensor.shape[axis]
    if step == 1:
        return tensor
    count = (size + step - 1) // step
    if isinstance(count, int) and count == 1:
        return cut(tensor, axis, 0, 1)
    made = add_edges(tensor, [(0, count * step - size) if i == axis else (0, 0) for i in range(tensor.ndim)])
    shape = list(tensor.shape)
    shape[axis : axis + 1] = [count, step]
    made = cut(made.reshape(shape), axis + 1, 0, 1)
    shape[axis : axis + 2] = [count]
    return made.reshape(shape)


def windows_along(tensor: Tensor, axis: int, size: int, step: int = 1, dilation: int = 1) -> Tensor:
    """Return windows along an axis, which becomes two, (outputs, size): element (o, k) is the source's o * step + k
    * dilation.

    Repeated `size` times over and cut into rows that start `dilation` further on each, the index stays that very
    sum: `j*i + j*d + o*s` modulo `i` is `j*d + o*s` wherever a window lies inside.
    """
    length = number_of(tensor.shape[axis], "a window")
    count = (length - dilation * (size - 1) - 1) // step + 1
    before, after = tensor.shape[:axis], tensor.shape[axis + 1 :]
    if size == 1:
        return every_nth(tensor, axis, step).unsqueeze(axis + 1)
    if size == step and dilation == 1:
        return cut(tensor, axis, 0, count * step).reshape((*before, count, size, *after))
    turns = max(-((dilation - count * step) // length), 1)
    row = turns * length + dilation
    rounds = -(-size * row // length)
    made = tensor.unsqueeze(axis).expand((*before, rounds, length, *after)).reshape((*before, rounds * length, *after))
    made = cut(made, axis, 0, size * row).reshape((*before, size, row, *after))
    made = cut(made, axis + 1, 0, count * step)
    if step > 1:
        made = cut(made.reshape((*before, size, count, step, *after)), axis + 2, 0, 1)
        made = made.reshape((*before, size, count, *after))
    return made.transpose(axis, axis + 1)


def unfold(tensor: Tensor, axis: int, size: int, step: int = 1) -> Tensor:
    """Return windows of `size` elements, `step` apart, along an axis: that axis counts them, a new last one lies
    inside them.
    """
    if tensor._is_one(axis):
        # windows along the only axis, of which there is one
        return unfold(tensor.reshape((1,)), 0, size, step).reshape((1,) if size else (0,))
    at = tensor._axis(axis)
    length = number_of(tensor.shape[at], "unfold")
    size, step = whole_number(size, "a size"), whole_number(step, "a step")
    if not 0 <= size <= length or step < 1:
        raise ValueError(
            f"unfold of axis {axis} of {list(tensor.shape)} into windows of {size}, {step} apart: 0 to {length}, a step of 1 or more"
        )
    if size == 0:
        # as many as start inside or at the end
        ended = add_edges(tensor, [(0, int(i == at)) for i in range(tensor.ndim)])
        return cut(unfold(ended, at, 1, step), tensor.ndim, 0, 0)
    return as_copy(windows_along(tensor, at, size, step).movedim(at + 1, -1), "windows of a tensor (unfold)")


def diagonal(tensor: Tensor, offset: int = 0, first: int = 0, second: int = 1) -> Tensor:
    """Return the elements (i, i + offset) of two axes as a new last axis."""
    a, b = tensor._axis(first), tensor._axis(second)
    if a == b:
        raise ValueError(f"diagonal of {list(tensor.shape)}: axes {first} and {second} are the same")
    made, offset = tensor.movedim((a, b), (-2, -1)), whole_number(offset, "an offset")
    height, width = (number_of(size, "diagonal") for size in made.shape[-2:])
    count = max(min(height + min(offset, 0), width - max(offset, 0)), 0)
    at = made.ndim - 2
    start_row, start_column = max(-offset, 0), max(offset, 0)
    if count == 0:
        return cut(cut(made, at, 0, 0), at + 1, 0, min(width, 1)).reshape((*made.shape[:-2], 0))
    made = cut(made, at, start_row, start_row + count)
    made = cut(made, at + 1, start_column, start_column + count)
    lead = made.shape[:-2]
    # in rows of one more, the diagonal is the first column
    rows = add_edges(made.reshape((*lead, count * count)), [(0, 0)] * at + [(0, count)])
    return as_copy(cut(rows.reshape((*lead, count, count + 1)), at + 1, 0, 1).reshape((*lead, count)), "a diagonal")


def _shrunk(node: Node, pairs: tuple[tuple[Int, Int], ...]) -> Node:
    return nodes.node(Op.SHRINK, node.dtype, tuple(stop - start for start, stop in pairs), (node,), pairs)


def _flipped(node: Node, axes: tuple[int, ...]) -> Node:
    return nodes.node(Op.FLIP, node.dtype, node.shape, (node,), axes)


def meshgrid(*tensors: Any, indexing: str = "ij") -> list[Tensor]:
    """Return each 1-d tensor spread over the grid of all; `indexing` ij or xy as NumPy has it. They are given one by
    one, or as a list.
    """
    if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)):
        tensors = tuple(tensors[0])
    if indexing not in ("ij", "xy"):
        raise ValueError(f"meshgrid indexing {indexing!r}: ij or xy")
    shape = broadcast_shapes(*(one.reshape((-1, *[1] * (len(tensors) - 1 - i))).shape for i, one in enumerate(tensors)))
    made = [one.reshape((-1, *[1] * (len(tensors) - 1 - i))).expand(shape) for i, one in enumerate(tensors)]
    return [one.transpose(0, 1) for one in made] if indexing == "xy" and len(tensors) > 1 else made
