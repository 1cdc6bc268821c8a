"""Stage 11: one fault, last, in a client of its own; and what is left over of the check: nothing."""

from __future__ import annotations

from functools import partial
from typing import Any

from ringup.drivers.nv.nodes.card import NodesCard
from ringup.drivers.nv.nodes.memory import NodesMemory
from ringup.drivers.nv.nodes.objects import CardObjects
from ringup.drivers.transport.nvidia.device import NvidiaDevice
from ringup.errors import DeviceFault
from ringup.tools.bench.metal import machine
from ringup.tools.bench.metal.client import with_objects
from ringup.tools.bench.metal.compute import COUNT_BLOCK, launch, load
from ringup.tools.bench.metal.host import open_nodes
from ringup.tools.bench.metal.steps import LAST_S, LeftOut, Stage, StepRow, check
from ringup.tools.bench.metal.work import Work

# an address that nothing is mapped at: the driver gives low ones first
NOWHERE = 0x7F_0000_0000


def fault(work: Work) -> dict[str, Any]:
    """Load from an address that nothing is mapped at: the error names it, and a new channel computes."""
    card = work.start()
    try:
        return _fault(card)
    finally:
        card.close()


def _fault(card: NodesCard) -> dict[str, Any]:
    kernels = load(card)
    cell = card.alloc(4096)
    check(card.memory.find(NOWHERE) is None, f"a buffer lies at {NOWHERE:#x}")
    said = ""
    try:
        launch(card, kernels["load"], 1, 1, [cell, NOWHERE])
    except DeviceFault as error:
        said = str(error)
    check(bool(said), f"a load from {NOWHERE:#x} ended without a fault")
    rungs = card.reset()
    card.copy.fill(cell, 0, 0, 4).wait()
    launch(card, kernels["counts"], 1, COUNT_BLOCK, [cell])
    seen = int.from_bytes(bytes(card.copy.download(cell, None, 0, 4)), "little")
    check(seen == COUNT_BLOCK, f"after the fault, {COUNT_BLOCK} threads counted {seen}")
    stats = card.stats()
    return {
        "error": said,
        "names_the_address": f"{NOWHERE:#x}" in said,
        "recovered_by": [rung.name for rung in rungs],
        "faults": stats.faults,
        "resets": stats.resets,
    }


def smi_answers(work: Work) -> dict[str, Any]:
    """Ask nvidia-smi for the card once more."""
    said = work.host.output([work.host.tool("nvidia-smi"), "-L"], machine.SMI_S)
    check("GPU 0" in said, f"nvidia-smi -L says {said[:500]!r}")
    return {"lines": len(said.splitlines())}


FAULT = Stage(
    11,
    "fault",
    (StepRow("a load from an address of nothing", 30, fault), StepRow("nvidia-smi still answers", 20, smi_answers)),
    needs=(2, 7),
)


def end(work: Work) -> dict[str, Any]:
    """Close the card that the stages share."""
    if not work.end():
        raise LeftOut("it is not open")
    return {}


def nodes(work: Work) -> dict[str, Any]:
    """Check that this process has no node of the driver open."""
    left = open_nodes()
    check(not left, f"this process still has {', '.join(left)} open")
    return {"open_nodes": 0}


def free_again(work: Work) -> dict[str, Any]:
    """Check that the card has as much free memory as before."""
    if work.free_bytes is None:
        raise LeftOut("the card was never opened")
    return with_objects(work, partial(_free_again, work.free_bytes))


def _free_again(before: int, path: NvidiaDevice, objects: CardObjects) -> dict[str, Any]:
    after = NodesMemory(objects).free_vram_bytes()
    check(
        after >= before, f"{before} bytes of VRAM were free at first, {after} are now: {before - after} are left over"
    )
    return {"free_bytes": after}


# behind the last stage that uses the shared card
CLOSE = Stage(7, "closing", (StepRow("the card is closed", LAST_S, end),), always=True)
LEFT_OVER = Stage(
    12,
    "left over",
    (
        StepRow("the card is closed", LAST_S, end),
        StepRow("memory is free again", LAST_S, free_again),
        StepRow("no node is open", LAST_S, nodes),
        StepRow("no library of the vendor's came in", LAST_S, machine.clean),
    ),
    always=True,
)
