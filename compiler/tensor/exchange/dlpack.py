"""DLPack: capsules that hand an array's memory from one library to another, made and read here.

Source: DLPack's dlpack.h 1.0 and its Python specification, "Semantics": a capsule is renamed when it is taken, and who
took it calls the deleter once.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from math import prod
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ringup.compiler.graph import dtypes
from ringup.compiler.graph.dtypes import DType

CPU = (1, 0)
VERSION = (1, 0)
DEVICES = {  # DLDeviceType
    1: "cpu", 2: "cuda", 3: "cuda_host", 4: "opencl", 7: "vulkan", 8: "metal", 9: "vpi", 10: "rocm", 11: "rocm_host",
    12: "ext_dev", 13: "cuda_managed", 14: "oneapi", 15: "webgpu", 16: "hexagon", 17: "maia", 18: "trn",
}  # fmt: skip
# whose memory the CPU reads in place
ON_HOST = (1, 3, 11)
CODES = {0: "int", 1: "uint", 2: "float", 3: "opaque", 4: "bfloat", 5: "complex", 6: "bool"}  # DLDataTypeCode
INT, UINT, FLOAT, BFLOAT, COMPLEX, BOOL, FLOAT8_E4M3FN, FLOAT8_E5M2 = 0, 1, 2, 4, 5, 6, 10, 12
KINDS = {"int": INT, "uint": UINT, "float": FLOAT, "complex": COMPLEX, "bool": BOOL}
SPECIAL = {dtypes.bfloat16: BFLOAT, dtypes.float8_e4m3: FLOAT8_E4M3FN, dtypes.float8_e5m2: FLOAT8_E5M2}
TYPES = {(SPECIAL.get(one, KINDS[one.kind]), one.bits): one for one in dtypes.EVERY}
# flags of a versioned capsule
IS_COPIED = 2
MAX_RANK = 64
# DLPack's recommendation for the start of the elements
ALIGNMENT = 256
# ORDER: these are compared by address while a capsule lives, so they live as long as the module
PLAIN, USED = b"dltensor", b"used_dltensor"
VERSIONED, USED_VERSIONED = b"dltensor_versioned", b"used_dltensor_versioned"


class _Tensor(ctypes.Structure):
    """DLTensor, with its device and type inside."""

    _fields_: ClassVar = [
        ("data", ctypes.c_void_p),
        ("device_kind", ctypes.c_int32),
        ("device_number", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("offset_bytes", ctypes.c_uint64),
    ]


class _Plain(ctypes.Structure):
    """DLManagedTensor."""

    _fields_: ClassVar = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned."""

    _fields_: ClassVar = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]


class Imported(NamedTuple):
    """A copy of an array's elements, row-major and little-endian."""

    data: bytes
    dtype: DType
    shape: tuple[int, ...]


class _Calls(NamedTuple):
    """Functions of the interpreter and of the C library. Capsules are given by address while they are destroyed."""

    new: Callable[..., Any]
    name: Callable[..., Any]
    pointer: Callable[..., Any]
    rename: Callable[..., Any]
    dying_is: Callable[..., Any]
    dying_pointer: Callable[..., Any]
    allocate: Callable[..., Any]
    free: Callable[..., Any]
    free_address: int


@cache
def _calls() -> _Calls:
    # handles of our own: the argument types of ctypes.pythonapi belong to everyone
    python, c = ctypes.PyDLL(None), ctypes.CDLL(None)
    capsule, address, text = ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p
    free = ctypes.CFUNCTYPE(None, address)(("free", c))
    allocate = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(address), ctypes.c_size_t, ctypes.c_size_t)
    function = ctypes.PYFUNCTYPE
    return _Calls(
        new=function(capsule, address, text, address)(("PyCapsule_New", python)),
        name=function(text, capsule)(("PyCapsule_GetName", python)),
        pointer=function(address, capsule, text)(("PyCapsule_GetPointer", python)),
        rename=function(ctypes.c_int, capsule, text)(("PyCapsule_SetName", python)),
        dying_is=function(ctypes.c_int, address, text)(("PyCapsule_IsValid", python)),
        dying_pointer=function(address, address, text)(("PyCapsule_GetPointer", python)),
        allocate=allocate(("posix_memalign", c)),
        free=free,
        free_address=ctypes.cast(free, address).value or 0,
    )


# out


@cache
def _destructor() -> Any:
    """Return what frees a capsule that nobody took."""
    calls = _calls()

    def drop(capsule: int) -> None:
        for name in (VERSIONED, PLAIN):
            if calls.dying_is(capsule, name):
                calls.free(calls.dying_pointer(capsule, name))

    return ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(drop)


def exported(data: memoryview, dtype: DType, shape: Sequence[int], max_version: tuple[int, int] | None) -> Any:
    """Return a capsule of a copy of some elements, row-major; versioned if the taker knows version 1.

    Struct, shape and elements are one block of the C library's, whose `free` is the deleter: whoever has the capsule
    may free it from any thread and after the interpreter has ended.
    """
    versioned = max_version is not None and max_version[0] >= 1
    calls, kind, rank = _calls(), _Versioned if versioned else _Plain, len(shape)
    sizes_at = ctypes.sizeof(kind)
    data_at = -(-(sizes_at + 16 * rank) // ALIGNMENT) * ALIGNMENT
    place = ctypes.c_void_p()
    if calls.allocate(ctypes.byref(place), ALIGNMENT, data_at + max(1, len(data))) or place.value is None:
        raise MemoryError(f"{data_at + len(data)} bytes for a copy on the host")
    base = place.value
    sizes = (ctypes.c_int64 * (2 * rank)).from_address(base + sizes_at)
    sizes[:] = [*shape, *(prod(shape[axis + 1 :]) for axis in range(rank))]
    ctypes.memset(base, 0, sizes_at)
    managed = kind.from_address(base)
    managed.deleter = calls.free_address
    if isinstance(managed, _Versioned):
        managed.major, managed.minor, managed.flags = *VERSION, IS_COPIED
    tensor = managed.tensor
    tensor.data, tensor.rank = base + data_at, rank
    tensor.device_kind, tensor.device_number = CPU
    tensor.code, tensor.bits, tensor.lanes = SPECIAL.get(dtype, KINDS[dtype.kind]), dtype.bits, 1
    tensor.shape, tensor.strides = base + sizes_at, base + sizes_at + 8 * rank
    if len(data):
        memoryview((ctypes.c_ubyte * len(data)).from_address(base + data_at)).cast("B")[:] = data
    return calls.new(base, VERSIONED if versioned else PLAIN, ctypes.cast(_destructor(), ctypes.c_void_p))


# in


def is_capsule(source: object) -> bool:
    """Return whether something is a capsule itself, as `torch.utils.dlpack.to_dlpack` gives."""
    return type(source).__name__ == "PyCapsule"


def imported(source: Any) -> Imported:
    """Return a copy of the elements of a DLPack object, or of a capsule. Its memory is given back before this returns.

    A BufferError for memory that the CPU does not read, a TypeError for elements without a type here.
    """
    if not is_capsule(source):
        where = getattr(source, "__dlpack_device__", lambda: CPU)()
        _check_device(int(where[0]), type(source).__name__)
        source = _capsule_of(source)
    calls = _calls()
    name = calls.name(source) if is_capsule(source) else b""
    if name not in (PLAIN, VERSIONED):
        taken = "it was taken before" if name in (USED, USED_VERSIONED) else "no array is in it"
        raise BufferError(f"a capsule called {(name or b'').decode(errors='replace')}: {taken}")
    address = calls.pointer(source, name)
    calls.rename(source, USED if name == PLAIN else USED_VERSIONED)
    managed: Any = (_Plain if name == PLAIN else _Versioned).from_address(address)
    try:
        if name == VERSIONED and managed.major != VERSION[0]:
            raise BufferError(f"a capsule of DLPack {managed.major}.{managed.minor}; versions 1.x are known")
        return _copied(managed.tensor)
    finally:
        if managed.deleter:
            ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(managed.deleter)(address)


def _capsule_of(source: Any) -> Any:
    try:
        return source.__dlpack__(max_version=VERSION)
    except TypeError:
        # producers of before version 1
        return source.__dlpack__()


def _check_device(kind: int, what: str) -> None:
    if kind not in ON_HOST:
        raise BufferError(
            f"the memory of {what} lies on a device of kind {DEVICES.get(kind, 'unknown')} ({kind}), which the CPU does not read: "
            "copy it to the host first, as with .cpu()"
        )


def _copied(tensor: Any) -> Imported:
    _check_device(tensor.device_kind, "the capsule")
    dtype = TYPES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    if dtype is None:
        kind = CODES.get(tensor.code, f"code {tensor.code}")
        raise TypeError(
            f"elements of DLPack's {kind}, {tensor.bits} bits, {tensor.lanes} lanes, have no type here; there are "
            + ", ".join(one.name for one in dtypes.ALL)
        )
    rank = tensor.rank
    if not 0 <= rank <= MAX_RANK or (rank and not tensor.shape):
        raise BufferError(f"a capsule of an array of {rank} axes; 0 to {MAX_RANK} are known")
    shape = tuple((ctypes.c_int64 * rank).from_address(tensor.shape)) if rank else ()
    if any(size < 0 for size in shape):
        raise BufferError(f"a capsule of an array of shape {list(shape)}")
    if not prod(shape):
        return Imported(b"", dtype, shape)
    steps = [prod(shape[axis + 1 :]) for axis in range(rank)]
    if rank and tensor.strides:
        steps = list((ctypes.c_int64 * rank).from_address(tensor.strides))
    return Imported(_elements(tensor, dtype.size_bytes, shape, steps), dtype, shape)


def _elements(tensor: Any, width: int, shape: tuple[int, ...], steps: Sequence[int]) -> bytes:
    """Return elements at their places, in order. Steps may be negative, or 0."""
    if not tensor.data:
        raise BufferError(f"a capsule of an array of shape {list(shape)} without memory")
    reach = [(size - 1) * step for size, step in zip(shape, steps, strict=True)]
    first, last = sum(one for one in reach if one < 0), sum(one for one in reach if one > 0)
    start = tensor.data + tensor.offset_bytes + first * width
    memory = (ctypes.c_ubyte * ((last - first + 1) * width)).from_address(start)
    laid: Any = np.lib.stride_tricks.as_strided
    flat = np.frombuffer(memoryview(memory).cast("B"), f"V{width}")[-first:]
    return bytes(laid(flat, shape, [step * width for step in steps]).tobytes())
