"""Kernel arguments: values packed as the kernel's metadata says. Hidden arguments are filled from the launch. Packing
is one `struct` call a launch.

A plan is made once for each combination of the arguments' Python types, and kept. Values are buffers (anything with
`gpu_va`), numbers, NumPy scalars, bytes for structures passed by value, and a number of bytes for each array in dynamic
LDS. Source: LLVM AMDGPUUsage, "Code Object Metadata", kinds of arguments.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ringup.errors import NotSupported
from ringup.queues.amd.launch import Launch
from ringup.queues.amd.objects.hsa_metadata import ADDRESSES, BY_VALUE, DYNAMIC_LDS, HIDDEN, Argument

if TYPE_CHECKING:
    from ringup.queues.amd.objects.code_object import Kernel

UNSIGNED = {1: "B", 2: "H", 4: "I", 8: "Q"}
FLOATS = {2: "e", 4: "f", 8: "d"}
# an argument's type_name: its code in `struct`
OPENCL_CODES = {
    "char": "b",
    "uchar": "B",
    "short": "h",
    "ushort": "H",
    "int": "i",
    "uint": "I",
    "long": "q",
    "ulong": "Q",
    "half": "e",
    "float": "f",
    "double": "d",
}
CODE_BYTES = {"b": 1, "B": 1, "h": 2, "H": 2, "i": 4, "I": 4, "q": 8, "Q": 8, "e": 2, "f": 4, "d": 8}
ADDRESS_BYTES = 8

HIDDEN_VALUES: dict[str, Callable[[Launch], int]] = {
    "hidden_block_count_x": lambda launch: launch.full_groups[0],
    "hidden_block_count_y": lambda launch: launch.full_groups[1],
    "hidden_block_count_z": lambda launch: launch.full_groups[2],
    "hidden_group_size_x": lambda launch: launch.block[0],
    "hidden_group_size_y": lambda launch: launch.block[1],
    "hidden_group_size_z": lambda launch: launch.block[2],
    "hidden_remainder_x": lambda launch: launch.last[0],
    "hidden_remainder_y": lambda launch: launch.last[1],
    "hidden_remainder_z": lambda launch: launch.last[2],
    "hidden_global_offset_x": lambda launch: launch.offset[0],
    "hidden_global_offset_y": lambda launch: launch.offset[1],
    "hidden_global_offset_z": lambda launch: launch.offset[2],
    "hidden_grid_dims": lambda launch: launch.dimensions,
    "hidden_dynamic_lds_size": lambda launch: launch.dynamic_lds_bytes,
}
# addresses of services that a run time may offer. The argument is 0, as the document says for an absent service, unless
# the caller gives an address
SERVICES = frozenset(
    {
        "hidden_none",
        "hidden_printf_buffer",
        "hidden_hostcall_buffer",
        "hidden_heap_v1",
        "hidden_default_queue",
        "hidden_completion_action",
        "hidden_multigrid_sync_arg",
        "hidden_queue_ptr",
        "hidden_private_base",
        "hidden_shared_base",
    }
)

Turn = Callable[[Any], Any]


class Plan(NamedTuple):
    """How arguments of certain types are packed. `pack`: the struct. `turns`: (number of the argument, function that
    converts its value for the struct).
    """

    pack: struct.Struct
    turns: tuple[tuple[int, Turn], ...]


def plain(*sizes: int | str) -> tuple[Argument, ...]:
    """Describe arguments by hand, in C's layout. Each is a size in bytes (of a number; 8 for a buffer), or an OpenCL
    type such as `float`.
    """
    found, end = [], 0
    for number, size in enumerate(sizes):
        size_bytes = CODE_BYTES[OPENCL_CODES[size]] if isinstance(size, str) else size
        end += -end % size_bytes
        name = size if isinstance(size, str) else ""
        found.append(Argument(BY_VALUE, end, size_bytes, f"argument {number}", type_name=name))
        end += size_bytes
    return tuple(found)


class Packer:
    """Packs the arguments of one kernel. `services` holds addresses for hidden arguments such as
    `hidden_printf_buffer`.

    Raises `NotSupported` for kinds of arguments that no document describes.
    """

    def __init__(self, kernel: Kernel, services: Mapping[str, int] | None = None) -> None:
        self.kernel = kernel
        self.size_bytes = kernel.kernarg_bytes
        arguments = kernel.arguments or ()
        self.arguments = tuple(each for each in arguments if not each.kind.startswith(HIDDEN))
        hidden = tuple(each for each in arguments if each.kind.startswith(HIDDEN))
        if arguments != self.arguments + hidden:
            raise NotSupported(f"{kernel.name}: hidden arguments lie before others")
        known = {BY_VALUE, DYNAMIC_LDS, *ADDRESSES, *HIDDEN_VALUES, *SERVICES}
        unknown = sorted({each.kind for each in arguments} - known)
        if unknown:
            raise NotSupported(f"{kernel.name}: arguments of kind {', '.join(unknown)}; ringup knows no such kind")
        for each in arguments:
            if each.kind != BY_VALUE and each.size_bytes not in UNSIGNED:
                raise NotSupported(f"{kernel.name}: an argument of kind {each.kind} of {each.size_bytes} bytes")
        self._hidden_fields = hidden
        self._services = {name: (services or {}).get(name, 0) for name in SERVICES}
        self._dynamic = tuple(n for n, each in enumerate(self.arguments) if each.kind == DYNAMIC_LDS)
        self._plans: dict[tuple[type, ...], Plan] = {}
        self._launch: Launch | None = None
        self._hidden: tuple[int, ...] = ()
        self._described = kernel.arguments is not None

    def pack(self, args: Sequence[Any], launch: Launch) -> bytes:
        """Return the kernel arguments."""
        buffer = bytearray(self.size_bytes)
        self.pack_into(buffer, 0, args, launch)
        return bytes(buffer)

    def pack_into(self, buffer: bytearray | memoryview, offset_bytes: int, args: Sequence[Any], launch: Launch) -> None:
        """Write the kernel arguments, `size_bytes` bytes. A `ValueError` or `TypeError` names the argument that does
        not fit.
        """
        key = tuple(map(type, args))
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = self._plan(args)
        values = list(args)
        for number, turn in plan.turns:
            values[number] = turn(values[number])
        if self._dynamic:
            self._place_in_lds(values, launch)
        if launch is not self._launch:
            self._hidden = tuple(self._hidden_value(each.kind, launch) for each in self._hidden_fields)
            self._launch = launch
        try:
            plan.pack.pack_into(buffer, offset_bytes, *values, *self._hidden)
        except (struct.error, OverflowError) as error:
            values = [self._explained(plan, *pair) for pair in enumerate(values)]
            if offset_bytes < 0 or offset_bytes + self.size_bytes > len(buffer):
                raise ValueError(
                    f"{self.kernel.name}: {self.size_bytes} bytes of arguments at {offset_bytes} in {len(buffer)}"
                ) from error
            plan.pack.pack_into(buffer, offset_bytes, *values, *self._hidden)

    def dynamic_lds_bytes(self, args: Sequence[Any]) -> int:
        """Return how many bytes of dynamic LDS these arguments need: a launch must have at least as many."""
        return self._lay_out_lds(args)[1] - self.kernel.lds_bytes

    def _label(self, number: int) -> str:
        name = self.arguments[number].name
        return f"{self.kernel.name}: argument {number}" + (f" ({name})" if name else "")

    def _plan(self, args: Sequence[Any]) -> Plan:
        """Choose the struct for these types. A kernel without metadata takes all its arguments as one run of bytes."""
        if not self._described:
            if len(args) == 1 and isinstance(args[0], (bytes, bytearray, memoryview)):
                return Plan(struct.Struct(f"<{self.size_bytes}s"), ((0, self._bytes_turn(self.size_bytes, 0)),))
            raise TypeError(
                f"{self.kernel.name} has no described arguments: give {self.size_bytes} bytes, or describe them"
            )
        if len(args) != len(self.arguments):
            raise TypeError(f"{self.kernel.name} takes {len(self.arguments)} arguments, not {len(args)}")
        codes, turns, end = ["<"], [], 0
        for number, argument in enumerate(self.arguments):
            code, turn = self._code(number, args[number])
            codes.append(f"{argument.offset - end}x{code}")
            end = argument.offset + argument.size_bytes
            if turn is not None:
                turns.append((number, turn))
        for argument in self._hidden_fields:
            codes.append(f"{argument.offset - end}x{UNSIGNED[argument.size_bytes]}")
            end = argument.offset + argument.size_bytes
        codes.append(f"{self.size_bytes - end}x")
        return Plan(struct.Struct("".join(codes)), tuple(turns))

    def _code(self, number: int, value: Any) -> tuple[str, Turn | None]:
        """Choose the struct code for a value, and the function that converts it, if one is needed."""
        argument = self.arguments[number]
        size = argument.size_bytes
        if hasattr(value, "gpu_va"):
            if size != ADDRESS_BYTES or argument.kind == DYNAMIC_LDS:
                raise TypeError(f"{self._label(number)} is {argument.kind} of {size} bytes, not a buffer")
            return "Q", _gpu_va
        if argument.kind in ADDRESSES or argument.kind == DYNAMIC_LDS:
            if not isinstance(value, int):
                wanted = "a buffer or an address" if argument.kind in ADDRESSES else "a number of bytes of LDS"
                raise TypeError(f"{self._label(number)} is {argument.kind}: {wanted}, not {type(value).__name__}")
            return UNSIGNED[size], None
        if isinstance(value, (bytes, bytearray, memoryview)):
            return f"{size}s", self._bytes_turn(size, number)
        code = _typed_code(argument)
        # a NumPy scalar
        if hasattr(value, "tobytes") and hasattr(value, "dtype"):
            if code is not None and code not in FLOATS.values() and value.dtype.kind == "f":
                raise TypeError(f"{self._label(number)} is {argument.type_name}, not {value.dtype}")
            if code is not None:
                return code, _item
            return f"{size}s", self._scalar_turn(size, number)
        if not isinstance(value, (int, float)):
            raise TypeError(
                f"{self._label(number)} is {argument.type_name or f'{size} bytes'}, not {type(value).__name__}"
            )
        known = FLOATS if isinstance(value, float) else UNSIGNED
        if code is not None and isinstance(value, float) and code not in FLOATS.values():
            raise TypeError(f"{self._label(number)} is {argument.type_name}, not a float")
        if code is None and size not in known:
            raise TypeError(f"{self._label(number)} is {size} bytes: give bytes, not {type(value).__name__}")
        return code or known[size], None

    def _bytes_turn(self, size_bytes: int, number: int) -> Turn:
        def turn(value: bytes | bytearray | memoryview) -> bytes:
            text = bytes(value)
            if len(text) != size_bytes:
                what = self._label(number) if self._described else f"{self.kernel.name}: the arguments"
                raise ValueError(f"{what}: {size_bytes} bytes are wanted, not {len(text)}")
            return text

        return turn

    def _scalar_turn(self, size_bytes: int, number: int) -> Turn:
        def turn(value: Any) -> bytes:
            if value.nbytes != size_bytes:
                raise ValueError(f"{self._label(number)} is {size_bytes} bytes, {value.dtype} is {value.nbytes}")
            text: bytes = value.tobytes()
            return text

        return turn

    def _explained(self, plan: Plan, number: int, value: Any) -> Any:
        """Return a value that fits its field: a negative whole number becomes two's complement. Raise a `ValueError`
        that names the argument if it does not fit.
        """
        argument = self.arguments[number] if self._described else Argument(BY_VALUE, 0, self.size_bytes)
        if not isinstance(value, (int, float)):
            return value
        code = _typed_code(argument) or ""
        if isinstance(value, float) or code in FLOATS.values():
            try:
                struct.pack("<" + (code or FLOATS[argument.size_bytes]), value)
            except (struct.error, OverflowError) as error:
                raise ValueError(
                    f"{self._label(number)}: {value!r} does not fit {argument.size_bytes} bytes"
                ) from error
            return value
        bits = 8 * argument.size_bytes
        signed = argument.kind == BY_VALUE and not code.isupper()
        least = -1 << bits - 1 if signed else 0
        most = (1 << bits - 1) - 1 if code.islower() else (1 << bits) - 1
        if not least <= value <= most:
            raise ValueError(f"{self._label(number)} is {value}, outside {least} to {most}")
        return value if code else value & (1 << bits) - 1

    def _lay_out_lds(self, args: Sequence[Any]) -> tuple[list[int], int]:
        """Return where in LDS each dynamic array begins, after the static ones, and where the last one ends."""
        starts, end = [], self.kernel.lds_bytes
        for number in self._dynamic:
            if args[number] < 0:
                raise ValueError(f"{self._label(number)} is {args[number]} bytes of LDS")
            end += -end % self.arguments[number].pointee_align
            starts.append(end)
            end += args[number]
        return starts, end

    def _place_in_lds(self, values: list[Any], launch: Launch) -> None:
        starts, end = self._lay_out_lds(values)
        if end > self.kernel.lds_bytes + launch.dynamic_lds_bytes:
            raise ValueError(
                f"{self.kernel.name}: its arrays in LDS need {end - self.kernel.lds_bytes} dynamic bytes,"
                f" the launch brings {launch.dynamic_lds_bytes}"
            )
        for number, start in zip(self._dynamic, starts, strict=True):
            values[number] = start

    def _hidden_value(self, kind: str, launch: Launch) -> int:
        known = HIDDEN_VALUES.get(kind)
        return known(launch) if known else self._services[kind]


def _typed_code(argument: Argument) -> str | None:
    """Return the struct code of an argument whose type is known and has the argument's size, else None."""
    code = OPENCL_CODES.get(argument.type_name)
    return code if code and CODE_BYTES[code] == argument.size_bytes else None


def _gpu_va(value: Any) -> int:
    address: int = value.gpu_va
    return address


def _item(value: Any) -> Any:
    return value.item()
