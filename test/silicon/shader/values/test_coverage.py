"""The ALU opcodes without a value function of the interpreter, each with its reason."""

from __future__ import annotations

from ringup.autogen import isa
from ringup.silicon.shader.amd.decoding.gcn_names import engine_name
from ringup.silicon.shader.amd.decoding.generations import CDNA3, CDNA4, RDNA3_5, RDNA4
from ringup.silicon.shader.amd.interpreter.value_table import CDNA4_VALUES, CDNA_VALUES, VALUES, base_mnemonic

FORMATS = (
    "SOP1", "SOP2", "SOPC", "SOPK", "VOP1", "VOP2", "VOPC", "VOP3", "VOP3SD", "VOP3P", "VOPDX", "VOPDY", "VINTERP",
)  # fmt: skip
REASONS = {
    "control flow, hardware registers and waits: the interpreter's core": (
        "s_alloc_vgpr", "s_barrier_signal", "s_barrier_signal_isfirst", "s_get_barrier_state", "s_sleep_var",
        "s_call_b64", "s_getpc_b64", "s_getreg_b32", "s_rfe_b64", "s_setpc_b64", "s_setreg_b32", "s_setreg_imm32_b32",
        "s_subvector_loop_begin", "s_subvector_loop_end", "s_swappc_b64", "s_version", "s_waitcnt_expcnt", "s_waitcnt_lgkmcnt",
        "s_waitcnt_vmcnt", "s_waitcnt_vscnt",
    ),
    "messages are answered by the card": ("s_sendmsg_rtn_b32", "s_sendmsg_rtn_b64"),
    "M0 moves the register numbers: the interpreter's core": (
        "s_movreld_b32", "s_movreld_b64", "s_movrels_b32", "s_movrels_b64", "s_movrelsd_2_b32", "v_movreld_b32", "v_movrels_b32",
        "v_movrelsd_2_b32", "v_movrelsd_b32", "v_swaprel_b32",
    ),
    "LLVM has them, AMD's document reserves them: illegal": ("s_barrier_init", "s_barrier_join"),
    "pixel shaders only": (
        "v_interp_p10_f16_f32", "v_interp_p10_f32", "v_interp_p10_rtz_f16_f32", "v_interp_p2_f16_f32", "v_interp_p2_f32",
        "v_interp_p2_rtz_f16_f32",
    ),
}  # fmt: skip


def names():
    return {
        base_mnemonic(of.renamed.get(one.mnemonic, one.mnemonic))
        for of in (RDNA3_5, RDNA4)
        for one in isa.target(of.facts).instructions
        if one.format in FORMATS
    }


def test_every_alu_opcode_without_a_value_has_its_reason():
    assert names() - set(VALUES) == {one for group in REASONS.values() for one in group}


def test_every_value_is_of_an_opcode_that_there_is():
    assert set(VALUES) <= names()


# Of CDNA3, besides those above.
CDNA3_REASONS = {
    "control flow and hardware registers: the interpreter's core": (
        "s_set_gpr_idx_on", "s_set_gpr_idx_idx", "s_cbranch_g_fork", "s_cbranch_i_fork", "s_cbranch_join", "s_rfe_restore_b64",
        "s_setvskip", "s_call_b64", "s_getpc_b64", "s_getreg_b32", "s_rfe_b64", "s_setpc_b64", "s_setreg_b32", "s_setreg_imm32_b32",
        "s_swappc_b64", "s_movreld_b32", "s_movreld_b64", "s_movrels_b32", "s_movrels_b64",
    ),
    "nothing to compute": ("v_clrexcp",),
    "LLVM has them, AMD's document does not: refused": (
        "v_screen_partition_4se_b32", "v_exp_legacy_f32", "v_log_legacy_f32",
    ),
}  # fmt: skip


def test_every_alu_opcode_of_cdna3_without_a_value_has_its_reason():
    found = names_of_gcn(CDNA3)
    reasons = {one for group in CDNA3_REASONS.values() for one in group}
    assert found - set(CDNA_VALUES) == reasons
    assert set(CDNA_VALUES) - set(VALUES) <= found


def test_every_alu_opcode_of_cdna4_without_a_value_has_its_reason():
    found = names_of_gcn(CDNA4)
    reasons = {one for group in CDNA3_REASONS.values() for one in group}
    # The first half of a scaled product, which AMD's document does not have alone.
    assert found - set(CDNA4_VALUES) == reasons | {"v_mfma_ld_scale_b32"}
    assert set(CDNA4_VALUES) - set(VALUES) <= found


def names_of_gcn(of):
    formats = (
        "SOP1",
        "SOP2",
        "SOPC",
        "SOPK",
        "VOP1",
        "VOP2",
        "VOPC",
        "VOP3A",
        "VOP3B",
        "VOP3P",
        "VOP3P-MAI",
        "VOP3PX2",
    )
    return {engine_name(one.mnemonic) for one in isa.target(of.facts).instructions if one.format in formats}
