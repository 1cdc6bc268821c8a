"""`ringup top`: a card's numbers, live: a screen that is redrawn on a terminal, one frame elsewhere."""

from __future__ import annotations

import argparse
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ringup.tools.cards.stats import looks, watched
from ringup.tools.command_line.card_argument import add_card_arguments, card_name
from ringup.tools.common import numbers
from ringup.tools.common.json_text import json_text

KEPT = 60  # samples of a curve
BARS, PLAIN_BARS = " ▁▂▃▄▅▆▇█", " .:-=+*#@"  # the latter for ASCII terminals
GAUGES = (  # title, metric, maximum (the name of another number, or a number), unit
    ("graphics", "gfx_busy_percent", 100, "%"),
    ("memory", "memory_busy_percent", 100, "%"),
    ("power", "power_w", "power_limit_w", "W"),
    ("hot spot", "hotspot_temperature_c", 110, "°C"),
    ("core clock", "gfx_clock_mhz", 3200, "MHz"),
    ("memory clock", "memory_clock_mhz", 1400, "MHz"),
    ("fan", "fan_percent", 100, "%"),
)
PLAIN_TOP_W = 400  # the top of the power gauge if no limit is known
WIDTH = 24


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "top",
        help="show what a card does, live",
        description="Show a card's load, power, temperature, clocks, memory and queues, redrawn until "
        "interrupted. One frame "
        "if standard output is not a terminal.",
    )
    add_card_arguments(parser, firmware=True, json="print one object for each sample")
    parser.add_argument(
        "--every", type=numbers.seconds, default=1.0, metavar="S", help="seconds between samples (default: %(default)s)"
    )
    parser.add_argument(
        "--count", type=looks, metavar="N", help="take N samples (default: until interrupted; one without a terminal)"
    )


def run(args: argparse.Namespace) -> int:
    console = Console(highlight=False)
    times = args.count or (None if console.is_terminal else 1)
    history: dict[str, deque[float]] = {}
    plain = console.options.ascii_only
    with watched(card_name(args), args.firmware) as (source, clock):

        def frames() -> Iterator[dict[str, Any]]:
            look = 0
            while True:
                yield source.stats().as_dict()
                look += 1
                if look == times:
                    return
                clock.sleep_us(args.every * 1_000_000)

        if args.json:
            for seen in frames():
                print(json_text(seen), flush=True)
        elif console.is_terminal:
            with Live(console=console, auto_refresh=False, screen=times is None) as live:
                for seen in frames():
                    live.update(frame(seen, history, ascii_only=plain), refresh=True)
        else:
            for seen in frames():
                console.print(frame(seen, history, ascii_only=plain))
    sys.stdout.flush()
    return 0


def frame(seen: dict[str, Any], history: dict[str, deque[float]], *, ascii_only: bool = False) -> RenderableType:
    """Draw one sample. `history` has the earlier numbers for the curves."""
    return Group(*_parts(seen, history, PLAIN_BARS if ascii_only else BARS))


def _parts(seen: dict[str, Any], history: dict[str, deque[float]], bars: str) -> Iterator[RenderableType]:
    # what a kernel's driver shows of its card
    if (sensors := seen.get("sensors")) is not None:
        yield Text(f"{seen['name']}, {sensors['link'] or 'link unknown'}", style="bold")
        table = Table.grid(padding=(0, 2))
        for name, value in sensors.items():
            if value not in (None, "") and name != "link":
                table.add_row(name, f"{value:g}" if isinstance(value, float) else str(value))
        yield table
        yield from _own(seen)
        return
    link = seen["link"]
    held = f", held by {seen['holder']}" if seen.get("holder") else ""
    yield Text(f"{seen['name']}{held}, PCIe generation {link['generation']} x{link['lanes']}", style="bold")
    metrics = seen.get("metrics")
    if metrics is None:
        yield Text("its holder has published no metrics yet; it does so while it waits for work", style="yellow")
        if seen.get("temperature_c") is not None:
            yield Text(f"{seen['temperature_c']} °C")
        return
    for doubt in seen.get("doubts") or ():
        yield Text(f"uncertain: {doubt}", style="yellow")
    yield _gauges(metrics, seen, history, bars)
    if throttled := metrics.get("throttled"):
        yield Text(f"throttled by: {', '.join(map(str, throttled))}", style="red")
    if seen.get("too_hot"):
        yield Text("too hot: its clocks are at their lowest", style="red")
    yield from _own(seen)


def _own(seen: dict[str, Any]) -> Iterator[RenderableType]:
    """Draw the memory and the queues of a card that this process drives."""
    if memory := seen.get("memory"):
        yield _memory(memory)
    if queues := seen.get("queues"):
        yield _queues(queues)


def _gauges(metrics: dict[str, Any], seen: dict[str, Any], history: dict[str, deque[float]], bars: str) -> Table:
    table = Table.grid(padding=(0, 2))
    for title, name, top, unit in GAUGES:
        value = metrics.get(name)
        if value is None:
            continue
        most = (seen.get(top) or PLAIN_TOP_W) if isinstance(top, str) else top
        kept = history.setdefault(name, deque(maxlen=KEPT))
        kept.append(value)
        share = min(1.0, value / most) if most else 0.0
        filled = round(share * WIDTH)
        colour = "red" if share > 0.9 else "yellow" if share > 0.7 else "green"
        bar = Text.assemble((bars[-1] * filled, colour), ("." * (WIDTH - filled), "dim"))
        table.add_row(title, bar, f"{value} {unit}", Text(curve(kept, most, bars), style="cyan"))
    return table


def curve(values: Iterable[float], most: float, bars: str = BARS) -> str:
    """Return a line of blocks, one for each value, with heights relative to `most`."""
    return "".join(bars[round(max(0.0, min(1.0, value / most)) * (len(bars) - 1))] for value in values) if most else ""


def _memory(memory: dict[str, dict[str, Any]]) -> Table:
    table = Table(box=None, header_style="bold")
    for title in ("memory", "used MiB", "peak MiB", "free MiB", "buffers"):
        table.add_column(title, justify="left" if title == "memory" else "right")
    for place, usage in memory.items():
        sizes = (usage["used_bytes"], usage["peak_bytes"], usage["free_bytes"])
        table.add_row(
            place, *("" if size is None else f"{size / (1 << 20):.1f}" for size in sizes), str(usage["buffers"])
        )
    return table


def _queues(queues: Iterable[dict[str, Any]]) -> Table:
    table = Table(box=None, header_style="bold")
    for title in ("queue", "done", "of", "state"):
        table.add_column(title, justify="left" if title in ("queue", "state") else "right")
    for queue in queues:
        busy = queue["completed"] < queue["submitted"]
        state = "working" if busy else "idle"
        table.add_row(
            queue["name"], str(queue["completed"]), str(queue["submitted"]), state if queue["mapped"] else "not mapped"
        )
    return table
