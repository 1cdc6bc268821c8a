"""From graphs to bytes: who evaluates, what comes back, and what becomes of the tensors that looked at memory about to
change.

The rule of assignment. `t.assign(x)` makes the tensor's node AFTER(state, STORE(view of state, x)); a state is a BUFFER
or an earlier AFTER, and whoever read a state before (as a graph) reads that state, not a later one. States of one
memory form a line: each has one successor at most. At `realize`, the last state asked for is final. Every live tensor
that still reads an earlier one is realized in the same evaluation (copied, where it has sizes with no value), then the
tensors that read the final state read a new BUFFER of the same memory, and the old ones are marked: a forgotten graph
over them raises a CompileError. Within one evaluation `order.prepared` has made an order possible: see there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, Protocol, cast

from ringup.compiler.graph import index
from ringup.compiler.graph import nodes as graph
from ringup.compiler.graph.nodes import Node, Op, Storage
from ringup.compiler.tensor import history, order, places
from ringup.compiler.tensor.core import LIVE, RULES, Core
from ringup.errors import CompileError


class Evaluator(Protocol):
    """What computes graphs: a card's runtime, or a reference."""

    def evaluate(self, nodes: Sequence[Node], sizes: Mapping[str, int]) -> Sequence[Any]:
        """Return what each node comes to: an object with the buffer protocol, or whose `read()` gives one; row-major,
        little-endian.

        For a node AFTER it is the data of the Storage whose memory was written. The order of reads and writes is
        `order.prepared`'s.
        """
        ...


class Overwritten:
    """What a Storage holds as data once its memory belongs to a later state."""

    def __init__(self, name: str) -> None:
        self.name = name

    def read(self) -> bytes:
        """Raise: these bytes are gone."""
        raise CompileError(
            f"a graph made before an assignment reads {self.name or 'a tensor'} as it was; that memory holds later values now"
        )


class _Unset:
    """Stands for an evaluator where nobody chose one, which None, nowhere, would be."""


_UNSET = _Unset()
_current: ContextVar[Evaluator | _Unset | None] = ContextVar("ringup evaluator", default=_UNSET)


@contextmanager
def device(evaluator: Evaluator | None) -> Iterator[None]:
    """Evaluate graphs there (nowhere for None) while the block runs, whatever the home of their memory."""
    token = _current.set(evaluator)
    try:
        yield
    finally:
        _current.reset(token)


def use(evaluator: Evaluator | None) -> None:
    """Evaluate graphs there from now on, in this context; nowhere for None."""
    _current.set(evaluator)


def chosen(nodes: Sequence[Node]) -> Evaluator | None:
    """Return the evaluator of graphs: the one that was chosen, or else the home of the memory they read; None where
    there is neither. Raises CompileError where memory of two homes meets.
    """
    made = _current.get()
    if isinstance(made, _Unset):
        homes = {
            id(home): home
            for node in graph.ordered(nodes)
            if node.op is Op.BUFFER and (home := getattr(node.arg, "home", None)) is not None
        }
        if len(homes) > 1:
            names = " and ".join(sorted(str(getattr(home, "name", home)) for home in homes.values()))
            raise CompileError(
                f"tensors of {names} meet in one graph: say where to compute it with `ringup.device(card)`, which copies "
                "what lies elsewhere"
            )
        made = cast("Evaluator | None", next(iter(homes.values()), None))
    return made


def current(nodes: Sequence[Node]) -> Evaluator:
    """Return the evaluator of graphs; a CompileError where there is none, or where memory of two homes meets."""
    made = chosen(nodes)
    if made is None:
        raise CompileError(
            'a tensor is to be computed and no card is chosen: use `with ringup.device("pci:..."):`, or make a tensor '
            "of a card with `card.tensor(...)`"
        )
    return made


def bytes_of(data: Any) -> memoryview:
    """Return what an evaluator gave as plain bytes on the host."""
    if not isinstance(data, (bytes, bytearray, memoryview)) and hasattr(data, "read"):
        data = data.read()
    return memoryview(data).cast("B")


def is_data(node: Node) -> bool:
    """Return whether a node's bytes are there already."""
    return node.op is Op.BUFFER and isinstance(node.arg, Storage) and node.arg.data is not None


def is_symbolic(nodes: Sequence[Node]) -> bool:
    """Return whether sizes that are not known yet are anywhere in the graphs."""
    return any(node.op is Op.SIZE or order.open_sizes(node) for node in graph.ordered(nodes))


def evaluate(nodes: Sequence[Node], sizes: Mapping[str, int], evaluator: Evaluator | None = None) -> list[Any]:
    """Return the data of nodes without changing any tensor; they hold no assignments. An IndexError where a check of
    places does not hold.
    """
    made, error = _evaluated(nodes, places.pending(nodes), sizes, evaluator)
    if error is not None:
        raise error
    return made


def _evaluated(
    nodes: Sequence[Node], checks: Sequence[places.Check], sizes: Mapping[str, int], evaluator: Evaluator | None
) -> tuple[list[Any], IndexError | None]:
    """Return the data of nodes, and the error of the first check that does not hold."""
    ready = order.prepared(graph.shared([*nodes, *places.extremes(checks)]) if checks else list(nodes))
    order.check_bounds(ready, sizes)
    made = list((evaluator or current(ready)).evaluate(ready, sizes))
    error = places.broken(checks, [bytes_of(one) for one in made[len(nodes) :]], sizes) if checks else None
    return made[: len(nodes)], error


def realize(tensors: Sequence[Core], sizes: Mapping[str, int]) -> None:
    """Compute tensors together; each stands for a BUFFER afterwards. The module says what happens to others."""
    asked = [one for one in tensors if not is_data(one._node)]
    if not asked:
        order.given_sizes([one._node for one in tensors], sizes)
        return
    readers: list[Core] = []
    copies: list[Node] = []
    while finals := order.finals([one._node for one in asked]):
        readers, copies, pending = _old_readers(asked, finals, sizes)
        if not pending:
            break
        asked += [type(asked[0])._of(one) for one in pending]
    sizes = order.given_sizes([one._node for one in (*tensors, *readers)], sizes)
    nodes = list(
        dict.fromkeys([*(one._node for one in asked), *finals.values(), *(one._node for one in readers), *copies])
    )
    # equal values are computed once and share memory
    values = dict(
        zip(
            nodes,
            graph.shared(
                [graph.node(Op.CONTIGUOUS, one.dtype, one.shape, (one,)) if one in copies else one for one in nodes]
            ),
            strict=True,
        )
    )
    storages, error = _storages(list(dict.fromkeys(values.values())), places.pending(nodes), sizes)
    if error is not None and not finals:
        raise error
    buffers = {one: graph.distinct(storages[value]) for one, value in values.items()}
    owned = {value for value in values.values() if value.op is Op.BUFFER}
    past: dict[Node, Node] = {}
    for one in dict.fromkeys([*asked, *readers]):
        before = one._node
        one._node = buffers[before]
        if before not in finals.values():
            # the first of those who share memory may write there
            one._owns = values[before] not in owned
            owned.add(values[before])
            if before not in copies:
                past[one._node] = before
    history.remember(past)
    _replace({node: buffers[node] for node in [*finals.values(), *copies]})
    for storage in finals:
        storage.data = Overwritten(storage.name)
    # ORDER: the tensors stand for what was written before an error of a check is raised
    if error is not None:
        raise error


def _storages(
    values: Sequence[Node], checks: Sequence[places.Check], sizes: Mapping[str, int]
) -> tuple[dict[Node, Node], IndexError | None]:
    """Return a BUFFER for each of some values: computed, unless it has its bytes already; and the error of the first
    check that does not hold.
    """
    found = {one: one for one in values if is_data(one)}
    wanted = [one for one in values if one not in found]
    home = current(wanted)
    made, error = _evaluated(wanted, checks, sizes, home)
    for one, data in zip(wanted, made, strict=True):
        found[one] = _buffer(one, data, sizes, home)
    return found, error


def _buffer(node: Node, data: Any, sizes: Mapping[str, int], home: Evaluator) -> Node:
    state = order.state_of(node) if node.op is Op.AFTER else None
    name = state.arg.name if state is not None and isinstance(state.arg, Storage) else ""
    made = graph.buffer(node.dtype, tuple(index.evaluate(size, sizes) for size in node.shape), name, data)
    made.arg.home = home
    return made


def _old_readers(
    asked: Sequence[Core], finals: Mapping[Storage, Node], sizes: Mapping[str, int]
) -> tuple[list[Core], list[Node], list[Node]]:
    """Return live tensors that read states which this evaluation overwrites; for those that cannot be computed now,
    the states to copy; and states of other memories that were assigned what reads such states, which are computed too.
    """
    last = set(finals.values())
    # states a node reads that are not the last ones, seen from above
    old: dict[Node, frozenset[Node]] = {}
    # states that come after the last ones, and what reads these: they are left for another evaluation
    beyond: set[Node] = set()
    readers = []
    pending: dict[Storage, Node] = {}
    # nodes whose sizes are not all known
    open_ended: set[Node] = set()
    ends = set(graph.shared(list(last)))
    copies = dict.fromkeys(
        one._node
        for one, value in zip(asked, graph.shared([one._node for one in asked]), strict=True)
        if value.op in order.STATES and value not in ends and order.storage_of(value) in finals
    )
    waiting = [
        one
        for one in LIVE.values()
        # data too: a clone, a view of the whole
        if (not is_data(one._node) or one._node.arg in finals)
        and one._node not in last
        and all(one is not other for other in asked)
    ]
    for node in graph.ordered([one._node for one in waiting]):
        before = node.sources[0] if node.op is Op.AFTER else None
        if before in last or any(source in beyond for source in node.sources):
            beyond.add(node)
        if not sizes.keys() >= set(order.open_sizes(node)) or any(source in open_ended for source in node.sources):
            open_ended.add(node)
        if node in last:
            old[node] = frozenset()
        elif node.op in order.STATES and node not in beyond and order.storage_of(node) in finals:
            old[node] = frozenset((node,))
        else:
            old[node] = frozenset().union(*(old[source] for source in node.sources))
            if node.op is Op.AFTER and old[node] and node not in beyond and node not in open_ended:
                # what reads this state reads no older one through it
                pending[order.storage_of(node)], old[node] = node, frozenset()
    waiting = [one for one in waiting if old[one._node]]
    for one, value in zip(waiting, graph.shared([one._node for one in waiting]), strict=True):
        if value.op not in order.STATES and one._node not in beyond and one._node not in open_ended:
            readers.append(one)
        else:
            copies.update(dict.fromkeys(old[one._node]))
    return readers, [one for one in copies if one not in {reader._node for reader in readers}], list(pending.values())


def _replace(new: Mapping[Node, Node]) -> None:
    """Put nodes in the place of others in the graphs of all live tensors and in what realized values were made of."""
    if not new:
        return
    known = dict(new)
    for tensor in list(LIVE.values()):
        if not is_data(tensor._node) or tensor._node in new:
            tensor._node = substituted(tensor._node, known)
    history.replace(partial(substituted, known=known))


def substituted(root: Node, known: dict[Node, Node]) -> Node:
    """Return the graph with nodes replaced; `known` grows by what was found on the way. Rules of gradients move
    along.
    """
    if root in known:
        return known[root]
    for node in graph.ordered([root], known):
        # a rule's operands, replaced on the way
        if node in known:
            continue
        sources = tuple(known[source] for source in node.sources)
        if all(one is other for one, other in zip(sources, node.sources, strict=True)):
            known[node] = node
            continue
        made = known[node] = graph.node(node.op, node.dtype, node.shape, sources, node.arg)
        places.follow(node, made, lambda one: substituted(one, known))
        if node in RULES and made not in RULES:
            rule, operands = RULES[node]
            RULES[made] = (rule, tuple(substituted(one, known) for one in operands))
    return known[root]


def assigns(nodes: Sequence[Node]) -> bool:
    """Return whether an assignment is anywhere in the graphs."""
    return any(node.op is Op.AFTER for node in graph.ordered(nodes))
