"""FWSEC, the booter and GSP-RM's start, driven as NVIDIA's open kernel modules do, with made-up images."""

from __future__ import annotations

import pytest

from ringup.autogen.nv.gsp_boot import GspFwSRMeta
from ringup.autogen.structs import memory
from ringup.silicon.nv.chips import CHIPS
from ringup.silicon.nv.firmware import images

VRAM, GSP, PAGE2 = 512 << 20, 0x110000, 0x1000
# below the VGA workspace
FRTS_AT = VRAM - (2 << 20)
WPR2_LO, WPR2_HI = 0x1FA824, 0x1FA828


def said(board):
    return [event.text for event in board.violations]


def test_fwsec_protects_the_region_that_the_driver_chose(board, starter):
    assert (starter.rd(WPR2_LO), starter.rd(WPR2_HI)) == (0, 0)
    assert starter.fwsec() == 0
    # units of 4 KiB in bits 31:4; kgspExecuteFwsecFrts_TU102 compares the low end
    assert starter.rd(WPR2_LO) >> 4 == FRTS_AT >> 12
    assert starter.rd(WPR2_HI) >> 4 > FRTS_AT >> 12
    assert any(board.vram.read(FRTS_AT, 4096))
    assert said(board) == []


@pytest.mark.parametrize(
    ("region", "why"),
    [
        ((2, 20, FRTS_AT >> 12, 0x100, 2), "has arguments"),
        ((1, 20, FRTS_AT >> 12, 0x100, 1), "has arguments"),
        ((1, 20, FRTS_AT >> 12, 0x80, 2), "is to protect 0x80000 bytes"),
        ((1, 20, (FRTS_AT >> 12) + 1, 0x100, 2), "is to protect 0x100000 bytes at 0x1fe01000"),
        ((1, 20, VRAM >> 12, 0x100, 2), "is to protect 0x100000 bytes at 0x20000000"),
    ],
)
def test_fwsec_reports_a_bad_region(board, starter, region, why):
    assert starter.fwsec(region=region) != 0
    assert starter.rd(WPR2_HI) == 0
    assert why in said(board)[0]


def test_fwsec_knows_two_commands_and_protects_once(board, starter):
    assert starter.fwsec(0x19) == 0
    assert starter.fwsec(0x15) == 0
    assert starter.fwsec(0x15) != 0
    starter.fwsec(0x16)
    assert said(board) == ["FWSEC: FRTS runs while a protected region is up", "FWSEC: the mapper names command 0x16"]


def test_gsp_rm_starts_and_its_memory_is_out_of_reach(board, starter):
    assert starter.start() == 0
    assert starter.active
    first = starter.rd(WPR2_LO) >> 4 << 12
    assert first < FRTS_AT
    assert board.protected.end == VRAM - (1 << 20)
    # the images are where the metadata says, and the CPU does not see them
    assert board.vram.read(FRTS_AT - len(starter.images.bootloader), 64) == starter.images.bootloader[:64]
    board.bars[0].write32(0x1700, first >> 16)
    assert board.bars[0].read32(0x700000) == 0xFFFFFFFF
    board.bars[0].write32(0x700000, 0)
    board.settle()
    assert board.vram.read(first, 8) == (0xDC3AAE21371A60B3).to_bytes(8, "little")
    assert said(board) == [
        f"the CPU {verb} VRAM {first:#x}, inside the protected region" for verb in ("reads", "writes")
    ]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"magic": 1}, "there is no metadata"),
        ({"revision": 2}, "there is no metadata"),
        ({"verified": 1}, "there is no metadata"),
        ({"fbSize": VRAM + (1 << 20)}, "fbSize is 0x20100000, the board has 0x20000000"),
        ({"gspFwWprEnd": VRAM}, "vgaWorkspaceOffset is 0x1ff00000, with 0x20000000 before it"),
        ({"gspFwOffset": 0}, "gspFwOffset is 0x0"),
        ({"frtsOffset": FRTS_AT - (1 << 20)}, "frtsOffset is 0x1fd00000"),
        ({"sizeOfSignature": 16}, "the signature has 16 bytes"),
        ({"sizeOfRadix3Elf": 4096}, "the gsp-rm is none that is known: 4096 bytes"),
        ({"sizeOfBootloader": 0x100}, "the bootloader is none that is known"),
        ({"bootloaderManifestOffset": 0x2000}, "the bootloader's parts lie behind its end"),
        ({"sysmemAddrOfRadix3Elf": 0x1_0000_0800}, "a table of GSP-RM's pages is at bus address 0x100000800"),
    ],
)
def test_the_booter_refuses_metadata(make_starter, changes, why):
    starter = make_starter("ga102")
    assert starter.start(**changes) != 0
    assert not starter.active
    assert why in said(starter.card)[0]


def test_the_booter_refuses_a_signature_for_another_chip(make_starter):
    starter = make_starter("ga102")
    place = starter.put(images.build(CHIPS["ad102"]).signature)
    assert starter.start(sysmemAddrOfSignature=place) != 0
    assert said(starter.card) == ["the booter: the signature is for ad102, not for ga102"]


def test_the_booter_needs_frts(board, starter):
    assert starter.load() != 0
    assert said(board) == [f"the booter: FWSEC has not protected {FRTS_AT:#x}"]


def test_on_ga100_the_booter_makes_the_protected_region_without_frts(make_starter):
    starter = make_starter("ga100")
    for _ in range(2):
        starter._used = 0
        assert starter.start() == 0
        assert starter.active
        # the last 128 KiB below the VGA workspace
        assert starter.rd(WPR2_HI) >> 4 << 12 == VRAM - (1 << 20) - (128 << 10)
        starter.reset(GSP)
        assert starter.fwsec(0x19) == 0
        assert starter.booter(starter.images.booter_unload, 0xFF_0000_00FF) == 0
        assert starter.rd(WPR2_HI) == 0
    assert said(starter.card) == []


def test_on_ga100_the_booter_refuses_frts(make_starter):
    starter = make_starter("ga100")
    starter.frts_bytes = 1 << 20
    assert starter.load() != 0
    assert not starter.active
    assert "ga100 has no FRTS data" in said(starter.card)[0]


def test_the_booter_selects_the_gsps_risc_v_core_itself(board, starter):
    """nova-core leaves the falcon's own core selected."""
    starter.fwsec()
    starter.reset(GSP)
    assert starter.booter(starter.images.booter_load, starter.put(starter.layout())) == 0
    assert starter.active
    assert said(board) == []


def test_gsp_rm_is_unloaded_and_starts_again(board, starter):
    assert starter.start() == 0
    assert starter.booter(starter.images.booter_unload, 0xFF_0000_00FF) != 0
    assert said(board) == ["the booter: it is to unload GSP-RM while the GSP runs it"]
    board.violations.clear()
    starter.reset(GSP)
    assert not starter.active
    assert starter.fwsec(0x19) == 0
    assert starter.booter(starter.images.booter_unload, 0xFF_0000_00FF) == 0
    assert starter.rd(WPR2_HI) == 0
    assert not any(board.vram.read(FRTS_AT, 4096))
    # a second time, in memory from the start of the buffer
    starter._used = 0
    assert starter.start() == 0
    assert starter.active
    assert said(board) == []


def test_a_reset_of_the_function_takes_everything_down(board, starter):
    assert starter.start() == 0
    board.reset("function")
    assert (starter.rd(WPR2_HI), starter.active) == (0, False)
    assert starter.rd(GSP + 0x100) & 0x10
    assert not any(board.vram.read(FRTS_AT, 4096))
    board.config.write(4, board.config.read(4, 2) | 4, 2)
    starter._used = 0
    assert starter.start() == 0
    assert starter.rd(GSP + PAGE2 + (0x2B4 if starter.turing else 0x528)) & 0x40


def sleep_metadata(starter, size):
    """Return the bus address of a sleep's metadata, with tables for so many bytes."""
    tables = starter.radix3(bytes(size))
    meta = GspFwSRMeta(
        magic=0x8A3BB9E6C6C39D93, revision=2, sysmemAddrOfSuspendResumeData=tables, sizeOfSuspendResumeData=size
    )
    return starter.put(bytes(memory(meta)))


def test_gsp_rm_is_saved_for_a_sleep_and_goes_on(make_starter):
    starter = make_starter("ga102", 96 << 20)
    board = starter.card
    assert starter.start(heap_bytes=1 << 20) == 0
    first, size = board.protected.first, board.protected.end - board.protected.first
    before = board.vram.read(first, size)
    place = sleep_metadata(starter, size)
    starter.reset(GSP)
    assert starter.booter(starter.images.booter_unload, place) == 0
    assert starter.rd(WPR2_HI) == 0
    board.vram.lose()
    assert starter.booter(starter.images.booter_load, place) == 0
    assert starter.active
    assert board.vram.read(first, size) == before
    assert said(board) == []


def test_a_sleep_of_another_size_is_refused(make_starter):
    starter = make_starter("ga102", 96 << 20)
    assert starter.start(heap_bytes=1 << 20) == 0
    starter.reset(GSP)
    assert starter.booter(starter.images.booter_unload, sleep_metadata(starter, 4096)) != 0
    assert starter.booter(starter.images.booter_load, sleep_metadata(starter, 4096)) != 0
    assert said(starter.card) == [
        "the booter: 0x1000 bytes are to be saved of the protected region",
        "the booter: what was saved holds no GSP-RM",
    ]
