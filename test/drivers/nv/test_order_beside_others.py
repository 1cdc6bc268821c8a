"""Our start and end of a bare GA102 beside those of nouveau and of NVIDIA's open kernel modules on the same card. Every
difference of order and value has an explanation, and every explanation is needed.
"""

from __future__ import annotations

import pytest
import split_log
from order_beside import compare
from order_beside import nvidia as order

from ringup.tools.cards import access_log

MAX_BYTES = 350_000
LOGS = [order.DATA / f"{driver}_{phase}.log" for driver in order.OTHERS for phase in order.PHASES]


@pytest.fixture(scope="module")
def known():
    return order.tables()


@pytest.fixture(scope="module")
def ours():
    return order.ours()


@pytest.mark.parametrize("driver", order.OTHERS)
def test_every_difference_is_explained_and_every_explanation_is_needed(known, ours, driver):
    found = compare.differences(known[driver], order.other(driver), ours)
    open_ones, stale = compare.unexplained(known[driver], found)
    assert [str(difference) for difference in open_ones] == []
    assert stale == []


@pytest.mark.parametrize("driver", order.OTHERS)
def test_a_step_in_another_place_is_found(known, ours, driver):
    moved = compare.Bringup(list(ours.acts), dict(ours.writes))
    page = next(at for at, act in enumerate(moved.acts) if act.startswith("bus write NV_PFB_NISO_FLUSH_SYSMEM_ADDR ="))
    # the first program of a falcon
    runs = moved.acts.index("gsp program runs fwsec")
    moved.acts.insert(runs, moved.acts.pop(page))
    open_ones, _ = compare.unexplained(known[driver], compare.differences(known[driver], order.other(driver), moved))
    pairs = {row.names for row in open_ones if row.kind == "swapped"}
    assert ("memory: flush page", "FWSEC: GSP's falcon is reset") in pairs


def test_steps_have_names_and_reasons(known):
    for tables in known.values():
        assert compare.unclear(tables) == []


def test_the_page_shows_the_tables_as_they_are(known):
    page = order.PAGE.read_text(encoding="utf-8")
    assert order.paged(page, known) == page, "run order_beside.nvidia with --page"


def test_the_logs_are_small_and_each_of_one_card():
    assert sum(path.stat().st_size for path in LOGS) < MAX_BYTES
    for path in LOGS:
        entries, remarks = access_log.read(path)
        assert "6.12" in remarks[1]
        assert {entry.card for entry in entries} == {0}
        # what comes in long runs is cut
        assert any(remark.startswith("left out: ") for remark in remarks)


def test_a_log_is_cut_at_its_remarks(tmp_path):
    lines = [
        access_log.HEAD,
        *(f"# {order.REMARKS['nouveau'][0]}", *(_read(at) for at in range(20)), "# nouveau is idle", _read(99)),
        *(f"# {order.REMARKS['nouveau'][1]}", _read(100)),
    ]
    log = tmp_path / "access.log"
    log.write_text("\n".join([*lines, ""]))
    order.cut(log, "nouveau", tmp_path)
    (start, remarks), (stop, _) = (access_log.read(tmp_path / f"nouveau_{phase}.log") for phase in order.PHASES)
    assert (len(start), len(stop)) == (split_log.KEPT, 1)
    assert remarks[-1] == "left out: 12 more entries, up to 19.0 us: reads of the VBIOS"


def _read(at):
    return str(access_log.Entry(float(at), 0, "bus", "read", f"PROM+{4 * at:#x} is 00000000"))
