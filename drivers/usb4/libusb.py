"""Transfers that do not block, over the libusb 1.0 that pyusb loaded: many in flight on one device, which pyusb's own
calls cannot.

libusb owns a transfer from its submission until its callback, so all it points at (buffer, callback) is held here until
then, whatever is raised meanwhile. The callback is a deque's `append` itself: no line of Python runs inside libusb, so
nothing can be raised and lost there; what ended is looked at after libusb has returned. One thread a host; hosts of
several threads may share the library.

Source: libusb 1.0 API reference, "Asynchronous device I/O", "Polling and timing", "USB device streams".
"""

from __future__ import annotations

import ctypes
import errno
import logging
import time
import weakref
from collections import deque
from collections.abc import Sequence
from typing import Any

import usb.backend.libusb1 as pyusb
from usb.core import USBError, USBTimeoutError

from ringup.drivers.transport.clock import HostClock
from ringup.errors import NotSupported

LOG = logging.getLogger(__name__)
CONTROL, BULK, BULK_STREAM = 0, 2, 4  # enum libusb_transfer_type
SETUP_BYTES = 8
MAX_BYTES = 0x7FFF_FFFF  # libusb_transfer.length is an int
INTERRUPTED, NOT_FOUND, NO_DEVICE, NOT_SUPPORTED, TIMEOUT, INVALID = -10, -5, -4, -12, -7, -2  # enum libusb_error
# enum libusb_transfer_status
ENDED = (
    "completed",
    "error",
    "timed_out",
    "cancelled",
    "stall",
    "no_device",
    "overflow",
)
ERRNO = {
    -1: errno.EIO,
    -2: errno.EINVAL,
    -3: errno.EACCES,
    -4: errno.ENODEV,
    -5: errno.ENOENT,
    -6: errno.EBUSY,
    -7: errno.ETIMEDOUT,
    -8: errno.EOVERFLOW,
    -9: errno.EPIPE,
    -10: errno.EINTR,
    -11: errno.ENOMEM,
    -12: errno.ENOSYS,
}
FAILURES = 8  # of libusb's look for events, while transfers are ended: one may be due to another device
LOOK_S = 0.25  # libusb is left this often: another thread may have seen our events, and ctrl-C may have come to one
# A look that returned early and brought nothing may be repeated so often at once; then pauses grow by PAUSE_S.
FREE_TURNS, PAUSE_S, LONGEST_PAUSE_S = 8, 0.0002, 0.01
# TIMEOUT: a cancelled transfer comes back within a frame; a kernel that lets go of none for so long never will
REAP_S = 2.0


class Timeval(ctypes.Structure):
    """struct timeval; the high half of the microseconds is padding where they are 32 bits wide, and zero."""

    _fields_ = (("tv_sec", ctypes.c_long), ("tv_usec", ctypes.c_long))


class LibusbTransfer:
    """One transfer. `status` is empty until `done`; `actual` counts the bytes of the data stage that were moved.

    `taken`: libusb said that it has it; only one whose submission was interrupted is in flight without. `asked`: it was
    to be cancelled; `absent`: libusb knew nothing of it then.
    """

    __slots__ = (
        "_buffer", "_pointer", "_reads", "absent", "actual", "asked", "data", "done", "endpoint", "handle", "status", "taken",
    )  # fmt: skip

    def __init__(self, handle: Any, endpoint: int, reads: bool, pointer: Any, buffer: Any) -> None:
        self.handle, self.endpoint, self._reads = handle, endpoint, reads
        self.done, self.status, self.data, self.actual = False, "", b"", 0
        self.taken = self.asked = self.absent = False
        self._pointer, self._buffer = pointer, buffer

    def __repr__(self) -> str:
        return f"<transfer at endpoint {self.endpoint:#04x}: {self.status or 'in flight'}, {self.actual} bytes>"


class LibusbHost:
    """Transfers of every device that one pyusb backend opened. Errors are pyusb's: `USBError` with libusb's code and
    the errno.
    """

    def __init__(self, backend: Any) -> None:
        """`backend`: of `usb.backend.libusb1`. Raises `NotSupported` for another: libusb 0.1 and OpenUSB know no such
        transfers.
        """
        if not isinstance(getattr(backend, "ctx", None), ctypes.c_void_p) or not hasattr(backend, "lib"):
            raise NotSupported(
                f"transfers side by side need pyusb's backend over libusb 1.0, not {type(backend).__name__}"
            )
        self._backend, self._lib, self._ctx = backend, backend.lib, backend.ctx
        try:
            _declare(self._lib)
        except AttributeError as error:
            raise NotSupported(f"transfers side by side need libusb 1.0.19 or newer: {error}") from error
        self._ended: deque[Any] = deque()
        self._callback = pyusb._libusb_transfer_cb_fn_p(self._ended.append)
        self._flying: dict[int, LibusbTransfer] = {}  # by the address of libusb's struct
        # Runs before pyusb's own finaliser, which is older, ends the library.
        self._finalizer = weakref.finalize(
            self, _end_all, self._lib, self._ctx, self._ended, self._flying, self._callback
        )

    @property
    def in_flight(self) -> int:
        """How many transfers libusb holds."""
        return len(self._flying)

    def submit(
        self,
        handle: Any,
        endpoint: int,
        payload: bytes | bytearray | memoryview | int,
        *,
        setup: bytes = b"",
        timeout_ms: int,
        stream: int = 0,
    ) -> LibusbTransfer:
        """Begin a transfer.

        `payload`: the bytes to send, or how many to receive; bytes of a bulk endpoint are not copied and must stay as
        they are until it is done. `setup`: the 8 bytes of a SETUP packet, for endpoint 0 alone. `timeout_ms` 0: it
        waits for ever. Raises `USBError`.
        """
        incoming = payload if isinstance(payload, int) else 0
        size = incoming if isinstance(payload, int) else memoryview(payload).nbytes
        _check_shape(endpoint, isinstance(payload, int), size, setup)
        if endpoint:
            buffer = (ctypes.c_char * incoming)() if isinstance(payload, int) else _in_place(payload)
        else:
            buffer = ctypes.create_string_buffer(setup, SETUP_BYTES + size)
            if not isinstance(payload, int):
                ctypes.memmove(ctypes.addressof(buffer) + SETUP_BYTES, bytes(payload), size)
        pointer = self._lib.libusb_alloc_transfer(0)
        if not pointer:
            raise _error(self._lib, -11)
        words = pointer.contents
        address = ctypes.addressof(words)
        words.dev_handle, words.endpoint, words.timeout = handle.handle, endpoint, timeout_ms
        words.type = (BULK_STREAM if stream else BULK) if endpoint else CONTROL
        words.buffer, words.length = _address(buffer), size + (0 if endpoint else SETUP_BYTES)
        words.flags, words.num_iso_packets, words.callback = 0, 0, self._callback
        if stream:
            self._lib.libusb_transfer_set_stream_id(pointer, stream)
        transfer = LibusbTransfer(handle, endpoint, isinstance(payload, int), pointer, buffer)
        # ORDER: held before libusb has it, so an interruption between leaves nothing dangling
        self._flying[address] = transfer
        code = self._lib.libusb_submit_transfer(pointer)
        if code:  # interrupted before this line, it is for `end` to find out
            _free(self._lib, self._flying, address)
            raise _error(self._lib, code)
        transfer.taken = True
        return transfer

    def handle_events(self, timeout_ms: float) -> None:
        """Return once at least one transfer has ended, or after `timeout_ms`. Raises `USBError` when libusb itself
        fails.
        """
        end_s = time.monotonic() + timeout_ms / 1000
        turns = _Turns()
        while not _collect(self._lib, self._ended, self._flying):
            left_s = end_s - time.monotonic()
            turns.take(self._lib, self._ctx, max(0.0, min(left_s, LOOK_S)))
            if left_s <= 0:
                _collect(self._lib, self._ended, self._flying)
                return

    def cancel(self, transfer: LibusbTransfer) -> None:
        """Ask for its end; it is done soon after, as `cancelled` if it was not faster. One that has ended stays as it
        is.
        """
        if not transfer.done:
            _cancel(self._lib, transfer)

    def alloc_streams(self, handle: Any, count: int, endpoints: Sequence[int]) -> int:
        """Give SuperSpeed bulk endpoints streams, from 1; returns how many, 0 where controller or system has none.
        Raises `USBError`.
        """
        got = self._lib.libusb_alloc_streams(handle.handle, count, _endpoints(endpoints), len(endpoints))
        # macOS and some controllers: these endpoints have no streams
        if got < 0 and got not in (
            NOT_SUPPORTED,
            INVALID,
        ):
            raise _error(self._lib, got)
        return max(int(got), 0)

    def free_streams(self, handle: Any, endpoints: Sequence[int]) -> None:
        """Take the streams away. Raises `USBError`."""
        code = self._lib.libusb_free_streams(handle.handle, _endpoints(endpoints), len(endpoints))
        if code < 0:
            raise _error(self._lib, code)

    def end(self, handle: Any) -> int:
        """Cancel what is in flight on an open device and wait for it, as must be done before it is closed. Returns how
        many did not end.

        Those stay held, with their buffers: libusb may still write there.
        """
        return _end(self._lib, self._ctx, self._ended, self._flying, handle)


def _end_all(lib: Any, ctx: Any, ended: deque[Any], flying: dict[int, LibusbTransfer], callback: Any) -> None:
    """Leave nothing to libusb that Python is about to free; what does not end lives as long as the library."""
    left = _end(lib, ctx, ended, flying, None)
    if left:
        LOG.warning("%d USB transfers did not end", left)
        lib.ringup_held = (getattr(lib, "ringup_held", None), flying, callback)


def _end(lib: Any, ctx: Any, ended: deque[Any], flying: dict[int, LibusbTransfer], handle: Any) -> int:
    def mine() -> list[LibusbTransfer]:
        every = tuple(flying.values())
        return [transfer for transfer in every if not transfer.done and (handle is None or transfer.handle is handle)]

    _collect(lib, ended, flying)
    for transfer in mine():
        _cancel(lib, transfer)
    end_s, failures, turns = time.monotonic() + REAP_S, 0, _Turns()
    while mine() and time.monotonic() < end_s and failures < FAILURES:
        try:
            turns.take(lib, ctx, LOOK_S)
        except USBError as error:
            failures += 1
            LOG.info("ending transfers: %s", error)
        _collect(lib, ended, flying)
    for transfer in mine():
        # libusb never had it, or was just calling back, which would have come within the time
        transfer.done = transfer.absent and failures < FAILURES
    for address in [address for address, transfer in flying.items() if transfer.done]:  # an interruption left them
        _free(lib, flying, address)
    return len(mine())


class _Turns:
    """Looks for events one after another. A libusb that returns at once and brings nothing is asked less and less
    often.
    """

    def __init__(self) -> None:
        self._idle = 0

    def take(self, lib: Any, ctx: Any, wait_s: float) -> None:
        """Let libusb look for events, for up to `wait_s`. Who calls again has found none."""
        begun_s = time.monotonic()
        _turn(lib, ctx, wait_s)
        took_s = time.monotonic() - begun_s
        # An early end is all right now and then: another thread's events, a signal.
        self._idle = self._idle + 1 if took_s < wait_s / 2 else 0
        if self._idle > FREE_TURNS:
            HostClock().sleep_us(
                int(1_000_000 * min(wait_s - took_s, PAUSE_S * (self._idle - FREE_TURNS), LONGEST_PAUSE_S))
            )


def _turn(lib: Any, ctx: Any, wait_s: float) -> None:
    """Let libusb look for events once."""
    bound = Timeval(int(wait_s), int(wait_s % 1 * 1_000_000))
    code = lib.libusb_handle_events_timeout_completed(ctx, ctypes.byref(bound), None)
    if code and code != INTERRUPTED:  # a signal: its Python handler runs as soon as we are out of libusb
        raise _error(lib, code)


def _collect(lib: Any, ended: deque[Any], flying: dict[int, LibusbTransfer]) -> int:
    """Take the results of what ended and give libusb's structs back. May be interrupted anywhere and called again."""
    count = 0
    while ended:
        address = ctypes.addressof(ended[0].contents)
        transfer = flying[address]
        if not transfer.done:
            _note(transfer)
        ended.popleft()  # ORDER: before libusb may use the address for another transfer
        _free(lib, flying, address)
        count += 1
    return count


def _note(transfer: LibusbTransfer) -> None:
    words = transfer._pointer.contents
    start = (words.buffer or 0) + (0 if transfer.endpoint else SETUP_BYTES)
    transfer.actual = words.actual_length
    transfer.data = ctypes.string_at(start, words.actual_length) if transfer._reads and words.actual_length else b""
    transfer.status = ENDED[words.status] if 0 <= words.status < len(ENDED) else "error"
    transfer._buffer = None
    transfer.done = True


def _free(lib: Any, flying: dict[int, LibusbTransfer], address: int) -> None:
    pointer = flying.pop(address)._pointer
    lib.libusb_free_transfer(pointer)


def _cancel(lib: Any, transfer: LibusbTransfer) -> None:
    first, transfer.asked = not transfer.asked, True  # ORDER: before; asked twice, libusb denies what it has, too
    code = lib.libusb_cancel_transfer(transfer._pointer)
    if first and code == NOT_FOUND and not transfer.taken:
        transfer.absent = True
    # it has ended already, or ends because the device went: its callback tells
    if code not in (
        0,
        NOT_FOUND,
        NO_DEVICE,
    ):
        LOG.info("cancelling %r: libusb error %d", transfer, code)


def _check_shape(endpoint: int, reads: bool, size: int, setup: bytes) -> None:
    """Refuse a caller's nonsense before libusb sees it."""
    if not 0 <= size <= MAX_BYTES - SETUP_BYTES:
        raise ValueError(f"a transfer of {size} bytes")
    if endpoint:
        if setup:
            raise ValueError(f"endpoint {endpoint:#04x} takes no SETUP packet")
        if reads != bool(endpoint & 0x80):
            raise ValueError(f"endpoint {endpoint:#04x} {'sends' if endpoint & 0x80 else 'receives'}")
        return
    if len(setup) != SETUP_BYTES or int.from_bytes(setup[6:8], "little") != size:
        raise ValueError(f"SETUP packet {setup.hex()} does not fit a data stage of {size} bytes")
    if size and reads != bool(setup[0] & 0x80):
        raise ValueError(f"SETUP packet {setup.hex()}: its direction is not that of the data")


def _in_place(payload: bytes | bytearray | memoryview) -> Any:
    """Return what keeps the bytes at their place in memory; only a view that is read-only or in pieces is copied."""
    if isinstance(payload, bytes):
        return ctypes.c_char_p(payload)
    view = memoryview(payload)
    if view.readonly or not view.c_contiguous:
        return ctypes.c_char_p(view.tobytes())
    return (ctypes.c_char * view.nbytes).from_buffer(view)


def _address(buffer: Any) -> int | None:
    if isinstance(buffer, ctypes.c_char_p):
        return ctypes.cast(buffer, ctypes.c_void_p).value
    return ctypes.addressof(buffer)


def _endpoints(addresses: Sequence[int]) -> Any:
    return (ctypes.c_ubyte * len(addresses))(*addresses)


def _error(lib: Any, code: int) -> Exception:
    """Make the exception that pyusb makes of libusb's code."""
    text = lib.libusb_strerror(code).decode(errors="replace")
    if code == NOT_SUPPORTED:
        return NotImplementedError(text)
    kind = USBTimeoutError if code == TIMEOUT else USBError
    failure: Exception = kind(text, code, ERRNO.get(code))
    return failure


def _declare(lib: Any) -> None:
    """Say what the functions take that pyusb has no use for."""
    transfer = ctypes.POINTER(pyusb._libusb_transfer)
    handle, endpoints = ctypes.c_void_p, ctypes.POINTER(ctypes.c_ubyte)
    rows: tuple[tuple[str, tuple[Any, ...], Any], ...] = (
        ("libusb_cancel_transfer", (transfer,), ctypes.c_int),
        ("libusb_free_transfer", (transfer,), None),
        (
            "libusb_handle_events_timeout_completed",
            (ctypes.c_void_p, ctypes.POINTER(Timeval), ctypes.c_void_p),
            ctypes.c_int,
        ),
        ("libusb_alloc_streams", (handle, ctypes.c_uint32, endpoints, ctypes.c_int), ctypes.c_int),
        ("libusb_free_streams", (handle, endpoints, ctypes.c_int), ctypes.c_int),
        ("libusb_transfer_set_stream_id", (transfer, ctypes.c_uint32), None),
    )
    for name, arguments, result in rows:
        function = getattr(lib, name)
        function.argtypes, function.restype = arguments, result
