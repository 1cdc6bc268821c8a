"""The amdgpu ladder: how far Linux's own amdgpu, unmodified and without any option, comes on our cards, and which
programs use it there. `make guest` runs it.

Each rung is a test. They build on each other, in one guest with a card that is plugged in while it runs. Each chip of
`CLIMBERS` has a guest of its own. A rung is judged by what the kernel reports to its user and by what the card has
recorded. No rung may leave a violation in the card.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import boot_files
import llama_rung
import order_beside_linux
import others
import pytest
import split_log
import vulkan_rung
import watchers
from climbers import MI300X, NAVI31, NAVI48, Climber
from machine import Guest
from order_beside import compare
from served import Served

from ringup.tools.common.paths import cache_folder

# Each chip climbs the ladder in a guest of its own.
CLIMBERS = (NAVI31, NAVI48)
# An accelerator climbs to the rungs of graphics, then those of ROCm's runtime, resets and partitions.
ALL = (*CLIMBERS, MI300X)
# Plugged in after the first card, in rung 12.
MORE_CARDS = ("navi31", "navi32", "navi33", "navi48", "navi44")
# TIMEOUT: about 12 s on an idle machine.
LOAD_S = 600
# TIMEOUT: processes end, and the kernel drops a dump.
CALM_S = 360
# After the driver reports its first success, it still tests its indirect buffers and lets the graphics core sleep.
IDLE_S = 2.5
DEVICE = "/sys/class/drm/card0/device"
DEBUG = "/sys/kernel/debug/dri/0"


@dataclass
class Story:
    """The guest, its cards, and the kernel's messages of the time when the driver was loaded."""

    guest: Guest
    served: Served
    climber: Climber
    log: str = ""

    def sees(self, pattern: str) -> re.Match[str]:
        """Find a message that the kernel must have printed since the last loading."""
        found = re.search(pattern, self.log)
        assert found, f"the kernel did not say {pattern!r}; it said:\n" + "\n".join(self.log.splitlines()[-40:])
        return found

    def load(self) -> None:
        """Load the driver, and collect the kernel's messages until card and driver are idle."""
        self.guest.dmesg()
        self.served.mark(split_log.LOADED)
        self.guest.check("modprobe amdgpu", LOAD_S)
        self.log = self.settled()
        time.sleep(IDLE_S)
        self.served.mark("amdgpu is idle")

    def settled(
        self, pattern: str = r"Initialized amdgpu|probe with driver amdgpu failed|Fatal error", timeout_s: float = 180
    ) -> str:
        """Return the kernel's messages from now on, up to `pattern` and what follows it at once."""
        said, end = "", time.monotonic() + timeout_s
        while not re.search(pattern, said) and time.monotonic() < end:
            said += self.guest.dmesg()
            time.sleep(0.2)
        time.sleep(1)
        return said + self.guest.dmesg()

    def read(self, path: str) -> str:
        """Return the contents of a file in the guest."""
        return self.guest.check(f"cat {path}").strip()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give each test its chips: all, or those of its mark `climbers`."""
    mark = metafunc.definition.get_closest_marker("climbers")
    chosen = mark.args if mark else CLIMBERS
    metafunc.parametrize("story", chosen, indirect=True, scope="module", ids=[climber.chip for climber in chosen])


@pytest.fixture(scope="module")
def story(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    climber = request.param
    folder = tmp_path_factory.mktemp(f"ladder-{climber.chip}")
    more = MORE_CARDS if climber is NAVI31 else ()
    small = () if climber.bar_mib > 256 else (0,)
    with (
        Served(folder, climber.chip, *more, small=small) as served,
        Guest(folder / "guest", memory_mib=3072, served=served) as guest,
    ):
        yield Story(guest, served, climber)


@pytest.fixture(scope="module")
def programs(story: Story, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Programs and shaders, compiled here and copied into the guest."""
    folder = tmp_path_factory.mktemp("programs")
    others.build_rocr(folder, story.climber.target)
    if story.climber is not MI300X:
        vulkan_rung.install(story.guest, vulkan_rung.build(folder))
    return folder


@pytest.fixture(autouse=True)
def no_violations(story: Story) -> Iterator[None]:
    yield
    for place in range(len(story.served.cards)):
        assert story.served.violations(place) == []


@pytest.mark.climbers(*ALL)
def test_rung_01_probe_and_vbios(story):
    story.guest.plug(story.served.sockets[0], 1)
    story.load()
    story.sees(rf"initializing kernel modesetting \(IP DISCOVERY 0x1002:0x{story.climber.device:04X}")
    story.sees(r"Fetched VBIOS from ROM BAR")
    number = re.search(rb"113-[A-Z0-9-]+", story.served.cards[0].image)
    assert story.sees(r"ATOM BIOS: (\S+)")[1].encode() == number[0]


@pytest.mark.climbers(*ALL)
def test_rung_02_discovery(story):
    assert re.findall(r"add ip block number \d+ <(\w+)>", story.log) == list(story.climber.blocks)


@pytest.mark.climbers(*ALL)
def test_rung_03_memory(story):
    vram_mib = story.served.cards[0].vram.size_bytes >> 20
    assert int(story.sees(r"VRAM: (\d+)M 0x0000008000000000")[1]) == vram_mib
    story.sees(rf"Detected VRAM RAM={vram_mib}M, BAR={story.climber.bar_mib}M")
    story.sees(rf"RAM width {story.climber.width}")
    story.sees(r"PCIE GART of 512M enabled")
    total = int(story.read(f"{DEVICE}/mem_info_vram_total"))
    # what the kernel keeps for itself
    assert 0 <= (vram_mib << 20) - total <= 64 << 20
    hub = story.served.call(lambda: story.served.cards[0].mmhub.cells[f"{story.climber.hub}VM_CONTEXT0_CNTL"])
    assert hub & 1


@pytest.mark.climbers(*ALL)
def test_rung_04_psp_takes_the_distributions_firmware(story):
    said = story.read(f"{DEBUG}/amdgpu_firmware_info")
    versions = {
        name: int(word, 16)
        for name, word in re.findall(r"^(\w[\w ]*?) feature version: .*firmware version: (0x\w+)", said, re.M)
    }
    folder = boot_files.set_up_firmware(cache_folder())
    for name, file in story.climber.firmware.items():
        image = next(folder.rglob(f"{file}.bin")).read_bytes()
        # common_firmware_header.ucode_version
        assert versions[name] == int.from_bytes(image[16:20], "little"), name
    psp = story.served.cards[0].psp
    assert story.served.call(lambda: psp.alive)
    assert "psp gfx command" not in story.log


@pytest.mark.climbers(*ALL)
def test_rung_05_smu(story):
    story.sees(r"SMU is initialized successfully!")
    power = story.served.cards[0].smu.power
    assert story.served.call(lambda: power.features) >> story.climber.gfxclk_feature & 1
    assert "enabled" in story.guest.check(f"grep DPM_UCLK {DEVICE}/pp_features")


@pytest.mark.climbers(*ALL)
def test_rung_06_interrupts(story):
    line = story.guest.check("grep amdgpu /proc/interrupts")
    assert "PCI-MSI" in line
    came = sum(int(word) for word in line.split()[1:3])
    assert 0 < came <= story.served.call(lambda: story.served.cards[0].interrupts.count)
    assert "Fence fallback timer expired" not in story.log


@pytest.mark.climbers(*ALL)
def test_rung_07_firmware_queues(story):
    assert not re.search(r"kiq .*failed|MES failed|rlc autoload.*timeout", story.log)
    queues = story.served.cards[0].gc.cp.queues
    connected = story.served.call(lambda: {slot for slot, queue in queues.items() if queue.connected})
    assert story.climber.firmware_queues <= connected


@pytest.mark.climbers(*ALL)
def test_rung_08_rings(story):
    story.sees(story.climber.shape)
    assert set(re.findall(r"ring (\S+) uses VM inv eng", story.log)) == set(story.climber.rings)
    assert "ring test failed" not in story.log


@pytest.mark.climbers(*ALL)
def test_rung_09_indirect_buffers(story):
    for kind in story.climber.kinds:
        story.sees(rf"ring {kind}_\S+ ib test pass")
    story.sees(r"Initialized amdgpu \S+ for")
    assert "ib ring tests passed" in story.guest.check(f"cat {DEBUG}/amdgpu_test_ib")


@pytest.mark.climbers(*ALL)
def test_rung_10_kfd(story):
    story.sees(rf"kfd kfd: amdgpu: added device 1002:{story.climber.device:04x}")
    node = dict(line.split() for line in story.read("/sys/class/kfd/kfd/topology/nodes/1/properties").splitlines())
    core = story.served.cards[0].chip.gc.core
    expected = {
        "simd_count": 2 * core.compute_units, "device_id": story.climber.device, "vendor_id": 0x1002, "wave_front_size": story.climber.wave,
        "cu_per_simd_array": 8, "lds_size_in_kb": 64, "num_sdma_engines": 2, **story.climber.node,
    }  # fmt: skip
    assert {name: int(node[name]) for name in expected} == expected
    assert story.guest.check("ls /dev/kfd /dev/dri/renderD128")


BY_TIMER = {"SMU: GFXOFF allowed"}  # amdgpu_gfx.c, amdgpu_gfx_off_ctrl: a delayed work


@pytest.mark.climbers(NAVI31)
def test_the_kernel_still_does_what_the_repositorys_records_show(story, tmp_path):
    """`test_order_beside_linux.py` compares our driver with a record of this kernel. This test checks that the kernel
    still does the same, step by step and value by value.
    """
    split_log.split(story.served.log_path, tmp_path, "made anew")
    found = compare.differences(
        order_beside_linux.tables(), order_beside_linux.kernel(tmp_path), order_beside_linux.kernel()
    )
    # "neither" marks steps that only our driver takes. The kernel's timer-driven steps come earlier or later among the
    # rest, depending on the computer's speed.
    assert [one for one in found if one.kind != "neither" and not set(one.names) & BY_TIMER] == []


SENSORS = {
    "busy": f"{DEVICE}/gpu_busy_percent",
    "sclk": f"{DEVICE}/hwmon/hwmon*/freq1_input",
    "mclk": f"{DEVICE}/hwmon/hwmon*/freq2_input",
    "power": f"{DEVICE}/hwmon/hwmon*/power1_average",
    "junction": f"{DEVICE}/hwmon/hwmon*/temp2_input",
    "vddgfx": f"{DEVICE}/hwmon/hwmon*/in0_input",
    "vram": f"{DEVICE}/mem_info_vram_used",
}


def sense(story: Story) -> dict[str, int]:
    said = story.guest.check(f"for f in {' '.join(SENSORS.values())}; do cat $f; done").split()
    return dict(zip(SENSORS, map(int, said), strict=True))


def spin(turns: int, rounds: int = 1, buffer_bytes: int = 4096, wait_s: int = 50) -> str:
    """Return the command that keeps a compute unit busy for that many turns, 8 ns each of the card's time."""
    return (
        f"cd {vulkan_rung.FOLDER} && ./dispatch spin.spv zero={buffer_bytes} "
        f"push=u32:{turns},u32:{rounds} queue=compute wait={wait_s}"
    )


def test_rung_11_sensors_follow_the_load(story, programs):
    time.sleep(1)
    idle = sense(story)
    story.guest.trixie(f"({spin(10_000_000, 140, 256 << 20)}) >/run/guest/spin.log 2>&1 &")
    loaded = dict(idle)
    end = time.monotonic() + 60
    while time.monotonic() < end and loaded["busy"] < 90:
        loaded = {name: max(value, loaded[name]) for name, value in sense(story).items()}
        time.sleep(0.3)
    assert loaded["busy"] >= 90, story.guest.check("cat /run/guest/spin.log")
    assert loaded["sclk"] > 2_000_000_000 > idle["sclk"]
    assert loaded["mclk"] > idle["mclk"]
    assert loaded["power"] > 3 * idle["power"]
    assert loaded["junction"] >= idle["junction"] + 5000  # thousandths of a degree
    assert loaded["vddgfx"] > idle["vddgfx"] + 100
    assert loaded["vram"] - idle["vram"] >= 256 << 20
    assert watchers.nvtop(story.guest, story.climber.product) == []
    assert "GPU Load: 0 %" not in story.read(f"{DEBUG}/amdgpu_pm_info")
    story.guest.wait_for("! pgrep -x dispatch", CALM_S)
    time.sleep(2)
    calm = sense(story)
    assert calm["busy"] < 20
    assert calm["power"] < loaded["power"] / 2
    assert calm["vram"] < loaded["vram"] - (255 << 20)


def test_rung_13_vulkan(story, programs):
    assert vulkan_rung.run_all(story.guest, programs, story.climber.not_judged) == []


@pytest.mark.long
@pytest.mark.climbers(NAVI31)
def test_rung_16_a_language_model(story):
    """This runs before the driver is loaded with a time-out of 3 seconds: the first job waits until its programs are
    translated.
    """
    assert llama_rung.run(story.guest, llama_rung.set_up(), story.climber.product) == []


def test_rung_13_page_fault(story, programs):
    assert vulkan_rung.page_fault(story.guest) == []
    store, *others_seen = story.served.violations()
    assert f"write to {vulkan_rung.WILD:#x}: VALID fault" in store
    # QUIRK: the kernel acknowledges ring 1 of the interrupt handler by a doorbell that its nbio_v4_3.c routes nowhere
    assert all("doorbell 0x2f2 " in event for event in others_seen)


def test_drivers_take_turns_without_a_restart(story, tmp_path):
    """ringup, tinygrad's own driver and ringup again run between two loadings of amdgpu. Each starts on what the one
    before left.

    QUIRK: this runs before rung 14, whose bad packet makes the kernel leak a reference to its process
    (kfd_dqm_suspend_bad_queue_mes), and so to the module.
    """
    # Dumps of the failed jobs hold the module.
    dumps = "/sys/class/devcoredump/devcd*/data"
    story.guest.check(f"for dump in {dumps}; do echo 1 > $dump; done 2>/dev/null; true")
    story.guest.wait_for(f"! ls {dumps} 2>/dev/null", CALM_S)
    holders = story.guest.run(
        "ls -l /proc/[0-9]*/fd 2>/dev/null | grep -e /dev/kfd -e /dev/dri; lsmod | grep amdgpu"
    ).output
    assert not story.guest.run("modprobe -r amdgpu", 60).status, holders
    assert "ttm finalized" in story.guest.dmesg()
    assert ringup_up(story) == "foreign"
    assert others.tinygrad_by_itself(story.guest, others.peer_python(), tmp_path) == []
    assert ringup_up(story) == "foreign"
    story.guest.check("modprobe amdgpu lockup_timeout=3000", LOAD_S)
    story.log = story.settled()
    story.sees(r"Initialized amdgpu")
    story.sees(r"ring gfx_\S+ ib test pass")


def ringup_up(story: Story) -> str:
    """Start the card with our own driver over sysfs, and return the state in which it found the card."""
    address = story.guest.address(1)
    command = f"cd {boot_files.CHECKOUT} && HOME=/root {sys.executable} -m ringup.tools.command_line.cli up pci:{address} --json"
    said = json.loads(story.guest.check(command, 200).splitlines()[-1])
    assert said["moved_bytes"] == 1 << 20
    return str(said["card"]["found"])


def test_rung_12_a_hung_job_is_recovered_by_the_drivers_own_time_out(story, programs):
    story.guest.dmesg()
    hung = story.guest.trixie(spin(0xFFFF_FFFF, 0xFFFF_FFFF, wait_s=40), 90)
    assert hung.status == 4, hung.output  # VK_ERROR_DEVICE_LOST
    # Waves that are not gone within 10 ms, as on a busy computer, make amdgpu reset the ring. Linux 6.12 says nothing
    # when that succeeds (amdgpu_job.c, amdgpu_job_timedout); if it does not, the whole card is reset.
    said = story.settled(r"soft recovered|Process information")
    if "GPU reset begin" in said:
        said += story.settled(r"reset.* (succeeded|failed)|(succeeded|failed).*reset")
        assert re.search(r"reset.* succeeded|succeeded.*reset", said), said
    assert re.search(r"ring comp_\S+ timeout", said), said
    assert not re.search(r"reset.* failed|Recovery Failed", said), said
    done = story.guest.trixie(spin(1000), 90)
    assert done.status == 0, done.output


@pytest.mark.long
def test_rung_14_tinygrad_over_kfd(story):
    """Python and compilers are slow on an emulated processor, so each chip takes its part of the work."""
    part = CLIMBERS.index(story.climber), len(CLIMBERS)
    assert others.tinygrad_over_kfd(story.guest, others.peer_python(), others.peer_tests(), part) == []


@pytest.mark.climbers(NAVI31, MI300X)
def test_rung_14_rocm_runtime(story, programs):
    """QUIRK: the runtime of Debian 13 does not know RDNA4."""
    card, climber = story.served.cards[0], story.climber
    units = card.chip.cores * card.chip.gc.core.compute_units
    before = story.served.call(lambda: [core.busy_ns for core in card.cores])
    assert others.rocr(story.guest, programs, climber.target, units, climber.wave) == []
    # The groups of a grid run on all cores.
    after = story.served.call(lambda: [core.busy_ns for core in card.cores])
    assert all(late > early for early, late in zip(before, after, strict=True))
    # The program wants the error of one bad packet back, with and without interrupts.
    seen = story.served.violations()
    assert len(seen) == 2
    assert all("AGENT_DISPATCH is no packet for a GPU" in event for event in seen)


@pytest.mark.climbers(*ALL)
def test_rung_12_gpu_reset(story):
    story.guest.dmesg()
    story.guest.check(f"cat {DEBUG}/amdgpu_gpu_recover", 60)
    story.log = story.settled(r"GPU reset\(\d+\) (succeeded|failed)")
    story.sees(r"MODE1 reset")
    story.sees(r"GPU reset\(\d+\) succeeded!")
    assert "ib ring tests passed" in story.guest.check(f"cat {DEBUG}/amdgpu_test_ib")


@pytest.mark.climbers(MI300X)
def test_rung_12_partitions(story, programs):
    """The kernel splits the cores into eight parts, each a node, and a program runs on one of them."""
    story.guest.check(f"echo CPX > {DEVICE}/current_compute_partition", 60)
    assert story.read(f"{DEVICE}/current_compute_partition") == "CPX"
    found = story.guest.check("grep -h simd_count /sys/class/kfd/kfd/topology/nodes/*/properties").split()[1::2]
    assert found == ["0", *["152"] * 8]
    assert others.rocr_vector(story.guest, programs) == []
    # Its bad packet.
    (seen,) = story.served.violations()
    assert "AGENT_DISPATCH is no packet for a GPU" in seen


@pytest.mark.climbers(NAVI31)
@pytest.mark.parametrize(
    ("place", "slot", "device"),
    [(1, 2, "744C"), (2, 3, "747E"), (3, 4, "7480"), (4, 2, "7550"), (5, 3, "7590")],
    ids=["second navi31", "navi32", "navi33", "navi48", "navi44"],
)
def test_rung_12_more_cards(story, place, slot, device):
    """The cards of RDNA4 take the slots of two that are pulled out."""
    if story.guest.address(slot):
        story.guest.unplug(slot)
    story.guest.dmesg()
    story.served.mark(f"card {place} is plugged in")
    story.guest.plug(story.served.sockets[place], slot)
    story.log = story.settled()
    story.sees(rf"IP DISCOVERY 0x1002:0x{device}")
    story.sees(r"Initialized amdgpu")
    # the first free minor number, which is that of the card that was pulled out
    assert "ib ring tests passed" in story.guest.check(f"cat /sys/kernel/debug/dri/{slot - 1}/amdgpu_test_ib")


def test_rung_12_sleep(story):
    """This is the last test: the host's root does not survive it."""
    for slot in (4, 3, 2):
        if story.guest.address(slot):
            story.guest.unplug(slot)
    story.guest.dmesg()
    story.served.mark("sleep")
    story.guest.trixie("(sleep 1; echo mem > /sys/power/state) >/dev/null 2>&1 &")
    end = time.monotonic() + 60
    while story.guest.qmp("query-status")["status"] != "suspended":
        assert time.monotonic() < end, "it did not fall asleep"
        time.sleep(0.2)
    story.guest.wake()
    story.log = story.settled(r"PM: suspend exit")
    story.sees(r"ACPI: PM: Preparing to enter system sleep state S3")
    story.sees(r"PSP is resuming")
    story.sees(r"SMU is resumed successfully!")
    story.sees(r"ring gfx_\S+ ib test pass")
    assert "ib ring tests passed" in story.guest.trixie(f"cat {DEBUG}/amdgpu_test_ib").output
