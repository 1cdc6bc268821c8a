"""Translations of programs to host code: first a quick one, then a thorough one of a program that runs often."""

from __future__ import annotations

import ctypes
import json
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ringup.errors import Unmodelled
from ringup.silicon.common.collector import paused
from ringup.silicon.shader.host.beside import improved
from ringup.silicon.shader.host.code_cache import key_of
from ringup.silicon.shader.host.native import HostCode, objects_of, processor
from ringup.silicon.shader.nv.interpreter.step import RuleBroken
from ringup.silicon.shader.nv.translator.checks import Broken, hazard
from ringup.silicon.shader.nv.translator.lower import NOTHING, Lowering
from ringup.silicon.shader.nv.translator.undefined import find

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Executor, Future

    from ringup.silicon.shader.host.beside import How
    from ringup.silicon.shader.nv.translator.known import Program

# LLVM's levels of optimisation: at first, and once the average instruction was executed so often.
QUICK_LEVEL, THOROUGH_LEVEL, THOROUGH_AFTER = 0, 1, 200_000
_UNEXPECTED = (
    ArithmeticError, AttributeError, LookupError, RuleBroken, StopIteration, TypeError, Unmodelled, ValueError,
)  # fmt: skip
_log = logging.getLogger(__name__)
_DRIVE = ctypes.CFUNCTYPE(
    ctypes.c_uint64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64,
    ctypes.c_uint64,
)  # fmt: skip


@dataclass(frozen=True)
class Request:
    """A program to translate, for launches that have so many registers."""

    target: str
    program: Program
    registers: int
    strict: bool
    how: How

    def key(self, level: int) -> str:
        """Return the name of its translation on disk."""
        return key_of(self._dependences(level))

    def _dependences(self, level: int) -> Iterator[bytes]:
        facts = self.target, self.registers, self.strict, level, self.program.low, processor(self.how.host_cpu)
        yield repr(facts).encode()
        yield self.program.code


class Facts(NamedTuple):
    """What a run must know of a translation. `sites`: how many memory instructions have a region cache. `broken`: a
    strict rule that a path of the program breaks. `notes_values`: it notes which registers were given values.
    """

    sites: int
    broken: Broken | None
    notes_values: bool


@dataclass
class Translation:
    """Host code of a program."""

    request: Request
    facts: Facts
    _code: HostCode
    _executed: int = 0
    _better: Future[HostCode] | None = None
    _is_best: bool = False

    @property
    def banks(self) -> dict[int, int]:
        """How many bytes of each constant bank it reads at fixed places."""
        return self.request.program.banks

    def drive(self, *arguments: int) -> int:
        """Run warps; see `lower.py`."""
        return int(_DRIVE(self._code.address("drive"))(*arguments))

    def count(self, instructions: int, beside: Executor | None) -> None:
        """Note that so many instructions were executed; code that runs often is compiled thoroughly. No code of it may
        be running.
        """
        if self._is_best:
            return
        self._executed += instructions
        if self._better is None and self._executed > THOROUGH_AFTER * self.request.program.size:
            self._better = improved(beside, _better, self.request)
        if self._better is not None and self._better.done():
            self._code, self._better, self._is_best = self._better.result(), None, True


def translated(request: Request) -> Translation | None:
    """Translate a program quickly; return None for one that only the interpreter can run."""
    with paused():
        try:
            facts, code = _compiled(request, QUICK_LEVEL)
        except _UNEXPECTED as error:
            # The interpreter says what is wrong where it is.
            _log.info("a program runs on the interpreter: %s", error)
            return None
        return Translation(request, facts, code)


def _better(request: Request) -> HostCode:
    with paused():
        return _compiled(request, THOROUGH_LEVEL)[1]


def _compiled(request: Request, level: int) -> tuple[Facts, HostCode]:
    how, program = request.how, request.program
    key = "" if how.kept is None else request.key(level)
    parts = None if how.kept is None else how.kept.read(key)
    if parts is None:
        target = request.target
        undefined = find(target, program.blocks) if request.strict else NOTHING
        lowering = Lowering(
            target,
            program.blocks,
            request.registers,
            strict=request.strict,
            undefined=undefined,
            by_calls=level == QUICK_LEVEL,
        )
        text, declarations = lowering.module()
        broken = hazard(target, program.blocks) if request.strict else None
        if lowering.interpreted:
            texts = "; ".join(sorted(lowering.interpreted))
            _log.info("the interpreter executes single instructions of a program: %s", texts)
        facts = Facts(len(lowering.sites), broken, bool(undefined.checks))
        objects = objects_of(text, level=level, cpu=how.host_cpu, declarations=declarations)
        if how.kept is not None:
            how.kept.write(key, [json.dumps(facts).encode(), *objects])
    else:
        sites, broken, notes_values = json.loads(parts[0])
        facts, objects = Facts(sites, None if broken is None else Broken(*broken), notes_values), parts[1:]
    return facts, HostCode(objects, level=level, cpu=how.host_cpu)
