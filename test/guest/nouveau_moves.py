"""Runs in a guest: makes nouveau move a buffer between video memory and host memory, and checks every byte.

A channel submits a pushbuffer that does nothing, once for each place that the buffer must be in; the kernel moves it
there first, with its copy engine and fences. With an address as argument the channel releases a semaphore there
instead. Source: Linux's include/uapi/drm/nouveau_drm.h.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import sys
from typing import Any

VRAM, GART, MAPPABLE = 2, 4, 8
CHANNEL_ALLOC, GEM_NEW, GEM_PUSHBUF, GEM_CPU_PREP = 0x02, 0x40, 0x41, 0x42
# the engine that a channel is for: in these handles since Kepler
COPY_ENGINE = 0x30
ANY = 0xFFFF_FFFF
# immediate data 0 to the host's method NOP; the header of its five methods from SEM_ADDR_LO to SEM_EXECUTE
NOP, SEMAPHORE = 4 << 29 | 0x8 >> 2, 1 << 29 | 5 << 16 | 0x5C >> 2
RELEASE = 1
# each byte is an access through BAR1 while the buffer is in video memory
SIZE = 64 << 10
MOVES = (VRAM, GART, VRAM, GART)


def ask(device: int, number: int, layout: str, *values: int) -> tuple[Any, ...]:
    """Do one of the driver's requests, and return its structure."""
    request = bytearray(struct.pack(layout, *values))
    code = 3 << 30 | len(request) << 16 | ord("d") << 8 | 0x40 + number
    fcntl.ioctl(device, code, request)
    return struct.unpack(layout, request)


def buffer(device: int, domain: int, size: int) -> tuple[int, mmap.mmap]:
    """Allocate a buffer, and map it."""
    made = ask(device, GEM_NEW, "<IIQQQIIII", 0, domain | MAPPABLE, size, 0, 0, 0, 0, 0, 4096)
    return made[0], mmap.mmap(device, size, offset=made[4])


def prepare(device: int, handle: int) -> None:
    """Wait for the buffer's fences."""
    fcntl.ioctl(device, 1 << 30 | 8 << 16 | ord("d") << 8 | 0x40 + GEM_CPU_PREP, struct.pack("<II", handle, 4))


def submit(device: int, channel: int, push: int, dwords: int, *others: tuple[int, int]) -> None:
    """Submit the words in the buffer `push`; each of the others is a buffer and the place where it must be."""
    used = ((push, GART), *others)
    buffers = bytearray(b"".join(struct.pack("<QIIIIIIQ", 0, one, at, at, at, 0, 0, 0) for one, at in used))
    pushes = bytearray(struct.pack("<IIQQ", 0, 0, 0, 4 * dwords))
    places = address(buffers), address(pushes)
    ask(device, GEM_PUSHBUF, "<IIQIIQQIIQQ", channel, len(used), places[0], 0, 1, 0, places[1], 0, 0, 0, 0)


def main(words: list[str]) -> int:
    """Move the buffer and name each place once its bytes were right, or release a semaphore."""
    device = os.open("/dev/dri/renderD128", os.O_RDWR)
    channel = ask(device, CHANNEL_ALLOC, "<IIiII16II", ANY, COPY_ENGINE, 0, 0, 0, *[0] * 16, 0)[2]
    push, content = buffer(device, GART, 4096)
    if words:
        place = int(words[0], 0)
        content[:24] = struct.pack("<6I", SEMAPHORE, place & ANY, place >> 32, 1, 0, RELEASE)
        submit(device, channel, push, 6)
        return 0
    content[:4] = struct.pack("<I", NOP)
    data, view = buffer(device, VRAM | GART, SIZE)
    pattern = b"".join(struct.pack("<I", n * 2654435761 & ANY) for n in range(SIZE // 4))
    view[:] = pattern
    for place in MOVES:
        submit(device, channel, push, 1, (data, place))
        prepare(device, data)
        if view[:] != pattern:
            sys.stdout.write(f"the bytes are wrong in place {place}\n")
            return 1
        sys.stdout.write(f"right in place {place}\n")
    return 0


def address(data: bytearray) -> int:
    """Return where bytes lie."""
    import ctypes

    return ctypes.addressof(ctypes.c_char.from_buffer(data))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
