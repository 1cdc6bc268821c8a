"""A listening socket in a server's loop. After a failed accept it pauses for a moment, because the socket would be
ready again at once.
"""

from __future__ import annotations

import logging
import selectors
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

LOG = logging.getLogger(__name__)
RETRY_S = 0.25


class Listener:
    """Passes connections to `take`, each with its peer's address. It owns the socket and the socket's path in the file
    system.

    The server calls `retry` from time to time.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        sock: socket.socket,
        take: Callable[[socket.socket, Any], None],
        path: str = "",
    ) -> None:
        self._selector, self._sock, self._take, self._path = selector, sock, take, path
        # until then accepting is paused, after a failure
        self._paused_until_s: float | None = None
        sock.setblocking(False)
        self._listen()

    def retry(self) -> None:
        """Accept again after a pause."""
        if self._paused_until_s is not None and time.monotonic() >= self._paused_until_s:
            self._listen()

    def close(self) -> None:
        """Stop accepting. Harmless when repeated."""
        if self._sock.fileno() < 0:
            return
        if self._paused_until_s is None:
            self._selector.unregister(self._sock)
        self._sock.close()
        if self._path:
            Path(self._path).unlink(missing_ok=True)

    def _listen(self) -> None:
        self._paused_until_s = None
        self._selector.register(self._sock, selectors.EVENT_READ, lambda events: self._accept())

    def _accept(self) -> None:
        try:
            sock, address = self._sock.accept()
        # the peer is gone again, or this process has no descriptors left
        except OSError as error:
            LOG.info("accepting a connection: %s", error)
            self._selector.unregister(self._sock)
            self._paused_until_s = time.monotonic() + RETRY_S
            return
        self._take(sock, address)
