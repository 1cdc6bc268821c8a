"""Streams of a compute queue: launches, barriers, stamps and small stores.

Launches of a stream may run at the same time; `barrier` orders them. The start of a stream invalidates caches: so it
sees what the host computer, the copy engines and other queues stored; the stream before has ended by then, because the
signal at its end holds the channel. A launch's descriptor and its constant bank 0 are among the stream's arguments.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from ringup.errors import NotSupported
from ringup.queues.dword_stream import DwordStream
from ringup.queues.dwords import to_bytes
from ringup.queues.nv.compute import ComputeEngine
from ringup.queues.nv.launch import Launch
from ringup.queues.nv.program import LoadedKernel, LocalBlock, LocalMemory, Program, kernel_of
from ringup.queues.nv.qmd import QMD_ROWS, image
from ringup.queues.nv.rows import GenerationRow, host_methods
from ringup.queues.nv.semaphores import HostCommands
from ringup.queues.queue import Form, Owner
from ringup.queues.triple import triple

WORD, QUAD = struct.Struct("<I"), struct.Struct("<Q")
# SEND_PCAS_A: the byte of the descriptor's address in what sends it, and how many low bits are not stored
SEND_ADDRESS_BYTE, SEND_SHIFT = 4, 8


class _Prepared(NamedTuple):
    """What a launch stores. The `..._at` are bytes in `data`.

    `bank_value`: what belongs at `address_at`, when bank 0's address (its low bits not stored) is added.
    """

    data: bytes
    params_at: int
    address_at: int
    bank_value: int
    local_bytes: int


class ComputeCommands(HostCommands):
    """The packets of a compute queue that the queue itself needs."""

    kind = "nv compute"

    def __init__(self, row: GenerationRow, *, channel_class: int | None = None, interrupts: bool = True) -> None:
        """`channel_class`: of the channel, where it is not the row's own."""
        super().__init__(host_methods(channel_class or row.channel_class), interrupts=interrupts)
        self.row, self.engine = row, ComputeEngine(row)
        self.begin = to_bytes(self.engine.invalidate())
        self.barrier = to_bytes(self.engine.barrier())
        self.send = to_bytes(self.engine.send(0))
        self.bank_shift = QMD_ROWS[row.qmd].bank_shift
        self.forms = Form(WORD.pack_into, SEND_SHIFT), Form(QUAD.pack_into, self.bank_shift)

    def setup(self, engine: int = 0) -> bytes:
        """Return what a new channel runs first. `engine`: as the kernel driver names the class's engine, else 0."""
        return to_bytes(self.engine.setup(engine))


class ComputeStream(DwordStream):
    """Commands of a compute queue. The queue's memory for arguments has to lie below 2**40."""

    def __init__(self, commands: ComputeCommands, owner: Owner, local: LocalMemory) -> None:
        super().__init__(commands, owner)
        self.engine = commands.engine
        self.forms = commands.forms
        self._commands, self._send, self._barrier, self._local = commands, commands.send, commands.barrier, local
        self._bank_shift, self._class = commands.bank_shift, commands.row.compute_class
        # the local memory that this stream's launches use
        self._local_block: LocalBlock | None = None
        self.dispatches = 0

    def dispatch(
        self,
        program: Program | LoadedKernel,
        grid: int | tuple[int, ...],
        block: int | tuple[int, ...],
        args: Sequence[Any] = (),
        *,
        dynamic_lds_bytes: int = 0,
    ) -> int:
        """Start `grid` blocks (one to three dimensions) of `block` threads with `args`.

        `dynamic_lds_bytes`: shared memory of a block behind the kernel's own. A program with one kernel may be given
        instead of the kernel. Raises a `ValueError` or `TypeError` that names the limit or the argument, and leaves
        the stream as it was. Arguments are copied now; buffers among them must live until the work is done. Returns
        the byte where these arguments begin among the stream's arguments: `Kept.patch_args` needs it.
        """
        kernel = program if type(program) is LoadedKernel else kernel_of(program)
        try:
            prepared = kernel.prepared.get((grid, block, dynamic_lds_bytes, self._class))
        # a list cannot be a key
        except TypeError:
            grid, block, prepared = triple(grid, "the grid"), triple(block, "the block"), None
        if prepared is None:
            launch = Launch.of(grid, block, dynamic_lds_bytes)
            prepared = self._prepare(kernel, launch, (grid, block, dynamic_lds_bytes, self._class))
        memory = self.args
        at = len(memory)
        memory += prepared.data
        try:
            kernel.packer.pack_into(memory, at + prepared.params_at, args)
        except BaseException:
            del memory[at:]
            raise
        after = self.around(self, kernel.name) if self.around is not None else None
        if prepared.local_bytes:
            self._use_local(prepared.local_bytes)
        body = self.body
        self.fixups.append((len(body) + SEND_ADDRESS_BYTE, at >> SEND_SHIFT))
        self.arg_fixups.append((at + prepared.address_at, prepared.bank_value + (at >> self._bank_shift)))
        body += self._send
        self.dispatches += 1
        if after is not None:
            after()
        return at + prepared.params_at

    def dispatch_items(
        self,
        program: Program | LoadedKernel,
        items: int | tuple[int, ...],
        block: int | tuple[int, ...],
        args: Sequence[Any] = (),
        *,
        dynamic_lds_bytes: int = 0,
    ) -> int:
        """Start `items` threads in blocks of `block`. Raises `NotSupported` where they do not fill the blocks. All else
        is as in `dispatch`.
        """
        launch = Launch.of_items(items, block, dynamic_lds_bytes)
        return self.dispatch(program, launch.grid, launch.block, args, dynamic_lds_bytes=dynamic_lds_bytes)

    def _prepare(self, kernel: LoadedKernel, launch: Launch, key: tuple[Any, ...]) -> _Prepared:
        row, code = self._commands.row, kernel.kernel
        kernel.check_owner(self.owner)
        kernel.program.code.check(row)
        launch.check(code, row)
        if code.externs:
            raise NotSupported(
                f"{code.name} calls {', '.join(code.externs)}, functions of NVIDIA's run time, which ringup does not"
                " offer: compile it without"
            )
        made = image(row, kernel, launch)
        # bank 0 lies behind the descriptor: its address is that of the data plus this
        value = made.bank_value + (made.bank_at >> self._bank_shift)
        prepared = _Prepared(made.data, made.params_at, made.address_at, value, code.local_bytes)
        kernel.keep_prepared(key, prepared)
        return prepared

    def _use_local(self, thread_bytes: int) -> None:
        """Let later launches use local memory of at least `thread_bytes` for each thread."""
        block = self._local.block(thread_bytes)
        if block is not self._local_block:
            # ORDER: launches that run use the old block
            if self.dispatches:
                self.body += self._barrier
            self.append(self.engine.local_memory(block))
            self._local_block = block

    def barrier(self) -> None:
        """Make later launches wait for all earlier ones and see what they stored."""
        self.body += self._barrier

    def store(self, gpu_va: int, *dwords: int) -> None:
        """Store dwords at `gpu_va` (4-byte aligned). It does not wait for earlier launches."""
        if gpu_va % 4:
            raise ValueError(f"dwords are stored at a multiple of 4, not at {gpu_va:#x}")
        self.append(self.engine.upload(gpu_va, to_bytes(dwords)))

    def upload(self, gpu_va: int, data: bytes) -> None:
        """Store 1 to 65536 bytes at `gpu_va`. It does not wait for earlier launches."""
        self.append(self.engine.upload(gpu_va, bytes(data)))

    def stamp(self, gpu_va: int, *, after_all: bool = True) -> None:
        """Store 16 bytes at `gpu_va` (16-byte aligned) when all earlier work has ended, or at once: zero, and the
        card's clock in ns from byte 8 on.
        """
        self.append(self._commands.stamp(gpu_va, after_all=after_all))
