"""Places and classes given as tensors: negative places count from the end, as NumPy's do. What lies outside reads 0 and
is not written; inside `checked()` it is an IndexError when the graph is evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from ringup.compiler.graph import dtypes, index
from ringup.compiler.graph import nodes as graph
from ringup.compiler.graph.index import Int
from ringup.compiler.graph.nodes import Node, Op
from ringup.compiler.tensor.core import Core

if TYPE_CHECKING:
    from ringup.compiler.tensor.tensor import Tensor

_checking: ContextVar[bool] = ContextVar("ringup checked", default=False)


@dataclass(frozen=True)
class Check:
    """That `places` lie in `low` to below `size`; `names` are the operations that need it."""

    names: tuple[str, ...]
    places: Node
    low: Int
    size: Int


# by the node that a place goes into: WHERE or MIN of `counted`, EQ of a class
CHECKS: WeakKeyDictionary[Node, Check] = WeakKeyDictionary()


@contextmanager
def checked() -> Iterator[None]:
    """Raise an IndexError, while the block runs, when a graph is evaluated in which a tensor holds a place or a class
    outside of what it is a place of. It names the operation, the place and the bound.

    The graph may have been made outside of the block. Each check is computed together with the graph. After an error,
    an assignment in the graph has happened, without what lay outside.
    """
    token = _checking.set(True)
    try:
        yield
    finally:
        _checking.reset(token)


def counted(places: Tensor, size: Int, name: str) -> Tensor:
    """Return places along an axis of `size`, negative ones counted from its end. What lies outside stays outside."""
    most = index.bounds(size)[1]
    signed = places.dtype.kind == "int"
    needed = dtypes.int64 if most >= 1 << 31 else dtypes.int32 if signed else dtypes.uint32
    wide = places if places.dtype.bits >= needed.bits else places.cast(needed)
    ends = wide._lift(size).cast(wide.dtype)
    made = (wide < 0).where(wide + ends, wide) if signed else wide.minimum(ends)
    watch(made, name, places, -size if signed else 0, size)
    return made


def watch(made: Core, name: str, places: Core, low: Int, size: Int) -> None:
    """Remember that `made` needs `places` in `low` to below `size`."""
    known = CHECKS.get(made.node)
    names = (name,) if known is None else tuple(dict.fromkeys((*known.names, name)))
    CHECKS[made.node] = Check(names, places.node, low, size)


def follow(node: Node, other: Node, moved: Callable[[Node], Node]) -> None:
    """Check `other`, which takes the place of `node`, as that one is; `moved` gives what takes a node's place."""
    if node in CHECKS and other not in CHECKS:
        CHECKS[other] = replace(CHECKS[node], places=moved(CHECKS[node].places))


def pending(nodes: Sequence[Node]) -> list[Check]:
    """Return the checks of graphs, none outside of `checked`."""
    if not _checking.get():
        return []
    return list(dict.fromkeys(CHECKS[node] for node in graph.ordered(nodes) if node in CHECKS))


def extremes(checks: Sequence[Check]) -> list[Node]:
    """Return the greatest and the least place of each check, as graphs."""
    return [graph.reduce(op, one.places, range(len(one.places.shape))) for one in checks for op in (Op.MAX, Op.MIN)]


def broken(checks: Sequence[Check], data: Sequence[Any], sizes: Mapping[str, int]) -> IndexError | None:
    """Return the error of the first check that does not hold, from the bytes of `extremes`."""
    for i, one in enumerate(checks):
        kind = np.dtype(one.places.dtype.numpy)
        greatest, least = (int(np.frombuffer(part, kind, 1)[0]) for part in data[2 * i : 2 * i + 2])
        low, size = (index.evaluate(edge, sizes) for edge in (one.low, one.size))
        # of no places the least is the greatest number there is
        if least > greatest or (low <= least and greatest < size):
            continue
        worst = greatest if greatest >= size else least
        return IndexError(f"{' or '.join(one.names)}: {worst} lies outside of {low} to {size - 1}")
    return None
