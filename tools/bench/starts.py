"""ringup's part of the bring-up bench in a fresh interpreter: start a card twice. One job on stdin, one answer on
stdout, both JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from importlib import import_module
from typing import Any


class CpuStages:
    """A watcher of a bring-up: CPU milliseconds of each stage."""

    def __init__(self) -> None:
        self.ms: dict[str, float] = {}
        self._began_ns = 0

    def __call__(self, stage: Any) -> None:
        """Record the begin (its name) or the end of a stage."""
        if isinstance(stage, str):
            self._began_ns = time.process_time_ns()
        else:
            self.ms[stage.name] = (time.process_time_ns() - self._began_ns) / 1e6


def run(job: Mapping[str, Any]) -> dict[str, Any]:
    """Start the card, close it, start it again. `virtual`: options of a virtual card, which both starts use.

    Returns seconds of CPU, and for each start its stages: name, milliseconds of CPU, milliseconds of the card's clock.
    """
    imports = time.process_time()
    ringup = import_module("ringup")
    import_module("ringup.drivers.amd.card")
    answer: dict[str, Any] = {"import_s": time.process_time() - imports}
    transport: dict[str, Any] = {}
    if job["virtual"]:
        transport["card"] = import_module("ringup.silicon").card(job["card"].partition(":")[2], **job["virtual"])
    answer["starts"] = [start(ringup, job, transport) for _ in range(2)]
    return answer


def start(ringup: Any, job: Mapping[str, Any], transport: dict[str, Any]) -> dict[str, Any]:
    """Start and close the card once."""
    watch, cpu, wall = CpuStages(), time.process_time(), time.perf_counter()
    card = ringup.open(job["card"], transport=transport, firmware=job["firmware"], watch=watch)
    answer: dict[str, Any] = {"cpu_s": time.process_time() - cpu, "wall_s": time.perf_counter() - wall}
    registers = card.blocks.registers
    answer |= {"reads": registers.reads, "writes": registers.writes, "found": card.info.found}
    answer["stages"] = [(stage.name, watch.ms[stage.name], stage.took_us / 1000) for stage in card.stages]
    cpu = time.process_time()
    card.close()
    return answer | {"close_s": time.process_time() - cpu}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run(json.load(sys.stdin))))
