"""Stages 2 and 3: a client of our own, and unified memory's node."""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial
from typing import Any

from ringup.autogen.nv import classes as nv
from ringup.autogen.nv import rm_alloc, uvm
from ringup.autogen.structs import memory
from ringup.drivers.nv.nodes.memory import NodesMemory
from ringup.drivers.nv.nodes.objects import CardObjects
from ringup.drivers.transport.nvidia.device import NvidiaDevice
from ringup.drivers.transport.nvidia.status import refusal, status_name
from ringup.drivers.transport.nvidia.system import UVM_NODE
from ringup.tools.bench.metal import machine
from ringup.tools.bench.metal.steps import LeftOut, Stage, StepRow, check
from ringup.tools.bench.metal.work import Work

# what CUDA's driver asks for
VA_BASE = 0x1000
VA_FLAGS = (
    rm_alloc.NV_VASPACE_ALLOCATION_FLAGS_ENABLE_PAGE_FAULTING | rm_alloc.NV_VASPACE_ALLOCATION_FLAGS_IS_EXTERNALLY_OWNED
)
UUID_BYTES = 16
# nvstatus.h, status 0
DONE = "NV_OK"
ABSENT = (errno.ENOENT, errno.ENXIO, errno.ENODEV)


def with_objects(work: Work, use: Callable[[NvidiaDevice, CardObjects], dict[str, Any]]) -> dict[str, Any]:
    """Make the objects of a client of its own, use them, and free them again."""
    path = work.path()
    try:
        objects = CardObjects(path)
        try:
            work.masks.learn(objects.facts.gid.hex())
            return use(path, objects)
        finally:
            objects.close()
    finally:
        path.close()


def tell(work: Work) -> dict[str, Any]:
    """Make a client, ask what the card is, and note how much of its memory is free before anything is made there."""
    return with_objects(work, partial(_tell, work))


def _tell(work: Work, path: NvidiaDevice, objects: CardObjects) -> dict[str, Any]:
    seen = objects.facts
    work.free_bytes = NodesMemory(objects).free_vram_bytes()
    first, second = objects.gpu_clock(), objects.gpu_clock()
    check(second >= first > 0, f"the card's clock went from {first} to {second} ns")
    return {
        "release": path.release,
        "layouts": path.calls.layouts,
        "product": seen.product,
        "chip": seen.chip,
        "target": seen.row.target,
        "classes": [f"{one:#x}" for one in sorted(seen.classes)],
        "copy_engines": list(seen.copy_engines),
        "gpcs": seen.gpcs,
        "tpcs": seen.tpcs,
        "sms": seen.sms,
        "warps_per_sm": seen.warps_per_sm,
        "vram_bytes": seen.vram_bytes,
        "bar1_bytes": seen.bar1_bytes,
        "l2_bytes": seen.l2_bytes,
        "gid_bytes": len(seen.gid),
        "free_bytes": work.free_bytes,
    }


def open_card(work: Work) -> dict[str, Any]:
    """Open the card with queues, for the stages that follow."""
    card = work.begin()
    return {"stages": {stage.name: round(stage.took_us) for stage in card.stages}}


CLIENT = Stage(
    2,
    "client",
    (
        StepRow("what the card is", 10, tell),
        StepRow("queues are made and answer", 30, open_card),
        StepRow("still no library of the vendor's", 5, machine.clean),
    ),
    needs=(0,),
)


def register(work: Work) -> dict[str, Any]:
    """Initialise a node of unified memory, register the card there, and an address space; take both off again."""
    return with_objects(work, _register)


def _register(path: NvidiaDevice, objects: CardObjects) -> dict[str, Any]:
    nodes: list[int] = []
    try:
        try:
            nodes.append(path.system.open(UVM_NODE))
        except OSError as error:
            if error.errno in ABSENT:
                raise LeftOut(f"{UVM_NODE} is not there; no module is loaded for a check") from error
            raise
        return _registered(path, objects, nodes)
    finally:
        for node in reversed(nodes):
            path.system.close(node)


def _registered(path: NvidiaDevice, objects: CardObjects, nodes: list[int]) -> dict[str, Any]:
    node, client = nodes[0], objects.client
    told: dict[str, Any] = {}

    def call(at: int, number: int, layout: Any, **values: Any) -> Any:
        request = client.make(layout, **values)
        data = bytearray(memory(request))
        path.system.ioctl(at, number, data)
        memory(request)[:] = data
        return request

    def done(name: str, number: int, layout: Any, **values: Any) -> Any:
        request = call(node, number, layout, **values)
        if request.rmStatus:
            raise refusal(request.rmStatus, f"{path.name}: {name}")
        told[name] = DONE
        return request

    done("UVM_INITIALIZE", uvm.UVM_INITIALIZE, uvm.UVM_INITIALIZE_PARAMS)
    # kernels that cannot pin this process' memory map refuse it, which costs nothing here
    try:
        nodes.append(path.system.open(UVM_NODE))
        answer = call(nodes[-1], uvm.UVM_MM_INITIALIZE, uvm.UVM_MM_INITIALIZE_PARAMS, uvmFd=node)
        told["UVM_MM_INITIALIZE"] = status_name(answer.rmStatus) if answer.rmStatus else DONE
    except OSError as error:
        told["UVM_MM_INITIALIZE"] = f"{errno.errorcode.get(error.errno or 0, error.errno)}"
    card = {"uuid": list(objects.facts.gid[:UUID_BYTES])}
    seen = done("UVM_REGISTER_GPU", uvm.UVM_REGISTER_GPU, uvm.UVM_REGISTER_GPU_PARAMS, gpu_uuid=card, rmCtrlFd=-1)
    told["numa_node"] = seen.numaNodeId if seen.numaEnabled else None
    params = client.make(rm_alloc.NV_VASPACE_ALLOCATION_PARAMETERS, flags=VA_FLAGS, vaBase=VA_BASE)
    space = client.alloc(objects.device, nv.FERMI_VASPACE_A, params, "making an address space for unified memory")
    done(
        "UVM_REGISTER_GPU_VASPACE",
        uvm.UVM_REGISTER_GPU_VASPACE,
        uvm.UVM_REGISTER_GPU_VASPACE_PARAMS,
        gpuUuid=card,
        rmCtrlFd=path.calls.node,
        hClient=client.root,
        hVaSpace=space,
    )
    done(
        "UVM_UNREGISTER_GPU_VASPACE",
        uvm.UVM_UNREGISTER_GPU_VASPACE,
        uvm.UVM_UNREGISTER_GPU_VASPACE_PARAMS,
        gpuUuid=card,
    )
    client.free(space)
    done("UVM_UNREGISTER_GPU", uvm.UVM_UNREGISTER_GPU, uvm.UVM_UNREGISTER_GPU_PARAMS, gpu_uuid=card)
    return told


UNIFIED = Stage(3, "unified memory", (StepRow("a card and an address space are registered", 10, register),), needs=(2,))
