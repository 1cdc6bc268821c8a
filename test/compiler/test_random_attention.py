"""Random attentions in one kernel or several, on the virtual cores in strict mode, compared with NumPy in f64."""

import on_cores
import pytest
import random_attention

from ringup.compiler.tensor import device


@pytest.mark.seeds(1, also=(5,))
def test_random_attentions_are_what_numpy_computes(seed):
    with device(on_cores.Cores()):
        random_attention.check(seed)
