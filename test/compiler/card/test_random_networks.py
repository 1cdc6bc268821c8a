"""Random networks of a few layers, some with gradients, come out of the card as NumPy has them."""

import pytest
from random_networks import check


# These were wrong once.
@pytest.mark.seeds(1, also=(730013,))
def test_random_networks_are_what_numpy_computes(small, seed):
    check(seed)
