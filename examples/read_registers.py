"""Registers by name: where they are on this chip, and what their fields say on a card that is up.

python examples/read_registers.py virtual:navi31
"""

import sys

import ringup
from ringup.autogen.amd.gc import GRBM_STATUS
from ringup.autogen.amd.nbio import RCC_DEV0_EPF0_RCC_CONFIG_MEMSIZE


def main(name: str) -> None:
    with ringup.open(name, kind=ringup.Radeon) as card:
        # A block knows its version on this chip, so a register is named and not addressed.
        core, bus = card.blocks.gfx.block, card.blocks.nbio.block
        print(f"GRBM_STATUS is at byte {core.address(GRBM_STATUS):#x} of the registers")
        print(core.read(GRBM_STATUS))
        size_mib = int(bus.read(RCC_DEV0_EPF0_RCC_CONFIG_MEMSIZE))
        print(f"{size_mib} MiB of memory")
        assert size_mib << 20 == card.info.vram_bytes


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(*sys.argv[1:])
