"""docs/compiler.md: its Python runs, its commands print what the page shows, and what it names exists.

Figures are not compared: they are those of the day the page was written. `test/compiler/amd` tests what the figures
mean.
"""

import re
import shlex
from pathlib import Path

import pytest

from ringup.tools.command_line import cli

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/compiler.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
SHOWN = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)


def shape_of(line):
    """Return a line without numbers and lengths of gaps: those change whenever a pass improves."""
    return re.sub(r"\d[\d.]*", "N", re.sub(r"_[0-9a-f]{8}\b", "_HASH", " ".join(line.split())))


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """Return the output of the page's commands for the page's file."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "softmax.py").write_text(PYTHON[0])
    patch = pytest.MonkeyPatch()
    patch.chdir(folder)
    patch.setenv("RINGUP_CACHE", str(folder / "cache"))
    found = {}

    def run(capsys, *words):
        if words not in found:
            assert cli.main(list(words)) == 0
            found[words] = capsys.readouterr().out
        return found[words]

    yield run
    patch.undo()


def test_compile_prints_what_the_page_shows(printed, capsys):
    out = printed(capsys, "compile", "softmax.py", "-o", "softmax.o")
    assert [shape_of(line) for line in out.splitlines()] == [shape_of(line) for line in SHOWN[0].splitlines()]


@pytest.mark.parametrize("number", [1, 2])
def test_explain_prints_what_the_page_shows(printed, capsys, number):
    out = {shape_of(line) for line in printed(capsys, "explain", "softmax.py").splitlines()}
    for line in SHOWN[number].splitlines():
        assert shape_of(line) in out


@pytest.mark.parametrize(("number", "level"), [(3, "machine drop"), (4, "amd select"), (5, "assembly")])
def test_the_excerpts_are_of_the_right_levels(printed, capsys, number, level):
    """Every operation or mnemonic in an excerpt is one that the text of that level still contains."""
    out = printed(capsys, "explain", "softmax.py", "--kernel", "0", "--pass", level)
    words = re.findall(r"= (\w+)" if level.startswith("machine") else r"^\s+([a-z]\w+)", SHOWN[number], re.MULTILINE)
    assert len(words) > 5
    for word in words:
        assert re.search(rf"\b{word}\b", out), word


def test_its_card_computes():
    exec(PYTHON[1], {})


def test_commands_and_files_that_it_names_exist():
    for command in re.findall(r"`ringup ([^`]*)`", PAGE):
        name = shlex.split(command)[0]
        assert name in cli.COMMANDS, command
    for name in re.findall(r"`((?:kernel|machine|amd)/[\w*]+(?:\.py)?)`", PAGE):
        assert list((ROOT / "compiler").glob(name)), name
    for name in re.findall(r"`(test/[\w/.]+|docs/[\w.]+)`", PAGE):
        assert (ROOT / name).exists(), name
