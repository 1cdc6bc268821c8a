"""Debian's amdgpu images and the card's own ones on the whole card: cut as amdgpu_psp.c and amdgpu_ucode.c cut them,
and damaged.
"""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest

from ringup.autogen.amd import psp_published
from ringup.silicon import card
from ringup.silicon.amd.board import chips
from ringup.silicon.shader.common.state import Dispatch, Region

# FB_LOCATION_BASE << 24: the board's firmware puts VRAM there for MMHUB.
VRAM_AT = 0x80_0000_0000
BUFFER, RING, COMMAND, FENCE, IMAGE, TMR = 0x10_0000, 0x30_0000, 0x31_0000, 0x32_0000, 0x40_0000, 0x100_0000
# PSP_FW_TYPE_* in the file, and its boot-loader command. psp_hw_start loads these parts in this order, if the file has
# them.
BOOT = (
    (3, 0x80000), (5, 0x1000_0000), (2, 0x10000), (7, 0xB0000), (8, 0xD0000), (9, 0xC0000), (10, 0xE0000), (11, 0xF0000), (1, 0x20000),
)  # fmt: skip
C2PMSG = 0x16040 * 4


def word(data, at):
    return struct.unpack_from("<I", data, at)[0]


# The prefixes for gc, sdma, psp and smu by amdgpu_ucode_ip_version_decode. A suffix completes the file's name.
VERSIONS = {
    "navi31": {"gc": "gc_11_0_0", "sdma": "sdma_6_0_0", "psp": "psp_13_0_0", "smu": "smu_13_0_0"},
    "navi32": {"gc": "gc_11_0_3", "sdma": "sdma_6_0_3", "psp": "psp_13_0_10", "smu": "smu_13_0_10"},
    "navi33": {"gc": "gc_11_0_2", "sdma": "sdma_6_0_2", "psp": "psp_13_0_7", "smu": "smu_13_0_7"},
    "navi44": {"gc": "gc_12_0_0", "sdma": "sdma_7_0_0", "psp": "psp_14_0_2", "smu": "smu_14_0_2"},
    "navi48": {"gc": "gc_12_0_1", "sdma": "sdma_7_0_1", "psp": "psp_14_0_3", "smu": "smu_14_0_3"},
}
# The scheduler's files: amdgpu_mes_init_microcode. GC 12 has one for both pipes.
SCHEDULERS = {11: ("mes_2", "mes1"), 12: ("uni_mes", "uni_mes")}
# The pipes of PFP, ME and MEC whose stacks a driver loads: gfx_v11_0.c and gfx_v12_0.c, init_microcode.
PIPES = {11: (2, 2, 4), 12: (1, 1, 2)}
# RLC_RLCS_BOOTLOAD_STATUS in gc_11_0_0_offset.h and gc_12_0_0_offset.h.
BOOT_STATUS = {11: 0xEE82 * 4, 12: 0xEE7C * 4}
SUFFIXES = {
    "gc": ("pfp", "me", "mec", "rlc", "imu"),
    "sdma": ("",),
    "psp": ("sos", "ta"),
    "smu": ("",),
}


@pytest.fixture(params=["distribution", "card"])
def firmware(request, radeon):
    """`firmware("gc", "mec")` returns a file for the card's chip, from the distribution's package (a missing one fails
    the test) or from the card itself.
    """
    if request.param == "card":
        read = radeon.firmware
    else:
        folder = request.getfixturevalue("sources").root("firmware-amd") / "lib/firmware/amdgpu"
        read = lambda name: (folder / name).read_bytes()  # noqa: E731
    return lambda block, suffix="": read("_".join(filter(None, [VERSIONS[radeon.chip.name][block], suffix])) + ".bin")


def generation(radeon):
    return radeon.chip.gc.core.version[0]


def parts(data):
    """Return the parts of a psp_firmware_header_v2_0 by type."""
    start = word(data, 24)
    rows = [struct.unpack_from("<4I", data, 36 + 16 * n) for n in range(word(data, 32))]
    return {kind: data[start + at : start + at + size] for kind, _, at, size in rows}


def images(firmware, major):
    """Return (type, bytes) in a driver's order. The offsets of header members are those of amdgpu_ucode.h, as its
    structs are laid out.
    """
    rlc, imu = firmware("gc", "rlc"), firmware("gc", "imu")
    sdma = firmware("sdma")
    if major == 11:
        yield 71, sdma[word(sdma, 24) :][: word(sdma, 36)]
        yield 72, sdma[word(sdma, 48) :][: word(sdma, 52)]
    else:
        yield 71, sdma[word(sdma, 36) :][: word(sdma, 40)]
    rows = (("pfp", 87, (90, 91)), ("me", 88, (92, 93)), ("mec", 89, (94, 95, 96, 97)))
    for (name, code, stacks), pipes in zip(rows, PIPES[major], strict=True):
        data = firmware("gc", name)
        yield code, data[word(data, 24) :][: word(data, 36)]
        for stack in stacks[:pipes]:
            yield stack, data[word(data, 48) :][: word(data, 44)]
    for name, code, stack in zip(SCHEDULERS[major], (33, 0x51), (34, 0x52), strict=True):
        data = firmware("gc", name)
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
        # Header 2.2 ends before the last two.
        if size < word(rlc, 4) and word(rlc, size):
            yield kind, rlc[word(rlc, at) :][: word(rlc, size)]
    yield 8, rlc[word(rlc, 24) :][: word(rlc, 20)]


class Host:
    """A driver's accesses to the PSP, written by hand."""

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

    def start(self, sos, read=parts):
        found = read(sos)
        for kind, command in BOOT:
            assert kind not in found or self.boot(command, found[kind]) == 0x8000_0000
        # The secure OS comes alive, and takes rings.
        self.radeon.clock.sleep_us(110_000)
        # The headers of MP 14.0 do not name the register of the version.
        if generation(self.radeon) < 12:
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
    """Provide the region of the secure OS, unless the boot has made one: amdgpu_psp.c, psp_hw_start."""
    if host.radeon.chip.boot_tmr:
        return 0
    return host.command(
        5,
        VRAM_AT + TMR & 0xFFFF_FFFF,
        VRAM_AT + TMR >> 32,
        0x130_0000,
        2,
        VRAM_AT + TMR & 0xFFFF_FFFF,
        VRAM_AT + TMR >> 32,
    )


def test_every_image_loads_and_the_graphics_core_boots(radeon, firmware):
    host = Host(radeon)
    found = host.start(firmware("psp", "sos"))
    radeon.vram.write(IMAGE, found[4])
    assert host.command(0x20, VRAM_AT + IMAGE & 0xFFFF_FFFF, VRAM_AT + IMAGE >> 32, len(found[4])) == 0  # LOAD_TOC
    smu = firmware("smu")
    assert host.load(18, smu[word(smu, 24) :][: word(smu, 20)]) == 0
    assert setup(host) == 0
    for kind, data in images(firmware, generation(radeon)):
        assert host.load(kind, data) == 0, kind
    assert host.command(0x21) == 0  # AUTOLOAD_RLC
    radeon.clock.sleep_us(1_000)
    # RLC_RLCS_BOOTLOAD_STATUS: boot complete.
    assert radeon.bars[5].read32(BOOT_STATUS[generation(radeon)]) >> 31
    assert radeon.violations == []


def first_list(data):
    """Return the parts of a psp_firmware_header_v2_1 by type, up to the second list."""
    start, count = word(data, 24), word(data, 36)
    rows = [struct.unpack_from("<4I", data, 40 + 16 * n) for n in range(count)]
    return {kind: data[start + at : start + at + size] for kind, _, at, size in rows}


def instinct_images(read):
    """Return (type, bytes) as psp_v13_0.c's driver sends them to 13.0.6, which boots no core by itself: gfx_v9_4_3.c,
    sdma_v4_4_2.c, smu_v13_0_6_ppt.c.
    """
    smu, sdma, mec, rlc = (read(f"{name}.bin") for name in ("smu_13_0_6", "sdma_4_4_2", "gc_9_4_3_mec", "gc_9_4_3_rlc"))
    # The first of the tables: id, offset, size.
    _, at, size = struct.unpack_from("<3I", smu, word(smu, 40))
    yield 0x81, smu[at : at + size]
    for kind in (9, 10, 52, 53):
        yield kind, sdma[word(sdma, 24) :][: word(sdma, 20)]
    table = 4 * word(mec, 40)
    code = mec[word(mec, 24) :][: word(mec, 20)]
    yield 4, code[:-table]
    yield 5, code[4 * word(mec, 36) :][:table]
    for kind, size, at in ((22, 116, 120), (20, 132, 136), (21, 148, 152)):
        yield kind, rlc[word(rlc, at) :][: word(rlc, size)]
    yield 8, rlc[word(rlc, 24) :][: word(rlc, 20)]


@pytest.mark.parametrize("source", ["distribution", "card"])
def test_the_cores_of_an_instinct_run_once_their_images_are_loaded(request, source):
    radeon = card("mi300x", vram_bytes=64 << 20)
    read = radeon.firmware
    if source == "distribution":
        folder = request.getfixturevalue("sources").root("firmware-amd") / "lib/firmware/amdgpu"
        read = lambda name: (folder / name).read_bytes()  # noqa: E731
    host = Host(radeon)
    host.start(read("psp_13_0_6_sos.bin"), first_list)
    for kind, data in instinct_images(read):
        # P2S_TABLE before, the rest after SETUP_TMR without a region, which the boot has made.
        if kind == 9:
            assert host.command(5, 0, 0, 0, 2, 0, 0) == 0
        assert host.load(kind, data) == 0, kind
    assert [core.rlc.missing("mec", 0) for core in radeon.cores] == [""] * 8
    assert all(engine.running for engine in radeon.sdma)
    assert radeon.violations == []
    # LOAD_TA of the XGMI application, type 2, with 4 KiB for its commands.
    application = parts(read("psp_13_0_6_ta.bin"))[2]
    shared = VRAM_AT + TMR
    radeon.vram.write(IMAGE, application)
    place = (VRAM_AT + IMAGE & 0xFFFF_FFFF, VRAM_AT + IMAGE >> 32, len(application))
    assert host.command(1, *place, shared & 0xFFFF_FFFF, shared >> 32, 0x1000) == 0
    # psp_gfx_resp.session_id.
    session = word(radeon.vram.read(COMMAND + 864 + 4, 4), 0)
    found = []
    # TA_COMMAND_XGMI__GET_NODE_ID, GET_HIVE_ID: ta_xgmi_if.h.
    for command in (1, 2):
        radeon.vram.write(TMR, struct.pack("<I", command).ljust(0xC20, b"\0"))
        assert host.command(3, session, command) == 0
        resp, status = struct.unpack("<2I", radeon.vram.read(TMR + 4, 8))
        assert (resp, status) == (command | 1 << 31, 0)
        found.append(struct.unpack("<Q", radeon.vram.read(TMR + 1048, 8))[0])
    assert found == [radeon.chip.hive.node_id, radeon.chip.hive.hive_id]
    # GFX_CMD_ID_SRIOV_SPATIAL_PART: so many partitions of the cores; three do not divide them.
    assert [bool(host.command(0x27, parts)) for parts in (8, 3, 1)] == [False, True, False]


def test_a_real_image_cut_short_or_sent_as_another_is_refused(radeon, firmware):
    host = Host(radeon)
    host.start(firmware("psp", "sos"))
    setup(host)
    mec = firmware("gc", "mec")
    code = mec[word(mec, 24) :][: word(mec, 36)]
    assert host.load(89, code[:-1]) != 0
    assert host.load(89, code[:0x80]) != 0
    # Kind 87 is the PFP's code.
    assert host.load(87, code) != 0
    assert host.load(89, code) == 0


def test_a_real_secure_os_of_two_chips_comes_with_drivers_or_without(sources):
    folder = sources.root("firmware-amd") / "lib/firmware/amdgpu"
    # SOC, INTF, DBG and RAS drivers lie between the system driver and the secure OS.
    extra = {7, 8, 9, 10}
    found = [set(parts((folder / f"psp_{name}_sos.bin").read_bytes())) & extra for name in ("13_0_0", "13_0_10")]
    assert found == [set(), extra]


def test_a_damaged_boot_image_is_refused_and_a_whole_one_goes_on(radeon, firmware):
    host, found = Host(radeon), parts(firmware("psp", "sos"))
    assert host.boot(0x80000, found[3]) == 0x8000_0000
    damaged = bytearray(found[2])
    # The size of the body.
    damaged[0x15] ^= 0x80
    assert host.boot(0x10000, bytes(damaged)) & 0xFF
    # The system driver is missing.
    assert host.boot(0x20000, found[1]) & 0xFF
    # The secure OS in place of the system driver.
    assert host.boot(0x10000, found[1]) & 0xFF
    assert host.boot(0x10000, found[2]) == 0x8000_0000
    radeon.violations.clear()


@pytest.mark.parametrize("place", [0x120, 0x4F0, -1])
def test_a_flipped_bit_or_a_lost_end_of_a_cards_own_image_is_found(radeon, place):
    names = VERSIONS[radeon.chip.name]
    host, found = Host(radeon), parts(radeon.firmware(f"{names['psp']}_sos.bin"))
    host.boot(0x80000, found[3])
    for bad in (bytearray(found[2]), bytearray(found[2])[:-0x80]):
        bad[place] ^= 1
        assert host.boot(0x10000, bytes(bad)) & 0xFF
    host.start(radeon.firmware(f"{names['psp']}_sos.bin"))
    setup(host)
    mec = radeon.firmware(f"{names['gc']}_mec.bin")
    code = bytearray(mec[word(mec, 24) :][: word(mec, 36)])
    assert host.load(89, bytes(code)) == 0
    code[place] ^= 1
    assert host.load(89, bytes(code)) == 0xFFFF000F  # TEE_ERROR_SECURITY


@pytest.fixture
def published(radeon, sources):
    """`published("gc", "mec", chip)` returns a file of the distribution's package, for the card's chip unless one is
    named.
    """
    folder = sources.root("firmware-amd") / "lib/firmware/amdgpu"
    return lambda block, suffix="", chip=radeon.chip.name: (
        folder / ("_".join(filter(None, [VERSIONS[chip][block], suffix])) + ".bin")
    ).read_bytes()


@pytest.mark.parametrize("place", [0x05, 0x3A, 0x62, 0x150, -0x80])
def test_a_flipped_bit_of_a_published_boot_image_is_found(radeon, published, place):
    """Flipped bits of the nonce, key, version, body and signature. The keys in the chip's ROM sign some of these parts,
    and not the rest.
    """
    host, found = Host(radeon), parts(published("psp", "sos"))
    for kind, command in BOOT:
        if kind in found:
            bad = bytearray(found[kind])
            bad[place] ^= 4
            assert host.boot(command, bytes(bad)) & 0xFF, kind
            assert host.boot(command, found[kind]) == 0x8000_0000, kind
    radeon.violations.clear()


def test_images_of_another_chip_are_refused(radeon, published):
    host = Host(radeon)
    host.start(published("psp", "sos"))
    setup(host)
    for chip in VERSIONS:
        mec, sos = published("gc", "mec", chip), parts(published("psp", "sos", chip))
        ours = chip == radeon.chip.name
        related = chips.find(chip).gc.core.version[0] == generation(radeon)
        # TEE_ERROR_BAD_PARAMETERS; the other generation has other keys: TEE_ERROR_ACCESS_DENIED.
        status = 0 if ours else 0xFFFF_0006 if related else 0xFFFF_0001
        assert host.load(89, mec[word(mec, 24) :][: word(mec, 36)]) == status
        if not ours:
            reason = f"published for {chip}, not for {radeon.chip.name}" if related else "which this card does not know"
            assert reason in radeon.violations[-1].text
            # The chips of GC 12 share a key database.
            if sos[3] != parts(published("psp", "sos"))[3]:
                fresh = Host(type(radeon)(radeon.chip.name, vram_bytes=64 << 20))
                assert fresh.boot(0x80000, sos[3]) & 0xFF


def test_another_release_is_taken_and_remarked(radeon, published, monkeypatch):
    monkeypatch.setattr(psp_published, "PUBLISHED", {})
    monkeypatch.setattr(psp_published, "SIGNED", set())
    host = Host(radeon)
    host.start(published("psp", "sos"))
    setup(host)
    mec = published("gc", "mec")
    assert host.load(89, mec[word(mec, 24) :][: word(mec, 36)]) == 0
    remarks = [event.text for event in radeon.log.find("firmware", "psp")]
    assert remarks[0].startswith("KDB")
    assert remarks[0].endswith("not among the known published images: signature not checked")
    assert remarks[-1].startswith("RS64_MEC")
    assert remarks[-1].endswith("not among the known published images: signature is right")


def test_a_published_body_that_is_signed_anew_is_taken_and_remarked(radeon, published):
    """AMD did so with the patch levels of GC 12. Here it is the key database. A changed header or half a signature is
    no signing.
    """
    host, found = Host(radeon), parts(published("psp", "sos"))
    new = bytearray(found[3])
    new[0x60] += 1
    assert host.boot(0x80000, bytes(new)) & 0xFF
    # RSA of 2048 or 4096 bits, by the type word at 0x34.
    half = {0: 128, 2: 256}[new[0x34]]
    signature = len(new) - 2 * half
    new[signature : signature + half] = bytes(half)
    assert host.boot(0x80000, bytes(new)) & 0xFF
    radeon.violations.clear()
    new[signature:] = bytes(2 * half)
    assert host.boot(0x80000, bytes(new)) == 0x8000_0000
    remark = radeon.log.find("firmware", "psp")[-1].text
    assert remark.endswith("not among the known published images: signature not checked")


def test_keys_of_virtual_cards_and_of_the_maker_do_not_mix(radeon, published):
    name = VERSIONS[radeon.chip.name]["gc"] + "_mec.bin"
    for first, second in (
        (published("psp", "sos"), radeon.firmware(name)),
        (radeon.firmware(VERSIONS[radeon.chip.name]["psp"] + "_sos.bin"), published("gc", "mec")),
    ):
        host = Host(type(radeon)(radeon.chip.name, vram_bytes=64 << 20))
        host.start(first)
        setup(host)
        assert host.load(89, second[word(second, 24) :][: word(second, 36)]) == 0xFFFF_0001  # TEE_ERROR_ACCESS_DENIED


def test_an_upload_that_waits_for_a_flush_has_not_arrived(navi31):
    radeon = navi31
    host, found = Host(radeon), parts(radeon.firmware("psp_13_0_0_sos.bin"))
    radeon.hdp.drain_us = None
    radeon.bars[0].write_block(BUFFER, found[3])
    host.set(36, VRAM_AT + BUFFER >> 20)
    host.set(35, 0x80000)
    radeon.clock.sleep_us(10_000)
    assert host.get(35) & 0xFF
    assert f"{len(found[3]):#x} bytes written by the host wait for an HDP flush" in radeon.violations[-1].text
    radeon.hdp.flush()
    host.set(35, 0x80000)
    radeon.clock.sleep_us(10_000)
    assert host.get(35) == 0x8000_0000


def test_a_cards_own_files_keep_the_containers_rules(radeon):
    """Sizes and offsets of common_firmware_header, as amdgpu_ucode_validate and the code that cuts images demand. The
    checksum is made as in Debian's files.
    """
    names = [
        "_".join(filter(None, [VERSIONS[radeon.chip.name][block], end]))
        for block in SUFFIXES
        for end in SUFFIXES[block]
    ]
    names += [f"{VERSIONS[radeon.chip.name]['gc']}_{end}" for end in {*SCHEDULERS[generation(radeon)]}]
    for name in names:
        data = radeon.firmware(f"{name}.bin")
        size, header, ip_major, ip_minor = word(data, 0), word(data, 4), *struct.unpack_from("<HH", data, 12)
        assert size == len(data), name
        assert word(data, 24) == 0x100 >= header, name
        assert word(data, 24) + word(data, 20) <= size, name
        assert (ip_major, ip_minor) == tuple(int(part) for part in name.split("_")[1:3]), name
        assert word(data, 28) == zlib.crc32(data[32:]), name
        assert data == radeon.firmware(f"amdgpu/{name}.bin")
    assert radeon.firmware("gc_10_3_0_mec.bin") is None


def test_a_cards_own_headers_are_those_of_the_distributions_files(radeon, sources):
    folder = sources.root("firmware-amd") / "lib/firmware/amdgpu"
    for block, ends in (*SUFFIXES.items(), ("gc", SCHEDULERS[generation(radeon)])):
        for end in ends:
            name = "_".join(filter(None, [VERSIONS[radeon.chip.name][block], end])) + ".bin"
            made, real = radeon.firmware(name), (folder / name).read_bytes()
            # Header size, its version, and the IP's version.
            assert made[4:16] == real[4:16], name
            assert made[24:28] == real[24:28], name
            if end == "sos":
                assert list(parts(made)) == list(parts(real))


# v_mov_b32 v1, s8; s_mov_b32 s8, 1; v_mov_b32 v2, s8; s_endpgm  # llvm-mc, gfx1201
UNWAITED = struct.pack("<4I", 0x7E02_0208, 0xBE88_0081, 0x7E04_0208, 0xBFB0_0000)


class Code:
    """Memory that holds one program."""

    epoch = 0

    def __init__(self, gpu_va, code):
        self.raw = np.frombuffer(code, np.uint8)
        self.found = Region(gpu_va, self.raw.size, self.raw.ctypes.data, writable=False, executable=True)

    def region(self, gpu_va, write, execute=False):
        return self.found


@pytest.mark.parametrize("for_others", [False, True])
def test_a_card_for_other_drivers_starts_its_secure_os_later_and_runs_code_without_waits(for_others):
    radeon = card("navi48", vram_bytes=64 << 20, for_other_drivers=for_others)
    host, found = Host(radeon), parts(radeon.firmware("psp_14_0_3_sos.bin"))
    for kind, command in BOOT:
        assert kind not in found or host.boot(command, found[kind]) == 0x8000_0000
    radeon.clock.sleep_us(60_000)
    assert bool(host.get(81)) is not for_others
    dispatch = Dispatch(0x1000, 32, (32, 1, 1), (1, 1, 1), 8, user_sgprs=(0,) * 9)
    run = radeon.gc.dispatcher.engine.start(dispatch, Code(0x1000, UNWAITED), None)
    assert run.step(100) is for_others
    assert [one.kind for one in run.violations] == ["hazard"] * (not for_others)
