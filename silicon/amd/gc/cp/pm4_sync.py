"""Packets that order work: WAIT_REG_MEM, ACQUIRE_MEM, RELEASE_MEM, EVENT_WRITE, TIMESTAMP, REWIND.

On a card without caches every engine sees other engines' stores at once: ACQUIRE_MEM and the cache fields of
RELEASE_MEM do nothing. Source: PAL f32_mec_pm4_packets.h, amdgpu nvd.h and gfx_v11_0.c (emit_fence,
emit_reg_write_reg_wait), Mesa pkt3.json.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial

from ringup.autogen.amd import pm4, pm4_events
from ringup.errors import Unmodelled
from ringup.silicon.amd.common import atomics
from ringup.silicon.amd.common.cache_control import Invalidation, from_gcr
from ringup.silicon.amd.common.parts import VmFault
from ringup.silicon.amd.gc.cp.pm4_decode import Packet, Rule, compare, reserved
from ringup.silicon.amd.gc.cp.pm4_memory import REGISTER_MASK
from ringup.silicon.amd.gc.cp.pm4_parser import Parser
from ringup.silicon.amd.gc.cp.queue import Queue

ACQUIRE_US = 0.5
WAIT, WRITE_WAIT_WRITE, WAIT_PREEMPTABLE = 0, 1, 3  # operations
TIMESTAMP_OPCODE = 0xB2  # PAL, IT_TIMESTAMP__GFX11
END_OF_PIPE_EVENTS = {  # event_index 5
    pm4_events.EVENT_TYPE_CACHE_FLUSH_TS,
    pm4_events.EVENT_TYPE_CACHE_FLUSH_AND_INV_TS_EVENT,
    pm4_events.EVENT_TYPE_BOTTOM_OF_PIPE_TS,
    pm4_events.EVENT_TYPE_FLUSH_AND_INV_DB_DATA_TS,
    pm4_events.EVENT_TYPE_FLUSH_AND_INV_CB_DATA_TS,
}
SHADER_DONE_EVENTS = {pm4_events.EVENT_TYPE_CS_DONE, pm4_events.EVENT_TYPE_PS_DONE}  # event_index 6
EVENTS_OF_INDEX = {5: END_OF_PIPE_EVENTS, 6: SHADER_DONE_EVENTS}  # what RELEASE_MEM waits for
INDEX_OF_EVENT = {  # EVENT_WRITE: events that need an event_index other than 0
    pm4_events.EVENT_TYPE_CS_PARTIAL_FLUSH: 4,
    pm4_events.EVENT_TYPE_VS_PARTIAL_FLUSH: 4,
    pm4_events.EVENT_TYPE_PS_PARTIAL_FLUSH: 4,
    pm4_events.EVENT_TYPE_SAMPLE_PIPELINESTAT: 2,
    pm4_events.EVENT_TYPE_PIXEL_PIPE_STAT_CONTROL: 1,  # PAL, pixel_pipe_stat_control_or_dump
    pm4_events.EVENT_TYPE_PIXEL_PIPE_STAT_DUMP: 1,
}
# time stamps use counter 0. Source: Mesa ac_cmdbuf, pws_counter_sel
PWS_COUNTERS = {pm4_events.EVENT_TYPE_PS_DONE: 1, pm4_events.EVENT_TYPE_CS_DONE: 2}
DATA_BYTES = {1: 4, 2: 8, 3: 8, 4: 8}  # data_sel
MEMORY_DESTINATIONS = (0, 1)
INTERRUPT_ALWAYS = (1, 2, 4)  # int_sel
INTERRUPT_COMPARE = {5: 4, 6: 8}  # int_sel: bytes compared
# cached decodings of control dwords: queues send the same ones again and again
WORDS_KEPT = 256


@dataclass(frozen=True, slots=True)
class Event:
    """The first dword of EVENT_WRITE, decoded."""

    type: int
    index: int


@dataclass(frozen=True, slots=True)
class Release:
    """The first two dwords of RELEASE_MEM, decoded."""

    event: Event
    pixel_wait_sync: bool
    data_sel: int
    dst_sel: int
    int_sel: int
    caches: Invalidation


@lru_cache(WORDS_KEPT)
def _event(word: int) -> Event:
    control = pm4.EVENT_WRITE_CONTROL(word)
    return Event(control.event_type, control.event_index)


@lru_cache(WORDS_KEPT)
def _release(first: int, second: int, version: tuple[int, int, int] | None) -> Release:
    select = pm4.RELEASE_MEM_DATA(second)
    if version is not None:
        old = pm4.RELEASE_MEM_OP.at(version)(first)
        event = Event(old.event_type, old.event_index)
        return Release(event, False, select.data_sel, select.dst_sel, select.int_sel, Invalidation())
    op = pm4.RELEASE_MEM_OP(first)
    event = Event(op.event_type, op.event_index)
    return Release(event, bool(op.pws_enable), select.data_sel, select.dst_sel, select.int_sel, from_gcr(op))


def _wait(bits: int) -> Callable[[Parser, Packet], Iterator[float]]:
    size = bits // 8

    def execute(parser: Parser, packet: Packet) -> Iterator[float]:
        control, body = pm4.WAIT_REG_MEM_CONTROL(packet.body[0]), packet.body
        if control.mem_space > 1 or control.operation == 2:
            raise reserved(f"{packet}: space {control.mem_space}, operation {control.operation}")
        if bits == 64:
            reference, mask = body[3] | body[4] << 32, body[5] | body[6] << 32
        else:
            reference, mask = body[3], body[4]
        compare(control.function, 0, 0)
        if control.operation == WRITE_WAIT_WRITE:
            first, second = body[1] & REGISTER_MASK, body[2] & REGISTER_MASK
            parser.store_register(first, reference & 0xFFFF_FFFF)
            # drivers send a whole request here and wait for one bit (gmc_v11_0.c, emit_flush_gpu_tlb)
            wanted = reference & mask
            yield from parser.poll(
                lambda: compare(control.function, parser.read_register(second) & mask, wanted),
                lambda: _register(parser, second, control.function, wanted, mask),
                may_stop=False,
            )
        elif control.mem_space:
            gpu_va = packet.address(1, size)
            if body[1] & size - 1:
                parser.note("address {:#x} is not aligned to {} bytes", body[1], size)
            yield from parser.poll(
                lambda: compare(control.function, parser.read_number(gpu_va, size) & mask, reference),
                lambda: _memory(parser, gpu_va, size, control.function, reference, mask),
            )
        else:
            dword = body[1] & REGISTER_MASK
            yield from parser.poll(
                lambda: compare(control.function, parser.read_register(dword) & mask, reference),
                lambda: _register(parser, dword, control.function, reference, mask),
            )

    return execute


def _memory(parser: Parser, gpu_va: int, size: int, function: int, reference: int, mask: int) -> str:
    try:
        seen = f"holds {parser.read_number(gpu_va, size):#x}"
    except VmFault as fault:
        seen = f"cannot be read ({fault.reason})"
    return f"memory at {gpu_va:#x} {seen}, {atomics.awaited(function, reference, mask, size)}"


def _register(parser: Parser, dword: int, function: int, reference: int, mask: int) -> str:
    name, seen = parser.cp.board.space.name(dword * 4), parser.read_register(dword)
    return f"register {name} reads {seen:#x}, {atomics.awaited(function, reference, mask, 4)}"


def acquire_mem(parser: Parser, packet: Packet) -> Iterator[float]:
    """Invalidate and write back caches. With PWS, first wait for an earlier release, without memory."""
    if packet.body[6] >> 19:
        raise reserved(f"{packet}: GCR_CNTL {packet.body[6]:#x}")
    if pm4.ACQUIRE_MEM_POLL_INTERVAL(packet.body[5]).pws_ena:
        control = pm4.ACQUIRE_MEM_PWS_2(packet.body[0])
        if "g" not in parser.engines or not control.pws_ena2 or control.pws_counter_sel > 2:
            raise reserved(f"{packet}: pixel wait sync {packet.body[0]:#x}")
        counter = control.pws_counter_sel
        wanted = parser.released[counter] - control.pws_count  # 0: the last release
        yield from parser.poll(
            lambda: parser.completed[counter] >= wanted,
            lambda: f"release {wanted} of counter {counter}; {parser.completed[counter]} have completed",
            may_stop=False,
        )
    if (caches := parser.cp.board.caches) is not None:
        bits = pm4.ACQUIRE_MEM_GCR_CNTL(packet.body[6])
        caches.invalidate(from_gcr(bits, instructions=bool(bits.gli_inv)))
    yield ACQUIRE_US


def acquire_mem_9(parser: Parser, packet: Packet) -> Iterator[float]:
    """Invalidate and write back caches. With caches the model has none of this generation's operations."""
    if parser.cp.board.caches is not None:
        raise Unmodelled(f"{packet}: cache operations of GFX9")
    yield ACQUIRE_US


def release_mem(parser: Parser, packet: Packet, version: tuple[int, int, int] | None = None) -> None:
    """Store data and raise an interrupt once all earlier work is done; the parser continues meanwhile. `version`: of
    the packet's form, where it is not the one since RDNA3.
    """
    asked = _release(packet.body[0], packet.body[1], version)
    event = asked.event
    if asked.pixel_wait_sync and "g" not in parser.engines:
        raise reserved(f"{packet}: pixel wait sync")
    events = EVENTS_OF_INDEX.get(event.index)
    if events is None:
        raise reserved(f"{packet}: event_index {event.index}")
    if event.type not in events:
        parser.note("event {} with index {} never completes: nothing is stored", event.type, event.index)
        return
    if asked.data_sel and asked.data_sel not in DATA_BYTES:
        raise Unmodelled(f"{packet}: data_sel {asked.data_sel}")
    if asked.data_sel and asked.dst_sel not in MEMORY_DESTINATIONS:
        raise Unmodelled(f"{packet}: dst_sel {asked.dst_sel}")
    if asked.int_sel == 7:
        raise reserved(f"{packet}: int_sel 7")
    size = DATA_BYTES.get(asked.data_sel, 0)
    if size and packet.body[2] & size - 1:
        parser.note("address {:#x} is not aligned to {} bytes: low bits are ignored", packet.body[2], size)
    parser.queue.after_work(_end_of_pipe(parser, packet, asked, parser.vmid))
    if asked.pixel_wait_sync:
        counter = PWS_COUNTERS.get(event.type, 0)
        parser.released[counter] += 1
        parser.queue.after_work(lambda queue: parser.complete(counter))


def _end_of_pipe(parser: Parser, packet: Packet, asked: Release, vmid: int) -> Callable[[Queue], None]:
    size, data = DATA_BYTES.get(asked.data_sel, 0), packet.body[4] | packet.body[5] << 32
    gpu_va = packet.address(2, max(size, 4))

    def finish(queue: Queue) -> None:
        if (caches := parser.cp.board.caches) is not None:
            caches.invalidate(asked.caches)
        # a process's queue that was disconnected meanwhile may have come back in another VMID
        where = queue.hqd.vmid or vmid
        if size:
            value = parser.cp.grbm.ticks() if asked.data_sel >= 3 else data & (1 << 8 * size) - 1
            parser.cp.hub.write(where, gpu_va, value.to_bytes(size, "little"), parser.client)
        wanted = asked.int_sel in INTERRUPT_ALWAYS
        if compared := INTERRUPT_COMPARE.get(asked.int_sel):
            seen = int.from_bytes(parser.cp.hub.read(where, gpu_va, compared, parser.client), "little")
            wanted = seen == data & (1 << 8 * compared) - 1
        if wanted:
            parser.cp.end_of_pipe(queue, where, packet.body[6])

    return finish


def event_write(parser: Parser, packet: Packet) -> Iterator[float]:
    """Send an event down the pipe. CS_PARTIAL_FLUSH waits until all waves of the queue have ended."""
    event = _event(packet.body[0])
    index = INDEX_OF_EVENT.get(event.type, 0)
    if event.index != index:
        parser.note("event {} needs event_index {}, not {}: it has no effect", event.type, index, event.index)
        return
    if event.type == pm4_events.EVENT_TYPE_CS_PARTIAL_FLUSH:
        yield from parser.poll(lambda: not parser.queue.grids, lambda: "the waves of the queue must end")
    elif index == 2:
        raise Unmodelled(f"{packet}: pipeline statistics")
    elif event.type in END_OF_PIPE_EVENTS | SHADER_DONE_EVENTS:
        parser.note("event {} needs an address, which RELEASE_MEM has", event.type)


def timestamp(parser: Parser, packet: Packet) -> None:
    """Store the clock now (top of pipe) and when earlier work is done (bottom of pipe)."""
    vmid, bottom, top = parser.vmid, packet.address(1, 8), packet.address(3, 8)
    if packet.body[0] & 2:
        parser.write_number(top, parser.cp.grbm.ticks(), 8)
    if packet.body[0] & 1:
        parser.queue.after_work(
            lambda queue: parser.cp.hub.write(
                queue.hqd.vmid or vmid, bottom, parser.cp.grbm.ticks().to_bytes(8, "little"), parser.client
            )
        )


def rewind(parser: Parser, packet: Packet) -> Iterator[float]:
    """Wait until the packet's own VALID bit is set in memory."""
    yield from parser.poll(
        lambda: bool(parser.read_number(packet.gpu_va + 4) >> 31),
        lambda: f"bit 31 at {packet.gpu_va + 4:#x} must be set",
    )


RULES: dict[int, Rule] = {
    pm4.WAIT_REG_MEM: Rule(_wait(32), (5, 5), "mg"),
    pm4.WAIT_REG_MEM64: Rule(_wait(64), (7, 7), "mg"),
    pm4.ACQUIRE_MEM: Rule(acquire_mem, (6, 6), "mg"),
    pm4.RELEASE_MEM: Rule(release_mem, (6, 6), "mg"),
    pm4.EVENT_WRITE: Rule(event_write, (0, 2), "mg"),
    pm4.REWIND: Rule(rewind, (0, 0), "mg"),
    TIMESTAMP_OPCODE: Rule(timestamp, (4, 4), "mg"),
}
# GFX9: cache operations by CP_COHER_CNTL; no pixel wait sync
RULES_9: dict[int, Rule] = {
    pm4.ACQUIRE_MEM: Rule(acquire_mem_9, (5, 5), "m"),
    pm4.RELEASE_MEM: Rule(partial(release_mem, version=(9, 4, 3)), (6, 6), "m"),
}
