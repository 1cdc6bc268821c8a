"""Configuration space over a file: what a node answers, malformed capability lists, sleep and reset."""

import os

import pytest

from ringup.autogen.linux import pci
from ringup.drivers.transport import config_space
from ringup.drivers.transport.config_space import NodeConfig
from ringup.errors import DeviceLost, DeviceTimeout


class Ticking:
    """A clock that advances in sleeps. A test decides what happens during a sleep."""

    def __init__(self, meanwhile=lambda: None):
        self.now_us, self.meanwhile = 0, meanwhile

    def sleep_us(self, time_us):
        self.now_us += int(time_us)
        self.meanwhile()


@pytest.fixture
def space(tmp_path):
    """(file, config): 4 KiB as the kernel shows them, after one byte of noise."""
    path = tmp_path / "config"
    path.write_bytes(b"\xee" + bytes(4096))
    node = os.open(path, os.O_RDWR)
    yield path, NodeConfig(node, 1)
    os.close(node)


def put(space, offset, data):
    image = bytearray(space[0].read_bytes())
    image[1 + offset : 1 + offset + len(data)] = data
    with space[0].open("r+b") as file:
        file.write(image)


def test_registers_are_at_offsets_from_the_regions_start(space):
    put(space, 0, bytes.fromhex("02104c74"))
    assert space[1].read(0) == 0x744C1002
    assert space[1].read(2, 2) == 0x744C
    space[1].write(4, 6, 2)
    assert space[0].read_bytes()[5:7] == b"\x06\x00"


@pytest.mark.parametrize(("offset", "size"), [(1, 2), (2, 4), (0, 3), (0, 8), (4096, 4), (-4, 4)])
def test_an_address_outside_the_registers_is_the_callers_mistake(space, offset, size):
    with pytest.raises(ValueError, match="configuration space has no"):
        space[1].read(offset, size)
    with pytest.raises(ValueError, match="configuration space has no"):
        space[1].write(offset, 0, size)


def test_a_node_that_answers_nothing_reads_as_ones(space):
    with space[0].open("r+b") as file:
        # An ordinary user sees this much.
        file.truncate(65)
    assert space[1].read(0x3C) == 0
    assert space[1].read(0x40) == 0xFFFF_FFFF
    assert space[1].read(0x40, 1) == 0xFF


def with_capabilities(space, *rows):
    """rows: (offset, id, next)."""
    put(space, pci.PCI_STATUS, pci.PCI_STATUS_CAP_LIST.to_bytes(2, "little"))
    put(space, pci.PCI_CAPABILITY_LIST, bytes((rows[0][0],)))
    for offset, kind, after in rows:
        put(space, offset, bytes((kind, after)))


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (((0x48, 9, 0x50), (0x50, 1, 0x64), (0x64, 0x10, 0)), [9, 1, 0x10]),
        (((0x48, 9, 0x50), (0x50, 1, 0x48)), [9, 1]),  # a circle
        (((0x50, 1, 0x10),), [1]),  # into the header
        (((0x50, 1, 0x53),), [1]),  # to itself, except for the low bits
    ],
)
def test_a_walk_of_capabilities_ends_whatever_the_card_says(space, rows, expected):
    with_capabilities(space, *rows)
    assert [kind for kind, _ in config_space.capabilities(space[1])] == expected


def test_without_the_status_bit_there_are_no_capabilities(space):
    put(space, pci.PCI_CAPABILITY_LIST, b"\x50")
    put(space, 0x50, b"\x01\x00")
    assert config_space.find_capability(space[1], pci.PCI_CAP_ID_PM) is None


def test_a_sleeping_card_is_woken_and_given_its_time(space):
    with_capabilities(space, (0x50, pci.PCI_CAP_ID_PM, 0))
    put(space, 0x54, b"\x0b\x01")  # D3hot, PME on, no soft reset
    clock = Ticking()
    config_space.wake(space[1], clock)
    assert space[1].read(0x54, 2) == 0x0108
    # PCI power management 1.2, table 5-6
    assert clock.now_us == 10_000


def test_a_card_that_stays_asleep_is_named(space):
    with_capabilities(space, (0x50, pci.PCI_CAP_ID_PM, 0))
    put(space, 0x54, b"\x03")
    with pytest.raises(DeviceTimeout, match=r"PCI_PM_CTRL read 0x0003 \(D3\) after 10 ms"):
        config_space.wake(space[1], Ticking(lambda: put(space, 0x54, b"\x03")))


def test_a_header_goes_back_with_decoding_last_and_no_status_bit_cleared(space):
    put(space, 0, bytes.fromhex("02104c74 07021000"))
    for index in range(6):
        put(space, 0x10 + 4 * index, (0xD000000C + (index << 20)).to_bytes(4, "little"))
    before = space[0].read_bytes()
    saved = config_space.save(space[1])
    # An error arrived in between: writing a one to its bit would clear it.
    put(space, 4, bytes.fromhex("0000 1080"))
    put(space, 0x10, bytes(24))
    config_space.restore(space[1], saved)
    assert space[0].read_bytes() == before[:7] + bytes.fromhex("1080") + before[9:]


def test_a_header_decodes_no_address_before_all_are_back(space, monkeypatch):
    put(space, 0, bytes.fromhex("02104c74 07021000"))
    put(space, 0x10, bytes(range(1, 25)))
    saved, before = config_space.save(space[1]), space[0].read_bytes()
    put(space, 4, bytes(2))
    put(space, 0x10, bytes(24))
    write, decoded = NodeConfig.write, []

    def watched(self, offset, value, size_bytes=4):
        write(self, offset, value, size_bytes)
        image = space[0].read_bytes()
        if image[1 + pci.PCI_COMMAND] & pci.PCI_COMMAND_MEMORY:
            decoded.append(image)

    monkeypatch.setattr(NodeConfig, "write", watched)
    config_space.restore(space[1], saved)
    assert decoded == [before]


def test_a_function_that_answers_late_is_waited_for_and_one_that_never_does_is_lost(space):
    # The ids stay, because VFIO returns them from memory.
    put(space, 8, b"\xff\xff\xff\xff")
    clock = Ticking()
    clock.meanwhile = lambda: put(space, 8, b"\xc8\x00\x00\x03") if clock.now_us > 300_000 else None
    config_space.wait_for_answer(space[1], clock, "resetting")
    assert 300_000 < clock.now_us < 310_000
    put(space, 8, b"\xff\xff\xff\xff")
    with pytest.raises(DeviceLost, match="resetting: its class and revision read 0xffffffff for 1000 ms"):
        config_space.wait_for_answer(space[1], Ticking(), "resetting")
