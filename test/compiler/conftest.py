"""Fixtures for compiled code: LLVM's assembler, the evaluator of machine IR, and selected code run beside it on the
virtual cores.
"""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from ringup.autogen.generate.isa.probe import llvm_mc
from ringup.compiler.rdna.select.function import select
from ringup.compiler.tensor import device
from ringup.silicon.shader.rdna.interpreter.engine import Interpreter
from ringup.silicon.shader.rdna.translator.engine import Translator


def _module(name):
    """Load a module that lies beside this one, once."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


@pytest.fixture(scope="session")
def module():
    """`module("evaluate_machine")` is a module of this folder that tests share."""
    return _module


@pytest.fixture(scope="session")
def llvm(headers):
    """The command that runs llvm-mc 22."""
    return llvm_mc(headers("llvm-22"))


@pytest.fixture(scope="session")
def beside(llvm):
    """`beside(function, arguments, groups)` evaluates and runs a kernel on copies of its arguments.

    Returns the arguments as the evaluator left them and a list of those that each engine left.
    """
    evaluator, runner = _module("evaluate_machine"), _module("run_selected")
    engines = {"interpreter": Interpreter(), "translator": Translator()}

    def copies(arguments):
        return [one.copy() if isinstance(one, np.ndarray) else one for one in arguments]

    def run(function, arguments, groups=(1, 1, 1), *, on=("interpreter",), layout=None):
        expected = copies(arguments)
        evaluator.evaluate(function, expected, groups, layout)
        code = select(function, "gfx1100")
        text, places = runner.text_of(code)
        machine_code = runner.assemble(llvm, text, "gfx1100", function.wave_size)
        found = []
        for name in on:
            left = copies(arguments)
            runner.run(engines[name], machine_code, code, function, left, groups, places)
            found.append(left)
        return expected, found

    return run


@pytest.fixture(scope="session")
def same(beside):
    """`same(function, arguments, groups)` asserts that selected code leaves in memory, bit for bit, what the evaluator
    does.
    """

    def check(function, arguments, groups=(1, 1, 1), *, on=("interpreter", "translator"), layout=None):
        expected, found = beside(function, arguments, groups, on=on, layout=layout)
        for engine, left in zip(on, found, strict=True):
            for i, (want, got) in enumerate(zip(expected, left, strict=True)):
                if isinstance(want, np.ndarray):
                    wrong = (
                        np.flatnonzero(want.reshape(-1).view(np.uint8) != got.reshape(-1).view(np.uint8))
                        // want.itemsize
                    )
                    assert not len(wrong), (
                        f"{engine}: argument {i}: {len(wrong)} bytes differ, first element {wrong[0]}: "
                        f"{got.reshape(-1)[wrong[0]]!r}, not {want.reshape(-1)[wrong[0]]!r}"
                    )
        return expected

    return check


@pytest.fixture
def numpy(module):
    """What NumPy says of attention."""
    return module("attention_numpy")


@pytest.fixture
def computed(module, numpy):
    """`computed(kind, q, k, v, ...)`: an attention of that type as f32, made by one kernel."""

    def run(kind, *arrays, **options):
        cores = module("on_cores").Cores()
        with device(cores):
            q, k, v = (numpy.tensor(kind, one) for one in arrays)
            found = q.scaled_dot_product_attention(k, v, **options).numpy().astype(np.float32)
        assert len(cores.graph.launches) == 1
        return found

    return run
