"""Which AMD cards this driver cannot drive, by their PCI device ids, before anything of them is touched.

A card that is not listed here may be one of its chips: its own table of blocks says so. Source: Linux amdgpu_drv.c,
pciidlist (cards that it names by id; newer ones it knows by their table); pci.ids, vendor 1002.
"""

from __future__ import annotations

from collections.abc import Sequence

DRIVEN = "Radeon RX 7000 and RX 9000 cards (navi31, navi32, navi33, navi44, navi48) and the Instinct MI300X"
PROCESSOR = "a processor with graphics"
# The host's driver starts the card; a function for a guest has no security processor and no resets of its own.
FOR_GUESTS = "a virtual function of a card that another driver has started"
# Graphics of processors that amdgpu knows by their table of blocks.
PROCESSORS = {
    0x1114: "Krackan", 0x13C0: "Granite Ridge", 0x1435: "Sephiroth", 0x1506: "Mendocino", 0x150E: "Strix", 0x1586: "Strix Halo",
    0x15BF: "Phoenix", 0x15C8: "Phoenix 2", 0x15D8: "Picasso", 0x15DD: "Raven Ridge", 0x15E7: "Barcelo", 0x1636: "Renoir",
    0x1638: "Cezanne", 0x163F: "Van Gogh", 0x164C: "Lucienne", 0x164D: "Rembrandt", 0x164E: "Raphael", 0x164F: "Phoenix",
    0x1681: "Rembrandt", 0x1900: "Hawk Point", 0x1901: "Hawk Point 2", 0x1902: "Krackan 2",
}  # fmt: skip
# First id, last id, family; ids of one family may lie in several ranges.
FAMILIES: Sequence[tuple[int, int, str]] = (
    (0x6600, 0x6631, "Oland (GCN 1)"),
    (0x6640, 0x665F, "Bonaire (GCN 2)"),
    (0x6660, 0x666F, "Hainan (GCN 1)"),
    (0x66A0, 0x66AF, "Vega 20"),
    (0x6780, 0x679F, "Tahiti (GCN 1)"),
    (0x67A0, 0x67BE, "Hawaii (GCN 2)"),
    (0x67C0, 0x67DF, "Polaris 10"),
    (0x67E0, 0x67FF, "Polaris 11"),
    (0x6800, 0x6819, "Pitcairn (GCN 1)"),
    (0x6820, 0x683F, "Cape Verde (GCN 1)"),
    (0x6860, 0x687F, "Vega 10"),
    (0x6900, 0x6907, "Topaz (GCN 3)"),
    (0x6920, 0x693B, "Tonga (GCN 3)"),
    (0x694C, 0x694F, "Vega M"),
    (0x6980, 0x699F, "Polaris 12"),
    (0x69A0, 0x69AF, "Vega 12"),
    (0x6FDF, 0x6FDF, "Polaris 10"),
    (0x7300, 0x730F, "Fiji (GCN 3)"),
    (0x7310, 0x731F, "Navi 10"),
    (0x7340, 0x734F, "Navi 14"),
    (0x7360, 0x7362, "Navi 12"),
    (0x7388, 0x7390, "Arcturus (MI100)"),
    (0x73A0, 0x73BF, "Navi 21"),
    (0x73C0, 0x73DF, "Navi 22"),
    (0x73E0, 0x73FF, "Navi 23"),
    (0x7408, 0x7410, "Aldebaran (MI200)"),
    (0x7420, 0x743F, "Navi 24"),
    (0x74A0, 0x74A0, f"MI300A, {PROCESSOR}"),
    (0x74B5, 0x74B5, f"MI300X, {FOR_GUESTS}"),
    (0x74B9, 0x74B9, f"MI325X, {FOR_GUESTS}"),
    (0x9830, 0x983F, f"Kabini, {PROCESSOR}"),
    (0x9850, 0x985F, f"Mullins, {PROCESSOR}"),
    (0x9870, 0x9877, f"Carrizo, {PROCESSOR}"),
    (0x98E4, 0x98E4, f"Stoney, {PROCESSOR}"),
    # Of AMD's display functions with such ids none is a card.
    (0x1000, 0x1FFF, PROCESSOR),
)


def family(device: int) -> str:
    """Name the family of a card that is known not to be driven; empty for one that may be."""
    if device in PROCESSORS:
        return f"{PROCESSORS[device]}, {PROCESSOR}"
    return next((name for first, last, name in FAMILIES if first <= device <= last), "")


def unsupported(device: int) -> str:
    """Say why a card cannot be driven, by its device id; empty for one that may be."""
    name = family(device)
    return f"there is no driver for {name}; ringup drives {DRIVEN}" if name else ""
