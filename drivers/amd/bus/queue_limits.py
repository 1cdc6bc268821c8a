"""What the registers of every hardware queue can hold: ring sizes, addresses, address spaces.

Source: gc_11_0_0_sh_mask.h, CP_HQD_PQ_CONTROL and SDMA0_QUEUE0_RB_CNTL.
"""

from __future__ import annotations

MIN_RING_DWORDS, MAX_RING_DWORDS = 1 << 6, 1 << 21
ADDRESS_BITS, VMIDS = 48, 16


def check_ring(dwords: int) -> None:
    """Raise a `ValueError` for a ring size that no queue can have."""
    if not MIN_RING_DWORDS <= dwords <= MAX_RING_DWORDS or dwords & dwords - 1:
        raise ValueError(f"a ring is a power of two of {MIN_RING_DWORDS} to {MAX_RING_DWORDS} dwords, not {dwords}")


def check_addresses(*rows: tuple[str, int, int]) -> None:
    """Raise a `ValueError` for an address of (name, address, align in bytes) that the registers cannot hold."""
    for name, address, align in rows:
        if address % align or not 0 <= address < 1 << ADDRESS_BITS:
            raise ValueError(f"{name} is a {ADDRESS_BITS} bit address on {align} bytes, not {address:#x}")


def check_vmid(vmid: int) -> None:
    """Raise a `ValueError` for an address space that no card has."""
    if not 0 <= vmid < VMIDS:
        raise ValueError(f"a vmid is 0 to {VMIDS - 1}, not {vmid}")
