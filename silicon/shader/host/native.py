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
    from collections.abc import Callable, Mapping, Sequence

# How far LLVM's register allocator searches for a better region to split a live range; its own bound is 10000. With
# that it took a fifth of the time for a program of hundreds of blocks, and the code was no better. Functions of few
# blocks stay below this bound. It applies to the whole process.
REGION_BUDGET = 50


@cache
def _has(cpu: str, feature: str) -> bool:
    """Return whether code for a processor may use a feature of x86-64.

    Nothing is known about a processor given by name. Other families need neither feature.
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


# How likely branches are, see `Code.branch`.
METADATA = """
!0 = !{!"branch_weights", i32 4000, i32 1}
!1 = !{!"branch_weights", i32 1, i32 4000}
"""
HELPER_LEVEL = 1  # LLVM's code generation level for helpers
SCHEDULER_LEVEL = 2  # and for the scheduler
OBJECTS_KEPT = 1024  # compiled helpers, about 5 KB each
_NAMES = re.compile(r"@([\w.]+)")


def _as_declared(text: str) -> str:
    """Return the declaration of a function or a global of `Code.declarations` for other modules."""
    if text.startswith("define internal "):
        return "declare " + text.removeprefix("define internal ").split("\n", 1)[0].removesuffix("{")
    return text.replace(" = internal global ", " = external global ").replace(" zeroinitializer", "")


def _as_shared(text: str) -> str:
    """Return a definition that other modules can use."""
    return text.replace("define internal ", "define ", 1).replace(" = internal global ", " = global ", 1)


@lru_cache(OBJECTS_KEPT)
def _helper(text: str, level: int, cpu: str) -> bytes:
    """Compile a helper function, once for all programs that use it."""
    return _object(text, level, cpu)


def _object(text: str, level: int, cpu: str) -> bytes:
    """Compile a module."""
    machine = _machine(level, cpu)
    # QUIRK: with narrower vectors LLVM loses some of the registers that it must keep.
    if not _has(cpu, "avx2"):
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
    """Switch LLVM's search for better instructions during selection on or off.

    For this code the search takes a third of the time and gains little. The switch applies to the whole process; code
    that another thread compiles meanwhile is correct too. It was tried on x86-64 only.
    """
    llvm.set_option("ringup", f"-combiner-disabled={'false' if enabled else 'true'}")


def _split(declarations: Mapping[str, str], level: int, cpu: str) -> list[bytes]:
    """Compile a module's helpers, each with what it refers to."""
    found = []
    for name, helper in declarations.items():
        if helper.startswith("define internal "):
            # in one order, so that the text is the same for all programs
            used = sorted(one for one in set(_NAMES.findall(helper)) & declarations.keys() if one != name)
            parts = [*(_as_declared(declarations[one]) for one in used), _as_shared(helper), METADATA]
            found.append(_helper("\n".join(parts), level, cpu))
    return found


def objects_of(
    text: str,
    *,
    level: int,
    cpu: str = "",
    declarations: Mapping[str, str] | None = None,
    helper_level: int = HELPER_LEVEL,
) -> list[bytes]:
    """Return a module compiled to object files, for `HostCode`.

    `cpu` is LLVM's name of a processor of the host's family to generate code for; empty for the host itself.
    `declarations` are what `text` needs from its module, as in `Code`. Their functions are compiled separately, at
    `helper_level`, and so only once.
    """
    declarations = declarations or {}
    # Such code has nothing in registers at calls: helpers would keep them for nothing.
    if not level:
        declarations = {name: one.replace(KEEPS_REGISTERS, "") for name, one in declarations.items()}
    whole = [*declarations.values(), text, METADATA]
    if any("half" in one for one in whole) and not _has(cpu, "f16c"):
        return [_object("\n".join([*whole, HALVES]), level, cpu)]
    # Each program has its own globals.
    own = [_as_declared(one) if one.startswith("define") else _as_shared(one) for one in declarations.values()]
    return [_object("\n".join([*own, text, METADATA]), level, cpu), *_split(declarations, helper_level, cpu)]


@cache
def processor(cpu: str) -> str:
    """Return what code for a processor depends on: its name, and its features where it is this host's."""
    llvm.initialize_native_target()
    return cpu or f"{llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}"


class HostCode:
    """Loaded object files. The code lives as long as this object."""

    def __init__(self, objects: Sequence[bytes], *, level: int, cpu: str = "") -> None:
        """Load what `objects_of` returned for the same level and processor."""
        # An engine that generates code keeps its tables, 0.7 MB with each module. This one gets object files, and needs
        # 40 KB.
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _fresh_machine(level, cpu))
        for one in objects:
            self._engine.add_object_file(llvm.ObjectFileRef.from_data(one))
        self._engine.finalize_object()

    @classmethod
    def of(cls, text: str, *, level: int, cpu: str = "", declarations: Mapping[str, str] | None = None) -> HostCode:
        """Compile a module and load it."""
        return cls(objects_of(text, level=level, cpu=cpu, declarations=declarations), level=level, cpu=cpu)

    def address(self, name: str) -> int:
        """Return the host address of a function."""
        return int(self._engine.get_function_address(name))


def _fresh_machine(level: int, cpu: str) -> llvm.TargetMachine:
    """Return a target machine that an engine may own.

    QUIRK: LLVM puts a vzeroupper after the restored registers of functions that keep all of them (see
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

    code = HostCode.of(scheduler(), level=SCHEDULER_LEVEL)
    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(code.address("schedule"))
    function.__dict__["code"] = code  # keeps it alive
    return function
