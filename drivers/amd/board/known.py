"""Which versions of a card's blocks have rows in this driver, and the nearest one to stand in for a version without:
for who says `force`, on a card whose blocks are newer than this driver or were never tried with it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from ringup.drivers.amd.bus.chips import CHIPS
from ringup.drivers.amd.bus.discovery import Ips, with_facts
from ringup.drivers.amd.bus.nbio import Nbio
from ringup.drivers.amd.bus.nbio_dies import SpreadNbio
from ringup.drivers.amd.bus.registers import Version
from ringup.drivers.amd.psp.processor import ROWS as PSP
from ringup.drivers.amd.smu.rows import ROWS as SMU
from ringup.errors import NotSupported

LOG = logging.getLogger(__name__)


def known() -> Mapping[str, Collection[Version]]:
    """Return the versions with rows, by block."""
    # on use, here and below: few cards are forced
    from ringup.firmware.amd.needs import WANTED

    return {
        "gc": CHIPS,
        "sdma0": WANTED["sdma"],
        "nbio": {*Nbio.known, *SpreadNbio.known},
        "mmhub": with_facts("mmhub"),
        "mp0": PSP,
        "mp1": SMU,
    }


def check(ips: Ips) -> None:
    """Raise `NotSupported` for a version without rows that has a nearest one, and say how it may be driven."""
    from ringup.firmware.amd.needs import nearest

    for name, rows in known().items():
        stated = ips.stated(name)
        like = None if stated in rows else nearest(stated, rows)
        if like is not None:
            named, instead, *others = (".".join(map(str, version)) for version in (stated, like, *sorted(rows)))
            chip = f", that of {CHIPS[like].name}," if name == "gc" else ""
            raise NotSupported(
                f"{name.upper()} is version {named}, which this driver has no rows for; known are {', '.join(others)};"
                f" the nearest is {instead}{chip} and `ringup up --force`, in Python `open(…, force=True)`, drives it as that"
            )


def force(ips: Ips, device: str) -> None:
    """Let the nearest version with rows stand in for each version of the card's blocks that has none, and warn. A block
    of another major version stays as it is: what asks for it raises `NotSupported`.
    """
    from ringup.firmware.amd.needs import nearest

    for name, rows in known().items():
        stated = ips.stated(name)
        like = None if stated in rows else nearest(stated, rows)
        if like is not None:
            LOG.warning("%s: %s", device, ips.stand_in(name, like))
