"""Turns whole programs back into text that assembles to the same bytes: labels at branch targets, symbols, descriptors
as directives, metadata.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ringup.compiler.isa.amd.assembly.assembler import Assembler
from ringup.compiler.isa.amd.assembly.directives import MAX_SOURCE
from ringup.compiler.isa.amd.encoding.decode import Instruction
from ringup.compiler.isa.amd.encoding.processor import Processor, processor
from ringup.compiler.isa.amd.encoding.target import LIMITS
from ringup.compiler.isa.amd.objects import descriptor, metadata
from ringup.compiler.isa.amd.objects.elf_read import ElfSymbol, Object
from ringup.compiler.isa.common.lexer import AssemblyError
from ringup.compiler.isa.common.program import TEXT
from ringup.errors import CompileError

# From this many equal dwords in a row on, they become one .fill.
FILL_FROM = 4
# The column of comments.
COLUMN = 56
GLOBAL = (1, 2)
# STT_FUNC.
FUNCTION = 2


class Row(NamedTuple):
    """One line of code: its offset, its bytes, the text that assembles to them, and a remark."""

    offset: int
    data: bytes
    text: str
    remark: str = ""


class Listing:
    """The disassembled code of one section. `labels` maps byte offsets to names."""

    def __init__(
        self,
        machine: Processor,
        code: bytes,
        names: Mapping[int, str] | None = None,
        sources: Mapping[int, str] | None = None,
    ) -> None:
        self.machine, self.sources = machine, dict(sources or {})
        self.labels = dict(names or {})
        self._assembler = Assembler(machine)
        self._checked: dict[str, bytes | None] = {}
        found = list(machine.walk(code))
        self.unused_sources = self._assembler.unused_sources = _unused_sources(code, found)
        starts = {offset for offset, _ in found}
        for offset, instruction in found:
            target = branch_target(offset, instruction)
            if target is not None and target in starts | {len(code)} and target not in self.labels:
                self.labels[target] = f".L{target:x}"
        self.rows = tuple(self._fills(list(self._rows(code, found))))

    def _rows(self, code: bytes, found: Sequence[tuple[int, Instruction | None]]) -> Iterator[Row]:
        for offset, instruction in found:
            if instruction is None:
                piece = code[offset : offset + 4]
                if len(piece) < 4:
                    yield Row(offset, piece, f".byte {', '.join(f'{byte:#04x}' for byte in piece)}", "cut short")
                else:
                    yield Row(offset, piece, f".long {int.from_bytes(piece, 'little'):#010x}", "no instruction")
                continue
            piece = code[offset : offset + instruction.size_bytes]
            text = self.machine.text(instruction)
            if self._assembles_to(text) != piece:
                words = ", ".join(
                    f"{int.from_bytes(piece[i : i + 4], 'little'):#010x}" for i in range(0, len(piece), 4)
                )
                yield Row(offset, piece, f".long {words}", f"{text}, with bits that its text does not say")
                continue
            target = branch_target(offset, instruction)
            if target in self.labels:
                text = f"{text.rpartition(' ')[0]} {self.labels[target]}"
            yield Row(offset, piece, text)

    def _assembles_to(self, text: str) -> bytes | None:
        if text not in self._checked:
            try:
                self._checked[text] = self._assembler.instruction_bytes(text)
            except AssemblyError:
                self._checked[text] = None
        return self._checked[text]

    def _fills(self, rows: list[Row]) -> Iterator[Row]:
        """Yield the rows, with long repetitions of one dword replaced by a `.fill`. A row with a label is not merged
        into the one before.
        """
        i = 0
        while i < len(rows):
            j = i
            while (
                j < len(rows)
                and rows[j].data == rows[i].data
                and len(rows[i].data) == 4
                and (j == i or rows[j].offset not in self.labels)
            ):
                j += 1
            if j - i >= FILL_FROM:
                word = int.from_bytes(rows[i].data, "little")
                remark = rows[i].text if not rows[i].text.startswith(".long") else rows[i].remark
                yield Row(rows[i].offset, rows[i].data * (j - i), f".fill {j - i}, 4, {word:#010x}", remark)
            else:
                yield from rows[i : max(j, i + 1)]
            i = max(j, i + 1)

    def lines(self, *, places: bool = True) -> Iterator[str]:
        """Yield the text, with offsets and words as comments if `places`."""
        if self.unused_sources:
            yield f"  .unused_sources {self.unused_sources}"
        for row in self.rows:
            if row.offset in self.labels:
                yield f"{self.labels[row.offset]}:"
            if row.offset in self.sources and places:
                yield f"  // {self.sources[row.offset]}"
            line = f"  {row.text}"
            remarks = []
            if places:
                words = " ".join(
                    f"{int.from_bytes(row.data[i : i + 4], 'little'):08x}" for i in range(0, min(len(row.data), 20), 4)
                )
                remarks.append(f"{row.offset:06x}: {words}")
            remarks += [row.remark] if row.remark else []
            yield f"{line:{COLUMN}} // {'; '.join(remarks)}" if remarks else line
        end = self.rows[-1].offset + len(self.rows[-1].data) if self.rows else 0
        if end in self.labels:
            yield f"{self.labels[end]}:"


def _unused_sources(code: bytes, found: Sequence[tuple[int, Instruction | None]]) -> int:
    """Return the most frequent value of source fields that instructions have no operand for.

    Compilers newer than LLVM 22 write the code of the constant 0 there for gfx11 and gfx12; older ones write zeros.
    """
    counts: Counter[int] = Counter()
    for offset, instruction in found:
        if instruction is not None and instruction.second is None:
            word = int.from_bytes(code[offset : offset + 8], "little")
            counts.update(word >> place & MAX_SOURCE for place in instruction.form.unused_sources)
    return max(counts, key=counts.__getitem__, default=0)


def branch_target(offset: int, instruction: Instruction | None) -> int | None:
    """Return the byte that a branch or call at `offset` goes to, None for other instructions."""
    if instruction is None or instruction.second is not None:
        return None
    for slot, operand in zip(instruction.form.slots, instruction.operands, strict=False):
        if slot.codec == "imm" and "L" in slot.kinds and isinstance(operand, int):
            return offset + 4 + 4 * (operand - (operand >> 15 << 16))
    return None


def of_object(found: Object, kernel: str = "") -> tuple[Processor, Listing]:
    """Return the code of a code object, or of one of its kernels. The wave size is that kernel's, or the first
    kernel's.
    """
    limits = LIMITS[found.processor]
    wave = limits.wave_sizes[0]
    for data in [found.descriptors[kernel]] if kernel else found.descriptors.values():
        try:
            given, _ = descriptor.read(data, limits)
        except CompileError:
            continue
        if 32 in limits.wave_sizes and not given.get("wavefront_size32"):
            wave = 64
        break
    machine = processor(found.processor, wave)
    section = found.sections.get(TEXT)
    code = section.data if section else b""
    names = {symbol.offset: symbol.name for symbol in reversed(_text_symbols(found))}
    if not kernel:
        return machine, Listing(machine, code, names, found.lines)
    start, end = _extent(found, kernel, len(code))
    names = {offset - start: name for offset, name in names.items() if start <= offset < end}
    lines = {offset - start: line for offset, line in found.lines.items() if start <= offset < end}
    return machine, Listing(machine, code[start:end], names, lines)


def _extent(found: Object, kernel: str, end: int) -> tuple[int, int]:
    """Return the start and the end of a kernel's code. The end comes from its symbol's size, else from the next
    function.
    """
    functions = [symbol for symbol in found.symbols if symbol.section == TEXT and symbol.kind in (0, FUNCTION)]
    own = next((symbol for symbol in functions if symbol.name == kernel), None)
    if own is None:
        raise CompileError(f"kernel {kernel} has a descriptor and no code under its name")
    following = min(
        (symbol.offset for symbol in functions if symbol.offset > own.offset and symbol.kind == FUNCTION), default=end
    )
    return own.offset, min(own.offset + own.size_bytes if own.size_bytes else following, end)


def _text_symbols(found: Object) -> list[ElfSymbol]:
    def usable(name: str) -> bool:
        return (
            bool(name)
            and name.replace("_", "a").replace(".", "a").replace("$", "a").isalnum()
            and not name[0].isdigit()
        )

    return [symbol for symbol in found.symbols if symbol.section == TEXT and usable(symbol.name)]


def object_lines(found: Object, *, places: bool = True) -> Iterator[str]:
    """Yield a whole code object as text that assembles to the same code, kernels and metadata."""
    _, listing = of_object(found)
    limits = LIMITS[found.processor]
    yield f'.amdgcn_target "amdgcn-amd-amdhsa--{found.processor}"'
    yield ".text"
    for symbol in _text_symbols(found):
        if symbol.binding in GLOBAL:
            yield f"{'.globl' if symbol.binding == 1 else '.weak'} {symbol.name}"
        if symbol.kind == FUNCTION and symbol.binding in GLOBAL:
            yield f".type {symbol.name},@function"
    yield ".p2align 8"
    yield from listing.lines(places=places)
    for name, data in found.descriptors.items():
        yield ""
        try:
            given, _ = descriptor.read(data, limits)
        except CompileError as error:
            yield f"// kernel {name}: {error}: {data.hex(' ', 4)}"
            continue
        yield from descriptor.lines(name, given, limits)
    if found.metadata:
        yield ""
        yield ".amdgpu_metadata"
        yield "---"
        yield from metadata.write_yaml(found.metadata)
        yield "..."
        yield ".end_amdgpu_metadata"


def document(listing: Listing) -> list[dict[str, Any]]:
    """Return the rows of a listing as plain values."""
    return [
        {"offset": row.offset, "bytes": row.data.hex(), "text": row.text}
        | ({"label": listing.labels[row.offset]} if row.offset in listing.labels else {})
        | ({"remark": row.remark} if row.remark else {})
        | ({"source": listing.sources[row.offset]} if row.offset in listing.sources else {})
        for row in listing.rows
    ]
