"""Matrix products and convolutions of every dtype, tile and ragged edge: whole numbers, whose sums are exact in any order."""

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ringup.compiler import dtypes
from ringup.compiler.compile import compile_graph
from ringup.compiler.kernel import fma, matrix
from ringup.compiler.tensor import Tensor

KINDS = [
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "float8_e4m3",
    "float8_e5m2",
    "int8",
    "uint8",
    "int16",
    "int32",
    "int64",
    "uint64",
]


def whole(shape, dtype, seed=0, most=3):
    """Return small whole numbers of a dtype."""
    least = 0 if dtype.kind == "uint" else -most
    return np.random.default_rng(seed).integers(least, most + 1, shape)


def tensor_of(small, values, dtype):
    return Tensor(values.astype(small.judge.numpy_dtype(dtype)))


def product(small, a, b, dtype):
    found = (tensor_of(small, a, dtype) @ tensor_of(small, b, dtype)).numpy()
    wanted = (a @ b).astype(found.dtype)
    np.testing.assert_array_equal(found.astype(np.float64), wanted.astype(np.float64), err_msg=f"{a.shape} @ {b.shape}")


@pytest.mark.parametrize("name", KINDS)
def test_every_dtype(small, name):
    dtype = dtypes.BY_NAME[name]
    most = 1 if dtype.bits == 8 else 2
    product(small, whole((19, 21), dtype, 1, most), whole((21, 18), dtype, 2, most), dtype)


@pytest.mark.parametrize(
    "tile",
    [*fma.TILES[::2], *matrix.TILES[::2]],
    ids=lambda tile: f"{type(tile).__name__}-{tile.m}x{tile.n}x{tile.k}-{tile.threads}",
)
def test_tiles_and_their_edges(bench, monkeypatch, tile):
    """One tile and a ragged edge each way, three slices of k; which tile a size would get by itself does not matter here."""
    way = matrix if tile in matrix.TILES else fma
    monkeypatch.setattr(way, "TILES", (tile,))
    dtype = dtypes.float16 if way is matrix else dtypes.float32
    m, n, k = tile.m + tile.threads % 7 + 1, tile.n + 5, 2 * tile.k + 3
    product(bench, whole((m, k), dtype, m), whole((k, n), dtype, n), dtype)


@pytest.mark.parametrize("name", ["float32", "float16"])
@pytest.mark.parametrize(("m", "n", "k"), [(8, 300, 3), (16, 16, 1), (1, 40, 70), (40, 1, 70)])
def test_thin_and_shallow_ones(small, name, m, n, k):
    dtype = dtypes.BY_NAME[name]
    product(small, whole((m, k), dtype, m), whole((k, n), dtype, n), dtype)


@given(
    m=st.integers(1, 50), n=st.integers(1, 50), k=st.integers(1, 50), batch=st.sampled_from([(), (1,), (3,), (2, 3)]),
    turned=st.tuples(st.booleans(), st.booleans(), st.booleans()), name=st.sampled_from(["float32", "float16", "bfloat16", "int32"]),
)  # fmt: skip
@settings(max_examples=8, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
def test_shapes_strides_and_batches(small, m, n, k, batch, turned, name):
    dtype = dtypes.BY_NAME[name]
    a, b = whole((*batch, m, k), dtype, m), whole((*batch, k, n), dtype, n)
    sides = []
    for values, turn in zip((a, b), turned, strict=False):
        sides.append(tensor_of(small, values.swapaxes(-1, -2) if turn else values, dtype))
        sides[-1] = sides[-1].transpose(-1, -2) if turn else sides[-1]
    made = sides[0] @ sides[1]
    found = (made.transpose(-1, -2) if turned[2] else made).numpy().astype(np.float64)
    wanted = (a @ b).swapaxes(-1, -2) if turned[2] else a @ b
    np.testing.assert_array_equal(found, wanted)


def test_what_is_computed_on_the_way_in_and_out(small):
    """Operands and results with arithmetic, casts, padding and cuts of their own, in the kernel of the product."""
    a, b = whole((40, 24), dtypes.float32, 1), whole((24, 48), dtypes.float32, 2)
    s, t = Tensor(a.astype(np.float32)), Tensor(b.astype(np.float32))
    bias = whole((48,), dtypes.float32, 3)
    np.testing.assert_array_equal(((s * 2 + 1) @ t.abs()).numpy(), (a * 2 + 1) @ abs(b))
    np.testing.assert_array_equal((s @ t + Tensor(bias.astype(np.float32))).relu().numpy(), np.maximum(a @ b + bias, 0))
    np.testing.assert_array_equal(
        (s.pad(((1, 2), (0, 8))) @ t.pad(((0, 8), (3, 0)))).numpy(),
        np.pad(a, ((1, 2), (0, 8))) @ np.pad(b, ((0, 8), (3, 0))),
    )
    np.testing.assert_array_equal((s[3:37, ::-1] @ t[:, 5:40]).numpy(), a[3:37, ::-1] @ b[:, 5:40])
    np.testing.assert_array_equal((Tensor(a.astype(np.int8)).cast("float32") @ t).numpy(), a @ b)
    np.testing.assert_array_equal(
        (s @ t).reshape(8, 5, 48).permute(2, 0, 1).numpy(), (a @ b).reshape(8, 5, 48).transpose(2, 0, 1)
    )
    chain = (s @ t @ t.T).numpy()
    np.testing.assert_array_equal(chain, a @ b @ b.T)


def convolved(x, w, stride, dilation, padding, groups):
    """Return the convolution by its definition, in whole numbers."""
    x = np.pad(x, ((0, 0), (0, 0), (padding[0],) * 2, (padding[1],) * 2))
    (count, _, height, width), (out, each, kh, kw) = x.shape, w.shape
    oh = (height - dilation[0] * (kh - 1) - 1) // stride[0] + 1
    ow = (width - dilation[1] * (kw - 1) - 1) // stride[1] + 1
    made = np.zeros((count, out, oh, ow), np.int64)
    for group, (i, j) in itertools.product(range(groups), itertools.product(range(kh), range(kw))):
        rows = slice(i * dilation[0], i * dilation[0] + (oh - 1) * stride[0] + 1, stride[0])
        columns = slice(j * dilation[1], j * dilation[1] + (ow - 1) * stride[1] + 1, stride[1])
        outs = slice(group * out // groups, (group + 1) * out // groups)
        part = x[:, group * each : (group + 1) * each, rows, columns]
        made[:, outs] += np.einsum("nchw,oc->nohw", part, w[outs, :, i, j])
    return made


@pytest.mark.parametrize(
    ("channels", "out", "size", "kernel", "stride", "dilation", "padding", "groups"),
    [
        (3, 16, (11, 13), (3, 3), (1, 1), (1, 1), (1, 1), 1),
        (8, 8, (12, 9), (3, 3), (2, 2), (1, 1), (1, 1), 1),
        (8, 16, (14, 14), (3, 2), (1, 2), (2, 3), (0, 2), 2),
        (6, 6, (8, 8), (3, 3), (1, 1), (1, 1), (1, 1), 6),
        (16, 32, (7, 7), (1, 1), (2, 2), (1, 1), (0, 0), 1),
        (4, 8, (20, 20), (7, 7), (2, 2), (1, 1), (3, 3), 1),
    ],
)  # fmt: skip
def test_convolutions(small, channels, out, size, kernel, stride, dilation, padding, groups):
    dtype = dtypes.float16 if out == 16 else dtypes.float32
    x, w = whole((2, channels, *size), dtype, 1), whole((out, channels // groups, *kernel), dtype, 2)
    made = tensor_of(small, x, dtype).conv2d(
        tensor_of(small, w, dtype), stride=stride, dilation=dilation, padding=padding, groups=groups
    )
    np.testing.assert_array_equal(made.numpy().astype(np.int64), convolved(x, w, stride, dilation, padding, groups))


def test_narrow_products_go_through_the_matrix_units(small):
    """f16 and bf16 do, what is summed in them does not overflow; f32, f64 and integers are multiplied as they are."""
    for name, by_matrix in (
        ("float16", True),
        ("bfloat16", True),
        ("float32", False),
        ("float64", False),
        ("int32", False),
    ):
        dtype = dtypes.BY_NAME[name]
        made = tensor_of(small, whole((64, 64), dtype), dtype) @ tensor_of(small, whole((64, 64), dtype), dtype)
        steps = []
        compile_graph([made.node], "gfx1100", watch=steps.append)
        assert (
            any(value.op == "matrix" for step in steps for value in operations(step.lowered.function.body)) == by_matrix
        ), name


def operations(region):
    """Yield the operations of a region and those inside of it."""
    for item in region.items:
        if hasattr(item, "body"):
            yield from operations(item.body)
        else:
            yield item


def test_attention_of_one_query_to_one_key(small):
    rng = np.random.default_rng(1)
    query, key, value = (rng.standard_normal((2, 4, 1, 4)).astype(np.float32) for _ in range(3))
    found = Tensor(query).scaled_dot_product_attention(Tensor(key), Tensor(value)).numpy()
    np.testing.assert_allclose(found, value, rtol=1e-6)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("keys", [1, 2, 3, 4])
def test_attention_to_fewer_keys_than_a_thread_has(small, keys, causal):
    rng = np.random.default_rng(keys)
    query = rng.standard_normal((2, 3, 8))
    key, value = rng.standard_normal((2, 2, keys, 8))
    scores = np.einsum("hqd,hkd->hqk", query, key) / np.sqrt(8)
    if causal:
        scores = np.where(np.arange(keys) <= np.arange(3)[:, None] + keys - 3, scores, -np.inf)
    top = scores.max(-1, keepdims=True)
    powers = np.exp(scores - np.where(np.isinf(top), 0, top))
    sums = powers.sum(-1, keepdims=True)
    tensors = [Tensor(one.astype(np.float32)) for one in (query, key, value)]
    found = tensors[0].scaled_dot_product_attention(*tensors[1:], causal=causal).numpy()
    np.testing.assert_allclose(found, powers / np.where(sums == 0, 1, sums) @ value, atol=2e-6)


def test_a_sum_over_queries_is_no_attention(small):
    rng = np.random.default_rng(3)
    query, key, value = (rng.standard_normal((2, 17, 8)).astype(np.float32) for _ in range(3))
    scores = np.einsum("hqd,hkd->hqk", query, key)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    wanted = np.einsum("hqk,hqd->hkd", powers / powers.sum(-1, keepdims=True), value)
    weights = (Tensor(query) @ Tensor(key).transpose()).softmax(-1)
    np.testing.assert_allclose((weights.transpose() @ Tensor(value)).numpy(), wanted, atol=2e-5)
