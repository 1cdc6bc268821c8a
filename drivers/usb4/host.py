"""The host side of USB: pyusb's backend, and asynchronous transfers, which pyusb does not have.

A backend that has `submit` and `handle_events` itself is used directly. For libusb, they come from
`drivers/usb4/libusb.py`.
"""

from __future__ import annotations

import ctypes.util
import platform
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from ringup.errors import TransportError

# the names that pyusb tries
LIBRARIES = ("usb-1.0", "libusb-1.0", "usb")
INSTALL = "(Debian: apt-get install libusb-1.0-0; macOS: brew install libusb)"
# the messages of loaders (macOS, glibc, musl) for a library for another processor
OTHER_MACHINE = (
    "incompatible architecture",
    "wrong ELF class",
    "wrong architecture",
    "cannot open shared object file: Exec format",
)
COMPLETED, TIMED_OUT, STALL, NO_DEVICE, ERROR = "completed", "timed_out", "stall", "no_device", "error"


class Transfer(Protocol):
    """A transfer that was submitted. `status` is empty until the transfer is done, then `completed`, `timed_out`,
    `stall`, `no_device`, …
    """

    @property
    def done(self) -> bool:
        """Whether it has ended, with success or not."""
        ...

    @property
    def status(self) -> str:
        """How it ended."""
        ...

    @property
    def data(self) -> bytes:
        """The bytes that were received, also those before a time-out."""
        ...

    @property
    def actual(self) -> int:
        """How many bytes of its data stage moved."""
        ...


@runtime_checkable
class AsyncHost(Protocol):
    """Asynchronous transfers. Those of one endpoint (and stream) run in the order in which they were submitted."""

    def submit(
        self,
        handle: Any,
        endpoint: int,
        payload: bytes | bytearray | memoryview | int,
        *,
        setup: bytes = b"",
        timeout_ms: int,
        stream: int = 0,
    ) -> Transfer:
        """Begin a transfer. `payload`: the bytes to send, or how many to receive. `setup`: the 8 bytes of a control
        transfer's SETUP packet.
        """
        ...

    def handle_events(self, timeout_ms: float) -> None:
        """Return when a transfer has ended, or after `timeout_ms`."""
        ...

    def cancel(self, transfer: Any) -> None:
        """Ask for a transfer's early end. It is done soon after."""
        ...

    def end(self, handle: Any) -> int:
        """End all transfers of an open device and wait for that, within a bound. Return how many did not end."""
        ...

    def alloc_streams(self, handle: Any, count: int, endpoints: Sequence[int]) -> int:
        """Allocate streams for SuperSpeed bulk endpoints. Return how many there are; 0 if the controller or the system
        has none.
        """
        ...

    def free_streams(self, handle: Any, endpoints: Sequence[int]) -> None:
        """Free the streams."""
        ...


def system_backend() -> Any:
    """Return pyusb's backend over libusb 1.0. Raises `TransportError` if the library is missing or unusable."""
    import usb.backend.libusb1

    backend = usb.backend.libusb1.get_backend()
    if backend is None:
        raise TransportError(f"looking for USB devices: {_why_not()}")
    return backend


def _why_not() -> str:
    """Return why libusb is missing or unusable: pyusb only logs it."""
    found = next((path for name in LIBRARIES if (path := ctypes.util.find_library(name))), "")
    if not found:
        return f"the library libusb 1.0 is not there; install it {INSTALL}"
    try:
        ctypes.CDLL(found)
    except OSError as error:
        said = " ".join(str(error).split())
        other = any(word in said for word in OTHER_MACHINE)
        remedy = f"it is for another processor than this Python, which is for {platform.machine()}: " if other else ""
        return f"the library {found} is there and does not load: {said}; {remedy}install libusb 1.0 again {INSTALL}"
    return (
        f"the library {found} loads and cannot be used: libusb's own start failed, or it is older than 1.0; "
        f"install it again {INSTALL}"
    )


def asynchronous(backend: Any) -> AsyncHost:
    """Return the asynchronous side of a pyusb backend."""
    if isinstance(backend, AsyncHost):
        return backend
    from ringup.drivers.usb4.libusb import LibusbHost

    return LibusbHost(backend)
