"""A shader's access to a page that is not there waits until software has mapped it, and is made again.

The packets are those of clc369.h; replays and cancels come by MEM_OP of another channel (clc46f.h), as from UVM.
"""

import struct
import threading

import pytest

from ringup.silicon.shader.nv.interpreter.engine import Interpreter
from ringup.silicon.shader.nv.translator.engine import Translator

COMPUTE, HOST, MMU_FAULT = 1, 0, 31
INSTANCE, ROOT, PD0, TABLE = 0x105000, 0x100000, 0x103000, 0x10A000
DESCRIPTOR, PROGRAM, CONSTANTS, OUT, SEMAPHORE = 0x20000, 0x30000, 0x9000, 0x1234_5F80, 0x8000
# `out[thread] = thread` for 64 threads, the address of `out` at byte 0 of bank 0: Mesa 25.2.7's NAK, sm_86. The group's
# second warp is beyond the end of the page.
STORE = (
    0x000E0400000021000000000000007919,  # S2R R0, SR_TID.X
    0x001FC800000010FF0000000000027A11,  # LEA R2, P0, R0, c[0x0][0x0], 0x2
    0x000FCA00000F14FF0000010000037A11,  # LEA.HI.X R3, R0, c[0x0][0x4], RZ, 0x2, P0
    0x0001C4000010E9000000000002007386,  # STG.E [R2], R0
    0x001FC20003800000000000000000794D,  # EXIT
)
# a version 3.0 descriptor: one group of 64 threads, 19 registers, bank 0 of 256 bytes, a release of one word
FIELDS = {580: 3, 384: 1, 416: 1, 448: 1, 592: 64, 608: 1, 624: 1, 648: 19, 1536: PROGRAM, 640: 1, 1024: CONSTANTS, 1075: 16,
          823: 1, 830: 1, 768: SEMAPHORE, 832: 5}  # fmt: skip
START, CANCEL_VA = 1, 5
READS, WRITES, ALL = 0, 6, 7


class Software:
    """What UVM does: takes packets, maps pages, and lets accesses be made again by another channel."""

    def __init__(self, bench):
        self.bench, self.card = bench, bench.card
        low = struct.unpack("<I", self.card.vram.read(INSTANCE + 0x200, 4))[0]
        self.card.vram.write(INSTANCE + 0x200, struct.pack("<I", low | 3 << 4))
        self.card.config.write(4, self.card.config.read(4, 2) | 4, 2)
        self.packets = self.card.host.allocate(4096)
        self.card.engines.replayable.enable((self.packets.bus_addr(),))
        self.taken = self.submitted = 0
        self.other = bench.second(7, runlist=1, objects={0xC6B5: 9})

    def launch(self, out=OUT, words=STORE):
        bench = self.bench
        bench.poke(PROGRAM, b"".join(word.to_bytes(16, "little") for word in words))
        bench.poke(CONSTANTS, struct.pack("<Q", out))
        raw = sum(number << bit for bit, number in FIELDS.items()).to_bytes(256, "little")
        bench.push(
            *bench.incr(COMPUTE, 0x318, 0, DESCRIPTOR >> 8), *bench.incr(COMPUTE, 0x320, *struct.unpack("<64I", raw))
        )
        self.card.clock.sleep_us(1000)

    def faults(self):
        """Take packets: the page's address, and whether it is a write."""
        put = self.card.engines.replayable._next
        found = []
        for number in range(self.taken, put):
            words = struct.unpack_from("<8I", self.packets.view, 32 * number)
            found.append((words[3] << 32 | words[2], words[7] >> 16 & 15))
        self.taken = put
        return found

    def map(self, gpu_va, page, *, write=True):
        """Map a page of the channel's to its page of VRAM 0x200000 and up."""
        put = self.card.vram.write
        put(PD0 + 16 * (gpu_va >> 21), struct.pack("<QQ", 0, 2 | TABLE >> 12 << 8))
        entry = 1 | (0x200 + page) << 8 | (0 if write else 1 << 6)
        put(TABLE + 8 * (gpu_va >> 12 & 511), struct.pack("<Q", entry))

    def operate(self, replay, gpu_va=0, access=0):
        """Submit an invalidation with a replay on the other channel."""
        bench = self.bench
        targeted = replay == CANCEL_VA
        words = bench.incr(
            HOST, 0x28, gpu_va & 0xFFFF_F000 | 1, gpu_va >> 32, ROOT & 0xFFFF_F000 | access << 7 | replay << 2,
            (0xA if targeted else 0x9) << 27,
        )  # fmt: skip
        bench.poke(0x4000, struct.pack(f"<{len(words)}I", *words))
        bench.poke(self.other.gpfifo_va + 8 * self.submitted, struct.pack("<II", 0x4000, len(words) << 10))
        self.submitted += 1
        self.card.vram.write(self.other.userd.address + 0x8C, struct.pack("<I", self.submitted))
        bench.ring(self.other.runlist << 16 | self.other.number)
        self.card.clock.sleep_us(1000)


@pytest.fixture(
    params=[Interpreter, lambda target: Translator(target, worthwhile=0)], ids=["interpreter", "translator"]
)
def software(request, graphics):
    graphics.card.engines.core = request.param("sm_86")
    yield Software(graphics)
    graphics.card.engines.reset()


def threads():
    return [one for one in threading.enumerate() if one.name == "shader cores"]


def test_a_store_is_made_again_once_its_page_is_there(software):
    bench = software.bench
    software.launch()
    assert software.faults() == [(0x1234_5000, 1)]
    assert "waits after write to 0x123" in bench.card.witness.unfinished()[0].text
    # a replay without the page makes the fault again
    software.operate(START)
    assert software.faults() == [(0x1234_5000, 1)]
    software.map(0x1234_5000, 0x31)
    assert (bench.word(SEMAPHORE), bench.failed) == (0, [])
    software.operate(START)
    # the first warp has stored, the second one is beyond the page
    assert software.faults() == [(0x1234_6000, 1)]
    assert bench.peek(0x31F80, 128) == struct.pack("<32I", *range(32))
    # a page that may only be read is as good as none
    software.map(0x1234_6000, 0x32, write=False)
    software.operate(START)
    assert software.faults() == [(0x1234_6000, 1)]
    software.map(0x1234_6000, 0x32)
    software.operate(START)
    assert software.faults() == []
    assert bench.peek(0x32000, 128) == struct.pack("<32I", *range(32, 64))
    assert (bench.word(SEMAPHORE), bench.failed) == (5, [])
    assert not bench.card.witness.unfinished()
    assert threads() == []


def test_code_and_constants_that_are_not_there_wait_too(software):
    bench = software.bench
    far = FIELDS | {1536: 0x1234_0000, 1024: 0x1234_1000}
    bench.poke(0x33000, b"".join(word.to_bytes(16, "little") for word in STORE))
    bench.poke(0x34000, struct.pack("<Q", 0xA000))
    raw = sum(number << bit for bit, number in far.items()).to_bytes(256, "little")
    bench.push(
        *bench.incr(COMPUTE, 0x318, 0, DESCRIPTOR >> 8), *bench.incr(COMPUTE, 0x320, *struct.unpack("<64I", raw))
    )
    bench.card.clock.sleep_us(100)
    assert software.faults() == [(0x1234_0000, 0)]
    software.map(0x1234_0000, 0x33)
    software.operate(START)
    assert software.faults() == [(0x1234_1000, 0)]
    software.map(0x1234_1000, 0x34)
    software.operate(START)
    assert software.faults() == []
    assert bench.peek(0xA000, 256) == struct.pack("<64I", *range(64))
    assert (bench.word(SEMAPHORE), bench.failed) == (5, [])


def test_a_cancel_stops_who_waits_for_that_page_and_kind_of_access(software):
    bench = software.bench
    software.launch()
    software.operate(CANCEL_VA, 0x1234_4000, ALL)
    software.operate(CANCEL_VA, 0x1234_5000, READS)
    assert (software.faults(), bench.failed) == ([(0x1234_5000, 1)], [])
    assert len(threads()) == 1
    software.operate(CANCEL_VA, 0x1234_5000, WRITES)
    code, text = bench.error
    assert code == MMU_FAULT
    assert "GPCCLIENT_T1_0 faulted @ 0x0_12345000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_WRITE" in text
    assert bench.word(SEMAPHORE) == 0
    # nothing of the grid is left
    assert threads() == []


def test_a_channel_that_is_taken_away_while_its_shader_waits_leaves_nothing(software):
    software.launch()
    software.card.engines.remove(software.bench.channel)
    assert threads() == []
    assert software.bench.failed == []
    assert not software.card.witness.unfinished()
