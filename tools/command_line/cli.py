"""The entry of the `ringup` command, and its subcommands by name. Imports nothing by itself: ctrl-C is heard from its
first moment on.
"""

import sys

COMMANDS = {  # name: (module, help); the order of `ringup --help`
    "list": (
        "ringup.tools.cards.list_cards",
        "list the cards that can be opened, and those that cannot with the reason",
    ),
    "doctor": ("ringup.tools.host.doctor", "look at this machine and say what is fine, what is not and what to do"),
    "setup": (
        "ringup.tools.host.setup_host",
        "show or write the rules that let users reach cards: udev, modules, limits",
    ),
    "up": ("ringup.tools.cards.up", "bring a card up, test its queues and say what it is"),
    "down": ("ringup.tools.cards.down", "bring a card that was left running to rest, and to sleep"),
    "info": ("ringup.tools.cards.info", "say what a card is and how it was found, without starting it"),
    "demo": (
        "ringup.tools.demo.command",
        "bring a card up, copy, compute, pull its cable, switch it off; leave a trace and a page",
    ),
    "stats": ("ringup.tools.cards.stats", "show what a card does, while another process drives it"),
    "top": ("ringup.tools.cards.top", "the same, live"),
    "regs": ("ringup.tools.cards.regs", "find registers of a chip, decode a value, read one of a card"),
    "mem": ("ringup.tools.cards.mem", "read and write a card's memory"),
    "run": ("ringup.tools.cards.run", "run a kernel of a code object with arguments and files"),
    "bench": ("ringup.tools.bench.command", "measure ringup beside its peers"),
    "trace": ("ringup.tools.cards.trace", "record a run for ui.perfetto.dev, or every access of it; show a recording"),
    "decode": ("ringup.tools.code.decode", "show the packets of a stream in a file"),
    "firmware": (
        "ringup.tools.host.firmware",
        "firmware files: which a card needs and whether they are here, what is inside one",
    ),
    "bridge": (
        "ringup.tools.cards.bridge",
        "USB bridges: what one runs, a copy of its flash, its firmware compared and written",
    ),
    "program": ("ringup.tools.code.program", "show the kernels of a code object"),
    "asm": ("ringup.tools.code.asm", "assemble shader code: text in LLVM's syntax into a code object"),
    "disasm": ("ringup.tools.code.disasm", "show a code object's machine code as text that assembles again"),
    "compile": ("ringup.tools.code.compile", "compile tensors of a Python file for a target, without a card"),
    "explain": (
        "ringup.tools.code.explain",
        "show what became of tensors: schedule, axes, every pass, registers, limits",
    ),
    "tune": (
        "ringup.tools.code.tune",
        "search the shapes that kernels may have for the fastest, on a card or by the model",
    ),
    "headers": ("ringup.tools.host.headers", "header packages: fetch them, generate facts, check the committed ones"),
    "bind": ("ringup.tools.cards.bind", "give a card to VFIO, with its whole IOMMU group"),
    "unbind": ("ringup.tools.cards.unbind", "give a card back to the kernel's own driver"),
    "reset": ("ringup.tools.cards.reset", "reset a whole card, gently first"),
    "report": (
        "ringup.tools.cards.report",
        "say what went wrong on a card that was left, or that another process drives",
    ),
    "serve": ("ringup.tools.cards.serve", "lend virtual devices to a kernel, here or in a virtual machine"),
    "completion": ("ringup.tools.command_line.completion", "print a completion script for a shell"),
}
FINE, FAILED, WRONG_USAGE = 0, 1, 2
# EX_SOFTWARE of sysexits.h; no error of the tree has it.
INTERNAL = 70
# What shells report for a program ended by SIGINT, SIGHUP and SIGTERM.
INTERRUPTED, HUNG_UP, TERMINATED = 130, 129, 143


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit status: 0, the error's own code, 2 for wrong usage, 70 for an internal error,
    130 when interrupted.

    SIGTERM and SIGHUP end it in the same way, with 128 and their number.

    1 stands for something wrong with what was looked at, and for an error of the operating system's, such as a full
    disk under standard output. Whatever goes wrong is one line on standard error, and with --json an object on standard
    output too.
    """
    words = sys.argv[1:] if argv is None else argv
    command = next((word for word in words if not word.startswith("-")), None)
    title = f"ringup {command}" if command in COMMANDS else "ringup"
    try:
        if argv is None:
            _fill_standard_files()
            from ringup.tools.common.collector import collect_seldom

            collect_seldom()
        status = _run(words, command, title)
    except KeyboardInterrupt as interrupt:
        status = say_interrupted(title, words, interrupt)
    if argv is None:
        _end_quietly()
    return status


def _run(words: list[str], command: str | None, title: str) -> int:
    try:
        from ringup.tools.command_line import parser  # takes longer than many a command runs

        return parser.run(words, command)
    except KeyboardInterrupt:
        raise
    except SystemExit:  # argparse has printed help, or what is wrong with the words
        raise
    except BaseException as error:  # noqa: BLE001  every failure is one line
        return _tell(error, words, title)


def _tell(error: BaseException, words: list[str], title: str) -> int:
    """Say what went wrong; where the module that does it is damaged too, say that much."""
    try:
        from ringup.tools.command_line import failure

        return failure.tell(error, words, title)
    except Exception as further:  # noqa: BLE001  the last place that can tell anything
        if sys.stderr is not None:
            lines = (
                f"{type(error).__name__}: {error}; reporting it failed with {type(further).__name__}: {further}".split()
            )
            print(f"{title}: internal error: {' '.join(lines)}; install ringup again", file=sys.stderr)
        return INTERNAL


def wants_json(words: list[str]) -> bool:
    """Tell whether --json is among the words, also where they were not taken; argparse takes abbreviations."""
    options = words[: words.index("--")] if "--" in words else words
    return any(len(word) > len("--") and "--json".startswith(word) for word in options)


def say_interrupted(title: str, words: list[str], interrupt: KeyboardInterrupt) -> int:
    """Say that the user has interrupted the command, or which signal ended it, and return the exit status."""
    status: int = getattr(interrupt, "status", INTERRUPTED)
    text = str(interrupt) or "interrupted"
    try:
        if wants_json(words):
            print(f'{{"error": {{"kind": "Interrupted", "message": "{text}", "exit_status": {status}}}}}')
        if sys.stderr is not None:
            print(f"{title}: {text}", file=sys.stderr)
        print(end="", flush=True)
    except (OSError, ValueError):  # standard output or standard error takes nothing
        drop()
        drop(errors=True)
    return status


def drop(*, errors: bool = False) -> None:
    """Let what standard output (or standard error) still holds go nowhere: the interpreter would fail on it at its end,
    with status 120.
    """
    import os

    stream = sys.stderr if errors else sys.stdout
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
    except (OSError, ValueError, AttributeError):
        return


def _fill_standard_files() -> None:
    """Let a standard file that is closed be /dev/null: nothing else that is opened, such as a card's node, may get its
    number.

    Standard output and standard error then take what is written. `sys.stdin` stays None, which who reads it asks after.
    """
    import os

    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # It gets the lowest number that is free.
            os.open(os.devnull, os.O_RDWR)
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115  open to the end of the process
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115


def _end_quietly() -> None:
    """Let ctrl-C end the process at once from here on: a traceback of the interpreter's own end says nothing."""
    try:
        import signal

        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
    except (ValueError, KeyboardInterrupt):  # not the main thread; one more ctrl-C
        return


if __name__ == "__main__":
    sys.exit(main())
