"""The host side of USB: pyusb's backend, and transfers that run while we do something else, which pyusb has not.

A backend that has `submit` and `handle_events` itself is used as it is; over libusb they come from
`drivers/usb4/libusb.py`.
"""

from __future__ import annotations

import ctypes.util
import platform
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from ringup.errors import TransportError

# Names that pyusb tries.
LIBRARIES = ("usb-1.0", "libusb-1.0", "usb")
INSTALL = "(Debian: apt-get install libusb-1.0-0; macOS: brew install libusb)"
# What loaders say of a library for another processor: macOS, glibc, musl.
OTHER_MACHINE = (
    "incompatible architecture",
    "wrong ELF class",
    "wrong architecture",
    "cannot open shared object file: Exec format",
)
COMPLETED, TIMED_OUT, STALL, NO_DEVICE, ERROR = "completed", "timed_out", "stall", "no_device", "error"


class Transfer(Protocol):
    """One transfer that was submitted. `status` is empty until it is done; then `completed`, `timed_out`, `stall`,
    `no_device`, …
    """

    @property
    def done(self) -> bool:
        """Whether it has ended, well or not."""
        ...

    @property
    def status(self) -> str:
        """How it ended."""
        ...

    @property
    def data(self) -> bytes:
        """What came in; what came before a time-out too."""
        ...

    @property
    def actual(self) -> int:
        """Bytes of its data stage that were moved."""
        ...


@runtime_checkable
class AsyncHost(Protocol):
    """Transfers side by side. Those of one endpoint (and stream) run in the order they were submitted."""

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
        """Begin a transfer. `payload`: the bytes to send, or how many to receive; `setup`: the 8 bytes of a control
        transfer's first packet.
        """
        ...

    def handle_events(self, timeout_ms: float) -> None:
        """Return once a transfer has ended, or the time is over."""
        ...

    def cancel(self, transfer: Any) -> None:
        """End a transfer early; it is done soon after."""
        ...

    def end(self, handle: Any) -> int:
        """End every transfer of an open device and wait for that, within a bound; returns how many did not end."""
        ...

    def alloc_streams(self, handle: Any, count: int, endpoints: Sequence[int]) -> int:
        """Give SuperSpeed bulk endpoints streams; returns how many there are, 0 where controller or system has none."""
        ...

    def free_streams(self, handle: Any, endpoints: Sequence[int]) -> None:
        """Take the streams away."""
        ...


def system_backend() -> Any:
    """Return pyusb's backend over libusb 1.0. Raises `TransportError` where there is no such library."""
    import usb.backend.libusb1

    backend = usb.backend.libusb1.get_backend()
    if backend is None:
        raise TransportError(f"looking for USB devices: {_why_not()}")
    return backend


def _why_not() -> str:
    """Say why there is no libusb: pyusb logs it, and tells its caller nothing."""
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
