"""`ringup report`: a post-mortem of a card that was left, or that another process drives. The card is not started."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import ringup
from ringup.errors import DeviceLost
from ringup.tools.cards import nvidia
from ringup.tools.cards.attach import attached
from ringup.tools.command_line.card_argument import add_card_arguments, card_name
from ringup.tools.common import files
from ringup.tools.common.html_page import page
from ringup.tools.common.json_text import json_text

TITLES = {  # keys of a report with their headings on a page, in order
    "mistakes": "Mistakes that fail on a real card",
    "unfinished": "What has stopped or waits",
    "errors_so_far": "Errors so far",
    "rungs": "Resets",
    "faults": "Faults",
    "queues": "Queues",
    "waves": "Waves",
    "interrupts": "Last interrupts",
    "memory": "Memory",
    "channels": "Channels",
    "holders": "Most memory is held by",
    "metrics": "Metrics that its holder read last",
    "mark": "Mark of its driver",
    "versions": "Blocks",
    "stages": "Stages of its bring-up",
    "silent": "Processors that do not answer",
    "doubts": "Silent, or of another version than the driver was written for",
    "unknown": "Not known",
}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "report",
        help="report what went wrong on a card that was left, or that another process drives",
        description="Report the state of a card: its holder, what runs on it, faults, queues, waves, "
        "registers without side "
        "effects, metrics. "
        "Nothing is started and nothing is reset, so it can be used on a card that hangs. With --up the card is "
        "started and reports "
        "itself.",
    )
    add_card_arguments(parser, firmware=True)
    parser.add_argument("--html", type=Path, metavar="FILE", help="also write an HTML page")
    parser.add_argument("--up", action="store_true", help="start the card first; the report includes the start")


def run(args: argparse.Namespace) -> int:
    name = card_name(args)
    files.check_outputs(args.html)
    if args.up:
        with ringup.open(name, firmware=args.firmware) as card:
            report: Any = card.report()
    elif nvidia.through_driver(name):
        with nvidia.look(name) as watch:
            report = nvidia.LookReport(watch)
    else:
        with attached(name) as found:
            report = found.card.examine(found.holder)
    shown = report.as_dict()
    if args.html:
        lines = str(report).splitlines()
        text = page(f"Report of {name}", lines[0].partition(": ")[2], sections(shown))
        files.write(args.html, text)
    if args.json:
        print(json_text(shown))
    else:
        print(report)
        if args.html:
            print(f"written to {args.html}")
    lost = shown.get("lost") or (shown.get("unreachable") and shown.get("cause", "").removeprefix("DeviceLost: "))
    # what is known was printed; the exit status says that the card is gone
    if lost:
        error = DeviceLost(lost)
        error.in_result = True
        raise error
    return 0


def sections(shown: dict[str, Any]) -> dict[str, Any]:
    """Return the parts of a report by their headings on a page; registers are grouped by block."""
    facts = {key: value for key, value in shown.items() if isinstance(value, str) and value}
    parts = {title: shown[key] for key, title in TITLES.items() if shown.get(key)}
    registers = {f"Registers: {block}": words for block, words in shown.get("registers", {}).items()}
    return {"The card": facts, **parts, **registers}
