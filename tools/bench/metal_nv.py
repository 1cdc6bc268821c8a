"""Check a real card through NVIDIA's kernel driver: `python -m ringup.tools.bench.metal_nv --card nvidia:0`.

One run of at most ten minutes. Every step has a budget and every wait an end. It sets nothing (no clocks, power limits,
modes), resets no card, loads no module, and refuses to run while another process computes. The report has one step a
line; what identifies the card or the machine is masked before it is kept.
"""

from __future__ import annotations

import argparse
import faulthandler
import platform
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from ringup import __version__
from ringup.cards import connect
from ringup.tools.bench.metal import buffers, channels, client, compute, copies, faults, golden, machine, refusals
from ringup.tools.bench.metal.host import Host
from ringup.tools.bench.metal.masks import Masks
from ringup.tools.bench.metal.steps import LAST_S, LEFT_OUT, LeftOut, Report, Run, Stage, StepRow, printed
from ringup.tools.bench.metal.work import FULL, SMALL, Work
from ringup.tools.bench.on_card import is_virtual

LIMIT_S, MAX_LIMIT_S = 540.0, 600.0
CARD = "virtual:ga102@nvidia"


def _left_out(why: str, work: Work) -> dict[str, Any]:
    raise LeftOut(why)


def _not_here(number: int, name: str, why: str) -> Stage:
    return Stage(number, name, (StepRow(name, 1, partial(_left_out, why)),))


STAGES = (
    machine.STAGE,
    golden.STAGE,
    client.CLIENT,
    client.UNIFIED,
    buffers.STAGE,
    channels.STAGE,
    copies.STAGE,
    compute.STAGE,
    faults.CLOSE,
    _not_here(
        8,
        "instructions one by one",
        "this check has no reference for single instructions",
    ),
    refusals.STAGE,
    _not_here(10, "video", "there is no queue of the video engine yet"),
    faults.FAULT,
    faults.LEFT_OVER,
)


def run(work: Work, report: Report, limit_s: float = LIMIT_S, stages: Sequence[Stage] = STAGES) -> int:
    """Run the stages and write the report; return the exit status."""
    try:
        return Run(work, report, limit_s).through(stages)
    finally:
        report.write()
        told = report.summary()
        first = f"; first: {told['first_failure'].splitlines()[0]}" if told["first_failure"] else ""
        report.say(
            f"{told['ok']} ok, {told['failed']} failed, {told[LEFT_OUT]} left out, {told['took_s']:.1f} s{first}"
        )


@contextmanager
def _watched(limit_s: float) -> Iterator[None]:
    """End the process if it hangs in a system call for so long; the kernel's driver then frees all that it had."""
    faulthandler.dump_traceback_later(limit_s, exit=True, file=sys.__stderr__ or sys.stderr)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def made(
    card: str, out: Path | None, *, small: bool, say: Callable[[str], None], host: Host | None = None
) -> tuple[Work, Report]:
    """Return what a run on a card needs."""
    masks = Masks(socket.gethostname(), platform.node())
    host = host or Host(tools=not is_virtual(card))
    kept = None if out is None else out.with_suffix("")
    work = Work(card, partial(connect, card), host, SMALL if small else FULL, masks, kept)
    about = {"card": card, "ringup": __version__, "small": small}
    return work, Report(out, masks, about, say=say)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command's arguments."""
    made = argparse.ArgumentParser(prog="python -m ringup.tools.bench.metal_nv", description=__doc__)
    made.add_argument("--card", default=CARD, help=f"nvidia:0, or a virtual card (default: {CARD})")
    made.add_argument(
        "--out", type=Path, default=Path("report.json"), help="the report; other files are kept beside it"
    )
    made.add_argument("--small", action="store_true", help="small sizes and few repetitions, as the tests take")
    made.add_argument("--limit", type=float, default=LIMIT_S, help=f"seconds for all (default: {LIMIT_S:g})")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Run the check; return 0 if nothing failed, otherwise the exit status of the first failure's error."""
    words = parser()
    args = words.parse_args(argv)
    if not 0 < args.limit <= MAX_LIMIT_S:
        words.error(f"--limit is more than 0 and at most {MAX_LIMIT_S:g} seconds, not {args.limit:g}")
    if not args.out.parent.is_dir():
        words.error(f"{args.out.parent} is no folder")
    work, report = made(args.card, args.out, small=args.small, say=printed)
    with _watched(args.limit + 2 * LAST_S):
        return run(work, report, args.limit)


if __name__ == "__main__":
    sys.exit(main())
