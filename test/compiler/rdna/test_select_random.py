"""Random functions: what selected code leaves in memory is what the evaluator says, on both virtual cores."""

import pytest

INTERPRETED, TRANSLATED = 200, 16  # thousands were run by hand: `pytest -k random --seeds 1000:5000`


@pytest.mark.parametrize("first", range(0, INTERPRETED, 20))
def test_random_functions(module, same, first):
    make = module("random_machine").random_function
    for seed in range(first, first + 20):
        function, arguments, groups = make(seed)
        try:
            same(function, arguments, groups, on=("interpreter",))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


@pytest.mark.parametrize("seed", range(1000, 1000 + TRANSLATED))
def test_random_functions_on_the_fast_core(module, same, seed):
    function, arguments, groups = module("random_machine").random_function(seed, 20)
    same(function, arguments, groups, on=("translator",))
