"""The scheduler in the compute firmware of GFX9 (HWS): amdkfd gives it a list of processes and their queues, through a
queue of the KIQ's kind (HIQ) on every graphics core. A queue has a descriptor for each core. All cores run an
AQL queue together (`team.py`), each a share of every grid. A PM4 queue runs on the core that its descriptor names.

Source: kfd_packet_manager_v9.c, kfd_pm4_headers_aldebaran.h, kfd_pm4_headers_ai.h, kfd_mqd_manager_v9.c
(init_mqd_v9_4_3), kfd_device_queue_manager.c. A list that needs more process numbers or slots than there are is not run
in turns here: the rest waits for the next list.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ringup.autogen.amd import pm4, pm4_queues
from ringup.silicon.amd.gc.cp.pm4_decode import Packet, Rule, packet_dwords, reserved
from ringup.silicon.amd.gc.cp.queue import Queue
from ringup.silicon.amd.gc.grbm import Slot
from ringup.silicon.amd.gc.hqd import HALF, LOW
from ringup.silicon.common.cells import block_map

if TYPE_CHECKING:
    from ringup.silicon.amd.gc.cp.mes import SdmaQueues
    from ringup.silicon.amd.gc.cp.pm4_parser import Parser
    from ringup.silicon.amd.gc.cp.processor import Cp

CLIENT = "CPC"
VMIDS = 16
TO_SLOTS = 1  # queue_sel: the firmware chooses the slot
FIRST_ENGINE = 1  # user queues are on the first micro engine
DIES, NODES_PER_DIE = 4, 4
SECOND_EIGHT = pm4_queues.extended_engine_sel__mes_map_queues__sdma8_to_15_sel
# of a copy engine, after the kernel's two
FIRST_USER_QUEUE = 2


class Body(NamedTuple):
    """MAP_PROCESS after its first dword, as struct pm4_mes_map_process_aldebaran has it."""

    table_low: int
    table_high: int
    sh_mem_bases: int
    sh_mem_config: int
    trap_low: int
    trap_high: int
    trap_memory_low: int
    trap_memory_high: int


@dataclass(slots=True)
class Resources:
    """What SET_RESOURCES gave: VMIDs, and slots by number: engine, pipe, queue."""

    vmids: int = 0
    queues: int = 0


@dataclass(slots=True)
class RunList:
    """What a core runs of the last list. `copiers`: the copy engines, whose queues the first core's firmware maps."""

    copiers: tuple[SdmaQueues, ...] = ()
    resources: Resources = field(default_factory=Resources)
    vmids: dict[int, int] = field(default_factory=dict)  # by process id
    mapped: list[Slot] = field(default_factory=list)
    copies: dict[int, tuple[int, int]] = field(default_factory=dict)  # by descriptor: engine, queue

    def reset(self) -> None:
        """Forget all processes and queues."""
        self.resources = Resources()
        self.vmids.clear()
        self.mapped.clear()
        self.copies.clear()


def set_resources(parser: Parser, packet: Packet) -> None:
    """Take what the scheduler may use."""
    control = pm4_queues.SET_RESOURCES_CONTROL(packet.body[0])
    if control.queue_type == pm4_queues.queue_type__mes_set_resources__hsa_interface_queue_hiq:
        parser.cp.run_list.resources = Resources(control.vmid_mask, packet.body[1] | packet.body[2] << 32)


def run_list(parser: Parser, packet: Packet) -> Iterator[float]:
    """Run the processes and queues of a list."""
    control = pm4_queues.RUN_LIST_CONTROL(packet.body[2])
    if not control.valid:
        return
    base = packet.address(0)
    data = parser.cp.hub.read(0, base, 4 * control.ib_size, CLIENT)
    words = struct.unpack(f"<{control.ib_size}I", data)
    at, vmid = 0, 0
    while at < len(words):
        size = packet_dwords(words[at])
        if not size or at + size > len(words):
            raise reserved(f"{packet}: dword {at} of the list, {words[at]:#x}, begins no packet")
        opcode, body = words[at] >> 8 & 0xFF, words[at + 1 : at + size]
        if opcode == pm4.MAP_PROCESS:
            vmid = _map_process(parser, body)
            yield 1.0
        elif opcode == pm4.MAP_QUEUES:
            _map_queue(parser, Packet(words[at], body, base + 4 * at, "MAP_QUEUES"), vmid)
            yield 1.0
        elif opcode == pm4.RUN_LIST:
            # the list goes on at its start: there is more of it than fits at once
            return
        elif opcode != pm4.NOP:
            raise reserved(f"{packet}: opcode {opcode:#x} in a list")
        at += size


def _map_process(parser: Parser, body: tuple[int, ...]) -> int:
    """Give a process a VMID and set it up; 0 if none is free."""
    cp = parser.cp
    listed = cp.run_list
    pasid = pm4_queues.MAP_PROCESS_CONTROL(body[0]).pasid
    vmid = listed.vmids.get(pasid, 0)
    if not vmid:
        used = set(listed.vmids.values())
        free = [number for number in range(1, VMIDS) if listed.resources.vmids >> number & 1 and number not in used]
        if not free:
            cp.board.log.note("cp", "queue", "process {} waits: no VMID is free", pasid)
            return 0
        vmid = listed.vmids[pasid] = free[0]
    _set_up(cp, vmid, pasid, Body(*body[1:9]))
    return vmid


def _set_up(cp: Cp, vmid: int, pasid: int, process: Body) -> None:
    """Set a VMID's page tables in the core's hub and, from the first core, in those of the dies; its process id, shader
    memory and trap handler.
    """
    space, number = cp.board.space, cp.cells.get("CP_HYP_XCP_CTL", "VIRTUAL_XCC_ID")
    hubs: list[dict[str, int]] = [block_map(cp.board.chip, "gc", 0).addresses]
    nodes = [number // 2 * NODES_PER_DIE + number % 2 + 1]
    if not number:
        hubs += [block_map(cp.board.chip, "mmhub", die).addresses for die in range(DIES)]
        nodes += [die * NODES_PER_DIE for die in range(DIES)]
    for places in hubs:
        for half, value in (("LO32", process.table_low), ("HI32", process.table_high)):
            space.write(places[f"VM_CONTEXT{vmid}_PAGE_TABLE_BASE_ADDR_{half}"], value)
    table = block_map(cp.board.chip, "osssys", 0).addresses
    for node in nodes:
        space.write(table["IH_VMID_LUT_INDEX"], node)
        for suffix in ("", "_MM"):
            space.write(table[f"IH_VMID_{vmid}_LUT{suffix}"], pasid)
    first = hubs[0]
    with cp.grbm.acting(Slot(FIRST_ENGINE, 0, 0), vmid):
        for name, value in (
            ("SH_MEM_BASES", process.sh_mem_bases), ("SH_MEM_CONFIG", process.sh_mem_config),
            ("SQ_SHADER_TBA_LO", process.trap_low), ("SQ_SHADER_TBA_HI", process.trap_high),
            ("SQ_SHADER_TMA_LO", process.trap_memory_low), ("SQ_SHADER_TMA_HI", process.trap_memory_high),
        ):  # fmt: skip
            space.write(first[name], value)


def _map_queue(parser: Parser, packet: Packet, vmid: int) -> None:
    """Connect this core's descriptor of a queue to a free slot."""
    cp = parser.cp
    control = pm4_queues.MAP_QUEUES_CONTROL(packet.body[0])
    number = cp.cells.get("CP_HYP_XCP_CTL", "VIRTUAL_XCC_ID")
    if control.engine_sel or control.extended_engine_sel:
        if not number:
            _map_copies(cp, packet, control, vmid)
        return
    if control.queue_sel != TO_SLOTS or not vmid:
        cp.board.log.note("cp", "queue", "a queue of {} waits", packet)
        return
    layout = cp.row.generation.compute_mqd
    mqd: Any = layout.view(bytearray(cp.hub.read(0, packet.address(2), layout.SIZE, CLIENT)))
    if not mqd.cp_hqd_aql_control & 1 and number != mqd.pm4_target_xcc_in_xcp:
        return
    descriptor = packet.address(2) + number * mqd.cp_mqd_stride_size
    doorbell = pm4_queues.MAP_QUEUES_CONTROL2(packet.body[1]).doorbell_offset
    if any(cp.queues[slot].hqd.mqd_address == descriptor for slot in cp.run_list.mapped if cp.queues[slot].connected):
        return
    for slot in _free_slots(cp):
        wrong = cp.map_queue(slot, descriptor, packet.address(4, 8), doorbell, vmid, wptr_vmid=vmid)
        if wrong:
            parser.note("{}: not mapped", wrong)
        else:
            cp.run_list.mapped.append(slot)
        return
    cp.board.log.note("cp", "queue", "the queue of doorbell {:#x} waits for a slot", doorbell)


def _map_copies(cp: Cp, packet: Packet, control: Any, vmid: int) -> None:
    """Activate a copy engine's queue. Source: pm_map_queues_v9 (numbers of engines), kfd_mqd_manager_v9.c."""
    engine = control.engine_sel + 8 * (control.extended_engine_sel == SECOND_EIGHT)
    # the first two have numbers of older firmware
    if not control.extended_engine_sel:
        engine -= pm4_queues.engine_sel__mes_map_queues__sdma0_vi
    mqd, layout = packet.address(2), cp.row.generation.sdma_mqd
    listed = cp.run_list
    if engine >= len(listed.copiers) or mqd in listed.copies or not vmid:
        return
    image = bytearray(cp.hub.read(0, mqd, layout.SIZE, CLIENT))
    descriptor: Any = layout.view(image)
    pointer = int.from_bytes(cp.hub.read(vmid, packet.address(4, 8), 8, CLIENT), "little")
    descriptor.sdmax_rlcx_rb_wptr, descriptor.sdmax_rlcx_rb_wptr_hi = pointer & 0xFFFF_FFFF, pointer >> 32
    number = FIRST_USER_QUEUE + descriptor.sdma_queue_id
    listed.copiers[engine].map_queue(number, bytes(image), vmid)
    listed.copies[mqd] = engine, number


def _unmap_copies(cp: Cp) -> None:
    place = cp.row.generation.sdma_mqd.offset_of("sdmax_rlcx_rb_rptr")
    for mqd, (engine, number) in cp.run_list.copies.items():
        pointer = cp.run_list.copiers[engine].unmap_queue(number)
        cp.hub.write(0, mqd + place, pointer.to_bytes(8, "little"), CLIENT)
    cp.run_list.copies.clear()


def _free_slots(cp: Cp) -> Iterator[Slot]:
    mask, row = cp.run_list.resources.queues, cp.row
    for slot, queue in cp.queues.items():
        # as amdgpu numbers them: amdgpu_gfx_mec_queue_to_bit
        bit = ((slot.me - 1) * row.mec_pipes + slot.pipe) * row.queues_per_pipe + slot.queue
        if slot.me == FIRST_ENGINE and mask >> bit & 1 and not queue.connected:
            yield slot


def listed_queues(cp: Cp) -> list[Queue]:
    """Return the connected queues of processes, and forget them and their VMIDs: they are unmapped now."""
    found = [cp.queues[slot] for slot in cp.run_list.mapped if cp.queues[slot].connected]
    _unmap_copies(cp)
    cp.run_list.mapped.clear()
    cp.run_list.vmids.clear()
    return found


def follows(parser: Parser) -> bool:
    """Whether the queue is an HIQ of a core that leaves it to the first core of its partition to answer.

    GUESS: such a queue has no_update_rptr set, which the "Master XCC" lacks: kfd_mqd_manager_v9.c,
    init_mqd_hiq_v9_4_3. That the other cores do not answer follows from amdkfd's use: it waits for one fence of all
    cores, frees the queues' memory then, and uses the fence again.
    """
    cp, hqd = parser.cp, parser.hqd
    return hqd.slot in cp.orders and cp.number > 0 and bool(hqd.field(hqd.names.control, hqd.names.no_rptr))


def all_obeyed(parser: Parser) -> bool:
    """Whether every core with an HIQ of the same ring has come as far in it."""
    base, here = parser.hqd.base, parser.hqd.rptr
    others = [cp.queues[slot] for cp in parser.cp.cores for slot in cp.orders]
    same = [queue.hqd for queue in others if queue.connected and queue.hqd.base == base]
    return all((hqd.rptr - here & LOW) < HALF for hqd in same)


RULES_9: dict[int, Rule] = {
    pm4.RUN_LIST: Rule(run_list, (2, 2), "k"),
}
