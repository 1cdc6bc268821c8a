"""Events: what the resource manager tells processes, through the files that they registered.

Source: NVIDIA's open kernel modules 535.261.03: osapi.c (rm_alloc_os_event, rm_get_event_data), nv.c (nv_post_event,
nvidia_poll), cl906fsw.h and cl2080_notification.h.
"""

from __future__ import annotations

from ringup.autogen.nv import rm_alloc
from ringup.silicon.common.log import EventLog
from ringup.silicon.nv.kernel.files import File
from ringup.silicon.nv.rm.boards.facts import EngineKind
from ringup.silicon.nv.rm.manager import Manager
from ringup.silicon.nv.rm.objects import Running, Subscription
from ringup.silicon.nv.rm.parts import Channel

NONSTALL, DATALESS = rm_alloc.NV01_EVENT_NONSTALL_INTR, rm_alloc.NV01_EVENT_WITHOUT_EVENT_DATA
INDEX = 0xFFFF
# NV906F_NOTIFIERS_RC and NV906F_NOTIFIERS_NONSTALL
CHANNEL_ERROR, CHANNEL_NONSTALL = 0, 2
# NV2080_NOTIFIERS_GR0, NV2080_NOTIFIERS_CE0, NV2080_NOTIFIERS_FIFO_EVENT_MTHD
GRAPHICS, COPY, HOST = 12, 23, 35


class OsEvents:
    """The events of all processes. `xids`: lines of the system's log, newest last."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self.files: dict[tuple[int, int], File] = {}
        self.xids: list[tuple[int, int, str]] = []

    # --- what the resource manager tells: rm/events.py --------------------------------------------------------------
    def notified(self, client: int, event: int, subscription: Subscription, data: int, info: int) -> None:
        """Tell a process of an event."""
        file = self.files.get((client, subscription.data & 0xFFFFFFFF))
        if file is None:
            return
        if subscription.index & DATALESS:
            file.signalled = True
        else:
            file.events.append((event, subscription.index & INDEX, data, info))

    def channel_failed(self, channel: Channel, code: int, engine_type: int, scope: int) -> None:
        """Nothing is to do: `failed` tells processes."""

    def fault_queued(self) -> None:
        """Nothing is to do: this driver has no buffer for page faults."""

    def error_logged(self, code: int, runlist: int, channel_number: int, text: str) -> None:
        """Write a line into the system's log, an "Xid"."""
        self.xids.append((code, channel_number, text))
        self._log.note("kernel", "xid", "Xid {}: {}", code, text)

    # --- what the driver tells --------------------------------------------------------------------------------------
    def failed(self, manager: Manager, channel: Channel, code: int) -> None:
        """Tell who listens to a channel, or to another of its group, that it was stopped."""
        for client in manager.clients:
            for resource in tuple(client.resources.values()):
                state = resource.state
                if isinstance(state, Running) and state.channel is channel and state.owner:
                    manager.notify(resource, CHANNEL_ERROR, code)

    def not_stalled(self, manager: Manager, channel: Channel) -> None:
        """Tell who listens to an engine's interrupt that does not stall: the host's, or the engine's own.

        Source: engineNonStallIntrNotify. GUESS: a listener of a channel of the engine is told as well.
        """
        engine = manager.board.engine(channel.engine_type)
        wanted = {HOST}
        if engine is not None and engine.kind is EngineKind.CE:
            wanted.add(COPY + engine.instance)
        elif engine is not None and engine.kind is EngineKind.GR:
            wanted.add(GRAPHICS)
        for client in manager.clients:
            for resource in tuple(client.resources.values()):
                state = resource.state
                if not isinstance(state, Subscription) or not state.index & NONSTALL:
                    continue
                source = state.source.state
                own = isinstance(source, Running) and source.channel is channel
                if state.index & INDEX in wanted or (own and state.index & INDEX == CHANNEL_NONSTALL):
                    self.notified(client.handle, resource.handle, state, 0, 0)
