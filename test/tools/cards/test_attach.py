"""Commands on a card that another process drives: they read the card and change nothing. Where reading is impossible,
the error names the process.
"""

import json

import pytest

import ringup as library
from ringup.drivers.transport.linux.readonly import ReadOnly
from ringup.errors import CardBusy, NotSupported

PCI = "pci:0000:03:00.0"
HOLDER = "process 4711 (python3 train.py)"


@pytest.fixture
def driven(plug, monkeypatch):
    """A card on the PCI bus that another process has brought up. It can only be mapped for reading."""
    card = plug(vram_bytes=256 << 20, bar0_bytes=256 << 20)
    radeon = library.open(card.name)
    radeon.stats()

    def busy(name):
        raise CardBusy(f"taking the card's lock: held by {HOLDER}")

    monkeypatch.setattr("ringup.connect", busy)
    monkeypatch.setattr("ringup.tools.cards.attach.open_readonly", lambda address: ReadOnly.of(card))
    monkeypatch.setattr("ringup.tools.cards.attach.holder", lambda address: HOLDER)
    yield card
    radeon.close()


def test_info_and_report_name_the_holder_and_write_nothing(driven, ringup):
    shown = json.loads(ringup("info", PCI, "--json")[1])
    assert (shown["holder"], shown["state"], shown["chip"], shown["resets"]) == (
        HOLDER,
        "driven by another process",
        "navi31",
        [],
    )
    report = json.loads(ringup("report", PCI, "--json")[1])
    assert (report["holder"], report["metrics"]["counter"]) == (HOLDER, 1)
    # The holder still drives the card.
    assert driven.gpu.masters_bus


def test_its_memory_and_registers_can_be_read(driven, ringup):
    driven.vram.write(0x8000000, b"\x01\x02\x03\x04")
    assert json.loads(ringup("mem", PCI, "read", "0x8000000", "4", "--json")[1])["data"] == "01020304"
    assert "GRBM_STATUS = " in ringup("regs", PCI, "GRBM_STATUS")[1]


@pytest.mark.parametrize(
    "words",
    [
        ["mem", PCI, "write", "0", "00"],
        ["regs", PCI, "SCRATCH_REG0=1", "--write"],
        ["down", PCI],
        ["reset", PCI],
        ["up", PCI],
    ],
)
def test_what_would_change_it_names_the_holder(driven, ringup, words):
    status, out, err = ringup(*words)
    assert (status, out, HOLDER in err) == (13, "", True)


def test_a_card_that_cannot_be_looked_at_names_who_has_it(driven, ringup, monkeypatch):
    def asleep(address):
        raise NotSupported("it sleeps")

    monkeypatch.setattr("ringup.tools.cards.attach.open_readonly", asleep)
    status, _, err = ringup("info", PCI)
    assert (status, HOLDER in err) == (13, True)
