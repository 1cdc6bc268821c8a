"""The vfio-user server over real sockets. The peer is written byte by byte. Tests cover versions, descriptions, regions
and the order of messages.
"""

import errno
import json
import mmap
import os
import socket
import struct
import time

import pytest

from ringup.silicon.serve import vfio_user

VERSION, DMA_MAP, DMA_UNMAP, INFO, REGION_INFO, IO_FDS, IRQ_INFO, SET_IRQS = 1, 2, 3, 4, 5, 6, 7, 8
READ, WRITE, DMA_READ, RESET, DIRTY, MULTI, FEATURE, MIG_READ, MIG_WRITE = 9, 10, 11, 13, 14, 15, 16, 17, 18
NO_REPLY = 0x10
CONFIG, ROM = 7, 6
SCRATCH = 0x53 * 4  # SCRATCH_7: plain storage
MIB = 1 << 20
# The proposal of QEMU 10.1, as its caps_json writes it. QEMU has no room for a longer answer.
QEMU = (
    b'{"capabilities": {"migration": {"pgsize": 4096, "max_bitmap_size": 268435456}, "max_msg_fds": 16, '
    b'"max_data_xfer_size": 1048576, "pgsizes": 4096, "max_dma_maps": 65535, "write_multiple": true}}\0'
)


def region_info(peer, index, argsz=4096):
    """Return (argsz, flags, index, capability's offset, size, offset to map), the remaining bytes, and the
    descriptors.
    """
    reply = peer.exchange(REGION_INFO, struct.pack("=IIIIQQ", argsz, 0, index, 0, 0, 0))
    assert reply.errno == 0
    assert len(reply.payload) <= max(argsz, 32)
    return struct.unpack_from("=IIIIQQ", reply.payload), reply.payload[32:], reply.fds


# versions


@pytest.mark.parametrize(("proposed", "agreed"), [(0, 0), (1, 1), (7, 1)])
def test_the_minor_version_is_the_smaller_one(bench, card, proposed, agreed):
    assert bench.connect().agree(minor=proposed)[0] == (0, agreed)


def test_only_proposed_capabilities_are_answered(bench, card):
    assert bench.connect().agree()[1] == {"capabilities": {}}
    bench.peers[-1].close()
    _, answer = bench.connect().agree(max_msg_fds=1, write_multiple=True, gadgets=3, pgsizes=4096, max_dma_maps=9)
    assert answer["capabilities"].keys() == {"max_msg_fds", "write_multiple", "pgsizes", "max_dma_maps"}
    assert answer["capabilities"]["max_msg_fds"] >= 1


def test_qemu_has_room_for_the_answer(bench, card):
    peer = bench.connect()
    request = struct.pack("=HH", 0, 0) + QEMU
    reply = peer.ask(VERSION, request)
    assert len(reply) <= len(request)
    assert reply[:4] == bytes(4)
    assert reply[-1] == 0
    limits = json.loads(reply[4:-1])["capabilities"]
    assert limits["max_msg_fds"] <= 16  # VFIO_USER_MAX_MAX_FDS
    assert limits["pgsizes"] == 4096
    assert limits["max_dma_maps"] <= 65535
    assert limits["write_multiple"] is True


def test_a_version_without_data_is_answered_without(bench, card):
    assert bench.connect().ask(VERSION, bytes(4)) == bytes(4)
    assert bench.peers[0].get(CONFIG, 0, 2) == b"\x02\x10"


@pytest.mark.parametrize(
    ("payload", "number"),
    [
        (struct.pack("=HH", 1, 0), errno.EPROTONOSUPPORT),
        (b"\0\0", errno.EINVAL),
        (bytes(4) + b"{", errno.EINVAL),
        (bytes(4) + b"[]\0", errno.EINVAL),
        (bytes(4) + b'{"capabilities": 3}\0', errno.EINVAL),
        (bytes(4) + b'{"capabilities": "ab"}\0', errno.EINVAL),
        (bytes(4) + b"[" * 100_000, errno.EINVAL),
        (bytes(4) + b"\xff\xfe\0", errno.EINVAL),
        (bytes(4) + b'{"capabilities": {"max_data_xfer_size": 8}}\0', errno.EINVAL),
        (bytes(4) + b'{"capabilities": {"max_data_xfer_size": true}}\0', errno.EINVAL),
        (bytes(4) + b'{"capabilities": {"max_data_xfer_size": Infinity}}\0', errno.EINVAL),
        (bytes(4) + b'{"capabilities": {"max_msg_fds": "many"}}\0', errno.EINVAL),
        (bytes(4) + b'{"capabilities": {"max_msg_fds": -1}}\0', errno.EINVAL),
        (bytes(4) + b'{"capabilities": {"max_data_xfer_size": ' + b"9" * 9000 + b"}}\0", errno.EINVAL),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_what_is_no_version_is_refused_and_the_connection_closed(bench, card, payload, number):
    peer = bench.connect()
    assert peer.refused(VERSION, payload) == number
    assert peer.gone
    assert bench.peer().get(CONFIG, 0, 2) == b"\x02\x10"


def test_a_command_before_the_version_closes_the_connection(bench, card):
    peer = bench.connect()
    assert peer.refused(INFO, bytes(16)) == errno.EPROTO
    assert peer.gone


def test_a_second_version_is_refused_and_changes_nothing(peer):
    assert peer.refused(VERSION, bytes(4)) == errno.EINVAL
    assert peer.get(CONFIG, 0, 2) == b"\x02\x10"


def test_no_version_in_time_closes_the_connection(bench, card, monkeypatch):
    monkeypatch.setattr(vfio_user, "HANDSHAKE_S", 0.0)
    assert bench.connect().gone


def test_a_version_that_wants_no_answer_gets_none_and_leaks_nothing(bench, card):
    peer = bench.connect()
    bench.server.step(0)
    before = bench.descriptors()
    text = b'{"capabilities": {"twin_socket": {"supported": true}}}\0'
    peer.send(peer.message(VERSION, bytes(4) + text, NO_REPLY))
    assert peer.get(CONFIG, 0, 2) == b"\x02\x10"
    assert bench.descriptors() == before


# descriptions


def test_the_device_is_described(peer):
    assert struct.unpack("=IIII", peer.ask(INFO, struct.pack("=IIII", 16, 0, 0, 0))) == (16, 3, 9, 5)


@pytest.mark.parametrize(
    ("command", "payload"),
    [
        (INFO, struct.pack("=IIII", 15, 0, 0, 0)),
        (INFO, b"\x10\0\0\0"),
        (REGION_INFO, struct.pack("=IIIIQQ", 31, 0, 0, 0, 0, 0)),
        (REGION_INFO, struct.pack("=IIIIQQ", 32, 0, 9, 0, 0, 0)),
        (REGION_INFO, struct.pack("=IIIIQQ", 32, 0, 0xFFFF_FFFF, 0, 0, 0)),
        (IRQ_INFO, struct.pack("=IIII", 12, 0, 0, 0)),
        (IRQ_INFO, struct.pack("=IIII", 16, 0, 5, 0)),
        (SET_IRQS, struct.pack("=IIIII", 19, 0x21, 1, 0, 0)),
        (DMA_MAP, struct.pack("=IIQQQ", 31, 3, 0, 0, 4096)),
        (DMA_UNMAP, struct.pack("=IIQQ", 23, 2, 0, 0)),
        (WRITE, struct.pack("=QII", 0, 7, 4) + b"abc"),
        (READ, struct.pack("=QI", 0, 7)),
        (FEATURE, b"\0\0\0\0"),
        (MULTI, struct.pack("=Q", 2) + bytes(24)),
        (MULTI, struct.pack("=Q", 1 << 61)),
    ],
)
def test_too_small_or_out_of_range_is_einval(peer, command, payload):
    assert peer.refused(command, payload) == errno.EINVAL


def test_regions_are_described(peer, card):
    sizes = {0: 256 * MIB, 2: 2 * MIB, 4: 256, 5: MIB, CONFIG: 4096}
    for index in range(9):
        (argsz, flags, which, _, size, offset), rest, fds = region_info(peer, index)
        assert (argsz, which, offset) == (32 + len(rest), index, 0)
        if index == 0:
            assert flags == 0b1111
            assert len(fds) == 1
        elif index == ROM:
            assert (flags, size) == (1, 128 << 10)
        else:
            assert (flags, size) == (3 if index in sizes else 0, sizes.get(index, 0))
            assert not fds


def test_memory_smaller_than_its_bar_can_be_mapped_in_part(peer, card):
    (argsz, _, _, place, size, _), rest, fds = region_info(peer, 0)
    assert (argsz, place, size) == (64, 32, 256 * MIB)
    assert struct.unpack("=HHIIIQQ", rest) == (1, 1, 0, 1, 0, 0, 64 * MIB)
    assert os.fstat(fds[0]).st_size >= 64 * MIB


def test_a_description_that_has_no_room_tells_how_much_it_needs(peer):
    (argsz, flags, _, place, size, _), rest, fds = region_info(peer, 0, argsz=32)
    # QEMU insists on this place.
    assert (argsz, place, size, rest) == (64, 32, 256 * MIB, b"")
    assert flags & 8
    assert len(fds) <= 1


def test_memory_as_large_as_its_bar_is_mapped_whole(bench):
    bench.card(vram_bytes=256 * MIB)
    (argsz, flags, _, _, _, _), rest, fds = region_info(bench.peer(), 0)
    assert (argsz, flags, rest, len(fds)) == (32, 7, b"", 1)


def test_the_card_s_memory_is_what_is_mapped(peer, card):
    fd = region_info(peer, 0)[2][0]
    with mmap.mmap(fd, MIB) as mapped:
        card.vram.write(0x1234, b"from the card")
        assert mapped[0x1234:0x1241] == b"from the card"
        mapped[0x5000:0x5005] = b"guest"
        assert card.vram.read(0x5000, 5) == b"guest"
        assert peer.get(0, 0x5000, 5) == b"guest"


def test_a_peer_that_takes_no_descriptors_is_given_none(bench, card):
    peer = bench.connect()
    assert peer.agree(max_msg_fds=0, twin_socket={"supported": True})[1]["capabilities"].keys() == {"max_msg_fds"}
    (_, flags, _, _, size, _), rest, fds = region_info(peer, 0)
    assert (flags, size, rest, fds) == (3, 256 * MIB, b"", [])


@pytest.mark.parametrize(("index", "flags", "count"), [(0, 7, 1), (1, 9, 1), (2, 0, 0), (3, 0, 0), (4, 0, 0)])
def test_interrupts_are_described(peer, index, flags, count):
    answer = peer.ask(IRQ_INFO, struct.pack("=IIII", 16, 0, index, 0))
    assert struct.unpack("=IIII", answer) == (16, flags, index, count)


@pytest.mark.parametrize(
    ("command", "number"),
    [
        (IO_FDS, errno.EOPNOTSUPP),
        (DMA_READ, errno.EOPNOTSUPP),
        (DIRTY, errno.EOPNOTSUPP),
        (FEATURE, errno.ENOTTY),
        (MIG_READ, errno.EOPNOTSUPP),
        (MIG_WRITE, errno.EOPNOTSUPP),
        (0, errno.EOPNOTSUPP),
        (0xFFFF, errno.EOPNOTSUPP),
    ],
)
def test_what_is_not_offered_is_refused(peer, command, number):
    assert peer.refused(command, struct.pack("=IIII", 16, 1 << 16 | 1, 0, 0)) == number


# regions


def test_configuration_space_is_read_in_any_piece(peer, card):
    whole = peer.get(CONFIG, 0, 4096)
    assert whole[:4] == struct.pack("<HH", 0x1002, card.gpu.row.device_id)
    for offset, size in ((0, 1), (2, 2), (1, 2), (3, 4), (5, 7), (4095, 1), (0x33, 130)):
        assert peer.get(CONFIG, offset, size) == whole[offset : offset + size]


def test_configuration_space_is_written_in_any_piece(peer, card):
    peer.put(CONFIG, 0x3C, b"\x0b")
    assert card.gpu.config.get(0x3C, 1) == 0x0B
    peer.put(CONFIG, 4, b"\x06\x04")
    assert card.gpu.command == 0x0406
    # The access crosses the end of BAR 0.
    peer.put(CONFIG, 0x11, b"\0\0\xf0\x12\0\0\0")
    assert card.gpu.bar_address(0) == 0x12_F000_0000
    peer.put(CONFIG, 0, b"\0\0\0\0")
    assert peer.get(CONFIG, 0, 2) == b"\x02\x10"


def test_registers_keep_what_is_written(peer, card):
    peer.put32(5, SCRATCH, 0x1234_5678)
    assert card.bars[5].read32(SCRATCH) == 0x1234_5678
    assert peer.get(5, SCRATCH, 1) == b"\x78"
    assert peer.get(5, SCRATCH + 1, 2) == b"\x56\x34"


def test_a_doorbell_reaches_its_engine(peer, card):
    heard = []
    card.nbio.doorbell = lambda index, value, size: heard.append((index, value, size))
    peer.put32(2, 0x800, 0x55)
    peer.put(2, 0x808, struct.pack("<Q", 0x1_0000_0002))
    card.settle()
    assert heard == [(0x200, 0x55, 4), (0x202, 0x1_0000_0002, 8)]
    assert peer.get(2, 0x800, 4) == bytes(4)


def test_memory_is_read_and_written_in_any_piece(bench, peer, card):
    data = bytes(range(256)) * 4096
    peer.put(0, 3, data[:-5])
    card.settle()
    bench.until(lambda: not card.hdp.holds)
    assert card.vram.read(3, MIB - 5) == data[:-5]
    assert peer.get(0, 3, MIB - 5) == data[:-5]
    assert peer.get(0, 64 * MIB - 2, 4) == card.vram.read(64 * MIB - 2, 2) + b"\xff\xff"


def test_the_rom_is_read_without_its_switch(peer, card):
    image = peer.get(ROM, 0, 128 << 10)
    assert image[: len(card.image)] == card.image
    assert image[:2] == b"\x55\xaa"
    assert peer.refused(WRITE, struct.pack("=QII", 0, ROM, 4) + bytes(4)) == errno.EINVAL


@pytest.mark.parametrize(
    ("region", "offset", "count"),
    [
        (1, 0, 4),
        (3, 0, 4),
        (8, 0, 4),
        (9, 0, 4),
        (0xFFFF_FFFF, 0, 4),
        (CONFIG, 4093, 4),
        (CONFIG, 4096, 1),
        (CONFIG, 1 << 63, 4),
        (CONFIG, (1 << 64) - 2, 4),
        (CONFIG, 0, 0),
        (5, MIB - 2, 4),
        (0, 256 * MIB, 4),
        (0, 0, MIB + 1),
        (0, 0, 0xFFFF_FFFF),
    ],
)
def test_nothing_is_outside_of_a_region(peer, region, offset, count):
    head = struct.pack("=QII", offset, region, count)
    assert peer.refused(READ, head) == errno.EINVAL
    assert peer.refused(WRITE, head + bytes(min(count, MIB))) == errno.EINVAL


def test_a_bar_that_the_model_lacks_gives_ones(peer, card):
    assert peer.get(4, 0, 4) == b"\xff" * 4
    peer.put32(4, 0, 1)
    assert card.log.find("unmodelled", "pci")


def test_what_the_card_refuses_is_an_error_and_the_guest_s_mistake(peer, card):
    assert peer.refused(WRITE, struct.pack("=QII", SCRATCH, 5, 1) + b"x") == errno.EIO
    assert "written as dwords" in card.violations[0].text
    card.violations.clear()
    peer.put32(5, SCRATCH, 1)


def test_a_mistake_of_the_model_costs_the_access_only(bench, peer, card, caplog):
    def fail(offset, size):
        raise IndexError("a list index out of range")

    bench.card()
    other = bench.peer(1)
    card.bars[5]._target.read = fail
    assert peer.refused(READ, struct.pack("=QII", 0, 5, 4)) == errno.EIO
    assert peer.get(CONFIG, 0, 2) == b"\x02\x10"
    assert other.get32(5, 0xDE3 * 4) == 64
    card.clock.after(0, lambda: fail(0, 0))
    time.sleep(0.001)
    peer.settle()
    assert other.get32(5, 0xDE3 * 4) == 64
    assert caplog.text.count("IndexError: a list index out of range") == 2


def test_many_writes_come_as_one(bench, peer, card):
    def entry(offset, value, size=4, region=5):
        return struct.pack("=QII8s", offset, region, size, value.to_bytes(size, "little"))

    entries = [
        entry(SCRATCH, 1),
        entry(SCRATCH, 2),
        entry(0x100, 7, 8, 0),
        entry(0x108, 9, 8, 0),
        entry(0x110, 5, 1, 0),
    ]
    entries += [entry(SCRATCH - 4, 3), entry(SCRATCH, 2)]
    assert peer.ask(MULTI, struct.pack("=Q", 7) + b"".join(entries)) == struct.pack("=Q", 7)
    assert [card.bars[5].read32(SCRATCH + at) for at in (-4, 0)] == [3, 2]
    card.settle()
    bench.until(lambda: not card.hdp.holds)
    assert card.vram.read(0x100, 24) == struct.pack("<3Q", 7, 9, 5)
    wrong = struct.pack("=Q", 2) + entry(SCRATCH, 9) + struct.pack("=QII8s", 0, 0, 9, b"")
    assert peer.refused(MULTI, wrong) == errno.EINVAL
    assert card.bars[5].read32(SCRATCH) == 2


# the stream


def test_no_answer_comes_where_none_is_wanted(peer, card):
    peer.send(peer.message(WRITE, struct.pack("=QII", SCRATCH, 5, 4) + b"abcd", NO_REPLY))
    # Even an error gives no answer.
    peer.send(peer.message(READ, struct.pack("=QII", 1 << 40, 5, 4), NO_REPLY))
    # Both requests were done before this one.
    assert peer.get(5, SCRATCH, 4) == b"abcd"


def test_pipelined_commands_are_answered_in_order(peer):
    requests = []
    for value in range(500):
        requests.append(peer.message(WRITE, struct.pack("=QIII", SCRATCH, 5, 4, value)))
        requests.append(peer.message(READ, struct.pack("=QII", SCRATCH, 5, 4)))
    last = peer.number
    peer.send(b"".join(requests))
    for value in range(500):
        assert peer.answer().payload == struct.pack("=QII", SCRATCH, 5, 4)
        assert peer.answer().payload[16:] == value.to_bytes(4, "little")
    assert last == peer.number


def test_the_same_number_may_be_used_again_at_once(peer):
    message = peer.message(READ, struct.pack("=QII", 0, CONFIG, 4))
    peer.send(message * 3)
    assert {peer.answer().number for _ in range(3)} == {peer.number}


def test_a_message_may_come_byte_by_byte_with_its_descriptor_at_any(bench, peer, card):
    message = peer.message(DMA_MAP, struct.pack("=IIQQQ", 32, 3, 0, 0x10_0000, 4096))
    fd, mapped = bench.memfd(4096)
    for at in range(0, len(message), 5):
        peer.send(message[at : at + 5], [fd] if at == 15 else [])
        bench.server.step(0)
    assert peer.answer().errno == 0
    peer.master()
    card.host.write(0x10_0000, b"dma")
    assert mapped[:3] == b"dma"


def test_descriptors_belong_to_the_message_that_they_came_with(bench, peer, card):
    files = [bench.memfd(4096) for _ in range(3)]
    for number, (fd, _) in enumerate(files):
        peer.send(peer.message(DMA_MAP, struct.pack("=IIQQQ", 32, 3, 0, number << 12, 4096)), [fd])
    assert [peer.answer().errno for _ in files] == [0, 0, 0]
    peer.master()
    for number, (_, mapped) in enumerate(files):
        card.host.write(number << 12, bytes([number + 1]))
        assert mapped[0] == number + 1


def test_an_answer_to_nothing_is_passed_over(peer):
    peer.send(peer.message(DMA_READ, bytes(16), 1))
    assert peer.get(CONFIG, 0, 2) == b"\x02\x10"


def test_a_peer_that_reads_nothing_is_read_no_further_and_served_when_it_does(bench, peer, card, monkeypatch):
    monkeypatch.setattr(vfio_user, "FULL_BYTES", 4 * MIB)
    card.vram.write(0, b"begin")
    count = 64
    peer.send(b"".join(peer.message(READ, struct.pack("=QII", 0, 0, MIB)) for _ in range(count)))
    peer.settle(count)
    held = bench.server._slots[0].peer.channel.outbox_bytes
    assert 4 * MIB <= held < 6 * MIB
    for _ in range(count):
        assert peer.answer().payload[16:21] == b"begin"


def test_a_peer_with_much_to_do_leaves_time_for_others(bench, peer, card):
    """One peer sends thousands of resets, milliseconds of work each, in one packet. Another peer's access comes in
    between.
    """
    bench.card()
    other = bench.peer(1)
    peer.send(b"".join(peer.message(RESET, flags=NO_REPLY) for _ in range(3000)))
    began = time.monotonic()
    assert other.get(CONFIG, 0, 2) == b"\x02\x10"
    assert time.monotonic() - began < 2
    assert len(card.log.find("reset")) < 500


def test_what_was_sent_before_hanging_up_is_done(bench, card):
    peer = bench.peer()
    for value in range(2000):
        peer.send(peer.message(WRITE, struct.pack("=QIII", SCRATCH, 5, 4, value), NO_REPLY))
    peer.sock.close()
    bench.until(lambda: bench.server._slots[0].peer is None)
    assert card.bars[5].read32(SCRATCH) == 1999


def test_a_half_closed_peer_is_answered(bench, card):
    peer = bench.peer()
    peer.send(peer.message(READ, struct.pack("=QII", 0, 0, MIB)))
    peer.sock.shutdown(socket.SHUT_WR)
    assert len(peer.answer().payload) == 16 + MIB
    assert peer.gone
