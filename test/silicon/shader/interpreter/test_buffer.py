"""Buffer resources: addressing, range checks, swizzling, formats. Source: RDNA3 ISA reference, "Vector Memory Buffer
Instructions".
"""

import numpy as np
import pytest

IN, OUT = 0x20_0000, 0x30_0000
NONE = 0xAAAA_AAAA
STRUCTURED, INDEX, EMPTY, RAW = range(4)
F32 = 22  # 32_FLOAT
IDENTITY = 4 | 5 << 3 | 6 << 6 | 7 << 9


def descriptor(stride=0, records=256, *, swizzle=0, index_stride=0, add_tid=0, oob=RAW, fmt=F32, selects=IDENTITY):
    """Return the four words of a V# over IN."""
    return (
        IN,
        stride << 16 | swizzle << 30,
        records,
        selects | fmt << 12 | index_stride << 21 | add_tid << 23 | oob << 28,
    )


def run(machine, program, words, **args):
    """Run with the resource in s[4:7]. v1 is 4 * lane. v[2:5] start as 0xAAAAAAAA, and their final values are returned
    as (lane, register).
    """
    out = machine.buffer(OUT, np.zeros(128))
    fills = "".join(f"v_mov_b32_e32 v{at}, {NONE:#x}\n" for at in range(2, 6))
    machine.run(
        "v_lshlrev_b32_e32 v1, 2, v0\n v_lshlrev_b32_e32 v9, 4, v0\n"
        + fills
        + program
        + "\ns_waitcnt vmcnt(0)\n global_store_b128 v9, v[2:5], s[0:1]\n s_endpgm\n",
        **({"user_sgprs": (OUT, 0, 16, 0, *words), "enable_group_id": (False, False, False)} | args),
    )
    return out.reshape(32, 4)


@pytest.mark.parametrize(
    ("load", "first"),
    [
        ("buffer_load_b32 v2, off, s[4:7], 0", [0, 0, 0]),
        ("buffer_load_b32 v2, off, s[4:7], s2 offset:8", [6, 6, 6]),
        ("buffer_load_b32 v2, v1, s[4:7], 0 offen offset:4", [1, 2, 3]),
        ("buffer_load_b32 v2, v0, s[4:7], 0 idxen", [0, 4, 8]),
        ("buffer_load_b32 v2, v[0:1], s[4:7], s2 idxen offen", [4, 9, 14]),
    ],
)
def test_index_offsets_and_base_add_up(machine, load, first):
    machine.buffer(IN, np.arange(256))
    # A stride of 16 bytes.
    assert run(machine, load, descriptor(16, 1024))[:3, 0].tolist() == first


# Stride, records, oob, offset and index. Then: which of the two dwords of a b64 load come back.
BOUNDS = [
    (0, 64, RAW, 56, 0, (True, True)),
    (0, 64, RAW, 60, 0, (True, False)),
    (0, 63, RAW, 60, 0, (False, False)),
    (0, 0, RAW, 0, 0, (False, False)),
    (16, 4, STRUCTURED, 8, 3, (True, True)),
    (16, 4, STRUCTURED, 8, 4, (False, False)),
    (16, 4, STRUCTURED, 12, 3, (True, False)),
    (16, 4, INDEX, 12, 3, (True, True)),
    (16, 4, INDEX, 12, 4, (False, False)),
    (16, 1, EMPTY, 100, 9, (True, True)),
    (16, 0, EMPTY, 0, 0, (False, False)),
    (16, 64, RAW, 0, 3, (True, True)),
    (16, 64, RAW, 0, 4, (False, False)),
]


@pytest.mark.parametrize(("stride", "records", "oob", "offset", "index", "inside"), BOUNDS)
def test_dwords_out_of_range_read_zero(machine, stride, records, oob, offset, index, inside):
    machine.buffer(IN, np.arange(1, 257))
    program = f"v_mov_b32_e32 v6, {index}\n v_mov_b32_e32 v7, {offset}\n buffer_load_b64 v[2:3], v[6:7], s[4:7], 0 idxen offen"
    found = run(machine, program, descriptor(stride, records, oob=oob))
    at = (stride * index + offset) // 4 + 1
    assert found[:, :2].tolist() == [[at if inside[0] else 0, at + 1 if inside[1] else 0]] * 32


def test_stores_out_of_range_are_dropped_dword_by_dword(machine):
    memory = machine.buffer(IN, np.zeros(64))
    run(machine, "v_mov_b32_e32 v6, 20\n buffer_store_b64 v[2:3], v6, s[4:7], 0 offen", descriptor(records=24))
    assert memory[4:8].tolist() == [0, NONE, 0, 0]


def test_the_scalar_offset_shrinks_a_raw_buffer(machine):
    machine.buffer(IN, np.arange(1, 257))
    found = run(machine, "buffer_load_b64 v[2:3], off, s[4:7], s2", descriptor(records=20))
    assert found[0, :2].tolist() == [5, 0]


def test_atomics_are_in_range_or_not_as_a_whole(machine):
    memory = machine.buffer(IN, np.zeros(64, np.uint64), "<u8")
    program = "v_mov_b32_e32 v6, 1\n v_mov_b32_e32 v7, 0\n v_lshlrev_b32_e32 v8, 3, v0\n"
    program += "buffer_atomic_add_u64 v[6:7], v8, s[4:7], 0 offen"
    run(machine, program, descriptor(records=28))
    assert memory[:5].tolist() == [1, 1, 1, 0, 0]


@pytest.mark.parametrize(("swizzle", "element"), [(1, 4), (3, 16)])
def test_swizzled_buffers_interleave_records(machine, swizzle, element):
    """Stride 32, eight records interleaved. Element e of record r lies at ((r / 8) * 32 + e * size) * 8 + (r % 8) *
    size.
    """
    memory = machine.buffer(IN, np.zeros(32 * 8))
    program = "v_mov_b32_e32 v6, v0\n v_mov_b32_e32 v7, 20\n buffer_store_b32 v0, v[6:7], s[4:7], 0 idxen offen"
    run(machine, program, descriptor(32, 32, swizzle=swizzle, oob=STRUCTURED))
    expected = np.zeros(32 * 8, np.uint32)
    for record in range(32):
        at = (record // 8 * 32 + 20 // element * element) * 8 + record % 8 * element + 20 % element
        expected[at // 4] = record
    assert (memory == expected).all()


def test_the_lane_may_be_the_index(machine):
    machine.buffer(IN, np.arange(256))
    found = run(machine, "buffer_load_b32 v2, off, s[4:7], 0", descriptor(8, 1000, add_tid=1, oob=INDEX, fmt=0))
    assert found[:, 0].tolist() == list(range(0, 64, 2))


def test_a_resource_without_a_format_reads_zero(machine):
    assert (run(machine, "buffer_load_b32 v2, off, s[4:7], 0", (0, 0, 0, 0))[:, 0] == 0).all()


# Format number, element, and the result of tbuffer_load_format_xyzw.
FORMATS = [
    ("BUF_FMT_8_UNORM", b"\xff", [0x3F80_0000, 0, 0, 0]),
    ("BUF_FMT_8_SNORM", b"\x80", [0xBF80_0000, 0, 0, 0]),
    ("BUF_FMT_8_8_USCALED", b"\x02\xff", [0x4000_0000, 0x437F_0000, 0, 0]),
    ("BUF_FMT_8_8_SSCALED", b"\x02\xff", [0x4000_0000, 0xBF80_0000, 0, 0]),
    ("BUF_FMT_8_8_8_8_UINT", b"\x01\x02\x03\xff", [1, 2, 3, 255]),
    ("BUF_FMT_8_8_8_8_SINT", b"\x01\x02\x03\xff", [1, 2, 3, 0xFFFF_FFFF]),
    ("BUF_FMT_16_16_FLOAT", b"\x00\x3c\x01\x00", [0x3F80_0000, 0x3380_0000, 0, 0]),
    ("BUF_FMT_10_11_11_FLOAT", (0x3C0 | 0x1E0 << 22).to_bytes(4, "little"), [0x3F80_0000, 0, 0x3F80_0000, 0]),
    ("BUF_FMT_2_10_10_10_UINT", (1 | 2 << 10 | 3 << 20 | 3 << 30).to_bytes(4, "little"), [1, 2, 3, 3]),
    ("BUF_FMT_10_10_10_2_UINT", (1 | 2 << 2 | 3 << 12 | 4 << 22).to_bytes(4, "little"), [1, 2, 3, 4]),
    ("BUF_FMT_32_32_32_FLOAT", np.arange(3, dtype="<f4").tobytes(), [0, 0x3F80_0000, 0x4000_0000, 0]),
    ("BUF_FMT_32_32_32_32_UINT", np.arange(4, dtype="<u4").tobytes(), [0, 1, 2, 3]),
]


@pytest.mark.parametrize(("name", "element", "values"), FORMATS)
def test_typed_loads_convert(machine, name, element, values):
    machine.arena.place(IN, element)
    found = run(machine, f"tbuffer_load_format_xyzw v[2:5], off, s[4:7], 0 format:[{name}]", descriptor())
    assert (found == values).all()


@pytest.mark.parametrize(
    ("name", "registers", "element"),
    [
        # 127.5, rounded to even.
        ("BUF_FMT_8_UNORM", [0x3F00_0000], b"\x80"),
        ("BUF_FMT_8_UNORM", [0x4000_0000], b"\xff"),
        ("BUF_FMT_8_UNORM", [0xBF80_0000], b"\x00"),
        ("BUF_FMT_8_SNORM", [0xC000_0000], b"\x81"),
        # A tie, rounded to even.
        ("BUF_FMT_16_FLOAT", [0x3F80_1000], b"\x00\x3c"),
        ("BUF_FMT_16_FLOAT", [0x3F80_1001], b"\x01\x3c"),
        ("BUF_FMT_16_FLOAT", [0x7F00_0000], b"\x00\x7c"),
        ("BUF_FMT_32_32_UINT", [1, 2], np.arange(1, 3, dtype="<u4").tobytes()),
    ],
)
def test_typed_stores_convert(machine, name, registers, element):
    memory = machine.arena.place(IN, 64)
    program = "".join(f"v_mov_b32_e32 v{6 + at}, {value:#x}\n" for at, value in enumerate(registers))
    width = "_".join("xy"[: len(registers)]).replace("_", "")
    last = f"v[6:{5 + len(registers)}]" if len(registers) > 1 else "v6"
    run(machine, program + f"tbuffer_store_format_{width} {last}, off, s[4:7], 0 format:[{name}]", descriptor())
    assert memory[: len(element)].tobytes() == element


def test_untyped_format_loads_select_components(machine):
    """Format 8_8_8_8_UINT with the components W, 1, 0, X."""
    machine.arena.place(IN, b"\x11\x22\x33\x44")
    words = descriptor(fmt=46, selects=7 | 1 << 3 | 0 << 6 | 4 << 9)
    assert (run(machine, "buffer_load_format_xyzw v[2:5], off, s[4:7], 0", words) == [0x44, 1, 0, 0x11]).all()


def test_d16_loads_pack_pairs_and_keep_the_other_half(machine):
    machine.arena.place(IN, b"\x11\x22\x33\x44")
    words = descriptor(fmt=46)
    found = run(machine, "buffer_load_d16_format_xyz v[2:3], off, s[4:7], 0", words)
    assert found[0, :2].tolist() == [0x0022_0011, 0xAAAA_0033]
    machine.arena.regions.clear()
    machine.arena.place(IN, b"\x11\x22\x33\x44")
    found = run(machine, "buffer_load_d16_hi_format_x v2, off, s[4:7], 0", words)
    assert found[0, 0] == 0x0011_AAAA


def test_f32_becomes_f16_by_truncation(machine):
    machine.buffer(IN, [0x3F80_1FFF])
    found = run(machine, "buffer_load_d16_format_x v2, off, s[4:7], 0", descriptor())
    assert found[0, 0] == 0xAAAA_3C00


def test_a_typed_access_off_its_alignment_is_refused(machine):
    machine.buffer(IN, np.zeros(8))
    machine.buffer(OUT, np.zeros(128))
    violation = machine.broken(
        "tbuffer_load_format_x v2, off, s[4:7], 0 format:[BUF_FMT_32_FLOAT] offset:2\n s_endpgm",
        user_sgprs=(OUT, 0, 16, 0, *descriptor()),
        enable_group_id=(False, False, False),
    )
    assert violation.kind == "alignment"
