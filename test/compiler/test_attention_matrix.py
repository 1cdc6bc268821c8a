"""Attention in f16 and bf16 by matrix instructions in one kernel, compared with NumPy in f64 on the virtual cores in
strict mode.
"""

import evaluate_machine
import numpy as np
import on_cores
import pytest

from ringup.compiler.amd.instructions.traits import traits
from ringup.compiler.amd.matrices import matrix_layout
from ringup.compiler.compile import compile_kernel
from ringup.compiler.explain import explain
from ringup.compiler.graph import dtypes
from ringup.compiler.graph.nodes import buffer
from ringup.compiler.kernel import choose
from ringup.compiler.tensor import Tensor, device
from ringup.compiler.tensor.order import prepared
from ringup.compiler.tune import jobs_of

HALVES = ("float16", "bfloat16")


@pytest.fixture
def draw():
    return np.random.default_rng(11)


@pytest.mark.parametrize("kind", HALVES)
@pytest.mark.parametrize(
    ("queries", "keys", "deep", "wide"),
    [
        # Whole fragments.
        (16, 32, 32, 32),
        # Ragged queries and keys.
        (20, 50, 64, 64),
        # A head of five fragments.
        (33, 35, 80, 80),
        # Half a fragment of columns.
        (9, 70, 96, 24),
        # Less than a fragment, and an odd number of columns.
        (40, 17, 12, 7),
    ],
)
@pytest.mark.sweep(4)
def test_one_kernel_is_what_numpy_says(kind, queries, keys, deep, wide, draw, numpy, computed):
    arrays = [numpy.numbers(draw, kind, 1, 2, *size) for size in ((queries, deep), (keys, deep), (keys, wide))]
    numpy.assert_close(computed(kind, *arrays), numpy.attended(*arrays), kind)


def test_the_longest_head(draw, numpy, computed):
    arrays = [numpy.numbers(draw, "float16", 1, 1, count, 128) for count in (20, 40, 40)]
    numpy.assert_close(computed("float16", *arrays), numpy.attended(*arrays), "float16")


@pytest.mark.parametrize("kind", HALVES)
def test_causal_and_grouped_heads(kind, draw, numpy, computed):
    q, k, v = numpy.numbers(draw, kind, 1, 4, 36, 16), *numpy.numbers(draw, kind, 2, 1, 2, 44, 16)
    found = computed(kind, q, k, v, causal=True, grouped=True)
    numpy.assert_close(found, numpy.attended(q, k, v, np.tril(np.ones((36, 44), bool), 8)), kind)


def test_a_bias_and_a_mask(draw, numpy, computed):
    arrays = [numpy.numbers(draw, "float16", 2, 1, count, 16) for count in (18, 37, 37)]
    bias = draw.standard_normal((18, 37)).astype(np.float32)
    found = computed("float16", *arrays, mask=Tensor(bias), scale=0.3)
    numpy.assert_close(found, numpy.attended(*arrays, bias=bias, scale=0.3), "float16")
    seen = draw.random((2, 1, 18, 37)) < 0.5
    seen[0, 0, 3] = False
    found = computed("float16", *arrays, mask=Tensor(seen))
    numpy.assert_close(found, numpy.attended(*arrays, seen), "float16")
    assert not found[0, 0, 3].any()


def test_nan_and_large_scores_stay_in_their_rows(draw, numpy, computed):
    q, k, v = (numpy.numbers(draw, "float16", 1, 1, count, 16) for count in (17, 40, 40))
    q[0, 0, 2] *= 4096
    wanted = numpy.attended(q, k, v)
    q[0, 0, 5, 0] = np.nan
    found = computed("float16", q, k, v)
    assert np.isnan(found[0, 0, 5]).all()
    others = [i for i in range(17) if i != 5]
    numpy.assert_close(found[0, 0, others], wanted[0, 0, others], "float16")


def test_keys_that_no_row_of_a_tile_sees_are_not_met(draw, numpy, computed):
    """Values behind the last one that any row of a group sees are never multiplied, not even by 0. NaN there reaches no
    result.
    """
    q, k, v = (numpy.numbers(draw, "float16", 1, 1, 160, 16) for _ in range(3))
    wanted = numpy.attended(q, k, v, np.tril(np.ones((160, 160), bool)))
    v[0, 0, 128:] = np.nan
    found = computed("float16", q, k, v, causal=True)
    numpy.assert_close(found[0, 0, :32], wanted[0, 0, :32], "float16")
    assert np.isnan(found[0, 0, -1]).all()


def test_weights_that_the_graph_does_not_round_go_another_way(draw, numpy):
    """If values are cast to f32 before the product, weights must be f32 too. Matrix instructions would round the
    weights.
    """
    arrays = [numpy.numbers(draw, "float16", 1, 1, count, 16) for count in (20, 40, 40)]
    cores = on_cores.Cores()
    with device(cores):
        q, k, v = (Tensor(one.astype(np.float16)) for one in arrays)
        weights = (q.cast("float32") @ k.permute(0, 1, 3, 2).cast("float32") / 4).softmax(-1)
        found = (weights @ v.cast("float32")).numpy()
    assert len(cores.graph.launches) == 1
    numpy.assert_close(found, numpy.attended(*arrays), "float32")


@pytest.mark.parametrize("target", ["gfx1100", "gfx1201"])
@pytest.mark.parametrize("causal", [False, True])
def test_fragments_of_either_layout(target, causal, draw, numpy):
    """The evaluator runs machine IR with matrices in the target's layout. RDNA4's fragments have no other test here."""
    arrays = [numpy.numbers(draw, "float16", 1, 1, *size) for size in ((16, 32), (40, 32), (40, 24))]
    nodes = [Tensor(one.astype(np.float16)) for one in arrays]
    made = nodes[0].scaled_dot_product_attention(*nodes[1:], causal=causal)
    (job,) = jobs_of(prepared([made.node]))
    step = compile_kernel(job.kernel, job.signature, target)
    assert step.lowered.choice.startswith("matrix attention")
    out = np.zeros((1, 1, 16, 24), np.float16)
    data = {tensor.node.arg: one.astype(np.float16) for tensor, one in zip(nodes, arrays, strict=True)}
    evaluate_machine.evaluate(
        step.lowered.function,
        [data.get(one.arg, out) for one in step.lowered.memory],
        step.lowered.groups,
        matrix_layout(target),
    )
    seen = np.tril(np.ones((16, 40), bool), 24) if causal else None
    numpy.assert_close(out.astype(np.float32), numpy.attended(*arrays, seen), "float16")


@pytest.mark.parametrize("kind", HALVES)
def test_scores_move_no_bytes_and_waves_share_the_queries(kind):
    size = (1, 8, 1024, 64)
    nodes = [Tensor._of(buffer(getattr(dtypes, kind), size)) for _ in range(3)]
    explained = explain(prepared([nodes[0].scaled_dot_product_attention(*nodes[1:]).node]))
    (kernel,) = explained.kernels
    assert explained.bytes_moved == 4 * 2 * np.prod(size)
    assert kernel.cost.unit in ("valu", "wmma")
    roles = {(axis.name, axis.role): axis.size for axis in kernel.step.lowered.axes}
    assert roles["queries", "unroll"] == 1
    assert roles["slice", "loop"] * roles["k", "unroll"] == 1024
    assert roles["tile_m", "grid"] * roles["wave", "wave"] * 16 == 1024


@pytest.mark.parametrize(("queries", "heads"), [(64, 4), (64, 2), (1, 4), (1, 2)])
def test_heads_beside_each_other_in_the_result_are_heads_still(queries, heads):
    """One axis of the result is heads and columns of a layer's input. The kernel takes the same tiles, and reads as few
    keys, as with separate heads.
    """
    q, k, v = (
        Tensor._of(buffer(dtypes.float16, (2, count, size, 32)))
        for count, size in ((4, queries), (heads, 128), (heads, 128))
    )
    apart = q.scaled_dot_product_attention(k, v, causal=True, grouped=True)
    merged = apart.permute(0, 2, 1, 3).reshape(2, queries, 128)
    (one,), (other,) = (explain(prepared([made.node])).kernels for made in (apart, merged))
    assert one.step.lowered.choice == other.step.lowered.choice
    assert one.step.lowered.groups == other.step.lowered.groups
    assert one.cost.flops == other.cost.flops
    assert one.cost.bytes_moved == other.cost.bytes_moved


@pytest.mark.parametrize(
    ("heads", "count", "deep", "queries", "keys"),
    [
        (16, 1024, 64, 64, 32),
        # Larger tiles would leave compute units idle.
        (8, 256, 64, 32, 32),
        # Two groups fit in a compute unit's LDS.
        (16, 1024, 128, 64, 16),
        # Eight waves keep a compute unit busy alone.
        (32, 2048, 128, 128, 32),
    ],
)
def test_the_tile_suits_the_number_of_queries_and_the_length_of_heads(heads, count, deep, queries, keys):
    nodes = [Tensor._of(buffer(dtypes.float16, (1, heads, count, deep))) for _ in range(3)]
    (job,) = jobs_of(prepared([nodes[0].scaled_dot_product_attention(*nodes[1:]).node]))
    choice = str(choose.candidates(job.kernel, traits("gfx1100"))[0])
    assert choice == f"matrix attention queries={queries} keys={keys} waves={queries // 16} columns={deep} deep={deep}"
