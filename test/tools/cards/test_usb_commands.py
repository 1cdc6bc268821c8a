"""Commands on a card in a USB enclosure: they show what is special about it. Each error is one line with its own exit
code.
"""

import json

import pytest

CARD = "virtual:navi31@asm2464pd"


def test_info_tells_the_bridge_too(dock, ringup):
    dock()
    shown = json.loads(ringup("info", CARD, "--json")[1])
    assert (shown["chip"], shown["state"][:4]) == ("navi31", "cold")
    assert shown["bridge"] == {
        "ids": "add1:0001",
        "product": "custom v0.1",
        "firmware": "open",
        "version": shown["bridge"]["version"],
        "speed_mbps": 10_000,
        "link": shown["bridge"]["link"],
    }
    assert shown["bridge"]["link"].startswith("up")
    text = ringup("info", CARD)[1]
    assert "  bridge    add1:0001 'custom v0.1', open firmware" in text


def test_memory_and_registers_are_reached_through_the_bridge(dock, ringup):
    enclosure = dock()
    enclosure.card.vram.write(0x300000, b"behind the bridge")
    assert b"behind the bridge".hex() in json.loads(ringup("mem", CARD, "read", "0x300000", "17", "--json")[1])["data"]
    assert ringup("mem", CARD, "write", "0x400000", "aabbcc")[0] == 0
    assert bytes(enclosure.card.vram.read(0x400000, 4)) == b"\xaa\xbb\xcc\0"
    assert "GRBM_STATUS = " in ringup("regs", CARD, "GRBM_STATUS")[1]


def test_down_and_reset_reach_the_card_through_the_bridge(dock, ringup):
    enclosure = dock()
    assert "is stopped, in D3hot" in ringup("down", CARD)[1]
    assert enclosure.card.gpu.power_state == 3
    assert "slot: verified" in ringup("reset", CARD)[1]


def test_down_switches_the_slot_off_and_the_card_comes_up_from_there(dock, ringup):
    enclosure = dock()
    assert ringup("down", CARD, "--off")[1].endswith("its slot switched off\n")
    assert not enclosure.chip.link.up
    assert ringup("up", CARD)[0] == 0
    assert enclosure.chip.link.up
    assert not enclosure.violations


@pytest.mark.parametrize("name", ["up", "info", "down", "reset", "report", "stats"])
def test_an_enclosure_without_a_card_says_what_to_look_at(dock, ringup, name):
    dock().unplug_card()
    status, out, err = ringup(name, CARD)
    assert (status, out, err.count("\n")) == (14, "", 1), err
    assert "supply" in err


@pytest.mark.parametrize("name", ["up", "info", "down", "reset", "report", "stats"])
def test_a_device_that_may_not_be_opened_is_reported(dock, ringup, name):
    enclosure = dock()
    enclosure.host.denied.add("1-1")
    status, out, err = ringup(name, CARD)
    assert (status, out, err.count("\n")) == (12, "", 1), err
    enclosure.host.denied.clear()
    assert ringup("info", CARD)[0] == 0


@pytest.mark.parametrize("name", ["info", "down", "reset", "report"])
@pytest.mark.parametrize("transfers", [1, 10, 60])
def test_an_enclosure_that_is_pulled_is_reported(dock, ringup, name, transfers):
    enclosure = dock()
    enclosure.faults.inject("disconnect_after_transfers", transfers)
    status, out, err = ringup(name, CARD)
    assert (status, out, err.count("\n")) == (20, "", 1), err


def test_up_counts_what_goes_over_the_cable(dock, ringup):
    enclosure = dock()
    shown = json.loads(ringup("up", CARD, "--json")[1])
    usb = shown["usb"]
    assert set(usb) == {"opening", "bring_up", "test"}
    assert all(part["transfers"] == part["control"] + part["bulk"] >= part["waits"] > 0 for part in usb.values())
    inside = sum(stage["transfers"] for stage in shown["stages"])
    assert 0 < inside <= usb["bring_up"]["transfers"] + usb["test"]["transfers"]
    assert shown["stages"][-1]["transfers"] == usb["test"]["transfers"]
    # These are the host's own counts for each endpoint, closing included.
    seen = enclosure.host.counts("1-1")
    assert sum(one.transfers for one in seen.values()) >= sum(part["transfers"] for part in usb.values())
    assert shown["moved_bytes"] == 1 << 20
