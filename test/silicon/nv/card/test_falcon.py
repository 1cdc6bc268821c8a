"""A falcon from the published manuals: reset, memories, DMA, and what its boot ROM refuses."""

from __future__ import annotations

import struct

import pytest

from ringup.silicon.nv.chips import CHIPS
from ringup.silicon.nv.firmware import images

GSP, SEC2, PAGE2, FBIF = 0x110000, 0x840000, 0x1000, 0x600


def said(board):
    return [event.text for event in board.violations]


def test_a_reset_scrubs_both_memories(board, starter):
    starter.reset(SEC2)
    starter.poke_data(SEC2, b"\xaa" * 8)
    starter.wr(SEC2 + 0x1C0, 1 << 25)
    assert (starter.rd(SEC2 + 0x1C4), starter.rd(SEC2 + 0x1C4), starter.rd(SEC2 + 0x1C4)) == (0xAAAAAAAA, 0xAAAAAAAA, 0)
    starter.wr(SEC2 + 0x3C0, 1)
    starter.wr(SEC2 + 0x3C0, 0)
    # DMACTL bits 2:1 on Turing, HWCFG2 bit 12 later
    scrubbing = (0x10C, 0x6) if starter.turing else (0xF4, 1 << 12)
    assert starter.rd(SEC2 + scrubbing[0]) & scrubbing[1]
    starter.wait(SEC2 + scrubbing[0], scrubbing[1], 0)
    starter.wr(SEC2 + 0x1C0, 0)
    assert starter.rd(SEC2 + 0x1C4) == 0
    assert said(board) == []


def test_dma_moves_bytes_to_and_from_host_memory(board, starter):
    starter.reset(SEC2)
    data = bytes(range(256)) * 2
    starter.dma(SEC2, starter.put(data), data, 0x600)
    back = starter.buffer.bus_addr(starter._used)
    starter.wr(SEC2 + 0x110, back >> 8)
    starter.wr(SEC2 + 0x114, 0x100)
    starter.wr(SEC2 + 0x11C, 0)
    # to memory, 256 bytes
    starter.wr(SEC2 + 0x118, 0x620)
    assert bytes(starter.buffer.view[starter._used : starter._used + 256]) == data[256:]
    assert board.sec2.dmem.read(0, 512) == data


@pytest.mark.parametrize(
    ("offset", "value", "why"),
    [
        (FBIF + 0x24, 0, "physical DMA without FBIF_CTL.allow_phys_no_ctx"),
        (0x10C, 1, "physical DMA without FBIF_CTL.allow_phys_no_ctx, or with DMACTL.require_ctx set"),
        (FBIF, 0x1, "DMA context 0 is virtual, and no instance block is bound"),
        (0x114, 0x80, "DMA of 256 bytes at 0x80 of a memory of 0x10000"),
    ],
)
def test_dma_that_the_interface_does_not_allow_moves_nothing(starter, board, offset, value, why):
    starter.reset(SEC2)
    starter.wr(SEC2 + 0x110, starter.put(b"\xaa" * 256) >> 8)
    starter.wr(SEC2 + offset, value)
    starter.wr(SEC2 + 0x118, 0x600)
    assert not any(board.sec2.dmem.read(0, 1024))
    assert why in said(board)[0]


def test_signed_code_cannot_be_read_back(board, starter):
    starter.reset(SEC2)
    starter.poke(SEC2, b"\x11" * 256, 0, secure=False)
    starter.poke(SEC2, b"\x22" * 256, 256, secure=True, tag=1)
    starter.wr(SEC2 + 0x180, 1 << 25)
    assert starter.rd(SEC2 + 0x184) == 0x11111111
    starter.wr(SEC2 + 0x180, 256)
    assert starter.rd(SEC2 + 0x184) != 0x22222222
    assert said(board) == ["IMEMD reads byte 0x100 of signed code, which the CPU may not"]


def test_code_that_was_not_loaded_does_not_run(board, starter):
    starter.reset(SEC2)
    starter.wr(SEC2 + 0x40, 0xCAFEBEEF)
    starter.run(SEC2, 0x300)
    assert starter.rd(SEC2 + 0x40) == 0xCAFEBEEF
    assert said(board) == ["BOOTVEC 0x300 points at code that was not loaded"]


def test_a_start_during_scrubbing_is_lost(board, starter):
    starter.wr(SEC2 + 0x3C0, 1)
    starter.wr(SEC2 + 0x3C0, 0)
    starter.wr(SEC2 + 0x100, 2)
    assert said(board) == ["the falcon is started while its memories are scrubbed"]


@pytest.mark.parametrize("change", ["one byte", "cut short", "another chip", "another falcon"])
def test_an_image_that_was_not_signed_for_this_does_not_run(board, starter, change):
    program = starter.images.booter_load
    other = "ga102" if board.chip.name != "ga102" else "ad102"
    code = {
        "one byte": program.code[:-1] + b"\x01",
        "cut short": program.code[:-256],
        "another chip": images.build(CHIPS[other]).booter_load.code,
        "another falcon": program.code,
    }[change]
    why = {
        "one byte": "no signature that is known",
        "cut short": "no signature that is known",
        "another chip": f"booter load for {other} was loaded into {board.chip.name}",
        "another falcon": "booter load was loaded, which does not run on this falcon",
    }[change]
    base = GSP if change == "another falcon" else SEC2
    starter.reset(base)
    starter.wr(base + 0x40, 0xFF)
    if starter.turing:
        starter.poke(base, bytes(256), 0, secure=False)
        starter.poke(base, code, 256, secure=True, tag=1)
        starter.run(base, 0)
    else:
        starter.run_signed(base, code, program.data, images.SIGNATURE_AT, 0x401, 3)
    assert starter.rd(base + 0x40) == 0xFF
    assert why in said(board)[-1]


@pytest.mark.parametrize(
    ("offset", "value", "why"),
    [
        (0x180, 0, "MOD_SEL selects no RSA-3072"),
        (0x19C, 0x400, "BROM_ENGIDMASK leaves this falcon out"),
        (0x198, 0, "BROM_CURR_UCODE_ID is none of 1 to 16"),
        (0x210, 0x800, "there is no signature at BROM_PARAADDR"),
        (0x668, 0x10, "BCR_CTRL selects RISC-V"),
    ],
)
def test_the_boot_rom_refuses_wrong_parameters(make_starter, offset, value, why):
    starter = make_starter("ga102")
    starter.reset(SEC2)
    program = starter.images.booter_unload
    write = starter.wr
    # the driver's last write to that register is wrong
    starter.wr = lambda address, given: write(address, value if address == SEC2 + PAGE2 + offset else given)
    if offset == 0x668:
        write(SEC2 + PAGE2 + offset, value)
    write(SEC2 + 0x40, 0xFF)
    starter.run_signed(SEC2, program.code, program.data, images.SIGNATURE_AT, 1, 3)
    assert starter.rd(SEC2 + 0x40) == 0xFF
    assert why in said(starter.card)[0]


def test_turing_needs_its_loader(make_starter):
    starter = make_starter("tu102")
    starter.reset(GSP)
    starter.poke(GSP, b"\x90" * 512, 0xFE00, secure=False, tag=0xFD)
    starter.run(GSP, 0xFD00)
    assert said(starter.card) == ["the code at BOOTVEC is neither signed nor a known loader"]


def test_a_halt_interrupts_a_cpu_that_asked_for_it(board, starter):
    starter.reset(SEC2)
    starter.run(SEC2, 0x300)
    assert starter.rd(SEC2 + 0x8) & 0x10
    assert not board.sec2.interrupts_host
    starter.wr(SEC2 + 0x10, 0x10)
    starter.wr(SEC2 + 0x1C, 0x10)
    assert board.sec2.interrupts_host
    starter.wr(SEC2 + 0x4, 0x10)
    assert (starter.rd(SEC2 + 0x8), board.sec2.interrupts_host) == (0, False)
    assert struct.pack("<I", starter.rd(SEC2 + 0x18)) == b"\x10\0\0\0"
