"""Every command names a card in the same ways: as CARD, by --card, by RINGUP_CARD, or not at all if there is one."""

import pytest

from ringup.cards import Found
from ringup.tools.command_line import card_argument


def test_a_card_is_named_in_three_ways(plug, ringup, monkeypatch):
    plug()
    for words in (["info", "virtual:navi31"], ["info", "--card", "virtual:navi31"]):
        assert ringup(*words)[:1] == (0,)
    monkeypatch.setenv("RINGUP_CARD", "virtual:navi31")
    assert ringup("info")[1].startswith("virtual:navi31: navi31, gfx1100")


def test_what_is_typed_comes_before_the_environment(plug, ringup, monkeypatch):
    plug("navi33")
    monkeypatch.setenv("RINGUP_CARD", "virtual:navi31")
    assert ringup("info", "virtual:navi33")[1].startswith("virtual:navi33")


def test_the_only_real_card_needs_no_name(ringup, monkeypatch, nowhere):
    listed = [Found("pci:0000:03:00.0", "a card"), Found("virtual:navi31", "a model")]
    monkeypatch.setattr(card_argument, "cards", lambda: listed)
    status, _, err = ringup("info")
    # The error names the card that the command tried.
    assert (status, "there is no PCI function 0000:03:00.0" in err) == (10, True)
    listed.append(Found("usb:2-1", "an enclosure"))
    assert "several cards can be opened, name one: pci:0000:03:00.0, usb:2-1" in ringup("info")[2]


def test_two_names_are_wrong_usage(ringup):
    status, out, err = ringup("up", "virtual:navi31", "--card", "virtual:navi33")
    assert (status, out) == (2, "")
    assert "two cards are named: virtual:navi31 and virtual:navi33; `ringup up --help`" in err


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("navi31", "virtual:navi31"),
        ("Navi33", "virtual:navi33"),
        ("navi31@asm2464pd", "virtual:navi31@asm2464pd"),
        ("vrtual:navi32", "virtual:navi32"),
        ("0000:03:00.0", "pci:0000:03:00.0"),
        ("03:00.0", "pci:03:00.0"),
    ],
)
def test_a_near_name_is_suggested(ringup, typed, meant):
    status, _, err = ringup("up", typed)
    assert (status, err) == (10, f"ringup up: NoSuchCard: {typed!r} names no card: did you mean {meant}?\n")


def test_commands_that_take_a_card_away_choose_none_themselves(ringup, nowhere, monkeypatch):
    for command in ("bind", "unbind"):
        status, _, err = ringup(command)
        assert (status, "which card? name it, or set RINGUP_CARD" in err) == (2, True)
        monkeypatch.setenv("RINGUP_CARD", "pci:0000:ff:1f.7")
        assert "there is no PCI function 0000:ff:1f.7" in ringup(command)[2]
        monkeypatch.delenv("RINGUP_CARD")


def test_a_name_like_nothing_says_where_names_are(ringup):
    assert "names no card: `ringup list` shows them; a name is PREFIX:REST" in ringup("up", "graphics")[2]
