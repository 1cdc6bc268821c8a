"""What goes wrong on USB, as pyusb tells it, in errors of our tree."""

from __future__ import annotations

import errno
from typing import Protocol

import usb.core

from ringup.errors import (
    CardBusy,
    DeviceLost,
    DeviceTimeout,
    NotSupported,
    PermissionNeeded,
    RingupError,
    TransportError,
)

AGAIN = "try again, and if it stays so, switch the enclosure off and on"
GONE = "is gone from USB; check power and cable, then open it again"


class Stalled(TransportError):
    """The device refused a request by a stall of the endpoint."""


class Opened(Protocol):
    """An open device: a `Port`."""

    name: str
    lost: bool

    def gone(self, doing: str) -> DeviceLost:
        """Make the error of a device that is lost."""
        ...


class Naming:
    """Turn pyusb's errors into ours, with what was being done; of an open device where a port is given."""

    def __init__(self, doing: str, port: Opened | None = None) -> None:
        self._doing, self._port = doing, port

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, (usb.core.USBError, NotImplementedError)):
            raise self._ours(error) from error

    def _ours(self, error: usb.core.USBError | NotImplementedError) -> RingupError:
        port, doing = self._port, self._doing
        where = f"{port.name}: {doing}" if port is not None else doing
        if isinstance(error, NotImplementedError):
            return NotSupported(f"{where}: this system's USB does not offer it ({error})")
        code = error.errno
        if code == errno.ENODEV:
            if port is None:
                return DeviceLost(f"{where}: the device {GONE}")
            port.lost = True
            return port.gone(doing)
        if code in (errno.EACCES, errno.EPERM):
            return PermissionNeeded(
                f"{doing}: the system does not let you; `ringup setup` shows the rule that gives you the enclosure"
            )
        if code == errno.EBUSY:
            return CardBusy(f"{doing}: another program holds the enclosure; `ringup doctor` tells which, end it first")
        if code == errno.ETIMEDOUT:
            return DeviceTimeout(f"{where}: the bridge did not answer in time; {AGAIN}")
        if code == errno.EPIPE:
            return Stalled(f"{where}: the bridge refused it (stall); {AGAIN}")
        return TransportError(f"{where}: {error}")
