"""Signals that a kernel driver passes on: a timeline's value, then the event's slot, then an interrupt with its number.

Words: gfx_v11_0_ring_emit_fence and sdma_v6_0_ring_emit_fence of Linux's amdgpu, soc15d.h, sdma_v6_0_0_pkt_open.h.
"""

import struct

import pytest

from ringup.queues.amd.packets import KernelEvent
from ringup.queues.amd.pm4_stream import Pm4Commands
from ringup.queues.amd.sdma_stream import SdmaCommands

EVENT = KernelEvent(0x8000_0A28, 0x145)
TIMELINE, VALUE = 0x1_2345_6780, 0x1_0000_0007
RELEASE_MEM = 0xC006_4900  # PACKET3(PACKET3_RELEASE_MEM, 6)
FENCE, TRAP = 5, 6  # SDMA_OP_FENCE, SDMA_OP_TRAP


def words(data):
    return struct.unpack(f"<{len(data) // 4}I", data)


def release(dwords):
    """Return address, value, data select, interrupt select and context of a RELEASE_MEM."""
    header, _, select, low, high, data_low, data_high, context = dwords
    assert header == RELEASE_MEM
    return high << 32 | low, data_high << 32 | data_low, select >> 29, select >> 24 & 7, context


def test_a_compute_queue_signals_the_event_behind_its_timeline():
    seen = words(Pm4Commands((11, 0, 0), event=EVENT).signal(TIMELINE, VALUE))
    assert len(seen) == 16
    # DATA_SEL 2: 64 bits; INT_SEL 3: none, the write is confirmed (radv_cs.c), 2: when the write is confirmed
    assert release(seen[:8]) == (TIMELINE, VALUE, 2, 3, 0)
    assert release(seen[8:]) == (EVENT.slot_va, EVENT.number, 2, 2, EVENT.number)


def test_a_copy_queue_signals_the_event_behind_its_timeline():
    seen = words(SdmaCommands((6, 0, 0), 0, event=EVENT).signal(TIMELINE, VALUE))
    fences, trap = seen[:16], seen[16:]
    stores = {(fences[at + 2] << 32 | fences[at + 1]): fences[at + 3] for at in range(0, 16, 4)}
    assert [fences[at] & 0xFF for at in range(0, 16, 4)] == [FENCE] * 4
    assert list(stores.items()) == [
        (TIMELINE, 7),
        (TIMELINE + 4, 1),
        (EVENT.slot_va, EVENT.number),
        (EVENT.slot_va + 4, 0),
    ]
    assert (trap[0] & 0xFF, trap[1]) == (TRAP, EVENT.number)


@pytest.mark.parametrize("commands", [Pm4Commands((11, 0, 0)), SdmaCommands((6, 0, 0), 0)], ids=["pm4", "sdma"])
def test_the_value_is_patched_where_it_is_without_an_event(commands):
    with_event = type(commands)(*((11, 0, 0),) if commands.kind == "pm4" else ((6, 0, 0), 0), event=EVENT)
    assert with_event.signal_places == commands.signal_places
    for place, form, shift in with_event.signal_places:
        (stored,) = form.unpack_from(with_event.signal(TIMELINE, VALUE), place)
        assert stored == VALUE >> shift & (1 << 8 * form.size) - 1
