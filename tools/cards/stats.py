"""`ringup stats`: the work of a card, seen from outside. The process that drives it is not disturbed; nothing is
written.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import ringup
from ringup.drivers.amd.observe.watch import watch
from ringup.drivers.nv.nodes.watch import watch as watch_nvidia
from ringup.drivers.transport.kfd.transport import PREFIX as KFD
from ringup.drivers.transport.kfd.watch import watch as watch_kfd
from ringup.drivers.transport.nvidia.transport import PREFIX as NVIDIA
from ringup.drivers.transport.seam import Clock
from ringup.tools.command_line.card_argument import add_card_arguments, card_name
from ringup.tools.common import numbers
from ringup.tools.common.json_text import json_text

PRIVATE = ("virtual:", "usb:")  # cards that belong to one process, or whose path does: started for this command
EVERY_S = 1.0
MARK = " (uncertain: see doubts)"


class Source(Protocol):
    """A started card, or one that is watched."""

    def stats(self) -> Any:
        """Return its present state, an object with `as_dict`."""
        ...


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "stats",
        help="show what a card does, while another process drives it",
        description="Show clocks, power, temperatures, memory and link of a card that another process "
        "drives. Reads only. "
        "A virtual card and one behind a USB bridge belong to one process, so they are started for this command.",
    )
    add_card_arguments(parser, firmware=True, json="print one object for each sample")
    parser.add_argument("--watch", type=numbers.seconds, metavar="S", help="sample every S seconds until interrupted")
    parser.add_argument("--count", type=looks, metavar="N", help="take N samples (with or without --watch)")


def run(args: argparse.Namespace) -> int:
    times = args.count or (None if args.watch else 1)
    with watched(card_name(args), args.firmware) as (source, clock):
        look = 0
        while True:
            seen = source.stats().as_dict()
            print(json_text(seen) if args.json else "\n".join(_lines(seen)), flush=True)
            look += 1
            if look == times:
                return 0
            clock.sleep_us((args.watch or EVERY_S) * 1_000_000)


@contextmanager
def watched(name: str, firmware: Any = ()) -> Iterator[tuple[Source, Clock]]:
    """Yield the source of a card's numbers, and the clock for waits between samples."""
    if name.startswith(PRIVATE):
        with ringup.open(name, **{"firmware": firmware} if firmware else {}) as card:
            yield card, card.device.clock
    else:
        with _eyes(name) as eyes:
            yield eyes, eyes.clock


def _eyes(name: str) -> Any:
    """Watch a card that another process drives."""
    if name.startswith(KFD):
        return watch_kfd(name)
    return watch_nvidia(name.removeprefix(NVIDIA)) if name.startswith(NVIDIA) else watch(name)


def looks(text: str) -> int:
    """Return a number of samples. Raises `ArgumentTypeError` below one."""
    count = numbers.whole(text)
    if count < 1:
        raise argparse.ArgumentTypeError(f"take at least one sample, not {text}")
    return count


def _lines(seen: dict[str, Any], depth: int = 0) -> Iterator[str]:
    """Yield lines for nested values; unknown values are left out."""
    pad = "  " * depth
    doubtful = MARK if not depth and seen.get("doubts") else ""
    for name, value in seen.items():
        if isinstance(value, dict):
            if value:
                yield f"{pad}{name}{doubtful if name == 'metrics' else ''}"
                yield from _lines(value, depth + 1)
        elif isinstance(value, list | tuple) and value and isinstance(value[0], dict):
            for entry in value:
                yield f"{pad}{entry['name']}"
                yield from _lines({key: inner for key, inner in entry.items() if key != "name"}, depth + 1)
        elif name == "doubts":
            yield from (f"{pad}{name:26} {text}" for text in value)
        elif isinstance(value, list | tuple):
            yield f"{pad}{name:26} {', '.join(map(str, value)) or 'none'}"
        elif value not in (None, ""):
            yield f"{pad}{name:26} {value}"
