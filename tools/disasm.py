"""`ringup disasm`: machine code of shaders as text that assembles to the same bytes: a whole code object, or bare code."""

from __future__ import annotations

import argparse
from typing import Any

from ringup.compiler.isa import LIMITS, disassembler, elf_read, processor
from ringup.compiler.isa.descriptor import read as read_descriptor
from ringup.errors import CompileError
from ringup.tools import files
from ringup.tools.json_text import json_text

LIMIT_BYTES = 1 << 30  # of a file


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """Add the command to `ringup`'s parser."""
    parser = subparsers.add_parser("disasm", help="show machine code as text", description=__doc__)
    parser.add_argument("file", help="a code object (ELF), or bare machine code with --raw; - reads standard input")
    parser.add_argument(
        "--target", choices=tuple(LIMITS), help="processor of bare code (gfx1100 by default); an object says its own"
    )
    parser.add_argument("--raw", action="store_true", help="the file is bare machine code")
    parser.add_argument("--wave64", action="store_true", help="bare code is for waves of 64 lanes")
    parser.add_argument("--plain", action="store_true", help="without places and words of machine code")
    parser.add_argument("--json", action="store_true", help="for programs: one JSON document")
    parser.set_defaults(run=run)
    return parser


def run(args: argparse.Namespace) -> int:
    """Write the text to standard output. What is no instruction is shown as data; a damaged container is a `CompileError`."""
    data = files.read_program(args.file, LIMIT_BYTES)
    raw = args.raw or not elf_read.is_elf(data)
    if not args.raw and raw:
        raise CompileError(f"{args.file} is no ELF file; --raw takes it as bare machine code")
    if raw:
        listing = disassembler.Listing(processor(args.target or "gfx1100", 64 if args.wave64 else 0), data)
        if args.json:
            shown = {
                "target": listing.machine.name,
                "wave size": listing.machine.wave_size,
                "code": disassembler.document(listing),
            }
            print(json_text(shown, indent=1))
        else:
            for line in listing.lines(places=not args.plain):
                print(line)
        return 0
    found = elf_read.read(data, args.file)
    if args.target and args.target != found.processor:
        raise CompileError(f"{args.file} is for {found.processor}, not {args.target}; leave --target out")
    if args.json:
        print(json_text(_document(found), indent=1))
    else:
        for line in disassembler.object_lines(found, places=not args.plain):
            print(line)
    return 0


def _document(found: elf_read.Object) -> dict[str, Any]:
    machine, listing = disassembler.of_object(found)
    kernels = {}
    for name, data in found.descriptors.items():
        try:
            kernels[name] = read_descriptor(data, machine.limits)[0]
        except CompileError as error:
            kernels[name] = {"unread": str(error), "bytes": data.hex()}  # type: ignore[dict-item]
    return {
        "target": found.processor,
        "wave size": machine.wave_size,
        "kernels": kernels,
        "metadata": found.metadata,
        "code": disassembler.document(listing),
    }
