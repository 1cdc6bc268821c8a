"""Operations on several tensors as functions of the class on a list, padding in NumPy's and in PyTorch's order."""

import numpy as np
import pytest

import ringup
from ringup.compiler.tensor import Tensor, cat

NUMBERS = np.arange(6, dtype=np.float32).reshape(2, 3)
X, Y = Tensor(NUMBERS), Tensor(NUMBERS + 10)
BOTH = [NUMBERS, NUMBERS + 10]

JOINED = {
    "cat": (lambda: Tensor.cat([X, Y], dim=1), np.concatenate(BOTH, 1)),
    "cat of a method's list": (lambda: X.cat([Y, X]), np.concatenate([*BOTH, NUMBERS])),
    "cat with an array": (lambda: Tensor.cat((NUMBERS, Y)), np.concatenate(BOTH)),
    "concatenate": (lambda: Tensor.concatenate([X, Y], axis=-1), np.concatenate(BOTH, -1)),
    "stack": (lambda: Tensor.stack([X, Y], dim=-1), np.stack(BOTH, -1)),
    "vstack": (lambda: Tensor.vstack([X[0], Y]), np.vstack([NUMBERS[0], BOTH[1]])),
    "hstack": (lambda: Tensor.hstack([X, Y]), np.hstack(BOTH)),
    "hstack of vectors": (lambda: Tensor.hstack([X[0], Y[0]]), np.hstack([one[0] for one in BOTH])),
    "einsum": (lambda: Tensor.einsum("ij,kj->ik", X, Y), NUMBERS @ BOTH[1].T),
    "einsum of a list": (lambda: Tensor.einsum("ij,kj->ik", [X, Y]), NUMBERS @ BOTH[1].T),
    "where": (lambda: Tensor.where(X > 2, X, Y), np.where(NUMBERS > 2, *BOTH)),
    "where of a method": (lambda: X.where(X > 2, Y), np.where(NUMBERS > 2, *BOTH)),
    "where with an array": (lambda: Tensor.where(NUMBERS > 2, X, 0), np.where(NUMBERS > 2, NUMBERS, 0)),
    "maximum": (lambda: Tensor.maximum(X, Y), BOTH[1]),
}


@pytest.mark.parametrize("name", JOINED)
def test_functions_of_the_class(name):
    call, wanted = JOINED[name]
    np.testing.assert_array_equal(call().numpy(), wanted)


def test_functions_of_the_module():
    np.testing.assert_array_equal(ringup.cat([X, Y], dim=1).numpy(), np.concatenate(BOTH, 1))
    np.testing.assert_array_equal(ringup.where(X > 2, X, Y).numpy(), np.where(NUMBERS > 2, *BOTH))
    np.testing.assert_array_equal(ringup.maximum(3, X).numpy(), np.maximum(3, NUMBERS))
    assert cat is Tensor.cat
    assert ringup.zeros(2, 3, dtype=ringup.int8).dtype is ringup.int8
    assert ringup.randint(0, 5, (3,), dtype="int64").shape == (3,)
    with pytest.raises(TypeError, match=r"Tensor\.cat takes no 'axes'"):
        ringup.cat([X, Y], axes=1)


@pytest.mark.parametrize("name", ["cat", "stack", "vstack", "hstack"])
def test_a_list_of_tensors_and_another_tensor_beside_it(name):
    with pytest.raises(TypeError, match=f"{name} of a list of tensors and Tensor: all in one list, or one by one"):
        getattr(Tensor, name)([Tensor([1]), Tensor([2])], Tensor([3]))


def test_a_list_without_a_tensor():
    with pytest.raises(TypeError, match="cat of list: give tensors"):
        Tensor.cat([[1, 2], [3, 4]])


CUBE = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
PADDED = {
    "one number": (lambda t: t.pad(1), np.pad(CUBE, 1)),
    "NumPy's pairs": (lambda t: t.pad(((1, 0), (0, 2), (3, 1))), np.pad(CUBE, ((1, 0), (0, 2), (3, 1)))),
    "one pair": (lambda t: t.pad(((1, 2),)), np.pad(CUBE, ((1, 2),))),
    "NumPy's words": (lambda t: t.pad(pad_width=1, constant_values=7), np.pad(CUBE, 1, constant_values=7)),
    "NumPy's mode": (lambda t: t.pad(1, "edge"), np.pad(CUBE, 1, "edge")),
    "wrap": (lambda t: t.pad(((0, 0), (1, 1), (1, 2)), mode="wrap"), np.pad(CUBE, ((0, 0), (1, 1), (1, 2)), "wrap")),
    # PyTorch's order: the last axis first
    "PyTorch's numbers": (lambda t: t.pad((1, 2)), np.pad(CUBE, ((0, 0), (0, 0), (1, 2)))),
    "of two axes": (lambda t: t.pad(pad=(1, 2, 3, 0)), np.pad(CUBE, ((0, 0), (3, 0), (1, 2)))),
    "cut off": (lambda t: t.pad((-1, 1)), np.pad(CUBE[..., 1:], ((0, 0), (0, 0), (0, 1)))),
    "PyTorch's arguments": (lambda t: t.pad((1, 1), "constant", 5), np.pad(CUBE, ((0, 0), (0, 0), (1, 1)), constant_values=5)),
    "value after widths": (lambda t: t.pad(((1, 0), (0, 0), (0, 0)), 5), np.pad(CUBE, ((1, 0), (0, 0), (0, 0)), constant_values=5)),
}  # fmt: skip


@pytest.mark.parametrize("name", PADDED)
def test_padding(name):
    call, wanted = PADDED[name]
    np.testing.assert_array_equal(call(Tensor(CUBE)).numpy(), wanted)


def test_padding_that_fits_no_axes():
    for widths in ((1, 2, 3), (1,) * 8):
        with pytest.raises(ValueError, match="a number before and one after for each of the last axes, or pairs"):
            Tensor(CUBE).pad(widths)
