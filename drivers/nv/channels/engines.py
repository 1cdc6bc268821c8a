"""The engines of a card, and the runlists that their channels are scheduled by, as GSP-RM tells them.

Source: OGKM ctrl2080fifo.h, NV2080_CTRL_CMD_FIFO_GET_DEVICE_INFO_TABLE; g_kernel_fifo_nvoc.h, ENGINE_INFO_TYPE;
gpu_engine_type.h; Linux nouveau fifo/r535.c, r535_fifo_runl_ctor.
"""

from __future__ import annotations

from dataclasses import dataclass

from ringup.autogen.nv import rm_ctrl_2080_fifo as fifo
from ringup.drivers.nv.rm.client import RmClient
from ringup.drivers.nv.rm.facts import COPY_ENGINES, ENGINE_COPY0, ENGINE_GRAPHICS
from ringup.errors import DeviceHung, NotSupported

# of an entry's data: ENGINE_INFO_TYPE_RM_ENGINE_TYPE, ENGINE_INFO_TYPE_RUNLIST
ENGINE_TYPE, RUNLIST = 2, 3
ENTRIES = 32
# limits of ours: entries of all tables; 7 bits are the widest field for a runlist in a doorbell
MAX_ENTRIES, MAX_RUNLIST = 512, 0x7F


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine. `type`: NV2080_ENGINE_TYPE; `runlist`: the number of the runlist that it serves."""

    type: int
    runlist: int

    @property
    def is_graphics(self) -> bool:
        """Whether it is the graphics engine, which computes."""
        return self.type == ENGINE_GRAPHICS

    @property
    def is_copy(self) -> bool:
        """Whether it is a copy engine."""
        return ENGINE_COPY0 <= self.type < ENGINE_COPY0 + COPY_ENGINES


@dataclass(frozen=True, slots=True)
class Engines:
    """The engines that queues are for. `copies`: those that work beside the graphics engine, unless there is none."""

    graphics: Engine
    copies: tuple[Engine, ...]


def read(client: RmClient, subdevice: int) -> Engines:
    """Ask GSP-RM. Raises `DeviceHung` for a table that cannot be, `NotSupported` for a card without such engines."""
    found = _table(client, subdevice)
    graphics = next((one for one in found if one.is_graphics), None)
    copies = [one for one in found if one.is_copy]
    if graphics is None or not copies:
        raise NotSupported(f"GSP-RM tells of {len(found)} engines, without a graphics engine or a copy engine")
    alone = [one for one in copies if one.runlist != graphics.runlist]
    return Engines(graphics, tuple(alone or copies))


def _table(client: RmClient, subdevice: int) -> list[Engine]:
    found: list[Engine] = []
    base = 0
    while base < MAX_ENTRIES:
        told = client.ask(
            subdevice,
            fifo.NV2080_CTRL_CMD_FIFO_GET_DEVICE_INFO_TABLE,
            fifo.NV2080_CTRL_FIFO_GET_DEVICE_INFO_TABLE_PARAMS,
            "asking for the engines",
            baseIndex=base,
        )
        if told.numEntries > ENTRIES:
            raise DeviceHung(f"GSP-RM tells of {told.numEntries} engines in a table for {ENTRIES}; reset the card")
        for index in range(told.numEntries):
            data = told.entries[index].engineData
            one = Engine(data[ENGINE_TYPE], data[RUNLIST])
            if (one.is_graphics or one.is_copy) and one.runlist > MAX_RUNLIST:
                raise DeviceHung(f"GSP-RM tells of runlist {one.runlist:#x} of engine {one.type:#x}; reset the card")
            found.append(one)
        if not told.bMore:
            return sorted(found, key=lambda one: one.type)
        base += ENTRIES
    raise DeviceHung(f"GSP-RM tells of more than {MAX_ENTRIES} engines; reset the card")
