"""What a channel has not done yet: the entries of its GPFIFO that are left, and the methods that they name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from ringup.drivers.buffer import Buffer
from ringup.drivers.memory.access import Access
from ringup.drivers.nv.submission.queue_memory import ENTRIES, ChannelQueueMemory
from ringup.drivers.submission.card_queue import CardQueue
from ringup.errors import RingupError, TransportError
from ringup.queues.decode import Packet
from ringup.queues.nv.decode import NvDecoder
from ringup.queues.nv.decode_packet import NvPacket
from ringup.queues.nv.gpfifo import ENTRY_BYTES
from ringup.queues.nv.methods import COMPUTE, COPY
from ringup.queues.nv.rows import GenerationRow

# entries and methods that are shown of each channel; bytes of a pushbuffer that are read for it
MAX_ENTRIES, MAX_METHODS, MAX_BYTES = 3, 6, 64 << 10
# a chip of each generation, by which the decoder knows classes
CHIPS = {
    "turing": "tu102",
    "ga100": "ga100",
    "ampere": "ga102",
    "ada": "ad102",
    "hopper": "gh100",
    "blackwell gb100": "gb100",
    "blackwell gb202": "gb202",
}
# clc36f.h, NVC36F_SEM_EXECUTE_OPERATION: what a semaphore operation does, in words
OPERATIONS = {"ACQUIRE": "waits for", "RELEASE": "stores", "ACQ_STRICT_GEQ": "waits for", "ACQ_CIRC_GEQ": "waits for"}


class FindsMemory(Protocol):
    """An address space, as far as a post-mortem reads it."""

    def find(self, gpu_va: int) -> Buffer | None:
        """Return the buffer that contains an address."""
        ...

    def access(self, buffer: Buffer) -> Access:
        """Return the CPU's access to a visible buffer."""
        ...


def pending(queue: CardQueue, row: GenerationRow, space: FindsMemory) -> list[str]:
    """Say in words what a queue's channel has fetched last and has not fetched yet. It never raises for odd bytes."""
    memory = queue.memory
    at = queue.position()
    get, put = at.rptr_bytes // ENTRY_BYTES, at.wptr_bytes // ENTRY_BYTES
    lines = [f"{queue.hardware} has fetched its GPFIFO's entries up to {get} of {put}"]
    if not isinstance(memory, ChannelQueueMemory) or queue.timeline.idle:
        return lines
    # after a reset of the card that failed
    if memory.gpfifo.freed:
        return [*lines, "its memory is gone"]
    view = space.access(memory.gpfifo)
    decoder = NvDecoder(CHIPS[row.name], {COMPUTE: row.compute_class, COPY: row.copy_class}, Fetcher(space))
    # the last that it has fetched may be the one that it still runs
    for index in [(get - 1 + n) % ENTRIES for n in range(min((put - get) % ENTRIES + 1, MAX_ENTRIES))]:
        data = bytes(view[index * ENTRY_BYTES : (index + 1) * ENTRY_BYTES])
        for entry in decoder.decode_gpfifo(data):
            lines.append(f"entry {index}: {_entry_text(entry, space)}")
    return lines


class Fetcher:
    """Reads pushbuffers by address, as the card does."""

    def __init__(self, space: FindsMemory) -> None:
        self._space = space

    def __call__(self, gpu_va: int, size_bytes: int) -> bytes:
        """Return bytes of a visible buffer. Raises `TransportError` where there is none."""
        buffer = self._space.find(gpu_va)
        if buffer is None or buffer.view is None or size_bytes > MAX_BYTES:
            raise TransportError(f"{size_bytes} bytes at {gpu_va:#x} lie in no buffer that the CPU sees")
        offset = gpu_va - buffer.gpu_va
        return bytes(self._space.access(buffer)[offset : offset + size_bytes])


def _entry_text(entry: Packet, space: FindsMemory) -> str:
    fields = entry.fields
    size_bytes = 4 * fields.get("length", 0)
    words = list(_methods(entry, space))
    shown = ", ".join(words[:MAX_METHODS])
    if len(words) > MAX_METHODS:
        shown += f", … {len(words) - MAX_METHODS - 1} more, the last {words[-1]}"
    note = f" ({entry.note})" if entry.note else ""
    return f"{size_bytes} bytes at {fields.get('gpu_va', 0):#x}{note}: {shown or 'no methods that can be read'}"


def _methods(entry: Packet, space: FindsMemory) -> Iterator[str]:
    """Yield the methods of an entry in words; a semaphore operation is one."""
    semaphore: dict[str, int] = {}
    for packet in entry.inner:
        if not isinstance(packet, NvPacket):
            continue
        for method in packet.methods:
            if method.name.startswith("SEM_") and method.values:
                semaphore[method.name] = method.values[0]
                if method.name != "SEM_EXECUTE":
                    continue
                gpu_va = semaphore.get("SEM_ADDR_HI", 0) << 32 | semaphore.get("SEM_ADDR_LO", 0)
                value = semaphore.get("SEM_PAYLOAD_HI", 0) << 32 | semaphore.get("SEM_PAYLOAD_LO", 0)
                does = OPERATIONS.get(method.names.get("operation", ""), "does something with")
                yield f"a semaphore that {does} {value} at {gpu_va:#x}{_named(gpu_va, space)}"
            else:
                yield method.name


def _named(gpu_va: int, space: FindsMemory) -> str:
    try:
        buffer = space.find(gpu_va)
    except RingupError:
        return ""
    return f" ({buffer.name})" if buffer is not None and buffer.name else ""
