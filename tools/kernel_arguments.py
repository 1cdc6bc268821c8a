"""Arguments of a kernel as words of the command line: numbers by type, buffers filled from files, buffers that go to files or the screen.

| word | what the kernel gets |
|---|---|
| `u32:7`, `f32:2.5`, `i64:-1` … | a number of that type |
| `7`, `2.5` | a number of the type that the kernel's metadata says |
| `in:FILE` | a buffer with the file's bytes (of `.npy` files the array's) |
| `out:FILE:SIZE` | a buffer of SIZE zero bytes, written to FILE afterwards |
| `inout:FILE:FILE` | a buffer with the first file's bytes, written to the second afterwards |
| `zero:SIZE` | a buffer of SIZE zero bytes |
| `show:SIZE:TYPE` | the same, shown afterwards as numbers of TYPE; those that are not finite as `nan`, `inf` and `-inf`, strings in JSON |
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ringup.tools import numbers
from ringup.tools.card_argument import WrongUsage
from ringup.tools.json_text import plain

TYPES = {  # word: NumPy's name
    "u8": "<u1", "i8": "<i1", "u16": "<u2", "i16": "<i2", "u32": "<u4", "i32": "<i4", "u64": "<u8", "i64": "<i8",
    "f16": "<f2", "f32": "<f4", "f64": "<f8",
}  # fmt: skip
SHOWN = 16  # numbers of a buffer that text shows; JSON has all
NPY = ".npy"


@dataclass(slots=True)
class Argument:
    """One argument: what the kernel is given, and what becomes of a buffer afterwards."""

    word: str
    value: Any = None  # of a number
    data: bytes = b""  # of a buffer, before
    out: Path | None = None
    show: str = ""
    dtype: Any = None  # of the array that a .npy file held
    shape: tuple[int, ...] = ()

    @property
    def is_buffer(self) -> bool:
        """Whether it is memory."""
        return self.value is None


def parse(word: str) -> Argument:
    """Return the argument that a word means. Raises `WrongUsage` for none, an `OSError` for a file that cannot be read."""
    kind, colon, rest = word.partition(":")
    try:
        if not colon:
            return Argument(word, value=_plain(word))
        if kind in TYPES:
            return Argument(word, value=_number(kind, rest))
        if kind in BUFFERS:
            return BUFFERS[kind](word, rest)
    except (ValueError, OverflowError, argparse.ArgumentTypeError) as error:
        raise WrongUsage(f"--arg {word}: {error}") from error
    raise WrongUsage(
        f"--arg {word}: {kind} is no kind of argument; there are {', '.join((*TYPES, *BUFFERS))}, and plain numbers"
    )


def _plain(word: str) -> int | float:
    try:
        return int(word, 0)
    except ValueError:
        return float(word)


def _number(kind: str, text: str) -> Any:
    import numpy as np

    dtype = np.dtype(TYPES[kind])
    if dtype.kind == "f":
        return dtype.type(float(text))
    value, bounds = int(text, 0), np.iinfo(dtype)
    if not bounds.min <= value <= bounds.max:
        raise ValueError(f"{kind} holds {bounds.min} to {bounds.max}")
    return dtype.type(value)


def _in(word: str, rest: str) -> Argument:
    path = Path(rest)
    if path.suffix == NPY:
        import numpy as np

        array = np.load(path, allow_pickle=False)
        return Argument(word, data=array.tobytes(), dtype=array.dtype, shape=array.shape)
    return Argument(word, data=path.read_bytes())


def _out(word: str, rest: str) -> Argument:
    name, _, size = rest.rpartition(":")
    if not name:
        raise ValueError("out:FILE:SIZE")
    if Path(name).suffix == NPY:
        raise ValueError("of what type and shape would the array be? write raw bytes, or inout: from a .npy file")
    return Argument(word, data=bytes(_some(size)), out=Path(name))


def _inout(word: str, rest: str) -> Argument:
    source, _, target = rest.partition(":")
    if not target:
        raise ValueError("inout:FILE:FILE, the second may be the first")
    argument = _in(word, source)
    argument.out = Path(target)
    return argument


def _zero(word: str, rest: str) -> Argument:
    return Argument(word, data=bytes(_some(rest)))


def _show(word: str, rest: str) -> Argument:
    size, _, kind = rest.partition(":")
    if kind not in TYPES:
        raise ValueError(f"show:SIZE:TYPE with TYPE one of {', '.join(TYPES)}")
    return Argument(word, data=bytes(_some(size)), show=kind)


def _some(text: str) -> int:
    size_bytes = numbers.size(text)
    if not size_bytes:
        raise ValueError("a buffer of no bytes")
    return size_bytes


BUFFERS: dict[str, Callable[[str, str], Argument]] = {
    "in": _in,
    "out": _out,
    "inout": _inout,
    "zero": _zero,
    "show": _show,
}


def place(card: Any, arguments: list[Argument]) -> list[Any]:
    """Put buffers into the card's memory, where they stay until it closes; return what the kernel is given. Raises `OutOfMemory`."""
    placed: list[Any] = []
    for number, argument in enumerate(arguments):
        if not argument.is_buffer:
            placed.append(argument.value)
            continue
        buffer = card.alloc(max(1, len(argument.data)), name=f"argument {number}")
        card.copy.upload(buffer, argument.data).wait()
        placed.append(buffer)
    return placed


def collect(card: Any, arguments: list[Argument], placed: list[Any]) -> list[dict[str, Any]]:
    """Bring buffers back to where they belong; return a row for each that was written or is to be shown."""
    rows: list[dict[str, Any]] = []
    for number, (argument, buffer) in enumerate(zip(arguments, placed, strict=True)):
        if argument.out is None and not argument.show:
            continue
        data = card.copy.download(buffer)[: len(argument.data)]
        row: dict[str, Any] = {"argument": number, "size_bytes": len(data)}
        if argument.out is not None:
            _store(argument, data)
            row["file"] = str(argument.out)
        if argument.show:
            import numpy as np

            dtype = np.dtype(TYPES[argument.show])
            row |= {
                "type": argument.show,
                "values": plain(np.frombuffer(data[: len(data) // dtype.itemsize * dtype.itemsize], dtype).tolist()),
            }
        rows.append(row)
    return rows


def _store(argument: Argument, data: bytes) -> None:
    assert argument.out is not None  # who calls has looked
    if argument.dtype is not None and argument.out.suffix == NPY:
        import numpy as np

        np.save(argument.out, np.frombuffer(data, argument.dtype).reshape(argument.shape))
    else:
        argument.out.write_bytes(data)
