"""Stages of a check, and the run through them: each step has a budget, and the first failure ends its stage.

A stage that needs a failed one is left out. Stages that give things back always run.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, TypeVar

from ringup.errors import DeviceFault, RingupError
from ringup.tools.bench.metal.masks import Masks
from ringup.tools.common.json_text import json_text

W = TypeVar("W")
OK, FAILED, LEFT_OUT = "ok", "failed", "left out"
FORMAT = "ringup metal check 1"
# TIMEOUT: ours: what giving things back may take when the whole time is over
LAST_S = 20.0
MAX_ERROR = 4000


class WrongResult(DeviceFault):
    """The card did something else than it should."""


class LeftOut(Exception):
    """A step cannot run here; the message says why."""


class BudgetSpent(BaseException):
    """A step took longer than it may. No handler of errors in between may catch it."""


class StepRow(NamedTuple):
    """One step. `run` takes what the steps share and returns figures."""

    name: str
    budget_s: float
    run: Callable[[Any], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Stage:
    """Steps that build on each other. `needs`: stages without which it is left out; `always`: it gives things back."""

    number: int
    name: str
    steps: tuple[StepRow, ...]
    needs: tuple[int, ...] = ()
    always: bool = False


@dataclass(slots=True)
class Report:
    """The lines of a run. The file is written after each, so that it is there whatever comes next."""

    path: Path | None
    masks: Masks
    about: dict[str, Any]
    lines: list[dict[str, Any]] = field(default_factory=list)
    say: Callable[[str], None] = lambda text: None

    def add(self, line: dict[str, Any]) -> None:
        """Keep one line, masked, and write the file."""
        line = self.masks.plain(line)
        self.lines.append(line)
        took = f"{line['took_s']:8.3f} s" if "took_s" in line else " " * 10
        self.say(f"{line['stage']:>2} {line['result']:8} {took}  {line['step']}{_behind(line)}")
        self.write()

    def count(self, result: str) -> int:
        """Count the lines with a result."""
        return sum(line["result"] == result for line in self.lines)

    def summary(self) -> dict[str, Any]:
        """Return the last line of the report."""
        first = next((line for line in self.lines if line["result"] == FAILED), None)
        return {
            OK: self.count(OK),
            FAILED: self.count(FAILED),
            LEFT_OUT: self.count(LEFT_OUT),
            "took_s": round(sum(line.get("took_s", 0.0) for line in self.lines), 3),
            "first_failure": "" if first is None else f"{first['stage']} {first['step']}: {first['error']}",
        }

    def text(self) -> str:
        """Return the report as JSON, with one step a line."""
        # what was learned later hides in earlier lines too
        lines = [json_text(self.masks.plain(line)) for line in self.lines]
        head = json_text({"format": FORMAT, **self.masks.plain(self.about)})[:-1]
        steps = ",\n".join(lines)
        return f'{head},\n"steps": [\n{steps}\n],\n"summary": {json_text(self.masks.plain(self.summary()))}}}\n'

    def write(self) -> None:
        """Replace the file."""
        if self.path is None:
            return
        draft = self.path.with_name(f"{self.path.name}.draft")
        draft.write_text(self.text(), encoding="utf-8")
        os.replace(draft, self.path)


def _behind(line: dict[str, Any]) -> str:
    reason = line.get("error") or line.get("why")
    return f": {reason.splitlines()[0]:.300}" if reason else ""


@contextmanager
def bounded(seconds: float) -> Iterator[None]:
    """Raise `BudgetSpent` in the block after so many seconds. An alarm that somebody else has set is kept."""
    # only the main thread gets signals
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    began = time.monotonic()
    handler = signal.signal(signal.SIGALRM, _late)
    others, _ = signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.001))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if others:
            signal.setitimer(signal.ITIMER_REAL, max(others - (time.monotonic() - began), 0.001))


def _late(number: int, frame: FrameType | None) -> None:
    raise BudgetSpent


class Run:
    """A run through stages within `limit_s` seconds."""

    def __init__(self, work: Any, report: Report, limit_s: float) -> None:
        self._work, self._report = work, report
        self._end = time.monotonic() + limit_s
        self._failed: dict[int, str] = {}
        # of the process, if nothing failed: 0
        self.status = 0

    def through(self, stages: Sequence[Stage]) -> int:
        """Run the stages; return the exit status: that of the first failure's error."""
        left = list(stages)
        try:
            while left:
                self._stage(left.pop(0))
        finally:
            for stage in left:
                if stage.always:
                    self._stage(stage)
        return self.status

    def _stage(self, stage: Stage) -> None:
        missing = [f"{number} ({self._failed[number]})" for number in stage.needs if number in self._failed]
        if missing:
            self._failed[stage.number] = "left out"
            self._add(stage, stage.name, LEFT_OUT, why=f"it needs stage {' and '.join(missing)}")
            return
        for row in stage.steps:
            if not self._step(stage, row) and not stage.always:
                self._failed[stage.number] = "failed"
                return

    def _step(self, stage: Stage, row: StepRow) -> bool:
        budget_s = min(row.budget_s, self._end - time.monotonic())
        if stage.always:
            budget_s = max(budget_s, LAST_S)
        elif budget_s <= 0:
            self._add(stage, row.name, FAILED, error="the time of the whole run is over")
            self.status = self.status or RingupError.exit_code
            return False
        began = time.monotonic()
        result: dict[str, Any] = {}
        wrong: BaseException | None = None
        outcome = OK
        try:
            with bounded(budget_s):
                result = {"figures": row.run(self._work)}
        except LeftOut as reason:
            outcome, result = LEFT_OUT, {"why": str(reason)}
        except BudgetSpent as error:
            outcome, wrong, result = FAILED, error, {"error": f"it took longer than its {budget_s:.1f} s"}
        except (RingupError, OSError, ValueError, TypeError, ArithmeticError, LookupError, AttributeError) as error:
            notes = "\n".join((f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ())))
            outcome, wrong, result = FAILED, error, {"error": notes[:MAX_ERROR]}
        except BaseException as error:
            self.status = self.status or RingupError.exit_code
            self._add(stage, row.name, FAILED, took_s=_since(began), error=f"ended by {type(error).__name__}")
            raise
        if wrong is not None:
            self.status = self.status or getattr(wrong, "exit_code", RingupError.exit_code)
        self._add(stage, row.name, outcome, took_s=_since(began), budget_s=round(budget_s, 3), **result)
        return outcome != FAILED

    def _add(self, stage: Stage, step: str, result: str, **more: Any) -> None:
        self._report.add({"stage": stage.number, "of": stage.name, "step": step, "result": result, **more})


def _since(began: float) -> float:
    return round(time.monotonic() - began, 6)


def check(holds: bool, said: str) -> None:
    """Raise `WrongResult` unless it holds."""
    if not holds:
        raise WrongResult(said)


def printed(text: str) -> None:
    """Print a line at once."""
    print(text, file=sys.stdout, flush=True)
