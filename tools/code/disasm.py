"""`ringup disasm`: shader machine code as text that assembles to the same bytes, from a code object, a fat binary, a
cubin or bare code.
"""

from __future__ import annotations

import argparse
from typing import Any

from ringup.compiler.isa.amd import LIMITS, processor
from ringup.compiler.isa.amd.assembly import disassembler
from ringup.compiler.isa.amd.objects import elf_read
from ringup.compiler.isa.amd.objects.descriptor import read as read_descriptor
from ringup.compiler.isa.sass import CHIPS, cubin
from ringup.errors import CompileError
from ringup.queues.amd.objects import elf, fat_binary
from ringup.tools.code import objects, sass
from ringup.tools.common import files
from ringup.tools.common.json_text import json_text

LIMIT_BYTES = 1 << 30  # the size limit of a file


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """Add the command to `ringup`'s parser."""
    parser = subparsers.add_parser("disasm", help="show machine code as text", description=__doc__)
    parser.add_argument(
        "file",
        help="a code object or cubin (ELF), a fat binary or library of HIP's compiler, or bare machine code with --raw; "
        "- reads standard input",
    )
    parser.add_argument(
        "--target",
        choices=(*LIMITS, *CHIPS),
        help="processor of bare code (default: gfx1100), or of the object to choose; a single object names its own",
    )
    objects.add_object_arguments(parser)
    parser.add_argument("--raw", action="store_true", help="the file is bare machine code")
    parser.add_argument("--wave64", action="store_true", help="bare code is for waves of 64 lanes")
    parser.add_argument("--plain", action="store_true", help="without addresses and machine code")
    parser.add_argument("--json", action="store_true", help="for programs: one JSON document")
    parser.set_defaults(run=run)
    return parser


def run(args: argparse.Namespace) -> int:
    """Write the text to standard output. Words that are not instructions are shown as data. Raises
    `CompileError` for a damaged container.
    """
    data = files.read_program(args.file, LIMIT_BYTES)
    if args.target in CHIPS if args.raw else cubin.is_cubin(data):
        sass.disassemble(args, data)
        return 0
    if not args.raw and fat_binary.is_fat(data):
        if args.list:
            print(
                json_text(objects.rows(data, args.file), indent=1)
                if args.json
                else "\n".join(objects.lines(data, args.file))
            )
            return 0
        data = objects.pick(data, args.file, args, args.target)
    raw = args.raw or not elf.is_elf(data)
    if not args.raw and raw:
        raise CompileError(f"{args.file} is neither an ELF file nor a fat binary; --raw reads it as bare machine code")
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
    if args.list:
        raise CompileError(f"{args.file} is one code object; --list is for files with several")
    found = elf_read.read(data, args.file)
    if args.target and args.target != found.processor:
        raise CompileError(f"{args.file} is for {found.processor}, not {args.target}; leave --target out")
    kernel = fat_binary.match(found.descriptors, args.kernel, args.file) if args.kernel else ""
    if args.json:
        print(json_text(_document(found, kernel), indent=1))
        return 0
    texts = disassembler.object_lines(found, places=not args.plain)
    for line in disassembler.of_object(found, kernel)[1].lines(places=not args.plain) if kernel else texts:
        print(line)
    return 0


def _document(found: elf_read.Object, kernel: str) -> dict[str, Any]:
    machine, listing = disassembler.of_object(found, kernel)
    kernels = {}
    for name, data in found.descriptors.items():
        if kernel not in ("", name):
            continue
        try:
            kernels[name] = read_descriptor(data, machine.limits)[0]
        except CompileError as error:
            kernels[name] = {"unread": str(error), "bytes": data.hex()}  # type: ignore[dict-item]
    return {
        "target": found.processor,
        "wave size": machine.wave_size,
        "kernels": kernels,
        "metadata": found.metadata if not kernel else None,
        "unused sources": listing.unused_sources,
        "code": disassembler.document(listing),
    }
