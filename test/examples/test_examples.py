"""Every program of `examples/` runs on a virtual card and says what it computed."""

import subprocess
import sys

import pytest

UNDER_PYTEST = {"test_own_driver"}


def test_every_example_is_tried_and_says_how_it_is_run(arguments, folder):
    names = {path.stem for path in folder.glob("*.py")}
    assert names == set(arguments) | UNDER_PYTEST
    for name in names:
        text = (folder / f"{name}.py").read_text()
        assert f"examples/{name}.py" in text.split('"""')[1]


def test_an_example_runs(example, run_example):
    run_example(example)


@pytest.mark.parametrize(("name", "card"), [("clang_kernel", "virtual:navi48"), ("assembler_kernel", "virtual:mi300x")])
def test_an_example_with_code_of_its_own_runs_on_other_generations(run_example, name, card):
    run_example(name, card)


def test_the_example_of_a_test_passes(folder):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "ringup.silicon.fixtures", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "-c", "/dev/null", "--rootdir", str(folder), str(folder / "test_own_driver.py")],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert "2 passed" in done.stdout, done.stdout + done.stderr
