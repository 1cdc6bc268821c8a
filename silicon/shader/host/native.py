"""Host code from LLVM IR: one target machine, a short list of passes, functions by address."""

from __future__ import annotations

import ctypes
import re
from functools import cache, lru_cache
from typing import TYPE_CHECKING

import llvmlite.binding as llvm

from ringup.silicon.shader.host.host_halves import HALVES
from ringup.silicon.shader.host.memory_shape import KEEPS_REGISTERS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# How far LLVM's register allocator looks for a better region to split a register's life around; its own bound is 10000.
# That took it a fifth of the time for a program of hundreds of blocks, whose code got no better for it. Functions of
# few blocks stay below. Holds for the whole process.
REGION_BUDGET = 50


@cache
def _has(cpu: str, feature: str) -> bool:
    """Say whether code for a processor may use a feature of x86-64. Of one given by name nothing is known; other
    families need neither.
    """
    llvm.initialize_native_target()
    if llvm.Target.from_default_triple().name != "x86-64":
        return True
    return not cpu and bool(llvm.get_host_cpu_features().get(feature, False))


@cache
def _machine(level: int, cpu: str) -> llvm.TargetMachine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.set_option("ringup", f"-grow-region-complexity-budget={REGION_BUDGET}")
    return _fresh_machine(level, cpu)


METADATA = """
!0 = !{!"branch_weights", i32 4000, i32 1}
!1 = !{!"branch_weights", i32 1, i32 4000}
"""  # how likely branches are, as `Code.branch` says
HELPER_LEVEL = 1  # of code generation
OBJECTS_KEPT = 1024  # compiled helpers, some 5 KB each
_NAMES = re.compile(r"@([\w.]+)")


def _as_declared(text: str) -> str:
    """Return what other modules say of a function or a global of `Code.declarations`."""
    if text.startswith("define internal "):
        return "declare " + text.removeprefix("define internal ").split("\n", 1)[0].removesuffix("{")
    return text.replace(" = internal global ", " = external global ").replace(" zeroinitializer", "")


def _as_shared(text: str) -> str:
    """Return a definition that other modules see."""
    return text.replace("define internal ", "define ", 1).replace(" = internal global ", " = global ", 1)


@lru_cache(OBJECTS_KEPT)
def _helper(text: str, cpu: str) -> bytes:
    """Compile a function that many programs have, once for all of them and thoroughly."""
    return _object(text, HELPER_LEVEL, cpu)


def _object(text: str, level: int, cpu: str) -> bytes:
    """Compile a module."""
    machine = _machine(level, cpu)
    if not _has(cpu, "avx2"):  # QUIRK: with narrower vectors LLVM loses some of the registers that it is to keep
        text = text.replace(KEEPS_REGISTERS, "")
    module = llvm.parse_assembly(text)
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    options = llvm.create_pipeline_tuning_options(speed_level=1)
    builder = llvm.create_pass_builder(machine, options)
    passes = llvm.create_new_function_pass_manager()
    if level:
        passes.add_sroa_pass()
        passes.add_instruction_combine_pass()
        passes.add_simplify_cfg_pass()
        for function in module.functions:
            if not function.is_declaration:
                passes.run(function, builder)
    _combine(enabled=bool(level) or not machine.triple.startswith("x86_64"))
    return bytes(machine.emit_object(module))


def _combine(*, enabled: bool) -> None:
    """Have LLVM look for better instructions while it selects them, or not: for code as we write it that is a third of
    the time, for little.

    Holds for the whole process; whatever is compiled meanwhile comes out right, too. Elsewhere than on x86-64 it was
    not tried.
    """
    llvm.set_option("ringup", f"-combiner-disabled={'false' if enabled else 'true'}")


def _split(declarations: Mapping[str, str], cpu: str) -> list[bytes]:
    """Compile a module's helpers, each with what it refers to."""
    found = []
    for name, helper in declarations.items():
        if helper.startswith("define internal "):
            used = [one for one in declarations if one != name and one in set(_NAMES.findall(helper))]
            parts = [*(_as_declared(declarations[one]) for one in used), _as_shared(helper), METADATA]
            found.append(_helper("\n".join(parts), cpu))
    return found


class HostCode:
    """A compiled module. Its code lives as long as this object.

    `cpu` is a processor of the host's family by LLVM's name, whose instructions the code keeps to; without one it is
    the host itself.
    """

    def __init__(self, text: str, *, level: int, cpu: str = "", declarations: Mapping[str, str] | None = None) -> None:
        """`declarations`: what `text` needs of its module, as `Code` has it. Its functions are compiled by themselves,
        and so only once.
        """
        declarations = declarations or {}
        if not level:  # at calls such code has nothing in registers: helpers that kept them all would do it for nothing
            declarations = {name: one.replace(KEEPS_REGISTERS, "") for name, one in declarations.items()}
        whole = [*declarations.values(), text, METADATA]
        if any("half" in one for one in whole) and not _has(cpu, "f16c"):
            objects = [_object("\n".join([*whole, HALVES]), level, cpu)]
        else:
            # globals are the program's: no two of them share one
            own = [_as_declared(one) if one.startswith("define") else _as_shared(one) for one in declarations.values()]
            objects = [_object("\n".join([*own, text, METADATA]), level, cpu), *_split(declarations, cpu)]
        # an engine that makes code keeps the tables it did so by, 0.7 MB with each module: this one is given objects,
        # and takes 40 KB
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _fresh_machine(level, cpu))
        for one in objects:
            self._engine.add_object_file(llvm.ObjectFileRef.from_data(one))
        self._engine.finalize_object()

    def address(self, name: str) -> int:
        """Return the host address of a function."""
        return int(self._engine.get_function_address(name))


def _fresh_machine(level: int, cpu: str) -> llvm.TargetMachine:
    """Return a target machine that an engine may own.

    QUIRK: LLVM puts a vzeroupper behind the restored registers of functions that keep all of them (see
    `memory_shape.helper`).
    """
    target = llvm.Target.from_default_triple()
    features = "" if cpu else llvm.get_host_cpu_features().flatten()
    if target.name == "x86-64":
        features += ",-vzeroupper" if features else "-vzeroupper"
    return target.create_target_machine(cpu=cpu or llvm.get_host_cpu_name(), features=features, opt=level, jit=True)


@cache
def schedule() -> Callable[[int], int]:
    """Return the native scheduler: `schedule(address of the context)`, see `context.Exit` for what it returns."""
    from ringup.silicon.shader.host.scheduler import scheduler

    code = HostCode(scheduler(), level=2)
    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(code.address("schedule"))
    function.__dict__["code"] = code  # keeps it alive
    return function
