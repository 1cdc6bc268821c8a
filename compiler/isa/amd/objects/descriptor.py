"""Kernel descriptors: converts `.amdhsa_` directives to the 64 bytes that tell a dispatcher how to start a kernel, and
back.

Source: LLVM AMDGPUUsage, "Kernel Descriptor", "AMDHSA Kernel Assembler Directives", "compute_pgm_rsrc1/2/3".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ringup.autogen.layout import Field
from ringup.compiler.isa.amd.encoding.target import Limits
from ringup.errors import CompileError
from ringup.queues.amd.objects import kernel_descriptor
from ringup.queues.amd.objects.kernel_descriptor import KERNEL_CODE_PROPERTIES, KERNEL_DESCRIPTOR

BYTES, ALIGN = kernel_descriptor.DESCRIPTOR_BYTES, kernel_descriptor.DESCRIPTOR_ALIGN
# The words that directives set.
WORDS = {
    "group": KERNEL_DESCRIPTOR.group_segment_fixed_size,
    "private": KERNEL_DESCRIPTOR.private_segment_fixed_size,
    "kernarg": KERNEL_DESCRIPTOR.kernarg_size,
    "entry": KERNEL_DESCRIPTOR.kernel_code_entry_byte_offset,
    "rsrc3": KERNEL_DESCRIPTOR.compute_pgm_rsrc3,
    "rsrc1": KERNEL_DESCRIPTOR.compute_pgm_rsrc1,
    "rsrc2": KERNEL_DESCRIPTOR.compute_pgm_rsrc2,
    "properties": KERNEL_DESCRIPTOR.kernel_code_properties,
}
# The unit of the count in rsrc1, by wave size, on gfx11 and gfx12. From gfx90a on it is 8 for every wave size.
VGPR_UNIT = {32: 8, 64: 4}

# gfx9: the unit of the count in rsrc1. VCC, FLAT_SCRATCH and XNACK_MASK follow a kernel's own SGPRs.
SGPR_UNIT, HIDDEN_SGPRS = 8, 6


class Directive(NamedTuple):
    """One directive: the word and bits that it sets, its default, and the generations that have it."""

    word: str
    shift: int
    width: int
    default: int = 0
    generations: tuple[int, ...] = (9, 11, 12)


def _property(field: Field, default: int = 0, generations: tuple[int, ...] = (9, 11, 12)) -> Directive:
    return Directive("properties", field.lo, field.width, default, generations)


_OLD, _RDNA = (9, 11), (11, 12)
DIRECTIVES: dict[str, Directive] = {
    "group_segment_fixed_size": Directive("group", 0, 32),
    "private_segment_fixed_size": Directive("private", 0, 32),
    "kernarg_size": Directive("kernarg", 0, 32),
    "user_sgpr_dispatch_ptr": _property(KERNEL_CODE_PROPERTIES.enable_sgpr_dispatch_ptr),
    "user_sgpr_queue_ptr": _property(KERNEL_CODE_PROPERTIES.enable_sgpr_queue_ptr),
    "user_sgpr_kernarg_segment_ptr": _property(KERNEL_CODE_PROPERTIES.enable_sgpr_kernarg_segment_ptr),
    "user_sgpr_dispatch_id": _property(KERNEL_CODE_PROPERTIES.enable_sgpr_dispatch_id),
    "user_sgpr_private_segment_size": _property(KERNEL_CODE_PROPERTIES.enable_sgpr_private_segment_size),
    "user_sgpr_kernarg_preload_length": _property(KERNEL_CODE_PROPERTIES.kernarg_preload_spec_length, 0, (9,)),
    "user_sgpr_kernarg_preload_offset": _property(KERNEL_CODE_PROPERTIES.kernarg_preload_spec_offset, 0, (9,)),
    "wavefront_size32": _property(KERNEL_CODE_PROPERTIES.enable_wavefront_size32, 1, _RDNA),
    "uses_dynamic_stack": _property(KERNEL_CODE_PROPERTIES.uses_dynamic_stack),
    "enable_private_segment": Directive("rsrc2", 0, 1),
    "system_sgpr_workgroup_id_x": Directive("rsrc2", 7, 1, 1),
    "system_sgpr_workgroup_id_y": Directive("rsrc2", 8, 1),
    "system_sgpr_workgroup_id_z": Directive("rsrc2", 9, 1),
    "system_sgpr_workgroup_info": Directive("rsrc2", 10, 1),
    "system_vgpr_workitem_id": Directive("rsrc2", 11, 2),
    "accum_offset": Directive("rsrc3", 0, 6, 0, (9,)),
    "float_round_mode_32": Directive("rsrc1", 12, 2),
    "float_round_mode_16_64": Directive("rsrc1", 14, 2),
    "float_denorm_mode_32": Directive("rsrc1", 16, 2),
    "float_denorm_mode_16_64": Directive("rsrc1", 18, 2, 3),
    "dx10_clamp": Directive("rsrc1", 21, 1, 1, _OLD),
    "ieee_mode": Directive("rsrc1", 23, 1, 1, _OLD),
    "round_robin_scheduling": Directive("rsrc1", 21, 1, 0, (12,)),
    "fp16_overflow": Directive("rsrc1", 26, 1),
    "workgroup_processor_mode": Directive("rsrc1", 29, 1, 1, _RDNA),
    "memory_ordered": Directive("rsrc1", 30, 1, 1, _RDNA),
    "forward_progress": Directive("rsrc1", 31, 1, 1, _RDNA),
    "tg_split": Directive("rsrc3", 16, 1, 0, (9,)),
    "shared_vgpr_count": Directive("rsrc3", 0, 4, 0, (11,)),
    "inst_pref_size": Directive("rsrc3", 4, 6, 0, (11,)),
    "exception_fp_ieee_invalid_op": Directive("rsrc2", 24, 1),
    "exception_fp_denorm_src": Directive("rsrc2", 25, 1),
    "exception_fp_ieee_div_zero": Directive("rsrc2", 26, 1),
    "exception_fp_ieee_overflow": Directive("rsrc2", 27, 1),
    "exception_fp_ieee_underflow": Directive("rsrc2", 28, 1),
    "exception_fp_ieee_inexact": Directive("rsrc2", 29, 1),
    "exception_int_div_zero": Directive("rsrc2", 30, 1),
}  # fmt: skip
_WIDER = {12: {"inst_pref_size": Directive("rsrc3", 4, 8, 0, (12,))}}
# Directive: the number of SGPRs it takes.
USER_SGPRS = {
    f"user_sgpr_{name}": count
    for name, count in kernel_descriptor.USER_SGPRS.items()
    if f"user_sgpr_{name}" in DIRECTIVES
}
# Directive: its maximum. These directives set fields by special rules.
COUNTS = {
    "next_free_vgpr": 512, "next_free_sgpr": 106, "user_sgpr_count": 32, "reserve_vcc": 1, "reserve_xnack_mask": 1,
}  # fmt: skip
MAX_USER_SGPRS = 16


def directives_of(limits: Limits) -> dict[str, Directive]:
    """Return the directives of a processor that set bits of a field."""
    table = DIRECTIVES | _WIDER.get(limits.generation, {})
    return {name: row for name, row in table.items() if limits.generation in row.generations}


def check_directive(name: str, value: int, limits: Limits) -> None:
    """Raise a `CompileError` for a directive that the processor does not have, or whose field cannot hold the value."""
    table = directives_of(limits)
    if name in COUNTS:
        most = min(COUNTS[name], 512 if limits.agprs else 256) if name == "next_free_vgpr" else COUNTS[name]
        if name == "next_free_sgpr":
            most = limits.sgprs
        if not 0 <= value <= most:
            raise CompileError(f".amdhsa_{name} {value}: 0 to {most} on {limits.name}")
        return
    row = table.get(name)
    if row is None:
        raise CompileError(
            f"{limits.name} has no directive .amdhsa_{name}; it has {', '.join(sorted((*table, *COUNTS)))}"
        )
    if name == "accum_offset":
        if not (4 <= value <= 256 and value % 4 == 0):
            raise CompileError(f".amdhsa_accum_offset {value}: a multiple of 4 from 4 to 256")
        return
    if not 0 <= value < 1 << row.width:
        raise CompileError(f".amdhsa_{name} {value}: 0 to {(1 << row.width) - 1}")
    if name == "wavefront_size32" and limits.wave_sizes == (64,):
        raise CompileError(f"{limits.name} has waves of 64 lanes only")


def build(given: Mapping[str, int], limits: Limits, entry_offset: int, wave_size: int) -> bytes:
    """Return the descriptor for some directives. `entry_offset`: the distance in bytes from it to
    the kernel's entry.
    """
    words = dict.fromkeys(WORDS, 0)
    words["entry"] = entry_offset & (1 << KERNEL_DESCRIPTOR.kernel_code_entry_byte_offset.width) - 1
    table = directives_of(limits)
    wave = 64 if limits.generation == 9 else 32 if given.get("wavefront_size32", wave_size == 32) else 64
    for name, row in table.items():
        value = given.get(name, row.default)
        if name == "wavefront_size32":
            value = int(wave == 32)
        elif name == "accum_offset":
            value = given.get(name, 4) // 4 - 1
        words[row.word] |= value << row.shift
    if wave == 32 and given.get("shared_vgpr_count"):
        raise CompileError(
            f".amdhsa_shared_vgpr_count {given['shared_vgpr_count']}: only waves of 64 lanes share registers"
        )
    users = sum(count for name, count in USER_SGPRS.items() if given.get(name)) + given.get(
        "user_sgpr_kernarg_preload_length", 0
    )
    count = given.get("user_sgpr_count", users)
    if count < users or count > MAX_USER_SGPRS:
        raise CompileError(f"{count} user SGPRs: the directives need {users}, and there are at most {MAX_USER_SGPRS}")
    words["rsrc2"] |= count << 1
    words["rsrc1"] |= _vgprs(given, limits, wave) | _sgprs(given, limits)
    made = 0
    for name, field in WORDS.items():
        made |= words[name] << field.lo
    return made.to_bytes(BYTES, "little")


def _vgprs(given: Mapping[str, int], limits: Limits, wave: int) -> int:
    unit = 8 if limits.generation == 9 else VGPR_UNIT[wave]
    return max(1, -(-given.get("next_free_vgpr", 0) // unit)) - 1


def _sgprs(given: Mapping[str, int], limits: Limits) -> int:
    if limits.generation > 9:
        return 0
    used = given.get("next_free_sgpr", 0) + HIDDEN_SGPRS
    return max(1, -(-used // SGPR_UNIT)) - 1 << 6


def read(data: bytes, limits: Limits) -> tuple[dict[str, int], int]:
    """Return the directives for a descriptor's bytes, and the offset of its entry. Counts are the greatest that give
    the same field.

    Raises `CompileError` if bits are set that no directive sets.
    """
    if len(data) != BYTES:
        raise CompileError(f"a kernel descriptor has {BYTES} bytes, not {len(data)}")
    word = KERNEL_DESCRIPTOR(int.from_bytes(data, "little"))
    entry = kernel_descriptor.entry_offset(word)
    words: dict[str, int] = {name: field.__get__(word) for name, field in WORDS.items()}
    found: dict[str, int] = {}
    for name, row in directives_of(limits).items():
        found[name] = words[row.word] >> row.shift & (1 << row.width) - 1
    if "accum_offset" in found:
        found["accum_offset"] = 4 * (found["accum_offset"] + 1)
    wave = 32 if found.get("wavefront_size32") else 64
    unit = 8 if limits.generation == 9 else VGPR_UNIT[wave]
    found["next_free_vgpr"] = ((words["rsrc1"] & 0x3F) + 1) * unit
    found["next_free_sgpr"] = (
        max(0, min(limits.sgprs, ((words["rsrc1"] >> 6 & 0xF) + 1) * SGPR_UNIT - HIDDEN_SGPRS))
        if limits.generation == 9
        else 0
    )
    found["user_sgpr_count"] = words["rsrc2"] >> 1 & 0x1F
    again = build(found, limits, entry, wave)
    if again != data:
        raise CompileError("its bytes have bits set that no directive sets")
    return found, entry


def lines(name: str, found: Mapping[str, int], limits: Limits) -> list[str]:
    """Return the directives of a kernel as text, without those at their default."""
    table = directives_of(limits)
    shown = [f".amdhsa_kernel {name}"]
    users = sum(count for each, count in USER_SGPRS.items() if found.get(each)) + found.get(
        "user_sgpr_kernarg_preload_length", 0
    )
    for each, value in found.items():
        row = table.get(each)
        default = row.default if row else None
        if each == "user_sgpr_count":
            default = users
        if value != default or each == "wavefront_size32":
            shown.append(f"  .amdhsa_{each} {value}")
    return [*shown, ".end_amdhsa_kernel"]
