"""Copies, fills and surfaces: methods against clc5b5.h to clcab5.h, and copies run by a small engine of its own."""

import random

import pytest

from ringup.queues.nv.copy import MAX_LINE, BlockLinear, CopyEngine, Pitched
from ringup.queues.nv.copy_stream import CopyCommands, CopyStream
from ringup.queues.nv.rows import ROWS
from ringup.queues.queue import Owner

EACH = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)


def engine_run(memory, words, methods_of):
    """Run pitched copies, fills and one-word releases, by the offsets of clc5b5.h."""
    state = {}
    for subchannel, method, value in methods_of(words):
        assert subchannel == 4
        state[method] = value
        if method != 0x300:
            continue
        kind, flush, semaphore = value & 3, value >> 2 & 1, value >> 3 & 3
        if semaphore:
            at = state[0x240] << 32 | state[0x244]
            memory[at : at + 4] = state[0x248].to_bytes(4, "little")
        if kind == 0:
            assert semaphore or flush
            continue
        assert value >> 7 & 3 == 3, "pitched on both sides"
        source, target = state.get(0x400, 0) << 32 | state.get(0x404, 0), state[0x408] << 32 | state[0x40C]
        length = state[0x418]
        if value >> 10 & 1:  # REMAP_ENABLE: CONST_A, components of four bytes, one of them
            assert state[0x708] == 0x0003_0004
            memory[target : target + 4 * length] = state[0x700].to_bytes(4, "little") * length
        elif value >> 9 & 1:  # MULTI_LINE_ENABLE
            for y in range(state[0x41C]):
                at, to = source + y * state[0x410], target + y * state[0x414]
                memory[to : to + length] = memory[at : at + length]
        else:
            # a real engine may read behind what it wrote
            assert abs(source - target) >= length
            memory[target : target + length] = memory[source : source + length]


def test_a_copy_of_a_line_has_the_headers_words():
    stream = CopyStream(CopyCommands(ROWS[0]), Owner("card"))
    stream.copy(0x2_0000_0010, 0x1_0000_0020, 0x1234)
    words = stream.body.hex(" ", 4).split()
    # NON_PIPELINED 2, FLUSH_ENABLE bit 2, SRC and DST pitch bits 7 and 8
    wanted = [0x2004_8100, 1, 0x20, 2, 0x10, 0x2001_8106, 0x1234, 0x8186_80C0]
    assert [int.from_bytes(bytes.fromhex(word), "little") for word in words[-8:]] == wanted


@EACH
def test_the_short_path_and_the_builder_agree(row, methods_of):
    for size in (1, 0x1FFF, 0x2000, MAX_LINE):
        commands = CopyCommands(row)
        quick, slow = CopyStream(commands, Owner("card")), CopyStream(commands, Owner("card"))
        quick.copy(0x2_3456_789A, 1, size)
        slow.append(commands.engine.copy(0x2_3456_789A, 1, size))
        assert methods_of(memoryview(quick.body).cast("I")) == methods_of(memoryview(slow.body).cast("I"))


@EACH
@pytest.mark.parametrize("seed", range(3))
def test_overlapping_copies_move_bytes(row, seed, methods_of):
    rng, engine = random.Random(seed), CopyEngine(row.copy_class)
    memory = bytearray(rng.randbytes(4096))
    wanted = bytearray(memory)
    for _ in range(12):
        size, source = rng.randrange(0, 400), rng.randrange(0, 3000)
        target = max(0, source + rng.choice([0, 1, -1, 7, -64, 300, rng.randrange(-400, 400)]))
        wanted[target : target + size] = wanted[source : source + size]
        engine_run(memory, engine.copy(target, source, size), methods_of)
    assert memory == wanted


def test_pieces_of_a_huge_copy_overlap_and_the_last_flushes(methods_of):
    words = CopyEngine(0xC7B5).copy(1 << 40, 0, 2 * MAX_LINE + 5)
    launches = [value for _, method, value in methods_of(words) if method == 0x300]
    lengths = [value for _, method, value in methods_of(words) if method == 0x418]
    assert lengths == [MAX_LINE, MAX_LINE, 5]
    assert [(value & 3, value >> 2 & 1) for value in launches] == [(2, 0), (1, 0), (1, 1)]


@EACH
def test_fills_rects_and_stores(row, methods_of):
    engine, memory = CopyEngine(row.copy_class), bytearray(range(256)) * 8
    engine_run(memory, engine.fill(64, 0xDEAD_BEEF, 32), methods_of)
    assert memory[60:100] == bytes(range(60, 64)) + b"\xef\xbe\xad\xde" * 8 + bytes(range(96, 100))
    engine_run(memory, engine.copy_rect(1024, 50, 256, 40, 10, 3), methods_of)
    for y in range(3):
        assert memory[1024 + 50 * y :][:10] == memory[256 + 40 * y :][:10]
    engine_run(memory, engine.store(512, 1, 2, 0xFFFF_FFFF), methods_of)
    assert memory[512:524] == bytes([1, 0, 0, 0, 2, 0, 0, 0, 255, 255, 255, 255])
    assert engine.fill(0, 1, 0) == engine.copy_rect(0, 8, 64, 8, 0, 3) == engine.copy(5, 5, 100) == []


@EACH
def test_a_surface_in_blocks_is_described_as_the_header_says(row, methods_of):
    engine = CopyEngine(row.copy_class)
    surface = BlockLinear(
        gpu_va=0x1_0000_0200, width_bytes=256, height=64, depth=4, block_height_log2=3, block_depth_log2=1,
        x_bytes=64, y=5, layer=2, element_bytes=2,
    )  # fmt: skip
    state = {m: value for _, m, value in methods_of(engine.copy_surface(surface, Pitched(0x4000, 100), 100, 20))}
    # DST_BLOCK_SIZE: width 0, height 7:4, depth 11:8, GOB height 15:12 is 1; KIND_BPP 17:16 on BLACKWELL_DMA_COPY_B
    assert state[0x70C] == 0x1130 | (2 << 16 if row.copy_class == 0xCAB5 else 0)
    assert [state[m] for m in (0x710, 0x714, 0x718, 0x71C, 0x74C, 0x750)] == [256, 64, 4, 2, 64, 5]
    assert [state[m] for m in (0x410, 0x418, 0x41C)] == [100, 100, 20]
    # block-linear target (bit 8 is 0), pitched source (bit 7), MULTI_LINE bit 9, flush bit 2, NON_PIPELINED
    assert state[0x300] == 0x286
    back = {m: value for _, m, value in methods_of(engine.copy_surface(Pitched(0x4000, 100), surface, 100, 20))}
    assert back[0x300] == 0x306
    assert [back[m] for m in (0x728, 0x72C, 0x730, 0x734, 0x738, 0x744, 0x748)] == [
        state[0x70C], 256, 64, 4, 2, 64, 5
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda e: e.copy(0, 64, -1), "no -1 bytes"),
        (lambda e: e.copy(0, 1, 1 << 20), "takes 1048576 launches"),
        (lambda e: e.copy(1 << 49, 0, 4), "a copy's target is an address of 49 bits"),
        (lambda e: e.copy(0, 1 << 49, 4), "a copy's source is an address of 49 bits"),
        (lambda e: e.fill(0, 1, 6), "whole dwords"),
        (lambda e: e.fill(2, 1, 8), "whole dwords"),
        (lambda e: e.fill(0, 1 << 32, 8), "32 bits"),
        (lambda e: e.copy_rect(0, 4, 64, 8, 8, 2), "do not lie"),
        (lambda e: e.copy_rect(0, 8, 64, 8, -1, 2), "do not lie"),
        (lambda e: e.copy_rect(0, 1 << 32, 64, 8, 8, 2), "a pitch has 32 bits"),
        (lambda e: e.store(2, 1), "a store is an address"),
        (lambda e: e.store(0), "at least one"),
        (lambda e: e.store(0, 1 << 32), "32 bits"),
        (lambda e: e.copy_surface(Pitched(0, 8), Pitched(64, 8), 0, 1), "1 to"),
        (lambda e: e.copy_surface(surface_of(gpu_va=256), Pitched(64, 64), 64, 8), "multiple of 512"),
        (lambda e: e.copy_surface(surface_of(width_bytes=65), Pitched(64, 64), 64, 8), "multiple of"),
        (lambda e: e.copy_surface(surface_of(block_height_log2=6), Pitched(64, 64), 64, 8), "1 to 32 GOBs"),
        (lambda e: e.copy_surface(surface_of(y=1), Pitched(64, 64), 64, 8), "leave a surface"),
        (lambda e: e.copy_surface(surface_of(layer=1), Pitched(64, 64), 64, 8), "leave a surface"),
        (lambda e: e.copy_surface(surface_of(x_bytes=-1), Pitched(64, 64), 64, 8), "leave a surface"),
    ],
)
def test_what_the_engine_cannot_do_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call(CopyEngine(0xC5B5))


def surface_of(**changes):
    return BlockLinear(**({"gpu_va": 0, "width_bytes": 64, "height": 8} | changes))


@EACH
def test_a_stream_of_the_queue_runs_in_a_channel(row, channel):
    one = channel(CopyCommands(row))
    stream = CopyStream(one.queue.commands, one.owner)
    stream.copy(0x2000, 0x1000, 64)
    stream.barrier()
    stream.fill(0x3000, 5, 8)
    one.queue.submit(stream).wait()
    assert [value for _, method, value in one.methods if method == 0x418] == [64, 2]
    assert one.queue.commands.setup(2) == (0x2001_8000).to_bytes(4, "little") + (2 << 16 | row.copy_class).to_bytes(
        4, "little"
    )


def test_a_stamp_is_a_release_with_the_clock():
    stream = CopyStream(CopyCommands(ROWS[-1]), Owner("card"))
    stream.stamp(0x100)
    # RELEASE 1, WFI bit 20, 64 bits bit 24, TIMESTAMP bit 25
    assert int.from_bytes(stream.body[-4:], "little") == 0x0310_0001
    with pytest.raises(ValueError, match="aligned to 16 bytes"):
        stream.stamp(0x108)
