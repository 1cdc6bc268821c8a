"""Directives of assembly text: sections, symbols, data, kernels, metadata."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

from ringup.compiler.isa.amd.objects import metadata
from ringup.compiler.isa.amd.objects.descriptor import check_directive
from ringup.compiler.isa.common import expression
from ringup.compiler.isa.common.lexer import Complaint, Reader
from ringup.compiler.isa.common.macros import Line
from ringup.compiler.isa.common.program import FILL, TEXT, Kernel
from ringup.errors import CompileError

if TYPE_CHECKING:
    from ringup.compiler.isa.amd.assembly.assembler import Assembler

NUMBERS = {
    ".byte": 1, ".short": 2, ".2byte": 2, ".hword": 2, ".half": 2, ".long": 4, ".4byte": 4, ".int": 4, ".word": 4, ".quad": 8, ".8byte": 8,
}  # fmt: skip
FLOATS = {".float": "<f", ".single": "<f", ".double": "<d"}
# Directives without effect on the code object.
IGNORED = frozenset((
    ".ident", ".file", ".loc", ".cfi_startproc", ".cfi_endproc", ".cfi_sections", ".addrsig", ".addrsig_sym", ".amdgpu_hsa_kernel",
    ".build_version", ".previous", ".popsection", ".end",
))  # fmt: skip
# Nine bits.
MAX_SOURCE = 511
MAX_ALIGN, MAX_FILL = 1 << 16, 1 << 28


class Directives:
    """Executes directives for an assembler. `kernel` is the one whose descriptor is open."""

    def __init__(self, assembler: Assembler) -> None:
        self._asm = assembler
        self.kernel: Kernel | None = None
        self._kernel_line = Line(0, "")
        self._table: dict[str, Callable[[Reader], None]] = {
            ".text": lambda _: self._enter(TEXT), ".section": self._section, ".rodata": lambda _: self._enter(".rodata"),
            ".data": lambda _: self._enter(".data"), ".globl": self._binding("global"), ".global": self._binding("global"),
            ".weak": self._binding("weak"), ".local": self._binding("local"), ".hidden": self._visibility("hidden"),
            ".protected": self._visibility("protected"), ".internal": self._visibility("internal"), ".type": self._type, ".size": self._size,
            ".set": self._set, ".equ": self._set, ".p2align": self._power_align, ".align": self._align, ".balign": self._align,
            ".fill": self._fill, ".space": self._space, ".zero": self._space, ".skip": self._space, ".org": self._org,
            ".ascii": self._ascii, ".asciz": self._asciz, ".string": self._asciz,
            ".amdgcn_target": self._target, ".amdhsa_code_object_version": self._version,
            ".unused_sources": self._unused_sources, ".amdhsa_kernel": self._open_kernel, ".end_amdhsa_kernel": self._close_kernel,
        }  # fmt: skip

    def run(self, reader: Reader, line: Line) -> None:
        """Execute one directive."""
        token = reader.next()
        name = token.text
        if self.kernel is not None and name != ".end_amdhsa_kernel":
            self._kernel_directive(name, reader, token.at)
            return
        if name in IGNORED or name.startswith(".cfi_"):
            return
        if name in NUMBERS:
            self._numbers(reader, NUMBERS[name], line)
        elif name in FLOATS:
            self._floats(reader, FLOATS[name])
        elif name in self._table:
            if name == ".amdhsa_kernel":
                self._kernel_line = line
            self._table[name](reader)
            if name in (".section", ".type", ".amdgcn_target"):
                return
        else:
            raise Complaint(
                f"no directive {name}; there are {', '.join(sorted((*self._table, *NUMBERS, *FLOATS)))}", token.at
            )
        if not reader.done:
            raise Complaint(f"expected the end of the line, not {reader.token.text!r}", reader.token.at)

    def close(self) -> None:
        """Report a kernel that is still open at the end of the text."""
        if self.kernel is not None:
            self._asm._error(".amdhsa_kernel is never closed by .end_amdhsa_kernel", self._kernel_line, 0)

    def finish(self) -> None:
        """Check kernels against the labels of the whole text."""
        for kernel in self._asm.program.kernels:
            symbol = self._asm.program.symbols.get(kernel.name)
            if symbol is None or symbol.value is None or symbol.value.section != TEXT:
                self._asm._error(f"kernel {kernel.name} has no label {kernel.name}: in the text", self._kernel_line, 0)

    def metadata_block(self, lines: list[Line]) -> None:
        """Read the lines between `.amdgpu_metadata` and its end."""
        try:
            self._asm.program.metadata = metadata.read_yaml([line.text for line in lines])
        except CompileError as error:
            raise Complaint(str(error), 0) from None

    def _enter(self, name: str) -> None:
        self._asm.section = name

    def _section(self, reader: Reader) -> None:
        token = reader.token
        if token.kind == "string":
            self._enter(token.text[1:-1])
        else:
            self._enter(reader.name("a section's name").text)
        self._asm.program.sections.setdefault(self._asm.section, bytearray())

    def _binding(self, binding: str) -> Callable[[Reader], None]:
        def run(reader: Reader) -> None:
            while True:
                self._asm.program.symbol(reader.name("a symbol").text).binding = binding
                if not reader.take(","):
                    return

        return run

    def _visibility(self, visibility: str) -> Callable[[Reader], None]:
        def run(reader: Reader) -> None:
            while True:
                self._asm.program.symbol(reader.name("a symbol").text).visibility = visibility
                if not reader.take(","):
                    return

        return run

    def _type(self, reader: Reader) -> None:
        name = reader.name("a symbol").text
        reader.take(",")
        if not (reader.take("@") or reader.take("%")) and reader.token.kind == "string":
            text = reader.next().text[1:-1]
        else:
            text = reader.name("@function or @object").text
        self._asm.program.symbol(name).kind = {"function": "func", "object": "object"}.get(text.lstrip("@").lower(), "")

    def _size(self, reader: Reader) -> None:
        name = reader.name("a symbol").text
        reader.expect(",")
        self._asm.program.symbol(name).size_bytes = self._number(reader)

    def _set(self, reader: Reader) -> None:
        name = reader.name("a symbol").text
        reader.expect(",")
        self._asm.assign(name, reader)

    def _number(self, reader: Reader) -> int:
        at = reader.token.at
        value = expression.parse(reader).value(self._asm.lookup)
        if value.section:
            raise Complaint("a number is needed here, not a place in a section", at)
        return value.number

    def _numbers(self, reader: Reader, size_bytes: int, line: Line) -> None:
        from ringup.compiler.isa.amd.assembly.assembler import Fixup

        while not reader.done:
            value = expression.parse(reader)
            data = self._asm.data
            if value.symbols:
                self._asm.fixups.append(Fixup(self._asm.section, len(data), size_bytes, line, None, value))
                data.extend(bytes(size_bytes))
            else:
                data.extend(self._asm.number_bytes(value.value(self._asm.lookup).number, size_bytes, value.at))
            if not reader.take(","):
                return

    def _floats(self, reader: Reader, layout: str) -> None:
        while not reader.done:
            sign = -1.0 if reader.take("-") else 1.0
            token = reader.next()
            try:
                self._asm.data.extend(struct.pack(layout, sign * float(token.text)))
            except (ValueError, OverflowError):
                raise Complaint(f"{token.text!r} is not a number of this size", token.at) from None
            if not reader.take(","):
                return

    def _ascii(self, reader: Reader, end: bytes = b"") -> None:
        while True:
            token = reader.next()
            if token.kind != "string":
                raise Complaint("expected a string in quotes", token.at)
            plain = token.text[1:-1].encode().decode("unicode_escape").encode("latin-1", "replace")
            self._asm.data.extend(plain + end)
            if not reader.take(","):
                return

    def _asciz(self, reader: Reader) -> None:
        self._ascii(reader, b"\0")

    def _pad(self, count: int, unit: bytes) -> None:
        if not 0 <= count <= MAX_FILL:
            raise Complaint(f"{count} bytes of fill: at most {MAX_FILL}", 0)
        self._asm.data.extend((unit * (count // len(unit) + 1))[:count])

    def _align(self, reader: Reader, power: bool = False) -> None:
        at = reader.token.at
        amount = self._number(reader)
        align = 1 << amount if power and 0 <= amount < 32 else amount
        if align <= 0 or align & align - 1 or align > MAX_ALIGN:
            raise Complaint(f"{amount}: an alignment is a power of two up to {MAX_ALIGN}", at)
        unit = FILL.get(self._asm.section, b"\0")
        if reader.take(",") and not reader.at(",") and not reader.done:
            unit = bytes((self._number(reader) & 0xFF,))
        most = self._number(reader) if reader.take(",") else MAX_ALIGN
        data = self._asm.data
        gap = -len(data) % align
        aligns = self._asm.program.aligns
        aligns[self._asm.section] = max(aligns.get(self._asm.section, 1), align)
        if gap <= most:
            odd = gap % len(unit)
            self._pad(odd, b"\0")
            self._pad(gap - odd, unit)

    def _power_align(self, reader: Reader) -> None:
        self._align(reader, power=True)

    def _fill(self, reader: Reader) -> None:
        count = self._number(reader)
        size = self._number(reader) if reader.take(",") else 1
        value = self._number(reader) if reader.take(",") else 0
        if not 1 <= size <= 8:
            raise Complaint(f".fill of {size} bytes each: 1 to 8", reader.token.at)
        self._pad(count * size, (value & (1 << 8 * size) - 1).to_bytes(size, "little"))

    def _space(self, reader: Reader) -> None:
        count = self._number(reader)
        value = self._number(reader) if reader.take(",") else 0
        self._pad(count, bytes((value & 0xFF,)))

    def _org(self, reader: Reader) -> None:
        at = reader.token.at
        value = expression.parse(reader).value(self._asm.lookup)
        gap = value.number - len(self._asm.data)
        if gap < 0:
            raise Complaint(f".org {value.number:#x} is {-gap} bytes before the current place", at)
        self._pad(gap, b"\0")

    def _target(self, reader: Reader) -> None:
        token = reader.token
        text = token.text.strip('"')
        name = text.rpartition("--")[2].split(":")[0]
        if name != self._asm.machine.name:
            raise Complaint(f"the text is for {name}; it is assembled for {self._asm.machine.name}", token.at)

    def _unused_sources(self, reader: Reader) -> None:
        """Set the value of source fields that instructions have no operand for, from here on: 0, or 128 as newer
        compilers write.
        """
        at = reader.token.at
        code = self._number(reader)
        if not 0 <= code <= MAX_SOURCE:
            raise Complaint(f"{code} is not a code of a source operand: 0 to {MAX_SOURCE}", at)
        self._asm.unused_sources = code

    def _version(self, reader: Reader) -> None:
        at = reader.token.at
        version = self._number(reader)
        if version not in (4, 5, 6):
            raise Complaint(f"code object version {version}: 5 is written", at)

    def _open_kernel(self, reader: Reader) -> None:
        name = reader.name("a kernel's name").text
        if any(kernel.name == name for kernel in self._asm.program.kernels):
            raise Complaint(f"kernel {name} is described twice", reader.token.at)
        self.kernel = Kernel(name)

    def _close_kernel(self, reader: Reader) -> None:
        if self.kernel is None:
            raise Complaint(".end_amdhsa_kernel without .amdhsa_kernel", 0)
        self._asm.program.kernels.append(self.kernel)
        missing = [name for name in ("next_free_vgpr", "next_free_sgpr") if name not in self.kernel.directives]
        self.kernel = None
        if missing and not self._asm.errors:
            raise Complaint(f"a kernel needs .amdhsa_{' and .amdhsa_'.join(missing)}", 0)

    def _kernel_directive(self, name: str, reader: Reader, at: int) -> None:
        assert self.kernel is not None
        plain = name.removeprefix(".amdhsa_")
        if plain == name:
            raise Complaint(f"{name} between .amdhsa_kernel and .end_amdhsa_kernel", at)
        if plain in self.kernel.directives:
            raise Complaint(f"{name} is given twice", at)
        value_at = reader.token.at
        value = self._number(reader)
        try:
            check_directive(plain, value, self._asm.machine.limits)
        except CompileError as error:
            raise Complaint(str(error), at if "no directive" in str(error) else value_at) from None
        self.kernel.directives[plain] = value
