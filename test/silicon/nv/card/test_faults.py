"""Faults that are injected into a virtual NVIDIA card by name."""

from __future__ import annotations

import struct

import pytest

from ringup.silicon import fixtures
from ringup.silicon.common.faults import COMMON, Faults
from ringup.silicon.nv.card import VirtualNvidia
from ringup.silicon.nv.common import faults as nvidia
from ringup.silicon.pci import peers

GSP, WPR2_HI = 0x110000, 0x1FA828
INVALIDATE = 0xB830B0


def test_a_card_lists_its_faults():
    known = VirtualNvidia("ga102", vram_bytes=512 << 20).faults.kinds
    assert {kind.name for kind in (*nvidia.KINDS, *COMMON, *peers.KINDS)} == set(known)
    with pytest.raises(ValueError, match="gsp_silent: GSP-RM takes calls in and answers none"):
        Faults(nvidia.KINDS).inject("no such fault")


def test_a_falcon_that_is_stuck_never_halts_and_the_next_one_does(board, starter):
    board.faults.inject("falcon_stuck", 1)
    with pytest.raises(AssertionError, match="stays"):
        starter.fwsec()
    assert starter.rd(WPR2_HI) == 0
    assert starter.fwsec() == 0


def test_fwsec_and_the_booter_fail_with_the_error_that_was_asked_for(board, starter):
    board.faults.inject("fwsec_error", 0x2F)
    assert starter.fwsec() == 0x2F
    assert starter.rd(WPR2_HI) == 0
    board.faults.clear()
    assert starter.fwsec() == 0
    board.faults.inject("booter_error", 0x55)
    assert starter.load() == 0x55
    assert not starter.active
    board.faults.clear()
    assert starter.load() == 0
    assert board.violations == []


def test_an_invalidation_that_is_stuck_keeps_its_trigger(board):
    for stuck in (True, False):
        if stuck:
            board.faults.inject("invalidate_stuck", 1)
        board.bars[0].write32(INVALIDATE, 1 << 31 | 3)
        assert bool(board.bars[0].read32(INVALIDATE) >> 31) == stuck


def test_a_lost_interrupt_never_reaches_the_host_and_the_next_one_does(board):
    vector = board.chip.gsp_vector
    heard = []
    for lost in (1, 0):
        board.faults.inject("lost_interrupt", lost)
        board.gpu.interrupt(0)
        heard.append(len(board.interrupts.pending))
    assert vector >= 0
    assert heard[0] < heard[1]


def test_gsp_rm_that_does_not_start_says_nothing(gsp):
    cpu = gsp()
    cpu.firmware.faults.know(*nvidia.KINDS)
    cpu.firmware.faults.inject("gsp_no_start", 1)
    assert cpu.prepare().start().receive() is None
    again = cpu.prepare().start()
    assert again.receive().function == 0x1001


@pytest.fixture
def running(up):
    """GSP-RM that runs, its faults, and a client."""
    cpu = up()
    cpu.firmware.faults.know(*nvidia.KINDS)
    cpu.root()
    return cpu


def ask(cpu):
    """Ask for the static information, and return the answer."""
    return cpu.call(65, bytes(2168))


def test_a_silent_gsp_takes_calls_in_and_answers_later_ones(running):
    running.firmware.faults.inject("gsp_silent", 2)
    assert [ask(running) is None for _ in range(3)] == [True, True, False]
    assert running.firmware.violations == []


def test_messages_with_a_wrong_checksum_are_noticed_by_the_host(running):
    running.firmware.faults.inject("gsp_bad_checksum", 1)
    with pytest.raises(AssertionError, match="Bad checksum"):
        ask(running)


def test_gsp_rm_that_crashes_answers_nothing_any_more(running):
    crashed = []
    running.firmware._on_crash = lambda: crashed.append(1)
    running.firmware.faults.inject("gsp_crash", 1)
    assert [ask(running) for _ in range(2)] == [None, None]
    assert crashed == [1]


def test_a_crash_halts_the_core_of_the_card(board, starter):
    assert starter.start() == 0
    assert starter.active
    board.firmware_of_gsp._on_crash()
    assert not starter.active


def test_requests_fail_with_the_status_that_was_asked_for(running):
    client = 0xC1D00002
    root = (client, 0, 0, 0, struct.pack("<II", client, 1).ljust(108, b"\0"))
    running.firmware.faults.inject("rm_status", 0x51)
    assert running.alloc(*root)[0] == 0x51
    assert running.control(0xC1D00001, 0x2080, 0x20800110, bytes(68))[0] == 0x51
    running.firmware.faults.inject("rm_status")
    assert running.alloc(*root)[0] == 0xFFFF
    running.firmware.faults.clear()
    assert running.alloc(*root)[0] == 0


def test_the_fixture_makes_cards_of_nvidia_and_finds_their_mistakes(virtual_card):
    made = virtual_card("ga102", vram_bytes=512 << 20)
    assert isinstance(made, VirtualNvidia)
    fixtures.check([made])
    # A doorbell of a channel that there is not.
    made.bars[0].write32(0xBB0090, 5)
    with pytest.raises(pytest.fail.Exception, match="names a channel that there is not"):
        fixtures.check([made])
    made.violations.clear()
