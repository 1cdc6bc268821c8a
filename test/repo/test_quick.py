"""`make quick` finds the tests that a change touches."""

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("ringup_quick", ROOT / "test/quick.py")
quick = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(quick)


def names(*changed):
    return [path.relative_to(ROOT).as_posix() for path in quick.tests_of(list(changed))]


def test_a_changed_test_comes_first():
    assert names("test/test_cards.py")[0] == "test/test_cards.py"


def test_tests_of_a_modules_name_come_before_its_folders():
    found = names("queues/queue.py")
    assert found[0] == "test/queues/test_queue.py"
    assert "test/queues/test_profile.py" in found


def test_tests_that_import_a_changed_module_are_chosen():
    assert "test/compiler/runtime/test_front.py" in names("compiler/tensor/realize.py")


def test_a_changed_helper_chooses_the_tests_of_its_folder():
    found = names("test/compiler/runtime/conftest.py")
    assert "test/compiler/runtime/test_device.py" in found
    assert "test/queues/test_queue.py" not in found


@pytest.mark.parametrize("name", ["README.md", "docs/driver.md", "compiler/compile.py"])
def test_the_repositorys_own_tests_are_always_there(name):
    assert "test/repo/test_layout.py" in names(name)


def test_a_file_that_all_code_needs_chooses_all_tests():
    assert len(names("errors.py")) > 300


def test_tests_that_would_begin_too_late_are_skipped_and_counted(tmp_path):
    import subprocess

    plugin = ROOT / "test/plugins/quick.py"
    tests = tmp_path / "test_slow.py"
    tests.write_text("import time\n\ndef test_one():\n    time.sleep(0.3)\n\ndef test_two():\n    pass\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", "-p", plugin.stem,
         "--quick-seconds", "0.2", str(tests)],
        capture_output=True, text=True, check=False, timeout=60, env={"PYTHONPATH": str(plugin.parent), "PATH": ""},
    )  # fmt: skip
    assert "1 passed, 1 skipped" in done.stdout, done.stdout + done.stderr
    assert "quick: 1 tests did not fit; `make test` runs them" in done.stdout


def test_of_too_many_files_the_nearest_stay():
    tests = quick.tests_of(["errors.py", "queues/queue.py"])
    few = quick.chosen(tests)
    assert len(few) == quick.MAX_FILES == len(set(few))
    assert few[:20] == tests[:20]
    # the others are spread up to the last twentieth
    assert few[-1] in tests[len(tests) * 19 // 20 :]
