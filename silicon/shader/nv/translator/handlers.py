"""Instructions as functions of their own, which programs call: LLVM takes microseconds for a call.

What differs between instructions of one form are arguments: the words of the warp's state that they read and write,
immediates, offsets of constants, and their place. All else is in the function's text, and a function is named by its
text. So two instructions share one if and only if it does the same, and it is compiled once for all programs.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from ringup.silicon.shader.host.emitter import Code, Value
from ringup.silicon.shader.nv.decoding.instruction import Kind
from ringup.silicon.shader.nv.translator.flow import BlockWriter

if TYPE_CHECKING:
    from ringup.silicon.shader.nv.decoding.instruction import Operand

ACTIVE = Value("%active", "i32")
# LLVM makes better code if it knows the immediates of other instructions: selectors, counts of shifts.
PLAIN = frozenset(
    ("FADD", "FFMA", "FMUL", "FSETP", "HADD2", "HFMA2", "HMUL2", "IADD3", "IMAD", "ISETP", "LOP3", "MOV", "SEL", "UIADD3",
     "UIMAD", "UISETP", "UMOV")
)  # fmt: skip


class HandlerWriter(BlockWriter):
    """Writes the function of one instruction."""

    def __init__(self, sites: list[int], registers: int, *, full: bool, strict: bool, target: str = "") -> None:
        super().__init__(Code(), sites, registers, full=full, strict=strict, target=target)
        self.code.block("entry")
        if not full:
            self.active = ACTIVE
        self._arguments: dict[tuple[str, int], Value] = {}

    def _argument(self, use: str, value: int, kind: str) -> Value:
        """Return an argument; equal ones of one use are one."""
        found = self._arguments.get((use, value))
        if found is None:
            found = self._arguments[use, value] = Value(f"%{use}{len(self._arguments)}", kind)
        return found

    def number(self, use: str, value: int) -> Value:
        """Return a number that differs between instructions of one form."""
        return self._argument(use, value, "i64")

    def raw(self, operand: Operand) -> Value:
        """Return a source's bits, in the instruction's shape."""
        if operand.kind is Kind.IMMEDIATE and self.ins.name in PLAIN:
            return self.shape(self._argument("immediate", operand.value & 0xFFFF_FFFF, "i32"))
        return super().raw(operand)

    def finish(self, active: str) -> tuple[str, str, str]:
        """End the function, and return its name, its definition, and the call of it for the lanes `active`."""
        code = self.code
        self.flush()
        may_stop = any(line.startswith("ret ") for line in code.lines)
        code.line("ret i64 0" if may_stop else "ret void")
        kind = "i64" if may_stop else "void"
        given = [(ACTIVE, active)] if any("%active" in line for line in code.lines) else []
        given += [(one, str(value)) for (_, value), one in self._arguments.items()]
        head = ", ".join(["ptr %state", "ptr %context", *(f"{one.type} {one.text}" for one, _ in given)])
        body = "\n".join([*code.lines, "}"])
        name = f"step.{sha256(f'{kind}{head}{body}'.encode()).hexdigest()[:24]}"
        call = ", ".join(["ptr %state", "ptr %context", *(f"{one.type} {text}" for one, text in given)])
        return name, f"define internal {kind} @{name}({head}) nounwind {{\n{body}", f"call {kind} @{name}({call})"
