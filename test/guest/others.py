"""Independent implementations in the guest, on a card of ours: tinygrad over /dev/kfd and by its own PCI driver, and
ROCm's runtime.

Each function runs one program and returns what is wrong, in words; nothing when all is well.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import boot_files
import numpy as np
from machine import TRIXIE, Guest

from ringup.tools.common.paths import cache_folder, one_at_a_time
from ringup.tools.competitor.environment import FOLDER, PINS, SCRIPTS, find_or_make

# TIMEOUT: about 90 s and 25 s on an idle machine.
TESTS_S, ONE_S = 1000, 300
FIRMWARE = f"{TRIXIE}/usr/lib/firmware/amdgpu"
PEER = boot_files.CHECKOUT / "test/silicon/amd/peer/driver.py"
# The compiler does not know the emulated CPU as "native".
COMPILER = "/run/guest/cc"
VARIABLES = f"PYTHONDONTWRITEBYTECODE=1 HOME=/root XDG_CACHE_HOME=/run/guest CC={COMPILER}"
# tinygrad's basic tests without those that train a network, search for a fast kernel or have sizes of their own.
SHORT_TESTS = ("const", "copy", "elu", "plus", "plus_int", "plus_big", "cat", "sum", "eye", "gemm", "hgemm", "gemv")


def peer_python() -> Path:
    """Return the interpreter that has tinygrad. It is made if it is missing."""
    found = find_or_make(cache_folder() / FOLDER).python
    if found is None:
        raise SystemExit("guest: tinygrad cannot be installed: see its words above")
    return found


def peer_tests() -> Path:
    """Return a folder with the tests of tinygrad's source package, in the installed release."""
    pin = PINS[0]
    folder = cache_folder() / f"{pin.replace('==', '-')}-tests"
    with one_at_a_time(folder):
        if not (folder / "test/test_tiny.py").is_file():
            work = folder.with_name(f"{folder.name}.part")
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir(parents=True)
            options = ["--no-deps", "--no-binary", ":all:", "--quiet", "-d", str(work)]
            subprocess.run([sys.executable, "-m", "pip", "download", pin, *options], check=True)
            with tarfile.open(next(work.glob("*.tar.gz"))) as package:
                members = [member for member in package.getmembers() if "/test/" in member.name and member.isfile()]
                for member in members:
                    member.name = member.name.partition("/")[2]
                package.extractall(work, members=members, filter="data")
            work.replace(folder)
    return folder / "test"


def tinygrad_over_kfd(guest: Guest, python: Path, tests: Path, part: tuple[int, int]) -> list[str]:
    """Run tinygrad's own basic tests, and compare its operators with NumPy.

    `part`: the index of a part and their number. Each part has its share of the operators. The first one has all basic
    tests, the others those that are short.
    """
    wrong = []
    script = '#!/bin/bash\nexec clang-19 "${@/-march=native/-march=x86-64-v2}"'
    guest.check(f"echo {shlex.quote(script)} > {COMPILER}; chmod 755 {COMPILER}")
    index, parts = part
    chosen = " ".join(f"test_tiny.TestTiny.test_{name}" for name in SHORT_TESTS) if index else "test_tiny"
    command = f"cd {tests} && env {VARIABLES} DEV=AMD {python} -m unittest -v {chosen} 2>&1"
    done = guest.run(command, TESTS_S)
    ran = re.search(r"Ran (\d+) tests", done.output)
    if done.status or ran is None or int(ran[1]) < (len(SHORT_TESTS) if index else 15):
        wrong.append(f"its basic tests: status {done.status}\n{done.output[-3000:]}")
    operators = boot_files.HERE / "tinygrad_operators.py"
    done = guest.run(f"env {VARIABLES} DEV=AMD {python} {operators} {index} {parts}", TESTS_S)
    if done.status or not re.search(r"^\d\d operators are right", done.output, re.M):
        wrong.append(f"its operators: status {done.status}\n{done.output[-3000:]}")
    return wrong


def tinygrad_by_itself(guest: Guest, python: Path, folder: Path) -> list[str]:
    """Let tinygrad's own driver start the card over sysfs, multiply matrices on it, and close it."""
    draw = np.random.default_rng(5)
    a, b = (draw.random((64, 64), np.float32) for _ in range(2))
    for name, data in (("a", a), ("b", b)):
        (folder / name).write_bytes(data.tobytes())
    job = {"firmware": FIRMWARE, "fault": False, "work": {"matmul": ["matmul", 64, 64, f"{folder}/a", f"{folder}/b"]}}
    variables = f"{VARIABLES} PYTHONPATH={SCRIPTS} DEV=PCI+AMD:LLVM"
    before = (
        "ulimit -l unlimited; echo 64 > /proc/sys/vm/nr_hugepages; echo 0 > /proc/sys/vm/compact_unevictable_allowed"
    )
    command = f"{before}; echo {shlex.quote(json.dumps(job))} | env {variables} {python} {PEER}"
    done = guest.run(command, ONE_S)
    answers = [line for line in done.output.splitlines() if line.startswith("{")]
    if done.status or not answers:
        return [f"status {done.status}\n{done.output[-3000:]}"]
    found = np.frombuffer(bytes.fromhex(json.loads(answers[-1])["outputs"]["matmul"]), np.float32).reshape(64, 64)
    worst = float(np.abs(found - a @ b).max())
    return [] if worst < 1e-4 else [f"a product of matrices is off by {worst}"]


def build_rocr(folder: Path, target: str) -> None:
    """Compile the program for ROCm's runtime, and its kernel for a target."""
    root = boot_files.set_up("root.sh", cache_folder() / "guest-root")
    libraries = root / "usr/lib/x86_64-linux-gnu"
    source = boot_files.HERE / "rocr_vector"
    kernel = [
        "clang-19",
        "-x",
        "cl",
        "-cl-std=CL2.0",
        "-target",
        "amdgcn-amd-amdhsa",
        f"-mcpu={target}",
        "-nogpulib",
        "-O2",
    ]
    subprocess.run([*kernel, source.with_suffix(".cl"), "-o", folder / "rocr_vector.hsaco"], check=True)
    link = ["-L", libraries, "-l:libhsa-runtime64.so.1", "-Wl,--allow-shlib-undefined"]
    gcc = [
        "gcc",
        "-O1",
        "-idirafter",
        root / "usr/include",
        source.with_suffix(".c"),
        "-o",
        folder / "rocr_vector",
        *link,
    ]
    subprocess.run(gcc, check=True)


def rocr(guest: Guest, folder: Path, target: str, compute_units: int, wave: int) -> list[str]:
    """Let ROCm's runtime describe the card, then run a kernel with and without interrupts."""
    wrong = []
    said = guest.trixie("rocminfo", ONE_S)
    for pattern in (target, rf"Compute Unit: +{compute_units}\b", rf"Wavefront Size: +{wave}\b"):
        if said.status or not re.search(pattern, said.output):
            wrong.append(f"rocminfo, status {said.status}, does not say {pattern}:\n{said.output[-1500:]}")
    for variables in ("", "HSA_ENABLE_INTERRUPT=0 "):
        wrong += rocr_vector(guest, folder, variables)
    return wrong


def rocr_vector(guest: Guest, folder: Path, variables: str = "") -> list[str]:
    """Add vectors of 20 groups in kernels with and without scratch memory, and get the error of a bad packet back."""
    guest.check(f"mkdir -p /run/guest/rocr && cp {folder}/rocr_vector* /run/guest/rocr/")
    done = guest.trixie(f"cd /run/guest/rocr && {variables}./rocr_vector rocr_vector.hsaco {20 * 256}", ONE_S)
    if done.status or "PASS all" not in done.output:
        return [f"{variables}rocr_vector: status {done.status}\n{done.output[-2000:]}"]
    return []
