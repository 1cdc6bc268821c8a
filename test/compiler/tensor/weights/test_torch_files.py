"""PyTorch's files are read without executing anything. PyTorch 2.14 wrote the files of test/data/torch; the program is
in weights.txt beside them.
"""

import pickle
import random
import struct
import zipfile
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest

from ringup.compiler.graph import dtypes
from ringup.compiler.tensor import load, load_torch
from ringup.errors import CompileError

FILES = Path(__file__).parents[3] / "data" / "torch"
BASE = np.arange(24, dtype=np.float32)


def test_every_type_has_its_values():
    found = load_torch(FILES / "types.pt")
    assert {name: one.dtype.numpy for name, one in found.items()} == {name: name for name in found}
    assert found.pop("bool").tolist() == [True, False, True]
    assert len(found) == 14
    assert {name for name, one in found.items() if one.tolist() != [[0, 1, 2], [3, 4, 5]]} == set()


@pytest.mark.parametrize("name", ["views.pt", "legacy.pt"])
def test_tensors_at_places_of_one_storage_have_their_elements(name):
    found = load_torch(FILES / name)
    assert type(found) is OrderedDict
    wanted = {
        "whole": BASE, "part": BASE[5:11], "rows": BASE.reshape(4, 6)[:, 1:4], "turned": BASE.reshape(4, 6).T,
        "steps": BASE[1::5], "spread": np.array([[1, 1, 1], [2, 2, 2]], np.float32), "one": np.float32(2.5),
        "none": np.zeros((0, 3), np.float32), "again": BASE,
    }  # fmt: skip
    assert list(found) == list(wanted)
    for key, one in wanted.items():
        np.testing.assert_array_equal(found[key].numpy(), one, err_msg=key)


def test_tensors_of_the_same_memory_are_loaded_once_and_written_apart():
    found = load_torch(FILES / "views.pt")
    assert found["again"].node.sources[0] is found["whole"].node
    found["again"].assign(0.0)
    assert (found["again"].sum().item(), found["whole"].sum().item()) == (0, BASE.sum())


def test_a_checkpoint_keeps_what_is_beside_the_tensors():
    found = load(FILES / "checkpoint.pt")
    model = found.pop("model")
    assert {name: one.shape for name, one in model.items()} == {
        "0.weight": (3, 2), "0.bias": (3,), "1.weight": (3,), "1.bias": (3,), "1.running_mean": (3,),
        "1.running_var": (3,), "1.num_batches_tracked": (),
    }  # fmt: skip
    assert model["0.weight"].tolist() == [[0, 1], [2, 3], [4, 5]]
    assert found.pop("parameter").tolist() == [1, 2]
    assert found.pop("optimizer")["param_groups"][0]["lr"] == 0.5
    assert found.pop("dtype") is dtypes.bfloat16
    assert found == {
        "epoch": 3, "best": 0.25, "name": "run é", "done": False, "none": None, "sizes": (2, 3), "big": 1 << 70, "neg": -5,
        "place": "cpu", "tuple": (1, "a", [2.0]), "bytes": b"\0\xff",
    }  # fmt: skip


def test_the_newest_protocol_of_pickles_is_read():
    found = load_torch(FILES / "fifth.pt")
    assert (found["model"]["0.bias"].tolist(), found["bytes"]) == ([1, 2, 3], b"\0\xff")


def test_a_whole_module_is_refused_by_the_name_of_its_class():
    with pytest.raises(
        CompileError, match=r"module\.pt holds torch\.nn\.modules\.container\.Sequential, .*save its state_dict"
    ):
        load_torch(FILES / "module.pt")


# files written here: a pickle and members beside it
def archive(path, pickled, members=(), prefix="x"):
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{prefix}/data.pkl", pickled)
        for name, data in members:
            file.writestr(f"{prefix}/{name}", data)
    return path


def described(offset=0, shape=(2,), strides=(1,), kind="FloatStorage", count=4, after=b""):
    """Return a pickle of one tensor, in PyTorch's words: protocol 2, a call of _rebuild_tensor_v2."""

    def number(value):
        return b"\x8a" + bytes([9]) + value.to_bytes(9, "little", signed=True)

    def sizes(values):
        return b"(" + b"".join(map(number, values)) + b"t"

    storage = b"(X\7\0\0\0storagectorch\n" + kind.encode() + b"\nX\1\0\0\0000X\3\0\0\0cpu" + number(count) + b"tQ"
    return (
        b"\x80\2ctorch._utils\n_rebuild_tensor_v2\n(" + storage + number(offset) + sizes(shape) + sizes(strides)
        + b"\x89ccollections\nOrderedDict\n)R" + after + b"tR."
    )  # fmt: skip


FOUR = struct.pack("<4f", 1, 2, 3, 4)


def test_the_other_byte_order_is_turned_over(tmp_path):
    path = archive(
        tmp_path / "x", described(1, (3,)), [("byteorder", b"big"), ("data/0", struct.pack(">4f", 1, 2, 3, 4))]
    )
    assert load_torch(path).tolist() == [2, 3, 4]


def test_complex_numbers_of_the_other_byte_order_are_turned_over_part_by_part(tmp_path):
    four = struct.pack(">4d", 1, 2, 3, 4)
    pickled = described(0, (2,), kind="ComplexDoubleStorage", count=2)
    path = archive(tmp_path / "x", pickled, [("byteorder", b"big"), ("data/0", four)])
    assert load_torch(path).tolist() == [1 + 2j, 3 + 4j]


def test_a_compressed_archive_is_read_like_any(tmp_path):
    with zipfile.ZipFile(tmp_path / "x", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("x/data.pkl", described(2, (2,)))
        file.writestr("x/data/0", FOUR)
    assert load(tmp_path / "x").tolist() == [3, 4]


@pytest.mark.parametrize(
    ("pickled", "said"),
    [
        (described(3, (2,)), r"a tensor of shape \[2\] reaches to element 4 of 4"),
        (described(0, (1 << 40,)), "reaches to element 1099511627775 of 4"),
        (described(0, (2,), (1 << 62,)), "reaches to element 4611686018427387904 of 4"),
        (described(0, (2, 3), (1, 1)), "elements .* overlap in memory"),
        (described(0, (1 << 40, 1 << 40), (0, 0)), "too many elements"),
        (described(0, (1,) * 65, (1,) * 65), "65 axes"),
        (described(-1), "shape, steps and place are no sizes"),
        (described(0, (-2,)), "shape, steps and place are no sizes"),
        (described(0, (2, 2)), "shape, steps and place are no sizes"),
        (described(count=5), r"x/data/0 has 16 bytes and a storage of 20 is claimed"),
        (described(count=1 << 62), "a storage of 18446744073709551616 is claimed"),
        (described(kind="QUInt8Storage"), r"holds torch\.QUInt8Storage"),
        (described(after=b"}X\3\0\0\0neg\x88s"), "negated or conjugate"),
        (b"cos\nsystem\n(X\4\0\0\0truetR.", r"holds os\.system, which only running code could make"),
        (b"\x80\4\x8c\2os\x8c\6system\x93\x8c\4true\x85R.", r"holds os\.system"),
        (b"cbuiltins\neval\n(X\1\0\0\x001tR.", r"holds builtins\.eval"),
        (b"(S'true'\nios\nsystem\n.", "operation b'S'"),
        (b"(ios\nsystem\n.", "operation b'i'"),
        (b"ctorch\nFloatStorage\n)\x81.", r"operation b'\\x81'"),
        (b"ctorch\nFloatStorage\n)R.", "a call of a StorageType"),
        (b"X\1\0\0\0a)R.", "a call of a str"),
        (b"K\1}b.", "a int with attributes"),
        (b"}" + b"K\1" + b"\x85" * 100_000 + b"K\1s.", "a tuple as the key of a dict"),
        (b"}]K\1s.", "a list as the key of a dict"),
        (b"(X\6\0\0\0moduleK\1tQ.", "holds more than tensors"),
        (b"K\1", "1 bytes are wanted at byte 2 and 0 are left"),
        (b"X\xff\xff\xff\x7fa.", "2147483647 bytes are wanted"),
        (b"\x8b\xff\xff\xff\xffa.", "-1 bytes are wanted"),
        (b"\x8e" + b"\xff" * 8 + b".", "18446744073709551615 bytes are wanted"),
        (b"h\7.", "KeyError"),
        (b"\x86.", "its stack has no 2 values"),
        (b"t.", "its stack has no mark"),
        (b"(\x85.", "its stack has no 1 values"),
        (b"K\1K\2.", "too many values"),
        (b".", "not enough values"),
        (b"\x80\11N.", "it is of protocol 9"),
        (b"X\1\0\0\0\xff.", "UnicodeDecodeError"),
        (b"c" + b"a" * 600, "no line ends"),
        (b"K\1K\2a.", "it appends to a int"),
        (b"](K\1u.", "it sets items of a list"),
    ],
)  # fmt: skip
def test_a_damaged_or_foreign_pickle_is_refused_with_what_is_wrong(tmp_path, pickled, said):
    path = archive(tmp_path / "x.pt", pickled, [("data/0", FOUR)])
    with pytest.raises(CompileError, match=rf"x\.pt.*{said}"):
        load_torch(path)


def test_an_object_that_would_run_code_runs_none(tmp_path):
    class Evil:
        def __reduce__(self):
            return (Path.write_text, (tmp_path / "ran", "it ran"))

    for protocol in range(2, 6):
        path = archive(tmp_path / "x.pt", pickle.dumps({"a": Evil()}, protocol))
        with pytest.raises(CompileError, match="which only running code could make"):
            load(path)
    assert not (tmp_path / "ran").exists()


def test_a_program_in_an_archive_is_refused(tmp_path):
    path = archive(tmp_path / "x", b"N.", [("constants.pkl", b"N."), ("code/a.py", b"")])
    with pytest.raises(CompileError, match="is a TorchScript program"):
        load(path)


def test_a_storage_that_is_missing_is_named(tmp_path):
    with pytest.raises(CompileError, match="no member x/data/0"):
        load_torch(archive(tmp_path / "x", described()))


def test_a_legacy_file_that_is_cut_anywhere_is_refused(tmp_path):
    whole = (FILES / "legacy.pt").read_bytes()
    for size in range(0, len(whole), 3):
        (tmp_path / "x").write_bytes(whole[:size])
        with pytest.raises(CompileError, match="x is "):
            load_torch(tmp_path / "x")


def test_an_archive_that_is_cut_anywhere_is_refused(tmp_path):
    whole = (FILES / "views.pt").read_bytes()
    for size in range(0, len(whole), 17):
        (tmp_path / "x").write_bytes(whole[:size])
        with pytest.raises(CompileError, match="x is no whole PyTorch file: "):
            load_torch(tmp_path / "x")


@pytest.mark.parametrize("name", ["legacy.pt", "views.pt"])
def test_changed_bytes_make_other_values_or_the_error_of_a_damaged_file(tmp_path, name):
    source, whole, refused = random.Random(5), (FILES / name).read_bytes(), 0
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(source.choice((1, 1, 2))):
            data[source.randrange(len(data))] = source.choice((0, 255, source.randrange(256)))
        (tmp_path / "x").write_bytes(data)
        try:
            load_torch(tmp_path / "x")
        except CompileError:
            refused += 1
    assert refused > 50
