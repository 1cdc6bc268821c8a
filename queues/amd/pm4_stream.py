"""Streams of a compute queue: dispatches, barriers, stamps and small stores, built from the command processor's
packets.

Dispatches of a stream may run at the same time; `barrier` orders them. The start of a stream waits for the stream
before and invalidates caches: so it sees what that stream, the host, the copy engines and other queues stored. Its end
writes caches back: so they see what it stored. Source of a dispatch's registers: LLVM AMDGPUUsage, "Kernel Dispatch";
Mesa radv_cmd_buffer.c and ac_shader_util.c for scratch.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from ringup.autogen.amd import gc_compute as regs
from ringup.autogen.layout import Word
from ringup.errors import NotSupported
from ringup.queues.amd import aql
from ringup.queues.amd.dies import Dies
from ringup.queues.amd.hsa_objects import kernel_packet
from ringup.queues.amd.launch import NONE, Launch
from ringup.queues.amd.packets import KernelEvent, Version, Waits
from ringup.queues.amd.pm4 import Pm4
from ringup.queues.amd.pm4_cache import NEW_CODE, NEXT_DISPATCH
from ringup.queues.amd.program import KERNARG_ALIGN, LoadedKernel, Program, Scratch, kernel_of, tmpring_size
from ringup.queues.dword_stream import DwordStream
from ringup.queues.dwords import to_bytes
from ringup.queues.queue import Owner
from ringup.queues.triple import triple

WORD, QUAD = struct.Struct("<I"), struct.Struct("<Q")
# where RELEASE_MEM has its value: after the header, two control dwords and the address
SIGNAL_VALUE_BYTE = 20


class _Prepared(NamedTuple):
    """The packets of a launch. The `..._at` are bytes in them: where the addresses of the arguments and of the dispatch
    packet go, and the number of the dispatch. 0: the kernel does not use the value.
    """

    data: bytes
    launch: Launch
    kernarg_at: int
    dispatch_ptr_at: int
    dispatch_id_at: int


class Pm4Commands:
    """The packets of a compute queue that the queue itself needs."""

    kind = "pm4"
    call_period = 1

    def __init__(
        self,
        version: Version,
        *,
        interrupts: bool = True,
        word_bits: int = 64,
        event: KernelEvent | None = None,
        dies: Dies | None = None,
    ) -> None:
        """`interrupts`: whether a timeline's signal interrupts the host; useless where the host only polls.
        `word_bits`: the size of the timeline's word, 32 or 64. `event`: what the interrupt is for, where a kernel
        passes it on. `dies`: those that share the queue, of a graphics core that is several.
        """
        self.pm4, self._word_bits, self.dies = Pm4(version), word_bits, dies
        self._interrupts = interrupts and event is None
        # ORDER: behind the timeline's, so whoever the event wakes sees the timeline's value
        self._event = (
            to_bytes(self.pm4.release_mem(event.slot_va, event.number, interrupt=True, context_id=event.number))
            if event
            else b""
        )
        # before the packets of a signal
        self._before = b""
        if dies is not None:
            held = self.pm4.release_mem(0, 0, bits=word_bits) + [0] * (len(self._event) // 4)
            self._before = to_bytes(dies.finish(self.pm4) + dies.once(self.pm4, held)[: -len(held)])
        at = len(self._before) + SIGNAL_VALUE_BYTE
        self.signal_places = ((at, WORD if word_bits == 32 else QUAD, 0),)
        self._waits = Waits(self.pm4.wait_mem)
        # indirect buffers are a multiple of eight dwords. Source: amdgpu_kms.c, ib_size_alignment
        self.pad = to_bytes(self.pm4.nop())
        # ORDER: the dispatches of the submission before end before caches are invalidated. Its release does not hold
        # the queue, and a dispatch that still runs could fill the caches with stale data again
        self.begin = to_bytes(self.pm4.wait_for_dispatches() + self.pm4.acquire_mem(NEW_CODE))
        ordered = self.pm4.wait_for_dispatches() + self.pm4.acquire_mem(NEXT_DISPATCH)
        self.barrier = to_bytes(ordered if dies is None else dies.order(self.pm4))

    def padding(self, count: int) -> bytes:
        """Return one packet of `count` dwords, because each packet costs the engine time.

        Source: Mesa amdgpu_cs.cpp, amdgpu_pad_gfx_compute_ib; the kernel's rings do the same since July 2024
        (gfx_v11_0.c, ring_insert_nop).
        """
        return to_bytes(self.pm4.nop(count)) if count else b""

    def signal(self, gpu_va: int, value: int) -> bytes:
        """Store `value` when all earlier work has ended and is visible outside the card, then interrupt the host."""
        release = self.pm4.release_mem(gpu_va, value, bits=self._word_bits, interrupt=self._interrupts)
        return self._before + to_bytes(release) + self._event

    def once(self, packets: list[int]) -> list[int]:
        """Return packets that are run once, however many dies share the queue."""
        return packets if self.dies is None else self.dies.once(self.pm4, packets)

    def stamp(self, gpu_va: int, *, after_all: bool) -> list[int]:
        """Return packets that store the reference clock when all earlier work has ended, or at once."""
        packets = self.once(self.pm4.release_clock(gpu_va) if after_all else self.pm4.store_clock(gpu_va))
        return packets if self.dies is None or not after_all else self.dies.finish(self.pm4) + packets

    def carry(self, size_bytes: int) -> bytes:
        """Return the header of a packet that does nothing. The next `size_bytes`, whole dwords, may hold any data."""
        return to_bytes(self.pm4.nop(1 + size_bytes // 4)[:1])

    def wait(self, gpu_va: int, value: int) -> bytes:
        """Hold the queue until the dword at `gpu_va` is at least the low half of `value`."""
        return self._waits(gpu_va, value & 0xFFFF_FFFF)

    def call(self, gpu_va: int, size_bytes: int, at_bytes: int) -> bytes:
        """Run an indirect buffer in the queue's address space. A queue that is not privileged ignores the packet's
        VMID.

        Source: ROCr amd_aql_queue.cpp, AqlQueue::ExecutePM4, which sets no bit but `valid`.
        """
        return to_bytes(self.pm4.indirect_buffer(gpu_va, size_bytes // 4))


class ComputeStream(DwordStream):
    """Commands of a compute queue."""

    def __init__(self, commands: Pm4Commands, owner: Owner, scratch: Scratch, engines: int, queue_va: int) -> None:
        """`engines`: the chip's number of shader engines, for the scratch register. `queue_va`: the address of the
        queue's `amd_queue_t`, for kernels that use it.
        """
        super().__init__(commands, owner)
        self._queue_va = queue_va
        self.pm4 = commands.pm4
        self._scratch, self._engines = scratch, engines
        self._barrier = commands.barrier
        self._commands = commands
        self.dispatches = 0

    def dispatch(
        self,
        program: Program | LoadedKernel,
        grid: int | tuple[int, ...],
        block: int | tuple[int, ...],
        args: Sequence[Any] = (),
        *,
        dynamic_lds_bytes: int = 0,
    ) -> int:
        """Start `grid` work-groups (one to three dimensions) of `block` work-items with `args`.

        A program with one kernel may be given instead of the kernel. Raises a `ValueError` or `TypeError` that names
        the limit or the argument, and leaves the stream as it was. Arguments are copied now; buffers among them must
        live until the work is done. Returns the byte where these arguments begin among the stream's arguments:
        `Kept.patch_args` needs it.
        """
        kernel = program if type(program) is LoadedKernel else kernel_of(program)
        try:
            prepared = kernel.prepared.get((grid, block, dynamic_lds_bytes, self._scratch))
        # a list cannot be a key
        except TypeError:
            grid, block, prepared = triple(grid, "the grid"), triple(block, "the block"), None
        if prepared is None:
            prepared = self._prepare(
                kernel, Launch.of(grid, block, dynamic_lds_bytes), (grid, block, dynamic_lds_bytes)
            )
        return self._append(kernel, prepared, args)

    def dispatch_items(
        self,
        program: Program | LoadedKernel,
        items: int | tuple[int, ...],
        block: int | tuple[int, ...],
        args: Sequence[Any] = (),
        *,
        dynamic_lds_bytes: int = 0,
    ) -> int:
        """Start `items` work-items in groups of `block`. The last group of an axis may hold fewer. All else is as in
        `dispatch`.
        """
        kernel = kernel_of(program)
        items, block = triple(items, "the grid"), triple(block, "the block")
        launch = Launch.of_items(items, block, dynamic_lds_bytes)
        key = ("items", items, block, dynamic_lds_bytes)
        prepared = kernel.prepared.get((*key, self._scratch))
        return self._append(kernel, prepared or self._prepare(kernel, launch, key), args)

    def _append(self, kernel: LoadedKernel, prepared: _Prepared, args: Sequence[Any]) -> int:
        body, at = self.body, kernel.append_args(self.args, args, prepared.launch)
        after = self.around(self, kernel.name) if self.around is not None else None
        start = len(body)
        body += prepared.data
        if prepared.kernarg_at:
            self.fixups.append((start + prepared.kernarg_at, at))
        if prepared.dispatch_ptr_at:
            self._dispatch_packet(kernel, prepared, start, at)
        if prepared.dispatch_id_at:
            QUAD.pack_into(body, start + prepared.dispatch_id_at, self.dispatches)
        self.dispatches += 1
        if after is not None:
            after()
        return at

    def _prepare(self, kernel: LoadedKernel, launch: Launch, key: tuple[Any, ...]) -> _Prepared:
        kernel.check_owner(self.owner)
        launch.check(kernel.kernel)
        code, version = kernel.kernel, self.pm4.version
        words: list[Word] = [
            word.at(version)(num_thread_full=items, num_thread_partial=(rest or items) if launch.last != NONE else 0)
            for word, items, rest in zip(THREADS, launch.block, launch.last, strict=True)
        ]
        low, high = kernel.entry_va >> 8 & 0xFFFF_FFFF, kernel.entry_va >> 40
        words += [regs.COMPUTE_PGM_LO.at(version)(low), regs.COMPUTE_PGM_HI.at(version)(high)]
        bases = self._scratch_bases(code.scratch_bytes_per_item * code.wave_size)
        if len(bases) == 1:
            words += bases[0]
        words += [
            regs.COMPUTE_PGM_RSRC1.at(version)(code.rsrc1),
            regs.COMPUTE_PGM_RSRC2.at(version)(code.rsrc2_with_lds(launch.dynamic_lds_bytes)),
            regs.COMPUTE_RESOURCE_LIMITS.at(version)(0),
            self._tmpring(code.scratch_bytes_per_item * code.wave_size),
            regs.COMPUTE_PGM_RSRC3.at(version)(code.rsrc3),
        ]
        body = self.pm4.set_sh(*words)
        dies = self._commands.dies
        if dies is not None:
            for xcc, base in enumerate(bases):
                body += dies.on(self.pm4, xcc, self.pm4.set_sh(*base))
        users = [0] * 16
        places = {}
        for run in code.user_sgprs:
            if run.holds not in USER_VALUES:
                raise NotSupported(
                    f"{code.name} wants {run.holds} in its user SGPRs, which ringup does not offer;"
                    " compile it for code object version 5"
                )
            places[run.holds] = run.first
            if run.holds == "private_segment_size":
                users[run.first] = code.scratch_bytes_per_item
            elif run.holds == "queue_ptr":
                users[run.first : run.first + 2] = self._queue_va & 0xFFFF_FFFF, self._queue_va >> 32
        count = sum(run.count_dwords for run in code.user_sgprs)
        users_at = 4 * (len(body) + 2)
        if count:
            body += self.pm4.set_sh_at(regs.COMPUTE_USER_DATA_0, *users[:count])
        initiator = self.pm4.initiator_wave32 if code.wave32 else self.pm4.initiator
        if initiator is None:
            raise NotSupported(f"{code.name} has waves of 32 lanes, which graphics core {version} lacks")
        if launch.last != NONE:
            initiator = initiator.replace(partial_tg_en=1)
        body += self.pm4.dispatch(*launch.grid, initiator)
        at = {name: users_at + 4 * first for name, first in places.items()}
        places_of = (at.get(name, 0) for name in ("kernarg_segment_ptr", "dispatch_ptr", "dispatch_id"))
        prepared = _Prepared(to_bytes(body), launch, *places_of)
        kernel.keep_prepared((*key, self._scratch), prepared)
        return prepared

    def _scratch_bases(self, wave_bytes: int) -> list[list[Word]]:
        """Return the registers of each die that hold where its part of the scratch memory begins."""
        if not wave_bytes:
            return []
        block, version = self._scratch.block(wave_bytes), self.pm4.version
        low, high = regs.COMPUTE_DISPATCH_SCRATCH_BASE_LO.at(version), regs.COMPUTE_DISPATCH_SCRATCH_BASE_HI.at(version)
        starts = [block.gpu_va + part * block.part_bytes for part in range(block.parts)]
        return [[low(start >> 8 & 0xFFFF_FFFF), high(start >> 40)] for start in starts]

    def _tmpring(self, wave_bytes: int) -> Word:
        return tmpring_size(self.pm4.version, self._scratch.block(wave_bytes) if wave_bytes else None, self._engines)

    def _dispatch_packet(self, kernel: LoadedKernel, prepared: _Prepared, start: int, kernarg: int) -> None:
        """Add the AQL packet from which a kernel reads the sizes of its launch."""
        memory = self.args
        memory.extend(bytes(-len(memory) % KERNARG_ALIGN))
        at = len(memory)
        # no engine takes it as a packet, so its header is empty
        memory += bytes(2) + kernel_packet(kernel, prepared.launch)[2:]
        self.fixups.append((start + prepared.dispatch_ptr_at, at))
        if prepared.kernarg_at:
            self.arg_fixups.append((at + aql.KERNARG_BYTE, kernarg))

    def barrier(self) -> None:
        """Make later dispatches wait for all earlier ones and see what they stored."""
        self.body += self._barrier

    def store(self, gpu_va: int, *dwords: int) -> None:
        """Let the command processor store dwords at `gpu_va` (4-byte aligned). It does not wait for earlier
        dispatches.
        """
        self.append(self._commands.once(self.pm4.write_data(gpu_va, *dwords)))

    def stamp(self, gpu_va: int, *, after_all: bool = True) -> None:
        """Store the 64-bit reference clock at `gpu_va` (8-byte aligned) when all earlier work has ended, or at once."""
        self.append(self._commands.stamp(gpu_va, after_all=after_all))


THREADS = (regs.COMPUTE_NUM_THREAD_X, regs.COMPUTE_NUM_THREAD_Y, regs.COMPUTE_NUM_THREAD_Z)
USER_VALUES = ("kernarg_segment_ptr", "dispatch_ptr", "queue_ptr", "dispatch_id", "private_segment_size")
