"""RDNA processors as `compiler/target.py` wants them: selection, the passes, the container and the model behind one
object each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from ringup.compiler.isa.amd.assembly.disassembler import Listing
from ringup.compiler.isa.amd.encoding.processor import processor
from ringup.compiler.kernel.common.traits import Traits
from ringup.compiler.machine.ir import Function, Param
from ringup.compiler.rdna import roofline
from ringup.compiler.rdna.emit import Argument, Binary
from ringup.compiler.rdna.instructions.code import Code
from ringup.compiler.rdna.instructions.text import Printer
from ringup.compiler.rdna.instructions.traits import TRAITS, traits
from ringup.compiler.rdna.objects import object_of
from ringup.compiler.rdna.pipeline import finish
from ringup.compiler.rdna.select.function import select
from ringup.compiler.rdna.select.prologue import kernarg_layout


class RdnaTarget:
    """One RDNA processor."""

    family = "rdna"

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def traits(self) -> Traits:
        """Return what kernels are shaped by, and what a group may have at most."""
        return traits(self.name)

    @property
    def chip(self) -> roofline.Chip:
        """Return the figures that costs are modelled with."""
        return roofline.CHIPS[self.name]

    def generate(self, function: Function, show: Callable[[str, str], None] | None = None) -> tuple[Code, Binary]:
        """Select instructions and run all passes. Raises CompileError for what cannot be compiled."""
        code = select(function, self.name)
        arguments = arguments_of(function.params)
        if show is None:
            return code, finish(code, arguments=arguments)
        printer = Printer()
        show("select", printer.text(code))
        return code, finish(code, arguments=arguments, dump=lambda name, now: show(name, printer.text(now)))

    def release(self, code: Code) -> None:
        """Let go of instructions that nobody wants any more."""
        code.release()

    def cost(self, code: Code, binary: Binary, function: Function, groups: int, bytes_moved: int) -> roofline.Launch:
        """Estimate a launch of so many groups, which moves so many bytes between memory and the chip."""
        return roofline.launch(code, binary, function, groups, bytes_moved)

    def code_object(self, binaries: Sequence[Binary]) -> bytes:
        """Return the kernels as an ELF code object."""
        return object_of(binaries)

    def assembly(self, binary: Binary) -> list[str]:
        """Return machine code as text that assembles again, without what pads its end."""
        listing = Listing(processor(binary.target, binary.wave_size), binary.code)
        lines = [line.rstrip() for line in listing.lines(places=False)]
        while lines and lines[-1].endswith("s_code_end"):
            lines.pop()
        return lines


def arguments_of(params: Sequence[Param]) -> tuple[Argument, ...]:
    """Return a kernel's arguments as its metadata describes them."""
    offsets, _ = kernarg_layout(params)
    return tuple(
        Argument(one.name, offset, max(4, one.type.size_bytes), one.is_buffer)
        for one, offset in zip(params, offsets, strict=True)
    )


TARGETS: Final = {name: RdnaTarget(name) for name in TRAITS}
