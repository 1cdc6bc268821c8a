"""`ringup regs`: what it shows, decodes and refuses."""

import argparse
import json

import pytest

from ringup.autogen import regdb
from ringup.autogen.generate.emit.regdb import write_block, write_chip
from ringup.autogen.generate.emit.register_facts import RegisterFacts
from ringup.errors import HeaderError
from ringup.tools.cards import regs


@pytest.fixture
def ask(capsys):
    """Run the command; return status, output and errors."""

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
    assert ["bits", "without", "a", "field:", "0x30000"] in shown


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


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("", "'' is not a number for"),
        ("zz", "'zz' is not a number for"),
        ("0x", "'0x' is not a number for"),
        ("-1", "holds 32 bits, not -1"),
        ("0x1ffffffff", "CP_HQD_PQ_CONTROL holds 32 bits, not 0x1ffffffff"),
    ],
)
def test_a_value_that_is_none_is_wrong_usage(ringup, value, text):
    status, out, err = ringup("regs", "navi31", f"CP_HQD_PQ_CONTROL={value}")
    assert (status, out, text in err, err.count("\n")) == (2, "", True, 1), err


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


def test_a_chip_s_blocks_are_narrowed_by_the_block_asked_for(ask):
    _, out, _ = ask("navi31", "--block", "mmhub")
    assert [line.split()[0] for line in out.splitlines()] == ["mmhub"]
    with pytest.raises(HeaderError, match="navi31 has no block nope; it has gc, mmhub"):
        ask("navi31", "--block", "nope")
    with pytest.raises(HeaderError, match="--block gc needs a chip"):
        ask("--block", "gc")


@pytest.mark.parametrize(
    "query", ["GCVM_INVALIDATE_ENG17_REQ=1", "GCVM_INVALIDATE_ENG17_REQ", "regGCVM_INVALIDATE_ENG17_REQ"]
)
def test_a_register_of_another_block_is_reported_where_it_is(ask, query):
    with pytest.raises(HeaderError, match=r"in navi31's block mmhub; it is in gc$"):
        ask("navi31", query, "--block", "mmhub")


def test_a_part_of_a_name_of_another_block_is_reported_where_it_is(ask):
    with pytest.raises(
        HeaderError, match=r"no register GCVM_INVALIDATE in navi31's block mmhub; there are some in gc$"
    ):
        ask("navi31", "GCVM_INVALIDATE", "--block", "mmhub")


def test_a_typing_error_in_a_block_names_that_block_s_registers(ask):
    with pytest.raises(HeaderError, match="near: MMVM_INVALIDATE_ENG17_REQ"):
        ask("navi31", "MMVM_INVALIDATE_ENG17_REK", "--block", "mmhub")


def test_a_value_of_a_pattern_is_refused_with_the_way_to_list_it(ask):
    with pytest.raises(HeaderError, match=r"a value needs one register: `ringup regs navi31 'CP_\*'` lists those"):
        ask("navi31", "CP_*=5")


@pytest.mark.parametrize("words", [("navi31", "\udcff"), ("navi31", "\udcff=1"), ("navi31", "\udcff", "--block", "gc")])
def test_bytes_that_are_no_text_are_no_register(ask, words):
    with pytest.raises(HeaderError, match="no register"):
        ask(*words)


@pytest.mark.parametrize("name", ["a" * 300, "../chips/navi31", "na\0vi"])
def test_what_is_no_chip_s_name_is_refused(ask, name):
    with pytest.raises(HeaderError, match=r"no chip .*navi31"):
        ask(name)


# ---- damaged databases


@pytest.fixture
def database(tmp_path, monkeypatch):
    """A database of `one`, with a damaged block before an intact one, and `two`, with the intact one alone."""
    (tmp_path / "chips").mkdir()
    (tmp_path / "bad.bin").write_bytes(b"nonsense")
    (tmp_path / "good.bin").write_bytes(write_block([RegisterFacts("CP_STAT", "reg", 4, None)]))
    bad, good = regdb.Place("bad", "1", "bad.bin"), regdb.Place("good", "2", "good.bin")
    for name, places in {"one": (bad, good), "two": (good,)}.items():
        (tmp_path / "chips" / f"{name}.bin").write_bytes(write_chip(regdb.ChipRow(name, "", "v", places)))
    monkeypatch.setattr(regs, "chip_names", lambda: regdb.chip_names(tmp_path))
    monkeypatch.setattr(regs, "open_chip", lambda name: regdb.open_chip(name, tmp_path))
    return tmp_path


@pytest.mark.parametrize("query", ["CP_STAT", "cp_stat", "regCP_STAT", "STAT", "*STAT", "CP_STAT=1", "cp_stat=1"])
@pytest.mark.parametrize("where", [(), ("--block", "good")])
def test_a_damaged_block_hides_no_other(ask, database, query, where):
    status, out, _ = ask("one", query, *where)
    assert status == 0
    assert out.startswith("CP_STAT ")


@pytest.mark.parametrize("query", ["NOPE", "NOPE=1", "*NOPE*"])
def test_what_a_damaged_block_may_hold_is_an_error_that_names_its_file(ask, database, query):
    with pytest.raises(HeaderError, match=r"bad\.bin is cut short"):
        ask("one", query)
    with pytest.raises(HeaderError, match=r"bad\.bin is cut short"):
        ask("one", query, "--block", "bad")
    with pytest.raises(HeaderError, match=r"no register .* in one's block good; "):
        ask("one", query, "--block", "good")


def test_the_blocks_are_listed_beside_a_damaged_one(ask, database, capsys):
    with pytest.raises(HeaderError, match=r"bad\.bin is cut short"):
        ask("one")
    assert [line.split()[:3] for line in capsys.readouterr().out.splitlines()] == [
        ["bad", "1", "damaged"],
        ["good", "2", "1"],
    ]
    with pytest.raises(HeaderError, match=r"bad\.bin is cut short"):
        ask("one", "--json")
    assert [row["registers"] for row in json.loads(capsys.readouterr().out)] == [None, 1]
    assert ask("one", "--block", "good")[0] == 0


def test_the_chips_are_listed_beside_a_damaged_one(ask, database, capsys):
    (database / "chips" / "one.bin").write_bytes(b"nonsense")
    with pytest.raises(HeaderError, match=r"one\.bin is cut short"):
        ask()
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["two"]
    with pytest.raises(HeaderError, match=r"one\.bin is cut short"):
        ask("--json")
    assert json.loads(capsys.readouterr().out) == ["two"]


def test_a_database_without_chips_is_an_error(ask, database):
    for path in (database / "chips").iterdir():
        path.unlink()
    with pytest.raises(HeaderError, match="the register database is empty: install ringup again"):
        ask()
