"""A file of weights is mapped: a tensor's bytes are read when it is used, and not before. The format is found by what a
file holds.
"""

import gc
import json
import os
import pickle
import tarfile

import numpy as np
import pytest

from ringup.compiler.files.mapped import MappedFile
from ringup.compiler.tensor import Tensor, load, load_safetensors, save_safetensors
from ringup.errors import CompileError

GIB = 1 << 30
OPTIONAL = "a library for weights, of the dev dependencies"


@pytest.fixture
def path(tmp_path):
    save_safetensors({"a": Tensor([1.0, 2.0]), "b": Tensor([[3, 4]])}, tmp_path / "x.safetensors", {"made": "here"})
    return tmp_path / "x.safetensors"


def test_a_file_larger_than_memory_opens_and_one_tensor_of_it_is_read(tmp_path):
    """The file has holes: 256 GiB of it were never written."""
    rows = {
        "large": {"dtype": "F32", "shape": [64, GIB], "data_offsets": [0, 256 * GIB]},
        "small": {"dtype": "F32", "shape": [2], "data_offsets": [256 * GIB, 256 * GIB + 8]},
    }
    head = json.dumps(rows).encode()
    with (tmp_path / "x").open("wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        file.seek(256 * GIB, os.SEEK_CUR)
        file.write(np.array([1.5, 2.5], np.float32).tobytes())
    found = load(tmp_path / "x")
    assert (found["large"].shape, found["small"].tolist()) == ((64, GIB), [1.5, 2.5])


def test_a_file_whose_name_is_removed_or_given_away_is_still_read(path):
    found = load(path)
    save_safetensors({"a": Tensor([7.0, 7.0])}, path)
    assert found["a"].tolist() == [1, 2]
    path.unlink()
    assert found["b"].tolist() == [[3, 4]]


def test_a_file_that_is_written_to_is_not_read_any_more(path):
    found = load(path)
    with path.open("r+b") as file:
        file.truncate(20)
    with pytest.raises(CompileError, match=r"x\.safetensors was written to after it was opened: load it again"):
        found["a"].numpy()


def test_a_closed_file_is_not_read_any_more_and_what_was_read_stays(path):
    with load(path) as found:
        total = found["a"].sum()
        total.realize()
    assert total.item() == 3
    with pytest.raises(CompileError, match=r"x\.safetensors was closed, and a tensor of it is read"):
        found["b"].numpy()
    found.close()


def test_a_file_is_closed_with_its_last_tensor(path):
    before = set(os.listdir("/proc/self/fd"))
    found = load(path)
    kept = found["a"]
    del found
    gc.collect()
    assert set(os.listdir("/proc/self/fd")) - before != set()
    assert kept.tolist() == [1, 2]
    del kept
    gc.collect()
    assert set(os.listdir("/proc/self/fd")) - before == set()


def test_a_look_that_outlives_the_file_stays_valid(path):
    file = MappedFile(path)
    part = file.part(0, 8)
    view = part.read()
    file.close()
    assert (len(view), int.from_bytes(view, "little") > 0, part.size_bytes) == (8, True, 8)


def test_a_loaded_tensor_is_changed_without_the_file(path):
    before = path.read_bytes()
    found = load(path)
    found["a"][0] = 9.0
    assert (found["a"].tolist(), path.read_bytes()) == ([9, 2], before)


def test_metadata_are_the_fields(path):
    assert load(path).fields == {"made": "here"}


def test_metadata_other_than_texts_are_refused(tmp_path):
    with pytest.raises(TypeError, match="metadata of a safetensors file are texts, not 'a': 1"):
        save_safetensors({}, tmp_path / "x", {"a": 1})


# several files


@pytest.fixture
def shards(tmp_path):
    save_safetensors({"a": Tensor([1.0]), "b": Tensor([2.0])}, tmp_path / "one.safetensors")
    save_safetensors({"c": Tensor([3.0])}, tmp_path / "two.safetensors")

    def index(places):
        path = tmp_path / "model.safetensors.index.json"
        path.write_text(json.dumps({"metadata": {"total_size": 12}, "weight_map": places}))
        return path

    return index


GOOD = {"a": "one.safetensors", "b": "one.safetensors", "c": "two.safetensors"}


def test_an_index_or_its_folder_gives_the_tensors_of_all_its_files(shards):
    path = shards(GOOD)
    for place in (path, path.parent):
        found = load(place)
        assert {name: one.item() for name, one in found.items()} == {"a": 1, "b": 2, "c": 3}
        with load(place) as closed:
            pass
        with pytest.raises(CompileError, match=r"two\.safetensors was closed"):
            closed["c"].numpy()


@pytest.mark.parametrize(
    ("places", "said"),
    [
        ({"a": "three.safetensors"}, "names three.safetensors, which is not beside it"),
        ({"a": "two.safetensors"}, "says that a lies in two.safetensors, which has no tensor of that name"),
        ({"a": "../one.safetensors"}, "a lies in '../one.safetensors', which is no name of a file beside it"),
        ({"a": "/etc/passwd"}, "which is no name of a file beside it"),
        ({"a": "..\\one.safetensors"}, "which is no name of a file beside it"),
        ({"a": ".."}, "which is no name of a file beside it"),
        ({"a": 1}, "which is no name of a file beside it"),
        ({}, "it has no weight_map"),
        ([], "it has no weight_map"),
    ],
)  # fmt: skip
def test_a_wrong_index_is_refused_with_what_is_wrong(shards, places, said):
    with pytest.raises(CompileError, match=f"index.json.*{said}"):
        load(shards(places))


def test_a_damaged_index_is_refused(shards):
    path = shards(GOOD)
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(CompileError, match=r"index\.json is no index of safetensors files: its header is no JSON"):
        load(path)


def test_a_folder_without_weights_is_refused(tmp_path):
    with pytest.raises(
        CompileError, match=r"is a folder without model\.safetensors\.index\.json and model\.safetensors"
    ):
        load(tmp_path)


# other files


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is no file of weights; there are safetensors, GGUF, "),
        (b"hello, this is a text", "is no file of weights"),
        (b"\x89HDF\r\n\x1a\n", "is an HDF5 file: read it with h5py"),
        (pickle.dumps({"a": 1}), "is a bare pickle, which only running code could read"),
    ],
)  # fmt: skip
def test_a_file_of_another_format_is_refused_with_what_it_is(tmp_path, data, said):
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(CompileError, match=said):
        load(tmp_path / "x")


def test_the_oldest_format_of_pytorch_is_named(tmp_path):
    (tmp_path / "pickle").write_bytes(b"N.")
    with tarfile.open(tmp_path / "x", "w") as file:
        file.add(tmp_path / "pickle", "pickle")
    with pytest.raises(CompileError, match=r"is a tar archive, the format of PyTorch before 0\.2"):
        load(tmp_path / "x")


def test_a_file_that_is_missing_is_the_systems_error(tmp_path):
    for read in (load, load_safetensors):
        with pytest.raises(FileNotFoundError):
            read(tmp_path / "x")


def test_a_file_without_ml_dtypes_holds_bf16_too(tmp_path, monkeypatch):
    library = pytest.importorskip("safetensors", reason=OPTIONAL)
    monkeypatch.setitem(__import__("sys").modules, "ml_dtypes", None)
    save_safetensors({"a": Tensor([1.5, -2.0]).cast("bfloat16")}, tmp_path / "x")
    ((name, what),) = library.deserialize((tmp_path / "x").read_bytes())
    # bf16 is the high half of f32: 1.5 is 0x3FC0, -2 is 0xC000
    assert (name, what["dtype"], bytes(what["data"])) == ("a", "BF16", bytes.fromhex("c03f00c0"))
    assert load(tmp_path / "x")["a"].float().tolist() == [1.5, -2]
