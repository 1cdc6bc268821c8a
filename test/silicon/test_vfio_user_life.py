"""A server's peers come and go, its sockets lie in the file system, and time passes for its cards as on the host."""

import errno
import os
import socket
import stat
import struct
import threading
import time

import pytest

from ringup.errors import CardBusy, TransportError
from ringup.silicon.common.clock import VirtualClock
from ringup.silicon.serve.vfio_user import VfioUserServer

RESET = 13
CONFIG, ROM = 7, 6
# Its offset in configuration space.
INTERRUPT_LINE = 0x3C
SCRATCH = 0x53 * 4  # SCRATCH_7: plain storage
MIB = 1 << 20


# Peers come and go.


def test_a_second_peer_is_turned_away(bench, peer):
    other = bench.connect()
    assert other.gone
    assert peer.get(CONFIG, 0, 2) == b"\x02\x10"


def test_the_next_peer_may_follow_at_once(bench, peer):
    peer.close()
    assert bench.peer().get(CONFIG, 0, 2) == b"\x02\x10"


def test_a_reconnecting_peer_finds_the_card_as_it_left_it_without_memory_and_interrupts(bench, card):
    bench.server.step(0)
    before = bench.descriptors()
    peer = bench.peer()
    fd, mapped = bench.memfd(8192)
    event = bench.eventfd()
    assert peer.map(0x10_0000, 8192, fd) == 0
    assert peer.irqs(1, 0x24, fds=[event]) == 0
    peer.master()
    peer.put32(5, SCRATCH, 77)
    peer.put(0, 0x1000, b"kept")
    peer.close()
    bench.until(lambda: bench.server._slots[0].peer is None)
    # The server keeps three descriptors: the file, its mapping and the eventfd.
    assert bench.descriptors() == before + 2 + 1
    again = bench.peer()
    assert again.get32(5, SCRATCH) == 77
    assert again.get(0, 0x1000, 4) == b"kept"
    assert again.get(CONFIG, 4, 2) == b"\x06\x00"
    card.host.write(0x10_0000, b"lost")
    assert mapped[:4] == bytes(4)
    assert "0x100000, where no memory is" in card.violations.pop().text
    card.gpu.config.write(0xA0, 0x10005, 4)
    card.gpu.interrupt(0)
    assert bench.count(event) == 0


def test_an_interrupt_waits_for_a_peer_that_agrees_and_not_for_one_that_only_looks(bench, card):
    card.gpu.config.write(4, 6, 2)
    card.gpu.config.write(0xA2, 1, 2)
    card.gpu.interrupt(0)
    looking = bench.connect()
    looking.settle()
    looking.close()
    bench.until(lambda: bench.server._slots[0].peer is None)
    event = bench.eventfd()
    assert bench.peer().irqs(1, 0x24, fds=[event]) == 0
    assert bench.count(event) == 1


def test_several_cards_at_several_sockets(bench):
    cards = bench.card(), bench.card("navi33"), bench.card()
    peers = [bench.peer(number) for number in range(3)]
    for number, peer in enumerate(peers):
        peer.put32(5, SCRATCH, number)
    assert [card.bars[5].read32(SCRATCH) for card in cards] == [0, 1, 2]
    peers[1].send(b"\xff" * 64)
    assert peers[1].gone
    assert [peers[at].get32(5, SCRATCH) for at in (0, 2)] == [0, 2]
    assert bench.peer(1).get32(5, SCRATCH) == 1


def test_a_reset_puts_configuration_space_back_and_loses_memory(peer, card):
    peer.put(CONFIG, 0x10, struct.pack("<II", 0x2000_000C, 0x12))
    peer.master()
    peer.put(0, 0, b"gone")
    peer.put32(5, SCRATCH, 5)
    assert peer.ask(RESET) == b""
    assert card.gpu.bar_address(0) == 0x12_2000_0000
    assert peer.get(CONFIG, 4, 2) == b"\x06\x00"
    assert peer.get(0, 0, 4) == bytes(4)
    assert peer.get32(5, SCRATCH) != 5


def test_a_card_that_is_gone_answers_with_ones(peer, card):
    card.unplug()
    assert peer.get(CONFIG, 0, 4) == b"\xff" * 4
    assert peer.get(5, SCRATCH, 4) == b"\xff" * 4
    assert peer.get(ROM, 0, 2) == b"\xff" * 2
    peer.put32(5, SCRATCH, 1)
    assert peer.refused(RESET) == errno.ENODEV
    assert card.violations == []


# sockets


def test_a_card_that_fails_to_close_leaves_no_other_open(bench):
    def stuck(name):
        def fail():
            raise TransportError(f"{name} is stuck")

        return fail

    cards = [bench.card() for _ in range(3)]
    peers = [bench.peer(number) for number in range(3)]
    for peer in peers:
        peer.master()
    for card, name in zip(cards, ("the first", "the second"), strict=False):
        card.gpu.on_change = stuck(name)
    with pytest.raises(TransportError, match="the first is stuck"):
        bench.server.close()
    assert all(peer.gone for peer in peers)
    assert not any(os.path.exists(path) for path in bench.paths)
    assert not cards[2].gpu.config.read(4, 2) & 4
    bench.server.close()


def test_only_its_owner_may_connect(bench, card):
    assert stat.S_IMODE(os.stat(bench.paths[0]).st_mode) == 0o600


def test_a_stale_socket_is_replaced_and_a_live_one_is_not(bench, tmp_path, virtual_card):
    path = str(tmp_path / "card0")
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(path)
    bench.card()
    assert bench.peer().get(CONFIG, 0, 2) == b"\x02\x10"
    with VfioUserServer(VirtualClock()) as other, pytest.raises(CardBusy, match="another server already does"):
        other.serve(path, virtual_card(vram_bytes=64 * MIB))
    assert bench.peers[0].get(CONFIG, 0, 2) == b"\x02\x10"


def test_a_server_that_is_too_busy_to_take_a_connection_is_live(tmp_path, virtual_card):
    path = str(tmp_path / "busy")
    with socket.socket(socket.AF_UNIX) as busy, VfioUserServer(VirtualClock()) as other:
        busy.bind(path)
        busy.listen(0)
        waiting = []
        for _ in range(3):
            waiting.append(socket.socket(socket.AF_UNIX))
            waiting[-1].setblocking(False)
            waiting[-1].connect_ex(path)
        with pytest.raises(CardBusy):
            other.serve(path, virtual_card(vram_bytes=64 * MIB))
        for sock in waiting:
            sock.close()


def test_what_is_no_socket_is_left_alone(tmp_path, virtual_card):
    (tmp_path / "file").write_text("mine")
    with (
        VfioUserServer(VirtualClock()) as server,
        pytest.raises(TransportError, match="already exists and is no socket"),
    ):
        server.serve(str(tmp_path / "file"), virtual_card(vram_bytes=64 * MIB))
    assert (tmp_path / "file").read_text() == "mine"


def test_a_closed_server_leaves_nothing(bench, card):
    peer = bench.peer()
    bench.server.close()
    bench.server.close()
    assert not os.path.exists(bench.paths[0])
    assert peer.sock.recv(1) == b""
    assert not card.gpu.masters_bus


# time


def caught_up(bench):
    """Let the cards' time catch up with ours; return when it did, in seconds of ours."""
    while True:
        began = time.monotonic()
        bench.server.step(0)
        if bench.server._target_ns() - bench.clock.now_ns < 1_000_000:
            return began


def test_time_follows_the_wall_clock_and_timers_fire(bench, card, peer):
    fired = []
    began_s, began_ns = caught_up(bench), bench.clock.now_ns
    card.clock.after(30_000, lambda: fired.append(time.monotonic() - began_s))
    bench.until(lambda: fired)
    assert fired[0] > 0.028
    passed_ns = bench.clock.now_ns - began_ns
    assert 30e6 <= passed_ns < (time.monotonic() - began_s) * 1e9 + 2e6


def test_an_access_finds_the_card_as_it_is_by_now(bench, card, peer):
    caught_up(bench)
    card.clock.after(2_000, lambda: card.gpu.write(INTERRUPT_LINE, 0x5A, 1))
    time.sleep(0.01)
    assert peer.get(CONFIG, INTERRUPT_LINE, 1) == b"\x5a"


def test_a_step_does_not_outlast_what_falls_due(bench, card):
    fired = []
    bench.server.step(0)
    card.clock.after(10_000, lambda: fired.append(True))
    began = time.monotonic()
    while not fired:
        bench.server.step(5)
    assert time.monotonic() - began < 4


def test_a_guest_that_resets_without_end_does_not_stop_the_others_clock(bench, card, peer):
    """Each reset takes 100 ms of the cards' time, and much less of ours."""
    for _ in range(12):
        peer.ask(RESET)
    bench.server.step(0)
    before = bench.clock.now_ns
    bench.until(lambda: bench.clock.now_ns > before, seconds=5)


def test_a_model_that_is_slow_does_not_keep_peers_waiting(bench, card, peer):
    def work():
        time.sleep(0.002)
        card.clock.after(1, work)

    card.clock.after(0, work)
    time.sleep(0.01)
    began = time.monotonic()
    for _ in range(20):
        assert peer.get(CONFIG, 0, 2) == b"\x02\x10"
    assert time.monotonic() - began < 5


def test_another_thread_has_the_loop_do_things(bench, card):
    results = []

    def ask():
        results.append(bench.server.call(lambda: (threading.current_thread().name, card.name)).result(10))
        with pytest.raises(ZeroDivisionError):
            bench.server.call(lambda: 1 // 0).result(10)
        bench.server.call(lambda: 0).cancel()
        bench.server.stop()

    thread = threading.Thread(target=ask)
    thread.start()
    bench.server.run()
    thread.join(10)
    assert results == [(threading.current_thread().name, "virtual:navi31")]


def test_a_call_that_was_taken_back_is_not_made(bench, card):
    made = []
    bench.server.call(lambda: made.append(1)).cancel()
    future = bench.server.call(lambda: made.append(2))
    bench.server.step(0)
    assert made == [2]
    assert future.done()


def test_calls_of_a_server_that_ends_are_taken_back(bench, card):
    future = bench.server.call(lambda: 1)
    bench.server.close()
    assert future.cancelled()
