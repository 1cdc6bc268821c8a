"""Every command without a card, with a busy card and with a lost card: it prints one line about the cause and exits
with the code of that cause.
"""

import pytest
from mandelbrot_words import ARGUMENTS

from ringup.errors import CardBusy, DeviceLost, NoSuchCard
from ringup.tools.command_line import cli

# The loss comes after so many bytes on the bus, from bring-up into the work.
PULLED_AFTER = (0, 100, 2_000, 20_000, 150_000, 700_000)
RADEON = "virtual:navi31"


def on_a_card(code):
    """Return the commands that act on a card with all their arguments but the card."""
    return {
        "up": [],
        "down": [],
        "info": [],
        "stats": [],
        "top": [],
        "reset": [],
        "report": [],
        "demo": [],
        "regs": ["GRBM_STATUS"],
        "mem": ["read", "0", "16"],
        "run": [code, *ARGUMENTS],
        "trace": ["--perfetto", "/dev/null"],
    }


# These bring the card up and let it work.
WORKING = ("up", "demo", "run", "trace")
NAMES = sorted(on_a_card("").keys())
# These commands need no card: words and exit status.
WITHOUT = {
    "list": ([], 0),
    "doctor": ([], (0, 1)),
    "setup": ([], 0),
    "firmware": (["check", "navi31"], (0, 30)),
    "decode": (["pm4", "/dev/null"], 0),
    "program": (["/dev/null"], 32),
    "headers": (["fetch", "--cache", "/no/such/folder", "no-such-package"], 31),
    "serve": (["usbip", "virtual:navi99@asm2464pd"], 10),
    "bench": (["--list"], 0),
    "completion": (["bash"], 0),
    "bind": (["pci:0000:ff:1f.7"], 10),
    "unbind": (["pci:0000:ff:1f.7"], 10),
    "bridge": (["info", "usb:99-1"], (10, 40)),
    **{name: (["/no/such/file"], 32) for name in ("asm", "disasm", "compile", "explain", "tune")},
}


def test_every_command_is_in_the_matrix():
    assert set(cli.COMMANDS) <= {*NAMES, *WITHOUT}


# demo has a default card; regs takes a chip.
@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("demo", "regs")])
def test_without_a_card_it_says_what_to_try(ringup, nowhere, mandelbrot, name):
    status, out, err = ringup(name, *on_a_card(mandelbrot)[name])
    assert (status, out, err.count("\n")) == (NoSuchCard.exit_code, "", 1), err
    assert "no real card can be opened (none was found); `ringup doctor` says why" in err


@pytest.mark.parametrize("name", sorted(set(WITHOUT) & set(cli.COMMANDS)))
def test_what_needs_no_card_works_without_one(ringup, nowhere, name):
    words, wanted = WITHOUT[name]
    status, _, err = ringup(name, *words)
    assert status in (wanted if isinstance(wanted, tuple) else (wanted,)), err
    assert "Traceback" not in err


@pytest.mark.parametrize("name", NAMES)
def test_a_busy_card_names_who_has_it(ringup, plug, mandelbrot, name):
    card = plug()
    card.hold()
    status, out, err = ringup(name, "--card", RADEON, *on_a_card(mandelbrot)[name])
    assert (status, out, err.count("\n")) == (CardBusy.exit_code, "", 1), err
    assert "held by process " in err
    card.close()
    # The holder was not disturbed, and the next process gets the card.
    assert ringup("info", RADEON)[0] == 0


@pytest.mark.parametrize("name", NAMES)
def test_a_lost_card_is_reported_in_one_line(ringup, plug, mandelbrot, name):
    card = plug()
    card.unplug()
    status, out, err = ringup(name, "--card", RADEON, *on_a_card(mandelbrot)[name])
    assert (status, out, err.count("\n")) == (DeviceLost.exit_code, "", 1), err
    assert "check power and cable" in err


@pytest.mark.parametrize("name", WORKING)
@pytest.mark.parametrize("after_bytes", PULLED_AFTER)
@pytest.mark.sweep(8)
def test_a_card_pulled_at_work_is_lost_and_comes_back(ringup, plug, mandelbrot, name, after_bytes):
    card = plug()
    card.faults.inject("link_drop_after_bytes", after_bytes)
    status, _, err = ringup(name, "--card", RADEON, *on_a_card(mandelbrot)[name])
    # The status is 0 if the command had finished before.
    assert status in (0, DeviceLost.exit_code), err
    assert status == 0 or err.count("\n") == 1
    card.replug()
    assert ringup("up", RADEON)[0] == 0
