"""Registers of image instructions: the number of data and address VGPRs, from dmask, dim, a16, d16, tfe and nsa.

Source: RDNA3 ISA reference, "Image Instructions" (address and data VGPRs); LLVM 22's disassembly of the same words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

COORDINATES = (1, 2, 3, 3, 2, 3, 3, 4)  # by dim: 1D, 2D, 3D, cube, 1D array, 2D array, 2D MSAA, 2D MSAA array
CUBE, MULTISAMPLED_ARRAY = 3, 7
GRADIENTS = (2, 4, 6, 4, 2, 4, 4, 4)
# By format, the last one holds the rest. MIMG has more than one with nsa.
ADDRESS_FIELDS = {
    "MIMG": ("vaddr", "addr1", "addr2", "addr3", "addr4"), "VIMAGE": ("vaddr0", "vaddr1", "vaddr2", "vaddr3", "vaddr4"),
    "VSAMPLE": ("vaddr0", "vaddr1", "vaddr2", "vaddr3"),
}  # fmt: skip
_WITH_LOD = re.compile(r"_(l|cl|mip)(_|$)")
# Node pointer, ray extent, origin, direction and inverse direction; a16 packs the two directions.
_RAYS = {
    ("image_bvh_intersect_ray", 0): (1, 1, 3, 3, 3), ("image_bvh_intersect_ray", 1): (1, 1, 3, 3),
    ("image_bvh64_intersect_ray", 0): (2, 1, 3, 3, 3), ("image_bvh64_intersect_ray", 1): (2, 1, 3, 3),
    # Rays of RDNA4 against eight boxes: origin and direction are returned too.
    ("image_bvh_dual_intersect_ray", 0): (2, 2, 3, 3, 2), ("image_bvh8_intersect_ray", 0): (2, 2, 3, 3, 1),
}  # fmt: skip
_EIGHT = frozenset(("image_bvh_dual_intersect_ray", "image_bvh8_intersect_ray"))


def address_dwords(format_: str, mnemonic: str, fields: Mapping[str, int]) -> tuple[int, ...]:
    """Return the dwords of each address register: one number in MIMG without nsa."""
    rays = _RAYS.get((mnemonic, fields["a16"]))
    scattered = fields.get("nsa", 1)
    if rays is not None:
        return rays if scattered else (sum(rays),)
    total = _address_count(mnemonic, fields)
    if not scattered:
        return (total if total <= 12 else 16,)
    last = len(ADDRESS_FIELDS[format_]) - 1
    return (1,) * total if total <= last else (1,) * last + (total - last,)


def has_spare_address(mnemonic: str) -> bool:
    """Return whether a VSAMPLE instruction never needs its fourth address register."""
    most = MULTISAMPLED_ARRAY if "msaa" in mnemonic else CUBE
    return _address_count(mnemonic, {"dim": most, "a16": 0}) < len(ADDRESS_FIELDS["VSAMPLE"])


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
        return 10 if mnemonic in _EIGHT else 4
    count = max(fields["dmask"].bit_count(), 1)
    if mnemonic.startswith(("image_gather4", "image_msaa_load")):
        count = 4
    if has_d16 and fields["d16"]:
        count = (count + 1) // 2
    return count + fields["tfe"]
