"""Random graphs of 5 to 40 operations give the same results on the card as in NumPy."""

import pytest
from random_graphs import check


@pytest.mark.seeds(8)
def test_random_graphs_are_what_numpy_computes(small, seed):
    check(seed)
