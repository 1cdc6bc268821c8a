"""Code for RDNA4 of clang 19's optimiser and LLVM 22's back end: code of LLVM 19's own lacks `s_wait_alu`, which strict
mode reports.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from ringup.autogen.generate.isa.probe import llvm_mc
from ringup.tools.common.paths import cache_folder


def run(command: list[str]) -> None:
    """Run a compiler; its errors fail the test."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def compile_with(clang: list[str], processor: str, made: Path) -> None:
    """Make the code object `made`. `clang` is the command without an output."""
    if not processor.startswith("gfx12"):
        run([*clang, "-o", str(made)])
        return
    bitcode, machine = made.with_suffix(".bc"), made.with_suffix(".o")
    run([*clang, "-emit-llvm", "-c", "-o", str(bitcode)])
    *loader, program = llvm_mc(cache_folder() / "llvm-22")
    level = next((one for one in clang if re.fullmatch("-O[0-3]", one)), "-O2")
    wide = ["-mattr=+wavefrontsize64"] if "-mwavefrontsize64" in clang else []
    command = [*loader, str(Path(program).with_name("llc")), f"-mcpu={processor}", level, *wide]
    run([*command, "-filetype=obj", str(bitcode), "-o", str(machine)])
    run(["ld.lld-19", "-shared", str(machine), "-o", str(made)])
    for one in (bitcode, machine):
        one.unlink()
