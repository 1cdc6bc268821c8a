"""What a queue needs of its hardware, on any engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from ringup.autogen.layout import Word

COMPUTE = -1  # the engine number of the graphics core; copy engines have theirs, from 0


class Position(NamedTuple):
    """The pointers of a queue into its ring, in bytes. `status`: more registers, by their name in a report. `behind`:
    which dies have not come as far as others that share the queue.
    """

    mapped: bool
    rptr_bytes: int
    wptr_bytes: int
    status: Mapping[str, Word]
    behind: str = ""


class Rings(Protocol):
    """A doorbell: tells a queue its new write pointer."""

    @property
    def ring(self) -> Callable[[int], None]:
        """Ring it with the pointer, in what it counts."""
        ...


class HardwareQueue(Protocol):
    """A queue of an engine, which runs the packets of a ring. `str()` names its place as registers do."""

    @property
    def engine_number(self) -> int:
        """The number of its copy engine, `COMPUTE` for the graphics core."""
        ...

    @property
    def engine_name(self) -> str:
        """Its engine, as messages name it."""
        ...

    def map(self) -> None:
        """Load the queue and let it run; its pointers start at 0."""
        ...

    def unmap(self) -> bool:
        """Unmap the queue. Return whether the work that it had begun has ended."""
        ...

    def reset(self) -> None:
        """Unmap the queue even if its work has not ended. Raises `DeviceHung` when it does not let go."""
        ...

    def position(self) -> Position:
        """Read where the queue stands."""
        ...
