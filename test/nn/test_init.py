"""Initial values follow PyTorch's distributions and start again from a seed."""

import math

import numpy as np
import pytest

from ringup import Tensor, manual_seed, nn
from ringup.nn import init

ROOT_3 = math.sqrt(3)
SHAPE = (60, 40, 3)
# inputs and outputs of each element
FAN_IN, FAN_OUT = 120, 180


@pytest.mark.parametrize(
    ("fill", "mean", "std", "bound"),
    [
        (lambda w: init.uniform_(w, -1, 3), 1, 2 / ROOT_3, 3),
        (lambda w: init.normal_(w, 1.0, 0.5), 1, 0.5, None),
        (lambda w: init.trunc_normal_(w, 0.0, 1.0, -1.0, 1.0), 0, 0.5396, 1),
        (lambda w: init.xavier_uniform_(w, 2.0), 0, 2 * math.sqrt(2 / 300), 2 * math.sqrt(6 / 300)),
        (lambda w: init.xavier_normal_(w), 0, math.sqrt(2 / 300), None),
        (lambda w: init.kaiming_uniform_(w, nonlinearity="relu"), 0, math.sqrt(2 / FAN_IN), math.sqrt(6 / FAN_IN)),
        (lambda w: init.kaiming_uniform_(w, math.sqrt(5)), 0, 1 / math.sqrt(3 * FAN_IN), 1 / math.sqrt(FAN_IN)),
        (lambda w: init.kaiming_normal_(w, 0.1, "fan_out"), 0, math.sqrt(2 / 1.01 / FAN_OUT), None),
    ],
)
def test_numbers_are_distributed_as_their_name_says(fill, mean, std, bound):
    manual_seed(4)
    w = Tensor.empty(*SHAPE)
    assert fill(w) is w
    values = w.numpy()
    # 7200 numbers: their mean is within a few parts in a hundred of the deviation
    assert values.mean() == pytest.approx(mean, abs=std / 20)
    assert values.std() == pytest.approx(std, rel=0.03)
    if bound is not None:
        assert np.abs(values).max() <= bound * (1 + 1e-6)
        assert np.abs(values).max() > 0.97 * bound


@pytest.mark.parametrize(
    ("make", "bounds"),
    [
        (lambda: nn.Linear(16, 50), {"weight": 1 / 4, "bias": 1 / 4}),
        (lambda: nn.Conv2d(8, 40, (2, 1), groups=2), {"weight": 1 / math.sqrt(8), "bias": 1 / math.sqrt(8)}),
        (lambda: nn.ConvTranspose1d(40, 8, 2), {"weight": 1 / 4, "bias": 1 / 4}),
        (lambda: nn.Bilinear(16, 4, 30), {"weight": 1 / 4, "bias": 1 / 4}),
        (lambda: nn.GRU(3, 16), dict.fromkeys(["weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"], 1 / 4)),
        (lambda: nn.LSTMCell(3, 16), dict.fromkeys(["weight_ih", "weight_hh", "bias_ih", "bias_hh"], 1 / 4)),
        (
            lambda: nn.MultiheadAttention(16, 2),
            {"in_proj_weight": math.sqrt(6 / 64), "in_proj_bias": 0, "out_proj.weight": 1 / 4, "out_proj.bias": 0},
        ),
        (
            lambda: nn.MultiheadAttention(16, 2, kdim=8, vdim=8, bias=False),
            {
                "q_proj_weight": math.sqrt(6 / 32), "k_proj_weight": math.sqrt(6 / 24), "v_proj_weight": math.sqrt(6 / 24),
                "out_proj.weight": 1 / 4,
            },
        ),
    ],
)  # fmt: skip
def test_layers_begin_with_pytorchs_bounds(make, bounds):
    manual_seed(2)
    found = dict(make().named_parameters())
    assert list(found) == list(bounds)
    for name, bound in bounds.items():
        most = np.abs(found[name].numpy()).max()
        assert 0.85 * bound <= most <= bound * (1 + 1e-6), name


def test_a_table_begins_normally_distributed_and_its_padding_with_zeros():
    manual_seed(2)
    values = nn.Embedding(100, 20, padding_idx=3).weight.numpy()
    assert values[3].tolist() == [0] * 20
    assert values.std() == pytest.approx(1, rel=0.05)
    rows = nn.Embedding.from_pretrained(Tensor([[1.0, 2.0]]))
    assert not rows.weight.requires_grad
    assert rows(Tensor([0])).tolist() == [[1, 2]]


def test_a_seed_gives_the_same_weights_again():
    manual_seed(7)
    first, second = nn.Linear(3, 3).weight.numpy(), nn.Linear(3, 3).weight.numpy()
    manual_seed(7)
    np.testing.assert_array_equal(nn.Linear(3, 3).weight.numpy(), first)
    assert (first != second).all()


def test_fixed_values():
    assert init.zeros_(Tensor.ones(2)).tolist() == [0, 0]
    assert init.ones_(Tensor.zeros(2)).tolist() == [1, 1]
    assert init.constant_(Tensor.zeros(2), 0.5).tolist() == [0.5, 0.5]
    assert init.eye_(Tensor.zeros(2, 3)).tolist() == [[1, 0, 0], [0, 1, 0]]
    kernel = init.dirac_(Tensor.zeros(4, 2, 3), groups=2).numpy()
    x = np.arange(20.0, dtype=np.float32).reshape(1, 4, 5)
    passed = Tensor(x).conv1d(Tensor(kernel), padding=1, groups=2)
    np.testing.assert_array_equal(passed.numpy(), x)


def test_orthogonal_rows_or_columns():
    for shape in ((3, 5), (5, 3), (4, 2, 2)):
        w = init.orthogonal_(Tensor.empty(*shape), gain=2.0).numpy().reshape(shape[0], -1)
        square = w @ w.T if w.shape[0] <= w.shape[1] else w.T @ w
        np.testing.assert_allclose(square, 4 * np.eye(len(square)), atol=1e-5)


def test_sparse_columns():
    manual_seed(3)
    w = init.sparse_(Tensor.empty(10, 4), 0.25).numpy()
    # a quarter of ten, rounded up
    assert ((w == 0).sum(0) == 3).all()


def test_a_part_of_a_parameter_is_filled_in_place():
    bias = nn.Parameter(Tensor.zeros(4))
    init.ones_(bias[1:3])
    assert bias.tolist() == [0, 1, 1, 0]
    assert bias.requires_grad


def test_gains_are_pytorchs():
    # PyTorch 2.14
    names = ("linear", "conv2d", "sigmoid", "tanh", "relu", "leaky_relu", "selu")
    assert [round(init.calculate_gain(name), 6) for name in names] == [1, 1, 1, 1.666667, 1.414214, 1.414143, 0.75]
    assert init.calculate_gain("leaky_relu", 0.5) == pytest.approx(1.264911)


@pytest.mark.parametrize(
    ("fill", "message"),
    [
        (lambda: init.kaiming_normal_(Tensor.zeros(3)), "two axes at least"),
        (lambda: init.kaiming_normal_(Tensor.zeros(3, 3), mode="both"), "fan_in, fan_out"),
        (lambda: init.calculate_gain("gelu"), "no gain for 'gelu'"),
        (lambda: init.eye_(Tensor.zeros(3)), "a matrix"),
        (lambda: init.sparse_(Tensor.zeros(3), 0.5), "a matrix"),
        (lambda: init.orthogonal_(Tensor.zeros(3)), "two axes at least"),
        (lambda: init.dirac_(Tensor.zeros(3, 3)), "3 to 5 axes"),
        (lambda: init.trunc_normal_(Tensor.zeros(3), 0.0, 1.0, 20.0, 30.0), "next to nothing"),
    ],
)
def test_what_cannot_be_filled_is_refused(fill, message):
    with pytest.raises(ValueError, match=message):
        fill()
