"""Hardware queue descriptors (HQD): the registers of one queue slot, its ring and pointers, and its memory image, the
MQD.

Pointers count dwords. The write pointer has 64 bits and never wraps; the read pointer has 32 bits. The offset in the
ring is the pointer modulo the ring's size. Queues of AQL packets also count dwords in these registers, but packets in
memory and at the doorbell. Source: amdgpu gfx_v11_0.c (compute_mqd_init, gfx_mqd_init, kiq_init_register),
v11_structs.h, gc_11_0_0 headers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from typing import NamedTuple

from ringup.autogen.layout import Struct
from ringup.errors import Unmodelled
from ringup.silicon.amd.common.parts import Hub
from ringup.silicon.amd.gc.generation import RDNA3, Generation
from ringup.silicon.amd.gc.grbm import PER_QUEUE_PREFIXES, Slot
from ringup.silicon.common.cells import Cells, block_map

LOW = 0xFFFF_FFFF
HALF = 1 << 31
# CP_HQD_PQ_CONTROL.slot_based_wptr; amdkfd sets 2 for AQL. UNKNOWN: 1
SLOT_DWORDS = {0: 1, 2: 16}


@dataclass(frozen=True, eq=False)
class Names:
    """The names of the registers of one kind of queue. An address takes a low and a high register."""

    active: str
    vmid: str
    control: str
    # field of control: log2 of the ring's size in dwords, minus one
    size: str
    # field of control: the read pointer is not written to memory
    no_rptr: str
    base: tuple[str, str]  # in units of 256 bytes
    rptr: str
    wptr: tuple[str, str]
    report: tuple[str, str]
    poll: tuple[str, str]
    doorbell: str
    mqd_base: tuple[str, str]
    dequeue: str
    # MQD members whose register is not the member's name in capitals
    members: dict[str, str]


COMPUTE = Names(
    "CP_HQD_ACTIVE", "CP_HQD_VMID", "CP_HQD_PQ_CONTROL", "queue_size", "no_update_rptr",
    ("CP_HQD_PQ_BASE", "CP_HQD_PQ_BASE_HI"), "CP_HQD_PQ_RPTR", ("CP_HQD_PQ_WPTR_LO", "CP_HQD_PQ_WPTR_HI"),
    ("CP_HQD_PQ_RPTR_REPORT_ADDR", "CP_HQD_PQ_RPTR_REPORT_ADDR_HI"), ("CP_HQD_PQ_WPTR_POLL_ADDR", "CP_HQD_PQ_WPTR_POLL_ADDR_HI"),
    "CP_HQD_PQ_DOORBELL_CONTROL", ("CP_MQD_BASE_ADDR", "CP_MQD_BASE_ADDR_HI"), "CP_HQD_DEQUEUE_REQUEST", {},
)  # fmt: skip
GRAPHICS = Names(
    "CP_GFX_HQD_ACTIVE", "CP_GFX_HQD_VMID", "CP_GFX_HQD_CNTL", "rb_bufsz", "rb_no_update",
    ("CP_GFX_HQD_BASE", "CP_GFX_HQD_BASE_HI"), "CP_GFX_HQD_RPTR", ("CP_GFX_HQD_WPTR", "CP_GFX_HQD_WPTR_HI"),
    ("CP_GFX_HQD_RPTR_ADDR", "CP_GFX_HQD_RPTR_ADDR_HI"), ("CP_RB_WPTR_POLL_ADDR_LO", "CP_RB_WPTR_POLL_ADDR_HI"),
    "CP_RB_DOORBELL_CONTROL", ("CP_GFX_MQD_BASE_ADDR", "CP_GFX_MQD_BASE_ADDR_HI"), "CP_GFX_HQD_DEQUEUE_REQUEST",
    {"cp_mqd_base_addr": "CP_GFX_MQD_BASE_ADDR", "cp_mqd_base_addr_hi": "CP_GFX_MQD_BASE_ADDR_HI"},
)  # fmt: skip


def _mqd(names: Names, generation: Generation) -> type[Struct]:
    if names is COMPUTE:
        return generation.compute_mqd
    # only cores with a graphics engine have such queues
    assert generation.graphics_mqd is not None
    return generation.graphics_mqd


@cache
def mqd_registers(names: Names, generation: Generation, chip: str) -> tuple[tuple[int, str], ...]:
    """List (dword of the MQD, register of the queue) pairs."""
    registers = block_map(chip, "gc", 0).addresses
    found = []
    for item in _mqd(names, generation).LAYOUT.split():
        member, _, place = item.partition(":")
        name = names.members.get(member, member.upper())
        if name not in registers:
            name = name.removesuffix("_LO")
        if name in registers and name.startswith(PER_QUEUE_PREFIXES):
            found.append((int(place.partition("@")[2]) // 4, name))
    return tuple(found)


# of compute_current_logic_xcc_id in struct v9_mqd: v9_structs.h
LOGIC_XCC_DWORD = 39


class Facts(NamedTuple):
    """Decoded registers of a slot that change with its queue, not with its work. Addresses are gpu_va."""

    vmid: int
    base: int
    size_dwords: int
    privileged: bool
    slot_dwords: int  # 0: unknown
    report_address: int
    # the read pointer is reported when a bit from here up has changed
    report_shift: int
    poll_address: int
    doorbell_index: int
    doorbell_hit: bool


class Hqd:
    """The registers of one slot, decoded."""

    def __init__(self, cells: Cells, slot: Slot, names: Names, generation: Generation = RDNA3) -> None:
        self.cells, self.slot, self.names = cells, slot, names
        self.generation, self.mqd = generation, _mqd(names, generation)
        # COMPUTE_CURRENT_LOGIC_XCC_ID, which no header names; -1: never set
        self.logic_xcc = -1
        self._logic_at = LOGIC_XCC_DWORD if "compute_current_logic_xcc_id" in self.mqd.LAYOUT else 0
        self.facts = cells.derived(self._facts)
        self._rptr, self._wptr = cells.place(names.rptr, slot), [cells.place(name, slot) for name in names.wptr]
        self._read_rptr = cells.reader(names.rptr, slot)
        self._read_wptr, self._read_wptr_high = (cells.reader(name, slot) for name in names.wptr)

    def _facts(self) -> Facts:
        names, vmid = self.names, self.get(self.names.vmid) & 15
        control = partial(self.field, names.control)
        if names is COMPUTE:
            privileged = vmid == 0 or bool(control("priv_state"))
            slot_dwords = SLOT_DWORDS.get(control("slot_based_wptr"), 0)
            report_shift = control("rptr_block_size") + 1
        else:
            privileged, slot_dwords, report_shift = not control("rb_non_priv"), 1, control("rb_blksz") + 1
        listens = self.field(names.doorbell, "doorbell_en")
        return Facts(
            vmid,
            base=self.pair(names.base) << 8 & (1 << 48) - 1,
            size_dwords=2 << control(names.size),
            privileged=privileged,
            slot_dwords=slot_dwords,
            report_address=0 if control(names.no_rptr) else self.pair(names.report) & (1 << 48) - 4,
            report_shift=report_shift,
            poll_address=self.pair(names.poll) & (1 << 48) - 4,
            doorbell_index=self.field(names.doorbell, "doorbell_offset") if listens else -1,
            doorbell_hit=bool(self.field(names.doorbell, "doorbell_hit")),
        )

    def get(self, name: str) -> int:
        """Return a register of this slot."""
        return self.cells.of(self.slot, name)

    def set(self, name: str, value: int) -> None:
        """Store a register of this slot."""
        self.cells.set_of(self.slot, name, value)

    def field(self, name: str, field: str) -> int:
        """Return a field of a register of this slot."""
        return self.cells.field(name, field, self.get(name))

    def put(self, name: str, **fields: int) -> None:
        """Store fields of a register of this slot."""
        self.set(name, self.cells.replace(name, self.get(name), **fields))

    def pair(self, names: tuple[str, str]) -> int:
        """Return the 64 bits of two registers."""
        return self.get(names[0]) | self.get(names[1]) << 32

    # --- state of the queue -------------------------------------------------------------------------------------
    @property
    def active(self) -> bool:
        """Whether a queue is connected."""
        return bool(self.get(self.names.active) & 1)

    @active.setter
    def active(self, value: bool) -> None:
        self.set(self.names.active, int(value))

    @property
    def vmid(self) -> int:
        """The VMID of the ring and of the addresses that it reports to."""
        return self.facts().vmid

    @property
    def base(self) -> int:
        """The gpu_va of the ring."""
        return self.facts().base

    @property
    def size_dwords(self) -> int:
        """The ring's size in dwords."""
        return self.facts().size_dwords

    @property
    def privileged(self) -> bool:
        """Whether packets of the ring may reach privileged registers."""
        return self.facts().privileged

    @property
    def rptr(self) -> int:
        """The read pointer."""
        return self._read_rptr()

    @rptr.setter
    def rptr(self, value: int) -> None:
        self.cells.store(self._rptr, value & LOW)

    @property
    def wptr(self) -> int:
        """The write pointer."""
        return self._read_wptr() | self._read_wptr_high() << 32

    @wptr.setter
    def wptr(self, value: int) -> None:
        low, high = self._wptr
        self.cells.store(low, value & LOW)
        self.cells.store(high, value >> 32 & LOW)

    @property
    def slot_dwords(self) -> int:
        """The unit of the write pointer in memory and of the doorbell, in dwords: 1, or 16 for AQL packets."""
        found = self.facts().slot_dwords
        if not found:
            kind = self.field(self.names.control, "slot_based_wptr")
            raise Unmodelled(f"CP_HQD_PQ_CONTROL.slot_based_wptr {kind}")
        return found

    def ring(self, value: int, size_bytes: int) -> None:
        """Move the write pointer after a doorbell write of 4 or 8 bytes.

        An AQL doorbell gives the number of the last packet, not of the next one. Producers that ring out of order do
        not move the pointer back. Source: ROCR-Runtime amd_aql_queue.cpp, StoreRelaxed: doorbells with AQL semantics
        take the number that the legacy ones add 1 to.
        """
        if self.slot_dwords == 1:
            self.wptr = value if size_bytes == 8 else self.wptr & ~LOW | value & LOW
            return
        now = self.wptr // self.slot_dwords
        if size_bytes != 8:
            # the nearest number with these low 32 bits
            value = now + ((value - now + HALF & LOW) - HALF)
        if value >= now:
            self.take_pointer(value + 1)

    def take_pointer(self, value: int) -> None:
        """Take the write pointer from memory: the number of the first dword, or packet, that is not written yet."""
        self.wptr = value * self.slot_dwords & (1 << 64) - 1

    @property
    def pending_dwords(self) -> int:
        """How many dwords of the ring wait to be fetched, modulo the read pointer's 32 bits.

        UNKNOWN: a write pointer more than a ring ahead (a mistake, or a stale read pointer). Here its offset in the
        ring counts then.
        """
        ahead, size = self._read_wptr() - self._read_rptr() & LOW, self.facts().size_dwords
        return ahead if ahead <= size else ahead % size

    @property
    def ahead_dwords(self) -> int:
        """How far the write pointer is ahead of the read pointer, modulo the read pointer's 32 bits."""
        return self._read_wptr() - self._read_rptr() & LOW

    @property
    def doorbell_index(self) -> int:
        """The doorbell of the queue, -1 for none."""
        return self.facts().doorbell_index

    @property
    def doorbell_id(self) -> int:
        """The number that interrupts and messages give of the doorbell: its place among the 1024 of 64 bits that a
        process has. Source: ROCR-Runtime amd_gpu_agent.cpp (doorbell_queue_map_); kfd_int_process_v9.c and v11.c.
        """
        return max(0, self.facts().doorbell_index) >> 1 & 0x3FF

    @property
    def report_address(self) -> int:
        """The address to which the read pointer is written, 0 for none."""
        return self.facts().report_address

    @property
    def poll_address(self) -> int:
        """The address from which the write pointer may be polled."""
        return self.facts().poll_address

    @property
    def mqd_address(self) -> int:
        """The gpu_va (VMID of CP_MQD_CONTROL) of the queue's memory image."""
        return self.pair(self.names.mqd_base) & (1 << 48) - 4

    # --- MQD ----------------------------------------------------------------------------------------------------
    def load(self, hub: Hub, gpu_va: int, client: str) -> None:
        """Fill the registers from the MQD of a new queue, or of one that was saved there."""
        words = memoryview(hub.read(0, gpu_va, self.mqd.SIZE, client)).cast("I")
        for dword, name in mqd_registers(self.names, self.generation, self.cells.chip):
            self.set(name, words[dword])
        if self._logic_at:
            self.logic_xcc = words[self._logic_at]
        self.set(self.names.mqd_base[0], gpu_va & LOW)
        self.set(self.names.mqd_base[1], gpu_va >> 32)

    def preload(self, hub: Hub, client: str) -> None:
        """Fill the registers of dispatches from the MQD, as CP_HQD_PERSISTENT_STATE.preload_req asks for."""
        words = memoryview(hub.read(0, self.mqd_address, self.mqd.SIZE, client)).cast("I")
        for dword, name in mqd_registers(self.names, self.generation, self.cells.chip):
            if name.startswith("COMPUTE_"):
                self.set(name, words[dword])
        if self._logic_at:
            self.logic_xcc = words[self._logic_at]

    def save(self, hub: Hub, client: str) -> None:
        """Write the registers back to the MQD; the rest of it stays."""
        gpu_va = self.mqd_address
        image = bytearray(hub.read(0, gpu_va, self.mqd.SIZE, client))
        words = memoryview(image).cast("I")
        for dword, name in mqd_registers(self.names, self.generation, self.cells.chip):
            words[dword] = self.get(name)
        if self._logic_at and self.logic_xcc >= 0:
            words[self._logic_at] = self.logic_xcc
        hub.write(0, gpu_va, bytes(image), client)
