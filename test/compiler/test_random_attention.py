"""Random attentions in one kernel or several, on the virtual cores in strict mode, against NumPy in f64."""

import pytest

from ringup.compiler.tensor import device


@pytest.mark.seeds(1, also=(5,))
def test_random_attentions_are_what_numpy_computes(seed, module):
    module("attention_numpy")  # the next one imports it
    check = module("random_attention").check
    with device(module("on_cores").Cores()):
        check(seed)
