"""Rung 9 of the NVIDIA ladder: ringup's own driver, `nvidia:0`, over NVIDIA's open kernel modules and a virtual card.

`modules/card_client.py` uses the driver in the guest; no library of NVIDIA's is there. Programs are made by ringup's
assembler: what ptxas makes may not run on a virtual card (docs/sass.md). The tests build on each other, in this order:
nodes that lack, what the card is, memory, copies, kernels, queues, trouble, several processes, users. The card may
record no violation and no fault but those that a test causes, and the modules may complain of nothing else.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boot_files
import pytest
from forks import Forks
from machine import Guest, Result
from served import Served

from ringup.compiler.isa.sass import assembly, cubin, cubin_write
from ringup.errors import NotSupported
from ringup.silicon.nv.rm.boards import rows as boards
from ringup.tools.common.paths import cache_folder

ALL = ("ga102", "tu102", "ad102")
# TIMEOUT: a minute on two slow cores, and whatever else the machine does
RUN_S, LOAD_S = 600.0, 900.0
NAME = "nvidia:0"
CLIENT = boot_files.HERE / "modules/card_client.py"
# allocations and frees of one test
CYCLES = 200
# squares: numbers below the second argument; turn: shared memory turns 256 numbers around; stack: local memory;
# count: each thread adds 3; spin: it ends when a number is not zero
KERNELS = """
.target TARGET
.kernel squares
.registers 12
.parameter 8
.parameter 4
  [B------:R-:W0:Y:S02] S2R R0, SR_CTAID.X
  [B------:R-:W1:Y:S02] S2R R1, SR_TID.X
  [B------:R-:W-:Y:S06] MOV R5, 0x4
  [B01----:R-:W-:Y:S06] IMAD R0, R0, c[0x0][0x0], R1
  [B------:R-:W-:Y:S13] ISETP.GE.U32.AND P0, PT, R0, c[0x0][0x168], PT
  [B------:R-:W-:Y:S06] @P0 EXIT
  [B------:R-:W-:Y:S06] IMAD R4, R0, R0, RZ
  [B------:R-:W-:Y:S06] IMAD.WIDE.U32 R2, R0, R5, c[0x0][0x160]
  [B------:R-:W-:Y:S02] STORE [R2], R4
  EXIT
.kernel turn
.registers 12
.shared 1024
.barriers 1
.parameter 8
  [B------:R-:W0:Y:S02] S2R R0, SR_TID.X
  [B------:R-:W-:Y:S06] MOV R5, 0x4
  [B0-----:R-:W-:Y:S06] IMAD.WIDE.U32 R2, R0, R5, c[0x0][0x160]
  [B------:R-:W1:Y:S02] LOAD R4, [R2]
  [B------:R-:W-:Y:S06] IMAD R6, R0, R5, RZ
  [B-1----:R1:W-:Y:S02] STS [R6], R4
  [B-1----:R-:W-:Y:S06] BAR.SYNC 0x0
  [B------:R-:W-:Y:S06] MOV R9, 0x3fc
  [B------:R-:W-:Y:S06] IADD3 R7, R9, -R6, RZ
  [B------:R-:W2:Y:S02] LDS R8, [R7]
  [B--2---:R-:W-:Y:S02] STORE [R2], R8
  EXIT
.kernel stack
.registers 12
.frame 64
.parameter 8
  [B------:R-:W0:Y:S02] S2R R0, SR_TID.X
  [B------:R-:W-:Y:S06] MOV R5, 0x4
  [B0-----:R-:W-:Y:S06] IMAD.WIDE.U32 R2, R0, R5, c[0x0][0x160]
  [B------:R-:W-:Y:S06] MOV R1, c[0x0][0x28]
  [B------:R-:W-:Y:S06] IMAD R6, R0, R0, RZ
  [B------:R0:W-:Y:S02] STL [R1+-0x10], R0
  [B------:R1:W-:Y:S02] STL [R1+-0x40], R6
  [B01----:R-:W-:Y:S06] MOV R0, 0x0
  [B------:R-:W-:Y:S06] MOV R6, 0x0
  [B------:R-:W0:Y:S02] LDL R4, [R1+-0x10]
  [B------:R-:W1:Y:S02] LDL R6, [R1+-0x40]
  [B01----:R-:W-:Y:S06] IADD3 R4, R4, R6, RZ
  [B------:R-:W-:Y:S02] STORE [R2], R4
  EXIT
.kernel count
.registers 12
.parameter 8
  [B------:R-:W-:Y:S06] MOV R2, c[0x0][0x160]
  [B------:R-:W-:Y:S06] MOV R3, c[0x0][0x164]
  [B------:R-:W-:Y:S06] MOV R4, 0x3
  [B------:R-:W-:Y:S02] ADDUP [R2], R4
  EXIT
.kernel spin
.registers 12
.parameter 8
  [B------:R-:W-:Y:S06] MOV R2, c[0x0][0x160]
  [B------:R-:W-:Y:S06] MOV R3, c[0x0][0x164]
again:
  [B------:R-:W0:Y:S02] LOAD R4, [R2]
  [B0-----:R-:W-:Y:S13] ISETP.EQ.U32.AND P0, PT, R4, 0x0, PT
  [B------:R-:W-:Y:S06] @P0 BRA again
  EXIT
"""
# a control that these modules leave to the card's firmware, and that the model of it does not have
FAULT_INFO = "control 0x906f0106"


def client_does(served: Served, forks: Forks, card: str, code: Path, what: str) -> Any:
    """Let `card_client.py` do something on a card with a cubin, and return what it prints."""
    served.mark(f"ringup: {what}")
    doing, _, more = what.partition(" ")
    done = forks.run(f"{CLIENT} {card} {doing} {code} {more}", RUN_S)
    assert done.status == 0, done.output
    return json.loads(done.output.splitlines()[-1])


@dataclass
class Story:
    """The guest, its card, where the modules are, and a cubin for the card."""

    guest: Guest
    served: Served
    chip: str
    modules: str
    code: Path
    forks: Forks
    # page faults that tests have made, as the card records them
    faults: list[str] = field(default_factory=list)

    def does(self, what: str) -> Any:
        """Let the client do something, and return what it prints."""
        return client_does(self.served, self.forks, NAME, self.code, what)

    def ringup(self, words: str) -> Result:
        """Run a command of ringup's in the guest."""
        return self.forks.run(f"-m ringup.tools.command_line.cli {words}", RUN_S)

    def begins(self, name: str, words: str) -> None:
        """Start the client in the background; /run/guest/NAME.pid and NAME.out are its own."""
        self.guest.check(
            f"cd {boot_files.CHECKOUT} && {{ HOME=/root setsid {sys.executable} {CLIENT} {NAME} {words} "
            f"> /run/guest/{name}.out 2>&1 < /dev/null & echo $! > /run/guest/{name}.pid; }}"
        )

    def recorded(self, kind: str) -> list[str]:
        """Return the card's events of a kind."""
        card = self.served.cards[0]
        return self.served.call(lambda: [event.text for event in card.log.find(kind)])

    def complaints(self) -> list[str]:
        """Return what the modules have printed since the last call."""
        return [line for line in self.guest.dmesg().splitlines() if re.search("NVRM|Xid|BUG|WARNING", line)]


@pytest.fixture(scope="module", params=ALL)
def story(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    cache = cache_folder()
    source = boot_files.set_up_package(cache, "nvidia-modules")
    kernel = boot_files.set_up_kernel(cache)
    modules = boot_files.set_up("modules/build.sh", cache / "guest-modules", kernel, source)
    folder = tmp_path_factory.mktemp(f"nvidia-nodes-{request.param}")
    with Served(folder, request.param) as served, Guest(folder / "guest") as guest:
        code = folder / "kernels.cubin"
        code.write_bytes(assembled(served.cards[0].chip.cores))
        forks = Forks(guest, boot_files.CHECKOUT, "HOME=/root")
        yield Story(guest, served, request.param, str(modules), code, forks)


def assembled(target: str) -> bytes:
    """Return a cubin of the kernels for a chip."""
    system, source = ".SYS" if target == "sm_75" else "", KERNELS
    for word, value in (("TARGET", target), ("STORE", f"STG.E{system}"), ("LOAD", f"LDG.E{system}")):
        source = source.replace(word, value)
    made = assembly.assemble(source.replace("ADDUP", "RED.E.ADD.STRONG.GPU"))
    return cubin_write.write(made.kernels, made.chip, cubin.Generation.CUDA_12)


@pytest.fixture(autouse=True)
def nothing_wrong(story: Story) -> Iterator[None]:
    yield
    assert story.served.violations() == []
    assert story.recorded("fault") == story.faults
    assert [text for text in story.recorded("unmodelled") if FAULT_INFO not in text] == []


def test_rung_09_what_lacks_is_named(story):
    """First the modules, then the nodes."""
    absent = story.ringup("up nvidia:0")
    assert absent.status == NotSupported.exit_code, absent.output
    assert "/dev/nvidiactl is not there: load NVIDIA's kernel driver" in absent.output
    story.guest.plug(story.served.sockets[0], 1)
    story.guest.check(f"modprobe drm && insmod {story.modules}/nvidia.ko")
    row = next(row for row in json.loads(story.ringup("list --json").output) if row["name"] == "nvidia:0")
    assert row["description"].startswith(f"{story.served.cards[0].chip.product}, at 0000:01:00.0, driven by NVIDIA's")
    assert "/dev/nvidiactl is not there: the driver is loaded without nodes" in row["skipped"]
    absent = story.ringup("up nvidia:0")
    assert absent.status == NotSupported.exit_code, absent.output
    assert "nvidia-modprobe" in absent.output
    story.guest.check("mknod -m 666 /dev/nvidiactl c 195 255 && mknod -m 666 /dev/nvidia0 c 195 0")
    row = next(row for row in json.loads(story.ringup("list --json").output) if row["name"] == "nvidia:0")
    assert row["skipped"] == ""
    # The adapter stays initialised while its node is open, so that clients need not wait for that.
    story.guest.check("(exec sleep 100000 3<>/dev/nvidia0 >/dev/null 2>&1) & echo $! >/run/holder")
    story.guest.dmesg()


def test_rung_09_what_the_card_is(story):
    told = story.does("facts")
    info, chip, board = told["info"], story.served.cards[0].chip, boards.find(story.chip)
    assert (info["chip"], info["target"], info["product"]) == (story.chip, chip.cores, chip.product)
    assert info["pci_id"] == f"10de:{chip.device_id:04x}"
    assert info["vram_bytes"] == chip.vram_bytes
    assert (info["compute_units"], info["warps_per_unit"]) == (board.shaders.sm_count, board.shaders.warps_per_sm)
    assert (info["wave_size"], info["l2_bytes"]) == (32, board.frame.l2_bytes)
    assert info["versions"]["nvidia"] == "535.261.03"
    assert info["copy_engines"] >= 2
    assert told["clock_ns"] >= 100_000_000
    assert "no error" in told["report"]
    # of NVIDIA's, only the nodes
    assert {path for path in told["maps"] if re.search("nvidia|cuda", path)} == {"/dev/nvidia0", "/dev/nvidiactl"}
    assert story.complaints() == []


def test_rung_09_memory_of_all_kinds(story):
    assert set(story.does("kinds").values()) == {True}
    assert story.does("unaligned") is True
    before, with_one, after = story.does(f"cycles {CYCLES}")
    assert before - with_one >= 3 << 20
    assert after == before
    assert story.complaints() == []


def test_rung_09_too_much_memory_is_refused(story):
    """The modules print of their own checks that failed, for an amount that no machine has."""
    told = story.does("too_much")
    complaints = story.complaints()
    assert [kind for kind, *_ in told["said"]] == ["OutOfMemory"] * 5, told["said"]
    assert told["works"] is True
    assert told["pieces"] >= 2
    assert not [line for line in complaints if "Xid" in line]
    before, after = told["free"]
    assert after == before


def test_rung_09_copies_and_fills(story):
    assert story.does("copies") == []
    assert story.complaints() == []


def test_rung_09_kernels(story):
    told = story.does("kernels")
    assert told["squares"] == [number * number for number in range(300)] + [7] * 20
    assert told["turn"] == list(reversed(range(256)))
    assert told["stack"] == [number + number * number for number in range(64)]
    assert told["count"] == [5 + 3 * 100 * 128]
    assert story.complaints() == []


def test_rung_09_streams_that_are_kept(story):
    told = story.does("kept")
    assert told["first"] == [7, 7, 7]
    assert told["then"] == [number * number for number in range(64)] + [7, 7]
    assert told["count"] == [3 * 3000]
    assert story.complaints() == []


def test_rung_09_rings_and_gpfifos_wrap(story):
    told = story.does("wraps")
    assert told["count"] == [3 * 3000]
    assert told["places"][1:] == [number + 5 for number in range(1, 1000)]
    assert story.complaints() == []


def test_rung_09_queues_wait_for_each_other(story):
    told = story.does("orders")
    assert (told["last"], told["copied"]) == ([100], True)
    assert story.complaints() == []


def test_rung_09_profiles(story):
    names = story.does("profile")
    assert any("squares" in name for name in names), names
    assert any("fill" in name for name in names), names


def test_rung_09_work_that_does_not_end(story):
    told = story.does("hangs")
    assert told["kernel"][0] == told["semaphore"][0] == "DeviceTimeout"
    assert "compute: " in " ".join(told["kernel"])
    assert told["its work"][0] == told["given up"][0] == "DeviceHung"
    assert told["it came"] == ["", "None"]
    assert (told["works"], told["others work"], told["works again"], told["resets"]) == (True, True, True, 2)
    # the modules stop a kernel that runs while its channel is taken off
    assert not [line for line in story.complaints() if "Xid" in line and " 109," not in line]


def test_rung_09_page_faults_beside_a_neighbour(story):
    """Another process computes meanwhile, and notices nothing."""
    story.guest.check("rm -f /run/guest/stop")
    story.begins("beside", f"works_on {story.code} /run/guest/beside.log /run/guest/stop")
    story.guest.wait_for("grep -q ROUND /run/guest/beside.log", RUN_S)
    told = story.does("faults")
    assert told["kernel"][0] == told["refused"][0] == told["copy"][0] == "DeviceFault", told
    assert "Xid 31" in told["kernel"][1]
    assert "(copy 0)" in told["copy"][1]
    assert (told["works"], told["works again"], told["faults"]) == (True, True, 2)
    complaints = [line for line in story.complaints() if "Xid" in line]
    assert len(complaints) == 2
    assert "faulted @ 0x70_00000000" in complaints[0]
    story.faults = story.recorded("fault")
    assert len(story.faults) == 2
    assert story.faults[0].endswith("write to 0x7000000000: PDE")
    story.guest.check("touch /run/guest/stop")
    story.guest.wait_for("! [ -d /proc/$(cat /run/guest/beside.pid) ]", RUN_S)
    rounds = int(story.guest.check("tail -n 1 /run/guest/beside.out"))
    assert rounds == int(story.guest.check("tail -n 1 /run/guest/beside.log").split()[1])


def test_rung_09_a_process_that_is_killed_leaves_nothing(story):
    story.guest.check("rm -f /run/guest/stop /run/guest/*.log")
    free = story.does("free_bytes")
    story.begins("killed", f"works_on {story.code} /run/guest/killed.log /run/guest/stop")
    story.guest.wait_for("grep -q 'ROUND 2' /run/guest/killed.log", RUN_S)
    story.guest.check("kill -9 $(cat /run/guest/killed.pid)")
    # one straight after, while the kernel may still clear up
    assert set(story.does("kinds").values()) == {True}
    story.guest.wait_for("! [ -d /proc/$(cat /run/guest/killed.pid) ]", RUN_S)
    assert story.does("free_bytes") == free
    assert not [line for line in story.complaints() if "Xid" in line and " 109," not in line]


def test_rung_09_opened_twice_and_closed_twice(story):
    assert story.does("twice") == [True, True, True, "nvidia:0 was closed"]
    assert story.complaints() == []


def test_rung_09_the_administrators_rules_and_no_watchdog(story):
    """Source of the flag: ctrl2080rc.h, NV2080_CTRL_RC_GET_WATCHDOG_INFO_FLAGS_DISABLED."""
    told = story.does("rules")
    assert told["closed"][0] == "PermissionNeeded", told
    assert "closed the card to compute" in told["closed"][1]
    assert told["alone"][0] == "CardBusy", told
    assert (told["open"], told["works"]) == (["", "True"], True)
    assert told["watchdog"] & 1
    assert story.complaints() == []


def test_rung_09_wrong_names(story):
    for name, why in (("nvidia:1", "it has nvidia:0 at 0000:01:00.0"), ("nvidia:x", "the number of its node follows")):
        refused = story.ringup(f"up {name}")
        assert "NoSuchCard" in refused.output
        assert why in refused.output


def test_rung_09_a_user_needs_the_nodes_only(story):
    for folder in Path(sys.executable).resolve().parents:
        story.guest.check(f"chmod o+x {folder}")
    code = "/run/guest/kernels.cubin"
    story.guest.check(f"cp {story.code} {code} && chmod 644 {code}")
    user = (
        f"cd {boot_files.CHECKOUT} && HOME=/tmp setpriv --reuid=nobody --regid=nogroup --clear-groups {sys.executable}"
    )
    command = f"{user} -m ringup.tools.command_line.cli list --json"
    for node in ("nvidiactl", "nvidia0"):
        story.guest.check(f"chmod 600 /dev/{node}")
        row = next(row for row in json.loads(story.guest.check(command, RUN_S)) if row["name"] == "nvidia:0")
        assert f"no permission for /dev/{node}" in row["skipped"]
        refused = story.guest.run(f"{user} {CLIENT} {NAME} works {code}", RUN_S)
        assert f"PermissionNeeded: opening nvidia:0: no permission for /dev/{node}" in refused.output
        story.guest.check(f"chmod 666 /dev/{node}")
    assert json.loads(story.guest.check(f"{user} {CLIENT} {NAME} works {code}", RUN_S).splitlines()[-1]) is True
    assert story.complaints() == []


def test_rung_09_the_modules_go(story):
    story.guest.check("kill $(cat /run/holder)")
    story.guest.wait_for("[ $(cat /sys/module/nvidia/refcnt) -eq 0 ]", LOAD_S)
    story.guest.dmesg()
    story.guest.check("rmmod nvidia", LOAD_S)
    assert story.complaints() == []
