"""Recurrent layers and their cells, with PyTorch's names of parameters and order of gates.

All steps' products with the input are one matrix product; what depends on the state is unrolled.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar, TypeAlias

from ringup.compiler.tensor.core import DTypeLike, number_of
from ringup.compiler.tensor.tensor import Tensor
from ringup.nn import functional as F  # noqa: N812
from ringup.nn import init
from ringup.nn.linear import empty
from ringup.nn.module import Module
from ringup.nn.parameter import Parameter

# the state of a step: h, or h and c
State: TypeAlias = tuple[Tensor, ...]
# (gates from the input, gates from the state, the state) -> the next state
Step: TypeAlias = Callable[[Tensor, Tensor, State], State]


def _tanh_step(from_input: Tensor, from_state: Tensor, _state: State) -> State:
    return ((from_input + from_state).tanh(),)


def _relu_step(from_input: Tensor, from_state: Tensor, _state: State) -> State:
    return ((from_input + from_state).relu(),)


def _lstm_step(from_input: Tensor, from_state: Tensor, state: State) -> State:
    taken, stays, new, shown = (from_input + from_state).chunk(4, -1)
    cell = stays.sigmoid() * state[1] + taken.sigmoid() * new.tanh()
    return shown.sigmoid() * cell.tanh(), cell


def _gru_step(from_input: Tensor, from_state: Tensor, state: State) -> State:
    reset, stays, new = from_input.chunk(3, -1)
    reset_more, stays_more, new_more = from_state.chunk(3, -1)
    share = (stays + stays_more).sigmoid()
    made = (new + (reset + reset_more).sigmoid() * new_more).tanh()
    return ((1 - share) * made + share * state[0],)


STEPS: dict[str, Step] = {"tanh": _tanh_step, "relu": _relu_step, "lstm": _lstm_step, "gru": _gru_step}


def _step(kind: str) -> Step:
    if kind not in STEPS:
        raise ValueError(f"nonlinearity {kind!r}: tanh or relu")
    return STEPS[kind]


class _Recurrent(Module):
    gates: ClassVar[int]
    # how many tensors the state has
    states: ClassVar[int] = 1

    def _setup(
        self,
        kind: str,
        sizes: tuple[int, int, int],
        bias: bool,
        batch_first: bool,
        dropout: float,
        bidirectional: bool,
        dtype: DTypeLike | None,
    ) -> None:
        self.input_size, self.hidden_size, self.num_layers = sizes
        self.bias, self.batch_first, self.dropout, self.bidirectional = bias, batch_first, dropout, bidirectional
        self._advance = _step(kind)
        for layer in range(self.num_layers):
            inputs = self.input_size if layer == 0 else self.hidden_size * len(self._ends)
            for end in self._ends:
                shapes = [("weight_ih", (inputs,)), ("weight_hh", (self.hidden_size,))]
                for name, more in [*shapes, *([("bias_ih", ()), ("bias_hh", ())] if bias else [])]:
                    value = empty(self.gates * self.hidden_size, *more, dtype=dtype)
                    self.register_parameter(f"{name}_l{layer}{end}", value)
        self.reset_parameters()

    @property
    def _ends(self) -> tuple[str, ...]:
        return ("", "_reverse") if self.bidirectional else ("",)

    def reset_parameters(self) -> None:
        """Draw the parameters again, evenly up to 1 / sqrt(hidden_size)."""
        bound = 1 / math.sqrt(self.hidden_size) if self.hidden_size else 0.0
        for one in self.parameters():
            init.uniform_(one, -bound, bound)

    def _direction(self, x: Tensor, state: State, layer: int, end: str) -> tuple[Tensor, State]:
        """Return the outputs (T, N, hidden) of one direction of one layer, and its last state."""
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        into, around, *shifts = (vars(self).get(f"{name}_l{layer}{end}") for name in names)
        gates = F.linear(x, into, shifts[0])  # type: ignore[arg-type]
        steps = number_of(x.shape[0], "a recurrent layer")
        outputs: list[Tensor] = []
        for i in range(steps)[::-1] if end else range(steps):
            state = self._advance(gates[i], F.linear(state[0], around, shifts[1]), state)  # type: ignore[arg-type]
            outputs.append(state[0])
        first, *rest = outputs[::-1] if end else outputs
        return first.stack(*rest), state

    def _run(self, input: Tensor, hx: State | None) -> tuple[Tensor, State]:
        """Return the outputs of the last layer and the last states of all layers and directions."""
        if input.ndim not in (2, 3) or input.shape[-1] != self.input_size:
            raise ValueError(
                f"{type(self).__name__} of {list(input.shape)}: (steps, batch, {self.input_size}), or without a batch"
            )
        alone = input.ndim == 2
        x = input.unsqueeze(1) if alone else input.transpose(0, 1) if self.batch_first else input
        count = self.num_layers * len(self._ends)
        shape = (count, x.shape[1], self.hidden_size)
        if hx is None:
            start: State = (Tensor.zeros(*shape, dtype=x.dtype),) * self.states
        else:
            start = tuple(one.unsqueeze(1) if alone else one for one in hx)
            if any(one.shape != shape for one in start):
                raise ValueError(f"a state of {[list(one.shape) for one in hx]} for {list(shape)}")
        lasts: list[State] = []
        for layer in range(self.num_layers):
            made = []
            for end in self._ends:
                place = len(lasts)
                outputs, last = self._direction(x, tuple(one[place] for one in start), layer, end)
                made.append(outputs)
                lasts.append(last)
            x = made[0].cat(*made[1:], axis=-1) if made[1:] else made[0]
            if self.training and self.dropout and layer + 1 < self.num_layers:
                x = x.dropout(self.dropout)
        ends = tuple(lasts[0][i].stack(*(one[i] for one in lasts[1:])) for i in range(self.states))
        if alone:
            return x.squeeze(1), tuple(one.squeeze(1) for one in ends)
        return (x.transpose(0, 1) if self.batch_first else x), ends

    def extra_repr(self) -> str:
        """Return the sizes and the options."""
        text = f"{self.input_size}, {self.hidden_size}"
        for name, usual in (
            ("num_layers", 1), ("bias", True), ("batch_first", False), ("dropout", 0.0), ("bidirectional", False),
        ):  # fmt: skip
            value = getattr(self, name)
            text += f", {name}={value}" if value != usual else ""
        return text


class RNN(_Recurrent):
    """h = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu."""

    gates = 1

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        dtype: DTypeLike | None = None,
    ) -> None:
        """Make layers; `dropout` is between them."""
        self.nonlinearity = nonlinearity
        sizes = (input_size, hidden_size, num_layers)
        self._setup(nonlinearity, sizes, bias, batch_first, dropout, bidirectional, dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return outputs (T, N, hidden) of (T, N, inputs), and the last states (layers and directions, N, hidden)."""
        outputs, last = self._run(input, None if hx is None else (hx,))
        return outputs, last[0]


class GRU(_Recurrent):
    """Gated recurrent units (Cho and others, 2014); gates r, z, n."""

    gates = 3

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        dtype: DTypeLike | None = None,
    ) -> None:
        """Make layers; `dropout` is between them."""
        sizes = (input_size, hidden_size, num_layers)
        self._setup("gru", sizes, bias, batch_first, dropout, bidirectional, dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return outputs (T, N, hidden) of (T, N, inputs), and the last states (layers and directions, N, hidden)."""
        outputs, last = self._run(input, None if hx is None else (hx,))
        return outputs, last[0]


class LSTM(_Recurrent):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997); gates i, f, g, o."""

    gates = 4
    states = 2

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        dtype: DTypeLike | None = None,
    ) -> None:
        """Make layers; `dropout` is between them."""
        sizes = (input_size, hidden_size, num_layers)
        self._setup("lstm", sizes, bias, batch_first, dropout, bidirectional, dtype)

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Return outputs (T, N, hidden) of (T, N, inputs), and the last (h, c), each (layers and directions, N,
        hidden).
        """
        outputs, last = self._run(input, hx)
        return outputs, (last[0], last[1])


class _Cell(Module):
    gates: ClassVar[int]

    def _setup(self, kind: str, input_size: int, hidden_size: int, bias: bool, dtype: DTypeLike | None) -> None:
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        self._advance = _step(kind)
        rows = self.gates * hidden_size
        self.weight_ih, self.weight_hh = empty(rows, input_size, dtype=dtype), empty(rows, hidden_size, dtype=dtype)
        self.bias_ih: Parameter | None = empty(rows, dtype=dtype) if bias else None
        self.bias_hh: Parameter | None = empty(rows, dtype=dtype) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters again, evenly up to 1 / sqrt(hidden_size)."""
        bound = 1 / math.sqrt(self.hidden_size) if self.hidden_size else 0.0
        for one in self.parameters():
            init.uniform_(one, -bound, bound)

    def _next(self, input: Tensor, hx: State | None, count: int) -> State:
        state = hx
        if state is None:
            state = (Tensor.zeros(*input.shape[:-1], self.hidden_size, dtype=input.dtype),) * count
        from_input = F.linear(input, self.weight_ih, self.bias_ih)
        return self._advance(from_input, F.linear(state[0], self.weight_hh, self.bias_hh), state)

    def extra_repr(self) -> str:
        """Return the sizes."""
        return f"{self.input_size}, {self.hidden_size}" + ("" if self.bias else ", bias=False")


class RNNCell(_Cell):
    """One step of an RNN."""

    gates = 1

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        dtype: DTypeLike | None = None,
    ) -> None:
        """Make a cell."""
        self._setup(nonlinearity, input_size, hidden_size, bias, dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """Return the next state (…, hidden)."""
        return self._next(input, None if hx is None else (hx,), 1)[0]


class GRUCell(_Cell):
    """One step of a GRU."""

    gates = 3

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, dtype: DTypeLike | None = None) -> None:
        """Make a cell."""
        self._setup("gru", input_size, hidden_size, bias, dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """Return the next state (…, hidden)."""
        return self._next(input, None if hx is None else (hx,), 1)[0]


class LSTMCell(_Cell):
    """One step of an LSTM."""

    gates = 4

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, dtype: DTypeLike | None = None) -> None:
        """Make a cell."""
        self._setup("lstm", input_size, hidden_size, bias, dtype)

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """Return the next (h, c)."""
        hidden, cell = self._next(input, hx, 2)
        return hidden, cell
