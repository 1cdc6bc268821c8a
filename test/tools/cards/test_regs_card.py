"""`ringup regs CARD`: it reads registers of a card by name, and writes only on request."""

import json

import pytest


def test_a_register_is_read_with_its_fields(plug, ringup):
    card = plug()
    card.gfxhub.cells["SCRATCH_REG0"] = 0x1234
    shown = json.loads(ringup("regs", card.name, "SCRATCH_REG0", "--json")[1])
    assert (shown[0]["name"], shown[0]["value"], shown[0]["card"]) == ("SCRATCH_REG0", 0x1234, card.name)
    assert "GRBM_STATUS = " in ringup("regs", card.name, "regGRBM_STATUS")[1]


def test_writing_wants_to_be_asked_for(plug, ringup):
    card = plug()
    status, _, err = ringup("regs", card.name, "SCRATCH_REG1=0x77")
    assert (status, "add --write" in err, card.gfxhub.cells["SCRATCH_REG1"]) == (2, True, 0)
    status, out, _ = ringup("regs", "--card", card.name, "SCRATCH_REG1=0x77", "--write")
    assert (status, "0x77 was written" in out, card.gfxhub.cells["SCRATCH_REG1"]) == (0, True, 0x77)


@pytest.mark.parametrize(
    ("query", "status", "text"),
    [
        ("SQ_IND_DATA", 2, "may advance SQ_IND_INDEX"),
        ("MMVM_INVALIDATE_ENG17_SEM", 2, "takes it from its holder"),
        ("NO_SUCH_REGISTER", 31, "no register NO_SUCH_REGISTER in navi31"),
        ("SCRATCH_REG0[3]", 2, "has 1 elements"),
        ("GRBM_*", 31, "no register"),
        ("SCRATCH_REG0=0x1ffffffff", 2, "add --write"),
    ],
)
def test_what_acts_or_is_unknown_is_not_read(plug, ringup, query, status, text):
    card = plug()
    got, out, err = ringup("regs", card.name, query)
    assert (got, out, text in err) == (status, "", True), err


def test_a_value_too_wide_is_wrong_usage(plug, ringup):
    card = plug()
    status, _, err = ringup("regs", card.name, "SCRATCH_REG0=0x1ffffffff", "--write")
    assert (status, "holds 32 bits" in err, card.gfxhub.cells["SCRATCH_REG0"]) == (2, True, 0)


def test_write_without_a_card_is_wrong_usage(ringup):
    assert ringup("regs", "navi31", "SCRATCH_REG0", "--write")[0] == 2
