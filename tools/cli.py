"""The `ringup` command: one subcommand a module, loaded when it is called."""

from __future__ import annotations

import argparse
import io
import logging
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from textwrap import fill

import ringup
from ringup import errors
from ringup.errors import RingupError
from ringup.tools.card_argument import WrongUsage
from ringup.tools.examples import EXAMPLES

COMMANDS = {  # name: (module, help); the order of `ringup --help`
    "list": ("ringup.tools.list_cards", "list the cards that can be opened, and those that cannot with the reason"),
    "doctor": ("ringup.tools.doctor", "look at this machine and say what is fine, what is not and what to do"),
    "setup": ("ringup.tools.setup_host", "show or write the rules that let users reach cards: udev, modules, limits"),
    "up": ("ringup.tools.up", "bring a card up, test its queues and say what it is"),
    "down": ("ringup.tools.down", "bring a card that was left running to rest, and to sleep"),
    "info": ("ringup.tools.info", "say what a card is and how it was found, without starting it"),
    "demo": (
        "ringup.tools.demo",
        "bring a card up, copy, compute, pull its cable, switch it off; leave a trace and a page",
    ),
    "stats": ("ringup.tools.stats", "show what a card does, while another process drives it"),
    "top": ("ringup.tools.top", "the same, live"),
    "regs": ("ringup.tools.regs", "find registers of a chip, decode a value, read one of a card"),
    "mem": ("ringup.tools.mem", "read and write a card's memory"),
    "run": ("ringup.tools.run", "run a kernel of a code object with arguments and files"),
    "bench": ("ringup.tools.bench.command", "measure ringup beside its peers"),
    "trace": ("ringup.tools.trace", "record a run for ui.perfetto.dev, or every access of it; show a recording"),
    "decode": ("ringup.tools.decode", "show the packets of a stream in a file"),
    "firmware": (
        "ringup.tools.firmware",
        "firmware files: which a card needs and whether they are here, what is inside one",
    ),
    "bridge": (
        "ringup.tools.bridge",
        "USB bridges: what one runs, a copy of its flash, its firmware compared and written",
    ),
    "program": ("ringup.tools.program", "show the kernels of a code object"),
    "headers": ("ringup.tools.headers", "header packages: fetch them, generate facts, check the committed ones"),
    "bind": ("ringup.tools.bind", "give a card to VFIO, with its whole IOMMU group"),
    "unbind": ("ringup.tools.unbind", "give a card back to the kernel's own driver"),
    "reset": ("ringup.tools.reset", "reset a whole card, gently first"),
    "report": ("ringup.tools.report", "say what befell a card that was left, or that another process drives"),
    "serve": ("ringup.tools.serve", "lend virtual devices to a kernel, here or in a virtual machine"),
    "completion": ("ringup.tools.completion", "print a completion script for a shell"),
}
LOG = logging.getLogger("ringup.tools.cli")  # its own name is __main__ where it is run as a program
HELP_WIDTH = 100  # of descriptions, which argparse leaves as they are where examples follow
VERBOSE = "verbose_"  # names of the counters begin so
FINE, FAILED, WRONG_USAGE = 0, 1, 2
INTERRUPTED = 130  # what shells report for a program ended by SIGINT


class Parser(argparse.ArgumentParser):
    """Takes options between positionals too: argparse before Python 3.13 refuses `regs navi31 --all NAME`."""

    _intermixed = False

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]
        if self._subparsers or self._intermixed:
            return super().parse_known_args(args, namespace)
        self._intermixed = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._intermixed = False


def build_parser(command: str | None) -> argparse.ArgumentParser:
    """Return the parser with the arguments of `command` filled in; of every command for "*"."""
    parser = Parser(
        prog="ringup",
        description=ringup.__doc__,
        epilog=f"`ringup COMMAND --help` tells more.\n\n{_exit_codes()}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"ringup {ringup.__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for name, (module, text) in COMMANDS.items():
        if command in (name, "*"):
            import_module(module).add_parser(subparsers)
            _add_examples(subparsers.choices[name], EXAMPLES[name])
        else:
            subparsers.add_parser(name, help=text)
    _add_verbose(parser, 0)
    return parser


def _exit_codes() -> str:
    """List what the command's exit status says: the code of each error class, and what is no error of a card's."""
    codes = {
        FINE: "all went well",
        FAILED: "something is wrong with what was looked at, or the operating system refused",
        WRONG_USAGE: "wrong usage",
        **{kind.exit_code: kind.__name__ for kind in vars(errors).values() if _is_leaf(kind)},
        INTERRUPTED: "interrupted",
    }
    return "\n".join(["exit status:", *(f"  {code:3}  {text}" for code, text in codes.items())])


def _is_leaf(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, RingupError) and kind is not RingupError


def _add_examples(parser: argparse.ArgumentParser, examples: Sequence[str]) -> None:
    """End the help of a command with examples; what it ended with comes before them."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    text = "\n".join(["examples:", *(f"  {line}" for line in examples)])
    parser.description = fill(parser.description or "", HELP_WIDTH)
    parser.epilog = f"{fill(parser.epilog, HELP_WIDTH)}\n\n{text}" if parser.epilog else text


def _add_verbose(parser: argparse.ArgumentParser, depth: int) -> None:
    """Take -v at every place of the command line; each depth counts for itself, since argparse lets the inner one win."""
    text = "log what is done; twice for every detail"
    parser.add_argument("-v", "--verbose", dest=f"{VERBOSE}{depth}", action="count", default=0, help=text)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                _add_verbose(inner, depth + 1)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 0, the error's own code, 2 for wrong usage, 130 when interrupted.

    1 stands for something wrong with what was looked at, and for an error of the operating system's, such as a full disk under standard output.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    command = next((word for word in words if not word.startswith("-")), None)
    title = f"ringup {command}" if command in COMMANDS else "ringup"
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal that lacks a character shows its number
    try:
        status = _run(words, command)
        print(end="", flush=True)
    except RingupError as error:
        LOG.debug("where it came from", exc_info=error)
        print(f"{title}: {type(error).__name__}: {error}", file=sys.stderr)
        return error.exit_code
    except WrongUsage as error:
        print(f"{title}: {error}; `{title} --help` shows examples", file=sys.stderr)
        return WRONG_USAGE
    except KeyboardInterrupt:
        print(f"{title}: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output has seen enough
        _close_output()
        return FINE
    except OSError as error:
        LOG.debug("where it came from", exc_info=error)
        _close_output()
        print(f"{title}: {error}", file=sys.stderr)
        return FAILED
    return status


def _run(words: Sequence[str], command: str | None) -> int:
    parser = build_parser(command)
    try:
        args = parser.parse_args(words)
    except SystemExit:  # help was printed, or the usage was wrong
        print(end="", flush=True)
        raise
    if args.command is None:
        parser.print_help()
        return 0
    verbose = sum(count for name, count in vars(args).items() if name.startswith(VERBOSE))
    logging.basicConfig(format="%(name)s: %(message)s")
    logging.getLogger("ringup").setLevel((logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)])
    status: int = import_module(COMMANDS[args.command][0]).run(args)
    return status


def _close_output() -> None:
    """Send what standard output still holds nowhere if it cannot be written, lest the interpreter fails at its end."""
    try:
        print(end="", flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
