"""The fast engine: it translates a launch's program to host vector code, and runs the warps of some groups at a time.

Instructions that have no rule here are executed by the interpreter. A program that cannot be translated at all runs on
it from its beginning.
"""

from __future__ import annotations

import ctypes
import logging
import math
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from ringup.silicon.shader.common.state import Counters, MemoryFault, Violation
from ringup.silicon.shader.host.beside import How, submitted
from ringup.silicon.shader.host.context import FAULT_KINDS, Word
from ringup.silicon.shader.nv.decoding.decode import IllegalInstruction, decode
from ringup.silicon.shader.nv.decoding.instruction import WORD_BYTES, Instruction
from ringup.silicon.shader.nv.interpreter.engine import Interpreter, LaunchRun, group_idents
from ringup.silicon.shader.nv.interpreter.step import Machine
from ringup.silicon.shader.nv.state import LANES
from ringup.silicon.shader.nv.translator import layout
from ringup.silicon.shader.nv.translator.known import Program, Programs, code_at
from ringup.silicon.shader.nv.translator.layout import Ended, Own, Slot
from ringup.silicon.shader.nv.translator.single_steps import SingleSteps
from ringup.silicon.shader.nv.translator.translations import Request, translated
from ringup.silicon.shader.nv.translator.undefined import detail_of
from ringup.silicon.shader.nv.translator.workspace import Form, Workspace, Workspaces
from ringup.silicon.shader.nv.translator.writer import NotTranslated

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Executor, Future

    from numpy.typing import NDArray

    from ringup.silicon.nv.compute.launch import Launch
    from ringup.silicon.shader.common.state import Memory
    from ringup.silicon.shader.host.code_cache import CodeCache
    from ringup.silicon.shader.nv.state import Warp
    from ringup.silicon.shader.nv.translator.translations import Translation

# Warps that are resident at once, bytes of their local memory, and instructions of a warp's turn.
RESIDENT_WARPS, RESIDENT_LOCAL_BYTES, QUANTUM = 256, 64 << 20, 20_000
# A program costs LLVM some 10 ms an instruction at most, the interpreter 50 us for each warp.
WORTHWHILE = 4000
_WAITS = "is not in its own mask, or waits at the barrier that begins anew"
_log = logging.getLogger(__name__)


class Translator:
    """The cores of a card. It keeps its translations for all launches.

    A program whose launches take fewer than `worthwhile` warp-instructions, all together, runs on the interpreter,
    which takes less time than LLVM. `beside` translates in the background: a launch whose program is being translated
    does nothing in its steps. Without it the start waits, so every step does the same each time. `on_disk` keeps
    translations for other processes too. `now_ns` is the card's timer.
    """

    def __init__(
        self,
        target: str = "sm_86",
        *,
        strict: bool = True,
        worthwhile: int = WORTHWHILE,
        beside: Executor | None = None,
        on_disk: CodeCache | None = None,
        now_ns: Callable[[], int] = lambda: 0,
    ) -> None:
        self.target, self.strict, self.worthwhile, self.beside = target, strict, worthwhile, beside
        self._now_ns = now_ns
        self.interpreter = Interpreter(target, strict=strict, now_ns=now_ns)
        self._how = How(kept=on_disk)
        self._programs = Programs(target)
        self._kept: dict[tuple[Program, int], Future[Translation | None]] = {}
        self._workspaces = Workspaces()

    def start(self, launch: Launch, memory: Memory) -> NativeRun | LaunchRun | AwaitedRun:
        """Begin a launch; nothing runs before the first `step`. Raises ValueError for one that no core can start."""
        slow = self.interpreter.start(launch, memory)
        try:
            program = self._programs.find(memory, launch.program)
            program.check_constants(launch)
        except (IllegalInstruction, MemoryFault, NotTranslated) as error:
            _log.info("the program at %#x runs on the interpreter: %s", launch.program, error)
            return slow
        program.launched += program.work(launch)
        if program.launched < self.worthwhile:
            return slow
        key = program, launch.registers
        made = self._kept.get(key)
        if made is None:
            request = Request(self.target, program, launch.registers, self.strict, self._how)
            made = self._kept[key] = submitted(self.beside, translated, request)

        def begin() -> NativeRun | LaunchRun:
            translation = made.result()
            # cores fetch code when they run it, and it may have changed while it was translated
            if translation is None or not self._is_still(program, memory, launch.program):
                return slow
            machine = Machine(memory, self.strict, self.target, self._now_ns)
            return NativeRun(launch, machine, translation, self._workspaces, beside=self.beside)

        return begin() if made.done() else AwaitedRun(made, begin)

    def _is_still(self, program: Program, memory: Memory, gpu_va: int) -> bool:
        """Return whether a program is at an address."""
        try:
            return self._programs.find(memory, gpu_va) is program
        except (IllegalInstruction, MemoryFault, NotTranslated):
            return False


def _word(memory: Memory, gpu_va: int) -> int:
    return int.from_bytes(code_at(memory, gpu_va, WORD_BYTES), "little")


class AwaitedRun:
    """A launch whose program is being translated. Then it is the run that `begin` returns."""

    repeating = False

    def __init__(self, made: Future[Translation | None], begin: Callable[[], NativeRun | LaunchRun]) -> None:
        self._made, self._begin = made, begin
        self._run: NativeRun | LaunchRun | None = None
        self._is_killed = False

    @property
    def waiting(self) -> bool:
        """Whether the translation is still under way, so that a step does nothing."""
        return not self._is_killed and not self._made.done()

    @property
    def instructions(self) -> int:
        """How many warp-instructions have been executed."""
        return 0 if self._run is None else self._run.instructions

    @property
    def counters(self) -> Counters:
        """The counters so far."""
        return Counters() if self._run is None else self._run.counters

    @property
    def violations(self) -> list[Violation]:
        """The broken rules so far."""
        return [] if self._run is None else self._run.violations

    @property
    def warps(self) -> Sequence[Place | Warp]:
        """The warps that were started and have not ended."""
        return [] if self._run is None else self._run.warps

    def kill(self) -> None:
        """Drop all warps."""
        self._is_killed = True
        if self._run is not None:
            self._run.kill()

    def step(self, instructions: int) -> bool:
        """Run up to about `instructions` warp-instructions; return True once every warp has ended."""
        if self._run is None:
            if self._is_killed or self.waiting:
                return self._is_killed
            self._run = self._begin()
        return self._run.step(instructions)


class NativeRun:
    """A launch under way on host code."""

    waiting = False
    repeating = False

    def __init__(
        self,
        launch: Launch,
        machine: Machine,
        translation: Translation,
        workspaces: Workspaces,
        *,
        beside: Executor | None = None,
    ) -> None:
        self.launch, self.memory, self.target, self._translation = launch, machine.memory, machine.target, translation
        self._beside = beside
        self._machine, self._workspaces = machine, workspaces
        self.violations: list[Violation] = []
        self._broken = translation.facts.broken if machine.strict else None
        self._idents = group_idents(launch)
        self._left = launch.grid[0] * launch.grid[1] * launch.grid[2]
        self._waves = 0
        self._error: BaseException | None = None
        self._refused: MemoryFault | None = None
        self._found: Violation | None = None
        self._code: dict[int, Instruction] = {}
        self._singles: SingleSteps | None = None
        self._groups: list[tuple[int, int, int]] = []
        self._epoch = machine.memory.epoch
        self._copies: dict[int, NDArray[np.uint8]] = {}
        self._work: Workspace | None = None
        # instructions and lanes, once the workspace is given back
        self._counted = 0, 0

    def _workspace(self) -> Workspace:
        """Return the memory of the launch, from its first step on."""
        if self._work is not None:
            return self._work
        launch = self.launch
        warps = -(-math.prod(launch.block) // LANES)
        local_bytes = launch.local_low_bytes + launch.local_high_bytes
        most = min(RESIDENT_WARPS, RESIDENT_LOCAL_BYTES // (LANES * max(local_bytes, 1)))
        resident = 1 if launch.sequential else max(1, min(most // warps, self._left))
        form = Form(
            resident, launch.block, launch.registers, launch.shared_bytes, local_bytes, self._translation.facts.sites
        )
        work = self._work = self._workspaces.take(form, self)
        context = work.context
        context[Own.SHARED_WINDOW], context[Own.LOCAL_WINDOW] = launch.windows.shared, launch.windows.local
        for place, bank in enumerate(launch.constants[:8]):
            if bank is not None:
                context[Own.BANK_VAS + place] = bank.gpu_va
                context[Own.BANK_SIZES + place] = bank.size_bytes
        return work

    def _end(self) -> None:
        """Give the memory back."""
        if self._work is not None:
            self._counted = self.instructions, int(self._work.context[Word.LANES])
            self._workspaces.give(self._work)
            self._work = self._singles = None

    def find_region(self, site: int, row: int, gpu_va: int, *, write: bool) -> bool:
        """Find a region for a site and its row of the table. An error is raised after host code has returned."""
        epoch = self.memory.epoch
        try:
            region = self.memory.region(gpu_va, write)
        except MemoryFault as fault:
            self._refused = fault
            return False
        except BaseException as error:  # noqa: BLE001
            self._error = error
            return False
        if self.memory.epoch != epoch and self._work is not None:
            # The access has waited for its page, and other pages may have moved meanwhile.
            self._work.forget()
        delta = (region.pointer - region.gpu_va) & 0xFFFF_FFFF_FFFF_FFFF
        found = (ctypes.c_uint64 * 4)(region.gpu_va, region.size_bytes, delta, 0)
        ctypes.memmove(site, found, 32)
        ctypes.memmove(row, found, 32)
        return True

    def interpret(self, group: int, warp: int, at: int) -> bool:
        """Execute an instruction of a warp; return whether it may go on: it broke no rule and raised no error."""
        pc = self.launch.program + at
        try:
            if self._singles is None:
                work = self._workspace()
                self._singles = SingleSteps(self.launch, self._machine, work.states, work.shared, work.local)
            ins = self._code.get(pc)
            if ins is None:
                ins = self._code[pc] = decode(self.target, _word(self.memory, pc))
            self._found = self._singles.execute(ins, pc, group, self._groups[group], warp, self.instructions)
        except BaseException as error:  # noqa: BLE001
            self._error = error
            return False
        return self._found is None

    # the run's interface ----------------------------------------------------------------------------------------------

    @property
    def instructions(self) -> int:
        """How many warp-instructions have been executed."""
        return self._counted[0] if self._work is None else int(self._work.context[Own.INSTRUCTIONS])

    @property
    def counters(self) -> Counters:
        """The counters so far. Lanes are those of the path, guards aside."""
        lanes = self._counted[1] if self._work is None else int(self._work.context[Word.LANES])
        return Counters(waves=self._waves, instructions=self.instructions, lanes=lanes)

    @property
    def warps(self) -> list[Place]:
        """The warps that were started and have not ended."""
        work = self._work
        if work is None:
            return []
        return [
            Place((*ident, warp), self.launch.program + int(work.states[group, warp, layout.PCS]))
            for group, ident in enumerate(self._groups)
            for warp in range(work.form.warps)
            if work.slots[group, warp] != Slot.ENDED
        ]

    def kill(self) -> None:
        """Drop all warps."""
        self._groups, self._left = [], 0
        self._idents = iter(())
        self._end()

    def step(self, instructions: int) -> bool:
        """Run up to about `instructions` warp-instructions; return True once every warp has ended."""
        if self._broken is not None and not self.violations:
            at, text, detail = self._broken
            self.violations.append(Violation("hazard", self.launch.program + at, text, (0, 0, 0, 0), detail))
        if self.violations:
            return False
        if not self._groups and not self._left:
            return True
        work = self._workspace()
        end = self.instructions + instructions
        try:
            self._banks(work)
        except MemoryFault as fault:
            wave = (0, 0, 0, 0)
            detail = f"a constant bank: {fault}"
            self.violations.append(Violation("memory", self.launch.program, "", wave, detail, None, fault.gpu_va))
            return False
        while self.instructions < end:
            if not self._groups and not self._fill(work):
                break
            before = self.instructions
            work.context[Word.BUDGET] = max(end - before, 1)
            result = self._translation.drive(
                *work.places, len(self._groups), work.form.warps, min(QUANTUM, max(end - before, 1))
            )
            self._translation.count(self.instructions - before, self._beside)
            if self._error is not None:
                raise self._error
            how = Ended(result & 0xFF)
            if how in (Ended.FAULT, Ended.STUCK):
                self._report(work, how, int(result >> 8))
                return False
            if (work.slots[: len(self._groups)] == Slot.ENDED).all():
                self._groups = []
        if self._groups or self._left:
            return False
        self._end()
        return True

    def _fill(self, work: Workspace) -> bool:
        """Start the next groups; return whether there are any."""
        groups = self._groups = list(islice(self._idents, work.form.resident))
        if not groups:
            return False
        work.begin(groups, first=not self._waves, forgets_values=self._translation.facts.notes_values)
        self._left -= len(groups)
        self._waves += len(groups) * work.form.warps
        return True

    def _banks(self, work: Workspace) -> None:
        """Find the constant banks that the program reads, and forget regions if translations may have changed.

        Raises `MemoryFault`.
        """
        if self.memory.epoch != self._epoch:
            self._epoch = self.memory.epoch
            work.forget()
        for number, size_bytes in self._translation.banks.items():
            bank = self.launch.constants[number]
            assert bank is not None
            region = self.memory.region(bank.gpu_va, write=False)
            if bank.gpu_va + size_bytes <= region.gpu_va + region.size_bytes:
                work.context[Own.BANKS + number] = region.pointer + bank.gpu_va - region.gpu_va
            else:
                # Its pages are apart. A launch need not see what is written to its constants meanwhile.
                copy = np.frombuffer(code_at(self.memory, bank.gpu_va, size_bytes), np.uint8)
                self._copies[number] = copy
                work.context[Own.BANKS + number] = copy.__array_interface__["data"][0]

    def _report(self, work: Workspace, how: Ended, number: int) -> None:
        if self._found is not None:
            self.violations.append(self._found)
            return
        group, warp = divmod(number, work.form.warps)
        wave = (*self._groups[group], warp)
        at = int(work.context[Own.FAULT_PC])
        pc = self.launch.program + at
        if how is Ended.STUCK:
            detail = "threads of the warp wait for each other forever"
            self.violations.append(Violation("hazard", self.launch.program, "", wave, detail))
            return
        text = decode(self.target, _word(self.memory, pc)).text
        kind = FAULT_KINDS[int(work.context[Word.FAULT_KIND]) - 1]
        gpu_va = int(work.context[Word.FAULT_DETAIL])
        if kind == "uninitialised":
            lane, detail = detail_of(gpu_va)
            self.violations.append(Violation(kind, pc, text, wave, detail, lane))
            return
        if kind == "hazard":
            self.violations.append(Violation(kind, pc, text, wave, f"of lane {gpu_va}, which {_WAITS}", gpu_va))
            return
        detail = str(self._refused) if self._refused is not None else f"address {gpu_va:#x}"
        self.violations.append(Violation(kind, pc, text, wave, detail, None, gpu_va))


@dataclass(frozen=True)
class Place:
    """Where a warp is: its group and number, and about where it runs."""

    name: tuple[int, int, int, int]
    pc: int
