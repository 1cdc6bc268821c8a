"""A wave while the translator writes its program: its registers, its exits, its memory. Rules use `Wave`.

A rule is a function `rule(wave, ins)` that emits the IR of one instruction. Its author must know:

- `src`, `scalar`, `mask` read operands; `put`, `put_scalar`, `put_mask`, `set_scc` write them. These mask writes of
  VGPRs by EXEC; the rule does not.
- A rule reads all operands before it writes results, as hardware does.
- Registers are known by value within a block of the program. A rule that opens blocks itself must not access registers
  in a block that does not dominate its end; `unless` and `when` are the ways to do so.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from ringup.silicon.shader.amd.decoding.analysis import ALL, FIRST_VGPR, effects, numbers
from ringup.silicon.shader.amd.decoding.generations import RDNA3
from ringup.silicon.shader.amd.writer.registers import SCC, Known, Mode, Register, Registers, as_set
from ringup.silicon.shader.common import state
from ringup.silicon.shader.host.context import FAULT_KINDS, Exit, Leave, Word
from ringup.silicon.shader.host.emitter import Code, Value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ringup.silicon.shader.amd.decoding.decode import Instruction
    from ringup.silicon.shader.amd.decoding.generations import Generation

    Rule = Callable[["Wave", Instruction], None]

RULES: dict[str, Rule] = {}
# Those of mnemonics that mean something else on a generation, by its name. None: the interpreter executes it.
OWN_RULES: dict[str, dict[str, Rule | None]] = {}
SHADOW_BANKS = ("m", "d", "h")  # of `strict/code.py`
_COUNTERS = {
    "lanes": Word.LANES, "memory_transactions": Word.MEMORY_TRANSACTIONS, "cache_lines": Word.CACHE_LINES,
    "lds_conflicts": Word.LDS_CONFLICTS,
}  # fmt: skip


def rule(*mnemonics: str) -> Callable[[Rule], Rule]:
    """Register a function as the rule of these mnemonics (as `decode` spells them)."""

    def register(function: Rule) -> Rule:
        for one in mnemonics:
            RULES[one] = function
        return function

    return register


def own_rule(of: Generation, *mnemonics: str) -> Callable[[Rule], Rule]:
    """Register a function as the rule that these mnemonics have on a generation."""

    def register(function: Rule) -> Rule:
        OWN_RULES.setdefault(of.name, {}).update(dict.fromkeys(mnemonics, function))
        return function

    return register


def rule_of(ins: Instruction) -> Rule | None:
    """Return the rule of an instruction, or of a part of a dual one; None if the interpreter executes it."""
    own = OWN_RULES.get(ins.generation.name, {})
    if ins.mnemonic in own:
        return own[ins.mnemonic]
    return RULES.get(ins.mnemonic) or RULES.get(ins.mnemonic.replace("v_dual_", "v_", 1))


class _Stop(NamedTuple):
    label: str  # the block that leaves
    offset: int
    alive: int  # registers to save
    changed: dict[Register, Value]  # registers that changed since the program's block began
    block: int  # number of the program's block
    # Kind of the rule that was broken; None if the wave continues elsewhere.
    kind: Value | None = None
    detail: Value | None = None


class Wave(Registers):
    """Registers, exits and memory of the wave, at the instruction being translated.

    See `Registers` for the attributes.
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
        generation: Generation = RDNA3,
    ) -> None:
        super().__init__(code, lanes, vgpr_count, in_state=in_state, generation=generation)
        self.tracked = tracked  # undefined values from LDS are tracked
        # Lanes (mask_type) by register: `undefined_rows` are loaded from LDS and undefined; `written_rows` are stored
        # to LDS and defined, None for all lanes.
        self.undefined_rows: list[Value] = []
        # whether a lane of the FLAT instruction accesses LDS (i1)
        self.reaches_lds: Value | None = None
        self.written_rows: list[Value | None] = []
        self.strict, self.counting = strict, counting
        # region caches allocated so far
        self.sites = 0
        # registers that the program accesses
        self.everything = 0
        # registers that this instruction or a later one may read
        self.alive = 0
        self.fault_saves = 0  # registers that a fault saves to the wave's state
        # Changed before `unless` or `when`, within their bodies.
        self._dirty_outside: dict[Register, None] = {}
        self._block = 0  # number of the program's block
        # Saves the shadows of strict mode to the wave's state.
        self.save_shadows: Callable[[], None] | None = None
        self._faults: list[_Stop] = []
        self._stops: list[tuple[Value, str]] = []

    # the dispatch and the wave's state --------------------------------------------------------------------------------

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
        """Return the host address of the group's LDS: `context("lds_size")` bytes, and 64 zeroed spare ones after
        them.
        """
        return self.code.emit(f"inttoptr i64 {self.wave_word(state.LDS_BASE_LO, 'i64').text} to ptr", "ptr")

    def scratch_base(self) -> Value:
        """Return the gpu_va of the wave's scratch memory (i64)."""
        first = self.generation.start.flat_scratch
        return self.sgpr64(first) if first < state.SGPR_COUNT else self.wave_word(first, "i64")

    def count(self, name: str, amount: Value) -> None:
        """Add `amount` (i64) to a counter, if `counting`: lanes memory_transactions cache_lines lds_conflicts."""
        word = _COUNTERS[name]
        self.set_context_word(word, self.code.op("add", self.context_word(word), amount))

    # memory -----------------------------------------------------------------------------------------------------------

    def site(self) -> Value:
        """Return the address of this memory instruction's region cache.

        It is four i64: gpu_va of the first byte, size in bytes, host address minus gpu_va, spare. All are 0 at first
        and after the memory's epoch has changed. The site of a write holds writable regions only.
        """
        self.sites += 1
        return self.code.gep(Value("%sites", "ptr"), 4 * (self.sites - 1), "i64")

    def translate(self, site: Value, gpu_va: Value, *, write: bool) -> Value:
        """Fill the site's cache with the region that holds `gpu_va` (i64); return whether there is one (i1).

        If not, the memory has recorded the fault, and `fault` with kind "memory" must follow. This is a call. It takes
        tens of nanoseconds for a known region, microseconds for a new one.
        """
        return self.code.call(
            "translate", "i1", Value("%context", "ptr"), site, gpu_va, Value("true" if write else "false", "i1")
        )

    # exits ------------------------------------------------------------------------------------------------------------

    def fault(self, condition: Value, kind: str | Value, detail: Value | None = None) -> None:
        """Stop the wave at this instruction with a `Violation` of `kind` if `condition` (i1) holds.

        `detail` (i64) is reported with it, such as an address. The instruction's own writes are dropped. Code continues
        in a fresh block. A kind that is known only at run time is a number (i64) in `context.FAULT_KINDS`.
        """
        which = self.code.const(FAULT_KINDS.index(kind), "i64") if isinstance(kind, str) else kind
        self._stop(condition, self.fault_saves, which, detail or self.code.const(0, "i64"))

    def record_unwritten(self, undefined: list[Value]) -> None:
        """Record lanes (masks, by register) that loaded LDS bytes which were never written.

        Without tracking the wave leaves for a translation that tracks LDS.
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
        """Leave before this instruction if `condition` holds, with a set of registers saved.

        The block that does so is written later.
        """
        code, good, bad = self.code, self.code.fresh("good"), self.code.fresh("bad")
        dirty = self.dirty | self._dirty_outside
        # for a translation that needs the shadows too
        goes_on = kind is None
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
        """Forget values: a new block of the program starts, with unknown predecessors."""
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
            self._exit_blocks(stops, 0, end)
        for end in dict.fromkeys(end for _, end in by_block):
            code.block(end)
            self.leave(code.const(ends[end], "i64"))
        if self._stops:
            code.block("stopped")
            self.leave(code.phi(*self._stops))

    def _exit_blocks(self, stops: list[_Stop], done: int, after: str) -> None:
        """Write the exit blocks of the stops in one block of the program.

        Blocks from `after` on save the registers `done`. There are many stops, and most registers have the same value
        at most of them. So the stops are halved recursively, and each half saves together what its stops share. If
        every stop saved its own registers, that would be most of a strict program's code, and most of LLVM's time.
        """
        first, common = stops[0], ~done
        for one in stops:
            common &= one.alive
        for register in dict.fromkeys(register for one in stops for register in one.changed):
            if any(one.changed.get(register) != first.changed.get(register) for one in stops):
                common &= ~as_set(register)
        label = first.label if len(stops) == 1 else self.code.fresh("stop")
        if common & self.everything or len(stops) == 1:
            self._exit_block(label, stops, common)
            self.code.jump(after)
            after = label
        if len(stops) > 1:
            for half in (stops[: len(stops) // 2], stops[len(stops) // 2 :]):
                self._exit_blocks(half, done | common, after)

    def _exit_block(self, label: str, stops: list[_Stop], saved: int) -> None:
        """Write a block that saves registers with their values at these stops.

        The block of a single stop also saves its fault.
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
        """Save registers (a set of `analysis`) and the PC to the wave's state."""
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
        """Take registers (a set of `analysis`) from the wave's state."""
        for register in self._registers(found & self.everything):
            if self.in_state:
                self._forget(register)
            else:
                self.write(register, self.restore_register(register))

    def bail(self, ins: Instruction) -> None:
        """Let the interpreter execute the instruction; its registers go through the wave's state.

        Each time takes microseconds, so this is for rare cases.
        """
        found = effects(ins, self.lanes)
        self.save(found.uses | found.defs, self.offset)
        self.interpret()
        self.restore(found.defs if found.uses != ALL else ALL)

    def interpret(self) -> None:
        """Call the interpreter for the instruction at the saved PC; leave unless the wave continues behind it."""
        code = self.code
        function = code.emit(f"inttoptr i64 {self.context_word(Word.INTERPRET).text} to ptr", "ptr")
        reason = code.emit(f"call i64 {function.text}(ptr %context, ptr %wave)", "i64")
        good = code.fresh("interpreted")
        self._stops.append((reason, code.label))
        code.branch(code.icmp("ne", reason, code.const(Exit.NEXT, "i64")), "stopped", good, likely=False)
        code.block(good)

    @contextmanager
    def unless(self, condition: Value, ins: Instruction) -> Iterator[None]:
        """Emit a fast path: if `condition` (i1) holds, the interpreter executes the instruction instead of the `with`
        body.

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
        """Track what a body changes separately from what had changed before."""
        self.dirty, outside = {}, self._dirty_outside
        self._dirty_outside = outside | before.dirty
        yield
        self._dirty_outside = outside

    @contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        """Emit a body that runs if `condition` (i1) holds; otherwise the registers that it writes keep their values."""
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
        """Return the values of registers and the blocks that end with them, for `_merge`."""
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


__all__ = ["OWN_RULES", "RULES", "Mode", "Wave", "own_rule", "rule", "rule_of"]
