"""info, down, reset and report: these commands inspect a card or bring it to rest, and do not start it."""

import json
from dataclasses import replace

import ringup as library


def leave(card):
    """Let a process die while it drives the card."""
    radeon = library.open(card.name)
    radeon.stats()
    card.kill_holder()


def test_info_starts_nothing(plug, ringup):
    card = plug()
    shown = json.loads(ringup("info", card.name, "--json")[1])
    assert (shown["chip"], shown["target"], shown["pci_id"]) == ("navi31", "gfx1100", "1002:744c")
    assert (shown["vram_bytes"], shown["blocks"]["mp0"], shown["state"][:4]) == (256 << 20, "13.0.0", "cold")
    assert all(row["path"] == card.name for row in shown["firmware"])
    assert not card.gpu.masters_bus
    assert json.loads(ringup("info", card.name, "--json")[1])["state"][:4] == "cold"


def test_info_says_how_a_card_was_left(plug, ringup):
    card = plug()
    leave(card)
    assert "left running: the process that drove it is gone" in ringup("info", card.name)[1]
    assert ringup("up", card.name)[0] == 0
    assert "at rest: its last driver closed it" in ringup("info", card.name)[1]


def test_down_ends_what_runs_and_the_card_comes_up_again(plug, ringup):
    card = plug()
    leave(card)
    done = json.loads(ringup("down", card.name, "--json")[1])
    assert ([rung["name"] for rung in done["rungs"]], done["power"]) == (["mode1"], "D3hot")
    assert (card.gpu.power_state, card.gpu.masters_bus) == (3, False)
    shown = json.loads(ringup("info", card.name, "--json")[1])
    assert (shown["found_asleep"], shown["state"][:4]) == (True, "cold")
    assert "it was cold" in ringup("up", card.name)[1]


def test_down_can_leave_it_awake(plug, ringup):
    card = plug()
    assert ringup("down", card.name, "--awake")[1].endswith("is stopped, in D0, as asked\n")
    assert card.gpu.power_state == 0


def test_reset_begins_where_it_is_told(plug, ringup):
    card = plug()
    leave(card)
    assert ringup("reset", card.name)[1].startswith("mode1: verified")
    assert ringup("reset", card.name, "--first", "slot")[1].startswith("slot: verified")
    status, _, err = ringup("reset", card.name, "--first", "function")
    assert (status, "has no reset function; over this path it has mode1, slot" in err) == (2, True)


def test_a_report_of_a_card_that_was_left_tells_queues_and_leaves_them(plug, ringup, tmp_path):
    card = plug()
    leave(card)
    page = tmp_path / "report.html"
    status, out, _ = ringup("report", card.name, "--html", page)
    assert (status, "queues that are mapped:\n  compute 1.0.0" in out) == (0, True)
    text = page.read_text()
    assert text.startswith("<!DOCTYPE html>")
    assert "<h1>Report of virtual:navi31</h1>" in text
    assert "GRBM_STATUS" in text
    # The page fetches nothing from another address.
    assert "http" not in text.split("</style>")[1]
    assert json.loads(ringup("report", card.name, "--json")[1])["mark"]["state"] == 1


def test_a_report_of_a_card_that_is_brought_up_has_its_stages(plug, ringup):
    card = plug()
    shown = json.loads(ringup("report", card.name, "--up", "--json")[1])
    assert shown["stages"][0]["name"] == "waking the bus"


def test_firmware_that_serves_nothing_is_reported(plug, ringup, tmp_path):
    card = plug()
    for path in (tmp_path, "/dev/null"):
        told = f"{path}, where firmware should be, has none of the card's files, such as amdgpu/psp_13_0_0_sos.bin"
        status, out, err = ringup("up", card.name, "--firmware", path)
        assert (status, out, told in err, err.count("\n")) == (30, "", True, 1), err
        assert told in ringup("info", card.name, "--firmware", path)[1]


def test_commands_show_firmware_that_the_tables_are_not_of(plug, ringup):
    """Distributions of 2026 ship firmware with interface 0x41. Our tables are those of
    smu13_driver_if_v13_0_0.h, 0x3d.
    """
    card = plug()
    card.smu.row = replace(card.smu.row, interface_version=0x41, firmware_version=0x4E8500)
    both = "firmware 0x4e8500 speaks interface 0x41, the driver's tables are of 0x3d"
    assert both in ringup("up", card.name)[1]
    out = ringup("stats", card.name)[1]
    assert both in out
    assert "metrics (uncertain: see doubts)" in out
    assert both in ringup("report", card.name, "--up")[1]
    # The SMU's firmware keeps running after the last driver closes.
    assert both in ringup("info", card.name)[1]
    assert both in ringup("report", card.name)[1]
    assert json.loads(ringup("info", card.name, "--json")[1])["doubts"]


def test_commands_name_a_power_controller_that_is_silent(plug, ringup):
    card = plug()
    leave(card)
    card.faults.inject("smu_silent")
    silent = "the power controller (SMU, MP1) is silent: no answer to SMU message GetDriverIfVersion"
    assert silent in ringup("info", card.name)[1]
    assert silent in ringup("report", card.name)[1]
