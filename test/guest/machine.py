"""A guest: Debian's kernel in an emulator without hardware help, with this machine's programs and virtual cards on its
PCI Express ports.

    with Guest(folder, cards=[socket]) as guest:
        guest.check("modprobe amdgpu", timeout_s=120)
        print(guest.dmesg())
        print(guest.trixie("vulkaninfo --summary").output)

A card is a vfio-user socket that another process serves. Commands go over a channel of their own, so that what they
print is apart from what the kernel prints, and a command that hangs stops no other.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import select
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import boot_files
from served import Served

from ringup.errors import TransportError
from ringup.silicon import nvidia_cards, nvidia_firmware
from ringup.silicon.serve.qmp import Qmp
from ringup.tools.common.paths import cache_folder

SLOTS = 4  # root ports for cards: slot1 to slot4
# TIMEOUT: about 5 s on an idle machine of two slow cores; other processes may use the machine.
BOOT_S = 600.0
# TIMEOUT: the time to end a command that exceeded its own limit, and to report it.
GRACE_S = 20.0
# TIMEOUT: an access may take seconds while the card translates a big shader. The emulator's own limit is 5 s.
ANSWER_S = 60.0
# TIMEOUT: unplugging waits until the card's driver releases it.
HOTPLUG_S = 60.0
# TIMEOUT: drivers stop their cards; after that, the emulator is ended from outside.
POWEROFF_S = 20.0
LAST_LINES = 25  # lines of the console that an error shows
POWERED_OFF = "reboot: Power down"
TIMED_OUT = (124, 137)  # statuses of `timeout`: ended by TERM, by KILL

MODULES = (*boot_files.ROOT_MODULES, "virtio_blk", "ext4")
TRIXIE = "/run/guest/trixie"
START = """
ip link set lo up
mkdir -p @TRIXIE@ /disk /rw/trixie/upper /rw/trixie/work /run/guest/bin
mount -t ext4 -o ro /dev/vda /disk
mount -t overlay overlay -o lowerdir=/disk,upperdir=/rw/trixie/upper,workdir=/rw/trixie/work @TRIXIE@
for d in proc sys dev run/guest .@CHECKOUT@ .@CACHE@; do mkdir -p @TRIXIE@/$d; done
for d in proc sys dev; do mount -o rbind /$d @TRIXIE@/$d; done
mount -o bind /run/guest @TRIXIE@/run/guest
for d in @CHECKOUT@ @CACHE@; do mount -o bind /host$d @TRIXIE@$d; done
mount -o rbind @TRIXIE@ /host/run/guest/trixie
mkdir -p /host/lib/modules
mount -o bind @TRIXIE@/usr/lib/modules /host/lib/modules
cp /trixie /run/guest/bin/trixie
echo /modprobe >/proc/sys/kernel/modprobe
export HOME=/root USER=root TERM=dumb LC_ALL=C.UTF-8 PYTHONDONTWRITEBYTECODE=1 TMPDIR=/run/guest
exec 3<>/dev/vport0p1
answer() { # answer NONCE STATUS FILE: one line, whatever the file holds
  until mkdir /run/answering 2>/dev/null; do usleep 10000; done
  { printf '%s %d ' $1 $2; base64 -w 0 $3; echo; } >&3
  rmdir /run/answering
}
serve() { # serve NONCE ROOT BOUND_S COMMAND
  folder=/run/guest/$1
  mkdir $folder
  echo $4 | base64 -d >$folder/command
  case $2 in
    /) sh $folder/command ;;
    *) PATH=/run/guest/bin:/usr/sbin:/usr/bin:/sbin:/bin chroot $2 /usr/bin/timeout --kill-after=5 $3 /bin/bash $folder/command ;;
  esac </dev/null >$folder/output 2>&1 3>&-
  answer $1 $? $folder/output
  rm -r $folder
}
answer hello 0 /dev/null
while read -r -u 3 nonce root bound command; do serve $nonce $root $bound $command & done
"""
MODPROBE = f"""#!/bin/sh
exec chroot {TRIXIE} /sbin/modprobe "$@"
"""  # for the kernel, when it loads a module by itself
ENTER = f"""#!/bin/sh
[ $# -gt 0 ] || {{
  export PS1='trixie:\\w\\$ '
  set -- bash --norc
}}
exec chroot {TRIXIE} "$@"
"""  # the program `trixie` of the host's root


class GuestFailed(Exception):
    """A command in the guest failed, or the guest itself did."""


@dataclass(frozen=True)
class Result:
    """How a command ended: its exit status, its standard output and its standard error."""

    status: int
    output: str


class Guest:
    """One emulated machine, running inside `with`. Outside, only its files in `folder` remain."""

    def __init__(
        self,
        folder: Path,
        *,
        memory_mib: int = 2048,
        iommu: bool = False,
        cards: Sequence[Path] = (),
        extra: Sequence[str] = (),
        kernel_options: str = "",
        suite: str = "",
        served: Served | None = None,
    ) -> None:
        """Describe a guest whose files are placed in `folder`.

        `cards` are vfio-user sockets, plugged into slot 1 and the following ones before the machine starts. `extra` is
        added to the emulator's command line, `kernel_options` to the kernel's. `suite`: of Debian, whose newest kernel
        it is; by default it is Debian 12's 6.12. `served`: cards that slow its clock while they are behind.
        """
        if len(cards) > SLOTS:
            raise ValueError(f"a guest has {SLOTS} slots, not {len(cards)}")
        self.folder = folder
        self._memory_mib = memory_mib
        self._iommu = iommu
        self._cards = tuple(cards)
        self._extra = tuple(extra)
        self._kernel_options = kernel_options
        self._suite = suite
        self._served = served
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._monitor: Qmp | None = None
        self._unread = b""
        # This includes commands that nobody waits for any more.
        self._answers: dict[str, Result] = {}
        self._log = ""

    def __enter__(self) -> Self:
        """Boot, and return when the guest accepts commands."""
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def console(self) -> str:
        """Return everything that the guest's console has shown, mostly kernel messages."""
        path = self.folder / "console"
        return path.read_text(errors="replace").replace("\r\n", "\n") if path.exists() else ""

    def start(self) -> None:
        """Boot, and return when the guest accepts commands. What is missing on this machine is fetched first."""
        cache = cache_folder()
        boot_files.store_bytecode()
        kernel_root = boot_files.set_up_kernel(cache, self._suite)
        root = boot_files.set_up("root.sh", cache / "guest-root")
        firmware = boot_files.set_up_firmware(cache)
        disk = cache / f"guest-disk{'-' if self._suite else ''}{self._suite}"
        boot_files.set_up("disk.sh", disk, root, kernel_root, firmware)
        self.folder.mkdir(parents=True, exist_ok=True)
        image, modules = boot_files.packaged(kernel_root, MODULES)
        start = boot_files.filled(
            START, {"TRIXIE": TRIXIE, "CHECKOUT": str(boot_files.CHECKOUT), "CACHE": str(cache.resolve())}
        )
        files = {"start.sh": start, "modprobe": MODPROBE, "trixie": ENTER}
        made_up = {name: content for chip in nvidia_cards() for name, content in nvidia_firmware(chip).items()}
        first = boot_files.initramfs(self.folder, modules, files, made_up)
        options = f"console=ttyS0 loglevel=7 panic=-1 log_buf_len=4M firmware_class.path={TRIXIE}/usr/lib/firmware"
        if self._iommu:
            options += " intel_iommu=on"
        (self.folder / "no-option-roms").write_bytes(bytes(1))
        channel, channel_far = socket.socketpair()
        monitor, monitor_far = socket.socketpair()
        self._channel, self._monitor = channel, Qmp(monitor)
        command = [
            *emulator(root),
            *("-kernel", str(image), "-initrd", str(first), "-append", f"{options} {self._kernel_options}".strip()),
            *("-m", f"{self._memory_mib}M"),
            *("-object", f"memory-backend-memfd,id=ram,size={self._memory_mib}M,share=on"),
            *("-device", "virtio-serial-pci"),
            *("-chardev", f"socket,id=channel,fd={channel_far.fileno()}", "-device", "virtserialport,chardev=channel"),
            *(
                "-chardev",
                f"socket,id=monitor,fd={monitor_far.fileno()}",
                "-object",
                "monitor-qmp,id=qmp,chardev=monitor",
            ),
            *self._clock_options(),
            *("-chardev", f"file,id=console,path={self.folder}/console", "-serial", "chardev:console"),
            *("-fw_cfg", f"name=etc/pci-optionrom-exec,file={self.folder}/no-option-roms"),
            *boot_files.HOST_ROOT,
            *("-blockdev", f"driver=file,node-name=disk,filename={disk},read-only=on"),
            *("-device", "virtio-blk-pci,drive=disk"),
            *(part for device in self._devices() for part in ("-device", device)),
            *self._extra,
        ]
        try:
            with (self.folder / "emulator").open("wb") as words_of_it:
                self._process = subprocess.Popen(
                    command,
                    env={**os.environ, "QEMU_MODULE_DIR": str(root / "usr/lib/x86_64-linux-gnu/qemu")},
                    stdin=subprocess.DEVNULL,
                    stdout=words_of_it,
                    stderr=subprocess.STDOUT,
                    pass_fds=(channel_far.fileno(), monitor_far.fileno()),
                )
        finally:
            channel_far.close()
            monitor_far.close()
        self._await("hello", BOOT_S, "booting")

    def run(self, command: str, timeout_s: float = 60) -> Result:
        """Run a command in the host's root, by bash and as root, and return how it ended.

        A status other than 0 is no error. Raises `GuestFailed` when the guest is gone, or when the command does not end
        within `timeout_s`; the command is then ended. A process that the command leaves in the background keeps
        running.
        """
        return self._run("/host", command, timeout_s)

    def check(self, command: str, timeout_s: float = 60) -> str:
        """Run a command that must end with status 0, and return its output."""
        result = self.run(command, timeout_s)
        if result.status:
            raise self._failure(f"running {command!r}: status {result.status}", result.output)
        return result.output

    def wait_for(self, condition: str, timeout_s: float) -> None:
        """Run the command `condition` until its status is 0. Raises `GuestFailed` when that takes too long."""
        end = self._now_s() + timeout_s
        while self.run(condition).status:
            if self._now_s() >= end:
                raise self._failure(f"waiting for {condition!r}: not within {timeout_s} s")
            time.sleep(0.3)

    def trixie(self, command: str, timeout_s: float = 120) -> Result:
        """Run a command as `run` does, but in Debian 13, where Mesa's Vulkan drivers and the ROCm runtime are.

        Its root is a disk, which a sleeping guest does not lose: see `wake`.
        """
        return self._run(TRIXIE, command, timeout_s)

    def begin(self, command: str) -> None:
        """Start a command in busybox's root, the first one, without waiting for its end or its answer.

        Another thread may wait for its own command at the same time. All other methods belong to one thread.
        """
        self._send(f"{secrets.token_hex(8)} / 0 {base64.b64encode(command.encode()).decode()}", f"starting {command!r}")

    def dmesg(self) -> str:
        """Return the kernel's messages that have come since the last call. The guest keeps them."""
        log = self._run("/", "dmesg", 60).output
        new = log.removeprefix(self._log)
        self._log = log
        return new

    def qmp(self, command: str, /, **arguments: object) -> Any:  # whatever the command's answer is
        """Run a command of the emulator's own."""
        if self._monitor is None:
            raise GuestFailed(f"{command}: the guest is not up")
        try:
            return self._monitor.command(command, **arguments)
        except TransportError as error:
            raise self._failure(str(error)) from error

    def address(self, slot: int) -> str:
        """Return the PCI address of what the guest sees in a slot, or an empty string."""
        port = f"/sys/bus/pci/devices/0000:00:{port_number(slot):02x}.0"
        seen = self._run("/", f"cd {port} && ls -d 0000:*:??.0 2>/dev/null", 60).output.split()
        return seen[0] if seen else ""

    def plug(self, socket: Path, slot: int) -> str:
        """Plug the card that is served at `socket` into an empty slot, and return its address once the
        guest sees it.
        """
        self.qmp("device_add", **card(socket, slot))
        end = time.monotonic() + HOTPLUG_S
        while time.monotonic() < end:
            if address := self.address(slot):
                return address
            time.sleep(0.1)
        raise self._failure(f"plugging {socket} into slot {slot}: the guest did not see a card within {HOTPLUG_S} s")

    def unplug(self, slot: int) -> None:
        """Ask the guest to release the card in a slot, and return when it is out."""
        if self._monitor is None:
            raise GuestFailed(f"unplugging slot {slot}: the guest is not up")
        since, name = len(self._monitor.events), f"card{slot}"
        self.qmp("device_del", id=name)
        try:
            told = self._monitor.wait_event(
                ("DEVICE_DELETED", "DEVICE_UNPLUG_GUEST_ERROR"), since, HOTPLUG_S, device=name
            )
        except TransportError as error:
            raise self._failure(f"unplugging slot {slot}: {error}") from error
        if told["event"] != "DEVICE_DELETED":
            raise self._failure(f"unplugging slot {slot}: the guest refused")

    def wake(self) -> None:
        """Wake the guest from sleep (`echo mem > /sys/power/state`).

        QUIRK: sleep resets the 9p device, and its driver does not set it up again. From then on, every access to the
        host's root hangs. Only `trixie`, `dmesg` and the emulator's own commands still work.
        """
        self.qmp("system_wakeup")

    def kill(self) -> None:
        """Kill the emulator, in the middle of whatever the guest is doing."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def close(self) -> None:
        """Switch the guest off, by itself if possible, and wait for the emulator's end. May be called twice."""
        process, self._process = self._process, None
        if process is not None:
            self._switch_off(process)
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._monitor is not None:
            self._monitor.close()
            self._monitor = None

    def _switch_off(self, process: subprocess.Popen[bytes]) -> None:
        """Let the drivers stop their cards, and wait for the emulator's end.

        QUIRK: once the guest has slept, the emulator does not notice the power-off, so the console's message counts
        too.
        """
        try:
            if self._channel is not None:
                self._channel.sendall(b"off / 0 " + base64.b64encode(b"poweroff -n -f") + b"\n")
            end = time.monotonic() + POWEROFF_S
            while process.poll() is None and POWERED_OFF not in self.console and time.monotonic() < end:
                time.sleep(0.05)
            process.wait(1.0)
        except (OSError, subprocess.TimeoutExpired):
            process.terminate()
            boot_files.wait(process, POWEROFF_S)

    def _clock_options(self) -> list[str]:
        """Return the options for a second monitor, with which cards slow the guest's clock."""
        if self._served is None:
            return []
        path = self.folder / "clock"
        self._served.slows(path)
        return [
            *("-chardev", f"socket,id=clock,path={path},server=on,wait=off"),
            *("-object", "monitor-qmp,id=clock-qmp,chardev=clock"),
        ]

    def _now_s(self) -> float:
        """Return the time that has passed for the guest, in which commands' bounds count."""
        return time.monotonic() - (0.0 if self._served is None else self._served.stopped_s)

    def _devices(self) -> list[str]:
        devices = (
            ["intel-iommu,intremap=on,caching-mode=on"] if self._iommu else []
        )  # ORDER: before the devices that it translates for
        for slot in range(1, SLOTS + 1):
            # A card that is plugged in later needs address space behind its port.
            reserved = "pref64-reserve=64G,mem-reserve=64M"
            place = f"addr={port_number(slot):#x}"
            devices.append(f"pcie-root-port,id=slot{slot},chassis={slot},{place},{reserved}")
        return devices + [json.dumps(card(path, slot)) for slot, path in enumerate(self._cards, 1)]

    def _run(self, root: str, command: str, timeout_s: float) -> Result:
        nonce = secrets.token_hex(8)
        started = self._now_s()
        packed = base64.b64encode(command.encode()).decode()
        self._send(f"{nonce} {root} {timeout_s} {packed}", f"running {command!r}")
        result = self._await(nonce, timeout_s + GRACE_S, f"running {command!r}")
        if result.status in TIMED_OUT and self._now_s() - started >= timeout_s:
            raise self._failure(f"running {command!r}: not done within {timeout_s} s", result.output)
        return result

    def _send(self, line: str, doing: str) -> None:
        if self._channel is None:
            raise GuestFailed(f"{doing}: the guest is not up")
        try:
            self._channel.sendall(line.encode() + b"\n")
        except OSError as error:
            raise self._failure(f"{doing}: the guest is gone") from error

    def _await(self, nonce: str, timeout_s: float, doing: str) -> Result:
        """Wait for the answer to one request. Answers to abandoned requests are kept."""
        assert self._channel is not None
        end = self._now_s() + timeout_s
        while nonce not in self._answers:
            left_s = end - self._now_s()
            if left_s > 0 and not select.select([self._channel], [], [], left_s)[0]:
                continue
            if left_s <= 0:
                raise self._failure(f"{doing}: the guest did not answer within {timeout_s} s")
            try:
                piece = self._channel.recv(1 << 20)
            except OSError:
                piece = b""
            if not piece:
                raise self._failure(f"{doing}: the guest is gone")
            *lines, self._unread = (self._unread + piece).split(b"\n")
            for line in lines:
                name, status, *output = line.decode().split(" ")
                text = base64.b64decode(output[0] if output else "").decode(errors="replace")
                self._answers[name] = Result(int(status), text)
        return self._answers.pop(nonce)

    def _failure(self, what: str, output: str = "") -> GuestFailed:
        """Make an error of the operation, the command's output, and the last output of the console and the emulator."""
        parts = [what]
        told = (self.folder / "emulator").read_text(errors="replace") if (self.folder / "emulator").exists() else ""
        for name, text in (("its output", output), ("the emulator", told), ("the console", self.console)):
            if lines := text.rstrip().splitlines()[-LAST_LINES:]:
                parts.append(f"-- the last of {name}:")
                parts += lines
        return GuestFailed("\n".join(parts))


def port_number(slot: int) -> int:
    """Return the device number, on bus 0, of a slot's root port."""
    if not 1 <= slot <= SLOTS:
        raise ValueError(f"a guest has slots 1 to {SLOTS}, not {slot}")
    return 0x10 + slot


def card(socket: Path, slot: int) -> dict[str, object]:
    """Return the emulator's description of a card that another process serves."""
    port_number(slot)
    return {
        "driver": "vfio-user-pci",
        "id": f"card{slot}",
        "bus": f"slot{slot}",
        "socket": {"type": "unix", "path": str(socket.resolve())},
        "x-msg-timeout": int(ANSWER_S * 1000),
    }


def emulator(root: Path) -> list[str]:
    """Return the start of the emulator's command line: Debian 13's emulator, run by its own loader, and a machine
    without devices.
    """
    libraries = root / "usr/lib/x86_64-linux-gnu"
    return [
        *(str(libraries / "ld-linux-x86-64.so.2"), "--library-path", str(libraries)),
        *(str(root / "usr/bin/qemu-system-x86_64"), "-L", str(root / "usr/share/qemu")),
        *("-L", str(root / "usr/share/seabios"), "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
        *("-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-machine", "q35,memory-backend=ram"),
        *("-run-with", "exit-with-parent=on"),
    ]
