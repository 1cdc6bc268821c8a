"""Launches through a channel run machine code on the card's own shader cores."""

import struct

import pytest

from ringup.silicon.nv.chips import find

COMPUTE, GR_EXCEPTION, PAGE_FAULT = 1, 13, 31
DESCRIPTOR, PROGRAM, CONSTANTS, OUT, SEMAPHORE = 0x20000, 0x30000, 0x9000, 0xA000, 0x8000
# `out[thread] = thread`, the address of `out` at byte 0 of bank 0: Mesa 25.2.7's NAK, sm_86.
WORDS = (
    0x000E0400000021000000000000007919,  # S2R R0, SR_TID.X
    0x001FC800000010FF0000000000027A11,  # LEA R2, P0, R0, c[0x0][0x0], 0x2
    0x000FCA00000F14FF0000010000037A11,  # LEA.HI.X R3, R0, c[0x0][0x4], RZ, 0x2, P0
    0x0001C4000010E9000000000002007386,  # STG.E [R2], R0
    0x001FC20003800000000000000000794D,  # EXIT
)
# a version 3.0 descriptor: one group of 64 threads, 19 registers, bank 0 of 256 bytes, a release of one word
FIELDS = {580: 3, 384: 1, 416: 1, 448: 1, 592: 64, 608: 1, 624: 1, 648: 19, 1536: PROGRAM, 640: 1, 1024: CONSTANTS, 1075: 16,
          823: 1, 830: 1, 768: SEMAPHORE, 832: 5}  # fmt: skip


def launch(bench, words, out=OUT):
    bench.poke(PROGRAM, b"".join(word.to_bytes(16, "little") for word in words))
    bench.poke(CONSTANTS, struct.pack("<Q", out))
    raw = sum(number << bit for bit, number in FIELDS.items()).to_bytes(256, "little")
    bench.push(
        *bench.incr(COMPUTE, 0x318, 0, DESCRIPTOR >> 8), *bench.incr(COMPUTE, 0x320, *struct.unpack("<64I", raw))
    )
    bench.card.clock.sleep_us(1000)


def test_a_launch_runs_a_program_and_releases_behind_it(graphics):
    launch(graphics, WORDS)
    assert graphics.failed == []
    assert struct.unpack("<64I", graphics.peek(OUT, 256)) == tuple(range(64))
    assert graphics.word(SEMAPHORE) == 5


def test_a_program_that_reads_too_early_stops_the_channel(graphics):
    # S2R's scoreboard is not waited for
    launch(graphics, (WORDS[0], WORDS[1] & ~(63 << 116), *WORDS[2:]))
    code, text = graphics.error
    assert code == GR_EXCEPTION
    assert (
        "hazard at 0x30010 in wave (0, 0, 0, 0): LEA R2, P0, R0, c[0x0][0x0], 0x2: R0 is read before scoreboard" in text
    )
    assert graphics.word(SEMAPHORE) == 0


def test_a_store_to_no_page_is_the_channels_page_fault(graphics):
    launch(graphics, WORDS, out=0x7777_0000)
    code, text = graphics.error
    assert code == PAGE_FAULT
    assert "GPCCLIENT_T1_0 faulted @ 0x0_77770000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_WRITE" in text


@pytest.mark.parametrize(("chip", "cores"), [("tu102", "sm_75"), ("ga102", "sm_86"), ("ad102", "sm_89")])
def test_a_chips_cores_are_those_of_its_row(chip, cores):
    assert find(chip).cores == cores
