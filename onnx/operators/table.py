"""The table of operators: by domain and name, the rows of each, the newest version last."""

from __future__ import annotations

from functools import cache

from ringup.onnx.common.node import DEFAULT_DOMAINS
from ringup.onnx.common.row import Row
from ringup.onnx.operators import (
    activations,
    attention,
    control,
    convolution,
    creation,
    elementwise,
    linear,
    loss,
    normalisation,
    places,
    pooling,
    quantised,
    recurrent,
    reductions,
    resize,
    sampling,
    shapes,
    signal,
)

# in the order of the list in docs/onnx.md
TOPICS = {
    "Elementwise": elementwise,
    "Activations": activations,
    "Reductions": reductions,
    "Matrix products": linear,
    "Shapes": shapes,
    "Creation, random": creation,
    "Places": places,
    "Convolution": convolution,
    "Pooling": pooling,
    "Normalisation": normalisation,
    "Recurrent": recurrent,
    "Attention": attention,
    "Quantised": quantised,
    "Resize": resize,
    "Sampling": sampling,
    "Signals": signal,
    "Losses, training": loss,
    "Control flow, sequences": control,
}


@cache
def table() -> dict[tuple[str, str], tuple[Row, ...]]:
    """Return the rows of each operator by (domain, name)."""
    found: dict[tuple[str, str], list[Row]] = {}
    for topic in TOPICS.values():
        for row in topic.ROWS:
            found.setdefault((row.domain, row.name), []).append(row)
    return {key: tuple(sorted(rows, key=lambda row: row.since)) for key, rows in found.items()}


def find(domain: str, name: str, opset: int) -> Row | None:
    """Return the row that holds for an operator of a version, None where there is none."""
    rows = table().get(("" if domain in DEFAULT_DOMAINS else domain, name), ())
    return next((row for row in reversed(rows) if row.since <= opset), None)
