"""Random graphs give the results of NumPy."""

import numpy as np
import pytest
from random_graphs import check, random_graph


@pytest.mark.seeds(40)
def test_random_graphs_are_what_numpy_computes(seed):
    check(seed)


def test_a_seed_gives_the_same_graph_again():
    one, other = random_graph(7), random_graph(7)
    assert np.array_equal(one[1], other[1])
    assert [node.op for node in one[0].node.ordered()] == [node.op for node in other[0].node.ordered()]
