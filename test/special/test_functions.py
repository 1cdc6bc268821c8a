"""Special functions and their slopes beside SciPy."""

import numpy as np
import numpy_graph
import pytest
import scipy.special as judge

from ringup import special
from ringup.autograd import grad
from ringup.compiler.tensor import Tensor, device

LINE = np.linspace(-12, 12, 97)
POSITIVE = np.geomspace(1e-3, 60, 50)
SHARES = np.concatenate([np.geomspace(1e-37, 0.4, 20), np.linspace(0.4, 1, 13)[:-1]])
ENDS = np.array([-np.inf, -0.0, 0.0, np.inf, np.nan])
# of f64, and of f32 where the judge is asked of the same f32 numbers
CASES = {
    "entr": (LINE, ENDS),
    "erfcx": (np.linspace(-4, 40, 89), np.array([-0.0, np.inf, np.nan, 1e10])),
    "ndtr": (LINE, ENDS),
    "log_ndtr": (np.linspace(-30, 8, 77), np.array([-0.0, np.inf, np.nan, -1e4])),
    "ndtri": (SHARES, np.array([0.0, 1.0, np.nan, 2.0])),
    "i0e": (np.linspace(-60, 60, 97), ENDS),
    "i1": (np.linspace(-60, 60, 97), ENDS[1:3]),
    "i1e": (np.linspace(-60, 60, 97), ENDS),
    "psi": (POSITIVE, np.array([0.0, np.nan])),
    "expit": (LINE, ENDS),
    "gammaln": (POSITIVE, ENDS[1:]),
}


@pytest.fixture(autouse=True)
def evaluator():
    with device(numpy_graph.NumpyEvaluator()):
        yield


def compare(made, wanted, kind):
    # an f32 result may be two units in the last place off
    np.testing.assert_allclose(
        made.numpy(), wanted, rtol=1e-12 if kind == "float64" else 3e-7, atol=1e-14 if kind == "float64" else 3e-7
    )


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("name", CASES)
def test_values(name, kind):
    for numbers in CASES[name]:
        numbers = numbers.astype(kind)
        made = getattr(special, name)(Tensor(numbers))
        assert made.dtype == kind
        with np.errstate(all="ignore"):
            compare(made, getattr(judge, name)(numbers.astype(np.float64)).astype(kind), kind)


@pytest.mark.parametrize("name", [name for name in CASES if name not in ("psi", "expit", "gammaln")])
def test_slopes_are_those_of_small_steps(name):
    numbers = CASES[name][0][3:-3:4]
    numbers = numbers[np.abs(numbers) > 1e-6]
    if name == "entr":
        numbers = numbers[numbers > 0]
    x = Tensor(numbers)
    (slopes,) = grad(getattr(special, name)(x).sum(), x)
    step = 1e-6 * np.maximum(np.abs(numbers), 1e-3)
    function = getattr(judge, name)
    np.testing.assert_allclose(
        slopes.numpy(), (function(numbers + step) - function(numbers - step)) / (2 * step), rtol=2e-5, atol=1e-9
    )


def test_functions_of_two_numbers():
    s, q = np.meshgrid(np.array([1.1, 1.5, 2, 3, 7.5, 20]), np.array([0.1, 0.5, 1, 2.5, 10, 100]))
    compare(special.zeta(Tensor(s), Tensor(q)), judge.zeta(s, q), "float64")
    # at the poles, as SciPy and PyTorch 2.14
    assert special.zeta([1.0, 2.0, 3.0, 2.0], [2.0, 0.0, -1.0, -7.0]).tolist() == [np.inf] * 4
    assert np.isnan(special.zeta(0.5, [1.0]).item())
    x, y = np.array([0.0, 2.0, 0.0, -1.0, 0.0]), np.array([-1.0, 0.5, np.nan, 1e-9, -3.0])
    compare(special.xlog1py(Tensor(x), Tensor(y)), judge.xlog1py(x, y), "float64")
    for n in range(4):
        np.testing.assert_allclose(
            special.polygamma(n, Tensor(POSITIVE)).numpy(), judge.polygamma(n, POSITIVE), rtol=1e-12
        )
    at = Tensor(POSITIVE)
    (slopes,) = grad(special.polygamma(2, at).sum(), at)
    np.testing.assert_allclose(slopes.numpy(), judge.polygamma(3, POSITIVE), rtol=1e-12)
    with pytest.raises(ValueError, match="derivative -1 of digamma"):
        special.polygamma(-1, at)


def test_numbers_and_narrow_types_are_taken():
    assert special.ndtr(0).item() == 0.5
    assert special.entr([1, 0]).dtype == "float32"
    assert special.i0e(Tensor([1.0]).cast("bfloat16")).dtype == "bfloat16"
