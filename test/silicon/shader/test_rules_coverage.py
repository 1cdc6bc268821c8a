"""The scalar and vector ALU opcodes without a rule of the translator, each with its reason."""

from __future__ import annotations

import pytest

from ringup.autogen import isa
from ringup.silicon.shader.amd.decoding.gcn import INDEXED_PREFIX
from ringup.silicon.shader.amd.decoding.gcn_names import engine_name
from ringup.silicon.shader.amd.decoding.generations import CDNA3, CDNA4, RDNA3, RDNA3_5, RDNA4
from ringup.silicon.shader.amd.writer.wave import OWN_RULES, RULES

FORMATS = (
    "SOP1",
    "SOP2",
    "SOPC",
    "SOPK",
    "VOP1",
    "VOP2",
    "VOPC",
    "VOP3",
    "VOP3SD",
    "VOP3P",
    "VOP3A",
    "VOP3B",
    "VOP3P-MAI",
    "VOP3PX2",
    "VOPDX",
    "VOPDY",
    "VINTERP",
)

GENERATIONS = pytest.mark.parametrize(
    "of", [RDNA3, RDNA3_5, RDNA4, CDNA3, CDNA4], ids=["rdna3", "rdna3.5", "rdna4", "cdna3", "cdna4"]
)
REASONS = {
    "control flow and hardware registers: the translator's own": (
        "s_call_b64", "s_getpc_b64", "s_getreg_b32", "s_rfe_b64", "s_setpc_b64", "s_setreg_b32", "s_setreg_imm32_b32",
        "s_subvector_loop_begin", "s_subvector_loop_end", "s_swappc_b64", "s_barrier_signal", "s_barrier_signal_isfirst",
        "s_sleep_var", "s_alloc_vgpr",
    ),
    "waits: they matter to strict mode only": (
        "s_waitcnt_expcnt", "s_waitcnt_lgkmcnt", "s_waitcnt_vmcnt", "s_waitcnt_vscnt", "s_version", "v_nop", "v_pipeflush",
        "v_clrexcp",
    ),
    "messages are answered by the card": ("s_sendmsg_rtn_b32", "s_sendmsg_rtn_b64"),
    "rare: interpreted": ("s_get_barrier_state",),
    "LLVM has them, AMD's document reserves them: illegal": ("s_barrier_init", "s_barrier_join"),
    "of GCN, compilers do not use them: refused": (
        "s_cbranch_g_fork", "s_cbranch_i_fork", "s_cbranch_join", "s_setvskip", "s_rfe_restore_b64", "v_exp_legacy_f32",
        "v_log_legacy_f32", "v_screen_partition_4se_b32",
    ),
    "the register is known at run time only: interpreted": (
        "s_movreld_b32", "s_movreld_b64", "s_movrels_b32", "s_movrels_b64", "s_movrelsd_2_b32",
    ),
    "no document says what it does: refused": ("v_mfma_ld_scale_b32",),
    "a window on 1201 bits of 2/pi, for arguments too large to matter: interpreted": ("v_trig_preop_f64",),
    "pixel shaders only": (
        "v_interp_p10_f16_f32", "v_interp_p10_f32", "v_interp_p10_rtz_f16_f32", "v_interp_p2_f16_f32", "v_interp_p2_f32",
        "v_interp_p2_rtz_f16_f32",
    ),
}  # fmt: skip


def names_of(of, formats=None):
    rows = isa.target(of.facts).instructions
    return {
        engine_name(one.mnemonic) if of.is_gcn else of.renamed.get(one.mnemonic, one.mnemonic)
        for one in rows
        if formats is None or one.format in formats
    }


ALL_NAMES = names_of(RDNA3_5) | names_of(RDNA4) | names_of(CDNA3) | names_of(CDNA4)


@GENERATIONS
def test_every_alu_opcode_without_a_rule_has_its_reason(of):
    names = names_of(of, FORMATS)
    missing = {
        one
        for one in names
        if one not in RULES | OWN_RULES.get(of.name, {}) and one.replace("v_dual_", "v_", 1) not in RULES
    }
    assert missing == {one for group in REASONS.values() for one in group} & names


def test_every_reason_is_of_an_opcode_that_there_is():
    assert {one for group in REASONS.values() for one in group} <= ALL_NAMES


def test_every_alu_rule_is_of_an_opcode_that_there_is():
    names = set(ALL_NAMES)
    names |= {one.replace("v_dual_", "v_", 1) for one in names}
    # The engines' name of an instruction whose registers M0 selects.
    names |= {one.replace("v_", INDEXED_PREFIX, 1) for one in names}
    every = {one for table in (RULES, *OWN_RULES.values()) for one in table}
    assert {one for one in every if one[:2] in ("s_", "v_")} <= names
