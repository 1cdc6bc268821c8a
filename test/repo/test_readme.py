"""The README and its pages are up to date: commands print what is shown, and the Python runs."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from ringup.tools.command_line import cli

ROOT = Path(__file__).resolve().parents[2]
README, FACTS, CORES = (
    (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/facts.md", "docs/cores.md")
)
PAGES = sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))
SHOWN = [
    (command, output)
    for block in re.findall(r"```console\n(.*?)```", FACTS, re.DOTALL)
    for command, output in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)
]
ON_A_CARD, WITH_FACTS, ON_THE_CORES = (
    re.search(r"```python\n(.*?)```", page, re.DOTALL)[1] for page in (README, FACTS, CORES)
)


@pytest.mark.parametrize(("command", "output"), SHOWN, ids=[command for command, _ in SHOWN])
def test_a_command_prints_what_the_page_shows(command, output):
    program, *words = shlex.split(command)
    assert program == "ringup"
    done = subprocess.run(
        [sys.executable, "-m", "ringup.tools.command_line.cli", *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.stdout + done.stderr == output


def test_its_python_does_what_its_comments_say():
    names = {"buffer": bytearray(2048)}
    for line in WITH_FACTS.splitlines():
        code, _, comment = line.partition("#")
        if comment.strip().startswith("ValueError: "):
            with pytest.raises(ValueError, match=re.escape(comment.strip().removeprefix("ValueError: "))):
                exec(code, names)
        elif re.match(r" (0x|\(|\[)", comment) and "=" not in code.split("(")[0]:
            expected = comment.strip().split(":")[0]
            value = eval(code, names)
            assert expected in (repr(value), hex(value) if isinstance(value, int) else "")
        else:
            exec(code, names)
    assert len(bytes(names["memory"](names["params"]()))) == 368


def test_its_card_and_its_kernel_run_and_its_mistake_is_found():
    names = {}
    exec(ON_THE_CORES, names)
    code = names["gpu"].emit_object(names["llvm"].parse_assembly(names["SQUARE"]))
    exec(ON_A_CARD, {"square_for": lambda target: code if target == "gfx1100" else None})


def test_every_command_it_names_exists():
    assert set(re.findall(r"`ringup (\w+)", README + FACTS + CORES)) <= set(cli.COMMANDS)


def test_every_page_it_names_exists_and_every_page_is_named():
    assert set(re.findall(r"docs/\w[\w-]*\.md", README)) == set(PAGES)


def prose(page):
    """Return a page's lines without code, tables, headings, drawings and pictures."""
    outside = re.sub(r"^```.*?^```$", "", page, flags=re.DOTALL | re.MULTILINE)
    return [line for line in outside.splitlines() if not line.startswith(("|", "#", "    ", "!"))]


def test_the_readme_is_short():
    assert len(README.splitlines()) <= 150


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", *PAGES])
def test_prose_is_at_most_120_wide(name):
    assert [line for line in prose((ROOT / name).read_text(encoding="utf-8")) if len(line) > 120] == []


def test_every_make_target_it_names_exists():
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    told = README + (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert set(re.findall(r"(?:`|^)make (\w+)", told, re.MULTILINE)) <= targets
    assert {"demo", "test", "bench", "lint"} <= targets
