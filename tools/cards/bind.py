"""`ringup bind` and `ringup unbind`: give a card's functions to VFIO, or back to the kernel's own drivers. The plan is
shown.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict

from ringup.drivers.amd.bus.ids import PROCESSOR, family
from ringup.drivers.transport.clock import HostClock
from ringup.drivers.transport.linux import bind, preflight
from ringup.drivers.transport.linux.function import Function, find
from ringup.drivers.transport.linux.kernel import Kernel
from ringup.drivers.transport.linux.lock import CardLock
from ringup.tools.command_line.card_argument import ENVIRONMENT, add_card_arguments, named
from ringup.tools.common.json_text import json_text

AMD = 0x1002
PREFIX = "pci:"
DRIVERS = (preflight.VFIO_DRIVER, bind.NOBODY)


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "bind",
        help="give a card to VFIO, with its whole IOMMU group",
        description="Take a card and all of its IOMMU group from the kernel's drivers. The plan is "
        "printed. If a step fails, "
        "all steps are undone.",
    )
    parser.add_argument(
        "--driver",
        choices=DRIVERS,
        default=preflight.VFIO_DRIVER,
        help="driver that gets it (default: %(default)s; none: no driver, for sysfs)",
    )
    parser.add_argument(
        "--whole-group",
        action="store_true",
        help="also give other devices that are in its IOMMU group",
    )
    add_common(parser)


def add_common(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of both `bind` and `unbind`."""
    parser.add_argument(
        "card", nargs="?", metavar="CARD", help=f"pci:0000:03:00.0 or 0000:03:00.0 (default: {ENVIRONMENT})"
    )
    add_card_arguments(parser, positional=False, json="print an object: card, steps, objections, done")
    parser.add_argument("--dry-run", action="store_true", help="show the plan and its problems; change nothing")


def run(args: argparse.Namespace, kernel: Kernel | None = None) -> int:
    """Show the plan, then carry it out. `kernel` has sysfs."""
    return carry_out(args, kernel or Kernel(), args.driver, whole_group=args.whole_group)


def carry_out(args: argparse.Namespace, kernel: Kernel, driver: str | None, *, whole_group: bool = False) -> int:
    """Give the card's group to `driver`, None for the kernel's choice. Status 1: a dry run found a
    problem.
    """
    function = find(kernel, named(args).removeprefix(PREFIX))
    steps = bind.plan_unbind(function) if driver is None else bind.plan_bind(function, driver)
    against = [*_of_processor(function, driver), *bind.objections(function, driver, whole_group=whole_group)]
    done = not args.dry_run and not against
    report = {
        "card": f"{PREFIX}{function.address}",
        "steps": [asdict(step) for step in steps],
        "objections": [asdict(finding) for finding in against],
    }
    if not args.json:
        _show(function, steps, against, driver)
    if not args.dry_run:
        preflight.refuse(against, f"handing {function.address} over")
        lock = CardLock(kernel, function.address)
        lock.take(HostClock())
        try:
            bind.carry_out(kernel, steps)
        finally:
            lock.release()
    if args.json:
        print(json_text({**report, "done": done}, indent=1))
    elif done and steps:
        owners = ", ".join(f"{mate.address}: {mate.driver or 'no driver'}" for mate in function.companions())
        print(f"done: {owners}")
    return 1 if args.dry_run and against else 0


def _of_processor(function: Function, driver: str | None) -> list[preflight.Finding]:
    """Return the problem of integrated graphics: the other functions of their slot are the machine's USB and sound."""
    name = family(function.device) if function.vendor == AMD else ""
    if driver is None or PROCESSOR not in name:
        return []
    remedy = "its slot holds the machine's own USB and sound: leave it to the kernel"
    return [preflight.Finding("card", preflight.REFUSE, f"it is {name}", remedy)]


def _show(function: Function, steps: list[bind.Step], against: list[preflight.Finding], driver: str | None) -> None:
    group = f", IOMMU group {function.group}" if function.group else ""
    print(
        f"{PREFIX}{function.address} ({function.describe()}{group}) to {driver or 'the driver that the kernel chooses'}"
    )
    for number, step in enumerate(steps, 1):
        print(f"  {number}. {step}")
    if not steps:
        print("  nothing to do")
    for finding in against:
        print(f"  problem: {finding.what}: {finding.seen}; {finding.remedy}")
