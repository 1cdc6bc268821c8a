"""Transfers over libusb, with a fake that follows its API reference. The guest tests (`make guest`) use the
real one.
"""

import ctypes
import errno
import gc
from functools import partial
from types import SimpleNamespace

import pytest
import usb.backend.libusb1 as pyusb
from usb.core import USBError, USBTimeoutError

from ringup.drivers.usb4 import libusb
from ringup.drivers.usb4.host import AsyncHost
from ringup.drivers.usb4.libusb import LibusbHost
from ringup.errors import NotSupported

COMPLETED, ERROR, TIMED_OUT, CANCELLED, STALL, NO_DEVICE, OVERFLOW = range(7)  # libusb.h, enum libusb_transfer_status


class Function:
    """A function of a C library: it accepts `argtypes` and `restype`, as ctypes' functions do."""

    def __init__(self, body):
        self.body = body
        self.argtypes = self.restype = None

    def __call__(self, *arguments):
        return self.body(*arguments)


class Library:
    """libusb's asynchronous half. `refuse`: its code for submissions; `ends`: (status, bytes moved) of transfers in
    flight, in order.

    `keeps`: cancelled transfers do not end.
    """

    def __init__(self):
        self.alive, self.flying, self.cancelled = {}, [], []
        self.refuse, self.failure, self.ends, self.streams, self.turns = 0, 0, [], {}, 0
        self.on_turn, self.keeps = lambda: None, False
        for name in dir(type(self)):
            if name.startswith("libusb_"):
                setattr(self, name, Function(getattr(self, name)))

    def libusb_alloc_transfer(self, packets):
        made = pyusb._libusb_transfer()
        self.alive[ctypes.addressof(made)] = made
        return ctypes.pointer(made)

    def libusb_free_transfer(self, pointer):
        address = ctypes.addressof(pointer.contents)
        assert address not in self.flying, "freed while libusb has it"
        del self.alive[address]

    def libusb_submit_transfer(self, pointer):
        if not self.refuse:
            self.flying.append(ctypes.addressof(pointer.contents))
        return self.refuse

    def libusb_cancel_transfer(self, pointer):
        address = ctypes.addressof(pointer.contents)
        if address not in self.flying or address in self.cancelled:
            return libusb.NOT_FOUND
        self.cancelled.append(address)
        return 0

    def libusb_handle_events_timeout_completed(self, ctx, bound, completed):
        self.turns += 1
        self.on_turn()
        if not self.keeps:
            for address in self.cancelled:
                self.end(address, CANCELLED, 0)
            self.cancelled = []
        while self.ends and self.flying:
            self.end(self.flying[0], *self.ends.pop(0))
        return self.failure

    def end(self, address, status, moved):
        self.flying.remove(address)
        words = self.alive[address]
        words.status, words.actual_length = status, moved
        words.callback(ctypes.pointer(words))

    def libusb_transfer_set_stream_id(self, pointer, stream):
        self.streams[ctypes.addressof(pointer.contents)] = stream

    def libusb_alloc_streams(self, handle, count, endpoints, number):
        return self.failure or min(count, 16)

    def libusb_free_streams(self, handle, endpoints, number):
        return self.failure

    def libusb_strerror(self, code):
        return b"what libusb says"

    def words(self, at=0):
        return self.alive[self.flying[at]]

    def sent(self, at=0):
        words = self.words(at)
        return ctypes.string_at(words.buffer, words.length)

    def fill(self, data, at=0, offset=0):
        ctypes.memmove(self.words(at).buffer + offset, data, len(data))


def presses(times):
    """Press ctrl-C during the next given number of calls."""
    left = [None] * times

    def press():
        if left:
            left.pop()
            raise KeyboardInterrupt

    return press


HANDLE = SimpleNamespace(handle=ctypes.c_void_p(0x1234))
SETUP_IN, SETUP_OUT = bytes.fromhex("c0e400b400000400"), bytes.fromhex("40f0000000000c00")


@pytest.fixture
def library():
    made = Library()
    yield made
    gc.collect()
    assert not made.flying
    assert not made.alive, "structs of libusb's that nobody freed"


@pytest.fixture
def host(library):
    return LibusbHost(SimpleNamespace(lib=library, ctx=ctypes.c_void_p(1)))


def test_it_is_a_host_by_shape(host):
    assert isinstance(host, AsyncHost)


def test_each_kind_of_transfer_is_submitted_with_its_parameters(host, library):
    host.submit(HANDLE, 0x02, b"abc", timeout_ms=500)
    host.submit(HANDLE, 0x81, 64, timeout_ms=0, stream=3)
    host.submit(HANDLE, 0, 4, setup=SETUP_IN, timeout_ms=1000)
    told = [(w.dev_handle, w.endpoint, w.type, w.timeout, w.length) for w in map(library.words, range(3))]
    assert told == [(0x1234, 0x02, 2, 500, 3), (0x1234, 0x81, 4, 0, 64), (0x1234, 0, 0, 1000, 12)]
    assert library.sent(0) == b"abc"
    assert library.sent(2)[:8] == SETUP_IN
    assert list(library.streams.values()) == [3]
    host.end(HANDLE)


@pytest.mark.parametrize(
    ("code", "word"),
    [
        (COMPLETED, "completed"),
        (ERROR, "error"),
        (TIMED_OUT, "timed_out"),
        (CANCELLED, "cancelled"),
        (STALL, "stall"),
        (NO_DEVICE, "no_device"),
        (OVERFLOW, "overflow"),
        (99, "error"),
    ],
)
def test_every_result_has_its_status_and_keeps_the_received_bytes(host, library, code, word):
    transfer = host.submit(HANDLE, 0x81, 64, timeout_ms=100)
    assert (transfer.done, transfer.status) == (False, "")
    library.fill(b"half-way")
    library.ends = [(code, 8)]
    host.handle_events(1000)
    assert (transfer.done, transfer.status, transfer.actual, transfer.data) == (True, word, 8, b"half-way")


def test_control_data_follows_the_setup_packet(host, library):
    incoming = host.submit(HANDLE, 0, 4, setup=SETUP_IN, timeout_ms=100)
    library.fill(b"wxyz", offset=8)
    outgoing = host.submit(HANDLE, 0, bytearray(b"123456789012"), setup=SETUP_OUT, timeout_ms=100)
    assert library.sent(1) == SETUP_OUT + b"123456789012"
    library.ends = [(COMPLETED, 4), (COMPLETED, 12)]
    host.handle_events(1000)
    assert (incoming.data, incoming.actual) == (b"wxyz", 4)
    assert (outgoing.data, outgoing.actual) == (b"", 12)


def test_bulk_bytes_are_not_copied_where_they_need_not_be(host, library):
    buffer = bytearray(b"first")
    host.submit(HANDLE, 0x02, buffer, timeout_ms=0)
    buffer[:] = b"later"
    assert library.sent() == b"later"
    with pytest.raises(BufferError):
        # libusb owns the buffer.
        buffer.append(0)
    host.end(HANDLE)
    buffer.append(0)


@pytest.mark.parametrize(
    "payload",
    [memoryview(b"read-only"), memoryview(bytearray(b"r.e.a.d.-.o.n.l.y."))[::2]],
    ids=["read-only", "in pieces"],
)
def test_views_of_any_kind_are_sent(host, library, payload):
    host.submit(HANDLE, 0x02, payload, timeout_ms=0)
    assert library.sent() == b"read-only"
    host.end(HANDLE)


@pytest.mark.parametrize(
    ("code", "number"), [(-4, errno.ENODEV), (-11, errno.ENOMEM), (-6, errno.EBUSY), (-2, errno.EINVAL)]
)
def test_a_refused_submission_is_pyusbs_error_and_leaves_nothing(host, library, code, number):
    library.refuse = code
    with pytest.raises(USBError, match="what libusb says") as caught:
        host.submit(HANDLE, 0x81, 64, timeout_ms=0)
    assert (caught.value.backend_error_code, caught.value.errno) == (code, number)
    assert host.in_flight == 0
    assert not library.alive


def test_errors_of_libusb_itself(host, library):
    library.failure = -1
    with pytest.raises(USBError):
        host.handle_events(10)
    library.failure = -7
    with pytest.raises(USBTimeoutError):
        host.alloc_streams(HANDLE, 4, (0x81,))
    library.failure = -12
    with pytest.raises(NotImplementedError):
        host.free_streams(HANDLE, (0x81,))
    assert host.alloc_streams(HANDLE, 4, (0x81,)) == 0  # a system without streams
    library.failure = 0
    assert host.alloc_streams(HANDLE, 31, (0x81, 0x02)) == 16


@pytest.mark.parametrize(
    ("endpoint", "payload", "setup"),
    [
        (0x81, b"data", b""),
        (0x02, 64, b""),
        (0x02, b"data", SETUP_OUT),
        (0, 4, b""),
        (0, 5, SETUP_IN),
        (0, bytes(4), SETUP_IN),
        (0x81, -1, b""),
    ],
)
def test_nonsense_never_reaches_libusb(host, library, endpoint, payload, setup):
    with pytest.raises(ValueError, match=r"."):
        host.submit(HANDLE, endpoint, payload, setup=setup, timeout_ms=0)
    assert not library.alive


def test_a_cancelled_transfer_ends_once(host, library):
    transfer = host.submit(HANDLE, 0x81, 64, timeout_ms=0)
    host.cancel(transfer)
    host.cancel(transfer)
    host.handle_events(1000)
    assert transfer.status == "cancelled"
    host.cancel(transfer)
    assert not library.cancelled


def test_events_end_with_the_first_transfer_and_not_before(host, library):
    library.on_turn = lambda: library.ends.append((COMPLETED, 0)) if library.turns == 3 else None
    transfer = host.submit(HANDLE, 0x81, 64, timeout_ms=0)
    host.handle_events(60_000)
    assert (transfer.done, library.turns) == (True, 3)
    host.handle_events(0)
    assert library.turns == 4


def test_ends_that_another_thread_saw_are_found_without_waiting(host, library):
    transfer = host.submit(HANDLE, 0x81, 64, timeout_ms=0)
    library.end(library.flying[0], COMPLETED, 0)
    host.handle_events(60_000)
    assert (transfer.status, library.turns) == ("completed", 0)


def test_a_signal_in_libusb_is_no_error(host, library):
    library.failure = libusb.INTERRUPTED
    library.ends = [(COMPLETED, 0)]
    transfer = host.submit(HANDLE, 0x81, 64, timeout_ms=0)
    host.handle_events(1000)
    assert transfer.status == "completed"
    library.failure = 0


def test_a_keyboard_interrupt_loses_nothing(host, library):
    def interrupt():
        raise KeyboardInterrupt

    transfers = [host.submit(HANDLE, 0x81, 64, timeout_ms=0) for _ in range(4)]
    library.on_turn = interrupt
    with pytest.raises(KeyboardInterrupt):
        host.handle_events(1000)
    assert host.in_flight == len(library.flying) == 4
    library.on_turn = lambda: None
    assert host.end(HANDLE) == 0
    assert {transfer.status for transfer in transfers} == {"cancelled"}


@pytest.mark.parametrize("refuse", [0, -6])
@pytest.mark.parametrize("taken", [False, True])
def test_an_interrupted_submission_is_ended_whether_libusb_has_it_or_not(host, library, monkeypatch, refuse, taken):
    monkeypatch.setattr(libusb, "REAP_S", 0.01)
    submit, library.refuse = library.libusb_submit_transfer, refuse

    def interrupted(pointer):
        if taken:
            submit(pointer)
        raise KeyboardInterrupt

    library.libusb_submit_transfer = interrupted
    with pytest.raises(KeyboardInterrupt):
        host.submit(HANDLE, 0x81, 64, timeout_ms=0)
    library.on_turn = presses(1)
    with pytest.raises(KeyboardInterrupt):
        host.end(HANDLE)
    assert host.end(HANDLE) == 0
    assert host.in_flight == 0


def test_one_that_libusb_has_is_not_taken_as_absent_for_being_cancelled_already(host, library, monkeypatch):
    monkeypatch.setattr(libusb, "REAP_S", 0.01)
    submit = library.libusb_submit_transfer

    def interrupted(pointer):
        submit(pointer)
        raise KeyboardInterrupt

    library.libusb_submit_transfer, library.keeps = interrupted, True
    with pytest.raises(KeyboardInterrupt):
        host.submit(HANDLE, 0x81, 64, timeout_ms=0)
    assert [host.end(HANDLE), host.end(HANDLE)] == [1, 1]
    library.keeps = False
    assert host.end(HANDLE) == 0


def test_a_cancellation_that_was_interrupted_is_not_taken_as_absent_when_it_is_asked_again(host, library, monkeypatch):
    monkeypatch.setattr(libusb, "REAP_S", 0.01)
    submit, cancel = library.libusb_submit_transfer, library.libusb_cancel_transfer

    def interrupted(call, pointer):
        call(pointer)
        raise KeyboardInterrupt

    library.libusb_submit_transfer, library.keeps = partial(interrupted, submit), True
    with pytest.raises(KeyboardInterrupt):
        host.submit(HANDLE, 0x81, 64, timeout_ms=0)
    library.libusb_cancel_transfer = partial(interrupted, cancel)
    with pytest.raises(KeyboardInterrupt):
        host.end(HANDLE)
    library.libusb_cancel_transfer = cancel
    assert host.end(HANDLE) == 1
    library.keeps = False
    assert host.end(HANDLE) == 0


def test_an_interrupted_result_is_not_looked_up_at_its_old_address(host, library):
    """Another transfer may be at that address by then."""
    transfer, free = host.submit(HANDLE, 0x81, 64, timeout_ms=0), library.libusb_free_transfer

    def interrupted(pointer):
        free(pointer)
        raise KeyboardInterrupt

    library.libusb_free_transfer, library.ends = interrupted, [(COMPLETED, 0)]
    with pytest.raises(KeyboardInterrupt):
        host.handle_events(1000)
    library.libusb_free_transfer = free
    host.handle_events(0)
    assert (transfer.status, host.in_flight) == ("completed", 0)


def test_ending_continues_after_failures_of_libusb_but_not_forever(host, library):
    transfer = host.submit(HANDLE, 0x81, 64, timeout_ms=0)
    library.failure = -1
    assert host.end(HANDLE) == 0
    assert transfer.status == "cancelled"
    transfer, library.keeps = host.submit(HANDLE, 0x81, 64, timeout_ms=0), True
    assert host.end(HANDLE) == 1
    assert library.turns == 1 + libusb.FAILURES
    library.failure, library.keeps = 0, False
    assert host.end(HANDLE) == 0


def test_end_is_for_one_device(host, library):
    other = SimpleNamespace(handle=ctypes.c_void_p(0x5678))
    kept = host.submit(other, 0x81, 64, timeout_ms=0)
    host.submit(HANDLE, 0x81, 64, timeout_ms=0)
    assert host.end(HANDLE) == 0
    assert (kept.done, host.in_flight) == (False, 1)
    host.end(other)


def test_a_forgotten_host_takes_its_transfers_back(library):
    host = LibusbHost(SimpleNamespace(lib=library, ctx=ctypes.c_void_p(1)))
    transfer = host.submit(HANDLE, 0x81, 64, timeout_ms=0)
    del host
    gc.collect()
    assert transfer.status == "cancelled"


def test_a_transfer_that_never_ends_keeps_its_buffer(library, monkeypatch):
    monkeypatch.setattr(libusb, "REAP_S", 0.0)
    host = LibusbHost(SimpleNamespace(lib=library, ctx=ctypes.c_void_p(1)))
    host.submit(HANDLE, 0x81, 64, timeout_ms=0)
    assert host.end(HANDLE) == 1
    del host
    gc.collect()
    library.fill(b"libusb writes there still")
    library.end(library.flying[0], COMPLETED, 25)
    library.alive.clear()


def test_other_backends_are_refused():
    with pytest.raises(NotSupported, match=r"libusb 1\.0, not SimpleNamespace"):
        LibusbHost(SimpleNamespace(lib=None))


def test_an_old_library_is_named():
    class Old:
        libusb_cancel_transfer = libusb_free_transfer = SimpleNamespace()

    with pytest.raises(NotSupported, match=r"1\.0\.19 or newer"):
        LibusbHost(SimpleNamespace(lib=Old(), ctx=ctypes.c_void_p(1)))


def test_the_real_library_has_every_function():
    backend = pyusb.get_backend()
    assert backend is not None
    host = LibusbHost(backend)
    host.handle_events(0)
    assert host.in_flight == 0
