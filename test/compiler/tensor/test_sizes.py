"""Symbolic sizes in shapes and bounds, bound when a tensor is computed."""

import numpy as np
import pytest

from ringup.compiler.graph.nodes import Op, shared
from ringup.compiler.tensor import Size, Tensor, device, realize, use
from ringup.errors import CompileError

N = Size("n", 1, 8)
X = np.arange(24, dtype=np.float32).reshape(8, 3)


def test_parts_and_what_is_computed_of_them():
    t = Tensor(X)
    part = t[:N]
    assert str(part.shape[0]) == "n"
    made = {
        "exp": (part * 2 + 1, lambda x: x * 2 + 1),
        "sum": (part.sum(0), lambda x: x.sum(0)),
        "mean": (part.mean(0), lambda x: x.mean(0)),
        "max": (part.amax(0), lambda x: x.max(0)),
        "argmax": (part.argmax(0), lambda x: x.argmax(0)),
        "softmax": (part.softmax(0), lambda x: np.exp(x - x.max(0)) / np.exp(x - x.max(0)).sum(0)),
        "matmul": (part @ part.T, lambda x: x @ x.T),
        "reshape": (part.reshape(-1), lambda x: x.reshape(-1)),
        "reshape back": (part.reshape(3 * N).reshape(-1, 3), lambda x: x),
        "flatten": (part.unsqueeze(0).flatten(1), lambda x: x.reshape(1, -1)),
        "pad": (part.pad(((1, 0), None)), lambda x: np.pad(x, ((1, 0), (0, 0)))),
        "cat": (part.cat(t), lambda x: np.concatenate([x, X])),
        "index": (part[0] + part[N - 1], lambda x: x[0] + x[-1]),
        "from": (t[N - 1 :], lambda x: X[len(x) - 1 :]),
        "expand": (t[:1].expand(N, 3), lambda x: np.broadcast_to(X[:1], x.shape)),
        "arange": (Tensor.arange(N) * 2, lambda x: np.arange(len(x)) * 2),
        "size": (
            part.sum() * Tensor(1.0)._lift(N),
            lambda x: x.sum() * len(x),
        ),
        "causal": (part.scaled_dot_product_attention(t, t, causal=True, start=N - N + 2), lambda x: attention(x)),
        "zeros": (Tensor.ones(N, 2).sum(0), lambda x: np.full(2, len(x))),
        "triangle": (part[:, :1].expand(N, N).tril(), lambda x: np.tril(np.broadcast_to(x[:, :1], (len(x), len(x))))),
        "take": (part.take(Tensor([0, 9]), 0), lambda x: np.stack([x[0], x[0] * 0])),
    }
    for n in (1, 3, 8):
        for name, (tensor, expected) in made.items():
            found = tensor.numpy(n=n)
            np.testing.assert_allclose(found, expected(X[:n]), rtol=1e-5, err_msg=name)


def attention(x):
    scores = x @ X.T / np.sqrt(3)
    scores = np.where(np.arange(8) <= np.arange(len(x))[:, None] + 2, scores, -np.inf)
    raised = np.exp(scores - scores.max(-1, keepdims=True))
    return raised / raised.sum(-1, keepdims=True) @ X


def test_realizing_fixes_the_size():
    part = Tensor(X)[:N].realize(sizes={"n": 2})
    assert part.shape == (2, 3)
    np.testing.assert_array_equal(part.numpy(), X[:2])


def test_sizes_that_cannot_be():
    part = Tensor(X)[:N]
    with pytest.raises(ValueError, match=r"n \(1 to 8\) has no value"):
        part.numpy()
    with pytest.raises(ValueError, match="n is 9, outside of 1 to 8"):
        part.numpy(n=9)
    with pytest.raises(ValueError, match="no name for a size"):
        Size("a b", 0, 1)
    with pytest.raises(ValueError, match="not negative"):
        Size("a", -1, 1)
    with pytest.raises(ValueError, match="do not broadcast"):
        part + Tensor(X)
    with pytest.raises(IndexError, match="outside of it"):
        Tensor(X)[N + 8 :]
    with pytest.raises(ValueError, match="needs a size known now"):
        part.sort(0)
    with pytest.raises(IndexError, match="only 1"):
        Tensor(X)[:N:2]


def test_without_a_card_the_error_says_how_to_choose_one():
    with (
        device(None),
        pytest.raises(CompileError, match=r"no card is chosen: use `with ringup\.device"),
    ):
        Tensor([1]).__add__(1).numpy()
    before = realize._current.get()
    use(None)
    try:
        # Bytes that are already there need no card.
        assert Tensor([1, 2]).tolist() == [1, 2]
    finally:
        use(before)


def test_places_beyond_2_to_the_31_are_counted_in_64_bits():
    huge = Tensor.zeros(1 << 33)
    for made in (
        huge.argmax(),
        Tensor.arange(1 << 33, dtype="int64"),
        Tensor.rand(1 << 33),
        Tensor.rand(1 << 17, 1 << 16),
    ):
        assert all(node.dtype.name == "int64" for node in made.node.ordered() if node.op is Op.IOTA)
    wide = Tensor.zeros(1 << 17, 1 << 16)
    places = wide[Tensor([1, 2]), Tensor([3, 4])].node
    gather = next(node for node in places.ordered() if node.op is Op.GATHER)
    assert gather.sources[1].dtype.name == "int64"
    wide[[1, 2], [3, 4]] = 1.0
    scatter = next(node for node in wide.node.ordered() if node.op is Op.SCATTER)
    assert scatter.sources[1].dtype.name == "int64"


def test_equal_work_is_one_graph(evaluator):
    a, b = Tensor(X), Tensor(X)
    one, other = (a + b).exp(), (a + b).exp()
    assert len(set(shared([one.node, other.node]))) == 1
    one.realize()
    count = len(evaluator.calls)
    one.realize().numpy()
    # The tensor is computed already.
    assert len(evaluator.calls) == count


@pytest.mark.parametrize(("bounds", "error", "message"), [
    ((5, 1), ValueError, "size n of 5 to 1: nothing lies between"), ((-5, 1), ValueError, "size n of -5 to 1: sizes are not negative"),
    ((1.5, 2), TypeError, r"size n of 1\.5 to 2: whole numbers bound it"), ((1, "2"), TypeError, "size n of 1 to '2': whole numbers"),
])  # fmt: skip
def test_a_size_that_cannot_be_is_refused(bounds, error, message):
    with pytest.raises(error, match=message):
        Size("n", *bounds)
