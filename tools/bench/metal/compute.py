"""Stage 7: kernels of ringup's own assembler, compared with NumPy; how long a launch takes."""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np

from ringup.drivers.buffer import Buffer
from ringup.drivers.nv.nodes.card import NodesCard
from ringup.queues.nv.semaphores import STAMP_BYTES, STAMP_CLOCK_AT
from ringup.tools.bench.metal import programs
from ringup.tools.bench.metal.programs import BLOCK, LOCAL_WORDS
from ringup.tools.bench.metal.steps import Stage, StepRow, check
from ringup.tools.bench.metal.work import Work

WAIT_S = 10.0
COUNT_BLOCK = 32
SHARED_BYTES = 4 * BLOCK
# bytes between the beginnings of launches' stamps
PAIR = 2 * STAMP_BYTES


def launch(
    card: NodesCard, kernel: Any, grid: int, block: int, args: list[Buffer | int], shared_bytes: int = 0
) -> None:
    """Run a kernel and wait for it."""
    stream = card.compute.stream()
    stream.dispatch(kernel, grid, block, args, dynamic_lds_bytes=shared_bytes)
    card.compute.submit(stream).wait(WAIT_S)


def load(card: NodesCard) -> Any:
    """Put the kernels of the check on a card."""
    row = card.facts.row
    return card.load(programs.cubin(row.target), "the check's kernels")


def loaded(work: Work) -> dict[str, Any]:
    """Assemble the kernels for the card and load them."""
    row = work.card.facts.row
    work.programs = load(work.card)
    return {"target": row.target, "bytes": len(programs.cubin(row.target))}


def _compare(seen: Any, want: Any, what: str) -> None:
    wrong = np.flatnonzero(seen != want)
    if len(wrong):
        at = int(wrong[0])
        check(False, f"{what}: {len(wrong)} of {len(want)} words differ; word {at} is {seen[at]:#x}, not {want[at]:#x}")


def add(work: Work) -> dict[str, Any]:
    """Add vectors whose last block is not full."""
    card, n = work.card, work.scale.elements
    random = np.random.default_rng(1)
    ours, theirs = (random.integers(0, 1 << 32, n, np.uint32) for _ in range(2))
    with card.alloc(4 * n) as a, card.alloc(4 * n) as b, card.alloc(4 * n) as c:
        card.copy.upload(a, ours).wait()
        card.copy.upload(b, theirs).wait()
        launch(card, work.programs["add"], -(-n // BLOCK), BLOCK, [a, b, c, n])
        _compare(card.copy.download_array(c, "u4", n), ours + theirs, "add")
    return {"words": n}


def shared(work: Work) -> dict[str, Any]:
    """Reverse words through shared memory of several sizes, at its end."""
    card, words = work.card, np.arange(BLOCK, dtype=np.uint32) * 3
    done = []
    with card.alloc(SHARED_BYTES) as buffer:
        for size in (*work.scale.shared_bytes, card.facts.row.max_shared_bytes):
            card.copy.upload(buffer, words).wait()
            launch(card, work.programs["reverse"], 1, BLOCK, [buffer, size - SHARED_BYTES], size)
            seen = card.copy.download_array(buffer, "u4", BLOCK)
            _compare(seen, words[::-1], f"reverse, with {size} bytes of shared memory")
            done.append(size)
    return {"shared_bytes": done}


def local(work: Work) -> dict[str, Any]:
    """Keep a word of each thread in local memory, at its first and last place."""
    card = work.card
    with card.alloc(4 * BLOCK) as buffer:
        for at in (0, 7, LOCAL_WORDS - 1):
            card.copy.fill(buffer, 0).wait()
            launch(card, work.programs["local"], 1, BLOCK, [buffer, at])
            seen = card.copy.download_array(buffer, "u4", BLOCK)
            _compare(seen, np.arange(BLOCK, dtype=np.uint32) + 1000, f"local, at word {at}")
    return {"frame_words": LOCAL_WORDS}


def grids(work: Work) -> dict[str, Any]:
    """Count all threads of grids from one block up, by atomic operations on one word."""
    card = work.card
    with card.alloc(4096) as cell:
        for grid in work.scale.grids:
            card.copy.fill(cell, 0, 0, 4).wait()
            launch(card, work.programs["counts"], grid, COUNT_BLOCK, [cell])
            seen = int(card.copy.download_array(cell, "u4", 1)[0])
            want = grid * COUNT_BLOCK % (1 << 32)
            check(seen == want, f"{grid} blocks of {COUNT_BLOCK} threads counted {seen}, not {want}")
    return {"grids": list(work.scale.grids)}


def latency(work: Work) -> dict[str, Any]:
    """Time launches of one warp: from the doorbell to the semaphore as this process sees it, and on the card."""
    card, count = work.card, work.scale.launches
    host_us = []
    with card.alloc(4096) as cell, card.alloc(PAIR * count, "host") as stamps:
        card.copy.fill(cell, 0, 0, 4).wait()
        stream = card.compute.stream()
        stream.dispatch(work.programs["counts"], 1, COUNT_BLOCK, [cell])
        kept = card.compute.keep(stream)
        try:
            for _ in range(count):
                began = time.perf_counter_ns()
                point = kept.submit()
                end = began + int(WAIT_S * 1e9)
                while not point.done:
                    check(time.perf_counter_ns() < end, f"a launch had not ended after {WAIT_S:g} s")
                    # on a virtual card, time passes only while somebody waits
                    if not work.host.has_tools:
                        point.wait(WAIT_S)
                host_us.append((time.perf_counter_ns() - began) / 1e3)
        finally:
            card.compute.idle()
            kept.free()
        for number in range(count):
            at = stamps.gpu_va + PAIR * number
            stream = card.compute.stream()
            stream.stamp(at)
            stream.dispatch(work.programs["counts"], 1, COUNT_BLOCK, [cell])
            stream.stamp(at + STAMP_BYTES)
            card.compute.submit(stream).wait(WAIT_S)
        clocks = card.copy.download_array(stamps, "u8", (count, 2, STAMP_BYTES // 8))[:, :, STAMP_CLOCK_AT // 8]
        card_ns = [int(end) - int(begin) for begin, end in clocks]
        seen = int(card.copy.download_array(cell, "u4", 1)[0])
    check(seen == 2 * count * COUNT_BLOCK, f"{2 * count} launches counted {seen} threads")
    told: dict[str, Any] = {
        "launches": count,
        "doorbell_to_semaphore_us": round(statistics.median(host_us), 3),
        "best_us": round(min(host_us), 3),
        "on_the_card_ns": statistics.median(card_ns),
    }
    if "launch_us" in work.vendor:
        told["cuda_launch_and_synchronize_us"] = work.vendor["launch_us"]
    return told


STAGE = Stage(
    7,
    "compute",
    (
        StepRow("kernels are assembled and loaded", 5, loaded),
        StepRow("vectors are added", 10, add),
        StepRow("shared memory", 5, shared),
        StepRow("local memory", 5, local),
        StepRow("atomic operations of grids of many sizes", 20, grids),
        StepRow("the time of a launch", 30, latency),
    ),
    needs=(2, 4, 6),
)
