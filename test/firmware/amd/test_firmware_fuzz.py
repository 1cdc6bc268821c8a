"""Hostile images: 26,000 mutated ones. Each is read or refused with one error, within a time limit."""

import random
import struct
import time

import pytest

from ringup.autogen.amd import discovery as facts
from ringup.errors import FirmwareError
from ringup.firmware.amd import build, build_tables, discovery, toc, vbios
from ringup.firmware.amd.containers import CONTAINERS
from ringup.firmware.amd.image import parse
from ringup.firmware.amd.parts import ROWS, boot_parts, ip_parts, trusted_applications

# TIMEOUT: one image takes about 0.1 ms; a loop without a bound never ends.
SLOWEST_S = 20
# One of each header among the distribution's files that a card of ours loads, and some older headers.
REAL = (
    *(
        "psp_13_0_0_sos.bin",
        "psp_13_0_6_sos.bin",
        "aldebaran_sos.bin",
        "navi10_sos.bin",
        "arcturus_sos.bin",
        "psp_13_0_0_ta.bin",
    ),
    *(
        "navi10_ta.bin",
        "gc_11_0_0_mec.bin",
        "gc_11_0_1_mec.bin",
        "gc_11_0_0_rlc.bin",
        "gc_12_0_0_rlc.bin",
        "beige_goby_rlc.bin",
    ),
    *(
        "gc_11_0_0_imu.bin",
        "gc_11_0_0_mes_2.bin",
        "sdma_6_0_0.bin",
        "sdma_7_0_0.bin",
        "sdma_4_4_2.bin",
        "smu_13_0_0.bin",
    ),
    *(
        "smu_14_0_2.bin",
        "gc_12_0_0_toc.bin",
        "vcn_4_0_0.bin",
        "dcn_3_5_dmcub.bin",
        "bonaire_mc.bin",
        "umsch_mm_4_0_0.bin",
    ),
)
# Headers, lists of packed parts and power tables are in the first bytes. Damage after them changes nothing.
HEAD_BYTES = 512
VALUES = (0, 1, 0x7F, 0xFF, 0x100, 0xFFFF, 0x1_0000, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FF00, 0xFFFF_FFFF)


def mutate(blob, chance, reach):
    """Change up to four fields, cut, extend or join. Sometimes the stated size is adjusted, so that the damage gets
    past the first check.
    """
    made = bytearray(blob)
    for _ in range(chance.randrange(1, 5)):
        at = chance.randrange(0, max(1, min(len(made), reach) - 4)) & ~chance.choice((3, 3, 1, 0))
        kind = chance.randrange(4)
        if kind == 0 and len(made) >= at + 4:
            struct.pack_into("<I", made, at, chance.choice((*VALUES, len(made), len(made) - 1, chance.getrandbits(32))))
        elif kind == 1 and len(made) >= at + 2:
            struct.pack_into("<H", made, at, chance.choice((0, 1, 2, 3, 4, 5, 0xFFFF, chance.getrandbits(16))))
        elif kind == 2:
            made[at : at + 1] = bytes([chance.getrandbits(8)])
        elif chance.random() < 0.3:
            del made[chance.randrange(len(made) + 1) :]
    return made


def outcome(read, data, *rest):
    """Read an image and tell whether it was accepted. The test fails on any error other than `FirmwareError` and on a
    long run time.
    """
    begin = time.process_time()
    try:
        read(data, *rest)
    except FirmwareError:
        taken = False
    else:
        taken = True
    assert time.process_time() - begin < SLOWEST_S
    return taken


def cut_all(data, name, kind):
    """Parse and cut into every kind of piece. No piece may be longer than the file."""
    image = parse(data, name, kind)
    parts = []
    if kind in ROWS or kind == "sos":
        parts += [part for core in ((11, 0, 0), (12, 0, 0)) for part in ip_parts(image, core)]
    if kind == "sos":
        parts += [part for aux in (False, True) for part in boot_parts(image, aux=aux).values()]
    if kind == "ta":
        parts += trusted_applications(image).values()
    assert all(len(part.data) <= len(data) for part in parts)
    assert all(0 <= section.offset_bytes <= section.end_bytes <= len(data) for section in image.sections)


@pytest.mark.parametrize("name", REAL)
def test_mutations_of_published_files_are_read_or_refused(real, name):
    """24 files, 500 mutations each."""
    blob, chance, taken = real(name), random.Random(name), 0
    kind = parse(blob, name).kind
    for _ in range(500):
        made = mutate(blob, chance, HEAD_BYTES)
        if chance.random() < 0.8 and len(made) > 4:
            struct.pack_into("<I", made, 0, len(made))
        taken += outcome(cut_all, bytes(made), name, kind)
    assert 0 < taken < 500


FORMS = [(kind, version) for kind, versions in CONTAINERS.items() for version in versions]


@pytest.mark.parametrize(("kind", "version"), FORMS)
def test_mutations_of_built_images_are_read_or_refused(kind, version):
    """48 headers, 150 mutations each."""
    container, chance = CONTAINERS[kind][version], random.Random(f"{kind}{version}")
    names = [cut.name for cut in container.cuts if not cut.inside and cut.name != "hdcp"] or [
        "sos" if kind == "sos" else "asd"
    ]
    blob = build.image(kind, version, {name: chance.randbytes(64) for name in names})
    for _ in range(150):
        made = mutate(blob, chance, len(blob))
        if chance.random() < 0.8 and len(made) > 4:
            struct.pack_into("<I", made, 0, len(made))
        outcome(cut_all, bytes(made), "made.bin", kind)


def test_noise_is_refused():
    """2,000 images of random bytes; half of them state the right size."""
    chance = random.Random(3)
    for kind in ("sos", "rlc", "smu", "ta"):
        for number in range(500):
            made = bytearray(chance.randbytes(chance.randrange(0, 600)))
            if number % 2 and len(made) >= 12:
                struct.pack_into("<IIHH", made, 0, len(made), 32, chance.randrange(1, 3), chance.randrange(0, 4))
            outcome(cut_all, bytes(made), "noise.bin", kind)


def resum(made):
    """Correct the checksums of a discovery binary, for those tables that are still inside it."""
    if len(made) < 60:
        return
    for index in range(6):
        at, _, size = struct.unpack_from("<HHH", made, 12 + 8 * index)
        if at:
            struct.pack_into("<H", made, 14 + 8 * index, sum(made[at : at + size]) & 0xFFFF)
    struct.pack_into("<H", made, 8, sum(made[10 : struct.unpack_from("<H", made, 10)[0]]) & 0xFFFF)


def test_mutations_of_a_discovery_binary_are_read_or_refused():
    """2,000 mutations. Most have right checksums, so that the damage reaches the tables."""
    chance = random.Random(5)
    ips = [discovery.Ip(hw_id, 0, (1, 2, 3), (1, 2)) for hw_id in range(1, 40)]
    tables = [build_tables.info_table(facts.GC, (1, 2), {}), build_tables.harvest_table([(12, 1)])]
    tables += [
        build_tables.info_table(index, (1, 0), {}) for index in (facts.MALL_INFO, facts.VCN_INFO, facts.NPS_INFO)
    ]
    blobs = [build_tables.discovery_binary([ips[:20], ips[:3]], tables, version=4, wide=wide) for wide in (False, True)]
    taken = 0
    for number in range(2000):
        blob = blobs[number % 2]
        made = mutate(blob, chance, len(blob))
        if chance.random() < 0.9:
            resum(made)
        taken += outcome(discovery.parse, bytes(made))
    assert 200 < taken < 1950


def test_mutations_of_a_rom_are_read_or_refused():
    """2,000 mutations, with every function that reads the result."""
    chance, taken = random.Random(6), 0
    firmware = build_tables.DataTable((3, 4), {"bios_scratch_reg_startaddr": 0x4C})
    rest = {"vram_info": (3, 0), "smu_info": (4, 0), "gfx_info": (3, 0), "umc_info": (4, 0)}
    tables = {name: build_tables.DataTable(revision, {}) for name, revision in rest.items()}
    blob = build_tables.expansion_rom(
        {"firmwareinfo": firmware, **tables}, {"asic_init": b"\x5b"}, title="A", version="1"
    )

    def read(data):
        found = vbios.parse(data)
        for ask in (lambda: found.scratch_dword, lambda: found.reference_clock_hz, found.memory):
            try:
                ask()
            except FirmwareError:
                continue

    for _ in range(2000):
        taken += outcome(read, bytes(mutate(blob, chance, len(blob))))
    assert 200 < taken < 1990


def test_mutations_of_a_table_of_contents_are_read_or_refused():
    """1,000 mutations."""
    chance = random.Random(7)
    for core in ((11, 0, 0), (12, 0, 0)):
        blob = toc.build_table(tuple({"place.id": number, "load.size": 9} for number in range(1, 30)), core)
        for _ in range(500):
            outcome(toc.parse, bytes(mutate(blob, chance, len(blob))), core)
