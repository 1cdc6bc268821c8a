"""The effects of memory instructions on registers and wait counters: registers read at issue, filled later, and
counted.

The counters are rows of `generations.py`. Source: RDNA3 and RDNA4 ISA references, "Data Dependency Resolution"; LLVM
AMDGPUUsage, "Memory Model GFX10-GFX11", "Memory Model GFX12".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ringup.silicon.shader.amd.decoding.decode import remembered
from ringup.silicon.shader.amd.decoding.operands import FIRST_VGPR, M0, NULL

if TYPE_CHECKING:
    from ringup.silicon.shader.amd.decoding.decode import Instruction, Operand
    from ringup.silicon.shader.amd.decoding.generations import Order

Unit = Literal["smem", "vmem", "flat", "lds", "gds"]

UNITS: dict[str, Unit] = {
    "SMEM": "smem", "GLOBAL": "vmem", "SCRATCH": "vmem", "MUBUF": "vmem", "MTBUF": "vmem", "MIMG": "vmem", "VIMAGE": "vmem",
    "VSAMPLE": "vmem",
    "FLAT": "flat", "DS": "lds",
}  # fmt: skip
# RDNA3's invalidations of vector caches have no registers and no counter, as in LLVM's SIInsertWaitcnts.
UNCOUNTED = frozenset(("buffer_gl0_inv", "buffer_gl1_inv", "buffer_inv", "ds_nop"))
# RDNA4's invalidation counts as a load; its write-backs count as stores.
_COUNTED_AS_LOADS = frozenset(("global_inv",))
# These load or store a dword for each register that M0 selects, from this one up.
BLOCKS = frozenset(("global_load_block", "global_store_block", "scratch_load_block", "scratch_store_block"))
_NO_STORES = ("ds_load", "ds_bpermute", "ds_permute", "ds_swizzle", "ds_nop", "ds_gws", "ds_bvh")
# Formats of accesses to memory that belongs to a wave or a group alone.
OWN_MEMORY = ("DS", "SCRATCH")
_DATA_FIELDS = frozenset(("data", "data0", "data1", "vdata"))
_READS_M0 = frozenset(("ds_load_addtid_b32", "ds_store_addtid_b32", "ds_append", "ds_consume")) | BLOCKS
# Their data is compared, so it decides what is stored.
_COMPARES = ("cmpswap", "cmpstore", "condxchg", "bvh_stack")
# 16-bit loads that fill both halves of their registers.
_WHOLE = ("_xy", "_xyzw")
# Stores of the low half of their register, or of a byte of it.
_NARROW = ("_b8", "_b16", "_d16_format_x")

# A D16 load has one half of its register in flight; the other half can be read and written meanwhile. Source: RDNA3 ISA
# reference, "LDS Indexed Load/Store": "into low-half of VGPR"; LLVM's waits track the halves separately. These offsets
# are added to the register's number.
LOW_HALF, HIGH_HALF = 512, 1024
HALVES = (LOW_HALF, HIGH_HALF)


@dataclass(frozen=True, slots=True)
class MemoryEffects:
    """Registers by source encoding: scalars 0..127, VGPR r as 256 + r.

    Every unit but smem reads EXEC.
    """

    unit: Unit
    order: Order  # its counters go up by `increment` at issue
    increment: int
    fills: tuple[int, ...]  # in flight from issue until a wait has covered every counter in `order`
    address: tuple[int, ...]  # these decide where memory is accessed, or whether: must be initialised
    data: tuple[int, ...]  # stored unchanged
    # Registers in `fills` keep the half that is not loaded, so they are read too.
    keeps: bool


def memory_effects(ins: Instruction) -> MemoryEffects | None:
    """Return what a memory instruction reads, fills and counts; None for every other instruction."""
    return _memory_effects(ins) if ins.format in UNITS else None


@remembered
def _memory_effects(ins: Instruction) -> MemoryEffects:
    unit: Unit = "gds" if ins.fields.get("gds") else UNITS[ins.format]
    fills: list[int] = []
    address: list[int] = [M0] if ins.mnemonic in _READS_M0 or unit == "gds" else []
    data: list[int] = []
    decides = any(part in ins.mnemonic for part in _COMPARES)
    for operand in () if "prefetch" in ins.mnemonic else ins.operands:
        span = registers(operand)
        if operand.direction != "use":
            fills += span
        if operand.direction != "def":
            (data if operand.field in _DATA_FIELDS and not decides else address).extend(span)
    wide = unit == "smem" and len(fills) > 1
    keeps = "d16" in ins.mnemonic and not ins.mnemonic.endswith(_WHOLE) and bool(fills)
    return MemoryEffects(
        unit, _order(ins, unit, returns=bool(fills)), 2 if wide else 1, tuple(fills), tuple(address), tuple(data), keeps
    )


def _order(ins: Instruction, unit: Unit, *, returns: bool) -> Order:
    orders = ins.generation.orders
    if ins.mnemonic in UNCOUNTED or "prefetch" in ins.mnemonic:
        return {}
    returns = returns or ins.mnemonic in _COUNTED_AS_LOADS
    match unit:
        case "smem":
            return orders.scalar
        case "flat":
            return orders.flat_loads if returns else orders.flat_stores
        case "vmem" if ins.format == "VSAMPLE":
            return orders.samples
        case "vmem":
            return orders.loads if returns else orders.stores
        case _:
            return orders.lds


def loads_to_lds(ins: Instruction) -> bool:
    """Return whether a memory instruction of GCN loads to LDS, from the address in M0 up."""
    if ins.format == "MUBUF":
        return ins.generation.is_gcn and bool(ins.fields["lds"])
    return "_load_lds_" in ins.mnemonic


def loaded_half(ins: Instruction) -> int:
    """Return `LOW_HALF` or `HIGH_HALF` for a load that fills one half of one register, else 0."""
    memory = memory_effects(ins)
    if memory is None or not memory.keeps or len(memory.fills) != 1:
        return 0
    return HIGH_HALF if "d16_hi" in ins.mnemonic else LOW_HALF


def changes_lds(ins: Instruction) -> bool:
    """Return whether a DS instruction changes LDS. FLAT instructions are not considered."""
    return ins.format == "DS" and not ins.fields.get("gds") and not ins.mnemonic.startswith(_NO_STORES)


def touched_halves(ins: Instruction) -> dict[int, int]:
    """Return the VGPRs of which an instruction accesses one half only, each with `LOW_HALF` or `HIGH_HALF`."""
    found: dict[int, set[int]] = {}
    for part in ins.parts or (ins,):
        for operand in part.operands:
            if operand.kind == "vgpr":
                for one in registers(operand):
                    found.setdefault(one - FIRST_VGPR, set()).add(_half_of(part, operand))
    return {one: halves.pop() for one, halves in found.items() if len(halves) == 1 and 0 not in halves}


def _half_of(ins: Instruction, operand: Operand) -> int:
    if ins.format not in UNITS:
        return 0 if operand.size_bits != 16 else HIGH_HALF if operand.high else LOW_HALF
    if operand.direction != "use":
        return loaded_half(ins)
    if operand.field not in _DATA_FIELDS or "store" not in ins.mnemonic:
        return 0
    if "d16_hi" in ins.mnemonic:
        return HIGH_HALF
    return LOW_HALF if ins.mnemonic.endswith(_NARROW) else 0


def registers(operand: Operand) -> list[int]:
    """List the registers of an operand by source encoding; none for constants, NULL and unused operands."""
    if operand.kind not in ("vgpr", "sgpr") or (operand.kind == "sgpr" and operand.index == NULL):
        return []
    first = operand.index + (FIRST_VGPR if operand.kind == "vgpr" else 0)
    return list(range(first, first + -(-operand.size_bits // 32)))
