"""Packets of the command processor (PM4, type 3): decoding a header, and which engine accepts which packet.

Source: amdgpu nvd.h, soc15d.h; PAL's f32_mec/me/pfp packet headers; autogen.amd.pm4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ringup.autogen.amd import pm4
from ringup.silicon.amd.common.atomics import COMPARE

if TYPE_CHECKING:
    from ringup.silicon.amd.gc.cp.pm4_parser import Parser

# Source ids of the CP's interrupts. Source: irqsrcs_gfx_11_0_0.h
CLIENT_CP = 0x14  # soc21_ih_clientid.h, SOC21_IH_CLIENTID_GRBM_CP
SRC_GENERIC2 = 178
SRC_RESERVED_BITS = 180
SRC_END_OF_PIPE = 181
SRC_BAD_OPCODE = 183
SRC_PRIVILEGED_REGISTER = 184
SRC_QUERY_STATUS = 199

# Exception codes that a bad packet reports in its interrupt. Source: kfd_ioctl.h, enum kfd_dbg_trap_exception_code
EC_PACKET_RESERVED, EC_PACKET_UNSUPPORTED, EC_REGISTER_INVALID = 19, 20, 22

# count of a NOP without a body: amdgpu nvd.h, Mesa PKT3_NOP_PAD
NOP_ONE_DWORD = 0x3FFF
HEADER_RESERVED = 0xF8
MASK48 = (1 << 48) - 1


class PacketError(Exception):
    """The engine refuses a packet: the queue stops there and the host gets an interrupt."""

    def __init__(self, source: int, code: int, text: str) -> None:
        super().__init__(text)
        self.source, self.code = source, code


def reserved(text: str) -> PacketError:
    """Return the error for bits or lengths that the packet may not have."""
    return PacketError(SRC_RESERVED_BITS, EC_PACKET_RESERVED, text)


def unsupported(text: str) -> PacketError:
    """Return the error for an opcode that the engine does not know."""
    return PacketError(SRC_BAD_OPCODE, EC_PACKET_UNSUPPORTED, text)


class Packet(NamedTuple):
    """One packet: header and body dwords, and its address."""

    header: int
    body: tuple[int, ...]
    gpu_va: int
    name: str = ""

    @property
    def opcode(self) -> int:
        """The opcode, 8 bits."""
        return self.header >> 8 & 0xFF

    def __str__(self) -> str:
        return f"{self.name or hex(self.opcode)} at {self.gpu_va:#x}"

    def address(self, place: int, align: int = 4) -> int:
        """Return the 48-bit address in body dwords `place` and `place + 1`, with the bits below `align` cleared."""
        return (self.body[place] | self.body[place + 1] << 32) & MASK48 & -align


Execute = Callable[["Parser", Packet], "Iterator[float] | None"]


class Rule(NamedTuple):
    """What an engine does with an opcode."""

    execute: Execute
    counts: tuple[int, int]  # smallest and largest count field
    # letters: m MEC, g graphics, k only the kernel interface queue
    engines: str


@lru_cache(4096)
def packet_dwords(header: int) -> int:
    """Return how many dwords a packet has; 0 if the header is not of type 3."""
    if header >> 30 != 3 or header & HEADER_RESERVED:
        return 0
    count = header >> 16 & 0x3FFF
    return 1 if count == NOP_ONE_DWORD and header >> 8 & 0xFF == pm4.NOP else count + 2


def check_header(header: int, gpu_va: int) -> None:
    """Raise `PacketError` if the header is not of type 3."""
    kind = header >> 30
    if kind != 3:
        raise unsupported(f"type {kind} packet {header:#010x} at {gpu_va:#x}")
    if header & HEADER_RESERVED:
        raise reserved(f"header {header:#010x} at {gpu_va:#x} has reserved bits {header & HEADER_RESERVED:#x}")


def check_rule(packet: Packet, rules: dict[int, Rule], engines: str, version: tuple[int, ...]) -> Rule:
    """Return the rule of a packet for an engine with any of these letters, or raise `PacketError`."""
    rule = rules.get(packet.opcode)
    known = pm4.OPCODES[version].get(packet.opcode)
    if rule is None or not set(engines) & set(rule.engines):
        what = f"opcode {packet.opcode:#x}" if known is None else known
        raise unsupported(f"{what} at {packet.gpu_va:#x} is no packet of this engine")
    if rule.counts[0] <= (packet.header >> 16 & 0x3FFF) <= rule.counts[1]:
        return rule
    text = f"{packet.name} at {packet.gpu_va:#x} has count {packet.header >> 16 & 0x3FFF}"
    raise reserved(
        f"{text}, it must be {rule.counts[0]}" + (f" to {rule.counts[1]}" if rule.counts[1] != rule.counts[0] else "")
    )


def compare(function: int, value: int, reference: int) -> bool:
    """Evaluate the `function` field of WAIT_REG_MEM, COND_WRITE and others. Source: nvd.h, WAIT_REG_MEM_FUNCTION."""
    if function not in COMPARE:
        raise reserved(f"compare function {function}")
    return COMPARE[function](value, reference)
