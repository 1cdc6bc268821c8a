"""Two cards of a hive (XGMI) that this process has open, and members that others use: a reset of the whole card takes
both at the same time, or is refused. Each is a virtual MI300X, whose registers say that it is one of eight.
"""

import struct

import pytest

import ringup
from ringup.drivers.amd.psp.processor import Psp
from ringup.drivers.amd.smu.controller import Smu
from ringup.errors import CardBusy, DeviceHung
from ringup.silicon import card as virtual


def connect(radeon):
    return ringup.open(radeon.name, transport={"card": radeon})


def works(card, value):
    """Tell whether both kinds of engine work."""
    with card.alloc(4096) as out:
        stream = card.compute.stream()
        stream.store(out.gpu_va, value)
        card.copy.wait_for(card.compute.submit(stream))
        return card.copy.download(out)[:4] == struct.pack("<I", value)


def endless(card):
    """Submit work that waits for a word that nobody writes; return its point."""
    stream = card.compute.stream()
    stream.append(stream.pm4.wait_mem(card.compute.timeline.gpu_va + 8, 1))
    return card.compute.submit(stream)


@pytest.fixture(scope="module")
def hive():
    radeons = [virtual("mi300x", vram_bytes=1 << 30) for _ in range(2)]
    cards = [connect(radeon) for radeon in radeons]
    yield radeons, cards
    for card in cards:
        card.close()
    assert [radeon.violations for radeon in radeons] == [[], []]


def test_all_members_are_sent_into_reset_before_the_first_is_waited_for(hive, monkeypatch):
    """amdgpu_device.c, amdgpu_do_asic_reset."""
    _, (first, second) = hive
    before, kept = (first.stats().resets, second.stats().resets), second.alloc(4096, name="kept")
    lost, steps = endless(second), []
    tell, wait = Smu.tell_mode1_reset, Psp.wait_loader
    monkeypatch.setattr(Smu, "tell_mode1_reset", lambda smu: steps.append("told") or tell(smu))
    monkeypatch.setattr(Psp, "wait_loader", lambda psp, doing: steps.append("waited for") or wait(psp, doing))
    rungs = first.reset("mode1", linked=[second])
    assert [(rung.name, rung.error) for rung in rungs] == [("mode1", "")]
    assert steps[:4] == ["told"] * 2 + ["waited for"] * 2
    with pytest.raises(DeviceHung, match="was reset with virtual:mi300x, which is linked with it, before the work"):
        lost.wait()
    with pytest.raises(ValueError, match=r"'kept'.* was lost in a reset of the card \(mode1\)"):
        second.copy.fill(kept, 0)
    assert [card.stats().resets - count for card, count in zip((first, second), before, strict=True)] == [1, 1]
    assert works(first, 3)
    assert works(second, 4)


def test_a_rung_that_keeps_memory_leaves_the_other_members_alone(hive):
    _, (first, second) = hive
    before = second.stats().resets
    with second.alloc(4096) as kept:
        second.copy.fill(kept, 7).wait()
        hung = endless(first)
        assert [rung.name for rung in first.reset(linked=[second])] == ["queue"]
        with pytest.raises(DeviceHung):
            hung.wait()
        assert second.copy.download(kept)[:4] == b"\7\0\0\0"
        assert second.stats().resets == before


def test_the_whole_card_is_not_reset_while_others_use_a_member(hive, monkeypatch):
    """As the path over PCI says it; what it sees there: `test_preflight.py`."""
    (radeon, _), (card, other) = hive
    holders = ("0000:04:00.0 with amdgpu", "0000:05:00.0 held by process 7 (python)")
    monkeypatch.setattr(radeon, "linked_holders", lambda: holders, raising=False)
    with card.alloc(4096) as kept:
        card.copy.fill(kept, 9).wait()
        with pytest.raises(CardBusy, match=r"links \(XGMI\) of 0000:04:00\.0 with amdgpu, 0000:05:00\.0 held by proc"):
            card.reset("mode1")
        # nothing was done, and the gentle rungs are still there
        assert card.copy.download(kept)[:4] == b"\x09\0\0\0"
        endless(card)
        assert [rung.name for rung in card.reset()] == ["queue"]
        assert card.copy.download(kept)[:4] == b"\x09\0\0\0"
    with pytest.raises(ValueError, match="a card is named twice"):
        card.reset("mode2", linked=[other, other])


def test_a_card_that_is_not_linked_is_no_member(hive):
    _, (card, _) = hive
    with connect(virtual("navi33", vram_bytes=64 << 20)) as alone:
        with pytest.raises(ValueError, match="virtual:navi33 is not linked with virtual:mi300x"):
            card.reset("mode1", linked=[alone])
        with pytest.raises(ValueError, match="virtual:mi300x is not linked with virtual:navi33"):
            alone.reset("mode1", linked=[card])
