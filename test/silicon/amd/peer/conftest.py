"""A virtual card behind tinygrad's protocol for cards on other machines, and sessions of tinygrad's driver on it."""

import json
from contextlib import ExitStack
from pathlib import Path

import pytest

from ringup.silicon import card
from ringup.silicon.shader.amd.translator.engine import Translator
from ringup.tools.competitor.pci_door import PciDoor

# TIMEOUT: 5 s on an idle core.
SESSION_S = 150
SCRIPT = Path(__file__).with_name("driver.py")


@pytest.fixture
def remote():
    """`remote(**options)` serves a virtual card to the driver. The test fails if the server broke or the card recorded
    a mistake.
    """
    made = []
    with ExitStack() as doors:

        def make(name="navi31", **options):
            made.append(doors.enter_context(PciDoor(card(name, vram_bytes=1 << 30, engine=Translator(), **options))))
            return made[-1]

        yield make
    for one in made:
        assert not one.card.violations, "\n".join(map(str, one.card.violations[:20]))


@pytest.fixture
def drive(run_in_competitor, tmp_path):
    """`drive(remote, firmware, work)` runs one session of tinygrad's driver, from opening to closing. It returns the
    session's answer, and what it `said`.
    """

    def session(remote, firmware, work, fault=False):
        job = {"firmware": str(firmware), "work": {}, "fault": fault}
        for name, (kernel, *arrays) in work.items():
            files = [tmp_path / f"{name}{number}" for number in range(len(arrays))]
            for file, data in zip(files, arrays, strict=True):
                file.write_bytes(data.tobytes())
            job["work"][name] = [kernel, *arrays[0].shape, *map(str, files)]
        done = run_in_competitor(SCRIPT, job, SESSION_S, REMOTE=remote.address, DEV="PCI+AMD:LLVM", REMOTE_TIMEOUT="60")
        assert not done.returncode, f"{done.stderr[-3000:]}\n{remote.errors} {remote.card.violations[:5]}"
        *said, answer = done.stdout.splitlines()
        # The driver closes after it has answered.
        assert "Traceback" not in done.stderr, done.stderr[-3000:]
        return json.loads(answer) | {"said": "\n".join(said)}

    return session


@pytest.fixture(scope="session")
def real_firmware(sources):
    """The folder of the distribution's firmware package. A missing package fails the test."""
    return sources.root("firmware-amd") / "lib/firmware/amdgpu"
