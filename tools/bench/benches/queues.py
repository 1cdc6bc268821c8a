"""Building and submitting work over plain memory: no card and no model of one, only the host's work; compared with
tinygrad in the same run.
"""

from __future__ import annotations

from collections.abc import Iterator

from ringup.queues.amd.objects import code_object
from ringup.queues.amd.pm4_stream import ComputeStream, Pm4Commands
from ringup.queues.amd.program import Program, Scratch
from ringup.queues.amd.sdma_stream import CopyStream, SdmaCommands
from ringup.queues.arena import Arena
from ringup.queues.commands import Commands
from ringup.queues.kept import Kept
from ringup.queues.queue import Owner, Queue, QueueParts
from ringup.queues.ring import Ring
from ringup.queues.timeline import Failed, Timeline
from ringup.tools.bench.bench import Bench
from ringup.tools.bench.benches.shader import compiled
from ringup.tools.bench.figure import Figure, Goal
from ringup.tools.bench.plain_memory import (
    BLOCK,
    GRID,
    KEPT_NOTE,
    LAUNCH_NOTE,
    LONG,
    Place,
    Row,
    in_turns,
    kept_memory,
    refuse_write,
)

GC, SDMA, VMID, ENGINES, WAVES = (11, 0, 0), (6, 0, 0), 8, 6, 3072  # a navi31
QUEUE_VA = 0x8_0000
RING_BYTES, ARENA_BYTES = 64 << 10, 1 << 20
SOURCE = """
__kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void add(__global float *out, __global const float *a, __global const float *b, unsigned n) {
  unsigned i = __builtin_amdgcn_workgroup_id_x() * 256 + __builtin_amdgcn_workitem_id_x();
  if (i < n) out[i] = a[i] + b[i];
}
"""
NUMBER_BYTE = 24  # the byte of `n` in the kernel's arguments
BYTES_NOTE = "what the card reads for it, without kernel arguments"
SUBMIT_NOTE = "copied into the ring, write pointer and doorbell stored"
ORDER_NOTE = "ours: dispatches of a stream may run at once; peer: each waits for the one before and for caches"
ROWS = (
    Row("append a dispatch, arguments packed", "us", "append_us", Goal("ratio", 5), ORDER_NOTE),
    Row("append a dispatch, stream", "bytes", "append_bytes", Goal("ratio", 1), ORDER_NOTE),
    Row("append a dispatch and a barrier", "us", "ordered_us", Goal("ratio", 5), "", "append_us"),
    Row(
        "append a dispatch and a barrier, stream",
        "bytes",
        "ordered_bytes",
        Goal("ratio", 1),
        BYTES_NOTE,
        "append_bytes",
    ),
    Row("eager launch: wait, dispatch, barrier, signal", "us", "launch_us", Goal("ratio", 5), LAUNCH_NOTE, "launch_us"),
    Row("eager launch, stream", "bytes", "launch_bytes", Goal("ratio", 1), BYTES_NOTE),
    Row("eager launch, built and submitted", "us", "launch_us", None, "", "launch_submit_us"),
    Row("submit a launch", "us", "submit_us", Goal("ratio", 20), SUBMIT_NOTE),
    Row(f"submit {LONG} dispatches", "us", "submit_long_us", Goal("ratio", 20), SUBMIT_NOTE),
    Row("append a copy", "us", "copy_us"),
    Row("append a copy, stream", "bytes", "copy_bytes", Goal("ratio", 1), BYTES_NOTE),
    Row("submit a copy", "us", "copy_submit_us", None, SUBMIT_NOTE),
    Row("patch a kept stream", "us", "patch_us", None, KEPT_NOTE),
    Row("patch and submit a kept stream", "us", "patch_submit_us", Goal("ours", 5), KEPT_NOTE),
)
ARGUMENTS = (Place(0x300_0000), Place(0x100_0000), Place(0x200_0000), 4096)


class Instant:
    """A card that takes no time: published work is done at once."""

    def __init__(self) -> None:
        self.space = object()
        self._owner = Owner("plain memory")
        self._never = Timeline("never", lambda: 0, 0x9_0000, self.space, Failed(RuntimeError("nothing waits here")))
        program = Program(code_object.parse(compiled(SOURCE)), 0x1_0000_0000, lambda: None)
        self._kernel, self._scratch = program.only(), Scratch(WAVES, lambda size_bytes: 0)
        self._pm4, self._sdma = Pm4Commands(GC), SdmaCommands(SDMA, VMID)
        self.compute, self.copies = self._queue(self._pm4, 4), self._queue(self._sdma, 1)
        self.number_byte = NUMBER_BYTE
        self.kept = Kept(self.compute, self.stream(1), kept_memory)

    def _queue(self, commands: Commands, unit_bytes: int) -> Queue:
        word, pointer, bell = (memoryview(bytearray(64)).cast("Q") for _ in range(3))
        ring_view, args_view, indirect_view = (memoryview(bytearray(n)) for n in (RING_BYTES, ARENA_BYTES, ARENA_BYTES))

        def publish(wptr_bytes: int) -> None:
            pointer[0] = wptr_bytes // unit_bytes
            bell[0] = wptr_bytes // unit_bytes
            word[0] = timeline.last

        timeline = Timeline("now", lambda: word[0], 0x100, self.space, Failed(RuntimeError("all is done at once")))
        ring = Ring("ring", RING_BYTES, refuse_write, publish, view=ring_view)
        args, indirect = (
            Arena(0x500_0000, ARENA_BYTES, refuse_write, args_view),
            Arena(0x600_0000, ARENA_BYTES, refuse_write, indirect_view),
        )
        return Queue(
            QueueParts(
                name="plain memory",
                commands=commands,
                timeline=timeline,
                ring=ring,
                args=args,
                indirect=indirect,
                owner=self._owner,
            )
        )

    def stream(self, dispatches: int, *, ordered: bool = False) -> ComputeStream:
        """Return a stream of dispatches that may run at once, or one after the other."""
        stream = ComputeStream(self._pm4, self._owner, self._scratch, ENGINES, QUEUE_VA)
        for _ in range(dispatches):
            stream.dispatch(self._kernel, GRID, BLOCK, ARGUMENTS)
            if ordered:
                stream.barrier()
        return stream

    def copy(self, copies: int) -> CopyStream:
        """Return a stream of copies."""
        stream = CopyStream(self._sdma, self._owner)
        for _ in range(copies):
            stream.copy(0x200_0000, 0x100_0000, 4096)
        return stream

    def launch(self) -> None:
        """Wait for another queue, start a kernel, order it, signal: built and submitted."""
        stream = ComputeStream(self._pm4, self._owner, self._scratch, ENGINES, QUEUE_VA)
        stream.wait_for(self._never.next())
        stream.dispatch(self._kernel, GRID, BLOCK, ARGUMENTS)
        stream.barrier()
        self.compute.submit(stream)


def measure(bench: Bench) -> Iterator[Figure]:
    """Time both, a round of each in turn."""
    yield from in_turns(bench, "queues", ROWS, Instant)
