"""Whole-number expressions: whatever normal form they take, they equal the plain formula and stay within their
bounds.
"""

import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from ringup.compiler.graph import index

SIZES = {"a": 2, "b": 3, "c": 4, "d": 8, "e": 5}
VARIABLES = {name: index.variable(name, 0, size - 1) for name, size in SIZES.items()}
DIVISORS = (2, 3, 4, 6, 8, 12)


def grown(draw, depth):
    """Return a random formula as a function of values and as an expression."""
    if depth == 0:
        if draw.random() < 0.8:
            name = draw.choice(list(SIZES))
            return (lambda given: given[name]), VARIABLES[name]
        number = draw.randint(-3, 9)
        return (lambda given: number), number
    plain, made = grown(draw, depth - 1)
    kind = draw.randrange(6)
    number = draw.choice(DIVISORS)
    if kind == 0:
        other, also = grown(draw, depth - 1)
        return (lambda given: plain(given) + other(given)), made + also
    if kind == 1:
        factor = draw.choice((-4, -1, *DIVISORS))
        return (lambda given: plain(given) * factor), made * factor
    if kind == 2:
        return (lambda given: plain(given) // number), made // number
    if kind == 3:
        return (lambda given: plain(given) % number), made % number
    other, also = grown(draw, depth - 1)
    if kind == 4:
        return (lambda given: plain(given) + number * other(given)), made + also * number
    return (lambda given: plain(given) * other(given)), made * also


@pytest.mark.parametrize("seed", range(4))
def test_random_formulas_keep_their_value_and_their_bounds(seed):
    draw = random.Random(seed)
    for _ in range(1500):
        plain, made = grown(draw, draw.randint(1, 5))
        lo, hi = index.bounds(made)
        for _ in range(4):
            given = {name: draw.randrange(size) for name, size in SIZES.items()}
            assert index.evaluate(made, given) == plain(given)
            assert lo <= plain(given) <= hi


i, j = index.variable("i", 0, 63), index.variable("j", 0, 31)


@pytest.mark.parametrize(
    ("made", "simple"),
    [
        ((i * 32 + j) // 32, i),
        ((i * 32 + j) % 32, j),
        ((i * 32 + j) // 8 % 4, j // 8),
        ((i * 32 + j) // 32 * 32 + (i * 32 + j) % 32, i * 32 + j),
        ((i // 4) // 2, i // 8),
        ((i % 8) % 4, i % 4),
        ((i + j) - j, i),
        (i * 0, 0),
        ((j + 32) // 64, 0),
    ],
)
def test_divisions_that_the_ranges_settle_vanish(made, simple):
    assert made == simple


def test_equal_numbers_are_equal_and_hash_alike_however_they_were_made():
    assert i + j * 2 + 1 == 1 + j + i + j
    assert hash(i + j * 2 + 1) == hash(1 + j + i + j)


def test_a_value_out_of_its_bounds_and_a_missing_one_are_named():
    with pytest.raises(ValueError, match="i is 64, outside of 0 to 63"):
        index.evaluate(i + 1, {"i": 64})
    with pytest.raises(ValueError, match=r"j \(0 to 31\) has no value; there are i"):
        index.evaluate(i + j, {"i": 1})


def test_nothing_is_divided_by_what_may_be_negative():
    with pytest.raises(ValueError, match="which may be negative"):
        i // (j - 5)


@pytest.mark.parametrize("seed", range(40))
def test_a_total_is_what_its_terms_come_to_one_by_one(seed):
    draw = random.Random(seed)
    terms = [grown(draw, draw.randrange(3))[1] for _ in range(draw.randint(1, 5))]
    factors = [draw.choice((-2, 0, 1, 3, 4, 12, 24)) for _ in terms]
    one_by_one = 0
    for term, factor in zip(terms, factors, strict=True):
        one_by_one = one_by_one + term * factor
    at_once = index.total(terms, factors)
    for _ in range(20):
        given = {name: draw.randrange(size) for name, size in SIZES.items()}
        assert index.evaluate(at_once, given) == index.evaluate(one_by_one, given)


def test_digits_of_digits_come_together_again():
    x = index.variable("x", 0, 999)
    digits = [x % 10, x // 10 % 10, x // 100]
    assert index.total(digits, [1, 10, 100]) == x


def test_there_is_one_atom_of_a_meaning_whoever_makes_it():
    x = index.variable("x", 0, 999)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda i: index.variable("y", 0, 5000 + i // 8) // 7 * x, range(800)))
    for i in range(0, 800, 8):
        assert len({id(index.atom_of(one)) for one in found[i : i + 8]}) == 1
    gone = index.runtime_value("index", 0, 7, object())
    known = len(index._atoms)
    del gone
    # Nobody needs it any more.
    assert len(index._atoms) == known - 1
