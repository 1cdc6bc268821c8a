"""What compiling wants of a processor, whoever made it, and where processors are found by name.

A vendor's folder (`compiler/rdna`) has a `TARGETS` whose values have the shape of `Target`. Nothing else of it is
imported from outside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from ringup.compiler.kernel.common.traits import Traits
from ringup.compiler.machine.ir import Function
from ringup.compiler.rdna.target import TARGETS as RDNA
from ringup.errors import CompileError

DEFAULT: Final = "gfx1100"
Show = Callable[[str, str], None]  # a pass, the kernel's text after it


class Binary(Protocol):
    """One kernel as machine code, hashable; equal ones are the same code under the same name.

    Counts are of a lane (VGPRs, scratch), a wave (SGPRs) or a group (LDS, `group_size` threads). `occupancy`: waves
    that fit on a SIMD.
    """

    @property
    def name(self) -> str: ...

    @property
    def target(self) -> str: ...

    @property
    def code(self) -> bytes: ...

    @property
    def instructions(self) -> int: ...

    @property
    def group_size(self) -> int: ...

    @property
    def wave_size(self) -> int: ...

    @property
    def vgprs(self) -> int: ...

    @property
    def sgprs(self) -> int: ...

    @property
    def lds_bytes(self) -> int: ...

    @property
    def scratch_bytes(self) -> int: ...

    @property
    def occupancy(self) -> int: ...


class Cost(Protocol):
    """What one launch costs by the model of its target. `cycles` is the larger of `compute_cycles` and `memory_cycles`.

    `resident` counts waves of a SIMD, `rounds` how often compute units are filled; `bound` says what limits the launch.
    """

    @property
    def cycles(self) -> int: ...

    @property
    def compute_cycles(self) -> int: ...

    @property
    def memory_cycles(self) -> int: ...

    @property
    def microseconds(self) -> float: ...

    @property
    def flops(self) -> int: ...

    @property
    def bytes_moved(self) -> int: ...

    @property
    def intensity(self) -> float: ...

    @property
    def resident(self) -> int: ...

    @property
    def rounds(self) -> int: ...

    @property
    def bound(self) -> str: ...


class Chip(Protocol):
    """A processor at its rated clock: what it is sold as, MHz, bytes a second from memory."""

    @property
    def name(self) -> str: ...

    @property
    def mhz(self) -> int: ...

    @property
    def memory_bytes_s(self) -> float: ...


class Target(Protocol):
    """One processor. `family` names its instructions; what `generate` returns beside the machine code is the finished
    instructions, whose form its own methods know.
    """

    @property
    def name(self) -> str: ...

    @property
    def family(self) -> str: ...

    @property
    def traits(self) -> Traits:
        """Return what kernels are shaped by, and what a group may have at most."""
        ...

    @property
    def chip(self) -> Chip:
        """Return the figures that costs are modelled with."""
        ...

    def generate(self, function: Function, show: Show | None = None) -> tuple[Any, Binary]:
        """Select instructions and run all passes. Raises CompileError for what cannot be compiled."""
        ...

    def release(self, code: Any) -> None:
        """Let go of instructions that nobody wants any more, so that the collector finds nothing of them."""
        ...

    def cost(self, code: Any, binary: Any, function: Function, groups: int, bytes_moved: int) -> Cost:
        """Estimate a launch of so many groups, which moves so many bytes between memory and the chip."""
        ...

    def code_object(self, binaries: Sequence[Any]) -> bytes:
        """Return the kernels as the program container that a card of this kind loads."""
        ...

    def assembly(self, binary: Any) -> list[str]:
        """Return machine code as text that assembles again, without what pads its end."""
        ...


TARGETS: Final[Mapping[str, Target]] = {**RDNA}


def target(name: str) -> Target:
    """Return the target of that name; one there is none for is a CompileError."""
    found = TARGETS.get(name)
    if found is None:
        raise CompileError(f"tensors cannot be compiled for {name}; there is {', '.join(TARGETS)}")
    return found
