"""Vector memory of a wave as IR: one access for contiguous lanes in one region, helper functions for everything else.

Each memory instruction has a site, which caches the region that it accessed last. Rules of the families (global,
scratch, buffer, LDS) pass addresses and rows of registers and get rows back. Faults leave the wave here, before any
register is written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ringup.silicon.shader.amd.writer.memory_counters import count_conflicts, count_lines
from ringup.silicon.shader.host.emitter import Value
from ringup.silicon.shader.host.lds_helpers import WRITTEN, WRITTEN_BYTES, lds_gather, lds_scatter, lds_written
from ringup.silicon.shader.host.memory_helpers import Spread, gather, scatter, spread
from ringup.silicon.shader.host.memory_shape import (
    CONTEXT,
    DONE,
    Answer,
    Region,
    Shape,
    as_mask,
    is_unaligned,
    take,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ringup.silicon.shader.amd.writer.wave import Wave

    Access = Callable[[Value], list[Value]]

ALL_LANES = "-1"  # the text of a constant mask of all lanes


@dataclass(frozen=True, slots=True)
class Addresses:
    """Addresses of the lanes: a scalar i64, plus an offset a lane.

    The offset is unsigned (vector of i32 or i64), or `stride` times the lane.
    """

    base: Value
    offsets: Value | None = None
    stride: int = 0

    def first(self, wave: Wave) -> Value:
        """Return the address of lane 0 (i64)."""
        if self.offsets is None:
            return self.base
        return wave.code.op("add", self.base, wave.code.resize(wave.code.extract(self.offsets, 0), "i64"))

    def every(self, wave: Wave) -> Value:
        """Return the addresses as a vector of i64."""
        code, base = wave.code, wave.splat(self.base)
        if self.offsets is None:
            return code.op("add", base, code.lane_const([self.stride * lane for lane in range(wave.lanes)], "i64"))
        return code.op("add", base, code.resize(self.offsets, "i64"))

    @property
    def spread(self) -> Spread:
        """How the addresses are passed to helpers."""
        return Spread(self.offsets.element if self.offsets else "", self.stride)

    def args(self) -> tuple[Value, ...]:
        """Return the address arguments of helpers."""
        return (self.base,) if self.offsets is None else (self.base, self.offsets)

    def are_contiguous(self, wave: Wave, shape: Shape, active: Value) -> Value:
        """Return whether every active lane's access directly follows the previous lane's, counted from lane 0 (i1)."""
        if self.offsets is None:
            return Value("true" if self.stride == shape.size_bytes else "false", "i1")
        return _are_contiguous(wave, self.offsets, shape, active)


def _are_contiguous(wave: Wave, offsets: Value, shape: Shape, active: Value) -> Value:
    code, kind = wave.code, offsets.element
    start = code.extract(offsets, 0)
    steps = code.lane_const(range(0, shape.total_bytes, shape.size_bytes), kind)
    equal = as_mask(code, code.icmp("eq", offsets, code.op("add", wave.splat(start), steps)))
    if not _is_every_lane(active):
        equal = code.op("or", equal, code.invert(active))
    all_equal = code.icmp("eq", equal, code.const(-1, equal.type))
    if kind == "i64":
        return all_equal
    wraps = code.icmp("ult", start, code.const((1 << 32) - shape.total_bytes, kind))
    return code.op("and", all_equal, wraps)


def refuse(wave: Wave, answer: Answer) -> None:
    """Stop the wave if a helper found a broken rule."""
    code = wave.code
    kind = code.op("sub", answer.status, code.const(1, "i64"))
    wave.fault(code.icmp("ne", answer.status, code.const(DONE, "i64")), kind, answer.detail)


def either(
    wave: Wave, condition: Value, quick: Callable[[], list[Value]], slow: Callable[[], list[Value]]
) -> list[Value]:
    """Emit a fast and a slow path to the same values."""
    code = wave.code
    fast, other, done = code.fresh("near"), code.fresh("far"), code.fresh("done")
    code.branch(condition, fast, other, likely=True)
    code.block(fast)
    ones, one_end = quick(), code.label
    code.jump(done)
    code.block(other)
    others, other_end = slow(), code.label
    code.jump(done)
    code.block(done)
    return [code.phi((a, one_end), (b, other_end)) for a, b in zip(ones, others, strict=True)]


def _is_every_lane(active: Value) -> bool:
    """Return whether a lane mask is known to have all lanes.

    A full EXEC shows that only if every lane of EXEC makes the access: lanes of a buffer access that are out of range
    do not.
    """
    return active.text == ALL_LANES


def _all_active(wave: Wave, active: Value, near: Value) -> Value:
    if _is_every_lane(active):
        return near
    return wave.code.op("and", near, wave.code.icmp("eq", active, wave.code.const(-1, active.type)))


def _near(wave: Wave, addresses: Addresses, shape: Shape, active: Value, region: Region) -> tuple[Value, Value]:
    """Return whether one contiguous access is possible, and its host address (i64)."""
    code = wave.code
    first = addresses.first(wave)
    near = code.op("and", addresses.are_contiguous(wave, shape, active), region.holds(code, first, shape.total_bytes))
    if shape.align > 1:
        low = code.op("and", first, code.const(shape.align - 1, "i64"))
        near = code.op("and", near, code.icmp("eq", low, code.const(0, "i64")))
    return near, code.op("add", first, region.delta)


def pointer(wave: Wave, host: Value) -> Value:
    """Return a host address (i64) as a pointer."""
    return wave.code.cast("inttoptr", host, "ptr")


def load(wave: Wave, addresses: Addresses, shape: Shape, active: Value | None = None) -> list[Value]:
    """Load for every lane of `active` (a mask of `mask_type`, EXEC by default); return rows. Inactive lanes hold
    anything.
    """
    code = wave.code
    active = active or wave.exec_bits()
    if wave.counting:
        count_lines(wave, addresses.every(wave), active, shape.size_bytes)
    site = wave.site()
    near, host = _near(wave, addresses, shape, active, Region.read(code, site))

    def quick() -> list[Value]:
        return shape.unpack(code, code.load(pointer(wave, host), shape.packed, 1))

    def slow() -> list[Value]:
        name = spread(gather(shape, strict=wave.strict), addresses.spread, shape).include(code)
        answer = take(code, name, [shape.row] * shape.rows, CONTEXT, site, active, *addresses.args())
        refuse(wave, answer)
        return answer.rows

    return either(wave, near, quick, slow)


def store(wave: Wave, addresses: Addresses, shape: Shape, rows: Sequence[Value], active: Value | None = None) -> None:
    """Store the rows of every lane of `active` (a mask of `mask_type`, EXEC by default)."""
    code = wave.code
    active = active or wave.exec_bits()
    if wave.counting:
        count_lines(wave, addresses.every(wave), active, shape.size_bytes)
    site = wave.site()
    near, host = _near(wave, addresses, shape, active, Region.read(code, site))
    if shape.rows > 1:
        near = _all_active(wave, active, near)

    def quick() -> list[Value]:
        place, packed = pointer(wave, host), shape.pack(code, rows)
        # Inactive lanes get back the bytes that they have: nothing else runs meanwhile.
        if shape.rows == 1 and not _is_every_lane(active):
            packed = code.select(code.bitcast(active, wave.bools), packed, code.load(place, shape.packed, 1))
        code.store(packed, place, 1)
        return []

    def slow() -> list[Value]:
        name = spread(scatter(shape, strict=wave.strict), addresses.spread, shape, shape.rows).include(code)
        refuse(wave, take(code, name, [], CONTEXT, site, active, *rows, *addresses.args()))
        return []

    either(wave, near, quick, slow)


def _lds_near(wave: Wave, address: Value, shape: Shape, active: Value) -> tuple[Value, Value]:
    code = wave.code
    start = code.resize(code.extract(address, 0), "i64")
    end = code.op("add", start, code.const(shape.total_bytes, "i64"))
    near = code.op(
        "and", _are_contiguous(wave, address, shape, active), code.icmp("ule", end, wave.context("lds_size"))
    )
    if shape.align > 1:
        low = code.op("and", start, code.const(shape.align - 1, "i64"))
        fits = code.op("or", code.icmp("eq", low, code.const(0, "i64")), is_unaligned(code))
        near = code.op("and", near, fits)
    return near, start


def lds_address(wave: Wave) -> Value:
    """Return the host address of the group's LDS as i64."""
    return wave.code.emit(f"ptrtoint ptr {wave.lds().text} to i64", "i64")


def lds_load(
    wave: Wave, address: Value, shape: Shape, active: Value | None = None, *, halves: bool = False
) -> list[Value]:
    """Load from LDS addresses (vector of i32); lanes out of range get 0.

    In strict mode the wave stops for lanes out of range, and bytes that were never written are recorded. `halves` says
    that these are two adjacent accesses of half the size.
    """
    code = wave.code
    active = active or wave.exec_bits()
    if wave.counting:
        count_conflicts(wave, address, active, shape.size_bytes)
    lds = lds_address(wave)
    near, start = _lds_near(wave, address, shape, active)

    def quick() -> list[Value]:
        place = pointer(wave, code.op("add", lds, start))
        return shape.unpack(code, code.load(place, shape.packed, 1))

    def slow() -> list[Value]:
        found = []
        for at, part, count in _parts(wave, address, shape, halves=halves):
            name = lds_gather(part, strict=wave.strict).include(code)
            answer = take(code, name, [part.row] * count, CONTEXT, lds, at, active)
            if wave.strict:
                refuse(wave, answer)
            found += answer.rows
        return found

    rows = either(wave, near, quick, slow)
    if wave.strict:
        wave.record_unwritten(lds_unwritten(wave, address, shape, active))
    return rows


def lds_unwritten(wave: Wave, address: Value, shape: Shape, active: Value) -> list[Value]:
    """Return the lanes (masks) that read LDS bytes which were never written, at valid addresses.

    With tracking they are by register, else one mask for all registers.
    """
    code = wave.code
    shadow = code.op("add", lds_address(wave), wave.context("lds_shadow"))
    written = code.load(_written_bytes(wave, shadow), "i64", 8)
    spare = code.cast("trunc", code.intrinsic("usub.sat", written, code.const(shape.size_bytes - 1, "i64")), "i32")
    beyond = code.op("and", as_mask(code, code.icmp("uge", address, wave.splat(spare))), active)
    no_lanes = code.const(0, wave.mask_type)
    count = shape.rows if wave.tracked else 1

    def slow() -> list[Value]:
        name = lds_written(shape, by_register=wave.tracked).include(code)
        return take(code, name, [wave.mask_type] * count, CONTEXT, shadow, address, active).rows

    return either(wave, code.icmp("eq", beyond, no_lanes), lambda: [no_lanes] * count, slow)


def _written_bytes(wave: Wave, shadow: Value) -> Value:
    """Return the address of the count of bytes from the start of LDS that are all written; it is at the shadow's
    end.
    """
    code = wave.code
    behind = code.op("sub", wave.context("lds_shadow"), code.const(WRITTEN_BYTES, "i64"))
    return pointer(wave, code.op("add", shadow, behind))


def _parts(wave: Wave, address: Value, shape: Shape, *, halves: bool) -> list[tuple[Value, Shape, int]]:
    """Return the successive accesses of lanes that are not contiguous: addresses, shape, registers."""
    if not halves:
        return [(address, shape, shape.rows)]
    half = Shape(shape.size_bytes // 2, shape.align, shape.lanes)
    second = wave.code.op("add", address, wave.const(half.size_bytes, "i32"))
    return [(address, half, half.rows), (second, half, half.rows)]


def lds_store(
    wave: Wave,
    address: Value,
    shape: Shape,
    rows: Sequence[Value],
    active: Value | None = None,
    *,
    halves: bool = False,
) -> None:
    """Store to LDS addresses (vector of i32); lanes out of range are dropped (strict: the wave stops).

    `halves` is as for `lds_load`.
    """
    code = wave.code
    active = active or wave.exec_bits()
    if wave.counting:
        count_conflicts(wave, address, active, shape.size_bytes)
    near, start = _lds_near(wave, address, shape, active)
    if shape.rows > 1:
        near = _all_active(wave, active, near)
    lds = lds_address(wave)
    stores = [(lds, list(rows))]
    if wave.strict:
        shadow = code.op("add", lds, wave.context("lds_shadow"))
        known, wave.written_rows = wave.written_rows[: len(rows)] or [None] * len(rows), wave.written_rows[len(rows) :]
        stores.append((shadow, [_shadow_row(wave, one) for one in known]))
        # These bytes may have been written before.
        if any(known):
            code.store(code.const(0, "i64"), _written_bytes(wave, shadow), 8)

    def quick() -> list[Value]:
        for base, values in stores:
            place, packed = pointer(wave, code.op("add", base, start)), shape.pack(code, values)
            if shape.rows == 1 and not _is_every_lane(active):
                packed = code.select(code.bitcast(active, wave.bools), packed, code.load(place, shape.packed, 1))
            code.store(packed, place, 1)
        return []

    def slow() -> list[Value]:
        first = 0
        for at, part, count in _parts(wave, address, shape, halves=halves):
            name = lds_scatter(part, strict=wave.strict).include(code)
            for base, values in stores:
                answer = take(code, name, [], CONTEXT, base, at, active, *values[first : first + count])
                if wave.strict:
                    refuse(wave, answer)
            first += count
        return []

    either(wave, near, quick, slow)


def _shadow_row(wave: Wave, written: Value | None) -> Value:
    """Return the shadow of the bytes of a register that is stored to LDS; `written` are its defined lanes, None for
    all.
    """
    whole = wave.const(WRITTEN, "i32")
    if written is None:
        return whole
    return wave.code.select(wave.code.bitcast(written, wave.bools), whole, wave.const(0, "i32"))
