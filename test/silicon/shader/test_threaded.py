"""Threaded code: instructions that differ only in registers, constants and offsets share a host function, and whatever
is threaded does what the interpreter does.
"""

from concurrent.futures import Executor, Future

import numpy as np
import pytest

from ringup.silicon.shader.amd.decoding.decode import decode
from ringup.silicon.shader.amd.interpreter.engine import Interpreter
from ringup.silicon.shader.amd.translator import translations
from ringup.silicon.shader.amd.translator.engine import Translator
from ringup.silicon.shader.amd.translator.forms import Way, operations
from ringup.silicon.shader.amd.translator.translations import QUICK, THOROUGH, THREADED

IN, OUT = 0x20_0000, 0x30_0000
ARGS = {"user_sgprs": (IN, 0, OUT, 0), "vgpr_count": 48}
MODE = 0xF0
LOAD = "v_lshlrev_b32 v40, 2, v0\n" + "".join(
    f"global_load_b32 v{at}, v40, s[0:1] offset:{128 * at}\n" for at in range(1, 9)
)
STORE = "".join(f"global_store_b32 v40, v{at}, s[2:3] offset:{128 * at}\n" for at in range(1, 9))


@pytest.fixture
def forms(assemble):
    """`forms(text, lanes=32, full=True)` lists the names of the forms of instructions."""

    def named(text, lanes=32, full=True):
        code, found, at = assemble(text, lanes), [], 0
        while at < len(code):
            ins = decode(code, at)
            found.append([one.form.name for one in operations(ins, Way(lanes, True, False), MODE, full)])
            at += ins.size_bytes
        return found

    return named


@pytest.mark.parametrize(
    "text",
    [
        "v_add_f32 v1, v2, v3\n v_add_f32 v7, v7, v7\n v_add_f32_e64 v1, v2, v3",
        "v_add_f32 v1, 1.0, v3\n v_add_f32 v2, 0x40490fdb, v3\n v_add_f32 v2, 7, v9",
        "s_mov_b32 s4, s5\n s_mov_b32 s99, s0",
        "s_add_u32 s4, s5, 7\n s_add_u32 s1, s1, 0x12345678",
        "s_lshl_b64 s[4:5], s[6:7], 3\n s_lshl_b64 s[40:41], s[40:41], 60",
        "global_load_b64 v[2:3], v4, s[8:9] offset:16\n global_load_b64 v[12:13], v1, s[2:3] offset:-4096",
        "buffer_load_b32 v1, v2, s[4:7], 0 offen offset:4\n buffer_load_b32 v9, v8, s[12:15], 0 offen offset:4095",
        "ds_load_2addr_b32 v[2:3], v4 offset1:1\n ds_load_2addr_b32 v[6:7], v5 offset0:30 offset1:31",
        "s_load_b64 s[4:5], s[0:1], 0x40\n s_load_b64 s[8:9], s[2:3], 0x0",
        # a dual instruction is two
        "v_dual_mul_f32 v0, v1, v2 :: v_dual_add_f32 v3, v4, v5\n v_dual_mul_f32 v2, v7, v9 :: v_dual_add_f32 v1, v8, v4",
    ],
)
def test_registers_constants_and_offsets_are_no_part_of_a_form(forms, text):
    first, *others = forms(text)
    assert all(one == first for one in others)


@pytest.mark.parametrize(
    "text",
    [
        "v_add_f32 v1, v2, v3\n v_sub_f32 v1, v2, v3\n v_add_f32_e64 v1, -v2, v3\n v_add_f32_e64 v1, |v2|, v3\n"
        "v_add_f32_e64 v1, v2, v3 clamp\n v_add_f32_e64 v1, v2, v3 mul:2\n v_add_f32 v1, s2, v3\n v_add_f32 v1, 2.0, v3",
        "v_add_f16 v1.l, v2.l, v3.l\n v_add_f16 v1.h, v2.l, v3.l\n v_add_f16 v1.l, v2.h, v3.l",
        "s_mov_b32 s4, s5\n s_mov_b32 s4, 5\n s_mov_b32 s4, vcc_lo\n s_mov_b32 vcc_lo, s4\n s_mov_b32 exec_lo, s4\n"
        "s_mov_b32 m0, s4\n s_mov_b32 null, s4\n s_mov_b32 s4, exec_lo",
        "v_mov_b32_dpp v1, v2 quad_perm:[0,1,2,3] row_mask:0xf bank_mask:0xf\n"
        "v_mov_b32_dpp v1, v2 quad_perm:[1,0,2,3] row_mask:0xf bank_mask:0xf\n"
        "v_mov_b32_dpp v1, v2 quad_perm:[0,1,2,3] row_mask:0xa bank_mask:0xf\n v_mov_b32 v1, v2",
        "v_add_f32_dpp v1, v2, v3 row_mirror row_mask:0xf bank_mask:0xf\n"
        "v_add_f32_dpp v1, -v2, v3 row_mirror row_mask:0xf bank_mask:0xf\n"
        "v_add_f32_dpp v1, v2, |v3| row_mirror row_mask:0xf bank_mask:0xf",
        "ds_load_2addr_b32 v[2:3], v4 offset1:1\n ds_load_2addr_b32 v[2:3], v4 offset1:2\n ds_load_b64 v[2:3], v4",
        "ds_swizzle_b32 v1, v2 offset:swizzle(SWAP,1)\n ds_swizzle_b32 v1, v2 offset:swizzle(SWAP,2)",
        "v_pk_add_u16 v1, v2, v3\n v_pk_add_u16 v1, v2, v3 op_sel:[1,0]\n v_pk_add_u16 v1, v2, 1\n v_pk_add_u16 v1, v2, 2",
        "global_load_b32 v1, v2, s[4:5]\n global_load_b32 v1, v[2:3], off\n global_load_b32 v1, v[2:3], off glc\n"
        "global_store_b32 v2, v1, s[4:5]",
        "buffer_load_b32 v1, v2, s[4:7], 0 offen\n buffer_load_b32 v1, v2, s[4:7], 0 idxen\n"
        "buffer_load_b32 v1, v2, s[4:7], s8 offen",
    ],
)  # fmt: skip
def test_all_else_is_part_of_a_form(forms, text):
    found = [tuple(one) for one in forms(text)]
    # The cache policy changes nothing here, and neither need the form.
    assert len(set(found)) >= len(found) - text.count("glc")


def test_lanes_and_known_exec_are_part_of_a_form(forms):
    text = "v_add_f32 v1, v2, v3"
    assert forms(text) != forms(text, full=False)
    assert forms(text) != forms(text, lanes=64)
    # Scalar instructions do not depend on EXEC being known.
    assert forms("s_add_u32 s1, s2, s3") == forms("s_add_u32 s1, s2, s3", full=False)


def outcome(machine, engine, body, **options):
    values = np.random.default_rng(5).integers(0, 1 << 32, 32 * 16, dtype=np.uint64)
    machine.arena.regions.clear()
    machine.code_end = 0x10_0000
    machine.buffer(IN, values)
    out = machine.buffer(OUT, np.zeros(32 * 16))
    text = f"{LOAD}s_waitcnt vmcnt(0)\n{body}\n{STORE}s_endpgm"
    run = machine.run(text, engine=engine, **ARGS, **options)
    return out.copy(), run


@pytest.mark.parametrize(
    "body",
    [
        # dual instructions whose parts read what the other writes
        "v_dual_mov_b32 v1, v2 :: v_dual_mov_b32 v2, v1",
        "v_dual_add_f32 v1, v2, v3 :: v_dual_mov_b32 v4, v1",
        "v_dual_mov_b32 v4, v1 :: v_dual_add_f32 v1, v2, v3",
        "v_dual_fmac_f32 v1, v2, v3 :: v_dual_mul_f32 v2, v1, v4",
        "s_mov_b32 vcc_lo, 0x5a5a1234\n v_dual_cndmask_b32 v1, v2, v3 :: v_dual_cndmask_b32 v2, v3, v1",
        # sources that are parts of the result
        "v_lshlrev_b64 v[2:3], 5, v[3:4]\n v_lshlrev_b64 v[5:6], 7, v[4:5]",
        "v_mad_u64_u32 v[2:3], null, v3, v2, v[2:3]",
        "v_add_co_u32 v1, vcc_lo, v1, v1\n v_add_co_ci_u32 v1, vcc_lo, v1, v1, vcc_lo",
        "v_swap_b32 v1, v2\n v_swap_b32 v3, v3",
        "s_mov_b32 s4, 7\n s_mov_b32 s5, 9\n s_lshl_b64 s[4:5], s[4:5], s4\n v_add_nc_u32 v1, s5, v1\n v_add_nc_u32 v2, s4, v2",
        "v_add_nc_u16 v1.h, v1.l, v1.h\n v_add_nc_u16 v1.l, v1.h, v2.l",
        # constants of 16, 32 and 64 bits
        "v_add_f16 v1, 1.0, v1\n v_add_f16 v2, 0x1234, v2\n v_add_f64 v[3:4], 0.5, v[3:4]\n v_and_b32 v5, 0xf0f0, v5",
        # calls, loops and masks
        "s_getpc_b64 s[4:5]\n s_sub_u32 s6, s4, s4\n v_mov_b32 v1, s6",
        "s_mov_b32 s4, 3\n .L: v_add_nc_u32 v1, v1, v2\n s_sub_u32 s4, s4, 1\n s_cmp_lg_u32 s4, 0\n s_cbranch_scc1 .L",
        "v_cmpx_gt_u32 v1, v2\n v_add_nc_u32 v3, v3, v4\n s_mov_b32 exec_lo, -1",
        "v_cmp_gt_u32 vcc_lo, v1, v2\n s_and_saveexec_b32 s4, vcc_lo\n s_cbranch_execz .E\n v_mov_b32 v1, v2\n .E:\n s_mov_b32 exec_lo, s4",
        # exact division goes through the interpreter in some lanes
        "v_div_scale_f32 v1, vcc_lo, v2, v2, v3\n v_div_fmas_f32 v4, v1, v2, v3\n v_div_fixup_f32 v5, v4, v2, v3",
        "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 4), 3\n v_add_f32 v1, v2, v3\n v_dual_add_f32 v4, v5, v6 :: v_dual_mul_f32 v7, v8, v1",
        "ds_store_2addr_b32 v40, v1, v2 offset1:64\n s_waitcnt lgkmcnt(0)\n ds_load_2addr_b32 v[3:4], v40 offset0:64\n"
        "s_waitcnt lgkmcnt(0)",
    ],
)  # fmt: skip
def test_threaded_code_does_what_the_interpreter_does(machine, body):
    options = {"lds_size_bytes": 1024}
    wanted, reference = outcome(machine, Interpreter(), body, **options)
    engine = Translator()
    found, run = outcome(machine, engine, body, **options)
    assert (found == wanted).all()
    assert run.counters.by_class == reference.counters.by_class
    assert run.counters.lanes == reference.counters.lanes
    assert {job.made.result().level for known in engine.cache.values() for job in known} == {THREADED}


@pytest.mark.parametrize(
    "body",
    [
        # undefined lanes that only the program's run decides
        "v_cmpx_gt_u32 1, v1\n v_mov_b32 v20, 0\n s_mov_b32 exec_lo, -1\n v_cmpx_gt_u32 1, v1\n v_mov_b32 v2, v20\n s_mov_b32 exec_lo, -1",
        "s_getpc_b64 s[4:5]\n s_add_u32 s4, s4, 12\n s_setpc_b64 s[4:5]\n v_mov_b32 v1, 1",
        "s_mov_b32 m0, 1\n v_movrels_b32 v1, v2",
    ],
)  # fmt: skip
def test_what_threaded_code_cannot_do_is_compiled(machine, body):
    wanted, _ = outcome(machine, Interpreter(), body)
    engine = Translator()
    found, _ = outcome(machine, engine, body)
    assert (found == wanted).all()
    assert THREADED not in {job.made.result().level for known in engine.cache.values() for job in known}


LOOP = "s_mov_b32 s4, 200\n .L: v_add_nc_u32 v1, v1, v2\n v_add_nc_u32 v2, 3, v2\n s_sub_u32 s4, s4, 1\n s_cmp_lg_u32 s4, 0\n s_cbranch_scc1 .L"


class Later(Executor):
    """Does what it was given when it is told to."""

    def __init__(self):
        self.given = []

    def submit(self, function, /, *args):
        done = Future()
        self.given.append(lambda: done.set_result(function(*args)))
        return done

    def work(self):
        given, self.given = self.given, []
        for one in given:
            one()


@pytest.mark.parametrize("beside", [None, Later()], ids=["at once", "in the background"])
def test_handlers_are_replaced_in_the_middle_of_a_run(machine, monkeypatch, beside):
    monkeypatch.setattr(translations, "WARM", 3)
    wanted, _ = outcome(machine, Interpreter(), LOOP)
    machine.arena.regions.clear()
    machine.code_end = 0x10_0000
    machine.buffer(IN, np.random.default_rng(5).integers(0, 1 << 32, 32 * 16, dtype=np.uint64))
    out = machine.buffer(OUT, np.zeros(32 * 16))
    engine = Translator(beside=beside)
    run = machine.start(f"{LOAD}s_waitcnt vmcnt(0)\n{LOOP}\n{STORE}s_endpgm", engine=engine, **ARGS)
    if beside is not None:
        beside.work()
    ((job,),) = engine.cache.values()
    first = []
    for step in range(1000):
        # the first record's handler
        first.append(int(job.made.result().host.words.view(np.uint64)[0]))
        if beside is not None and step == 100:
            beside.work()
        if run.step(5):
            break
        assert not run.violations
    assert (out == wanted).all()
    assert len(set(first)) == 2
    assert first[0] != first[-1]


@pytest.mark.parametrize("level", [THREADED, QUICK, THOROUGH])
def test_a_run_is_translated_at_the_level_that_is_asked_for(machine, level):
    engine = Translator(level=level)
    outcome(machine, engine, "v_add_nc_u32 v1, v1, v2")
    ((job,),) = engine.cache.values()
    assert job.made.result().level == level
