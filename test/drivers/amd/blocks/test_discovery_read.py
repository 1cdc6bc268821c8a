"""The driver reads which blocks a card has: through the window, beyond it, damaged, unknown, or from a card that is
gone.
"""

import dataclasses

import pytest

from ringup.autogen.amd import discovery as facts
from ringup.drivers.amd.bus.discovery import discover, served_by
from ringup.drivers.amd.bus.registers import Registers
from ringup.errors import DeviceLost, DeviceTimeout, FirmwareError, NotSupported

FROM_END = 64 << 10  # amdgpu_discovery.h, DISCOVERY_TMR_OFFSET
GC = (0x1260, 0xA000, 0x1C000, 0x2402C00)  # recorded: what amdgpu.ko reads from a navi31
NBIF = (0x0, 0x14, 0xD20, 0x10400, 0x241B000, 0x4040000)
CHIPS = {  # compute units and MiB: AMD's specifications of the RX 7900 XTX, 7800 XT and 7600
    "navi31": ("gfx1100", (11, 0, 0), 96, 24576),
    "navi32": ("gfx1101", (11, 0, 3), 60, 16384),
    "navi33": ("gfx1102", (11, 0, 2), 32, 8192),
}


@pytest.fixture
def read(virtual_card):
    """`read(chip, …)` gives the card, its registers and a function that reads the discovery table."""

    def make(chip="navi31", **options):
        radeon = virtual_card(chip, **{"vram_bytes": 64 << 20} | options)
        registers = Registers(radeon)
        return radeon, registers, lambda: discover(radeon, registers)

    return make


def table(radeon):
    """The discovery binary as it is stored in VRAM."""
    start = radeon.vram.size_bytes - FROM_END
    return radeon.vram.view[start : start + 0x2800]


def seal(blob):
    """Recompute the checksums of the block list and of the whole binary after a change."""
    head = facts.binary_header.view(blob)
    row = head.table_list[facts.IP_DISCOVERY]
    size = facts.ip_discovery_header.view(blob, row.offset).size
    row.checksum = sum(blob[row.offset : row.offset + size]) & 0xFFFF
    head.binary_checksum = sum(blob[10 : head.binary_size]) & 0xFFFF


@pytest.mark.parametrize("chip", CHIPS)
def test_a_card_says_which_chip_it_is(read, chip):
    target, version, units, _ = CHIPS[chip]
    ips, _ = read(chip)[2]()
    assert (ips.chip.name, ips.chip.target, ips.version("gc")) == (chip, target, version)
    shape = ips.shape
    assert shape.shader_engines * shape.arrays_per_engine * shape.cus_per_array == units


def test_blocks_lie_where_the_table_says(read):
    ips, _ = read()[2]()
    assert ips.block("gc").bases == GC
    assert ips.block("nbio").bases == NBIF
    assert ips.block("sdma1").bases == GC
    assert ips.block("gc") is ips.block("gc")


@pytest.mark.parametrize(
    ("listed", "versions"),
    [
        ([(42, 0), (43, 0)], 2),  # SDMA0_HWID and SDMA1_HWID of soc15_hw_ip.h
        ([(42, 0), (42, 1)], 2),
        ([(42, 0)], 1),
        ([(42, n) for n in range(7)], 2),
    ],
)
def test_copy_engines_are_counted_from_the_table(read, listed, versions):
    """amdgpu_discovery.c, amdgpu_discovery_reg_base_init, counts entries of any of the engines' ids."""
    ips, _ = read()[2]()
    sdma, rest = ips.table.find(facts.SDMA0_HWID)[0], [ip for ip in ips.table.ips if ip.hw_id not in (42, 43)]
    ips.table = dataclasses.replace(
        ips.table, ips=(*rest, *(dataclasses.replace(sdma, hw_id=hw_id, instance=n) for hw_id, n in listed))
    )
    assert ips.sdma_versions == ((6, 0, 0),) * versions


def test_a_table_without_a_copy_engine_is_refused(read):
    ips, _ = read()[2]()
    rest = tuple(ip for ip in ips.table.ips if ip.hw_id not in (42, 43))
    ips.table = dataclasses.replace(ips.table, ips=rest)
    with pytest.raises(NotSupported, match="the card lists no SDMA0 0"):
        assert ips.sdma_versions


def test_video_cores_are_reported_as_fused_off(read):
    ips, _ = read()[2]()
    assert len(ips.table.find(facts.VCN_HWID)) == 2
    assert ips.table.harvested(facts.VCN_HWID, 0)
    assert not ips.table.harvested(facts.SDMA1_HWID, 0)


@pytest.mark.parametrize("chip", CHIPS)
def test_a_table_beyond_the_window_says_the_same(read, chip):
    options = {"vram_bytes": 512 << 20, "bar0_bytes": 256 << 20}
    radeon, registers, go = read(chip, **options)
    beyond, window = go()
    assert window.visible_bytes == 256 << 20
    near, _ = read(chip, **options | {"bar0_bytes": 512 << 20})[2]()
    assert beyond.table.ips == near.table.ips
    assert beyond.shape == near.shape
    assert beyond.table.harvest == near.table.harvest
    # amdgpu reads all 10 KiB: 2560 accesses of each kind.
    assert registers.reads + registers.writes < 500
    assert not radeon.violations


def test_the_full_size_of_a_large_memory_is_reported(read):
    _, window = read("navi33", vram_bytes=None)[2]()
    # 8 GiB minus what the card reserves
    assert window.size_bytes == 0x1_FF00_0000


def test_a_table_that_was_damaged_is_refused(read):
    radeon, _, go = read()
    table(radeon)[300] ^= 0x40
    with pytest.raises(
        FirmwareError, match=r"virtual:navi31 discovery table: the bytes of the binary from byte 10 add up to"
    ):
        go()


def test_a_damaged_table_beyond_the_window_is_refused_by_its_own_sum(read):
    radeon, _, go = read(vram_bytes=512 << 20, bar0_bytes=256 << 20)
    table(radeon)[300] ^= 0x40
    with pytest.raises(FirmwareError, match="the bytes of the list of blocks from byte"):
        go()


def test_memory_without_a_table_is_refused(read):
    for options in ({}, {"vram_bytes": 512 << 20, "bar0_bytes": 256 << 20}):
        radeon, _, go = read(**options)
        table(radeon)[:] = bytes(len(table(radeon)))
        with pytest.raises(FirmwareError, match="byte 0 holds 0x00000000, a discovery binary begins with 0x28211407"):
            go()


def test_a_chip_without_a_driver_is_named(read):
    radeon, _, go = read()
    blob = bytearray(table(radeon))
    # struct ip_v3: hw_id, instance, bases, 11.0.0
    at = bytes(blob).index(facts.GC_HWID.to_bytes(2, "little") + b"\0\4\x0b\0\0")
    blob[at + 4 : at + 7] = bytes((10, 3, 7))
    seal(blob)
    table(radeon)[:] = blob
    ips, _ = go()
    with pytest.raises(
        NotSupported, match=r"the graphics core is version 10\.3\.7; there are drivers for navi31 \(11\.0\.0\)"
    ):
        _ = ips.chip
    with pytest.raises(NotSupported, match=r"GC is version 10\.3\.7; registers are known of 9\.4\.3"):
        ips.block("gc")


def test_versions_that_amdgpu_drives_alike_share_their_facts():
    assert served_by("thm", (13, 0, 10)) == (13, 0, 2)
    assert served_by("nbio", (4, 3, 1)) == (4, 3, 1)
    with pytest.raises(NotSupported, match=r"MMHUB is version 9\.9\.9; registers are known of 1\.8\.0"):
        served_by("mmhub", (9, 9, 9))


def test_a_missing_block_is_named(read):
    ips, _ = read()[2]()
    with pytest.raises(NotSupported, match="the card lists no SDMA1 1"):
        ips.block("sdma1", 1)
    with pytest.raises(ValueError, match="there is no block 'uvd'; there are gc, mmhub"):
        ips.block("uvd")


def test_a_card_whose_own_firmware_never_comes_up_is_waited_for_two_seconds(read):
    radeon, _, go = read()
    radeon.psp.cells["MP0_SMN_C2PMSG_33"] = 0
    # amdgpu_discovery_read_binary_from_mem continues as well.
    go()
    table(radeon)[:] = bytes(len(table(radeon)))
    before = radeon.clock.now_us
    with pytest.raises(
        DeviceTimeout,
        match=r"waiting for the card's own firmware \(IFWI\) after power on: MP0_SMN_C2PMSG_33 read 0x00000000 .* for 2000 ms",
    ):
        go()
    assert 2_000_000 <= radeon.clock.now_us - before < 2_100_000


def test_registers_that_read_all_ones_behind_a_reset_are_waited_for(read):
    radeon, _, go = read()
    since = radeon.clock.now_us
    cells = radeon.psp.cells
    cells.on_read("MP0_SMN_C2PMSG_33", lambda: 0x8000_0000 if radeon.clock.now_us - since > 500_000 else 0xFFFF_FFFF)
    go()
    assert 500_000 < radeon.clock.now_us - since < 600_000


def test_a_processor_with_graphics_is_refused(read):
    radeon, _, go = read()
    radeon.nbio.cells["RCC_DEV0_EPF0_RCC_CONFIG_MEMSIZE"] = 0
    with pytest.raises(NotSupported, match="virtual:navi31 has no memory of its own"):
        go()


def test_a_card_that_is_gone_is_reported(read):
    radeon, _, go = read()
    radeon.unplug()
    with pytest.raises(DeviceLost, match="virtual:navi31 is gone from the bus"):
        go()
    radeon.violations.clear()
