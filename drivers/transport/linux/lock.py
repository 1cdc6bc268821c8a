"""One process at a time for a card: a file per card, locked by `flock`, that names its holder.

The kernel releases the lock when its process ends, also after kill -9. The record that the dead holder wrote into the
file stays, and shows that the card was not closed.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
from dataclasses import asdict, dataclass
from functools import partial

from ringup.drivers.cleanup import undone_on_error
from ringup.drivers.transport.linux.kernel import Kernel, explained
from ringup.drivers.transport.seam import Clock
from ringup.drivers.transport.wait import poll
from ringup.errors import CardBusy

LOG = logging.getLogger(__name__)
# the first of them that exists is used: every user may write there, and the sticky bit is set
FOLDERS = ("run/lock", "tmp")
MODE = 0o666
POLL_US = 20_000
GONE_PID = 0  # no process has it
# field 22 of /proc/PID/stat, counted after the closing bracket of the name. Source: proc_pid_stat(5)
START_TIME = 19
RECORD_BYTES = 4096
COMMAND_CHARS = 200


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that holds a card. `start_time` (clock ticks since boot) distinguishes it from a later process with the
    same id.
    """

    pid: int
    start_time: int
    command: str

    def __str__(self) -> str:
        return f"process {self.pid} ({self.command})" if self.pid else self.command


def process(kernel: Kernel, pid: int) -> Holder | None:
    """Return the kernel's record of a process; None when there is none."""
    stat = kernel.text(kernel.path("proc", str(pid), "stat"))
    fields = stat.rpartition(")")[2].split()
    if len(fields) <= START_TIME:
        return None
    words = kernel.text(kernel.path("proc", str(pid), "cmdline"))
    name = stat.partition("(")[2].rpartition(")")[0]
    return Holder(pid, int(fields[START_TIME]), _one_line(words) or _one_line(name))


def _one_line(text: str) -> str:
    """Return a command without control characters: a process chooses its own, and it must not control a terminal."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())[:COMMAND_CHARS]


class CardLock:
    """The lock of one card. `previous`: the previous holder if it did not release the lock; else None."""

    def __init__(self, kernel: Kernel, name: str) -> None:
        self._kernel, self._node = kernel, -1
        folder = next((kernel.path(part) for part in FOLDERS if kernel.path(part).is_dir()), kernel.path(FOLDERS[-1]))
        self.path = folder / f"ringup-{name}.lock"
        self.previous: Holder | None = None

    def take(self, clock: Clock, wait_s: float = 0) -> None:
        """Take the lock, waiting at most `wait_s` seconds. Raises `CardBusy` that names the holder."""
        node = self._open()
        with undone_on_error(partial(os.close, node)):
            self._wait(node, clock, wait_s)
            self.previous = _read(node)
            if self.previous:
                LOG.warning(
                    "%s was left without a word by %s: the card may be running still", self.path.stem, self.previous
                )
            mine = process(self._kernel, os.getpid()) or Holder(os.getpid(), 0, "")
            _write(node, _record(mine))
        self._node = node

    def _wait(self, node: int, clock: Clock, wait_s: float) -> None:
        if not poll(lambda: _locked(node), bool, clock=clock, timeout_us=wait_s * 1_000_000, poll_us=POLL_US):
            waited = f" for {wait_s:g} s" if wait_s else ""
            holder = self.holder() or "a process that cannot be seen from here"
            raise CardBusy(
                f"taking the card's lock {self._kernel.shown(self.path)}: held{waited} by {holder}; end it or wait for it"
            )

    def release(self) -> None:
        """Release the lock and leave an empty record. Twice is harmless."""
        node, self._node = self._node, -1
        if node >= 0:
            _write(node, b"")
            os.close(node)

    def leave(self) -> None:
        """Release the lock, with a record that the card was not closed: by the previous holder, or by this process.
        Twice is harmless.
        """
        node, self._node = self._node, -1
        if node >= 0:
            _write(node, _record(self.previous or Holder(GONE_PID, 0, "a process that could not leave it at rest")))
            os.close(node)

    def holder(self) -> Holder | None:
        """Return the process that holds the card now; None without one, or when it cannot be seen. The lock is not
        taken, not even for a moment.
        """
        try:
            node = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return None
        try:
            holder = _read(node)
        finally:
            os.close(node)
        alive = process(self._kernel, holder.pid) if holder else None
        return holder if holder and alive and alive.start_time == holder.start_time else None

    def _open(self) -> int:
        """Open the file, or make it. Not in one step: the kernel refuses O_CREAT on another user's file in a sticky
        folder.
        """
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            with contextlib.suppress(FileNotFoundError):
                return os.open(self.path, flags)
            try:
                node = os.open(self.path, flags | os.O_CREAT | os.O_EXCL, MODE)
            # another process has made the file meanwhile
            except FileExistsError:
                return os.open(self.path, flags)
            # not left to the umask: all users of the machine share the card
            os.fchmod(node, MODE)
        except OSError as error:
            raise explained(error, f"taking the card's lock {self._kernel.shown(self.path)}") from error
        return node


def _locked(node: int) -> bool:
    try:
        fcntl.flock(node, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read(node: int) -> Holder | None:
    """Read a record. Any user may write the file, so other content counts as no record."""
    try:
        fields = json.loads(os.pread(node, RECORD_BYTES, 0))
        return Holder(int(fields["pid"]), int(fields["start_time"]), _one_line(str(fields["command"])))
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _record(holder: Holder) -> bytes:
    return json.dumps(asdict(holder)).encode()


def _write(node: int, record: bytes) -> None:
    os.ftruncate(node, 0)
    os.pwrite(node, record, 0)
