"""Damaged safetensors and GGUF files are refused with an error that names them.

The tests write GGUF's words from ggml's docs/gguf.md: magic, version, counts, fields, tensors, padding, data.
"""

import json
import struct

import numpy as np
import pytest

from ringup.compiler.tensor import load_gguf, load_safetensors, save_safetensors
from ringup.errors import CompileError

OPTIONAL = "a library for weights, of the dev dependencies"
FOUR = struct.pack("<4f", 1, 2, 3, 4)
U32, BOOL, STRING, ARRAY = 4, 7, 8, 9
F32, Q8_0 = 0, 8
HUGE = 1 << 60


def text(words):
    return struct.pack("<Q", len(words)) + words.encode()


def pair(key, kind, value):
    return text(key) + struct.pack("<I", kind) + value


def row(name, sizes=(4,), kind=F32, offset=0):
    return text(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, kind, offset)


def gguf(pairs=(), tensors=(), data=b"", version=3, counts=None):
    tensor_count, pair_count = counts or (len(tensors), len(pairs))
    head = b"GGUF" + struct.pack("<IQQ", version, tensor_count, pair_count) + b"".join([*pairs, *tensors])
    return head + (bytes(-len(head) % 32) if tensors else b"") + data


GOOD = gguf(
    [pair("general.name", STRING, text("a name")), pair("list", ARRAY, struct.pack("<IQ", STRING, 2) + text("ab") + text("c")),
     pair("yes", BOOL, b"\1"), pair("numbers", ARRAY, struct.pack("<IQ3I", U32, 3, 1, 2, 3))],
    [row("k"), row("v", offset=32)], FOUR + bytes(16) + FOUR,
)  # fmt: skip


@pytest.fixture
def load(tmp_path):
    def of(data):
        (tmp_path / "x.gguf").write_bytes(data)
        return load_gguf(tmp_path / "x.gguf")

    return of


def test_a_sound_file_has_what_was_written(load):
    tensors, fields = load(GOOD)
    assert {name: one.tolist() for name, one in tensors.items()} == {"k": [1, 2, 3, 4], "v": [1, 2, 3, 4]}
    assert (fields["general.name"], fields["list"], fields["numbers"]) == ("a name", ["ab", "c"], [1, 2, 3])


def test_a_file_of_the_other_byte_order_is_refused_with_what_turns_it_over(tmp_path):
    """Without the check its numbers would be read in the wrong byte order."""
    library = pytest.importorskip("gguf", reason=OPTIONAL)
    writer = library.GGUFWriter(tmp_path / "x.gguf", "llama", endianess=library.GGUFEndian.BIG)
    writer.add_tensor("k", np.arange(4, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(CompileError, match=r"x\.gguf is a GGUF file of the other byte order; `gguf-convert-endian "):
        load_gguf(tmp_path / "x.gguf")


def test_a_file_that_is_cut_anywhere_is_refused(load):
    for size in (*range(0, len(GOOD), 7), len(GOOD) - 1):
        with pytest.raises(CompileError, match=r"x\.gguf is no whole GGUF file: "):
            load(GOOD[:size])


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (gguf([], [row("k"), row("v")], FOUR), "k lies at bytes 0x60 to 0x70 and v begins at 0x60: they overlap"),
        (gguf([], [row("k", (16,)), row("v", offset=32)], FOUR * 8), "they overlap"),
        (gguf([], [row("v", offset=32), row("k", (16,))], FOUR * 8), "k lies at .* and v begins at .*: they overlap"),
        (gguf([], [row("k"), row("k", offset=32)], FOUR * 4), "two tensors are called k"),
        (gguf([], [row("k", offset=64)], FOUR), "k lies at bytes 0x80 to 0x90 and the file ends at 0x50"),
        (gguf([], [row("k", offset=1 << 63)], FOUR), "k lies at bytes 0x80000000000000"),
        (gguf([], [row("k", offset=4)], FOUR * 2), "k begins at 0x4 of the data, which is no multiple of 32"),
        (gguf([], [row("k", (1 << 62, 4))], FOUR), r"k is \[4611686018427387904, 4\] of F32"),
        (gguf([], [row("k", (1 << 32, 1 << 32, 2))], FOUR), "k is .* of F32"),
        (gguf([], [row("k", (33,), Q8_0)], bytes(68)), r"k is \[33\] of Q8_0, whose rows hold whole blocks of 32"),
        (gguf([], [row("k", (16, 2), Q8_0)], bytes(34)), "whose rows hold whole blocks of 32"),
        (gguf([], [row("k", (1,) * 5)], FOUR), "k has 5 dimensions, 4 are the most"),
        (gguf([], [text("k") + struct.pack("<I", 1 << 30)], FOUR), "k has 1073741824 dimensions"),
        (gguf([], [row("k", kind=999)], FOUR), "k has type 999, which is none"),
        (gguf(counts=(HUGE, 0)), "1152921504606846976 tensors are claimed and the file has 8 more bytes"),
        (gguf(counts=(0, HUGE)), "1152921504606846976 fields are claimed and the file has 0 more bytes"),
        (gguf([pair("a", STRING, struct.pack("<Q", HUGE))]), "a at byte 45 wants 1152921504606846976 bytes"),
        (gguf([pair("a", ARRAY, struct.pack("<IQ", U32, HUGE))]), "1152921504606846976 elements of a are claimed"),
        (gguf([pair("a", ARRAY, struct.pack("<IQ", STRING, HUGE))]), "elements of a are claimed"),
        (gguf([pair("a", ARRAY, struct.pack("<IQ", ARRAY, 1) * 9 + bytes(99))]), "a has type 9, nested 4 deep"),
        (gguf([pair("a", 77, b"1234")]), "a has type 77"),
        (gguf([pair("a", BOOL, b"\2")]), "a is a truth value of 2"),
        (gguf([pair("a", BOOL, b"\1"), pair("a", BOOL, b"\0")]), "two fields are called a"),
        (gguf([text("a\0").replace(b"a\0", b"\xff\xfe") + struct.pack("<IB", BOOL, 1)]), "name at byte 32 is no UTF-8"),
        (gguf([pair("general.alignment", U32, struct.pack("<I", 0))]), "general.alignment is"),
        (gguf([pair("general.alignment", U32, struct.pack("<I", 48))]), "general.alignment is 48"),
        (gguf([pair("general.alignment", STRING, text("32"))]), "general.alignment is no 32-bit number"),
        (b"GGML" + GOOD[4:], "it does not begin with GGUF"),
        (gguf(version=99), "it is of version 99; there are 2 and 3"),
    ],
)  # fmt: skip
def test_a_damaged_file_is_refused_with_what_is_wrong(load, data, said):
    with pytest.raises(CompileError, match=f"x.gguf is no whole GGUF file: .*{said}"):
        load(data)


def test_tensors_of_no_elements_may_lie_where_another_does(load):
    tensors, _ = load(gguf([], [row("none", (0,)), row("k")], FOUR))
    assert (tensors["none"].shape, tensors["k"].tolist()) == ((0,), [1, 2, 3, 4])


# --- safetensors: the length of the header, the header as JSON, the data ----------------------------------------------
def safetensors(rows, data=FOUR, header=None):
    head = (json.dumps(rows) if header is None else header).encode()
    return struct.pack("<Q", len(head)) + head + data


def f32(begin, end, shape=(4,), kind="F32"):
    return {"dtype": kind, "shape": list(shape), "data_offsets": [begin, end]}


@pytest.mark.parametrize(
    "data",
    [
        safetensors({"k": f32(0, 16), "v": f32(0, 16)}),
        safetensors({"k": f32(0, 16), "v": f32(8, 24)}, FOUR * 2),
        safetensors({"k": f32(4, 20)}, FOUR * 2),
        safetensors({"k": f32(0, 32, (8,))}),
        safetensors({"k": f32(0, 16)}, FOUR * 2),
        safetensors({"k": f32(16, 0)}),
        safetensors({"k": f32(0, 16, (1 << 62, 4))}),
        safetensors({"k": f32(0, 16, (1 << 32, 1 << 32))}),
        safetensors({"k": f32(0, 16, (-4,))}),
        safetensors({"k": f32(0, 15)}, FOUR[:15]),
        safetensors({"k": f32(0, 16, kind="F33")}),
        safetensors({}, header="[" * 100_000),
        struct.pack("<Q", 1 << 63) + b"{}",
        struct.pack("<Q", 1 << 40) + b"{}",
        safetensors({}, header=f'{{"k": {json.dumps(f32(0, 16))}, "k": {json.dumps(f32(0, 16, kind="I32"))}}}'),
        safetensors({}, header='{"k": {"dtype": "F32", "dtype": "I32", "shape": [4], "data_offsets": [0, 16]}}'),
        safetensors({"k": {**f32(0, 16), "more": 1}}),
        safetensors({"k": {"dtype": "F32", "shape": [4]}}),
        safetensors({"k": f32(0, 16, (4.0,))}),
        safetensors({"k": f32(0, 16, (True, 4))}),
        safetensors({"k": {**f32(0, 16), "data_offsets": [0, 16, 16]}}),
        safetensors({"k": [1]}),
        safetensors({"__metadata__": {"a": 1}, "k": f32(0, 16)}),
        safetensors({}, b"", header="[]"),
        safetensors({}, b"", header=' {"k": 1}'),
        safetensors({}, b"", header='{"k": ' + "1" * 5000 + "}"),
        b"",
        b"1234567",
    ],
)  # fmt: skip
def test_a_damaged_safetensors_file_is_refused(tmp_path, data):
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(CompileError, match="x is no whole safetensors file: "):
        load_safetensors(tmp_path / "x")


def test_a_rank_that_nobody_uses_is_read_as_it_is(tmp_path):
    (tmp_path / "x").write_bytes(safetensors({"k": f32(0, 16, (1,) * 30 + (4,))}))
    assert load_safetensors(tmp_path / "x")["k"].shape == (1,) * 30 + (4,)


def test_a_file_that_cannot_be_written_whole_leaves_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "x"
    save_safetensors({}, path)
    before = path.read_bytes()

    def full(source, target):
        raise OSError(28, "No space left on device", str(source))

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(OSError, match="No space left") as raised:
        save_safetensors({}, path, {"made": "anew"})
    assert (raised.value.filename, path.read_bytes(), [one.name for one in tmp_path.iterdir()]) == (
        str(path),
        before,
        ["x"],
    )
