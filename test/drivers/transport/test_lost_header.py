"""A function that reads all ones: the driver never writes such a value back, and never reports a request to
it as done.
"""

import pytest

from ringup.autogen.linux import pci as regs
from ringup.drivers.transport import config_space
from ringup.drivers.transport.linux import pci, preflight
from ringup.drivers.transport.linux.function import find
from ringup.errors import DeviceLost

ADDRESS = "0000:03:00.0"
PATHS = pytest.mark.parametrize(("driver", "group"), [("", ""), ("vfio-pci", "12")], ids=["sysfs", "vfio"])
ONES = b"\xff" * 256


def header(machine, card):
    return [machine.config(card, at, 4) for at in range(0, 64, 4)]


def back_from_reset(machine, card, good):
    """After a reset the function is as after power-on: it has its ids and class, no BARs, and everything is off."""
    words = [word if at in (0, 8) else 0 for at, word in zip(range(0, 64, 4), good, strict=True)]
    machine.set_config(card, 0, b"".join(word.to_bytes(4, "little") for word in words))


@PATHS
def test_a_reset_of_a_card_that_reads_ones_is_refused_and_writes_nothing(machine, driver, group):
    card = machine.add(driver=driver, group=group)
    device = pci.open(ADDRESS, kernel=machine.kernel)
    good, done = header(machine, card), []
    machine.set_config(card, 0, ONES)

    def reset(one, how):
        done.append(how)
        back_from_reset(machine, card, good)

    machine._reset = reset
    with pytest.raises(DeviceLost, match=r"resetting pci:0000:03:00\.0 .*gone from the bus"):
        device.reset(device.resets()[0])
    assert done == []
    assert header(machine, card) == [0xFFFF_FFFF] * 16
    device.close()


@PATHS
def test_a_card_that_leaves_while_its_header_is_saved_is_not_given_ones_back(machine, driver, group):
    card = machine.add(driver=driver, group=group)
    device = pci.open(ADDRESS, kernel=machine.kernel)
    good, read, done = header(machine, card), device.config.read, []

    def read_and_leave(offset, size_bytes=4):
        if offset == regs.PCI_BASE_ADDRESS_2:
            machine.set_config(card, 0, ONES)
        return read(offset, size_bytes)

    device.config.read = read_and_leave
    machine._reset = lambda one, how: (done.append(how), back_from_reset(machine, card, good))
    with pytest.raises(DeviceLost, match=r"register 0x18 reads 0xffffffff"):
        device.reset(device.resets()[0])
    assert done == []
    device.close()


@PATHS
def test_a_card_that_is_back_when_its_lost_device_is_closed_is_left_as_it_came(machine, driver, group):
    """Closing clears the bus mastering bit. If it started from ones, it would set every other bit of the command
    register.
    """
    card = machine.add(driver=driver, group=group)
    device = pci.open(ADDRESS, kernel=machine.kernel)
    good, write, written = header(machine, card), device.config.write, []
    device.config.write = lambda offset, value, size_bytes=4: (
        written.append((offset, value)),
        write(offset, value, size_bytes),
    )
    machine.set_config(card, 0, ONES)
    device.close()
    assert written == []
    back_from_reset(machine, card, good)
    assert machine.config(card, regs.PCI_COMMAND, 2) == 0


def test_a_reset_restores_the_header_and_leaves_mastering_off(machine):
    card = machine.add(group="")
    device = pci.open(ADDRESS, kernel=machine.kernel)
    good = header(machine, card)
    machine._reset = lambda one, how: back_from_reset(machine, card, good)
    device.reset("function")
    assert [machine.config(card, at, 4) for at in range(0x10, 0x28, 4)] == good[4:10]
    assert not machine.config(card, regs.PCI_COMMAND, 2) & regs.PCI_COMMAND_MASTER
    device.close()


def test_a_command_register_with_reserved_bits_is_a_failing_link_not_a_header(machine):
    card = machine.add(group="")
    device = pci.open(ADDRESS, kernel=machine.kernel)
    # The class still answers.
    machine.set_config(card, regs.PCI_COMMAND, b"\xff\xff")
    with pytest.raises(DeviceLost, match="the command register reads 0xffff, which no function has"):
        config_space.save(device.config)
    config_space.change_command(device.config, off=regs.PCI_COMMAND_MASTER)
    assert machine.config(card, regs.PCI_COMMAND, 2) == 0x07FF & ~regs.PCI_COMMAND_MASTER
    device.close()


@pytest.mark.parametrize("offset", config_space.HEADER_KEPT)
def test_a_register_that_reads_ones_again_and_again_is_not_put_back(machine, offset):
    card = machine.add(group="")
    device = pci.open(ADDRESS, kernel=machine.kernel)
    good, read, done = header(machine, card), device.config.read, []
    device.config.read = lambda at, size=4: (1 << 8 * size) - 1 if at == offset and size == 4 else read(at, size)
    machine._reset = lambda one, how: (done.append(how), back_from_reset(machine, card, good))
    with pytest.raises(DeviceLost, match=f"register {offset:#x} reads 0xffffffff twice"):
        device.reset(device.resets()[0])
    assert done == []
    assert header(machine, card) == good
    device.close()


def test_a_glitch_that_is_gone_at_the_second_read_is_not_taken_for_a_value(machine):
    machine.add(group="")
    device = pci.open(ADDRESS, kernel=machine.kernel)
    answers = iter([0xFFFF])
    read = device.config.read
    device.config.read = lambda offset, size_bytes=4: next(answers, None) or read(offset, size_bytes)
    assert config_space.ask(device.config, regs.PCI_VENDOR_ID, 2) == 0x1002
    device.close()


@PATHS
def test_a_card_that_reads_ones_is_reported_before_it_is_opened(machine, driver, group):
    card = machine.add(driver=driver, group=group)
    machine.set_config(card, 0, ONES)
    # the kernel's own view of the same registers
    (machine.folder(ADDRESS) / "config").write_bytes(ONES)
    (power,) = preflight.power(find(machine.kernel, ADDRESS))
    assert "every register reads all ones" in power.seen
    assert power.state == (preflight.REFUSE if driver else preflight.NOTE)
    (found,) = pci.find(machine.kernel)
    assert ("reads all ones" in found.skipped) == bool(driver)
    if driver:
        with pytest.raises(DeviceLost, match="every register reads all ones"):
            pci.open(ADDRESS, kernel=machine.kernel)
