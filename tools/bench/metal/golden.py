"""Stage 1: which calls the vendor's own programs make of the driver, and what it answers them: a golden trace.

A logger is built on the machine and run in the programs' processes, never in this one. What is kept is masked.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ringup.drivers.transport.nvidia.calls import layouts_for
from ringup.errors import RingupError
from ringup.tools.bench.metal import recording
from ringup.tools.bench.metal.host import Host
from ringup.tools.bench.metal.steps import LeftOut, Stage, StepRow, check
from ringup.tools.bench.metal.work import MIB, Work

FOLDER = Path(__file__).parent
BUILD_S, RUN_S, NVCC_S = 15.0, 10.0, 40.0
# of one process' recording, and of what is kept of all
MAX_PROCESS_BYTES, MAX_KEPT_BYTES = 8 * MIB, 15 * MIB
RELEASE = re.compile(r"\b(\d{3}\.\d+(?:\.\d+)?)\b")


def build(host: Host, folder: Path, release: str) -> Path:
    """Build the logger for a release of the driver in a folder; return the library."""
    (folder / "uvm_sizes.h").write_text(recording.uvm_sizes(layouts_for(release, "the logger")), encoding="utf-8")
    library = folder / "logger.so"
    command = [
        host.tool("cc"),
        "-shared",
        "-fPIC",
        "-O1",
        f"-I{folder}",
        "-o",
        str(library),
        str(FOLDER / "logger.c"),
        "-ldl",
    ]
    host.output(command, BUILD_S)
    return library


def record(host: Host, library: Path, argv: list[str], stem: Path, nodes: str = "") -> tuple[str, list[bytes]]:
    """Run a program under the logger; return what it printed, and the recording of each of its processes."""
    environment = {"LD_PRELOAD": str(library), "RINGUP_CALLS": str(stem), "RINGUP_CALLS_BYTES": str(MAX_PROCESS_BYTES)}
    if nodes:
        environment["RINGUP_CALLS_NODES"] = nodes
    said = host.output(argv, RUN_S, environment)
    return said, [path.read_bytes() for path in sorted(stem.parent.glob(f"{stem.name}.*"))]


def golden(work: Work) -> dict[str, Any]:
    """Record nvidia-smi, and a program of CUDA's if nvcc is there; time its launches without the logger."""
    host = work.host
    host.tool("cc")
    smi = host.tool("nvidia-smi")
    found = RELEASE.search(host.text("/proc/driver/nvidia/version"))
    if found is None:
        raise LeftOut("/proc/driver/nvidia/version names no release, which the logger's layouts depend on")
    with tempfile.TemporaryDirectory(prefix="ringup-golden-") as name:
        folder = Path(name)
        library = build(host, folder, found[1])
        programs = {"nvidia-smi": [smi, "-q"]}
        without = ""
        try:
            programs["cuda"] = [str(_sample(host, folder))]
        except (LeftOut, RingupError) as reason:
            without = str(reason)
        figures: dict[str, Any] = {"release": found[1], "without_cuda": without}
        for program, argv in programs.items():
            said, recordings = record(host, library, argv, folder / program)
            work.masks.learn_from(said)
            figures[program] = _kept(work, program, recordings)
        if "cuda" in programs:
            measured = re.search(r"launch_us ([0-9.]+)", host.output(programs["cuda"], RUN_S))
            check(measured is not None, "the program of CUDA's printed no time")
            work.vendor["launch_us"] = float(measured[1]) if measured else 0.0
    return figures


def _sample(host: Host, folder: Path) -> Path:
    program = folder / "sample"
    host.output(
        [host.tool("nvcc"), "-x", "cu", "-O2", "-arch=native", "-o", str(program), str(FOLDER / "sample.cpp")], NVCC_S
    )
    return program


def _kept(work: Work, program: str, recordings: Iterable[bytes]) -> dict[str, Any]:
    data = b"".join(recordings)
    calls = list(recording.read(data))
    check(bool(calls), f"{program} made no call on NVIDIA's nodes that the logger saw")
    told = recording.counts(iter(calls))
    failed = sum(call.result < 0 for call in calls)
    return {
        "calls": len(calls),
        "failed": failed,
        "different": len(told),
        "most": dict(list(told.items())[:20]),
        "kept": work.keep(f"{program}.calls", data[:MAX_KEPT_BYTES]),
    }


STAGE = Stage(1, "golden trace", (StepRow("calls of nvidia-smi and of a program of CUDA's", 90, golden),), needs=(0,))
