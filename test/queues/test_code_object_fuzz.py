"""Damaged code objects: cut at every byte, bytes changed at random, counts and sizes enlarged. The result is one
`RingupError` or a program.
"""

import contextlib
import random
import struct
import tracemalloc

import pytest

from ringup.errors import CompileError, RingupError
from ringup.queues.amd.arguments import Packer
from ringup.queues.amd.objects import hsa_metadata
from ringup.queues.amd.objects.code_object import parse

SOURCE = """
__constant int lut[4] = {1, 2, 3, 4};
__global int table[4] = {5, 6, 7, 8};
__global int *where = &table[2];
__kernel void k(__global int *p, int n, __local int *l) { l[n] = n; p[0] = *where + lut[n & 3] + __builtin_amdgcn_workgroup_size_x(); }
"""
MUTATIONS = 20_000
EXTREMES = (0, 1, 0x7F, 0x80, 0xFF)


@pytest.fixture(scope="module", params=[True, False], ids=["linked", "unlinked"])
def small(request, compile_cl):
    return compile_cl(SOURCE, "-Xlinker", "--strip-all", linked=request.param)


def attempt(data):
    """Parse, place and pack as a loader does; tell whether it succeeded."""
    try:
        program = parse(data)
        program.relocate(0x1_0000_0000)
        for kernel in program.kernels.values():
            Packer(kernel)
    except RingupError:
        return False
    return True


def test_an_object_cut_anywhere_is_one_error_or_whole(small):
    # The section headers at the end of a linked object are not needed.
    went = [attempt(small[:size]) for size in range(len(small))]
    needed = went.index(True) if True in went else len(small)
    assert not any(went[:needed])
    assert all(went[needed:])
    assert needed > len(small) // 2


def test_random_damage_is_one_error_or_a_program(small):
    rng = random.Random(4)
    for _ in range(MUTATIONS):
        data = bytearray(small)
        for _ in range(rng.choice((1, 1, 2, 8))):
            at = rng.randrange(len(data))
            data[at] = rng.choice((rng.randrange(256), rng.choice(EXTREMES), data[at] ^ 1 << rng.randrange(8)))
        attempt(bytes(data))


def test_random_damage_of_the_metadata_is_one_error_or_kernels(small):
    rng = random.Random(5)
    start = small.index(b"AMDGPU\0\0") + 8
    (size,) = struct.unpack_from("<I", small, start - 16)
    note = small[start : start + size]
    assert hsa_metadata.parse(note, "note")[0] == "amdgcn-amd-amdhsa--gfx1100"
    for _ in range(MUTATIONS):
        data = bytearray(note)
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        with contextlib.suppress(RingupError):
            hsa_metadata.parse(bytes(data), "note")


def test_deep_and_huge_metadata_is_refused_at_once():
    for note in (
        b"\x91" * 100_000,
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"",
        b"\xc1",
    ):
        with pytest.raises(CompileError, match="its metadata is no MessagePack"):
            hsa_metadata.parse(note, "note")


def test_an_image_of_endless_zeros_is_refused(small):
    data = bytearray(small)
    if struct.unpack_from("<H", data, 16)[0] == 1:
        (headers,) = struct.unpack_from("<Q", data, 40)
        count = struct.unpack_from("<H", data, 60)[0]
        sizes = [
            headers + 64 * n + 32
            for n in range(count)
            if data[headers + 64 * n + 8] & 2 and data[headers + 64 * n + 4] != 7
        ]
    else:
        sizes = [64 + 56 * n + 40 for n in range(struct.unpack_from("<H", data, 56)[0]) if data[64 + 56 * n] == 1]
    struct.pack_into("<Q", data, sizes[-1], 1 << 40)
    tracemalloc.start()
    with pytest.raises(
        CompileError, match=r"it needs 0x1000000\w{4} bytes of memory, above 0x10000000|would end at byte"
    ):
        parse(bytes(data))
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def test_endless_arguments_are_refused(small):
    data = bytearray(small)
    at = data.find(struct.pack("<III", 0, 0, parse(small).kernel("k").kernarg_bytes))  # the descriptor's first words
    struct.pack_into("<I", data, at + 8, 0xFFFF_FFFF)
    with pytest.raises(CompileError, match="kernel k: 4294967295 bytes of arguments, above 1048576"):
        parse(bytes(data))
