"""A wave as the translator sees it while it writes a program: its registers, its exits, its memory. Rules are written
against `Wave`.

A rule is a function `rule(wave, ins)` that emits the IR of one instruction. What it must know:

- `src`, `scalar`, `mask` read operands; `put`, `put_scalar`, `put_mask`, `set_scc` write them. EXEC masks writes of
  VGPRs here, not in the rule.
- All reads of a rule come before its writes, as hardware reads operands before it writes results.
- Registers are known by value within a block of the program. A rule that opens blocks itself must not touch registers
  in a block that does not dominate its end; `unless` and `when` are the ways to do so.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from ringup.silicon.shader.common import state
from ringup.silicon.shader.host.context import FAULT_KINDS, Exit, Leave, Word
from ringup.silicon.shader.host.emitter import Code, Value
from ringup.silicon.shader.rdna.decoding.analysis import ALL, FIRST_VGPR, effects, numbers
from ringup.silicon.shader.rdna.writer.registers import SCC, Known, Mode, Register, Registers, as_set

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ringup.silicon.shader.rdna.decoding.decode import Instruction

    Rule = Callable[["Wave", Instruction], None]

RULES: dict[str, Rule] = {}
SHADOW_BANKS = ("m", "d", "h")  # of `strict_code`
_COUNTERS = {
    "lanes": Word.LANES, "memory_transactions": Word.MEMORY_TRANSACTIONS, "cache_lines": Word.CACHE_LINES,
    "lds_conflicts": Word.LDS_CONFLICTS,
}  # fmt: skip


def rule(*mnemonics: str) -> Callable[[Rule], Rule]:
    """Make a function the rule of these mnemonics (as `decode` spells them)."""

    def register(function: Rule) -> Rule:
        for one in mnemonics:
            RULES[one] = function
        return function

    return register


class _Stop(NamedTuple):
    label: str  # the block that leaves
    offset: int
    alive: int  # registers to be stored
    changed: dict[Register, Value]  # those with other values than when the program's block began
    block: int  # which block of the program that is
    kind: Value | None = None  # of the rule that was broken; None: the wave goes on elsewhere
    detail: Value | None = None


class Wave(Registers):
    """Registers, exits and memory of the wave, at the instruction being translated; see `Registers` for the
    attributes.
    """

    def __init__(
        self,
        code: Code,
        lanes: int,
        vgpr_count: int,
        *,
        strict: bool,
        counting: bool,
        tracked: bool = False,
        in_state: bool = False,
    ) -> None:
        super().__init__(code, lanes, vgpr_count, in_state=in_state)
        self.tracked = tracked  # undefined values from LDS are followed
        # lanes (mask_type) by register: loaded from LDS and written by nobody; stored to LDS and written by somebody,
        # None for all
        self.undefined_rows: list[Value] = []
        self.reaches_lds: Value | None = None  # whether a lane of the FLAT instruction does (i1)
        self.written_rows: list[Value | None] = []
        self.strict, self.counting = strict, counting
        self.rows = vgpr_count  # VGPRs that the wave still has
        self.sites = 0  # region caches given out
        self.everything = 0  # registers that the program touches
        self.alive = 0  # those whose values may be read by this instruction or later
        self.told = 0  # those that a broken rule leaves in the wave's state
        self._dirty_outside: dict[Register, None] = {}  # of `unless` or `when`, within their bodies
        self._block = 0  # of the program, counted
        self.save_shadows: Callable[[], None] | None = None  # stores what strict mode follows to the wave's state
        self._faults: list[_Stop] = []
        self._stops: list[tuple[Value, str]] = []

    # what is common to the dispatch -----------------------------------------------------------------------------------

    def set_context_word(self, word: int, value: Value) -> None:
        """Write a word of the dispatch's context (i64)."""
        self.code.store(value, self._context_place(word), 8)

    def wave_word(self, index: int, type_: str = "i32") -> Value:
        """Read a status word of the wave's state (`state.FLAT_SCRATCH_LO` and the next as i64)."""
        return self.code.load(self.state_place(index), type_, 4)

    def set_wave_word(self, index: int, value: Value) -> None:
        """Write a status word of the wave's state, or two."""
        self.code.store(value, self.state_place(index), 4)

    def lds(self) -> Value:
        """Return the host address of the group's LDS; it has `context("lds_size")` bytes, and 64 spare zeroed ones
        behind.
        """
        return self.code.emit(f"inttoptr i64 {self.wave_word(state.LDS_BASE_LO, 'i64').text} to ptr", "ptr")

    def count(self, name: str, amount: Value) -> None:
        """Add `amount` (i64) to a counter: lanes memory_transactions cache_lines lds_conflicts. Only where `counting`
        is set.
        """
        word = _COUNTERS[name]
        self.set_context_word(word, self.code.op("add", self.context_word(word), amount))

    # memory -----------------------------------------------------------------------------------------------------------

    def site(self) -> Value:
        """Return the address of this memory instruction's region cache, made of four i64: gpu_va of the first byte,
        size in bytes, host address minus gpu_va, spare. All 0 at first and after the memory's epoch changed. A site of
        a write holds writable regions only.
        """
        self.sites += 1
        return self.code.gep(Value("%sites", "ptr"), 4 * (self.sites - 1), "i64")

    def translate(self, site: Value, gpu_va: Value, *, write: bool) -> Value:
        """Fill the site's cache with the region that holds `gpu_va` (i64); return i1: False if there is none, the
        memory was told, and `fault` with kind "memory" must follow. A call; costs tens of nanoseconds for regions met
        before, microseconds else.
        """
        return self.code.call(
            "translate", "i1", Value("%context", "ptr"), site, gpu_va, Value("true" if write else "false", "i1")
        )

    # ways out ---------------------------------------------------------------------------------------------------------

    def fault(self, condition: Value, kind: str | Value, detail: Value | None = None) -> None:
        """Where `condition` (i1) holds the wave stops at this instruction with a `Violation` of `kind`; `detail` (i64)
        is told with it, such as an address. Nothing this instruction wrote counts. Code goes on in a fresh block. A
        kind found out at run time is a number (i64) in `context.FAULT_KINDS`.
        """
        which = self.code.const(FAULT_KINDS.index(kind), "i64") if isinstance(kind, str) else kind
        self._stop(condition, self.told, which, detail or self.code.const(0, "i64"))

    def met_unwritten(self, undefined: list[Value]) -> None:
        """Take note of lanes (masks, by register) that loaded LDS bytes nobody wrote: the wave goes on where those are
        followed.
        """
        code = self.code
        if self.tracked:
            self.undefined_rows += undefined
            return
        some = undefined[0]
        for one in undefined[1:]:
            some = code.op("or", some, one)
        self._stop(code.icmp("ne", some, code.const(0, some.type)), self.alive)

    def _stop(self, condition: Value, saved: int, kind: Value | None = None, detail: Value | None = None) -> None:
        """Leave before this instruction where `condition` holds, with a set of registers stored; the block that does so
        is written later.
        """
        code, good, bad = self.code, self.code.fresh("good"), self.code.fresh("bad")
        dirty = self.dirty | self._dirty_outside
        goes_on = kind is None  # where what is followed is to be known
        changed = {
            one: self.read(one, self.base_type(one))
            for one in dirty
            if saved & as_set(one) or (goes_on and one[0] in SHADOW_BANKS)
        }
        self._faults.append(_Stop(bad, self.offset, saved, changed, self._block, kind, detail))
        code.branch(condition, bad, good, likely=False)
        code.block(good)

    def leave(self, reason: Value) -> None:
        """Return from the program with a reason (i64), see `context.Exit`."""
        self.set_context_word(Word.FUEL, self.code.load(Value("%fuel", "ptr"), "i64", 8))
        self.code.line(f"ret i64 {reason.text}")

    def begin(self) -> None:
        """Forget values: a new block of the program starts, reached from anywhere."""
        super().begin()
        self._block += 1

    def close(self) -> None:
        """Write the blocks that all faults and all interpreted instructions share."""
        code = self.code
        ends = {"broken": Exit.FAULT, "track": Exit.LEAVE | Leave.TRACK << 8}
        by_block: dict[tuple[int, str], list[_Stop]] = {}
        for one in self._faults:
            by_block.setdefault((one.block, "track" if one.kind is None else "broken"), []).append(one)
        for (_, end), stops in by_block.items():
            self._ways_out(stops, 0, end)
        for end in dict.fromkeys(end for _, end in by_block):
            code.block(end)
            self.leave(code.const(ends[end], "i64"))
        if self._stops:
            code.block("stopped")
            self.leave(code.phi(*self._stops))

    def _ways_out(self, stops: list[_Stop], done: int, after: str) -> None:
        """Write the blocks of stops in one block of the program, apart from the registers `done`, which blocks from
        `after` on store.

        Stops are many and most registers have the same value at most of them: each half of them stores together what
        its stops have in common. Stored one by one, this would be most of a strict program's code, and of the time that
        LLVM takes for it.
        """
        first, common = stops[0], ~done
        for one in stops:
            common &= one.alive
        for register in dict.fromkeys(register for one in stops for register in one.changed):
            if any(one.changed.get(register) != first.changed.get(register) for one in stops):
                common &= ~as_set(register)
        label = first.label if len(stops) == 1 else self.code.fresh("stop")
        if common & self.everything or len(stops) == 1:
            self._way_out(label, stops, common)
            self.code.jump(after)
            after = label
        if len(stops) > 1:
            for half in (stops[: len(stops) // 2], stops[len(stops) // 2 :]):
                self._ways_out(half, done | common, after)

    def _way_out(self, label: str, stops: list[_Stop], saved: int) -> None:
        """Write a block that stores registers as they are at these stops; where it is of one stop alone, what is told
        of it too.
        """
        one = stops[0]
        self.code.block(label)
        self.begin()
        for register, value in one.changed.items():
            self.write(register, value)
        self._save(saved)
        if len(stops) == 1:
            self._save_pc(one.offset)
            if one.kind is None and self.save_shadows is not None:
                self.save_shadows()
            if one.kind is not None and one.detail is not None:
                self.set_context_word(Word.FAULT_KIND, one.kind)
                self.set_context_word(Word.FAULT_DETAIL, one.detail)

    def save(self, found: int, offset: int) -> None:
        """Store registers (a set of `analysis`) and the PC to the wave's state."""
        self._save(found)
        self._save_pc(offset)

    def _save(self, found: int) -> None:
        for register in self._registers(found & self.everything):
            if register in self.dirty or not self.in_state:
                self.save_register(register)

    def _save_pc(self, offset: int) -> None:
        pc = self.code.op("add", self.context_word(Word.BASE), self.code.const(offset, "i64"))
        self.set_wave_word(state.PC_LO, pc)

    def restore(self, found: int) -> None:
        """Have registers (a set of `analysis`) be as the wave's state has them."""
        for register in self._registers(found & self.everything):
            if self.in_state:
                self._forget(register)
            else:
                self.write(register, self.restore_register(register))

    def bail(self, ins: Instruction) -> None:
        """Let the interpreter execute the instruction: its registers go through the wave's state. For rare things:
        microseconds each.
        """
        code = self.code
        found = effects(ins, self.lanes)
        self.save(found.uses | found.defs, self.offset)
        function = code.emit(f"inttoptr i64 {self.context_word(Word.INTERPRET).text} to ptr", "ptr")
        reason = code.emit(f"call i64 {function.text}(ptr %context, ptr %wave)", "i64")
        good = code.fresh("interpreted")
        self._stops.append((reason, code.label))
        code.branch(code.icmp("ne", reason, code.const(Exit.NEXT, "i64")), "stopped", good, likely=False)
        code.block(good)
        self.restore(found.defs if found.uses != ALL else ALL)

    @contextmanager
    def unless(self, condition: Value, ins: Instruction) -> Iterator[None]:
        """Emit a fast path: where `condition` (i1) holds, the interpreter executes the whole instruction instead of the
        `with` body.

        The body may write what `ins` writes; nothing may have been written before.
        """
        code = self.code
        slow, fast, done = code.fresh("slow"), code.fresh("fast"), code.fresh("done")
        before = self._known()
        code.branch(condition, slow, fast, likely=False)
        code.block(fast)
        with self._inside(before):
            yield
        changed = list(dict.fromkeys([*self.dirty, *self._registers(effects(ins, self.lanes).defs)]))
        quick = self._values(changed)
        code.jump(done)
        self._know(before)
        code.block(slow)
        self.bail(ins)
        exact = self._values(changed)
        code.jump(done)
        self._merge(before, changed, quick, exact, done)

    @contextmanager
    def _inside(self, before: Known) -> Iterator[None]:
        """Note what a body changes apart from what had changed before it."""
        self.dirty, outside = {}, self._dirty_outside
        self._dirty_outside = outside | before.dirty
        yield
        self._dirty_outside = outside

    @contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        """Emit a body that runs where `condition` (i1) holds; registers it writes keep their old values elsewhere."""
        code = self.code
        body, skip, done = code.fresh("when"), code.fresh("skip"), code.fresh("done")
        before = self._known()
        code.branch(condition, body, skip)
        code.block(body)
        with self._inside(before):
            yield
        changed = list(self.dirty)
        new = self._values(changed)
        code.jump(done)
        self._know(before)
        code.block(skip)
        old = self._values(changed)
        code.jump(done)
        self._merge(before, changed, new, old, done)

    def _registers(self, found: int) -> list[Register]:
        return [
            ("v", number - FIRST_VGPR) if number >= FIRST_VGPR else SCC if number == state.SCC else ("s", number)
            for number in numbers(found)
        ]

    def _values(self, registers: list[Register]) -> list[tuple[Value, str]]:
        """Return values of registers, to be merged with those that they have when control comes from another block than
        this one.
        """
        values = [self.read(one, self.base_type(one)) for one in registers]
        return [(one, self.code.label) for one in values]

    def _merge(
        self,
        before: Known,
        changed: list[Register],
        one: list[tuple[Value, str]],
        other: list[tuple[Value, str]],
        label: str,
    ) -> None:
        self.code.block(label)
        self._know(before)
        for register, first, second in zip(changed, one, other, strict=True):
            self.write(register, self.code.phi(first, second))


__all__ = ["RULES", "Mode", "Wave", "rule"]
