"""Random networks of a few layers, some with gradients, give the same results on the card as in NumPy."""

import pytest
from random_networks import check


# These gave wrong results once.
@pytest.mark.seeds(1, also=(730013,))
def test_random_networks_are_what_numpy_computes(small, seed):
    check(seed)
