"""A reader of pickles that executes nothing: numbers, texts, lists, dicts and a few named things that the caller gives.

A pickle is a program for a stack machine, and Python's own reader calls what it names. This one knows the opcodes that
plain data need, and a name means what the caller's table says or is an error. Source: CPython's pickletools.py.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn, TypeAlias

from ringup.errors import CompileError

MAX_PROTOCOL = 5
# what tells a mark on the stack from values
_MARK = object()


class Constructor(NamedTuple):
    """What a pickle may call: a function of ours that stands for a name."""

    name: str
    make: Callable[..., Any]


Names: TypeAlias = Mapping[tuple[str, str], object]
# an opcode's byte: struct's code of the number behind it
NUMBERS = {b"J": "<i", b"K": "<B", b"M": "<H", b"G": ">d"}
# an opcode's byte: struct's code of the length of the bytes behind it, and whether they are text
LENGTHS = {
    b"X": ("<I", True), b"\x8c": ("<B", True), b"\x8d": ("<Q", True), b"B": ("<I", False), b"C": ("<B", False),
    b"\x8e": ("<Q", False), b"T": ("<i", False), b"U": ("<B", False),
}  # fmt: skip
INTEGERS = {b"\x8a": "<B", b"\x8b": "<i"}
CONSTANTS = {b"N": None, b"\x88": True, b"\x89": False}
KEYS = (str, bytes, int, float, type(None))
GETS = {b"h": "<B", b"j": "<I"}
PUTS = {b"q": "<B", b"r": "<I"}
TUPLES = {b")": 0, b"\x85": 1, b"\x86": 2, b"\x87": 3}


class Reader:
    """Reads one pickle of some bytes. `at` is behind its end afterwards."""

    def __init__(
        self, data: memoryview, path: object, names: Names, persistent: Callable[[object], Any], at: int = 0
    ) -> None:
        """`names`: what (module, name) means, a value or a `Constructor`. `persistent`: what an identifier means."""
        self._data, self._path, self._names, self._persistent, self.at = data, path, names, persistent, at
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def read(self) -> Any:
        """Return the value. Raises `CompileError` for a pickle that is damaged or names something else."""
        try:
            while (code := bytes(self._take(1))) != b".":
                self._step(code)
            (value,) = self._stack
        except (IndexError, KeyError, TypeError, ValueError, OverflowError, RecursionError, struct.error) as error:
            raise self.fail(f"{type(error).__name__} at byte {self.at}: {error!s:.200}") from error
        return value

    def fail(self, what: str) -> CompileError:
        """Return the error of a pickle that is damaged."""
        return CompileError(f"{self._path} is damaged: its pickle is none ({what}); fetch it again")

    def _refuse(self, what: str) -> NoReturn:
        raise CompileError(
            f"{self._path} holds {what}, which only running code could make: only tensors, numbers, texts, lists and dicts "
            "are read; save its state_dict()"
        )

    def _take(self, count: int) -> memoryview:
        if count < 0 or count > len(self._data) - self.at:
            raise self.fail(f"{count} bytes are wanted at byte {self.at} and {len(self._data) - self.at} are left")
        self.at += count
        return self._data[self.at - count : self.at]

    def _number(self, code: str) -> Any:
        return struct.unpack(code, self._take(struct.calcsize(code)))[0]

    def _line(self) -> str:
        end = bytes(self._data[self.at : self.at + 512]).find(b"\n")
        if end < 0:
            raise self.fail(f"no line ends after byte {self.at}")
        return bytes(self._take(end + 1))[:-1].decode("ascii", "replace")

    def _step(self, code: bytes) -> None:
        """Do one operation."""
        stack = self._stack
        if code in NUMBERS:
            stack.append(self._number(NUMBERS[code]))
        elif code in LENGTHS:
            length, is_text = LENGTHS[code]
            raw = bytes(self._take(self._number(length)))
            stack.append(raw.decode("utf-8", "surrogatepass") if is_text else raw)
        elif code in INTEGERS:
            stack.append(int.from_bytes(self._take(self._number(INTEGERS[code])), "little", signed=True))
        elif code in CONSTANTS:
            stack.append(CONSTANTS[code])
        elif code in GETS:
            stack.append(self._memo[self._number(GETS[code])])
        elif code in PUTS:
            self._memo[self._number(PUTS[code])] = self._top()
        elif code in TUPLES:
            stack.append(tuple(self._pop(TUPLES[code])))
        else:
            operation = _OPERATIONS.get(code)
            if operation is None:
                self._refuse(f"the pickle operation {code!r} at byte {self.at - 1}")
            operation(self)

    def _top(self) -> Any:
        if not self._stack or self._stack[-1] is _MARK:
            raise self.fail(f"its stack is empty at byte {self.at}")
        return self._stack[-1]

    def _pop(self, count: int) -> list[Any]:
        """Take values off the stack, none of which is a mark."""
        if not count:
            return []
        found = self._stack[-count:]
        if len(found) < count or any(one is _MARK for one in found):
            raise self.fail(f"its stack has no {count} values at byte {self.at}")
        del self._stack[-count:]
        return found

    def _pop_mark(self) -> list[Any]:
        """Take the values above the last mark off the stack, and the mark."""
        place = len(self._stack) - 1
        while place >= 0 and self._stack[place] is not _MARK:
            place -= 1
        if place < 0:
            raise self.fail(f"its stack has no mark at byte {self.at}")
        found = self._stack[place + 1 :]
        del self._stack[place:]
        return found

    # operations

    def _protocol(self) -> None:
        if (version := self._number("<B")) > MAX_PROTOCOL:
            raise self.fail(f"it is of protocol {version}")

    def _frame(self) -> None:
        self._take(8)

    def _mark(self) -> None:
        self._stack.append(_MARK)

    def _memoize(self) -> None:
        self._memo[len(self._memo)] = self._top()

    def _drop(self) -> None:
        self._pop(1)

    def _list(self) -> None:
        self._stack.append([])

    def _dict(self) -> None:
        self._stack.append({})

    def _tuple(self) -> None:
        self._stack.append(tuple(self._pop_mark()))

    def _append(self) -> None:
        (value,) = self._pop(1)
        self._listed().append(value)

    def _appends(self) -> None:
        values = self._pop_mark()
        self._listed().extend(values)

    def _listed(self) -> list[Any]:
        found = self._top()
        if not isinstance(found, list):
            raise self.fail(f"it appends to a {type(found).__name__} at byte {self.at}")
        return found

    def _set_item(self) -> None:
        pair = self._pop(2)
        self._set(pair)

    def _set_items(self) -> None:
        self._set(self._pop_mark())

    def _set(self, values: list[Any]) -> None:
        found = self._top()
        if not isinstance(found, dict) or len(values) % 2:
            raise self.fail(f"it sets items of a {type(found).__name__} at byte {self.at}")
        for key in values[::2]:
            # the hash of a tuple goes as deep as the tuple, and Python's stack does not
            if not isinstance(key, KEYS) and not (isinstance(key, tuple) and all(isinstance(one, KEYS) for one in key)):
                self._refuse(f"a {type(key).__name__} as the key of a dict")
        found.update(zip(values[::2], values[1::2], strict=True))

    def _global(self) -> None:
        self._name(self._line(), self._line())

    def _stack_global(self) -> None:
        module, name = self._pop(2)
        if not isinstance(module, str) or not isinstance(name, str):
            raise self.fail(f"a name at byte {self.at} is no text")
        self._name(module, name)

    def _name(self, module: str, name: str) -> None:
        if (module, name) not in self._names:
            self._refuse(f"{module}.{name}")
        self._stack.append(self._names[module, name])

    def _reference(self) -> None:
        (identifier,) = self._pop(1)
        self._stack.append(self._persistent(identifier))

    def _call(self) -> None:
        what, arguments = self._pop(2)
        if not isinstance(what, Constructor) or not isinstance(arguments, tuple):
            self._refuse(f"a call of a {type(what).__name__}")
        self._stack.append(what.make(*arguments))

    def _build(self) -> None:
        """Drop attributes of a dict."""
        self._pop(1)
        found = self._top()
        if not isinstance(found, dict):
            self._refuse(f"a {type(found).__name__} with attributes of its own")


_OPERATIONS: dict[bytes, Callable[[Reader], None]] = {
    b"\x80": Reader._protocol,
    b"\x95": Reader._frame,
    b"(": Reader._mark,
    b"\x94": Reader._memoize,
    b"0": Reader._drop,
    b"]": Reader._list,
    b"}": Reader._dict,
    b"t": Reader._tuple,
    b"a": Reader._append,
    b"e": Reader._appends,
    b"s": Reader._set_item,
    b"u": Reader._set_items,
    b"c": Reader._global,
    b"\x93": Reader._stack_global,
    b"Q": Reader._reference,
    b"R": Reader._call,
    b"b": Reader._build,
}
