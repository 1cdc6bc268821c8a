"""Running a kernel on the virtual cores by itself: no card, no driver, no queue; memory is the caller's arrays.

What a command processor and a runtime would set up (kernel arguments, dispatch packet, user registers, scratch) is set up here as a code
object's descriptor asks. Source: LLVM AMDGPUUsage, "Kernel Dispatch", "Initial Kernel Execution State"; hsa.h, `hsa_kernel_dispatch_packet_t`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringup.errors import GuestError, WrongTarget
from ringup.silicon.shader.program import MACHINES, USER_REGISTERS, CodeObject, Kernel
from ringup.silicon.shader.state import Dispatch, Engine, MemoryFault, Region, Run, WaveState

Argument = NDArray[Any] | int | float | bytes
Size = tuple[int, int, int]

CODE, KERNARG, PACKET, SCRATCH, BUFFERS = (
    0x10_0000_0000,
    0x20_0000_0000,
    0x30_0000_0000,
    0x40_0000_0000,
    0x7F00_0000_0000,
)
BUFFER_STEP = 1 << 36  # buffers lie far apart, so that an access beyond one reaches no other
SHARED_APERTURE, PRIVATE_APERTURE = 1, 2  # gpu_va >> 48. Source: amdkfd kfd_flat_memory.c, MAKE_LDS_APP_BASE_V9
# Compilers load more dwords at once than there are arguments, as long as what is loaded begins within their alignment: 7 by an s_load_b256.
KERNARG_STEP = 64
STACK_BYTES = 1024  # of a work-item, behind what is known; HIP's default, hipLimitStackSize
SLICE = 100_000  # wave-instructions between two looks at violations


class Arena:
    """Memory of exact bounds: each array is mapped where it is put, and nothing is mapped between them. `shader.state.Memory`."""

    def __init__(self) -> None:
        self.epoch = 0
        self._regions: list[tuple[Region, NDArray[Any]]] = []

    def place(self, gpu_va: int, data: NDArray[Any], *, writable: bool = True, executable: bool = False) -> None:
        """Map an array, which stays the caller's: what a kernel stores is seen in it. One that NumPy holds read-only is so for kernels too."""
        if not data.flags.c_contiguous:
            raise ValueError("only a contiguous array can be mapped")
        self._regions.append(
            (Region(gpu_va, data.nbytes, data.ctypes.data, writable and data.flags.writeable, executable), data)
        )

    def region(self, gpu_va: int, write: bool, execute: bool = False) -> Region:
        """Find the array that holds an address."""
        for one, _ in self._regions:
            if one.gpu_va <= gpu_va < one.gpu_va + one.size_bytes:
                if (write and not one.writable) or (execute and not one.executable):
                    raise MemoryFault(gpu_va, write, "not permitted")
                return one
        raise MemoryFault(gpu_va, write, "no buffer is there")


class Deaf:
    """A card that hears nothing: `shader.state.Events`."""

    def message(self, code: int, m0: int, wave: WaveState) -> int:
        """Take a message."""
        return 0

    def realtime(self) -> int:
        """Return a clock that stands."""
        return 0


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
    """Begin a kernel; `run.step` takes it further.

    Arrays among the arguments become buffers and are passed by address; integers and floats take the size that the kernel's metadata gives.
    `groups` and `group_size` count along x, y, z; `dynamic_lds_bytes` come on top of the LDS that the kernel says it needs. Raises
    `WrongTarget` for another processor's code, `GuestError` for a kernel that is not there and `ValueError` for arguments or groups that do
    not fit it.
    """
    if program.target not in MACHINES.values():
        raise WrongTarget(
            f"code for {program.target}: these cores run {', '.join(sorted(MACHINES.values()))}; compile it for gfx1100"
        )
    kernel = program.kernels.get(name)
    if kernel is None:
        raise GuestError(
            f"the code object has no kernel {name!r}; it has {', '.join(sorted(program.kernels)) or 'none'}"
        )
    arena = Arena()
    arena.place(CODE, np.frombuffer(program.image(CODE), np.uint8).copy(), executable=True)
    values: list[int | float | bytes] = []
    for number, argument in enumerate(arguments):
        if isinstance(argument, np.ndarray):
            arena.place(BUFFERS - number * BUFFER_STEP, argument)
            values.append(BUFFERS - number * BUFFER_STEP)
        else:
            values.append(argument)
    arena.place(KERNARG, _kernel_arguments(kernel, values, groups, group_size, dynamic_lds_bytes), writable=False)
    arena.place(PACKET, _packet(groups, group_size), writable=False)
    lane_bytes = kernel.scratch_bytes + STACK_BYTES * kernel.uses_dynamic_stack
    wave_bytes = -(-lane_bytes * kernel.wave_size // 1024) * 1024
    waves = -(-int(np.prod(group_size)) // kernel.wave_size) * int(np.prod(groups))
    if wave_bytes:
        arena.place(SCRATCH, np.zeros(wave_bytes * waves, np.uint8))
    dispatch = _dispatch(kernel, groups, group_size, wave_bytes, kernel.lds_bytes + dynamic_lds_bytes)
    return engine.start(dispatch, arena, Deaf(), strict=strict)


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
    """Run a kernel to its end; arguments as in `start`. A rule it breaks, or `limit` wave-instructions, is a `GuestError`."""
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
    while not under_way.step(SLICE):
        if under_way.violations:
            raise GuestError(f"kernel {name}: {under_way.violations[0]}")
        if under_way.instructions > limit:
            under_way.kill()
            raise GuestError(f"kernel {name} has not ended after {limit} wave-instructions")
    return under_way


def _kernel_arguments(
    kernel: Kernel, values: list[int | float | bytes], groups: Size, group_size: Size, dynamic_lds_bytes: int
) -> NDArray[np.uint8]:
    """Lay out explicit and hidden arguments as the metadata has them."""
    hidden = {
        "hidden_private_base": PRIVATE_APERTURE << 16, "hidden_shared_base": SHARED_APERTURE << 16,
        "hidden_dynamic_lds_size": dynamic_lds_bytes,
        "hidden_grid_dims": max(axis + 1 for axis in range(3) if axis == 0 or groups[axis] * group_size[axis] > 1),
    }  # fmt: skip
    for axis, letter in enumerate("xyz"):
        hidden[f"hidden_block_count_{letter}"] = groups[axis]
        hidden[f"hidden_group_size_{letter}"] = group_size[axis]
    explicit = [one for one in kernel.arguments if not one.kind.startswith("hidden_")]
    if len(explicit) != len(values):
        raise ValueError(f"kernel {kernel.name} takes {len(explicit)} arguments, not {len(values)}")
    data = bytearray(-(-max(kernel.kernarg_bytes, 1) // KERNARG_STEP) * KERNARG_STEP)
    for one in kernel.arguments:
        if one.kind in hidden:
            data[one.offset : one.offset + one.size_bytes] = hidden[one.kind].to_bytes(one.size_bytes, "little")
    for one, value in zip(explicit, values, strict=True):
        data[one.offset : one.offset + one.size_bytes] = _bytes_of(value, one.size_bytes, one.name)
    return np.frombuffer(bytes(data), np.uint8).copy()


def _bytes_of(value: int | float | bytes, size_bytes: int, name: str) -> bytes:
    if isinstance(value, float):
        forms = {2: "<e", 4: "<f", 8: "<d"}
        if size_bytes not in forms:
            raise ValueError(f"argument {name} of {size_bytes} bytes is no float")
        return struct.pack(forms[size_bytes], value)
    data = value if isinstance(value, bytes) else (value & (1 << size_bytes * 8) - 1).to_bytes(size_bytes, "little")
    if len(data) != size_bytes:
        raise ValueError(f"argument {name} has {size_bytes} bytes, not {len(data)}")
    return data


def _packet(groups: Size, group_size: Size) -> NDArray[np.uint8]:
    grid = tuple(count * size for count, size in zip(groups, group_size, strict=True))
    return np.frombuffer(struct.pack("<4x3H2x3I", *group_size, *grid).ljust(64, b"\0"), np.uint8).copy()


def _dispatch(kernel: Kernel, groups: Size, group_size: Size, wave_bytes: int, lds_bytes: int) -> Dispatch:
    """Say what the dispatcher would hand to the cores, from the descriptor. Source: AMDGPUUsage, compute_pgm_rsrc1, compute_pgm_rsrc2."""
    pointers = {"dispatch_ptr": PACKET, "kernarg_segment_ptr": KERNARG, "private_segment_size": kernel.scratch_bytes}
    user = [
        pointers.get(register, 0) >> 32 * word & 0xFFFF_FFFF
        for register, (_, words) in USER_REGISTERS.items()
        if kernel.wants(register)
        for word in range(words)
    ]
    user += [0] * ((kernel.rsrc2 >> 1 & 31) - len(user))
    return Dispatch(
        pc=CODE + kernel.entry_address, wave_size=kernel.wave_size, group_size=group_size, group_count=groups,
        vgpr_count=kernel.vgpr_count, user_sgprs=tuple(user),
        enable_group_id=(bool(kernel.rsrc2 >> 7 & 1), bool(kernel.rsrc2 >> 8 & 1), bool(kernel.rsrc2 >> 9 & 1)),
        enable_group_info=bool(kernel.rsrc2 >> 10 & 1), tidig_comp_cnt=kernel.rsrc2 >> 11 & 3, lds_size_bytes=lds_bytes,
        scratch_base=SCRATCH if wave_bytes else 0, scratch_wave_bytes=wave_bytes, float_mode=kernel.rsrc1 >> 12 & 0xFF,
        dx10_clamp=bool(kernel.rsrc1 >> 21 & 1), ieee_mode=bool(kernel.rsrc1 >> 23 & 1),
        shared_aperture=SHARED_APERTURE, private_aperture=PRIVATE_APERTURE,
    )  # fmt: skip
