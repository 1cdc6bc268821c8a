"""The layout of a safetensors file: the length of a header, the header as JSON, the tensors' bytes one after another.

Source: safetensors' README, "Format": the header begins with a brace and has at most 100 MB, a name comes once, and the
tensors' bytes fill the rest of the file without a gap.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from ringup.errors import CompileError

Fail: TypeAlias = Callable[[str], CompileError]
LENGTH_BYTES = 8
MAX_HEADER_BYTES = 100_000_000
METADATA = "__metadata__"
MAX_SIZE = 1 << 63
# the alignment of the first tensor, which padding of the header makes
ALIGNMENT = 8
# types of the format that have no counterpart among ours
FOREIGN = ("F4", "F6_E2M3", "F6_E3M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ")
# of a name that a message quotes
MAX_QUOTED = 80


class Entry(NamedTuple):
    """One tensor: its type's name in the file, its shape, and where its bytes lie from the start of the file."""

    name: str
    kind: str
    shape: tuple[int, ...]
    start: int
    end: int


def parse(data: memoryview, path: object, bits: Mapping[str, int]) -> tuple[list[Entry], dict[str, str]]:
    """Return a file's tensors in the order of their bytes, and its metadata. Raises `CompileError` for a file that is
    damaged.

    `bits`: the bits of an element by its type's name. A tensor of another type is refused.
    """

    def fail(what: str) -> CompileError:
        return CompileError(f"{path} is no whole safetensors file: {what}; fetch it again")

    if len(data) < LENGTH_BYTES:
        raise fail(f"it has {len(data)} bytes, and the length of its header takes {LENGTH_BYTES}")
    length = int.from_bytes(data[:LENGTH_BYTES], "little")
    if length > min(MAX_HEADER_BYTES, len(data) - LENGTH_BYTES):
        raise fail(f"its header claims {length} bytes and the file has {len(data) - LENGTH_BYTES} more")
    header = _header(bytes(data[LENGTH_BYTES : LENGTH_BYTES + length]), fail)
    metadata = header.pop(METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(one, str) for one in metadata.values()):
        raise fail(f"{METADATA} holds other things than texts")
    base = LENGTH_BYTES + length
    entries = sorted(
        (_entry(name, row, base, bits, path, fail) for name, row in header.items()), key=lambda one: one.start
    )
    at = base
    for one in entries:
        if one.start != at:
            raise fail(f"{_quoted(one.name)} begins at byte {one.start - base} of the data and {at - base} comes next")
        at = one.end
    if at != len(data):
        raise fail(f"its tensors end at byte {at} and the file at {len(data)}")
    return entries, metadata


def _header(raw: bytes, fail: Fail) -> dict[str, Any]:
    def one_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs):
            (twice, _), *_ = Counter(name for name, _ in pairs).most_common(1)
            raise fail(f"its header says {_quoted(twice)} twice")
        return made

    if not raw.startswith(b"{"):
        raise fail("its header does not begin with a brace")
    try:
        found = json.loads(raw, object_pairs_hook=one_each)
    except (ValueError, RecursionError) as error:
        raise fail(f"its header is no JSON ({str(error) or 'nested too deep'})") from error
    if not isinstance(found, dict):
        raise fail("its header is no JSON object")
    return found


def _entry(name: str, row: object, base: int, bits: Mapping[str, int], path: object, fail: Fail) -> Entry:
    if not isinstance(row, dict) or set(row) != {"dtype", "shape", "data_offsets"}:
        raise fail(f"{_quoted(name)} has other entries than dtype, shape and data_offsets")
    kind, shape, offsets = row["dtype"], row["shape"], row["data_offsets"]
    if kind in FOREIGN:
        raise CompileError(f"{path}: {_quoted(name)} holds {kind}, which has no type here; there are {', '.join(bits)}")
    if not isinstance(kind, str) or kind not in bits:
        raise fail(f"{_quoted(name)} holds {str(kind)[:MAX_QUOTED]}, which is no type")
    if not _are_sizes(shape) or not _are_sizes(offsets) or len(offsets) != 2:
        raise fail(f"{_quoted(name)} has a shape or offsets that are no lists of sizes")
    elements = 1
    for size in shape:
        elements *= size
        if elements >= MAX_SIZE:
            raise fail(f"{_quoted(name)} has {elements} elements or more")
    start, end = offsets
    if end - start != elements * bits[kind] // 8:
        raise fail(f"{_quoted(name)} is {shape} of {kind} and lies at bytes {start} to {end} of the data")
    return Entry(name, kind, tuple(shape), base + start, base + end)


def _are_sizes(values: object) -> bool:
    return isinstance(values, list) and all(type(one) is int and 0 <= one < MAX_SIZE for one in values)


def _quoted(name: str) -> str:
    return name if len(name) <= MAX_QUOTED else f"{name[:MAX_QUOTED]}…"


class Row(NamedTuple):
    """One tensor to be written."""

    name: str
    kind: str
    shape: tuple[int, ...]
    size_bytes: int


def head(rows: Sequence[Row], metadata: Mapping[str, str] | None) -> bytes:
    """Return what a file begins with, before the bytes of the tensors in this order."""
    made: dict[str, Any] = {METADATA: dict(metadata)} if metadata else {}
    at = 0
    for name, kind, shape, size_bytes in rows:
        if name == METADATA:
            raise ValueError(f"a tensor called {METADATA}: this name is the metadata's")
        made[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + size_bytes]}
        at += size_bytes
    text = json.dumps(made, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    return len(text).to_bytes(LENGTH_BYTES, "little") + text


def shards(raw: bytes, path: object) -> dict[str, list[str]]:
    """Return the names of the tensors in each file of a `….safetensors.index.json`, by the file's name.

    Raises `CompileError` for an index that is damaged or names a file outside its own folder.
    """

    def fail(what: str) -> CompileError:
        return CompileError(f"{path} is no index of safetensors files: {what}")

    found = _header(raw.strip(), fail)
    places = found.get("weight_map")
    if not isinstance(places, dict) or not places:
        raise fail("it has no weight_map")
    made: dict[str, list[str]] = {}
    for name, file in places.items():
        if not isinstance(file, str) or not file or file in (".", "..") or any(sign in file for sign in "/\\\0"):
            raise fail(f"{_quoted(name)} lies in {file!r:.100}, which is no name of a file beside it")
        made.setdefault(file, []).append(name)
    return made
