"""`ringup unbind`: give a card's functions back to the kernel's own drivers. `ringup.tools.cards.bind`
does the work.
"""

from __future__ import annotations

import argparse

from ringup.drivers.transport.linux.kernel import Kernel
from ringup.tools.cards.bind import add_common, carry_out


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "unbind",
        help="give a card back to the kernel's own driver",
        description="Give a card and all of its IOMMU group back to the drivers that the kernel chooses. "
        "The plan is printed.",
    )
    add_common(parser)


def run(args: argparse.Namespace, kernel: Kernel | None = None) -> int:
    """Show the plan, then carry it out. `kernel` has sysfs."""
    return carry_out(args, kernel or Kernel(), None)
