"""The `ringup` command: one subcommand a module, loaded when it is called."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from importlib import import_module

import ringup
from ringup.errors import RingupError

COMMANDS = {  # name: (module, help); the order of `ringup --help`
    "doctor": ("ringup.tools.doctor", "look at this machine and say what is fine, what is not and what to do"),
    "list": ("ringup.tools.list_cards", "list the cards that can be opened, and those that cannot with the reason"),
    "regs": ("ringup.tools.regs", "find registers of a chip, show their fields, decode a value"),
    "headers": ("ringup.tools.headers", "header packages: fetch them, generate facts, check the committed ones"),
    "bench": ("ringup.tools.bench.command", "measure ringup beside its peers"),
    "completion": ("ringup.tools.completion", "print a completion script for a shell"),
}
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
    parser = Parser(prog="ringup", description=ringup.__doc__, epilog="`ringup COMMAND --help` tells more.")
    parser.add_argument("--version", action="version", version=f"ringup {ringup.__version__}")
    parser.add_argument("-v", "--verbose", action="count", default=0, help="log what is done; twice for every detail")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for name, (module, text) in COMMANDS.items():
        if command in (name, "*"):
            import_module(module).add_parser(subparsers)
        else:
            subparsers.add_parser(name, help=text)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 0, the error's own code, 2 for wrong usage, 130 when interrupted."""
    words = list(sys.argv[1:] if argv is None else argv)
    command = next((word for word in words if not word.startswith("-")), None)
    parser = build_parser(command)
    args = parser.parse_args(words)
    if args.command is None:
        parser.print_help()
        return 0
    logging.basicConfig(
        level=(logging.WARNING, logging.INFO, logging.DEBUG)[min(args.verbose, 2)], format="%(name)s: %(message)s"
    )
    try:
        status: int = import_module(COMMANDS[args.command][0]).run(args)
        sys.stdout.flush()
    except RingupError as error:
        print(f"ringup {args.command}: {type(error).__name__}: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print(f"ringup {args.command}: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return status


if __name__ == "__main__":
    sys.exit(main())
