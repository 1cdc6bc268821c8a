"""A shell in the emulated guest, with virtual cards plugged in, on this terminal.

    python test/guest/shell.py [virtual:navi31 ...] [--socket PATH] [--memory 2G] [--iommu] [--folder FOLDER] [--command
    CMD]

The cards are served from this process, or by `ringup serve vfio-user` at the sockets named. With --command, one command
is run instead of a shell, its output printed, and its status is this program's. Status 2: the arguments are wrong; 1:
the guest came to no good end.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
import time
import tty
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NoReturn

from machine import POWERED_OFF, SLOTS, Guest, GuestFailed
from served import Served

from ringup import silicon
from ringup.errors import RingupError
from ringup.tools.common.numbers import size

VIRTUAL = "virtual:"
CHIPS = (*silicon.cards(), *silicon.nvidia_cards())
DEFAULT = "virtual:navi31"
MIN_MEMORY_MIB, MAX_MEMORY_MIB = 512, 1 << 20
# The limit of the folder's length: the name of a socket in it may have 108 bytes.
LONGEST_PATH_BYTES = 90
# TIMEOUT: the user ends the shell or the command.
BOUND_S = 30 * 24 * 3600.0
# How soon a change of the window, or the shell's end, is noticed.
LOOK_S = 0.25
# What the terminal still shows after the shell's end arrives within this time.
SETTLE_S = 0.3
LEAVE = b"\x1d"  # ctrl-]
MAX_TYPED_BYTES = 1 << 16  # typed bytes that the guest has not taken yet
LAST_BYTES = 256  # of the console, where the power-off message appears
MAX_MISTAKES = 10  # violations of a driver that are printed
TERMINAL = "/dev/hvc0"
TERMINFO = "/run/guest/terminfo"  # visible in either root


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Report wrong arguments in one line."""
        self.exit(2, f"{self.prog}: {message}\n")


def main(argv: Sequence[str] | None = None) -> int:
    args = _arguments(argv)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    try:
        with ExitStack() as stack:
            if args.folder is None:
                folder = Path(tempfile.mkdtemp(prefix="ringup-guest-"))
                stack.callback(shutil.rmtree, folder, ignore_errors=True)
            else:
                folder = args.folder
                folder.mkdir(parents=True, exist_ok=True)
            return _serve(args, folder)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except (GuestFailed, OSError, RingupError, subprocess.CalledProcessError) as error:
        sys.stderr.write(f"shell.py: {error}\n")
        return 1


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(prog="shell.py", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("card", nargs="*", help=f"cards to serve and plug in (default {DEFAULT})")
    parser.add_argument(
        "--socket", type=Path, action="append", default=[], metavar="PATH", help="plug in what is served there instead"
    )
    parser.add_argument("--memory", type=size, default=2 << 30, metavar="SIZE", help="of the guest (default 2G)")
    parser.add_argument("--iommu", action="store_true", help="put the cards behind an emulated IOMMU")
    parser.add_argument(
        "--folder", type=Path, help="keep the logs there: an empty folder, or one to be made (default: none is kept)"
    )
    parser.add_argument("--command", metavar="CMD", help="run this instead of a shell, and end with its status")
    args = parser.parse_args(argv)
    if not args.card and not args.socket:
        args.card = [DEFAULT]
    for name in args.card:
        if not name.startswith(VIRTUAL) or name.removeprefix(VIRTUAL) not in CHIPS:
            known = ", ".join(VIRTUAL + chip for chip in CHIPS)
            parser.error(f"{name} is no virtual card in a slot; these are: {known}")
    for path in args.socket:
        if not path.is_socket():
            parser.error(f"{path} is no socket; `ringup serve vfio-user {path} {DEFAULT}` makes one")
    if len(args.card) + len(args.socket) > SLOTS:
        parser.error(f"a guest has {SLOTS} slots, not {len(args.card) + len(args.socket)}")
    if not MIN_MEMORY_MIB <= args.memory >> 20 <= MAX_MEMORY_MIB or args.memory % (1 << 20):
        parser.error(f"a guest has {MIN_MEMORY_MIB}M of memory or more, in whole MiB")
    if args.folder is not None:
        args.folder = args.folder.resolve()
        if args.folder.exists() and not (args.folder.is_dir() and not any(args.folder.iterdir())):
            parser.error(f"{args.folder} is no empty folder")
        if len(os.fsencode(args.folder)) > LONGEST_PATH_BYTES:
            parser.error(f"--folder: a path of more than {LONGEST_PATH_BYTES} bytes has no room for sockets")
    if args.command is None and not (os.isatty(0) and os.isatty(1)):
        parser.error("a shell needs a terminal as its standard input and output; --command needs none")
    return args


def _leave(number: int, frame: object) -> NoReturn:
    sys.exit(128 + number)


def _serve(args: argparse.Namespace, folder: Path) -> int:
    """Serve the cards, boot, and run the shell or the command."""
    chips = [name.removeprefix(VIRTUAL) for name in args.card]
    with Served(folder, *chips, log=bool(chips)) as served:
        try:
            return _boot(args, folder, (*served.sockets, *args.socket), served)
        finally:
            mistakes = [f"{name}: {seen}" for place, name in enumerate(args.card) for seen in served.violations(place)]
            for line in mistakes[:MAX_MISTAKES]:
                _tell(f"a mistake of its driver's that the card saw: {line}")
            if len(mistakes) > MAX_MISTAKES:
                _tell(f"... and {len(mistakes) - MAX_MISTAKES} more mistakes")


def _boot(args: argparse.Namespace, folder: Path, cards: Sequence[Path], served: Served) -> int:
    with ExitStack() as stack:
        listener: socket.socket | None = None
        extra: list[str] = []
        if args.command is None:
            listener, extra = _listen(stack, folder / "terminal")
            _tell(f"booting, with {', '.join([*args.card, *map(str, args.socket)])}")
        guest = Guest(
            folder / "guest", memory_mib=args.memory >> 20, iommu=args.iommu, cards=cards, extra=extra, served=served
        )
        stack.enter_context(guest)
        if listener is None:
            result = guest.run(args.command, BOUND_S)
            sys.stdout.write(result.output)
            sys.stdout.flush()
            return result.status
        far = stack.enter_context(listener.accept()[0])
        kept = "" if args.folder else ", gone when this ends unless --folder names a place"
        _tell("load the kernel's driver:  modprobe amdgpu, or nouveau for NVIDIA's cards")
        _tell("programs of Debian 13:     trixie vulkaninfo --summary; trixie rocminfo; trixie nvtop; trixie: a shell")
        _tell(f"logs on this machine:      {folder}{kept}")
        if args.card:
            _tell("                           access.log: what the cards saw, for `ringup trace --decode`")
        _tell("                           guest/console: the kernel; guest/emulator: the emulator")
        _tell("leave by:                  exit, ctrl-D; ctrl-] even when the guest hangs")
        return Session(guest, far).run()


def _listen(stack: ExitStack, path: Path) -> tuple[socket.socket, list[str]]:
    """Return a socket for the terminal's other end, and the device that gives the guest that terminal. `stack` removes
    the socket's file.
    """
    listener = stack.enter_context(socket.socket(socket.AF_UNIX))
    listener.bind(str(path))
    stack.callback(path.unlink)
    listener.listen(1)
    device = ["-device", "virtio-serial-pci,id=terminals", "-device", "virtconsole,bus=terminals.0,chardev=terminal"]
    return listener, ["-chardev", f"socket,id=terminal,path={str(path).replace(',', ',,')}", *device]


def _tell(line: str) -> None:
    sys.stderr.write(f"guest: {line}\n")
    sys.stderr.flush()


class Session:
    """A shell in the guest, on a terminal of the guest. Its other end is a socket here, connected to the terminal of
    this process.
    """

    def __init__(self, guest: Guest, far: socket.socket) -> None:
        self._guest = guest
        self._far = far
        self._status: int | None = None
        self._error: GuestFailed | None = None
        self._window = _window()
        self._thread = threading.Thread(target=self._shell, name="the guest's shell", daemon=True)

    def run(self) -> int:
        """Return the shell's status when it has ended, and 0 when the guest has been switched off."""
        with _raw(0):
            self._thread.start()
            left = self._relay()
        if left or self._off():
            return 0
        self._thread.join(1.0)
        if self._error is not None and not self._off():
            raise self._error
        return self._status or 0

    def _shell(self) -> None:
        """Run bash in the host's root until its end, in its own session with the terminal as its
        controlling terminal.
        """
        kind = shlex.quote(os.environ.get("TERM", "dumb"))
        steps = (
            f"cd -- {shlex.quote(str(Path.cwd()))} 2>/dev/null || cd /root",
            f"infocmp -x {kind} 2>/dev/null | tic -x -o {TERMINFO} - 2>/dev/null",  # Debian 13's root has none
            f"exec <>{TERMINAL} >&0 2>&0",
            # ORDER: a closed terminal forgets its settings.
            f"stty iutf8 rows {self._window.lines} cols {self._window.columns}",
            "unset TMPDIR",
            f"export TERM={kind} TERMINFO={TERMINFO} PS1='guest:\\w\\$ '",
            "exec setsid --ctty --wait bash --norc -i",
        )
        try:
            self._status = self._guest.run("\n".join(steps), BOUND_S).status
        except GuestFailed as error:
            self._error = error

    def _relay(self) -> bool:
        """Carry bytes both ways until the shell or the guest ends; return true when the user left before that."""
        typed, looked = b"", time.monotonic()
        while self._thread.is_alive():
            sources: list[int | socket.socket] = [self._far]
            if len(typed) < MAX_TYPED_BYTES:
                sources.append(0)
            readable, writable, _ = select.select(sources, [self._far] if typed else [], [], LOOK_S)
            if self._far in readable and not self._show():
                return False
            if 0 in readable:
                piece = os.read(0, 4096)
                if not piece or LEAVE in piece:
                    return True
                typed += piece
            if writable:
                typed = typed[self._far.send(typed) :]
            if time.monotonic() - looked > LOOK_S:
                looked = time.monotonic()
                self._fit()
                if self._off():
                    return False
        while select.select([self._far], [], [], SETTLE_S)[0] and self._show():
            pass
        return False

    def _show(self) -> bool:
        """Show the output of the guest's terminal; return false at its end."""
        try:
            piece = self._far.recv(1 << 16)
        except OSError:
            piece = b""
        while piece:
            piece = piece[os.write(1, piece) :]
            if not piece:
                return True
        return False

    def _fit(self) -> None:
        """Make the guest's terminal as big as this one."""
        if (now := _window()) != self._window:
            self._window = now
            with contextlib.suppress(GuestFailed):  # the guest is going down
                self._guest.begin(f"stty -F {TERMINAL} rows {now.lines} cols {now.columns}")

    def _off(self) -> bool:
        """Tell whether the guest has powered off. After a sleep, the emulator does not end at a power-off."""
        path = self._guest.folder / "console"
        with path.open("rb") as console:
            console.seek(max(0, path.stat().st_size - LAST_BYTES))
            return POWERED_OFF.encode() in console.read()


def _window() -> os.terminal_size:
    """Return how many columns and lines this terminal has."""
    return os.get_terminal_size(1)


@contextlib.contextmanager
def _raw(terminal: int) -> Iterator[None]:
    """Make a terminal pass on each key unchanged, and restore it afterwards, whatever happens."""
    before = termios.tcgetattr(terminal)
    try:
        tty.setraw(terminal)
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


if __name__ == "__main__":
    sys.exit(main())
