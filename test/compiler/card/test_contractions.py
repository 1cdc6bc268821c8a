"""Matrix products and convolutions of every dtype, tile and ragged edge. Their numbers are whole, so sums are exact in
any order.
"""

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ringup.compiler.compile import compile_graph, compile_kernel
from ringup.compiler.graph import dtypes
from ringup.compiler.graph.nodes import Op, reduce
from ringup.compiler.kernel.contraction import contraction, fma, matrix
from ringup.compiler.machine.ir import Loop
from ringup.compiler.schedule.order import plan
from ringup.compiler.tensor import Tensor
from ringup.compiler.tensor.gradients import gradient
from ringup.compiler.tune import jobs_of, modelled

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
@pytest.mark.sweep(4)
def test_every_dtype(small, name):
    dtype = dtypes.BY_NAME[name]
    most = 1 if dtype.bits == 8 else 2
    product(small, whole((19, 21), dtype, 1, most), whole((21, 18), dtype, 2, most), dtype)


# Small tiles take the same path in a fraction of the time. `make fuzz` runs all tiles.
FEW_TILES = (*fma.TILES[6::3], *matrix.TILES[4::3])


@pytest.mark.parametrize(
    "tile",
    [pytest.param(tile, marks=() if tile in FEW_TILES else pytest.mark.fuzz) for tile in (*fma.TILES, *matrix.TILES)],
    ids=lambda tile: f"{type(tile).__name__}-{tile.m}x{tile.n}x{tile.k}-{tile.threads}",
)
def test_tiles_and_their_edges(bench, monkeypatch, tile):
    """The shape is one tile with a ragged edge each way and three slices of k. The heuristic's choice of a tile does
    not matter here.
    """
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
@settings(max_examples=3, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
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


@pytest.mark.parametrize("name", ["float32", "float64", "int32", "bfloat16"])
@pytest.mark.parametrize("depth", [8192, 6007])
@pytest.mark.sweep(3)
def test_a_great_depth_of_few_results_is_cut_into_parts(bench, name, depth):
    dtype = dtypes.BY_NAME[name]
    product(bench, whole((20, depth), dtype, 1, 1), whole((depth, 17), dtype, 2, 1), dtypes.BY_NAME[name])


@pytest.mark.parametrize(
    "name", ["float32", *(pytest.param(name, marks=pytest.mark.fuzz) for name in ("float64", "int16", "int64"))]
)
def test_waves_share_the_depth_of_a_product_of_few_results(small, name):
    dtype = dtypes.BY_NAME[name]
    a, b = tensor_of(small, whole((19, 301), dtype, 1), dtype), tensor_of(small, whole((301, 18), dtype, 2), dtype)
    (job,) = jobs_of([(a @ b).node])
    assert "ways=" in compile_kernel(job.kernel, job.signature, "gfx1100").lowered.choice
    product(small, whole((19, 301), dtype, 1), whole((301, 18), dtype, 2), dtype)


@pytest.mark.parametrize("makes", [lambda x, y: x.sin() + y.exp(), lambda x, y: x * y], ids=["long", "short"])
@pytest.mark.sweep(1)
def test_what_follows_two_products_whose_depth_waves_share(small, monkeypatch, makes):
    """A long epilogue loops over rows and keeps its results in LDS until then."""
    monkeypatch.setattr(contraction, "MAX_EPILOGUE", 20)
    kind = dtypes.float32
    a, b, c, d = (
        tensor_of(small, whole(shape, kind, i, 1), kind) * 0.125
        for i, shape in enumerate(((20, 301), (301, 17), (20, 150), (150, 17)))
    )
    made = makes(a @ b, c @ d)
    (wanted,) = small.judge.evaluate([made.node])
    np.testing.assert_allclose(made.numpy(), wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())


def test_gradients_by_the_weights_of_a_convolution_of_many_places(bench):
    kind = dtypes.float32
    x, weight, given = (
        tensor_of(bench, whole(shape, kind, i), kind)
        for i, shape in enumerate(((8, 9, 28, 29), (10, 9, 3, 3), (8, 10, 28, 29)))
    )
    made = (x.conv2d(weight, padding=1) * given).sum()
    (found,) = gradient(made, [weight])
    assert len(plan([found.node]).kernels) == 2
    (wanted,) = bench.judge.evaluate([found.node])
    np.testing.assert_array_equal(found.numpy(), wanted)


def test_what_is_computed_on_the_way_in_and_out(small):
    """Operands and results have arithmetic, casts, padding and cuts of their own, in the kernel of the product."""
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
@pytest.mark.sweep(3)
def test_convolutions(small, channels, out, size, kernel, stride, dilation, padding, groups):
    dtype = dtypes.float16 if out == 16 else dtypes.float32
    x, w = whole((2, channels, *size), dtype, 1), whole((out, channels // groups, *kernel), dtype, 2)
    made = tensor_of(small, x, dtype).conv2d(
        tensor_of(small, w, dtype), stride=stride, dilation=dilation, padding=padding, groups=groups
    )
    np.testing.assert_array_equal(made.numpy().astype(np.int64), convolved(x, w, stride, dilation, padding, groups))


@pytest.mark.parametrize(
    "names", ["float32 float32", "float64 float64", "int32 int32", "float16 float16", "float32 float16"]
)
@pytest.mark.parametrize(("m", "n", "k", "other"), [(8, 9, 5, 40), (37, 50, 70, 3), (64, 20, 16, 16)])
@pytest.mark.sweep(2)
def test_two_products_in_one_kernel(small, names, m, n, k, other):
    """The second product is transposed. Narrow factors are widened before they are multiplied, so f16 and f32 can be
    added.
    """
    first, second = (dtypes.BY_NAME[one] for one in names.split())
    wide = dtypes.float32 if dtypes.float16 in (first, second) else first
    values = [whole(shape, first, i) for i, shape in enumerate([(m, k), (k, n)])]
    values += [whole(shape, second, i + 2) for i, shape in enumerate([(n, other), (other, m)])]
    a, b, c, d = (
        tensor_of(small, value, dtype).cast(wide)
        for value, dtype in zip(values, (first, first, second, second), strict=True)
    )
    made = (a @ b).relu() * 2 + (c @ d).permute(1, 0)
    steps = []
    compile_graph([made.node], "gfx1100", watch=steps.append)
    assert [len(step.kernel.folds) for step in steps] == [2]
    by_matrix = any(value.op == "matrix" for value in operations(steps[0].lowered.function.body))
    assert by_matrix == (first is second is dtypes.float16)
    a, b, c, d = (value.astype(np.int64) for value in values)
    np.testing.assert_array_equal(made.numpy().astype(np.int64), np.maximum(a @ b, 0) * 2 + (c @ d).T)


def test_a_convolution_and_the_one_on_the_way_around_it(small):
    x, kernel, around = (
        whole(shape, dtypes.float32, i) for i, shape in enumerate([(2, 5, 11, 9), (12, 5, 3, 3), (12, 5, 1, 1)])
    )
    given, *weights = (tensor_of(small, value, dtypes.float32) for value in (x, kernel, around))
    made = (given.conv2d(weights[0], stride=2, padding=1) + given.conv2d(weights[1], stride=2) * 3).relu()
    assert len(plan([made.node]).kernels) == 1
    wanted = convolved(x, kernel, (2, 2), (1, 1), (1, 1), 1) + 3 * convolved(x, around, (2, 2), (1, 1), (0, 0), 1)
    np.testing.assert_array_equal(made.numpy(), np.maximum(wanted, 0))


def test_gradients_of_a_gated_product(small):
    random = np.random.default_rng(0)
    x, gate, up = (Tensor(random.standard_normal(shape).astype(np.float32)) for shape in ((19, 12), (12, 33), (12, 33)))
    made = (x @ gate).silu() * (x @ up)
    slopes = gradient((made * made).sum(), [x, gate, up])
    assert max(len(kernel.folds) for kernel in plan([slopes[0].node]).kernels) == 2
    for found, wanted in small.both([made.node, *(one.node for one in slopes)]):
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("tile", [fma.TILES[-1], fma.TILES[4], fma.TILES[3]], ids=str)
@pytest.mark.fuzz
def test_results_of_two_products_wait_in_lds_while_a_long_epilogue_runs_over_rows(small, monkeypatch, tile):
    monkeypatch.setattr(fma, "TILES", (tile,))
    monkeypatch.setattr(contraction, "MAX_EPILOGUE", 20)
    random = np.random.default_rng(tile.m)
    a, b = (Tensor(random.standard_normal((34, 34)).astype(np.float32) * 0.1) for _ in range(2))
    made = (a @ b).gelu("none") * (b @ a).gelu("none")
    steps = []
    compile_graph([made.node], "gfx1100", watch=steps.append)
    assert [len(step.kernel.folds) for step in steps] == [2]
    # A thread of two rows would have one row for each half, so there is no loop.
    rolled = tile.thread_m > 2
    loops = [item for item in steps[0].lowered.function.body.items if isinstance(item, Loop)]
    # One loop over the slices of each product, then one over each half of the rows.
    assert len(loops) == (4 if rolled else 2)
    # The bytes that one product takes.
    waiting = tile.m * tile.n * 4 if rolled else 0
    assert steps[0].lowered.function.lds_bytes == max(waiting, 2 * 4 * tile.k * (tile.m + tile.n + 2 * fma.PAD))
    ((found, wanted),) = small.both([made.node])
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def pooled(made):
    """Return the lowered steps of a tensor. The tensor must be one kernel with a fold over a contraction's columns."""
    steps = []
    compile_graph([made.node], "gfx1100", watch=steps.append)
    assert [(len(step.kernel.folds), step.kernel.pool is not None) for step in steps] == [(2, True)]
    return steps[0].lowered


@pytest.mark.parametrize(
    ("kind", "m", "n", "k", "along"),
    [
        *((kind, 17, 31, 20, 1) for kind in ("float64", "int32", "uint32", "int64", "float16", "bfloat16", "int8")),
        *((kind, 37, 49, 18, 0) for kind in ("float32", "float16", "int8")),
        ("float32", 8, 8, 3, 1),
        ("float32", 70, 64, 33, 1),
        ("float16", 130, 64, 33, 1),
    ],
)
@pytest.mark.sweep(3)
def test_a_fold_over_all_columns_of_a_product(small, kind, m, n, k, along):
    dtype = dtypes.BY_NAME[kind]
    wide = dtypes.float32 if dtype.is_float and dtype.bits < 32 else dtypes.int32 if dtype.bits == 8 else dtype
    a, b, c = (whole(shape, dtype, i) for i, shape in enumerate([(m, k), (k, n), (m, n)]))
    x, y, z = (tensor_of(small, value, dtype) for value in (a, b, c))
    product_ = x.cast(wide) @ y.cast(wide)
    made = (product_ + z.cast(wide)).permute(*((1, 0) if along == 0 else (0, 1)))
    lowered = pooled(made.sum(along) * 3)
    by_matrix = any(value.op == "matrix" for value in operations(lowered.function.body))
    assert by_matrix == (dtype.bits < 32)
    found = (made.sum(along) * 3).numpy()
    wanted = 3 * (a.astype(np.int64) @ b.astype(np.int64) + c).sum(1)
    np.testing.assert_array_equal(found.astype(np.int64), wanted.astype(found.dtype).astype(np.int64))


@pytest.mark.parametrize("op", [Op.MAX, Op.MIN, Op.MUL, Op.ADD], ids=lambda op: op.value)
@pytest.mark.parametrize("batch", [1, 3])
def test_columns_are_folded_by_any_operation(small, op, batch):
    random = np.random.default_rng(batch)
    a, b = (Tensor(random.standard_normal(shape).astype(np.float32)) for shape in ((batch, 21, 30), (batch, 30, 11)))
    made = reduce(op, (a @ b * 0.3).node, (2,))
    assert [kernel.pool is not None for kernel in plan([made]).kernels] == [True]
    ((found, wanted),) = small.both([made])
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_whether_any_column_is_above(small):
    a, b = (whole(shape, dtypes.float32, i) for i, shape in enumerate([(40, 9), (9, 33)]))
    made = reduce(Op.MAX, ((tensor_of(small, a, dtypes.float32) @ tensor_of(small, b, dtypes.float32)) > 25).node, (1,))
    assert [kernel.pool is not None for kernel in plan([made]).kernels] == [True]
    ((found, wanted),) = small.both([made])
    assert 0 < wanted.sum() < wanted.size
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("kind", ["float32", "float16"])
@pytest.mark.parametrize(("size", "stride"), [((7, 7), 1), ((9, 5), 1), ((11, 15), 2)])
@pytest.mark.sweep(1)
def test_the_mean_of_a_convolution_its_norm_and_the_way_around_it(small, kind, size, stride):
    """The tail of a residual network, with its gradients. Sums of f16 are f32 and are rounded where the graph
    says so.
    """
    random = np.random.default_rng(size[0])
    x, kernel, scale = (
        Tensor((random.standard_normal(shape) * 0.5).astype(kind))
        for shape in ((1, 6, *size), (10, 6, 3, 3), (1, 10, 1, 1))
    )
    out = [-(-one // stride) for one in size]
    around = Tensor(random.standard_normal((1, 10, *out)).astype(kind))
    made = ((x.conv2d(kernel, stride=stride, padding=1) * scale + around).relu()).mean((2, 3))
    pooled(made)
    slopes = gradient((made * made).sum(), [x, kernel, scale, around])
    tolerance = 1e-4 if kind == "float32" else 2e-2
    for found, wanted in small.both([made.node, *(one.node for one in slopes)]):
        np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("tile", [fma.TILES[4], fma.TILES[3]], ids=str)
@pytest.mark.fuzz
def test_a_long_epilogue_runs_over_rows_before_its_columns_are_folded(small, monkeypatch, tile):
    monkeypatch.setattr(fma, "TILES", (tile,))
    monkeypatch.setattr(fma, "POOLED", ())
    monkeypatch.setattr(contraction, "MAX_EPILOGUE", 20)
    random = np.random.default_rng(tile.m)
    a, b = (Tensor(random.standard_normal(shape).astype(np.float32) * 0.1) for shape in ((70, 40), (40, 51)))
    made = (a @ b).gelu("none").sum(1).exp()
    function = pooled(made).function
    # One loop over slices, then one over rows.
    assert len([item for item in function.body.items if isinstance(item, Loop)]) == 2
    # In bytes: the results, then pieces of four columns behind them.
    waiting = tile.m * tile.n * 4 + tile.m * (tile.n // 4 + 1) * 4
    assert function.lds_bytes == max(waiting, 2 * 4 * tile.k * (tile.m + tile.n + 2 * fma.PAD))
    ((found, wanted),) = small.both([made.node])
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("m", "n", "k"), [(512, 49, 4608), (1024, 33, 1024), (512, 16, 512), (4096, 64, 512)])
def test_a_fold_behind_a_product_takes_no_longer_than_after_it(m, n, k):
    """The model's cycles leave out the start of the second kernel: 2 us are 5000 cycles."""

    def cycles(apart):
        made = (Tensor.empty(m, k) @ Tensor.empty(k, n)).relu()
        steps = []
        compile_graph([(made.contiguous() if apart else made).sum(1).node], "gfx1100", watch=steps.append)
        assert len(steps) == 1 + apart
        return sum(modelled(step).cycles for step in steps)

    assert cycles(apart=False) <= cycles(apart=True) + 5000


def test_what_the_rows_are_made_of_may_lie_in_memory_with_all_columns(small):
    """A factor that is also an output is read from memory. It is the same in every column."""
    random = np.random.default_rng(5)
    a, b = (random.standard_normal(shape).astype(np.float32) for shape in ((19, 12), (12, 10)))
    wide = Tensor(a).reshape(19, 12, 1).expand(19, 12, 10).exp()
    made = (wide * Tensor(b).reshape(1, 12, 10)).sum(1).relu().sum(1)
    assert [kernel.pool is not None for kernel in plan([wide.node, made.node]).kernels] == [False, True]
    for found, wanted in small.both([wide.node, made.node]):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float16], ids=str)
@pytest.mark.parametrize("folded", [False, True])
def test_parts_of_a_tile_may_lie_in_a_pad_as_a_whole(small, monkeypatch, dtype, folded):
    """The test takes every second of 61 columns that are padded to 128. Columns from the 31st on are zeros, which is
    the whole second run of a thread.
    """
    monkeypatch.setattr(fma, "TILES", (fma.TILES[3],))
    monkeypatch.setattr(fma, "POOLED", ())
    a, b = whole((32, 9), dtype, 1), whole((9, 200), dtype, 2)
    x, y = (tensor_of(small, value, dtype).cast("float32") for value in (a, b))
    made = (x @ y)[:, :61].pad(((0, 0), (0, 67))).reshape(32, 64, 2)[:, :, 1] * 2 + 1
    wanted = np.zeros((32, 128), np.int64)
    wanted[:, :61] = a @ b[:, :61]
    wanted = wanted[:, 1::2] * 2 + 1
    if folded:
        made, wanted = made.sum(1), wanted.sum(1)
    assert [len(kernel.folds) for kernel in plan([made.node]).kernels] == [1 + folded]
    np.testing.assert_array_equal(made.numpy().astype(np.int64), wanted)


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float16, dtypes.int32], ids=str)
@pytest.mark.parametrize("spread", ["padded", "joined", "masked"])
def test_columns_that_only_a_pad_or_a_seam_tells_apart(small, dtype, spread):
    """Every column reads the rows' factor at the same places, yet the factor differs between columns. Such a graph must
    not count as a product of rows and columns.
    """
    rows, depth, columns = 16, 5, 12
    x, y, z = (whole(shape, dtype, i) for i, shape in enumerate([(rows, depth), (depth, columns), (rows, depth)]))
    left, right, other = (tensor_of(small, value, dtype) for value in (x, y, z))
    wide = left.reshape(rows, depth, 1).expand(rows, depth, columns - 2)
    factor = np.repeat(x[:, :, None], columns, 2)
    if spread == "joined":
        wide = wide.cat(other.reshape(rows, depth, 1).expand(rows, depth, 2), axis=2)
        factor[:, :, -2:] = z[:, :, None]
    elif spread == "padded":
        wide = wide.pad(((0, 0), (0, 0), (1, 1)))
        factor[:, :, [0, -1]] = 0
    else:
        inside = tensor_of(small, whole((), dtypes.float32, 0) * 0 + 1, dtypes.float32).cast(dtype)
        wide = left.reshape(rows, depth, 1).expand(rows, depth, columns)
        wide = wide * inside.reshape(1, 1, 1).expand(1, 1, columns - 2).pad(((0, 0), (0, 0), (1, 1)))
        factor[:, :, [0, -1]] = 0
    made = (wide * right.reshape(1, depth, columns)).sum(1)
    np.testing.assert_array_equal(made.numpy().astype(np.int64), (factor.astype(np.int64) * y.astype(np.int64)).sum(1))


def test_narrow_products_go_through_the_matrix_units(small):
    """f16 and bf16 use the matrix units, and their sums do not overflow. f32, f64 and integers are multiplied in their
    own type.
    """
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
    """Yield the operations of a region and of the regions inside it."""
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
    weights = (Tensor(query) @ Tensor(key).mT).softmax(-1)
    np.testing.assert_allclose((weights.mT @ Tensor(value)).numpy(), wanted, atol=2e-5)


@pytest.mark.parametrize("name", ["float16", "float32"])
def test_seams_behind_a_product_of_fewer_rows_than_a_tile(small, name):
    rng = np.random.default_rng(6)
    a, b, c, d = (rng.integers(-4, 5, size).astype(np.float32) for size in ((10, 24), (24, 36), (4, 36), (6, 36)))
    whole, other, first, second = (Tensor(one).cast(name) for one in (a, b, c, d))
    found = whole @ other + Tensor.cat(first, second, axis=0)
    np.testing.assert_array_equal(found.cast("float32").numpy(), a @ b + np.concatenate((c, d)))
