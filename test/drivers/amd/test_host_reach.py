"""A card that cannot access the host's memory: the error says so, with the address and the path to memory, before any
queue is created.
"""

import pytest

import ringup
from ringup.autogen.linux import pci as regs
from ringup.drivers.amd.bus.doorbells import NAVI10
from ringup.drivers.amd.gfx.sdma import SdmaQueue
from ringup.drivers.amd.lifecycle import host_reach
from ringup.errors import DeviceTimeout, TransportError
from ringup.silicon import card as virtual

VRAM = 64 << 20


@pytest.fixture
def radeon():
    return virtual("navi31", vram_bytes=VRAM)


def opened(radeon, stages=None):
    watch = (lambda stage: stages.append(stage)) if stages is not None else None
    return ringup.open(radeon.name, transport={"card": radeon}, watch=watch)


def test_a_card_that_reaches_memory_is_asked_and_nothing_is_left_behind(radeon):
    with opened(radeon) as card:
        used = {place: usage.buffers for place, usage in card.stats().memory.items()}
        host_reach.check(card.blocks, card.spaces)
        assert {place: usage.buffers for place, usage in card.stats().memory.items()} == used
        assert not radeon.sdma[0].cells.get("SDMA0_QUEUE7_RB_CNTL", "RB_ENABLE")
    assert radeon.violations == []


def test_what_the_question_is_made_of_is_in_vram_before_the_engine_looks(radeon, monkeypatch):
    """The engine reads the pointer when the queue is mapped, and everything when the doorbell arrives."""
    radeon.bars[0].mappable = False
    waiting, map_queue, ring = [], SdmaQueue.map, radeon.nbio.doorbell

    def mapped(queue):
        radeon.settle()
        waiting.append(radeon.hdp.holds)
        map_queue(queue)

    def rung(index, value, size_bytes):
        if index == NAVI10.sdma_index(host_reach.ENGINE, host_reach.QUEUE):
            waiting.append(radeon.hdp.holds)
        ring(index, value, size_bytes)

    with opened(radeon) as card:
        radeon.hdp.drain_us = None
        with monkeypatch.context() as patched:
            patched.setattr(SdmaQueue, "map", mapped)
            patched.setattr(radeon.nbio, "doorbell", rung)
            host_reach.check(card.blocks, card.spaces)
    assert waiting == [0, 0]
    assert radeon.violations == []


def test_requests_that_go_nowhere_are_named_with_address_mastering_and_mask(radeon):
    radeon.reaches_host = lambda: False
    stages = []
    with pytest.raises(TransportError) as caught:
        opened(radeon, stages)
    text = str(caught.value)
    assert "testing the queues: the card does not reach host memory at bus address 0x1" in text
    assert (
        "it cannot read it (0xffffffffffffffff (all ones: nothing answered)) and what it writes does not arrive" in text
    )
    assert "its bus mastering is on; it addresses 44 bits" in text
    assert "iommu=pt" in text
    # A card that never opened has none.
    assert "report()" not in text
    assert caught.value.exit_code == TransportError.exit_code
    # The card is left without bus mastering.
    assert not radeon.gpu.masters_bus
    # The stage runs once: the driver tries no reset, because none would help.
    assert [stage.name for stage in stages if not isinstance(stage, str)].count("testing the queues") == 1


def test_an_upstream_port_without_bus_mastering_is_noticed_by_its_effect(radeon):
    port = next(
        node.function for node in radeon.tree.nodes() if node.function is not radeon.gpu and node.function.row.name
    )
    command = port.config.get(regs.PCI_COMMAND, 2)
    port.write(regs.PCI_COMMAND, command & ~regs.PCI_COMMAND_MASTER, 2)
    with pytest.raises(TransportError, match="does not reach host memory"):
        opened(radeon)


@pytest.mark.parametrize("lost", ["read", "write"])
def test_one_failing_direction_is_named(radeon, monkeypatch, lost):
    if lost == "read":
        monkeypatch.setattr(radeon.host, "read", lambda bus_addr, size_bytes: b"\xff" * size_bytes)
    else:
        monkeypatch.setattr(radeon.host, "write", lambda bus_addr, data: None)
    with pytest.raises(TransportError) as caught:
        opened(radeon)
    said = str(caught.value)
    assert ("cannot read it" in said, "does not arrive" in said) == (lost == "read", lost == "write")


def test_an_engine_that_does_not_begin_is_not_called_a_card_that_reaches_nothing(radeon):
    radeon.faults.inject("sdma_stuck_fence", -1)
    with pytest.raises(DeviceTimeout, match=r"SDMA0 (copied and did not store its fence|did not begin)") as caught:
        opened(radeon)
    assert "report()" not in str(caught.value)
