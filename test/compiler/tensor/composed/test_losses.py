"""Losses weigh classes and elements as PyTorch 2.14 has them, and the class axis is the last one."""

import numpy as np
import pytest

from ringup import nn
from ringup.compiler.tensor import Tensor, checked, gradient

SCORES = Tensor([[0.5, -1.0, 2.0], [1.5, 0.0, -0.5], [0.25, 0.75, -2.0], [3.0, 1.0, 1.0]])
CLASSES, WEIGHT = Tensor([2, 0, 1, 0]), Tensor([0.5, 2.0, 1.0])
LOGS = SCORES.log_softmax(-1)


def near(found, wanted):
    np.testing.assert_allclose(found.numpy(), wanted, rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("options", "wanted"),
    [  # PyTorch 2.14
        ({}, (0.3250775, 0.3250775)),
        ({"weight": WEIGHT}, (0.3851145, 0.3851145)),
        ({"ignore_index": 0}, (0.3772047, 0.3772047)),
        ({"weight": WEIGHT, "ignore_index": 0}, (0.4225025, 0.4225025)),
        ({"weight": WEIGHT, "label_smoothing": 0.2}, (0.7297764, 0.3851145)),
        ({"weight": WEIGHT, "ignore_index": 2, "label_smoothing": 0.2, "reduction": "sum"}, (2.2197504, 1.2991467)),
        ({"weight": WEIGHT, "ignore_index": 1, "reduction": "none"}, ([0.2413113, 0.1531779, 0.0, 0.1197724],) * 2),
    ],
)
def test_classes_have_weights_and_may_be_ignored(options, wanted):
    near(SCORES.cross_entropy(CLASSES, **options), wanted[0])
    near(nn.functional.cross_entropy(SCORES, CLASSES, **options), wanted[0])
    options = {word: value for word, value in options.items() if word != "label_smoothing"}
    near(LOGS.nll_loss(CLASSES, **options), wanted[1])
    near(nn.functional.nll_loss(LOGS, CLASSES, **options), wanted[1])


def test_weights_of_probabilities():
    wanted = SCORES.softmax(1).flip(1)
    # PyTorch 2.14
    near(SCORES.cross_entropy(wanted, WEIGHT, label_smoothing=0.1), 1.8661828)
    near(SCORES.cross_entropy(wanted, WEIGHT, reduction="none"), [0.9798362, 2.3064194, 1.8185115, 2.2523012])


def test_the_classes_of_a_method_are_along_the_last_axis_those_of_a_function_along_axis_1():
    planes, classes = SCORES.reshape(2, 3, 2), Tensor([[0, 2], [1, 1]])
    # PyTorch 2.14
    near(nn.functional.cross_entropy(planes, classes, WEIGHT, ignore_index=2), 1.8166307)
    near(planes.nll_loss(classes, WEIGHT, dim=1), -0.3181818)
    near(planes.transpose(1, 2).nll_loss(classes, WEIGHT), -0.3181818)
    with pytest.raises(ValueError, match=r"nll_loss of \[2, 3, 2\] along axis 2 with classes \[2, 2\]: that axis less"):
        planes.nll_loss(classes)
    with pytest.raises(ValueError, match=r"weights \[2\] of classes for \[4, 3\]: one for each of axis 1"):
        SCORES.nll_loss(CLASSES, Tensor([1.0, 2.0]))


def test_an_ignored_class_need_not_be_one():
    outside = Tensor([2, -100, 1, 0])
    with checked():
        # PyTorch 2.14
        near(nn.functional.nll_loss(LOGS, outside), float(LOGS[[0, 2, 3]].nll_loss(Tensor([2, 1, 0]))))
        with pytest.raises(IndexError, match="cross_entropy: -100"):
            SCORES.cross_entropy(outside).numpy()


OUTCOMES = Tensor([[0, 1, 0.5], [1, 0, 1], [0.25, 1, 0], [0, 0, 1]])


def test_weights_of_two_outcomes():
    rows = Tensor([[2.0], [1.0], [0.5], [3.0]])
    # PyTorch 2.14
    near(SCORES.bce_with_logits_loss(OUTCOMES, WEIGHT, pos_weight=rows), 1.2784735)
    near(SCORES.bce_with_logits_loss(OUTCOMES, pos_weight=WEIGHT, reduction="sum"), 12.7626877)
    near(SCORES.sigmoid().bce_loss(OUTCOMES, weight=WEIGHT), 1.0373365)


def test_differences_are_rounded_off_below_beta():
    # PyTorch 2.14
    near(SCORES.smooth_l1_loss(OUTCOMES, beta=0.5), 0.8385417)
    near(SCORES.smooth_l1_loss(OUTCOMES, beta=0, reduction="sum"), 12.25)


def test_gradients_of_weighed_losses():
    x = SCORES.clone()
    [found] = gradient(x.cross_entropy(CLASSES, WEIGHT, ignore_index=0, label_smoothing=0.2), [x])
    # PyTorch 2.14
    near(found, [[0.0492667, -0.0309723, -0.0182944], [0] * 3, [0.2107787, -0.2119434, 0.0011648], [0] * 3])
    [found] = gradient(x.bce_with_logits_loss(OUTCOMES, WEIGHT, pos_weight=Tensor([[2.0], [1.0], [0.5], [3.0]])), [x])
    near(found[0], [0.0259358, -0.2436862, 0.0267663])
    near(found[3], [0.0396906, 0.1218431, -0.0672354])


def test_softmin_glu_and_threshold():
    # PyTorch 2.14
    near(SCORES.softmin(dim=1)[0], [0.1752904, 0.785597, 0.0391126])
    near(SCORES[:, :2].glu(1).flatten(), [0.1344707, 0.75, 0.1697947, 2.1931758])
    assert SCORES.threshold(0.5, 20.0).tolist() == [[20, 20, 2], [1.5, 20, 20], [20, 0.75, 20], [3, 1, 1]]
    assert np.isnan(Tensor([np.nan]).threshold(0.5, 20.0).item())
    with pytest.raises(ValueError, match=r"glu of \[4, 3\] along axis 1: two equal halves"):
        SCORES.glu(1)


def test_smoothing_over_no_classes_costs_nothing():
    assert Tensor.zeros(0, 0).cross_entropy(Tensor.zeros(0, dtype="int32"), smoothing=0.1, reduction="sum").item() == 0
