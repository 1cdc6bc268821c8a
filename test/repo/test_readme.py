"""The README tells the truth of today: its commands print what it shows, its Python runs."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from ringup.tools.command_line import cli

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SHOWN = [
    (command, output)
    for block in re.findall(r"```console\n(.*?)```", README, re.DOTALL)
    for command, output in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)
]
PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize(("command", "output"), SHOWN, ids=[command for command, _ in SHOWN])
def test_a_command_prints_what_the_readme_shows(command, output):
    program, *words = shlex.split(command)
    assert program == "ringup"
    done = subprocess.run(
        [sys.executable, "-m", "ringup.tools.command_line.cli", *words], capture_output=True, text=True, check=False
    )
    assert done.stdout + done.stderr == output


def test_its_python_does_what_its_comments_say():
    block = PYTHON[1]
    names = {"buffer": bytearray(2048)}
    for line in block.splitlines():
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
    on_a_card, _, on_the_cores, _ = PYTHON  # the last is docs/compiler.md's example too, where it runs
    names = {}
    exec(on_the_cores, names)
    code = names["gpu"].emit_object(names["llvm"].parse_assembly(names["SQUARE"]))
    exec(on_a_card, {"square_for": lambda target: code if target == "gfx1100" else None})


def test_every_command_it_names_exists():
    assert set(re.findall(r"`ringup (\w+)", README)) <= set(cli.COMMANDS)


def test_every_make_target_it_names_exists():
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"make (\w+)", README)) <= targets
    assert {"demo", "test", "bench", "lint"} <= targets
