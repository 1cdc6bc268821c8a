"""`ringup trace`: record a run for ui.perfetto.dev, or all of its accesses as a transcript; show a transcript."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import ringup
from ringup.drivers.select import start
from ringup.drivers.transport.recording import transcript
from ringup.drivers.transport.recording.record import Recorder
from ringup.drivers.transport.recording.transcript import WINDOW_NAMES, Info, Op, Row
from ringup.drivers.transport.seam import Device
from ringup.errors import NotSupported, RingupError, TransportError
from ringup.tools.cards import access_log
from ringup.tools.cards.run import add_work_arguments, carry_out, read_work
from ringup.tools.cards.up import prove_queues
from ringup.tools.command_line.card_argument import add_card_arguments, card_name, is_card
from ringup.tools.common import files
from ringup.tools.common.json_text import json_text
from ringup.tools.common.numbers import whole
from ringup.tools.common.stages import StageView, stage_rows
from ringup.tools.common.wrong_usage import WrongUsage

ROWS = 40  # rows in text output


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "trace",
        help="record a run for ui.perfetto.dev, or all of its accesses; show a recording",
        description="Start a card, run a kernel of a code object (without one: the queue test of `ringup "
        "up`) and record it: a timeline "
        "for ui.perfetto.dev, or every access to the card with its answer, which the card replay:FILE replays for the "
        "same command. "
        "A transcript contains all data that the driver wrote, including vendor firmware. With --decode, show a "
        "transcript; no card is touched.",
    )
    add_work_arguments(parser, nargs="*")
    add_card_arguments(parser, positional=False, firmware=True)
    parser.add_argument("--perfetto", type=Path, metavar="FILE", help="write a timeline")
    parser.add_argument(
        "--transcript",
        type=Path,
        metavar="FILE",
        help="write every access; slow, also behind a USB bridge, because bytes go in single requests then",
    )
    parser.add_argument(
        "--decode", type=Path, metavar="FILE", help="show a transcript, or the log of `ringup serve --log`"
    )
    parser.add_argument(
        "--rows",
        type=_count,
        default=ROWS,
        metavar="N",
        help="of a transcript: number of rows to show, 0 for all (default: %(default)s)",
    )
    parser.add_argument("--skip", type=_count, default=0, metavar="N", help="of a transcript: number of rows to skip")
    parser.add_argument(
        "--window",
        metavar="NAME",
        help="of a transcript: only accesses to bar0, bar2, bar5, config or rom; of a log: only this block",
    )


def _count(text: str) -> int:
    count = whole(text)
    if count < 0:
        raise argparse.ArgumentTypeError(f"a number of rows is 0 or more, not {text}")
    return count


def run(args: argparse.Namespace) -> int:
    if args.decode:
        if args.words or args.card_option or args.perfetto or args.transcript:
            raise WrongUsage("--decode shows a file and runs nothing")
        return _decode(args)
    if args.perfetto and args.transcript and args.perfetto.resolve() == args.transcript.resolve():
        raise WrongUsage("--perfetto and --transcript name the same file: name two files")
    if not (args.perfetto or args.transcript):
        raise WrongUsage("name an output: --perfetto FILE, --transcript FILE or both; or use --decode FILE to show one")
    files.check_outputs(args.perfetto, args.transcript)
    args.card, work = None, None
    if len(args.words) == 1 and is_card(args.words[0]):
        args.card = args.words[0]
    elif args.words:
        args.card, work = read_work(args)
    view = StageView()
    with _whole_or_none(args.transcript), _open(card_name(args), args, view) as card, card.profile() as profile:
        tests = [] if work else [prove_queues(card, view)]
        results = carry_out(card, work) if work else []
    figures = {
        "card": card.name,
        "stages": stage_rows([*card.stages, *(test.stage for test in tests)]),
        "spans": [{"name": span.name, "us": round(profile.duration_us(span), 2)} for span in profile.spans()],
        "moved_bytes": sum(test.moved_bytes for test in tests),
        "results": results,
        "files": [],
    }
    if args.perfetto:
        with files.writing(args.perfetto) as draft:
            profile.save(draft)
    figures["files"] = [str(path) for path in (args.perfetto, args.transcript) if path]
    if args.json:
        print(json_text(figures))
        return 0
    print(f"{card.name}: {len(figures['stages'])} stages, {len(figures['spans'])} commands of queues were recorded")
    if args.perfetto:
        print(f"  {args.perfetto}: open it in ui.perfetto.dev")
    if args.transcript:
        print(
            f"  {args.transcript}: `ringup trace --decode {args.transcript}` shows it, replay:{args.transcript} "
            "replays it for the same command"
        )
    return 0


@contextmanager
def _whole_or_none(path: Path | None) -> Iterator[None]:
    """Remove the transcript of a failed run, unless the card failed: then its accesses up to the failure are complete
    and useful.
    """
    before = _written(path)
    try:
        yield
    except BaseException as error:
        if path and _written(path) != before:
            if isinstance(error, RingupError) and not isinstance(error, NotSupported):
                print(f"{path} has the accesses up to the failure", file=sys.stderr)
            else:
                path.unlink()
        raise


def _written(path: Path | None) -> tuple[int, int] | None:
    """Return values that change when a file is written."""
    if path is None or not path.is_file():
        return None
    stat = path.stat()
    return stat.st_ino, stat.st_mtime_ns


def _open(name: str, args: argparse.Namespace, view: StageView) -> Any:
    """Start the card, with a recorder between it and its driver if a transcript is wanted."""
    options: dict[str, Any] = {"firmware": args.firmware, "watch": view}
    if not args.transcript:
        return ringup.open(name, **options)
    path = ringup.connect(name)
    if not isinstance(path, Device):
        path.close()
        raise NotSupported(f"{name} is driven by its kernel driver: there are no accesses to record")
    try:
        recorder = Recorder(path, args.transcript)
    except BaseException:
        path.close()
        raise
    return start(recorder, **options)


def _decode(args: argparse.Namespace) -> int:
    try:
        log = access_log.read(args.decode) if access_log.is_log(args.decode) else None
        if log is None:
            with args.decode.open("rb") as stream:
                info, rows = transcript.read(stream, str(args.decode))
    except OSError as error:
        raise TransportError(f"transcript {args.decode} cannot be read ({error.strerror}); check its path") from error
    if log is not None:
        return _decode_log(args, *log)
    chosen = [(number, row) for number, row in enumerate(rows) if not args.window or _window(row) == args.window]
    if args.window and not chosen:
        known = ", ".join(sorted({_window(row) for row in rows} - {""}))
        raise WrongUsage(f"{args.decode} has no access to {args.window}; it has {known}")
    last = args.skip + args.rows if args.rows else None
    shown = chosen[args.skip : last]
    if args.json:
        print(json_text(_document(info, rows, shown)))
        return 0
    print(f"{args.decode}: {info.name}, {len(rows)} rows")
    for op, count in Counter(row.op for row in rows).most_common():
        print(f"  {op.name.lower():12} {count}")
    for line in _lines(shown):
        print(line)
    rest = len(chosen) - args.skip - len(shown)
    if rest > 0:
        print(f"... and {rest} more: --rows, --skip, --window")
    return 0


def _decode_log(args: argparse.Namespace, entries: list[access_log.Entry], remarks: list[str]) -> int:
    """Show the log of a served card; its windows are the blocks of the chip."""
    chosen = [(number, entry) for number, entry in enumerate(entries) if args.window in (None, entry.block)]
    if args.window and not chosen:
        raise WrongUsage(
            f"{args.decode} has nothing of {args.window}; it has "
            f"{', '.join(sorted({entry.block for entry in entries}))}"
        )
    last = args.skip + args.rows if args.rows else None
    shown = chosen[args.skip : last]
    counts = Counter[str]()
    for entry in entries:
        counts[entry.kind] += entry.count
    if args.json:
        rows = [{"row": number, **asdict(entry)} for number, entry in shown]
        print(json_text({"remarks": remarks, "rows": len(entries), "counts": dict(counts), "shown": rows}))
        return 0
    print(f"{args.decode}: {'; '.join(remarks[:4])}{', ...' * (len(remarks) > 4)}; {len(entries)} rows")
    for kind, count in counts.most_common():
        print(f"  {kind:12} {count}")
    for number, entry in shown:
        print(f"{number:8}  {entry}")
    rest = len(chosen) - args.skip - len(shown)
    if rest > 0:
        print(f"... and {rest} more: --rows, --skip, --window")
    return 0


def _window(row: Row) -> str:
    return WINDOW_NAMES.get(row.window, f"bar{row.window}")


def _lines(rows: list[tuple[int, Row]]) -> Iterator[str]:
    for number, row in rows:
        answer = f" -> {row.result:#x}" if row.op in (Op.READ, Op.SIZE, Op.NOW, Op.LOST, Op.FIRMWARE) else ""
        more = f" -> {len(row.answer)} bytes {row.answer[:16].hex()}" if row.answer else ""
        yield f"{number:8}  {row}{answer}{more}"


def _document(info: Info, rows: list[Row], shown: list[tuple[int, Row]]) -> dict[str, Any]:
    return {
        "card": info.name,
        "rows": len(rows),
        "counts": {op.name.lower(): count for op, count in Counter(row.op for row in rows).items()},
        "shown": [
            {
                "row": number,
                "op": row.op.name.lower(),
                "window": _window(row),
                "size_bytes": row.size_bytes,
                "offset": row.offset,
                "value": row.value,
                "result": row.result,
                "data": row.data.hex(),
                "answer": row.answer.hex(),
            }
            for number, row in shown
        ],
    }
