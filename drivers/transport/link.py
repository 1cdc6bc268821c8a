"""The PCIe link of a function, as its own end tells it."""

from __future__ import annotations

from typing import NamedTuple

from ringup.autogen.linux import pci
from ringup.drivers.transport.config_space import ask, find_capability
from ringup.drivers.transport.seam import Device
from ringup.errors import NotSupported


class Link(NamedTuple):
    """Speed and width of a link: generation 1 is 2.5 GT/s."""

    generation: int
    lanes: int


def link_of(device: Device) -> Link:
    """Return the link as it runs. Raises `NotSupported` for a function without a PCIe capability."""
    status = ask(device.config, _capability(device) + pci.PCI_EXP_LNKSTA, 2, f"reading the link of {device.name}")
    lanes = (status & pci.PCI_EXP_LNKSTA_NLW) >> pci.PCI_EXP_LNKSTA_NLW_SHIFT
    return Link(status & pci.PCI_EXP_LNKSTA_CLS, lanes)


def best_link_of(device: Device) -> Link:
    """Return the fastest link that the function can have. Raises as `link_of`."""
    able = ask(device.config, _capability(device) + pci.PCI_EXP_LNKCAP, 4, f"reading the link of {device.name}")
    # the width lies alike in both words
    lanes = (able & pci.PCI_EXP_LNKCAP_MLW) >> pci.PCI_EXP_LNKSTA_NLW_SHIFT
    return Link(able & pci.PCI_EXP_LNKCAP_SLS, lanes)


def _capability(device: Device) -> int:
    at = find_capability(device.config, pci.PCI_CAP_ID_EXP)
    if at is None:
        raise NotSupported(f"{device.name} has no PCI Express capability")
    return at
