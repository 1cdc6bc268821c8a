"""The namespace on a virtual card: what the NumPy reference computes, the card computes too."""

import math

import array_api_cases
import numpy as np
import numpy_graph
import pytest

import ringup
import ringup.array_api as xp
from ringup.compiler.tensor import device
from ringup.silicon.shader.amd.interpreter.engine import Interpreter


@pytest.fixture(scope="module")
def card():
    """A card on the reference interpreter, which takes less time than a translation for few waves."""
    with ringup.open("virtual:navi31", transport={"engine": Interpreter()}) as card:
        yield card


def on_card(card, call):
    """Return a call's results on the card and on the reference."""
    with ringup.device(card):
        found = array_api_cases.called(xp, call)
    with device(numpy_graph.NumpyEvaluator()):
        return found, array_api_cases.called(xp, call)


@pytest.mark.parametrize("name", array_api_cases.NAMES)
@pytest.mark.seeds(1)
@pytest.mark.sweep(6)
def test_a_function_on_a_card_gives_the_references_results(card, name, seed):
    call = array_api_cases.draw(name, seed)
    for one, other in zip(*on_card(card, call), strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        last = np.finfo(other.dtype).eps if other.dtype.kind == "f" else 0
        np.testing.assert_allclose(one, other, (call.ulp + 2) * last, call.ulp * last, err_msg=str(call))


def test_masks_sets_and_places_are_read_from_the_card(card):
    with ringup.device(card) as where:
        x = xp.asarray([3.0, -1.0, math.nan, 3.0])
        assert x.device is where is xp.__array_namespace_info__().default_device()
        assert x[x > 0].tolist() == [3.0, 3.0]
        assert [one.tolist() for one in xp.nonzero(x < 0)] == [[1]]
        assert xp.unique_counts(x[xp.isfinite(x)]).counts.tolist() == [1, 2]
        x[x > 2] = 0.0
        assert xp.sort(x).tolist()[:3] == [-1.0, 0.0, 0.0]
