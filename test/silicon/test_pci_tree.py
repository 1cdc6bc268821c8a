"""A board behind its own switch: how configuration requests find a function, and what links and resets do to the
functions below.
"""

from __future__ import annotations

import pytest

from ringup.silicon.pci.capabilities import express
from ringup.silicon.pci.function import Bar, Function, FunctionRow
from ringup.silicon.pci.tree import Node, Tree

UPSTREAM, DOWNSTREAM, ENDPOINT = 5, 6, 1  # PCI Express 4.0, 7.5.3.2
BRIDGE = 1


def port(name, kind):
    row = FunctionRow(
        name, 0x1002, 0x1478, 0x060400, capabilities=(express(0x58, kind, generation=4, lanes=16, bridge=True),), header_type=BRIDGE
    )  # fmt: skip
    return Function(row)


def endpoint(name, device_id):
    row = FunctionRow(
        name, 0x1002, device_id, 0x030000, bars=(Bar(0, 256 << 20), Bar(5, 1 << 20, 0)), rom_bytes=128 << 10,
        capabilities=(express(0x64, ENDPOINT, generation=4, lanes=16),),
    )  # fmt: skip
    function = Function(row)
    function.resets = []
    function.on_reset = function.resets.append
    return function


@pytest.fixture
def tree():
    below = [Node(endpoint("gpu", 0x744C)), Node(endpoint("audio", 0xAB30), (0, 1))]
    return Tree(Node(port("upstream", UPSTREAM), below=[Node(port("downstream", DOWNSTREAM), below=below)]))


def test_nothing_below_a_port_is_reached_before_its_buses_are_numbered(tree):
    tree.bus = 5
    assert tree.read(5, 0, 0, 0) == 0x1478_1002
    assert tree.read(5, 1, 0, 0) == 0xFFFF_FFFF
    assert tree.read(7, 0, 0, 0) == 0xFFFF_FFFF


def test_buses_numbered_by_hand_lead_to_the_functions(tree):
    tree.bus = 5
    # Primary 5, secondary 0x10, subordinate 0x20.
    tree.write(5, 0, 0, 0x18, 0x0020_1005)
    assert tree.read(0x10, 0, 0, 0x0) == 0x1478_1002
    tree.write(0x10, 0, 0, 0x18, 0x0020_1110)
    assert tree.read(0x11, 0, 0, 2, 2) == 0x744C
    assert tree.read(0x11, 0, 1, 2, 2) == 0xAB30
    assert tree.read(0x11, 0, 2, 0) == 0xFFFF_FFFF


def test_enumeration_gives_places_addresses_and_decoding(tree):
    places = tree.enumerate(first_bus=1)
    assert places == {"upstream": (1, 0, 0), "downstream": (2, 0, 0), "gpu": (3, 0, 0), "audio": (3, 0, 1)}
    gpu, audio = tree.find("gpu"), tree.find("audio")
    assert gpu.bar_address(0) % (256 << 20) == 0
    assert {gpu.bar_address(0), audio.bar_address(0)} == {gpu.bar_address(0), gpu.bar_address(0) + (256 << 20)}
    assert gpu.decodes_memory
    assert not gpu.masters_bus
    assert tree.passes(gpu, 2)
    windows = [tree.read(bus, 0, 0, 0x20) for bus in (1, 2)]
    for window in windows:
        low, high = (window & 0xFFF0) << 16, window & 0xFFF0_0000 | 0xF_FFFF
        assert low <= gpu.bar_address(5) < gpu.bar_address(5) + (1 << 20) - 1 <= high


def test_a_port_that_does_not_decode_memory_blocks_what_is_below(tree):
    tree.enumerate()
    tree.write(2, 0, 0, 4, 0, 2)
    assert not tree.passes(tree.find("gpu"), 2)


def test_a_secondary_bus_reset_takes_the_functions_away_and_resets_them(tree):
    tree.enumerate()
    control = tree.read(2, 0, 0, 0x3E, 2)
    tree.write(2, 0, 0, 0x3E, control | 0x40, 2)
    assert tree.read(3, 0, 0, 0) == 0xFFFF_FFFF
    tree.write(2, 0, 0, 0x3E, control, 2)
    assert tree.read(3, 0, 0, 0) == 0x744C_1002
    assert tree.find("gpu").resets == ["hot"]
    assert tree.read(3, 0, 0, 4, 2) == 0
    assert tree.read(3, 0, 0, 0x10) == 0xC


def test_a_disabled_link_is_down_until_it_is_enabled(tree):
    tree.enumerate()
    tree.write(2, 0, 0, 0x68, 0x10, 2)
    assert tree.read(3, 0, 0, 0) == 0xFFFF_FFFF
    # The data link layer is inactive.
    assert not tree.read(2, 0, 0, 0x6A, 2) & 0x2000
    tree.write(2, 0, 0, 0x68, 0, 2)
    assert tree.read(3, 0, 0, 0) == 0x744C_1002
    assert tree.read(2, 0, 0, 0x6A, 2) & 0x2000


def test_when_the_slot_loses_its_link_nothing_answers_and_what_comes_back_is_reset(tree):
    tree.enumerate()
    tree.set_link(up=False)
    assert tree.read(1, 0, 0, 0) == 0xFFFF_FFFF
    tree.set_link(up=True)
    assert tree.read(1, 0, 0, 0) == 0x1478_1002
    # The bus numbers are gone.
    assert tree.read(3, 0, 0, 0) == 0xFFFF_FFFF
    assert tree.find("gpu").resets == ["hot"]
