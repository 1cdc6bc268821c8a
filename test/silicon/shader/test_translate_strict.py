"""Strict mode of the translator: what the analysis proves safe, what is checked at run time, and what must not be
reported.
"""

import numpy as np
import pytest

from ringup.silicon.shader.amd.translator.engine import Translator

IN, OUT = 0x20_0000, 0x30_0000
ARGS = {
    "user_sgprs": (IN, 0, OUT, 0),
    "enable_group_id": (False, False, False),
    "vgpr_count": 24,
    "lds_size_bytes": 1024,
}
LANE = "v_lshlrev_b32_e32 v1, 2, v0\n"
END = "\ns_endpgm\n"


@pytest.fixture
def translated(machine):
    machine.buffer(IN, np.arange(4096))
    machine.buffer(OUT, np.zeros(4096))
    machine.engine = Translator()
    return machine


# Name to program, kind and report.
BROKEN = {
    "load on one path only": (
        """
        s_load_b32 s8, s[0:1], 0x4
        s_waitcnt lgkmcnt(0)
        s_cmp_eq_u32 s8, 1
        v_mov_b32_e32 v2, 0
        s_cbranch_scc0 .Lskip
        global_load_b32 v2, v1, s[0:1]
    .Lskip:
        v_add_nc_u32_e32 v3, v2, v2""",
        "hazard", "v2 is still being loaded; wait on vmcnt",
    ),
    "load of the round before": (
        """
        s_mov_b32 s8, 0
        v_mov_b32_e32 v2, 0
    .L: v_add_nc_u32_e32 v3, v2, v2
        global_load_b32 v2, v1, s[0:1]
        s_add_u32 s8, s8, 1
        s_cmp_lt_u32 s8, 3
        s_cbranch_scc1 .L""",
        "hazard", "v2 is still being loaded; wait on vmcnt",
    ),
    "wait that leaves one": (
        "global_load_b32 v2, v1, s[0:1]\n global_load_b32 v3, v1, s[0:1]\n s_waitcnt vmcnt(1)\n v_mov_b32_e32 v4, v3",
        "hazard", "v3 is still being loaded; wait on vmcnt",
    ),
    "written in too few lanes": (
        """
        v_cmp_gt_u32_e32 vcc_lo, 20, v0
        s_and_saveexec_b32 s8, vcc_lo
        v_mov_b32_e32 v2, 1
        s_or_b32 exec_lo, exec_lo, s8
        v_add_nc_u32_e32 v3, v2, v2
        global_store_b32 v1, v3, s[2:3]""",
        "uninitialised", "lane 20 of v3 is undefined: it comes from v2, which was never written",
    ),
    "scalar written on the other path": (
        "s_cmp_eq_u32 s0, 0\n s_cbranch_scc0 .L\n s_mov_b32 s8, 1\n.L: s_add_u32 s9, s8, s8\n s_cmp_eq_u32 s9, 0\n s_cbranch_scc1 .Lend\n.Lend:",
        "uninitialised", "scc is undefined: it comes from s8, which was never written",
    ),
    "lane of a neighbour": (
        """
        s_mov_b32 exec_lo, 0xff
        v_mov_b32_e32 v2, 1
        s_mov_b32 exec_lo, -1
        v_add_nc_u32_dpp v3, v2, v0 row_ror:4 row_mask:0xf bank_mask:0xf
        global_store_b32 v1, v3, s[2:3]""",
        # It reads lane 12.
        "uninitialised", "lane 0 of v3 is undefined: it comes from v2",
    ),
    "undefined lane through a swap": (
        """
        v_cmp_gt_u32_e32 vcc_lo, 20, v0
        s_and_saveexec_b32 s8, vcc_lo
        v_mov_b32_e32 v2, 1
        s_or_b32 exec_lo, exec_lo, s8
        v_mov_b32_e32 v3, 2
        v_swap_b32 v3, v2
        global_store_b32 v1, v2, s[2:3]
        global_store_b32 v1, v3, s[2:3]""",
        "uninitialised", "lane 20 of v3 is undefined: it comes from v2, which was never written",
    ),
    "undefined lane through a spill": (
        "v_writelane_b32 v5, s20, 3\n v_readlane_b32 s8, v5, 3\n s_load_b32 s9, s[0:1], s8",
        "uninitialised", "s8 is undefined: it comes from s20, which was never written",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_rule_that_only_some_runs_break_is_found_when_they_do(translated, name):
    program, kind, told = BROKEN[name]
    violation = translated.broken(LANE + program + END, engine=translated.engine, **ARGS)
    assert (violation.kind, violation.wave) == (kind, (0, 0, 0, 0))
    assert told in violation.detail


RIGHT = {
    "path without the load": """
        s_cmp_eq_u32 s0, 1
        v_mov_b32_e32 v2, 0
        s_cbranch_scc0 .Lskip
        global_load_b32 v2, v1, s[0:1]
    .Lskip:
        v_add_nc_u32_e32 v3, v2, v2""",
    "both sides of a branch write": """
        v_cmp_gt_u32_e32 vcc_lo, 20, v0
        s_and_saveexec_b32 s8, vcc_lo
        s_xor_b32 s8, exec_lo, s8
        v_mov_b32_e32 v2, 1
        s_or_saveexec_b32 s8, s8
        s_xor_b32 exec_lo, exec_lo, s8
        v_mov_b32_e32 v2, 2
        s_or_b32 exec_lo, exec_lo, s8
        v_add_nc_u32_e32 v3, v2, v2""",
    "lanes leave a loop one by one": """
        s_mov_b32 s8, 0
        v_mov_b32_e32 v2, 0
    .L: v_add_nc_u32_e32 v2, 1, v2
        v_lshlrev_b32_e32 v3, 1, v2
        v_cmp_ge_u32_e32 vcc_lo, v2, v0
        s_or_b32 s8, vcc_lo, s8
        s_and_not1_b32 exec_lo, exec_lo, s8
        s_cbranch_execnz .L
        s_or_b32 exec_lo, exec_lo, s8
        v_add_nc_u32_e32 v4, v3, v3""",
    "a mask that a loop completes": """
        v_cmp_gt_u32_e32 vcc_lo, 20, v0
        s_and_not1_b32 s9, s9, exec_lo
        s_and_b32 s10, vcc_lo, exec_lo
        s_or_b32 s9, s9, s10
        s_and_saveexec_b32 s8, s9
        v_mov_b32_e32 v2, 1""",
    "spilled scalars": "v_writelane_b32 v5, s0, 3\n v_readlane_b32 s8, v5, 3\n s_add_u32 s9, s8, s8",
    "halves one after another": "v_fma_mixhi_f16 v5, v0, v0, v0\n v_fma_mixlo_f16 v5, v0, v0, v0\n v_pk_add_f16 v6, v5, v5",
    "bytes one after another": """
        s_mov_b32 s8, 0x7060c00
        v_cvt_f32_u32_e32 v2, v0
        v_cvt_pk_u8_f32 v5, v2, 0, v5
        v_perm_b32 v6, v6, v5, s8
        v_add_nc_u32_e32 v7, v5, v6""",
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_program_is_not_reported(translated, name):
    translated.run(LANE + RIGHT[name] + END, engine=translated.engine, **ARGS)


@pytest.mark.parametrize("name", ["both sides of a branch write", "lanes leave a loop one by one"])
def test_structured_code_is_cleared_before_it_runs(translated, name):
    """The code contains no check, so strict mode costs nothing: the module has the same branches with and without
    strict rules.
    """
    texts = []
    for strict in (True, False):
        engine = Translator()
        translated.start(LANE + RIGHT[name] + END, engine=engine, strict=strict, **ARGS)
        ((job,),) = engine.cache.values()
        texts.append(job.made.result().lowered.text)
    assert texts[0] == texts[1]


def test_checks_outlive_a_barrier(translated):
    program = """
        v_cmp_gt_u32_e32 vcc_lo, 20, v0
        s_and_saveexec_b32 s8, vcc_lo
        v_mov_b32_e32 v2, 1
        s_or_b32 exec_lo, exec_lo, s8
        s_barrier
        v_add_nc_u32_e32 v3, v2, v2
        global_store_b32 v2, v3, s[2:3]
        s_endpgm
    """
    violation = translated.broken(program, engine=translated.engine, **(ARGS | {"group_size": (64, 1, 1)}))
    assert violation.wave == (0, 0, 0, 0)
    assert "lane 20 of v3 is undefined: it comes from v2" in violation.detail
