"""Packets of the kernel interface queue (KIQ): map and unmap queues, query their status, invalidate TLBs.

Source: amdgpu gfx_v11_0.c (gfx11_kiq_*), kfd_pm4_headers_ai.h through autogen.amd.pm4_queues, PAL (INVALIDATE_TLBS).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ringup.autogen.amd import pm4, pm4_queues
from ringup.autogen.regdb import open_chip
from ringup.errors import Unmodelled
from ringup.silicon.amd.gc.cp import run_list
from ringup.silicon.amd.gc.cp.pm4_decode import CLIENT_CP, SRC_QUERY_STATUS, Packet, Rule, reserved
from ringup.silicon.amd.gc.cp.queue import Queue, Stop
from ringup.silicon.amd.gc.grbm import Slot
from ringup.silicon.common.cells import block_map, replaced

if TYPE_CHECKING:
    from ringup.silicon.amd.gc.cp.pm4_parser import Parser
    from ringup.silicon.amd.gc.cp.processor import Cp

COMPUTE_ENGINE, GFX_ENGINE, MES_ENGINE = 0, 4, 5  # engine_sel. Source: gfx11_kiq_map_queues
# likewise: a compute queue through which amdkfd gives the orders of the KIQ. Source: kgd_gfx_v9_hiq_mqd_load
HIQ_ENGINE = 1
SDMA_ENGINES = (2, 3)
# `me` in packets, where MES is 2; those of compute: Generation.packet_engines
ME_OF_ENGINE = {GFX_ENGINE: {0: 0}, MES_ENGINE: {2: 3, 3: 3}}
ACTIONS = {0: Stop.SAVE, 1: Stop.RESET, 2: Stop.SAVE}  # preempt, reset, disable process queues
PREEMPT_NO_UNMAP = 3
SPECIFIED, BY_PASID, ALL, ALL_BUT_STATIC = range(4)  # queue_sel of UNMAP_QUEUES
# unit of SET_RESOURCES.unmap_latency: amdgpu writes 10 for "~ 1s"
LATENCY_US = 100_000
# invalidation engine reserved for firmware. Source: amdgpu_gmc.c, allocate_vm_inv_eng
FIRMWARE_ENGINE = 5
# fields of its request register, whose places differ between generations
EVERYTHING = dict.fromkeys(
    ("INVALIDATE_L2_PTES", "INVALIDATE_L2_PDE0", "INVALIDATE_L2_PDE1", "INVALIDATE_L2_PDE2", "INVALIDATE_L1_PTES"), 1
)
# the highest that FLUSH_TYPE of every generation holds. amdgpu uses 0 to 2: enum TLB_FLUSH_TYPE
LAST_FLUSH_TYPE = 3
VMIDS = 16


def set_resources(parser: Parser, packet: Packet) -> None:
    """Take what the queue manager may use. The model keeps only its time limit for a preemption."""
    control = pm4_queues.SET_RESOURCES_CONTROL(packet.body[0])
    if control.unmap_latency:
        parser.cp.unmap_timeout_us = control.unmap_latency * LATENCY_US
    run_list.set_resources(parser, packet)


def map_queues(parser: Parser, packet: Packet) -> None:
    """Connect a queue to the slot named."""
    control, control2 = (
        pm4_queues.MAP_QUEUES_CONTROL(packet.body[0]),
        pm4_queues.MAP_QUEUES_CONTROL2(packet.body[1]),
    )
    if control.engine_sel in SDMA_ENGINES or control.queue_sel:
        raise Unmodelled(f"{packet}: engine_sel {control.engine_sel}, queue_sel {control.queue_sel}")
    compute = control.engine_sel in (COMPUTE_ENGINE, HIQ_ENGINE)
    engines = parser.cp.packet_engines if compute else ME_OF_ENGINE.get(control.engine_sel, {})
    if control.num_queues != 1 or control.me not in engines:
        raise reserved(f"{packet}: {control.num_queues} queues of engine {control.engine_sel}, me {control.me}")
    slot = Slot(engines[control.me], control.pipe, control.queue)
    if control.engine_sel == HIQ_ENGINE:
        parser.cp.orders.add(slot)
    wrong = parser.cp.map_queue(slot, packet.address(2), packet.address(4), control2.doorbell_offset)
    if wrong:
        parser.note("{}: not mapped", wrong)


def _chosen(parser: Parser, packet: Packet) -> list[Queue]:
    """Return the queues that UNMAP_QUEUES names."""
    control, cp = pm4_queues.UNMAP_QUEUES_CONTROL(packet.body[0]), parser.cp
    if control.engine_sel in SDMA_ENGINES:
        raise Unmodelled(f"{packet}: SDMA queues")
    if control.queue_sel == SPECIFIED:
        doorbells = [word >> 2 & 0x3FF_FFFF for word in packet.body[1 : 1 + control.num_queues]]
        if not doorbells:
            raise reserved(f"{packet}: no queue named")
        found = [cp.find_doorbell(doorbell) for doorbell in doorbells]
        for doorbell, queue in zip(doorbells, found, strict=True):
            if queue is None:
                parser.note("no queue listens to doorbell {:#x}", doorbell)
        return [queue for queue in found if queue is not None]
    if control.queue_sel == BY_PASID:
        raise Unmodelled(f"{packet}: queues by process")
    # through an HIQ a driver unmaps what it has mapped there, not the kernel's queues
    if parser.hqd.slot in cp.orders:
        return run_list.listed_queues(cp)
    engines = cp.row.generation.microengines
    return [
        queue
        for slot, queue in cp.queues.items()
        if queue.connected and slot.me in engines and queue is not parser.queue
    ]


def unmap_queues(parser: Parser, packet: Packet) -> Iterator[float]:
    """Disconnect queues and wait until they are off; reset a queue that does not stop in time."""
    control = pm4_queues.UNMAP_QUEUES_CONTROL(packet.body[0])
    queues = _chosen(parser, packet)
    if control.action == PREEMPT_NO_UNMAP:
        parser.write_number(packet.address(2), packet.body[4])
        return
    yield from stop_queues(parser.cp, queues, ACTIONS[control.action])


def stop_queues(cp: Cp, queues: list[Queue], how: Stop) -> Iterator[float]:
    """Disconnect queues; reset those that still run after the time that SET_RESOURCES allows."""
    for queue in queues:
        queue.stop(how)
    end_ns = cp.board.clock.now_ns + cp.unmap_timeout_us * 1_000
    wait = 2.0
    while any(queue.connected for queue in queues):
        yield wait
        wait = min(wait * 1.5, 100.0)
        if cp.board.clock.now_ns >= end_ns:
            for queue in queues:
                if queue.connected:
                    cp.board.log.note("cp", "violation", "queue {} did not stop in time and is reset", queue.hqd.slot)
                    queue.stop(Stop.RESET)
            end_ns = cp.board.clock.now_ns + 1_000_000


def query_status(parser: Parser, packet: Packet) -> Iterator[float]:
    """Answer with a fence, an interrupt, or both. Orders to several cores are answered once, when all have obeyed."""
    control = pm4_queues.QUERY_STATUS_CONTROL(packet.body[0])
    if run_list.follows(parser):
        return
    yield from parser.poll(lambda: run_list.all_obeyed(parser), lambda: "all cores must come as far in their orders")
    if control.command != pm4_queues.command__mes_query_status__interrupt_only:
        parser.write_number(packet.address(2, 8), packet.body[4] | packet.body[5] << 32, 8)
    if control.command in (0, 3):
        parser.cp.interrupts.interrupt(
            CLIENT_CP, SRC_QUERY_STATUS, ring_id=parser.hqd.slot.ring_id, data=(control.context_id,)
        )


def invalidate_tlbs(parser: Parser, packet: Packet) -> Iterator[float]:
    """Invalidate the TLBs of all VMIDs, or of those of one process."""
    control = pm4.INVALIDATE_TLBS_CONTROL(packet.body[0])
    if control.flush_type > LAST_FLUSH_TYPE:
        raise reserved(f"{packet}: flush_type {control.flush_type}")
    mask = (1 << VMIDS) - 1 if control.dst_sel == 0 else vmids_of(parser.cp, control.pasid)
    yield from flush(parser.cp, mask, control.flush_type, all_hubs=bool(control.all_hub))


def vmids_of(cp: Cp, pasid: int) -> int:
    """Return the mask of VMIDs that the interrupt handler's table assigns to a process."""
    table = block_map(cp.board.chip, "osssys", 0).addresses
    found = 0
    for vmid in range(1, VMIDS):
        if cp.board.space.read(table[f"IH_VMID_{vmid}_LUT"]) & 0xFFFF == pasid:
            found |= 1 << vmid
    return found


def flush(cp: Cp, mask: int, flush_type: int, all_hubs: bool = False) -> Iterator[float]:
    """Invalidate translations as the firmware does: write the request register of its own engine, then wait for the
    acknowledge bits.
    """
    generation, space, chip = cp.row.generation, cp.board.space, cp.board.chip
    for block, places, prefix in _hubs(chip, generation.hubs if all_hubs else generation.hubs[:1]):
        name = f"{prefix}VM_INVALIDATE_ENG{FIRMWARE_ENGINE}"
        semaphore = places[f"{name}_SEM"]
        # GFX9's hubs lose nothing while power gated: gmc_v9_0.c, use_invalidate_semaphore
        guarded = prefix == "MM"
        while guarded and not space.read(semaphore) & 1:
            yield 1.0
        asked = {"PER_VMID_INVALIDATE_REQ": mask, "FLUSH_TYPE": flush_type} | EVERYTHING
        space.write(places[f"{name}_REQ"], replaced(chip, block, f"{name}_REQ", 0, **asked))
        while space.read(places[f"{name}_ACK"]) & mask != mask:
            yield 1.0
        if guarded:
            space.write(semaphore, 0)


def _hubs(chip: str, blocks: Iterable[tuple[str, str]]) -> Iterator[tuple[str, dict[str, int], str]]:
    """Yield block, registers and their prefix of every VM hub that a firmware flushes: the core's own, and the memory
    hub of every die.
    """
    for block, prefix in blocks:
        place = next(place for place in open_chip(chip).row.places if place.block == block)
        for instance in range(1 if block == "gc" else len(place.bases)):
            yield block, block_map(chip, block, instance).addresses, prefix


RULES: dict[int, Rule] = {
    pm4.SET_RESOURCES: Rule(set_resources, (6, 6), "k"),
    pm4.MAP_QUEUES: Rule(map_queues, (5, 5), "k"),
    pm4.UNMAP_QUEUES: Rule(unmap_queues, (4, 4), "k"),
    pm4.QUERY_STATUS: Rule(query_status, (5, 5), "k"),
    pm4.INVALIDATE_TLBS: Rule(invalidate_tlbs, (0, 0), "mk"),
}
