"""Asynchronous transfers over the libusb 1.0 that pyusb loaded. Many may be in flight on one device, which pyusb's own
calls do not allow.

libusb owns a transfer from its submission until its callback. Until then, this module keeps everything that the
transfer points at (buffer, callback), whatever errors are raised meanwhile. The callback is the `append` method of a
deque itself: no Python code runs inside libusb, so no exception can be raised and lost there. Ended transfers are
handled after libusb has returned. A host belongs to one thread; hosts of several threads may share the library.

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
# enum libusb_transfer_type
CONTROL, BULK, BULK_STREAM = 0, 2, 4
SETUP_BYTES = 8
# libusb_transfer.length is an int
MAX_BYTES = 0x7FFF_FFFF
# enum libusb_error
INTERRUPTED, NOT_FOUND, NO_DEVICE, NOT_SUPPORTED, TIMEOUT, INVALID = -10, -5, -4, -12, -7, -2
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
# how often libusb may fail to handle events while transfers are ended: another device may cause a failure
FAILURES = 8
# a call that handles events returns after this time at the latest: another thread may have handled our events, or
# ctrl-C may have been pressed
LOOK_S = 0.25
# calls that return early without an event: so many follow at once, then there are pauses that grow by PAUSE_S
FREE_TURNS, PAUSE_S, LONGEST_PAUSE_S = 8, 0.0002, 0.01
# TIMEOUT: a cancelled transfer returns within a frame. If none returns for so long, none ever will
REAP_S = 2.0


class Timeval(ctypes.Structure):
    """struct timeval. Where microseconds have 32 bits, the high half of the field is padding, and zero."""

    _fields_ = (("tv_sec", ctypes.c_long), ("tv_usec", ctypes.c_long))


class LibusbTransfer:
    """One transfer. `status` is empty until `done`. `actual` counts the bytes of the data stage that were moved.

    `taken`: libusb confirmed the submission. A transfer may be in flight without it if its submission was interrupted.
    `asked`: libusb was asked to cancel the transfer. `absent`: libusb did not know the transfer then.
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
    """The transfers of all devices that one pyusb backend opened. Errors are pyusb's: `USBError` with libusb's code and
    the errno.
    """

    def __init__(self, backend: Any) -> None:
        """`backend`: from `usb.backend.libusb1`. Raises `NotSupported` for another one: libusb 0.1 and OpenUSB have no
        asynchronous transfers.
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
        # by the address of libusb's struct
        self._flying: dict[int, LibusbTransfer] = {}
        # runs before the finaliser of pyusb, which closes the library: later finalisers run first
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

        `payload`: the bytes to send, or how many to receive. The bytes for a bulk endpoint are not copied and must not
        change until the transfer is done. `setup`: the 8 bytes of a SETUP packet, only for endpoint 0. `timeout_ms`: 0
        means no time-out. Raises `USBError`.
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
        # ORDER: stored before it is submitted, so that an interruption between leaves no dangling pointers
        self._flying[address] = transfer
        code = self._lib.libusb_submit_transfer(pointer)
        # after an interruption before this line, `end` finds out whether libusb has the transfer
        if code:
            _free(self._lib, self._flying, address)
            raise _error(self._lib, code)
        transfer.taken = True
        return transfer

    def handle_events(self, timeout_ms: float) -> None:
        """Return when a transfer has ended, or after `timeout_ms`. Raises `USBError` if libusb itself fails."""
        end_s = time.monotonic() + timeout_ms / 1000
        turns = _Turns()
        while not _collect(self._lib, self._ended, self._flying):
            left_s = end_s - time.monotonic()
            turns.take(self._lib, self._ctx, max(0.0, min(left_s, LOOK_S)))
            if left_s <= 0:
                _collect(self._lib, self._ended, self._flying)
                return

    def cancel(self, transfer: LibusbTransfer) -> None:
        """Ask libusb to cancel a transfer. It is done soon after: as `cancelled`, unless it ended before. A transfer
        that is done does not change.
        """
        if not transfer.done:
            _cancel(self._lib, transfer)

    def alloc_streams(self, handle: Any, count: int, endpoints: Sequence[int]) -> int:
        """Allocate streams for SuperSpeed bulk endpoints; the first has number 1. Return how many there are; 0 if the
        controller or the system has none. Raises `USBError`.
        """
        got = self._lib.libusb_alloc_streams(handle.handle, count, _endpoints(endpoints), len(endpoints))
        # macOS and some controllers have no streams
        if got < 0 and got not in (NOT_SUPPORTED, INVALID):
            raise _error(self._lib, got)
        return max(int(got), 0)

    def free_streams(self, handle: Any, endpoints: Sequence[int]) -> None:
        """Free the streams. Raises `USBError`."""
        code = self._lib.libusb_free_streams(handle.handle, _endpoints(endpoints), len(endpoints))
        if code < 0:
            raise _error(self._lib, code)

    def end(self, handle: Any) -> int:
        """Cancel all transfers of an open device and wait for their end. This must happen before the device is closed.
        Return how many did not end.

        Those are kept, with their buffers: libusb may still write to them.
        """
        return _end(self._lib, self._ctx, self._ended, self._flying, handle)


def _end_all(lib: Any, ctx: Any, ended: deque[Any], flying: dict[int, LibusbTransfer], callback: Any) -> None:
    """End all transfers before Python frees their memory. A transfer that does not end lives as long as the library."""
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
        # libusb never had the transfer. If its callback was about to run, it would have run by now
        transfer.done = transfer.absent and failures < FAILURES
    # an interruption may have left transfers that are done
    for address in [address for address, transfer in flying.items() if transfer.done]:
        _free(lib, flying, address)
    return len(mine())


class _Turns:
    """Calls of libusb that handle events. If libusb returns at once without an event, the calls become less
    frequent.
    """

    def __init__(self) -> None:
        self._idle = 0

    def take(self, lib: Any, ctx: Any, wait_s: float) -> None:
        """Let libusb handle events for up to `wait_s`. A caller calls again only if no transfer has ended."""
        begun_s = time.monotonic()
        _turn(lib, ctx, wait_s)
        took_s = time.monotonic() - begun_s
        # an early return is normal from time to time: events of another thread, a signal
        self._idle = self._idle + 1 if took_s < wait_s / 2 else 0
        if self._idle > FREE_TURNS:
            HostClock().sleep_us(
                int(1_000_000 * min(wait_s - took_s, PAUSE_S * (self._idle - FREE_TURNS), LONGEST_PAUSE_S))
            )


def _turn(lib: Any, ctx: Any, wait_s: float) -> None:
    """Let libusb handle events once."""
    bound = Timeval(int(wait_s), int(wait_s % 1 * 1_000_000))
    code = lib.libusb_handle_events_timeout_completed(ctx, ctypes.byref(bound), None)
    # after a signal, its Python handler runs as soon as libusb has returned
    if code and code != INTERRUPTED:
        raise _error(lib, code)


def _collect(lib: Any, ended: deque[Any], flying: dict[int, LibusbTransfer]) -> int:
    """Store the results of ended transfers and free libusb's structs. May be interrupted anywhere and called again."""
    count = 0
    while ended:
        address = ctypes.addressof(ended[0].contents)
        transfer = flying[address]
        if not transfer.done:
            _note(transfer)
        # ORDER: removed before the free, after which libusb may use the address for another transfer
        ended.popleft()
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
    # ORDER: set before the call. At a second call for the same transfer, libusb says "not found" although it has it
    first, transfer.asked = not transfer.asked, True
    code = lib.libusb_cancel_transfer(transfer._pointer)
    if first and code == NOT_FOUND and not transfer.taken:
        transfer.absent = True
    # with the last two codes, the transfer has ended, or ends because the device is gone: its callback runs
    if code not in (0, NOT_FOUND, NO_DEVICE):
        LOG.info("cancelling %r: libusb error %d", transfer, code)


def _check_shape(endpoint: int, reads: bool, size: int, setup: bytes) -> None:
    """Raise a `ValueError` for arguments that do not fit together."""
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
    """Return a ctypes object over the bytes in place. Only a view that is read-only or not contiguous is copied."""
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
    """Make the same exception as pyusb for a code of libusb."""
    text = lib.libusb_strerror(code).decode(errors="replace")
    if code == NOT_SUPPORTED:
        return NotImplementedError(text)
    kind = USBTimeoutError if code == TIMEOUT else USBError
    failure: Exception = kind(text, code, ERRNO.get(code))
    return failure


def _declare(lib: Any) -> None:
    """Declare the types of the functions that pyusb does not declare."""
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
