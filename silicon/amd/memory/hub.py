"""A VM hub (the UTCL2 of GC or MMHUB): apertures, contexts, translation caches that go stale, invalidation engines,
protection faults.

Source: gfxhub_v3_0.c, mmhub_v3_0.c, gmc_v11_0.c, and gfxhub_v12_0.c, mmhub_v4_1_0.c, gmc_v12_0.c, and gfxhub_v1_2.c,
mmhub_v1_8.c, gmc_v9_0.c (protocols); gc_11_0_0, mmhub_3_0_0, gc_12_0_0, mmhub_4_1_0, gc_9_4_3 and mmhub_1_8_0 headers
(registers).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from ringup.autogen.amd import vm as bits
from ringup.silicon.amd.common.parts import Board, InterruptSink, VmFault
from ringup.silicon.amd.common.pieces import Piece
from ringup.silicon.amd.memory.caches import CachedMemory, Caches
from ringup.silicon.amd.memory.hub_memory import HubMemory
from ringup.silicon.amd.memory.vm import FORMATS, PAGE_SHIFT, Context, Kind, Leaf, WalkFault, walk
from ringup.silicon.common.cells import Cells
from ringup.silicon.common.faults import FaultKind
from ringup.silicon.common.memory import Span
from ringup.silicon.shader.common.state import Memory

ENGINES = 18
CONTEXTS = 16
# pages of host memory that are found without a translation
CACHED_PAGES_LIMIT = 4096
# virtual time of an invalidation; UNKNOWN: metal's, drivers poll
INVALIDATE_US = 2
# likewise, of the private cache; a read of its register waits for it
PRIVATE_US = 0.5
# by generation
STATUS_NAMES = ("VM_L2_PROTECTION_FAULT_STATUS", "VM_L2_PROTECTION_FAULT_STATUS_LO32")
COPIERS_PER_DIE = 4
PRIVATE = "MMVM_L2_BANK_SELECT_RESERVED_CID2"
VA_MASK = (1 << 48) - 1
# FB_LOCATION, AGP and FB_OFFSET registers count units of 16 MiB
UNIT = 1 << 24
# parts of the names of enable fields, by kind of fault; a context has one field for all directory levels, and no TF or
# NACK fields
NAMES = {
    Kind.RANGE: "RANGE", Kind.PDE0: "PDE0", Kind.PDE1: "PDE0", Kind.PDE2: "PDE0", Kind.TRANSLATE_FURTHER: "PDE0",
    Kind.NACK: "PDE0", Kind.DUMMY_PAGE: "DUMMY_PAGE", Kind.VALID: "VALID", Kind.READ: "READ", Kind.WRITE: "WRITE",
    Kind.EXECUTE: "EXECUTE",
}  # fmt: skip
WALKER_ERROR = {  # UNKNOWN: metal's numbers; these follow the order of the enable bits
    Kind.RANGE: 1, Kind.PDE0: 2, Kind.PDE1: 3, Kind.PDE2: 4, Kind.TRANSLATE_FURTHER: 5, Kind.NACK: 6, Kind.DUMMY_PAGE: 7,
}  # fmt: skip
# seen in kernel logs: 0x3 for a read of an unmapped page
PERMISSION = {Kind.VALID: 1, Kind.READ: 2, Kind.WRITE: 4, Kind.EXECUTE: 8}
FAULTS = (
    FaultKind("stuck_tlb_ack", "invalidation requests are never acknowledged", "how many requests; -1: all"),
    FaultKind("stuck_tlb_semaphore", "the invalidation semaphore is never granted"),
)


@dataclass(frozen=True, slots=True)
class HubRow:
    """The differences between hubs."""

    name: str  # in faults and logs
    prefix: str  # of register names: GC or MM, none before GC 10
    interrupt_client: int  # soc15_ih_clientid.h
    # whether drivers hold INVALIDATE_ENGn_SEM around a request, so that power gating does not lose its acknowledge
    semaphore: bool
    # by client id in the fault status: gfxhub_v3_0.c, mmhub_v3_0.c
    clients: tuple[str, ...]
    # client id of a die's first copy engine, if they are not among `clients`
    copiers: int = 0
    # the page of faulting accesses lies in host memory, whatever VM_L2_CNTL says
    spare_on_bus: bool = False


GFXHUB = HubRow(
    "gfxhub", "GC", 0x0A, False,
    ("CB/DB", "", "GE1", "GE2", "CPF", "CPC", "CPG", "RLC", "TCP", "SQC (inst)", "SQC (data)", "SQG", "", "SDMA0", "SDMA1", "GCR"),
)  # fmt: skip
MMHUB = HubRow(
    "mmhub", "MM", 0x12, True,
    ("VMC", "", "", "DCEDWB", "DCEDMC", "DCEVGA", "MP0", "MP1", "MPIO", "", "DBGU0", "DBGU1", "DBGU2", "DBGU3", "XDP", "OSSSYS",
     "HDP", "LSDMA", "JPEG", "VCNU0", "VCN0", "VSCH", "VCNU1", "VCN1"),
)  # fmt: skip
# Reads and writes have numbers of their own in mmhub_v4_1_0.c; no number has two names
MMHUB_4_1 = replace(
    MMHUB,
    clients=(
        "VMC", "", "", "DCEDWB", "DCEDMC", "", "MP0", "MP1", "MPIO", "", "DBGU0", "DBGU1", "DBGUNBIO", "", "XDP", "OSSSYS",
        "LSDMA", "JPEG", "VCNWR", "VCNU", "", "", "VSCH", "HDP",
    ),
)  # fmt: skip
# SOC15_IH_CLIENTID_UTCL2. Source: gmc_v9_0.c, gfxhub_client_ids
GFXHUB_9 = HubRow(
    "gfxhub", "", 0x1B, False,
    ("CB", "DB", "IA", "WD", "CPF", "CPC", "CPG", "RLC", "TCP", "SQC (inst)", "SQC (data)", "SQG", "PA"), spare_on_bus=True,
)  # fmt: skip
# SOC15_IH_CLIENTID_VMC. Source: gmc_v9_0.c, mmhub_client_ids_aldebaran (GUESS: reads have the numbers of writes).
# GUESS: where the default page is: mmhub_v1_8.c and gfxhub_v1_2.c write a bus address and leave
# ENABLE_DEFAULT_PAGE_OUT_TO_SYSTEM_MEMORY alone, which later generations set
MMHUB_9 = HubRow(
    "mmhub", "", 0x12, False, ("", "", "", "MP1", "MP0", "XDP", "", "", "", "", "", "", "HDP"), 256, True,
)  # fmt: skip
# by major version of GC
MEMORY_HUBS = {9: MMHUB_9, 11: MMHUB, 12: MMHUB_4_1}
GFXHUBS = {9: GFXHUB_9, 11: GFXHUB, 12: GFXHUB}


@dataclass(slots=True)
class Cache:
    """Translations of one VMID, kept until they are invalidated. Leaves by (log2 of their size, number); directories by
    (level, number).
    """

    leaves: dict[tuple[int, int], Leaf] = field(default_factory=dict)
    sizes: list[int] = field(default_factory=list)
    directories: dict[tuple[int, int], int] = field(default_factory=dict)
    epoch: int = 0
    kept: int = 0  # leaves added so far

    def find(self, gpu_va: int) -> Leaf | None:
        """Return the cached leaf of an address."""
        for size in self.sizes:
            leaf = self.leaves.get((size, gpu_va >> size))
            if leaf is not None:
                return leaf
        return None

    def keep(self, leaf: Leaf) -> None:
        """Add a leaf."""
        size = leaf.size_bytes.bit_length() - 1
        self.leaves[size, leaf.gpu_va >> size] = leaf
        self.kept += 1
        if size not in self.sizes:
            self.sizes.append(size)

    def drop(self, first_page: int, last_page: int) -> None:
        """Drop the leaves that overlap a range of pages."""
        gone = [
            key
            for key, leaf in self.leaves.items()
            if leaf.gpu_va >> PAGE_SHIFT <= last_page
            and (leaf.gpu_va + leaf.size_bytes - 1) >> PAGE_SHIFT >= first_page
        ]
        for key in gone:
            del self.leaves[key]


class Apertures(NamedTuple):
    """The registers that place untranslated addresses of VMID 0; ends are exclusive."""

    tlb_on: bool
    system_first: int
    system_end: int
    fb_first: int
    fb_end: int
    agp_first: int
    agp_end: int
    agp_base: int


class CachedPage(NamedTuple):
    """Host memory that a client has accessed before: addresses from `first` to `end` are the bytes of `view`."""

    first: int
    end: int
    view: memoryview


class VmHub:
    """One hub. Implements `parts.Hub`. `cells` are the registers of its block; the caller attaches them to the bus."""

    def __init__(
        self, board: Board, cells: Cells, row: HubRow, interrupts: InterruptSink | None, gc_major: int = 11
    ) -> None:
        self.board, self.cells, self.row, self.interrupts = board, cells, row, interrupts
        # the caches between the hub's clients and VRAM
        self.caches: Caches | None = None
        self.form = FORMATS[gc_major]
        self._status_name = next(name for name in map(self._name, STATUS_NAMES) if name in cells)
        self._cache = [Cache() for _ in range(CONTEXTS)]
        self._held = [False] * ENGINES
        self._epoch = 0
        self._private = [Cache() for _ in range(CONTEXTS)] if PRIVATE in cells else None
        self._private_done_ns = 0
        # by VMID, page and whether it is written; used only without a private cache
        self._cached_pages: dict[tuple[int, int, bool], CachedPage] = {}
        board.host.on_change(self._cached_pages.clear)
        self._apertures = cells.derived(self._read_apertures)
        self._contexts = [cells.derived(partial(self._context, vmid)) for vmid in range(CONTEXTS)]
        self._memories: dict[tuple[int, str], HubMemory] = {}
        self._fb_offset = cells.derived(lambda: self._get("MC_VM_FB_OFFSET", "FB_OFFSET") * UNIT)
        board.faults.know(*FAULTS)
        self._set_up()

    # --- registers ----------------------------------------------------------------------------------------------
    def _name(self, rest: str) -> str:
        return self.row.prefix + rest

    def _get(self, rest: str, field: str) -> int:
        return self.cells.get(self.row.prefix + rest, field)

    def _set_up(self) -> None:
        cells = self.cells
        for number in range(ENGINES):
            cells.on_write(self._name(f"VM_INVALIDATE_ENG{number}_REQ"), partial(self._request, number))
            cells.on_read(self._name(f"VM_INVALIDATE_ENG{number}_SEM"), partial(self._acquire, number))
            cells.on_write(self._name(f"VM_INVALIDATE_ENG{number}_SEM"), partial(self._release, number))
        cells.on_write(self._name("VM_L2_PROTECTION_FAULT_CNTL"), self._fault_control)
        cells.on_write(self._name("VM_L2_CNTL2"), self._cache_control)
        if self._private is not None:
            cells.on_write(PRIVATE, self._invalidate_private)
            cells.on_read(PRIVATE, self._private_read)

    def reset(self) -> None:
        """Drop translations and semaphores. The block resets the registers."""
        self._cached_pages.clear()
        for cache in self._cache:
            cache.leaves.clear()
            cache.sizes.clear()
            cache.directories.clear()
        self._drop_private()
        self._held = [False] * ENGINES
        self._epoch += 1

    # MMHUB keeps translations of its clients a second time, in a private cache that the invalidation engines do not
    # reach. GUESS: here it serves all clients; no public source says which. After each flush by registers, under the
    # engine's semaphore, amdgpu invalidates it and reads the register back "to ensure invalidation is done". When the
    # graphics core's firmware flushes, without a semaphore, amdgpu does not. Source: gmc_v11_0.c,
    # gmc_v11_0_flush_gpu_tlb
    def _invalidate_private(self, value: int) -> None:
        if self._private is None or not self.cells.field(PRIVATE, "RESERVED_CACHE_PRIVATE_INVALIDATION", value):
            return
        self._private_done_ns = self.board.clock.now_ns + round(PRIVATE_US * 1_000)
        self.board.clock.after(PRIVATE_US, self._drop_private)

    def _private_read(self) -> int:
        """Return the register once a running invalidation is done."""
        if self._private_done_ns > self.board.clock.now_ns:
            self._drop_private()
        return self.cells[PRIVATE]

    def _drop_private(self) -> None:
        for cache in self._private or ():
            cache.leaves.clear()
            cache.sizes.clear()

    def _acquire(self, engine: int) -> int:
        """Reading SEM acquires it: 1 means it was free and now belongs to the reader."""
        if self._held[engine] or self.board.faults.get("stuck_tlb_semaphore") is not None:
            return 0
        self._held[engine] = True
        return 1

    def _release(self, engine: int, value: int) -> None:
        if not value & 1:
            self._held[engine] = False

    def _request(self, engine: int, request: int) -> None:
        """Start an invalidation: the ACK bits of its VMIDs fall, and rise when it is done."""
        ack = self._name(f"VM_INVALIDATE_ENG{engine}_ACK")
        name = self._name(f"VM_INVALIDATE_ENG{engine}_REQ")
        mask = self.cells.field(name, "PER_VMID_INVALIDATE_REQ", request)
        self.cells[ack] &= ~mask
        if self.row.semaphore and not self._held[engine]:
            # drivers that let the graphics core's firmware flush take no semaphore, and that works: gmc_v11_0.c,
            # flush_gpu_tlb
            self.board.log.note(self.row.name, "unguarded", "{} without its semaphore: power gating may lose it", name)
        if self.cells.field(name, "CLEAR_PROTECTION_FAULT_STATUS_ADDR", request):
            self._clear_fault()
        if self.board.faults.take("stuck_tlb_ack"):
            return
        self.board.clock.after(INVALIDATE_US, lambda: self._invalidate(engine, name, request, mask))

    def _invalidate(self, engine: int, name: str, request: int, mask: int) -> None:
        first, last = self._range(engine)
        self._cached_pages.clear()
        pages = self.cells.field(name, "INVALIDATE_L2_PTES", request) and self.cells.field(
            name, "INVALIDATE_L1_PTES", request
        )
        levels = [n for n in range(3) if self.cells.field(name, f"INVALIDATE_L2_PDE{n}", request)]
        for vmid in range(CONTEXTS):
            if not mask >> vmid & 1:
                continue
            cache = self._cache[vmid]
            if pages:
                cache.drop(first, last)
            cache.directories = {key: entry for key, entry in cache.directories.items() if key[0] - 1 not in levels}
            cache.epoch += 1
        if not self._held[engine]:
            self._drop_private()
        self.cells[self._name(f"VM_INVALIDATE_ENG{engine}_ACK")] |= mask
        what = "pages" if pages else "directories alone of pages"
        self.board.log.note(self.row.name, "invalidate", "vmids {:#x}, {} {:#x} to {:#x}", mask, what, first, last)

    def _range(self, engine: int) -> tuple[int, int]:
        """Return the first and last page that the engine's requests cover.

        UNKNOWN: the registers hold a page number and a bit S. Here they are decoded as in address translation services,
        where S means that the run of ones above it gives the size. Drivers write all ones, which covers everything in
        any decoding.
        """
        low = self.cells[self._name(f"VM_INVALIDATE_ENG{engine}_ADDR_RANGE_LO32")]
        high = self._get(f"VM_INVALIDATE_ENG{engine}_ADDR_RANGE_HI32", "LOGI_PAGE_ADDR_RANGE_HI5")
        number = low >> 1 | high << 31
        if not low & 1:
            return number, number
        ones = (~number & number + 1).bit_length() - 1
        first = number & ~((1 << ones) - 1)
        return first, first + (1 << ones + 1) - 1

    def _cache_control(self, value: int) -> None:
        name = self._name("VM_L2_CNTL2")
        if self.cells.field(name, "INVALIDATE_L2_CACHE", value) and self.cells.field(
            name, "INVALIDATE_ALL_L1_TLBS", value
        ):
            self._cached_pages.clear()
            for cache in self._cache:
                cache.leaves.clear()
                cache.directories.clear()
                cache.epoch += 1
            self._drop_private()
        # they act once and read back as 0
        self.cells.put(name, INVALIDATE_L2_CACHE=0, INVALIDATE_ALL_L1_TLBS=0)

    def _fault_control(self, value: int) -> None:
        name = self._name("VM_L2_PROTECTION_FAULT_CNTL")
        if self.cells.field(name, "CLEAR_PROTECTION_FAULT_STATUS_ADDR", value):
            self._clear_fault()
            self.cells.put(name, CLEAR_PROTECTION_FAULT_STATUS_ADDR=0)

    def _clear_fault(self) -> None:
        self.cells[self._status_name] = 0
        for rest in ("ADDR_LO32", "ADDR_HI32"):
            self.cells[self._name(f"VM_L2_PROTECTION_FAULT_{rest}")] = 0

    # --- translation --------------------------------------------------------------------------------------------
    def context(self, vmid: int) -> Context:
        """Return the decoded registers of a context."""
        return self._contexts[vmid]()

    def _context(self, vmid: int) -> Context:
        cells, name = self.cells, self._name(f"VM_CONTEXT{vmid}_")
        pair = {
            rest: cells[f"{name}PAGE_TABLE_{rest}_ADDR_LO32"] | cells[f"{name}PAGE_TABLE_{rest}_ADDR_HI32"] << 32
            for rest in ("BASE", "START", "END")
        }
        control = f"{name}CNTL"
        return Context(
            bool(cells.get(control, "ENABLE_CONTEXT")),
            cells.get(control, "PAGE_TABLE_DEPTH"),
            cells.get(control, "PAGE_TABLE_BLOCK_SIZE"),
            pair["BASE"],
            pair["START"],
            pair["END"],
        )

    def leaf(self, vmid: int, gpu_va: int) -> Leaf:
        """Return the translation of an address, from the cache or by a walk, which fills the cache. Raises
        `WalkFault`.
        """
        cache = self._cache[vmid]
        found = None if self._private is None else self._private[vmid].find(gpu_va)
        if found is None and (found := cache.find(gpu_va)) is not None and self._private is not None:
            self._private[vmid].keep(found)
        if found is not None:
            return found

        def fetch(address: int, system: bool, level: int, key: int) -> int:
            if level and (level, key) in cache.directories:
                return cache.directories[level, key]
            entry = self._entry(address, system)
            if level and entry & bits.AMDGPU_PTE_VALID:
                cache.directories[level, key] = entry
            return entry

        made = walk(fetch, self.context(vmid), gpu_va, self.form)
        cache.keep(made)
        if self._private is not None:
            self._private[vmid].keep(made)
        return made

    def stale(self) -> Iterator[tuple[int, Leaf, str]]:
        """Yield (VMID, cached translation, current page-table entry) where the two differ: an invalidation is missing,
        or still to come.

        Tables in host memory are skipped: their owner may have unmapped them.
        """
        for vmid, cache in enumerate(self._cache):
            for leaf in cache.leaves.values():
                now = self._uncached(vmid, leaf.gpu_va)
                if isinstance(now, str) or (now is not None and now[2:] != leaf[2:]):
                    yield vmid, leaf, now if isinstance(now, str) else f"entry {now.flags:#x}, address {now.address:#x}"

    def _uncached(self, vmid: int, gpu_va: int) -> Leaf | str | None:
        """Walk in VRAM without caches: return the leaf, a text why there is none, or None if tables are in
        host memory.
        """

        def fetch(address: int, system: bool, level: int, key: int) -> int:
            if system:
                raise LookupError
            return self._entry(address, system)

        try:
            return walk(fetch, self.context(vmid), gpu_va, self.form)
        except WalkFault as fault:
            return fault.detail
        except LookupError:
            return None

    def _entry(self, address: int, system: bool) -> int:
        if system:
            return int.from_bytes(self.board.host.read(address, 8), "little")
        vram_pa = self._vram_pa(address)
        if not 0 <= vram_pa <= self.board.vram.size_bytes - 8:
            raise WalkFault(Kind.NACK, f"a page table at {address:#x} lies outside the card's memory")
        return int.from_bytes(self.board.vram.fetch(vram_pa, 8, f"{self.row.name}'s table walk"), "little")

    def _vram_pa(self, address: int) -> int:
        """Return the offset in VRAM of the address in an entry; entries hold offsets from FB_OFFSET."""
        return address - self._fb_offset()

    def _read_apertures(self) -> Apertures:
        get, cells, name = self._get, self.cells, self._name
        return Apertures(
            bool(get("MC_VM_MX_L1_TLB_CNTL", "ENABLE_L1_TLB")),
            cells[name("MC_VM_SYSTEM_APERTURE_LOW_ADDR")] << 18,
            (cells[name("MC_VM_SYSTEM_APERTURE_HIGH_ADDR")] + 1) << 18,
            get("MC_VM_FB_LOCATION_BASE", "FB_BASE") * UNIT,
            (get("MC_VM_FB_LOCATION_TOP", "FB_TOP") + 1) * UNIT,
            get("MC_VM_AGP_BOT", "AGP_BOT") * UNIT,
            (get("MC_VM_AGP_TOP", "AGP_TOP") + 1) * UNIT,
            get("MC_VM_AGP_BASE", "AGP_BASE") * UNIT,
        )

    def _aperture(self, gpu_va: int) -> Piece | None:
        """Return where an untranslated address of VMID 0 lies; None if the page table translates it. Source:
        gfxhub_v3_0.c, system aperture.
        """
        now = self._apertures()
        if now.tlb_on and not now.system_first <= gpu_va < now.system_end:
            return None
        if now.fb_first <= gpu_va < now.fb_end:
            return self._vram_piece(gpu_va - now.fb_first, now.fb_end - gpu_va, 0)
        if now.tlb_on and now.agp_first <= gpu_va < now.agp_end:
            return Piece("host", gpu_va - now.agp_first + now.agp_base, now.agp_end - gpu_va, 0)
        return Piece("nothing", gpu_va, (1 << PAGE_SHIFT) - (gpu_va & 0xFFF), 0)

    def piece(self, vmid: int, gpu_va: int, write: bool, execute: bool = False) -> Piece:
        """Return where an address lies and how far that run extends, or raise `WalkFault`; nothing is recorded."""
        gpu_va &= VA_MASK
        if vmid == 0 and (flat := self._aperture(gpu_va)) is not None:
            return flat
        leaf = self.leaf(vmid, gpu_va)
        if leaf.flags & self.form.partly_resident and not leaf.flags & bits.AMDGPU_PTE_VALID:
            return Piece("zero", 0, leaf.gpu_va + leaf.size_bytes - gpu_va, leaf.flags)
        for needed, wanted, kind in (
            (bits.AMDGPU_PTE_READABLE, not write, Kind.READ),
            (bits.AMDGPU_PTE_WRITEABLE, write, Kind.WRITE),
            (bits.AMDGPU_PTE_EXECUTABLE, execute, Kind.EXECUTE),
        ):
            if wanted and not leaf.flags & needed:
                raise WalkFault(kind, f"entry {leaf.flags:#x} does not allow it")
        ahead = gpu_va - leaf.gpu_va
        left = leaf.size_bytes - ahead
        if leaf.system:
            return Piece("host", leaf.address + ahead, left, leaf.flags)
        return self._vram_piece(self._vram_pa(leaf.address) + ahead, left, leaf.flags)

    def _vram_piece(self, vram_pa: int, size_bytes: int, flags: int) -> Piece:
        """Return a run of VRAM, cut at the end of VRAM; beyond it is nothing."""
        inside = self.board.vram.size_bytes - vram_pa
        if vram_pa < 0 or inside <= 0:
            return Piece("nothing", vram_pa, size_bytes, flags)
        return Piece("vram", vram_pa, min(size_bytes, inside), flags)

    # --- faults -------------------------------------------------------------------------------------------------
    def fault(self, vmid: int, gpu_va: int, write: bool, client: str, error: WalkFault) -> None:
        """Record a fault as the hub does: the first one latches status and address; an interrupt is raised if enabled
        for this kind.
        """
        page = gpu_va >> PAGE_SHIFT & 0xF_FFFF_FFFF
        status = self._status_name
        allow = self._get("VM_L2_PROTECTION_FAULT_CNTL", "ALLOW_SUBSEQUENT_PROTECTION_FAULT_STATUS_ADDR_UPDATES")
        if self.cells[status] and not allow:
            self.cells.put(status, MORE_FAULTS=1)
        else:
            self.cells[status] = self._status(vmid, write, client, error.kind)
            self.cells[self._name("VM_L2_PROTECTION_FAULT_ADDR_LO32")] = page & 0xFFFF_FFFF
            self.cells[self._name("VM_L2_PROTECTION_FAULT_ADDR_HI32")] = page >> 32
        access = VmFault(self.row.name, vmid, gpu_va, write, f"{error.kind.name} fault: {error.detail}")
        within = f", {self.board.doing()}" if self.board.doing is not None else ""
        self.board.log.note(self.row.name, "fault", "{} by {}{}", access, client, within)
        control = f"VM_CONTEXT{vmid}_CNTL"
        if self.interrupts and self._get(control, f"{NAMES[error.kind]}_PROTECTION_FAULT_ENABLE_INTERRUPT"):
            retry = self._get(control, "RETRY_PERMISSION_OR_INVALID_PAGE_FAULT")
            # gmc_v11_0.c, process_interrupt
            data = (page & 0xFFFF_FFFF, page >> 32 | bool(write) << 5 | retry << 7)
            self.interrupts.interrupt(self.row.interrupt_client, 0, vmid=vmid, data=data)

    def _status(self, vmid: int, write: bool, client: str, kind: Kind) -> int:
        walker = WALKER_ERROR.get(kind, 0)
        permission = PERMISSION.get(kind, 0)
        # an entry without any bit also lacks the permission needed
        if kind is Kind.VALID:
            permission |= PERMISSION[Kind.WRITE if write else Kind.READ]
        number = self.row.clients.index(client) if client in self.row.clients else 0
        if self.row.copiers and client.startswith("SDMA"):
            number = self.row.copiers + int(client.removeprefix("SDMA")) % COPIERS_PER_DIE
        return self.cells.replace(
            self._status_name, 0,
            WALKER_ERROR=walker, MAPPING_ERROR=int(walker != 0), PERMISSION_FAULTS=permission,
            CID=number, RW=int(write), VMID=vmid,
        )  # fmt: skip

    def _default_page(self, vmid: int, gpu_va: int, kind: Kind) -> Piece | None:
        """Return the dummy page for a faulting access; None unless context and hub both enable it for this kind of
        fault.
        """
        field = f"{NAMES[kind]}_PROTECTION_FAULT_ENABLE_DEFAULT"
        hub_field = f"{kind.name}_PROTECTION_FAULT_ENABLE_DEFAULT"
        if not (self._get(f"VM_CONTEXT{vmid}_CNTL", field) and self._get("VM_L2_PROTECTION_FAULT_CNTL", hub_field)):
            return None
        low = self.cells[self._name("VM_L2_PROTECTION_FAULT_DEFAULT_ADDR_LO32")]
        high = self.cells[self._name("VM_L2_PROTECTION_FAULT_DEFAULT_ADDR_HI32")]
        inside = gpu_va & 0xFFF
        address = (low | high << 32) << PAGE_SHIFT | inside
        system = self.row.spare_on_bus or self._get("VM_L2_CNTL", "ENABLE_DEFAULT_PAGE_OUT_TO_SYSTEM_MEMORY")
        left = (1 << PAGE_SHIFT) - inside
        return Piece("host", address, left, 0) if system else self._vram_piece(address, left, 0)

    # --- clients ------------------------------------------------------------------------------------------------
    def _pieces(
        self, vmid: int, gpu_va: int, size_bytes: int, write: bool, client: str
    ) -> Iterator[tuple[int, Piece, int]]:
        done = 0
        while done < size_bytes:
            at = gpu_va + done
            try:
                piece = self.piece(vmid, at, write)
            except WalkFault as error:
                self.fault(vmid, at, write, client, error)
                spare = self._default_page(vmid, at, error.kind)
                if spare is None:
                    raise VmFault(self.row.name, vmid, at, write, error.detail) from error
                piece = spare
            count = min(piece.size_bytes, size_bytes - done)
            yield done, piece, count
            done += count

    def read(self, vmid: int, gpu_va: int, size_bytes: int, client: str) -> bytes:
        """Return bytes at a virtual (or, for VMID 0, aperture) address, or raise `VmFault`."""
        page = self._cached_pages.get((vmid, gpu_va >> PAGE_SHIFT, False))
        if page is not None and page.first <= gpu_va and gpu_va + size_bytes <= page.end:
            start = gpu_va - page.first
            return page.view[start : start + size_bytes].tobytes()
        parts = []
        for at, piece, count in self._pieces(vmid, gpu_va, size_bytes, False, client):
            if piece.space == "vram":
                self.board.vram.look(piece.address, count, client)
                cached = self.caches is not None and self.form.is_cached(piece.flags)
                memory = self.caches if self.caches is not None and cached else self.board.vram
                parts.append(memory.read(piece.address, count))
            elif piece.space == "host":
                parts.append(self.board.host.read(piece.address, count))
                # translated by a page table, not the dummy page of a fault
                if vmid and piece.flags:
                    self._cache_page(vmid, gpu_va + at, piece, write=False)
            elif piece.space == "zero":
                parts.append(bytes(count))
            else:
                self.nothing(vmid, piece, client)
                parts.append(b"\xff" * count)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _cache_page(self, vmid: int, gpu_va: int, piece: Piece, *, write: bool) -> None:
        """Cache a page of host memory that a page table translates, so that its next access needs no translation."""
        host = self.board.host
        if self._private is not None or (write and host.watched):
            return
        span = host.find(piece.address)
        if type(span) is not Span or not (span.writable if write else span.readable):
            return
        if len(self._cached_pages) >= CACHED_PAGES_LIMIT:
            self._cached_pages.clear()
        start = piece.address - span.base
        before = min(gpu_va & 0xFFF, start)
        size = min(piece.size_bytes, span.end - piece.address)
        view = span.view[start - before : start + size]
        self._cached_pages[vmid, gpu_va >> PAGE_SHIFT, write] = CachedPage(gpu_va - before, gpu_va + size, view)

    def reach(self, vmid: int, gpu_va: int, size_bytes: int) -> int:
        """Return how many of `size_bytes` from `gpu_va` can be read before a fault; nothing is recorded."""
        done = 0
        while done < size_bytes:
            try:
                piece = self.piece(vmid, gpu_va + done, write=False)
            except WalkFault:
                break
            done += piece.size_bytes
        return min(done, size_bytes)

    def write(self, vmid: int, gpu_va: int, data: bytes | memoryview, client: str) -> None:
        """Store bytes, or raise `VmFault`; bytes before the faulting page are stored."""
        size_bytes = len(data)
        page = self._cached_pages.get((vmid, gpu_va >> PAGE_SHIFT, True))
        if page is not None and page.first <= gpu_va and gpu_va + size_bytes <= page.end:
            start = gpu_va - page.first
            page.view[start : start + size_bytes] = data
            return
        for at, piece, count in self._pieces(vmid, gpu_va, len(data), True, client):
            chunk = data[at : at + count]
            if piece.space == "vram":
                if self.caches is not None:
                    self.caches.write(piece.address, chunk, client)
                else:
                    self.board.vram.write(piece.address, chunk)
            elif piece.space == "host":
                self.board.host.write(piece.address, chunk)
                # translated by a page table, not the dummy page of a fault
                if vmid and piece.flags:
                    self._cache_page(vmid, gpu_va + at, piece, write=True)
            elif piece.space == "nothing":
                self.nothing(vmid, piece, client)

    def nothing(self, vmid: int, piece: Piece, client: str) -> None:
        """Log an access to an address that the card's memory does not have."""
        self.board.log.note(
            self.row.name,
            "violation",
            "vmid {}: {} accesses address {:#x}, where no memory is",
            vmid,
            client,
            piece.address,
        )

    def epoch(self, vmid: int) -> int:
        """Return a number that grows when cached regions of a VMID may be wrong."""
        return self._epoch + self._cache[vmid].epoch + self.board.host.epoch

    def translations(self, vmid: int) -> Hashable:
        """Return a value that changes when a VMID's cached translations, or the memory behind them, may have
        changed.
        """
        return self.epoch(vmid), self._cache[vmid].kept, self._fb_offset()

    def memory(self, vmid: int, client: str) -> Memory:
        """Return the address space for the shader cores."""
        if self.caches is not None:
            return CachedMemory(self, vmid, client, self.caches)
        known = self._memories.get((vmid, client))
        if known is None:
            known = self._memories[vmid, client] = HubMemory(self, vmid, client)
        return known
