"""A channel while it runs: the host fetches its pushbuffer, does the host's own methods, and passes on the engine's.

Sources: dev_ram.h (NV_RAMUSERD, NV_RAMIN) of NVIDIA's open kernel modules; clc56f.h, manuals/ampere/ga100/
dev_pbdma.ref.txt and manuals/turing/tu104/dev_ram.ref.txt of open-gpu-doc (which subchannel is which engine).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Protocol

from ringup.silicon.common.log import EventLog
from ringup.silicon.nv.compute.launch import Core
from ringup.silicon.nv.engines import classes
from ringup.silicon.nv.engines.engine import Context, Engine, Lacking, State, repeated
from ringup.silicon.nv.host.methods import Effects, FaultPage, HostMethods
from ringup.silicon.nv.host.pushbuffer import ENTRY_BYTES, BadPushbuffer, Control, Entry, Parser, Run, entry
from ringup.silicon.nv.memory.fault_buffers import Origin
from ringup.silicon.nv.memory.gmmu import Aperture, Directory, Gmmu
from ringup.silicon.nv.memory.space import AddressSpace, Client, PageFault
from ringup.silicon.nv.memory.windows import TARGETS, Memory
from ringup.silicon.nv.rm import parts

# USERD: byte offsets of the get and put pointers of the GPFIFO; RAMIN: of the page directory's address
GP_GET, GP_PUT, REFERENCE, PAGE_DIR_BASE = 0x88, 0x8C, 0x48, 0x200
# NV_RAMIN_USE_VER2_PT_FORMAT, without which there are no tables that these chips walk
VERSION_2 = 1 << 10
# NV_RAMIN_PAGE_DIR_BASE_FAULT_REPLAY_TEX and _GCC
FAULT_REPLAY = 1 << 4 | 1 << 5
# GUESS: fetching an entry, and a method
FETCH_US, METHOD_US = 1.0, 0.002
HOST_METHODS_END = 0x100
APERTURES = {parts.Aperture.VRAM: Aperture.VIDEO, parts.Aperture.SYSMEM: Aperture.SYSTEM_COHERENT}
# subchannels from here on are handled by software
FIRST_SOFTWARE = 5
GRAPHICS_RUNLIST_COPY = 4
# the last digits of a class by subchannel on the graphics runlist: 3D, compute, inline to memory, 2D, copy
KINDS = {0: 0x97, 1: 0xC0, 2: 0x40, 3: 0x2D, GRAPHICS_RUNLIST_COPY: 0xB5}


class Card(Protocol):
    """What a channel needs of its card."""

    memory: Memory
    gmmu: Gmmu
    log: EventLog
    core: Core | None

    def client(self, engine_type: int) -> Client:
        """Return an engine (NV2080_ENGINE_TYPE_*) as fault reports name it."""
        ...

    def replay(self, what: int, page: FaultPage | None = None) -> None:
        """Do what an invalidation asks for about accesses that wait after a page fault, all or those to a page."""
        ...

    def fault_cleared(self, token: int) -> None:
        """Let the channel that a token names go on after a page fault that needs no replay."""
        ...

    def replays(self, running: RunningChannel) -> bool:
        """Return whether software handles the page faults of a channel's shaders."""
        ...

    def faulted(self, running: RunningChannel, fault: PageFault) -> bool:
        """Offer a channel's page fault to software; if that takes it, the channel is off its runlist until then."""
        ...

    def host_client(self, channel: parts.Channel) -> Client:
        """Return the host's unit for a channel, as fault reports name it."""
        ...

    def now_ns(self) -> int:
        """The time of the card's timer."""
        ...

    def state(self, channel: parts.Channel, subchannel: int, class_id: int) -> State:
        """Return what a channel's object remembers."""
        ...

    def notify(self, channel: parts.Channel) -> None:
        """Send the engine's interrupt that does not stall."""
        ...


class RunningChannel:
    """The state of one channel. `run` is one go: it ends when the GPFIFO is empty."""

    def __init__(self, card: Card, channel: parts.Channel) -> None:
        self._card, self.channel = card, channel
        self._get = 0
        # what the host fetched last: an entry, or a segment
        self._fetched = b""
        self._parser = Parser()
        # the object of each subchannel, and all by subchannel and class: binding one again leaves its state
        self._bound: dict[int, Engine | None] = {}
        self._objects: dict[tuple[int, int], Engine | None] = {}
        self._directory = Directory(Aperture.VIDEO, 0)
        self._space = AddressSpace(card.memory, card.gmmu, lambda: self._directory, card.host_client(channel))
        # whether the channel gives up its turn, and its group's slice too
        self.yields = self.yields_slice = False
        self._host = HostMethods(
            Effects(
                self._space,
                card.now_ns,
                self._bind,
                self._notify,
                self._set_reference,
                self._invalidate,
                self._yield,
                card.replay,
                card.fault_cleared,
            )
        )
        self._context = Context(
            self._space,
            card.memory,
            channel.privileged,
            card.now_ns,
            self._notify,
            self._note,
            lambda: card.core,
            lambda: card.replays(self),
            self._faulted,
        )

    def _faulted(self, fault: PageFault) -> bool:
        return self._card.faulted(self, fault)

    @property
    def waits_for(self) -> str:
        """The semaphore that the host waits for; empty if none."""
        return self._host.waits_for

    def _notify(self) -> None:
        self._card.notify(self.channel)

    def _note(self, kind: str, text: str) -> None:
        self._card.log.note("host", kind, "{}", text)

    def _yield(self, whole: bool) -> None:
        self.yields, self.yields_slice = True, whole

    def _invalidate(self, address: int | None, first: int, size_bytes: int) -> None:
        """Drop translations of a range: in the page tables with a root at this address, or in all."""
        if address is None:
            self._card.gmmu.invalidate(first=first, size_bytes=size_bytes)
        else:
            self._card.gmmu.invalidate(lambda one: one.address == address, first=first, size_bytes=size_bytes)

    # --- memory -----------------------------------------------------------------------------------------------------
    def _root(self) -> Directory:
        """Return the root of the page tables that the instance block names now."""
        instance = self.channel.instance
        raw = self._card.memory.read(APERTURES[instance.aperture], instance.address + PAGE_DIR_BASE, 8)
        base = int.from_bytes(raw, "little")
        aperture = TARGETS.get(base & 3)
        # the root may be at address 0
        if aperture is None or not base & VERSION_2:
            raise BadPushbuffer("the instance block has no page directory")
        return Directory(aperture, base >> 12 << 12)

    def waits_at(self, page: FaultPage, fault: PageFault) -> bool:
        """Return whether a fault of this channel is one of those that are cancelled."""
        return page.holds(self._directory.address, fault.gpu_va, write=fault.write)

    def origin(self) -> Origin:
        """Return who its page faults name, and whether they may be handled: what the instance block says."""
        instance = self.channel.instance
        raw = self._card.memory.read(APERTURES[instance.aperture], instance.address + PAGE_DIR_BASE, 4)
        replays = int.from_bytes(raw, "little") & FAULT_REPLAY == FAULT_REPLAY
        return Origin(APERTURES[instance.aperture], instance.address, replays)

    def _userd(self, offset: int) -> int:
        userd = self.channel.userd
        return int.from_bytes(self._card.memory.read(APERTURES[userd.aperture], userd.address + offset, 4), "little")

    def _set_userd(self, offset: int, value: int) -> None:
        userd = self.channel.userd
        self._card.memory.write(APERTURES[userd.aperture], userd.address + offset, value.to_bytes(4, "little"))

    def _set_reference(self, value: int) -> None:
        self._set_userd(REFERENCE, value)

    # --- running ----------------------------------------------------------------------------------------------------
    def run(self) -> Iterator[float]:
        """Execute entries until there are no more, and yield the microseconds until the next step.

        Raises `BadPushbuffer`, `engine.Refused` or `space.PageFault`.
        """
        channel = self.channel
        while (put := self._userd(GP_PUT)) != self._get:
            if put >= channel.gpfifo_entries:
                raise BadPushbuffer(f"GP_PUT is {put} in a GPFIFO of {channel.gpfifo_entries} entries")
            self._directory = self._root()
            yield from repeated(
                partial(self._fetch, channel.gpfifo_va + ENTRY_BYTES * self._get, ENTRY_BYTES), self._faulted
            )
            raw = self._fetched
            one = entry(int.from_bytes(raw[:4], "little"), int.from_bytes(raw[4:], "little"))
            self._get = (self._get + 1) % channel.gpfifo_entries
            yield FETCH_US
            yield from self._segment(one)
            self._set_userd(GP_GET, self._get)

    def _segment(self, one: Entry) -> Iterator[float]:
        if not one.dwords:
            self._control(one)
            return
        if one.conditional and not self._parser.active:
            return
        if one.conditional and self._parser.within_run:
            raise BadPushbuffer("a segment that is fetched conditionally continues a run of methods")
        yield from repeated(partial(self._fetch, one.gpu_va, 4 * one.dwords), self._faulted)
        words = struct.unpack(f"<{one.dwords}I", self._fetched)
        spent_us = 0.0
        for run in self._parser.runs(words):
            if run.address >= HOST_METHODS_END:
                yield from self._engine(run.subchannel).run(run.address, run.step, run.data)
            else:
                yield from self._host_run(run)
            spent_us += len(run.data) * METHOD_US
            if spent_us > FETCH_US:
                yield spent_us
                spent_us = 0.0

    def _fetch(self, gpu_va: int, size_bytes: int) -> None:
        self._fetched = self._space.read(gpu_va, size_bytes)

    def _control(self, one: Entry) -> None:
        if one.opcode in (Control.GP_CRC, Control.PB_CRC):
            raise Lacking(f"a GPFIFO entry that checks a CRC ({Control(one.opcode).name}) is not modelled")
        if one.opcode != Control.NOP:
            raise BadPushbuffer(f"a GPFIFO entry has opcode {one.opcode}")

    def _host_run(self, run: Run) -> Iterator[float]:
        for index, data in enumerate(run.data):
            address = run.address + 4 * (index if run.step == 1 else min(index, 1) if run.step else 0)
            if address >= HOST_METHODS_END:
                yield from self._engine(run.subchannel).run(address, run.step, run.data[index:])
                return
            yield from repeated(partial(self._host.run, run.subchannel, address, data), self._faulted)

    # --- objects ------------------------------------------------------------------------------------------------------
    def _engine(self, subchannel: int) -> Engine:
        if subchannel >= FIRST_SOFTWARE:
            raise Lacking(f"a software method on subchannel {subchannel} is not modelled")
        if subchannel not in self._bound:
            self._bind(subchannel, self._default(subchannel))
        engine = self._bound[subchannel]
        if engine is None:
            raise Lacking(f"methods of subchannel {subchannel}: its class is not modelled")
        return engine

    def _default(self, subchannel: int) -> int:
        """Return the class that a subchannel has without a SET_OBJECT: the mapping is fixed by the runlist."""
        found = [one for one in self.channel.objects if one & 0xFF == KINDS[subchannel]]
        others = list(self.channel.objects)
        # a runlist of another engine has one kind of object for all subchannels
        if self.channel.runlist and len(others) == 1:
            found = others
        if not found:
            raise BadPushbuffer(f"a method on subchannel {subchannel}, for which the channel has no object")
        return found[0]

    def _bind(self, subchannel: int, class_id: int) -> None:
        if class_id not in self.channel.objects:
            raise BadPushbuffer(f"SET_OBJECT names class {class_id:#x}, of which the channel has no object")
        if subchannel >= FIRST_SOFTWARE:
            # its methods are the firmware's work; nvidia-uvm binds GP100_UVM_SW and sends one only to cancel a fault
            return
        key = subchannel, class_id
        if key not in self._objects:
            engine_type = self.channel.objects[class_id]
            context = replace(
                self._context,
                space=self._space.seen_by(self._card.client(engine_type)),
                state=self._card.state(self.channel, subchannel, class_id),
            )
            self._objects[key] = classes.make(class_id, engine_type, context)
            if self._objects[key] is None:
                self._note("unmodelled", f"class {class_id:#x} has no model: its first method stops the channel")
        self._bound[subchannel] = self._objects[key]
