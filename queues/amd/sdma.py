"""Packets of the copy engines (SDMA): arguments in, dwords out. This module knows no rings or cards.

A packet begins with its opcode and sub-opcode. It has no length field, so a reader must know every packet. Sources:
sdma_v6_0_0_pkt_open.h and vega10_sdma_pkt_open.h for layouts; sdma_v6_0.c, sdma_v7_0.c, sdma_v4_4_2.c and Mesa's
radv_sdma.c for the use of packets. What differs between generations is a row of `sdma_words`.
"""

from __future__ import annotations

from typing import NamedTuple

from ringup.errors import NotSupported
from ringup.queues.amd.packets import Atomic, Compare, Template, Version, address, atomic_code, data, narrow, wide
from ringup.queues.amd.pm4_cache import FROM_OUTSIDE, Caches
from ringup.queues.amd.pm4_cache import ROWS as CACHES
from ringup.queues.amd.sdma_layout import template
from ringup.queues.amd.sdma_words import KINDS, row_of, words_of
from ringup.queues.dwords import ONES

# uncached: sdma_v6_0.c, SDMA_PKT_FENCE_HEADER_MTYPE(0x3)
MTYPE_UC = 3
# sdma_v6_0.c, SDMA_PKT_SRBM_WRITE_HEADER_BYTE_EN(0xf)
BYTE_ENABLES = 0xF
# radv_sdma.c: a fill size of 2 stores dwords; the count is still in bytes
FILL_DWORDS = 2
# sid.h, SDMA_POLL_RETRY_INDEFINITELY
RETRY_FOR_EVER = 0xFFF
# sdma_v6_0.c, emit_pipeline_sync and emit_reg_wait
POLL, POLL_REGISTER = 4, 10
REGISTER_BITS, REGISTER_BYTES = 18, 4
# sdma_v6_0.c: instead of the engine id of a hub, means that this hub takes no part
ENGINE_NONE = 0x1F
# sdma_v6_0_ring_emit_ib: "must end on a 8 DW boundary"
CALL_ALIGN_DWORDS, CALL_DWORDS = 8, 6
# sdma_v6_0_ring_emit_ib: "base must be 32 byte aligned"
CALL_ALIGN_BYTES = 32
MAX_ELEMENT = 16  # bytes
USER_CACHES = dict.fromkeys(("gl2_wb", "gl2_inv", "gl1_inv", "glv_inv", "glk_wb", "glk_inv"), 1)
# the elements that a slice pitch can hold. A rectangle of one slice does not use it
SLICE_MAX = 1 << 28


class Plane(NamedTuple):
    """One side of a rectangle copy: its address, its pitches, and where the rectangle begins in it. Pitches and
    coordinates count elements.
    """

    gpu_va: int
    pitch: int
    slice_pitch: int = 0
    x: int = 0
    y: int = 0
    z: int = 0


class Sdma:
    """Builders for one version of the engine, such as (6, 0, 0). They have no state, so one object serves every queue
    of a card.
    """

    def __init__(self, version: Version) -> None:
        """Raise `NotSupported` for a version without a row."""
        self.version, self.row = version, row_of(version)
        self.words = words_of(version)
        opcodes = {kind.name: (kind.op, kind.sub_op) for kind in KINDS}
        self._op = {name: int(word(op=opcodes[name][0])) for name, word in self.words.items()}
        for name, word in self.words.items():
            if opcodes[name][1]:
                self._op[name] = int(word(self._op[name], sub_op=opcodes[name][1]))
        self._fill = int(self.words["CONSTANT_FILL"](self._op["CONSTANT_FILL"], fillsize=FILL_DWORDS))
        uncached = {"mtype": MTYPE_UC} if self.row.fence_uncached else {}
        self._fence = int(self.words["FENCE"](self._op["FENCE"], **uncached))
        poll = self.words["POLL_REGMEM"]
        self._poll = [
            {how: int(poll(self._op["POLL_REGMEM"], func=how, mem_poll=memory)) for how in Compare} for memory in (0, 1)
        ]
        self._limits = self._dwords("POLL_REGMEM", retry_count=RETRY_FOR_EVER)[-1]
        self._flush = int(poll(self._op["POLL_REGMEM"], func=Compare.EQUAL, hdp_flush=1))
        self._calls = [int(self.words["INDIRECT"](self._op["INDIRECT"], vmid=vmid)) for vmid in range(16)]
        byte_enables = {} if self.row.register_bytes else {"byte_en": BYTE_ENABLES}
        self._write_register = int(self.words["SRBM_WRITE"](self._op["SRBM_WRITE"], **byte_enables))

    def _dwords(self, name: str, **fields: int) -> list[int]:
        """Return the packet `name` as dwords."""
        if name not in self.words:
            raise NotSupported(f"SDMA {self.version} has no {name}")
        word = self.words[name](self._op[name], **fields)
        return [int(word) >> at & ONES for at in range(0, word.WIDTH, 32)]

    def template(self, dwords: list[int]) -> Template:
        """Return a stream of these builders' packets as bytes, with the places of its operands to patch.
        `sdma_layout.template` says how they are called.
        """
        return template(dwords, self.version)

    # packets that do nothing

    def nop(self, count_dwords: int = 1) -> list[int]:
        """Return `count_dwords` NOPs of one dword each. Every firmware accepts them. Each NOP waits for the copies
        before it.
        """
        if count_dwords < 0:
            raise ValueError(f"NOP fills no {count_dwords} dwords")
        return [self._op["NOP"]] * count_dwords

    def nop_burst(self, count_dwords: int) -> list[int]:
        """Return one NOP of 1 to 16384 dwords, which the engine skips at once. Not every firmware knows it. Source:
        sdma_v6_0_ring_insert_nop, burst_nop.
        """
        if not 1 <= count_dwords <= 1 << 14:
            raise ValueError(f"NOP skips 1 to 16384 dwords, not {count_dwords}")
        return [int(self.words["NOP"](self._op["NOP"], count=count_dwords - 1)), *self.nop(count_dwords - 1)]

    def wait_idle(self) -> list[int]:
        """Hold the queue until the earlier copies have ended: the next copy may then read what they wrote.

        QUIRK: engines track such dependences themselves, but not reliably. Source: radv_cmd_buffer.c, radv_barrier.
        """
        return self.nop()

    # copies, fills, writes

    def copy_linear(self, target_va: int, source_va: int, size_bytes: int) -> list[int]:
        """Copy 1 to `row.copy_max_bytes` bytes. Fastest where addresses and size are multiples of 4. The ranges may not
        overlap.

        Compressed memory is copied without decompression (SDMA 7). Source: sdma_v6_0_emit_copy_buffer; radv_sdma.c,
        radv_sdma_copy_memory.
        """
        if not 1 <= size_bytes <= self.row.copy_max_bytes:
            raise ValueError(f"COPY_LINEAR.count takes 1 to {self.row.copy_max_bytes} bytes, not {size_bytes}")
        source, target = address(source_va, 1, "COPY_LINEAR.src_addr"), address(target_va, 1, "COPY_LINEAR.dst_addr")
        return [self._op["COPY_LINEAR"], size_bytes - 1, 0, *source, *target]

    def copy_rect(
        self, target: Plane, source: Plane, width: int, height: int, depth: int = 1, element_bytes: int = 4
    ) -> list[int]:
        """Copy `width` x `height` x `depth` elements of 1, 2, 4, 8 or 16 bytes between linear planes whose pitches
        differ.

        Addresses are multiples of 4. Pitches are multiples of 4 bytes (SDMA 4: of 4 elements). Each coordinate, size
        and pitch must fit its field. Source: radv_sdma.c, radv_sdma_emit_copy_linear_sub_window.
        """
        fields = self._rect_fields(target, source, (width, height, depth), element_bytes)
        return self._dwords("COPY_LINEAR_SUBWIN", elementsize=element_bytes.bit_length() - 1, **fields)

    def _rect_fields(
        self, target: Plane, source: Plane, extent: tuple[int, int, int], element_bytes: int
    ) -> dict[str, int]:
        if element_bytes.bit_count() != 1 or element_bytes > MAX_ELEMENT:
            raise ValueError(f"an element is 1, 2, 4, 8 or 16 bytes, not {element_bytes}")
        if min(extent) < 1:
            raise ValueError(f"a rectangle has at least one element each way, not {extent}")
        align = self.row.pitch_align or max(1, 4 // element_bytes)
        fields = dict(zip(("rect_x", "rect_y", "rect_z"), (size - 1 for size in extent), strict=True))
        for side, plane in (("src", source), ("dst", target)):
            low, high = address(plane.gpu_va, 4, f"COPY_LINEAR_SUBWIN.{side}_addr")
            if plane.pitch < 1 or plane.pitch % align:
                raise ValueError(
                    f"COPY_LINEAR_SUBWIN.{side}_pitch is a multiple of {align} elements, not {plane.pitch}"
                )
            slice_pitch = plane.slice_pitch or min(plane.pitch * (plane.y + extent[1]), SLICE_MAX)
            fields |= {f"{side}_addr_31_0": low, f"{side}_addr_63_32": high, f"{side}_pitch": plane.pitch - 1}
            fields |= {f"{side}_x": plane.x, f"{side}_y": plane.y, f"{side}_z": plane.z}
            fields[f"{side}_slice_pitch"] = slice_pitch - 1
        return fields

    def copy_rect_large(self, target: Plane, source: Plane, width: int, height: int, depth: int = 1) -> list[int]:
        """Copy a rectangle of bytes whose coordinates need up to 32 bits.

        UNKNOWN: whether pitches and sizes are stored minus one. Here they are, as in the small packet: the header gives
        the fields, but no public driver fills them.
        """
        fields = self._rect_fields(target, source, (width, height, depth), 1)
        for side in ("src", "dst"):
            low, high = wide(fields.pop(f"{side}_slice_pitch"), f"COPY_LINEAR_SUBWIN_LARGE.{side}_slice_pitch")
            fields |= {f"{side}_slice_pitch_31_0": low, f"{side}_slice_pitch_47_32": high}
        return self._dwords("COPY_LINEAR_SUBWIN_LARGE", **fields)

    def fill(self, gpu_va: int, value: int, size_bytes: int) -> list[int]:
        """Fill 4 to `row.fill_max_bytes` bytes (a multiple of 4) with a dword. Source: radv_sdma.c,
        radv_sdma_fill_buffer.
        """
        if size_bytes % 4 or not 4 <= size_bytes <= self.row.fill_max_bytes:
            raise ValueError(
                f"CONSTANT_FILL.count takes a multiple of 4 up to {self.row.fill_max_bytes} bytes, not {size_bytes}"
            )
        where = address(gpu_va, 4, "CONSTANT_FILL.dst_addr")
        return [self._fill, *where, narrow(value, 32, "CONSTANT_FILL.src_data"), size_bytes - 1]

    def write(self, gpu_va: int, *dwords: int) -> list[int]:
        """Store dwords at `gpu_va` (4-byte aligned). Source: sdma_v6_0_vm_write_pte."""
        where = address(gpu_va, 4, "WRITE_UNTILED.dst_addr")
        count = narrow(len(data(dwords, "WRITE_UNTILED")) - 1, 20, "WRITE_UNTILED.count")
        return [self._op["WRITE_UNTILED"], *where, count, *dwords]

    def write_ptes(self, gpu_va: int, first: int, flags: int, increment: int, count: int) -> list[int]:
        """Store `count` quadwords, such as page table entries of contiguous memory. The first is `flags | first`; each
        next one is larger by `increment` (32 bits).

        Source: sdma_v6_0_vm_set_pte_pde.
        """
        if count < 1:
            raise ValueError(f"PTEPDE writes at least one entry, not {count}")
        operands = *address(gpu_va, 8, "PTEPDE.dst_addr"), *wide(flags, "PTEPDE.mask"), *wide(first, "PTEPDE.init")
        step = narrow(increment, 32, "PTEPDE.incr")
        return [self._op["PTEPDE_GEN"], *operands, step, 0, narrow(count - 1, 19, "PTEPDE.count")]

    def atomic(
        self, operation: Atomic, gpu_va: int, value: int, compare: int = 0, *, bits: int = 64, loop: bool = False
    ) -> list[int]:
        """Change a value in memory by an atomic. `loop`: repeat a compare-and-swap until it succeeds. Source:
        SDMA_PKT_ATOMIC.
        """
        narrow(value, bits, "ATOMIC.src_data")
        narrow(compare, bits, "ATOMIC.cmp_data")
        low, high = address(gpu_va, bits // 8, "ATOMIC.addr")
        value_low, value_high = wide(value, "ATOMIC.src_data")
        compare_low, compare_high = wide(compare, "ATOMIC.cmp_data")
        return self._dwords(
            "ATOMIC",
            atomic_op=atomic_code(operation, bits),
            loop=loop,
            addr_31_0=low,
            addr_63_32=high,
            src_data_31_0=value_low,
            src_data_63_32=value_high,
            cmp_data_31_0=compare_low,
            cmp_data_63_32=compare_high,
        )

    # signals and waits

    def fence(self, gpu_va: int, value: int) -> list[int]:
        """Store a dword when all earlier work has ended and is written. Source: sdma_v6_0_ring_emit_fence."""
        where = address(gpu_va, 4, "FENCE.addr")
        return [self._fence, *where, narrow(value, 32, "FENCE.data")]

    def fence64(self, gpu_va: int, value: int) -> list[int]:
        """Store a quadword as two fences.

        ORDER: low half first, as in sdma_v6_0_ring_emit_fence: a reader that comes between the two fences sees an older
        value, never a later one.
        """
        low, high = wide(value, "FENCE.data")
        address(gpu_va, 8, "FENCE.addr")
        return [*self.fence(gpu_va, low), *self.fence(gpu_va + 4, high)]

    def trap(self, context: int = 0) -> list[int]:
        """Interrupt the host. The interrupt carries `context` (28 bits). Source: sdma_v6_0_ring_emit_fence."""
        return [self._op["TRAP"], narrow(context, 28, "TRAP.int_context")]

    def wait_mem(
        self, gpu_va: int, value: int, mask: int = ONES, compare: Compare = Compare.GREATER_EQUAL, poll: int = POLL
    ) -> list[int]:
        """Hold the queue until the comparison of the masked dword at `gpu_va` with `value` is true. Numbers are
        unsigned. Source: sdma_v6_0_ring_emit_pipeline_sync.
        """
        return self._until(self._poll[1][compare], address(gpu_va, 4, "POLL_REGMEM.addr"), value, mask, poll)

    def wait_register(
        self, register: int, value: int, mask: int = ONES, compare: Compare = Compare.EQUAL, poll: int = POLL_REGISTER
    ) -> list[int]:
        """Do the same as `wait_mem` with a register, given by its dword address. Source:
        sdma_v6_0_ring_emit_reg_wait.
        """
        return self._until(self._poll[0][compare], (self._byte_address(register), 0), value, mask, poll)

    def flush_and_wait(self, done: int, request: int, mask: int, poll: int = POLL_REGISTER) -> list[int]:
        """Request a flush of the host data path (HDP), then wait until the register `done` has the bits of `mask` set.
        Source: sdma_v6_0_ring_emit_hdp_flush.
        """
        return self._until(self._flush, (self._byte_address(done), self._byte_address(request)), mask, mask, poll)

    def _until(self, head: int, where: tuple[int, int], value: int, mask: int, poll: int) -> list[int]:
        limits = self._limits + narrow(poll, 16, "POLL_REGMEM.interval")
        return [head, *where, narrow(value, 32, "POLL_REGMEM.value"), narrow(mask, 32, "POLL_REGMEM.mask"), limits]

    def _byte_address(self, register: int) -> int:
        return narrow(register, REGISTER_BITS, "a register's dword address") * REGISTER_BYTES

    def store_clock(self, gpu_va: int) -> list[int]:
        """Store the 64-bit counter of the reference clock, the same that the graphics core stores. Source: sid.h,
        GET_GLOBAL_TIMESTAMP.
        """
        return [self._op["TIMESTAMP_GET_GLOBAL"], *address(gpu_va, 8, "TIMESTAMP.write_addr")]

    # registers, caches, translations

    def write_register(self, register: int, value: int) -> list[int]:
        """Store `value` into a register, given by its dword address. Source: sdma_v6_0_ring_emit_wreg,
        sdma_v7_0_ring_emit_wreg.
        """
        place = narrow(register, REGISTER_BITS, "a register's dword address")
        if self.row.register_bytes:
            place *= REGISTER_BYTES
        return [self._write_register, place, narrow(value, 32, "SRBM_WRITE.data")]

    def acquire(self, caches: Caches = FROM_OUTSIDE, vmid: int = 0) -> list[int]:
        """Write back and invalidate the graphics core's caches for all addresses. Source:
        sdma_v6_0_ring_emit_mem_sync.
        """
        if self.row.gcr is None:
            raise NotSupported(f"SDMA {self.version} has no GCR_REQ; the compute queues' packets reach the caches")
        core = (self.row.gcr, 0, 0)
        bits = int(CACHES[self.row.gcr].acquire_bits(caches, core))
        low, high = bits & 0xFFFF, bits >> 16
        return self._dwords("GCR_REQ", gcr_control_15_0=low, gcr_control_18_16=high, vmid=vmid)

    def acquire_user(self) -> list[int]:
        """Do the same as `acquire` in a queue that is not privileged. Source of the packet and its bits: ROCr
        amd_blit_sdma.cpp, BuildGCRCommand.
        """
        if self.row.gcr is None:
            raise NotSupported(f"SDMA {self.version} has no USER_GCR; the compute queues' packets reach the caches")
        bits = CACHES[self.row.gcr].acquire_word.at((self.row.gcr, 0, 0))(**USER_CACHES)
        return self._dwords("USER_GCR", gcr_control_15_0=int(bits))

    def invalidate_vmid(
        self, request: int, vmid: int, graphics_engine: int, memory_engine: int = ENGINE_NONE
    ) -> list[int]:
        """Invalidate the cached translations of a VMID by an invalidation engine of a hub. `request`: the value for the
        engine's request register.

        Source: sdma_v6_0_ring_emit_vm_flush.
        """
        return self._dwords(
            "VM_INVALIDATION",
            gfx_eng_id=graphics_engine,
            mm_eng_id=memory_engine,
            invalidatereq=request,
            addressrangelo=ONES,
            invalidateack=1 << vmid,
            addressrangehi=0x1F,
        )

    # flow

    def indirect(
        self, gpu_va: int, count_dwords: int, vmid: int = 0, at_dwords: int = 2, save_va: int = 0
    ) -> list[int]:
        """Run `count_dwords` (a multiple of 8) at `gpu_va` (32-byte aligned) and return. NOPs before the packet align
        it.

        `at_dwords`: where in the ring the returned dwords will be, because the packet must end at a multiple of 8.
        `save_va`: where a preempted engine saves its state; 0: nowhere. Source: sdma_v6_0_ring_emit_ib.
        """
        if count_dwords % CALL_ALIGN_DWORDS or not 0 < count_dwords < 1 << 20:
            raise ValueError(f"INDIRECT.ib_size is a multiple of 8 below {1 << 20} dwords, not {count_dwords}")
        low, high = address(gpu_va, CALL_ALIGN_BYTES, "INDIRECT.ib_base")
        save_low, save_high = wide(save_va, "INDIRECT.csa_addr")
        call = self._calls[narrow(vmid, 4, "INDIRECT.vmid")]
        pad = self.nop(-(at_dwords + CALL_DWORDS) % CALL_ALIGN_DWORDS)
        return [*pad, call, low, high, count_dwords, save_low, save_high]

    def cond_exe(self, gpu_va: int, count_dwords: int, reference: int = 1) -> list[int]:
        """Skip the next `count_dwords` unless the dword at `gpu_va` is `reference`. Source:
        sdma_v6_0_ring_init_cond_exec.
        """
        where = address(gpu_va, 4, "COND_EXE.addr")
        count = narrow(count_dwords, 14, "COND_EXE.exec_count")
        return [self._op["COND_EXE"], *where, narrow(reference, 32, "COND_EXE.reference"), count]
