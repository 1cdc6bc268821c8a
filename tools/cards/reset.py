"""`ringup reset`: reset a whole card that no process drives, mildest reset first."""

from __future__ import annotations

import argparse
from dataclasses import asdict

import ringup
from ringup.drivers.amd.lifecycle.recovery import WHOLE
from ringup.drivers.nv.lifecycle.recovery import UNLOAD
from ringup.drivers.nv.nodes.card import NodesCard
from ringup.drivers.nv.nodes.watch import FOUND
from ringup.drivers.nv.verbs import CHANNEL_RUNG
from ringup.tools.cards import nvidia
from ringup.tools.cards.attach import attached
from ringup.tools.command_line.card_argument import add_card_arguments, card_name
from ringup.tools.common.json_text import json_text
from ringup.tools.common.wrong_usage import WrongUsage


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "reset",
        help="reset a whole card, mildest reset first",
        description="Reset a whole card until a reset is verified: by its power controller (mode1) or by "
        "ending GSP-RM (unload), then from the bus "
        "(function, slot), "
        "as far as the path to the card supports them. All of its memory is lost; it is cold afterwards. Queues of a "
        "card that a process drives "
        "are reset by that process. A card that stays with NVIDIA's driver gets new channels, which shows whether it "
        "still works.",
    )
    add_card_arguments(parser)
    parser.add_argument(
        "--first",
        choices=(*WHOLE, UNLOAD, CHANNEL_RUNG),
        help="begin with this one (default: mode1 or unload where firmware runs, else the bus; channel with NVIDIA's driver)",
    )


def run(args: argparse.Namespace) -> int:
    name = card_name(args)
    if nvidia.through_driver(name):
        return _channels(name, args)
    with attached(name, change=True) as found:
        name, offered = found.card.device.name, found.card.offered()
        if args.first and args.first not in offered:
            raise WrongUsage(f"{name} has no reset {args.first}; over this path it has {', '.join(offered)}")
        rungs = found.card.reset(args.first)
        state = found.card.state()
    if args.json:
        print(json_text({"name": name, "rungs": [asdict(rung) for rung in rungs], "state": state}))
        return 0
    for rung in rungs:
        print(rung)
    print(f"{name} is {state}")
    return 0


def _channels(name: str, args: argparse.Namespace) -> int:
    """Make new channels on a card that stays with NVIDIA's driver."""
    if args.first not in (None, CHANNEL_RUNG):
        raise WrongUsage(f"{name} has no reset {args.first}; through NVIDIA's driver it has {CHANNEL_RUNG}")
    with ringup.open(name, kind=NodesCard) as card:
        rungs, more = nvidia.reset(card, args.first)
    if args.json:
        print(json_text({"name": name, "rungs": [asdict(rung) for rung in rungs], "state": FOUND}))
        return 0
    for rung in rungs:
        print(rung)
    print(f"{name}: {more}")
    return 0
