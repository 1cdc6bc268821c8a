"""tinygrad, for the tests in which its drivers work on virtual cards: its interpreter, a way to run scripts in it, and
the firmware files that it needs.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def competitor():
    """tinygrad's environment. A package index that cannot be reached fails the test."""
    from ringup.tools.common.paths import cache_folder
    from ringup.tools.competitor.environment import FOLDER, find_or_make

    found = find_or_make(cache_folder() / FOLDER)
    assert found.python is not None, "tinygrad cannot be installed"
    return found


@pytest.fixture
def run_in_competitor(competitor, tmp_path):
    """`run_in_competitor(script, job, timeout_s, **variables)` gives the script the job as JSON and returns the ended
    process. The script finds the modules of `tools/competitor/scripts`.
    """
    from ringup.tools.competitor.environment import SCRIPTS

    def run(script, job, timeout_s, **variables):
        cache = str(tmp_path / "cache")
        return subprocess.run(
            [competitor.python, str(script)],
            input=json.dumps(job), capture_output=True, text=True, timeout=timeout_s, check=False,
            env={**os.environ, "PYTHONPATH": str(SCRIPTS), "CACHEDB": cache, **variables},
        )  # fmt: skip

    return run


@pytest.fixture(scope="session")
def clang():
    """The C compiler with which tinygrad makes its own host code."""
    from ringup.tools.competitor.environment import find_clang

    found = find_clang()
    assert found is not None, "tinygrad needs clang"
    return found


@pytest.fixture(scope="session")
def made_firmware(tmp_path_factory):
    """A folder of the virtual cards' own images. Only virtual cards accept them."""
    from ringup.silicon.amd.board import images
    from ringup.silicon.amd.board.chips import CHIPS

    folder = tmp_path_factory.mktemp("firmware")
    for chip in CHIPS.values():
        for name, data in images.build(chip).items():
            Path(folder, name).write_bytes(data)
    return folder
