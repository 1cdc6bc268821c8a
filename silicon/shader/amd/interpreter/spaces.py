"""Memories that vector memory instructions access, byte by byte: global memory, and the LDS of a work-group."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ringup.silicon.shader.amd.decoding.memory_effects import OWN_MEMORY
from ringup.silicon.shader.amd.strict.history import RuleBroken
from ringup.silicon.shader.common.lanes import some
from ringup.silicon.shader.common.state import Scope

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ringup.silicon.shader.amd.interpreter.atomics import Operation
    from ringup.silicon.shader.amd.interpreter.step import Addresses, Bytes, Lanes, Step
    from ringup.silicon.shader.common.state import Access

LDS_BANKS = 64


@dataclass(frozen=True, slots=True)
class Transfer:
    """What moves between memory and a lane. `half` is the 16 bits of the register that a D16 instruction uses."""

    size_bytes: int
    signed: bool = False
    half: str = ""  # low, high

    @property
    def register_count(self) -> int:
        """VGPRs of a lane's data."""
        return -(-self.size_bytes // 4)


class Space(Protocol):
    """Bytes at addresses (lanes, bytes). A read also returns which bytes were never written."""

    def read(self, addresses: Addresses, lanes: Lanes) -> tuple[Bytes, NDArray[np.bool_] | None]:
        """Gather bytes."""
        ...

    def write(self, addresses: Addresses, lanes: Lanes, data: Bytes, undefined: NDArray[np.bool_] | None) -> None:
        """Scatter bytes."""
        ...


class GlobalSpace:
    """Memory behind the VMID's page tables. All of it counts as written. Atomics operate in the GL2."""

    def __init__(self, step: Step) -> None:
        self._step = step

    @property
    def _access(self) -> Access:
        return self._step.access(least=Scope.DEV if "_atomic_" in self._step.ins.mnemonic else Scope.CU)

    def read(self, addresses: Addresses, lanes: Lanes) -> tuple[Bytes, None]:
        """Gather bytes."""
        self._step.machine.count_lines(addresses, lanes)
        return self._step.machine.read(addresses, lanes, self._access), None

    def write(self, addresses: Addresses, lanes: Lanes, data: Bytes, undefined: NDArray[np.bool_] | None) -> None:
        """Scatter bytes."""
        self._step.machine.count_lines(addresses, lanes)
        self._step.machine.write(addresses, lanes, data, self._access)


class LdsSpace:
    """The LDS of the wave's work-group. A lane beyond the allocation reads zeroes and writes nothing."""

    def __init__(self, step: Step) -> None:
        self._step, self._group = step, step.group

    def read(self, addresses: Addresses, lanes: Lanes) -> tuple[Bytes, NDArray[np.bool_] | None]:
        """Gather bytes."""
        inside = self._inside(addresses, lanes)
        found = np.zeros(addresses.shape, np.uint8)
        found[inside] = self._group.lds[addresses[inside]]
        self._count(addresses, inside)
        if self._step.regs.tracker is None:
            return found, None
        missing = ~self._group.lds_written[addresses[inside]]
        if not some(missing):
            return found, None
        undefined = np.zeros(addresses.shape, np.bool_)
        undefined[inside] = missing
        return found, undefined

    def write(self, addresses: Addresses, lanes: Lanes, data: Bytes, undefined: NDArray[np.bool_] | None) -> None:
        """Scatter bytes."""
        inside = self._inside(addresses, lanes)
        places = addresses[inside]
        self._group.lds[places] = data[inside]
        self._group.lds_written[places] = True if undefined is None else ~undefined[inside]
        self._count(addresses, inside)

    def changed(self, addresses: Addresses, lanes: Lanes) -> Lanes:
        """Return the lanes whose atomics change LDS; raise for lanes that operate on bytes that were never written."""
        inside = self._inside(addresses, lanes)
        if self._step.machine.strict:
            undefined = np.zeros(addresses.shape, np.bool_)
            undefined[inside] = ~self._group.lds_written[addresses[inside]]
            if some(undefined):
                lane = int(undefined.any(axis=1).argmax())
                raise RuleBroken("uninitialised", f"LDS {int(addresses[lane, 0]):#x} was never written", lane=lane)
        return inside

    def _inside(self, addresses: Addresses, lanes: Lanes) -> Lanes:
        size = self._group.lds.size
        beyond = (addresses < 0) | (addresses >= size)
        if not some(beyond):
            return lanes
        outside = lanes & beyond.any(axis=1)
        if self._step.machine.strict and some(outside):
            lane = int(outside.argmax())
            at = int(addresses[lane, 0])
            raise RuleBroken("memory", f"lane {lane} reaches LDS {at:#x}; {size:#x} bytes are allocated", lane=lane)
        return lanes & ~outside

    def _count(self, addresses: Addresses, lanes: Lanes) -> None:
        """Count the extra cycles of bank conflicts, by half wave."""
        for first in range(0, lanes.size, 32):
            half = slice(first, first + 32)
            dwords = set((addresses[half][lanes[half]] >> 2).ravel().tolist())
            if dwords:
                worst = max(Counter(one % LDS_BANKS for one in dwords).values())
                self._step.machine.counters.lds_conflicts += worst - -(-len(dwords) // LDS_BANKS)


def byte_addresses(addresses: Addresses, size_bytes: int) -> Addresses:
    """Return (lanes, bytes) of consecutive bytes from each address."""
    return addresses[:, None] + np.arange(size_bytes, dtype=np.int64)


def load(
    step: Step, space: Space, first: int, transfer: Transfer, addresses: Addresses, lanes: Lanes, order: dict[str, str]
) -> None:
    """Load the bytes at addresses (lanes, bytes) into VGPRs from `first` up."""
    data, undefined = space.read(addresses, lanes)
    deliver(step, first, transfer, data, undefined, lanes, order)


def deliver(
    step: Step,
    first: int,
    transfer: Transfer,
    data: Bytes,
    undefined: NDArray[np.bool_] | None,
    lanes: Lanes,
    order: dict[str, str],
) -> None:
    """Write loaded bytes to VGPRs, extended or into their half."""
    regs, size = step.regs, transfer.size_bytes
    if regs.tracker is not None and undefined is not None and some(undefined[lanes]):
        regs.birth = f"LDS that was never written, loaded at {step.pc:#x}"
    if size >= 4:
        words = np.ascontiguousarray(data).view("<u4")
        for at in range(size // 4):
            # A register may hold two halves, and an undefined one does not affect the other.
            unknown = None if undefined is None else np.asarray(undefined[:, 4 * at : 4 * at + 4].all(axis=1), np.bool_)
            regs.set_vector(first + at, words[:, at], lanes, undefined=unknown, order=order)
        return
    values = data[:, 0].astype(np.uint32)
    if size == 2:
        values |= data[:, 1].astype(np.uint32) << np.uint32(8)
    if transfer.signed:
        sign = np.uint32(1 << 8 * size - 1)
        values = (values ^ sign) - sign
    unknown = None if undefined is None else np.asarray(undefined.any(axis=1), np.bool_)
    if transfer.half:
        if not regs.vector_fits(first):
            return
        unknown = None if unknown is None else unknown & regs.vector_undefined(first)
        shift = np.uint32(16 if transfer.half == "high" else 0)
        old = regs.wave.vgprs[first]
        values = old & ~(np.uint32(0xFFFF) << shift) | (values & np.uint32(0xFFFF)) << shift
    regs.set_vector(first, values, lanes, undefined=unknown, order=order)


def stored(
    step: Step, first: int, transfer: Transfer, lanes: Lanes, *, check: bool = True
) -> tuple[Bytes, NDArray[np.bool_] | None]:
    """Return the bytes (lanes, bytes) that a store takes from VGPRs `first` up, and which of them are undefined.

    `check` also calls `check_stored`.
    """
    regs, count = step.regs, transfer.register_count
    rows = [regs.vector(first + at, lanes, decides=False) for at in range(count)]
    words = rows[0][:, None].copy() if count == 1 else np.stack(rows, axis=1)
    if transfer.half == "high":
        words = words >> np.uint32(16)
    data = np.ascontiguousarray(words).view(np.uint8)[:, : transfer.size_bytes]
    if regs.tracker is None:
        return data, None
    if check:
        check_stored(step, first, count, lanes)
    missing = [regs.vector_undefined(first + at) for at in range(count)]
    if not any(map(some, missing)):
        return data, None
    unknown = np.stack(missing, axis=1)
    return data, np.repeat(unknown, 4, axis=1)[:, : transfer.size_bytes]


def check_stored(step: Step, first: int, count: int, lanes: Lanes) -> None:
    """Raise if undefined lanes are stored where others can read them.

    Part of a wide store may be undefined: the fourth of three numbers is padding.
    """
    regs = step.regs
    if regs.tracker is None or step.ins.format in OWN_MEMORY:
        return
    undefined = lanes
    for at in range(count):
        undefined = undefined & regs.vector_undefined(first + at)
    regs.check_lanes(first, undefined)


def numbers(step: Step, first: int, size_bytes: int, lanes: Lanes) -> list[int]:
    """Return the contents of VGPRs `first` up, one integer a lane, for arithmetic."""
    low = step.regs.vector(first, lanes).astype(np.uint64)
    if size_bytes == 8:
        low = low | step.regs.vector(first + 1, lanes).astype(np.uint64) << np.uint64(32)
    values: list[int] = low.tolist()
    return values


def check_atomic(step: Step, addresses: Addresses, size_bytes: int, lanes: Lanes) -> None:
    """Raise if an atomic is not aligned to its size: hardware reports a memory violation."""
    bad = lanes & (addresses[:, 0] % size_bytes != 0)
    if some(bad):
        lane = int(bad.argmax())
        at = int(addresses[lane, 0]) & 0xFFFF_FFFF_FFFF_FFFF
        raise RuleBroken(
            "alignment", f"lane {lane} has an atomic of {size_bytes} bytes at {at:#x}", lane=lane, gpu_va=at
        )


def atomic(
    step: Step,
    space: Space,
    addresses: Addresses,
    size_bytes: int,
    lanes: Lanes,
    function: Operation,
    sources: list[int],
    more: list[int],
) -> tuple[Bytes, NDArray[np.bool_] | None]:
    """Read, modify and write lane by lane, lowest first; return what each lane found.

    UNKNOWN: the order of lanes that access the same address; the document leaves it open.
    """
    check_atomic(step, addresses, size_bytes, lanes)
    before, _ = space.read(addresses, lanes)
    if isinstance(space, LdsSpace):
        lanes = space.changed(addresses, lanes)
    kind = "<u8" if size_bytes == 8 else "<u4"
    found: list[int] = np.ascontiguousarray(before).view(kind)[:, 0].tolist()
    places: list[int] = addresses[:, 0].tolist()
    current: dict[int, int] = {}
    active: list[int] = np.flatnonzero(lanes).tolist()
    for lane in active:
        found[lane] = current.get(places[lane], found[lane])
        current[places[lane]] = function(found[lane], sources[lane], more[lane])
    after = np.array([current.get(place, 0) for place in places], kind)
    space.write(addresses, lanes, after[:, None].view(np.uint8), None)
    return np.array(found, kind)[:, None].view(np.uint8), None
