"""`ringup completion SHELL`: a completion script made from the argument parser."""

from __future__ import annotations

import argparse

import shtab


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "completion",
        help="print a completion script for a shell",
        description='Print a completion script. bash: eval "$(ringup completion bash)"; zsh: put the '
        "output in a file _ringup "
        "on your fpath.",
    )
    parser.add_argument("shell", choices=shtab.SUPPORTED_SHELLS)


def run(args: argparse.Namespace) -> int:
    # the parser of every command, this one included
    from ringup.tools.command_line.parser import build_parser

    print(shtab.complete(build_parser("*"), args.shell))
    return 0
