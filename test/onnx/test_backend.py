"""The tests of operators that the `onnx` package carries, each loaded and run on the NumPy reference. What is listed in
`left_out.toml` fails for the reason said there; everything else passes.
"""

import contextlib
import io
import tomllib
import warnings
from fnmatch import fnmatchcase
from functools import cache
from importlib import import_module
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import ringup
from ringup.compiler.tensor import Tensor
from ringup.errors import RingupError
from ringup.onnx import load

PACKAGE = Path(onnx.__file__).parent
NODES = PACKAGE / "backend" / "test" / "case" / "node"
DATA = PACKAGE / "backend" / "test" / "data"
MODULES = sorted(
    ".".join(path.relative_to(NODES).with_suffix("").parts)
    for path in NODES.rglob("*.py")
    if not path.stem.startswith("_")
)
GROUPS = ("simple", "pytorch-converted", "pytorch-operator")
FOLDERS = sorted(f"{group}/{path.name}" for group in GROUPS for path in (DATA / group).iterdir() if path.is_dir())
# of onnx.backend.test.loader
RELATIVE, ABSOLUTE = 1e-3, 1e-7


@cache
def left_out():
    """Return the reasons for which tests are expected to fail, by pattern of their names."""
    rows = tomllib.loads((Path(__file__).parent / "left_out.toml").read_text())["left_out"]
    return {pattern: row["why"] for row in rows for pattern in row["tests"]}


def reason(name):
    return next((why for pattern, why in left_out().items() if fnmatchcase(name, pattern)), None)


def cases_of(module):
    """Return the cases that a module of the `onnx` package makes when it is imported first, kept for a second test."""
    made = import_module("onnx.backend.test.case.node")._NodeTestCases
    name = f"onnx.backend.test.case.node.{module}"
    found = import_module("onnx.backend.test.case.test_case")
    kept = found.__dict__.setdefault("ringup_cases", {})
    if name not in kept:
        before = len(made)
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            import_module(name)
        kept[name] = made[before:]
    return kept[name]


def as_input(value):
    """Return a value of a test case as a caller gives it."""
    if isinstance(value, onnx.TensorProto):
        value = numpy_helper.to_array(value)
    if value is None or isinstance(value, list):
        return value if value is None else [as_input(one) for one in value]
    return Tensor(np.asarray(value))


def assert_close(made, wanted, relative, absolute):
    """Compare as the `onnx` package's runner does: type, shape, elements."""
    if isinstance(wanted, onnx.TensorProto):
        wanted = numpy_helper.to_array(wanted)
    if wanted is None:
        assert made is None
    elif isinstance(wanted, list):
        assert len(made) == len(wanted)
        for one, other in zip(made, wanted, strict=True):
            assert_close(one, other, relative, absolute)
    else:
        wanted, made = np.asarray(wanted), made.numpy()
        assert (made.shape, made.dtype) == (wanted.shape, wanted.dtype)
        if made.dtype.name == "bfloat16":
            # two units in the last place, as the runner allows
            made, wanted, relative = made.astype(np.float32), wanted.astype(np.float32), max(relative, 2**-6)
        if made.dtype.name.startswith("float8"):
            made, wanted = made.astype(np.float32), wanted.astype(np.float32)
        np.testing.assert_allclose(made, wanted, rtol=relative, atol=absolute)


def failure(model, data_sets, relative, absolute):
    """Return what a case raises, or None."""
    try:
        loaded = load(model)
        for inputs, outputs in data_sets:
            made = loaded(*map(as_input, inputs)).values()
            for one, wanted in zip(made, outputs, strict=True):
                assert_close(one, wanted, relative, absolute)
    except (AssertionError, RingupError, TypeError, ValueError) as error:
        return error
    return None


def judge(name, found):
    """Fail where a case fails that is not listed, or passes though it is."""
    why = reason(name)
    if found is not None and why is None:
        raise AssertionError(f"{name}: {found}") from found
    assert found is not None or why is None, f"{name} passes, and is listed in left_out.toml: {why}"


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.sweep(22)
def test_cases_of_operators_pass(module, evaluator):
    cases = cases_of(module)
    for case in cases:
        judge(case.name, failure(case.model, case.data_sets, case.rtol, case.atol))


@pytest.fixture(scope="module")
def card():
    with ringup.open("virtual:navi31") as made:
        yield made


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.sweep(3)
def test_cases_of_operators_pass_on_a_virtual_card(module, card):
    with ringup.device(card):
        for case in cases_of(module):
            judge(case.name, failure(case.model, case.data_sets, case.rtol, case.atol))


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.sweep(22)
def test_models_of_other_projects_pass(folder, evaluator):
    path = DATA / folder
    graph = onnx.load(path / "model.onnx").graph
    sets = [
        (values(one, "input", graph.input), values(one, "output", graph.output))
        for one in sorted(path.glob("test_data_set_*"))
    ]
    assert sets
    judge(folder, failure(path / "model.onnx", sets, RELATIVE, ABSOLUTE))


def values(folder, word, ports):
    """Return the stored inputs or outputs of a model."""
    paths = sorted(folder.glob(f"{word}_*.pb"), key=lambda path: int(path.stem.partition("_")[2]))
    return [value(path.read_bytes(), port) for path, port in zip(paths, ports, strict=False)]


def value(data, port):
    if port.type.HasField("sequence_type"):
        return [numpy_helper.to_array(one) for one in onnx.SequenceProto.FromString(data).tensor_values]
    return numpy_helper.to_array(onnx.TensorProto.FromString(data))


@pytest.mark.fuzz
def test_every_pattern_of_the_list_is_of_a_case():
    names = [case.name for module in MODULES for case in cases_of(module)] + FOLDERS
    assert len(names) > 1900
    assert [pattern for pattern in left_out() if not any(fnmatchcase(name, pattern) for name in names)] == []
