"""Write what PyTorch computes for the cases of `optim_cases` and `layer_cases`, and for the lines that lines.txt holds:
test/data/torch/*.txt, in JSON.

python test/support/torch_values.py, with a Python that has PyTorch (2.14 for the files that are there) and NumPy
"""

import json
import warnings
from pathlib import Path

import layer_cases
import numpy as np
import optim_cases
import torch

# what lines name
WORDS = {
    "F": torch, "N": torch.nn.functional, "L": torch.linalg, "f64": torch.float64, "i64": torch.int64, "tensor": torch.tensor
}  # fmt: skip
FOLDER = Path(__file__).resolve().parents[1] / "data/torch"
DIGITS = 12


def parameter(array, dtype, wanted=True):
    return torch.tensor(array, dtype=getattr(torch, dtype), requires_grad=wanted)


def rounded(value):
    if isinstance(value, list):
        return [rounded(one) for one in value]
    if isinstance(value, dict):
        return {name: rounded(one) for name, one in value.items()}
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def write(name, values):
    """Write one case on each line."""
    lines = [f"{json.dumps(case)}: {json.dumps(rounded(value))}" for case, value in values.items()]
    (FOLDER / f"{name}.txt").write_text("{\n" + ",\n".join(lines) + "\n}\n")


def optimisers():
    for case, (name, options) in optim_cases.OPTIMISERS.items():
        yield (
            case,
            optim_cases.trajectory(
                parameter,
                lambda params, name=name, options=options: getattr(torch.optim, name)(params, **options),
                "float64",
            ),
        )


def schedules():
    optim = torch.optim
    for case, (name, options) in optim_cases.SCHEDULES.items():
        yield case, optim_cases.rates(parameter, optim, optim_cases.scheduled(optim, name, options))
    for case, options in optim_cases.PLATEAUS.items():
        yield case, optim_cases.rates(parameter, optim, optim_cases.scheduled(optim, "ReduceLROnPlateau", options))
    yield "in turn", optim_cases.rates(parameter, optim, optim_cases.in_turn(optim))
    yield "by parts of epochs", optim_cases.rates(parameter, optim, optim_cases.by_epochs(optim))
    yield "together", optim_cases.rates(parameter, optim, optim_cases.together(optim))


def tensor(array, wanted=False):
    made = torch.tensor(np.asarray(array))
    return made.double().requires_grad_(wanted) if made.is_floating_point() else made


def layers(cases):
    return {name: layer_cases.run(torch.nn, tensor, case) for name, case in cases.items()}


def plain(value):
    """Return the result of a line: shape and elements of a tensor, a list of results, a number."""
    if isinstance(value, torch.Tensor):
        return {"shape": list(value.shape), "elements": value.double().ravel().tolist()}
    return [plain(one) for one in value] if isinstance(value, (tuple, list)) else value


def lines():
    """Evaluate each line again, of float32 numbers; "of" holds the tensors that they name."""
    text = json.loads((FOLDER / "lines.txt").read_text())
    of = text.pop("of")
    yield "of", of
    for line in text:
        names = {name: torch.tensor(numbers) for name, numbers in of.items()}
        yield line, plain(eval(line, WORDS | names))


def refused():
    """Check that PyTorch refuses each line."""
    for line, of in json.loads((FOLDER / "refused.txt").read_text()).items():
        try:
            made = eval(line, WORDS | {"x": torch.tensor([[0.5, -1.25, 2.0], [1.5, -0.75, -2.0]])})
        except (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError):
            yield line, of
        else:
            raise ValueError(f"PyTorch makes {made} of {line}")


def main():
    warnings.simplefilter("ignore")
    write("lines", dict(lines()))
    write("refused", dict(refused()))
    # NAdam's product of momenta is kept in the default type
    torch.set_default_dtype(torch.float64)
    write("optimisers", dict(optimisers()))
    write("schedules", dict(schedules()))
    write("layers", layers(layer_cases.LAYERS))
    write("losses", layers(layer_cases.LOSSES))
    write("functions", layers(layer_cases.FUNCTIONS))


if __name__ == "__main__":
    main()
