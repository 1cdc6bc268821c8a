"""A guest whose amdgpu drives virtual cards, for tests of ringup's own driver through /dev/kfd."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import boot_files
from forks import Forks
from machine import Guest, Result
from served import Served

# TIMEOUT: about 25 s and 15 s on an idle machine.
LOAD_S, RUN_S = 240, 600
# TIMEOUT: about 120 s on an idle machine.
METAL_S = 1500
DEVICE = "/sys/class/drm/renderD128/device"
BEFORE = """
import os, random, sys, time
import ringup
from ringup.errors import RingupError
def say(*words):
    print(*words, flush=True)
"""
CLANG = ["clang-19", "-x", "cl", "-cl-std=CL2.0", "-target", "amdgcn-amd-amdhsa", "-mcpu=gfx1100", "-nogpulib", "-O2"]
SOURCE = """
__kernel void spin(__global volatile uint *flag) { while (flag[0] == 0) ; }
__kernel void square(__global uint *out, __global const uint *in, uint count) {
    uint at = __builtin_amdgcn_workgroup_id_x() * 64 + __builtin_amdgcn_workitem_id_x();
    if (at < count) out[at] = in[at] * in[at]; }
__kernel void follow(__global ulong *sum, ulong first) {
    for (__global ulong *at = (__global ulong *)first; at; at = (__global ulong *)at[0]) sum[0] += at[1]; }
__kernel void stack(__global uint *out, uint count) {
    uint a[512], sum = 0, x = __builtin_amdgcn_workitem_id_x();
    for (uint i = 0; i < 512; i++) a[i] = i * count + x;
    for (uint i = 0; i < count; i++) sum += a[(i * 37 + x) & 511];
    out[__builtin_amdgcn_workgroup_id_x() * 64 + x] = sum; }
"""


@dataclass
class Story:
    guest: Guest
    served: Served
    code: Path
    forks: Forks
    plugged: int = 0

    def plug(self, count: int) -> None:
        """Let amdgpu drive the first `count` cards: kfd:0 and so on."""
        while self.plugged < count:
            self.guest.plug(self.served.sockets[self.plugged], self.plugged + 1)
            self.plugged += 1
            if self.plugged == 1:
                self.guest.check("modprobe amdgpu", LOAD_S)
            self.guest.wait_for(f"ls /dev/kfd /dev/dri/renderD{127 + self.plugged}", LOAD_S)

    def python(self, code: str, timeout_s: float = RUN_S, before: str = "") -> Result:
        """Run Python in the guest, with the checkout."""
        return self._run(self._script(f"{abs(hash(code)):x}", code), timeout_s, before)

    def begin(self, name: str, code: str) -> str:
        """Start Python in the background, and return the file that it writes to."""
        path, log = self._script(name, code), f"/run/guest/{name}.log"
        self.guest.check(
            f"cd {boot_files.CHECKOUT} && {{ HOME=/root setsid {sys.executable} {path} > {log} 2>&1 < /dev/null & "
            f"echo $! > /run/guest/{name}.pid; }}"
        )
        return log

    def ended(self, log: str, word: str = "ENDED") -> str:
        """Wait for a program in the background, and return what it wrote."""
        self.guest.wait_for(f"grep -q -e {word} -e Traceback {log}", RUN_S)
        said = self.guest.check(f"cat {log}")
        assert "Traceback" not in said, said
        return said

    def ringup(self, words: str, before: str = "") -> Result:
        """Run a command of ringup's in the guest."""
        return self._run(f"-m ringup.tools.command_line.cli {words}", RUN_S, before)

    def metal(self, name: str, files: str, more: str = "") -> int:
        """Run tests of the driver on a card; return how many have passed. None may fail or be skipped."""
        done = self._run(f"-m pytest -q -n 0 -p no:cacheprovider --card {name} {files} {more}", METAL_S)
        assert done.status == 0, done.output[-4000:]
        ran = re.search(r"(\d+) passed", done.output)
        assert ran, done.output[-2000:]
        assert not re.search(r"\d+ (failed|error|skipped)", done.output), done.output[-2000:]
        return int(ran[1])

    def _script(self, name: str, code: str) -> str:
        path = f"/run/guest/{name}.py"
        self.guest.check(f"cat > {path} <<'END_OF_CODE'\n{BEFORE}\n{code}\nEND_OF_CODE")
        return path

    def _run(self, words: str, timeout_s: float, before: str = "") -> Result:
        """Run Python: a new one if something must come before it, otherwise a fork of one that has imported ringup."""
        if before:
            command = f"cd {boot_files.CHECKOUT} && HOME=/root {before} {sys.executable} {words}"
            return self.guest.run(command, timeout_s)
        return self.forks.run(words, timeout_s)

    @property
    def vram_bytes(self) -> int:
        """The size of the card's memory as amdkfd tells it."""
        banks = self.guest.check("cat /sys/class/kfd/kfd/topology/nodes/1/mem_banks/*/properties")
        return sum(int(line.split()[1]) for line in banks.splitlines() if line.startswith("size_in_bytes"))

    def used_bytes(self) -> int:
        """Return how much VRAM the kernel counts as used."""
        return int(self.guest.check(f"cat {DEVICE}/mem_info_vram_used"))


SQUARES = """
import numpy as np
def squares(card, program, count=10007, seed=3):
    data = np.random.default_rng(seed).integers(0, 1 << 32, count, np.uint32)
    with card.alloc(4 * count, name="in") as source, card.alloc(4 * count, name="out") as target:
        stream = card.compute.stream()
        stream.wait_for(card.copy.upload(source, data))
        stream.dispatch(program["square"], -(-count // 64), 64, [target, source, count])
        card.copy.wait_for(card.compute.submit(stream))
        return bool(np.array_equal(card.copy.download_array(target, np.uint32, count), data * data))
"""


# Memory of the process that a card reaches at the same addresses (SVM): arrays, a list of pointers, pages that the
# process gives back meanwhile.
SHARING = """
import ctypes, mmap
def sharing(card, program):
    numbers, squared = np.arange(10007, dtype=np.uint32), np.zeros(10007, np.uint32)
    shared = [card.share(numbers, "numbers"), card.share(squared, "squared")]
    def square():
        stream = card.compute.stream()
        stream.dispatch(program["square"], -(-10007 // 64), 64, [shared[1], shared[0], 10007])
        card.compute.submit(stream).wait()
        return bool(np.array_equal(squared, numbers * numbers))
    said = [[one.gpu_va for one in shared] == [numbers.ctypes.data, squared.ctypes.data], square()]
    numbers[:] += 3
    said.append(square())
    # nodes (next, value) in two arrays, linked by the CPU's pointers
    halves = [np.zeros((50, 2), np.uint64) for _ in range(2)]
    places = [half[at].ctypes.data for half in halves for at in range(50)]
    random.Random(4).shuffle(places)
    for turn, place in enumerate(places):
        words = (ctypes.c_uint64 * 2).from_address(place)
        words[0], words[1] = (*places[1:], 0)[turn], turn
    lists = [card.share(half) for half in halves]
    total = np.zeros(1, np.uint64)
    sum_here = card.share(total)
    stream = card.compute.stream()
    stream.dispatch(program["follow"], 1, 1, [sum_here, np.uint64(places[0])])
    card.compute.submit(stream).wait()
    said.append(int(total[0]) == sum(range(100)))
    # the kernel takes pages from the card and gives it others
    pages = mmap.mmap(-1, 1 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    pages[:] = b"a" * (1 << 20)
    moved = card.share(pages, "pages")
    with card.alloc(1 << 20) as far:
        card.copy.copy_buffer(far, moved).wait()
        said.append(card.copy.download(far) == b"a" * (1 << 20))
        pages.madvise(mmap.MADV_DONTNEED)
        pages[4096:4100] = b"next"
        card.copy.copy_buffer(far, moved).wait()
        seen = card.copy.download(far)
        said.append(seen[4096:4100] == b"next" and seen.count(0) == (1 << 20) - 4)
        card.copy.fill(moved, 0x62626262).wait()
        said.append(pages[:] == b"b" * (1 << 20))
    for one in (*shared, *lists, sum_here, moved):
        one.free()
    pages.close()
    return said
"""


@contextmanager
def booted(folder: Path, *chips: str, small: tuple[int, ...] = ()) -> Iterator[Story]:
    """Boot a guest beside cards of those chips, none of which is plugged in yet."""
    source, code = folder / "squares.cl", folder / "squares.hsaco"
    source.write_text(SOURCE)
    subprocess.run([*CLANG, source, "-o", code], check=True)
    with (
        Served(folder, *chips, small=small) as served,
        Guest(folder / "guest", memory_mib=3072) as guest,
    ):
        yield Story(guest, served, code, Forks(guest, boot_files.CHECKOUT, "HOME=/root"))


def answer(done: Result) -> dict[str, object]:
    """Return the object that a program printed last."""
    assert done.status == 0, done.output
    said: dict[str, object] = json.loads(done.output.splitlines()[-1])
    return said


# Of the driver's tests for a real card, those that do not make sense here: amdgpu has the power controller's metrics,
# lets a process that faulted go on with nothing, and reads the registers of waves itself.
NOT_HERE = (
    "test_metal.py::test_its_measurements_are_plausible",
    "test_metal.py::test_a_fault_names_the_buffer_and_the_queue_works_again",
    "test_metal.py::test_a_kernel_that_hangs_is_named_and_the_queue_works_again",
)


FOLDER = "test/drivers/amd"
FILES = " ".join(
    f"{FOLDER}/{name}" for name in ("test_metal.py", "card/test_transfer.py", "card/test_queues.py", "aql/test_aql.py")
)


def metal(story: Story, name: str) -> int:
    """Run the driver's tests for a real card that make sense here; return how many have passed."""
    left_out = " ".join(f"--deselect '{FOLDER}/{test}[{name}]'" for test in NOT_HERE)
    return story.metal(name, FILES, left_out)
