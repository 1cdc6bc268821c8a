"""The constructs of the tensor language that random programs are made of: tables of steps by name.

A step takes the program under construction (`programs.Maker`) and a value, and returns a value or several. It
may raise what the language raises for arguments that do not fit (REFUSED).
"""

from __future__ import annotations

import numpy as np

from ringup import fft
from ringup.compiler.graph.index import bounds
from ringup.compiler.tensor import Tensor, gradient, rotary_angles
from ringup.optim import LAMB, SGD, Adam, AdamW, Muon, RMSprop, deferred

# What the language may raise for arguments that do not fit.
REFUSED = (TypeError, ValueError, IndexError)
KINDS = ("float32",) * 6 + ("float64", "float16", "float16", "bfloat16", "float8_e4m3", "float8_e5m2", "int8", "uint8", "int16",
         "uint16", "int32", "int32", "uint32", "int64", "uint64", "bool")  # fmt: skip
FLOATS = ("float32", "float32", "float32", "float16", "bfloat16", "float64")


def most(size):
    """Return the greatest value of a size."""
    return bounds(size)[1]


def _method(*names, **how):
    return {name: (lambda m, x, name=name: getattr(x, name)(**how)) for name in names}


def _floats(*names):
    def step(m, x, name):
        return getattr(x if x.dtype.is_float else x.cast(m.random.choice(FLOATS)), name)()

    return {name: (lambda m, x, name=name: step(m, x, name)) for name in names}


def _with_axis(*names):
    return {name: (lambda m, x, name=name: getattr(x, name)(m.axis(x))) for name in names}


def _reduced(m, x, name):
    axes = m.choice(None, m.axis(x) if x.ndim else None, tuple(range(m.number(0, x.ndim))) or None)
    if name in ("argmax", "argmin", "median") and isinstance(axes, tuple):
        axes = axes[0]
    return getattr(x, name)(axes, keepdims=m.choice(True, False))


def _reductions(*names):
    return {name: (lambda m, x, name=name: _reduced(m, x, name)) for name in names}


def _binary(*names):
    def step(m, x, name):
        y = m.choice(2, 1, 0.5, m.like(x), m.like(x), m.like(x))
        return getattr(x, name)(y)

    return {name: (lambda m, x, name=name: step(m, x, name)) for name in names}


def _operators():
    table = {
        "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "/": lambda a, b: a / b,
        "//": lambda a, b: a // b, "%": lambda a, b: a % b, "**": lambda a, b: a**b, "&": lambda a, b: a & b,
        "|": lambda a, b: a | b, "^": lambda a, b: a ^ b, "<": lambda a, b: a < b, "==": lambda a, b: a == b,
        ">=": lambda a, b: a >= b, "<<": lambda a, b: a << 2, ">>": lambda a, b: a >> 1, "~": lambda a, b: ~a,
    }  # fmt: skip

    def step(m, x, name):
        x = x.cast("int32") if name in "&|^~<<>>" and x.dtype.is_float else x
        return table[name](*m.random.sample([x, m.choice(2, m.like(x), m.like(x))], 2))

    return {name: (lambda m, x, name=name: step(m, x, name)) for name in table}


def _reshaped(m, x):
    sizes = list(x.shape)
    if any(not isinstance(size, int) for size in sizes):
        return x.unsqueeze(m.number(0, x.ndim))
    how = m.choice("flat", "ones", "split", "three")
    if how == "flat":
        return x.reshape(-1) if x.numel() else x.reshape(0)
    if how == "ones":
        sizes.insert(m.number(0, len(sizes)), 1)
        return x.reshape(sizes)
    if how == "split" and x.ndim:
        at = m.number(0, x.ndim - 1)
        by = m.random.choice([one for one in range(1, max(1, sizes[at]) + 1) if sizes[at] % one == 0])
        return x.reshape([*sizes[:at], by, sizes[at] // by, *sizes[at + 1 :]])
    whole = int(np.prod(sizes))
    by = m.random.choice([one for one in range(1, max(1, min(whole, 64)) + 1) if whole % one == 0])
    return x.reshape(by, whole // by)


def _sliced(m, x):
    keys = []
    for size in x.shape:
        end = most(size)
        start = m.number(0, max(0, end - 1))
        one = slice(start, m.number(start, end), m.choice(None, 1, 2, -1, 3))
        keys.append(
            m.choice(slice(None), slice(None), one, slice(None, None, -1), start, None, slice(start, start + 1))
        )
    return x[tuple(keys)]


def _fancy(m, x):
    at = m.number(0, x.ndim - 1)
    places = m.places([m.choice(1, 3, 5)] * m.choice(1, 1, 2), x.shape[at])
    return x[(slice(None),) * at + (places,)]


def _padded(m, x):
    widths = [(m.number(0, 2), m.number(0, 2)) for _ in x.shape]
    return x.pad(widths, m.choice(0, 0, 1), m.choice("constant", "constant", "reflect", "replicate", "circular"))


def _joined(m, x):
    shape, at = list(x.shape), m.number(0, x.ndim - 1)
    shape[at] = m.choice(1, 2, x.shape[at])
    parts = m.random.sample([x, m.leaf(shape, x.dtype.name), x], m.number(2, 3))
    return parts[0].cat(*parts[1:], axis=at)


def _repeated(m, x):
    return x.unsqueeze(0).expand((m.choice(1, 2, 5, 16), *x.shape))


def _heavy(m, x):
    """Return much work for an element."""
    x = x if x.dtype.is_float else x.cast("float32")
    for _ in range(m.number(2, 6)):
        x = m.random.choice(
            (Tensor.sin, Tensor.cos, Tensor.tan, Tensor.erf, lambda one: one.abs() ** 2.5, Tensor.log1p)
        )(x)
    return x


def _where(m, x):
    test = m.choice(x > 1, m.like(x, "bool"), m.like(x, "float32") > 0)
    return test.where(x, m.choice(0, m.like(x)))


def _outer(m, x):
    """Return a reduction of what two values of fewer axes are combined to."""
    rows, deep, columns = (m.choice(1, 2, 5, 8, 17, 33, 64) for _ in range(3))
    kind = m.random.choice(FLOATS)
    a, b = m.leaf((rows, deep, 1), kind), m.leaf((1, deep, columns), kind)
    a, b = (_heavy(m, one) if m.choice(True, False) else one for one in (a, b))
    both = m.choice(
        lambda: a * b, lambda: a + b, lambda: a.maximum(b), lambda: a * b + b * 2, lambda: _heavy(m, a - b)
    )()
    if m.choice(True, False):
        both = both * m.leaf((rows, 1, columns), kind)
    return getattr(both, m.choice("sum", "sum", "max", "mean", "logsumexp"))(m.choice(1, 1, 0, 2, (0, 1)))


def _multiplied(m, x):
    x = x if x.ndim else x.reshape(1)
    kind = m.choice(x.dtype.name, x.dtype.name, "float32")
    columns = m.choice((), (1,), (m.side(),), (8,), (33,))
    y = m.leaf((x.shape[-1], *columns), kind)
    y = _heavy(m, y) if m.random.random() < 0.2 else y
    return m.choice(lambda: x @ y, lambda: x @ y, lambda: x.linear(y.mT))()


def _batched(m, x):
    kind, batch = m.random.choice(FLOATS), m.choice((), (1,), (3,), (2, 1))
    rows, deep, columns = m.side(), m.side(), m.side()
    a = m.leaf((*batch, rows, deep), kind)
    b = m.leaf((*m.choice((), batch, batch, (2,) * len(batch)), deep, columns), kind)
    a, b = (_heavy(m, one) if m.random.random() < 0.25 else one for one in (a, b))
    return a @ b


def _self(m, x):
    return m.choice(lambda: x @ x.mT, lambda: x.mT @ x, lambda: x.mT @ x.relu())()


EINSUMS = ("ij,jk->ik", "ij,ij->i", "bij,bjk->bik", "ij,kj->ki", "i,j->ij", "ij,jk,kl->il", "bhid,bhjd->bhij", "ii->i",
           "ij->ji", "ij,j->i", "bi,bj,bk->ijk", "abc,cd->abd", "ij->", "bic,bjc->bij", "ij,ik->jk")  # fmt: skip


def _einsum(m, x):
    formula = m.random.choice(EINSUMS)
    sizes, kind = {}, m.random.choice(FLOATS)
    operands = [
        m.leaf([sizes.setdefault(letter, m.choice(1, 2, 3, 8, 17)) for letter in part], kind)
        for part in formula.split("->")[0].split(",")
    ]
    operands = [_heavy(m, one) if m.random.random() < 0.15 else one for one in operands]
    return operands[0].einsum(formula, *operands[1:])


def _image(m, dimensions=2):
    channels = m.choice(1, 2, 3, 8, 16)
    return m.leaf((m.choice(1, 1, 2), channels, *(m.number(3, 9) for _ in range(dimensions))), m.random.choice(FLOATS))


def _convolved(m, x):
    dimensions = m.choice(1, 2, 2, 2, 3)
    x = x if x.ndim == dimensions + 2 and x.dtype.is_float and m.choice(True, False) else _image(m, dimensions)
    x = _heavy(m, x) if m.random.random() < 0.1 else x
    groups = m.choice(1, 1, 1, x.shape[1])
    made = groups * m.choice(1, 2, 3, 8)
    taps = [m.choice(1, 2, 3) for _ in range(dimensions)]
    kind = x.dtype.name
    weight = m.leaf((made, x.shape[1] // groups, *taps), kind)
    bias = m.choice(None, m.leaf((made,), kind))
    how = {"stride": m.choice(1, 1, 2), "padding": m.choice(0, 1), "dilation": m.choice(1, 1, 2), "groups": groups}
    return x.conv(weight, bias, **how)


def _spread(m, x):
    x = _image(m)
    weight = m.leaf((x.shape[1], m.choice(1, 2, 8), 3, 3), x.dtype.name)
    return x.conv_transpose(weight, stride=m.choice(1, 2), padding=m.choice(0, 1))


def _pooled(m, x):
    x = x if x.ndim == 4 and x.dtype.is_float else _image(m)
    size, stride = m.choice(1, 2, 3), m.choice(None, 1, 2)
    return m.choice(
        lambda: x.max_pool(size, stride), lambda: x.avg_pool(size, stride), lambda: x.lp_pool(2, size, stride),
        lambda: x.max_pool(size, stride, padding=size // 2), lambda: x.avg_pool(size, stride, ceil=True),
    )()  # fmt: skip


def _resampled(m, x):
    return _image(m).interpolate([m.number(1, 11) for _ in range(2)], m.choice("nearest", "linear"))


def _normed(m, x):
    x = x if x.dtype.is_float else x.cast("float32")
    wide = x.shape[-1]
    scale = m.choice(None, m.leaf((wide,), x.dtype.name))
    return m.choice(
        lambda: x.layer_norm(scale), lambda: x.rms_norm(scale), lambda: x.softmax(m.axis(x)),
        lambda: x.log_softmax(m.axis(x)), lambda: x.norm(2, m.axis(x)), lambda: x.norm(1), lambda: x.layer_norm(axes=(-2, -1)),
    )()  # fmt: skip


def _normed_image(m, x):
    x = _image(m)
    channels = x.shape[1]
    weight = m.leaf((channels,), x.dtype.name)
    return m.choice(
        lambda: x.batch_norm(weight=weight), lambda: x.batch_norm(m.leaf((channels,), x.dtype.name), m.leaf((channels,), x.dtype.name).abs()),
        lambda: x.group_norm(m.choice(1, channels), weight), lambda: x.instance_norm(weight),
    )()  # fmt: skip


def _attended(m, x):
    """Return an attention of any form."""
    kind = m.choice("float32", "float32", "float16", "bfloat16")
    queries, keys = m.choice(1, 1, 2, 5, 9, 17, 33), m.choice(1, 1, 2, 5, 7, 16, 33, 70)
    deep, wide = m.choice(1, 2, 8, 16, 33), m.choice(1, 2, 8, 16, 33)
    shared, each = m.choice(1, 2, 3), m.choice(1, 1, 1, 2)
    front = m.choice((), (1,), (2,))
    heads = m.choice(True, True, False)
    if m.has_sizes and m.choice(True, False):
        keys = m.side()

    def operand(count, *size):
        lead = (*front, count) if heads else front
        lead = tuple(m.choice(one, one, one, one, 1) for one in lead)
        made = m.leaf((*lead, *size), kind)
        return _heavy(m, made) if m.random.random() < 0.05 else made

    q, k, v = operand(shared * each, queries, deep), operand(shared, keys, deep), operand(shared, keys, wide)
    if m.random.random() < 0.1:
        v = m.choice(k, q, q * k if queries == keys else k)
    mask = m.choice(None, None, m.leaf((m.choice(1, queries), m.choice(1, keys)), m.choice("bool", kind)))
    made = q.scaled_dot_product_attention(
        k, v, mask, causal=m.choice(False, False, True), grouped=heads and each > 1, scale=m.choice(None, None, 0.5)
    )
    return m.choice(lambda: made, lambda: made, lambda: made.relu(), lambda: made * made, lambda: made + v[..., :1, :],
                    lambda: made.sum(-1), lambda: made.mT)()  # fmt: skip


def _attended_by_hand(m, x):
    """Return attention in plain operations, with something between them."""
    kind = m.choice("float32", "float32", "float16")
    queries, keys, deep = m.choice(1, 2, 9, 33), m.choice(1, 2, 7, 33), m.choice(1, 8, 16)
    q, k, v = (
        m.leaf((2, queries, deep), kind),
        m.leaf((2, keys, deep), kind),
        m.leaf((m.choice(1, 2), keys, m.choice(1, 8)), kind),
    )
    scores = (q @ k.mT) * m.choice(1, 0.25, m.leaf((1, 1, keys), kind))
    scores = m.choice(scores, scores + m.leaf((queries, keys), kind), scores.tanh() * 5, _heavy(m, scores))
    weights = scores.softmax(-1)
    weights = m.choice(weights, weights, weights.dropout(0.2), weights * 2)
    made = weights @ v
    return m.choice(
        [made],
        [made, weights],
        [made, scores],
        [made * weights.sum(-1, keepdims=True)],
        [made + scores.max(-1, keepdims=True)],
    )


def _rotated(m, x):
    x = m.leaf((2, m.choice(1, 5), 8), m.random.choice(FLOATS))
    return x.rotary(*rotary_angles(Tensor.arange(x.shape[-2]), 8))


def _gathered(m, x):
    at = m.number(0, x.ndim - 1)
    shape = [m.choice(1, max(1, most(size))) for size in x.shape]
    shape = [m.choice(2, 5, 9) if i == at else min(size, most(x.shape[i])) for i, size in enumerate(shape)]
    places = m.places(shape, x.shape[at])
    return m.choice(lambda: x.gather(at, places), lambda: x.take(places.reshape(-1), at), lambda: x.index_select(at, places.reshape(-1)),
                    lambda: x.take(places), lambda: x.embedding(places), lambda: x.take_along_axis(places, at))()  # fmt: skip


def _scattered(m, x):
    at = m.number(0, x.ndim - 1)
    shape = [m.choice(1, 3, 9) if i == at else m.number(1, max(1, most(size))) for i, size in enumerate(x.shape)]
    places, values = m.places(shape, x.shape[at]), m.leaf(shape, x.dtype.name)
    return m.choice(
        lambda: x.scatter(at, places, values), lambda: x.scatter_add(at, places, values),
        lambda: x.scatter_reduce(at, places, values, m.choice("sum", "prod", "max", "min", "amax", "amin", "mean")),
    )()  # fmt: skip


def _lost(m, x):
    x = x if x.dtype.is_float else x.cast("float32")
    y = m.like(x)
    classes = m.places(x.shape[:-1], x.shape[-1])
    return m.choice(lambda: x.cross_entropy(classes), lambda: x.mse_loss(y), lambda: x.bce_with_logits_loss(y), lambda: x.huber_loss(y),
                    lambda: x.l1_loss(y), lambda: x.nll_loss(classes), lambda: x.sigmoid().bce_loss(y), lambda: x.kl_div(y),
                    lambda: x.cross_entropy(classes, smoothing=0.1, reduction="none"))()  # fmt: skip


def _assigned(m, x):
    """Write into a copy or into memory, in whole or in part."""
    y = m.choice(lambda: x * 1, lambda: x.clone(), lambda: m.random.choice(m.weights))()
    value = m.choice(1, m.like(y), y.flip(0) if y.ndim else y)
    if m.choice(True, False, False) or not y.ndim:
        y.assign(value)
    else:
        # a place that an axis of an open size has for sure
        start = min(m.number(0, most(y.shape[0]) - 1), max(bounds(y.shape[0])[0] - 1, 0))
        key = m.choice(start, slice(start, None), slice(None, None, 2), (..., 0), m.places((3,), y.shape[0]))
        y[key] = value if isinstance(value, int) else y[key] + 1
    return y


def differentiated(m, x):
    """Return gradients of a loss, sometimes of a function of gradients."""
    x = (
        x.abs()
        if x.dtype.is_complex
        else x
        if x.dtype.is_float
        else m.random.choice([one for one in m.values if one.dtype.is_float])
    )
    loss = m.choice(
        lambda: (x * x).sum(), lambda: x.sum(), lambda: x.mean(), lambda: x.max(), lambda: (x.sin() * x).sum()
    )()
    near = {id(one): one for one in (*m.weights[-6:], *m.values[-6:]) if one.dtype.is_inexact}
    found = []
    for one in m.random.sample(list(near.values()), min(len(near), 4)):
        try:
            found += gradient(loss, [one])
        except REFUSED:
            continue
    if found and m.random.random() < 0.4:
        again = sum(((one * one).real.sum().cast("float32") for one in found), Tensor.zeros())
        for one in m.random.sample(list(near.values()), min(len(near), 3)):
            try:
                found += gradient(again, [one])
            except REFUSED:
                continue
    return found


def _trained(m, x):
    """Take steps of an optimiser."""
    rows, wide = m.choice(1, 4, 9), m.choice(1, 3, 8)
    kind = m.choice("float32", "float32", "float16")
    w = Tensor(np.zeros((wide, m.choice(1, 5))), dtype=kind, requires_grad=True)
    b = Tensor(np.zeros(w.shape[-1:]), dtype=kind, requires_grad=True)
    optimiser = m.choice(lambda: SGD([w, b], 0.1), lambda: SGD([w, b], 0.1, momentum=0.9), lambda: Adam([w, b], 0.1), lambda: AdamW([w, b], 0.1),
                         lambda: RMSprop([w, b], 0.1), lambda: LAMB([w, b], 0.1), lambda: Muon([w], 0.1))()  # fmt: skip

    def loss():
        y = m.leaf((rows, wide), kind) @ w + b
        classes = m.places((rows,), y.shape[-1])
        return m.choice(lambda: (y * y).mean(), lambda: y.cross_entropy(classes), lambda: y.tanh().sum())()

    with deferred():
        for _ in range(m.number(1, 2)):
            loss().backward()
            optimiser.step()
            optimiser.zero_grad()
    return [w, b, *optimiser.memory()]


def _random(m, x):
    shape = [m.side() for _ in range(m.number(0, 3))]
    return m.choice(
        lambda: Tensor.randint(*shape, high=9), lambda: Tensor.randperm(m.choice(1, 5, 33)), lambda: x.cast("float32").dropout(0.3),
        lambda: Tensor.rand(*shape).bernoulli(), lambda: Tensor.xavier_uniform(5, 7), lambda: Tensor.kaiming_normal(5, 1),
    )()  # fmt: skip


def _clipped(m, x):
    return m.choice(
        lambda: x.clip(0, 1),
        lambda: x.clip(m.like(x), None),
        lambda: x.masked_fill(m.like(x, "bool"), 0),
        lambda: x.lerp(m.like(x), 0.5),
    )()


ELEMENTS = {
    **_operators(),
    **_binary("add", "sub", "mul", "div", "maximum", "minimum", "pow", "logaddexp", "atan2", "copysign", "fmod", "mod", "floordiv"),
    **_floats("exp", "log", "sqrt", "rsqrt", "sin", "cos", "tan", "tanh", "sigmoid", "gelu", "silu", "erf", "relu", "softplus", "mish",
              "log1p", "expm1", "asin", "acos", "atan", "sinh", "cosh", "floor", "ceil", "round", "trunc", "selu", "elu", "celu",
              "hardswish", "reciprocal", "cbrt", "isnan", "isinf", "logsigmoid", "quick_gelu", "softsign", "relu6", "leaky_relu"),
    **_method("neg", "abs", "sign", "square", "logical_not", "signbit", "detach", "contiguous"),
    "cast": lambda m, x: x.cast(m.random.choice(KINDS)),
    "cast again": lambda m, x: x.cast(m.random.choice(KINDS)),
    "bitcast": lambda m, x: x.bitcast(m.random.choice(KINDS)),
    "heavy": _heavy, "where": _where, "where again": _where, "clip": _clipped, "random": _random,
}  # fmt: skip
MOVES = {
    "reshape": _reshaped, "slice": _sliced, "pad": _padded, "join": _joined, "repeat": _repeated, "fancy": _fancy,
    "permute": lambda m, x: x.permute(*m.random.sample(range(x.ndim), x.ndim)),
    "transpose": lambda m, x: x.mT, "flip": lambda m, x: x.flip(m.axis(x)), "squeeze": lambda m, x: x.squeeze(),
    "roll": lambda m, x: x.roll(m.number(0, 3), m.axis(x)),
    "unfold": lambda m, x: x.unfold(m.axis(x), m.choice(1, 2, 3), m.choice(1, 2)),
    "tile": lambda m, x: x.tile(*[m.choice(1, 2) for _ in x.shape]),
    "interleave": lambda m, x: x.repeat_interleave(2, m.axis(x)),
    "diagonal": lambda m, x: x.diagonal(), "tril": lambda m, x: x.tril(m.choice(-1, 0, 1)), "triu": lambda m, x: x.triu(),
    "diff": lambda m, x: x.diff(), "stack": lambda m, x: x.stack(x * 2, axis=m.choice(0, -1)),
    "chunk": lambda m, x: x.chunk(2, m.axis(x)), "split": lambda m, x: x.split(m.choice(1, 2), m.axis(x)),
    "movedim": lambda m, x: x.movedim(m.axis(x), m.axis(x)),
}  # fmt: skip
REDUCTIONS = {
    **_reductions("sum", "sum", "max", "min", "amax", "amin", "mean", "prod", "any", "all", "var", "std", "logsumexp",
                  "argmax", "argmin", "count_nonzero", "median"),
    "norm": _normed, "norm again": _normed, "image norm": _normed_image, "loss": _lost, "outer": _outer, "outer again": _outer,
}  # fmt: skip
PRODUCTS = {
    "matmul": _multiplied, "matmul again": _multiplied, "batched": _batched, "self": _self, "einsum": _einsum, "conv": _convolved,
    "conv transpose": _spread, "pool": _pooled, "interpolate": _resampled, "attention": _attended, "attention again": _attended,
    "attention by hand": _attended_by_hand, "rotary": _rotated, "tensordot": lambda m, x: x.tensordot(m.like(x), 1),
    "outer": lambda m, x: x.flatten()[:40].outer(m.leaf((m.choice(1, 5, 17),), x.dtype.name)),
}  # fmt: skip
LINES = {
    **_with_axis("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp", "sort", "argsort"),
    "topk": lambda m, x: x.topk(m.choice(1, 2), m.axis(x)), "gather": _gathered, "gather again": _gathered, "scatter": _scattered,
    "one hot": lambda m, x: m.places(x.shape[:1], 5).one_hot(5),
}  # fmt: skip
CHANGES = {"assign": _assigned, "gradient": differentiated, "gradient again": differentiated, "train": _trained}
# steps of programs with complex numbers, which take the place of others there
COMPLEX = {
    **_method("conj", "abs", "angle", "exp", "log", "sqrt", "sin", "tanh", "acos", "view_as_real", "cumprod", "prod", "cumsum",
              "sgn", "square"),
    "real": lambda m, x: x.real,
    "imag": lambda m, x: x.imag,
    "complex": lambda m, x: x.complex(m.like(x)),
    "view_as_complex": lambda m, x: x.view_as_complex(),
    "turn": lambda m, x: x * m.choice(1j, 2 - 1j, -1j),
    "real part put": lambda m, x: _with_real_part(m, x),
    "product": lambda m, x: m.leaf((m.side(), x.shape[-1]), m.choice("complex64", "complex64", "float32")) @ x.mT,
    "fft": lambda m, x: m.choice(fft.fft, fft.ifft, fft.rfft, fft.irfft, fft.fft2)(x),
}  # fmt: skip


def _with_real_part(m, x):
    x = x.clone()
    x.real[: m.choice(1, 2)] = m.choice(0.5, x.imag[:1])
    return x


GROUPS = (ELEMENTS, ELEMENTS, ELEMENTS, MOVES, MOVES, REDUCTIONS, PRODUCTS, PRODUCTS, LINES, CHANGES)
