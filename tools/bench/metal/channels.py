"""Stage 5: channels: semaphores of the host, doorbells, time stamps."""

from __future__ import annotations

from typing import Any

from ringup.queues.nv.rows import host_methods
from ringup.queues.nv.semaphores import STAMP_BYTES, STAMP_CLOCK_AT, Semaphores
from ringup.tools.bench.metal.steps import Stage, StepRow, WrongResult, check
from ringup.tools.bench.metal.work import Work

VALUES = (1, 0xFFFF_FFFF, 0x1_0000_0000, 0x0123_4567_89AB_CDEF)
STAMPS = 16
# how far a stamp may lie outside of two readings of the same clock
SLACK_NS = 1_000_000


def releases(work: Work) -> dict[str, Any]:
    """Release a semaphore of the host in each channel: its 64 bits are in memory."""
    card, done = work.card, {}
    semaphores = Semaphores(host_methods(card.facts.row.channel_class))
    with card.alloc(4096, "host", name="semaphores") as cell:
        view = cell.view
        if view is None:
            raise WrongResult("host memory has no view")
        for queue in (card.compute, *card.copies):
            for value in VALUES:
                view[:8] = bytes(8)
                stream: Any = queue.stream()
                stream.append(semaphores.release(cell.gpu_va, value))
                queue.submit(stream).wait()
                seen = int.from_bytes(view[:8], "little")
                check(seen == value, f"{queue.name}: the semaphore holds {seen:#x}, {value:#x} was released")
            done[queue.name] = f"{queue.hardware}"
    return {"channels": done}


def stamps(work: Work) -> dict[str, Any]:
    """Stamp the card's clock in each channel: it grows, and agrees with the driver's reading of it."""
    card, told = work.card, {}
    with card.alloc(4096, "host", name="stamps") as cell:
        for queue in (card.compute, card.copy):
            before = card.gpu_clock()
            stream = queue.stream()
            for number in range(STAMPS):
                stream.stamp(cell.gpu_va + STAMP_BYTES * number)
            queue.submit(stream).wait()
            after = card.gpu_clock()
            data = bytes(card.copy.download(cell, None, 0, STAMP_BYTES * STAMPS))
            seen = [
                int.from_bytes(data[at + STAMP_CLOCK_AT : at + STAMP_CLOCK_AT + 8], "little")
                for at in range(0, len(data), STAMP_BYTES)
            ]
            check(seen == sorted(seen), f"{queue.name}: stamps do not grow: {seen}")
            check(
                before - SLACK_NS <= seen[0] and seen[-1] <= after + SLACK_NS,
                f"{queue.name}: stamps {seen[0]} to {seen[-1]} ns, the clock was read as {before} and {after} ns",
            )
            told[queue.name] = {
                "behind_first_reading_ns": seen[0] - before,
                "before_second_reading_ns": after - seen[-1],
                "between_stamps_ns": (seen[-1] - seen[0]) / (STAMPS - 1),
            }
    return told


STAGE = Stage(
    5,
    "channels",
    (StepRow("semaphores of the host", 10, releases), StepRow("time stamps", 10, stamps)),
    needs=(2, 4),
)
