"""The documentation site builds without a warning: every page is linked, and every docstring is valid markup."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_every_document_is_in_the_sites_contents():
    contents = (ROOT / "docs/site/index.md").read_text().splitlines()
    assert [path.stem for path in sorted((ROOT / "docs").glob("*.md")) if f"docs/{path.stem}" not in contents] == []


# It takes half a minute.
@pytest.mark.fuzz
def test_the_site_builds(tmp_path):
    source = tmp_path / "source"
    shutil.copytree(ROOT / "docs", source / "docs")
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs/site").iterdir()):
        shutil.copy(path, source)
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "dummy", str(source), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
