"""Random histories of work on an open NVIDIA card while faults strike, and what must be right all the same.

A history has buffers with NumPy twins. What an operation does is taken over into the twins when its point is done;
bytes of operations that failed are of no account until something else is written there.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field

import numpy as np

from ringup.errors import DeviceLost, DeviceTimeout, LinkDown, RingupError
from ringup.queues.timeline import Point

# The longest that one call may take on the card's clock: a reset of the whole card comes after one of channels that
# failed, and each stage of a start has a bound of its own.
MAX_CALL_US = 200_000_000
# A longer call hangs; a slow machine alone does not take this long.
MAX_CALL_S = 60
MAX_TEXT = 2000
SIZES = (512, 1000, 4096, 5000, 20_000, 70_000)
MAX_PIECES, BLOCK = 6, 128
# enough for all that a history submits, without trouble; too little for much of it
IDLE_S, SHORT_S = 1.0, (1e-5, 1e-3, 0.1)
MAX_RESETS = 4
LOST = (DeviceLost, LinkDown)


class Moments:
    """Counts accesses to a card. `at(n, act)`: `act` is called before the nth access from now on."""

    def __init__(self):
        self.seen, self._due = 0, []

    def at(self, count, act):
        self._due.append((self.seen + count, act))

    def forget(self):
        self._due.clear()

    def __call__(self):
        self.seen += 1
        for one in [one for one in self._due if one[0] <= self.seen]:
            self._due.remove(one)
            one[1]()


def check_error(error, has_cause):
    """Check that an error is one sentence, and has a cause."""
    text = str(error)
    assert text, repr(error)
    assert has_cause, f"without a cause: {error!r}"
    assert "\n" not in text, text
    assert len(text) < MAX_TEXT, text


@dataclass(eq=False)
class Piece:
    """A buffer, its twin, which of its bytes are certain, and the points of what uses it."""

    buffer: object
    twin: np.ndarray
    sure: np.ndarray
    points: list = field(default_factory=list)


@dataclass(eq=False)
class Operation:
    """Something that writes bytes of a piece; `apply` takes it over. `point` is None until it is submitted."""

    piece: Piece
    start: int
    end: int
    apply: object
    point: Point | None = None


class History:
    """What one program does with a card."""

    def __init__(self, card, rng, load, clock, troubled):
        """`load(card)` returns kernels; None for cards that run none here. `troubled()`: whether something happened
        that calls may fail for.
        """
        self.card, self.rng, self.clock, self._load, self._troubled = card, rng, clock, load, troubled
        self.errors, self.slowest = [], (0, "")
        self.checked_bytes = 0
        self.steps = [self.alloc, self.upload, self.upload, self.copy, self.copy, self.fill, self.check, self.wait]
        self.steps += [self.kept_copy, self.new_queue, self.close_queue, self.look, self.free, self.pin]
        if load is not None:
            self.steps += [self.add, self.add, self.counts, self.reverse, self.local, self.kept_launch]
        self._begin()

    def _begin(self):
        self.pieces, self.operations, self.kernels = [], [], None
        self.pinned = []

    # --- calls ------------------------------------------------------------------------------------------------------
    def call(self, what, *args):
        """Call the driver. No call takes too long, and each error is of ours, in one sentence, with a cause."""
        before_us, before_s = self.clock.now_us, time.monotonic()
        try:
            return what(*args)
        except RingupError as error:
            check_error(error, self._troubled())
            self.errors.append(error)
            raise
        finally:
            took_us = self.clock.now_us - before_us
            self.slowest = max(self.slowest, (took_us, getattr(what, "__name__", "")))
            assert took_us < MAX_CALL_US, (what, took_us)
            assert time.monotonic() - before_s < MAX_CALL_S, what

    def step(self):
        """Do one random thing."""
        while len(self.pieces) < 2:
            self.call(self.alloc)
        self.call(self.rng.choice(self.steps))

    # --- what was submitted -----------------------------------------------------------------------------------------
    def submit(self, queue, reads, piece, start, end, apply, work):
        """Let `work` submit to a queue what reads some pieces and writes a range of one."""
        operation = Operation(piece, start, end, apply)
        used = {id(one): one for one in (*reads, piece)}.values()
        for one in used:
            for point in one.points:
                queue.wait_for(point)
        self.operations.append(operation)
        operation.point = work()
        for one in used:
            one.points = [point for point in one.points if point.timeline is not operation.point.timeline]
            one.points.append(operation.point)

    def take_over(self):
        """Take over what is done, in the order of submission. Nothing runs any more."""
        for one in self.operations:
            if one.point is not None and one.point.done:
                one.apply()
            else:
                one.piece.sure[one.start : one.end] = False
        self.operations.clear()
        for piece in self.pieces:
            piece.points.clear()

    def settle(self):
        """Wait until nothing runs, and take it over."""
        for queue in self.card.queues:
            queue.idle(IDLE_S)
        self.take_over()

    # --- picking ----------------------------------------------------------------------------------------------------
    def pick(self, size_bytes=1):
        return self.rng.choice([piece for piece in self.pieces if len(piece.twin) >= size_bytes])

    def span(self, most, unit=1):
        size = self.rng.randrange(1, most // unit + 1) * unit
        return self.rng.randrange(0, most - size + 1, unit), size

    def copy_queue(self):
        return self.rng.choice([queue for queue in self.card.queues if hasattr(queue, "upload")])

    def compute_queue(self):
        return self.rng.choice([queue for queue in self.card.queues if not hasattr(queue, "upload")])

    # --- memory -----------------------------------------------------------------------------------------------------
    def alloc(self):
        if len(self.pieces) >= MAX_PIECES:
            return self.free()
        size = self.rng.choice(SIZES)
        buffer = self.card.alloc(size, self.rng.choice(("vram", "host")), visible=self.rng.random() < 0.3)
        self.pieces.append(Piece(buffer, np.zeros(size, np.uint8), np.zeros(size, bool)))
        return None

    def free(self):
        if len(self.pieces) < 2:
            return
        piece = self.pieces.pop(self.rng.randrange(len(self.pieces)))
        for point in piece.points:
            point.wait(IDLE_S)
        piece.buffer.free()

    def pin(self):
        pages = np.zeros(3 * 4096, np.uint8)
        at = -pages.ctypes.data % 4096
        mine = pages[at : at + 8192]
        self.pinned.append(pages)
        buffer = self.card.pin(mine)
        try:
            self.card.copy.fill(buffer, 0x01020304).wait(IDLE_S)
            assert (mine.view("<u4") == 0x01020304).all()
        finally:
            # a copy whose wait was interrupted may still run
            self.card.copy.idle(IDLE_S)
            buffer.free()

    # --- copies -----------------------------------------------------------------------------------------------------
    def upload(self):
        piece, queue = self.pick(), self.copy_queue()
        at, size = self.span(len(piece.twin))
        data = self.rng.randbytes(size)

        def apply():
            piece.twin[at : at + size] = np.frombuffer(data, np.uint8)
            piece.sure[at : at + size] = True

        self.submit(queue, (), piece, at, at + size, apply, lambda: queue.upload(piece.buffer, data, at))

    def copy(self):
        # within one buffer, the ranges may overlap
        source, target = self.pick(), self.pick()
        at, size = self.span(min(len(source.twin), len(target.twin)))
        to, queue = self.rng.randrange(len(target.twin) - size + 1), self.copy_queue()
        at = self.rng.randrange(len(source.twin) - size + 1)

        def work():
            return queue.copy_buffer(target.buffer, source.buffer, size, target_offset=to, source_offset=at)

        self.submit(queue, (source,), target, to, to + size, self._copied(source, at, target, to, size), work)

    def _copied(self, source, at, target, to, size):
        def apply():
            target.twin[to : to + size] = source.twin[at : at + size].copy()
            target.sure[to : to + size] = source.sure[at : at + size].copy()

        return apply

    def fill(self):
        piece, queue, value = self.pick(), self.copy_queue(), self.rng.getrandbits(32)
        at, size = self.span(len(piece.twin), 4)

        def apply():
            piece.twin[at : at + size].view("<u4")[:] = value
            piece.sure[at : at + size] = True

        self.submit(queue, (), piece, at, at + size, apply, lambda: queue.fill(piece.buffer, value, at, size))

    def kept_copy(self):
        source, target = self.rng.sample(self.pieces, 2)
        size = min(len(source.twin), len(target.twin)) // 2
        queue = self.copy_queue()
        stream = queue.stream()
        stream.copy(target.buffer.gpu_va, source.buffer.gpu_va + size, size)
        self._keep(queue, stream, (source,), target, 0, size, self._copied(source, size, target, 0, size))

    def _keep(self, queue, stream, reads, target, start, end, apply):
        kept = queue.keep(stream)
        try:
            for _ in range(self.rng.randrange(1, 4)):
                self.submit(queue, reads, target, start, end, apply, kept.submit)
        finally:
            # nothing may use its memory any more
            queue.idle(IDLE_S)
            kept.free()

    def check(self):
        """Compare all that is certain of a piece."""
        self.settle()
        piece, queue = self.pick(), self.copy_queue()
        got = np.frombuffer(queue.download(piece.buffer), np.uint8)
        self.checked_bytes += int(piece.sure.sum())
        wrong = np.flatnonzero((got != piece.twin) & piece.sure)
        assert not len(wrong), f"{len(wrong)} of {len(got)} bytes are wrong, the first at {wrong[0]}"

    # --- kernels ----------------------------------------------------------------------------------------------------
    def _dispatch(self, name, grid, args, reads, target, start, end, apply):
        if self.kernels is None:
            self.kernels = self._load(self.card)
        queue = self.compute_queue()
        stream = queue.stream()
        stream.dispatch(self.kernels[name], grid, BLOCK, args)
        self.submit(queue, reads, target, start, end, apply, lambda: queue.submit(stream))

    def add(self):
        a, b, c = self.pick(), self.pick(), self.pick()
        n = self.rng.randrange(1, min(len(one.twin) for one in (a, b, c)) // 4 + 1)

        def apply():
            words = [one.twin[: 4 * n].view("<u4") for one in (a, b)]
            sure = a.sure[: 4 * n].reshape(n, 4).all(axis=1) & b.sure[: 4 * n].reshape(n, 4).all(axis=1)
            c.twin[: 4 * n].view("<u4")[:] = words[0] + words[1]
            c.sure[: 4 * n] = np.repeat(sure, 4)

        args = [one.buffer for one in (a, b, c)] + [n]
        self._dispatch("add", -(-n // BLOCK), args, (a, b), c, 0, 4 * n, apply)

    def counts(self):
        piece, groups = self.pick(), self.rng.randrange(1, 6)
        self._dispatch("counts", groups, [piece.buffer], (), piece, 0, 4, self._counted(piece, groups))

    def _counted(self, piece, groups):
        def apply():
            piece.twin[:4].view("<u4")[0] += np.uint32(groups * BLOCK)
            piece.sure[:4] = piece.sure[:4].all()

        return apply

    def reverse(self):
        piece = self.pick(4 * BLOCK)

        def apply():
            piece.twin[: 4 * BLOCK].view("<u4")[:] = piece.twin[: 4 * BLOCK].view("<u4")[::-1].copy()
            sure = piece.sure[: 4 * BLOCK].reshape(BLOCK, 4)
            sure[:] = sure[::-1].copy()

        self._dispatch("reverse", 1, [piece.buffer], (), piece, 0, 4 * BLOCK, apply)

    def local(self):
        piece = self.pick(4 * BLOCK)

        def apply():
            piece.twin[: 4 * BLOCK].view("<u4")[:] = np.arange(1000, 1000 + BLOCK)
            piece.sure[: 4 * BLOCK] = True

        self._dispatch("local", 1, [piece.buffer, self.rng.randrange(64)], (), piece, 0, 4 * BLOCK, apply)

    def kept_launch(self):
        if self.kernels is None:
            self.kernels = self._load(self.card)
        piece, groups, queue = self.pick(), self.rng.randrange(1, 4), self.compute_queue()
        stream = queue.stream()
        stream.dispatch(self.kernels["counts"], groups, BLOCK, [piece.buffer])
        self._keep(queue, stream, (), piece, 0, 4, self._counted(piece, groups))

    # --- queues, and what the card says -----------------------------------------------------------------------------
    def wait(self):
        """Wait for some operation, sometimes not long enough."""
        points = [one.point for one in self.operations if one.point is not None]
        if not points:
            return
        if self.rng.random() < 0.5:
            self.rng.choice(points).wait(IDLE_S)
            return
        try:
            self.rng.choice(points).wait(self.rng.choice(SHORT_S))
        except DeviceTimeout as error:
            check_error(error, has_cause=True)

    def new_queue(self):
        if len(self.card.queues) < 5:
            make = self.card.new_compute_queue if self._load is not None and self.rng.random() < 0.4 else None
            queue = make() if make else self.card.new_copy_queue(self.rng.randrange(2))
            queue.submit(queue.stream()).wait(IDLE_S)

    def close_queue(self):
        if len(self.card.queues) > 2:
            self.settle()
            self.rng.choice(self.card.queues[2:]).close()

    def look(self):
        self.card.look()
        assert self.card.stats().queues
        assert self.card.info.chip
        self.report()

    def report(self):
        """Look at the post-mortem; again, where that is interrupted."""
        while True:
            try:
                report = self.card.report()
            except KeyboardInterrupt:
                continue
            assert str(report)
            assert json.dumps(report.as_dict())
            return

    # --- trouble ----------------------------------------------------------------------------------------------------
    def recover(self, rungs, before, heal):
        """Reset the card after an error, `rungs` from the first on; `before()` may let something happen to that.
        `heal()` ends what was injected. Return whether the card works again.

        Raises what is no error of ours.
        """
        self.report()
        for count in range(MAX_RESETS):
            if count == MAX_RESETS - 1:
                heal()
            elif count == 0:
                before()
            try:
                tried = self.call(self.card.reset, self.rng.choice(rungs) if count < 2 else rungs[-1])
            except LOST:
                return False
            except KeyboardInterrupt:
                continue
            except RingupError:
                assert count < MAX_RESETS - 1, "a reset without any fault failed"
                self.report()
                continue
            if tried[-1].name == "card":
                # all memory is gone
                self._begin()
            else:
                self.take_over()
            return True
        raise AssertionError("no reset helped")

    def works(self):
        """Check that the card copies, and computes where it does."""
        with self.card.alloc(4096) as cell:
            data = self.rng.randbytes(4096)
            self.card.copy.upload(cell, data).wait()
            assert self.card.copy.download(cell) == data
            if self._load is not None:
                kernels = self._load(self.card)
                self.card.copy.fill(cell, 0).wait()
                stream = self.card.compute.stream()
                stream.dispatch(kernels["counts"], 2, 32, [cell])
                self.card.compute.submit(stream).wait()
                assert self.card.copy.download_array(cell, "u4", 1)[0] == 64
