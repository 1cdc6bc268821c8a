"""The registers that an instruction reads and writes, and the counters that it increments. Waits and register counts
depend on them.

Source: the rows' directions; RDNA3 ISA, "Data Dependency Resolution" (VMCNT, LGKMCNT, EXPCNT, VSCNT); RDNA4 ISA, the
same chapter (LOADCNT, SAMPLECNT, BVHCNT, DSCNT, KMCNT, STORECNT); CDNA3 ISA, "Manually Inserted Wait States".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ringup.compiler.isa.amd.encoding import memory_forms as memory
from ringup.compiler.isa.amd.encoding.forms import Form
from ringup.compiler.isa.amd.encoding.registers import Marked, Operand, Register
from ringup.compiler.isa.amd.encoding.text import iter_slots

Key = tuple[str, int]  # register file and number
FILES = {"v": "v", "a": "a", "s": "s", "t": "t", "c": "s", "x": "x", "m": "m"}
# Counters by generation and kind of instruction. The first one is the counter that a result waits for.
COUNTERS: dict[int, dict[str, tuple[str, ...]]] = {
    9: {"load": ("vmcnt",), "store": ("vmcnt",), "sample": ("vmcnt",), "ray": ("vmcnt",), "lds": ("lgkmcnt",), "scalar": ("lgkmcnt",),
        "flat": ("vmcnt", "lgkmcnt"), "export": ("expcnt",), "message": ("lgkmcnt",)},
    11: {"load": ("vmcnt",), "store": ("vscnt",), "sample": ("vmcnt",), "ray": ("vmcnt",), "lds": ("lgkmcnt",), "scalar": ("lgkmcnt",),
         "flat": ("vmcnt", "lgkmcnt"), "flat_store": ("vscnt", "lgkmcnt"), "export": ("expcnt",), "message": ("lgkmcnt",)},
    12: {"load": ("loadcnt",), "store": ("storecnt",), "sample": ("samplecnt",), "ray": ("bvhcnt",), "lds": ("dscnt",), "scalar": ("kmcnt",),
         "flat": ("loadcnt", "dscnt"), "flat_store": ("storecnt", "dscnt"), "export": ("expcnt",), "message": ("kmcnt",)},
}  # fmt: skip
# Results return in the order of issue.
IN_ORDER = frozenset(("vmcnt", "loadcnt", "samplecnt", "vscnt", "storecnt", "dscnt"))
MAX_COUNTS = {
    "vmcnt": 63,
    "loadcnt": 63,
    "samplecnt": 63,
    "vscnt": 63,
    "storecnt": 63,
    "dscnt": 63,
    "lgkmcnt": 15,
    "kmcnt": 31,
    "bvhcnt": 7,
    "expcnt": 7,
}


def kind_of(form: Form, modifiers: Mapping[str, Any]) -> str:
    """Return the kind of a memory instruction: a key of `COUNTERS`, empty if it increments no counter."""
    name, fmt = form.name, form.format.name
    if fmt == "SMEM":
        return "scalar" if "_load" in name or "atomic" in name or "store" in name else ""
    if fmt in ("DS", "VDS"):
        return "lds"
    if fmt in ("LDSDIR", "VDSDIR") or fmt in memory.EXPORT:
        return "export"
    if name.startswith(("s_sendmsg_rtn", "s_sendmsg")):
        return "message"
    if fmt not in (*memory.BUFFER, *memory.FLAT, *memory.IMAGE):
        return ""
    gives_back = "atomic" in name and memory.returns(form, modifiers)
    stores = "store" in name or ("atomic" in name and not gives_back)
    if fmt in ("FLAT", "VFLAT"):
        return "flat_store" if stores else "flat"
    if stores:
        return "store"
    if name in memory.BITS_OF_RAY:
        return "ray"
    return "sample" if fmt in ("VSAMPLE", "MIMG") and "sample" in name else "load"


def counters_of(kind: str, generation: int) -> tuple[str, ...]:
    """Return the counters that a kind of instruction increments."""
    table = COUNTERS[generation]
    return table.get(kind, table["flat"] if kind == "flat_store" else ()) if kind else ()


def registers_of(operand: Operand) -> Iterator[Key]:
    """Yield every dword register that an operand covers."""
    if isinstance(operand, tuple):
        for one in operand:
            yield from registers_of(one)
    elif isinstance(operand, Marked):
        return
    elif isinstance(operand, Register) and operand.kind in FILES:
        file = FILES[operand.kind]
        first = operand.index if operand.kind in "vat" else operand.code
        for i in range(max(1, operand.count)):
            yield file, first + i


def reads_and_writes(
    form: Form, operands: Sequence[Operand], modifiers: Mapping[str, Any]
) -> tuple[set[Key], set[Key]]:
    """Return the registers that an instruction reads and writes, including VCC and EXEC of its row."""
    reads: set[Key] = set()
    writes: set[Key] = set()
    for slot, operand in zip(iter_slots(form, tuple(operands), modifiers), operands, strict=False):
        keys = set(registers_of(operand))
        direction = slot.direction
        if direction in ("use", "both"):
            reads |= keys
        if direction in ("def", "both"):
            writes |= keys
    for facts in form.row.operands:
        if facts.field == "hidden":
            first = 106 if "vcc" in facts.kinds else 126
            keys = {("s" if first == 106 else "x", first), ("s" if first == 106 else "x", first + 1)}
            if facts.direction == "use":
                reads |= keys
            else:
                writes |= keys
    return reads, writes
