"""`ringup firmware`: which firmware files a card needs and whether they are installed; what is inside one."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from ringup.errors import FirmwareError, NotSupported
from ringup.firmware.amd.containers import CONTAINERS
from ringup.firmware.amd.needs import CHIPS as RADEONS
from ringup.firmware.nv.needs import CHIPS as NVIDIA_CHIPS
from ringup.firmware.store import Store, load_file
from ringup.tools.common.json_text import json_text
from ringup.tools.host import firmware_amd, firmware_nv
from ringup.tools.host.firmware_list import Row

CHIPS = (*RADEONS, *NVIDIA_CHIPS)
KINDS = (*CONTAINERS, *firmware_nv.KINDS)


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "firmware",
        help="firmware files: which a card needs, whether they are installed, what is inside one",
        description="Firmware files of cards. Nothing is downloaded and no card is touched.",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    check = actions.add_parser(
        "check", help="list the files that a card needs, where they were found, versions and hashes"
    )
    check.add_argument("chip", metavar="CHIP", help=f"one of {', '.join(CHIPS)}")
    check.add_argument(
        "--folder", action="append", default=[], type=Path, metavar="DIR", help="search here first; may be repeated"
    )
    check.add_argument("--only", action="store_true", help="search only the given folders, not the system's")
    check.add_argument(
        "--pci",
        default="0:0",
        metavar="DEVICE:REVISION",
        help="a Radeon's PCI device and revision in hex, such as 744b:00; some cards have their own files",
    )
    check.add_argument(
        "--release",
        metavar="R",
        help="for NVIDIA's chips, such as 570.144; by default the first release of which all files are there",
    )
    show = actions.add_parser("show", help="decode a firmware file, a discovery binary or an expansion ROM")
    show.add_argument("file", type=Path, metavar="FILE")
    show.add_argument(
        "--kind",
        choices=KINDS,
        metavar="KIND",
        help=f"the kind of file, if its name does not show it: {', '.join(KINDS)}",
    )
    for action in (check, show):
        action.add_argument("--json", action="store_true", help="for programs: one JSON document")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    return {"check": _check, "show": _show}[args.action](args)


def _check(args: argparse.Namespace) -> int:
    """List a chip's files. Raises `FirmwareError` after the list if a needed file is missing or damaged."""
    if args.chip not in CHIPS:
        raise NotSupported(f"no firmware is known for chip {args.chip}; known chips: {', '.join(CHIPS)}")
    vendor = firmware_amd if args.chip in RADEONS else firmware_nv
    found = vendor.check(args, Store([] if args.only else None, args.folder))
    if args.json:
        document = {"chip": args.chip, **found.more, "files": found.rows, "fingerprint": found.fingerprint}
        print(json_text(document, indent=1))
    else:
        _print_rows(found.rows, vendor.state)
        if found.fingerprint is not None:
            count = sum("version" in row for row in found.rows)
            print(f"{count} files, {found.total_bytes} bytes, fingerprint {found.fingerprint:#010x}")
    if found.problems:
        more = f" (and {len(found.problems) - 1} more)" if len(found.problems) > 1 else ""
        error = FirmwareError(found.problems[0] + more)
        error.in_result = True
        raise error
    return 0


def _print_rows(rows: list[Row], state: Callable[[Row], str]) -> None:
    kinds = max(8, *(len(row["kind"]) for row in rows))
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        if "version" in row:
            said = state(row)
        elif row["path"] is not None:
            said = f"damaged  {row['path']}: {row['problem']}"
        else:
            said = "missing, optional" if row["optional"] else "missing"
        print(f"{row['kind']:{kinds}} {row['name']:{width}}  {said}")


def _show(args: argparse.Namespace) -> int:
    found = load_file(args.file)
    theirs = args.kind in firmware_nv.KINDS or (args.kind is None and firmware_nv.recognises(found.data))
    vendor = firmware_nv if theirs else firmware_amd
    document, lines = vendor.show(found, args.kind)
    print(json_text(document, indent=1) if args.json else "\n".join(lines))
    return 0
