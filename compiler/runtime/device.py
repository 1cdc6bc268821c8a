"""Computes tensors on a card: a graph is compiled once, stored in the card's memory, and run again as a kept stream."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from ringup.compiler.compile import Chooser, CompiledGraph, Launch, Output, Slot, compile_graph
from ringup.compiler.graph.index import Int, evaluate
from ringup.compiler.graph.nodes import Node, Storage
from ringup.compiler.runtime.memory import TIMEOUT_S, Memory, Pool
from ringup.compiler.runtime.programs import Programs
from ringup.compiler.schedule.signature import Signature, of_graph
from ringup.compiler.target import Binary
from ringup.errors import CompileError

# Graphs whose streams are kept.
MAX_GRAPHS = 1024


@dataclass(slots=True)
class Loaded:
    """A compiled graph on the card. `kept`: its stream, once it was built. `argument_bytes`: the place of each launch's
    arguments in it (None: the launch had no groups).
    """

    graph: CompiledGraph
    kernels: dict[Binary, Any]
    kept: Any = None
    argument_bytes: tuple[int | None, ...] = ()
    groups: tuple[tuple[int, int, int], ...] = ()


class Device:
    """Computes graphs on one card: an evaluator of tensors (`ringup.compiler.tensor.device(Device(card))`)."""

    def __init__(self, card: Any, *, tuning: Chooser | None = None) -> None:
        """Use `card`, which `ringup.open` has returned and which the caller still has to close. `tuning` knows better
        shapes of kernels.
        """
        self.card, self.tuning = card, tuning
        self.target = str(card.info.target)
        self.pool = Pool(card)
        self._loaded: dict[Signature, Loaded] = {}
        self._programs = Programs(card)
        # The intermediate results of all graphs: graphs run one after another, and no such result outlives its run.
        self._arena: Memory | None = None

    @property
    def name(self) -> str:
        """Return the card's name."""
        return str(self.card.name)

    def __repr__(self) -> str:
        return f"<Device of {self.name}>"

    def compile(self, outputs: Sequence[Node]) -> CompiledGraph:
        """Compile a graph for this card without running it."""
        return compile_graph(outputs, self.target, tuning=self.tuning)

    @property
    def graphs(self) -> list[CompiledGraph]:
        """Return all graphs that were compiled so far."""
        return [one.graph for one in self._loaded.values()]

    def evaluate(self, nodes: Sequence[Node], sizes: Mapping[str, int]) -> list[Memory]:
        """Compute nodes. Return the memory of each, row-major; a node that is in memory already is returned as it is.

        Raises CompileError for what cannot be compiled, `ValueError` for a closed card, and whatever the card raises.
        """
        self.pool.check()
        signature, buffers = of_graph(nodes)
        loaded = self._loaded.pop(signature, None) or self._load(self.compile(nodes))
        # The most recent one comes last.
        self._loaded[signature] = loaded
        while len(self._loaded) > MAX_GRAPHS:
            self._drop(self._loaded.pop(next(iter(self._loaded))))
        return self._launch(loaded, [self._memory_of(node, sizes) for node in buffers], sizes)

    def _memory_of(self, node: Node, sizes: Mapping[str, int]) -> Memory:
        """Return the memory of a BUFFER. Data of the host or of another card is copied there first."""
        storage: Storage = node.arg
        if not isinstance(storage.data, Memory) or not storage.data.is_of(self.card):
            place = self.pool.take(evaluate(storage.size, sizes) * storage.dtype.size_bytes, storage.name or "tensor")
            if storage.data is not None:
                data: Any = storage.data
                data = data.read() if hasattr(data, "read") else data
                view = memoryview(data).cast("B")
                if len(view) != place.size_bytes:
                    raise CompileError(f"{storage} needs {place.size_bytes} bytes, but its data has {len(view)}")
                place.write(view)
            storage.data = place
        return storage.data

    def _load(self, graph: CompiledGraph) -> Loaded:
        return Loaded(graph, self._programs.take(graph))

    def _drop(self, loaded: Loaded) -> None:
        """Free what a graph has on the card. ORDER: every run was waited for, so nothing reads it any more."""
        if loaded.kept is not None:
            loaded.kept.free()
        self._programs.give_back(loaded.graph)

    def _arena_of(self, graph: CompiledGraph) -> int:
        """Return the address of memory for a graph's intermediate results, 0 if there are none."""
        if not graph.arena_bytes:
            return 0
        if self._arena is None or self._arena.size_bytes < graph.arena_bytes:
            # Its memory becomes idle first, in case the larger one needs it.
            self._arena = None
            self._arena = self.pool.take(graph.arena_bytes, "intermediates")
        return self._arena.gpu_va

    def _launch(self, loaded: Loaded, buffers: Sequence[Memory], sizes: Mapping[str, int]) -> list[Memory]:
        graph = loaded.graph
        results: list[Memory] = []
        for output in graph.outputs:
            if output.slot.kind == "buffer":
                results.append(buffers[output.slot.at])
            elif output.slot.kind == "output" and output.slot.at < len(results):
                results.append(results[output.slot.at])
            else:
                results.append(self.pool.take(_bytes_of(output, sizes)))
        if not graph.launches:
            return results

        arena = self._arena_of(graph)

        def address(slot: Slot) -> int:
            if slot.kind == "arena":
                return arena + slot.at
            return (buffers if slot.kind == "buffer" else results)[slot.at].gpu_va + slot.offset_bytes

        arguments = [
            [*(address(slot) for slot in launch.memory), *(_size(name, most, sizes) for name, most in launch.sizes)]
            for launch in graph.launches
        ]
        groups = tuple(_groups(launch, sizes) for launch in graph.launches)
        if not any(map(all, groups)):
            return results
        if loaded.kept is None or loaded.groups != groups:
            self._build(loaded, arguments, groups)
        else:
            for at, launch, values in zip(loaded.argument_bytes, graph.launches, arguments, strict=True):
                if at is not None:
                    loaded.kept.patch_args(at, _packed(launch, values))
        loaded.kept.submit(TIMEOUT_S).wait(TIMEOUT_S)
        return results

    def _build(
        self, loaded: Loaded, arguments: Sequence[Sequence[int]], groups: tuple[tuple[int, int, int], ...]
    ) -> None:
        """Build the stream of a graph's launches, with a barrier between them, and keep it on the card. Launches
        without groups are left out.
        """
        stream = self.card.compute.stream()
        places: list[int | None] = []
        for launch, values, count in zip(loaded.graph.launches, arguments, groups, strict=True):
            if not all(count):
                places.append(None)
                continue
            if any(place is not None for place in places):
                stream.barrier()
            places.append(
                stream.dispatch(loaded.kernels[launch.binary], count, (launch.binary.group_size, 1, 1), values)
            )
        if loaded.kept is not None:
            loaded.kept.free()
        loaded.kept = self.card.compute.keep(stream)
        loaded.argument_bytes, loaded.groups = tuple(places), groups


def _bytes_of(output: Output, sizes: Mapping[str, int]) -> int:
    return prod(evaluate(size, sizes) for size in output.shape) * output.dtype.size_bytes


def _packed(launch: Launch, values: Sequence[int]) -> bytes:
    """Return a launch's arguments in their form in memory: addresses of 8 bytes, then sizes of 4 or 8, each aligned to
    its own size.
    """
    data = b"".join(value.to_bytes(8, "little") for value in values[: len(launch.memory)])
    for (_, most), value in zip(launch.sizes, values[len(launch.memory) :], strict=True):
        form = "<i" if most < 1 << 31 else "<q"
        data += b"\0" * (-len(data) % struct.calcsize(form)) + struct.pack(form, value)
    return data


def _size(name: str, most: int, sizes: Mapping[str, int]) -> int:
    if name not in sizes:
        raise ValueError(f"the size {name} has no value: give it when the tensor is realized ({name}=…, up to {most})")
    return sizes[name]


def _groups(launch: Launch, sizes: Mapping[str, int]) -> tuple[int, int, int]:
    def number(value: Int) -> int:
        return value if isinstance(value, int) else evaluate(value, sizes)

    x, y, z = launch.groups
    return number(x), number(y), number(z)
