"""What optimisers share: groups of parameters, what is kept for each parameter between steps, numbers of a step.

A step is a graph of assignments in the parameters' own memory. `step` computes it, with all live tensors that read the
parameters as they were (the loss, gradients), so that each turn of a loop is the same graph whatever the loop looks at.
It computes nothing where no card is chosen, sizes are open, or inside `deferred`.

What may change from step to step (learning rates, decays, bias corrections) is computed on the host in f64 and passed
as data. So another learning rate is other data, not another graph, and compiles nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from os import PathLike
from typing import Any, ClassVar, TypeAlias

from ringup.compiler.graph import dtypes
from ringup.compiler.graph.dtypes import DType
from ringup.compiler.tensor import arrays, realize
from ringup.compiler.tensor.core import number_of
from ringup.compiler.tensor.files import load_safetensors, save_safetensors
from ringup.compiler.tensor.tensor import Tensor
from ringup.errors import CompileError

Group: TypeAlias = dict[str, Any]
Params: TypeAlias = "Iterable[Tensor] | Iterable[tuple[str, Tensor]] | Iterable[Mapping[str, Any]]"
Kept: TypeAlias = dict[str, Any]

# where a file of `save` describes what is no tensor
ENTRY = "ringup.optimizer"

_deferred: ContextVar[bool] = ContextVar("ringup deferred steps", default=False)


@contextmanager
def deferred() -> Iterator[None]:
    """Let steps compute nothing while the block runs: what is looked at later computes them as one graph."""
    token = _deferred.set(True)
    try:
        yield
    finally:
        _deferred.reset(token)


class Optimizer:
    """Groups of parameters, and what is kept for each parameter between steps.

    `param_groups` is a list of dicts with the options of each group, "lr" among them, which may be changed between
    steps. `state` holds the tensors kept for each parameter. A subclass defines `_update`.
    """

    # whether a step of complex parameters is that of both parts
    TAKES_COMPLEX: ClassVar[bool] = False

    def __init__(self, params: Params, defaults: Mapping[str, Any], rate: float | None = None) -> None:
        """Take parameters, (name, parameter) pairs or groups; `defaults` are the options where a group has none.

        `rate` is another word for the option "lr".
        """
        self.defaults = dict(defaults)
        if rate is not None:
            self.defaults["lr"] = rate
        _check(self.defaults)
        self.param_groups: list[Group] = []
        self.state: dict[Tensor, Kept] = {}
        # data of the last step's numbers, which serve again where they are equal
        self._numbers_before: dict[tuple[Any, ...], list[Tensor]] = {}
        self._numbers_now: dict[tuple[Any, ...], list[Tensor]] = {}
        given = [params] if isinstance(params, Mapping) else list(params)
        if isinstance(params, Tensor) or not given:
            raise ValueError("an optimiser takes a list of parameters, and at least one")
        groups = given if isinstance(given[0], Mapping) else [{"params": given}]
        for one in groups:
            if not isinstance(one, Mapping):
                raise TypeError(f"groups of parameters are dicts, and {one!r} is none")
            self.add_param_group(one)

    def add_param_group(self, group: Mapping[str, Any]) -> None:
        """Take one more group: a dict with "params" and the options that differ from the defaults."""
        rest = {name: value for name, value in group.items() if name not in ("params", "rate")}
        if "rate" in group:
            rest["lr"] = group["rate"]
        params = [group["params"]] if isinstance(group["params"], Tensor) else list(group["params"])
        found = [one[1] if isinstance(one, tuple) else one for one in params]
        for one in found:
            if not isinstance(one, Tensor):
                raise TypeError(f"an optimiser takes tensors, not {type(one).__name__}")
            if one.dtype.is_complex and not self.TAKES_COMPLEX:
                raise TypeError(f"{type(self).__name__} takes real parameters: view_as_real() of a complex one")
        found = list({id(one): one for one in found}.values())
        taken = {id(one) for one in self.parameters}
        if any(id(one) in taken for one in found):
            raise ValueError("a parameter stands in two groups")
        if found and not any(one.requires_grad for one in found):
            raise ValueError(f"{found[0]!r} is no parameter: make it with requires_grad=True")
        made: Group = {"params": found, **self.defaults, **rest}
        _check(made)
        self.param_groups.append(made)

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for i, group in enumerate(self.param_groups):
            options = sorted((name, value) for name, value in group.items() if name != "params")
            lines += [f"Parameter Group {i}", *(f"    {name}: {value}" for name, value in options)]
        return "\n".join([*lines, ")"])

    @property
    def parameters(self) -> list[Tensor]:
        """Return the parameters of all groups."""
        return [one for group in self.param_groups for one in group["params"]]

    def set_rate(self, rate: float) -> None:
        """Use another learning rate in all groups from the next step on."""
        for group in self.param_groups:
            group["lr"] = rate

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients, or make them zeros."""
        for one in self.parameters:
            one.grad = None if set_to_none or one.grad is None else one.grad.zeros_like()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Assign every parameter that has a gradient its next value, and compute it where a card is chosen; `closure`,
        if given, returns the loss before.
        """
        loss = None if closure is None else closure()
        self._numbers_before, self._numbers_now = self._numbers_now, {}
        for group in self.param_groups:
            for one in group["params"]:
                if one.grad is None:
                    continue
                gradient = one.grad.detach().cast(kept_dtype(one))
                kept = self.state.setdefault(one, {})
                kept["step"] = kept.get("step", 0) + 1
                self._update(one, -gradient if group.get("maximize") else gradient, group, kept)
        if not _deferred.get() and self._can_compute():
            self.realize()
        return loss

    def memory(self) -> list[Tensor]:
        """Return the tensors kept between steps, parameters left out."""
        return [one for kept in self.state.values() for one in kept.values() if isinstance(one, Tensor)]

    def realize(self, *others: Tensor) -> None:
        """Compute the parameters, what is kept, gradients that are held and others (the loss) together."""
        gradients = [one.grad for one in self.parameters if one.grad is not None]
        realize.realize([*others, *self.parameters, *self.memory(), *gradients], {})

    def _can_compute(self) -> bool:
        """Return whether a card is chosen and every size is known."""
        nodes = [one.node for one in (*self.parameters, *self.memory())]
        return realize.chosen(nodes) is not None and not realize.is_symbolic(nodes)

    def _update(self, parameter: Tensor, gradient: Tensor, group: Group, kept: Kept) -> None:
        """Assign one parameter its next value; `kept["step"]` counts from 1."""
        raise NotImplementedError

    def _numbers(self, kind: DType, *values: float) -> list[Tensor]:
        """Return numbers of this step as tensors of one element each, which lie in memory side by side."""
        key = (kind, values)
        if key not in self._numbers_now:
            made = self._numbers_before.get(key)
            if made is None:
                together = Tensor(values, kind)
                made = [together[i] for i in range(len(values))]
            self._numbers_now[key] = made
        return self._numbers_now[key]

    # what is kept, in files

    def state_dict(self) -> dict[str, Any]:
        """Return what is kept for each parameter, by its number, and the options of the groups, in PyTorch's layout."""
        places = {id(one): i for i, one in enumerate(self.parameters)}
        groups = [{**group, "params": [places[id(one)] for one in group["params"]]} for group in self.param_groups]
        state = {places[id(one)]: dict(kept) for one, kept in self.state.items()}
        return {"state": dict(sorted(state.items())), "param_groups": groups}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned; groups and shapes have to fit."""
        groups, parameters = state_dict["param_groups"], self.parameters
        sizes = [len(one["params"]) for one in groups], [len(one["params"]) for one in self.param_groups]
        if sizes[0] != sizes[1]:
            raise ValueError(f"the state is of groups of {sizes[0]} parameters, this optimiser has {sizes[1]}")
        order = [place for group in groups for place in group["params"]]
        state: dict[Tensor, Kept] = {}
        for place, one in zip(order, parameters, strict=True):
            found = state_dict["state"].get(place)
            if found is not None:
                state[one] = {name: _loaded(one, name, value) for name, value in found.items()}
        self.state = state
        for mine, theirs in zip(self.param_groups, groups, strict=True):
            mine.update({name: value for name, value in theirs.items() if name != "params"})

    def save(self, path: str | PathLike[str]) -> None:
        """Compute what is kept and write it to a safetensors file, options and counts of steps included."""
        found = self.state_dict()
        tensors: dict[str, Tensor] = {}
        numbers: dict[str, float] = {}
        for place, kept in found["state"].items():
            for name, value in kept.items():
                if isinstance(value, Tensor):
                    tensors[f"{place}.{name}"] = value
                else:
                    numbers[f"{place}.{name}"] = value
        about = {"param_groups": found["param_groups"], "numbers": numbers}
        save_safetensors(tensors, path, {ENTRY: json.dumps(about)})

    def load(self, path: str | PathLike[str]) -> None:
        """Take over what `save` wrote."""
        tensors = load_safetensors(path)
        about = tensors.fields.get(ENTRY)
        if about is None:
            raise CompileError(f"{path} holds no state of an optimiser: its metadata has no {ENTRY}")
        described = json.loads(about)
        state: dict[int, Kept] = {}
        for name, value in [*described["numbers"].items(), *tensors.items()]:
            place, _, rest = name.partition(".")
            state.setdefault(int(place), {})[rest] = value
        groups = [
            {
                name: tuple(value) if isinstance(value, list) and name != "params" else value
                for name, value in one.items()
            }
            for one in described["param_groups"]
        ]
        self.load_state_dict({"state": state, "param_groups": groups})


def kept_dtype(parameter: Tensor) -> DType:
    """Return the type that a parameter's step is computed and kept in: f32, or f64 for f64."""
    if parameter.dtype.is_complex:
        return parameter.dtype
    return dtypes.float64 if parameter.dtype is dtypes.float64 else dtypes.float32


def memory_like(parameter: Tensor, value: float = 0.0) -> Tensor:
    """Return memory of a parameter's shape, filled with one value."""
    shape = tuple(number_of(size, "an optimiser") for size in parameter.shape)
    return Tensor(arrays.filled(shape, value, kept_dtype(parameter)))


def running(kept: Kept, name: str, parameter: Tensor, value: float = 0.0) -> Tensor:
    """Return the memory of that name that is kept for a parameter, made when it is first asked for."""
    if name not in kept:
        kept[name] = memory_like(parameter, value)
    made: Tensor = kept[name]
    return made


def moments(
    kept: Kept, parameter: Tensor, gradient: Tensor, new: Tensor, stays: Tensor, added: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the running means of a parameter's gradient and of its square, both with this step's gradient.

    The mean goes by `new` towards the gradient; of the mean of squares `stays` is left, and the square counts `added`.
    """
    mean, square = running(kept, "exp_avg", parameter), running(kept, "exp_avg_sq", parameter)
    mean.assign(mean + (gradient - mean) * new)
    square.assign(square * stays + gradient * gradient * added)
    return mean, square


def current(parameter: Tensor) -> Tensor:
    """Return a parameter's value before the step, in the type of the step."""
    return parameter.detach().cast(kept_dtype(parameter))


def _loaded(parameter: Tensor, name: str, value: Any) -> Any:
    """Return one kept value: counts as numbers, tensors in memory of their own."""
    if name == "step" or isinstance(value, (int, float)):
        number = float(value.item() if hasattr(value, "item") else value)
        return int(number) if name == "step" else number
    found = value if isinstance(value, Tensor) else Tensor(value)
    if not found.shape and name == "mu_product":
        return float(found.item())
    if found.shape != parameter.shape:
        raise ValueError(f"{name} of shape {list(found.shape)} is kept for a parameter of {list(parameter.shape)}")
    made = memory_like(parameter)
    return made.assign(found.detach())


def _check(options: Mapping[str, Any]) -> None:
    """Refuse options outside of their ranges."""
    for name in ("lr", "momentum", "weight_decay", "eps", "lr_decay"):
        value = options.get(name, 0.0)
        if not isinstance(value, (int, float)) or not value >= 0:
            raise ValueError(f"{name} of {value!r}: a number, not negative")
    betas: Sequence[float] = options.get("betas", ())
    if not all(0 <= one < 1 for one in betas):
        raise ValueError(f"betas of {tuple(betas)}: from 0 to below 1")
