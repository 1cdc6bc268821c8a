"""Writes PyTorch's files, as `torch_file` reads them: a pickle that names storages and the storages' bytes, in a zip
archive. Source: PyTorch's torch/serialization.py, _save; caffe2/serialize/inline_container.cc, getPadding.
"""

from __future__ import annotations

import io
from collections import OrderedDict
from pathlib import Path
from typing import Any, BinaryIO, cast
from zipfile import ZIP_STORED, ZipFile, ZipInfo

import numpy as np

from ringup.compiler.files.pickle_writer import Call, Identifier, Name, pickled
from ringup.compiler.files.whole_file import opened_whole
from ringup.compiler.graph.dtypes import DType
from ringup.compiler.tensor import realize
from ringup.compiler.tensor.tensor import Tensor
from ringup.compiler.tensor.weights.elements import row_major
from ringup.compiler.tensor.weights.torch_file import PICKLE, STORAGES, TORCH_NAMES

FOLDER = "archive"
# storages begin at multiples of it
ALIGNMENT = 64
LOCAL_HEADER_BYTES = 30
# of a field of an entry: what it is, and how long
FIELD_HEAD_BYTES = 4
STORAGE_OF = {kind: name for name, kind in STORAGES.items()}
NAME_OF = {kind: name for name, kind in TORCH_NAMES.items()}


class _Describer:
    """Describes tensors in a pickle, and collects them in the order of their storages."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        self._keys: dict[int, str] = {}

    def described(self, value: object) -> object:
        if isinstance(value, Tensor):
            return self._tensor(value)
        if isinstance(value, DType):
            return Name("torch", NAME_OF[value])
        if isinstance(value, np.generic):
            return value.item()
        if isinstance(value, (dict, list, tuple, str, bytes, int, float)):
            # a subclass, such as a named tuple, is written as what it holds
            for kind in (OrderedDict, dict, list, tuple, str, bytes, int, float):
                if isinstance(value, kind):
                    return kind(cast("Any", value))
        what = "; save its state_dict()" if hasattr(value, "state_dict") else ""
        raise TypeError(
            f"a file holds tensors, numbers, texts, lists and dicts of them, not {type(value).__name__}{what}"
        )

    def _tensor(self, value: Tensor) -> Call:
        key = self._keys.get(id(value))
        if key is None:
            key = self._keys[id(value)] = str(len(self.tensors))
            self.tensors.append(value)
        shape = cast("tuple[int, ...]", value.shape)
        known = STORAGE_OF.get(value.dtype)
        kind = Name("torch.storage", "UntypedStorage") if known is None else Name("torch", known)
        count = int(np.prod(shape, dtype=np.int64)) * (value.dtype.size_bytes if known is None else 1)
        place = Identifier(("storage", kind, key, "cpu", count))
        view: tuple[Any, ...] = (place, 0, shape, row_major(shape), value.requires_grad, OrderedDict())
        if known is not None:
            return Call(Name("torch._utils", "_rebuild_tensor_v2"), view)
        return Call(Name("torch._utils", "_rebuild_tensor_v3"), (*view, Name("torch", NAME_OF[value.dtype])))


def write(value: object, path: Path) -> None:
    """Compute the tensors in a value and write all of it; a file that was there stays until the new one is whole.
    TypeError for what is neither a tensor nor plain data, ValueError for sizes that are not known.
    """
    pickle, tensors = _computed(value)
    with opened_whole(path) as file:
        _put(file, pickle, tensors)


def write_to(value: object, file: BinaryIO) -> None:
    """Write the same to an open file, at its place. TypeError too for what takes no bytes."""
    if not hasattr(file, "write"):
        raise TypeError(f"a path or an open file, not {file!r:.80}")
    if isinstance(file, io.TextIOBase):
        raise TypeError(f"{file!r:.80} takes text, not bytes: open it with mode 'wb'")
    _put(file, *_computed(value))


def _computed(value: object) -> tuple[bytes, list[Tensor]]:
    """Return the pickle of a value and its tensors, computed."""
    found = _Describer()
    pickle = pickled(value, found.described)
    if found.tensors:
        realize.realize(found.tensors, {})
    return pickle, found.tensors


def _put(file: BinaryIO, pickle: bytes, tensors: list[Tensor]) -> None:
    """Write the archive. Its members' places count from its beginning, so only an empty file takes them one by one; a
    pipe, or a file that holds something, takes the archive at once.
    """
    is_first = hasattr(file, "seekable") and file.seekable() and file.tell() == 0
    place = file if is_first else io.BytesIO()
    with ZipFile(place, "w", ZIP_STORED) as archive:
        _add(archive, place, PICKLE, pickle)
        _add(archive, place, "/byteorder", b"little")
        for i, one in enumerate(tensors):
            _add(archive, place, f"/data/{i}", realize.bytes_of(one.node.arg.data))
        _add(archive, place, "/version", b"3\n")
    if isinstance(place, io.BytesIO) and place is not file:
        file.write(place.getbuffer())


def _add(archive: ZipFile, file: BinaryIO, name: str, data: bytes | memoryview) -> None:
    entry = ZipInfo(FOLDER + name)
    before = file.tell() + LOCAL_HEADER_BYTES + len(entry.filename) + FIELD_HEAD_BYTES
    padding = -before % ALIGNMENT
    # a field that nobody reads, PyTorch's
    entry.extra = b"FB" + padding.to_bytes(2, "little") + b"Z" * padding
    archive.writestr(entry, data)
