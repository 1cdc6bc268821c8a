"""Control flow, which the host decides, and values that are no tensors: sequences and optionals.

A condition that depends on data is computed when its node is reached; loops are unrolled.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ringup.compiler.tensor import Tensor
from ringup.onnx.common.node import Node
from ringup.onnx.common.row import Row
from ringup.onnx.common.values import Array, as_array, as_tensor, known_size, numbers

# a loop without end would unroll for ever
MAX_STEPS = 100_000


def _truth(value: Any) -> bool:
    return bool(as_array(value).reshape(-1)[0])


def _outputs(node: Node, values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else tuple(values)


def identity(node: Node, x: Any) -> Any:
    """Return the value."""
    return x


def branch(node: Node, condition: Any) -> Any:
    """Return what one of two graphs makes; the host looks at the condition."""
    return _outputs(node, node.graph("then_branch" if _truth(condition) else "else_branch")())


def loop(node: Node, most: Any, condition: Any, *states: Any) -> Any:
    """Return the states that a graph changes step by step, and what it gives out at each, stacked."""
    limit = MAX_STEPS if most is None else numbers(as_array(most))[0]
    body, kept, rows, step = node.graph("body"), list(states), [], 0
    going = condition is None or _truth(condition)
    while going and step < limit:
        made = body(np.array(step, np.int64), np.array(True), *kept)
        kept, step = made[1 : 1 + len(kept)], step + 1
        rows.append(made[1 + len(kept) :])
        going = _truth(made[0])
        if step == MAX_STEPS:
            raise node.refuse(f"a loop of more than {MAX_STEPS} steps, which are unrolled")
    columns = list(zip(*rows, strict=True)) if rows else []
    missing = len(node.outputs) - len(kept) - len(columns)
    empty = [Tensor.zeros((0,)) for _ in range(missing)] if not rows else []
    return _outputs(node, [*kept, *(_stacked(list(column), 0) for column in columns), *empty])


def _stacked(parts: list[Any], axis: int) -> Any:
    if all(isinstance(one, np.ndarray) for one in parts):
        return np.stack(parts, axis)
    return Tensor.stack([as_tensor(one) for one in parts], axis=axis)


def scan(node: Node, *values: Any) -> Any:
    """Return the states that a graph changes along an axis of its inputs, and what it gives out at each step."""
    if node.opset < 9:
        return _batched_scan(node, *values[1:])
    return _outputs(node, _scanned(node, list(values)))


def _scanned(node: Node, values: list[Any], *, old: bool = False) -> list[Any]:
    count = node.get("num_scan_inputs")
    kept, inputs = values[: len(values) - count], [as_tensor(one) for one in values[len(values) - count :]]
    axes = node.ints("scan_input_axes", [0] * count)
    backward = node.ints("directions" if old else "scan_input_directions", [0] * count)
    length = known_size(inputs[0].shape[axes[0]], str(node))
    body, rows = node.graph("body"), []
    for step in range(length):
        parts = []
        for one, axis, back in zip(inputs, axes, backward, strict=True):
            place = length - 1 - step if back else step
            parts.append(one[(*[slice(None)] * (axis % one.ndim), place)])
        made = body(*kept, *parts)
        kept = made[: len(kept)]
        rows.append(made[len(kept) :])
    columns = list(zip(*rows, strict=True))
    out_axes = node.ints("scan_output_axes", [0] * len(columns))
    out_back = node.ints("scan_output_directions", [0] * len(columns))
    stacks = [
        _stacked(list(column)[::-1] if back else list(column), axis)
        for column, axis, back in zip(columns, out_axes, out_back, strict=True)
    ]
    return [*kept, *stacks]


def _batched_scan(node: Node, *values: Any) -> Any:
    """Return opset 8's Scan: part by part of a batch, in its first axis."""
    whole = [as_tensor(one) for one in values]
    made = [
        _scanned(node, [one[place] for one in whole], old=True)
        for place in range(known_size(whole[0].shape[0], str(node)))
    ]
    return _outputs(node, [_stacked(list(parts), 0) for parts in zip(*made, strict=True)])


# sequences


def _place(at: Any, length: int) -> int:
    place = numbers(as_array(at))[0]
    return int(place + length if place < 0 else place)


def construct(node: Node, *parts: Any) -> list[Any]:
    """Return a sequence of values."""
    return list(parts)


def insert(node: Node, sequence: list[Any], value: Any, at: Any = None) -> list[Any]:
    """Return a sequence with a value put in, at its end unless said."""
    place = len(sequence) if at is None else _place(at, len(sequence))
    return [*sequence[:place], value, *sequence[place:]]


def erase(node: Node, sequence: list[Any], at: Any = None) -> list[Any]:
    """Return a sequence without one value, the last unless said."""
    place = len(sequence) - 1 if at is None else _place(at, len(sequence))
    return [*sequence[:place], *sequence[place + 1 :]]


def element(node: Node, sequence: list[Any], at: Any) -> Any:
    """Return a value of a sequence."""
    return sequence[_place(at, len(sequence))]


def length(node: Node, sequence: list[Any]) -> Array:
    """Return how many values a sequence has."""
    return np.array(len(sequence), np.int64)


def split_to_sequence(node: Node, x: Any, sizes: Any = None) -> list[Tensor]:
    """Return parts along an axis as a sequence: of one size, of sizes, or of one element each."""
    whole, axis = as_tensor(x), node.get("axis", 0)
    if sizes is None:
        parts = whole.split(1, axis)
        return parts if node.get("keepdims", 1) else [part.squeeze(axis) for part in parts]
    given = as_array(sizes)
    return whole.split(int(given) if given.ndim == 0 else numbers(given), axis)


def concat_sequence(node: Node, sequence: list[Any]) -> Tensor:
    """Return a sequence joined along an axis, or stacked along a new one."""
    parts, axis = [as_tensor(one) for one in sequence], node.get("axis")
    return Tensor.stack(parts, axis=axis) if node.get("new_axis", 0) else Tensor.cat(parts, axis=axis)


def sequence_map(node: Node, sequence: list[Any], *others: Any) -> Any:
    """Return sequences of what a graph makes of each value."""
    body = node.graph("body")
    rows = [
        body(one, *(other[place] if isinstance(other, list) else other for other in others))
        for place, one in enumerate(sequence)
    ]
    return _outputs(node, [list(column) for column in zip(*rows, strict=True)])


# optionals


def has_element(node: Node, value: Any = None) -> Array:
    """Return whether an optional has a value."""
    return np.array(value is not None)


def get_element(node: Node, value: Any) -> Any:
    """Return the value of an optional."""
    if value is None:
        raise ValueError(f"{node}: the optional has no value")
    return value


ROWS = (
    Row("Identity", identity, raw=True),
    Row("If", branch, raw=True),
    Row("Loop", loop, raw=True),
    Row("Scan", scan, raw=True),
    Row("SequenceConstruct", construct, raw=True),
    Row("SequenceEmpty", construct, raw=True),
    Row("SequenceInsert", insert, raw=True),
    Row("SequenceErase", erase, raw=True),
    Row("SequenceAt", element, raw=True),
    Row("SequenceLength", length, raw=True),
    Row("SplitToSequence", split_to_sequence, raw=True),
    Row("ConcatFromSequence", concat_sequence, raw=True),
    Row("SequenceMap", sequence_map, raw=True),
    Row("Optional", lambda node, value=None: value, raw=True),
    Row("OptionalHasElement", has_element, raw=True),
    Row("OptionalGetElement", get_element, raw=True),
)
