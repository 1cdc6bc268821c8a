"""Advice for the user when the kernel refuses something. It depends on the errno, contains numbers, and says whether it
was followed already.

Source: Linux drivers/vfio/vfio_iommu_type1.c, vfio_dma_do_map and vfio_pin_pages_remote; drivers/iommu/iommufd;
getrlimit(2); proc(5).
"""

from __future__ import annotations

import errno
import resource
from collections.abc import Sequence
from pathlib import Path

from ringup.drivers.transport.linux.kernel import Kernel

KIB = 1024
LIMIT_FILE, RULE_FILE = "etc/security/limits.d/70-ringup.conf", "etc/udev/rules.d/70-ringup.rules"
LIMIT_LINE = "@render - memlock unlimited"
# the errors of VFIO for a mapping, except ENOMEM
MAPPING = {
    errno.EINVAL: "the IOMMU does not accept that address, size or alignment",
    errno.EFAULT: (
        "the memory does not belong to this process, or cannot be pinned:"
        " it is a file on some file systems, or a device's"
    ),
    errno.EBUSY: "the kernel is taking the card or its group back: `dmesg` may say why",
    errno.EEXIST: "the address is taken already: close the card and open it again",
    errno.EADDRINUSE: "the address is taken already: close the card and open it again",
    errno.ENOSPC: (
        "VFIO allows no more mappings: use fewer, larger buffers, or as root write a larger number to"
        " /sys/module/vfio_iommu_type1/parameters/dma_entry_limit"
    ),
    errno.EPERM: "memory that may not be written cannot be given to a card",
}


def locked_limit() -> int | None:
    """Return how many bytes this process may lock; None for no limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return None if soft == resource.RLIM_INFINITY else soft


def shown_limit() -> str:
    """Return how much memory this process may lock, as text."""
    limit = locked_limit()
    return "unlimited" if limit is None else f"{limit // KIB} KiB"


def raise_limit(kernel: Kernel) -> str:
    """Return how to raise the limit of locked memory. After `ringup setup --apply`, the user only has to log in
    again.
    """
    if "memlock" in kernel.text(kernel.path(LIMIT_FILE)):
        return (
            f"/{LIMIT_FILE} raises it and was not applied to this session:"
            " log in again, as a member of the group that it names"
        )
    _, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    soft = locked_limit()
    if soft is not None and (hard == resource.RLIM_INFINITY or hard > soft):
        return f"`ulimit -l {'unlimited' if hard == resource.RLIM_INFINITY else hard // KIB}` raises it in this shell"
    return (
        f"the line `{LIMIT_LINE}` in /{LIMIT_FILE} raises it (`sudo ringup setup --apply` writes it), then log in again"
    )


def of_mapping(kernel: Kernel, code: int | None, size_bytes: int) -> str:
    """Return what a refusal to map memory for a card means."""
    return of_locking(kernel, size_bytes) if code == errno.ENOMEM else MAPPING.get(code or 0, "`dmesg` may say why")


def of_locking(kernel: Kernel, size_bytes: int) -> str:
    """Return what to do if memory cannot be locked: there is too little memory, or the process may not lock so much."""
    if locked_limit() is None:
        return (
            "this process may lock any amount, so the machine itself is short of memory: end a program that uses much"
        )
    locked = kernel.text(kernel.path("proc/self/status")).partition("VmLck:")[2].split()
    now = f", {locked[0]} KiB of them locked already" if locked and locked[0].isdigit() else ""
    return (
        f"{size_bytes // KIB} KiB more would be locked, and this process may lock {shown_limit()} (`ulimit -l`){now}: "
        f"{raise_limit(kernel)}"
    )


def of_vfio_node(code: int | None) -> str:
    """Return what a refusal to open a node of VFIO means."""
    return {
        errno.EBUSY: "another process holds it",
        errno.EPERM: "a kernel driver has another function of its group: `ringup bind` takes them all",
        errno.EACCES: "`ringup setup` shows the rule that lets you",
        errno.ENOENT: "as root: modprobe vfio-pci, then `ringup bind`",
    }.get(code or 0, "`dmesg` may say why")


def of_set_iommu(code: int | None) -> str:
    """Return what a refusal to set up the IOMMU for a group means. Source: vfio_iommu_type1_attach_group."""
    if code == errno.EPERM:
        return "this IOMMU cannot remap interrupts, which is refused unless vfio_iommu_type1.allow_unsafe_interrupts=1"
    return "`dmesg` may say why"


def boot_option(kernel: Kernel, *options: str, otherwise: str) -> str:
    """Return the advice to boot with one of the options. If one is on the kernel's command line already, return
    `otherwise`.
    """
    there = _booted_with(kernel, options)
    return f"the kernel was booted with {there} already: {otherwise}" if there else f"boot with {' or '.join(options)}"


def booted_with(kernel: Kernel, *options: str) -> str:
    """Return a text to add to advice that names boot options: which of them is on the kernel's command line already."""
    there = _booted_with(kernel, options)
    return f" (the kernel was booted with {there} already)" if there else ""


def _booted_with(kernel: Kernel, options: Sequence[str]) -> str:
    words = kernel.text(kernel.path("proc/cmdline")).split()
    return next((option for option in options if option in words), "")


def rule_there(kernel: Kernel, *words: str) -> bool:
    """Return whether the rule of `ringup setup` is written and contains these words."""
    text = kernel.text(kernel.path(RULE_FILE))
    return bool(text) and all(word in text for word in words)


def group_of(path: Path) -> str:
    """Return the name of a file's group. If the group has no name, as in some containers, return its number."""
    try:
        return path.group()
    except KeyError:
        return f"{path.stat().st_gid}, which has no name here"


def join_group(kernel: Kernel, path: Path, user: str, gids: list[int]) -> str:
    """Return how a user becomes a member of a file's group. A user who was added after the last log-in only has to log
    in again.
    """
    group = group_of(path)
    rows = (line.split(":") for line in kernel.text(kernel.path("etc/group")).splitlines())
    members = {row[0]: row[3].split(",") for row in rows if len(row) == 4}
    if user and user in members.get(group, ()) and path.stat().st_gid not in gids:
        return f"{user} is in group {group}, and was not at the last log-in: log in again"
    return f"add yourself to group {group}, then log in again"
