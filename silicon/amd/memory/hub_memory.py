"""A VMID's memory as the shader cores see it: regions of host addresses."""

from __future__ import annotations

import ctypes
from collections.abc import Hashable
from contextlib import suppress
from typing import Protocol

from ringup.autogen.amd import vm as bits
from ringup.errors import Unmodelled
from ringup.silicon.amd.common.parts import Board
from ringup.silicon.amd.common.pieces import Piece
from ringup.silicon.amd.memory.vm import PAGE_SHIFT, EntryFormat, WalkFault
from ringup.silicon.shader.common.state import MemoryFault, Region

# limit of a region's growth beyond its first page
MERGE_BYTES = 64 << 20
KNOWN_LIMIT = 4096  # cached regions
PERMISSIONS = bits.AMDGPU_PTE_READABLE | bits.AMDGPU_PTE_WRITEABLE | bits.AMDGPU_PTE_EXECUTABLE


class Translator(Protocol):
    """A hub, as used here."""

    board: Board
    form: EntryFormat

    def piece(self, vmid: int, gpu_va: int, write: bool, execute: bool = False) -> Piece:
        """Return where an address lies, or raise `WalkFault`."""
        ...

    def fault(self, vmid: int, gpu_va: int, write: bool, client: str, error: WalkFault) -> None:
        """Record a fault."""
        ...

    def nothing(self, vmid: int, piece: Piece, client: str) -> None:
        """Log an access to an address without memory."""
        ...

    def epoch(self, vmid: int) -> int:
        """Return a number that grows when regions may be wrong."""
        ...

    def translations(self, vmid: int) -> Hashable:
        """Return a value that changes when a VMID's cached translations, or the memory behind them, may have
        changed.
        """
        ...


class HubMemory:
    """A VMID's memory. Adjacent translations of adjacent memory are one region. Implements `shader.state.Memory`."""

    def __init__(self, hub: Translator, vmid: int, client: str) -> None:
        self._hub, self._vmid, self._client = hub, vmid, client
        self._zero, self._void = (
            ctypes.create_string_buffer(1 << PAGE_SHIFT),
            ctypes.create_string_buffer(1 << PAGE_SHIFT),
        )
        # region, and whether the walk after its end failed
        self._known: dict[tuple[int, bool, bool], tuple[Region, bool]] = {}
        # the hub's `translations` for `_known`
        self._known_with: Hashable = None

    @property
    def epoch(self) -> int:
        """Grows whenever earlier regions may be wrong."""
        return self._hub.epoch(self._vmid)

    def region(self, gpu_va: int, write: bool, execute: bool = False) -> Region:
        """Return the region that contains `gpu_va`. The hub records a fault; it is raised as `MemoryFault`."""
        hub, base = self._hub, gpu_va & ~0xFFF
        if (known := self._cached(base, write, execute)) is not None:
            return known
        try:
            piece = hub.piece(self._vmid, base, write, execute)
        except WalkFault as error:
            hub.fault(self._vmid, gpu_va, write, "SQC (inst)" if execute else self._client, error)
            raise MemoryFault(gpu_va, write, f"{error.kind.name} fault: {error.detail}") from error
        # partly resident: reads give zero, writes are dropped
        if piece.space == "zero":
            return Region(base, 1 << PAGE_SHIFT, ctypes.addressof(self._void if write else self._zero), write, False)
        place = self._place(piece, write)
        if place is None:
            hub.nothing(self._vmid, piece, self._client)
            raise MemoryFault(gpu_va, write, f"nothing answers at {piece.space} address {piece.address:#x}")
        untranslated = not piece.flags
        size, is_open = self._grow(base, piece, place, write, execute)
        found = Region(
            base,
            size,
            place[0],
            place[2] and (untranslated or bool(piece.flags & bits.AMDGPU_PTE_WRITEABLE)),
            untranslated or bool(piece.flags & bits.AMDGPU_PTE_EXECUTABLE),
        )
        if not untranslated:
            self._keep(found, is_open, write, execute)
        return found

    def _keep(self, region: Region, is_open: bool, write: bool, execute: bool) -> None:
        now = self._hub.translations(self._vmid)
        if now != self._known_with or len(self._known) >= KNOWN_LIMIT:
            self._known.clear()
            self._known_with = now
        self._known[region.gpu_va, write, execute] = region, is_open

    def _cached(self, base: int, write: bool, execute: bool) -> Region | None:
        """Return a cached region if it is still right: translations are unchanged, and no new page has been mapped
        after its end.
        """
        known = self._known.get((base, write, execute))
        if known is None or self._known_with != self._hub.translations(self._vmid):
            return None
        region, is_open = known
        if is_open:
            with suppress(WalkFault):
                self._hub.piece(self._vmid, base + region.size_bytes, write, execute)
                return None
        return region

    def _place(self, piece: Piece, write: bool) -> tuple[int, int, bool] | None:
        """Return the host address of a piece, how many bytes follow there, and whether they are writable; None if no
        memory answers.
        """
        board = self._hub.board
        if piece.space == "vram":
            return board.vram.span.pointer + piece.address, piece.size_bytes, True
        span = board.host.find(piece.address) if piece.space == "host" else None
        if span is None or not span.readable or (write and not span.writable):
            return None
        if not span.pointer:
            raise Unmodelled(
                f"a shader's access to bus address {piece.address:#x}, which is memory that a virtual machine shares without a descriptor"
            )
        left = min(piece.size_bytes, span.end - piece.address)
        return span.pointer + piece.address - span.base, left, span.writable

    def _grow(
        self, base: int, piece: Piece, place: tuple[int, int, bool], write: bool, execute: bool
    ) -> tuple[int, bool]:
        """Return the size including the following pages of the same memory with the same permissions, and whether the
        walk after them failed.
        """
        pointer, size, writable = place
        while size < MERGE_BYTES:
            try:
                following = self._hub.piece(self._vmid, base + size, write, execute)
            except WalkFault:
                return size, True
            if following.space != piece.space or (following.flags ^ piece.flags) & PERMISSIONS:
                break
            beyond = self._place(following, write)
            if beyond is None or (beyond[0], beyond[2]) != (pointer + size, writable):
                break
            size += beyond[1]
        return size, False
