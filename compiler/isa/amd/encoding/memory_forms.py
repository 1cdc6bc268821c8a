"""The operands of memory instructions, which depend on modifiers: addresses that may be absent, data as wide as a mask,
image coordinates.

Source: ISA documents, "Vector Memory Buffer Instructions", "Vector Memory Image Instructions", "Flat, Scratch, Global";
LLVM AMDGPUOperandSyntax, "vaddr", "vdata".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ringup.compiler.isa.amd.encoding.forms import Form
from ringup.compiler.isa.amd.encoding.slots import Slot
from ringup.errors import CompileError

SCALAR_MEMORY = frozenset(("SMEM",))
BUFFER = frozenset(("MUBUF", "MTBUF", "VBUFFER"))
FLAT = frozenset(("FLAT", "GLOBAL", "SCRATCH", "VFLAT", "VGLOBAL", "VSCRATCH"))
SCRATCH = frozenset(("SCRATCH", "VSCRATCH"))
IMAGE = frozenset(("MIMG", "VIMAGE", "VSAMPLE"))
EXPORT = frozenset(("EXP", "VEXPORT"))
NO_SADDR = {9: 0x7F, 11: 0x7C, 12: 0x7C}
# By `names.DIMENSIONS`.
COORDINATES = (1, 2, 3, 3, 2, 3, 3, 4)
GRADIENTS = (2, 4, 6, 4, 2, 4, 0, 0)
MULTISAMPLED = (6, 7)
# Dwords of each address of a ray intersection: plain, and with 16-bit vectors (a16).
BITS_OF_RAY = {
    "image_bvh_intersect_ray": ((1, 1, 3, 3, 3), (1, 1, 3, 3)),
    "image_bvh64_intersect_ray": ((2, 1, 3, 3, 3), (2, 1, 3, 3)),
    "image_bvh_dual_intersect_ray": ((2, 2, 3, 3, 2), (2, 2, 3, 3, 2)),
    "image_bvh8_intersect_ray": ((2, 2, 3, 3, 1), (2, 2, 3, 3, 1)),
}  # fmt: skip
# An operand's slot and its number of registers. 0: no register, and the text says off.
Placed = tuple[Slot, int]


def returns(form: Form, modifiers: Mapping[str, Any]) -> bool:
    """Return whether an atomic returns the old value."""
    th = modifiers.get("th", 0)
    if isinstance(th, str):
        th = int("RETURN" in th)
    return bool(modifiers.get("glc") or modifiers.get("sc0") or th & 1)


def check_modifiers(form: Form, modifiers: Mapping[str, Any]) -> None:
    """Raise a `CompileError` for modifiers that a memory instruction cannot have together."""
    name = form.name
    if form.format.name in BUFFER and "store" in name and modifiers.get("tfe"):
        raise CompileError(f"tfe:1 of {name}: only loads report faults in a register")
    if (
        "_atomic_" in name
        and modifiers.get("th") in (3, "TH_ATOMIC_NT_RETURN")
        and modifiers.get("scope") in (3, "SCOPE_SYS")
    ):
        raise CompileError(f"th:TH_ATOMIC_NT_RETURN of {name} needs a scope below SCOPE_SYS")
    if form.format.name not in IMAGE or name in BITS_OF_RAY:
        return
    if "dim" not in modifiers:
        raise CompileError(f"{name} needs its dimension, such as dim:SQ_RSRC_IMG_2D")
    mask = modifiers.get("dmask", 0)
    if "_atomic_" in name:
        right: tuple[int, ...] = (3, 15) if "cmpswap" in name else (1, 3)
        if mask not in right:
            raise CompileError(f"dmask:{mask:#x} of {name}: {' or '.join(map(hex, right))}, for 32 or 64 bits")
    if ("gather4" in name or "msaa_load" in name) and (not isinstance(mask, int) or mask.bit_count() != 1):
        raise CompileError(f"dmask:{mask:#x} of {name}: one channel, 0x1, 0x2, 0x4 or 0x8")
    many = modifiers.get("dim", 0) in MULTISAMPLED
    sampled = any(slot.field in ("ssamp", "samp") for slot in form.slots)
    if (many and (sampled or "_mip" in name)) or (not many and "_msaa_" in name):
        raise CompileError(f"dim:{modifiers.get('dim', 0)} of {name}: {'not ' * many}a multisampled dimension")


def fixed_bits(form: Form, generation: int) -> int:
    """Return bits of a memory format that no operand of the instruction determines, such as the one for no scalar
    address.
    """
    fields = form.format.fields
    if form.format.name == "VBUFFER" and "format" not in form.modifiers:
        return 1 << fields["format"][1]
    if form.name in BITS_OF_RAY:
        return 15 << fields["dmask"][1]
    if form.format.name in FLAT and "saddr" in fields and not any(slot.field == "saddr" for slot in form.slots):
        if form.format.name == "FLAT" and generation == 9:
            return 0
        return NO_SADDR[generation] << fields["saddr"][1]
    return 0


# gfx950: registers of a matrix by its number format (cbsz, blgp): fp8, bf8, fp6, bf6, fp4.
MATRIX_REGISTERS = {0: 8, 1: 8, 2: 6, 3: 6, 4: 4}


def matrix_slots(form: Form, modifiers: Mapping[str, Any], wave_size: int) -> list[Placed]:
    """Return the operands of an instruction. Those of mixed matrices are as wide as their formats."""
    if "f8f6f4" not in form.name:
        return [(slot, slot.registers(wave_size)) for slot in form.slots]
    formats = {"src0": modifiers.get("cbsz", 0), "src1": modifiers.get("blgp", 0)}
    return [
        (slot, MATRIX_REGISTERS.get(formats[slot.field], 8) if slot.field in formats else slot.count)
        for slot in form.slots
    ]


def buffer_slots(form: Form, modifiers: Mapping[str, Any]) -> list[Placed]:
    """Return the operands of a buffer instruction."""
    address = bool(modifiers.get("idxen")) + bool(modifiers.get("offen"))
    placed = []
    for slot in form.slots:
        if slot.field == "vaddr":
            placed.append((slot, address))
        elif slot.field == "vdata":
            if not (modifiers.get("lds") and form.modifiers.get("lds")):
                placed.append((slot, slot.count + bool(modifiers.get("tfe"))))
        else:
            placed.append((slot, slot.count))
    return placed


def flat_slots(form: Form, modifiers: Mapping[str, Any], wave_size: int, *, scalar: bool) -> list[Placed]:
    """Return the operands of a flat, global or scratch instruction. `scalar`: its address has a scalar part."""
    placed = []
    for slot in form.slots:
        if slot.field == "vdst" and "returns" in form.row.flags and not returns(form, modifiers):
            continue
        offset = slot.field in ("addr", "vaddr") and scalar and slot.size == 64
        placed.append((slot, 1 if offset else slot.registers(wave_size)))
    return placed


def image_data(form: Form, modifiers: Mapping[str, Any], generation: int) -> int:
    """Return the number of registers of an image instruction's data."""
    slot = next(slot for slot in form.slots if slot.field == "vdata")
    if form.name in BITS_OF_RAY:
        return slot.count
    mask = int(modifiers.get("dmask", 0))
    channels = max(1, mask.bit_count())
    if form.name.startswith(("image_gather4", "image_msaa_load")):
        channels = 4
    if modifiers.get("d16") and "atomic" not in form.name:
        channels = (channels + 1) // 2
    return channels + bool(modifiers.get("tfe"))


def image_address(form: Form, modifiers: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the dwords of each address of an image instruction: one for each coordinate, except for rays."""
    short = bool(modifiers.get("a16"))
    if form.name in BITS_OF_RAY:
        return BITS_OF_RAY[form.name][short]
    parts = form.name.split("_")
    dim = int(modifiers.get("dim", 0))
    tail = parts[2:]
    extra = ("o" in tail) + ("c" in tail) + ("b" in tail)
    last = "l" in tail or "cl" in tail or "mip" in parts
    words = COORDINATES[dim] + last
    if parts[1] == "get" and "resinfo" in parts:
        words = 1
    if short:
        words = (words + 1) // 2
    if "d" in tail:
        gradients = GRADIENTS[dim]
        words += (gradients // 2 + 1) // 2 * 2 if "g16" in tail else gradients
    return (1,) * (words + extra)
