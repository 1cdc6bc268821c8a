"""Kernels that read parts of a buffer which differ in their place only are one kernel; it reads nothing else."""

import numpy as np
import numpy_graph
import on_cores
import pytest

from ringup.compiler.compile import compile_graph
from ringup.compiler.tensor import Tensor, device, gradient

RNG = np.random.default_rng(3)
X = RNG.standard_normal((8, 12, 16)).astype(np.float32)
W = RNG.standard_normal((24, 16)).astype(np.float32)


def binaries(*tensors):
    graph = compile_graph([one.node for one in tensors])
    return len(graph.launches), len(graph.binaries)


def computed(*tensors):
    """Return values from the virtual cores, which stop at an access outside of a buffer."""
    with device(on_cores.Cores()):
        tensors[0].realize(*tensors[1:])
        return [one.numpy() for one in tensors]


def test_the_steps_of_an_unrolled_loop_are_one_kernel():
    x, w = Tensor(X), Tensor(W)
    steps = [x[:, t].linear(w).tanh().contiguous() for t in range(1, 12)]
    launches, kernels = binaries(*steps)
    assert kernels == 1 < launches
    for t, found in enumerate(computed(*steps), 1):
        np.testing.assert_allclose(found, np.tanh(X[:, t] @ W.T), rtol=1e-5, atol=1e-5)


def test_a_recurrence_and_its_gradients_have_right_values():
    arrays = X, W, RNG.standard_normal((24, 24)).astype(np.float32) * 0.1
    x, w, u = (Tensor(one) for one in arrays)
    state, expected = Tensor.zeros(8, 24), np.zeros((8, 24))
    for t in range(6):
        state = (x[:, t].linear(w) + state.linear(u)).tanh()
        expected = np.tanh(arrays[0][:, t] @ arrays[1].T + expected @ arrays[2].T)
    slopes = gradient(state.sum(), [w, x])
    with device(numpy_graph.NumpyEvaluator()):
        right = [one.numpy() for one in slopes]
    found = computed(state, *slopes)
    for one, other in zip(found, [expected, *right], strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "float64"])
@pytest.mark.parametrize("start", [1, 2, 4, 7, 16, 100])
def test_parts_at_any_place_are_read_right_to_the_last_byte(dtype, start):
    array = RNG.integers(-5, 5, 333).astype(dtype)
    whole = Tensor(array)
    ends = [whole[start : start + 200] + 1, whole[start:].flip(0) * 2, whole[-start:].sum()]
    expected = [array[start : start + 200] + 1, array[start:][::-1] * 2, array[-start:].sum()]
    for found, right in zip(computed(*ends), expected, strict=True):
        np.testing.assert_allclose(found, right)


def test_rows_columns_and_blocks_of_a_matrix_are_read_right():
    array = RNG.standard_normal((40, 64)).astype(np.float32)
    m = Tensor(array)
    parts = [m[3:7], m[:, 4:8], m[5:21, 16:48] @ m[8:40, 32:64], m[8].softmax(), m[4:8].cat(m[9:11]), m[2:4] + m[8:10]]
    right = [array[3:7], array[:, 4:8], array[5:21, 16:48] @ array[8:40, 32:64]]
    found = computed(*(one.contiguous() for one in parts))
    for one, expected in zip(found, right, strict=False):
        np.testing.assert_allclose(one, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found[3], np.exp(array[8]) / np.exp(array[8]).sum(), rtol=1e-5)
    np.testing.assert_array_equal(found[4], np.concatenate([array[4:8], array[9:11]]))
    np.testing.assert_array_equal(found[5], array[2:4] + array[8:10])


def test_a_part_of_memory_that_is_written_keeps_its_place():
    x = Tensor(np.arange(64, dtype=np.float32))
    x[16:32] = x[32:48] * 2
    (found,) = computed(x)
    expected = np.arange(64, dtype=np.float32)
    expected[16:32] = expected[32:48] * 2
    np.testing.assert_array_equal(found, expected)


def test_what_another_kernel_computed_of_the_same_part_keeps_its_node():
    arrays = [RNG.standard_normal((rows, 64)).astype(np.float32) for rows in (4, 1)]
    part, other = Tensor(arrays[0])[1:2], Tensor(arrays[1])
    kept = part * other
    found = computed(kept, kept.cumsum(1) * part, kept.sum() + part)
    right = arrays[0][1:2] * arrays[1]
    for one, expected in zip(
        found, (right, right.cumsum(1) * arrays[0][1:2], right.sum() + arrays[0][1:2]), strict=True
    ):
        np.testing.assert_allclose(one, expected, rtol=1e-4, atol=1e-4)


def test_parts_beside_assignments_to_the_same_and_other_memory_are_read_right():
    x, y = np.arange(64, dtype=np.float32), np.arange(64, dtype=np.float32) * 10
    a, b = Tensor(x), Tensor(y)
    a[16:32] = b[32:48] + a[48:64]
    a[0:8] = a[16:24] * b[8:16]
    b[4:8] = a[20:24]
    x[16:32] = y[32:48] + x[48:64]
    x[0:8] = x[16:24] * y[8:16]
    y[4:8] = x[20:24]
    for found, right in zip(computed(a, b), (x, y), strict=True):
        np.testing.assert_array_equal(found, right)
