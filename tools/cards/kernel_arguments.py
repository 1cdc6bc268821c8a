"""Arguments of a kernel as words of the command line: numbers by type, buffers filled from files, buffers that go to
files or the screen.

| word | what the kernel gets |
|---|---|
| `u32:7`, `f32:2.5`, `i64:-1` … | a number of that type |
| `7`, `2.5` | a number of the type that the kernel's metadata says |
| `in:FILE` | a buffer with the file's bytes (of `.npy` files the array's) |
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
SHOWN = 16  # numbers of a buffer that text shows; JSON has all
NPY = ".npy"


@dataclass(slots=True)
class Argument:
    """One argument: what the kernel is given, and what becomes of a buffer afterwards."""

    word: str
    value: Any = None  # of a number
    size_bytes: int = 0  # of a buffer
    source: Input | None = None  # what fills it; zeros do where there is neither this nor an array
    array: Any = None  # of a .npy file, which is read where it lies
    out: Path | None = None
    show: str = ""

    @property
    def is_buffer(self) -> bool:
        """Whether it is memory."""
        return self.value is None

    def contents(self) -> bytes:
        """Return what the buffer holds before the kernel runs."""
        if self.array is not None:
            data: bytes = self.array.tobytes()
            return data
        return self.source.read() if self.source else bytes(self.size_bytes)


def parse(word: str) -> Argument:
    """Return the argument that a word means. Raises `WrongUsage` for none, an `OSError` for a file that cannot be
    read.
    """
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
        f"--arg {word}: {kind} is no kind of argument; there are {', '.join((*TYPES, *BUFFERS))}, and plain numbers"
    )


def _plain(word: str) -> int | float:
    for kind in (partial(int, base=0), float):
        try:
            return kind(word)
        except ValueError:
            continue
    raise ValueError(f"{word!r} is no number such as 7, 0x7 or 2.5, and no buffer such as in:FILE or zero:SIZE")


def _number(kind: str, text: str) -> Any:
    import numpy as np

    dtype = np.dtype(TYPES[kind])
    if dtype.kind == "f":
        return _float(kind, dtype, text)
    bounds = np.iinfo(dtype)
    try:
        value = int(text, 0)
    except ValueError:
        raise ValueError(f"{text!r} is no whole number: write 7 or 0x7") from None
    if not bounds.min <= value <= bounds.max:
        raise ValueError(f"{kind} holds {bounds.min} to {bounds.max}")
    return dtype.type(value)


def _float(kind: str, dtype: Any, text: str) -> Any:
    import numpy as np

    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{text!r} is no number: write 2.5") from None
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
        except Exception as error:  # noqa: BLE001  a header is Python's syntax: its reader raises many classes, tokenize.TokenError too
            why = " ".join(str(error).split())
            raise ValueError(f"{path} holds no NumPy array as `numpy.save` writes one: {why}") from None
        return Argument(word, size_bytes=array.nbytes, array=array)
    source = files.find(path)
    return Argument(word, size_bytes=source.size_bytes, source=source)


def _out(word: str, rest: str) -> Argument:
    name, _, size = rest.rpartition(":")
    if not name:
        raise ValueError("out:FILE:SIZE")
    if Path(name).suffix == NPY:
        raise ValueError("of what type and shape would the array be? write raw bytes, or inout: from a .npy file")
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
        raise ValueError(f"{size_bytes} bytes are no whole number of {kind}, of {of_one} bytes each")
    return Argument(word, size_bytes=size_bytes, show=kind)


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
    """Put buffers into the card's memory, where they stay until it closes; return what the kernel is given. Raises
    `OutOfMemory`.
    """
    placed: list[Any] = []
    for number, argument in enumerate(arguments):
        if not argument.is_buffer:
            placed.append(argument.value)
            continue
        buffer = card.alloc(
            max(1, argument.size_bytes), name=f"argument {number}"
        )  # ORDER: what does not fit is not read
        card.copy.upload(buffer, argument.contents()).wait()
        placed.append(buffer)
    return placed


def collect(card: Any, arguments: list[Argument], placed: list[Any]) -> list[dict[str, Any]]:
    """Bring buffers back to where they belong; return a row for each that was written or is to be shown."""
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
    assert argument.out is not None  # who calls has looked
    with files.writing(argument.out) as draft:
        if argument.array is not None and argument.out.suffix == NPY:
            import numpy as np

            np.save(draft, np.frombuffer(data, argument.array.dtype).reshape(argument.array.shape))
        else:
            draft.write_bytes(data)
