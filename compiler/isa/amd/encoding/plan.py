"""A plan is an instruction in which only register numbers and values can still change. `Refused` is the reason why a
form cannot hold an instruction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ringup.compiler.isa.amd.encoding.forms import Form
from ringup.compiler.isa.amd.encoding.registers import Operand
from ringup.errors import CompileError

Value = Callable[[Any], int]
# Plans that are kept. Each float and literal in an instruction needs its own plan, so their number has no limit.
MAX_PLANS = 1 << 14


class Refused(CompileError):
    """A form cannot hold the operands. `depth` says how far the check came; the reason with the greatest depth is
    reported.
    """

    def __init__(self, message: str, depth: int, operand: int | None = None) -> None:
        super().__init__(message)
        self.depth, self.operand = depth, operand


class Plan:
    """An instruction of which only register numbers, values and offsets are open."""

    __slots__ = ("base", "check", "form", "literals", "nbytes", "offsets", "others", "registers")

    def __init__(self, form: Form) -> None:
        self.form = form
        self.base = form.base
        self.nbytes = form.width // 8
        # (operand, shift down, mask, shift up)
        self.registers: list[tuple[int, int, int, int]] = []
        # (operand, function that returns its bits, shift up)
        self.others: list[tuple[int, Value, int]] = []
        # operands that are the literal dword
        self.literals: list[tuple[int, Value]] = []
        # (modifier, minimum, maximum, mask, shift)
        self.offsets: list[tuple[str, int, int, int, int]] = []
        self.check: Callable[[Sequence[Operand]], None] | None = None

    def word(self, operands: Sequence[Operand], modifiers: Mapping[str, Any]) -> int:
        """Return the instruction as an integer, with the first byte lowest."""
        word = self.base
        for i, down, mask, up in self.registers:
            word |= (operands[i].code >> down & mask) << up  # type: ignore[union-attr]
        for i, value, up in self.others:
            word |= value(operands[i]) << up
        if self.literals:
            word |= self._literal(operands) << self.form.width
        for name, least, most, mask, up in self.offsets:
            number = modifiers[name]
            if not least <= number <= most:
                raise CompileError(f"{name}:{number} of {self.form.name}: {least} to {most}")
            word |= (number & mask) << up
        if self.check is not None:
            self.check(operands)
        return word

    def _literal(self, operands: Sequence[Operand]) -> int:
        values = {value(operands[i]) for i, value in self.literals}
        if len(values) > 1:
            raise CompileError(
                f"{self.form.name}: an instruction has one literal, not {' and '.join(f'{value:#x}' for value in sorted(values))};"
                " move one to a register first"
            )
        return values.pop()
