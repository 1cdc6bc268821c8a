"""Random programs over all constructs of the language compile, and need no more memory than operations one by one."""

import pytest
from language import programs

# Programs of one seed. `make fuzz` has time for 500 seeds.
EACH = 4
CHIPS = ("gfx1100", "gfx1100", "gfx942", "gfx1201", "gfx1151")


@pytest.mark.seeds(10, share=8)
def test_random_programs_compile(seed):
    for i in range(EACH):
        programs.check(EACH * seed + i, CHIPS[seed % len(CHIPS)], code=i % 2 == 0)


# steps of an optimiser whose state was stored as the terms of products; a row of which the loop of a thread takes one
# turn, of 14,784 elements
@pytest.mark.parametrize("seed", [2000213648, 2000152443, 2000004990, 2000064201])
def test_programs_that_failed_once_compile(seed):
    assert programs.check(seed, "gfx1100", code=False) > 0


def test_a_seed_gives_the_same_program_again():
    first, second = (programs.random_program(7) for _ in range(2))
    assert first[2] == second[2]
    assert [one.shape for one in first[0]] == [one.shape for one in second[0]]


def test_the_memory_of_operations_one_by_one_is_that_of_the_greatest_moment():
    """Both sines are there when they are multiplied; a product of matrices has no terms."""
    tensor = programs.Tensor.arange(64 * 64).reshape(64, 64).cast("float32")
    sines = tensor.sin() @ tensor.cos()
    assert programs.naive_bytes([(tensor.sin() * 2).node]) == 2 * 64 * 64 * 4
    assert programs.naive_bytes([sines.node]) < 12 * 64 * 64 * 4
