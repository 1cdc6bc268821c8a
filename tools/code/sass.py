"""What `ringup asm`, `disasm` and `program` do with code for NVIDIA's cards: cubins, and bare code with `--target`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ringup.compiler.isa.sass import CHIPS, assembly, cubin, cubin_write, machine
from ringup.compiler.isa.sass.cubin import Cubin, Generation, Kernel
from ringup.compiler.isa.sass.machine import WORD_BYTES, Machine
from ringup.errors import CompileError
from ringup.tools.common import files
from ringup.tools.common.json_text import json_text

# The first chip that compilers of CUDA 12.2, the newest whose files drivers of the 535 branch load, do not know.
NEEDS_CUDA_13 = "sm_100"
GENERATIONS = {"12": Generation.CUDA_12, "13": Generation.CUDA_13}


def assemble(args: argparse.Namespace, source: str, what: str, out: Path) -> str:
    """Write a cubin, or bare code with `--raw`, and return the summary."""
    found = assembly.assemble(source, what, args.target or "")
    code = b"".join(kernel.code for kernel in found.kernels)
    default = "13" if CHIPS.index(found.chip) >= CHIPS.index(NEEDS_CUDA_13) else "12"
    try:
        data = (
            code
            if args.raw
            else cubin_write.write(
                found.kernels, found.chip, GENERATIONS[args.cuda or default], found.data, found.addresses
            )
        )
    except ValueError as error:
        raise CompileError(f"{what}: {error}") from error
    files.write(out, data)
    names = ", ".join(kernel.name for kernel in found.kernels)
    return f"{out}: {len(data)} bytes for {found.chip}, {len(code)} of code; {names}"


def disassemble(args: argparse.Namespace, data: bytes) -> None:
    """Print a cubin, or bare code with `--raw`."""
    if args.raw:
        if len(data) % WORD_BYTES:
            raise CompileError(f"{args.file} has {len(data)} bytes; an instruction has {WORD_BYTES}")
        bare = Kernel("code", data, registers=255)
        found = Cubin(args.target, Generation.CUDA_13, (), (), (), {bare.name: bare})
    else:
        found = _read(args, data)
    isa = _machine(found.chip)
    only = _choose(found, args.kernel, args.file)
    if args.json:
        kernels = {kernel.name: _code(kernel, isa) for kernel in found.kernels.values() if only in ("", kernel.name)}
        print(json_text({"target": found.chip, "kernels": kernels}, indent=1))
        return
    for line in assembly.cubin_lines(found, isa, only, places=not args.plain):
        print(line)


def show(args: argparse.Namespace, data: bytes) -> None:
    """Print what a cubin contains."""
    found = _read(args, data)
    only = _choose(found, args.kernel, args.file)
    shown = {
        "target": found.chip,
        "cubin": f"of CUDA {'12' if found.generation is Generation.CUDA_12 else '13'}",
        "relocations": len(found.relocations),
        "kernels": [_kernel(kernel) for kernel in found.kernels.values() if only in ("", kernel.name)],
    }
    if args.json:
        print(json_text(shown, indent=1))
        return
    for key, value in shown.items():
        if isinstance(value, list):
            for kernel in value:
                print()
                print(kernel["name"])
                for name, each in kernel.items():
                    if isinstance(each, list):
                        for text in each:
                            print(f"    {text}")
                    elif name != "name":
                        print(f"  {name:12} {each}")
        else:
            print(f"{key:14} {value}")


def _read(args: argparse.Namespace, data: bytes) -> Cubin:
    found = cubin.read(data, args.file)
    wanted = getattr(args, "target", None)
    if wanted and wanted != found.chip:
        raise CompileError(f"{args.file} is for {found.chip}, not {wanted}; leave --target out")
    return found


def _choose(found: Cubin, wanted: str | None, what: str) -> str:
    if not wanted:
        return ""
    names = [name for name in found.kernels if name == wanted] or [name for name in found.kernels if wanted in name]
    if len(names) != 1:
        raise CompileError(f"{what} has {len(names)} kernels {wanted!r}; it has {', '.join(found.kernels) or 'none'}")
    return names[0]


def _machine(chip: str) -> Machine:
    try:
        return machine(chip)
    except ValueError as error:
        raise CompileError(str(error)) from error


def _code(kernel: Kernel, isa: Machine) -> list[dict[str, Any]]:
    found = []
    for at in range(0, len(kernel.code), WORD_BYTES):
        word = int.from_bytes(kernel.code[at : at + WORD_BYTES], "little")
        row: dict[str, Any] = {"offset": at, "word": f"{word:032x}", "text": None}
        if isa.knows(word):
            decoded = isa.decode(word, at)
            row |= {"text": decoded.text, "control": decoded.control._asdict()}
        found.append(row)
    return found


def _kernel(kernel: Kernel) -> dict[str, Any]:
    return {
        "name": kernel.name,
        "code": f"{len(kernel.code)} bytes, {len(kernel.code) // WORD_BYTES} instructions",
        "registers": kernel.registers,
        "barriers": kernel.barriers,
        "shared": f"{kernel.shared_bytes} bytes",
        "local": f"{kernel.frame_bytes} bytes a thread",
        "constants": f"{len(kernel.constants)} bytes in bank 0",
        "arguments": f"{kernel.parameter_bytes} bytes at {kernel.parameters_at:#x} of bank 0",
        "each": [f"{each.offset:#06x} {each.size_bytes:3}" for each in kernel.parameters],
    }
