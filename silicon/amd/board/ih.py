"""The interrupt handler (OSSSYS): two rings of 32-byte entries in memory, write-back of the write pointer, MSIs.

Source: amdgpu vega20_ih.c, ih_v6_0.c (protocol), amdgpu_ih.c (layout of an entry), amdgpu_amdkfd_gc_9_4_3.c (tables of
process ids), osssys_4_4_2 and osssys_6_0_0 headers (registers).
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from ringup.autogen.regdb import open_chip
from ringup.silicon.amd.common.parts import Board, Hub, VmFault
from ringup.silicon.common.cells import Cells

ENTRY = struct.Struct("<8I")
# from an event inside the card to its entry in memory
POSTED_US = 1
TIMESTAMP_HZ = 100_000_000  # the reference clock of the chip
CLIENT = "OSSSYS"  # MMHUB's name for the block
# SOC21_IH_CLIENTID_VMC: its VMIDs belong to MMHUB, which has its own table of process ids
MM_CLIENT = 0x12
# SOC21_IH_CLIENTID_IH: ring 1 has new entries
SELF_CLIENT = 0
VIRTUAL_SPACE = 4  # IH_RB_CNTL.MC_SPACE
# likewise, by the first number of the block's version: vega10_ih_rb_cntl, ih_v6_0_rb_cntl
BUS_SPACES = {4: 1}
BUS_SPACE = 2
# with several dies: the node whose table of process ids accesses select
NODE = "IH_VMID_LUT_INDEX"
VMIDS = 16
POINTER_BITS = 0x3FFFC  # IH_RB_WPTR.OFFSET in place
# entries that IH_RING1_CLIENT_CFG_INDEX selects
RING1_ROUTES = 8
# entries that the block holds back while a ring is full and overflow is disabled
STALLED_LIMIT = 256


class _Settings(NamedTuple):
    """The settings in a ring's registers; they do not change as entries are written."""

    enabled: bool
    # of pointers, which are byte offsets in the ring
    mask: int
    base: int
    space: int
    vmid: int
    writeback: int | None  # where the write pointer is stored
    messages: bool
    rearm: bool


class _Ring:
    """One ring: its registers by suffix, and the entries that wait for space."""

    def __init__(self, cells: Cells, number: int) -> None:
        self.number, self._cells = number, cells
        self.suffix = "_RING1" if number else ""
        self.stalled: deque[bytes] = deque()
        self.settings = cells.derived(self._settings)
        self.rptr, self.wptr = (cells.place(f"IH_RB_{name}{self.suffix}") for name in ("RPTR", "WPTR"))

    def _settings(self) -> _Settings:
        cells, suffix = self._cells, self.suffix
        control = partial(cells.get, f"IH_RB_CNTL{suffix}")
        writes_back = self.number == 0 and control("WPTR_WRITEBACK_ENABLE")
        return _Settings(
            bool(control("RB_ENABLE")),
            # RB_SIZE is log2 of the size in dwords; the pointers have 16 bits
            (4 << control("RB_SIZE")) - 1 & POINTER_BITS,
            (cells[f"IH_RB_BASE{suffix}"] | cells.get(f"IH_RB_BASE_HI{suffix}", "ADDR") << 32) << 8,
            control("MC_SPACE"),
            control("MC_VMID"),
            cells["IH_RB_WPTR_ADDR_LO"] | cells.get("IH_RB_WPTR_ADDR_HI", "ADDR") << 32 if writes_back else None,
            self.number == 0 and bool(control("ENABLE_INTR")),
            self.number == 0 and bool(control("RPTR_REARM")),
        )


class Ih:
    """The block. Implements `parts.InterruptSink` and `parts.DoorbellClient`; it reaches memory through MMHUB."""

    def __init__(
        self, board: Board, hub: Hub, on_msi: Callable[[int], None], on_quiet: Callable[[], None] = lambda: None
    ) -> None:
        """`on_msi` signals the host. `on_quiet` reports that nothing is left to read, which lowers INTx, a level.

        UNKNOWN: what exactly lowers INTx on metal. Here: ring 0 is read to its end, switched off, or reset.
        """
        self.board, self._hub, self._on_msi, self._on_quiet = board, hub, on_msi, on_quiet
        self.cells = cells = Cells(board.chip, "osssys")
        board.space.attach(cells)
        self._rings = (_Ring(cells, 0), _Ring(cells, 1))
        version = next(place.version for place in open_chip(board.chip).row.places if place.block == "osssys")
        self._bus_space = BUS_SPACES.get(int(version.partition(".")[0]), BUS_SPACE)
        self._armed, self._storing = True, False
        self._routes = [0] * RING1_ROUTES
        for ring in self._rings:
            cells.on_write(f"IH_RB_CNTL{ring.suffix}", partial(self._control, ring))
            cells.on_write(f"IH_RB_RPTR{ring.suffix}", partial(self._read_pointer, ring))
        # since 5.0
        if "IH_RING1_CLIENT_CFG_DATA" in cells:
            cells.on_write("IH_RING1_CLIENT_CFG_DATA", self._route)
            cells.on_read("IH_RING1_CLIENT_CFG_DATA", lambda: self._routes[self._index()])
        self._by_node = NODE in cells
        if self._by_node:
            tables = [f"IH_VMID_{vmid}_LUT{suffix}" for vmid in range(VMIDS) for suffix in ("", "_MM")]
            cells.bank(tables, lambda: cells.get(NODE, "INDEX"))
        cells.on_read("IH_STATUS", self._status)

    def reset(self) -> None:
        """Return to power-on: rings off, nothing pending."""
        self.cells.reset()
        for ring in self._rings:
            ring.stalled.clear()
        self._armed = True
        self._routes = [0] * RING1_ROUTES
        self._on_quiet()

    # --- from inside the card -----------------------------------------------------------------------------------
    def interrupt(
        self,
        client_id: int,
        source_id: int,
        *,
        ring_id: int = 0,
        vmid: int = 0,
        pasid: int = 0,
        data: tuple[int, ...] = (),
        node_id: int = 0,
    ) -> None:
        """Queue one entry. The process id comes from the LUT of the client's hub unless the client gives it."""
        # UNKNOWN: how metal handles a fault of its own ring. An entry about it would fault again, for ever.
        if self._storing:
            self.board.log.note("ih", "dropped", "an entry of client {:#x} about a fault of the ring itself", client_id)
            return
        mm = client_id == MM_CLIENT
        table = f"IH_VMID_{vmid}_LUT{'_MM' if mm else ''}"
        known = pasid or (self.cells.of(node_id, table) if self._by_node else self.cells[table])
        time = self.board.clock.ticks(TIMESTAMP_HZ)
        entry = ENTRY.pack(
            client_id | source_id << 8 | ring_id << 16 | vmid << 24 | mm << 31,
            time & 0xFFFF_FFFF,
            time >> 32 & 0xFFFF,
            known & 0xFFFF | node_id << 16,
            *(value & 0xFFFF_FFFF for value in (*data, 0, 0, 0, 0)[:4]),
        )
        ring = self._rings[client_id != SELF_CLIENT and self._is_routed(client_id, source_id)]
        self.board.log.note(
            "ih",
            "interrupt",
            "client {:#x} source {} ring {:#x} vmid {} data {}",
            client_id,
            source_id,
            ring_id,
            vmid,
            data,
        )
        self.board.clock.after(POSTED_US, partial(self._post, ring, entry))

    def _is_routed(self, client_id: int, source_id: int) -> bool:
        """Return whether ring 1 takes a client's source: the ring is on and an entry of the routing table matches."""
        if not self._rings[1].settings().enabled:
            return False
        name, cells = "IH_RING1_CLIENT_CFG_DATA", self.cells
        return any(
            route
            and cells.field(name, "CLIENT_ID", route) == client_id
            and (
                not cells.field(name, "SOURCE_ID_MATCH_ENABLE", route)
                or cells.field(name, "SOURCE_ID", route) == source_id
            )
            for route in self._routes
        )

    # --- registers ----------------------------------------------------------------------------------------------
    def _index(self) -> int:
        return self.cells.get("IH_RING1_CLIENT_CFG_INDEX", "INDEX")

    def _route(self, value: int) -> None:
        self._routes[self._index()] = value

    def _control(self, ring: _Ring, value: int) -> None:
        """Clear an overflow when WPTR_OVERFLOW_CLEAR is set; drop held-back entries when the ring is switched off."""
        name, cells = f"IH_RB_CNTL{ring.suffix}", self.cells
        if cells.field(name, "WPTR_OVERFLOW_CLEAR", value):
            cells.put(f"IH_RB_WPTR{ring.suffix}", RB_OVERFLOW=0)
        if not cells.field(name, "RB_ENABLE", value):
            ring.stalled.clear()
            if ring.number == 0:
                self._armed = True
        if ring.number == 0 and not (cells.field(name, "RB_ENABLE", value) and cells.field(name, "ENABLE_INTR", value)):
            self._on_quiet()

    def _read_pointer(self, ring: _Ring, value: int) -> None:
        """Handle a new read pointer: entries that waited for space are stored, and the next message may be sent."""
        while ring.stalled and not self._is_full(ring):
            self._store(ring, ring.stalled.popleft())
        if ring.number == 0:
            self._armed = True
            if value & self._mask(ring) != self._write_pointer(ring):
                self._signal()
            else:
                self._on_quiet()

    def _status(self) -> int:
        full = self._is_full(self._rings[0]) if self.cells.get("IH_RB_CNTL", "RB_ENABLE") else False
        overflow = self.cells.get("IH_RB_WPTR", "RB_OVERFLOW")
        return self.cells.replace(
            "IH_STATUS", 0, IDLE=1, INPUT_IDLE=1, BUFFER_IDLE=1, MC_WR_IDLE=1, RB_FULL=int(full), RB_OVERFLOW=overflow
        )

    def doorbell(self, index: int, value: int, size_bytes: int) -> bool:
        """Take a ring's read pointer from its doorbell."""
        for ring in self._rings:
            name = f"IH_DOORBELL_RPTR{ring.suffix}"
            if self.cells.get(name, "ENABLE") and self.cells.get(name, "OFFSET") == index:
                pointer = f"IH_RB_RPTR{ring.suffix}"
                self.cells[pointer] = value & self._mask(ring)
                self._read_pointer(ring, value)
                return True
        return False

    # --- rings --------------------------------------------------------------------------------------------------
    def _mask(self, ring: _Ring) -> int:
        return ring.settings().mask

    def _write_pointer(self, ring: _Ring) -> int:
        return self.cells.load(ring.wptr) & POINTER_BITS

    def _is_full(self, ring: _Ring) -> bool:
        mask = self._mask(ring)
        return self._write_pointer(ring) + ENTRY.size & mask == self.cells.load(ring.rptr) & mask

    def _post(self, ring: _Ring, entry: bytes) -> None:
        """Put an entry into its ring. If the ring is full: overwrite and flag it (overflow enabled), drop the entry
        (drain enabled), or hold it back.
        """
        name, cells = f"IH_RB_CNTL{ring.suffix}", self.cells
        if not ring.settings().enabled:
            self.board.log.note("ih", "dropped", "an entry while ring {} is off", ring.number)
            return
        if self._is_full(ring):
            if cells.get(name, "WPTR_OVERFLOW_ENABLE"):
                cells.put(f"IH_RB_WPTR{ring.suffix}", RB_OVERFLOW=1)
                self.board.log.note("ih", "overflow", "ring {} overwrites unread entries", ring.number)
            elif cells.get(name, "RB_FULL_DRAIN_ENABLE") or len(ring.stalled) >= STALLED_LIMIT:
                self.board.log.note("ih", "dropped", "an entry for ring {}, which is full", ring.number)
                return
            else:
                ring.stalled.append(entry)
                return
        self._store(ring, entry)

    def _store(self, ring: _Ring, entry: bytes) -> None:
        """Store an entry and signal it.

        ORDER: the entry, then the pointer in memory, then the message: the host reads the pointer from memory.
        """
        cells, settings = self.cells, ring.settings()
        at = self._write_pointer(ring)
        after = at + ENTRY.size & self._mask(ring)
        try:
            self._to_memory(ring, settings.base + at, entry)
            pointer = cells.load(ring.wptr) & ~POINTER_BITS | after
            cells.store(ring.wptr, pointer)
            if settings.writeback is not None:
                self._to_memory(ring, settings.writeback, pointer.to_bytes(4, "little"))
        except VmFault as fault:
            self.board.log.note("ih", "violation", "ring {} cannot be written: {}", ring.number, fault)
            return
        if ring.number == 0:
            self._signal()
        # ring 1 has neither write-back nor a message of its own: it posts an entry to ring 0
        else:
            self.interrupt(SELF_CLIENT, 0, ring_id=1, data=(after,))

    def _to_memory(self, ring: _Ring, address: int, data: bytes) -> None:
        settings = ring.settings()
        if settings.space == self._bus_space:
            self.board.host.write(address, data)
            return
        self._storing = True
        try:
            self._hub.write(settings.vmid, address, data, CLIENT)
        finally:
            self._storing = False

    def _signal(self) -> None:
        """Send the message. With RPTR_REARM, no second one is sent until the host moves the read pointer."""
        settings = self._rings[0].settings()
        if not settings.messages:
            return
        if settings.rearm:
            if not self._armed:
                return
            self._armed = False
        if not self.board.faults.take("lost_interrupt"):
            self._on_msi(0)
