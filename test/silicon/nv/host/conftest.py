"""A card with one channel, made as the resource manager makes it: by its addresses. The doorbell is the card's."""

from __future__ import annotations

import struct

import pytest

from ringup.silicon.nv.card import VirtualNvidia
from ringup.silicon.nv.rm.parts import Aperture, Channel, Place

ROOT, PD2, PD1, PD0, SMALL, INSTANCE, USERD, FIFO = (0x100000 + 0x1000 * n for n in range(8))
# what the channel sees: pages from 0 on, at VRAM 0x200000 on
DATA, PAGES = 0x200000, 64
ENTRIES = 32
DOORBELL = 0xBB0090
# NV2080_ENGINE_TYPE_GR0, NV2080_ENGINE_TYPE_COPY0, NV2080_ENGINE_TYPE_NVDEC0
GRAPHICS, COPY, DECODER = 1, 9, 0x13


class Bench:
    """A card with channel 5 on a runlist. The GPFIFO lies in its page 1, pushbuffers in page 2."""

    def __init__(self, objects, runlist=1, engine=COPY, chip="ga102"):
        self.card = VirtualNvidia(chip, vram_bytes=512 << 20)
        put = self.card.vram.write
        for table, below in ((ROOT, PD2), (PD2, PD1), (PD1, PD0)):
            put(table, struct.pack("<Q", 2 | below >> 12 << 8))
        put(PD0, struct.pack("<QQ", 0, 2 | SMALL >> 12 << 8))
        put(SMALL, b"".join(struct.pack("<Q", 1 | DATA + 4096 * n >> 12 << 8) for n in range(PAGES)))
        put(INSTANCE + 0x200, struct.pack("<Q", ROOT | 1 << 10))
        at = lambda address: Place(Aperture.VRAM, address, 4096)  # noqa: E731
        self.channel = Channel(
            5, runlist, engine, at(INSTANCE), at(INSTANCE), at(USERD), None, None, 0x1000, ENTRIES, 0, False,
            objects=objects,
        )  # fmt: skip
        self.failed = []
        self.card.engines.fail = lambda channel, code, text: self.failed.append((channel.number, code, text))
        self.put = 0
        self._next = 0x2000
        self.card.engines.add(self.channel)
        self.channel.scheduled = True
        self.card.engines.schedule(self.channel, enable=True)

    @staticmethod
    def incr(subchannel, address, *data):
        """Return words of an incrementing method."""
        return [1 << 29 | len(data) << 16 | subchannel << 13 | address >> 2, *data]

    @staticmethod
    def repeat(subchannel, address, *data):
        """Return words of a method that is given all the data."""
        return [3 << 29 | len(data) << 16 | subchannel << 13 | address >> 2, *data]

    @staticmethod
    def once(subchannel, address, *data):
        """Return words of a method, and of the next one that gets the rest of the data."""
        return [5 << 29 | len(data) << 16 | subchannel << 13 | address >> 2, *data]

    def poke(self, va, data):
        self.card.vram.write(DATA + va, data)

    def peek(self, va, size=4):
        return self.card.vram.read(DATA + va, size)

    def word(self, va):
        return struct.unpack("<I", self.peek(va))[0]

    def push(self, *words, entry=None, flags=0):
        """Submit words, and let a little time pass."""
        if self._next + 4 * len(words) > 0x4000:
            self._next = 0x2000
        self.poke(self._next, struct.pack(f"<{len(words)}I", *words))
        raw = entry or struct.pack("<II", self._next | flags & 1, len(words) << 10 | flags & ~1)
        self.poke(self.channel.gpfifo_va + 8 * self.put, raw)
        self._next = 0x2000 + (self._next + 4 * len(words)) % 0x1000
        self.put = (self.put + 1) % ENTRIES
        self.card.vram.write(USERD + 0x8C, struct.pack("<I", self.put))
        self.ring()

    def ring(self, token=None):
        self.card.bars[0].write32(DOORBELL, self.channel.runlist << 16 | 5 if token is None else token)
        self.card.clock.sleep_us(50)

    def second(self, number=6, runlist=None, objects=None, userd=0x200, gpfifo=0x1800):
        """Return another channel of the same address space, on the same runlist or another; its GPFIFO is at 0x1800."""
        at = Place(Aperture.VRAM, USERD + userd, 512)
        channel = Channel(
            number, self.channel.runlist if runlist is None else runlist, self.channel.engine_type,
            self.channel.instance, self.channel.ramfc, at, None, None, gpfifo, ENTRIES, 0, False,
            objects=objects or self.channel.objects, scheduled=True,
        )  # fmt: skip
        self.card.engines.add(channel)
        return channel

    def submit(self, channel, *words, wait_us=50, at=0x4000):
        """Submit the first words of the second channel."""
        self.poke(at, struct.pack(f"<{len(words)}I", *words))
        self.poke(channel.gpfifo_va, struct.pack("<II", at, len(words) << 10))
        self.card.vram.write(channel.userd.address + 0x8C, struct.pack("<I", 1))
        self.card.bars[0].write32(DOORBELL, channel.runlist << 16 | channel.number)
        self.card.clock.sleep_us(wait_us)

    @property
    def gp_get(self):
        return struct.unpack("<I", self.card.vram.read(USERD + 0x88, 4))[0]

    @property
    def error(self):
        """The code and the text of the channel's one error."""
        ((_, code, text),) = self.failed
        return code, text

    def said(self):
        return [event.text for event in self.card.violations]

    def again(self):
        """Start the channel anew, as after its error."""
        self.failed.clear()
        self.card.engines.remove(self.channel)
        self.card.engines.add(self.channel)
        self.card.vram.write(USERD + 0x88, bytes(8))
        self.put = 0


@pytest.fixture
def bench():
    """Return a channel on a copy engine of class c6b5."""
    return Bench({0xC6B5: COPY})


@pytest.fixture
def graphics():
    """Return a channel on the graphics runlist, with an object of each of its classes."""
    return Bench({0xC797: GRAPHICS, 0xC7C0: GRAPHICS, 0xA140: GRAPHICS, 0x902D: GRAPHICS, 0xC7B5: COPY}, 0, GRAPHICS)


@pytest.fixture
def ga100():
    """Return a channel on the graphics runlist of GA100, with its own compute class."""
    return Bench({0xC697: GRAPHICS, 0xC6C0: GRAPHICS, 0xC6B5: COPY}, 0, GRAPHICS, "ga100")


@pytest.fixture
def video():
    """Return a channel on a video decoder of class c7b0."""
    return Bench({0xC7B0: DECODER}, 5, DECODER)
