"""A module finds its parts, converts them, copies them and exchanges them by name."""

from copy import deepcopy

import numpy as np
import pytest

import ringup
from ringup import Tensor, load_safetensors, manual_seed, nn, save_safetensors


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(Tensor([2.0]))
        self.first = nn.Linear(2, 3)
        self.norm = nn.BatchNorm1d(3)
        self.rest = nn.ModuleList([nn.Linear(3, 3, bias=False), nn.Sequential(nn.ReLU(), nn.Linear(3, 1))])
        self.register_buffer("shift", Tensor([0.5]))
        self.register_buffer("scratch", Tensor([0.0]), persistent=False)
        self.plain = Tensor([1.0])

    def forward(self, x):
        x = self.norm(self.first(x) * self.scale + self.shift)
        for one in self.rest:
            x = one(x)
        return x


NAMES = ["scale", "first.weight", "first.bias", "norm.weight", "norm.bias", "rest.0.weight", "rest.1.1.weight", "rest.1.1.bias"]  # fmt: skip


def test_parts_are_found_in_order_and_by_name():
    made = Small()
    assert [name for name, _ in made.named_parameters()] == NAMES
    assert [name for name, _ in made.named_parameters("net")] == [f"net.{name}" for name in NAMES]
    assert [name for name, _ in made.named_parameters(recurse=False)] == ["scale"]
    assert [name for name, _ in made.named_buffers()] == [
        "shift", "scratch", "norm.running_mean", "norm.running_var", "norm.num_batches_tracked",
    ]  # fmt: skip
    assert [name for name, _ in made.named_modules()] == [
        "", "first", "norm", "rest", "rest.0", "rest.1", "rest.1.0", "rest.1.1",
    ]  # fmt: skip
    assert [name for name, _ in made.named_children()] == ["first", "norm", "rest"]
    assert made.get_submodule("rest.1.1") is made.rest[1][1]
    assert made.get_parameter("rest.1.1.bias") is made.rest[1][1].bias
    with pytest.raises(AttributeError, match=r"Small has no parameter 'rest\.1\.1\.size'"):
        made.get_parameter("rest.1.1.size")
    with pytest.raises(AttributeError, match=r"Small has no module 'rest\.7'"):
        made.get_submodule("rest.7")


def test_a_shared_part_is_counted_once_and_stored_under_both_names():
    made = Small()
    made.again = made.first
    made.tied = made.first.weight
    assert len(list(made.parameters())) == len(NAMES)
    assert {"again.weight", "first.weight", "tied"} <= set(made.state_dict())


def test_what_is_computed_of_a_parameter_is_no_parameter():
    made = nn.Linear(2, 2)
    assert type(made.weight * 2) is Tensor
    assert type(made.weight.detach()) is Tensor
    assert isinstance(made.weight, nn.Parameter)
    assert made.weight.requires_grad
    frozen = nn.Parameter(Tensor([1.0]), requires_grad=False)
    assert not frozen.requires_grad


def test_a_parameter_is_not_lost_to_a_plain_tensor():
    made = nn.Linear(2, 2)
    with pytest.raises(TypeError, match=r"Linear\.weight is a parameter: give it an nn\.Parameter or None"):
        made.weight = Tensor([1.0])
    made.bias = None
    assert [name for name, _ in made.named_parameters()] == ["weight"]


def test_a_state_goes_from_one_module_to_another():
    manual_seed(1)
    first, second = Small(), Small()
    assert list(first.state_dict()) == [
        "scale", "shift", "first.weight", "first.bias", "norm.weight", "norm.bias", "norm.running_mean",
        "norm.running_var", "norm.num_batches_tracked", "rest.0.weight", "rest.1.1.weight", "rest.1.1.bias",
    ]  # fmt: skip
    x = Tensor(np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32))
    first(x)
    found = second.load_state_dict(first.state_dict())
    assert found == ([], [])
    assert second.norm.num_batches_tracked.item() == 1
    np.testing.assert_array_equal(first.eval()(x).numpy(), second.eval()(x).numpy())
    assert second.first.weight.requires_grad


def test_a_state_goes_through_a_file(tmp_path):
    first, second = Small(), Small()
    save_safetensors(first.state_dict(), tmp_path / "weights.safetensors")
    second.load_state_dict(load_safetensors(tmp_path / "weights.safetensors"))
    for name, value in first.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), second.state_dict()[name].numpy())


def test_a_state_that_does_not_fit_names_every_fault_and_changes_nothing():
    made = nn.Linear(2, 3)
    before = made.weight.numpy()
    with pytest.raises(
        ValueError,
        match=r"the state does not fit Linear: weight is \[3, 3\] and should be \[3, 2\]; missing: bias; unexpected: size, x",
    ):
        made.load_state_dict({"weight": np.zeros((3, 3)), "size": np.zeros(1), "x": np.zeros(1)})
    with pytest.raises(ValueError, match=r"missing: bias$"):
        made.load_state_dict({"weight": np.zeros((3, 2))})
    np.testing.assert_array_equal(made.weight.numpy(), before)
    found = made.load_state_dict({"weight": np.ones((3, 2)), "x": np.zeros(1)}, strict=False)
    assert found.missing_keys == ["bias"]
    assert found.unexpected_keys == ["x"]
    assert made.weight.tolist() == [[1, 1]] * 3


def test_training_and_use_are_switched_everywhere():
    made = Small()
    assert all(one.training for one in made.modules())
    assert made.eval() is made
    assert not any(one.training for one in made.modules())
    assert made.train().rest[1].training


def test_parameters_are_frozen_and_forget_their_gradients():
    made = nn.Linear(2, 1)
    made(Tensor([[1.0, 2.0]])).sum().backward()
    assert made.weight.grad.tolist() == [[1, 2]]
    made.zero_grad(set_to_none=False)
    assert made.weight.grad.tolist() == [[0, 0]]
    made.zero_grad()
    assert made.weight.grad is None
    made.requires_grad_(False)
    assert len(list(made.parameters())) == 2
    made.bias.requires_grad_()
    made(Tensor([[1.0, 2.0]])).sum().backward()
    assert made.weight.grad is None
    assert made.bias.grad.tolist() == [1]


def test_apply_reaches_inner_modules_first():
    seen = []
    made = nn.Sequential(nn.Linear(1, 1), nn.Sequential(nn.ReLU()))
    assert made.apply(lambda one: seen.append(type(one).__name__)) is made
    assert seen == ["Linear", "ReLU", "Sequential", "Sequential"]


def test_floats_are_converted_and_stay_the_same_parameters():
    made = Small()
    before, values = list(made.parameters()), [one.numpy() for one in made.parameters()]
    assert made.half() is made
    assert {one.dtype.name for one in made.parameters()} == {"float16"}
    assert made.norm.running_mean.dtype.name == "float16"
    assert made.norm.num_batches_tracked.dtype.name == "int64"
    assert all(one is other for one, other in zip(made.parameters(), before, strict=True))
    assert all(one.requires_grad for one in made.parameters())
    made.double()
    for one, value in zip(made.parameters(), values, strict=True):
        np.testing.assert_allclose(one.numpy(), value, rtol=1e-3)
    assert made.to("bfloat16").scale.dtype.name == "bfloat16"
    assert made.float().scale.dtype.name == "float32"
    with pytest.raises(TypeError, match="a module in int32: a float type"):
        made.to("int32")


def test_a_module_goes_to_a_card():
    with ringup.open("virtual:navi31") as card:
        made = nn.BatchNorm1d(2).to(card, dtype="float16")
        home = made.weight.node.arg.home
        assert made.running_var.node.arg.home is home
        assert made.weight.dtype.name == "float16"
        assert home.card is card
        assert made.to("cpu") is made
        assert made.weight.node.arg.home is home


def test_a_copy_has_memory_of_its_own():
    first = Small()
    second = deepcopy(first)
    assert [name for name, _ in second.named_parameters()] == NAMES
    assert all(one is not other for one, other in zip(first.parameters(), second.parameters(), strict=True))
    second.scale.assign([9.0])
    second.norm.running_mean.assign([1.0, 2.0, 3.0])
    assert first.scale.tolist() == [2.0]
    assert first.norm.running_mean.tolist() == [0, 0, 0]
    tied = nn.ModuleList([nn.Linear(1, 1), nn.Linear(1, 1)])
    tied[1].weight = tied[0].weight
    copied = deepcopy(tied)
    assert copied[1].weight is copied[0].weight
    assert copied[1].weight is not tied[0].weight


def test_hooks_see_and_change_what_passes():
    made, seen = nn.Identity(), []
    before = made.register_forward_pre_hook(lambda module, inputs: inputs[0] + 1)
    after = made.register_forward_hook(lambda module, inputs, result: result * 10)
    watching = made.register_forward_hook(lambda module, inputs, result: seen.append(inputs[0].tolist()))
    assert made(Tensor([1.0])).tolist() == [20]
    assert seen == [[2]]
    for one in (before, after, watching):
        one.remove()
        one.remove()
    assert made(Tensor([1.0])).tolist() == [1]


def test_a_module_without_forward_says_so():
    with pytest.raises(NotImplementedError, match=r"ModuleList has no forward\(\)"):
        nn.ModuleList()(1)


def test_a_buffer_does_not_hide_another_attribute():
    with pytest.raises(KeyError, match="has an attribute 'weight' already"):
        nn.Linear(1, 1).register_buffer("weight", Tensor([1.0]))


# PyTorch 2.14
TEXT = """\
Sequential(
  (0): Conv2d(3, 8, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1))
  (1): BatchNorm2d(8, eps=1e-05, momentum=0.1, affine=True, bias=True, track_running_stats=True)
  (2): ReLU()
  (3): Sequential(
    (0): Linear(in_features=8, out_features=2, bias=False)
    (1): LayerNorm((2,), eps=1e-05, elementwise_affine=True, bias=True)
  )
  (4): Embedding(4, 2, padding_idx=0)
  (5): LSTM(2, 3, num_layers=2, batch_first=True)
  (6): Flatten(start_dim=1, end_dim=-1)
)"""


def test_a_module_is_shown_as_a_tree():
    made = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Sequential(nn.Linear(8, 2, bias=False), nn.LayerNorm(2)), nn.Embedding(4, 2, padding_idx=0),
        nn.LSTM(2, 3, num_layers=2, batch_first=True), nn.Flatten(),
    )  # fmt: skip
    assert repr(made) == TEXT


SHOWN = {  # PyTorch 2.14
    nn.Bilinear(1, 2, 3): "Bilinear(in1_features=1, in2_features=2, out_features=3, bias=True)",
    nn.Unflatten(1, (2, 3)): "Unflatten(dim=1, unflattened_size=(2, 3))",
    nn.ConvTranspose2d(2, 4, 3, output_padding=1, stride=2, groups=2, bias=False): (
        "ConvTranspose2d(2, 4, kernel_size=(3, 3), stride=(2, 2), output_padding=(1, 1), groups=2, bias=False)"
    ),
    nn.Conv1d(1, 1, 3, padding="same", padding_mode="reflect"): (
        "Conv1d(1, 1, kernel_size=(3,), stride=(1,), padding=same, padding_mode=reflect)"
    ),
    nn.GroupNorm(1, 2): "GroupNorm(1, 2, eps=1e-05, affine=True, bias=True)",
    nn.RMSNorm(2): "RMSNorm((2,), eps=None, elementwise_affine=True)",
    nn.EmbeddingBag(2, 3): "EmbeddingBag(2, 3, mode='mean')",
    nn.RNNCell(1, 2, bias=False): "RNNCell(1, 2, bias=False)",
    nn.LeakyReLU(): "LeakyReLU(negative_slope=0.01)",
    nn.Softplus(): "Softplus(beta=1.0, threshold=20.0)",
    nn.PReLU(): "PReLU(num_parameters=1)",
    nn.Dropout(0.25): "Dropout(p=0.25, inplace=False)",
    nn.MaxPool2d(2): "MaxPool2d(kernel_size=2, stride=2, padding=0, dilation=1, ceil_mode=False)",
    nn.AdaptiveMaxPool2d((1, 2)): "AdaptiveMaxPool2d(output_size=(1, 2))",
    nn.ZeroPad2d(1): "ZeroPad2d((1, 1, 1, 1))",
    nn.ConstantPad1d(1, 2.0): "ConstantPad1d(padding=(1, 1), value=2.0)",
    nn.Upsample(3): "Upsample(size=3, mode='nearest')",
    nn.Unfold(2): "Unfold(kernel_size=2, dilation=1, padding=0, stride=1)",
    nn.PixelShuffle(2): "PixelShuffle(upscale_factor=2)",
    nn.CrossEntropyLoss(): "CrossEntropyLoss()",
}


@pytest.mark.parametrize("module", SHOWN, ids=lambda one: type(one).__name__)
def test_a_layer_is_shown_with_its_options(module):
    assert repr(module) == SHOWN[module]
