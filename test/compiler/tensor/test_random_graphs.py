"""Random graphs come out as NumPy has them."""

import numpy as np
import pytest
from random_graphs import random_graph


@pytest.mark.parametrize("first", range(0, 400, 50))
def test_random_graphs_are_what_numpy_computes(first):
    for seed in range(first, first + 50):
        tensor, expected, tolerance = random_graph(seed)
        found = tensor.numpy()
        assert found.dtype == expected.dtype, seed
        assert found.shape == expected.shape, seed
        np.testing.assert_allclose(
            found.astype(np.float64), expected.astype(np.float64), rtol=0, atol=tolerance, err_msg=f"seed {seed}"
        )


def test_a_seed_gives_the_same_graph_again():
    one, other = random_graph(7), random_graph(7)
    assert np.array_equal(one[1], other[1])
    assert [node.op for node in one[0].node.ordered()] == [node.op for node in other[0].node.ordered()]
