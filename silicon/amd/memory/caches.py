"""The graphics core's caches, as an option: first level and GL2, which may hold other bytes than memory.

Second level (GL2): holds lines of VRAM that the cores have accessed and that are not MTYPE_UC. The cores, CP and SDMA
access it; the host and other hubs access memory. A kernel's stores stay there until a write-back. The host's stores to
memory stay hidden by it until an invalidation. CP and SDMA write through: their write policy is BYPASS. First level
(K$, GL0; I$) and GL1: later kernels read a line as an earlier kernel has read it, until each of these caches is
invalidated, in one packet or in several. The model returns stale bytes as they are. The log names the line, who wrote
it, and which caches were not invalidated.

On RDNA4 `scopes.py` has the first level of each compute unit, inside a dispatch too. On RDNA3 this is less strict than
metal: inside one dispatch all waves are coherent. Lines are never evicted. Host memory and
MTYPE_UC memory are never in the GL2. A line that was read counts as held by K$, GL0 and GL1, so packets must invalidate
all three. Instructions that invalidate, and the GLC, SLC and DLC bits of loads, only matter inside a dispatch. An
invalidation of a range invalidates everything. Source: LLVM AMDGPUUsage, "Memory Model GFX10-GFX11"; amdgpu gfx_v11_0.c
(emit_mem_sync, emit_fence), sdma_v6_0.c with sdma_common.h (CACHE_WRITE_POLICY_L2__DEFAULT is BYPASS), gfxhub_v3_0.c
(MTYPE of untranslated addresses); Mesa radv_cs.c (GCR_CNTL).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ringup.silicon.amd.common.cache_control import Invalidation
from ringup.silicon.amd.common.parts import Board
from ringup.silicon.amd.memory.hub_memory import HubMemory, Translator
from ringup.silicon.amd.memory.scopes import Bytes, UnitCaches, host_bytes
from ringup.silicon.common.memory import Vram
from ringup.silicon.shader.common.state import Region, ScopedMemory

STORES_KEPT = 256
# bytes of a line of GL0 and GL2. GUESS: used for K$ and I$ too, although RDNA's lines there have 64
LINE = 128
# how far code is prefetched, within its region
CODE_BYTES = 0x10000


@dataclass(slots=True)
class Line:
    """First-level copies of consecutive lines, and which caches may still hold them."""

    data: Bytes
    scalar: bool = True
    gl0: bool = True
    gl1: bool = True

    @property
    def held_in(self) -> list[str]:
        """Name the caches that may still hold it."""
        return [name for name, there in (("K$", self.scalar), ("GL0", self.gl0), ("GL1", self.gl1)) if there]


@dataclass(slots=True)
class Caches:
    """The caches of one card. `scoped`: accesses have scopes, as on RDNA4."""

    board: Board
    scoped: bool = False
    epoch: int = 0
    # the first level of each compute unit, if accesses have scopes
    units: UnitCaches | None = field(init=False)
    # the last stores of CP and SDMA: first byte, end, client
    _stores: deque[tuple[int, int, str]] = field(default_factory=lambda: deque(maxlen=STORES_KEPT))
    _second: Vram = field(init=False)
    # by line: its bytes when filled, if a kernel may have written it since
    _filled: dict[int, Bytes | None] = field(default_factory=dict)
    _data: dict[int, Line] = field(default_factory=dict)  # by host address of the cached memory
    _code: dict[int, Line] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._second = Vram(self.board.vram.size_bytes)
        self.units = UnitCaches(self) if self.scoped else None

    def reset(self) -> None:
        """Drop everything, including bytes that were not written back."""
        self._filled.clear()
        self._data.clear()
        self._code.clear()
        self._stores.clear()
        if self.units is not None:
            self.units.drop(vector=True, scalar=True)
        self._second.lose()
        self.epoch += 1

    # --- second level -------------------------------------------------------------------------------------------
    def fill(self, vram_pa: int, lines: int, *, write: bool) -> int:
        """Fill lines from VRAM; return the host address of the first line's copy."""
        asked = range(vram_pa // LINE, vram_pa // LINE + lines)
        if not any(line in self._filled for line in asked):
            # all at once: code is many lines long
            size = lines * LINE
            self._second.write(vram_pa, self.board.vram.view[vram_pa : vram_pa + size])
            self._filled.update(dict.fromkeys(asked))
        for line in asked if write or lines > 1 else ():
            if line not in self._filled:
                self._second.write(line * LINE, self.board.vram.view[line * LINE : (line + 1) * LINE])
                self._filled[line] = None
            if write and self._filled[line] is None:
                self._filled[line] = self._line(line).copy()
        return self._second.span.pointer + vram_pa

    def _line(self, line: int) -> Bytes:
        return host_bytes(self._second.span.pointer + line * LINE, LINE)

    def read(self, vram_pa: int, size_bytes: int) -> bytes:
        """Read for a client of the second level: cached lines from there, other bytes from memory. Nothing is
        filled.
        """
        data = bytearray(self.board.vram.read(vram_pa, size_bytes))
        for line in self._held(vram_pa, size_bytes):
            at, end = max(line * LINE, vram_pa), min((line + 1) * LINE, vram_pa + size_bytes)
            data[at - vram_pa : end - vram_pa] = self._second.view[at:end]
        return bytes(data)

    def write(self, vram_pa: int, data: bytes | memoryview, client: str) -> None:
        """Write through for CP or SDMA: store to memory and to cached lines."""
        self.board.vram.write(vram_pa, data)
        self._stores.append((vram_pa, vram_pa + len(data), client))
        for line in self._held(vram_pa, len(data)):
            at, end = max(line * LINE, vram_pa), min((line + 1) * LINE, vram_pa + len(data))
            chunk = data[at - vram_pa : end - vram_pa]
            self._second.write(at, chunk)
            base = self._filled[line]
            if base is not None:
                base[at - line * LINE : end - line * LINE] = np.frombuffer(chunk, np.uint8)

    def _held(self, vram_pa: int, size_bytes: int) -> list[int]:
        """Return the cached lines of a range."""
        asked = range(vram_pa // LINE, (vram_pa + size_bytes - 1) // LINE + 1)
        if len(asked) > len(self._filled):
            return [line for line in self._filled if line in asked]
        return [line for line in asked if line in self._filled]

    def _write_back(self) -> None:
        for line, base in self._filled.items():
            if base is None:
                continue
            now = self._line(line)
            changed = now != base
            if changed.any():
                memory = host_bytes(self.board.vram.span.pointer + line * LINE, LINE)
                memory[changed] = now[changed]
                base[:] = now

    def _forget_second(self) -> None:
        """Invalidate the GL2 except modified bytes. UNKNOWN: what happens to these without a write-back; here
        they stay.
        """
        kept: dict[int, Bytes | None] = {}
        for line, base in self._filled.items():
            if base is not None and (changed := self._line(line) != base).any():
                memory = host_bytes(self.board.vram.span.pointer + line * LINE, LINE)
                now = self._line(line)
                now[~changed] = memory[~changed]
                base[~changed] = memory[~changed]
                kept[line] = base
        self._filled = kept

    def renew(self, pointer: int) -> None:
        """Fetch a line from memory again, except bytes that were not written back."""
        line = (pointer - self._second.span.pointer) // LINE
        if line not in self._filled:
            return
        now, memory = self._line(line), host_bytes(self.board.vram.span.pointer + line * LINE, LINE)
        base = self._filled[line]
        clean = slice(None) if base is None else now == base
        now[clean] = memory[clean]
        if base is not None:
            base[clean] = memory[clean]

    def write_through(self, pointer: int, at: NDArray[np.int64]) -> None:
        """Write these bytes of a line to memory, if the second level holds it."""
        line = (pointer - self._second.span.pointer) // LINE
        if line not in self._filled:
            return
        data = self._line(line)[at]
        host_bytes(self.board.vram.span.pointer + line * LINE, LINE)[at] = data
        base = self._filled[line]
        if base is not None:
            base[at] = data

    def lifetime(self, pointer: int) -> int:
        """Return a number that changes when the host may have unmapped a line; those of VRAM stay."""
        spans = self._second.span, self.board.vram.span
        stays = any(0 <= pointer - one.pointer < self.board.vram.size_bytes for one in spans)
        return 0 if stays else self.board.host.epoch

    # --- first level --------------------------------------------------------------------------------------------
    def invalidate(self, what: Invalidation) -> None:
        """Invalidate and write back as a packet requests."""
        if what.second_writeback:
            self._write_back()
        if what.second_invalidate:
            self._forget_second()
        if what.instructions:
            self._code.clear()
        if self.units is not None:
            self.units.drop(vector=what.gl0, scalar=what.scalar)
        for line in self._data.values():
            line.scalar &= not what.scalar
            line.gl0 &= not what.gl0
            line.gl1 &= not what.gl1
        self._data = {key: line for key, line in self._data.items() if line.held_in}
        self.epoch += 1

    def seen(self, pointer: int, size_bytes: int, gpu_va: int, *, code: bool) -> int:
        """Return the host address that a kernel reads instead of `pointer`: `pointer` itself, or that of a
        stale copy.
        """
        line = (self._code if code else self._data).get(pointer)
        if line is None:
            return pointer
        stale = np.flatnonzero(line.data != host_bytes(pointer, len(line.data)))
        if not stale.size:
            return pointer
        at = int(stale[0]) // LINE * LINE
        self.note_stale(pointer + at, gpu_va + at, "I$" if code else ", ".join(line.held_in))
        return line.data.ctypes.data

    def note_stale(self, pointer: int, gpu_va: int, held_in: str) -> None:
        """Record that a stale copy of a line was read."""
        self.board.log.note(
            "gl", "stale", "line {:#x}: a stale copy is read from {}; it was written since by {} and not invalidated",
            gpu_va, held_in, self._writer(pointer),
        )  # fmt: skip

    def note_early(self, pointer: int, gpu_va: int) -> None:
        """Record that bytes of a line were read while a store of another compute unit to them was in flight."""
        self.board.log.note(
            "gl", "stale", "line {:#x}: old bytes are read while a store of another compute unit is in flight; its wave "
            "has not waited on storecnt", gpu_va,
        )  # fmt: skip

    def _writer(self, pointer: int) -> str:
        at = pointer - self._second.span.pointer
        found = (client for first, end, client in reversed(self._stores) if first < at + LINE and at < end)
        return next(found, "a kernel or the host")

    def keep(self, pointer: int, size_bytes: int, *, code: bool) -> None:
        """Record the bytes that a kernel has just read; a stale copy stays."""
        lines = self._code if code else self._data
        if pointer not in lines:
            lines[pointer] = Line(host_bytes(pointer, size_bytes).copy())
        else:
            held = lines[pointer]
            held.scalar = held.gl0 = held.gl1 = True


class CachedMemory:
    """A VMID's memory as the cores see it through the caches, one line at a time. Implements `shader.state.Memory`."""

    def __init__(self, hub: Translator, vmid: int, client: str, caches: Caches) -> None:
        self._inner, self._hub, self._vmid, self._caches = HubMemory(hub, vmid, client), hub, vmid, caches
        # size and epoch, by host address and whether it is code
        self._read: dict[tuple[int, bool], tuple[int, int]] = {}

    @property
    def epoch(self) -> int:
        """Grows whenever earlier regions may be wrong."""
        return self._inner.epoch + self._caches.epoch

    @property
    def scoped(self) -> ScopedMemory | None:
        """The first level of each compute unit, if accesses have scopes."""
        return self._caches.units

    def region(self, gpu_va: int, write: bool, execute: bool = False) -> Region:
        """Return the line that contains `gpu_va`, or consecutive lines of code. If accesses have scopes, data are those
        of the second level.
        """
        whole = self._inner.region(gpu_va, write, execute)
        at = whole.gpu_va if execute else gpu_va // LINE * LINE
        size = min(whole.size_bytes, CODE_BYTES) if execute else LINE
        pointer = self._second_level(whole, at, size, write=write)
        if not write and (execute or self.scoped is None):
            self._read[pointer, execute] = size, self._caches.board.host.epoch
            pointer = self._caches.seen(pointer, size, at, code=execute)
        return Region(at, size, pointer, whole.writable, whole.executable)

    def _second_level(self, whole: Region, at: int, size_bytes: int, *, write: bool) -> int:
        vram, pointer = self._caches.board.vram, whole.pointer + at - whole.gpu_va
        vram_pa = pointer - vram.span.pointer
        flags = self._hub.piece(self._vmid, whole.gpu_va, write).flags
        if not 0 <= vram_pa < vram.size_bytes or not self._hub.form.is_cached(flags):
            return pointer
        return self._caches.fill(vram_pa, size_bytes // LINE, write=write)

    def retire(self) -> None:
        """End a dispatch: the lines it has read stay in the first level."""
        for (pointer, code), (size, epoch) in self._read.items():
            if epoch == self._caches.board.host.epoch:
                # else the host may have unmapped that memory
                self._caches.keep(pointer, size, code=code)
        self._read.clear()
