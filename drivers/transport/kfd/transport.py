"""The transport `kfd`: Radeons that stay with the kernel's amdgpu, `kfd:0`, through /dev/kfd and their render nodes."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ringup.cards import Found
from ringup.drivers.select import unsupported
from ringup.drivers.transport.kfd.calls import NODE
from ringup.drivers.transport.kfd.device import KfdDevice
from ringup.drivers.transport.kfd.process import Process, missing, permission
from ringup.drivers.transport.kfd.topology import Node, gpus
from ringup.drivers.transport.linux.kernel import Kernel
from ringup.errors import NoSuchCard, NotSupported

PREFIX, UNSUPPORTED = "kfd:", "seen, not supported: "
NUMBER = re.compile(r"[0-9]{1,3}")


def find(kernel: Kernel | None = None) -> Iterable[Found]:
    """List the cards that amdkfd lists, with the reason for one that cannot be opened now. No node is opened."""
    return [_found(number, node) for number, node in enumerate(gpus(kernel or Kernel()))]


def open(rest: str, *, process: Process | None = None) -> KfdDevice:
    """Open the path to card number `rest`, in the order of `find`. `process`: a context of the caller's own, for tests.

    Raises `NoSuchCard` for a number that is not there, `NotSupported` for a chip or a kernel that does not fit,
    `PermissionNeeded` with the group to join, `CardBusy` if this process has it open.
    """
    node = node_of(rest, process.kernel if process else Kernel())
    if reason := _unsupported(node):
        raise NotSupported(f"opening {PREFIX}{rest}: {reason}")
    return KfdDevice(f"{PREFIX}{int(rest)}", node, process)


def node_of(rest: str, kernel: Kernel) -> Node:
    """Return the node with that number among the GPUs. Raises `NoSuchCard`."""
    found = gpus(kernel)
    if not NUMBER.fullmatch(rest):
        raise NoSuchCard(f"{PREFIX}{rest} names no card: a number follows, as in kfd:0")
    if int(rest) >= len(found):
        listed = ", ".join(f"{PREFIX}{number}" for number in range(len(found))) or "none: amdgpu is not loaded"
        raise NoSuchCard(f"opening {PREFIX}{rest}: the kernel's compute topology has no such GPU; it has {listed}")
    return found[int(rest)]


def skipped(node: Node) -> str:
    """Say why a card cannot be opened now; empty if it can."""
    kernel = node.kernel
    if reason := _unsupported(node):
        return f"{UNSUPPORTED}{reason}"
    for path in (kernel.path(NODE), node.render_path):
        if reason := missing(kernel, path) or permission(kernel, path):
            return reason
    return "" if node.gpu_id else "the kernel does not tell its number: a device cgroup may forbid it"


def describe(node: Node) -> str:
    """Return a line that says what a card is."""
    seen = node.properties
    ids = f"{seen.get('vendor_id', 0):04x}:{seen.get('device_id', 0):04x}"
    return f"AMD {ids} {node.target}, {node.vram_bytes >> 20} MiB, at {node.address}, driven by amdgpu"


def _found(number: int, node: Node) -> Found:
    return Found(f"{PREFIX}{number}", describe(node), skipped(node))


def _unsupported(node: Node) -> str:
    return unsupported(node.properties.get("vendor_id", 0), node.properties.get("device_id", 0))
