"""`ringup tune`: search the best shapes for the kernels of a Python file. `compile` and `explain` use the results
afterwards.

Each shape is compiled and measured: on a card with --card, else by the model of the chip, which is a guess. The
kernels' results do not change.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import ringup
from ringup.compiler.runtime.measure import CardMeasure
from ringup.compiler.tune import Measure, ModelMeasure, Tuned, jobs_of, tune_graph
from ringup.compiler.tuning import Tuning, could_be
from ringup.errors import WrongTarget
from ringup.tools.code import graph_file
from ringup.tools.command_line.card_argument import VIRTUAL
from ringup.tools.common.json_text import json_text
from ringup.tools.common.paths import cache_folder
from ringup.tools.common.progress import Progress
from ringup.tools.common.table import Column, show
from ringup.tools.common.wrong_usage import WrongUsage


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """Add the command to `ringup`'s parser."""
    parser = subparsers.add_parser("tune", help="search the fastest shapes of kernels", description=__doc__)
    graph_file.add_arguments(parser, tuned=False)
    parser.add_argument(
        "--card", metavar="NAME", help="measure on this card, with its name in `ringup list`; it must have the target"
    )
    parser.add_argument("--again", action="store_true", help="also measure shapes that are known already")
    parser.add_argument("--json", action="store_true", help="for programs: one JSON document with every trial")
    parser.set_defaults(run=run)
    return parser


def run(args: argparse.Namespace) -> int:
    """Tune and show the results. Raises `CompileError` for errors in the file, `WrongTarget` for a card of another
    target.
    """
    path: Path = args.tuning or cache_folder() / graph_file.TUNING_FILE
    if args.tuning is not None and not could_be(path):
        raise WrongUsage(f"{path} is not a tuning file and would be overwritten; name another file")
    outputs = graph_file.outputs_of(args.file)
    tuning = Tuning(path)
    with Progress("compiling", len(jobs_of(outputs))) as progress:
        if args.card is None:
            measure: Measure = ModelMeasure()
            found = tune_graph(
                outputs, tuning, args.target, measure=measure, again=args.again, say=progress.say, done=progress.advance
            )
        else:
            with ringup.open(args.card) as card:
                if card.info.target != args.target:
                    raise WrongTarget(
                        f"{args.card} is a {card.info.target}; give --target {card.info.target}, not {args.target}"
                    )
                measure = CardMeasure(card, judge="virtual" if args.card.startswith(VIRTUAL) else "card")
                found = tune_graph(
                    outputs,
                    tuning,
                    args.target,
                    measure=measure,
                    again=args.again,
                    say=progress.say,
                    done=progress.advance,
                )
    if args.json:
        print(json_text([_document(one, measure) for one in found], indent=1))
        return 0
    show(COLUMNS, [_row(one) for one in found])
    first = sum(one.trials[0].cost or 0.0 for one in found)
    best = sum(one.trials[one.best].cost or 0.0 for one in found)
    where = f"on {args.card}" if args.card else f"by the model of {args.target}"
    print(f"{first:.6g} {measure.unit} in heuristic shapes, {best:.6g} in the best, {where}; stored in {path}")
    return 0


COLUMNS = (
    Column("kernel"),
    Column("tried", "right"),
    Column("heuristic", "right"),
    Column("best", "right"),
    Column("gain", "right"),
    Column("shape"),
)


def _row(one: Tuned) -> tuple[str, ...]:
    first, best = one.trials[0], one.trials[one.best]
    tried = "known" if one.known else str(sum(trial.cost is not None for trial in one.trials))
    return one.name, tried, f"{first.cost:.6g}", f"{best.cost:.6g}", f"{one.gain:.2f}", best.choice


def _document(one: Tuned, measure: Measure) -> dict[str, object]:
    return {
        "kernel": one.name,
        "judge": measure.judge,
        "unit": measure.unit,
        "known": one.known,
        "best": one.trials[one.best].choice,
        "gain": one.gain,
        "trials": [trial._asdict() for trial in one.trials],
    }
