"""SDMA engines: queues of a VMID, mapped by registers, copy, store fences and interrupt. A hung queue stops only its
own engine.
"""

from __future__ import annotations

import pytest

from ringup.drivers.amd.bus.doorbells import DOORBELL_BAR, NAVI10, Doorbell
from ringup.drivers.amd.bus.ih import Ih
from ringup.drivers.amd.gfx.sdma import SdmaEngine, SdmaQueue, SdmaQueueSpec
from ringup.errors import DeviceHung, DeviceTimeout, NotSupported

RING, RPTR, WPTR, FENCE, DATA = 0x0000, 0x4000, 0x4008, 0x7000, 0x8000  # in VMID 8's host memory
RING_DWORDS = 256


class Queue:
    """A mapped copy queue, and the memory that its user writes and reads."""

    def __init__(self, card, engine, number=0, slot=0):
        self.card, self.at, self.wptr = card, 0x1_0000 * slot, 0
        spec = SdmaQueueSpec(
            ring_va=card.USER + self.at + RING,
            ring_dwords=RING_DWORDS,
            rptr_va=card.USER + self.at + RPTR,
            wptr_va=card.USER + self.at + WPTR,
            vmid=card.VMID,
            doorbell_index=NAVI10.sdma_index(engine.index, number),
        )
        self.bell = Doorbell(card.radeon.bars[DOORBELL_BAR], spec.doorbell_index)
        self.queue = SdmaQueue(engine, number, spec)
        self.queue.map()

    def submit(self, *words):
        for word in words:
            self.card.put(self.at + RING + self.wptr // 4 % RING_DWORDS * 4, word)
            self.wptr += 4
        self.card.put(self.at + WPTR, self.wptr, 0)
        self.bell.ring(self.wptr)
        self.card.radeon.clock.sleep_us(200)

    # packets: navi10_sdma_pkt_open.h, sdma_v6_0_0_pkt_open.h
    def copy(self, source, target, size_bytes):
        self.submit(1, size_bytes - 1, 0, source & 0xFFFF_FFFF, source >> 32, target & 0xFFFF_FFFF, target >> 32)

    def fence(self, value):
        va = self.card.USER + self.at + FENCE
        self.submit(0x0003_0005, va & 0xFFFF_FFFF, va >> 32, value)

    def trap(self, value):
        self.submit(6, value)

    def wait_for_ever(self):
        """POLL_REGMEM on memory that never becomes 1."""
        va = self.card.USER + self.at + DATA
        self.submit(0xB000_0008, va & 0xFFFF_FFFF, va >> 32, 1, 0xFFFF_FFFF, 0x0FFF_000A)

    @property
    def seen(self):
        return self.card.get(self.at + FENCE)


def engine(card, index=0):
    block = SdmaEngine(card.gc, card.radeon.chip.external_ips[index][2], index)
    block.start()
    return block


def test_queues_of_both_engines_copy_and_interrupt(up):
    base, pa = up.gmc.fb_base, up.RING_PA
    interrupts = Ih(up.osssys, up.vram(pa, 4096), base + pa, up.vram(pa + 8192, 4), base + pa + 8192)
    interrupts.start(message_signalled=False)
    for index, number in ((0, 0), (0, 3), (1, 1)):
        queue = Queue(up, engine(up, index), number, slot=index * 8 + number)
        up.put(queue.at + DATA, *range(index, index + 64))
        queue.copy(up.USER + queue.at + DATA, up.USER_VRAM + 0x5000, 256)
        queue.fence(0xCAFE + number)
        queue.trap(5)
        assert up.vram(0x5000, 256) == up.user.view[queue.at + DATA : queue.at + DATA + 256]
        assert queue.seen == 0xCAFE + number
        (entry,) = interrupts.drain()
        assert (entry.kind, entry.sdma_queue, entry.vmid, entry.data[0]) == ("SDMA trap", (index, number), 8, 5)
        where = queue.queue.pointers()
        assert (where.enabled, where.rptr, where.wptr) == (True, 52, 52)
        assert up.get(queue.at + RPTR) == 52


def test_a_ring_wraps_and_pointers_go_on(up):
    queue = Queue(up, engine(up))
    # 4 dwords each: the ring wraps three times.
    for value in range(1, 200):
        queue.fence(value)
        assert queue.seen == value
    assert queue.queue.pointers().rptr == 199 * 16


def test_a_queue_that_was_taken_off_can_be_mapped_again(up):
    first = engine(up)
    queue = Queue(up, first)
    queue.fence(1)
    assert queue.queue.unmap()
    assert not queue.queue.pointers().enabled
    again = Queue(up, first)
    again.fence(2)
    assert again.seen == 2


def test_a_hung_queue_stops_its_engine_and_the_other_continues(up):
    engines = [engine(up, 0), engine(up, 1)]
    hung, other = Queue(up, engines[0]), Queue(up, engines[1], slot=1)
    hung.wait_for_ever()
    hung.fence(1)
    with pytest.raises(DeviceTimeout, match=r"emptying SDMA0 queue 0: SDMA0_QUEUE0_CONTEXT_STATUS read .* for 1 ms"):
        hung.queue.wait_idle(1000)
    engines[0].reset()
    other.fence(7)
    assert (hung.seen, other.seen) == (0, 7)
    fresh = Queue(up, engines[0])
    fresh.fence(3)
    assert fresh.seen == 3


def test_a_queue_that_does_not_drain_is_reported_and_its_engine_hangs(hands):
    card = hands().start()
    first = engine(card)
    queue = Queue(card, first)
    card.radeon.gc.grbm.cells.on_read("SDMA0_QUEUE0_CONTEXT_STATUS", lambda: 0)  # never idle
    assert queue.queue.unmap(timeout_us=1000) is False
    with pytest.raises(DeviceHung, match=r"SDMA0 is not idle after its reset: emptying SDMA0 queue 0: .* for 100 ms"):
        first.reset()


def test_a_queue_is_taken_over_from_one_that_waits(up):
    first = engine(up)
    Queue(up, first).wait_for_ever()
    fresh = Queue(up, first)
    fresh.fence(6)
    assert fresh.seen == 6


def test_a_stopped_engine_runs_nothing_until_it_is_started(up):
    first = engine(up)
    queue = Queue(up, first)
    first.stop()
    first.stop()
    assert not queue.queue.pointers().enabled
    first.start()
    fresh = Queue(up, first)
    fresh.fence(4)
    assert fresh.seen == 4


def test_a_post_mortem_has_the_engine_s_own_names(up):
    names = engine(up, 1).status
    assert "SDMA1_STATUS_REG" in names
    assert names["SDMA1_STATUS_REG"].idle


def test_doorbells_lie_where_the_kernel_puts_them(up):
    # Measured with amdgpu on a navi31, in dword indices: compute 0x6 0x8 .. 0x14, SDMA0 0x200, SDMA1 0x214.
    assert [NAVI10.compute_index(number) for number in range(8)] == list(range(0x6, 0x16, 2))
    # amdgpu_doorbell.h: user queues from 0xd
    assert NAVI10.compute_index(8) == 0x1A
    assert (NAVI10.sdma_index(0, 0), NAVI10.sdma_index(1, 0), NAVI10.sdma_index(1, 1)) == (0x200, 0x214, 0x216)
    for wrong in (lambda: NAVI10.compute_index(999), lambda: NAVI10.sdma_index(2, 0)):
        with pytest.raises(ValueError, match="there is no"):
            wrong()
    with pytest.raises(NotSupported, match=r"lies beyond the 2048 KiB of BAR 2"):
        Doorbell(up.radeon.bars[DOORBELL_BAR], 0x8_0000)


def test_impossible_engines_and_queues_are_refused(up):
    first = engine(up)
    for call, message in (
        (lambda: SdmaEngine(up.gc, (6, 0, 0), 2), "engines 0 and 1"),
        (lambda: SdmaQueue(first, 8, SdmaQueueSpec(0, 256, 0, 0, 8, 0x200)), "queues 0 to 7"),
        (lambda: SdmaQueueSpec(0, 100, 0, 0, 8, 0x200), "power of two"),
        (lambda: SdmaQueueSpec(0, 256, 4, 0, 8, 0x200), "rptr_va is a 48 bit address on 8 bytes"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(NotSupported, match=r"SDMA0 is version 5\.2\.0; versions 4, 6, 7 are known"):
        # The card reports its version.
        SdmaEngine(up.gc, (5, 2, 0), 0)
