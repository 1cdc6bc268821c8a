"""Lower a program to one function of LLVM IR.

Each block becomes a block, and each register a variable that every entry reads from the wave's state. Code that must be
made quickly keeps registers in the wave's state instead, see `registers`.

`i64 program(ptr wave, ptr context, i64 entry)` runs the wave from entry number `entry` until it must return, see
`context.Exit`. Entry 0 is the program's start: registers that SPI does not write are zero there. Every other entry
continues after an exit that stored all live registers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ringup.silicon.shader.amd.decoding.analysis import (
    ALL,
    EXEC_BITS,
    FIRST_VGPR,
    SCC_BIT,
    TRAP_BITS,
    VECTOR_FORMATS,
    allocated,
    full_exec,
    live_at_entry,
    live_before,
    numbers,
)
from ringup.silicon.shader.amd.decoding.cfg import Key, is_release, mode_after
from ringup.silicon.shader.amd.decoding.generations import RDNA3
from ringup.silicon.shader.amd.decoding.operands import signed as as_signed
from ringup.silicon.shader.amd.strict.analysis import analyse
from ringup.silicon.shader.amd.strict.code import Guard
from ringup.silicon.shader.amd.translator.sequences import follow
from ringup.silicon.shader.amd.writer.wave import RULES, Wave, rule_of
from ringup.silicon.shader.common import state
from ringup.silicon.shader.common.launch import (
    GROUP_BARRIER,
    STATUS_IN_GROUP,
    STATUS_NO_VGPRS,
    STATUS_PRIV,
    TRAP_BARRIER,
)
from ringup.silicon.shader.host.context import COUNTS_WORD, NOTE, SEQUENCE_WORD, SITES_WORD, Exit, Leave, Word
from ringup.silicon.shader.host.emitter import Code, Value
from ringup.silicon.shader.host.scheduler import TRANSLATE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ringup.silicon.shader.amd.decoding.cfg import Block, Program, Step
    from ringup.silicon.shader.amd.decoding.decode import Instruction
    from ringup.silicon.shader.amd.strict.analysis import Findings
    from ringup.silicon.shader.amd.strict.history import RuleBroken
    from ringup.silicon.shader.amd.translator.sequences import Before
    from ringup.silicon.shader.amd.writer.registers import Mode, Register
    from ringup.silicon.shader.common.launch import Start

SCALAR_BITS = (1 << state.SCALAR_FILE_WORDS) - 1
# Instructions without effect on results here: caches that are not modelled, hints, and waits, which only strict
# analysis uses.
NOTHING = frozenset(
    ("s_nop", "s_delay_alu", "s_clause", "s_set_inst_prefetch_distance", "s_waitcnt", "s_waitcnt_depctr", "s_wait_idle", "s_wait_event",
     "s_waitcnt_vscnt", "s_waitcnt_vmcnt", "s_waitcnt_expcnt", "s_waitcnt_lgkmcnt", "s_setprio", "s_incperflevel", "s_decperflevel",
     "s_ttracedata", "s_ttracedata_imm", "s_icache_inv", "s_wakeup", "s_version", "buffer_gl0_inv", "buffer_gl1_inv", "s_dcache_inv",
     "s_gl1_inv", "ds_nop", "v_nop", "v_pipeflush", "s_barrier", "s_sleep", "s_setkill", "s_sleep_var", "s_alloc_vgpr",
     "s_barrier_signal", "s_barrier_signal_isfirst", "s_barrier_wait", "global_inv", "global_wb", "global_wbinv", "s_prefetch_data",
     "s_prefetch_data_pc_rel", "s_prefetch_inst", "s_prefetch_inst_pc_rel", "s_buffer_prefetch_data", "s_wait_loadcnt",
     "s_wait_storecnt", "s_wait_samplecnt", "s_wait_bvhcnt", "s_wait_expcnt", "s_wait_dscnt", "s_wait_kmcnt",
     "s_wait_loadcnt_dscnt", "s_wait_storecnt_dscnt", "s_dcache_inv_vol", "s_dcache_wb", "s_dcache_wb_vol", "buffer_inv",
     "buffer_wbl2", "v_clrexcp")
)  # fmt: skip
# Parts of control flow whose instruction itself has no effect, or one that strict mode checks.
SUSPENDING = ("barrier", "sleep", "signal", "wait")


BEGINNING = 0  # the entry of waves that SPI starts
UNMODELLED = frozenset(("MIMG", "EXP", "VINTERP"))
INTERPRETED = UNMODELLED | {"VIMAGE", "VSAMPLE"}
SCALARS = (1 << FIRST_VGPR) - 1
# Instructions of these formats access memory, or caches before it.
MEMORY = frozenset(("SMEM", "GLOBAL", "FLAT", "SCRATCH", "MUBUF", "MTBUF"))
# They make a wave's stores visible if compute units have caches.
WAITS_FOR_STORES = frozenset(("s_wait_storecnt", "s_wait_storecnt_dscnt", "s_wait_idle", "s_waitcnt"))
# Instructions of these formats add to the count of active lanes.
COUNTED_FORMATS = VECTOR_FORMATS - UNMODELLED


@dataclass(frozen=True, slots=True)
class Variant:
    """What a translation depends on besides its code."""

    lanes: int
    vgpr_count: int
    scalars: int  # SGPRs that SPI writes, from s0 up
    full: bool  # every lane is active at the start
    strict: bool
    counting: bool
    tracked: bool = False  # strict mode tracks data from LDS too
    # Registers that may be undefined where waves come from another translation, which has tracked them.
    undefined: int = 0
    generation: str = RDNA3.name
    # Memory has caches in the compute units. The interpreter accesses it.
    scoped: bool = False
    acc_count: int = 0
    trusts_scalars: bool = False

    @property
    def rows(self) -> int:
        """Rows of lanes in a wave's state."""
        return state.register_rows(self.vgpr_count, self.acc_count)


@dataclass(frozen=True, slots=True)
class Lowered:
    """The function as text, and its tables."""

    text: str
    declarations: Mapping[str, str]  # what the text needs from its module
    blocks: tuple[Key, ...]  # in the order of their counts
    sites: int
    entries: dict[Key, int]
    bailed: tuple[str, ...]  # mnemonics that the interpreter executes
    # By block: vector instructions that run with all lanes active. They are not in the count of lanes.
    all_lanes: tuple[int, ...]
    notes: tuple[str, ...] = ()  # texts of faults, by the number in a detail with NOTE
    # The shadows that strict mode tracks, in the order in which they are saved after a wave's VGPRs.
    shadows: tuple[Register, ...] = ()
    shadowed: int = 0  # registers whose writes it tracks


# The fields of `Lowered` that runs need.
TABLES = ("blocks", "sites", "bailed", "all_lanes", "notes", "shadows", "shadowed")


def tables_as_bytes(lowered: Lowered) -> bytes:
    """Return the tables without the text, for `tables_from_bytes`."""
    tables = {name: getattr(lowered, name) for name in TABLES}
    return json.dumps(tables | {"entries": [[*key, number] for key, number in lowered.entries.items()]}).encode()


def tables_from_bytes(data: bytes) -> Lowered:
    """Return tables that were kept."""
    kept = json.loads(data)
    return Lowered(
        text="",
        declarations={},
        blocks=tuple(Key(*key) for key in kept["blocks"]),
        sites=kept["sites"],
        entries={Key(offset, mode): number for offset, mode, number in kept["entries"]},
        bailed=tuple(kept["bailed"]),
        all_lanes=tuple(kept["all_lanes"]),
        notes=tuple(kept["notes"]),
        shadows=tuple((bank, number) for bank, number in kept["shadows"]),
        shadowed=kept["shadowed"],
    )


def given_at_start(scalars: int, start: Start) -> int:
    """Return the registers that SPI writes, of which the first `scalars` SGPRs are some."""
    found = (1 << scalars) - 1 | EXEC_BITS | 1 << FIRST_VGPR
    if start.numbers_in_ttmp:
        found |= TRAP_BITS
    return found | 3 << start.flat_scratch if start.flat_scratch < state.SGPR_COUNT else found


def written_at_start(scalars: int, start: Start) -> int:
    """Return the registers that SPI writes, and trap registers, which SPI or the debugger uses."""
    return given_at_start(scalars, start) | TRAP_BITS


class Lowering:
    """What every translation of a program needs to know about it."""

    def __init__(self, program: Program, variant: Variant) -> None:
        self.program, self.variant = program, variant
        # BEGINNING is not among them: a wave that returns to the first instruction has registers.
        self.entries = {key: i for i, key in enumerate(program.entries, BEGINNING + 1)}
        self.bailed: set[str] = set()
        # How many VGPRs the wave has at the instruction being translated, without accumulation registers.
        self.vgpr_count = variant.vgpr_count
        self.allocated = allocated(variant.vgpr_count, variant.acc_count)
        everything = SCC_BIT | EXEC_BITS
        for block in program.blocks.values():
            for step in block.code:
                everything |= step.effects.uses | step.effects.defs
        if everything == ALL:
            everything = SCALAR_BITS | SCC_BIT | self.allocated
        else:
            everything &= SCALARS | self.allocated
        self.everything = everything & ~(1 << state.NULL)
        full_at = dict.fromkeys(self.entries, False)
        full_at[program.entries[0]] = variant.full
        for key in self._resumed():
            self.entries.setdefault(key, BEGINNING + 1 + len(self.entries))
        self.full = full_exec(program.blocks, full_at, variant.lanes)
        self.findings = self._findings() if variant.strict else None
        self.ways = (
            follow(program.blocks, program.generation, variant.lanes, trusts_scalars=variant.trusts_scalars)
            if variant.strict
            else None
        )
        self.live = live_at_entry(program.blocks, self.full, self.everything)

    def _findings(self) -> Findings | None:
        """Return what strict mode must check at run time; None if analysis cleared everything."""
        written = dict.fromkeys(self.program.entries, ALL & ~self.variant.undefined)
        written[self.program.entries[0]] = written_at_start(self.variant.scalars, self.program.generation.start)
        # Not allocated: other rules stop accesses to these.
        beyond = ALL & ~(SCALARS | self.allocated)
        written = {key: some | beyond for key, some in written.items()}
        found = analyse(self.program.blocks, written, self.full, self.variant.lanes, tracked=self.variant.tracked)
        return found if found.shadowed or found.flying else None

    def _resumed(self) -> list[Key]:
        """Return where waves continue after they yield: after barriers, at waits for split ones, and at targets of
        backward branches.
        """
        found = []
        for key, block in self.program.blocks.items():
            if block.ending == "wait":
                found.append(key)
            if block.ending in ("barrier", "sleep", "leave", "signal"):
                found += block.successors[:1]
            else:
                found += [one for one in block.successors if is_backwards(key, block, one)]
        return found

    def needs_interpreter(self, ins: Instruction) -> bool:
        """Return whether the interpreter executes an instruction whatever its registers hold.

        That is so if it breaks a rule, or is not modelled.
        """
        if ins.format in INTERPRETED:
            return True
        for one in ins.operands:
            words = max(one.size_bits // 32, 1)
            if one.kind == "vgpr" and not self._is_allocated(one.index, words):
                return True
            # On GCN several VGPRs begin at an even one.
            if one.kind == "vgpr" and one.size_bits > 32 and one.index % 2 and ins.generation.is_gcn:
                return True
            if one.kind == "sgpr" and words > 1 and one.index % (2 if words == 2 else 4) and one.index != state.NULL:
                return True
        return False

    def reaches_caches(self, ins: Instruction) -> bool:
        """Return whether the interpreter executes an instruction because compute units have caches."""
        return self.variant.scoped and (ins.format in MEMORY or ins.mnemonic in WAITS_FOR_STORES)

    def _is_allocated(self, first: int, words: int) -> bool:
        if first >= state.FIRST_ACC:
            return first - state.FIRST_ACC + words <= self.variant.acc_count
        return first + words <= self.vgpr_count

    def tables(self, *, sites: int) -> Lowered:
        """Return the tables of a program that has so many region caches."""
        full = tuple(
            sum(now and one.ins.format in COUNTED_FORMATS for one, now in zip(block.code, self.full[key], strict=True))
            for key, block in self.program.blocks.items()
        )
        blocks, bailed = tuple(self.program.blocks), tuple(sorted(self.bailed))
        return Lowered("", {}, blocks, sites, self.entries, bailed, full)


class _Writer(Lowering):
    """Writes one program's function."""

    def __init__(self, program: Program, variant: Variant, *, in_state: bool) -> None:
        super().__init__(program, variant)
        self.code = Code()
        self.wave = Wave(
            self.code,
            variant.lanes,
            variant.vgpr_count,
            strict=variant.strict,
            counting=variant.counting,
            tracked=variant.tracked,
            in_state=in_state,
            generation=program.generation,
        )
        self.wave.everything = self.everything
        # registers that may be read after the current block
        self._behind = 0
        self.names = {key: f"b{i}" for i, key in enumerate(program.blocks)}
        self.notes: list[str] = []
        self.states: dict[Before, int] = {} if self.ways is None else {self.ways.fresh: 0}
        self.guard = None if self.findings is None else Guard(self.wave, program, self.findings, variant.rows)
        self.wave.save_shadows = self.guard.save if self.guard is not None else None

    def run(self) -> Lowered:
        code, wave = self.code, self.wave
        for number, (key, block) in enumerate(self.program.blocks.items()):
            code.block(self.names[key])
            self._block(number, key, block)
        for number, key in ((BEGINNING, self.program.entries[0]), *((at, one) for one, at in self.entries.items())):
            code.block(f"entry{number}")
            wave.begin()
            self._enter(number, key)
            wave.flush()
            code.jump(self.names[key])
        wave.close()
        code.block("nowhere")
        code.line("unreachable")
        return replace(
            self.tables(sites=wave.sites),
            text=self._module(),
            declarations=self.code.declarations,
            notes=tuple(self.notes),
            shadows=tuple(self.guard.shadows) if self.guard is not None else (),
            shadowed=self.guard.findings.shadowed if self.guard is not None else 0,
        )

    def _module(self) -> str:
        wave = self.wave
        lines = [
            "define i64 @program(ptr noalias align 64 %wave, ptr noalias align 64 %context, i64 %entry) #0 {",
            "start:",
        ]
        lines += [f"{wave.variable(one)} = alloca {wave.base_type(one)}" for one in sorted(wave.used)]
        lines += [
            "%fuel = alloca i64",
            f"%behind = getelementptr i32, ptr %wave, i64 {SEQUENCE_WORD}",
            f"%fuel.place = getelementptr i64, ptr %context, i64 {int(Word.FUEL)}",
            "%fuel.start = load i64, ptr %fuel.place",
            "store i64 %fuel.start, ptr %fuel",
            f"%counts.place = getelementptr i32, ptr %wave, i64 {COUNTS_WORD}",
            "%counts = load ptr, ptr %counts.place",
            f"%sites.place = getelementptr i32, ptr %wave, i64 {SITES_WORD}",
            "%sites = load ptr, ptr %sites.place",
            "switch i64 %entry, label %nowhere ["
            + " ".join(f"i64 {i}, label %entry{i}" for i in (BEGINNING, *self.entries.values()))
            + "]",
        ]
        lines += self.code.lines
        lines += ["}", 'attributes #0 = { nounwind "prefer-vector-width"="512" "min-legal-vector-width"="512" }']
        declared = self.code.declarations
        if "translate" in declared or any("@translate(" in one for one in declared.values()):
            declared["translate"] = TRANSLATE.strip()
        return "\n".join([*lines, ""])

    # entries and blocks -----------------------------------------------------------------------------------------------

    def _enter(self, number: int, key: Key) -> None:
        """Read the live registers. At the program's start read only those that SPI wrote; all others are zero."""
        wave, variant, live = self.wave, self.variant, self.live[key]
        if number != BEGINNING:
            wave.restore(live)
            if self.guard is not None:
                if key in self.program.entries and not self.variant.tracked:
                    self.guard.start(ALL)
                else:
                    self.guard.restore()
            return
        wave.offset, wave.fault_saves = 0, 0
        self._refuse_misaligned(wave.context_word(Word.BASE))
        if self.guard is not None:
            self.guard.start(written_at_start(self.variant.scalars, self.program.generation.start))
        written = given_at_start(variant.scalars, self.program.generation.start)
        if variant.full:
            wave.set_exec_bits(self.code.const(-1, wave.mask_type))
            written &= ~((1 << variant.lanes // 32) - 1 << state.EXEC_LO)
            live &= ~((1 << variant.lanes // 32) - 1 << state.EXEC_LO)
        wave.restore(live & written)
        for one in numbers(live & ~written & wave.everything):
            if one >= FIRST_VGPR:
                wave.set_vgpr(one - FIRST_VGPR, self.code.const(0, wave.row), masked=False)
            elif one == state.SCC:
                wave.set_scc(self.code.const(0, "i1"))
            else:
                wave.set_sgpr(one, self.code.const(0, "i32"))

    def _block(self, number: int, key: Key, block: Block) -> None:
        code, wave = self.code, self.wave
        wave.begin()
        place = code.gep(Value("%counts", "ptr"), number, "i64")
        code.store(code.op("add", code.load(place, "i64", 8), code.const(1, "i64")), place, 8)
        fuel = Value("%fuel", "ptr")
        code.store(code.op("sub", code.load(fuel, "i64", 8), code.const(len(block.code), "i64")), fuel, 8)
        self._lanes = code.const(0, "i64")
        # EXEC, and its number of lanes
        self._counted = (self._lanes, self._lanes)
        self.vgpr_count = self.variant.vgpr_count
        mode = key.mode
        guard = self.guard
        broken = self._out_of_sequence(key)
        out = wave.everything if block.unknown else 0
        for one in block.successors:
            out |= self.live[one]
        self._behind = out
        alive = live_before(block, self.full[key], out)
        for index, (step, full) in enumerate(zip(block.code, self.full[key], strict=True)):
            wave.offset, wave.full, wave.mode = step.offset, full, wave.mode_of(mode)
            wave.alive = wave.fault_saves = alive[index]
            # A fault needs only the instruction's own VGPRs: nothing reads the others afterwards.
            if self.variant.strict:
                wave.fault_saves = alive[index] & SCALARS | step.effects.uses
            wave.undefined_rows, wave.written_rows, wave.reaches_lds = [], [], None
            changed = mode_after(step.ins, mode)
            if not full and step.ins.format in COUNTED_FORMATS:
                self._lanes = code.op("add", self._lanes, self._active_lanes())
            for rule_, condition in broken.get(index, ()):
                wave.fault(condition, rule_.kind, code.const(NOTE | self._note(rule_.detail), "i64"))
            if guard is not None:
                if not self.needs_interpreter(step.ins):
                    guard.before(key, index, step)
                shadows = guard.defined(step)
            if changed is not None:
                mode = changed
                wave.set_wave_word(state.MODE, code.const(mode, "i32"))
                if step.ins.mnemonic in RULES:
                    self._instruction(step.ins)
            elif not step.what or step.what in SUSPENDING:
                self._instruction(step.ins)
            if guard is not None:
                guard.after(step, shadows)
        if not self._lanes.is_constant:
            wave.count("lanes", self._lanes)
        self._ending(block)

    def _out_of_sequence(self, key: Key) -> dict[int, list[tuple[RuleBroken, Value]]]:
        """Return, by index, the instructions of a block that follow others too closely: the rule, and its condition
        (i1).

        Also writes the code that stores the block's state for its successors, if any of them needs it.
        """
        if self.ways is None:
            return {}
        code, found = self.code, self.ways.broken[key]
        if not self.ways.tracked:
            return {index: [(broken, code.const(1, "i1"))] for index, broken in found.values()}
        place = Value("%behind", "ptr")
        before = code.load(place, "i64", 8)
        is_state = {one: code.icmp("eq", before, code.const(self._state(one), "i64")) for one in self.ways.behind[key]}
        behind = code.const(self._state(self.ways.fresh), "i64")
        for one, after in self.ways.behind[key].items():
            behind = code.select(is_state[one], code.const(self._state(after), "i64"), behind)
        code.store(behind, place, 8)
        broken: dict[int, list[tuple[RuleBroken, Value]]] = {}
        for one, (index, rule_) in found.items():
            broken.setdefault(index, []).append((rule_, is_state[one]))
        return broken

    def _state(self, state: Before) -> int:
        """Return the number of a state."""
        return self.states.setdefault(state, len(self.states))

    def _active_lanes(self) -> Value:
        """Return how many lanes are active (i64), computed once for each value of EXEC."""
        active = self.wave.exec_bits()
        if active != self._counted[0]:
            number = self.code.cast("zext", self.code.intrinsic("ctpop", active), "i64")
            self._counted = (active, number)
        return self._counted[1]

    def _note(self, text: str) -> int:
        if text not in self.notes:
            self.notes.append(text)
        return self.notes.index(text)

    def _instruction(self, ins: Instruction) -> None:
        wave = self.wave
        needs_interpreter = self.needs_interpreter(ins)
        if ins.mnemonic in NOTHING and not needs_interpreter and not self.reaches_caches(ins):
            return
        if needs_interpreter:
            wave.bail(ins)
            return
        if is_release(ins):
            status = wave.wave_word(state.STATUS)
            wave.set_wave_word(state.STATUS, self.code.op("or", status, self.code.const(STATUS_NO_VGPRS, "i32")))
            self.vgpr_count = 0
            return
        if ins.mnemonic == "s_getpc_b64":
            wave.put_scalar(ins.operands[0], self._address(wave.offset + ins.size_bytes))
            return
        if has_rules(ins, wave.mode) and not self.reaches_caches(ins):
            apply_rules(wave, ins)
        else:
            self.bailed.add(ins.mnemonic)
            wave.bail(ins)

    def _address(self, offset: int) -> Value:
        return self.code.op("add", self.wave.context_word(Word.BASE), self.code.const(offset, "i64"))

    def _refuse_misaligned(self, target: Value) -> None:
        """Stop the wave if a program counter is not a multiple of 4."""
        code = self.code
        low = code.op("and", target, code.const(3, "i64"))
        self.wave.fault(code.icmp("ne", low, code.const(0, "i64")), "alignment", target)

    def _ending(self, block: Block) -> None:
        """Write how a block ends. Source: RDNA3 ISA reference, "Program Flow Control"."""
        code, wave = self.code, self.wave
        if block.ending == "illegal":
            wave.offset = block.code[-1].after if block.reason and block.code else block.key.offset
            if not block.reason:
                wave.offset = block.code[-1].offset
            wave.fault(code.const(1, "i1"), "illegal")
            code.line("unreachable")
            return
        last = block.code[-1]
        if block.ending == "end":
            wave.leave(code.const(Exit.END, "i64"))
        elif block.ending in ("barrier", "sleep"):
            self._suspend(block.successors[0], Exit.BARRIER if block.ending == "barrier" else Exit.YIELD)
        elif block.ending == "signal":
            self._suspend(block.successors[0], signal_exit(last.ins))
        elif block.ending == "wait":
            self._wait(block, last.ins)
        elif block.ending == "leave":
            wave.save(wave.everything, last.offset)
            if self.guard is not None:
                self.guard.save()
            wave.leave(code.const(Exit.LEAVE | Leave.INTERPRET << 8, "i64"))
        elif block.ending == "indirect":
            self._indirect(block, last)
        elif block.ending == "jump":
            if last.ins.mnemonic == "s_call_b64":
                wave.put_scalar(last.ins.operands[0], self._address(last.after))
            self._goto(block, block.successors[0])
        elif block.ending == "branch":
            condition = self._condition(last.ins)
            wave.flush(self._behind)
            taken = code.fresh("taken")
            code.branch(condition, taken, self.names[block.successors[1]])
            code.block(taken)
            self._goto(block, block.successors[0])
        else:
            self._goto(block, block.successors[0])

    def _goto(self, block: Block, target: Key) -> None:
        """Go to a block; go backwards only while the wave has fuel."""
        code, wave = self.code, self.wave
        wave.flush(self._behind)
        if not is_backwards(block.key, block, target):
            code.jump(self.names[target])
            return
        left = code.load(Value("%fuel", "ptr"), "i64", 8)
        out = code.fresh("out")
        code.branch(code.icmp("slt", left, code.const(0, "i64")), out, self.names[target], likely=False)
        code.block(out)
        self._suspend(target, Exit.YIELD)

    def _suspend(self, target: Key, reason: Exit) -> None:
        wave = self.wave
        wave.save(self.live[target], target.offset)
        if self.guard is not None:
            self.guard.save()
        wave.leave(self.code.const(self.entries[target] << 8 | reason, "i64"))

    def _wait(self, block: Block, ins: Instruction) -> None:
        """Pass a split barrier if it is complete; else return, and look again once woken."""
        code, wave = self.code, self.wave
        passes, out = code.fresh("passes"), code.fresh("waits")
        code.branch(pass_barrier(wave, awaited(ins)), passes, out)
        code.block(passes)
        self._goto(block, block.successors[0])
        code.block(out)
        self._suspend(block.key, Exit.WAIT)

    def _condition(self, ins: Instruction) -> Value:
        code, wave, name = self.code, self.wave, ins.mnemonic
        if name.startswith("s_cbranch_scc"):
            return wave.scc() if name.endswith("1") else code.invert(wave.scc())
        whole = wave.exec_bits() if "exec" in name else wave.mask_bits(state.VCC_LO)
        return code.icmp("ne" if name.endswith("nz") else "eq", whole, code.const(0, whole.type))

    def _indirect(self, block: Block, last: Step) -> None:
        """Go to the address in a register: a known block, or out of this code, to be translated."""
        code, wave = self.code, self.wave
        target = wave.scalar(last.ins.operands[-1], "i64")
        self._refuse_misaligned(target)
        if last.ins.mnemonic == "s_swappc_b64":
            wave.put_scalar(last.ins.operands[0], self._address(last.after))
        offset = code.op("sub", target, wave.context_word(Word.BASE))
        wave.flush(self._behind)
        away = code.fresh("away")
        arms = " ".join(f"i64 {one.offset}, label %{self.names[one]}" for one in block.successors)
        code.line(f"switch i64 {offset.text}, label %{away} [{arms}]")
        code.block(away)
        wave.save(wave.everything, 0)
        if self.guard is not None:
            self.guard.save()
        wave.set_wave_word(state.PC_LO, target)
        wave.leave(code.const(Exit.LEAVE, "i64"))


def signal_exit(ins: Instruction) -> Exit:
    """Return why a wave returns at the signal of its group's barrier."""
    return Exit.SIGNAL_FIRST if ins.mnemonic.endswith("isfirst") else Exit.SIGNAL


def awaited(ins: Instruction) -> int:
    """Return the number of the barrier that an instruction waits for; 0 for none."""
    return min(max(as_signed(ins.fields["simm16"], 16), TRAP_BARRIER), 0)


def pass_barrier(wave: Wave, number: int) -> Value:
    """Write that a wave passes a split barrier if it may; return whether it does (i1).

    Source: RDNA4 ISA reference, "S_BARRIER_WAIT". A wave alone in its group has no barrier, and a program none of trap
    handlers.
    """
    code, is_group = wave.code, number == GROUP_BARRIER
    if not number:
        return code.const(1, "i1")
    status = wave.wave_word(state.STATUS)
    needed = STATUS_IN_GROUP if is_group else STATUS_IN_GROUP | STATUS_PRIV
    status = code.op("and", status, code.const(needed, "i32"))
    absent = code.icmp("ne", status, code.const(needed, "i32"))
    bit = 1 if is_group else 2
    complete = wave.wave_word(state.BARRIERS_COMPLETE)
    has_passed = code.icmp("ne", code.op("and", complete, code.const(bit, "i32")), code.const(0, "i32"))
    wave.set_wave_word(state.BARRIERS_COMPLETE, code.op("and", complete, code.const(~bit, "i32")))
    return code.op("or", absent, has_passed)


def is_backwards(key: Key, block: Block, target: Key) -> bool:
    """Return whether a block goes backwards to another."""
    return block.ending in ("jump", "branch", "", "wait") and target.offset <= key.offset


def has_rules(ins: Instruction, mode: Mode) -> bool:
    """Return whether rules execute an instruction under a mode; else the interpreter does."""
    if any(rule_of(one) is None for one in ins.parts or (ins,)):
        return False
    # A rule cannot pass one half of a dual instruction to the interpreter, which it does unless it rounds to nearest.
    return not (ins.parts and mode.round_f32)


def apply_rules(wave: Wave, ins: Instruction) -> None:
    """Write an instruction that has rules."""
    if not ins.parts:
        _apply(wave, ins)
        return
    with wave.together():
        for one in ins.parts:
            _apply(wave, one)


def _apply(wave: Wave, ins: Instruction) -> None:
    function = rule_of(ins)
    assert function is not None
    function(wave, ins)


def lower(program: Program, variant: Variant, *, in_state: bool = False) -> Lowered:
    """Return the module of a program. `in_state` keeps registers in the wave's state between blocks."""
    return _Writer(program, variant, in_state=in_state).run()
