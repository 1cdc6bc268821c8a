"""Text of the files that give users access to cards on Linux: a udev rule, module options, a limit. `setup_host` writes
them.

Source: udev(7); Linux usb-storage quirks, Documentation/admin-guide/kernel-parameters.txt; vfio.rst; limits.conf(5).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ringup.drivers.usb4.identify import ROWS, Firmware

USB, VFIO = "usb", "vfio"
USB_GROUP, GPU_GROUP = "plugdev", "render"  # Debian's groups for devices that are plugged in, and for computing on GPUs
HEAD = "# Written by `ringup setup`; `ringup setup --undo` takes it back.\n"


@dataclass(frozen=True, slots=True)
class File:
    """A file with the text that it should have. `path` is relative to the root; `why` explains it to the user."""

    path: str
    text: str
    why: str


def files(parts: Collection[str], groups: Collection[str]) -> list[File]:
    """Return the files for `parts` (of `usb`, `vfio`) on a system that has `groups`."""
    found = [
        File("etc/udev/rules.d/70-ringup.rules", _rules(parts, groups), "who may open enclosures and VFIO's nodes")
    ]
    if USB in parts:
        found.append(
            File(
                "etc/modprobe.d/ringup.conf",
                _modules(),
                "the kernel's storage driver stays away from bridges that hold a GPU",
            )
        )
    if VFIO in parts:
        found.append(File("etc/modules-load.d/ringup.conf", f"{HEAD}vfio-pci\n", "VFIO is loaded after a boot"))
        if GPU_GROUP in groups:
            limit = (
                f"{HEAD}# Memory that a card reaches is locked; pinned buffers count "
                f"too.\n@{GPU_GROUP} - memlock unlimited\n"
            )
            found.append(
                File("etc/security/limits.d/70-ringup.conf", limit, "memory that a card reaches may be locked")
            )
    return found


def wanted_groups(parts: Collection[str], groups: Collection[str]) -> list[str]:
    """Return the groups of the system that a user of cards should be in."""
    wanted = [name for part, name in ((USB, USB_GROUP), (VFIO, GPU_GROUP)) if part in parts]
    return [name for name in wanted if name in groups]


def _rules(parts: Collection[str], groups: Collection[str]) -> str:
    """Make the udev rule. Its number is below 73, where udev gives devices tagged `uaccess` to the seat."""
    text = HEAD
    if USB in parts:
        text += (
            "# Enclosures with an ASM2464PD bridge. Drives in such enclosures have the same ids as GPUs, and their "
            "raw USB node opens too.\n"
            "# power/control: a link that slept comes back degraded.\n"
        )
        for vid, pid in sorted({row.ids for row in ROWS}):
            makers = " or ".join(dict.fromkeys(row.maker for row in ROWS if row.ids == (vid, pid)))
            match = f'ATTR{{idVendor}}=="{vid:04x}", ATTR{{idProduct}}=="{pid:04x}"'
            text += f'# {makers}\nACTION!="remove", SUBSYSTEM=="usb", ENV{{DEVTYPE}}=="usb_device", {match}, '
            text += f'{_access(USB_GROUP, groups)}, ATTR{{power/control}}="on"\n'
    if VFIO in parts:
        text += (
            '# A card that `ringup bind` gave to VFIO.\nSUBSYSTEM=="vfio", KERNEL!="vfio", '
            f"{_access(GPU_GROUP, groups)}\n"
        )
    return text


def _access(group: str, groups: Collection[str]) -> str:
    """Give a node to the user at the machine, and to a group if the system has it; udev refuses unknown groups."""
    return (f'MODE="0660", GROUP="{group}", ' if group in groups else "") + 'TAG+="uaccess"'


def _modules() -> str:
    """Keep usb-storage, and with it uas, from patched firmware: it looks like a drive, and probing that drive always
    fails.
    """
    ids = sorted({row.ids for row in ROWS if row.firmware is Firmware.PATCHED})
    quirks = ",".join(f"{vid:04x}:{pid:04x}:i" for vid, pid in ids)  # i: IGNORE_DEVICE
    return f"{HEAD}options usb-storage quirks={quirks}\n"
