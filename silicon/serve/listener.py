"""A listening socket in a server's loop. While no connection can be taken it is left alone, or it would be tried
without end.
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
DEAF_S = 0.25


class Listener:
    """Hands connections to `take`, each with its peer's address. The socket, and what it is called in the file system,
    are the listener's.

    `keep_house` is to be called now and then.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        sock: socket.socket,
        take: Callable[[socket.socket, Any], None],
        path: str = "",
    ) -> None:
        self._selector, self._sock, self._take, self._path = selector, sock, take, path
        self._deaf_until_s: float | None = None  # connections wait, since none can be taken
        sock.setblocking(False)
        self._listen()

    def keep_house(self) -> None:
        """Try again what could not be taken."""
        if self._deaf_until_s is not None and time.monotonic() >= self._deaf_until_s:
            self._listen()

    def close(self) -> None:
        """Take no more. Twice is harmless."""
        if self._sock.fileno() < 0:
            return
        if self._deaf_until_s is None:
            self._selector.unregister(self._sock)
        self._sock.close()
        if self._path:
            Path(self._path).unlink(missing_ok=True)

    def _listen(self) -> None:
        self._deaf_until_s = None
        self._selector.register(self._sock, selectors.EVENT_READ, lambda events: self._accept())

    def _accept(self) -> None:
        try:
            sock, address = self._sock.accept()
        except OSError as error:  # it went again, or this process has no descriptors left
            LOG.info("accepting a connection: %s", error)
            self._selector.unregister(self._sock)
            self._deaf_until_s = time.monotonic() + DEAF_S
            return
        self._take(sock, address)
