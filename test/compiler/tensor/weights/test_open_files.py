"""Weights in files that a program has opened itself: memory, pipes, files that hold more."""

import io
import os
import threading

import numpy as np
import pytest
from numpy_graph import NumpyEvaluator

from ringup.compiler.graph import nodes
from ringup.compiler.graph.nodes import Op
from ringup.compiler.tensor import Tensor, load, load_gguf, load_npy, load_npz, load_torch, save, save_safetensors
from ringup.errors import CompileError


def values():
    weight = Tensor([[1.0, 2.0], [3.0, 4.0]])
    return {"weight": weight, "tied": [weight, (5, "six")]}


def check(found):
    assert found["weight"].tolist() == found["tied"][0].tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert found["tied"][1] == (5, "six")


def test_memory_is_a_file():
    file = io.BytesIO()
    save(values(), file)
    file.seek(0)
    check(load(file))
    file.seek(0)
    check(load_torch(file))


def test_a_file_is_written_and_read_at_its_place(tmp_path):
    path = tmp_path / "both"
    with path.open("w+b") as file:
        file.write(b"what the program wrote before")
        save(values(), file)
        file.seek(29)
        check(load(file))
    assert path.read_bytes().startswith(b"what the program wrote beforePK")


def test_a_pipe_takes_and_gives_a_file():
    read, write = os.pipe()
    with open(read, "rb") as source, open(write, "wb") as target:
        thread = threading.Thread(target=lambda: (save(values(), target), target.close()))
        thread.start()
        found = load(source)
        thread.join()
    check(found)


def test_each_format_is_read_from_an_open_file(tmp_path):
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    for write, read in (
        (lambda file: np.save(file, array), load_npy),
        (lambda file: np.savez(file, a=array), load_npz),
    ):
        file = io.BytesIO()
        write(file)
        for way in (load, read):
            file.seek(0)
            found = way(file)
            assert (found if way is load_npy or isinstance(found, Tensor) else found["a"]).tolist() == array.tolist()
    save_safetensors({"a": Tensor(array)}, tmp_path / "a.safetensors")
    with (tmp_path / "a.safetensors").open("rb") as file:
        weights = load(file)
    # the file is closed, and was read before
    assert weights["a"].tolist() == array.tolist()
    weights = load(io.BytesIO((tmp_path / "a.safetensors").read_bytes()))
    weights.close()
    with pytest.raises(CompileError, match="BytesIO was closed"):
        weights["a"].tolist()


def test_what_is_no_file_of_bytes_is_refused():
    with pytest.raises(TypeError, match="StringIO gives str, not bytes: open it with mode 'rb'"):
        load(io.StringIO("a"))
    with pytest.raises(TypeError, match="a path or an open file, not 3"):
        load(3)
    with pytest.raises(TypeError, match="takes text, not bytes: open it with mode 'wb'"):
        save(values(), io.StringIO())
    with pytest.raises(TypeError, match="a path or an open file, not 3"):
        save(values(), 3)
    for data in (b"", b"GGUF", b"PK\3\4 and no more", b"\x93NUMPY"):
        with pytest.raises(CompileError, match="BytesIO"):
            load(io.BytesIO(data))
    with pytest.raises(CompileError, match="BytesIO"):
        load_gguf(io.BytesIO(b"GGUF"))
    with pytest.raises(CompileError, match="an index, which names files beside it: load it by its path"):
        load(io.BytesIO(b'{"weight_map": {"a": "b.safetensors"}}'))


def test_what_was_refused_leaves_nothing_in_the_file():
    file = io.BytesIO()
    with pytest.raises(TypeError, match="not set"):
        save({"a": {1, 2}}, file)
    assert file.getvalue() == b""


def test_the_words_of_pytorch_s_load(tmp_path):
    path = tmp_path / "a.pt"
    save(values(), path)
    check(load(path, map_location="cpu", weights_only=True, mmap=True))
    check(load(path, "cpu", weights_only=None))
    place = NumpyEvaluator()
    found = load(path, map_location=place)
    check(found)
    whole, part = (
        {node.arg for node in nodes.ordered([one.node]) if node.op is Op.BUFFER}
        for one in (found["weight"], found["tied"][0])
    )
    assert whole == part
    assert [one.home for one in whole] == [place]
    with pytest.raises(ValueError, match="runs no code of a file"):
        load(path, weights_only=False)
    with pytest.raises(ValueError, match=r"mmap=True: .* is no path"):
        load(io.BytesIO(path.read_bytes()), mmap=True)
    with pytest.raises(ValueError, match=r"with ringup\.device"):
        load(path, map_location="cuda")
