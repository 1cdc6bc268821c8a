"""Windows over files that are mapped as BARs are."""

import errno
import mmap
import os
import random
from pathlib import Path

import pytest

from ringup.drivers.transport.linux import mmio
from ringup.drivers.transport.linux.mapping import give_up, map_node
from ringup.drivers.transport.linux.mmio import FileWindow, MappedWindow, WriteCombining
from ringup.silicon.common.combining import Combining

SIZE = 8192


@pytest.fixture
def behind(tmp_path):
    """The file that stands in for the BAR."""
    path = tmp_path / "bar"
    path.write_bytes(random.Random(1).randbytes(SIZE))
    return path


@pytest.fixture(params=["mapped", "combined", "called"])
def window(request, behind):
    node = os.open(behind, os.O_RDWR)
    if request.param == "called":
        made = FileWindow("BAR 5", node, 0, SIZE, writable=True)
    else:
        combined = request.param == "combined"
        mapping = mmap.mmap(node, SIZE)
        made = MappedWindow("BAR 5", mapping, SIZE, memory_like=True, combining=WriteCombining(), combined=combined)
    yield made
    made.close()
    os.close(node)


def test_accesses_are_little_endian_at_their_offsets(window, behind):
    window.write32(8, 0x11223344)
    window.write64(16, 0x1122334455667788)
    assert behind.read_bytes()[8:24] == bytes.fromhex("44332211") + behind.read_bytes()[12:16] + bytes.fromhex(
        "8877665544332211"
    )
    assert window.read32(20) == 0x11223344
    assert window.read64(16) == 0x1122334455667788


@pytest.mark.parametrize(
    ("access", "offset"),
    [
        ("read32", 2),
        ("read32", -4),
        ("read32", SIZE),
        ("read64", 4),
        ("read64", -8),
        ("read64", SIZE - 4),
        ("read64", SIZE),
    ],
)
def test_an_impossible_access_is_the_callers_mistake(window, access, offset):
    with pytest.raises(ValueError, match=r"BAR 5 \(0x2000 bytes\) has no"):
        getattr(window, access)(offset)
    with pytest.raises(ValueError, match=r"BAR 5 \(0x2000 bytes\) has no"):
        getattr(window, access.replace("read", "write"))(offset, 0)


def test_a_value_too_wide_is_refused(window):
    with pytest.raises((ValueError, OverflowError)):
        window.write32(0, 1 << 32)


def test_blocks_arrive_whole_at_every_alignment_and_touch_nothing_else(window, behind):
    chance = random.Random(2)
    image = bytearray(behind.read_bytes())
    for _ in range(500):
        start = chance.randrange(SIZE)
        size = chance.choice((0, 1, 3, 7, 8, 9, 15, 16, 17, 100, SIZE - start))
        size = min(size, SIZE - start)
        data = chance.randbytes(size)
        window.write_block(start, data)
        image[start : start + size] = data
        start = chance.randrange(SIZE)
        size = chance.randrange(SIZE - start + 1)
        assert window.read_block(start, size) == image[start : start + size]
    assert behind.read_bytes() == image


@pytest.mark.parametrize(("start", "size"), [(SIZE, 1), (SIZE - 3, 4), (-1, 1)])
def test_a_block_outside_is_the_callers_mistake(window, start, size):
    with pytest.raises(ValueError, match="has no"):
        window.read_block(start, size)
    with pytest.raises(ValueError, match="has no"):
        window.write_block(start, bytes(size))


def test_answers_of_a_batch_show_when_it_has_ended(window, behind):
    with window.batch() as batch:
        batch.write32(0, 7)
        first = batch.read32(0)
        batch.write64(0, 9)
        second = batch.read32(0)
        with pytest.raises(ValueError, match="when it ends"):
            _ = first.value
    assert (first.value, second.value) == (7, 9)
    assert behind.read_bytes()[:8] == (9).to_bytes(8, "little")


def test_a_node_that_fails_reads_as_ones_and_swallows_writes(tmp_path):
    reader, writer = os.pipe()  # cannot be read at an offset
    window = FileWindow("ROM", writer, 0, SIZE, writable=True)
    window.write32(0, 1)
    assert window.read32(0) == 0xFFFF_FFFF
    assert window.read_block(1, 5) == b"\xff" * 5
    os.close(reader)
    os.close(writer)


def test_a_rom_that_ends_early_reads_as_ones_behind_its_end(behind):
    with behind.open("r+b") as file:
        file.truncate(100)
    node = os.open(behind, os.O_RDONLY)
    window = FileWindow("ROM", node, 0, SIZE, writable=False)
    assert window.read_block(96, 8) == behind.read_bytes()[96:] + b"\xff" * 4
    with pytest.raises(ValueError, match="read-only"):
        window.write32(0, 0)
    os.close(node)


def test_combined_writes_are_sent_before_an_uncombined_access(behind, tmp_path):
    """Without a card, the flag is all that can be checked. The guest test checks the bytes."""
    combining = WriteCombining()
    other = tmp_path / "registers"
    other.write_bytes(bytes(4096))
    made = []
    for path, size, combined in ((behind, SIZE, True), (other, 4096, False)):
        with path.open("r+b") as file:
            mapping = mmap.mmap(file.fileno(), size)
        made.append(MappedWindow("BAR", mapping, size, memory_like=True, combining=combining, combined=combined))
    vram, doorbells = made
    for ring in (lambda: doorbells.write32(0, 1), lambda: doorbells.write64(0, 1), lambda: doorbells.read32(0)):
        vram.write32(0, 1)
        assert combining.pending
        ring()
        assert not combining.pending
    # Nobody sees such a write, so every later access drains.
    vram.map()[0] = 1
    doorbells.write32(0, 1)
    assert combining.pending
    for window in made:
        window.close()


class Processor:
    """A processor whose write-combining buffers drain at a locked instruction only, and the card's memory after it.

    Today's processors also drain them at an uncached access (Intel SDM volume 3, "Buffering of Write Combining Memory
    Locations"). The driver does not rely on that.
    """

    def __init__(self):
        self.buffers, self.memory, self.seen = Combining(), bytearray(SIZE), []

    def send(self, offset, data):
        self.memory[offset : offset + len(data)] = data

    def lock(self):
        """Stand in for `threading.Lock`: taking a lock is a locked instruction."""
        return self

    def __enter__(self):
        self.buffers.drain()

    def __exit__(self, *_):
        pass


class Stores:
    """The elements of a window as the processor accesses them. Combined stores wait; an uncombined access records what
    has arrived by then.
    """

    def __init__(self, processor, width, *, combined):
        self.processor, self.width, self.combined = processor, width, combined

    def __setitem__(self, index, value):
        if not self.combined:
            self.processor.seen.append(bytes(self.processor.memory[:16]))
            return
        start = index.start if isinstance(index, slice) else index
        data = bytes(value) if isinstance(index, slice) else value.to_bytes(self.width, "little")
        self.processor.buffers.write(self.processor.send, start * self.width, data)

    def __getitem__(self, index):
        count = index.stop - index.start if isinstance(index, slice) else 1
        if count:
            self.processor.seen.append(bytes(self.processor.memory[:16]))
        return memoryview(bytes(count)) if isinstance(index, slice) else 0

    def release(self):
        pass


@pytest.mark.parametrize(
    "announce",
    [
        lambda window: window.write32(0, 1),
        lambda window: window.write64(0, 1),
        lambda window: window.write_block(0, bytes(8)),
        lambda window: window.read32(0),
        lambda window: window.read64(0),
        lambda window: window.read_block(0, 8),
    ],
    ids=["write32", "write64", "write_block", "read32", "read64", "read_block"],
)
@pytest.mark.parametrize(
    "fill",
    [
        lambda window: window.write_block(0, bytes(range(1, 17))),
        lambda window: [window.write32(4 * at, 0x04030201 + 0x04040404 * at) for at in range(4)],
        lambda window: [window.write64(8 * at, 0x0807060504030201 + 0x0808080808080808 * at) for at in range(2)],
    ],
    ids=["block", "dwords", "quadwords"],
)
def test_an_uncombined_access_comes_after_earlier_combined_writes(behind, monkeypatch, fill, announce):
    processor = Processor()
    monkeypatch.setattr(mmio, "threading", processor)
    processor.Lock = processor.lock
    combining, made = WriteCombining(), []
    for combined in (True, False):
        with behind.open("r+b") as file:
            mapping = mmap.mmap(file.fileno(), SIZE)
        window = MappedWindow("BAR", mapping, SIZE, memory_like=True, combining=combining, combined=combined)
        window._bytes.release(), window._dwords.release(), window._quadwords.release()
        window._bytes, window._dwords, window._quadwords = (
            Stores(processor, width, combined=combined) for width in (1, 4, 8)
        )
        made.append(window)
    memory, doorbells = made
    fill(memory)
    # Nothing has arrived yet.
    assert bytes(processor.memory[:16]) == bytes(16)
    announce(doorbells)
    assert processor.seen == [bytes(range(1, 17))]
    announce(doorbells)
    assert len(processor.seen) == 2
    for window in made:
        window.close()


def test_a_kernel_that_counts_all_memory_maps_a_card_too(behind, monkeypatch):
    node = os.open(behind, os.O_RDWR)
    plain = mmap.mmap

    def counted(file, *args, **kwargs):
        if file < 0:
            raise OSError(errno.ENOMEM, "no memory")
        return plain(file, *args, **kwargs)

    monkeypatch.setattr(mmap, "mmap", counted)
    mapping = map_node(node, SIZE)
    os.close(node)
    assert mapping[:] == behind.read_bytes()
    view = memoryview(mapping)
    give_up(mapping)
    assert bytes(view) == bytes(SIZE)


def test_a_view_that_outlives_its_window_sees_nothing_of_the_card(behind):
    """VFIO refuses to reopen a device that is still mapped somewhere."""
    before = behind.read_bytes()
    node = os.open(behind, os.O_RDWR)
    window = MappedWindow(
        "BAR 0", map_node(node, SIZE), SIZE, memory_like=True, combining=WriteCombining(), combined=False
    )
    view = window.map()
    window.close()
    os.close(node)
    assert str(behind) not in Path("/proc/self/maps").read_text()
    assert str(behind) not in [os.path.realpath(one) for one in Path("/proc/self/fd").iterdir()]
    assert bytes(view) == bytes(SIZE)
    view[:4] = b"lost"
    assert behind.read_bytes() == before
