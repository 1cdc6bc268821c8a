"""What NVIDIA's resource manager answers to a call that it refuses, as errors of the tree.

The same numbers come from the kernel's driver and from the card's own firmware. Source: NVIDIA open-gpu-kernel-modules,
nvstatuscodes.h.
"""

from __future__ import annotations

from functools import lru_cache

from ringup.autogen.nv import status
from ringup.errors import (
    CardBusy,
    DeviceHung,
    DeviceLost,
    DeviceTimeout,
    NotSupported,
    OutOfMemory,
    PermissionNeeded,
    TransportError,
)


class RmRefused(TransportError):
    """The resource manager refused a call. `status`: its number, an `NV_ERR_…` of nvstatuscodes.h."""

    exit_code = TransportError.exit_code
    status = status.NV_ERR_GENERIC

    @property
    def name(self) -> str:
        """The status' name, as the header spells it, with its number."""
        return status_name(self.status)


class RmOutOfMemory(RmRefused, OutOfMemory):
    """It has no memory, no addresses or no channel left."""

    exit_code = OutOfMemory.exit_code


class RmForbids(RmRefused, PermissionNeeded):
    """This process may not do that."""

    exit_code = PermissionNeeded.exit_code


class RmLost(RmRefused, DeviceLost):
    """The card is gone."""

    exit_code = DeviceLost.exit_code


class RmHung(RmRefused, DeviceHung):
    """The card needs a reset."""

    exit_code = DeviceHung.exit_code


class RmLate(RmRefused, DeviceTimeout):
    """The card did not answer in the driver's own time."""

    exit_code = DeviceTimeout.exit_code


class RmLacks(RmRefused, NotSupported):
    """This card, or this release of the driver, cannot do that."""

    exit_code = NotSupported.exit_code


class RmBusy(RmRefused, CardBusy):
    """Somebody else uses what was asked for."""

    exit_code = CardBusy.exit_code


CLASSES: dict[type[RmRefused], tuple[int, ...]] = {
    RmOutOfMemory: (
        status.NV_ERR_NO_MEMORY,
        status.NV_ERR_INSUFFICIENT_RESOURCES,
        status.NV_ERR_NO_FREE_FIFOS,
    ),
    RmForbids: (status.NV_ERR_INSUFFICIENT_PERMISSIONS, status.NV_ERR_INVALID_ACCESS_TYPE),
    RmLost: (status.NV_ERR_GPU_IS_LOST, status.NV_ERR_CARD_NOT_PRESENT),
    RmHung: (status.NV_ERR_RESET_REQUIRED, status.NV_ERR_GPU_IN_FULLCHIP_RESET, status.NV_ERR_RC_ERROR),
    RmLate: (status.NV_ERR_TIMEOUT, status.NV_ERR_TIMEOUT_RETRY),
    RmLacks: (
        status.NV_ERR_NOT_SUPPORTED,
        status.NV_ERR_INVALID_CLASS,
        status.NV_ERR_OBJECT_TYPE_MISMATCH,
        status.NV_ERR_INVALID_COMMAND,
    ),
    RmBusy: (status.NV_ERR_STATE_IN_USE, status.NV_ERR_IN_USE, status.NV_ERR_BUSY_RETRY),
}
BY_STATUS = {code: kind for kind, codes in CLASSES.items() for code in codes}


@lru_cache(maxsize=1)
def _names() -> dict[int, str]:
    """Return the names of all statuses by number; a number with two names keeps the first."""
    found: dict[int, str] = {}
    for name, value in vars(status).items():
        if name.startswith(("NV_ERR_", "NV_WARN_")) and isinstance(value, int):
            found.setdefault(value, name)
    return found


def status_name(code: int) -> str:
    """Return the name of a status, with its number."""
    return f"{_names().get(code, 'an unknown status')} ({code:#x})"


def refusal(code: int, doing: str, remedy: str = "") -> RmRefused:
    """Return the error for a call that was refused; the caller raises it."""
    error = BY_STATUS.get(code, RmRefused)(
        f"{doing}: the resource manager answered {status_name(code)}{f'; {remedy}' if remedy else ''}"
    )
    error.status = code
    return error
