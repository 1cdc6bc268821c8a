"""Attention in one kernel compared with NumPy in f64, on the virtual cores in strict mode."""

import numpy as np
import on_cores
import pytest
from attention_numpy import attended as expected

from ringup.compiler.explain import explain
from ringup.compiler.graph import dtypes
from ringup.compiler.graph.nodes import buffer
from ringup.compiler.tensor import Tensor, device, gradient

draw = np.random.default_rng(7)


def numbers(*shape):
    return draw.standard_normal(shape).astype(np.float32)


def computed(q, k, v, **options):
    cores = on_cores.Cores()
    with device(cores):
        found = Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v), **options).numpy()
    return found, len(cores.graph.launches)


@pytest.mark.parametrize(
    ("queries", "keys", "deep"),
    # Ragged tiles, whole tiles, several turns.
    [(9, 11, 8), (16, 32, 32), (20, 65, 12)],
)
def test_one_kernel_is_what_numpy_says(queries, keys, deep):
    q, k, v = numbers(2, 2, queries, deep), numbers(2, 2, keys, deep), numbers(2, 2, keys, deep)
    found, kernels = computed(q, k, v)
    np.testing.assert_allclose(found, expected(q, k, v), atol=2e-6)
    assert kernels == 1


CORNERS = {
    "values are constant": lambda q, k, v: (q, k, np.ones_like(v)),
    "queries are constant": lambda q, k, v: (np.ones_like(q), k, v),
    "keys are constant": lambda q, k, v: (q, np.ones_like(k), v),
    "everything is constant": lambda q, k, v: (np.ones_like(q), np.ones_like(k), np.ones_like(v)),
    "batches share values": lambda q, k, v: (q, k, v[:1]),
    "batches share keys": lambda q, k, v: (q, k[:1], v),
    "one key": lambda q, k, v: (q, k[:, :, :1], v[:, :, :1]),
    "one key and one column": lambda q, k, v: (q[:, :, :1], k[:, :, :1], v[:, :, :1, :1]),
}


def as_tensor(x):
    return Tensor.full(x.shape, 1.0) if (x == 1).all() else Tensor(x)


@pytest.mark.parametrize(
    ("corner", "queries"),
    [*((corner, 3) for corner in CORNERS), ("values are constant", 20), ("batches share values", 20)],
)
def test_constant_and_shared_operands(corner, queries):
    q, k, v = CORNERS[corner](numbers(2, 2, queries, 8), numbers(2, 2, 5, 8), numbers(2, 2, 5, 8))
    cores = on_cores.Cores()
    with device(cores):
        found = as_tensor(q).scaled_dot_product_attention(as_tensor(k), as_tensor(v)).numpy()
    np.testing.assert_allclose(found, expected(q, k, v), atol=2e-6)


def test_a_gradient_through_one_query_and_one_key():
    """Its weight is 1, and the weight is used again after the attention."""
    q, k, v = Tensor(numbers(2, 1, 8)), Tensor(numbers(2, 1, 8)), Tensor(numbers(2, 1, 1))
    attended = q.scaled_dot_product_attention(k, v)
    with device(on_cores.Cores()):
        (found,) = gradient((attended * attended).sum(), [v])
        np.testing.assert_allclose(found.numpy(), 2 * v.numpy(), atol=1e-6)


def test_keys_that_depend_on_the_query():
    """The vectors of distances are factors of the scores as keys are, one for each pair of a query and a key."""
    q, apart, v = numbers(2, 9, 1, 8), numbers(1, 9, 5, 8), numbers(2, 5, 8)
    with device(on_cores.Cores()):
        found = ((Tensor(q) * Tensor(apart)).sum(-1).softmax(-1) @ Tensor(v)).numpy()
    powers = np.exp((q.astype(np.float64) * apart).sum(-1))
    np.testing.assert_allclose(found, powers / powers.sum(-1, keepdims=True) @ v, atol=2e-6)


@pytest.mark.parametrize("keys", [5, 16])
def test_logits_that_contain_the_scores_twice(keys):
    """Seen flat, the place after the last key is the next row's first."""
    q, k, v = numbers(2, 9, 8), numbers(2, keys, 8), numbers(2, keys, 8)
    with device(on_cores.Cores()):
        scores = Tensor(q) @ Tensor(k).mT
        flat = (scores.reshape(-1) * 1.5).cast("float64").cast("float32").reshape(2, 9, keys)
        found = ((flat + scores).softmax(-1) @ Tensor(v)).numpy()
    powers = np.exp(2.5 * (q.astype(np.float64) @ k.swapaxes(1, 2)))
    np.testing.assert_allclose(found, powers / powers.sum(-1, keepdims=True) @ v, atol=3e-6)


def test_one_query_is_no_tile_and_right():
    q, k, v = numbers(2, 2, 1, 16), numbers(2, 2, 40, 16), numbers(2, 2, 40, 16)
    found, _ = computed(q, k, v)
    np.testing.assert_allclose(found, expected(q, k, v), atol=2e-6)


def test_causal_and_grouped_heads():
    q, k, v = numbers(1, 4, 36, 8), numbers(1, 2, 36, 8), numbers(1, 2, 36, 8)
    found, kernels = computed(q, k, v, causal=True, grouped=True)
    np.testing.assert_allclose(found, expected(q, k, v, np.tril(np.ones((36, 36), bool))), atol=2e-6)
    assert kernels == 1


def test_rows_that_see_nothing_are_zero():
    q, k, v = numbers(2, 1, 6, 8), numbers(2, 1, 37, 8), numbers(2, 1, 37, 8)
    seen = draw.random((2, 1, 6, 37)) < 0.5
    seen[0, 0, 3] = False
    # Whole turns without a key.
    seen[1, 0, :, :35] = False
    found, kernels = computed(q, k, v, mask=Tensor(seen))
    np.testing.assert_allclose(found, expected(q, k, v, seen), atol=2e-6)
    assert not found[0, 0, 3].any()
    assert kernels == 1


def test_large_logits_do_not_overflow_and_nan_stays_where_it_is():
    q, k, v = numbers(1, 1, 8, 8) * 200, numbers(1, 1, 64, 8) * 200, numbers(1, 1, 64, 8)
    found, _ = computed(q, k, v)
    np.testing.assert_allclose(found, expected(q, k, v), atol=1e-4)
    q[0, 0, 2, 0] = np.nan
    found, _ = computed(q, k, v)
    assert np.isnan(found[0, 0, 2]).all()
    assert np.isfinite(found[0, 0, [0, 1, 3]]).all()


def test_what_else_uses_the_weights_gets_them_from_memory():
    q, k, v = numbers(1, 1, 12, 8), numbers(1, 1, 12, 8), numbers(1, 1, 12, 8)
    cores = on_cores.Cores()
    with device(cores):
        weights = (Tensor(q) @ Tensor(k).permute(0, 1, 3, 2)).softmax(-1)
        both = (weights @ Tensor(v)).realize(weights)
        found, seen = both.numpy(), weights.numpy()
    np.testing.assert_allclose(found, expected(q, k, v, scale=1.0), atol=2e-6)
    np.testing.assert_allclose(seen.sum(-1), 1, atol=1e-5)


def test_only_a_sum_over_all_keys_and_over_nothing_else_is_attention():
    q, k, v = numbers(2, 12, 8), numbers(2, 12, 8), numbers(2, 12, 8)
    raised = np.exp((q @ k.swapaxes(-1, -2)).astype(np.float64))
    plain = raised / raised.sum(-1, keepdims=True)
    cases = {
        "over heads too": (lambda w, v: w.einsum("hqk,hkd->qd", v), np.einsum("hqk,hkd->qd", plain, v)),
        "over queries": (lambda w, v: w.permute(0, 2, 1) @ v, plain.swapaxes(1, 2) @ v),
        "some keys": (lambda w, v: w[:, :, :5] @ v[:, :5], plain[:, :, :5] @ v[:, :5]),
        "keys turned round": (lambda w, v: w.flip(2) @ v, plain[:, :, ::-1] @ v),
        "rows put around": (
            lambda w, v: w.pad(((0, 0), (2, 1), (0, 0))) @ v,
            np.pad(plain, ((0, 0), (2, 1), (0, 0))) @ v,
        ),
        "one query over heads": (
            lambda w, v: w[:, :1].einsum("hqk,hkd->qd", v),
            np.einsum("hqk,hkd->qd", plain[:, :1], v),
        ),
    }
    with device(on_cores.Cores()):
        for name, (make, wanted) in cases.items():
            weights = (Tensor(q) @ Tensor(k).permute(0, 2, 1)).softmax(-1)
            np.testing.assert_allclose(make(weights, Tensor(v)).numpy(), wanted, atol=5e-6, err_msg=name)


def test_a_softmax_without_a_guard_is_nan_where_a_row_sees_nothing():
    q, k, v = numbers(1, 9, 8), numbers(1, 12, 8), numbers(1, 12, 8)
    seen = np.ones((9, 12), bool)
    seen[4] = False
    cores = on_cores.Cores()
    with device(cores):
        scores = Tensor(seen).where(Tensor(q) @ Tensor(k).permute(0, 2, 1), float("-inf"))
        found = (scores.softmax(-1) @ Tensor(v)).numpy()
    assert len(cores.graph.launches) == 1
    assert np.isnan(found[0, 4]).all()
    assert np.isfinite(np.delete(found[0], 4, 0)).all()


def test_values_too_wide_for_a_tile_go_another_way():
    q, k, v = numbers(1, 1, 20, 16), numbers(1, 1, 12, 16), numbers(1, 1, 12, 520)
    found, kernels = computed(q, k, v)
    np.testing.assert_allclose(found, expected(q, k, v), atol=2e-6)
    assert kernels == 3


@pytest.mark.parametrize(
    ("heads", "count", "deep", "queries", "keys"),
    [
        # This many queries is the most that share keys.
        (16, 1024, 64, 64, 32),
        # Larger tiles would leave compute units idle.
        (8, 256, 64, 32, 32),
        # LDS holds no more keys beside so many queries.
        (16, 1024, 128, 64, 16),
        # There are no more queries than these.
        (4, 12, 64, 16, 32),
    ],
)
def test_the_tile_suits_the_number_of_queries_and_the_length_of_heads(heads, count, deep, queries, keys):
    nodes = [Tensor._of(buffer(dtypes.float32, (1, heads, count, deep))) for _ in range(3)]
    (kernel,) = explain([nodes[0].scaled_dot_product_attention(*nodes[1:]).node]).kernels
    columns = -(-deep // 32) * 32
    assert kernel.step.lowered.choice == f"attention queries={queries} keys={keys} columns={columns} deep={deep}"


@pytest.mark.parametrize("dtype", [dtypes.uint32, dtypes.int32, dtypes.int8])
def test_places_that_wrap_around_are_compared_as_the_graph_says(dtype):
    """In an unsigned type, 3 less than the first queries' places wraps around to the greatest values. Those queries see
    every key.
    """
    q, k, v = numbers(1, 9, 8), numbers(1, 120, 8), numbers(1, 120, 8)
    kind = np.dtype(dtype.name)
    with np.errstate(over="ignore"):
        last = np.arange(9).astype(kind) - kind.type(3)
    seen = np.arange(120).astype(kind)[None, :] <= last[:, None]
    with device(on_cores.Cores()):
        keys, queries = (Tensor.arange(count, dtype=dtype) for count in (120, 9))
        logits = (keys.reshape(1, 120) <= (queries - 3).reshape(9, 1)).where(
            Tensor(q) @ Tensor(k).permute(0, 2, 1), float("-inf")
        )
        found = (logits.softmax(-1) @ Tensor(v)).numpy()
    wanted = expected(q[:, None], k[:, None], v[:, None], seen, scale=1.0)[:, 0]
    # The other rows are NaN.
    rows = seen.any(1).nonzero()[0]
    np.testing.assert_allclose(found[0, rows], wanted[0, rows], atol=5e-6)
