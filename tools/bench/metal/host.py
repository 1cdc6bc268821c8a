"""The machine of the card: its files, and tools of others, which run for a bounded time and end with the step."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from ringup.drivers.transport.linux.kernel import Kernel
from ringup.errors import DeviceTimeout, TransportError
from ringup.tools.bench.metal.steps import LeftOut

VENDOR_LIBRARIES = ("libcuda", "libcudart", "libnvidia", "libnvrtc", "libnvcuvid")
MAX_OUTPUT = 8 << 20
UVM = "/dev/nvidia-uvm"


class ToolFailed(TransportError):
    """A tool of the machine ended with an error."""


class Host:
    """This machine, or files that stand for one. `tools`: whether its tools are run; `kernel`: where its files are."""

    def __init__(self, *, tools: bool, kernel: Kernel | None = None) -> None:
        self.has_tools, self.kernel = tools, kernel or Kernel()

    def text(self, path: str) -> str:
        """Return a file's text; empty where it cannot be read."""
        return self.kernel.text(self.kernel.path(path))

    def tool(self, name: str) -> str:
        """Return the path of a tool. Raises `LeftOut` where it is not there, or is not for this card."""
        if not self.has_tools:
            raise LeftOut(f"{name} is not run beside a virtual card")
        found = shutil.which(name)
        if found is None:
            raise LeftOut(f"this machine has no {name}")
        return found

    def output(self, argv: Sequence[str], timeout_s: float, environment: Mapping[str, str] | None = None) -> str:
        """Run a program and return what it prints. It and its children end with the call.

        Raises `DeviceTimeout`, or `ToolFailed` for another status than 0.
        """
        # a session of its own, so that its children are found too
        with subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, **(environment or {})},
        ) as process:
            try:
                out, _ = process.communicate(timeout=timeout_s)
            except subprocess.TimeoutExpired as error:
                raise DeviceTimeout(f"running {Path(argv[0]).name}: it had not ended after {timeout_s:g} s") from error
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        text = out[:MAX_OUTPUT].decode(errors="replace")
        if process.returncode:
            raise ToolFailed(f"{Path(argv[0]).name} ended with status {process.returncode}: {text[-1000:].strip()}")
        return text

    def computing(self) -> list[str]:
        """Return the other processes that have the node of unified memory open, as every compute process has."""
        mine, found = str(os.getpid()), []
        proc = self.kernel.path("/proc")
        for number in self.kernel.names(proc):
            if not number.isdigit() or number == mine:
                continue
            folder = proc / number / "fd"
            if any(_target(folder / name) == UVM for name in self.kernel.names(folder)):
                found.append(f"{number} {self.kernel.text(proc / number / 'comm')}")
        return found


def _target(link: Path) -> str:
    try:
        return os.readlink(link)
    except OSError:
        return ""


def vendor_libraries(maps: str) -> list[str]:
    """Return the libraries of NVIDIA's among the mappings of a process (/proc/self/maps)."""
    paths = {line.split(maxsplit=5)[5] for line in maps.splitlines() if len(line.split(maxsplit=5)) == 6}
    return sorted(path for path in paths if Path(path).name.startswith(VENDOR_LIBRARIES))


def open_nodes() -> list[str]:
    """Return the device nodes of NVIDIA's driver that this process has open."""
    found = (_target(Path("/proc/self/fd") / name) for name in os.listdir("/proc/self/fd"))
    return sorted(path for path in found if path.startswith("/dev/nvidia"))
