"""The graphics ring, as far as a kernel driver uses it at start: ring buffers 0 and 1 by register, state packets, no
drawing.

Source: amdgpu gfx_v11_0.c (cp_gfx_resume, cp_gfx_start, ring_emit_cntxcntl, ring_emit_frame_cntl,
ring_emit_gfx_shadow), nvd.h.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ringup.autogen.amd import pm4
from ringup.silicon.amd.gc.cp.pm4_decode import Packet, Rule
from ringup.silicon.amd.gc.cp.pm4_flow import lacking, nop
from ringup.silicon.amd.gc.grbm import Slot
from ringup.silicon.amd.gc.hqd import GRAPHICS

if TYPE_CHECKING:
    from ringup.silicon.amd.gc.cp.pm4_parser import Parser
    from ringup.silicon.amd.gc.cp.processor import Cp

# Ring buffer registers that alias registers of a graphics queue. CP_RB_* without a number is ring 0.
ALIASES = {
    "BASE": GRAPHICS.base[0],
    "BASE_HI": GRAPHICS.base[1],
    "CNTL": GRAPHICS.control,
    "RPTR_ADDR": GRAPHICS.report[0],
    "RPTR_ADDR_HI": GRAPHICS.report[1],
    "WPTR": GRAPHICS.wptr[0],
    "WPTR_HI": GRAPHICS.wptr[1],
    "RPTR": GRAPHICS.rptr,
}
STATE_PACKETS = {  # opcode: count; they set state that only drawing uses
    pm4.PREAMBLE_CNTL: (0, 0),
    pm4.CONTEXT_CONTROL: (1, 1),
    pm4.CLEAR_STATE: (0, 0),
    pm4.FRAME_CONTROL: (0, 0),
    pm4.SWITCH_BUFFER: (0, 0),
    pm4.SET_Q_PREEMPTION_MODE: (7, 7),
    pm4.INDEX_TYPE: (0, 0),
    pm4.NUM_INSTANCES: (0, 0),
    pm4.INDEX_BASE: (1, 1),
    pm4.INDEX_BUFFER_SIZE: (0, 0),
}
DRAWING = (
    pm4.DRAW_INDIRECT, pm4.DRAW_INDEX_INDIRECT, pm4.DRAW_INDEX_2, pm4.DRAW_INDIRECT_MULTI, pm4.DRAW_INDEX_AUTO, pm4.DRAW_INDEX_MULTI_AUTO,
    pm4.DRAW_INDEX_OFFSET_2, pm4.DRAW_INDEX_INDIRECT_MULTI, pm4.DRAW_INDEX_MULTI_INST, pm4.STRMOUT_BUFFER_UPDATE, pm4.SET_PREDICATION,
    pm4.OCCLUSION_QUERY, pm4.LOAD_UCONFIG_REG, pm4.LOAD_SH_REG, pm4.LOAD_CONTEXT_REG, pm4.LOAD_CONTEXT_REG_INDEX, pm4.CONTEXT_REG_RMW,
)  # fmt: skip


def pfp_sync_me(parser: Parser, packet: Packet) -> Iterator[float]:
    """Make the prefetch parser wait for the micro engine: in the model they are one."""
    yield 0.1


def hook(cp: Cp) -> None:
    """Install the hooks of the ring buffer registers."""
    for ring in range(cp.row.gfx_pipes):
        slot = Slot(0, ring, 0)
        for name, target in ALIASES.items():
            register = f"CP_RB{ring}_{name}"
            cp.cells.on_read(register, _reader(cp, slot, target))
            cp.cells.on_write(register, _writer(cp, slot, target))
        cp.cells.on_write(f"CP_RB{ring}_ACTIVE", _activator(cp, slot))


def _reader(cp: Cp, slot: Slot, target: str) -> Callable[[], int]:
    return lambda: cp.cells.of(slot, target)


def _writer(cp: Cp, slot: Slot, target: str) -> Callable[[int], None]:
    def write(value: int) -> None:
        cp.cells.set_of(slot, target, value)
        if target in GRAPHICS.wptr:
            cp.queues[slot].wake()

    return write


def _activator(cp: Cp, slot: Slot) -> Callable[[int], None]:
    """Return the hook of CP_RBn_ACTIVE, which connects the ring. CP_RB_VMID holds its VMID, 4 bits for each ring, 8
    bits apart.
    """

    def write(value: int) -> None:
        queue = cp.queues[slot]
        if value & 1 and not queue.connected:
            queue.hqd.set(GRAPHICS.vmid, cp.cells["CP_RB_VMID"] >> 8 * slot.pipe & 15)
            queue.hqd.active = True
            queue.connect()
        elif not value & 1 and queue.connected:
            queue.disconnect(save=False)

    return write


RULES: dict[int, Rule] = {
    **{opcode: Rule(nop, counts, "g") for opcode, counts in STATE_PACKETS.items()},
    **{opcode: Rule(lacking(), (0, 0x3FFE), "g") for opcode in DRAWING},
    pm4.PFP_SYNC_ME: Rule(pfp_sync_me, (0, 0), "g"),
}
