"""What a guest boots from: Debian's kernel, and an initial file system in memory that mounts this machine's root below
a writable one.

The host's root is at /host, read-only over 9p below a memory file system. A process that changes its root to it finds
programs, Python and the checkout under their usual names. Only the guest sees what the guest writes. /run/guest is
memory, the same in every root. The first process runs a script of the caller's, with busybox alone. When the script
ends, the guest is switched off.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[1]
KERNEL = "guest-kernel"
ROOT_MODULES = ("9pnet_virtio", "9p", "overlay")
INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc p /proc
mount -t sysfs s /sys
mount -t debugfs d /sys/kernel/debug 2>/dev/null
mount -t devtmpfs d /dev
mkdir -p /dev/shm /dev/pts
mount -t tmpfs t /dev/shm
mount -t devpts t /dev/pts 2>/dev/null
for m in $(cat /modules/order); do insmod /modules/$m || echo "GUEST: no module $m"; done
mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=512000 hostroot /ro
mount -t tmpfs t /rw
mkdir -p /rw/upper /rw/work
mount -t overlay overlay -o lowerdir=/ro,upperdir=/rw/upper,workdir=/rw/work /host
mkdir -p /host/run/lock /host/run/guest
mount -t tmpfs t /run/guest
for d in proc sys dev run/guest; do mount -o rbind /$d /host/$d; done
. /start.sh
poweroff -f
"""
HOST_ROOT = (
    *("-fsdev", "local,id=root,path=/,security_model=none,readonly=on,multidevs=remap"),
    *("-device", "virtio-9p-pci,fsdev=root,mount_tag=hostroot"),
)


@functools.cache
def store_bytecode() -> None:
    """Compile the checkout's modules that have changed. A guest cannot store what it compiles, and compiling takes most
    of the time in which it would start Python.
    """
    packages = sorted(str(path.parent) for path in CHECKOUT.glob("*/__init__.py"))
    python = (sys.executable, "-m", "compileall", "-q")
    subprocess.run([*python, "-l", str(CHECKOUT), str(HERE)], check=True)
    subprocess.run([*python, *packages], check=True)


def set_up(script: str, path: Path, *needs: Path | str) -> Path:
    """Run one of the set-up scripts beside this file and return `path`. The script makes `path` from what it `needs`,
    and does nothing when `path` is up to date.
    """
    subprocess.run(["bash", HERE / script, path, *needs], check=True)
    return path


def set_up_kernel(cache: Path, suite: str = "") -> Path:
    """Fetch the guest's kernel if it is missing, and return its folder: Debian 12's, or the newest one of a suite."""
    return set_up("setup.sh", cache / f"guest-kernel-{suite}", suite) if suite else set_up("setup.sh", cache / KERNEL)


def set_up_firmware(cache: Path) -> Path:
    """Fetch amdgpu's firmware if it is missing, and return its folder."""
    return set_up_package(cache, "firmware-amd")


def set_up_package(cache: Path, package: str) -> Path:
    """Fetch a package that `ringup headers` knows if it is missing, and return its folder."""
    folder = cache / package
    if not (folder / ".ringup-version").is_file():
        subprocess.run(
            [sys.executable, "-m", "ringup.tools.command_line.cli", "headers", "fetch", folder.name], check=True
        )
    return folder


def packaged(kernel_root: Path, names: Sequence[str] = ROOT_MODULES) -> tuple[Path, list[Path]]:
    """Return the distribution's kernel, and the modules of those `names` with their dependencies, in the order in which
    they are loaded.
    """
    version = (kernel_root / "version").read_text().strip()
    modules: list[Path] = []
    for module in names:
        command = ["/sbin/modprobe", "-d", str(kernel_root), "-S", version, "--show-depends", module]
        shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        lines = (line.split() for line in shown.splitlines() if line.startswith("insmod"))
        modules += [path for path in (Path(words[1]) for words in lines) if path not in modules]
    return kernel_root / f"boot/vmlinuz-{version}", modules


def initramfs(
    work: Path, modules: Sequence[Path], files: Mapping[str, str], firmware: Mapping[str, bytes] = MappingProxyType({})
) -> Path:
    """Pack a script that mounts the host's root, busybox, a few modules, and the `files`, of which `start.sh` runs
    after that. The kernel finds the `firmware` by its names.
    """
    tree = work / "initramfs"
    for name in ("bin", "sbin", "proc", "sys", "dev", "ro", "rw", "host", "modules", "run/guest"):
        (tree / name).mkdir(parents=True)
    shutil.copy("/bin/busybox", tree / "bin/busybox")
    for module in modules:
        with (tree / "modules" / module.stem).open("wb") as unpacked:
            subprocess.run(["xz", "-dc", module], stdout=unpacked, check=True)
    (tree / "modules/order").write_text("\n".join(module.stem for module in modules))
    for name, text in {"init": INIT, **files}.items():
        (tree / name).write_text(text)
        (tree / name).chmod(0o755)
    for name, content in firmware.items():
        place = tree / "lib/firmware" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    image = work / "initramfs.cpio"
    names = "\n".join(str(path.relative_to(tree)) for path in sorted(tree.rglob("*")))
    with image.open("wb") as packed:
        subprocess.run(
            ["cpio", "-o", "-H", "newc", "--quiet"], cwd=tree, input=names.encode(), stdout=packed, check=True
        )
    shutil.rmtree(tree)
    return image


def filled(text: str, words: dict[str, str]) -> str:
    """Replace the `@MARKS@` that are keys of `words`."""
    for mark, word in words.items():
        text = text.replace(f"@{mark}@", word)
    return text


def wait(process: subprocess.Popen[bytes], timeout_s: float) -> int | None:
    """Wait for the end of an emulator and return its status. An emulator that does not end by itself is killed, and
    None is returned.
    """
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return None
