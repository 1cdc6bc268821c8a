"""A channel of a card whose GSP-RM ringup has started: its memory, its object in GSP-RM, its doorbell.

The driver gives a channel an instance block (in which the page directory is written), a user area and a buffer for the
engine's methods, all by their physical addresses; GSP-RM fills the rest in and schedules it. Source: Linux nouveau
fifo/r535.c, r535_chan_ramfc_write; mmu/vmmgv100.c, gv100_vmm_join; OGKM alloc_channel.h; open-gpu-doc dev_ram.ref.
"""

from __future__ import annotations

import itertools
import struct
from dataclasses import dataclass
from typing import Any

from ringup.autogen.nv import mmu, rm_alloc
from ringup.autogen.nv import rm_ctrl_2080_fifo as copy_engines
from ringup.autogen.nv import rm_ctrl_channel as controls
from ringup.autogen.nv.mmu import NV_VIRTUAL_FUNCTION_DOORBELL
from ringup.autogen.nv.ram import NV_RAMIN_ALLOC_SIZE, NV_RAMUSERD_CHAN_SIZE
from ringup.drivers.buffer import Buffer
from ringup.drivers.cleanup import Teardown, undone_on_error
from ringup.drivers.memory.access import Access
from ringup.drivers.nv.bus.registers import VIRTUAL_FUNCTION, Block
from ringup.drivers.nv.channels.context import GraphicsContexts
from ringup.drivers.nv.channels.engines import Engine
from ringup.drivers.nv.channels.objects import CardObjects
from ringup.drivers.nv.memory.space import PrivateMemory, Space
from ringup.drivers.nv.submission.user_area import UserArea
from ringup.drivers.submission.hardware_queue import COMPUTE, Position
from ringup.errors import DeviceHung, DeviceLost, RingupError

# of the instance block. Source: dev_ram.ref, NV_RAMIN_PAGE_DIR_BASE, NV_RAMIN_ENGINE_WFI_VEID,
# NV_RAMIN_SC_PDB_VALID, NV_RAMIN_SC_PAGE_DIR_BASE
PAGE_DIR_BASE, ENGINE_WFI_VEID, SC_PDB_VALID, SC_PAGE_DIR_BASE = 0x200, 0x21C, 0x298, 0x2A0
# tables of version 2 or newer, big pages of 64 KiB, in the card's memory
PDB_FLAGS = 1 << 10 | 1 << 11
SUBCONTEXTS, SC_STRIDE_BYTES = 64, 16
SC_INVALID = struct.pack("<IIII", 1, 1, 0, 0)
RAMFC_BYTES = 0x200
# NV_MEMORY_DESC_PARAMS: ADDR_SYSMEM, ADDR_FBMEM; NV_MEMORY_CACHED, NV_MEMORY_UNCACHED
SYSMEM, FBMEM, CACHED, UNCACHED = 1, 2, 0, 1
# g_kernel_channel_nvoc.h, NV_KERNELCHANNEL_ALLOC_INTERNALFLAGS: privilege of a user or an administrator; no notifiers
USER, ADMIN, NO_NOTIFIERS = 0, 1, 1 << 2 | 1 << 4
# a channel's number is that of a page of user areas, and of an area in it. Source: CHID_PER_USERD of nouveau r535.c
AREAS_PER_PAGE = 8
MAX_CHANNELS = 2048
# clb0b5sw.h, NVB0B5_ALLOCATION_PARAMETERS_VERSION_1: the second word is an engine's type
COPY_PARAMS_VERSION = 1
# a limit of ours for what GSP-RM asks for
MAX_METHOD_BYTES = 1 << 20
TOKEN_RUNLIST_SHIFT = 16
ENABLES, ENABLE = "runlist_doorbell", "NV_VIRTUAL_FUNCTION_DOORBELL_RUNLIST_DOORBELL_ENABLE"


@dataclass(frozen=True, slots=True)
class ChannelMemory:
    """What a channel is made with. `entries` at `gpfifo_va`; the user area lies in `page` at `userd_at`."""

    gpfifo_va: int
    entries: int
    page: Buffer
    userd_at: int


class ChannelNumbers:
    """The numbers of a card's channels. All runlists share them here, so that a number names one channel."""

    def __init__(self) -> None:
        self.taken: dict[int, Channel] = {}

    def take(self, channel: Channel) -> int:
        """Return the lowest free number. Raises `DeviceHung` when all are in use."""
        number = next(one for one in itertools.count() if one not in self.taken)
        if number >= MAX_CHANNELS:
            raise DeviceHung(f"{MAX_CHANNELS} channels are the most, and all are in use: close queues")
        self.taken[number] = channel
        return number

    def give_back(self, number: int) -> None:
        """Make a number free."""
        self.taken.pop(number, None)


class ChannelParts:
    """What the channels of a card are made with."""

    def __init__(self, objects: CardObjects, space: Space) -> None:
        self.objects, self.space = objects, space
        self.numbers, self.contexts = ChannelNumbers(), GraphicsContexts(objects, space)
        told = objects.internal.ask(
            objects.running.static.subdevice,
            copy_engines.NV2080_CTRL_CMD_CE_GET_FAULT_METHOD_BUFFER_SIZE,
            copy_engines.NV2080_CTRL_CE_GET_FAULT_METHOD_BUFFER_SIZE_PARAMS,
            "asking for the size of method buffers",
        )
        if told.size > MAX_METHOD_BYTES:
            raise DeviceHung(f"GSP-RM asks for method buffers of {told.size} bytes; reset the card")
        self.method_bytes: int = told.size
        block = Block(objects.registers, "doorbells", VIRTUAL_FUNCTION)
        self.doorbell_at = block.address(NV_VIRTUAL_FUNCTION_DOORBELL)
        # chips whose doorbells are enabled by a bit that is 1
        field = block.typed(NV_VIRTUAL_FUNCTION_DOORBELL).FIELDS.get(ENABLES)
        own = mmu.VALUES.get(objects.registers.chip.facts, {})
        enable = own.get(ENABLE, mmu.NV_VIRTUAL_FUNCTION_DOORBELL_RUNLIST_DOORBELL_ENABLE)
        self._enable = enable << field.lo if field is not None else 0

    def token(self, engine: Engine, number: int) -> int:
        """Return what rings a channel's doorbell. Source: OGKM kernel_fifo_gv100.c and kernel_fifo_gb202.c,
        kfifoGenerateWorkSubmitTokenHal; Linux nouveau, r535_chan_doorbell_handle.
        """
        return self._enable | engine.runlist << TOKEN_RUNLIST_SHIFT | number

    def make_golden(self) -> None:
        """Let the card make the picture of a fresh context, on a channel of its own. Once is enough."""
        if self.contexts.ready:
            return
        made = ChannelObject(self, self.objects.engines.graphics, privileged=True)
        own: list[PrivateMemory] = []
        area = self.space.alloc_vram(NV_RAMIN_ALLOC_SIZE, "user area")
        try:
            made.make(0, NV_RAMIN_ALLOC_SIZE // 8, area, FBMEM, 0)
            self.contexts.make_golden(made.handle, own)
        finally:
            made.drop(*own)
            self.space.vram.free(area)


class ChannelObject:
    """A channel in GSP-RM and the memory that is its alone. `handle` is 0 while there is none."""

    def __init__(self, parts: ChannelParts, engine: Engine, *, privileged: bool = False) -> None:
        self._parts, self._engine, self._privileged = parts, engine, privileged
        self.handle = 0
        self._instance: int | None = None
        self._methods: int | None = None

    def make(self, gpfifo_va: int, entries: int, userd: int, aperture: int, number: int) -> None:
        """Make it, with a user area at a physical address."""
        parts, space, client = self._parts, self._parts.space, self._parts.objects.client
        with undone_on_error(self.drop):
            self._instance = space.alloc_vram(NV_RAMIN_ALLOC_SIZE, "instance blocks", align=NV_RAMIN_ALLOC_SIZE)
            space.window.write(self._instance + PAGE_DIR_BASE, instance_block(space.root_pa))
            space.window.flush()
            if parts.method_bytes:
                self._methods = space.alloc_vram(parts.method_bytes, "method buffers")
            params = client.make(
                rm_alloc.NV_CHANNEL_ALLOC_PARAMS,
                gpFifoOffset=gpfifo_va,
                gpFifoEntries=entries,
                flags=_flags(number, privileged=self._privileged),
                hVASpace=parts.objects.space,
                engineType=self._engine.type,
                internalFlags=(ADMIN if self._privileged else USER) | NO_NOTIFIERS,
            )
            _describe(params.instanceMem, self._instance, NV_RAMIN_ALLOC_SIZE, FBMEM)
            _describe(params.ramfcMem, self._instance, RAMFC_BYTES, FBMEM)
            _describe(params.userdMem, userd, NV_RAMUSERD_CHAN_SIZE, aperture)
            if self._methods is not None:
                _describe(params.mthdbufMem, self._methods, parts.method_bytes, FBMEM)
            self.handle = client.alloc(
                parts.objects.device, parts.objects.facts.row.channel_class, params, "making a channel"
            )

    def schedule(self) -> None:
        """Let it run."""
        client, doing = self._parts.objects.client, "scheduling a channel"
        bind = client.make(controls.NVA06F_CTRL_BIND_PARAMS, engineType=self._engine.type)
        client.control(self.handle, controls.NVA06F_CTRL_CMD_BIND, bind, doing)
        schedule = client.make(controls.NVA06F_CTRL_GPFIFO_SCHEDULE_PARAMS, bEnable=1)
        client.control(self.handle, controls.NVA06F_CTRL_CMD_GPFIFO_SCHEDULE, schedule, doing)

    def drop(self, *contexts: PrivateMemory) -> None:
        """Take it off, and free its memory and then `contexts`. Twice is harmless.

        ORDER: GSP-RM has taken the channel off before its memory is free; if it does not answer, the memory stays taken
        until the card is reset.
        """
        handle, self.handle = self.handle, 0
        if handle:
            self._parts.objects.client.free(handle)
        for place in (self._instance, self._methods):
            if place is not None:
                self._parts.space.vram.free(place)
        self._instance = self._methods = None
        if contexts:
            self._parts.space.free_private(*contexts)


class Channel:
    """`HardwareQueue` of the submission layer: one channel on one engine."""

    def __init__(
        self, parts: ChannelParts, memory: ChannelMemory, engine: Engine, engine_number: int, class_id: int
    ) -> None:
        """`class_id`: of the object that the channel's methods are for."""
        self._parts, self._memory, self._engine, self._class = parts, memory, engine, class_id
        self.engine_number = engine_number
        self.engine_name = "the graphics engine" if engine_number == COMPUTE else f"copy engine {engine_number}"
        page: Access = parts.space.memory.access(memory.page)
        self._area = UserArea(page, memory.userd_at)
        self.put_cell = self._area.put
        self._object = ChannelObject(parts, engine)
        self._contexts: list[PrivateMemory] = []
        self.number = -1
        # the number that rings the channel's doorbell
        self.token = 0
        # why GSP-RM stopped it
        self.error: RingupError | None = None
        self._write = parts.objects.registers.write
        self._doorbell_at = parts.doorbell_at

    def __str__(self) -> str:
        return f"channel {self.number if self.number >= 0 else 'that is off'} of {self.engine_name}"

    @property
    def handle(self) -> int:
        """Its object in GSP-RM; 0 while it is off."""
        return self._object.handle

    # --- the hardware queue -----------------------------------------------------------------------------------------
    def map(self) -> None:
        """Make the channel and let it run; its indices start at 0."""
        parts, memory = self._parts, self._memory
        self.error = None
        self._area.clear()
        if self._engine.is_graphics:
            parts.make_golden()
        (userd, _), *_ = parts.space.memory.bus_runs(memory.page)
        self.number = parts.numbers.take(self)
        with undone_on_error(self._drop):
            self._object.make(memory.gpfifo_va, memory.entries, userd + memory.userd_at, SYSMEM, self.number)
            if self._engine.is_graphics:
                parts.contexts.enter(self.handle, self._contexts)
            parts.objects.client.alloc(
                self.handle, self._class, self._class_params(), f"making the object of {self.engine_name}"
            )
            self._object.schedule()
        self.token = parts.token(self._engine, self.number)

    def _class_params(self) -> Any:
        if self._engine.is_graphics:
            return None
        return self._parts.objects.client.make(
            rm_alloc.NVB0B5_ALLOCATION_PARAMETERS, version=COPY_PARAMS_VERSION, engineType=self._engine.type
        )

    def ring(self, value: int) -> None:
        """Ring the channel's doorbell; `Rings` of the submission layer."""
        self._write(self._doorbell_at, self.token)

    def unmap(self) -> bool:
        """Take the channel off; GSP-RM ends work that it has begun. Return whether there was no other trouble."""
        try:
            self._drop()
        except DeviceLost:
            return False
        return True

    def reset(self) -> None:
        """Take the channel off even if its work has not ended."""
        self.unmap()

    def _drop(self) -> None:
        number, self.number = self.number, -1
        contexts, self._contexts = self._contexts, []
        with Teardown("taking a channel off", kept=RingupError) as teardown:
            teardown.attempt(lambda: self._object.drop(*contexts))
        if number >= 0:
            # events of this channel are none of the next one's with its number
            triggered = self._parts.objects.running.triggered
            kept = [one for one in triggered if one.channel != number]
            triggered.clear()
            triggered.extend(kept)
            self._parts.numbers.give_back(number)

    def position(self) -> Position:
        """Read where the channel stands: in bytes of its GPFIFO."""
        return Position(bool(self.handle), 8 * self._area.get[0], 8 * self._area.put[0], {})


def instance_block(root_pa: int) -> bytes:
    """Return an instance block from byte PAGE_DIR_BASE on: the page directory, for the channel and its subcontext 0."""
    base = root_pa | PDB_FLAGS
    block = bytearray(SC_PAGE_DIR_BASE + SUBCONTEXTS * SC_STRIDE_BYTES - PAGE_DIR_BASE)
    struct.pack_into("<Q", block, 0, base)
    struct.pack_into("<Q", block, SC_PDB_VALID - PAGE_DIR_BASE, 1)
    at = SC_PAGE_DIR_BASE - PAGE_DIR_BASE
    struct.pack_into("<QQ", block, at, base, 0)
    for index in range(1, SUBCONTEXTS):
        block[at + index * SC_STRIDE_BYTES : at + (index + 1) * SC_STRIDE_BYTES] = SC_INVALID
    return bytes(block)


def _flags(number: int, *, privileged: bool) -> int:
    page, area = divmod(number, AREAS_PER_PAGE)
    fields = (
        (rm_alloc.NVOS04_FLAGS_PRIVILEGED_CHANNEL, int(privileged)),
        (rm_alloc.NVOS04_FLAGS_CHANNEL_USERD_INDEX_VALUE, area),
        (rm_alloc.NVOS04_FLAGS_CHANNEL_USERD_INDEX_PAGE_VALUE, page),
        (rm_alloc.NVOS04_FLAGS_CHANNEL_USERD_INDEX_PAGE_FIXED, 1),
    )
    flags = 0
    for (_, low), value in fields:
        flags |= value << low
    return flags


def _describe(told: Any, base: int, size_bytes: int, aperture: int) -> None:
    """Fill in a NV_MEMORY_DESC_PARAMS."""
    cache = UNCACHED if aperture == FBMEM else CACHED
    for name, value in (("base", base), ("size", size_bytes), ("addressSpace", aperture), ("cacheAttrib", cache)):
        setattr(told, name, value)
