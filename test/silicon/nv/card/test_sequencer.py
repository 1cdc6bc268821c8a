"""The CPU sequencer: what GSP-RM has the CPU do while it starts.

The sequence is carried out as kgspExecuteSequencerBuffer_IMPL (kernel_gsp.c) and kgspExecuteSequencerCommand_GA102 of
NVIDIA's open kernel modules do.
"""

from __future__ import annotations

import struct

import pytest

from ringup.silicon.nv.gsp.firmware import Phase

GSP, SEC2, PAGE2 = 0x110000, 0x840000, 0x1000
SCRATCH_14, HANDED_OFF = 0x1180F8, 1 << 26
RUN_CPU_SEQUENCER, INIT_DONE = 0x1002, 0x1001
WRITE, POLL, DELAY, CORE_RESET, CORE_RESUME = 0, 2, 3, 5, 8


class Sequencer:
    """Carries a sequence out on a card that a `Starter` has started."""

    def __init__(self, starter, message):
        self.starter = starter
        size, used = struct.unpack_from("<II", message.body)
        assert used < size
        self.words = list(struct.unpack_from(f"<{used}I", message.body, 40))
        assert len(message.body) == 40 + 4 * used

    def operations(self):
        words = iter(self.words)
        for operation in words:
            yield operation, [next(words) for _ in range({WRITE: 2, POLL: 5, DELAY: 1}.get(operation, 0))]

    def run(self, **replace):
        for operation, values in self.operations():
            match operation:
                case _ if operation == WRITE:
                    self.starter.wr(*values)
                case _ if operation == POLL:
                    self.starter.wait(*values[:3])
                case _ if operation == DELAY:
                    self.starter.card.clock.sleep_us(*values)
                case _ if operation == CORE_RESET:
                    self.starter.reset(GSP)
                case _:
                    assert operation == CORE_RESUME
                    self.resume(**replace)

    def resume(self, arguments=None, riscv=True):
        starter = self.starter
        starter.reset(GSP)
        if riscv and not starter.turing:
            starter.wr(GSP + PAGE2 + 0x668, 0x111)
        arguments = starter.arguments if arguments is None else arguments
        starter.wr(GSP + 0x40, arguments & 0xFFFFFFFF)
        starter.wr(GSP + 0x44, arguments >> 32)
        starter.wr(SEC2 + 0x100, 2)
        starter.wait(SEC2 + 0x100, 0x10, 0x10)


@pytest.fixture
def waiting(board, starter, cpu_of):
    """A card whose GSP-RM has been described the system, and waits for the CPU: the CPU's side, and the sequence."""
    starter.set_aside(4 << 20)
    cpu = cpu_of(board).prepare()
    starter.arguments = cpu.arguments
    assert starter.start() == 0
    cpu.settle()
    message = cpu.receive()
    assert message.function == RUN_CPU_SEQUENCER
    return cpu, Sequencer(starter, message)


def test_gsp_rm_goes_on_after_the_sequence(board, starter, waiting):
    cpu, sequencer = waiting
    assert cpu.receive() is None
    sequencer.run()
    assert starter.rd(SCRATCH_14) & HANDED_OFF
    assert starter.rd(SEC2 + 0x40) == 0
    assert starter.active
    cpu.settle()
    assert cpu.receive().function == INIT_DONE
    assert board.firmware_of_gsp.phase is Phase.RUNNING
    assert board.violations == []


def test_nothing_is_answered_before_the_sequence(starter, waiting):
    cpu, sequencer = waiting
    cpu.push(65, bytes(2168))
    cpu.ring()
    assert cpu.receive() is None
    sequencer.run()
    cpu.settle()
    assert [cpu.receive().function, cpu.receive().function] == [INIT_DONE, 65]


def test_other_arguments_do_not_resume_gsp_rm(board, starter, waiting):
    cpu, sequencer = waiting
    sequencer.run(arguments=0x1234_5000)
    assert not starter.rd(SCRATCH_14) & HANDED_OFF
    assert starter.rd(SEC2 + 0x40) != 0
    assert not starter.active
    cpu.settle()
    assert cpu.receive() is None
    assert "resume: the arguments are at 0x12345000" in board.violations[0].text


def test_nova_core_resumes_gsp_rm_with_the_falcons_core_selected(board, starter, waiting):
    cpu, sequencer = waiting
    sequencer.run(riscv=False)
    assert starter.active
    cpu.settle()
    assert cpu.receive().function == INIT_DONE
    assert board.violations == []


def test_sec2_resumes_gsp_rm_once(board, waiting):
    cpu, sequencer = waiting
    sequencer.run()
    cpu.settle()
    sequencer.resume()
    assert "SEC2 is to resume GSP-RM, which does not wait for it" in board.violations[-1].text


def test_a_reset_of_the_chip_ends_the_wait(board, waiting):
    board.config.write(0x80, board.config.read(0x80) | 1 << 15)
    board.settle()
    assert board.firmware_of_gsp.phase is Phase.OFF
    assert not board.gsp.riscv_active
