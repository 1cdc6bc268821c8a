"""Two stores to LDS by one instruction: what is joined and what is not, and that the same bytes lie in LDS afterwards."""

import numpy as np
import pytest

from ringup.compiler.compile import arguments_of
from ringup.compiler.machine.build import Builder
from ringup.compiler.machine.ir import I32, I64, Param
from ringup.compiler.rdna.code import Block, Code, Instr, Reg
from ringup.compiler.rdna.objects import object_of
from ringup.compiler.rdna.pair_stores import pair_stores
from ringup.compiler.rdna.pipeline import finish
from ringup.compiler.rdna.select import select
from ringup.compiler.rdna.steps import Program
from ringup.silicon.shader import workbench
from ringup.silicon.shader.program import load
from ringup.silicon.shader.translate import Translator

A, B, X, Y, Z = (Reg("v", name=name) for name in "abxyz")
WIDE = Reg("v", 2, name="wide")


def store(address, data, offset=0, name="ds_store_b32"):
    return Instr(name, address, data, **({"offset": offset} if offset else {}))


def paired(*instrs):
    """Return the text of a block after the pass."""
    program = Program(Code("hand", "gfx1100", [Block("b0", instrs=list(instrs))], [], 0, 32))
    pair_stores(program)
    return [str(step) for step in program.blocks[0]]


def test_neighbours_of_one_address_become_one_store_at_the_later_place():
    between = Instr("v_mov_b32", Z, 7)
    assert paired(store(A, X, 4), between, store(A, Y, 12)) == [
        "v_mov_b32 v%z, 7",
        "ds_store_2addr_b32 v%a, v%x, v%y offset0:1 offset1:3",
    ]


def test_an_odd_one_stays():
    found = paired(store(A, X), store(A, Y, 4), store(A, Z, 8))
    assert found == ["ds_store_2addr_b32 v%a, v%x, v%y offset1:1", "ds_store_b32 v%a, v%z offset:8"]


def test_doubles_count_in_their_own_size():
    found = paired(store(A, WIDE, 8, "ds_store_b64"), store(A, WIDE, 2040, "ds_store_b64"))
    assert found == ["ds_store_2addr_b64 v%a, v%wide:2, v%wide:2 offset0:1 offset1:255"]


@pytest.mark.parametrize(
    "between",
    [
        store(B, Z), Instr("ds_load_b32", Z, B), Instr("s_barrier"), Instr("v_mov_b32", X, 1), Instr("v_mov_b32", A, 1),
        Instr("v_cmpx_eq_u32", X, Y), store(A, Z, 4),
    ],
    ids=["another address", "a load", "a barrier", "the data is written", "the address is written", "EXEC is written", "the same bytes"],
)  # fmt: skip
def test_what_comes_between_keeps_stores_apart(between):
    found = paired(store(A, X, 4), between, store(A, Y, 2000))
    assert not [one for one in found if "2addr" in one]
    assert len(found) == 3


def test_far_offsets_count_in_strides_of_64():
    found = paired(store(A, X, 1280), store(A, Y, 65280))
    assert found == ["ds_store_2addr_stride64_b32 v%a, v%x, v%y offset0:5 offset1:255"]


def test_an_address_is_moved_where_two_pairs_gain_by_it():
    found = paired(*(store(A, X, 10240 + 80 * i) for i in range(4)))
    assert len(found) == 3
    assert found[0].startswith("v_add_nc_u32 ")
    assert found[0].endswith(", 10240, v%a")
    assert [one.partition("v%x, ")[2] for one in found[1:]] == ["v%x offset1:20", "v%x offset0:40 offset1:60"]
    assert not [one for one in paired(store(A, X, 10240), store(A, X, 10320)) if "2addr" in one]


@pytest.mark.parametrize(
    "offsets", [(0, 4, 8), (0, 1024, 2048, 4096), (6144, 6148, 7000, 7164, 7168), (256, 8192, 4, 12, 3000)]
)
def test_the_same_lies_in_lds_afterwards(offsets):
    build = Builder("scattered", [Param("out", I64, True, True, 64 << 10)], 32)
    build.function.lds_bytes = 16384
    own = build.mul(build.op("thread_id", I32), 4 * len(offsets) + 0)
    lane = build.mul(build.op("thread_id", I32), 8192)
    first = build.op("and", I32, lane, build.const(0))
    only = build.compare("eq", build.op("thread_id", I32), build.const(3))
    with build.when(only):
        for i, offset in enumerate(offsets):
            build.lds_store(first, build.add(build.op("thread_id", I32), 100 * i), constant=offset)
    build.barrier()
    for i, offset in enumerate(offsets):
        build.store(build.param(0), own, build.lds_load(I32, first, constant=offset), constant=4 * i)
    function = build.function
    elf = object_of([finish(select(function, "gfx1100"), arguments=arguments_of(function.params))])
    out = np.zeros(16 << 10, np.uint32)
    workbench.run(Translator(), load(elf), "scattered", [out], groups=(1, 1, 1), group_size=(32, 1, 1))
    assert (out[: 32 * len(offsets)].reshape(32, -1) == [3 + 100 * i for i in range(len(offsets))]).all()
