"""What the packet builders of AMD's engines share: checked operands, the engines' atomics, and templates whose values
are patched in place.

A packet is a list of dwords, the low half of a 64-bit operand first. The source of a fact is named where the fact is
used.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from ringup.queues.dwords import ONES, to_bytes

Version = tuple[int, int, int]
FORMS = {4: "I", 8: "Q"}
PACK_DWORD = struct.Struct("<I").pack_into


class Compare(IntEnum):
    """How a polled value is compared with the reference, both masked. Source: nvd.h, WAIT_REG_MEM_FUNCTION; SDMA's
    `func` has the same numbers.
    """

    ALWAYS = 0
    LESS = 1
    LESS_EQUAL = 2
    EQUAL = 3
    NOT_EQUAL = 4
    GREATER_EQUAL = 5
    GREATER = 6


class Atomic(IntEnum):
    """Atomic operations of the second-level cache, 32 bits wide, that return the old value. Source: soc21_enum.h and
    vega10_enum.h, GL2_OP_ATOMIC_*_RTN_32.
    """

    SWAP = 0x07
    CMPSWAP = 0x08
    ADD = 0x0F
    SUB = 0x10
    SMIN = 0x11
    UMIN = 0x12
    SMAX = 0x13
    UMAX = 0x14
    AND = 0x15
    OR = 0x16
    XOR = 0x17
    INC = 0x18
    DEC = 0x19


# added to an operation, makes it 64 bits wide. Source: soc21_enum.h, GL2_OP_MASK_64
ATOMIC_64 = 0x20


def atomic_code(operation: Atomic, bits: int) -> int:
    """Return the number by which engines know an operation on 32 or 64 bits."""
    if bits not in (32, 64):
        raise ValueError(f"an atomic is 32 or 64 bits wide, not {bits}")
    return operation + (ATOMIC_64 if bits == 64 else 0)


def address(gpu_va: int, align: int, what: str) -> tuple[int, int]:
    """Return the halves of an address, low first. Raises a `ValueError` that begins with `what` if the address is not a
    multiple of `align` bytes or has more than 64 bits.
    """
    if gpu_va % align or gpu_va >> 64:
        raise ValueError(f"{what} is a 64-bit address aligned to {align} bytes, not {gpu_va:#x}")
    return gpu_va & ONES, gpu_va >> 32


def wide(value: int, what: str) -> tuple[int, int]:
    """Return the halves of a 64-bit value, low first."""
    if value >> 64:
        raise ValueError(f"{what} holds 64 bits, not {value:#x}")
    return value & ONES, value >> 32


def narrow(value: int, bits: int, what: str) -> int:
    """Return `value`. Raises a `ValueError` if it needs more than `bits` bits."""
    if value >> bits:
        raise ValueError(f"{what} holds {bits} bits, not {value:#x}")
    return value


def data(dwords: Sequence[int], what: str) -> Sequence[int]:
    """Return `dwords`. Raises a `ValueError` if there are none, or if one needs more than 32 bits."""
    if not dwords:
        raise ValueError(f"{what} carries at least one dword")
    if min(dwords) < 0 or max(dwords) > ONES:
        raise ValueError(f"{what} carries dwords of 32 bits, not {next(hex(one) for one in dwords if one >> 32)}")
    return dwords


class KernelEvent(NamedTuple):
    """An event of a kernel driver that a queue signals: it stores something in the event's slot, then interrupts with
    its number.

    Source: Linux amdkfd kfd_events.c, kfd_signal_event_interrupt; ROCr hsakmt, hsaKmtCreateEvent.
    """

    slot_va: int
    number: int


class Waits:
    """A cache of packets that wait for a dword in memory, by its address. A cached packet only needs a new value.

    `build(gpu_va, value)` makes a packet that is not cached.
    """

    # addresses; a card has fewer timelines
    MAX_WAITS = 256

    def __init__(self, build: Callable[[int, int], Sequence[int]]) -> None:
        self._build = build
        self._value_byte = 4 * next(
            at for at, pair in enumerate(zip(build(0, 0), build(0, 1), strict=True)) if len({*pair}) > 1
        )
        self._known: dict[int, bytearray] = {}

    def __call__(self, gpu_va: int, value: int) -> bytes:
        """Return the packet that waits for `value`, 32 bits, at `gpu_va`."""
        packet = self._known.get(gpu_va)
        if packet is None:
            if len(self._known) >= self.MAX_WAITS:
                self._known.clear()
            packet = self._known[gpu_va] = bytearray(to_bytes(self._build(gpu_va, 0)))
        PACK_DWORD(packet, self._value_byte, value)
        return bytes(packet)


class Hole(NamedTuple):
    """A value of a template that may be patched: 4 or 8 bytes at `at_bytes`, which hold `(value - minus) >> shift`.

    `align`: the value must be a multiple of it. `bits`: the maximum width of the stored value.
    """

    at_bytes: int
    size_bytes: int = 4
    align: int = 1
    shift: int = 0
    minus: int = 0
    bits: int = 0

    def stored(self, value: int, name: str) -> int:
        """Return what is stored for `value`. Raises a `ValueError` with `name` if it does not fit."""
        kept = value - self.minus
        bits = self.bits or 8 * self.size_bytes
        if value % self.align or kept >> self.shift >> bits:
            aligned = f", a multiple of {self.align}" if self.align > 1 else ""
            raise ValueError(f"{name} holds {bits} bits{aligned}, not {value:#x}")
        return kept >> self.shift


@dataclass(frozen=True)
class Template:
    """A stream in bytes, and the values in it that may be patched. They are called `PACKET.operand`; later ones of the
    same name are `PACKET.operand[1]` and so on.
    """

    data: bytes
    holes: Mapping[str, Hole]
    _forms: dict[int, struct.Struct] = field(
        default_factory=lambda: {size: struct.Struct(f"<{form}") for size, form in FORMS.items()}, repr=False
    )

    def patch(self, buffer: bytearray | memoryview, at_bytes: int = 0, /, **values: int) -> None:
        """Store values into a copy of the template that begins at `at_bytes` of `buffer`. Pass names with a dot as
        `patch(buffer, 0, **{name: value})`.
        """
        for name, value in values.items():
            hole = self._hole(name)
            self._forms[hole.size_bytes].pack_into(buffer, at_bytes + hole.at_bytes, hole.stored(value, name))

    def filler(self, *names: str) -> Callable[..., None]:
        """Return `fill(buffer, at_bytes, *stored)`. It writes the whole template with the holes `names` filled, by one
        `struct.pack_into`.

        This is the fast path. The values are in the order of `names`, have the form in which they are stored
        (`Hole.stored`), and only their width is checked.
        """
        order = sorted(names, key=lambda name: self._hole(name).at_bytes)
        form, slots, at = "<", {}, 0
        arguments: list[bytes | int] = []
        for name in order:
            hole = self.holes[name]
            if hole.at_bytes < at:
                raise ValueError(f"{name} shares bytes with another of {', '.join(order)}")
            form += f"{hole.at_bytes - at}s{FORMS[hole.size_bytes]}"
            slots[name] = len(arguments) + 1
            arguments += [self.data[at : hole.at_bytes], 0]
            at = hole.at_bytes + hole.size_bytes
        arguments.append(self.data[at:])
        return _filler(struct.Struct(f"{form}{len(self.data) - at}s"), arguments, [slots[name] for name in names])

    def widened(self, name: str, shift: int = 0, align: int = 1) -> Template:
        """Return the template with this hole and the next one, of 4 bytes each, as one hole of 8 bytes. Use it for a
        pair of registers that hold an address.

        `shift`: the value is stored without its lowest `shift` bits. `align`: the value must be a multiple of it.
        """
        hole = self._hole(name)
        second = [other for other, one in self.holes.items() if one.at_bytes == hole.at_bytes + hole.size_bytes]
        if hole.size_bytes != 4 or not second or self.holes[second[0]].size_bytes != 4:
            raise ValueError(f"no hole of 4 bytes lies behind {name}, which has {hole.size_bytes}")
        holes = {other: one for other, one in self.holes.items() if other != second[0]}
        holes[name] = Hole(hole.at_bytes, 8, align, shift)
        return Template(self.data, holes)

    def _hole(self, name: str) -> Hole:
        try:
            return self.holes[name]
        except KeyError:
            raise ValueError(f"the template has no {name}; it has {', '.join(self.holes)}") from None


def numbered(holes: Iterable[tuple[str, Hole]]) -> dict[str, Hole]:
    """Return holes by name. From the second of a name on, the name gets an index."""
    counts: dict[str, int] = {}
    named = {}
    for name, hole in holes:
        count = counts[name] = counts.get(name, -1) + 1
        named[f"{name}[{count}]" if count else name] = hole
    return named


def _filler(form: struct.Struct, arguments: list[bytes | int], slots: Iterable[int]) -> Callable[..., None]:
    pack_into, places = form.pack_into, tuple(slots)

    def fill(buffer: bytearray | memoryview, at_bytes: int, *stored: int) -> None:
        for place, value in zip(places, stored, strict=True):
            arguments[place] = value
        pack_into(buffer, at_bytes, *arguments)

    return fill
