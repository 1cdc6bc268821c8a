"""`ringup up`: bring a card up, let its queues prove themselves, say what it is, put it to rest again."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import Any

import ringup
from ringup.errors import DeviceFault
from ringup.tools.card_argument import add_card_arguments, card_name
from ringup.tools.stages import StageView, stage_rows
from ringup.tools.usb_side import counts_of, plain

TEST_BYTES = 1 << 20


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "up",
        help="bring a card up, test its queues and say what it is",
        description="Bring a card up stage by stage, move a MiB through its queues and back, say what it is, and put it to rest.",
    )
    add_card_arguments(parser, firmware=True)


def run(args: argparse.Namespace) -> int:
    name = card_name(args)
    with ringup.open(name, firmware=args.firmware, watch=StageView()) as card:
        came_up = counts_of(card.device)
        moved = move(card)
        worked = counts_of(card.device)
        info, stages = asdict(card.info), stage_rows(card.stages)
    usb = {"bring_up": came_up, "test": worked.since(came_up)} if came_up and worked else {}
    if args.json:
        counted = {"usb": {name: plain(counts) for name, counts in usb.items()}} if usb else {}
        print(json.dumps({"card": info, "stages": stages, "moved_bytes": moved} | counted))
        return 0
    milliseconds = sum(row["ms"] for row in stages)
    print(
        f"{name} is up: {info['chip']} ({info['pci_id']}), {info['vram_bytes'] >> 20} MiB, "
        f"{info['compute_units']} compute units, {info['target']}"
    )
    print(f"it was {info['found']}; {len(stages)} stages took {milliseconds:.0f} ms")
    for rung in info["resets"]:
        print(f"  {rung}")
    for what, counts in usb.items():
        print(f"  over USB, {what.replace('_', '-')}: {counts}")
    print(f"{moved >> 10} KiB went through both kinds of queue and came back unchanged")
    return 0


def move(card: Any) -> int:
    """Send bytes in by the copy queue, on by the compute queue, out by the copy queue; return how many. Raises `DeviceFault` for other bytes."""
    data = bytes(range(256)) * (TEST_BYTES // 256)
    with card.alloc(TEST_BYTES, name="sent") as sent, card.alloc(TEST_BYTES, name="passed on") as passed:
        stream = card.compute.stream()
        stream.wait_for(card.copy.upload(sent, data))
        stream.append(stream.pm4.copy_memory(passed.gpu_va, sent.gpu_va, TEST_BYTES))
        card.copy.wait_for(card.compute.submit(stream))
        if card.copy.download(passed) != data:
            raise DeviceFault(
                f"{card.name}: what came back through the queues is not what was sent; the card's memory or link is bad"
            )
    return TEST_BYTES
