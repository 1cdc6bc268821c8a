"""Peers that send random data. The server answers, refuses or closes; it keeps no descriptor of theirs and serves the
next peer.
"""

import array
import contextlib
import os
import random
import resource
import socket
import struct

import pytest

from ringup.silicon.serve import vfio_user_channel

VERSION, DMA_MAP, REGION_READ = 1, 2, 9
HONEST = struct.pack("=HHIIIHH", 0, VERSION, 20, 0, 0, 0, 1)


def connect(bench):
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(bench.paths[0])
    sock.setblocking(False)
    return sock


def send(bench, sock, data, fds=()):
    """Send as much as the server takes."""
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    with contextlib.suppress(OSError):
        sock.sendmsg([data], rights)
    bench.server.step(0)


def leave(bench, sock):
    sock.close()
    bench.until(lambda: bench.server._slots[0].peer is None)


def honest(bench, card):
    """Check that another peer finds a working card."""
    card.violations.clear()
    peer = bench.peer()
    assert peer.get(7, 0, 2) == b"\x02\x10"
    assert peer.ask(13) == b""
    peer.master()
    peer.put32(5, 0x53 * 4, 0x1234)
    assert peer.get32(5, 0x53 * 4) == 0x1234
    fd, mapped = bench.memfd(4096)
    event = bench.eventfd()
    assert peer.map(0x5000, 4096, fd) == 0
    assert peer.irqs(1, 0x24, fds=[event]) == 0
    card.host.write(0x5000, b"works")
    assert mapped[:5] == b"works"
    peer.close()
    bench.until(lambda: bench.server._slots[0].peer is None)
    card.violations.clear()


def number(rng, bits):
    return rng.choice(
        (0, 1, 4, 4096, (1 << bits) - 1, rng.getrandbits(bits), rng.getrandbits(5), 1 << rng.randrange(bits))
    )


def payload(rng, command):
    """Return a random payload, or one that fits the command."""
    if not rng.randrange(8):
        return rng.randbytes(rng.getrandbits(rng.randrange(1, 10)))
    u32, u64 = (lambda: number(rng, 32)), (lambda: number(rng, 64))
    size = rng.choice((64, 64, 64, 64, u32()))
    if command == DMA_MAP:
        address = rng.choice((u64(), rng.randrange(64) << 12))
        return struct.pack(
            "=IIQQQ", size, rng.choice((3, 1, u32())), rng.choice((0, u64())), address, rng.choice((4096, u64()))
        )
    if command == 3:
        return struct.pack(
            "=IIQQ", size, rng.choice((0, 0, 2, u32())), rng.choice((u64(), rng.randrange(64) << 12)), u64()
        )
    if command == 5:
        return struct.pack("=IIIIQQ", size, u32(), rng.choice((rng.randrange(10), u32())), u32(), u64(), u64())
    if command == 8:
        flags = rng.choice((0x24, 0x21, 0x22, 1 << rng.randrange(3) | 8 << rng.randrange(3), u32()))
        head = struct.pack(
            "=IIIII", size, flags, rng.choice((0, 1, u32())), rng.choice((0, u32())), rng.choice((0, 1, u32()))
        )
        return head + rng.randbytes(rng.randrange(4))
    if command in (REGION_READ, 10):
        count = rng.choice((1, 2, 4, 8, rng.getrandbits(12), u32()))
        region = rng.choice((0, 2, 4, 5, 6, 7, 7, u32()))
        return struct.pack("=QII", rng.choice((rng.getrandbits(12), u64())), region, count) + rng.randbytes(
            count if command == 10 and count < 8192 else rng.randrange(16)
        )
    if command == 15:
        count = rng.randrange(5)
        entries = b"".join(
            struct.pack("=QII8s", rng.getrandbits(20), rng.choice((0, 2, 5, 7)), rng.randrange(10), rng.randbytes(8))
            for _ in range(count)
        )
        return struct.pack("=Q", rng.choice((count, count, u64()))) + entries
    return struct.pack("=IIII", size, u32(), rng.choice((rng.randrange(6), u32())), u32())


def message(rng):
    command = rng.choice((1, 2, 2, 3, 4, 5, 6, 7, 8, 8, 9, 9, 10, 10, 11, 12, 14, 15, 16, 17, 18, number(rng, 16)))
    if not rng.randrange(60):
        command = 13
    body = payload(rng, command)
    size = 16 + len(body) if rng.randrange(80) else number(rng, 32)
    flags = rng.choice((0, 0, 0, 0, 0x10, 0x10, 1, 0x21, number(rng, 32) if not rng.randrange(40) else 0))
    return struct.pack("=HHIII", rng.getrandbits(16), command, size, flags, number(rng, 32)) + body


@pytest.mark.parametrize("seed", range(8))
def test_anything_is_survived_and_nothing_is_kept(bench, card, monkeypatch, seed):
    monkeypatch.setattr(vfio_user_channel, "ANSWER_S", 0.002)
    rng = random.Random(seed)
    bench.server.step(0)
    files = [
        bench.memfd(1 << 16)[0],
        bench.eventfd(),
        *os.pipe(),
        os.open("/", os.O_RDONLY),
        os.open("/dev/null", os.O_RDWR),
    ]
    bench.closing += files[2:]
    before = bench.descriptors()
    for _ in range(120):
        sock = connect(bench)
        if rng.randrange(6):
            send(bench, sock, HONEST)
        for _ in range(rng.randrange(40)):
            data = message(rng)
            if not rng.randrange(60):
                data = bytearray(data)
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            fds = rng.choices(files, k=rng.choice((0, 1, 1, 2)) if rng.randrange(40) else rng.randrange(65))
            cut = rng.randrange(len(data) + 1) if not rng.randrange(60) else len(data)
            send(bench, sock, bytes(data[:cut]), fds if cut else ())
            if cut and cut < len(data) and rng.randrange(2):
                send(bench, sock, bytes(data[cut:]))
            if not rng.randrange(4):
                with contextlib.suppress(OSError):
                    # The kernel closes descriptors that come with it.
                    while sock.recv(1 << 20):
                        pass
            card.host.read(rng.randrange(64) << 12, 8)
        leave(bench, sock)
    bench.clock.sleep_us(10_000)
    assert bench.descriptors() == before
    honest(bench, card)
    assert not card.log.find("failed")


def test_a_connection_may_end_at_any_byte(bench, card):
    fd, _ = bench.memfd(4096)
    whole = HONEST + struct.pack("=HHIIIIIQQQ", 1, DMA_MAP, 48, 0, 0, 32, 3, 0, 0x5000, 4096)
    bench.server.step(0)
    before = bench.descriptors()
    for cut in range(len(whole) + 1):
        sock = connect(bench)
        if cut:
            send(bench, sock, whole[:cut], [fd])
        leave(bench, sock)
    assert bench.descriptors() == before
    honest(bench, card)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        bytes(16),
        struct.pack("=HHIII", 0, 1, 15, 0, 0),
        struct.pack("=HHIII", 0, 1, 0xFFFF_FFFF, 0, 0),
        struct.pack("=HHIII", 0, 1, (1 << 20) + 8192, 0, 0),
        struct.pack("=HHIII", 0, 1, 20, 2, 0) + bytes(4),
        struct.pack("=HHIII", 0, 1, 20, 15, 0) + bytes(4),
    ],
    ids=["a browser", "zeros", "15 bytes", "4 GiB", "too long", "type 2", "type 15"],
)
@pytest.mark.parametrize("agreed", [False, True])
def test_what_is_no_message_closes_the_connection(bench, card, data, agreed, caplog):
    peer = bench.peer() if agreed else bench.connect()
    peer.send(data)
    assert peer.gone
    assert "the peer is gone" in caplog.text
    honest(bench, card)


@pytest.mark.parametrize("count", [17, 64, 250])
def test_more_descriptors_than_one_message_may_have_close_the_connection(bench, card, count):
    peer = bench.peer()
    fd = bench.eventfd()
    before = bench.descriptors()
    peer.send(peer.message(8, struct.pack("=IIIII", 20, 0x24, 1, 0, 1)), [fd] * count)
    assert peer.gone
    assert bench.descriptors() == before - 1
    honest(bench, card)


def test_descriptors_without_messages_do_not_use_up_the_process_s(bench, card):
    peer = bench.peer()
    fd = bench.eventfd()
    before = bench.descriptors()
    peer.send(struct.pack("=HHIII", 0, 4, 1 << 20, 0, 0))
    most = 0
    with contextlib.suppress(OSError):
        for _ in range(200):
            peer.send(b"x", [fd] * 16)
            bench.server.step(0)
            most = max(most, len(os.listdir("/proc/self/fd")))
    assert most < before + 400
    assert peer.gone
    assert bench.descriptors() == before - 1
    honest(bench, card)


def test_a_process_without_descriptors_left_goes_on_with_the_peers_it_has(bench, card):
    bench.card()
    other = bench.peer(1)
    fd, _ = bench.memfd(4096)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    waiting = socket.socket(socket.AF_UNIX)
    spare = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (waiting.fileno() + 50, hard))
        with contextlib.suppress(OSError):
            while True:
                spare.append(os.dup(fd))
        waiting.connect(bench.paths[0])
        for _ in range(5):
            bench.server.step(0)
        assert other.get(7, 0, 2) == b"\x02\x10"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for one in spare:
            os.close(one)
        waiting.close()
    bench.until(lambda: bench.server._slots[0].peer is None)
    honest(bench, card)


def test_the_next_peer_need_not_fear_what_the_last_one_left_half_said(bench, card):
    peer = bench.peer()
    peer.send(peer.message(10, struct.pack("=QII", 0x53 * 4, 5, 4) + b"abcd")[:-2])
    bench.server.step(0)
    peer.close()
    bench.until(lambda: bench.server._slots[0].peer is None)
    again = bench.peer()
    again.send(b"cd")
    again.send(again.message(4, bytes(16)))
    # The server closes for what this peer itself sent.
    assert again.gone
    honest(bench, card)


def test_a_connection_without_a_free_descriptor_waits_without_a_busy_loop(bench, card, rounds_without_descriptors):
    sock = socket.socket(socket.AF_UNIX)
    assert rounds_without_descriptors(bench.server, lambda: sock.connect(bench.paths[0])) < 60
    bench.until(lambda: bench.server._slots[0].peer is not None)
    sock.close()
