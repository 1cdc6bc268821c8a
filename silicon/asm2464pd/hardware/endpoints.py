"""Bulk endpoints as the bridge's engines hold them: what is armed to take data, what waits to be fetched."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

Take = Callable[[bytes, bool, bool], None]  # data, whether the arming is used up, whether the host's transfer has more


@dataclass(slots=True)
class Armed:
    """An OUT endpoint's readiness for `left` bytes, at most `bytes_per_us`."""

    left: int
    take: Take
    bytes_per_us: float


@dataclass(slots=True)
class Message:
    """What an IN endpoint sends: packets, the last of them short unless the size is a multiple of the packet size."""

    data: bytes | memoryview
    bytes_per_us: float
    done: Callable[[], None]
    sent: int = 0


class Endpoint:
    """What both directions share. `on_ready` is the host's controller, which hears that there may be something to
    move.
    """

    def __init__(self, address: int) -> None:
        self.address = address
        self.halted = False
        self.on_ready: Callable[[], None] = lambda: None

    def halt(self) -> None:
        """Answer every transfer with a stall until the host clears that."""
        self.halted = True
        self.on_ready()

    def reset(self) -> None:
        """Forget what was armed or queued, and the halt."""
        raise NotImplementedError


class OutEndpoint(Endpoint):
    """A bulk OUT endpoint, by stream (0: without streams)."""

    def __init__(self, address: int) -> None:
        super().__init__(address)
        self._armed: dict[int, Armed] = {}

    def arm(self, size_bytes: int, take: Take, *, stream: int = 0, bytes_per_us: float = math.inf) -> None:
        """Accept up to `size_bytes`, in pieces as they come; a short packet uses the arming up."""
        self._armed[stream] = Armed(size_bytes, take, bytes_per_us)
        self.on_ready()

    def disarm(self, stream: int | None = None) -> None:
        """Accept nothing any more, on one stream or on all."""
        if stream is None:
            self._armed.clear()
        else:
            self._armed.pop(stream, None)

    def reset(self) -> None:
        """Forget what was armed, and the halt."""
        self._armed.clear()
        self.halted = False

    def armed(self, stream: int) -> Armed | None:
        """Return what takes the next bytes of a stream; None: not ready."""
        return self._armed.get(stream)

    def deliver(self, stream: int, data: bytes, *, short: bool, more: bool) -> None:
        """Take bytes from the host. `short`: they end with a short packet; `more`: the host's transfer goes on behind
        them.
        """
        armed = self._armed[stream]
        armed.left -= len(data)
        complete = short or armed.left <= 0
        if complete:
            del self._armed[stream]
        armed.take(data, complete, more)


class InEndpoint(Endpoint):
    """A bulk IN endpoint, by stream (0: without streams)."""

    def __init__(self, address: int) -> None:
        super().__init__(address)
        self._queues: dict[int, deque[Message]] = {}

    def send(
        self,
        data: bytes | memoryview,
        *,
        stream: int = 0,
        bytes_per_us: float = math.inf,
        done: Callable[[], None] = lambda: None,
    ) -> None:
        """Queue data for the host; a view is read when it goes out. No data: a packet of no bytes. `done` once the host
        has all of it.
        """
        self._queues.setdefault(stream, deque()).append(Message(data, bytes_per_us, done))
        self.on_ready()

    def clear(self, stream: int | None = None) -> None:
        """Drop what waits, on one stream or on all."""
        if stream is None:
            self._queues.clear()
        else:
            self._queues.pop(stream, None)

    def reset(self) -> None:
        """Drop what waits, and the halt."""
        self._queues.clear()
        self.halted = False

    def waiting(self, stream: int) -> Message | None:
        """Return what goes out next; None: not ready."""
        queue = self._queues.get(stream)
        return queue[0] if queue else None

    def fetched(self, stream: int, message: Message, size_bytes: int) -> None:
        """Count bytes that the host has got of the first message."""
        message.sent += size_bytes
        if message.sent >= len(message.data):
            queue = self._queues.get(stream)
            if queue and queue[0] is message:
                queue.popleft()
            message.done()
