"""Packets of the command processor's compute queues: arguments in, dwords out. This module knows no rings or cards.

A type-3 packet is a header (type, opcode, and the number of dwords after it minus one) and its body. Sources of the
layouts: nvd.h and soc15d.h for opcodes and bits; AMD's PAL headers (f32_mec_pm4_packets) for the order of dwords where
the kernel does not give it. What differs by generation is a `Row`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from ringup.autogen.amd import pm4, pm4_events
from ringup.autogen.layout import Word
from ringup.errors import NotSupported
from ringup.queues.amd.packets import Atomic, Compare, Template, Version, address, atomic_code, data, narrow, wide
from ringup.queues.amd.pm4_cache import FROM_OUTSIDE, NOTHING, TO_OUTSIDE, CacheRow, Caches
from ringup.queues.amd.pm4_cache import ROWS as CACHES
from ringup.queues.amd.pm4_layout import BASES, MAX_BODY, header, opcodes, template
from ringup.queues.dwords import ONES

# of a register's dword address in a packet: PAL's mem_mapped_register operands
REGISTER_BITS = 18
# nvd.h, WAIT_REG_MEM_MEM_SPACE
REGISTER, MEMORY = 0, 1
# nvd.h, WAIT_REG_MEM_OPERATION: wr_wait_wr_reg
WRITE_THEN_WAIT = 1
# intervals between polls, in units of 16 clocks. Source: gfx_v11_0_ring_emit_pipeline_sync
POLL = 4
# Source: gfx_v11_0_ring_emit_hdp_flush
POLL_REGISTER = 0x20
# Source: gfx_v11_0_emit_mem_sync
ACQUIRE_POLL = 0xA
# the high part of the size of a coherency range that is the whole address space: gfx_v11_0_emit_mem_sync
EVERYWHERE = 0xFF_FFFF
# bytes, of a coherency range
RANGE_UNIT = 256
CS_PARTIAL_FLUSH_INDEX, END_OF_PIPE_INDEX = 4, pm4.event_index__mec_release_mem__end_of_pipe
DATA_32 = pm4.data_sel__mec_release_mem__send_32_bit_low
DATA_64 = pm4.data_sel__mec_release_mem__send_64_bit_data
DATA_CLOCK = pm4.data_sel__mec_release_mem__send_gpu_clock_counter
DATA_CONFIRMED = pm4.int_sel__mec_release_mem__send_data_after_write_confirm
INTERRUPT_CONFIRMED = pm4.int_sel__mec_release_mem__send_interrupt_after_write_confirm
# PAL: index__me_set_sh_reg_index__apply_kmd_cu_and_mask
APPLY_CU_MASK = 3
# how many control words a builder caches: there are many, because some hold sizes and counts
KEPT_CONTROLS = 4096
# PAL: command__mec_atomic_mem__loop_until_compare_satisfied
LOOP = 1
# clocks between two tries. GUESS: any value is right
LOOP_INTERVAL = 0x100


class CopySource(IntEnum):
    """COPY_DATA's `src_sel`. Source: sid.h, COPY_DATA_*; PAL MEC_COPY_DATA_src_sel_enum."""

    REGISTER = 0
    MEMORY = 1
    L2 = 2
    PERFCOUNTER = 4
    IMMEDIATE = 5
    ATOMIC_RESULT = 6
    GPU_CLOCK = 9
    SYSTEM_CLOCK = 10


class CopyTarget(IntEnum):
    """COPY_DATA's `dst_sel`. Source: sid.h, COPY_DATA_*; PAL MEC_COPY_DATA_dst_sel_enum."""

    REGISTER = 0
    L2 = 2
    PERFCOUNTER = 4
    MEMORY = 5


MEMORY_SOURCES, MEMORY_TARGETS = (CopySource.MEMORY, CopySource.L2), (CopyTarget.MEMORY, CopyTarget.L2)


class Row(NamedTuple):
    """What differs between generations of the command processor.

    `dma_max_bytes`: the maximum of one DMA_DATA packet, a multiple of 32.
    """

    caches: CacheRow
    dma_max_bytes: int


# radv_cp_dma.c, cp_dma_max_byte_count
ROWS = {
    9: Row(CACHES[9], 0x3FF_FFE0),
    11: Row(CACHES[11], 0x7FE0),
    12: Row(CACHES[12], 0x7FE0),
}
# by packet: its opcode, the first dword address that it reaches, and the one after the last
WINDOWS: Mapping[str, tuple[int, int, int]] = {
    "SET_SH_REG": (pm4.SET_SH_REG, pm4.SET_SH_REG_START, pm4.SET_SH_REG_END),
    "SET_UCONFIG_REG": (pm4.SET_UCONFIG_REG, pm4.SET_UCONFIG_REG_START, pm4.SET_UCONFIG_REG_END),
    "SET_CONFIG_REG": (pm4.SET_CONFIG_REG, pm4.SET_CONFIG_REG_START, pm4.SET_CONFIG_REG_END),
}


class Pm4:
    """Builders for one version of the graphics core, such as (11, 0, 0). They have no state that packets depend on, so
    one object serves every queue of a card.
    """

    def __init__(self, version: Version) -> None:
        """Raise `NotSupported` for a version without facts."""
        opcodes(version)
        self.version, self.row, self._bases = version, ROWS[version[0]], BASES[version[0]]
        self._addresses: dict[type[Word], int] = {}
        self._controls: dict[tuple[type[Word], tuple[tuple[str, int], ...]], int] = {}
        self._acquires: dict[Caches, int] = {}
        self._releases: dict[tuple[Caches, int], int] = {}
        write = pm4.WRITE_DATA_CONTROL.at(version)
        self._write = [int(write(dst_sel=pm4.WRITE_DATA_DST_SEL_MEM, wr_confirm=confirm)) for confirm in (0, 1)]
        wait = pm4.WAIT_REG_MEM_CONTROL.at(version)
        self._wait = {
            (space, how): int(wait(function=how, mem_space=space)) for space in (REGISTER, MEMORY) for how in Compare
        }
        self._write_then_wait = int(wait(function=Compare.EQUAL, operation=WRITE_THEN_WAIT))
        select, kinds = pm4.RELEASE_MEM_DATA.at(version), ((False, DATA_CONFIRMED), (True, INTERRUPT_CONFIRMED))
        self._select = {
            (sel, interrupt): int(select(data_sel=sel, int_sel=kind))
            for sel in (DATA_32, DATA_64, DATA_CLOCK)
            for interrupt, kind in kinds
        }
        initiator = pm4.DISPATCH_DIRECT_INITIATOR.at(version)
        self.initiator = initiator(compute_shader_en=1, force_start_at_000=1, order_mode=1)
        self.initiator_wave32 = initiator(int(self.initiator), cs_w32_en=1) if "cs_w32_en" in initiator.FIELDS else None

    def template(self, dwords: list[int]) -> Template:
        """Return a stream of these builders' packets as bytes, with the places of its operands to patch.
        `pm4_layout.template` says how they are called.
        """
        return template(dwords, self.version)

    # packets that do nothing

    def nop(self, count_dwords: int = 1) -> list[int]:
        """Return `count_dwords` (1 to 16384) dwords that the engine skips. Source: gfx_v11_0.c, funcs.nop: a NOP of one
        dword has the count 0x3fff.
        """
        if not 1 <= count_dwords <= MAX_BODY + 1:
            raise ValueError(f"NOP fills 1 to {MAX_BODY + 1} dwords, not {count_dwords}")
        if count_dwords == 1:
            return [header(pm4.NOP, 0)]
        return [header(pm4.NOP, count_dwords - 1), *[0] * (count_dwords - 1)]

    def _control(self, word: type[Word], **fields: int) -> int:
        """Return a control word as a number. It is cached, because making a typed word takes ten times as long as the
        rest of a packet.
        """
        key = word, tuple(fields.items())
        found = self._controls.get(key)
        if found is None:
            if len(self._controls) >= KEPT_CONTROLS:
                self._controls.clear()
            found = self._controls[key] = int(word.at(self.version)(**fields))
        return found

    # registers

    def register(self, word: type[Word]) -> int:
        """Return the dword address of a register of the graphics core."""
        found = self._addresses.get(word)
        if found is None:
            offset, segment = word.place(self.version)
            if segment >= len(self._bases):
                raise ValueError(f"{word.__name__} lies in segment {segment}, which no packet reaches")
            found = self._addresses[word] = self._bases[segment] + offset
        return found

    def set_sh(self, *words: Word) -> list[int]:
        """Write a queue's shader registers, given as typed words. Consecutive registers share a packet. Source: nvd.h,
        PACKET3_SET_SH_REG.
        """
        return self._set_words("SET_SH_REG", words)

    def set_sh_at(self, register: type[Word] | int, *values: int) -> list[int]:
        """Write consecutive shader registers. `register` is the first, such as COMPUTE_USER_DATA_0, or its dword
        address.
        """
        return self._set("SET_SH_REG", register, values)

    def set_sh_index(self, word: Word, index: int = APPLY_CU_MASK) -> list[int]:
        """Write a shader register whose value the engine changes: index 3 masks it with the compute units that the
        kernel driver allows.

        Source: PAL PM4_MEC_SET_SH_REG_INDEX.
        """
        where = self._offset("SET_SH_REG", self.register(type(word).BASE or type(word)), 1)
        control = self._control(pm4.SET_SH_REG_CONTROL, reg_offset=where, index=index)
        return [header(pm4.SET_SH_REG_INDEX, 2), control, int(word)]

    def set_uconfig(self, *words: Word) -> list[int]:
        """Write user configuration registers as typed words. Source: nvd.h, PACKET3_SET_UCONFIG_REG."""
        return self._set_words("SET_UCONFIG_REG", words)

    def set_uconfig_at(self, register: type[Word] | int, *values: int) -> list[int]:
        """Write consecutive user configuration registers. `register` is the first."""
        return self._set("SET_UCONFIG_REG", register, values)

    def set_config_at(self, register: type[Word] | int, *values: int) -> list[int]:
        """Write consecutive privileged configuration registers. `register` is the first. Source: nvd.h,
        PACKET3_SET_CONFIG_REG.
        """
        return self._set("SET_CONFIG_REG", register, values)

    def _set_words(self, packet: str, words: tuple[Word, ...]) -> list[int]:
        if not words:
            raise ValueError(f"{packet} writes at least one register")
        out: list[int] = []
        run: list[int] = []
        start = 0
        for word in words:
            place = self.register(type(word).BASE or type(word))
            if run and place == start + len(run):
                run.append(int(word))
                continue
            if run:
                out += self._set(packet, start, run)
            start, run = place, [int(word)]
        return out + self._set(packet, start, run)

    def _set(self, packet: str, register: type[Word] | int, values: tuple[int, ...] | list[int]) -> list[int]:
        place = register if isinstance(register, int) else self.register(register)
        offset = self._offset(packet, place, len(values))
        return [header(WINDOWS[packet][0], 1 + len(values)), offset, *data(values, packet)]

    def _offset(self, packet: str, place: int, count: int) -> int:
        _, first, end = WINDOWS[packet]
        if not first <= place <= end - count:
            raise ValueError(
                f"{packet} reaches dwords {first:#x} to {end - 1:#x}, not {place:#x} and {count - 1} after it"
            )
        return place - first

    def reg_rmw(self, register: type[Word] | int, and_mask: int, or_mask: int) -> list[int]:
        """Make a register `value & and_mask | or_mask`. Source: PAL PM4_ME_REG_RMW.

        UNKNOWN: whether the compute engine accepts it. Its public headers lack the packet. Nothing here uses it on a
        compute queue.
        """
        control = self._control(pm4.REG_RMW_CONTROL, mod_addr=self._place(register))
        masks = narrow(and_mask, 32, "REG_RMW.and_mask"), narrow(or_mask, 32, "REG_RMW.or_mask")
        return [header(pm4.REG_RMW, 3), control, *masks]

    def _place(self, register: type[Word] | int) -> int:
        place = register if isinstance(register, int) else self.register(register)
        return narrow(place, REGISTER_BITS, "a register's dword address")

    # dispatches

    def dispatch(self, x: int, y: int, z: int, initiator: Word | None = None) -> list[int]:
        """Start a grid of `x` * `y` * `z` work-groups (or threads, with `use_thread_dimensions`). The shader registers
        define the rest.

        `initiator`: the default is `self.initiator`; a wave32 program needs `cs_w32_en`. Source: radv_cmd_buffer.c,
        radv_emit_dispatch_packets.
        """
        if not (0 <= x <= ONES and 0 <= y <= ONES and 0 <= z <= ONES):
            raise ValueError(f"DISPATCH_DIRECT takes dimensions of 32 bits, not {x}, {y}, {z}")
        word = self.initiator if initiator is None else initiator
        return [header(pm4.DISPATCH_DIRECT, 4, compute=True), x, y, z, int(word)]

    def dispatch_indirect(self, gpu_va: int, initiator: Word | None = None) -> list[int]:
        """Start a grid whose three dimensions the engine reads at `gpu_va`. Source: PAL PM4_MEC_DISPATCH_INDIRECT."""
        word = self.initiator if initiator is None else initiator
        where = address(gpu_va, 4, "DISPATCH_INDIRECT.addr")
        return [header(pm4.DISPATCH_INDIRECT, 3, compute=True), *where, int(word)]

    # order and caches

    def wait_for_dispatches(self) -> list[int]:
        """Hold the queue until every earlier dispatch has ended. Source: radv_cs.c, CS_PARTIAL_FLUSH."""
        return self.event_write(pm4_events.EVENT_TYPE_CS_PARTIAL_FLUSH, CS_PARTIAL_FLUSH_INDEX)

    def event_write(self, event_type: int, event_index: int = 0) -> list[int]:
        """Send an event down the pipeline. Source: nvd.h, PACKET3_EVENT_WRITE."""
        control = self._control(pm4.EVENT_WRITE_CONTROL, event_type=event_type, event_index=event_index)
        return [header(pm4.EVENT_WRITE, 1), control]

    def acquire_mem(self, caches: Caches = FROM_OUTSIDE) -> list[int]:
        """Write back and invalidate caches for all addresses, and wait until it is done. Source:
        gfx_v11_0_emit_mem_sync, gfx_v9_4_3_emit_mem_sync.
        """
        bits = self._acquires.get(caches)
        if bits is None:
            bits = self._acquires[caches] = int(self.row.caches.acquire_bits(caches, self.version))
        return self._acquire(bits, ONES, EVERYWHERE, 0, 0)

    def acquire_range(self, gpu_va: int, size_bytes: int, caches: Caches = FROM_OUTSIDE) -> list[int]:
        """Do the same as `acquire_mem` for a range, in units of 256 bytes. The hardware may include more addresses.
        Source: nvd.h, PACKET3_ACQUIRE_MEM.
        """
        if gpu_va < 0 or size_bytes <= 0:
            raise ValueError(f"ACQUIRE_MEM covers a range of at least one byte, not {size_bytes} at {gpu_va:#x}")
        first, end = gpu_va // RANGE_UNIT, -(-(gpu_va + size_bytes) // RANGE_UNIT)
        size, base = wide(end - first, "ACQUIRE_MEM.coher_size"), wide(first, "ACQUIRE_MEM.coher_base")
        high = self._control(pm4.ACQUIRE_MEM_COHER_SIZE_HI, coher_size_hi=size[1])
        base_high = self._control(pm4.ACQUIRE_MEM_COHER_BASE_HI, coher_base_hi=base[1])
        bits = int(self.row.caches.acquire_bits(caches, self.version))
        return self._acquire(bits, size[0], high, base[0], base_high)

    def _acquire(self, bits: int, size: int, size_high: int, base: int, base_high: int) -> list[int]:
        """Return the packet. The cache bits are its last dword if it has a GCR_CNTL, and its first if they are
        CP_COHER_CNTL.
        """
        place, span = (
            self.row.caches.acquire_word.place(self.version)[0],
            (size, size_high, base, base_high, ACQUIRE_POLL),
        )
        if place == 1:
            return [header(pm4.ACQUIRE_MEM, 6), bits, *span]
        return [header(pm4.ACQUIRE_MEM, 7), 0, *span, bits]

    def release_mem(
        self,
        gpu_va: int,
        value: int,
        *,
        bits: int = 64,
        interrupt: bool = False,
        context_id: int = 0,
        caches: Caches = TO_OUTSIDE,
        event_type: int = pm4_events.EVENT_TYPE_CACHE_FLUSH_AND_INV_TS_EVENT,
    ) -> list[int]:
        """Store `value` (32 or 64 bits) at `gpu_va` when all earlier work has ended and `caches` are written back. Then
        interrupt the host if `interrupt` is set.

        The interrupt carries `context_id` (28 bits). The store waits for the confirmation of the write-backs, as in
        radv_cs.c. Source: gfx_v11_0_ring_emit_fence, gfx_v9_4_3_ring_emit_fence.
        """
        sel = {32: DATA_32, 64: DATA_64}.get(bits)
        if sel is None:
            raise ValueError(f"RELEASE_MEM stores 32 or 64 bits, not {bits}")
        narrow(value, bits, "RELEASE_MEM.data")
        return self._release(gpu_va, bits // 8, sel, value, interrupt, context_id, caches, event_type)

    def release_clock(self, gpu_va: int, caches: Caches = NOTHING) -> list[int]:
        """Store the 64-bit counter of the reference clock at `gpu_va` when all earlier work has ended. Source: nvd.h,
        RELEASE_MEM_DATA_SEL 3.
        """
        return self._release(gpu_va, 8, DATA_CLOCK, 0, False, 0, caches, pm4_events.EVENT_TYPE_BOTTOM_OF_PIPE_TS)

    def _release(
        self,
        gpu_va: int,
        align: int,
        sel: int,
        value: int,
        interrupt: bool,
        context_id: int,
        caches: Caches,
        event: int,
    ) -> list[int]:
        operation = self._releases.get((caches, event))
        if operation is None:
            fields = self.row.caches.release_fields(caches)
            operation = self._control(pm4.RELEASE_MEM_OP, event_type=event, event_index=END_OF_PIPE_INDEX, **fields)
            self._releases[caches, event] = operation
        at, halves = address(gpu_va, align, "RELEASE_MEM.address"), wide(value, "RELEASE_MEM.data")
        return [
            header(pm4.RELEASE_MEM, 7), operation, self._select[sel, interrupt], *at, *halves, narrow(context_id, 28, "RELEASE_MEM.int_ctxid"),
        ]  # fmt: skip

    def pfp_sync_me(self) -> list[int]:
        """Let the graphics engine's prefetch parser (PFP) wait for its micro engine (ME). Compute queues have no PFP.
        Source: nvd.h, PACKET3_PFP_SYNC_ME.
        """
        return [header(pm4.PFP_SYNC_ME, 1), 0]

    # memory and registers

    def write_data(self, gpu_va: int, *dwords: int, confirm: bool = True) -> list[int]:
        """Store `dwords` at `gpu_va` (4-byte aligned). With `confirm`, the queue waits until they have arrived. Source:
        nvd.h, PACKET3_WRITE_DATA.
        """
        where = address(gpu_va, 4, "WRITE_DATA.dst_mem_addr")
        return [header(pm4.WRITE_DATA, 3 + len(dwords)), self._write[confirm], *where, *data(dwords, "WRITE_DATA")]

    def write_register(self, register: type[Word] | int, *values: int, increment: bool = True) -> list[int]:
        """Store `values` into consecutive registers from `register` on, or, without `increment`, all into `register`.
        Source: gfx_v11_0_ring_emit_wreg.
        """
        control = self._control(
            pm4.WRITE_DATA_CONTROL,
            dst_sel=pm4.WRITE_DATA_DST_SEL_MEM_MAPPED_REGISTER,
            wr_confirm=1,
            wr_one_addr=not increment,
        )
        body = control, self._place(register), 0, *data(values, "WRITE_DATA")
        return [header(pm4.WRITE_DATA, len(body)), *body]

    def wait_mem(
        self, gpu_va: int, value: int, mask: int = ONES, compare: Compare = Compare.GREATER_EQUAL, poll: int = POLL
    ) -> list[int]:
        """Hold the queue until the comparison of the masked dword at `gpu_va` with `value` is true. Numbers are
        unsigned. Source: gfx_v11_0_wait_reg_mem.
        """
        where = address(gpu_va, 4, "WAIT_REG_MEM.mem_poll_addr")
        return [header(pm4.WAIT_REG_MEM, 6), self._wait[MEMORY, compare], *where, *self._until(value, mask, poll)]

    def wait_mem64(
        self,
        gpu_va: int,
        value: int,
        mask: int = 0xFFFF_FFFF_FFFF_FFFF,
        compare: Compare = Compare.GREATER_EQUAL,
        poll: int = POLL,
    ) -> list[int]:
        """Do the same as `wait_mem` with a quadword. Source: PAL PM4_MEC_WAIT_REG_MEM64. The kernel's headers for GFX9
        lack the packet.
        """
        self._known("WAIT_REG_MEM64", pm4.WAIT_REG_MEM64)
        where, limit = (
            address(gpu_va, 8, "WAIT_REG_MEM64.mem_poll_addr"),
            narrow(poll, 16, "WAIT_REG_MEM64.poll_interval"),
        )
        reference, masked = wide(value, "WAIT_REG_MEM64.reference"), wide(mask, "WAIT_REG_MEM64.mask")
        return [header(pm4.WAIT_REG_MEM64, 8), self._wait[MEMORY, compare], *where, *reference, *masked, limit]

    def wait_register(
        self,
        register: type[Word] | int,
        value: int,
        mask: int = ONES,
        compare: Compare = Compare.EQUAL,
        poll: int = POLL_REGISTER,
    ) -> list[int]:
        """Do the same as `wait_mem` with a register. Source: gfx_v11_0_ring_emit_reg_wait."""
        place = self._place(register)
        return [header(pm4.WAIT_REG_MEM, 6), self._wait[REGISTER, compare], place, 0, *self._until(value, mask, poll)]

    def write_then_wait(
        self, written: type[Word] | int, read: type[Word] | int, value: int, mask: int, poll: int = POLL_REGISTER
    ) -> list[int]:
        """Write `value` to one register, then wait until another one, masked, is equal to `value`. The registers are a
        flush request and its acknowledgement.

        Source: gfx_v11_0_ring_emit_hdp_flush, emit_reg_write_reg_wait.
        """
        places = self._place(written), self._place(read)
        return [header(pm4.WAIT_REG_MEM, 6), self._write_then_wait, *places, *self._until(value, mask, poll)]

    def _until(self, value: int, mask: int, poll: int) -> tuple[int, int, int]:
        return (
            narrow(value, 32, "WAIT_REG_MEM.reference"),
            narrow(mask, 32, "WAIT_REG_MEM.mask"),
            narrow(poll, 16, "WAIT_REG_MEM.poll_interval"),
        )

    def _known(self, name: str, opcode: int) -> None:
        if opcode not in pm4.OPCODES[self.version]:
            raise NotSupported(f"graphics core {self.version} has no {name} in its public headers")

    def copy_data(
        self,
        source: CopySource,
        source_at: int,
        target: CopyTarget,
        target_at: int,
        bits: int = 32,
        confirm: bool = True,
    ) -> list[int]:
        """Copy 32 or 64 bits between registers (dword address), memory (gpu_va), an immediate value or a clock.

        Source: gfx_v11_0_ring_emit_rreg; PAL PM4_MEC_COPY_DATA.
        """
        if bits not in (32, 64):
            raise ValueError(f"COPY_DATA copies 32 or 64 bits, not {bits}")
        control = self._control(
            pm4.COPY_DATA_CONTROL, src_sel=source, dst_sel=target, count_sel=bits == 64, wr_confirm=confirm
        )
        halves = []
        for at, what, is_memory, is_register in (
            (source_at, "COPY_DATA.src", source in MEMORY_SOURCES, source == CopySource.REGISTER),
            (target_at, "COPY_DATA.dst", target in MEMORY_TARGETS, target == CopyTarget.REGISTER),
        ):
            if is_register:
                halves += [self._place(at), 0]
            elif is_memory:
                halves += address(at, bits // 8, what)
            else:
                halves += wide(at, what)
        return [header(pm4.COPY_DATA, 5), control, *halves]

    def store_register(self, register: type[Word] | int, gpu_va: int) -> list[int]:
        """Store a register's value at `gpu_va`."""
        return self.copy_data(CopySource.REGISTER, self._place(register), CopyTarget.MEMORY, gpu_va)

    def store_clock(self, gpu_va: int) -> list[int]:
        """Store the 64-bit counter of the reference clock at `gpu_va` at once, without waiting for earlier work.
        Source: sid.h, COPY_DATA_TIMESTAMP.
        """
        return self.copy_data(CopySource.GPU_CLOCK, 0, CopyTarget.MEMORY, gpu_va, bits=64)

    def copy_memory(self, target_va: int, source_va: int, size_bytes: int) -> list[int]:
        """Copy memory through the second-level cache, by the command processor itself. Large copies take several
        packets.

        Use it for small copies: the copy engines are faster. The ranges may not overlap. Source: radv_cp_dma.c,
        radv_cs_emit_cp_dma.
        """
        return self._dma(target_va, source_va, size_bytes, pm4.DMA_DATA_SRC_SEL_SRC_ADDR_TC_L2)

    def fill_memory(self, target_va: int, value: int, size_bytes: int) -> list[int]:
        """Fill `size_bytes` (a multiple of 4) with a dword, by the same packets as `copy_memory`."""
        if size_bytes % 4 or target_va % 4:
            raise ValueError(f"DMA_DATA fills whole dwords, not {size_bytes} bytes at {target_va:#x}")
        return self._dma(target_va, narrow(value, 32, "DMA_DATA.data"), size_bytes, pm4.DMA_DATA_SRC_SEL_DATA)

    def prefetch(self, gpu_va: int, size_bytes: int) -> list[int]:
        """Load a range into the second-level cache, at most `dma_max_bytes` of it. The queue does not wait. Source:
        radv_cp_dma.c, radv_cs_cp_dma_prefetch.
        """
        size = min(size_bytes, self.row.dma_max_bytes)
        control = self._control(
            pm4.DMA_DATA_CONTROL, src_sel=pm4.DMA_DATA_SRC_SEL_SRC_ADDR_TC_L2, dst_sel=pm4.DMA_DATA_DST_SEL_NOWHERE
        )
        command = self._control(pm4.DMA_DATA_COMMAND, byte_count=size, disable_wr_confirm=1)
        where = address(gpu_va, 1, "DMA_DATA.src_addr")
        return [header(pm4.DMA_DATA, 6), control, *where, *where, command]

    def _dma(self, target_va: int, source: int, size_bytes: int, source_sel: int) -> list[int]:
        if size_bytes <= 0:
            raise ValueError(f"DMA_DATA moves at least one byte, not {size_bytes}")
        moves, out, at = source_sel != pm4.DMA_DATA_SRC_SEL_DATA, [], 0
        while at < size_bytes:
            size = min(size_bytes - at, self.row.dma_max_bytes)
            # ORDER: only the last packet waits, for all packets of the copy
            last = at + size == size_bytes
            control = self._control(
                pm4.DMA_DATA_CONTROL, src_sel=source_sel, dst_sel=pm4.DMA_DATA_DST_SEL_DST_ADDR_TC_L2, cp_sync=last
            )
            command = self._control(pm4.DMA_DATA_COMMAND, byte_count=size)
            origin = address(source + at, 1, "DMA_DATA.src_addr") if moves else (source, 0)
            target = address(target_va + at, 1, "DMA_DATA.dst_addr")
            out += [header(pm4.DMA_DATA, 6), control, *origin, *target, command]
            at += size
        return out

    def atomic_mem(
        self, operation: Atomic, gpu_va: int, value: int, compare: int = 0, *, bits: int = 64, loop: bool = False
    ) -> list[int]:
        """Change a value in memory by an atomic of the second-level cache. `loop`: repeat a compare-and-swap until it
        succeeds.

        Source: PAL PM4_MEC_ATOMIC_MEM.
        """
        code = atomic_code(operation, bits)
        control = self._control(pm4.ATOMIC_MEM_CONTROL, atomic=code, command=LOOP if loop else 0)
        interval = self._control(pm4.ATOMIC_MEM_LOOP, loop_interval=LOOP_INTERVAL if loop else 0)
        narrow(value, bits, "ATOMIC_MEM.src_data")
        narrow(compare, bits, "ATOMIC_MEM.cmp_data")
        where = address(gpu_va, bits // 8, "ATOMIC_MEM.addr")
        operands = *wide(value, "ATOMIC_MEM.src_data"), *wide(compare, "ATOMIC_MEM.cmp_data")
        return [header(pm4.ATOMIC_MEM, 8), control, *where, *operands, interval]

    # flow

    def indirect_buffer(
        self, gpu_va: int, count_dwords: int, vmid: int = 0, *, chain: bool = False, inherit_vmid: bool = False
    ) -> list[int]:
        """Run `count_dwords` at `gpu_va` and return; with `chain`, do not return. `inherit_vmid`: keep the queue's
        address space.

        Source: gfx_v11_0_ring_emit_ib_compute (bit 30, "inherit vmid from mqd"); nvd.h, INDIRECT_BUFFER_*.
        """
        if not 1 <= count_dwords < 1 << 20:
            raise ValueError(f"INDIRECT_BUFFER runs 1 to {(1 << 20) - 1} dwords, not {count_dwords}")
        control = self._control(
            pm4.INDIRECT_BUFFER_CONTROL, ib_size=count_dwords, chain=chain, valid=1, vmid=vmid, pre_resume=inherit_vmid
        )
        return [header(pm4.INDIRECT_BUFFER, 3), *address(gpu_va, 4, "INDIRECT_BUFFER.ib_base"), control]

    def cond_exec(self, gpu_va: int, count_dwords: int) -> list[int]:
        """Skip the next `count_dwords` when the dword at `gpu_va` is zero. Source:
        gfx_v11_0_ring_emit_init_cond_exec.
        """
        count = self._control(pm4.COND_EXEC_COUNT, exec_count=count_dwords)
        return [header(pm4.COND_EXEC, 4), *address(gpu_va, 4, "COND_EXEC.addr"), 0, count]

    def pred_exec(self, devices: int, count_dwords: int) -> list[int]:
        """Run the next `count_dwords` only on the compute dies in the mask `devices`. Source: PAL PM4_PFP_PRED_EXEC."""
        control = self._control(pm4.PRED_EXEC_CONTROL, exec_count=count_dwords, device_select=devices)
        return [header(pm4.PRED_EXEC, 1), control]
