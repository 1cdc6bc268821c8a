"""Recurrent layers: RNN, GRU and LSTM, step by step over the sequence, which makes a graph as long as it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ringup.compiler.tensor import Tensor
from ringup.onnx.common.node import Node
from ringup.onnx.common.row import Row
from ringup.onnx.common.values import known_size

Function = Callable[[Tensor], Tensor]

# name: the function of (x, alpha, beta), with the defaults of onnx.ai's Operators.md
FUNCTIONS: dict[str, tuple[Callable[[Tensor, Any, Any], Tensor], float | None, float | None]] = {
    "relu": (lambda x, a, b: x.relu(), None, None),
    "tanh": (lambda x, a, b: x.tanh(), None, None),
    "sigmoid": (lambda x, a, b: x.sigmoid(), None, None),
    "affine": (lambda x, a, b: x * a + b, 1.0, 0.0),
    "leakyrelu": (lambda x, a, b: x.leaky_relu(a), 0.01, None),
    "thresholdedrelu": (lambda x, a, b: (x >= a).where(x, 0.0), 1.0, None),
    "scaledtanh": (lambda x, a, b: (x * b).tanh() * a, 1.0, 1.0),
    "hardsigmoid": (lambda x, a, b: (x * a + b).clip(0, 1), 0.2, 0.5),
    "elu": (lambda x, a, b: x.elu(a), 1.0, None),
    "softsign": (lambda x, a, b: x.softsign(), None, None),
    "softplus": (lambda x, a, b: x.softplus(), None, None),
}

# how many of the functions, which come first, are of gates
GATED = 2


class Direction(NamedTuple):
    """One direction's share: weights of inputs and of states, biases of both, states to begin with, functions."""

    weight: Tensor
    recurrence: Tensor
    input_bias: Tensor | None
    state_bias: Tensor | None
    states: list[Tensor]
    peepholes: list[Tensor] | None
    functions: list[Function]
    hidden: int


Step = Callable[[Node, Direction, Tensor, list[Tensor]], list[Tensor]]


def _functions(node: Node, directions: int, default: tuple[str, ...]) -> list[list[Function]]:
    """Return the functions of each direction, with their constants."""
    names = [name.lower() for name in node.get("activations", default * directions)]
    # each function takes the next one, if it has such a constant
    alphas, betas = iter(node.get("activation_alpha", ())), iter(node.get("activation_beta", ()))
    made: list[Function] = []
    each = len(default)
    for place, name in enumerate(names):
        if name not in FUNCTIONS:
            raise node.refuse(f"the activation {name!r}")
        function, alpha, beta = FUNCTIONS[name]
        alpha = alpha if alpha is None else next(alphas, alpha)
        beta = beta if beta is None else next(betas, beta)
        # as onnxruntime has it, the inputs of gates are bounded, and the cell, of which an LSTM's third is, is not
        made.append(_bound(function, alpha, beta, node.get("clip") if place % each < GATED else None))
    return [made[i * each : (i + 1) * each] for i in range(directions)]


def _bound(
    function: Callable[[Tensor, Any, Any], Tensor], alpha: float | None, beta: float | None, clip: float | None
) -> Function:
    return lambda x: function(x if clip is None else x.clip(-clip, clip), alpha, beta)


def layer(step: Step, gates: int, states: int, default: tuple[str, ...]) -> Callable[..., tuple[Tensor, ...]]:
    """Return an operator that runs a step over a sequence, forward, backward or both."""

    def run(
        node: Node,
        x: Tensor,
        weight: Tensor,
        recurrence: Tensor,
        bias: Tensor | None = None,
        lengths: Tensor | None = None,
        *rest: Tensor | None,
    ) -> tuple[Tensor, ...]:
        hidden, flipped = known_size(recurrence.shape[-1], str(node)), bool(node.get("layout", 0))
        x = x.transpose(0, 1) if flipped else x
        ways = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[node.get("direction", "forward")]
        functions = _functions(node, len(ways), default)
        begin = [
            Tensor.zeros((len(ways), x.shape[1], hidden), dtype=x.dtype)
            if place >= len(rest) or (one := rest[place]) is None
            else one.transpose(0, 1) if flipped else one
            for place in range(states)
        ]  # fmt: skip
        peepholes = rest[states] if len(rest) > states else None
        outputs, last = [], []
        for place, backward in enumerate(ways):
            own = Direction(
                weight[place], recurrence[place],
                None if bias is None else bias[place, : gates * hidden],
                None if bias is None else bias[place, gates * hidden :],
                [one[place] for one in begin],
                None if peepholes is None else peepholes[place].split(hidden),
                functions[place], hidden,
            )  # fmt: skip
            made, ends = _over(node, step, own, x, lengths, backward=backward)
            outputs.append(made)
            last.append(ends)
        # (length, directions, batch, hidden), and states (directions, batch, hidden)
        whole = Tensor.stack(outputs, axis=1)
        ends = [Tensor.stack(list(one)) for one in zip(*last, strict=True)]
        if flipped:
            return whole.permute(2, 0, 1, 3), *(one.transpose(0, 1) for one in ends)
        return whole, *ends

    return run


def _over(
    node: Node, step: Step, own: Direction, x: Tensor, lengths: Tensor | None, *, backward: bool
) -> tuple[Tensor, list[Tensor]]:
    """Return the outputs of one direction, and its last states."""
    count = known_size(x.shape[0], str(node))
    states, outputs = own.states, []
    # the products of all inputs at once
    inputs = x.matmul(own.weight.mT)
    if own.input_bias is not None:
        inputs = inputs + own.input_bias
    for place in range(count - 1, -1, -1) if backward else range(count):
        made = step(node, own, inputs[place], states)
        if lengths is not None:
            inside = (lengths > place).unsqueeze(1)
            states = [inside.where(new, old) for new, old in zip(made, states, strict=True)]
            outputs.append(inside.where(made[0], 0.0))
        else:
            states = made
            outputs.append(made[0])
    return Tensor.stack(outputs[::-1] if backward else outputs), states


def _recurred(own: Direction, state: Tensor, part: slice | None = None) -> Tensor:
    """Return the product of a state with its weights, or with those of some gates, and the bias."""
    weight = own.recurrence if part is None else own.recurrence[part]
    made = state.matmul(weight.mT)
    if own.state_bias is None:
        return made
    return made + (own.state_bias if part is None else own.state_bias[part])


def rnn_step(node: Node, own: Direction, inputs: Tensor, states: list[Tensor]) -> list[Tensor]:
    """Return the next state of an RNN."""
    return [own.functions[0](inputs + _recurred(own, states[0]))]


def _gates(x: Tensor, hidden: int) -> Iterator[Tensor]:
    yield from x.split(hidden, 1)


def gru_step(node: Node, own: Direction, inputs: Tensor, states: list[Tensor]) -> list[Tensor]:
    """Return the next state of a GRU; gates lie as update, reset, new."""
    (state,), hidden = states, own.hidden
    f, g = own.functions
    update, reset, new = _gates(inputs, hidden)
    mine = _recurred(own, state, slice(0, 2 * hidden))
    update, reset = f(update + mine[:, :hidden]), f(reset + mine[:, hidden:])
    last = slice(2 * hidden, 3 * hidden)
    late = bool(node.get("linear_before_reset", 0))
    new = g(new + (reset * _recurred(own, state, last) if late else _recurred(own, reset * state, last)))
    return [(1 - update) * new + update * state]


def lstm_step(node: Node, own: Direction, inputs: Tensor, states: list[Tensor]) -> list[Tensor]:
    """Return the next states of an LSTM; gates lie as input, output, forget, cell, peepholes as the first three."""
    state, cell = states
    f, g, h = own.functions
    enter, leave, forget, new = _gates(inputs + _recurred(own, state), own.hidden)
    if own.peepholes is not None:
        enter, forget = enter + own.peepholes[0] * cell, forget + own.peepholes[2] * cell
    entered = f(enter)
    # with coupled gates, what enters takes the place of what is forgotten
    held = 1 - entered if node.get("input_forget", 0) else f(forget)
    cell = held * cell + entered * g(new)
    if own.peepholes is not None:
        leave = leave + own.peepholes[1] * cell
    return [f(leave) * h(cell), cell]


ROWS = (
    Row("RNN", layer(rnn_step, 1, 1, ("Tanh",))),
    Row("GRU", layer(gru_step, 3, 1, ("Sigmoid", "Tanh"))),
    Row("LSTM", layer(lstm_step, 4, 2, ("Sigmoid", "Tanh", "Tanh"))),
)
