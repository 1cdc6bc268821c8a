"""Rung 10 of the NVIDIA ladder: ringup's own bare driver, `pci:0000:01:00.0`, in turn with nouveau and with NVIDIA's
open kernel modules, on one card that is never restarted.

All load the made-up firmware of the guest's /lib/firmware. `modules/card_client.py` uses our driver in the guest. The
tests build on each other, in this order: nouveau, ours over VFIO, nouveau, ours over sysfs, nouveau, ours killed over
sysfs and over VFIO, nouveau, the modules, ours, the modules. The card may record no violation and no fault.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boot_files
import nvidia
import nvidia_modules
import pytest
from forks import Forks
from machine import Guest, Result
from nvidia_nodes import CLIENT, assembled, client_does
from order_beside import compare
from order_beside import nvidia as order
from served import Served

from ringup.drivers.nv.lifecycle.inspect import Found
from ringup.tools.common.paths import cache_folder

ALL = ("ga102", "tu102", "ad102")
# TIMEOUT: a minute on two slow cores, and whatever else the machine does
RUN_S, LOAD_S = 600.0, 900.0
FIRMWARE = "/host/lib/firmware"


@dataclass
class Story(nvidia.Story):
    """What nouveau's tests have, and our driver on the same card."""

    code: Path = Path()
    modules: Path = Path()
    forks: Forks = field(init=False)

    def __post_init__(self) -> None:
        self.forks = Forks(self.guest, boot_files.CHECKOUT, "HOME=/root")

    @property
    def address(self) -> str:
        """Where the card is."""
        return self.guest.address(1)

    def ringup(self, words: str) -> Result:
        """Run a command of ringup's in the guest; it must succeed."""
        done = self.forks.run(f"-m ringup.tools.command_line.cli {words}", RUN_S)
        assert done.status == 0, done.output
        return done

    def does(self, what: str) -> Any:
        """Let our driver do something on the bare card, and return what it prints."""
        return client_does(self.served, self.forks, f"pci:{self.address}", self.code, what)

    def ours_works(self, found: Found) -> None:
        """Open the card with our driver, copy between memory of all kinds, run kernels, close it."""
        done = self.does("facts,kinds,kernels")
        info, chip = done["facts"]["info"], self.served.cards[0].chip
        assert (info["found"], info["chip"], info["product"]) == (found.value, self.chip, chip.product)
        assert set(done["kinds"].values()) == {True}
        told = done["kernels"]
        assert told["squares"] == [number * number for number in range(300)] + [7] * 20
        assert told["turn"] == list(reversed(range(256)))
        assert told["stack"] == [number + number * number for number in range(64)]
        assert told["count"] == [5 + 3 * 100 * 128]
        assert self.runs() == (False, False)

    def nouveau_works(self) -> None:
        """Load nouveau, which has its node, and moves buffers."""
        self.load()
        self.sees(r"Initialized nouveau \S+ for 0000:\S+ on minor 0")
        assert not re.search(r"WARNING|BUG|rror", self.log), self.log
        self.moves()
        assert self.runs() == (True, True)

    def takes_physical_addresses(self) -> None:
        """Let the IOMMU pass what the card sends, which has no driver now."""
        self.guest.check(f"echo identity > /sys/bus/pci/devices/{self.address}/iommu_group/type")

    def given_back(self) -> str:
        """Give the card back to nouveau, which works; return what was printed."""
        self.guest.dmesg()
        self.log = ""
        said = self.ringup(f"unbind {self.address}").output
        self.hears(r"Initialized nouveau \S+ for 0000:\S+ on minor 0")
        assert not re.search(r"WARNING|BUG|rror", self.log), self.log
        self.moves()
        return said

    def nouveau_goes(self) -> None:
        """Unload it."""
        self.served.mark(nvidia.UNLOADED)
        self.guest.check("modprobe -r nouveau", LOAD_S)
        self.served.mark("nouveau is gone")
        assert self.runs() == (False, False)


@pytest.fixture(scope="module", params=ALL)
def story(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    cache = cache_folder()
    source = boot_files.set_up_package(cache, "nvidia-modules")
    modules = boot_files.set_up("modules/build.sh", cache / "guest-modules", boot_files.set_up_kernel(cache), source)
    folder = tmp_path_factory.mktemp(f"nvidia-bare-{request.param}")
    with (
        Served(folder, request.param) as served,
        Guest(folder / "guest", served=served, iommu=True) as guest,
    ):
        code = folder / "kernels.cubin"
        code.write_bytes(assembled(served.cards[0].chip.cores))
        guest.check(f"cp {boot_files.HERE / 'modules/nouveau_moves.py'} {nvidia.SCRIPT}")
        guest.check("echo 8 > /proc/sys/vm/nr_hugepages; modprobe vfio-pci; mkdir -p /lib/firmware")
        # the kernel loads its firmware from the first root
        guest.begin(f"mount -o bind /lib/firmware {FIRMWARE}")
        guest.wait_for("test -d /lib/firmware/nvidia", RUN_S)
        guest.plug(served.sockets[0], 1)
        yield Story(guest, served, request.param, code=code, modules=modules)


@pytest.fixture(autouse=True)
def nothing_wrong(story: Story) -> Iterator[None]:
    yield
    assert story.served.violations() == []
    assert story.recorded("fault") == []
    unexplained = set(story.recorded("unmodelled"))
    assert {text for text in unexplained if not any(re.fullmatch(known, text) for known in nvidia.NOT_YET)} == set()


def works_until_killed(story: Story, name: str) -> None:
    """Let our driver work in the background, and kill it in the middle of that."""
    log, process = f"/run/guest/{name}.log", f"/run/guest/{name}.pid"
    story.served.mark("ringup is killed")
    story.guest.check(
        f"cd {boot_files.CHECKOUT} && {{ HOME=/root setsid {sys.executable} {CLIENT} pci:{story.address} works_on "
        f"{story.code} {log} /run/guest/never > /run/guest/{name}.out 2>&1 < /dev/null & echo $! > {process}; }}"
    )
    story.guest.wait_for(f"grep -q 'ROUND 2' {log} || ! [ -d /proc/$(cat {process}) ]", RUN_S)
    story.guest.check(f"grep -q 'ROUND 2' {log} || {{ cat /run/guest/{name}.out; false; }}")
    story.guest.check(f"kill -9 $(cat {process})")
    story.guest.wait_for(f"! [ -d /proc/$(cat {process}) ]", RUN_S)


def test_rung_10_ours_over_vfio_between_two_loads_of_nouveau(story):
    story.nouveau_works()
    story.nouveau_goes()
    story.ringup(f"bind {story.address}")
    story.ours_works(Found.COLD)
    story.ringup(f"unbind {story.address}")
    story.nouveau_works()


@pytest.mark.long
def test_rung_10_ours_is_killed_over_vfio(story):
    """The kernel resets the function when the process is gone. nouveau stays loaded: the card is taken from it."""
    story.ringup(f"bind {story.address}")
    works_until_killed(story, "over-vfio")
    assert story.runs() == (False, False)
    story.given_back()


def test_rung_10_ours_is_killed_over_sysfs(story):
    """Nothing resets the function then, but `ringup unbind` does, before nouveau gets it."""
    story.ringup(f"bind {story.address} --driver none")
    story.takes_physical_addresses()
    story.ours_works(Found.COLD)
    works_until_killed(story, "over-sysfs")
    assert story.runs() == (True, True)
    said = story.given_back()
    assert f"reset what was left running: echo 1 > /sys/bus/pci/devices/{story.address}/reset" in said
    story.nouveau_goes()


def test_rung_10_ours_takes_over_from_a_killed_process(story):
    works_until_killed(story, "taken-over")
    assert story.runs() == (True, True)
    story.ours_works(Found.RUNNING)


def test_rung_10_ours_between_two_loads_of_nvidias_modules(story):
    """Both times they start the adapter, and a client of theirs gets an answer."""
    story.takes_physical_addresses()
    judges = nvidia_modules.Story(story.guest, story.served, story.chip, str(story.modules))
    for turn in (1, 2):
        story.guest.dmesg()
        judges.load()
        assert judges.asks("card")["name"] == story.served.cards[0].chip.product
        assert judges.complaints() == []
        judges.go()
        if turn == 1:
            story.ours_works(Found.COLD)


# GSP-RM takes these steps beside the CPU, or an interrupt causes them
BESIDE = r"GSP-RM: starts|call: (system information|registry)|interrupts: GSP's is .*"


@pytest.mark.parametrize("driver", order.OTHERS)
@pytest.mark.parametrize("story", [order.CHIP], indirect=True, scope="module")
def test_rung_10_the_others_take_the_steps_that_the_repositorys_records_show(story, driver, tmp_path):
    """`test_order_beside_others.py` compares our driver with these records."""
    order.cut(story.served.log_path, driver, tmp_path)
    found = compare.differences(order.tables()[driver], order.other(driver, tmp_path), order.other(driver))
    steps = [one for one in found if one.kind in ("missing", "added", "swapped")]
    assert [one for one in steps if not any(re.fullmatch(BESIDE, name) for name in one.names)] == []
