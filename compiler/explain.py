"""Describes a compiled graph for people: its launches, and for each kernel what it computes, which memory it uses, how
its axes are mapped, and what it costs.

Nothing here formats text for a terminal or a page: `tools/code/explain.py` and `tools/code/explain_page.py` do that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ringup.compiler.compile import Chooser, CompiledGraph, Step, compile_graph, compile_kernel
from ringup.compiler.graph.index import Int
from ringup.compiler.graph.nodes import MOVEMENT, Node, Op, Storage
from ringup.compiler.kernel.common.frame import memory_order
from ringup.compiler.schedule.dependences import is_in_memory
from ringup.compiler.schedule.kernel import Kernel, memory_of
from ringup.compiler.target import DEFAULT, Cost
from ringup.compiler.target import target as find_target
from ringup.compiler.tune import modelled


class Pass(NamedTuple):
    """A kernel after one pass, as text. `level`: machine, or the family of its target."""

    level: str
    name: str
    text: str


class Line(NamedTuple):
    """One node that a kernel computes: its name in the listing, its operation with its operands, its type and shape."""

    name: str
    does: str
    type: str


class Place(NamedTuple):
    """Memory that a launch reads or writes: the argument's name, the contents, the place, the size in bytes."""

    argument: str
    what: str
    where: str
    size_bytes: int
    written: bool


@dataclass(frozen=True)
class Explained:
    """One distinct kernel. `launches`: the numbers of the launches that run it. `cost`: the cost of one launch by the
    model.
    """

    step: Step
    launches: tuple[int, ...]
    nodes: tuple[Line, ...]
    places: tuple[tuple[Place, ...], ...]
    cost: Cost

    @property
    def name(self) -> str:
        """Return the kernel's name."""
        return self.step.binary.name


@dataclass(frozen=True)
class Explanation:
    """A compiled graph with its distinct kernels in the order of their first launch."""

    graph: CompiledGraph
    kernels: tuple[Explained, ...]

    @property
    def bytes_moved(self) -> int:
        """Return the bytes that all launches transfer."""
        return sum(one.cost.bytes_moved * len(one.launches) for one in self.kernels)

    @property
    def flops(self) -> int:
        """Return the floating-point operations of all launches."""
        return sum(one.cost.flops * len(one.launches) for one in self.kernels)

    @property
    def microseconds(self) -> float:
        """Return the modelled time of all launches, one after the other."""
        return sum(one.cost.microseconds * len(one.launches) for one in self.kernels)


def explain(outputs: Sequence[Node], target: str = DEFAULT, *, tuning: Chooser | None = None) -> Explanation:
    """Compile a graph and describe the result. Raises CompileError for what cannot be compiled."""
    steps: list[Step] = []
    graph = compile_graph(outputs, target, watch=steps.append, tuning=tuning)
    by_name: dict[str, list[int]] = {}
    for i, step in enumerate(steps):
        by_name.setdefault(step.binary.name, []).append(i)
    kernels = []
    for numbers in by_name.values():
        step = steps[numbers[0]]
        places = tuple(places_of(steps[i], graph, i) for i in numbers)
        kernels.append(Explained(step, tuple(numbers), tuple(nodes_of(step.kernel)), places, modelled(step)))
    return Explanation(graph, tuple(kernels))


def passes_of(step: Step) -> list[Pass]:
    """Return a kernel's text after each pass. The kernel is compiled again for this."""
    found: list[Pass] = []

    def hear(level: str, name: str, text: str) -> None:
        found.append(Pass(level, name, text))

    compile_kernel(step.kernel, step.signature, step.binary.target, step.choice, hear)
    return found


def assembly_of(step: Step) -> list[str]:
    """Return the machine code as text that can be assembled again, without the padding at its end."""
    return find_target(step.binary.target).assembly(step.binary)


def nodes_of(kernel: Kernel) -> list[Line]:
    """Return what a kernel computes, node by node, from the memory that it reads. A reduction in another kernel is
    marked.
    """
    names: dict[Node, str] = {}
    lines: list[Line] = []
    memory = {node: i for i, node in enumerate(memory_order(kernel))}
    folds = {fold.node for fold in (*kernel.folds, kernel.line) if fold}
    stack: list[tuple[Node, int]] = [(root, 0) for root in reversed(kernel.roots)]
    while stack:
        node, at = stack.pop()
        if node in names:
            continue
        is_input = node in kernel.inputs or (
            node is not kernel.root and is_in_memory(node) and not kernel.forwards(node)
        )
        if not is_input and at < len(node.sources):
            stack += [(node, at + 1), (node.sources[at], 0)]
            continue
        if node.op is Op.CONST:
            names[node] = f"{node.arg}"
            continue
        if is_input:
            names[node] = name = f"m{memory[memory_of(node)]}"
            lines.append(Line(name, f"read from memory ({memory_of(node).op.value})", type_of(node)))
            continue
        names[node] = name = f"t{len(lines)}"
        lines.append(Line(name, does(node, [names[one] for one in node.sources], joined=node in folds), type_of(node)))
    return lines


def does(node: Node, sources: Sequence[str], *, joined: bool = False) -> str:
    """Return the operation of a node, in words."""
    of = ", ".join(sources)
    if node.op is Op.REDUCE:
        op, axes = node.arg
        where = " and ".join(str(axis) for axis in axes)
        return f"{op.value} over axis {where} of {of}" + ("" if joined else " (elsewhere)")
    if node.op is Op.SCAN:
        op, along, stretch = node.arg
        runs = f" in runs of {sources[1]}" if sources[1:] else ""
        by = "" if stretch is None else f", {stretch} elements by themselves"
        return f"running {op.value} along axis {along} of {sources[0]}{runs}{by}"
    if node.op is Op.SORT:
        along, stretch = node.arg
        return f"{of} in order along axis {along}" + ("" if stretch is None else f", {stretch} elements by themselves")
    if node.op in MOVEMENT and node.op not in (Op.RESHAPE, Op.EXPAND):
        return f"{node.op.value} {of} {_argument(node)}"
    if node.op is Op.CAST:
        return f"{of} as {node.dtype}"
    argument = "" if node.arg is None else f" {_argument(node)}"
    return f"{node.op.value} {of}{argument}".rstrip()


def _argument(node: Node) -> str:
    arg = node.arg
    if node.op is Op.PAD:
        amounts, value = arg
        return f"by {', '.join(f'{before}+{after}' for before, after in amounts)} with {value}"
    if node.op is Op.SHRINK:
        return "to " + ", ".join(f"{start}:{stop}" for start, stop in arg)
    return f"axes {', '.join(map(str, arg))}" if isinstance(arg, tuple) else str(arg)


def type_of(node: Node) -> str:
    """Return a node's element type and shape, such as `float32[64, 1024]`."""
    shape = node.sources[0].shape if node.op is Op.STORE else node.shape
    return f"{node.dtype}[{', '.join(map(str, shape))}]"


def places_of(step: Step, graph: CompiledGraph, number: int) -> tuple[Place, ...]:
    """Return the places of a launch's memory."""
    found = []
    launch = graph.launches[number]
    params = step.lowered.function.params
    for i, (node, slot) in enumerate(zip(memory_order(step.kernel), launch.memory, strict=True)):
        where = f"{slot.kind} {slot.at}" if slot.kind != "arena" else f"arena at byte {slot.at}"
        storage = node.arg if node.op is Op.BUFFER and isinstance(node.arg, Storage) else None
        named = f" {storage.name}" if storage is not None and storage.name else ""
        found.append(Place(params[i].name, f"{type_of(node)}{named}", where, params[i].size_bytes, params[i].written))
    return tuple(found)


def groups_text(groups: Sequence[Int]) -> str:
    """Return numbers of groups along x, y, z as people write them: without trailing ones."""
    shown = list(groups)
    while len(shown) > 1 and shown[-1] == 1:
        shown.pop()
    return " x ".join(str(one) for one in shown)
