"""Random steps that change memory leave on the card what NumPy leaves: see `random_steps.py`; `fuzz.py steps` takes more of them."""

import pytest


@pytest.mark.parametrize("seed", range(400, 424))
def test_random_steps_leave_what_numpy_leaves(small, module, seed):
    module("random_steps").check(seed)
