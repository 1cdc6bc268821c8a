"""The result of an assembler: bytes of sections, symbols, kernels. `elf_write` makes a code object of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ringup.compiler.isa.common.expression import Value

TEXT, RODATA = ".text", ".rodata"
# s_nop 0 fills gaps between code. Other sections are filled with zeros.
FILL = {TEXT: bytes.fromhex("000080bf")}


@dataclass
class Symbol:
    """A named place or number. `kind` is func, object or empty; `binding` is local, global or weak."""

    name: str
    value: Value | None = None
    binding: str = "local"
    visibility: str = "default"
    kind: str = ""
    size_bytes: int = 0


@dataclass
class Kernel:
    """One kernel: the symbol of its entry, and the directives of its descriptor (`descriptor.DIRECTIVES`)."""

    name: str
    directives: dict[str, int] = field(default_factory=dict)


@dataclass
class Program:
    """Assembled text for one processor and one wave size."""

    processor: str
    wave_size: int
    sections: dict[str, bytearray] = field(default_factory=dict)
    symbols: dict[str, Symbol] = field(default_factory=dict)
    kernels: list[Kernel] = field(default_factory=list)
    metadata: dict[str, Any] | None = None
    aligns: dict[str, int] = field(default_factory=dict)

    @property
    def text(self) -> bytes:
        """Return the machine code."""
        return bytes(self.sections.get(TEXT, b""))

    def symbol(self, name: str) -> Symbol:
        """Return the symbol of a name; create it if there is none."""
        return self.symbols.setdefault(name, Symbol(name))
