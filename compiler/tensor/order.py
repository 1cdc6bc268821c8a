"""Assignments put in an order that can be kept: what a graph with STOREs has to satisfy, and the CONTIGUOUS nodes that
make it do so.

What the scheduler may count on after `prepared`, events being the AFTER nodes in `graph.ordered`'s order:
- a kernel that reads a state (BUFFER or AFTER) runs before the STORE of the AFTER that follows that state. No value of
  elementwise nodes and views needs both a state and what comes after it: such reads lie behind a CONTIGUOUS, which is
  never fused away.
- a STORE's value reads the state it overwrites only at the very places it writes, or behind a CONTIGUOUS or a REDUCE; a
  REDUCE that reads an overwritten state is therefore not to be fused into a kernel that runs with or after the STORE.
- following the events' order is always possible.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence

from ringup.compiler.graph import index
from ringup.compiler.graph import nodes as graph
from ringup.compiler.graph.complex_parts import has_complex, without_complex
from ringup.compiler.graph.nodes import ELEMENTWISE, LINES, MOVEMENT, Node, Op, Storage
from ringup.errors import CompileError

# views whose every element is one of the buffer's, or a part of one
WRITABLE = frozenset((Op.RESHAPE, Op.PERMUTE, Op.SHRINK, Op.FLIP, Op.REAL, Op.IMAG))
STATES = frozenset((Op.BUFFER, Op.AFTER))
# computed from all of what they read, before anything else happens
_WHOLE = LINES | {Op.CONTIGUOUS, Op.REDUCE}


def state_of(node: Node) -> Node:
    """Return the BUFFER that a state is of."""
    while node.op is Op.AFTER:
        node = node.sources[0]
    return node


def storage_of(node: Node) -> Storage:
    """Return the memory that a state is of."""
    found = state_of(node).arg
    if not isinstance(found, Storage):
        raise CompileError(f"AFTER stands on {state_of(node)}, which is no memory: it takes a BUFFER or another AFTER")
    return found


def viewed(view: Node) -> Node:
    """Return the state that a STORE's view is of; a CompileError where it is no plain view of one."""
    node = view
    while node.op in WRITABLE:
        node = node.sources[0]
    if node.op not in STATES:
        raise CompileError(
            f"a STORE into {view}: it is a {node.op.value}, not a view (reshape, permute, shrink, flip) of memory"
        )
    return node


def is_view(view: Node, of: Node) -> bool:
    """Return whether a node is a plain view of another, which a STORE can write through."""
    while view is not of and view.op in WRITABLE:
        view = view.sources[0]
    return view is of


def _name(state: Node) -> str:
    storage = storage_of(state)
    return storage.name or f"{storage.dtype}{list(state.shape)}"


def followers(nodes: Sequence[Node]) -> dict[Node, Node]:
    """Return the AFTER that follows each overwritten state in ordered nodes; a CompileError where an assignment cannot
    be.
    """
    found: dict[Node, Node] = {}
    for node in nodes:
        if node.op is not Op.AFTER:
            continue
        before = node.sources[0]
        if found.setdefault(before, node) is not node:
            raise CompileError(
                f"{_name(before)} is assigned twice from the same state, in branches of one graph: assign one after the other"
            )
        for store in node.sources[1:]:
            if store.op is not Op.STORE:
                raise CompileError(f"an AFTER of {_name(before)} waits for {store}, which is no STORE")
            if viewed(store.sources[0]) is not before:
                other = _name(viewed(store.sources[0]))
                raise CompileError(
                    f"an AFTER of {_name(before)} waits for a STORE into another state, of {other}: no order of the two is right"
                )
    return found


def finals(nodes: Sequence[Node]) -> dict[Storage, Node]:
    """Return the last state of every memory that the graphs write."""
    after = followers(graph.ordered(nodes))
    return {storage_of(node): node for node in after.values() if node not in after}


def open_sizes(node: Node) -> list[str]:
    """Return names of the symbolic sizes in a node's own shape and argument."""
    return [str(atom.parts[0]) for atom in _sizes(node)]


def given_sizes(nodes: Sequence[Node], sizes: Mapping[str, int]) -> dict[str, int]:
    """Return sizes as plain numbers. Raises `ValueError` for a name that is no size of the graphs, `TypeError` for what
    is no whole number.
    """
    if not sizes:
        return {}
    known = {str(atom.parts[0]): f"{atom.lo} to {atom.hi}" for node in graph.ordered(nodes) for atom in _sizes(node)}
    for name, value in sizes.items():
        if name not in known:
            there = ", ".join(f"{one} ({bounds})" for one, bounds in known.items())
            has = f"it has {there}" if there else "none of its sizes is open"
            raise ValueError(f"{name}={value!r}: the tensor has no size {name}; {has}")
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise TypeError(f"{name} is a whole number, {known[name]}, not {value!r}")
    return {name: operator.index(value) for name, value in sizes.items()}


def _sizes(node: Node) -> list[index.Atom]:
    found = [size for size in node.shape if not isinstance(size, int)]
    if node.op is Op.SHRINK or node.op is Op.PAD:
        pairs = node.arg if node.op is Op.SHRINK else node.arg[0]
        found += [one for pair in pairs for one in pair if not isinstance(one, int)]
    if node.op is Op.SIZE:
        found.append(node.arg)
    return [atom for one in found for atom in index.variables(one)]


def check_bounds(roots: Sequence[Node], sizes: Mapping[str, int]) -> None:
    """Raise for symbolic bounds that leave their axis with the sizes given, and for sizes that are missing or out of
    range.
    """
    for node in graph.ordered(roots):
        if node.op is Op.SHRINK and open_sizes(node):
            for axis, ((start, stop), size) in enumerate(zip(node.arg, node.sources[0].shape, strict=True)):
                low, high, most = (index.evaluate(one, sizes) for one in (start, stop, size))
                if not 0 <= low <= high <= most:
                    raise IndexError(
                        f"axis {axis} of {list(node.sources[0].shape)} from {start} to {stop} is {low} to {high} of {most} with {dict(sizes)}"
                    )
        elif open_sizes(node):
            for size in node.shape:
                index.evaluate(size, sizes)


def prepared(roots: Sequence[Node]) -> list[Node]:
    """Return graphs of the same values, of shared nodes, in which the order above can be kept; detached values are
    plain again, and complex numbers pairs of real ones, a last axis of 2 in the roots.
    """
    roots = graph.shared(roots)
    nodes = graph.ordered(roots)
    if has_complex(nodes):
        roots = without_complex(roots)
        nodes = graph.ordered(roots)
    after = followers(nodes)
    events = {node: place for place, node in enumerate(one for one in nodes if one.op is Op.AFTER)}
    made: dict[Node, Node] = {}
    # the last event that a node needs
    latest: dict[Node, int] = {}
    # the first event that overwrites what a node reads, seen through all but CONTIGUOUS
    until: dict[Node, int] = {}
    # the same, not seen through REDUCE either
    near: dict[Node, int] = {}
    never = len(events)
    for node in nodes:
        if graph.is_stop(node):
            (source,) = node.sources
            made[node], latest[node], until[node], near[node] = (
                made[source],
                latest[source],
                until[source],
                near[source],
            )
            continue
        latest[node] = max((latest[source] for source in node.sources), default=-1)
        sources = [made[source] for source in node.sources]
        if node.op in STATES:
            latest[node] = max(latest[node], events.get(node, -1))
            until[node] = near[node] = events[after[node]] if node in after else never
        elif node.op is Op.STORE:
            view, value = node.sources
            if near[value] < never and _must_wait(view, value, events[after[viewed(view)]], near):
                sources[1] = _kept(sources[1])
            until[node] = near[node] = never
        else:
            for place, source in enumerate(node.sources):
                if until[source] <= latest[node]:
                    sources[place] = _kept(sources[place])
            kept = [until[source] if until[source] > latest[node] else never for source in node.sources]
            until[node] = never if node.op is Op.CONTIGUOUS else min(kept, default=never)
            close = [near[source] if until[source] > latest[node] else never for source in node.sources]
            near[node] = never if node.op in _WHOLE else min(close, default=never)
        same = all(one is other for one, other in zip(sources, node.sources, strict=True))
        made[node] = node if same else graph.node(node.op, node.dtype, node.shape, tuple(sources), node.arg)
    return [made[root] for root in roots]


def _kept(node: Node) -> Node:
    """Return a value stored in memory: where it is fewest elements, and below the views of them, so that several views
    are of one copy.
    """
    least, views = node, []
    below = node
    above: list[Node] = []
    while below.op in MOVEMENT:
        above.append(below)
        below = below.sources[0]
        if _most(below) <= _most(least):
            least, views = below, list(above)
    made = least if least.op is Op.CONTIGUOUS else graph.node(Op.CONTIGUOUS, least.dtype, least.shape, (least,))
    for view in reversed(views):
        made = graph.node(view.op, view.dtype, view.shape, (made,), view.arg)
    return made


def _most(node: Node) -> int:
    """Return the greatest number of elements that a node may have."""
    return index.bounds(node.size)[1]


def _must_wait(view: Node, value: Node, event: int, near: Mapping[Node, int]) -> bool:
    """Return whether a STORE's value has to be whole before the first element is written: it reads states that are
    overwritten by then, or its own state anywhere but at the places it writes.
    """
    todo, seen = [value], {value}
    while todo:
        node = todo.pop()
        if node is view or near[node] > event:
            continue
        if node.op not in ELEMENTWISE:
            return True
        for source in node.sources:
            if source not in seen:
                seen.add(source)
                todo.append(source)
    return False
