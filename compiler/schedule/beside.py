"""Kernels put together: roots of the same shape become one kernel, where they share memory or are few elements.

Each element of all roots is computed by the same thread, which reads all that it needs before it stores any of them. So
a root may use what another one makes, or overwrites, at its own element and nowhere else. A step of an optimiser is
such a kernel: the gradient, its running means and the parameter. What only roots of the kernel itself use is not stored
at all.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ringup.compiler.graph.index import Int, atom_of, axis, bounds, product, substitute
from ringup.compiler.graph.nodes import Node, Op, Shape
from ringup.compiler.schedule.kernel import MAX_FOLDS, Access, Fold, Kernel, accesses, memory_of, shape_of, viewed
from ringup.compiler.schedule.needs import is_contraction
from ringup.compiler.schedule.views import flat, in_shape, squeezed, written
from ringup.compiler.schedule.work import HEAVY

MAX_ROOTS = 8  # of one kernel: each has code of its own, and memory
MAX_INPUTS = 24
# instructions of other roots for an element of a contraction: few threads do many elements, one after the other
MAX_DISTANCE = 50
MAX_COMPARED = 16  # kernels of a shape, the latest, that one is held beside
SMALL_KERNEL_LIMIT = 8192  # so few are done in less time than it takes to start a kernel: they need share nothing
Before = Mapping[Kernel, Mapping[Kernel, None]]  # kernels that run before each


class Reads(NamedTuple):
    """What a kernel reads: for its roots themselves, and inside of folds."""

    own: list[Access]
    folded: list[Access]


@dataclass(eq=False, slots=True)
class _Group:
    """Kernels that become `kernel`. `number` is its bit in `above`: the groups that run before it, by whatever way.

    `multiplies`: its first kernel is a contraction, the others are none.
    """

    number: int
    kernel: Kernel
    members: list[Kernel]
    above: int
    multiplies: bool
    reads: Reads | None = None  # known when it was asked for


def joined(kernels: Sequence[Kernel], before: Before, outputs: Collection[Node]) -> Before:
    """Return kernels, given in an order that can be, put together where they may be, each with those that run before
    it.
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
            if any(one.above >> group.number & 1 for one in between):
                continue  # one that needs the group comes before the kernel
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
    """Note that a group, and with it whatever comes behind it, comes behind others too."""
    bits = _above(needed)
    group.above |= bits
    for other in groups:
        if other.above >> group.number & 1:
            other.above |= bits


def _together(group: _Group, kernel: Kernel) -> Kernel | None:
    """Return a group's kernel with one root more, None where it may not be or is not worth it."""
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
    """Return whether two kernels without folds have so few elements that they go together whatever they read."""
    return not first.folds and not second.folds and bounds(product(first.shape))[1] <= SMALL_KERNEL_LIMIT


def _may_share(first: Kernel, second: Kernel) -> bool:
    """Return whether kernels, neither of which uses the other's root, may be worth reading memory for together."""
    return _are_few(first, second) or not set(map(memory_of, first.inputs)).isdisjoint(map(memory_of, second.inputs))


def _moved(kernel: Kernel, first: Kernel) -> Kernel | None:
    """Return a kernel in terms of the axes of another one of the same shape, None where their folds do not go together.

    Folds over as many elements have the same variables, so that one walk does for all of them.
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
    """Return the variables of a fold: those of another one over the same sizes, or new ones."""
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
    """Return whether two kernels read an element for each of theirs, or of their folds', from the same place."""
    for mine, theirs in zip(first, second, strict=True):
        places = {_place(one) for one in mine if not isinstance(_place(one)[1], int)}
        if any(_place(one) in places for one in theirs):
            return True
    return False


def _forwarded(first: Kernel, targets: Mapping[Node, Node], reads: Reads) -> set[Node] | None:
    """Return what of a kernel's reads are values of the first one's roots, None where they may not be.

    They may not be at other elements, or of a memory of which a part was written; nor what was asked to lie in memory:
    that parts kernels.
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
    """Return whether what a kernel writes is read by the roots it goes beside at their own elements only, and written
    by none of them.

    ORDER: threads that share a row, and read its element inside of a fold, have all done so when the fold is put
    together.
    """
    if kernel.root.op is not Op.STORE:
        return True
    target = memory_of(viewed(kernel.root))
    place = (target, written(kernel.root, kernel.axes))
    return target not in targets and all(
        _place(one) == place for one in (*reads.own, *reads.folded) if memory_of(one.node) is target
    )


def _drop_unread(groups: Sequence[_Group], outputs: Collection[Node]) -> None:
    """Leave out roots that nothing outside of their kernel reads."""
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
