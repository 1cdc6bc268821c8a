"""`ringup regs`: what it shows, decodes and refuses."""

import argparse
import json

import pytest

from ringup.errors import HeaderError
from ringup.tools import regs


@pytest.fixture
def ask(capsys):
    """Run the command; give status, output and errors."""

    def run(*words):
        parser = argparse.ArgumentParser()
        regs.add_parser(parser.add_subparsers())
        args = parser.parse_args(["regs", *words])
        status = regs.run(args)
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


def test_a_full_name_shows_place_address_and_fields(ask):
    status, out, _ = ask("navi31", "MMVM_INVALIDATE_ENG17_REQ")
    lines = out.splitlines()
    assert status == 0
    assert lines[0] == "MMVM_INVALIDATE_ENG17_REQ  mmhub 3.0.0  reg dword 0x774, segment 0, byte 0x69dd0"
    assert lines[1].split() == ["15:0", "PER_VMID_INVALIDATE_REQ"]
    assert lines[2].split() == ["18:16", "FLUSH_TYPE"]


@pytest.mark.parametrize("spelling", ["mmvm_invalidate_eng17_req", "regMMVM_INVALIDATE_ENG17_REQ"])
def test_case_and_prefix_of_a_full_name_do_not_matter(ask, spelling):
    assert ask("navi31", spelling)[1].startswith("MMVM_INVALIDATE_ENG17_REQ  ")


def test_a_part_of_a_name_lists_what_holds_it_and_says_how_many_more(ask):
    _, out, _ = ask("navi31", "GCVM_INVALIDATE")
    lines = out.splitlines()
    assert len(lines) == regs.LINE_LIMIT + 1
    assert lines[0].split()[0] == "GCVM_INVALIDATE_CNTL"
    assert lines[-1].startswith("... and ")
    _, everything, _ = ask("navi31", "GCVM_INVALIDATE", "--all")
    assert "PER_VMID_INVALIDATE_REQ" in everything
    assert "... and" not in everything


def test_a_value_is_decoded_and_bits_of_no_field_are_named(ask):
    status, out, _ = ask("navi31", "CP_HQD_PQ_CONTROL=0x1234508")
    shown = [line.split() for line in out.splitlines()]
    assert status == 0
    assert ["5:0", "QUEUE_SIZE", "0x8"] in shown
    assert ["13:8", "RPTR_BLOCK_SIZE", "0x5"] in shown
    assert ["bits", "of", "no", "field:", "0x30000"] in shown


def test_json_holds_the_same(ask):
    _, out, _ = ask("navi31", "CP_HQD_PQ_CONTROL=0x508", "--json")
    (document,) = json.loads(out)
    assert (document["name"], document["block"], document["version"], document["value"]) == (
        "CP_HQD_PQ_CONTROL",
        "gc",
        "11.0.0",
        0x508,
    )
    assert document["addresses"] == [(0x1260 + document["offset"]) * 4]
    fields = {field["name"]: field for field in document["fields"]}
    assert (fields["QUEUE_SIZE"]["hi"], fields["QUEUE_SIZE"]["lo"], fields["QUEUE_SIZE"]["value"]) == (5, 0, 8)


def test_a_value_too_wide_is_one_line_on_stderr(ask):
    status, out, err = ask("navi31", "CP_HQD_PQ_CONTROL=0x1ffffffff")
    assert (status, out) == (1, "")
    assert err == "ringup regs: CP_HQD_PQ_CONTROL holds 32 bits, not 0x1ffffffff\n"


@pytest.mark.parametrize("value", ["", "zz", "-1", "0x"])
def test_a_value_that_is_none_is_refused(ask, value):
    status, out, err = ask("navi31", f"CP_HQD_PQ_CONTROL={value}")
    assert (status, out) == (1, "")
    assert err.count("\n") == 1


def test_a_typing_error_names_the_register_that_was_meant(ask):
    with pytest.raises(HeaderError, match="no register CP_HQD_PQ_CONTRL in navi31; near: CP_HQD_PQ_CONTROL"):
        ask("navi31", "CP_HQD_PQ_CONTRL")
    with pytest.raises(HeaderError, match="near: CP_HQD_PQ_CONTROL"):
        ask("navi31", "CP_HQD_PQ_CONTRL=1")


def test_a_pattern_takes_stars(ask):
    _, out, _ = ask("navi31", "GCVM_INVALIDATE_ENG1?_REQ")
    names = [line.split()[0] for line in out.splitlines()]
    assert names == [f"GCVM_INVALIDATE_ENG{i}_REQ" for i in range(10, 18)]


def test_an_unknown_chip_or_block_lists_those_there_are(ask):
    with pytest.raises(HeaderError, match=r"no chip navi99 .*navi31"):
        ask("navi99", "X")
    with pytest.raises(HeaderError, match="navi31 has no block gfx; it has gc, mmhub"):
        ask("navi31", "X", "--block", "gfx")


def test_a_guessed_version_is_called_one(ask):
    _, out, _ = ask("navi31")
    thermal = next(line for line in out.splitlines() if line.startswith("thm"))
    assert "version is a guess" in thermal


def test_without_a_chip_the_chips_are_listed(ask):
    status, out, _ = ask()
    assert status == 0
    assert ["navi31", "gfx1100"] in [line.split()[:2] for line in out.splitlines()]
