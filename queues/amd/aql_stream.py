"""Streams of an HSA queue: dispatches, barriers and waits for signals as packets of 64 bytes, and PM4 in between.

Dispatches of a stream may run at the same time; `barrier` orders them. A submission begins and ends with packets that
run PM4: the first waits for points of other queues and invalidates caches (those of code too, which no fence of AQL
does), the last writes caches back and stores the value of the queue's timeline. Source: HSA Platform System
Architecture 1.2; ROCr amd_aql_queue.cpp, AqlQueue::ExecutePM4, also for the caches of code.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from ringup.errors import NotSupported
from ringup.queues.amd import aql
from ringup.queues.amd.aql import Condition, Order, Scope
from ringup.queues.amd.dies import Dies
from ringup.queues.amd.hsa_objects import WAVE64_LANES, kernel_packet
from ringup.queues.amd.launch import Launch
from ringup.queues.amd.packets import KernelEvent, Version
from ringup.queues.amd.pm4_cache import NEW_CODE
from ringup.queues.amd.pm4_stream import Pm4Commands
from ringup.queues.amd.program import KERNARG_ALIGN, LoadedKernel, Program, kernel_of
from ringup.queues.dwords import to_bytes
from ringup.queues.queue import MASKS, Owner, Stream
from ringup.queues.triple import triple

PACK_HEADER = struct.Struct("<H").pack_into
PACK_ADDRESS = struct.Struct("<Q").pack_into
IN_ORDER = Order(barrier=True)


class Signal(Protocol):
    """A signal in memory that the card reaches, an `amd_signal_t`."""

    @property
    def gpu_va(self) -> int:
        """Its address: its handle in packets. Raises a `ValueError` if its memory was given back."""
        ...


class AqlCommands:
    """The packets of an HSA queue that the queue itself needs."""

    kind = "aql"
    # each submission ends with a packet that contains no value: the queue stores the PM4 that it runs
    signal_places: tuple[tuple[int, struct.Struct, int], ...] = ()
    pad = b""
    call_period = 1

    def __init__(
        self,
        version: Version,
        begin_va: int,
        *,
        interrupts: bool = True,
        word_bits: int = 64,
        event: KernelEvent | None = None,
        dies: Dies | None = None,
    ) -> None:
        """`begin_va`: where `begin_pm4` is stored. The rest: see `Pm4Commands`."""
        self._pm4 = Pm4Commands(version, interrupts=interrupts, word_bits=word_bits, event=event, dies=dies)
        self.pm4 = self._pm4.pm4
        self.begin_pm4 = to_bytes(self.pm4.acquire_mem(NEW_CODE))
        self.begin = self.run(begin_va, len(self.begin_pm4))

    def run(self, gpu_va: int, size_bytes: int) -> bytes:
        """Return a packet that runs PM4 when everything before it is complete."""
        return aql.pm4_indirect(self.pm4, gpu_va, size_bytes // 4, order=IN_ORDER)

    def padding(self, count: int) -> bytes:
        """Return nothing: any number of packets is taken."""
        return b""

    def signal(self, gpu_va: int, value: int) -> bytes:
        """Return the packet that runs `signal_pm4`, whose address the queue stores at `aql.IB_ADDRESS_BYTE`."""
        return self.run(0, len(self.signal_pm4(gpu_va, value)))

    def signal_pm4(self, gpu_va: int, value: int) -> bytes:
        """Return PM4 that stores `value` when all earlier work is visible outside the card, then interrupts."""
        return self._pm4.signal(gpu_va, value)

    def sign_pm4(self, pm4: bytearray, value: int) -> None:
        """Store another value in what `signal_pm4` returned."""
        for place, form, shift in self._pm4.signal_places:
            form.pack_into(pm4, place, value >> shift & MASKS[form.size])

    def once(self, packets: list[int]) -> list[int]:
        """Return PM4 that is run once, however many dies share the queue."""
        return self._pm4.once(packets)

    def stamp(self, gpu_va: int) -> list[int]:
        """Return PM4 that stores the reference clock when all earlier work has ended."""
        return self._pm4.stamp(gpu_va, after_all=True)

    def wait(self, gpu_va: int, value: int) -> bytes:
        """Return PM4 that holds the queue until the dword at `gpu_va` is at least the low half of `value`."""
        return self._pm4.wait(gpu_va, value)

    def call(self, gpu_va: int, size_bytes: int, at_bytes: int) -> bytes:
        """Refuse: packets run from their queue alone."""
        raise NotSupported("an HSA queue runs no packets from elsewhere in memory")


class _Prepared(NamedTuple):
    """A launch's packet without arguments and signal, and the bytes of scratch memory of each of its waves."""

    packet: bytes
    launch: Launch
    wave_bytes: int


class AqlStream(Stream):
    """Packets of an HSA queue. Methods that add a packet return the byte where it begins."""

    def __init__(self, commands: AqlCommands, owner: Owner) -> None:
        super().__init__(commands, owner)
        self.pm4 = commands.pm4
        self._commands = commands
        # what a wave needs most, of all kernels
        self.scratch_bytes_per_wave = 0
        # their memory must be there at submission
        self.signals: list[Signal] = []
        # whether the next packet with fences waits for all before it; one that runs PM4 waits anyway, and has none
        self._in_order = False

    def dispatch(
        self,
        program: Program | LoadedKernel,
        grid: int | tuple[int, ...],
        block: int | tuple[int, ...],
        args: Sequence[Any] = (),
        *,
        dynamic_lds_bytes: int = 0,
        completion: Signal | None = None,
        order: Order | None = None,
    ) -> int:
        """Start `grid` work-groups of `block` work-items with `args`, as `ComputeStream.dispatch` does. Return the byte
        where these arguments begin among the stream's arguments.

        `completion`: the card subtracts 1 from this signal when the kernel has ended, and stores there when it began
        and ended. `order`: when it starts and whom it sees; by default it runs beside what came before, from the last
        `barrier` on.
        """
        kernel = kernel_of(program)
        grid, block = triple(grid, "the grid"), triple(block, "the block")
        key = ("aql", grid, block, dynamic_lds_bytes, self.owner)
        prepared = kernel.prepared.get(key) or self._prepare(kernel, Launch.of(grid, block, dynamic_lds_bytes), key)
        return self._dispatch(kernel, prepared, args, completion, order)

    def dispatch_items(
        self,
        program: Program | LoadedKernel,
        items: int | tuple[int, ...],
        block: int | tuple[int, ...],
        args: Sequence[Any] = (),
        *,
        dynamic_lds_bytes: int = 0,
        completion: Signal | None = None,
        order: Order | None = None,
    ) -> int:
        """Start `items` work-items in groups of `block`. The last group of an axis may hold fewer. All else is as in
        `dispatch`.
        """
        kernel = kernel_of(program)
        items, block = triple(items, "the grid"), triple(block, "the block")
        key = ("aql items", items, block, dynamic_lds_bytes, self.owner)
        prepared = kernel.prepared.get(key) or self._prepare(
            kernel, Launch.of_items(items, block, dynamic_lds_bytes), key
        )
        return self._dispatch(kernel, prepared, args, completion, order)

    def _prepare(self, kernel: LoadedKernel, launch: Launch, key: tuple[Any, ...]) -> _Prepared:
        kernel.check_owner(self.owner)
        launch.check(kernel.kernel)
        if kernel.kernel.descriptor_offset is None:
            raise NotSupported(
                f"{kernel.name} has no kernel descriptor, by which an HSA queue starts it; use a compute queue"
            )
        code = kernel.kernel
        prepared = _Prepared(kernel_packet(kernel, launch), launch, code.scratch_bytes_per_item * code.wave_size)
        kernel.keep_prepared(key, prepared)
        return prepared

    def _dispatch(
        self,
        kernel: LoadedKernel,
        prepared: _Prepared,
        args: Sequence[Any],
        completion: Signal | None,
        order: Order | None,
    ) -> int:
        signal_va = self._handle(completion)
        header = aql.header(aql.PacketType.KERNEL_DISPATCH, self._order(completion) if order is None else order)
        at = kernel.append_args(self.args, args, prepared.launch)
        after = self.around(self, kernel.name) if self.around is not None else None
        if order is None:
            self._in_order = False
        start = self._append(prepared.packet, completion)
        PACK_HEADER(self.body, start, header)
        PACK_ADDRESS(self.body, start + aql.COMPLETION_BYTE, signal_va)
        if len(self.args) > at:
            self.fixups.append((start + aql.KERNARG_BYTE, at))
        if prepared.wave_bytes > self.scratch_bytes_per_wave:
            self.scratch_bytes_per_wave = prepared.wave_bytes
        if after is not None:
            after()
        return at

    def _order(self, completion: Signal | None) -> Order:
        """Return the order of a dispatch: those before it are only waited for behind a barrier, and the host looks at
        the results of one with a signal.
        """
        acquire = Scope.AGENT if self._in_order else Scope.NONE
        return Order(self._in_order, acquire, Scope.AGENT if completion is None else Scope.SYSTEM)

    def barrier(self) -> None:
        """Make later packets wait for all earlier ones and see what they stored."""
        self._in_order = True

    def barrier_and(self, *signals: Signal, completion: Signal | None = None, order: Order | None = None) -> int:
        """Hold later packets until all signals are 0. Five fit one packet; more become several."""
        handles, start = [self._handle(signal) for signal in signals], len(self.body)
        last = max(0, len(handles) - 1) // aql.MAX_DEPENDENCIES * aql.MAX_DEPENDENCIES
        packet = aql.barrier_and(*handles[last:], completion_signal=self._handle(completion), order=self._fenced(order))
        self._in_order &= order is not None
        for at in range(0, last, aql.MAX_DEPENDENCIES):
            self.body += aql.barrier_and(*handles[at : at + aql.MAX_DEPENDENCIES])
        self._append(packet, *signals, completion)
        return start

    def barrier_or(self, *signals: Signal, completion: Signal | None = None, order: Order | None = None) -> int:
        """Hold later packets until one of at most five signals is 0."""
        handles = [self._handle(signal) for signal in signals]
        packet = aql.barrier_or(*handles, completion_signal=self._handle(completion), order=self._fenced(order))
        self._in_order &= order is not None
        return self._append(packet, *signals, completion)

    def barrier_value(
        self,
        signal: Signal,
        condition: Condition,
        value: int,
        *,
        mask: int = -1,
        completion: Signal | None = None,
        order: Order | None = None,
    ) -> int:
        """Hold later packets until a signal's value, masked, compares with `value` as `condition` says."""
        handles = self._handle(signal), self._handle(completion)
        packet = aql.barrier_value(
            handles[0], value, condition, mask=mask, completion_signal=handles[1], order=self._fenced(order)
        )
        self._in_order &= order is not None
        return self._append(packet, signal, completion)

    def _fenced(self, order: Order | None) -> Order:
        """Return the order of a barrier: what comes behind it sees what was stored before the signals changed."""
        return Order(self._in_order, Scope.SYSTEM, Scope.SYSTEM) if order is None else order

    def store(self, gpu_va: int, *dwords: int) -> None:
        """Let the command processor store dwords at `gpu_va` (4-byte aligned) when all before it is complete."""
        self.run_pm4(self._commands.once(self.pm4.write_data(gpu_va, *dwords)))

    def stamp(self, gpu_va: int) -> None:
        """Store the 64-bit reference clock at `gpu_va` (8-byte aligned) when all earlier work has ended."""
        self.run_pm4(self._commands.stamp(gpu_va))

    def run_pm4(self, dwords: Sequence[int]) -> int:
        """Run PM4 packets when all before them is complete: on every die, where several share the queue. They are
        stored beside the kernel arguments.
        """
        memory, data = self.args, to_bytes(dwords)
        memory.extend(bytes(-len(memory) % KERNARG_ALIGN))
        at = len(memory)
        start = self._append(self._commands.run(0, len(data)))
        memory += data
        self.fixups.append((start + aql.IB_ADDRESS_BYTE, at))
        return start

    def append(self, packets: bytes | bytearray) -> int:
        """Add packets from `queues.amd.aql`'s builders. The queue runs them unchanged."""
        aql.check_packets(packets)
        # their waves may have 64 lanes
        most = max(aql.private_segment_sizes(packets), default=0)
        self.scratch_bytes_per_wave = max(self.scratch_bytes_per_wave, most * WAVE64_LANES)
        return self._append(packets)

    def _append(self, packets: bytes | bytearray, *signals: Signal | None) -> int:
        start = len(self.body)
        self.body += packets
        self.signals += [signal for signal in signals if signal is not None]
        return start

    def _handle(self, signal: Signal | None) -> int:
        if signal is None:
            return 0
        try:
            return signal.gpu_va
        except AttributeError:
            raise TypeError(f"a signal is wanted, such as `card.signal` returns, not {signal!r:.80}") from None
