"""Starts of an NVIDIA card in fresh interpreters: behind a modelled kernel driver, and bare until GSP-RM answers;
compared with tinygrad on the same virtual card where it can be.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ringup.tools.bench.bench import Bench
from ringup.tools.bench.benches.imports import timed
from ringup.tools.bench.figure import Figure, Goal
from ringup.tools.bench.plot import Bars, Plot
from ringup.tools.bench.timing import median
from ringup.tools.competitor.pci_door import PciDoor

CHIP = "ga102"
ROUNDS = 5
MODULES, PEER_MODULES = ("ringup", "ringup.drivers.nv.nodes.card"), ("tinygrad.runtime.ops_nv",)
OPEN_GOAL_S, START_GOAL_S = 0.3, 1.0
REMOTE = {"DEV": "PCI+NV", "REMOTE_TIMEOUT": "60"}
OPEN_NOTE = (
    "the model is made and imported before, and runs in the same process; no peer: tinygrad opens /dev/nvidiactl "
    "itself, and the modelled driver is no device node"
)
CPU_NOTE = (
    "until GSP-RM answers; ours has the card's model in the same process; peer: its process alone, the same virtual "
    "card behind its protocol for remote cards"
)
ACCESS_NOTE = "dwords of the register BAR; the VBIOS is read there: the peer reads its whole window, 262,144 dwords"
Answer = Mapping[str, Any]


def measure(bench: Bench) -> Iterator[Figure | Plot]:
    """Import the driver, open a card behind a kernel driver, start one; tinygrad's runs alternate with ours."""
    rounds = 1 if bench.quick else ROUNDS
    yield _imports(bench, rounds)
    bench.say("behind a kernel driver")
    answers = [_ours(bench, "behind driver") for _ in range(rounds)]
    name = "open the card behind a kernel driver"
    yield Figure(name, "CPU s", median([answer["open_s"] for answer in answers]), note=OPEN_NOTE)
    whole = median([answer["import_s"] + answer["open_s"] for answer in answers])
    yield Figure(f"{name}, imports included", "CPU s", whole, None, Goal("ours", OPEN_GOAL_S), note=OPEN_NOTE)
    yield Figure(f"{name}: close", "CPU s", median([answer["close_s"] for answer in answers]))
    yield from _bare(bench, rounds)


def _imports(bench: Bench, rounds: int) -> Figure:
    name = "import the NVIDIA driver"
    bench.say(name)
    code, peer_code = timed(MODULES), timed(PEER_MODULES)
    # writes the bytecode, that of the starts too
    bench.fresh.evaluate(code)
    for task in ("behind driver", "bare"):
        _ours(bench, task)
    pairs = [(bench.fresh.evaluate(code), bench.peer.evaluate(peer_code)) for _ in range(rounds)]
    peers = [pair[1] for pair in pairs if pair[1] is not None]
    return Figure(name, "ms", median([pair[0] for pair in pairs]), median(peers) if peers else None)


def _bare(bench: Bench, rounds: int) -> Iterator[Figure | Plot]:
    bench.say("bare")
    ours: list[Answer] = []
    peers: list[Answer] = []
    for _ in range(rounds):
        ours.append(_ours(bench, "bare"))
        answer = _peer(bench)
        peers += [] if answer is None else [answer]

    def figure(name: str, unit: str, keys: tuple[str, ...], goal: Goal | None, note: str) -> Figure:
        mine = median([sum(answer[key] for key in keys) for answer in ours])
        theirs = median([sum(answer[key] for key in keys) for answer in peers]) if peers else None
        return Figure(name, unit, mine, theirs, goal, note=note)

    title, goal = "cold start", Goal("ours", START_GOAL_S)
    yield figure(title, "CPU s", ("cpu_s",), goal, CPU_NOTE)
    yield figure(f"{title}, imports included", "CPU s", ("import_s", "cpu_s"), goal, CPU_NOTE)
    for key in ("reads", "writes"):
        yield figure(f"{title}, register {key}", "", (key,), None, ACCESS_NOTE)
    yield figure(f"{title}, register accesses", "", ("reads", "writes"), Goal("ratio", 1), ACCESS_NOTE)
    yield Figure(f"{title}: stop", "CPU s", median([answer["stop_s"] for answer in ours]))
    names = [name for name, _, _ in ours[0]["stages"]]
    for column, unit, line in ((1, "ms of CPU", "CPU"), (2, "ms of the card's clock", "card")):
        times = [median([answer["stages"][row][column] for answer in ours]) for row in range(len(names))]
        yield Bars(f"Stages, {title}: {line}", unit, names, {line: times})


def _ours(bench: Bench, task: str) -> Answer:
    answer: Answer = bench.fresh.call("ringup.tools.bench.nvidia_starts", {"task": task, "chip": CHIP})
    return answer


def _peer(bench: Bench) -> Answer | None:
    """Let tinygrad start a virtual card; None without tinygrad."""
    if bench.peer.python is None:
        return None
    # only runs with tinygrad need the model here
    from ringup.silicon import nvidia_card, nvidia_firmware

    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ringup-bench-"))
        for name, data in nvidia_firmware(CHIP).items():
            Path(folder, Path(name).name).write_bytes(data)
        door = stack.enter_context(PciDoor(nvidia_card(CHIP)))
        job = {"variables": {**REMOTE, "REMOTE": door.address}, "firmware": [folder]}
        answer: Answer | None = bench.peer.call("nvidia_bringup", job)
    return answer
