"""The queues of an NVIDIA card: which streams they take. A queue is one channel."""

from __future__ import annotations

from dataclasses import dataclass

from ringup.drivers.submission.card_queue import CardQueue, CardQueueParts, CopyVerbs
from ringup.queues.nv.compute_stream import ComputeCommands, ComputeStream
from ringup.queues.nv.copy_stream import CopyCommands, CopyStream
from ringup.queues.nv.gpfifo import Gpfifo, GpfifoKept, GpfifoQueue
from ringup.queues.nv.program import LocalMemory
from ringup.queues.queue import Owner, Stream


@dataclass(frozen=True, slots=True)
class CopyStreams:
    """Begins streams of a copy queue."""

    commands: CopyCommands
    owner: Owner

    def begin(self) -> CopyStream:
        """Return an empty stream."""
        return CopyStream(self.commands, self.owner)


class CopyQueue(GpfifoQueue, CopyVerbs):
    """A queue of a copy engine; it takes the methods of a copy class."""

    def __init__(self, parts: CardQueueParts, gpfifo: Gpfifo, streams: CopyStreams) -> None:
        CopyVerbs.__init__(self, parts)
        self._install_gpfifo(gpfifo)
        self._streams = streams

    def replace_parts(self, parts: CardQueueParts, gpfifo: Gpfifo, streams: CopyStreams) -> None:
        """Go on with parts that a new queue was made of, as `_replace` says."""
        self._replace(parts)
        self._install_gpfifo(gpfifo)
        self._streams, self._path = streams, None

    @property
    def setup(self) -> bytes:
        """What its channel runs first."""
        return self._streams.commands.setup()

    def _make_kept(self, stream: Stream, copies: int) -> GpfifoKept:
        return GpfifoKept(self, stream, self._services.kept_memory, copies)

    def stream(self) -> CopyStream:
        """Return an empty stream."""
        return self._begin(self._streams.begin)


@dataclass(frozen=True, slots=True)
class ComputeStreams:
    """Begins streams of a compute queue."""

    commands: ComputeCommands
    owner: Owner
    local: LocalMemory

    def begin(self) -> ComputeStream:
        """Return an empty stream."""
        return ComputeStream(self.commands, self.owner, self.local)


class ComputeQueue(GpfifoQueue, CardQueue):
    """A queue of the graphics engine; it takes the methods of a compute class."""

    def __init__(self, parts: CardQueueParts, gpfifo: Gpfifo, streams: ComputeStreams) -> None:
        CardQueue.__init__(self, parts)
        self._install_gpfifo(gpfifo)
        self._streams = streams

    def replace_parts(self, parts: CardQueueParts, gpfifo: Gpfifo, streams: ComputeStreams) -> None:
        """Go on with parts that a new queue was made of, as `_replace` says."""
        self._replace(parts)
        self._install_gpfifo(gpfifo)
        self._streams = streams

    @property
    def setup(self) -> bytes:
        """What its channel runs first."""
        return self._streams.commands.setup()

    def _make_kept(self, stream: Stream, copies: int) -> GpfifoKept:
        return GpfifoKept(self, stream, self._services.kept_memory, copies)

    def stream(self) -> ComputeStream:
        """Return an empty stream."""
        return self._begin(self._streams.begin)
