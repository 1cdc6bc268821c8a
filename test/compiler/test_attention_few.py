"""Attention of few queries over many keys in one kernel, compared with NumPy in f64 on the virtual cores in strict
mode. Sizes are known or symbolic.
"""

import numpy as np
import on_cores
import pytest

from ringup.compiler.explain import explain
from ringup.compiler.graph import dtypes
from ringup.compiler.graph.nodes import buffer
from ringup.compiler.tensor import Size, Tensor, device
from ringup.compiler.tensor.order import prepared

KINDS = ("float32", "float16", "bfloat16")


@pytest.fixture
def draw():
    return np.random.default_rng(12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("queries", "keys", "deep", "wide"),
    [
        # Whole turns.
        (1, 64, 64, 64),
        # Lanes without elements of a key, and a ragged end.
        (1, 133, 80, 80),
        # Rows lie apart, and values are short.
        (3, 50, 96, 24),
        # Fewer keys than a wave takes, and an odd number of columns.
        (8, 5, 12, 7),
        # A single key.
        (1, 1, 16, 16),
    ],
)
@pytest.mark.sweep(6)
def test_one_kernel_is_what_numpy_says(kind, queries, keys, deep, wide, draw, numpy, computed):
    arrays = [numpy.numbers(draw, kind, 2, 2, *size) for size in ((queries, deep), (keys, deep), (keys, wide))]
    numpy.assert_close(computed(kind, *arrays), numpy.attended(*arrays), kind)


def test_long_heads_have_several_pieces_a_lane(draw, numpy, computed):
    arrays = [numpy.numbers(draw, "float32", 1, 1, *size) for size in ((1, 260), (40, 260), (40, 136))]
    numpy.assert_close(computed("float32", *arrays), numpy.attended(*arrays), "float32")


@pytest.mark.parametrize("kind", KINDS)
def test_heads_of_queries_that_share_keys(kind, draw, numpy, computed):
    q, k, v = numpy.numbers(draw, kind, 1, 6, 1, 32), *numpy.numbers(draw, kind, 2, 1, 2, 70, 32)
    numpy.assert_close(computed(kind, q, k, v, grouped=True, causal=True), numpy.attended(q, k, v), kind)


def test_a_bias_a_mask_and_rows_that_see_nothing(draw, numpy, computed):
    arrays = [numpy.numbers(draw, "float32", 2, 1, count, 16) for count in (4, 90, 90)]
    bias = draw.standard_normal((4, 90)).astype(np.float32)
    found = computed("float32", *arrays, mask=Tensor(bias), scale=0.3)
    numpy.assert_close(found, numpy.attended(*arrays, bias=bias, scale=0.3), "float32")
    seen = draw.random((2, 1, 4, 90)) < 0.5
    seen[0, 0, 3] = False
    # Some waves see nothing, beside others that see keys.
    seen[1, 0, :, :80] = False
    found = computed("float32", *arrays, mask=Tensor(seen))
    numpy.assert_close(found, numpy.attended(*arrays, seen), "float32")
    assert not found[0, 0, 3].any()


def test_large_logits_do_not_overflow_and_nan_stays_in_its_row(draw, numpy, computed):
    q, k, v = (numpy.numbers(draw, "float32", 1, 1, count, 8) for count in (2, 70, 70))
    q, k = q * 200, k * 200
    np.testing.assert_allclose(computed("float32", q, k, v), numpy.attended(q, k, v), atol=1e-4)
    wanted = numpy.attended(q, k, v)
    q[0, 0, 1, 3] = np.nan
    found = computed("float32", q, k, v)
    assert np.isnan(found[0, 0, 1]).all()
    np.testing.assert_allclose(found[0, 0, 0], wanted[0, 0, 0], atol=1e-4)


@pytest.mark.parametrize("kind", ["float32", "float16"])
def test_a_cache_of_symbolic_length_takes_the_same_kernel(kind, draw, numpy):
    """The queries stand at the end of a cache that has room for more. The lengths are known at run time."""
    at, count = Size("at", 0, 90), Size("count", 1, 4)
    q, k, v = (numpy.numbers(draw, kind, 1, heads, size, 16) for heads, size in ((4, 4), (2, 96), (2, 96)))
    cores = on_cores.Cores()
    with device(cores):
        end = at + count
        a, b, c = (numpy.tensor(kind, one) for one in (q, k, v))
        made = a[:, :, :count].scaled_dot_product_attention(b[:, :, :end], c[:, :, :end], causal=True, grouped=True)
        for start, some in ((0, 1), (0, 4), (37, 1), (90, 4)):
            found = made.numpy(at=start, count=some).astype(np.float32)
            last = start + some
            seen = np.tril(np.ones((some, last), bool), start)
            wanted = numpy.attended(q[:, :, :some], k[:, :, :last], v[:, :, :last], seen)
            numpy.assert_close(found, wanted, kind)
            assert len(cores.graph.launches) == 1
    shown = explain(prepared([made.node]))
    assert shown.kernels[0].step.lowered.choice.startswith("few queries")


def test_many_queries_of_symbolic_number_are_tiles(draw, numpy):
    """A text of unknown length is read at once. It takes tiles of queries, and matrix instructions in f16."""
    count = Size("count", 1, 40)
    for kind, choice in (("float32", "attention queries"), ("float16", "matrix attention")):
        q, k, v = (numpy.numbers(draw, kind, 1, 2, 40, 16) for _ in range(3))
        cores = on_cores.Cores()
        with device(cores):
            parts = [numpy.tensor(kind, one)[:, :, :count] for one in (q, k, v)]
            made = parts[0].scaled_dot_product_attention(*parts[1:], causal=True)
            for some in (1, 33):
                found = made.numpy(count=some).astype(np.float32)
                seen = np.tril(np.ones((some, some), bool))
                numpy.assert_close(found, numpy.attended(*(one[:, :, :some] for one in (q, k, v)), seen), kind)
                assert len(cores.graph.launches) == 1
        assert explain(prepared([made.node])).kernels[0].step.lowered.choice.startswith(choice)


def test_every_key_is_moved_once_and_waves_share_them():
    q, *cache = (
        Tensor._of(buffer(dtypes.float16, (1, heads, size, 128))) for heads, size in ((32, 1), (8, 4096), (8, 4096))
    )
    explained = explain(prepared([q.scaled_dot_product_attention(*cache, grouped=True).node]))
    (kernel,) = explained.kernels
    assert explained.bytes_moved == 2 * 2 * (32 * 128 + 8 * 4096 * 128)
    assert kernel.cost.bound == "memory"
    roles = {(axis.name, axis.role): axis.size for axis in kernel.step.lowered.axes}
    # A lane takes 16 bytes of a key of 256 bytes.
    assert roles["part", "reduce"] == 16
    assert roles["slice", "loop"] * roles["k", "unroll"] == 4096
    assert roles["k", "unroll"] % roles["keys", "reduce"] == 0


@pytest.mark.parametrize(("batch", "queries"), [(1, 1), (8, 2), (16, 4)])
def test_heads_that_share_keys_share_their_loads_once_compute_units_are_busy(batch, queries):
    """Eight heads of keys serve 32 heads of queries. They run apart while compute units are idle, and in one group when
    there are groups enough.
    """
    q, *cache = (
        Tensor._of(buffer(dtypes.float16, (batch, heads, size, 64))) for heads, size in ((32, 1), (8, 512), (8, 512))
    )
    (kernel,) = explain(prepared([q.scaled_dot_product_attention(*cache, grouped=True).node])).kernels
    assert kernel.step.lowered.choice.startswith(f"few queries={queries} ")
    assert kernel.step.lowered.groups == (1, 4 // queries, batch * 8)
