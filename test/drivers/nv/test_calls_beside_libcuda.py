"""What our driver asks of NVIDIA's kernel driver beside what NVIDIA's own library asks. Every difference has an
explanation, and every explanation is needed.
"""

from __future__ import annotations

import pytest
from order_beside import compare
from order_beside import libcuda as order

SCHEDULED = "control NVA06C_CTRL_CMD_GPFIFO_SCHEDULE of KEPLER_CHANNEL_GROUP_A for compute"


@pytest.fixture(scope="module")
def known():
    return order.tables()


@pytest.fixture(scope="module")
def ours():
    return order.ours()


def open_ones(known, ours):
    return compare.unexplained(known, compare.differences(known, order.theirs(), ours))[0]


def test_every_difference_is_explained_and_every_explanation_is_needed(known, ours):
    found = compare.unexplained(known, compare.differences(known, order.theirs(), ours))
    assert tuple(map(str, found[0])) == ()
    assert found[1] == []


def test_a_call_in_another_place_a_lost_one_and_another_parameter_are_found(known, ours):
    acts = list(ours.acts)
    acts.remove(SCHEDULED)
    lost = compare.Bringup(acts, dict(ours.writes))
    assert {row.kind for row in open_ones(known, lost)} == {"missing"}
    acts.insert(acts.index("alloc AMPERE_COMPUTE_B for compute"), SCHEDULED)
    names = [row.names for row in open_ones(known, compare.Bringup(acts, dict(ours.writes)))]
    assert names == [("compute: its object", "compute: scheduled")]
    writes = {**ours.writes, "KEPLER_CHANNEL_GROUP_A for compute.engineType": [2]}
    (found,) = open_ones(known, compare.Bringup(list(ours.acts), writes))
    assert (found.kind, found.names) == ("values", ("KEPLER_CHANNEL_GROUP_A for compute.engineType",))


def test_steps_have_names_and_reasons(known):
    assert compare.unclear(known) == []


def test_the_page_shows_the_tables_as_they_are(known):
    page = order.PAGE.read_text(encoding="utf-8")
    assert order.paged(page, known) == page, "run order_beside.libcuda with --page"
    # as the page says in words
    assert known.swapped == ()
