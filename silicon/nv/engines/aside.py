"""Work that can stop in its middle and go on there: it has a thread of its own, which runs in turn with its caller's.

An access of a shader that faults is deep inside of the cores' code. There it waits until software has mapped the page,
while the card's time goes on; then the same access is made again. Only one of the two threads runs at any time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

Asked = TypeVar("Asked")
Result = TypeVar("Result")


class Aside(Generic[Asked]):
    """One such thread. It begins with the first work and ends with `close`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._thread: threading.Thread | None = None
        # each is released when its thread's turn comes
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._work: Callable[[], Any] | None = None
        self._asked: list[Asked] = []
        self._answer = self._closed = False
        self._outcome: tuple[Any, BaseException | None] | None = None

    def ask(self, what: Asked) -> bool:
        """Within work: stop here and hand a question to the caller; return its answer, False once it gave up."""
        if self._closed:
            return False
        self._asked.append(what)
        self._back.release()
        self._go.acquire()
        return self._answer and not self._closed

    def run(self, work: Callable[[], Result]) -> Generator[Asked, bool, Result]:
        """Do work, yield what it asks, and take the answers. Return its result, or raise its exception."""
        self._outcome, self._work = None, work
        self._turn()
        while self._asked:
            self._answer = yield self._asked.pop()
            self._turn()
        result: Result = self._finished()
        return result

    def close(self) -> None:
        """End the thread. Work in its middle gets the answer False to all that it asks, and comes to its end."""
        self._closed = True
        if self._thread is not None:
            self._work = None
            self._asked.clear()
            self._go.release()
            self._thread.join()
            self._thread = None

    def _finished(self) -> Any:
        if self._outcome is None:
            raise RuntimeError(f"{self._name} has not ended its work")
        result, error = self._outcome
        self._outcome = None
        if error is not None:
            raise error
        return result

    def _turn(self) -> None:
        """Let the thread run until it asks something or has ended its work."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._loop, name=self._name, daemon=True)
            self._thread.start()
        self._go.release()
        self._back.acquire()

    def _loop(self) -> None:
        self._go.acquire()
        while (work := self._work) is not None:
            self._work = None
            try:
                self._outcome = work(), None
            except BaseException as error:  # noqa: BLE001
                self._outcome = None, error
            if self._closed:
                return
            self._back.release()
            self._go.acquire()
