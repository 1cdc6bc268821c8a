"""An ONNX file on a card: what the model takes and gives, and a call with random inputs; beside onnxruntime, if there.

python examples/onnx_model.py virtual:navi31 FILE.onnx
"""

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

import ringup


def inputs_of(model: Any) -> dict[str, Any]:
    """Return random inputs; sizes that the file leaves open are 1."""
    draw, made = np.random.default_rng(0), {}
    for port in model.inputs:
        shape = [size if isinstance(size, int) else 1 for size in port.shape or ()]
        kind = np.dtype(port.dtype.numpy)
        made[port.name] = (draw.random(shape) if kind.kind == "f" else draw.integers(0, 2, shape)).astype(kind)
    return made


def main(name: str, file: str) -> None:
    model = ringup.onnx.load(file)
    print(model)
    inputs = inputs_of(model)
    with ringup.device(name):
        outputs = {key: one.numpy() for key, one in model(**inputs).items()}
    for key, one in outputs.items():
        print(f"{key} {one.dtype}{list(one.shape)}: {one.min():.6g} to {one.max():.6g}")
    if find_spec("onnxruntime"):
        session = import_module("onnxruntime").InferenceSession(file, providers=["CPUExecutionProvider"])
        for (key, one), other in zip(outputs.items(), session.run(None, inputs), strict=True):
            print(f"{key}: onnxruntime differs by {abs(one - other).max():.2g} at most")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
