"""Files that PyTorch loads. PyTorch 2.14's torch.load, weights_only, with and without mmap, gave back what
`test_what_is_saved_is_loaded_again` saves; here our own reader, which PyTorch's files judge, stands for it.
"""

import pickletools
import zipfile
from collections import OrderedDict, namedtuple

import numpy as np
import pytest

from ringup import nn, optim
from ringup.compiler.graph import dtypes
from ringup.compiler.tensor import Tensor, load, load_safetensors, save

Point = namedtuple("Point", "x y")


def test_what_is_saved_is_loaded_again(tmp_path):
    path = tmp_path / "checkpoint.pt"
    plain = {
        "epoch": 3, "big": 1 << 70, "huge": 1 << 3000, "neg": -5, "bytes": b"\0\xff", "text": "é\n", "none": None,
        "done": False, "tuple": (1, "a", [2.0, []]), "ordered": OrderedDict(b=1, a=2), "dtype": dtypes.bfloat16, 7: {},
    }  # fmt: skip
    types = {one.name: Tensor(np.arange(6).reshape(2, 3)).cast(one) for one in dtypes.ALL}
    shapes = {"none": Tensor.zeros(0, 3), "one": Tensor(2.5), "turned": Tensor.arange(6).reshape(2, 3).transpose()}
    save({**plain, "np": np.float32(2.5), "point": Point(1, 2), "types": types, "shapes": shapes}, path)
    found = load(path)
    for name, one in found.pop("types").items():
        assert one.dtype is types[name].dtype
        assert one.cast("int32").tolist() == types[name].cast("int32").tolist()
    for name, one in found.pop("shapes").items():
        assert one.shape == shapes[name].shape
        assert one.tolist() == shapes[name].tolist()
    assert found == {**plain, "np": 2.5, "point": (1, 2)}
    assert type(found["ordered"]) is OrderedDict


def test_storages_are_aligned_and_a_tensor_that_comes_twice_is_written_once(tmp_path):
    path = tmp_path / "tied.pt"
    weight = Tensor.ones(3, 5)
    save([weight, Tensor.zeros(2), weight], path)
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        places = {one.filename: (one.header_offset, one.file_size) for one in archive.infolist()}
        codes = [code.name for code, _, _ in pickletools.genops(archive.read("archive/data.pkl"))]
    assert {name: size for name, (_, size) in places.items() if "/data/" in name} == {
        "archive/data/0": 60,
        "archive/data/1": 8,
    }
    assert codes.count("BINPERSID") == 3
    data = path.read_bytes()
    for at, _ in places.values():
        name, extra = (int.from_bytes(data[at + i : at + i + 2], "little") for i in (26, 28))
        assert (at + 30 + name + extra) % 64 == 0


def test_training_goes_on_from_a_checkpoint(tmp_path):
    def made():
        model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
        return model, optim.Adam(model.parameters(), lr=0.1)

    def step(model, optimizer):
        optimizer.zero_grad()
        model(Tensor([[1.0, 2.0], [3.0, -1.0]])).square().sum().backward()
        optimizer.step()

    model, optimizer = made()
    step(model, optimizer)
    path = tmp_path / "run.pth"
    save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
    other, again = made()
    found = load(path)
    other.load_state_dict(found["model"])
    again.load_state_dict(found["optimizer"])
    for one in ((model, optimizer), (other, again)):
        step(*one)
    assert other[0].weight.tolist() == model[0].weight.tolist()
    assert other[1].running_var.tolist() == model[1].running_var.tolist()


def test_a_name_of_safetensors_makes_such_a_file(tmp_path):
    path = tmp_path / "model.safetensors"
    save({"a": Tensor([1, 2])}, path)
    assert load_safetensors(path)["a"].tolist() == [1, 2]
    with pytest.raises(TypeError, match=r"model\.safetensors: a safetensors file holds a dict of tensors"):
        save({"a": Tensor([1]), "epoch": 3}, path)
    assert load_safetensors(path)["a"].tolist() == [1, 2]


def test_what_no_file_holds_is_refused_and_the_old_file_stays(tmp_path):
    path = tmp_path / "model.pt"
    save([1], path)
    round_ = []
    round_.append(round_)
    for value, error, message in (
        (nn.Linear(1, 1), TypeError, r"not Linear; save its state_dict\(\)"),
        ({"a": {1, 2}}, TypeError, "tensors, numbers, texts, lists and dicts of them, not set"),
        (np.zeros(3), TypeError, "not ndarray"),
        (round_, ValueError, "hold themselves"),
    ):
        with pytest.raises(error, match=message):
            save(value, path)
    assert load(path) == [1]
    assert [one.name for one in tmp_path.iterdir()] == ["model.pt"]
