"""A Radeon's memory: the range allocator at several fillings, page tables mapped and unmapped; in plain memory,
compared with tinygrad.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from ringup.drivers.amd.gmc.page_table import PageTables, Run
from ringup.drivers.amd.gmc.pte import GFX11, PAGE_BYTES, Kind
from ringup.drivers.memory.ranges import Ranges
from ringup.tools.bench.bench import Bench
from ringup.tools.bench.figure import Figure
from ringup.tools.bench.timing import cpu_us, median

ROUNDS = 5
STEPS = 10_000
VRAM_BYTES = 64 << 30
TABLE_BYTES = 16 << 20
BASE = 1 << 32  # address of the mappings
MIB, GIB = 1 << 20, 1 << 30
MAX_PAGES = 128  # the size limit of a random range
QUICK_LIVE = 10_000  # filling more takes both seconds
LIVE = {"100 live": 100, "10,000 live": 10_000, "100,000 live": 100_000}
MAPPINGS: dict[str, tuple[Kind, list[Run]]] = {
    "4 KiB": ("vram", [(PAGE_BYTES, PAGE_BYTES)]),
    "64 KiB": ("vram", [(65536, 65536)]),
    "2 MiB": ("vram", [(2 * MIB, 2 * MIB)]),
    "256 MiB": ("vram", [(2 * MIB, 256 * MIB)]),
    "4 MiB of 4 KiB pages": ("host", [(2 * i * PAGE_BYTES, PAGE_BYTES) for i in range(1, 1025)]),
}

# a mapping in one piece is timed a fifth as often as ranges, a mapping in pieces much less often
TIMES_SINGLE, TIMES_PIECES = 5, 500
FLUSH_NOTE = "without the flush of translations; tinygrad's tables are checked to be empty first, ours are overwritten"


class Plain:
    """Memory for tables without a bus in front of it."""

    def __init__(self) -> None:
        self._bytes = bytearray(TABLE_BYTES)
        self.pages = list(range(0, TABLE_BYTES, PAGE_BYTES))

    def write(self, vram_pa: int, data: bytes) -> None:
        """Store bytes."""
        self._bytes[vram_pa : vram_pa + len(data)] = data

    def read(self, vram_pa: int, size_bytes: int) -> bytes:
        """Read bytes."""
        return bytes(self._bytes[vram_pa : vram_pa + size_bytes])


def measure(bench: Bench) -> Iterator[Figure]:
    """Time a free and an allocation of random sizes among random ranges, and a map and an unmap of each mapping."""
    live = {name: count for name, count in LIVE.items() if count <= QUICK_LIVE or not bench.quick}
    steps = STEPS // 10 if bench.quick else STEPS
    times = {
        name: max(1, steps // (TIMES_SINGLE if len(runs) == 1 else TIMES_PIECES))
        for name, (_, runs) in MAPPINGS.items()
    }
    bench.say("tinygrad's memory")
    job = {
        "live": live, "steps": steps, "rounds": ROUNDS, "vram_bytes": VRAM_BYTES, "page_bytes": PAGE_BYTES, "max_pages": MAX_PAGES,
        "base": BASE, "mappings": {name: (*mapping, times[name]) for name, mapping in MAPPINGS.items()},
    }  # fmt: skip
    peer = bench.peer.call("memory", job) or {}
    for name, count in live.items():
        bench.say(f"ranges, {name}")
        yield Figure(f"free and allocate a range, {name}", "us", _ranges_us(count, steps), peer.get(name))
    memory = Plain()
    tables = PageTables(memory, memory.pages.pop, GFX11, free_page=memory.pages.append)
    # tables of the upper levels are there already
    tables.map(BASE - PAGE_BYTES, [(PAGE_BYTES, PAGE_BYTES)], "vram")
    for name, (kind, runs) in MAPPINGS.items():
        bench.say(f"page tables, {name}")
        size = sum(length for _, length in runs)

        def pair(kind: Kind = kind, runs: list[Run] = runs, size: int = size) -> None:
            tables.map(BASE, runs, kind)
            tables.unmap(BASE, size)
            tables.settle()

        ours, theirs = _us(pair, times[name]), peer.get(name)
        yield Figure(f"map and unmap {name}", "us", ours, theirs, note=FLUSH_NOTE)
        if size >= 2 * MIB:
            rate = size / GIB * 1e6
            yield Figure(
                f"map and unmap {name}, rate",
                "GiB/s",
                rate / ours,
                theirs and rate / theirs,
                better="more",
                note=FLUSH_NOTE,
            )


def _ranges_us(count: int, steps: int) -> float:
    rnd = random.Random(count)
    ranges = Ranges(0, VRAM_BYTES, "bench")
    sizes = [PAGE_BYTES * rnd.randint(1, MAX_PAGES) for _ in range(count)]
    live = [ranges.alloc(size) for size in sizes]
    rnd.shuffle(live)
    order = iter(rnd.choices(range(count), k=steps * ROUNDS))

    def step() -> None:
        i = next(order)
        ranges.free(live[i])
        live[i] = ranges.alloc(sizes[i])

    return _us(step, steps)


def _us(step: Callable[[], None], times: int) -> float:
    """Return microseconds of CPU a step takes, the median of the rounds."""
    return median([cpu_us(step, times) for _ in range(ROUNDS)])
