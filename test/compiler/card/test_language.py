"""Features of the tensor language beyond single operations: sorting, running sums, random numbers. The card must
compute the same as the reference.
"""

import numpy as np
import numpy_graph
import pytest

from ringup.compiler.graph import dtypes
from ringup.compiler.tensor import Size, Source, Tensor, device


def beside(make):
    """Return what a function's tensor gives on the card, and with the reference."""
    found = make().numpy()
    with device(numpy_graph.NumpyEvaluator()):
        return found, make().numpy()


@pytest.mark.parametrize("name", ["float32", "int64", "float16", "uint8"])
def test_sorting(small, name):
    x = np.random.default_rng(0).integers(0, 40, (2, 21)).astype(name)
    for make in (
        lambda: Tensor(x).sort(1)[0],
        lambda: Tensor(x).sort(1, descending=True)[1],
        lambda: Tensor(x).topk(5, 1)[0],
        lambda: Tensor(x).argmax(0),
    ):
        np.testing.assert_array_equal(*beside(make))


def test_running_sums(small):
    for shape, axis in (((3, 5), 0), ((2, 90), 1), ((600,), 0)):
        x = np.random.default_rng(0).integers(-9, 9, shape).astype(np.int32)
        np.testing.assert_array_equal(Tensor(x).cumsum(axis).numpy(), x.cumsum(axis))
        wide = x.astype(np.float32)
        np.testing.assert_array_equal(Tensor(wide).cummax(axis).values.numpy(), np.maximum.accumulate(wide, axis))


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_extremes_with_a_constant_keep_nan(small, name):
    x = np.array([0.0, -0.0, 1.5, -1.5, 3.0, 1e-7, -1e-7, np.inf, -np.inf, np.nan, 2.0], np.float32)
    t = Tensor(x).cast(getattr(dtypes, name))
    rounded = t.cast(dtypes.float64).numpy()
    for bound in (0.0, -0.0, 1.5, -2.0, np.inf, -np.inf, np.nan):
        for found, wanted in (
            (t.maximum(bound), np.maximum(rounded, bound)),
            (t.minimum(bound), np.minimum(rounded, bound)),
            (Tensor(bound).cast(t.dtype).maximum(t), np.maximum(bound, rounded)),
            (Tensor(bound).cast(t.dtype).minimum(t), np.minimum(bound, rounded)),
        ):
            np.testing.assert_array_equal(found.cast(dtypes.float64).numpy(), wanted)
    np.testing.assert_array_equal(t.clip(-1.5, 2).cast(dtypes.float64).numpy(), np.clip(rounded, -1.5, 2))


def test_random_numbers_are_the_same_everywhere(small):
    for make in (
        lambda: Tensor.rand(7, 33, source=Source(5)),
        lambda: Tensor.randint(100, low=-5, high=9, source=Source(6)),
        lambda: Tensor.rand(40, dtype="float64", source=Source(8)),
    ):
        np.testing.assert_array_equal(*beside(make))
    found, wanted = beside(lambda: Tensor.randn(5, 21, source=Source(7)))
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)


def test_gradients(small):
    random = np.random.default_rng(0)
    x, w = random.standard_normal((6, 10)).astype(np.float32), random.standard_normal((10, 12)).astype(np.float32)

    def make():
        t, u = Tensor(x, requires_grad=True), Tensor(w, requires_grad=True)
        loss = ((t @ u).gelu().softmax(1) * Tensor(np.arange(12, dtype=np.float32))).mean()
        loss.backward()
        return t.grad.cat(u.grad.T.contiguous())

    found, wanted = beside(make)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)


def test_attention_with_a_cache_that_grows(small):
    """Words are added to the caches one at a time, in place. Each step attends to the cache as it is then. The results
    must equal those of all words at once.
    """
    random = np.random.default_rng(0)
    q, k, v = (random.standard_normal((1, 2, 6, 8)).astype(np.float32) for _ in range(3))
    whole = Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v), causal=True).numpy()
    keys, values = (Tensor.zeros(1, 2, 6, 8).realize() for _ in range(2))
    for i in range(6):
        keys[:, :, i : i + 1] = Tensor(k[:, :, i : i + 1])
        values[:, :, i : i + 1] = Tensor(v[:, :, i : i + 1])
        one = Tensor(q[:, :, i : i + 1]).scaled_dot_product_attention(keys[:, :, : i + 1], values[:, :, : i + 1])
        np.testing.assert_allclose(one.numpy(), whole[:, :, i : i + 1], rtol=1e-5, atol=1e-6)


def attended(q, k, v, mask=None, scale=None):
    """Return attention by its definition, in f64. A query that sees no key gives NaN."""
    q, k, v = (one.astype(np.float64) for one in (q, k, v))
    scores = q @ k.swapaxes(-1, -2) * (scale or 1 / np.sqrt(q.shape[-1]))
    scores = scores if mask is None else np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    with np.errstate(all="ignore"):
        raised = np.exp(scores - scores.max(-1, keepdims=True))
        return raised / raised.sum(-1, keepdims=True) @ v


@pytest.mark.parametrize(
    ("queries", "keys", "deep", "wide"),
    [(1, 1, 8, 8), (5, 7, 16, 24), (17, 33, 16, 16), (9, 20, 128, 12)],
)
def test_attention(small, queries, keys, deep, wide):
    random = np.random.default_rng(queries)
    q, k, v = (
        random.standard_normal((1, 2, a, b)).astype(np.float32)
        for a, b in ((queries, deep), (keys, deep), (keys, wide))
    )
    t, u, w = Tensor(q), Tensor(k), Tensor(v)
    mask = random.random((queries, keys)) < 0.7
    mask[:, 0] = True
    lower = np.arange(keys) <= np.arange(queries)[:, None]
    bias = random.standard_normal((queries, keys)).astype(np.float32)
    cases = {
        "plain": (t.scaled_dot_product_attention(u, w), attended(q, k, v)),
        "causal": (t.scaled_dot_product_attention(u, w, causal=True, start=0), attended(q, k, v, lower)),
        "mask": (t.scaled_dot_product_attention(u, w, Tensor(mask)), attended(q, k, v, mask)),
        "bias": (t.scaled_dot_product_attention(u, w, Tensor(bias), scale=0.3), attended(q, k, v, bias, 0.3)),
    }
    for name, (made, wanted) in cases.items() if queries < 9 else list(cases.items())[1:3]:
        np.testing.assert_allclose(made.numpy(), wanted, rtol=2e-4, atol=2e-5, err_msg=name)


def test_attention_of_narrow_floats_and_shared_heads(bench):
    random = np.random.default_rng(1)
    q, k, v = (
        random.standard_normal((2, heads, count, 16)).astype(np.float16) for heads, count in ((4, 20), (2, 30), (2, 30))
    )
    made = Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v), grouped=True)
    wanted = attended(q, k.repeat(2, 1), v.repeat(2, 1))
    np.testing.assert_allclose(made.numpy(), wanted, rtol=4e-3, atol=4e-3)
    part = Size("keys", 1, 30)
    made = Tensor(q).scaled_dot_product_attention(Tensor(k)[:, :, :part], Tensor(v)[:, :, :part], grouped=True)
    for count in (1, 17, 30):
        wanted = attended(q, k.repeat(2, 1)[:, :, :count], v.repeat(2, 1)[:, :, :count])
        np.testing.assert_allclose(made.numpy(keys=count), wanted, rtol=4e-3, atol=4e-3)


def test_a_query_that_may_look_nowhere_is_zero(small):
    random = np.random.default_rng(2)
    q, k, v = (random.standard_normal((1, 1, 12, 8)).astype(np.float32) for _ in range(3))
    mask = np.ones((12, 12), bool)
    mask[3] = False
    found = Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v), Tensor(mask)).numpy()
    wanted = attended(q, k, v, mask)
    wanted[..., 3, :] = 0
    np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-5)
