"""The command line of `ringup`: its parser, one subcommand a module that is loaded when it is called, what an error says and ends with."""

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
from ringup.tools import files
from ringup.tools.card_argument import WrongUsage
from ringup.tools.cli import COMMANDS, FAILED, FINE, INTERRUPTED, WRONG_USAGE
from ringup.tools.examples import EXAMPLES

LOG = logging.getLogger(__name__)
HELP_WIDTH = 100  # of descriptions, which argparse leaves as they are where examples follow
VERBOSE = "verbose_"  # names of the counters begin so


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


def run(words: Sequence[str], command: str | None, title: str) -> int:
    """Run the command of these words and return its exit status; what went wrong is told in one line that begins with `title`."""
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
    except BrokenPipeError:  # the reader of our output has seen enough
        _close_output()
        return FINE
    except OSError as error:
        LOG.debug("where it came from", exc_info=error)
        elsewhere = "" if _close_output() else "standard output"
        print(f"{title}: {files.explain(error, elsewhere)}", file=sys.stderr)
        return FAILED
    except MemoryError as error:
        LOG.debug("where it came from", exc_info=error)
        print(f"{title}: this computer's memory is too small for it", file=sys.stderr)
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


def _close_output() -> bool:
    """Send what standard output still holds nowhere if it cannot be written, lest the interpreter fails at its end; tell whether it could."""
    try:
        print(end="", flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return False
    return True
