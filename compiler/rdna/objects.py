"""Compiled kernels as one code object that loaders take, ours and others': descriptors, metadata, arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ringup.compiler.isa import elf
from ringup.compiler.isa.expression import Value
from ringup.compiler.isa.program import TEXT, Kernel, Program
from ringup.compiler.machine.ir import Param
from ringup.compiler.rdna.emit import Binary
from ringup.compiler.rdna.prologue import kernarg_layout
from ringup.errors import CompileError

ENTRY_ALIGN = 256
_KIND_BUFFER, _KIND_VALUE = "global_buffer", "by_value"


def object_of(kernels: Sequence[tuple[Binary, Sequence[Param]]]) -> bytes:
    """Return an ELF code object with these kernels, which have names of their own and one target; each with its arguments.

    Raises CompileError for kernels of several targets or none at all.
    """
    targets = {binary.target for binary, _ in kernels}
    if len(targets) != 1:
        raise CompileError(f"a code object is for one target, not for {', '.join(sorted(targets)) or 'none'}")
    text = bytearray()
    program = Program(targets.pop(), kernels[0][0].wave_size, {TEXT: text})
    described = []
    for binary, params in kernels:
        text += bytes(-len(text) % ENTRY_ALIGN)
        symbol = program.symbol(binary.name)
        symbol.value, symbol.binding, symbol.kind = Value(len(text), TEXT), "global", "func"
        symbol.size_bytes = len(binary.code)
        text += binary.code
        program.kernels.append(Kernel(binary.name, _directives(binary)))
        described.append(
            {
                ".name": binary.name, ".symbol": f"{binary.name}.kd", ".args": _arguments(params),
                ".kernarg_segment_size": binary.kernarg_bytes, ".max_flat_workgroup_size": binary.group_size,
                ".reqd_workgroup_size": [binary.group_size, 1, 1],
            }
        )  # fmt: skip
    program.metadata = {"amdhsa.kernels": described}
    return elf.write(program)


def _directives(binary: Binary) -> dict[str, int]:
    x, y, z = map(int, binary.group_ids)
    return {
        "group_segment_fixed_size": binary.lds_bytes, "private_segment_fixed_size": binary.scratch_bytes,
        "kernarg_size": binary.kernarg_bytes, "user_sgpr_kernarg_segment_ptr": 1, "enable_private_segment": int(binary.scratch_bytes > 0),
        "system_sgpr_workgroup_id_x": x, "system_sgpr_workgroup_id_y": y, "system_sgpr_workgroup_id_z": z, "system_vgpr_workitem_id": 0,
        "next_free_vgpr": max(binary.vgprs, 1), "next_free_sgpr": max(binary.sgprs, 1), "wavefront_size32": int(binary.wave_size == 32),
        "float_round_mode_32": binary.float_mode & 3, "float_round_mode_16_64": binary.float_mode >> 2 & 3,
        "float_denorm_mode_32": binary.float_mode >> 4 & 3, "float_denorm_mode_16_64": binary.float_mode >> 6 & 3,
    }  # fmt: skip


def _arguments(params: Sequence[Param]) -> list[dict[str, Any]]:
    offsets, _ = kernarg_layout(params)
    rows: list[dict[str, Any]] = []
    for param, offset in zip(params, offsets, strict=True):
        kind = _KIND_BUFFER if param.is_buffer else _KIND_VALUE
        row: dict[str, Any] = {".name": param.name, ".offset": offset, ".size": max(4, param.type.size_bytes), ".value_kind": kind}
        if param.is_buffer:
            row[".address_space"] = "global"
        rows.append(row)
    return rows
