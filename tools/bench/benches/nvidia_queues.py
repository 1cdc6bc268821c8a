"""Building and submitting work of an NVIDIA card over plain memory: no card and no model of one, only the host's work;
compared with tinygrad in the same run.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial

from ringup.autogen.nv.classes import AMPERE_COMPUTE_B
from ringup.drivers.nv.submission.queue_memory import ENTRIES
from ringup.drivers.submission.queue_memory import ARGS_BYTES, INDIRECT_BYTES, RING_BYTES
from ringup.queues.arena import Arena
from ringup.queues.nv.compute_stream import ComputeCommands, ComputeStream
from ringup.queues.nv.copy_stream import CopyCommands, CopyStream
from ringup.queues.nv.cubin import Cubin
from ringup.queues.nv.gpfifo import ENTRY_BYTES, LENGTH_SHIFT, Gpfifo, GpfifoKept, GpfifoQueue
from ringup.queues.nv.program import LocalMemory, Program
from ringup.queues.nv.rows import row_of
from ringup.queues.queue import Owner, QueueParts
from ringup.queues.ring import Ring
from ringup.queues.timeline import Failed, Timeline
from ringup.tools.bench.bench import Bench
from ringup.tools.bench.figure import Figure, Goal
from ringup.tools.bench.metal import programs
from ringup.tools.bench.plain_memory import (
    BLOCK,
    GRID,
    KEPT_NOTE,
    LAUNCH_NOTE,
    LONG,
    ROUNDS,
    TIMES,
    Place,
    Row,
    in_turns,
    kept_memory,
    refuse_write,
)
from ringup.tools.bench.timing import cpu_us, median
from ringup.tools.common.sass_text import cubin_of

# a GA102: its class, its TPCs
TARGET, ROW, TPCS = "sm_86", row_of(AMPERE_COMPUTE_B), 42
RING_VA, ARGS_VA, INDIRECT_VA, CODE_VA = 0x400_0000, 0x500_0000, 0x600_0000, 0x1_0000_0000
# the argument that is patched: n of programs.ADD
NUMBER = 3
ARGUMENTS = (Place(0x300_0000), Place(0x100_0000), Place(0x200_0000), 4096)
BYTES_NOTE = "what the host fetches for it, without descriptors and arguments"
STORED_NOTE = "memory that a launch takes for its descriptor, constant bank 0 and arguments"
SUBMIT_NOTE = (
    "ours: space is checked, a new value is signalled, copied into the ring; peer: the same value again, copied into a "
    "page of commands that wraps unchecked; both: an entry, its index, the doorbell"
)
ORDER_NOTE = (
    "ours: launches of a stream may run at once; peer: a descriptor starts the next one, which waits for its end"
)
STORES_NOTE = (
    "what Python takes for the stores of one submission of 64 bytes: no space is checked, nothing is signalled; peer: "
    "its submission"
)
SUBMIT, STORES = "submit a launch", "submit a launch: its four stores alone"
ROWS = (
    Row("append a launch, arguments packed", "us", "append_us", Goal("ratio", 20), ORDER_NOTE),
    Row("append a launch, stream", "bytes", "append_bytes", None, ORDER_NOTE),
    Row("append a launch, descriptor and arguments", "bytes", "argument_bytes", Goal("ratio", 1), STORED_NOTE),
    Row("append a launch and a barrier", "us", "ordered_us", Goal("ratio", 20), "", "append_us"),
    Row("append a launch and a barrier, stream", "bytes", "ordered_bytes", None, BYTES_NOTE, "append_bytes"),
    Row("eager launch: wait, launch, barrier, signal", "us", "launch_us", None, LAUNCH_NOTE),
    Row("eager launch, stream", "bytes", "launch_bytes", None, BYTES_NOTE),
    Row("eager launch, built and submitted", "us", "launch_us", Goal("ratio", 7), "", "launch_submit_us"),
    Row(SUBMIT, "us", "submit_us", Goal("ratio", 4.5), SUBMIT_NOTE),
    Row(f"submit {LONG} launches", "us", "submit_long_us", None, SUBMIT_NOTE),
    Row("append a copy", "us", "copy_us"),
    Row("append a copy, stream", "bytes", "copy_bytes", Goal("ratio", 1), BYTES_NOTE),
    Row("submit a copy", "us", "copy_submit_us", None, SUBMIT_NOTE),
    Row("patch a kept stream", "us", "patch_us", None, KEPT_NOTE),
    Row("patch and submit a kept stream", "us", "patch_submit_us", Goal("ratio", 1.5), KEPT_NOTE),
)


def cubin() -> bytes:
    """Return the kernel's cubin."""
    return cubin_of(programs.ADD, TARGET, "nvidia-queues")


class Instant:
    """A card that takes no time: published work is done at once."""

    def __init__(self, code: bytes) -> None:
        self.space = object()
        self._owner = Owner("plain memory")
        self._never = Timeline("never", lambda: 0, 0x9_0000, self.space, Failed(RuntimeError("nothing waits here")))
        program = Program(Cubin(code, "nvidia-queues"), CODE_VA, lambda: None, self._owner)
        self.kernel = program.only()
        self._local = LocalMemory(ROW, TPCS, lambda size_bytes: 0)
        self._compute, self._copy = ComputeCommands(ROW), CopyCommands(ROW)
        self.compute, self.copies = self._queue(self._compute), self._queue(self._copy)
        stream = self.stream(0)
        self.number_byte = stream.dispatch(self.kernel, GRID, BLOCK, ARGUMENTS) + self.kernel.arg_offset(NUMBER)
        self.kept = GpfifoKept(self.compute, stream, kept_memory)

    def _queue(self, commands: ComputeCommands | CopyCommands) -> GpfifoQueue:
        put, bell = (memoryview(bytearray(64)).cast("I") for _ in range(2))
        ring_view, args_view, indirect_view, entries_view = (
            memoryview(bytearray(n)) for n in (RING_BYTES, ARGS_BYTES, INDIRECT_BYTES, ENTRY_BYTES * ENTRIES)
        )

        def done() -> int:
            return timeline.last

        timeline = Timeline("now", done, 0x100, self.space, Failed(RuntimeError("all is done at once")))
        doorbell = partial(bell.__setitem__, 0, 1)
        gpfifo = Gpfifo(RING_VA, RING_BYTES, ENTRIES, refuse_write, put, doorbell, view=entries_view)
        parts = QueueParts(
            name="plain memory",
            commands=commands,
            timeline=timeline,
            ring=Ring("ring", RING_BYTES, refuse_write, gpfifo.publish, view=ring_view),
            args=Arena(ARGS_VA, ARGS_BYTES, refuse_write, args_view),
            indirect=Arena(INDIRECT_VA, INDIRECT_BYTES, refuse_write, indirect_view),
            owner=self._owner,
        )
        return GpfifoQueue(parts, gpfifo)

    def stream(self, launches: int, *, ordered: bool = False) -> ComputeStream:
        """Return a stream of launches that may run at once, or one after the other."""
        stream = ComputeStream(self._compute, self._owner, self._local)
        for _ in range(launches):
            stream.dispatch(self.kernel, GRID, BLOCK, ARGUMENTS)
            if ordered:
                stream.barrier()
        return stream

    def copy(self, copies: int) -> CopyStream:
        """Return a stream of copies."""
        stream = CopyStream(self._copy, self._owner)
        for _ in range(copies):
            stream.copy(0x200_0000, 0x100_0000, 4096)
        return stream

    def launch(self) -> None:
        """Wait for another queue, start a kernel, order it, signal: built and submitted."""
        stream = ComputeStream(self._compute, self._owner, self._local)
        stream.wait_for(self._never.next())
        stream.dispatch(self.kernel, GRID, BLOCK, ARGUMENTS)
        stream.barrier()
        self.compute.submit(stream)


def measure(bench: Bench) -> Iterator[Figure]:
    """Time both, a round of each in turn."""
    code = cubin()
    for figure in in_turns(bench, "nvidia_queues", ROWS, lambda: Instant(code), cubin=code.hex()):
        yield figure
        if figure.name == SUBMIT:
            yield Figure(STORES, "us", stores_us(TIMES), figure.peer, note=STORES_NOTE)


def stores_us(times: int) -> float:
    """Return the CPU microseconds for a submission's stores: commands, an entry, its index, the doorbell."""
    ring, words = memoryview(bytearray(RING_BYTES)), memoryview(bytearray(ENTRY_BYTES * ENTRIES)).cast("Q")
    put, bell = (memoryview(bytearray(64)).cast("I") for _ in range(2))
    commands, indices = bytes(64), itertools.cycle(range(RING_BYTES // 64)).__next__

    def stores() -> None:
        index = indices()
        at = 64 * index
        ring[at : at + 64] = commands
        words[index] = RING_VA + at | 64 << LENGTH_SHIFT
        put[0] = index
        bell[0] = 1

    return median([cpu_us(stores, times) for _ in range(ROUNDS)])
