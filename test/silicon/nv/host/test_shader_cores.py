"""Launches through a channel run machine code on the card's own shader cores."""

import itertools
import struct

import pytest

from ringup.silicon.nv.card import VirtualNvidia
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


def launch(bench, words, out=OUT, shared=0):
    bench.poke(PROGRAM, b"".join(word.to_bytes(16, "little") for word in words))
    bench.poke(CONSTANTS, struct.pack("<Q", out))
    raw = sum(number << bit for bit, number in (FIELDS | {544: shared}).items()).to_bytes(256, "little")
    bench.push(
        *bench.incr(COMPUTE, 0x318, 0, DESCRIPTOR >> 8), *bench.incr(COMPUTE, 0x320, *struct.unpack("<64I", raw))
    )
    bench.card.clock.sleep_us(1000)


def test_a_launch_runs_a_program_and_releases_behind_it(graphics):
    launch(graphics, WORDS)
    assert graphics.failed == []
    assert struct.unpack("<64I", graphics.peek(OUT, 256)) == tuple(range(64))
    assert graphics.word(SEMAPHORE) == 5


def test_ga100_runs_a_program_and_has_163_kib_of_shared_memory_for_a_group(ga100):
    """These instructions have the same encodings and latencies as on sm_86. The size is CUDA's for 8.0."""
    launch(ga100, WORDS, shared=163 << 10)
    assert ga100.failed == []
    assert struct.unpack("<64I", ga100.peek(OUT, 256)) == tuple(range(64))
    launch(ga100, WORDS, shared=164 << 10)
    assert "wants 167936 bytes of shared memory, of 166912" in ga100.error[1]


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


@pytest.mark.parametrize(
    ("chip", "cores"), [("tu102", "sm_75"), ("ga100", "sm_80"), ("ga102", "sm_86"), ("ad102", "sm_89")]
)
def test_a_chips_cores_are_those_of_its_row(chip, cores):
    assert find(chip).cores == cores


# version 4.0 and 5.0: the version, a grid of groups (QMD_TYPE 2), one group of 64 threads at 0x30000
GRID_4 = {580: 4, 23: 2, 1024: 1, 1056: 1, 1088: 1, 1152: 64, 1168: 1, 1184: 1, 1200: 19, 1216: PROGRAM}
GRID_5 = {468: 5, 151: 2, 1248: 1, 1280: 1, 1312: 1, 1088: 64, 1104: 1, 1120: 1, 1128: 19, 1024: PROGRAM >> 4}
CLIENT, DATA, INSTANCE, USERD, NOTIFIER = 0xC1D00001, 0x200000, 0x110000, 0x120000, 0x1_0000_9000
ERROR_LOG, RC_TRIGGERED, CLASS_ERROR = 0x1006, 0x1004, 69


def later_launch(card, compute, fields):
    """Fill a channel's memory: page tables from 0x100000 on, a launch at 0x4000, the one entry of its GPFIFO."""
    put, tables = card.vram.write, [0x100000 + 0x1000 * number for number in range(6)]
    for table, below in itertools.pairwise(tables[:5]):
        put(table, struct.pack("<Q", 1 << 1 | 2 << 3 | below))
    put(tables[4], struct.pack("<QQ", 0, 1 << 1 | 2 << 3 | tables[5]))
    pages = (1 | 0x10 << 3 | 6 << 8 | DATA + 4096 * number for number in range(64))
    put(tables[5], struct.pack("<64Q", *pages))
    put(INSTANCE + 0x200, struct.pack("<Q", tables[0] | 1 << 10))
    put(DATA + DESCRIPTOR, sum(number << bit for bit, number in fields.items()).to_bytes(384, "little"))
    # SET_OBJECT, SEND_PCAS_A, and SEND_SIGNALING_PCAS2_B with SCHEDULE
    runs = [(0, compute), (0x2B4, DESCRIPTOR >> 8), (0x2C0, 2)]
    words = [word for at, data in runs for word in (1 << 29 | 1 << 16 | COMPUTE << 13 | at >> 2, data)]
    put(DATA + 0x4000, struct.pack("<6I", *words))
    put(DATA + 0x1000, struct.pack("<II", 0x4000, 6 << 10))
    put(USERD + 0x8C, struct.pack("<I", 1))


@pytest.mark.parametrize(
    ("chip", "channel", "compute", "fields", "cores"),
    [("gh100", 0xC86F, 0xCBC0, GRID_4, "sm_90"), ("gb202", 0xCA6F, 0xCEC0, GRID_5, "sm_120")],
)
def test_a_launch_on_cores_without_a_model_is_an_error_of_its_channel(chip, channel, compute, fields, cores, cpu_of):
    """The driver learns of it as of any error: a line for its log, RC_TRIGGERED, and the channel's notifier."""
    card = VirtualNvidia(chip, vram_bytes=8 << 30)
    card.config.write(4, card.config.read(4, 2) | 4, 2)
    memory = card.alloc_host(16 << 20)
    assert memory.bus_addr(0) == 0x1_0000_0000
    cpu = cpu_of(card, release="570.144").prepare().start()
    assert cpu.receive().function == 0x1001
    cpu.root(CLIENT)
    assert cpu.alloc(CLIENT, 0x80, 0x5A, 0x90F1, bytes(48))[0] == 0
    # NV_CHANNEL_ALLOC_PARAMS: GPFIFO, its entries, channel 4, the space, GR0; instance, USERD, RAMFC, notifier
    params = bytearray(368)
    struct.pack_into("<QIIII", params, 8, 0x1000, 32, 4 << 8 | 1 << 21 | 1 << 5, 0, 0x5A)
    struct.pack_into("<I", params, 128, 1)
    for at, base, size, aperture in (
        (144, INSTANCE, 4096, 2), (168, USERD, 512, 2), (192, INSTANCE, 512, 2), (248, NOTIFIER, 16, 1),
    ):  # fmt: skip
        struct.pack_into("<QQII", params, at, base, size, aperture, 1)
    assert cpu.alloc(CLIENT, 0x80, 0xC0, channel, bytes(params))[0] == 0
    assert cpu.alloc(CLIENT, 0xC0, 0xC1, compute, bytes(16))[0] == 0
    assert cpu.control(CLIENT, 0xC0, 0xA06F0103, b"\1\0")[0] == 0
    later_launch(card, compute, fields)
    card.bars[0].write32(0xBB0090, 1 << 30 | 4)
    card.settle()
    cpu.settle()
    line, failed = cpu.receive(), cpu.receive()
    said = f"channel 4 on runlist 0: a launch of (1, 1, 1) groups at 0x30000: shader cores of {cores} are not modelled"
    assert (line.function, failed.function) == (ERROR_LOG, RC_TRIGGERED)
    assert line.body[12:].rstrip(b"\0").decode() == said
    # nv2080EngineType, chid, exceptType
    assert struct.unpack_from("<II", failed.body) == (1, 4)
    assert struct.unpack_from("<I", failed.body, 16) == (CLASS_ERROR,)
    *_, info, _, status = struct.unpack("<IIIHH", memory.view[0x9000 : 0x9000 + 16])
    assert (info, status) == (CLASS_ERROR, 0xFFFF)
    assert [event.text for event in card.log.find("unmodelled")][-1:] == [said]
