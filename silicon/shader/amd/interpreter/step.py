"""State of one instruction of one wave: the argument of every part of the reference engine."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np

from ringup.silicon.shader.amd.decoding.generations import RDNA3, Generation, Orders
from ringup.silicon.shader.amd.decoding.memory_effects import changes_lds, loaded_half
from ringup.silicon.shader.amd.strict.history import InFlight, RuleBroken
from ringup.silicon.shader.common.lanes import some
from ringup.silicon.shader.common.state import (
    GROUP_X,
    WAVE_IN_GROUP,
    Access,
    CachingMemory,
    Counters,
    Dispatch,
    Events,
    Memory,
    MemoryFault,
    Region,
    Scope,
    ScopedMemory,
    Violation,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ringup.silicon.shader.amd.decoding.decode import Instruction
    from ringup.silicon.shader.amd.strict.registers import Registers
    from ringup.silicon.shader.common.launch import Group

    Lanes = NDArray[np.bool_]
    Words = NDArray[np.uint32]
    Bytes = NDArray[np.uint8]
    Addresses = NDArray[np.int64]


# WGPs to which the groups of a grid go in turn; the smallest card of RDNA4 has so many.
WGPS = 16


class Exit(Enum):
    """What a wave does after an instruction.

    The wave's PC is the next instruction's, except after FAULT: then it is that of the instruction that broke a rule.
    """

    NEXT = "continues at once"
    YIELD = "continues after others have run"
    BARRIER = "waits for its group"
    END = "has ended"
    HALT = "is halted"
    FAULT = "broke a rule: the last one in Machine.violations"


class Mapped:
    """A region of memory as the engine reads and writes it."""

    __slots__ = ("data", "end", "region", "start")

    def __init__(self, region: Region) -> None:
        self.region = region
        self.start, self.end = region.gpu_va, region.gpu_va + region.size_bytes
        self.data: Bytes = _host_bytes(region.pointer, region.size_bytes)


@dataclass(slots=True)
class Machine:
    """What the waves of a dispatch share. `trusts_scalars`: strict mode leaves out `scalar_hazards.py`."""

    dispatch: Dispatch
    memory: Memory
    events: Events
    strict: bool = True
    generation: Generation = RDNA3
    counters: Counters = field(default_factory=Counters)
    violations: list[Violation] = field(default_factory=list)
    trusts_scalars: bool = False
    # The instruction cache, by PC.
    code: dict[int, tuple[Instruction, Callable[[Step], Exit], str]] = field(default_factory=dict)
    _mapped: dict[tuple[bool, bool], list[Mapped]] = field(default_factory=dict)
    _epoch: int = -1
    # The memory, if it may have caches.
    _caching: CachingMemory | None = field(init=False)

    def __post_init__(self) -> None:
        self._caching = self.memory if isinstance(self.memory, CachingMemory) else None

    def find(self, gpu_va: int, *, write: bool = False, execute: bool = False, lane: int | None = None) -> Mapped:
        """Return the memory around an address.

        A translation fault raises a `memory` violation, or an `illegal` one for a fetch.
        """
        if self._epoch != self.memory.epoch:
            self._mapped.clear()
            self.code.clear()
            self._epoch = self.memory.epoch
        known = self._mapped.setdefault((write, execute), [])
        for one in known:
            if one.start <= gpu_va < one.end:
                return one
        try:
            region = self.memory.region(gpu_va, write, execute)
        except MemoryFault as fault:
            message = str(fault) if lane is None else f"lane {lane}: {fault}"
            kind = "illegal" if execute else "memory"
            raise RuleBroken(kind, message, lane=lane, gpu_va=gpu_va) from fault
        found = Mapped(region)
        known.insert(0, found)
        del known[16:]
        return found

    @property
    def scoped(self) -> ScopedMemory | None:
        """The caches of the compute units; None if memory has none."""
        return None if self._caching is None else self._caching.scoped

    def settle(self) -> None:
        """Complete all stores: no wave is left."""
        if (scoped := self.scoped) is not None:
            scoped.settle()

    def fetch(self, gpu_va: int, size_bytes: int) -> bytes:
        """Read up to `size_bytes` of code; return fewer bytes if the memory region ends."""
        mapped = self.find(gpu_va, execute=True)
        at = gpu_va - mapped.start
        return mapped.data[at : at + size_bytes].tobytes()

    def read(self, addresses: Addresses, lanes: Lanes, access: Access) -> Bytes:
        """Gather a byte at each of `addresses` (lanes, bytes); the rows of other lanes are zero."""
        found, scoped = np.zeros(addresses.shape, np.uint8), self.scoped
        for mapped, at, where in self._pieces(addresses, lanes, write=False):
            found[where] = mapped.data[at] if scoped is None else scoped.load(mapped.region, at, access)
        return found

    def write(self, addresses: Addresses, lanes: Lanes, data: Bytes, access: Access) -> None:
        """Scatter bytes; nothing is written if one address faults. The highest lane wins at equal addresses."""
        scoped = self.scoped
        for mapped, at, where in self._pieces(addresses, lanes, write=True):
            if scoped is None:
                mapped.data[at] = data[where]
            else:
                scoped.store(mapped.region, at, data[where], access)

    def _pieces(
        self, addresses: Addresses, lanes: Lanes, *, write: bool
    ) -> list[tuple[Mapped, Addresses, NDArray[np.bool_]]]:
        left = np.broadcast_to(lanes[:, None], addresses.shape).copy()
        pieces = []
        while some(left):
            at = int(left.argmax())
            # Rows are lanes, or parts of lanes. A scalar access has one row.
            row, rows = at // addresses.shape[1], addresses.shape[0]
            lane = row * self.dispatch.wave_size // rows if rows > 1 else None
            first = int(addresses.flat[at])
            mapped = self.find(first & 0xFFFF_FFFF_FFFF_FFFF, write=write, lane=lane)
            start = mapped.start - (mapped.start >> 63 << 64)
            offset = addresses - start
            where = left & (offset >= 0) & (offset < mapped.end - mapped.start)
            pieces.append((mapped, offset[where], where))
            left &= ~where
        return pieces

    def count_lines(self, addresses: Addresses, lanes: Lanes) -> None:
        """Count one memory instruction and the 128-byte lines that it accesses."""
        touched = set((addresses[lanes] >> 7).ravel().tolist())
        self.counters.memory_transactions += bool(touched)
        self.counters.cache_lines += len(touched)


@dataclass(slots=True)
class Step:
    """The instruction, and all that it can access."""

    ins: Instruction
    pc: int
    regs: Registers
    group: Group
    machine: Machine

    @property
    def field(self) -> dict[str, int]:
        """The encoding's fields by name."""
        return self.ins.fields

    @property
    def orders(self) -> Orders:
        """The wait counters of each sort of operation."""
        return self.machine.generation.orders

    def access(self, *, least: Scope = Scope.CU, is_scalar: bool = False) -> Access:
        """Say which compute unit accesses memory, and how far the instruction reaches: its scope, but `least` or more.

        GUESS: the groups of a grid go to the WGPs in turn, and the waves of a group to the two compute units in turn.
        """
        words, dispatch = self.regs.words, self.machine.dispatch
        number = 0
        for axis in (2, 1, 0):
            number = number * dispatch.group_count[axis] + int(words[GROUP_X + axis]) - dispatch.group_start[axis]
        unit, scope = number % WGPS, max(Scope(self.field.get("scope", 0)), least)
        if not is_scalar:
            unit = 2 * unit + (int(words[WAVE_IN_GROUP]) & 1 if dispatch.wgp_mode else 0)
        return Access(unit, scope, is_scalar, self.regs.wave.address)

    def issue(
        self,
        order: dict[str, str],
        *,
        cost: int = 1,
        vgprs: Sequence[int] = (),
        sgprs: range = range(0),
        guards: frozenset[str] | None = None,
    ) -> None:
        """Count an operation that completes later.

        Its registers may not be accessed until a wait covers it, in the counters `guards`.
        """
        if "store" in order and (scoped := self.machine.scoped) is not None:
            scoped.issued(self.regs.wave.address)
        if self.regs.tracker is not None:
            half = loaded_half(self.ins) if len(vgprs) == 1 else 0
            vgprs = [one + half for one in vgprs]
            stores = changes_lds(self.ins) and bool(self.regs.wave.exec_mask)
            operation = InFlight(self.ins.mnemonic, self.pc, dict(order), cost, vgprs, sgprs, guards, stores)
            self.regs.tracker.waits.issue(operation)


def _host_bytes(pointer: int, size_bytes: int) -> Bytes:
    return np.ctypeslib.as_array(ctypes.cast(pointer, ctypes.POINTER(ctypes.c_uint8)), (size_bytes,))
