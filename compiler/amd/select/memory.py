"""Memory: global, scalar and LDS accesses, atomics, the barrier.

A uniform load of whole dwords from a buffer that the kernel never writes goes through the scalar cache. Everything else
is a global access with the base in SGPRs and a 32-bit offset in a VGPR. There are two kinds of masked accesses. Where
all offsets are known to be below 2 GiB (the size of the buffer is known), they are buffer accesses. Inactive lanes get
an offset outside the descriptor's range, which reads 0 and stores nothing: that needs one v_cndmask instead of two
writes of EXEC, and allows other instructions to move across the access. Elsewhere EXEC is narrowed around the access,
and loads select 0 afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ringup.compiler.amd.instructions.code import OFF, Operand, Part, Reg
from ringup.compiler.amd.instructions.targets import BEYOND
from ringup.compiler.amd.select.conditions import choose, narrow
from ringup.compiler.amd.select.emitter import Emitter, Place, bank, number, part
from ringup.compiler.amd.select.integers import mask
from ringup.compiler.machine.ir import Value
from ringup.errors import CompileError

Rule = Callable[[Emitter, Value, Place], None]

# Bases moved at the kernel's start. Each keeps two SGPRs until the end.
MOVED_BASES = 8
# Bytes of one vector access.
_WIDTHS = (16, 12, 8, 4)


def _chunks(size_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield (first byte, bytes) of accesses of at most 16 bytes; the last ones may have 2 and 1."""
    first = 0
    while first < size_bytes:
        left = size_bytes - first
        width = next((one for one in _WIDTHS if one <= left), 2 if left >= 2 else 1)
        yield first, width
        first += width


class _Address:
    """The address of a global access: the operands of a global instruction, and the rest for its offset field."""

    def __init__(self, e: Emitter, v: Value) -> None:
        base, offset = v.args[0], v.args[1]
        constant = int(v.imm[1] if v.op == "atomic" else v.imm or 0)
        self.offset: Operand
        self.saddr: Operand
        self.constant = 0
        self._emitter = e
        offset, more = _split_offset(e, offset)
        constant += more
        low, high = e.row.global_offsets
        spread = v.type.size_bytes if v.op == "load" else v.args[2].type.size_bytes if len(v.args) > 2 else 0
        if not low <= constant <= high - spread:
            far = constant & ~0xFFF if constant >= 0 else -(-constant & ~0xFFF)
            base_at = _moved_base(e, base, far)
            constant -= far
        else:
            base_at = e.place(base) if base not in e.bits else e.scalar_register(base)
        self.constant = constant
        if bank(base_at) == "v":
            base_at = e.copied(list(e.pieces(base_at)), "s")
        if offset.type.element == "i64":
            if (
                offset.op == "zext"
                and offset.args[0].type.element == "i32"
                and offset not in e.bits
                and e.reachable(offset)
            ):
                offset = offset.args[0]
            elif offset in e.bits and e.bits[offset] < 1 << 32:
                self.offset, self.saddr = e.copied([number(e.bits[offset], "b32")], "v"), base_at
                return
            elif offset.uniform:
                low_part, high_part = e.pieces(base_at)
                add_low, add_high = e.pieces(e.scalar_register(offset))
                made = e.temporary("s", 2)
                e.emit("s_add_u32", made[0], low_part, add_low)
                e.emit("s_addc_u32", made[1], high_part, add_high)
                self.offset, self.saddr = e.copied([0], "v"), made
                return
            else:
                self.offset, self.saddr = _sum(e, base_at, offset), OFF
                return
        self.offset, self.saddr = e.vector(offset), base_at


def _split_offset(e: Emitter, offset: Value) -> tuple[Value, int]:
    """Split a constant off an offset, if the sum does not wrap around."""
    if (
        offset.op == "add"
        and offset not in e.places
        and offset not in e.bits
        and offset.type.element == "i32"
        and e.reachable(offset)
    ):
        for one, other in (offset.args, offset.args[::-1]):
            constant = e.bits.get(other)
            if constant is not None and one not in e.bits and e.top(one) + constant < 1 << 32 and constant < 1 << 20:
                return one, constant
    return offset, 0


def _moved_base(e: Emitter, base: Value, far: int) -> Place:
    """Return a base moved by bytes that do not fit an instruction's offset. An argument is moved once at the kernel's
    start, any other base here.
    """
    if base.op == "param":
        found = e.moved.get((base, far))
        if found is not None:
            return found
        if len(e.moved) < MOVED_BASES:
            e.place(base)
            made = e.moved[base, far] = Reg("s", 2)
            return made
    made = e.temporary("s", 2)
    _move_base(e, base, far, made)
    return made


def _move_base(e: Emitter, base: Value, far: int, to: Reg) -> None:
    low, high = e.pieces(e.scalar_register(base))
    e.emit("s_add_u32", to[0], low, number(far & 0xFFFFFFFF, "b32"))
    e.emit("s_addc_u32", to[1], high, number(far >> 32 & 0xFFFFFFFF, "b32"))


def _sum(e: Emitter, base: Place, offset: Value) -> Reg:
    """Add a 64-bit offset to the base, in VGPRs."""
    low, high = e.pieces(base)
    add_low, add_high = e.parts(offset)
    made = e.temporary("v", 2)
    first = e.fit((low, add_low))
    e.emit("v_add_co_u32", made[0], e.vcc, *first)
    second = e.fit((high, add_high), 1)
    e.emit("v_add_co_ci_u32", made[1], e.vcc, *second, e.vcc)
    return made


_LOAD_NAMES = {4: "b32", 8: "b64", 12: "b96", 16: "b128"}


def _load(e: Emitter, v: Value, d: Place) -> None:
    condition = v.args[2] if len(v.args) > 2 else None
    if condition is not None and condition in e.bits:
        if not e.bits[condition] & 1:
            for to in e.pieces(d):
                e.move(to, 0)
            return
        condition = None
    if condition is None and e.known.loads_scalar(v) and bank(d) == "s":
        _load_scalar(e, v, d)
        return
    to = d if bank(d) == "v" and not _shared(e, v, d) else e.temporary("v", d.count)
    if condition is None:
        _load_global(e, v, to)
    elif _descriptor_reaches(e, v):
        _load_buffer(e, v, condition, to)
    else:
        held = e.temporary("v", d.count)
        address = _Address(e, v)
        _masked(e, condition, lambda: _read(e, v, held, address))
        choose(e, condition, [(one, of, 0) for one, of in zip(e.pieces(to), e.pieces(held), strict=True)])
    if to is not d:
        for place, one in zip(e.pieces(d), e.pieces(to), strict=True):
            e.move(place, one)


def _shared(e: Emitter, v: Value, d: Place) -> bool:
    """Return whether the first of several loads would overwrite the address of the next."""
    return v.type.size_bytes > 16 and (d.reg if type(d) is Part else d) in e.floors


def _load_global(e: Emitter, v: Value, d: Place) -> None:
    _read(e, v, d, _Address(e, v))


def _read(e: Emitter, v: Value, d: Place, address: _Address) -> None:
    for name, to, first in _pieces(e, v, d):
        e.emit(f"global_load_{name}", to, address.offset, address.saddr, **_offset(address.constant + first))
    _join_third(e, v, d)


def _pieces(e: Emitter, v: Value, d: Place) -> Iterator[tuple[str, Place, int]]:
    """Yield (name after `load_`, destination, first byte) of the accesses of a load."""
    size_bytes = v.type.size_bytes
    for first, width in _chunks(size_bytes):
        if width == 1 and first % 4 == 2 and not e.row.halves_kept:
            third = e.thirds[d] = e.temporary()
            yield "u8", third, first
        else:
            yield _load_name(e, v, width, first), part(d, first // 4, -(-width // 4)), first


def _join_third(e: Emitter, v: Value, d: Place) -> None:
    """Put the third byte of a dword that was loaded by itself into its place."""
    third = e.thirds.pop(d, None)
    if third is not None:
        last = part(d, d.count - 1, 1)
        e.emit("v_lshl_or_b32", last, third, 16, last)


def _offset(constant: int) -> dict[str, object]:
    return {"offset": constant} if constant else {}


def _load_name(e: Emitter, v: Value, width: int, first: int) -> str:
    """Return the name of a load of `width` bytes. Of a vector of bytes, the third of each dword
    goes to the upper half.
    """
    if width >= 4:
        return _LOAD_NAMES[width]
    if width == 1 and first % 4 == 2:
        return "d16_hi_u8"
    signed = v.type.count == 1 and e.known.extends_signed(v)
    return ("i" if signed else "u") + str(width * 8)


_SCALAR_SIZES = (64, 32, 16, 8, 4)


def _load_scalar(e: Emitter, v: Value, d: Place) -> None:
    """Load through the scalar cache. An unsigned offset in an SGPR and one in the instruction can both be added to the
    base.
    """
    base, offset = v.args[0], v.args[1]
    constant = int(v.imm or 0)
    offset, more = _split_offset(e, offset)
    constant += more
    if offset.type.element == "i64" and offset.op == "zext" and offset not in e.bits and e.reachable(offset):
        offset = offset.args[0]
    known = e.bits.get(offset)
    if known is not None:
        constant += known - (1 << 64) if offset.type.bits == 64 and known >> 63 else known
    at = e.scalar_register(base)
    by: Operand | None = None
    if known is None:
        if offset.type.element == "i64":
            low, high = e.pieces(at)
            add_low, add_high = e.pieces(e.scalar_register(offset))
            at = e.temporary("s", 2)
            e.emit("s_add_u32", part(at, 0, 1), low, add_low)
            e.emit("s_addc_u32", part(at, 1, 1), high, add_high)
        else:
            by = e.scalar(offset)
    if not 0 <= constant < e.row.scalar_offset_end - v.type.size_bytes:
        low, high = e.pieces(at)
        moved = e.temporary("s", 2)
        e.emit("s_add_u32", moved[0], low, number(constant & 0xFFFFFFFF, "b32"))
        e.emit("s_addc_u32", moved[1], high, number(constant >> 32 & 0xFFFFFFFF, "b32"))
        at, constant = moved, 0
    load_scalars(e, d, at, by, constant)


def load_scalars(e: Emitter, d: Place, base: Operand, by: Operand | None, constant: int) -> None:
    """Emit loads of consecutive dwords into SGPRs, as wide as the destination's alignment allows."""
    first, count = 0, d.count
    while first < count:
        width = next(
            one
            for one in _SCALAR_SIZES
            if one // 4 <= count - first and (count == one // 4 or first % min(one // 4, 4) == 0)
        )
        at = constant + first * 4
        to = part(d, first, width // 4)
        name = f"s_load_b{width * 8}"
        if by is None:
            e.emit(name, to, base, at)
        else:
            e.emit(name, to, base, by, **_offset(at))
        first += width // 4


def _descriptor_reaches(e: Emitter, v: Value) -> bool:
    """Return whether a descriptor of 2 GiB covers every offset that an access may have."""
    base, offset = v.args[0], v.args[1]
    source = e.known.source(base)
    if source is None or base.op != "param" or offset.type.element != "i32":
        return False
    constant = int(v.imm or 0)
    return 0 < e.function.params[source].size_bytes <= BEYOND and 0 <= constant < 1 << 20


def _descriptor(e: Emitter, base: Value) -> Place:
    """Return the descriptor of 2 GiB from a parameter's address. It is created once, at the kernel's start."""
    found = e.bases.get((base, 0))
    if found is None:
        found = e.bases[base, 0] = Reg("s", 4, name=f"{e.function.params[base.imm].name}_descriptor")
        e.place(base)
    return found


def constants(e: Emitter) -> None:
    """Emit the requested constants, descriptors and moved bases at the kernel's start."""
    word3 = e.row.buffer_word3
    for bits, reg in e.constants.items():
        e.emit("s_mov_b32", reg, bits)
    for (base, far), pair in e.moved.items():
        _move_base(e, base, far, pair)
    for (base, _), made in e.bases.items():
        low, high = e.pieces(e.place(base))
        words = e.pieces(made)
        e.emit("s_mov_b32", words[0], low)
        # 48 bits of address; stride 0.
        e.emit("s_and_b32", words[1], high, 0xFFFF)
        e.emit("s_mov_b32", words[2], BEYOND)
        e.emit("s_mov_b32", words[3], word3)


def _buffer_operands(e: Emitter, v: Value, condition: Value) -> tuple[Operand, Place, int]:
    """Return offset, descriptor and constant of a masked access. Inactive lanes get an offset out of range."""
    offset, more = _split_offset(e, v.args[1])
    constant = int(v.imm or 0) + more
    chosen = e.temporary()
    at = e.any(offset)
    spread = v.type.size_bytes if v.op == "load" else v.args[2].type.size_bytes
    # The instruction's offset has 12 bits.
    if constant + spread > 4095:
        moved = e.temporary()
        e.valu("v_add_nc_u32", moved, number(constant, "b32"), at)
        at, constant = moved, 0
    choose(e, condition, [(chosen, at, e.row.beyond)])
    return chosen, _descriptor(e, v.args[0]), constant


def _load_buffer(e: Emitter, v: Value, condition: Value, d: Place) -> None:
    offset, words, constant = _buffer_operands(e, v, condition)
    for name, to, first in _pieces(e, v, d):
        e.emit(f"buffer_load_{name}", to, offset, words, e.row.no_offset, offen=1, **_offset(constant + first))
    _join_third(e, v, d)


def _masked(e: Emitter, condition: Value | None, access: Callable[[], None]) -> None:
    """Emit an access for the lanes in which a condition holds."""
    if condition is None:
        return access()
    saved = e.temporary("s", e.lanes)
    if condition.uniform:
        e.emit(f"s_and_saveexec_{e.b}", saved, mask(e, condition))
    else:
        narrow(e, condition, saved)
    access()
    e.emit(f"s_mov_{e.b}", e.exec, saved)
    return None


def _stored(e: Emitter, value: Value) -> Place:
    return e.vector(value, "b16" if value.type.bits == 16 else "b32")


def _condition(e: Emitter, v: Value, index: int) -> tuple[bool, Value | None]:
    """Return whether an access happens at all, and its mask, None if it has none or a constant one."""
    if len(v.args) <= index:
        return True, None
    bits = e.bits.get(v.args[index])
    return (True, v.args[index]) if bits is None else (bool(bits & 1), None)


def _store(e: Emitter, v: Value, d: Place | None) -> None:
    happens, condition = _condition(e, v, 3)
    if not happens:
        return
    value = v.args[2]
    data = _stored(e, value)
    if condition is not None and _descriptor_reaches(e, v):
        offset, words, constant = _buffer_operands(e, v, condition)
        for first, width in _chunks(value.type.size_bytes):
            name = _store_name(width, first)
            e.emit(
                f"buffer_store_{name}",
                part(data, first // 4, -(-width // 4)),
                offset,
                words,
                e.row.no_offset,
                offen=1,
                **_offset(constant + first),
            )
        return
    address = _Address(e, v)

    def write() -> None:
        for first, width in _chunks(value.type.size_bytes):
            source = part(data, first // 4, -(-width // 4))
            e.emit(
                f"global_store_{_store_name(width, first)}",
                address.offset,
                source,
                address.saddr,
                **_offset(address.constant + first),
            )

    _masked(e, condition, write)


def _store_name(width: int, first: int) -> str:
    if width >= 4:
        return _LOAD_NAMES[width]
    return "d16_hi_b8" if width == 1 and first % 4 == 2 else f"b{width * 8}"


# (operation, type): the instruction's name after `global_atomic_`.
_ATOMICS = {
    **{(f"{name}{sign}", f"i{bits}"): f"{name}_{kind}{bits}" for name in ("min", "max") for sign, kind in (("_s", "i"), ("_u",
    "u")) for bits in (32, 64)},
    **{(name, f"i{bits}"): f"{name}_u{bits}" for name in ("add", "sub") for bits in (32, 64)},
    **{(name, f"i{bits}"): f"{name}_b{bits}" for name in ("and", "or", "xor", "swap") for bits in (32, 64)},
    ("swap", "f32"): "swap_b32", ("swap", "f64"): "swap_b64", ("fadd", "f32"): "add_f32", ("fmin", "f32"): "min_f32", ("fmax", "f32"): "max_f32",
}  # fmt: skip


def _atomic(e: Emitter, v: Value, d: Place | None) -> None:
    happens, condition = _condition(e, v, 3)
    name, _ = v.imm
    value = v.args[2]
    found = _ATOMICS.get((name, value.type.element))
    if found is None or value.type.count > 1 or not e.row.has(f"global_atomic_{found}"):
        names = ", ".join(sorted({one for one, _ in _ATOMICS}))
        raise CompileError(
            f"atomic {name} of {value.type} has no instruction on {e.row.name}; RDNA has {names} of 32 and 64 bits"
        )
    if not happens:
        for to in e.pieces(d) if d is not None else ():
            e.move(to, 0)
        return
    data, address = _stored(e, value), _Address(e, v)

    def access() -> None:
        modifiers = _offset(address.constant)
        if d is None:
            e.emit(f"global_atomic_{found}", address.offset, data, address.saddr, **modifiers)
        else:
            e.emit(
                f"global_atomic_{found}", d, address.offset, data, address.saddr, **modifiers, **e.row.atomic_returns
            )

    _masked(e, condition, access)


def _lds_address(e: Emitter, offset: Value, constant: int, spread: int) -> tuple[Place, int]:
    """Return (VGPR, offset of the instruction). The offset has 16 bits and is unsigned."""
    offset, more = _split_offset(e, offset)
    constant += more
    if 0 <= constant <= 0xFFFF - spread:
        return e.vector(offset), constant
    moved = e.temporary()
    e.valu("v_add_nc_u32", moved, number(constant & 0xFFFFFFFF, "b32"), e.any(offset))
    return moved, 0


def _lds_load(e: Emitter, v: Value, d: Place) -> None:
    happens, condition = _condition(e, v, 1)
    if not happens:
        for to in e.pieces(d):
            e.move(to, 0)
        return
    at, constant = _lds_address(e, v.args[0], int(v.imm or 0), v.type.size_bytes)
    to = d if condition is None and bank(d) == "v" and not _shared(e, v, d) else e.temporary("v", d.count)

    def access() -> None:
        for name, one, first in _pieces(e, v, to):
            e.emit(f"ds_load_{name.replace('d16_hi_u8', 'u8_d16_hi')}", one, at, **_offset(constant + first))
        _join_third(e, v, to)

    _masked(e, condition, access)
    if condition is not None:
        chosen = d if bank(d) == "v" else e.temporary("v", d.count)
        choose(e, condition, [(one, of, 0) for one, of in zip(e.pieces(chosen), e.pieces(to), strict=True)])
        to = chosen
    if to is not d:
        for place, one in zip(e.pieces(d), e.pieces(to), strict=True):
            e.move(place, one)


def _lds_store(e: Emitter, v: Value, d: Place | None) -> None:
    happens, condition = _condition(e, v, 2)
    if not happens:
        return
    value = v.args[1]
    data = _stored(e, value)
    at, constant = _lds_address(e, v.args[0], int(v.imm or 0), value.type.size_bytes)

    def access() -> None:
        for first, width in _chunks(value.type.size_bytes):
            name = _store_name(width, first).replace("d16_hi_b8", "b8_d16_hi")
            e.emit(f"ds_store_{name}", at, part(data, first // 4, -(-width // 4)), **_offset(constant + first))

    _masked(e, condition, access)


def _barrier(e: Emitter, v: Value, d: Place | None) -> None:
    """Wait for accesses that other waves must see, then for the other waves, and drop cached data that they may have
    changed.

    LDS accesses must be complete. Only if the kernel reads what it writes, stores and loads of memory must be complete,
    and stale lines of the vector cache are invalidated.

    A group of one wave needs no s_barrier, but it needs the waits and the invalidation. The s_barrier costs it nothing.
    """
    row, memory = e.row, e.known.reads_written
    waits = (
        row.wait_both
        if memory and e.known.touches_lds
        else row.wait_loads
        if memory
        else row.wait_lds
        if e.known.touches_lds
        else ()
    )
    for mnemonic, operands in (*waits, *(row.wait_stores if memory else ()), *row.barrier):
        e.emit(mnemonic, *operands)
    if memory:
        for mnemonic, modifiers in row.invalidate:
            e.emit(mnemonic, **modifiers)


def _marked(rule: Callable[[Emitter, Value, Any], None]) -> Callable[[Emitter, Value, Any], None]:
    """Set the buffer of a rule's accesses to the number of the kernel argument that they access."""

    def wrapped(e: Emitter, v: Value, d: Place | None) -> None:
        rule(e, v, d)
        source = e.known.source(v.args[0])
        if source is not None:
            for instr in e.line:
                if instr.mnemonic.startswith(("global_", "buffer_")):
                    instr.buffer = source

    return wrapped


RULES: dict[str, Rule] = {"load": _marked(_load), "lds_load": _lds_load}
EFFECTS: dict[str, Callable[[Emitter, Value, Place | None], None]] = {
    "store": _marked(_store), "atomic": _marked(_atomic), "lds_store": _lds_store, "barrier": _barrier,
}  # fmt: skip
