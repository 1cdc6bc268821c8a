"""Page tables: the walk that a VM hub makes for one virtual address, from the context's base to the leaf.

Source: amdgpu_vm.h (entry bits), gmc_v11_0.c (entry formats), amdgpu_vm_pt.c (levels), gfxhub_v3_0.c (context
registers).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from ringup.autogen.amd import vm as bits

PAGE_SHIFT = 12
ADDRESS = 0xFFFF_FFFF_F000  # 47:12 of an entry
TABLE_ADDRESS = 0xFFFF_FFFF_FFC0  # 47:6 of a directory entry
INDEX_BITS = 9  # of every directory level but the root


class Kind(IntEnum):
    """What can be wrong, in the order of the enable bits of CONTEXTn_CNTL and L2_PROTECTION_FAULT_CNTL."""

    RANGE = 0
    PDE0 = 1
    PDE1 = 2
    PDE2 = 3
    TRANSLATE_FURTHER = 4
    NACK = 5
    DUMMY_PAGE = 6
    VALID = 7
    READ = 8
    WRITE = 9
    EXECUTE = 10


class WalkFault(Exception):
    """The walk ended without a usable translation. `level` is the directory level for the PDE kinds."""

    def __init__(self, kind: Kind, detail: str) -> None:
        super().__init__(detail)
        self.kind, self.detail = kind, detail


@dataclass(frozen=True, slots=True)
class EntryFormat:
    """Where a generation keeps the bits of its entries that moved. Rows: FORMATS, by GC major version."""

    leaf: int  # in a directory entry: this is the translation itself
    partly_resident: int  # PRT: reads give zero, writes vanish
    fragment_size_shift: int  # of the block fragment size in a directory entry


FORMATS = {
    9: EntryFormat(bits.AMDGPU_PDE_PTE, bits.AMDGPU_PTE_PRT, 59),
    11: EntryFormat(bits.AMDGPU_PDE_PTE, bits.AMDGPU_PTE_PRT, 59),
    12: EntryFormat(bits.AMDGPU_PDE_PTE_GFX12, bits.AMDGPU_PTE_PRT_GFX12, 58),
}


@dataclass(frozen=True, slots=True)
class Context:
    """What the registers of one context say. Page numbers are of 4 KiB; `base` is an entry: address and the bits valid,
    system.
    """

    enabled: bool
    depth: int  # directory levels above the page-table block: 0 is a flat table
    block_size: int  # PAGE_TABLE_BLOCK_SIZE: index bits of the lowest table, less 9
    base: int
    start_page: int
    end_page: int  # the last page that is translated


class Leaf(NamedTuple):
    """A translation: `size_bytes` (a power of two) of virtual addresses from `gpu_va` lie at `address`, contiguous."""

    gpu_va: int
    size_bytes: int
    address: int  # bus_addr when `system`, else an address in the card's frame buffer
    flags: int  # the entry

    @property
    def system(self) -> bool:
        """Whether it lies in host memory."""
        return bool(self.flags & bits.AMDGPU_PTE_SYSTEM)


Fetch = Callable[[int, bool, int, int], int]  # address, system, level, index within the level's space -> 64-bit entry


def walk(fetch: Fetch, context: Context, gpu_va: int, form: EntryFormat) -> Leaf:
    """Find the leaf of `gpu_va`. `fetch(address, system, level, key)` reads an entry; level 0 is the lowest table.
    Raises `WalkFault`.
    """
    page = gpu_va >> PAGE_SHIFT
    if not context.enabled:
        raise WalkFault(Kind.RANGE, "the context is disabled")
    if not context.start_page <= page <= context.end_page:
        raise WalkFault(Kind.RANGE, f"page {page:#x} lies outside {context.start_page:#x} to {context.end_page:#x}")
    if not context.base & bits.AMDGPU_PTE_VALID:
        raise WalkFault(_directory_kind(context.depth), "the base address is not marked valid")
    index = page - context.start_page
    block_bits = INDEX_BITS + context.block_size
    entry = context.base
    fragment_block = 0  # of the directory entry above
    for level in range(context.depth, -1, -1):
        shift = 0 if level == 0 else block_bits + (level - 1) * INDEX_BITS
        count_bits = block_bits if level == 0 else INDEX_BITS
        slot = index >> shift
        if level < context.depth:
            slot &= (1 << count_bits) - 1
        mask = TABLE_ADDRESS
        entry = fetch((entry & mask) + slot * 8, bool(entry & bits.AMDGPU_PTE_SYSTEM), level, page >> shift)
        if level == 0 or _is_leaf(entry, form, fragment_block):
            return _leaf(entry, page, shift, form)
        if not entry & bits.AMDGPU_PTE_VALID:
            raise WalkFault(_directory_kind(level), f"directory entry {entry:#x} of level {level - 1} is not valid")
        fragment_block = entry >> form.fragment_size_shift & 0x1F
    raise AssertionError("a walk ends at level 0")


def _is_leaf(entry: int, form: EntryFormat, fragment_block: int) -> bool:
    """Say whether a directory entry translates. Under a parent with a block fragment size, entries do unless they say
    to go on.
    """
    if entry & form.leaf:
        return True
    return bool(fragment_block) and not entry & bits.AMDGPU_PTE_TF


def _directory_kind(level: int) -> Kind:
    """Name the level of a bad directory entry: PDE0 is the one right above the page tables; level 0 has no directory,
    so its base is a PDE0.
    """
    return (Kind.PDE0, Kind.PDE0, Kind.PDE1, Kind.PDE2)[min(level, 3)]


def _leaf(entry: int, page: int, shift: int, form: EntryFormat) -> Leaf:
    """Make the leaf of an entry that covers 1 << shift pages. A fragment widens it, as far as the entry says its
    neighbours agree.
    """
    if not entry & bits.AMDGPU_PTE_VALID and not entry & form.partly_resident:
        raise WalkFault(Kind.VALID, f"page-table entry {entry:#x} is not valid")
    fragment_hi, fragment_lo = bits.AMDGPU_PTE_FRAG
    fragment = entry >> fragment_lo & (1 << fragment_hi - fragment_lo + 1) - 1
    address = entry & ADDRESS
    # A huge page begins wherever its entry says: drivers cut them by the virtual address alone (amdgpu_vm_pt.c,
    # amdgpu_vm_pte_fragment). Fragments beyond one are only a hint to cache more.
    size_shift = shift or min(fragment, INDEX_BITS)
    size_bytes = 1 << size_shift + PAGE_SHIFT
    gpu_va = page << PAGE_SHIFT & ~(size_bytes - 1)
    if not shift:
        address -= (page << PAGE_SHIFT) - gpu_va  # of the fragment's first page, if the tables keep their promise
    return Leaf(gpu_va, size_bytes, address, entry)
