"""MUBUF loads, stores and atomics without formats, on linear buffers.

The interpreter executes accesses to swizzled and formatted buffers, and to those of RDNA4 whose stride has a scale.
Source: RDNA3 ISA reference, "Buffer Addressing",
"Range Checking", "Buffer Resource".
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ringup.silicon.shader.amd.rules.atomic import CACHE_ATOMICS, cache_atomic, put_old
from ringup.silicon.shader.amd.writer.memory_forms import LOADS, STORES, Form, operand, put_loaded, stored
from ringup.silicon.shader.amd.writer.memory_ir import Addresses, load, store
from ringup.silicon.shader.amd.writer.wave import rule
from ringup.silicon.shader.host.memory_shape import as_mask

if TYPE_CHECKING:
    from ringup.silicon.shader.amd.decoding.decode import Instruction
    from ringup.silicon.shader.amd.writer.wave import Wave
    from ringup.silicon.shader.host.emitter import Value

# Bits of the resource's last two words that make it more than a linear buffer.
_SWIZZLE = 3 << 30  # of word 1
_GCN_SWIZZLE = 1 << 31
_ADD_TID = 1 << 23  # of word 3
_TYPE = 3 << 30
_STRIDE_SCALE = 3 << 18  # on RDNA4
_FORMAT = 0x3F << 12  # 0 is INVALID: the resource is unbound
_GCN_FORMAT = 0xF << 15
STRUCTURED, BY_INDEX, UNCHECKED, RAW = range(4)  # OOB_SELECT


class _Places(NamedTuple):
    addresses: Addresses
    inside: Value  # lanes of EXEC whose whole access is in bounds (mask_type)
    odd: Value  # i1: the interpreter must execute this


def _field(wave: Wave, word: Value, low: int, count: int) -> Value:
    code = wave.code
    return code.op("and", code.op("lshr", word, code.const(low, "i32")), code.const((1 << count) - 1, "i32"))


def _is_odd(ins: Instruction) -> bool:
    """Return whether the interpreter executes an instruction whatever the buffer is: its loads go to LDS too, or have a
    status.
    """
    return bool(ins.fields.get("tfe") or ins.fields.get("lds"))


def _places(wave: Wave, ins: Instruction, size_bytes: int) -> _Places:
    """Return where the lanes access a buffer. `odd` includes accesses of several dwords that are partly in bounds."""
    code = wave.code
    resource = next(one.index for one in ins.operands if one.field in ("srsrc", "rsrc"))
    words = [wave.sgpr(resource + at) for at in range(4)]
    scalar = wave.scalar(operand(ins, "soffset"), "i32")
    stride, records = _field(wave, words[1], 16, 14), words[2]
    base = code.op(
        "or",
        code.resize(words[0], "i64"),
        code.op("shl", code.resize(_field(wave, words[1], 0, 16), "i64"), code.const(32, "i64")),
    )
    base = code.op("add", base, code.resize(scalar, "i64"))

    # CDNA checks bytes unless a buffer is swizzled.
    select = code.const(RAW, "i32") if wave.generation.is_gcn else _field(wave, words[3], 28, 2)
    is_structured, is_raw = (code.icmp("eq", select, code.const(one, "i32")) for one in (STRUCTURED, RAW))
    index, offset = _index_and_offset(wave, ins)
    some = _when(wave, code.icmp("ne", records, code.const(0, "i32")))
    # Index 0 is in range if any is.
    if index is None:
        offsets = measured = offset
    else:
        wide_index, wide_offset = (code.resize(one, "i64") for one in (index, offset))
        offsets = code.op("add", code.op("mul", wide_index, wave.splat(code.resize(stride, "i64"))), wide_offset)
        # A raw buffer is bytes from its base, whatever the stride.
        measured = code.select(is_raw, offsets, wide_offset)
        free = _when(wave, code.icmp("uge", select, code.const(UNCHECKED, "i32")))
        indexed = code.op("or", as_mask(code, code.icmp("ult", index, wave.splat(records))), free)
        some = code.op("and", some, indexed)
    # The end of an access must not exceed this: the stride, or the rest of the buffer after the scalar offset.
    limit = code.select(is_structured, stride, code.intrinsic("usub.sat", records, scalar))
    unlimited = code.invert(_when(wave, code.op("or", is_structured, is_raw)))
    candidates = code.op("and", some, wave.exec_bits())

    def within(count: int) -> Value:
        spare = code.resize(code.intrinsic("usub.sat", limit, code.const(count - 1, "i32")), measured.element)
        fits = as_mask(code, code.icmp("ult", measured, wave.splat(spare)))
        return code.op("and", code.op("or", fits, unlimited), candidates)

    inside = within(size_bytes)
    swizzles = _GCN_SWIZZLE if wave.generation.is_gcn else _SWIZZLE
    odd = code.icmp("ne", code.op("and", words[1], code.const(swizzles, "i32")), code.const(0, "i32"))
    uncommon = _ADD_TID | _TYPE | _STRIDE_SCALE * wave.generation.scales_buffers
    special = code.op("and", words[3], code.const(uncommon, "i32"))
    odd = code.op("or", odd, code.icmp("ne", special, code.const(0, "i32")))
    formats = _GCN_FORMAT if wave.generation.is_gcn else _FORMAT
    unbound = code.icmp("eq", code.op("and", words[3], code.const(formats, "i32")), code.const(0, "i32"))
    odd = code.op("or", odd, unbound)
    if size_bytes > 4:
        odd = code.op("or", odd, code.icmp("ne", within(4), inside))
    return _Places(Addresses(base, offsets), inside, odd)


def _when(wave: Wave, condition: Value) -> Value:
    """Return all lanes (a lane mask) if a condition (i1) holds, else none."""
    return wave.code.cast("sext", condition, wave.mask_type)


def _index_and_offset(wave: Wave, ins: Instruction) -> tuple[Value | None, Value]:
    """Return the lanes' index, None for 0, and byte offset within the record (vectors of i32)."""
    code, first = wave.code, operand(ins, "vaddr").index
    index, offset = None, wave.splat(wave.immediate(ins.offset, "i32"))
    if ins.fields["idxen"]:
        index = wave.vgpr(first)
        first += 1
    if ins.fields["offen"]:
        offset = code.op("add", wave.vgpr(first), offset)
    return index, offset


def _load(wave: Wave, ins: Instruction, form: Form) -> None:
    if _is_odd(ins):
        wave.bail(ins)
        return
    places = _places(wave, ins, form.size_bytes)
    with wave.unless(places.odd, ins):
        rows = load(wave, places.addresses, form.shape(wave), places.inside)
        valid = wave.code.bitcast(places.inside, wave.bools)
        rows = [wave.code.select(valid, row, wave.const(0, "i32")) for row in rows]
        put_loaded(wave, operand(ins, "vdata"), form, rows)


def _store(wave: Wave, ins: Instruction, form: Form) -> None:
    if _is_odd(ins):
        wave.bail(ins)
        return
    places = _places(wave, ins, form.size_bytes)
    with wave.unless(places.odd, ins):
        store(wave, places.addresses, form.shape(wave), stored(wave, operand(ins, "vdata"), form), places.inside)


def _atomic(wave: Wave, ins: Instruction, operation: str, size_bytes: int) -> None:
    if _is_odd(ins):
        wave.bail(ins)
        return
    data = operand(ins, "vdata")
    places = _places(wave, ins, size_bytes)
    with wave.unless(places.odd, ins):
        old = cache_atomic(wave, places.addresses, operation, size_bytes, data, places.inside)
        if data.direction != "use":
            put_old(wave, data, old)


for _name, _form in LOADS.items():
    rule(f"buffer_load_{_name}")(partial(_load, form=_form))
for _name, _form in STORES.items():
    rule(f"buffer_store_{_name}")(partial(_store, form=_form))
for _name, (_operation, _size) in CACHE_ATOMICS.items():
    rule(f"buffer_atomic_{_name}")(partial(_atomic, operation=_operation, size_bytes=_size))
