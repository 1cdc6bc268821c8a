"""Matrix products and convolutions compared with NumPy, on the virtual cores: operands of every narrow dtype, ragged
edges, and work on the sum.
"""

import math

import ml_dtypes
import numpy as np
import on_cores
import pytest

from ringup.compiler.tensor import Tensor, device


def run(make):
    cores = on_cores.Cores()
    with device(cores):
        found = make().numpy()
    return found, cores.graph


def operands(kind, *shapes):
    draw = np.random.default_rng(3)
    if np.issubdtype(kind, np.integer):
        bounds = np.iinfo(kind)
        return [draw.integers(bounds.min, bounds.max, shape, kind, endpoint=True) for shape in shapes]
    return [draw.standard_normal(shape).astype(kind) for shape in shapes]


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize(("rows", "columns", "deep"), [(33, 18, 19), (16, 32, 64)])
def test_narrow_factors_go_through_matrix_instructions(kind, rows, columns, deep):
    a, b = operands(kind, (rows, deep), (deep, columns))
    found, graph = run(lambda: Tensor(a) @ Tensor(b))
    exact = a.astype(np.float64) @ b.astype(np.float64)
    rounding = 0 if np.issubdtype(kind, np.integer) else 2.0**-8 if kind is ml_dtypes.bfloat16 else 2.0**-11
    assert np.abs(found.astype(np.float64) - exact).max() <= rounding * np.abs(exact).max()
    (binary,) = graph.binaries
    is_cdna = on_cores.Cores.target.startswith("gfx9")
    # The matrix instructions are in VOP3P. CDNA has none of unsigned bytes.
    is_matrix = not is_cdna or kind is not np.uint8
    assert not is_matrix or (b"\xd3" if is_cdna else b"\xcc") in binary.code
    from ringup.compiler.isa.amd import processor

    names = [one.form.name for _, one in processor(on_cores.Cores.target).walk(binary.code) if one is not None]
    assert any(name.startswith("v_mfma" if is_cdna else "v_wmma") for name in names) == is_matrix


def test_a_long_epilogue_is_a_loop_and_the_same():
    a, b, c = operands(np.float32, (70, 19), (19, 66), (66,))
    found, graph = run(lambda: (Tensor(a) @ Tensor(b) + Tensor(c)).gelu())
    h = a.astype(np.float64) @ b + c
    np.testing.assert_allclose(found, h * 0.5 * (1 + np.vectorize(math.erf)(h / math.sqrt(2))), atol=5e-6)
    assert len(graph.launches) == 1
    assert graph.binaries[0].instructions < 3000


@pytest.mark.parametrize(
    ("options", "groups"),
    [({"padding": 1}, 1), ({"stride": 2, "padding": 1}, 1), ({"dilation": 2}, 1), ({"groups": 2, "padding": 1}, 2)],
)
def test_convolutions(options, groups):
    image, weight = operands(np.float32, (2, 4, 9, 10), (10, 4 // groups, 3, 3))
    found, _ = run(lambda: Tensor(image).conv2d(Tensor(weight), **options))
    stride, padding, dilation = (
        options.get(name, one) for name, one in (("stride", 1), ("padding", 0), ("dilation", 1))
    )
    padded = np.pad(image, ((0, 0), (0, 0), (padding, padding), (padding, padding))).astype(np.float64)
    high, wide = found.shape[2:]
    for y in range(high):
        for x in range(wide):
            window = padded[
                :,
                :,
                y * stride : y * stride + 2 * dilation + 1 : dilation,
                x * stride : x * stride + 2 * dilation + 1 : dilation,
            ]
            for group in range(groups):
                inner, outer = (
                    slice(group * 4 // groups, (group + 1) * 4 // groups),
                    slice(group * 10 // groups, (group + 1) * 10 // groups),
                )
                exact = np.einsum("ncij,ocij->no", window[:, inner], weight[outer])
                np.testing.assert_allclose(found[:, outer, y, x], exact, atol=1e-5)


def test_batches_broadcast_and_f64_and_integers_have_their_own_tiles():
    a, b = operands(np.float32, (3, 1, 12, 20), (2, 20, 9))
    found, _ = run(lambda: Tensor(a) @ Tensor(b))
    np.testing.assert_allclose(found, a.astype(np.float64) @ b, atol=1e-5)
    a, b = operands(np.float64, (12, 20), (20, 9))
    found, _ = run(lambda: Tensor(a) @ Tensor(b))
    np.testing.assert_allclose(found, a @ b, atol=1e-13)
    a, b = operands(np.int64, (12, 20), (20, 9))
    found, _ = run(lambda: Tensor(a) @ Tensor(b))
    np.testing.assert_array_equal(found, a @ b)


def test_a_part_that_shows_nothing_but_what_it_was_padded_with():
    found, _ = run(lambda: Tensor(np.ones(1, np.float32)).sin().pad(((2, 0),), value=1.0)[:2].reshape(1, 2))
    np.testing.assert_array_equal(found, [[1, 1]])


def test_a_product_that_is_used_in_two_shapes():
    a, b = operands(np.float32, (18, 9), (9, 8))

    def both():
        product = Tensor(a) @ Tensor(b)
        return (product.reshape(2, 9, 8) * 2).cast("float64").cast("float32").reshape(18, 8) + product

    found, _ = run(both)
    np.testing.assert_allclose(found, 3 * (a.astype(np.float64) @ b), atol=1e-5)


def test_a_product_is_stored_in_two_shapes_by_one_kernel():
    a, b = operands(np.float32, (18, 9), (9, 8))
    cores = on_cores.Cores()
    with device(cores):
        flat = (Tensor(a) @ Tensor(b)).reshape(9, 16)
        split = flat.reshape(2, 9, 1, 8).contiguous()
        flat.realize(split)
    for found in (flat, split):
        np.testing.assert_allclose(found.numpy().reshape(18, 8), a.astype(np.float64) @ b, atol=1e-5)


def test_a_product_of_integers_is_an_index():
    a, b = operands(np.int8, (20, 10), (10, 9))
    places = np.abs(a.astype(np.int32)) @ np.abs(b.astype(np.int32)) % 200
    table = np.arange(200, dtype=np.float32)
    found, _ = run(
        lambda: Tensor(table).take(Tensor(np.abs(a.astype(np.int32))) @ Tensor(np.abs(b.astype(np.int32))) % 200)
    )
    np.testing.assert_array_equal(found, table[places])


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_factors_that_are_much_work(kind):
    a, b = operands(kind, (40, 33), (33, 20))

    def waves(x, sine):
        for _ in range(5):
            x = sine(x) + 1
        return x

    found, graph = run(lambda: waves(Tensor(a), Tensor.sin) @ waves(Tensor(b), Tensor.sin))
    step = 2.0**-22 if kind is np.float32 else 2.0**-10
    exact = waves(a.astype(np.float64), np.sin) @ waves(b.astype(np.float64), np.sin)
    assert np.abs(found - exact).max() <= 8 * step * exact.max()
    assert len(graph.launches) == 3
