"""The doctor on machines with enclosures: firmware, speed, power, holders, permission and modes. Each finding says what
to do.
"""

import pytest

from ringup.autogen.generate.manifest import load
from ringup.autogen.generate.sources import Sources
from ringup.tools.command_line import cli
from ringup.tools.host import doctor
from ringup.tools.host.finding import FINE, OPTIONAL, WRONG

USB = "sys/bus/usb/devices"


def bridge(
    name, vid="add1", pid="0001", product="custom v0.1", speed="10000", serial="cafe0001", control="on", number=4
):
    """The files of one enclosure as Linux lists them. Source: Linux ABI sysfs-bus-usb."""
    values = {
        "idVendor": vid,
        "idProduct": pid,
        "product": product,
        "speed": speed,
        "serial": serial,
        "power/control": control,
        "power/runtime_status": "active",
        "busnum": name.partition("-")[0],
        "devnum": str(number),
    }
    node = f"dev/bus/usb/{int(name.partition('-')[0]):03}/{number:03}"
    return {f"{USB}/{name}/{key}": value for key, value in values.items()} | {node: ""}


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """`machine(files, links)` makes a root folder and returns its findings by name. It makes links after the files."""
    monkeypatch.setattr("platform.system", lambda: "Linux")

    def examine(files, links=(), **options):
        for path, text in ({f"{USB}/usb2/speed": "10000"} | files).items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(f"{text}\n" if text else "")
        for path, target in dict(links).items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).symlink_to(target)
        sources = Sources(load(), tmp_path / "cache", {})
        return {line.what: line for line in doctor.examine(sources, tmp_path, **options) if line.group == "cards"}

    return examine


@pytest.mark.parametrize(
    ("vid", "pid", "product", "maker", "state"),
    [
        ("add1", "0001", "custom v0.1", "open firmware", FINE),
        ("3801", "0001", "6fd5e0b1", "open firmware", FINE),
        ("add1", "0001", "USB 3.2 PCIe TinyEnclosure", "patched stock firmware", FINE),
        ("174c", "2464", "ASM2464", "ASMedia", FINE),
        ("1e91", "de79", "OWC Express 1M2", "OWC", FINE),
        ("174c", "2463", "AS2462", "mask ROM", WRONG),
        ("add1", "b007", "bootstub", "open firmware's loader", WRONG),
    ],
)
def test_firmware_is_told_by_ids_and_product(machine, vid, pid, product, maker, state):
    line = machine(bridge("2-1", vid, pid, product))["usb:2-1"]
    assert (line.state, f"{product!r}: {maker}" in line.seen) == (state, True)
    assert bool(line.todo) >= (state == WRONG)


def test_a_bridge_that_is_well_has_nothing_to_do_but_what_its_firmware_lacks(machine):
    found = machine(bridge("2-1"))
    assert {line.what: line.state for line in found.values()} == dict.fromkeys(
        ("usb:2-1", "usb:2-1 speed", "usb:2-1 permission"), FINE
    )


def test_usb2_names_the_hub_in_front_where_there_is_one(machine):
    files = bridge("2-1.3", speed="480") | {
        f"{USB}/2-1/{key}": value for key, value in (("speed", "480"), ("idVendor", "1d6b"), ("idProduct", "2"))
    }
    line = machine(files)["usb:2-1.3 speed"]
    assert (line.state, "hub 2-1" in line.todo) == (WRONG, True)
    alone = machine(bridge("3-1", speed="480"))["usb:3-1 speed"]
    assert "plug it in again" in alone.todo


def test_a_host_without_usb3_is_reported(machine):
    assert machine({f"{USB}/usb2/speed": "480"})["USB3 ports"].state == OPTIONAL


@pytest.mark.parametrize(("status", "state"), [("active", OPTIONAL), ("suspended", WRONG)])
def test_autosuspend_is_reported_with_the_file_that_switches_it_off(machine, status, state):
    files = bridge("2-1", control="auto") | {f"{USB}/2-1/power/runtime_status": status}
    line = machine(files)["usb:2-1 autosuspend"]
    assert (line.state, "/sys/bus/usb/devices/2-1/power/control" in line.todo) == (state, True)


@pytest.mark.parametrize("driver", ["uas", "usb-storage"])
def test_the_kernels_storage_driver_is_named(machine, driver):
    links = {f"{USB}/2-1/2-1:1.0/driver": f"/sys/bus/usb/drivers/{driver}"}
    line = machine(bridge("2-1", "174c", "2464", "ASM2464"), links)["usb:2-1 driver"]
    assert (line.state, f"kernel's {driver} holds it" in line.seen) == (FINE, True)


def test_an_enclosure_with_a_drive_is_left_alone(machine):
    block = f"{USB}/2-1/2-1:1.0/host0/target0:0:0/0:0:0:0/block/sda/size"
    line = machine(bridge("2-1", "174c", "2464", "ASM2464") | {block: "2000409264"})["usb:2-1 drive"]
    assert (line.state, line.seen) == (OPTIONAL, "sda is in it")
    assert "do not use ringup on this one" in line.todo


def test_a_node_without_permission_names_the_set_up(machine, monkeypatch):
    # Root may open every file.
    monkeypatch.setattr("ringup.tools.host.doctor_usb.os.access", lambda path, mode: False)
    line = machine(bridge("2-1"))["usb:2-1 permission"]
    assert (line.state, line.seen) == (WRONG, "/dev/bus/usb/002/004 is closed to this user")
    assert "sudo ringup setup --apply" in line.todo


def test_two_enclosures_alike_are_told_apart_by_port(machine):
    found = machine(bridge("2-1") | bridge("2-2", number=5))
    assert "usb:2-1, usb:2-2 have the same serial number cafe0001" in found["equal enclosures"].seen
    assert "equal enclosures" not in machine(bridge("2-2", serial="cafe0002", number=5))


def test_usb4_mode_sends_to_the_pci_bus(machine):
    pci = {
        f"sys/bus/pci/devices/0000:05:00.0/{key}": value for key, value in (("vendor", "0x1b21"), ("device", "0x2463"))
    }
    line = machine(pci)["bridge 0000:05:00.0"]
    assert (line.state, "USB4 mode" in line.seen, "pci:" in line.todo) == (FINE, True, True)


def test_a_thunderbolt_device_that_nobody_authorised_is_wrong(machine):
    files = {
        f"sys/bus/thunderbolt/devices/0-1/{key}": value for key, value in (("authorized", "0"), ("device_name", "UT3G"))
    }
    line = machine(files)["thunderbolt 0-1"]
    assert (line.state, line.seen, "boltctl authorize" in line.todo) == (WRONG, "UT3G is not authorised", True)


def test_nothing_at_all_says_what_to_try(machine):
    todo = machine({})["GPUs and bridges"].todo
    assert all(text in todo for text in ("supply", "only charge", "another port"))


def test_other_devices_and_broken_files_are_no_bridges(machine):
    files = bridge("2-1", "046d", "c077", "Mouse") | bridge("2-2", "zz", "1", "?") | {f"{USB}/2-3/idVendor": "add1"}
    assert "GPUs and bridges" in machine(files)


class Enclosures:
    """A pyusb backend that lists devices. Systems other than Linux have it in place of sysfs."""

    def __init__(self, *places):
        self.rows = places

    def enumerate_devices(self):
        return self.rows

    def get_device_descriptor(self, device):
        return device


class Descriptor:
    def __init__(self, vid, pid, speed):
        self.idVendor, self.idProduct, self.bcdDevice, self.speed = vid, pid, 1, speed
        self.bus, self.port_numbers = 1, (2,)


def test_macos_lists_enclosures_and_names_the_shim_that_is_missing(machine, monkeypatch):
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    found = machine({}, backend=Enclosures(Descriptor(0xADD1, 1, 3), Descriptor(0x046D, 1, 3)))  # 3: LIBUSB_SPEED_HIGH
    assert found["usb:1-2"].state == FINE
    assert "distinguished when it is opened" in found["usb:1-2"].seen
    assert found["usb:1-2 speed"].state == WRONG
    assert "signed shim" in found["PCI cards"].seen


def test_macos_without_libusb_says_how_to_get_it(machine, monkeypatch):
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    monkeypatch.setattr("usb.backend.libusb1.get_backend", lambda: None)
    assert "brew install libusb" in machine({})["USB"].todo


def test_macos_needs_no_linux_node(monkeypatch, capsys):
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    monkeypatch.setattr("usb.backend.libusb1.get_backend", lambda: None)
    assert cli.main(["doctor"]) in (0, 1)
    text = capsys.readouterr().out
    assert "/dev/" not in text


def test_a_probe_of_an_enclosure_that_went_away_says_so(machine):
    line = machine(bridge("2-1"), probe=True, backend=Enclosures())["usb:2-1 card"]
    assert (line.state, line.todo) == (WRONG, "plug it in again")


# --- Thunderbolt, USB4, billboards: Linux ABI sysfs-bus-thunderbolt; the Billboard class's bDeviceClass is 0x11
# ------------
TB, PCI = "sys/bus/thunderbolt/devices", "sys/bus/pci/devices"


def router(name, authorized="1"):
    values = {"authorized": authorized, "vendor_name": "ADT", "device_name": "UT3G"}
    return {f"{TB}/{name}/{key}": text for key, text in values.items()}


def gpu(address, removable):
    values = {"vendor": "0x1002", "device": "0x744c", "class": "0x030000", "removable": removable}
    return {f"{PCI}/{address}/{key}": text for key, text in values.items() if text}


def test_an_enclosure_without_a_card_on_pci_says_so(machine):
    found = machine(router("0-1") | {f"{TB}/0-0/nvm_version": "28.0", f"{TB}/0-0/device_name": "Z590"})
    line = found["thunderbolt 0-1"]
    assert (line.state, line.seen) == (WRONG, "ADT UT3G: enclosure seen, no PCIe behind it")
    assert "is a card in it, seated well, and its supply on?" in line.todo
    assert found["thunderbolt host 0-0"].seen == "Z590, firmware (NVM) 28.0"
    assert "newer firmware of this controller" in found["thunderbolt host 0-0"].todo
    assert found["GPUs and bridges"].todo == "an enclosure is visible without its card: see its line"


@pytest.mark.parametrize(("removable", "state"), [("removable", FINE), ("fixed", WRONG), ("", FINE)])
def test_a_card_that_can_be_unplugged_is_the_enclosure_s(machine, removable, state):
    assert machine(router("0-1") | gpu("0000:3b:00.0", removable))["thunderbolt 0-1"].state == state


@pytest.mark.parametrize(
    ("level", "closed"), [("nopcie", True), ("dponly", True), ("usbonly", True), ("user", False), ("none", False)]
)
def test_a_security_level_without_pcie_is_named(machine, level, closed):
    files = (
        router("0-1")
        | gpu("0000:3b:00.0", "removable")
        | {f"{TB}/domain0/security": level, f"{TB}/0-0/nvm_version": "51.0"}
    )
    found = machine(files)
    assert (found["thunderbolt 0-1"].state == WRONG) == closed
    assert (f"security level {level} lets no PCIe through" in found["thunderbolt 0-1"].todo) == closed
    assert found["thunderbolt host 0-0"].seen.endswith(f"firmware (NVM) 51.0, security level {level}")


def test_what_is_no_router_is_none(machine):
    files = {f"{TB}/{name}/authorized": "0" for name in ("0-1.1", "0-0:3.1", "domain0", "usb4_port1")}
    assert not [what for what in machine(files) if what.startswith("thunderbolt")]


@pytest.mark.parametrize("place", ["2-1/bDeviceClass", "2-1:1.0/bInterfaceClass"])
def test_a_billboard_is_an_enclosure_whose_mode_failed(machine, place):
    values = {"idVendor": "2109", "idProduct": "8884", "product": "USB Billboard Device", "bDeviceClass": "00"}
    files = {f"{USB}/2-1/{key}": text for key, text in values.items()} | {f"{USB}/{place}": "11"}
    line = machine(files)["billboard 2-1"]
    assert line.seen == "USB billboard 2109:8884 USB Billboard Device: enclosure or dock seen, no PCIe behind it"
    assert "mode did not come up" in line.todo


RULE = {"etc/udev/rules.d/70-ringup.rules": 'ATTR{idVendor}=="add1", ATTR{idProduct}=="0001", MODE="0660"'}


def test_a_rule_that_is_there_and_was_not_applied_is_reported_as_such(machine, monkeypatch):
    monkeypatch.setattr("ringup.tools.host.doctor_usb.os.access", lambda path, mode: False)
    found = machine(bridge("2-1", control="auto") | bridge("2-2", "174c", "2464", "ASM2464", number=5) | RULE)
    assert (
        found["usb:2-1 permission"].todo
        == "the rule is installed and was not applied: pull the cable and plug it in again"
    )
    assert "the rule is installed and was not applied" in found["usb:2-1 autosuspend"].todo
    # The rule has no line for this enclosure.
    assert "`sudo ringup setup --apply` writes the rule" in found["usb:2-2 permission"].todo
