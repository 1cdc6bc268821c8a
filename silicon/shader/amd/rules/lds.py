"""LDS loads and stores, and the lane permutations that use its crossbar.

Source: RDNA3 ISA reference, "Data Share Indexed and Atomic Access", "LDS Lane-permute Ops", "DS_SWIZZLE_B32".
"""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING

from ringup.silicon.shader.amd.rules.small_floats import packed, unpacked
from ringup.silicon.shader.amd.writer.dpp import ROW
from ringup.silicon.shader.amd.writer.memory_forms import Form, operand, put_loaded, stored
from ringup.silicon.shader.amd.writer.memory_ir import lds_load, lds_store
from ringup.silicon.shader.amd.writer.wave import rule
from ringup.silicon.shader.common import state
from ringup.silicon.shader.host.emitter import Code, Value
from ringup.silicon.shader.host.memory_shape import DONE, Helper, Shape, each_lane, give, helper, local, take

if TYPE_CHECKING:
    from ringup.silicon.shader.amd.decoding.decode import Instruction
    from ringup.silicon.shader.amd.writer.wave import Rule, Wave

LOADS = {
    "ds_load_u8": Form(1), "ds_load_i8": Form(1, signed=True), "ds_load_u16": Form(2), "ds_load_i16": Form(2, signed=True),
    "ds_load_b32": Form(4), "ds_load_b64": Form(8), "ds_load_b96": Form(12), "ds_load_b128": Form(16),
    "ds_load_u8_d16": Form(1, half="low"), "ds_load_u8_d16_hi": Form(1, half="high"),
    "ds_load_i8_d16": Form(1, signed=True, half="low"), "ds_load_i8_d16_hi": Form(1, signed=True, half="high"),
    "ds_load_u16_d16": Form(2, half="low"), "ds_load_u16_d16_hi": Form(2, half="high"),
    "ds_load_addtid_b32": Form(4),
}  # fmt: skip
STORES = {
    "ds_store_b8": Form(1), "ds_store_b16": Form(2), "ds_store_b32": Form(4), "ds_store_b64": Form(8), "ds_store_b96": Form(12),
    "ds_store_b128": Form(16), "ds_store_b8_d16_hi": Form(1, half="high"), "ds_store_b16_d16_hi": Form(2, half="high"),
    "ds_store_addtid_b32": Form(4),
}  # fmt: skip
# Suffix: bytes of each access, factor of the offsets.
PAIRS = {
    "2addr_b32": (4, 4), "2addr_stride64_b32": (4, 256), "2addr_b64": (8, 8), "2addr_stride64_b64": (8, 512),
}  # fmt: skip
# Suffix: bytes and bits of an element.
TRANSPOSED = {"b64_tr_b16": (8, 16), "b64_tr_b8": (8, 8), "b96_tr_b6": (12, 6), "b64_tr_b4": (8, 4)}
# Bytes of an access: the alignment to which LDS rounds down if the mode does not allow misaligned accesses.
_ALIGN = {1: 1, 2: 2, 4: 4, 8: 8, 12: 16, 16: 16}


def shape(wave: Wave, size_bytes: int, align: int = 0) -> Shape:
    """Return the access of a lane, aligned as LDS requires unless `align` is given."""
    return Shape(size_bytes, align or _ALIGN[size_bytes], wave.lanes)


def address(wave: Wave, ins: Instruction, offset: int, number: int = 0) -> Value:
    """Return the lanes' LDS addresses (vector of i32): VGPR, or M0 and lane, plus an offset; sums wrap.

    The offset is number `number` of the instruction's offsets.
    """
    code = wave.code
    lanes = next((one for one in ins.operands if one.field == "addr"), None)
    if lanes is not None:
        value = wave.src(lanes, "i32")
        return code.op("add", value, wave.splat(wave.immediate(offset, "i32", number))) if offset else value
    base = code.op("and", wave.sgpr(state.M0), code.const(0xFFFF, "i32"))
    base = code.op("add", base, wave.immediate(offset, "i32", number))
    return code.op("add", wave.splat(base), code.lane_const(range(0, 4 * wave.lanes, 4), "i32"))


def lds_rule(*mnemonics: str) -> partial[Rule]:
    """Make a function the rule of DS instructions on LDS. The interpreter executes those on GDS."""
    return partial(_lds_rule, mnemonics)


def _lds_rule(mnemonics: tuple[str, ...], function: Rule) -> Rule:
    def chosen(wave: Wave, ins: Instruction) -> None:
        if ins.fields.get("gds"):
            wave.bail(ins)
        else:
            function(wave, ins)

    rule(*mnemonics)(chosen)
    return function


def _load(wave: Wave, ins: Instruction, form: Form) -> None:
    rows = lds_load(wave, address(wave, ins, ins.offset), shape(wave, form.size_bytes))
    put_loaded(wave, operand(ins, "vdst"), form, rows)


def _store(wave: Wave, ins: Instruction, form: Form) -> None:
    rows = stored(wave, operand(ins, "data0"), form)
    lds_store(wave, address(wave, ins, ins.offset), shape(wave, form.size_bytes), rows)


def _offsets(ins: Instruction, scale: int) -> tuple[int, int]:
    return ins.fields["offset0"] * scale, ins.fields["offset1"] * scale


def _load_pair(wave: Wave, ins: Instruction, size_bytes: int, scale: int) -> None:
    first, second = _offsets(ins, scale)
    # Adjacent accesses are one access of twice the size.
    if second == first + size_bytes:
        rows = lds_load(wave, address(wave, ins, first), shape(wave, 2 * size_bytes, size_bytes), halves=True)
    else:
        one = shape(wave, size_bytes)
        places = [address(wave, ins, at, number) for number, at in enumerate((first, second))]
        rows = [row for place in places for row in lds_load(wave, place, one)]
    put_loaded(wave, operand(ins, "vdst"), Form(2 * size_bytes), rows)


def _store_pair(wave: Wave, ins: Instruction, size_bytes: int, scale: int) -> None:
    first, second = _offsets(ins, scale)
    form = Form(size_bytes)
    low, high = (stored(wave, operand(ins, field), form) for field in ("data0", "data1"))
    if second == first + size_bytes:
        both = shape(wave, 2 * size_bytes, size_bytes)
        lds_store(wave, address(wave, ins, first), both, [*low, *high], halves=True)
        return
    places = [address(wave, ins, at, number) for number, at in enumerate((first, second))]
    for place, rows in zip(places, (low, high), strict=True):
        lds_store(wave, place, shape(wave, size_bytes), rows)


# transposed loads -----------------------------------------------------------------------------------------------------


def _shuffled(code: Code, rows: list[Value], bits: int) -> list[Value]:
    """Transpose elements of bytes or halves, of which a lane has two dwords: one shuffle for each dword of the result.

    Of 16 lanes element `at` of all their elements goes to lane `at % 16`.
    """
    per, lanes = 32 // bits, rows[0].lanes
    parts, found = [code.bitcast(one, f"<{lanes * per} x i{bits}>") for one in rows], []
    for row in range(2):
        places = []
        for lane in range(lanes):
            for part in range(per):
                source, element = divmod(ROW * (row * per + part) + lane % ROW, 2 * per)
                number, low = divmod(element, per)
                places.append((number * lanes + lane // ROW * ROW + source) * per + low)
        found.append(code.bitcast(code.shuffle(parts[0], parts[1], places), rows[0].type))
    return found


def _exchanged_elements(code: Code, rows: list[Value], bits: int) -> list[Value]:
    """Transpose 16 elements of 16 lanes: exchange each bit of the element's number with that of the lane's."""
    elements, lanes = unpacked(code, rows, bits), rows[0].lanes
    for bit in (1, 2, 4, 8):
        for low in (at for at in range(ROW) if not at & bit):
            pair = elements[low], elements[low | bit]
            for at in (0, bit):
                own = [lane & bit == at for lane in range(lanes)]
                places = [lane if same else (lane ^ bit) + lanes for lane, same in enumerate(own)]
                elements[low | at] = code.shuffle(pair[bool(at)], pair[not at], places)
    return packed(code, elements, bits)


def _in_rows(code: Code, lanes: Value) -> Value:
    """Return all lanes of the rows of 16 that have a lane in a mask (i64)."""
    for by in (1, 2, 4, 8):
        lanes = code.op("or", lanes, code.op("lshr", lanes, code.const(by, "i64")))
    first = code.op("and", lanes, code.const(0x0001_0001_0001_0001, "i64"))
    return code.op("mul", first, code.const(0xFFFF, "i64"))


def _load_transposed(wave: Wave, ins: Instruction, size_bytes: int, bits: int) -> None:
    """Load elements of 16 lanes, which are rows of 16, and give lane i the i-th of each row.

    The interpreter executes accesses of some lanes only and misaligned ones. Source: CDNA4 ISA reference, "MFMA
    Transpose Load from LDS". GUESS: see `interpreter/lds.py`.
    """
    code, where, align = wave.code, address(wave, ins, ins.offset), size_bytes & -size_bytes
    low = code.icmp("ne", code.op("and", where, wave.const(align - 1, "i32")), wave.const(0, "i32"))
    odd = code.op("or", code.bitcast(low, wave.mask_type), code.invert(wave.exec_bits()))
    odd = code.icmp("ne", odd, code.const(0, odd.type))

    def body() -> None:
        rows = lds_load(wave, where, shape(wave, size_bytes, align))
        undefined = wave.undefined_rows
        if undefined:
            some = undefined[0]
            for one in undefined[1:]:
                some = code.op("or", some, one)
            wave.undefined_rows = [_in_rows(code, some)] * len(undefined)
        rows = (_shuffled if bits in (8, 16) else _exchanged_elements)(code, rows, bits)
        put_loaded(wave, operand(ins, "vdst"), Form(size_bytes), rows)

    if wave.strict:
        wave.fault(odd, "illegal")
        body()
        return
    with wave.unless(odd, ins):
        body()


# lane exchanges -------------------------------------------------------------------------------------------------------


def _targets(wave: Wave, ins: Instruction) -> Value:
    """Return the lanes that the address operand selects: of the whole wave on RDNA4, else within the same 32."""
    code = wave.code
    number = code.op("lshr", address(wave, ins, ins.offset), wave.const(2, "i32"))
    if wave.generation.permutes_whole_wave:
        return code.op("and", number, wave.const(wave.lanes - 1, "i32"))
    half = code.lane_const([lane & 32 for lane in range(wave.lanes)], "i32")
    return code.op("or", code.op("and", number, wave.const(31, "i32")), half)


@cache
def _permute(lanes: int, *, forward: bool) -> Helper:
    """Return `(values, lane numbers, mask) -> answer`.

    Each lane reads from the lane that it selects, or (forward) writes to it, lowest lane first.
    """
    row = f"<{lanes} x i32>"
    values, numbers, mask = Value("%values", row), Value("%numbers", row), Value("%mask", f"i{lanes}")

    def body(code: Code) -> None:
        memory = local(code, row)
        if not forward:
            code.store(values, memory, 64)
            places = code.gep(memory, code.cast("sext", numbers, "i64"), "i32")
            all_lanes, nothing = code.const(-1, f"<{lanes} x i1>"), Value("zeroinitializer", row)
            overload = (row, places.type)
            found = code.intrinsic(
                "masked.gather", places, Value("4", "i32"), all_lanes, nothing, result=row, overload=overload
            )
            give(code, DONE, None, [found])
            return
        sent, targets = local(code, row), local(code, row)
        code.store(Value("zeroinitializer", row), memory, 64)
        code.store(values, sent, 64)
        code.store(numbers, targets, 64)

        def one(lane: Value) -> None:
            target = code.load(code.gep(targets, lane, "i32"), "i32", 4)
            value = code.load(code.gep(sent, lane, "i32"), "i32", 4)
            code.store(value, code.gep(memory, code.resize(target, "i64"), "i32"), 4)

        each_lane(code, mask, one)
        give(code, DONE, None, [code.load(memory, row, 64)])

    return helper(f"lanes_{'sent' if forward else 'fetched'}_w{lanes}", (values, numbers, mask), body)


def swizzled(offset: int, lane: int) -> int:
    """Return the lane that ds_swizzle_b32 reads for `lane`."""
    low, half = lane & 0x1F, lane & 0x20
    mask = offset & 0x1F
    if offset >= 0xE000:  # FFT
        return int(f"{low:05b}"[::-1], 2) >> mask.bit_count() | low & mask | half
    if offset >= 0xC000:  # rotate
        turn = offset >> 5 & 0x1F
        turn = -turn if offset >> 10 & 1 else turn
        return low & mask | (low + turn) & ~mask & 0x1F | half
    if offset >> 15:  # within four
        return lane & ~3 | offset >> 2 * (lane & 3) & 3
    return (low & mask | offset >> 5 & 0x1F) ^ offset >> 10 & 0x1F | half


def exchanged(wave: Wave, ins: Instruction, values: Value) -> Value:
    """Return the values that lanes get from a row of values, in which inactive lanes have 0 unless they are read."""
    if ins.mnemonic == "ds_swizzle_b32":
        return wave.code.shuffle(values, None, [swizzled(ins.offset, lane) for lane in range(wave.lanes)])
    name = _permute(wave.lanes, forward=ins.mnemonic == "ds_permute_b32").include(wave.code)
    return take(wave.code, name, [wave.row], values, _targets(wave, ins), wave.exec_bits()).rows[0]


@lds_rule("ds_permute_b32", "ds_bpermute_b32", "ds_bpermute_fi_b32", "ds_swizzle_b32")
def _exchange(wave: Wave, ins: Instruction) -> None:
    source = operand(ins, "addr" if ins.mnemonic == "ds_swizzle_b32" else "data0")
    value = wave.src(source, "i32")
    if not (wave.full or ins.mnemonic == "ds_bpermute_fi_b32"):
        value = wave.code.select(wave.exec(), value, wave.const(0, "i32"))
    wave.set_vgpr(operand(ins, "vdst").index, exchanged(wave, ins, value))


for _name, _form in LOADS.items():
    lds_rule(_name)(partial(_load, form=_form))
for _name, _form in STORES.items():
    lds_rule(_name)(partial(_store, form=_form))
for _name, (_size, _scale) in PAIRS.items():
    lds_rule(f"ds_load_{_name}")(partial(_load_pair, size_bytes=_size, scale=_scale))
    lds_rule(f"ds_store_{_name}")(partial(_store_pair, size_bytes=_size, scale=_scale))
for _name, (_size, _bits) in TRANSPOSED.items():
    lds_rule(f"ds_load_{_name}")(partial(_load_transposed, size_bytes=_size, bits=_bits))
