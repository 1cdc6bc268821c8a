"""The list of `make mutants` fits the tree: each text occurs once where the list says, each test exists, and each
survivor has its reason.
"""

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def run():
    spec = importlib.util.spec_from_file_location("ringup_mutants", ROOT / "test/mutants/run.py")
    sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[spec.name])
    return sys.modules[spec.name]


def test_every_mutation_changes_its_file_and_has_tests(run):
    found = run.mutations()
    names = [one.name for one in found]
    assert len(names) == len(set(names)) >= 40
    for one in found:
        assert (ROOT / one.file).read_text().count(one.text) == 1, one.name
        assert one.instead != one.text, one.name
        paths = [word for word in one.tests if word.startswith("test/")]
        assert paths, one.name
        assert all((ROOT / path).exists() for path in paths), one.name


def test_every_survivor_is_listed_with_a_reason(run):
    assert set(run.survivors()) <= {one.name for one in run.mutations()}
    assert all(len(reason) > 20 for reason in run.survivors().values())


def test_a_mutation_is_judged_in_a_copy_and_undone(run, tmp_path):
    """A tree of two files: one has a test that notices the mutation, the other has none."""
    (tmp_path / ".typing").mkdir()
    (tmp_path / "code.py").write_text("def one():\n    return 1\n")
    (tmp_path / "test_code.py").write_text(
        "from code_of import one\n\n\ndef test_one():\n    assert one() == 1\n\n\ndef test_nothing():\n    assert one() is not None\n"
    )
    (tmp_path / "conftest.py").write_text("")
    (tmp_path / "code.py").rename(tmp_path / "code_of.py")
    noticed = run.Mutation("noticed", "code_of.py", "return 1", "return 2", ("test_code.py",))
    not_noticed = run.Mutation("not", "code_of.py", "return 1", "return 2", ("test_code.py", "-k", "nothing"))
    nowhere = run.Mutation("nowhere", "code_of.py", "return 1", "return 2", ("no_such_test.py",))
    before = (tmp_path / "code_of.py").read_text()
    assert [run.judge(tmp_path, one)[0] for one in (noticed, not_noticed, nowhere)] == ["killed", "survived", "broken"]
    assert (tmp_path / "code_of.py").read_text() == before
    with pytest.raises(SystemExit, match="has 'return 3' 0 times, not once"):
        run.judge(tmp_path, run.Mutation("gone", "code_of.py", "return 3", "", ("test_code.py",)))
