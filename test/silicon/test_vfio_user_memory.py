"""A served card's access to its peer's memory: pieces of files that come with descriptors, and memory that is read and
written by messages.
"""

import errno
import fcntl
import os
import socket
import struct
import time

import pytest

from ringup.silicon.amd.sdma.engine import SDMA_6
from ringup.silicon.serve import vfio_user_channel
from ringup.silicon.shader.common.state import MemoryFault

VERSION, DMA_MAP, READ, WRITE, DMA_READ, DMA_WRITE = 1, 2, 9, 10, 11, 12
PAGE = 4096
AT = 0x10_0000
# The card's engines find VRAM there.
FB = 0x80_0000_0000
AGP = 0x90_0000_0000
NO_REPLY = 0x10


@pytest.fixture
def peer(peer):
    peer.master()
    return peer


def unreachable(card):
    """Return whether the last access found no memory."""
    text = card.violations.pop().text if card.violations else ""
    card.violations.clear()
    return "where no memory is" in text


def apart(bench, peer):
    """Agree on a version with a socket only for the card's requests; return it."""
    _, answer = peer.agree(twin_socket={"supported": True})
    assert answer["capabilities"]["twin_socket"] == {"supported": True, "fd_index": 0}
    assert len(peer.fds) == 1
    bench.peers.append(socket.socket(fileno=peer.fds.pop()))
    return bench.peers[-1]


def mappings():
    with open("/proc/self/maps") as lines:
        return sum(1 for _ in lines)


# Memory by descriptor.


def test_the_card_reaches_exactly_what_is_mapped(bench, peer, card):
    fd, mapped = bench.memfd(4 * PAGE)
    assert peer.map(AT, 2 * PAGE, fd, offset=PAGE) == 0
    card.host.write(AT, b"first")
    card.host.write(AT + 2 * PAGE - 4, b"last")
    mapped[PAGE + 100 : PAGE + 103] = b"ram"
    assert card.host.read(AT + 100, 3) == b"ram"
    assert mapped[PAGE : PAGE + 5] == b"first"
    assert mapped[3 * PAGE - 4 : 3 * PAGE] == b"last"
    assert card.violations == []
    for address in (AT - 1, AT + 2 * PAGE, 0, 1 << 47):
        card.host.write(address, b"x")
        assert unreachable(card)
        assert card.host.read(address, 1) == b"\xff"
        assert unreachable(card)
    card.host.write(AT + 2 * PAGE - 2, b"over")
    assert unreachable(card)
    assert mapped[3 * PAGE - 4 :] == b"laov" + bytes(PAGE)


def test_the_peer_may_close_its_descriptor(bench, peer, card):
    before = bench.descriptors()
    fd = os.memfd_create("ram")
    os.ftruncate(fd, PAGE)
    assert peer.map(AT, PAGE, fd) == 0
    os.close(fd)
    card.host.write(AT, b"kept")
    assert card.host.read(AT, 4) == b"kept"
    assert peer.unmap(AT, PAGE) == 0
    assert bench.descriptors() == before


@pytest.mark.parametrize("flags", [1, 2])
def test_a_map_may_go_one_way(bench, peer, card, flags):
    fd, mapped = bench.memfd(PAGE)
    assert peer.map(AT, PAGE, fd, flags=flags) == 0
    mapped[:4] = b"here"
    card.host.write(AT, b"card")
    assert unreachable(card) == (flags == 1)
    assert mapped[:4] == (b"here" if flags == 1 else b"card")
    assert card.host.read(AT, 4) == (b"here" if flags == 1 else b"\xff\xff\xff\xff")
    assert unreachable(card) == (flags == 2)


def test_a_descriptor_for_reading_maps_for_reading(bench, peer, card):
    fd, mapped = bench.memfd(PAGE)
    readonly = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY)
    bench.closing.append(readonly)
    mapped[:4] = b"read"
    assert peer.map(AT, PAGE, readonly) == errno.EACCES
    assert peer.map(AT, PAGE, readonly, flags=1) == 0
    assert card.host.read(AT, 4) == b"read"
    card.host.write(AT, b"x")
    assert unreachable(card)
    # The same file through the other descriptor.
    assert peer.map(AT + PAGE, PAGE, fd) == 0
    card.host.write(AT + PAGE, b"both")
    assert card.host.read(AT, 4) == b"both"


@pytest.mark.parametrize(
    ("address", "size", "offset", "flags", "number"),
    [
        (AT, 0, 0, 3, errno.EINVAL),
        (AT, 100, 0, 3, errno.EINVAL),
        (AT + 1, PAGE, 0, 3, errno.EINVAL),
        (AT, PAGE, 100, 3, errno.EINVAL),
        (AT, PAGE, 0, 0, errno.EINVAL),
        (AT, PAGE, 0, 7, errno.EINVAL),
        (AT, 3 * PAGE, 0, 3, errno.EINVAL),
        (AT, PAGE, 2 * PAGE, 3, errno.EINVAL),
        (AT, PAGE, 1 << 63, 3, errno.EINVAL),
        (AT, 1 << 63, 0, 3, errno.EINVAL),
        ((1 << 64) - PAGE, 2 * PAGE, 0, 3, errno.EINVAL),
        (AT, (1 << 64) - PAGE, (1 << 64) - PAGE, 3, errno.EINVAL),
    ],
)
def test_what_cannot_be_a_piece_of_the_file_is_refused(bench, peer, card, address, size, offset, flags, number):
    fd, _ = bench.memfd(2 * PAGE)
    assert peer.map(address, size, fd, offset, flags) == number
    # Up to the last byte.
    assert peer.map((1 << 64) - PAGE, PAGE, fd) == 0


def test_what_is_no_memory_file_is_refused(bench, peer, tmp_path):
    pipe = os.pipe()
    bench.closing += [*pipe, os.open(tmp_path, os.O_RDONLY), os.open("/dev/null", os.O_RDWR)]
    for fd in (*bench.closing, peer.sock.fileno()):
        assert peer.map(AT, PAGE, fd) == errno.EINVAL
    path = tmp_path / "write-only"
    path.write_bytes(bytes(PAGE))
    bench.closing.append(os.open(path, os.O_WRONLY))
    assert peer.map(AT, PAGE, bench.closing[-1]) == errno.EACCES
    two = [bench.memfd(PAGE)[0] for _ in range(2)]
    assert peer.refused(DMA_MAP, struct.pack("=IIQQQ", 32, 3, 0, AT, PAGE), two) == errno.EINVAL


def test_a_file_that_is_larger_than_address_space_is_refused(bench, peer):
    fd, _ = bench.memfd(PAGE)
    os.ftruncate(fd, (1 << 63) - PAGE)
    assert peer.map(AT, PAGE, fd) == errno.ENOMEM


@pytest.mark.parametrize(("address", "size"), [(AT, 1), (AT - 1, 2), (AT + 1, 1), (AT + 3, 1), (AT - 2, 9), (AT, 4)])
def test_an_overlap_is_eexist_and_changes_nothing(bench, peer, card, address, size):
    fd, mapped = bench.memfd(16 * PAGE)
    assert peer.map(AT, 4 * PAGE, fd) == 0
    start = AT + (address - AT) * PAGE
    before = bench.descriptors()
    assert peer.map(start, size * PAGE, fd, offset=8 * PAGE) == errno.EEXIST
    assert bench.descriptors() == before
    card.host.write(AT, b"same")
    assert mapped[:4] == b"same"
    # Side by side.
    assert peer.map(AT + 4 * PAGE, PAGE, fd, offset=8 * PAGE) == 0
    assert peer.map(AT - PAGE, PAGE, fd, offset=9 * PAGE) == 0


def test_what_somebody_else_has_at_a_bus_address_stays(bench, peer, card):
    buffer = card.alloc_host(PAGE)
    fd, _ = bench.memfd(PAGE)
    before = bench.descriptors()
    assert peer.map(buffer.bus_addr(), PAGE, fd) == errno.EEXIST
    assert bench.descriptors() == before
    card.host.write(buffer.bus_addr(), b"in place")
    assert bytes(buffer.view[:8]) == b"in place"


# Memory is taken away.


def test_unmapped_exactly(bench, peer, card):
    fd, mapped = bench.memfd(PAGE)
    assert peer.map(AT, PAGE, fd) == 0
    assert peer.unmap(AT, PAGE) == 0
    card.host.write(AT, b"late")
    assert unreachable(card)
    assert mapped[:4] == bytes(4)
    assert peer.map(AT, PAGE, fd) == 0


def test_unmapped_with_others(bench, peer, card):
    fd, _ = bench.memfd(4 * PAGE)
    for number in (0, 1, 3):
        assert peer.map(AT + number * PAGE, PAGE, fd, number * PAGE) == 0
    assert peer.unmap(AT, 3 * PAGE) == 0
    assert [card.host.find(AT + number * PAGE) is None for number in range(4)] == [True, True, True, False]


@pytest.mark.parametrize(("first", "size"), [(0, 1), (1, 1), (3, 2), (-1, 2), (1, 9)])
def test_no_map_is_cut_in_two(bench, peer, card, first, size):
    fd, _ = bench.memfd(4 * PAGE)
    assert peer.map(AT, 4 * PAGE, fd) == 0
    assert peer.unmap(AT + first * PAGE, size * PAGE) == errno.EINVAL
    card.host.write(AT + 3 * PAGE, b"there")
    assert card.violations == []


@pytest.mark.parametrize(
    ("address", "size", "flags", "number"),
    [
        # Nothing is mapped there. The kernel accepts this and reports 0 bytes.
        (AT, PAGE, 0, 0),
        (AT, 0, 0, errno.EINVAL),
        (AT + 1, PAGE, 0, errno.EINVAL),
        ((1 << 64) - PAGE, 2 * PAGE, 0, errno.EINVAL),
        (0, 0, 1, errno.EINVAL),
        (0, 0, 4, errno.EINVAL),
        (AT, PAGE, 2, errno.EINVAL),
        (0, 0, 2, 0),
    ],
)
def test_the_ranges_that_an_unmap_accepts(peer, address, size, flags, number):
    assert peer.unmap(address, size, flags) == number


def test_unmap_all(bench, peer, card):
    before = bench.descriptors()
    fd, _ = bench.memfd(4 * PAGE)
    for number in range(4):
        assert peer.map(AT + 2 * number * PAGE, PAGE, fd, number * PAGE) == 0
    assert peer.map(0, PAGE) == 0
    assert peer.unmap(0, 0, 2) == 0
    assert [card.host.find(AT + 2 * number * PAGE) for number in range(4)] == [None] * 4
    # This side's own descriptors.
    assert bench.descriptors() == before + 2


def test_thousands_of_pieces_of_one_file_are_one_mapping(bench, peer, card):
    count = 5000
    fd, mapped = bench.memfd(count * PAGE)
    before, held = mappings(), bench.descriptors()
    for number in range(count):
        peer.send(
            peer.message(DMA_MAP, struct.pack("=IIQQQ", 32, 3, number * PAGE, AT + 2 * number * PAGE, PAGE)), [fd]
        )
        if number % 100 == 99:
            assert {peer.answer().errno for _ in range(100)} == {0}
    assert mappings() < before + 20
    assert bench.descriptors() == held + 1
    for number in (0, 1234, count - 1):
        card.host.write(AT + 2 * number * PAGE, b"here")
        assert mapped[number * PAGE : number * PAGE + 4] == b"here"
    began = time.monotonic()
    assert peer.unmap(0, 0, 2) == 0
    assert time.monotonic() - began < 2
    assert bench.descriptors() == held


def test_a_file_that_grows_is_mapped_again_and_its_pieces_stay(bench, peer, card):
    held = bench.descriptors()
    fd, _ = bench.memfd(PAGE)
    assert peer.map(AT, PAGE, fd) == 0
    os.ftruncate(fd, 3 * PAGE)
    assert peer.map(AT + PAGE, 2 * PAGE, fd, PAGE) == 0
    card.host.write(AT + PAGE - 2, b"over")
    assert os.pread(fd, 4, PAGE - 2) == b"over"
    assert peer.unmap(AT, PAGE) == 0
    card.host.write(AT + PAGE, b"on")
    assert os.pread(fd, 2, PAGE) == b"on"
    assert peer.unmap(AT + PAGE, 2 * PAGE) == 0
    assert bench.descriptors() == held + 2


def test_a_peer_has_a_limited_number_of_mappings(bench, peer, monkeypatch):
    monkeypatch.setattr("ringup.silicon.serve.vfio_user_memory.MAX_MAPPINGS", 3)
    fd, _ = bench.memfd(PAGE)
    # One growing file counts as often as several files.
    for number in range(3):
        os.ftruncate(fd, (number + 1) * PAGE)
        assert peer.map(AT + number * PAGE, PAGE, fd, number * PAGE) == 0
    other = bench.memfd(PAGE)[0]
    assert peer.map(0, PAGE, other) == errno.ENOSPC
    assert peer.map(0, PAGE, fd) == 0
    assert peer.unmap(0, 0, 2) == 0
    assert peer.map(0, PAGE, other) == 0


def test_a_peer_has_no_more_maps_than_was_agreed(bench, peer, monkeypatch):
    monkeypatch.setattr("ringup.silicon.serve.vfio_user_memory.MAX_DMA_MAPS", 2)
    assert [peer.map(number * PAGE, PAGE) for number in range(3)] == [0, 0, errno.ENOSPC]
    assert peer.unmap(0, PAGE) == 0
    assert peer.map(2 * PAGE, PAGE) == 0


def test_a_memory_file_is_sealed_so_that_it_cannot_shrink_under_the_card(bench, peer):
    fd, _ = bench.memfd(2 * PAGE)
    assert peer.map(AT, PAGE, fd) == 0
    assert fcntl.fcntl(fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK
    with pytest.raises(PermissionError):
        os.ftruncate(fd, PAGE)
    unsealable, _ = bench.memfd(PAGE, flags=0)
    assert peer.map(AT + PAGE, PAGE, unsealable) == 0


# What the card does with the memory.


def copy(peer, card, source, target, count):
    """Copy by an SDMA engine that only the peer's register writes set up."""
    cells = card.sdma[0].cells
    for number in SDMA_6.firmware:
        card.sdma[0].firmware_loaded(number, b"")

    def put(name, value):
        peer.put32(5, cells.address(name), value)

    put("GCMC_VM_MX_L1_TLB_CNTL", 0x1859)
    put("GCMC_VM_SYSTEM_APERTURE_LOW_ADDR", FB >> 18)
    put("GCMC_VM_SYSTEM_APERTURE_HIGH_ADDR", AGP + (64 << 20) >> 18)
    put("GCMC_VM_AGP_BASE", 0)
    put("GCMC_VM_AGP_BOT", AGP >> 24)
    put("GCMC_VM_AGP_TOP", AGP + (63 << 20) >> 24)
    put("SDMA0_F32_CNTL", 0)
    packet = struct.pack(
        "<7I", 1, count - 1, 0, *(half for at in (source, target) for half in (at & 0xFFFF_FFFF, at >> 32))
    )
    fence = struct.pack("<4I", 5, (FB + 0x20_0000) & 0xFFFF_FFFF, FB + 0x20_0000 >> 32, 0xFEED)
    peer.put(0, 0x10_0000, packet + fence)
    # HDP_MEM_COHERENCY_FLUSH_CNTL: nbio_v4_3.c
    peer.put32(5, 0x385C, 0)
    put("SDMA0_QUEUE0_RB_CNTL", 0)
    for name in ("RB_RPTR", "RB_RPTR_HI", "RB_WPTR", "RB_WPTR_HI"):
        put(f"SDMA0_QUEUE0_{name}", 0)
    put("SDMA0_QUEUE0_RB_BASE", FB + 0x10_0000 >> 8 & 0xFFFF_FFFF)
    put("SDMA0_QUEUE0_RB_BASE_HI", FB + 0x10_0000 >> 40)
    put("SDMA0_QUEUE0_RB_CNTL", 1 | 10 << 1 | 1 << 23)
    put("SDMA0_QUEUE0_RB_WPTR", 44)


def copied(card):
    return card.vram.read(0x20_0000, 4) == (0xFEED).to_bytes(4, "little")


def test_an_engine_copies_between_a_guest_s_memory_and_the_card_s(bench, peer, card):
    fd, mapped = bench.memfd(1 << 20)
    assert peer.map(0x40_0000, 1 << 20, fd) == 0
    mapped[:] = bytes(range(256)) * 4096
    copy(peer, card, AGP + 0x40_0000, FB + 0x100_0000, 1 << 20)
    bench.until(lambda: copied(card))
    assert card.vram.read(0x100_0000, 1 << 20) == mapped[:]
    card.vram.write(0x20_0000, bytes(4))
    card.vram.write(0x100_0000, b"back")
    copy(peer, card, FB + 0x100_0000, AGP + 0x40_8000, 64)
    bench.until(lambda: copied(card))
    assert mapped[0x8000:0x8004] == b"back"


def test_an_engine_copies_from_memory_that_is_asked_for(bench, card):
    peer = bench.connect()
    back = apart(bench, peer)
    peer.master()
    assert peer.map(0x40_0000, 1 << 20) == 0
    with bench.ram(back, base=0x40_0000) as ram:
        ram.bytes[:] = os.urandom(1 << 20)
        copy(peer, card, AGP + 0x40_0000, FB + 0x100_0000, 600_000)
        bench.until(lambda: copied(card))
    assert card.vram.read(0x100_0000, 600_000) == ram.bytes[:600_000]
    assert ram.others == b""


def test_a_shader_stores_nothing_where_the_guest_shares_for_reading(bench, peer, card):
    """Shaders store through addresses. A store to a page that is mapped here only for reading would end this
    process.
    """
    fd, mapped = bench.memfd(2 * PAGE)
    readonly = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY)
    bench.closing.append(readonly)
    assert peer.map(0, PAGE, readonly, flags=1) == 0
    assert peer.map(PAGE, PAGE, fd, offset=PAGE) == 0
    assert peer.map(2 * PAGE, PAGE, fd, flags=2) == 0
    cells = card.sdma[0].cells
    for name, value in (("BASE", 0), ("BOT", AGP >> 24), ("TOP", AGP >> 24)):
        peer.put32(5, cells.address(f"GCMC_VM_AGP_{name}"), value)
    peer.put32(5, cells.address("GCMC_VM_MX_L1_TLB_CNTL"), 0x1859)
    peer.put32(5, cells.address("GCMC_VM_SYSTEM_APERTURE_LOW_ADDR"), FB >> 18)
    peer.put32(5, cells.address("GCMC_VM_SYSTEM_APERTURE_HIGH_ADDR"), AGP + (64 << 20) >> 18)
    card.settle()
    memory = card.gfxhub.memory(0, "TCP")
    there = memory.region(AGP, write=False)
    assert (there.size_bytes, there.writable) == (PAGE, False)
    assert memory.region(AGP + PAGE, write=True).writable
    for address, write in ((AGP, True), (AGP + 2 * PAGE, False), (AGP + 3 * PAGE, False)):
        with pytest.raises(MemoryFault, match="nothing answers"):
            memory.region(address, write=write)
    card.violations.clear()
    assert mapped[:] == bytes(2 * PAGE)


# Memory by message.


@pytest.mark.parametrize("twin", [False, True])
def test_memory_without_a_descriptor_is_asked_for(bench, card, twin):
    peer = bench.connect()
    sock = apart(bench, peer) if twin else peer.agree() and peer.sock
    peer.master()
    assert peer.map(AT, 4 << 20) == 0
    with bench.ram(sock, base=AT, size=4 << 20) as ram:
        ram.bytes[10:15] = b"guest"
        assert card.host.read(AT + 10, 5) == b"guest"
        card.host.write(AT + PAGE - 3, b"device")
        data = os.urandom((2 << 20) + 5)
        card.host.write(AT + 9, data)
        assert card.host.read(AT + 9, len(data)) == data
    assert bytes(ram.bytes[9 : 9 + len(data)]) == data
    assert ram.asked[:2] == [(DMA_READ, AT + 10, 5), (DMA_WRITE, AT + PAGE - 3, 6)]
    assert max(count for _, _, count in ram.asked) == 1 << 20
    assert card.violations == []
    assert peer.get(7, 0, 2) == b"\x02\x10"


def test_no_more_is_asked_for_at_once_than_the_peer_takes(bench, card):
    peer = bench.peer(max_data_xfer_size=PAGE)
    peer.master()
    assert peer.map(AT, 1 << 20) == 0
    with bench.ram(peer, base=AT) as ram:
        card.host.write(AT, bytes(10_000))
        assert len(card.host.read(AT, 8192)) == 8192
    assert [count for _, _, count in ram.asked] == [PAGE, PAGE, 10_000 - 2 * PAGE, PAGE, PAGE]


def test_a_map_for_one_way_is_not_asked_for_the_other(bench, peer, card):
    assert peer.map(AT, PAGE, flags=1) == 0
    assert peer.map(AT + PAGE, PAGE, flags=2) == 0
    card.host.write(AT, b"x")
    assert unreachable(card)
    assert card.host.read(AT + PAGE, 1) == b"\xff"
    assert unreachable(card)
    with pytest.raises(BlockingIOError):
        peer.sock.recv(1)


@pytest.mark.parametrize("twin", [False, True])
def test_commands_that_come_meanwhile_are_done_afterwards_in_order(bench, card, twin):
    """A write starts a transfer. Two more writes and a read arrive before the peer answers for its memory."""
    peer = bench.connect()
    sock = apart(bench, peer) if twin else peer.agree() and peer.sock
    peer.master()
    assert peer.map(AT, PAGE) == 0
    seen = []

    def ring(index, value, size):
        seen.append((value, card.host.read(AT, 4) if value == 1 else b""))

    card.nbio.doorbell = ring
    messages = [peer.message(WRITE, struct.pack("=QIII", 0x800, 2, 4, value), NO_REPLY) for value in (1, 2, 3)]
    messages.append(peer.message(READ, struct.pack("=QII", 0, 7, 2)))
    fd, mapped = bench.memfd(PAGE)
    messages.append(peer.message(DMA_MAP, struct.pack("=IIQQQ", 32, 3, 0, 0, PAGE)))
    peer.send(b"".join(messages[:-1]))
    peer.send(messages[-1], [fd])
    with bench.ram(sock, base=AT) as ram:
        ram.bytes[:4] = b"late"
        bench.until(lambda: len(seen) == 3)
        peer.settle()
    assert seen == [(1, b"late"), (2, b""), (3, b"")]
    peer.inbox = ram.others
    assert peer.answer().payload[16:] == b"\x02\x10"
    assert peer.answer().errno == 0
    card.host.write(0, b"mapped")
    assert mapped[:6] == b"mapped"


def test_a_command_that_comes_with_an_answer_is_served_though_nothing_else_comes(bench, peer, card):
    """An engine asks by itself, outside a command. The answer and a command arrive together; then the peer waits."""
    peer.master()
    assert peer.map(AT, PAGE) == 0
    command = peer.message(READ, struct.pack("=QII", 0, 7, 2))
    seen = []
    with bench.ram(peer, base=AT, spoil=lambda ram, answer: answer + command) as ram:
        ram.bytes[:4] = b"here"
        card.clock.after(1, lambda: seen.append(card.host.read(AT, 4)))
        bench.until(lambda: ram.others)
    assert seen == [b"here"]
    peer.inbox = ram.others
    assert peer.answer().payload[16:] == b"\x02\x10"


def error(ram, answer):
    return struct.pack("=HHIII", *struct.unpack_from("=HH", answer), 16, 0x21, errno.EFAULT)


def error_zero(ram, answer):
    return struct.pack("=HHIII", *struct.unpack_from("=HH", answer), 16, 0x21, 0)


def short(ram, answer):
    number, command, size, flags, _ = struct.unpack_from("=HHIII", answer)
    return struct.pack("=HHIII", number, command, size - 1, flags, 0) + answer[16:-1]


def fewer(ram, answer):
    """Report fewer bytes for a write, and send fewer for a read."""
    number, command, _, flags, _ = struct.unpack_from("=HHIII", answer)
    body = answer[16:24] + struct.pack("=Q", 3) + answer[32:-1]
    return struct.pack("=HHIII", number, command, 16 + len(body), flags, 0) + body


def nobody(ram, answer):
    number, *rest = struct.unpack_from("=HHIII", answer)
    return struct.pack("=HHIII", number ^ 0x8000, *rest) + answer[16:]


def other_command(ram, answer):
    return answer[:2] + struct.pack("=H", READ) + answer[4:]


def nothing(ram, answer):
    return b""


def header(ram, answer):
    number, command, _, flags, _ = struct.unpack_from("=HHIII", answer)
    return struct.pack("=HHIII", number, command, 16, flags, 0)


def nonsense(ram, answer):
    return b"\xff" * 64


def slow(ram, answer):
    time.sleep(0.06)
    return answer


@pytest.fixture
def hasty(monkeypatch):
    monkeypatch.setattr(vfio_user_channel, "ANSWER_S", 0.1)


@pytest.mark.parametrize("spoil", [error, error_zero, short, fewer, header], ids=lambda spoil: spoil.__name__)
def test_a_wrong_answer_is_a_bus_error_and_the_next_question_is_asked(bench, peer, card, spoil):
    assert peer.map(AT, PAGE) == 0
    with bench.ram(peer, base=AT, spoil=spoil) as ram:
        assert card.host.read(AT, 4) == b"\xff" * 4
        assert unreachable(card)
        # QEMU's whole answer to a write.
        if spoil is not header:
            card.host.write(AT, b"card")
            assert unreachable(card) == (spoil is not short)
        ram.spoil = None
        ram.bytes[:4] = b"good"
        assert card.host.read(AT, 4) == b"good"
    assert peer.get(7, 0, 2) == b"\x02\x10"


def test_a_write_is_answered_by_a_header_alone(bench, peer, card):
    """As QEMU does in vfio_user_dma_write of hw/vfio-user/pci.c."""
    assert peer.map(AT, PAGE) == 0
    with bench.ram(peer, base=AT, spoil=header) as ram:
        card.host.write(AT, b"card")
    assert ram.bytes[:4] == b"card"


@pytest.mark.parametrize("spoil", [nobody, other_command, nothing], ids=lambda spoil: spoil.__name__)
def test_a_peer_that_never_answers_is_waited_for_once(bench, card, hasty, spoil, caplog):
    peer = bench.peer()
    peer.master()
    assert peer.map(AT, PAGE) == 0
    with bench.ram(peer, base=AT, spoil=spoil) as ram:
        began = time.monotonic()
        assert card.host.read(AT, 4) == b"\xff" * 4
        assert 0.09 < time.monotonic() - began < 2
        for _ in range(100):
            card.host.read(AT, 4)
            card.host.write(AT, b"x")
        assert time.monotonic() - began < 3
    assert len(ram.asked) == 1
    assert caplog.text.count("does not answer DMA_READ") == 1
    card.violations.clear()
    peer.settle()
    # Everything else continues.
    assert peer.get(7, 0, 2) == b"\x02\x10"


def test_a_peer_that_is_slow_with_every_answer_is_not_waited_for_without_end(bench, card, hasty):
    peer = bench.peer()
    peer.master()
    assert peer.map(AT, PAGE) == 0
    with bench.ram(peer, base=AT, spoil=slow):
        began = time.monotonic()
        for _ in range(100):
            card.host.read(AT, 4)
        assert time.monotonic() - began < 2
    card.violations.clear()


def test_a_peer_that_answers_nonsense_is_gone(bench, peer, card):
    assert peer.map(AT, PAGE) == 0
    with bench.ram(peer, base=AT, spoil=nonsense):
        assert card.host.read(AT, 4) == b"\xff" * 4
        began = time.monotonic()
        assert card.host.read(AT, 4) == b"\xff" * 4
        assert time.monotonic() - began < 0.5
    card.violations.clear()
    assert peer.gone
    assert bench.peer().get(7, 0, 2) == b"\x02\x10"


def test_a_peer_that_hangs_up_when_it_is_asked_is_a_bus_error(bench, peer, card):
    assert peer.map(AT, PAGE) == 0
    peer.sock.shutdown(socket.SHUT_RDWR)
    assert card.host.read(AT, 4) == b"\xff" * 4
    assert unreachable(card)
    bench.until(lambda: bench.server._slots[0].peer is None)
    assert bench.peer().get(7, 0, 2) == b"\x02\x10"


def test_the_other_socket_takes_answers_only(bench, card):
    peer = bench.connect()
    back = apart(bench, peer)
    peer.master()
    assert peer.map(AT, PAGE) == 0
    before = bench.descriptors()
    socket.send_fds(back, [peer.message(READ, struct.pack("=QII", 0, 7, 4))], [back.fileno()])
    assert card.host.read(AT, 4) == b"\xff" * 4
    assert unreachable(card)
    assert peer.gone
    # Both sockets' ends on this side.
    assert bench.descriptors() == before - 2


def test_a_peer_that_only_asks_when_it_is_asked_is_gone(bench, card, monkeypatch):
    monkeypatch.setattr(vfio_user_channel, "MAX_WAITING", 50)
    peer = bench.peer()
    peer.master()
    assert peer.map(AT, PAGE) == 0
    fd = bench.eventfd()
    before = bench.descriptors()
    for _ in range(60):
        peer.send(peer.message(READ, struct.pack("=QII", 0, 7, 4)), [fd])
    card.host.read(AT, 4)
    assert unreachable(card)
    assert peer.gone
    assert bench.descriptors() == before - 1


def test_a_slow_reader_gets_the_whole_question(bench, peer, card):
    """The message is longer than the socket's buffer. The server writes the rest while the peer reads."""
    peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    assert peer.map(AT, 1 << 20) == 0
    data = os.urandom(1 << 20)
    with bench.ram(peer, base=AT) as ram:
        card.host.write(AT, data)
    assert ram.bytes == data
