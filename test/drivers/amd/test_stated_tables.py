"""Random numbers in the VBIOS and in the power controller's tables: the result is an error, or numbers
within limits.
"""

import dataclasses
import random
import struct

import pytest

from ringup.drivers.amd.psp import vbios as driver
from ringup.drivers.amd.smu.rows import ROWS
from ringup.drivers.amd.smu.tables import MAX_BY_UNIT, decode_limits, decode_metrics, metrics_bytes, power_table, sifted
from ringup.errors import FirmwareError
from ringup.firmware.amd import vbios
from ringup.silicon import card as virtual

NUMBERS = (0, 1, 0xFF, 0xFFFF, 0xFFFF_FFFF, 0xDEAD_BEEF, 0xCAFE_DEAD, 0x8000_0000)
VERSIONS = sorted(ROWS)


@pytest.fixture(scope="module")
def rom():
    return bytes(virtual("navi31", vram_bytes=64 << 20).image)


@pytest.mark.seeds(20)
def test_a_vbios_with_random_numbers_is_refused_or_read_within_it(rom, seed):
    rng, image = random.Random(seed), bytearray(rom)
    for _ in range(rng.randrange(1, 6)):
        at = rng.randrange(len(image) - 4) if rng.random() < 0.3 else rng.randrange(min(len(image), 4096) - 4)
        value = rng.choice((*NUMBERS, rng.getrandbits(32), rng.randrange(len(image))))
        struct.pack_into("<I", image, at, value)
    # Size and checksum are right, so no reader can reject the table by them.
    image[2] = len(rom) // 512
    image[-1] = (image[-1] - sum(image)) & 0xFF
    try:
        seen = vbios.parse(bytes(image))
        table = driver.board_table(seen)
        assert table is None or len(table) <= len(image)
        for name in seen.data:
            assert len(seen.table_bytes(name)) <= len(image)
        assert 0 <= seen.memory(rng.randrange(256)).channels < 1 << 32
    except FirmwareError:
        return
    assert len(seen.title) <= 64


@pytest.mark.seeds(10)
def test_random_tables_of_the_power_controller_give_numbers_that_can_be(seed):
    rng = random.Random(seed)
    row = ROWS[VERSIONS[seed % len(VERSIONS)]]
    fill = rng.choice((b"\xff\xff\xff\xff", b"\xef\xbe\xad\xde", None))
    tables = [(decode_metrics, metrics_bytes(row))]
    # of a card of several dies, the table of metrics states the limits
    if not row.accelerator:
        tables.append((decode_limits, power_table(row).SIZE))
    for decode, size in tables:
        table = (fill * (size // 4 + 1))[:size] if fill else rng.randbytes(size)
        values, doubts = sifted(decode(row, table), "a table")
        for one in dataclasses.fields(values):
            most = next((most for unit, most in MAX_BY_UNIT.items() if one.name.endswith(unit)), None)
            assert most is None or 0 <= getattr(values, one.name) <= most, one.name
        assert bool(doubts) == (sifted(values, "a table")[0] != decode(row, table))
