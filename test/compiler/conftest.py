"""Fixtures for compiled code: LLVM's assembler, the evaluator of machine IR, and the virtual cores that run selected
code.
"""

from pathlib import Path

import attention_numpy
import evaluate_machine
import numpy as np
import on_cores
import pytest
import run_selected

from ringup.autogen.generate.isa.probe import llvm_mc
from ringup.compiler.amd.select.function import select
from ringup.compiler.tensor import device
from ringup.silicon.shader.amd.interpreter.engine import Interpreter
from ringup.silicon.shader.amd.translator.engine import Translator


def pytest_generate_tests(metafunc):
    """Under `--fuzz` tests on the cores run with code for the other processors too."""
    if "on_cores.Cores()" in Path(metafunc.module.__file__).read_text():
        found = [
            "gfx1100",
            *(pytest.param(one, marks=pytest.mark.fuzz) for one in ("gfx1151", "gfx1201", "gfx942", "gfx950")),
        ]
        metafunc.parametrize("processor_of_cores", found, indirect=True)


@pytest.fixture(autouse=True)
def processor_of_cores(request, monkeypatch):
    """The processor that `on_cores.Cores()` compiles for and is."""
    target = getattr(request, "param", "gfx1100")
    monkeypatch.setattr(on_cores.Cores, "target", target)
    return target


@pytest.fixture(scope="session")
def llvm(headers):
    """The command that runs llvm-mc 22."""
    return llvm_mc(headers("llvm-22"))


@pytest.fixture(scope="session")
def beside(llvm):
    """`beside(function, arguments, groups)` evaluates and runs a kernel on copies of its arguments.

    Returns the arguments as the evaluator left them and a list of those that each engine left.
    """
    engines = {"interpreter": Interpreter(), "translator": Translator()}

    def copies(arguments):
        return [one.copy() if isinstance(one, np.ndarray) else one for one in arguments]

    def run(function, arguments, groups=(1, 1, 1), *, on=("interpreter",), layout=None):
        expected = copies(arguments)
        evaluate_machine.evaluate(function, expected, groups, layout)
        code = select(function, "gfx1100")
        text, places = run_selected.text_of(code)
        machine_code = run_selected.assemble(llvm, text, "gfx1100", function.wave_size)
        found = []
        for name in on:
            left = copies(arguments)
            run_selected.run(engines[name], machine_code, code, function, left, groups, places)
            found.append(left)
        return expected, found

    return run


@pytest.fixture(scope="session")
def same(beside):
    """`same(function, arguments, groups)` asserts that selected code and the evaluator leave the same bits in
    memory.
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
def numpy():
    """Return attention as NumPy computes it."""
    return attention_numpy


@pytest.fixture
def computed(numpy):
    """`computed(kind, q, k, v, ...)` computes attention of that type in one kernel and returns it as f32."""

    def run(kind, *arrays, **options):
        cores = on_cores.Cores()
        with device(cores):
            q, k, v = (numpy.tensor(kind, one) for one in arrays)
            found = q.scaled_dot_product_attention(k, v, **options).numpy().astype(np.float32)
        assert len(cores.graph.launches) == 1
        return found

    return run
