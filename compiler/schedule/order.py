"""The order of kernels, and the places of intermediate results in the arena."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ringup.compiler.graph.index import bounds, product
from ringup.compiler.graph.nodes import Node, Op, shared
from ringup.compiler.schedule.cut import Cut
from ringup.compiler.schedule.dependences import is_in_memory
from ringup.compiler.schedule.kernel import Kernel, memory_of, states_before, viewed
from ringup.compiler.schedule.merge_kernels import joined
from ringup.compiler.schedule.rewrite import rewritten
from ringup.compiler.schedule.shift_inputs import Place, shifted
from ringup.errors import CompileError

# Bytes. The alignment of every piece of the arena.
ALIGN = 256


def waits(kernels: Mapping[Node, Kernel]) -> dict[Kernel, dict[Kernel, None]]:
    """Return the predecessors of each kernel: the makers of its inputs, and every reader of an older state of memory
    that it overwrites.
    """
    before: dict[Kernel, dict[Kernel, None]] = {kernel: {} for kernel in kernels.values()}
    readers: dict[Node, list[Kernel]] = {}
    for kernel in kernels.values():
        for node in kernel.inputs:
            readers.setdefault(node, []).append(kernel)
            for needed in _makers(node, kernels):
                before[kernel][needed] = None
    for kernel in kernels.values():
        if kernel.root.op is not Op.STORE:
            continue
        state = viewed(kernel.root)
        for needed in _makers(state, kernels):
            before[kernel][needed] = None
        for older in states_before(kernel.root):
            for reader in readers.get(older, []):
                if reader is not kernel:
                    before[kernel][reader] = None
    return before


def _makers(node: Node, kernels: Mapping[Node, Kernel]) -> list[Kernel]:
    if node in kernels:
        return [kernels[node]]
    found: list[Kernel] = []
    while node.op is Op.AFTER:
        found += [kernels[store] for store in node.sources[1:]]
        node = node.sources[0]
    if node in kernels:
        found.append(kernels[node])
    return found


def in_order(before: Mapping[Kernel, Mapping[Kernel, None]]) -> list[Kernel]:
    """Sort kernels so that each comes after its predecessors.

    Raises CompileError where there is no such order: something needs the value from before a store, and the store
    itself depends on it.
    """
    done: dict[Kernel, None] = {}
    waiting: dict[Kernel, None] = {}
    for start in before:
        stack = [(start, iter(before[start]))] if start not in done else []
        waiting = {start: None}
        while stack:
            kernel, rest = stack[-1]
            following = next((one for one in rest if one not in done), None)
            if following is None:
                done[kernel] = None
                waiting.pop(kernel, None)
                stack.pop()
            elif following in waiting:
                raise CompileError(
                    f"computing {following.root} needs a value that {kernel.root} overwrites, and that store depends on the"
                    " result: copy the value first (contiguous())"
                )
            else:
                waiting[following] = None
                stack.append((following, iter(before[following])))
    return list(done)


@dataclass(frozen=True)
class Plan:
    """The kernels in order, for `outputs` (the given nodes, rewritten).

    `places`: the byte offset of each intermediate node in one arena of `arena_bytes`. Outputs have memory of their own.
    `moved`: nodes of the kernels that stand for a place in another node's memory.
    """

    outputs: tuple[Node, ...]
    kernels: tuple[Kernel, ...]
    places: Mapping[Node, int]
    arena_bytes: int
    moved: Mapping[Node, Place]


def plan(outputs: Sequence[Node]) -> Plan:
    """Return the plan that computes the outputs."""
    outputs = rewritten(shared(outputs))
    before = waits(Cut(outputs).kernels)
    kernels = _with_elements(in_order(before))
    # where none were merged, those without elements are there again
    kernels = _with_elements(in_order(joined(kernels, before, outputs)))
    kept = {memory_of(one) for one in outputs}
    last: dict[Node, int] = {}
    for i, kernel in enumerate(kernels):
        for node in kernel.inputs:
            last[memory_of(node)] = i
        for root in kernel.roots:
            if root.op is Op.STORE:
                last[memory_of(viewed(root))] = i
    free = _Arena()
    ending: dict[int, list[Node]] = {}
    places: dict[Node, int] = {}
    for i, kernel in enumerate(kernels):
        for root in kernel.roots:
            if root.op is not Op.STORE and root not in kept and not is_in_memory(root):
                places[root] = free.take(bounds(root.size)[1] * root.dtype.size_bytes)
                ending.setdefault(last.get(root, i), []).append(root)
        for node in ending.pop(i, []):
            free.give(places[node], bounds(node.size)[1] * node.dtype.size_bytes)
    moved: dict[Node, Place] = {}
    for i, kernel in enumerate(kernels):
        kernels[i], new = shifted(kernel)
        moved.update(new)
    return Plan(tuple(outputs), tuple(kernels), places, free.highest, moved)


def _with_elements(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Return the kernels that compute anything: one launched for nothing would store an element all the same."""
    return [kernel for kernel in kernels if bounds(product(kernel.shape))[1]]


class _Arena:
    """A first-fit allocator."""

    def __init__(self) -> None:
        self.highest = 0
        # (first byte, end) of each piece, by address.
        self._taken: list[tuple[int, int]] = []

    def take(self, size_bytes: int) -> int:
        size = -(-max(size_bytes, 1) // ALIGN) * ALIGN
        place = 0
        for i, (first, behind) in enumerate(self._taken):
            if first - place >= size:
                self._taken.insert(i, (place, place + size))
                return place
            place = behind
        self._taken.append((place, place + size))
        self.highest = max(self.highest, place + size)
        return place

    def give(self, place: int, size_bytes: int) -> None:
        size = -(-max(size_bytes, 1) // ALIGN) * ALIGN
        self._taken.remove((place, place + size))
