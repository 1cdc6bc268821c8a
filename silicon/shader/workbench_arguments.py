"""What a runtime places in memory for a kernel: its arguments, the dispatch packet, the queue object.

Source: LLVM AMDGPUUsage, "Kernel Dispatch", "Code Object Metadata"; hsa.h, `hsa_kernel_dispatch_packet_t`;
amd_hsa_queue.h, `amd_queue_t`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ringup.silicon.shader.program import Argument, Kernel

Value = int | float | bytes | np.generic
Size = tuple[int, int, int]

# Compilers load more dwords at once than there are arguments, if the load begins within their alignment: 7 more with an
# s_load_b256.
KERNARG_STEP = 64
PACKET = struct.Struct("<HH3HH3IIIQQQQ")
QUEUE_BYTES, APERTURES_BYTE = 256, 64
POINTERS = ("global_buffer", "dynamic_shared_pointer", "image", "sampler", "pipe", "queue")
FLOATS = {2: "<e", 4: "<f", 8: "<d"}


def dimensions(groups: Size, group_size: Size) -> int:
    """Return how many dimensions a grid has: up to the last axis with more than one work-item."""
    return max(axis + 1 for axis in range(3) if axis == 0 or groups[axis] * group_size[axis] > 1)


def packet(
    kernel: Kernel, groups: Size, group_size: Size, lds_bytes: int, code: int, kernarg: int
) -> NDArray[np.uint8]:
    """Return the dispatch packet from which a kernel reads its sizes. Its header is 0, as no packet processor reads
    it.
    """
    grid = tuple(count * size for count, size in zip(groups, group_size, strict=True))
    data = PACKET.pack(
        0, dimensions(groups, group_size), *group_size, 0, *grid, kernel.scratch_bytes, lds_bytes, code + kernel.descriptor_address,
        kernarg, 0, 0,
    )  # fmt: skip
    return np.frombuffer(data, np.uint8).copy()


def queue_object(shared_aperture: int, private_aperture: int) -> NDArray[np.uint8]:
    """Return the part of a queue that kernels read: `gpu_va >> 48` of the apertures of LDS and scratch."""
    data = bytearray(QUEUE_BYTES)
    struct.pack_into("<II", data, APERTURES_BYTE, shared_aperture << 16, private_aperture << 16)
    return np.frombuffer(bytes(data), np.uint8).copy()


def kernel_arguments(
    kernel: Kernel,
    values: Sequence[Value],
    hidden: dict[str, int],
    groups: Size,
    group_size: Size,
    dynamic_lds_bytes: int,
) -> NDArray[np.uint8]:
    """Lay out explicit and hidden arguments as the metadata says; `hidden` are those that do not follow from the
    grid.
    """
    hidden = {
        **hidden, "hidden_dynamic_lds_size": dynamic_lds_bytes, "hidden_grid_dims": dimensions(groups, group_size),
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
    for number, (one, value) in enumerate(zip(explicit, values, strict=True)):
        label = f"kernel {kernel.name}: argument {number}" + (f" ({one.name})" if one.name else "")
        data[one.offset : one.offset + one.size_bytes] = _bytes_of(value, one, label)
    return np.frombuffer(bytes(data), np.uint8).copy()


def _bytes_of(value: Value, argument: Argument, label: str) -> bytes:
    size = argument.size_bytes
    what = f"{label} is {argument.kind} of {size} bytes"
    if isinstance(value, (bytes, bytearray, memoryview)):
        if len(value) != size:
            raise ValueError(f"{what}, not {len(value)}")
        return bytes(value)
    if isinstance(value, (float, np.floating)) and argument.kind in POINTERS:
        raise ValueError(f"{what}: an array, or an address, not {value!r}")
    # NumPy's float64 is also a Python float: its own size counts.
    if isinstance(value, np.generic):
        if value.dtype.kind not in "iufb" or value.nbytes != size:
            raise ValueError(f"{what}, {value.dtype} is {value.nbytes}")
        return value.tobytes()
    if isinstance(value, float):
        try:
            return struct.pack(FLOATS[size], value)
        except KeyError:
            raise ValueError(f"{what}, which is not a float: not {value!r}") from None
        except (OverflowError, struct.error):
            raise ValueError(f"{what}: {value!r} does not fit") from None
    if not isinstance(value, int):
        raise TypeError(f"{what}: a number, an array or bytes, not {type(value).__name__}")
    lowest, highest = -1 << 8 * size - 1, (1 << 8 * size) - 1
    if not lowest <= value <= highest:
        raise ValueError(f"{what}: {value} is outside {lowest} to {highest}")
    return (value & highest).to_bytes(size, "little")
