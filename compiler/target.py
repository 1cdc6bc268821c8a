"""The interface between compiling and a processor of any vendor, and the lookup of processors by name.

A vendor's folder (`compiler/amd`) has a `TARGETS` whose values have the shape of `Target`. Nothing else of it is
imported from outside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from ringup.compiler.amd.target import TARGETS as RDNA
from ringup.compiler.kernel.common.traits import Traits
from ringup.compiler.machine.ir import Function
from ringup.errors import CompileError

DEFAULT: Final = "gfx1100"
# The name of a pass, and the kernel's text after it.
Show = Callable[[str, str], None]


class Binary(Protocol):
    """One kernel as machine code, hashable. Equal ones have the same code and the same name.

    Counts are per lane (VGPRs, scratch), per wave (SGPRs) or per group (LDS, `group_size` threads). `occupancy`: waves
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
    """The cost of one launch by the model of its target. `cycles` is the larger of `compute_cycles` and
    `memory_cycles`.

    `resident`: waves of a SIMD. `rounds`: how often the compute units are filled. `bound`: what limits the launch.
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
    """A processor at its rated clock: product name, MHz, bytes per second from memory."""

    @property
    def name(self) -> str: ...

    @property
    def mhz(self) -> int: ...

    @property
    def memory_bytes_s(self) -> float: ...


class Target(Protocol):
    """One processor. `family` names its instruction set. `generate` returns the finished instructions, whose form only
    this object's methods know, and the machine code.
    """

    @property
    def name(self) -> str: ...

    @property
    def family(self) -> str: ...

    @property
    def traits(self) -> Traits:
        """Return the properties that lowerings depend on, including the limits of a group."""
        ...

    @property
    def chip(self) -> Chip:
        """Return the figures of the cost model."""
        ...

    def generate(self, function: Function, show: Show | None = None) -> tuple[Any, Binary]:
        """Select instructions and run all passes. Raises CompileError for what cannot be compiled."""
        ...

    def release(self, code: Any) -> None:
        """Free the instructions, so that the garbage collector need not. They must not be used afterwards."""
        ...

    def cost(self, code: Any, binary: Any, function: Function, groups: int, bytes_moved: int) -> Cost:
        """Estimate a launch of `groups` groups that moves `bytes_moved` between memory and the chip."""
        ...

    def code_object(self, binaries: Sequence[Any]) -> bytes:
        """Return the kernels as a code object that a card of this kind loads."""
        ...

    def assembly(self, binary: Any) -> list[str]:
        """Return machine code as text that can be assembled again, without the padding at its end."""
        ...


TARGETS: Final[Mapping[str, Target]] = {**RDNA}


def target(name: str) -> Target:
    """Return the target of that name. Raises CompileError if there is none."""
    found = TARGETS.get(name)
    if found is None:
        raise CompileError(f"tensors cannot be compiled for {name}; supported: {', '.join(TARGETS)}")
    return found
