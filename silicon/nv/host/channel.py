"""A channel while it runs: the host fetches its pushbuffer, does the host's own methods, and passes on the engine's.

Sources: clc56f.h (methods below 0x100), dev_ram.h (NV_RAMUSERD, NV_RAMIN) of open-gpu-doc and of NVIDIA's open kernel
modules. Only copy engines have a model: methods of other classes are kept without effect, and that is logged.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Protocol

from ringup.autogen.nv import methods_host as methods
from ringup.silicon.common.log import EventLog
from ringup.silicon.nv.host.copy import CopyEngine
from ringup.silicon.nv.host.pushbuffer import ENTRY_BYTES, BadPushbuffer, Entry, Method, entry
from ringup.silicon.nv.host.pushbuffer import methods as methods_of
from ringup.silicon.nv.host.semaphores import Acquire, Reduction, holds, reduced, release
from ringup.silicon.nv.host.space import AddressSpace
from ringup.silicon.nv.memory.gmmu import Aperture, Directory, Gmmu
from ringup.silicon.nv.memory.windows import TARGETS, Memory
from ringup.silicon.nv.rm import parts

# USERD: byte offsets of the get and put pointers of the GPFIFO; RAMIN: of the page directory's address
GP_GET, GP_PUT, REFERENCE, PAGE_DIR_BASE = 0x88, 0x8C, 0x48, 0x200
# GUESS: fetching an entry; between two looks at a semaphore, from the first to the later ones
FETCH_US, LOOK_US, MAX_LOOK_US = 1.0, 2.0, 1_000.0
HOST_METHODS_END = 0x100
# methods of one go
TURN = 1024
APERTURES = {parts.Aperture.VRAM: Aperture.VIDEO, parts.Aperture.SYSMEM: Aperture.SYSTEM_COHERENT}
COPY_CLASS = 0xB5
# the older semaphore method's operations
ACQUIRES = {1: Acquire.EQUAL, 4: Acquire.CIRC_GEQ, 8: Acquire.AND}


class Card(Protocol):
    """What a channel needs of its card."""

    memory: Memory
    gmmu: Gmmu
    log: EventLog

    def now_ns(self) -> int:
        """The time of the card's timer."""
        ...

    def notify(self, channel: parts.Channel) -> None:
        """Send the engine's interrupt that does not stall."""
        ...


class RunningChannel:
    """The state of one channel. `run` is one go: it ends when the GPFIFO is empty."""

    def __init__(self, card: Card, channel: parts.Channel) -> None:
        self._card, self.channel = card, channel
        self._get = 0
        self._registers: dict[str, int] = {}
        self._classes: dict[int, int] = {}
        self._copiers: dict[int, CopyEngine] = {}
        # by class: whether the lack of a model was logged
        self._unmodelled: set[int] = set()
        # while it waits for a semaphore: which, for reports
        self.waits_for = ""
        table = methods.METHODS[0xC46F]
        self._names = {place: word.__name__ for word, place in table.items() if isinstance(place, int)}

    def _space(self) -> AddressSpace:
        """Return the address space that the instance block names now."""
        instance = self.channel.instance
        raw = self._card.memory.read(APERTURES[instance.aperture], instance.address + PAGE_DIR_BASE, 8)
        base = int.from_bytes(raw, "little")
        aperture = TARGETS.get(base & 3)
        if aperture is None or not base >> 12:
            raise BadPushbuffer("the instance block has no page directory")
        return AddressSpace(self._card.memory, self._card.gmmu, Directory(aperture, base >> 12 << 12))

    def _userd(self, offset: int) -> int:
        userd = self.channel.userd
        return int.from_bytes(self._card.memory.read(APERTURES[userd.aperture], userd.address + offset, 4), "little")

    def _set_userd(self, offset: int, value: int) -> None:
        userd = self.channel.userd
        self._card.memory.write(APERTURES[userd.aperture], userd.address + offset, value.to_bytes(4, "little"))

    def run(self) -> Iterator[float]:
        """Execute entries until there are no more, and yield the microseconds until the next step.

        Raises `BadPushbuffer`, `copy.Refused` or `space.PageFault`.
        """
        channel = self.channel
        while (put := self._userd(GP_PUT)) != self._get:
            if put >= channel.gpfifo_entries:
                raise BadPushbuffer(f"GP_PUT is {put} in a GPFIFO of {channel.gpfifo_entries} entries")
            space = self._space()
            raw = space.read(channel.gpfifo_va + ENTRY_BYTES * self._get, ENTRY_BYTES)
            one = entry(int.from_bytes(raw[:4], "little"), int.from_bytes(raw[4:], "little"))
            self._get = (self._get + 1) % channel.gpfifo_entries
            yield FETCH_US
            yield from self._segment(space, one)
            self._set_userd(GP_GET, self._get)

    def _segment(self, space: AddressSpace, one: Entry) -> Iterator[float]:
        if not one.dwords:
            if one.opcode:
                raise BadPushbuffer(f"a GPFIFO entry has opcode {one.opcode}")
            return
        raw = space.read(one.gpu_va, 4 * one.dwords)
        for count, method in enumerate(methods_of(list(struct.unpack(f"<{one.dwords}I", raw)))):
            # others get their turn in a long segment
            if count % TURN == TURN - 1:
                yield FETCH_US
            if method.address >= HOST_METHODS_END:
                yield from self._engine_method(method)
            else:
                yield from self._host_method(space, method)

    # --- engines --------------------------------------------------------------------------------------------------
    def _engine_method(self, method: Method) -> Iterator[float]:
        class_id = self._classes.get(method.subchannel)
        if class_id is None:
            raise BadPushbuffer(f"method {method.address:#x} on subchannel {method.subchannel}, which has no object")
        if class_id & 0xFF == COPY_CLASS:
            yield from self._copiers[method.subchannel].method(method.address, method.data)
        elif class_id not in self._unmodelled:
            self._unmodelled.add(class_id)
            self._card.log.note("host", "unmodelled", "methods of class {:#x} have no effect", class_id)

    def _bind(self, space: AddressSpace, subchannel: int, class_id: int) -> None:
        if class_id not in self.channel.objects:
            raise BadPushbuffer(f"SET_OBJECT names class {class_id:#x}, of which the channel has no object")
        self._classes[subchannel] = class_id
        # binding the same class again leaves its state
        if class_id & 0xFF == COPY_CLASS and subchannel not in self._copiers:
            card = self._card
            self._copiers[subchannel] = CopyEngine(
                class_id, space, card.memory, card.now_ns, privileged=self.channel.privileged
            )

    # --- the host's own methods -----------------------------------------------------------------------------------
    def _host_method(self, space: AddressSpace, method: Method) -> Iterator[float]:
        name, data = self._names.get(method.address), method.data
        if name is None or name == "ILLEGAL":
            raise BadPushbuffer(f"host method {method.address:#x}, which is none")
        self._registers[name] = data
        if name == "SET_OBJECT":
            self._bind(space, method.subchannel, data & 0xFFFF)
        elif name == "SEMAPHORED":
            yield from self._semaphore(space, methods.SEMAPHORED(data))
        elif name == "SEM_EXECUTE":
            yield from self._sem_execute(space, methods.SEM_EXECUTE(data))
        elif name == "NON_STALL_INTERRUPT":
            self._card.notify(self.channel)
        elif name == "SET_REFERENCE":
            self._set_userd(REFERENCE, data)
        elif name == "MEM_OP_D":
            # of the operations, those of the TLB matter here: there are no caches
            self._card.gmmu.invalidate()
        elif name in ("CLEAR_FAULTED", "CRC_CHECK"):
            self._card.log.note("host", "unmodelled", "{} {:#x} has no effect", name, data)

    def _semaphore(self, space: AddressSpace, execute: methods.SEMAPHORED) -> Iterator[float]:
        gpu_va = (self._registers.get("SEMAPHOREA", 0) & 0xFF) << 32 | self._registers.get("SEMAPHOREB", 0) & ~3
        payload, operation = self._registers.get("SEMAPHOREC", 0), execute.operation
        if operation in ACQUIRES:
            yield from self._acquire(space, gpu_va, ACQUIRES[operation], payload, 32)
            return
        if operation == methods.SEMAPHORED_OPERATION_REDUCTION:
            signed = execute.format == methods.SEMAPHORED_FORMAT_SIGNED
            payload = self._reduce(space, gpu_va, execute.reduction, payload, 32, signed=signed)
        elif operation != methods.SEMAPHORED_OPERATION_RELEASE:
            raise BadPushbuffer(f"SEMAPHORED has operation {operation}")
        stamped = execute.release_size == methods.SEMAPHORED_RELEASE_SIZE_16BYTE
        release(space, gpu_va, payload, 32, self._card.now_ns if stamped else None)

    def _sem_execute(self, space: AddressSpace, execute: methods.SEM_EXECUTE) -> Iterator[float]:
        gpu_va = self._registers.get("SEM_ADDR_HI", 0) << 32 | self._registers.get("SEM_ADDR_LO", 0)
        bits = 64 if execute.payload_size else 32
        payload = self._registers.get("SEM_PAYLOAD_LO", 0)
        if bits == 64:
            payload |= self._registers.get("SEM_PAYLOAD_HI", 0) << 32
        if gpu_va % (bits // 8):
            raise BadPushbuffer(f"a semaphore of {bits} bits at {gpu_va:#x}")
        operation = execute.operation
        if operation in list(Acquire):
            yield from self._acquire(space, gpu_va, Acquire(operation), payload, bits)
            return
        if operation == methods.SEM_EXECUTE_OPERATION_REDUCTION:
            signed = execute.reduction_format == methods.SEM_EXECUTE_REDUCTION_FORMAT_SIGNED
            payload = self._reduce(space, gpu_va, execute.reduction, payload, bits, signed=signed)
        elif operation != methods.SEM_EXECUTE_OPERATION_RELEASE:
            raise BadPushbuffer(f"SEM_EXECUTE has operation {operation}")
        release(space, gpu_va, payload, bits, self._card.now_ns if execute.release_timestamp else None)

    def _reduce(self, space: AddressSpace, gpu_va: int, how: int, payload: int, bits: int, *, signed: bool) -> int:
        if how not in list(Reduction):
            raise BadPushbuffer(f"a semaphore's reduction is {how}, which is none")
        value = int.from_bytes(space.read(gpu_va, bits // 8), "little")
        return reduced(Reduction(how), value, payload, bits, signed=signed)

    def _acquire(self, space: AddressSpace, gpu_va: int, how: Acquire, payload: int, bits: int) -> Iterator[float]:
        """Wait until the semaphore is as wanted, however long that takes."""
        delay_us = LOOK_US
        while True:
            value = int.from_bytes(space.read(gpu_va, bits // 8), "little")
            if holds(how, value, payload, bits):
                self.waits_for = ""
                return
            self.waits_for = f"{how.name} {payload:#x} at {gpu_va:#x}, which is {value:#x}"
            yield delay_us
            delay_us = min(2 * delay_us, MAX_LOOK_US)
