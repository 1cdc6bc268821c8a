"""Recurrent layers beyond what `onnx` tests: coupled gates, unequal peepholes, bounds, both ways, lengths."""

import numpy as np
import onnx
import pytest

from ringup.onnx import load

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
CASES = {
    "coupled gates": ("LSTM", "input_forget = 1"),
    "a bound": ("LSTM", "clip = 0.25"),
    "both ways": ("GRU", 'direction = "bidirectional", linear_before_reset = 1'),
    "other functions": (
        "GRU",
        'activations = ["LeakyRelu", "HardSigmoid"], activation_alpha = [0.2, 0.3], activation_beta = [0.4]',
    ),
    "backward": ("RNN", 'direction = "reverse"'),
}
# onnxruntime 1.32
WANTED = {
    "coupled gates": [
        -0.13464,
        0.29253,
        0.53015,
        -0.40397,
        0.18683,
        0.3353,
        0.53162,
        -0.33988,
        0.44737,
        0.2832,
        0.0,
        0.0,
    ],
    "a bound": [-0.17023, 0.15575, 0.2515, -0.09271, -0.00914, 0.12802, 0.17298, 0.01072, 0.07077, 0.11566, 0.0, 0.0],
    "both ways": [
        -0.65265,
        -0.43004,
        0.66641,
        -0.29518,
        -0.8216,
        -0.00738,
        0.1803,
        -0.51018,
        -0.44594,
        -0.57143,
        0.36436,
        -0.48534,
        -0.81845,
        0.11994,
        0.21305,
        -0.28125,
        -0.2266,
        -0.80323,
        0.0,
        0.0,
        -0.82031,
        0.15774,
        0.0,
        0.0,
    ],
    "other functions": [
        -0.45949,
        0.42168,
        0.83253,
        0.08851,
        -0.31999,
        0.3917,
        0.67807,
        0.25589,
        -0.44996,
        0.11549,
        0.0,
        0.0,
    ],
    "backward": [0.96681, -0.92501, -0.4244, 0.49643, 0.95845, -0.92096, 0.05264, 0.27909, 0.63741, -0.62702, 0.0, 0.0],
}


def wave(start, *shape):
    return np.sin(np.arange(np.prod(shape)) * 1.7 + start).astype(np.float32).reshape(shape)


@pytest.mark.parametrize("name", CASES)
def test_recurrent_layers_are_what_onnxruntime_computes(name, evaluator):
    op, how = CASES[name]
    ways, gates = 2 if "bidirectional" in how else 1, GATES[op]
    shapes = {"x": (3, 2, 2), "w": (ways, gates * 2, 2), "r": (ways, gates * 2, 2), "b": (ways, gates * 4)}
    shapes |= {"h": (ways, 2, 2)} | ({"c": (ways, 2, 2), "p": (ways, 6)} if op == "LSTM" else {})
    head = ", ".join(f"float[{', '.join(map(str, shape))}] {one}" for one, shape in shapes.items())
    inputs = "x, w, r, b, n, h" + (", c, p" if op == "LSTM" else "")
    text = f"m ({head}, int32[2] n) => (float y) {{ y = {op}<hidden_size = 2, {how}>({inputs}) }}"
    model = load(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 14]>\n{text}'))
    given = {one: wave(start, *shape) for start, (one, shape) in enumerate(shapes.items())}
    made = model(**given, n=np.array([3, 2], np.int32))["y"].numpy()
    assert made.shape == (3, ways, 2, 2)
    np.testing.assert_allclose(made.ravel(), WANTED[name], atol=1e-5)
