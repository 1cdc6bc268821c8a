"""A host that keeps no rule: random requests, pokes and bulk transfers end as USB ends them. The bridge works again
after a restart.
"""

import random

import pytest
import usb.core

from ringup.errors import GuestError

TYPES = (0x00, 0x01, 0x02, 0x40, 0x80, 0x81, 0x82, 0xC0, 0x21, 0xA1)
REQUESTS = (0, 1, 5, 6, 8, 9, 10, 11, 0xC0, 0xE4, 0xE5, 0xF0, 0xF2, 0xF4)
REGISTERS = (
    *range(0xB210, 0xB224),
    0xB254,
    0xB296,
    0xB430,
    0xB450,
    0xB480,
    0xC412,
    0xC414,
    0xC415,
    0xC429,
    0xC656,
    0xC659,
    0xE764,
    0x9094,
)
# libusb's codes: I/O, no device, not found, time-out, overflow, pipe.
ENDS = {-1, -4, -5, -7, -8, -9}


def step(one, draw):
    """Do one random thing."""
    choice = draw.random()
    if choice < 0.4:
        kind, length = draw.choice(TYPES), draw.choice((0, 1, 8, 12, 64, 512, 600))
        data = length if kind & 0x80 else draw.randbytes(length)
        one.dev.ctrl_transfer(kind, draw.choice(REQUESTS), draw.getrandbits(16), draw.getrandbits(16), data, 20)
    elif choice < 0.6:
        one.poke(draw.choice(REGISTERS), draw.getrandbits(8))
    elif choice < 0.7:
        one.begin(draw.choice((0x00, 0x04, 0x20, 0x40, 0x45, 0x60, 0x30)), draw.choice((one.vram, 4 << 24, draw.getrandbits(64))),
                  draw.choice((0, 1, 300, draw.getrandbits(32))), draw.getrandbits(8), draw.randrange(4))  # fmt: skip
    elif choice < 0.8:
        one.completion()
    elif choice < 0.9:
        one.dev.write(0x02, draw.randbytes(draw.choice((1, 4, 512, 1000, 4096))), 20)
    else:
        one.dev.read(0x81, draw.choice((1, 13, 512, 4096)), 20)


@pytest.mark.parametrize("seed", range(6))
def test_nothing_that_a_host_does_breaks_the_model(bridge, seed):
    draw, ends = random.Random(seed), set()
    one = bridge("super_plus" if seed % 2 else "high", profile=("custom", "later")[seed % 3 == 0])
    one.power(True)
    one.set_up_buses()
    for _ in range(250):
        try:
            step(one, draw)
        except usb.core.USBError as error:
            ends.add(error.backend_error_code)
            if error.backend_error_code == -4:
                one.clock.sleep_us(3_000_000)
                one.open()
        except GuestError:
            # A write to a place that the card does not have.
            pass
    assert ends <= ENDS
    one.host.unplug()
    one.host.plug(one.enclosure)
    one.open()
    one.power(True)
    one.set_up_buses()
    data = draw.randbytes(2048)
    one.write(one.vram, data)
    assert one.read(one.vram, 2048) == data
