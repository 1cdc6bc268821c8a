"""The model of a launch: executions of blocks, rounds of groups, bytes against arithmetic. The kernels are small enough
to count by hand.
"""

import numpy as np
import pytest

from ringup.compiler.amd.instructions.traits import traits
from ringup.compiler.amd.roofline import block_turns, launch
from ringup.compiler.compile import compile_kernel
from ringup.compiler.kernel.contraction.fma import FmaTile
from ringup.compiler.machine.work import UNKNOWN_TURNS, loops, turns, work
from ringup.compiler.tensor import Size, Tensor
from ringup.compiler.tensor.order import prepared
from ringup.compiler.tune import jobs_of, modelled


def step_of(tensor, choice=None, target="gfx1100"):
    (job,) = jobs_of([tensor.node])
    return compile_kernel(job.kernel, job.signature, target, choice)


def zeros(*shape):
    return Tensor(np.zeros(shape, np.float32))


def test_a_copy_is_bound_by_memory_and_its_bytes_are_its_arrays():
    step = step_of(zeros(4096, 4096) + 1)
    cost = modelled(step)
    assert cost.bytes_moved == 2 * 4096 * 4096 * 4
    # One addition each.
    assert cost.flops == 4096 * 4096
    assert cost.bound == "memory"
    assert cost.cycles == cost.memory_cycles == pytest.approx(cost.bytes_moved / 960e9 * 2500e6, abs=1)
    assert cost.microseconds == pytest.approx(139.8, rel=0.01)


def test_a_product_s_operations_are_two_for_each_multiply_add():
    step = step_of(zeros(256, 512) @ zeros(512, 128), FmaTile(64, 64, 8, 8, 8, 1.0))
    assert modelled(step).flops == 2 * 256 * 512 * 128
    assert modelled(step).bytes_moved == 4 * (256 * 512 + 512 * 128 + 256 * 128)
    assert [turns(loop) for loop in loops(step.lowered.function)] == [512 // 8]
    times = block_turns(step.code, step.lowered.function)
    assert sorted(set(times)) == [1, 64]
    assert work(step.lowered.function).flops == 2 * 8 * 8 * 512


def test_a_matrix_instruction_s_operations_are_shared_by_its_lanes():
    halves = Tensor(np.zeros((128, 128), np.float16))
    step = step_of(halves @ halves.permute(1, 0))
    assert "matrix" in step.lowered.choice
    assert modelled(step).flops == 2 * 128**3


@pytest.mark.parametrize(
    ("target", "kind", "size", "flops", "share"),
    [
        ("gfx942", "float16", 1024, 512, 0.35),
        ("gfx942", "float16", 8192, 512, 0.9),
        ("gfx950", "float16", 1024, 1024, 0.35),
        ("gfx950", "float16", 4096, 1024, 0.9),
        ("gfx950", "float8_e4m3", 8192, 2048, 0.9),
    ],
)
def test_products_reach_a_share_of_the_peak_of_all_matrix_units(target, kind, size, flops, share):
    """`flops`: operations of a SIMD's unit in a cycle. A product of 1024 has fewer tiles than the card has units."""
    x, y = (Tensor.empty(size, size, dtype=kind) for _ in range(2))
    (job,) = jobs_of(prepared([(x.cast("float32") @ y.permute(1, 0).cast("float32")).node]))
    made = modelled(compile_kernel(job.kernel, job.signature, target))
    least = made.flops / (traits(target).compute_units * traits(target).simds * flops)
    assert made.flops == 2 * size**3
    assert least / made.cycles >= share


def test_more_groups_than_fit_take_rounds():
    step = step_of(zeros(64, 1024).softmax(-1))
    few, many, full, rest = (
        launch(step.code, step.binary, step.lowered.function, groups, 0) for groups in (1, 100_000, 260 * 384, 160)
    )
    assert few.rounds == 1
    assert few.resident <= many.resident
    # 16 waves on each of two SIMDs, groups of 8 waves: 4 groups on each of 96 units, 384 at once
    assert (step.binary.occupancy, step.binary.group_size) == (16, 256)
    assert many.rounds == 261
    assert many.resident == 16
    # The last round has 160 groups, two on each unit.
    assert (full.rounds, full.resident, rest.rounds, rest.resident) == (260, 16, 1, 8)
    assert full.compute_cycles % 260 == 0
    assert many.compute_cycles == full.compute_cycles + rest.compute_cycles
    assert many.compute_cycles > few.compute_cycles * many.rounds // 2


def test_a_loop_whose_length_is_not_known_counts_as_a_round_number_of_turns():
    n = Size("n", 1, 100_000)
    step = step_of(zeros(100_000)[:n].sum())
    assert UNKNOWN_TURNS in [turns(loop) for loop in loops(step.lowered.function)]
    assert modelled(step).cycles > 0


@pytest.mark.parametrize(("target", "units", "resident"), [("gfx1100", 96, 3), ("gfx1151", 40, 7), ("gfx1201", 64, 4)])
def test_targets_have_their_own_figures(target, units, resident):
    """256 groups of two waves, 7 of which fit on each SIMD. All run at once: 3 on most of 96 units, 7 on most of 40, 4
    on each of 64.
    """
    step = step_of(zeros(1024, 1024) @ zeros(1024, 1024), FmaTile(64, 64, 8, 8, 8, 1.0), target)
    cost = modelled(step)
    assert (step.binary.occupancy, step.binary.group_size) == (7, 64)
    assert (cost.rounds, cost.resident) == (1, resident)
    # two SIMDs of 32 lanes, dual issue, two operations
    peak = units * 2 * 32 * 2 * 2
    assert cost.flops / cost.cycles < peak
