"""Movement as index arithmetic in kernels: chains of movements for every width of dtype, edges that reach outside, and
sizes of 0, of 1 and bound late.
"""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ringup.compiler.graph import dtypes
from ringup.compiler.graph.nodes import Op, buffer, elementwise, expand, node, permute, reduce, reshape
from ringup.compiler.tensor import Size, Tensor

ROWS_OF_FOUR = np.arange(24, dtype=np.float32).reshape(6, 4)


@st.composite
def chains(draw):
    """Return (dtype name, shape, steps). The steps are a chain of movements that fits the shape before each of them: a
    name and its arguments.
    """
    shape = draw(st.lists(st.sampled_from([1, 2, 3, 4, 6, 8, 13]), min_size=1, max_size=4))
    steps, at = [], list(shape)
    for _ in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from(["reshape", "permute", "expand", "pad", "shrink", "flip", "cat"]))
        axis = draw(st.integers(0, len(at) - 1))
        if kind == "reshape":
            total = int(np.prod(at))
            first = draw(st.sampled_from([one for one in range(1, total + 1) if total % one == 0]))
            rest = total // first
            second = draw(st.sampled_from([one for one in range(1, rest + 1) if rest % one == 0]))
            given_ = at = [first, second, rest // second]
        elif kind == "permute":
            given_ = draw(st.permutations(range(len(at))))
            at = [at[i] for i in given_]
        elif kind == "expand":
            given_ = at = [draw(st.integers(1, 5)) if size == 1 else size for size in at]
        elif kind == "pad":
            given_ = [(draw(st.integers(0, 3)), draw(st.integers(0, 3))) for _ in at]
            at = [size + a + b for size, (a, b) in zip(at, given_, strict=True)]
        elif kind == "shrink":
            starts = [draw(st.integers(0, size - 1)) for size in at]
            given_ = [(start, draw(st.integers(start + 1, size))) for start, size in zip(starts, at, strict=True)]
            at = [b - a for a, b in given_]
        else:
            given_ = axis
            at = [size * 2 if kind == "cat" and i == axis else size for i, size in enumerate(at)]
        if int(np.prod(at)) > 4000:
            break
        steps.append((kind, given_))
    return draw(st.sampled_from(["int8", "float16", "int32", "int64"])), shape, steps


def moved(source, kind, given_):
    """Return the node of one step."""
    shape = source.shape
    if kind == "reshape":
        return reshape(source, tuple(given_))
    if kind == "permute":
        return permute(source, given_)
    if kind == "expand":
        return expand(source, tuple(given_))
    if kind == "pad":
        wide = tuple(size + a + b for size, (a, b) in zip(shape, given_, strict=True))
        return node(Op.PAD, source.dtype, wide, (source,), (tuple(given_), 7))
    if kind == "shrink":
        return node(Op.SHRINK, source.dtype, tuple(b - a for a, b in given_), (source,), tuple(given_))
    if kind == "flip":
        return node(Op.FLIP, source.dtype, shape, (source,), (given_,))
    twice = tuple(size * 2 if i == given_ else size for i, size in enumerate(shape))
    return node(Op.CAT, source.dtype, twice, (source, elementwise(Op.NEG, source)), given_)


@given(chain=chains())
@settings(max_examples=40, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
def test_chains_of_movement(small, chain):
    name, shape, steps = chain
    dtype = dtypes.BY_NAME[name]
    values = (np.arange(int(np.prod(shape))) % 100).reshape(shape).astype(small.judge.numpy_dtype(dtype))
    one = small.buffer(values, dtype)
    for kind, given_ in steps:
        one = moved(one, kind, given_)
    ((found, wanted),) = small.both([node(Op.CONTIGUOUS, one.dtype, one.shape, (one,))])
    np.testing.assert_array_equal(found, wanted)


def test_indices_that_lie_outside_read_zero_and_write_nothing(small):
    values = np.arange(1, 25, dtype=np.float32).reshape(4, 6)
    for dtype in (dtypes.int32, dtypes.int64, dtypes.uint8, dtypes.uint32, dtypes.uint64, dtypes.int16):
        kind = small.judge.numpy_dtype(dtype)
        info = np.iinfo(kind)
        places = np.array([[0, 5, 6, 7], [info.max, info.min, 3, info.max - 1], [2, 2, 4, 4], [1, 1, 1, 0]], kind)
        index, source = small.buffer(places, dtype), small.buffer(values, dtypes.float32)
        gathered = node(Op.GATHER, dtypes.float32, (4, 4), (source, index), 1)
        put = small.buffer(-np.arange(1, 17, dtype=np.float32).reshape(4, 4), dtypes.float32)
        scattered = [
            node(Op.SCATTER, dtypes.float32, (4, 6), (source, index, put), (1, op))
            for op in (None, Op.ADD, Op.MAX, Op.MUL)
        ]
        for found, wanted in small.both([gathered, *scattered]):
            np.testing.assert_array_equal(found, wanted, err_msg=str(dtype))


BEHIND = {
    "memory": lambda t: Tensor(ROWS_OF_FOUR)[:, :1],
    "reduction": lambda t: t.max(1, keepdims=True),
    "running reduction": lambda t: t.cumsum(1)[:, :1],
    "order": lambda t: t.sort(1)[0][:, :1],
    "product": lambda t: (t @ Tensor(ROWS_OF_FOUR.T))[:, :1],
}


@pytest.mark.parametrize("name", BEHIND)
def test_what_only_spare_threads_would_reach(small, name):
    """A row has three elements and four threads. The fourth thread's index is that of an element that no other thread
    has.
    """
    behind = BEHIND[name](Tensor(ROWS_OF_FOUR) + 1) * 2
    none_of_it = behind.pad(((0, 0), (2, 2)), 1.0)[:, 0:1].pad(((0, 0), (1, 1)), 0.0)
    np.testing.assert_array_equal(none_of_it.sum(1).numpy(), np.ones(6, np.float32))


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0, 2), (1,), (1, 1, 1), ()])
def test_sizes_of_nothing_and_of_one(small, shape):
    x = np.full(shape, 3.0, np.float32)
    t = Tensor(x)
    np.testing.assert_array_equal((t * 2 + 1).numpy(), x * 2 + 1)
    np.testing.assert_array_equal(t.sum().numpy(), x.sum())
    np.testing.assert_array_equal(t.prod().numpy(), x.prod())
    np.testing.assert_array_equal(t.reshape(-1).numpy() if x.size else t.numpy().reshape(-1), x.reshape(-1))
    if shape:
        np.testing.assert_array_equal(
            t.cat(Tensor(np.ones((2, *shape[1:]), np.float32))).numpy(), np.concatenate([x, np.ones((2, *shape[1:]))])
        )
        np.testing.assert_array_equal(t.pad(((1, 2), *(None,) * (len(shape) - 1)), value=9).numpy(),
                                      np.pad(x, ((1, 2), *((0, 0),) * (len(shape) - 1)), constant_values=9))  # fmt: skip
        np.testing.assert_array_equal(t.sum(0).numpy(), x.sum(0))
        np.testing.assert_array_equal(t.sort(0)[0].numpy(), np.sort(x, 0))
        np.testing.assert_array_equal(t.cumsum(0).numpy(), x.cumsum(0))


def test_products_over_nothing(small):
    a, b = np.zeros((9, 0), np.float32), np.zeros((0, 12), np.float32)
    np.testing.assert_array_equal((Tensor(a) @ Tensor(b)).numpy(), np.zeros((9, 12)))
    assert (Tensor(b) @ Tensor(np.zeros((12, 3), np.float32))).numpy().shape == (0, 3)


def test_sizes_bound_when_a_tensor_is_computed(small):
    """Every kind of kernel, with a size that each run binds again. Sizes of 0 and 1 are among them."""
    n = Size("n", 0, 40)
    x = np.random.default_rng(0).standard_normal((40, 12)).astype(np.float32)
    w = np.random.default_rng(1).standard_normal((12, 16)).astype(np.float32)
    part = Tensor(x)[:n]
    made = {
        "elementwise": (part * 2 + 1, lambda v: v * 2 + 1),
        "sum of a row": (part.sum(1), lambda v: v.sum(1)),
        "sum over it": (part.sum(0), lambda v: v.sum(0)),
        "greatest": (
            part.pad(((1, 0), None), value=-9).amax(0),
            lambda v: np.pad(v, ((1, 0), (0, 0)), constant_values=-9).max(0),
        ),
        "softmax of a row": (part.softmax(1), lambda v: np.exp(v) / np.exp(v).sum(1, keepdims=True)),
        "product": (part @ Tensor(w), lambda v: v @ w),
        "product over it": (part.T @ part, lambda v: v.T @ v),
        "turned": (part.T.contiguous(), lambda v: v.T),
        "joined": (part.cat(part * 2), lambda v: np.concatenate([v, v * 2])),
        "backwards": (part.flip(0), lambda v: v[::-1]),
    }
    for name, (tensor, expected) in made.items():
        for count in (40, 1, 0, 33):
            found = tensor.numpy(n=count)
            np.testing.assert_allclose(found, expected(x[:count]), rtol=1e-4, atol=1e-5, err_msg=f"{name} of {count}")


def test_one_or_none(small):
    """The size is 0 or 1: the axis has one place, which may be absent."""
    n = Size("n", 0, 1)
    x = np.arange(3, 15, dtype=np.float32).reshape(1, 12)
    part = Tensor(x)[:n]
    for count in (1, 0):
        v = x[:count]
        np.testing.assert_array_equal((part + 1).numpy(n=count), v + 1)
        np.testing.assert_array_equal(part.sum(0).numpy(n=count), v.sum(0))
        np.testing.assert_array_equal(part.sum().numpy(n=count), v.sum())
        np.testing.assert_array_equal(
            part.pad(((0, 1), None), value=5).numpy(n=count), np.pad(v, ((0, 1), (0, 0)), constant_values=5)
        )


def test_assignment_in_place(small):
    """Parts of memory are written repeatedly, a cache grows by a size known at run time, and a value is read before it
    is overwritten.
    """
    x = np.arange(40, dtype=np.float32).reshape(5, 8)
    t = Tensor(x.copy()).realize()
    t[1:4, ::2] = Tensor(np.full((3, 4), -1.0, np.float32))
    x[1:4, ::2] = -1
    t[2] = t[3] * 2
    x[2] = x[3] * 2
    t[:, 5:] += 10
    x[:, 5:] += 10
    t.assign(t.flip(0).contiguous())
    np.testing.assert_array_equal(t.numpy(), x[::-1])


def test_results_beyond_2_to_the_31_elements_count_right(small):
    """The operand is repeated to 2**33 elements and then cut to a few. Places are counted in 64 bits, and only a few
    are computed.
    """
    x = np.arange(8, dtype=np.int32)
    wide = Tensor(x).reshape(1, 8).expand(1 << 30, 8).reshape(1 << 33)
    np.testing.assert_array_equal(wide[(1 << 33) - 5 :].numpy(), x[-5:])
    np.testing.assert_array_equal(wide[(1 << 32) - 3 : (1 << 32) + 4].numpy(), np.concatenate([x[-3:], x[:4]]))
    places = Tensor(np.array([0, 3, (1 << 33) - 1, 1 << 33, (1 << 32) + 6], np.int64))
    np.testing.assert_array_equal(wide.take(places, 0).numpy(), [0, 3, 7, 0, 6])
    counted = Tensor.arange(1 << 33, dtype="int64")
    np.testing.assert_array_equal(counted[(1 << 33) - 3 :].numpy(), np.arange((1 << 33) - 3, 1 << 33))


def test_memory_beyond_4_gib(small):
    """The last places of the buffer need 33 bits in bytes and elements. Kernels write, read, gather and fold there."""
    size = 5 << 30
    memory = buffer(dtypes.int8, (size,))
    tail = np.arange(-50, 50, dtype=np.int8)
    view = node(Op.SHRINK, dtypes.int8, (100,), (memory,), ((size - 100, size),))
    stored = node(Op.STORE, dtypes.int8, (100,), (view, small.buffer(tail, dtypes.int8)))
    now = node(Op.AFTER, dtypes.int8, (size,), (memory, stored))
    part = node(Op.SHRINK, dtypes.int8, (7,), (now,), ((size - 9, size - 2),))
    places = np.array([size - 1, size, size - 100, (1 << 63) - 1, -1, size - 37], np.int64)
    gathered = node(Op.GATHER, dtypes.int8, (6,), (now, small.buffer(places, dtypes.int64)), 0)
    square = reshape(now, (5, 1 << 30))
    columns = node(Op.SHRINK, dtypes.int8, (1, 40), (square,), ((4, 5), ((1 << 30) - 40, 1 << 30)))
    read, taken, folded = small.computed([elementwise(Op.NEG, part), gathered, reduce(Op.ADD, columns, (1,))])
    np.testing.assert_array_equal(read, -tail[-9:-2])
    np.testing.assert_array_equal(taken, [tail[99], 0, tail[0], 0, 0, tail[63]])
    np.testing.assert_array_equal(folded, tail[-40:].sum(dtype=np.int8))
