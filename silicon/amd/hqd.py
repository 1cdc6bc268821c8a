"""Hardware queue descriptors (HQD): the registers of one queue slot, its ring and pointers, and its memory image, the MQD.

Pointers count dwords. The write pointer has 64 bits and never wraps; the read pointer has 32; the place in the ring is the pointer modulo
the ring's size. Queues of AQL packets count dwords in these registers too, but packets in memory and at the doorbell.
Source: amdgpu gfx_v11_0.c (compute_mqd_init, gfx_mqd_init, kiq_init_register), v11_structs.h, gc_11_0_0 headers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from ringup.autogen.amd import mqd
from ringup.autogen.layout import Struct
from ringup.errors import Unmodelled
from ringup.silicon.amd.grbm import PER_QUEUE_PREFIXES, Slot
from ringup.silicon.amd.parts import Hub
from ringup.silicon.cells import Cells, block_map

LOW = 0xFFFF_FFFF
HALF = 1 << 31
SLOT_DWORDS = {0: 1, 2: 16}  # CP_HQD_PQ_CONTROL.slot_based_wptr; amdkfd sets 2 for AQL. UNKNOWN: 1


@dataclass(frozen=True, eq=False)
class Names:
    """How a kind of queue calls what every queue has. Addresses are a low and a high register."""

    mqd: type[Struct]
    active: str
    vmid: str
    control: str
    size: str  # field of control: log2 of the ring's dwords, less one
    no_rptr: str  # field of control: the read pointer is not written to memory
    base: tuple[str, str]  # in units of 256 bytes
    rptr: str
    wptr: tuple[str, str]
    report: tuple[str, str]
    poll: tuple[str, str]
    doorbell: str
    mqd_base: tuple[str, str]
    dequeue: str
    members: dict[str, str]  # MQD members whose register is not their own name in capitals


COMPUTE = Names(
    mqd.v11_compute_mqd, "CP_HQD_ACTIVE", "CP_HQD_VMID", "CP_HQD_PQ_CONTROL", "queue_size", "no_update_rptr",
    ("CP_HQD_PQ_BASE", "CP_HQD_PQ_BASE_HI"), "CP_HQD_PQ_RPTR", ("CP_HQD_PQ_WPTR_LO", "CP_HQD_PQ_WPTR_HI"),
    ("CP_HQD_PQ_RPTR_REPORT_ADDR", "CP_HQD_PQ_RPTR_REPORT_ADDR_HI"), ("CP_HQD_PQ_WPTR_POLL_ADDR", "CP_HQD_PQ_WPTR_POLL_ADDR_HI"),
    "CP_HQD_PQ_DOORBELL_CONTROL", ("CP_MQD_BASE_ADDR", "CP_MQD_BASE_ADDR_HI"), "CP_HQD_DEQUEUE_REQUEST", {},
)  # fmt: skip
GRAPHICS = Names(
    mqd.v11_gfx_mqd, "CP_GFX_HQD_ACTIVE", "CP_GFX_HQD_VMID", "CP_GFX_HQD_CNTL", "rb_bufsz", "rb_no_update",
    ("CP_GFX_HQD_BASE", "CP_GFX_HQD_BASE_HI"), "CP_GFX_HQD_RPTR", ("CP_GFX_HQD_WPTR", "CP_GFX_HQD_WPTR_HI"),
    ("CP_GFX_HQD_RPTR_ADDR", "CP_GFX_HQD_RPTR_ADDR_HI"), ("CP_RB_WPTR_POLL_ADDR_LO", "CP_RB_WPTR_POLL_ADDR_HI"),
    "CP_RB_DOORBELL_CONTROL", ("CP_GFX_MQD_BASE_ADDR", "CP_GFX_MQD_BASE_ADDR_HI"), "CP_GFX_HQD_DEQUEUE_REQUEST",
    {"cp_mqd_base_addr": "CP_GFX_MQD_BASE_ADDR", "cp_mqd_base_addr_hi": "CP_GFX_MQD_BASE_ADDR_HI"},
)  # fmt: skip


@cache
def mqd_registers(names: Names, chip: str) -> tuple[tuple[int, str], ...]:
    """List which dword of an MQD is which register of the queue."""
    registers = block_map(chip, "gc", 0).addresses
    found = []
    for item in names.mqd.LAYOUT.split():
        member, _, place = item.partition(":")
        name = names.members.get(member, member.upper())
        if name not in registers:
            name = name.removesuffix("_LO")
        if name in registers and name.startswith(PER_QUEUE_PREFIXES):
            found.append((int(place.partition("@")[2]) // 4, name))
    return tuple(found)


class Hqd:
    """The registers of one slot, by what they mean."""

    def __init__(self, cells: Cells, slot: Slot, names: Names) -> None:
        self.cells, self.slot, self.names = cells, slot, names

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

    # --- what queues have ---------------------------------------------------------------------------------------
    @property
    def active(self) -> bool:
        """Whether a queue is connected."""
        return bool(self.get(self.names.active) & 1)

    @active.setter
    def active(self, value: bool) -> None:
        self.set(self.names.active, int(value))

    @property
    def vmid(self) -> int:
        """The VMID of the ring and of what it reports to."""
        return self.get(self.names.vmid) & 15

    @property
    def base(self) -> int:
        """The gpu_va of the ring."""
        return self.pair(self.names.base) << 8 & (1 << 48) - 1

    @property
    def size_dwords(self) -> int:
        """The ring's size: two to the power of the field and one."""
        return 2 << self.field(self.names.control, self.names.size)

    @property
    def privileged(self) -> bool:
        """Whether packets of the ring may reach privileged registers."""
        if self.names is COMPUTE:
            return self.vmid == 0 or bool(self.field(self.names.control, "priv_state"))
        return not self.field(self.names.control, "rb_non_priv")

    @property
    def rptr(self) -> int:
        """The read pointer."""
        return self.get(self.names.rptr)

    @rptr.setter
    def rptr(self, value: int) -> None:
        self.set(self.names.rptr, value & LOW)

    @property
    def wptr(self) -> int:
        """The write pointer."""
        return self.pair(self.names.wptr)

    @wptr.setter
    def wptr(self, value: int) -> None:
        self.set(self.names.wptr[0], value & LOW)
        self.set(self.names.wptr[1], value >> 32)

    @property
    def slot_dwords(self) -> int:
        """What the write pointer in memory and the doorbell count: dwords, or AQL packets of 16."""
        if self.names is not COMPUTE:
            return 1
        kind = self.field(self.names.control, "slot_based_wptr")
        if kind not in SLOT_DWORDS:
            raise Unmodelled(f"CP_HQD_PQ_CONTROL.slot_based_wptr {kind}")
        return SLOT_DWORDS[kind]

    def ring(self, value: int, size_bytes: int) -> None:
        """Move the write pointer as a doorbell of 4 or 8 bytes says.

        A queue of packets is told the number of the last packet, not of the next, and producers that ring out of turn do not move it back.
        Source: ROCR-Runtime amd_aql_queue.cpp, StoreRelaxed: doorbells with AQL semantics take the number that the legacy ones add 1 to.
        """
        if self.slot_dwords == 1:
            self.wptr = value if size_bytes == 8 else self.wptr & ~LOW | value & LOW
            return
        now = self.wptr // self.slot_dwords
        if size_bytes != 8:
            value = now + ((value - now + HALF & LOW) - HALF)  # the nearest of those with these 32 bits
        if value >= now:
            self.take_pointer(value + 1)

    def take_pointer(self, value: int) -> None:
        """Take the write pointer that memory holds: the number of the first dword, or packet, that is not there yet."""
        self.wptr = value * self.slot_dwords & (1 << 64) - 1

    @property
    def pending_dwords(self) -> int:
        """How many dwords of the ring wait: how far the write pointer is ahead, modulo the read pointer's 32 bits.

        UNKNOWN: a pointer that is more than a ring ahead (a mistake, or a stale read pointer). Here places in the ring are what counts then.
        """
        ahead, size = self.ahead_dwords, self.size_dwords
        return ahead if ahead <= size else ahead % size

    @property
    def ahead_dwords(self) -> int:
        """How far the write pointer is ahead, modulo the read pointer's 32 bits."""
        return (self.wptr - self.rptr) & LOW

    @property
    def doorbell_index(self) -> int:
        """The doorbell it listens to, -1 for none."""
        if not self.field(self.names.doorbell, "doorbell_en"):
            return -1
        return self.field(self.names.doorbell, "doorbell_offset")

    @property
    def report_address(self) -> int:
        """Where the read pointer is written, 0 for nowhere."""
        if self.field(self.names.control, self.names.no_rptr):
            return 0
        return self.pair(self.names.report) & (1 << 48) - 4

    @property
    def poll_address(self) -> int:
        """Where the write pointer may be read from memory."""
        return self.pair(self.names.poll) & (1 << 48) - 4

    @property
    def mqd_address(self) -> int:
        """The gpu_va (VMID of CP_MQD_CONTROL) of the queue's memory image."""
        return self.pair(self.names.mqd_base) & (1 << 48) - 4

    # --- MQD ----------------------------------------------------------------------------------------------------
    def load(self, hub: Hub, gpu_va: int, client: str) -> None:
        """Fill the registers from an MQD; a queue that lies there has not begun or was saved there before."""
        words = memoryview(hub.read(0, gpu_va, self.names.mqd.SIZE, client)).cast("I")
        for dword, name in mqd_registers(self.names, self.cells.chip):
            self.set(name, words[dword])
        self.set(self.names.mqd_base[0], gpu_va & LOW)
        self.set(self.names.mqd_base[1], gpu_va >> 32)

    def save(self, hub: Hub, client: str) -> None:
        """Write the registers back to the MQD, the rest of it as it is."""
        gpu_va = self.mqd_address
        image = bytearray(hub.read(0, gpu_va, self.names.mqd.SIZE, client))
        words = memoryview(image).cast("I")
        for dword, name in mqd_registers(self.names, self.cells.chip):
            words[dword] = self.get(name)
        hub.write(0, gpu_va, bytes(image), client)
