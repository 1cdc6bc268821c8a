"""Checks before a card is opened: no other process holds it, no console is on it, the kernel allows it. They only read.

Every check is a function that yields findings; `examine` runs those that the path needs. With a finding in state
`refuse` the card is not opened.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from ringup.drivers.transport.bars import REMEDY, trouble
from ringup.drivers.transport.linux import advice, linked, nvidia_proc
from ringup.drivers.transport.linux.function import TRANSLATING, Function, link_of, reads_as_there
from ringup.drivers.transport.linux.holders import survey
from ringup.drivers.transport.linux.lock import CardLock
from ringup.errors import CardBusy, DeviceLost, NotSupported, PermissionNeeded, RingupError

OK, NOTE, REFUSE = "ok", "note", "refuse"
VFIO, SYSFS = "vfio", "sysfs"
VFIO_DRIVER = "vfio-pci"
# a group is viable with these. Source: Linux vfio.rst; vfio.c, vfio_dev_driver_allowed
HARMLESS_DRIVERS = (
    "",
    VFIO_DRIVER,
    "pci-stub",
    "pcieport",
)
ENOUGH_LOCKED = 64 << 20  # bytes; rings, firmware and a staging buffer take less
SMALL_BAR = 256 << 20  # bytes of VRAM that a card shows without a resized BAR
# the kernel switches a function on to read its configuration space in D3cold, and a look must not. Source: Linux
# pci_config_pm_runtime_get
UNREADABLE = ("D3cold",)
READ_WRITE = os.R_OK | os.W_OK
COHERENT_HOSTS = ("x86_64",)
# they draw on the firmware's card without its driver
GENERIC_FRAMEBUFFERS = re.compile("EFI VGA|VESA VGA|simple|OFfb|efifb|vesafb")


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check: its subject, its state (`ok`, `note`, `refuse`), what was seen, what to do about it."""

    what: str
    state: str
    seen: str
    remedy: str = ""


NAME_IT = "`ringup list` names the cards"
# the class of a refusal's error; all others are NotSupported
REFUSALS: dict[str, type[RingupError]] = {
    "driver": CardBusy,
    "holders": CardBusy,
    "lock": CardBusy,
    "console": CardBusy,
    "group": CardBusy,
    "linked cards": CardBusy,
    "permissions": PermissionNeeded,
    "lockdown": PermissionNeeded,
    "power": DeviceLost,
}


def path_for(function: Function) -> str:
    """Return the path that "auto" means: VFIO where the function is bound to it, else sysfs."""
    return VFIO if function.driver == VFIO_DRIVER else SYSFS


def examine(function: Function, path: str) -> list[Finding]:
    """Run all checks for opening `function` over `path`, the most important ones first."""
    return [finding for look in (kind, console, *LOOKS_BY_PATH[path], *LOOKS) for finding in look(function)]


def refuse(findings: Iterable[Finding], doing: str) -> None:
    """Raise the first refusal among the findings, as the error that fits it."""
    for finding in findings:
        if finding.state == REFUSE:
            error = REFUSALS.get(finding.what, NotSupported)
            raise error(f"{doing}: {finding.what}: {finding.seen}; {finding.remedy}")


def _driver(function: Function, wanted: str) -> Finding:
    driver = function.driver
    if driver == wanted:
        return Finding("driver", OK, driver or "none")
    ways = f"`ringup bind {function.address}` gives it to {VFIO_DRIVER}"
    if not driver:
        return Finding("driver", REFUSE, f"none, VFIO needs {VFIO_DRIVER}", ways)
    if not wanted:
        ways += f", `ringup bind {function.address} --driver none` to nobody"
    ways = "; ".join(filter(None, (other_name(function), ways)))
    return Finding("driver", REFUSE, f"the kernel's {driver} drives the card", ways)


def other_name(function: Function) -> str:
    """Say by which name a card is used that stays with NVIDIA's kernel driver; empty for others."""
    if function.driver != nvidia_proc.DRIVER:
        return ""
    number = nvidia_proc.minor(function.kernel, function.address)
    return "its driver has made no node for it" if number is None else f"use it as nvidia:{number}"


def kind(function: Function) -> Iterator[Finding]:
    """It must be a GPU: a wrong address may be a disk's."""
    if not function.graphics:
        yield Finding("card", REFUSE, f"it is {function.class_name}, no GPU", NAME_IT)


def driver_for_vfio(function: Function) -> Iterator[Finding]:
    """VFIO's driver must hold the function."""
    yield _driver(function, VFIO_DRIVER)


def driver_for_sysfs(function: Function) -> Iterator[Finding]:
    """No driver may hold the function."""
    yield _driver(function, "")


def console(function: Function) -> Iterator[Finding]:
    """No framebuffer, no lit display and no text console may be on the card."""
    kernel, where = function.kernel, function.path.resolve()
    graphics = kernel.path("sys/class/graphics")
    for name in kernel.names(graphics):
        if name.startswith("fb") and (graphics / name / "device").resolve() == where:
            yield Finding("console", REFUSE, f"framebuffer {name} is on this card", "let another card show the console")
            return
    for card in kernel.names(where / "drm"):
        for connector in kernel.names(where / "drm" / card):
            if kernel.text(where / "drm" / card / connector / "enabled") == "enabled":
                yield Finding(
                    "console", REFUSE, f"{connector} shows a picture", "end the desktop on it or use another card"
                )
                return
    if kernel.number(function.path / "boot_vga") != 1:
        yield Finding("console", OK, "not on this card")
        return
    for name in kernel.names(graphics):
        if name.startswith("fb") and GENERIC_FRAMEBUFFERS.search(kernel.text(graphics / name / "name")):
            yield Finding(
                "console",
                REFUSE,
                f"the firmware's framebuffer {name} draws on this card",
                advice.boot_option(
                    kernel, "video=efifb:off", "initcall_blacklist=sysfb_init", otherwise="this kernel heeds it not"
                )
                + ", or let another card be the first",
            )
            return
    for name in kernel.names(kernel.path("sys/class/vtconsole")):
        folder = kernel.path("sys/class/vtconsole", name)
        if "VGA" in kernel.text(folder / "name") and kernel.number(folder / "bind"):
            yield Finding(
                "console", REFUSE, f"the text console {name} is on this card", "boot with console=ttyS0 vga=off"
            )
            return
    yield Finding("console", NOTE, "the firmware's first card, and no console is drawn on it now")


def holders(function: Function) -> Iterator[Finding]:
    """No other process may have the card's nodes open or its BARs mapped."""
    found = survey(function.kernel, function.companions())
    if found.uses:
        seen = "; ".join(map(str, found.uses))
        yield Finding("holders", REFUSE, seen, "end the holder, or wait for it")
    elif found.hidden:
        yield Finding(
            "holders", NOTE, f"none among those that can be seen; {found.hidden} processes of others hide theirs"
        )
    else:
        yield Finding("holders", OK, "none")


def companions(function: Function) -> Iterator[Finding]:
    """Functions of the same slot, sound and USB above all, should not be with drivers of the kernel's: a reset of the
    chip takes them too.
    """
    driven = [one for one in function.companions() if one.address != function.address and not one.bridge]
    driven = [one for one in driven if one.driver not in HARMLESS_DRIVERS]
    if not driven:
        yield Finding("companions", OK, "none with a driver of the kernel's")
        return
    seen = ", ".join(f"{one.address} belongs to {one.driver}" for one in driven)
    to = "" if function.driver == VFIO_DRIVER else " --driver none"
    yield Finding(
        "companions",
        NOTE,
        seen,
        f"a reset of the card happens under it: `ringup bind {function.address}{to}` takes all functions of the slot",
    )


def linked_cards(function: Function) -> Iterator[Finding]:
    """No card that is linked with this one (a hive over XGMI) may be with amdgpu: the start resets this card, and
    amdgpu resets members of a hive together only. Source: amdgpu_device.c, amdgpu_device_xgmi_reset_func.
    """
    driven = linked.driven(function)
    if driven:
        seen = f"{', '.join(one.address for one in driven)}, linked with it (XGMI), with {driven[0].driver}"
        todo = "`ringup bind` each of them too, or leave this card with amdgpu and use `kfd:`"
        yield Finding("linked cards", REFUSE, f"a reset of the card would break the links of {seen}", todo)


def lock(function: Function) -> Iterator[Finding]:
    """Report which process holds ringup's own lock. Opening takes it, and may wait for it; so this is no refusal."""
    holder = CardLock(function.kernel, function.address).holder()
    yield Finding("lock", NOTE, f"held by {holder}", "end it or wait for it") if holder else Finding("lock", OK, "free")


def bars(function: Function) -> Iterator[Finding]:
    """The kernel must have found room for the BARs; VRAM's should show all of it."""
    found = function.bars()
    wrong = trouble(
        function.vendor if function.gpu else 0, {bar.index: bar.size_bytes for bar in found.values() if bar.start}
    )
    if not found or any(not bar.start for bar in found.values()):
        wrong = (
            f"the kernel has given the card no addresses; {wrong}"
            if wrong
            else "the kernel has given the card no addresses"
        )
    if wrong:
        yield Finding("BARs", REFUSE, wrong, REMEDY + advice.booted_with(function.kernel, "pci=realloc"))
        return
    sizes = ", ".join(f"{bar.index}: {bar.size_bytes >> 10} KiB" for bar in found.values())
    largest = max(bar.size_bytes for bar in found.values())
    if largest <= SMALL_BAR:
        yield Finding(
            "BARs",
            NOTE,
            sizes,
            "VRAM shows through a small window: resizable BAR in the firmware set-up makes it quicker",
        )
    else:
        yield Finding("BARs", OK, sizes)


def host(function: Function) -> Iterator[Finding]:
    """The host's caches must see a card's writes, and its stores must reach the card in order, without instructions
    that Python lacks.
    """
    machine = platform.machine()
    if machine in COHERENT_HOSTS:
        yield Finding("host", OK, machine)
    else:
        yield Finding(
            "host", REFUSE, f"{machine} orders memory too loosely to drive a card from Python", "use an x86-64 host"
        )


def power(function: Function) -> Iterator[Finding]:
    """A sleeping card is woken by opening it; one without power is not, nor one that reads all ones."""
    state = function.kernel.text(function.path / "power_state")
    asleep = state not in ("", "D0", "unknown")
    if state not in UNREADABLE and not reads_as_there(function):
        seen = "every register reads all ones: it is gone from the bus, or its link is down"
        if function.driver:
            yield Finding(
                "power",
                REFUSE,
                seen,
                "check power and cable, then have the kernel look again, as root: "
                f"echo 1 > {function.kernel.shown(function.path / 'remove')}; echo 1 > /sys/bus/pci/rescan",
            )
        else:
            yield Finding("power", NOTE, seen, "check power and cable; opening it has the kernel look for it anew")
        return
    yield Finding("power", NOTE if asleep else OK, state or "unknown", "opening wakes it" if asleep else "")


def link(function: Function) -> Iterator[Finding]:
    """The link should run as fast and wide as card and slot can. Idle cards slow down: a note at most."""
    seen = link_of(function)
    names = ("current_link_speed", "max_link_speed", "current_link_width", "max_link_width")
    speed, top_speed, width, top_width = (function.kernel.text(function.path / name) for name in names)
    slow = bool(seen) and (speed, width) != (top_speed, top_width)
    remedy = (
        f"the card can do {top_speed} x{top_width}; idle cards slow down, slots may have fewer lanes" if slow else ""
    )
    yield Finding("link", NOTE if slow else OK, seen or "unknown", remedy)


def locked_memory(function: Function) -> Iterator[Finding]:
    """Memory that a card reaches must stay in place, which a limit bounds."""
    limit = advice.locked_limit()
    few = limit is not None and limit < ENOUGH_LOCKED
    remedy = f"host memory for the card ends there: {advice.raise_limit(function.kernel)}" if few else ""
    yield Finding("locked memory", NOTE if few else OK, advice.shown_limit(), remedy)


def group(function: Function) -> Iterator[Finding]:
    """VFIO opens whole IOMMU groups: no other function of the group may belong to another driver."""
    if not function.group:
        yield Finding(
            "group",
            REFUSE,
            "no IOMMU group",
            "enable VT-d or AMD-Vi in the firmware set-up and "
            + advice.boot_option(
                function.kernel, "intel_iommu=on", "amd_iommu=on", otherwise="the firmware does not offer it"
            ),
        )
        return
    for mate in function.mates():
        if mate.driver not in HARMLESS_DRIVERS:
            seen = f"group {function.group} is not viable: {mate.address} belongs to {mate.driver}"
            yield Finding("group", REFUSE, seen, f"`ringup bind {function.address}` takes the whole group")
            return
    mates = ", ".join(mate.address for mate in function.mates())
    yield Finding("group", OK, f"{function.group}: {mates}")


def vfio_nodes(function: Function) -> Iterator[Finding]:
    """This user must be allowed to open VFIO's nodes."""
    kernel = function.kernel
    names = kernel.names(function.path / "vfio-dev")
    pair = [kernel.path("dev/vfio/devices", name) for name in names] + [kernel.path("dev/iommu")]
    if not (names and all(path.exists() for path in pair)):
        pair = [kernel.path("dev/vfio/vfio"), kernel.path("dev/vfio", function.group)]
    for path in pair:
        shown = kernel.shown(path)
        if not path.exists():
            loaded = kernel.path("sys/module/vfio_pci").is_dir()
            todo = f"`ringup bind {function.address}`" if loaded else "as root: modprobe vfio-pci"
            yield Finding("permissions", REFUSE, f"{shown} is not there", todo)
        elif not os.access(path, READ_WRITE):
            rule = f"`sudo ringup setup --apply` writes a rule, or as root: chown $USER {shown}"
            if advice.rule_there(kernel, 'SUBSYSTEM=="vfio"'):
                rule = "the rule of `ringup setup` is written and was not applied: as root udevadm trigger --subsystem-match=vfio"
            yield Finding("permissions", REFUSE, f"no permission for {shown}", rule)
        else:
            continue
        return
    yield Finding("permissions", OK, " and ".join(map(kernel.shown, pair)))


def sysfs_nodes(function: Function) -> Iterator[Finding]:
    """This user must be allowed to write the function's files."""
    kernel = function.kernel
    for name in ("config", *(f"resource{index}" for index in function.bars())):
        if not os.access(function.path / name, READ_WRITE):
            shown = kernel.shown(function.path / name)
            yield Finding(
                "permissions", REFUSE, f"no permission for {shown}", "run as root, or use VFIO: `ringup bind`"
            )
            return
    yield Finding("permissions", OK, "config and BARs are writable")


def lockdown(function: Function) -> Iterator[Finding]:
    """A locked-down kernel lets no process write BARs through sysfs; it allows VFIO. Source: kernel_lockdown(7)."""
    text = function.kernel.text(function.kernel.path("sys/kernel/security/lockdown"))
    chosen = re.search(r"\[(\w+)\]", text)
    mode = chosen[1] if chosen else "none"
    if mode == "none":
        yield Finding("lockdown", OK, mode)
    else:
        remedy = f"use VFIO: `ringup bind {function.address}`; or switch Secure Boot off"
        yield Finding("lockdown", REFUSE, f"the kernel is locked down ({mode}): BARs are closed", remedy)


def iommu(function: Function) -> Iterator[Finding]:
    """Over sysfs the card is given physical addresses: an IOMMU that translates would stop every access."""
    kind = function.group_type
    if kind in TRANSLATING or kind == "blocked":
        yield Finding(
            "IOMMU",
            REFUSE,
            f"group {function.group} translates ({kind}): physical addresses would fault",
            f"use VFIO, `ringup bind {function.address}`; or as root write identity to /sys/kernel/iommu_groups/{function.group}/type",
        )
    elif kind:
        yield Finding("IOMMU", OK, kind)
    else:
        yield Finding("IOMMU", NOTE, "none seen", "the card can reach all of memory: prefer VFIO with an IOMMU")


Look = Callable[[Function], Iterator[Finding]]
LOOKS: tuple[Look, ...] = (host, bars, holders, companions, linked_cards, lock, power, link, locked_memory)
LOOKS_BY_PATH: dict[str, tuple[Look, ...]] = {
    VFIO: (driver_for_vfio, group, vfio_nodes),
    SYSFS: (driver_for_sysfs, lockdown, iommu, sysfs_nodes),
}
