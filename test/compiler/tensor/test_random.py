"""Random numbers equal Threefry's bit for bit, and have the right distribution."""

import numpy as np
import pytest

from ringup.compiler.graph.nodes import Op
from ringup.compiler.tensor import Source, Tensor, manual_seed
from ringup.compiler.tensor.random import Word, _rotate_word, threefry

KNOWN = [  # Random123's kat_vectors, threefry2x32 of 20 rounds: counter, key, result
    ((0x00000000, 0x00000000), (0x00000000, 0x00000000), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
    ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
]


def reference(key, counter):
    """Return Threefry-2x32-20 in NumPy, written from the paper: rounds of add, rotate and xor, and a key every four
    rounds.
    """
    rotations = [[13, 15, 26, 6], [17, 29, 16, 24]]
    ks = [np.uint32(key[0]), np.uint32(key[1]), np.uint32(key[0]) ^ np.uint32(key[1]) ^ np.uint32(0x1BD11BDA)]
    with np.errstate(over="ignore"):
        x = [np.asarray(counter[0], np.uint32) + ks[0], np.asarray(counter[1], np.uint32) + ks[1]]
        for group in range(5):
            for r in rotations[group % 2]:
                x[0] = x[0] + x[1]
                x[1] = (x[1] << np.uint32(r)) | (x[1] >> np.uint32(32 - r))
                x[1] = x[0] ^ x[1]
            x[0] = x[0] + ks[(group + 1) % 3]
            x[1] = x[1] + ks[(group + 2) % 3] + np.uint32(group + 1)
    return x


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_known_answers(counter, key, expected):
    assert threefry(tuple(map(Word, key)), tuple(map(Word, counter)), _rotate_word) == expected
    words = [Tensor(np.array([one], np.uint32)) for one in (*key, *counter)]
    found = threefry(tuple(words[:2]), tuple(words[2:]), lambda word, count: (word << count) | (word >> 32 - count))
    assert tuple(one.item() for one in found) == expected
    assert tuple(int(one) for one in reference(key, counter)) == expected


def test_tensors_are_the_cipher_of_seed_call_and_place():
    source = Source(0x1234_5678_9ABC)
    for call in range(3):
        key = [int(one) for one in reference((0x5678_9ABC, 0x1234), (call, 0))]
        expected = reference(key, (np.arange(10), np.zeros(10)))[0]
        np.testing.assert_array_equal(
            Tensor.randint(2, 5, high=1 << 32, dtype="uint32", source=source).numpy().reshape(-1), expected
        )
    key = [int(one) for one in reference((0x5678_9ABC, 0x1234), (3, 0))]
    bits = reference(key, (np.arange(10), np.zeros(10)))[0]
    np.testing.assert_array_equal(Tensor.rand(10, source=source).numpy(), (bits >> np.uint32(8)) * np.float32(2.0**-24))


def test_a_seed_starts_again():
    manual_seed(5)
    first = [Tensor.rand(4).tolist(), Tensor.randn(4).tolist()]
    manual_seed(5)
    assert [Tensor.rand(4).tolist(), Tensor.randn(4).tolist()] == first
    assert first[0] != Tensor.rand(4).tolist()
    manual_seed(6)
    assert Tensor.rand(4).tolist() != first[0]
    with pytest.raises(ValueError, match="a seed of -1"):
        manual_seed(-1)


def test_calls_differ_in_data_only():
    def shape(tensor):
        return [
            (node.op, node.dtype, node.shape, None if node.op is Op.BUFFER else node.arg)
            for node in tensor.node.ordered()
        ]

    assert shape(Tensor.rand(7)) == shape(Tensor.rand(7))


@pytest.mark.parametrize("kind", ["float32", "float64", "float16", "bfloat16"])
def test_distributions(kind):
    source = Source(1)
    x = Tensor.rand(20000, dtype=kind, source=source).cast("float64").numpy()
    assert x.min() >= 0
    assert x.max() < 1
    assert abs(x.mean() - 0.5) < 0.01
    assert abs(x.var() - 1 / 12) < 0.003
    y = Tensor.randn(20000, dtype=kind, source=source).cast("float64").numpy()
    assert abs(y.mean()) < 0.03
    assert abs(y.std() - 1) < 0.02
    assert abs((y**3).mean()) < 0.1
    assert abs((y**4).mean() - 3) < 0.2
    assert np.isfinite(y).all()


def test_other_distributions():
    source = Source(2)
    x = Tensor.uniform(10000, low=-3, high=5, source=source).numpy()
    assert -3 <= x.min() < -2.9 < 4.9 < x.max() < 5
    n = Tensor.randint(10000, low=-2, high=3, source=source).numpy()
    assert sorted(set(n.tolist())) == [-2, -1, 0, 1, 2]
    assert np.bincount(n + 2).min() > 1800
    wide = Tensor.randint(1000, low=-(1 << 62), high=1 << 62, dtype="int64", source=source).numpy()
    assert abs(wide.astype(float).mean()) < 2.0**58
    assert sorted(Tensor.randperm(100, source=source).tolist()) == list(range(100))
    assert Tensor.randperm(50, source=source).tolist() != list(range(50))
    p = Tensor.full((5000,), 0.3).bernoulli(source).numpy()
    assert set(p.tolist()) == {0.0, 1.0}
    assert abs(p.mean() - 0.3) < 0.03
    z = Tensor.normal(5000, mean=4, std=0.5, source=source).numpy()
    assert abs(z.mean() - 4) < 0.03
    assert abs(z.std() - 0.5) < 0.02
    for name, bound in (("kaiming_uniform", (6 / 36) ** 0.5), ("xavier_uniform", (6 / (36 + 72)) ** 0.5)):
        w = getattr(Tensor, name)(8, 4, 3, 3, source=source).numpy()
        assert bound * 0.9 < np.abs(w).max() <= bound
    assert abs(Tensor.kaiming_normal(100, 100, source=source).numpy().std() - 0.02**0.5) < 0.005
    assert abs(Tensor.xavier_normal(100, 100, source=source).numpy().std() - 0.1) < 0.005
    for wrong, error in (
        (lambda: Tensor.randint(3, high=300, dtype="int8"), ValueError),
        (lambda: Tensor.rand(3, dtype="int8"), TypeError),
    ):
        with pytest.raises(error):
            wrong()


def test_dropout():
    x = Tensor.ones(10000)
    y = x.dropout(0.25, source=Source(3)).numpy()
    assert set(np.unique(y)) == {0, np.float32(1 / 0.75)}
    assert abs((y == 0).mean() - 0.25) < 0.02
    assert x.dropout(0.5, training=False) is x
    assert not x.dropout(1).numpy().any()
    with pytest.raises(ValueError, match="a rate of 2"):
        x.dropout(2)


def test_creation():
    assert Tensor.zeros(2, 3).tolist() == [[0] * 3] * 2
    assert Tensor.ones((2,), dtype="int8").dtype.name == "int8"
    assert Tensor.full((2, 2), 7).tolist() == [[7, 7], [7, 7]]
    for start, stop, step in ((0, 5, 1), (2, 10, 3), (5, 0, -2), (0, 0, 1), (3, 1, 1)):
        assert Tensor.arange(start, stop, step).tolist() == list(range(start, stop, step))
    np.testing.assert_allclose(Tensor.arange(0, 1, 0.1).numpy(), np.arange(0, 1, 0.1), rtol=1e-6)
    assert Tensor.arange(4, dtype="float16").tolist() == [0, 1, 2, 3]
    for count in (0, 1, 2, 7):
        np.testing.assert_allclose(Tensor.linspace(-1, 3, count).numpy(), np.linspace(-1, 3, count), rtol=1e-6)
    assert Tensor.linspace(0, 0.1, 3).numpy()[-1] == np.float32(0.1)
    np.testing.assert_array_equal(Tensor.eye(3, 4).numpy(), np.eye(3, 4))
    assert Tensor([1, 2]).zeros_like().dtype.name == "int32"
    assert Tensor([1, 2]).full_like(2.5, "float64").tolist() == [2.5, 2.5]
    for wrong in (lambda: Tensor.zeros(-1), lambda: Tensor.arange(0, 5, 0), lambda: Tensor.linspace(0, 1, -1)):
        with pytest.raises(ValueError, match=r"."):
            wrong()


def test_bounds_and_moments_stand_in_front_of_sizes_as_pytorch_and_numpy_have_them():
    x = Tensor.uniform(2.0, 3.0, (900,)).numpy()
    assert 2 <= x.min() < x.max() < 3
    y = Tensor.normal(5.0, 0.1, (30, 30)).numpy()
    assert abs(y.mean() - 5) < 0.05
    assert 0.05 < y.std() < 0.2
    z = Tensor.randint(3, 6, (900,)).numpy()
    assert sorted(set(z.tolist())) == [3, 4, 5]
    assert sorted(set(Tensor.randint(3, (900,)).tolist())) == [0, 1, 2]
    with pytest.raises(TypeError, match="randint needs high"):
        Tensor.randint(3, 6)


def test_parameters_that_no_distribution_has_are_refused():
    with pytest.raises(ValueError, match="normal with a standard deviation of -1: 0 or more"):
        Tensor.normal(3, mean=0, std=-1)
    with pytest.raises(ValueError, match="uniform from 2 to 1: low is at most high"):
        Tensor.zeros(3).uniform_(2, 1)
    assert Tensor.uniform(2, low=2, high=2).tolist() == [2, 2]
    assert Tensor.normal(2, mean=3, std=0).tolist() == [3, 3]


def test_numbers_around_means_of_their_own():
    manual_seed(4)
    mean = Tensor([[0.0], [100.0], [-5.0]])
    for made in (Tensor.normal(mean, Tensor([[0.1] * 900])), Tensor.normal(mean.expand(3, 900), 0.1)):
        x = made.numpy()
        np.testing.assert_allclose(x.mean(1), [0, 100, -5], atol=0.02)
        np.testing.assert_allclose(x.std(1), [0.1] * 3, rtol=0.1)
    assert 1.5 < Tensor.normal(2.0, Tensor([0.1, 1e-6])).numpy()[1] < 2.5


def test_whole_numbers_of_any_type_are_drawn():
    x = Tensor.randint(0, 10, (900,), dtype="bfloat16").float().numpy()
    assert sorted(set(x.tolist())) == list(range(10))
    assert sorted(set(Tensor.randint(0, 2, (90,), dtype="bool").tolist())) == [False, True]
    with pytest.raises(ValueError, match="a type that holds them"):
        Tensor.randint(0, 3, (2,), dtype="bool")
    with pytest.raises(ValueError, match="a type that holds them"):
        Tensor.randint(0, 4000, (2,), dtype="float16")


@pytest.mark.parametrize(
    ("fill", "moments"),
    # mean and standard deviation of the distribution
    [
        (lambda t: t.exponential_(2.0), (0.5, 0.5)),
        (lambda t: t.geometric_(0.25), (4.0, 12**0.5)),
        (lambda t: t.log_normal_(0.0, 0.5), (np.exp(0.125), ((np.exp(0.25) - 1) * np.exp(0.25)) ** 0.5)),
        (lambda t: t.bernoulli_(0.3), (0.3, 0.21**0.5)),
        (lambda t: t.random_(2, 8), (4.5, (35 / 12) ** 0.5)),
        (lambda t: t.random_(7), (3.0, 2.0)),
    ],
)
def test_tensors_are_filled_with_random_numbers(fill, moments):
    manual_seed(6)
    t = Tensor.zeros(4000)
    assert fill(t) is t
    x = t.numpy()
    np.testing.assert_allclose([x.mean(), x.std()], moments, rtol=0.06)
    assert x.min() >= 0


def test_middles_and_quarters_of_cauchys_numbers():
    manual_seed(6)
    x = np.sort(Tensor.zeros(4000).cauchy_(3.0, 2.0).numpy())
    np.testing.assert_allclose(x[[1000, 2000, 3000]], [1, 3, 5], atol=0.2)
    assert Tensor.zeros(5, dtype="uint8").random_().numpy().max() > 5
    with pytest.raises(ValueError, match="between 0 and 1"):
        Tensor.zeros(5).geometric_(1.0)


def test_ends_by_place_go_with_a_size_by_name():
    for draw in (Tensor.normal, Tensor.uniform):
        assert draw(2.0, 3.0, size=(1, 4)).shape == (1, 4)
        assert draw(size=(1, 4)).shape == (1, 4)
    high = Tensor.uniform(2.0, 3.0, size=(50,)).numpy()
    assert 2 <= high.min() <= high.max() < 3
    with pytest.raises(TypeError, match="a shape holds whole numbers"):
        Tensor.zeros(2, size=(3,))
