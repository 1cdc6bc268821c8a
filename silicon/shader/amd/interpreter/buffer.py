"""MUBUF and MTBUF: memory through a buffer resource, with its addressing, swizzling, range checks and formats.

Source: RDNA3 and RDNA4 ISA references, "Vector Memory Buffer Instructions".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ringup.errors import Unmodelled
from ringup.silicon.shader.amd.interpreter.atomics import operation
from ringup.silicon.shader.amd.interpreter.formats import (
    FORMATS,
    INVALID,
    BufferFormat,
    from_d16,
    pack,
    to_d16,
    unpack,
)
from ringup.silicon.shader.amd.interpreter.memory import (
    TRANSFERS,
    atomic_size,
    force_aligned,
    load_to_lds,
    memory_flush,
    split,
)
from ringup.silicon.shader.amd.interpreter.spaces import (
    GlobalSpace,
    Transfer,
    atomic,
    check_stored,
    deliver,
    numbers,
    stored,
)
from ringup.silicon.shader.amd.strict.history import RuleBroken
from ringup.silicon.shader.common.texels import F32_ONE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ringup.silicon.shader.amd.decoding.generations import Order
    from ringup.silicon.shader.amd.interpreter.step import Addresses, Bytes, Lanes, Step

OOB_STRUCTURED, OOB_INDEX, OOB_EMPTY, OOB_RAW = range(4)
ELEMENT_BYTES = {1: 4, 3: 16}  # by swizzle enable
STRIDE_SCALES = (1, 4, 8, 32)
SELECT_ONE, SELECT_X = 1, 4
IDENTITY = (4, 5, 6, 7)
FORMAT_PRESENT = 1  # of a descriptor of GCN, whose formats are not modelled


@dataclass(frozen=True, slots=True)
class Resource:
    """A buffer resource descriptor (V#)."""

    base: int
    stride: int
    swizzle: int
    num_records: int
    selects: tuple[int, ...]
    format: int
    index_stride: int
    adds_thread: bool
    oob: int
    type: int

    @property
    def is_unbound(self) -> bool:
        """Whether loads give zero and stores do nothing: the format is invalid, or the resource is not a buffer."""
        return (self.format == INVALID and not self.adds_thread) or self.type != 0


def resource(words: int, *, scales: bool = False) -> Resource:
    """Unpack the 128 bits of a descriptor; `scales` if it has a scale of the stride.

    Source: "Buffer Resource Descriptor".
    """

    def bits(high: int, low: int) -> int:
        return words >> low & (1 << high - low + 1) - 1

    stride = bits(61, 48) * (STRIDE_SCALES[bits(115, 114)] if scales else 1)
    return Resource(
        bits(47, 0), stride, bits(63, 62), bits(95, 64), tuple(bits(98 + 3 * at, 96 + 3 * at) for at in range(4)),
        bits(113, 108), 8 << bits(118, 117), bool(bits(119, 119)), bits(125, 124), bits(127, 126),
    )  # fmt: skip


def gcn_resource(words: int, *, scales: bool = False) -> Resource:
    """Unpack a descriptor of GCN.

    Without swizzling the range is checked by byte. Source: CDNA3 ISA reference, "Buffer Resource Descriptor", "Range
    Checking".
    """
    del scales

    def bits(high: int, low: int) -> int:
        return words >> low & (1 << high - low + 1) - 1

    stride, swizzle = bits(61, 48), 3 * bits(63, 63)
    number = FORMAT_PRESENT if bits(114, 111) else INVALID
    return Resource(
        bits(47, 0), stride, swizzle, bits(95, 64), tuple(bits(98 + 3 * at, 96 + 3 * at) for at in range(4)), number,
        8 << bits(118, 117), bool(bits(119, 119)), OOB_RAW, bits(127, 126),
    )  # fmt: skip


@dataclass(slots=True)
class _Access:
    """Which bytes of a buffer the lanes of one instruction access."""

    buffer: Resource
    index: Addresses
    offset: Addresses
    scalar_offset: int
    swizzles_scalar: bool = False  # the scalar offset is swizzled with the others

    def addresses(self, size_bytes: int) -> Addresses:
        """Return addresses (lanes, bytes). Source: "Swizzled Buffer Addressing", "Structured Buffer"."""
        buffer = self.buffer
        offset = self.offset[:, None] + np.arange(size_bytes, dtype=np.int64)
        index = self.index[:, None]
        start = buffer.base + self.scalar_offset
        element = ELEMENT_BYTES.get(buffer.swizzle)
        if element is not None and self.swizzles_scalar:
            start, offset = buffer.base, offset + self.scalar_offset & 0xFFFF_FFFF
        if element is None:
            return start + buffer.stride * index + offset
        high, low = index // buffer.index_stride, index % buffer.index_stride
        within = (high * buffer.stride + offset // element * element) * buffer.index_stride
        return start + within + low * element + offset % element

    def inside(self, at: int, size_bytes: int) -> Lanes:
        """Return which lanes may access `size_bytes` from byte `at` of their data.

        Source: "Buffer Out Of Bounds Selection".
        """
        buffer, end = self.buffer, self.offset + at + size_bytes
        records = buffer.num_records
        if buffer.oob == OOB_STRUCTURED or (
            buffer.oob == OOB_RAW and buffer.swizzle in ELEMENT_BYTES and buffer.stride
        ):
            return (self.index < records) & (end <= buffer.stride)
        if buffer.oob == OOB_INDEX:
            return self.index < records
        if buffer.oob == OOB_EMPTY:
            return np.full(self.index.shape, records != 0)
        return buffer.stride * self.index + end <= records - self.scalar_offset


def _access(step: Step, lanes: Lanes) -> _Access:
    regs, field = step.regs, step.field
    described = next(one for one in step.ins.uses if one.field in ("srsrc", "rsrc"))
    scales = step.machine.generation.scales_buffers
    unpack_resource = gcn_resource if step.machine.generation.is_gcn else resource
    buffer = unpack_resource(regs.scalar(described.index, 4), scales=scales)
    index, offset = np.zeros(lanes.size, np.int64), np.full(lanes.size, field["offset"], np.int64)
    first = field["vaddr"]
    if field["idxen"]:
        index = index + regs.vector(first, lanes)
        first += 1
    if field["offen"]:
        offset = offset + regs.vector(first, lanes)
    if buffer.adds_thread:
        index = index + np.arange(lanes.size)
    operand = next(one for one in step.ins.uses if one.field == "soffset")
    scalar = regs.scalar(operand.index) if operand.kind == "sgpr" else operand.bits
    return _Access(buffer, index, offset, scalar & 0xFFFF_FFFF, swizzles_scalar=scales)


def vector_buffer(step: Step) -> None:
    """Execute a MUBUF or MTBUF instruction."""
    if step.ins.mnemonic.endswith("_inv"):
        return
    # A write-back counts as a store. Source: LLVM AMDGPUUsage, "Memory Model GFX942"
    if step.ins.mnemonic == "buffer_wbl2":
        step.issue(step.orders.stores)
        return
    _, verb, rest = split(step.ins.mnemonic)
    lanes = step.regs.exec_lanes()
    access = _access(step, lanes)
    if step.machine.generation.is_gcn and ("format" in rest or access.buffer.swizzle):
        raise Unmodelled(f"{step.ins.spelling} at {step.pc:#x}: formats and swizzling of GCN's buffers")
    if step.field.get("lds") and step.machine.generation.is_gcn:
        _load_to_lds(step, TRANSFERS[rest], access, lanes)
    elif "format" in rest:
        _formatted(step, verb, rest, access, lanes)
    elif verb == "atomic":
        _atomic(step, rest, access, lanes)
    elif verb == "load":
        _load(step, TRANSFERS[rest], access, lanes)
    else:
        _store(step, TRANSFERS[rest], access, lanes)


def _bound(access: _Access, lanes: Lanes, at: int, size_bytes: int) -> Lanes:
    return lanes & access.inside(at, size_bytes) & (not access.buffer.is_unbound)


def _bound_units(access: _Access, lanes: Lanes, size_bytes: int, unit: int) -> Lanes:
    """Return, for each dword (or smaller unit) of each lane, lane by lane, whether it may be accessed.

    Lane order makes the highest lane win where lanes overlap.
    """
    units = [_bound(access, lanes, at, unit) for at in range(0, size_bytes, unit)]
    some: Lanes = np.stack(units, axis=1).reshape(-1)
    return some


def _check(step: Step, access: _Access, size_bytes: int, lanes: Lanes) -> Addresses:
    """Return byte addresses, aligned as SH_MEM_CONFIG requires. A swizzled access must stay in its element."""
    element = ELEMENT_BYTES.get(access.buffer.swizzle)
    if element is not None and step.machine.strict:
        wrong = lanes & ((access.offset % 4 != 0) | (access.offset % element + size_bytes > element))
        if size_bytes >= 4 and wrong.any():
            lane = int(wrong.argmax())
            raise RuleBroken(
                "alignment",
                f"lane {lane} accesses {size_bytes} bytes at offset {int(access.offset[lane]):#x}, beyond its swizzled element",
            )
    addresses = access.addresses(size_bytes)
    if step.machine.dispatch.mtype_unaligned:
        return addresses
    aligned = force_aligned(step, addresses[:, 0], min(size_bytes & -size_bytes, 4), lanes)
    return addresses + (aligned - addresses[:, 0])[:, None]


def finish_load(step: Step, first: int, count: int, lanes: Lanes, order: Order | None = None) -> None:
    """Count a load into `count` VGPRs from `first` up, in `order`, and write its status if it has one."""
    order = order or step.orders.loads
    if step.field.get("tfe"):
        step.regs.set_vector(first + count, np.zeros(lanes.size, np.uint32), lanes, order=order)
        count += 1
    step.issue(order, vgprs=range(first, first + count) if lanes.any() else range(0))


def _load(step: Step, transfer: Transfer, access: _Access, lanes: Lanes) -> None:
    first, size = step.field["vdata"], transfer.size_bytes
    if not step.regs.vector_fits(first, transfer.register_count + step.field.get("tfe", 0)):
        lanes = np.zeros_like(lanes)
    addresses = _check(step, access, size, lanes)
    unit = min(size, 4)
    data, _ = GlobalSpace(step).read(addresses.reshape(-1, unit), _bound_units(access, lanes, size, unit))
    data = data.reshape(lanes.size, size)
    deliver(step, first, transfer, data, None, lanes, step.orders.loads)
    finish_load(step, first, transfer.register_count, lanes)


def _load_to_lds(step: Step, transfer: Transfer, access: _Access, lanes: Lanes) -> None:
    size = transfer.size_bytes
    some = _bound(access, lanes, 0, size)
    load_to_lds(step, transfer, [(GlobalSpace(step), some, _check(step, access, size, lanes))], lanes)


def _store(step: Step, transfer: Transfer, access: _Access, lanes: Lanes) -> None:
    size = transfer.size_bytes
    addresses = _check(step, access, size, lanes)
    data, _ = stored(step, step.field["vdata"], transfer, lanes)
    unit = min(size, 4)
    some = _bound_units(access, lanes, size, unit)
    GlobalSpace(step).write(addresses.reshape(-1, unit), some, data.reshape(-1, unit), None)
    step.issue(step.orders.stores)


def _atomic(step: Step, name: str, access: _Access, lanes: Lanes) -> None:
    size, first, returns = atomic_size(name), step.field["vdata"], bool(step.field["glc"])
    count = size // 4
    sources = numbers(step, first, size, lanes)
    more = numbers(step, first + count, size, lanes) if name.startswith("cmpswap") else sources
    some = _bound(access, lanes, 0, size)
    function = operation(name, memory_flush(step, name))
    found, _ = atomic(step, GlobalSpace(step), access.addresses(size), size, some, function, sources, more)
    if returns:
        found = np.where(some[:, None], found, np.uint8(0))
        deliver(step, first, Transfer(size), found, None, lanes, step.orders.loads)
        finish_load(step, first, count, lanes)
    else:
        step.issue(step.orders.stores)


# ---- formats


def _selected(select: int, components: list[int], fmt: BufferFormat) -> int:
    """Return the value of a destination select. UNKNOWN: a component that the format lacks reads as 0."""
    if select >= SELECT_X:
        at = select - SELECT_X
        return components[at] if at < len(components) else 0
    return (1 if fmt.is_integer else F32_ONE) if select == SELECT_ONE else 0


def _formatted(step: Step, verb: str, rest: str, access: _Access, lanes: Lanes) -> None:
    is_typed = step.ins.mnemonic.startswith("tbuffer")
    number = step.field["format"] if is_typed else access.buffer.format
    fmt = FORMATS.get(number)
    if fmt is None and number != INVALID:
        raise RuleBroken("illegal", f"buffer format {number} is reserved")
    is_d16, is_high, count = "d16" in rest, "_hi_" in rest, len(rest.rpartition("_")[2])
    # Without a format nothing is accessed.
    if fmt is None:
        fmt, some = FORMATS[1], np.zeros_like(lanes)
    else:
        some = _bound(access, lanes, 0, fmt.size_bytes)
    selects = IDENTITY if is_typed else access.buffer.selects
    addresses = access.addresses(fmt.size_bytes)
    misaligned = some & (addresses[:, 0] % fmt.alignment != 0)
    if misaligned.any():
        raise RuleBroken(
            "alignment",
            f"a typed access at {int(addresses[misaligned][0, 0]):#x}, which is not a multiple of {fmt.alignment}",
        )
    space, first = GlobalSpace(step), step.field["vdata"]
    if verb == "load":
        data, _ = space.read(addresses, some)
        words = loaded(fmt, data, some, selects, count, is_d16=is_d16)
        deliver_components(step, first, words, count, lanes, is_d16=is_d16, is_high=is_high)
        return
    components = components_of(step, first, fmt, count, lanes, is_d16=is_d16, is_high=is_high)
    packed = np.zeros((lanes.size, fmt.size_bytes), np.uint8)
    for lane in np.flatnonzero(some):
        packed[lane] = np.frombuffer(pack(fmt, arranged(selects, [int(one) for one in components[:, lane]])), np.uint8)
    space.write(addresses, some, packed, None)
    step.issue(step.orders.stores)


def arranged(selects: tuple[int, ...], registers: list[int]) -> list[int]:
    """Return the components of stored registers, in the places from which a load with these selects reads them."""
    found = [0] * 4
    for at, select in enumerate(selects):
        if select >= SELECT_X and at < len(registers):
            found[select - SELECT_X] = registers[at]
    return found


def loaded(
    fmt: BufferFormat, data: Bytes, some: Lanes, selects: tuple[int, ...], count: int, *, is_d16: bool
) -> NDArray[np.uint32]:
    """Return (components, lanes). Out of range everything is 0, except components selected to be 1."""
    words = np.zeros((count, some.size), np.uint32)
    for lane in range(some.size):
        components = unpack(fmt, data[lane].tobytes()) if some[lane] else [0] * len(fmt.widths)
        for at in range(count):
            value = _selected(selects[at], components, fmt)
            words[at, lane] = to_d16(fmt, value) if is_d16 else value
    return words


def deliver_components(
    step: Step,
    first: int,
    words: NDArray[np.uint32],
    count: int,
    lanes: Lanes,
    *,
    is_d16: bool,
    is_high: bool,
    order: Order | None = None,
) -> None:
    """Write loaded components (components, lanes) to VGPRs, and count the load in `order`."""
    order = order or step.orders.loads
    registers = -(-count // 2) if is_d16 else count
    if not step.regs.vector_fits(first, registers):
        lanes = np.zeros_like(lanes)
    for at in range(registers):
        value = words[at]
        if is_d16:
            pair = words[2 * at : 2 * at + 2]
            old = step.regs.wave.vgprs[first + at] if step.regs.vector_fits(first + at) else pair[0]
            if is_high:
                value = old & np.uint32(0xFFFF) | pair[0] << np.uint32(16)
            else:
                value = pair[0] | (pair[1] << np.uint32(16) if len(pair) == 2 else old & np.uint32(0xFFFF_0000))
        step.regs.set_vector(first + at, value, lanes, order=order)
    finish_load(step, first, registers, lanes, order)


def components_of(
    step: Step, first: int, fmt: BufferFormat, count: int, lanes: Lanes, *, is_d16: bool, is_high: bool
) -> NDArray[np.uint32]:
    """Return the components (components, lanes) that a store takes from VGPRs, as 32-bit registers."""
    check_stored(step, first, -(-count // 2) if is_d16 else count, lanes)
    if not is_d16:
        return np.stack([step.regs.vector(first + at, lanes, decides=False) for at in range(count)])
    found = []
    for at in range(count):
        word = step.regs.vector(first + at // 2, lanes, decides=False)
        half = word >> np.uint32(16 if is_high or at % 2 else 0) & np.uint32(0xFFFF)
        found.append(np.array([from_d16(fmt, int(one)) for one in half], np.uint32))
    return np.stack(found)
