"""Containers hold modules and parameters in order, and by name."""

import numpy as np
import pytest

from ringup import Tensor, nn


def test_a_sequence_is_indexed_sliced_and_named():
    made = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    assert len(made) == 3
    assert isinstance(made[1], nn.ReLU)
    assert made[-1] is made[2]
    assert [type(one).__name__ for one in made[:2]] == ["Linear", "ReLU"]
    made[1] = nn.Tanh()
    made.append(nn.Sigmoid()).extend([nn.Flatten()])
    assert [name for name, _ in made.named_children()] == ["0", "1", "2", "3", "4"]
    assert list(made.state_dict()) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    named = nn.Sequential({"first": nn.Linear(2, 2), "act": nn.ReLU()})
    assert list(named.state_dict()) == ["first.weight", "first.bias"]
    assert isinstance(named.act, nn.ReLU)
    x = Tensor([[1.0, -2.0]])
    np.testing.assert_allclose(named(x).numpy(), np.maximum(named.first(x).numpy(), 0))
    with pytest.raises(IndexError, match="place 5 among 5 modules"):
        made[5]
    with pytest.raises(TypeError, match="is no module"):
        nn.Sequential(nn.Linear(1, 1), lambda x: x)


def test_a_list_grows_and_takes_modules_in_between():
    made = nn.ModuleList([nn.Linear(1, 1)])
    made.append(nn.ReLU())
    made.insert(1, nn.Tanh())
    made.extend([nn.Sigmoid()])
    assert [type(one).__name__ for one in made] == ["Linear", "Tanh", "ReLU", "Sigmoid"]
    assert [name for name, _ in made.named_children()] == ["0", "1", "2", "3"]
    made[-1] = nn.GELU()
    assert isinstance(made[3], nn.GELU)
    assert [type(one).__name__ for one in made[1:3]] == ["Tanh", "ReLU"]
    assert len(made) == 4


def test_a_dict_holds_modules_by_name():
    made = nn.ModuleDict({"a": nn.Linear(1, 2)})
    made["b"] = nn.ReLU()
    made.update([("c", nn.Tanh())])
    assert list(made) == list(made.keys()) == ["a", "b", "c"]
    assert [name for name, _ in made.items()] == ["a", "b", "c"]
    assert "b" in made
    assert "training" not in made
    assert next(made.values()) is made["a"]
    assert list(made.state_dict()) == ["a.weight", "a.bias"]
    del made["b"]
    assert len(made) == 2
    with pytest.raises(KeyError, match="b"):
        made["b"]
    with pytest.raises(KeyError, match="the name of a method"):
        made["train"] = nn.ReLU()


def test_parameters_are_held_in_lists_and_dicts():
    listed = nn.ParameterList([nn.Parameter(Tensor([1.0])), Tensor([2.0])])
    listed.append(Tensor([3.0]))
    assert [name for name, _ in listed.named_parameters()] == ["0", "1", "2"]
    assert [one.item() for one in listed] == [1, 2, 3]
    assert listed[-1].item() == 3
    assert len(listed) == 3
    named = nn.ParameterDict({"w": Tensor([1.0])})
    named["b"] = nn.Parameter(Tensor([2.0]))
    assert list(named) == ["w", "b"]
    assert [name for name, _ in named.items()] == ["w", "b"]
    assert "w" in named
    assert len(named) == 2
    assert named["b"].requires_grad
    with pytest.raises(KeyError, match="c"):
        named["c"]
    with pytest.raises(KeyError, match="the name of a method"):
        named["half"] = Tensor([1.0])
