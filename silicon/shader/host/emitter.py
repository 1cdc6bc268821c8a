"""Generate LLVM IR as text, quickly: a value is a name and a type, an instruction is one line.

The syntax is that of the LLVM language reference. No step examines what was built before, so a translation costs little
more than its lines.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

_BITS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "half": 16, "float": 32, "double": 64, "ptr": 64}
_MANGLED = {"half": "f16", "float": "f32", "double": "f64", "ptr": "p0"}


class Value(NamedTuple):
    """An operand of the IR: a name (`%v12`) or a constant's text, and its type (`i32`, `<32 x float>`, `ptr`)."""

    text: str
    type: str

    @property
    def lanes(self) -> int:
        """Elements of a vector, 0 for a scalar."""
        return int(self.type[1:].split(" ", 1)[0]) if self.type[0] == "<" else 0

    @property
    def element(self) -> str:
        """The type of an element; a scalar's own type."""
        return element(self.type)

    @property
    def is_constant(self) -> bool:
        """Whether the text is a constant."""
        return self.text[0] != "%"


def element(type_: str) -> str:
    """Return the element of a vector type; a scalar type unchanged."""
    return type_[type_.index(" x ") + 3 : -1] if type_[0] == "<" else type_


def like(type_: str, shape: Value) -> str:
    """Return scalar type `type_` in the shape of a value: a vector of as many elements, or the type itself."""
    return f"<{shape.lanes} x {type_}>" if shape.type[0] == "<" else type_


def bits(type_: str) -> int:
    """Return the bits of a scalar type, or of a vector's element."""
    kind = element(type_)
    return _BITS.get(kind) or int(kind[1:])


def mangled(type_: str) -> str:
    """Return a type as in the name of an overloaded intrinsic: v32f32."""
    if type_[0] == "<":
        count, kind = type_[1:-1].split(" x ")
        return f"v{count}{_MANGLED.get(kind, kind)}"
    return _MANGLED.get(type_, type_)


class Code:
    """One function under construction, and the declarations and helper functions that it needs from its module."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        # by name; helper functions are whole definitions
        self.declarations: dict[str, str] = {}
        # the block that lines go to now
        self.label = "entry"
        self._count = 0

    # values -----------------------------------------------------------------------------------------------------------

    def const(self, value: int, type_: str) -> Value:
        """Return an integer constant; a vector type gets it in every lane."""
        width = bits(type_)
        value &= (1 << width) - 1
        if width > 1 and value >> (width - 1):
            value -= 1 << width
        kind = element(type_)
        text = str(value) if kind != "i1" else ("true" if value else "false")
        return Value(text if kind == type_ else f"splat ({kind} {text})", type_)

    def real(self, value: float, type_: str) -> Value:
        """Return a float constant, exact for values that the type holds; a vector type gets it in every lane."""
        kind = element(type_)
        if kind == "half":
            text = f"0xH{struct.unpack('<H', struct.pack('<e', value))[0]:04X}"
        else:
            if kind == "float":
                value = struct.unpack("<f", struct.pack("<f", value))[0]
            text = f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
        return Value(text if kind == type_ else f"splat ({kind} {text})", type_)

    def lane_const(self, values: Sequence[int], kind: str) -> Value:
        """Return a vector of integer constants."""
        return Value("<" + ", ".join(f"{kind} {one}" for one in values) + ">", f"<{len(values)} x {kind}>")

    def undefined(self, type_: str) -> Value:
        """Return a poison value."""
        return Value("poison", type_)

    # instructions -----------------------------------------------------------------------------------------------------

    def emit(self, text: str, type_: str) -> Value:
        """Append an instruction that has a value; `text` is the right side of the equals sign."""
        self._count += 1
        name = f"%v{self._count}"
        self.lines.append(f"{name} = {text}")
        return Value(name, type_)

    def line(self, text: str) -> None:
        """Append an instruction without a value."""
        self.lines.append(text)

    def op(self, name: str, a: Value, b: Value) -> Value:
        """Emit an operation on two operands of one type: add, sub, mul, and, or, xor, shl, lshr, ashr, udiv, fadd,
        ...
        """
        return self.emit(f"{name} {a.type} {a.text}, {b.text}", a.type)

    def neg(self, a: Value) -> Value:
        """Change the sign of a float."""
        return self.emit(f"fneg {a.type} {a.text}", a.type)

    def invert(self, a: Value) -> Value:
        """Complement every bit."""
        return self.op("xor", a, self.const(-1, a.type))

    def icmp(self, how: str, a: Value, b: Value) -> Value:
        """Compare integers: eq ne ugt uge ult ule sgt sge slt sle."""
        return self.emit(f"icmp {how} {a.type} {a.text}, {b.text}", like("i1", a))

    def fcmp(self, how: str, a: Value, b: Value) -> Value:
        """Compare floats: oeq ogt oge olt ole one ord, ueq ugt uge ult ule une uno (true if either is NaN), true,
        false.
        """
        return self.emit(f"fcmp {how} {a.type} {a.text}, {b.text}", like("i1", a))

    def select(self, condition: Value, a: Value, b: Value) -> Value:
        """Return `a` where the condition (i1, or a vector of them) is true, else `b`."""
        return self.emit(f"select {condition.type} {condition.text}, {a.type} {a.text}, {b.type} {b.text}", a.type)

    def cast(self, how: str, a: Value, kind: str) -> Value:
        """Convert to element type `kind`.

        `how` is zext sext trunc fpext fptrunc uitofp sitofp fptoui fptosi bitcast ptrtoint inttoptr.
        """
        to = like(kind, a)
        return a if to == a.type else self.emit(f"{how} {a.type} {a.text} to {to}", to)

    def bitcast(self, a: Value, type_: str) -> Value:
        """Reinterpret the bits as another whole type."""
        return a if type_ == a.type else self.emit(f"bitcast {a.type} {a.text} to {type_}", type_)

    def resize(self, a: Value, kind: str, *, signed: bool = False) -> Value:
        """Widen (with zeroes or the sign) or narrow integers to element type `kind`."""
        have, want = bits(a.type), bits(kind)
        return a if have == want else self.cast("trunc" if want < have else "sext" if signed else "zext", a, kind)

    def intrinsic(self, name: str, *args: Value, result: str = "", overload: Sequence[str] = ()) -> Value:
        """Call an LLVM intrinsic: `fma`, `ctpop`, `umax`, `sadd.sat`, `fshr`, ... without `llvm.` and type suffixes.

        The result has the first argument's type unless `result` is given. `overload` lists the types in its mangled
        name if those are not the first argument's alone.
        """
        result = result or args[0].type
        suffix = ".".join(mangled(one) for one in overload or (args[0].type,))
        return self.call(f"llvm.{name}.{suffix}", result, *args)

    def call(self, name: str, result: str, *args: Value) -> Value:
        """Call a function of the module. A function without a definition (`define`) is declared."""
        if name not in self.declarations:
            self.declarations[name] = f"declare {result} @{name}({', '.join(one.type for one in args)})"
        text = f"call {result} @{name}({', '.join(f'{one.type} {one.text}' for one in args)})"
        if result == "void":
            self.line(text)
            return Value("poison", "void")
        return self.emit(text, result)

    def define(self, name: str, text: str) -> None:
        """Add a helper function to the module once; `text` is its whole definition, with the name."""
        self.declarations.setdefault(name, text)

    # vectors ----------------------------------------------------------------------------------------------------------

    def splat(self, a: Value, lanes: int) -> Value:
        """Put a scalar into every lane."""
        to = f"<{lanes} x {a.type}>"
        if a.is_constant:
            return Value(a.text if a.text == "poison" else f"splat ({a.type} {a.text})", to)
        one = self.emit(f"insertelement {to} poison, {a.type} {a.text}, i32 0", to)
        return self.emit(f"shufflevector {to} {one.text}, {to} poison, <{lanes} x i32> zeroinitializer", to)

    def extract(self, a: Value, lane: Value | int) -> Value:
        """Read one lane."""
        at = lane if isinstance(lane, Value) else Value(str(lane), "i32")
        return self.emit(f"extractelement {a.type} {a.text}, {at.type} {at.text}", a.element)

    def insert(self, a: Value, one: Value, lane: Value | int) -> Value:
        """Replace one lane."""
        at = lane if isinstance(lane, Value) else Value(str(lane), "i32")
        return self.emit(f"insertelement {a.type} {a.text}, {one.type} {one.text}, {at.type} {at.text}", a.type)

    def shuffle(self, a: Value, b: Value | None, lanes: Sequence[int]) -> Value:
        """Gather lanes of `a` and, numbered after them, of `b`; -1 is a poison lane."""
        mask = ", ".join(f"i32 {one}" if one >= 0 else "i32 poison" for one in lanes)
        second = b.text if b else "poison"
        to = f"<{len(lanes)} x {a.element}>"
        return self.emit(f"shufflevector {a.type} {a.text}, {a.type} {second}, <{len(lanes)} x i32> <{mask}>", to)

    # memory -----------------------------------------------------------------------------------------------------------

    def gep(self, base: Value, index: Value | int, kind: str = "i8") -> Value:
        """Return the address of element `index` of type `kind` from a pointer; a vector of indices gives a vector of
        pointers.
        """
        at = index if isinstance(index, Value) else Value(str(index), "i64")
        to = f"<{at.lanes} x ptr>" if at.type[0] == "<" else base.type
        return self.emit(f"getelementptr {kind}, {base.type} {base.text}, {at.type} {at.text}", to)

    def load(self, address: Value, type_: str, align: int) -> Value:
        """Read memory; `align` is in bytes."""
        return self.emit(f"load {type_}, ptr {address.text}, align {align}", type_)

    def store(self, value: Value, address: Value, align: int) -> None:
        """Write memory; `align` is in bytes."""
        self.line(f"store {value.type} {value.text}, ptr {address.text}, align {align}")

    # control flow -----------------------------------------------------------------------------------------------------

    def fresh(self, hint: str) -> str:
        """Return an unused block name."""
        self._count += 1
        return f"{hint}.{self._count}"

    def block(self, label: str) -> None:
        """Begin block `label`; the previous block must have ended in a branch."""
        self.lines.append(f"{label}:")
        self.label = label

    def jump(self, label: str) -> None:
        """End the block with a branch to `label`."""
        self.lines.append(f"br label %{label}")

    def branch(self, condition: Value, yes: str, no: str, *, likely: bool | None = None) -> None:
        """End the block with a conditional branch; `likely` says which way it mostly goes."""
        hint = "" if likely is None else ", !prof !0" if likely else ", !prof !1"
        self.lines.append(f"br i1 {condition.text}, label %{yes}, label %{no}{hint}")

    def phi(self, *arms: tuple[Value, str]) -> Value:
        """Merge values by the predecessor block; only at the start of a block."""
        type_ = arms[0][0].type
        return self.emit(f"phi {type_} " + ", ".join(f"[ {value.text}, %{label} ]" for value, label in arms), type_)
