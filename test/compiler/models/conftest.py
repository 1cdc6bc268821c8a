"""Fixtures of tests with whole models: a virtual card that evaluates tensors, and the references by their names."""

from pathlib import Path

import decoder_numpy
import pytest

import ringup
from ringup.compiler.runtime.device import Device
from ringup.compiler.tensor import device
from ringup.tools.embedder import files as sentence_files
from ringup.tools.embedder.in_numpy import MiniLm

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def card():
    """A virtual card in strict mode, which stops at everything that metal would punish, and at more."""
    with ringup.open("virtual:navi31") as opened:
        yield opened


@pytest.fixture(scope="module")
def evaluator(card):
    """The card's evaluator of tensors. It lives for a module, so kernels are compiled once."""
    return Device(card)


@pytest.fixture(scope="module")
def on_evaluator(evaluator):
    """Let fixtures of a module compute on the card."""
    with device(evaluator):
        yield


@pytest.fixture(autouse=True)
def on_card(evaluator, card):
    """Compute tensors on the card, and check that the card recorded no mistake."""
    with device(evaluator):
        yield evaluator
    assert card.device.violations == []


@pytest.fixture(scope="session")
def model_files():
    """The published model's files. If they are missing, the test fails; it never skips."""
    return sentence_files.open_files()


@pytest.fixture(scope="session")
def minilm(model_files):
    """The NumPy reference of the sentence model."""
    return MiniLm(model_files)


@pytest.fixture(scope="session")
def decoder():
    """The module of the small decoder's reference."""
    return decoder_numpy
