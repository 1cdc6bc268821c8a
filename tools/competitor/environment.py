"""tinygrad's own Python environment. It is made on demand. Scripts in it import nothing of ringup."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ringup.tools.common.paths import one_at_a_time

PINS = ("tinygrad==0.14.0", "libclang==18.1.1", "numpy==2.4.6")  # NumPy: for `Tensor.numpy`
FOLDER = ".venv-peer"
# it makes its own host code with one of them
CLANGS = ("clang", *(f"clang-{version}" for version in range(22, 13, -1)))
STAMP = "ringup-pins"  # contains PINS once everything is installed
SCRIPTS = Path(__file__).with_name("scripts")
INSTALL_TIMEOUT_S = 600  # TIMEOUT: two wheels of 30 MB over a slow line
CALL_TIMEOUT_S = 900  # TIMEOUT: tinygrad's NVIDIA set takes 75 s of an idle core, here several times that

Run = Callable[..., subprocess.CompletedProcess[str]]


@dataclass
class Peer:
    """tinygrad, or the reason why it is missing. Every failure is one line on standard error, printed once."""

    python: Path | None
    said: set[str] = field(default_factory=set)

    def call(self, script: str, job: Mapping[str, Any]) -> Any:
        """Run `scripts/<script>.py` in a fresh interpreter with `job` on its standard input. Return its answer, or
        None.
        """
        if self.python is None:
            return None
        return self._answer([str(SCRIPTS / f"{script}.py")], script, json.dumps(job))

    def evaluate(self, code: str) -> Any:
        """Run `code` in a fresh interpreter; return what it prints as JSON in its last line, None when it fails."""
        return None if self.python is None else self._answer(["-c", code], "code", "")

    def say(self, reason: str) -> None:
        """Print why figures lack tinygrad, once for each reason."""
        if reason not in self.said:
            self.said.add(reason)
            print(f"ringup bench: {reason}", file=sys.stderr)

    def _answer(self, arguments: list[str], what: str, given: str) -> Any:
        assert self.python is not None  # callers have looked
        try:
            done = _run([str(self.python), *arguments], input=given, timeout=CALL_TIMEOUT_S, env=self._variables())
            return json.loads(done.stdout.splitlines()[-1])
        except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
            self.say(f"no figure of tinygrad: {what}: {_last_line(error)}")
            return None

    def _variables(self) -> dict[str, str]:
        assert self.python is not None  # callers have looked
        libraries = sorted(self.python.parents[1].glob("lib/python*/site-packages/clang/native/libclang.*"))
        return {**os.environ, **({"LIBCLANG_PATH": str(libraries[0])} if libraries else {})}


def find_or_make(folder: Path, run: Run | None = None) -> Peer:
    """Return tinygrad's environment in `folder`, made first if it is missing or has other versions.

    If that fails, the reason goes to standard error, and the object returned answers None to everything.
    """
    run = run or _run
    python = folder / "bin" / "python"
    stamp = folder / STAMP
    pins = "\n".join(PINS)

    def ready() -> bool:
        return stamp.is_file() and stamp.read_text(encoding="utf-8") == pins

    try:
        # a complete one may be in a folder that cannot be written
        with nullcontext() if ready() else one_at_a_time(folder):
            if not ready():
                shutil.rmtree(folder, ignore_errors=True)
                print(f"ringup bench: making tinygrad's environment: {', '.join(PINS)}", file=sys.stderr)
                run([sys.executable, "-m", "venv", str(folder)], timeout=INSTALL_TIMEOUT_S)
                run(
                    [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *PINS],
                    timeout=INSTALL_TIMEOUT_S,
                )
                stamp.write_text(pins, encoding="utf-8")
    except (OSError, subprocess.SubprocessError) as error:
        peer = Peer(None)
        peer.say(f"tinygrad is not measured: making its environment in {folder}: {_last_line(error)}")
        return peer
    return Peer(python)


def find_clang() -> str | None:
    """Return the C compiler with which tinygrad makes its own host code, None if there is none."""
    return next(filter(None, map(shutil.which, CLANGS)), None)


def without(reason: str) -> Peer:
    """Return an object that answers nothing, and print why."""
    peer = Peer(None)
    peer.say(f"tinygrad is not measured: {reason}")
    return peer


def _run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, check=True, capture_output=True, text=True, **options)


def _last_line(error: Exception) -> str:
    """Return the last line of a failed program, where Python and pip put the reason."""
    said = getattr(error, "stderr", None) or ""
    lines = [
        line for line in (said if isinstance(said, str) else said.decode(errors="replace")).splitlines() if line.strip()
    ]
    return lines[-1].strip() if lines else str(error)
