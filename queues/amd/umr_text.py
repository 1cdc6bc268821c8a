"""Decoded packets as text, like the output of AMD's umr: one line a packet, its fields and registers indented below.

Event types, comparisons and atomics are shown by name. Registers and their fields are shown by name where the caller
gives the chip's register database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from ringup.autogen.amd import pm4_events
from ringup.queues.amd.aql import Condition, Scope
from ringup.queues.amd.packets import ATOMIC_64, Atomic, Compare
from ringup.queues.decode import Packet

# dword address: name, (field, low bit, mask in place)
NameRegister = Callable[[int], tuple[str, Iterable[tuple[str, int, int]]] | None]
# dwords of a packet that its line shows; the number of the others follows
RAW_SHOWN = 8
INDENT = "    "
_EVENT = "EVENT_TYPE_"
EVENTS = {value: name.removeprefix(_EVENT) for name, value in vars(pm4_events).items() if name.startswith(_EVENT)}
COMPARES = {how.value: how.name for how in Compare}
ATOMICS = {
    one + wide + silent: f"{one.name}{'_64' if wide else '_32'}{'' if silent else '_RTN'}"
    for one in Atomic
    for wide in (0, ATOMIC_64)
    # soc21_enum.h, GL2_OP_MASK_NO_RTN
    for silent in (0, 0x40)
}
SCOPES = {scope.value: scope.name for scope in Scope}
VALUES: Mapping[str, Mapping[int, str]] = {
    "event_type": EVENTS,
    "function": COMPARES,
    "func": COMPARES,
    "atomic": ATOMICS,
    "atomic_op": ATOMICS,
    "acquire_fence_scope": SCOPES,
    "release_fence_scope": SCOPES,
    "cond": {condition.value: condition.name for condition in Condition},
}
# of AQL: what a dispatch counts, and signed values
_DECIMAL_AQL = (
    *(f"{what}_size_{axis}" for what in ("workgroup", "grid") for axis in "xyz"),
    "private_segment_size",
    "group_segment_size",
    "value",
)
DECIMAL = (
    "ib_size",
    "count",
    "exec_count",
    "dim_x",
    "dim_y",
    "dim_z",
    "byte_count",
    "poll_interval",
    "interval",
    *_DECIMAL_AQL,
)


def lines(
    packets: Iterable[Packet], name_register: NameRegister | None = None, *, everything: bool = True, depth: int = 0
) -> Iterator[str]:
    """Yield the text of a stream, line by line.

    `name_register` returns the name and the fields of the register at a dword address, or None for an unknown register.
    Without `everything`, fields that are zero are left out.
    """
    pad = INDENT * depth
    for packet in packets:
        raw = " ".join(f"{dword:08x}" for dword in packet.raw[:RAW_SHOWN])
        more = f" +{len(packet.raw) - RAW_SHOWN}" if len(packet.raw) > RAW_SHOWN else ""
        note = f"  ! {packet.note}" if packet.note else ""
        yield f"{pad}[{packet.offset_dwords:#06x}] {packet.name}  ({raw}{more}){note}"
        for name, value in packet.fields.items():
            if value or everything:
                yield f"{pad}{INDENT}{name}: {_value(name, value)}"
        for register, value in packet.registers:
            yield from _register(register, value, name_register, pad + INDENT)
        if packet.inner:
            yield from lines(packet.inner, name_register, everything=everything, depth=depth + 1)


def _value(name: str, value: int) -> str:
    meaning = VALUES.get(name, {}).get(value)
    shown = f"{value}" if name in DECIMAL else f"{value:#x}"
    return f"{shown} ({meaning})" if meaning else shown


def _register(register: int, value: int, name_register: NameRegister | None, pad: str) -> Iterator[str]:
    named = name_register(register) if name_register else None
    if named is None:
        yield f"{pad}{register:#06x} <- {value:#010x}"
        return
    name, fields = named
    yield f"{pad}{name} ({register:#06x}) <- {value:#010x}"
    taken = [(field, value >> lo & mask >> lo) for field, lo, mask in fields]
    if len(taken) > 1:
        for field, part in taken:
            if part:
                yield f"{pad}{INDENT}{field}: {part:#x}"


def document(packet: Packet, name_register: NameRegister | None = None) -> dict[str, object]:
    """Return a packet as plain values that can be written as JSON."""
    registers = []
    for register, value in packet.registers:
        named = name_register(register) if name_register else None
        registers.append({"address": register, "name": named[0] if named else None, "value": value})
    shown: dict[str, object] = {
        "offset_dwords": packet.offset_dwords,
        "name": packet.name,
        "fields": packet.fields,
        "raw": list(packet.raw),
    }
    if registers:
        shown["registers"] = registers
    if packet.note:
        shown["note"] = packet.note
    if packet.inner:
        shown["inner"] = [document(one, name_register) for one in packet.inner]
    return shown
