"""ringup's part of the bench of an NVIDIA card's start, in a fresh interpreter: one job on stdin, one answer on stdout,
both JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from ringup.tools.bench.starts import CpuStages


def behind_driver(chip: str) -> dict[str, Any]:
    """Open the card behind a modelled kernel driver. The card is made and the model is imported before."""
    silicon = import_module("ringup.silicon")
    # another card: imports what the first system call would import
    silicon.nvidia_kernel(chip)
    # which the model's transport asks for
    silicon.cards()
    model = silicon.nvidia_card(chip)
    imports = time.process_time()
    ringup = import_module("ringup")
    import_module("ringup.drivers.nv.nodes.card")
    opened = time.process_time()
    card = ringup.open(f"virtual:{chip}@nvidia", transport={"card": model})
    closed = time.process_time()
    answer = {"import_s": opened - imports, "open_s": closed - opened}
    card.close()
    return answer | {"close_s": time.process_time() - closed}


def bare(chip: str) -> dict[str, Any]:
    """Start the card itself, until its GSP-RM answers. The card is made before."""
    model = import_module("ringup.silicon").nvidia_card(chip)
    imports = time.process_time()
    lifecycle = import_module("ringup.drivers.nv.lifecycle.bringup")
    stages_module, store = import_module("ringup.drivers.stages"), import_module("ringup.firmware.store")
    answer: dict[str, Any] = {"import_s": time.process_time() - imports}
    watch = CpuStages()
    stages = stages_module.Stages(model.name, model.clock, watch)
    start = time.process_time()
    bringup = lifecycle.Bringup(model, stages, store.Store(()))
    bringup.run()
    answer["cpu_s"] = time.process_time() - start
    answer |= {"reads": bringup.registers.reads, "writes": bringup.registers.writes, "found": bringup.found.value}
    answer["stages"] = [(stage.name, watch.ms[stage.name], stage.took_us / 1000) for stage in stages.done]
    start = time.process_time()
    bringup.running.stop()
    return answer | {"stop_s": time.process_time() - start}


TASKS: Mapping[str, Callable[[str], dict[str, Any]]] = {"behind driver": behind_driver, "bare": bare}


if __name__ == "__main__":
    given = json.load(sys.stdin)
    sys.stdout.write(json.dumps(TASKS[given["task"]](given["chip"])))
