"""pyusb's errors as `RingupError`s."""

from __future__ import annotations

import errno
import platform
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
RULE = (
    "the system does not let you; `ringup setup` shows the rule that gives you the enclosure,"
    " `ringup doctor` says whether it is written and not applied yet"
)
# The meaning of libusb's errnos, except for those with an error class of their own. None: libusb has no errno for it.
# Source: libusb's enum libusb_error; os/linux_usbfs.c and os/darwin_usb.c, darwin_to_libusb.
READINGS = {
    errno.EIO: "the cable, a hub or the port loses bytes: use another",
    errno.EINVAL: "the host's USB does not accept such a request: update libusb",
    errno.ENOENT: (
        "the device has no such interface or endpoint: it runs other firmware than it reports, or changed meanwhile;"
        " open it again"
    ),
    errno.EOVERFLOW: f"the device sent more than was asked for; {AGAIN}",
    errno.EINTR: "a signal interrupted it; try again",
    None: f"libusb says no more; {AGAIN}",
}
# usbfs limits the memory of all transfers of all programs. Source: Linux drivers/usb/core/devio.c, usbfs_memory_mb
NO_MEMORY = {
    "Linux": (
        "the transfers of all programs use too much memory:"
        " as root write a larger number to /sys/module/usbcore/parameters/usbfs_memory_mb"
    )
}


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
    """Turns pyusb's errors into ringup's. `doing`: what was being done. `port`: the open device, if there is one."""

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
            if platform.system() == "Darwin":
                # QUIRK: macOS returns this code if another process has the device (kIOReturnExclusiveAccess). There is
                # no rule that could grant access
                return CardBusy(
                    f"{doing}: another program, or the system's storage driver, has the enclosure open; end it first"
                )
            return PermissionNeeded(f"{doing}: {RULE}")
        if code == errno.EBUSY:
            return CardBusy(f"{doing}: another program holds the enclosure; `ringup doctor` tells which, end it first")
        if code == errno.ETIMEDOUT:
            return DeviceTimeout(f"{where}: the bridge did not answer in time; {AGAIN}")
        if code == errno.EPIPE:
            return Stalled(f"{where}: the bridge refused it (stall); {AGAIN}")
        no_memory = NO_MEMORY.get(platform.system(), "close other programs that use USB")
        return TransportError(f"{where}: {error}; {no_memory if code == errno.ENOMEM else READINGS.get(code, AGAIN)}")
