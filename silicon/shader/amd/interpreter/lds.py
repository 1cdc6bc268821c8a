"""The DS instructions: loads, stores and atomics of the local data share, and lane permutations through it.

Source: RDNA3 ISA reference, "Data Share Indexed and Atomic Access", "LDS & GDS Instructions".
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from ringup.errors import Unmodelled
from ringup.silicon.shader.amd.interpreter.atomics import Flush, operation
from ringup.silicon.shader.amd.interpreter.memory import atomic_size, force_aligned, lds_aligned
from ringup.silicon.shader.amd.interpreter.spaces import (
    LdsSpace,
    Transfer,
    atomic,
    byte_addresses,
    deliver,
    numbers,
    stored,
)
from ringup.silicon.shader.amd.strict.history import RuleBroken
from ringup.silicon.shader.common.state import M0, MODE

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ringup.silicon.shader.amd.interpreter.step import Addresses, Lanes, Step, Words

# By the suffix after `ds_load_` and `ds_store_`.
TRANSFERS = {
    "u8": Transfer(1), "i8": Transfer(1, signed=True), "u16": Transfer(2), "i16": Transfer(2, signed=True),
    "b8": Transfer(1), "b16": Transfer(2), "b32": Transfer(4), "b64": Transfer(8), "b96": Transfer(12), "b128": Transfer(16),
    "u8_d16": Transfer(1, half="low"), "i8_d16": Transfer(1, signed=True, half="low"), "u16_d16": Transfer(2, half="low"),
    "u8_d16_hi": Transfer(1, half="high"), "i8_d16_hi": Transfer(1, signed=True, half="high"),
    "u16_d16_hi": Transfer(2, half="high"), "b8_d16_hi": Transfer(1, half="high"), "b16_d16_hi": Transfer(2, half="high"),
    "addtid_b32": Transfer(4),
}  # fmt: skip
_TWO = re.compile(r"ds_(load|store|storexchg)_2addr(_stride64)?(?:_rtn)?_b(32|64)")
_ATOMIC = re.compile(r"ds_(\w+?)_(?:rtn_)?(b?f16|[iufb](?:32|64))")
_TRANSPOSED = re.compile(r"ds_load_b(64|96)_tr_b(16|8|6|4)")
_VERBS = {"cmpstore": "cmpswap", "storexchg": "swap"}  # names that memory atomics spell differently
_ROW = 16
_LANES = 32  # permutations stay within a half of a wave64 on RDNA3


def data_share(step: Step) -> None:
    """Execute a DS instruction on LDS. GDS and instructions for graphics are not modelled."""
    mnemonic = step.ins.mnemonic
    if step.field.get("gds") or mnemonic.startswith(("ds_gws", "ds_ordered", "ds_bvh")):
        raise Unmodelled(f"{mnemonic} at {step.pc:#x}: the global data share and ray tracing stacks")
    special = _SPECIAL.get(mnemonic)
    if special is not None:
        special(step)
        return
    two = _TWO.fullmatch(mnemonic)
    if two is not None:
        _two_addresses(step, two[1], int(two[3]) // 8, 64 if two[2] else 1)
        return
    transposed = _TRANSPOSED.fullmatch(mnemonic)
    if transposed is not None:
        _transposed(step, int(transposed[1]) // 8, int(transposed[2]))
        return
    _, verb, rest = mnemonic.split("_", 2)
    if verb in ("load", "store"):
        _single(step, verb, TRANSFERS[rest])
        return
    match = _ATOMIC.fullmatch(mnemonic)
    if match is None:
        raise Unmodelled(f"{mnemonic} at {step.pc:#x}")
    _atomic(step, f"{_VERBS.get(match[1], match[1])}_{match[2]}")


def _issue_load(step: Step, first: int, count: int, lanes: Lanes) -> None:
    step.issue(step.orders.lds, vgprs=range(first, first + count) if lanes.any() else range(0))


def _addresses(step: Step, lanes: Lanes, offset: int) -> Addresses:
    base = step.regs.vector(step.field["addr"], lanes).astype(np.int64)
    return base + offset & 0xFFFF_FFFF


def _single(step: Step, verb: str, transfer: Transfer) -> None:
    lanes, regs, space = step.regs.exec_lanes(), step.regs, LdsSpace(step)
    first = step.field["vdst"]
    if verb == "load" and not regs.vector_fits(first, transfer.register_count):
        lanes = np.zeros_like(lanes)
    if "addtid" in step.ins.mnemonic:
        start = step.ins.offset + (regs.scalar(M0) & 0xFFFF)
        where = start + 4 * np.arange(lanes.size, dtype=np.int64)
    else:
        where = _addresses(step, lanes, step.ins.offset)
    at = byte_addresses(lds_aligned(step, where, transfer.size_bytes, lanes), transfer.size_bytes)
    if verb == "load":
        data, undefined = space.read(at, lanes)
        deliver(step, first, transfer, data, undefined, lanes, step.orders.lds)
        _issue_load(step, first, transfer.register_count, lanes)
        return
    data, undefined = stored(step, step.field["data0"], transfer, lanes)
    space.write(at, lanes, data, undefined)
    step.issue(step.orders.lds)


def _two_addresses(step: Step, verb: str, size: int, stride: int) -> None:
    """Access two elements of an array at once; each offset counts elements, or 64 of them."""
    lanes, space, transfer = step.regs.exec_lanes(), LdsSpace(step), Transfer(size)
    first, count = step.field["vdst"], size // 4
    if verb != "store" and not step.regs.vector_fits(first, 2 * count):
        lanes = np.zeros_like(lanes)
    at = []
    for name in ("offset0", "offset1"):
        where = _addresses(step, lanes, step.field[name] * size * stride)
        at.append(byte_addresses(lds_aligned(step, where, size, lanes), size))
    written = [] if verb == "load" else [stored(step, step.field[name], transfer, lanes) for name in ("data0", "data1")]
    found = [] if verb == "store" else [space.read(one, lanes) for one in at]
    for one, (data, undefined) in zip(at, written, strict=False):
        space.write(one, lanes, data, undefined)
    for number, (data, undefined) in enumerate(found):
        deliver(step, first + number * count, transfer, data, undefined, lanes, step.orders.lds)
    if found:
        _issue_load(step, first, 2 * count, lanes)
    else:
        step.issue(step.orders.lds)


def _transposed(step: Step, size_bytes: int, bits: int) -> None:
    """Load elements of `bits` bits of 16 lanes and give lane i the i-th element of each of their rows of 16.

    The first lanes have the first row. Source: CDNA4 ISA reference, "MFMA Transpose Load from LDS", which gives what
    K a lane has. GUESS: the rows of a 16-lane group are its own.
    """
    lanes, first, registers = step.regs.exec_lanes(), step.field["vdst"], size_bytes // 4
    if not lanes.all():
        if step.machine.strict:
            raise RuleBroken("illegal", f"{step.ins.spelling} while a lane is not active")
        raise Unmodelled(f"{step.ins.spelling} at {step.pc:#x} while a lane is not active")
    where = force_aligned(step, _addresses(step, lanes, step.ins.offset), size_bytes & -size_bytes, lanes)
    data, undefined = LdsSpace(step).read(byte_addresses(where, size_bytes), lanes)
    places = np.unpackbits(np.ascontiguousarray(data), axis=1, bitorder="little").reshape(-1, _ROW, size_bytes * 8)
    # By group of lanes, row of 16 elements, element and bit.
    rows = places.reshape(len(places), -1, _ROW, bits).transpose(0, 2, 1, 3)
    found = np.packbits(rows.reshape(lanes.size, -1), axis=1, bitorder="little")
    unknown = None
    if undefined is not None:
        # A dword is undefined if all its bytes are.
        dwords = np.asarray(undefined, np.bool_).reshape(lanes.size, registers, 4).all(axis=2)
        groups = dwords.reshape(len(places), _ROW * registers).any(axis=1)
        unknown = np.repeat(groups, _ROW)[:, None] & np.ones_like(undefined)
    deliver(step, first, Transfer(size_bytes), found, unknown, lanes, step.orders.lds)
    _issue_load(step, first, registers, lanes)


def lds_flush(step: Step, name: str) -> Flush:
    """Return which denormals an LDS atomic flushes, from MODE. Source: "Float Memory Atomics", "Denormals"."""
    mode = int(step.regs.words[MODE]) >> (4 if name.endswith("f32") else 6)
    return Flush(inputs=not mode & 1, outputs=not mode & 2)


def _atomic(step: Step, name: str) -> None:
    lanes, size = step.regs.exec_lanes(), atomic_size(name)
    returns, first, count = "_rtn" in step.ins.mnemonic, step.field["vdst"], size // 4
    if returns and not step.regs.vector_fits(first, count):
        lanes = np.zeros_like(lanes)
    at = byte_addresses(_addresses(step, lanes, step.ins.offset), size)
    sources = numbers(step, step.field["data0"], size, lanes)
    takes_two = name.startswith(("cmpswap", "mskor", "wrap"))
    more = numbers(step, step.field["data1"], size, lanes) if takes_two else sources
    # GCN gives what is compared first.
    if name.startswith("cmpswap") and step.machine.generation.is_gcn:
        sources, more = more, sources
    found, _ = atomic(step, LdsSpace(step), at, size, lanes, operation(name, lds_flush(step, name)), sources, more)
    if returns:
        deliver(step, first, Transfer(size), found, None, lanes, step.orders.lds)
        _issue_load(step, first, count, lanes)
    else:
        step.issue(step.orders.lds)


def _conditional_exchange(step: Step) -> None:
    """ds_condxchg32_rtn_b64: replace each dword of a pair if bit 31 of its new value is set; that bit is stored as
    0.
    """
    lanes = step.regs.exec_lanes()
    at = byte_addresses(_addresses(step, lanes, step.ins.offset) & 0xFFF8, 8)

    def exchange(old: int, src: int, _: int) -> int:
        for mask in (0xFFFF_FFFF, 0xFFFF_FFFF << 32):
            top = mask & ~(mask >> 1)
            if src & top:
                old = old & ~mask | src & mask & ~top
        return old

    sources = numbers(step, step.field["data0"], 8, lanes)
    found, _ = atomic(step, LdsSpace(step), at, 8, lanes, exchange, sources, sources)
    deliver(step, step.field["vdst"], Transfer(8), found, None, lanes, step.orders.lds)
    _issue_load(step, step.field["vdst"], 2, lanes)


def _count_lanes(step: Step) -> None:
    """ds_append and ds_consume: add or subtract the number of active lanes at M0 + offset; every lane gets the old
    value.

    UNKNOWN: the document gives M0's layout for GDS. For LDS compilers put the plain byte address there.
    """
    lanes = step.regs.exec_lanes()
    active = int(lanes.sum())
    change = active if step.ins.mnemonic == "ds_append" else -active
    where = (step.regs.scalar(M0) & 0xFFFF) + step.ins.offset & ~3
    at = byte_addresses(np.array([where], np.int64), 4)
    one = np.array([active > 0])
    found, _ = atomic(step, LdsSpace(step), at, 4, one, lambda old, src, _: old + src & 0xFFFF_FFFF, [change], [0])
    deliver(step, step.field["vdst"], Transfer(4), np.repeat(found, lanes.size, axis=0), None, lanes, step.orders.lds)
    _issue_load(step, step.field["vdst"], 1, lanes)


# ---- permutations


def swizzled_lane(offset: int, lane: int) -> int:
    """Return the lane that ds_swizzle_b32 reads for `lane` (0..31 of a half).

    Source: RDNA3 ISA reference, "DS_SWIZZLE_B32".
    """
    low = offset & 0x1F
    if offset >= 0xE000:  # FFT
        reverse = int(f"{lane:05b}"[::-1], 2)
        return reverse >> low.bit_count() | lane & low
    if offset >= 0xC000:  # rotate
        by = offset >> 5 & 0x1F
        return lane & low | (lane - by if offset & 0x400 else lane + by) & ~low & 0x1F
    if offset & 0x8000:  # within four lanes
        return lane & ~3 | offset >> 2 * (lane & 3) & 3
    return (lane & low | offset >> 5 & 0x1F) ^ offset >> 10 & 0x1F


def _gather(step: Step, first: int, sources: NDArray[np.int64], lanes: Lanes, *, reads_inactive: bool = False) -> None:
    """Give every active lane the value of its source lane in VGPR `first`.

    An inactive source lane gives zero unless `reads_inactive`.
    """
    values = step.regs.vector(first, lanes, decides=False)
    unknown = step.regs.vector_undefined(first)
    valid = np.ones_like(lanes) if reads_inactive else lanes[sources]
    found: Words = np.where(valid, values[sources], np.uint32(0))
    step.regs.set_vector(step.field["vdst"], found, lanes, undefined=valid & unknown[sources], order=step.orders.lds)
    _issue_load(step, step.field["vdst"], 1, lanes)


def _half_bases(lanes: Lanes) -> NDArray[np.int64]:
    return np.arange(lanes.size, dtype=np.int64) & ~(_LANES - 1)


def _swizzle(step: Step) -> None:
    lanes = step.regs.exec_lanes()
    pattern = [swizzled_lane(step.ins.offset, lane) for lane in range(_LANES)]
    sources = np.resize(np.array(pattern, np.int64), lanes.size) + _half_bases(lanes)
    # Its one source is encoded as an address.
    _gather(step, step.field["addr"], sources, lanes)


def _chosen(step: Step, lanes: Lanes) -> NDArray[np.int64]:
    """Return the lanes that addresses name: of the whole wave, or of the lane's half."""
    numbers_of = _addresses(step, lanes, step.ins.offset) >> 2
    if step.machine.generation.permutes_whole_wave:
        return numbers_of % lanes.size
    return numbers_of % _LANES + _half_bases(lanes)


def _backward(step: Step) -> None:
    lanes = step.regs.exec_lanes()
    sources = np.where(lanes, _chosen(step, lanes), 0)
    _gather(step, step.field["data0"], sources, lanes, reads_inactive=step.ins.mnemonic == "ds_bpermute_fi_b32")


def _forward(step: Step) -> None:
    """ds_permute_b32: lanes push their data. The highest of several wins; a lane that gets none reads zero."""
    regs, lanes, first = step.regs, step.regs.exec_lanes(), step.field["data0"]
    targets = _chosen(step, lanes)
    values, unknown = regs.vector(first, lanes, decides=False), regs.vector_undefined(first)
    found, undefined = np.zeros(lanes.size, np.uint32), np.zeros(lanes.size, np.bool_)
    for lane in np.flatnonzero(lanes):
        found[targets[lane]], undefined[targets[lane]] = values[lane], unknown[lane]
    regs.set_vector(step.field["vdst"], found, lanes, undefined=undefined, order=step.orders.lds)
    _issue_load(step, step.field["vdst"], 1, lanes)


def _nothing(step: Step) -> None:
    """ds_nop does nothing, and no counter counts it."""


_SPECIAL: dict[str, Callable[[Step], None]] = {
    "ds_nop": _nothing, "ds_swizzle_b32": _swizzle, "ds_permute_b32": _forward, "ds_bpermute_b32": _backward,
    "ds_bpermute_fi_b32": _backward,
    "ds_append": _count_lanes, "ds_consume": _count_lanes, "ds_condxchg32_rtn_b64": _conditional_exchange,
}  # fmt: skip

# M0 17:16 of an lds_direct_load. Source: RDNA3 ISA reference, "LDS Direct Load".
_DIRECT = {
    0: Transfer(1), 1: Transfer(2), 2: Transfer(4), 4: Transfer(1, signed=True), 5: Transfer(2, signed=True),
}  # fmt: skip


def direct_load(step: Step) -> None:
    """lds_direct_load: load one value of LDS to every lane of each quad that has an active lane."""
    if step.ins.mnemonic != "lds_direct_load":
        raise Unmodelled(f"{step.ins.mnemonic} at {step.pc:#x}: parameters of pixel shaders")
    m0 = step.regs.scalar(M0)
    transfer = _DIRECT.get(m0 >> 16 & 7)
    if transfer is None or m0 & 3:
        raise RuleBroken("alignment", f"M0 {m0:#x} has no valid type or dword address for a direct load")
    lanes = np.repeat(step.regs.exec_lanes().reshape(-1, 4).any(axis=1), 4)
    at = np.repeat(byte_addresses(np.array([m0 & 0xFFFF], np.int64), transfer.size_bytes), lanes.size, axis=0)
    data, undefined = LdsSpace(step).read(at, lanes)
    deliver(step, step.field["vdst"], transfer, data, undefined, lanes, step.orders.direct)
    step.issue(step.orders.direct, vgprs=range(step.field["vdst"], step.field["vdst"] + 1))
