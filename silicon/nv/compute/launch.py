"""What the front end asks of the shader cores: one grid, described by one launch.

Sources: cl*c0qmd.h and cl*c0.h of open-gpu-doc (fields of the descriptor, methods of the compute classes).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ringup.errors import Unmodelled
from ringup.silicon.shader.common.state import Memory, Violation

Triple = tuple[int, int, int]


class Bank(NamedTuple):
    """A constant bank: bytes of memory that programs read by bank number and offset."""

    gpu_va: int
    size_bytes: int


class Pool(NamedTuple):
    """A table of texture headers or of samplers, 32 bytes each; `max_index` is the last one that may be used."""

    gpu_va: int
    max_index: int


NOTHING = Pool(0, 0)


@dataclass(frozen=True, slots=True)
class Windows:
    """State of the channel that a launch runs with.

    `shared` and `local` are the gpu_va of the windows of 16 MiB in which generic addresses reach shared and local
    memory. `local_base` is the gpu_va of the memory behind local memory, `local_bytes_per_sm` the part of each SM.
    """

    shared: int = 0
    local: int = 0
    local_base: int = 0
    local_bytes_per_sm: int = 0
    headers: Pool = NOTHING
    samplers: Pool = NOTHING


@dataclass(frozen=True, slots=True)
class Launch:
    """One grid. `grid` counts thread groups (CTAs), `block` the threads of a group, both x, y, z.

    `program` is the gpu_va of the first instruction. `registers` are those of a thread, `barriers` those of a group.
    `local_low_bytes` and `local_high_bytes` are what a thread has of local memory from the bottom and from the top.
    `constants` has an entry for each bank, None for one that is not valid. `linked_samplers`: a texture's header index
    selects its sampler too. `sequential`: groups run one after another, in order.
    """

    descriptor: int
    version: tuple[int, int]
    program: int
    grid: Triple
    block: Triple
    registers: int
    barriers: int
    shared_bytes: int
    local_low_bytes: int
    local_high_bytes: int
    constants: tuple[Bank | None, ...]
    sass_version: int
    linked_samplers: bool
    sequential: bool
    windows: Windows


class Run(Protocol):
    """A launch under way."""

    @property
    def instructions(self) -> int:
        """How many warp-instructions have been executed."""
        ...

    @property
    def violations(self) -> list[Violation]:
        """The violations so far. A launch with any never ends."""
        ...

    @property
    def waiting(self) -> bool:
        """Whether steps do nothing at present, because the run waits for background work."""
        ...

    @property
    def repeating(self) -> bool:
        """Whether the warps only wait for memory to change."""
        ...

    def step(self, instructions: int) -> bool:
        """Run up to about `instructions` warp-instructions; return True once every warp has ended."""
        ...

    def kill(self) -> None:
        """Drop all warps."""
        ...


class Core(Protocol):
    """The shader cores of a card."""

    def start(self, launch: Launch, memory: Memory) -> Run:
        """Begin a launch; nothing runs before the first `step`.

        `memory` raises `MemoryFault` after it has noted the fault for the channel. Raises `Unmodelled` for a launch
        that the cores lack, and `ValueError` for one that no core can start.
        """
        ...


class MissingCores:
    """Shader cores that a chip has and this model lacks. `name`: their instruction set, such as `sm_90`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def start(self, launch: Launch, memory: Memory) -> Run:
        """Refuse every launch. Raises `Unmodelled`."""
        raise Unmodelled(
            f"a launch of {launch.grid} groups at {launch.program:#x}: shader cores of {self._name} are not modelled"
        )
