"""SCRATCH loads and stores: a wave's private memory, swizzled so that the same dword of all lanes is contiguous.

Source: RDNA3 ISA reference, "Scratch Addressing": address = FLAT_SCRATCH + (offset / 4) * 4 * lanes + offset % 4 + lane
* 4.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING

from ringup.silicon.shader.amd.writer.memory_counters import count_lines
from ringup.silicon.shader.amd.writer.memory_forms import LOADS, STORES, Form, put_loaded, stored
from ringup.silicon.shader.amd.writer.memory_ir import either, pointer, refuse
from ringup.silicon.shader.amd.writer.wave import rule
from ringup.silicon.shader.host.memory_helpers import Spread, gather, scatter, spread
from ringup.silicon.shader.host.memory_shape import CONTEXT, DONE, MEMORY, Answer, Helper, Region, Shape, as_mask, take

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from ringup.silicon.shader.amd.decoding.decode import Instruction
    from ringup.silicon.shader.amd.writer.wave import Wave
    from ringup.silicon.shader.host.emitter import Value


def _offset(wave: Wave, ins: Instruction) -> Value:
    """Return the byte offset before swizzling: i32 if all lanes share it, else a vector of them."""
    code = wave.code
    total = wave.immediate(ins.offset, "i32")
    for one in ins.operands:
        if one.field == "saddr" and one.kind == "sgpr":
            total = code.op("add", total, wave.scalar(one, "i32"))
    for one in ins.operands:
        if one.field == "addr" and one.kind == "vgpr":
            total = code.op("add", wave.splat(total), wave.src(one, "i32"))
    return total


def _in_dwords(wave: Wave, ins: Instruction, offset: Value, size_bytes: int) -> AbstractContextManager[None]:
    """Guard a body for accesses within dwords.

    The interpreter executes accesses that cross the end of a dword, since their parts are not contiguous.
    """
    code, last = wave.code, 4 - min(size_bytes, 4)
    if size_bytes == 1 or (offset.is_constant and ins.offset & 3 <= last):
        return nullcontext()
    low = code.op("and", offset, code.const(3, offset.type))
    crosses = code.icmp("ugt", low, code.const(last, low.type))
    if offset.lanes:
        active = code.op("and", as_mask(code, crosses), wave.exec_bits())
        crosses = code.icmp("ne", active, code.const(0, active.type))
    return wave.unless(crosses, ins)


class _Place:
    """The location of an access. With one offset for all lanes it is rows of dwords; other accesses go lane by lane."""

    def __init__(self, wave: Wave, ins: Instruction, offset: Value, size_bytes: int) -> None:
        code = wave.code
        self.wave, self.offset, self.size_bytes = wave, offset, size_bytes
        self.rows = -(-size_bytes // 4)
        self.row_bytes = 4 * wave.lanes
        self.shape = Shape(min(size_bytes, 4), 1, wave.lanes)
        self.active, self.site = wave.exec_bits(), wave.site()
        self.base = wave.scratch_base()
        region = Region.read(code, self.site)
        if wave.counting:
            for at in range(self.rows):
                count_lines(wave, self.lanes(at), self.active, min(size_bytes, 4), first=not at)
        self.first = code.extract(offset, 0) if offset.lanes else offset
        start = self._swizzled(self.first)
        self.host = code.op("add", start, region.delta)
        self.near = region.holds(code, start, self.row_bytes * self.rows)
        if offset.lanes:
            equal = as_mask(code, code.icmp("eq", offset, wave.splat(self.first)))
            equal = code.op("or", equal, code.invert(self.active))
            self.near = code.op("and", self.near, code.icmp("eq", equal, code.const(-1, equal.type)))
        if wave.strict:
            self.near = code.op("and", self.near, self._allocated(self.first))

    def far(self, helper: Helper, rows: Sequence[Value] = ()) -> list[Value]:
        """Call a helper for every row; `rows` is the data to store, or empty for a load.

        The wave stops if a lane breaks a rule, and later rows are not accessed.
        """
        code = self.wave.code
        if not self.offset.lanes:
            helper = spread(helper, Spread("", 4), self.shape, min(len(rows), 1))
        name = helper.include(code)
        active, no_lanes = self.active, code.const(0, self.active.type)
        status, detail = code.const(DONE, "i64"), code.const(0, "i64")
        if self.wave.strict:
            beyond = self._beyond()
            status = code.select(beyond, code.const(MEMORY, "i64"), status)
            active = code.select(beyond, no_lanes, active)
        found = []
        for at in range(self.rows):
            data, types = ((rows[at],), []) if rows else ((), [self.wave.row])
            where = self.lanes(at) if self.offset.lanes else self._first_lane(at)
            answer = take(code, name, types, CONTEXT, self.site, active, *data, where)
            broken = code.icmp("ne", answer.status, code.const(DONE, "i64"))
            status, detail = code.select(broken, answer.status, status), code.select(broken, answer.detail, detail)
            active = code.select(broken, no_lanes, active)
            found += answer.rows
        refuse(self.wave, Answer(status, detail, []))
        return found

    def _beyond(self) -> Value:
        """Return whether a lane accesses more than is allocated to it (i1)."""
        code = self.wave.code
        fits = self._allocated(self.offset)
        if self.offset.lanes:
            beyond = code.op("and", code.invert(as_mask(code, fits)), self.active)
            return code.icmp("ne", beyond, code.const(0, beyond.type))
        return code.op("and", code.invert(fits), code.icmp("ne", self.active, code.const(0, self.active.type)))

    def _allocated(self, offset: Value) -> Value:
        """Return whether an access at an offset (i32 or a vector) is in a lane's part of the wave's scratch memory."""
        code = self.wave.code
        of_lane = code.op("udiv", self.wave.context("scratch_bytes"), code.const(self.wave.lanes, "i64"))
        spare = code.intrinsic("usub.sat", of_lane, code.const(self.size_bytes - 1, "i64"))
        spare = code.splat(spare, offset.lanes) if offset.lanes else spare
        return code.icmp("ult", self._wide(offset), spare)

    def _wide(self, offset: Value) -> Value:
        """Return an offset as i64. On RDNA4 it has a sign."""
        return self.wave.code.resize(offset, "i64", signed=self.wave.generation.signed_scratch)

    def _swizzled(self, offset: Value) -> Value:
        """Return the gpu_va of lane 0's dword (i64 or a vector)."""
        code = self.wave.code
        dword = self._wide(code.op("and", offset, code.const(-4, offset.type)))
        base = self.wave.splat(self.base) if offset.lanes else self.base
        return code.op("add", base, code.op("mul", dword, code.const(self.wave.lanes, dword.type)))

    def row(self, at: int) -> Value:
        """Return the host address (ptr) of a row of dwords."""
        return pointer(self.wave, self.wave.code.op("add", self.host, self.wave.code.const(at * self.row_bytes, "i64")))

    def shift(self) -> Value:
        """Return how many bits up in its dword a narrow access is, in every lane."""
        code = self.wave.code
        low = code.op("and", self.first, code.const(3, "i32"))
        return self.wave.splat(code.op("shl", low, code.const(3, "i32")))

    def _first_lane(self, at: int) -> Value:
        """Return the gpu_va of row `at` of lane 0."""
        code = self.wave.code
        low = code.resize(code.op("and", self.first, code.const(3, "i32")), "i64")
        start = code.op("add", self._swizzled(self.first), code.const(at * self.row_bytes, "i64"))
        return code.op("add", start, low)

    def lanes(self, at: int) -> Value:
        """Return the gpu_va of row `at` of every lane."""
        code, wave = self.wave.code, self.wave
        offset = self.offset if self.offset.lanes else wave.splat(self.offset)
        low = code.resize(code.op("and", offset, wave.const(3, "i32")), "i64")
        steps = code.lane_const(range(at * self.row_bytes, (at + 1) * self.row_bytes, 4), "i64")
        return code.op("add", code.op("add", self._swizzled(offset), low), steps)


def _load(wave: Wave, ins: Instruction, form: Form) -> None:
    offset = _offset(wave, ins)
    with _in_dwords(wave, ins, offset, form.size_bytes):
        code = wave.code
        place = _Place(wave, ins, offset, form.size_bytes)
        shape = place.shape

        def quick() -> list[Value]:
            rows = [code.load(place.row(at), wave.row, 1) for at in range(place.rows)]
            if form.size_bytes < 4:
                rows[0] = code.op("lshr", rows[0], place.shift())
                rows[0] = code.op("and", rows[0], wave.const((1 << 8 * form.size_bytes) - 1, "i32"))
            return rows

        def slow() -> list[Value]:
            return place.far(gather(shape, strict=wave.strict))

        put_loaded(wave, ins.operands[0], form, either(wave, place.near, quick, slow))


def _store(wave: Wave, ins: Instruction, form: Form) -> None:
    offset = _offset(wave, ins)
    with _in_dwords(wave, ins, offset, form.size_bytes):
        code = wave.code
        place = _Place(wave, ins, offset, form.size_bytes)
        shape = place.shape
        rows = stored(wave, next(one for one in ins.operands if one.field == "data"), form)
        active = wave.exec()

        def quick() -> list[Value]:
            for at, row in enumerate(rows):
                target = place.row(at)
                if form.size_bytes < 4:
                    old, shift = code.load(target, wave.row, 1), place.shift()
                    bits = wave.const((1 << 8 * form.size_bytes) - 1, "i32")
                    kept = code.op("and", old, code.invert(code.op("shl", bits, shift)))
                    row = code.op("or", kept, code.op("shl", code.op("and", row, bits), shift))
                if not wave.full:
                    row = code.select(active, row, code.load(target, wave.row, 1))
                code.store(row, target, 1)
            return []

        def slow() -> list[Value]:
            return place.far(scatter(shape, strict=wave.strict), rows)

        either(wave, place.near, quick, slow)


for _name, _form in LOADS.items():
    rule(f"scratch_load_{_name}")(partial(_load, form=_form))
for _name, _form in STORES.items():
    rule(f"scratch_store_{_name}")(partial(_store, form=_form))
