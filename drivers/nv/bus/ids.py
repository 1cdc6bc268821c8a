"""Which NVIDIA cards this driver cannot drive, by their PCI device ids, before anything of them is touched.

A card that is not listed here may be one of its chips: a register says which (`chips.identify`). Source: pci.ids,
vendor 10de: Volta ends at 1dff, Turing begins at 1e02.
"""

from __future__ import annotations

FIRST_TURING = 0x1E00
DRIVEN = "cards from Turing to Blackwell (GeForce RTX 20 and GTX 16 on, and their siblings)"


def unsupported(device: int) -> str:
    """Say why a card is not driven, by its device id; empty where it may be."""
    if device < FIRST_TURING:
        return f"device {device:#06x} has a chip from before Turing, which has no GSP; this driver drives {DRIVEN}"
    return ""
