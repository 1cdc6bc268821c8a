"""The same elements elsewhere: shapes changed, axes moved, edges padded and cut, tensors joined and taken apart. All
are views of the nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Self, cast
from weakref import ref

from ringup.compiler.graph import dtypes, index, nodes
from ringup.compiler.graph.dtypes import Scalar
from ringup.compiler.graph.index import Int
from ringup.compiler.graph.nodes import Node, Op
from ringup.compiler.tensor.core import (
    Axes,
    Core,
    as_shape,
    broadcast_shapes,
    is_list,
    is_size,
    number_of,
    spread,
    total,
    whole_number,
)

PADDINGS = ("constant", "reflect", "replicate", "circular")


class Movement(Core):
    """Reshapes, permutations, padding, cutting, joining."""

    __slots__ = ()

    def _view(self, step: Callable[[Node], Node]) -> Self:
        """Return a plain view, which remembers what it is a view of: `assign` on it writes there."""
        made, viewed = self._of(step(self._node)), self._viewed()
        before = self._base[1] if self._base is not None and viewed is not self else ()
        made._base = (ref(viewed), (*before, step))
        return made

    def _viewed(self) -> Self:
        """Return the tensor that writing into views of this one writes: the one it is a view of itself, this one where
        there is none such.
        """
        found = None if self._base is None or self._base[0] is None else self._base[0]()
        return self if found is None else cast("Self", found)

    def _is_view_of(self, other: Core) -> bool:
        """Return whether it is a plain view of another tensor."""
        return self._base is not None and self._base[0] is not None and self._base[0]() is other

    def reshape(self, *sizes: Int | Sequence[Int]) -> Self:
        """Return the elements in row-major order under another shape; one size may be -1 and follows from the
        others.
        """
        wanted = list(sizes[0] if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else sizes)
        for size in wanted:
            if not is_size(size):
                raise TypeError(f"a shape holds whole numbers and sizes, not {size!r}")
        open_ones = [i for i, size in enumerate(wanted) if not isinstance(size, index.Expr) and size == -1]
        if len(open_ones) > 1:
            raise ValueError(f"reshape of {list(self.shape)} to {wanted}: one -1 at most")
        if open_ones:
            wanted[open_ones[0]] = self._missing(wanted)
        shape = as_shape(wanted)
        if total(shape) != self.size:
            raise ValueError(
                f"{list(self.shape)} ({self.size} elements) does not reshape to {list(shape)} ({total(shape)})"
            )
        return self._view(partial(nodes.reshape, shape=shape))

    def _missing(self, wanted: list[Any]) -> Int:
        have, given = list(self.shape), [size for size in wanted if not (isinstance(size, int) and size == -1)]
        for size in list(given):  # equal sizes cancel, so that symbolic ones need no division
            if size in have:
                have.remove(size)
                given.remove(size)
        left, known = total(have), total(given)
        if isinstance(known, int) and known == 0:
            raise ValueError(f"reshape of {list(self.shape)} to {wanted}: -1 beside a size of 0 says nothing")
        found = left // known
        if found * known != left:
            raise ValueError(
                f"{list(self.shape)} ({self.size} elements) does not reshape to {wanted}: no whole number for -1"
            )
        return found

    def view_as(self, other: Core) -> Self:
        """Return the elements under the shape of another tensor."""
        return self.reshape(other.shape)

    def flatten(self, start: int = 0, end: int = -1) -> Self:
        """Return axes `start` to `end` (inclusive) made one."""
        if not self.shape:
            return self.reshape(1)
        first, last = self._axis(start), self._axis(end)
        if first > last:
            raise ValueError(f"flatten of {list(self.shape)} from axis {start} to {end}: they are in the wrong order")
        return self.reshape((*self.shape[:first], total(self.shape[first : last + 1]), *self.shape[last + 1 :]))

    def unflatten(self, axis: int, sizes: Sequence[Int]) -> Self:
        """Return one axis split into several; one of them may be -1."""
        at = self._axis(axis)
        if -1 in sizes:
            rest = total(size for size in sizes if not (isinstance(size, int) and size == -1))
            sizes = [self.shape[at] // rest if isinstance(size, int) and size == -1 else size for size in sizes]
        if total(sizes) != self.shape[at]:
            raise ValueError(f"axis {axis} of {list(self.shape)} does not split into {list(sizes)}")
        return self.reshape((*self.shape[:at], *sizes, *self.shape[at + 1 :]))

    def squeeze(self, axis: Axes = None) -> Self:
        """Return it without axes of size 1: all of them, or those named, which have to be."""
        if axis is None:
            return self.reshape(tuple(size for size in self.shape if size != 1))
        gone = self._axes(axis)
        for one in gone:
            if self.shape[one] != 1:
                raise ValueError(f"squeeze of axis {one} of {list(self.shape)}: it is {self.shape[one]}, not 1")
        return self.reshape(tuple(size for i, size in enumerate(self.shape) if i not in gone))

    def unsqueeze(self, axis: int) -> Self:
        """Return it with an axis of size 1 put in at `axis` of the result."""
        at = self._axis(axis, extra=1)
        return self.reshape((*self.shape[:at], 1, *self.shape[at:]))

    def permute(self, *axes: int | Sequence[int]) -> Self:
        """Return its axes in another order: axis i of the result is axis axes[i] of this."""
        given = cast("Sequence[int]", axes[0] if len(axes) == 1 and isinstance(axes[0], (tuple, list)) else axes)
        order = [self._axis(axis) for axis in given]
        if sorted(order) != list(range(self.ndim)):
            raise ValueError(f"permute of {list(self.shape)} by {list(given)}: every axis once")
        return self._view(partial(nodes.permute, axes=order))

    def transpose(self, first: int = -2, second: int = -1) -> Self:
        """Return it with two axes swapped."""
        a, b = self._axis(first), self._axis(second)
        order = list(range(self.ndim))
        order[a], order[b] = b, a
        return self.permute(order)

    @property
    def T(self) -> Self:
        """Return it with the order of its axes reversed."""
        return self.permute(tuple(range(self.ndim))[::-1])

    @property
    def mT(self) -> Self:
        """Return it with its last two axes swapped."""
        return self.transpose(-2, -1)

    def movedim(self, source: int | Sequence[int], target: int | Sequence[int]) -> Self:
        """Return it with axes at `source` moved to `target`, the others in their order."""
        sources = [source] if isinstance(source, int) else list(source)
        targets = [target] if isinstance(target, int) else list(target)
        start, end = [self._axis(one) for one in sources], [self._axis(one) for one in targets]
        if len(start) != len(end) or len(set(start)) != len(start) or len(set(end)) != len(end):
            raise ValueError(f"movedim of {list(self.shape)} from {source} to {target}: as many, each once")
        order = [axis for axis in range(self.ndim) if axis not in start]
        for to, axis in sorted(zip(end, start, strict=True)):
            order.insert(to, axis)
        return self.permute(order)

    def expand(self, *sizes: Int | Sequence[Int]) -> Self:
        """Return it with axes of size 1 repeated and new ones in front; -1 keeps an axis."""
        wanted = list(sizes[0] if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else sizes)
        have = (1,) * (len(wanted) - self.ndim) + self.shape
        keep = [size if isinstance(new, int) and new == -1 else new for new, size in zip(wanted, have, strict=False)]
        shape = as_shape(keep)
        if len(have) != len(shape) or any(size not in (1, new) for size, new in zip(have, shape, strict=True)):
            raise ValueError(
                f"{list(self.shape)} does not expand to {wanted}: only axes of 1 repeat, new axes come in front"
            )
        return self._of(spread(self._node, shape))

    broadcast_to = expand

    def expand_as(self, other: Core) -> Self:
        """Return it broadcast to the shape of another tensor."""
        return self.expand(other.shape)

    def shrink(self, bounds: Sequence[tuple[Int, Int] | None]) -> Self:
        """Return the part from `start` to before `stop` of each axis; None keeps one whole."""
        if len(bounds) != self.ndim:
            raise ValueError(f"shrink of {list(self.shape)} by {len(bounds)} pairs of bounds: one for each axis")
        pairs = tuple(
            (0, size) if pair is None else (pair[0], pair[1]) for pair, size in zip(bounds, self.shape, strict=True)
        )
        for axis, ((start, stop), size) in enumerate(zip(pairs, self.shape, strict=True)):
            outside = (
                index.bounds(start)[1] < 0 or index.bounds(stop - start)[1] < 0 or index.bounds(size - stop)[1] < 0
            )
            if outside or (isinstance(start, int) and start < 0):
                raise IndexError(f"shrink of axis {axis} of {list(self.shape)} from {start} to {stop}: outside of it")
        return self._shrink(pairs)

    def _shrink(self, pairs: Sequence[tuple[Int, Int]]) -> Self:
        if all(pair == (0, size) for pair, size in zip(pairs, self.shape, strict=True)):
            return self
        return self._view(partial(_shrunk, pairs=tuple(pairs)))

    def _cut(self, axis: int, start: Int, stop: Int) -> Self:
        return self._shrink([(start, stop) if i == axis else (0, size) for i, size in enumerate(self.shape)])

    def flip(self, axis: Axes = None) -> Self:
        """Return it with axes reversed, all of them for None."""
        axes = tuple(one for one in self._axes(axis) if self.shape[one] != 1)
        return self._view(partial(_flipped, axes=axes)) if axes else self

    def _pad(self, widths: Sequence[tuple[Int, Int]], value: Scalar = 0) -> Self:
        if all(pair == (0, 0) for pair in widths):
            return self
        shape = tuple(before + size + after for size, (before, after) in zip(self.shape, widths, strict=True))
        filled = nodes.const(value, self.dtype).arg
        return self._of(
            nodes.node(Op.PAD, self.dtype, shape, (self._node,), (tuple((a, b) for a, b in widths), filled))
        )

    def pad(
        self, widths: int | Sequence[tuple[Int, Int] | int | None], value: Scalar = 0, mode: str = "constant"
    ) -> Self:
        """Return it with edges added: a pair (before, after) or one width for each axis, or one width for all; negative
        ones cut off.

        `mode`: constant (`value`), reflect (mirrored without the edge), replicate (the edge), circular (from the other
        side).
        """
        if mode not in PADDINGS:
            raise ValueError(f"there is no padding {mode!r}; there are {', '.join(PADDINGS)}")
        given = list(widths) if is_list(widths) else [whole_number(widths, "a width")] * self.ndim
        if len(given) != self.ndim:
            raise ValueError(f"pad of {list(self.shape)} by {len(given)} widths: one for each axis")
        pairs: list[tuple[Int, Int]] = [
            (0, 0) if one is None else one if isinstance(one, tuple) else (one, one) for one in given
        ]
        if not all(len(pair) == 2 and all(map(is_size, pair)) for pair in pairs):
            raise TypeError(
                f"pad of {list(self.shape)} by {widths!r}: whole numbers, one or a pair (before, after) for each axis"
            )
        cut = tuple((max(-a, 0) if isinstance(a, int) else 0, size - max(-b, 0) if isinstance(b, int) else size)
                    for (a, b), size in zip(pairs, self.shape, strict=True))  # fmt: skip
        grown = [tuple(max(one, 0) if isinstance(one, int) else one for one in pair) for pair in pairs]
        made = self if cut == tuple((0, size) for size in self.shape) else self.shrink(cut)
        if mode == "constant":
            return made._pad(cast("list[tuple[Int, Int]]", grown), value)
        for axis, (before, after) in enumerate(grown):
            made = made._pad_from_inside(axis, number_of(before, "pad"), number_of(after, "pad"), mode)
        return made

    def _pad_from_inside(self, axis: int, before: int, after: int, mode: str) -> Self:
        if not before and not after:
            return self
        size = number_of(self.shape[axis], f"padding by {mode}")
        most = {"reflect": size - 1, "circular": size, "replicate": before + after if size else 0}[mode]
        if max(before, after) > most:
            raise ValueError(
                f"{mode} padding of axis {axis} of {list(self.shape)} by ({before}, {after}): {most} at most"
            )
        if mode == "reflect":
            parts = [
                self._cut(axis, 1, before + 1).flip(axis),
                self,
                self._cut(axis, size - 1 - after, size - 1).flip(axis),
            ]
        elif mode == "circular":
            parts = [self._cut(axis, size - before, size), self, self._cut(axis, 0, after)]
        else:
            wide = [tuple(n if i == axis else one for i, one in enumerate(self.shape)) for n in (before, after)]
            parts = [self._cut(axis, 0, 1).expand(wide[0]), self, self._cut(axis, size - 1, size).expand(wide[1])]
        return self._join([one for one in parts if one.shape[axis] != 0], axis)

    def _join(self, parts: Sequence[Core], axis: int) -> Self:
        if len(parts) == 1:
            return cast("Self", parts[0])
        shape = list(parts[0].shape)
        shape[axis] = sum((one.shape[axis] for one in parts), 0)
        return self._of(nodes.node(Op.CAT, parts[0].dtype, tuple(shape), tuple(one._node for one in parts), axis))

    def cat(self, *others: object, axis: int = 0) -> Self:
        """Return this and others one after the other along `axis`; the other axes have to be equal."""
        parts = [self, *(self._lift(one, weak=False) for one in others)]
        at = self._axis(axis)
        kind = self.dtype
        for one in parts[1:]:
            if one.ndim != self.ndim or any(
                a != b for i, (a, b) in enumerate(zip(one.shape, self.shape, strict=True)) if i != at
            ):
                raise ValueError(
                    f"cat along axis {axis} of {' and '.join(str(list(part.shape)) for part in parts)}: the other axes differ"
                )
            kind = dtypes.promote(kind, one.dtype)
        return self._join([one.cast(kind) for one in parts], at)

    def stack(self, *others: object, axis: int = 0) -> Self:
        """Return this and others of the same shape side by side along a new axis."""
        parts = [self, *(self._lift(one, weak=False) for one in others)]
        for one in parts:
            if one.shape != self.shape:
                raise ValueError(f"stack of {list(self.shape)} and {list(one.shape)}: shapes differ")
        first, *rest = (one.unsqueeze(axis) for one in parts)
        return first.cat(*rest, axis=axis)

    def split(self, sizes: int | Sequence[int], axis: int = 0) -> list[Self]:
        """Return pieces of `sizes` (all of one size but the last, or as listed) along `axis`."""
        at = self._axis(axis)
        whole = number_of(self.shape[at], "split")
        if not is_list(sizes):
            sizes = whole_number(sizes, "a size")
            if sizes <= 0:
                raise ValueError(f"split of axis {axis} of {list(self.shape)} into pieces of {sizes}: give 1 or more")
            sizes = [min(sizes, whole - start) for start in range(0, whole, sizes)] or [0]
        if sum(sizes) != whole or min(sizes) < 0:
            raise ValueError(f"split of axis {axis} of {list(self.shape)} into {list(sizes)}: they make {sum(sizes)}")
        ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
        return [self._cut(at, end - size, end) for end, size in zip(ends, sizes, strict=True)]

    def chunk(self, count: int, axis: int = 0) -> list[Self]:
        """Return up to `count` pieces of equal size (the last may be smaller) along `axis`."""
        count = whole_number(count, "a count")
        if count <= 0:
            raise ValueError(f"chunk into {count} pieces: give 1 or more")
        size = number_of(self.shape[self._axis(axis)], "chunk")
        return self.split(max(-(-size // count), 1), axis)

    def repeat(self, *counts: int | Sequence[int]) -> Self:
        """Return it repeated whole along each axis; more counts than axes put new ones in front."""
        given = cast(
            "Sequence[int]", counts[0] if len(counts) == 1 and isinstance(counts[0], (tuple, list)) else counts
        )
        given = [whole_number(count, "a count") for count in given]
        if len(given) < self.ndim or any(count < 0 for count in given):
            raise ValueError(f"repeat of {list(self.shape)} by {list(given)}: a count for each axis, none negative")
        shape = (1,) * (len(given) - self.ndim) + self.shape
        pairs = [(1, size) if count != 1 else (size,) for count, size in zip(given, shape, strict=True)]
        wide = [(count, size) if count != 1 else (size,) for count, size in zip(given, shape, strict=True)]
        made = self.reshape([one for pair in pairs for one in pair]).expand([one for pair in wide for one in pair])
        return made.reshape([count * size for count, size in zip(given, shape, strict=True)])

    def tile(self, *counts: int | Sequence[int]) -> Self:
        """Return it repeated whole as NumPy's tile: missing counts in front are 1."""
        given = list(
            cast("Sequence[int]", counts[0] if len(counts) == 1 and isinstance(counts[0], (tuple, list)) else counts)
        )
        return self.repeat([1] * (self.ndim - len(given)) + given)

    def repeat_interleave(self, count: int, axis: int | None = None) -> Self:
        """Return each element repeated in place along `axis`, of the flattened tensor for None."""
        if axis is None:
            return self.flatten().repeat_interleave(count, 0)
        count = whole_number(count, "a count")
        if count < 0:
            raise ValueError(f"repeat_interleave by {count}: give 0 or more")
        at = self._axis(axis)
        wide = (*self.shape[: at + 1], count, *self.shape[at + 1 :])
        return self.unsqueeze(at + 1).expand(wide).flatten(at, at + 1)

    def roll(self, shift: int | Sequence[int], axis: Axes = None) -> Self:
        """Return it turned around by `shift` along axes; what falls off comes in on the other side. None: of the
        flattened tensor.
        """
        if axis is None:
            if is_list(shift):
                raise ValueError("roll by several shifts needs as many axes")
            return self.flatten().roll(shift, 0).reshape(self.shape)
        shifts = [whole_number(one, "a shift") for one in (shift if is_list(shift) else [shift])]
        axes = [axis] if isinstance(axis, int) else list(axis)
        if len(shifts) != len(axes):
            raise ValueError(f"roll by {shift} along {axis}: as many shifts as axes")
        made = self
        for by, one in zip(shifts, axes, strict=True):
            at = self._axis(one)
            size = number_of(self.shape[at], "roll")
            cut = -by % size if size else 0
            if cut:
                made = made._join([made._cut(at, cut, size), made._cut(at, 0, cut)], at)
        return made

    # windows and strides

    def _every(self, axis: int, step: int) -> Self:
        """Return every `step`-th element along an axis, the first one first."""
        size = self.shape[axis]
        if step == 1:
            return self
        count = (size + step - 1) // step
        if isinstance(count, int) and count == 1:
            return self._cut(axis, 0, 1)
        made = self._pad([(0, count * step - size) if i == axis else (0, 0) for i in range(self.ndim)])
        shape = list(self.shape)
        shape[axis : axis + 1] = [count, step]
        made = made.reshape(shape)._cut(axis + 1, 0, 1)
        shape[axis : axis + 2] = [count]
        return made.reshape(shape)

    def _windows(self, axis: int, size: int, step: int = 1, dilation: int = 1) -> Self:
        """Return windows along an axis, which becomes two, (outputs, size): element (o, k) is the source's o * step + k
        * dilation.

        Repeated `size` times over and cut into rows that start `dilation` further on each, the index stays that very
        sum: `j*i + j*d + o*s` modulo `i` is `j*d + o*s` wherever a window lies inside.
        """
        length = number_of(self.shape[axis], "a window")
        count = (length - dilation * (size - 1) - 1) // step + 1
        before, after = self.shape[:axis], self.shape[axis + 1 :]
        if size == 1:
            return self._every(axis, step).unsqueeze(axis + 1)
        if size == step and dilation == 1:
            return self._cut(axis, 0, count * step).reshape((*before, count, size, *after))
        turns = max(-((dilation - count * step) // length), 1)
        row = turns * length + dilation
        rounds = -(-size * row // length)
        made = (
            self.unsqueeze(axis).expand((*before, rounds, length, *after)).reshape((*before, rounds * length, *after))
        )
        made = made._cut(axis, 0, size * row).reshape((*before, size, row, *after))._cut(axis + 1, 0, count * step)
        if step > 1:
            made = (
                made.reshape((*before, size, count, step, *after))
                ._cut(axis + 2, 0, 1)
                .reshape((*before, size, count, *after))
            )
        return made.transpose(axis, axis + 1)

    def unfold(self, axis: int, size: int, step: int = 1) -> Self:
        """Return windows of `size` elements, `step` apart, along an axis: that axis counts them, a new last one lies
        inside them.
        """
        at = self._axis(axis)
        length, size, step = (
            number_of(self.shape[at], "unfold"),
            whole_number(size, "a size"),
            whole_number(step, "a step"),
        )
        if not 1 <= size <= length or step < 1:
            raise ValueError(
                f"unfold of axis {axis} of {list(self.shape)} into windows of {size}, {step} apart: 1 to {length}, a step of 1 or more"
            )
        return self._windows(at, size, step).movedim(at + 1, -1)

    def diagonal(self, offset: int = 0, first: int = 0, second: int = 1) -> Self:
        """Return the elements (i, i + offset) of two axes as a new last axis."""
        a, b = self._axis(first), self._axis(second)
        if a == b:
            raise ValueError(f"diagonal of {list(self.shape)}: axes {first} and {second} are the same")
        made, offset = self.movedim((a, b), (-2, -1)), whole_number(offset, "an offset")
        rows, columns = (number_of(size, "diagonal") for size in made.shape[-2:])
        count = max(min(rows + min(offset, 0), columns - max(offset, 0)), 0)
        at = made.ndim - 2
        start_row, start_column = max(-offset, 0), max(offset, 0)
        if count == 0:
            return made._cut(at, 0, 0)._cut(at + 1, 0, min(columns, 1)).reshape((*made.shape[:-2], 0))
        made = made._cut(at, start_row, start_row + count)._cut(at + 1, start_column, start_column + count)
        lead = made.shape[:-2]
        rows_of_one_more = (
            made.reshape((*lead, count * count))._pad([(0, 0)] * at + [(0, count)]).reshape((*lead, count, count + 1))
        )
        return rows_of_one_more._cut(at + 1, 0, 1).reshape((*lead, count))


def _shrunk(node: Node, pairs: tuple[tuple[Int, Int], ...]) -> Node:
    return nodes.node(Op.SHRINK, node.dtype, tuple(stop - start for start, stop in pairs), (node,), pairs)


def _flipped(node: Node, axes: tuple[int, ...]) -> Node:
    return nodes.node(Op.FLIP, node.dtype, node.shape, (node,), axes)


def meshgrid(*tensors: Movement, indexing: str = "ij") -> list[Movement]:
    """Return each 1-d tensor spread over the grid of all; `indexing` ij or xy as NumPy has it."""
    if indexing not in ("ij", "xy"):
        raise ValueError(f"meshgrid indexing {indexing!r}: ij or xy")
    shape = broadcast_shapes(*(one.reshape((-1, *[1] * (len(tensors) - 1 - i))).shape for i, one in enumerate(tensors)))
    made = [one.reshape((-1, *[1] * (len(tensors) - 1 - i))).expand(shape) for i, one in enumerate(tensors)]
    return [one.transpose(0, 1) for one in made] if indexing == "xy" and len(tensors) > 1 else made
