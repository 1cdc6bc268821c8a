"""Prints machine IR as text and parses it: `parse(print_function(f))` is `f` again, value by value.

    kernel scale(a: i64 buffer, out: i64 buffer written size=4096, n: i32) group=64 lds=0 wave=32 {
      %0: i64 u = param[0]
      %1: i32 = thread_id
      %2: f32 = load[4](%0, %1)
      loop %i u = %z to %n step 1 carrying (%c: f32 = %2) unroll 4 at_least_once {
        %5: f32 = fmul(%c, %2)
      } following (%5) results (%r: f32)
      if %k {
        store(%0, %1, %r)
      }
    }

`u` marks uniform values; brackets hold `Value.imm`. Floats are written such that parsing gives the same bits.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ringup.compiler.machine.ir import (
    ELEMENT_BITS,
    OPS,
    VOID,
    Function,
    If,
    Item,
    Loop,
    Param,
    Region,
    Type,
    Value,
    vector_type,
)
from ringup.errors import CompileError

_HEAD = re.compile(r"kernel (\w+)\((.*)\) group=(\d+) lds=(\d+) wave=(\d+)(?: grid=(\d+),(\d+),(\d+))? \{")
_PARAM = re.compile(r"(\w+): (\w+)( buffer)?( written)?(?: size=(\d+))?")
_VALUE = re.compile(r"(?:(%[\w.]+): (\w+)( u)? = )?(\w+)(?:\[(.*?)\])?(?:\(([^()]*)\))?")
_LOOP = re.compile(
    r"loop (%[\w.]+)( u)? = (%[\w.]+) to (%[\w.]+) step (\d+) carrying \((.*?)\)(?: unroll (\d+))?( at_least_once)? \{"
)
_CARRIED = re.compile(r"(%[\w.]+): (\w+)( u)? = (%[\w.]+)")
_RESULT = re.compile(r"(%[\w.]+): (\w+)( u)?")
_CLOSE = re.compile(r"\} following \((.*?)\) results \((.*?)\)")
_TYPE = re.compile(r"([a-z]+?\d*)(?:x(\d+))?")


def print_function(function: Function) -> str:
    """Return a function's text."""
    return "\n".join(_Printer(function).lines) + "\n"


class _Printer:
    def __init__(self, function: Function) -> None:
        self._names: dict[Value, str] = {}
        self._taken: set[str] = set()
        params = ", ".join(
            f"{one.name}: {one.type}{' buffer' * one.is_buffer}{' written' * one.written}{f' size={one.size_bytes}' if one.size_bytes else ''}"
            for one in function.params
        )
        grid = " grid={},{},{}".format(*function.grid) if function.grid else ""
        self.lines = [
            f"kernel {function.name}({params}) group={function.group_size} lds={function.lds_bytes} wave={function.wave_size}{grid} {{"
        ]
        self._region(function.body, 1)
        self.lines.append("}")

    def _name(self, value: Value) -> str:
        found = self._names.get(value)
        if found is None:
            plain = re.sub(r"\W", "_", value.name)
            found = f"%{plain}" if plain else f"%{len(self._names)}"
            while found in self._taken:
                found = f"{found}.{len(self._names)}"
            self._names[value] = found
            self._taken.add(found)
        return found

    def _all(self, values: list[Value] | tuple[Value, ...]) -> str:
        return ", ".join(map(self._name, values))

    def _region(self, region: Region, depth: int) -> None:
        pad = "  " * depth
        for item in region.items:
            if isinstance(item, Value):
                imm = "" if item.imm is None else f"[{_imm_text(item.imm)}]"
                args = f"({self._all(item.args)})" if item.args else ""
                left = "" if item.type == VOID else f"{self._name(item)}: {item.type}{' u' * item.uniform} = "
                self.lines.append(f"{pad}{left}{item.op}{imm}{args}")
            elif isinstance(item, If):
                self.lines.append(f"{pad}if {self._name(item.condition)} {{")
                self._region(item.body, depth + 1)
                self.lines.append(f"{pad}}}")
            else:
                self._loop(item, depth)

    def _loop(self, loop: Loop, depth: int) -> None:
        pad, index = "  " * depth, self._name(loop.index)
        carried = ", ".join(
            f"{self._name(one)}: {one.type}{' u' * one.uniform} = {self._name(first)}"
            for one, first in zip(loop.carried, loop.initial, strict=True)
        )
        more = (f" unroll {loop.unroll}" if loop.unroll != 1 else "") + " at_least_once" * loop.at_least_once
        bounds = f"{self._name(loop.start)} to {self._name(loop.stop)} step {loop.step}"
        self.lines.append(f"{pad}loop {index}{' u' * loop.index.uniform} = {bounds} carrying ({carried}){more} {{")
        self._region(loop.body, depth + 1)
        results = ", ".join(f"{self._name(one)}: {one.type}{' u' * one.uniform}" for one in loop.results)
        self.lines.append(f"{pad}}} following ({self._all(loop.following)}) results ({results})")


def _imm_text(imm: object) -> str:
    return imm.hex() if isinstance(imm, float) else repr(imm)


def parse(text: str) -> Function:
    """Read a function's text. Raises CompileError with the line that cannot be read."""
    return _Parser(text).function()


class _Parser:
    def __init__(self, text: str) -> None:
        self._lines = [
            (i, line.strip())
            for i, line in enumerate(text.splitlines(), 1)
            if line.strip() and not line.strip().startswith("#")
        ]
        self._at = 0
        self._values: dict[str, Value] = {}

    def function(self) -> Function:
        head = self._match(_HEAD, "a kernel's head, such as `kernel f(a: i64 buffer) group=64 lds=0 wave=32 {`")
        name, params, group, lds, wave, *grid = head.groups()
        parsed = tuple(self._param(one) for one in params.split(", ")) if params else ()
        body = self._region()
        self._match(re.compile(r"\}"), "the kernel's closing brace")
        if self._at != len(self._lines):
            self._fail("nothing after the kernel")
        return Function(
            name,
            parsed,
            body,
            int(group),
            int(lds),
            int(wave),
            (int(grid[0]), int(grid[1]), int(grid[2])) if grid[0] else None,
        )

    def _fail(self, expected: str) -> CompileError:
        number, line = self._lines[self._at] if self._at < len(self._lines) else (len(self._lines) + 1, "the end")
        raise CompileError(f"machine IR, line {number}: {line!r}: expected {expected}")

    def _match(self, pattern: re.Pattern[str], expected: str) -> re.Match[str]:
        found = pattern.fullmatch(self._lines[self._at][1]) if self._at < len(self._lines) else None
        if found is None:
            raise self._fail(expected)
        self._at += 1
        return found

    def _param(self, text: str) -> Param:
        found = _PARAM.fullmatch(text)
        if found is None:
            self._at -= 1
            raise self._fail(f"a parameter `name: type [buffer] [written] [size=N]`, not {text!r}")
        return Param(found[1], self._type(found[2]), found[3] is not None, found[4] is not None, int(found[5] or 0))

    def _type(self, text: str) -> Type:
        found = _TYPE.fullmatch(text)
        if found is None or found[1] not in ELEMENT_BITS:
            self._at -= 1
            raise self._fail(f"a type of {', '.join(ELEMENT_BITS)}, with xN for vectors, not {text!r}")
        return vector_type(found[1]) if found[2] is None else vector_type(found[1], int(found[2]))

    def _get(self, name: str) -> Value:
        found = self._values.get(name)
        if found is None:
            self._at -= 1
            raise self._fail(f"{name} to be defined before it is used")
        return found

    def _some(self, text: str) -> list[Value]:
        return [self._get(one) for one in text.split(", ")] if text else []

    def _make(self, name: str, op: str, type_: Type, args: tuple[Value, ...], imm: object, uniform: bool) -> Value:
        if name in self._values:
            self._at -= 1
            raise self._fail(f"{name} to be defined once")
        plain = name[1:]
        made = Value(op, type_, args, imm, uniform=uniform, name="" if not plain or plain[0].isdigit() else plain)
        if name:
            self._values[name] = made
        return made

    def _region(self) -> Region:
        items: list[Item] = []
        while self._at < len(self._lines) and not self._lines[self._at][1].startswith("}"):
            line = self._lines[self._at][1]
            items.append(
                self._if() if line.startswith("if ") else self._loop() if line.startswith("loop ") else self._value()
            )
        return Region(items)

    def _if(self) -> If:
        found = self._match(re.compile(r"if (%[\w.]+) \{"), "`if %condition {`")
        made = If(self._get(found[1]), self._region())
        self._match(re.compile(r"\}"), "a closing brace")
        return made

    def _value(self) -> Value:
        found = self._match(_VALUE, "`%name: type = operation[imm](%operands)`")
        name, type_text, uniform, op, imm_text, args = found.groups()
        row = OPS.get(op)
        operands = tuple(self._some(args or ""))
        if row is None or row.arity not in (-1, len(operands)):
            self._at -= 1
            raise self._fail(
                "an operation of machine IR" if row is None else f"{row.arity} operands of {op}, not {len(operands)}"
            )
        type_ = self._type(type_text) if type_text else VOID
        return self._make(name or "", op, type_, operands, self._imm(imm_text, type_), uniform is not None)

    def _imm(self, text: str | None, type_: Type) -> object:
        if text is None:
            return None
        try:
            return (
                float.fromhex(text) if type_.is_float and re.match(r"-?(0x|inf|nan)", text) else ast.literal_eval(text)
            )
        except (ValueError, SyntaxError) as error:
            self._at -= 1
            raise self._fail(f"a number, a name in quotes or a pair in brackets, not {text!r}") from error

    def _loop(self) -> Loop:
        found = self._match(_LOOP, "`loop %i u = %start to %stop step N carrying (%c: type = %first) {`")
        index_name, index_uniform, start, stop, step, carrying, unroll, sure = found.groups()
        heads = list(self._each(_CARRIED, carrying))
        initial = [self._get(one[4]) for one in heads]
        start_value, stop_value = self._get(start), self._get(stop)
        index = self._make(index_name, "index", vector_type("i32"), (), None, index_uniform is not None)
        carried = [
            self._make(one[1], "carried", self._type(one[2]), (), i, one[3] is not None) for i, one in enumerate(heads)
        ]
        body = self._region()
        close = self._match(_CLOSE, "`} following (%values) results (%r: type)`")
        following = self._some(close[1])
        results = [
            self._make(one[1], "result", self._type(one[2]), (), i, one[3] is not None)
            for i, one in enumerate(self._each(_RESULT, close[2]))
        ]
        if not len(carried) == len(following) == len(results):
            self._at -= 1
            raise self._fail(f"{len(carried)} values that follow and as many results")
        return Loop(
            index, start_value, stop_value, int(step), body, initial, carried, following, results, sure is not None, int(unroll or 1)
        )  # fmt: skip

    def _each(self, pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
        for one in text.split(", ") if text else ():
            found = pattern.fullmatch(one)
            if found is None:
                self._at -= 1
                raise self._fail(f"`%name: type` parts, not {one!r}")
            yield found
