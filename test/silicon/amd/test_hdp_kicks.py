"""Bytes that the host did not flush before it told an engine to work. The card marks them, and an engine's read of them
is a mistake, however much time has passed.
"""

from __future__ import annotations

import pytest

from ringup.silicon.amd.board.apertures import kicks

MEM_FLUSH = 0x385C
PLACE = 0x1000
FB = 0x8000 << 24


@pytest.fixture
def radeon(virtual_card):
    made = virtual_card("navi31", vram_bytes=64 << 20)
    made.bars[5].write32(0xDE0 * 4, 1)  # RCC_DOORBELL_APER_EN
    made.settle()
    return made


def fetch(radeon, at=PLACE, size=4):
    return radeon.mmhub.read(0, FB + at, size, "MP0")


def ring(radeon):
    radeon.bars[2].write64(0x200 * 4, 1)
    radeon.settle()
    # No range routes this doorbell; the tests do not check that.
    radeon.violations.clear()


def register(name):
    return next(address for address, known in kicks("navi31").items() if known == name)


@pytest.mark.parametrize("passed_us", [0, 5, 100, 1_000_000])
def test_what_an_engine_reads_unflushed_is_a_mistake_whatever_time_has_passed(radeon, passed_us):
    radeon.hdp.forgives_left = False
    radeon.bars[0].write32(PLACE, 1)
    radeon.clock.sleep_us(passed_us)
    ring(radeon)
    radeon.clock.sleep_us(passed_us)
    fetch(radeon)
    texts = [event.text for event in radeon.violations]
    assert texts == ["MP0 reads vram_pa 0x1000, which the host wrote and did not flush before doorbell 0x200"]
    assert "4 bytes written by the host were not flushed at doorbell 0x200" in radeon.log.find("unflushed")[0].text
    radeon.violations.clear()
    fetch(radeon)
    # The mistake is reported once.
    assert not radeon.violations


def test_bytes_beside_and_bytes_that_are_flushed_before_may_be_read(radeon):
    radeon.bars[0].write32(PLACE, 1)
    radeon.bars[5].write32(MEM_FLUSH, 0)
    radeon.bars[0].write32(PLACE + 8, 2)
    ring(radeon)
    assert fetch(radeon, PLACE, 8) == b"\1\0\0\0\0\0\0\0"
    assert fetch(radeon, PLACE + 12)
    assert not radeon.violations


def test_a_flush_that_comes_before_the_engine_looks_is_taken(radeon):
    radeon.bars[0].write32(PLACE, 1)
    ring(radeon)
    radeon.bars[5].write32(MEM_FLUSH, 0)
    radeon.settle()
    assert fetch(radeon) == b"\1\0\0\0"
    assert not radeon.violations


def test_writes_behind_the_doorbell_are_not_what_it_announced(radeon):
    ring(radeon)
    radeon.bars[0].write32(PLACE, 1)
    radeon.settle()
    fetch(radeon)
    assert not radeon.violations


@pytest.mark.parametrize(
    "name",
    [
        "SDMA0_QUEUE0_RB_WPTR",
        "CP_RB0_WPTR",
        "MMVM_INVALIDATE_ENG17_REQ",
        "GCVM_INVALIDATE_ENG17_REQ",
        "MP0_SMN_C2PMSG_67",
    ],
)
def test_ring_pointers_mailboxes_and_invalidations_announce_as_doorbells_do(radeon, name):
    radeon.hdp.slow_listeners = False
    radeon.bars[0].write32(PLACE, 1)
    radeon.bars[5].write32(register(name), 0)
    radeon.settle()
    radeon.violations.clear()
    fetch(radeon)
    assert [event.text.rpartition(" ")[2] for event in radeon.violations] == [name]
    radeon.violations.clear()


def test_an_engine_that_looks_for_work_late_needs_no_flush(radeon):
    """Some engines look for work late. tinygrad's AM_PSP starts one without a flush, and works on metal."""
    radeon.bars[0].write32(PLACE, 1)
    radeon.bars[5].write32(register("MP0_SMN_C2PMSG_67"), 0)
    radeon.settle()
    radeon.violations.clear()
    fetch(radeon)
    assert not radeon.violations
    assert "MP0_SMN_C2PMSG_67" in radeon.log.find("unflushed")[0].text


@pytest.mark.parametrize(("before_us", "after_us", "mistakes"), [(0, 1_000_000, 1), (100, 0, 0)])
def test_bytes_that_have_left_before_the_doorbell_are_only_noted(radeon, before_us, after_us, mistakes):
    """A driver over a USB bridge flushes nothing and works on metal. Its requests take longer than bytes stay in the
    buffer.
    """
    radeon.bars[0].write32(PLACE, 1)
    radeon.clock.sleep_us(before_us)
    ring(radeon)
    radeon.clock.sleep_us(after_us)
    assert fetch(radeon, PLACE, 4) == b"\1\0\0\0"
    assert len(radeon.violations) == mistakes
    assert "4 bytes written by the host were not flushed at doorbell 0x200" in radeon.log.find("unflushed")[0].text
    radeon.violations.clear()


def test_a_long_write_that_has_left_the_buffer_is_unflushed_all_the_same(radeon):
    radeon.hdp.forgives_left = False
    radeon.bars[0].write_block(1 << 20, bytes(1 << 20))
    ring(radeon)
    fetch(radeon, (1 << 20) + 5)
    assert "vram_pa 0x100005" in radeon.violations[0].text
    radeon.violations.clear()
    radeon.bars[5].write32(MEM_FLUSH, 0)
    radeon.settle()
    fetch(radeon, (1 << 20) + 0x5000)
    assert not radeon.violations
