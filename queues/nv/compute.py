"""The compute engine's methods: a channel's set-up, cache invalidates, sending descriptors, uploads of small data.

Sources: open-gpu-doc clc5c0.h to clcec0.h; Mesa nvk_cmd_dispatch.c, nvk_cmd_buffer.c, nvk_queue.c.
"""

from __future__ import annotations

import struct

from ringup.autogen.layout import Word
from ringup.autogen.nv import methods_compute as gr
from ringup.queues.nv.methods import COMPUTE, Methods, address, incrementing
from ringup.queues.nv.program import LocalBlock
from ringup.queues.nv.rows import GenerationRow

# SMs that local memory is for: all of them. Source: Mesa nvk_queue.c
ALL_SMS = 0xFF
# bytes of one upload: what a stream is meant to carry; more is copied
MAX_UPLOAD_BYTES = 64 << 10


class ComputeEngine:
    """Builds methods of one compute class."""

    def __init__(self, row: GenerationRow) -> None:
        self.row = row
        self.methods = Methods(gr, row.compute_class, COMPUTE)
        # classes from GA100 on have the second method; it does the same
        self._schedule: Word
        if self.methods.has(gr.SEND_SIGNALING_PCAS2_B):
            action = gr.SEND_SIGNALING_PCAS2_B_PCAS_ACTION_INVALIDATE_COPY_SCHEDULE
            self._schedule = self.methods[gr.SEND_SIGNALING_PCAS2_B](pcas_action=action)
        else:
            self._schedule = self.methods[gr.SEND_SIGNALING_PCAS_B](
                invalidate=gr.SEND_SIGNALING_PCAS_B_INVALIDATE_TRUE, schedule=gr.SEND_SIGNALING_PCAS_B_SCHEDULE_TRUE
            )

    def setup(self, engine: int = 0) -> list[int]:
        """Return what a new channel runs first: the class, the windows of shared and local memory, the version of the
        machine code. `engine`: as the kernel driver names the class's engine, else 0.
        """
        methods, row = self.methods, self.row
        major, minor = row.sm
        return methods.set_object(engine) + methods.run(
            methods[gr.SET_SHADER_SHARED_MEMORY_WINDOW_A](row.shared_window_va >> 32),
            methods[gr.SET_SHADER_SHARED_MEMORY_WINDOW_B](row.shared_window_va & 0xFFFF_FFFF),
            methods[gr.SET_SHADER_LOCAL_MEMORY_WINDOW_A](row.local_window_va >> 32),
            methods[gr.SET_SHADER_LOCAL_MEMORY_WINDOW_B](row.local_window_va & 0xFFFF_FFFF),
            gr.SET_SPA_VERSION(major=major, minor=minor),
        )

    def invalidate(self, *, code: bool = True) -> list[int]:
        """Drop what caches of the SMs and of the scheduler hold: others may have written the memory behind them. It
        does not wait. `code`: also the machine code.
        """
        methods = self.methods
        return methods.run(
            methods[gr.INVALIDATE_SKED_CACHES](0),
            methods[gr.INVALIDATE_SHADER_CACHES_NO_WFI](instruction=int(code), global_data=1, constant=1),
        )

    def barrier(self) -> list[int]:
        """Wait until all launches have ended, then let later ones see what they stored."""
        return self.methods.run(gr.WAIT_FOR_IDLE(0)) + self.invalidate(code=False)

    def send(self, qmd_va: int) -> list[int]:
        """Launch what the descriptor at `qmd_va` (256-byte aligned) says."""
        address(qmd_va, 256, 40, "a launch descriptor")
        # ORDER: the address first; the second method starts it. The address is a word of its own, to be patched
        place = self.methods.place(gr.SEND_PCAS_A)
        return incrementing(COMPUTE, place, [qmd_va >> 8]) + self.methods.run(self._schedule)

    def local_memory(self, block: LocalBlock) -> list[int]:
        """Use `block` for the local memory of threads."""
        methods = self.methods
        bits = 32 + methods[gr.SET_SHADER_LOCAL_MEMORY_A].FIELDS["address_upper"].width
        low, high = address(block.gpu_va, 1, bits, "local memory")
        return methods.run(
            methods[gr.SET_SHADER_LOCAL_MEMORY_A](high),
            gr.SET_SHADER_LOCAL_MEMORY_B(low),
            gr.SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_A(block.tpc_bytes >> 32),
            gr.SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_B(block.tpc_bytes & 0xFFFF_FFFF),
            methods[gr.SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_C](max_sm_count=ALL_SMS),
        )

    def upload(self, gpu_va: int, data: bytes) -> list[int]:
        """Store 1 to 65536 bytes at `gpu_va`; the data travels in the pushbuffer. It does not wait for launches."""
        if not 0 < len(data) <= MAX_UPLOAD_BYTES:
            raise ValueError(f"an upload stores 1 to {MAX_UPLOAD_BYTES} bytes, not {len(data)}: copy them")
        methods = self.methods
        bits = 32 + methods[gr.OFFSET_OUT_UPPER].FIELDS["value"].width
        low, high = address(gpu_va, 1, bits, "an upload")
        dwords = struct.unpack(f"<{-(-len(data) // 4)}I", data + bytes(-len(data) % 4))
        # its SYSMEMBAR makes the data visible outside the card, too
        launch = gr.LAUNCH_DMA(dst_memory_layout=gr.LAUNCH_DMA_DST_MEMORY_LAYOUT_PITCH)
        return methods.run(
            gr.LINE_LENGTH_IN(len(data)),
            gr.LINE_COUNT(1),
            methods[gr.OFFSET_OUT_UPPER](high),
            gr.OFFSET_OUT(low),
            launch,
        ) + methods.data(gr.LOAD_INLINE_DATA, dwords)
