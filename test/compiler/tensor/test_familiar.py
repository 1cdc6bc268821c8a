"""What PyTorch and NumPy users type besides: sizes, views, types by name, places, arithmetic with alpha, operations in
place.
"""

import numpy as np
import numpy_graph
import pytest

from ringup.compiler.tensor import Size, Tensor, device

NUMBERS = np.arange(12, dtype=np.float32).reshape(3, 4)
X = Tensor(NUMBERS)


def test_size_is_a_number_and_may_be_called():
    assert X.size == 12
    assert X.size + 1 == 13
    assert X.size() == X.shape == (3, 4)
    assert (X.size(0), X.size(-1), X.size(dim=1)) == (3, 4, 4)
    with pytest.raises(IndexError, match="axis 2 of a tensor of shape"):
        X.size(2)
    assert type(X.reshape(X.size).shape[0]) is int


def test_size_with_symbolic_sizes():
    n = Size("n", 1, 9)
    y = Tensor.arange(n).reshape(n, 1).expand(n, 3)
    assert y.size == n * 3
    assert y.size(0) == n
    assert y.size() == (n, 3)
    flat = y.reshape(y.size)
    assert flat.shape == (n * 3,)
    assert type(flat.shape[0]) is type(n)
    assert flat.numpy(n=2).tolist() == [0, 0, 0, 1, 1, 1]


def test_view_takes_sizes_and_types():
    assert X.view(-1).shape == (12,)
    assert X.view(2, -1).shape == X.view((2, 6)).shape == (2, 6)
    np.testing.assert_array_equal(X.view("int32").numpy(), NUMBERS.view(np.int32))
    np.testing.assert_array_equal(X.view(np.uint8).numpy(), NUMBERS.view(np.uint8))
    np.testing.assert_array_equal(X.view(dtype=np.int16).numpy(), NUMBERS.view(np.int16))
    with pytest.raises(ValueError, match="there is no element type 'x'"):
        X.view("x")


def test_other_names_of_shapes():
    assert X.t().tolist() == NUMBERS.T.tolist()
    assert X[0].t().shape == (4,)
    with pytest.raises(ValueError, match="two axes at most"):
        X.reshape(1, 3, 4).t()
    assert X.ravel().shape == (12,)
    assert X.swapaxes(0, 1).tolist() == NUMBERS.T.tolist()
    assert (X.dim(), X.itemsize, X.element_size(), X.nbytes) == (2, 4, 4, 48)
    assert Tensor.full(2, 3).tolist() == [3, 3]


def test_types_by_name():
    assert X.to("float16").dtype == X.to(np.float16).dtype == X.to(dtype="half").dtype == "float16"
    assert X.to(Tensor([1])).dtype == X.type_as(Tensor([1])).dtype == X.type("int32").dtype == "int32"
    assert X.type() == "float32"
    kinds = [X.double(), X.bfloat16(), X.short(), X.char(), X.byte()]
    assert [one.dtype.name for one in kinds] == ["float64", "bfloat16", "int16", "int8", "uint8"]
    assert X.is_floating_point()
    assert not X.byte().is_floating_point()


def test_a_tensor_says_where_it_is_computed_and_goes_elsewhere(evaluator):
    assert X.device is evaluator
    assert X.to(evaluator) is X
    assert X.to("cpu") is X.cpu() is X
    assert X.to(evaluator, "float16").dtype == "float16"
    assert Tensor.zeros(2, device=evaluator).shape == (2,)
    other = numpy_graph.NumpyEvaluator()
    assert Tensor([1.0], device="cpu", dtype="int32").tolist() == [1]
    there = Tensor([1.0, 2.0], device=other, requires_grad=True)
    assert there.node.arg.home is other
    (there * there).sum().backward()
    assert there.grad.tolist() == [2, 4]
    moved = (X * 2).to(other)
    assert moved.node.arg.home is other
    assert moved.tolist() == (NUMBERS * 2).tolist()
    with device(None):
        assert X.device is None
    with pytest.raises(ValueError, match=r"with ringup\.device"):
        X.to("cuda")
    with pytest.raises(TypeError, match="an open card"):
        X.to([1])


def test_data_passes_no_gradient_and_is_assigned_in_place():
    weight = Tensor([1.0, 2.0], requires_grad=True)
    (weight.data * weight).sum().backward()
    assert weight.grad.tolist() == [1.0, 2.0]
    weight.data = weight.data * 3
    assert weight.tolist() == [3.0, 6.0]
    assert weight.requires_grad


def test_new_tensors_like_another():
    whole = Tensor([1, 2])
    assert whole.new_zeros(2, 3).shape == (2, 3)
    assert whole.new_ones((2,)).tolist() == [1, 1]
    assert whole.new_full((2,), 7).tolist() == [7, 7]
    assert whole.new_tensor([1.5, 2.5]).dtype == whole.new_empty(3).dtype == whole.empty_like().dtype == "int32"
    drawn = X.rand_like().numpy()
    assert drawn.shape == (3, 4)
    assert 0 <= drawn.min() < drawn.max() < 1
    assert X.randn_like().dtype == "float32"
    assert set(np.unique(Tensor.zeros(99).randint_like(2, 4).numpy())) == {2, 3}
    assert Tensor.randint_like(whole, 5).dtype == "int32"


def test_sums_with_a_factor():
    assert Tensor([1, 2]).add(Tensor([10, 20]), alpha=2).tolist() == [21, 42]
    assert Tensor([1.0, 2.0]).sub(1, alpha=0.5).tolist() == [0.5, 1.5]


def test_division_with_a_rounding():
    a, b = [7, -7, 7, -7, 6, 0], [2, 2, -2, -2, -3, 5]
    # PyTorch 2.14
    assert Tensor(a).div(Tensor(b), rounding_mode="trunc").tolist() == [3, -3, -3, 3, -2, 0]
    assert Tensor(a).div(Tensor(b), rounding_mode="floor").tolist() == [3, -4, -4, 3, -2, 0]
    assert Tensor([7.5, -7.5]).div(2, rounding_mode="trunc").tolist() == [3.0, -3.0]
    assert Tensor([7.5, -7.5]).div(2, rounding_mode="floor").tolist() == [3.0, -4.0]
    assert Tensor([7, 250], "uint8").div(4, rounding_mode="trunc").tolist() == [1, 62]
    assert Tensor([7]).div(2).tolist() == [3.5]
    with pytest.raises(ValueError, match="no rounding_mode 'up'"):
        X.div(2, rounding_mode="up")


IN_PLACE = {
    "add_": (lambda t: t.add_(1, alpha=2), NUMBERS + 2),
    "sub_": (lambda t: t.sub_(1), NUMBERS - 1),
    "mul_": (lambda t: t.mul_(3), NUMBERS * 3),
    "div_": (lambda t: t.div_(2), NUMBERS / 2),
    "neg_": (lambda t: t.neg_(), -NUMBERS),
    "clamp_": (lambda t: t.clamp_(min=1, max=3), NUMBERS.clip(1, 3)),
    "fill_": (lambda t: t.fill_(7), np.full((3, 4), 7.0)),
    "zero_": (lambda t: t.zero_(), np.zeros((3, 4))),
    "copy_": (lambda t: t.copy_(Tensor([1, 2, 3, 4])), np.tile([1.0, 2, 3, 4], (3, 1))),
    "masked_fill_": (lambda t: t.masked_fill_(X > 5, -1), np.where(NUMBERS > 5, -1, NUMBERS)),
    "relu_": (lambda t: (t - 4).relu_(), np.maximum(NUMBERS - 4, 0)),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_operations_in_place(name):
    change, wanted = IN_PLACE[name]
    tensor = Tensor(NUMBERS)
    made = change(tensor)
    assert name == "relu_" or made is tensor
    np.testing.assert_array_equal(made.numpy(), wanted)


def test_operations_in_place_write_what_is_viewed():
    tensor = Tensor(NUMBERS)
    row = tensor[1]
    row.mul_(10)
    tensor[0].zero_()
    assert tensor.tolist() == [[0, 0, 0, 0], [40, 50, 60, 70], [8, 9, 10, 11]]
    assert row.tolist() == [40, 50, 60, 70]


def test_random_numbers_in_place():
    tensor = Tensor.zeros(500)
    assert 2 <= tensor.uniform_(2, 3).numpy().min() < tensor.numpy().max() < 3
    assert abs(tensor.normal_(5.0, 0.1).numpy().mean() - 5) < 0.05


def test_comparisons_by_name():
    assert (X.gt(5).tolist(), X.le(5).tolist()) == ((NUMBERS > 5).tolist(), (NUMBERS <= 5).tolist())
    assert (X.lt(5).tolist(), X.ge(5).tolist()) == ((NUMBERS < 5).tolist(), (NUMBERS >= 5).tolist())
