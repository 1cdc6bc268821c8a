"""What benches of queues over plain memory share: what is timed, rows of figures, memory of kept streams, arguments."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ringup.queues.kept import Kept, KeptMemory
from ringup.queues.queue import Queue, Stream
from ringup.tools.bench.bench import Bench
from ringup.tools.bench.figure import Figure, Goal
from ringup.tools.bench.timing import cpu_us, median

ROUNDS, TIMES = 5, 4000
# commands of one stream when appending is timed; launches of a long stream
GROUP, LONG = 100, 10
GRID, BLOCK = (16, 1, 1), (256, 1, 1)
LAUNCH_NOTE = "ours: built and submitted, since the wait and the signal are added then; peer: built only"
KEPT_NOTE = "the kernel's number is changed for each run; peer: a bound queue with a variable"


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


class InstantCard(Protocol):
    """A card that takes no time: published work is done at once. `number_byte`: of a kernel's number in the arguments
    of `kept`.
    """

    number_byte: int

    @property
    def kept(self) -> Kept:
        """A stream of one launch that is patched and submitted again."""
        ...

    @property
    def compute(self) -> Queue:
        """The queue for launches."""
        ...

    @property
    def copies(self) -> Queue:
        """The queue for copies."""
        ...

    def stream(self, launches: int, *, ordered: bool = ...) -> Stream:
        """Return a stream of launches that may run at once, or one after the other."""
        ...

    def copy(self, copies: int) -> Stream:
        """Return a stream of copies."""
        ...

    def launch(self) -> None:
        """Wait for another queue, start a kernel, order it, signal: built and submitted."""
        ...


def run(card: InstantCard, times: int) -> dict[str, float]:
    """Time a card's queues once: CPU microseconds and bytes by the keys of rows."""
    compute, kept, number_byte = card.compute, card.kept, card.number_byte
    one, long, copy = card.stream(1), card.stream(LONG), card.copy(1)
    numbers = itertools.cycle(n.to_bytes(4, "little") for n in range(1, 1 << 12))
    groups = max(1, times // GROUP)

    def patch() -> None:
        kept.patch_args(number_byte, next(numbers))

    def patch_submit() -> None:
        kept.patch_args(number_byte, next(numbers))
        kept.submit()

    start, empty, group = compute.ring.wptr, len(card.stream(0).body), card.stream(GROUP)
    card.launch()
    return {
        "launch_bytes": compute.ring.wptr - start,
        "append_bytes": (len(group.body) - empty) / GROUP,
        "argument_bytes": len(group.args) / GROUP,
        "ordered_bytes": (len(card.stream(GROUP, ordered=True).body) - empty) / GROUP,
        "copy_bytes": (len(card.copy(GROUP).body) - len(card.copy(0).body)) / GROUP,
        "append_us": cpu_us(lambda: card.stream(GROUP), groups) / GROUP,
        "ordered_us": cpu_us(lambda: card.stream(GROUP, ordered=True), groups) / GROUP,
        "launch_us": cpu_us(card.launch, times),
        "submit_us": cpu_us(lambda: compute.submit(one), times),
        "submit_long_us": cpu_us(lambda: compute.submit(long), times),
        "copy_us": cpu_us(lambda: card.copy(GROUP), groups) / GROUP,
        "copy_submit_us": cpu_us(lambda: card.copies.submit(copy), times),
        "patch_us": cpu_us(patch, times),
        "patch_submit_us": cpu_us(patch_submit, times),
    }


def in_turns(
    bench: Bench, name: str, rows: Sequence[Row], make: Callable[[], InstantCard], **job: Any
) -> Iterator[Figure]:
    """Time both, a round of each in turn. `name`: of the peer's job; `job`: what it needs besides sizes."""
    times = TIMES // 10 if bench.quick else TIMES
    job |= {"times": times, "grid": GRID, "block": BLOCK, "group": GROUP, "long": LONG}
    ours: list[Mapping[str, float]] = []
    peers: list[Mapping[str, float]] = []
    for i in range(2 if bench.quick else ROUNDS):
        bench.say(f"round {i + 1}")
        ours.append(run(make(), times))
        answer = bench.peer.call(name, job)
        peers += [] if answer is None else [answer]
    yield from figures(rows, ours, peers)


def refuse_write(at: int, data: bytes | bytearray | memoryview) -> None:
    """Refuse a store by a call: the memory has a view, which is used instead."""
    raise AssertionError("the memory has a view")


def kept_memory(size_bytes: int) -> KeptMemory:
    """Return memory for a kept stream."""
    memory = memoryview(bytearray(size_bytes))

    def write(at: int, data: bytes | bytearray) -> None:
        memory[at : at + len(data)] = data

    return KeptMemory(0x700_0000, write, lambda: None, memory)
