"""Hostile images: mutated files and ROMs. Each is read or refused with one error, within a time limit."""

import random
import struct
import time

import pytest

from ringup.errors import FirmwareError
from ringup.firmware.nv import booter, bootloader, build, build_rom, fmc, fwsec, gsp, loader, vbios

# TIMEOUT: one image takes about 0.2 ms; a loop without a bound never ends.
SLOWEST_S = 10
VALUES = (0, 1, 0x7F, 0xFF, 0x100, 0xFFFF, 0x1_0000, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FF00, 0xFFFF_FFFF)
SIGNATURES = (b"1" * 384, b"2" * 384)
V2 = build_rom.fwsec_v2(b"o" * 256, b"c" * 256, build_rom.fwsec_data())


def read_booter(blob):
    found = booter.parse(blob, "x.bin")
    for boot_from_hs in (False, True):
        ucode = found.ucode(boot_from_hs=boot_from_hs)
        for part in (ucode.secure, ucode.data):
            assert part.end_bytes <= len(ucode.image)
            assert len(ucode.bytes_of(part)) == part.padded_bytes
        assert len(ucode.signed(0).image) == len(ucode.image)


def read_rom(blob):
    found = vbios.parse(blob, "rom")
    for debug in (False, True):
        try:
            ucode = found.fwsec(debug)
        except FirmwareError:
            continue
        assert len(ucode.image) <= 4 << 20
        assert ucode.data.end_bytes <= len(ucode.image)
        try:
            made = ucode.commanded(fwsec.CMD_FRTS, fwsec.frts_arguments(0x1000, 0x1000)).signed(1)
        except FirmwareError:
            continue
        assert len(made.image) == len(ucode.image)


# Kind: its reader, a valid image, and how many of its first bytes are worth damage.
IMAGES = {
    "gsp": (
        lambda blob: gsp.parse(blob, "x.bin"),
        build.gsp_image("535.113.01", b"i" * 64, {"ga10x": b"s" * 32}),
        1024,
    ),
    "bootloader": (
        lambda blob: bootloader.parse(blob, "x.bin"),
        build.bootloader_image(bytes(512), {"manifestSize": 8}),
        128,
    ),
    "booter": (read_booter, build.booter_image(b"o" * 256, b"a" * 256, b"d" * 1024, SIGNATURES), 1024),
    "loader": (lambda blob: loader.parse(blob, "x.bin"), build.loader_image(b"l" * 300, 0xFD), 64),
    "fmc": (lambda blob: fmc.parse(blob, "x.bin"), build.fmc_for("gb202", b"i" * 64), 640),
    "rom": (read_rom, build_rom.expansion_rom(), 1 << 20),
    "rom of version 2": (read_rom, build_rom.with_ifr(build_rom.expansion_rom({0x85: V2, 0x45: V2})), 1 << 20),
}


def mutate(blob, chance, reach):
    """Change up to four fields, cut or extend."""
    made = bytearray(blob)
    for _ in range(chance.randrange(1, 5)):
        at = chance.randrange(0, max(1, min(len(made), reach) - 4)) & ~chance.choice((3, 3, 1, 0))
        kind = chance.randrange(5)
        if kind == 0 and len(made) >= at + 4:
            struct.pack_into("<I", made, at, chance.choice((*VALUES, len(made), len(made) - 1, chance.getrandbits(32))))
        elif kind == 1 and len(made) >= at + 2:
            struct.pack_into("<H", made, at, chance.choice((0, 1, 2, 3, 4, 5, 0xFFFF, chance.getrandbits(16))))
        elif kind == 2:
            made[at : at + 1] = bytes([chance.getrandbits(8)])
        elif kind == 3 and len(made) > at:
            made[at] ^= 1 << chance.randrange(8)
        elif chance.random() < 0.3:
            del made[chance.randrange(len(made) + 1) :]
    return bytes(made)


def fixed_bit(blob):
    """Correct the checksum of the BIT, so that damage in it gets past the first check."""
    at = blob.find(vbios.BIT_MAGIC)
    if at < 0 or at + 12 > len(blob):
        return blob
    made = bytearray(blob)
    made[at + 11] = 0
    made[at + 11] = -sum(made[at : at + made[at + 8]]) & 0xFF
    return bytes(made)


@pytest.mark.seeds(2, share=2)
@pytest.mark.parametrize("kind", IMAGES)
def test_mutated_images_are_read_or_refused(kind, seed):
    """100 mutations for a seed. Damage to a ROM is aimed at its headers in half of the cases."""
    read, blob, reach = IMAGES[kind]
    chance = random.Random(f"{kind}{seed}")
    taken = 0
    for number in range(100):
        made = mutate(blob, chance, reach if number % 2 else min(reach, 0x180))
        if kind.startswith("rom") and chance.random() < 0.9:
            made = fixed_bit(made)
        begin = time.process_time()
        try:
            read(made)
        except FirmwareError:
            pass
        else:
            taken += 1
        assert time.process_time() - begin < SLOWEST_S
    assert taken < 100


@pytest.mark.parametrize("kind", IMAGES)
def test_every_bit_of_the_headers_may_be_flipped(kind, sample):
    read, blob, reach = IMAGES[kind]
    for bit in sample([*range(8 * min(reach, len(blob)))], few=150):
        made = bytearray(blob)
        made[bit // 8] ^= 1 << bit % 8
        try:
            read(bytes(made))
        except FirmwareError:
            continue


def test_noise_is_refused():
    chance = random.Random(3)
    for kind, (read, blob, _) in IMAGES.items():
        for _ in range(30):
            noise = chance.randbytes(chance.randrange(0, 600))
            with pytest.raises(FirmwareError):
                read(noise)
            # with the right beginning
            try:
                read(blob[:20] + noise)
            except FirmwareError:
                continue
            assert kind in ("bootloader", "loader")
