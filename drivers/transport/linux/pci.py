"""The transport `pci`: GPUs on this machine's PCI bus, `pci:0000:03:00.0`, over VFIO or sysfs.

VFIO where the function is bound to it; sysfs where no driver holds it. A path that the caller names is always used.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial

from ringup.cards import Found
from ringup.drivers.cleanup import undone_on_error
from ringup.drivers.select import unsupported
from ringup.drivers.transport.clock import HostClock
from ringup.drivers.transport.linux import preflight, thunderbolt
from ringup.drivers.transport.linux.device import PciDevice, Way
from ringup.drivers.transport.linux.function import Function, gpus_of
from ringup.drivers.transport.linux.function import find as find_function
from ringup.drivers.transport.linux.kernel import Kernel
from ringup.drivers.transport.linux.linked import held_by_others
from ringup.drivers.transport.linux.lock import CardLock
from ringup.drivers.transport.linux.sysfs import SysfsWay, revive, stale
from ringup.drivers.transport.linux.vfio import VfioWay
from ringup.errors import RingupError

LOG = logging.getLogger(__name__)
AUTO = "auto"
WAYS: dict[str, Callable[[Function], Way]] = {preflight.VFIO: VfioWay, preflight.SYSFS: SysfsWay}


def find(kernel: Kernel | None = None) -> Iterable[Found]:
    """List the GPUs of known vendors, with the reason for one that cannot be opened now, and enclosures whose card has
    not come up.

    No card is accessed.
    """
    kernel = kernel or Kernel()
    return [*(_found(function) for function in gpus_of(kernel)), *thunderbolt.find(kernel)]


def open(rest: str, *, path: str = AUTO, wait_s: float = 0, kernel: Kernel | None = None) -> PciDevice:
    """Lock the function at the address `rest` and return it, memory decoding on, bus mastering off.

    `path`: "vfio", "sysfs", or "auto" for the one that fits its kernel driver. `wait_s`: seconds to wait for another
    process that runs ringup and holds the card. Raises `ValueError` for another path, `NoSuchCard`, and the preflight's
    refusals: `CardBusy`, `PermissionNeeded`, `NotSupported`.
    """
    if path not in (AUTO, *WAYS):
        raise ValueError(f"a path to a PCI card is {AUTO}, {' or '.join(WAYS)}, not {path!r}")
    function = find_function(kernel or Kernel(), rest)
    name = f"pci:{function.address}"
    clock, lock = HostClock(), CardLock(function.kernel, function.address)
    lock.take(clock, wait_s)
    with undone_on_error(lock.release):
        chosen = preflight.path_for(function) if path == AUTO else path
        _refuse(function, chosen)
        if chosen == preflight.SYSFS and stale(function):
            revive(function)
            # again: the function has a new IOMMU group, and a driver may have taken it
            _refuse(function, chosen)
        way = WAYS[chosen](function)
    return PciDevice(name, way, lock, clock, partial(held_by_others, function))


def _refuse(function: Function, path: str) -> None:
    name = f"pci:{function.address}"
    findings = preflight.examine(function, path)
    for finding in findings:
        LOG.debug("%s: %s: %s: %s", name, finding.what, finding.state, finding.seen)
    preflight.refuse(findings, f"opening {name} over {path}")


def _found(function: Function) -> Found:
    if held := preflight.other_name(function):
        return Found(
            f"pci:{function.address}", function.describe(), f"the kernel's {function.driver} drives it: {held}"
        )
    if reason := unsupported(function.vendor, function.device):
        kept = f"; the kernel's {function.driver} drives it" if function.driver else ""
        return Found(f"pci:{function.address}", function.describe(), f"seen, not supported: {reason}{kept}")
    path = preflight.path_for(function)
    skipped = ""
    try:
        preflight.refuse(preflight.examine(function, path), f"over {path}")
    except RingupError as error:
        skipped = str(error)
    return Found(f"pci:{function.address}", f"{function.describe()}, over {path}", skipped)
