"""Timing: medians of repeated runs, loops minus an empty loop, fresh interpreters if state would distort the result."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
import timeit
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from ringup import errors
from ringup.errors import RingupError

__all__ = ["Interpreter", "cpu_us", "loop_ns", "median"]

CALL_TIMEOUT_S = 900  # TIMEOUT: the whole manifest on a busy machine


def loop_ns(statement: str, names: Mapping[str, Any], loops: int) -> float:
    """Time `statement` over `loops` rounds: nanoseconds of CPU for each, minus an empty loop.

    CPU time excludes other processes that get the core in between. Names are local to the loop.
    """
    given = {f"_{name}": value for name, value in names.items()}
    setup = "\n".join(f"{name} = _{name}" for name in names)
    full = timeit.Timer(statement, setup, timer=time.process_time, globals=given).timeit(loops)
    empty = timeit.Timer("pass", setup, timer=time.process_time, globals=given).timeit(loops)
    return max(full - empty, 0.0) / loops * 1e9


def cpu_us(work: Callable[[], object], times: int) -> float:
    """Call `work` repeatedly: microseconds of CPU for each call, with the garbage collector off, as in `timeit`."""
    collects = gc.isenabled()
    gc.disable()
    try:
        start = time.process_time_ns()
        for _ in range(times):
            work()
        return (time.process_time_ns() - start) / times / 1e3
    finally:
        if collects:
            gc.enable()


class Interpreter:
    """Fresh interpreters of our own environment. Their bytecode is kept in `folder`, so that only the first run
    compiles it.
    """

    def __init__(self, folder: Path) -> None:
        self._variables = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder), "PYTHONDONTWRITEBYTECODE": ""}

    def evaluate(self, code: str) -> Any:
        """Run `code`; return what it prints as JSON in its last line."""
        return self._answer(["-c", code], "")

    def call(self, module: str, job: Mapping[str, Any]) -> Any:
        """Run `module` with `job` on its standard input; return its answer."""
        return self._answer(["-m", module], json.dumps(job))

    def _answer(self, arguments: Sequence[str], given: str) -> Any:
        done = subprocess.run(
            [sys.executable, *arguments],
            input=given,
            capture_output=True,
            text=True,
            timeout=CALL_TIMEOUT_S,
            env=self._variables,
            check=False,
        )
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no word of why"])[-1]
            raise _told(last) or RingupError(
                f"bench: {' '.join(arguments)[:60]} ended with status {done.returncode}: {last}"
            )
        return json.loads(done.stdout.splitlines()[-1])


def _told(line: str) -> RingupError | None:
    """Return the ringup error in the last line of a traceback, or None."""
    module, _, rest = line.rpartition(f"{errors.__name__}.")
    name, _, text = rest.partition(": ")
    kind = getattr(errors, name, None) if not module else None
    return kind(text) if isinstance(kind, type) and issubclass(kind, RingupError) else None
