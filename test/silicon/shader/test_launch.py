"""How the dispatcher fills waves: RDNA3 ISA reference, "CS SGPR Load", "Work-groups"; LLVM AMDGPUUsage, "Initial Kernel
Execution State".
"""

import pytest

from ringup.silicon.shader.amd.translator.plan import Plan, key_of
from ringup.silicon.shader.common.launch import (
    group_idents,
    group_shape,
    occupancy,
    start_group,
    waves_in_group,
)
from ringup.silicon.shader.common.state import EXEC_LO, Dispatch

BASE = Dispatch(pc=0x1000, wave_size=32, group_size=(64, 1, 1), group_count=(2, 1, 1), vgpr_count=24)


def changed(**values):
    return BASE._replace(**values)


def test_the_grid_is_walked_x_first_from_its_start():
    idents = list(group_idents(changed(group_start=(5, 1, 0), group_count=(2, 2, 1))))
    assert idents == [(5, 1, 0), (6, 1, 0), (5, 2, 0), (6, 2, 0)]


def test_only_the_last_group_of_an_axis_is_partial():
    dispatch = changed(group_size=(64, 4, 1), group_count=(3, 2, 1), partial_size=(10, 3, 0))
    assert [group_shape(dispatch, ident) for ident in ((0, 0, 0), (2, 0, 0), (0, 1, 0), (2, 1, 0))] == [
        (64, 4, 1),
        (10, 4, 1),
        (64, 3, 1),
        (10, 3, 1),
    ]
    assert waves_in_group(dispatch, (2, 1, 0)) == 1  # 30 work-items
    assert waves_in_group(dispatch) == 8


@pytest.mark.parametrize(("wave_size", "masks"), [(32, [0xFFFF_FFFF, 0x3F]), (64, [0x3F_FFFF_FFFF])])
def test_lanes_beyond_the_group_are_off(wave_size, masks):
    dispatch = changed(wave_size=wave_size, group_size=(38, 1, 1))
    assert [wave.exec_mask for wave in start_group(dispatch, (0, 0, 0), 0).waves] == masks


def test_work_items_are_numbered_x_first_and_packed_into_vgpr_0():
    dispatch = changed(group_size=(3, 5, 3), tidig_comp_cnt=2)
    first, second = start_group(dispatch, (0, 0, 0), 0).waves
    assert first.vgprs[0, :4].tolist() == [0, 1, 2, 1 << 10]
    assert int(first.vgprs[0, 16]) == 1 | 0 << 10 | 1 << 20  # item 16 is (1, 0, 1)
    # The last item is number 44.
    assert int(second.vgprs[0, 12]) == 2 | 4 << 10 | 2 << 20
    assert second.exec_mask == 0x1FFF


@pytest.mark.parametrize(("components", "item"), [(0, 2), (1, 2 | 1 << 10), (2, 2 | 1 << 10 | 1 << 20)])
def test_vgpr_0_holds_as_many_components_as_asked(components, item):
    dispatch = changed(group_size=(3, 2, 2), tidig_comp_cnt=components)
    assert int(start_group(dispatch, (0, 0, 0), 0).waves[0].vgprs[0, 11]) == item


def test_sgprs_hold_user_data_then_what_is_enabled():
    dispatch = changed(
        group_size=(96, 1, 1), user_sgprs=(7, 8), enable_group_id=(True, False, True), enable_group_info=True
    )
    waves = start_group(dispatch, (4, 5, 6), 0).waves
    # {first_wave, 6'h0, wave_id_in_group[4:0], 2'h0, ordered_append_term[11:0], size_in_waves[5:0]}
    assert [wave.sgprs[:5].tolist() for wave in waves] == [
        [7, 8, 4, 6, 0x8000_0003],
        [7, 8, 4, 6, 0x0010_0003],
        [7, 8, 4, 6, 0x0020_0003],
    ]


def test_every_resident_wave_has_scratch_of_its_own():
    dispatch = changed(scratch_base=0x10_0000_0000, scratch_wave_bytes=0x400)
    waves = start_group(dispatch, (0, 0, 0), 6).waves
    bases = [int(wave.words[134]) | int(wave.words[135]) << 32 for wave in waves]
    assert bases == [0x10_0000_0000 + 0x400 * slot for slot in (6, 7)]


def test_mode_is_that_of_the_resource_registers():
    wave = start_group(changed(float_mode=0xF0, ieee_mode=True, exceptions=1), (0, 0, 0), 0).waves[0]
    assert int(wave.words[129]) == 0xF0 | 1 << 8 | 1 << 9 | 1 << 12


@pytest.mark.parametrize(
    ("values", "groups"),
    [
        # Two waves in each of 64 slots, and 32 barriers.
        ({}, 32),
        # No barrier is needed.
        ({"group_size": (32, 1, 1)}, 64),
        ({"vgpr_count": 96}, 32),  # 1536 / 96 = 16 waves a SIMD
        ({"vgpr_count": 97}, 24),  # 1536 / 120 = 12 waves a SIMD
        ({"vgpr_count": 256}, 10),  # 1536 / 264 = 5 waves a SIMD, 20 slots
        ({"wave_size": 64, "vgpr_count": 256}, 8),  # 768 / 264 = 2 waves a SIMD
        ({"lds_size_bytes": 64 * 1024}, 2),
        ({"lds_size_bytes": 20_000}, 6),  # 20 KiB each
        # 32 waves, and room for 20.
        ({"group_size": (1024, 1, 1), "vgpr_count": 256}, 0),
        ({"simd_vgprs": 1024, "vgpr_count": 97}, 18),  # 1024 / 112 = 9 waves a SIMD, 36 slots
        ({"simd_vgprs": 1024, "wave_size": 64, "vgpr_count": 256}, 8),  # 1024 / 512 = 2 waves a SIMD
        # 32 waves, and room for 32.
        ({"simd_vgprs": 1024, "group_size": (1024, 1, 1), "vgpr_count": 128}, 1),
        ({"simd_vgprs": 1024, "group_size": (1024, 1, 1), "vgpr_count": 136}, 0),
    ],
)
def test_occupancy_is_what_a_wgp_holds(values, groups):
    assert occupancy(changed(**values)) == groups


def test_dispatches_share_a_plan_that_differ_in_code_and_user_sgprs_alone():
    one = changed(user_sgprs=(1, 2))
    assert key_of(one) == key_of(changed(user_sgprs=(3, 4), pc=0x2000))
    others = (
        changed(user_sgprs=(1,)),
        changed(user_sgprs=(1, 2), group_count=(3, 1, 1)),
        changed(user_sgprs=(1, 2), vmid=2),
    )
    assert all(key_of(one) != key_of(other) for other in others)


def test_a_plan_has_the_first_words_of_full_and_partial_groups():
    dispatch = changed(group_size=(48, 1, 1), group_count=(3, 1, 1), partial_size=(8, 0, 0), user_sgprs=(7,))
    plan = Plan.of(dispatch, strict=True, wgp_count=1)
    assert [(shape, len(one.full)) for shape, one in plan.templates.items()] == [(0, 2), (1, 1)]
    assert plan.templates[0].full == (True, False)
    assert [int(words[EXEC_LO]) for one in plan.templates.values() for words in one.words] == [
        0xFFFF_FFFF,
        0xFFFF,
        0xFF,
    ]
    assert all(first % 64 == 0 for first, _ in plan.places)
    assert plan.slots == 3
