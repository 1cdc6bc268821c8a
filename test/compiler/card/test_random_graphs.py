"""Random graphs of 5 to 40 operations come out of the card as NumPy has them."""

import numpy as np
import pytest
from random_graphs import random_graph


@pytest.mark.parametrize("first", range(0, 30, 15))
def test_random_graphs_are_what_numpy_computes(small, first):
    for seed in range(first, first + 15):
        tensor, expected, tolerance = random_graph(seed)
        found = tensor.numpy()
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape), seed
        np.testing.assert_allclose(
            found.astype(np.float64), expected.astype(np.float64), rtol=0, atol=tolerance, err_msg=f"seed {seed}"
        )
