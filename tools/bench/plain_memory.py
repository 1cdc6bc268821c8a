"""What benches of queues over plain memory share: rows of figures, memory for kept streams, arguments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ringup.queues.kept import KeptMemory
from ringup.tools.bench.figure import Figure, Goal
from ringup.tools.bench.timing import median


@dataclass(frozen=True, slots=True)
class Row:
    """A figure: the key of both answers, and of tinygrad's if that differs."""

    name: str
    unit: str
    key: str
    goal: Goal | None = None
    note: str = ""
    peer_key: str = ""


@dataclass(frozen=True, slots=True)
class Place:
    """The part of a buffer that kernel arguments use."""

    gpu_va: int


def figures(
    rows: Sequence[Row], ours: Sequence[Mapping[str, float]], peers: Sequence[Mapping[str, float]]
) -> Iterator[Figure]:
    """Give the figure of each row: medians of the answers."""
    for row in rows:
        peer = median([answer[row.peer_key or row.key] for answer in peers]) if peers else None
        yield Figure(row.name, row.unit, median([answer[row.key] for answer in ours]), peer, row.goal, note=row.note)


def refuse_write(at: int, data: bytes | bytearray | memoryview) -> None:
    """Refuse a store by a call: the memory has a view, which is used instead."""
    raise AssertionError("the memory has a view")


def kept_memory(size_bytes: int) -> KeptMemory:
    """Return memory for a kept stream."""
    memory = memoryview(bytearray(size_bytes))

    def write(at: int, data: bytes | bytearray) -> None:
        memory[at : at + len(data)] = data

    return KeptMemory(0x700_0000, write, lambda: None)
