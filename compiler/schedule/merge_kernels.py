"""Merges kernels with roots of the same shape into one, if they share memory or have few elements.

One thread computes an element of all roots. It reads everything it needs before it stores any of them. So a root may
use, or overwrite, what another root makes at its own element and nowhere else. A step of an optimiser is such a kernel:
the gradient, its running means and the parameter. A value that only roots of its own kernel use is not stored at all.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ringup.compiler.graph.index import Int, atom_of, axis, bounds, product, substitute
from ringup.compiler.graph.nodes import Node, Op, Shape
from ringup.compiler.schedule.dependences import is_contraction
from ringup.compiler.schedule.estimate_work import HEAVY
from ringup.compiler.schedule.kernel import MAX_FOLDS, Access, Fold, Kernel, accesses, memory_of, shape_of, viewed
from ringup.compiler.schedule.views import flat, in_shape, squeezed, written

# Roots of one kernel. Each has its own code and memory.
MAX_ROOTS = 8
MAX_INPUTS = 24
# Instructions that other roots may add for each element of a contraction. A contraction has few threads, each computes
# many elements one after the other.
MAX_DISTANCE = 50
# Only the latest kernels of the same shape are candidates for a merge.
MAX_COMPARED = 16
# Kernels of at most this many elements finish in less time than a launch takes: they are merged even if they share no
# memory.
SMALL_KERNEL_LIMIT = 8192
# For each kernel, the kernels that run before it.
Before = Mapping[Kernel, Mapping[Kernel, None]]


class Reads(NamedTuple):
    """What a kernel reads: for its roots directly, and inside folds."""

    own: list[Access]
    folded: list[Access]


@dataclass(eq=False, slots=True)
class _Group:
    """Kernels that are merged into `kernel`.

    `number`: this group's bit in the `above` of other groups. `above`: the groups that run before this one, directly or
    indirectly. `multiplies`: the first kernel is a contraction, the others are not.
    """

    number: int
    kernel: Kernel
    members: list[Kernel]
    above: int
    multiplies: bool
    # Computed on first use.
    reads: Reads | None = None


def joined(kernels: Sequence[Kernel], before: Before, outputs: Collection[Node]) -> Before:
    """Merge kernels where they may be.

    `kernels` come in a possible order of execution. Returns each resulting kernel with those that run before it.
    """
    by_shape: dict[Shape, list[_Group]] = {}
    of: dict[Kernel, _Group] = {}
    groups: list[_Group] = []
    for kernel in kernels:
        needed = [of[one] for one in before[kernel] if one in of]
        multiplies = any(is_contraction(fold.node) for fold in kernel.folds)
        mates: list[_Group] = []
        if kernel.attention is None and kernel.line is None and kernel.pool is None:
            mates = by_shape.setdefault(squeezed(kernel.shape), [])
        for group in reversed(() if multiplies else mates[-MAX_COMPARED:]):
            between = [one for one in needed if one is not group]
            # A kernel that needs the group runs before this one.
            if any(one.above >> group.number & 1 for one in between):
                continue
            made = _together(group, kernel)
            if made is not None:
                group.kernel, group.reads = made, None
                group.members.append(kernel)
                _put_below(group, between, groups)
                of[kernel] = group
                break
        else:
            of[kernel] = _Group(len(groups), kernel, [kernel], _above(needed), multiplies)
            groups.append(of[kernel])
            mates.append(of[kernel])
    if len(groups) == len(kernels):
        return before
    _drop_unread(groups, outputs)
    return {
        group.kernel: {
            of[one].kernel: None
            for member in group.members
            for one in before[member]
            if one in of and of[one] is not group
        }
        for group in groups
    }


def _above(needed: Sequence[_Group]) -> int:
    bits = 0
    for group in needed:
        bits |= group.above | 1 << group.number
    return bits


def _put_below(group: _Group, needed: Sequence[_Group], groups: Sequence[_Group]) -> None:
    """Record that a group, and all groups after it, run after `needed`."""
    bits = _above(needed)
    group.above |= bits
    for other in groups:
        if other.above >> group.number & 1:
            other.above |= bits


def _together(group: _Group, kernel: Kernel) -> Kernel | None:
    """Return the group's kernel with one more root, None where that is not allowed or does not pay."""
    first = group.kernel
    if len(first.roots) >= MAX_ROOTS or (group.multiplies and kernel.folds):
        return None
    targets = {memory_of(_target(root)): root for root in first.roots}
    uses = any(memory_of(node) in targets for node in kernel.inputs)
    work = first.work + kernel.work
    if work >= HEAVY and (first.folds or kernel.folds or not uses):
        return None
    if group.multiplies and (not uses or work - group.members[0].work > MAX_DISTANCE):
        return None
    if not uses and not _may_share(first, kernel):
        return None
    moved = _moved(kernel, first)
    if moved is None:
        return None
    if group.reads is None:
        group.reads = _reads(first)
    reads = _reads(moved)
    forwarded = _forwarded(first, targets, reads)
    if forwarded is None or not _is_apart(moved, targets, group.reads):
        return None
    if not uses and not _shares(group.reads, reads) and not _are_few(first, moved):
        return None
    known = {fold.node for fold in first.folds}
    inputs = list(dict.fromkeys([*first.inputs, *(node for node in kernel.inputs if node not in forwarded)]))
    if len(inputs) > MAX_INPUTS:
        return None
    return replace(
        first,
        folds=[*first.folds, *(fold for fold in moved.folds if fold.node not in known)],
        inputs=inputs,
        rows=moved.rows if first.rows is None else first.rows,
        beside=(*first.beside, kernel.root),
        work=min(work, HEAVY),
    )


def _target(root: Node) -> Node:
    return viewed(root) if root.op is Op.STORE else root


def _are_few(first: Kernel, second: Kernel) -> bool:
    """Return whether two kernels have no folds and so few elements that they are merged whatever they read."""
    return not first.folds and not second.folds and bounds(product(first.shape))[1] <= SMALL_KERNEL_LIMIT


def _may_share(first: Kernel, second: Kernel) -> bool:
    """Return whether a merge of two kernels, neither of which uses the other's root, could save reads."""
    return _are_few(first, second) or not set(map(memory_of, first.inputs)).isdisjoint(map(memory_of, second.inputs))


def _moved(kernel: Kernel, first: Kernel) -> Kernel | None:
    """Express a kernel in the axes of another one of the same shape; return None where their folds do not fit together.

    Folds over the same sizes share their variables, so that one loop computes all of them.
    """
    axes = in_shape(first.axes, first.shape, kernel.shape)
    atoms = {atom_of(old): new for old, new in zip(kernel.axes, axes, strict=True) if not isinstance(old, int)}
    rows = kernel.rows and frozenset(atom_of(atoms[one]) for one in kernel.rows)
    known = {fold.node: fold for fold in first.folds}
    made: list[Fold] = []
    for fold in kernel.folds:
        point = tuple(substitute(index, atoms) for index in fold.point)
        if fold.node in known:
            if known[fold.node].point != point:
                return None
            made.append(known[fold.node])
        else:
            made.append(Fold(fold.node, point, _variables(fold, [*first.folds, *made])))
    if kernel.folds and first.folds:
        if rows != first.rows or len({*known, *(fold.node for fold in made)}) > MAX_FOLDS:
            return None
        if kernel.folds[0].count != first.folds[0].count:
            return None
    return replace(kernel, axes=axes, folds=made, rows=rows)


def _variables(fold: Fold, others: Sequence[Fold]) -> dict[int, Int]:
    """Return the variables for a fold: those of another fold over the same sizes, or new ones."""
    sizes = _sizes(fold)
    for other in others:
        if _sizes(other) == sizes:
            return dict(zip(fold.variables, other.variables.values(), strict=True))
    shape = fold.node.sources[0].shape
    return {i: axis(f"r{len(others)}_{i}", shape[i]) for i in fold.variables}


def _sizes(fold: Fold) -> list[Int]:
    return [fold.node.sources[0].shape[i] for i in fold.variables]


def _reads(kernel: Kernel) -> Reads:
    own = accesses(kernel.results, kernel.inputs, ())
    folded = accesses([(fold.node.sources[0], fold.inner) for fold in kernel.folds], kernel.inputs, ())
    return Reads(_of_memory(own), _of_memory(folded))


def _of_memory(found: Sequence[Access]) -> list[Access]:
    return [one for one in found if one.node.op is not Op.IOTA]


def _place(access: Access) -> tuple[Node, Int]:
    return memory_of(access.node), flat(access.point, access.node.shape)


def _shares(first: Reads, second: Reads) -> bool:
    """Return whether two kernels read the same place for each of their elements, or for each element of their folds."""
    for mine, theirs in zip(first, second, strict=True):
        places = {_place(one) for one in mine if not isinstance(_place(one)[1], int)}
        if any(_place(one) in places for one in theirs):
            return True
    return False


def _forwarded(first: Kernel, targets: Mapping[Node, Node], reads: Reads) -> set[Node] | None:
    """Return the nodes among the reads that are values of the first kernel's roots, None where the merge is not
    allowed.

    It is not allowed where the read is at another element, where only a part of the memory was written, or where the
    graph asks for a copy in memory (CONTIGUOUS): that separates kernels.
    """
    found: set[Node] = set()
    for access in (*reads.own, *reads.folded):
        root = targets.get(memory_of(access.node))
        if root is None:
            continue
        whole = (
            access.node.op is Op.AFTER
            and access.node.sources[1:] == (root,)
            and root.sources[0] is access.node.sources[0]
        )
        if not whole and (access.node is not root or root.op is Op.CONTIGUOUS):
            return None
        if access.point != first.point_of(root, first.axes):
            return None
        found.add(access.node)
    return found


def _is_apart(kernel: Kernel, targets: Mapping[Node, Node], reads: Reads) -> bool:
    """Return whether a merge keeps the memory that a kernel writes correct: the other roots read it at their own
    element only, and none of them writes it.

    ORDER: threads that share a row, and read its element inside a fold, have all read it when the results of the fold
    are combined.
    """
    if kernel.root.op is not Op.STORE:
        return True
    target = memory_of(viewed(kernel.root))
    place = (target, written(kernel.root, kernel.axes))
    return target not in targets and all(
        _place(one) == place for one in (*reads.own, *reads.folded) if memory_of(one.node) is target
    )


def _drop_unread(groups: Sequence[_Group], outputs: Collection[Node]) -> None:
    """Remove roots that nothing outside their kernel reads."""
    wanted = {memory_of(one) for one in outputs}
    for group in groups:
        wanted.update(memory_of(node) for node in group.kernel.inputs)
        wanted.update(memory_of(viewed(root)) for root in group.kernel.roots if root.op is Op.STORE)
    for group in groups:
        kernel = group.kernel
        left = [root for root in kernel.roots if root.op is Op.STORE or root in wanted]
        if len(left) < len(kernel.roots):
            axes = in_shape(kernel.axes, kernel.shape, shape_of(left[0]))
            group.kernel = replace(kernel, root=left[0], axes=axes, beside=tuple(left[1:]))


__all__ = ["joined"]
