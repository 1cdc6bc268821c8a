"""Registers of image instructions: the number of data and address VGPRs, from dmask, dim, a16, d16, tfe and nsa.

Source: RDNA3 ISA reference, "Image Instructions" (address and data VGPRs); LLVM 22's disassembly of the same words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

COORDINATES = (1, 2, 3, 3, 2, 3, 3, 4)  # by dim: 1D, 2D, 3D, cube, 1D array, 2D array, 2D MSAA, 2D MSAA array
GRADIENTS = (2, 4, 6, 4, 2, 4, 4, 4)
ADDRESS_FIELDS = ("vaddr", "addr1", "addr2", "addr3", "addr4")  # with nsa; the last one holds the rest
_WITH_LOD = re.compile(r"_(l|cl|mip)(_|$)")
# Node pointer, ray extent, origin, direction and inverse direction; a16 packs the two directions.
_RAYS = {
    ("image_bvh_intersect_ray", 0): (1, 1, 3, 3, 3), ("image_bvh_intersect_ray", 1): (1, 1, 3, 3),
    ("image_bvh64_intersect_ray", 0): (2, 1, 3, 3, 3), ("image_bvh64_intersect_ray", 1): (2, 1, 3, 3),
}  # fmt: skip


def address_dwords(mnemonic: str, fields: Mapping[str, int]) -> tuple[int, ...]:
    """Return the dwords of each address register: one number without nsa."""
    rays = _RAYS.get((mnemonic, fields["a16"]))
    if rays is not None:
        return rays if fields["nsa"] else (sum(rays),)
    total = _address_count(mnemonic, fields)
    if not fields["nsa"]:
        return (total if total <= 12 else 16,)
    last = len(ADDRESS_FIELDS) - 1
    return (1,) * total if total <= last else (1,) * last + (total - last,)


def _address_count(mnemonic: str, fields: Mapping[str, int]) -> int:
    parts = mnemonic.split("_")
    if mnemonic == "image_get_resinfo":
        return 1
    packed = COORDINATES[fields["dim"]] + bool(_WITH_LOD.search(mnemonic))
    total = (packed + 1) // 2 if fields["a16"] else packed
    if "sample" in parts or parts[1].startswith("gather4"):
        total += ("c" in parts) + ("b" in parts) + ("o" in parts)
    if "d" in parts:
        gradients = GRADIENTS[fields["dim"]]
        total += (gradients // 2 + 1) // 2 * 2 if "g16" in parts else gradients
    return total


def data_dwords(mnemonic: str, fields: Mapping[str, int], has_d16: bool) -> int:
    """Return the dwords of vdata.

    These are the ones that dmask selects or four of a gather, half as many with d16, and the status dword of tfe.
    """
    if mnemonic.endswith("intersect_ray"):
        return 4
    count = max(fields["dmask"].bit_count(), 1)
    if mnemonic.startswith(("image_gather4", "image_msaa_load")):
        count = 4
    if has_d16 and fields["d16"]:
        count = (count + 1) // 2
    return count + fields["tfe"]
