"""Descriptor of a compute queue (MQD): what the command processor loads into a hardware queue, and where it saves it.

Set up like a user queue in its own VMID, without context save. A queue that several dies of a graphics core (XCCs)
share has a descriptor for each, one page after another. Source: amdkfd kfd_mqd_manager_v11.c (init_mqd, update_mqd),
kfd_mqd_manager_v12.c, kfd_mqd_manager_v9.c (init_mqd_v9_4_3, update_mqd_v9_4_3); amdgpu v11_structs.h, v12_structs.h,
v9_structs.h; gfx_v11_0_compute_mqd_init.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

from ringup.autogen.amd import gc_hqd
from ringup.autogen.amd.mqd import v9_mqd, v11_compute_mqd, v12_compute_mqd
from ringup.autogen.structs import memory
from ringup.drivers.amd.bus.queue_limits import check_addresses, check_ring, check_vmid
from ringup.drivers.amd.bus.registers import Version

HEADER = 0xC031_0800  # Source: gfx_v11_0_compute_mqd_init
# a page: the structure has 2048 bytes, firmware writes behind it. Source: kfd_mqd_manager_v11.c, allocate_mqd
SIZE_BYTES = 4096
# QUIRK: the hardware counts at most 0xff entries of 32 bytes. Source: update_mqd
EOP_MIN_BYTES, EOP_MAX_BYTES = (
    2048,
    8192,
)
RPTR_BLOCK = 5  # the read pointer is reported every 2 << 5 dwords at the latest
DISPATCH_POINTER = 1 << 14  # of CP_HQD_HQ_STATUS0: the packet's address is kept for a debugger. Source: init_mqd
PIPE_PRIORITY, QUEUE_PRIORITY = 1, 7  # the middle ones. Source: kfd_mqd_manager.c, pipe_priority_map
# of a queue with HSA's packets: the firmware reports the read index, pointers count packets. Source: update_mqd
AQL_PQ_CONTROL = MappingProxyType({"no_update_rptr": 1, "slot_based_wptr": 2, "queue_full_en": 1})
CHUNK = 1  # work-groups of a dispatch that a die takes before the next die takes some


class _Row(NamedTuple):
    """What differs by generation: the structure, the shader engines that it names, how many registers the engine
    preloads, what the ring of an HSA queue has.
    """

    struct: type[v9_mqd | v11_compute_mqd | v12_compute_mqd]
    engines: int = 8
    preload_size: int = 0x55
    aql: Mapping[str, int] = AQL_PQ_CONTROL


_ROWS = {
    # the first die reports the read pointer
    9: _Row(v9_mqd, 4, 0x53, MappingProxyType({"slot_based_wptr": 2, "queue_full_en": 1, "wpp_clamp_en": 1})),
    11: _Row(v11_compute_mqd),
    12: _Row(v12_compute_mqd),
}
FIRST_HQD_DWORD = 128  # the descriptor's copy of CP_MQD_BASE_ADDR; the registers that follow lie in the same order


@dataclass(frozen=True, slots=True)
class QueueSpec:
    """The parameters of a compute queue.

    `ring_va`, `rptr_va`, `wptr_va`, `eop_va` are addresses of `vmid`; `mqd_va` is one of VMID 0. The engine stores the
    read pointer (32 bits, dwords) at `rptr_va`. ORDER: the host stores the write pointer (64 bits, dwords) at `wptr_va`
    before it rings the doorbell: a queue that was not on its pipe when the doorbell rang reads it there. `eop_va` is a
    buffer for work that ends out of order. `doorbell_index` counts dwords of BAR 2. `privileged`: packets may access
    privileged registers.

    `aql`: the packets are those of HSA. `rptr_va` and `wptr_va` are then in an `amd_queue_t`, which the engine finds by
    the first one; both count packets, and the doorbell gets the number of the last packet.

    `xcc` of `xccs`: the logical number of the die that the descriptor is for, and how many share the queue.
    """

    ring_va: int
    ring_dwords: int
    rptr_va: int
    wptr_va: int
    eop_va: int
    eop_bytes: int
    mqd_va: int
    vmid: int
    doorbell_index: int
    privileged: bool = False
    aql: bool = False
    xcc: int = 0
    xccs: int = 1

    def of_die(self, xcc: int) -> QueueSpec:
        """Return the parameters of a die's part of the queue: descriptors and EOP buffers lie one after another.

        GUESS: amdkfd gives all dies the same EOP buffer. Its content is of the engine that writes it, so one for each
        does no harm.
        """
        return replace(self, xcc=xcc, mqd_va=self.mqd_va + xcc * SIZE_BYTES, eop_va=self.eop_va + xcc * self.eop_bytes)

    def __post_init__(self) -> None:
        """Refuse values that the registers cannot hold."""
        check_ring(self.ring_dwords)
        if not EOP_MIN_BYTES <= self.eop_bytes <= EOP_MAX_BYTES or self.eop_bytes & self.eop_bytes - 1:
            raise ValueError(
                f"an EOP buffer is a power of two of {EOP_MIN_BYTES} to {EOP_MAX_BYTES} bytes, not {self.eop_bytes}"
            )
        check_addresses(
            ("ring_va", self.ring_va, 256),
            ("eop_va", self.eop_va, 256),
            ("mqd_va", self.mqd_va, 256),
            ("rptr_va", self.rptr_va, 4),
            ("wptr_va", self.wptr_va, 8),
        )
        check_vmid(self.vmid)


def compute_mqd(version: Version, spec: QueueSpec) -> bytes:
    """Return the descriptor of a queue that is not active yet; `version` is the graphics core's."""
    if version[0] not in _ROWS:
        raise ValueError(f"no compute queue descriptor is known for graphics core {version}")
    row = _ROWS[version[0]]
    everywhere = {f"compute_static_thread_mgmt_se{se}": 0xFFFF_FFFF for se in range(row.engines)}
    descriptor = row.struct(
        header=HEADER,
        compute_pipelinestat_enable=1,
        **everywhere,
        **_pointers(spec),
        **_share(spec),
        cp_hqd_vmid=spec.vmid,
        cp_hqd_persistent_state=int(
            gc_hqd.CP_HQD_PERSISTENT_STATE.at(version)(preload_req=1, preload_size=row.preload_size)
        ),
        cp_hqd_pipe_priority=PIPE_PRIORITY,
        cp_hqd_queue_priority=QUEUE_PRIORITY,
        cp_hqd_quantum=int(gc_hqd.CP_HQD_QUANTUM.at(version)(quantum_en=1, quantum_scale=1, quantum_duration=1)),
        cp_hqd_pq_doorbell_control=int(doorbell_control(version, spec, on=False)),
        cp_hqd_pq_control=int(
            gc_hqd.CP_HQD_PQ_CONTROL.at(version)(
                queue_size=spec.ring_dwords.bit_length() - 2,  # 2 << queue_size dwords
                rptr_block_size=RPTR_BLOCK,
                unord_dispatch=1,
                priv_state=spec.privileged,
                kmd_queue=spec.privileged,
                **({"no_update_rptr": 1} if spec.xcc else {}),
                **(row.aql if spec.aql else {}),
            )
        ),
        cp_hqd_aql_control=int(gc_hqd.CP_HQD_AQL_CONTROL.at(version)(control0=spec.aql)),
        cp_hqd_ib_control=int(gc_hqd.CP_HQD_IB_CONTROL.at(version)(min_ib_avail_size=3)),
        cp_hqd_hq_status0=DISPATCH_POINTER,
        cp_mqd_control=int(gc_hqd.CP_MQD_CONTROL.at(version)(priv_state=1)),
        # 2 << eop_size
        cp_hqd_eop_control=int(gc_hqd.CP_HQD_EOP_CONTROL.at(version)(eop_size=(spec.eop_bytes // 4).bit_length() - 2)),
    )
    return bytes(memory(descriptor))


def _pointers(spec: QueueSpec) -> dict[str, int]:
    """Return the addresses of a queue, split into the halves of the descriptor."""
    halves = {
        "cp_mqd_base_addr": spec.mqd_va,
        "cp_hqd_pq_base": spec.ring_va >> 8,
        "cp_hqd_pq_rptr_report_addr": spec.rptr_va,
        "cp_hqd_pq_wptr_poll_addr": spec.wptr_va,
        "cp_hqd_eop_base_addr": spec.eop_va >> 8,
    }
    low = {f"{name}_lo": value & 0xFFFF_FFFF for name, value in halves.items()}
    return low | {f"{name}_hi": value >> 32 for name, value in halves.items()}


def _share(spec: QueueSpec) -> dict[str, int]:
    """Return the fields that make dies share the work of a queue."""
    if spec.xccs == 1:
        return {}
    return {
        "compute_current_logic_xcc_id": spec.xcc,
        "compute_tg_chunk_size": CHUNK,
        "cp_mqd_stride_size": SIZE_BYTES,
    }


def doorbell_control(version: Version, spec: QueueSpec, *, on: bool) -> gc_hqd.CP_HQD_PQ_DOORBELL_CONTROL:
    """Return the word that connects a queue to its doorbell. Source of `doorbell_bif_drop`: update_mqd."""
    return gc_hqd.CP_HQD_PQ_DOORBELL_CONTROL.at(version)(
        doorbell_offset=spec.doorbell_index, doorbell_en=on, doorbell_bif_drop=spec.aql
    )
