"""Compiles a tensor graph for a target: kernels as machine code, and the launches that compute the outputs. It needs no
card.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import Any, Literal, NamedTuple, Protocol
from zlib import crc32

from ringup.compiler.graph.dtypes import DType
from ringup.compiler.graph.index import Int, bounds
from ringup.compiler.graph.nodes import LINES, Node, Op, Shape, shared
from ringup.compiler.kernel.choose import Choice, lower
from ringup.compiler.kernel.common.frame import Lowered, memory_order
from ringup.compiler.kernel.common.traits import Traits
from ringup.compiler.machine.ir import Function
from ringup.compiler.machine.motion import improve
from ringup.compiler.machine.text import print_function
from ringup.compiler.schedule.kernel import Kernel, memory_of
from ringup.compiler.schedule.order import plan
from ringup.compiler.schedule.shift_inputs import Place
from ringup.compiler.schedule.signature import Signature, of_graph, of_kernel
from ringup.compiler.target import DEFAULT, Binary
from ringup.compiler.target import target as find_target
from ringup.errors import CompileError

# Compiled kernels that a process keeps.
MAX_KEPT = 4096


class Slot(NamedTuple):
    """The memory of a launch's argument: a buffer of the graph or an output by number, or a byte of the arena. A launch
    may get a later byte of a buffer.
    """

    kind: Literal["buffer", "output", "arena"]
    at: int
    offset_bytes: int = 0


@dataclass(frozen=True)
class Launch:
    """One run of a kernel. Its arguments are the addresses of `memory`, then the symbolic sizes by name. `groups` may
    depend on these.
    """

    binary: Binary
    memory: tuple[Slot, ...]
    sizes: tuple[tuple[str, int], ...]
    groups: tuple[Int, Int, Int]


@dataclass(frozen=True)
class Output:
    """One output, and its place when all launches have run."""

    slot: Slot
    dtype: DType
    shape: Shape


@dataclass(frozen=True)
class CompiledGraph:
    """The launches of a graph, in order. `buffers` is the number of the graph's own buffers. Intermediate results share
    an arena of `arena_bytes`.
    """

    target: str
    launches: tuple[Launch, ...]
    outputs: tuple[Output, ...]
    buffers: int
    arena_bytes: int

    @property
    def binaries(self) -> tuple[Binary, ...]:
        """Return the distinct kernels."""
        return tuple(dict.fromkeys(launch.binary for launch in self.launches))

    def code_object(self, without: Container[Binary] = ()) -> bytes:
        """Return the kernels, except those in `without`, as a code object of their target."""
        return find_target(self.target).code_object([binary for binary in self.binaries if binary not in without])


class Step(NamedTuple):
    """What `watch` gets for each kernel: the kernel as it was cut, its signature, its shape if one was chosen, machine
    IR, finished instructions in the target's form, and machine code.
    """

    kernel: Kernel
    signature: Signature
    choice: Choice | None
    lowered: Lowered
    code: Any
    binary: Binary


class Kept(NamedTuple):
    """What is kept of a kernel. It does not refer to a graph, since that would keep the graph's memory alive."""

    binary: Binary
    sizes: tuple[tuple[str, int], ...]
    groups: tuple[Int, Int, Int]


class Chooser(Protocol):
    """Knows shapes of kernels that are better than the heuristic ones, such as `tuning.Tuning`."""

    def choice(self, kernel: Kernel, signature: Signature, target: str) -> Choice | None:
        """Return the shape of a kernel, None for the heuristic one."""
        ...


Watch = Callable[[Step], None]
# (level: machine or the target's family, name of the pass, text after it)
Passes = Callable[[str, str, str], None]
_kernels: dict[tuple[Signature, str, Choice | None], Kept] = {}
# Held while kernels are added and removed.
_keeping = Lock()


def compile_graph(
    outputs: Sequence[Node], target: str = DEFAULT, *, watch: Watch | None = None, tuning: Chooser | None = None
) -> CompiledGraph:
    """Compile the nodes for a target such as gfx1100, with the kernel shapes that `tuning` has found. Raises
    CompileError for what cannot be compiled.
    """
    outputs = shared(outputs)
    planned = plan(outputs)
    _, buffers = of_graph(outputs)
    numbers = {node: i for i, node in enumerate(buffers)}
    outputs = planned.outputs
    results = {memory_of(one): i for i, one in reversed(list(enumerate(outputs)))}
    places = _Places(numbers, results, planned.places, planned.moved)
    launches = [_launch(kernel, target, watch, tuning, places) for kernel in planned.kernels]
    found = tuple(Output(places.slot(memory_of(one)), one.dtype, one.shape) for one in outputs)
    return CompiledGraph(target, tuple(launches), found, len(buffers), planned.arena_bytes)


class _Places(NamedTuple):
    """The places of nodes: buffers and outputs of the graph by number, intermediate results by
    their byte in the arena.
    """

    buffers: dict[Node, int]
    outputs: dict[Node, int]
    arena: Mapping[Node, int]
    moved: Mapping[Node, Place]

    def slot(self, node: Node) -> Slot:
        if node in self.moved:
            place = self.moved[node]
            return self.slot(place.node)._replace(offset_bytes=place.offset_bytes)
        if node in self.buffers:
            return Slot("buffer", self.buffers[node])
        if node in self.outputs:
            return Slot("output", self.outputs[node])
        return Slot("arena", self.arena[node])


def _launch(kernel: Kernel, target: str, watch: Watch | None, tuning: Chooser | None, places: _Places) -> Launch:
    signature, inputs = of_kernel(kernel)
    kernel = replace(kernel, inputs=inputs)
    choice = tuning.choice(kernel, signature, target) if tuning is not None else None
    made = _kernels.get((signature, target, choice))
    if made is None or watch:
        step = compile_kernel(kernel, signature, target, choice)
        made = Kept(step.binary, tuple((str(one), one.hi) for one in step.lowered.sizes), step.lowered.groups)
        with _keeping:
            if len(_kernels) >= MAX_KEPT:
                _kernels.pop(next(iter(_kernels)))
            _kernels[signature, target, choice] = made
        if watch:
            watch(step)
        else:
            find_target(target).release(step.code)
    memory = tuple(places.slot(node) for node in memory_order(kernel))
    return Launch(made.binary, memory, made.sizes, made.groups)


def compile_kernel(
    kernel: Kernel, signature: Signature, target: str, choice: Choice | None = None, passes: Passes | None = None
) -> Step:
    """Compile one kernel, in the given or the heuristic shape. Its inputs must be in the order of its signature.

    `passes` is called with the text of the kernel after each pass. Raises CompileError for what cannot be compiled.
    """
    chip = find_target(target)
    mark = repr(signature) + (f" {choice}" if choice is not None else "")
    lowered = lower(kernel, f"{name_of(kernel)}_{crc32(mark.encode()):08x}", chip.traits, choice)
    function = lowered.function
    _check(function, chip.traits, target)

    def show_machine(name: str) -> None:
        if passes is not None:
            passes("machine", name, print_function(function))

    show_machine("lower")
    improve(function, show_machine)
    code, binary = chip.generate(function, partial(passes, chip.family) if passes is not None else None)
    return Step(kernel, signature, choice, lowered, code, binary)


def _check(function: Function, chip: Traits, target: str) -> None:
    """Raise CompileError if a group does not fit the target."""
    for has, most, what in (
        (function.lds_bytes, chip.lds_bytes, "bytes of LDS"),
        (function.group_size, chip.max_threads, "threads"),
    ):
        if has > most:
            raise CompileError(
                f"kernel {function.name} needs {has} {what} a group, {target} has {most}: split it (contiguous()) or make it smaller"
            )


def name_of(kernel: Kernel) -> str:
    """Return a name that tells people what a kernel does: its kind, its last operation, its shape."""
    kind = "r" if kernel.folds else "l" if kernel.line else "e"
    root = kernel.computed
    while root.op in (Op.RESHAPE, Op.CAST, Op.CONTIGUOUS) and root.sources and root not in kernel.inputs:
        root = root.sources[0]
    shape = "x".join(str(bounds(size)[1]) for size in kernel.shape if size != 1) or "1"
    lines = [kernel.line.node.op.value] if kernel.line else []
    inside = "_".join([*(fold.node.arg[0].value for fold in kernel.folds), *lines])
    last = root.op.value if root.op is not Op.REDUCE and root.op not in LINES else ""
    more = f"and_{len(kernel.beside)}" if kernel.beside else ""
    return "_".join(part for part in (kind, inside, last, more, shape) if part)
