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

from ringup.errors import Unmodelled
from ringup.silicon.shader.common.state import Counters, MemoryFault, Violation
from ringup.silicon.shader.host.context import FAULT_KINDS, Word
from ringup.silicon.shader.host.native import HostCode
from ringup.silicon.shader.nv.decoding.decode import IllegalInstruction, decode
from ringup.silicon.shader.nv.decoding.instruction import WORD_BYTES, Instruction
from ringup.silicon.shader.nv.interpreter.engine import Interpreter, LaunchRun, group_idents
from ringup.silicon.shader.nv.interpreter.step import Machine, RuleBroken
from ringup.silicon.shader.nv.state import LANES
from ringup.silicon.shader.nv.translator import layout
from ringup.silicon.shader.nv.translator.checks import Broken, hazard
from ringup.silicon.shader.nv.translator.known import Program, Programs, code_at
from ringup.silicon.shader.nv.translator.layout import Ended, Own, Slot
from ringup.silicon.shader.nv.translator.lower import NOTHING, Lowering
from ringup.silicon.shader.nv.translator.single_steps import SingleSteps
from ringup.silicon.shader.nv.translator.undefined import detail_of, find
from ringup.silicon.shader.nv.translator.workspace import Form, Workspace, Workspaces
from ringup.silicon.shader.nv.translator.writer import NotTranslated

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ringup.silicon.nv.compute.launch import Launch
    from ringup.silicon.shader.common.state import Memory

# LLVM's levels of optimisation: at first, and once the average instruction was executed so often.
QUICK_LEVEL, THOROUGH_LEVEL, THOROUGH_AFTER = 0, 1, 200_000
# Warps that are resident at once, bytes of their local memory, and instructions of a warp's turn.
RESIDENT_WARPS, RESIDENT_LOCAL_BYTES, QUANTUM = 256, 64 << 20, 20_000
# A program costs LLVM some 10 ms an instruction at most, the interpreter 50 us for each warp.
WORTHWHILE = 4000
_UNEXPECTED = (
    ArithmeticError, AttributeError, LookupError, RuleBroken, StopIteration, TypeError, Unmodelled, ValueError,
)  # fmt: skip
_WAITS = "is not in its own mask, or waits at the barrier that begins anew"
_log = logging.getLogger(__name__)
_DRIVE = ctypes.CFUNCTYPE(
    ctypes.c_uint64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64,
    ctypes.c_uint64,
)  # fmt: skip


class Translation:
    """Host code of a program. `sites`: how many memory instructions have a region cache. `broken`: a strict rule that a
    path of it breaks. `notes_values`: it notes which registers were given values. `banks`: how many bytes of each
    constant bank it reads at fixed places.
    """

    def __init__(self, text: str, declarations: dict[str, str], size: int, sites: int, broken: Broken | None) -> None:
        self._module: tuple[str, dict[str, str]] | None = (text, declarations)
        self._size, self.sites, self.broken = size, sites, broken
        self.notes_values = False
        self.banks: dict[int, int] = {}
        self._executed = 0
        self._code = HostCode.of(text, level=QUICK_LEVEL, declarations=declarations)

    def drive(self, *arguments: int) -> int:
        """Run warps; see `lower.py`."""
        return int(_DRIVE(self._code.address("drive"))(*arguments))

    def count(self, instructions: int) -> None:
        """Note that so many instructions were executed; code that runs often is compiled thoroughly."""
        self._executed += instructions
        if self._module is not None and self._executed > THOROUGH_AFTER * self._size:
            text, declarations = self._module
            self._code = HostCode.of(text, level=THOROUGH_LEVEL, declarations=declarations)
            self._module = None


class Translator:
    """The cores of a card. It keeps its translations for all launches.

    A program whose launches take fewer than `worthwhile` warp-instructions, all together, runs on the interpreter,
    which takes less time than LLVM.
    """

    def __init__(self, target: str = "sm_86", *, strict: bool = True, worthwhile: int = WORTHWHILE) -> None:
        self.target, self.strict, self.worthwhile = target, strict, worthwhile
        self.interpreter = Interpreter(target, strict=strict)
        self._programs = Programs(target)
        self._kept: dict[tuple[Program, int], Translation | None] = {}
        self._workspaces = Workspaces()

    def start(self, launch: Launch, memory: Memory) -> NativeRun | LaunchRun:
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
        if key not in self._kept:
            self._kept[key] = _translated(self.target, program, launch.registers, strict=self.strict)
        translation = self._kept[key]
        if translation is None:
            return slow
        return NativeRun(launch, memory, self.target, translation, self._workspaces, strict=self.strict)


def _word(memory: Memory, gpu_va: int) -> int:
    return int.from_bytes(code_at(memory, gpu_va, WORD_BYTES), "little")


def _translated(target: str, program: Program, registers: int, *, strict: bool) -> Translation | None:
    try:
        undefined = find(target, program.blocks) if strict else NOTHING
        lowering = Lowering(program.blocks, registers, strict=strict, undefined=undefined)
        text, declarations = lowering.module()
        broken = hazard(target, program.blocks)
    except _UNEXPECTED as error:
        # The interpreter says what is wrong where it is.
        _log.info("a program runs on the interpreter: %s", error)
        return None
    if lowering.interpreted:
        texts = "; ".join(sorted(lowering.interpreted))
        _log.info("the interpreter executes single instructions of a program: %s", texts)
    translation = Translation(text, declarations, program.size, len(lowering.sites), broken)
    translation.notes_values = bool(undefined.checks)
    translation.banks = program.banks
    return translation


class NativeRun:
    """A launch under way on host code."""

    waiting = False
    repeating = False

    def __init__(
        self,
        launch: Launch,
        memory: Memory,
        target: str,
        translation: Translation,
        workspaces: Workspaces,
        *,
        strict: bool = True,
    ) -> None:
        self.launch, self.memory, self.target, self._translation = launch, memory, target, translation
        self._strict, self._workspaces = strict, workspaces
        self.violations: list[Violation] = []
        self._broken = translation.broken if strict else None
        self._idents = group_idents(launch)
        self._left = launch.grid[0] * launch.grid[1] * launch.grid[2]
        self._waves = 0
        self._error: BaseException | None = None
        self._refused: MemoryFault | None = None
        self._found: Violation | None = None
        self._code: dict[int, Instruction] = {}
        self._singles: SingleSteps | None = None
        self._groups: list[tuple[int, int, int]] = []
        self._epoch = memory.epoch
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
        form = Form(resident, launch.block, launch.registers, launch.shared_bytes, local_bytes, self._translation.sites)
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
        try:
            region = self.memory.region(gpu_va, write)
        except MemoryFault as fault:
            self._refused = fault
            return False
        except BaseException as error:  # noqa: BLE001
            self._error = error
            return False
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
                work, machine = self._workspace(), Machine(self.memory, self._strict, self.target)
                self._singles = SingleSteps(self.launch, machine, work.states, work.shared, work.local)
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
            self._translation.count(self.instructions - before)
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
        work.begin(groups, first=not self._waves, forgets_values=self._translation.notes_values)
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
