"""`ringup stats` and `ringup info`: a card's numbers as text and as JSON."""

import json

import pytest

from ringup.tools.command_line import cli


def test_a_virtual_card_is_shown_line_by_line(capsys):
    assert cli.main(["stats", "virtual:navi33"]) == 0
    lines = capsys.readouterr().out.splitlines()
    values = {line.split()[0]: line.split()[1:] for line in lines if len(line.split()) > 1}
    assert values["name"] == ["virtual:navi33"]
    assert 100 < int(values["power_limit_w"][0]) < 200  # a Radeon RX 7600
    assert int(values["edge_temperature_c"][0]) < 60
    assert "metrics" in lines


def test_info_of_a_card_of_several_dies_says_so(capsys):
    # Source: AMD's white paper of CDNA 3: eight dies, each of four engines with ten units.
    assert cli.main(["info", "virtual:mi300x"]) == 0
    assert "8 dies, each of 4 shader engines, 40 compute units by design" in capsys.readouterr().out


def test_programs_get_an_object_a_look(capsys):
    assert cli.main(["stats", "virtual:navi33", "--json", "--watch", "0.5", "--count", "3"]) == 0
    looks = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(looks) == 3
    assert [look["metrics"]["counter"] for look in looks] == sorted({look["metrics"]["counter"] for look in looks})
    assert looks[1]["at_us"] - looks[0]["at_us"] >= 500_000


@pytest.mark.parametrize(
    ("name", "status", "message"),
    [
        ("pci:0000:ff:1f.7", 10, "NoSuchCard: there is no PCI function 0000:ff:1f.7"),
        ("replay:x", 11, "cannot be watched from another process"),
        ("virtual:nothing", 10, ""),
    ],
)
def test_what_cannot_be_shown_is_reported_in_a_line(capsys, name, status, message):
    assert cli.main(["stats", name]) == status
    assert message in capsys.readouterr().err


def test_a_time_of_nothing_is_wrong_usage(capsys):
    with pytest.raises(SystemExit):
        cli.main(["stats", "virtual:navi33", "--watch", "0"])
    assert "more than 0 s" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        cli.main(["stats", "virtual:navi33", "--count", "-3"])
    assert "take at least one sample, not -3" in capsys.readouterr().err
