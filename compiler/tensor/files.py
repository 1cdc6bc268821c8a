"""Weights in files: safetensors, GGUF, NumPy's and PyTorch's, mapped into memory: a tensor's bytes are read when it is
first used.

A file that is damaged or cut short is a `CompileError` that names it, and nothing in a file is executed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Self, TypeAlias, cast

from ringup.compiler.files import gguf_layout, safetensors_layout
from ringup.compiler.files.archive import SIGNATURE, Archive
from ringup.compiler.files.mapped import MappedFile, Source, opened
from ringup.compiler.files.whole_file import write_whole
from ringup.compiler.graph import dtypes, nodes
from ringup.compiler.graph.nodes import Node, Op
from ringup.compiler.tensor import realize
from ringup.compiler.tensor.tensor import Tensor
from ringup.compiler.tensor.weights import numpy_file, torch_file, torch_writer
from ringup.compiler.tensor.weights.blocks import BLOCKS, dequantised
from ringup.compiler.tensor.weights.elements import whole
from ringup.errors import CompileError

if TYPE_CHECKING:
    _Tensors: TypeAlias = dict[str, Tensor]
else:
    _Tensors = dict

SAFETENSORS_TYPES = {  # the names in a file's header; safetensors' README, "Format"
    "BOOL": dtypes.bool_,
    "U8": dtypes.uint8,
    "I8": dtypes.int8,
    "U16": dtypes.uint16,
    "I16": dtypes.int16,
    "U32": dtypes.uint32,
    "I32": dtypes.int32,
    "U64": dtypes.uint64,
    "I64": dtypes.int64,
    "F8_E4M3": dtypes.float8_e4m3,
    "F8_E5M2": dtypes.float8_e5m2,
    "F16": dtypes.float16,
    "BF16": dtypes.bfloat16,
    "F32": dtypes.float32,
    "F64": dtypes.float64,
    "C64": dtypes.complex64,
}
SAFETENSORS_NAMES = {kind: name for name, kind in SAFETENSORS_TYPES.items()}
GGUF_PLAIN = {  # ggml's names of types that are not in blocks
    "F32": dtypes.float32,
    "F16": dtypes.float16,
    "BF16": dtypes.bfloat16,
    "F64": dtypes.float64,
    "I8": dtypes.int8,
    "I16": dtypes.int16,
    "I32": dtypes.int32,
    "I64": dtypes.int64,
}
INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
# of a file whose beginning says what it is
HEAD_BYTES = 512
EMPTY_ARCHIVE = b"PK\x05\x06"
OTHERS = {  # what a file begins with: what it is
    b"\x89HDF": "an HDF5 file: read it with h5py",
    b"\x80": "a bare pickle, which only running code could read: save a state_dict with torch.save or safetensors",
}


class Weights(_Tensors):
    """The tensors of a file by name. `fields` are what else it holds: a GGUF file's fields, a safetensors file's
    metadata.

    The file stays mapped while a tensor may need it; `close`, or the end of a `with` block, lets go of it before.
    """

    def __init__(
        self, tensors: Mapping[str, Tensor], fields: Mapping[str, Any] | None = None, files: tuple[MappedFile, ...] = ()
    ) -> None:
        super().__init__(tensors)
        self.fields = dict(fields or {})
        self._files = files

    def close(self) -> None:
        """Let go of the file: a tensor that was not used by then is a `CompileError` when it is."""
        for one in self._files:
            one.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def load(file: Source, map_location: Any = None, *, weights_only: bool | None = True, mmap: bool | None = None) -> Any:
    """Return what a file of weights holds, whatever its format; its content says which, its name does not.

    safetensors (a file, an index of several, a folder with either), GGUF and `.npz` give `Weights`; `.npy` gives a
    tensor; PyTorch's files give what was saved. An open file, such as `io.BytesIO`, is read from its place to its end.
    `map_location`: an open card or an evaluator that all tensors move to. No code of a file ever runs, so
    `weights_only=False` is a ValueError; `mmap` asks for what paths are anyway.
    """
    if weights_only is not None and not weights_only:
        raise ValueError("weights_only=False: ringup runs no code of a file; save a state_dict, which needs none")
    if mmap and not isinstance(file, (str, PathLike)):
        raise ValueError(f"mmap=True: {file!r:.80} is no path")
    found = _load(file)
    return found if map_location is None or map_location == "cpu" else _moved(found, map_location)


def _load(source: Source) -> Any:
    if isinstance(source, (str, PathLike)) and Path(source).is_dir():
        return load_safetensors(source)
    file = opened(source)
    head = bytes(file.view(0, HEAD_BYTES))
    if head.startswith(gguf_layout.MAGIC):
        return _gguf(file)
    if head.startswith(numpy_file.MAGIC):
        return numpy_file.read_array(file)
    if head.startswith(torch_file.LEGACY_MAGIC):
        return torch_file.read_legacy(file)
    if head.startswith((SIGNATURE, EMPTY_ARCHIVE)):
        if all(name.endswith(numpy_file.SUFFIX) for name in Archive(file, "zip archive").names):
            return _npz(file)
        return torch_file.read(Archive(file, "PyTorch file"), file.path)
    is_index = head.lstrip().startswith(b"{")
    if is_index or head[8:9] == b"{":
        if isinstance(source, (str, PathLike)):
            return load_safetensors(source)
        if is_index:
            raise CompileError(f"{file.path} is an index, which names files beside it: load it by its path")
        return _safetensors(file)
    what = next((text for start, text in OTHERS.items() if head.startswith(start)), None)
    if head[257:262] == b"ustar":
        what = "a tar archive, the format of PyTorch before 0.2: load it with PyTorch and save its state_dict()"
    raise CompileError(
        f"{file.path} is {what or 'no file of weights'}; there are safetensors, GGUF, .npy, .npz and PyTorch's .pt"
    )


def _moved(value: Any, place: Any) -> Any:
    """Return what was loaded with the memory of its tensors on a card or an evaluator. Blocks stay packed, and tensors
    of one memory share it there too.
    """
    done: dict[Node, Node] = {}

    def moved(one: Any) -> Any:
        if isinstance(one, Tensor):
            for node in nodes.ordered([one.node]):
                if node.op is Op.BUFFER and node not in done:
                    done[node] = one._of(node).to(place).node
            return one._of(realize.substituted(one.node, dict(done)))
        if isinstance(one, dict):
            for name in one:
                one[name] = moved(one[name])
            return one
        if isinstance(one, (list, tuple)):
            return type(one)([moved(each) for each in one])
        return one

    return moved(value)


def load_safetensors(path: str | PathLike[str]) -> Weights:
    """Return the tensors of a file by name, or of the files that a `….safetensors.index.json` or a folder names.

    A damaged or cut-short file is a CompileError that names it.
    """
    place = Path(path)
    if place.is_dir():
        found = [one for one in (place / INDEX, place / SINGLE) if one.exists()]
        if not found:
            raise CompileError(f"{path} is a folder without {INDEX} and {SINGLE}")
        place = found[0]
    return _load_sharded(place) if place.suffix == ".json" else _safetensors(MappedFile(place))


def _safetensors(file: MappedFile) -> Weights:
    bits = {name: kind.bits for name, kind in SAFETENSORS_TYPES.items()}
    entries, metadata = safetensors_layout.parse(file.view(), file.path, bits)
    tensors = {
        one.name: whole(file.part(one.start, one.end), SAFETENSORS_TYPES[one.kind], one.shape, one.name)
        for one in entries
    }
    return Weights(tensors, metadata, (file,))


def _load_sharded(path: Path) -> Weights:
    made: dict[str, Tensor] = {}
    files: tuple[MappedFile, ...] = ()
    for file, names in safetensors_layout.shards(path.read_bytes(), path).items():
        try:
            found = _safetensors(MappedFile(path.with_name(file)))
        except FileNotFoundError as error:
            raise CompileError(f"{path} names {file}, which is not beside it: fetch it") from error
        if missing := [name for name in names if name not in found]:
            raise CompileError(f"{path} says that {missing[0]} lies in {file}, which has no tensor of that name")
        made.update({name: found[name] for name in names})
        files += found._files
    return Weights(made, {}, files)


def save(obj: object, file: str | PathLike[str] | BinaryIO) -> None:
    """Compute the tensors in lists and dicts and write all of it to a file that PyTorch loads; under a name that ends
    with `.safetensors`, a dict of tensors as such a file. An open file is written to at its place.

    Numbers, texts and bytes may stand beside tensors. TypeError for anything else: of models and optimisers, save
    what `state_dict` returns.
    """
    if not isinstance(file, (str, PathLike)):
        torch_writer.write_to(obj, file)
    elif Path(file).suffix == ".safetensors":
        if not isinstance(obj, Mapping) or not all(isinstance(one, Tensor) for one in obj.values()):
            raise TypeError(f"{file}: a safetensors file holds a dict of tensors; other names make a file of PyTorch's")
        save_safetensors(obj, file)
    else:
        torch_writer.write(obj, Path(file))


def save_safetensors(
    tensors: Mapping[str, Tensor], path: str | PathLike[str], metadata: Mapping[str, str] | None = None
) -> None:
    """Compute tensors and write them to a file under their names."""
    for name, text in (metadata or {}).items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise TypeError(f"metadata of a safetensors file are texts, not {name!r}: {text!r:.80}")
    if tensors:
        first, *others = tensors.values()
        first.realize(*others)
    # the widest first, so that each lies at a multiple of its width
    names = sorted(tensors, key=lambda name: (-tensors[name].dtype.bits, name))
    rows = [safetensors_layout.Row(name, *_described(tensors[name])) for name in names]

    def pieces() -> Iterator[bytes | memoryview]:
        yield safetensors_layout.head(rows, metadata)
        for name in names:
            yield realize.bytes_of(tensors[name].node.arg.data)

    write_whole(Path(path), pieces())


def _described(tensor: Tensor) -> tuple[str, tuple[int, ...], int]:
    """Return the name of a computed tensor's type in a file, its shape and its bytes."""
    shape = cast("tuple[int, ...]", tensor.shape)
    if tensor.dtype not in SAFETENSORS_NAMES:
        raise TypeError(f"safetensors files have no {tensor.dtype}: save complex64, or view_as_real()")
    return SAFETENSORS_NAMES[tensor.dtype], shape, prod(shape) * tensor.dtype.size_bytes


def load_gguf(path: Source) -> tuple[Weights, dict[str, Any]]:
    """Return the tensors of a file by name and its other fields. Blocks are f32 tensors, which are computed from the
    file's bytes where they are used: what lies on the card is as small as the file.

    A damaged or cut-short file is a CompileError that names it.
    """
    made = _gguf(opened(path))
    return made, made.fields


def _gguf(file: MappedFile) -> Weights:
    extents, fields = gguf_layout.parse(file.view(), file.path)
    made = {}
    for one in extents:
        part = file.part(one.start, one.end)
        if one.kind in GGUF_PLAIN:
            made[one.name] = whole(part, GGUF_PLAIN[one.kind], one.shape, one.name)
        elif one.kind in BLOCKS:
            width = BLOCKS[one.kind].size_bytes
            raw = whole(part, dtypes.uint8, (part.size_bytes // width, width), one.name)
            made[one.name] = dequantised(raw, one.kind).reshape(one.shape)
        else:
            raise CompileError(
                f"{file.path}: {one.name} is in {one.kind} blocks; there are {', '.join([*GGUF_PLAIN, *BLOCKS])}"
            )
    return Weights(made, fields, (file,))


def load_npy(path: Source) -> Tensor:
    """Return the array of a NumPy file. Arrays of Python objects, and damaged files, are a CompileError."""
    return numpy_file.read_array(opened(path))


def load_npz(path: Source) -> Weights:
    """Return the arrays of a NumPy archive by name. Arrays of Python objects, and damaged files, are a CompileError."""
    return _npz(opened(path))


def _npz(file: MappedFile) -> Weights:
    return Weights(numpy_file.read_archive(Archive(file, ".npz file"), file.path), {}, (file,))


def load_torch(path: Source) -> Any:
    """Return what PyTorch saved to a file: tensors, numbers, texts, lists and dicts, such as a state_dict.

    Nothing of it is executed: a file that needs more than that is a CompileError that names what it needs, and so is a
    damaged one. Tensors of the same memory are loaded once; `requires_grad` is not taken over.
    """
    file = opened(path)
    if file.view(0, len(torch_file.LEGACY_MAGIC)) == torch_file.LEGACY_MAGIC:
        return torch_file.read_legacy(file)
    return torch_file.read(Archive(file, "PyTorch file"), file.path)
