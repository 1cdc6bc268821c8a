"""A fold over the columns of a tile: the threads put their values into LDS row by row, and then each thread reduces one
row.
"""

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
    """The fold of one kernel. LDS holds `rows` x `pieces` accumulators from byte `base` on; `real` pieces of each row
    have columns of the result.

    A piece is a number of adjacent columns that one thread has reduced. `source`: the node that is reduced.
    """

    def __init__(self, frame: Frame, fold: Fold, thread: Int, rows: int, pieces: int, real: int, base: int) -> None:
        self._frame, self._thread, self._rows, self._real, self._base = frame, thread, rows, real, base
        self._folder, self.source = Folder(frame.build, fold.node), fold.node.sources[0]
        self._type: Type = self._folder.first().type
        self._size = self._folder.to_lds(self._folder.first()).type.size_bytes
        # Odd, so that threads with adjacent rows read different banks.
        self._stride = pieces | 1
        function = frame.build.function
        function.lds_bytes = max(function.lds_bytes, base + rows * self._stride * self._size)

    def put(self, row: Int, piece: Int, values: Sequence[Value], masks: Sequence[Value | None]) -> None:
        """Reduce adjacent values of a row, without those whose mask is false, and store the result in LDS."""
        folder, numbers = self._folder, self._frame.expressions.numbers
        total = folder.joined([folder.element(value, mask) for value, mask in zip(values, masks, strict=True)])
        place = numbers.emit((row * self._stride + piece) * self._size)
        self._frame.build.lds_store(place, folder.to_lds(total), constant=self._base)

    def results(self) -> Iterator[tuple[Int, Value | None, Value]]:
        """Yield the rows of each thread: the row in the tile, the condition for it to be this thread's, and the result
        of the fold.
        """
        build, folder = self._frame.build, self._folder
        type_ = folder.to_lds(folder.first()).type
        threads = build.function.group_size
        build.barrier()
        there = masked(self._frame, within(self._thread, 0, self._rows), None)
        for first in range(0, self._rows, threads):
            row = first + self._thread % self._rows
            address = self._frame.expressions.numbers.emit(row * (self._stride * self._size))
            lying = [build.lds_load(type_, address, constant=self._base + i * self._size) for i in range(self._real)]
            total = folder.joined([folder.from_lds(one, self._type) for one in lying])
            yield row, there, folder.finished(total)


__all__ = ["Pooling"]
