"""Debian's own amdgpu images on the whole card, cut out of their files as amdgpu_psp.c and amdgpu_ucode.c cut them, and damaged ones."""

from __future__ import annotations

import struct

import pytest

VRAM_AT = 0x80_0000_0000  # FB_LOCATION_BASE << 24: where the board's firmware puts VRAM for MMHUB
BUFFER, RING, COMMAND, FENCE, IMAGE, TMR = 0x10_0000, 0x30_0000, 0x31_0000, 0x32_0000, 0x40_0000, 0x100_0000
BOOT = ((3, 0x80000), (5, 0x1000_0000), (2, 0x10000), (1, 0x20000))  # PSP_FW_TYPE_* in the file, boot-loader command
C2PMSG = 0x16040 * 4


def word(data, at):
    return struct.unpack_from("<I", data, at)[0]


@pytest.fixture(scope="module")
def firmware(sources):
    """`firmware("gc_11_0_0_mec.bin")`: a file of the distribution's firmware package; a missing package fails."""
    folder = sources.root("firmware-amd") / "lib/firmware/amdgpu"
    return lambda name: (folder / name).read_bytes()


def parts(data):
    """The parts of a psp_firmware_header_v2_0: by type."""
    start = word(data, 24)
    rows = [struct.unpack_from("<4I", data, 36 + 16 * n) for n in range(word(data, 32))]
    return {kind: data[start + at : start + at + size] for kind, _, at, size in rows}


def images(firmware):
    """(type, bytes) in the order of a driver. Offsets of header members: amdgpu_ucode.h, as its structs are laid out."""
    rlc, imu = firmware("gc_11_0_0_rlc.bin"), firmware("gc_11_0_0_imu.bin")
    sdma = firmware("sdma_6_0_0.bin")
    yield 71, sdma[word(sdma, 24) :][: word(sdma, 36)]
    yield 72, sdma[word(sdma, 48) :][: word(sdma, 52)]
    for name, code, stacks in (("pfp", 87, (90, 91)), ("me", 88, (92, 93)), ("mec", 89, (94, 95, 96, 97))):
        data = firmware(f"gc_11_0_0_{name}.bin")
        yield code, data[word(data, 24) :][: word(data, 36)]
        for stack in stacks:
            yield stack, data[word(data, 48) :][: word(data, 44)]
    for name, code, stack in (("mes_2", 33, 34), ("mes1", 0x51, 0x52)):
        data = firmware(f"gc_11_0_0_{name}.bin")
        yield code, data[word(data, 40) :][: word(data, 36)]
        yield stack, data[word(data, 52) :][: word(data, 48)]
    yield 68, imu[word(imu, 24) :][: word(imu, 32)]
    yield 69, imu[word(imu, 24) + word(imu, 32) :][: word(imu, 40)]
    for kind, size, at in (
        (20, 132, 136),
        (21, 148, 152),
        (26, 156, 160),
        (48, 164, 168),
        (25, 180, 184),
        (7, 196, 200),
    ):
        if word(rlc, size):
            yield kind, rlc[word(rlc, at) :][: word(rlc, size)]
    yield 8, rlc[word(rlc, 24) :][: word(rlc, 20)]


class Host:
    """What a driver does to the PSP, by hand."""

    def __init__(self, radeon):
        self.radeon, self.wptr, self.fence = radeon, 0, 0

    def set(self, number, value):
        self.radeon.bars[5].write32(C2PMSG + number * 4, value)

    def get(self, number):
        return self.radeon.bars[5].read32(C2PMSG + number * 4)

    def boot(self, command, data):
        self.radeon.vram.write(BUFFER, data.ljust(1 << 20, b"\0"))
        self.set(36, VRAM_AT + BUFFER >> 20)
        self.set(35, command)
        self.radeon.clock.sleep_us(10_000)
        return self.get(35)

    def start(self, sos):
        found = parts(sos)
        for kind, command in BOOT:
            assert self.boot(command, found[kind]) == 0x8000_0000
        self.radeon.clock.sleep_us(90_000)
        assert self.get(58) == word(found[1], 0x60)
        for number, value in (
            (69, VRAM_AT + RING & 0xFFFF_FFFF),
            (70, VRAM_AT + RING >> 32),
            (71, 0x1000),
            (64, 2 << 16),
        ):
            self.set(number, value)
        self.radeon.clock.sleep_us(20_000)
        assert self.get(64) & 0x8000_FFFF == 0x8000_0000
        return found

    def command(self, number, *operands):
        self.fence += 1
        buffer = bytearray(1024)
        struct.pack_into("<I", buffer, 8, number)
        struct.pack_into(f"<{len(operands)}I", buffer, 28, *operands)
        self.radeon.vram.write(COMMAND, bytes(buffer))
        frame = struct.pack("<QIQI", VRAM_AT + COMMAND, 1024, VRAM_AT + FENCE, self.fence).ljust(64, b"\0")
        self.radeon.vram.write(RING + self.wptr * 4, frame)
        self.wptr = (self.wptr + 16) % 1024
        self.set(67, self.wptr)
        self.radeon.clock.sleep_us(5_000)
        assert word(self.radeon.vram.read(FENCE, 4), 0) == self.fence
        return word(self.radeon.vram.read(COMMAND + 864, 4), 0)

    def load(self, kind, data):
        self.radeon.vram.write(IMAGE, data)
        return self.command(6, VRAM_AT + IMAGE & 0xFFFF_FFFF, VRAM_AT + IMAGE >> 32, len(data), kind)


def setup(host):
    return host.command(
        5,
        VRAM_AT + TMR & 0xFFFF_FFFF,
        VRAM_AT + TMR >> 32,
        0x130_0000,
        2,
        VRAM_AT + TMR & 0xFFFF_FFFF,
        VRAM_AT + TMR >> 32,
    )


def test_every_image_of_a_navi31_loads_and_the_graphics_core_boots(radeon, firmware):
    host = Host(radeon)
    found = host.start(firmware("psp_13_0_0_sos.bin"))
    radeon.vram.write(IMAGE, found[4])
    assert host.command(0x20, VRAM_AT + IMAGE & 0xFFFF_FFFF, VRAM_AT + IMAGE >> 32, len(found[4])) == 0  # LOAD_TOC
    smu = firmware("smu_13_0_0.bin")
    assert host.load(18, smu[word(smu, 24) :][: word(smu, 20)]) == 0
    assert setup(host) == 0
    for kind, data in images(firmware):
        assert host.load(kind, data) == 0, kind
    assert host.command(0x21) == 0  # AUTOLOAD_RLC
    radeon.clock.sleep_us(1_000)
    assert radeon.bars[5].read32(0xEE82 * 4) >> 31  # RLC_RLCS_BOOTLOAD_STATUS: boot complete
    assert radeon.violations == []


def test_a_real_image_cut_short_or_sent_as_another_is_refused(radeon, firmware):
    host = Host(radeon)
    host.start(firmware("psp_13_0_0_sos.bin"))
    setup(host)
    mec = firmware("gc_11_0_0_mec.bin")
    code = mec[word(mec, 24) :][: word(mec, 36)]
    assert host.load(89, code[:-1]) != 0
    assert host.load(89, code[:0x80]) != 0
    assert host.load(87, code) != 0  # as the PFP's
    assert host.load(89, code) == 0


def test_another_boards_secure_os_boots_from_its_own_parts(radeon, firmware):
    """psp_13_0_10 has the drivers between system driver and secure OS that psp_13_0_0 lacks."""
    found = parts(firmware("psp_13_0_10_sos.bin"))
    host = Host(radeon)
    extra = {7: 0xB0000, 8: 0xD0000, 9: 0xC0000, 10: 0xE0000}  # SOC, INTF, DBG, RAS drivers
    for kind, command in (*BOOT[:3], *((k, c) for k, c in extra.items() if k in found), BOOT[3]):
        assert host.boot(command, found.get(kind, found[3])) == 0x8000_0000
    assert set(extra) & set(found)
    radeon.clock.sleep_us(90_000)
    assert host.get(81) != 0
