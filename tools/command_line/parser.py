"""The parser of `ringup`. Each subcommand is a module that is loaded when it is called. Help lists
the exit statuses.
"""

from __future__ import annotations

import argparse
import io
import logging
import sys
from collections.abc import Sequence
from importlib import import_module
from textwrap import fill
from typing import NoReturn

import ringup
from ringup import errors
from ringup.errors import RingupError
from ringup.tools.command_line import ending, failure
from ringup.tools.command_line.cli import (
    COMMANDS,
    FAILED,
    FINE,
    HUNG_UP,
    INTERNAL,
    INTERRUPTED,
    TERMINATED,
    WRONG_USAGE,
    wants_json,
)
from ringup.tools.command_line.examples import EXAMPLES

HELP_WIDTH = 100  # width of descriptions, which argparse does not wrap if examples follow
VERBOSE = "verbose_"  # prefix of the counters' names
STANDARD_OUTPUT = "standard output"


class Refused(SystemExit):
    """The parser has printed the error in the words."""

    def __init__(self, message: str) -> None:
        super().__init__(WRONG_USAGE)
        self.message = message


class Parser(argparse.ArgumentParser):
    """Accepts options between positionals too: argparse before Python 3.13 refuses `regs navi31 --all NAME`."""

    _intermixed = False

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]
        if self._subparsers or self._intermixed:
            return super().parse_known_args(args, namespace)
        self._intermixed = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._intermixed = False

    def error(self, message: str) -> NoReturn:
        """Print usage and message as argparse does."""
        try:
            super().error(message)
        except SystemExit as end:
            raise Refused(message) from end


def build_parser(command: str | None) -> argparse.ArgumentParser:
    """Return the parser with the arguments of `command` filled in; of every command for "*"."""
    parser = Parser(
        prog="ringup",
        description=ringup.__doc__,
        epilog=f"`ringup COMMAND --help` shows more.\n\n{_exit_codes()}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"ringup {ringup.__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for name, (module, text) in COMMANDS.items():
        if command in (name, "*"):
            try:
                import_module(module).add_parser(subparsers)
            except ImportError as error:
                if command == name or errors.missing_package(error, name) is None:
                    raise
                # a command whose packages are not installed has its name in completions and nothing else
                subparsers.add_parser(name, help=text)
            else:
                _add_examples(subparsers.choices[name], EXAMPLES[name])
        else:
            subparsers.add_parser(name, help=text)
    _add_verbose(parser, 0)
    return parser


def _exit_codes() -> str:
    """List the meanings of the exit status: the code of each error class, and the other codes."""
    codes = {
        FINE: "success",
        FAILED: "the examined object has an error, or the operating system refused something",
        WRONG_USAGE: "wrong usage",
        **{kind.exit_code: kind.__name__ for kind in vars(errors).values() if _is_leaf(kind)},
        INTERNAL: "internal error of ringup; the line names a report to send to its authors",
        INTERRUPTED: "interrupted",
        HUNG_UP: "ended by SIGHUP",
        TERMINATED: "ended by SIGTERM",
    }
    return "\n".join(["exit status:", *(f"  {code:3}  {text}" for code, text in codes.items())])


def _is_leaf(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, RingupError) and kind is not RingupError


def _add_examples(parser: argparse.ArgumentParser, examples: Sequence[str]) -> None:
    """Add examples to the end of a command's help, after its own epilogue."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    text = "\n".join(["examples:", *(f"  {line}" for line in examples)])
    parser.description = fill(parser.description or "", HELP_WIDTH)
    parser.epilog = f"{fill(parser.epilog, HELP_WIDTH)}\n\n{text}" if parser.epilog else text


def _add_verbose(parser: argparse.ArgumentParser, depth: int) -> None:
    """Accept -v everywhere in the command line. Each parser depth has its own counter, because argparse keeps only the
    innermost.
    """
    text = "log each step; -vv logs all details"
    parser.add_argument("-v", "--verbose", dest=f"{VERBOSE}{depth}", action="count", default=0, help=text)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                _add_verbose(inner, depth + 1)


class StandardOutput(io.TextIOWrapper):
    """Standard output whose errors name it. The text that failed is lost, so the error must say where it came from."""

    def __init__(self, plain: io.TextIOWrapper) -> None:
        """Write to the file of `plain`, in the same way. `plain` stays open."""
        super().__init__(
            plain.buffer,
            encoding=plain.encoding,
            errors=plain.errors,
            line_buffering=plain.line_buffering,
            write_through=plain.write_through,
        )
        # An unreferenced wrapper closes its buffer, which this one uses too.
        self._plain = plain

    def write(self, text: str, /) -> int:
        """Write text. Raises an `OSError` that names standard output."""
        try:
            return super().write(text)
        except OSError as error:
            error.filename = STANDARD_OUTPUT
            raise

    def flush(self) -> None:
        """Flush the buffer. Raises an `OSError` that names standard output."""
        try:
            super().flush()
        except OSError as error:
            error.filename = STANDARD_OUTPUT
            raise


def run(words: Sequence[str], command: str | None) -> int:
    """Run the command of these words and return its exit status. Raises every error, also those of writing standard
    output.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Characters that the terminal's encoding lacks are written as escapes.
        sys.stdout.reconfigure(errors="backslashreplace")
    if type(sys.stdout) is io.TextIOWrapper:
        sys.stdout = StandardOutput(sys.stdout)
    args = _parse(words, command)
    if args is None:
        return FINE
    verbose = sum(count for name, count in vars(args).items() if name.startswith(VERBOSE))
    logging.basicConfig(format="%(name)s: %(message)s")
    logging.getLogger("ringup").setLevel((logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)])
    try:
        with ending.heard():
            status: int = import_module(COMMANDS[args.command][0]).run(args)
    except SystemExit as end:
        # only the parser may raise SystemExit: its message is printed
        if isinstance(end.__context__, BrokenPipeError):
            # QUIRK: rich raises SystemExit if the reader of its output is gone, and discards the rest
            return FINE
        raise RuntimeError(f"`ringup {args.command}` ended Python with {end.code!r}") from end
    print(end="", flush=True)
    return status


def _parse(words: Sequence[str], command: str | None) -> argparse.Namespace | None:
    """Return the arguments, or None if no command is named and help was printed. Raises `SystemExit` after --help and
    for wrong usage.
    """
    parser = build_parser(command)
    try:
        if any("\0" in word for word in words):
            parser.error("a word contains a zero byte, which is not allowed in names of files and cards")
        args = parser.parse_args(words)
    except Refused as refused:
        if wants_json(list(words)):
            failure.print_json(failure.Failure("WrongUsage", refused.message, WRONG_USAGE))
        raise
    except SystemExit:  # help was printed
        print(end="", flush=True)
        raise
    if args.command is None:
        parser.print_help()
        print(end="", flush=True)
        return None
    return args
