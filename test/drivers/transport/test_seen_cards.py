"""What `ringup list` prints for cards that nothing drives, and for enclosures whose card is not up. The ids are from
pci.ids and amdgpu_drv.c.
"""

import pytest

import ringup
from ringup.drivers.amd.bus import ids
from ringup.drivers.transport.linux import pci
from ringup.drivers.usb4 import transport as usb
from ringup.errors import NotSupported
from ringup.silicon import card
from ringup.silicon.asm2464pd import Enclosure, VirtualUsbHost

TB = "sys/bus/thunderbolt/devices"


def test_cards_without_a_driver_are_listed_as_such(machine):
    machine.add("0000:03:00.0", ids=(0x10DE, 0x1B06), group="12")
    machine.add("0000:04:00.0", ids=(0x1002, 0x687F), group="13")
    machine.add("0000:05:00.0", ids=(0x1002, 0x744C), group="14", driver="vfio-pci")
    nvidia, vega, navi31 = pci.find(machine.kernel)
    assert nvidia.skipped.startswith("seen, not supported: device 0x1b06 has a chip from before Turing")
    assert vega.skipped.startswith("seen, not supported: there is no driver for Vega 10; ringup drives Radeon RX 7000")
    assert navi31.skipped == ""


@pytest.mark.parametrize(
    ("device", "family"),
    [
        (0x6798, "Tahiti (GCN 1)"), (0x67DF, "Polaris 10"), (0x6FDF, "Polaris 10"), (0x731F, "Navi 10"), (0x73DF, "Navi 22"),
        (0x743F, "Navi 24"), (0x740C, "Aldebaran (MI200)"), (0x164E, "Raphael, a processor with graphics"),
        (0x1586, "Strix Halo, a processor with graphics"), (0x9874, "Carrizo, a processor with graphics"),
        (0x74A0, "MI300A, a processor with graphics"),
        (0x74B5, "MI300X, a virtual function of a card that another driver has started"),
        (0x744C, ""), (0x7448, ""), (0x747E, ""), (0x7480, ""), (0x7550, ""), (0x7590, ""), (0x74A1, ""), (0x74A5, ""),
        (0xFFFF, ""),
    ],
)  # fmt: skip
def test_families_are_recognised_by_device_id(device, family):
    assert ids.family(device) == family


def test_a_card_that_is_known_not_to_be_driven_is_refused_before_it_is_touched(machine):
    machine.add(driver="vfio-pci", ids=(0x1002, 0x687F))
    with pytest.raises(NotSupported, match="there is no driver for Vega 10"):
        ringup.open("pci:03:00.0", transport={"kernel": machine.kernel})


def test_an_enclosure_without_its_card_is_listed_with_the_reason(machine):
    machine.write(f"{TB}/0-1/authorized", "0\n")
    machine.write(f"{TB}/0-1/device_name", "UT3G\n")
    (found,) = pci.find(machine.kernel)
    assert (found.name, found.description) == ("thunderbolt:0-1", "UT3G, a Thunderbolt or USB4 enclosure")
    assert found.skipped.startswith("not authorised: `boltctl authorize`")
    machine.write(f"{TB}/0-1/authorized", "1\n")
    (found,) = pci.find(machine.kernel)
    assert found.skipped.startswith("no PCIe card behind it: is a card in it")


@pytest.mark.parametrize("on_pci", [False, True])
def test_an_enclosure_that_may_be_in_usb4_mode_is_listed_with_the_way_to_its_card(machine, on_pci):
    enclosure = Enclosure(card("navi31", vram_bytes=256 << 20, enumerated=False), "open", usb4=True)
    host = VirtualUsbHost(enclosure.machine)
    host.plug(enclosure)
    if on_pci:
        machine.add("0000:04:00.0", ids=(0x1B21, 0x2463), code=0x060400, group="")
    (found,) = usb.find(host, machine.kernel)
    assert ("an enclosure is in USB4 mode (bridge 0000:04:00.0)" in found.skipped) == on_pci
    assert ("then its card is a pci: one" in found.skipped) == on_pci
