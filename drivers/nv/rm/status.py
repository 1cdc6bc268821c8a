"""What the resource manager answers: NV_STATUS by name, and the error for one that is not success."""

from __future__ import annotations

from functools import cache

from ringup.autogen.nv import status
from ringup.errors import RingupError


class RmRefused(RingupError):
    """The resource manager refused a call; `status` is its NV_STATUS, `name` the status' name."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status

    @property
    def name(self) -> str:
        """The status' name, as the header spells it."""
        return status_name(self.status)


@cache
def _names() -> dict[int, str]:
    return {value: name for name, value in vars(status).items() if isinstance(value, int) and name.startswith("NV_")}


def status_name(value: int) -> str:
    """Return the name of an NV_STATUS, or its number where the headers have none."""
    return _names().get(value, f"NV_STATUS {value:#x}")
