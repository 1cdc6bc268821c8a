"""RDNA processors in the form of `compiler/target.py`: one object each for selection, the passes, the code object and
the model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from ringup.compiler.amd import roofline
from ringup.compiler.amd.emit import Argument, Binary
from ringup.compiler.amd.instructions.code import Code
from ringup.compiler.amd.instructions.text import Printer
from ringup.compiler.amd.instructions.traits import TRAITS, traits
from ringup.compiler.amd.objects import object_of
from ringup.compiler.amd.pipeline import finish
from ringup.compiler.amd.select.function import select
from ringup.compiler.amd.select.prologue import kernarg_layout
from ringup.compiler.isa.amd.assembly.disassembler import Listing
from ringup.compiler.isa.amd.encoding.processor import processor
from ringup.compiler.kernel.common.traits import Traits
from ringup.compiler.machine.ir import Function, Param


class RdnaTarget:
    """One RDNA processor."""

    family = "amd"

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def traits(self) -> Traits:
        """Return the properties that lowerings depend on, including the limits of a group."""
        return traits(self.name)

    @property
    def chip(self) -> roofline.Chip:
        """Return the figures of the cost model."""
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
        """Free the instructions. The code must not be used afterwards."""
        code.release()

    def cost(self, code: Code, binary: Binary, function: Function, groups: int, bytes_moved: int) -> roofline.Launch:
        """Estimate a launch of `groups` groups that moves `bytes_moved` between memory and the chip."""
        return roofline.launch(code, binary, function, groups, bytes_moved)

    def code_object(self, binaries: Sequence[Binary]) -> bytes:
        """Return the kernels as an ELF code object."""
        return object_of(binaries)

    def assembly(self, binary: Binary) -> list[str]:
        """Return machine code as text that can be assembled again, without the padding at its end."""
        listing = Listing(processor(binary.target, binary.wave_size), binary.code)
        lines = [line.rstrip() for line in listing.lines(places=False)]
        while lines and lines[-1].endswith("s_code_end"):
            lines.pop()
        return lines


def arguments_of(params: Sequence[Param]) -> tuple[Argument, ...]:
    """Return a kernel's arguments in the form of its metadata."""
    offsets, _ = kernarg_layout(params)
    return tuple(
        Argument(one.name, offset, max(4, one.type.size_bytes), one.is_buffer)
        for one, offset in zip(params, offsets, strict=True)
    )


TARGETS: Final = {name: RdnaTarget(name) for name in TRAITS}
