"""Random graphs of 5 to 40 operations come out of the card as NumPy has them."""

import pytest
from random_graphs import check


@pytest.mark.seeds(8)
def test_random_graphs_are_what_numpy_computes(small, seed):
    check(seed)
