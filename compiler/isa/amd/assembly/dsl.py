"""Shader code written in Python: a method for every mnemonic, labels, kernels.

code = Code("gfx1100", waits=True)
code.s_load_b64(s[0:1], s[0:1], 0)
code.v_lshlrev_b32(v[0], 2, v[0])
code.global_load_b32(v[1], v[0], s[0:1])
code.v_add_f32(v[1], v[1], 1.0)
code.global_store_b32(v[0], v[1], s[0:1])
code.s_endpgm()
image = code.kernel("add_one", args=[("data", "ptr")])
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ringup.compiler.isa.amd.assembly.waits import Waits
from ringup.compiler.isa.amd.encoding.mnemonics import split_suffix
from ringup.compiler.isa.amd.encoding.processor import Processor, processor
from ringup.compiler.isa.amd.encoding.registers import Operand
from ringup.compiler.isa.amd.encoding.usage import registers_of
from ringup.compiler.isa.amd.objects import elf_write
from ringup.compiler.isa.common.expression import Value
from ringup.compiler.isa.common.program import FILL, TEXT, Kernel, Program
from ringup.errors import CompileError

# A method below hides the type under its own name.
Image = bytes
BRANCH_MIN, BRANCH_MAX = -0x8000, 0x7FFF
# For each type of argument: size in bytes, kind in the metadata.
ARGUMENT_TYPES = {
    "ptr": (8, "global_buffer"), "i8": (1, "by_value"), "u8": (1, "by_value"), "i16": (2, "by_value"), "u16": (2, "by_value"),
    "f16": (2, "by_value"), "i32": (4, "by_value"), "u32": (4, "by_value"), "f32": (4, "by_value"), "i64": (8, "by_value"),
    "u64": (8, "by_value"), "f64": (8, "by_value"),
}  # fmt: skip


class Label:
    """A place in code. Its `name` is for people."""

    __slots__ = ("name", "place")

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.place: int | None = None

    def __repr__(self) -> str:
        return f"Label({self.name or 'unnamed'})"


class _Branch(NamedTuple):
    at: int
    mnemonic: str
    operands: tuple[Any, ...]
    label: Label


class Code:
    """Shader code under construction. With `waits`, the waits that an instruction's operands need are inserted before
    it.
    """

    def __init__(self, target: str | Processor = "gfx1100", *, wave_size: int = 0, waits: bool = False) -> None:
        self.machine = target if isinstance(target, Processor) else processor(target, wave_size)
        self._bytes = bytearray()
        self._branches: list[_Branch] = []
        self._labels: list[Label] = []
        self._waits = Waits(self.machine.limits.generation) if waits else None
        self._highest: dict[str, int] = {}

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("_"):
            raise AttributeError(name)
        plain = name.removesuffix("_") if name in ("exp_",) else name
        machine = self.machine
        if not machine.forms(split_suffix(plain)[0]):
            close = machine.suggestions(split_suffix(plain)[0])
            hint = f"; did you mean {', '.join(close)}?" if close else ""
            raise AttributeError(f"{machine.name} has no instruction {plain}{hint}")

        def emit(*operands: Operand | Label, **modifiers: Any) -> None:
            self.emit(plain, *operands, **modifiers)

        emit.__name__ = plain
        return emit

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.machine.mnemonics]

    def __len__(self) -> int:
        return len(self._bytes)

    def emit(self, mnemonic: str, *operands: Operand | Label, **modifiers: Any) -> None:
        """Append one instruction. Raises `CompileError` with the operand that the encoding cannot hold."""
        labels = [operand for operand in operands if isinstance(operand, Label)]
        plain: list[Any] = [0 if isinstance(operand, Label) else operand for operand in operands]
        code = self.machine.encode(mnemonic, plain, **modifiers)
        if self._waits is not None:
            form = self.machine.form(mnemonic, plain, **modifiers)
            for name, wait in self._waits.before(form, plain, modifiers):
                self._bytes += self.machine.encode(name, wait)
        for operand in plain:
            for file, number in registers_of(operand):
                self._highest[file] = max(self._highest.get(file, -1), number)
        if labels:
            self._branches.append(_Branch(len(self._bytes), mnemonic, operands, labels[0]))
        self._bytes += code

    def dual(self, first: Sequence[Any], second: Sequence[Any]) -> None:
        """Append a dual instruction: two sequences, each a mnemonic and its operands."""
        if self._waits is not None:
            for half in (first, second):
                form = self.machine.forms(half[0])[0]
                for name, wait in self._waits.before(form, half[1:], {}):
                    self._bytes += self.machine.encode(name, wait)
        for half in (first, second):
            for operand in half[1:]:
                for file, number in registers_of(operand):
                    self._highest[file] = max(self._highest.get(file, -1), number)
        self._bytes += self.machine.encode_dual((first[0], first[1:]), (second[0], second[1:]))

    def label(self, name: str = "") -> Label:
        """Return a new label at this place."""
        return self.place(Label(name))

    def place(self, label: Label) -> Label:
        """Place a label here. Branches to it may come before and after."""
        if label.place is not None:
            raise CompileError(f"{label} has its place at byte {label.place} already")
        if self._waits is not None:
            for name, wait in self._waits.everything():
                self._bytes += self.machine.encode(name, wait)
        label.place = len(self._bytes)
        self._labels.append(label)
        return label

    def align(self, size_bytes: int) -> None:
        """Pad with s_nop to a multiple of `size_bytes`."""
        gap = -len(self._bytes) % size_bytes
        self._bytes += FILL[TEXT] * (gap // 4)

    def bytes(self) -> bytes:
        """Return the machine code with branches resolved."""
        made = bytearray(self._bytes)
        for branch in self._branches:
            if branch.label.place is None:
                raise CompileError(
                    f"{branch.mnemonic} at byte {branch.at:#x}: {branch.label} has no place; call place()"
                )
            units = (branch.label.place - branch.at - 4) // 4
            if not BRANCH_MIN <= units <= BRANCH_MAX:
                raise CompileError(
                    f"{branch.mnemonic} at byte {branch.at:#x}: {branch.label} is {units} dwords away, a branch reaches"
                    f" {BRANCH_MIN} to {BRANCH_MAX}"
                )
            code = self.machine.encode(
                branch.mnemonic, [units if isinstance(one, Label) else one for one in branch.operands]
            )
            made[branch.at : branch.at + len(code)] = code
        return bytes(made)

    def used(self, file: str) -> int:
        """Return how many registers of a file (v, a, s) the code uses: one more than the highest number."""
        return self._highest.get(file, -1) + 1

    def kernel(
        self,
        name: str,
        args: Sequence[tuple[str, str]] = (),
        *,
        lds_bytes: int = 0,
        scratch_bytes: int = 0,
        vgprs: int = 0,
        max_group_size: int = 1024,
        dimensions: int = 1,
        directives: Mapping[str, int] | None = None,
    ) -> Image:
        """Return a code object with this code as its only kernel.

        `args` are pairs of name and type (`ARGUMENT_TYPES`); the address of their segment is in s[0:1]. `dimensions`:
        how many workgroup ids and work-item ids the kernel uses (x; x, y; x, y, z). `directives` are further
        `.amdhsa_*` directives, without that prefix.
        """
        rows, offset = [], 0
        for argument, type_ in args:
            if type_ not in ARGUMENT_TYPES:
                raise CompileError(
                    f"argument {argument} of {name}: no type {type_}; there are {', '.join(ARGUMENT_TYPES)}"
                )
            size, kind = ARGUMENT_TYPES[type_]
            offset += -offset % size
            row: dict[str, Any] = {".name": argument, ".offset": offset, ".size": size, ".value_kind": kind}
            if type_ == "ptr":
                row[".address_space"] = "global"
            rows.append(row)
            offset += size
        given = {
            "kernarg_size": offset, "group_segment_fixed_size": lds_bytes, "private_segment_fixed_size": scratch_bytes,
            "enable_private_segment": int(scratch_bytes > 0), "user_sgpr_kernarg_segment_ptr": int(bool(args)),
            "system_sgpr_workgroup_id_x": 1, "system_sgpr_workgroup_id_y": int(dimensions > 1),
            "system_sgpr_workgroup_id_z": int(dimensions > 2),
            "system_vgpr_workitem_id": dimensions - 1, "next_free_vgpr": max(vgprs, self.used("v"), 1),
            "next_free_sgpr": min(self.used("s"), self.machine.limits.sgprs),
        }  # fmt: skip
        if 32 in self.machine.limits.wave_sizes:
            given["wavefront_size32"] = int(self.machine.wave_size == 32)
        if self.machine.limits.agprs:
            accum = -(-given["next_free_vgpr"] // 4) * 4
            given |= {"accum_offset": accum, "next_free_vgpr": accum + self.used("a")}
        given |= directives or {}
        program = Program(self.machine.name, self.machine.wave_size, {TEXT: bytearray(self.bytes())})
        program.symbol(name).value = Value(0, TEXT)
        program.kernels.append(Kernel(name, given))
        program.metadata = {
            "amdhsa.kernels": [
                {
                    ".name": name,
                    ".symbol": f"{name}.kd",
                    ".args": rows,
                    ".max_flat_workgroup_size": max_group_size,
                    ".kernarg_segment_size": offset,
                }
            ]
        }
        return elf_write.write(program)
