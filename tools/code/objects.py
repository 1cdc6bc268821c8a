"""Code objects in files: a single one, or one of a fat binary, chosen by processor, kernel or number."""

from __future__ import annotations

import argparse
from typing import Any

from ringup.errors import CompileError
from ringup.queues.amd.objects import fat_binary
from ringup.queues.amd.objects.fat_binary import Member

SHOWN = 12  # targets in an error


def add_object_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that choose one code object of several."""
    parser.add_argument(
        "--object", type=int, metavar="N", help="of a fat binary: the code object with this number in --list"
    )
    parser.add_argument(
        "--kernel", metavar="NAME", help="the kernel with this name, or with this unique part of its name"
    )
    parser.add_argument("--list", action="store_true", help="of a fat binary: list its code objects")


def rows(data: bytes, what: str) -> list[dict[str, Any]]:
    """Return the properties of each code object of a fat binary that are known without reading it."""
    return [
        {
            "object": number,
            "target": one.target,
            "source": one.bundle,
            "kernels": len(one.kernels()),
            "bytes": len(one.data),
        }
        for number, one in enumerate(fat_binary.members(data, what))
    ]


def lines(data: bytes, what: str) -> list[str]:
    """Return the same as text."""
    return [
        f"{row['object']:5}  {row['target']:24} source {row['source']:<4} {row['kernels']:5} kernels "
        f"{row['bytes']:10} bytes"
        for row in rows(data, what)
    ]


def pick(data: bytes, what: str, args: argparse.Namespace, target: str | None) -> bytes:
    """Return the code object that the arguments choose of a fat binary. Raises `CompileError` unless exactly one
    matches.
    """
    found = list(fat_binary.members(data, what))
    if args.object is not None:
        if not 0 <= args.object < len(found):
            raise CompileError(
                f"{what} has {len(found)} code objects, numbered from 0: there is no number {args.object}"
            )
        return bytes(found[args.object].data)
    left = [one for one in found if target in (None, one.target, one.processor)]
    if not left:
        raise CompileError(f"{what} has code for {_targets(found)}, none for {target}")
    if args.kernel:
        name = fat_binary.match(dict.fromkeys(name for one in left for name in one.kernels()), args.kernel, what)
        left = [one for one in left if name in one.kernels()]
    if len(left) > 1:
        raise CompileError(
            f"{what} has {len(left)} such code objects, for {_targets(left)}: choose one by its processor, a kernel "
            "or --object;"
            " --list shows them"
        )
    return bytes(left[0].data)


def _targets(found: list[Member]) -> str:
    targets = list(dict.fromkeys(one.target for one in found))
    return ", ".join(targets[:SHOWN]) + f" and {len(targets) - SHOWN} more" * (len(targets) > SHOWN) or "nothing"
