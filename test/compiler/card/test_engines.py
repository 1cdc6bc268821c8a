"""Compiled kernels compute the same on both engines of the virtual card: on the interpreter and on the translator."""

import numpy as np

from ringup.compiler.graph import dtypes
from ringup.compiler.graph.nodes import Op, elementwise, permute, reduce
from ringup.compiler.tensor import Tensor


def graphs(bench):
    """Return graphs for every kind of kernel, each of a few waves."""
    random = np.random.default_rng(0)
    x = random.standard_normal((20, 70)).astype(np.float32)
    half = random.standard_normal((33, 40)).astype(np.float16)
    a, b = bench.buffer(x, dtypes.float32), bench.buffer(x[::-1] * 3, dtypes.float32)
    integers = bench.buffer(random.integers(-(1 << 62), 1 << 62, 64), dtypes.int64)
    t, image = Tensor(x), Tensor(x[:16, :64].reshape(1, 4, 16, 16))
    return {
        "elementwise": elementwise(Op.SIN, elementwise(Op.DIV, a, b)),
        "f64": elementwise(Op.POW, *(bench.buffer(one.astype(np.float64), dtypes.float64) for one in (abs(x[0]), x[1]))),
        "integers": elementwise(Op.IDIV, integers, elementwise(Op.SHR, integers, bench.buffer(np.arange(64), dtypes.int64))),
        "rows": reduce(Op.ADD, a, (1,)),
        "columns": reduce(Op.MAX, permute(a, (1, 0)), (1,)),
        "long": Tensor(np.arange(3000, dtype=np.float32)).sum().node,
        "softmax": t.softmax(1).node,
        "product": (t @ t.T).node,
        "matrix product": (Tensor(half) @ Tensor(half.T.copy())).node,
        "gather": t[Tensor(np.array([3, 0, 19, 19], np.int32))].node,
        "convolution": image.conv2d(Tensor(x[:12, :36].reshape(12, 4, 3, 3))).node,
    }  # fmt: skip


def test_both_engines_compute_the_same_bits(bench, small):
    # Memory belongs to one card.
    fast, others = graphs(bench), graphs(bench)
    for name, node in fast.items():
        (wanted,), (found,) = bench.device.evaluate([node], {}), small.device.evaluate([others[name]], {})
        assert any(wanted.read()), name
        assert found.read() == wanted.read(), name
