"""Host semaphores: how queues signal and wait for timelines, and how the clock is stamped.

The host (the part of the card that reads pushbuffers) executes them. A release with RELEASE_WFI waits until the engine
that the channel last sent methods to is idle, then makes all that it wrote visible to the host computer and to other
engines (a SYSMEMBAR), then stores the payload. Later methods of the channel wait for it. Source: open-gpu-doc
dev_pbdma.ref.txt, "SEM_EXECUTE"; Linux nouveau gv100_fence.c does the same.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from ringup.autogen.nv import methods_host as host
from ringup.queues.dwords import to_bytes
from ringup.queues.nv.methods import HOST, Methods, address, header

QUAD = struct.Struct("<Q")
PACK_QUAD = QUAD.pack_into
# bytes of a release: header, address, then the payload, then what to do
PAYLOAD_BYTE = 12
PAYLOAD_BITS = 64
# a stamp: 16 bytes, a payload of zero and then the clock in ns
STAMP_BYTES, STAMP_CLOCK_AT = 16, 8
# timelines whose wait is cached; a card has fewer
MAX_WAITS = 256


class Semaphores:
    """Semaphore operations of one channel class, as words."""

    def __init__(self, methods: Methods) -> None:
        self._methods = methods
        self.nop_method = methods.place(host.NOP)
        self._address_bits = 32 + methods[host.SEM_ADDR_HI].FIELDS["offset"].width

    def _operate(self, gpu_va: int, value: int, align: int, **execute: int) -> list[int]:
        methods = self._methods
        low, high = address(gpu_va, align, self._address_bits, "a semaphore")
        if value >> PAYLOAD_BITS:
            raise ValueError(f"a semaphore holds {PAYLOAD_BITS} bits, not {value:#x}")
        return methods.run(
            methods[host.SEM_ADDR_LO](low),
            methods[host.SEM_ADDR_HI](offset=high),
            methods[host.SEM_PAYLOAD_LO](value & 0xFFFF_FFFF),
            methods[host.SEM_PAYLOAD_HI](value >> 32),
            methods[host.SEM_EXECUTE](payload_size=host.SEM_EXECUTE_PAYLOAD_SIZE_64BIT, **execute),
        )

    def release(self, gpu_va: int, value: int, *, wait_for_idle: bool = True) -> list[int]:
        """Store 64 bits at `gpu_va` (8-byte aligned), when all earlier work has ended and its results are visible, or
        at once.
        """
        return self._operate(
            gpu_va, value, 8, operation=host.SEM_EXECUTE_OPERATION_RELEASE, release_wfi=int(wait_for_idle)
        )

    def stamp(self, gpu_va: int, *, wait_for_idle: bool = True) -> list[int]:
        """Store 16 bytes at `gpu_va` (16-byte aligned): zero, and the card's clock in ns behind it."""
        return self._operate(
            gpu_va,
            0,
            STAMP_BYTES,
            operation=host.SEM_EXECUTE_OPERATION_RELEASE,
            release_wfi=int(wait_for_idle),
            release_timestamp=host.SEM_EXECUTE_RELEASE_TIMESTAMP_EN,
        )

    def acquire(self, gpu_va: int, value: int) -> list[int]:
        """Hold the channel until the 64 bits at `gpu_va` (8-byte aligned) have reached `value`.

        Other channels run meanwhile. The comparison is circular: values up to 2**63 above `value` have reached it.
        """
        return self._operate(
            gpu_va,
            value,
            8,
            operation=host.SEM_EXECUTE_OPERATION_ACQ_CIRC_GEQ,
            acquire_switch_tsg=host.SEM_EXECUTE_ACQUIRE_SWITCH_TSG_EN,
        )

    def interrupt(self) -> list[int]:
        """Raise the channel's non-stall interrupt."""
        return self._methods.run(host.NON_STALL_INTERRUPT(0))

    def wait_for_idle(self) -> list[int]:
        """Hold the channel until the engine that it last sent methods to is idle."""
        return self._methods.run(host.WFI(scope=host.WFI_SCOPE_ALL))


class HostCommands:
    """What every queue of a channel needs itself, whatever its engine: the base of a queue's `Commands`.

    No submission is padded: a pushbuffer has any number of words.
    """

    kind = "host"
    call_period = 1
    pad = b""
    begin = b""

    def __init__(self, host_methods: Methods, *, interrupts: bool = True) -> None:
        """`interrupts`: whether a timeline's signal interrupts the host computer; useless where that only polls."""
        self.semaphores = Semaphores(host_methods)
        self.signal_places = ((PAYLOAD_BYTE, QUAD, 0),)
        self._behind = self.semaphores.interrupt() if interrupts else []
        self._waits: dict[int, bytearray] = {}

    def padding(self, count: int) -> bytes:
        """Return nothing: nothing is padded."""
        return b""

    def signal(self, gpu_va: int, value: int) -> bytes:
        """Store `value` when all earlier work has ended and is visible outside the card, then interrupt."""
        return to_bytes(self.semaphores.release(gpu_va, value) + self._behind)

    def wait(self, gpu_va: int, value: int) -> bytes:
        """Hold the queue until the 64 bits at `gpu_va` have reached `value`."""
        packet = self._waits.get(gpu_va)
        if packet is None:
            if len(self._waits) >= MAX_WAITS:
                self._waits.clear()
            packet = self._waits[gpu_va] = bytearray(to_bytes(self.semaphores.acquire(gpu_va, 0)))
        PACK_QUAD(packet, PAYLOAD_BYTE, value)
        return bytes(packet)

    def carry(self, size_bytes: int) -> bytes:
        """Return the header of a run that does nothing. The next `size_bytes`, whole dwords, may hold any data."""
        operation = host.DMA_SEC_OP_NON_INC_METHOD
        return to_bytes([header(operation, HOST, self.semaphores.nop_method, size_bytes // 4)])

    def call(self, gpu_va: int, size_bytes: int, at_bytes: int) -> bytes:
        """Refuse: commands in memory are run by an entry of the GPFIFO, not by a method (`GpfifoQueue`)."""
        raise ValueError("no method calls commands in memory: submit them to a GpfifoQueue")

    def stamp(self, gpu_va: int, *, after_all: bool) -> Sequence[int]:
        """Return methods that store the clock when all earlier work has ended, or at once."""
        return self.semaphores.stamp(gpu_va, wait_for_idle=after_all)
