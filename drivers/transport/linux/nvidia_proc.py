"""What NVIDIA's kernel driver shows in /proc/driver/nvidia: its release, and its cards by PCI address.

Source: NVIDIA open-gpu-kernel-modules, kernel-open/nvidia/nv-procfs.c.
"""

from __future__ import annotations

import re

from ringup.drivers.transport.linux.kernel import Kernel

DRIVER = "nvidia"
GPUS, VERSION = "/proc/driver/nvidia/gpus", "/proc/driver/nvidia/version"
CARD_NODE = "/dev/nvidia{}"
LINE = re.compile(r"^(Model|Device Minor):\s*(.+?)\s*$", re.MULTILINE)
RELEASE = re.compile(r"\b\d{3}\.\d{2,3}(?:\.\d{2})?\b")
# the name of the modules with public source in the file of the release
OPEN_MODULES = "Open Kernel Module"


def listed(kernel: Kernel) -> list[tuple[str, str]]:
    """Return the PCI address of each card of the driver, and what the driver's file about it says."""
    folder = kernel.path(GPUS)
    return [(name, kernel.text(folder / name / "information")) for name in kernel.names(folder)]


def facts(text: str) -> dict[str, str]:
    """Return what a card's file says: `Model`, `Device Minor`."""
    return dict(LINE.findall(text))


def minor(kernel: Kernel, address: str) -> int | None:
    """Return the number of a card's node; None for a card that the driver does not have, or has made no node for."""
    text = facts(kernel.text(kernel.path(GPUS, address, "information"))).get("Device Minor", "")
    return int(text) if text.isdecimal() and len(text) < 4 else None


def release(kernel: Kernel) -> str:
    """Return the release of the driver that is loaded; empty when none is, or when it is not told."""
    found = RELEASE.search(kernel.text(kernel.path(VERSION)))
    return found[0] if found else ""


def is_open(kernel: Kernel) -> bool:
    """Whether the loaded driver is NVIDIA's with public source."""
    return OPEN_MODULES in kernel.text(kernel.path(VERSION))
