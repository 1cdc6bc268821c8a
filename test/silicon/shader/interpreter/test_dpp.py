"""Lane permutations of a source. Source: RDNA3 ISA reference, "Data Parallel Processing"."""

import numpy as np
import pytest

OUT, NONE = 0x30_0000, 0xAAAA_AAAA
ARGS = {"user_sgprs": (OUT, 0), "enable_group_id": (False, False, False)}
LANES = np.arange(32)
ROWS = LANES & ~15


def moved(machine, modifiers, mask=0xFFFF_FFFF):
    """Return what v_mov_b32 with these modifiers makes of the lane numbers. The destination starts as 0xAAAAAAAA, and
    EXEC is `mask`.
    """
    out = machine.buffer(OUT, np.zeros(32))
    machine.run(
        f"""
        v_lshlrev_b32_e32 v1, 2, v0
        v_mov_b32_e32 v2, {NONE:#x}
        s_mov_b32 exec_lo, {mask:#x}
        v_mov_b32_dpp v2, v0 {modifiers}
        s_mov_b32 exec_lo, -1
        global_store_b32 v1, v2, s[0:1]
        s_endpgm
    """,
        **ARGS,
    )
    return out


def shifted(by, outside):
    within = (LANES & 15) + by
    return np.where((within >= 0) & (within < 16), LANES + by, outside)


ALL = "row_mask:0xf bank_mask:0xf"


@pytest.mark.parametrize(
    ("modifiers", "wanted"),
    [
        (f"quad_perm:[3,0,1,1] {ALL}", (LANES & ~3) + np.array([3, 0, 1, 1] * 8)),
        (f"row_shl:3 {ALL}", shifted(3, NONE)),
        (f"row_shl:3 {ALL} bound_ctrl:1", shifted(3, 0)),
        (f"row_shr:1 {ALL}", shifted(-1, NONE)),
        (f"row_shr:1 {ALL} bound_ctrl:1", shifted(-1, 0)),
        (f"row_ror:4 {ALL}", ROWS + (LANES - 4) % 16),
        (f"row_mirror {ALL}", LANES ^ 15),
        (f"row_half_mirror {ALL}", LANES ^ 7),
        (f"row_share:5 {ALL}", ROWS + 5),
        (f"row_xmask:6 {ALL}", LANES ^ 6),
        ("row_share:0 row_mask:0x2 bank_mask:0xf", np.where(LANES >= 16, 16, NONE)),
        ("row_share:0 row_mask:0xf bank_mask:0x5", np.where(LANES // 4 % 2 == 0, ROWS, NONE)),
        ("dpp8:[7,6,5,4,3,2,1,0]", LANES ^ 7),
    ],
)
def test_lanes_move(machine, modifiers, wanted):
    assert moved(machine, modifiers).tolist() == wanted.tolist()


@pytest.mark.parametrize(
    ("modifiers", "first"),
    [
        (f"row_xmask:1 {ALL}", [NONE, NONE]),
        (f"row_xmask:1 {ALL} bound_ctrl:1", [0, NONE]),
        (f"row_xmask:1 {ALL} fi:1", [1, NONE]),
        ("dpp8:[1,0,3,2,5,4,7,6]", [0, NONE]),
        ("dpp8:[1,0,3,2,5,4,7,6] fi:1", [1, NONE]),
    ],
)
def test_a_source_lane_that_is_off(machine, modifiers, first):
    """Lane 0 is active and reads lane 1, which is not."""
    assert moved(machine, modifiers, mask=0x1)[:2].tolist() == first
