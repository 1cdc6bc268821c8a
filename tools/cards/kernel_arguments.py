"""Arguments of a kernel on the command line: numbers by type, buffers filled from files, buffers written to files or
shown.

| word | what the kernel gets |
|---|---|
| `u32:7`, `f32:2.5`, `i64:-1` … | a number of that type |
| `7`, `2.5` | a number of the type in the kernel's metadata |
| `in:FILE` | a buffer with the file's bytes (of a `.npy` file the array's bytes) |
| `out:FILE:SIZE` | a buffer of SIZE zero bytes, written to FILE afterwards |
| `inout:FILE:FILE` | a buffer with the first file's bytes, written to the second afterwards |
| `zero:SIZE` | a buffer of SIZE zero bytes |
| `show:SIZE:TYPE` | the same, shown afterwards as numbers of TYPE; `nan`, `inf` and `-inf` are strings in JSON |
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ringup.tools.common import files, numbers
from ringup.tools.common.files import Input
from ringup.tools.common.json_text import plain
from ringup.tools.common.wrong_usage import WrongUsage

TYPES = {  # word: NumPy's name
    "u8": "<u1", "i8": "<i1", "u16": "<u2", "i16": "<i2", "u32": "<u4", "i32": "<i4", "u64": "<u8", "i64": "<i8",
    "f16": "<f2", "f32": "<f4", "f64": "<f8",
}  # fmt: skip
SHOWN = 16  # numbers of a buffer in text output; JSON has all
NPY = ".npy"


@dataclass(slots=True)
class Argument:
    """One argument: its value for the kernel, and what happens to a buffer afterwards."""

    word: str
    value: Any = None  # the number
    size_bytes: int = 0  # the buffer's size
    source: Input | None = None  # its contents; without this and without an array it is filled with zeros
    array: Any = None  # the array of a .npy file, which is mapped
    out: Path | None = None
    show: str = ""

    @property
    def is_buffer(self) -> bool:
        """Whether it is a buffer."""
        return self.value is None

    def contents(self) -> bytes:
        """Return the contents of the buffer before the kernel runs."""
        if self.array is not None:
            data: bytes = self.array.tobytes()
            return data
        return self.source.read() if self.source else bytes(self.size_bytes)


def parse(word: str) -> Argument:
    """Return the argument for a word. Raises `WrongUsage`, or `OSError` for an unreadable file."""
    kind, colon, rest = word.partition(":")
    try:
        if not colon:
            return Argument(word, value=_plain(word))
        if kind in TYPES:
            return Argument(word, value=_number(kind, rest))
        if kind in BUFFERS:
            return BUFFERS[kind](word, rest)
    except (ValueError, EOFError, argparse.ArgumentTypeError) as error:
        raise WrongUsage(f"--arg {word}: {error}") from error
    raise WrongUsage(
        f"--arg {word}: {kind} is not a kind of argument; the kinds are "
        f"{', '.join((*TYPES, *BUFFERS))}, and plain numbers"
    )


def _plain(word: str) -> int | float:
    for kind in (partial(int, base=0), float):
        try:
            return kind(word)
        except ValueError:
            continue
    raise ValueError(f"{word!r} is neither a number such as 7, 0x7 or 2.5 nor a buffer such as in:FILE or zero:SIZE")


def _number(kind: str, text: str) -> Any:
    import numpy as np

    dtype = np.dtype(TYPES[kind])
    if dtype.kind == "f":
        return _float(kind, dtype, text)
    bounds = np.iinfo(dtype)
    try:
        value = int(text, 0)
    except ValueError:
        raise ValueError(f"{text!r} is not a whole number: write 7 or 0x7") from None
    if not bounds.min <= value <= bounds.max:
        raise ValueError(f"{kind} holds {bounds.min} to {bounds.max}")
    return dtype.type(value)


def _float(kind: str, dtype: Any, text: str) -> Any:
    import numpy as np

    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number: write 2.5") from None
    with np.errstate(over="ignore"):
        rounded = dtype.type(value)
    if np.isinf(rounded) and "inf" not in text.lower():
        raise ValueError(f"{kind} holds at most {np.finfo(dtype).max:g}")
    return rounded


def _in(word: str, rest: str) -> Argument:
    path = Path(rest)
    if path.suffix == NPY:
        import numpy as np

        try:
            array = np.lib.format.open_memmap(path, mode="r")
        except (OSError, MemoryError):
            raise
        except Exception as error:  # noqa: BLE001  a header has Python's syntax: its reader raises many classes, such as tokenize.TokenError
            why = " ".join(str(error).split())
            raise ValueError(f"{path} is not a NumPy array written by `numpy.save`: {why}") from None
        return Argument(word, size_bytes=array.nbytes, array=array)
    source = files.find(path)
    return Argument(word, size_bytes=source.size_bytes, source=source)


def _out(word: str, rest: str) -> Argument:
    name, _, size = rest.rpartition(":")
    if not name:
        raise ValueError("out:FILE:SIZE")
    if Path(name).suffix == NPY:
        raise ValueError("the type and shape of the array are unknown: write raw bytes, or use inout: with a .npy file")
    files.check_outputs(Path(name))
    return Argument(word, size_bytes=_some(size), out=Path(name))


def _inout(word: str, rest: str) -> Argument:
    source, _, target = rest.partition(":")
    if not target:
        raise ValueError("inout:FILE:FILE, the second may be the first")
    argument = _in(word, source)
    argument.out = Path(target)
    files.check_outputs(argument.out)
    return argument


def _zero(word: str, rest: str) -> Argument:
    return Argument(word, size_bytes=_some(rest))


def _show(word: str, rest: str) -> Argument:
    size, _, kind = rest.partition(":")
    if kind not in TYPES:
        raise ValueError(f"show:SIZE:TYPE with TYPE one of {', '.join(TYPES)}")
    size_bytes, of_one = _some(size), int(TYPES[kind][-1])
    if size_bytes % of_one:
        raise ValueError(f"{size_bytes} bytes are not a multiple of {kind}, which has {of_one} bytes")
    return Argument(word, size_bytes=size_bytes, show=kind)


def _some(text: str) -> int:
    size_bytes = numbers.size(text)
    if not size_bytes:
        raise ValueError("an empty buffer")
    return size_bytes


BUFFERS: dict[str, Callable[[str, str], Argument]] = {
    "in": _in,
    "out": _out,
    "inout": _inout,
    "zero": _zero,
    "show": _show,
}


def place(card: Any, arguments: list[Argument]) -> list[Any]:
    """Put buffers into the card's memory, where they stay until it closes. Return the kernel's arguments. Raises
    `OutOfMemory`.
    """
    placed: list[Any] = []
    for number, argument in enumerate(arguments):
        if not argument.is_buffer:
            placed.append(argument.value)
            continue
        # ORDER: a buffer that does not fit is not read
        buffer = card.alloc(max(1, argument.size_bytes), name=f"argument {number}")
        card.copy.upload(buffer, argument.contents()).wait()
        placed.append(buffer)
    return placed


def collect(card: Any, arguments: list[Argument], placed: list[Any]) -> list[dict[str, Any]]:
    """Copy buffers back to files or output; return a row for each of them."""
    rows: list[dict[str, Any]] = []
    for number, (argument, buffer) in enumerate(zip(arguments, placed, strict=True)):
        if argument.out is None and not argument.show:
            continue
        data = card.copy.download(buffer)[: argument.size_bytes]
        row: dict[str, Any] = {"argument": number, "size_bytes": len(data)}
        if argument.out is not None:
            _store(argument, data)
            row["file"] = str(argument.out)
        if argument.show:
            import numpy as np

            row |= {"type": argument.show, "values": plain(np.frombuffer(data, TYPES[argument.show]).tolist())}
        rows.append(row)
    return rows


def _store(argument: Argument, data: bytes) -> None:
    assert argument.out is not None  # the caller has checked it
    with files.writing(argument.out) as draft:
        if argument.array is not None and argument.out.suffix == NPY:
            import numpy as np

            np.save(draft, np.frombuffer(data, argument.array.dtype).reshape(argument.array.shape))
        else:
            draft.write_bytes(data)
