"""Page tables: a VM hub's walk for one virtual address, from the context's base to the leaf.

Source: amdgpu_vm.h (entry bits), gmc_v9_0.c, gmc_v11_0.c and gmc_v12_0.c (entry formats), amdgpu_vm_pt.c (levels),
gfxhub_v1_2.c and gfxhub_v3_0.c (context registers).
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
MTYPE_UC = 3  # of amdgpu's enum: GFX10 and later
INDEX_BITS = 9  # of every directory level except the root


class Kind(IntEnum):
    """The kinds of faults, in the order of the enable bits of CONTEXTn_CNTL and L2_PROTECTION_FAULT_CNTL."""

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
    """The entry bits that differ between generations. Rows: FORMATS, by GC major version."""

    # in a directory entry: it is itself a translation
    leaf: int
    partly_resident: int  # PRT: reads give zero, writes are dropped
    # position of the block fragment size in a directory entry
    fragment_size_shift: int
    # in a directory entry below one with a block fragment size: continue the walk. 0: the generation has no such bit,
    # and such an entry is a translation only if `leaf` says so. UNKNOWN: metal's; amdgpu does not use it there
    further: int
    # high and low bit of the memory type
    mtype: tuple[int, int]
    # entries of the lowest table cover as many pages as the block fragment size of the entry above says
    below: bool = False

    def is_cached(self, flags: int) -> bool:
        """Whether the GL2 caches the memory of a page-table entry. Untranslated addresses are MTYPE_UC (gfxhub_v3_0.c,
        init_tlb_regs).
        """
        high, low = self.mtype
        return bool(flags) and flags >> low & (1 << high - low + 1) - 1 != MTYPE_UC


FORMATS = {
    9: EntryFormat(bits.AMDGPU_PDE_PTE, bits.AMDGPU_PTE_PRT, 59, bits.AMDGPU_PTE_TF, (58, 57), below=True),
    11: EntryFormat(bits.AMDGPU_PDE_PTE, bits.AMDGPU_PTE_PRT, 59, bits.AMDGPU_PTE_TF, (50, 48)),
    12: EntryFormat(bits.AMDGPU_PDE_PTE_GFX12, bits.AMDGPU_PTE_PRT_GFX12, 58, 0, (55, 54)),
}


@dataclass(frozen=True, slots=True)
class Context:
    """The registers of one context. Page numbers count 4 KiB pages; `base` is an entry: address and the bits valid,
    system.
    """

    enabled: bool
    # directory levels above the page-table block: 0 is a flat table
    depth: int
    # PAGE_TABLE_BLOCK_SIZE: index bits of the lowest table, minus 9
    block_size: int
    base: int
    start_page: int
    end_page: int  # the last page that is translated


class Leaf(NamedTuple):
    """A translation: `size_bytes` (a power of two) of virtual addresses from `gpu_va` map to contiguous memory at
    `address`.
    """

    gpu_va: int
    size_bytes: int
    # bus_addr when `system`, else an address in the card's frame buffer
    address: int
    flags: int  # the entry

    @property
    def system(self) -> bool:
        """Whether it maps to host memory."""
        return bool(self.flags & bits.AMDGPU_PTE_SYSTEM)


# address, system, level, index within the level's space -> 64-bit entry
Fetch = Callable[[int, bool, int, int], int]


def walk(fetch: Fetch, context: Context, gpu_va: int, form: EntryFormat) -> Leaf:
    """Return the leaf of `gpu_va`. `fetch(address, system, level, key)` reads an entry; level 0 is the lowest table.
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
    # from the directory entry above
    fragment_block = 0
    for level in range(context.depth, -1, -1):
        shift = 0 if level == 0 else block_bits + (level - 1) * INDEX_BITS
        count_bits = block_bits if level == 0 else INDEX_BITS
        slot = index >> shift
        if level < context.depth:
            slot &= (1 << count_bits) - 1
        mask = TABLE_ADDRESS
        below = _below(form, fragment_block, count_bits) if level == 0 else 0
        entry = fetch((entry & mask) + (slot >> below) * 8, bool(entry & bits.AMDGPU_PTE_SYSTEM), level, page >> shift)
        if below:
            return _further(fetch, entry, page, slot & (1 << below) - 1, below, form)
        if level == 0 or _is_leaf(entry, form, fragment_block):
            return _leaf(entry, page, shift, form)
        if not entry & bits.AMDGPU_PTE_VALID:
            raise WalkFault(_directory_kind(level), f"directory entry {entry:#x} of level {level - 1} is not valid")
        fragment_block = entry >> form.fragment_size_shift & 0x1F
    raise AssertionError("a walk ends at level 0")


def _below(form: EntryFormat, fragment_block: int, count_bits: int) -> int:
    """Return how many index bits an entry of the lowest table covers. Before GFX10 the block fragment size of the
    directory entry above says so: its table is then that much shorter. Source: gfxhub_v1_2.c and gmc_v9_0.c,
    translate_further.
    """
    return fragment_block if form.below and fragment_block < count_bits else 0


def _further(fetch: Fetch, entry: int, page: int, slot: int, below: int, form: EntryFormat) -> Leaf:
    """Return the leaf of an entry that covers 1 << `below` pages: itself, or in the table that it names."""
    if not entry & form.further:
        return _leaf(entry, page, below, form)
    if not entry & bits.AMDGPU_PTE_VALID:
        raise WalkFault(Kind.TRANSLATE_FURTHER, f"entry {entry:#x} says to translate further and is not valid")
    table = entry & TABLE_ADDRESS
    return _leaf(fetch(table + slot * 8, bool(entry & bits.AMDGPU_PTE_SYSTEM), 0, page), page, 0, form)


def _is_leaf(entry: int, form: EntryFormat, fragment_block: int) -> bool:
    """Return whether a directory entry is a translation. Under a parent with a block fragment size it is, unless it
    says to continue.
    """
    if entry & form.leaf:
        return True
    return bool(fragment_block and form.further) and not entry & form.further


def _directory_kind(level: int) -> Kind:
    """Return the kind for a bad directory entry: PDE0 is right above the page tables. A flat table has no directory;
    its base counts as PDE0.
    """
    return (Kind.PDE0, Kind.PDE0, Kind.PDE1, Kind.PDE2)[min(level, 3)]


def _leaf(entry: int, page: int, shift: int, form: EntryFormat) -> Leaf:
    """Return the leaf of an entry that covers 1 << shift pages. A fragment widens it to the neighbours that it promises
    are contiguous.
    """
    if not entry & bits.AMDGPU_PTE_VALID and not entry & form.partly_resident:
        raise WalkFault(Kind.VALID, f"page-table entry {entry:#x} is not valid")
    fragment_hi, fragment_lo = bits.AMDGPU_PTE_FRAG
    fragment = entry >> fragment_lo & (1 << fragment_hi - fragment_lo + 1) - 1
    address = entry & ADDRESS
    # A huge page starts where its entry says: drivers split them by virtual address alone (amdgpu_vm_pt.c,
    # amdgpu_vm_pte_fragment). Fragments larger than one are only a hint to cache more.
    size_shift = shift or min(fragment, INDEX_BITS)
    size_bytes = 1 << size_shift + PAGE_SHIFT
    gpu_va = page << PAGE_SHIFT & ~(size_bytes - 1)
    if not shift:
        # address of the fragment's first page, if its entries are contiguous as promised
        address -= (page << PAGE_SHIFT) - gpu_va
    return Leaf(gpu_va, size_bytes, address, entry)
