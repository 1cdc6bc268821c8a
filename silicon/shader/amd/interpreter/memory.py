"""Scalar memory, and the GLOBAL, SCRATCH and FLAT instructions.

Source: RDNA3 ISA reference, chapters 8 and 11; RDNA4 ISA reference, the same chapters.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ringup.errors import Unmodelled
from ringup.silicon.shader.amd.decoding.decode import TRANSPOSING_LOADS
from ringup.silicon.shader.amd.interpreter.atomics import Flush, operation
from ringup.silicon.shader.amd.interpreter.spaces import (
    GlobalSpace,
    LdsSpace,
    Space,
    Transfer,
    atomic,
    byte_addresses,
    check_stored,
    deliver,
    load,
    numbers,
    stored,
)
from ringup.silicon.shader.amd.strict.history import RuleBroken
from ringup.silicon.shader.common.state import M0, MODE, NULL, Scope

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from ringup.silicon.shader.amd.interpreter.step import Addresses, Bytes, Lanes, Step

# By the suffix after `global_load_` and `global_store_`.
TRANSFERS = {
    "u8": Transfer(1), "i8": Transfer(1, signed=True), "u16": Transfer(2), "i16": Transfer(2, signed=True),
    "b8": Transfer(1), "b16": Transfer(2), "b32": Transfer(4), "b64": Transfer(8), "b96": Transfer(12), "b128": Transfer(16),
    "d16_u8": Transfer(1, half="low"), "d16_i8": Transfer(1, signed=True, half="low"), "d16_b16": Transfer(2, half="low"),
    "d16_hi_u8": Transfer(1, half="high"), "d16_hi_i8": Transfer(1, signed=True, half="high"),
    "d16_hi_b16": Transfer(2, half="high"), "d16_hi_b8": Transfer(1, half="high"), "addtid_b32": Transfer(4),
}  # fmt: skip
# Invalidations and write-backs of RDNA4's caches: whether they invalidate, and whether they write back.
CACHES = {"global_inv": (True, False), "global_wb": (False, True), "global_wbinv": (True, True)}
BLOCK_REGISTERS = 32
TO_LDS = "lds_"
# A transposing load has this many addresses in a wave64 too.
TRANSPOSED_LANES = 32
# Scalar instructions of GCN that return a counter.
CLOCKS = ("s_memtime", "s_memrealtime")
# Those that change memory, or use scratch memory: compilers do not use them.
_NOT_MODELLED = (
    "s_store",
    "s_buffer_store",
    "s_scratch",
    "s_atomic",
    "s_buffer_atomic",
    "s_dcache_discard",
    "s_atc_probe",
)
FLAT_OFFSET_MASK = 0xFFF  # the sign bit is forced to zero on RDNA3
LDS_ADDRESS_MASK = 0x1_FFFF  # of a FLAT address on RDNA4
LDS_BASE_MASK = 0x3_FFFC  # of M0, where loads to LDS begin
# An aperture is 4 GiB: its high dword is its half of SH_MEM_BASES, shifted left by 16.
APERTURE_SHIFT = 32

Part = tuple[Space, "Lanes", "Addresses"]


def split(mnemonic: str) -> tuple[str, str, str]:
    """Split `global_atomic_add_u32` into global, atomic, add_u32."""
    unit, verb, rest = mnemonic.split("_", 2)
    return unit, verb, rest


def vector_memory(step: Step) -> None:
    """Execute a GLOBAL, SCRATCH or FLAT instruction."""
    if step.ins.mnemonic in CACHES:
        invalidate, write_back = CACHES[step.ins.mnemonic]
        if (scoped := step.machine.scoped) is not None:
            scoped.maintain(step.access(), invalidate=invalidate, write_back=write_back)
        step.issue(step.orders.stores if write_back else step.orders.loads)
        return
    _, verb, rest = split(step.ins.mnemonic)
    lanes = step.regs.exec_lanes()
    is_flat = step.ins.format == "FLAT"
    if verb == "atomic":
        _atomic(step, rest, lanes, is_flat=is_flat)
        return
    if rest == "block":
        _block(step, verb, lanes)
        return
    if rest.startswith(TO_LDS):
        loaded = TRANSFERS[rest.removeprefix(TO_LDS)]
        load_to_lds(step, loaded, places(step, loaded.size_bytes, lanes), lanes)
        return
    if step.ins.mnemonic.startswith(TRANSPOSING_LOADS):
        _transposed(step, rest, lanes)
        return
    transfer = TRANSFERS[rest]
    if verb == "load":
        first = step.field["vdst"]
        if not step.regs.vector_fits(first, transfer.register_count):
            lanes = np.zeros_like(lanes)
        order = step.orders.flat_loads if is_flat else step.orders.loads
        _load(step, first, transfer, places(step, transfer.size_bytes, lanes), lanes, order)
        return
    data, undefined = stored(step, step.field["data"], transfer, lanes, check=not is_flat)
    # The address decides who can read the stored data.
    if is_flat:
        _, private = _apertures(step, _wide(step, step.field["addr"], lanes))
        check_stored(step, step.field["data"], transfer.register_count, lanes & ~private)
    for space, some, addresses in places(step, transfer.size_bytes, lanes):
        space.write(addresses, some, data, undefined)
    step.issue(step.orders.flat_stores if is_flat else step.orders.stores)


def load_to_lds(step: Step, transfer: Transfer, parts: Iterable[Part], lanes: Lanes) -> None:
    """Load a dword of each lane to LDS, from M0 and the instruction's offset up, lane after lane.

    Smaller values are extended to a dword. Three or four dwords have four each. Source: CDNA3 and CDNA4 ISA references,
    "Memory Buffer Load to LDS"; LLVM AMDGPUUsage.
    """
    data = np.zeros((lanes.size, transfer.size_bytes), np.uint8)
    for space, some, addresses in parts:
        found, _ = space.read(addresses, some)
        data[some] = found[some]
    words = np.zeros((lanes.size, max(transfer.size_bytes, 4)), np.uint8)
    words[:, : transfer.size_bytes] = data
    if transfer.signed:
        words[:, transfer.size_bytes :] = np.where(data[:, -1:] & 0x80, 0xFF, 0)
    start = (step.regs.scalar(M0) & LDS_BASE_MASK) + step.ins.offset
    stride = 4 if transfer.size_bytes <= 4 else 16
    at = byte_addresses(start + stride * np.arange(lanes.size, dtype=np.int64), words.shape[1])
    LdsSpace(step).write(at, lanes, words, None)
    step.issue(step.orders.loads)


def _block(step: Step, verb: str, lanes: Lanes) -> None:
    """Load or store a dword for each register that M0 selects; those between keep their places in memory.

    Source: RDNA4 ISA reference, "Block VGPR Load & Store".
    """
    chosen = step.regs.scalar(M0)
    numbers_of = [number for number in range(BLOCK_REGISTERS) if chosen >> number & 1]
    dword, first = TRANSFERS["b32"], step.field["vdst" if verb == "load" else "data"]
    for number in numbers_of:
        one = replace(step, ins=replace(step.ins, offset=step.ins.offset + 4 * number))
        for space, some, addresses in places(one, dword.size_bytes, lanes):
            if verb == "load":
                load(step, space, first + number, dword, addresses, some, step.orders.loads)
            else:
                # A block may hold registers that the program does not use.
                data, undefined = stored(step, first + number, dword, lanes, check=False)
                space.write(addresses, some, data, undefined)
    if verb == "store":
        step.issue(step.orders.stores)
    else:
        step.issue(step.orders.loads, vgprs=[first + number for number in numbers_of] if lanes.any() else ())


def _transposed(step: Step, name: str, lanes: Lanes) -> None:
    """Load eight elements of each of 32 lanes and exchange them, so that a row in memory becomes a column of A or B.

    `tr_b128` has elements of 16 bits: lane i of eight lanes gets element i of each of the eight. `tr_b64` has bytes:
    lane i of sixteen gets element i % 8 of four lanes of its own sixteen, then of those eight lanes behind; lanes 8 and
    up of a sixteen begin at the fifth lane. Source: RDNA4 ISA reference, "WMMA Load-Transpose Instructions", for sizes,
    lanes and EXEC. Its diagram of lanes is lost; the exchanges are as measured on an RX 9070 XT and published for
    gfx1201: ROCm's "RDNA4 WMMA transpose load builtins" (b128), global_load_tr_probe.hip (b64). GUESS: lanes 32 and up
    of a wave64 get the upper half of what the lanes 32 below them have in a wave32, as B of a wave64 is laid out.
    """
    size_bytes = 16 if name == "tr_b128" else 8
    # Hardware leaves undefined what it does with some of the lanes.
    if lanes.any() and not lanes.all():
        if step.machine.strict:
            raise RuleBroken("illegal", f"{step.ins.mnemonic} while a lane is not active")
        raise Unmodelled(f"{step.ins.mnemonic} at {step.pc:#x} while a lane is not active")
    first, loaded = step.field["vdst"], Transfer(size_bytes * TRANSPOSED_LANES // lanes.size)
    if not step.regs.vector_fits(first, loaded.register_count):
        lanes = np.zeros_like(lanes)
    near = lanes & (np.arange(lanes.size) < TRANSPOSED_LANES)
    ((space, some, addresses),) = places(step, size_bytes, near)
    found, _ = space.read(addresses, some)
    rows = found[:TRANSPOSED_LANES].reshape(TRANSPOSED_LANES, 8, -1)
    # Of bytes by the bits of a lane's number: 4, 3, 2, and 1 with 0.
    shape, order = ((4, 8, 8, 2), (0, 2, 1, 3)) if size_bytes == 16 else ((2, 2, 2, 4, 8), (0, 2, 4, 1, 3))
    columns = rows.reshape(shape).transpose(order)
    of_lane = columns.reshape(TRANSPOSED_LANES, lanes.size // TRANSPOSED_LANES, -1)
    data = np.ascontiguousarray(of_lane.transpose(1, 0, 2)).reshape(lanes.size, -1)
    deliver(step, first, loaded, data, None, lanes, step.orders.loads)
    step.issue(step.orders.loads, vgprs=range(first, first + loaded.register_count) if lanes.any() else range(0))


def _guards(step: Step, space: Space | None) -> frozenset[str]:
    """Return the counters that show when a load from `space` has returned.

    A FLAT load counts in both counters, and returns in the one of the memory that it accessed. Source: LLVM
    SIInsertWaitcnts.cpp, mayAccessLDSThroughFlat (a wait for global memory through FLAT uses vmcnt alone); ROCR-Runtime
    blit_copyAligned.s does so. UNKNOWN: whether LDS alone needs no vmcnt
    """
    return frozenset(step.orders.flat_loads if isinstance(space, LdsSpace) else step.orders.loads)


def _load(
    step: Step, first: int, transfer: Transfer, parts: Iterable[Part], lanes: Lanes, order: dict[str, str]
) -> None:
    data: Bytes = np.zeros((lanes.size, transfer.size_bytes), np.uint8)
    undefined: NDArray[np.bool_] = np.zeros(data.shape, np.bool_)
    guards = _guards(step, None)
    for space, some, addresses in parts:
        guards = guards | _guards(step, space)
        found, unknown = space.read(addresses, some)
        data[some] = found[some]
        if unknown is not None:
            undefined[some] = unknown[some]
    deliver(step, first, transfer, data, undefined, lanes, order)
    step.issue(order, vgprs=range(first, first + transfer.register_count) if lanes.any() else range(0), guards=guards)


def memory_flush(step: Step, name: str) -> Flush:
    """Return which denormals a memory atomic flushes.

    On RDNA3 an add flushes all inputs; others flush inputs as MODE says. Results are never flushed. RDNA4 flushes
    nothing. Source: RDNA3 and RDNA4 ISA references, "Float Memory Atomics", "Denormals".
    """
    if not step.machine.generation.flushes_in_memory:
        return Flush(inputs=False, outputs=False)
    keeps = bool(step.regs.words[MODE] & (1 << 6 if name.endswith("f64") else 1 << 4))
    return Flush(inputs=name.startswith("add") or not keeps, outputs=False)


def atomic_size(name: str) -> int:
    """Return the size in bytes of an atomic such as `add_u64`."""
    return 8 if name.endswith("64") else 4


def _atomic(step: Step, name: str, lanes: Lanes, *, is_flat: bool) -> None:
    size, returns, first = atomic_size(name), bool(step.field["glc"]), step.field["data"]
    count = size // 4
    if returns and not step.regs.vector_fits(step.field["vdst"], count):
        lanes = np.zeros_like(lanes)
    sources = numbers(step, first, size, lanes)
    more = numbers(step, first + count, size, lanes) if name.startswith("cmpswap") else sources
    function = operation(name, memory_flush(step, name))
    found: Bytes = np.zeros((lanes.size, size), np.uint8)
    guards = _guards(step, None)
    for space, some, addresses in places(step, size, lanes, is_atomic=True):
        guards = guards | _guards(step, space)
        before, _ = atomic(step, space, addresses, size, some, function, sources, more)
        found[some] = before[some]
    if returns:
        order = step.orders.flat_loads if is_flat else step.orders.loads
        deliver(step, step.field["vdst"], Transfer(size), found, None, lanes, order)
        loaded = range(step.field["vdst"], step.field["vdst"] + count) if lanes.any() else range(0)
        step.issue(order, vgprs=loaded, guards=guards)
    else:
        step.issue(step.orders.flat_stores if is_flat else step.orders.stores)


def places(step: Step, size_bytes: int, lanes: Lanes, *, is_atomic: bool = False) -> Iterable[Part]:
    """Return the location of each lane's bytes: the space, its lanes, their byte addresses."""
    if step.ins.format == "SCRATCH":
        offsets = _scratch_offsets(step, lanes)
        return [_scratch(step, offsets, size_bytes, lanes)]
    if step.ins.format == "GLOBAL":
        bases = _global_addresses(step, lanes)
        shared, private = _apertures(step, bases)
        wrong = lanes & (shared | private)
        if wrong.any():
            lane = int(wrong.argmax())
            raise RuleBroken("memory", f"lane {lane} of a global access reaches the aperture at {int(bases[lane]):#x}")
        return [(GlobalSpace(step), lanes, byte_addresses(_aligned(step, bases, size_bytes, lanes), size_bytes))]
    return _flat(step, size_bytes, lanes, is_atomic=is_atomic)


def _flat(step: Step, size_bytes: int, lanes: Lanes, *, is_atomic: bool) -> list[Part]:
    """Split lanes by aperture. The check comes before the offset is added."""
    bases = _wide(step, step.field["addr"], lanes)
    shared, private = _apertures(step, bases)
    is_signed = "FLAT" in step.machine.generation.offset_bits
    offset = step.ins.offset if is_signed else step.field["offset"] & FLAT_OFFSET_MASK
    parts: list[Part] = []
    in_lds, in_scratch = lanes & shared, lanes & private
    elsewhere = lanes & ~(shared | private)
    within = (bases & 0xFFFF_FFFF) + offset
    if in_lds.any():
        aligned = lds_aligned(step, within & LDS_ADDRESS_MASK if is_signed else within, size_bytes, in_lds)
        parts.append((LdsSpace(step), in_lds, byte_addresses(aligned, size_bytes)))
    if in_scratch.any():
        if is_atomic and size_bytes == 8:
            raise RuleBroken("memory", "a 64-bit atomic reaches scratch memory")
        parts.append(_scratch(step, within, size_bytes, in_scratch))
    if elsewhere.any() or not parts:
        addresses = _aligned(step, bases + offset, size_bytes, elsewhere)
        parts.append((GlobalSpace(step), elsewhere, byte_addresses(addresses, size_bytes)))
    return parts


def _apertures(step: Step, bases: Addresses) -> tuple[Lanes, Lanes]:
    dispatch = step.machine.dispatch
    high = bases >> APERTURE_SHIFT & 0xFFFF_FFFF
    shared, private = dispatch.shared_aperture, dispatch.private_aperture
    return (high == shared << 16) & bool(shared), (high == private << 16) & bool(private)


def _wide(step: Step, first: int, lanes: Lanes) -> Addresses:
    low, high = (step.regs.vector(first + at, lanes).astype(np.uint64) for at in (0, 1))
    return (low | high << np.uint64(32)).view(np.int64)


def _global_addresses(step: Step, lanes: Lanes) -> Addresses:
    saddr, offset = step.field["saddr"], step.ins.offset
    base = step.regs.scalar(saddr, 2) if saddr != NULL else 0
    base += offset
    if "addtid" in step.ins.mnemonic:
        return _signed(base) + 4 * np.arange(lanes.size, dtype=np.int64)
    if saddr == NULL:
        return _wide(step, step.field["addr"], lanes) + offset
    return _signed(base) + step.regs.vector(step.field["addr"], lanes).astype(np.int64)


def _signed(address: int) -> int:
    address &= 0xFFFF_FFFF_FFFF_FFFF
    return address - (1 << 64) if address >> 63 else address


def _scratch_offsets(step: Step, lanes: Lanes) -> Addresses:
    """Return offsets in a lane's own scratch, for ST, SS, SV and SVS addressing. On RDNA4 those in registers have a
    sign.
    """
    offsets = np.full(lanes.size, step.ins.offset, np.int64)
    is_signed = step.machine.generation.signed_scratch
    if step.field["saddr"] != NULL:
        scalar = step.regs.scalar(step.field["saddr"])
        offsets += scalar - (scalar >> 31 << 32 if is_signed else 0)
    if step.field["sve"]:
        vector = step.regs.vector(step.field["addr"], lanes)
        offsets += (vector.view(np.int32) if is_signed else vector).astype(np.int64)
    return offsets


def _scratch(step: Step, offsets: Addresses, size_bytes: int, lanes: Lanes) -> Part:
    """Interleave the lanes dword by dword from FLAT_SCRATCH. Source: "Scratch Addressing Equation"."""
    regs, dispatch = step.regs, step.machine.dispatch
    at = byte_addresses(offsets, size_bytes)
    of_lane = dispatch.scratch_wave_bytes // lanes.size
    beyond = lanes & ((at < 0) | (at >= of_lane)).any(axis=1)
    if step.machine.strict and beyond.any():
        lane = int(beyond.argmax())
        raise RuleBroken(
            "memory", f"lane {lane} reaches scratch {int(offsets[lane]):#x}; {of_lane:#x} bytes are allocated to it"
        )
    low = step.machine.generation.start.flat_scratch
    base = int(regs.words[low]) | int(regs.words[low + 1]) << 32
    lane_offset = 4 * np.arange(lanes.size, dtype=np.int64)[:, None]
    return GlobalSpace(step), lanes, _signed(base) + (at // 4) * 4 * lanes.size + at % 4 + lane_offset


def _aligned(step: Step, addresses: Addresses, size_bytes: int, lanes: Lanes) -> Addresses:
    """Apply SH_MEM_CONFIG.alignment_mode: unaligned, or drop low bits (to a dword, or to a smaller access's size)."""
    if step.machine.dispatch.mtype_unaligned or "_atomic_" in step.ins.mnemonic:
        return addresses
    return force_aligned(step, addresses, min(size_bytes & -size_bytes, 4), lanes)


def force_aligned(step: Step, addresses: Addresses, size_bytes: int, lanes: Lanes) -> Addresses:
    """Drop the low bits of addresses as hardware does; strict mode raises if any is set."""
    bad = lanes & (addresses % size_bytes != 0)
    if step.machine.strict and bad.any():
        lane = int(bad.argmax())
        raise RuleBroken(
            "alignment", f"lane {lane} is at {int(addresses[lane]):#x}, which is not a multiple of {size_bytes}"
        )
    return addresses & -size_bytes


def lds_aligned(step: Step, addresses: Addresses, size_bytes: int, lanes: Lanes) -> Addresses:
    """Align LDS addresses to the native size unless unaligned accesses are enabled.

    Source: "LDS/GDS Alignment and Out-of-Range".
    """
    if step.machine.dispatch.mtype_unaligned or size_bytes == 1:
        return addresses
    return force_aligned(step, addresses, 16 if size_bytes > 8 else size_bytes, lanes)


# ---- scalar memory


def scalar_memory(step: Step) -> None:
    """Execute an SMEM instruction: a load of 1 to 16 dwords, plain or through a buffer resource, or a cache
    invalidation.
    """
    mnemonic = step.ins.mnemonic
    if "prefetch" in mnemonic:
        return
    if step.machine.generation.is_gcn and mnemonic.startswith(_NOT_MODELLED):
        raise Unmodelled(f"{step.ins.spelling} at {step.pc:#x}: stores and atomics of the scalar unit")
    if mnemonic in CLOCKS:
        counters = step.machine.counters
        value = counters.instructions if mnemonic == CLOCKS[0] else step.machine.events.realtime()
        first = step.field["sdata"]
        step.regs.set_scalar(first, value & (1 << 64) - 1, 2)
        step.issue(step.orders.scalar, sgprs=range(first, first + 2))
        return
    if "load" not in mnemonic:
        # s_dcache_inv has no scope
        if (scoped := step.machine.scoped) is not None:
            scoped.maintain(step.access(least=Scope.SE, is_scalar=True), invalidate=True, write_back=False)
        step.issue(step.orders.scalar)
        return
    regs, first = step.regs, step.field["sdata"]
    # b32, i8, …
    loaded = mnemonic.rpartition("_")[2]
    bits = int(loaded[1:])
    size, count = bits // 8, -(-bits // 32)
    offset = step.ins.offset + regs.scalar(step.field["soffset"])
    base = step.field["sbase"] << 1
    found = _buffer_bytes(step, base, offset, size) if "buffer" in mnemonic else _plain_bytes(step, base, offset, size)
    value = int.from_bytes(found, "little", signed=loaded[0] == "i")
    regs.set_scalar(first, value & (1 << 32 * count) - 1, count)
    written = range(first, first + count) if first != NULL else range(0)
    step.issue(step.orders.scalar, cost=min(count, 2), sgprs=written)


def _scalar_address(step: Step, address: int, size_bytes: int) -> int:
    """Drop the low bits of an address, as far as the load's size or a dword has them."""
    align = min(size_bytes, 4)
    if address % align and step.machine.strict:
        raise RuleBroken("alignment", f"a scalar load at {address:#x}")
    return address & -align


def _plain_bytes(step: Step, base: int, offset: int, size_bytes: int) -> bytes:
    if offset < 0 and step.ins.offset < 0 and step.field["soffset"] != NULL:
        raise RuleBroken("memory", f"instruction and register offset are {offset} together; they may not be negative")
    address = step.regs.scalar(base, 2) + offset & 0xFFFF_FFFF_FFFF_FFFF
    return scalar_bytes(step, _scalar_address(step, address, size_bytes), size_bytes)


def scalar_bytes(step: Step, gpu_va: int, size_bytes: int) -> bytes:
    """Read consecutive bytes for the whole wave."""
    addresses = byte_addresses(np.array([_signed(gpu_va)], np.int64), size_bytes)
    only = np.ones(1, np.bool_)
    step.machine.count_lines(addresses, only)
    return step.machine.read(addresses, only, step.access(is_scalar=True)).tobytes()


def _buffer_bytes(step: Step, base: int, offset: int, size_bytes: int) -> bytes:
    """Load through a resource: dwords beyond stride * num_records are zero. Only base, stride and num_records are
    used.
    """
    unit = min(size_bytes, 4)
    if step.ins.offset < 0:
        raise RuleBroken("memory", "a buffer load with a negative offset")
    resource = step.regs.scalar(base, 4)
    size = max(resource >> 48 & 0x3FFF, 1) * (resource >> 64 & 0xFFFF_FFFF)
    start = (resource & 0xFFFF_FFFF_FFFF) & -unit
    offset = _scalar_address(step, offset, size_bytes)
    inside = min(max(-(-(size - offset) // unit), 0), size_bytes // unit)
    found = scalar_bytes(step, start + offset, unit * inside) if inside else b""
    return found.ljust(size_bytes, b"\0")
