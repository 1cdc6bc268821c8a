"""Rung 5 of the NVIDIA ladder: NVIDIA's open kernel modules, built for the guest's kernel, on our cards.

They are unmodified but for the one line that `modules/build.sh` names, and load made-up GSP firmware. NVIDIA's own
programs may be used with NVIDIA's own chips only (docs/nvidia.md), so a client of ours asks the modules
(`modules/rm_client.py`). The card may record no violation, no fault and no access that it has no model of. The kernel
may print no message of the modules but that they are there: they name each assertion that fails, with file and line.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import boot_files
import pytest
from machine import Guest
from served import Served

from ringup.silicon.nv.rm import identity
from ringup.silicon.nv.rm.boards import rows as boards
from ringup.tools.common.paths import cache_folder

ALL = ("ga102", "ad102")
# TIMEOUT: 12 s on two slow cores, and whatever else the machine does
CLIENT_S = 300.0
# what the modules say of themselves
THERE = re.compile(r"NVRM: loading NVIDIA UNIX Open Kernel Module|nvidia-uvm: (Loaded|Unloaded) the UVM driver")


@dataclass
class Story:
    """The guest, its card, and where the modules are."""

    guest: Guest
    served: Served
    chip: str
    modules: str

    def asks(self, what: str) -> Any:
        """Let the client do something, and return what it prints."""
        self.guest.dmesg()
        self.served.mark(f"a client: {what}")
        script = boot_files.HERE / "modules/rm_client.py"
        return json.loads(self.guest.check(f"{sys.executable} {script} {what}", CLIENT_S))

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
    assert story.recorded("fault") == []
    assert story.recorded("unmodelled") == []


def test_rung_05_nvidias_kernel_modules_initialise_the_adapter(story):
    story.guest.plug(story.served.sockets[0], 1)
    story.served.mark("the modules are loaded")
    story.guest.check(f"modprobe drm && insmod {story.modules}/nvidia.ko")
    told = story.asks("card")
    assert story.complaints() == []
    chip, board = story.served.cards[0].chip, boards.find(story.chip)
    assert told["name"] == chip.product
    assert told["uuid"] == identity.uuid_text(chip).decode()
    assert told["sm_version"] == board.shaders.sm_version
    assert told["sm_count"] == board.shaders.sm_count
    assert told["pci"] == [chip.device_id << 16 | 0x10DE, chip.subsystem_id << 16 | 0x10DE]
    # what the firmware keeps, and what the modules keep for it
    assert 0 <= chip.vram_bytes - 1024 * told["usable_kib"] < 1 << 30


def test_rung_05_uvm_loads(story):
    story.guest.dmesg()
    story.guest.check(f"insmod {story.modules}/nvidia-uvm.ko")
    assert story.complaints() == []


def test_rung_05_uvm_takes_the_card(story):
    """It makes channels on the copy engines, and waits until each has done something."""
    assert story.asks("uvm") == "registered"
    assert story.complaints() == []


def test_rung_05_the_modules_go(story):
    story.guest.dmesg()
    story.served.mark("the modules are unloaded")
    story.guest.check("rmmod nvidia-uvm nvidia")
    assert story.complaints() == []
    card = story.served.cards[0]
    assert story.served.call(lambda: (card.gsp.riscv_active, card.protected.up)) == (False, False)
