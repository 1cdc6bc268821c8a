"""Packets that control the parser or start a grid: NOP, INDIRECT_BUFFER, COND_EXEC, PRED_EXEC, SET_BASE, DISPATCH_*.

Source: PAL f32_mec_pm4_packets.h, amdgpu gfx_v11_0.c (emit_ib_compute, emit_init_cond_exec), Mesa radv
(DISPATCH_INDIRECT, chaining).
"""

from __future__ import annotations

import struct

from ringup.autogen.amd import pm4
from ringup.errors import Unmodelled
from ringup.silicon.amd.gc.cp.pm4_decode import MASK48, Execute, Packet, Rule, compare, reserved
from ringup.silicon.amd.gc.cp.pm4_parser import Parser

# SET_BASE: index of the base for indirect arguments
DISPATCH_BASE = 1
COND_INDIRECT_COUNT = 12
# Packets that the engine knows and the model lacks. Source: PAL, gfx9_plus_merged_pm4_it_opcodes.h
LACKING = {
    pm4.ATOMIC_GDS: "mg", pm4.DMA_DATA_FILL_MULTI: "mg", pm4.INDIRECT_BUFFER_PASID: "m", pm4.SET_QUEUE_REG: "mg",
    pm4.HDP_FLUSH: "mg", pm4.DISPATCH_DRAW_ACE: "m", pm4.DISPATCH_DRAW_PREAMBLE_ACE: "m", 0x54: "mg", 0x3D: "mg",
    0xA9: "mg", 0xAA: "m", 0xAD: "m",
}  # fmt: skip


def nop(parser: Parser, packet: Packet) -> None:
    """Do nothing."""


def indirect_buffer(parser: Parser, packet: Packet) -> None:
    """Execute an indirect buffer. The longer form chooses one of two by a value in memory."""
    if len(packet.body) == COND_INDIRECT_COUNT + 1:
        _conditional(parser, packet)
        return
    if len(packet.body) != 3:
        raise reserved(f"{packet} has count {len(packet.body) - 1}")
    control = pm4.INDIRECT_BUFFER_CONTROL(packet.body[2])
    if not control.valid and "m" in parser.engines:
        parser.note("VALID is not set: the buffer is not executed")
        return
    _call(parser, packet, 0, control.ib_size, control.vmid, bool(control.chain))


def _call(parser: Parser, packet: Packet, place: int, size: int, vmid: int, chain: bool) -> None:
    if packet.body[place] & 3:
        parser.note("indirect buffer at {:#x} is not dword aligned: low bits are ignored", packet.body[place])
    if not size:
        parser.note("an empty indirect buffer: UNKNOWN what the CP does; skipped here")
        return
    parser.call(packet.address(place), size, vmid, chain)


def _conditional(parser: Parser, packet: Packet) -> None:
    body = packet.body
    value, mask = parser.read_number(packet.address(1, 8), 8), body[3] | body[4] << 32
    if compare(body[0] >> 8 & 7, value & mask, body[5] | body[6] << 32):
        _call(parser, packet, 7, body[9] & 0xFFFFF, parser.vmid, bool(parser.buffers))
    elif body[0] & 3 == 2:
        _call(parser, packet, 10, body[12] & 0xFFFFF, parser.vmid, bool(parser.buffers))


def cond_exec(parser: Parser, packet: Packet) -> None:
    """Skip the next dwords if the dword in memory is zero."""
    if not parser.read_number(packet.address(0)):
        parser.skipped = packet.body[3] & 0x3FFF


def pred_exec(parser: Parser, packet: Packet) -> None:
    """Skip the next dwords if they are for other devices: for other cores of the partition, where there are several."""
    control = pm4.PRED_EXEC_CONTROL(packet.body[0])
    if not control.device_select >> parser.cp.number & 1:
        parser.skipped = control.exec_count


def set_base(parser: Parser, packet: Packet) -> None:
    """Store a base address for packets that use offsets from it."""
    parser.bases[packet.body[0] & 15] = packet.address(1, 8)


def dispatch_direct(parser: Parser, packet: Packet) -> None:
    """Start a grid with the given dimensions."""
    x, y, z, initiator = packet.body
    parser.queue.dispatch((x, y, z), initiator)


def dispatch_indirect(parser: Parser, packet: Packet) -> None:
    """Start a grid whose dimensions are in memory: at an address (MEC), or at an offset from SET_BASE (graphics)."""
    if "m" in parser.engines:
        if len(packet.body) != 3:
            raise reserved(f"{packet} has count {len(packet.body) - 1}, it must be 2")
        gpu_va, initiator = packet.address(0), packet.body[2]
    else:
        if len(packet.body) != 2:
            raise reserved(f"{packet} has count {len(packet.body) - 1}, it must be 1")
        gpu_va, initiator = parser.bases.get(DISPATCH_BASE, 0) + packet.body[0] & MASK48 & -4, packet.body[1]
    x, y, z = struct.unpack("<3I", parser.read(gpu_va, 12))
    parser.queue.dispatch((x, y, z), initiator)


def lacking() -> Execute:
    """Return the executor of a packet that the model lacks."""

    def execute(parser: Parser, packet: Packet) -> None:
        raise Unmodelled(f"packet {packet}")

    return execute


RULES: dict[int, Rule] = {
    pm4.NOP: Rule(nop, (0, 0x3FFF), "mg"),
    pm4.INDIRECT_BUFFER: Rule(indirect_buffer, (2, COND_INDIRECT_COUNT), "mg"),
    pm4.COND_EXEC: Rule(cond_exec, (3, 3), "mg"),
    pm4.PRED_EXEC: Rule(pred_exec, (0, 0), "mg"),
    pm4.SET_BASE: Rule(set_base, (2, 2), "g"),
    pm4.DISPATCH_DIRECT: Rule(dispatch_direct, (3, 3), "mg"),
    pm4.DISPATCH_INDIRECT: Rule(dispatch_indirect, (1, 2), "mg"),
    pm4.PRIME_UTCL2: Rule(nop, (3, 3), "mg"),  # prefetches into the TLB: no effect that a client could see
    **{opcode: Rule(lacking(), (0, 0x3FFF), engines) for opcode, engines in LACKING.items()},
}
