"""PyTorch's files, `.pt` and `.pth`: a pickle that names storages, and the storages' bytes, in a zip archive or, before
PyTorch 1.6, one after another.

The pickle is read without executing anything. Source: PyTorch's torch/serialization.py, _save and _legacy_save;
torch/_utils.py, _rebuild_tensor_v2 and on.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from ringup.compiler.files.archive import Archive
from ringup.compiler.files.mapped import MappedFile
from ringup.compiler.files.pickles import Constructor, Reader
from ringup.compiler.graph import dtypes
from ringup.compiler.graph.dtypes import DType
from ringup.compiler.tensor.tensor import Tensor
from ringup.compiler.tensor.weights.elements import Source, strided
from ringup.errors import CompileError

PICKLE = "/data.pkl"
SCRIPT = "/constants.pkl"
BYTE_ORDERS = ("little", "big")
# the pickle of a number that older files begin with
LEGACY_MAGIC = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
LEGACY_PROTOCOL = 1001
COUNT_BYTES = 8
MAX_SIZE = 1 << 63


@dataclass(frozen=True, slots=True)
class StorageType:
    """What a file names as the type of a storage; the elements' type is None where the bytes have none."""

    name: str
    dtype: DType | None


STORAGES = {
    "HalfStorage": dtypes.float16,
    "BFloat16Storage": dtypes.bfloat16,
    "FloatStorage": dtypes.float32,
    "DoubleStorage": dtypes.float64,
    "ByteStorage": dtypes.uint8,
    "CharStorage": dtypes.int8,
    "ShortStorage": dtypes.int16,
    "IntStorage": dtypes.int32,
    "LongStorage": dtypes.int64,
    "BoolStorage": dtypes.bool_,
    "ComplexFloatStorage": dtypes.complex64,
    "ComplexDoubleStorage": dtypes.complex128,
}
# PyTorch's names that differ from ours
TORCH_NAMES = {
    "float8_e4m3fn": dtypes.float8_e4m3,
    **{one.name: one for one in dtypes.EVERY if one.name != "float8_e4m3"},
}


class _Storage:
    """Bytes of a file that tensors lie in; where they are is known later in files of the older format."""

    def __init__(self, key: str, kind: StorageType, count: int, source: Source | None) -> None:
        self.kind, self.count, self.source = kind, count, source
        self.identity: tuple[object, ...] = (key, kind, count)
        self.size_bytes = count * (1 if kind.dtype is None else kind.dtype.size_bytes)

    def read(self) -> memoryview:
        if self.source is None:
            raise CompileError("a tensor is read whose bytes the file does not have")
        return self.source.read()


class _View:
    """A part of another storage."""

    def __init__(self, root: _Storage, kind: StorageType, start_bytes: int, size_bytes: int) -> None:
        self.root, self.kind, self._start, self.size_bytes = root, kind, start_bytes, size_bytes
        self.identity = (*root.identity, start_bytes, size_bytes)

    def read(self) -> memoryview:
        return self.root.read()[self._start : self._start + self.size_bytes]


class _Builder:
    """Makes tensors of what a file's pickle describes."""

    def __init__(self, path: object) -> None:
        self.path, self.swapped = path, False
        self.storages: dict[str, _Storage] = {}
        self._made: dict[tuple[object, ...], Tensor] = {}
        self.names: dict[tuple[str, str], object] = {
            ("collections", "OrderedDict"): Constructor("OrderedDict", _ordered),
            ("_codecs", "encode"): Constructor("encode", _bytes),
            ("torch", "Size"): Constructor("Size", tuple),
            ("torch", "device"): Constructor("device", _device),
            ("torch._utils", "_rebuild_tensor"): Constructor("_rebuild_tensor", self._tensor),
            ("torch._utils", "_rebuild_tensor_v2"): Constructor("_rebuild_tensor_v2", self._second),
            ("torch._utils", "_rebuild_tensor_v3"): Constructor("_rebuild_tensor_v3", self._third),
            ("torch._utils", "_rebuild_parameter"): Constructor("_rebuild_parameter", self._parameter),
            ("torch.storage", "UntypedStorage"): StorageType("UntypedStorage", None),
            **{("torch", name): StorageType(name, kind) for name, kind in STORAGES.items()},
            **{("torch", name): kind for name, kind in TORCH_NAMES.items()},
        }

    def fail(self, what: str) -> CompileError:
        return CompileError(f"{self.path} is damaged: {what}; fetch it again")

    def _second(
        self,
        storage: object,
        offset: object,
        shape: object,
        strides: object,
        _grad: object,
        _hooks: object,
        marks: object = None,
    ) -> Tensor:
        """Return a tensor in a storage of its own type. `marks` say that its elements stand negated or conjugate."""
        if marks:
            raise CompileError(
                f"{self.path}: a tensor stands negated or conjugate in memory; save a resolve_neg() copy"
            )
        return self._tensor(storage, offset, shape, strides)

    def _third(
        self,
        storage: object,
        offset: object,
        shape: object,
        strides: object,
        _grad: object,
        _hooks: object,
        dtype: object,
        marks: object = None,
    ) -> Tensor:
        """Return a tensor in a storage of bytes."""
        if marks:
            raise CompileError(f"{self.path}: a tensor carries marks of its own; save a clone() of it")
        return self._tensor(storage, offset, shape, strides, dtype)

    def _parameter(self, tensor: object, _grad: object, _hooks: object) -> Tensor:
        if not isinstance(tensor, Tensor):
            raise self.fail(f"a parameter is a {type(tensor).__name__}")
        return tensor

    def _tensor(self, storage: object, offset: object, shape: object, strides: object, kind: object = None) -> Tensor:
        if not isinstance(storage, (_Storage, _View)):
            raise self.fail(f"a tensor lies in a {type(storage).__name__}")
        dtype = storage.kind.dtype if kind is None else kind
        if not isinstance(dtype, DType):
            raise self.fail(f"a tensor of {storage.kind.name} has no type")
        if not _are_sizes(shape) or not _are_sizes(strides) or not _is_size(offset) or len(shape) != len(strides):
            raise self.fail("a tensor's shape, steps and place are no sizes")
        key = (storage.identity, dtype, offset, shape, strides)
        if key not in self._made:
            self._made[key] = strided(
                storage,
                dtype,
                offset,
                shape,
                strides,
                "",
                self.path,
                swapped=self.swapped,
            )
            return self._made[key]
        # tensors of the same memory are loaded once and are tensors of their own
        return self._made[key].clone()

    def described(self, identifier: object) -> tuple[StorageType, str, int, object]:
        """Return type, key, number of elements and what follows, of the identifier of a storage."""
        if not isinstance(identifier, tuple) or len(identifier) < 5 or identifier[0] != "storage":
            raise CompileError(f"{self.path} holds more than tensors: save its state_dict()")
        _, kind, key, _, count, *rest = identifier
        if not isinstance(kind, StorageType) or not isinstance(key, str) or not _is_size(count):
            raise self.fail("the description of a storage is none")
        return kind, key, count, rest[0] if rest else None


def _is_size(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < MAX_SIZE


def _are_sizes(values: object) -> TypeGuard[tuple[int, ...]]:
    return isinstance(values, tuple) and all(map(_is_size, values))


def _ordered(pairs: Sequence[tuple[Any, Any]] = ()) -> OrderedDict[Any, Any]:
    if pairs:
        raise ValueError("an OrderedDict of pairs")
    return OrderedDict()


def _bytes(text: object, code: object) -> bytes:
    """Return what protocol 2 writes for bytes: a text of the characters 0 to 255."""
    if not isinstance(text, str) or code != "latin1":
        raise ValueError("bytes in another code than latin1")
    return text.encode("latin1")


def _device(kind: object, number: object = None) -> str:
    return f"{kind!s:.40}" if number is None else f"{kind!s:.40}:{number!s:.20}"


def read(archive: Archive, path: object) -> Any:
    """Return what a file holds, tensors in their places. Raises `CompileError` for a file that is damaged, or that
    names something other than tensors and plain data.
    """
    pickles = [name for name in archive.names if name.endswith(PICKLE) and name.count("/") == 1]
    if any(name.endswith(SCRIPT) for name in archive.names):
        raise CompileError(f"{path} is a TorchScript program: load it with PyTorch and save its state_dict()")
    if len(pickles) != 1:
        raise archive.fail(f"it has {len(pickles)} members data.pkl")
    prefix = pickles[0].removesuffix(PICKLE)
    builder = _Builder(path)
    order = f"{prefix}/byteorder"
    if order in archive:
        word = archive.first(order, 16).decode("ascii", "replace")
        if word not in BYTE_ORDERS:
            raise archive.fail(f"its byte order is {word!r}")
        builder.swapped = word == "big"

    def storage_of(identifier: object) -> _Storage:
        kind, key, count, _ = builder.described(identifier)
        member = f"{prefix}/data/{key}"
        if member not in archive:
            raise archive.fail(f"it has no member {member:.100}")
        known = builder.storages.get(key)
        if known is None or known.kind != kind or known.count != count:
            known = builder.storages[key] = _Storage(key, kind, count, archive.part(member))
            if archive.size_bytes(member) < known.size_bytes:
                raise archive.fail(
                    f"{member} has {archive.size_bytes(member)} bytes and a storage of {known.size_bytes} is claimed"
                )
        return known

    return Reader(memoryview(archive.whole(pickles[0])), path, builder.names, storage_of).read()


def read_legacy(file: MappedFile) -> Any:
    """Return what a file of PyTorch before 1.6 holds: pickles of a magic number, a version, sizes of the writer's
    types, the value and the storages' keys; then each storage, its number of elements first.
    """
    path, data = file.path, file.view()
    builder = _Builder(path)

    def storage_of(identifier: object) -> _Storage | _View:
        kind, key, count, part = builder.described(identifier)
        known = builder.storages.setdefault(key, _Storage(key, kind, count, None))
        if known.kind != kind or known.count != count:
            raise builder.fail(f"two storages are called {key:.100}")
        if part is None:
            return known
        if not isinstance(part, tuple) or len(part) != 3 or not all(map(_is_size, part[1:])):
            raise builder.fail("a part of a storage is none")
        width = known.size_bytes // count if count else 1
        start, size = part[1] * width, part[2] * width
        if start + size > known.size_bytes:
            raise builder.fail(f"a part of a storage ends at byte {start + size} of {known.size_bytes}")
        return _View(known, kind, start, size)

    at, values = len(LEGACY_MAGIC), []
    for _ in range(4):
        reader = Reader(data, path, builder.names, storage_of, at)
        values.append(reader.read())
        at = reader.at
        if len(values) == 2:
            _check_writer(builder, *values)
    _, _, value, keys = values
    _place(builder, file, keys, at)
    return value


def _check_writer(builder: _Builder, protocol: object, system: object) -> None:
    """Learn the byte order of the machine that wrote an older file."""
    if protocol != LEGACY_PROTOCOL or not isinstance(system, dict):
        raise builder.fail("it is of another protocol")
    builder.swapped = system.get("little_endian") is False


def _place(builder: _Builder, file: MappedFile, keys: object, at: int) -> None:
    """Find the storages of an older file, which lie in the order of `keys` from byte `at` on."""
    if not isinstance(keys, list) or not all(isinstance(one, str) for one in keys):
        raise builder.fail("its list of storages is none")
    if sorted(keys) != sorted(builder.storages):
        raise builder.fail(f"it lists {len(keys)} storages and tensors lie in {len(builder.storages)}")
    for key in keys:
        found = builder.storages[key]
        head = file.view(at, at + COUNT_BYTES)
        count = int.from_bytes(head, "big" if builder.swapped else "little")
        end = at + COUNT_BYTES + found.size_bytes
        if len(head) < COUNT_BYTES or count != found.count or end > file.size_bytes:
            raise builder.fail(
                f"storage {key:.100} of {found.size_bytes} bytes at byte {at} has {count} elements, and the file ends at {file.size_bytes}"
            )
        found.source = file.part(at + COUNT_BYTES, end)
        at = end
