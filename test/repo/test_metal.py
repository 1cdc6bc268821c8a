"""`pytest --card NAME` runs the tests marked `metal` on that card and no other test. A virtual card stands in for the
real one here.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def pytest_on(card, *words):
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--card", card, *words]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    return done.returncode, done.stdout


def test_marked_tests_run_on_the_card_that_is_named_and_no_others():
    status, said = pytest_on("virtual:navi33", "test/drivers/amd/test_metal.py", "-k", "computes", "-vv")
    assert status == 0, said
    assert re.findall(r"::(\w+)\[(\S+?)\] PASSED", said) == [("test_it_computes_what_numpy_does", "virtual:navi33")]


def test_unmarked_tests_are_left_out():
    status, said = pytest_on(
        "virtual:navi33", "--collect-only", "test/drivers/amd/card/test_queues.py", "test/test_errors.py"
    )
    assert status == 0, said
    chosen = re.findall(r"^(\S+)::(test_\w+)", said, re.M)
    assert {path for path, _ in chosen} == {"test/drivers/amd/card/test_queues.py"}
    assert "test_a_kept_stream_is_patched_while_it_runs_and_every_run_keeps_its_values" in dict(map(reversed, chosen))
    assert "test_all_hardware_queues_are_handed_out_and_a_closed_ones_place_again" not in dict(map(reversed, chosen))
    assert "deselected" in said


def test_a_card_that_is_not_there_fails_every_one_of_them():
    status, said = pytest_on("pci:ffff:1f:1f.7", "test/drivers/amd/test_metal.py", "-k", "computes")
    assert status == 1
    assert "NoSuchCard" in said
