"""A fold over the columns of a tile: what follows the sums lies in LDS, row by row, and a thread takes up each row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ringup.compiler.graph.index import Int
from ringup.compiler.kernel.common.folding import Folder
from ringup.compiler.kernel.common.frame import Frame
from ringup.compiler.kernel.common.staging import masked
from ringup.compiler.machine.ir import Type, Value
from ringup.compiler.schedule.kernel import Fold
from ringup.compiler.schedule.views import within


class Pooling:
    """The fold of one kernel. `rows` x `pieces` running values lie in LDS from byte `base` on, of which `real` have
    columns of the result.

    A piece is of neighbouring columns, which one thread folds. `source`: what is folded.
    """

    def __init__(self, frame: Frame, fold: Fold, thread: Int, rows: int, pieces: int, real: int, base: int) -> None:
        self._frame, self._thread, self._rows, self._real, self._base = frame, thread, rows, real, base
        self._folder, self.source = Folder(frame.build, fold.node), fold.node.sources[0]
        self._type: Type = self._folder.first().type
        self._size = self._folder.laid(self._folder.first()).type.size_bytes
        self._stride = pieces | 1  # odd: threads that take up neighbouring rows find them in other banks
        function = frame.build.function
        function.lds_bytes = max(function.lds_bytes, base + rows * self._stride * self._size)

    def put(self, row: Int, piece: Int, values: Sequence[Value], masks: Sequence[Value | None]) -> None:
        """Lay down neighbouring values of a row, those left out whose mask is false."""
        folder, numbers = self._folder, self._frame.expressions.numbers
        total = folder.joined([folder.taken(value, mask) for value, mask in zip(values, masks, strict=True)])
        place = numbers.emit((row * self._stride + piece) * self._size)
        self._frame.build.lds_store(place, folder.laid(total), constant=self._base)

    def taken_up(self) -> Iterator[tuple[Int, Value | None, Value]]:
        """Yield rows that each thread has: the row in the tile, the condition for its being this thread's, and the
        fold's result.
        """
        build, folder = self._frame.build, self._folder
        type_ = folder.laid(folder.first()).type
        threads = build.function.group_size
        build.barrier()
        there = masked(self._frame, within(self._thread, 0, self._rows), None)
        for first in range(0, self._rows, threads):
            row = first + self._thread % self._rows
            address = self._frame.expressions.numbers.emit(row * (self._stride * self._size))
            lying = [build.lds_load(type_, address, constant=self._base + i * self._size) for i in range(self._real)]
            total = folder.joined([folder.taken_up(one, self._type) for one in lying])
            yield row, there, folder.finished(total)


__all__ = ["Pooling"]
