"""Parts of buffers that differ in their place only: a kernel gets the address of the part, so that the steps of an
unrolled loop (`x[:, 0]`, `x[:, 1]`, …) share one kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from ringup.compiler.graph.nodes import Node, Op, Storage, node
from ringup.compiler.schedule.kernel import Fold, Kernel, Pool, memory_of, viewed

# Bytes. The lowerings know that buffers begin at such an address, and load so many bytes at once.
ALIGN = 16


class Place(NamedTuple):
    """Where a node's memory is: a byte of another node's."""

    node: Node
    offset_bytes: int


def shifted(kernel: Kernel) -> tuple[Kernel, dict[Node, Place]]:
    """Return the kernel with each part of a buffer that it reads moved to the buffer's start, and the places of its new
    nodes.

    It changes only buffers of which the kernel reads one part, does not write, and whose part begins at a multiple of
    `ALIGN`. Kernels that read at indices known at run time, and attentions, are left as they are.
    """
    # what other kernels have computed stays as it is, though it may be made of the same parts
    nodes = list(_computed(kernel))
    parts = {part.sources[0]: part for part in nodes if _begins_inside(part)}
    if not parts or kernel.attention is not None or any(one.op is Op.GATHER for one in nodes):
        return kernel, {}
    written = {memory_of(viewed(root)) for root in kernel.roots if root.op is Op.STORE}
    users: dict[Node, int] = {}
    for one in nodes:
        for source in one.sources:
            users[source] = users.get(source, 0) + 1
    read = set(kernel.inputs) - written
    parts = {whole: part for whole, part in parts.items() if users[whole] == 1 and whole in read}
    if not parts:
        return kernel, {}
    places: dict[Node, Place] = {}
    new: dict[Node, Node] = {}
    for whole, part in parts.items():
        storage: Storage = whole.arg
        moved = Storage(storage.dtype, storage.size, storage.name)
        leaf = new[whole] = node(Op.BUFFER, whole.dtype, whole.shape, (), moved)
        places[leaf] = Place(whole, _offset_bytes(part))
        bounds = tuple((0, stop - start) for start, stop in part.arg)
        new[part] = node(Op.SHRINK, part.dtype, part.shape, (leaf,), bounds)
    for one in nodes:
        if one not in new and any(source in new for source in one.sources):
            sources = tuple(new.get(source, source) for source in one.sources)
            new[one] = node(one.op, one.dtype, one.shape, sources, one.arg)
    places.update((new[root], Place(root, 0)) for root in kernel.roots if root in new)
    return _in_new_nodes(kernel, new), places


def _begins_inside(part: Node) -> bool:
    """Return whether a node is the part of a buffer that begins at a known place other than its start."""
    if part.op is not Op.SHRINK or part.sources[0].op is not Op.BUFFER:
        return False
    sizes = [*part.sources[0].shape, *(bound for pair in part.arg for bound in pair)]
    if not all(isinstance(size, int) for size in sizes):
        return False
    offset = _offset_bytes(part)
    return offset > 0 and offset % ALIGN == 0


def _offset_bytes(part: Node) -> int:
    """Return the byte of a buffer where a part of it begins."""
    place = 0
    for (start, _), size in zip(part.arg, part.sources[0].shape, strict=True):
        place = place * size + start
    return int(place) * part.dtype.size_bytes


def _computed(kernel: Kernel) -> Iterator[Node]:
    """Yield the nodes that a kernel computes, sources first; not the inputs it reads."""
    done = set(kernel.inputs)
    stack = [(root, False) for root in reversed(kernel.roots)]
    while stack:
        one, is_ready = stack.pop()
        # a state that the kernel only writes into is of another kernel's making
        if one in done or (one.op is Op.AFTER and not kernel.forwards(one)):
            continue
        if is_ready:
            done.add(one)
            yield one
            continue
        stack.append((one, True))
        stack.extend((source, False) for source in one.sources)


def _in_new_nodes(kernel: Kernel, new: Mapping[Node, Node]) -> Kernel:
    """Return a kernel whose nodes are replaced."""

    def moved(fold: Fold) -> Fold:
        return replace(fold, node=new.get(fold.node, fold.node))

    folds = [moved(fold) for fold in kernel.folds]
    pool = kernel.pool
    if pool is not None:
        pool = Pool(folds[kernel.folds.index(pool.fold)], pool.sides)
    return replace(
        kernel,
        root=new.get(kernel.root, kernel.root),
        folds=folds,
        inputs=[new.get(one, one) for one in kernel.inputs],
        line=None if kernel.line is None else moved(kernel.line),
        pool=pool,
        beside=tuple(new.get(one, one) for one in kernel.beside),
    )
