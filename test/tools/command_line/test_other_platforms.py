"""The command on a system without Linux's device nodes: listing, showing and reaching a card on USB still work."""

import subprocess
import sys

import pytest

PRETEND = """
import platform, sys
platform.system = lambda: "Darwin"
def absent(event, arguments):
    path = str(arguments[0]) if arguments else ""
    if event in ("open", "os.listdir", "os.scandir") and path.startswith(("/sys/", "/proc/", "/dev/vfio", "/dev/kfd", "/dev/bus")):
        raise FileNotFoundError(2, "No such file or directory", path)
sys.addaudithook(absent)
from ringup.tools.command_line import cli
sys.exit(cli.main({words!r}))
"""


@pytest.mark.parametrize(
    "words",
    [
        ["doctor", "--json"],
        ["setup"],
        ["info", "virtual:navi31"],
        ["info", "virtual:navi31@asm2464pd"],
        ["bridge", "info", "virtual:navi31@asm2464pd"],
        ["up", "virtual:navi31"],
    ],
)
def test_no_node_of_linux_is_needed(words):
    code = PRETEND.format(words=words)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stderr, bool(done.stdout)) == ("", True)
    assert done.returncode in ((0, 1) if words[0] == "doctor" else (0,))
