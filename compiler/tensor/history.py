"""What realized values were made of, so that a gradient may be asked through a value that has been looked at.

A realized tensor stands for a BUFFER; `PAST` knows the graph it was made of. The graph is kept alive by the live
tensors that it reads (`Core._pasts`), for nobody else can be the target of a gradient: it goes when they go, or when
the realized value goes. A program that computes each state from the one before and from a constant would never give
memory back, so a graph that reads no tensor made with `requires_grad` is not kept if it is more than `MAX_GENERATIONS`
evaluations deep, or holds more than `MAX_HELD_BYTES` that no live tensor has. What such a graph reads is noted instead,
so that a gradient that needs it is refused, not wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import Token
from typing import NamedTuple
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary, ref

from ringup.compiler.graph import nodes as graph
from ringup.compiler.graph.index import bounds
from ringup.compiler.graph.nodes import Node, Op, Storage
from ringup.compiler.tensor.core import LIVE, RECORDING, Core

MAX_GENERATIONS = 32
MAX_HELD_BYTES = 64 << 20


class Past(NamedTuple):
    """The graph of a realized value and how many evaluations deep it is; what it reads, if it is not kept."""

    before: ref[Node]
    generation: int
    lost: WeakSet[Node] | None = None


PAST: WeakKeyDictionary[Node, Past] = WeakKeyDictionary()
# tensors that want gradients, by identity
LEAVES: WeakValueDictionary[int, Core] = WeakValueDictionary()


def _until_end(token: Token[bool]) -> Iterator[None]:
    try:
        yield
    finally:
        RECORDING.reset(token)


@contextmanager
def no_grad() -> Iterator[None]:
    """Compute without gradients while the block runs: they do not pass what is made in it, as they do not pass
    `detach`. Over a function, as a decorator, it is for each call.
    """
    yield from _until_end(RECORDING.set(False))


# PyTorch's other word; what is made in it may be used by gradients later, as with `no_grad`
inference_mode = no_grad


@contextmanager
def enable_grad() -> Iterator[None]:
    """Compute with gradients while the block runs, inside of `no_grad` too."""
    yield from _until_end(RECORDING.set(True))


def set_grad_enabled(mode: bool) -> AbstractContextManager[None]:
    """Say whether what is computed from now on has gradients; where it is used as a context, until its end."""
    return contextmanager(_until_end)(RECORDING.set(mode))


def is_grad_enabled() -> bool:
    """Return whether what is computed here has gradients."""
    return RECORDING.get()


def made_of(node: Node) -> Node | None:
    """Return what a realized value was before, while that is known; None for other nodes."""
    past = PAST.get(node) if node.op is Op.BUFFER else None
    return None if past is None else past.before()


def origin(node: Node) -> Node:
    """Return the node that a realized value was before, or the node itself."""
    while (before := made_of(node)) is not None:
        node = before
    return node


def lost(node: Node) -> WeakSet[Node] | None:
    """Return what the graph of a realized value reads if that graph is not kept."""
    past = PAST.get(node) if node.op is Op.BUFFER else None
    return None if past is None or past.before() is not None else past.lost


def remember(made: dict[Node, Node]) -> None:
    """Keep what realized values were made of; `made` is (its BUFFER: what it was before). Integers, and what was
    computed without gradients, have none.
    """
    values = {now: before for now, before in made.items() if now.dtype.is_inexact and not graph.is_stop(before)}
    if not values:
        return
    targets: dict[Node, list[Core]] = {}
    for one in list(LIVE.values()):
        if one.dtype.is_inexact and one.node not in values:
            targets.setdefault(origin(one.node), []).append(one)
    for now, before in values.items():
        reads, generation = _reads(before)
        holders = [one for node in reads & targets.keys() for one in targets[node]]
        wanted = any(one.requires_grad for one in holders)
        if wanted or (generation <= MAX_GENERATIONS and _held_bytes(reads) <= MAX_HELD_BYTES):
            PAST[now] = Past(ref(before), generation)
            for one in holders:
                kept: WeakKeyDictionary[Node, Node] = WeakKeyDictionary() if one._pasts is None else one._pasts
                kept[now] = before
                one._pasts = kept
        else:
            PAST[now] = Past(ref(before), generation, WeakSet(reads))


def replace(changed: Callable[[Node], Node]) -> None:
    """Put what `changed` returns in the place of the graphs that are kept."""
    new: dict[Node, Node] = {}
    for now, past in list(PAST.items()):
        before = past.before()
        if before is not None and (after := changed(before)) is not before:
            PAST[now], new[now] = past._replace(before=ref(after)), after
    for one in list(LIVE.values()) if new else []:
        kept = one._pasts
        if kept is not None:
            kept.update({now: new[now] for now in kept if now in new})


def _reads(root: Node) -> tuple[set[Node], int]:
    """Return every node below one, those that realized values were made of included, and how many evaluations deep
    it is.
    """
    found, todo, generation = {root}, [root], 0
    below: Iterable[Node]
    while todo:
        one = todo.pop()
        below = one.sources
        if one.op is Op.BUFFER and (past := PAST.get(one)) is not None:
            before = past.before()
            if before is not None:
                generation, below = max(generation, past.generation), (before,)
            elif past.lost is not None:
                found.update(past.lost)
        for source in below:
            if source not in found:
                found.add(source)
                todo.append(source)
    return found, generation + 1


def _held_bytes(reads: set[Node]) -> int:
    """Return the bytes of memory that graphs keep and no live tensor has."""
    kept = {one.arg for one in reads if one.op is Op.BUFFER}
    if _bytes(kept) <= MAX_HELD_BYTES:
        return 0
    live = {one.node.arg for one in list(LIVE.values()) if one.node.op is Op.BUFFER}
    return _bytes(kept - live)


def _bytes(storages: set[Storage]) -> int:
    return sum(bounds(one.size)[1] * one.dtype.size_bytes for one in storages)
