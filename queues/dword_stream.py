"""Streams of engines whose commands are dwords."""

from __future__ import annotations

from collections.abc import Sequence

from ringup.queues.dwords import to_bytes
from ringup.queues.queue import Stream


class DwordStream(Stream):
    """Commands as dwords."""

    def append(self, dwords: Sequence[int]) -> None:
        """Add commands as dwords, for instance from the builders of the stream's engine. The queue runs them unchanged:
        on every die, where several share the queue. Raises a `ValueError` that names what is no dword.
        """
        self.body += to_bytes(dwords)

    def _add(self, name: str, dwords: Sequence[int]) -> None:
        """Add one command that a profile knows by `name`."""
        after = self.around(self, name) if self.around is not None else None
        self.append(dwords)
        if after is not None:
            after()
