"""Runs in a guest: what a compute library does with NVIDIA's open kernel modules, by a client of ours.

    rm_channels.py copies SIZE...     copy that many bytes to the card and back, by a copy engine
    rm_channels.py orders CHANNELS    let channels wait for each other by semaphores, and wait for their interrupt
    rm_channels.py contexts COUNT     make that many contexts one after the other; each does work, and goes again
    rm_channels.py warm MEBIBYTES     read sensors, copy that much within the card, and read them meanwhile and after
    rm_channels.py launch REGISTERS CODE COUNT    run a program on the shader cores; it gets an address and COUNT

A context is an address space, a channel group and a channel with its objects, as the modules' headers have them
(nvos.h, alloc_channel.h, ctrla06c.h, ctrlc36f.h). Work is methods in a pushbuffer: clc56f.h, clc6b5.h, clc7c0.h.
"""

from __future__ import annotations

import json
import struct
import sys
from dataclasses import dataclass
from typing import Any

import rm_client
from rm_client import Region, Rm

from ringup.autogen.layout import Word
from ringup.autogen.nv import classes, methods_copy, methods_host, rm, rm_alloc
from ringup.autogen.nv import qmdv02_03 as qmd_2_3
from ringup.autogen.nv import qmdv03_00 as qmd_3_0
from ringup.autogen.nv import rm_ctrl_0080 as device_controls
from ringup.autogen.nv import rm_ctrl_channel as channel_controls
from ringup.autogen.nv import rm_memory as attributes
from ringup.autogen.structs import memory

# RM_ENGINE_TYPE_*; what the kernel calls the interrupt that does not stall: cl2080_notification.h, nvos.h
GRAPHICS, COPY0 = 1, 9
NOTIFIERS = {GRAPHICS: 12, **{COPY0 + number: 23 + number for number in range(10)}}
NONSTALL, OS_EVENT = 0x08000000, 0x79
VASPACE, VIRTUAL, VIDMEM, SYSMEM, GROUP = 0x90F1, 0x70, 0x40, 0x3E, 0xA06C
# the newest class of each kind that the card has is taken
CHANNELS = (classes.TURING_CHANNEL_GPFIFO_A, classes.AMPERE_CHANNEL_GPFIFO_A)
COMPUTES = (classes.TURING_COMPUTE_A, classes.AMPERE_COMPUTE_A, classes.AMPERE_COMPUTE_B, classes.ADA_COMPUTE_A)
COPIES = (classes.TURING_DMA_COPY_A, classes.AMPERE_DMA_COPY_A, classes.AMPERE_DMA_COPY_B)
USERMODES = (classes.TURING_USERMODE_A, classes.AMPERE_USERMODE_A)
# the doorbell in the user-mode registers: clc361.h, NVC361_NOTIFY_CHANNEL_PENDING; GP_PUT in USERD: clc56f.h
DOORBELL, USERMODE_BYTES, GP_PUT = 0x90, 0x10000, 0x8C
PAGE, MIB = 4096, 1 << 20
# a channel's memory: GPFIFO, USERD, a semaphore, pushbuffer
FIFO, USERD, SEMAPHORE, PUSH, CHANNEL_BYTES, ENTRIES = 0, 0x1000, 0x2000, 0x3000, 0x10000, 64
COMPUTE_SUBCHANNEL, COPY_SUBCHANNEL = 1, 4
ACQUIRE_GEQ = 3
# TIMEOUT: an emulated processor, with other guests beside it
WAIT_US, STEP_US = 60e6, 500
# NV2080_CTRL_CMD_THERMAL_SYSTEM_EXECUTE_V2_PHYSICAL, NV2080_CTRL_CMD_PERF_GET_GPUMON_PERFMON_UTIL_SAMPLES_V2
TEMPERATURES, USE_SAMPLES = 0x20808513, 0x20802096
# where a kernel's parameters begin in constant bank 0, up to sm_89
PARAMETERS = 0x160


@dataclass
class Buffer:
    """Memory of the card's or the machine's: where the card and the CPU see it."""

    rm: Rm
    handle: int
    size_bytes: int
    gpu_va: int = 0
    region: Region | None = None

    def word(self, offset: int) -> int:
        """Read a word."""
        return self.region.read32(offset)

    def free(self) -> None:
        """Give the memory back, with all its mappings."""
        if self.region is not None:
            self.region.close()
        self.rm.free(self.handle)


class Card:
    """A client with the card's doorbell."""

    def __init__(self, client: Rm) -> None:
        self.rm = client
        layout = device_controls.NV0080_CTRL_GPU_GET_CLASSLIST_V2_PARAMS.at(client.release)
        found = client.control(client.device, device_controls.NV0080_CTRL_CMD_GPU_GET_CLASSLIST_V2, layout())
        self._classes = set(found.classList[0 : found.numClasses])
        self._usermode = client.alloc(client.subdevice, self.newest(USERMODES))
        self.registers = self.show(self._usermode, USERMODE_BYTES, client.open_card())

    def newest(self, wanted: tuple[int, ...]) -> int:
        """Return the last of the classes that the card has."""
        return [one for one in wanted if one in self._classes][-1]

    def show(self, handle: int, size_bytes: int, descriptor: int) -> Region:
        """Return a view of memory or registers; `descriptor`: a node that shows nothing else yet."""
        request = rm.nv_ioctl_nvos33_parameters_with_fd.at(self.rm.release)(fd=descriptor)
        asked = request.params
        asked.hClient, asked.hDevice, asked.hMemory = self.rm.root, self.rm.device, handle
        asked.length = size_bytes
        data = bytearray(memory(request))
        self.rm.ask(rm.NV_ESC_RM_MAP_MEMORY, data)
        memory(request)[:] = data
        if status := request.params.status:
            raise rm_client.Refused("a view of memory", status)
        return self.rm.system.mmap(descriptor, size_bytes)

    def allocate(self, size_bytes: int, *, vram: bool) -> Buffer:
        """Allocate memory, cached by the CPU if it is the machine's."""
        attr = 0 if vram else attributes.NVOS32_ATTR_LOCATION_PCI << attributes.NVOS32_ATTR_LOCATION[1]
        if not vram:
            attr |= attributes.NVOS32_ATTR_COHERENCY_CACHED << attributes.NVOS32_ATTR_COHERENCY[1]
            attr |= attributes.NVOS32_ATTR_PHYSICALITY_NONCONTIGUOUS << attributes.NVOS32_ATTR_PHYSICALITY[1]
        size_bytes = -(-size_bytes // PAGE) * PAGE
        params = rm_alloc.NV_MEMORY_ALLOCATION_PARAMS.at(self.rm.release)(
            owner=self.rm.root, size=size_bytes, attr=attr
        )
        handle = self.rm.alloc(self.rm.device, VIDMEM if vram else SYSMEM, params)
        view = None if vram else self.show(handle, size_bytes, self.rm.open_control())
        return Buffer(self.rm, handle, size_bytes, region=view)


class Space:
    """An address space of the card's."""

    def __init__(self, card: Card) -> None:
        self.card = card
        space = rm_alloc.NV_VASPACE_ALLOCATION_PARAMETERS.at(card.rm.release)()
        self.handle = card.rm.alloc(card.rm.device, VASPACE, space)
        whole = rm_alloc.NV_MEMORY_VIRTUAL_ALLOCATION_PARAMS.at(card.rm.release)(hVASpace=self.handle)
        self._whole = card.rm.alloc(card.rm.device, VIRTUAL, whole)

    def map(self, buffer: Buffer) -> Buffer:
        """Give memory an address in this space."""
        client = self.card.rm
        request = rm.NVOS46_PARAMETERS.at(client.release)(
            hClient=client.root,
            hDevice=client.device,
            hDma=self._whole,
            hMemory=buffer.handle,
            length=buffer.size_bytes,
            flags=rm.NVOS46_FLAGS_CACHE_SNOOP_ENABLE << rm.NVOS46_FLAGS_CACHE_SNOOP[1],
        )
        buffer.gpu_va = client.request(rm.NV_ESC_RM_MAP_MEMORY_DMA, "an address", request).dmaOffset
        return buffer

    def allocate(self, size_bytes: int, *, vram: bool = False) -> Buffer:
        """Allocate memory with an address in this space."""
        return self.map(self.card.allocate(size_bytes, vram=vram))

    def adopt(self, channel: int) -> None:
        """Take a new channel: it needs nothing more here."""

    def free(self) -> None:
        """Free the space."""
        self.card.rm.free(self._whole)
        self.card.rm.free(self.handle)


def methods(subchannel: int, first: int, *data: int) -> list[int]:
    """Return the words of methods that follow each other."""
    return [1 << 29 | len(data) << 16 | subchannel << 13 | first >> 2, *data]


class Channel:
    """A group of one channel, on the graphics engine or on a copy engine, with its objects."""

    def __init__(self, space: Space, engine: int = GRAPHICS) -> None:
        self.space, self.engine = space, engine
        self.card, client = space.card, space.card.rm
        self._memory = space.allocate(CHANNEL_BYTES)
        group = rm_alloc.NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS.at(client.release)(
            hVASpace=space.handle, engineType=engine
        )
        self.group = client.alloc(client.device, GROUP, group)
        params = rm_alloc.NV_CHANNEL_ALLOC_PARAMS.at(client.release)(
            gpFifoOffset=self._memory.gpu_va + FIFO, gpFifoEntries=ENTRIES, engineType=engine
        )
        params.hUserdMemory[0], params.userdOffset[0] = self._memory.handle, USERD
        self.number = self.card.newest(CHANNELS)
        self.handle = client.alloc(self.group, self.number, params)
        self.compute = 0
        if engine == GRAPHICS:
            self.compute = self.card.newest(COMPUTES)
            client.alloc(self.handle, self.compute, rm_alloc.NV_GR_ALLOCATION_PARAMETERS.at(client.release)())
        self.copy = self.card.newest(COPIES)
        copy = rm_alloc.NVB0B5_ALLOCATION_PARAMETERS.at(client.release)(version=1, engineType=max(engine, COPY0))
        client.alloc(self.handle, self.copy, copy)
        space.adopt(self.handle)
        schedule = channel_controls.NVA06C_CTRL_GPFIFO_SCHEDULE_PARAMS.at(client.release)(bEnable=1)
        client.control(self.group, channel_controls.NVA06C_CTRL_CMD_GPFIFO_SCHEDULE, schedule)
        token = channel_controls.NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN_PARAMS.at(client.release)()
        command = channel_controls.NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN
        self.token = client.control(self.handle, command, token).workSubmitToken
        self._put = self._next = self.points = 0

    def close(self) -> None:
        """Free the group with all that is in it, and its memory."""
        self.card.rm.free(self.group)
        self._memory.free()

    @property
    def semaphore(self) -> int:
        """The address of the word that counts this channel's finished work."""
        return self._memory.gpu_va + SEMAPHORE

    def submit(self, *words: int, interrupt: bool = False) -> int:
        """Let the channel do this, count it, and return the count."""
        self.points += 1
        release = methods_host.SEM_EXECUTE(operation=1, release_wfi=1)
        data = [*words, *methods(0, 0x5C, *self._halves(self.semaphore), self.points, 0, int(release))]
        if interrupt:
            data += methods(0, 0x20, 0)
        packed = struct.pack(f"<{len(data)}I", *data)
        if self._next + len(packed) > CHANNEL_BYTES - PUSH:
            # all before it is done
            self._next = 0
        at = PUSH + self._next
        self._next += len(packed)
        view = self._memory.region
        view.write(at, packed)
        entry = self._memory.gpu_va + at
        view.write(FIFO + 8 * self._put, struct.pack("<II", entry & 0xFFFFFFFF, entry >> 32 | len(data) << 10))
        self._put = (self._put + 1) % ENTRIES
        view.write32(USERD + GP_PUT, self._put)
        self.card.registers.write32(DOORBELL, self.token)
        return self.points

    @staticmethod
    def _halves(address: int) -> tuple[int, int]:
        return address & 0xFFFFFFFF, address >> 32

    def after(self, other: Channel, point: int) -> list[int]:
        """Return the words that wait for another channel's work."""
        acquire = methods_host.SEM_EXECUTE(operation=ACQUIRE_GEQ, acquire_switch_tsg=1)
        return methods(0, 0x5C, *self._halves(other.semaphore), point, 0, int(acquire))

    @property
    def done(self) -> int:
        """How much of the work is finished."""
        return self._memory.word(SEMAPHORE)

    def wait(self, point: int) -> None:
        """Wait until work is finished."""
        spent_us = 0.0
        while self.done < point:
            if spent_us > WAIT_US:
                raise TimeoutError(f"channel {self.token:#x} has finished {self.done} of {point}")
            self.card.rm.system.sleep_us(STEP_US)
            spent_us += STEP_US

    def copied(self, source: int, target: int, size_bytes: int) -> list[int]:
        """Return the words that copy bytes."""
        launch = methods_copy.LAUNCH_DMA(data_transfer_type=2, flush_enable=1, src_memory_layout=1, dst_memory_layout=1)
        return [
            *methods(COPY_SUBCHANNEL, 0, self.copy),
            *methods(COPY_SUBCHANNEL, 0x400, source >> 32, source & 0xFFFFFFFF, target >> 32, target & 0xFFFFFFFF),
            *methods(COPY_SUBCHANNEL, 0x418, size_bytes, 1),
            *methods(COPY_SUBCHANNEL, 0x300, int(launch)),
        ]

    def event(self) -> int:
        """Return a node that is ready when the channel's engine sends its interrupt."""
        client = self.card.rm
        node = client.open_control()
        asked = rm.nv_ioctl_alloc_os_event_t.at(client.release)(hClient=client.root, hDevice=client.device, fd=node)
        data = bytearray(memory(asked))
        # the event belongs to the node that makes it
        client.system.ioctl(node, 3 << 30 | len(data) << 16 | rm.NV_IOCTL_MAGIC << 8 | rm.NV_ESC_ALLOC_OS_EVENT, data)
        memory(asked)[:] = data
        if status := asked.Status:
            raise rm_client.Refused("an event of the system's", status)
        params = rm_alloc.NV0005_ALLOC_PARAMETERS.at(client.release)(
            hParentClient=client.root,
            hSrcResource=client.subdevice,
            hClass=OS_EVENT,
            notifyIndex=NOTIFIERS[self.engine] | NONSTALL,
            data=node,
        )
        client.alloc(client.subdevice, OS_EVENT, params)
        return node


def pattern(size_bytes: int, seed: int) -> bytes:
    """Return bytes in which every 64 KiB differ."""
    piece = bytes((seed + 7 * number) & 0xFF for number in range(251))
    block = (piece * 262)[: 1 << 16]
    parts = [struct.pack("<II", seed, number) + block[8:] for number in range(size_bytes >> 16)]
    return b"".join(parts) + block[: size_bytes & 0xFFFF]


def copies(card: Card, sizes: list[int]) -> dict[str, Any]:
    """Copy to the card and back, by an asynchronous engine; return the sizes at which all bytes came back."""
    space = Space(card)
    channel = Channel(space, COPY0 + 2)
    most = max(sizes) + PAGE
    # one buffer for both ways: each page that the kernel pins costs an emulated processor time
    here, there = space.allocate(most), space.allocate(most, vram=True)
    right = []
    for number, size in enumerate(sizes):
        # any alignment will do for a copy engine
        start = number % 5
        data = pattern(size, number)
        here.region.write(start, data)
        channel.wait(channel.submit(*channel.copied(here.gpu_va + start, there.gpu_va + 3 * start, size)))
        here.region.write(0, b"\xee" * min(size + 16, most))
        channel.wait(channel.submit(*channel.copied(there.gpu_va + 3 * start, here.gpu_va, size)))
        if here.region.read(0, size) == data and here.region.read(size, 8) == b"\xee" * 8:
            right.append(size)
    for buffer in (here, there):
        buffer.free()
    channel.close()
    space.free()
    return {"right": right}


def orders(card: Card, count: int) -> dict[str, Any]:
    """Let each of several channels append its number behind the one before it, submitted last first."""
    space = Space(card)
    made = [Channel(space, GRAPHICS if number == 0 else COPY0 + 2 + number % 2) for number in range(count)]
    node = made[-1].event()
    trace, numbers = space.allocate(PAGE), space.allocate(PAGE)
    numbers.region.write(0, struct.pack(f"<{count}I", *range(1, count + 1)))
    early = []
    for place in reversed(range(count)):
        one = made[place]
        # the place where it writes is the next after what is there: a copy of all, one word on, then its number
        words = one.after(made[place - 1], 1) if place else []
        words += one.copied(trace.gpu_va, trace.gpu_va + 2048, 4 * count)
        words += one.copied(trace.gpu_va + 2048, trace.gpu_va + 4, 4 * count)
        words += one.copied(numbers.gpu_va + 4 * place, trace.gpu_va, 4)
        if place:
            one.submit(*words, interrupt=place == count - 1)
            early.append(one.done)
        else:
            one.submit(*words)
    ready = card.rm.system.poll([node], round(WAIT_US / 1000))
    for one in made:
        one.wait(1)
    order = list(struct.unpack(f"<{count}I", trace.region.read(0, 4 * count)))
    return {"order": order, "early": early, "interrupts": len(ready)}


def contexts(card: Card, count: int) -> dict[str, Any]:
    """Make contexts, each with an address space, a channel and its objects; each writes its number into memory.

    Every tenth is on the graphics engine, for which the kernel makes many buffers; the others are on a copy engine.
    """
    right = 0
    for number in range(count):
        space = Space(card)
        channel = Channel(space, COPY0 + 2 if number % 10 else GRAPHICS)
        result = space.allocate(PAGE)
        if channel.compute:
            words = methods(COMPUTE_SUBCHANNEL, 0, channel.compute)
            words += methods(COMPUTE_SUBCHANNEL, 0x180, 4, 1, result.gpu_va >> 32, result.gpu_va & 0xFFFFFFFF)
            words += methods(COMPUTE_SUBCHANNEL, 0x1B0, 0x41) + methods(COMPUTE_SUBCHANNEL, 0x1B4, number + 1)
        else:
            result.region.write(64, struct.pack("<I", number + 1))
            words = channel.copied(result.gpu_va + 64, result.gpu_va, 4)
        channel.wait(channel.submit(*words))
        right += result.word(0) == number + 1
        channel.close()
        result.free()
        space.free()
    return {"right": right}


def descriptor(compute: int, program: int, registers: int, constants: int, threads: int) -> list[int]:
    """Return the launch descriptor of one group of threads, as words."""
    turing = compute == classes.TURING_COMPUTE_A
    made: Word = (qmd_2_3.QMDV02_03 if turing else qmd_3_0.QMDV03_00)(
        qmd_major_version=2 if turing else 3,
        qmd_version=3 if turing else 0,
        api_visible_call_limit=1,
        sampler_index=0,
        cta_raster_width=1,
        cta_raster_height=1,
        cta_raster_depth=1,
        cta_thread_dimension0=threads,
        cta_thread_dimension1=1,
        cta_thread_dimension2=1,
        register_count_v=registers,
        min_sm_config_shared_mem_size=3,
        max_sm_config_shared_mem_size=17,
        target_sm_config_shared_mem_size=3,
        program_address_lower=program & 0xFFFFFFFF,
        program_address_upper=program >> 32,
        sass_version={classes.TURING_COMPUTE_A: 0x75, classes.AMPERE_COMPUTE_B: 0x86}.get(compute, 0x89),
    )
    first = type(made).FIELDS
    value = int(made)
    for name, number in (
        ("constant_buffer_valid", 1),
        ("constant_buffer_addr_lower", constants & 0xFFFFFFFF),
        ("constant_buffer_addr_upper", constants >> 32),
        ("constant_buffer_size_shifted4", PAGE >> 4),
    ):
        value |= number << first[name].lo
    return list(struct.unpack("<64I", value.to_bytes(256, "little")))


def launch(card: Card, registers: int, code: bytes, count: int) -> dict[str, Any]:
    """Run a program in one group of `count` threads; return the words that it has written."""
    space = Space(card)
    channel = Channel(space)
    staged, program = space.allocate(PAGE), space.allocate(PAGE, vram=True)
    constants, result, qmd = space.allocate(PAGE), space.allocate(PAGE), space.allocate(PAGE)
    staged.region.write(0, code)
    constants.region.write(PARAMETERS, struct.pack("<QI", result.gpu_va, count))
    words = channel.copied(staged.gpu_va, program.gpu_va, len(code))
    words += methods(COMPUTE_SUBCHANNEL, 0, channel.compute)
    made = descriptor(channel.compute, program.gpu_va, registers, constants.gpu_va, count)
    place = qmd.gpu_va >> 8
    words += methods(COMPUTE_SUBCHANNEL, 0x318, place >> 32, place & 0xFFFFFFFF)
    words += methods(COMPUTE_SUBCHANNEL, 0x320, *made)
    channel.wait(channel.submit(*words))
    return {"words": list(struct.unpack(f"<{count}I", result.region.read(0, 4 * count)))}


def sensed(client: Rm) -> dict[str, int]:
    """Read the temperature in °C, and how much memory and graphics were used in the last sample, in percent.

    The list of one instruction reads the first sensor: ctrl2080thermal.h of 575, where its layout is public.
    """
    reading = struct.pack("<6I", 1, 0, 44, 0, 0, 1) + struct.pack("<IIIi28x", 0, 0, 0x1500, 0)
    answer = client.control_bytes(client.subdevice, TEMPERATURES, bytearray(reading.ljust(1432, b"\0")))
    done, celsius = struct.unpack_from("<I", answer, 16)[0], struct.unpack_from("<i", answer, 24 + 16)[0]
    if done != 1:
        raise rm_client.Refused("a temperature", struct.unpack_from("<I", answer, 24)[0])
    # ctrl2080perf.h: 72 samples of 472 bytes: a time, and 116 bytes for each engine, memory and graphics first
    asked = struct.pack("<B3xI", 2, 72 * 472).ljust(16 + 72 * 472, b"\0")
    answer = client.control_bytes(client.subdevice, USE_SAMPLES, bytearray(asked))
    times = [struct.unpack_from("<Q", answer, 16 + 472 * place)[0] for place in range(72)]
    newest = 16 + 472 * times.index(max(times))
    memory_use, graphics_use = (struct.unpack_from("<I", answer, newest + 8 + 116 * place)[0] for place in range(2))
    return {"celsius": celsius, "memory": memory_use // 100, "graphics": graphics_use // 100}


def warm(card: Card, mebibytes: int) -> dict[str, Any]:
    """Let a copy engine work, and read the sensors before, meanwhile and after it."""
    space = Space(card)
    channel = Channel(space, COPY0 + 2)
    there, other = (space.allocate(64 * MIB, vram=True) for _ in range(2))
    before = sensed(card.rm)
    for _ in range(mebibytes // 64):
        last = channel.submit(*channel.copied(there.gpu_va, other.gpu_va, 64 * MIB))
    meanwhile = dict(before)
    while channel.done < last:
        meanwhile = {name: max(value, meanwhile[name]) for name, value in sensed(card.rm).items()}
        card.rm.system.sleep_us(STEP_US)
    card.rm.system.sleep_us(3e6)
    return {"before": before, "meanwhile": meanwhile, "after": sensed(card.rm)}


def main(words: list[str]) -> int:
    """Do what the first word says, and print its result as JSON."""
    client = Rm()
    card = Card(client)
    match words:
        case ["copies", *sizes] if sizes:
            result = copies(card, [int(size) for size in sizes])
        case ["orders", count]:
            result = orders(card, int(count))
        case ["contexts", count]:
            result = contexts(card, int(count))
        case ["warm", mebibytes]:
            result = warm(card, int(mebibytes))
        case ["launch", registers, code, count]:
            result = launch(card, int(registers), bytes.fromhex(code), int(count))
        case _:
            sys.stderr.write(f"{__doc__}\n")
            return 2
    sys.stdout.write(json.dumps(result) + "\n")
    client.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
