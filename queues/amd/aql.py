"""Packets of HSA queues (AQL): 64 bytes each, built from their fields and checked.

A packet begins with a header of 16 bits: what it is, whether it waits for all packets before it, and which caches are
invalidated before it starts and written back after it. An engine takes the packets in order and stops at one whose
type is INVALID. Source: hsa.h and hsa_ext_amd.h; HSA Platform System Architecture 1.2, "Architected Queuing Language".
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from operator import index
from typing import NamedTuple

from ringup.autogen.amd import hsa
from ringup.autogen.layout import Field, Struct, Word
from ringup.autogen.structs import SCALARS, Row
from ringup.queues.amd.pm4 import Pm4

PACKET_BYTES = 64
SIGNAL_ALIGN = hsa.AMD_SIGNAL_ALIGN_BYTES
# hsa.h: a kernel argument segment is aligned to 16 bytes at least; LLVM AMDGPUUsage: a kernel descriptor to 64
KERNARG_ALIGN, KERNEL_ALIGN = 16, 64
MAX_DEPENDENCIES = 5
SIGNED = 1 << 63


class PacketType(IntEnum):
    """What a packet is. Source: hsa.h, hsa_packet_type_t."""

    VENDOR_SPECIFIC = hsa.HSA_PACKET_TYPE_VENDOR_SPECIFIC
    INVALID = hsa.HSA_PACKET_TYPE_INVALID
    KERNEL_DISPATCH = hsa.HSA_PACKET_TYPE_KERNEL_DISPATCH
    BARRIER_AND = hsa.HSA_PACKET_TYPE_BARRIER_AND
    AGENT_DISPATCH = hsa.HSA_PACKET_TYPE_AGENT_DISPATCH
    BARRIER_OR = hsa.HSA_PACKET_TYPE_BARRIER_OR


class VendorFormat(IntEnum):
    """What a packet of the type VENDOR_SPECIFIC is. Source: ROCr amd_aql_queue.cpp, AMD_AQL_FORMAT_PM4_IB;
    hsa_ext_amd.h, hsa_amd_packet_type_t.
    """

    PM4_IB = 1
    BARRIER_VALUE = hsa.HSA_AMD_PACKET_TYPE_BARRIER_VALUE


class Scope(IntEnum):
    """Whose accesses a fence orders: nobody's, those of this card, those of everybody. Source: hsa.h,
    hsa_fence_scope_t.
    """

    NONE = hsa.HSA_FENCE_SCOPE_NONE
    AGENT = hsa.HSA_FENCE_SCOPE_AGENT
    SYSTEM = hsa.HSA_FENCE_SCOPE_SYSTEM


class Condition(IntEnum):
    """How a signal's value is compared, both signed. Source: hsa.h, hsa_signal_condition_t."""

    EQ = hsa.HSA_SIGNAL_CONDITION_EQ
    NE = hsa.HSA_SIGNAL_CONDITION_NE
    LT = hsa.HSA_SIGNAL_CONDITION_LT
    GTE = hsa.HSA_SIGNAL_CONDITION_GTE


class HEADER(Word):
    """The first 16 bits of a packet. Source: hsa.h, hsa_packet_header_t and hsa_packet_header_width_t."""

    type = Field(7, 0)
    barrier = Field(8)
    acquire_fence_scope = Field(10, 9)
    release_fence_scope = Field(12, 11)
    reserved = Field(31, 13)


class Order(NamedTuple):
    """When a packet starts, and which memory it sees and shows.

    `barrier`: it waits until all packets before it are complete. `acquire`: what it may read that others stored.
    `release`: who sees what was stored, once it is complete.
    """

    barrier: bool = False
    acquire: Scope = Scope.NONE
    release: Scope = Scope.NONE


FREE = Order()
EVERYBODY = Order(True, Scope.SYSTEM, Scope.SYSTEM)


class Member(NamedTuple):
    """A value of a packet: its byte, and its letter for `struct`."""

    name: str
    at: int
    letter: str

    @property
    def bits(self) -> int:
        """How many bits it holds."""
        return 8 * struct.calcsize(f"<{self.letter}")


def members(kind: type[Struct]) -> tuple[Member, ...]:
    """Return the values of a packet's struct in their order; those of inner structs and arrays one by one."""
    return tuple(_members(kind, "", 0))


def _members(kind: type[Struct], prefix: str, start: int) -> Iterator[Member]:
    for text in kind.LAYOUT.split():
        row = Row(text)
        for number in range(row.dims[0] if row.dims else 1):
            name = f"{prefix}{row.name}[{number}]" if row.dims else prefix + row.name
            if row.base in SCALARS:
                size, _, letter, _ = SCALARS[row.base]
                yield Member(name, start + row.byte + size * number, letter)
                continue
            inner = getattr(hsa, row.base)
            at = start + row.byte + inner.SIZE * number
            # a signal is nothing but its handle
            alone = len(inner.LAYOUT.split()) == 1
            for member in _members(inner, f"{name}.", at):
                yield member._replace(name=name) if alone else member


class Pm4Ib(Struct):
    """struct amd_aql_pm4_ib. Source: ROCr amd_aql_queue.cpp, AqlQueue::ExecutePM4.

    `ib_jump_cmd` is an INDIRECT_BUFFER packet of PM4; `dw_cnt_remain` counts the dwords behind it.
    """

    SIZE, ALIGN = 64, 8
    LAYOUT = "header:u16@0 ven_hdr:u16@2 ib_jump_cmd:u32[4]@4 dw_cnt_remain:u32@20 reserved:u32[8]@24 completion_signal:u64@56"


FORMS: dict[type[Struct], struct.Struct] = {
    kind: struct.Struct("<" + "".join(member.letter for member in members(kind)))
    for kind in (
        hsa.hsa_kernel_dispatch_packet_s,
        hsa.hsa_agent_dispatch_packet_s,
        hsa.hsa_barrier_and_packet_s,
        hsa.hsa_amd_barrier_value_packet_s,
        Pm4Ib,
    )
}
DISPATCH, AGENT, BARRIER, BARRIER_VALUE, PM4_IB = FORMS.values()
COMPLETION_BYTE = hsa.hsa_kernel_dispatch_packet_s.offset_of("completion_signal")
KERNARG_BYTE = hsa.hsa_kernel_dispatch_packet_s.offset_of("kernarg_address")
PRIVATE_BYTE = hsa.hsa_kernel_dispatch_packet_s.offset_of("private_segment_size")
# of a packet that runs PM4: the address in its INDIRECT_BUFFER, behind that packet's header
IB_ADDRESS_BYTE = Pm4Ib.offset_of("ib_jump_cmd") + 4
# 10, as ROCr has it: what is reserved, and the signal
DWORDS_REMAIN = (PACKET_BYTES - Pm4Ib.offset_of("reserved")) // 4
INVALID = struct.pack("<I", PacketType.INVALID)


def header(kind: PacketType, order: Order = FREE) -> int:
    """Return the header of a packet."""
    barrier, acquire, release = order
    scopes = (
        number(acquire, "acquire_fence_scope", 0, Scope.SYSTEM),
        number(release, "release_fence_scope", 0, Scope.SYSTEM),
    )
    return (
        kind
        | bool(barrier) << hsa.HSA_PACKET_HEADER_BARRIER
        | scopes[0] << hsa.HSA_PACKET_HEADER_SCACQUIRE_FENCE_SCOPE
        | scopes[1] << hsa.HSA_PACKET_HEADER_SCRELEASE_FENCE_SCOPE
    )


def number(value: int, field: str, low: int, high: int) -> int:
    """Return `value` as an integer. Raises a `ValueError` or `TypeError` that names the field and its range."""
    try:
        whole = index(value)
    except TypeError:
        raise TypeError(f"{field} is a whole number from {low} to {high:#x}, not {value!r}") from None
    if not low <= whole <= high:
        raise ValueError(f"{field} is {low} to {high:#x}, not {whole:#x}")
    return whole


def place(gpu_va: int, field: str, align: int, *, may_be_none: bool = True) -> int:
    """Return an address of 64 bits. Raises a `ValueError` that names the field, unless it is a multiple of `align`."""
    whole = number(gpu_va, field, 0, (1 << 64) - 1)
    if whole % align or not (whole or may_be_none):
        rest = "" if may_be_none else " and not 0"
        raise ValueError(f"{field} is a 64-bit address aligned to {align} bytes{rest}, not {whole:#x}")
    return whole


def invalid() -> bytes:
    """Return a slot without a packet: an engine stops there until its header is stored."""
    return INVALID.ljust(PACKET_BYTES, b"\0")


def kernel_dispatch(
    kernel_object: int,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    *,
    dimensions: int = 3,
    kernarg_address: int = 0,
    private_segment_size: int = 0,
    group_segment_size: int = 0,
    completion_signal: int = 0,
    order: Order = FREE,
) -> bytes:
    """Start a kernel. `kernel_object` is the address of its descriptor, `grid` counts work-items, `block` those of a
    full work-group. The sizes of axes that `dimensions` leaves out are 1.
    """
    number(dimensions, "setup.dimensions", 1, 3)
    for axis, items, group, used in zip("xyz", grid, block, (True, dimensions > 1, dimensions > 2), strict=True):
        number(group, f"workgroup_size_{axis}", 1, 0xFFFF if used else 1)
        number(items, f"grid_size_{axis}", 1, 0xFFFF_FFFF if used else 1)
    return DISPATCH.pack(
        header(PacketType.KERNEL_DISPATCH, order), dimensions << hsa.HSA_KERNEL_DISPATCH_PACKET_SETUP_DIMENSIONS,
        *block, 0, *grid,
        number(private_segment_size, "private_segment_size", 0, 0xFFFF_FFFF),
        number(group_segment_size, "group_segment_size", 0, 0xFFFF_FFFF),
        place(kernel_object, "kernel_object", KERNEL_ALIGN, may_be_none=False),
        place(kernarg_address, "kernarg_address", KERNARG_ALIGN), 0,
        place(completion_signal, "completion_signal", SIGNAL_ALIGN),
    )  # fmt: skip


def agent_dispatch(
    function: int,
    args: tuple[int, ...] = (),
    *,
    return_address: int = 0,
    completion_signal: int = 0,
    order: Order = FREE,
) -> bytes:
    """Call a function of an agent, with up to four arguments of 64 bits. Queues of a card refuse it: it is for queues
    that programs serve.
    """
    if len(args) > 4:
        raise ValueError(f"arg holds at most 4 values, not {len(args)}")
    four = [number(value, f"arg[{n}]", 0, (1 << 64) - 1) for n, value in enumerate((*args, 0, 0, 0, 0)[:4])]
    return AGENT.pack(
        header(PacketType.AGENT_DISPATCH, order), number(function, "type", 0, 0xFFFF), 0,
        place(return_address, "return_address", 8), *four, 0,
        place(completion_signal, "completion_signal", SIGNAL_ALIGN),
    )  # fmt: skip


def barrier_and(*dep_signals: int, completion_signal: int = 0, order: Order = FREE) -> bytes:
    """Wait until all of up to five signals are 0. Later packets start after it; without signals only its order
    counts.
    """
    return _barrier(PacketType.BARRIER_AND, dep_signals, completion_signal, order)


def barrier_or(*dep_signals: int, completion_signal: int = 0, order: Order = FREE) -> bytes:
    """Wait until one of up to five signals is 0. Later packets start after it."""
    return _barrier(PacketType.BARRIER_OR, dep_signals, completion_signal, order)


def _barrier(kind: PacketType, dep_signals: tuple[int, ...], completion_signal: int, order: Order) -> bytes:
    if len(dep_signals) > MAX_DEPENDENCIES:
        raise ValueError(f"dep_signal holds at most {MAX_DEPENDENCIES} signals, not {len(dep_signals)}")
    five = [place(signal, f"dep_signal[{n}]", SIGNAL_ALIGN) for n, signal in enumerate(dep_signals)]
    five += [0] * (MAX_DEPENDENCIES - len(five))
    return BARRIER.pack(
        header(kind, order), 0, 0, *five, 0, place(completion_signal, "completion_signal", SIGNAL_ALIGN)
    )


def barrier_value(
    signal: int,
    value: int,
    condition: Condition = Condition.EQ,
    *,
    mask: int = -1,
    completion_signal: int = 0,
    order: Order = FREE,
) -> bytes:
    """Wait until a signal's value, masked, compares with `value` as `condition` says, both as signed numbers."""
    return BARRIER_VALUE.pack(
        header(PacketType.VENDOR_SPECIFIC, order), VendorFormat.BARRIER_VALUE, 0, 0,
        place(signal, "signal", SIGNAL_ALIGN),
        number(value, "value", -SIGNED, SIGNED - 1),
        number(mask, "mask", -SIGNED, SIGNED - 1),
        number(condition, "cond", Condition.EQ, Condition.GTE), 0, 0, 0,
        place(completion_signal, "completion_signal", SIGNAL_ALIGN),
    )  # fmt: skip


def pm4_indirect(pm4: Pm4, gpu_va: int, count_dwords: int, *, completion_signal: int = 0, order: Order = FREE) -> bytes:
    """Run `count_dwords` of PM4 packets at `gpu_va`."""
    return PM4_IB.pack(
        header(PacketType.VENDOR_SPECIFIC, order), VendorFormat.PM4_IB,
        *pm4.indirect_buffer(gpu_va, count_dwords), DWORDS_REMAIN, *[0] * 8,
        place(completion_signal, "completion_signal", SIGNAL_ALIGN),
    )  # fmt: skip


def check_packets(data: bytes | bytearray) -> None:
    """Raise a `ValueError` unless `data` is whole packets, none of them INVALID."""
    if len(data) % PACKET_BYTES:
        raise ValueError(f"packets have {PACKET_BYTES} bytes each, so {len(data)} bytes are not whole packets")
    for at in range(0, len(data), PACKET_BYTES):
        if data[at] == PacketType.INVALID:
            raise ValueError(f"packet {at // PACKET_BYTES} has the type INVALID, at which a queue stops for good")


def private_segment_sizes(packets: bytes | bytearray) -> list[int]:
    """Return the bytes of scratch memory of a work-item that each dispatch among whole packets asks for."""
    return [
        int.from_bytes(packets[at + PRIVATE_BYTE : at + PRIVATE_BYTE + 4], "little")
        for at in range(0, len(packets), PACKET_BYTES)
        if packets[at] == PacketType.KERNEL_DISPATCH
    ]
