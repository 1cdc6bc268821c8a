"""Rungs 5 and 6 of the NVIDIA ladder: NVIDIA's open kernel modules, built for the guest's kernel, on our cards.

They are unmodified but for the one line that `modules/build.sh` names, and load made-up GSP firmware. NVIDIA's own
programs may be used with NVIDIA's own chips only (docs/nvidia.md), so clients of ours ask the modules:
`modules/rm_client.py`, and `modules/rm_channels.py` for what a compute library does. The card may record no violation,
no fault and no access that it has no model of. The kernel may print no message of the modules but that they are there:
they name each assertion that fails, with file and line.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import boot_files
import pytest
from machine import Guest
from order_beside import nvidia as order
from served import Served

from ringup.compiler.isa.sass import assembly, cubin, cubin_write
from ringup.silicon.nv.rm import identity
from ringup.silicon.nv.rm.boards import rows as boards
from ringup.tools.common.paths import cache_folder

ALL = ("ga102", "tu102", "ad102")
# TIMEOUT: 12 s on two slow cores, and whatever else the machine does. On TU102 the modules map all of its memory for
# copies, by 8192 tables that they clear through BAR 2, each store an access that the emulator passes on: two minutes,
# and another one when they go.
CLIENT_S = 900.0
# parameters: an address, and a number
SQUARES = """
.target TARGET
.kernel squares
.registers 12
.parameter 16
  [B------:R-:W0:Y:S02] S2R R0, SR_TID.X
  [B------:R-:W-:Y:S06] MOV R5, 0x4
  [B0-----:R-:W-:Y:S06] IMAD R4, R0, R0, c[0x0][0x168]
  [B------:R-:W-:Y:S06] IMAD.WIDE.U32 R2, R0, R5, c[0x0][0x160]
  [B------:R-:W-:Y:S02] STORE [R2], R4
  EXIT
"""
# to a word of each thread it adds the thread times the number
ADDS = """
.target TARGET
.kernel adds
.registers 12
.parameter 16
  [B------:R-:W0:Y:S02] S2R R0, SR_TID.X
  [B------:R-:W-:Y:S06] MOV R5, 0x4
  [B0-----:R-:W-:Y:S06] IMAD.WIDE.U32 R2, R0, R5, c[0x0][0x160]
  [B------:R-:W1:Y:S02] LOAD R4, [R2]
  [B-1----:R-:W-:Y:S06] IMAD R4, R0, c[0x0][0x168], R4
  [B------:R-:W-:Y:S02] STORE [R2], R4
  EXIT
"""
# remarks in the card's log
LOADED, UNLOADED = order.REMARKS["modules"]
# what the modules say of themselves
THERE = re.compile(r"NVRM: loading NVIDIA UNIX Open Kernel Module|nvidia-uvm: (Loaded|Unloaded) the UVM driver")


@dataclass
class Story:
    """The guest, its card, and where the modules are."""

    guest: Guest
    served: Served
    chip: str
    modules: str
    # page faults that a test has made
    faults: list[str] = field(default_factory=list)

    def asks(self, what: str, client: str = "rm_client") -> Any:
        """Let a client do something, and return what it prints."""
        self.guest.dmesg()
        self.served.mark(f"a client: {what}")
        script = boot_files.HERE / f"modules/{client}.py"
        return json.loads(self.guest.check(f"{sys.executable} {script} {what}", CLIENT_S))

    def load(self) -> None:
        """Load nvidia.ko, and initialise the adapter; it stays so while its node is open, and clients need not wait."""
        self.served.mark(LOADED)
        self.guest.check(f"modprobe drm && insmod {self.modules}/nvidia.ko")
        self.guest.check("mknod -m 666 /dev/nvidia0 c 195 0")
        self.guest.check("(exec sleep 100000 3<>/dev/nvidia0 >/dev/null 2>&1) & echo $! >/run/holder")
        self.guest.wait_for("[ -e /proc/$(cat /run/holder)/fd/3 ]", CLIENT_S)
        self.served.mark("the adapter is initialised")

    def go(self, *others: str) -> None:
        """Stop the adapter, and unload nvidia.ko after the other modules that use it. Nothing of it may be left."""
        self.served.mark(UNLOADED)
        self.guest.check("kill $(cat /run/holder); rm -f /dev/nvidia0")
        # The adapter stops while the node is closed; then only the other modules hold this one.
        self.guest.wait_for(f"[ $(cat /sys/module/nvidia/refcnt) -le {len(others)} ]", CLIENT_S)
        self.guest.dmesg()
        self.guest.check(f"rmmod {' '.join(others)} nvidia", CLIENT_S)
        self.served.mark("the modules are gone")
        assert self.complaints() == []
        card = self.served.cards[0]
        assert self.served.call(lambda: (card.gsp.riscv_active, card.protected.up)) == (False, False)

    def complaints(self) -> list[str]:
        """Return what the modules print that is more than that they are there."""
        lines = [line for line in self.guest.dmesg().splitlines() if re.search("NVRM|Xid|BUG|WARNING|nvidia-uvm", line)]
        return [line for line in lines if not THERE.search(line)]

    def recorded(self, kind: str) -> list[str]:
        """Return the card's events of a kind."""
        card = self.served.cards[0]
        return self.served.call(lambda: [event.text for event in card.log.find(kind)])


@pytest.fixture(scope="module", params=ALL)
def story(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    cache = cache_folder()
    source = boot_files.set_up_package(cache, "nvidia-modules")
    kernel = boot_files.set_up_kernel(cache)
    modules = boot_files.set_up("modules/build.sh", cache / "guest-modules", kernel, source)
    folder = tmp_path_factory.mktemp(f"nvidia-modules-{request.param}")
    with Served(folder, request.param) as served, Guest(folder / "guest") as guest:
        yield Story(guest, served, request.param, str(modules))


@pytest.fixture(autouse=True)
def nothing_wrong(story: Story) -> Iterator[None]:
    yield
    assert story.served.violations() == []
    assert story.recorded("fault") == story.faults
    assert story.recorded("unmodelled") == []


def test_rung_05_nvidias_kernel_modules_initialise_the_adapter(story):
    story.guest.plug(story.served.sockets[0], 1)
    story.load()
    assert story.complaints() == []
    told = story.asks("card")
    assert story.complaints() == []
    chip, board = story.served.cards[0].chip, boards.find(story.chip)
    assert told["name"] == chip.product
    assert told["uuid"] == identity.uuid_text(chip).decode()
    assert told["sm_version"] == board.shaders.sm_version
    assert told["sm_count"] == board.shaders.sm_count
    assert told["warps_per_sm"] == board.shaders.warps_per_sm
    assert told["threads_per_warp"] == 32
    assert told["registers_per_sm"] == board.shaders.registers_per_sm
    assert told["cores"] == board.shaders.sm_count * board.shaders.cores_per_sm
    assert told["tensor_cores"] == board.shaders.sm_count * board.shaders.tensor_cores_per_sm
    assert (told["bus_bits"], told["l2_bytes"]) == (board.frame.bus_bits, board.frame.l2_bytes)
    assert told["pci"] == [chip.device_id << 16 | 0x10DE, chip.subsystem_id << 16 | 0x10DE]
    # what the firmware keeps, and what the modules keep for it
    assert 0 <= chip.vram_bytes - 1024 * told["usable_kib"] < 1 << 30


def test_rung_05_uvm_loads(story):
    story.guest.dmesg()
    story.guest.check(f"insmod {story.modules}/nvidia-uvm.ko", CLIENT_S)
    assert story.complaints() == []


def test_rung_05_uvm_takes_the_card(story):
    """It makes channels on the copy engines, and waits until each has done something."""
    assert story.asks("uvm") == "registered"
    assert story.complaints() == []


def test_rung_05_sensors_follow_the_work(story):
    told = story.asks("warm 12800", "rm_channels")
    assert story.complaints() == []
    before, meanwhile, after = told["before"], told["meanwhile"], told["after"]
    assert 25 <= before["celsius"] < 45
    assert (before["memory"], before["graphics"]) == (0, 0)
    assert meanwhile["memory"] > 50
    assert meanwhile["celsius"] >= before["celsius"] + 3
    assert after["memory"] == 0
    assert before["celsius"] <= after["celsius"] < meanwhile["celsius"]


def test_rung_06_copies_of_all_sizes_come_back(story):
    sizes = [1, 3, 4096, 70_001, 1 << 20, 256 << 20]
    assert story.asks(f"copies {' '.join(map(str, sizes))}", "rm_channels")["right"] == sizes
    assert story.complaints() == []


def test_rung_06_channels_work_in_the_order_of_their_semaphores(story):
    """The first of four is submitted last; the kernel wakes the client by the last one's interrupt."""
    assert story.asks("orders 4", "rm_channels") == {"order": [4, 3, 2, 1], "early": [0, 0, 0], "interrupts": 1}
    assert story.complaints() == []


def test_rung_06_a_hundred_contexts(story):
    assert story.asks("contexts 100", "rm_channels") == {"right": 100}
    assert story.complaints() == []


def assembled(story: Story, source: str) -> cubin.Kernel:
    """Return the kernel of a text for the card, which has gone through a cubin."""
    target = story.served.cards[0].chip.cores
    system = ".SYS" if target == "sm_75" else ""
    for word, value in (("TARGET", target), ("STORE", f"STG.E{system}"), ("LOAD", f"LDG.E{system}")):
        source = source.replace(word, value)
    made = assembly.assemble(source)
    (kernel,) = cubin.read(cubin_write.write(made.kernels, made.chip, cubin.Generation.CUDA_12)).kernels.values()
    return kernel


def test_rung_06_a_program_that_our_assembler_made(story):
    """Thread n of 64 stores n * n + 64. The program goes through a cubin."""
    kernel = assembled(story, SQUARES)
    told = story.asks(f"launch {kernel.registers} {kernel.code.hex()} 64", "rm_channels")
    assert told["words"] == [number * number + 64 for number in range(64)]
    assert story.complaints() == []


def test_rung_06_managed_memory_moves_to_who_uses_it(story):
    """The program's accesses fault, UVM moves the pages to the card and replays them; the CPU's move the pages back."""
    kernel, pages = assembled(story, ADDS), (0, 1, 5, 700)
    words = " ".join(map(str, (kernel.registers, kernel.code.hex(), *pages)))
    told = story.asks(words, "rm_managed")
    expected = [[[1000 * page + each * (1 + times) for each in range(64)] for page in pages] for times in (1, 3)]
    assert told["rounds"] == expected
    assert story.complaints() == []
    waits = story.recorded("wait")
    # in each round, in two blocks of 2 MiB; UVM brings neighbours along
    assert len([one for one in waits if "waits after read of 0x400000000: " in one]) == 2
    assert len([one for one in waits if "waits after read of 0x4002bc000: " in one]) == 2


def test_rung_06_an_access_that_nobody_can_serve_is_cancelled(story):
    """UVM cancels it, so the channel stops with an error that names the address; the card goes on."""
    kernel = assembled(story, ADDS)
    assert story.asks(f"{kernel.registers} {kernel.code.hex()} wild", "rm_managed") == {"beyond": False}
    said = story.guest.dmesg()
    fault = r"GPCCLIENT_T1_0 faulted @ 0x5_00000000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ"
    assert len(re.findall(rf"NVRM: Xid \(PCI:0000:01:00\): 31, .*{fault}", said)) == 1
    story.faults = story.recorded("fault")
    (text,) = story.faults
    assert text.endswith("on runlist 0: read of 0x500000000: PDE")
    assert story.asks("copies 4096", "rm_channels")["right"] == [4096]
    assert story.complaints() == []


def test_rung_05_the_modules_go(story):
    story.go("nvidia-uvm")
