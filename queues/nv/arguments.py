"""Kernel arguments: values packed by the sizes in the cubin's table of parameters. Packing is one `struct` call a
launch.

A plan is made once for each combination of the arguments' Python types, and kept. Values are buffers (anything with
`gpu_va`), numbers, NumPy scalars, and bytes for structures passed by value. The table tells no types: a Python float
fills 2, 4 or 8 bytes as a floating-point number, a whole number as an integer.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ringup.queues.nv.cubin import Kernel

INTEGERS = {1: "B", 2: "H", 4: "I", 8: "Q"}
FLOATS = {2: "e", 4: "f", 8: "d"}
ADDRESS_BYTES = 8
Turn = Callable[[Any], Any]


class Plan(NamedTuple):
    """How arguments of certain types are packed. `buffers`: which arguments are. `turns`: (number of the argument,
    function that converts it).
    """

    pack: struct.Struct
    buffers: tuple[int, ...]
    turns: tuple[tuple[int, Turn], ...]


class Packer:
    """Packs the arguments of one kernel."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel, self.size_bytes, self.parameters = kernel, kernel.param_bytes, kernel.parameters
        self._plans: dict[tuple[type, ...], Plan] = {}

    def pack(self, args: Sequence[Any]) -> bytes:
        """Return the parameters, as constant bank 0 holds them."""
        buffer = bytearray(self.size_bytes)
        self.pack_into(buffer, 0, args)
        return bytes(buffer)

    def pack_into(self, buffer: bytearray | memoryview, offset_bytes: int, args: Sequence[Any]) -> None:
        """Write the parameters, `size_bytes` bytes. A `ValueError` or `TypeError` names the argument that does not
        fit.
        """
        key = tuple(map(type, args))
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = self._plan(args)
        values = args
        if plan.buffers or plan.turns:
            values = list(args)
            for number in plan.buffers:
                values[number] = values[number].gpu_va
            for number, turn in plan.turns:
                values[number] = turn(values[number])
        try:
            plan.pack.pack_into(buffer, offset_bytes, *values)
        except (struct.error, OverflowError) as error:
            if offset_bytes < 0 or offset_bytes + self.size_bytes > len(buffer):
                raise ValueError(
                    f"{self.kernel.name}: {self.size_bytes} bytes of arguments at {offset_bytes} in {len(buffer)}"
                ) from error
            plan.pack.pack_into(buffer, offset_bytes, *(self._explained(*pair) for pair in enumerate(values)))

    def _label(self, number: int) -> str:
        return f"{self.kernel.name}: argument {number}"

    def _plan(self, args: Sequence[Any]) -> Plan:
        if len(args) != len(self.parameters):
            raise TypeError(f"{self.kernel.name} takes {len(self.parameters)} arguments, not {len(args)}")
        codes, buffers, turns, end = ["<"], [], [], 0
        for number, (offset, size) in enumerate(self.parameters):
            if hasattr(args[number], "gpu_va"):
                code, turn = self._address_code(number, size), None
                buffers.append(number)
            else:
                code, turn = self._code(number, size, args[number])
            codes.append(f"{offset - end}x{code}")
            end = offset + size
            if turn is not None:
                turns.append((number, turn))
        codes.append(f"{self.size_bytes - end}x")
        return Plan(struct.Struct("".join(codes)), tuple(buffers), tuple(turns))

    def _address_code(self, number: int, size: int) -> str:
        if size != ADDRESS_BYTES:
            raise TypeError(f"{self._label(number)} is {size} bytes, not a buffer")
        return INTEGERS[size]

    def _code(self, number: int, size: int, value: Any) -> tuple[str, Turn | None]:
        """Choose the struct code for a value, and the function that converts it, if one is needed."""
        if isinstance(value, (bytes, bytearray, memoryview)):
            return f"{size}s", self._bytes_turn(size, number)
        # a NumPy scalar
        if hasattr(value, "tobytes") and hasattr(value, "dtype"):
            return f"{size}s", self._scalar_turn(size, number)
        if not isinstance(value, (int, float)):
            raise TypeError(f"{self._label(number)} is {size} bytes, not {type(value).__name__}")
        known = FLOATS if isinstance(value, float) else INTEGERS
        if size not in known:
            raise TypeError(f"{self._label(number)} is {size} bytes: give bytes, not {type(value).__name__}")
        return known[size], None

    def _bytes_turn(self, size_bytes: int, number: int) -> Turn:
        def turn(value: bytes | bytearray | memoryview) -> bytes:
            text = bytes(value)
            if len(text) != size_bytes:
                raise ValueError(f"{self._label(number)}: {size_bytes} bytes are wanted, not {len(text)}")
            return text

        return turn

    def _scalar_turn(self, size_bytes: int, number: int) -> Turn:
        def turn(value: Any) -> bytes:
            if value.nbytes != size_bytes:
                raise ValueError(f"{self._label(number)} is {size_bytes} bytes, {value.dtype} is {value.nbytes}")
            text: bytes = value.tobytes()
            return text

        return turn

    def _explained(self, number: int, value: Any) -> Any:
        """Return a value that fits its field: a negative whole number becomes two's complement. Raise a `ValueError`
        that names the argument if it does not fit.
        """
        size = self.parameters[number].size_bytes
        if isinstance(value, float):
            try:
                struct.pack("<" + FLOATS[size], value)
            except (struct.error, OverflowError) as error:
                raise ValueError(f"{self._label(number)}: {value!r} does not fit {size} bytes") from error
            return value
        if not isinstance(value, int):
            return value
        bits = 8 * size
        least, most = -1 << bits - 1, (1 << bits) - 1
        if not least <= value <= most:
            raise ValueError(f"{self._label(number)} is {value}, outside {least} to {most}")
        return value & most
