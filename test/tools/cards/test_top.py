"""`ringup top`: one frame without a terminal, objects as JSON, and frames drawn in place on a terminal."""

import json
import sys
from collections import deque

import pytest
from rich.console import Console

from ringup.tools.cards import top


def test_without_a_terminal_it_is_one_frame(plug, ringup):
    card = plug()
    status, out, err = ringup("top", card.name)
    assert (status, err) == (0, "")
    assert out.startswith("virtual:navi31, PCIe generation 4 x16\n")
    assert "\x1b" not in out
    rows = {line.split()[0]: line.split() for line in out.splitlines() if line.strip()}
    assert "W" in rows["power"]
    assert rows["compute"][2:5] == ["1", "1", "idle"]


def test_programs_get_an_object_a_look(plug, ringup):
    card = plug()
    looks = [
        json.loads(line) for line in ringup("top", card.name, "--json", "--count", "3", "--every", "2")[1].splitlines()
    ]
    assert [look["metrics"]["counter"] for look in looks] == sorted({look["metrics"]["counter"] for look in looks})
    assert looks[1]["at_us"] - looks[0]["at_us"] >= 2_000_000


def test_a_terminal_is_drawn_on_until_the_count(plug, ringup, monkeypatch):
    card = plug()
    monkeypatch.setattr(
        top, "Console", lambda **options: Console(**options, force_terminal=True, file=sys.stdout, width=100)
    )
    out = ringup("top", card.name, "--count", "2")[1]
    # The last frame stays on the screen.
    assert out.count("virtual:navi31, PCIe") >= 2
    assert "\x1b[" in out


def test_curves_are_as_high_as_their_values():
    assert top.curve([0, 50, 100, 200], 100) == " ▄██"
    assert top.curve([0, 50, 100], 100, top.PLAIN_BARS) == " =@"
    assert top.curve([1], 0) == ""


@pytest.mark.parametrize(("share", "colour"), [(0.1, "green"), (0.8, "yellow"), (0.95, "red")])
def test_a_gauge_says_how_near_its_top_it_is(share, colour):
    seen = {
        "name": "a card",
        "link": {"generation": 4, "lanes": 16},
        "metrics": {"power_w": round(300 * share)},
        "power_limit_w": 300,
    }
    console = Console(force_terminal=True, record=True, width=80, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(top.frame(seen, {"power_w": deque()}))
    codes = {"green": "\x1b[32m", "yellow": "\x1b[33m", "red": "\x1b[31m"}
    assert codes[colour] in console.export_text(styles=True)


def test_a_card_whose_holder_left_nothing_says_so():
    console = Console(record=True, width=80, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(
        top.frame({"name": "a", "link": {"generation": 1, "lanes": 1}, "metrics": None, "temperature_c": 40}, {})
    )
    text = console.export_text()
    assert "no metrics yet" in text
    assert "40 °C" in text
