"""The chips this driver knows, by the version of their graphics core. A chip's blocks bring their own rows, by the
version each of them has.

Source: Linux Documentation/gpu/amdgpu/dgpu-asic-info-table.csv; LLVM AMDGPUUsage, "Processors", "Target ID";
amdgpu_discovery.c.
"""

from __future__ import annotations

from typing import NamedTuple

from ringup.drivers.amd.bus.registers import Version
from ringup.errors import NotSupported


class Chip(NamedTuple):
    """What a graphics core's version tells: AMD's name, the compiler's target, and the settings of features that code
    may be built for. A card runs code of other settings only if it was built for none.
    """

    name: str
    target: str
    features: str = ""

    @property
    def target_id(self) -> str:
        """The target with its settings, such as gfx942:sramecc+:xnack-."""
        return self.target + self.features


CHIPS: dict[Version, Chip] = {
    (11, 0, 0): Chip("navi31", "gfx1100"),
    (11, 0, 2): Chip("navi33", "gfx1102"),
    (11, 0, 3): Chip("navi32", "gfx1101"),
    (12, 0, 0): Chip("navi44", "gfx1200"),
    (12, 0, 1): Chip("navi48", "gfx1201"),
    # Its memories have ECC. XNACK is off: a wave whose page is missing does not try again (RETRY_DISABLE,
    # `gfx/rows.py`), as under amdgpu (amdgpu_gmc_noretry_set). Source: LLVM AMDGPUUsage, "Target Features"; what
    # rocminfo prints for an MI300X.
    (9, 4, 3): Chip("mi300x", "gfx942", ":sramecc+:xnack-"),
}


def chip(gc: Version) -> Chip:
    """Return the chip with this graphics core. Raises `NotSupported`, which names the nearest chip, for another."""
    if gc not in CHIPS:
        known = ", ".join(f"{row.name} ({'.'.join(map(str, version))})" for version, row in CHIPS.items())
        # on use: a card that is known needs no reader of images to be found
        from ringup.firmware.amd.needs import nearest

        like = nearest(gc, CHIPS)
        raise NotSupported(
            f"the graphics core is version {'.'.join(map(str, gc))}; there are drivers for {known}"
            + (f"; the nearest is {CHIPS[like].name}" if like else "")
        )
    return CHIPS[gc]
