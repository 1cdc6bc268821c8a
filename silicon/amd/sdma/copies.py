"""SDMA's bulk work: copies, fills, page-table entries. All addresses are translated; the work runs in slices of virtual
time.
"""

from __future__ import annotations

import struct
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import numpy as np

from ringup.autogen.amd import sdma_packets as pkt
from ringup.errors import Unmodelled

if TYPE_CHECKING:
    from ringup.silicon.amd.sdma.engine import Queue
    from ringup.silicon.amd.sdma.packets import Engine

SLICE_BYTES = 256 << 10  # moved before other engines get a turn
BYTES_PER_US = 50_000  # plausible; no estimate of performance
# 8 in 16, 8 in 32, 8 in 64: byte order within units
SWAPS = {1: ">u2", 2: ">u4", 3: ">u8"}
Work = Generator[float, None, None]


def swapped(data: bytes, mode: int) -> bytes:
    """Return `data` with the bytes of each unit reversed, as the packet's swap field says. An incomplete unit at the
    end is not swapped.
    """
    form = SWAPS.get(mode)
    if form is None:
        return data
    unit = np.dtype(form).itemsize
    whole = len(data) // unit * unit
    return np.frombuffer(data[:whole], form).byteswap().tobytes() + data[whole:]


def _join(packet: Any, name: str) -> int:
    return int(getattr(packet, f"{name}_31_0") | getattr(packet, f"{name}_63_32") << 32)


def linear(engine: Engine, queue: Queue, packet: Any) -> Work:
    """Copy bytes to one destination or (broadcast) two. Slices run upwards, so an upward overlap copies bytes copied
    earlier.
    """
    # 4.4.2 has no such copies
    if getattr(packet, "backwards", 0):
        raise Unmodelled(f"{engine.name}: a copy that runs downwards ({packet!r})")
    targets = [(_join(packet, "dst_addr"), packet.dst_sw)] if not packet.broadcast else []
    if packet.broadcast:
        more = yield from engine.fetch(queue, 2)
        both = pkt.SDMA_PKT_COPY_BROADCAST_LINEAR.at(packet.VERSION)(int(packet) | more[0] << 224 | more[1] << 256)
        targets = [(_join(both, "dst1_addr"), both.dst1_sw), (_join(both, "dst2_addr"), both.dst2_sw)]
    source, size = _join(packet, "src_addr"), packet.count + 1
    done = 0
    while done < size:
        part = min(SLICE_BYTES, size - done)
        data = swapped(engine.read(queue, source + done, part), packet.src_sw)
        for address, swap in targets:
            engine.write(queue, address + done, swapped(data, swap))
        done += part
        yield part / BYTES_PER_US


def window(engine: Engine, queue: Queue, packet: Any) -> Work:
    """Copy a box between two linear surfaces. Extents, pitches and slice pitches are stored minus one, in elements."""
    yield from _box(engine, queue, packet, packet.src_pitch + 1, packet.dst_pitch + 1)


def window_7(engine: Engine, queue: Queue, packet: Any) -> Work:
    """The same since 7.0, where a pitch is the upper half of its dword. Source: Mesa ac_cmdbuf_sdma.c, the copy of a
    linear sub-window.
    """
    source, target = (int(packet) >> 32 * dword + 16 & 0xFFFF for dword in (4, 9))
    yield from _box(engine, queue, packet, source + 1, target + 1)


def _box(engine: Engine, queue: Queue, packet: Any, source_pitch: int, target_pitch: int) -> Work:
    element = 1 << packet.elementsize
    width = (packet.rect_x + 1) * element
    moved = 0
    for z in range(packet.rect_z + 1):
        for y in range(packet.rect_y + 1):
            source = _join(packet, "src_addr") + element * _texel(packet, "src", y, z, source_pitch)
            target = _join(packet, "dst_addr") + element * _texel(packet, "dst", y, z, target_pitch)
            data = swapped(engine.read(queue, source, width), packet.src_sw)
            engine.write(queue, target, swapped(data, packet.dst_sw))
            moved += width
            if moved >= SLICE_BYTES:
                yield moved / BYTES_PER_US
                moved = 0
    yield moved / BYTES_PER_US


def _texel(packet: Any, side: str, y: int, z: int, pitch: int) -> int:
    def part(name: str) -> int:
        return int(getattr(packet, f"{side}_{name}"))

    return part("x") + (part("y") + y) * pitch + (part("z") + z) * (part("slice_pitch") + 1)


def fill(engine: Engine, queue: Queue, packet: Any) -> Work:
    """Fill with a byte, a word or a dword, as `fillsize` says; `count` is the number of bytes minus one."""
    unit = 1 << packet.fillsize
    if unit > 4:
        # UNKNOWN: no source describes size 3
        unit = 4
    address, size = _join(packet, "dst_addr"), packet.count + 1
    pattern = packet.src_data_31_0.to_bytes(4, "little")[:unit]
    done = 0
    while done < size:
        part = min(SLICE_BYTES, size - done)
        engine.write(queue, address + done, (pattern * (part // unit + 1))[:part])
        done += part
        yield part / BYTES_PER_US


def generate(engine: Engine, queue: Queue, packet: Any) -> Work:
    """Store page-table entries: a start value that grows by a step, with the mask's flag bits set in each. `count` is
    the number of entries minus one.
    """
    address = _join(packet, "dst_addr")
    value = packet.init_dw0 | packet.init_dw1 << 32
    step = packet.incr_dw0 | packet.incr_dw1 << 32
    flags = packet.mask_dw0 | packet.mask_dw1 << 32
    left = packet.count + 1
    while left:
        part = min(left, SLICE_BYTES // 8)
        entries = [(value + step * number | flags) & 0xFFFF_FFFF_FFFF_FFFF for number in range(part)]
        engine.write(queue, address, struct.pack(f"<{part}Q", *entries))
        address += part * 8
        value += step * part
        left -= part
        yield part * 8 / BYTES_PER_US
