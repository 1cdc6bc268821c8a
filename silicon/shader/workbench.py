"""Run a kernel on the virtual cores alone: without card, driver or queue. Memory is the caller's arrays.

This module sets up what a command processor and a runtime would (kernel arguments, dispatch packet, user registers,
scratch), as a code object's descriptor requires. Source: LLVM AMDGPUUsage, "Kernel Dispatch", "Initial Kernel Execution
State"; hsa.h, `hsa_kernel_dispatch_packet_t`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringup.errors import GuestError, WrongTarget
from ringup.silicon.shader.common.state import Dispatch, Engine, Run, WaveState
from ringup.silicon.shader.common.whereabouts import whereabouts
from ringup.silicon.shader.program import USER_REGISTERS, CodeObject, Kernel
from ringup.silicon.shader.workbench_arguments import Size, Value, kernel_arguments, packet, queue_object
from ringup.silicon.shader.workbench_memory import Arena

Argument = NDArray[Any] | Value

CODE, KERNARG, PACKET, QUEUE, SCRATCH, BUFFERS = (
    0x10_0000_0000,
    0x20_0000_0000,
    0x30_0000_0000,
    0x38_0000_0000,
    0x40_0000_0000,
    0x7F00_0000_0000,
)
INSTRUCTIONS_A_TICK = 10
# Distance between buffers: so large that an access beyond one does not hit another.
BUFFER_STEP = 1 << 36
SHARED_APERTURE, PRIVATE_APERTURE = 1, 2  # gpu_va >> 48. Source: amdkfd kfd_flat_memory.c, MAKE_LDS_APP_BASE_V9
# Stack of a work-item beyond the known size; HIP's default, hipLimitStackSize.
STACK_BYTES = 1024
SLICE = 100_000  # wave-instructions between two checks for violations


class Deaf:
    """The events of a kernel without a card: `common.state.Events`.

    Messages are dropped. The clock counts the instructions of `run`, once that is set.
    """

    def __init__(self) -> None:
        self.run: Run | None = None

    def message(self, code: int, m0: int, wave: WaveState) -> int:
        """Drop a message."""
        return 0

    def realtime(self) -> int:
        """Return the 100 MHz counter: a wave-instruction takes 1 ns, as on the virtual cards."""
        return 0 if self.run is None else self.run.instructions // INSTRUCTIONS_A_TICK


def start(
    engine: Engine,
    program: CodeObject,
    name: str,
    arguments: Sequence[Argument],
    *,
    groups: Size,
    group_size: Size,
    dynamic_lds_bytes: int = 0,
    strict: bool = True,
) -> Run:
    """Begin a kernel; `run.step` continues it.

    Arrays among the arguments become buffers and are passed by address. Integers and floats get the size that the
    kernel's metadata gives; NumPy numbers must have it. `groups` and `group_size` count along x, y, z.
    `dynamic_lds_bytes` are added to the kernel's own LDS. Raises `WrongTarget` for another processor's code,
    `GuestError` for an unknown kernel, and `ValueError` for arguments or groups that do not fit the kernel.
    """
    if program.target not in engine.runs:
        raise WrongTarget(
            f"code for {program.target}: these cores run {', '.join(engine.runs)}; compile it for {engine.target}"
        )
    kernel = program.kernels.get(name)
    if kernel is None:
        raise GuestError(
            f"the code object has no kernel {name!r}; it has {', '.join(sorted(program.kernels)) or 'none'}"
        )
    arena = Arena()
    arena.place_program(program, CODE)
    explicit = [one.name for one in kernel.arguments if not one.kind.startswith("hidden_")]
    values: list[Value] = []
    for number, argument in enumerate(arguments):
        if isinstance(argument, np.ndarray):
            name = explicit[number] if number < len(explicit) else ""
            gpu_va = BUFFERS - number * BUFFER_STEP
            arena.place(gpu_va, argument, name=f"buffer {name!r}" if name else f"the buffer of argument {number}")
            values.append(gpu_va)
        else:
            values.append(argument)
    lds_bytes = kernel.lds_bytes + dynamic_lds_bytes
    hidden = {
        "hidden_private_base": PRIVATE_APERTURE << 16, "hidden_shared_base": SHARED_APERTURE << 16, "hidden_queue_ptr": QUEUE,
    }  # fmt: skip
    kernarg = kernel_arguments(kernel, values, hidden, groups, group_size, dynamic_lds_bytes)
    arena.place(KERNARG, kernarg, writable=False, name="the kernel's arguments")
    sizes = packet(kernel, groups, group_size, lds_bytes, CODE, KERNARG)
    arena.place(PACKET, sizes, writable=False, name="the dispatch packet")
    arena.place(QUEUE, queue_object(SHARED_APERTURE, PRIVATE_APERTURE), writable=False, name="the queue's object")
    lane_bytes = kernel.scratch_bytes + STACK_BYTES * kernel.uses_dynamic_stack
    wave_bytes = -(-lane_bytes * kernel.wave_size // 1024) * 1024
    waves = -(-int(np.prod(group_size)) // kernel.wave_size) * int(np.prod(groups))
    if wave_bytes:
        arena.place(SCRATCH, np.zeros(wave_bytes * waves, np.uint8), name="scratch memory")
    dispatch, events = _dispatch(kernel, groups, group_size, wave_bytes, lds_bytes, kernarg), Deaf()
    events.run = engine.start(dispatch, arena, events, strict=strict)
    return events.run


def run(
    engine: Engine,
    program: CodeObject,
    name: str,
    arguments: Sequence[Argument],
    *,
    groups: Size,
    group_size: Size,
    dynamic_lds_bytes: int = 0,
    strict: bool = True,
    limit: int = 10_000_000_000,
) -> Run:
    """Run a kernel to its end; arguments as in `start`.

    Raises `GuestError` if the kernel breaks a rule, if its waves wait forever, or after `limit` wave-instructions. The
    message says where the waves are.
    """
    under_way = start(
        engine,
        program,
        name,
        arguments,
        groups=groups,
        group_size=group_size,
        dynamic_lds_bytes=dynamic_lds_bytes,
        strict=strict,
    )
    before = -1
    while not under_way.step(SLICE):
        if under_way.violations:
            raise GuestError(f"kernel {name}: {under_way.violations[0]}")
        done = under_way.instructions
        if done > limit or (done == before and not under_way.waiting):
            where = whereabouts(under_way)
            under_way.kill()
            what = f"has not ended after {limit} wave-instructions" if done > limit else "waits forever"
            raise GuestError(f"kernel {name} {what}: {where}")
        before = done
    return under_way


def _dispatch(
    kernel: Kernel, groups: Size, group_size: Size, wave_bytes: int, lds_bytes: int, kernarg: NDArray[np.uint8]
) -> Dispatch:
    """Return the dispatch that the cores get, from the descriptor and the arguments, of which it may preload some.

    Source: AMDGPUUsage, compute_pgm_rsrc1, compute_pgm_rsrc2.
    """
    pointers = {
        "dispatch_ptr": PACKET, "kernarg_segment_ptr": KERNARG, "queue_ptr": QUEUE, "private_segment_size": kernel.scratch_bytes,
    }  # fmt: skip
    user = [
        pointers.get(register, 0) >> 32 * word & 0xFFFF_FFFF
        for register, (_, words) in USER_REGISTERS.items()
        if kernel.wants(register)
        for word in range(words)
    ]
    preloaded = kernarg[: kernarg.size // 4 * 4].view("<u4")
    user += [int(one) for one in preloaded[kernel.preload_first :][: kernel.preload_count]]
    user += [0] * ((kernel.rsrc2 >> 1 & 31) - len(user))
    return Dispatch(
        pc=CODE + kernel.entry_address + kernel.start_bytes, wave_size=kernel.wave_size, group_size=group_size, group_count=groups,
        vgpr_count=kernel.vgpr_count, user_sgprs=tuple(user),
        enable_group_id=(bool(kernel.rsrc2 >> 7 & 1), bool(kernel.rsrc2 >> 8 & 1), bool(kernel.rsrc2 >> 9 & 1)),
        enable_group_info=bool(kernel.rsrc2 >> 10 & 1), tidig_comp_cnt=kernel.rsrc2 >> 11 & 3, lds_size_bytes=lds_bytes,
        scratch_base=SCRATCH if wave_bytes else 0, scratch_wave_bytes=wave_bytes, float_mode=kernel.rsrc1 >> 12 & 0xFF,
        dx10_clamp=bool(kernel.rsrc1 >> 21 & 1), ieee_mode=bool(kernel.rsrc1 >> 23 & 1),
        shared_aperture=SHARED_APERTURE, private_aperture=PRIVATE_APERTURE, acc_count=kernel.acc_count,
    )  # fmt: skip
