"""A served card's interrupts go to eventfds: MSI as edges, INTx as a level that masks itself, errors as in Linux's
vfio-pci.

Source of each kind's requests and errors: drivers/vfio/vfio_main.c, vfio_set_irqs_validate_and_prepare;
drivers/vfio/pci/vfio_pci_intrs.c.
"""

import errno
import os
import struct
import threading

import pytest

NONE, BOOL, EVENTFD, MASK, UNMASK, TRIGGER = 1, 2, 4, 8, 16, 32
ARM = EVENTFD | TRIGGER
INTX, MSI, MSIX, ERR, REQ = range(5)
RESET, SET_IRQS = 13, 8
AT = 0x100_0000


@pytest.fixture
def peer(peer):
    peer.master()
    return peer


@pytest.fixture
def event(bench):
    return bench.eventfd()


@pytest.fixture
def ring(bench, peer, card):
    """An interrupt ring in the peer's memory. `ring()` makes the card put an entry into it; `ring.read()` acknowledges
    the entry.
    """
    fd, mapped = bench.memfd(1 << 16)
    assert peer.map(AT, 1 << 16, fd) == 0
    cells = card.ih.cells

    def put(name, value):
        peer.put32(5, cells.address(name), value)

    def post():
        entries = peer.get32(5, cells.address("IH_RB_WPTR"))
        card.ih.interrupt(0x14, 181, data=(0xABCD,))
        bench.until(lambda: peer.get32(5, cells.address("IH_RB_WPTR")) != entries)

    post.read = lambda: put("IH_RB_RPTR", peer.get32(5, cells.address("IH_RB_WPTR")))
    post.entry = lambda number: struct.unpack_from("<8I", mapped, 32 * number)
    put("IH_RB_BASE", AT >> 8)
    put("IH_RB_BASE_HI", 0)
    put("IH_RB_CNTL", cells.replace("IH_RB_CNTL", 0, RB_ENABLE=1, RB_SIZE=10, ENABLE_INTR=1, MC_SPACE=2))
    return post


def enable_msi(peer):
    peer.put(7, 0xA2, b"\x01\x00")


# MSI


def test_an_interrupt_of_a_block_reaches_the_guest_s_memory_and_its_eventfd(bench, peer, card, ring, event):
    enable_msi(peer)
    assert peer.irqs(MSI, ARM, fds=[event]) == 0
    ring()
    assert bench.count(event) == 1
    assert ring.entry(0)[0] & 0xFFFF == 0x14 | 181 << 8
    assert ring.entry(0)[4] == 0xABCD
    ring()
    ring()
    assert bench.count(event) == 2
    assert card.violations == []


def test_every_message_counts(bench, peer, card, event):
    enable_msi(peer)
    assert peer.irqs(MSI, ARM, fds=[event]) == 0
    for _ in range(5):
        card.gpu.interrupt(0)
    assert bench.count(event) == 5
    assert bench.count(event) == 0


@pytest.mark.parametrize("take_away", [(EVENTFD | TRIGGER, 1), (NONE | TRIGGER, 0)], ids=["one", "all"])
def test_what_comes_while_it_is_taken_away_comes_when_it_is_armed_again(bench, peer, card, event, take_away):
    enable_msi(peer)
    assert peer.irqs(MSI, ARM, fds=[event]) == 0
    before = bench.descriptors()
    flags, count = take_away
    assert peer.irqs(MSI, flags, count=count) == 0
    assert bench.descriptors() == before - 1
    card.gpu.interrupt(0)
    card.gpu.interrupt(0)
    assert bench.count(event) == 0
    other = bench.eventfd()
    assert peer.irqs(MSI, ARM, fds=[other]) == 0
    assert (bench.count(event), bench.count(other)) == (0, 1)
    card.gpu.interrupt(0)
    assert bench.count(other) == 1


def test_an_eventfd_is_replaced(bench, peer, card, event):
    enable_msi(peer)
    assert peer.irqs(MSI, ARM, fds=[event]) == 0
    other = bench.eventfd()
    before = bench.descriptors()
    assert peer.irqs(MSI, ARM, fds=[other]) == 0
    assert bench.descriptors() == before
    card.gpu.interrupt(0)
    assert (bench.count(event), bench.count(other)) == (0, 1)


def test_a_counter_that_is_full_keeps_nobody_waiting(bench, peer, card):
    # Writes to this eventfd would block.
    event = os.eventfd(0, 0)
    bench.closing.append(event)
    os.eventfd_write(event, 0xFFFF_FFFF_FFFF_FFFE)
    enable_msi(peer)
    assert peer.irqs(MSI, ARM, fds=[event]) == 0
    card.gpu.interrupt(0)
    assert os.eventfd_read(event) == 0xFFFF_FFFF_FFFF_FFFE
    card.gpu.interrupt(0)
    assert os.eventfd_read(event) == 1


def test_an_eventfd_that_becomes_blocking_again_blocks_nobody_else(bench, peer, card, event):
    """Whether a write blocks is a property of the file, which the peer has too. The peer can change it after the
    eventfd was armed.
    """
    enable_msi(peer)
    assert peer.irqs(MSI, ARM, fds=[event]) == 0
    os.set_blocking(event, True)
    os.eventfd_write(event, 0xFFFF_FFFF_FFFF_FFFE)
    # A server that blocks takes no part in the test, so this thread rescues it.
    rescue = threading.Timer(5, os.eventfd_read, [event])
    rescue.start()
    card.gpu.interrupt(0)
    rescue.cancel()
    rescue.join()
    assert bench.count(event) == 0xFFFF_FFFF_FFFF_FFFE


def test_a_masked_message_waits_in_the_card(bench, peer, card, event):
    enable_msi(peer)
    assert peer.irqs(MSI, ARM, fds=[event]) == 0
    capable = int.from_bytes(peer.get(7, 0xA2, 2), "little") & 0x100
    peer.put(7, 0xB0, b"\x01")
    card.gpu.interrupt(0)
    if capable:
        assert bench.count(event) == 0
        peer.put(7, 0xB0, b"\x00")
    assert bench.count(event) == 1


def test_without_bus_mastering_no_message_is_sent(bench, peer, card, event):
    enable_msi(peer)
    assert peer.irqs(MSI, ARM, fds=[event]) == 0
    peer.put(7, 4, b"\x02\x00")
    card.gpu.interrupt(0)
    assert bench.count(event) == 0
    assert "bus mastering is off" in card.violations.pop().text


def test_a_reset_drops_what_is_kept(bench, peer, card, event):
    enable_msi(peer)
    card.gpu.interrupt(0)
    peer.ask(RESET)
    assert peer.irqs(MSI, ARM, fds=[event]) == 0
    assert bench.count(event) == 0
    # The earlier set-up is still there.
    assert peer.get(7, 0xA2, 1)[0] & 1
    card.gpu.interrupt(0)
    assert bench.count(event) == 1


# INTx


def test_a_level_comes_once_until_it_is_unmasked(bench, peer, card, ring, event):
    assert peer.irqs(INTX, ARM, fds=[event]) == 0
    ring()
    ring()
    assert bench.count(event) == 1
    # Its cause is still there.
    assert peer.irqs(INTX, NONE | UNMASK) == 0
    assert bench.count(event) == 1
    ring.read()
    assert peer.irqs(INTX, NONE | UNMASK) == 0
    assert bench.count(event) == 0
    assert int.from_bytes(peer.get(7, 6, 2), "little") & 8 == 0
    ring()
    assert bench.count(event) == 1


def test_a_level_that_is_up_when_it_is_armed_comes_at_once(bench, peer, card, ring, event):
    ring()
    assert int.from_bytes(peer.get(7, 6, 2), "little") & 8
    assert peer.irqs(INTX, ARM, fds=[event]) == 0
    assert bench.count(event) == 1


def test_a_level_that_fell_by_itself_is_not_sent_at_an_unmask(bench, peer, card, ring, event):
    assert peer.irqs(INTX, ARM, fds=[event]) == 0
    ring()
    assert bench.count(event) == 1
    card.gpu.intx_done()
    assert peer.irqs(INTX, NONE | UNMASK) == 0
    assert bench.count(event) == 0


def test_a_masked_level_waits(bench, peer, card, ring, event):
    assert peer.irqs(INTX, ARM, fds=[event]) == 0
    assert peer.irqs(INTX, NONE | MASK) == 0
    ring()
    assert bench.count(event) == 0
    assert peer.irqs(INTX, BOOL | UNMASK, data=b"\0") == 0
    assert bench.count(event) == 0
    assert peer.irqs(INTX, BOOL | UNMASK, data=b"\1") == 0
    assert bench.count(event) == 1


def test_a_switched_off_level_waits_in_the_card(bench, peer, card, ring, event):
    assert peer.irqs(INTX, ARM, fds=[event]) == 0
    peer.put(7, 4, b"\x06\x04")  # INTx disable
    ring()
    assert bench.count(event) == 0
    peer.put(7, 4, b"\x06\x00")
    assert bench.count(event) == 1


def test_with_msi_on_no_level_is_sent(bench, peer, card, ring, event):
    assert peer.irqs(INTX, ARM, fds=[event]) == 0
    enable_msi(peer)
    ring()
    assert bench.count(event) == 0
    other = bench.eventfd()
    assert peer.irqs(MSI, ARM, fds=[other]) == 0
    assert bench.count(other) == 1


def test_a_reset_lowers_the_line(bench, peer, card, ring, event):
    ring()
    peer.ask(RESET)
    assert peer.irqs(INTX, ARM, fds=[event]) == 0
    assert bench.count(event) == 0


# Interrupts that a peer triggers itself.


def test_a_peer_may_trigger_what_it_set_up(bench, peer, event):
    for index in (INTX, MSI):
        assert peer.irqs(index, ARM, fds=[event]) == 0
        assert peer.irqs(index, NONE | TRIGGER) == 0
        assert bench.count(event) == 1
        assert peer.irqs(index, BOOL | TRIGGER, data=b"\0") == 0
        assert bench.count(event) == 0
        assert peer.irqs(index, BOOL | TRIGGER, data=b"\1") == 0
        assert bench.count(event) == 1


def test_what_is_not_set_up_is_disabled_without_complaint(peer):
    assert peer.irqs(INTX, NONE | TRIGGER, count=0) == 0
    assert peer.irqs(MSI, NONE | TRIGGER, count=0) == 0


@pytest.mark.parametrize(
    ("index", "flags", "start", "count", "data", "number"),
    [
        # No kind of data is named.
        (INTX, 0, 0, 1, b"", errno.EINVAL),
        (INTX, NONE | BOOL | TRIGGER, 0, 1, b"\1", errno.EINVAL),
        (INTX, NONE | TRIGGER | 64, 0, 1, b"", errno.EINVAL),
        (5, NONE | TRIGGER, 0, 0, b"", errno.EINVAL),
        (0xFFFF_FFFF, NONE | TRIGGER, 0, 0, b"", errno.EINVAL),
        # The function has none.
        (MSIX, NONE | TRIGGER, 0, 0, b"", errno.EINVAL),
        (ERR, NONE | TRIGGER, 0, 1, b"", errno.EINVAL),
        (REQ, EVENTFD | TRIGGER, 0, 1, b"", errno.EINVAL),
        (MSI, NONE | TRIGGER, 1, 0, b"", errno.EINVAL),
        (MSI, NONE | TRIGGER, 0, 2, b"", errno.EINVAL),
        (MSI, NONE | TRIGGER, 0xFFFF_FFFF, 1, b"", errno.EINVAL),
        (MSI, NONE | TRIGGER, 0, 0xFFFF_FFFF, b"", errno.EINVAL),
        # There is no data.
        (MSI, BOOL | TRIGGER, 0, 1, b"", errno.EINVAL),
        (MSI, BOOL | TRIGGER, 0, 0, b"", errno.EINVAL),
        # The interrupt is not set up.
        (MSI, NONE | TRIGGER, 0, 1, b"", errno.EINVAL),
        (MSI, NONE | MASK, 0, 1, b"", errno.ENOTTY),
        (MSI, NONE | UNMASK, 0, 1, b"", errno.ENOTTY),
        # No action is named.
        (INTX, NONE, 0, 1, b"", errno.ENOTTY),
        (INTX, NONE | MASK | UNMASK, 0, 1, b"", errno.ENOTTY),
        (INTX, EVENTFD | MASK, 0, 1, b"", errno.ENOTTY),
        # The interrupt is not set up.
        (INTX, NONE | MASK, 0, 1, b"", errno.EINVAL),
    ],
)
def test_invalid_requests_are_refused(peer, index, flags, start, count, data, number):
    assert peer.irqs(index, flags, start, count, data) == number


def test_a_mask_is_of_one_interrupt(peer, event):
    assert peer.irqs(INTX, ARM, fds=[event]) == 0
    assert peer.irqs(INTX, NONE | MASK, count=0) == errno.EINVAL
    assert peer.irqs(INTX, NONE | MASK) == 0


def test_there_are_as_many_descriptors_as_interrupts(bench, peer, event):
    for count, fds in ((1, [event] * 2), (0, [event]), (1, [event] * 16)):
        assert peer.irqs(MSI, ARM, count=count, fds=fds) == errno.EINVAL
    # A descriptor that the request does not need is closed.
    assert peer.irqs(INTX, NONE | TRIGGER, count=0, fds=[event]) == 0
    before = bench.descriptors()
    peer.settle()
    assert bench.descriptors() == before


def test_only_an_eventfd_is_signalled(bench, peer, card, event, tmp_path):
    """A write to another file could block on its reader or on a disk."""
    bench.closing += [*os.pipe(), os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT), os.open("/dev/zero", os.O_RDWR)]
    # A descriptor of the eventfd's path, which takes no writes.
    bench.closing.append(os.open(f"/proc/self/fd/{event}", os.O_PATH))
    assert peer.irqs(MSI, ARM, fds=[event]) == 0
    for fd in [one for one in bench.closing if one != event]:
        assert peer.irqs(MSI, ARM, fds=[fd]) == errno.EINVAL
    enable_msi(peer)
    card.gpu.interrupt(0)
    # The earlier set-up is still there.
    assert bench.count(event) == 1
    assert (tmp_path / "file").read_bytes() == b""
