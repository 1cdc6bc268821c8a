"""Memory instructions: global, generic, shared, local memory, constants, atomics.

Source: PTX ISA, "State Spaces", ld, st, atom, red, ldmatrix, cp.async; names by Mesa's NAK (MIT). Every access reaches
memory at once, whatever its scope; so fences have nothing to do.
"""

from __future__ import annotations

import ctypes
import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ringup.errors import Unmodelled
from ringup.silicon.shader.nv.decoding.instruction import PT, RZ, Kind
from ringup.silicon.shader.nv.interpreter.step import RuleBroken
from ringup.silicon.shader.nv.state import LANES, lanes
from ringup.silicon.shader.nv.values.atomics import combined_value

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ringup.silicon.shader.common.state import Memory
    from ringup.silicon.shader.nv.decoding.instruction import Instruction, Operand
    from ringup.silicon.shader.nv.interpreter.step import Step

WINDOW_BYTES = 1 << 24
_SIZES = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}
_SIGNED = ("S8", "S16")


class Shape(NamedTuple):
    """What one lane accesses."""

    size_bytes: int
    is_signed: bool

    @property
    def registers(self) -> int:
        """How many registers hold it."""
        return max(self.size_bytes // 4, 1)


def shape_of(ins: Instruction) -> Shape:
    """Return the size of an access: 4 bytes without a modifier."""
    # `.U` of LDS and the type of an atomic are no sizes.
    name = next((one for one in ins.modifiers if one in _SIZES), "")
    return Shape(_SIZES.get(name, 4), name in _SIGNED)


def read_bytes(memory: Memory, gpu_va: int, size_bytes: int) -> bytes:
    """Return bytes that lie in one region."""
    region = memory.region(gpu_va, write=False)
    return ctypes.string_at(region.pointer + gpu_va - region.gpu_va, size_bytes)


class _Space(NamedTuple):
    """Where an address leads: functions that load and store one lane's bytes."""

    load: Callable[[int, int], bytes]
    store: Callable[[int, bytes], None]


def global_space(step: Step) -> _Space:
    """Return the memory behind the page tables."""
    memory = step.machine.memory

    def load(gpu_va: int, size: int) -> bytes:
        return read_bytes(memory, gpu_va, size)

    def store(gpu_va: int, data: bytes) -> None:
        region = memory.region(gpu_va, write=True)
        ctypes.memmove(region.pointer + gpu_va - region.gpu_va, data, len(data))

    return _Space(load, store)


def _array_space(name: str, array: NDArray[np.uint8], written: NDArray[np.bool_] | None) -> _Space:
    def check(at: int, size: int) -> None:
        if not 0 <= at <= array.size - size:
            raise RuleBroken("memory", f"{name} address {at:#x} is beyond the {array.size:#x} bytes of the launch")

    def load(at: int, size: int) -> bytes:
        check(at, size)
        if written is not None and not written[at : at + size].all():
            raise RuleBroken("uninitialised", f"{name} memory at {at:#x} was never written")
        return array[at : at + size].tobytes()

    def store(at: int, data: bytes) -> None:
        check(at, len(data))
        array[at : at + len(data)] = np.frombuffer(data, np.uint8)
        if written is not None:
            written[at : at + len(data)] = True

    return _Space(load, store)


def shared_space(step: Step) -> _Space:
    """Return the shared memory of a warp's group."""
    group = step.group
    return _array_space("shared", group.shared, group.shared_written if step.machine.strict else None)


def _local_space(step: Step, lane: int) -> _Space:
    """Local memory of one thread.

    It is kept beside the group, not in the memory that the channel gave: programs reach it only by these instructions
    and by generic addresses.
    """
    group = step.group
    size = group.launch.local_low_bytes + group.launch.local_high_bytes
    if group.local is None:
        group.local = np.zeros((len(group.warps), -(-size // 4), LANES), np.uint32)
    column = group.local[step.warp.number, :, lane]

    def words(at: int, count: int) -> slice:
        if not 0 <= at <= size - count:
            raise RuleBroken("memory", f"local address {at:#x} is beyond the {size:#x} bytes of the launch")
        return slice(at // 4, -(-(at + count) // 4))

    def load(at: int, count: int) -> bytes:
        return column[words(at, count)].tobytes()[at % 4 : at % 4 + count]

    def store(at: int, data: bytes) -> None:
        place = words(at, len(data))
        changed = bytearray(column[place].tobytes())
        changed[at % 4 : at % 4 + len(data)] = data
        column[place] = np.frombuffer(bytes(changed), np.uint32)

    return _Space(load, store)


def addresses(step: Step, operand: Operand) -> list[int]:
    """Return the address of each lane: a register or a pair, a uniform register or a pair, and an offset."""
    wide = operand.is_wide or step.ins.has("E")
    total = np.full(LANES, operand.value & 0xFFFF_FFFF_FFFF_FFFF, np.uint64)
    if operand.register >= 0 and operand.register != RZ:
        pair = operand.is_wide or (step.ins.has("E") and operand.uniform < 0)
        if pair:
            total += step.pair(operand.register)
        else:
            total += step.register(operand.register).astype(np.uint64) * np.uint64(operand.scale)
    if operand.uniform >= 0:
        total += np.uint64(step.uniform_pair(operand.uniform) if wide else step.uniform(operand.uniform))
    check_defined(step, operand)
    found = total if wide else total & np.uint64(0xFFFF_FFFF)
    return [int(one) for one in found]


def check_defined(step: Step, operand: Operand) -> None:
    """Raise if the register of an address was never given a value in a lane that accesses memory."""
    if step.track is None or operand.register in (-1, RZ):
        return
    lanes_without = step.track.is_undefined("R", operand.register, step.mask)
    if lanes_without:
        lane = (lanes_without & -lanes_without).bit_length() - 1
        raise RuleBroken(
            "uninitialised", f"R{operand.register} is an address and was never given a value in lane {lane}", lane
        )


def _space_at(step: Step, lane: int, address: int) -> tuple[_Space, int]:
    """Return where the address of a memory instruction leads, and the place there."""
    name = step.ins.name
    if name in ("LDS", "STS", "ATOMS", "LDSM"):
        return shared_space(step), address
    if name in ("LDL", "STL"):
        return _local_space(step, lane), address & 0xFF_FFFF
    windows = step.group.launch.windows
    if name in ("LD", "ST", "ATOM"):
        if 0 <= address - windows.shared < WINDOW_BYTES:
            return shared_space(step), address - windows.shared
        if 0 <= address - windows.local < WINDOW_BYTES:
            return _local_space(step, lane), address - windows.local
    return global_space(step), address


def aligned(address: int, size: int, lane: int) -> None:
    """Raise for an address that is no multiple of the access's size."""
    if address % size:
        raise RuleBroken("alignment", f"lane {lane}: {address:#x} is no multiple of {size}", lane, address)


def _load(step: Step) -> None:
    rd, place = step.ins.operands[:2]
    shape = shape_of(step.ins)
    where = addresses(step, place)
    found = np.zeros((shape.registers, LANES), np.uint32)
    for lane in lanes(step.mask):
        aligned(where[lane], shape.size_bytes, lane)
        space, at = _space_at(step, lane, where[lane])
        data = space.load(at, shape.size_bytes)
        if shape.size_bytes < 4:
            found[0, lane] = int.from_bytes(data, "little", signed=shape.is_signed) & 0xFFFF_FFFF
        else:
            found[:, lane] = np.frombuffer(data, "<u4")
    if rd.value != RZ:
        for number in range(shape.registers):
            step.write_register(rd.value + number, found[number])


def _register_bytes(step: Step, number: int, shape: Shape, lane: int) -> bytes:
    if number == RZ:
        return bytes(shape.size_bytes)
    words = [int(step.register(number + at)[lane]) for at in range(shape.registers)]
    return b"".join(word.to_bytes(4, "little") for word in words)[: shape.size_bytes]


def _store(step: Step) -> None:
    place, source = step.ins.operands[:2]
    shape = shape_of(step.ins)
    where = addresses(step, place)
    for lane in lanes(step.mask):
        aligned(where[lane], shape.size_bytes, lane)
        space, at = _space_at(step, lane, where[lane])
        space.store(at, _register_bytes(step, source.value, shape, lane))


def _ldc(step: Step) -> None:
    """Load a constant at an offset, which a register may add to."""
    rd, place = step.ins.operands
    if any(step.ins.has(one) for one in ("IL", "IS", "ISL")):
        raise Unmodelled(f"{step.ins.text}: this mode")
    shape = shape_of(step.ins)
    if rd.kind is Kind.UNIFORM:
        offset = place.value
        if place.bank >= 0 and place.uniform >= 0:
            offset += step.uniform(place.uniform)
        value = step.constant_at(place, offset, shape.size_bytes)
        for number in range(shape.registers):
            part = np.full(LANES, value >> 32 * number & 0xFFFF_FFFF, np.uint32)
            step.write(rd._replace(value=rd.value + number), part)
        return
    offsets = np.full(LANES, place.value, np.int64)
    if place.register >= 0:
        offsets += step.register(place.register).astype(np.int64)
    found = np.zeros((shape.registers, LANES), np.uint32)
    for lane in lanes(step.mask):
        offset = int(offsets[lane]) & 0xFFFF_FFFF
        aligned(offset, shape.size_bytes, lane)
        value = step.constant_at(place, offset, shape.size_bytes)
        if shape.is_signed:
            value -= (value >> 8 * shape.size_bytes - 1) << 8 * shape.size_bytes
        for number in range(shape.registers):
            found[number, lane] = value >> 32 * number & 0xFFFF_FFFF
    if rd.value != RZ:
        for number in range(shape.registers):
            step.write_register(rd.value + number, found[number])


def _atomic(step: Step) -> None:
    """Read, combine, write, lane by lane. RED has no result; ATOMG has a predicate before it."""
    ins = step.ins
    operands = list(ins.operands)
    place = next(at for at, one in enumerate(operands) if one.kind is Kind.ADDRESS)
    results, (address, *sources) = operands[:place], operands[place:]
    rd = results[-1].value if results else RZ
    how, kind = operation(ins)
    size = {"64": 8, "S64": 8, "F64": 8}.get(kind, 4)
    shape = Shape(size, False)
    where = addresses(step, address)
    found = np.zeros((shape.registers, LANES), np.uint32)
    for lane in lanes(step.mask):
        aligned(where[lane], size, lane)
        space, at = _space_at(step, lane, where[lane])
        data = [
            int.from_bytes(_register_bytes(step, one.value, shape, lane), "little")
            for one in sources
            if one.kind is Kind.REGISTER
        ]
        old = int.from_bytes(space.load(at, size), "little")
        value = combined_value(how, kind, old, data)
        space.store(at, value.to_bytes(size, "little"))
        found[:, lane] = np.frombuffer(old.to_bytes(size, "little"), "<u4")
    if rd != RZ:
        for number in range(shape.registers):
            step.write_register(rd + number, found[number])


_OPERATIONS = ("ADD", "MIN", "MAX", "INC", "DEC", "AND", "OR", "XOR", "EXCH", "CAS")
_TYPES = ("S32", "64", "S64", "F32", "F64", "F16x2", "BF16x2")
# Those of Hopper.
_VECTORS = re.compile(r"B?F\d+x\d+")


def operation(ins: Instruction) -> tuple[str, str]:
    """Return the operation and the type: U32 without a modifier."""
    how = next((one for one in ins.modifiers if one in _OPERATIONS), "")
    if not how:
        raise Unmodelled(f"{ins.text}: this atomic operation")
    kind = next((one for one in ins.modifiers if one in _TYPES or _VECTORS.fullmatch(one)), "U32")
    if kind not in (*_TYPES, "U32"):
        raise Unmodelled(f"{ins.text}: several floats at once")
    return how, "F32.FTZ" if kind == "F32" and ins.has("FTZ") else kind


def _ldgsts(step: Step) -> None:
    """Copy from global to shared memory. The bytes are there at once, but strict mode wants them to be waited for."""
    ins = step.ins
    to, source, *rest = ins.operands
    if any(one.value != PT or one.invert for one in rest):
        raise Unmodelled(f"{ins.text}: a predicate")
    shape = shape_of(ins)
    base = step.register(to.register) if to.register >= 0 else np.zeros(LANES, np.uint32)
    where = addresses(step, source)
    check_defined(step, to)
    shared, whole = shared_space(step), global_space(step)
    for lane in lanes(step.mask):
        at = int(base[lane]) + to.value & 0xFFFF_FFFF
        aligned(at, shape.size_bytes, lane)
        aligned(where[lane], shape.size_bytes, lane)
        shared.store(at, whole.load(where[lane], shape.size_bytes))
        if step.track is not None:
            step.group.shared_written[at : at + shape.size_bytes] = False
            step.warp.copies[-1].append((at, at + shape.size_bytes))


def _ldgdepbar(step: Step) -> None:
    """Close a batch of copies to shared memory. Source: PTX ISA, cp.async.commit_group."""
    step.warp.copies.append([])


def _depbar(step: Step) -> None:
    """Wait until at most so many batches of copies are left. Source: PTX ISA, cp.async.wait_group."""
    copies, left = step.warp.copies, step.ins.operands[1].value
    done = copies[: max(len(copies) - 1 - left, 0)]
    step.warp.copies = copies[len(done) :]
    for start, end in (one for batch in done for one in batch):
        step.group.shared_written[start:end] = True


def _nothing(step: Step) -> None:
    """Fences, cache control and prefetches: every access has reached memory."""


RULES: dict[str, Callable[[Step], None]] = {
    **dict.fromkeys(("LDG", "LD", "LDS", "LDL"), _load), **dict.fromkeys(("STG", "ST", "STS", "STL"), _store),
    **dict.fromkeys(("ATOMG", "ATOM", "ATOMS", "RED", "REDG"), _atomic), "LDC": _ldc, "ULDC": _ldc, "LDCU": _ldc,
    "LDGSTS": _ldgsts, "LDGDEPBAR": _ldgdepbar, "DEPBAR": _depbar,
    **dict.fromkeys(("MEMBAR", "CCTL", "ERRBAR", "NOP", "NANOSLEEP"), _nothing),
}  # fmt: skip
