"""What an assembler makes: bytes of sections, symbols, kernels. A code object is written from it (`elf`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ringup.compiler.isa.common.expression import Value

TEXT, RODATA = ".text", ".rodata"
FILL = {TEXT: bytes.fromhex("000080bf")}  # s_nop 0 fills gaps between code; zeros elsewhere


@dataclass
class Symbol:
    """A named place or number; `kind` is func, object or empty, `binding` local, global or weak."""

    name: str
    value: Value | None = None
    binding: str = "local"
    visibility: str = "default"
    kind: str = ""
    size_bytes: int = 0


@dataclass
class Kernel:
    """One kernel: its entry's symbol, and what the directives of its descriptor say (`descriptor.DIRECTIVES`)."""

    name: str
    directives: dict[str, int] = field(default_factory=dict)


@dataclass
class Program:
    """Assembled text, for one processor and waves of one size."""

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
        """Return the symbol of a name, made if there is none."""
        return self.symbols.setdefault(name, Symbol(name))
