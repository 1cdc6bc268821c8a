"""The NVIDIA ladder: how far Linux's own nouveau, unmodified and without any option, comes on our cards, with the GSP
firmware that NVIDIA published. `make nvidia` runs it.

Each chip has a guest of its own. A rung is judged by what the kernel reports to its user and by what the card has
recorded. No rung may leave a violation in the card, a fault, or an access that the card has no model of.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import boot_files
import pytest
from machine import Guest
from served import Served

from ringup.tools.common.paths import cache_folder

ALL = ("ga102", "tu102", "ad102")
# nouveau clears its buffers byte by byte through BAR2, and each byte is an access that the emulator passes on.
# TIMEOUT: 80 to 150 s on two slow cores.
LOAD_S = 900.0
# as the kernel names the architecture: PMC_BOOT_0
CHIPSETS = {"tu102": "TU102 (162000a1)", "ga102": "GA102 (172000a1)", "ad102": "AD102 (192000a1)"}
# what the card does not do yet, each by its text in the card's log
NOT_YET = (r"methods of class 0x\w+ have no effect",)


@dataclass
class Story:
    """The guest, its card, and the kernel's messages of the time when the driver was loaded."""

    guest: Guest
    served: Served
    chip: str
    log: str = ""
    # faults that a test wanted
    faults: int = 0

    def sees(self, pattern: str) -> None:
        """Check that the kernel printed a message since the last loading."""
        assert re.search(pattern, self.log), f"the kernel did not say {pattern!r}; it said:\n{self.log[-4000:]}"

    def load(self) -> None:
        """Load the driver, and collect the kernel's messages until it has its node or has given up."""
        self.guest.dmesg()
        self.served.mark("nouveau is loaded")
        self.guest.check("modprobe nouveau", LOAD_S)
        end, self.log = time.monotonic() + 60, ""
        while not re.search(r"Initialized nouveau|failed with error", self.log) and time.monotonic() < end:
            self.log += self.guest.dmesg()
            time.sleep(0.2)
        time.sleep(1)
        self.log += self.guest.dmesg()
        self.served.mark("nouveau is idle")

    def recorded(self, kind: str) -> list[str]:
        """Return the card's events of a kind."""
        card = self.served.cards[0]
        return self.served.call(lambda: [event.text for event in card.log.find(kind)])


@pytest.fixture(scope="module", params=ALL)
def story(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    firmware = boot_files.set_up_firmware(cache_folder(), "firmware-nvidia")
    folder = tmp_path_factory.mktemp(f"nvidia-{request.param}")
    # the kernel reads files in its first root, below which the host's is
    options = f"firmware_class.path=/host{Path(firmware).resolve()}/usr/lib/firmware"
    with Served(folder, request.param) as served, Guest(folder / "guest", kernel_options=options) as guest:
        yield Story(guest, served, request.param)


@pytest.fixture(autouse=True)
def nothing_wrong(story: Story) -> Iterator[None]:
    yield
    assert story.served.violations() == []
    assert story.recorded("fault")[story.faults :] == []
    unexplained = set(story.recorded("unmodelled"))
    assert {text for text in unexplained if not any(re.fullmatch(known, text) for known in NOT_YET)} == set()


def test_rung_01_nouveau_has_its_node(story):
    story.guest.plug(story.served.sockets[0], 1)
    story.load()
    story.sees(re.escape(f"NVIDIA {CHIPSETS[story.chip]}"))
    story.sees(r"bios: version \S+")
    story.sees(rf"drm: VRAM: {story.served.cards[0].chip.vram_bytes >> 20} MiB")
    story.sees(r"drm: MM: using COPY for buffer copies")
    story.sees(r"Initialized nouveau \S+ for 0000:\S+ on minor 0")
    assert story.guest.check("ls /dev/dri").split() == ["card0", "renderD128"]
    card = story.served.cards[0]
    assert story.served.call(lambda: (card.gsp.riscv_active, card.protected.up)) == (True, True)


def test_rung_02_buffers_move_by_the_copy_engine(story):
    story.served.mark("buffers move")
    script = boot_files.HERE / "nouveau_moves.py"
    assert story.guest.check(f"{sys.executable} {script}", LOAD_S).split("\n")[:4] == [
        "right in place 2",
        "right in place 4",
        "right in place 2",
        "right in place 4",
    ]


def test_rung_02_a_page_fault_is_reported_with_its_address(story):
    story.guest.dmesg()
    story.served.mark("a channel writes to an address that is not mapped")
    story.guest.check(f"{sys.executable} {boot_files.HERE / 'nouveau_moves.py'} 0x123456789000", LOAD_S)
    story.faults = 1
    (fault,) = story.recorded("fault")
    assert "write to 0x123456789000" in fault
    end, story.log = time.monotonic() + 60, ""
    while "rc engn" not in story.log and time.monotonic() < end:
        story.log += story.guest.dmesg()
        time.sleep(0.2)
    # ROBUST_CHANNEL_FIFO_ERROR_MMU_ERR_FLT
    story.sees(r"Xid:31 .*write to 0x123456789000")
    story.sees(r"rc engn:\S+ chid:\d+ type:31")
    # others go on
    test_rung_02_buffers_move_by_the_copy_engine(story)


def test_rung_02_unload_and_reload(story):
    story.guest.dmesg()
    story.served.mark("nouveau is unloaded")
    story.guest.check("modprobe -r nouveau", LOAD_S)
    card = story.served.cards[0]
    assert story.served.call(lambda: (card.gsp.riscv_active, card.protected.up)) == (False, False)
    assert not re.search(r"WARNING|BUG|error", story.guest.dmesg())
    story.load()
    story.sees(r"Initialized nouveau \S+ for 0000:\S+ on minor 0")
