"""What RDNA3.5 changes in RDNA3, on both engines. Source: RDNA3.5 ISA reference, "SALU Floating Point", "S_MIN_F32"."""

import numpy as np
import pytest

from ringup.silicon.shader.amd.interpreter.engine import Interpreter
from ringup.silicon.shader.amd.translator.engine import Translator
from ringup.silicon.shader.amd.translator.translations import THREADED

OUT = 0x30_0000
ARGS = {"user_sgprs": (OUT, 0), "enable_group_id": (False, False, False)}
ENGINES = {"interpreter": Interpreter, "translator": lambda target: Translator(level=THREADED, target=target)}
TRANSCENDENTAL = "v_cvt_f32_u32_e32 v2, v0\n v_exp_f32_e32 v3, v2\n v_add_f32_e32 v4, 1.0, v3\n s_endpgm"


@pytest.fixture(params=ENGINES)
def of(request, assemble, machine):
    """`of(processor)` returns a `Machine` of that processor."""
    return lambda processor: type(machine)(assemble, ENGINES[request.param](target=processor))


def test_a_transcendental_result_may_be_read_at_once(of):
    of("gfx1151").run(TRANSCENDENTAL, **ARGS)
    assert of("gfx1100").broken(TRANSCENDENTAL, **ARGS).kind == "hazard"


def test_a_scalar_may_stand_beside_a_permuted_source(of):
    rdna3_5 = of("gfx1151")
    out = rdna3_5.buffer(OUT, np.zeros(32))
    rdna3_5.run(
        """
        v_lshlrev_b32_e32 v1, 2, v0
        s_movk_i32 s4, 100
        v_add_nc_u32_e64_dpp v2, v0, s4 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf
        global_store_b32 v1, v2, s[0:1]
        s_endpgm
        """,
        **ARGS,
    )
    assert out.tolist() == [100 + (lane ^ 1) for lane in range(32)]


def test_scalar_floats_compute_what_numpy_does(of):
    rdna3_5 = of("gfx1151")
    out = rdna3_5.buffer(OUT, np.zeros(8), "<f4")
    lines = ["s_mov_b32 s4, 0x3f8ccccd", "s_mov_b32 s5, 0xc0490fdb", "s_mov_b32 s16, 0x40000000", "v_mov_b32_e32 v1, 0"]
    texts = ("s_add_f32 s8, s4, s5", "s_mul_f32 s8, s4, s5", "s_min_f32 s8, s4, s5", "s_max_f32 s8, s4, s5", "s_floor_f32 s8, s5",
             "s_fmamk_f32 s8, s4, 0x40000000, s5", "s_cvt_f32_i32 s8, -7", "s_fmac_f32 s16, s4, s5\n s_mov_b32 s8, s16")  # fmt: skip
    for at, text in enumerate(texts):
        lines += [text, "v_mov_b32_e32 v2, s8", f"global_store_b32 v1, v2, s[0:1] offset:{4 * at}"]
    rdna3_5.run("\n".join([*lines, "s_endpgm"]), **ARGS)
    a, b = np.array([0x3F8C_CCCD, 0xC049_0FDB], np.uint32).view(np.float32)
    # The product of two f32 is exact in f64.
    fused = [np.float32(np.float64(a) * 2 + np.float64(b)), np.float32(np.float64(a) * np.float64(b) + 2)]
    assert out.tolist() == [a + b, a * b, b, a, -4, fused[0], -7, fused[1]]
    assert of("gfx1100").broken(".long 0xa0080504\n s_endpgm", **ARGS).kind == "illegal"


@pytest.mark.parametrize("ieee", [0, 1])
def test_minima_of_nans_are_as_mode_says(of, ieee):
    rdna3_5 = of("gfx1151")
    signaling, quiet, one = 0x7F80_0001, 0xFFC0_1234, 0x3F80_0000
    pairs = ((signaling, one), (one, signaling), (quiet, one), (one, quiet), (signaling, quiet), (0x8000_0000, 0))
    out = rdna3_5.buffer(OUT, np.zeros(len(pairs)))
    lines = [f"s_setreg_imm32_b32 hwreg(HW_REG_MODE, 9, 1), {ieee}", "v_mov_b32_e32 v1, 0"]
    for at, (first, second) in enumerate(pairs):
        lines += [f"s_mov_b32 s4, {first:#x}", f"s_mov_b32 s5, {second:#x}", "s_min_f32 s8, s4, s5", "v_mov_b32_e32 v2, s8",
                  f"global_store_b32 v1, v2, s[0:1] offset:{4 * at}"]  # fmt: skip
    rdna3_5.run("\n".join([*lines, "s_endpgm"]), float_mode=0xF0, ieee_mode=bool(ieee), **ARGS)
    quieted = signaling | 1 << 22
    plain = [one, one, one, one, signaling, 0x8000_0000]
    assert out.tolist() == ([quieted, quieted, one, one, quieted, 0x8000_0000] if ieee else plain)
