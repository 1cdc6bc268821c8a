"""The caches of RDNA4's compute units, as the scope of each access reaches them: a GL0 for vectors in every compute
unit and a K$ for scalars in every WGP, before the GL2.

A load looks into GL0 or K$ if its scope is the compute unit, and fills it. With a larger scope it drops the line there
and reads the GL2; the system's scope makes the GL2 read memory, too. Stores go through the GL0 to the GL2, and with the
system's scope to memory. They change bytes that their own GL0 holds and no other's. Atomics operate in the GL2.
`global_inv` invalidates caches of a smaller scope than its own, `global_wb` of the system's scope writes the GL2 back.
There is no GL1: what is between GL0 and GL2 holds nothing. Lines are never evicted, so a scope that is left out shows.

UNKNOWN: whether a load that misses by its scope fills the GL0; here it does not. The temporal hints (`th`) change no
result. Source: LLVM AMDGPUUsage, "Memory Model GFX12"; SIMemoryLegalizer.cpp, SIGfx12CacheControl (`global_wb` matters
for the system's scope alone); RDNA4 ISA reference, "Memory Scopes and Temporal Hints".
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ringup.silicon.amd.common.cache_control import Invalidation
from ringup.silicon.shader.common.state import Access, Region, Scope

Bytes = NDArray[np.uint8]
Places = NDArray[np.int64]


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


class Held(NamedTuple):
    """A copy of a line, and the line's lifetime when it was made."""

    data: Bytes
    lifetime: int


@dataclass(slots=True)
class UnitCaches:
    """GL0s and K$s. Implements `shader.state.ScopedMemory`."""

    behind: SecondLevel
    # by whether it is a K$ and its number: copies by host address of the line
    _held: dict[tuple[bool, int], dict[int, Held]] = field(default_factory=dict)

    def load(self, line: Region, at: Places, access: Access) -> Bytes:
        """Return bytes of a line as the access finds them."""
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
        host_bytes(line.pointer, line.size_bytes)[at] = data
        held = self._held.get((False, access.unit), {}).get(line.pointer)
        if held is not None:
            held.data[at] = data
        if access.scope is Scope.SYS:
            self.behind.write_through(line.pointer, at)

    def maintain(self, access: Access, *, invalidate: bool, write_back: bool) -> None:
        """Execute an instruction that invalidates or writes back, or both."""
        if invalidate and access.scope > Scope.CU:
            self._held.pop((access.is_scalar, access.unit), None)
        if access.scope is Scope.SYS:
            self.behind.invalidate(Invalidation(second_writeback=write_back, second_invalidate=invalidate))

    def drop(self, *, vector: bool, scalar: bool) -> None:
        """Invalidate every GL0, or every K$, or both: a packet's work."""
        self._held = {key: lines for key, lines in self._held.items() if not (scalar if key[0] else vector)}
