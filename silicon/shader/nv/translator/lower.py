"""A whole program as one host function that runs a warp, and the function that drives the warps of some groups.

Each block is written twice: for all 32 lanes, without masks, and for some of them. Between blocks the registers are in
the warp's state. Threads that are not on the path have their place in `PCS`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringup.silicon.shader.host.context import Word
from ringup.silicon.shader.host.emitter import Code, Value
from ringup.silicon.shader.host.memory_shape import CONTEXT
from ringup.silicon.shader.host.scheduler import TRANSLATE
from ringup.silicon.shader.nv.decoding.instruction import WORD_BYTES, Kind
from ringup.silicon.shader.nv.interpreter import control
from ringup.silicon.shader.nv.state import LANES
from ringup.silicon.shader.nv.translator import (
    conversion_rules,
    float_rules,
    flow,
    half_rules,
    integer_rules,
    lane_rules,
    layout,
    matrix_rules,
    memory_rules,
    undefined,
)
from ringup.silicon.shader.nv.translator.flow import BlockWriter
from ringup.silicon.shader.nv.translator.handlers import HandlerWriter
from ringup.silicon.shader.nv.translator.layout import Ended, Field, Own, Slot
from ringup.silicon.shader.nv.translator.program import ENDS, target_of
from ringup.silicon.shader.nv.translator.undefined import Undefined
from ringup.silicon.shader.nv.translator.writer import ROW, NotTranslated

if TYPE_CHECKING:
    from ringup.silicon.shader.nv.decoding.instruction import Instruction
    from ringup.silicon.shader.nv.translator.program import Block

RULES = {
    **integer_rules.RULES, **lane_rules.RULES, **float_rules.RULES, **half_rules.RULES, **conversion_rules.RULES,
    **memory_rules.RULES, **matrix_rules.RULES,
}  # fmt: skip
MAX_DOUBLED = 1000
NOTHING = Undefined({}, {})


class Lowering:
    """The translation of one program for warps with so many registers. `strict`: it checks more while it runs.

    `by_calls`: instructions are functions of their own, which LLVM compiles once for all programs.

    `interpreted` are the texts of instructions that the interpreter executes. A program of many instructions has its
    blocks once, with masks, since LLVM takes a millisecond for each of them.
    """

    def __init__(
        self,
        target: str,
        blocks: dict[int, Block],
        registers: int,
        *,
        strict: bool = True,
        undefined: Undefined = NOTHING,
        by_calls: bool = False,
    ) -> None:
        self.target, self.blocks, self.registers = target, blocks, registers
        self.strict, self.undefined, self.by_calls = strict, undefined, by_calls
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
        code.block("stopped")
        code.line(f"ret i64 {int(Ended.FAULT)}")
        code.block("lost")
        code.store(code.resize(pc, "i64"), code.gep(CONTEXT, Own.FAULT_PC, "i64"), 8)
        code.line(f"ret i64 {int(Ended.FAULT)}")

    def _writer(self, *, full: bool) -> BlockWriter:
        return BlockWriter(self.code, self.sites, self.registers, full=full, strict=self.strict, target=self.target)

    def _block(self, start: int, block: Block, *, full: bool) -> None:
        code, w = self.code, self._writer(full=full)
        code.block(_label(start, full=full))
        if not full:
            w.active = w.load(Field.ACTIVE)
        self._count(w, len(block.instructions))
        at = start
        for ins in block.instructions:
            if ins.name in ENDS:
                self._begin(w, ins, at)
                self._control(w, at, full=full)
                return
            if self.by_calls:
                self._call(w.active, ins, at, full=full)
            else:
                self._plain(w, ins, at)
            at += WORD_BYTES
        w.flush()
        w.at = at - WORD_BYTES
        self._go(w, at, full=full)

    def _begin(self, w: BlockWriter, ins: Instruction, at: int) -> None:
        w.begin(ins, at)
        for use in self.undefined.checks.get(at, ()):
            undefined.check(w, use)

    def _noted(self, w: BlockWriter) -> None:
        if w.at in self.undefined.changes:
            undefined.change(w, self.undefined.changes[w.at])

    def _plain(self, w: BlockWriter, ins: Instruction, at: int) -> None:
        """Emit an instruction that does not end its block."""
        self._begin(w, ins, at)
        if ins.name in flow.RULES:
            flow.RULES[ins.name](w)
        elif ins.name in control.RULES:
            raise NotTranslated(f"{ins.text}: the translator lacks {ins.name}")
        elif ins.name not in RULES or not w.attempt(RULES[ins.name]):
            self.interpreted.add(ins.text)
            w.interpret()
        self._noted(w)

    def _call(self, active: Value, ins: Instruction, at: int, *, full: bool) -> None:
        """Emit the call of an instruction's function."""
        code = self.code
        w = HandlerWriter(self.sites, self.registers, full=full, strict=self.strict, target=self.target)
        self._plain(w, ins, at)
        name, text, call = w.finish(active.text)
        code.declarations |= w.code.declarations
        code.declarations[name] = text
        if call.startswith("call void"):
            code.line(call)
            return
        stopped, on = code.emit(call, "i64"), code.fresh("on")
        code.branch(code.icmp("ne", stopped, code.const(0, "i64")), "stopped", on, likely=False)
        code.block(on)

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

    def _control(self, w: BlockWriter, at: int, *, full: bool) -> None:
        """Emit an instruction that ends its block."""
        code, name = self.code, w.ins.name
        following = at + WORD_BYTES
        if name == "BRA":
            self._bra(w, at, full=full)
            return
        if name == "EXIT":
            self._exit(w, following, full=full)
            return
        if name in ("BSYNC", "WARPSYNC"):
            self._wait(w, at, full=full)
            return
        if name == "YIELD":
            w.flush()
            w.park(w.active, following)
            w.store(code.const(0, "i32"), Field.ACTIVE)
            code.jump("choose")
            return
        self._bar(w, following, full=full)

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
        barrier = w.ins.operands[0].value if w.ins.name == "BSYNC" else flow.warpsync(w)
        w.flush()
        waits = w.sync(barrier)
        on, wait = code.fresh("all.here"), code.fresh("wait")
        code.branch(code.icmp("eq", waits, code.const(0, "i32")), on, wait, likely=True)
        code.block(on)
        self._go(w, following, full=full)
        code.block(wait)
        if w.mask.text == w.active.text:
            code.jump("choose")
        else:
            left = code.op("and", w.active, code.invert(w.mask))
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


def _label(start: int, *, full: bool) -> str:
    return f"{'all' if full else 'some'}.{start:x}"


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
