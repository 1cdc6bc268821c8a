"""The flash controller's registers, driven by XDATA writes as a host does it under the open firmware."""

import pytest
import usb.core

from ringup.silicon.asm2464pd import Enclosure, VirtualUsbHost
from ringup.silicon.asm2464pd.hardware.flash_image import Config, body_of, synthetic_image

READ, PROGRAM, ERASE, STATUS, WRITE_STATUS, ENABLE = 0x03, 0x02, 0xD8, 0x05, 0x01, 0x06


class Registers:
    """E4 and E5 of the open firmware, used in the order of handmade/e4_flash.py."""

    def __init__(self, speed="super"):
        self.enclosure = Enclosure(None, "open", speed, boots_linked=False)
        self.host = VirtualUsbHost(self.enclosure.machine)
        self.host.plug(self.enclosure)
        self.dev = usb.core.find(backend=self.host)
        self.dev.set_interface_altsetting(0, 0)

    def peek(self, address, count=1):
        return bytes(self.dev.ctrl_transfer(0xC0, 0xE4, address, 0, count))

    def poke(self, address, value):
        self.dev.ctrl_transfer(0x40, 0xE5, address, value, None)

    def start(self):
        for address, bits in ((0xCC33, 0x04), (0xCA81, 0x01), (0xC805, 0x02), (0xC8A6, 0x04)):
            self.poke(address, bits)

    def fill(self, data):
        self.poke(0x9094, 0x10)
        self.dev.write(0x02, data)

    def run(self, command, address=0, length=0, addressed=True, mode=0):
        for register, value in (
            (0xC8AD, mode), (0xC8AE, 0), (0xC8AF, 0), (0xC8AA, command), (0xC8AC, 7 if addressed else 4), (0xC8A1, address & 0xFF),
            (0xC8A2, address >> 8 & 0xFF), (0xC8AB, address >> 16), (0xC8A3, length >> 8), (0xC8A4, length & 0xFF), (0xC8A9, 1),
        ):  # fmt: skip
            self.poke(register, value)
        while self.peek(0xC8A9)[0] & 1:
            pass

    def status(self):
        self.run(STATUS, length=1, addressed=False)
        return self.peek(0x7000)[0]

    def enable(self):
        self.run(ENABLE, addressed=False)

    def settle(self):
        while self.status() & 1:
            self.enclosure.machine.sleep_us(10_000)

    def unprotect(self):
        self.enable()
        self.fill(bytes(4))
        self.run(WRITE_STATUS, length=1, addressed=False, mode=1)
        self.settle()

    def erase(self, address):
        self.enable()
        self.run(ERASE, address)
        self.settle()

    def program(self, address, data):
        self.fill(data)
        self.enable()
        self.run(PROGRAM, address, len(data), mode=1)
        self.settle()

    def read(self, address, size_bytes):
        self.run(READ, address, 4096)
        return b"".join(self.peek(0x7000 + at, min(64, size_bytes - at)) for at in range(0, size_bytes, 64))


@pytest.fixture
def part():
    registers = Registers()
    registers.start()
    return registers


def test_the_configuration_block_is_read(part):
    assert part.read(0, 128) == Config().pack()


def test_an_image_goes_in_by_128_bytes_and_starts(part):
    image = synthetic_image("stock", body_bytes=0x3000)
    block = part.read(0, 256)
    part.unprotect()
    part.erase(0)
    for at in range(0, 256, 128):
        part.program(at, block[at : at + 128])
    for at in range(0, len(image), 128):
        part.program(0x100 + at, image[at : at + 128])
    assert part.enclosure.flash.body() == body_of(image)
    assert not part.enclosure.violations
    # The CPU restarts before it can acknowledge.
    with pytest.raises(usb.core.USBError):
        part.poke(0xCC31, 1)
    part.enclosure.machine.run_until(lambda: usb.core.find(backend=part.host) is not None, 10e6)
    assert usb.core.find(backend=part.host).idProduct == 0x2464


def test_a_protected_part_ignores_programs_and_erases(part):
    before = bytes(part.enclosure.flash.cells)
    assert part.status() & 0x1C
    part.erase(0)
    part.program(0x100, bytes(128))
    assert bytes(part.enclosure.flash.cells) == before
    part.unprotect()
    assert part.status() == 0


def test_without_a_write_enable_the_part_ignores_it_and_the_model_says_so(part):
    part.unprotect()
    before = bytes(part.enclosure.flash.cells)
    part.run(ERASE, 0)
    assert bytes(part.enclosure.flash.cells) == before
    assert "without a write enable" in part.enclosure.violations[0].text


def test_a_part_that_is_busy_ignores_what_comes(part):
    part.unprotect()
    part.enable()
    part.run(ERASE, 0x1_0000)
    assert part.status() & 1
    part.enable()
    assert "during a program or erase" in part.enclosure.violations[0].text
    part.settle()
    assert part.enclosure.flash.read(0x1_0000, 16) == b"\xff" * 16


def test_the_controller_stays_off_until_its_switches_are_on():
    registers = Registers()
    registers.run(READ, 0, 128)
    assert registers.peek(0x7004, 20) == bytes(20)
    assert "keep it off" in registers.enclosure.violations[0].text


def test_behind_128_bytes_the_buffer_is_not_the_hosts(part):
    part.unprotect()
    part.erase(0x1_0000)
    part.program(0x1_0000, b"\x5a" * 256)
    assert part.enclosure.flash.read(0x1_0000, 129) == b"\x5a" * 128 + b"\0"


def test_at_usb_2_only_64_bytes_of_a_packet_arrive_and_reads_may_begin_with_a_stale_byte():
    part = Registers("high")
    part.start()
    part.fill(b"\x11" * 128)
    part.fill(b"\x22" * 128)
    assert part.peek(0x7000 + 63, 2) == b"\x22\0"
    reads = [part.read(0, 128) for _ in range(6)]
    good = [one for one in reads if one == Config().pack()]
    assert 0 < len(good) < 6
    assert all(one[1:] == Config().pack()[:-1] for one in reads if one not in good)


def test_power_lost_in_a_program_takes_the_enclosure_away(part):
    part.unprotect()
    part.erase(0x1_0000)
    part.enclosure.faults.inject("flash_power_lost", 100)
    with pytest.raises(usb.core.USBError):
        part.program(0x1_0000, bytes(128))
    assert part.enclosure.flash.read(0x1_0000, 128) == bytes(100) + b"\xff" * 28
