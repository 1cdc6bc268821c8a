"""Configuration space: header, BARs, capabilities, power states, interrupts. Offsets and bits are literals of PCI
Express 4.0, chapter 7.
"""

from __future__ import annotations

import pytest

from ringup.silicon.pci.capabilities import advanced_errors, express, msi, power_management, resizable_bars
from ringup.silicon.pci.function import Bar, Function, FunctionRow

MEM64_PREFETCH, MEM32 = 0xC, 0x0
BARS = (Bar(0, 256 << 20, MEM64_PREFETCH, (256, 512, 1024)), Bar(2, 2 << 20), Bar(5, 1 << 20, MEM32))
COMMAND, STATUS, CAPABILITIES = 0x04, 0x06, 0x34
MEMORY, MASTER, INTX_DISABLE = 2, 4, 0x400


def make(*, keeps_state=True, maskable=False, vectors_log2=0, flr=False):
    capabilities = (
        power_management(0x50, 0xF003, keeps_state),
        express(0x64, 1, generation=4, lanes=16, device=0x1000_0000 if flr else 0),
        msi(0xA0, vectors_log2=vectors_log2, maskable=maskable),
        advanced_errors(0x150),
        resizable_bars(0x200, BARS),
    )
    function = Function(
        FunctionRow("gpu", 0x1002, 0x744C, 0x030000, 0xC8, (0x1002, 0x0E3B), BARS, 128 << 10, capabilities)
    )
    function.mistakes = []
    function.resets = []
    function.on_mistake = function.mistakes.append
    function.on_reset = function.resets.append
    return function


@pytest.fixture
def gpu():
    return make()


def test_the_header_says_what_the_function_is(gpu):
    assert gpu.read(0x00) == 0x744C_1002
    assert gpu.read(0x08) == 0x0300_00C8
    assert gpu.read(0x2C) == 0x0E3B_1002
    assert gpu.read(0x3D, 1) == 1
    gpu.write(0x00, 0)
    assert gpu.read(0x00, 2) == 0x1002


@pytest.mark.parametrize(
    # All ones are written and the size is read back: PCI 3.0, 6.2.5.1.
    ("offset", "sized"),
    [
        (0x10, 0xF000_000C),
        (0x14, 0xFFFF_FFFF),
        (0x18, 0xFFE0_000C),
        (0x1C, 0xFFFF_FFFF),
        (0x20, 0),
        (0x24, 0xFFF0_0000),
        (0x30, 0xFFFE_0001),
    ],
)
def test_bars_tell_their_size(gpu, offset, sized):
    gpu.write(offset, 0xFFFF_FFFF)
    assert gpu.read(offset) == sized


def test_a_64_bit_bar_holds_an_address_above_4_gib(gpu):
    gpu.write(0x10, 0x3000_0000)
    gpu.write(0x14, 0x7F)
    assert gpu.bar_address(0) == 0x7F_3000_0000


def test_bytes_of_a_register_are_written_alone(gpu):
    gpu.write(0x14, 0x1122_3344)
    gpu.write(0x15, 0xAA, 1)
    gpu.write(0x16, 0xBBCC, 2)
    assert gpu.read(0x14) == 0xBBCC_AA44
    assert gpu.read(0x15, 1) == 0xAA


@pytest.mark.parametrize(("offset", "size_bytes"), [(2, 4), (1, 2), (4096, 4), (-4, 4), (0, 8), (0, 3)])
def test_an_access_that_no_bus_makes_is_refused(gpu, offset, size_bytes):
    with pytest.raises(ValueError, match="configuration access"):
        gpu.read(offset, size_bytes)


def walk(function):
    at, found = function.read(CAPABILITIES, 1), []
    while at:
        found.append((at, function.read(at, 1)))
        at = function.read(at + 1, 1)
    return found


def walk_extended(function):
    at, found = 0x100, []
    while at:
        word = function.read(at)
        found.append((at, word & 0xFFFF, word >> 16 & 0xF))
        at = word >> 20
    return found


def test_capabilities_are_chained(gpu):
    assert gpu.read(STATUS, 2) & 0x10
    assert walk(gpu) == [(0x50, 1), (0x64, 0x10), (0xA0, 5)]


def test_extended_capabilities_are_chained_with_their_versions():
    row = FunctionRow("f", 1, 2, 0, capabilities=(advanced_errors(0x100), resizable_bars(0x200, BARS)))
    assert walk_extended(Function(row)) == [(0x100, 1, 2), (0x200, 0x15, 1)]


def test_memory_is_decoded_only_when_asked_and_awake(gpu):
    assert not gpu.decodes_memory
    gpu.write(COMMAND, MEMORY, 2)
    assert gpu.decodes_memory
    gpu.write(0x54, 3, 2)  # D3hot
    assert not gpu.decodes_memory
    gpu.write(0x54, 0, 2)
    assert gpu.decodes_memory


def test_the_rom_needs_its_own_enable_bit(gpu):
    gpu.write(COMMAND, MEMORY, 2)
    assert not gpu.decodes_rom
    gpu.write(0x30, 0x8000_0001)
    assert gpu.decodes_rom


@pytest.mark.parametrize(("keeps_state", "left"), [(True, MEMORY), (False, 0)])
def test_d3hot_costs_the_state_of_a_function_that_does_not_keep_it(keeps_state, left):
    gpu = make(keeps_state=keeps_state)
    gpu.write(COMMAND, MEMORY, 2)
    gpu.write(0x54, 3, 2)
    # Configuration space stays readable.
    assert gpu.read(COMMAND, 2) == MEMORY
    gpu.write(0x54, 0, 2)
    assert gpu.read(COMMAND, 2) == left
    assert gpu.resets == ([] if keeps_state else ["d3hot"])


def test_a_function_level_reset_clears_all_but_what_is_sticky():
    gpu = make(flr=True)
    gpu.write(COMMAND, MEMORY, 2)
    # AER: mask unsupported requests
    gpu.write(0x158, 0x0010_0000)
    gpu.write(0x6C, 0xA910, 2)  # Initiate FLR
    assert gpu.resets == ["flr"]
    assert gpu.read(COMMAND, 2) == 0
    assert gpu.read(0x6C, 2) & 0x8000 == 0
    assert gpu.read(0x158) == 0x0010_0000
    gpu.reset("power")
    assert gpu.read(0x158) == 0


def test_a_function_without_flr_ignores_the_request(gpu):
    gpu.write(0x6C, 0xA910, 2)
    assert gpu.resets == []


def test_link_status_tells_speed_and_width(gpu):
    assert gpu.read(0x76, 2) & 0x3FF == 0x104  # 16 GT/s, x16
    assert gpu.read(0x70) & 0x3FF == 0x104


def test_an_unsupported_request_is_logged_until_it_is_cleared(gpu):
    gpu.unsupported_request()
    assert gpu.read(0x6E, 2) & 8
    assert gpu.read(0x154) == 0x0010_0000
    gpu.write(0x154, 0)
    assert gpu.read(0x154) == 0x0010_0000
    gpu.write(0x154, 0x0010_0000)
    gpu.write(0x6E, 8, 2)
    assert gpu.read(0x154) == 0
    assert not gpu.read(0x6E, 2) & 8


def test_a_resizable_bar_offers_sizes_and_takes_one(gpu):
    # 256, 512 and 1024 MiB: bits 12 to 14
    assert gpu.read(0x204) == 0x0000_7000
    # One such BAR, number 0, 2**8 MiB.
    assert gpu.read(0x208) & 0x3FE7 == 0x0820
    gpu.write(0x208, 10 << 8)
    assert gpu.sizes[0] == 1 << 30
    gpu.write(0x10, 0xFFFF_FFFF)
    assert gpu.read(0x10) == 0xC000_000C
    assert gpu.mistakes == []


def test_a_resized_bar_keeps_the_address_bits_it_still_has(gpu):
    gpu.write(0x10, 0x7000_0000)
    gpu.write(0x14, 0x8)
    gpu.write(0x208, 10 << 8)
    assert gpu.bar_address(0) == 0x8_4000_0000


def test_a_size_that_is_not_offered_or_comes_while_decoding_is_a_mistake(gpu):
    gpu.write(0x208, 11 << 8)
    assert gpu.sizes[0] == 256 << 20
    gpu.write(COMMAND, MEMORY, 2)
    gpu.write(0x208, 9 << 8)
    assert [text.partition(" was ")[2] for text in gpu.mistakes] == [
        "given 2048 MiB, which it does not offer",
        "resized while memory decoding was on",
    ]


def test_a_size_that_was_not_taken_is_not_put_back_after_a_reset(gpu):
    gpu.write(0x208, 9 << 8)
    gpu.write(0x208, 63 << 8)
    saved = gpu.save()
    gpu.reset("hot")
    gpu.restore(saved)
    assert gpu.sizes[0] == 256 << 20


def test_an_msi_needs_its_enable_bit_and_bus_mastering(gpu):
    gpu.write(COMMAND, INTX_DISABLE, 2)
    gpu.interrupt()
    assert gpu.interrupts.take() == ()
    gpu.write(0xA2, 1, 2)
    gpu.interrupt()
    assert gpu.mistakes == ["an MSI could not be sent: bus mastering is off"]
    gpu.write(COMMAND, MASTER | INTX_DISABLE, 2)
    gpu.interrupt()
    assert gpu.interrupts.take() == (0,)


def test_without_msi_the_level_of_intx_is_shown_and_signalled(gpu):
    gpu.interrupt()
    assert gpu.read(STATUS, 2) & 8
    assert gpu.interrupts.take() == (0,)
    gpu.intx_done()
    assert not gpu.read(STATUS, 2) & 8


def test_a_masked_vector_stays_pending_until_it_is_unmasked():
    gpu = make(maskable=True, vectors_log2=2)
    gpu.write(COMMAND, MASTER, 2)
    # Enabled, four vectors granted.
    gpu.write(0xA2, 0x21, 2)
    gpu.write(0xB0, 0b0100)
    gpu.interrupt(2)
    gpu.interrupt(1)
    assert gpu.interrupts.take() == (1,)
    assert gpu.read(0xB4) == 0b0100
    gpu.write(0xB0, 0)
    assert gpu.interrupts.take() == (2,)
    assert gpu.read(0xB4) == 0


def test_fewer_granted_vectors_share():
    gpu = make(vectors_log2=2)
    gpu.write(COMMAND, MASTER, 2)
    # Two vectors granted.
    gpu.write(0xA2, 0x11, 2)
    gpu.interrupt(3)
    assert gpu.interrupts.take() == (1,)


def test_a_listener_gets_what_was_pending_first(gpu):
    gpu.interrupt()
    heard = []
    gpu.interrupts.listen(heard.append)
    gpu.interrupt()
    assert heard == [0, 0]
    assert gpu.interrupts.take() == ()


def test_a_function_that_is_not_there_reads_as_all_ones(gpu):
    gpu.present = False
    gpu.write(COMMAND, MEMORY, 2)
    assert gpu.read(0) == 0xFFFF_FFFF
    assert gpu.read(0x3C, 1) == 0xFF
    gpu.present = True
    assert gpu.read(COMMAND, 2) == 0


def test_a_functions_own_reset_can_be_undone_but_for_its_power_state_and_its_errors():
    function = make(flr=True)
    assert function.resettable
    assert not make().resettable
    function.write(0x10, 0x4000_0000)
    function.write(0x04, 6, 2)
    function.unsupported_request()
    saved = function.save()
    function.write(0x64 + 8, 0x8000, 2)
    assert function.resets == ["flr"]
    assert function.read(0x10) == 0xC
    function.restore(saved)
    assert (function.read(0x10), function.read(0x04, 2)) == (0x4000_000C, 6)
    # Device status.
    assert function.read(0x64 + 0xA, 2) == 0
