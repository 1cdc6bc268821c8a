"""Random functions: selected code leaves in memory what the evaluator computes, on both engines."""

import re

import evaluate_machine
import numpy as np
import pytest
import random_machine
import run_selected

from ringup.compiler.amd.pipeline import finish
from ringup.compiler.amd.select.function import select
from ringup.silicon.shader.amd.interpreter.engine import Interpreter

OTHERS = 24


@pytest.mark.seeds(14)
def test_random_functions(same, seed):
    function, arguments, groups = random_machine.random_function(seed)
    same(function, arguments, groups, on=("interpreter",))


@pytest.mark.seeds(4, first=1000)
def test_random_functions_on_the_fast_core(same, seed):
    function, arguments, groups = random_machine.random_function(seed, 20)
    same(function, arguments, groups, on=("translator",))


@pytest.mark.seeds(14, first=3000)
def test_random_functions_through_every_pass(seed):
    """The passes after selection: scheduling, allocation, waits, dual issue, encoding."""
    function, arguments, groups = random_machine.random_function(seed)
    compare(function, arguments, groups, finish(select(function, "gfx1100")))


def compare(function, arguments, groups, binary, target="gfx1100"):
    expected, left = ([one.copy() if isinstance(one, np.ndarray) else one for one in arguments] for _ in range(2))
    evaluate_machine.evaluate(function, expected, groups)
    run_selected.run_binary(Interpreter(target=target), binary, function, left, groups)
    for i, (want, got) in enumerate(zip(expected, left, strict=True)):
        if isinstance(want, np.ndarray):
            assert (want.view(np.uint8) == got.view(np.uint8)).all(), f"argument {i}"


@pytest.mark.seeds(11, first=5000, also=(63,))
def test_random_functions_on_gfx942(seed):
    """Every fourth one with so few registers that some are spilled. Seed 63 spills a mask, which must not be in VCC."""
    function, arguments, groups = random_machine.random_function(seed, 40, 64)
    few = {"max_vgprs": 24, "max_sgprs": 28} if seed % 4 == 3 else {}
    compare(function, arguments, groups, finish(select(function, "gfx942"), **few), "gfx942")


@pytest.mark.parametrize("target", ["gfx1151", "gfx1201", "gfx942"])
def test_other_processors_have_every_instruction_that_is_chosen(llvm, target):
    """No virtual core runs these. LLVM's assembler must accept every line, in the forms of that processor."""
    runner, make = run_selected, random_machine.random_function
    for wave_size in (64,) if target == "gfx942" else (32, 64):
        texts = []
        for seed in range(2000, 2000 + OTHERS):
            function, _, _ = make(seed, 40, 64 if target == "gfx942" else 0)
            if function.wave_size == wave_size:
                text, _ = runner.text_of(select(function, target))
                texts.append(_renamed(text, seed))
        if texts:
            assert runner.assemble(llvm, "".join(texts), target, wave_size)


def _renamed(text, seed):
    """Rename the blocks of one kernel, so that labels are unique."""

    return re.sub(r"\bb(\d+)\b(?!:\[)", rf"k{seed}_\1", text)
