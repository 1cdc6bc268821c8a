"""`ringup bridge`: the firmware of an enclosure's USB bridge, and its flash: show, copy, compare, write."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from ringup.cards import Via
from ringup.drivers.usb4.flash import Flash, configs_of, image_of, is_copy, write_new
from ringup.drivers.usb4.flashing import Flashing, Outcome
from ringup.drivers.usb4.identify import Row
from ringup.drivers.usb4.port import Port
from ringup.drivers.usb4.transport import holding
from ringup.errors import FirmwareError, NotSupported, RingupError
from ringup.firmware import asm2464pd
from ringup.firmware.asm2464pd import SET_BYTES, parse_flash
from ringup.firmware.store import load_file
from ringup.tools.command_line import ending, failure
from ringup.tools.command_line.card_argument import add_card_arguments, card_name
from ringup.tools.common.json_text import json_text
from ringup.tools.common.progress import Progress
from ringup.tools.common.wrong_usage import WrongUsage

INTERRUPTED = 130
READS_OF_A_COPY, LOOKS_AT_A_BLOCK = 8, 3  # steps of the progress bar


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "bridge",
        help="USB bridges: show the firmware, copy the flash, compare and write firmware",
        description="The USB bridge of an enclosure and its flash. Only `flash` writes, and only after a "
        "copy was made.",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    info = actions.add_parser("info", help="show the bridge, its firmware and the contents of its flash")
    add_card_arguments(info)
    backup = actions.add_parser(
        "backup", help="copy the flash into a file: both sets, or the first if the bridge gives only that"
    )
    add_card_arguments(backup)
    backup.add_argument("file", type=_file, metavar="FILE", help="the copy; the file must not exist yet")
    verify = actions.add_parser(
        "verify", help="compare the flash with an image, or with the image in a copy of a flash"
    )
    add_card_arguments(verify)
    verify.add_argument("file", type=_file, metavar="FILE", help="an image or a copy of a flash")
    flash = actions.add_parser(
        "flash",
        help="write an image, block after block; the same command continues after an interruption",
        description="Write firmware, after a confirmation. The flash is copied first, each block is read "
        "back, and a journal "
        "next to the copy "
        "lets the same command continue where it stopped. Ctrl-C stops between blocks. At the end switch the "
        "enclosure off and on.",
    )
    add_card_arguments(flash)
    flash.add_argument("file", type=_file, metavar="FILE", help="an image or a copy of a flash")
    flash.add_argument(
        "--backup",
        type=_file,
        metavar="FILE",
        help="file for the copy of the flash; an existing copy must match the flash",
    )
    flash.add_argument(
        "--no-backup", action="store_true", help="no copy, for a bridge in its ROM, which cannot read the flash"
    )
    flash.add_argument(
        "--config",
        type=_file,
        metavar="FILE",
        help="take the configuration (names, ids) from this copy of a flash; default: the bridge keeps its own",
    )
    flash.add_argument(
        "--other-line", action="store_true", help="allow an image for other boards, or without a version"
    )
    flash.add_argument("--yes", action="store_true", help="write without a question; needed without a terminal")
    flash.add_argument("--dry-run", action="store_true", help="show the plan and its problems; write nothing")
    parser.set_defaults(run=run)


def _file(text: str) -> Path:
    if not text:
        raise argparse.ArgumentTypeError("the file name is empty")
    return Path(text)


def run(args: argparse.Namespace, options: Mapping[str, Any] | None = None) -> int:
    """Do one action on the bridge of a card. `options`: the transport's, for another USB host than this machine's."""
    if args.action == "flash" and args.backup and args.no_backup:
        raise WrongUsage("give either --backup FILE for the copy or --no-backup")
    name = card_name(args)
    with _held(name, options or {}) as (port, row):
        status: int = ACTIONS[args.action](args, name, port, row)
    return status


@contextmanager
def _held(name: str, given: Mapping[str, Any]) -> Iterator[tuple[Port, Row]]:
    """Hold the USB side of an enclosure, real or virtual. Raises `NotSupported` for a card that is not behind a
    bridge.
    """
    prefix, _, rest = name.partition(":")
    options = dict(given)
    if prefix == "virtual":
        # the models are loaded only for a virtual card
        from ringup.silicon import transport

        way = transport.open(rest)
        prefix, rest, options = (way.prefix, way.rest, dict(way.options)) if isinstance(way, Via) else ("", rest, {})
    if prefix != "usb":
        raise NotSupported(
            f"{name} is not behind a USB bridge; names of such cards begin with usb:, or end in @asm2464pd"
        )
    for of_the_card in ("firmware", "witness"):
        options.pop(of_the_card, None)
    with holding(rest, **options) as found:
        yield found


# --- info -----------------------------------------------------------------------------------------------------------
def _info(args: argparse.Namespace, name: str, port: Port, row: Row) -> int:
    document: dict[str, Any] = {
        "name": name,
        "ids": port.place.ids,
        "manufacturer": port.manufacturer,
        "product": port.product,
        "serial": port.serial,
        "speed_mbps": port.speed_mbps,
        "firmware": row.firmware.value,
        "maker": row.maker,
        "version": None,
        "sets": [],
        "problem": None,
    }
    try:
        flash = Flash(port, row)
        document["version"] = flash.version or None
        document["sets"] = [_set(flash, copy) for copy in range(asm2464pd.SETS)] if flash.readable else []
        flash.need_readable()
    except NotSupported as error:
        document["problem"] = str(error)
    print(json_text(document, indent=1) if args.json else "\n".join(_info_lines(document)))
    return 0


def _set(flash: Flash, copy: int) -> dict[str, Any]:
    """Read the start of a set. Problems are part of the result."""
    found: dict[str, Any] = {"set": copy, "version": None, "config": None, "problem": None}
    try:
        block = flash.read_config(0, copy)
        found["version"] = flash.image_version(copy) or None
        config = asm2464pd.parse_device_config(block, f"set {copy}")
        found["config"] = {name: getattr(config, name) for name in (*asm2464pd.STRINGS_0, "vid", "pid", "bcd_device")}
        found["config"]["policy"] = dict(config.policy)
    except RingupError as error:
        found["problem"] = str(error)
    return found


def _info_lines(document: dict[str, Any]) -> Iterator[str]:
    speed = document["speed_mbps"]
    shown = f"{speed / 1000:g} Gb/s" if speed >= 1000 else f"{speed} Mb/s (USB2)" if speed else "speed unknown"
    names = ", ".join(document[key] for key in ("manufacturer", "product", "serial") if document[key])
    yield f"{document['name']}: {document['ids']} {names}, {shown}"
    yield f"  runs {document['firmware']} firmware ({document['maker']}){', ' + document['version'] if document['version'] else ''}"
    for one in document["sets"]:
        version = one["version"] or "an unknown version"
        config = one["config"]
        called = f", calls itself {config['vid']:04x}:{config['pid']:04x} {config['usb_product']!r}" if config else ""
        yield f"  set {one['set']}: image {version}{called}{'; ' + one['problem'] if one['problem'] else ''}"
    if document["problem"]:
        yield f"  {document['problem']}"


# --- backup, verify -------------------------------------------------------------------------------------------------
def _backup(args: argparse.Namespace, name: str, port: Port, row: Row) -> int:
    if args.file.is_dir():
        raise FirmwareError(f"{args.file} is a folder; name a file in it")
    if args.file.exists():
        raise FirmwareError(f"{args.file} exists already; name another file, nothing is overwritten")
    with Progress(f"{name}: copying the flash", READS_OF_A_COPY) as progress:
        copy = Flash(port, row).read_all(progress.step)
    sets = parse_flash(copy, str(args.file))
    write_new(args.file, copy)
    versions = [one.image.version if one.image else None for one in sets]
    problems = [problem for one in sets for problem in one.problems.values()]
    if args.json:
        print(
            json_text(
                {
                    "name": name,
                    "file": str(args.file),
                    "size_bytes": len(copy),
                    "versions": versions,
                    "problems": problems,
                }
            )
        )
    else:
        print(f"{args.file}: {len(copy)} bytes, {len(copy) // SET_BYTES} of {asm2464pd.SETS} sets")
        for problem in problems:
            print(f"  {problem}")
    if not any(one.image for one in sets):
        raise _in_result(
            f"{args.file} contains no valid image: it is what the flash reads as, and cannot be used to go back"
        )
    return 0


def _verify(args: argparse.Namespace, name: str, port: Port, row: Row) -> int:
    image = image_of(load_file(args.file).data, args.file.name)
    with Progress(f"{name}: comparing", len(image.parts)) as progress:
        found = Flash(port, row).differences(image, progress.step)
    if args.json:
        print(
            json_text(
                {
                    "name": name,
                    "file": str(args.file),
                    "version": image.version,
                    "same": not found,
                    "differences": found,
                }
            )
        )
    elif not found:
        print(f"{name}: its flash contains {image.version or 'the image'} of {args.file}, byte for byte")
    if found:
        raise _in_result(f"{name}: {found[0]}" + (f" (and {len(found) - 1} more)" if len(found) > 1 else ""))
    return 0


def _in_result(text: str) -> FirmwareError:
    """Make the error for a problem that the printed result shows too."""
    error = FirmwareError(text)
    error.in_result = True
    return error


# --- flash ----------------------------------------------------------------------------------------------------------
def _flash(args: argparse.Namespace, name: str, port: Port, row: Row) -> int:
    image = image_of(load_file(args.file).data, args.file.name)
    configs = _configs(args.config) if args.config else ()
    flash = Flash(port, row)
    backup = None if args.no_backup else args.backup
    flashing = Flashing(flash, image, backup, configs=configs, other_line=args.other_line, image_path=args.file)
    with Progress(f"{name}: reading the flash", READS_OF_A_COPY) as progress:
        against = flashing.objections(progress.step)
    report = {
        "name": name,
        "image": image.name,
        "version": image.version or None,
        "running": flash.version or None,
        "backup": str(backup) if backup else None,
        "resumes": flashing.resumes,
        "steps": [
            {"block": step.name, "flash_at": step.flash_at, "size_bytes": len(step.data)} for step in flashing.steps
        ],
        "objections": [asdict(one) for one in against],
        "recovery": list(flashing.recovery()),
    }
    if not args.json:
        _show_plan(name, flash, flashing, report)
    if args.dry_run:
        if args.json:
            print(json_text({**report, "done": False}, indent=1))
        return 1 if against else 0
    if not against and not args.yes:
        # ORDER: the question comes after the plan and the way back are printed, so that they are known even after kill
        # -9 or a power cut, and before the first write
        _ask(name, as_json=args.json)
    outcome = _write(flashing, name)
    if args.json:
        ended = {"verified": outcome.verified, "written": outcome.written, "kept": outcome.kept}
        print(json_text({**report, "done": outcome.finished, **ended}, indent=1))
    elif outcome.finished:
        for line in _ending(outcome, args):
            print(line)
    if not outcome.finished:
        print(
            f"{name}: stopped between two blocks; run the same command again to continue, and leave the enclosure on",
            file=sys.stderr,
        )
        return INTERRUPTED
    return 0


def _ask(name: str, *, as_json: bool) -> None:
    """Ask on a terminal whether to write. Raises `WrongUsage` for an answer other than yes, and without a terminal."""
    if as_json or sys.stdin is None or not sys.stdin.isatty():
        raise WrongUsage(f"nothing was written to {name}: read the plan of --dry-run, then use --yes")
    print(f"write to the flash of {name}? type yes: ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() != "yes":
        raise WrongUsage(f"nothing was written to {name}: the answer was not yes")


def _configs(path: Path) -> tuple[bytes, ...]:
    data = load_file(path).data
    blocks = configs_of(data) if is_copy(data) else ()
    if not blocks:
        raise FirmwareError(f"{path}: not a copy of a flash with valid configuration blocks")
    return blocks


def _write(flashing: Flashing, name: str) -> Outcome:
    """Write. On failure print what to do about a bridge that is half written."""
    total = READS_OF_A_COPY + LOOKS_AT_A_BLOCK * len(flashing.steps)
    begun = False

    def say(text: str) -> None:
        nonlocal begun
        begun = begun or text.startswith("writing")
        progress.step(text)

    try:
        with Patience() as patience, Progress(f"{name}: flashing", total) as progress:
            return flashing.run(say, patience.asked)
    except (RingupError, KeyboardInterrupt):
        if begun or flashing.resumes:
            failure.say(f"{name}: its flash may be half written. What to do:")
            for number, line in enumerate(flashing.recovery(), 1):
                failure.say(f"  {number}. {line}")
        raise


def _show_plan(name: str, flash: Flash, flashing: Flashing, report: dict[str, Any]) -> None:
    running = report["running"] or flash.firmware.value
    print(f"{name} ({flash.port.place.ids}, runs {running}): {report['image']}, {report['version'] or 'no version'}")
    backup = report["backup"]
    if backup:
        print(f"  copy of the flash: {backup}{'' if not Path(backup).exists() else ', exists already'}")
    for number, step in enumerate(flashing.steps, 1):
        print(f"  {number}. {step}")
    if flashing.resumes:
        kept = (
            "blocks that are correct already are kept"
            if flash.readable
            else "all blocks are written, because the ROM cannot read them"
        )
        print(f"  an earlier run did not finish; {kept}")
    if flashing.steps:
        print("  if writing does not finish:")
        for number, line in enumerate(report["recovery"], 1):
            print(f"    {number}. {line}")
    for one in report["objections"]:
        print(f"  problem: {one['what']}: {one['seen']}; {one['remedy']}")


def _ending(outcome: Outcome, args: argparse.Namespace) -> Iterator[str]:
    kept = f", {len(outcome.kept)} were correct already" if outcome.kept else ""
    yield f"done: {len(outcome.written)} blocks written{kept}{', all read back' if outcome.verified else ''}"
    if outcome.written:
        yield f"switch the enclosure off and on, then `ringup bridge verify {args.card or args.card_option or 'CARD'} {args.file}`"


class Patience:
    """Ctrl-C, SIGTERM and SIGHUP stop between blocks; inside a block they are remembered. The second signal ends the
    program at once.
    """

    def __init__(self) -> None:
        self._asked = False
        self._before: dict[int, Any] = {}

    def asked(self) -> bool:
        """Whether the user wants to stop."""
        return self._asked

    def _remember(self, number: int, frame: FrameType | None) -> None:
        if self._asked:
            raise KeyboardInterrupt if number == signal.SIGINT else ending.Ended(number)
        self._asked = True
        failure.say("stopping after this block; once more to stop at once, which leaves the block half written")

    def __enter__(self) -> Patience:
        for number in (signal.SIGINT, *ending.STATUSES):
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._remember)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


ACTIONS = {"info": _info, "backup": _backup, "verify": _verify, "flash": _flash}
