"""Lines that users of PyTorch type give its shapes and values. `test/support/torch_values.py` computes them with
PyTorch 2.14.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from ringup import linalg
from ringup.compiler.tensor import Tensor
from ringup.nn import functional

WANTED = json.loads((Path(__file__).parents[3] / "data/torch/lines.txt").read_text())
# the tensors that the lines name
OF = WANTED.pop("of")
# lines that PyTorch refuses too, and what the error says here
REFUSED = json.loads((Path(__file__).parents[3] / "data/torch/refused.txt").read_text())


def tensor(numbers):
    """Return a tensor of the type that PyTorch gives numbers."""
    made = np.array(numbers)
    return Tensor(made if made.dtype.kind == "b" else made.astype(np.float32 if made.dtype.kind == "f" else np.int64))


# what lines name
WORDS = {"F": Tensor, "N": functional, "L": linalg, "f64": "float64", "i64": "int64", "tensor": tensor}


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
        check(eval(line, WORDS | names), WANTED[line])


@pytest.mark.parametrize("line", REFUSED)
def test_what_pytorch_refuses_is_an_error(line):
    x = Tensor([[0.5, -1.25, 2.0], [1.5, -0.75, -2.0]])
    with pytest.raises((ValueError, TypeError, IndexError), match=REFUSED[line]):
        eval(line, WORDS | {"x": x})
