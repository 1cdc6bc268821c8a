"""A graph that no kernel can compute gives one CompileError. It says what was asked, what was found and what to do."""

import numpy as np
import pytest

from ringup.compiler.amd.pipeline import finish
from ringup.compiler.amd.select.function import select
from ringup.compiler.compile import compile_graph
from ringup.compiler.graph import dtypes
from ringup.compiler.graph.nodes import Op, buffer, elementwise, node
from ringup.compiler.tensor import Size, Tensor
from ringup.errors import CompileError


def test_a_target_that_is_not_there():
    one = elementwise(Op.NEG, buffer(dtypes.float32, (4,)))
    with pytest.raises(
        CompileError, match=r"tensors cannot be compiled for gfx906; supported: gfx1100, gfx1151, gfx1201, gfx942"
    ):
        compile_graph([one], "gfx906")


def test_more_registers_than_there_are():
    """Kernels can spill to few registers. The operands of one instruction must fit nevertheless, and those of a matrix
    product take 24.
    """
    steps = []
    halves = [Tensor(np.ones((64, 64), np.float16)) for _ in range(2)]
    compile_graph([(halves[0] @ halves[1]).node], watch=steps.append)
    function = steps[0].lowered.function
    assert finish(select(function, "gfx1100"), max_vgprs=64).vgprs <= 64
    with pytest.raises(
        CompileError, match=r"at `v_wmma.* 24 VGPRs are needed at once .* there are 16; use narrower operands"
    ):
        finish(select(function, "gfx1100"), max_vgprs=16)


def test_a_value_from_before_an_assignment_that_waits_for_it():
    """A sum of memory before and after an assignment. No order of kernels gives both."""
    memory = buffer(dtypes.float32, (4,))
    stored = node(Op.STORE, dtypes.float32, (4,), (memory, elementwise(Op.NEG, memory)))
    now = node(Op.AFTER, dtypes.float32, (4,), (memory, stored))
    with pytest.raises(
        CompileError,
        match=r"needs a value that .* overwrites, and that store depends on the result: copy the value first",
    ):
        compile_graph([elementwise(Op.ADD, memory, now)])


def test_data_of_another_size(bench):
    one = elementwise(Op.NEG, buffer(dtypes.float32, (4,), "weights", bytes(12)))
    with pytest.raises(CompileError, match=r"weights.* needs 16 bytes, but its data has 12"):
        bench.device.evaluate([one], {})


def test_a_size_without_a_value(bench):
    part = Tensor(np.zeros(9, np.float32))[: Size("n", 1, 9)] + 1
    with pytest.raises(ValueError, match=r"n \(1 to 9\) has no value"):
        part.numpy()
