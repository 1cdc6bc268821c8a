"""Kernels for NVIDIA's cards from Python: a method for each instruction, operands as text.

code = Code("sm_86", "add_one", registers=8, parameters=(8,))
code.S2R("R0, SR_TID.X", write=0)
code.IMAD.WIDE.U32("R2, R0, 0x4, R2", wait=(0,), stall=5)
code.label("done")
code.EXIT()
image = code.cubin()
"""

from __future__ import annotations

from collections.abc import Iterable

from ringup.compiler.isa.sass import assembly, cubin_write
from ringup.compiler.isa.sass.control import NONE, Control
from ringup.compiler.isa.sass.cubin import Generation, Kernel


class Code:
    """One kernel as it is written. Sizes are in bytes; `parameters`: the size of each."""

    def __init__(
        self,
        chip: str,
        name: str,
        *,
        registers: int,
        parameters: Iterable[int] = (),
        barriers: int = 0,
        shared_bytes: int = 0,
    ) -> None:
        self.chip = chip
        sizes = {".registers": registers, ".barriers": barriers, ".shared": shared_bytes}
        self._lines = [f".target {chip}", f".kernel {name}"]
        self._lines += [f"{directive} {value}" for directive, value in sizes.items() if value]
        self._lines += [f".parameter {size}" for size in parameters]

    def __getattr__(self, mnemonic: str) -> Emitter:
        """Return what writes an instruction of that name; its own attributes are modifiers."""
        if not mnemonic.isupper():
            raise AttributeError(mnemonic)
        return Emitter(self, mnemonic)

    def label(self, name: str) -> None:
        """Name the place of the next instruction."""
        self._lines.append(f"{name}:")

    def emit(self, text: str, control: Control) -> None:
        """Write one instruction."""
        self._lines.append(f"{control.text()} {text}")

    @property
    def source(self) -> str:
        """Return the kernel as the assembler reads it."""
        return "\n".join(self._lines) + "\n"

    def kernel(self) -> Kernel:
        """Return the assembled kernel. Raises `CompileError` with the lines of `source` that are wrong."""
        return assembly.assemble(self.source, "the kernel").kernels[0]

    def cubin(self, generation: Generation = Generation.CUDA_12) -> bytes:
        """Return a cubin with the kernel."""
        return cubin_write.write([self.kernel()], self.chip, generation)


class Emitter:
    """An instruction's name and modifiers; a call writes it."""

    def __init__(self, code: Code, head: str) -> None:
        self._code, self._head = code, head

    def __getattr__(self, modifier: str) -> Emitter:
        """Return the same with one more modifier."""
        if modifier.startswith("__"):
            raise AttributeError(modifier)
        # A name of Python cannot begin with a digit.
        return Emitter(self._code, f"{self._head}.{modifier.removeprefix('_')}")

    def __call__(
        self,
        operands: str = "",
        *,
        guard: str = "",
        stall: int = 1,
        stay: bool = False,
        write: int = NONE,
        read: int = NONE,
        wait: Iterable[int] = (),
    ) -> None:
        """Write it. `guard`: a predicate such as !P0; `write` and `read`: scoreboards that are released when the result
        is written and the sources are read; `wait`: the scoreboards that it waits for.
        """
        text = " ".join(part for part in (f"@{guard}" if guard else "", self._head, operands) if part)
        self._code.emit(text, Control(stall, int(stay), write, read, sum(1 << each for each in wait)))
