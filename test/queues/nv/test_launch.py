"""Launches: descriptors by the bits of the class headers, constant bank 0, arguments, streams run in a channel."""

import random
import struct
from types import SimpleNamespace

import numpy as np
import pytest

from ringup.errors import NotSupported, WrongTarget
from ringup.queues.nv.arguments import Packer
from ringup.queues.nv.compute import ComputeEngine
from ringup.queues.nv.compute_stream import ComputeCommands, ComputeStream
from ringup.queues.nv.cubin import Cubin
from ringup.queues.nv.gpfifo import GpfifoKept
from ringup.queues.nv.launch import Launch
from ringup.queues.nv.program import LocalMemory, Program, kernel_of
from ringup.queues.nv.rows import ROWS
from ringup.queues.nv.semaphores import STAMP_BYTES, STAMP_CLOCK_AT
from ringup.queues.profile import Profile
from ringup.queues.queue import Owner
from ringup.queues.timeline import Point

EACH = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
BASE, CODE_VA, LOCAL_VA = 0x1_2340_0000, 0x5_0000_0000, 0x6_0000_0000

# the bits (high, low) of what a launch says, by descriptor version: MW(hi:lo) of clc5c0qmd.h, clc6c0qmd.h, clc7c0qmd.h,
# clcbc0qmd.h, clcdc0qmd.h
BITS_2 = {
    "version": (579, 576), "major": (583, 580), "grid_x": (415, 384), "grid_y": (431, 416), "grid_z": (463, 448),
    "block_x": (607, 592), "block_y": (623, 608), "block_z": (639, 624), "registers": (656, 648),
    "barriers": (959, 955), "shared": (561, 544), "local": (951, 928), "program": (1584, 1536), "call_limit": (378, 378),
    "valid0": (640, 640), "bank0": (1072, 1024), "invalidate0": (1074, 1074), "size0": (1087, 1075),
    "valid4": (644, 644), "bank4": (1328, 1280), "size4": (1343, 1331), "membar": (369, 368), "caching": (134, 134),
}  # fmt: skip
BITS_3 = BITS_2 | {"barriers": (767, 763), "local": (759, 736)}
BITS_4 = {
    "version": (579, 576), "major": (583, 580), "type": (25, 23), "grid_x": (1055, 1024), "grid_y": (1071, 1056),
    "grid_z": (1103, 1088), "block_x": (1167, 1152), "block_y": (1183, 1168), "block_z": (1199, 1184),
    "registers": (1208, 1200), "barriers": (1215, 1211), "shared": (601, 584), "local": (535, 512),
    "program": (1272, 1216), "call_limit": (568, 568), "valid0": (416, 416), "bank0": (1586, 1536),
    "invalidate0": (419, 419), "size0": (1599, 1587), "valid4": (432, 432), "bank4": (1842, 1792),
    "size4": (1855, 1843), "membar": (1137, 1136),
}  # fmt: skip
BITS_5 = {
    "version": (467, 464), "major": (471, 468), "type": (153, 151), "grid_x": (1279, 1248), "grid_y": (1295, 1280),
    "grid_z": (1327, 1312), "block_x": (1103, 1088), "block_y": (1119, 1104), "block_z": (1127, 1120),
    "registers": (1136, 1128), "barriers": (1141, 1137), "shared": (1162, 1152), "local": (1199, 1184),
    "program": (1076, 1024), "call_limit": (456, 456), "valid0": (1856, 1856), "bank0": (1394, 1344),
    "invalidate0": (1859, 1859), "size0": (1407, 1395), "valid4": (1872, 1872), "bank4": (1650, 1600),
    "size4": (1663, 1651), "membar": (625, 624), "group": (149, 144),
}  # fmt: skip
BITS = {(2, 3): BITS_2, (2, 4): BITS_2, (3, 0): BITS_3, (4, 0): BITS_4, (5, 0): BITS_5}
# how many low bits of a value are not stored: of addresses of code and banks, of shared and of local memory
SHIFTS = {(4, 0): (0, 6, 0, 0), (5, 0): (4, 6, 7, 4)}


def read(data, row):
    """Return the fields of a descriptor, as values that are not shifted."""
    word = int.from_bytes(data[: row.qmd_bytes], "little")
    found = {name: word >> low & (1 << high - low + 1) - 1 for name, (high, low) in BITS[row.qmd].items()}
    code, bank, shared, local = SHIFTS.get(row.qmd, (0, 0, 0, 0))
    for name, shift in (("program", code), ("bank0", bank), ("bank4", bank), ("shared", shared), ("local", local)):
        found[name] <<= shift
    return found


class Card:
    """A channel, a program and its streams."""

    def __init__(self, channel, row, cubin, **options):
        self.row, self.local_blocks = row, []
        self.channel = channel(ComputeCommands(row), args_bytes=1 << 15, **options)
        self.local = LocalMemory(row, 7, self.alloc)
        self.code = Cubin(cubin, "it")
        self.program = Program(self.code, CODE_VA, lambda: None, self.channel.owner)

    def alloc(self, size_bytes):
        self.local_blocks.append(size_bytes)
        return LOCAL_VA + (len(self.local_blocks) << 32)

    def stream(self):
        return ComputeStream(self.channel.queue.commands, self.channel.owner, self.local)

    def launched(self):
        """Return the memory from each descriptor that was sent on."""
        return [
            self.channel.memory[(value << 8) - BASE :] for _, method, value in self.channel.methods if method == 0x2B4
        ]


@pytest.fixture
def card(channel, maker):
    def make(row, more=(), more_symbols=(), options=None, **changes):
        sm = row.sm[0] * 10 + row.sm[1]
        known = {"sm": sm, "params_at": row.bank.params, "sizes": (8, 4, 8)}
        return Card(
            channel, row, maker.cubin(**(known | changes), more=more, more_symbols=more_symbols), **options or {}
        )

    return make


@EACH
def test_a_launch_is_what_the_header_describes(card, row, maker):
    one = card(row, registers=50, shared=768, frame=40, barriers=3, more=[maker.part(".nv.constant4", data=bytes(16))])
    stream = one.stream()
    stream.dispatch(one.program, (70000, 3, 5), (64, 2, 1), [SimpleNamespace(gpu_va=0x7_1234_5678), -2, 2.5])
    one.channel.queue.submit(stream).wait()
    (memory,) = one.launched()
    found = read(memory, row)
    wanted = {
        "version": row.qmd[1], "major": row.qmd[0], "grid_x": 70000, "grid_y": 3, "grid_z": 5, "block_x": 64,
        "block_y": 2, "block_z": 1, "registers": 50, "barriers": 3, "shared": 768, "local": 48, "program": CODE_VA,
        "call_limit": 1, "valid0": 1, "invalidate0": 1, "valid4": 1, "size4": 4, "membar": 1,
        "bank4": CODE_VA + one.code.kernels["work"].banks[4][0], "bank0": found["bank0"], "size0": found["size0"],
    }  # fmt: skip
    # QMD_TYPE_GRID_CTA; SM_GLOBAL_CACHING_ENABLE; the group that NVK names
    wanted |= {"caching": 1} if row.qmd < (4, 0) else {"type": 2}
    wanted |= {"group": 0x1F} if row.qmd == (5, 0) else {}
    assert found == wanted
    bank = one.channel.memory[found["bank0"] - BASE :]
    params = row.bank.params
    # size in units of 16 bytes, a multiple of 64
    assert found["size0"] == -(-(params + 24) // 64) * 4
    assert struct.unpack_from("<Qi4xd", bank, params) == (0x7_1234_5678, -2, 2.5)
    # where ptxas 13.5 reads %ntid, %nctaid, the windows and the stack from
    block, grid, local, stack = (0, 0xC, 0x20, 0x28) if row.sm < (10, 0) else (0x360, 0x370, 0x2F8, 0x37C)
    assert struct.unpack_from("<3I", bank, block) == (64, 2, 1)
    assert struct.unpack_from("<3I", bank, grid) == (70000, 3, 5)
    assert struct.unpack_from("<Q", bank, local) == (0xFF00_0000,)
    assert struct.unpack_from("<I", bank, stack) == (48,)
    if row.sm < (10, 0):
        assert struct.unpack_from("<Q", bank, 0x18) == (0xFE00_0000 if row.sm < (9, 0) else 0xFE_0000_0000,)


@EACH
def test_the_methods_around_a_launch(card, row):
    one = card(row, frame=40)
    stream = one.stream()
    for _ in range(2):
        stream.dispatch(one.program, 1, 32, [0, 0, 0])
    stream.barrier()
    one.channel.queue.submit(stream).wait()
    block = LOCAL_VA + (1 << 32)
    # a warp of 64 bytes a thread, 2 SMs a TPC; a multiple of 32 KB
    tpc = -(-64 * 32 * row.max_warps_per_sm * 2 // 0x8000) * 0x8000
    assert one.local_blocks == [7 * tpc]
    send = [(1, 0x2BC, 3)] if row.compute_class == 0xC5C0 else [(1, 0x2C0, 3)]
    launches = [value for _, method, value in one.channel.methods if method == 0x2B4]
    assert one.channel.methods == [
        # INVALIDATE_SKED_CACHES, INVALIDATE_SHADER_CACHES_NO_WFI: code 0, data 4, constants 12
        (1, 0x298, 0), (1, 0x1698, 0x1011),
        (1, 0x790, block >> 32), (1, 0x794, block & 0xFFFF_FFFF), (1, 0x2E4, 0), (1, 0x2E8, tpc), (1, 0x2EC, 0xFF),
        (1, 0x2B4, launches[0]), *send, (1, 0x2B4, launches[1]), *send,
        (1, 0x110, 0), (1, 0x298, 0), (1, 0x1698, 0x1010),
    ]  # fmt: skip


@EACH
def test_a_channel_begins_with_its_class_and_windows(row, methods_of):
    setup = methods_of(memoryview(ComputeCommands(row).setup(3)).cast("I"))
    shared = 0xFE00_0000 if row.sm < (9, 0) else 0xFE_0000_0000
    assert setup == [
        (1, 0, 3 << 16 | row.compute_class), (1, 0x2A0, shared >> 32), (1, 0x2A4, shared & 0xFFFF_FFFF),
        (1, 0x7B0, 0), (1, 0x7B4, 0xFF00_0000), (1, 0x310, row.sm[0] << 8 | row.sm[1]),
    ]  # fmt: skip


def test_local_memory_grows_and_running_launches_are_waited_for(card, maker):
    one = card(ROWS[2], frame=16)
    two = Program(Cubin(maker.cubin(sizes=(8, 4, 8), frame=500)), CODE_VA, lambda: None)
    stream = one.stream()
    for program in (one.program, two, one.program):
        stream.dispatch(program, 1, 32, [0, 0, 0])
    one.channel.queue.submit(stream).wait()
    order = [method for _, method, _ in one.channel.methods]
    # SET_SHADER_LOCAL_MEMORY_A, SEND_PCAS_A, WAIT_FOR_IDLE
    assert [method for method in order if method in (0x790, 0x2B4, 0x110)] == [0x790, 0x2B4, 0x110, 0x790, 0x2B4, 0x2B4]
    assert len(one.local_blocks) == 2
    # each stream says it anew
    stream = one.stream()
    stream.dispatch(two, 1, 32, [0, 0, 0])
    assert len(stream.body) > 36
    assert len(one.local_blocks) == 2


@EACH
def test_streams_run_again_and_kept_ones_are_patched(card, row):
    one = card(row)
    stream = one.stream()
    for n in range(3):
        at = stream.dispatch(one.program["work"], 1, 32, [n, n + 10, 0])
    queue = one.channel.queue
    for _ in range(3):
        queue.submit(stream).wait()
    kept = GpfifoKept(queue, stream, one.channel.kept_memory)
    for value in range(4):
        kept.patch_args(at + one.program["work"].arg_offset(1), struct.pack("<I", value))
        kept.submit()
        Point(one.channel.timeline, one.channel.timeline.last).wait()
        memory = one.launched()[-1]
        bank = one.channel.memory[read(memory, row)["bank0"] - BASE :]
        assert struct.unpack_from("<QI", bank, row.bank.params) == (2, value)
    values = []
    for memory in one.launched()[:9]:
        bank = one.channel.memory[read(memory, row)["bank0"] - BASE :]
        values.append(struct.unpack_from("<QI", bank, row.bank.params))
    assert values == [(0, 10), (1, 11), (2, 12)] * 3


@pytest.mark.parametrize("inline", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_many_streams_of_any_length_keep_their_arguments(card, seed, inline):
    """In the memory for arguments, or in the ring behind a header that skips them."""
    options = {"inline": True, "ring_bytes": 1 << 15, "entries": 4096} if inline else {}
    rng, one = random.Random(seed), card(ROWS[seed * 2 % len(ROWS)], options=options)
    wanted = []
    for _ in range(40):
        stream = one.stream()
        for _ in range(rng.randrange(1, 12)):
            value = rng.randrange(1 << 32)
            stream.dispatch(one.program, 1, 32, [value, 0, 0])
            wanted.append(value)
        one.channel.queue.submit(stream).wait()
        for memory, value in zip(one.launched(), wanted, strict=True):
            bank = one.channel.memory[read(memory, one.row)["bank0"] - BASE :]
            assert struct.unpack_from("<Q", bank, one.row.bank.params) == (value,)
        one.channel.methods.clear()
        wanted.clear()


def test_a_launch_that_cannot_be_leaves_the_stream_as_it_was(card):
    one = card(ROWS[2], registers=128, shared=2048)
    stream = one.stream()
    stream.dispatch(one.program, 1, 32, [0, 0, 0])
    size, args = stream.size_bytes, bytes(stream.args)
    cases = [
        (ValueError, "grid x is 0 blocks", (0, 32, [0, 0, 0]), {}),
        (ValueError, "grid y is 65536 blocks", ((1, 65536), 32, [0, 0, 0]), {}),
        (ValueError, "block z is 65 threads", (1, (1, 1, 65), [0, 0, 0]), {}),
        (ValueError, "is 1056 threads; 1024 is its limit", (1, (33, 32), [0, 0, 0]), {}),
        (ValueError, "need 131072 registers; an SM has 65536", (1, 1024, [0, 0, 0]), {}),
        (ValueError, "a block of sm_86 has 101376", (1, 32, [0, 0, 0]), {"dynamic_lds_bytes": 99 << 10}),
        (ValueError, "-1 bytes of dynamic shared memory", (1, 32, [0, 0, 0]), {"dynamic_lds_bytes": -1}),
        (TypeError, "takes 3 arguments, not 2", (1, 32, [0, 0]), {}),
        (TypeError, "argument 1 is 4 bytes, not a buffer", (1, 32, [0, SimpleNamespace(gpu_va=1), 0]), {}),
        (TypeError, "argument 0 is 8 bytes, not str", (1, 32, ["a", 0, 0]), {}),
        (ValueError, "argument 1 is 4294967296, outside", (1, 32, [0, 1 << 32, 0]), {}),
        (ValueError, "argument 1: 4 bytes are wanted, not 3", (1, 32, [0, b"abc", 0]), {}),
        (TypeError, "the grid is one to three whole numbers", ("ab", 32, [0, 0, 0]), {}),
        (ValueError, "has one to three dimensions, not 4", ((1, 1, 1, 1), 32, [0, 0, 0]), {}),
    ]
    for kind, message, arguments, options in cases:
        with pytest.raises(kind, match=message):
            stream.dispatch(one.program, *arguments, **options)
        assert (stream.size_bytes, bytes(stream.args)) == (size, args)
    with pytest.raises(TypeError, match="a loaded program or one of its kernels"):
        stream.dispatch("work", 1, 32)
    with pytest.raises(NotSupported, match="do not fill blocks"):
        stream.dispatch_items(one.program, 100, 32, [0, 0, 0])
    stream.dispatch_items(one.program, (64, 4), (32, 2), [0, 0, 0])
    one.channel.queue.submit(stream).wait()
    found = read(one.launched()[-1], ROWS[2])
    assert [found[name] for name in ("grid_x", "grid_y", "block_x", "block_y")] == [2, 2, 32, 2]


def test_programs_of_other_cards_chips_and_run_times_are_refused(card, maker):
    one = card(ROWS[2])
    stream = one.stream()
    with pytest.raises(ValueError, match="was loaded on another card"):
        stream.dispatch(Program(one.code, CODE_VA, lambda: None, Owner("other")), 1, 32, [0, 0, 0])
    hopper = Program(Cubin(maker.cubin(sm=90, params_at=0x210, sizes=())), CODE_VA, lambda: None)
    with pytest.raises(WrongTarget, match="compiled for sm_90; the card runs sm_86"):
        stream.dispatch(hopper, 1, 32)
    odd = Program(Cubin(maker.cubin(params_at=0x200)), CODE_VA, lambda: None)
    with pytest.raises(NotSupported, match="reads its parameters at 0x200"):
        stream.dispatch(odd, 1, 32, [0, 0])
    calls = Program(Cubin(maker.cubin(infos=[maker.info(0x0F, b"\1\0\0\0")])), CODE_VA, lambda: None)
    with pytest.raises(NotSupported, match="functions of NVIDIA's run time"):
        stream.dispatch(calls, 1, 32, [0, 0])
    far = Program(Cubin(maker.cubin(more=[maker.part(".nv.constant9", data=bytes(16))])), CODE_VA, lambda: None)
    with pytest.raises(NotSupported, match="constant bank 9"):
        stream.dispatch(far, 1, 32, [0, 0])
    one.program.free()
    one.program.free()
    with pytest.raises(ValueError, match="was freed: load the program again"):
        stream.dispatch(one.program, 1, 32, [0, 0, 0])


def test_a_program_maps_names_to_kernels_and_names_places(card):
    one = card(ROWS[0])
    assert list(one.program) == ["work"]
    assert kernel_of(one.program) is one.program["work"]
    with pytest.raises(KeyError, match="has no kernel 'other'; it has work"):
        one.program["other"]
    assert one.program.where(CODE_VA + 16) == "work+0x10 of it"
    assert one.program.where(CODE_VA + 200) == "it+0xc8"
    assert one.program.where(CODE_VA - 1) == ""


def test_limits_that_a_cubin_sets(maker):
    infos = [maker.info(0x05, struct.pack("<III", 64, 1, 1)), maker.info(0x10, struct.pack("<III", 32, 2, 1))]
    kernel = Cubin(maker.cubin(infos=infos)).kernels["work"]
    Launch.of(1, (32, 2)).check(kernel, ROWS[2])
    with pytest.raises(ValueError, match="compiled for blocks of \\(32, 2, 1\\), not \\(64, 1, 1\\)"):
        Launch.of(1, 64).check(kernel, ROWS[2])
    with pytest.raises(ValueError, match="128 threads; 64 is its limit"):
        Launch.of(1, 128).check(kernel, ROWS[2])


def test_arguments_of_every_kind(maker):
    packer = Packer(Cubin(maker.cubin(sizes=(1, 2, 4, 8, 12, 2, 4, 8))).kernels["work"])
    args = [255, -1, np.float32(1.5), 1 << 63, b"abcdefghijkl", 0.5, 0.25, np.int64(-3)]
    data = packer.pack(args)
    assert struct.unpack("<BxhfQ12sexxf4xq", data[: struct.calcsize("<BxhfQ12sexxf4xq")]) == (
        255, -1, 1.5, 1 << 63, b"abcdefghijkl", 0.5, 0.25, -3
    )  # fmt: skip
    for number, value, message in [
        (2, np.float64(1), "argument 2 is 4 bytes, float64 is 8"),
        (5, 1e9, "argument 5: 1000000000.0 does not fit 2 bytes"),
        (0, -129, "argument 0 is -129, outside -128 to 255"),
    ]:
        wrong = list(args)
        wrong[number] = value
        with pytest.raises(ValueError, match=message):
            packer.pack(wrong)
    with pytest.raises(TypeError, match="argument 4 is 12 bytes: give bytes, not int"):
        packer.pack([*args[:4], 5, *args[5:]])
    with pytest.raises(ValueError, match="bytes of arguments at 8 in 16"):
        packer.pack_into(bytearray(16), 8, args)


@EACH
def test_uploads_travel_in_the_pushbuffer(row, methods_of):
    engine = ComputeEngine(row)
    words = methods_of(engine.upload(0x1_2345_6789, b"abcde"))
    # LINE_LENGTH_IN, LINE_COUNT, OFFSET_OUT_UPPER, OFFSET_OUT, LAUNCH_DMA to pitched memory, LOAD_INLINE_DATA
    assert words == [
        (1, 0x180, 5), (1, 0x184, 1), (1, 0x188, 1), (1, 0x18C, 0x2345_6789), (1, 0x1B0, 1),
        (1, 0x1B4, int.from_bytes(b"abcd", "little")), (1, 0x1B4, ord("e")),
    ]  # fmt: skip
    assert sum(method == 0x1B4 for _, method, _ in methods_of(engine.upload(0, bytes(65536)))) == 16384
    for data in (b"", bytes(65537)):
        with pytest.raises(ValueError, match="1 to 65536 bytes"):
            engine.upload(0, data)
    with pytest.raises(ValueError, match="an upload is an address"):
        engine.upload(1 << 60, b"a")


def test_stores_and_stamps_of_a_compute_stream(card):
    one = card(ROWS[3])
    stream = one.stream()
    stream.store(0x1000, 1, 2)
    stream.upload(0x2001, b"x")
    stream.stamp(0x40)
    stream.stamp(0x50, after_all=False)
    # RELEASE 1, WFI bit 20, 64 bits bit 24, TIMESTAMP bit 25
    executes = [stream.body[at : at + 4] for at in range(0, len(stream.body), 4)]
    assert (0x0310_0001).to_bytes(4, "little") in executes
    assert (0x0300_0001).to_bytes(4, "little") in executes
    with pytest.raises(ValueError, match="multiple of 4"):
        stream.store(2, 1)


def test_a_profile_of_stamps_of_16_bytes(card):
    one = card(ROWS[1])
    memory = one.channel.memory
    at = one.channel.take(256)

    def read_clock(byte):
        return int.from_bytes(memory[at + byte : at + byte + 8], "little")

    profile = Profile(BASE + at, 4, read_clock, stamp_bytes=STAMP_BYTES, clock_at=STAMP_CLOCK_AT)
    stream = one.stream()
    stream.around = profile.around("compute")
    stream.dispatch(one.program, 1, 32, [0, 0, 0])
    stream.dispatch(one.program, 1, 32, [0, 0, 0])
    one.channel.queue.submit(stream).wait()
    first, second = profile.spans()
    assert (first.name, first.track) == ("work", "compute")
    assert first.begin_ticks < first.end_ticks < second.begin_ticks < second.end_ticks
