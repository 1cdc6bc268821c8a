"""Operands of AMD's shader instructions as Python objects: register ranges, named registers, halves, signs, literals.

`v[5]`, `v[4:7]` (both ends included, as in assembly text), `s[2:3]`, `v[1].h`, `neg(v[1])`, `VCC`. Integers and floats
stand for themselves; `lit(1)` requires a literal dword. Source: LLVM AMDGPUOperandSyntax, "Operands"; ISA documents,
"Scalar Source Operands".
"""

from __future__ import annotations

from typing import Final

from ringup.errors import CompileError

VGPRS, SGPRS, TTMPS = 256, 106, 16
# The code of a register whose code differs between processors; `target.LIMITS` has it.
TARGET_CODE = -1
# Name: kind letter of the instruction facts, code in the 9-bit source space, dwords.
NAMED: Final = {
    "vcc": ("c", 106, 2), "vcc_lo": ("c", 106, 1), "vcc_hi": ("c", 107, 1),
    "exec": ("x", 126, 2), "exec_lo": ("x", 126, 1), "exec_hi": ("x", 127, 1),
    "flat_scratch": ("F", 102, 2), "flat_scratch_lo": ("F", 102, 1), "flat_scratch_hi": ("F", 103, 1),
    "xnack_mask": ("X", 104, 2), "xnack_mask_lo": ("X", 104, 1), "xnack_mask_hi": ("X", 105, 1),
    "m0": ("m", TARGET_CODE, 1), "null": ("n", TARGET_CODE, 0), "off": ("o", TARGET_CODE, 0),
    "src_shared_base": ("p", 235, 2), "src_shared_limit": ("p", 236, 2), "src_private_base": ("p", 237, 2), "src_private_limit": ("p", 238, 2),
    "src_pops_exiting_wave_id": ("P", 239, 1),
    "src_vccz": ("z", 251, 1), "src_execz": ("z", 252, 1), "src_scc": ("k", 253, 1), "src_lds_direct": ("d", 254, 1),
}  # fmt: skip
ALIASES: Final = {
    "scc": "src_scc", "vccz": "src_vccz", "execz": "src_execz", "lds_direct": "src_lds_direct", "shared_base": "src_shared_base",
    "shared_limit": "src_shared_limit", "private_base": "src_private_base", "private_limit": "src_private_limit",
    "pops_exiting_wave_id": "src_pops_exiting_wave_id",
}  # fmt: skip


class Register:
    """One register operand. `code` is its number in the 9-bit source space. `shape` contains everything that determines
    which encodings can hold it.
    """

    __slots__ = ("_hash", "abs", "code", "count", "half", "kind", "name", "neg", "sext", "shape")

    def __init__(
        self,
        kind: str,
        code: int,
        count: int,
        name: str = "",
        half: str = "",
        *,
        neg: bool = False,
        abs_: bool = False,
        sext: bool = False,
    ) -> None:
        self.kind, self.code, self.count, self.name, self.half = kind, code, count, name, half
        self.neg, self.abs, self.sext = neg, abs_, sext
        plain = name or f"{kind}{count}" + (f".{half}" if half else "")
        if kind in "va":
            plain += "+" * (count == 1 and code & 0xFF >= 128) + "o" * (count > 1 and code & 1)
        elif kind == "s" and code + count > 102:
            plain += "+"
        self.shape = f"{'-' * neg}{'|' * abs_}{'~' * sext}{plain}"
        self._hash = hash((self.shape, code))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Register) and self.shape == other.shape and self.code == other.code

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return self.text()

    def __neg__(self) -> Register:
        return self.marked(neg=True)

    @property
    def index(self) -> int:
        """Return the number of the first register within its file."""
        return self.code - {"v": 256, "a": 256, "t": 108}.get(self.kind, 0)

    @property
    def low(self) -> Register:
        """Return the low 16 bits of a vector register: `v1.l`."""
        return self._with_half("l")

    @property
    def high(self) -> Register:
        """Return the high 16 bits of a vector register: `v1.h`."""
        return self._with_half("h")

    l = low  # noqa: E741 the text's own spelling
    h = high

    def _with_half(self, half: str) -> Register:
        if self.kind != "v" or self.count != 1:
            raise CompileError(f"{self} has no halves; only a single vector register has")
        return Register("v", self.code, 1, "", half, neg=self.neg, abs_=self.abs)

    def bare(self) -> Register:
        """Return the register without sign, absolute value and sign extension."""
        if not (self.neg or self.abs or self.sext):
            return self
        return Register(self.kind, self.code, self.count, self.name, self.half)

    def marked(self, *, neg: bool = False, abs_: bool = False, sext: bool = False) -> Register:
        """Return the register with additional marks."""
        if not (neg or abs_ or sext):
            return self
        return Register(
            self.kind,
            self.code,
            self.count,
            self.name,
            self.half,
            neg=self.neg or neg,
            abs_=self.abs or abs_,
            sext=self.sext or sext,
        )

    def text(self) -> str:
        """Return the operand as assembly text."""
        if self.name:
            plain = self.name
        else:
            first, file = self.index, "ttmp" if self.kind == "t" else self.kind
            plain = f"{file}{first}" if self.count == 1 else f"{file}[{first}:{first + self.count - 1}]"
            plain += f".{self.half}" if self.half else ""
        if self.sext:
            plain = f"sext({plain})"
        if self.abs:
            plain = f"|{plain}|"
        return f"-{plain}" if self.neg else plain


class Literal:
    """A value that must be a literal dword even if the encoding has an inline constant for it."""

    __slots__ = ("value",)
    shape = "literal"

    def __init__(self, value: int | float) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and self.value == other.value

    def __hash__(self) -> int:
        return hash(("literal", self.value))

    def __repr__(self) -> str:
        return f"lit({self.value:#x})" if isinstance(self.value, int) else f"lit({self.value})"


class Marked:
    """A constant with a sign or an absolute value, such as `-|1.0|`, which the instruction applies at run time."""

    __slots__ = ("abs", "neg", "sext", "shape", "value")

    def __init__(
        self, value: int | float | Literal, *, neg: bool = False, abs_: bool = False, sext: bool = False
    ) -> None:
        self.value, self.neg, self.abs, self.sext = value, neg, abs_, sext
        self.shape = f"{'-' * neg}{'|' * abs_}{'~' * sext}constant {value!r}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Marked) and self.shape == other.shape

    def __hash__(self) -> int:
        return hash(self.shape)

    def __repr__(self) -> str:
        plain = f"|{self.value!r}|" if self.abs else f"{self.value!r}"
        return f"neg({plain})" if self.neg and not self.abs else "-" * self.neg + plain


Constant = int | float
Scalar = Register | Literal | Marked | Constant
# A tuple: image addresses in registers that are not adjacent.
Operand = Scalar | tuple[Register, ...]


class Bank:
    """A register file to index: `v[5]`, `v[4:7]`, `s[2:3]`."""

    def __init__(self, kind: str, size: int, first_code: int) -> None:
        self._kind, self._size, self._first_code = kind, size, first_code
        self._singles = [Register(kind, first_code + i, 1) for i in range(size)]
        self._ranges: dict[tuple[int, int], Register] = {}

    def __getitem__(self, which: int | slice) -> Register:
        if isinstance(which, slice):
            return self.span(which.start, which.stop - which.start + 1)
        if 0 <= which < self._size:
            return self._singles[which]
        raise CompileError(f"{self._kind}{which}: this file has registers 0 to {self._size - 1}")

    def span(self, first: int, count: int) -> Register:
        """Return `count` registers from `first` on. Scalar pairs start at even numbers, larger scalar ranges at
        multiples of four.
        """
        found = self._ranges.get((first, count))
        if found is None:
            last = first + count - 1
            if not (0 <= first <= last < self._size):
                raise CompileError(
                    f"{self._kind}[{first}:{last}]: a range runs upwards within 0 to {self._size - 1} of this file"
                )
            if self._kind in "st" and first % (align := 1 if count == 1 else 2 if count == 2 else 4):
                raise CompileError(
                    f"{self._kind}[{first}:{last}]: {count} scalar registers begin at a multiple of {align}"
                )
            found = self._singles[first] if count == 1 else Register(self._kind, self._first_code + first, count)
            self._ranges[first, count] = found
        return found


v, a, s, ttmp = Bank("v", VGPRS, 256), Bank("a", VGPRS, 256), Bank("s", SGPRS, 0), Bank("t", TTMPS, 108)
_NAMED = {name: Register(kind, code, count, name) for name, (kind, code, count) in NAMED.items()}


def special(name: str) -> Register:
    """Return a named register, such as `vcc_lo` or `m0`. Raises `CompileError` if there is none."""
    found = _NAMED.get(ALIASES.get(name, name))
    if found is None:
        raise CompileError(f"no register is called {name}; these are: {', '.join(NAMED)}")
    return found


VCC, VCC_LO, VCC_HI = special("vcc"), special("vcc_lo"), special("vcc_hi")
EXEC, EXEC_LO, EXEC_HI = special("exec"), special("exec_lo"), special("exec_hi")
M0, NULL, OFF, SCC = special("m0"), special("null"), special("off"), special("src_scc")


def neg(operand: Scalar) -> Scalar:
    """Return the operand with its sign inverted by the instruction."""
    if isinstance(operand, Register):
        return operand.marked(neg=True)
    if isinstance(operand, Marked):
        return Marked(operand.value, neg=True, abs_=operand.abs)
    return Marked(operand, neg=True)


def abs_(operand: Scalar) -> Scalar:
    """Return the operand with its sign cleared by the instruction."""
    if isinstance(operand, Register):
        return operand.marked(abs_=True)
    if isinstance(operand, Marked):
        return Marked(operand.value, neg=operand.neg, abs_=True)
    return Marked(operand, abs_=True)


def lit(value: int | float) -> Literal:
    """Return a value that must be encoded as a literal dword."""
    return Literal(value)
