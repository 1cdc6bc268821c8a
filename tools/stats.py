"""`ringup stats`: what a card does, seen from outside: nothing is taken from whoever drives it, and nothing is written."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import ringup
from ringup.drivers.amd.watch import watch

VIRTUAL = "virtual:"
EVERY_S = 1.0


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "stats",
        help="show what a card does, while another process drives it",
        description="Show clocks, power, temperatures, memory and link of a card that another process drives. Reads only. "
        "A virtual card lives in one process, so it is brought up for the occasion.",
    )
    parser.add_argument("card", help="its name, as `ringup list` shows it")
    parser.add_argument("--json", action="store_true", help="print one object a look")
    parser.add_argument("--watch", type=_seconds, metavar="S", help="look again every S seconds, until interrupted")
    parser.add_argument("--count", type=_looks, metavar="N", help="look N times (with or without --watch)")


def run(args: argparse.Namespace) -> int:
    times = args.count or (None if args.watch else 1)
    with ExitStack() as stack:
        if args.card.startswith(VIRTUAL):
            source = stack.enter_context(ringup.open(args.card))
            clock = source.device.clock
        else:
            source = stack.enter_context(watch(args.card))
            clock = source.clock
        look = 0
        while True:
            seen = source.stats().as_dict()
            print(json.dumps(seen) if args.json else "\n".join(_lines(seen)), flush=True)
            look += 1
            if look == times:
                return 0
            clock.sleep_us((args.watch or EVERY_S) * 1_000_000)


def _looks(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError(f"at least one look is taken, not {text}")
    return count


def _seconds(text: str) -> float:
    seconds = float(text)
    if not seconds > 0:
        raise argparse.ArgumentTypeError(f"a time between looks is more than 0 s, not {text}")
    return seconds


def _lines(seen: dict[str, Any], depth: int = 0) -> Iterator[str]:
    """Give a table of nested values, a line each; what is not known is left out."""
    pad = "  " * depth
    for name, value in seen.items():
        if isinstance(value, dict):
            if value:
                yield f"{pad}{name}"
                yield from _lines(value, depth + 1)
        elif isinstance(value, list | tuple) and value and isinstance(value[0], dict):
            for entry in value:
                yield f"{pad}{entry['name']}"
                yield from _lines({key: inner for key, inner in entry.items() if key != "name"}, depth + 1)
        elif isinstance(value, list | tuple):
            yield f"{pad}{name:26} {', '.join(map(str, value)) or 'none'}"
        elif value is not None:
            yield f"{pad}{name:26} {value}"
