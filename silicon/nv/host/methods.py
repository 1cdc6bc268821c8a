"""The host's own methods, below 0x100: semaphores, memory operations, waits and interrupts.

Sources: clc46f.h and clc56f.h of open-gpu-doc; manuals/ampere/ga100/dev_pbdma.ref.txt, "HOST METHODS".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ringup.autogen.nv import methods_host as methods
from ringup.silicon.nv.host.pushbuffer import BadPushbuffer
from ringup.silicon.nv.memory.semaphores import Acquire, Idle, Reduction, holds, reduced, release
from ringup.silicon.nv.memory.space import AddressSpace

# GUESS: between two looks at a semaphore, from the first to the later ones
LOOK_US, MAX_LOOK_US = 2.0, 1_000.0
# the older semaphore method's operations
ACQUIRES = {1: Acquire.EQUAL, 4: Acquire.CIRC_GEQ, 8: Acquire.AND}
STAMPED_ALIGNMENT = 16
PAGE, WHOLE_SPACE = 4096, 1 << 64
TLB_OPERATIONS = (
    methods.MEM_OP_D_OPERATION_MMU_TLB_INVALIDATE,
    methods.MEM_OP_D_OPERATION_MMU_TLB_INVALIDATE_TARGETED,
)
# with nothing to do: there are no caches behind the GMMU
CACHE_OPERATIONS = (
    methods.MEM_OP_D_OPERATION_MEMBAR,
    methods.MEM_OP_D_OPERATION_L2_PEERMEM_INVALIDATE,
    methods.MEM_OP_D_OPERATION_L2_SYSMEM_INVALIDATE,
    methods.MEM_OP_D_OPERATION_L2_CLEAN_COMPTAGS,
    methods.MEM_OP_D_OPERATION_L2_FLUSH_DIRTY,
    methods.MEM_OP_D_OPERATION_L2_WAIT_FOR_SYS_PENDING_READS,
    methods.MEM_OP_D_OPERATION_ACCESS_COUNTER_CLR,
)


class FaultPage(NamedTuple):
    """Accesses that are cancelled: of address spaces with this root (None: of all), to one page, of some types
    (NVC46F_MEM_OP_C_TLB_INVALIDATE_ACCESS_TYPE).
    """

    root: int | None
    gpu_va: int
    access_type: int

    def holds(self, root: int, gpu_va: int, *, write: bool) -> bool:
        """Return whether an access is one of them. An atomic is a write here."""
        if self.root not in (None, root) or gpu_va // PAGE * PAGE != self.gpu_va:
            return False
        if self.access_type == methods.MEM_OP_C_TLB_INVALIDATE_ACCESS_TYPE_VIRT_ALL:
            return True
        return write == (self.access_type != methods.MEM_OP_C_TLB_INVALIDATE_ACCESS_TYPE_VIRT_READ)


@dataclass(frozen=True, slots=True)
class Effects:
    """What the host's methods do outside their channel.

    `bind` binds an object to a subchannel. `invalidate` drops translations: of an address space's root, or all for
    None. `reference` stores the reference count. `yields` gives up the channel's turn: to its group, or, if the
    argument is true, with what is left of the group's slice. `replay` says what becomes of accesses that wait after a
    page fault, of all or of those to a page; `cleared` that a fault of the channel that a doorbell's token names was
    handled.
    """

    space: AddressSpace
    now_ns: Callable[[], int]
    bind: Callable[[int, int], None]
    notify: Callable[[], None]
    reference: Callable[[int], None]
    invalidate: Callable[[int | None, int, int], None]
    yields: Callable[[bool], None]
    replay: Callable[[int, FaultPage | None], None]
    cleared: Callable[[int], None]


@dataclass(slots=True)
class HostMethods:
    """The host's state for one channel. `waits_for`: the semaphore that it waits for, for reports."""

    effects: Effects
    waits_for: str = ""
    registers: dict[str, int] = field(default_factory=dict)
    _names: dict[int, str] = field(init=False)

    def __post_init__(self) -> None:
        table = methods.METHODS[0xC46F]
        self._names = {place: word.__name__ for word, place in table.items() if isinstance(place, int)}

    def run(self, subchannel: int, address: int, data: int) -> Iterator[float] | None:
        """Execute a method. Raises `BadPushbuffer` or `PageFault`."""
        name = self._names.get(address)
        if name is None or name == "ILLEGAL":
            raise BadPushbuffer(f"host method {address:#x}, which is none")
        self.registers[name] = data
        effects = self.effects
        if name == "SET_OBJECT":
            effects.bind(subchannel, data & 0xFFFF)
        elif name == "SEMAPHORED":
            return self._semaphore(methods.SEMAPHORED(data))
        elif name == "SEM_EXECUTE":
            return self._sem_execute(methods.SEM_EXECUTE(data))
        elif name == "NON_STALL_INTERRUPT":
            effects.notify()
        elif name == "SET_REFERENCE":
            effects.reference(data)
        elif name == "MEM_OP_D":
            self._memory_operation(methods.MEM_OP_D(data))
        elif name == "YIELD":
            return self._yield(methods.YIELD(data))
        elif name == "CLEAR_FAULTED":
            effects.cleared(methods.CLEAR_FAULTED(data).handle)
        return None

    def _yield(self, word: methods.YIELD) -> Iterator[float] | None:
        """Give up the turn before the next method."""
        if word.op not in (methods.YIELD_OP_RUNLIST_TIMESLICE, methods.YIELD_OP_TSG):
            return None
        self.effects.yields(word.op == methods.YIELD_OP_RUNLIST_TIMESLICE)
        return iter((0.0,))

    def _memory_operation(self, word: methods.MEM_OP_D) -> None:
        """Invalidate translations, of one address space or all, and of some addresses or all. Other operations concern
        caches."""
        if word.operation in CACHE_OPERATIONS:
            return
        if word.operation not in TLB_OPERATIONS:
            raise BadPushbuffer(f"MEM_OP_D has operation {word.operation:#x}")
        low = methods.MEM_OP_C(self.registers.get("MEM_OP_C", 0))
        if low.tlb_invalidate_pdb == methods.MEM_OP_C_TLB_INVALIDATE_PDB_ALL:
            root = None
        else:
            root = word.tlb_invalidate_pdb_addr_hi << 32 | low.tlb_invalidate_pdb_addr_lo << 12
        replay = low.tlb_invalidate_replay
        of_page = replay == methods.MEM_OP_C_TLB_INVALIDATE_REPLAY_CANCEL_VA_GLOBAL
        first, size = 0, WHOLE_SPACE
        if word.operation == methods.MEM_OP_D_OPERATION_MMU_TLB_INVALIDATE_TARGETED:
            first, size = self._target(single=of_page)
        if replay and low.tlb_invalidate_gpc == methods.MEM_OP_C_TLB_INVALIDATE_GPC_ENABLE:
            page = FaultPage(root, first, low.tlb_invalidate_access_type) if of_page and size == PAGE else None
            self.effects.replay(replay, page)
        self.effects.invalidate(root, first, size)

    def _target(self, *, single: bool) -> tuple[int, int]:
        """Return the addresses of an invalidation: a number of pages that is a power of two, aligned down to itself.
        `single`: it has no number, but one of an engine in its place, and is for one page.

        Source: uvm_hal_ampere_host_tlb_invalidate_va, uvm_hal_turing_cancel_faults_va of NVIDIA's open kernel modules.
        """
        low = methods.MEM_OP_A(self.registers.get("MEM_OP_A", 0))
        high = methods.MEM_OP_B(self.registers.get("MEM_OP_B", 0))
        size = PAGE if single else PAGE << low.tlb_invalidate_invalidation_size
        address = high.tlb_invalidate_target_addr_hi << 32 | low.tlb_invalidate_target_addr_lo << 12
        return address // size * size, size

    # --- semaphores -------------------------------------------------------------------------------------------------
    def _semaphore(self, execute: methods.SEMAPHORED) -> Iterator[float] | None:
        space, get = self.effects.space, self.registers.get
        gpu_va = (get("SEMAPHOREA", 0) & 0xFF) << 32 | get("SEMAPHOREB", 0) & ~3
        payload, operation = get("SEMAPHOREC", 0), execute.operation
        if operation in ACQUIRES:
            return self._acquire(gpu_va, ACQUIRES[operation], payload, 32)
        if operation == methods.SEMAPHORED_OPERATION_REDUCTION:
            signed = execute.format == methods.SEMAPHORED_FORMAT_SIGNED
            payload = self._reduce(gpu_va, execute.reduction, payload, 32, signed=signed)
        elif operation != methods.SEMAPHORED_OPERATION_RELEASE:
            raise BadPushbuffer(f"SEMAPHORED has operation {operation}")
        stamped = execute.release_size == methods.SEMAPHORED_RELEASE_SIZE_16BYTE
        release(space, gpu_va, payload, 32, self.effects.now_ns if stamped else None)
        return None

    def _sem_execute(self, execute: methods.SEM_EXECUTE) -> Iterator[float] | None:
        get = self.registers.get
        gpu_va = (get("SEM_ADDR_HI", 0) & 0xFF) << 32 | get("SEM_ADDR_LO", 0)
        bits = 64 if execute.payload_size else 32
        payload = get("SEM_PAYLOAD_LO", 0)
        if bits == 64:
            payload |= get("SEM_PAYLOAD_HI", 0) << 32
        operation, stamped = execute.operation, bool(execute.release_timestamp)
        acquires = operation in list(Acquire)
        alignment = STAMPED_ALIGNMENT if stamped and not acquires else bits // 8
        if gpu_va % alignment:
            raise BadPushbuffer(f"a semaphore of {8 * alignment} bits at {gpu_va:#x}")
        if acquires:
            return self._acquire(gpu_va, Acquire(operation), payload, bits)
        if operation == methods.SEM_EXECUTE_OPERATION_REDUCTION:
            signed = execute.reduction_format == methods.SEM_EXECUTE_REDUCTION_FORMAT_SIGNED
            payload = self._reduce(gpu_va, execute.reduction, payload, bits, signed=signed)
        elif operation != methods.SEM_EXECUTE_OPERATION_RELEASE:
            raise BadPushbuffer(f"SEM_EXECUTE has operation {operation}")
        release(self.effects.space, gpu_va, payload, bits, self.effects.now_ns if stamped else None)
        return None

    def _reduce(self, gpu_va: int, how: int, payload: int, bits: int, *, signed: bool) -> int:
        if how not in list(Reduction):
            raise BadPushbuffer(f"a semaphore's reduction is {how}, which is none")
        value = int.from_bytes(self.effects.space.read(gpu_va, bits // 8), "little")
        return reduced(Reduction(how), value, payload, bits, signed=signed)

    def _acquire(self, gpu_va: int, how: Acquire, payload: int, bits: int) -> Iterator[float]:
        """Wait until the semaphore is as wanted, however long that takes."""
        delay_us = LOOK_US
        while True:
            value = int.from_bytes(self.effects.space.read(gpu_va, bits // 8), "little")
            if holds(how, value, payload, bits):
                self.waits_for = ""
                return
            self.waits_for = f"{how.name} {payload:#x} at {gpu_va:#x}, which is {value:#x}"
            yield Idle(delay_us)
            delay_us = min(2 * delay_us, MAX_LOOK_US)
