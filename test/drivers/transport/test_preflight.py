"""Pre-flight checks: which findings refuse a card and which only warn, each on a kernel of files."""

import os
from contextlib import closing

import pytest

from ringup.drivers.transport.clock import HostClock
from ringup.drivers.transport.linux import pci, preflight
from ringup.drivers.transport.linux.function import Function, find, gpus_of
from ringup.drivers.transport.linux.holders import survey
from ringup.drivers.transport.linux.lock import CardLock
from ringup.errors import CardBusy, NoSuchCard, NotSupported, PermissionNeeded

ADDRESS = "0000:03:00.0"


def findings(machine, path="vfio"):
    return {row.what: row for row in preflight.examine(Function(machine.kernel, ADDRESS), path)}


def opened(machine, **options):
    return pci.open(ADDRESS, kernel=machine.kernel, **options)


@pytest.fixture
def bound(machine):
    machine.card = machine.add(driver="vfio-pci")
    return machine


@pytest.fixture
def free(machine):
    machine.card = machine.add(group="")
    return machine


def test_a_companion_with_a_driver_of_the_kernel_s_is_noted(machine):
    machine.add(group="")
    machine.add("0000:03:00.1", ids=(0x1002, 0xAB30), code=0x040300, driver="snd_hda_intel", group="")
    (found,) = preflight.companions(Function(machine.kernel, "0000:03:00.0"))
    assert (found.state, found.seen) == ("note", "0000:03:00.1 belongs to snd_hda_intel")
    assert "`ringup bind 0000:03:00.0 --driver none` takes all functions of the slot" in found.remedy


MI300X = {"ids": (0x1002, 0x74A1), "code": 0x120000}


def test_a_member_of_a_hive_is_refused_while_amdgpu_drives_others(machine):
    machine.add(driver="vfio-pci", **MI300X)
    for bus in (4, 5):
        machine.add(f"0000:{bus:02x}:00.0", driver="amdgpu", group=str(bus), **MI300X)
    assert "linked cards" not in findings(machine)
    for bus in (4, 5):
        machine.write(machine.folder(f"0000:{bus:02x}:00.0") / "xgmi_hive_info/xgmi_hive_id", "1234\n")
    with pytest.raises(
        CardBusy,
        match=r"linked cards: .*links of 0000:04:00\.0, 0000:05:00\.0, linked with it .*, with amdgpu; .*`kfd:`",
    ):
        opened(machine)


def test_members_of_a_hive_that_nobody_drives_stand_in_no_way(machine):
    for bus in (3, 4):
        machine.add(f"0000:{bus:02x}:00.0", driver="vfio-pci", group=str(bus), **MI300X)
    machine.add("0000:06:00.0", ids=(0x1002, 0x744C), driver="amdgpu", group="6")
    machine.write(machine.folder("0000:06:00.0") / "xgmi_hive_info/xgmi_hive_id", "5\n")
    assert "linked cards" not in findings(machine)


def test_an_open_member_of_a_hive_says_who_uses_others(machine, monkeypatch):
    for bus in (3, 4, 5, 6):
        machine.add(f"0000:{bus:02x}:00.0", driver="vfio-pci", group=str(bus), **MI300X)
    with closing(opened(machine)) as first:
        assert first.linked_holders() == ()
        # amdgpu takes one later, another process of ringup a second
        machine.process(os.getpid(), "python job.py")
        machine.add("0000:07:00.0", driver="amdgpu", group="7", **MI300X)
        machine.write(machine.folder("0000:07:00.0") / "xgmi_hive_info/xgmi_hive_id", "1234\n")
        lock = CardLock(machine.kernel, "0000:05:00.0")
        lock.take(HostClock())
        assert first.linked_holders() == ("0000:07:00.0 with amdgpu",)
        mine = os.getpid()
        monkeypatch.setattr(os, "getpid", lambda: 1)
        second = f"0000:05:00.0 held by process {mine} (python job.py)"
        assert first.linked_holders() == ("0000:07:00.0 with amdgpu", second)
        lock.release()


def test_a_good_card_has_no_finding_against_it(bound):
    rows = findings(bound)
    assert {row.state for row in rows.values()} <= {"ok", "note"}
    assert rows["driver"].seen == "vfio-pci"
    assert rows["group"].seen == "12: 0000:03:00.0"
    assert rows["permissions"].seen == "/dev/vfio/vfio and /dev/vfio/12"


def framebuffer(machine):
    (machine.root / "sys/class/graphics/fb0").mkdir()
    (machine.root / "sys/class/graphics/fb0/device").symlink_to(machine.folder(ADDRESS))


def picture(machine):
    machine.write(machine.folder(ADDRESS) / "drm/card1/card1-DP-1/enabled", "enabled\n")


def firmware_framebuffer(machine):
    machine.write(machine.folder(ADDRESS) / "boot_vga", "1\n")
    machine.write("sys/class/graphics/fb0/name", "EFI VGA\n")


def text_console(machine):
    machine.write(machine.folder(ADDRESS) / "boot_vga", "1\n")
    machine.write("sys/class/vtconsole/vtcon0/name", "(S) VGA+\n")
    machine.write("sys/class/vtconsole/vtcon0/bind", "1\n")


@pytest.mark.parametrize(
    ("show", "seen"),
    [
        (framebuffer, "framebuffer fb0 is on this card"),
        (picture, "card1-DP-1 shows a picture"),
        (firmware_framebuffer, "the firmware's framebuffer fb0 draws on this card"),
        (text_console, "the text console vtcon0 is on this card"),
    ],
)
def test_a_card_with_the_console_is_left_alone(bound, show, seen):
    show(bound)
    with pytest.raises(CardBusy, match=f"opening pci:0000:03:00\\.0 over vfio: console: {seen}"):
        opened(bound)


def test_a_dark_connector_and_another_cards_framebuffer_are_no_console(bound):
    bound.write(bound.folder(ADDRESS) / "drm/card1/card1-DP-1/enabled", "disabled\n")
    bound.write("sys/class/graphics/fb0/name", "EFI VGA\n")
    assert findings(bound)["console"].state == "ok"
    bound.write(bound.folder(ADDRESS) / "boot_vga", "1\n")
    bound.write("sys/class/graphics/fb0/name", "astdrmfb\n")  # a server's management chip
    assert findings(bound)["console"].state == "note"


@pytest.mark.parametrize("node", ["/dev/vfio/12", "drm", "resource0", "mapped"])
def test_a_process_that_has_the_card_open_is_named(bound, node):
    bound.write(bound.folder(ADDRESS) / "drm/card1/dev", "226:1\n")
    targets = {"drm": str(bound.root / "dev/dri/card1"), "resource0": str(bound.folder(ADDRESS) / "resource0")}
    target = targets.get(node, f"{bound.root}{node}")
    if node == "mapped":
        target = str(bound.folder(ADDRESS) / "resource0_wc")
        bound.process(4242, "python3 train.py", mapped=(target,))
    else:
        bound.process(4242, "python3 train.py", opened=("/dev/null", target, "socket:[99]"))
    shown = target.removeprefix(str(bound.root))
    with pytest.raises(CardBusy, match=rf"holders: process 4242 \(python3 train.py\) has {shown} open; end the holder"):
        opened(bound)


def test_processes_that_hold_other_devices_are_ignored(bound):
    # The list of BARs gives no access to the card.
    table = str(bound.folder(ADDRESS) / "resource")
    bound.process(4242, "lspci", opened=(table, "/dev/vfio/13"))
    assert survey(bound.kernel, [Function(bound.kernel, ADDRESS)]).uses == ()


@pytest.mark.parametrize(
    ("driver", "path", "says"),
    [
        ("amdgpu", "auto", r"the kernel's amdgpu drives the card; .*ringup bind 0000:03:00\.0.*--driver none"),
        ("amdgpu", "vfio", r"the kernel's amdgpu drives the card"),
        ("", "vfio", r"none, VFIO needs vfio-pci"),
        ("vfio-pci", "sysfs", r"the kernel's vfio-pci drives the card"),
    ],
)
def test_the_driver_must_fit_the_path(machine, driver, path, says):
    machine.add(driver=driver)
    with pytest.raises(CardBusy, match=says):
        opened(machine, path=path)


def test_an_unknown_path_is_the_callers_mistake(bound):
    with pytest.raises(ValueError, match="auto, vfio or sysfs, not 'uio'"):
        opened(bound, path="uio")


@pytest.mark.parametrize("kind", ["DMA", "DMA-FQ", "blocked"])
def test_an_iommu_that_translates_keeps_sysfs_closed(machine, kind):
    machine.add()
    machine.write("sys/kernel/iommu_groups/12/type", f"{kind}\n")
    with pytest.raises(NotSupported, match=rf"IOMMU: group 12 translates \({kind}\)"):
        opened(machine)
    machine.write("sys/kernel/iommu_groups/12/type", "identity\n")
    opened(machine).close()


def test_a_locked_down_kernel_keeps_sysfs_closed_and_vfio_open(machine, free):
    free.write("sys/kernel/security/lockdown", "none [integrity] confidentiality\n")
    with pytest.raises(PermissionNeeded, match=r"locked down \(integrity\)"):
        opened(free)
    free.write("sys/kernel/security/lockdown", "[none] integrity confidentiality\n")
    assert findings(free, "sysfs")["lockdown"].state == "ok"


def test_vfio_works_under_lockdown(bound):
    bound.write("sys/kernel/security/lockdown", "none [integrity] confidentiality\n")
    device = opened(bound)
    assert not device.lost
    assert device.bars
    device.close()


def test_a_missing_node_says_which_module_makes_it(bound):
    (bound.root / "dev/vfio/12").unlink()
    with pytest.raises(PermissionNeeded, match="/dev/vfio/12 is not there; as root: modprobe vfio-pci"):
        opened(bound)


def test_a_card_without_addresses_says_which_setting_gives_it_some(bound):
    bound.write(bound.folder(ADDRESS) / "resource", "0x0000000000000000 0x00000000000fffff 0x000000000014220c\n")
    with pytest.raises(NotSupported, match=r"BARs: the kernel has given the card no addresses; .*Above 4G"):
        opened(bound)


def test_a_host_of_another_make_is_refused(bound, monkeypatch):
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    with pytest.raises(NotSupported, match="host: aarch64 orders memory too loosely"):
        opened(bound)


def test_notes_name_a_small_window_a_slow_link_and_sleep(bound):
    folder = bound.folder(ADDRESS)
    for name, text in {
        "current_link_speed": "2.5 GT/s PCIe",
        "max_link_speed": "16.0 GT/s PCIe",
        "current_link_width": "8",
        "max_link_width": "16",
        "power_state": "D3hot",
    }.items():
        bound.write(folder / name, text + "\n")
    rows = findings(bound)
    assert "resizable BAR" in rows["BARs"].remedy
    assert (rows["link"].state, rows["link"].seen) == ("note", "2.5 GT/s PCIe x8")
    assert "16.0 GT/s PCIe x16" in rows["link"].remedy
    assert (rows["power"].state, rows["power"].seen) == ("note", "D3hot")


@pytest.mark.parametrize("text", ["", "garbage\n", "0x1 0x2\n" * 3, "0xzz 0x1 0x200\n", "0x10 0x0 0x200\n"])
def test_a_malformed_table_of_bars_means_no_bars(bound, text):
    bound.write(bound.folder(ADDRESS) / "resource", text)
    assert Function(bound.kernel, ADDRESS).bars() == {}


def test_only_gpus_of_known_vendors_are_listed_with_their_refusals(machine):
    machine.add(driver="amdgpu")
    machine.add("0000:03:00.1", ids=(0x1002, 0xAB30), code=0x040300, driver="snd_hda_intel")
    machine.add(
        "0000:04:00.0", ids=(0x1002, 0x74A1), code=0x120000, group="13", driver="vfio-pci", parent="0000:00:02.0"
    )
    machine.add("0000:05:00.0", ids=(0x8086, 0x4680), code=0x030000, group="14", parent="0000:00:03.0")
    before = list(machine.log)
    rows = {row.name: row for row in pci.find(machine.kernel)}
    assert rows.keys() == {"pci:0000:03:00.0", "pci:0000:04:00.0"}
    assert "the kernel's amdgpu drives the card" in rows["pci:0000:03:00.0"].skipped
    assert rows["pci:0000:04:00.0"].skipped == ""
    assert rows["pci:0000:04:00.0"].description == "AMD 1002:74a1, vfio-pci, over vfio"
    assert machine.log == before  # nothing was touched


def test_malformed_names_of_cards_are_refused(bound):
    with pytest.raises(NoSuchCard, match=r"write it as 0000:03:00\.0"):
        find(bound.kernel, "3:0")
    with pytest.raises(NoSuchCard, match=r"no PCI function 0000:09:00\.0; GPUs seen: 0000:03:00\.0"):
        find(bound.kernel, "09:00.0")
    assert find(bound.kernel, "03:00.0").address == ADDRESS
    assert [gpu.address for gpu in gpus_of(bound.kernel)] == [ADDRESS]


def test_a_device_that_is_no_gpu_is_not_opened(machine):
    machine.add(ids=(0x1002, 0x43F6), code=0x010601, group="")
    with pytest.raises(
        NotSupported, match=r"card: it is a disk or its controller \(class 0x0106\), no GPU; `ringup list`"
    ):
        opened(machine)
