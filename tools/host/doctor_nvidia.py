"""Checks of `ringup doctor` for NVIDIA's cards: modules of the kernel, release, nodes, users, firmware for GSP.

Files are read, nothing else: opening a node would start its card.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from ringup.autogen.nv import rm
from ringup.autogen.releases import branch_of, release_key
from ringup.drivers.transport.linux import nvidia_proc
from ringup.drivers.transport.linux.function import Function, gpus_of
from ringup.drivers.transport.linux.holders import survey_nodes
from ringup.drivers.transport.linux.kernel import Kernel
from ringup.drivers.transport.nvidia import transport
from ringup.drivers.transport.nvidia.device import join
from ringup.drivers.transport.nvidia.system import CONTROL_NODE, node_of
from ringup.firmware.nv.needs import CHIPS, needs
from ringup.tools.host.finding import FINE, OPTIONAL, WRONG, Line

NVIDIA = 0x10DE
MODULES = "sys/module"
# forms of a file of firmware in the kernel's folder
PACKED = ("", ".xz", ".zst")
OLDEST, NEWEST = rm.READ_FROM[0], rm.READ_FROM[-1]
BARE = (
    "only needed to drive a card without NVIDIA's driver: apt-get install firmware-nvidia-graphics (non-free-firmware)"
)


def examine(kernel: Kernel) -> Iterator[Line]:
    """Yield findings, none on a machine without NVIDIA's cards and driver."""
    functions = [function for function in gpus_of(kernel) if function.vendor == NVIDIA]
    if not functions and not _loaded(kernel, "nvidia"):
        return
    yield from _modules(kernel, functions)
    if release := nvidia_proc.release(kernel):
        yield _layouts(release)
    yield from _nodes(kernel)
    yield from _cards(kernel)
    yield _firmware(kernel)


def _loaded(kernel: Kernel, module: str) -> bool:
    return kernel.path(MODULES, module).is_dir()


def _modules(kernel: Kernel, functions: list[Function]) -> Iterator[Line]:
    release, module = nvidia_proc.release(kernel), kernel.text(kernel.path(MODULES, "nvidia/version"))
    if release:
        kind = "public source" if nvidia_proc.is_open(kernel) else "closed source"
        other = f", and {module} on disk" if module and module != release else ""
        todo = "the module was replaced and not loaded again: restart the machine" if other else ""
        yield Line("cards", "module nvidia", WRONG if other else FINE, f"{release}, {kind}{other}", todo)
    elif _loaded(kernel, "nvidia"):
        yield Line(
            "cards", "module nvidia", WRONG, f"{module} is loaded and tells no release", "`dmesg` says why (NVRM)"
        )
    else:
        todo = "for the names nvidia:…: install NVIDIA's driver and `modprobe nvidia`, as root"
        yield Line("cards", "module nvidia", OPTIONAL, "not loaded", todo)
    if release:
        uvm = kernel.text(kernel.path(MODULES, "nvidia_uvm/version"))
        seen = uvm or ("loaded" if _loaded(kernel, "nvidia_uvm") else "not loaded")
        yield Line("cards", "module nvidia-uvm", FINE, seen, "" if uvm else "ringup does not need it; CUDA does")
    if _loaded(kernel, "nouveau"):
        held = [function.address for function in functions if function.driver == "nouveau"]
        todo = f"`ringup bind {held[0]}` takes a card from it" if held else ""
        yield Line(
            "cards", "module nouveau", OPTIONAL if held else FINE, f"loaded, drives {', '.join(held) or 'none'}", todo
        )


def _layouts(release: str) -> Line:
    """Say whether the structures of a driver's calls are known for its release, and by which release they are read."""
    what, major = "NVIDIA's release", release_key(release)[0]
    if major < release_key(OLDEST)[0]:
        todo = f"ringup knows the calls of {OLDEST} and later: install a newer driver"
        return Line("cards", what, WRONG, f"{release}: too old", todo)
    if major > release_key(NEWEST)[0]:
        todo = "it may work: ringup speaks to it as to that release, with a warning"
        return Line("cards", what, OPTIONAL, f"{release}: newer than {NEWEST}, the newest known", todo)
    branch = branch_of(release, rm.BRANCHES)
    nearest = next(one for one in rm.READ_FROM if branch_of(one, rm.BRANCHES) == branch)
    if release == nearest:
        return Line("cards", what, FINE, f"{release}: its calls are known")
    return Line("cards", what, FINE, f"{release}: its calls are known by {nearest}, the nearest release that was read")


def _nodes(kernel: Kernel) -> Iterator[Line]:
    """Yield a finding for each node that the driver has made or should have."""
    numbers = [nvidia_proc.minor(kernel, address) for address, _ in nvidia_proc.listed(kernel)]
    if not nvidia_proc.release(kernel):
        return
    for node in (CONTROL_NODE, *(node_of(number) for number in numbers if number is not None)):
        path = kernel.path(node)
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
        except OSError:
            yield Line("cards", node, WRONG, "not there", "`nvidia-modprobe -c 0` makes the nodes, as root")
            continue
        allowed = os.access(path, os.R_OK | os.W_OK)
        todo = "" if allowed else f"this user may not open it: {join(kernel, path)}"
        yield Line("cards", node, FINE if allowed else WRONG, f"mode {mode:04o}", todo)


def _cards(kernel: Kernel) -> Iterator[Line]:
    for found in transport.find(kernel):
        yield Line("cards", found.name, WRONG if found.skipped else FINE, found.description, found.skipped)
        number = found.name.removeprefix(transport.PREFIX)
        if number.isdecimal():
            yield _users(kernel, found.name, int(number))


def _users(kernel: Kernel, name: str, number: int) -> Line:
    seen = survey_nodes(kernel, {str(kernel.path(node_of(number)))})
    hidden = f"; {seen.hidden} processes of others hide what they have open" if seen.hidden else ""
    if not seen.uses:
        return Line("cards", f"{name} users", FINE, f"none{hidden}")
    todo = "several processes may share it; `ringup bind` waits for none of them: end them first"
    return Line("cards", f"{name} users", FINE, "; ".join(map(str, seen.uses)) + hidden, todo)


def _firmware(kernel: Kernel) -> Line:
    """Say for which chips the files are there that boot GSP without NVIDIA's driver."""

    def there(names: tuple[str, ...]) -> bool:
        return any(kernel.path("lib/firmware", f"{name}{end}").exists() for name in names for end in PACKED)

    chips = []
    for name, chip in CHIPS.items():
        releases = [one for one in chip.boot.releases if all(there(need.names) for need in needs(name, one))]
        if releases:
            chips.append(f"{name} ({releases[0]})")
    seen = ", ".join(chips) or "complete for no chip"
    return Line("firmware", "GSP of NVIDIA's cards", FINE if chips else OPTIONAL, seen, "" if chips else BARE)
