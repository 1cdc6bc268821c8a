"""`ringup bench`: compare ringup with tinygrad."""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path

from ringup.autogen.structs import near
from ringup.errors import NoSuchCard, NotSupported
from ringup.silicon import transport
from ringup.tools.bench.bench import Bench, Measure
from ringup.tools.bench.figure import Figure, table
from ringup.tools.bench.on_card import VIRTUAL, is_virtual
from ringup.tools.bench.page import Section, page
from ringup.tools.bench.plot import Plot
from ringup.tools.bench.timing import Interpreter
from ringup.tools.command_line.card_argument import card_name
from ringup.tools.common import files
from ringup.tools.common.json_text import json_text
from ringup.tools.common.paths import add_firmware_argument, add_source_arguments, cache_folder, sources_of
from ringup.tools.common.progress import Progress
from ringup.tools.competitor.environment import FOLDER, find_or_make, without

BENCHES = {  # name: (module with `measure`, what it measures); the order they run in
    "import": ("ringup.tools.bench.benches.imports", "importing ringup and each generated module"),
    "registers": (
        "ringup.tools.bench.benches.registers",
        "opening a chip's register database, finding registers by name",
    ),
    "fields": (
        "ringup.tools.bench.benches.fields",
        "struct fields and bit-fields, compared with ctypes, cffi and tinygrad",
    ),
    "generate": ("ringup.tools.bench.benches.generate", "generating facts from header packages"),
    "shader": ("ringup.tools.bench.benches.shader", "kernels on the virtual shader cores"),
    "sm": ("ringup.tools.bench.benches.sm", "programs on the virtual shader cores of NVIDIA's chips"),
    "queues": ("ringup.tools.bench.benches.queues", "building and submitting work, over plain memory"),
    "nvidia-queues": (
        "ringup.tools.bench.benches.nvidia_queues",
        "building and submitting work of an NVIDIA card, over plain memory",
    ),
    "nvidia-descriptor": (
        "ringup.tools.bench.benches.nvidia_descriptor",
        "launch descriptors of NVIDIA's cards: fields, whole descriptors",
    ),
    "latency": (
        "ringup.tools.bench.benches.latency",
        "small work on a card: time from doorbell to signal, rate",
    ),
    "kfd": ("ringup.tools.bench.benches.kfd", "launches on a card that stays with amdgpu, through /dev/kfd"),
    "transfers": ("ringup.tools.bench.benches.transfers", "copies and fills on a card by size and direction"),
    "bringup": ("ringup.tools.bench.benches.bringup", "starts of a card by stage, imports, register accesses"),
    "nvidia-bringup": (
        "ringup.tools.bench.benches.nvidia_bringup",
        "starts of an NVIDIA card: behind a modelled kernel driver, and bare",
    ),
    "usb": (
        "ringup.tools.bench.benches.usb",
        "a card behind a USB bridge: transfers, waits, starts and copies at three speeds",
    ),
    "compile": ("ringup.tools.bench.benches.compile", "compiling graphs of tensors, the first time in a process"),
    "schedule": ("ringup.tools.bench.benches.schedule", "kernels of a graph of tensors and the bytes they move"),
    "code": ("ringup.tools.bench.benches.code", "compiled kernels compared with LLVM's for the same program"),
    "memory": ("ringup.tools.bench.benches.memory", "ranges of a Radeon's memory, its page tables"),
}
ON_CARD = {"latency", "kfd", "transfers", "bringup", "usb"}
KINDS = {  # the cards that a bench measures, if not every card
    "kfd": "cards that stay with amdgpu, such as kfd:0",
    "usb": "cards behind a USB bridge, such as usb:2-1, and virtual ones",
    "bringup": "cards in a slot, real or virtual, and real ones behind a bridge",
}
CARD, KFD = "virtual:navi31", "kfd:"
EPILOG = (
    "A ratio above 1 means ours is better, whichever direction is better for the figure. Figures are medians; times "
    "of import and look-up are "
    "wall clock, generation and loops are CPU time; what runs on a card is timed by the wall clock and by the card's. "
    "tinygrad, the competitor, comes from the package registry and gets an environment of its own in the cache "
    "folder, made on the first run, which downloads it: with --no-peer the network is not used. Without tinygrad its "
    "column is empty and a line "
    "on standard error says why. Compiled code is compared with LLVM's, which needs no network."
)


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "bench",
        help="compare ringup with tinygrad",
        description="Run the benches named, or all of them, with tinygrad in the same run. The first run "
        "downloads tinygrad.",
        epilog=EPILOG,
    )
    parser.add_argument("bench", nargs="*", type=_bench_name, metavar="NAME", help=f"one of {', '.join(BENCHES)}")
    parser.add_argument("--list", action="store_true", help="list the benches and end")
    parser.add_argument(
        "--card",
        default=CARD,
        metavar="NAME",
        help=f"the card that latency, kfd, transfers, bringup and usb run on (default: {CARD})",
    )
    add_firmware_argument(parser)
    parser.add_argument(
        "--html", type=Path, metavar="FILE", help="write tables and plots to a page that needs no network"
    )
    parser.add_argument(
        "--json", action="store_true", help="print one object per figure, one per line; with --list, one list"
    )
    parser.add_argument("--quick", action="store_true", help="leave out what takes tinygrad more than a minute")
    parser.add_argument("--no-peer", action="store_true", help="measure ringup alone; uses no network")
    add_source_arguments(parser)


def run(args: argparse.Namespace) -> int:
    if args.list:
        if args.json:
            print(json_text([{"name": name, "measures": text} for name, (_, text) in BENCHES.items()], indent=1))
            return 0
        width = max(map(len, BENCHES))
        print("\n".join(f"{name:{width}}  {text}" for name, (_, text) in BENCHES.items()))
        return 0
    files.check_outputs(args.html)
    names = list(dict.fromkeys(args.bench)) or list(BENCHES)
    check_card(args.card, names)
    sources = sources_of(args)
    peer = without("--no-peer") if args.no_peer else find_or_make((args.cache or cache_folder()) / FOLDER)
    with tempfile.TemporaryDirectory(prefix="ringup-bench-") as bytecode, Progress("bench", len(names)) as progress:
        bench = Bench(
            sources,
            peer,
            Interpreter(Path(bytecode)),
            args.quick,
            progress.say,
            args.manifest,
            args.card,
            tuple(args.firmware),
        )
        sections = []
        for name in names:
            if not measures(name, args.card):
                peer.say(f"no figure of {name}: it measures {KINDS[name]}; {args.card} is none")
                progress.advance()
                continue
            measure: Measure = import_module(BENCHES[name][0]).measure
            section = _section(name, measure(bench))
            show(name, section.figures, as_json=args.json)
            sections.append(section)
            # after each bench, so that an error of a later one loses nothing
            if args.html is not None:
                files.write(args.html, page("ringup bench", _about(args.card), sections))
            progress.advance()
    return 0


def check_card(card: str, names: Sequence[str]) -> None:
    """Raise `NoSuchCard` for an unknown card, `NotSupported` if the only bench measures cards of another kind."""
    if not ON_CARD.intersection(names):
        return
    card_name(argparse.Namespace(card_option=card))
    if is_virtual(card) and card not in (known := dict.fromkeys(found.name for found in transport.find())):
        raise NoSuchCard(f"there is no {card}{near(card, known)}; `ringup list` shows the virtual cards")
    if len(names) == 1 and not measures(names[0], card):
        raise NotSupported(f"bench {names[0]} measures {KINDS[names[0]]}; {card} is none")


def measures(name: str, card: str) -> bool:
    """Return whether a bench measures cards of that kind."""
    if name == "usb":
        return card.startswith((VIRTUAL, "usb:"))
    if name == "kfd":
        return card.startswith(KFD)
    return name != "bringup" or not (is_virtual(card) and "@" in card)


def _section(name: str, found: Iterable[Figure | Plot]) -> Section:
    figures: list[Figure] = []
    plots: list[Plot] = []
    for one in found:
        if isinstance(one, Figure):
            figures.append(one)
        else:
            plots.append(one)
    return Section(name, BENCHES[name][1], figures, plots)


def _about(card: str) -> str:
    computer = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    return f"{computer}; card: {card}. A ratio above 1 means ringup is better."


def show(name: str, figures: Sequence[Figure], *, as_json: bool) -> None:
    """Print the figures of one bench."""
    if as_json:
        print("\n".join(figure.as_json() for figure in figures), flush=True)
    else:
        print(f"{name}: {BENCHES[name][1]}\n{table(figures)}\n", flush=True)


def _bench_name(text: str) -> str:
    if text not in BENCHES:
        raise argparse.ArgumentTypeError(
            f"there is no bench {text}{near(text, BENCHES)}; the benches are {', '.join(BENCHES)}"
        )
    return text
