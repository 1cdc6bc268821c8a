"""`ringup program`: the contents of a code object or cubin: its target, its kernels, their launch and arguments; or
the code objects of a fat binary.
"""

from __future__ import annotations

import argparse
from typing import Any

from ringup.compiler.isa.sass import cubin
from ringup.drivers.amd.bus.chips import CHIPS
from ringup.errors import CompileError
from ringup.queues.amd.objects import code_object, fat_binary, processors
from ringup.queues.amd.objects.code_object import CodeObject, Kernel
from ringup.tools.code import objects, sass
from ringup.tools.common import files
from ringup.tools.common.json_text import json_text

LIMIT_BYTES = 1 << 30  # the size limit of a file


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """Add the command to `ringup`'s parser."""
    parser = subparsers.add_parser("program", help="show the kernels of a code object", description=__doc__)
    parser.add_argument(
        "file",
        help="an AMDHSA code object (ELF), linked or not, a fat binary or library of HIP's compiler, or a cubin; - reads "
        "standard input",
    )
    parser.add_argument(
        "--chip",
        type=_chip,
        help="check whether it runs on this chip, such as gfx1100 or navi31; of a fat binary: show the object for it",
    )
    objects.add_object_arguments(parser)
    parser.add_argument("--hidden", action="store_true", help="also show arguments that the launch fills in")
    parser.add_argument("--json", action="store_true", help="for programs: one JSON document")
    parser.set_defaults(run=run)
    return parser


def run(args: argparse.Namespace) -> int:
    """Print the contents. Raises the errors of reading it, and `WrongTarget` if it does not run on `--chip`."""
    data = files.read_program(args.file, LIMIT_BYTES)
    if cubin.is_cubin(data):
        if args.chip:
            raise CompileError(f"{args.file} is for an NVIDIA card, not for {args.chip}")
        sass.show(args, data)
        return 0
    fat = fat_binary.is_fat(data)
    if fat and (args.list or (args.chip is None and args.object is None and not args.kernel)):
        print(
            json_text(objects.rows(data, args.file), indent=1)
            if args.json
            else "\n".join(objects.lines(data, args.file))
        )
        return 0
    if args.list:
        raise CompileError(f"{args.file} is one code object; --list is for files with several")
    if fat and args.chip and args.object is None:
        data = bytes(fat_binary.choose(data, args.file, args.chip, args.kernel or "").data)
    elif fat:
        data = objects.pick(data, args.file, args, None)
    program = code_object.parse(data, args.file)
    kernel = fat_binary.match(program.kernels, args.kernel, args.file) if args.kernel else ""
    shown = _document(program, kernel, hidden=args.hidden)
    if args.json:
        print(json_text(shown, indent=1))
    else:
        for line in _lines(shown):
            print(line)
    if args.chip:
        program.check_runs_on(args.chip)
    return 0


def _chip(text: str) -> str:
    """Return the compiler's name of a chip, given by that name or by AMD's."""
    names = {chip.name: chip.target for chip in CHIPS.values()}
    target = names.get(text, text)
    try:
        processors.parse(target)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}; so are {', '.join(names)}") from error
    return target


def _document(program: CodeObject, only: str, *, hidden: bool) -> dict[str, Any]:
    return {
        "target": str(program.target),
        "code object": f"v{program.version}",
        "image": f"{program.image_bytes} bytes, aligned to {program.image_align:#x}",
        "relocations": len(program.relocations),
        "undefined": list(program.undefined),
        "kernels": [_kernel(kernel, hidden=hidden) for kernel in program.kernels.values() if only in ("", kernel.name)],
    }


def _kernel(kernel: Kernel, *, hidden: bool) -> dict[str, Any]:
    return {
        "name": kernel.name,
        "entry": f"{kernel.entry_offset:#x}",
        "waves of": kernel.wave_size,
        "group": f"at most {kernel.max_group_size} work-items"
        + (f", must be {kernel.required_group_size}" if kernel.required_group_size else ""),
        "registers": f"{kernel.vgprs} VGPRs, {kernel.agprs} AGPRs, {kernel.sgprs} SGPRs",
        "LDS": f"{kernel.lds_bytes} bytes",
        "scratch": f"{kernel.scratch_bytes_per_item} bytes a work-item"
        + (", and a stack" if kernel.dynamic_stack else ""),
        "rsrc": f"{kernel.rsrc1:#010x} {kernel.rsrc2:#010x} {kernel.rsrc3:#010x}",
        "user SGPRs": [f"s{each.first}: {each.holds}" for each in kernel.user_sgprs],
        "arguments": f"{kernel.kernarg_bytes} bytes, aligned to {kernel.kernarg_align}",
        "each": [
            f"{each.offset:#06x} {each.size_bytes:3} {each.kind}"
            + "".join(f" {text}" for text in (each.address_space, each.type_name, each.name) if text)
            for each in kernel.arguments or ()
            if hidden or not each.kind.startswith("hidden_")
        ],
    }


def _lines(shown: dict[str, Any]) -> list[str]:
    found = [f"{key:14} {value}" for key, value in shown.items() if not isinstance(value, list)]
    found += [f"{'undefined':14} {name}" for name in shown["undefined"]]
    for kernel in shown["kernels"]:
        found += ["", kernel["name"]]
        for key, value in kernel.items():
            if isinstance(value, list):
                found += [f"    {text}" for text in value]
            elif key != "name":
                found.append(f"  {key:12} {value}")
    return found
