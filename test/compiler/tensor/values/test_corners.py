"""Values and gradients at corners, beside PyTorch's: edges, ties, zeros, infinities, NaN. `corner_cases` lists them."""

import json
import re
import warnings
from math import inf, nan
from pathlib import Path

import numpy as np
import pytest
from corner_cases import CASES

from ringup.compiler.tensor import Tensor, gradient

ROOT = Path(__file__).resolve().parents[4]
# PyTorch 2.14, by test/support/torch_corners.py
WANTED = json.loads((ROOT / "test/data/torch/corners.txt").read_text())
TOLERANCE = {"float32": {"rtol": 2e-5, "atol": 2e-6}, "float64": {"rtol": 1e-7, "atol": 1e-12}}
# Where PyTorch has NaN and this language the limit, C's result or NumPy's: docs/tensors.md tells why.
LIMITS = ("mish", "gelu", "copysign", "logcumsumexp", "bce_with_logits_loss", "kl_div")
# Arguments at which the two differ: the slope of clip at its bounds, NumPy's sign of NaN, C's powers of -0 and minus
# infinity, and the infinite slope of acosh outside of where it is defined.
APART = {
    "clip, -1 to 2": (-1.0, 2.0),
    "clip from 0": (0.0, -0.0),
    "clip to 1": (1.0,),
    "sign": (nan,),
    "x ** 0.5": (-0.0, -inf),
    "x ** -0.5": (-0.0, -inf),
    "acosh": (-1.0,),
}


def computed(case, dtype):
    """Return the value of a case and the gradients by its arguments, each flattened."""
    operands = [Tensor(one, dtype) for one in case.arguments]
    made = case.ours(*operands)
    count = int(np.prod(made.shape))
    weights = np.arange(1, count + 1) if case.weighted else np.ones(count)
    seed = Tensor(weights.astype(dtype)).reshape(made.shape)
    return [made, *gradient(made, operands, seed)]


def is_one_of(numbers, of):
    """Return which numbers are among some; 0 and -0 differ."""
    return np.array([any(repr(one) == repr(other) for other in of) for one in numbers])


@pytest.mark.parametrize("name", CASES)
def test_functions_and_their_gradients_at_corners_are_pytorchs(name):
    case = CASES[name]
    for dtype, tolerance in TOLERANCE.items():
        made = computed(case, dtype)
        made[0].realize(*made[1:])
        for place, (one, wanted) in enumerate(zip(made, WANTED[f"{name}, {dtype}"], strict=True)):
            found, expected = one.numpy().reshape(-1), np.array(wanted)
            same = np.isclose(found, expected, equal_nan=True, **tolerance)
            if name in LIMITS:
                same |= np.isnan(expected) & ~np.isnan(found)
            if name in APART:
                at = np.array(case.arguments[0])
                same |= np.isin(at, APART[name]) | (np.isnan(at) & np.isnan(APART[name]).any())
            assert same.all(), (dtype, place, found[~same], expected[~same])


@pytest.mark.parametrize("name", [*LIMITS, *APART])
def test_functions_named_as_different_do_differ(name):
    made = computed(CASES[name], "float32")
    wanted = WANTED[f"{name}, float32"]
    pairs = [(one.numpy().reshape(-1), np.array(other)) for one, other in zip(made, wanted, strict=True)]
    assert not all(np.isclose(a, b, equal_nan=True, rtol=1e-3, atol=1e-3).all() for a, b in pairs)


def test_the_table_of_corners_names_every_case():
    page = (ROOT / "docs/tensors.md").read_text(encoding="utf-8")
    table = page.split("## Gradients at corners")[1].split("\n## ")[0]
    rows = [row.split("(")[0] for row in re.findall(r"^\| (.*?) \|", table, re.M)]
    named = {one for row in rows for one in re.findall(r"`([^`]+)`", row)}
    assert not named - set(CASES)
    # what is smooth everywhere has no row
    smooth = {"exp2", "exp", "expm1", "sin", "cos", "tan", "atan", "sinh", "cosh", "tanh", "asinh", "sigmoid", "square",
              "neg", "logsigmoid", "silu", "softplus", "softplus, beta 2", "tanhshrink", "gelu, tanh", "x * y", "lerp",
              "mse_loss", "2 ** x", "erf", "erfc"}  # fmt: skip
    assert set(CASES) - named == smooth


def test_a_slope_at_0_is_finite_in_half_precision_too():
    for dtype in ("float16", "bfloat16"):
        x = Tensor([0.0, 0.0], dtype)
        for made in (x.norm(), x.std(), x.abs().sum(), x.sign().sum()):
            assert gradient(made, [x])[0].float().tolist() == [0.0, 0.0]


def test_the_gradient_of_a_pool_goes_to_one_element_of_each_window_whatever_the_window():
    # one more than there are windows would be a tie that is shared
    x = Tensor(np.zeros((1, 1, 7, 6), np.float32))
    for how in ({"kernel": 2}, {"kernel": (3, 2), "stride": 1}, {"kernel": 3, "padding": 1, "ceil": True}):
        pooled = x.max_pool2d(**how)
        (found,) = gradient(pooled.sum(), [x])
        assert found.numpy().sum() == pooled.numel()
        assert set(np.unique(found.numpy() % 1)) == {0.0}


def test_infinite_edges_of_a_pool_take_no_gradient():
    x = Tensor(np.full((1, 1, 2, 2), -inf, np.float32))
    (found,) = gradient(x.max_pool2d(2, padding=1).sum(), [x])
    assert found.tolist() == [[[[1.0, 1.0], [1.0, 1.0]]]]


def test_a_function_does_not_change_the_gradient_of_another_of_the_same_value():
    x = Tensor([-1.0, 1.0])
    clipped, held = x.clip(-1.0, 1.0), x.hardtanh()
    assert gradient(clipped.sum(), [x])[0].tolist() == [1.0, 1.0]
    assert gradient(held.sum(), [x])[0].tolist() == [0.0, 0.0]
    assert gradient(x.maximum(-1.0).sum(), [x])[0].tolist() == [0.5, 1.0]


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield
