"""The transport `nvidia`: cards that stay with NVIDIA's kernel driver, `nvidia:0`, through /dev/nvidiactl and their
nodes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Any

from ringup.cards import Found
from ringup.drivers.transport.linux.kernel import Kernel
from ringup.drivers.transport.linux.nvidia_proc import facts, listed
from ringup.drivers.transport.nvidia.device import NvidiaDevice, join, missing
from ringup.drivers.transport.nvidia.system import CONTROL_NODE, ModelSystem, System, node_of
from ringup.errors import NoSuchCard

PREFIX = "nvidia:"
NUMBER = re.compile(r"[0-9]{1,3}")


def find(kernel: Kernel | None = None) -> Iterable[Found]:
    """List the cards that the kernel's driver has, with the reason for one that cannot be opened now. No node is
    opened: that would start a card.
    """
    kernel = kernel or Kernel()
    return [_found(kernel, address, text) for address, text in listed(kernel)]


def open(
    rest: str, *, model: Any = None, owned: bool = False, system: System | None = None, name: str = ""
) -> NvidiaDevice:
    """Open the path to the card whose node has number `rest`.

    `model`: a machine in this process (`ringup.silicon.nvidia_kernel`), instead of this one; it ends with the path if
    that is its owner. Raises `NoSuchCard` for a
    number that is not there, and what `NvidiaDevice` raises.
    """
    if not NUMBER.fullmatch(rest):
        raise NoSuchCard(f"{PREFIX}{rest} names no card: the number of its node follows, as in nvidia:0")
    if model is not None:
        system = ModelSystem(model, owned=owned)
    return NvidiaDevice(name or f"{PREFIX}{int(rest)}", int(rest), system)


def _found(kernel: Kernel, address: str, text: str) -> Found:
    seen = facts(text)
    minor = seen.get("Device Minor", "")
    model = seen.get("Model", "NVIDIA card")
    if not minor.isdigit():
        return Found(f"{PREFIX}?", f"{model}, at {address}", "the driver has made no node for it")
    return Found(f"{PREFIX}{minor}", f"{model}, at {address}, driven by NVIDIA's driver", _skipped(kernel, int(minor)))


def _skipped(kernel: Kernel, minor: int) -> str:
    for node in (CONTROL_NODE, node_of(minor)):
        path = kernel.path(node)
        if not path.exists():
            return f"{node} is not there: {missing(kernel)}"
        if not os.access(path, os.R_OK | os.W_OK):
            return f"no permission for {node}: {join(kernel, path)}"
    return ""
