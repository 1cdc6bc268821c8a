"""Inline upload (I2M): the words of a pushbuffer become bytes of memory.

Source: LAUNCH_DMA, LOAD_INLINE_DATA and the methods around them in cla140.h and clc7c0.h of open-gpu-doc. Inference:
lines follow each other without gaps in the words, as emulators of game consoles with these classes read them.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from ringup.autogen.nv import methods_inline as methods
from ringup.silicon.nv.engines.engine import ClassEngine, Refused
from ringup.silicon.nv.engines.reports import RED, Words, report
from ringup.silicon.nv.engines.surfaces import Blocks, block_logs


class InlineUpload:
    """The part of a class that uploads. It has the object's methods."""

    def __init__(self, owner: ClassEngine) -> None:
        self._owner, self._methods, self._context = owner, owner.methods, owner.context
        # the launch under way; how many bytes have been stored, of how many
        self._launch: methods.LAUNCH_DMA | None = None
        self._stored = self._total = 0
        self._blocks: Blocks | None = None
        owner.act("LAUNCH_DMA", self._begin)
        owner.stream("LOAD_INLINE_DATA", self._take)

    def _begin(self, data: int) -> None:
        launch = methods.LAUNCH_DMA(data)
        if self._launch is not None:
            raise Refused(f"LAUNCH_DMA before the last upload has its {self._total} bytes: {self._stored} came")
        get = self._methods.get
        self._stored, self._total = 0, get("LINE_LENGTH_IN") * get("LINE_COUNT")
        self._launch = launch
        self._blocks = None if launch.dst_memory_layout else self._surface()
        if not self._total:
            self._end()

    def _surface(self) -> Blocks:
        get = self._methods.get
        size = methods.SET_DST_BLOCK_SIZE(get("SET_DST_BLOCK_SIZE"))
        logs = block_logs(size.width, size.height, size.depth)
        base = self._methods.pair("OFFSET_OUT_UPPER", "OFFSET_OUT")
        blocks = Blocks(base, get("SET_DST_WIDTH"), get("SET_DST_HEIGHT"), get("SET_DST_DEPTH"), *logs)
        x, y = get("SET_DST_ORIGIN_BYTES_X"), get("SET_DST_ORIGIN_SAMPLES_Y")
        blocks.check(x, y, get("SET_DST_LAYER"), get("LINE_LENGTH_IN"), get("LINE_COUNT"))
        return blocks

    def _take(self, words: Sequence[int]) -> None:
        if self._launch is None:
            raise Refused("LOAD_INLINE_DATA without a launch that waits for data")
        data = struct.pack(f"<{len(words)}I", *words)
        left = self._total - self._stored
        # the last word may hold less than four bytes of the last line
        if len(data) > (left + 3) // 4 * 4:
            raise Refused(f"{len(data)} bytes of inline data, of which {left} were asked for")
        self._store(data[:left])
        if self._stored == self._total:
            self._end()

    def _store(self, data: bytes) -> None:
        """Store bytes from where the last ones ended, line by line."""
        get, width = self._methods.get, self._methods.get("LINE_LENGTH_IN")
        at = 0
        while at < len(data):
            y, x = divmod(self._stored, width)
            part = data[at : at + width - x]
            if self._blocks is not None:
                self._blocks.write(
                    self._context.space,
                    get("SET_DST_ORIGIN_BYTES_X") + x,
                    get("SET_DST_ORIGIN_SAMPLES_Y") + y,
                    get("SET_DST_LAYER"),
                    np.frombuffer(part, np.uint8).reshape(1, len(part)),
                )
            else:
                base = self._methods.pair("OFFSET_OUT_UPPER", "OFFSET_OUT")
                self._context.space.write(base + y * get("PITCH_OUT") + x, part)
            at += len(part)
            self._stored += len(part)

    def _end(self) -> None:
        launch, self._launch = self._launch, None
        assert launch is not None
        if launch.completion_type == methods.LAUNCH_DMA_COMPLETION_TYPE_RELEASE_SEMAPHORE:
            how = RED[launch.reduction_op] if launch.reduction_enable else None
            report(
                self._context,
                self._methods.pair("SET_I2M_SEMAPHORE_A", "SET_I2M_SEMAPHORE_B"),
                self._methods.get("SET_I2M_SEMAPHORE_C"),
                Words.ONE if launch.semaphore_struct_size else Words.FOUR,
                how=how,
                signed=bool(launch.reduction_format & 1),
            )
        if launch.interrupt_type == methods.LAUNCH_DMA_INTERRUPT_TYPE_INTERRUPT:
            self._context.notify()
