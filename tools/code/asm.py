"""`ringup asm`: assemble shader text in LLVM's syntax into a code object, or text for NVIDIA's cards into a cubin, or
either into bare machine code.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from ringup.compiler.isa.amd import LIMITS, processor
from ringup.compiler.isa.amd.assembly.assembler import assemble
from ringup.compiler.isa.amd.objects import elf_write
from ringup.compiler.isa.common.program import Program
from ringup.compiler.isa.sass import CHIPS
from ringup.errors import CompileError
from ringup.tools.code import sass
from ringup.tools.common import files

LIMIT_BYTES = 64 << 20  # the size limit of a source
_WAVE64 = re.compile(r"^\s*\.amdhsa_wavefront_size32\s+0\s*$", re.M)
_NVIDIA = re.compile(r"^\s*\.target\s+sm_", re.M)
_TARGET = re.compile(r'^\s*\.amdgcn_target\s+"amdgcn-amd-amdhsa--(\w+)', re.M)


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """Add the command to `ringup`'s parser."""
    parser = subparsers.add_parser("asm", help="assemble shader code", description=__doc__)
    parser.add_argument(
        "file",
        help="text in LLVM's syntax, or with .target sm_86 in ringup's for NVIDIA's cards; - reads standard input",
    )
    parser.add_argument(
        "-o", "--out", type=Path, metavar="FILE", help="output file (default: FILE.co, FILE.cubin or FILE.bin)"
    )
    parser.add_argument(
        "--target",
        choices=(*LIMITS, *CHIPS),
        help="processor (default: that of .amdgcn_target or .target, else gfx1100)",
    )
    parser.add_argument("--raw", action="store_true", help="bare machine code without a container")
    parser.add_argument("--wave64", action="store_true", help="for waves of 64 lanes; not needed if a kernel says so")
    parser.add_argument(
        "--cuda",
        choices=tuple(sass.GENERATIONS),
        help="write a cubin as compilers of this CUDA do (default: 12, 13 from sm_100)",
    )
    parser.set_defaults(run=run)
    return parser


def run(args: argparse.Namespace) -> int:
    """Write the code. Raises `CompileError` with file, line and column of the error."""
    source = read_text(args.file)
    nvidia = args.target in CHIPS if args.target else bool(_NVIDIA.search(source))
    suffix = ".bin" if args.raw else ".cubin" if nvidia else ".co"
    out = args.out or Path(Path(args.file).stem if args.file != "-" else "out").with_suffix(suffix)
    files.check_outputs(out, keep=None if args.file == "-" else Path(args.file))
    if nvidia:
        print(sass.assemble(args, source, "<stdin>" if args.file == "-" else args.file, out))
        return 0
    stated = _TARGET.search(source)
    target = args.target or (stated[1] if stated else "gfx1100")
    wave64 = args.wave64 or bool(_WAVE64.search(source)) or LIMITS.get(target, LIMITS["gfx1100"]).wave_sizes == (64,)
    program = assemble(source, processor(target, 64 if wave64 else 0), "<stdin>" if args.file == "-" else args.file)
    data = program.text if args.raw else elf_write.write(program)
    files.write(out, data)
    print(_summary(program, out, len(data)))
    return 0


def _summary(program: Program, out: Path, size_bytes: int) -> str:
    kernels = ", ".join(kernel.name for kernel in program.kernels) or "no kernel"
    return f"{out}: {size_bytes} bytes for {program.processor}, {len(program.text)} of code; {kernels}"


def read_text(name: str) -> str:
    """Return a source's text. Raises `CompileError` for a file that is not text."""
    data = files.read_program(name, LIMIT_BYTES)
    if b"\0" in data:
        raise CompileError(f"{name} is not text (byte {data.index(0)} is zero); `ringup disasm` reads machine code")
    return data.decode("utf-8", "replace")
