"""NumPy's files are read as `np.load` reads them; NumPy writes them here."""

import struct
import zipfile

import ml_dtypes
import numpy as np
import pytest

from ringup.compiler.tensor import Tensor, load, load_npy, load_npz
from ringup.errors import CompileError

ARRAYS = {
    "plain": np.arange(6, dtype=np.float32).reshape(2, 3),
    "columns": np.asfortranarray(np.arange(24, dtype=np.int16).reshape(2, 3, 4)),
    "other_order": np.arange(6, dtype=">f8").reshape(3, 2),
    "both": np.asfortranarray(np.arange(6, dtype=">u4").reshape(3, 2)),
    "flags": np.array([True, False, True]),
    "one": np.array(2.5, np.float16),
    "none": np.zeros((0, 3), np.int64),
    "part": np.arange(20)[::3],
}


def check(tensor, array):
    assert (tensor.shape, tensor.dtype.numpy) == (array.shape, array.dtype.name)
    np.testing.assert_array_equal(tensor.numpy(), array)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_an_archive_has_what_was_saved(tmp_path, save):
    save(tmp_path / "x.npz", **ARRAYS)
    found = load(tmp_path / "x.npz")
    assert list(found) == list(ARRAYS)
    for name, array in ARRAYS.items():
        check(found[name], array)


@pytest.mark.parametrize("name", ARRAYS)
def test_one_array_has_what_was_saved(tmp_path, name):
    np.save(tmp_path / "x.npy", ARRAYS[name])
    found = load(tmp_path / "x.npy")
    assert type(found) is Tensor
    check(found, ARRAYS[name])


def test_the_second_version_of_the_format_is_read(tmp_path):
    with (tmp_path / "x").open("wb") as file:
        np.lib.format.write_array(file, ARRAYS["plain"], version=(2, 0))
    check(load_npy(tmp_path / "x"), ARRAYS["plain"])


def test_a_truth_value_of_any_byte_is_true(tmp_path):
    np.save(tmp_path / "x", np.array([0, 1, 2, 255], np.uint8))
    raw = (tmp_path / "x.npy").read_bytes().replace(b"|u1", b"|b1")
    (tmp_path / "x.npy").write_bytes(raw)
    assert load_npy(tmp_path / "x.npy").int().tolist() == [0, 1, 1, 1]


@pytest.mark.parametrize(
    ("array", "said"),
    [
        (np.array([{}, 1], object), "holds Python objects, which only running code could make"),
        (np.zeros(2, [("a", "f4"), ("b", "O")]), "holds Python objects"),
        (np.zeros(2, [("a", "f4"), ("b", "f4")]), "has no type here"),
        (np.zeros(2, np.longdouble), "holds float128, which has no type here"),
        (np.array(["a"]), "holds <U1, which has no type here"),
        (np.zeros(2, "M8[s]"), "has no type here"),
        (np.zeros(2, ml_dtypes.bfloat16), "NumPy writes bf16 and float8 as raw bytes: save them as safetensors"),
    ],
)  # fmt: skip
def test_elements_without_a_type_here_are_refused(tmp_path, array, said):
    np.save(tmp_path / "x.npy", array, allow_pickle=True)
    with pytest.raises(CompileError, match=rf"x\.npy.*{said}"):
        load_npy(tmp_path / "x.npy")


def headed(text, data=bytes(24), version=b"\1\0"):
    return b"\x93NUMPY" + version + struct.pack("<H", len(text)) + text.encode() + data


def header(shape="(6,)", order="False", kind="'<f4'"):
    return f"{{'descr': {kind}, 'fortran_order': {order}, 'shape': {shape}}}\n"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (headed(header(), bytes(23)), r"\[6\] of float32 and 23 bytes"),
        (headed(header(), bytes(25)), "25 bytes"),
        (headed(header("(1 << 40,)")), "malformed"),
        (headed(header(f"({1 << 40},)")), "1099511627776"),
        (headed(header(f"({1 << 62}, 4)")), "4611686018427387904"),
        (headed(header(f"({1 << 64}, 0)")), "other things than sizes"),
        (headed(header("(-6, -1)")), "other things than sizes"),
        (headed(header("(6.0,)")), "other things than sizes"),
        (headed(header("(True, 6)")), "other things than sizes"),
        (headed(header("6")), "other things than sizes"),
        (headed(header("(" * 5000)), "no whole array"),
        (headed(header("(" + "1," * 100 + ")")), "no whole array"),
        (headed(header("(6" + ",1" * 100 + ")")), "over 64 axes"),
        (headed(header(order="1")), "its order or its type is none"),
        (headed(header(kind="1")), "its order or its type is none"),
        (headed(header(kind="'f5'")), "no whole array"),
        (headed(header(kind="'('")), "no whole array"),
        (headed("__import__('os').getpid()\n"), "no whole array"),
        (headed("{}\n"), "other entries than descr"),
        (headed("[1]\n"), "other entries than descr"),
        (headed(header(), version=b"\3\0"), "magic and version 1 or 2"),
        (b"\x93NUMPY\2\0\xff\xff\xff\xff" + bytes(40), "header of 4294967295 bytes"),
        (b"\x93NUMPY", "magic and version"),
    ],
)  # fmt: skip
def test_a_damaged_array_is_refused_with_what_is_wrong(tmp_path, data, said):
    (tmp_path / "x.npy").write_bytes(data)
    with pytest.raises(CompileError, match=rf"x\.npy.*{said}"):
        load(tmp_path / "x.npy")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_an_archive_that_is_cut_anywhere_is_refused(tmp_path, save):
    save(tmp_path / "x.npz", a=np.arange(6.0), b=np.arange(3))
    whole = (tmp_path / "x.npz").read_bytes()
    for size in range(0, len(whole), 5):
        (tmp_path / "x.npz").write_bytes(whole[:size])
        with pytest.raises(CompileError, match=r"x\.npz is no whole \.npz file: "):
            load_npz(tmp_path / "x.npz")


def test_an_array_that_is_cut_anywhere_is_refused(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(6.0))
    whole = (tmp_path / "x.npy").read_bytes()
    for size in range(len(whole)):
        (tmp_path / "x.npy").write_bytes(whole[:size])
        with pytest.raises(CompileError, match=r"x\.npy is no whole array"):
            load_npy(tmp_path / "x.npy")


def test_members_that_are_no_arrays_or_come_twice_are_refused(tmp_path):
    good = headed(header())
    for names, said in (
        (("a.txt",), "its member a.txt is no array"),
        (("a.npy", "a.npy"), "two members are called a.npy"),
    ):
        with zipfile.ZipFile(tmp_path / "x.npz", "w") as file, pytest.warns() if len(names) > 1 else open("/dev/null"):
            for name in names:
                file.writestr(name, good)
        with pytest.raises(CompileError, match=said):
            load_npz(tmp_path / "x.npz")


def test_a_name_with_a_path_is_a_name(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as file:
        file.writestr("../../escaped.npy", headed(header()))
    assert load_npz(tmp_path / "x.npz")["../../escaped"].tolist() == [0] * 6
    assert [one.name for one in tmp_path.parent.rglob("escaped*")] == []


# zip archives whose list of members lies
def patched(tmp_path, change, method=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(tmp_path / "x.npz", "w", method) as file:
        file.writestr("a.npy", headed(header(f"({6 * 1000},)"), bytes(24_000)))
        file.writestr("b.npy", headed(header()))
    data = bytearray((tmp_path / "x.npz").read_bytes())
    first = data.find(b"PK\1\2")
    change(data, first, data.find(b"PK\1\2", first + 4))
    (tmp_path / "x.npz").write_bytes(data)
    return tmp_path / "x.npz"


# offsets in an entry of the list of members: APPNOTE, "Central directory structure"
FLAGS_AT, METHOD_AT, CRC_AT, PACKED_AT, SIZE_AT, PLACE_AT = 8, 10, 16, 20, 24, 42


def number(at, value, code="<I"):
    return lambda data, first, second: struct.pack_into(code, data, first + at, value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (number(SIZE_AT, 0xFFFF_FFF0), "a.npy claims 4294967280 bytes from"),
        (number(SIZE_AT, 30_000), "holds other than the 30000 bytes|6000.* of float32 and"),
        (number(PACKED_AT, 0xFFFF_FF00), "a.npy lies at bytes"),
        (number(PLACE_AT, 0xFFFF_FF00), "a.npy has no header at byte"),
        (number(PLACE_AT, 7), "a.npy has no header at byte 7"),
        (number(FLAGS_AT, 1, "<H"), "a.npy is encrypted"),
        (number(METHOD_AT, 12, "<H"), "another method than deflate"),
        (lambda data, first, second: struct.pack_into("<I", data, second + PLACE_AT, 0), "they overlap"),
    ],
)  # fmt: skip
def test_a_lying_archive_is_refused(tmp_path, change, said):
    with pytest.raises(CompileError, match=rf"x\.npz.*({said})"):
        load_npz(patched(tmp_path, change))


def test_what_is_inflated_is_checked_when_it_is_used(tmp_path):
    found = load_npz(patched(tmp_path, number(CRC_AT, 1)))
    with pytest.raises(CompileError, match=r"x\.npz is no whole .npz file: the checksum of a\.npy differs"):
        found["a"].numpy()
