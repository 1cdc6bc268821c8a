"""Training with layers and optimisers: networks learn, later steps are the first step's graph, kernels stay few."""

import numpy as np
import pytest

from ringup import Tensor, manual_seed, nn, optim
from ringup.compiler.graph.nodes import Op
from ringup.compiler.schedule.order import plan
from ringup.compiler.schedule.signature import of_graph
from ringup.compiler.tensor import order
from ringup.nn import functional as F
from ringup.nn.norms import MAX_WAITING

RANDOM = np.random.default_rng(5)


def test_a_perceptron_learns():
    manual_seed(3)
    x = RANDOM.normal(size=(64, 2)).astype(np.float32)
    y = (x[:, 0] * x[:, 1] > 0).astype(np.int64)
    model = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 2))
    optimiser, criterion = optim.Adam(model.parameters(), lr=0.02), nn.CrossEntropyLoss()
    losses = []
    for _ in range(60):
        optimiser.zero_grad()
        loss = criterion(model(Tensor(x)), Tensor(y))
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.35 < 0.6 < losses[0]
    right = model.eval()(Tensor(x)).argmax(1).numpy() == y
    assert right.mean() > 0.9


def test_later_steps_are_the_first_steps_graph(evaluator):
    model = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Dropout(0.2), nn.Flatten(), nn.Linear(8, 3)
    )
    optimiser = optim.AdamW(model.parameters())
    schedule = optim.lr_scheduler.OneCycleLR(optimiser, 0.1, total_steps=6)
    for _ in range(5):
        optimiser.zero_grad()
        loss = F.cross_entropy(model(Tensor(np.ones((4, 1, 4, 4), np.float32))), Tensor(np.array([0, 1, 2, 0])))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
    assert len(evaluator.calls) == 5
    assert len({of_graph(nodes)[0] for nodes in evaluator.calls}) == 1


def test_deferred_steps_that_are_seen_by_their_loss_are_one_graph_from_the_second_on(evaluator):
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 3))
    optimiser = optim.SGD(model.parameters())
    for _ in range(5):
        loss = F.cross_entropy(model(Tensor(np.ones((4, 4), np.float32))), Tensor(np.array([0, 1, 2, 0])))
        optimiser.zero_grad()
        loss.backward()
        with optim.deferred():
            optimiser.step()
        loss.item()
    # Each evaluation computes the step before, its running statistics too.
    assert len(evaluator.calls) == 5
    assert len({of_graph(nodes)[0] for nodes in evaluator.calls[1:]}) == 1


# As many as of a perceptron of `x @ w + b` with the mean of its `cross_entropy`.
@pytest.mark.parametrize(
    ("make", "count"), [(lambda p: optim.SGD(p, momentum=0.9), 14), (optim.AdamW, 17)], ids=["momentum", "AdamW"]
)
def test_a_step_of_a_perceptron_is_few_kernels(make, count):
    model = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))
    optimiser = make(model.parameters())
    x, y = Tensor(np.zeros((64, 784), np.float32)), Tensor(np.zeros(64, np.int32))
    loss = nn.CrossEntropyLoss()(model(x), y)
    loss.backward()
    with optim.deferred():
        optimiser.step()
    nodes = [one.node for one in (loss, *optimiser.parameters, *optimiser.memory()) if one.node.op is not Op.BUFFER]
    assert len(plan(order.prepared(nodes)).kernels) == count


def test_running_statistics_that_nothing_reads_are_computed_now_and_then(evaluator):
    norm, x = nn.BatchNorm1d(2, momentum=0.5), Tensor([[0.0, 2.0], [2.0, 6.0]])
    for _ in range(MAX_WAITING):
        norm(x)
    assert len(evaluator.calls) == 0
    norm(x)
    assert len(evaluator.calls) == 1
    left = 0.5 ** (MAX_WAITING + 1)
    np.testing.assert_allclose(norm.running_mean.numpy(), np.array([1, 4]) * (1 - left), rtol=1e-6)
    np.testing.assert_allclose(norm.running_var.numpy(), np.array([2, 8]) * (1 - left) + left, rtol=1e-6)
    assert norm.num_batches_tracked.item() == MAX_WAITING + 1


def test_running_statistics_are_forgotten_on_demand():
    norm = nn.BatchNorm1d(2)
    norm(Tensor([[0.0, 2.0], [2.0, 6.0]]))
    norm.weight.assign([3.0, 4.0])
    norm.reset_parameters()
    assert norm.running_mean.tolist() == [0, 0]
    assert norm.running_var.tolist() == [1, 1]
    assert norm.num_batches_tracked.item() == 0
    assert norm.weight.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("layer", "shape", "together"),
    [
        (nn.Dropout(0.25), (40, 100), ()),
        (nn.Dropout1d(0.25), (40, 100, 3), (2,)),
        (nn.Dropout2d(0.25), (40, 100, 3, 2), (2, 3)),
        (nn.Dropout3d(0.25), (40, 100, 3, 2, 1), (2, 3, 4)),
    ],
)
def test_dropout_drops_its_share_and_scales_the_rest(layer, shape, together):
    manual_seed(6)
    values = layer.train()(Tensor.ones(*shape)).numpy()
    np.testing.assert_allclose(np.unique(values), [0, 4 / 3], rtol=1e-6)
    # whole channels
    assert (values.min(together) == values.max(together)).all()
    # of 4000 draws, within four deviations
    assert (values == 0).mean() == pytest.approx(0.25, abs=0.03)
    assert (layer(Tensor.ones(*shape)).numpy() != values).any()
    layer.eval()
    assert (layer(Tensor.ones(*shape)).numpy() == 1).all()


def test_alpha_dropout_keeps_mean_and_variance():
    manual_seed(6)
    x = RANDOM.normal(size=20000).astype(np.float32)
    values = nn.AlphaDropout(0.2)(Tensor(x)).numpy()
    assert values.mean() == pytest.approx(0, abs=0.04)
    assert values.std() == pytest.approx(1, abs=0.04)


def test_rrelu_draws_slopes_while_training():
    manual_seed(6)
    slopes = -nn.RReLU(0.1, 0.3)(Tensor.full((1000,), -1.0)).numpy()
    assert 0.1 <= slopes.min() < 0.11
    assert 0.29 < slopes.max() <= 0.3


def test_gumbel_softmax_chooses_by_probability():
    manual_seed(6)
    logits = Tensor(np.log(np.tile([0.5, 0.3, 0.2], (3000, 1))).astype(np.float32), requires_grad=True)
    chosen = F.gumbel_softmax(logits, hard=True, dim=1)
    assert (np.sort(chosen.numpy(), 1) == [0, 0, 1]).all()
    # of 3000 draws, within four deviations
    np.testing.assert_allclose(chosen.numpy().mean(0), [0.5, 0.3, 0.2], atol=0.037)
    chosen[:, 0].sum().backward()
    assert (logits.grad.numpy()[:, 0] > 0).all()
    soft = F.gumbel_softmax(logits, tau=10.0).numpy()
    np.testing.assert_allclose(soft.sum(1), 1, rtol=1e-5)
    assert soft.max() < 0.9


def test_a_target_that_cannot_be_spelled_costs_infinity_or_nothing():
    scores = Tensor.zeros(2, 2, 3, requires_grad=True)
    # a repeated class needs a blank in between
    given = (scores.log_softmax(-1), Tensor([[1, 1], [1, 2]]), [2, 2], [2, 2])
    lost = F.ctc_loss(*given, reduction="none")
    np.testing.assert_allclose(lost.numpy(), [np.inf, 2 * np.log(3)], rtol=1e-6)
    lost = F.ctc_loss(*given, reduction="none", zero_infinity=True)
    lost.sum().backward()
    assert lost.numpy()[0] == 0
    assert (scores.grad.numpy()[:, 0] == 0).all()
    # no class at all: blanks alone
    empty = F.ctc_loss(
        Tensor.zeros(2, 1, 3).log_softmax(-1), Tensor(np.zeros((1, 0), np.int64)), [2], [0], reduction="sum"
    )
    assert empty.item() == pytest.approx(2 * np.log(3), rel=1e-6)


def test_attention_drops_weights_while_training():
    manual_seed(6)
    q = Tensor.zeros(1, 1, 1, 4)
    values = Tensor.ones(1, 1, 500, 4)
    made = F.scaled_dot_product_attention(q, Tensor.zeros(1, 1, 500, 4), values, dropout_p=0.5).numpy()
    assert made[0, 0, 0, 0] == pytest.approx(1, abs=0.2)
    assert made[0, 0, 0, 0] != 1
    layer = nn.MultiheadAttention(4, 2, dropout=0.5)
    x = Tensor(RANDOM.normal(size=(5, 1, 4)).astype(np.float32))
    first, second = (layer(x, x, x, need_weights=False)[0].numpy() for _ in range(2))
    assert (first != second).any()
    layer.eval()
    first, second = (layer(x, x, x, need_weights=False)[0].numpy() for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_dropout_between_recurrent_layers_acts_while_training():
    manual_seed(6)
    layer, x = nn.GRU(2, 3, num_layers=2, dropout=0.5), Tensor.ones(2, 1, 2)
    assert (layer(x)[0].numpy() != layer(x)[0].numpy()).any()
    layer.eval()
    np.testing.assert_array_equal(layer(x)[0].numpy(), layer(x)[0].numpy())


def slopes(*values):
    made = []
    for one in values:
        parameter = nn.Parameter(Tensor(np.zeros_like(one)))
        parameter.grad = Tensor(one)
        made.append(parameter)
    return made


@pytest.mark.parametrize(("order", "norm"), [(2.0, 13.0), (1.0, 19.0), (float("inf"), 12.0)])
def test_gradients_are_scaled_to_a_norm(order, norm):
    first, second = slopes(np.array([3.0, -4.0]), np.array([[12.0]]))
    found = nn.utils.clip_grad_norm_([first, second, nn.Parameter(Tensor([1.0]))], 6.5, order)
    assert found.item() == pytest.approx(norm)
    np.testing.assert_allclose(first.grad.numpy(), np.array([3, -4]) * 6.5 / norm, rtol=1e-6)
    np.testing.assert_allclose(second.grad.numpy(), [[12 * 6.5 / norm]], rtol=1e-6)
    nn.utils.clip_grad_norm_(first, 100.0, order)
    np.testing.assert_allclose(first.grad.numpy(), np.array([3, -4]) * 6.5 / norm, rtol=1e-6)


def test_gradients_are_held_within_bounds():
    (one,) = slopes(np.array([3.0, -4.0, 0.5]))
    nn.utils.clip_grad_value_(one, 1.0)
    assert one.grad.tolist() == [1, -1, 0.5]


def test_parameters_become_a_vector_and_back():
    layer = nn.Linear(2, 1)
    vector = nn.utils.parameters_to_vector(layer.parameters())
    assert vector.tolist() == [*layer.weight.numpy().ravel(), *layer.bias.tolist()]
    nn.utils.vector_to_parameters(Tensor([1.0, 2.0, 3.0]), layer.parameters())
    assert layer.weight.tolist() == [[1, 2]]
    assert layer.bias.tolist() == [3]


def test_the_causal_mask_hides_what_comes_later():
    assert nn.Transformer.generate_square_subsequent_mask(3).tolist() == [
        [0, -np.inf, -np.inf], [0, 0, -np.inf], [0, 0, 0],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: nn.Linear(2, 3)(Tensor.zeros(3)), r"linear of \[3\] with weight \[3, 2\]"),
        (lambda: nn.Conv2d(3, 4, 2, groups=2), "no multiples"),
        (lambda: nn.Conv2d(3, 4, (2, 2, 2)), "for 2 axes"),
        (lambda: nn.Conv2d(3, 4, 2, padding_mode="mirror"), "zeros, reflect, replicate, circular"),
        (lambda: F.conv2d(Tensor.zeros(1, 1, 3), Tensor.zeros(1, 1, 2)), "conv2d with a weight of"),
        (lambda: F.conv_transpose2d(Tensor.zeros(1, 1, 3), Tensor.zeros(1, 1, 2)), "conv_transpose2d with a weight of"),
        (lambda: nn.BatchNorm2d(3)(Tensor.zeros(2, 3)), r"BatchNorm2d of \[2, 3\]: 4 axes, and 3 channels"),
        (lambda: nn.BatchNorm1d(3)(Tensor.zeros(1, 3)), "more than one value for each channel"),
        (lambda: F.batch_norm(Tensor.zeros(2, 3), None, None), "needs running statistics"),
        (lambda: nn.GroupNorm(2, 3), "no multiple"),
        (lambda: nn.LayerNorm(3)(Tensor.zeros(2, 4)), r"layer_norm over \[3\] of \[2, 4\]"),
        (lambda: nn.Embedding(3, 2, padding_idx=3), "padding_idx of 3 in a table of 3"),
        (lambda: F.embedding_bag(Tensor([1]), Tensor.zeros(2, 2), mode="sum"), r"\(N, L\), or \(L\) with offsets"),
        (lambda: F.embedding_bag(Tensor([[1]]), Tensor.zeros(2, 2), mode="least"), "sum, mean, max"),
        (
            lambda: F.embedding_bag(Tensor([[1]]), Tensor.zeros(2, 2), per_sample_weights=Tensor([[1.0]])),
            'go with the mode "sum"',
        ),
        (lambda: nn.RNN(2, 2, nonlinearity="sine"), "tanh or relu"),
        (lambda: nn.LSTM(2, 2)(Tensor.zeros(3, 1, 3)), r"LSTM of \[3, 1, 3\]: \(steps, batch, 2\)"),
        (lambda: nn.GRU(2, 2)(Tensor.zeros(3, 1, 2), Tensor.zeros(1, 1, 3)), "a state of"),
        (lambda: nn.MultiheadAttention(5, 2), "2 heads of 5"),
        (
            lambda: nn.MultiheadAttention(4, 2)(*[Tensor.zeros(2, 1, 4)] * 3, is_causal=True),
            "attn_mask is the causal one",
        ),
        (lambda: nn.TransformerEncoderLayer(4, 2, activation="sine"), "relu or gelu"),
        (lambda: nn.Dropout(1.5), "a rate of 1.5"),
        (lambda: nn.GLU()(Tensor.zeros(3)), "two equal halves"),
        (lambda: F.pad(Tensor.zeros(3), (1,)), "a pair for each axis"),
        (lambda: nn.ZeroPad2d((1, 2)), "one width, or 4"),
        (lambda: F.adaptive_avg_pool2d(Tensor.zeros(1, 3, 3), (1, 2, 3)), "one size for all"),
        (lambda: F.avg_pool2d(Tensor.zeros(1, 3, 3), 2, divisor_override=0), "a divisor of 0"),
        (
            lambda: F.interpolate(Tensor.zeros(1, 1, 3, 3), 2, mode="bilinear", antialias=True),
            "antialias as False only",
        ),
        (lambda: F.interpolate(Tensor.zeros(1, 1, 3)), "a size or a scale_factor"),
        (lambda: F.interpolate(Tensor.zeros(1, 1, 3), scale_factor=0.1), "a size of 1 or more"),
        (lambda: F.interpolate(Tensor.zeros(1, 1, 3), 6, mode="lanczos"), "nearest, nearest-exact, linear"),
        (lambda: F.pixel_shuffle(Tensor.zeros(3, 2, 2), 2), "channels a multiple of 4"),
        (lambda: F.pixel_unshuffle(Tensor.zeros(3, 3, 2), 2), "sizes a multiple"),
        (lambda: F.fold(Tensor.zeros(1, 5, 4), 3, 2), "a multiple of 4 rows, and 2 times 2 windows"),
        (lambda: F.channel_shuffle(Tensor.zeros(1, 5, 4), 2), "no multiple"),
        (lambda: F.ctc_loss(Tensor.zeros(3, 1, 2), Tensor([[1]]), [4], [1]), r"with \[4\] steps"),
        (lambda: F.ctc_loss(Tensor.zeros(3, 1, 2), Tensor([[1]]), [3], [1], reduction="max"), "mean, sum, none"),
        (lambda: F.mse_loss(Tensor.zeros(2), Tensor.zeros(2), reduction="max"), "mean, sum, none"),
        (lambda: F.cross_entropy(Tensor.zeros(2, 3), Tensor([1])), r"with classes \[1\]: that axis less"),
        (lambda: F.cross_entropy(Tensor.zeros(2, 3), Tensor.zeros(2)), "shapes differ"),
        (lambda: F.binary_cross_entropy(Tensor.zeros(2, 3), Tensor.zeros(3)), "shapes differ"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_rows_that_are_read_are_shortened_in_the_table():
    table = Tensor(np.array([[3.0, 4.0], [6.0, 8.0], [0.3, 0.4]], np.float32), requires_grad=True)
    rows = F.embedding(Tensor([0, 2, 0]), table, max_norm=1.0)
    # PyTorch 2.14
    np.testing.assert_allclose(rows.numpy(), [[0.6, 0.8], [0.3, 0.4], [0.6, 0.8]], rtol=1e-6)
    np.testing.assert_allclose(table.numpy(), [[0.6, 0.8], [6.0, 8.0], [0.3, 0.4]], rtol=1e-6)
    F.embedding_bag(Tensor([[1, 2]]), table, max_norm=2.0, norm_type=1.0, mode="sum").sum().backward()
    np.testing.assert_allclose(table.numpy(), [[0.6, 0.8], [0.857142, 1.142857], [0.3, 0.4]], rtol=1e-5)
    np.testing.assert_allclose(table.grad.numpy(), [[0, 0], [1, 1], [1, 1]])


def test_channels_go_together_in_dropout_for_selu():
    manual_seed(3)
    x = Tensor.ones(4, 6, 5)
    made = nn.FeatureAlphaDropout(0.5)(x).numpy()
    # selu's lower limit, kept or set, with the factors of mean 0 and variance 1
    low = -1.7580993408473766
    factor = (0.5 * (1 + 0.5 * low * low)) ** -0.5
    values = [factor - factor * 0.5 * low, low * factor - factor * 0.5 * low]
    assert all(
        np.isclose(channel, values[0]).all() or np.isclose(channel, values[1]).all() for channel in made.reshape(24, 5)
    )
    assert len(np.unique(made.round(4))) == 2
    assert not F.alpha_dropout(x, 1.0, training=True).numpy().any()
