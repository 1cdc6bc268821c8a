"""`ringup down`: stop a card that was left running, and put it to sleep."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from ringup.errors import NotSupported
from ringup.tools.cards import nvidia
from ringup.tools.cards.attach import attached
from ringup.tools.command_line.card_argument import add_card_arguments, card_name
from ringup.tools.common.json_text import json_text


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "down",
        help="stop a card that was left running, and put it to sleep",
        description="End the work on a card that a process left, and put the card to sleep in D3hot. A "
        "card that its driver "
        "closed keeps its "
        "firmware for a quick start; one that was left running is reset as a whole. No firmware files are needed. A "
        "card that a process drives "
        "now is not touched: end that process.",
    )
    add_card_arguments(parser)
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--awake", action="store_true", help="leave it in D0")
    kind.add_argument("--off", action="store_true", help="also switch its slot off, if the enclosure can do that")


def run(args: argparse.Namespace) -> int:
    wanted = card_name(args)
    if nvidia.through_driver(wanted):
        nvidia.stop(wanted)
    with attached(wanted, change=True) as found:
        device = found.card.device
        name, done = device.name, found.card.rest(sleep=not args.awake)
        if args.off:
            if device.remote is None:
                raise NotSupported(
                    f"switching {name} off: only a slot in an enclosure can be switched off; the card is stopped, in "
                    f"{done.power}"
                )
            device.remote.power_off()
    if args.json:
        print(json_text({"name": name, **asdict(done), "slot": "off" if args.off else "on"}))
        return 0
    print(f"{name} was found {done.found}")
    for rung in done.rungs:
        print(f"  {rung}")
    print(f"{name} is stopped, in {done.power}" + (", its slot switched off" if args.off else ""))
    return 0
