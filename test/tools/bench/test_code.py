"""The code bench. Machine IR compiled by LLVM computes the same bits as code of our back end. A listing counts the
instructions of the code.
"""

import json

import numpy as np
import pytest

from ringup.compiler.amd.objects import object_of
from ringup.compiler.amd.pipeline import finish
from ringup.compiler.amd.select.function import select
from ringup.compiler.amd.target import arguments_of
from ringup.compiler.compile import compile_graph
from ringup.compiler.graph.index import variable
from ringup.compiler.isa.amd.assembly.assembler import Assembler
from ringup.compiler.isa.amd.encoding.processor import processor
from ringup.compiler.isa.amd.objects import elf_read
from ringup.compiler.machine.build import Builder
from ringup.compiler.machine.ir import BF16, F16, F32, F64, I1, I8, I16, I32, I64, Function, Param, Region, Value
from ringup.compiler.tensor import Tensor
from ringup.errors import CompileError, NotSupported, RingupError
from ringup.silicon.shader import workbench
from ringup.silicon.shader.amd.translator.engine import Translator
from ringup.silicon.shader.program import load
from ringup.tools.bench.bench import Bench
from ringup.tools.bench.benches import code
from ringup.tools.bench.listing import listing, traces
from ringup.tools.bench.llvm import back_end, ir
from ringup.tools.competitor.environment import Peer

TARGET = "gfx1100"


def floats(*sizes, dtype="float32"):
    return Tensor.empty(*sizes, dtype=dtype)


def steps_of(tensor, target=TARGET):
    found = []
    compile_graph([tensor.node], target, watch=found.append)
    return found


GRAPHS = {
    "sum of products": lambda: floats(40, 56) @ floats(56, 72),
    "matrix instructions": lambda: floats(64, 96, dtype="float16") @ floats(96, 64, dtype="float16"),
    "matrix instructions, bf16": lambda: floats(64, 64, dtype="bfloat16").cast("float32") @ floats(64, 64, dtype="bfloat16").cast("float32"),
    "softmax": lambda: floats(5, 300).softmax(-1),
    "layer norm": lambda: floats(3, 2000).layer_norm(),
    "padded convolution": lambda: floats(1, 5, 9, 9).conv2d(floats(7, 5, 3, 3), padding=1),
    "attention": lambda: floats(1, 2, 24, 16).scaled_dot_product_attention(floats(1, 2, 24, 16), floats(1, 2, 24, 16)),
    "functions": lambda: (floats(77).exp() + floats(77).abs().log() * floats(77).sin() - floats(77).sigmoid() / floats(77).tanh()).gelu(),
    "roots and quotients": lambda: floats(65).abs().sqrt() + floats(65).abs().rsqrt() / (floats(65) + 3),
    "doubles": lambda: floats(33, dtype="float64") / (floats(33, dtype="float64").abs().sqrt() + 1),
    "whole numbers": lambda: ((floats(99) * 1000).cast("int32") // 7 + (floats(99) * 1000).cast("int64") % 13).cast("float32"),
    "narrow numbers": lambda: ((floats(50) * 9).cast("int8").cast("int16") * 3 + (floats(50).abs() * 9).cast("uint8")).cast("float16"),
    "where it is greater": lambda: (floats(6, 7) > floats(6, 7)).where(floats(6, 7).floor(), floats(6, 7).round()),
    "greatest of a row": lambda: floats(9, 130).argmax(-1).cast("float32"),
    "running sum": lambda: floats(4, 100).cumsum(1),
}  # fmt: skip


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.sweep(6)
def test_llvm_computes_the_same_bits_of_the_same_machine_ir(graph):
    for step in steps_of(GRAPHS[graph]()):
        outputs = []
        for elf in (object_of([step.binary]), back_end.code_object(ir.module(step.lowered.function), TARGET)):
            outputs.append(code.data_for(step))
            code.run(elf, step, outputs[-1])
        written = [one.written for one in step.lowered.function.params]
        assert any(np.any(one) for one, is_output in zip(outputs[0], written, strict=True) if is_output)
        for ours, theirs in zip(*outputs, strict=True):
            assert np.array_equal(ours.view(np.uint8), theirs.view(np.uint8)) or np.array_equal(
                ours, theirs, equal_nan=True
            )


def both(build, *arrays):
    """Run one hand-written function through both back ends. Return what each left in the arrays."""
    function = build.function
    binary = finish(select(function, TARGET), arguments=arguments_of(function.params))
    found = []
    for elf in (object_of([binary]), back_end.code_object(ir.module(function), TARGET)):
        found.append([one.copy() for one in arrays])
        workbench.run(
            Translator(), load(elf), function.name, found[-1], groups=(1, 1, 1), group_size=(function.group_size, 1, 1)
        )
    return found


def started(group_size=64, count=3, lds_bytes=0):
    """Return a builder of a kernel over `count` buffers of 4 KiB, and the byte offset of its thread's dword. The kernel
    writes the first buffer.
    """
    params = [Param(f"m{i}", I64, True, i == 0, 4096) for i in range(count)]
    build = Builder("made", params, group_size)
    build.function.lds_bytes = lds_bytes
    return build, build.mul(build.op("thread_id", I32), 4)


def dwords(seed, count=1024):
    return np.random.default_rng(seed).integers(0, 1 << 32, count, np.uint32)


def same(found):
    ours, theirs = found
    for a, b in zip(ours, theirs, strict=True):
        assert np.array_equal(a, b)
    return ours


def test_a_loop_that_may_not_run_leaves_what_it_began_with():
    build, at = started()
    limit = build.op(
        "first_lane", I32, build.op("and", I32, build.load(I32, build.param(1), build.const(0)), build.const(7))
    )
    first = build.load(I32, build.param(2), at)
    with build.loop(0, limit, 2, [first]) as loop:
        loop.following.append(build.add(loop.carried[0], build.add(loop.index, 5)))
    build.store(build.param(0), at, loop.results[0])
    for count in (0, 3, 7):
        a = np.full(1024, count, np.uint32)
        made = same(both(build, np.zeros(1024, np.uint32), a, dwords(1)))
        rounds = range(0, count, 2)
        assert np.array_equal(made[0][:64], made[2][:64] + np.uint32(sum(rounds) + 5 * len(rounds)))


def test_conditions_guard_accesses_and_masks_give_zero():
    build, at = started()
    value = build.load(I32, build.param(1), at)
    odd = build.compare("ne", build.op("and", I32, value, build.const(1)), build.const(0))
    build.store(build.param(0), at, build.load(I32, build.param(2), at, mask=odd))
    build.store(build.param(0), at, value, constant=1024, mask=odd)
    with build.when(odd):
        build.store(build.param(0), at, build.const(77), constant=2048)
    made = same(both(build, np.zeros(1024, np.uint32), dwords(2), dwords(3)))
    is_odd = made[1][:64] & 1 == 1
    assert np.array_equal(made[0][:64], np.where(is_odd, made[2][:64], 0))
    assert np.array_equal(made[0][256:320], np.where(is_odd, made[1][:64], 0))
    assert np.array_equal(made[0][512:576], np.where(is_odd, 77, 0))


@pytest.mark.parametrize("distance", [1, 6, 8, 15, 16, 21, 31])
def test_lanes_exchange(distance):
    build, at = started(32)
    value = build.load(I32, build.param(1), at)
    build.store(build.param(0), at, build.op("shuffle_xor", I32, value, imm=distance))
    other = build.op("and", I32, build.load(I32, build.param(2), at), build.const(31))
    build.store(build.param(0), at, build.op("shuffle", I32, value, other), constant=1024)
    build.store(build.param(0), at, build.op("read_lane", I32, value, imm=distance), constant=2048)
    made = same(both(build, np.zeros(1024, np.uint32), dwords(4), dwords(5)))
    assert np.array_equal(made[0][:32], made[1][np.arange(32) ^ distance])
    assert np.array_equal(made[0][256:288], made[1][made[2][:32] & 31])
    assert (made[0][512:544] == made[1][distance]).all()


@pytest.mark.parametrize("type_", [F16, I16, I64, F64, F32.of(2)])
def test_values_of_other_widths_exchange_too(type_):
    build, _ = started(32)
    wide = build.mul(build.op("thread_id", I32), type_.size_bytes)
    value = build.load(type_, build.param(1), wide)
    moved = build.op("shuffle_xor", type_, value, imm=5) if type_.count == 1 else value
    build.store(build.param(0), wide, moved)
    made = same(both(build, np.zeros(1024, np.uint32), dwords(6), dwords(7)))
    before = made[1].view(np.uint8)[: 32 * type_.size_bytes].reshape(32, -1)
    after = made[0].view(np.uint8)[: 32 * type_.size_bytes].reshape(32, -1)
    assert np.array_equal(after, before[np.arange(32) ^ 5] if type_.count == 1 else before)


def test_a_group_turns_its_threads_round_through_lds():
    build, at = started(256, lds_bytes=1024)
    build.lds_store(at, build.load(I32, build.param(1), at))
    build.barrier()
    back = build.op("sub", I32, build.const(1020), at)
    build.store(build.param(0), at, build.lds_load(I32, back))
    made = same(both(build, np.zeros(1024, np.uint32), dwords(8), dwords(9)))
    assert np.array_equal(made[0][:256], made[1][:256][::-1])


@pytest.mark.parametrize("name", ["add", "sub", "and", "or", "xor", "swap", "min_s", "max_s", "min_u", "max_u"])
def test_memory_is_changed_by_atomics(name):
    build, at = started()
    old = build.op("atomic", I32, build.param(0), at, build.load(I32, build.param(1), at), imm=(name, 0))
    build.store(build.param(0), at, old, constant=2048)
    made = same(both(build, dwords(10), dwords(11), dwords(12)))
    assert np.array_equal(made[0][512:576], dwords(10)[:64])


WHOLE = [
    "add",
    "sub",
    "mul",
    "mul_hi_u",
    "mul_hi_s",
    "and",
    "or",
    "xor",
    "min_s",
    "max_s",
    "min_u",
    "max_u",
    "div_u",
    "rem_u",
    "div_s",
    "rem_s",
]


@pytest.mark.parametrize("op", WHOLE)
def test_whole_numbers(op):
    build, at = started()
    a, b = (build.load(I32, build.param(i), at) for i in (1, 2))
    build.store(build.param(0), at, build.op(op, I32, a, build.op("or", I32, b, build.const(1))))
    same(both(build, np.zeros(1024, np.uint32), dwords(13), dwords(14) >> 7))


@pytest.mark.parametrize("type_", [I16, I32, I64])
def test_shifts_of_every_width(type_):
    build, at = started()
    wide = build.mul(build.op("thread_id", I32), type_.size_bytes)
    value = build.load(type_, build.param(1), wide)
    amount = build.op("and", I32, build.load(I32, build.param(2), at), build.const(type_.bits - 1))
    for i, op in enumerate(("shl", "shr_u", "shr_s")):
        build.store(build.param(0), wide, build.op(op, type_, value, amount), constant=1024 * i)
    same(both(build, np.zeros(1024, np.uint32), dwords(15), dwords(16)))


def test_bits_are_counted_and_products_widened():
    build, at = started()
    a, b = (build.load(I32, build.param(i), at) for i in (1, 2))
    made = [
        build.op("bit_count", I32, a), build.op("leading_zeros", I32, build.op("shr_u", I32, a, build.op("and", I32, b, build.const(31)))),
        build.op("mad", I32, a, b, a), build.op("dot4_s", I32, a, b, a), build.op("dot4_u", I32, a, b, b), build.op("not", I32, a),
        build.op("truncate", I32, build.op("shr_u", I64, build.op("mad_wide_u", I64, a, b, build.op("zext", I64, a)), build.const(32))),
        build.op("select", I32, build.op("not", I1, build.compare("lt_u", a, b)), a, b),
        build.op("zext", I32, build.compare("le_s", a, b)), build.op("sext", I32, build.op("truncate", I16, a)),
    ]  # fmt: skip
    for i, one in enumerate(made):
        build.store(build.param(0), at, one, constant=256 * i)
    same(both(build, np.zeros(1024, np.uint32), dwords(17), dwords(18)))


def test_conversions_of_floats():
    build, at = started()
    x = build.load(F32, build.param(1), at)
    made = [
        build.op("to_int_s", I32, x), build.op("to_int_u", I32, x), build.op("to_float_s", F32, build.op("bitcast", I32, x)),
        build.op("fconvert", F32, build.op("fconvert", F16, x)), build.op("fconvert", F32, build.op("fconvert", BF16, x)),
        build.op("ldexp", F32, x, build.const(3)), build.op("frexp_mantissa", F32, x), build.op("frexp_exponent", I32, x),
        build.op("trunc", F32, x), build.op("ceil", F32, x), build.op("fabs", F32, build.op("fneg", F32, x)),
    ]  # fmt: skip
    for i, one in enumerate(made):
        build.store(build.param(0), at, one, constant=256 * i)
    numbers = np.random.default_rng(19).standard_normal(1024, np.float32) * 10.0 ** np.random.default_rng(20).integers(
        -6, 10, 1024
    )
    same(both(build, np.zeros(1024, np.uint32), numbers.astype(np.float32), dwords(20)))


def test_halves_are_computed_in_pairs():
    build, at = started()
    a, b = (build.load(F16.of(2), build.param(i), at) for i in (1, 2))
    build.store(build.param(0), at, build.op("packed", F16.of(2), a, b, b, imm="fma"))
    build.store(build.param(0), at, build.op("dot2", F32, a, b, build.const(1.5, F32)), constant=1024)
    halves = np.random.default_rng(21).standard_normal(2048).astype(np.float16).view(np.uint32)
    ours, theirs = both(build, np.zeros(1024, np.uint32), halves, halves[::-1].copy())
    assert np.array_equal(ours[0][:64], theirs[0][:64])
    sums = [one[0][256:320].view(np.float32) for one in (ours, theirs)]
    # LLVM selects v_dot2acc_f32_f16, which rounds in another order.
    assert np.allclose(*sums, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["i8", "u8"])
def test_bytes_multiply_as_matrices(kind):
    build, _ = started(32)
    place = build.mul(build.op("and", I32, build.op("thread_id", I32), build.const(15)), 16)
    a, b = (build.load(I8.of(16), build.param(i), place) for i in (1, 2))
    zeros = build.vector([build.const(0)] * 8)
    whole = build.op("matrix", I32.of(8), a, b, zeros, imm=kind)
    build.store(build.param(0), build.mul(build.op("thread_id", I32), 32), whole)
    # Other tests cover our own selection of this operation. Here LLVM must accept it and use the instruction.
    text = ir.module(build.function)
    assert "v_wmma_i32_16x16x16_iu8" in back_end.assembly(text, TARGET)


@pytest.mark.parametrize("imm", ["nand", "fsub"])
def test_an_atomic_without_a_line_is_named(imm):
    build, at = started()
    build.op("atomic", I32, build.param(0), at, at, imm=(imm, 0))
    with pytest.raises(CompileError, match=f"atomic {imm} has no line of LLVM IR here"):
        ir.module(build.function)


def test_an_operation_without_a_line_is_named():
    function = Function("odd", (), Region([Value("teleport", I32)]), 32)
    with pytest.raises(CompileError, match="teleport: there is no line of LLVM IR"):
        ir.module(function)


def test_what_llvm_refuses_is_reported():
    with pytest.raises(CompileError, match=r"LLVM [\d.]+ refuses the kernel's IR"):
        back_end.code_object("define void @f() { ret i32 0 }", TARGET)


LOOP = """
  s_mov_b32 s0, 0
loop:
  ds_load_b32 v1, v0
  s_waitcnt lgkmcnt(0)
  v_add_f32 v2, v1, v1
  s_add_i32 s0, s0, 1
  s_cmp_lt_i32 s0, 9
  s_cbranch_scc1 loop
  v_mov_b32 v3, v2
  s_endpgm
"""


def assembled(text):
    machine = processor(TARGET)
    assembler = Assembler(machine)
    lines = [line.strip() for line in text.strip().splitlines()]
    places, at, words = {}, 0, []
    for line in lines:
        if line.endswith(":"):
            places[line[:-1]] = at
            continue
        name, _, rest = line.partition(" ")
        if rest in places:
            line = f"{name} {(places[rest] - at - 4) // 4 & 0xFFFF}"
        words.append(assembler.instruction_bytes(line))
        at += len(words[-1])
    return b"".join(words) + machine.encode("s_code_end") * 3


def test_a_listing_knows_its_loops():
    found = listing("hand", TARGET, assembled(LOOP), 32)
    assert [len(block.instrs) for block in found.code.blocks] == [1, 6, 2]
    assert [block.depth for block in found.code.blocks] == [0, 1, 0]
    assert found.code.blocks[1].loop_end is found.code.blocks[1]
    assert found.starts == (0, 4, 32)


def test_a_trace_that_loops_waits_for_its_load_every_time_and_what_never_runs_is_left_out():
    found = listing("hand", TARGET, assembled(LOOP), 32)
    pieces = traces(found, [1.0, 9.0, 0.0])
    assert [(len(one.instrs), one.runs, one.loops) for one in pieces] == [(1, 1.0, False), (6, 9.0, True)]
    timed = pieces[1].timed(TARGET, 32, 1)
    # The wait in the loop costs the latency of LDS.
    assert timed.estimate.alone > 64
    assert timed.cycles == 9 * timed.estimate.together
    # Other waves work during the wait.
    assert pieces[1].timed(TARGET, 32, 8).cycles < timed.cycles


def test_bytes_that_are_no_instruction_are_reported_with_their_place():
    with pytest.raises(CompileError, match="kernel hand: byte 0x4 begins no instruction of gfx1100"):
        listing("hand", TARGET, assembled("s_mov_b32 s0, 0")[:4] + b"\xff\xff\xff\xff", 32)


def test_a_kernel_that_ours_emits_is_read_back_whole():
    (step,) = steps_of(floats(64, 64) @ floats(64, 64))
    found = elf_read.read(object_of([step.binary]), "ours")
    made = listing("ours", TARGET, found.sections[".text"].data, step.binary.group_size)
    assert sum(len(block.instrs) for block in made.code.blocks) == step.binary.instructions
    assert any(block.loop_end is not None for block in made.code.blocks)


def test_the_products_of_rdna4_have_a_figure_without_llvms():
    (step,) = steps_of(floats(64, 96, dtype="float16") @ floats(96, 64, dtype="float16"), "gfx1201")
    (found,) = code.matrix_figures("product", step, "gfx1201")
    assert found.name.endswith("wmma peak, gfx1201")
    assert 0 < found.ours <= 100
    assert found.peer is None


def test_kernels_are_counted_and_figures_are_json():
    (step,) = steps_of(floats(64, 96, dtype="float16") @ floats(96, 64, dtype="float16"))
    ours, theirs = code.compared(step)
    rows = {row["name"]: row for row in (json.loads(one.as_json()) for one in code._figures("product", ours, theirs))}
    assert rows["product: VGPRs"]["ours"] == step.binary.vgprs
    assert rows["product: VGPRs"]["beside"] == f"LLVM {back_end.version()} -O3"
    assert 0 < rows["product: wmma peak"]["ours"] <= 100
    assert rows["product: wmma peak"]["goal"] == "ours >= 80 %"
    assert rows["product: loop: instructions"]["ours"] < step.binary.instructions


def test_the_bench_names_graph_and_kernel_without_the_checksum(monkeypatch):
    steps = {target: steps_of(floats(64, 300).softmax(-1), target) for target in (code.TARGET, code.WIDE_TARGET)}
    monkeypatch.setattr(code, "MEASURED", ("rows",))
    monkeypatch.setattr(code, "MATRICES", ())
    monkeypatch.setattr(code, "kernels", lambda graph, target=code.TARGET: steps[target])
    said = []
    bench = Bench(sources=None, peer=Peer(None), fresh=None, quick=True, say=said.append)
    rows = [json.loads(one.as_json()) for one in code.measure(bench)]
    (step,) = steps[code.TARGET]
    kernel = step.binary.name[:-9]
    assert said == [f"rows, {kernel}", f"gfx942: rows, {kernel}", f"gfx942: matmul f16 4096, {kernel}"]
    assert all(row["name"].startswith(tuple(f"{one}: " for one in said)) for row in rows)
    assert {row["unit"] for row in rows} == {"instructions", "cycles", "registers", "waves"}
    assert all(row["peer"] > 0 for row in rows if row["unit"] == "cycles")


def test_code_that_computes_something_else_is_refused(monkeypatch):
    (step,) = steps_of(floats(40) + 1)
    (other,) = steps_of(floats(40) + 2)
    wrong = ir.module(other.lowered.function).replace(other.binary.name, step.binary.name)
    monkeypatch.setattr(code, "module", lambda function, of: wrong)
    with pytest.raises(RingupError, match=f"{step.binary.name}: the code of LLVM and ours differ by 1.0"):
        code.compared(step)


def test_a_kernel_of_unknown_sizes_is_refused():
    (step,) = steps_of(Tensor.empty(variable("n", 1, 100)) + 1)
    with pytest.raises(NotSupported, match="depends on sizes that are not given here"):
        code.data_for(step)


@pytest.mark.parametrize(
    ("a", "b", "apart"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0),
        ([1e-9], [2e-9], 1e-9),
        ([200.0], [100.0], 1),
        ([np.nan], [np.nan], 0),
        ([np.nan], [1.0], np.inf),
        ([np.inf], [np.inf], 0),
    ],
)
def test_differences_are_relative_above_one(a, b, apart):
    assert code.difference(np.array(a), np.array(b)) == pytest.approx(apart)


@pytest.mark.parametrize("name", ["softmax", "attention of one query f16"])
def test_code_for_gfx942_is_counted_beside_llvms(name):
    """The counts of both are near each other. Of the second, LLVM's code has SDWA."""
    (step,) = code.kernels(name, "gfx942")
    ours, theirs = code.compared(step)
    assert 0.8 < ours.loop_instructions / theirs.loop_instructions < 1.2
    assert 0.5 < ours.loop_cycles / theirs.loop_cycles < 1.1


def test_a_large_product_for_gfx942_works_at_the_peak_of_its_matrix_unit():
    """One that fills the card's units: of the time of the loop that multiplies, by the model."""
    (step,) = code.kernels(code.LARGE_MATMUL, "gfx942")
    ours, theirs = code.compared(step)
    assert ours.matrix_share >= code.PEAK.bound / 100
    assert ours.loop_cycles <= theirs.loop_cycles
