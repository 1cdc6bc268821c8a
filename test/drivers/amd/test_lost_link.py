"""A card that falls off the bus during the bring-up and use of its blocks: DeviceLost is raised, whichever
read fails.
"""

from __future__ import annotations

import random

import pytest

from ringup.drivers.amd.bus.doorbells import DOORBELL_BAR, NAVI10, Doorbell
from ringup.drivers.amd.bus.ih import Ih
from ringup.drivers.amd.gfx.hqd import Place
from ringup.drivers.amd.gfx.mqd import QueueSpec
from ringup.drivers.amd.gfx.reset import soft_reset
from ringup.drivers.amd.gfx.sdma import SdmaEngine, SdmaQueue, SdmaQueueSpec
from ringup.errors import DeviceLost


def everything(card):
    """Start all blocks, map and unmap queues, reset, stop."""
    card.start()
    base, pa = card.gmc.fb_base, card.RING_PA
    bell = Doorbell(card.radeon.bars[DOORBELL_BAR], NAVI10.ih_index)
    ring = Ih(card.osssys, card.vram(pa, 4096), base + pa, card.vram(pa + 8192, 4), base + pa + 8192, bell)
    ring.start(message_signalled=True)
    spec = QueueSpec(
        ring_va=card.USER,
        ring_dwords=256,
        rptr_va=card.USER + 0x4000,
        wptr_va=card.USER + 0x4008,
        eop_va=card.USER + 0x5000,
        eop_bytes=4096,
        mqd_va=base + card.MQD_PA,
        vmid=card.VMID,
        doorbell_index=6,
    )
    queue = card.gfx.queue(Place(0, 0), spec, card.vram(card.MQD_PA, 4096), card.hdp.flush)
    queue.map()
    engine = SdmaEngine(card.gc, card.radeon.chip.external_ips[0][2], 0)
    engine.start()
    at = SdmaQueueSpec(card.USER, 256, card.USER + 0x4000, card.USER + 0x4008, 8, NAVI10.sdma_index(0, 0))
    copies = SdmaQueue(engine, 0, at)
    copies.map()
    copies.unmap()
    engine.reset()
    queue.unmap()
    soft_reset(card.gfx)
    card.gmc.read_fault("gfxhub")
    ring.drain()
    engine.stop()
    card.gfx.stop()
    ring.stop()
    card.gmc.stop()
    return card.registers.reads


def test_a_card_lost_at_any_read_raises_device_lost(hands):
    whole = hands()
    total = -whole.registers.reads + everything(whole)
    pick = random.Random(11)
    for after in sorted(pick.sample(range(total - 1), 30)):
        card = hands()
        card.radeon.faults.inject("all_ones_after_reads", after)
        with pytest.raises(DeviceLost, match="is gone from the bus"):
            everything(card)
