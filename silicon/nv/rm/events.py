"""What the resource manager tells clients without being asked."""

from __future__ import annotations

from typing import Protocol

from ringup.silicon.nv.rm.objects import Subscription
from ringup.silicon.nv.rm.parts import Channel


class Events(Protocol):
    """The door's way to tell. Calls are made in virtual time and may be many."""

    def notified(self, client: int, event: int, subscription: Subscription, data: int, info: int) -> None:
        """An event object that a client subscribed is due. `event`: its handle."""
        ...

    def channel_failed(self, channel: Channel, code: int, engine_type: int, scope: int) -> None:
        """A channel was stopped because of an error. `code`: ROBUST_CHANNEL_*, of nverror.h."""
        ...

    def fault_queued(self) -> None:
        """A page fault is in the buffer that the CPU registered for it."""
        ...

    def error_logged(self, code: int, runlist: int, channel_number: int, text: str) -> None:
        """A line for the system's log, an "Xid"."""
        ...
