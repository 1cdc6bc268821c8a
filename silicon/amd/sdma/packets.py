"""The execution of SDMA packets. Layouts: sdma_v6_0_0_pkt_open.h; meaning: sdma_v6_0.c, sdma_v7_0.c,
amdgpu_vm_sdma.c, Mesa's users of the engine.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Any

from ringup.autogen.amd import sdma_packets as pkt
from ringup.autogen.amd.pm4 import ACQUIRE_MEM_GCR_CNTL
from ringup.errors import Unmodelled
from ringup.silicon.amd.common import atomics
from ringup.silicon.amd.common.cache_control import from_gcr
from ringup.silicon.amd.common.parts import Board, Hub
from ringup.silicon.amd.sdma import copies as sdma_copy
from ringup.silicon.common.cells import block_map

if TYPE_CHECKING:
    from ringup.silicon.amd.sdma.engine import Queue

# virtual time of a packet that only computes or stores a dword
PACKET_US = 0.5
# of the global timestamp and the engine's own
CLOCK_HZ = 100_000_000
# GUESS: one unit of a poll's interval, a cycle of the 100 MHz clock
POLL_INTERVAL_NS = 10
# retry count of a poll that never gives up: sdma_v6_0.c
POLL_FOREVER = 0xFFF
# sub-operation of GCR_REQ in user queues. Source: ROCr sdma_registers.h, SDMA_SUBOP_USER_GCR
USER_GCR = 1
NO_ENGINE = 31  # in VM_INVALIDATION
Work = Generator[float, None, None]


class BadPacket(Exception):
    """The engine cannot execute a packet: its queue stops."""


class Engine(ABC):
    """The engine, as its packets use it."""

    client: str
    name: str
    index: int

    def __init__(self, board: Board, hub: Hub, version: tuple[int, int, int], packets: Packets) -> None:
        self.board, self.hub, self.version, self.packets = board, hub, version, packets
        self.timestamp_offset = 0

    @abstractmethod
    def fetch(self, queue: Queue, count: int) -> Generator[float, None, list[int]]:
        """Take the next dwords of the current buffer."""

    @abstractmethod
    def call(self, queue: Queue, vmid: int, base: int, size_dwords: int) -> None:
        """Continue in an indirect buffer."""

    @abstractmethod
    def vmid(self, queue: Queue) -> int:
        """Return the current VMID."""

    @abstractmethod
    def may_write_registers(self, queue: Queue) -> bool:
        """Whether the current buffer is privileged."""

    @abstractmethod
    def write_refused(self, queue: Queue) -> None:
        """Report a refused register write to the host."""

    @abstractmethod
    def trap(self, queue: Queue, context: int) -> None:
        """Raise an interrupt."""

    @abstractmethod
    def poll_timeout(self, queue: Queue) -> None:
        """Report to the host that a poll gave up."""

    def read(self, queue: Queue, gpu_va: int, size_bytes: int) -> bytes:
        """Read memory of the current VMID."""
        return self.hub.read(self.vmid(queue), gpu_va, size_bytes, self.client)

    def write(self, queue: Queue, gpu_va: int, data: bytes) -> None:
        """Write memory of the current VMID."""
        self.hub.write(self.vmid(queue), gpu_va, data, self.client)


def execute(engine: Engine, queue: Queue) -> Work:
    """Fetch and execute one packet."""
    (header,) = yield from engine.fetch(queue, 1)
    op, sub_op = header & 0xFF, header >> 8 & 0xFF
    row = engine.packets.get((op, sub_op)) or engine.packets.get((op, None))
    if row is None:
        if (op, sub_op) in UNMODELLED:
            raise Unmodelled(f"{engine.name}: SDMA packet {UNMODELLED[op, sub_op]} ({header:#010x})")
        raise BadPacket(f"header {header:#010x}: there is no packet {op} sub-operation {sub_op}")
    layout, handler = row
    size = layout.place(engine.version)[0] if layout is not pkt.SDMA_PKT_NOP else 1
    # its first data dword is counted as a field
    payload = 1 if layout is pkt.SDMA_PKT_WRITE_UNTILED else 0
    rest = yield from engine.fetch(queue, size - 1 - payload)
    value = header
    for number, dword in enumerate(rest, 1):
        value |= dword << 32 * number
    packet = layout.at(engine.version)(value)
    if getattr(packet, "tmz", 0) or getattr(packet, "encrypt", 0):
        raise Unmodelled(f"{engine.name}: a packet on protected memory ({header:#010x})")
    engine.board.log.note(engine.name, "packet", "queue {}: {!r}", queue.number, packet)
    yield from handler(engine, queue, packet)


def _address(packet: Any, name: str) -> int:
    low, high = getattr(packet, f"{name}_31_0"), getattr(packet, f"{name}_63_32")
    return int(low | high << 32)


def _aligned(packet: Any, name: str, to: int) -> int:
    address = _address(packet, name)
    if address % to:
        raise BadPacket(f"{type(packet).__name__}: {name} {address:#x} is not a multiple of {to}")
    return address


def _nop(engine: Engine, queue: Queue, packet: Any) -> Work:
    if packet.count:
        yield from engine.fetch(queue, packet.count)
    yield 0.01


def _write(engine: Engine, queue: Queue, packet: Any) -> Work:
    address = _aligned(packet, "dst_addr", 4)
    left = packet.count + 1
    while left:
        part = yield from engine.fetch(queue, min(left, 64))
        data = b"".join(dword.to_bytes(4, "little") for dword in part)
        engine.write(queue, address, sdma_copy.swapped(data, packet.sw))
        address += len(data)
        left -= len(part)
    yield PACKET_US


def _fence(engine: Engine, queue: Queue, packet: Any) -> Work:
    address = _aligned(packet, "addr", 4)
    if not engine.board.faults.take("sdma_stuck_fence"):
        engine.write(queue, address, packet.data.to_bytes(4, "little"))
    yield PACKET_US


def _trap(engine: Engine, queue: Queue, packet: Any) -> Work:
    engine.trap(queue, packet.int_context)
    yield PACKET_US


def _indirect(engine: Engine, queue: Queue, packet: Any) -> Work:
    base = _aligned(packet, "ib_base", 32)
    if not packet.ib_size:
        raise BadPacket(f"an indirect buffer of no dwords at {base:#x}")
    engine.call(queue, packet.vmid, base, packet.ib_size)
    yield PACKET_US


def _poll(engine: Engine, queue: Queue, packet: Any) -> Work:
    """Poll memory or a register. The flush form writes the reference to one register and polls another."""
    compare = atomics.COMPARE.get(packet.func)
    if compare is None:
        raise BadPacket(f"POLL_REGMEM: there is no function {packet.func}")
    board = engine.board
    if packet.hdp_flush:
        board.space.write(packet.addr_63_32, packet.value)
    tries = 0
    while True:
        if packet.mem_poll and not packet.hdp_flush:
            seen = int.from_bytes(engine.read(queue, _aligned(packet, "addr", 4), 4), "little")
        else:
            seen = board.space.read(packet.addr_31_0)
        queue.awaited = None
        if compare(seen & packet.mask, packet.value):
            break
        tries += 1
        if packet.retry_count != POLL_FOREVER and tries > packet.retry_count:
            board.log.note(engine.name, "violation", "a poll gave up: {:#x}, wanted {:#x}", seen, packet.value)
            engine.poll_timeout(queue)
            break
        queue.awaited = partial(_awaited, board, packet, seen)
        yield max(0.1, packet.interval * POLL_INTERVAL_NS / 1_000)
    yield PACKET_US


def _awaited(board: Board, packet: Any, seen: int) -> str:
    """Describe what a poll waits for."""
    place = f"memory at {_address(packet, 'addr'):#x} holds"
    if packet.hdp_flush or not packet.mem_poll:
        place = f"register {board.space.name(packet.addr_31_0)} reads"
    return f"POLL_REGMEM: {place} {seen:#x}, {atomics.awaited(packet.func, packet.value, packet.mask, 4)}"


def _invalidation(engine: Engine, queue: Queue, packet: Any) -> Work:
    """Invalidate translations of VM hubs: write range and request to an invalidation engine of each hub, then wait for
    its acknowledge.

    Engine number 31 skips a hub. Source: sdma_v6_0.c, emit_vm_flush.
    """
    board = engine.board
    for block, prefix, number in (("gc", "GC", packet.gfx_eng_id), ("mmhub", "MM", packet.mm_eng_id)):
        if number == NO_ENGINE:
            continue
        places, name = block_map(board.chip, block, 0).addresses, f"{prefix}VM_INVALIDATE_ENG{number}"
        if f"{name}_REQ" not in places:
            raise BadPacket(f"VM_INVALIDATION: {block} has no invalidation engine {number}")
        board.space.write(places[f"{name}_ADDR_RANGE_LO32"], packet.addressrangelo)
        board.space.write(places[f"{name}_ADDR_RANGE_HI32"], packet.addressrangehi)
        board.space.write(places[f"{name}_REQ"], packet.invalidatereq)
        while board.space.read(places[f"{name}_ACK"]) & packet.invalidateack != packet.invalidateack:
            yield PACKET_US
    yield PACKET_US


def _condition(engine: Engine, queue: Queue, packet: Any) -> Work:
    seen = int.from_bytes(engine.read(queue, _aligned(packet, "addr", 4), 4), "little")
    if seen != packet.reference:
        yield from _skip(engine, queue, packet.exec_count)
    yield PACKET_US


def _pre_execute(engine: Engine, queue: Queue, packet: Any) -> Work:
    # this card is device 0 of its group
    if not packet.dev_sel & 1:
        yield from _skip(engine, queue, packet.exec_count)
    yield PACKET_US


def _skip(engine: Engine, queue: Queue, count: int) -> Work:
    while count:
        part = yield from engine.fetch(queue, min(count, 64))
        count -= len(part)


def _atomic(engine: Engine, queue: Queue, packet: Any) -> Work:
    known = atomics.describe(packet.atomic_op)
    if known is None:
        raise BadPacket(f"ATOMIC: there is no operation {packet.atomic_op:#x}")
    operation, size, _ = known
    mask = (1 << size * 8) - 1
    address = _aligned(packet, "addr", size)
    source = (packet.src_data_31_0 | packet.src_data_63_32 << 32) & mask
    wanted = (packet.cmp_data_31_0 | packet.cmp_data_63_32 << 32) & mask
    while True:
        memory = int.from_bytes(engine.read(queue, address, size), "little")
        engine.write(queue, address, operation(memory, source, wanted, mask).to_bytes(size, "little"))
        if not packet.loop or memory == wanted:
            break
        yield max(0.1, packet.loop_interval * POLL_INTERVAL_NS / 1_000)
    yield PACKET_US


def _timestamp_set(engine: Engine, queue: Queue, packet: Any) -> Work:
    engine.timestamp_offset = _address(packet, "init_data") - engine.board.clock.ticks(CLOCK_HZ)
    yield PACKET_US


def _timestamp_get(engine: Engine, queue: Queue, packet: Any) -> Work:
    offset = engine.timestamp_offset if packet.sub_op == pkt.SDMA_SUBOP_TIMESTAMP_GET else 0
    address = packet.write_addr_31_3 << 3 | packet.write_addr_63_32 << 32
    ticks = engine.board.clock.ticks(CLOCK_HZ) + offset & 0xFFFF_FFFF_FFFF_FFFF
    engine.write(queue, address, ticks.to_bytes(8, "little"))
    yield PACKET_US


def _register_write(engine: Engine, queue: Queue, packet: Any) -> Work:
    """Write a register; in an unprivileged buffer, report it to the host instead.

    Source: sdma_v4_0.c, process_srbm_write_irq; irqsrcs_gfx_11_0_0.h, "SRBM write Protection". GUESS: the queue
    continues. UNKNOWN: whether VM_INVALIDATION and POLL_REGMEM, which also access registers, are refused too; here they
    are not.
    """
    address, space = packet.addr * 4, engine.board.space
    if not _may_write(engine, queue, address):
        pass
    elif packet.byte_en == 0xF:
        space.write(address, packet.data)
    elif packet.byte_en:
        mask = sum(0xFF << 8 * number for number in range(4) if packet.byte_en >> number & 1)
        space.write(address, space.read(address) & ~mask | packet.data & mask)
    yield PACKET_US


def _may_write(engine: Engine, queue: Queue, address: int) -> bool:
    """Return whether the buffer may write a register; report it to the host if not."""
    if engine.may_write_registers(queue):
        return True
    form = "queue {}: SRBM_WRITE of {:#x} is not privileged and is skipped"
    engine.board.log.note(engine.name, "violation", form, queue.number, address)
    engine.write_refused(queue)
    return False


def _register_write_7(engine: Engine, queue: Queue, packet: Any) -> Work:
    """Write a register: since 7.0 the address counts bytes, and there are no byte enables. Source: sdma_v7_0.c,
    emit_wreg.
    """
    address = int(packet) >> 32 & 0xFFFF_FFFF
    if address % 4:
        raise BadPacket(f"a register write to byte {address:#x}")
    if _may_write(engine, queue, address):
        engine.board.space.write(address, packet.data)
    yield PACKET_US


def _linear_7(engine: Engine, queue: Queue, packet: Any) -> Work:
    """Copy; since 7.0 the header's CPV says that a dword of compression settings follows. Source: sdma_v7_0.c,
    emit_copy_buffer.
    """
    if packet.cpv:
        (compression,) = yield from engine.fetch(queue, 1)
        if compression:
            raise Unmodelled(f"{engine.name}: a copy of compressed memory ({packet!r}, {compression:#x})")
    yield from sdma_copy.linear(engine, queue, packet)


def _cache(engine: Engine, queue: Queue, packet: Any) -> Work:
    if (caches := engine.board.caches) is not None:
        bits = ACQUIRE_MEM_GCR_CNTL(packet.gcr_control_15_0 | packet.gcr_control_18_16 << 16)
        caches.invalidate(from_gcr(bits, instructions=bool(bits.gli_inv)))
    yield PACKET_US


Handler = Callable[[Engine, "Queue", Any], Work]
Packets = dict[tuple[int, int | None], tuple[Any, Handler]]
PACKETS: Packets = {
    (pkt.SDMA_OP_NOP, None): (pkt.SDMA_PKT_NOP, _nop),
    (pkt.SDMA_OP_WRITE, pkt.SDMA_SUBOP_WRITE_LINEAR): (pkt.SDMA_PKT_WRITE_UNTILED, _write),
    (pkt.SDMA_OP_FENCE, 0): (pkt.SDMA_PKT_FENCE, _fence),
    (pkt.SDMA_OP_TRAP, 0): (pkt.SDMA_PKT_TRAP, _trap),
    (pkt.SDMA_OP_INDIRECT, 0): (pkt.SDMA_PKT_INDIRECT, _indirect),
    (pkt.SDMA_OP_POLL_REGMEM, 0): (pkt.SDMA_PKT_POLL_REGMEM, _poll),
    (pkt.SDMA_OP_POLL_REGMEM, pkt.SDMA_SUBOP_VM_INVALIDATION): (pkt.SDMA_PKT_VM_INVALIDATION, _invalidation),
    (pkt.SDMA_OP_COND_EXE, 0): (pkt.SDMA_PKT_COND_EXE, _condition),
    (pkt.SDMA_OP_PRE_EXE, 0): (pkt.SDMA_PKT_PRE_EXE, _pre_execute),
    (pkt.SDMA_OP_ATOMIC, None): (pkt.SDMA_PKT_ATOMIC, _atomic),
    (pkt.SDMA_OP_TIMESTAMP, pkt.SDMA_SUBOP_TIMESTAMP_SET): (pkt.SDMA_PKT_TIMESTAMP_SET, _timestamp_set),
    (pkt.SDMA_OP_TIMESTAMP, pkt.SDMA_SUBOP_TIMESTAMP_GET): (pkt.SDMA_PKT_TIMESTAMP_GET, _timestamp_get),
    (pkt.SDMA_OP_TIMESTAMP, pkt.SDMA_SUBOP_TIMESTAMP_GET_GLOBAL): (pkt.SDMA_PKT_TIMESTAMP_GET_GLOBAL, _timestamp_get),
    (pkt.SDMA_OP_SRBM_WRITE, 0): (pkt.SDMA_PKT_SRBM_WRITE, _register_write),
    (pkt.SDMA_OP_GCR_REQ, 0): (pkt.SDMA_PKT_GCR_REQ, _cache),
    (pkt.SDMA_OP_GCR_REQ, USER_GCR): (pkt.SDMA_PKT_GCR_REQ, _cache),
    (pkt.SDMA_OP_COPY, pkt.SDMA_SUBOP_COPY_LINEAR): (pkt.SDMA_PKT_COPY_LINEAR, sdma_copy.linear),
    (pkt.SDMA_OP_COPY, pkt.SDMA_SUBOP_COPY_LINEAR_SUB_WIND): (pkt.SDMA_PKT_COPY_LINEAR_SUBWIN, sdma_copy.window),
    (pkt.SDMA_OP_CONST_FILL, 0): (pkt.SDMA_PKT_CONSTANT_FILL, sdma_copy.fill),
    (pkt.SDMA_OP_PTEPDE, pkt.SDMA_SUBOP_PTEPDE_GEN): (pkt.SDMA_PKT_WRITE_INCR, sdma_copy.generate),
}
# before 6.0 caches and hubs are invalidated by register only
PACKETS_4: Packets = {
    key: row for key, row in PACKETS.items() if row[0] not in (pkt.SDMA_PKT_VM_INVALIDATION, pkt.SDMA_PKT_GCR_REQ)
}
PACKETS_7: Packets = PACKETS | {
    (pkt.SDMA_OP_SRBM_WRITE, 0): (pkt.SDMA_PKT_SRBM_WRITE, _register_write_7),
    (pkt.SDMA_OP_COPY, pkt.SDMA_SUBOP_COPY_LINEAR): (pkt.SDMA_PKT_COPY_LINEAR, _linear_7),
    (pkt.SDMA_OP_COPY, pkt.SDMA_SUBOP_COPY_LINEAR_SUB_WIND): (pkt.SDMA_PKT_COPY_LINEAR_SUBWIN, sdma_copy.window_7),
}
UNMODELLED = {
    (pkt.SDMA_OP_COPY, number): f"COPY sub-operation {number} (tiled, physical or dirty-page copies)"
    for number in (1, 3, 5, 6, 7, 8, 16, 17, 20, 21, 22, 36)
} | {
    (pkt.SDMA_OP_WRITE, 1): "WRITE_TILED", (pkt.SDMA_OP_WRITE, 17): "WRITE_TILED_BC", (pkt.SDMA_OP_SEM, 0): "SEM",
    (pkt.SDMA_OP_SEM, 1): "MEM_INCR", (pkt.SDMA_OP_POLL_REGMEM, 1): "POLL_REG_WRITE_MEM",
    (pkt.SDMA_OP_POLL_REGMEM, 2): "POLL_DBIT_WRITE_MEM", (pkt.SDMA_OP_POLL_REGMEM, 3): "POLL_MEM_VERIFY",
    (pkt.SDMA_OP_CONST_FILL, 1): "DATA_FILL_MULTI", (pkt.SDMA_OP_PTEPDE, 1): "PTEPDE_COPY", (pkt.SDMA_OP_PTEPDE, 2): "PTEPDE_RMW",
    (pkt.SDMA_OP_PTEPDE, 3): "PTEPDE_COPY_BACKWARDS", (pkt.SDMA_OP_GPUVM_INV, 0): "GPUVM_INV", (pkt.SDMA_OP_GPUVM_INV, 4): "GPUVM_INV",
}  # fmt: skip
