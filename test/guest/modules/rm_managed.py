"""Runs in a guest: memory that nvidia-uvm moves between the machine and the card while both use it.

    rm_managed.py REGISTERS CODE PAGES...    a program gets the address of each of these pages and a number, in turn
    rm_managed.py REGISTERS CODE wild        it gets an address that is nobody's

The memory belongs to no card at first. The CPU writes each page, and the program reads and writes it; its accesses
fault, UVM moves the page to the card, and the access is made again. Then the CPU reads it back, and UVM moves it back.
Twice, so that a page that was on the card faults there again. Requests are those of uvm_ioctl.h and uvm_linux_ioctl.h.
"""

from __future__ import annotations

import ctypes
import json
import struct
import sys
from dataclasses import dataclass
from typing import Any

import rm_client
from rm_channels import (
    COMPUTE_SUBCHANNEL,
    PAGE,
    PARAMETERS,
    VASPACE,
    Buffer,
    Card,
    Channel,
    descriptor,
    methods,
)
from rm_client import Rm, Uvm

from ringup.autogen.nv import rm_alloc, uvm
from ringup.autogen.structs import memory

# Addresses of the card alone, and of memory that both see.
EXTERNAL, CONTEXTS, MANAGED = 0x6_0000_0000, 0x7_0000_0000, 0x4_0000_0000
CONTEXT_BYTES, BLOCK = 0x400_0000, 2 << 20
# mman.h
READ_WRITE, SHARED, FIXED_NOREPLACE = 3, 1, 0x100000
THREADS = 64
WILD, WILD_US = 0x5_0000_0000, 3e6


@dataclass
class Program:
    """A program in memory, with what a launch of it needs."""

    space: SharedSpace
    registers: int
    code: bytes

    def __post_init__(self) -> None:
        self.channel = Channel(self.space)
        self._program, self._constants, self._descriptor = (self.space.allocate(PAGE) for _ in range(3))
        self._program.region.write(0, self.code)

    def launch(self, address: int, number: int) -> int:
        """Give an address and a number to 64 threads; return the channel's point behind that."""
        self._constants.region.write(PARAMETERS, struct.pack("<QI", address, number))
        compute = self.channel.compute
        made = descriptor(compute, self._program.gpu_va, self.registers, self._constants.gpu_va, THREADS)
        place = self._descriptor.gpu_va >> 8
        words = methods(COMPUTE_SUBCHANNEL, 0, compute)
        words += methods(COMPUTE_SUBCHANNEL, 0x318, place >> 32, place & 0xFFFFFFFF)
        words += methods(COMPUTE_SUBCHANNEL, 0x320, *made)
        return self.channel.submit(*words)


class SharedSpace:
    """An address space of the card's that nvidia-uvm manages."""

    def __init__(self, card: Card) -> None:
        self.card, client = card, card.rm
        self.uvm = Uvm(client.system, client.release)
        # A second file ties the first one to this process.
        self._process = client.system.open("/dev/nvidia-uvm")
        self._tie(client)
        rm_client.register(client, self.uvm)
        self._uuid = rm_client.identity(client, 2)
        flags = (
            rm_alloc.NV_VASPACE_ALLOCATION_FLAGS_IS_EXTERNALLY_OWNED
            | rm_alloc.NV_VASPACE_ALLOCATION_FLAGS_ENABLE_PAGE_FAULTING
        )
        made = rm_alloc.NV_VASPACE_ALLOCATION_PARAMETERS.at(client.release)(flags=flags)
        self.handle = client.alloc(client.device, VASPACE, made)
        self._ask(uvm.UVM_REGISTER_GPU_VASPACE, uvm.UVM_REGISTER_GPU_VASPACE_PARAMS, hVaSpace=self.handle)
        self._next = EXTERNAL

    def _tie(self, client: Rm) -> None:
        body = bytearray(memory(uvm.UVM_MM_INITIALIZE_PARAMS.at(client.release)(uvmFd=self.uvm.node)))
        client.system.ioctl(self._process, uvm.UVM_MM_INITIALIZE, body)
        if status := uvm.UVM_MM_INITIALIZE_PARAMS.at(client.release).view(body).rmStatus:
            raise rm_client.Refused("UVM_MM_INITIALIZE", status)

    def _ask(self, number: int, layout: Any, **values: int) -> None:
        client = self.card.rm
        params = layout.at(client.release)(rmCtrlFd=client.control_node, hClient=client.root, **values)
        params.gpuUuid.uuid[0:16] = list(self._uuid)
        self.uvm.ask(number, params)

    def adopt(self, channel: int) -> None:
        """Hand a channel to UVM, which maps what its engine needs."""
        self._ask(
            uvm.UVM_REGISTER_CHANNEL, uvm.UVM_REGISTER_CHANNEL_PARAMS, hChannel=channel, base=CONTEXTS,
            length=CONTEXT_BYTES,
        )  # fmt: skip

    def allocate(self, size_bytes: int, *, vram: bool = False) -> Buffer:
        """Allocate memory that stays where it is, with an address in this space."""
        client = self.card.rm
        buffer = self.card.allocate(size_bytes, vram=vram)
        buffer.gpu_va = self._next
        self._next += BLOCK
        release = client.release
        self.uvm.ask(
            uvm.UVM_CREATE_EXTERNAL_RANGE,
            uvm.UVM_CREATE_EXTERNAL_RANGE_PARAMS.at(release)(base=buffer.gpu_va, length=buffer.size_bytes),
        )
        params = uvm.UVM_MAP_EXTERNAL_ALLOCATION_PARAMS.at(release)(
            base=buffer.gpu_va, length=buffer.size_bytes, gpuAttributesCount=1, rmCtrlFd=client.control_node,
            hClient=client.root, hMemory=buffer.handle,
        )  # fmt: skip
        params.perGpuAttributes[0].gpuUuid.uuid[0:16] = list(self._uuid)
        self.uvm.ask(uvm.UVM_MAP_EXTERNAL_ALLOCATION, params)
        return buffer


class Managed:
    """Memory that the CPU and the card see at one address."""

    def __init__(self, space: SharedSpace, size_bytes: int) -> None:
        library = ctypes.CDLL(None, use_errno=True)
        library.mmap.restype = ctypes.c_void_p
        library.mmap.argtypes = (
            ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
        )  # fmt: skip
        # UVM takes only the offset that is the address.
        found = library.mmap(MANAGED, size_bytes, READ_WRITE, SHARED | FIXED_NOREPLACE, space.uvm.node, MANAGED)
        if found != MANAGED:
            raise OSError(ctypes.get_errno(), f"no memory at {MANAGED:#x}, but {found}")

    def write(self, offset: int, data: bytes) -> None:
        """Store bytes."""
        ctypes.memmove(MANAGED + offset, data, len(data))

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Return bytes."""
        return ctypes.string_at(MANAGED + offset, size_bytes)


def moved(program: Program, pages: list[int]) -> dict[str, Any]:
    """Return the words of each page after each round."""
    managed = Managed(program.space, PAGE * (max(pages) + 1))
    for page in pages:
        managed.write(PAGE * page, struct.pack(f"<{THREADS}I", *(1000 * page + one for one in range(THREADS))))
    rounds = []
    for number in (1, 2):
        for page in pages:
            program.channel.wait(program.launch(MANAGED + PAGE * page, number))
        rounds.append([list(struct.unpack(f"<{THREADS}I", managed.read(PAGE * page, 4 * THREADS))) for page in pages])
    return {"rounds": rounds}


def wild(program: Program) -> dict[str, Any]:
    """Return whether the channel has come beyond an access to nobody's memory."""
    point = program.launch(WILD, 1)
    program.space.card.rm.system.sleep_us(WILD_US)
    return {"beyond": program.channel.done >= point}


def main(words: list[str]) -> int:
    """Do it, and print the result as JSON."""
    if len(words) < 3:
        sys.stderr.write(f"{__doc__}\n")
        return 2
    client = Rm()
    registers, code, *pages = words
    program = Program(SharedSpace(Card(client)), int(registers), bytes.fromhex(code))
    result = wild(program) if pages == ["wild"] else moved(program, [int(page) for page in pages])
    sys.stdout.write(json.dumps(result) + "\n")
    client.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
