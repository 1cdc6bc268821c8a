"""The NVIDIA ladder: how far Linux's own nouveau, unmodified and without any option, comes on our cards, with made-up
GSP firmware (`ringup.silicon.nvidia_firmware`): NVIDIA's may be used with NVIDIA's own chips only. `make nvidia` runs
it.

Each chip has a guest of its own. A rung is judged by what the kernel reports to its user and by what the card has
recorded. No rung may leave a violation in the card, a fault, or an access that the card has no model of, except those
that a test causes.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import boot_files
import pytest
from machine import Guest
from served import Served

ALL = ("ga102", "tu102", "ad102")
# nouveau clears its buffers byte by byte through BAR2, and each byte is an access that the emulator passes on.
# TIMEOUT: 10 s on two slow cores, and whatever else the machine does.
LOAD_S = 300.0
# TIMEOUT: nouveau_fence_wait gives up after 15 s
WAIT_S = 120.0
# where both roots of the guest see it
SCRIPT = "/run/guest/nouveau_moves.py"
MOVED = [f"right in place {place}" for place in (2, 4, 2, 4)]
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
    # violations and faults that tests wanted, by parts of their texts
    wanted: list[str] = field(default_factory=list)

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

    def hears(self, pattern: str) -> None:
        """Wait until the kernel has printed a message, one of those since `log` was emptied."""
        end = time.monotonic() + WAIT_S
        while not re.search(pattern, self.log) and time.monotonic() < end:
            self.log += self.guest.dmesg()
            time.sleep(0.2)
        self.sees(pattern)

    def says(self, file: str, count: int) -> list[str]:
        """Wait until a program has written so many lines, and return them."""
        end, lines = time.monotonic() + WAIT_S, []
        while len(lines) < count and time.monotonic() < end:
            time.sleep(0.2)
            lines = self.guest.trixie(f"cat {file}").output.splitlines()
        return lines

    def runs(self) -> tuple[bool, bool]:
        """Return whether GSP-RM runs, and whether there is a protected region."""
        card = self.served.cards[0]
        return self.served.call(lambda: (card.gsp.riscv_active, card.protected.up))

    def moves(self, node: str = "renderD128") -> None:
        """Move a buffer of the card that has this node, byte for byte."""
        assert self.guest.trixie(f"python3 {SCRIPT} /dev/dri/{node} moves", WAIT_S).output.splitlines() == MOVED

    def errs(self, words: str, *wanted: str) -> None:
        """Let a channel do something wrong; the card records these."""
        self.guest.dmesg()
        self.log = ""
        self.served.mark(f"a channel {words}")
        assert self.guest.trixie(f"python3 {SCRIPT} /dev/dri/renderD128 {words}", WAIT_S).status == 0
        self.wanted += wanted
        self.hears(r"rc engn:\S+ chid:\d+ type:\d+")

    def recorded(self, kind: str) -> list[str]:
        """Return the card's events of a kind."""
        card = self.served.cards[0]
        return self.served.call(lambda: [event.text for event in card.log.find(kind)])


@pytest.fixture(scope="module", params=ALL)
def story(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    folder = tmp_path_factory.mktemp(f"nvidia-{request.param}")
    with Served(folder, request.param) as served, Guest(folder / "guest") as guest:
        guest.check(f"cp {boot_files.HERE / 'nouveau_moves.py'} {SCRIPT}")
        yield Story(guest, served, request.param)


@pytest.fixture(autouse=True)
def nothing_wrong(story: Story) -> Iterator[None]:
    yield
    wrong = story.served.violations() + story.recorded("fault")
    assert [text for text in wrong if not any(known in text for known in story.wanted)] == []
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
    assert story.runs() == (True, True)


def test_rung_02_buffers_move_by_the_copy_engine(story):
    story.served.mark("buffers move")
    story.moves()


def test_rung_02_a_page_fault_is_reported_with_its_address(story):
    story.errs("writes 0x123456789000", "write to 0x123456789000")
    (fault,) = story.recorded("fault")
    assert "write to 0x123456789000" in fault
    # ROBUST_CHANNEL_FIFO_ERROR_MMU_ERR_FLT
    story.sees(r"Xid:31 .*write to 0x123456789000")
    story.sees(r"rc engn:\S+ chid:\d+ type:31")
    # others go on
    story.moves()


def test_rung_02_a_channel_that_submits_nonsense_is_stopped(story):
    story.errs("nonsense", "method 0x100 on subchannel 3, which has no object")
    # ROBUST_CHANNEL_PBDMA_ERROR
    story.sees(r"Xid:32 .*method 0x100 on subchannel 3")
    story.sees(r"rc engn:\S+ chid:\d+ type:32")
    story.moves()


def test_rung_02_a_channel_that_hangs_is_recovered_when_its_client_ends(story):
    story.guest.dmesg()
    story.log = ""
    story.served.mark("a channel waits for a semaphore that never comes")
    story.guest.trixie(f"(python3 {SCRIPT} /dev/dri/renderD128 waits >/run/guest/waits.log 2>&1) >/dev/null 2>&1 &")
    (said,) = story.says("/run/guest/waits.log", 1)
    # its buffers go before the channel does, whose next look at the semaphore is a fault then
    story.wanted.append(said.replace("waits at", "read of"))
    (waiting,) = story.served.call(story.served.cards[0].engines.waiting)
    assert "waits for EQUAL 0x1" in waiting
    story.moves()
    story.guest.check("pkill -9 -f nouveau_moves.py")
    # nouveau_channel_idle
    story.hears(r"failed to idle channel")
    end = time.monotonic() + WAIT_S
    while story.served.call(story.served.cards[0].engines.waiting):
        assert time.monotonic() < end, "the channel that hung is still there"
        time.sleep(0.2)
    story.moves()


def test_rung_02_unload_and_reload(story):
    story.guest.dmesg()
    story.served.mark("nouveau is unloaded")
    story.guest.check("modprobe -r nouveau", LOAD_S)
    assert story.runs() == (False, False)
    assert not re.search(r"WARNING|BUG|error", story.guest.dmesg())
    story.load()
    story.sees(r"Initialized nouveau \S+ for 0000:\S+ on minor 0")
