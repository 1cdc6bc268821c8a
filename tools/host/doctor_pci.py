"""Checks of `ringup doctor` for GPUs on the PCI bus: all checks before opening one, and whether it is behind a bridge
in USB4 mode.
"""

from __future__ import annotations

from collections.abc import Iterator

from ringup.drivers.select import unsupported
from ringup.drivers.transport.linux import preflight
from ringup.drivers.transport.linux.function import Function, gpus_of
from ringup.drivers.transport.linux.kernel import Kernel
from ringup.tools.host.finding import FINE, OPTIONAL, WRONG, Line

STATES = {preflight.OK: FINE, preflight.NOTE: OPTIONAL, preflight.REFUSE: WRONG}
IN_USE = ("driver", "console", "holders", "lock")  # another program uses the card: nothing is wrong
ALWAYS = ("BARs", "link", "power")  # worth knowing while another driver holds the card
ONCE = ("locked memory", "host")  # of the machine; reported elsewhere
VENDORS = {0x1002: "AMD", 0x10DE: "NVIDIA"}


def examine(kernel: Kernel) -> Iterator[Line]:
    """Yield findings of every GPU that the kernel lists."""
    for function in gpus_of(kernel):
        elsewhere = preflight.other_name(function)
        reason = "" if elsewhere else unsupported(function.vendor, function.device)
        yield _card(function, reason, elsewhere)
        # the conditions for opening it do not matter if ringup cannot drive it
        if not reason:
            yield from _looks(function)


def _card(function: Function, reason: str, elsewhere: str) -> Line:
    console = function.kernel.number(function.path / "boot_vga") == 1
    todo = "this card shows the console: ringup leaves it alone" if console else ""
    seen = f"{VENDORS.get(function.vendor, '?')} {function.device:#06x}, {function.driver or 'no driver'}"
    if reason:
        todo = "; ".join(filter(None, (reason, todo)))
        return Line("cards", f"pci:{function.address}", OPTIONAL, f"{seen}: seen, not supported", todo)
    return Line("cards", f"pci:{function.address}", FINE, seen, todo or elsewhere)


def _looks(function: Function) -> Iterator[Line]:
    found = [one for one in preflight.examine(function, preflight.path_for(function)) if one.what not in ONCE]
    taken = any(one.state == preflight.REFUSE and one.what in IN_USE for one in found)
    for one in found:
        if taken and one.what not in (*IN_USE, *ALWAYS):
            # the conditions for opening it, which the user has not asked for
            continue
        state = OPTIONAL if one.what in IN_USE and one.state == preflight.REFUSE else STATES[one.state]
        yield Line("cards", f"pci:{function.address} {one.what}", state, one.seen, one.remedy)
