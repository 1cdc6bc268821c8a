"""The arguments of every bench, and the list of benches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ringup.autogen.generate.manifest import MANIFEST
from ringup.autogen.generate.sources import Sources
from ringup.tools.bench.figure import Figure
from ringup.tools.bench.plot import Plot
from ringup.tools.bench.timing import Interpreter
from ringup.tools.competitor.environment import Peer


@dataclass(frozen=True)
class Bench:
    """The arguments of one run."""

    sources: Sources  # header packages, the same files for both
    peer: Peer
    fresh: Interpreter
    quick: bool  # leave out what takes tinygrad more than a minute
    say: Callable[[str], None]  # progress
    manifest: Path = MANIFEST  # the file that `sources` was made from
    card: str = "virtual:navi31"  # the card of benches that use one
    firmware: tuple[Path, ...] = ()  # comes before the system's firmware


Measure = Callable[[Bench], Iterator[Figure | Plot]]
