"""Stage 6: copies in all directions, their rate, rings that wrap, channels that wait for each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ringup.drivers.nv.submission.queue_memory import ENTRIES
from ringup.queues.nv.rows import host_methods
from ringup.queues.nv.semaphores import STAMP_BYTES, STAMP_CLOCK_AT, Semaphores
from ringup.queues.timeline import Point
from ringup.tools.bench.metal.steps import Stage, StepRow, check
from ringup.tools.bench.metal.work import Work

# first bytes of the copied ranges: neither source nor target is aligned
SOURCE_AT, TARGET_AT, MARGIN = 7, 21, 64
EDGE = 0x5A
WIDE, HIGH, PITCHES = 201, 40, (256, 300)
OVERLAPS = ((0, 100), (100, 0), (4096, 4000), (4000, 4096))
OVERLAP_BYTES = 8192
CELLS = 1024


def sizes(work: Work) -> dict[str, Any]:
    """Copy from the host to the card, on the card, and back: every byte arrives, and no other changes."""
    card, random = work.card, np.random.default_rng(6)
    for size in work.scale.copy_bytes:
        data = random.integers(0, 256, size, np.uint8)
        room = (size + MARGIN + 3) // 4 * 4
        with (
            card.alloc(room, "host", name="source") as source,
            card.alloc(room, "vram", name="middle") as middle,
            card.alloc(room, "vram", name="other") as other,
            card.alloc(room, "host", name="target") as target,
        ):
            for buffer in (other, target):
                card.copy.fill(buffer, EDGE * 0x01010101).wait()
            there = _bytes(source)
            there[SOURCE_AT : SOURCE_AT + size] = data
            copy = card.copy.copy_buffer
            copy(middle, source, size, target_offset=3, source_offset=SOURCE_AT).wait()
            copy(other, middle, size, target_offset=TARGET_AT, source_offset=3).wait()
            copy(target, other, room).wait()
            seen = _bytes(target)
            _same(seen[TARGET_AT : TARGET_AT + size], data, f"a copy of {size} bytes")
            around = np.concatenate((seen[:TARGET_AT], seen[TARGET_AT + size : room]))
            check(bool((around == EDGE).all()), f"a copy of {size} bytes changed bytes around its target")
    return {"sizes": list(work.scale.copy_bytes)}


def _bytes(buffer: Any) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.frombuffer(buffer.view, np.uint8)


def _same(seen: Any, want: Any, what: str) -> None:
    if not np.array_equal(seen, want):
        at = int(np.flatnonzero(seen != want)[0])
        check(False, f"{what}: {int((seen != want).sum())} differ; the first, {at}, is {seen[at]} and not {want[at]}")


def overlapping(work: Work) -> dict[str, Any]:
    """Copy within one buffer, forwards and backwards."""
    card = work.card
    data = np.random.default_rng(7).integers(0, 256, OVERLAP_BYTES, np.uint8)
    with card.alloc(2 * OVERLAP_BYTES) as buffer:
        for target_at, source_at in OVERLAPS:
            card.copy.upload(buffer, data, source_at)
            copied = card.copy.copy_buffer(
                buffer, buffer, OVERLAP_BYTES, target_offset=target_at, source_offset=source_at
            )
            copied.wait()
            _same(
                card.copy.download_array(buffer, "u1", OVERLAP_BYTES, target_at),
                data,
                f"an overlapping copy from {source_at} to {target_at}",
            )
    return {"cases": len(OVERLAPS)}


def planes(work: Work) -> dict[str, Any]:
    """Copy a rectangle between planes of different pitches."""
    card, (target_pitch, source_pitch) = work.card, PITCHES
    plane = np.random.default_rng(8).integers(0, 256, (HIGH, source_pitch), np.uint8)
    with card.alloc(plane.nbytes) as source, card.alloc(HIGH * target_pitch) as target:
        card.copy.upload(source, plane)
        card.copy.fill(target, 0)
        copied = card.copy.copy_rect(
            target, target_pitch, source, source_pitch, WIDE, HIGH, target_offset=3, source_offset=5
        )
        copied.wait()
        seen = card.copy.download_array(target, "u1", (HIGH, target_pitch))
    want = np.zeros_like(seen)
    want[:, 3 : 3 + WIDE] = plane[:, 5 : 5 + WIDE]
    _same(seen.reshape(-1), want.reshape(-1), f"a rectangle of {WIDE} x {HIGH} bytes")
    return {"width_bytes": WIDE, "height": HIGH}


def rate(work: Work) -> dict[str, Any]:
    """Time large copies by stamps of the card."""
    card, size = work.card, work.scale.rate_bytes
    told: dict[str, Any] = {"bytes": size}
    with (
        card.alloc(4096, "host") as cell,
        card.alloc(size, "host") as host,
        card.alloc(size) as one,
        card.alloc(size) as other,
    ):
        ways = {"host_to_card": (one, host), "card_to_host": (host, one), "card_to_card": (other, one)}
        for name, (target, source) in ways.items():
            best = 0.0
            for _ in range(2):
                stream = card.copy.stream()
                stream.stamp(cell.gpu_va)
                stream.copy(target.gpu_va, source.gpu_va, size)
                stream.stamp(cell.gpu_va + STAMP_BYTES)
                card.copy.submit(stream).wait()
                first, second = card.copy.download_array(cell, "u8", (2, STAMP_BYTES // 8))[:, STAMP_CLOCK_AT // 8]
                best = max(best, size / max(int(second) - int(first), 1))
            told[f"{name}_gb_per_s"] = round(best, 3)
    return told


def wrap(work: Work) -> dict[str, Any]:
    """Submit more often than a GPFIFO has entries; each seventh submission stores its number."""
    card, queue, total = work.card, work.card.copy, work.scale.submissions
    want = np.zeros(CELLS, np.uint32)
    with card.alloc(4 * CELLS) as buffer:
        queue.fill(buffer, 0)
        began = card.device.clock.now_us
        for number in range(total):
            stream = queue.stream()
            if number % 7 == 0:
                stream.store(buffer.gpu_va + 4 * (number % CELLS), number)
                want[number % CELLS] = number
            queue.submit(stream)
        queue.idle()
        took_us = card.device.clock.now_us - began
        _same(queue.download_array(buffer, "u4", CELLS), want, "words that submissions stored")
    return {
        "submissions": total,
        "entries": ENTRIES,
        "times_around": round(total / ENTRIES, 2),
        "us_per_submission": round(took_us / total, 3),
    }


def ordered(work: Work) -> dict[str, Any]:
    """Let a copy channel wait for the compute channel and the other way round, each round."""
    card, rounds = work.card, work.scale.rounds
    semaphores = Semaphores(host_methods(card.facts.row.channel_class))
    with card.alloc(4096, "host") as cells, card.alloc(4096) as far:
        done: Point | None = None
        for number in range(rounds):
            for queue, build in (
                (card.compute, _storing(semaphores, cells.gpu_va, 1000 + number)),
                (card.copy, _copying(far.gpu_va + 8 * number % 4096, cells.gpu_va)),
            ):
                stream: Any = queue.stream()
                if done is not None:
                    stream.wait_for(done)
                build(stream)
                done = queue.submit(stream)
        if done is not None:
            done.wait()
        kept = min(rounds, 512)
        seen = card.copy.download_array(far, "u8", 512)
    want = np.zeros(512, np.uint64)
    for number in range(rounds):
        want[number % 512] = 1000 + number
    _same(seen[:kept], want[:kept], "values that one channel stored and the other copied")
    return {"rounds": rounds}


def _storing(semaphores: Semaphores, gpu_va: int, value: int) -> Callable[[Any], None]:
    return lambda stream: stream.append(semaphores.release(gpu_va, value))


def _copying(target_va: int, source_va: int) -> Callable[[Any], None]:
    return lambda stream: stream.copy(target_va, source_va, 8)


STAGE = Stage(
    6,
    "copies",
    (
        StepRow("every size in every direction", 30, sizes),
        StepRow("ranges that overlap", 5, overlapping),
        StepRow("a rectangle", 5, planes),
        StepRow("the rate", 20, rate),
        StepRow("the ring and the GPFIFO wrap", 20, wrap),
        StepRow("two channels wait for each other", 10, ordered),
    ),
    needs=(2, 4, 5),
)
