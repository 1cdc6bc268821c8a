"""Gradients pass through operators: compared with central differences in f64."""

import numpy as np
import onnx
import pytest

from ringup import Tensor, gradient
from ringup.onnx import load

# the graph of x, its shape
CASES = {
    "MaxPool": ("y = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(x)", (1, 2, 4, 4)),
    "AveragePool": ("y = AveragePool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x)", (1, 1, 4, 4)),
    "LpPool": ("y = LpPool<kernel_shape = [2, 2]>(x)", (1, 1, 3, 3)),
    "Resize": ('s = Constant<value = float[4] {1, 1, 2, 2}>() y = Resize<mode = "linear">(x, , s)', (1, 1, 3, 2)),
    "LayerNormalization": ("y = LayerNormalization<stash_type = 11>(x, one)", (3, 4)),
    "Softmax": ("y = Softmax(x)", (2, 5)),
    "Pad": ('p = Constant<value_ints = [0, 1, 0, 2]>() y = Pad<mode = "reflect">(x, p)', (2, 4)),
    "TopK": ("k = Constant<value_ints = [2]>() y, i = TopK(x, k)", (2, 5)),
    "GatherND": ("i = Constant<value = int64[3, 2] {0, 1, 1, 0, 0, 1}>() y = GatherND(x, i)", (2, 3)),
    "CumSum": ("a = Constant<value_int = 1>() y = CumSum<exclusive = 1>(x, a)", (2, 4)),
    "Det": ("y = Det(x)", (3, 3)),
    "LSTM": ("y, h, c = LSTM<hidden_size = 4>(x, w, r)", (3, 1, 4)),
    "GRU": ("y, h = GRU<hidden_size = 4>(x, w3, r3)", (3, 1, 4)),
    "DFT": ("y = DFT(x)", (1, 5, 1)),
}
WEIGHTS = {"one": (4,), "w": (1, 16, 4), "r": (1, 16, 4), "w3": (1, 12, 4), "r3": (1, 12, 4)}


def model_of(text, shape):
    """Return the model, with the weights it reads drawn from a fixed seed."""
    draw = np.random.default_rng(1)
    head = f'<ir_version: 8, opset_import: ["": 17]>\nm (double[{", ".join(map(str, shape))}] x'
    used = {name: size for name, size in WEIGHTS.items() if f" {name}," in text or f" {name})" in text}
    proto = onnx.parser.parse_model(f"{head}) => (double y) {{ {text} }}")
    proto.graph.initializer.extend(
        onnx.numpy_helper.from_array(draw.standard_normal(size), name) for name, size in used.items()
    )
    return load(proto)


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_the_differences(name, evaluator):
    text, shape = CASES[name]
    model, draw = model_of(text, shape), np.random.default_rng(0)
    values = draw.standard_normal(shape)
    x = Tensor(values)
    made = model(x)["y"]
    share = draw.standard_normal(made.shape)
    slope = gradient((made * Tensor(share)).sum(), [x])[0].numpy()
    step, wanted = 1e-5, np.zeros(shape)
    for place in np.ndindex(*shape):
        ends = []
        for sign in (1, -1):
            moved = values.copy()
            moved[place] += sign * step
            ends.append((model(moved)["y"].numpy() * share).sum())
        wanted[place] = (ends[0] - ends[1]) / (2 * step)
    np.testing.assert_allclose(slope, wanted, rtol=1e-5, atol=1e-7)
