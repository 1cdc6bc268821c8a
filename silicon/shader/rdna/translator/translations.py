"""Translations of programs: make them, now or in a background thread, and check that memory still holds their code."""

from __future__ import annotations

import ctypes
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np

from ringup.silicon.shader.common.state import MemoryFault
from ringup.silicon.shader.host.code_cache import CodeCache, key_of
from ringup.silicon.shader.host.native import HostCode, objects_of, processor, schedule
from ringup.silicon.shader.rdna.decoding.cfg import Key, Program
from ringup.silicon.shader.rdna.translator.handler_store import handlers
from ringup.silicon.shader.rdna.translator.lower import Lowered, Variant, lower, tables_as_bytes, tables_from_bytes
from ringup.silicon.shader.rdna.translator.threaded import ThreadedCode, layout_from, layout_parts, thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Executor

    from numpy.typing import NDArray

    from ringup.silicon.shader.rdna.interpreter.engine import Machine


# How programs are translated. THREADED is threaded code where that is possible, else QUICK. QUICK and THOROUGH are levels
# of LLVM's code generation: QUICK translates in two fifths of THOROUGH's time; its code takes up to 1.8 times as long.
THREADED, QUICK, THOROUGH = -1, 0, 1
MAX_KEPT = 2048  # translations of a card, about 0.8 MB each
# How often the average instruction must run until quick code has cost as much time as thorough code takes to make:
# about 0.2 ms an instruction, for 12 ns saved each time a wave executes it.
OUTGROWN = 16_000

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


@dataclass(slots=True)
class Translation:
    """A translated program. `work` counts the wave-instructions of the runs that have ended."""

    program: Program
    lowered: Lowered
    lengths: NDArray[np.uint64]  # of its blocks, in instructions
    host: HostCode | ThreadedCode
    address: int
    level: int
    records: int = 0  # of threaded code: address of the table of its entries' records
    work: int = 0

    @property
    def is_outgrown(self) -> bool:
        """Whether the program ran so often that thorough code would have paid off."""
        return self.level != THOROUGH and self.work >= OUTGROWN * int(self.lengths.sum())


@dataclass(frozen=True, eq=False, slots=True)
class Job:
    """A translation that is done or under way. Dispatches whose memory holds the same code may share it."""

    program: Program
    ranges: list[tuple[int, bytes]]  # its code, by offset
    made: Future[Translation]

    @classmethod
    def begin(
        cls,
        machine: Machine,
        variant: Variant,
        ways_in: list[Key],
        how: How,
        executor: Executor | None,
        level: int,
    ) -> Job:
        """Read the program at a dispatch's PC and translate it, in `executor` if there is one."""
        pc = machine.dispatch.pc
        program = Program(lambda offset, size: _fetch(machine, pc + offset, size), ways_in, variant.lanes)
        ranges = sorted(program.ranges, key=lambda one: abs(one[0]))
        if executor is not None:
            return cls(program, ranges, executor.submit(_translated_in_thread, program, variant, how, level))
        made: Future[Translation] = Future()
        made.set_result(_translated(program, variant, how, level))
        return cls(program, ranges, made)

    @property
    def is_outgrown(self) -> bool:
        """Whether its translation is done and outgrown."""
        return self.made.done() and self.made.exception() is None and self.made.result().is_outgrown

    def suits(self, machine: Machine, extra: tuple[Key, ...]) -> bool:
        """Return whether memory holds this program's code, and `extra` are among its entries."""
        pc = machine.dispatch.pc
        return set(extra) <= set(self.program.entries) and all(
            _holds(machine, pc + offset, code) for offset, code in self.ranges
        )


class Pending(Exception):
    """A translation is under way in the background. The caller tries again once `made` is done."""

    def __init__(self, made: Future[Translation]) -> None:
        super().__init__("a program is being translated")
        self.made = made


class Beside(ThreadPoolExecutor):
    """A thread that translates while cards keep running: LLVM releases Python's global lock.

    Leaving its context waits until the translation under way has finished.
    """

    def __init__(self) -> None:
        # One thread is enough: LLVM handles one translation at a time in a process.
        super().__init__(1, "translation")
        self._latest: Future[Any] | None = None

    @property
    def busy(self) -> bool:
        """Whether a translation is under way or queued."""
        return self._latest is not None and not self._latest.done()

    def submit(
        self, fn: Callable[Arguments, Result], /, *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Future[Result]:
        """Queue a translation."""
        future = super().submit(fn, *args, **kwargs)
        self._latest = future
        return future

    def __exit__(self, *_: object) -> None:
        self.shutdown(cancel_futures=True)


@dataclass(frozen=True, slots=True)
class How:
    """How programs are translated: for LLVM's name of a processor (empty for this host), and where translations are
    kept on disk, if anywhere.
    """

    host_cpu: str = ""
    kept: CodeCache | None = None


def _translated(program: Program, variant: Variant, how: How, level: int) -> Translation:
    if level == THREADED:
        found = _threaded(program, variant, how)
        if found is not None:
            return found
        level = QUICK
    return _compiled(program, variant, how, level)


def _threaded(program: Program, variant: Variant, how: How) -> Translation | None:
    """Return a program as threaded code, None if it cannot be."""
    kept, store = how.kept, handlers(how.host_cpu)
    key = "" if kept is None else key_of(_dependences(program, variant, how, THREADED))
    parts = None if kept is None else kept.read(key)
    # no parts: it cannot be
    if parts == []:
        return None
    batches = None
    if parts is not None and kept is not None:
        lowered, layout, keys = tables_from_bytes(parts[0]), *layout_from(parts[1:])
        batches = store.loaded(keys, kept)
    if batches is None:
        made = thread(program, variant)
        if made is None:
            if kept is not None:
                kept.write(key, [])
            return None
        lowered, layout, forms = made
        batches = store.of(forms, kept)
        if kept is not None:
            keys = dict.fromkeys(one.key for one in batches.values())
            kept.write(key, [tables_as_bytes(lowered), *layout_parts(layout, keys)])
    code = ThreadedCode.of(layout, batches)
    lengths = np.array([len(program.blocks[key].code) for key in lowered.blocks], np.uint64)
    return Translation(program, lowered, lengths, code, code.address, THREADED, code.entries.ctypes.data)


def _compiled(program: Program, variant: Variant, how: How, level: int) -> Translation:
    key = "" if how.kept is None else key_of(_dependences(program, variant, how, level))
    found = None if how.kept is None else how.kept.read(key)
    if found is None:
        lowered = lower(program, variant, in_state=level == QUICK)
        objects = objects_of(lowered.text, level=level, cpu=how.host_cpu, declarations=lowered.declarations)
        lowered = replace(lowered, text="", declarations={})
        if how.kept is not None:
            how.kept.write(key, [tables_as_bytes(lowered), *objects])
    else:
        lowered, objects = tables_from_bytes(found[0]), found[1:]
    lengths = np.array([len(program.blocks[key].code) for key in lowered.blocks], np.uint64)
    host = HostCode(objects, level=level, cpu=how.host_cpu)
    return Translation(program, lowered, lengths, host, host.address("program"), level)


def _dependences(program: Program, variant: Variant, how: How, level: int) -> Iterator[bytes]:
    """Yield all that a translation depends on, the translator itself excepted."""
    yield repr((variant, program.entries, level, processor(how.host_cpu))).encode()
    for offset, code in sorted(program.ranges):
        yield str(offset).encode()
        yield code


def _translated_in_thread(program: Program, variant: Variant, how: How, level: int) -> Translation:
    # The caller needs the scheduler next. Compile it first, so that the caller does not wait for LLVM.
    schedule()
    return _translated(program, variant, how, level)


def _fetch(machine: Machine, gpu_va: int, size: int) -> bytes:
    """Read code; return fewer bytes if the memory region ends, none if it is not executable."""
    try:
        region = machine.memory.region(gpu_va, write=False, execute=True)
    except MemoryFault:
        return b""
    at = gpu_va - region.gpu_va
    return ctypes.string_at(region.pointer + at, min(size, region.size_bytes - at))


def _holds(machine: Machine, gpu_va: int, code: bytes) -> bool:
    """Return whether memory holds this code. Later pieces are checked only as far as earlier ones match."""
    while code:
        found = _fetch(machine, gpu_va, len(code))
        if not found or not code.startswith(found):
            return False
        gpu_va, code = gpu_va + len(found), code[len(found) :]
    return True
