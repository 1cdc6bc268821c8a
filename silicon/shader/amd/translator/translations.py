"""Translations of programs: make them, now or in a background thread, and check that memory still holds their code."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ringup.silicon.common.collector import paused
from ringup.silicon.shader.amd.decoding.cfg import Key, Program
from ringup.silicon.shader.amd.translator.handler_store import BETTER, FIRST, handlers
from ringup.silicon.shader.amd.translator.lower import Lowered, Variant, lower, tables_as_bytes, tables_from_bytes
from ringup.silicon.shader.amd.translator.threaded import Kept, ThreadedCode, Threader, layout_from, layout_parts
from ringup.silicon.shader.common.state import MemoryFault
from ringup.silicon.shader.host.beside import improved, submitted
from ringup.silicon.shader.host.code_cache import key_of
from ringup.silicon.shader.host.native import HostCode, objects_of, processor, schedule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from concurrent.futures import Executor, Future

    from numpy.typing import NDArray

    from ringup.silicon.shader.amd.interpreter.engine import Machine
    from ringup.silicon.shader.amd.translator.forms import Form
    from ringup.silicon.shader.amd.translator.handler_store import Batch
    from ringup.silicon.shader.amd.translator.threaded import Layout
    from ringup.silicon.shader.host.beside import How


# How programs are translated. THREADED is threaded code where that is possible, else QUICK. QUICK and THOROUGH are
# levels of LLVM's code generation: QUICK translates in two fifths of THOROUGH's time; its code takes up to 1.8 times as
# long.
THREADED, QUICK, THOROUGH = -1, 0, 1
MAX_KEPT = 2048  # translations of a card, about 0.8 MB each
# How often the average instruction must run until better code is made. Thorough code takes about 0.2 ms an instruction
# to make, and saves 1 to 3 ns each time a wave executes it. Better handlers are few, and other programs have most of
# them already.
WARM, OUTGROWN = 500, 16_000


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
    # Of threaded code that has not got better handlers: returns them.
    improve: Callable[[], Mapping[str, Batch]] | None = None
    _better: Future[Mapping[str, Batch]] | None = None

    @property
    def is_outgrown(self) -> bool:
        """Whether the program ran so often that thorough code would have paid off."""
        return self.level != THOROUGH and self.work >= OUTGROWN * int(self.lengths.sum())

    def improve_if_warm(self, executed: int, executor: Executor | None) -> None:
        """Get better handlers, in `executor` if there is one, once the program has run often enough for them.

        `executed` counts the wave-instructions of a run under way. No wave may be running.
        """
        if self._better is None and self.improve is not None:
            if self.work + executed < WARM * int(self.lengths.sum()):
                return
            self._better = improved(executor, self.improve)
        if self._better is not None and self._better.done():
            assert isinstance(self.host, ThreadedCode)
            self.host.use(self._better.result())
            self.improve = self._better = None


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
        *,
        better: bool = False,
    ) -> Job:
        """Read the program at a dispatch's PC and translate it, in `executor` if there is one. `better`: no dispatch
        waits for that.
        """
        pc = machine.dispatch.pc
        with paused():
            program = Program(
                lambda offset, size: _fetch(machine, pc + offset, size), ways_in, variant.lanes, machine.generation
            )
            ranges = sorted(program.ranges, key=lambda one: abs(one[0]))
        translate = _translated if executor is None else _translated_in_thread
        made = (improved if better else submitted)(executor, translate, program, variant, how, level)
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


def _translated(program: Program, variant: Variant, how: How, level: int) -> Translation:
    with paused():
        found = _threaded(program, variant, how) if level == THREADED else None
        return found or _compiled(program, variant, how, max(level, QUICK))


def _threaded(program: Program, variant: Variant, how: How) -> Translation | None:
    """Return a program as threaded code, None if it cannot be."""
    kept = how.kept
    key = "" if kept is None else key_of(_dependences(program, variant, how, THREADED))
    parts = None if kept is None else kept.read(key)
    # no parts: it cannot be
    if parts == []:
        return None
    batches: Mapping[str, Batch] | None = None
    level = FIRST
    if parts is not None and kept is not None:
        lowered, (layout, where) = tables_from_bytes(parts[0]), layout_from(parts[1:])
        level = where.level
        batches = handlers(how.host_cpu, level).loaded(where.batches, kept)
    if batches is None:
        made = Threader(program, variant)
        if not made.is_possible:
            if kept is not None:
                kept.write(key, [])
            return None
        lowered, layout, forms = made.run()
        level = FIRST
        batches = _handled(key, lowered, layout, forms, how, level)
    code = ThreadedCode.of(layout, batches)
    lengths = np.array([len(program.blocks[one].code) for one in lowered.blocks], np.uint64)
    found = Translation(program, lowered, lengths, code, code.address, THREADED, code.entries.ctypes.data)

    def improve() -> Mapping[str, Batch]:
        with paused():
            forms = Threader(program, variant).run()[2]
            return _handled(key, lowered, layout, forms, how, BETTER)

    found.improve = improve if level != BETTER else None
    return found


def _handled(
    key: str, lowered: Lowered, layout: Layout, forms: Mapping[str, Form], how: How, level: int
) -> Mapping[str, Batch]:
    """Return the handlers of a program, and keep where they are on disk."""
    batches = handlers(how.host_cpu, level).of(forms, how.kept)
    if how.kept is not None:
        where = Kept(list(dict.fromkeys(one.key for one in batches.values())), level)
        how.kept.write(key, [tables_as_bytes(lowered), *layout_parts(layout, where)])
    return batches


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
