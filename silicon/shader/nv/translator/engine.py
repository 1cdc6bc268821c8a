"""The fast engine: it translates a launch's program to host vector code, and runs the warps of some groups at a time.

A program with an instruction that has no rule here runs on the interpreter, from its beginning.
"""

from __future__ import annotations

import ctypes
import logging
import math
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from ringup.errors import Unmodelled
from ringup.silicon.shader.common.state import Counters, MemoryFault, Violation
from ringup.silicon.shader.host.context import FAULT_KINDS, Word
from ringup.silicon.shader.host.native import HostCode
from ringup.silicon.shader.host.scheduler import LDS_SPARE_BYTES, REGION_WORDS
from ringup.silicon.shader.nv.decoding.decode import IllegalInstruction, decode
from ringup.silicon.shader.nv.decoding.instruction import RZ, WORD_BYTES, Instruction, Kind
from ringup.silicon.shader.nv.interpreter.engine import Interpreter, LaunchRun, group_idents
from ringup.silicon.shader.nv.interpreter.memory import read_bytes, shape_of
from ringup.silicon.shader.nv.interpreter.step import Machine, RuleBroken
from ringup.silicon.shader.nv.state import LANES
from ringup.silicon.shader.nv.translator import layout
from ringup.silicon.shader.nv.translator.checks import Broken, hazard
from ringup.silicon.shader.nv.translator.layout import Ended, Field, Own, Slot
from ringup.silicon.shader.nv.translator.lower import Lowering
from ringup.silicon.shader.nv.translator.program import Block, blocks_of, target_of
from ringup.silicon.shader.nv.translator.single_steps import SingleSteps
from ringup.silicon.shader.nv.translator.writer import NotTranslated

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ringup.silicon.nv.compute.launch import Launch
    from ringup.silicon.shader.common.state import Memory

# LLVM's levels of optimisation: at first, and once the average instruction was executed so often.
QUICK_LEVEL, THOROUGH_LEVEL, THOROUGH_AFTER = 0, 1, 200_000
# Warps that are resident at once, bytes of their local memory, and instructions of a warp's turn.
RESIDENT_WARPS, RESIDENT_LOCAL_BYTES, QUANTUM = 256, 64 << 20, 20_000
STATE_ALIGN = 64
_WIDE = ("WIDE", "F64", "U64", "S64")
# A program costs LLVM some 10 ms an instruction at most, the interpreter 50 us for each warp.
WORTHWHILE = 4000
_UNEXPECTED = (
    ArithmeticError, AttributeError, LookupError, RuleBroken, StopIteration, TypeError, Unmodelled, ValueError,
)  # fmt: skip
_WAITS = "is not in its own mask, or waits at the barrier that begins anew"
_log = logging.getLogger(__name__)
_MISS = ctypes.CFUNCTYPE(
    ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64
)
_INTERPRET = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_uint64, ctypes.c_uint64)
_DRIVE = ctypes.CFUNCTYPE(
    ctypes.c_uint64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64,
    ctypes.c_uint64,
)  # fmt: skip


class Translation:
    """Host code of a program. `sites`: how many memory instructions have a region cache. `broken`: a strict rule that a
    path of it breaks.
    """

    def __init__(self, text: str, declarations: dict[str, str], size: int, sites: int, broken: Broken | None) -> None:
        self._module: tuple[str, dict[str, str]] | None = (text, declarations)
        self._size, self.sites, self.broken = size, sites, broken
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


@dataclass
class Translator:
    """The cores of a card. It keeps its translations for all launches.

    A launch of fewer than `worthwhile` warp-instructions runs on the interpreter, which takes less time than LLVM.
    """

    target: str = "sm_86"
    strict: bool = True
    worthwhile: int = WORTHWHILE
    _kept: dict[tuple[bytes, int], Translation | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.interpreter = Interpreter(self.target, strict=self.strict)

    def start(self, launch: Launch, memory: Memory) -> NativeRun | LaunchRun:
        """Begin a launch; nothing runs before the first `step`. Raises ValueError for one that no core can start."""
        slow = self.interpreter.start(launch, memory)
        try:
            blocks = blocks_of(self.target, lambda at: _word(memory, launch.program + at))
            _check_constants(blocks, launch)
        except (IllegalInstruction, MemoryFault, NotTranslated) as error:
            _log.info("the program at %#x runs on the interpreter: %s", launch.program, error)
            return slow
        if _work(blocks, launch) < self.worthwhile:
            return slow
        translation = self._translation(blocks, launch.registers)
        if translation is None:
            return slow
        return NativeRun(launch, memory, self.target, translation, strict=self.strict)

    def _translation(self, blocks: dict[int, Block], registers: int) -> Translation | None:
        words = [(start, *(ins.word for ins in block.instructions)) for start, block in blocks.items()]
        key = repr(words).encode(), registers
        if key not in self._kept:
            self._kept[key] = _translated(self.target, blocks, registers, strict=self.strict)
        return self._kept[key]


def _work(blocks: dict[int, Block], launch: Launch) -> float:
    """Return how many warp-instructions a launch takes; without end if it may loop."""
    for start, block in blocks.items():
        last = block.instructions[-1]
        if last.name == "BRA" and target_of(last, block.end - WORD_BYTES) <= start:
            return math.inf
    warps = -(-math.prod(launch.block) // LANES) * math.prod(launch.grid)
    return warps * sum(len(block.instructions) for block in blocks.values())


def _word(memory: Memory, gpu_va: int) -> int:
    return int.from_bytes(read_bytes(memory, gpu_va, WORD_BYTES), "little")


def _translated(target: str, blocks: dict[int, Block], registers: int, *, strict: bool) -> Translation | None:
    try:
        lowering = Lowering(blocks, registers, strict=strict)
        text, declarations = lowering.module()
        broken = hazard(target, blocks)
    except _UNEXPECTED as error:
        # The interpreter says what is wrong where it is.
        _log.info("a program runs on the interpreter: %s", error)
        return None
    if lowering.interpreted:
        _log.info(
            "the interpreter executes single instructions of a program: %s", "; ".join(sorted(lowering.interpreted))
        )
    size = sum(len(block.instructions) for block in blocks.values())
    return Translation(text, declarations, size, len(lowering.sites), broken)


def _constant_bytes(ins: Instruction) -> int:
    """Return how many bytes an instruction may read of a constant."""
    if ins.name in ("LDC", "ULDC", "LDCU"):
        return shape_of(ins).size_bytes
    is_wide = ins.name in ("DADD", "DMUL", "DFMA", "DSETP") or any(one in _WIDE for one in ins.modifiers)
    return 8 if is_wide else 4


def _check_constants(blocks: dict[int, Block], launch: Launch) -> None:
    """Refuse constants beyond their banks: the interpreter says what is wrong with them."""
    for block in blocks.values():
        for ins in block.instructions:
            for one in ins.operands:
                if one.kind is not Kind.CONSTANT or one.bank < 0:
                    continue
                bank = launch.constants[one.bank] if one.bank < len(launch.constants) else None
                if bank is None:
                    raise NotTranslated(f"{ins.text}: no such constant bank")
                if one.register not in (-1, RZ) or one.uniform >= 0:
                    continue
                if one.value + _constant_bytes(ins) > bank.size_bytes:
                    raise NotTranslated(f"{ins.text}: no such constant")


class NativeRun:
    """A launch under way on host code."""

    waiting = False
    repeating = False

    def __init__(
        self, launch: Launch, memory: Memory, target: str, translation: Translation, *, strict: bool = True
    ) -> None:
        self.launch, self.memory, self.target, self._translation = launch, memory, target, translation
        self.violations: list[Violation] = []
        self._broken = translation.broken if strict else None
        self._idents = group_idents(launch)
        self._left = launch.grid[0] * launch.grid[1] * launch.grid[2]
        self._waves = 0
        self._error: BaseException | None = None
        self._refused: MemoryFault | None = None
        threads = launch.block[0] * launch.block[1] * launch.block[2]
        self._warps = -(-threads // LANES)
        self._local_bytes = launch.local_low_bytes + launch.local_high_bytes
        most = min(RESIDENT_WARPS, RESIDENT_LOCAL_BYTES // (LANES * max(self._local_bytes, 1)))
        self._resident = 1 if launch.sequential else max(1, min(most // self._warps, self._left))
        self._found: Violation | None = None
        self._make_memory(threads)
        self._code: dict[int, Instruction] = {}
        self._singles: SingleSteps | None = None
        self._strict = strict
        self._groups: list[tuple[int, int, int]] = []
        self._epoch = memory.epoch

    def _make_memory(self, threads: int) -> None:
        launch = self.launch
        words = layout.REGISTERS + LANES * launch.registers
        count = self._resident * self._warps
        raw = np.zeros(count * words + STATE_ALIGN, np.uint32)
        skip = (-raw.ctypes.data % STATE_ALIGN) // 4
        self._states: NDArray[np.uint32] = raw[skip : skip + count * words].reshape(self._resident, self._warps, words)
        self._slots: NDArray[np.uint64] = np.zeros((self._resident, self._warps), np.uint64)
        stride = -(-(launch.shared_bytes + LDS_SPARE_BYTES) // 64) * 64
        self._shared: NDArray[np.uint8] = np.zeros((self._resident, stride), np.uint8)
        # None if the launch has none: then every access is beyond it.
        self._local: NDArray[np.uint32] | None = None
        if self._local_bytes:
            shape = self._resident, self._warps, -(-self._local_bytes // 4), LANES
            self._local = np.zeros(shape, np.uint32)
        self._template: NDArray[np.uint32] = np.zeros((self._warps, layout.REGISTERS), np.uint32)
        number = np.arange(self._warps * LANES, dtype=np.uint32).reshape(self._warps, LANES)
        x, y, _ = launch.block
        for axis, ids in enumerate((number % x, number // x % y, number // (x * y))):
            at = layout.TIDS + LANES * axis
            self._template[:, at : at + LANES] = ids
        for warp in range(self._warps):
            lanes = (1 << min(LANES, threads - warp * LANES)) - 1
            self._template[warp, [Field.ACTIVE, Field.ALIVE]] = lanes
        self._template[:, Field.LAST] = LANES - 1
        self._context: NDArray[np.uint64] = np.zeros(layout.CONTEXT_WORDS, np.uint64)
        self._sites: NDArray[np.uint64] = np.zeros((max(self._translation.sites, 1), 4), np.uint64)
        self._regions: NDArray[np.uint64] = np.zeros(REGION_WORDS, np.uint64)
        self._callbacks = _MISS(self._on_miss), _INTERPRET(self._on_interpret)
        context = self._context
        context[Word.REGIONS], context[Own.SITES] = self._regions.ctypes.data, self._sites.ctypes.data
        miss, interpret = (ctypes.cast(one, ctypes.c_void_p).value or 0 for one in self._callbacks)
        context[Word.MISS], context[Word.INTERPRET], context[Word.LDS_SIZE] = miss, interpret, launch.shared_bytes
        context[Own.LOCAL_SIZE] = self._local_bytes
        context[Own.SHARED_WINDOW], context[Own.LOCAL_WINDOW] = launch.windows.shared, launch.windows.local
        for place, bank in enumerate(launch.constants[:8]):
            if bank is not None:
                context[Own.BANK_VAS + place] = bank.gpu_va
                context[Own.BANK_SIZES + place] = bank.size_bytes

    def _on_miss(self, _: int, site: int, row: int, gpu_va: int, write: int) -> int:
        """Find a region for a site and its row of the table. An error is raised after host code has returned."""
        try:
            region = self.memory.region(gpu_va, bool(write))
        except MemoryFault as fault:
            self._refused = fault
            return 0
        except BaseException as error:  # noqa: BLE001
            self._error = error
            return 0
        delta = (region.pointer - region.gpu_va) & 0xFFFF_FFFF_FFFF_FFFF
        found = (ctypes.c_uint64 * 4)(region.gpu_va, region.size_bytes, delta, 0)
        ctypes.memmove(site, found, 32)
        ctypes.memmove(row, found, 32)
        return 1

    def _on_interpret(self, state: int, at: int) -> int:
        """Execute an instruction of a warp; return 1 if it broke a rule or if an error is to be raised."""
        number = (state - self._states.ctypes.data) // self._states.strides[1]
        group, warp = divmod(number, self._warps)
        pc = self.launch.program + at
        try:
            if self._singles is None:
                machine = Machine(self.memory, self._strict, self.target)
                self._singles = SingleSteps(self.launch, machine, self._states, self._shared, self._local)
            ins = self._code.get(pc)
            if ins is None:
                ins = self._code[pc] = decode(self.target, _word(self.memory, pc))
            self._found = self._singles.execute(ins, pc, group, self._groups[group], warp, self.instructions)
        except BaseException as error:  # noqa: BLE001
            self._error = error
            return 1
        return int(self._found is not None)

    # the run's interface ----------------------------------------------------------------------------------------------

    @property
    def instructions(self) -> int:
        """How many warp-instructions have been executed."""
        return int(self._context[Own.INSTRUCTIONS])

    @property
    def counters(self) -> Counters:
        """The counters so far. Lanes are those of the path, guards aside."""
        return Counters(waves=self._waves, instructions=self.instructions, lanes=int(self._context[Word.LANES]))

    @property
    def warps(self) -> list[Place]:
        """The warps that were started and have not ended."""
        return [
            Place((*ident, warp), self.launch.program + int(self._states[group, warp, layout.PCS]))
            for group, ident in enumerate(self._groups)
            for warp in range(self._warps)
            if self._slots[group, warp] != Slot.ENDED
        ]

    def kill(self) -> None:
        """Drop all warps."""
        self._groups, self._left = [], 0
        self._idents = iter(())

    def step(self, instructions: int) -> bool:
        """Run up to about `instructions` warp-instructions; return True once every warp has ended."""
        if self._broken is not None and not self.violations:
            at, text, detail = self._broken
            self.violations.append(Violation("hazard", self.launch.program + at, text, (0, 0, 0, 0), detail))
        if self.violations:
            return False
        end = self.instructions + instructions
        self._banks()
        while self.instructions < end:
            if not self._groups and not self._fill():
                return True
            before = self.instructions
            self._context[Word.BUDGET] = max(end - before, 1)
            result = self._translation.drive(
                self._context.ctypes.data, self._states.ctypes.data, self._states.strides[1], self._slots.ctypes.data,
                len(self._groups), self._warps, min(QUANTUM, max(end - before, 1)),
            )  # fmt: skip
            self._translation.count(self.instructions - before)
            if self._error is not None:
                raise self._error
            how = Ended(result & 0xFF)
            if how in (Ended.FAULT, Ended.STUCK):
                self._report(how, int(result >> 8))
                return False
            if (self._slots[: len(self._groups)] == Slot.ENDED).all():
                self._groups = []
        return not self._groups and not self._left

    def _fill(self) -> bool:
        """Start the next groups; return whether there are any."""
        groups = self._groups = list(islice(self._idents, self._resident))
        count = len(groups)
        if not groups:
            return False
        # Registers and convergence barriers keep what they had, as on a card.
        states, template = self._states[:count], self._template
        states[:, :, : layout.CONVERGENCE] = template[:, : layout.CONVERGENCE]
        first = not self._waves
        end = layout.REGISTERS if first else layout.WAITS_AT
        states[:, :, layout.PCS : end] = template[:, layout.PCS : end]
        idents = np.array(groups, np.uint32)[:, None, :]
        self._states[:count, :, Field.CTAID_X : Field.CTAID_X + 3] = idents
        bases = self._shared.ctypes.data + np.arange(count, dtype=np.uint64) * np.uint64(self._shared.strides[0])
        pairs = bases.view(np.uint32).reshape(count, 1, 2)
        self._states[:count, :, Field.SHARED : Field.SHARED + 2] = pairs
        self._shared[:count] = 0
        if self._local is not None:
            places = self._local.ctypes.data + np.arange(count * self._warps, dtype=np.uint64) * np.uint64(
                self._local.strides[1]
            )
            pairs = places.view(np.uint32).reshape(count, self._warps, 2)
            self._states[:count, :, Field.LOCAL : Field.LOCAL + 2] = pairs
        self._slots[:count] = Slot.READY
        self._left -= count
        self._waves += count * self._warps
        return True

    def _banks(self) -> None:
        """Find the constant banks, and forget regions if translations may have changed."""
        if self.memory.epoch != self._epoch:
            self._epoch = self.memory.epoch
            self._sites[:] = 0
            self._regions[:] = 0
        for number, bank in enumerate(self.launch.constants[:8]):
            if bank is not None:
                region = self.memory.region(bank.gpu_va, write=False)
                self._context[Own.BANKS + number] = region.pointer + bank.gpu_va - region.gpu_va

    def _report(self, how: Ended, number: int) -> None:
        if self._found is not None:
            self.violations.append(self._found)
            return
        group, warp = divmod(number, self._warps)
        wave = (*self._groups[group], warp)
        at = int(self._context[Own.FAULT_PC])
        pc = self.launch.program + at
        if how is Ended.STUCK:
            detail = "threads of the warp wait for each other forever"
            self.violations.append(Violation("hazard", self.launch.program, "", wave, detail))
            return
        text = decode(self.target, _word(self.memory, pc)).text
        kind = FAULT_KINDS[int(self._context[Word.FAULT_KIND]) - 1]
        gpu_va = int(self._context[Word.FAULT_DETAIL])
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
