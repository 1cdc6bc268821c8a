"""Code bytes, descriptor facts, code objects and the model of a SIMD."""

import dataclasses
import subprocess

import numpy as np
import pytest

from ringup.autogen.generate.isa.probe import llvm_mc
from ringup.compiler.amd.emit import Argument, first_group_sgpr
from ringup.compiler.amd.instructions.code import Reg
from ringup.compiler.amd.model import estimate, hot_loop
from ringup.compiler.amd.objects import object_of
from ringup.compiler.amd.pipeline import finish
from ringup.errors import CompileError
from ringup.queues.amd.objects import code_object
from ringup.silicon.shader import workbench
from ringup.silicon.shader.amd.interpreter.engine import Interpreter
from ringup.silicon.shader.program import load

ARGUMENTS = (
    Argument("source", 0, 8, True),
    Argument("target", 8, 8, True),
    Argument("a", 16, 4, False),
    Argument("b", 20, 4, False),
)


def spilling(tools, name="kernel"):
    make = tools.maker(name)
    values = [make.load(i) for i in range(30)]
    for value in values:
        make("v_add_nc_u32", value, values[0], value)
    for value in values:
        make.store(make.v("v_add_nc_u32", make.group, value))
    return make


def test_the_end_is_padded_for_the_prefetcher(tools):
    make = tools.maker()
    code = finish(make.end()).code
    assert len(code) % 128 == 0
    assert code[-384:] == bytes.fromhex("00009fbf") * 96  # s_code_end; llvm-mc, gfx1100


def test_group_ids_lie_behind_what_the_processor_pads():
    assert first_group_sgpr("gfx1100", (True, False, False)) == 15
    assert first_group_sgpr("gfx1100", (True, True, True)) == 13
    assert first_group_sgpr("gfx1151", (True, False, False)) == 2


def test_code_that_runs_on_behind_its_end_is_refused(tools):
    make = tools.maker()
    make.store(make.thread)
    with pytest.raises(CompileError, match="control runs past the last instruction"):
        finish(make.code)


def test_what_no_encoding_holds_is_named_with_its_block(tools):
    make = tools.maker()
    make("v_add_f32", Reg("v"), 1.1, 2.2)
    with pytest.raises(CompileError, match="kernel kernel, entry: `v_add_f32"):
        finish(make.end())


def test_a_code_object_runs_and_says_what_it_needs(tools):
    make = spilling(tools)
    binary = finish(make.end(), arguments=ARGUMENTS, max_vgprs=16)
    elf = object_of([binary, dataclasses.replace(binary, name="again")])
    program = load(elf)
    kernel = program.kernels["kernel"]
    assert (kernel.scratch_bytes, kernel.kernarg_bytes, kernel.wave_size) == (binary.scratch_bytes, 32, 32)
    assert [one.name for one in kernel.arguments] == [one.name for one in ARGUMENTS]
    source = np.arange(4096, dtype=np.uint32)
    for name in ("kernel", "again"):
        out = np.zeros(make.out_words, np.uint32)
        workbench.run(Interpreter(), program, name, [source, out, 5, 9], groups=(1, 1, 1), group_size=(32, 1, 1))
        first = source[:32]
        assert np.array_equal(out[:32], first + first)
        assert np.array_equal(out[32:64], first + first + first + 32)
    theirs = code_object.parse(elf)
    assert set(theirs.kernels) == {"kernel", "again"}


@pytest.fixture
def disassembled(headers, tmp_path):
    """`disassembled(binary)` returns what LLVM's objdump prints for a kernel's code object."""

    def run(binary):
        (tmp_path / "k.co").write_bytes(object_of([binary]))
        *loader, program = llvm_mc(headers("llvm-22"))
        argv = [*loader, program.replace("llvm-mc", "llvm-objdump"), "-d", str(tmp_path / "k.co")]
        return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout

    return run


def test_llvm_reads_the_code_object(tools, disassembled):
    text = disassembled(finish(spilling(tools).end(), arguments=ARGUMENTS))
    assert "global_store_b32" in text
    assert "<unknown>" not in text
    assert "<kernel>:" in text


def test_kernels_of_one_object_go_together(tools):
    binary = finish(spilling(tools).end())
    with pytest.raises(ValueError, match="have the same name"):
        object_of([binary, binary])
    with pytest.raises(ValueError, match="one processor"):
        object_of([binary, dataclasses.replace(binary, name="b", target="gfx1151")])
    with pytest.raises(ValueError, match="none"):
        object_of([])


def test_registers_waves_and_dumps(tools):
    make, seen = tools.maker(), []
    values = [make.load(i) for i in range(20)] + [make.load(i, 4) for i in range(30)]
    for value in values:
        make.store(value if value.count == 1 else value[3])
    binary = finish(make.end(), dump=lambda name, code: seen.append((name, str(code))))
    assert [name for name, _ in seen] == ["schedule", "allocate", "dual", "waits", "hazards", "clause", "delay"]
    assert "s_waitcnt" not in dict(seen)["dual"]
    assert "s_waitcnt" in dict(seen)["waits"]
    # By clang's table in test_limits.py: 9 waves with 145 to 168 registers.
    assert 145 <= binary.vgprs <= 168
    assert binary.occupancy == 9


@pytest.mark.parametrize("target", ["gfx1151", "gfx1201"])
def test_other_processors_differ_by_rows(tools, target):
    """LLVM's disassembler knows each encoded instruction."""
    from ringup.compiler.isa.amd.encoding.processor import processor

    make = tools.maker(target=target)
    code = make.code
    code.group_ids = (False, False, False)
    code.inputs.remove(make.group)
    mask = make.s("v_cmp_lt_u32", make.thread, 7)
    total = make.v("v_cndmask_b32", make.load(1), make.load(2), mask)
    make.store(make.v("v_exp_f32", total))
    binary = finish(make.end())
    names = [found.mnemonic for _, found in processor(target).walk(binary.code) if found]
    assert names.count("s_code_end") >= 96
    assert None not in names
    assert ("s_wait_loadcnt" in names) == (target == "gfx1201")
    assert ("s_waitcnt" in names) == (target == "gfx1151")
    assert binary.user_sgprs == 2


def matrix_loop(tools, loads):
    make = tools.maker()
    make.code.group_size = 256
    totals = [[Reg("v", 8) for _ in range(2)] for _ in range(2)]
    for one in (one for row in totals for one in row):
        for k in range(8):
            make("v_mov_b32", one[k], 0)
    address = make.v("v_lshlrev_b32", 4, make.thread)

    def body(counter):
        parts = [Reg("v", 8) for _ in range(4)]
        for i, one in enumerate(parts):
            for half in range(2):
                if loads:
                    make("ds_load_b128", one[4 * half : 4 * half + 4], address, offset=1024 * i + 512 * half)
                else:
                    for k in range(4):
                        make("v_mov_b32", one[4 * half + k], 0)
        for i in range(2):
            for j in range(2):
                make("v_wmma_f32_16x16x16_f16", totals[i][j], parts[i], parts[2 + j], totals[i][j])

    make.loop(4, body)
    for one in (one for row in totals for one in row):
        make.store(one[0])
    return make.end()


def test_the_model_of_a_matrix_loop(tools):
    """4 products of 32 cycles each, and 8 loads of 512 bytes at 64 bytes a cycle."""
    code = matrix_loop(tools, loads=True)
    finish(code)
    found = hot_loop(code, 8)
    assert found.busy["wmma"] == 128
    assert found.busy["lds"] == 64
    # The cycles are the same, because a matrix instruction occupies both.
    assert found.bound in ("valu", "wmma")
    assert found.together == 8 * 128
    assert found.matrix_share == 1.0
    alone = hot_loop(code, 1)
    assert alone.bound == "latency"
    assert 128 + 64 < alone.together < 400
    assert alone.matrix_share < 0.8


def test_a_loop_of_several_blocks_is_counted_whole(tools):
    make = tools.maker()

    def body(counter):
        for _ in range(10):
            make("v_exp_f32", make.thread, make.thread)
        make.divergent(make.s("v_cmp_lt_u32", 3, make.thread), lambda: make("v_mov_b32", make.thread, 0), skip=True)

    make.loop(4, body)
    code = make.end()
    finish(code)
    assert hot_loop(code, 1).busy["trans"] == 40
    # Each waits for the one before it.
    assert hot_loop(code, 1).alone > 100
    assert hot_loop(tools.maker().code, 1) is None


def test_the_model_waits_for_a_load_all_its_way(tools):
    make = tools.maker()
    a, b = make.load(1), make.load(2)
    make.store(a)
    make.store(b)
    code = make.end()
    finish(code)
    (only,) = estimate(code, 1)
    assert only.alone > 320


@pytest.mark.parametrize("count", [1, 8])
def test_the_model_counts_a_pair_once(tools, disassembled, count):
    """The model counts as LLVM's disassembler lists: a dual instruction is one line."""
    make = tools.maker()
    values = [make.load(at) for at in range(2 * count)]
    for at, value in enumerate(values):
        make("v_add_f32" if at % 2 else "v_mul_f32", value, value, value)
    for value in values:
        make.store(value)
    code = make.end()
    binary = finish(code)
    lines = [line.split("//")[0].split() for line in disassembled(binary).splitlines()]
    issued = [words[0] for words in lines if words and words[0].startswith("v_")]
    assert sum(name.startswith("v_dual_") for name in issued) >= (count + 1) // 2
    (only,) = estimate(code, 1)
    assert only.busy["valu"] == len(issued)
