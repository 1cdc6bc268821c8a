"""`ringup doctor`: checks this machine for everything that a GPU needs, and says what to do. Opens no device unless
asked to.
"""

from __future__ import annotations

import argparse
import getpass
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

import ringup
from ringup.autogen.generate.sources import Sources
from ringup.drivers.transport.linux import advice
from ringup.drivers.transport.linux.kernel import Kernel
from ringup.drivers.transport.linux.preflight import ENOUGH_LOCKED
from ringup.drivers.usb4.host import system_backend
from ringup.errors import RingupError
from ringup.tools.common.json_text import json_text
from ringup.tools.common.paths import add_source_arguments, sources_of
from ringup.tools.host import doctor_kfd, doctor_nvidia, doctor_pci, doctor_usb
from ringup.tools.host.finding import FINE, OPTIONAL, WRONG, Line

MARKS = {  # sign, sign for ASCII terminals, colour
    FINE: ("✓", "+", "green"),
    OPTIONAL: ("–", "-", "yellow"),
    WRONG: ("✗", "x", "red"),
}
ON_LINUX = (doctor_pci, doctor_kfd, doctor_nvidia)
PROBE_TIMEOUT_S = 10  # TIMEOUT: a compiler prints its version at once


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "doctor",
        help="check this machine: what is fine, what is wrong and what to do",
        description="Check host, Python, libraries, permissions, cards and their connection, header and "
        "firmware packages; "
        "change nothing. "
        "Status 1: something is wrong.",
    )
    parser.add_argument("--json", action="store_true", help="print a list of objects")
    parser.add_argument(
        "--probe", action="store_true", help="open free enclosures and read the state of the link to their card"
    )
    add_source_arguments(parser)


def run(args: argparse.Namespace) -> int:
    lines = list(examine(sources_of(args), probe=args.probe))
    if args.json:
        print(json_text([asdict(line) for line in lines], indent=1))
    else:
        _draw(lines)
    return 1 if any(line.state == WRONG for line in lines) else 0


def examine(sources: Sources, root: Path = Path("/"), *, probe: bool = False, backend: Any = None) -> Iterator[Line]:
    """Yield every finding. `root` has /sys, /dev and /lib, so that a test can make them.

    `probe`: open free enclosures and read the state of the link to their card. `backend`: pyusb's, else
    libusb's.
    """
    yield from _host()
    yield from _libraries()
    yield from _libusb()
    yield from _programs()
    linux = platform.system() == "Linux"
    yield from _permissions(root, linux=linux)
    yield from _cards(Kernel(root), linux=linux, probe=probe, backend=backend)
    yield from _headers(sources)
    yield from _facts()
    yield from _firmware(root)


def _host() -> Iterator[Line]:
    system = f"{platform.system()} {platform.release()} on {platform.machine()}"
    known = platform.system() in ("Linux", "Darwin")
    yield Line("host", "system", FINE if known else WRONG, system, "" if known else "use Linux or macOS")
    little = sys.byteorder == "little"
    yield Line(
        "host",
        "byte order",
        FINE if little else WRONG,
        sys.byteorder,
        "" if little else "cards are little endian, so the host must be too",
    )
    where = "virtual environment" if sys.prefix != sys.base_prefix else "system-wide"
    yield Line("host", "Python", FINE, f"{platform.python_version()}, {where}")
    yield Line("host", "ringup", FINE, f"{ringup.__version__}")


def _libraries() -> Iterator[Line]:
    seen = {"ringup"}
    for requirement in requires("ringup") or ():
        name = re.split(r"[^A-Za-z0-9_.-]", requirement, maxsplit=1)[0]
        extra = re.search(r"extra == ['\"](\w+)['\"]", requirement)
        # if a package is in two extras, the first is named
        if name in seen:
            continue
        seen.add(name)
        wanted = requirement.split(";")[0].strip()
        try:
            yield Line("libraries", name, FINE, version(name))
        except PackageNotFoundError:
            need = f"pip install 'ringup[{extra[1]}]'" if extra else f"pip install '{wanted}'"
            yield Line("libraries", name, OPTIONAL if extra else WRONG, "not installed", need)


def _libusb() -> Iterator[Line]:
    try:
        system_backend()
    except RingupError as error:
        seen = "not there" if "is missing" in str(error) else "installed, but not usable"
        yield Line("libraries", "libusb", OPTIONAL, seen, f"only needed for enclosures on USB: {error}")
    else:
        yield Line("libraries", "libusb", FINE, "1.0 is installed")


def _programs() -> Iterator[Line]:
    for name, purpose, package in (
        ("gcc", "checks struct layouts in the tests", "gcc"),
        ("xz", "unpacks header packages", "xz-utils"),
    ):
        path = shutil.which(name)
        yield (
            Line("programs", name, FINE, _first_line([path, "--version"]))
            if path
            else Line("programs", name, OPTIONAL, "not found", f"{purpose}: apt-get install {package}")
        )


def _first_line(command: list[str]) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, encoding="utf-8", errors="replace", timeout=PROBE_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"does not answer: {error}"
    return (done.stdout.splitlines() or [""])[0]


def _permissions(root: Path, *, linux: bool) -> Iterator[Line]:
    kernel = Kernel(root)
    limit = advice.locked_limit()
    enough = limit is None or limit >= ENOUGH_LOCKED
    yield Line(
        "permissions",
        "locked memory",
        FINE if enough else OPTIONAL,
        advice.shown_limit(),
        "" if enough else f"buffers that a card reads must stay in memory: {advice.raise_limit(kernel)}",
    )
    if not linux:
        # that system has no device nodes for cards
        return
    for node, purpose in (
        ("dev/vfio/vfio", "VFIO"),
        ("dev/kfd", "the kernel's compute node"),
        ("dev/nvidiactl", "NVIDIA's kernel driver"),
    ):
        path = root / node
        if not path.exists():
            yield Line("permissions", f"/{node}", OPTIONAL, "not there", f"only needed for {purpose}")
        elif os.access(path, os.R_OK | os.W_OK):
            yield Line("permissions", f"/{node}", FINE, "readable and writable")
        else:
            yield Line(
                "permissions",
                f"/{node}",
                WRONG,
                "no permission",
                advice.join_group(kernel, path, _user(), os.getgroups()),
            )
    groups = root / "sys/kernel/iommu_groups"
    count = len(list(groups.iterdir())) if groups.is_dir() else 0
    todo = (
        "" if count else "without an IOMMU a card can write all of memory; enable VT-d or AMD-Vi in the firmware set-up"
    )
    yield Line("permissions", "IOMMU", FINE if count else OPTIONAL, f"{count} groups", todo)


def _user() -> str:
    """Return the user's name; empty if there is none, as in a container."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def _cards(kernel: Kernel, *, linux: bool, probe: bool, backend: Any) -> Iterator[Line]:
    on_pci = [line for one in ON_LINUX for line in one.examine(kernel)] if linux else []
    found = [*on_pci, *doctor_usb.examine(kernel, linux=linux, probe=probe, backend=backend)]
    yield from found
    if not linux:
        todo = "cards in a Thunderbolt enclosure need it; enclosures on USB do not"
        yield Line(
            "cards", "PCI cards", OPTIONAL, "not accessible: the signed shim that maps them does not exist yet", todo
        )
    if not any(line.what.startswith(("pci:", "usb:", "bridge ")) for line in found):
        enclosure = any(line.what.startswith(("thunderbolt ", "billboard ")) and line.todo for line in found)
        todo = "an enclosure is visible without its card: see its line" if enclosure else doctor_usb.UNSEEN
        yield Line("cards", "GPUs and bridges", OPTIONAL, "none found on PCI or USB", todo)


def _headers(sources: Sources) -> Iterator[Line]:
    for label, package in sources.manifest.packages.items():
        try:
            there = sources.find(label) is not None
        except RingupError as error:
            yield Line("headers", label, WRONG, str(error), "name a folder that exists")
            continue
        if there:
            seen = sources.version(label) or "a tree given by path"
            same = seen in (package.read, "a tree given by path")
            todo = "" if same else f"facts were read from {package.read}: `ringup headers check`"
            yield Line("headers", label, FINE if same else OPTIONAL, seen, todo)
        elif package.kind != "tree":
            yield Line(
                "headers",
                label,
                OPTIONAL,
                "not fetched",
                f"only needed to generate facts: `ringup headers fetch {label}`",
            )


def _facts() -> Iterator[Line]:
    from ringup.autogen.regdb import chip_names, open_chip

    names = chip_names()
    for name in names:
        try:
            open_chip(name).verify()
        except RingupError as error:
            yield Line("facts", f"registers of {name}", WRONG, str(error), "install ringup again")
    yield Line(
        "facts",
        "register databases",
        FINE if names else WRONG,
        f"{len(names)} chips",
        "" if names else "install ringup again",
    )


def _firmware(root: Path) -> Iterator[Line]:
    for vendor, package in (
        ("amdgpu", "firmware-amd-graphics"),
        ("nvidia", "firmware-nvidia-graphics"),
        ("qcom", "firmware-qcom-soc"),
    ):
        folder = root / "lib/firmware" / vendor
        count = sum(1 for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else 0
        todo = "" if count else f"only needed for a real card: apt-get install {package} (component non-free-firmware)"
        yield Line("firmware", vendor, FINE if count else OPTIONAL, f"{count} files" if count else "none", todo)


def _draw(lines: list[Line]) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    group = ""
    width = max(len(line.what) for line in lines)
    for line in lines:
        if line.group != group:
            group = line.group
            console.print(Text(group, style="bold"))
        sign, plain, colour = MARKS[line.state]
        mark = plain if console.options.ascii_only else sign
        console.print(Text.assemble((f"  {mark} ", colour), f"{line.what:{width}}  {line.seen}"))
        if line.todo:
            console.print(Text(f"    {'':{width}}  {line.todo}", style="dim" if line.state == FINE else colour))
    wrong = sum(line.state == WRONG for line in lines)
    absent = sum(line.state == OPTIONAL for line in lines)
    console.print(f"{len(lines) - wrong - absent} fine, {absent} missing and optional, {wrong} wrong")
