"""`ringup up`: start a card, test its queues, show what it is, and stop it again."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import ringup
from ringup.drivers.nv.verbs import AnyNvidia
from ringup.drivers.select import start
from ringup.drivers.stages import Stage, Stages, Watcher, patience_with
from ringup.drivers.transport.seam import Device, Driven
from ringup.errors import DeviceFault
from ringup.tools.command_line.card_argument import add_card_arguments, card_name
from ringup.tools.common import mistakes
from ringup.tools.common.json_text import json_text
from ringup.tools.common.stages import StageView, stage_rows
from ringup.tools.common.usb_side import counts_of, plain

# what vendors call a part of the card that runs groups, by whether it is NVIDIA's
UNITS = {False: "compute units", True: "SMs"}
TEST_BYTES, MIN_BYTES = 1 << 20, 4096
INLINE_BYTES = 1 << 16
TEST_US = 10_000_000  # TIMEOUT: ours; a MiB through a mapped window takes milliseconds


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "up",
        help="start a card, test its queues and show what it is",
        description="Start a card stage by stage, move a MiB through its queues and back (less if the path has no fast "
        "transfers), "
        "show what it is, and stop it.",
    )
    add_card_arguments(parser, firmware=True)
    parser.add_argument(
        "--force",
        action="store_true",
        help="drive a block of an unknown version as the nearest known one, with a warning",
    )


def run(args: argparse.Namespace) -> int:
    name = card_name(args)
    path = ringup.connect(name)
    opened = counts_of(path)
    options: dict[str, Any] = {"force": True} if args.force else {}
    with _start(path, args.firmware, opened is not None, options) as (card, view):
        came_up = counts_of(path)
        test = prove_queues(card, view)
        worked = counts_of(path)
        seen = mistakes.seen_by(card)
        nvidia = isinstance(card, AnyNvidia)
        info, stages = asdict(card.info), stage_rows([*card.stages, test.stage])
    usb = {}
    if opened and came_up and worked:
        usb = {"opening": opened, "bring_up": came_up.since(opened), "test": worked.since(came_up)}
        stages = [row | {"transfers": count} for row, count in zip(stages, view.counted, strict=True)]
    if args.json:
        counted = {"usb": {what: plain(counts) for what, counts in usb.items()}} if usb else {}
        wrong = {"mistakes": seen} if seen else {}
        print(json_text({"card": info, "stages": stages, "moved_bytes": test.moved_bytes} | counted | wrong))
        mistakes.refuse(name, seen)
        return 0
    milliseconds = sum(row["ms"] for row in stages)
    print(
        f"{name} is up: {info['chip']} ({info['pci_id']}), {info['vram_bytes'] >> 20} MiB, "
        f"{info['compute_units']} {UNITS[nvidia]}, {info['target']}"
    )
    print(f"it was {info['found']}; {len(stages)} stages took {milliseconds:.0f} ms")
    for rung in info.get("resets", ()):
        print(f"  {rung}")
    for doubt in info["doubts"]:
        print(f"  of another version than the driver was written for: {doubt}")
    for what, counts in usb.items():
        print(f"  over USB, {what.replace('_', '-')}: {counts}")
    print(f"{test.moved_bytes >> 10} KiB went through both kinds of queue and came back unchanged")
    mistakes.refuse(name, seen)
    return 0


@contextmanager
def _start(path: Any, firmware: list[Path], counts: bool, options: dict[str, Any]) -> Iterator[tuple[Any, StageView]]:
    """Start the card behind `path`. Yield it and the view of its stages, with transfers if the path counts them."""

    def transfers() -> int:
        seen = counts_of(path)
        return seen.transfers if seen else 0

    view = StageView(transfers if counts else None)
    driven = isinstance(path, (Device, Driven))
    with start(path, firmware=firmware, watch=view, **options) if driven else path as card:
        yield card, view


@dataclass(frozen=True, slots=True)
class QueueTest:
    """The result of the queue test."""

    stage: Stage
    moved_bytes: int


def prove_queues(card: Any, watch: Watcher) -> QueueTest:
    """Move bytes through both kinds of queue and back, as a stage of its own. Raises `DeviceFault` if bytes differ."""
    device, size_bytes = card.device, bytes_to_move(card.device)
    stages = Stages(card.name, device.clock, watch, patience=patience_with(device))
    with stages.stage(f"moving {size_bytes >> 10} KiB", TEST_US):
        _move(card, size_bytes)
    return QueueTest(stages.done[-1], size_bytes)


def bytes_to_move(device: Device) -> int:
    """Return the size of the test: a MiB, or the size of the path's own memory, or a page if bytes go in single
    requests.
    """
    if not device.polls_vram:
        return TEST_BYTES
    bulk = device.remote.bulk if device.remote else None
    if bulk is None:
        return MIN_BYTES
    return TEST_BYTES if len(bulk.windows) > 1 else min(TEST_BYTES, bulk.size_bytes)


def _move(card: Any, size_bytes: int) -> None:
    """Copy bytes in with the copy queue, on with the compute queue as far as it can, and out with the copy queue."""
    data = bytes(range(256)) * (size_bytes // 256)
    with card.alloc(size_bytes, name="sent") as sent, card.alloc(size_bytes, name="passed on") as passed:
        stream = card.compute.stream()
        stream.wait_for(card.copy.upload(sent, data))
        if isinstance(card, AnyNvidia):
            # a compute queue of NVIDIA's copies nothing without a kernel: it stores the first bytes, which travel in
            # its commands
            stream.wait_for(card.copy.copy_buffer(passed, sent))
            stream.upload(passed.gpu_va, data[:INLINE_BYTES])
        else:
            stream.append(stream.pm4.copy_memory(passed.gpu_va, sent.gpu_va, size_bytes))
        card.copy.wait_for(card.compute.submit(stream))
        if card.copy.download(passed) != data:
            raise DeviceFault(
                "the bytes that came back through the queues differ from those sent; the card's "
                "memory or link is faulty"
            )
