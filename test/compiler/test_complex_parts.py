"""Graphs of complex numbers, taken apart, come to what NumPy computes of the complex ones."""

import numpy as np
import numpy_graph
import pytest

from ringup.compiler.explain import explain
from ringup.compiler.graph import dtypes, nodes
from ringup.compiler.graph.complex_parts import has_complex, without_complex
from ringup.compiler.graph.nodes import Op
from ringup.compiler.schedule.dependences import is_contraction
from ringup.compiler.schedule.order import plan
from ringup.compiler.tensor import Tensor, order


def leaf(draw, *shape, kind=dtypes.complex64):
    array = (draw.normal(size=shape) + 1j * draw.normal(size=shape)).astype(kind.numpy)
    return nodes.buffer(kind, array.shape, "", array.reshape(-1).view(np.uint8).tobytes())


def both(root):
    """Return a root's value as the reference computes it, and as that of the taken-apart graph."""
    (apart,) = without_complex(nodes.shared([root]))
    assert not has_complex(apart.ordered())
    (whole,), (parts,) = numpy_graph.evaluate([root]), numpy_graph.evaluate([apart])
    if root.dtype.is_complex:
        return whole, np.ascontiguousarray(parts).reshape(-1).view(root.dtype.numpy).reshape(whole.shape)
    return whole, parts


def whole_leaf(draw, *shape, kind):
    """Return a leaf of small whole numbers, zeros among them: what it decides does not hang on rounding."""
    real, imag = draw.integers(-1, 2, (2, *shape))
    return nodes.buffer(kind, shape, "", (real + 1j * imag).astype(kind.numpy).tobytes())


def random_graph(seed):
    """Return a graph of random operations on complex values of one shape, and on real ones beside them."""
    draw = np.random.default_rng(seed)
    shape = tuple(int(size) for size in draw.integers(1, 5, draw.integers(1, 4)))
    kind = dtypes.complex64 if draw.random() < 0.5 else dtypes.complex128
    values = [leaf(draw, *shape, kind=kind) for _ in range(2)]
    values.append(nodes.cast(nodes.part(Op.REAL, values[0]), kind))
    values.append(nodes.const(complex(draw.normal(), draw.integers(0, 2)), kind, shape))
    for _ in range(10):
        a, b = (values[i] for i in draw.integers(0, len(values), 2))
        axis, axes = int(draw.integers(len(shape))), tuple(int(i) for i in draw.permutation(len(shape)))
        real, imag = nodes.part(Op.REAL, a), nodes.part(Op.IMAG, b)
        left, right = (whole_leaf(draw, *shape, kind=kind) for _ in range(2))
        less = nodes.elementwise(Op.LT, nodes.part(Op.REAL, left), nodes.part(Op.IMAG, right))
        edges = tuple((1, 0) if i == axis else (0, 0) for i in range(len(shape)))
        kept = tuple((0, size) for size in shape)
        padded = nodes.node(
            Op.PAD, kind, tuple(n + p + q for n, (p, q) in zip(shape, edges, strict=True)), (a,), (edges, 1 - 1j)
        )
        joined = nodes.node(Op.CAT, kind, tuple(2 * n if i == axis else n for i, n in enumerate(shape)), (a, b), axis)
        place = nodes.buffer(dtypes.int32, shape, "", draw.integers(0, shape[axis], shape).astype(np.int32).tobytes())
        values.append(
            draw.choice(
                np.array(
                    [
                        nodes.elementwise(Op.ADD, a, b),
                        nodes.elementwise(Op.SUB, a, b),
                        nodes.elementwise(Op.MUL, a, b),
                        nodes.elementwise(Op.DIV, a, b),
                        nodes.elementwise(Op.NEG, a),
                        nodes.elementwise(Op.WHERE, nodes.elementwise(Op.NE, a, b), a, b),
                        nodes.elementwise(Op.WHERE, nodes.elementwise(Op.NE, left, right), a, b),
                        nodes.elementwise(Op.WHERE, less, a, b),
                        nodes.joined(imag, real),
                        nodes.contiguous(a),
                        nodes.permute(nodes.permute(a, axes), np.argsort(axes).tolist()),
                        nodes.reshape(nodes.reshape(a, (int(np.prod(shape)),)), shape),
                        nodes.node(Op.FLIP, kind, shape, (a,), (axis,)),
                        nodes.node(Op.SHRINK, kind, shape, (padded,), kept),
                        nodes.node(Op.SHRINK, kind, shape, (joined,), kept),
                        nodes.expand(nodes.reduce(Op.ADD, a, [axis]), shape),
                        nodes.scan(Op.ADD, a, axis),
                        nodes.node(Op.GATHER, kind, shape, (a, place), axis),
                        nodes.node(Op.SCATTER, kind, shape, (a, place, b), (axis, Op.ADD)),
                        nodes.node(Op.SCATTER, kind, shape, (a, place, b), (axis, None)),
                        nodes.elementwise(Op.ADD, a, nodes.cast(nodes.cast(left, dtypes.bool_), kind)),
                    ],
                    object,
                )
            )
        )
    return values[-1]


@pytest.mark.seeds(40)
def test_random_graphs_keep_their_values(seed):
    """A quotient by zero is infinite in both; which part has which sign, no standard says."""
    whole, parts = both(random_graph(seed))
    finite = np.isfinite(whole)
    np.testing.assert_array_equal(np.isfinite(parts), finite)
    whole, parts = whole[finite], parts[finite]
    np.testing.assert_allclose(parts, whole, rtol=2e-4, atol=1e-5 * np.abs(whole).max(initial=1))


def test_a_graph_without_complex_numbers_stays_as_it_is():
    root = (Tensor([1.0, 2.0]) * 3).node
    (ready,) = order.prepared([root])
    assert ready is nodes.shared([root])[0]


def test_memory_is_read_and_written_as_pairs():
    z = Tensor([1 + 2j, 3 + 4j])
    (whole,) = without_complex([z.node])
    assert (whole.op, whole.dtype, whole.shape, whole.arg) == (Op.BUFFER, dtypes.float32, (2, 2), z.node.arg)
    # what only moves numbers moves pairs
    (moved,) = without_complex([z.reshape(2, 1).flip(0).expand(2, 3).T.node])
    assert all(one.op is not Op.CAT for one in moved.ordered())
    (parts,) = without_complex([z.view_as_real().view_as_complex().node])
    assert parts.op is Op.BUFFER or all(one.op is not Op.CAT for one in parts.ordered())


def test_long_chains_of_movements_are_taken_apart():
    z = Tensor([1 + 2j, 3 + 4j])
    made = z
    for _ in range(1500):
        made = made.flip(0).pad([(1, 0)])[1:]
    (whole,) = without_complex(nodes.shared([made.node]))
    assert all(one.op is not Op.CAT for one in whole.ordered())


def test_a_product_of_matrices_is_four_contractions_in_two_kernels():
    a, b = (Tensor(np.ones((48, 32), np.complex64)) for _ in range(2))
    ready = order.prepared([(a @ b.H).node])
    folds = [one for one in nodes.ordered(ready) if one.op is Op.REDUCE]
    assert len(folds) == 4
    assert all(map(is_contraction, folds))
    planned = plan(ready)
    assert [len(kernel.folds) for kernel in planned.kernels] == [2, 2, 0]
    # the parts of the result, before they are joined
    assert planned.arena_bytes == 2 * 48 * 48 * 4


def test_a_real_factor_halves_a_product_of_matrices():
    real, z = Tensor(np.ones((48, 32), np.float32)), Tensor(np.ones((32, 48), np.complex64))
    assert sum(one.op is Op.REDUCE for one in nodes.ordered(order.prepared([(real @ z).node]))) == 2


def test_what_complex_numbers_do_not_have_is_a_type_error():
    z = leaf(np.random.default_rng(0), 3)
    for wrong in (nodes.reduce(Op.MUL, z, [0]), nodes.scan(Op.MUL, z, 0)):
        with pytest.raises(TypeError, match="only summed"):
            without_complex([wrong])
    with pytest.raises(TypeError, match="drop the imaginary parts"):
        nodes.cast(z, dtypes.float32)


def test_a_thread_computes_both_parts_of_a_number():
    """A thread of one element would have the code of both parts, and choose."""
    z = Tensor(np.ones((512, 512), np.complex64))
    (kernel,) = explain(order.prepared([z.exp().node])).kernels
    assert kernel.step.lowered.choice.startswith("elementwise vector=2")
