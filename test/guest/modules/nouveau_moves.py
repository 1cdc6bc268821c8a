"""Runs in a guest: makes nouveau move buffers between video memory and host memory, and checks every byte.

A channel submits a pushbuffer that does nothing, once for each place that a buffer must be in; the kernel moves it
there first, with its copy engine and fences. Source: Linux's include/uapi/drm/nouveau_drm.h.

    nouveau_moves.py NODE moves            move a buffer, and name each place once its bytes were right
    nouveau_moves.py NODE writes ADDRESS   release a semaphore at an address of the channel's space
    nouveau_moves.py NODE nonsense         submit a header with an opcode that no generation has
    nouveau_moves.py NODE waits            wait for a semaphore that never comes, until the process is ended
    nouveau_moves.py NODE keeps FILE...    hold buffers until a file appears, check and move them, and so on
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import struct
import sys
import time
from typing import Any

VRAM, GART, MAPPABLE = 2, 4, 8
CHANNEL_ALLOC, GEM_NEW, GEM_PUSHBUF, GEM_CPU_PREP = 0x02, 0x40, 0x41, 0x42
# the engine that a channel is for: in these handles since Kepler
COPY_ENGINE = 0x30
ANY = 0xFFFF_FFFF
# immediate data 0 to the host's method NOP; the header of its five methods from SEM_ADDR_LO to SEM_EXECUTE; an opcode
# that stands for nothing (NV_FIFO_DMA_SEC_OP in dev_ram.ref.txt of open-gpu-doc). A method on another subchannel would
# not do: a runlist of a copy engine ignores the subchannel.
NOP, SEMAPHORE, UNKNOWN = 4 << 29 | 0x8 >> 2, 1 << 29 | 5 << 16 | 0x5C >> 2, 6 << 29
ACQUIRE, RELEASE = 0, 1
# each byte is an access through BAR1 while the buffer is in video memory
SIZE = 64 << 10
PATTERN = b"".join(struct.pack("<I", n * 2654435761 & ANY) for n in range(SIZE // 4))
MOVES = (VRAM, GART, VRAM, GART)


def ask(device: int, number: int, layout: str, *values: int) -> tuple[Any, ...]:
    """Do one of the driver's requests, and return its structure."""
    request = bytearray(struct.pack(layout, *values))
    code = 3 << 30 | len(request) << 16 | ord("d") << 8 | 0x40 + number
    fcntl.ioctl(device, code, request)
    return struct.unpack(layout, request)


class Client:
    """One channel for a copy engine, and its pushbuffer."""

    def __init__(self, node: str) -> None:
        self._device = os.open(node, os.O_RDWR)
        self._channel = ask(self._device, CHANNEL_ALLOC, "<IIiII16II", ANY, COPY_ENGINE, 0, 0, 0, *[0] * 16, 0)[2]
        self._push, self.push_va, self._content = self.buffer(GART, 4096)

    def buffer(self, domain: int, size: int) -> tuple[int, int, mmap.mmap]:
        """Allocate a buffer; return its handle, its address, and its bytes."""
        made = ask(self._device, GEM_NEW, "<IIQQQIIII", 0, domain | MAPPABLE, size, 0, 0, 0, 0, 0, 4096)
        return made[0], made[3], mmap.mmap(self._device, size, offset=made[4])

    def prepare(self, handle: int) -> None:
        """Wait for the buffer's fences."""
        fcntl.ioctl(
            self._device, 1 << 30 | 8 << 16 | ord("d") << 8 | 0x40 + GEM_CPU_PREP, struct.pack("<II", handle, 4)
        )

    def submit(self, words: list[int], *others: tuple[int, int]) -> None:
        """Submit a pushbuffer; each of the others is a buffer and the place where it must be."""
        self._content[: 4 * len(words)] = struct.pack(f"<{len(words)}I", *words)
        used = ((self._push, GART), *others)
        buffers = bytearray(b"".join(struct.pack("<QIIIIIIQ", 0, one, at, at, at, 0, 0, 0) for one, at in used))
        pushes = bytearray(struct.pack("<IIQQ", 0, 0, 0, 4 * len(words)))
        places = address(buffers), address(pushes)
        values = self._channel, len(used), places[0], 0, 1, 0, places[1], 0, 0, 0, 0
        ask(self._device, GEM_PUSHBUF, "<IIQIIQQIIQQ", *values)


def semaphore(gpu_va: int, operation: int) -> list[int]:
    """Return the words of a semaphore of payload 1."""
    return [SEMAPHORE, gpu_va & ANY, gpu_va >> 32, 1, 0, operation]


def address(data: bytearray) -> int:
    """Return where bytes lie."""
    return ctypes.addressof(ctypes.c_char.from_buffer(data))


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def moves(client: Client, data: int, view: mmap.mmap) -> None:
    """Move a buffer to and fro."""
    for place in MOVES:
        client.submit([NOP], (data, place))
        client.prepare(data)
        say(f"{'right' if view[:] == PATTERN else 'the bytes are wrong'} in place {place}")


def keeps(client: Client, files: list[str]) -> None:
    """Hold one buffer in video memory and one in host memory until each of the files is there."""
    data, _, view = client.buffer(VRAM | GART, SIZE)
    _, _, other = client.buffer(GART, SIZE)
    view[:] = other[:] = PATTERN
    for file in files:
        client.submit([NOP], (data, VRAM))
        client.prepare(data)
        say(f"until {file}")
        while not os.path.exists(file):
            time.sleep(0.1)
        say("kept" if view[:] == other[:] == PATTERN else "the bytes are wrong")
        moves(client, data, view)


def errs(client: Client, words: list[int]) -> None:
    """Submit what stops the channel. The kernel submits a fence after it, and refuses that, and with it the request, if
    it has heard of the stop before (nouveau_fence_emit).
    """
    try:
        client.submit(words)
    except OSError as error:
        if error.errno != errno.ENODEV:
            raise


def main(node: str, what: str, *words: str) -> int:
    """Do what the first word says."""
    client = Client(node)
    if what == "moves":
        data, _, view = client.buffer(VRAM | GART, SIZE)
        view[:] = PATTERN
        moves(client, data, view)
    elif what == "writes":
        errs(client, semaphore(int(words[0], 0), RELEASE))
    elif what == "nonsense":
        errs(client, [UNKNOWN])
    elif what == "waits":
        client.submit(semaphore(client.push_va + 2048, ACQUIRE))
        say(f"waits at {client.push_va + 2048:#x}")
        time.sleep(3600)
    else:
        keeps(client, list(words))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
