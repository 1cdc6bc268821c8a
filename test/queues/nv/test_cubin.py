"""Cubins: made by hand after what ptxas writes, by the compiler's own writer, by ptxas; and damaged ones."""

import random
import struct

import pytest

from ringup.compiler.isa.sass import cubin as compiler_cubin
from ringup.compiler.isa.sass import cubin_write
from ringup.errors import CompileError, WrongTarget
from ringup.queues.nv.cubin import Cubin, is_cubin
from ringup.queues.nv.rows import ROWS

TARGETS = [row.target for row in ROWS]

# global memory with contents and without, a table of constants, local and shared memory, parameters of four sizes
PTX = """
.version 7.8
.target sm_75
.address_size 64
.global .align 4 .u32 counter;
.global .align 4 .u32 table[4] = {1,2,3,4};
.const .align 4 .u32 words[4] = {5,6,7,8};
.visible .entry work(.param .u64 out, .param .u32 n, .param .align 8 .b8 pair[24], .param .u8 last)
{
  .reg .b64 p, q, l;
  .reg .b32 t, v, w;
  .shared .align 4 .b8 block[512];
  .local .align 4 .b8 own[64];
  ld.param.u64 p, [out];
  ld.param.u32 v, [n];
  mov.u32 t, %tid.x;
  and.b32 t, t, 3;
  mul.wide.u32 q, t, 4;
  mov.u64 l, own;
  add.u64 l, l, q;
  st.local.u32 [l], v;
  bar.sync 1;
  ld.local.u32 w, [own+4];
  add.u32 v, v, w;
  mov.u32 w, block;
  mad.lo.u32 w, t, 4, w;
  st.shared.u32 [w], v;
  bar.sync 0;
  ld.shared.u32 w, [block+4];
  atom.global.add.u32 v, [counter], w;
  mov.u64 l, table;
  add.u64 l, l, q;
  ld.global.u32 w, [l];
  add.u32 v, v, w;
  mov.u64 l, words;
  add.u64 l, l, q;
  ld.const.u32 w, [l];
  add.u32 v, v, w;
  st.global.u32 [p], v;
  ret;
}
.visible .entry second(.param .u64 out)
.reqntid 32,4,2
{
  ret;
}
"""


@pytest.mark.parametrize("abi", [7, 8])
def test_a_kernel_has_what_its_cubin_says(maker, abi):
    code = Cubin(maker.cubin(abi=abi, sizes=(8, 4, 24, 1), registers=40, shared=512, frame=72, barriers=3))
    kernel = code.kernels["work"]
    assert code.target == "sm_86"
    assert (kernel.entry_offset, kernel.code_bytes) == (0, 128)
    assert (kernel.registers, kernel.barriers, kernel.shared_bytes, kernel.local_bytes) == (40, 3, 512, 72)
    assert [tuple(each) for each in kernel.parameters] == [(0, 8), (8, 4), (16, 24), (40, 1)]
    assert (kernel.params_at, kernel.param_bytes) == (0x160, 41)
    assert (kernel.banks, kernel.max_threads, kernel.required_block, kernel.externs) == ({}, 0, None, ())
    image = code.at(0x1_0000_0000)
    assert image[:128] == bytes(range(128))
    assert len(image) == code.image_bytes
    # instruction fetch reads ahead
    assert code.image_bytes >= 128 + 512


def test_limits_of_a_launch_and_stacks_without_a_bound(maker):
    infos = [maker.info(0x05, struct.pack("<III", 64, 2, 1)), maker.info(0x10, struct.pack("<III", 32, 4, 1))]
    kernel = Cubin(maker.cubin(infos=infos, frame=16, stack=0xFFFF_FFFF)).kernels["work"]
    assert (kernel.max_threads, kernel.required_block, kernel.local_bytes) == (128, (32, 4, 1), 16 + 1024)


def test_functions_that_a_kernel_calls_get_a_stack(maker):
    """ptxas 12.9 says 0 for what recursive functions and functions called by address need."""
    inner = ("$work$inner", ".text.work", 64, 64, 2, 0)
    frame = maker.info(0x11, struct.pack("<II", 2, 8))
    for module, local in (([], 16), ([frame], 16 + 1024)):
        kernel = Cubin(maker.cubin(frame=16, more_symbols=[inner], module=module)).kernels["work"]
        assert kernel.local_bytes == local


def relocated(maker, kind, offset=16, addend=None, symbol=2, data=bytes(64)):
    """Return a cubin whose code has one relocation to `table`, 8 bytes into `.nv.global.init`."""
    row = struct.pack("<QQ", offset, symbol << 32 | kind)
    more = [
        maker.part(".nv.global.init", data=b"\1\2\3\4" * 8),
        maker.part(".nv.global", 8, size=64, flags=3),
        maker.part(
            ".rel.text.work", 9 if addend is None else 4,
            row + (b"" if addend is None else struct.pack("<q", addend)), info=1, flags=0,
        ),
    ]  # fmt: skip
    symbols = [("table", ".nv.global.init", 8, 8, 1, 0), ("counter", ".nv.global", 0, 4, 1, 0)]
    return maker.cubin(code=data, more=more, more_symbols=[*symbols, ("vprintf", None, 0, 0, 2, 0)])


@pytest.mark.parametrize(
    ("kind", "low", "width", "shift"),
    # R_CUDA_32, _64, _G64, _ABS32_LO_32, _ABS32_HI_32, _ABS47_34: bits in the place
    [(1, 0, 32, 0), (2, 0, 64, 0), (4, 0, 64, 0), (56, 32, 32, 0), (57, 32, 32, 32), (58, 34, 47, 2)],
)
@pytest.mark.parametrize("addend", [None, 4])
def test_addresses_are_filled_in(maker, kind, low, width, shift, addend):
    base = 0x12_3400 if width == 32 and kind == 1 else 0x12_3456_7800
    code = Cubin(relocated(maker, kind, addend=addend))
    image = code.at(base)
    at = base + image.index(b"\1\2\3\4" * 8) + 8 + (addend or 0)
    word = int.from_bytes(image[16:32], "little")
    assert word >> low & (1 << width) - 1 == at >> shift & (1 << width) - 1
    assert word & ~((1 << width) - 1 << low) == 0


def test_addends_in_the_place_count_and_bits_around_stay(maker):
    data = bytes(16) + b"\xaa" * 4 + (24).to_bytes(4, "little") + b"\xbb" * 8 + bytes(32)
    image = Cubin(relocated(maker, 56, data=data)).at(0x100_0000)
    start = image.index(b"\1\2\3\4" * 8)
    assert image[16:32] == b"\xaa" * 4 + (0x100_0000 + start + 8 + 24).to_bytes(4, "little") + b"\xbb" * 8


def test_functions_of_no_file_are_named_and_left_empty(maker):
    code = Cubin(relocated(maker, 58, symbol=4))
    assert code.at(256)[16:32] == bytes(16)
    kernel = Cubin(maker.cubin(infos=[maker.info(0x0F, b"\1\0\0\0")])).kernels["work"]
    assert kernel.externs == ("work",)


def test_an_address_that_does_not_fit_is_refused(maker):
    code = Cubin(relocated(maker, 1), "it")
    with pytest.raises(CompileError, match="address 0x100000000 does not fit 32 bits"):
        code.at(1 << 32)
    with pytest.raises(ValueError, match="multiple of 256"):
        code.at(128)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"registers": 0}, "has 0 registers"),
        ({"registers": 256}, "has 256 registers"),
        ({"barriers": 17}, "uses 17 barriers"),
        ({"frame": (512 << 10) + 1}, "524289 bytes of local memory"),
        ({"sizes": ()}, None),
    ],
)
def test_what_no_chip_has_is_refused(maker, change, message):
    if message is None:
        assert Cubin(maker.cubin(**change)).kernels["work"].parameters == ()
        return
    with pytest.raises(CompileError, match=message):
        Cubin(maker.cubin(**change))


def test_damage_is_named(maker):
    good = maker.cubin()
    overlap = maker.info(0x17, struct.pack("<III", 0, 1 | 4 << 16, 4 << 18))
    far = maker.info(0x17, struct.pack("<III", 0, 1 | 100 << 16, 4 << 18))
    gap = maker.info(0x17, struct.pack("<III", 0, 3 | 8 << 16, 4 << 18))
    cases = {
        "no 64-bit ELF": b"",
        "are no 64-bit": b"\x7fELF\x01" + good[5:],
        "for machine 62": maker.elf([], machine=62),
        "ABI version 9": good[:8] + b"\x09" + good[9:],
        "parameter 1 of work": maker.cubin(infos=[overlap]),
        "bytes 100 to 104 of 12": maker.cubin(infos=[far]),
        "do not count from 0": maker.cubin(infos=[gap]),
        "attribute 0x5 has": maker.cubin(infos=[maker.info(5, b"abc")]),
        "form 9": maker.cubin(infos=[b"\x09\x05\0\0"]),
        "is cut off": maker.cubin(infos=[b"\x04\x05"]),
        "ends at byte": maker.cubin(infos=[b"\x04\x05\xff\0"]),
        "functions in other files": maker.cubin(infos=[maker.info(0x0F, b"abc")]),
        "uses symbol 99": maker.cubin(infos=[maker.info(0x0F, b"\x63\0\0\0")]),
        "relocation of kind 200": relocated(maker, 200),
        "a relocation at byte 64": relocated(maker, 56, offset=64),
        "a relocation at byte 60": relocated(maker, 56, offset=60),
        "names symbol 77": relocated(maker, 56, symbol=77),
        "wants byte": relocated(maker, 56, addend=1 << 40),
        "a bank at most 65536": maker.cubin(more=[maker.part(".nv.constant3", data=bytes(65552))]),
        "aligned to 8192": maker.cubin(more=[maker.part(".nv.global", 8, size=8, align=8192)]),
        "kernel work lies in .text.other": maker.elf(
            [maker.part(".text.other", data=bytes(64), flags=6)], [("work", ".text.other", 0, 64, 2, 0x10)]
        ),
        "bytes 0 to 80 of 64": maker.elf(
            [maker.part(".text.work", data=bytes(64), flags=6)], [("work", ".text.work", 0, 80, 2, 0x10)]
        ),
    }
    for message, data in cases.items():
        with pytest.raises(CompileError, match=message):
            Cubin(data, "it")


@pytest.mark.parametrize("seed", range(4))
def test_any_damage_is_an_error_of_the_compiler_or_harmless(maker, seed):
    rng, good = random.Random(seed), relocated(maker, 56)
    for _ in range(150):
        data = bytearray(good)
        for _ in range(rng.choice([1, 1, 2, 8])):
            data[rng.randrange(len(data))] = rng.choice([0, 1, 0x7F, 0xFF, rng.randrange(256)])
        data = data[: rng.choice([len(data)] * 4 + [rng.randrange(len(data))])]
        try:
            code = Cubin(bytes(data))
            assert code.image_bytes < 1 << 31
            if code.image_bytes < 1 << 20:
                assert len(code.at(0x1000)) == code.image_bytes
        except CompileError:
            pass


@pytest.mark.parametrize(("sm", "row", "runs"), [
    (86, 2, True), (80, 2, True), (86, 3, True), (89, 2, False), (75, 2, False), (90, 4, True), (100, 5, True),
    (120, 5, False), (120, 6, True),
])  # fmt: skip
def test_code_runs_on_its_own_generation(maker, sm, row, runs):
    code = Cubin(maker.cubin(sm=sm), "it")
    if runs:
        code.check(ROWS[row])
        return
    with pytest.raises(WrongTarget, match=f"it was compiled for sm_{sm}; the card runs {ROWS[row].target}"):
        code.check(ROWS[row])


@pytest.mark.parametrize("generation", list(compiler_cubin.Generation))
def test_the_compilers_own_cubins_are_read(generation):
    kernel = compiler_cubin.Kernel(
        "work", bytes(64), 20, barriers=2, shared_bytes=256, frame_bytes=32,
        parameters=(compiler_cubin.Parameter(0, 0, 8), compiler_cubin.Parameter(1, 8, 4)), parameter_bytes=12,
        parameters_at=0x160, constants=bytes(0x160 + 12),
    )  # fmt: skip
    table = compiler_cubin.Data("table", 64, 16, b"\1\2\3")
    data = cubin_write.write(
        [kernel], "sm_86", generation, data=[table], addresses=[compiler_cubin.Address("table", 4)]
    )
    assert is_cubin(data)
    code = Cubin(data)
    found = code.kernels["work"]
    assert (found.registers, found.barriers, found.shared_bytes, found.local_bytes) == (20, 2, 256, 32)
    assert [tuple(each) for each in found.parameters] == [(0, 8), (8, 4)]
    image = code.at(0x7_0000_0000)
    offset, size = found.banks[4]
    assert size == 8
    assert int.from_bytes(image[offset : offset + 8], "little") == 0x7_0000_0000 + image.index(b"\1\2\3") + 4


@pytest.mark.parametrize("target", TARGETS)
def test_what_ptxas_makes_is_read(real_cubin, target):
    code = Cubin(real_cubin(PTX, target))
    assert code.target == target
    assert sorted(code.kernels) == ["second", "work"]
    work, row = code.kernels["work"], ROWS[TARGETS.index(target)]
    assert [tuple(each) for each in work.parameters] == [(0, 8), (8, 4), (16, 24), (40, 1)]
    assert (work.params_at, work.param_bytes) == (row.bank.params, 41)
    # from Hopper on, the shared memory that the system keeps is part of a kernel's own
    assert work.shared_bytes == 512 + (1024 if row.sm >= (9, 0) else 0)
    assert work.barriers == 2
    assert 8 <= work.registers <= 40
    assert code.kernels["second"].required_block == (32, 4, 2)
    image = code.at(0x2_0000_0000)
    offset, size = work.banks[3]
    assert struct.unpack_from("<4I", image, offset) == (5, 6, 7, 8)
    at = 0x2_0000_0000 + image.index(struct.pack("<4I", 1, 2, 3, 4))
    offset, size = work.banks[4]
    assert at in struct.unpack_from(f"<{size // 8}Q", image, offset)


def test_sections_that_share_bytes_do_not_multiply_memory():
    """One section's header, 300 times: each body would be a copy of most of the file."""
    body = bytes(1 << 16)
    rows = [struct.pack("<IIQQQQIIQQ", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)]
    rows += [struct.pack("<IIQQQQIIQQ", 0, 1, 0, 0, 64, len(body), 0, 0, 1, 0) for _ in range(300)]
    table = 64 + len(body)
    head = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    head += struct.pack("<HHIQQQIHHHHHH", 2, 190, 1, 0, 0, table, 0x560556, 64, 0, 0, 64, len(rows), 0)
    with pytest.raises(CompileError, match="more bytes than"):
        Cubin(head + body + b"".join(rows), "hostile")
