"""A machine as files: one card of NVIDIA's on the PCI bus, held by a driver of the kernel's, and who uses it.

What the files say follows open-gpu-kernel-modules (kernel-open/nvidia/nv-procfs.c) and Linux (proc.rst, sysfs-bus-pci).
"""

import os

from ringup.drivers.transport.linux.kernel import Kernel

ADDRESS, SOUND = "0000:65:00.0", "0000:65:00.1"
# nv-procfs.c: the file of the release; the modules with public source, and the closed ones
VERSION = """NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {}  Release Build  (builder@host)  Thu Jan  1 2026
GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)
"""
CLOSED = VERSION.replace("Open Kernel Module for x86_64", "x86_64 Kernel Module")
INFORMATION = """Model: \t\t NVIDIA A10
IRQ:   \t\t 137
GPU UUID: \t GPU-00000000-0000-0000-0000-000000000000
Video BIOS: \t 94.02.5c.00.01
Bus Type: \t PCIe
Bus Location: \t {}
Device Minor: \t {}
"""


class NvidiaMachine:
    """Files below a folder. `kernel` reads them."""

    def __init__(self, root, driver="nvidia", release="535.261.03", minor=0):
        """`driver`: what holds the card: nvidia, nouveau, vfio-pci, or empty for nobody."""
        self.root, self.kernel = root, Kernel(root)
        for name in ("vfio-pci", "nvidia", "nouveau", "snd_hda_intel"):
            (root / "sys/bus/pci/drivers" / name).mkdir(parents=True)
        for path in (
            "sys/bus/pci/drivers_probe",
            "sys/bus/pci/drivers/nvidia/unbind",
            "sys/bus/pci/drivers/nvidia/bind",
        ):
            self.write(path, "")
        (root / "run/lock").mkdir(parents=True)
        (root / "sys/kernel/iommu_groups/12/devices").mkdir(parents=True)
        self.function(ADDRESS, "0x030200", "0x2236", driver)
        self.function(SOUND, "0x040300", "0x1aef", "snd_hda_intel")
        if driver == "nvidia":
            self.write("sys/module/nvidia/version", release)
            self.write("proc/driver/nvidia/version", VERSION.format(release))
            self.write(f"proc/driver/nvidia/gpus/{ADDRESS}/information", INFORMATION.format(ADDRESS, minor))
            for node in ("nvidiactl", f"nvidia{minor}", "nvidia-uvm"):
                self.write(f"dev/{node}", "")
            self.write("sys/module/nvidia_uvm/version", release)
        elif driver == "nouveau":
            self.write("sys/module/nouveau/version", "")

    def write(self, path, text):
        path = self.root / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def function(self, address, kind, device, driver):
        folder = f"sys/bus/pci/devices/{address}"
        for name, text in {"vendor": "0x10de", "device": device, "class": kind, "driver_override": "(null)"}.items():
            self.write(f"{folder}/{name}", f"{text}\n")
        # a BAR of registers and one of memory: start, end, flags (ioport.h)
        self.write(f"{folder}/resource", "0xa0000000 0xa0ffffff 0x40200\n0x6000000000 0x67ffffffff 0x14220c\n")
        group = self.root / "sys/kernel/iommu_groups/12"
        (self.root / folder / "iommu_group").symlink_to(group)
        (group / "devices" / address).symlink_to(self.root / folder)
        if driver:
            (self.root / folder / "driver").symlink_to(self.root / "sys/bus/pci/drivers" / driver)

    def process(self, pid, command, *nodes):
        """A process that has nodes open."""
        self.write(f"proc/{pid}/comm", f"{command}\n")
        self.write(f"proc/{pid}/cmdline", f"{command}\0")
        # proc.rst: the 22nd field is the time at which it began
        self.write(f"proc/{pid}/stat", f"{pid} ({command}) S 1 " + " ".join("0" for _ in range(17)) + " 4242 0 0\n")
        self.write(f"proc/{pid}/maps", "")
        (self.root / f"proc/{pid}/fd").mkdir()
        for number, node in enumerate(nodes, 3):
            os.symlink(self.root / node, self.root / f"proc/{pid}/fd/{number}")
