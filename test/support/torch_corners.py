"""Write what PyTorch computes for `corner_cases`: values and gradients in f32 and f64, as JSON in
test/data/torch/corners.txt.

python test/support/torch_corners.py, with a Python that has PyTorch (2.14 for the file that is there)
"""

import json
import warnings
from pathlib import Path

import torch
from corner_cases import CASES

FILE = Path(__file__).resolve().parents[1] / "data/torch/corners.txt"
DIGITS = {"float32": 8, "float64": 12}


def flat(tensor, digits):
    return [float(f"{one:.{digits}g}") for one in tensor.double().reshape(-1).tolist()]


def computed(case, dtype):
    """Return the value of a case and the gradients by its arguments, each flattened."""
    kind = getattr(torch, dtype)
    operands = [torch.tensor(one, dtype=kind, requires_grad=True) for one in case.arguments]
    made = case.torch(torch, *operands)
    weights = torch.arange(1, made.numel() + 1, dtype=kind).reshape(made.shape)
    made.backward(weights if case.weighted else torch.ones_like(made))
    gradients = [one.grad if one.grad is not None else torch.zeros_like(one) for one in operands]
    return [flat(one, DIGITS[dtype]) for one in (made.detach(), *gradients)]


def main():
    warnings.simplefilter("ignore")
    made = {f"{name}, {dtype}": computed(case, dtype) for name, case in CASES.items() for dtype in DIGITS}
    lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in made.items()]
    FILE.parent.mkdir(parents=True, exist_ok=True)
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
