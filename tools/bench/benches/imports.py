"""Import times: the package, and every generated module in an interpreter of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import ringup.autogen
from ringup.tools.bench.bench import Bench
from ringup.tools.bench.figure import Figure, Goal
from ringup.tools.bench.timing import median

PACKAGE_RUNS = 20
MODULE_RUNS = 5
MODULE_GOAL = Goal("ours", 3)
VENDOR_PEERS = {  # tinygrad's module with the same vendor's facts
    "amd": "tinygrad.runtime.autogen.am.am",
    "nv": "tinygrad.runtime.autogen.nv_580",
    "qcom": "tinygrad.runtime.autogen.kgsl",
    "linux": "tinygrad.runtime.autogen.vfio",
}
AMD_PEERS = (  # what tinygrad loads to drive an AMD card
    "tinygrad.runtime.autogen.am.am",
    "tinygrad.runtime.autogen.am.regs",
    "tinygrad.runtime.autogen.amd_gpu",
)


def timed(modules: tuple[str, ...] | list[str], before: str = "") -> str:
    """Return the code that imports `modules` after `before` and prints the milliseconds of wall clock."""
    lines = ["import time", f"import {before}" if before else "", "start = time.perf_counter()"]
    lines += [f"import {module}" for module in modules]
    return "\n".join([*lines, "print((time.perf_counter() - start) * 1e3)"])


def measure(bench: Bench) -> Iterator[Figure]:
    """Import `ringup`, then each generated module; tinygrad's runs alternate with ours."""
    bench.say("import ringup")
    yield _side_by_side(bench, "import ringup", ("ringup",), ("tinygrad",), PACKAGE_RUNS, goal=Goal("ours", 50))
    times = {name: _module_ms(bench, name) for name in generated_modules()}
    over = [name.partition("autogen.")[2] for name, ms in times.items() if ms > MODULE_GOAL.bound]
    note = (
        f"{len(times)} generated modules, {len(over)} over the goal ({', '.join(over) or 'none'}); "
        f"each in a fresh interpreter that has ringup.autogen.layout; median of {MODULE_RUNS}"
    )
    yield Figure("one block's module, median", "ms", median(times.values()), goal=MODULE_GOAL, note=note)
    for vendor, module in VENDOR_PEERS.items():
        of_vendor = {name: ms for name, ms in times.items() if name.split(".")[2] == vendor}
        if not of_vendor:
            continue
        worst = max(of_vendor, key=of_vendor.__getitem__)
        bench.say(f"import {module}")
        peer = [bench.peer.evaluate(timed([module], "tinygrad.runtime.support.c")) for _ in range(MODULE_RUNS)]
        name = f"slowest module of {vendor}: {worst.rpartition('.')[2]}"
        yield Figure(
            name,
            "ms",
            of_vendor[worst],
            _median(peer),
            MODULE_GOAL,
            note=f"peer: {module.removeprefix('tinygrad.runtime.')}",
        )
    bench.say("every amd module at once")
    together = [name for name in times if name.startswith("ringup.autogen.amd.")]
    yield _side_by_side(
        bench, f"all {len(together)} modules of amd at once", together, AMD_PEERS, MODULE_RUNS, layouts=True
    )


def generated_modules() -> list[str]:
    """Return the names of every generated module of the package."""
    folder = Path(ringup.autogen.__file__).parent
    paths = sorted(
        path for vendor in VENDOR_PEERS for path in (folder / vendor).glob("*.py") if path.stem != "__init__"
    )
    return [f"ringup.autogen.{path.parent.name}.{path.stem}" for path in paths]


def _module_ms(bench: Bench, name: str) -> float:
    bench.say(name)
    code = timed([name], "ringup.autogen.layout")
    bench.fresh.evaluate(code)  # writes the bytecode
    times: list[float] = [bench.fresh.evaluate(code) for _ in range(MODULE_RUNS)]
    return median(times)


def _side_by_side(
    bench: Bench,
    name: str,
    ours: tuple[str, ...] | list[str],
    peers: tuple[str, ...],
    runs: int,
    *,
    goal: Goal | None = None,
    layouts: bool = False,
) -> Figure:
    our_code = timed(ours, "ringup.autogen.layout" if layouts else "")
    peer_code = timed(peers, "tinygrad.runtime.support.c" if layouts else "")
    bench.fresh.evaluate(our_code)
    pairs = [(bench.fresh.evaluate(our_code), bench.peer.evaluate(peer_code)) for _ in range(runs)]
    return Figure(name, "ms", median([pair[0] for pair in pairs]), _median([pair[1] for pair in pairs]), goal)


def _median(values: list[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return median(there) if there else None
