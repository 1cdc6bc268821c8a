"""Runs ringup's PCI transports on a real kernel: boots Debian's kernel in an emulator with cards that do DMA and
interrupts, and checks the results.

    python test/guest/boot.py [--keep] [--kernel IMAGE] [--only FILE]

The guest's root is this machine's root, read-only over 9p below a memory file system, so Python and the checkout are
there. Inside, pytest runs `inside.py`. Outside, the emulator's own trace shows which accesses arrived at the card, and
the file of the shared memory shows what was written to it. Then, on the distribution's kernel, `usb_inside.py` tests
devices that ringup serves over USB/IP. Status 0: everything passed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import boot_files

from ringup.silicon.amd.board import chips, images
from ringup.tools.common.paths import cache_folder

# TIMEOUT: about 5 minutes without hardware help; three times as long on a slow computer.
BOOT_S = 1800
SHARED_BYTES, SHARED_MARK = 4 << 20, b"from the host"
START = "cp /run.sh /run/guest/run.sh; chroot /host /bin/sh /run/guest/run.sh"
SCRIPT = """cd @CHECKOUT@
export HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin PYTHONDONTWRITEBYTECODE=1 TMPDIR=/run/guest GUEST_FIRMWARE=@FIRMWARE@
export GUEST_USBIP=10.0.2.100:3240
echo 8 > /proc/sys/vm/nr_hugepages
[ -d /sys/bus/pci/drivers/vfio-pci ] || modprobe -d @KERNEL@ vfio-pci || echo "GUEST: no vfio-pci"
for module in @MODULES@; do modprobe -d @KERNEL@ $module || echo "GUEST: no $module"; done
tests() {
  timeout @BOUND@ @PYTHON@ -m pytest -q -x --color=no --durations=3 -p no:cacheprovider -o addopts=--import-mode=importlib -o timeout=900 $1
  echo "GUEST STATUS $? of $1"
  dmesg -c | tail -n 25
}
/bin/busybox ip link set lo up
[ -d /sys/class/net/eth0 ] && /bin/busybox ip address add 10.0.2.15/24 dev eth0 && /bin/busybox ip link set eth0 up
for file in @TESTS@; do tests $file; done
"""
INSIDE, USB_INSIDE = "test/guest/inside.py", "test/guest/usb_inside.py"
USB_MODULES = "vhci-hcd usb-storage uas sd-mod virtio-net"
# TIMEOUT: the server of the enclosures ends within a second on an idle machine; then it is killed.
STOP_S = 60
# What the host serves to `usb_inside.py`: the model of a card is slow on an emulated processor.
ENCLOSURES = ("virtual:navi31@asm2464pd", "virtual:navi31@asm2464pd-stock")
DEVICES = (  # root ports, so that each slot is an IOMMU group of its own and its bus can be reset
    "pcie-root-port,id=slot1,chassis=1",
    "pcie-root-port,id=slot2,chassis=2",
    "pcie-root-port,id=slot3,chassis=3",
    "edu,bus=slot1,dma_mask=0xffffffff",
    "edu,bus=slot2,addr=0.0,multifunction=on,dma_mask=0xffffffff",
    "ivshmem-plain,bus=slot2,addr=0.1,memdev=shared",
    "virtio-rng-pci,bus=slot3",
)
ACCESS = re.compile(
    r"memory_region_ops_(read|write) .*addr (0x[0-9a-f]+) value (0x[0-9a-f]+) size (\d)(?: name 'edu-mmio')"
)
# A register of edu. The guest writes it at the start and at the end of the counted accesses.
LIVENESS = 0x04
BEGIN, END = 0x600D_0001, 0x600D_0002
EXPECTED = (  # what `inside.py` does between these two writes, one access each: (kind, offset, bytes)
    ("read", 0x00, 4),
    ("write", 0x08, 4),
    ("read", 0x20, 4),
    ("write", 0x80, 8),
    ("read", 0x80, 8),
    ("write", 0x88, 8),
    ("write", 0x90, 8),
    ("read", 0x80, 8),
    ("read", 0x88, 8),
)


def test_transports_on_a_real_kernel() -> None:
    """`make guest` runs this file beside the other guests; what it printed is shown where it fails."""
    assert main([]) == 0


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--keep", action="store_true", help="keep the folder with the guest's console and the emulator's trace"
    )
    parser.add_argument(
        "--kernel", type=Path, metavar="IMAGE", help="boot this kernel, which needs no modules (kernel.sh makes one)"
    )
    parser.add_argument("--only", metavar="FILE", help=f"run {INSIDE} or {USB_INSIDE} alone")
    args = parser.parse_args(words)
    boot_files.store_bytecode()
    kernel_root = boot_files.set_up_kernel(cache_folder())
    image, modules = boot_files.packaged(kernel_root) if args.kernel is None else (args.kernel, [])
    # A kernel without modules has no USB.
    every = (INSIDE, USB_INSIDE) if args.kernel is None else (INSIDE,)
    files = (args.only,) if args.only else every
    work = Path(tempfile.mkdtemp(prefix="ringup-guest-"))
    try:
        write_firmware(work / "firmware")
        with enclosures(files) as network:
            console = boot(work, kernel_root, image, modules, files, network)
        wrong = [*judge_tests(console, files)]
        if INSIDE in files:
            wrong += [*judge_accesses(work / "trace"), *judge_shared(work / "shared")]
    finally:
        if args.keep:
            sys.stdout.write(f"kept: {work}\n")
        else:
            shutil.rmtree(work)
    for line in wrong:
        sys.stderr.write(f"guest: {line}\n")
    sys.stdout.write("guest: all is well\n" if not wrong else f"guest: {len(wrong)} things are wrong\n")
    return 1 if wrong else 0


def write_firmware(folder: Path) -> None:
    """Write the images of the virtual card that `usb_inside.py` starts. They are made here, where the processor is
    real.
    """
    folder.mkdir()
    for name, image in images.build(chips.find("navi31")).items():
        (folder / name).write_bytes(image)


@contextlib.contextmanager
def enclosures(files: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Serve enclosures over USB/IP if the guest has tests of USB. Yield the emulator's options for a network that leads
    to this server and nowhere else.
    """
    if USB_INSIDE not in files:
        yield ("-nic", "none")
        return
    command = [sys.executable, "-m", "ringup.tools.command_line.cli", "serve", "usbip"]
    with subprocess.Popen([*command, *ENCLOSURES, "--port", "0", "--json"], stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            port = json.loads(server.stdout.readline())["port"]
            relay = f"cmd:/bin/busybox nc 127.0.0.1 {port}"
            yield (
                *("-netdev", f"user,id=net,restrict=on,guestfwd=tcp:10.0.2.100:3240-{relay}"),
                *("-device", "virtio-net-pci,netdev=net,romfile="),
            )
        finally:
            server.send_signal(signal.SIGINT)
            boot_files.wait(server, STOP_S)


def boot(
    work: Path,
    kernel_root: Path,
    image: Path,
    modules: list[Path],
    files: tuple[str, ...],
    network: tuple[str, ...],
) -> str:
    """Boot, run, and return the console's output."""
    with (work / "shared").open("wb") as shared:
        shared.truncate(SHARED_BYTES)
        shared.write(SHARED_MARK)
    command = [
        *(
            "qemu-system-x86_64",
            "-accel",
            "tcg",
            "-cpu",
            "max",
            "-smp",
            "2",
            "-m",
            "1G",
            "-nographic",
            "-no-reboot",
        ),
        *network,
        *("-M", "q35,kernel-irqchip=off", "-device", "intel-iommu,intremap=on"),
        *("-object", f"memory-backend-file,id=shared,size=4M,mem-path={work}/shared,share=on"),
        *(part for device in DEVICES for part in ("-device", device)),
        *boot_files.HOST_ROOT,
        *("-kernel", str(image)),
        *("-initrd", str(boot_files.initramfs(work, modules, start_files(work, kernel_root, files)))),
        *("-append", "console=ttyS0 quiet panic=-1 intel_iommu=on"),
        *("-D", str(work / "trace"), "-trace", "memory_region_ops_*"),
    ]
    with (work / "console").open("wb") as console:
        emulator = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=console, stderr=subprocess.STDOUT)
        status = boot_files.wait(emulator, BOOT_S)
    shown = (work / "console").read_text(errors="replace")
    sys.stdout.write(shown)
    if status:
        raise SystemExit(f"guest: the emulator ended with {status}: see its words above")
    if status is None:
        raise SystemExit(f"guest: the emulator did not end within {BOOT_S} s; the console above shows how far it came")
    return shown


def start_files(work: Path, kernel_root: Path, files: tuple[str, ...]) -> dict[str, str]:
    """Return the files that the guest starts with."""
    words = {
        "CHECKOUT": str(boot_files.CHECKOUT),
        "KERNEL": str(kernel_root),
        "PYTHON": sys.executable,
        "BOUND": str(BOOT_S * 2 // 3),
        "TESTS": " ".join(files),
        "FIRMWARE": str(work / "firmware"),
        "MODULES": USB_MODULES if USB_INSIDE in files else "",
    }
    return {"start.sh": START, "run.sh": boot_files.filled(SCRIPT, words)}


def judge_tests(console: str, files: tuple[str, ...]) -> list[str]:
    """Check pytest's output in the guest."""
    statuses = dict(reversed(found) for found in re.findall(r"GUEST STATUS (\d+) of (\S+)", console))
    wrong = re.findall(r"GUEST: .*", console)
    for file in files:
        if file not in statuses:
            wrong.append(f"the tests of {file} came to no end")
        elif statuses[file] != "0":
            wrong.append(f"pytest of {file} ended with {statuses[file]}")
    return wrong


def judge_accesses(trace: Path) -> list[str]:
    """Check the emulator's trace: every access of ringup's is one access of the card's, with the same width."""
    seen: list[tuple[str, int, int]] | None = None
    with trace.open(errors="replace") as lines:
        for line in lines:
            match = ACCESS.search(line)
            if not match:
                continue
            kind, offset, value, size = match[1], int(match[2], 16) & 0xF_FFFF, int(match[3], 16), int(match[4])
            if (kind, offset, value) == ("write", LIVENESS, BEGIN):
                seen = []
            elif (kind, offset, value) == ("write", LIVENESS, END) and seen is not None:
                return [] if tuple(seen) == EXPECTED else [f"accesses that arrived at the card: {seen}, not {EXPECTED}"]
            elif seen is not None:
                seen.append((kind, offset, size))
    return ["the emulator's trace shows no marked accesses"]


def judge_shared(shared: Path) -> list[str]:
    """Check the host's side of the memory that the guest wrote through a write-combining BAR."""
    with shared.open("rb") as file:
        file.seek(1 << 20)
        words = file.read(64)
    wanted = bytes(range(64))
    return [] if words == wanted else [f"the host sees {words.hex()} in the shared memory, not {wanted.hex()}"]


if __name__ == "__main__":
    sys.exit(main())
