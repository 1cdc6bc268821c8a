"""Weights are read as the formats' own libraries read them: safetensors and gguf are the references here."""

import sys

import ml_dtypes
import numpy as np
import pytest

from ringup.compiler.compile import compile_graph
from ringup.compiler.files.gguf_layout import TYPES
from ringup.compiler.tensor import Tensor, load, load_gguf, load_safetensors, save_safetensors
from ringup.compiler.tensor.weights.blocks import BLOCKS, dequantised
from ringup.errors import CompileError

RNG = np.random.default_rng(4)
OPTIONAL = "a library for weights, of the dev dependencies"


# formats that the gguf package unpacks, and where a block has f16 numbers, which random bytes would make NaN
KNOWN = {
    "Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,), "Q2_K": (80, 82), "Q3_K": (108,),
    "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "IQ4_NL": (0,), "IQ4_XS": (0,), "TQ1_0": (52,), "TQ2_0": (64,),
    "MXFP4": (), "NVFP4": (),
}  # fmt: skip


def raw_blocks(kind, count):
    raw = RNG.integers(0, 256, (count, BLOCKS[kind].size_bytes), np.uint8)
    for at in KNOWN[kind]:
        raw[:, at : at + 2] = RNG.normal(size=(count, 1)).astype(np.float16).view(np.uint8)
    if kind == "MXFP4":
        # every exponent but the largest, whose products are infinite
        raw[:, 0] = np.r_[0, 1, 2, RNG.integers(0, 250, count - 3)]
    if kind == "NVFP4":
        # scales without a sign, 127 is no number
        raw[:, :4] &= 127
        raw[0, :4] = 0, 1, 127, 126
    return raw


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
    blocks = {kind: raw_blocks(kind, 6).reshape(3, -1) for kind in KNOWN}
    for kind, raw in blocks.items():
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
        np.testing.assert_array_equal(tensors[kind].numpy(), expected, err_msg=kind)
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


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "TQ1_0", "TQ2_0", "MXFP4"])
def test_what_the_library_packs_is_unpacked_alike(kind):
    gguf = pytest.importorskip("gguf", reason=OPTIONAL)
    packed = gguf.quants.quantize(RNG.normal(size=(2, 512)).astype(np.float32), gguf.GGMLQuantizationType[kind])
    expected = gguf.quants.dequantize(packed, gguf.GGMLQuantizationType[kind])
    blocks = Tensor(packed.reshape(-1, BLOCKS[kind].size_bytes))
    np.testing.assert_array_equal(dequantised(blocks, kind).numpy().reshape(2, 512), expected)


def test_blocks_with_sums_by_hand():
    """The gguf package does not unpack these: block_q8_1 and block_q8_K of ggml-common.h."""
    numbers = np.arange(-16, 16, dtype=np.int8)
    q8_1 = np.concatenate([np.array([0.5, -4], np.float16).view(np.uint8), numbers.view(np.uint8)])
    np.testing.assert_array_equal(dequantised(Tensor(q8_1[None]), "Q8_1").numpy()[0], numbers * 0.5)
    many = np.arange(-128, 128).astype(np.int8)
    q8_k = np.concatenate([np.array([0.25], np.float32).view(np.uint8), many.view(np.uint8), np.full(32, 7, np.uint8)])
    np.testing.assert_array_equal(dequantised(Tensor(q8_k[None]), "Q8_K").numpy()[0], many * 0.25)


def test_blocks_that_are_not_read_are_named(tmp_path):
    gguf = pytest.importorskip("gguf", reason=OPTIONAL)
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "llama")
    writer.add_tensor("k", np.zeros((1, 66), np.uint8), raw_dtype=gguf.GGMLQuantizationType.IQ2_XXS)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(CompileError, match=r"x\.gguf: k is in IQ2_XXS blocks; there are F32, .* IQ4_XS, "):
        load_gguf(tmp_path / "x.gguf")


def test_block_sizes_are_the_librarys():
    """The package has an older Q8_1, whose two numbers were f32."""
    gguf = pytest.importorskip("gguf", reason=OPTIONAL)
    theirs = {kind.value: (kind.name, *size) for kind, size in gguf.GGML_QUANT_SIZES.items() if kind.name != "Q8_1"}
    assert {number: tuple(one) for number, one in TYPES.items() if one.name != "Q8_1"} == theirs


def test_packed_weights_stay_packed_in_memory(tmp_path):
    """A matrix multiplication unpacks blocks as it reads them: no f32 matrix is stored."""
    gguf = pytest.importorskip("gguf", reason=OPTIONAL)
    raw = gguf.quants.quantize(RNG.normal(size=(64, 256)).astype(np.float32), gguf.GGMLQuantizationType.Q8_0)
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "llama")
    writer.add_tensor("w", raw, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    weights = load(tmp_path / "x.gguf")["w"]
    made = compile_graph([(Tensor.ones(1, 256) @ weights.T).node])
    assert made.arena_bytes < 64 * 256 * 4


def test_bf16_without_ml_dtypes_says_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    t = Tensor([1.5, 2.5]).cast("bfloat16")
    assert t.tolist() == [1.5, 2.5]
    with pytest.raises(CompileError, match="install ml_dtypes, or cast to float32"):
        t.numpy()
