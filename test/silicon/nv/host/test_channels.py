"""Channels on the host: pushbuffers, semaphores, copies and faults. Words are those of clc56f.h and clc6b5.h."""

from __future__ import annotations

import random
import re
import struct

import pytest

from ringup.silicon.nv.rm.parts import Aperture, Channel, Place

ROOT, PTES, INSTANCE, USERD = 0x100000, 0x104000, 0x105000, 0x106000
COPY = 0xC6B5
ENTRIES = 32
HOST, CE = 0, 4


def incr(subchannel, address, *data):
    """Return words of an incrementing method."""
    return [1 << 29 | len(data) << 16 | subchannel << 13 | address >> 2, *data]


def semaphore(va, payload, execute):
    return incr(HOST, 0x5C, va, 0, payload, 0, execute)


RELEASE, STAMPED, WIDE = 1, 1 << 25, 1 << 24


def test_a_semaphore_is_released_and_the_get_pointer_follows(bench):
    bench.push(*semaphore(0x8000, 0x1234, RELEASE))
    assert (bench.word(0x8000), bench.word(0x8004), bench.gp_get) == (0x1234, 0, 1)
    bench.card.clock.sleep_us(1000)
    bench.push(*semaphore(0x8010, 7, RELEASE | STAMPED))
    payload, time_ns = struct.unpack("<QQ", bench.peek(0x8010, 16))
    assert payload == 7
    assert 1_000_000 < time_ns < bench.card.clock.now_ns
    assert bench.failed == []


def test_the_gpfifo_is_a_ring(bench):
    for count in range(2 * ENTRIES + 3):
        bench.push(*semaphore(0x8000, count, RELEASE))
    assert (bench.word(0x8000), bench.gp_get) == (2 * ENTRIES + 2, 3)


@pytest.mark.parametrize(
    ("operation", "payload", "before", "after"),
    [(0, 5, 4, 5), (2, 5, 4, 6), (3, 5, 0xFFFFFFFF, 0x10), (4, 0x6, 0x8, 0x2), (5, 0x0F, 0xFFFFFFFF, 0xF0)],
)
def test_a_channel_waits_for_a_semaphore(bench, operation, payload, before, after):
    bench.poke(0x8000, struct.pack("<I", before))
    bench.push(*semaphore(0x8000, payload, operation), *semaphore(0x8100, 1, RELEASE))
    bench.card.clock.sleep_us(100_000)
    assert (bench.word(0x8100), bench.gp_get) == (0, 0)
    assert "waits for" in bench.card.witness.unfinished()[0].text
    bench.poke(0x8000, struct.pack("<I", after))
    bench.card.clock.sleep_us(2_000)
    assert (bench.word(0x8100), bench.gp_get) == (1, 1)
    assert bench.card.witness.unfinished() == []


@pytest.mark.parametrize(
    ("reduction", "signed", "value", "payload", "result"),
    [
        (0, True, 0xFFFFFFFF, 1, 0xFFFFFFFF),
        (0, False, 0xFFFFFFFF, 1, 1),
        (1, True, 0xFFFFFFFF, 1, 1),
        (2, False, 0xF0, 0xFF, 0x0F),
        (3, False, 0xF0, 0x3C, 0x30),
        (4, False, 0xF0, 0x0F, 0xFF),
        (5, False, 0xFFFFFFFF, 2, 1),
        (6, False, 3, 3, 0),
        (7, False, 0, 9, 9),
    ],
)
def test_a_semaphore_is_reduced(bench, reduction, signed, value, payload, result):
    bench.poke(0x8000, struct.pack("<I", value))
    # reduction_format: 0 is signed
    bench.push(*semaphore(0x8000, payload, 6 | reduction << 27 | (not signed) << 31))
    assert bench.word(0x8000) == result


def test_the_older_semaphore_methods_work_too(bench):
    """nouveau's fences: release with 16 bytes, wait for greater or equal, interrupt."""
    bench.push(*incr(HOST, 0x10, 0, 0x8000, 3, 2, 0))
    assert struct.unpack("<I", bench.peek(0x8000))[0] == 3
    assert struct.unpack("<Q", bench.peek(0x8008, 8))[0] > 0
    bench.push(*incr(HOST, 0x10, 0, 0x8000, 4, 4 | 1 << 12), *incr(HOST, 0x10, 0, 0x8020, 1, 2 | 1 << 24))
    assert bench.word(0x8020) == 0
    bench.poke(0x8000, struct.pack("<I", 5))
    bench.card.clock.sleep_us(2_000)
    assert (bench.word(0x8020), bench.word(0x8028)) == (1, 0)


def copy(source, target, size, *, pitch=None, lines=1, launch=0x182):
    pitches = (pitch or (size, size)) if pitch is None or isinstance(pitch, tuple) else (pitch, pitch)
    return [
        *incr(CE, 0, COPY),
        *incr(CE, 0x400, source >> 32, source & 0xFFFFFFFF, 0, target, *(p & 0xFFFFFFFF for p in pitches), size, lines),
        *incr(CE, 0x300, launch),
    ]


def test_lines_are_copied_with_their_pitches(bench):
    rows = bytes(range(256)) * 16
    bench.poke(0x10000, rows)
    # multi-line: 3 lines of 20 bytes, 256 apart at the source and 32 at the target
    bench.push(*copy(0x10004, 0x11000, 20, pitch=(256, 32), lines=3, launch=0x182 | 1 << 9))
    assert bench.peek(0x11000, 96) == (rows[4:24] + bytes(12)) * 3
    # one line, however large the count is
    bench.push(*copy(0x10000, 0x12000, 5000, lines=7))
    assert bench.peek(0x12000, 5002) == (rows + bytes(1000))[:4096] + bench.peek(0x11000, 904) + bytes(2)
    assert bench.failed == []


def test_a_copy_releases_its_semaphore_with_the_time(bench):
    bench.poke(0x10000, b"x" * 64)
    bench.push(*incr(CE, 0, COPY), *incr(CE, 0x240, 0, 0x8000, 77), *copy(0x10000, 0x11000, 64, launch=0x182 | 2 << 3))
    payload, time_ns = struct.unpack("<QQ", bench.peek(0x8000, 16))
    assert payload == 77
    assert time_ns > 0
    assert bench.peek(0x11000, 64) == b"x" * 64


def test_methods_may_repeat_and_be_immediate(bench):
    # non-incrementing payloads of which the last counts, increment once, immediate
    words = [3 << 29 | 2 << 16 | 0x64 >> 2, 1, 2, 5 << 29 | 2 << 16 | 0x5C >> 2, 0x8000, 0]
    bench.push(0, *words, 4 << 29 | RELEASE << 16 | 0x6C >> 2, 7 << 29, 0xFFFFFFFF)
    assert bench.word(0x8000) == 2


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((6 << 29 | 1 << 16, 0), "has opcode 6, which is none"),
        ((1 << 29 | 1 << 16 | 1, 0), "host method 0x4, which is none"),
        (incr(CE, 0, 0xC7C0), "SET_OBJECT names class 0xc7c0, of which the channel has no object"),
        (incr(HOST, 0x5C, 0x8001, 0, 1, 0, 1), "a semaphore of 32 bits at 0x8001"),
        (incr(HOST, 0x5C, 0x8008, 0, 1, 0, 1 | 1 << 25), "a semaphore of 128 bits at 0x8008"),
    ],
)
def test_a_bad_pushbuffer_stops_the_channel(bench, words, why):
    bench.push(*words)
    bench.push(*semaphore(0x8000, 1, RELEASE))
    (failure,) = bench.failed[:1]
    assert failure[:2] == (5, 32)
    assert why in failure[2]
    assert why in bench.said()[0]
    assert bench.word(0x8000) == 0 or len(bench.failed) == 1


# ROBUST_CHANNEL_CE0_ERROR, ROBUST_CHANNEL_GR_CLASS_ERROR
CE_ERROR, CLASS_ERROR = 39, 69
# clc076.h: GP100_UVM_SW; NV2080_ENGINE_TYPE_COPY0
UVM_SOFTWARE, COPY_ENGINE = 0xC076, 9


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (incr(CE, 0x104, 1), "method 0x104 is none of class 0xc6b5"),
        (copy(0x10000, 0x11000, 16, launch=0x182 | 1 << 12), "a physical address in a channel that is not privileged"),
        (copy(0x10000, 0x11000, 16, launch=0x182 | 1 << 5), "an interrupt that blocks is not modelled"),
        (copy(0x10000, 0x11000, 16, launch=0x182 | 1 << 22), r"protected video memory \(vprmode\) is not modelled"),
        (incr(5, 0x104, 1), "a software method on subchannel 5 is not modelled"),
    ],
)
def test_work_that_the_engine_refuses_stops_the_channel(bench, words, why):
    bench.push(*words)
    code, text = bench.error
    assert re.search(why, text)
    assert code == (CLASS_ERROR if "software" in why else CE_ERROR)


def test_a_run_of_methods_goes_on_in_the_next_segment(bench):
    head, *data = semaphore(0x8000, 0x77, RELEASE)
    bench.push(head, *data[:2])
    assert (bench.word(0x8000), bench.gp_get) == (0, 1)
    bench.push(*data[2:])
    assert (bench.word(0x8000), bench.gp_get, bench.failed) == (0x77, 2, [])


def test_a_segment_of_another_board_is_not_fetched(bench):
    off, on = 1 << 16 | 0xFFE << 4, 1 << 16 | 1 << 4
    # methods are ignored while the mask leaves this board out, and conditional segments are not even read
    bench.push(off, *semaphore(0x8000, 1, RELEASE))
    bench.push(*semaphore(0x8000, 2, RELEASE), flags=1)
    assert bench.word(0x8000) == 0
    bench.push(on, *semaphore(0x8000, 3, RELEASE))
    bench.push(*semaphore(0x8004, 4, RELEASE), flags=1)
    assert (bench.word(0x8000), bench.word(0x8004), bench.failed) == (3, 4, [])


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ((0, 1), "a GPFIFO entry has opcode 1"),
        ((0, 2), "checks a CRC"),
        ((0xFFFFFFFC, 0xFF | 1 << 10), "crosses the end of the address space"),
    ],
)
def test_an_entry_that_the_host_refuses_stops_the_channel(bench, entry, why):
    bench.push(entry=struct.pack("<II", *entry))
    assert why in bench.error[1]


def test_a_put_pointer_beyond_the_ring_is_an_error(bench):
    bench.card.vram.write(USERD + 0x8C, struct.pack("<I", ENTRIES))
    bench.ring()
    assert bench.failed == [(5, 32, f"channel 5 on runlist 1: GP_PUT is {ENTRIES} in a GPFIFO of {ENTRIES} entries")]


BY_CE, BY_HOST = "ENGINE CE0 HUBCLIENT_CE0", "ENGINE HOST0 HUBCLIENT_HOST"


@pytest.mark.parametrize(
    ("words", "why", "who", "report"),
    [
        (copy(0x10000, 0x3F000, 0x2000), "write to 0x40000: PTE", BY_CE, "0x0_00040000 PTE WRITE"),
        (copy(0x10000, 0x3E000, 0x2000), "write to 0x3f000: RO_VIOLATION", BY_CE, "0x0_0003f000 RO_VIOLATION WRITE"),
        (copy(0x12345678, 0x11000, 16), "read of 0x12345678: PDE", BY_CE, "0x0_12345000 PDE READ"),
        (copy(1 << 40, 0x11000, 16), "read of 0x10000000000: PDE", BY_CE, "0x100_00000000 PDE READ"),
        (semaphore(0x200000, 1, RELEASE), "write to 0x200000: PDE", BY_HOST, "0x0_00200000 PDE WRITE"),
    ],
)
def test_a_page_fault_names_its_address_and_stops_the_channel(bench, words, why, who, report):
    bench.poke(0x10000, b"y" * 0x2000)
    if "RO_VIOLATION" in why:
        # bit 6 of the PTE: read-only
        bench.card.vram.write(PTES + 8 * 0x3F, struct.pack("<Q", 1 | 1 << 6 | 0x23F000 >> 12 << 8))
    bench.push(*words)
    # the words of NVIDIA's driver's log, Xid 31
    at, kind, access = report.split()
    fault = f"{who} faulted @ {at}. Fault is of type FAULT_{kind} ACCESS_TYPE_VIRT_{access}"
    assert bench.failed == [(5, 31, f"channel 0x00000005, intr 00000000. MMU Fault: {fault}")]
    assert [event.text for event in bench.card.page_faults] == [f"channel 5 on runlist 1: {why}"]
    if kind != "PDE":
        # up to the page that faults
        page = int(why.split()[2].rstrip(":"), 16)
        assert bench.peek(page - 4096, 0x2000) == b"y" * 4096 + bytes(4096)


def test_a_software_object_is_bound_on_the_subchannels_of_software(bench):
    """nvidia-uvm does so on each of its channels, and sends no method to it in ordinary work."""
    bench.channel.objects[UVM_SOFTWARE] = COPY_ENGINE
    bench.push(*incr(5, 0, UVM_SOFTWARE), *semaphore(0x8000, 1, RELEASE))
    assert (bench.word(0x8000), bench.failed) == (1, [])
    bench.push(*incr(5, 0x104, 1))
    assert bench.error[0] == CLASS_ERROR


def test_a_software_object_that_the_channel_lacks_is_not_bound(bench):
    bench.push(*incr(5, 0, UVM_SOFTWARE))
    code, text = bench.error
    assert code == 32
    assert "SET_OBJECT names class 0xc076, of which the channel has no object" in text


def test_a_doorbell_of_nobody_is_a_mistake(bench):
    bench.ring(1 << 16 | 6)
    assert bench.said() == ["doorbell 0x10006 names a channel that there is not"]


def test_a_channel_that_left_its_runlist_runs_again_where_it_was(bench):
    bench.channel.scheduled = False
    bench.card.engines.schedule(bench.channel, enable=False)
    bench.push(*semaphore(0x8000, 1, RELEASE))
    assert (bench.word(0x8000), bench.gp_get) == (0, 0)
    bench.channel.scheduled = True
    bench.card.engines.schedule(bench.channel, enable=True)
    bench.card.clock.sleep_us(50)
    assert (bench.word(0x8000), bench.gp_get) == (1, 1)


def test_two_channels_order_their_work_by_a_semaphore(bench):
    other = Channel(
        6, 1, 9, bench.channel.instance, bench.channel.ramfc, Place(Aperture.VRAM, USERD + 0x200, 512), None, None, 0x1800,
        ENTRIES, 0, False, objects={COPY: 9}, scheduled=True,
    )  # fmt: skip
    bench.card.engines.add(other)
    words = [*semaphore(0x8000, 9, 3), *copy(0x10000, 0x11000, 4)]
    bench.poke(0x9000, struct.pack(f"<{len(words)}I", *words))
    bench.poke(0x1800, struct.pack("<II", 0x9000, len(words) << 10))
    bench.card.vram.write(USERD + 0x28C, struct.pack("<I", 1))
    bench.ring(1 << 16 | 6)
    assert bench.word(0x11000) == 0
    bench.poke(0x10000, b"done")
    bench.push(*semaphore(0x8000, 9, RELEASE))
    bench.card.clock.sleep_us(2_000)
    assert bench.peek(0x11000) == b"done"


PLACES = (0, 0x5C, 0x6C, 0x10, 0x1C, 0x20, 0x78, 0x34, 0x240, 0x300, 0x400, 0x410, 0x418, 0x700, 0x260)
VALUES = (0, 1, 2, COPY, 0x8000, 0x10000, 0x182, 0x382)


def garbage(rng):
    """Return a run of words: half of it methods that exist with data that may make sense, the rest anything."""
    words = incr(CE, 0, COPY) if rng.random() < 0.8 else []
    for _ in range(rng.randrange(1, 12)):
        kind = rng.random()
        if kind < 0.5:
            data = [rng.choice([*VALUES, rng.getrandbits(16), rng.getrandbits(32)]) for _ in range(rng.randrange(1, 9))]
            words += incr(rng.choice([HOST, CE]), rng.choice(PLACES), *data)
        elif kind < 0.7:
            words.append(4 << 29 | rng.getrandbits(13) << 16 | rng.choice([HOST, CE]) << 13 | rng.randrange(0x200))
        else:
            words.append(rng.getrandbits(32))
    return words


@pytest.mark.seeds(2)
def test_garbage_ends_in_an_error_or_a_wait(bench, seed):
    """Whatever the words are, the channel works, waits for a semaphore, or stops with an error that is told."""
    rng = random.Random(seed)
    for _ in range(100):
        bench.push(*garbage(rng))
        bench.card.clock.sleep_us(3_000)
        if not bench.failed and not bench.card.witness.unfinished():
            continue
        assert all(code in (31, 32, CE_ERROR, CLASS_ERROR) and text for _, code, text in bench.failed)
        bench.again()


def test_a_root_may_be_the_first_page_of_memory(bench):
    put = bench.card.vram.write
    put(0, bench.card.vram.read(ROOT, 8))
    put(INSTANCE + 0x200, struct.pack("<Q", 1 << 10))
    bench.push(*semaphore(0x8000, 7, RELEASE))
    assert (bench.peek(0x8000, 1), bench.failed) == (b"\7", [])
    # without the format of version 2 there is none
    put(INSTANCE + 0x200, struct.pack("<Q", ROOT))
    bench.push(*semaphore(0x8000, 8, RELEASE))
    assert "the instance block has no page directory" in bench.failed[0][2]


def test_an_invalidation_of_some_addresses_leaves_the_translations_of_others(bench):
    """Pages 0x10 to 0x13 are moved to where 0x20 to 0x23 are; the size is in pages, and aligns the address down."""
    source = [0x10000 + 0x1000 * page for page in range(4)]
    for page, va in enumerate(source):
        bench.poke(va, struct.pack("<I", page))
        bench.poke(va + 0x10000, struct.pack("<I", 0x100 + page))

    def seen():
        for page, va in enumerate(source):
            copy = [0, va, 0, 0x8000 + 4 * page, 4, 4, 4, 1]
            bench.push(*incr(CE, 0x400, *copy), *incr(CE, 0x300, 0x182))
        return [bench.word(0x8000 + 4 * page) for page in range(4)]

    assert seen() == [0, 1, 2, 3]
    entries = b"".join(struct.pack("<Q", 1 | 0x200000 + 0x20000 + 0x1000 * n >> 12 << 8) for n in range(4))
    bench.card.vram.write(PTES + 8 * 0x10, entries)
    assert seen() == [0, 1, 2, 3]
    # two pages from 0x13 down to their alignment, then one page, then all
    bench.push(*incr(HOST, 0x28, 0x13000 | 1, 0, 1, 0xA << 27))
    assert seen() == [0, 1, 0x102, 0x103]
    bench.push(*incr(HOST, 0x28, 0x10000, 0, 0x100000, 0xA << 27))
    assert seen() == [0x100, 1, 0x102, 0x103]
    bench.push(*incr(HOST, 0x28, 0, 0, 1, 0x9 << 27))
    assert seen() == [0x100, 0x101, 0x102, 0x103]
