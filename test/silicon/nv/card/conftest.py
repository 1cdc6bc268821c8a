"""A card of each chip, and a small driver that starts its GSP as NVIDIA's open kernel modules do.

Offsets are those of published/turing/tu102 and published/ampere/ga102; the order is that of kernel_falcon_tu102.c,
kernel_gsp_falcon_tu102.c, kernel_gsp_falcon_ga102.c and kernel_gsp_tu102.c.
"""

from __future__ import annotations

import struct

import pytest

from ringup.autogen.nv.gsp_boot import GspFwWprMeta
from ringup.autogen.structs import memory
from ringup.silicon.nv.board import vbios
from ringup.silicon.nv.card import VirtualNvidia
from ringup.silicon.nv.firmware import images

CHIPS = ("tu102", "ga102", "ad102")
GSP, SEC2, PAGE2, FBIF = 0x110000, 0x840000, 0x1000, 0x600
VRAM = 512 << 20
FRTS_AT = VRAM - (1 << 20) - (1 << 20)


class Starter:
    """Starts and stops the GSP of one card. Its memory is one buffer, filled from the start."""

    def __init__(self, card: VirtualNvidia, host_bytes: int = 16 << 20) -> None:
        # GA100 starts as Turing does, without FRTS
        self.card, self.turing = card, card.chip.name in ("tu102", "ga100")
        self.frts_bytes = 0 if card.chip.name == "ga100" else 1 << 20
        self.images = images.build(card.chip)
        self.buffer = card.alloc_host(host_bytes)
        self._used = 0
        # where GSP-RM's arguments are; an empty page unless a test has some
        self.arguments = 0
        command = card.config.read(4, 2)
        card.config.write(4, command | 4, 2)

    def rd(self, address: int) -> int:
        return self.card.bars[0].read32(address)

    def wr(self, address: int, value: int) -> None:
        self.card.bars[0].write32(address, value)
        # tests look inside the card at once
        self.card.settle()

    def put(self, data: bytes) -> int:
        """Store bytes in host memory at the next page, and return their bus address."""
        at = self._used
        self.buffer.view[at : at + len(data)] = data
        self._used += -(-len(data) // 4096) * 4096
        return self.buffer.bus_addr(at)

    def wait(self, address: int, mask: int, value: int) -> None:
        for _ in range(2000):
            if self.rd(address) & mask == value:
                return
            self.card.clock.sleep_us(1)
        raise AssertionError(f"{address:#x} stays {self.rd(address):#x}")

    def reset(self, base: int) -> None:
        self.wr(base + 0x3C0, 1)
        self.wr(base + 0x3C0, 0)
        if self.turing:
            self.wait(base + 0x10C, 0x6, 0)
        else:
            self.wr(base + PAGE2 + 0x668, 0)
            self.wait(base + 0xF4, 1 << 12, 0)
        self.wr(base + FBIF + 0x24, 0x80)
        self.wr(base + 0x10C, 0)
        self.wr(base + FBIF, 0x5)
        self.wr(base + FBIF + 4 * 4, 0x5)

    def dma(self, base: int, source: int, data: bytes, command: int) -> None:
        self.wr(base + 0x110, source >> 8 & 0xFFFFFFFF)
        self.wr(base + 0x128, source >> 40)
        for at in range(0, len(data), 256):
            self.wr(base + 0x114, at)
            self.wr(base + 0x11C, at)
            self.wr(base + 0x118, command)
        self.wait(base + 0x118, 2, 2)

    def poke(self, base: int, data: bytes, at: int, *, secure: bool, tag: int = 0) -> None:
        """Write code by its port, 256 bytes to a tag."""
        self.wr(base + 0x180, 1 << 24 | secure << 28 | at)
        for word in range(0, len(data), 4):
            if word % 256 == 0:
                self.wr(base + 0x188, tag)
                tag += 1
            self.wr(base + 0x184, *struct.unpack_from("<I", data, word))

    def poke_data(self, base: int, data: bytes) -> None:
        self.wr(base + 0x1C0, 1 << 24)
        for word in range(0, len(data), 4):
            self.wr(base + 0x1C4, *struct.unpack_from("<I", data, word))

    def run(self, base: int, vector: int) -> None:
        self.wr(base + 0x104, vector)
        self.wr(base + 0x100, 2)
        self.wait(base + 0x100, 0x10, 0x10)

    def run_signed(self, base: int, code: bytes, data: bytes, signature_at: int, engine: int, ucode: int) -> None:
        """Load by DMA and start by the boot ROM, from GA102 on."""
        self.dma(base, self.put(code), code, 0x614)
        self.dma(base, self.put(data), data, 0x600)
        self.wr(base + PAGE2 + 0x210, signature_at)
        self.wr(base + PAGE2 + 0x19C, engine)
        self.wr(base + PAGE2 + 0x198, ucode)
        self.wr(base + PAGE2 + 0x180, 1)
        self.run(base, 0)

    def fwsec(self, command: int = 0x15, *, region: tuple[int, ...] | None = None) -> int:
        """Run a command of FWSEC and return its error."""
        code, data = vbios.code(self.card.chip), bytearray(vbios.data())
        struct.pack_into("<I", data, 0x40 + 44, command)
        struct.pack_into("<IIQII", data, 0x100, 1, 24, 0, 0, 2)
        struct.pack_into("<IIIII", data, 0x118, *(region or (1, 20, FRTS_AT >> 12, 0x100, 2)))
        self.reset(GSP)
        if self.turing:
            self._load_on_turing(code, bytes(data))
        else:
            data[0x400 : 0x400 + 384] = vbios.signature(self.card.chip)
            self.run_signed(GSP, code, bytes(data), 0x400, 0x400, 9)
        return self.rd(0x1438) >> 16 if command == 0x15 else self.rd(0x1454) & 0xFFFF

    def _load_on_turing(self, code: bytes, data: bytes) -> None:
        """Let the loader bring FWSEC in."""
        where = [self.put(code), self.put(data)]
        descriptor = struct.pack("<8I I IIIIII I II I II", *[0] * 8, 4, where[0] & 0xFFFFFFFF, where[0] >> 32, 0, 0x100,
                                 0x100, len(code) - 0x100, 0, where[1] & 0xFFFFFFFF, where[1] >> 32, len(data), 0, 0)  # fmt: skip
        self.poke_data(GSP, descriptor)
        loader = images.loader(self.card.chip)
        top = self.card.chip.falcon("gsp").imem_bytes - len(loader)
        self.poke(GSP, loader, top, secure=False, tag=0xFD)
        self.run(GSP, 0xFD00)

    def layout(self, heap_bytes: int = 64 << 20, **changes: int) -> bytes:
        """Return the metadata of a boot."""
        files = self.images
        radix = self.radix3(files.gsp)
        frts_at = FRTS_AT + (1 << 20) - self.frts_bytes
        boot_at = frts_at - len(files.bootloader)
        elf_at = (boot_at - len(files.gsp)) >> 16 << 16
        heap_at = (elf_at - heap_bytes) >> 20 << 20
        start = heap_at - (1 << 20)
        meta = GspFwWprMeta(
            magic=0xDC3AAE21371A60B3, revision=1, sysmemAddrOfRadix3Elf=radix, sizeOfRadix3Elf=len(files.gsp),
            sysmemAddrOfBootloader=self.put(files.bootloader), sizeOfBootloader=len(files.bootloader),
            sysmemAddrOfSignature=self.put(files.signature), sizeOfSignature=len(files.signature),
            nonWprHeapOffset=start - (1 << 20), nonWprHeapSize=1 << 20, gspFwWprStart=start, gspFwHeapOffset=heap_at,
            gspFwHeapSize=elf_at - heap_at >> 20 << 20, gspFwOffset=elf_at, bootBinOffset=boot_at, frtsOffset=frts_at,
            frtsSize=self.frts_bytes, gspFwWprEnd=FRTS_AT + (1 << 20), fbSize=VRAM, vgaWorkspaceOffset=VRAM - (1 << 20),
            vgaWorkspaceSize=1 << 20,
        )  # fmt: skip
        for name, value in changes.items():
            setattr(meta, name, value)
        return bytes(memory(meta))

    def radix3(self, image: bytes) -> int:
        """Store an image and tables of its pages, and return the root's bus address."""
        first = self.put(image)
        pages = [first + at for at in range(0, len(image), 4096)]
        level2 = self.put(struct.pack(f"<{len(pages)}Q", *pages))
        level1 = self.put(struct.pack("<512Q", *[level2 + 4096 * n for n in range(512)]))
        return self.put(struct.pack("<Q", level1))

    def booter(self, program: images.SignedProgram, mailboxes: int) -> int:
        """Run a program on SEC2 and return its answer."""
        self.reset(SEC2)
        self.wr(SEC2 + 0x40, mailboxes & 0xFFFFFFFF)
        self.wr(SEC2 + 0x44, mailboxes >> 32)
        if self.turing:
            self.poke(SEC2, b"\x00GO".ljust(256, b"\0"), 0, secure=False)
            self.poke(SEC2, program.code, 256, secure=True, tag=1)
            self.poke_data(SEC2, program.data)
            self.run(SEC2, 0)
        else:
            self.run_signed(SEC2, program.code, program.data, images.SIGNATURE_AT, 1, images.BOOTER_UCODE_ID)
        return self.rd(SEC2 + 0x40)

    def start(self, **changes: int) -> int:
        """Start GSP-RM; return the booter's answer. `changes`: other values in the metadata."""
        assert not self.frts_bytes or self.fwsec() == 0
        return self.load(**changes)

    def load(self, **changes: int) -> int:
        """Run the booter after FWSEC."""
        self.reset(GSP)
        if not self.turing:
            self.wr(GSP + PAGE2 + 0x668, 0x111)
        self.arguments = self.arguments or self.put(bytes(4096))
        self.wr(GSP + 0x40, self.arguments & 0xFFFFFFFF)
        self.wr(GSP + 0x44, self.arguments >> 32)
        return self.booter(self.images.booter_load, self.put(self.layout(**changes)))

    def set_aside(self, size_bytes: int) -> None:
        """Leave the next bytes of host memory to the test."""
        self._used += size_bytes

    @property
    def active(self) -> bool:
        """Whether the GSP's RISC-V core runs."""
        return bool(self.rd(GSP + PAGE2 + (0x240 if self.turing else 0x388)) & (1 if self.turing else 0x80))


@pytest.fixture(params=CHIPS)
def board(request):
    """A card of each chip, with little memory."""
    return VirtualNvidia(request.param, vram_bytes=VRAM)


@pytest.fixture
def starter(board):
    """The small driver of that card."""
    return Starter(board)


@pytest.fixture
def make_starter():
    """Make a card of a chip, and the small driver of it."""
    return lambda chip, *host_bytes: Starter(VirtualNvidia(chip, vram_bytes=VRAM), *host_bytes)
