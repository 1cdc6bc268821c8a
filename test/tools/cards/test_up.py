"""`ringup up` brings a card up and describes it. A card that cannot be opened gives a one-line error."""

import json

import pytest

from ringup.errors import NoSuchCard
from ringup.tools.cards import up
from ringup.tools.command_line import cli


@pytest.mark.parametrize(("chip", "units", "target"), [("navi31", 96, "gfx1100"), ("navi33", 32, "gfx1102")])
def test_a_card_comes_up_and_says_what_it_is(capsys, chip, units, target):
    assert cli.main(["up", f"virtual:{chip}", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["card"]["chip"], document["card"]["compute_units"], document["card"]["target"]) == (
        chip,
        units,
        target,
    )
    assert document["moved_bytes"] == 1 << 20
    assert document["stages"][-1]["name"] == "moving 1024 KiB"
    assert all(row["error"] == "" and row["ms"] <= row["bound_ms"] for row in document["stages"])


def test_it_says_so_in_words(capsys):
    assert cli.main(["up", "virtual:navi31"]) == 0
    text = capsys.readouterr().out
    assert "virtual:navi31 is up: navi31 (1002:744c), 24560 MiB, 96 compute units, gfx1100" in text
    assert "1024 KiB went through both kinds of queue and came back unchanged" in text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("virtual:navi99", "no virtual card 'navi99'; there are: mi300x, navi31, navi32, navi33"),
    ],
)
def test_a_wrong_name_is_one_line(capsys, name, text):
    assert cli.main(["up", name]) != 0
    error = capsys.readouterr().err
    assert text in error
    assert error.count("\n") == 1


def test_without_a_real_card_it_says_what_to_try(capsys, monkeypatch):
    monkeypatch.setattr("ringup.tools.command_line.card_argument.cards", list)
    assert cli.main(["up"]) == NoSuchCard.exit_code
    assert (
        "no real card can be opened (none was found); `ringup doctor` says why, virtual:navi31 is always available"
        in capsys.readouterr().err
    )


def test_firmware_that_is_not_there_is_reported_with_its_stage(capsys, tmp_path):
    (tmp_path / "gc_11_0_0_mec.bin").write_bytes(b"nonsense")
    assert cli.main(["up", "virtual:navi31", "--firmware", str(tmp_path)]) == 30
    assert "virtual:navi31: reading what the card is: " in capsys.readouterr().err


class Path:
    """Answers what the command asks of a path: whether it maps its memory, and otherwise what moves the bytes."""

    def __init__(self, bulk, *, far=True):
        self.polls_vram, self.bulk = far, bulk
        self.remote = self if far and bulk else None


class Memory:
    def __init__(self, *windows):
        self.windows, self.size_bytes = windows, windows[-1].stop


@pytest.mark.parametrize(
    ("path", "size_bytes"),
    [
        (Path(None, far=False), 1 << 20),
        (Path(None), 4096),
        (Path(Memory(range(4096))), 4096),  # stock firmware
        (Path(Memory(range(448 << 10))), 448 << 10),  # patched
        (Path(Memory(range(1024), range(1024, 2048))), 1 << 20),  # open
    ],
)
def test_the_queues_are_tested_with_what_the_path_moves_at_once(path, size_bytes):
    assert up.bytes_to_move(path) == size_bytes
