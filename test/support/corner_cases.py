"""Functions at their corners: at edges, ties, zeros and infinities. Each case holds its arguments, and the function as
this language spells it and as PyTorch does. `torch_corners` writes what PyTorch computes; the tests compare.
"""

from dataclasses import dataclass
from math import inf, nan

# a line of numbers at which functions have edges, infinities, or lose digits
LINE = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 1.5, -1.5, 2.0, -2.0, 3.0, -3.0, 4.0, -4.0, 6.0, -6.0, 8.5, -8.5, 19.0, -19.0,
        25.0, -25.0, 90.0, -90.0, 1e-12, -1e-12, 1e-30, -1e-30, 1e30, -1e30, inf, -inf, nan]  # fmt: skip
EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, -2.0, 3.0, inf, -inf, nan]


@dataclass(frozen=True)
class Case:
    """Arguments (nested lists; gradients are asked by each), and the function in both languages; `torch` gets PyTorch
    itself in front. Each element of the result has a weight in the loss: 1, 2, 3, … where `weighted`.
    """

    arguments: tuple
    ours: object
    torch: object
    weighted: bool = False
    line: bool = True


def method(name, *arguments, **options):
    return lambda x, *others: getattr(x, name)(*others, *arguments, **options)


def function(name, *arguments, **options):
    return lambda torch, *operands: getattr(torch, name)(*operands, *arguments, **options)


def module(name, *arguments, **options):
    return lambda torch, *operands: getattr(torch.nn.functional, name)(*operands, *arguments, **options)


def unary(name, torch_name=None, **options):
    return Case((LINE,), method(name, **options), function(torch_name or name, **options))


def activation(name, torch_name=None, ours=None, theirs=None):
    return Case((LINE,), method(name, **(ours or {})), module(torch_name or name, **(theirs or {})))


def binary(ours, theirs):
    pairs = [(a, b) for a in EDGES for b in EDGES]
    return Case(([a for a, _ in pairs], [b for _, b in pairs]), ours, theirs)


def rows(numbers, ours, theirs):
    return Case((numbers,), ours, theirs, weighted=True, line=False)


TIES = [[1.0, 3.0, 3.0, 2.0, 3.0], [0.0, -0.0, 0.0, -1.0, -1.0], [5.0, 5.0, 5.0, 5.0, 5.0], [2.0, nan, 1.0, nan, 2.0],
        [inf, -inf, inf, 0.0, -inf]]  # fmt: skip
ZEROS = [[1.0, 2.0, 3.0, 4.0], [0.0, 2.0, 3.0, 4.0], [1.0, 0.0, 3.0, 0.0], [0.0, 0.0, 0.0, 0.0], [-1.0, 2.0, -0.0, 5.0]]
EQUALS = [[2.0, 2.0, 2.0], [0.0, 0.0, 0.0], [1.0, 1.0, 4.0], [-3.0, -3.0, -3.0]]
LOGS = [[0.0, 1.0, 2.0], [-inf, 0.0, 1.0], [-inf, -inf, -inf], [inf, 0.0, 1.0], [nan, 0.0, 1.0]]
WINDOWS = [[[[1.0, 1.0, 2.0, 2.0], [1.0, 1.0, 2.0, 1.0], [0.0, 0.0, 3.0, 4.0], [-0.0, 0.0, 4.0, 4.0]],
            [[5.0, 5.0, 5.0, 5.0], [5.0, 5.0, 5.0, 5.0], [-inf, -inf, nan, 1.0], [-inf, -inf, 1.0, nan]]]]  # fmt: skip

UNARY = {name: unary(name) for name in (
    "abs", "sign", "sqrt", "rsqrt", "reciprocal", "exp2", "log2", "exp", "expm1", "log", "log10", "log1p", "sin", "cos",
    "tan", "atan", "asin", "acos", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "sigmoid", "square",
    "neg",
)}  # fmt: skip
ACTIVATIONS = {name: activation(name) for name in (
    "relu", "relu6", "leaky_relu", "elu", "celu", "selu", "logsigmoid", "hardsigmoid", "hardtanh", "silu", "hardswish",
    "softplus", "softsign", "mish", "gelu", "tanhshrink", "hardshrink", "softshrink",
)}  # fmt: skip
PLACES = [[0, 0, 1, 1, 2, 3, 3]]
POWERS = (-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0)
ORDERS = (-inf, -1.0, 0.0, 0.5, 1.0, 2.0, 3.0, inf)

CASES = {
    **UNARY,
    **ACTIVATIONS,
    "leaky_relu, a slope of -1": activation("leaky_relu", ours={"slope": -1.0}, theirs={"negative_slope": -1.0}),
    "elu, alpha 2": activation("elu", ours={"alpha": 2.0}, theirs={"alpha": 2.0}),
    "celu, alpha 2": activation("celu", ours={"alpha": 2.0}, theirs={"alpha": 2.0}),
    "hardtanh, -2 to 3": activation(
        "hardtanh", ours={"low": -2.0, "high": 3.0}, theirs={"min_val": -2.0, "max_val": 3.0}
    ),
    "softplus, beta 2": activation("softplus", ours={"beta": 2.0}, theirs={"beta": 2.0}),
    "gelu, tanh": activation("gelu", ours={"approximate": "tanh"}, theirs={"approximate": "tanh"}),
    "hardshrink at 1": activation("hardshrink", ours={"width": 1.0}, theirs={"lambd": 1.0}),
    "softshrink at 1": activation("softshrink", ours={"width": 1.0}, theirs={"lambd": 1.0}),
    "softshrink at 0": activation("softshrink", ours={"width": 0.0}, theirs={"lambd": 0.0}),
    "clip, -1 to 2": Case((LINE,), lambda x: x.clip(-1.0, 2.0), lambda torch, x: torch.clip(x, -1.0, 2.0)),
    "clip from 0": Case((LINE,), lambda x: x.clip(0.0), lambda torch, x: torch.clip(x, min=0.0)),
    "clip to 1": Case((LINE,), lambda x: x.clip(None, 1.0), lambda torch, x: torch.clip(x, max=1.0)),
    "clip, 2 to -1": Case((LINE,), lambda x: x.clip(2.0, -1.0), lambda torch, x: torch.clip(x, 2.0, -1.0)),
    "clip by a tensor": binary(lambda x, y: x.clip(y), lambda torch, x, y: torch.clip(x, min=y)),
    "clip to a tensor": binary(lambda x, y: x.clip(None, y), lambda torch, x, y: torch.clip(x, max=y)),
    "clip between tensors": binary(lambda x, y: x.clip(y, -y), lambda torch, x, y: torch.clip(x, min=y, max=-y)),
    **{
        f"x ** {power:g}": Case((LINE,), lambda x, power=power: x**power, lambda torch, x, power=power: x**power)
        for power in POWERS
    },
    "0 ** x": Case((LINE,), lambda x: 0.0**x, lambda torch, x: 0.0**x),
    "2 ** x": Case((LINE,), lambda x: 2.0**x, lambda torch, x: 2.0**x),
    "x ** y": binary(lambda x, y: x**y, lambda torch, x, y: x**y),
    "x / y": binary(lambda x, y: x / y, lambda torch, x, y: x / y),
    "x * y": binary(lambda x, y: x * y, lambda torch, x, y: x * y),
    "x // y": binary(lambda x, y: x // y, lambda torch, x, y: torch.div(x, y, rounding_mode="floor")),
    "divided toward 0": binary(
        lambda x, y: x.div(y, rounding_mode="trunc"), lambda torch, x, y: torch.div(x, y, rounding_mode="trunc")
    ),
    "x % y": binary(lambda x, y: x % y, lambda torch, x, y: torch.remainder(x, y)),
    "fmod": binary(method("fmod"), function("fmod")),
    "atan2": binary(method("atan2"), function("atan2")),
    "maximum": binary(method("maximum"), function("maximum")),
    "minimum": binary(method("minimum"), function("minimum")),
    "logaddexp": binary(method("logaddexp"), function("logaddexp")),
    "copysign": binary(method("copysign"), function("copysign")),
    "lerp": binary(lambda x, y: x.lerp(y, 0.25), lambda torch, x, y: torch.lerp(x, y, 0.25)),
    "where beside nan": binary(
        lambda x, y: (x > 0).where(x.log(), y), lambda torch, x, y: torch.where(x > 0, x.log(), y)
    ),
    "hypot-like": binary(lambda x, y: (x * x + y * y).sqrt(), lambda torch, x, y: (x * x + y * y).sqrt()),
    # reductions
    "amax": rows(TIES, lambda x: x.amax(1), lambda torch, x: torch.amax(x, 1)),
    "amin": rows(TIES, lambda x: x.amin(1), lambda torch, x: torch.amin(x, 1)),
    "max of all": rows(TIES[:3], lambda x: x.max(), lambda torch, x: torch.max(x)),
    "min of all": rows(TIES[:3], lambda x: x.min(), lambda torch, x: torch.min(x)),
    "max of all, with NaN": rows(TIES, lambda x: x.max(), lambda torch, x: torch.max(x)),
    "median of all": rows(TIES[:3], lambda x: x.median(), lambda torch, x: torch.median(x)),
    "median of all, with NaN": rows(TIES, lambda x: x.median(), lambda torch, x: torch.median(x)),
    "max along an axis": rows(TIES, lambda x: x.max(1).values, lambda torch, x: torch.max(x, 1).values),
    "min along an axis": rows(TIES, lambda x: x.min(1).values, lambda torch, x: torch.min(x, 1).values),
    "cummax": rows(TIES, lambda x: x.cummax(1).values, lambda torch, x: torch.cummax(x, 1).values),
    "cummin": rows(TIES, lambda x: x.cummin(1).values, lambda torch, x: torch.cummin(x, 1).values),
    "sort": rows(TIES, lambda x: x.sort(1)[0], lambda torch, x: torch.sort(x, dim=1, stable=True).values),
    "prod": rows(ZEROS, lambda x: x.prod(1), lambda torch, x: torch.prod(x, 1)),
    "prod of all": rows(ZEROS[1], lambda x: x.prod(), lambda torch, x: torch.prod(x)),
    "cumprod": rows(ZEROS, lambda x: x.cumprod(1), lambda torch, x: torch.cumprod(x, 1)),
    "var": rows(EQUALS, lambda x: x.var(1), lambda torch, x: torch.var(x, 1)),
    "std": rows(EQUALS, lambda x: x.std(1), lambda torch, x: torch.std(x, 1)),
    "std of one": rows([[2.0], [0.0]], lambda x: x.std(1), lambda torch, x: torch.std(x, 1)),
    "std, no correction": rows(
        EQUALS, lambda x: x.std(1, correction=0), lambda torch, x: torch.std(x, 1, correction=0)
    ),
    **{
        f"norm of order {order:g}": rows(
            [*ZEROS, [3.0, -3.0, 1.0, 3.0], [-1.0, 1.0, -1.0, 1.0]],
            lambda x, order=order: x.norm(order, 1),
            lambda torch, x, order=order: torch.linalg.vector_norm(x, order, 1),
        )
        for order in ORDERS
    },
    "logsumexp": rows(LOGS, lambda x: x.logsumexp(1), lambda torch, x: torch.logsumexp(x, 1)),
    "softmax": rows(LOGS, lambda x: x.softmax(1), lambda torch, x: torch.softmax(x, 1)),
    "log_softmax": rows(LOGS, lambda x: x.log_softmax(1), lambda torch, x: torch.log_softmax(x, 1)),
    "logcumsumexp": rows(LOGS, lambda x: x.logcumsumexp(1), lambda torch, x: torch.logcumsumexp(x, 1)),
    "median of an odd count": rows(
        [[3.0, 1.0, 2.0], [1.0, 1.0, 2.0]], lambda x: x.median(1).values, lambda torch, x: torch.median(x, 1).values
    ),
    "scatter_reduce by prod": Case(
        ([[2.0, 0.0, 3.0, 0.0]], [[0.0, 2.0, 0.0, 5.0, 0.0, 4.0, 3.0]]),
        lambda x, y: x.scatter_reduce(1, type(x)(PLACES), y, "prod"),
        lambda torch, x, y: x.scatter_reduce(1, torch.tensor(PLACES), y, "prod"),
        weighted=True,
        line=False,
    ),
    "scatter_reduce by amax": Case(
        ([[2.0, 0.0, 3.0, 0.0]], [[2.0, 2.0, 0.0, -0.0, 3.0, 4.0, 3.0]]),
        lambda x, y: x.scatter_reduce(1, type(x)(PLACES), y, "amax"),
        lambda torch, x, y: x.scatter_reduce(1, torch.tensor(PLACES), y, "amax"),
        weighted=True,
        line=False,
    ),
    "cross_entropy of infinite logits": rows(
        [[0.0, 1.0, 2.0], [-inf, 0.0, 1.0], [0.0, -inf, 1.0], [inf, 0.0, 1.0]],
        lambda x: x.cross_entropy(type(x)([0, 0, 0, 0]), reduction="none"),
        lambda torch, x: torch.nn.functional.cross_entropy(x, torch.tensor([0, 0, 0, 0]), reduction="none"),
    ),
    "var of one": rows([[2.0], [0.0]], lambda x: x.var(1), lambda torch, x: torch.var(x, 1)),
    "cbrt-like": Case((LINE,), lambda x: x.abs() ** (1 / 3), lambda torch, x: x.abs() ** (1 / 3)),
    # pooling
    "max_pool2d": rows(WINDOWS, lambda x: x.max_pool2d(2), lambda torch, x: torch.nn.functional.max_pool2d(x, 2)),
    "max_pool2d, windows that overlap": rows(
        WINDOWS, lambda x: x.max_pool2d(3, 1), lambda torch, x: torch.nn.functional.max_pool2d(x, 3, 1)
    ),
    "max_pool2d with edges": rows(
        WINDOWS,
        lambda x: x.max_pool2d(3, 2, 1, ceil=True),
        lambda torch, x: torch.nn.functional.max_pool2d(x, 3, 2, 1, ceil_mode=True),
    ),
    "max_pool2d, spread": rows(
        WINDOWS,
        lambda x: x.max_pool2d(2, 1, 0, 2),
        lambda torch, x: torch.nn.functional.max_pool2d(x, 2, 1, 0, 2),
    ),
    "max_pool1d": rows(
        [TIES], lambda x: x.max_pool1d((2,), 1), lambda torch, x: torch.nn.functional.max_pool1d(x, 2, 1)
    ),
    "max_pool3d": rows(
        [WINDOWS[0]], lambda x: x.max_pool3d((2, 2, 2)), lambda torch, x: torch.nn.functional.max_pool3d(x, 2)
    ),
    "lp_pool": rows(
        [[[0.0, 0.0, 3.0, 4.0]]],
        lambda x: x.lp_pool(2.0, (2,)),
        lambda torch, x: torch.nn.functional.lp_pool1d(x, 2.0, 2),
    ),
}
LOSS_EDGES = [0.0, 1.0, 0.25, 1e-30, 1.0 - 2.0**-24, 0.5]
PROBABILITIES = [(p, y) for p in LOSS_EDGES for y in (0.0, 1.0, 0.3)]
LOGITS = [(x, y) for x in (0.0, 1.0, -1.0, 100.0, -100.0, inf, -inf, nan) for y in (0.0, 1.0, 0.3)]
APART = [(a, 0.0) for a in (0.0, 1.0, -1.0, 0.5, -0.5, 3.0, inf, -inf, nan)]


def loss(pairs, ours, theirs, **options):
    """Return a case of (input, target) pairs, whose target has a gradient too."""
    return Case(
        ([a for a, _ in pairs], [b for _, b in pairs]),
        lambda x, y: getattr(x, ours)(y, reduction="none", **options),
        lambda torch, x, y: getattr(torch.nn.functional, theirs)(x, y, reduction="none", **options),
    )


def attention(torch, q, k, v):
    mask = torch.tensor([[True, False], [False, False]])
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)


CASES |= {
    "bce_loss": loss(PROBABILITIES, "bce_loss", "binary_cross_entropy"),
    "bce_with_logits_loss": loss(LOGITS, "bce_with_logits_loss", "binary_cross_entropy_with_logits"),
    "kl_div": loss([(a, y) for a in (0.0, -1.0, -inf) for y in (0.0, 1.0, 0.3)], "kl_div", "kl_div"),
    "l1_loss": loss(APART, "l1_loss", "l1_loss"),
    "mse_loss": loss(APART, "mse_loss", "mse_loss"),
    "huber_loss": loss(APART, "huber_loss", "huber_loss"),
    "huber_loss, delta 0.5": loss(APART, "huber_loss", "huber_loss", delta=0.5),
    "layer_norm of constants": rows(
        EQUALS, lambda x: x.layer_norm(), lambda torch, x: torch.nn.functional.layer_norm(x, (3,))
    ),
    "rms_norm of constants": rows(
        EQUALS, lambda x: x.rms_norm(eps=1e-6), lambda torch, x: torch.nn.functional.rms_norm(x, (3,), eps=1e-6)
    ),
    "batch_norm of constants": rows(
        EQUALS,
        lambda x: x.batch_norm(),
        lambda torch, x: torch.nn.functional.batch_norm(x, None, None, training=True),
    ),
    "group_norm of constants": rows(
        [[[2.0, 2.0], [2.0, 2.0]], [[0.0, 1.0], [0.0, 1.0]]],
        lambda x: x.group_norm(2),
        lambda torch, x: torch.nn.functional.group_norm(x, 2),
    ),
    "attention, a row that sees nothing": Case(
        ([[[1.0, 2.0], [3.0, 4.0]]], [[[0.5, 1.0], [-1.0, 2.0]]], [[[1.0, 2.0], [3.0, 5.0]]]),
        lambda q, k, v: q.scaled_dot_product_attention(k, v, q._lift([[True, False], [False, False]])),
        attention,
        weighted=True,
        line=False,
    ),
}
