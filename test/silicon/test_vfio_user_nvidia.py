"""A guest dies while an NVIDIA card works for it: its memory is gone in the middle of a wait, of copies, of a grid.

Its channel waits or stops with an error, and the next peer finds a card that can be reset.
"""

import struct

import pytest

from ringup.compiler.isa.sass import assembly
from ringup.silicon.nv.rm.parts import Aperture, Channel, Place

RESET, DOORBELL = 13, 0xBB0090
ROOT, PD2, PD1, PD0, SMALL, INSTANCE, USERD = (0x100000 + 0x1000 * n for n in range(7))
# the guest's memory by bus address, and what is where in it; the channel sees it from address 0 on
RAM, RAM_BYTES = 0x10_0000, 64 << 12
FIFO, PUSH, WORD, TARGET, PROGRAM, CONSTANTS, DESCRIPTOR = (
    0x1000, 0x2000, 0x8000, 0x9000, 0x30000, 0xA000, 0x20000,
)  # fmt: skip
HOST, COMPUTE, CE = 0, 1, 4
# A loop that stores to [R2] and loads from there until it finds something else: Mesa's NAK, sm_86, with a branch.
LOOP = """
.target sm_86
.kernel k
.registers 16
  [B------:R-:W-:Y:S06] MOV R2, c[0x0][0x0]
  [B------:R-:W-:Y:S06] MOV R3, c[0x0][0x4]
  [B------:R-:W-:Y:S06] MOV R4, 0x1
again:
  [B------:R0:W-:Y:S02] STG.E [R2], R4
  [B0-----:R-:W1:Y:S02] LDG.E R5, [R2]
  [B-1----:R-:W-:Y:S14] ISETP.EQ.AND P0, PT, R5, R4, PT
  [B------:R-:W-:Y:S06] @P0 BRA again
  EXIT
"""


def incr(subchannel, address, *data):
    return [1 << 29 | len(data) << 16 | subchannel << 13 | address >> 2, *data]


def waiting():
    # SEM_EXECUTE: acquire
    return incr(HOST, 0x5C, WORD, 0, 1, 0, 0)


def copying():
    one = [*incr(CE, 0x400, 0, TARGET, 0, TARGET + 0x1000, 0, 0, 4096, 1), *incr(CE, 0x300, 0x182)]
    return one * 200


def running():
    # a version 3.0 descriptor: one group of 32 threads, bank 0 of 256 bytes
    fields = {580: 3, 384: 1, 416: 1, 448: 1, 592: 32, 608: 1, 624: 1, 648: 16, 1536: PROGRAM, 640: 1, 1024: CONSTANTS,
              1075: 16}  # fmt: skip
    raw = sum(number << bit for bit, number in fields.items()).to_bytes(256, "little")
    head = incr(COMPUTE, 0x318, 0, DESCRIPTOR >> 8)
    return [*head, *incr(COMPUTE, 0x320, *struct.unpack("<64I", raw))]


@pytest.mark.parametrize("work", [waiting, copying, running])
def test_a_guest_that_dies_in_the_middle_of_work_leaves_a_card_that_can_be_reset(bench, work, assembled):
    card = bench.card("ga102", vram_bytes=512 << 20)
    peer = bench.peer()
    peer.master()
    fd, memory = bench.memfd(RAM_BYTES)
    assert peer.map(RAM, RAM_BYTES, fd) == 0
    put = card.vram.write
    for table, below in ((ROOT, PD2), (PD2, PD1), (PD1, PD0)):
        put(table, struct.pack("<Q", 2 | below >> 12 << 8))
    put(PD0, struct.pack("<QQ", 0, 2 | SMALL >> 12 << 8))
    # valid entries of coherent system memory
    put(SMALL, b"".join(struct.pack("<Q", 1 | 2 << 1 | RAM + 4096 * n >> 12 << 8) for n in range(64)))
    put(INSTANCE + 0x200, struct.pack("<Q", ROOT | 1 << 10))
    at = lambda address: Place(Aperture.VRAM, address, 4096)  # noqa: E731
    channel = Channel(
        5, 0, 1, at(INSTANCE), at(INSTANCE), at(USERD), None, None, FIFO, 32, 0, False,
        objects={0xC7C0: 1, 0xC7B5: 1},
    )  # fmt: skip
    failed = []
    card.engines.fail = lambda channel, code, text: failed.append(text)
    card.engines.add(channel)
    channel.scheduled = True
    card.engines.schedule(channel, enable=True)
    words = work()
    memory[PUSH : PUSH + 4 * len(words)] = struct.pack(f"<{len(words)}I", *words)
    memory[FIFO : FIFO + 8] = struct.pack("<II", PUSH, len(words) << 10)
    memory[PROGRAM : PROGRAM + len(assembled)] = assembled
    memory[CONSTANTS : CONSTANTS + 8] = struct.pack("<Q", WORD)
    put(USERD + 0x8C, struct.pack("<I", 1))
    peer.put32(0, DOORBELL, 5)
    memory[TARGET : TARGET + 4] = b"work"
    begun = {
        waiting: card.witness.unfinished,
        copying: lambda: memory[TARGET + 0x1000 : TARGET + 0x1004] == b"work",
        running: lambda: memory[WORD] == 1,
    }[work]
    bench.until(begun)
    peer.close()
    bench.until(lambda: bench.server._slots[0].peer is None)
    for _ in range(100):
        bench.server.step(0.001)
    # The next peer finds the card as the last one left it, and resets it.
    again = bench.peer()
    assert again.get32(0, 0) == card.chip.boot_0
    # A copy reads ones where no memory is, and what it writes is lost; so it comes to its end.
    assert work is copying or failed or card.witness.unfinished()
    assert again.exchange(RESET).errno == 0
    assert card.witness.unfinished() == []
    said = [event.text for event in card.violations]
    card.violations.clear()
    assert said
    assert all("where no memory is" in one or "channel 5 on runlist 0" in one for one in said)


@pytest.fixture(scope="module")
def assembled():
    return assembly.assemble(LOOP).kernels[0].code
