"""A batch over a fast link: every access is sent at once, and a read is answered when it is queued."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ringup.drivers.transport.seam import Mmio


class Answer:
    """A read of a batch. Hidden until the batch has ended, so that what works here works over a slow link too."""

    __slots__ = ("_batch", "_value")

    def __init__(self, batch: Direct, value: int) -> None:
        self._batch, self._value = batch, value

    @property
    def value(self) -> int:
        """The value that was read; raises a `ValueError` before the batch has ended."""
        if not self._batch.ended:
            raise ValueError("a batch's reads are answered when it ends")
        return self._value


class Direct:
    """The seam's `Batch` over a window that answers at once."""

    __slots__ = ("_window", "ended", "write32", "write64")

    def __init__(self, window: Mmio) -> None:
        self._window, self.ended = window, False
        self.write32, self.write64 = window.write32, window.write64

    def read32(self, offset: int) -> Answer:
        """Read a dword now; the answer shows when the batch has ended."""
        return Answer(self, self._window.read32(offset))


@contextmanager
def direct(window: Mmio) -> Iterator[Direct]:
    """Be the `batch()` of a window whose link is fast."""
    batch = Direct(window)
    try:
        yield batch
    finally:
        batch.ended = True
