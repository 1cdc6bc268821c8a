"""Bandwidth: up, down, within the card's memory, fills; by size, and on several engines at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from ringup.tools.bench.bench import Bench
from ringup.tools.bench.figure import Figure
from ringup.tools.bench.on_card import Took, note, open_card, took
from ringup.tools.bench.plot import Curves, Plot, size_text
from ringup.tools.bench.timing import median

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
SIZES = (4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB)
QUICK_MAX_BYTES = MIB
ROUNDS = 5
PARALLEL_BYTES = 16 * MIB
UP_NOTE = "through staging memory that the host fills or empties"


def measure(bench: Bench) -> Iterator[Figure | Plot]:
    """Move every size in every direction, then the same bytes on one engine and on all."""
    sizes = [size for size in SIZES if size <= QUICK_MAX_BYTES or not bench.quick]
    rounds, about = 1 if bench.quick else ROUNDS, note(bench.card)
    walls: dict[str, list[tuple[float, float]]] = {}
    clocks: dict[str, list[tuple[float, float]]] = {}
    with open_card(bench) as card:
        for size in sizes:
            bench.say(size_text(size))
            for name, work in _directions(card, size):
                # touches pages and makes staging memory
                work()
                found = [took(card, work) for _ in range(rounds)]
                rate, clock_rate = _rates(size, found)
                walls.setdefault(name, []).append((size, rate))
                clocks.setdefault(name, []).append((size, clock_rate))
        for name, curve in walls.items():
            text = f"{about}; {UP_NOTE}" if name in ("up", "down") else about
            for at, rate in curve:
                yield Figure(f"{name}, {size_text(at)}", "GiB/s", rate, better="more", note=text)
            yield Figure(
                f"{name}, {size_text(sizes[-1])}, card's clock", "GiB/s", clocks[name][-1][1], better="more", note=text
            )
        yield Curves(f"Bandwidth on {bench.card}", "size of one copy", "GiB/s", walls)
        yield Curves(f"Bandwidth on {bench.card}, by its own clock", "size of one copy", "GiB/s", clocks)
        yield from _parallel(card, min(PARALLEL_BYTES, sizes[-1]), rounds, about)


def _directions(card: Any, size: int) -> Iterator[tuple[str, Callable[[], object]]]:
    queue, data, out = card.copy, bytes(size), bytearray(size)
    with card.alloc(size, name="source") as source, card.alloc(size, name="target") as target:
        yield "up", lambda: queue.upload(target, data).wait()
        yield "down", lambda: queue.download(source, out)
        yield "device", lambda: queue.copy_buffer(target, source).wait()
        yield "fill", lambda: queue.fill(target, 0x5A5A_5A5A).wait()


def _parallel(card: Any, size: int, rounds: int, about: str) -> Iterator[Figure]:
    """Copy within the card's memory on one engine, then as much on every engine at once."""
    buffers = [(card.alloc(size, name="source"), card.alloc(size, name="target")) for _ in card.copies]

    def work(queues: tuple[Any, ...]) -> None:
        points = [queue.copy_buffer(target, source) for queue, (source, target) in zip(queues, buffers, strict=False)]
        for point in points:
            point.wait()

    for queues in (card.copies[:1], card.copies):
        work(queues)
        rate, clock_rate = _rates(size * len(queues), [took(card, partial(work, queues)) for _ in range(rounds)])
        name = f"{len(queues)} engine{'s' if len(queues) > 1 else ''} at once, {size_text(size)} each"
        yield Figure(name, "GiB/s", rate, better="more", note=about)
        yield Figure(f"{name}, card's clock", "GiB/s", clock_rate, better="more", note=about)
    for pair in buffers:
        for buffer in pair:
            buffer.free()


def _rates(size_bytes: int, found: list[Took]) -> tuple[float, float]:
    """Return GiB/s by the wall's clock and by the card's."""
    wall_us, clock_us = median([one.wall_us for one in found]), median([one.clock_us for one in found])
    return size_bytes / GIB / wall_us * 1e6, size_bytes / GIB / max(clock_us, 1) * 1e6
