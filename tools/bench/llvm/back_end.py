"""LLVM's AMDGPU back end in llvmlite: IR text in, a loadable code object out."""

from __future__ import annotations

from functools import cache
from typing import Any

import llvmlite.binding as llvm

from ringup.errors import CompileError
from ringup.tools.bench.llvm.ir import TRIPLE

LEVEL = 3  # -O3
FEATURES = "+cumode"  # a group runs on one CU, as ours do


def version() -> str:
    """Return LLVM's version as text."""
    return ".".join(map(str, llvm.llvm_version_info))


@cache
def _machine(target: str) -> Any:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple(TRIPLE).create_target_machine(cpu=target, features=FEATURES, opt=LEVEL, reloc="pic")


def _optimised(text: str, target: str) -> Any:
    machine = _machine(target)
    try:
        made = llvm.parse_assembly(text)
        made.verify()
    except RuntimeError as error:
        raise CompileError(f"LLVM {version()} refuses the kernel's IR: {str(error).strip().splitlines()[0]}") from error
    made.data_layout = str(machine.target_data)
    passes = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=LEVEL))
    passes.getModulePassManager().run(made, passes)
    return made


def assembly(text: str, target: str) -> str:
    """Return what LLVM makes of a module as assembly text."""
    return str(_machine(target).emit_assembly(_optimised(text, target)))


def code_object(text: str, target: str) -> bytes:
    """Return what LLVM makes of a module as an ELF object file, not linked."""
    return bytes(_machine(target).emit_object(_optimised(text, target)))
