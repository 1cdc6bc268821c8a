"""The fast engine: it translates programs to host vector code. Host code schedules the waves and calls Python only when
a wave needs it.
"""

from __future__ import annotations

import ctypes
import operator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ringup.silicon.shader.amd.decoding.analysis import FIRST_VGPR
from ringup.silicon.shader.amd.decoding.cfg import Key
from ringup.silicon.shader.amd.decoding.decode import LONGEST_BYTES, decode, of_wave
from ringup.silicon.shader.amd.decoding.generations import generation, relatives
from ringup.silicon.shader.amd.decoding.text import text
from ringup.silicon.shader.amd.interpreter.engine import NAVI31_WGPS, Machine, step_one, unit
from ringup.silicon.shader.amd.interpreter.engine import Exit as StepExit
from ringup.silicon.shader.amd.rules import (
    atomic,
    buffer,
    cdna,
    cdna4,
    compare,
    convert,
    division,
    dots,
    eight_bits,
    floats,
    functions,
    global_memory,
    integers,
    lanes,
    lds,
    matrix,
    mfma,
    mfma_scaled,
    packed,
    salu,
    scalar_floats,
    scalar_memory,
    scratch,
    small_floats,
)
from ringup.silicon.shader.amd.strict.analysis import LDS_STORED
from ringup.silicon.shader.amd.strict.birth import birth, register_name
from ringup.silicon.shader.amd.strict.code import shadow_slots
from ringup.silicon.shader.amd.strict.history import unsettled_lds
from ringup.silicon.shader.amd.strict.registers import undefined_text
from ringup.silicon.shader.amd.translator.lower import BEGINNING, Variant, written_at_start
from ringup.silicon.shader.amd.translator.plan import Part, Plan, Template, key_of
from ringup.silicon.shader.amd.translator.repeats import BYTES_A_STEP, MAX_STATE_BYTES, Repeats
from ringup.silicon.shader.amd.translator.translations import (
    MAX_KEPT,
    THOROUGH,
    THREADED,
    Job,
    Pending,
    Translation,
)
from ringup.silicon.shader.common import launch, state
from ringup.silicon.shader.common.state import (
    Counters,
    Dispatch,
    Events,
    Memory,
    MemoryFault,
    Region,
    Run,
    Violation,
    WaveState,
)
from ringup.silicon.shader.host.beside import How
from ringup.silicon.shader.host.context import (
    CODE_WORD,
    COUNTERS,
    COUNTS_WORD,
    ENTRY_WORD,
    EXEC_BITS_UNWRITTEN,
    FAULT_KINDS,
    GROUP_WORDS,
    LDS_UNWRITTEN,
    NOTE,
    SEQUENCE_WORD,
    SITES_WORD,
    STATUS_WORD,
    Exit,
    GroupWord,
    Leave,
    Status,
    Word,
)
from ringup.silicon.shader.host.native import schedule

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

    from numpy.typing import NDArray

    from ringup.silicon.shader.amd.writer.registers import Register
    from ringup.silicon.shader.host.code_cache import CodeCache

    Words = NDArray[np.uint64]
    Bytes = NDArray[np.uint8]

# Importing these fills `wave.RULES`.
RULE_MODULES = (
    atomic, buffer, cdna, cdna4, compare, convert, division, dots, eight_bits, floats, functions, global_memory, integers, lanes,
    lds, matrix, mfma, mfma_scaled, packed, salu, scalar_floats, scalar_memory, scratch, small_floats,
)  # fmt: skip
ALL_BITS = (1 << 64) - 1
# By number: the group's word that counts signals, and the bit of waves that may pass. The scheduler has them too.
SPLIT_BARRIERS = {
    launch.GROUP_BARRIER: (GroupWord.SIGNALS, 1), launch.TRAP_BARRIER: (GroupWord.TRAP_SIGNALS, 2),
}  # fmt: skip
# Runs of fewer steps are not looked at for states that come back.
STEPS_BEFORE_LOOKS = 500
PLANS_KEPT = 256
# Faults whose detail is an address, which may contain NOTE's bit.
_ADDRESSED = ("memory", "alignment")
_INTERPRET = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
_MISS = ctypes.CFUNCTYPE(
    ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64
)


@dataclass
class Translator:
    """The shader cores of a card with `wgp_count` work-group processors of the processor `target`.

    It keeps translations for all its dispatches.

    `counting` also counts memory transactions, which costs time. `host_cpu` is LLVM's name of the processor to generate
    code for; empty for this host. `beside` translates in the background: a step of a dispatch that needs a translation
    returns at once and runs nothing until it is made. Without `beside` a step waits for its translation, so every step
    does the same each time. A program is first translated quickly, or at `level`, and thoroughly once it has run so
    often that this pays off. The `max_kept` most recently used translations are kept; `on_disk` keeps them for other
    processes too. `trusts_scalars`: strict mode does not look for a missing `s_wait_alu` (`scalar_hazards.py`).
    """

    wgp_count: int = NAVI31_WGPS
    counting: bool = False
    host_cpu: str = ""
    beside: Executor | None = None
    max_kept: int = MAX_KEPT
    level: int = THREADED
    on_disk: CodeCache | None = None
    target: str = "gfx1100"
    trusts_scalars: bool = False
    cache: dict[tuple[Variant, int], list[Job]] = field(default_factory=dict)
    # By last use, oldest first: each job with the list that holds it.
    _used: dict[Job, list[Job]] = field(default_factory=dict)
    _plans: dict[tuple[object, ...], Plan] = field(default_factory=dict)

    @property
    def runs(self) -> tuple[str, ...]:
        """The processors whose code these cores run."""
        return relatives(self.target)

    def start(self, dispatch: Dispatch, memory: Memory, events: Events, *, strict: bool = True) -> Run:
        """Begin a dispatch; nothing runs before the first `step`."""
        of = generation(self.target)
        launch.check_wave_size(dispatch, of.start, self.target)
        machine = Machine(dispatch, memory, events, strict, of, trusts_scalars=self.trusts_scalars)
        return TranslatedRun(self, machine)

    @property
    def _how(self) -> How:
        return How(self.host_cpu, self.on_disk)

    def plan(self, machine: Machine) -> Plan:
        """Return the plan of a dispatch; equal dispatches share it. Raises `ValueError` for groups that do not fit."""
        key = machine.strict, key_of(machine.dispatch)
        known = self._plans.get(key)
        if known is None:
            known = Plan.of(
                machine.dispatch,
                strict=machine.strict,
                wgp_count=self.wgp_count,
                start=machine.generation.start,
            )
            if len(self._plans) >= PLANS_KEPT:
                self._plans.clear()
            self._plans[key] = known
        return known

    def translation(self, machine: Machine, variant: Variant, mode: int, extra: tuple[Key, ...]) -> Translation:
        """Return the program at the dispatch's PC with entries at 0 and `extra`, translated now or before.

        Raises `Pending` while the translation is under way.
        """
        known = self.cache.setdefault((variant, mode), [])
        # The latest has the most entries, or the better code. Better code is not worth waiting for.
        job = latest = next((one for one in reversed(known) if one.suits(machine, extra)), None)
        if latest is not None and not latest.made.done():
            job = next((one for one in reversed(known) if one.made.done() and one.suits(machine, extra)), latest)
        if job is None:
            job = Job.begin(machine, variant, [Key(0, mode), *extra], self._how, self.beside, self.level)
            self._keep(job, known)
        elif job is latest and job.is_outgrown:
            better = Job.begin(machine, variant, job.program.entries, self._how, self.beside, THOROUGH, better=True)
            self._keep(better, known)
            job = better if better.made.done() else job
        if not job.made.done():
            raise Pending(job.made)
        held = self._used.pop(job, None)
        if held is not None and job.made.exception() is not None:
            held.remove(job)
        elif held is not None:
            self._used[job] = held
        return job.made.result()

    def _keep(self, job: Job, known: list[Job]) -> None:
        """Add a translation, and drop the least recently used one beyond `max_kept`. Runs that use it keep it."""
        known.append(job)
        self._used[job] = known
        if len(self._used) > self.max_kept:
            oldest = next((one for one in self._used if one.made.done() and one is not job), None)
            if oldest is not None:
                self._used.pop(oldest).remove(oldest)


@dataclass(frozen=True, slots=True)
class _RememberedFault:
    """A memory that repeats its last fault.

    It raises that fault again without reporting it to the card a second time.
    """

    memory: Memory
    refused: MemoryFault | None

    @property
    def epoch(self) -> int:
        """The memory's epoch."""
        return self.memory.epoch

    def region(self, gpu_va: int, write: bool, execute: bool = False) -> Region:
        """Return the region of an address."""
        if self.refused is not None and (gpu_va, write) == (self.refused.gpu_va, self.refused.write):
            raise self.refused
        return self.memory.region(gpu_va, write, execute)


@dataclass(slots=True)
class _Active:
    """A translation that a run uses."""

    translation: Translation
    full: bool
    tracked: bool
    counts: Words  # by block: how often it ran
    sites: Words
    counts_at: int  # address; the sites follow

    @property
    def sites_at(self) -> int:
        """The address of `sites`."""
        return self.counts_at + 8 * len(self.counts)


class TranslatedRun:
    """A dispatch under way."""

    def __init__(self, translator: Translator, machine: Machine) -> None:
        self.machine = machine
        self._translator = translator
        self._plan = plan = translator.plan(machine)
        # Pages that are never written cost nothing.
        self._memory, self._base = _aligned(plan.memory_bytes)
        self._states = self._part(Part.STATES)
        self._lds = self._part(Part.LDS)
        self._groups = self._part(Part.GROUPS).view(np.uint64)
        self._regions = self._part(Part.REGIONS).view(np.uint64)
        self._context = plan.context.copy()
        # By whether all lanes are active at the start, and whether LDS is tracked.
        self._current: dict[tuple[bool, bool], _Active] = {}
        self._all: list[_Active] = []
        self._extra: set[Key] = set()
        # whether the templates are made
        self._is_made = False
        self._refused: MemoryFault | None = None  # the last one
        self._table = self._part(Part.TABLE).view(np.uint64)
        self._callbacks = (_INTERPRET(self._on_interpret), _MISS(self._on_miss))
        self._error: BaseException | None = None
        self._epoch = machine.memory.epoch
        self._ended = False
        self._waits: Future[Translation] | None = None  # the translation that the next step needs
        self._steps = 0
        self._repeats = Repeats()
        # A wave that continues once that is made, and whether LDS is tracked then.
        self._suspended: tuple[WaveState, bool] | None = None
        self._prepare()
        try:
            self._make_templates()
        except Pending as pending:
            self._waits = pending.made

    # the engine's interface -------------------------------------------------------------------------------------------

    @property
    def violations(self) -> list[Violation]:
        """The violations so far."""
        return self.machine.violations

    @property
    def counters(self) -> Counters:
        """The counters so far."""
        return self._counters()

    @property
    def instructions(self) -> int:
        """How many wave-instructions have been executed."""
        return sum(int(one.counts @ one.translation.lengths) for one in self._all)

    @property
    def waves(self) -> list[WaveState]:
        """The waves that were started and have not ended."""
        slots = range(int(self._context[Word.HIGH]) * self._plan.group_waves)
        return [wave for wave in map(self._wave, slots) if wave.words[STATUS_WORD] != Status.ENDED]

    @property
    def arrived(self) -> list[WaveState]:
        """Those of `waves` that wait at their group's barrier."""
        return [wave for wave in self.waves if wave.words[STATUS_WORD] == Status.WAITS]

    @property
    def stopped(self) -> list[WaveState]:
        """Waves that have halted or broken a rule.

        The state of a wave that broke a rule has the registers that its instruction reads, and those that may be read
        later. In strict mode it has only the former of its VGPRs. All else may be out of date.
        """
        slots = range(int(self._context[Word.HIGH]) * self._plan.group_waves)
        return [wave for wave in map(self._wave, slots) if wave.words[STATUS_WORD] == Status.STOPPED]

    @property
    def waiting(self) -> bool:
        """Whether the dispatch waits for a translation, so that a step does nothing."""
        return not self._ended and self._waits is not None and not self._waits.done()

    @property
    def repeating(self) -> bool:
        """Whether the last steps came back to an earlier state: the waves wait for memory to change."""
        return self._repeats.period > 0

    def step(self, instructions: int) -> bool:
        """Run up to about `instructions` wave-instructions; return True once every wave has ended.

        A dispatch with violations never ends.
        """
        if self._ended or self.waiting:
            return self._ended
        try:
            if self._waits is not None:
                self._resume()
            ended = self._run(instructions)
        except Pending as pending:
            self._waits = pending.made
            return False
        for one in self._current.values():
            if one.translation.improve is not None:
                executed = 0 if ended else int(one.counts @ one.translation.lengths)
                one.translation.improve_if_warm(executed, self._translator.beside)
        self._steps += 1
        if self._steps > STEPS_BEFORE_LOOKS and not ended:
            self._look()
        return ended

    def _look(self) -> None:
        """Compare all that the waves do next with what it was earlier."""
        words, plan = self._context, self._plan
        slots = int(words[Word.HIGH])
        waves, lds = slots * plan.group_waves * plan.wave_bytes, slots * int(words[Word.LDS_STRIDE])
        if waves + lds <= MAX_STATE_BYTES and not self._steps % (1 + (waves + lds) // BYTES_A_STEP):
            position = words[[Word.NEXT, Word.LIVE, Word.SLOT, Word.WAVE]].tobytes()
            groups = self._groups[: slots * GROUP_WORDS].tobytes()
            self._repeats.look(position + groups + self._states[:waves].tobytes() + self._lds[:lds].tobytes())

    def _resume(self) -> None:
        """Repeat what needed a translation. Memory may hold another program by now."""
        self._check_epoch()
        if not self._is_made:
            self._make_templates()
        if self._suspended is not None:
            self._continue_wave(*self._suspended)
        self._waits = None

    def _run(self, instructions: int) -> bool:
        words = self._context
        words[Word.BUDGET] = instructions
        run, address = schedule(), self._context.ctypes.data
        while words[Word.BUDGET] > 0:
            self._check_epoch()
            result = run(address)
            reason = result & 0xFF
            if reason == Exit.DONE:
                self._end()
                return True
            if reason == Exit.BUDGET:
                break
            if self._error is not None:
                error, self._error = self._error, None
                raise error
            self._serve(Exit(reason), result >> 8)
        return False

    def kill(self) -> None:
        """Drop all waves (queue reset)."""
        self._groups[:] = 0
        self._context[Word.NEXT] = self._context[Word.LAST]
        self._context[Word.LIVE] = 0
        self._end()

    def _end(self) -> None:
        """End the run, and add its instructions to the work of its translations."""
        if not self._ended:
            for one in self._all:
                one.translation.work += int(one.counts @ one.translation.lengths)
            self.machine.settle()
        self._ended = True

    # start ------------------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        words = self._context
        interpret, miss = (ctypes.cast(one, ctypes.c_void_p).value or 0 for one in self._callbacks)
        words[Word.BASE], words[Word.INTERPRET], words[Word.MISS] = self.machine.dispatch.pc, interpret, miss
        places, base = self._plan.places, self._base
        words[Word.REGIONS], words[Word.TEMPLATES] = base + places[Part.REGIONS][0], base + places[Part.TABLE][0]
        words[Word.STATES], words[Word.GROUPS] = base + places[Part.STATES][0], base + places[Part.GROUPS][0]
        words[Word.LDS] = base + places[Part.LDS][0]

    @property
    def _states_at(self) -> int:
        return self._base + self._plan.places[Part.STATES][0]

    def _part(self, part: Part) -> Bytes:
        first, end = self._plan.places[part]
        return self._memory[first:end]

    def _make_templates(self) -> None:
        """Make the first words of every wave of a group, full or partial along each axis."""
        # Nothing has run yet: what an earlier try found may be out of date.
        self._current, self._all = {}, []
        at = self._plan.places[Part.TEMPLATES][0]
        for shape, made in self._plan.templates.items():
            end = at + self._plan.template_bytes(made)
            self._fill_template(made, self._memory[at:end])
            self._table[shape] = self._base + at
            at = end
        self._is_made = True

    def _fill_template(self, made: Template, template: Bytes) -> None:
        dispatch = self.machine.dispatch
        template[:8].view(np.uint64)[0] = len(made.full)
        words = template[64:].view(np.uint32).reshape(made.words.shape)
        words[:] = made.words
        words[:, : len(dispatch.user_sgprs)] = dispatch.user_sgprs
        words[:, state.PC_LO], words[:, state.PC_HI] = dispatch.pc & 0xFFFF_FFFF, dispatch.pc >> 32
        if all(made.full):
            _set_entry(words, self._active(full=True), BEGINNING)
            return
        for wave, full in zip(words, made.full, strict=True):
            _set_entry(wave, self._active(full=full), BEGINNING)

    def _active(self, *, full: bool, tracked: bool = False) -> _Active:
        """Return the program for waves that begin with all lanes active, or with some.

        `tracked` is for waves that have loaded LDS bytes that were never written.
        """
        if (full, tracked) not in self._current:
            self._current[full, tracked] = self._translate(full=full, tracked=tracked)
        return self._current[full, tracked]

    def _translate(self, *, full: bool, tracked: bool) -> _Active:
        dispatch, machine = self.machine.dispatch, self.machine
        lanes, vgprs = dispatch.wave_size, max(dispatch.vgpr_count, 1)
        undefined = 0
        for one in self._all if tracked else ():
            undefined |= one.translation.lowered.shadowed
        counting = self._translator.counting
        variant = Variant(
            lanes, vgprs, self._plan.scalars, full, machine.strict, counting, tracked, undefined, machine.generation.name,
            machine.scoped is not None,
            dispatch.acc_count, machine.trusts_scalars,
        )  # fmt: skip
        made = self._translator.translation(machine, variant, self._plan.mode, tuple(sorted(self._extra)))
        blocks = len(made.lowered.blocks)
        words = np.zeros(1 + blocks + 4 * made.lowered.sites + 4, np.uint64)
        # threaded code finds its records there
        words[0] = made.records
        counts, sites = words[1 : 1 + blocks], words[1 + blocks :]
        active = _Active(made, full, tracked, counts, sites, counts.ctypes.data)
        self._all.append(active)
        return active

    # requests of waves ------------------------------------------------------------------------------------------------

    def _check_epoch(self) -> None:
        if self._epoch != self.machine.memory.epoch:
            self._epoch = self.machine.memory.epoch
            self._regions[:] = 0
            for one in self._all:
                one.sites[:] = 0

    def _on_miss(self, _: int, site: int, row: int, gpu_va: int, write: int) -> int:
        """Find a region for a site and its row of the table. An error is raised after host code has returned."""
        dispatch = self.machine.dispatch
        if gpu_va >> 48 in {dispatch.shared_aperture, dispatch.private_aperture} - {0}:
            return 0  # these address no memory
        try:
            region = self.machine.memory.region(gpu_va, bool(write))
        except MemoryFault as fault:
            self._refused = fault
            return 0
        except BaseException as error:  # noqa: BLE001
            self._error = error
            return 0
        found = (ctypes.c_uint64 * 4)(
            region.gpu_va, region.size_bytes, (region.pointer - region.gpu_va) & 0xFFFF_FFFF_FFFF_FFFF, 0
        )
        ctypes.memmove(site, found, 32)
        ctypes.memmove(row, found, 32)
        return 1

    def _on_interpret(self, _: int, address: int) -> int:
        """Execute one instruction of a wave whose registers host code has stored."""
        try:
            outcome = self._step((address - self._states_at) // self._plan.wave_bytes)
            self._check_epoch()
        except BaseException as error:  # noqa: BLE001
            self._error = error
            return Exit.ERROR
        return Exit.NEXT if outcome is StepExit.NEXT else Exit.STOPPED

    def _step(self, slot: int) -> StepExit:
        wave, place = self._wave(slot), slot // self._plan.group_waves
        group = self._group(place, wave)
        outcome = step_one(wave, group, self.machine)
        if group.barriers:
            self._put_barriers(place, group.barriers)
        return outcome

    def _wave(self, slot: int) -> WaveState:
        """Return the wave in a slot; it shares the slot's words."""
        wave = WaveState.__new__(WaveState)
        dispatch = self.machine.dispatch
        raw = self._states[slot * self._plan.wave_bytes : (slot + 1) * self._plan.wave_bytes]
        wave.words, wave.address = raw[: 4 * self._plan.row_words].view(np.uint32), raw.ctypes.data
        wave.wave_size, wave.vgpr_count, wave.acc_count = dispatch.wave_size, dispatch.vgpr_count, dispatch.acc_count
        wave.sgprs = wave.words[: state.SCALAR_FILE_WORDS]
        wave.vgprs = wave.words[state.RESERVED_WORDS :].reshape(-1, dispatch.wave_size)
        return wave

    def _group(self, slot: int, wave: WaveState) -> launch.Group:
        dispatch, first = self.machine.dispatch, slot * self._plan.lds_stride
        lds = self._lds[first : first + dispatch.lds_size_bytes]
        behind = first + self._plan.lds_shadow
        shadow = self._lds[behind : behind + dispatch.lds_size_bytes]
        # Nothing reads the shadow then, and memory has no space for it.
        if not self.machine.strict:
            shadow = np.zeros(dispatch.lds_size_bytes, np.uint8)
        barriers = self._barriers(slot) if self.machine.generation.splits_barriers else {}
        return launch.Group(dispatch, wave.name[:3], lds, shadow.view(np.bool_), [wave], barriers)

    def _words_of(self, slot: int, word: int) -> NDArray[np.uint32]:
        """Return a word of the state of every wave in a group slot."""
        plan, count = self._plan, int(self._groups[slot * GROUP_WORDS + GroupWord.WAVES])
        first = slot * plan.group_waves * plan.wave_bytes
        states = self._states[first : first + count * plan.wave_bytes].view(np.uint32)
        found: NDArray[np.uint32] = states.reshape(count, -1)[:, word]
        return found

    def _barriers(self, slot: int) -> dict[int, launch.Barrier]:
        """Return the split barriers of a group, for the interpreter; its waves are numbered as their slots are."""
        members = set(np.flatnonzero(self._words_of(slot, STATUS_WORD) != Status.ENDED).tolist())
        complete, found = self._words_of(slot, state.BARRIERS_COMPLETE), {}
        for number, (signals, bit) in SPLIT_BARRIERS.items():
            passing = set(np.flatnonzero(complete & bit).tolist())
            found[number] = launch.Barrier(members, int(self._groups[slot * GROUP_WORDS + signals]), passing)
        return found

    def _put_barriers(self, slot: int, barriers: dict[int, launch.Barrier]) -> None:
        """Store what the interpreter has done to the barriers of a group, and wake the waves that may pass one."""
        complete, status = self._words_of(slot, state.BARRIERS_COMPLETE), self._words_of(slot, STATUS_WORD)
        complete[:] = 0
        for number, (signals, bit) in SPLIT_BARRIERS.items():
            self._groups[slot * GROUP_WORDS + signals] = barriers[number].signals
            complete[list(barriers[number].complete)] |= np.uint32(bit)
        status[(complete != 0) & (status == Status.WAITS)] = Status.READY

    def _serve(self, reason: Exit, detail: int) -> None:
        """Handle an exit of the wave whose turn it is; `detail` of LEAVE is a `Leave`."""
        slot = int(self._context[Word.SLOT]) * self._plan.group_waves + int(self._context[Word.WAVE])
        wave = self._wave(slot)
        outcome = StepExit.NEXT
        if reason is Exit.FAULT:
            outcome = self._broken(slot, wave)
        elif reason is Exit.LEAVE and detail == Leave.INTERPRET:
            outcome = self._step(slot)
        if reason in (Exit.STOPPED, Exit.ERROR) or outcome in (StepExit.FAULT, StepExit.HALT):
            wave.words[STATUS_WORD] = Status.STOPPED
            return
        tracked = self._active_of(wave).tracked or (reason is Exit.LEAVE and detail == Leave.TRACK)
        self._suspended = (wave, tracked)
        self._continue_wave(wave, tracked)

    def _continue_wave(self, wave: WaveState, tracked: bool) -> None:
        """Make a wave continue at its PC."""
        before = self._active_of(wave)
        key = Key(wave.pc - self.machine.dispatch.pc, int(wave.words[state.MODE]))
        if (before.full, tracked) not in self._current and key != Key(0, self._plan.mode):
            # Without this it would be translated twice: without this entry, and with it.
            self._extra.add(key)
        active = self._active(full=before.full, tracked=tracked)
        known = active.translation.lowered.entries
        # Strict code tracks other registers: enter where nothing is expected of shadows.
        if active is not before:
            known = {one: at for one, at in known.items() if one in active.translation.program.entries}
        if key not in known:
            self._extra.add(key)
            active = self._current[before.full, tracked] = self._translate(full=before.full, tracked=tracked)
        if active is not before and tracked:
            self._carry(wave, before.translation.lowered.shadows, active.translation.lowered.shadows)
        _set_entry(wave.words, active, active.translation.lowered.entries[key])
        self._suspended = None

    def _carry(self, wave: WaveState, before: tuple[Register, ...], after: tuple[Register, ...]) -> None:
        """Move a wave's shadows from one translation's layout to another's.

        Loads in flight count as done, new registers as written.
        """
        first = 4 * (state.RESERVED_WORDS + wave.vgprs.size)
        limit = shadow_slots(wave.vgprs.shape[0])
        start = wave.address - self._states_at + first
        words = self._states[start : start + 8 * limit].view(np.uint64)
        known = {one: int(value) for one, value in zip(before, words.tolist(), strict=False)}
        for at, one in enumerate(after[:limit]):
            words[at] = 0 if one[0] == "h" else known.get(one, ALL_BITS)

    def _active_of(self, wave: WaveState) -> _Active:
        address = int(wave.words[COUNTS_WORD]) | int(wave.words[COUNTS_WORD + 1]) << 32
        return next(one for one in self._all if one.counts_at == address)

    def _broken(self, slot: int, wave: WaveState) -> StepExit:
        """Record the rule that an instruction broke.

        The interpreter executes the instruction again to report rules that need no history.
        """
        words, machine = self._context, self.machine
        kind, detail = FAULT_KINDS[words[Word.FAULT_KIND]], int(words[Word.FAULT_DETAIL])
        noted = bool(detail & NOTE) and kind not in _ADDRESSED
        if kind not in ("hazard", "uninitialised") and not noted:
            refused, self._refused = self._refused, None
            memory = _RememberedFault(machine.memory, refused)
            strict, of, trusts = machine.strict, machine.generation, machine.trusts_scalars
            again = Machine(machine.dispatch, memory, machine.events, strict, of, trusts_scalars=trusts)
            outcome = step_one(wave, self._group(slot // self._plan.group_waves, wave), again)
            self.violations.extend(again.violations)
            # Else the interpreter cannot find it, and the wave cannot continue.
            if again.violations or not machine.strict:
                return outcome
        ins = of_wave(decode(machine.fetch(wave.pc, LONGEST_BYTES), 0, machine.generation), wave.wave_size)
        notes = self._active_of(wave).translation.lowered.notes
        lane = None
        if noted:
            message = notes[detail & ~NOTE]
        else:
            message = _fault_text(kind, detail, self._birth(wave, detail) if kind == "uninitialised" else "")
            is_vector = kind == "uninitialised" and detail < LDS_UNWRITTEN and detail & 0xFFFF_FFFF >= FIRST_VGPR
            lane = detail >> 32 if is_vector else None
        self.violations.append(Violation(kind, wave.pc, text(ins), wave.name, message, lane=lane))
        return StepExit.FAULT

    def _birth(self, wave: WaveState, detail: int) -> str:
        """Return the origin of the undefined value that a fault's detail names."""
        if detail & LDS_UNWRITTEN:
            return ""
        program, register = self._active_of(wave).translation.program, detail & 0xFFFF_FFFF
        dispatch = self.machine.dispatch
        written = written_at_start(self._plan.scalars, self.machine.generation.start)
        return birth(program, dispatch.pc, dispatch.wave_size, wave.pc, register, written)

    def _counters(self) -> Counters:
        """Add up the counts of all blocks."""
        base, words = self.machine.dispatch.pc, self._context
        found = Counters(waves=int(words[Word.STARTED]))
        for active in self._all:
            blocks = active.translation.program.blocks
            for key, count in zip(active.translation.lowered.blocks, active.counts.tolist(), strict=True):
                for step in blocks[key].code if count else ():
                    found.instructions += count
                    found.by_pc[base + step.offset] = found.by_pc.get(base + step.offset, 0) + count
                    name = unit(step.ins)[1]
                    found.by_class[name] = found.by_class.get(name, 0) + count
        for active in self._all:
            all_lanes = active.translation.lowered.all_lanes
            found.lanes += self.machine.dispatch.wave_size * sum(map(operator.mul, active.counts.tolist(), all_lanes))
        found.lanes += int(words[Word.LANES])
        if self._translator.counting:
            interpreted = self.machine.counters
            found.memory_transactions = int(words[Word.MEMORY_TRANSACTIONS]) + interpreted.memory_transactions
            found.cache_lines = int(words[Word.CACHE_LINES]) + interpreted.cache_lines
            found.lds_conflicts = int(words[Word.LDS_CONFLICTS]) + interpreted.lds_conflicts
        return found


def _set_entry(words: NDArray[np.uint32], active: _Active, entry: int) -> None:
    """Make a wave, or several (wave, word), continue at an entry of a program."""
    words[..., STATUS_WORD], words[..., ENTRY_WORD] = Status.READY, entry
    words[..., SEQUENCE_WORD] = words[..., SEQUENCE_WORD + 1] = 0
    for word, address in (
        (CODE_WORD, active.translation.address),
        (COUNTS_WORD, active.counts_at),
        (SITES_WORD, active.sites_at),
    ):
        words[..., word], words[..., word + 1] = address & 0xFFFF_FFFF, address >> 32


def _fault_text(kind: str, detail: int, birth: str) -> str:
    """Return the message of a fault that depends on a wave's history; `birth` is an undefined value's origin."""
    if kind not in ("hazard", "uninitialised"):
        return f"{detail:#x}"
    if detail & LDS_UNWRITTEN:
        return f"LDS {detail & ~LDS_UNWRITTEN:#x} was never written"
    name, above = register_name(detail & 0xFFFF_FFFF), detail >> 32
    if kind == "hazard":
        waits = " and ".join(one for bit, one in enumerate(COUNTERS) if above >> bit & 1)
        if detail & 0xFFFF_FFFF == LDS_STORED:
            return unsettled_lds("", waits)
        return f"{name} is still being loaded; wait on {waits}"
    if detail & EXEC_BITS_UNWRITTEN:
        return f"EXEC would get bits of {name} that were never written" + (f": they come from {birth}" if birth else "")
    is_vector = detail & 0xFFFF_FFFF >= FIRST_VGPR
    return undefined_text(f"lane {above} of {name}" if is_vector else name, birth)


def _aligned(size_bytes: int) -> tuple[Bytes, int]:
    """Return zeroed bytes at a multiple of 64, and their address."""
    raw = np.zeros(size_bytes + 64, np.uint8)
    skip = -(address := raw.ctypes.data) % 64
    return raw[skip : skip + size_bytes], address + skip
