"""A virtual card behind tinygrad's protocol for cards on other machines, and sessions of tinygrad's driver on it."""

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from ringup.silicon import nvidia_card
from ringup.silicon.nv.firmware import nouveau
from ringup.tools.competitor.environment import SCRIPTS
from ringup.tools.competitor.pci_door import PciDoor

# TIMEOUT: 10 s on an idle core.
SESSION_S = 150
SCRIPT = Path(__file__).with_name("driver.py")
# The firmware that the driver boots.
RELEASE = "570.144"


@pytest.fixture
def remote():
    """`remote(chip)` serves a virtual card to the driver. The test fails if the server broke, the card recorded a
    mistake, or the driver used what is not modelled.
    """
    made = []
    with ExitStack() as doors:

        def make(chip):
            made.append(doors.enter_context(PciDoor(nvidia_card(chip, vram_bytes=1 << 30))))
            return made[-1]

        yield make
    for one in made:
        assert not one.card.violations, "\n".join(map(str, one.card.violations[:20]))
        assert not (lacking := one.card.log.find("unmodelled")), "\n".join(map(str, lacking[:20]))


@pytest.fixture
def drive(tmp_path):
    """`drive(remote, work, sizes)` runs one session of tinygrad's driver, from opening to closing. It returns the
    session's answer.

    The session uses the tinygrad of the development environment, which has NAK beside it.
    """

    def session(remote, work, sizes=(), fault=False):
        # The driver takes the file of one chip, which has signatures for all, for each.
        for name, data in nouveau.files(remote.card.chip, RELEASE).items():
            (tmp_path / Path(name).name).write_bytes(data)
        job = {"firmware": str(tmp_path), "work": {}, "sizes": sizes, "fault": fault}
        for name, arrays in work.items():
            files = [tmp_path / f"{name}{number}" for number in range(len(arrays))]
            for file, data in zip(files, arrays, strict=True):
                file.write_bytes(data.tobytes())
            job["work"][name] = [*arrays[0].shape, *map(str, files)]
        done = subprocess.run(
            [sys.executable, str(SCRIPT)],
            input=json.dumps(job), capture_output=True, text=True, timeout=SESSION_S, check=False,
            env={**os.environ, "PYTHONPATH": str(SCRIPTS), "CACHEDB": str(tmp_path / "cache"),
                 "REMOTE": remote.address, "DEV": "PCI+NV:NAK", "REMOTE_TIMEOUT": "60"},
        )  # fmt: skip
        assert not done.returncode, f"{done.stderr[-3000:]}\n{remote.errors} {remote.card.violations[:5]}"
        answer = next(line for line in done.stdout.splitlines() if line.startswith("{"))
        # The driver closes after it has answered.
        assert fault or "Traceback" not in done.stderr, done.stderr[-3000:]
        return json.loads(answer) | {"said": done.stdout}

    return session
