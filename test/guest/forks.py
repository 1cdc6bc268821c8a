"""Python for many short commands in a guest: one process imports what they need, and forks one for each of them.

On an emulated processor, starting Python and importing the driver takes longer than all that most commands do.

    forks = Forks(guest, before="HOME=/root")
    result = forks.run("-m ringup.tools.command_line.cli list --json", timeout_s=60)

In the guest this file is the program that forks: `python forks.py FOLDER`. FOLDER has two FIFOs. A request is a list of
words that each end with a zero byte: the number of the process that asks, its folder, and what would follow `python` on
a command line, which is `-m MODULE WORDS...` or `FILE WORDS...`. Output goes where that process's output goes. The
answer is the exit status. A forked process also notes which modules it has imported; before the next request they are
imported here. So the first command of a kind is like any other's, and the following ones start with all imported.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import runpy
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from machine import Guest, Result

FOLDER = "/run/guest/forks"
SIGNALLED = 128  # a shell's status of a process that a signal ended: this and the signal


class Forks:
    """The program in one guest. It starts with the first command."""

    def __init__(self, guest: Guest, checkout: Path, before: str = "") -> None:
        """Describe it. Commands run in the folder `checkout`, with the environment that the words `before` set."""
        self._guest = guest
        self._checkout = checkout
        self._before = before
        self._started = False

    def run(self, words: str, timeout_s: float) -> Result:
        """Run what would follow `python` on a command line, and return how it ended."""
        if not self._started:
            self._guest.check(
                f"mkdir {FOLDER} && mkfifo {FOLDER}/requests {FOLDER}/answers && cd {self._checkout} && {{ "
                f"{self._before} setsid {sys.executable} {Path(__file__).resolve()} {FOLDER} </dev/null "
                f">{FOLDER}/log 2>&1 & }}"
            )
            self._started = True
        return self._guest.run(
            f"cd {self._checkout} && printf '%s\\0' $$ $PWD {words} >{FOLDER}/requests && read status <{FOLDER}/answers"
            " && exit $status",
            timeout_s,
        )


def main() -> None:
    """Serve requests. In a forked process, run what was asked for, and return so that Python ends as usual."""
    folder = Path(sys.argv[1])
    requests, answers, needed = folder / "requests", folder / "answers", folder / "needed"
    while True:
        shell, where, *words = requests.read_text().split("\0")[:-1]
        child = os.fork()
        if not child:
            try:
                return run(shell, where, words)
            finally:
                needed.write_text("\n".join(sys.modules))
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        answers.write_text(f"{status if status >= 0 else SIGNALLED - status}\n")
        for name in needed.read_text().split() if needed.exists() else ():
            # A program may have made a module itself.
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        needed.unlink(missing_ok=True)


def run(shell: str, where: str, words: list[str]) -> None:
    """Be the process that the words ask for."""
    os.chdir(where)
    output = os.open(f"/proc/{shell}/fd/1", os.O_WRONLY | os.O_APPEND)
    for number in (1, 2):
        os.dup2(output, number)
    os.close(output)
    if words[0] == "-m":
        sys.argv = words[1:]
        if not hasattr(sys.modules.get(words[1]), "__path__"):
            # It runs as `__main__`, and would be there a second time. Of a package, its module `__main__` runs.
            sys.modules.pop(words[1], None)
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = words
        runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    main()
