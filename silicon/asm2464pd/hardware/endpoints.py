"""Bulk endpoints as the bridge's engines use them: armed to receive, or with data to send."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

# data, whether the arming is used up, whether the host's transfer continues
Take = Callable[[bytes, bool, bool], None]


@dataclass(slots=True)
class Armed:
    """An armed OUT endpoint: it accepts `left` bytes, at most `bytes_per_us`."""

    left: int
    take: Take
    bytes_per_us: float


@dataclass(slots=True)
class Message:
    """Data that an IN endpoint sends: packets, the last of them short unless the size is a multiple of the
    packet size.
    """

    data: bytes | memoryview
    bytes_per_us: float
    done: Callable[[], None]
    sent: int = 0


class Endpoint:
    """What both directions share. `on_ready` tells the host controller that there may be data to move."""

    def __init__(self, address: int) -> None:
        self.address = address
        self.halted = False
        self.on_ready: Callable[[], None] = lambda: None

    def halt(self) -> None:
        """Stall every transfer until the host clears the halt."""
        self.halted = True
        self.on_ready()

    def reset(self) -> None:
        """Drop what was armed or queued, and clear the halt."""
        raise NotImplementedError


class OutEndpoint(Endpoint):
    """A bulk OUT endpoint, by stream (0: without streams)."""

    def __init__(self, address: int) -> None:
        super().__init__(address)
        self._armed: dict[int, Armed] = {}

    def arm(self, size_bytes: int, take: Take, *, stream: int = 0, bytes_per_us: float = math.inf) -> None:
        """Accept up to `size_bytes`, in pieces as they arrive; a short packet ends the arming."""
        self._armed[stream] = Armed(size_bytes, take, bytes_per_us)
        self.on_ready()

    def disarm(self, stream: int | None = None) -> None:
        """Stop accepting data, on one stream or on all."""
        if stream is None:
            self._armed.clear()
        else:
            self._armed.pop(stream, None)

    def reset(self) -> None:
        """Drop what was armed, and clear the halt."""
        self._armed.clear()
        self.halted = False

    def armed(self, stream: int) -> Armed | None:
        """Return the arming that receives the next bytes of a stream; None: not ready."""
        return self._armed.get(stream)

    def deliver(self, stream: int, data: bytes, *, short: bool, more: bool) -> None:
        """Receive bytes from the host. `short`: they end with a short packet; `more`: the host's transfer continues
        after them.
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
        """Queue data for the host; a view is read when it is sent. Empty data is a zero-length packet. `done` is called
        once the host has all of it.
        """
        self._queues.setdefault(stream, deque()).append(Message(data, bytes_per_us, done))
        self.on_ready()

    def clear(self, stream: int | None = None) -> None:
        """Drop queued data, on one stream or on all."""
        if stream is None:
            self._queues.clear()
        else:
            self._queues.pop(stream, None)

    def reset(self) -> None:
        """Drop queued data, and clear the halt."""
        self._queues.clear()
        self.halted = False

    def waiting(self, stream: int) -> Message | None:
        """Return the next message of a stream; None: not ready."""
        queue = self._queues.get(stream)
        return queue[0] if queue else None

    def fetched(self, stream: int, message: Message, size_bytes: int) -> None:
        """Count bytes of the first message that the host has received."""
        message.sent += size_bytes
        if message.sent >= len(message.data):
            queue = self._queues.get(stream)
            if queue and queue[0] is message:
                queue.popleft()
            message.done()
