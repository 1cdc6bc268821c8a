"""Random steps that change memory leave on the card what NumPy leaves: see `random_steps.py`; `fuzz.py steps` takes more of them."""

import pytest

LONG = {402, 408, 409, 413, 415}  # of seconds each


@pytest.mark.parametrize("seed", [seed for seed in range(400, 424) if seed not in LONG])
def test_random_steps_leave_what_numpy_leaves(small, module, seed):
    module("random_steps").check(seed)
