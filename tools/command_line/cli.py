"""The entry of the `ringup` command, and its subcommands by name. Imports nothing at its top, so that ctrl-C works from
the first moment.
"""

import sys

COMMANDS = {  # name: (module, help); the order of `ringup --help`
    "list": (
        "ringup.tools.cards.list_cards",
        "list cards, and why some cannot be opened",
    ),
    "doctor": ("ringup.tools.host.doctor", "check this machine: what is fine, what is wrong and what to do"),
    "setup": (
        "ringup.tools.host.setup_host",
        "show or write the rules that let users reach cards: udev, modules, limits",
    ),
    "up": ("ringup.tools.cards.up", "start a card, test its queues and show what it is"),
    "down": ("ringup.tools.cards.down", "stop a card that was left running, and put it to sleep"),
    "info": ("ringup.tools.cards.info", "show what a card is and its state, without starting it"),
    "demo": (
        "ringup.tools.demo.command",
        "start a card, copy, compute, pull its cable, switch it off; write a trace and a page",
    ),
    "stats": ("ringup.tools.cards.stats", "show what a card does, while another process drives it"),
    "top": ("ringup.tools.cards.top", "the same, live"),
    "regs": ("ringup.tools.cards.regs", "find registers of a chip, decode a value, read one of a card"),
    "mem": ("ringup.tools.cards.mem", "read and write a card's memory"),
    "run": ("ringup.tools.cards.run", "run a kernel of a code object with arguments and files"),
    "bench": ("ringup.tools.bench.command", "compare ringup with tinygrad"),
    "trace": ("ringup.tools.cards.trace", "record a run for ui.perfetto.dev, or all of its accesses; show a recording"),
    "decode": ("ringup.tools.code.decode", "show the packets of a stream in a file"),
    "firmware": (
        "ringup.tools.host.firmware",
        "firmware files: which a card needs, whether they are installed, what is inside one",
    ),
    "bridge": (
        "ringup.tools.cards.bridge",
        "USB bridges: show the firmware, copy the flash, compare and write firmware",
    ),
    "program": ("ringup.tools.code.program", "show the kernels of a code object"),
    "asm": ("ringup.tools.code.asm", "assemble shader code: text in LLVM's syntax into a code object"),
    "disasm": ("ringup.tools.code.disasm", "disassemble a code object into text that assembles again"),
    "compile": ("ringup.tools.code.compile", "compile tensors of a Python file for a target, without a card"),
    "explain": (
        "ringup.tools.code.explain",
        "show how tensors are compiled: schedule, axes, every pass, registers, limits",
    ),
    "tune": (
        "ringup.tools.code.tune",
        "search the fastest shape of each kernel, on a card or by the model",
    ),
    "headers": (
        "ringup.tools.host.headers",
        "header packages: download them, generate facts, check the committed facts",
    ),
    "bind": ("ringup.tools.cards.bind", "give a card to VFIO, with its whole IOMMU group"),
    "unbind": ("ringup.tools.cards.unbind", "give a card back to the kernel's own driver"),
    "reset": ("ringup.tools.cards.reset", "reset a whole card, mildest reset first"),
    "report": (
        "ringup.tools.cards.report",
        "report what went wrong on a card that was left, or that another process drives",
    ),
    "serve": ("ringup.tools.cards.serve", "serve virtual devices to a kernel, here or in a virtual machine"),
    "completion": ("ringup.tools.command_line.completion", "print a completion script for a shell"),
}
FINE, FAILED, WRONG_USAGE = 0, 1, 2
# EX_SOFTWARE of sysexits.h; no error of ringup uses it.
INTERNAL = 70
# Statuses that shells report for programs ended by SIGINT, SIGHUP and SIGTERM.
INTERRUPTED, HUNG_UP, TERMINATED = 130, 129, 143


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit status: 0, the error's own code, 2 for wrong usage, 70 for an internal error,
    130 when interrupted.

    SIGTERM and SIGHUP end it in the same way, with 128 plus their number.

    1 means that something is wrong with the examined object, or that the operating system refused something, such as
    a write of standard output to a full disk. Every failure is one line on standard error, and with --json also an
    object on standard output.
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
        from ringup.tools.command_line import parser  # slower than many commands

        return parser.run(words, command)
    except KeyboardInterrupt:
        raise
    except SystemExit:
        # argparse has printed help, or what is wrong with the words
        raise
    except BaseException as error:  # noqa: BLE001  every failure is one line
        return _tell(error, words, title)


def _tell(error: BaseException, words: list[str], title: str) -> int:
    """Report the error. If the module that reports it is damaged too, report that."""
    try:
        from ringup.tools.command_line import failure

        return failure.tell(error, words, title)
    except Exception as further:  # noqa: BLE001  the last place that can report anything
        if sys.stderr is not None:
            lines = (
                f"{type(error).__name__}: {error}; reporting it failed with {type(further).__name__}: {further}".split()
            )
            print(f"{title}: internal error: {' '.join(lines)}; install ringup again", file=sys.stderr)
        return INTERNAL


def wants_json(words: list[str]) -> bool:
    """Return whether --json is among the words, also if parsing failed; argparse accepts abbreviations."""
    options = words[: words.index("--")] if "--" in words else words
    return any(len(word) > len("--") and "--json".startswith(word) for word in options)


def say_interrupted(title: str, words: list[str], interrupt: KeyboardInterrupt) -> int:
    """Report an interruption, or the signal that ended the command, and return the exit status."""
    status: int = getattr(interrupt, "status", INTERRUPTED)
    text = str(interrupt) or "interrupted"
    try:
        if wants_json(words):
            print(f'{{"error": {{"kind": "Interrupted", "message": "{text}", "exit_status": {status}}}}}')
        if sys.stderr is not None:
            print(f"{title}: {text}", file=sys.stderr)
        print(end="", flush=True)
    except (OSError, ValueError):
        # standard output or standard error is closed
        drop()
        drop(errors=True)
    return status


def drop(*, errors: bool = False) -> None:
    """Discard the buffer of standard output (or standard error). Otherwise the interpreter fails at its end, with
    status 120.
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
    """Open /dev/null for each closed standard file, so that no other file, such as a card's node, gets its number.

    Standard output and standard error then accept writes. `sys.stdin` stays None; its readers check for that.
    """
    import os

    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # It gets the lowest free number.
            os.open(os.devnull, os.O_RDWR)
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115  open to the end of the process
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115


def _end_quietly() -> None:
    """Make ctrl-C end the process at once from now on: a traceback from the interpreter's end is useless."""
    try:
        import signal

        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
    except (ValueError, KeyboardInterrupt):
        # not the main thread; one more ctrl-C
        return


if __name__ == "__main__":
    sys.exit(main())
