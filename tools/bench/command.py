"""`ringup bench`: measure ringup beside its peers."""

from __future__ import annotations

import argparse
import tempfile
from importlib import import_module
from pathlib import Path

from ringup.autogen.structs import near
from ringup.tools.bench.bench import Bench, Measure
from ringup.tools.bench.environment import FOLDER, find_or_make, without
from ringup.tools.bench.figure import Figure, table
from ringup.tools.bench.timing import Interpreter
from ringup.tools.paths import add_source_arguments, cache_folder, sources_of
from ringup.tools.progress import Progress

BENCHES = {  # name: (module with `measure`, what it measures); the order they run in
    "import": ("ringup.tools.bench.imports", "importing ringup and each generated module"),
    "registers": ("ringup.tools.bench.registers", "opening a chip's register database, finding registers by name"),
    "fields": ("ringup.tools.bench.fields", "struct fields and bit-fields, beside ctypes, cffi and the peer"),
    "generate": ("ringup.tools.bench.generate", "generating facts from header packages"),
    "shader": ("ringup.tools.bench.shader", "kernels on the virtual shader cores"),
    "memory": ("ringup.tools.bench.memory", "ranges of a Radeon's memory, its page tables"),
}
EPILOG = (
    "A ratio above 1 means ours is better, whichever direction is better for the figure. Figures are medians; times of import and look-up are "
    "wall clock, generation and loops are CPU time. The peer (tinygrad, from the package registry) gets an environment of its own in the cache "
    "folder, made on the first run, which downloads it: with --no-peer the network is not used. Without the peer its column is empty and a line "
    "on standard error says why."
)


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "bench",
        help="measure ringup beside its peers",
        description="Run the benches named, or all of them, ours and the peer's side by side. The first run downloads the peer.",
        epilog=EPILOG,
    )
    parser.add_argument("bench", nargs="*", type=_bench_name, metavar="NAME", help=f"one of {', '.join(BENCHES)}")
    parser.add_argument("--list", action="store_true", help="list the benches and end")
    parser.add_argument("--json", action="store_true", help="print one object per figure, one per line")
    parser.add_argument("--quick", action="store_true", help="leave out what takes the peer more than a minute")
    parser.add_argument("--no-peer", action="store_true", help="measure ringup alone; uses no network")
    add_source_arguments(parser)


def run(args: argparse.Namespace) -> int:
    if args.list:
        width = max(map(len, BENCHES))
        print("\n".join(f"{name:{width}}  {text}" for name, (_, text) in BENCHES.items()))
        return 0
    sources = sources_of(args)
    peer = without("--no-peer") if args.no_peer else find_or_make((args.cache or cache_folder()) / FOLDER)
    names = list(dict.fromkeys(args.bench)) or list(BENCHES)
    with tempfile.TemporaryDirectory(prefix="ringup-bench-") as bytecode, Progress("bench", len(names)) as progress:
        bench = Bench(sources, peer, Interpreter(Path(bytecode)), args.quick, progress.say, args.manifest)
        for name in names:
            measure: Measure = import_module(BENCHES[name][0]).measure
            show(name, list(measure(bench)), as_json=args.json)
            progress.advance()
    return 0


def show(name: str, figures: list[Figure], *, as_json: bool) -> None:
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
