"""Run a program for NVIDIA's shader cores without a card: arrays are its buffers.

A program gets its arguments in constant bank 0. CUDA's compilers put them at byte 0x160 on these chips, with the size
of a group at byte 0 and that of the grid at byte 12; Mesa's NAK leaves the layout to its caller.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np

from ringup.errors import GuestError
from ringup.silicon.nv.compute.launch import NOTHING, Bank, Launch, Pool, Run, Windows
from ringup.silicon.shader.common.state import Memory
from ringup.silicon.shader.workbench_memory import Arena

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Value = NDArray[np.generic] | np.generic | bytes
    Size = tuple[int, int, int]

PARAMETERS = 0x160
CODE, CONSTANTS, BUFFERS, BUFFER_STEP = 1 << 32, 3 << 31, 1 << 33, 1 << 32
SHARED_WINDOW, LOCAL_WINDOW = 0xE << 40, 0xF << 40
SLICE = 100_000


class Located(Protocol):
    """A warp: its group and number, and where it runs."""

    @property
    def name(self) -> tuple[int, int, int, int]:
        """The group's x, y, z and the warp's number in it."""
        ...

    @property
    def pc(self) -> int:
        """The gpu_va of the next instruction, or about that."""
        ...


class Launched(Run, Protocol):
    """A launch under way, with its warps."""

    @property
    def warps(self) -> Sequence[Located]:
        """The warps that were started and have not ended."""
        ...


R_co = TypeVar("R_co", bound=Launched, covariant=True)


class Engine(Protocol[R_co]):
    """The cores of a chip: `interpreter.engine.Interpreter`."""

    @property
    def target(self) -> str:
        """The chip's architecture, such as `sm_86`."""
        ...

    def start(self, launch: Launch, memory: Memory) -> R_co:
        """Begin a launch."""
        ...


def constants(arguments: Sequence[Value], groups: Size, group_size: Size, parameters_at: int) -> bytes:
    """Return constant bank 0. Each argument is aligned to its size; arrays are addresses of 8 bytes."""
    data = bytearray(parameters_at)
    if parameters_at >= 24:
        struct.pack_into("<6I", data, 0, *group_size, *groups)
    for number, one in enumerate(arguments):
        if isinstance(one, np.ndarray):
            part = (BUFFERS + number * BUFFER_STEP).to_bytes(8, "little")
        else:
            part = one if isinstance(one, bytes) else one.tobytes()
        align = min(len(part) & -len(part), 16) if part else 1
        data += bytes(-len(data) % align) + part
    return bytes(data) + bytes(-len(data) % 256)


def start(
    engine: Engine[R_co],
    code: bytes,
    arguments: Sequence[Value],
    *,
    groups: Size,
    group_size: Size,
    registers: int,
    shared_bytes: int = 0,
    local_bytes: int = 0,
    barriers: int = 1,
    parameters_at: int = PARAMETERS,
    headers: Pool = NOTHING,
    samplers: Pool = NOTHING,
) -> R_co:
    """Begin a program: `code` are its words of 16 bytes, the entry first; `run.step` continues it.

    Arrays among the arguments become buffers and are passed by address; NumPy numbers and bytes are passed as they are.
    `registers`, `shared_bytes`, `local_bytes` and `barriers` are what a launch reserves for a thread or a group.
    `headers` and `samplers` are tables for the texture units, at the address of a buffer.
    """
    arena = Arena()
    arena.place(CODE, np.frombuffer(code, np.uint8).copy(), writable=False, executable=True, name="the program")
    bank = np.frombuffer(constants(arguments, groups, group_size, parameters_at), np.uint8).copy()
    arena.place(CONSTANTS, bank, writable=False, name="constant bank 0")
    for number, one in enumerate(arguments):
        if isinstance(one, np.ndarray):
            arena.place(BUFFERS + number * BUFFER_STEP, one, name=f"the buffer of argument {number}")
    launch = Launch(
        descriptor=0, version=(0, 0), program=CODE, grid=groups, block=group_size, registers=registers, barriers=barriers,
        shared_bytes=shared_bytes, local_low_bytes=local_bytes, local_high_bytes=0,
        constants=(Bank(CONSTANTS, bank.size), *(None,) * 7), sass_version=int(engine.target[3:]), linked_samplers=False,
        sequential=False, windows=Windows(shared=SHARED_WINDOW, local=LOCAL_WINDOW, headers=headers, samplers=samplers),
    )  # fmt: skip
    return engine.start(launch, arena)


def run(
    engine: Engine[R_co],
    code: bytes,
    arguments: Sequence[Value],
    *,
    groups: Size,
    group_size: Size,
    registers: int,
    shared_bytes: int = 0,
    local_bytes: int = 0,
    barriers: int = 1,
    parameters_at: int = PARAMETERS,
    headers: Pool = NOTHING,
    samplers: Pool = NOTHING,
    limit: int = 1_000_000_000,
) -> R_co:
    """Run a program to its end; arguments as in `start`.

    Raises `GuestError` if it breaks a rule, if its warps wait forever, or after `limit` warp-instructions.
    """
    under_way = start(
        engine,
        code,
        arguments,
        groups=groups,
        group_size=group_size,
        registers=registers,
        shared_bytes=shared_bytes,
        local_bytes=local_bytes,
        barriers=barriers,
        parameters_at=parameters_at,
        headers=headers,
        samplers=samplers,
    )
    before = -1
    while not under_way.step(SLICE):
        if under_way.violations:
            raise GuestError(f"the program: {under_way.violations[0]}")
        if under_way.instructions > limit or under_way.instructions == before:
            where = "; ".join(f"warp {one.name} at {one.pc:#x}" for one in under_way.warps[:4])
            under_way.kill()
            what = f"has not ended after {limit} warp-instructions" if before >= limit else "waits forever"
            raise GuestError(f"the program {what}: {where}")
        before = under_way.instructions
    return under_way
