"""What a guest boots from: Debian's kernel, and a first file system in memory that puts this machine's root below a writable one.

The guest's root is the host's, read-only over 9p below a memory file system, so programs, Python and the checkout are there under the names
they have outside. What the guest writes, it alone sees. The first process is a script of the caller's; when it ends, so does the guest.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[1]
ROOT_MODULES = ("9pnet_virtio", "9p", "overlay")
INIT = """#!/bin/busybox sh
/bin/busybox mount -t proc p /proc
/bin/busybox mount -t sysfs s /sys
/bin/busybox mount -t devtmpfs d /dev
for m in $(/bin/busybox cat /modules/order); do /bin/busybox insmod /modules/$m || echo "GUEST: no module $m"; done
/bin/busybox mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=512000 hostroot /ro
/bin/busybox mount -t tmpfs t /rw
/bin/busybox mkdir -p /rw/upper /rw/work
/bin/busybox mount -t overlay overlay -o lowerdir=/ro,upperdir=/rw/upper,workdir=/rw/work /new
for d in proc sys dev; do /bin/busybox mount -o move /$d /new/$d; done
/bin/busybox mkdir -p /new/run/lock /new/run/guest /new/dev/shm
/bin/busybox mount -t tmpfs t /new/run/guest
/bin/busybox cp /run.sh /new/run/guest/run.sh
exec /bin/busybox switch_root /new /bin/bash /run/guest/run.sh
"""  # ORDER: the first process itself changes its root: the kernel looks for firmware and helper programs where that one does
HOST_ROOT = (
    *("-fsdev", "local,id=root,path=/,security_model=none,readonly=on,multidevs=remap"),
    *("-device", "virtio-9p-pci,fsdev=root,mount_tag=hostroot"),
)


def cache_folder() -> Path:
    """Return the folder where kernels, roots and firmware are kept: the one `ringup` keeps its own in."""
    if named := os.environ.get("RINGUP_CACHE"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ringup"


def set_up(script: str, folder: Path) -> Path:
    """Run one of the set-up scripts beside this file, which is quick when its `folder` is there already, and return the folder."""
    subprocess.run(["bash", HERE / script, folder], check=True)
    return folder


def set_up_firmware(cache: Path) -> Path:
    """Return the folder of Debian's firmware, with `amdgpu` in it; it is fetched when it is not there yet."""
    if not (cache / "firmware-amd/.ringup-version").is_file():
        subprocess.run([sys.executable, "-m", "ringup.tools.cli", "headers", "fetch", "firmware-amd"], check=True)
    return cache / "firmware-amd/lib/firmware"


def packaged(kernel_root: Path) -> tuple[Path, list[Path]]:
    """Return the distribution's kernel and the modules that mount the root, in the order in which they go in."""
    version = (kernel_root / "version").read_text().strip()
    modules: list[Path] = []
    for module in ROOT_MODULES:
        command = ["/sbin/modprobe", "-d", str(kernel_root), "-S", version, "--show-depends", module]
        shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        lines = (line.split() for line in shown.splitlines() if line.startswith("insmod"))
        modules += [path for path in (Path(words[1]) for words in lines) if path not in modules]
    return kernel_root / f"boot/vmlinuz-{version}", modules


def initramfs(work: Path, modules: Sequence[Path], script: str) -> Path:
    """Pack what mounts the root, busybox and a handful of modules, and `script`, which bash runs as the first process after that."""
    tree = work / "initramfs"
    for name in ("bin", "proc", "sys", "dev", "ro", "rw", "new", "modules"):
        (tree / name).mkdir(parents=True)
    shutil.copy("/bin/busybox", tree / "bin/busybox")
    for module in modules:
        with (tree / "modules" / module.stem).open("wb") as unpacked:
            subprocess.run(["xz", "-dc", module], stdout=unpacked, check=True)
    (tree / "modules/order").write_text("\n".join(module.stem for module in modules))
    (tree / "run.sh").write_text(script)
    (tree / "init").write_text(INIT)
    (tree / "init").chmod(0o755)
    image = work / "initramfs.cpio"
    names = "\n".join(str(path.relative_to(tree)) for path in sorted(tree.rglob("*")))
    with image.open("wb") as packed:
        subprocess.run(
            ["cpio", "-o", "-H", "newc", "--quiet"], cwd=tree, input=names.encode(), stdout=packed, check=True
        )
    shutil.rmtree(tree)
    return image


def filled(text: str, words: dict[str, str]) -> str:
    """Put `words` in the place of the `@MARKS@` that are their keys."""
    for mark, word in words.items():
        text = text.replace(f"@{mark}@", word)
    return text


def wait(process: subprocess.Popen[bytes], timeout_s: float) -> int | None:
    """Wait for the end of an emulator and return its status; one that does not end by itself is killed, and None returned."""
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return None
