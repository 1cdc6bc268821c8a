"""`ringup up`: bring a card up, let its queues prove themselves, say what it is, put it to rest again."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import ringup
from ringup.drivers.select import start
from ringup.drivers.transport.seam import Device
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
    path = ringup.connect(name)
    opened = counts_of(path)
    with _start(path, args.firmware, opened is not None) as (card, transfers):
        came_up = counts_of(path)
        moved = move(card)
        worked = counts_of(path)
        info, stages = asdict(card.info), stage_rows(card.stages)
    usb = {}
    if opened and came_up and worked:
        usb = {"opening": opened, "bring_up": came_up.since(opened), "test": worked.since(came_up)}
        stages = [row | {"transfers": count} for row, count in zip(stages, transfers, strict=True)]
    if args.json:
        counted = {"usb": {what: plain(counts) for what, counts in usb.items()}} if usb else {}
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


@contextmanager
def _start(path: Any, firmware: list[Path], counts: bool) -> Iterator[tuple[Any, list[int]]]:
    """Bring the card behind `path` up; give it, and how many transfers each stage took where the path counts them."""

    def transfers() -> int:
        seen = counts_of(path)
        return seen.transfers if seen else 0

    view = StageView(transfers if counts else None)
    with start(path, firmware=firmware, watch=view) if isinstance(path, Device) else path as card:
        yield card, view.counted


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
