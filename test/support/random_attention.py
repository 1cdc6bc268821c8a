"""Random attentions through the Tensor API, compared with NumPy in f64: `random_attention(seed)`.

Heads that share keys, masks and biases of any broadcast, causal from any start, sizes known only at run time, views of
wider memory in any layout, and an operation on the result.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import attention_numpy
import numpy as np

from ringup.compiler.tensor import Size, Tensor

KINDS = ("float32", "float16", "bfloat16")
LAYOUTS = {  # of memory, as axes of (batch, heads, place, width)
    "heads first": (0, 1, 2, 3), "places first": (0, 2, 1, 3), "widths first": (0, 1, 3, 2),
}  # fmt: skip


@dataclass
class Attention:
    """A tensor, the sizes to compute it for, its expected values, and the tolerance of its elements."""

    tensor: Tensor
    sizes: dict[str, int]
    wanted: np.ndarray
    tolerance: float
    trail: list[str] = field(default_factory=list)


class Maker:
    """One attention under construction: `trail` records the choices."""

    def __init__(self, seed):
        self.random, self.numpy = random.Random(seed), np.random.default_rng(seed)
        self.trail = []
        self.kind = self.choice("kind", *KINDS)

    def choice(self, name, *of):
        """Return one of some values."""
        found = self.random.choice(of)
        self.trail.append(f"{name}={found}")
        return found

    def lying(self, name, array):
        """Return an array as a view of memory: a part of a wider one, with its axes in another order."""
        around = [
            (self.choice(f"{name} before", 0, 0, 0, 1), self.choice(f"{name} behind", 0, 0, 0, 3)) for _ in array.shape
        ]
        wide = np.pad(array, around, constant_values=np.nan)
        order = LAYOUTS[self.choice(f"{name} layout", *LAYOUTS)]
        tensor = attention_numpy.tensor(self.kind, np.ascontiguousarray(wide.transpose(order)))
        parts = tuple(slice(a, a + size) for (a, _), size in zip(around, array.shape, strict=True))
        return tensor.permute(*np.argsort(order).tolist())[parts]


def random_attention(seed):
    """Return the attention of that seed."""
    make = Maker(seed)
    queries = make.choice("queries", 1, 1, 2, 3, 5, 8, 9, 17, 33, 40)
    keys = make.choice("keys", 1, 2, 7, 16, 31, 33, 64, 70, 130)
    deep, wide = (make.choice(name, 1, 4, 8, 12, 16, 24, 32, 33, 64, 80) for name in ("deep", "wide"))
    batch, shared, each = make.choice("batch", 1, 2), make.choice("heads", 1, 2, 3), make.choice("each", 1, 1, 2, 4)
    heads = shared * each
    arrays = [
        attention_numpy.numbers(make.numpy, make.kind, batch, n, *size)
        for n, size in ((heads, (queries, deep)), (shared, (keys, deep)), (shared, (keys, wide)))
    ]
    tensors = [make.lying(name, one) for name, one in zip("qkv", arrays, strict=True)]
    sizes = {}
    if make.choice("sizes", "known", "known", "given") == "given":
        arrays, tensors, sizes = _cut(make, arrays, tensors)
    q, k, v = arrays
    scale = make.choice("scale", None, 0.25, 1.0)
    seen, bias, mask = _mask(make, (batch, heads, q.shape[2], k.shape[2])) if not sizes else (None, 0.0, None)
    options = {"mask": mask, "scale": scale, "grouped": True}
    if make.choice("causal", False, True):
        start = None if sizes else make.choice("start", None, 0, 3)
        options |= {"causal": True, "start": start}
        places = np.tril(np.ones((q.shape[2], k.shape[2]), bool), k.shape[2] - q.shape[2] if start is None else start)
        seen = places if seen is None else seen & places
    wanted = attention_numpy.attended(q, k, v, seen, scale, bias)
    tensor, wanted = _followed(make, tensors[0].scaled_dot_product_attention(*tensors[1:], **options), wanted)
    tolerance = 4 * attention_numpy.TOLERANCE[make.kind] * max(1.0, float(np.abs(wanted).max()))
    return Attention(tensor, sizes, wanted, tolerance, make.trail)


def _cut(make, arrays, tensors):
    """Cut arrays and tensors to the first queries and keys, as many as random sizes say. In a decoder, earlier keys
    come before those of the queries. Otherwise there are as many keys as queries.
    """
    q, k, v = arrays
    count = Size("count", 1, q.shape[2])
    is_decoder = k.shape[2] > q.shape[2] and make.choice("cache", True, True, False)
    at = Size("at", 0, k.shape[2] - q.shape[2]) if is_decoder else 0
    if not is_decoder and k.shape[2] < q.shape[2]:
        return arrays, tensors, {}
    sizes = {"count": make.random.randint(1, q.shape[2])}
    if is_decoder:
        sizes["at"] = make.random.randint(0, k.shape[2] - q.shape[2])
    make.trail.append(f"{sizes}")
    last = sizes["count"] + sizes.get("at", 0)
    cut = [q[:, :, : sizes["count"]], k[:, :, :last], v[:, :, :last]]
    given = {
        name: sizes[name] for name, size in (("count", count), ("at", at)) if not isinstance(size, int)
    }  # one value: no size
    return cut, [tensors[0][:, :, :count], *(one[:, :, : at + count] for one in tensors[1:])], given


def _mask(make, shape):
    """Return which keys are seen (None: all), what is added to logits, and the mask that expresses it."""
    what = make.choice("mask", "none", "none", "seen", "added")
    if what == "none":
        return None, 0.0, None
    own = tuple(size if make.choice("broadcast", False, False, True) is False else 1 for size in shape)
    if what == "seen":
        seen = make.numpy.random(own) < make.choice("share", 0.2, 0.8)
        return np.broadcast_to(seen, shape), 0.0, Tensor(seen)
    bias = make.numpy.standard_normal(own).astype(np.float32)
    return None, bias, Tensor(bias)


def _followed(make, tensor, wanted):
    """Return a result and an operation on it."""
    what = make.choice("then", "nothing", "nothing", "relu", "cast", "merged", "added")
    if what == "relu":
        return tensor.relu(), np.maximum(wanted, 0)
    if what == "cast":
        return tensor.cast("float32") * 2, wanted * 2
    # Heads side by side, as the next layer needs them.
    if what == "merged":
        batch, heads, queries, wide = wanted.shape
        merged = wanted.transpose(0, 2, 1, 3).reshape(batch, queries, heads * wide)
        return tensor.permute(0, 2, 1, 3).reshape(batch, tensor.shape[2], heads * wide), merged
    if what == "added":
        column = make.numpy.integers(-2, 3, wanted.shape[-1]).astype(np.float32)
        return tensor + attention_numpy.tensor(make.kind, column), wanted + column
    return tensor, wanted


def check(seed):
    """Compute the attention of that seed and compare. Raises AssertionError for what is wrong."""
    made = random_attention(seed)
    found = made.tensor.numpy(**made.sizes).astype(np.float64)
    what = f"seed {seed}: {' '.join(made.trail)}"
    assert found.shape == made.wanted.shape, what
    np.testing.assert_allclose(found, made.wanted, rtol=0, atol=made.tolerance, err_msg=what)
