"""Attention in NumPy's f64, and tensors of narrow floats for it; shared by the tests of attention in one kernel."""

import numpy as np

from ringup.compiler.tensor import Tensor

# The tolerance relative to the greatest result: powers and results are rounded to the type once.
TOLERANCE = {
    "float32": 2e-6,
    "float16": 1e-3,
    "bfloat16": 8e-3,
}


def numbers(draw, kind, *shape):
    """Return random numbers that a float type can represent, as f32."""
    x = draw.standard_normal(shape).astype(np.float32)
    if kind == "bfloat16":
        bits = x.view(np.uint32)
        return (bits + 0x7FFF + (bits >> 16 & 1) & 0xFFFF0000).astype(np.uint32).view(np.float32)
    return x.astype(kind).astype(np.float32)


def tensor(kind, x):
    """Return a tensor that is stored in memory in a narrow type."""
    if kind == "bfloat16":
        return Tensor((x.view(np.uint32) >> 16).astype(np.uint16)).bitcast("bfloat16")
    return Tensor(x.astype(kind))


def attended(q, k, v, seen=None, scale=None, bias=0.0):
    """Return softmax(q k^T * scale + bias) v in f64, with heads of keys repeated. Rows that see no key are 0."""
    q, k, v = (one.astype(np.float64) for one in (q, k, v))
    k, v = (np.repeat(one, q.shape[1] // one.shape[1], 1) for one in (k, v))
    scores = q @ k.swapaxes(-1, -2) * (scale or q.shape[-1] ** -0.5) + bias
    if seen is not None:
        scores = np.where(seen, scores, -np.inf)
    greatest = scores.max(-1, keepdims=True)
    powers = np.exp(scores - np.where(np.isinf(greatest), 0, greatest))
    total = powers.sum(-1, keepdims=True)
    return powers / np.where(total == 0, 1, total) @ v


def assert_close(found, wanted, kind):
    """Compare with the type's tolerance, relative to the greatest value."""
    np.testing.assert_allclose(found, wanted, rtol=0, atol=TOLERANCE[kind] * max(1.0, np.abs(wanted).max()))
