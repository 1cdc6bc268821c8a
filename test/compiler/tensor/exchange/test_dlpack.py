"""DLPack both ways. NumPy is one reference; the other is a producer and a taker written here from dlpack.h, which also
has what NumPy lacks: bf16, float8, steps, offsets, devices, a deleter that is counted.
"""

import ctypes
import gc
import weakref

import ml_dtypes
import numpy as np
import pytest

from ringup.compiler.tensor import Tensor

# dlpack.h 1.0: DLDataTypeCode
CODES = {
    "bool": (6, 8), "int8": (0, 8), "int16": (0, 16), "int32": (0, 32), "int64": (0, 64), "uint8": (1, 8),
    "uint16": (1, 16), "uint32": (1, 32), "uint64": (1, 64), "float16": (2, 16), "float32": (2, 32),
    "float64": (2, 64), "bfloat16": (4, 16), "float8_e4m3": (10, 8), "float8_e5m2": (12, 8),
}  # fmt: skip
api = ctypes.PyDLL(None)
new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(("PyCapsule_New", api))
pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", api))
name_of = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", api))
rename = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_SetName", api))
DELETER = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
USED = b"used_dltensor_versioned"
MEMORY = np.arange(1, 25, dtype=np.int32)


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
    ]  # fmt: skip


class DLManagedTensor(ctypes.Structure):
    _fields_ = [("dl_tensor", DLTensor), ("manager_ctx", ctypes.c_void_p), ("deleter", DELETER)]


class DLManagedTensorVersioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("manager_ctx", ctypes.c_void_p), ("deleter", DELETER),
        ("flags", ctypes.c_uint64), ("dl_tensor", DLTensor),
    ]  # fmt: skip


class Producer:
    """Hands out a capsule of `MEMORY` and counts how often it is deleted."""

    def __init__(self, shape=(2, 3), strides=None, kind=(0, 32), lanes=1, offset=0, device=(1, 0), version=(1, 0), data=MEMORY,
                 deleter=True, ndim=None, claims=None):  # fmt: skip
        self.deleted, self.data, self.claims = [], data, claims or device
        self.delete = DELETER(self.deleted.append) if deleter else DELETER()
        self.shape = (ctypes.c_int64 * len(shape))(*shape)
        self.strides = None if strides is None else (ctypes.c_int64 * len(strides))(*strides)
        tensor = DLTensor(None if data is None else data.ctypes.data, *device, len(shape) if ndim is None else ndim, *kind, lanes,
                          self.shape, self.strides, offset)  # fmt: skip
        self.managed = (
            DLManagedTensorVersioned(*version, None, self.delete, 1, tensor) if version else DLManagedTensor(tensor, None, self.delete)
        )  # fmt: skip
        self.name = b"dltensor_versioned" if version else b"dltensor"

    def __dlpack__(self, **how):
        if self.name == b"dltensor" and "max_version" in how:
            raise TypeError("an unexpected keyword")
        self.capsule = new(ctypes.addressof(self.managed), self.name, None)
        return self.capsule

    def __dlpack_device__(self):
        return self.claims


# in


@pytest.mark.parametrize("version", [(1, 0), (1, 7), None])
def test_what_is_taken_is_copied_and_deleted_once(version):
    source = Producer(version=version)
    t = Tensor.from_dlpack(source)
    assert source.deleted == [ctypes.addressof(source.managed)]
    assert name_of(source.capsule) == (USED if version else b"used_dltensor")
    source.data = None
    assert (t.shape, t.dtype, t.tolist()) == ((2, 3), "int32", [[1, 2, 3], [4, 5, 6]])


@pytest.mark.parametrize(
    ("how", "wanted"),
    [
        ({"strides": (1, 2)}, [[1, 3, 5], [2, 4, 6]]),
        ({"strides": (0, 1)}, [[1, 2, 3], [1, 2, 3]]),
        ({"strides": (-6, 2), "offset": 24}, [[7, 9, 11], [1, 3, 5]]),
        ({"strides": (-3, -1), "offset": 20}, [[6, 5, 4], [3, 2, 1]]),
        ({"offset": 8}, [[3, 4, 5], [6, 7, 8]]),
        ({"shape": (), "offset": 4}, 2),
        ({"shape": (), "strides": ()}, 1),
        ({"shape": (0, 3), "data": None}, []),
        ({"shape": (2, 1, 1), "strides": (12, 99, 7)}, [[[1]], [[13]]]),
        ({"deleter": False}, [[1, 2, 3], [4, 5, 6]]),
        ({"device": (3, 1)}, [[1, 2, 3], [4, 5, 6]]),
        ({"device": (11, 0)}, [[1, 2, 3], [4, 5, 6]]),
    ],
)  # fmt: skip
def test_elements_lie_where_steps_and_offset_say(how, wanted):
    assert Tensor.from_dlpack(Producer(**how)).tolist() == wanted


@pytest.mark.parametrize("kind", CODES)
def test_every_type_comes_in(kind):
    array = np.array([0, 1, 1, 0, 1, 0], getattr(ml_dtypes, {"float8_e4m3": "float8_e4m3fn"}.get(kind, kind), kind))
    t = Tensor.from_dlpack(Producer((6,), kind=CODES[kind], data=array))
    assert (t.dtype.name, t.float().tolist()) == (kind, [0, 1, 1, 0, 1, 0])
    assert Tensor(Producer((6,), kind=CODES[kind], data=array)).dtype.name == kind


def test_a_capsule_itself_is_taken_once():
    source = Producer()
    capsule = source.__dlpack__()
    assert Tensor.from_dlpack(capsule).tolist() == [[1, 2, 3], [4, 5, 6]]
    with pytest.raises(BufferError, match="used_dltensor_versioned: it was taken before"):
        Tensor.from_dlpack(capsule)
    with pytest.raises(BufferError, match="a capsule called something: no array is in it"):
        Tensor.from_dlpack(new(1, b"something", None))
    assert len(source.deleted) == 1


@pytest.mark.parametrize(
    ("how", "error", "said"),
    [
        ({"device": (2, 0)}, BufferError, r"Producer lies on a device of kind cuda \(2\), .*: copy it to the host first"),
        ({"device": (10, 0)}, BufferError, r"kind rocm \(10\)"),
        ({"device": (99, 0)}, BufferError, r"kind unknown \(99\)"),
    ],
)  # fmt: skip
def test_memory_of_a_device_is_not_asked_for(how, error, said):
    source = Producer(**how)
    with pytest.raises(error, match=said):
        Tensor.from_dlpack(source)
    assert not hasattr(source, "capsule")


@pytest.mark.parametrize(
    ("how", "error", "said"),
    [
        ({"device": (2, 0), "claims": (1, 0)}, BufferError, "the capsule lies on a device of kind cuda"),
        ({"version": (2, 0)}, BufferError, r"a capsule of DLPack 2\.0; versions 1\.x are known"),
        ({"kind": (5, 32)}, TypeError, "elements of DLPack's complex, 32 bits, 1 lanes, have no type here"),
        ({"kind": (17, 4)}, TypeError, "code 17, 4 bits"),
        ({"lanes": 4}, TypeError, "4 lanes"),
        ({"kind": (0, 24)}, TypeError, "int, 24 bits"),
        ({"shape": (-2, 3)}, BufferError, r"of shape \[-2, 3\]"),
        ({"ndim": -1}, BufferError, "of -1 axes"),
        ({"ndim": 65}, BufferError, "of 65 axes"),
        ({"data": None}, BufferError, "without memory"),
    ],
)  # fmt: skip
def test_what_cannot_be_taken_is_refused_and_deleted_once(how, error, said):
    source = Producer(**how)
    with pytest.raises(error, match=said):
        Tensor.from_dlpack(source)
    assert len(source.deleted) == 1


def test_numpys_arrays_come_in():
    for array in (
        np.arange(6.0).reshape(2, 3).T,
        np.array([True, False]),
        np.arange(9, dtype=np.uint16)[::-2],
        np.float16([]),
    ):
        t = Tensor.from_dlpack(array)
        np.testing.assert_array_equal(t.numpy(), array, strict=True)


def test_a_producers_memory_is_let_go_of():
    array = np.arange(6.0)
    alive = weakref.ref(array)
    t = Tensor.from_dlpack(array)
    del array
    gc.collect()
    assert (alive(), t.sum().item()) == (None, 15)


# out


def taken(capsule, name, kind):
    """Take a capsule as dlpack.h says; return what it describes, its elements' bytes, and free it."""
    assert name_of(capsule) == name
    address = pointer(capsule, name)
    managed = kind.from_address(address)
    tensor = managed.dl_tensor
    shape, strides = tensor.shape[: tensor.ndim], tensor.strides[: tensor.ndim]
    count = int(np.prod(shape, dtype=int))
    data = ctypes.string_at(tensor.data + tensor.byte_offset, count * tensor.bits // 8)
    about = (
        shape,
        strides,
        (tensor.code, tensor.bits),
        tensor.lanes,
        (tensor.device_type, tensor.device_id),
        tensor.data % 256,
    )
    version = (managed.major, managed.minor, managed.flags) if kind is DLManagedTensorVersioned else None
    rename(capsule, b"used")
    managed.deleter(address)
    return about, data, version


@pytest.mark.parametrize("kind", CODES)
def test_every_type_goes_out_in_both_kinds_of_capsule(kind):
    array = np.array([[0, 1, 1], [0, 1, 0]], getattr(ml_dtypes, {"float8_e4m3": "float8_e4m3fn"}.get(kind, kind), kind))
    t = Tensor(array)
    about = ([2, 3], [3, 1], CODES[kind], 1, (1, 0), 0)
    assert taken(t.__dlpack__(), b"dltensor", DLManagedTensor) == (about, array.tobytes(), None)
    assert taken(t.__dlpack__(max_version=(0, 8)), b"dltensor", DLManagedTensor)[2] is None
    # flag 2 is IS_COPIED
    versioned = taken(t.__dlpack__(max_version=(1, 1)), b"dltensor_versioned", DLManagedTensorVersioned)
    assert versioned == (about, array.tobytes(), (1, 0, 2))


def test_tensors_without_axes_or_elements_go_out():
    assert np.from_dlpack(Tensor(2.5)).tolist() == 2.5
    assert np.from_dlpack(Tensor.zeros(0, 3)).shape == (0, 3)
    assert np.from_dlpack(Tensor([[1, 2], [3, 4]]).T).tolist() == [[1, 3], [2, 4]]


def test_what_goes_out_is_the_takers_alone():
    t = Tensor([1.0, 2.0])
    first, second = np.from_dlpack(t), np.from_dlpack(t)
    assert not np.shares_memory(first, second)
    t.assign(0.0)
    del t
    gc.collect()
    assert (first.tolist(), second.tolist()) == ([1, 2], [1, 2])


def test_memory_is_freed_with_or_without_a_taker():
    """Without that, 200 copies of 8 MiB each would stay."""
    t = Tensor.ones(1 << 21).realize()

    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096

    before = resident()
    for _ in range(100):
        t.__dlpack__(max_version=(1, 0))
        np.from_dlpack(t)
    assert resident() - before < 200 << 20


def test_there_and_back_keeps_every_bit():
    bits = np.arange(1 << 16, dtype=np.uint16)
    t = Tensor(bits).bitcast("bfloat16")
    assert Tensor.from_dlpack(t).bitcast("uint16").tolist() == bits.tolist()


def test_what_is_asked_for_and_is_not_there_is_refused():
    t = Tensor([1.0])
    assert t.__dlpack_device__() == (1, 0)
    with pytest.raises(BufferError, match=r"and not to \(2, 0\)"):
        t.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError, match="no streams"):
        t.__dlpack__(stream=1)
    with pytest.raises(BufferError, match="DLPack of a tensor that wants a gradient, which stays behind: use detach"):
        t.requires_grad_().__dlpack__()
    assert np.from_dlpack(t.detach()).tolist() == [1]
    assert np.from_dlpack(t.detach(), device="cpu", copy=True).tolist() == [1]


# the buffer protocol, which Python asks for from 3.12 on


def test_a_buffer_shows_the_elements_and_is_not_written():
    view = Tensor([[1, 2, 3], [4, 5, 6]], "int16").T.__buffer__(0)
    assert (view.format, view.shape, view.readonly, view.tolist()) == ("h", (3, 2), True, [[1, 4], [2, 5], [3, 6]])
    Tensor([1]).__release_buffer__(view)
    with pytest.raises(ValueError, match="released"):
        view.tolist()
    for kind in ("bool", "float16", "uint64", "float32"):
        assert np.asarray(Tensor([0, 1]).cast(kind).__buffer__(0)).dtype == kind
    with pytest.raises(BufferError, match="a copy, which is not written"):
        Tensor([1]).__buffer__(1)
    with pytest.raises(BufferError, match=r"no bfloat16: numpy\(\) has it, or cast to float32 first"):
        Tensor([1.0], "bfloat16").__buffer__(0)
    with pytest.raises(BufferError, match=r"a buffer of a tensor that wants a gradient, .*: use detach"):
        Tensor([1.0], requires_grad=True).__buffer__(0)


def test_memory_of_another_runtimes_card_is_refused():
    class OnCard:
        __cuda_array_interface__ = {"shape": (2,), "typestr": "<f4", "data": (4096, False), "version": 3}  # noqa: RUF012

    with pytest.raises(BufferError, match=r"memory of OnCard lies on a card of another runtime.*as with \.get\(\)"):
        Tensor(OnCard())
    # libraries would use the address as one of CUDA's
    assert not hasattr(Tensor([1.0]), "__cuda_array_interface__")
