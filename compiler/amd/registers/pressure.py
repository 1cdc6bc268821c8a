"""Register pressure: how many dwords of a register file are live at each instruction. The counts are bit-sliced: one
long integer for each binary digit.
"""

from __future__ import annotations

from ringup.compiler.amd.registers.coalesce import Frame


class Pressure:
    """The counts at all instructions at once. Positions are those of `liveness.py`."""

    __slots__ = ("digits",)

    def __init__(self, frames: list[Frame]) -> None:
        self.digits: list[int] = []
        for frame in frames:
            for mask in frame.masks:
                self.add(mask)

    def add(self, carry: int) -> None:
        """Add one dword at the positions of `carry`'s bits."""
        digits, i = self.digits, 0
        while carry:
            if i == len(digits):
                digits.append(carry)
                return
            digits[i], carry = digits[i] ^ carry, digits[i] & carry
            i += 1

    def remove(self, borrow: int) -> None:
        """Subtract one dword, which must have been added."""
        digits, i = self.digits, 0
        while borrow:
            digits[i], borrow = digits[i] ^ borrow, ~digits[i] & borrow
            i += 1

    def above(self, size: int) -> int:
        """Return the positions at which more than `size` dwords are live."""
        if size >> len(self.digits):
            return 0
        above, equal = 0, -1
        for i in range(len(self.digits) - 1, -1, -1):
            digit = self.digits[i]
            if size >> i & 1:
                equal &= digit
            else:
                above |= equal & digit
                equal &= ~digit
        return above
