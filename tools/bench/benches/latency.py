"""Small work on a card: the time from doorbell to signal, and how many pieces a second."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from ringup.tools.bench.bench import Bench
from ringup.tools.bench.benches.shader import compiled
from ringup.tools.bench.figure import Figure
from ringup.tools.bench.on_card import note, open_card, took
from ringup.tools.bench.plot import Distribution, Plot
from ringup.tools.bench.timing import median

SAMPLES = 400
ROUNDS = 5
GROUP = 100  # dispatches of one stream, submissions of one round
ITEMS = 32
NUMBER_BYTE = 8  # the byte of `value` in the kernel's arguments
SOURCE = """
__kernel __attribute__((reqd_work_group_size(32, 1, 1)))
void put(__global unsigned *out, unsigned value) { out[__builtin_amdgcn_workitem_id_x()] = value; }
"""
WAIT_NOTE = "an empty submission, from the call that rings the doorbell to the return of `wait`"


def measure(bench: Bench) -> Iterator[Figure | Plot]:
    """Time each kind of queue with empty submissions, then dispatches, submissions, kept streams of a tiny kernel."""
    samples, rounds = (SAMPLES // 10, 1) if bench.quick else (SAMPLES, ROUNDS)
    about = note(bench.card)
    with open_card(bench) as card:
        for name, queue in (("compute", card.compute), ("HSA", card.aql), ("copy", card.copy)):
            bench.say(f"doorbell to signal, {name}")
            empty = queue.stream()
            found = [took(card, partial(_round, queue, empty)) for _ in range(samples)]
            walls = [one.wall_us for one in found]
            yield Figure(f"doorbell to signal, {name} queue", "us", median(walls), note=f"{WAIT_NOTE}; {about}")
            clocks = [one.clock_us for one in found]
            yield Figure(
                f"doorbell to signal, {name} queue, card's clock", "us", median(clocks), note=f"{WAIT_NOTE}; {about}"
            )
            yield Distribution(f"Doorbell to signal, {name} queue of {bench.card}", "us", walls)
        bench.say("small dispatches")
        program = card.load(compiled(SOURCE, card.info.target), name="put")
        with card.alloc(4 * ITEMS, name="out") as out:
            for name, work in _works(card, program.only(), out).items():
                # the first run translates or loads the program
                work()
                times = [took(card, work) for _ in range(rounds)]
                yield Figure(
                    name, "1/s", GROUP * 1e6 / median([one.wall_us for one in times]), better="more", note=about
                )
                clock_us = median([one.clock_us for one in times])
                yield Figure(f"{name}, card's clock", "1/s", GROUP * 1e6 / max(clock_us, 1), better="more", note=about)
        program.free()


def _round(queue: Any, stream: Any) -> None:
    queue.submit(stream).wait()


def _works(card: Any, kernel: Any, out: Any) -> dict[str, Callable[[], None]]:
    """Return the timed functions; each does `GROUP` pieces of work and waits for the last."""
    queue = card.compute

    def stream(count: int, queue: Any = queue) -> Any:
        made = queue.stream()
        for value in range(count):
            made.dispatch(kernel, 1, ITEMS, [out, value])
        return made

    many, one, kept = stream(GROUP), stream(1), queue.keep(stream(1))

    def one_stream() -> None:
        queue.submit(many).wait()

    def submissions() -> None:
        for _ in range(GROUP - 1):
            queue.submit(one)
        queue.submit(one).wait()

    def eager() -> None:
        for _ in range(GROUP - 1):
            queue.submit(stream(1))
        queue.submit(stream(1)).wait()

    def hsa() -> None:
        for _ in range(GROUP - 1):
            card.aql.submit(stream(1, card.aql))
        card.aql.submit(stream(1, card.aql)).wait()

    def kept_streams() -> None:
        for _ in range(GROUP - 1):
            kept.submit()
        kept.submit().wait()

    def patched() -> None:
        for value in range(GROUP):
            kept.patch_args(NUMBER_BYTE, value.to_bytes(4, "little"))
            point = kept.submit()
        point.wait()

    return {
        "dispatches of one stream": one_stream,
        "submissions of one dispatch, built before": submissions,
        "launches, built and submitted": eager,
        "launches through an HSA queue, built and submitted": hsa,
        "kept streams": kept_streams,
        "kept streams, patched each time": patched,
    }
