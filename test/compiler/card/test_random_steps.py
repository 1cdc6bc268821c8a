"""Random steps that change memory leave the same content on the card as in NumPy: see `random_steps.py`."""

import pytest
import random_steps


@pytest.mark.seeds(2, first=400, also=(403, 404, 405))
def test_random_steps_leave_what_numpy_leaves(small, seed):
    random_steps.check(seed)
