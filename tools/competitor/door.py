"""What the servers of virtual cards have in common: a thread of their own, whose errors `close` raises."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from ringup.errors import RingupError


class Door(ABC):
    """The server of one card at `address`, a loopback port as HOST:PORT. `errors` is what broke in it so far."""

    def __init__(self, what: str, address: tuple[str, int]) -> None:
        """`what` names the server in an error."""
        self.errors: list[Exception] = []
        self.address = "{}:{}".format(*address)
        self._what = what
        self._thread = threading.Thread(target=self._serve, name=what, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop serving. Raises `RingupError` if the server broke, because figures and tests are invalid then."""
        self._stop()
        if self.errors:
            said = "; ".join(f"{type(error).__name__}: {error}" for error in self.errors)
            raise RingupError(f"{self._what} broke: {said}") from self.errors[0]

    @abstractmethod
    def _serve(self) -> None:
        """Serve until `_stop`. What breaks goes to `errors`."""

    @abstractmethod
    def _stop(self) -> None:
        """End the thread."""
