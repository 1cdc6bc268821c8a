"""Stage 9: mistakes that the resource manager itself refuses. Statuses are listed; one that succeeds is a failure."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ringup.autogen.nv import classes as nv
from ringup.autogen.nv import rm_alloc
from ringup.autogen.nv import rm_ctrl_2080_fifo as timer
from ringup.drivers.nv.nodes.memory import NodesMemory
from ringup.drivers.nv.nodes.objects import USERMODE, WITH_PARAMETERS, CardObjects
from ringup.drivers.transport.nvidia.device import NvidiaDevice
from ringup.drivers.transport.nvidia.status import RmRefused
from ringup.drivers.transport.nvidia.system import Kind
from ringup.errors import OutOfMemory
from ringup.tools.bench.metal.client import with_objects
from ringup.tools.bench.metal.steps import Stage, StepRow, check
from ringup.tools.bench.metal.work import Work

PAGE_BYTES = 4096
NO_HANDLE = 0x7777_7777
# a control of the subdevice that no header has
NO_CONTROL = 0x2080_FFFE
TOO_MUCH_BYTES = 1 << 44


def wrong_size(objects: CardObjects) -> None:
    """Send a control parameters of four bytes too few."""
    right = timer.NV2080_CTRL_TIMER_GET_TIME_PARAMS.SIZE
    objects.calls.control(
        objects.client.root, objects.subdevice, timer.NV2080_CTRL_CMD_TIMER_GET_TIME, bytes(right - 4)
    )


def wrong_alloc_size(objects: CardObjects) -> None:
    """Make an address space with parameters of one byte."""
    client = objects.client
    objects.calls.alloc(client.root, objects.device, client.new_handle(objects.device), nv.FERMI_VASPACE_A, b"\0")


def wrong_parent(objects: CardObjects) -> None:
    """Make a channel group below the client itself."""
    params = objects.client.make(rm_alloc.NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS)
    objects.client.alloc(objects.client.root, nv.KEPLER_CHANNEL_GROUP_A, params)


def no_object(objects: CardObjects) -> None:
    """Send a control to a handle that no object has."""
    objects.client.ask(NO_HANDLE, timer.NV2080_CTRL_CMD_TIMER_GET_TIME, timer.NV2080_CTRL_TIMER_GET_TIME_PARAMS)


def no_control(objects: CardObjects) -> None:
    """Send a control that does not exist."""
    objects.client.control(objects.subdevice, NO_CONTROL)


def freed_handle(objects: CardObjects) -> None:
    """Map memory that was freed."""
    client = objects.client
    params = client.make(rm_alloc.NV_VASPACE_ALLOCATION_PARAMETERS)
    handle = client.alloc(objects.device, nv.FERMI_VASPACE_A, params)
    client.free(handle)
    mapped = objects.calls.map_memory(client.root, objects.device, handle, PAGE_BYTES, Kind.HOST)
    objects.calls.unmap_memory(mapped)


def too_much(objects: CardObjects) -> None:
    """Ask for 16 TiB of the card's memory."""
    NodesMemory(objects).alloc(TOO_MUCH_BYTES).free()


def class_of_another_card(objects: CardObjects) -> None:
    """Make the page of doorbells of another generation."""
    class_id = next(one for one in USERMODE if one not in objects.facts.classes)
    params = objects.client.make(rm_alloc.NV_HOPPER_USERMODE_A_PARAMS) if class_id in WITH_PARAMETERS else None
    objects.client.alloc(objects.subdevice, class_id, params)


MISTAKES: tuple[Callable[[CardObjects], None], ...] = (
    wrong_size,
    wrong_alloc_size,
    wrong_parent,
    no_object,
    no_control,
    freed_handle,
    too_much,
    class_of_another_card,
)


def refused(work: Work) -> dict[str, Any]:
    """Make each mistake, list what it is answered, and check that the client still works after it."""
    return with_objects(work, partial(_refused))


def _refused(path: NvidiaDevice, objects: CardObjects) -> dict[str, Any]:
    told = {mistake.__name__: _answer(objects, mistake) for mistake in MISTAKES}
    done = [name for name, answer in told.items() if answer == "done"]
    check(not done, f"the resource manager did what it should refuse: {', '.join(done)}; it answered {told}")
    return told


def _answer(objects: CardObjects, mistake: Callable[[CardObjects], None]) -> str:
    try:
        mistake(objects)
    except RmRefused as error:
        answer = error.name
    except OutOfMemory as error:
        cause = error.__cause__
        answer = cause.name if isinstance(cause, RmRefused) else str(error)
    else:
        answer = "done"
    check(objects.gpu_clock() > 0, f"the client does not answer after {mistake.__name__}")
    return answer


STAGE = Stage(9, "refusals", (StepRow("mistakes that the resource manager refuses", 20, refused),), needs=(2,))
