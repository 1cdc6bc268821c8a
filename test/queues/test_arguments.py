"""Kernel arguments, packed as the compiler's metadata lays them out, and the checks of a launch."""

import random
import struct

import numpy as np
import pytest

from ringup.errors import NotSupported
from ringup.queues.amd.arguments import Packer, plain
from ringup.queues.amd.launch import Launch
from ringup.queues.amd.objects import code_object
from ringup.queues.amd.objects.hsa_metadata import Argument

SOURCE = """
typedef struct { int a; float b; char c[5]; } S;
__kernel __attribute__((reqd_work_group_size(64, 2, 1))) void scale(__global float *o, __global const float *i, float s, int n) {
  o[n] = i[n] * s;
}
__kernel void many(S s, uchar c, short h, double d, __global long *p, __local int *l, ulong u, __local double *m) {
  __local int fixed[33];
  fixed[__builtin_amdgcn_workitem_id_x() & 31] = c;
  l[__builtin_amdgcn_workitem_id_x()] = s.a + h + (int)u + fixed[h & 31];
  m[u & 3] = d;
  p[0] = (long)d + l[3] + __builtin_amdgcn_workgroup_size_x();
}
"""


class Memory:
    """As much of a card's buffer as a packer needs."""

    def __init__(self, gpu_va):
        self.gpu_va = gpu_va


@pytest.fixture(scope="module")
def program(compile_cl):
    return code_object.parse(compile_cl(SOURCE))


def of(*arguments, size_bytes=64, **more):
    """Return a kernel with the given arguments."""
    program = code_object.raw(
        bytes(256), "gfx1100", rsrc1=0, rsrc2=4, kernarg_bytes=size_bytes, arguments=arguments or None, **more
    )
    return program.kernel("kernel")


ONE = Launch.of(1, 1)


def test_explicit_arguments_lie_where_the_compiler_put_them(program):
    packed = Packer(program.kernel("scale")).pack(
        [Memory(0x1_2345_6000), 0xFFFF_0000_1000, 2, -5], Launch.of(4, (64, 2))
    )
    # an int for a float argument becomes a float
    assert packed == struct.pack("<QQfi", 0x1_2345_6000, 0xFFFF_0000_1000, 2.0, -5)


def test_hidden_arguments_describe_the_launch(program):
    kernel = program.kernel("many")
    launch = Launch.of_items((1000, 70), (64, 4), 64 * 4 + 4 + 32)
    structure = struct.pack("<if5s3x", 1, 2.0, b"abcde")
    packed = Packer(kernel).pack([structure, 200, np.int16(-3), 1.5, Memory(0x7000), 64 * 4, 9, 32], launch)
    assert packed[:16] == structure
    assert packed[16] == 200
    assert struct.unpack_from("<hxxxxd", packed, 18) == (-3, 1.5)
    # The first array comes after the 33 ints; the second, of doubles, is aligned to 8.
    assert struct.unpack_from("<QIxxxxQI", packed, 32) == (0x7000, 132, 9, 392)
    hidden = {each.kind: each for each in kernel.arguments}

    def seen(kind):
        each = hidden[f"hidden_{kind}"]
        return int.from_bytes(packed[each.offset : each.offset + each.size_bytes], "little")

    # 1000 = 15 * 64 + 40, 70 = 17 * 4 + 2
    assert [seen(f"block_count_{axis}") for axis in "xyz"] == [15, 17, 1]
    assert [seen(f"group_size_{axis}") for axis in "xyz"] == [64, 4, 1]
    assert [seen(f"remainder_{axis}") for axis in "xyz"] == [40, 2, 0]
    assert [seen(f"global_offset_{axis}") for axis in "xyz"] == [0, 0, 0]
    assert (seen("grid_dims"), seen("dynamic_lds_size")) == (2, 292)
    assert launch.grid == (16, 18, 1)


def test_the_next_launch_has_its_own_hidden_arguments(program):
    packer = Packer(program.kernel("many"))
    args = [bytes(16), 0, 0, 0.0, 0, 0, 0, 0]
    first, second = (packer.pack(args, Launch.of(n, 64, 4)) for n in (3, 5))
    place = next(a.offset for a in program.kernel("many").arguments if a.kind == "hidden_block_count_x")
    assert (first[place], second[place]) == (3, 5)


def test_dynamic_lds_is_counted_and_must_be_there(program):
    packer = Packer(program.kernel("many"))
    args = [bytes(16), 0, 0, 0.0, 0, 256, 0, 32]
    # 132 + 256 = 388, aligned to 392, + 32, less 132
    assert packer.dynamic_lds_bytes(args) == 292
    packer.pack(args, Launch.of(1, 64, 292))
    with pytest.raises(ValueError, match="its arrays in LDS need 292 dynamic bytes, the launch brings 291"):
        packer.pack(args, Launch.of(1, 64, 291))


def test_numbers_without_a_type_are_kept_bit_by_bit():
    sizes = (1, 2, 4, 8)
    packer = Packer(of(*plain(1, 2, 4, 8), size_bytes=16))
    rng = random.Random(1)
    for _ in range(500):
        values = [
            rng.choice((-1 << 8 * n - 1, (1 << 8 * n) - 1, rng.randrange(-1 << 8 * n - 1, 1 << 8 * n))) for n in sizes
        ]
        masked = [value & (1 << 8 * n) - 1 for value, n in zip(values, sizes, strict=True)]
        assert packer.pack(values, ONE) == struct.pack("<BxHIQ", *masked)
    assert packer.pack([True, 1.0, 1.0, 1.0], ONE) == struct.pack("<Bxefd", 1, 1.0, 1.0, 1.0)
    exact = [np.uint8(7), np.float16(0.5), np.float32(0.1), np.float64(0.1)]
    assert packer.pack(exact, ONE) == struct.pack("<Bxefd", 7, 0.5, 0.1, 0.1)


@pytest.mark.parametrize(
    ("described", "value", "error", "message"),
    [
        (
            plain(4),
            1 << 32,
            ValueError,
            r"kernel: argument 0 \(argument 0\) is 4294967296, outside -2147483648 to 4294967295",
        ),
        (plain("int"), 1 << 31, ValueError, "is 2147483648, outside -2147483648 to 2147483647"),
        (plain("uint"), -1, ValueError, "is -1, outside 0 to 4294967295"),
        (plain("int"), 1.0, TypeError, "is int, not a float"),
        (plain("float"), 1e39, ValueError, r"1e\+39 does not fit 4 bytes"),
        (plain("half"), 70000, ValueError, "70000 does not fit 2 bytes"),
        (plain(4), np.float64(1), ValueError, "is 4 bytes, float64 is 8"),
        (plain(4), bytes(5), ValueError, "4 bytes are wanted, not 5"),
        (plain(4), "text", TypeError, "is 4 bytes, not str"),
        (plain(4), None, TypeError, "is 4 bytes, not NoneType"),
        (plain(1), 1.0, TypeError, "is 1 bytes: give bytes, not float"),
        (plain(4), Memory(1), TypeError, "is by_value of 4 bytes, not a buffer"),
        (
            (Argument("global_buffer", 0, 8, "out"),),
            1.0,
            TypeError,
            r"argument 0 \(out\) is global_buffer: a buffer or an address, not float",
        ),
        ((Argument("global_buffer", 0, 8, "out"),), -1, ValueError, r"argument 0 \(out\) is -1, outside 0 to"),
        ((Argument("dynamic_shared_pointer", 0, 4, "l"),), -4, ValueError, r"argument 0 \(l\) is -4 bytes of LDS"),
    ],
)
def test_a_value_that_does_not_fit_is_named(described, value, error, message):
    with pytest.raises(error, match=message):
        Packer(of(*described)).pack([value], ONE)


def test_the_count_of_arguments_is_checked(program):
    with pytest.raises(TypeError, match="scale takes 4 arguments, not 3"):
        Packer(program.kernel("scale")).pack([1, 2, 3], ONE)


def test_a_buffer_that_is_too_small_is_refused(program):
    packer = Packer(program.kernel("scale"))
    with pytest.raises(ValueError, match="scale: 24 bytes of arguments at 8 in 31"):
        packer.pack_into(bytearray(31), 8, [0, 0, 0.0, 0], ONE)


def test_undescribed_arguments_are_bytes():
    packer = Packer(of(size_bytes=12))
    assert packer.pack([b"abcdefghijkl"], ONE) == b"abcdefghijkl"
    with pytest.raises(ValueError, match="the arguments: 12 bytes are wanted, not 3"):
        packer.pack([b"abc"], ONE)
    with pytest.raises(TypeError, match="has no described arguments: give 12 bytes"):
        packer.pack([1], ONE)


def test_services_are_addresses_that_the_run_time_gives():
    kernel = of(*plain(8), Argument("hidden_printf_buffer", 8, 8), Argument("hidden_heap_v1", 16, 8), size_bytes=24)
    assert Packer(kernel, {"hidden_printf_buffer": 0xABC000}).pack([1], ONE) == struct.pack("<QQQ", 1, 0xABC000, 0)


def test_unknown_kinds_are_refused():
    with pytest.raises(NotSupported, match="arguments of kind hidden_surprise; ringup knows no such kind"):
        Packer(of(Argument("hidden_surprise", 0, 8)))
    with pytest.raises(NotSupported, match="of kind hidden_grid_dims of 3 bytes"):
        Packer(of(Argument("hidden_grid_dims", 0, 3)))


@pytest.mark.parametrize(
    ("launch", "message"),
    [
        (
            lambda: Launch.of(1, (64, 4)),
            r"scale was compiled for blocks of \(64, 2, 1\)|a block of .* is 256 work-items; 128 is its limit",
        ),
        (lambda: Launch.of(1, (128, 1)), r"scale was compiled for blocks of \(64, 2, 1\), not \(128, 1, 1\)"),
        (lambda: Launch.of(1, (64, 2), 65537), "scale: 0 bytes of LDS and 65537 dynamic ones; a group has 65536"),
    ],
)
def test_a_launch_beyond_the_kernels_limits_is_refused(program, launch, message):
    Launch.of(1, (64, 2), 65536).check(program.kernel("scale"))
    with pytest.raises(ValueError, match=message):
        launch().check(program.kernel("scale"))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Launch.of(0, 64), "grid x is 0 work-groups; 1 to 4294967295 are possible"),
        (lambda: Launch.of((1, 1 << 32), 64), "grid y is 4294967296 work-groups"),
        (lambda: Launch.of(1, (1, 1, 1025)), "block z is 1025 work-items; 1 to 1024 are possible"),
        (lambda: Launch.of((1, 1, 1, 1), 64), "the grid has one to three dimensions, not 4"),
        (lambda: Launch.of(1, 64, -1), "-1 bytes of dynamic LDS"),
        (
            lambda: Launch((1, 1, 1), (64, 1, 1), 0, (64, 0, 0)),
            "the last group along x is 64 work-items, of 64 in a full one",
        ),
        (lambda: Launch.of_items(0, 64), "none may be below 1"),
    ],
)
def test_a_launch_that_no_kernel_can_take_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_block_of_too_many_items_is_refused():
    kernel = of()
    Launch.of(1, (32, 32)).check(kernel)
    with pytest.raises(ValueError, match=r"a block of \(32, 33, 1\) is 1056 work-items; 1024 is its limit"):
        Launch.of(1, (32, 33)).check(kernel)


def test_a_type_whose_size_differs_from_its_argument_is_ignored():
    packer = Packer(of(Argument("by_value", 0, 2, "n", type_name="long"), Argument("by_value", 2, 2), size_bytes=4))
    assert packer.pack([0x1234, 5], ONE) == bytes.fromhex("34120500")
