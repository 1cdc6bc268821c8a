"""QEMU's machine protocol: one JSON object a line, commands answered in turn, events in between.

Source: QEMU docs/interop/qmp-spec.rst.
"""

from __future__ import annotations

import json
import select
import socket
import time
from typing import Any

from ringup.errors import TransportError


class Qmp:
    """One monitor connection to an emulator, for one thread at a time."""

    # TIMEOUT: a card that is slow to answer may block the emulator's main loop.
    ANSWER_S = 60.0

    def __init__(self, connection: socket.socket, answer_s: float = ANSWER_S) -> None:
        """Take over the `connection`, on which the emulator sends a greeting first. It answers within `answer_s`."""
        self._connection, self._answer_s = connection, answer_s
        self._unread = b""
        # all received events, oldest first
        self.events: list[dict[str, Any]] = []
        self._greeted = False

    def command(self, name: str, /, **arguments: object) -> Any:  # whatever the command's answer is
        """Run a command and return its answer. Raises `TransportError` when the emulator refuses it, or is gone."""
        if not self._greeted:
            self._answer("greeting", "QMP")
            self._greeted = True
            self.command("qmp_capabilities")
        request: dict[str, object] = {"execute": name}
        if arguments:
            request["arguments"] = arguments
        try:
            self._connection.sendall(json.dumps(request).encode() + b"\n")
        except OSError as error:
            raise TransportError(f"{name}: the emulator is gone") from error
        return self._answer(name, "return")

    def wait_event(self, names: tuple[str, ...], since: int, timeout_s: float, **data: object) -> dict[str, Any]:
        """Return the first event with one of those `names` that carries the `data`. The first `since` of all `events`
        are skipped. Raises `TransportError` when none comes.
        """
        end = time.monotonic() + timeout_s
        while True:
            for event in self.events[since:]:
                if event["event"] in names and data.items() <= event.get("data", {}).items():
                    return event
            since = len(self.events)
            self._take(" or ".join(names), end)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _answer(self, name: str, key: str) -> Any:
        end = time.monotonic() + self._answer_s
        while True:
            message = self._take(name, end)
            if message is None:
                continue
            if "error" in message:
                raise TransportError(f"{name}: {message['error'].get('desc', message['error'])}")
            if key in message:
                return message[key]

    def _take(self, name: str, end: float) -> dict[str, Any] | None:
        """Receive one message. An event is stored with the others, and None is returned."""
        while b"\n" not in self._unread:
            left_s = end - time.monotonic()
            if left_s <= 0 or not select.select([self._connection], [], [], left_s)[0]:
                raise TransportError(f"{name}: the emulator did not answer in time")
            try:
                piece = self._connection.recv(65536)
            except OSError:
                piece = b""
            if not piece:
                raise TransportError(f"{name}: the emulator is gone")
            self._unread += piece
        line, self._unread = self._unread.split(b"\n", 1)
        message: dict[str, Any] = json.loads(line)
        if "event" not in message:
            return message
        self.events.append(message)
        return None
