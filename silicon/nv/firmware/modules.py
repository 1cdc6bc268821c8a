"""Made-up GSP firmware as the file that NVIDIA's open kernel modules load: an ELF file whose sections are the release,
the image, and a signature for each family of chips.

The modules bring the programs that start it (booter, bootloader, loader) themselves. Sources: kernel_gsp.c
(_kgspPrepareGspRmBinaryImage) and nv-firmware.h (names) of NVIDIA's open kernel modules 535.261.03.
"""

from __future__ import annotations

from ringup.silicon.nv.chips.row import ChipRow
from ringup.silicon.nv.common.signed import STAMP_BYTES, Part, stamp
from ringup.silicon.nv.firmware import elf, images
from ringup.silicon.nv.firmware.nouveau import FAMILIES

# what Debian 12 has; the modules compare it with their own release
RELEASE = "535.261.03"
# the chips that one file is for
FILES = {"gsp_tu10x.bin": ("tu102",), "gsp_ga10x.bin": ("ga102", "ad102")}


def files(chip: ChipRow) -> dict[str, bytes]:
    """Return the file that the modules ask for, by its name below the folder of firmware; none for a chip that this
    release is not tried with.
    """
    name, chips = next(((name, chips) for name, chips in FILES.items() if chip.name in chips), ("", ()))
    if not name:
        return {}

    def filled(part: Part, names: str, size_bytes: int) -> bytes:
        return stamp(part, names, RELEASE, bytes(size_bytes - STAMP_BYTES))

    sections = {
        ".fwversion": RELEASE.encode() + b"\0",
        ".fwimage": filled(Part.GSP_RM, " ".join(chips), images.GSP_BYTES),
    }
    for one in chips:
        sections[f".fwsignature_{FAMILIES[one]}"] = filled(Part.SIGNATURE, one, images.SECTION_BYTES)
    return {f"nvidia/{RELEASE}/{name}": elf.build(sections)}
