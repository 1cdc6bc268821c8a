"""Kept streams: a stream is stored once in the card's memory, then patched and submitted many times. Each submission
costs a patch, a short call and a doorbell write.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from ringup.queues.queue import ADDRESS, PLAIN, TIMEOUT_S, Call, Queue, Stream
from ringup.queues.timeline import Point

ARGS_ALIGN = 256
FORMATS = {4: struct.Struct("<I"), 8: ADDRESS}


class KeptMemory(NamedTuple):
    """Memory of the card for a kept stream: its address, `write(at_bytes, data)` for the host, and how to free it.
    `view`: its bytes where the CPU has them mapped.
    """

    gpu_va: int
    write: Callable[[int, bytes | bytearray], None]
    free: Callable[[], None]
    view: memoryview | None = None


@dataclass(slots=True)
class KeptPlace:
    """One copy of the stream in the card's memory."""

    gpu_va: int
    at_bytes: int
    # its bytes for the next submission, with the addresses of its own arguments
    image: bytearray
    # the packets that call this copy
    calls: dict[int, Call] = field(default_factory=dict)
    # the version of the image that is in the card's memory
    version: int = 0
    # the point of its last submission
    last: Point | None = None


class Kept:
    """A stream with `copies` copies in the card's memory. They are used in turn, so one can be patched while another
    runs.

    `patch` changes the commands at a byte offset: read `size_bytes` of the stream before a packet is added to learn
    where that packet begins. `patch_args` changes the kernel arguments: `dispatch` returns where its own arguments
    begin. Work in flight keeps the values that it was submitted with.
    """

    def __init__(
        self,
        queue: Queue,
        stream: Stream,
        alloc: Callable[[int], KeptMemory],
        copies: int = 2,
        *,
        behind: bytes = b"",
    ) -> None:
        """`alloc(size_bytes)` returns memory that the card reaches. `behind`: packets of the queue's own, which every
        copy has behind the commands.
        """
        if copies < 1:
            raise ValueError(f"a kept stream lies in at least one place, not {copies}")
        queue.check(stream)
        pad = queue.commands.pad
        commands = bytes(stream.body)
        commands += queue.commands.padding(-len(commands) // len(pad) % 8) if pad else b""
        self.queue, self._waits = queue, list(stream.waits)
        self.commands_bytes = len(commands)
        commands += behind
        self._args_at = -(-len(commands) // ARGS_ALIGN) * ARGS_ALIGN
        image = bytearray(commands.ljust(self._args_at, b"\0") + stream.args)
        in_body, in_args = stream.forms or (PLAIN, PLAIN)
        fixups = [(in_body, at, value) for at, value in stream.fixups]
        fixups += [(in_args, self._args_at + at, value) for at, value in stream.arg_fixups]
        self._size_bytes = len(image)
        self._stride = -(-len(image) // ARGS_ALIGN) * ARGS_ALIGN
        self.gpu_va, self._write, self._free, self._view = alloc(self._stride * copies)
        self._version = 1
        self._places: list[KeptPlace] = []
        for at in range(0, self._stride * copies, self._stride):
            args_va = self.gpu_va + at + self._args_at
            for form, byte, value in fixups:
                form.pack(image, byte, value + (args_va >> form.shift))
            self._places.append(KeptPlace(self.gpu_va + at, at, bytearray(image)))
        self._images = [place.image for place in self._places]
        self._next, self._lost = itertools.cycle(self._places).__next__, ""

    def patch(self, at_bytes: int, value: int, size_bytes: int = 8) -> None:
        """Change a value of 4 or 8 bytes in the commands for later submissions."""
        if not self._places:
            raise self._gone()
        if size_bytes not in FORMATS:
            raise ValueError(f"a value of 4 or 8 bytes is patched, not of {size_bytes}")
        if not 0 <= at_bytes <= self.commands_bytes - size_bytes:
            raise ValueError(f"byte {at_bytes} lies outside the {self.commands_bytes} bytes of commands")
        try:
            # not packed into the image: a failure would leave zeros there
            data = FORMATS[size_bytes].pack(value)
        except struct.error as error:
            raise ValueError(f"{size_bytes} bytes hold a whole number from 0 on, not {value!r}") from error
        for image in self._images:
            image[at_bytes : at_bytes + size_bytes] = data
        self._version += 1

    def patch_args(self, at_bytes: int, data: bytes) -> None:
        """Change bytes of the kernel arguments for later submissions, at the offset that `dispatch` returned plus the
        argument's `arg_offset`.

        `data`: bytes, or a NumPy scalar or array of the argument's type.
        """
        if not self._places:
            raise self._gone()
        if type(data) is not bytes:
            data = memoryview(data).tobytes()
        start = self._args_at + at_bytes
        end = start + len(data)
        if at_bytes < 0 or end > self._size_bytes:
            raise ValueError(
                f"bytes {at_bytes} to {at_bytes + len(data)} lie outside"
                f" {self._size_bytes - self._args_at} bytes of arguments"
            )
        for image in self._images:
            image[start:end] = data
        self._version += 1

    def submit(self, timeout_s: float = TIMEOUT_S) -> Point:
        """Submit the stream with its current values and return its point. If all copies are busy, wait for the oldest
        submission.
        """
        if not self._places:
            raise self._gone()
        place = self._next()
        self._store(place, timeout_s)
        point = self._run(place, timeout_s)
        place.last = point
        return point

    def _store(self, place: KeptPlace, timeout_s: float) -> None:
        """Store the current values in a copy that has older ones, once its last submission is done."""
        version = self._version
        # the copy is out of date: wait until its last submission is done, then store the current image
        if place.version != version:
            last = place.last
            if last is not None:
                timeline = last.timeline
                if timeline.known < last.value and timeline.completed < last.value and not timeline.failed:
                    last.wait(timeout_s)
            self._write(place.at_bytes, place.image)
            place.version = version

    def _run(self, place: KeptPlace, timeout_s: float) -> Point:
        """Submit the commands of one copy."""
        return self.queue.call(place.gpu_va, self.commands_bytes, self._waits, place.calls, timeout_s)

    def _gone(self) -> ValueError:
        return ValueError(f"a kept stream of {self.queue.name} was {self._lost}: build and keep it anew")

    def lose(self, how: str) -> None:
        """Forget the memory: its owner has lost it. Every later use raises an error with `how`."""
        self._places, self._images, self._view, self._free = [], [], None, lambda: None
        self._lost = how

    def free(self) -> None:
        """Wait for the last submission, then free the memory. May be called twice."""
        for place in self._places:
            if place.last is not None and not place.last.timeline.failed:
                place.last.wait()
        self._free()
        if self._places:
            self.lose("freed")
