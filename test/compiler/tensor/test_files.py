"""Weights are read as the formats' own libraries read them. Truncated files are refused with an error that
names them.
"""

import sys

import ml_dtypes
import numpy as np
import pytest

from ringup.compiler.tensor import Tensor, load_gguf, load_safetensors, save_safetensors
from ringup.compiler.tensor.files import BLOCKS, dequantised
from ringup.errors import CompileError

RNG = np.random.default_rng(4)
OPTIONAL = "a library for weights, of the dev dependencies"


def test_safetensors_there_and_back(tmp_path):
    library = pytest.importorskip("safetensors", reason=OPTIONAL)
    arrays = {"a": RNG.normal(size=(3, 4)).astype(np.float32), "b": np.arange(5, dtype=np.int64), "c": np.array([[True, False]]),
              "e": np.zeros((0, 2), np.float16), "g": np.array(2.5, np.float32),
              "d": RNG.normal(size=6).astype(ml_dtypes.bfloat16), "f": RNG.normal(size=4).astype(ml_dtypes.float8_e4m3fn)}  # fmt: skip
    save_safetensors({name: Tensor(one) for name, one in arrays.items()}, tmp_path / "x", {"made": "here"})
    theirs = dict(library.deserialize((tmp_path / "x").read_bytes()))
    ours = load_safetensors(tmp_path / "x")
    assert set(ours) == set(arrays)
    for name, one in arrays.items():
        assert ours[name].shape == one.shape
        np.testing.assert_array_equal(ours[name].numpy().astype(np.float64), one.astype(np.float64))
        assert (bytes(theirs[name]["data"]), list(theirs[name]["shape"])) == (one.tobytes(), list(one.shape))
    whole = (tmp_path / "x").read_bytes()
    for cut in (0, 5, 40, len(whole) - 1):
        (tmp_path / "cut").write_bytes(whole[:cut])
        with pytest.raises(CompileError, match="cut is no whole safetensors file"):
            load_safetensors(tmp_path / "cut")


def test_gguf(tmp_path):
    gguf = pytest.importorskip("gguf", reason=OPTIONAL)
    path = str(tmp_path / "x.gguf")
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint32("answer", 42)
    plain = RNG.normal(size=(2, 3)).astype(np.float32)
    writer.add_tensor("plain", plain)
    writer.add_tensor("half", plain.astype(np.float16))
    blocks = {}
    for kind in BLOCKS:
        raw = RNG.integers(0, 256, (3, 2 * BLOCKS[kind].size_bytes), np.uint8)
        # Scales other than NaN.
        for block in range(2):
            for at in {"Q4_K": (0, 2), "Q6_K": (208,), "Q4_1": (0, 2), "Q5_1": (0, 2)}.get(kind, (0,)):
                start = block * BLOCKS[kind].size_bytes + at
                raw[:, start : start + 2] = RNG.normal(size=(3, 1)).astype(np.float16).view(np.uint8)
        blocks[kind] = raw
        writer.add_tensor(kind, raw, raw_dtype=gguf.GGMLQuantizationType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    tensors, fields = load_gguf(path)
    assert fields["answer"] == 42
    np.testing.assert_array_equal(tensors["plain"].numpy(), plain)
    np.testing.assert_array_equal(tensors["half"].numpy(), plain.astype(np.float16))
    for kind, raw in blocks.items():
        expected = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[kind])
        assert tensors[kind].shape == expected.shape
        np.testing.assert_allclose(tensors[kind].numpy(), expected, rtol=1e-6, atol=1e-6, err_msg=kind)
    with open(path, "rb") as file:
        whole = file.read()
    for cut in (0, 3, 60, len(whole) // 2):
        (tmp_path / "cut").write_bytes(whole[:cut])
        with pytest.raises(CompileError, match="cut is no whole GGUF file"):
            load_gguf(tmp_path / "cut")


def test_blocks_by_hand():
    q8 = np.concatenate([np.array([0.5], np.float16).view(np.uint8), np.arange(-16, 16, dtype=np.int8).view(np.uint8)])
    np.testing.assert_array_equal(dequantised(Tensor(q8[None]), "Q8_0").numpy()[0], np.arange(-16, 16) * 0.5)
    q4 = np.concatenate(
        [
            np.array([2], np.float16).view(np.uint8),
            np.arange(16, dtype=np.uint8) * 16 + 15 - np.arange(16, dtype=np.uint8),
        ]
    )
    np.testing.assert_array_equal(
        dequantised(Tensor(q4[None]), "Q4_0").numpy()[0], np.concatenate([7 - np.arange(16), np.arange(16) - 8]) * 2
    )
    with pytest.raises(ValueError, match="uint8"):
        dequantised(Tensor(q4[None]), "Q8_0")


@pytest.mark.parametrize(("load", "library"), [(load_safetensors, "safetensors"), (load_gguf, "gguf")])
def test_a_missing_library_is_named(load, library, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, library, None)
    (tmp_path / "x").write_bytes(b"")
    with pytest.raises(CompileError, match=f"needs the {library} package: pip install {library}"):
        load(tmp_path / "x")


def test_bf16_without_ml_dtypes_says_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    t = Tensor([1.5, 2.5]).cast("bfloat16")
    assert t.tolist() == [1.5, 2.5]
    with pytest.raises(CompileError, match="install ml_dtypes, or cast to float32"):
        t.numpy()
