"""The page table entries of VM hubs, by generation: the bits of a page, of a directory entry and of an empty entry.

If its P bit is set, a directory entry is a leaf: a page of 2 MiB or 1 GiB, with the bits of a page table entry. GFX9
translates further: entries of the last directory (PDB0) are pages, unless their F bit says that a table follows.
Source: amdgpu gmc_v11_0.c and gmc_v12_0.c, "PTE format" and "PDE format"; gmc_v9_0.c, gmc_v9_0_get_vm_pde and
gmc_v9_0_get_coherence_flags; amdgpu_vm.h, AMDGPU_PTE_*; amdgpu_vm_pt.c, amdgpu_vm_pt_clear.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ringup.autogen.amd.vm import AMDGPU_MTYPE_NC, AMDGPU_VM_PDB0, AMDGPU_VM_PDB1, AMDGPU_VM_PDB2, AMDGPU_VM_PTB
from ringup.autogen.layout import Field, Word

Kind = Literal["vram", "host"]
PAGE_BYTES = 4096
# of a table: 9 bits of the address a level
ENTRIES = 512
ENTRY_BYTES = 8
TABLE_BYTES = ENTRIES * ENTRY_BYTES
LEVELS = (AMDGPU_VM_PDB2, AMDGPU_VM_PDB1, AMDGPU_VM_PDB0, AMDGPU_VM_PTB)
# the address range of an entry, by level
SPAN_BYTES = tuple(PAGE_BYTES * ENTRIES**above for above in (3, 2, 1, 0))
# the fragment that is one page, by level
PAGE_FRAGMENTS = tuple((span // PAGE_BYTES).bit_length() - 1 for span in SPAN_BYTES)
# of a virtual address, and of a physical address in an entry
ADDRESS_BITS = 48
# the number of values of the fragment field; a fragment has 4 KiB << value
FRAGMENTS = 32
# soc21_enum.h and soc24_enum.h, MTYPE; RW of GFX9: vega10_enum.h
MTYPE_UC = 3
MTYPE_RW = 1


class PTE_GFX9(Word, width=64):
    """A page of GFX9. `pde_pte` is set in a page of PDB1. `tf` is set in an entry of PDB0 that points to a table."""

    mtype = Field(58, 57)
    tf = Field(56)
    log = Field(55)
    pde_pte = Field(54)
    prt = Field(51)
    address = Field(47, 12)
    fragment = Field(11, 7)
    writeable = Field(6)
    readable = Field(5)
    executable = Field(4)
    tmz = Field(3)
    snooped = Field(2)
    system = Field(1)
    valid = Field(0)


class PTE_GFX11(Word, width=64):
    """A page of GFX10 and 11. It has 4 KiB in a PTB, and is larger in a directory, where `pde_pte` is set."""

    noalloc = Field(58)
    tf = Field(56)
    log = Field(55)
    pde_pte = Field(54)
    prt = Field(51)
    mtype = Field(50, 48)
    address = Field(47, 12)
    fragment = Field(11, 7)
    writeable = Field(6)
    readable = Field(5)
    executable = Field(4)
    tmz = Field(3)
    snooped = Field(2)
    system = Field(1)
    valid = Field(0)


class PTE_GFX12(Word, width=64):
    """A page of GFX12. `pde_pte` (IS_PTE) is set in every page, also in a PTB."""

    pde_pte = Field(63)
    dcc = Field(58)
    prt = Field(56)
    mtype = Field(55, 54)
    address = Field(47, 12)
    fragment = Field(11, 7)
    writeable = Field(6)
    readable = Field(5)
    executable = Field(4)
    tmz = Field(3)
    snooped = Field(2)
    system = Field(1)
    valid = Field(0)


class PDE(Word, width=64):
    """A directory entry that points to a table. Fields that the generations do not share are zero, but for those of
    `Format.pointers`.
    """

    address = Field(47, 6)
    snooped = Field(2)
    system = Field(1)
    valid = Field(0)


class PDE_GFX9(Word, width=64):
    """What entries of GFX9's directories have besides. `block_fragment`: log2 of the pages that an entry of the table
    below covers.
    """

    block_fragment = Field(63, 59)
    translate_further = Field(56)


ADDRESS = PTE_GFX11.address.mask
FRAGMENT = PTE_GFX11.fragment.mask
VALID = PTE_GFX11.valid.mask


@dataclass(frozen=True)
class Format:
    """The entries of one generation. The masks above are right for every generation.

    `pointers`: bits of an entry that points to a table, by level. `further`: pages of the last directory have no P bit,
    entries that point to a table have an F bit instead. `vram_mtype`, `host_mtype`: the memory types of pages that L2
    may keep. `probed`: pages of VRAM are snooped too.
    """

    name: str
    pte: type[PTE_GFX9] | type[PTE_GFX11] | type[PTE_GFX12]
    # whether pages in a PTB have `pde_pte` set too
    last_level_marked: bool
    # the highest level whose entries may be pages
    largest_leaf: int = AMDGPU_VM_PDB1
    # of a host address. Source: gmc_v11_0_sw_init and gmc_v12_0_sw_init, dma_set_mask_and_coherent
    bus_bits: int = 44
    pointers: tuple[int, ...] = (0, 0, 0, 0)
    further: bool = False
    vram_mtype: int = AMDGPU_MTYPE_NC
    host_mtype: int = AMDGPU_MTYPE_NC
    probed: bool = False
    # the bits of every value of the fragment field
    fragments: tuple[int, ...] = field(init=False)
    # an empty entry, by level
    empty: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "fragments", tuple(int(self.pte(fragment=i)) for i in range(FRAGMENTS)))
        # QUIRK: the empty entries are those of amdgpu. In a directory, it is a leaf that is not valid, so that a walk
        # ends there. In a PTB, it is executable ("workaround for fault priority problem on GMC9"; amdgpu does so for
        # every later generation).
        nothing, no_page = int(self.pte(pde_pte=1)), int(self.pte(executable=1))
        # of the last directory, where pages have no P bit, the address is no address of a large page instead. Source:
        # gmc_v9_0_get_vm_pde
        last = int(self.pte(address=1)) if self.further else nothing
        object.__setattr__(self, "empty", (nothing, nothing, last, no_page))

    def leaf(self, kind: Kind, *, writable: bool, executable: bool, cached: bool) -> tuple[int, ...]:
        """Return the bits of a page without address and fragment, by level.

        `cached`: the card's L2 may keep lines until a release or acquire (MTYPE_NC, amdgpu's default for VRAM and host
        memory). Without it, L2 keeps no lines (MTYPE_UC, amdgpu's type for coherent buffers). Host pages are snooped:
        the CPU's caches answer. Source: amdgpu_ttm.c, amdgpu_ttm_tt_pde_flags; gmc_v11_0_map_mtype and
        gmc_v11_0_get_vm_pte; kfd_svm.c, svm_range_get_pte_flags.
        """
        host = kind == "host"
        page = self.pte(
            valid=1,
            readable=1,
            writeable=writable,
            executable=executable,
            system=host,
            snooped=host or self.probed,
            mtype=(self.host_mtype if host else self.vram_mtype) if cached else MTYPE_UC,
        )
        marked = int(page.replace(pde_pte=1))
        last = int(page) if self.further else marked
        return (marked, marked, last, marked if self.last_level_marked else int(page))

    def is_page(self, entry: int, level: int) -> bool:
        """Return whether a valid entry in a table of `level` is a page, so that the walk ends."""
        if self.further and level == AMDGPU_VM_PDB0:
            return not entry & PTE_GFX9.tf.mask
        return level == AMDGPU_VM_PTB or bool(entry & self.pte.pde_pte.mask)


# Source: gmc_v9_0_get_vm_pde: AMDGPU_PDE_BFS(9) in PDB1, AMDGPU_PTE_TF in PDB0; gmc_v9_0_sw_init, dma_addr_bits;
# gmc_v9_0_get_coherence_flags for 9.4.3: RW for the card's own memory, UC for the host's, both snooped
GFX9 = Format(
    "gfx9",
    PTE_GFX9,
    last_level_marked=False,
    bus_bits=48,
    pointers=(0, int(PDE_GFX9(block_fragment=9)), int(PDE_GFX9(translate_further=1)), 0),
    further=True,
    vram_mtype=MTYPE_RW,
    host_mtype=MTYPE_UC,
    probed=True,
)
GFX11 = Format("gfx11", PTE_GFX11, last_level_marked=False)
GFX12 = Format("gfx12", PTE_GFX12, last_level_marked=True)
FORMATS = {9: GFX9, 11: GFX11, 12: GFX12}  # by the major version of the graphics core
