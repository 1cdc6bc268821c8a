"""Programs that GSP-RM has the host run: what is accepted of them, and what they do."""

from __future__ import annotations

import random
import struct

import pytest

from ringup.drivers.nv.bus.registers import Registers
from ringup.drivers.nv.gsp.falcon import GSP, SEC2, Falcon
from ringup.drivers.nv.gsp.sequencer import Sequencer, parse
from ringup.drivers.transport.config_space import change_command
from ringup.errors import DeviceTimeout, FirmwareError
from ringup.silicon import nvidia_card

WRITE, MODIFY, POLL, DELAY, STORE, RESET, START, WAIT, RESUME = range(9)  # rmgspseq.h, GSP_SEQ_BUF_OPCODE_*
MAILBOX0, SCRATCH = 0x11_0040, 0x84_0040  # GSP's and SEC2's first mailboxes: plain registers


def program(*dwords, size=None, end=None):
    """Return rpc_run_cpu_sequencer_v17_00: bufferSizeDWord, cmdIndex, eight saved registers, commands."""
    end = len(dwords) if end is None else end
    return struct.pack("<II32x", end + 1 if size is None else size, end) + struct.pack(f"<{len(dwords)}I", *dwords)


@pytest.fixture
def host():
    """(sequencer, registers) of a card whose memory is decoded."""
    card = nvidia_card("ga102")
    change_command(card.config, on=2)
    registers = Registers(card)
    return Sequencer(Falcon(registers, GSP), Falcon(registers, SEC2), 0x1000, 0), registers


def test_operations_and_their_arguments_are_taken_apart():
    got = parse(program(WRITE, 0x10, 1, MODIFY, 0x20, 2, 3, POLL, 4, 5, 6, 7, 8, DELAY, 9, STORE, 10, 11, RESET, START))
    assert got == [
        (WRITE, (0x10, 1)),
        (MODIFY, (0x20, 2, 3)),
        (POLL, (4, 5, 6, 7, 8)),
        (DELAY, (9,)),
        (STORE, (10, 11)),
        (RESET, ()),
        (START, ()),
    ]
    assert parse(program()) == []


HOSTILE = {
    "shorter than its header": (b"\0" * 39, "has 39 bytes, its header alone 40"),
    "ends behind its buffer": (program(WRITE, 0, 0, size=2, end=3), "ends at dword 3, of 2"),
    "ends behind what came": (program(WRITE, 0, 0, end=9), "of 10 that it has and 3 that came"),
    "longer than any": (program(size=1 << 20, end=0), "of 1048576"),
    "an unknown operation": (program(9), "operation 0x9 at dword 0"),
    "cut arguments": (program(POLL, 1, 2), "ends in the arguments of operation 0x2 at dword 0"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_damaged_programs_are_refused(kind):
    payload, said = HOSTILE[kind]
    with pytest.raises(FirmwareError, match=said):
        parse(payload)


def test_registers_are_written_changed_and_awaited(host):
    sequencer, registers = host
    sequencer.run(program(WRITE, MAILBOX0, 0xF0F0, MODIFY, MAILBOX0, 0xFF, 0x0A, STORE, MAILBOX0, 3))
    assert registers.read(MAILBOX0) == 0xF00A
    assert sequencer._saved[3] == 0xF00A
    sequencer.run(program(POLL, MAILBOX0, 0xFF, 0x0A, 100, 0, DELAY, 1000))
    before = registers.clock.now_us
    with pytest.raises(
        DeviceTimeout, match=r"waits for register 0x110040 & 0xff = 0xb \(error 0x77\): it read 0x0000f00a"
    ):
        sequencer.run(program(POLL, MAILBOX0, 0xFF, 0x0B, 0xFFFF_FFFF, 0x77))
    assert registers.clock.now_us - before < 5_000_000
    before = registers.clock.now_us
    sequencer.run(program(DELAY, 0xFFFF_FFFF))
    assert registers.clock.now_us - before < 2_000_000


@pytest.mark.parametrize("address", [0x11_0042, 1 << 24, 0xFFFF_FFFC])
def test_a_program_stays_inside_of_the_registers(host, address):
    sequencer, _ = host
    for dwords in ((WRITE, address, 0), (MODIFY, address, 0, 0), (POLL, address, 0, 0, 1, 0), (STORE, address, 0)):
        with pytest.raises(FirmwareError, match=f"accesses register {address:#x}"):
            sequencer.run(program(*dwords))
    with pytest.raises(FirmwareError, match="at place 8 of 8"):
        sequencer.run(program(STORE, MAILBOX0, 8))


def test_any_bytes_are_operations_or_an_error():
    dice = random.Random(7)
    for _ in range(300):
        words = [dice.choice((dice.randrange(10), dice.getrandbits(32))) for _ in range(dice.randrange(40))]
        try:
            operations = parse(program(*words))
        except FirmwareError:
            continue
        assert sum(1 + len(arguments) for _, arguments in operations) == len(words)


def test_the_waits_of_a_program_add_up_to_a_bound(host):
    sequencer, registers = host
    with pytest.raises(DeviceTimeout, match="for more than 10000 ms and has done 10 of its 50 operations"):
        sequencer.run(program(*(DELAY, 1_000_000) * 50))
    assert registers.clock.now_us < 11_000_000
