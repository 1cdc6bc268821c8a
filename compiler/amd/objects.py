"""Builds a code object from kernels: descriptors and metadata from what the back end knows.
`isa/amd/objects/elf_write.py` writes it.

A group runs on one CU (`workgroup_processor_mode` 0), so its waves never wait for the LDS of the other CU's half. IEEE
mode is off: minimum and maximum return the number if the other operand is a quiet NaN. Source: LLVM AMDGPUUsage,
"Kernel Descriptor", "Code Object V5 Metadata".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ringup.compiler.amd.emit import Binary
from ringup.compiler.amd.instructions.effects import generation
from ringup.compiler.amd.instructions.limits import GFX11_PADDING
from ringup.compiler.isa.amd.objects import elf_write
from ringup.compiler.isa.common import program
from ringup.compiler.isa.common.expression import Value

ENTRY_ALIGN: Final = 256
# Lines, COMPUTE_PGM_RSRC3.inst_pref_size of gfx11.
MAX_PREFETCHED: Final = 63
# Of gfx90a and later. Source: AMDGPUUsage, "compute_pgm_rsrc3 for GFX90A", ACCUM_OFFSET.
ACCUM_UNIT: Final = 4


def object_of(binaries: Sequence[Binary]) -> bytes:
    """Return an AMDHSA code object (version 5) with the kernels, in order.

    Raises ValueError if there are none, if their processors or wave sizes differ, or if two have the same name.
    """
    kinds = {(one.target, one.wave_size) for one in binaries}
    if len(kinds) != 1:
        raise ValueError(
            f"kernels of one code object are for one processor and wave size; these are for {sorted(kinds) or 'none'}"
        )
    if len({one.name for one in binaries}) != len(binaries):
        raise ValueError(f"two kernels of a code object have the same name: {', '.join(one.name for one in binaries)}")
    (target, wave_size), text = kinds.pop(), bytearray()
    made = program.Program(target, wave_size, sections={program.TEXT: text}, aligns={program.TEXT: ENTRY_ALIGN})
    rows = []
    for one in binaries:
        fill = program.FILL[program.TEXT]
        text += fill * (-len(text) % ENTRY_ALIGN // len(fill))
        made.symbols[one.name] = program.Symbol(
            one.name, Value(len(text), program.TEXT), "global", "protected", "func", len(one.code)
        )
        text += one.code
        made.kernels.append(program.Kernel(one.name, _directives(one)))
        rows.append(_metadata(one))
    made.metadata = {"amdhsa.kernels": rows}
    return elf_write.write(made)


def _directives(one: Binary) -> dict[str, int]:
    x, y, z = one.group_ids
    found = {
        "group_segment_fixed_size": one.lds_bytes, "private_segment_fixed_size": one.scratch_bytes, "kernarg_size": one.kernarg_bytes,
        "enable_private_segment": int(one.scratch_bytes > 0), "user_sgpr_kernarg_segment_ptr": 1, "user_sgpr_count": one.user_sgprs,
        "system_sgpr_workgroup_id_x": int(x), "system_sgpr_workgroup_id_y": int(y), "system_sgpr_workgroup_id_z": int(z),
        "system_vgpr_workitem_id": 0,
        "next_free_vgpr": one.vgprs, "next_free_sgpr": max(one.sgprs, 1),
        "float_round_mode_32": one.float_mode & 3, "float_round_mode_16_64": one.float_mode >> 2 & 3,
        "float_denorm_mode_32": one.float_mode >> 4 & 3, "float_denorm_mode_16_64": one.float_mode >> 6 & 3,
    }  # fmt: skip
    family = generation(one.target)
    if family == "gfx9":
        # The accumulation registers, of which there are none, begin after the others.
        return found | {"ieee_mode": 0, "dx10_clamp": 1, "accum_offset": -(-one.vgprs // ACCUM_UNIT) * ACCUM_UNIT}
    found |= {
        "wavefront_size32": int(one.wave_size == 32), "workgroup_processor_mode": 0,
        "inst_pref_size": min(MAX_PREFETCHED, -(-len(one.code) // GFX11_PADDING.line)),
    }  # fmt: skip
    return found if family == "gfx12" else found | {"ieee_mode": 0, "dx10_clamp": 1}


def _metadata(one: Binary) -> dict[str, Any]:
    arguments = []
    for argument in one.arguments:
        row: dict[str, Any] = {
            ".name": argument.name, ".offset": argument.offset, ".size": argument.size_bytes,
            ".value_kind": "global_buffer" if argument.is_buffer else "by_value",
        }  # fmt: skip
        if argument.is_buffer:
            row[".address_space"] = "global"
        arguments.append(row)
    return {".name": one.name, ".args": arguments, ".max_flat_workgroup_size": one.group_size}
