"""`ringup list`: the cards of every installed transport."""

from __future__ import annotations

import argparse
import sys
from contextlib import redirect_stdout
from dataclasses import asdict

from ringup.cards import cards
from ringup.tools.common.json_text import json_text


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "list",
        help="list cards, and why some cannot be opened",
        description="List the cards of every installed transport. No card is touched.",
    )
    parser.add_argument("--json", action="store_true", help="print a list of objects")


def run(args: argparse.Namespace) -> int:
    # a transport of another package may print; the list must stay clean
    with redirect_stdout(sys.stderr):
        found = cards()
    if args.json:
        print(json_text([asdict(card) for card in found], indent=1))
        return 0
    if not found:
        print("no transport is installed; `ringup doctor` shows the GPUs this machine has")
    width = max((len(card.name) for card in found), default=0)
    for card in found:
        line = f"{card.name:{width}}  {card.description}" + (f"  (skipped: {card.skipped})" if card.skipped else "")
        print(" ".join(line.splitlines()))
    return 0
