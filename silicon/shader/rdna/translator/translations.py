"""Translations of programs: the code that they are of, making them, now or beside whoever asks, and whether memory has
that code still.
"""

from __future__ import annotations

import ctypes
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np

from ringup.silicon.shader.common.state import MemoryFault
from ringup.silicon.shader.host.native import HostCode, schedule
from ringup.silicon.shader.rdna.decoding.cfg import Key, Program
from ringup.silicon.shader.rdna.translator.lower import Lowered, Variant, lower

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

    from numpy.typing import NDArray

    from ringup.silicon.shader.rdna.interpreter.engine import Machine


# levels of LLVM's code generation: a translation by the first takes two fifths of the second's time, its code runs up
# to 1.8 times as long
QUICK, THOROUGH = 0, 1
MAX_KEPT = 2048  # translations of a card: some 0.8 MB each
# How often the average instruction of a program runs until the time lost by quick code is what thorough code takes to
# make: some 0.2 ms an instruction, for 12 ns saved each time a wave executes it.
OUTGROWN = 16_000

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


@dataclass(slots=True)
class Translation:
    """A translated program. `work`: wave-instructions of the runs that have ended."""

    program: Program
    lowered: Lowered
    lengths: NDArray[np.uint64]  # in instructions, of its blocks
    host: HostCode
    address: int
    level: int
    work: int = 0

    @property
    def is_outgrown(self) -> bool:
        """Whether it ran so often that thorough code would have been worth its making."""
        return self.level == QUICK and self.work >= OUTGROWN * int(self.lengths.sum())


@dataclass(frozen=True, eq=False, slots=True)
class Job:
    """A program that is translated, or is being. Whose memory has the same code may have it."""

    program: Program
    ranges: list[tuple[int, bytes]]  # its code, by offset
    made: Future[Translation]

    @classmethod
    def begin(
        cls,
        machine: Machine,
        variant: Variant,
        ways_in: list[Key],
        host_cpu: str,
        executor: Executor | None,
        level: int,
    ) -> Job:
        """Read the program at a dispatch's PC, and translate it, or have `executor` do so."""
        pc = machine.dispatch.pc
        program = Program(lambda offset, size: _fetch(machine, pc + offset, size), ways_in, variant.lanes)
        ranges = sorted(program.ranges, key=lambda one: abs(one[0]))
        if executor is not None:
            return cls(program, ranges, executor.submit(_translated_beside, program, variant, host_cpu, level))
        made: Future[Translation] = Future()
        made.set_result(_translated(program, variant, host_cpu, level))
        return cls(program, ranges, made)

    @property
    def is_outgrown(self) -> bool:
        """Whether its translation is."""
        return self.made.done() and self.made.exception() is None and self.made.result().is_outgrown

    def suits(self, machine: Machine, extra: tuple[Key, ...]) -> bool:
        """Say whether it is the program that memory has, and has those ways in."""
        pc = machine.dispatch.pc
        return set(extra) <= set(self.program.entries) and all(
            _holds(machine, pc + offset, code) for offset, code in self.ranges
        )


class Pending(Exception):
    """A translation is under way beside the caller, who is to come again once it is `made`."""

    def __init__(self, made: Future[Translation]) -> None:
        super().__init__("a program is being translated")
        self.made = made


class Beside(ThreadPoolExecutor):
    """A thread that translates while cards go on: LLVM lets other threads run. Closing it takes until it has finished
    what it began.
    """

    def __init__(self) -> None:
        # a second thread would wait for the first: in a process LLVM does one thing at a time
        super().__init__(1, "translation")
        self._latest: Future[Any] | None = None

    @property
    def busy(self) -> bool:
        """Whether something is being translated, or waits for its turn."""
        return self._latest is not None and not self._latest.done()

    def submit(
        self, fn: Callable[Arguments, Result], /, *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Future[Result]:
        """Have it done behind what was asked for before."""
        future = super().submit(fn, *args, **kwargs)
        self._latest = future
        return future

    def __exit__(self, *_: object) -> None:
        self.shutdown(cancel_futures=True)


def _translated(program: Program, variant: Variant, host_cpu: str, level: int) -> Translation:
    lowered = lower(program, variant, in_state=level == QUICK)
    lengths = np.array([len(program.blocks[key].code) for key in lowered.blocks], np.uint64)
    host = HostCode(lowered.text, level=level, cpu=host_cpu, declarations=lowered.declarations)
    return Translation(
        program, replace(lowered, text="", declarations={}), lengths, host, host.address("program"), level
    )


def _translated_beside(program: Program, variant: Variant, host_cpu: str, level: int) -> Translation:
    schedule()  # whoever asks for the translation needs it next, and must not wait for LLVM itself
    return _translated(program, variant, host_cpu, level)


def _fetch(machine: Machine, gpu_va: int, size: int) -> bytes:
    """Read code; less than asked for where the memory ends that holds the first byte."""
    try:
        region = machine.memory.region(gpu_va, write=False, execute=True)
    except MemoryFault:
        return b""
    at = gpu_va - region.gpu_va
    return ctypes.string_at(region.pointer + at, min(size, region.size_bytes - at))


def _holds(machine: Machine, gpu_va: int, code: bytes) -> bool:
    """Say whether memory has this code; of what lies behind other code nothing is asked."""
    while code:
        found = _fetch(machine, gpu_va, len(code))
        if not found or not code.startswith(found):
            return False
        gpu_va, code = gpu_va + len(found), code[len(found) :]
    return True
