"""Packets that set registers in the shader (SH), UCONFIG, CONFIG and context windows: singly, in pairs, or from memory.

Source: amdgpu nvd.h (windows), PAL f32_mec_pm4_packets.h, Mesa ac_cmdbuf.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from ringup.autogen.amd import pm4
from ringup.errors import GuestError
from ringup.silicon.amd.gc.cp.pm4_decode import Execute, Packet, PacketError, Rule, reserved
from ringup.silicon.amd.gc.cp.pm4_parser import Parser
from ringup.silicon.amd.gc.hqd import LOW

INSERT_VMID, KERNEL_CU_MASK = 1, 3  # index field
MAX_COUNT = 0x3FFF
# PAL, IT_SET_*_REG_PAIRS*__GFX11; Mesa sid.h
SET_CONTEXT_REG_PAIRS, SET_CONTEXT_REG_PAIRS_PACKED = 0xB8, 0xB9
SET_SH_REG_PAIRS, SET_SH_REG_PAIRS_PACKED, SET_SH_REG_PAIRS_PACKED_N = 0xBA, 0xBB, 0xBD
SET_UCONFIG_REG_PAIRS = 0xBE


class Window(NamedTuple):
    """A range of registers, in dwords; packets use offsets from `first`."""

    name: str
    first: int
    end: int
    # dwords without a name accept writes and drop them
    holes: bool = False

    def refused(self, offset: int) -> PacketError:
        """Return the error for an offset outside the window."""
        return reserved(f"{self.name} offset {offset:#x} lies outside the window")


SH = Window("SH register", pm4.SET_SH_REG_START, pm4.SET_SH_REG_END)
CONFIG = Window("CONFIG register", pm4.SET_CONFIG_REG_START, pm4.SET_CONFIG_REG_END)
# QUIRK: the default state that drivers send (clearstate_gfx11.h) names ranges, and a third of their dwords have no
# register. UNKNOWN: what metal does with those; here they are dropped
CONTEXT = Window("context register", pm4.SET_CONTEXT_REG_START, pm4.SET_CONTEXT_REG_END, holes=True)
# nvd.h ends the window at 0xc400; GFX11's performance counters lie up to 0xe000 and are set this way by radv and PAL
UCONFIG = Window("UCONFIG register", pm4.SET_UCONFIG_REG_START, 0xE000)


def _store(parser: Parser, window: Window, values: Iterable[tuple[int, int]]) -> None:
    """Write (offset, value) pairs. These packets need no privilege: their windows are open."""
    space, first, end, has_holes = parser.cp.board.space, window.first, window.end, window.holes
    with parser.cp.grbm.acting(parser.hqd.slot, parser.vmid):
        for offset, value in values:
            dword = first + offset
            if dword >= end:
                raise window.refused(offset)
            if has_holes and space.owner(dword * 4) is None:
                continue
            try:
                space.write(dword * 4, value & LOW)
            except GuestError as error:
                parser.note("{}", error)


def set_registers(window: Window) -> Execute:
    """Return the executor of a packet that sets consecutive registers: control dword, values."""

    def execute(parser: Parser, packet: Packet) -> None:
        control = pm4.SET_SH_REG_CONTROL(packet.body[0])
        values = packet.body[1:]
        if control.index == INSERT_VMID:
            values = tuple(value | parser.vmid << control.vmid_shift for value in values)
        _store(parser, window, ((control.reg_offset + number, value) for number, value in enumerate(values)))

    return execute


def set_pairs(window: Window) -> Execute:
    """Return the executor of a packet that sets (offset, value) pairs."""

    def execute(parser: Parser, packet: Packet) -> None:
        if len(packet.body) % 2:
            raise reserved(f"{packet}: pairs of {len(packet.body)} dwords")
        _store(parser, window, zip(packet.body[::2], packet.body[1::2], strict=True))

    return execute


def set_packed_pairs(window: Window) -> Execute:
    """Return the executor of a packet with two offsets in one dword: count, then (offsets, value, value)."""

    def execute(parser: Parser, packet: Packet) -> None:
        count, rest = packet.body[0] & 0xFFFF, packet.body[1:]
        if len(rest) % 3 or count > len(rest) // 3 * 2 or count < 2:
            raise reserved(f"{packet}: {count} registers in {len(rest)} dwords")
        pairs = []
        for offsets, first, second in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
            pairs += [(offsets & 0xFFFF, first), (offsets >> 16, second)]
        _store(parser, window, pairs[:count])

    return execute


def load_sh_index(parser: Parser, packet: Packet) -> None:
    """Load SH registers from memory: consecutive ones, or (offset, value) pairs."""
    index, offset, dwords = packet.body[0] & 3, packet.body[2] & 0xFFFF, packet.body[3] & 0x3FFF
    gpu_va = packet.address(0)
    # the address points to the address
    if index == 2:
        gpu_va = parser.read_number(gpu_va, 8)
    elif index:
        raise reserved(f"{packet}: index {index}")
    if packet.body[2] >> 31:
        words = struct.unpack(f"<{2 * dwords}I", parser.read(gpu_va, 8 * dwords))
        _store(parser, SH, zip(words[::2], words[1::2], strict=True))
    else:
        words = struct.unpack(f"<{dwords}I", parser.read(gpu_va, 4 * dwords))
        _store(parser, SH, enumerate(words, offset))


RULES: dict[int, Rule] = {
    pm4.SET_SH_REG: Rule(set_registers(SH), (1, MAX_COUNT), "mg"),
    pm4.SET_SH_REG_INDEX: Rule(set_registers(SH), (1, MAX_COUNT), "mg"),
    pm4.SET_UCONFIG_REG: Rule(set_registers(UCONFIG), (1, MAX_COUNT), "mg"),
    pm4.SET_UCONFIG_REG_INDEX: Rule(set_registers(UCONFIG), (1, MAX_COUNT), "g"),
    pm4.SET_CONFIG_REG: Rule(set_registers(CONFIG), (1, MAX_COUNT), "mg"),
    pm4.SET_CONTEXT_REG: Rule(set_registers(CONTEXT), (1, MAX_COUNT), "g"),
    pm4.SET_CONTEXT_REG_INDEX: Rule(set_registers(CONTEXT), (1, MAX_COUNT), "g"),
    pm4.LOAD_SH_REG_INDEX: Rule(load_sh_index, (3, 3), "mg"),
    SET_CONTEXT_REG_PAIRS: Rule(set_pairs(CONTEXT), (1, MAX_COUNT), "g"),
    SET_CONTEXT_REG_PAIRS_PACKED: Rule(set_packed_pairs(CONTEXT), (3, MAX_COUNT), "g"),
    SET_SH_REG_PAIRS: Rule(set_pairs(SH), (1, MAX_COUNT), "g"),
    SET_SH_REG_PAIRS_PACKED: Rule(set_packed_pairs(SH), (3, MAX_COUNT), "mg"),
    SET_SH_REG_PAIRS_PACKED_N: Rule(set_packed_pairs(SH), (3, MAX_COUNT), "mg"),
}
# since GFX12, also in compute queues. Source: Mesa ac_parse_ib.c, radv_cs.h
RULES_12: dict[int, Rule] = {
    SET_SH_REG_PAIRS: Rule(set_pairs(SH), (1, MAX_COUNT), "mg"),
    SET_UCONFIG_REG_PAIRS: Rule(set_pairs(UCONFIG), (1, MAX_COUNT), "mg"),
}
