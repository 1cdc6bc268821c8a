"""The queues of a Radeon: which streams they take, and what lies below them on this card."""

from __future__ import annotations

from dataclasses import dataclass

from ringup.drivers.amd.submission.bounce import Bounce
from ringup.drivers.submission.card_queue import CardQueue, CardQueueParts, CopyVerbs
from ringup.queues.amd.pm4_stream import ComputeStream, Pm4Commands
from ringup.queues.amd.program import Scratch
from ringup.queues.amd.sdma_stream import CopyStream, SdmaCommands
from ringup.queues.queue import Owner


@dataclass(frozen=True, slots=True)
class ComputeStreams:
    """Begins streams of a compute queue. `queue_object_va`: what kernels see of the queue."""

    commands: Pm4Commands
    owner: Owner
    scratch: Scratch
    shader_engines: int
    queue_object_va: int

    def begin(self) -> ComputeStream:
        """Return an empty stream."""
        return ComputeStream(self.commands, self.owner, self.scratch, self.shader_engines, self.queue_object_va)


@dataclass(frozen=True, slots=True)
class CopyStreams:
    """Begins streams of a copy queue."""

    commands: SdmaCommands
    owner: Owner

    def begin(self) -> CopyStream:
        """Return an empty stream."""
        return CopyStream(self.commands, self.owner)


class ComputeQueue(CardQueue):
    """A compute queue; it takes PM4."""

    def __init__(self, parts: CardQueueParts, streams: ComputeStreams) -> None:
        super().__init__(parts)
        self._streams = streams

    def replace_parts(self, parts: CardQueueParts, streams: ComputeStreams) -> None:
        """Go on with parts that a new queue was made of, as `_replace` says."""
        self._replace(parts)
        self._streams = streams

    def stream(self) -> ComputeStream:
        """Return an empty stream."""
        return self._begin(self._streams.begin)


class CopyQueue(CopyVerbs):
    """A queue of a copy engine; it takes SDMA packets."""

    def __init__(self, parts: CardQueueParts, streams: CopyStreams) -> None:
        super().__init__(parts)
        self._streams = streams

    def replace_parts(self, parts: CardQueueParts, streams: CopyStreams) -> None:
        """Go on with parts that a new queue was made of, as `_replace` says."""
        self._replace(parts)
        self._streams, self._path = streams, None

    def stream(self) -> CopyStream:
        """Return an empty stream."""
        return self._begin(self._streams.begin)

    def close(self, *, patient: bool = True) -> bool:
        """Close the queue. If its engine waits for bytes that will not come, it gets no second to end."""
        broken = isinstance(self._path, Bounce) and self._path.broken is not None
        return super().close(patient=patient and not broken)
