"""What a path reports about a card's way to host memory: the IOMMU, and bridges that forward no request."""

import pytest

from ringup.autogen.linux import pci as regs
from ringup.drivers.transport.linux import pci
from ringup.drivers.transport.seam import TellsDma

ADDRESS, BRIDGE = "0000:03:00.0", "0000:00:01.0"


def set_command(machine, address, command):
    path = machine.folder(address) / "config"
    header = bytearray(path.read_bytes())
    header[regs.PCI_COMMAND : regs.PCI_COMMAND + 2] = command.to_bytes(2, "little")
    path.write_bytes(header)


@pytest.mark.parametrize(
    ("driver", "group", "iommu"),
    [("", "", "no IOMMU is seen"), ("vfio-pci", "12", "the IOMMU maps its addresses for group 12 (vfio (")],
)
def test_the_way_to_memory_is_described(machine, driver, group, iommu):
    machine.add(driver=driver, group=group)
    set_command(machine, BRIDGE, regs.PCI_COMMAND_MASTER | regs.PCI_COMMAND_MEMORY)
    device = pci.open(ADDRESS, kernel=machine.kernel)
    assert isinstance(device, TellsDma)
    assert device.dma_state().startswith(iommu.partition(" (")[0])
    assert "mastering" not in device.dma_state()
    set_command(machine, BRIDGE, regs.PCI_COMMAND_MEMORY)
    assert f"no request passes {BRIDGE}, whose bus mastering is off" in device.dma_state()
    device.close()
