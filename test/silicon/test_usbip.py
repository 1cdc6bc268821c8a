"""The USB/IP server over real sockets. The peer is written byte by byte; the loopback device is behind the server."""

import random
import socket
import struct
import time

import pytest
import usb.core

from ringup.errors import CardBusy, NoSuchCard
from ringup.silicon.serve import usbip
from ringup.silicon.serve.usb_loopback import HIGH, SUPER, LoopbackHost
from ringup.silicon.serve.usbip import UsbipServer

STEPS = 4000
KEEP_OUT, KEEP_IN = b"\x40\x01\0\0\0\0", b"\xc0\x01\0\0\0\0"
EPIPE, EPROTO, EBADR, EINVAL, ENOMEM, ECONNRESET, ESHUTDOWN, EREMOTEIO = -32, -71, -53, -22, -12, -104, -108, -121


class Peer:
    """Acts as a kernel for the server: it sends commands, lets the server work, and reads answers."""

    def __init__(self, server, sock, devid=0x10001):
        self.server, self.sock, self.devid = server, sock, devid
        self.seqnum = 0
        self.inbox = b""
        self.address = sock.getpeername()
        sock.setblocking(False)

    def send(self, data):
        view = memoryview(data)
        while view:
            try:
                view = view[self.sock.send(view) :]
            except BlockingIOError:
                self.server.step(0)
        self.server.step(0)

    def read(self, size):
        """Return so many bytes, or fewer if the server has closed."""
        for _ in range(STEPS):
            if len(self.inbox) >= size:
                break
            try:
                data = self.sock.recv(1 << 20)
            except BlockingIOError:
                self.server.step(0.001)
                continue
            except ConnectionResetError:
                data = b""
            if not data:
                break
            self.inbox += data
        data, self.inbox = self.inbox[:size], self.inbox[size:]
        return data

    def ask(self, code, rest=b""):
        self.send(struct.pack(">HHI", 0x0111, code, 0) + rest)

    def attach(self, bus_id="1-1"):
        self.ask(0x8003, bus_id.encode().ljust(32, b"\0"))
        answer = self.read(8)
        assert answer == bytes.fromhex("0111 0003 00000000")
        record = self.read(312)
        self.devid = int.from_bytes(record[288:292], "big") << 16 | int.from_bytes(record[292:296], "big")
        return record

    def submit(self, endpoint, payload, setup=bytes(8), flags=0):
        """Begin a transfer; return its number. `payload` holds the bytes out, or how many bytes in."""
        self.seqnum += 1
        incoming = isinstance(payload, int)
        size = payload if incoming else len(payload)
        head = struct.pack(">5I5I8s", 1, self.seqnum, self.devid, incoming, endpoint & 15, flags, size, 0, 0, 0, setup)
        self.send(head if incoming else head + payload)
        return self.seqnum

    def unlink(self, target):
        self.seqnum += 1
        self.send(struct.pack(">5II24x", 2, self.seqnum, self.devid, 0, 0, target))
        return self.seqnum

    def answer(self, into_host=True):
        """Return (command, seqnum, status, actual, data) of the next answer."""
        head = self.read(48)
        command, seqnum = struct.unpack_from(">II", head)
        status, actual = struct.unpack_from(">iI", head, 20)
        return command, seqnum, status, actual, self.read(actual) if into_host and command == 3 else b""

    def control(self, setup, payload=b""):
        size = payload if isinstance(payload, int) else len(payload)
        number = self.submit(0, payload, setup[:6] + size.to_bytes(2, "little"))
        command, seqnum, status, actual, data = self.answer(isinstance(payload, int))
        assert (command, seqnum) == (3, number)
        return status, data if isinstance(payload, int) else actual

    def configure(self, setting=0):
        assert self.control(b"\x00\x09\x01\0\0\0")[0] == 0
        if setting:
            assert self.control(bytes((1, 11, setting, 0, 0, 0)))[0] == 0


@pytest.fixture
def host():
    return LoopbackHost(SUPER)


@pytest.fixture
def server(host):
    with UsbipServer([host]) as made:
        yield made


@pytest.fixture
def peer(server):
    port = server.listen(0)
    return Peer(server, socket.create_connection(("127.0.0.1", port)))


def another(server, peer):
    return Peer(server, socket.create_connection(peer.address))


def test_the_list_shows_what_is_plugged_in_and_not_given(server, peer, host):
    peer.ask(0x8005)
    listed = peer.read(1 << 16)
    assert listed[8:12] == bytes((0, 0, 0, 1))
    assert listed[0x10C:0x110] == b"1-1\0"
    assert listed[0x134:0x13E] == bytes.fromhex("00000005 1209 0001 0100")
    assert listed[0x144:] == bytes.fromhex("ffffff00")
    holder, asker = another(server, peer), another(server, peer)
    holder.attach()
    asker.ask(0x8005)
    assert asker.read(1 << 16)[8:] == bytes(4)
    host.unplug()


@pytest.mark.parametrize(("speed", "shown"), [(SUPER, 5), (HIGH, 3), (5, 5), (6, 5)], ids=["SS", "HS", "SS+", "SS+ x2"])
def test_a_speed_is_shown_as_far_as_a_virtual_port_goes(speed, shown):
    host = LoopbackHost(HIGH if speed == HIGH else SUPER)
    host.speed = speed
    with UsbipServer([host]) as server:
        assert [record.speed for record in server.records] == [shown]


def test_descriptors_come_through(peer):
    peer.attach()
    status, data = peer.control(b"\x80\x06\x00\x01\0\0", 18)
    assert (status, data[8:12]) == (0, bytes.fromhex("09120100"))
    status, data = peer.control(b"\x80\x06\x00\x02\0\0", 255)
    assert (status, len(data)) == (0, int.from_bytes(data[2:4], "little"))
    assert peer.control(b"\x80\x06\x02\x03\x09\x04", 255)[1][2:].decode("utf-16-le") == "loopback"


def test_control_data_goes_both_ways(peer):
    peer.attach()
    data = random.Random(1).randbytes(3000)
    assert peer.control(KEEP_OUT, data) == (0, 3000)
    assert peer.control(KEEP_IN, 4096) == (0, data)
    assert peer.control(KEEP_IN, 100) == (0, data[:100])


def test_an_unknown_request_stalls_and_the_next_works(peer):
    peer.attach()
    assert peer.control(b"\xc0\x7f\0\0\0\0", 8) == (EPIPE, b"")
    assert peer.control(b"\x40\x7f\0\0\0\0") == (EPIPE, 0)
    assert peer.control(KEEP_IN, 8)[0] == 0


def test_bulk_data_comes_back_as_it_was(peer):
    peer.attach()
    peer.configure()
    rng = random.Random(2)
    for size in (0, 1, 511, 512, 1023, 1024, 1025, 65536, 300_000):
        data = rng.randbytes(size)
        out = peer.submit(0x02, data)
        assert peer.answer(into_host=False) == (3, out, 0, size, b"")
        got = peer.submit(0x81, (size // 1024 + 1) * 1024 if size % 1024 or not size else size)
        assert peer.answer() == (3, got, 0, size, data)


def test_many_transfers_are_in_flight_and_end_in_order(peer):
    peer.attach()
    peer.configure(setting=1)
    numbers = [peer.submit(0x83, 4096) for _ in range(64)]
    pattern = bytes(range(251)) * ((64 * 4096) // 251 + 1)
    for at, number in enumerate(numbers):
        assert peer.answer() == (3, number, 0, 4096, pattern[at * 4096 : (at + 1) * 4096])


def test_a_later_transfer_of_another_endpoint_need_not_wait(peer):
    peer.attach()
    peer.configure()
    waiting = peer.submit(0x81, 1024)
    out = peer.submit(0x02, b"now")
    first, data, second = peer.read(48), peer.read(3), peer.read(48)
    assert data == b"now"
    # Both answers come in one round.
    assert [int.from_bytes(head[4:8], "big") for head in (first, second)] == [waiting, out]


def test_short_not_ok_is_said_of_a_short_transfer(peer):
    peer.attach()
    assert peer.control(KEEP_OUT, b"abc")[0] == 0
    number = peer.submit(0, 8, KEEP_IN + b"\x08\0", flags=1)
    assert peer.answer() == (3, number, EREMOTEIO, 3, b"abc")


def test_an_asked_for_empty_packet_ends_a_full_one(peer):
    peer.attach()
    peer.configure()
    out = peer.submit(0x02, bytes(1024), flags=0x40)
    assert peer.answer(into_host=False)[:4] == (3, out, 0, 1024)
    number = peer.submit(0x81, 4096)
    # Without the empty packet it would wait for more.
    assert peer.answer()[:4] == (3, number, 0, 1024)


def test_a_stalled_endpoint_stays_so_until_its_halt_is_cleared(peer):
    peer.attach()
    peer.configure()
    assert peer.control(b"\x40\x03\0\0\x02\0")[0] == 0
    for _ in range(2):
        peer.submit(0x02, b"x")
        assert peer.answer(into_host=False)[2] == EPIPE
    assert peer.control(b"\x02\x01\0\0\x02\0")[0] == 0
    peer.submit(0x02, b"x")
    assert peer.answer(into_host=False)[2] == 0


def test_taken_back_before_it_ended(peer):
    peer.attach()
    peer.configure()
    waiting = peer.submit(0x81, 1024)
    number = peer.unlink(waiting)
    assert peer.answer() == (4, number, ECONNRESET, 0, b"")
    peer.submit(0x02, b"later")
    assert peer.answer(into_host=False)[2] == 0
    again = peer.submit(0x81, 1024)
    assert peer.answer() == (3, again, 0, 5, b"later")


def test_taken_back_half_way_tells_what_had_come(peer):
    peer.attach()
    peer.configure()
    waiting = peer.submit(0x81, 4096)
    peer.submit(0x02, bytes(1024))
    assert peer.answer(into_host=False)[2] == 0
    number = peer.unlink(waiting)
    assert peer.answer() == (3, waiting, ECONNRESET, 1024, bytes(1024))
    assert peer.answer() == (4, number, 0, 0, b"")


def test_taken_back_too_late(peer):
    peer.attach()
    number = peer.submit(0, 18, b"\x80\x06\x00\x01\0\0\x12\0")
    assert peer.answer()[1] == number
    unlink = peer.unlink(number)
    assert peer.answer() == (4, unlink, 0, 0, b"")


def test_an_endpoint_that_is_not_there_does_not_answer(peer):
    peer.attach()
    peer.submit(0x81, 8)
    # There is no configuration yet.
    assert peer.answer()[2] == EPROTO
    peer.configure()
    peer.submit(0x83, 8)
    # The endpoint is not in this setting.
    assert peer.answer()[2] == EPROTO
    peer.configure(setting=1)
    peer.submit(0x83, 8)
    assert peer.answer()[2] == 0


def test_a_setup_packet_must_fit_its_transfer(peer, host):
    peer.attach()
    peer.submit(0, 18, b"\x80\x06\x00\x01\0\0\x08\0")
    assert peer.answer()[2] == EBADR
    peer.submit(0, b"12345678", b"\xc0\x01\0\0\0\0\x08\0")
    assert peer.answer(into_host=False)[2] == EINVAL
    assert peer.control(b"\x00\x05\x07\0\0\0")[0] == EPIPE  # SET_ADDRESS
    assert host.kept == b""


def test_unplugged_mid_transfer(server, peer, host):
    peer.attach()
    peer.configure()
    numbers = [peer.submit(0x81, 1024) for _ in range(3)]
    # The device leaves within 5 ms of its own time.
    assert peer.control(b"\x40\x04\x05\0\0\0")[0] == 0
    assert [peer.answer()[1:3] for _ in numbers] == [(number, ESHUTDOWN) for number in numbers]
    assert peer.read(1) == b""
    assert host.opened == 0


def test_unplugged_while_idle_closes_the_connection(server, peer, host):
    peer.attach()
    host.unplug()
    assert peer.read(1) == b""


def test_plugged_in_again_it_is_another_device_of_the_same_name(server, peer, host):
    before = peer.attach()
    host.unplug()
    assert peer.read(1) == b""
    host.plug()
    after = another(server, peer).attach()
    assert before[256:288] == after[256:288]
    assert before[292:296] != after[292:296]


def test_what_is_given_is_refused_to_others_until_its_holder_goes(server, peer):
    peer.attach()
    peer.configure()
    peer.submit(0x81, 1024)
    other = another(server, peer)
    other.ask(0x8003, b"1-1".ljust(32, b"\0"))
    assert other.read(64) == bytes.fromhex("0111 0003 00000002")
    peer.sock.close()
    server.step(0.1)
    third = another(server, peer)
    third.attach()
    third.configure()
    third.submit(0x02, b"free")
    assert third.answer(into_host=False)[2] == 0


def test_an_unknown_name_is_refused(peer):
    peer.ask(0x8003, b"7-7".ljust(32, b"\0"))
    assert peer.read(64) == bytes.fromhex("0111 0003 00000004")


def test_two_hosts_two_buses(peer):
    hosts = LoopbackHost(SUPER), LoopbackHost(HIGH)
    with UsbipServer(hosts) as server:
        assert [(one.bus_id, one.speed, one.devid >> 16) for one in server.records] == [("1-1", 5, 1), ("2-1", 3, 2)]
        port = server.listen(0)
        fast, slow = (Peer(server, socket.create_connection(("127.0.0.1", port))) for _ in range(2))
        fast.attach("1-1")
        slow.attach("2-1")
        for each, data in ((fast, b"fast"), (slow, b"slow")):
            each.configure()
            each.submit(0x02, data)
            assert each.answer(into_host=False)[2] == 0
        for each, data in ((slow, b"slow"), (fast, b"fast")):
            each.submit(0x81, 1024)
            assert each.answer()[4] == data
        hosts[0].unplug()
        assert fast.read(1) == b""
        assert slow.control(KEEP_IN, 4)[0] == 0


def test_a_socketpair_is_served_without_a_greeting(server, host):
    ours, theirs = socket.socketpair()
    record = server.adopt(theirs, "1-1")
    peer = Peer(server, ours, record.devid)
    assert peer.control(b"\x80\x06\x00\x01\0\0", 18)[0] == 0
    with pytest.raises(CardBusy, match="1-1 is imported"):
        server.adopt(socket.socketpair()[0], "1-1")
    with pytest.raises(NoSuchCard, match="there are: 1-1"):
        server.adopt(socket.socketpair()[0], "3-3")


def test_a_socket_in_the_file_system(server, tmp_path):
    path = str(tmp_path / "usbip")
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(path)
    stale.close()
    server.listen_unix(path)
    with pytest.raises(CardBusy, match="another server already does; stop it, or choose another path"):
        UsbipServer([]).listen_unix(path)
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(path)
    Peer(server, sock).attach()
    server.close()
    assert not (tmp_path / "usbip").exists()


def test_a_socket_that_fails_to_close_leaves_no_other_open(host, tmp_path):
    taken, other = tmp_path / "taken", tmp_path / "other"
    server = UsbipServer([host])
    for path in (taken, other):
        server.listen_unix(str(path))
    taken.unlink()
    taken.mkdir()
    with pytest.raises(OSError, match="taken"):
        server.close()
    assert not other.exists()
    server.close()


def test_a_connection_without_a_free_descriptor_waits_without_a_busy_loop(server, rounds_without_descriptors):
    address, sock = ("127.0.0.1", server.listen(0)), socket.socket()
    assert rounds_without_descriptors(server, lambda: sock.connect(address)) < 60
    Peer(server, sock).attach()


HOSTILE = {
    "another version": b"\x01\x00\x80\x05\0\0\0\0",
    "web browser": b"GET / HTTP/1.1\r\n\r\n",
    "zeros": bytes(64),
}
HOSTILE_LATER = {
    "unknown command": struct.pack(">5I28x", 9, 1, 0x10001, 0, 0),
    "another device": struct.pack(">5I5I8s", 1, 1, 0x10002, 1, 0, 0, 18, 0, 0, 0, b"\x80\x06\0\1\0\0\x12\0"),
    "2 GiB": struct.pack(">5I5I8s", 1, 1, 0x10001, 0, 2, 0, 0x7FFF_FFFF, 0, 0, 0, bytes(8)),
    "isochronous": struct.pack(">5I5I8s", 1, 1, 0x10001, 1, 1, 0, 64, 0, 8, 0, bytes(8)),
    "endpoint 77": struct.pack(">5I5I8s", 1, 1, 0x10001, 1, 77, 0, 64, 0, 0, 0, bytes(8)),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE.keys())
def test_nonsense_at_first_closes_that_connection_only(server, peer, data):
    good = another(server, peer)
    good.attach()
    peer.send(data)
    assert peer.read(1) == b""
    assert good.control(KEEP_IN, 4)[0] == 0


@pytest.mark.parametrize("data", HOSTILE_LATER.values(), ids=HOSTILE_LATER.keys())
def test_nonsense_later_closes_that_connection_and_frees_the_device(server, peer, data, caplog):
    peer.attach()
    peer.send(data)
    assert peer.read(1) == b""
    assert "is closed: " in caplog.text
    again = another(server, peer)
    again.attach()
    assert again.control(KEEP_IN, 4)[0] == 0


def test_a_number_in_use_closes_the_connection(peer):
    peer.attach()
    peer.configure()
    peer.submit(0x81, 1024)
    peer.seqnum -= 1
    peer.submit(0x81, 1024)
    assert peer.read(1) == b""


def test_random_bytes_never_stop_the_server(server, peer):
    rng = random.Random(3)
    bystander = another(server, peer)
    heads = [struct.pack(">HHI", 0x0111, 0x8003, 0) + b"1-1".ljust(32, b"\0"), b""]
    for _ in range(150):
        hostile = another(server, peer)
        command = struct.pack(
            ">5I", rng.choice((1, 2)), rng.getrandbits(4), 0x10001, rng.choice((0, 1)), rng.getrandbits(2)
        )
        rest = struct.pack(">5I8s", rng.getrandbits(8), rng.getrandbits(12), 0, 0, 0, rng.randbytes(8))
        for piece in (rng.choice(heads), command + rest, rng.randbytes(rng.getrandbits(9))):
            try:
                hostile.send(piece)
            except OSError:
                break
        hostile.sock.close()
        server.step(0)
    bystander.attach()
    assert bystander.control(KEEP_IN, 4)[0] == 0


def test_a_peer_with_too_much_in_flight_gets_an_error(peer, monkeypatch):
    monkeypatch.setattr("ringup.silicon.serve.usbip_session.MAX_PENDING", 4)
    peer.attach()
    peer.configure()
    for _ in range(4):
        peer.submit(0x81, 64)
    fifth = peer.submit(0x81, 64)
    assert peer.answer() == (3, fifth, ENOMEM, 0, b"")


def test_a_peer_that_reads_nothing_is_read_no_further(server, peer, monkeypatch):
    monkeypatch.setattr(usbip, "FULL_BYTES", 1 << 20)
    peer.attach()
    peer.configure(setting=1)
    accepted, piece = 0, 1 << 16
    request = struct.pack(">5I5I8s", 1, 0, peer.devid, 1, 3, 0, 64, 0, 0, 0, bytes(8))
    numbered = (request[:4] + number.to_bytes(4, "big") + request[8:] for number in range(100, 1 << 20))
    pending = b""
    for _ in range(1000):
        while len(pending) < piece:
            pending += next(numbered)
        try:
            count = peer.sock.send(pending)
        except BlockingIOError:
            server.step(0.001)
            with pytest.raises(BlockingIOError):
                peer.sock.send(pending)
            break
        accepted, pending = accepted + count, pending[count:]
        server.step(0)
    assert 1 << 20 < accepted < 64 << 20
    other = another(server, peer)
    other.ask(0x8005)
    assert other.read(12)[:4] == bytes.fromhex("01110005")
    answered = [peer.answer() for _ in range(4096)]
    assert len({number for _, number, _, _, _ in answered}) == 4096
    assert {status for _, _, status, _, _ in answered} == {0, ENOMEM}


def test_a_peer_that_says_nothing_is_sent_away(server, peer, monkeypatch):
    monkeypatch.setattr(usbip, "PATIENCE_S", 0.0)
    silent = another(server, peer)
    assert silent.read(1) == b""


def test_time_passes_for_a_device_while_nobody_asks(server, peer, host):
    peer.attach()
    before = host.clock.now_us
    server.step(0.02)
    assert host.clock.now_us > before


def test_a_transfer_that_waits_for_the_peer_passes_with_the_wall_clock(server, peer, host):
    peer.attach()
    peer.configure()
    peer.submit(0x81, 1024)
    before_us, before_s = host.clock.now_us, time.monotonic()
    for _ in range(20):
        server.step(0.02)
    passed_s = time.monotonic() - before_s
    # The clock runs freely for one burst at most.
    assert host.clock.now_us - before_us <= passed_s * 1_000_000 + usbip.BURST_MS * 1000


def test_pyusb_drives_the_loopback_directly(host):
    device = usb.core.find(backend=host)
    device.set_configuration()
    assert device.write(0x02, b"hello") == 5
    assert bytes(device.read(0x81, 1024)) == b"hello"
    with pytest.raises(usb.core.USBTimeoutError):
        device.read(0x81, 1024, timeout=50)
    with pytest.raises(usb.core.USBError, match="stall"):
        device.ctrl_transfer(0xC0, 0x7F, 0, 0, 8)
