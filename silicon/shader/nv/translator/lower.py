"""A whole program as one host function that runs a warp, and the function that drives the warps of some groups.

Each block is written twice: for all 32 lanes, without masks, and for some of them. Between blocks the registers are in
the warp's state. Threads that are not on the path have their place in `PCS`.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from ringup.silicon.shader.host.context import FAULT_KINDS, Word
from ringup.silicon.shader.host.emitter import Code, Value
from ringup.silicon.shader.host.memory_shape import CONTEXT, Answer, first_lane
from ringup.silicon.shader.host.scheduler import TRANSLATE
from ringup.silicon.shader.nv.decoding.instruction import WORD_BYTES, Kind
from ringup.silicon.shader.nv.interpreter import control
from ringup.silicon.shader.nv.state import LANES
from ringup.silicon.shader.nv.translator import (
    conversion_rules,
    float_rules,
    half_rules,
    integer_rules,
    lane_rules,
    layout,
    memory_rules,
    undefined,
)
from ringup.silicon.shader.nv.translator.layout import Ended, Field, Own, Slot
from ringup.silicon.shader.nv.translator.program import target_of
from ringup.silicon.shader.nv.translator.undefined import Undefined
from ringup.silicon.shader.nv.translator.writer import FLAGS, ROW, STATE, NotTranslated, Writer

if TYPE_CHECKING:
    from ringup.silicon.shader.nv.translator.program import Block

RULES = {
    **integer_rules.RULES, **lane_rules.RULES, **float_rules.RULES, **half_rules.RULES, **conversion_rules.RULES,
    **memory_rules.RULES,
}  # fmt: skip
CONTROL = ("BRA", "EXIT", "BSSY", "BSYNC", "WARPSYNC", "YIELD", "BREAK", "BMOV", "BAR")
MAX_DOUBLED = 1000
NOTHING = Undefined({}, {})
HAZARD = FAULT_KINDS.index("hazard") + 1


class Lowering:
    """The translation of one program for warps with so many registers. `strict`: it checks more while it runs.

    `interpreted` are the texts of instructions that the interpreter executes. A program of many instructions has its
    blocks once, with masks, since LLVM takes a millisecond for each of them.
    """

    def __init__(
        self, blocks: dict[int, Block], registers: int, *, strict: bool = True, undefined: Undefined = NOTHING
    ) -> None:
        self.blocks, self.registers, self.strict, self.undefined = blocks, registers, strict, undefined
        self.code = Code()
        self.sites: list[int] = []
        self.interpreted: set[str] = set()
        size = sum(len(block.instructions) for block in blocks.values())
        self.forms = (True, False) if size <= MAX_DOUBLED else (False,)

    def module(self) -> tuple[str, dict[str, str]]:
        """Return the functions `run` and `drive` and what they need. Raises `NotTranslated`."""
        code = self.code
        code.block("entry")
        code.jump("choose")
        self._choose()
        for start, block in self.blocks.items():
            for full in self.forms:
                self._block(start, block, full=full)
        body = "\n".join(["define i64 @run(ptr %state, ptr %context) {", *code.lines, "}"])
        declared = dict(code.declarations)
        if any("@translate(" in one for one in declared.values()):
            declared["translate"] = TRANSLATE.strip()
        if "call void @settle" in body:
            declared["settle"] = _settle()
        return body + "\n" + _DRIVE, declared

    def _choose(self) -> None:
        """Make the next ready threads that are at one place the path, or say why there are none."""
        code, w = self.code, self._writer(full=False)
        code.block("choose")
        alive, converging, grouped = (w.load(one) for one in (Field.ALIVE, Field.CONVERGING, Field.GROUPED))
        waits = code.op("or", converging, grouped)
        ready = code.op("and", alive, code.invert(waits))
        code.branch(code.icmp("eq", ready, code.const(0, "i32")), "nobody", "somebody")
        code.block("nobody")
        code.branch(code.icmp("eq", alive, code.const(0, "i32")), "all.ended", "some.live")
        code.block("all.ended")
        code.line(f"ret i64 {int(Ended.END)}")
        code.block("some.live")
        together = code.icmp("eq", code.op("and", grouped, alive), alive)
        code.line(f"%why = select i1 {together.text}, i64 {int(Ended.BARRIER)}, i64 {int(Ended.STUCK)}")
        code.line("ret i64 %why")
        code.block("somebody")
        first = code.op("add", w.load(Field.LAST), code.const(1, "i32"))
        turned = code.intrinsic("fshr", ready, ready, first)
        nearest = code.intrinsic("cttz", turned, Value("true", "i1"))
        leader = code.op("and", code.op("add", nearest, first), code.const(31, "i32"))
        pcs = w.load(layout.PCS, ROW)
        pc = code.extract(pcs, leader)
        same = code.bitcast(code.icmp("eq", pcs, code.splat(pc, LANES)), "i32")
        active = code.op("and", same, ready)
        w.store(active, Field.ACTIVE)
        w.store(leader, Field.LAST)
        some = "enter.some"
        first_form = some if len(self.forms) == 1 else "enter.full"
        code.branch(code.icmp("eq", active, code.const(-1, "i32")), first_form, some)
        for full in self.forms:
            code.block("enter.full" if full else some)
            cases = " ".join(f"i32 {start}, label %{_label(start, full=full)}" for start in self.blocks)
            code.line(f"switch i32 {pc.text}, label %lost [ {cases} ]")
        code.block("lost")
        code.store(code.resize(pc, "i64"), code.gep(CONTEXT, Own.FAULT_PC, "i64"), 8)
        code.line(f"ret i64 {int(Ended.FAULT)}")

    def _writer(self, *, full: bool) -> BlockWriter:
        return BlockWriter(self.code, self.sites, self.registers, full=full, strict=self.strict)

    def _block(self, start: int, block: Block, *, full: bool) -> None:
        code, w = self.code, self._writer(full=full)
        code.block(_label(start, full=full))
        if not full:
            w.active = w.load(Field.ACTIVE)
        self._count(w, len(block.instructions))
        at = start
        for ins in block.instructions:
            w.begin(ins, at)
            for use in self.undefined.checks.get(at, ()):
                undefined.check(w, use)
            if ins.name in CONTROL:
                if self._control(w, at, full=full):
                    return
            elif ins.name in control.RULES:
                raise NotTranslated(f"{ins.text}: the translator lacks {ins.name}")
            elif ins.name not in RULES or not w.attempt(RULES[ins.name]):
                self.interpreted.add(ins.text)
                w.interpret()
            if at in self.undefined.changes:
                undefined.change(w, self.undefined.changes[at])
            at += WORD_BYTES
        w.flush()
        self._go(w, at, full=full)

    def _count(self, w: BlockWriter, count: int) -> None:
        code = self.code
        lanes = code.const(LANES, "i64") if w.full else code.resize(code.intrinsic("ctpop", w.active), "i64")
        for word, value in (
            (int(Own.INSTRUCTIONS), code.const(count, "i64")),
            (int(Word.LANES), code.op("mul", lanes, code.const(count, "i64"))),
            (int(Word.FUEL), code.const(-count, "i64")),
        ):
            place = code.gep(CONTEXT, word, "i64")
            code.store(code.op("add", code.load(place, "i64", 8), value), place, 8)

    def _go(self, w: BlockWriter, target: int, *, full: bool) -> None:
        """Go on at another block; backwards only while the warp's turn lasts."""
        code = self.code
        if target not in self.blocks:
            raise NotTranslated(f"a path leads to byte {target:#x}, where no instruction is")
        if target > w.at:
            code.jump(_label(target, full=full))
            return
        spent, on = code.fresh("spent"), _label(target, full=full)
        fuel = code.load(code.gep(CONTEXT, Word.FUEL, "i64"), "i64", 8)
        code.branch(code.icmp("slt", fuel, code.const(0, "i64")), spent, on, likely=False)
        code.block(spent)
        w.park(w.active, target)
        w.store(code.const(0, "i32"), Field.ACTIVE)
        code.line(f"ret i64 {int(Ended.BUDGET)}")

    # control flow -----------------------------------------------------------------------------------------------------

    def _control(self, w: BlockWriter, at: int, *, full: bool) -> bool:
        """Emit an instruction of control flow; return whether it ended the block."""
        code, name = self.code, w.ins.name
        following = at + WORD_BYTES
        if name == "BRA":
            self._bra(w, at, full=full)
            return True
        if name == "EXIT":
            self._exit(w, following, full=full)
            return True
        if name in ("BSYNC", "WARPSYNC"):
            self._wait(w, at, full=full)
            return True
        if name == "YIELD":
            w.flush()
            w.park(w.active, following)
            w.store(code.const(0, "i32"), Field.ACTIVE)
            code.jump("choose")
            return True
        if name == "BSSY":
            if self.strict:
                _check_reuse(w)
            w.set_convergence(w.ins.operands[0].value, code.splat(w.mask, LANES))
        elif name == "BMOV":
            _bmov(w)
        elif name == "BREAK":
            _break(w)
        else:
            self._bar(w, following, full=full)
            return True
        return False

    def _bra(self, w: BlockWriter, at: int, *, full: bool) -> None:
        code, ins = self.code, w.ins
        target, following = target_of(ins, at), at + WORD_BYTES
        taken = w.mask
        for one in ins.operands[:-1]:
            if one.kind not in (Kind.PREDICATE, Kind.UNIFORM_PREDICATE):
                raise NotTranslated(f"{ins.text}: this form of a branch")
            if one.value != 7 or one.invert:
                taken = code.op("and", taken, w.mask_of(one))
        w.flush()
        if taken.text == w.active.text:
            self._go(w, target, full=full)
            return
        every, not_all, parts = code.fresh("taken"), code.fresh("not.all"), code.fresh("parts")
        code.branch(code.icmp("eq", taken, w.active), every, not_all)
        code.block(every)
        self._go(w, target, full=full)
        code.block(not_all)
        stay = _label(following, full=full)
        if following not in self.blocks:
            raise NotTranslated(f"{ins.text}: nothing is behind it")
        code.branch(code.icmp("eq", taken, code.const(0, "i32")), stay, parts)
        code.block(parts)
        w.park(taken, target)
        w.store(code.op("and", w.active, code.invert(taken)), Field.ACTIVE)
        code.jump(_label(following, full=False))

    def _exit(self, w: BlockWriter, following: int, *, full: bool) -> None:
        code = self.code
        w.flush()
        left = code.op("and", w.active, code.invert(w.mask))
        w.store(code.op("and", w.load(Field.ALIVE), code.invert(w.mask)), Field.ALIVE)
        w.store(left, Field.ACTIVE)
        w.settle()
        if w.mask.text == w.active.text or following not in self.blocks:
            code.jump("choose")
            return
        if full:
            whole, some = code.fresh("nobody.ends"), code.fresh("some.end")
            code.branch(code.icmp("eq", left, code.const(-1, "i32")), whole, some)
            code.block(whole)
            code.jump(_label(following, full=True))
            code.block(some)
        code.branch(code.icmp("eq", left, code.const(0, "i32")), "choose", _label(following, full=False))

    def _wait(self, w: BlockWriter, at: int, *, full: bool) -> None:
        """Go on at once if the path has all threads of the barrier or of the mask, else wait."""
        code = self.code
        following = at + WORD_BYTES
        barrier = w.ins.operands[0].value if w.ins.name == "BSYNC" else _warpsync(w)
        row = w.convergence(barrier)
        w.flush()
        alive = w.load(Field.ALIVE)
        members = code.op("and", row, code.splat(alive, LANES))
        here = code.splat(w.mask, LANES)
        strangers = code.bitcast(code.icmp("ne", code.op("and", members, code.invert(here)), code.const(0, ROW)), "i32")
        waits = code.op("and", strangers, w.mask)
        on, wait = code.fresh("all.here"), code.fresh("wait")
        code.branch(code.icmp("eq", waits, code.const(0, "i32")), on, wait, likely=True)
        code.block(on)
        self._go(w, following, full=full)
        code.block(wait)
        w.park(w.mask, at)
        place = w.load(layout.WAITS_AT, ROW)
        at_barrier = code.const(barrier, ROW)
        w.store(code.select(w.lanes_of(w.mask), at_barrier, place), layout.WAITS_AT)
        w.store(code.op("or", w.load(Field.CONVERGING), w.mask), Field.CONVERGING)
        left = code.op("and", w.active, code.invert(w.mask))
        w.store(left, Field.ACTIVE)
        w.settle()
        if w.mask.text == w.active.text:
            code.jump("choose")
        else:
            code.branch(code.icmp("eq", left, code.const(0, "i32")), "choose", _label(following, full=False))

    def _bar(self, w: BlockWriter, following: int, *, full: bool) -> None:
        code, ins = self.code, w.ins
        if ins.modifiers[0] != "SYNC" or len(ins.operands) != 1 or ins.operands[0].value or ins.is_guarded:
            raise NotTranslated(f"{ins.text}: this form of a barrier")
        w.flush()
        w.park(w.active, following)
        w.store(code.op("or", w.load(Field.GROUPED), w.active), Field.GROUPED)
        w.store(code.const(0, "i32"), Field.ACTIVE)
        code.jump("choose")


class BlockWriter(Writer):
    """A writer with what control flow needs."""

    def park(self, mask: Value, at: int) -> None:
        """Leave threads at a place."""
        code = self.code
        here = code.const(at, ROW)
        if mask.text != "-1":
            here = code.select(self.lanes_of(mask), here, self.load(layout.PCS, ROW))
        self.store(here, layout.PCS)

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
        some, none = code.fresh("some.wait"), code.fresh("none.wait")
        code.branch(code.icmp("eq", self.load(Field.CONVERGING), code.const(0, "i32")), none, some, likely=True)
        code.block(some)
        code.line("call void @settle(ptr %state)")
        code.jump(none)
        code.block(none)


def _warpsync(w: BlockWriter) -> int:
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


def _label(start: int, *, full: bool) -> str:
    return f"{'all' if full else 'some'}.{start:x}"


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
    return "\n".join([f"define internal void @settle(ptr {STATE.text}) noinline {{", *code.lines, "}"])


# Runs all warps of some groups by turns, until each has ended, the fuel of this call is used up, or one is stuck.
_DRIVE = f"""
define i64 @drive(ptr %context, ptr %states, i64 %stride, ptr %slots, i64 %groups, i64 %warps, i64 %quantum) {{
entry:
  %fuel.place = getelementptr i64, ptr %context, i64 {int(Word.FUEL)}
  %budget.place = getelementptr i64, ptr %context, i64 {int(Word.BUDGET)}
  br label %group.next
group.next:
  %group = phi i64 [ 0, %entry ], [ %group.after, %group.done ]
  %first = mul i64 %group, %warps
  br label %round
round:
  br label %warp.next
warp.next:
  %warp = phi i64 [ 0, %round ], [ %warp.after, %warp.done ]
  %arrived = phi i64 [ 0, %round ], [ %arrived.after, %warp.done ]
  %ended = phi i64 [ 0, %round ], [ %ended.after, %warp.done ]
  %number = add i64 %first, %warp
  %slot = getelementptr i64, ptr %slots, i64 %number
  %how = load i64, ptr %slot
  %offset = mul i64 %number, %stride
  %state = getelementptr i8, ptr %states, i64 %offset
  %is.ready = icmp eq i64 %how, {int(Slot.READY)}
  br i1 %is.ready, label %go, label %tell
go:
  store i64 %quantum, ptr %fuel.place
  %result = call i64 @run(ptr %state, ptr %context)
  %left = load i64, ptr %fuel.place
  %used = sub i64 %quantum, %left
  %budget = load i64, ptr %budget.place
  %budget.after = sub i64 %budget, %used
  store i64 %budget.after, ptr %budget.place
  switch i64 %result, label %failed [
    i64 {int(Ended.END)}, label %ends i64 {int(Ended.BARRIER)}, label %arrives i64 {int(Ended.BUDGET)}, label %tell
  ]
ends:
  store i64 {int(Slot.ENDED)}, ptr %slot
  br label %tell
arrives:
  store i64 {int(Slot.BARRIER)}, ptr %slot
  br label %tell
failed:
  %shifted = shl i64 %number, 8
  %code = or i64 %shifted, %result
  ret i64 %code
tell:
  %now = load i64, ptr %slot
  %at.barrier = icmp eq i64 %now, {int(Slot.BARRIER)}
  %has.ended = icmp eq i64 %now, {int(Slot.ENDED)}
  %one.arrived = zext i1 %at.barrier to i64
  %one.ended = zext i1 %has.ended to i64
  %arrived.after = add i64 %arrived, %one.arrived
  %ended.after = add i64 %ended, %one.ended
  br label %warp.done
warp.done:
  %warp.after = add i64 %warp, 1
  %more = icmp ult i64 %warp.after, %warps
  br i1 %more, label %warp.next, label %looked
looked:
  %still = add i64 %arrived.after, %ended.after
  %all.wait = icmp eq i64 %still, %warps
  %some.wait = icmp ne i64 %arrived.after, 0
  %opens = and i1 %all.wait, %some.wait
  br i1 %opens, label %open, label %closed
open:
  %w = phi i64 [ 0, %looked ], [ %w.after, %opened ]
  %n = add i64 %first, %w
  %s = getelementptr i64, ptr %slots, i64 %n
  %h = load i64, ptr %s
  %waits = icmp eq i64 %h, {int(Slot.BARRIER)}
  br i1 %waits, label %wake, label %opened
wake:
  store i64 {int(Slot.READY)}, ptr %s
  %o = mul i64 %n, %stride
  %st = getelementptr i8, ptr %states, i64 %o
  %grouped = getelementptr i32, ptr %st, i64 {int(Field.GROUPED)}
  store i32 0, ptr %grouped
  br label %opened
opened:
  %w.after = add i64 %w, 1
  %w.more = icmp ult i64 %w.after, %warps
  br i1 %w.more, label %open, label %closed
closed:
  %budget.now = load i64, ptr %budget.place
  %spent = icmp sle i64 %budget.now, 0
  br i1 %spent, label %pause, label %goes
pause:
  ret i64 {int(Ended.BUDGET)}
goes:
  br i1 %opens, label %round, label %group.done
group.done:
  %group.after = add i64 %group, 1
  %group.more = icmp ult i64 %group.after, %groups
  br i1 %group.more, label %group.next, label %finish
finish:
  ret i64 {int(Ended.END)}
}}
"""
