"""The copy engine's methods: copies of any size between linear, pitched and block-linear memory, fills, and stores of
dwords.

A command begins when earlier commands have ended (NON_PIPELINED) and flushes what it wrote (FLUSH_ENABLE): a later
command, engine or the host computer sees it. Pieces of one command that do not depend on one another overlap. Source:
open-gpu-doc clc7b5.h; OGKM uvm_volta_ce.c and uvm_hopper_ce.c; Mesa nvk_cmd_copy.c.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ringup.autogen.nv import methods_copy as ce
from ringup.queues.dwords import ONES
from ringup.queues.nv.methods import COPY, Methods, address

# of one call: work that takes more launches is refused
MAX_LAUNCHES = 65536
# bytes or elements of a line; the field has 32 bits, and this keeps pieces aligned
MAX_LINE = 1 << 31
MAX_LINES = 1 << 31
# bytes of a group of bytes (GOB), the unit of block-linear memory: 64 bytes wide, 8 rows high
GOB_WIDTH, GOB_HEIGHT = 64, 8
GOB_BYTES = GOB_WIDTH * GOB_HEIGHT
MAX_BLOCK_LOG2 = ce.SET_DST_BLOCK_SIZE_HEIGHT_THIRTYTWO_GOBS
# bytes of an element: its kind in SET_DST_BLOCK_SIZE, where the class has one
KINDS = {
    1: ce.SET_DST_BLOCK_SIZE_KIND_BPP_BL_8,
    2: ce.SET_DST_BLOCK_SIZE_KIND_BPP_BL_16,
    4: ce.SET_DST_BLOCK_SIZE_KIND_BPP_BL_32,
}


@dataclass(frozen=True, slots=True)
class Pitched:
    """Rows that begin `pitch_bytes` apart, the first at `gpu_va`."""

    gpu_va: int
    pitch_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockLinear:
    """A surface in blocks of GOBs, as textures lie in memory.

    `width_bytes`: of a row, a multiple of 64. `block_height_log2`, `block_depth_log2`: GOBs of a block, 0 to 5.
    `x_bytes`, `y`, `layer`: where the copied rectangle begins. `element_bytes`: the size of what is stored, 1, 2 or 4
    and above; only Blackwell's layout depends on it.
    """

    gpu_va: int
    width_bytes: int
    height: int
    depth: int = 1
    block_height_log2: int = 0
    block_depth_log2: int = 0
    x_bytes: int = 0
    y: int = 0
    layer: int = 0
    element_bytes: int = 4

    def check(self, width_bytes: int, height: int) -> None:
        """Raise a `ValueError` unless the surface is one, and a rectangle of that size lies in it."""
        if self.gpu_va % GOB_BYTES or self.width_bytes % GOB_WIDTH:
            raise ValueError(
                f"a block-linear surface begins at a multiple of {GOB_BYTES} and its rows have a multiple of"
                f" {GOB_WIDTH} bytes, not {self.gpu_va:#x} and {self.width_bytes}"
            )
        blocks = self.block_height_log2, self.block_depth_log2
        if not 0 <= min(blocks) <= max(blocks) <= MAX_BLOCK_LOG2:
            raise ValueError(
                f"a block has 1 to {1 << MAX_BLOCK_LOG2} GOBs along an axis, not 2 to the power of {blocks}"
            )
        inside = (
            0 <= self.x_bytes <= self.width_bytes - width_bytes
            and 0 <= self.y <= self.height - height
            and 0 <= self.layer < self.depth
        )
        if not inside or max(self.width_bytes, self.height, self.depth) > ONES:
            raise ValueError(
                f"{width_bytes} x {height} bytes at ({self.x_bytes}, {self.y}, {self.layer}) leave a surface of"
                f" {self.width_bytes} x {self.height} x {self.depth}"
            )


Surface = Pitched | BlockLinear


class CopyEngine:
    """Builds methods of one copy class."""

    def __init__(self, class_id: int) -> None:
        self.methods = Methods(ce, class_id, COPY)
        self.address_bits = 32 + self.methods[ce.OFFSET_OUT_UPPER].FIELDS["upper"].width
        self._kinds = "kind_bpp" in self.methods[ce.SET_DST_BLOCK_SIZE].FIELDS

    def set_object(self, engine: int = 0) -> list[int]:
        """Bind the class, at the channel's start."""
        return self.methods.set_object(engine)

    def _offset_in(self, gpu_va: int) -> tuple[ce.OFFSET_IN_UPPER, ce.OFFSET_IN_LOWER]:
        low, high = address(gpu_va, 1, self.address_bits, "a copy's source")
        return self.methods[ce.OFFSET_IN_UPPER](high), ce.OFFSET_IN_LOWER(low)

    def _offset_out(self, gpu_va: int) -> tuple[ce.OFFSET_OUT_UPPER, ce.OFFSET_OUT_LOWER]:
        low, high = address(gpu_va, 1, self.address_bits, "a copy's target")
        return self.methods[ce.OFFSET_OUT_UPPER](high), ce.OFFSET_OUT_LOWER(low)

    def launch(self, *, first: bool = True, last: bool = True, **fields: int) -> ce.LAUNCH_DMA:
        """Return a launch between pitched memories. `first`, `last`: of its command's pieces."""
        pitch = ce.LAUNCH_DMA_SRC_MEMORY_LAYOUT_PITCH
        values = {
            "data_transfer_type": ce.LAUNCH_DMA_DATA_TRANSFER_TYPE_NON_PIPELINED
            if first
            else ce.LAUNCH_DMA_DATA_TRANSFER_TYPE_PIPELINED,
            "flush_enable": int(last),
            "flush_type": ce.LAUNCH_DMA_FLUSH_TYPE_SYS,
            "src_memory_layout": pitch,
            "dst_memory_layout": pitch,
        }
        return self.methods[ce.LAUNCH_DMA](0, **(values | fields))

    def line(
        self, target_va: int, source_va: int, size_bytes: int, *, first: bool = True, last: bool = True
    ) -> list[int]:
        """Copy 1 to 2**31 bytes that do not overlap."""
        if not 0 < size_bytes <= MAX_LINE:
            raise ValueError(f"a line has 1 to {MAX_LINE} bytes, not {size_bytes}")
        return self.methods.run(
            *self._offset_in(source_va),
            *self._offset_out(target_va),
            ce.LINE_LENGTH_IN(size_bytes),
            self.launch(first=first, last=last),
        )

    def copy(self, target_va: int, source_va: int, size_bytes: int) -> list[int]:
        """Copy any number of bytes, zero included; the ranges may overlap.

        Overlapping ranges are copied in pieces as long as the distance of the ranges; each piece waits for the one
        before. A copy to a lower address begins at the front, a copy to a higher address at the end. Raises a
        `ValueError` if that takes too many pieces: copy through other memory then.
        """
        if size_bytes < 0:
            raise ValueError(f"a copy has no {size_bytes} bytes")
        distance = abs(target_va - source_va)
        if distance == 0 or size_bytes == 0:
            return []
        overlaps = distance < size_bytes
        piece = min(MAX_LINE, distance) if overlaps else MAX_LINE
        starts = range(0, size_bytes, piece)
        _bounded(len(starts), f"a copy of {size_bytes} bytes over a distance of {distance}")
        ordered = reversed(starts) if overlaps and target_va > source_va else starts
        out: list[int] = []
        for number, at in enumerate(ordered):
            out += self.line(
                target_va + at,
                source_va + at,
                min(piece, size_bytes - at),
                first=overlaps or number == 0,
                last=overlaps or number == len(starts) - 1,
            )
        return out

    def fill(self, gpu_va: int, value: int, size_bytes: int) -> list[int]:
        """Fill any multiple of 4 bytes at a multiple of 4, zero included, with a dword."""
        if size_bytes < 0 or size_bytes % 4 or gpu_va % 4:
            raise ValueError(f"a fill stores whole dwords, not {size_bytes} bytes at {gpu_va:#x}")
        if not 0 <= value <= ONES:
            raise ValueError(f"a dword has 32 bits, not {value:#x}")
        count = size_bytes // 4
        if not count:
            return []
        remap = self.methods[ce.SET_REMAP_COMPONENTS](
            0,
            dst_x=ce.SET_REMAP_COMPONENTS_DST_X_CONST_A,
            component_size=ce.SET_REMAP_COMPONENTS_COMPONENT_SIZE_FOUR,
            num_dst_components=ce.SET_REMAP_COMPONENTS_NUM_DST_COMPONENTS_ONE,
        )
        out = self.methods.run(ce.SET_REMAP_CONST_A(value), remap)
        for at in range(0, count, MAX_LINE):
            launch = self.launch(
                first=at == 0, last=at + MAX_LINE >= count, remap_enable=ce.LAUNCH_DMA_REMAP_ENABLE_TRUE
            )
            length = ce.LINE_LENGTH_IN(min(MAX_LINE, count - at))
            out += self.methods.run(*self._offset_out(gpu_va + 4 * at), length, launch)
        return out

    def copy_rect(
        self,
        target_va: int,
        target_pitch_bytes: int,
        source_va: int,
        source_pitch_bytes: int,
        width_bytes: int,
        height: int,
    ) -> list[int]:
        """Copy `height` rows of `width_bytes` between planes of different pitch. A size of zero copies nothing. The
        planes may not overlap.
        """
        if min(width_bytes, height) < 0 or min(target_pitch_bytes, source_pitch_bytes) < width_bytes:
            raise ValueError(
                f"rows of {width_bytes} bytes do not lie {target_pitch_bytes} and {source_pitch_bytes} bytes apart"
            )
        if width_bytes == 0 or height == 0:
            return []
        if width_bytes == target_pitch_bytes == source_pitch_bytes:
            return self.copy(target_va, source_va, width_bytes * height)
        return self.copy_surface(
            Pitched(target_va, target_pitch_bytes), Pitched(source_va, source_pitch_bytes), width_bytes, height
        )

    def copy_surface(self, target: Surface, source: Surface, width_bytes: int, height: int) -> list[int]:
        """Copy a rectangle of at least one byte between surfaces, each pitched or block-linear, that do not overlap."""
        if not (0 < width_bytes <= MAX_LINE and 0 < height <= MAX_LINES):
            raise ValueError(f"a rectangle has 1 to {MAX_LINE} bytes and rows, not {width_bytes} x {height}")
        out_words = [*self._offset_in(source.gpu_va), *self._offset_out(target.gpu_va)]
        pitches = [surface.pitch_bytes if isinstance(surface, Pitched) else 0 for surface in (source, target)]
        if max(pitches) > ONES:
            raise ValueError(f"a pitch has 32 bits, not {max(pitches)} bytes")
        pitch_in, pitch_out = pitches
        out = self.methods.run(
            *out_words,
            ce.PITCH_IN(pitch_in),
            ce.PITCH_OUT(pitch_out),
            ce.LINE_LENGTH_IN(width_bytes),
            ce.LINE_COUNT(height),
        )
        layouts: dict[str, Any] = {}
        if isinstance(source, BlockLinear):
            source.check(width_bytes, height)
            layouts["src_memory_layout"] = ce.LAUNCH_DMA_SRC_MEMORY_LAYOUT_BLOCKLINEAR
            out += self.methods.run(
                self.methods[ce.SET_SRC_BLOCK_SIZE](self._block_size(source)),
                ce.SET_SRC_WIDTH(source.width_bytes),
                ce.SET_SRC_HEIGHT(source.height),
                ce.SET_SRC_DEPTH(source.depth),
                ce.SET_SRC_LAYER(source.layer),
                ce.SRC_ORIGIN_X(source.x_bytes),
                ce.SRC_ORIGIN_Y(source.y),
            )
        if isinstance(target, BlockLinear):
            target.check(width_bytes, height)
            layouts["dst_memory_layout"] = ce.LAUNCH_DMA_DST_MEMORY_LAYOUT_BLOCKLINEAR
            out += self.methods.run(
                self.methods[ce.SET_DST_BLOCK_SIZE](self._block_size(target)),
                ce.SET_DST_WIDTH(target.width_bytes),
                ce.SET_DST_HEIGHT(target.height),
                ce.SET_DST_DEPTH(target.depth),
                ce.SET_DST_LAYER(target.layer),
                ce.DST_ORIGIN_X(target.x_bytes),
                ce.DST_ORIGIN_Y(target.y),
            )
        launch = self.launch(multi_line_enable=ce.LAUNCH_DMA_MULTI_LINE_ENABLE_TRUE, **layouts)
        return out + self.methods.run(launch)

    def _block_size(self, surface: BlockLinear) -> int:
        kind = {}
        if self._kinds:
            kind["kind_bpp"] = KINDS[min(4, surface.element_bytes)]
        # blocks are one GOB wide
        word = self.methods[ce.SET_DST_BLOCK_SIZE](
            0,
            width=ce.SET_DST_BLOCK_SIZE_WIDTH_ONE_GOB,
            height=surface.block_height_log2,
            depth=surface.block_depth_log2,
            gob_height=ce.SET_DST_BLOCK_SIZE_GOB_HEIGHT_GOB_HEIGHT_FERMI_8,
            **kind,
        )
        return int(word)

    def store(self, gpu_va: int, *dwords: int) -> list[int]:
        """Store dwords at `gpu_va` (4-byte aligned) when earlier commands have ended, as releases of semaphores."""
        if not dwords:
            raise ValueError("a store has at least one dword")
        launch = self.launch(
            data_transfer_type=ce.LAUNCH_DMA_DATA_TRANSFER_TYPE_NONE,
            semaphore_type=ce.LAUNCH_DMA_SEMAPHORE_TYPE_RELEASE_ONE_WORD_SEMAPHORE,
            src_memory_layout=0,
            dst_memory_layout=0,
        )
        out: list[int] = []
        for number, dword in enumerate(dwords):
            low, high = address(gpu_va + 4 * number, 4, self.address_bits, "a store")
            out += self.methods.run(
                self.methods[ce.SET_SEMAPHORE_A](high),
                ce.SET_SEMAPHORE_B(low),
                ce.SET_SEMAPHORE_PAYLOAD(dword),
                launch,
            )
        return out


def _bounded(count: int, what: str) -> None:
    if count > MAX_LAUNCHES:
        raise ValueError(f"{what} takes {count} launches, too many; copy through other memory")
