"""The caches of RDNA4's compute units, as the scope of each access reaches them: a GL0 for vectors in every compute
unit and a K$ for scalars in every WGP, before the GL2.

A load looks into GL0 or K$ if its scope is the compute unit, and fills it. With a larger scope it drops the line there
and reads the GL2; the system's scope makes the GL2 read memory, too. Stores go through the GL0 to the GL2, and with the
system's scope to memory. They change bytes that their own GL0 holds and no other's. Atomics operate in the GL2.
`global_inv` invalidates caches of a smaller scope than its own, `global_wb` of the system's scope writes the GL2 back.
There is no GL1: what is between GL0 and GL2 holds nothing. Lines are never evicted, so a scope that is left out shows.

Stores of one wave to different addresses may be seen in another order than its own. So a store of the compute unit's
scope is seen by other units only once its wave has waited for it (`s_wait_storecnt`), the dispatch has ended, or
`PATIENCE` accesses were made. A store of a larger scope, such as that of a flag, overtakes it. A write-back completes
the stores before it at once, though hardware has done so only when the counter says it.

UNKNOWN: whether a load that misses by its scope fills the GL0; here it does not. The temporal hints (`th`) change no
result: they say which lines caches evict first, and lines are never evicted here. "Last use" lets a cache discard its
copy, not the bytes. Source: LLVM AMDGPUUsage, "Memory Model GFX12"; SIMemoryLegalizer.cpp, SIGfx12CacheControl
(`global_wb` matters for the system's scope alone); RDNA4 ISA reference, "Cache Controls: SCOPE and Temporal-Hint",
"Memory Dependency Counters" (stores to different addresses are not in order, those to one address are).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ringup.silicon.amd.common.cache_control import Invalidation
from ringup.silicon.shader.common.state import Access, Region, Scope

Bytes = NDArray[np.uint8]
Places = NDArray[np.int64]
# Accesses after which a store is complete without a wait. GUESS: hardware needs no more than microseconds. More than a
# wave makes between a store and the flag, few enough for waves that poll.
PATIENCE = 1000


def host_bytes(pointer: int, size_bytes: int) -> Bytes:
    """Return the bytes at a host address."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * size_bytes).from_address(pointer))


class SecondLevel(Protocol):
    """The GL2 behind these caches. A line is named by the host address of its bytes, in the GL2 or in memory."""

    def lifetime(self, pointer: int) -> int:
        """Return a number that changes when the host may have unmapped the line."""
        ...

    def renew(self, pointer: int) -> None:
        """Fetch a line from memory again, except bytes that were not written back."""
        ...

    def write_through(self, pointer: int, at: Places) -> None:
        """Write these bytes of a line to memory."""
        ...

    def invalidate(self, what: Invalidation) -> None:
        """Invalidate and write back."""
        ...

    def note_stale(self, pointer: int, gpu_va: int, held_in: str) -> None:
        """Record that old bytes of a line were read."""
        ...

    def note_early(self, pointer: int, gpu_va: int) -> None:
        """Record that bytes of a line were read while a store to them was in flight."""
        ...


class Held(NamedTuple):
    """A copy of a line, and the line's lifetime when it was made."""

    data: Bytes
    lifetime: int


class InFlight(NamedTuple):
    """A store that other compute units do not see yet.

    `number` is that of its operation among the wave's, `age` how many accesses were made before it.
    """

    unit: int
    wave: int
    number: int
    age: int
    line: Region
    lifetime: int
    at: Places
    data: Bytes


@dataclass(slots=True)
class UnitCaches:
    """GL0s and K$s. Implements `shader.state.ScopedMemory`."""

    behind: SecondLevel
    # by whether it is a K$ and its number: copies by host address of the line
    _held: dict[tuple[bool, int], dict[int, Held]] = field(default_factory=dict)
    # in the order in which they were made
    _stores: list[InFlight] = field(default_factory=list)
    # by wave: operations that its counter of stores has counted
    _issued: dict[int, int] = field(default_factory=dict)
    _accesses: int = 0

    def load(self, line: Region, at: Places, access: Access) -> Bytes:
        """Return bytes of a line as the access finds them."""
        found = self._load(line, at, access)
        for one in self._stores:
            if one.line.pointer == line.pointer:
                newer = host_bytes(line.pointer, line.size_bytes).copy()
                newer[one.at] = one.data
                if (newer[at] != found).any() and np.isin(at, one.at).any():
                    self.behind.note_early(line.pointer, line.gpu_va)
        return found

    def _load(self, line: Region, at: Places, access: Access) -> Bytes:
        self._order(line, access)
        lines = self._held.setdefault((access.is_scalar, access.unit), {})
        pointer, now = line.pointer, host_bytes(line.pointer, line.size_bytes)
        if access.scope > Scope.CU:
            lines.pop(pointer, None)
            if access.scope is Scope.SYS:
                self.behind.renew(pointer)
            return now[at]
        held = lines.get(pointer)
        if held is None or held.lifetime != self.behind.lifetime(pointer):
            held = lines[pointer] = Held(now.copy(), self.behind.lifetime(pointer))
        found = held.data[at]
        if (found != now[at]).any():
            self.behind.note_stale(pointer, line.gpu_va, "K$" if access.is_scalar else "GL0")
        return found

    def store(self, line: Region, at: Places, data: Bytes, access: Access) -> None:
        """Store to the GL2, and to bytes that the own GL0 holds."""
        self._order(line, access)
        if access.scope > Scope.CU:
            host_bytes(line.pointer, line.size_bytes)[at] = data
        else:
            number, lifetime = self._issued.get(access.wave, 0), self.behind.lifetime(line.pointer)
            one = InFlight(access.unit, access.wave, number, self._accesses, line, lifetime, at.copy(), data.copy())
            self._stores.append(one)
        held = self._held.get((False, access.unit), {}).get(line.pointer)
        if held is not None:
            held.data[at] = data
        if access.scope is Scope.SYS:
            self.behind.write_through(line.pointer, at)

    def maintain(self, access: Access, *, invalidate: bool, write_back: bool) -> None:
        """Execute an instruction that invalidates or writes back, or both."""
        if write_back:
            self._complete(lambda one: one.unit == access.unit)
        if invalidate and access.scope > Scope.CU:
            self._held.pop((access.is_scalar, access.unit), None)
        if access.scope is Scope.SYS:
            self.behind.invalidate(Invalidation(second_writeback=write_back, second_invalidate=invalidate))

    def issued(self, wave: int) -> None:
        """Count an operation of a wave that its counter of stores counts."""
        self._issued[wave] = self._issued.get(wave, 0) + 1

    def wait(self, wave: int, left: int) -> None:
        """Complete a wave's stores, except those of its last `left` operations that the counter counts."""
        before = self._issued.get(wave, 0) - left
        self._complete(lambda one: one.wave == wave and one.number < before)

    def settle(self) -> None:
        """Complete the stores of all waves."""
        self._complete(lambda one: True)
        self._issued.clear()

    def _order(self, line: Region, access: Access) -> None:
        """Let an access pass no store of its own unit to the same line; complete what has been in flight for long."""
        self._accesses += 1
        if not self._stores:
            return
        unit = None if access.is_scalar else access.unit
        oldest = self._accesses - PATIENCE
        self._complete(lambda one: one.age < oldest or (one.unit == unit and one.line.pointer == line.pointer))

    def _complete(self, chosen: Callable[[InFlight], bool]) -> None:
        left = []
        for one in self._stores:
            if not chosen(one):
                left.append(one)
            elif one.lifetime == self.behind.lifetime(one.line.pointer):
                host_bytes(one.line.pointer, one.line.size_bytes)[one.at] = one.data
        self._stores = left

    def drop(self, *, vector: bool, scalar: bool) -> None:
        """Invalidate every GL0, or every K$, or both: a packet's work."""
        self._held = {key: lines for key, lines in self._held.items() if not (scalar if key[0] else vector)}
