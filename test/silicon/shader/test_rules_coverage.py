"""The scalar and vector ALU opcodes of gfx1100 without a rule of the translator, each with its reason."""

from __future__ import annotations

from ringup.autogen import isa
from ringup.silicon.shader.rdna.writer.wave import RULES

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
    "VOPDX",
    "VOPDY",
    "VINTERP",
)

REASONS = {
    "control flow and hardware registers: the translator's own": (
        "s_call_b64", "s_getpc_b64", "s_getreg_b32", "s_rfe_b64", "s_setpc_b64", "s_setreg_b32", "s_setreg_imm32_b32",
        "s_subvector_loop_begin", "s_subvector_loop_end", "s_swappc_b64",
    ),
    "waits: they matter to strict mode only": (
        "s_waitcnt_expcnt", "s_waitcnt_lgkmcnt", "s_waitcnt_vmcnt", "s_waitcnt_vscnt", "s_version", "v_nop", "v_pipeflush",
    ),
    "messages are answered by the card": ("s_sendmsg_rtn_b32", "s_sendmsg_rtn_b64"),
    "the register is known at run time only: interpreted": (
        "s_movreld_b32", "s_movreld_b64", "s_movrels_b32", "s_movrels_b64", "s_movrelsd_2_b32",
    ),
    "a window on 1201 bits of 2/pi, for arguments too large to matter: interpreted": ("v_trig_preop_f64",),
    "pixel shaders only": (
        "v_interp_p10_f16_f32", "v_interp_p10_f32", "v_interp_p10_rtz_f16_f32", "v_interp_p2_f16_f32", "v_interp_p2_f32",
        "v_interp_p2_rtz_f16_f32",
    ),
}  # fmt: skip


def test_every_alu_opcode_without_a_rule_has_its_reason():
    names = {one.mnemonic for one in isa.target("gfx1100").instructions if one.format in FORMATS}
    missing = {one for one in names if one not in RULES and one.replace("v_dual_", "v_", 1) not in RULES}
    assert missing == {one for group in REASONS.values() for one in group}


def test_every_alu_rule_is_of_an_opcode_that_there_is():
    names = {one.mnemonic for one in isa.target("gfx1100").instructions}
    names |= {one.replace("v_dual_", "v_", 1) for one in names}
    assert {one for one in RULES if one[:2] in ("s_", "v_")} <= names
