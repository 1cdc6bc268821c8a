"""Stage 0: the machine, and whether somebody else computes on its card."""

from __future__ import annotations

import os
import platform
from typing import Any

from ringup.errors import CardBusy
from ringup.tools.bench.metal.host import vendor_libraries
from ringup.tools.bench.metal.steps import LeftOut, Stage, StepRow, check
from ringup.tools.bench.metal.work import Work

SMI_S = 15.0
QUERY = ("--query-compute-apps=pid,process_name", "--format=csv,noheader")
GPUS = "/proc/driver/nvidia/gpus"


def clean(work: Work) -> dict[str, Any]:
    """Check that the process has no library of NVIDIA's."""
    # of this process, whichever card it opens
    with open("/proc/self/maps", encoding="utf-8") as maps:
        found = vendor_libraries(maps.read())
    check(not found, f"the process has libraries of NVIDIA's: {', '.join(found)}")
    return {"vendor_libraries": 0}


def facts(work: Work) -> dict[str, Any]:
    """Read what the system says of itself and of the driver."""
    host = work.host
    if not host.has_tools:
        raise LeftOut("a virtual card's machine is this process")
    folder = host.kernel.path(GPUS)
    cards = [host.kernel.text(folder / name / "information") for name in host.kernel.names(folder)]
    for text in cards:
        work.masks.learn_from(text)
    nodes = [line for line in host.text("/proc/devices").splitlines() if "nvidia" in line]
    return {
        "driver": host.text("/proc/driver/nvidia/version"),
        "nodes": nodes,
        "cards": cards,
        "kernel": os.uname().release,
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }


def smi(work: Work) -> dict[str, Any]:
    """Ask nvidia-smi for all that it knows, and keep it masked."""
    text = work.host.output([work.host.tool("nvidia-smi"), "-q", "-x"], SMI_S)
    work.masks.learn_from(text)
    masked = work.masks.text(text)
    return {"bytes": len(masked), "kept": work.keep("nvidia-smi.xml", masked.encode())}


def alone(work: Work) -> dict[str, Any]:
    """Refuse to go on when another process computes on a card of the machine."""
    if not work.host.has_tools:
        raise LeftOut("a virtual card has no other users")
    busy = work.host.computing()
    try:
        busy += work.host.output([work.host.tool("nvidia-smi"), *QUERY], SMI_S).strip().splitlines()
        asked = True
    except LeftOut:
        asked = False
    if busy:
        raise CardBusy(
            f"checking {work.name}: other processes compute on a card of this machine ({'; '.join(busy)}); end them first"
        )
    return {"others": 0, "nvidia_smi_asked": asked}


STAGE = Stage(
    0,
    "machine",
    (
        StepRow("no library of the vendor's in the process", 5, clean),
        StepRow("what the system says", 5, facts),
        StepRow("what nvidia-smi says", 20, smi),
        StepRow("nobody else computes", 20, alone),
    ),
)
