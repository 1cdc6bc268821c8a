"""Reading a PCI function that another process holds, on a kernel of files."""

import pytest

from ringup.drivers.transport.linux.readonly import holder, open_readonly
from ringup.errors import CardBusy, NoSuchCard, NotSupported, TransportError

ADDRESS = "0000:03:00.0"
DECODES = (2).to_bytes(2, "little")


def decode(machine):
    """Enable memory decoding, as the holder did."""
    config = machine.folder(ADDRESS) / "config"
    data = bytearray(config.read_bytes())
    data[4:6] = DECODES
    config.write_bytes(data)


@pytest.fixture
def held(machine):
    machine.add(driver="vfio-pci")
    decode(machine)
    return machine


def test_bars_are_read_and_nothing_is_written(held):
    folder = held.folder(ADDRESS)
    (folder / "resource5").write_bytes(b"\x78\x56\x34\x12" + bytes((64 << 10) - 4))
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    with open_readonly("03:00.0", held.kernel) as device:
        assert device.name == f"pci:{ADDRESS}"
        assert device.bars[5].read32(0) == 0x12345678
        assert device.bars[5].size_bytes == 64 << 10
        assert device.config.read(0, 4) == 0x744C1002
        assert not device.lost
        for write in (lambda: device.bars[5].write32(0, 0), lambda: device.config.write(4, 0, 2)):
            with pytest.raises(ValueError, match="open for looking only"):
                write()
        with pytest.raises(TypeError, match="read-only"):
            device.bars[0].map()[0] = 1
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before
    assert held.log == []


def test_a_driver_of_the_kernels_is_asked_instead(machine):
    machine.driver("amdgpu")
    machine.add(driver="amdgpu")
    with pytest.raises(CardBusy, match="amdgpu works it; ask that driver"):
        open_readonly(ADDRESS, machine.kernel)


@pytest.mark.parametrize("how", ["asleep", "undecoded"])
def test_a_function_that_does_not_answer_is_left_alone(machine, how):
    machine.add()
    if how == "asleep":
        decode(machine)
        (machine.folder(ADDRESS) / "power_state").write_text("D3hot\n")
    with pytest.raises(NotSupported, match="answers nobody; a process that drives it wakes it"):
        open_readonly(ADDRESS, machine.kernel)


def test_a_missing_card_and_a_missing_permission_are_reported(held):
    with pytest.raises(NoSuchCard):
        open_readonly("0000:77:00.0", held.kernel)
    (held.folder(ADDRESS) / "resource5").unlink()
    with pytest.raises(TransportError, match="resource5"):
        open_readonly(ADDRESS, held.kernel)
    assert holder(ADDRESS, held.kernel) == ""
