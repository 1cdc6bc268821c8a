"""A host that keeps no rule: nothing it sends breaks the stock firmware, and the specified recovery always helps."""

import random
import struct

import pytest
import usb.core

# E1, E3, E5 and E8 are left out: they change the firmware, or state that the test reads.
OPCODES = (
    0x00,
    0x03,
    0x12,
    0x15,
    0x1A,
    0x25,
    0x28,
    0x2A,
    0x35,
    0x42,
    0x5A,
    0x88,
    0x8A,
    0x9E,
    0xA0,
    0xA3,
    0xE0,
    0xE2,
    0xE4,
    0xE6,
    0xFF,
)
VERSION = bytes.fromhex("240417850000")
USB_FAULTS = ("stall", "short_packet", "scsi_check_condition")


def command(dice):
    """Return a block that begins with a known opcode, often with sensible bytes behind it."""
    opcode = dice.choice(OPCODES)
    cdb = bytes([opcode]) + dice.randbytes(15)
    if dice.random() < 0.5:
        cdb = bytes(
            [opcode, dice.choice((0, 1, 0x50, 0x51)), dice.choice((0, 0x50)), 0, dice.choice((0, 16, 255))]
        ) + bytes(11)
    return cdb[: dice.choice((6, 10, 12, 16))]


@pytest.mark.parametrize("seed", range(12))
def test_bulk_only_recovers_from_anything(storage, seed):
    dice = random.Random(seed)
    s = storage(speed=dice.choice(("super", "high")), card=dice.random() < 0.3)
    for _ in range(25):
        if dice.random() < 0.3:
            s.enclosure.faults.inject(dice.choice(USB_FAULTS), dice.randrange(4))
        length, to_host = dice.choice((0, 1, 6, 36, 128, 512, 1024, 5000)), dice.random() < 0.6
        cbw = struct.pack("<4sIIBBB16s", b"USBC", 7, length, 0x80 * to_host, 0, 16, command(dice))
        try:
            s.dev.write(0x02, dice.choice((cbw, cbw, cbw, dice.randbytes(31), cbw[:20], cbw + bytes(600))), timeout=20)
            for _ in range(dice.randrange(3)):
                if dice.random() < 0.6:
                    s.dev.read(0x81, dice.choice((13, 1024, 5000)), timeout=20)
                else:
                    s.dev.write(0x02, dice.randbytes(dice.choice((1, 64, 512, 5000))), timeout=20)
        except usb.core.USBError:
            pass
        s.enclosure.faults.clear()
        # Reset recovery: 5.3.4.
        s.dev.ctrl_transfer(0x21, 0xFF, 0, 0, None)
        s.dev.clear_halt(0x81)
        s.dev.clear_halt(0x02)
        assert s.peek(0x07F0, 6) == VERSION


@pytest.mark.parametrize("seed", range(12))
def test_attached_scsi_recovers_from_anything(storage, seed):
    dice = random.Random(1000 + seed)
    s = storage(speed=dice.choice(("super", "high")), card=dice.random() < 0.3)
    for _ in range(8):
        s.start_uas()
        pending = []
        for _ in range(dice.randrange(1, 12)):
            tag = dice.randrange(1, 12)
            unit = s.command_unit(tag, command(dice), lun=dice.choice((0, 0, 0, 1)))
            unit = dice.choice(
                (unit, unit, unit, unit[: dice.randrange(32)], dice.randbytes(32), struct.pack(">BxHB11x", 5, tag, 1))
            )
            pending.append(s.submit(0x04, unit, timeout_ms=20))
            if dice.random() < 0.5:
                pending.append(s.submit(0x81, dice.choice((1024, 4096)), tag, timeout_ms=20))
            if dice.random() < 0.5:
                pending.append(s.submit(0x02, dice.randbytes(dice.choice((128, 512, 4096))), tag, timeout_ms=20))
            pending.append(s.submit(0x83, 1024, tag, timeout_ms=20))
        s.wait(*pending)
        s.host.free_streams(s.handle, (0x81, 0x83, 0x02))
        s.dev.reset()
        s.dev.set_interface_altsetting(0, 0)
        assert s.peek(0x07F0, 6) == VERSION
