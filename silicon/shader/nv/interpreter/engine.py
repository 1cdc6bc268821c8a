"""The reference engine: it executes one instruction of one warp at a time, and checks every rule while it does."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from ringup.errors import Unmodelled
from ringup.silicon.shader.common.state import Counters, MemoryFault, Violation
from ringup.silicon.shader.nv.decoding.decode import IllegalInstruction, decode
from ringup.silicon.shader.nv.decoding.instruction import WORD_BYTES, Instruction
from ringup.silicon.shader.nv.interpreter import (
    control,
    conversions,
    exchange,
    floats,
    halves,
    integers,
    matrices,
    memory,
    surfaces,
    textures,
)
from ringup.silicon.shader.nv.interpreter.step import Machine, RuleBroken, Step
from ringup.silicon.shader.nv.state import Group, Wait, Warp, lanes, start_group
from ringup.silicon.shader.nv.strict.tracker import HazardError, Tracker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ringup.silicon.nv.compute.launch import Launch
    from ringup.silicon.shader.common.state import Memory

# KiB of shared memory in a core of each target. Source: CUDA's programming guide, "Compute Capabilities"
SHARED_KIB = {"sm_75": 64, "sm_80": 164, "sm_86": 100, "sm_89": 100, "sm_90": 228}
# Instructions that a warp executes before the next one runs, and a path before other ready threads of its warp.
SLICE = 128
# Groups that are resident at once. Threads of different groups may wait for each other only among these.
RESIDENT = 16
MAX_REGISTERS, MAX_THREADS = 255, 1024

_FALLING: dict[str, Callable[[Step], None]] = {
    **integers.RULES, **floats.RULES, **halves.RULES, **conversions.RULES, **exchange.RULES, **memory.RULES, **matrices.RULES,
    **textures.RULES, **surfaces.RULES,
}  # fmt: skip


def rule_of(ins: Instruction) -> Callable[[Step], None]:
    """Return what executes an instruction. Raises `Unmodelled` if nothing does."""
    found = _FALLING.get(ins.name) or control.RULES.get(ins.name)
    if found is None:
        raise Unmodelled(f"{ins.text}: the virtual shader core lacks {ins.name}")
    return found


def executed(step: Step) -> None:
    """Execute an instruction by its rule; a form that the rule does not expect is refused by name.

    Raises `RuleBroken`, `HazardError`, `MemoryFault`, `Unmodelled`.
    """
    rule, moves = rule_of(step.ins), step.ins.name in control.RULES
    # The uniform datapath works without lanes too.
    if not step.mask and (moves or step.ins.name[0] != "U"):
        return
    try:
        rule(step)
    except (ArithmeticError, AttributeError, LookupError, StopIteration, TypeError, ValueError) as error:
        raise Unmodelled(f"{step.ins.text}: this form ({error!r})") from error


class Interpreter:
    """The cores of a card: `start` begins a launch. `now_ns` is the card's timer."""

    def __init__(self, target: str = "sm_86", *, strict: bool = True, now_ns: Callable[[], int] = lambda: 0) -> None:
        if target not in SHARED_KIB:
            raise ValueError(f"no cores for {target}; there are {', '.join(SHARED_KIB)}")
        self.target, self.strict, self._now_ns = target, strict, now_ns

    def start(self, launch: Launch, memory: Memory) -> LaunchRun:
        """Begin a launch; nothing runs before the first `step`.

        Raises ValueError for a launch that no core can start.
        """
        threads = launch.block[0] * launch.block[1] * launch.block[2]
        if not 0 < threads <= MAX_THREADS:
            raise ValueError(f"a group of {threads} threads; cores take 1 to {MAX_THREADS}")
        if not 0 < launch.registers <= MAX_REGISTERS + 1:
            raise ValueError(f"{launch.registers} registers a thread; cores have {MAX_REGISTERS}")
        if launch.shared_bytes > SHARED_KIB[self.target] << 10:
            raise ValueError(f"{launch.shared_bytes} bytes of shared memory; cores have {SHARED_KIB[self.target]} KiB")
        if launch.program % WORD_BYTES:
            raise ValueError(f"a program begins at a multiple of {WORD_BYTES}, not at {launch.program:#x}")
        return LaunchRun(launch, Machine(memory, self.strict, self.target, self._now_ns))


class LaunchRun:
    """A launch under way."""

    waiting = False

    def __init__(self, launch: Launch, machine: Machine) -> None:
        self.launch, self.machine = launch, machine
        self.counters = Counters()
        self.violations: list[Violation] = []
        self._idents = group_idents(launch)
        self._groups: deque[Group] = deque()
        self._resident = 1 if launch.sequential else RESIDENT
        self._code: dict[int, Instruction] = {}
        self._epoch = machine.memory.epoch
        self._killed = False

    @property
    def instructions(self) -> int:
        """How many warp-instructions have been executed."""
        return self.counters.instructions

    @property
    def repeating(self) -> bool:
        """Whether the warps only wait for memory to change: not known here."""
        return False

    @property
    def warps(self) -> list[Warp]:
        """The warps that were started and have not ended."""
        return [warp for group in self._groups for warp in group.warps if warp.alive]

    def kill(self) -> None:
        """Drop all warps."""
        self._groups.clear()
        self._idents = iter(())
        self._killed = True

    def step(self, instructions: int) -> bool:
        """Run up to about `instructions` warp-instructions; return True once every warp has ended."""
        end = self.counters.instructions + instructions
        while self.counters.instructions < end and not self.violations and not self._killed:
            self._fill()
            if not self._groups:
                return True
            before = self.counters.instructions
            for group in list(self._groups):
                self._run_group(group)
                if self.violations:
                    return False
                if not group.threads_left:
                    self._groups.remove(group)
            if self.counters.instructions == before and self._groups:
                return False
        self._fill()
        return not self._groups and not self.violations and not self._killed

    def _fill(self) -> None:
        while len(self._groups) < self._resident:
            ident = next(self._idents, None)
            if ident is None:
                return
            self._groups.append(start_group(self.launch, ident))
            if self.machine.strict:
                for warp in self._groups[-1].warps:
                    warp.track = Tracker(self.machine.target)
            self.counters.waves += len(self._groups[-1].warps)

    def _run_group(self, group: Group) -> None:
        for warp in group.warps:
            if warp.alive and not self.violations:
                self._run_warp(warp)

    def _run_warp(self, warp: Warp) -> None:
        for _ in range(SLICE):
            if not warp.active and not _choose(warp):
                return
            if not self._execute(warp):
                return
        if warp.active:
            control.park(warp, warp.active, warp.pc)

    def _execute(self, warp: Warp) -> bool:
        """Execute the warp's next instruction; return whether it may go on."""
        pc, text = warp.pc, ""
        try:
            ins = self._fetch(pc)
            text = ins.text
            step = Step(ins, pc, warp, self.machine)
            self.counters.instructions += 1
            self.counters.lanes += step.mask.bit_count()
            warp.turn += max(ins.control.stall, 1)
            executed(step)
            if ins.name not in control.RULES or not step.mask:
                warp.pc = pc + WORD_BYTES
            if step.track is not None:
                step.track.finish()
        except HazardError as hazard:
            self.violations.append(Violation("hazard", pc, text, warp.name, str(hazard)))
            return False
        except RuleBroken as broken:
            self.violations.append(
                Violation(broken.kind, pc, text, warp.name, broken.detail, broken.lane, broken.gpu_va)
            )
            return False
        except MemoryFault as fault:
            self.violations.append(Violation("memory", pc, text, warp.name, str(fault), None, fault.gpu_va))
            return False
        except IllegalInstruction as error:
            self.violations.append(Violation("illegal", pc, "", warp.name, str(error)))
            return False
        return True

    def _fetch(self, pc: int) -> Instruction:
        if self.machine.memory.epoch != self._epoch:
            self._code.clear()
            self._epoch = self.machine.memory.epoch
        found = self._code.get(pc)
        if found is None:
            region = self.machine.memory.region(pc, write=False, execute=True)
            if pc + WORD_BYTES > region.gpu_va + region.size_bytes:
                raise RuleBroken("illegal", "the program has no EXIT before its memory ends")
            word = int.from_bytes(memory.read_bytes(self.machine.memory, pc, WORD_BYTES), "little")
            found = self._code[pc] = decode(self.machine.target, word)
        return found


def _choose(warp: Warp) -> bool:
    """Make ready threads the path: those at the place of the next ready one, in turn. Return whether there are any."""
    ready = [lane for lane in lanes(warp.alive) if warp.waits[lane] is Wait.NOTHING]
    if not ready:
        return False
    # In turn, so that no thread starves.
    leader = min(ready, key=lambda lane: (lane - warp.last - 1) % 32)
    warp.pc = warp.pcs[leader]
    warp.active = sum(1 << lane for lane in ready if warp.pcs[lane] == warp.pc)
    warp.last = leader
    return True


def group_idents(launch: Launch) -> Iterator[tuple[int, int, int]]:
    """Yield the groups of the grid, x first."""
    nx, ny, nz = launch.grid
    for z in range(nz):
        for y in range(ny):
            for x in range(nx):
                yield x, y, z
