"""Checks of `ringup doctor` for Radeons that the kernel's amdgpu drives: whether this user may use them as `kfd:0`."""

from __future__ import annotations

from collections.abc import Iterator

from ringup.drivers.transport.kfd import transport
from ringup.drivers.transport.kfd.topology import gpus
from ringup.drivers.transport.linux.kernel import Kernel
from ringup.tools.host.finding import FINE, OPTIONAL, WRONG, Line


def examine(kernel: Kernel) -> Iterator[Line]:
    """Yield a finding for every card of the kernel's compute topology. No node is opened."""
    for number, node in enumerate(gpus(kernel)):
        skipped = transport.skipped(node)
        state = FINE if not skipped else OPTIONAL if skipped.startswith(transport.UNSUPPORTED) else WRONG
        yield Line("cards", f"{transport.PREFIX}{number}", state, transport.describe(node), skipped)
