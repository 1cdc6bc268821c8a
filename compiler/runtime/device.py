"""A card that tensors are computed on: graphs are compiled once, placed in its memory, and run again as kept streams."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ringup.compiler.compile import CompiledGraph, Launch, Slot, compile_graph
from ringup.compiler.dtypes import DType
from ringup.compiler.graph import Node, Storage
from ringup.compiler.index import Int, evaluate
from ringup.compiler.rdna.pipeline import object_of
from ringup.compiler.runtime.memory import Memory, Pool
from ringup.compiler.schedule.signature import Signature, of_graph
from ringup.errors import CompileError

TIMEOUT_S = 600.0  # TIMEOUT: ours; a virtual card computes for minutes what metal does in milliseconds


@dataclass(slots=True)
class Loaded:
    """A compiled graph on the card. `kept`: its stream, once it was built, with the byte of each launch's arguments."""

    graph: CompiledGraph
    kernels: dict[str, Any]
    arena: Memory | None
    kept: Any = None
    argument_bytes: tuple[int, ...] = ()
    groups: tuple[tuple[int, int, int], ...] = ()


class Device:
    """Computes graphs on one card. Use it as the evaluator of tensors: `with device: …`."""

    def __init__(self, card: Any) -> None:
        """`card`: one that `ringup.open` gave; it stays the caller's to close."""
        self.card = card
        self.target = str(card.blocks.ips.chip.target)
        self.pool = Pool(card)
        self._loaded: dict[Signature, Loaded] = {}
        self._programs: dict[str, Any] = {}

    def compile(self, outputs: Sequence[Node]) -> CompiledGraph:
        """Compile a graph for this card without running it."""
        return compile_graph(outputs, self.target)

    def run(self, outputs: Sequence[Node], sizes: Mapping[str, int] | None = None) -> list[Memory]:
        """Compute nodes; return the memory each lies in, row-major. What is in memory already comes back as it is."""
        signature, buffers = of_graph(outputs)
        loaded = self._loaded.get(signature)
        if loaded is None:
            loaded = self._loaded[signature] = self._load(self.compile(outputs))
        memory = [self.memory_of(node) for node in buffers]
        return self._launch(loaded, memory, dict(sizes or {}))

    def memory_of(self, node: Node) -> Memory:
        """Return the memory of a BUFFER; host data goes there first."""
        storage: Storage = node.arg
        if not isinstance(storage.data, Memory):
            storage.data = self._uploaded(storage)
        return storage.data

    def _uploaded(self, storage: Storage) -> Memory:
        size = evaluate(storage.size, {}) if isinstance(storage.size, int) else 0
        place = self.pool.take(size * storage.dtype.size_bytes, storage.name or "tensor")
        if storage.data is not None:
            data = np.ascontiguousarray(storage.data)
            if data.nbytes != size * storage.dtype.size_bytes:
                raise CompileError(
                    f"{storage} holds {data.nbytes} bytes of data: {size * storage.dtype.size_bytes} were expected"
                )
            self.card.copy.upload(place.buffer, data.view(np.uint8).reshape(-1)).wait(TIMEOUT_S)
        return place

    def download(self, memory: Memory, dtype: DType, count: int) -> bytes:
        """Return the bytes of the first `count` elements."""
        size_bytes = count * dtype.size_bytes
        if not size_bytes:
            return b""
        return bytes(self.card.copy.download(memory.buffer, size_bytes))

    def _load(self, graph: CompiledGraph) -> Loaded:
        wanted = [binary for binary in graph.binaries if binary.name not in self._programs]
        if wanted:
            program = self.card.load(object_of(wanted), "tensors")
            for binary in wanted:
                self._programs[binary.name] = program[binary.name]
        arena = self.pool.take(graph.arena_bytes, "intermediates") if graph.arena_bytes else None
        return Loaded(graph, {one.name: self._programs[one.name] for one in graph.binaries}, arena)

    def _launch(self, loaded: Loaded, buffers: Sequence[Memory], sizes: Mapping[str, int]) -> list[Memory]:
        graph = loaded.graph
        results: list[Memory] = []
        for output in graph.outputs:
            if output.slot.kind == "buffer":
                results.append(buffers[output.slot.at])
            elif output.slot.kind == "output" and output.slot.at < len(results):
                results.append(results[output.slot.at])
            else:
                results.append(self.pool.take(output.size_bytes))
        if not graph.launches:
            return results

        def address(slot: Slot) -> int:
            if slot.kind == "arena":
                assert loaded.arena is not None
                return loaded.arena.gpu_va + slot.at
            return (buffers if slot.kind == "buffer" else results)[slot.at].gpu_va

        arguments = [
            [*(address(slot) for slot in launch.memory), *(_size(name, most, sizes) for name, most in launch.sizes)]
            for launch in graph.launches
        ]
        groups = tuple(_groups(launch, sizes) for launch in graph.launches)
        if loaded.kept is None or loaded.groups != groups:
            self._build(loaded, arguments, groups)
        else:
            for at, launch, values in zip(loaded.argument_bytes, graph.launches, arguments, strict=True):
                loaded.kept.patch_args(at, _packed(launch, values))
        loaded.kept.submit(TIMEOUT_S).wait(TIMEOUT_S)
        return results

    def _build(
        self, loaded: Loaded, arguments: Sequence[Sequence[int]], groups: tuple[tuple[int, int, int], ...]
    ) -> None:
        """Build the stream of a graph's launches, each after the one before, and keep it on the card."""
        stream = self.card.compute.stream()
        places = []
        for i, (launch, values, count) in enumerate(zip(loaded.graph.launches, arguments, groups, strict=True)):
            if i:
                stream.barrier()
            places.append(
                stream.dispatch(loaded.kernels[launch.binary.name], count, (launch.binary.group_size, 1, 1), values)
            )
        if loaded.kept is not None:
            loaded.kept.free()
        loaded.kept = self.card.compute.keep(stream)
        loaded.argument_bytes, loaded.groups = tuple(places), groups


def _packed(launch: Launch, values: Sequence[int]) -> bytes:
    """Return a launch's arguments as they lie in memory: addresses of 8 bytes, then sizes of 4 or 8, each aligned to its own size."""
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
