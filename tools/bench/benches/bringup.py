"""Starts of a card, cold and warm, in fresh interpreters: CPU and register accesses by stage, compared with
tinygrad on the same virtual card; of a virtual MI300X too.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ringup.tools.bench.bench import Bench
from ringup.tools.bench.benches.imports import timed
from ringup.tools.bench.benches.shader import CHECKOUT
from ringup.tools.bench.figure import Figure, Goal
from ringup.tools.bench.on_card import VIRTUAL, is_virtual, note
from ringup.tools.bench.plot import Bars, Plot
from ringup.tools.bench.timing import median
from ringup.tools.competitor.pci_door import PciDoor

MIB = 1 << 20
VRAM_BYTES = 1024 * MIB
WINDOWS = {"window of 256 MiB": 256 * MIB, "whole window": VRAM_BYTES}  # the sizes of BAR 0 of a virtual card
KINDS = ("cold", "warm")
# a graphics core of eight dies, with 16 copy engines
OF_DIES = "virtual:mi300x"
ROUNDS, IMPORT_ROUNDS = 5, 15
CPU_GOAL_S = 1.0
IMPORTS = (  # ours, tinygrad's, goal in milliseconds
    ("import ringup", ("ringup",), ("tinygrad",), 50),
    ("import the AMD driver", ("ringup", "ringup.drivers.amd.card"), ("tinygrad.runtime.ops_amd",), 100),
)
LOADED = """
import sys
before = set(sys.modules)
import ringup.drivers.amd.card, json
names = {name.partition('.')[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names) - {'ringup'}
print(json.dumps(sorted(name for name in names if getattr(sys.modules.get(name), '__spec__', None) and sys.modules[name].__spec__.origin)))
"""
REMOTE = {"DEV": "PCI+AMD:LLVM", "REMOTE_TIMEOUT": "60"}
# Without a power limit it asks for the highest clock, and its mock's answer for the number of clocks makes that
# 400,000 messages
MOCK = {"DEV": "MOCKPCI+AMD", "AM_POWER_LIMIT": "300"}
CPU_NOTE = (
    "ours has the card's model in the same process; peer: its process alone, the same virtual card behind its "
    "protocol for remote cards"
)
ACCESS_NOTE = (
    "register reads and writes, polls and the indexed reads of memory among them; tinygrad polls without a pause"
)
MOCK_NOTE = (
    "peer: on its own mock, of another chip (gfx1200), which answers at once; ours: a navi31 that takes time, whole "
    "window, cold"
)
Answer = Mapping[str, Any]


def measure(bench: Bench) -> Iterator[Figure | Plot]:
    """Import, then start the card cold and warm, in fresh interpreters; tinygrad's runs alternate with ours."""
    yield from _imports(bench)
    rounds = 1 if bench.quick else ROUNDS
    if not is_virtual(bench.card):
        bench.say(bench.card)
        yield from _figures("", [_ours(bench, bench.card, None)], [], note(bench.card))
        return
    for name, bar0_bytes in WINDOWS.items():
        ours, peers = _alternate(bench, bench.card, bar0_bytes, rounds, name)
        yield from _figures(f", {name}", ours, peers, CPU_NOTE)
    yield from _mock(bench, ours, rounds)
    if bench.card != OF_DIES:
        yield from _figures(", MI300X", *_alternate(bench, OF_DIES, VRAM_BYTES, rounds, "MI300X"), CPU_NOTE)


def _alternate(
    bench: Bench, card: str, bar0_bytes: int, rounds: int, name: str
) -> tuple[list[Answer], list[Sequence[Answer]]]:
    """Start a virtual card by both drivers in turn; return ours and the peer's answers."""
    bench.say(name)
    _ours(bench, card, bar0_bytes)  # writes the bytecode
    ours: list[Answer] = []
    peers: list[Sequence[Answer]] = []
    for _ in range(rounds):
        ours.append(_ours(bench, card, bar0_bytes))
        answers = _peer(bench, card, bar0_bytes)
        peers += [] if answers is None else [answers]
    return ours, peers


def _imports(bench: Bench) -> Iterator[Figure]:
    loaded = None
    for name, modules, theirs, goal in IMPORTS:
        bench.say(name)
        code, peer_code = timed(modules), timed(theirs)
        bench.fresh.evaluate(code)  # writes the bytecode
        rounds = 3 if bench.quick else IMPORT_ROUNDS
        pairs = [(bench.fresh.evaluate(code), bench.peer.evaluate(peer_code)) for _ in range(rounds)]
        peers = [pair[1] for pair in pairs if pair[1] is not None]
        if "driver" in name:
            loaded = f"packages besides Python's own: {', '.join(bench.fresh.evaluate(LOADED)) or 'none'}"
        yield Figure(
            name,
            "ms",
            median([pair[0] for pair in pairs]),
            median(peers) if peers else None,
            Goal("ours", goal),
            note=loaded or "",
        )


def _ours(bench: Bench, card: str, bar0_bytes: int | None) -> Answer:
    job = {
        "card": card,
        "firmware": [str(path) for path in bench.firmware],
        "virtual": bar0_bytes and {"vram_bytes": VRAM_BYTES, "bar0_bytes": bar0_bytes},
    }
    answer: Answer = bench.fresh.call("ringup.tools.bench.starts", job)
    return answer


def _peer(bench: Bench, name: str, bar0_bytes: int) -> Sequence[Answer] | None:
    """Let tinygrad start a virtual card cold and warm; None without tinygrad."""
    if bench.peer.python is None:
        return None
    # only runs with tinygrad need the model here
    from ringup.silicon import card
    from ringup.silicon.amd.board import images
    from ringup.silicon.amd.board.chips import find

    chip = name.removeprefix(VIRTUAL)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ringup-bench-"))
        for file, data in images.build(find(chip)).items():
            Path(folder, file).write_bytes(data)
        door = stack.enter_context(PciDoor(card(chip, vram_bytes=VRAM_BYTES, bar0_bytes=bar0_bytes)))
        job = {"variables": {**REMOTE, "REMOTE": door.address}, "firmware": [folder]}
        answers = [bench.peer.call("bringup", job) for _ in KINDS]
    return None if None in answers else answers


def _figures(
    suffix: str, ours: Sequence[Answer], peers: Sequence[Sequence[Answer]], about: str
) -> Iterator[Figure | Plot]:
    """Give the figures of both starts. `ours`: answers of `starts`; `peers`: of tinygrad's script, cold and warm."""

    def beside(i: int, *keys: str) -> float | None:
        return median([sum(answers[i][key] for key in keys) for answers in peers]) if peers else None

    for i, kind in enumerate(KINDS):
        starts = [answer["starts"][i] for answer in ours]
        title = f"{kind} start{suffix}" if peers or suffix else f"start {i + 1}, found {starts[0]['found']}"
        cpu_s = median([start["cpu_s"] for start in starts])
        yield Figure(title, "CPU s", cpu_s, beside(i, "cpu_s"), Goal("ours", CPU_GOAL_S), note=about)
        whole = median([answer["import_s"] + answer["starts"][i]["cpu_s"] for answer in ours])
        yield Figure(
            f"{title}, imports included",
            "CPU s",
            whole,
            beside(i, "import_s", "cpu_s"),
            Goal("ours", CPU_GOAL_S),
            note=about,
        )
        for key in ("reads", "writes"):
            count = median([start[key] for start in starts])
            yield Figure(f"{title}, register {key}", "", count, beside(i, key), note=ACCESS_NOTE)
        both = median([start["reads"] + start["writes"] for start in starts])
        yield Figure(
            f"{title}, register accesses", "", both, beside(i, "reads", "writes"), Goal("ratio", 1), note=ACCESS_NOTE
        )
        yield Figure(f"{title}, close", "CPU s", median([start["close_s"] for start in starts]))
        names = [name for name, _, _ in starts[0]["stages"]]
        times = [
            [median([start["stages"][row][column] for start in starts]) for row in range(len(names))]
            for column in (1, 2)
        ]
        yield Bars(f"Stages, {title}: CPU", "ms of CPU", names, {"CPU": times[0]})
        yield Bars(f"Stages, {title}: the card's clock", "ms of the card's clock", names, {"card": times[1]})


def _mock(bench: Bench, ours: Sequence[Answer], rounds: int) -> Iterator[Figure]:
    """Give tinygrad's start on its own mock, if there is a checkout of its source."""
    if bench.peer.python is None:
        return
    checkout = bench.peer.python.parents[2] / CHECKOUT
    if not (checkout / "test" / "mockgpu").is_dir():
        bench.peer.say(
            f"no figure of tinygrad's mock: its packages have none; put a checkout of its repository in {checkout}"
        )
        return
    bench.say("tinygrad's mock")
    firmware = bench.sources.root("firmware-amd") / "lib/firmware/amdgpu"
    job = {"variables": MOCK, "checkout": str(checkout), "firmware": [str(firmware)]}
    answers = [answer for answer in (bench.peer.call("bringup", job) for _ in range(rounds)) if answer is not None]
    if not answers:
        return
    starts = [answer["starts"][0] for answer in ours]
    for name, unit, keys in (("CPU", "CPU s", ("cpu_s",)), ("register accesses", "", ("reads", "writes"))):
        mine = median([sum(start[key] for key in keys) for start in starts])
        theirs = median([sum(answer[key] for key in keys) for answer in answers])
        yield Figure(
            f"cold start compared with tinygrad's mock, {name}",
            unit,
            mine,
            theirs,
            beside="tinygrad, its mock",
            note=MOCK_NOTE,
        )
