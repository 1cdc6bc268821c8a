"""A copy engine: rectangles of bytes from one place to another, components put elsewhere, and a semaphore.

Source: clc5b5.h to clcab5.h of open-gpu-doc (LAUNCH_DMA and the methods that it takes); which sizes are counted in
elements when components are remapped: Mesa src/nouveau/vulkan/nvk_cmd_copy.c.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ringup.autogen.nv import methods_copy as methods
from ringup.silicon.nv.engines.engine import ClassEngine, Context, Lacking, Progress, Refused, field_of
from ringup.silicon.nv.engines.remap import Remap
from ringup.silicon.nv.engines.rendering import enabled
from ringup.silicon.nv.engines.surfaces import Blocks, Bytes, block_logs
from ringup.silicon.nv.memory.gmmu import Aperture
from ringup.silicon.nv.memory.port import ByteMemory, Physical
from ringup.silicon.nv.memory.semaphores import Reduction, reduced, release

# of SET_SRC_PHYS_MODE and SET_DST_PHYS_MODE
TARGETS = {0: Aperture.VIDEO, 1: Aperture.SYSTEM_COHERENT, 2: Aperture.SYSTEM_NONCOHERENT}
# GUESS: what one copy engine reaches on these boards
BYTES_PER_US = 20_000
# GUESS: what a short line costs. Others get their turn between pieces.
PIECE_BYTES, BURST_BYTES = 1 << 20, 1 << 12
# a tile of a copy that is not from lines to lines: bytes of a line, and lines
TILE_BYTES, TILE_LINES = 1 << 14, 64


class Side(Protocol):
    """The source or the target of a copy, from its own origin."""

    def read(self, x: int, y: int, width: int, height: int) -> Bytes:
        """Return a rectangle, (height, width)."""
        ...

    def write(self, x: int, y: int, data: Bytes) -> None:
        """Store a rectangle, (height, width)."""
        ...


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines at a distance of `pitch` bytes, which may be negative."""

    memory: ByteMemory
    base: int
    pitch: int

    def read(self, x: int, y: int, width: int, height: int) -> Bytes:
        """Return a rectangle."""
        raw = b"".join(self.memory.read(self.base + x + line * self.pitch, width) for line in range(y, y + height))
        return np.frombuffer(raw, np.uint8).reshape(height, width)

    def write(self, x: int, y: int, data: Bytes) -> None:
        """Store a rectangle."""
        for line, row in enumerate(data):
            self.memory.write(self.base + x + (y + line) * self.pitch, row.tobytes())


@dataclass(frozen=True, slots=True)
class Tiled:
    """A rectangle of a surface of blocks."""

    memory: ByteMemory
    blocks: Blocks
    x: int
    y: int
    layer: int

    def read(self, x: int, y: int, width: int, height: int) -> Bytes:
        """Return a rectangle."""
        return self.blocks.read(self.memory, self.x + x, self.y + y, self.layer, width, height)

    def write(self, x: int, y: int, data: Bytes) -> None:
        """Store a rectangle."""
        self.blocks.write(self.memory, self.x + x, self.y + y, self.layer, data)


class CopyEngine(ClassEngine):
    """One object of a copy class. `code`: what the GSP calls an error of this engine. A copy may be made again."""

    repeats = True

    def __init__(self, class_id: int, context: Context, code: int) -> None:
        super().__init__(class_id, methods.METHODS[class_id], context, code)
        self._layout = methods.LAUNCH_DMA.at(class_id)
        self.act("LAUNCH_DMA", self._launch)

    def _launch(self, data: int) -> Progress:
        return self._work(self._layout(data))

    def _work(self, launch: methods.LAUNCH_DMA) -> Iterator[float]:
        self._check(launch)
        if launch.data_transfer_type != methods.LAUNCH_DMA_DATA_TRANSFER_TYPE_NONE and self._renders():
            yield from self._copy(launch)
        if launch.semaphore_type:
            self._semaphore(launch)
        if launch.interrupt_type == methods.LAUNCH_DMA_INTERRUPT_TYPE_NON_BLOCKING:
            self.context.notify()

    def _check(self, launch: methods.LAUNCH_DMA) -> None:
        """Refuse what the model lacks. Flushes, cache hints and the order of pipelined copies have no effect: each
        launch is complete before the next method.
        """
        lacks = {
            "protected video memory (vprmode)": launch.vprmode,
            "an interrupt that blocks": launch.interrupt_type == methods.LAUNCH_DMA_INTERRUPT_TYPE_BLOCKING,
            "interrupt type 3": launch.interrupt_type == 3,
            "a secure copy": field_of(launch, "copy_type"),
            "memory scrubbing": field_of(launch, "memory_scrub_enable"),
        }
        for what, asked in lacks.items():
            if asked:
                raise Lacking(f"LAUNCH_DMA {int(launch):#x}: {what} is not modelled")

    def _renders(self) -> bool:
        get = self.methods.get
        return enabled(
            self.context.space, get("SET_RENDER_ENABLE_C") & 7, self.methods.pair("SET_RENDER_ENABLE_A", "SET_RENDER_ENABLE_B"),
            fresh=self.methods.place("SET_RENDER_ENABLE_C") not in self.methods.values,
        )  # fmt: skip

    # --- bytes ------------------------------------------------------------------------------------------------------
    def _copy(self, launch: methods.LAUNCH_DMA) -> Iterator[float]:
        get = self.methods.get
        size, lines = get("LINE_LENGTH_IN"), get("LINE_COUNT") if launch.multi_line_enable else 1
        source, target = self._memories(launch)
        if launch.src_memory_layout and launch.dst_memory_layout and not launch.remap_enable:
            yield from self._lines(source, target, size, lines)
            return
        remap = Remap.of(methods.SET_REMAP_COMPONENTS(get("SET_REMAP_COMPONENTS")), get("SET_REMAP_CONST_A"),
                         get("SET_REMAP_CONST_B")) if launch.remap_enable else None  # fmt: skip
        unit_in, unit_out = (remap.source_bytes, remap.target_bytes) if remap else (1, 1)
        read = self._side(source, "SRC", "IN", launch.src_memory_layout, unit_in, size * unit_in, lines)
        write = self._side(target, "DST", "OUT", launch.dst_memory_layout, unit_out, size * unit_out, lines)
        yield from _tiles(read, write, remap, size, lines)

    def _lines(self, source: ByteMemory, target: ByteMemory, size_bytes: int, lines: int) -> Iterator[float]:
        """Copy lines to lines, piece by piece."""
        pair = self.methods.pair
        at_in, at_out = pair("OFFSET_IN_UPPER", "OFFSET_IN_LOWER"), pair("OFFSET_OUT_UPPER", "OFFSET_OUT_LOWER")
        pitch_in, pitch_out = _signed(self.methods.get("PITCH_IN")), _signed(self.methods.get("PITCH_OUT"))
        read, write = source.read, target.write
        if pitch_in == pitch_out == size_bytes:
            size_bytes, lines = size_bytes * lines, 1
        moved = 0
        for line in range(lines):
            for at in range(0, size_bytes, PIECE_BYTES):
                count = min(PIECE_BYTES, size_bytes - at)
                write(at_out + line * pitch_out + at, read(at_in + line * pitch_in + at, count))
                # a short line costs as much as a full burst
                moved += max(count, BURST_BYTES)
                if moved >= PIECE_BYTES:
                    yield moved / BYTES_PER_US
                    moved = 0
            if not size_bytes:
                break
        if moved:
            yield moved / BYTES_PER_US

    def _side(
        self, memory: ByteMemory, name: str, way: str, pitch_layout: int, unit: int, width: int, height: int
    ) -> Side:
        """Return the source or the target; `unit` is the size of an element in bytes."""
        get = self.methods.get
        base = self.methods.pair(f"OFFSET_{way}_UPPER", f"OFFSET_{way}_LOWER")
        if pitch_layout:
            return Lines(memory, base, _signed(get(f"PITCH_{way}")))
        size = methods.SET_SRC_BLOCK_SIZE(get(f"SET_{name}_BLOCK_SIZE"))
        logs = block_logs(size.width, size.height, size.depth)
        if size.gob_height not in (0, methods.SET_SRC_BLOCK_SIZE_GOB_HEIGHT_GOB_HEIGHT_FERMI_8):
            raise Refused(f"GOBs of height {size.gob_height}")
        blocks = Blocks(
            base, get(f"SET_{name}_WIDTH") * unit, get(f"SET_{name}_HEIGHT"), get(f"SET_{name}_DEPTH"), *logs
        )
        x, y = self._origin(name)
        layer = get(f"SET_{name}_LAYER")
        blocks.check(x * unit, y, layer, width, height)
        return Tiled(memory, blocks, x * unit, y, layer)

    def _origin(self, name: str) -> tuple[int, int]:
        """Return a rectangle's origin. GUESS: the method that was given last counts; here the wide ones, once used."""
        get, values = self.methods.get, self.methods.values
        if any(self.methods.place(f"{name}_ORIGIN_{axis}") in values for axis in "XY"):
            return get(f"{name}_ORIGIN_X"), get(f"{name}_ORIGIN_Y")
        both = get(f"SET_{name}_ORIGIN")
        return both & 0xFFFF, both >> 16

    # --- where ------------------------------------------------------------------------------------------------------
    def _memories(self, launch: methods.LAUNCH_DMA) -> tuple[ByteMemory, ByteMemory]:
        space: ByteMemory = self.context.space
        source = self._physical("SET_SRC_PHYS_MODE") if launch.src_type else space
        return source, self._physical("SET_DST_PHYS_MODE") if launch.dst_type else space

    def _physical(self, name: str) -> ByteMemory:
        if not self.context.privileged:
            raise Refused("a physical address in a channel that is not privileged")
        mode = self.methods.get(name)
        aperture = TARGETS.get(mode & 3)
        if aperture is None:
            raise Refused(f"physical mode {mode:#x} has a target that there is not")
        return Physical(self.context.memory, aperture)

    # --- the semaphore ----------------------------------------------------------------------------------------------
    def _semaphore(self, launch: methods.LAUNCH_DMA) -> None:
        space, get = self.context.space, self.methods.get
        gpu_va = self.methods.pair("SET_SEMAPHORE_A", "SET_SEMAPHORE_B")
        payload, kind = get("SET_SEMAPHORE_PAYLOAD"), launch.semaphore_type
        if kind == methods.LAUNCH_DMA_SEMAPHORE_TYPE_RELEASE_CONDITIONAL_INTR_SEMAPHORE:
            raise Lacking("a semaphore that interrupts on a condition is not modelled")
        bits = 64 if field_of(launch, "semaphore_payload_size") else 32
        if bits == 64:
            payload |= get("SET_SEMAPHORE_PAYLOAD_UPPER") << 32
        if gpu_va % 4:
            raise Refused(f"a semaphore at {gpu_va:#x}")
        if launch.semaphore_reduction_enable:
            if launch.semaphore_reduction > Reduction.DEC:
                raise Lacking(f"semaphore reduction {launch.semaphore_reduction} is not modelled")
            value = int.from_bytes(space.read(gpu_va, bits // 8), "little")
            signed = not launch.semaphore_reduction_sign
            payload = reduced(Reduction(launch.semaphore_reduction), value, payload, bits, signed=signed)
        stamped = kind == methods.LAUNCH_DMA_SEMAPHORE_TYPE_RELEASE_FOUR_WORD_SEMAPHORE
        release(space, gpu_va, payload, bits, self.context.now_ns if stamped else None)


def _tiles(source: Side, target: Side, remap: Remap | None, size: int, lines: int) -> Iterator[float]:
    """Copy `size` elements of each of `lines` lines, tile by tile."""
    unit_in, unit_out = (remap.source_bytes, remap.target_bytes) if remap else (1, 1)
    step = max(TILE_BYTES // max(unit_in, unit_out), 1)
    moved = 0
    for y in range(0, lines if size else 0, TILE_LINES):
        height = min(TILE_LINES, lines - y)
        for x in range(0, size, step):
            width = min(step, size - x)
            _tile(source, target, remap, x, y, width, height)
            moved += max(width * unit_out, BURST_BYTES) * height
            if moved >= PIECE_BYTES:
                yield moved / BYTES_PER_US
                moved = 0
    if moved:
        yield moved / BYTES_PER_US


def _tile(source: Side, target: Side, remap: Remap | None, x: int, y: int, width: int, height: int) -> None:
    if remap is None:
        target.write(x, y, source.read(x, y, width, height))
        return
    given: Callable[[], Bytes] = lambda: source.read(  # noqa: E731
        x * remap.source_bytes, y, width * remap.source_bytes, height
    )
    kept: Callable[[], Bytes] = lambda: target.read(  # noqa: E731
        x * remap.target_bytes, y, width * remap.target_bytes, height
    )
    target.write(x * remap.target_bytes, y, remap.apply(given, kept, width, height))


def _signed(pitch: int) -> int:
    """Return a pitch: 32 bits with a sign."""
    return pitch - (1 << 32) if pitch >> 31 else pitch
