"""Methods understand PyTorch's and NumPy's words for their parameters, and errors name the method that was called."""

import inspect

import numpy as np
import pytest

from ringup.compiler.tensor import Tensor
from ringup.compiler.tensor.spelling import words

T = Tensor
NUMBERS = np.arange(12, dtype=np.float32).reshape(3, 4)
X = Tensor(NUMBERS)
PLACES = Tensor([[2], [0], [1]])

SAME = {  # one call in PyTorch's or NumPy's words, and in the parameters' own
    "sum": (lambda: X.sum(dim=0, keepdim=True), lambda: X.sum(axis=0, keepdims=True)),
    "keepdim by position": (lambda: X.sum(0, True), lambda: X.sum(0, keepdims=True)),
    "several axes": (lambda: X.mean(dim=(0, 1)), lambda: X.mean(axis=(0, 1))),
    "ddof": (lambda: X.var(0, ddof=0), lambda: X.var(0, correction=0)),
    "unbiased": (lambda: X.std(0, unbiased=False), lambda: X.std(0, correction=0)),
    "norm": (lambda: X.norm(p=1, dim=1), lambda: X.norm(order=1, axis=1)),
    "order and axis by position": (lambda: X.norm(1, 1, True), lambda: X.norm(1, 1, keepdims=True)),
    "softmax": (lambda: X.softmax(dim=0), lambda: X.softmax(axis=0)),
    "argmax": (lambda: X.argmax(dim=1), lambda: X.argmax(axis=1)),
    "clamp": (lambda: X.clamp(min=1, max=3), lambda: X.clamp(low=1, high=3)),
    "clip": (lambda: X.clip(a_min=1, a_max=3), lambda: X.clip(low=1, high=3)),
    "one bound": (lambda: X.clamp(min=2), lambda: X.clamp(low=2)),
    "cat": (lambda: X.cat(X, dim=1), lambda: X.cat(X, axis=1)),
    "stack": (lambda: X.stack(X, dim=-1), lambda: X.stack(X, axis=-1)),
    "split": (lambda: X.split(split_size=2, dim=1)[1], lambda: X.split(2, axis=1)[1]),
    "chunk": (lambda: X.chunk(chunks=2, dim=1)[1], lambda: X.chunk(2, axis=1)[1]),
    "reshape": (lambda: X.reshape(shape=(4, 3)), lambda: X.reshape(4, 3)),
    "permute": (lambda: X.permute(dims=(1, 0)), lambda: X.permute(1, 0)),
    "transpose": (lambda: X.transpose(dim0=0, dim1=1), lambda: X.transpose(0, 1)),
    "flatten": (lambda: X.unsqueeze(dim=0).flatten(start_dim=1), lambda: X.unsqueeze(0).flatten(1)),
    "flip": (lambda: X.flip(dims=(0,)), lambda: X.flip(axis=(0,))),
    "roll": (lambda: X.roll(shifts=1, dims=1), lambda: X.roll(1, axis=1)),
    "movedim": (lambda: X.movedim(source=0, destination=1), lambda: X.movedim(0, 1)),
    "diagonal": (lambda: X.diagonal(dim1=0, dim2=1), lambda: X.diagonal(first=0, second=1)),
    "gather": (lambda: X.gather(dim=1, index=PLACES), lambda: X.gather(axis=1, places=PLACES)),
    "take_along_axis": (lambda: X.take_along_axis(indices=PLACES, axis=1), lambda: X.take_along_axis(PLACES, 1)),
    "scatter": (lambda: X.scatter(dim=1, index=PLACES, src=X), lambda: X.scatter(1, PLACES, X)),
    "scatter a number": (lambda: X.scatter(dim=1, index=PLACES, value=9), lambda: X.scatter(1, PLACES, 9)),
    "topk": (lambda: X.topk(k=2, dim=1, sorted=True)[0], lambda: X.topk(2, axis=1)[0]),
    "topk by position": (lambda: X.topk(2, 1, False)[0], lambda: X.topk(2, 1, largest=False)[0]),
    "sort": (lambda: X.sort(dim=1, descending=True, stable=True)[0], lambda: X.sort(1, descending=True)[0]),
    "leaky_relu": (lambda: (-X).leaky_relu(negative_slope=0.5), lambda: (-X).leaky_relu(slope=0.5)),
    "zeros": (lambda: T.zeros(size=(2, 3)), lambda: T.zeros(2, 3)),
    "full": (lambda: T.full(size=(2, 3), fill_value=7), lambda: T.full(shape=(2, 3), value=7)),
    "arange": (lambda: T.arange(start=1, end=7, step=2), lambda: T.arange(1, 7, 2)),
    "linspace": (lambda: T.linspace(start=0, end=1, steps=5), lambda: T.linspace(0, 1, 5)),
    "eye": (lambda: T.eye(n=2, m=3), lambda: T.eye(2, 3)),
    "repeat_interleave": (lambda: X.repeat_interleave(repeats=2, dim=0), lambda: X.repeat_interleave(2, 0)),
    "tril": (lambda: X.tril(k=1), lambda: X.tril(diagonal=1)),
    "einsum": (lambda: X.einsum(equation="ij->ji"), lambda: X.einsum("ij->ji")),
    "pool": (
        lambda: X.reshape(1, 1, 3, 4).avg_pool2d(kernel_size=2, ceil_mode=True),
        lambda: X.reshape(1, 1, 3, 4).avg_pool2d(kernel=2, ceil=True),
    ),
    "convolution by position": (
        lambda: X.reshape(1, 1, 3, 4).conv2d(T.ones(1, 1, 2, 2), None, 2, 1),
        lambda: X.reshape(1, 1, 3, 4).conv2d(T.ones(1, 1, 2, 2), stride=2, padding=1),
    ),
    "attention": (
        lambda: X.scaled_dot_product_attention(X, X, attn_mask=X[:, :3] > 1, is_causal=True, dropout_p=0.0),
        lambda: X.scaled_dot_product_attention(X, X, mask=X[:, :3] > 1, causal=True),
    ),
    "cross_entropy": (
        lambda: X.cross_entropy(T([1, 2, 0]), ignore_index=2, label_smoothing=0.1),
        lambda: X.cross_entropy(T([1, 2, 0]), ignore=2, smoothing=0.1),
    ),
    "a function of the class on a list": (lambda: T.maximum([1.0, 5.0], T([2.0, 3.0])), lambda: T([2.0, 5.0])),
    "a function of the class on an array": (lambda: T.sum(NUMBERS, dim=0), lambda: X.sum(0)),
}


@pytest.mark.parametrize("name", SAME)
def test_other_words_mean_the_same(name):
    theirs, ours = SAME[name]
    found, wanted = theirs(), ours()
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    np.testing.assert_array_equal(found.numpy(), wanted.numpy())


def test_makers_take_requires_grad():
    assert T.zeros(3, requires_grad=True).requires_grad
    assert T.randn(size=(3,), requires_grad=True).requires_grad
    assert not T.ones(3, requires_grad=False).requires_grad


MISTAKES = {
    "near": (
        lambda: X.sum(axi=0),
        r"^Tensor\.sum takes no 'axi' \(did you mean 'axis'\?\); there are axis \(dim\), keepdims \(keepdim\), dtype$",
    ),
    "far": (lambda: X.softmax(zebra=0), r"^Tensor\.softmax takes no 'zebra'; there are axis \(dim\)$"),
    "nothing by name": (lambda: X.exp(dim=0), r"^Tensor\.exp takes no 'dim'; it takes nothing by name$"),
    "twice": (lambda: X.sum(axis=0, dim=1), r"^Tensor\.sum: dim and axis mean the same; give one$"),
    "place and name": (lambda: X.sum(0, dim=1), r"^Tensor\.sum: axis is given by its place and by its name$"),
    "too many": (lambda: X.sum(0, True, 3), r"^Tensor\.sum takes 2 by position \(axis, keepdims\), not 3$"),
    "too many of one": (lambda: X.softmax(0, 1), r"^Tensor\.softmax takes 1 by position \(axis\), not 2$"),
    "too many of none": (lambda: X.exp(0), r"^Tensor\.exp takes nothing by position, not 1$"),
    "missing": (lambda: X.gather(1), r"^Tensor\.gather needs places$"),
    "a maker": (lambda: T.zeros(3, dtyp="int8"), r"^Tensor\.zeros takes no 'dtyp' \(did you mean 'dtype'\?\)"),
    "the class": (lambda: T(3, requires_grads=True), r"^Tensor takes no 'requires_grads' \(did you mean 'requires_grad'\?\)"),
    "what is done otherwise": (lambda: X.relu(inplace=True), r"^Tensor\.relu takes inplace as False only$"),
    "no tensor": (lambda: T.sum("abc"), r"^Tensor\.sum is a method of tensors, and str is none$"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named_in_the_words_of_the_caller(name):
    call, message = MISTAKES[name]
    with pytest.raises(TypeError, match=message):
        call()


def test_an_error_inside_a_method_is_its_own():
    with pytest.raises(TypeError, match="an axis is a whole number, not 'a'"):
        X.sum("a")
    with pytest.raises(TypeError, match="an axis is a whole number, not 'a'"):
        X.sum(dim="a")


def test_public_methods_have_public_names():
    methods = {name: getattr(Tensor, name) for name in dir(Tensor) if not name.startswith("_")}
    functions = {name: value for name, value in methods.items() if inspect.isroutine(value)}
    assert len(functions) > 200
    assert {name: value.__name__ for name, value in functions.items() if value.__name__ != name} == {}
    assert Tensor.amax.__qualname__ == "Tensor.amax"
    assert list(inspect.signature(Tensor.sum).parameters) == ["tensor", "axis", "keepdims", "dtype"]


def test_rows_of_the_tables_are_of_methods_that_exist():
    rows = {*words.BY_METHOD, *words.POSITIONS, *words.WITHOUT_EFFECT}
    assert [name for name in rows if not hasattr(Tensor, name)] == []
    for name, row in words.BY_METHOD.items():
        assert set(row.values()) <= set(inspect.signature(getattr(Tensor, name)).parameters), name
