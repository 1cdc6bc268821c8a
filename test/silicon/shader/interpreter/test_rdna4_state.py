"""What a wave of RDNA4 finds at its start, and its hardware registers.

Source: RDNA4 ISA reference, "Initial Wave State", "Wave State Registers".
"""

import numpy as np
import pytest

from ringup.errors import NotSupported
from ringup.silicon.shader.amd.interpreter.engine import Interpreter
from ringup.silicon.shader.amd.translator.engine import Translator

OUT = 0x30_0000
# Each wave stores s8 at the word that its group's numbers and its own number select.
STORE = """
    s_bfe_u32 s9, ttmp8, 0x50019
    s_and_b32 s10, ttmp7, 0xffff
    s_lshr_b32 s11, ttmp7, 16
    s_lshl_b32 s11, s11, 4
    s_lshl_b32 s10, s10, 3
    s_lshl_b32 s12, ttmp9, 1
    s_add_co_u32 s9, s9, s10
    s_add_co_u32 s9, s9, s11
    s_add_co_u32 s9, s9, s12
    s_lshl_b32 s9, s9, 2
    v_mov_b32_e32 v3, s9
    v_mov_b32_e32 v4, s8
    global_store_b32 v3, v4, s[0:1]
    s_endpgm
"""


@pytest.fixture
def out(rdna4):
    return rdna4.buffer(OUT, np.zeros(64))


def test_trap_registers_hold_the_groups_number_and_the_waves(rdna4, out):
    rdna4.run(
        "s_lshl_b32 s8, ttmp9, 20\n s_add_co_u32 s8, s8, ttmp7\n s_add_co_u32 s8, s8, 1\n" + STORE,
        user_sgprs=(OUT, 0), group_count=(4, 2, 2), group_size=(64, 1, 1), enable_group_id=(True, True, True),
    )  # fmt: skip
    expected = [1 + (x << 20) + (z << 16) + y for z in range(2) for y in range(2) for x in range(4) for _ in range(2)]
    assert out[:32].tolist() == expected


def test_scalar_registers_follow_the_users_without_the_groups_numbers(rdna4, out):
    rdna4.run(
        "s_mov_b32 s8, s2\n" + STORE, user_sgprs=(OUT, 0), group_size=(64, 1, 1), enable_group_info=True,
        enable_group_id=(True, True, True),
    )  # fmt: skip
    assert out[0] == 2
    found = rdna4.broken(
        "s_mov_b32 s8, s3\n" + STORE, user_sgprs=(OUT, 0), enable_group_info=True, enable_group_id=(True, True, True)
    )
    assert found.kind == "uninitialised"


def test_programs_do_not_write_trap_registers(rdna4, out):
    rdna4.run("s_mov_b32 ttmp9, 5\n s_mov_b32 s8, 3\n" + STORE, user_sgprs=(OUT, 0))
    assert out[0] == 3


READS = [
    ("hwreg(HW_REG_WAVE_MODE)", 0xC0),
    ("hwreg(HW_REG_WAVE_STATUS, 11, 1)", 1),  # in a group of several waves
    ("hwreg(HW_REG_WAVE_STATUS, 29, 1)", 0),  # a wave32
    ("hwreg(HW_REG_WAVE_STATE_PRIV, 9, 1)", 1),  # SCC
    ("hwreg(HW_REG_WAVE_STATE_PRIV, 2, 1)", 0),  # no barrier is complete
    ("hwreg(HW_REG_WAVE_STATE_PRIV, 18, 1)", 1),  # there is scratch memory
    ("hwreg(HW_REG_WAVE_SCRATCH_BASE_LO)", 0x80_0000),
    ("hwreg(HW_REG_WAVE_EXCP_FLAG_USER)", 0),
    ("hwreg(HW_REG_WAVE_TRAP_CTRL)", 0x12),
    ("hwreg(HW_REG_SHADER_CYCLES_HI)", 0),
]


@pytest.mark.parametrize(("register", "value"), READS, ids=[one for one, _ in READS])
def test_hardware_registers_are_read_by_rdna4s_numbers(rdna4, out, register, value):
    rdna4.buffer(0x80_0000, np.zeros(1024))
    rdna4.run(
        f"s_cmp_eq_u32 0, 0\n s_getreg_b32 s8, {register}\n" + STORE, user_sgprs=(OUT, 0), group_size=(64, 1, 1),
        scratch_base=0x80_0000, scratch_wave_bytes=1024, exceptions=0x12,
    )  # fmt: skip
    assert out[0] == value


def test_a_program_writes_mode_and_its_own_exception_flags_only(rdna4, out):
    rdna4.run(
        """
        s_setreg_imm32_b32 hwreg(HW_REG_WAVE_EXCP_FLAG_USER, 0, 7), 0x55
        s_setreg_imm32_b32 hwreg(HW_REG_WAVE_TRAP_CTRL, 0, 7), 0x7f
        s_setreg_imm32_b32 hwreg(HW_REG_WAVE_MODE, 0, 4), 0x5
        s_getreg_b32 s4, hwreg(HW_REG_WAVE_EXCP_FLAG_USER)
        s_getreg_b32 s5, hwreg(HW_REG_WAVE_TRAP_CTRL)
        s_getreg_b32 s6, hwreg(HW_REG_WAVE_MODE)
        s_lshl_b32 s5, s5, 8
        s_lshl_b32 s6, s6, 16
        s_or_b32 s8, s4, s5
        s_or_b32 s8, s8, s6
        """
        + STORE,
        user_sgprs=(OUT, 0),
    )
    assert out[0] == 0xC5_0055


def test_a_trap_handler_writes_state_and_exception_flags(rdna4, out):
    rdna4.run(
        """
        s_setreg_imm32_b32 hwreg(HW_REG_WAVE_STATE_PRIV, 9, 1), 1
        s_cselect_b32 s8, 7, 0
        s_setreg_imm32_b32 hwreg(HW_REG_WAVE_EXCP_FLAG_PRIV, 4, 1), 1
        s_getreg_b32 s4, hwreg(HW_REG_WAVE_EXCP_FLAG_PRIV)
        s_or_b32 s8, s8, s4
        """
        + STORE,
        user_sgprs=(OUT, 0),
        privileged=True,
    )
    assert out[0] == 7 | 1 << 4


def test_a_trap_enters_the_handler_with_its_number_above_the_address(rdna4, out):
    handler = rdna4.assemble(
        """
        s_getreg_b32 ttmp2, hwreg(HW_REG_WAVE_SCHED_MODE, 0, 2)
        s_lshr_b32 s8, ttmp1, 28
        s_and_b32 ttmp1, ttmp1, 0xffff
        s_add_co_u32 ttmp0, ttmp0, 4
        s_rfe_b64 ttmp[0:1]
        """,
        processor="gfx1201",
    )
    rdna4.arena.place(0x60_0000, handler, executable=True)
    program = "s_trap 5\n s_add_co_u32 s8, s8, 0x100\n" + STORE
    rdna4.run(program, user_sgprs=(OUT, 0), trap_enabled=True, trap_base=0x60_0000)
    assert out[0] == 0x105


# ---- operands and modifiers

RESULT = "\n v_lshlrev_b32_e32 v3, 2, v0\n global_store_b32 v3, v4, s[0:1]\n s_endpgm"


def f16(*values):
    return [int(one) for one in np.array(values, np.float16).view(np.uint16)]


# v2 holds a, v3 holds b, v4 6.0 and 7.0 before.
HALVES = [
    ("v_add_f16_e32 v4.l, v2.h, v3.l", lambda a, b: (a[1] + b[0], 7.0)),
    ("v_add_f16_e32 v4.h, v2.l, v3.h", lambda a, b: (6.0, a[0] + b[1])),
    ("v_add_f16_e64 v4.h, v2.h, v3.h", lambda a, b: (6.0, a[1] + b[1])),
    ("v_minimum_f16 v4.l, v2.h, -v3.h", lambda a, b: (min(a[1], -b[1]), 7.0)),
    ("v_mov_b16_e32 v4.h, v3.l", lambda a, b: (6.0, b[0])),
    ("v_fma_f16 v4.l, v2.l, v3.h, v2.h", lambda a, b: (a[0] * b[1] + a[1], 7.0)),
    ("v_pk_maximum_f16 v4, v2, v3 op_sel:[0,1] op_sel_hi:[1,0]", lambda a, b: (max(a[0], b[1]), max(a[1], b[0]))),
    ("v_swap_b16 v4.l, v2.h", lambda a, b: (a[1], 7.0)),
]


@pytest.mark.parametrize(("text", "wanted"), HALVES, ids=[one for one, _ in HALVES])
def test_halves_of_registers_are_operands(rdna4, out, text, wanted):
    a, b = (1.5, -2.0), (0.25, 3.0)
    words = [low | high << 16 for low, high in (f16(*a), f16(*b), f16(6.0, 7.0))]
    setup = "\n".join(f"v_mov_b32_e32 v{2 + at}, {word:#x}" for at, word in enumerate(words))
    rdna4.run(f"{setup}\n{text}{RESULT}", user_sgprs=(OUT, 0))
    low, high = f16(*wanted(a, b))
    assert out[0] == low | high << 16


def test_scalar_results_of_transcendentals_ignore_exec(rdna4, out):
    rdna4.run(
        "s_mov_b32 exec_lo, 0\n s_mov_b32 s4, 2.0\n v_s_rcp_f32 s8, -s4\n v_s_sqrt_f16 s9, 4.0\n s_lshl_b32 s9, s9, 1\n"
        "s_add_co_u32 s8, s8, s9\n s_mov_b32 exec_lo, -1\n" + STORE,
        user_sgprs=(OUT, 0),
    )
    assert out[0] == 0xBF00_0000 + (0x4000 << 1)


@pytest.mark.parametrize("denormals", [0, 15])
def test_output_modifiers_work_in_every_denormal_mode(rdna4, out, denormals):
    program = f"s_denorm_mode {denormals}\n v_mov_b32_e32 v2, 1.0\n v_add_f32_e64 v4, v2, v2 mul:4{RESULT}"
    rdna4.run(program, user_sgprs=(OUT, 0))
    assert out[0] == np.float32(8).view(np.uint32)


def test_a_clamped_nan_is_zero(rdna4, out):
    program = f"v_mov_b32_e32 v2, 0x7fc00000\n v_add_f32_e64 v4, v2, v2 clamp{RESULT}"
    rdna4.run(program, user_sgprs=(OUT, 0), dx10_clamp=False)
    assert out[0] == 0


def test_a_permuted_instruction_takes_a_scalar_beside(rdna4, out):
    permuted = "s_movk_i32 s4, 100\n v_add_nc_u32_e64_dpp v4, v0, s4 row_ror:1 row_mask:0xf bank_mask:0xf"
    rdna4.run(permuted + RESULT, user_sgprs=(OUT, 0))
    assert out[:16].tolist() == [100 + (lane - 1) % 16 for lane in range(16)]


@pytest.mark.parametrize(("name", "row"), [("v_permlane16_var_b32", 0), ("v_permlanex16_var_b32", 16)])
def test_each_lane_names_the_lane_that_it_reads(rdna4, out, name, row):
    permuted = f"v_mul_u32_u24_e32 v2, 7, v0\n v_mov_b32_e32 v4, 0\n {name} v4, v0, v2"
    rdna4.run(permuted + RESULT, user_sgprs=(OUT, 0))
    assert out[:32].tolist() == [(lane & 16 ^ row) + 7 * lane % 16 for lane in range(32)]


# Machine code that gfx1100 has and gfx1201 has not: s_barrier, s_waitcnt_vscnt null, s_subvector_loop_end.
@pytest.mark.parametrize("word", [0xBFBD0000, 0xBC7C0000, 0xBBFE0000])
def test_instructions_that_rdna4_lacks_are_illegal(rdna4, word):
    assert rdna4.broken(f".long {word:#x}\n s_endpgm").kind == "illegal"


@pytest.mark.parametrize("make", [Interpreter, Translator])
def test_cores_of_an_unknown_processor_are_refused(rdna4, make):
    with pytest.raises(NotSupported, match=r"virtual cores of gfx1250: there are gfx1100, .*gfx1201"):
        rdna4.start("s_endpgm", engine=make(target="gfx1250"))
