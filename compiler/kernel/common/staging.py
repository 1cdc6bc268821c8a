"""Moves slices of one operand from memory through LDS: which thread loads what, and the layout of a slice in LDS.

A thread loads patches of `own` x `k` elements, along the axis that is contiguous in memory. Adjacent threads load
adjacent patches. The layout of a slice is [k][own] where threads read columns of it (multiply-adds), and [own][k] where
they read rows (matrix instructions).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ringup.compiler.graph.index import Int
from ringup.compiler.graph.nodes import Node
from ringup.compiler.kernel.common import element_forms
from ringup.compiler.kernel.common.expressions import Request, divides
from ringup.compiler.kernel.common.frame import Frame
from ringup.compiler.machine.build import Builder
from ringup.compiler.machine.ir import I1, Type, Value
from ringup.compiler.schedule.views import Point, Within, within

# The widest LDS access.
STORE_BYTES = 16
DWORD = 4


class Operand(NamedTuple):
    """What is staged. `place(number, own, k)` returns the point of an element of slice `number`, and its index along
    the operand's own axes and along K.

    `own_size` and `k_size` are the operand's sizes; outside, elements are zero. `along_k`: memory is contiguous along
    K, for `run` elements at a time.
    """

    factor: Node
    place: Callable[[Int, Int, Int], tuple[Point, Int, Int]]
    own_size: Int
    k_size: Int
    along_k: bool
    run: Int


class Staging:
    """Slices of `size` x `depth` elements of one operand. `by_k`: their layout is [k][own], else [own][k]."""

    def __init__(
        self, frame: Frame, thread: Int, operand: Operand, size: int, depth: int, type_: Type, *, by_k: bool, pad: int
    ) -> None:
        self._frame, self._thread, self._operand, self.type, self.by_k = frame, thread, operand, type_, by_k
        self._threads = frame.build.function.group_size
        self.size, self.depth = size, depth
        # Elements from one row in LDS to the next.
        self.stride = (size if by_k else depth) + pad
        self._along_k = operand.along_k
        each = max(1, size * depth // self._threads)
        long = min(STORE_BYTES // type_.size_bytes, each)
        while long > 1 and (each % long or not divides(long, operand.run) or (depth if self._along_k else size) % long):
            long //= 2
        across = 1
        if not by_k and not self._along_k:
            # Several rows of k, so that narrow elements are stored together: two, or four bytes.
            rows = max(2, DWORD // type_.size_bytes)
            while rows > 2 and each % (rows * long) and long > DWORD:
                long //= 2
            across = next((count for count in (rows, 2) if each % (count * long) == 0 and depth % count == 0), 1)
        self._own, self._k = (across, long) if self._along_k else (long, across)
        self._fast_count = (depth // self._k) if self._along_k else (size // self._own)
        self._slow_count = (size // self._own) if self._along_k else (depth // self._k)
        patches = self._fast_count * self._slow_count
        self.passes = -(-patches // self._threads)
        self._is_whole = patches % self._threads == 0
        self.place = 0

    @property
    def slice_bytes(self) -> int:
        """Return the LDS size of one slice."""
        rows = self.depth if self.by_k else self.size
        return -(-rows * self.stride * self.type.size_bytes // STORE_BYTES) * STORE_BYTES

    def _patch(self, i: int) -> tuple[Int, Int, Int]:
        """Return the first (own, k) of the thread's i-th patch, and the number of the patch."""
        number = self._thread + i * self._threads
        fast, slow = number % self._fast_count, number // self._fast_count
        own, k = (slow, fast) if self._along_k else (fast, slow)
        return own * self._own, k * self._k, number

    def fetch(self, number: Int) -> list[Value]:
        """Load this thread's elements of a slice: outer loop over patches, then k, then own."""
        operand, expressions = self._operand, self._frame.expressions
        whole_k, whole_own = divides(self._k, operand.k_size), divides(self._own, operand.own_size)
        requests: list[Request] = []
        for i in range(self.passes):
            first_own, first_k, patch = self._patch(i)
            there: Value | None = None
            if not self._is_whole:
                there = masked(self._frame, within(patch, 0, self._fast_count * self._slow_count), None)
            mask: Value | None = None
            for k in range(self._k):
                for own in range(self._own):
                    point, at_own, at_k = operand.place(number, first_own + own, first_k + k)
                    if (k == 0 or not whole_k) and (own == 0 or not whole_own):
                        mask = masked(self._frame, within(at_own, 0, operand.own_size), there)
                        mask = masked(self._frame, within(at_k, 0, operand.k_size), mask)
                    requests.append((point, mask))
        values = expressions.values(operand.factor, requests)
        return [self._stored(value, mask) for value, (_, mask) in zip(values, requests, strict=True)]

    def _stored(self, value: Value, mask: Value | None) -> Value:
        """Return a value in its form in memory, 0 where the mask is false. A float of 8 bits that was loaded is used as
        it was, without a conversion.
        """
        build, dtype = self._frame.build, self._operand.factor.dtype
        bits = element_forms.float8_loaded(build, value, dtype)
        if bits is not None:
            return build.op("truncate", self.type, zeroed(build, bits, mask))
        return element_forms.to_memory(build, zeroed(build, value, mask), dtype)

    def put(self, values: Sequence[Value], offset: Value) -> None:
        """Store a slice's elements to LDS, at the operand's place plus an offset in bytes."""
        build, numbers = self._frame.build, self._frame.expressions.numbers
        each = self._own * self._k
        size = self.type.size_bytes
        for i in range(self.passes):
            part = values[i * each : (i + 1) * each]
            own, k, patch = self._patch(i)
            row, column = (k, own) if self.by_k else (own, k)
            place = (row * self.stride + column) * size
            # The same address serves every patch.
            constant = place if isinstance(place, int) else place.constant
            address = build.add(numbers.emit(place - constant), offset)
            lines = [part[j * self._own : (j + 1) * self._own] for j in range(self._k)]
            if not self.by_k:
                lines = [list(line) for line in zip(*lines, strict=True)]
            inside = True if self._is_whole else within(patch, 0, self._fast_count * self._slow_count)
            if inside is True:
                self._store(address, constant, lines)
            else:
                with build.when(numbers.condition(inside)):  # type: ignore[arg-type]
                    self._store(address, constant, lines)

    def _store(self, address: Value, constant: int, lines: Sequence[Sequence[Value]]) -> None:
        build, size = self._frame.build, self.type.size_bytes
        for j, line in enumerate(lines):
            build.lds_store(address, build.vector(line), constant=self.place + constant + j * self.stride * size)


def masked(frame: Frame, condition: Within | bool, also: Value | None) -> Value | None:
    """Return the conjunction of two conditions, None if it always holds."""
    if condition is True:
        return also
    if condition is False:
        return frame.build.const(0, I1)
    value = frame.expressions.numbers.condition(condition)
    return value if also is None else frame.build.op("and", I1, value, also)


def zeroed(build: Builder, value: Value, mask: Value | None) -> Value:
    """Return a value that is 0 where the mask is false: outside the operand, products must not count."""
    if mask is None or is_zero_outside(value, mask):
        return value
    return build.op("select", value.type, mask, value, build.const(0, value.type))


def is_zero_outside(value: Value, mask: Value) -> bool:
    """Return whether a value is a load, possibly converted, that gives 0 where the mask is false."""
    while value.op in ("extract", "zext", "sext", "fconvert"):
        value = value.args[0]
    return value.op == "load" and len(value.args) == 3 and value.args[2] is mask
