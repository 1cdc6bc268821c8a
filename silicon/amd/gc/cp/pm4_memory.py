"""Packets that move data: WRITE_DATA, COPY_DATA, DMA_DATA, ATOMIC_MEM, COND_WRITE.

Source: PAL f32_mec_pm4_packets.h (selectors), navi10_enum.h (TC_OP numbers of atomics), Mesa ac_cmdbuf, amdgpu nvd.h.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Iterator

from ringup.autogen.amd import pm4
from ringup.errors import Unmodelled
from ringup.silicon.amd.gc.cp.pm4_decode import Packet, Rule, compare, reserved
from ringup.silicon.amd.gc.cp.pm4_parser import Parser

REGISTER, SYNC_MEMORY, L2, GDS, PERFCOUNTERS, MEMORY, REGISTER_DC = 0, 1, 2, 3, 4, 5, 6  # destinations
IMMEDIATE, ATOMIC_RETURN, GPU_CLOCK, SYSTEM_CLOCK = 5, 6, 9, 10  # more sources of COPY_DATA
REGISTER_MASK = 0x3FFFF
DMA_CHUNK_BYTES = 1 << 16
# virtual time of a copy, chosen for the model
DMA_BYTES_PER_US = 40_000


def write_data(parser: Parser, packet: Packet) -> None:
    """Store the dwords that follow the address."""
    control = pm4.WRITE_DATA_CONTROL(packet.body[0])
    values = packet.body[3:]
    if control.dst_sel in (REGISTER, REGISTER_DC):
        first = packet.body[1] & REGISTER_MASK
        for number, value in enumerate(values):
            parser.write_register(first if control.wr_one_addr else first + number, value)
        return
    if control.dst_sel not in (SYNC_MEMORY, L2, MEMORY):
        raise _no_place(packet, "destination", control.dst_sel)
    gpu_va = _aligned(parser, packet, 1, 4)
    if control.wr_one_addr:
        for value in values:
            parser.write_number(gpu_va, value)
    else:
        parser.write(gpu_va, struct.pack(f"<{len(values)}I", *values))


def copy_data(parser: Parser, packet: Packet) -> None:
    """Copy 32 or 64 bits between memory, registers, clocks and the packet."""
    control = pm4.COPY_DATA_CONTROL(packet.body[0])
    size = 8 if control.count_sel else 4
    value = _source(parser, packet, control.src_sel, size)
    if control.dst_sel in (REGISTER, PERFCOUNTERS, REGISTER_DC):
        dword = packet.body[3] & REGISTER_MASK
        parser.write_register(dword, value & 0xFFFF_FFFF)
        if size == 8:
            parser.write_register(dword + 1, value >> 32)
    elif control.dst_sel in (SYNC_MEMORY, L2, MEMORY):
        parser.write_number(_aligned(parser, packet, 3, size), value, size)
    else:
        raise _no_place(packet, "destination", control.dst_sel)


def _source(parser: Parser, packet: Packet, select: int, size: int) -> int:
    if select in (REGISTER, PERFCOUNTERS):
        dword = packet.body[1] & REGISTER_MASK
        value = parser.read_register(dword)
        return value | parser.read_register(dword + 1) << 32 if size == 8 else value
    if select in (SYNC_MEMORY, L2):
        return parser.read_number(_aligned(parser, packet, 1, size), size)
    if select == IMMEDIATE:
        return packet.body[1] | packet.body[2] << 32 if size == 8 else packet.body[1]
    if select == ATOMIC_RETURN:
        return parser.atomic_return
    if select in (GPU_CLOCK, SYSTEM_CLOCK):
        return parser.cp.grbm.ticks()
    raise _no_place(packet, "source", select)


def _no_place(packet: Packet, what: str, select: int) -> Exception:
    """Return the error for a selector: the model lacks GDS, the others are reserved."""
    if select in (GDS, 7, 8):
        return Unmodelled(f"{packet}: GDS as {what}")
    return reserved(f"{packet}: {what} {select}")


def _aligned(parser: Parser, packet: Packet, place: int, size: int) -> int:
    """Return an address with its low bits cleared, as hardware does; log an address that has them set."""
    if packet.body[place] & size - 1:
        parser.note("address {:#x} is not aligned to {} bytes: low bits are ignored", packet.body[place], size)
    return packet.address(place, size)


def dma_data(parser: Parser, packet: Packet) -> Iterator[float]:
    """Copy or fill memory. The model's parser waits for the end whether or not CP_SYNC is set."""
    control, command = pm4.DMA_DATA_CONTROL(packet.body[0]), pm4.DMA_DATA_COMMAND(packet.body[5])
    size = command.byte_count
    if control.dst_sel == 1 or control.src_sel == 1:
        raise Unmodelled(f"{packet}: GDS")
    if command.sas or command.das or command.saic or command.daic:
        raise Unmodelled(f"{packet}: registers or a fixed address as source or destination of a DMA")
    source, target = packet.address(1, 1), packet.address(3, 1)
    if control.src_sel == 2 and (size % 4 or target % 4):
        parser.note("a fill of {} bytes at {:#x} is not of dwords", size, target)
    for start in range(0, size, DMA_CHUNK_BYTES):
        count = min(DMA_CHUNK_BYTES, size - start)
        filled = control.src_sel == 2
        data = struct.pack("<I", packet.body[1]) * (count // 4) if filled else parser.read(source + start, count)
        # 2: no destination, a prefetch into L2
        if control.dst_sel != 2:
            parser.write(target + start, data)
        yield count / DMA_BYTES_PER_US


# --- atomics ----------------------------------------------------------------------------------------------------
def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> bits - 1 else value


ATOMICS: dict[int, Callable[[int, int, int, int], int]] = {  # old, source, comparison, bits; by TC_OP_ATOMIC_*_RTN_32
    0x07: lambda old, source, other, bits: source,  # SWAP
    0x08: lambda old, source, other, bits: source if old == other else old,  # CMPSWAP
    0x0F: lambda old, source, other, bits: old + source,
    0x10: lambda old, source, other, bits: old - source,
    0x11: lambda old, source, other, bits: min(old, source, key=lambda value: _signed(value, bits)),
    0x12: lambda old, source, other, bits: min(old, source),
    0x13: lambda old, source, other, bits: max(old, source, key=lambda value: _signed(value, bits)),
    0x14: lambda old, source, other, bits: max(old, source),
    0x15: lambda old, source, other, bits: operator.and_(old, source),
    0x16: lambda old, source, other, bits: operator.or_(old, source),
    0x17: lambda old, source, other, bits: operator.xor(old, source),
    0x18: lambda old, source, other, bits: 0 if old >= source else old + 1,  # INC wraps at the source
    0x19: lambda old, source, other, bits: source if old == 0 or old > source else old - 1,
}
CMPSWAP = 0x08
# bits of TC_OP: 64-bit operands, no return value
WIDE, NO_RETURN = 0x20, 0x40
LOOP, SINGLE_PASS = 1, (0, 2, 3)  # commands


def atomic_mem(parser: Parser, packet: Packet) -> Iterator[float]:
    """Do an atomic in L2; a compare-and-swap may be repeated until it succeeds."""
    control = pm4.ATOMIC_MEM_CONTROL(packet.body[0])
    kind = control.atomic & 0x1F
    if kind not in ATOMICS:
        raise Unmodelled(f"{packet}: atomic {control.atomic:#x}")
    if control.command not in (LOOP, *SINGLE_PASS):
        raise reserved(f"{packet}: command {control.command}")
    size = 8 if control.atomic & WIDE else 4
    gpu_va = _aligned(parser, packet, 1, size)
    mask = (1 << 8 * size) - 1
    source = (packet.body[3] | packet.body[4] << 32) & mask
    other = (packet.body[5] | packet.body[6] << 32) & mask

    def once() -> bool:
        old = parser.read_number(gpu_va, size)
        parser.write_number(gpu_va, ATOMICS[kind](old, source, other, 8 * size), size)
        parser.atomic_return = old
        return kind != CMPSWAP or control.command != LOOP or old == other

    yield from parser.poll(
        once, lambda: f"memory at {gpu_va:#x} holds {parser.atomic_return:#x}, a swap wants {other:#x}"
    )


def cond_write(parser: Parser, packet: Packet) -> None:
    """Compare a value once; if the comparison holds, write another value."""
    control, reference, mask = packet.body[0], packet.body[3], packet.body[4]
    memory, dword = bool(control >> 4 & 1), packet.body[1] & REGISTER_MASK
    value = parser.read_number(packet.address(1)) if memory else parser.read_register(dword)
    if not compare(control & 7, value & mask, reference):
        return
    space = control >> 8 & 3
    if space == 1:
        parser.write_number(packet.address(5), packet.body[7])
    elif space == 0:
        parser.write_register(packet.body[5] & REGISTER_MASK, packet.body[7])
    else:
        raise Unmodelled(f"{packet}: write space {space}")


RULES: dict[int, Rule] = {
    pm4.WRITE_DATA: Rule(write_data, (3, 0x3FFE), "mg"),
    pm4.COPY_DATA: Rule(copy_data, (4, 4), "mg"),
    pm4.DMA_DATA: Rule(dma_data, (5, 5), "mg"),
    pm4.ATOMIC_MEM: Rule(atomic_mem, (7, 7), "mg"),
    pm4.COND_WRITE: Rule(cond_write, (7, 7), "mg"),
}
