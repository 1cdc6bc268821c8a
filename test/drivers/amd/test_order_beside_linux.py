"""Our bring-up beside that of Linux's amdgpu on the same card. Every difference of order and value has an explanation,
and every explanation is needed.
"""

from __future__ import annotations

import re
from pathlib import Path

import order_beside_linux as order
import pytest
import split_log
from order_beside import compare

from ringup.tools.cards import access_log

HERE = Path(__file__).parent
MAX_BYTES = 350_000


LOGS = sorted(order.DATA.glob("rung_*.log"))
# amdgpu_ucode.h, enum AMDGPU_UCODE_ID: the firmware of this chip as psp_get_fw_type names it. The SMU's comes before
# the trusted memory. psp_gfx_if.h, GFX_FW_TYPE_: SDMA_UCODE_TH0, TH1, RS64_PFP, ME, MEC, stacks of PFP 0 1, ME 0 1, MEC
# 0 1 2 3, CP_MES, MES_STACK, MES_KIQ, MES_KIQ_STACK, IMU_I, IMU_D, RLC_RESTORE_LIST_GPM_MEM, SRM_MEM, RLC_IRAM,
# RLC_DRAM_BOOT, RLC_P, RLC_V, RLC_G. psp_rl_load is last: REG_LIST.
FIRMWARE = [
    18, 71, 72, 87, 88, 89, 90, 91, 92, 93, 94, 95, 96, 97, 33, 34, 81, 82, 68, 69, 20, 21, 26, 48, 25, 7, 8, 67,
]  # fmt: skip


@pytest.fixture(scope="module")
def known():
    return order.tables()


@pytest.fixture(scope="module")
def kernel():
    return order.kernel()


@pytest.fixture(scope="module")
def ours():
    return order.ours()


def test_every_difference_is_explained_and_every_explanation_is_needed(known, kernel, ours):
    open_ones, stale = compare.unexplained(known, compare.differences(known, kernel, ours))
    assert [str(difference) for difference in open_ones] == []
    assert stale == []


def test_steps_have_names_and_reasons(known):
    assert compare.unclear(known) == []


def test_a_step_in_another_place_is_found(known, kernel):
    moved = order.Bringup(list(kernel.acts), dict(kernel.writes))
    on = next(at for at, act in enumerate(moved.acts) if act == "gc write gc.CP_MEC_RS64_CNTL = 0x3c000000")
    moved.acts.insert(0, moved.acts.pop(on))
    found = compare.differences(known, kernel, moved)
    # Steps that only our driver takes are in neither list.
    assert {row.kind for row in found} == {"neither", "swapped"}
    pairs = {row.names for row in found if row.kind == "swapped"}
    assert ("GC hub: context 0 on", "MEC: runs") in pairs


def test_a_register_with_another_value_is_found(known, kernel):
    changed = order.Bringup(kernel.acts, kernel.writes | {"gc.TCP_CNTL": [0]})
    found = [row for row in compare.differences(known, kernel, changed) if row.kind == "values"]
    assert [row.names for row in found] == [("gc.TCP_CNTL",)]


@pytest.mark.parametrize(
    ("lacks", "told"),
    [
        ("nbio read nbio.RCC_DEV0_EPF0_RCC_CONFIG_MEMSIZE", "HDP flush ahead of mp.MP0_SMN_C2PMSG_67"),
        (
            "mmhub read mmhub.MMVM_L2_BANK_SELECT_RESERVED_CID2 is 0x02000000",
            "mmhub.MMVM_L2_BANK_SELECT_RESERVED_CID2",
        ),
    ],
)
def test_a_read_that_pushes_posted_writes_is_missed(known, kernel, ours, lacks, told):
    without = order.Bringup([act for act in ours.acts if not act.startswith(lacks)], ours.writes)
    open_ones, _ = compare.unexplained(known, compare.differences(known, kernel, without))
    assert ("unpushed", (told,)) in [(row.kind, row.names) for row in open_ones]


def test_a_copy_queues_write_pointer_is_held_while_it_changes_as_the_kernel_does_it(kernel, ours):
    name = re.compile(r"gc write gc\.SDMA0_QUEUE0_(MINOR_PTR_UPDATE|RB_WPTR|RB_WPTR_HI) = .*")
    theirs, mine = ([act for act in side.acts if name.fullmatch(act)] for side in (kernel, ours))
    assert len(mine) == 4
    assert theirs[-4:] == mine


def test_reads_of_an_update_are_no_pushes():
    def acts(*lines):
        return order.Bringup([f"gc {line}" for line in lines]).pushes()

    assert acts("write gc.A = 0x1", "read gc.A is 0x1", "write gc.B = 0x1") == {"gc.A"}
    assert acts("read gc.A is 0x0", "write gc.A = 0x1", "read gc.A is 0x1", "write gc.A = 0x2") == set()
    assert acts("write gc.A = 0x1", "read gc.B is 0x1", "write gc.C = 0x1") == set()


def test_firmware_is_loaded_in_the_kernels_order(kernel, ours):
    assert ours.writes["psp.firmware"] == FIRMWARE
    loads = [act for act in kernel.acts if act.startswith("psp command 0x6")]
    assert len(loads) == len(FIRMWARE)
    assert kernel.writes["psp.firmware"] == FIRMWARE


def test_the_page_shows_the_tables_as_they_are(known):
    page = order.PAGE.read_text(encoding="utf-8")
    assert compare.paged(page, known) == page, "run test/support/order_beside_linux.py --page"


# --- the logs ---------------------------------------------------------------------------------------------------------


def test_there_is_a_log_for_every_rung_and_they_are_small():
    assert [path.stem for path in LOGS] == [f"rung_{rung:02}" for rung in split_log.TITLES]
    assert sum(path.stat().st_size for path in LOGS) < MAX_BYTES


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_a_log_reads_as_one_of_a_served_card(path):
    assert access_log.is_log(path)
    entries, remarks = access_log.read(path)
    assert "Debian" in remarks[1]
    # KFD accesses no register.
    assert bool(entries) == (path.stem != "rung_10")
    assert all(entry.card == 0 for entry in entries)


def test_the_logs_are_one_story():
    rungs = {path.stem: {entry.time_us for entry in access_log.read(path)[0]} for path in LOGS}
    times = [time_us for found in rungs.values() for time_us in found]
    # No moment is in two of them: sorted by time, they are the whole log again.
    assert len(times) == len(set(times))


def test_a_log_is_cut_where_the_table_says_and_bulk_is_named(tmp_path):
    entry = access_log.Entry
    acts = [
        ("nbio", "read", "nbio.RCC_DEV0_EPF0_RCC_IOV_FUNC_IDENTIFIER is 0x00000000"),
        ("mp", "read", "mp.MP0_SMN_C2PMSG_33 is 0x80000000"),
        *(("nbio", "read", f"nbio.BIF_BX_PF0_MM_DATA is {n:#010x}") for n in range(20)),
        ("nbio", "read", "nbio.RCC_STRAP0_RCC_DEV0_EPF0_STRAP0 is 0x308c744c"),
        ("nbio", "write", "nbio.BIF_BX_PF0_RSMU_INDEX = 0x090318f8"),
        ("osssys", "read", "osssys.IH_RB_CNTL is 0x00000000"),
        ("mp", "read", "mp.MP0_SMN_C2PMSG_81 is 0x00000000"),
        ("nbio", "write", "nbio.BIF_BX_PF0_RSMU_INDEX = 0x03b10024"),
        ("gc", "read", "gc.CP_STAT is 0x00000000"),
        ("gc", "write", "gc.CP_MAX_CONTEXT = 0x00000007"),
        ("mes", "packet", "MESAPI__MISC"),
    ]
    log, folder = tmp_path / "whole.log", tmp_path / "rungs"
    lines = [str(entry(float(at), 0, *act)) for at, act in enumerate(acts)]
    log.write_text(f"{access_log.HEAD}\n" + "".join(f"{line}\n" for line in lines))
    assert split_log.main([str(log), str(folder), "--made", "by a test"]) == 0
    probe, discovery = (access_log.read(folder / f"rung_{rung:02}.log") for rung in (1, 2))
    assert [entry.text.split()[0] for entry in probe[0]] == [acts[0][2].split()[0], acts[22][2].split()[0]]
    assert len(discovery[0]) == 1 + split_log.KEPT
    assert any("left out: 12 more entries, up to 21.0 us" in remark for remark in discovery[1])


def test_a_log_that_lacks_a_rung_is_refused(tmp_path):
    log = tmp_path / "short.log"
    log.write_text(f"{access_log.HEAD}\n")
    with pytest.raises(ValueError, match="rung 1: no entry begins amdgpu_detect_virtualization"):
        split_log.main([str(log), str(tmp_path / "rungs")])
