"""`ringup run`: run a kernel of a code object on a card, with arguments from the command line and from files."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ringup
from ringup.drivers.nv.verbs import AnyNvidia
from ringup.errors import CompileError, WrongTarget
from ringup.queues.amd.objects import code_object, fat_binary
from ringup.queues.amd.objects.code_object import CodeObject
from ringup.queues.nv import cubin
from ringup.queues.nv.cubin import Cubin
from ringup.tools.cards import kernel_arguments
from ringup.tools.cards.kernel_arguments import SHOWN, Argument
from ringup.tools.command_line.card_argument import add_card_arguments, card_name, is_card
from ringup.tools.common import files, mistakes, numbers
from ringup.tools.common.json_text import json_text
from ringup.tools.common.stages import StageView
from ringup.tools.common.wrong_usage import WrongUsage

Counts = tuple[int, ...]
LIMIT_BYTES = 1 << 30  # the size limit of a code object
TIMEOUT_S = 60.0
MAX_TIMES = 1000  # one profile has space for some thousands


@dataclass(frozen=True, slots=True)
class Work:
    """A kernel to run. The grid counts groups, or work-items if `items` is set. It runs `times` times in sequence."""

    code: CodeObject | Cubin | bytes  # bytes: an unread fat binary, until the card is known
    what: str
    kernel: str
    grid: Counts
    items: bool
    block: Counts
    lds_bytes: int
    arguments: list[Argument]
    times: int
    timeout_s: float


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "run",
        help="run a kernel of a code object or cubin with arguments and files",
        description="Start a card, run a kernel of a code object (of a cubin on NVIDIA's cards) on it, copy results "
        "back, stop the card. `ringup program FILE` shows the kernels of a file and their arguments, `ringup asm` "
        "makes both kinds of file from text.",
    )
    add_work_arguments(parser, nargs="+")
    add_card_arguments(
        parser, positional=False, firmware=True, json='print one object; of numbers "nan", "inf" and "-inf" are strings'
    )
    parser.add_argument("--trace", type=Path, metavar="FILE", help="write a timeline for ui.perfetto.dev")


def add_work_arguments(parser: argparse.ArgumentParser, nargs: str) -> None:
    """Add the arguments that choose a kernel and its launch."""
    parser.add_argument(
        "words",
        nargs=nargs,
        metavar="[CARD] FILE [KERNEL]",
        help="a card's name, a code object or cubin (ELF) for its processor or a library of HIP's compiler, a kernel "
        "in it if there are several: its name or a unique part of it",
    )
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument(
        "--grid", type=counts, metavar="X[,Y[,Z]]", help="groups (NVIDIA: blocks) along each axis (default: 1)"
    )
    shape.add_argument(
        "--items",
        type=counts,
        metavar="X[,Y[,Z]]",
        help="work-items (threads) along each axis instead; the last groups may be partial, but not on NVIDIA's cards",
    )
    parser.add_argument(
        "--block", type=counts, default=(64,), metavar="X[,Y[,Z]]", help="work-items (threads) of a group (default: 64)"
    )
    parser.add_argument(
        "--lds", "--shared", type=numbers.size, default=0, metavar="SIZE", help="bytes of dynamic LDS (shared memory)"
    )
    parser.add_argument(
        "--arg",
        action="append",
        default=[],
        metavar="ARG",
        help="an argument, in the kernel's order: u32:7, f32:2.5, in:FILE, out:FILE:SIZE, "
        "inout:FILE:FILE, zero:SIZE, show:SIZE:TYPE, or a plain number; may be repeated",
    )
    parser.add_argument("--times", type=_times, default=1, metavar="N", help="run it N times in sequence (default: 1)")
    parser.add_argument(
        "--timeout",
        type=numbers.seconds,
        default=TIMEOUT_S,
        metavar="S",
        help="time limit in seconds for all of it (default: %(default)g)",
    )


def run(args: argparse.Namespace) -> int:
    args.card, work = read_work(args)
    files.check_outputs(args.trace)
    with ringup.open(card_name(args), firmware=args.firmware, watch=StageView()) as card, card.profile() as profile:
        results = carry_out(card, work)
        seen = mistakes.seen_by(card)
    spans = [profile.duration_us(span) for span in profile.spans() if span.name == work.kernel]
    if args.trace:
        with files.writing(args.trace) as draft:
            profile.save(draft)
    figures = {
        "card": card.name,
        "kernel": work.kernel,
        "times": len(spans),
        "us": [round(us, 2) for us in spans],
        "results": results,
    } | ({"mistakes": seen} if seen else {})
    if args.json:
        print(json_text(figures))
        mistakes.refuse(card.name, seen)
        return 0
    shown = f"{min(spans):.1f} us" + (f", at most {max(spans):.1f} us" if len(spans) > 1 else "")
    print(
        f"{work.kernel} ran {len(spans)} times on {card.name} in {shown}"
        if len(spans) > 1
        else f"{work.kernel} ran on {card.name} in {shown}"
    )
    for row in results:
        print(f"  argument {row['argument']}: {_shown(row)}")
    mistakes.refuse(card.name, seen)
    return 0


def read_work(args: argparse.Namespace) -> tuple[str | None, Work]:
    """Return the card that the words name, if any, and the work. Raises `WrongUsage`, and `CompileError` for a file
    that is neither code object nor cubin.
    """
    words = list(args.words)
    card = words.pop(0) if is_card(words[0]) and not Path(words[0]).exists() else None
    if not 1 <= len(words) <= 2:
        raise WrongUsage("give one code object and at most one kernel of it" if words else "a code object is missing")
    arguments = [kernel_arguments.parse(word) for word in args.arg]
    code, kernel = _program(words)
    return card, Work(
        code, words[0], kernel, args.items or args.grid or (1,), args.items is not None, args.block, args.lds, arguments,
        args.times, args.timeout,
    )  # fmt: skip


def _program(words: list[str]) -> tuple[CodeObject | Cubin | bytes, str]:
    """Return a code object, a cubin or a fat binary's bytes, and the chosen kernel. Raises `WrongUsage`,
    `CompileError`.
    """
    data = files.read_program(words[0], LIMIT_BYTES)
    code: CodeObject | Cubin | bytes = data
    if cubin.is_cubin(data):
        code = Cubin(data, words[0])
    elif not fat_binary.is_fat(data):
        code = code_object.parse(data, words[0])
    if not isinstance(code, bytes):
        names = list(code.kernels)
    else:
        names = list(dict.fromkeys(name for one in fat_binary.members(code, words[0]) for name in one.kernels()))
    try:
        return code, fat_binary.match(names, words[1], words[0]) if len(words) > 1 else _only(names, words[0])
    except CompileError as error:
        raise WrongUsage(str(error)) from error


def carry_out(card: Any, work: Work) -> list[dict[str, Any]]:
    """Run the work on a started card; return a row for each buffer that was copied back.

    Raises `WrongUsage` for a grid or arguments that do not fit, and the errors of running.
    """
    if isinstance(work.code, Cubin) != isinstance(card, AnyNvidia):
        wanted = "a cubin" if isinstance(card, AnyNvidia) else "a code object"
        raise WrongTarget(f"{work.what} is no {wanted.partition(' ')[2]}: {card.name} ({card.target}) runs {wanted}")
    kernel = card.load(work.code, work.kernel, kernel=work.kernel)[work.kernel]
    placed = kernel_arguments.place(card, work.arguments)
    stream = card.compute.stream()
    start = stream.dispatch_items if work.items else stream.dispatch
    try:
        for _ in range(work.times):
            start(kernel, work.grid, work.block, placed, dynamic_lds_bytes=work.lds_bytes)
            stream.barrier()
    except (ValueError, TypeError) as error:
        raise WrongUsage(str(error)) from error
    card.compute.submit(stream).wait(work.timeout_s)
    return kernel_arguments.collect(card, work.arguments, placed)


def counts(text: str) -> Counts:
    """Return one to three counts. Raises `ArgumentTypeError` for anything else."""
    try:
        found = tuple(int(part, 0) for part in text.split(","))
    except ValueError:
        found = ()
    if not 1 <= len(found) <= 3 or min(found) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not one to three counts, such as 16 or 16,16")
    return found


def _times(text: str) -> int:
    times = numbers.whole(text)
    if not 1 <= times <= MAX_TIMES:
        raise argparse.ArgumentTypeError(f"a kernel runs 1 to {MAX_TIMES} times, not {text}")
    return times


def _only(names: Sequence[str], what: str) -> str:
    if len(names) != 1:
        raise WrongUsage(
            f"{what} has {len(names)} kernels, name one: "
            f"{', '.join(names[:SHOWN]) or 'none'}{', …' * (len(names) > SHOWN)}"
        )
    return names[0]


def _shown(row: dict[str, Any]) -> str:
    if "values" in row:
        values = row["values"]
        more = f" and {len(values) - SHOWN} more" if len(values) > SHOWN else ""
        return (
            f"{row['type']} "
            + " ".join(f"{value:g}" if isinstance(value, float) else str(value) for value in values[:SHOWN])
            + more
        )
    return f"{row['size_bytes']} bytes to {row['file']}"
