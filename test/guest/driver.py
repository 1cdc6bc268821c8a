"""ringup's own driver on a real kernel: `ringup` in the guest, on a card that another process serves, behind an
emulated IOMMU.

The tests build on each other, in this order: over VFIO as root and as an ordinary user, with interrupts, killed,
unplugged; then over sysfs; then with a card taken from amdgpu and given back. Each also checks the card: none may leave
a violation in it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import boot_files
import pytest
from forks import Forks
from machine import Guest, Result
from served import Served

# TIMEOUT: about 10 s on an idle machine, including Python's start.
UP_S = 600
# TIMEOUT: about 60 s on an idle machine.
BENCH_S = 1500
RUNS = """
import contextlib, os, random, sys, time
import ringup
from ringup.drivers.transport.linux import pci
from ringup.errors import RingupError
"""


@dataclass
class Story:
    guest: Guest
    served: Served
    address: str
    forks: Forks

    @property
    def name(self) -> str:
        return f"pci:{self.address}"

    @property
    def group(self) -> str:
        return self.guest.check(f"basename $(readlink /sys/bus/pci/devices/{self.address}/iommu_group)").strip()

    def python(self, code: str, timeout_s: float = UP_S, before: str = "") -> Result:
        """Run Python in the guest, with the checkout."""
        path = f"/run/guest/{abs(hash(code)):x}.py"
        self.guest.check(f"cat > {path} <<'END_OF_CODE'\n{RUNS}\n{code}\nEND_OF_CODE")
        return self._run(path, timeout_s, before)

    def ringup(self, words: str, timeout_s: float = UP_S, before: str = "") -> Result:
        """Run a command of ringup's in the guest."""
        return self._run(f"-m ringup.tools.command_line.cli {words}", timeout_s, before)

    def _run(self, words: str, timeout_s: float, before: str) -> Result:
        """Run Python: a new one if something must come before it, otherwise a fork of one that has imported ringup."""
        if before:
            return self.guest.run(f"cd {boot_files.CHECKOUT} && {before} {sys.executable} {words}", timeout_s)
        return self.forks.run(words, timeout_s)

    def up(self, before: str = "") -> dict[str, object]:
        """Open the card in a process of its own, and return the output."""
        done = self.ringup(f"up {self.name} --json", before=before)
        assert done.status == 0, done.output
        said: dict[str, object] = json.loads(done.output.splitlines()[-1])
        assert said["moved_bytes"] == 1 << 20
        return said


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    folder = tmp_path_factory.mktemp("driver")
    with (
        Served(folder, "navi31") as served,
        Guest(folder / "guest", memory_mib=2048, iommu=True) as guest,
    ):
        guest.check("echo 8 > /proc/sys/vm/nr_hugepages; modprobe vfio-pci")
        yield Story(guest, served, guest.plug(served.sockets[0], 1), Forks(guest, boot_files.CHECKOUT))


@pytest.fixture(autouse=True)
def no_violations(story):
    yield
    assert story.served.violations() == []


def found(said):
    return said["card"]["found"]


def test_obstacles_to_physical_addresses_are_named(story):
    listed = json.loads(story.ringup("list --json").output)
    row = next(row for row in listed if row["name"] == story.name)
    assert f"group {story.group} translates" in json.dumps(row)
    refused = story.ringup(f"up {story.name}")
    assert refused.status == 11
    assert "ringup bind" in refused.output
    assert "Traceback" not in refused.output


def test_over_vfio_behind_the_iommu(story):
    bound = story.ringup(f"bind {story.address}")
    assert bound.status == 0, bound.output
    said = story.up()
    assert said["card"]["chip"] == "navi31"
    # The kernel resets a function when it is opened and closed.
    assert found(said) == found(story.up()) == "cold"
    info = story.ringup(f"info {story.name}")
    assert "24560 MiB" in info.output
    assert "vfio" in story.ringup("doctor").output


TWICE = """
name = sys.argv[1]
card = ringup.open(name)
view = card.device.bars[0].map()
card.close()
again = ringup.open(name)
again.device.bars[0].map()[:4] = b"mine"
print("found", again.info.found, bytes(view[:4]) == bytes(4))
again.close()
"""


def test_a_process_opens_a_card_again_that_it_has_views_of(story):
    """A device that is still mapped somewhere stays in use."""
    done = story.python(TWICE.replace("sys.argv[1]", repr(story.name)))
    assert done.output.split("\n")[-2] == "found cold True", done.output


def test_the_benches_measure_it(story):
    done = story.ringup(f"bench bringup latency --card {story.name} --json --no-peer --quick", BENCH_S)
    assert done.status == 0, done.output
    figures = [json.loads(line) for line in done.output.splitlines() if line.startswith("{")]
    assert all(figure["ours"] > 0 for figure in figures)
    for part in ("start 1, found cold", "start 2, found cold"):
        assert any(part in figure["name"] for figure in figures), done.output


def test_the_memory_of_a_process_is_unmapped_with_it(story):
    pieces = len(story.served.call(lambda: story.served.cards[0].host._spans))
    assert pieces == 0, "the IOMMU lets the card reach memory of a process that has ended"


def test_as_an_ordinary_user(story):
    story.guest.check(f"chown nobody /dev/vfio/{story.group}")
    for folder in Path(sys.executable).resolve().parents:
        story.guest.check(f"chmod o+x {folder}")
    # The card needs more pinned memory than the few MiB that a user may lock by default.
    said = story.up(
        before="prlimit --memlock=unlimited setpriv --reuid=nobody --regid=nogroup --clear-groups env HOME=/tmp"
    )
    assert said["card"]["chip"] == "navi31"
    refused = story.ringup(
        f"up {story.name}",
        before="prlimit --memlock=65536 setpriv --reuid=nobody --regid=nogroup --clear-groups env HOME=/tmp",
    )
    assert refused.status == 24, refused.output
    assert "ulimit -l" in refused.output
    assert "Traceback" not in refused.output


TWO_CARDS = """
import logging
logging.basicConfig(level=logging.WARNING, format="LOG %(message)s")
cards = [ringup.open(name) for name in sys.argv[1].split()]
for card, other in (cards, cards[::-1]):
    peer = card.peer(other)
    print("PEER", card.name, peer.direct, peer.why)
    data = random.Random(2).randbytes(3 << 20)
    source, target = other.alloc(3 << 20, visible=True), card.alloc(3 << 20)
    said = []
    for size in (4096, 8 * 4096, 3 << 20):
        with other.alloc(size, visible=True) as there:
            try:
                said.append((size, peer.map(there).size_bytes == size))
            except RingupError as error:
                said.append((size, str(error)))
    print("MAPPED", *said)
    peer.copy(target, source, after=[other.copy.upload(source, data)]).wait()
    print("FETCHED", card.copy.download(target) == data)
    card.copy.upload(target, data[::-1]).wait()
    peer.copy(source, target).wait()
    print("STORED", other.copy.download(source) == data[::-1])
for card in cards:
    card.close()
"""


def test_two_cards_over_vfio_move_the_right_bytes(story, tmp_path):
    """Whatever the emulated IOMMU maps of a BAR: no page that is missing is trusted.

    QUIRK: QEMU gives a card no descriptor of another card's BAR, and does not answer the card's requests for it. So the
    tries end nowhere, and the host carries the bytes. Each card is served by a thread of its own: the emulator waits
    for one in the middle of a request of the other.
    """
    with Served(tmp_path / "second", "navi33") as other:
        second = story.guest.plug(other.sockets[0], 2)
        story.ringup(f"bind {second}")
        done = story.python(TWO_CARDS.replace("sys.argv[1]", repr(f"{story.name} pci:{second}")))
        assert done.status == 0, done.output
        for words in ("FETCHED True", "STORED True"):
            assert done.output.count(words) == 2, done.output
        story.guest.unplug(2)
        for event in (*story.served.violations(), *other.violations()):
            assert "where no memory is" in event, event


def test_interrupts_come_through_vfio(story):
    card = story.served.cards[0]
    story.python(
        f"""
from ringup.drivers.select import start
if not os.fork():
    os.setsid()
    sys.stdout = sys.stderr = open("/run/guest/heard.log", "w", buffering=1)
    device = pci.open("{story.address}", path="vfio")
    with start(device):
        # The first time that somebody waits, vectors are asked for; what the start has raised may be on its way still.
        for _ in range(20):
            if not device.interrupts.wait(500_000):
                break
        print("READY")
        print("HEARD", device.interrupts.wait(60_000_000))
        print(*(line for line in open("/proc/interrupts") if "vfio-msi" in line))
    print("DONE")
""",
        before="setsid",
    )
    story.guest.wait_for("grep -q -e READY -e Traceback /run/guest/heard.log", UP_S)
    story.served.call(card.gpu.interrupt)
    story.guest.wait_for("grep -q -e DONE -e Traceback /run/guest/heard.log", UP_S)
    said = story.guest.check("cat /run/guest/heard.log")
    assert "HEARD (0,)" in said
    assert "IR-PCI-MSI" in said  # remapped by the IOMMU
    time.sleep(1)


def test_killed_in_the_middle_of_a_copy_it_is_taken_up_again(story):
    started = story.python(
        f"""
if os.fork():
    time.sleep(0.1)
    print("PID", open("/run/guest/copier.pid").read() if os.path.exists("/run/guest/copier.pid") else "")
else:
    os.setsid()
    open("/run/guest/copier.pid", "w").write(str(os.getpid()))
    sys.stdout = sys.stderr = open("/run/guest/copier.log", "w", buffering=1)
    with ringup.open("{story.name}") as card, card.alloc(8 << 20) as buffer:
        data = random.Random(1).randbytes(8 << 20)
        while True:
            card.copy.upload(buffer, data).wait()
            print("copied")
""",
        before="setsid",
    )
    assert started.status == 0, started.output
    story.guest.wait_for("grep -q copied /run/guest/copier.log", UP_S)
    busy = story.ringup(f"up {story.name}")
    assert busy.status == 13, busy.output  # CardBusy, with its holder
    story.guest.check("kill -9 $(cat /run/guest/copier.pid)")
    time.sleep(1)
    assert found(story.up()) == "cold"
    # Violations of this time come from the killed process: its memory was taken away while the card used it. No other
    # violation is allowed.
    assert all("DMA" in event and "bus address" in event for event in story.served.violations())


def copying(story, name):
    """Start a background process that copies forever, and return the file where it writes how it ended."""
    log = f"/run/guest/{name}.log"
    story.python(
        f"""
if not os.fork():
    os.setsid()
    sys.stdout = sys.stderr = open("{log}", "w", buffering=1)
    try:
        with ringup.open("{story.name}") as card, card.alloc(8 << 20) as buffer:
            while True:
                card.copy.upload(buffer, bytes(8 << 20)).wait()
                print("copied")
    except RingupError as error:
        print("ENDED", type(error).__name__, error)
""",
        before="setsid",
    )
    story.guest.wait_for(f"grep -q copied {log}", UP_S)
    return log


def test_a_card_that_falls_off_the_bus_while_it_copies_is_lost_in_one_line(story):
    log = copying(story, "lost")
    card = story.served.cards[0]
    story.served.call(card.unplug)
    story.guest.wait_for(f"grep -q -e ENDED -e Traceback {log}", UP_S)
    said = story.guest.check(f"tail -n 3 {log}")
    assert "ENDED DeviceLost" in said
    story.served.call(card.replug)
    story.guest.unplug(1)
    story.address = story.guest.plug(story.served.sockets[0], 1)
    story.ringup(f"bind {story.address}")
    assert found(story.up()) == "cold"


def test_a_card_that_is_asked_to_leave_while_it_copies(story):
    log = copying(story, "asked")
    story.guest.unplug(1)
    story.guest.wait_for(f"grep -q -e ENDED -e Traceback {log}", UP_S)
    assert "ENDED DeviceLost" in story.guest.check(f"tail -n 3 {log}")
    story.address = story.guest.plug(story.served.sockets[0], 1)
    # The kernel took its memory back.
    assert all("DMA" in event and "bus address" in event for event in story.served.violations())


def test_over_sysfs_with_huge_pages(story):
    story.guest.check(f"echo identity > /sys/kernel/iommu_groups/{story.group}/type")
    said = story.up()
    assert said["card"]["chip"] == "navi31"
    done = story.python(
        f"""
with contextlib.closing(pci.open("{story.address}", path="sysfs")) as device:
    memory = device.alloc_host(4 << 20)
    print("RUNS", [size >> 20 for _, size in memory.runs()])
"""
    )
    assert done.status == 0, done.output
    # Two pages of 2 MiB, or one piece where they are adjacent.
    assert len(done.output.split()) <= 3, done.output


def test_taken_from_amdgpu_and_given_back(story):
    story.guest.dmesg()
    story.guest.check("modprobe amdgpu", 240)
    story.ringup(f"unbind {story.address}")
    story.guest.wait_for("ls /dev/dri/renderD128", UP_S)
    time.sleep(2)
    held = story.guest.run(
        f"cd {boot_files.CHECKOUT}; sleep 300 < /dev/dri/renderD128 & "
        f"{sys.executable} -m ringup.tools.command_line.cli bind {story.address} --driver none; code=$?; kill %1; exit $code",
        UP_S,
    )
    assert held.status == 13, held.output
    assert "renderD128" in held.output
    taken = story.ringup(f"bind {story.address} --driver none")
    assert taken.status == 0, taken.output
    assert found(story.up()) == "foreign"
    story.guest.dmesg()
    given = story.ringup(f"unbind {story.address}")
    assert given.status == 0, given.output
    story.guest.wait_for("dmesg | tail -n 5 | grep -q 'Initialized amdgpu'", UP_S)
    assert "ib ring tests passed" in story.guest.check("cat /sys/kernel/debug/dri/0/amdgpu_test_ib")
