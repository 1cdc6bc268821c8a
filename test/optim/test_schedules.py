"""Schedules set PyTorch's rates. The values in test/data/torch are PyTorch 2.14's (test/support/torch_values.py)."""

import json
from pathlib import Path

import numpy as np
import optim_cases
import pytest

from ringup import Tensor, optim

EXPECTED = json.loads((Path(__file__).resolve().parents[1] / "data/torch/schedules.txt").read_text())
MADE = {
    **{case: optim_cases.scheduled(optim, *one) for case, one in optim_cases.SCHEDULES.items()},
    **{case: optim_cases.scheduled(optim, "ReduceLROnPlateau", one) for case, one in optim_cases.PLATEAUS.items()},
    "in turn": optim_cases.in_turn(optim),
    "by parts of epochs": optim_cases.by_epochs(optim),
    "together": optim_cases.together(optim),
}


def another(other):
    """Return another optimiser of the same parameters."""
    return optim.SGD(other.parameters)


def parameter(array, dtype):
    return Tensor(array, dtype, requires_grad=True)


@pytest.mark.parametrize("case", MADE)
def test_rates_are_pytorchs(case):
    found = optim_cases.rates(parameter, optim, MADE[case])
    np.testing.assert_allclose(found, EXPECTED[case], rtol=1e-11)


@pytest.mark.parametrize("case", [case for case in MADE if case not in ("by parts of epochs", "together")])
def test_a_schedule_goes_on_from_its_state(case):
    rates = optim_cases.rates(parameter, optim, MADE[case])

    def stopped(turns):
        optimiser = optim.SGD([{"params": [w]}, {"params": [b], "lr": 0.05}], 0.4, 0.9)
        return optimiser, MADE[case](optimiser), turns

    def step(schedule, turn):
        schedule.step(*optim_cases.LOSSES[turn : turn + 1] if hasattr(schedule, "mode") else [])

    w, b = parameter([1.0], "float32"), parameter([1.0], "float32")
    first, schedule, half = stopped(11)
    for turn in range(half):
        step(schedule, turn)
    second, following, _ = stopped(0)
    following.load_state_dict(schedule.state_dict())
    second.load_state_dict(first.state_dict())
    for turn in range(half, optim_cases.TURNS):
        found = [value for group in second.param_groups for value in (group["lr"], group["momentum"])]
        np.testing.assert_allclose(found, rates[turn], rtol=1e-12)
        step(following, turn)


def test_a_schedule_says_its_last_rates():
    optimiser = optim.SGD([parameter([1.0], "float32")], lr=0.5)
    schedule = optim.lr_scheduler.StepLR(optimiser, 1, gamma=0.5)
    assert schedule.get_last_lr() == [0.5]
    optimiser.step()
    schedule.step()
    assert schedule.get_last_lr() == [0.25]


def test_a_plateau_takes_a_tensor():
    optimiser = optim.SGD([parameter([1.0], "float32")], lr=0.5)
    schedule = optim.lr_scheduler.ReduceLROnPlateau(optimiser, patience=0)
    for _ in range(2):
        schedule.step(Tensor([3.0]).sum())
    assert optimiser.param_groups[0]["lr"] == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda o, s: s.SequentialLR(o, [s.StepLR(o, 1)], [3]), "1 schedules need 0 milestones"),
        (lambda o, s: s.OneCycleLR(o, 1.0), "total_steps, or epochs and steps_per_epoch"),
        (lambda o, s: s.OneCycleLR(o, 1.0, 10), "without momentum or betas"),
        (lambda o, s: s.LinearLR(o, 0.0), "above 0"),
        (lambda o, s: s.ReduceLROnPlateau(o, factor=1.0), "below 1"),
        (lambda o, s: s.ReduceLROnPlateau(o, mode="least"), '"min" or "max"'),
        (lambda o, s: s.LambdaLR(o, [abs, abs]), "2 functions for 1 groups"),
        (lambda o, s: s.StepLR(o, 3, last_epoch=4), "initial_lr"),
        (lambda o, s: s.CosineAnnealingWarmRestarts(o, 0), "whole numbers from 1 on"),
        (lambda o, s: s.CosineAnnealingWarmRestarts(o, 1).step(-1), "an epoch of -1"),
        (lambda o, s: s.OneCycleLR(o, 1.0, 10, anneal_strategy="square"), '"cos" and "linear"'),
        (lambda o, s: s.SequentialLR(another(o), [s.StepLR(o, 1)], []), "of another optimiser"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(make, message):
    optimiser = optim.RMSprop([parameter([1.0], "float32")])
    del optimiser.param_groups[0]["momentum"]
    with pytest.raises(ValueError, match=message):
        make(optimiser, optim.lr_scheduler)
