"""`ringup reset`: reset a whole card that no process drives, mildest reset first."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from ringup.drivers.amd.lifecycle import shutdown
from ringup.drivers.amd.lifecycle.recovery import WHOLE
from ringup.tools.cards.attach import attached
from ringup.tools.command_line.card_argument import add_card_arguments, card_name
from ringup.tools.common.json_text import json_text
from ringup.tools.common.wrong_usage import WrongUsage


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "reset",
        help="reset a whole card, mildest reset first",
        description="Reset a whole card until a reset is verified: by its power controller (mode1), then from the bus "
        "(function, slot), "
        "as far as the path to the card supports them. All of its memory is lost; it is cold afterwards. Queues of a "
        "card that a process drives "
        "are reset by that process.",
    )
    add_card_arguments(parser)
    parser.add_argument(
        "--first",
        choices=tuple(WHOLE),
        help="begin with this one (default: mode1 if the power controller runs)",
    )


def run(args: argparse.Namespace) -> int:
    with attached(card_name(args), change=True) as found:
        name, offered = found.bare.device.name, shutdown.offered(found.bare.device)
        if args.first and args.first not in offered:
            raise WrongUsage(f"{name} has no reset {args.first}; over this path it has {', '.join(offered)}")
        rungs = shutdown.reset(found.bare, args.first)
        state = found.bare.state()
    if args.json:
        print(json_text({"name": name, "rungs": [asdict(rung) for rung in rungs], "state": state}))
        return 0
    for rung in rungs:
        print(rung)
    print(f"{name} is {state}")
    return 0
