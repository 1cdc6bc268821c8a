"""Threads that are not on the path: where they are parked, convergence barriers, and the instructions of these."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from ringup.silicon.shader.host.context import FAULT_KINDS
from ringup.silicon.shader.host.emitter import Code, Value
from ringup.silicon.shader.host.memory_shape import Answer, first_lane
from ringup.silicon.shader.nv.decoding.instruction import WORD_BYTES, Kind
from ringup.silicon.shader.nv.state import LANES
from ringup.silicon.shader.nv.translator import layout
from ringup.silicon.shader.nv.translator.layout import Field
from ringup.silicon.shader.nv.translator.writer import FLAGS, ROW, STATE, NotTranslated, Writer

if TYPE_CHECKING:
    from collections.abc import Callable

HAZARD = FAULT_KINDS.index("hazard") + 1


class BlockWriter(Writer):
    """A writer with what control flow needs."""

    def park(self, mask: Value, at: int) -> None:
        """Leave threads at a place."""
        code = self.code
        code.define("park", _park())
        code.line(f"call void @park(ptr %state, i32 {mask.text}, i32 {at})")

    def sync(self, barrier: int) -> Value:
        """Return which of the threads that execute must wait at a convergence barrier (i32). If any must, all do. Then
        they are off the path, and those are awake that have waited for them only.
        """
        code = self.code
        code.define("park", _park())
        code.define("settle", _settle())
        code.define("sync", _sync())
        place = layout.CONVERGENCE + LANES * barrier
        return code.emit(
            f"call i32 @sync(ptr %state, i32 {self.mask.text}, i64 {place}, i32 {barrier}, i32 {self.at})", "i32"
        )

    def convergence(self, barrier: int) -> Value:
        """Return a convergence barrier: the mask of each thread."""
        return self.load(layout.CONVERGENCE + LANES * barrier, ROW)

    def set_convergence(self, barrier: int, row: Value) -> None:
        """Write a convergence barrier of the threads that execute."""
        if self.mask.text != "-1":
            row = self.code.select(self.lanes_of(self.mask), row, self.convergence(barrier))
        self.store(row, layout.CONVERGENCE + LANES * barrier)

    def settle(self) -> None:
        """Wake threads whose convergence barrier is complete, if any wait."""
        code = self.code
        code.define("settle", _settle())
        some, none = code.fresh("some.wait"), code.fresh("none.wait")
        code.branch(code.icmp("eq", self.load(Field.CONVERGING), code.const(0, "i32")), none, some, likely=True)
        code.block(some)
        code.line("call void @settle(ptr %state)")
        code.jump(none)
        code.block(none)


def warpsync(w: BlockWriter) -> int:
    """Set the barrier of WARPSYNC to its masks, which have the lane itself; return its number."""
    code = w.code
    if w.ins.has("EXCLUSIVE"):
        raise NotTranslated(f"{w.ins.text}: .EXCLUSIVE")
    masks = w.raw(w.ins.operands[0])
    own = code.lane_const([1 << lane for lane in range(LANES)], "i32")
    absent = code.bitcast(code.icmp("eq", code.op("and", masks, own), code.const(0, ROW)), "i32")
    some = code.op("and", absent, w.mask)
    detail = code.resize(first_lane(code, some), "i64")
    w.fault(code.icmp("ne", some, code.const(0, "i32")), Answer(code.const(HAZARD, "i64"), detail, []))
    w.set_convergence(layout.WARPSYNC, masks)
    return layout.WARPSYNC


def _bssy(w: BlockWriter) -> None:
    if w.strict:
        _check_reuse(w)
    w.set_convergence(w.ins.operands[0].value, w.code.splat(w.mask, LANES))


def _check_reuse(w: BlockWriter) -> None:
    """Refuse to begin a barrier anew for which another thread waits already: that one would wait forever."""
    code, barrier = w.code, w.ins.operands[0].value
    some, on = code.fresh("some.wait"), code.fresh("may.begin")
    waiting = w.load(Field.CONVERGING)
    code.branch(code.icmp("eq", waiting, code.const(0, "i32")), on, some, likely=True)
    code.block(some)
    here = code.bitcast(code.icmp("eq", w.load(layout.WAITS_AT, ROW), code.const(barrier, ROW)), "i32")
    shared = code.op("and", w.convergence(barrier), code.splat(w.mask, LANES))
    for_us = code.bitcast(code.icmp("ne", shared, code.const(0, ROW)), "i32")
    # a thread of the path does not wait, whatever it has been waiting for
    asleep = code.op("and", code.op("and", waiting, w.load(Field.ALIVE)), code.invert(w.active))
    wrong = code.op("and", code.op("and", here, for_us), asleep)
    detail = code.resize(first_lane(code, wrong), "i64")
    w.fault(code.icmp("ne", wrong, code.const(0, "i32")), Answer(code.const(HAZARD, "i64"), detail, []))
    code.jump(on)
    code.block(on)


def _bmov(w: BlockWriter) -> None:
    to, source = w.ins.operands
    if w.ins.has("PQUAD"):
        raise NotTranslated(f"{w.ins.text}: this form of BMOV")
    if to.kind is Kind.BARRIER and source.kind is Kind.REGISTER:
        w.set_convergence(to.value, w.register(source.value))
    elif to.kind is Kind.REGISTER and source.kind is Kind.BARRIER:
        w.write(to, w.convergence(source.value))
        if w.ins.has("CLEAR"):
            w.set_convergence(source.value, w.code.const(0, ROW))
    else:
        raise NotTranslated(f"{w.ins.text}: this form of BMOV")


def _break(w: BlockWriter) -> None:
    code, barrier = w.code, w.ins.operands[-1].value
    mask = w.mask
    for one in w.ins.operands[:-1]:
        mask = code.op("and", mask, w.mask_of(one))
    row = w.convergence(barrier)
    own = code.select(w.lanes_of(mask), row, code.const(0, ROW))
    members = code.intrinsic("vector.reduce.or", own, result="i32")
    without = code.op("and", row, code.splat(code.invert(mask), LANES))
    w.store(code.select(w.lanes_of(members), without, row), layout.CONVERGENCE + LANES * barrier)
    w.settle()


@cache
def _park() -> str:
    """Return a function that leaves threads at a place."""
    code = Code()
    w = BlockWriter(code, [], 1, full=False, strict=False)
    code.block("entry")
    here = code.splat(Value("%at", "i32"), LANES)
    w.store(code.select(w.lanes_of(Value("%mask", "i32")), here, w.load(layout.PCS, ROW)), layout.PCS)
    code.line("ret void")
    return _function("void @park(ptr %state, i32 %mask, i32 %at)", code)


@cache
def _sync() -> str:
    """Return the function of `BlockWriter.sync`."""
    code = Code()
    w = BlockWriter(code, [], 1, full=False, strict=False)
    code.block("entry")
    w.mask = Value("%mask", "i32")
    row = code.load(code.gep(STATE, Value("%place", "i64"), "i32"), ROW, 64)
    members = code.op("and", row, code.splat(w.load(Field.ALIVE), LANES))
    here = code.splat(w.mask, LANES)
    strangers = code.bitcast(code.icmp("ne", code.op("and", members, code.invert(here)), code.const(0, ROW)), "i32")
    waits = code.op("and", strangers, w.mask)
    code.branch(code.icmp("eq", waits, code.const(0, "i32")), "on", "wait", likely=True)
    code.block("on")
    code.line("ret i32 0")
    code.block("wait")
    code.line("call void @park(ptr %state, i32 %mask, i32 %at)")
    at_barrier = code.splat(Value("%barrier", "i32"), LANES)
    w.store(code.select(w.lanes_of(w.mask), at_barrier, w.load(layout.WAITS_AT, ROW)), layout.WAITS_AT)
    w.store(code.op("or", w.load(Field.CONVERGING), w.mask), Field.CONVERGING)
    w.store(code.op("and", w.load(Field.ACTIVE), code.invert(w.mask)), Field.ACTIVE)
    code.line("call void @settle(ptr %state)")
    code.line(f"ret i32 {waits.text}")
    return _function("i32 @sync(ptr %state, i32 %mask, i64 %place, i32 %barrier, i32 %at)", code)


@cache
def _settle() -> str:
    """Return a function that makes threads ready whose convergence barrier is complete."""
    code = Code()
    w = BlockWriter(code, [], 1, full=False, strict=False)
    code.block("entry")
    alive = w.load(Field.ALIVE)
    places = w.load(layout.WAITS_AT, ROW)
    waiting = code.op("and", w.load(Field.CONVERGING), alive)
    free = code.const(0, "i32")
    for barrier in range(layout.WARPSYNC + 1):
        here = code.bitcast(code.icmp("eq", places, code.const(barrier, ROW)), "i32")
        at_it = code.op("and", here, waiting)
        members = code.op("and", w.convergence(barrier), code.splat(alive, LANES))
        absent = code.op("and", members, code.splat(code.invert(at_it), LANES))
        complete = code.bitcast(code.icmp("eq", absent, code.const(0, ROW)), "i32")
        free = code.op("or", free, code.op("and", complete, at_it))
    pcs = w.load(layout.PCS, ROW)
    after = code.op("add", pcs, code.const(WORD_BYTES, ROW))
    w.store(code.select(code.bitcast(free, FLAGS), after, pcs), layout.PCS)
    w.store(code.op("and", waiting, code.invert(free)), Field.CONVERGING)
    code.line("ret void")
    return _function("void @settle(ptr %state)", code)


def _function(head: str, code: Code) -> str:
    return "\n".join([f"define internal {head} noinline {{", *code.lines, "}"])


# of those that do not end a block
RULES: dict[str, Callable[[BlockWriter], None]] = {"BSSY": _bssy, "BMOV": _bmov, "BREAK": _break}
