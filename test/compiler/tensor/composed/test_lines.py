"""Lines that users of PyTorch type give its shapes and values. `test/support/torch_values.py` computes them with
PyTorch 2.14.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from ringup.compiler.tensor import Tensor

WANTED = json.loads((Path(__file__).parents[3] / "data/torch/lines.txt").read_text())
# the tensors that the lines name
OF = WANTED.pop("of")


def tensor(numbers):
    """Return a tensor of the type that PyTorch gives numbers."""
    made = np.array(numbers)
    return Tensor(made.astype(np.float32 if made.dtype.kind == "f" else np.int64))


def check(found, wanted):
    if isinstance(wanted, dict):
        assert list(found.shape) == wanted["shape"]
        elements = np.array(wanted["elements"], np.float64)
        np.testing.assert_allclose(found.double().flatten().numpy(), elements, rtol=2e-5, atol=2e-6)
    elif isinstance(wanted, list):
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            check(one, other)
    else:
        assert found == (pytest.approx(wanted, rel=1e-5) if isinstance(wanted, float) else wanted)


@pytest.mark.parametrize("line", WANTED)
def test_a_line_of_pytorch(line):
    names = {name: tensor(numbers) for name, numbers in OF.items()}
    with np.errstate(all="ignore"):
        check(eval(line, {"F": Tensor, "f64": "float64", "tensor": tensor} | names), WANTED[line])
