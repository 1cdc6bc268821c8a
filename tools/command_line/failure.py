"""The end of a command that failed: one line on standard error, an exit status, a JSON object for --json, a report of
an unexpected exception.

Every exception that leaves a command comes here. Errors of errors.py and of the operating system say what went wrong.
Any other exception is an internal error: its line names a file with the traceback, and it has its own status.
"""

from __future__ import annotations

import logging
import os
import re
import select
import shlex
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import ringup
from ringup.errors import RingupError, missing_package
from ringup.tools.command_line.cli import FAILED, FINE, INTERNAL, WRONG_USAGE, drop, say_interrupted, wants_json
from ringup.tools.common import files
from ringup.tools.common.json_text import json_text
from ringup.tools.common.wrong_usage import BadInput, WrongUsage

LOG = logging.getLogger(__name__)
REPORT_PREFIX, REPORT_SUFFIX = "internal-error-", ".txt"
# A command that fails in a loop must not fill the disk.
MAX_REPORTS = 20
MAX_REPORT_CHARACTERS = 1 << 20
MAX_LINE_CHARACTERS = 300
# A traceback depends on their versions.
PACKAGES = ("construct", "cffi", "msgpack", "pyusb", "llvmlite", "numpy", "rich", "zstandard", "shtab")

# Commands whose packages the extra `virtual` brings, NumPy among them.
OF_VIRTUAL_CARDS = frozenset(("ringup serve", "ringup demo"))


@dataclass(frozen=True, slots=True)
class Failure:
    """The report of an exception: its kind and text, the exit status, and the path of a report file."""

    kind: str
    message: str
    exit_status: int
    report: str = ""

    def line(self, title: str) -> str:
        """Return the line for standard error."""
        named = self.exit_status not in (FAILED, WRONG_USAGE, INTERNAL)
        return f"{title}: {self.kind}: {self.message}" if named else f"{title}: {self.message}"

    def as_json(self) -> str:
        """Return the object that --json prints instead of a result."""
        shown: dict[str, object] = {"kind": self.kind, "message": self.message, "exit_status": self.exit_status}
        return json_text({"error": shown | ({"report": self.report} if self.report else {})})


def tell(error: BaseException, words: Sequence[str], title: str) -> int:
    """Report the failure and return the exit status."""
    if isinstance(error, KeyboardInterrupt):
        release_output()
        return say_interrupted(title, list(words), error)
    if isinstance(error, BrokenPipeError) and _reader_has_gone():
        release_output()
        return FINE
    writable = release_output()
    LOG.debug("where it came from", exc_info=error)
    failure = explain(error, words, title, writable=writable)
    say(failure.line(title))
    if wants_json(list(words)) and not (isinstance(error, RingupError) and error.in_result):
        print_json(failure)
    return failure.exit_status


def explain(error: BaseException, words: Sequence[str], title: str, *, writable: bool = True) -> Failure:
    """Return the failure for an exception; an unexpected one is written to a report first. `writable`: standard output
    accepts writes.
    """
    if isinstance(error, RingupError):
        return Failure(type(error).__name__, _with_notes(error), error.exit_code)
    if isinstance(error, ImportError) and (
        missing := missing_package(error, title, "virtual" if title in OF_VIRTUAL_CARDS else "")
    ):
        return Failure(type(missing).__name__, str(missing), missing.exit_code)
    if isinstance(error, WrongUsage):
        return Failure("WrongUsage", f"{error}; `{title} --help` shows examples", WRONG_USAGE)
    if isinstance(error, BadInput):
        return Failure("BadInput", str(error), FAILED)
    if isinstance(error, UnicodeError) and (text := _unreadable_word(error, words)):
        return Failure("WrongUsage", f"{text!r} has bytes that are not text in this locale's encoding", WRONG_USAGE)
    if isinstance(error, MemoryError):
        return Failure("OutOfMemory", "this computer's memory is too small for it", FAILED)
    if isinstance(error, OSError):
        return Failure("OSError", files.explain(error, "" if writable else "standard output"), FAILED)
    return _internal(error, words, title)


def say(line: str) -> None:
    """Print a line on standard error, if that is possible."""
    if sys.stderr is None:
        return
    # A file's name may have bytes that are not text; Python keeps them as surrogates.
    shown = line.encode("utf-8", "backslashreplace").decode()
    try:
        print(shown, file=sys.stderr, flush=True)
    except (OSError, ValueError):
        drop(errors=True)


def print_json(failure: Failure) -> None:
    """Print the JSON object of a failure on standard output, if that can be written."""
    try:
        print(failure.as_json(), flush=True)
    except (OSError, ValueError):
        release_output()


def release_output() -> bool:
    """Flush standard output; return whether that worked. If not, discard its buffer, because the interpreter would fail
    at its end.
    """
    try:
        print(end="", flush=True)
    except (OSError, ValueError):
        drop()
        return False
    return True


def _reader_has_gone() -> bool:
    """Return whether standard output is a pipe without a reader. Another pipe or socket may have broken instead."""
    try:
        number = sys.stdout.fileno()
        poll = select.poll()
        poll.register(number, select.POLLOUT)
        return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))
    except (OSError, ValueError, AttributeError):
        return False


def _with_notes(error: BaseException) -> str:
    return "; ".join([str(error), *getattr(error, "__notes__", ())])


def _unreadable_word(error: UnicodeError, words: Sequence[str]) -> str:
    """Return the word of the command line with bytes that are not text, if it caused the encoding error; Python keeps
    such bytes as surrogates.
    """
    whole = error.object if isinstance(error, UnicodeEncodeError) else ""
    lone = set(re.findall("[\ud800-\udfff]", whole))
    return next((word for word in words if lone & set(word)), "") if lone else ""


# --- unexpected exceptions --------------------------------------------------------------------------------------------
def _internal(error: BaseException, words: Sequence[str], title: str) -> Failure:
    """Write a report and return a failure that names it."""
    what = _one_line(error)
    try:
        path = write_report(_report(error, words))
    except OSError as refused:
        return Failure(
            "InternalError",
            f"internal error: {what} ({_place(error)}); no report could be written ({refused.strerror}): "
            "run it again with -vv to see the traceback",
            INTERNAL,
        )
    remedy = "install ringup again, or " if isinstance(error, ImportError) else ""
    return Failure(
        "InternalError",
        f"internal error: {what}; this is an error of ringup or of a package that it uses: {remedy}"
        f"send its authors the report {path}",
        INTERNAL,
        str(path),
    )


def _one_line(error: BaseException) -> str:
    """Return class and text of any exception, also of one that cannot be shown."""
    try:
        text = " ".join(_with_notes(error).split())
    except Exception as further:  # noqa: BLE001  the text of an exception may raise anything
        text = f"its text is not available: {type(further).__name__}"
    shown = f"{type(error).__name__}: {text}" if text else type(error).__name__
    shown = "".join(letter if letter.isprintable() else f"\\x{ord(letter):02x}" for letter in shown)
    return shown if len(shown) <= MAX_LINE_CHARACTERS else f"{shown[:MAX_LINE_CHARACTERS]}..."


def _place(error: BaseException) -> str:
    """Return file and line that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "nowhere in Python"


def _report(error: BaseException, words: Sequence[str]) -> str:
    """Return the text of a report."""
    import platform

    try:
        trace = "".join(traceback.format_exception(error))
    except Exception:  # noqa: BLE001  frames are reported even if the text of the exception raises
        trace = "".join(traceback.format_tb(error.__traceback__)) + _one_line(error)
    if len(trace) > MAX_REPORT_CHARACTERS:
        half = MAX_REPORT_CHARACTERS // 2
        trace = f"{trace[:half]}\n[...]\n{trace[-half:]}"
    lines = [
        f"ringup {ringup.__version__}, internal error of {time.strftime('%Y-%m-%d %H:%M:%S %z')}",
        f"command line: {shlex.join(['ringup', *words])}",
        f"platform: {platform.platform()}, {platform.machine()}",
        f"Python: {sys.version.replace(chr(10), ' ')} at {sys.executable}",
        f"packages: {', '.join(_packages())}",
    ]
    return "\n".join([*lines, "", trace])


def _packages() -> Iterator[str]:
    from importlib.metadata import PackageNotFoundError, version

    for name in PACKAGES:
        try:
            yield f"{name} {version(name)}"
        except PackageNotFoundError:
            yield f"{name} (not installed)"


def report_folders() -> Iterator[Path]:
    """Yield folders for a report, the best first: the user's state folder, then the folder of temporary files."""
    import tempfile

    home = os.path.expanduser("~")
    if sys.platform == "darwin" and "XDG_STATE_HOME" not in os.environ:
        yield Path(home, "Library", "Logs", "ringup")
    else:
        yield Path(os.environ.get("XDG_STATE_HOME") or os.path.join(home, ".local", "state"), "ringup")
    yield Path(tempfile.gettempdir())


def write_report(text: str) -> Path:
    """Write a report to a new file that only this user can read, and remove the oldest. Raises `OSError` if no folder
    is writable.
    """
    refused = OSError(0, "there is no folder for it")
    for folder in report_folders():
        try:
            return _write_below(folder, text)
        except OSError as error:
            refused = error
    raise refused


def _write_below(folder: Path, text: str) -> Path:
    if not folder.is_absolute():
        raise NotADirectoryError(0, f"{folder} is not an absolute path")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    stem = f"{REPORT_PREFIX}{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    for number in count():
        path = folder / f"{stem}{f'-{number}' if number else ''}{REPORT_SUFFIX}"
        try:
            # A file or link that another user placed in a folder of temporary files is not followed.
            node = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            break
        except FileExistsError:
            continue
    try:
        with open(node, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    _forget_old(folder, path)
    return path


def _forget_old(folder: Path, newest: Path) -> None:
    """Keep the newest reports of this user."""
    try:
        mine = [path for path in folder.glob(f"{REPORT_PREFIX}*{REPORT_SUFFIX}") if path.lstat().st_uid == os.getuid()]
        for path in sorted(mine, key=lambda path: path.lstat().st_mtime_ns)[:-MAX_REPORTS]:
            if path != newest:
                path.unlink()
    except OSError as error:
        LOG.debug("older reports stay: %s", error)
