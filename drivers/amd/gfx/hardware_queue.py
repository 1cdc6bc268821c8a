"""What a queue needs of its hardware, whichever engine it lies on: `Hqd` and `SdmaQueue` fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from ringup.autogen.layout import Word

COMPUTE = -1  # the engine number of the graphics core; copy engines have theirs, from 0


class Position(NamedTuple):
    """Where a queue stands in its ring, in bytes. `status`: more registers, by what a report calls them."""

    mapped: bool
    rptr_bytes: int
    wptr_bytes: int
    status: Mapping[str, Word]


class HardwareQueue(Protocol):
    """A queue of an engine, which runs what lies in a ring. `str()` names its place as registers do."""

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
        """Take the queue off. Return whether the work it had begun came to its end."""
        ...

    def reset(self) -> None:
        """Take the queue off whatever it runs. Raises `DeviceHung` when it does not let go."""
        ...

    def position(self) -> Position:
        """Read where the queue stands."""
        ...
