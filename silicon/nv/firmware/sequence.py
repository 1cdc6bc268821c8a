"""Programs of the CPU sequencer: GSP-RM has the CPU access registers for it while its own core stands still.

Source: rmgspseq.h of NVIDIA's open kernel modules: an operation, then as many words as it takes.
"""

from __future__ import annotations

from ringup.autogen.nv import gsp_queue as rows

# The header calls the unit milliseconds, and both NVIDIA's and Linux's drivers count microseconds.
TIMEOUT = 1_000_000


class Sequence(list[int]):
    """The words of a program, as they are appended. Addresses are byte addresses in BAR0."""

    def write(self, address: int, value: int) -> None:
        """Write a register."""
        self += (rows.GSP_SEQ_BUF_OPCODE_REG_WRITE, address, value)

    def poll(self, address: int, mask: int, value: int) -> None:
        """Wait until bits of a register have a value."""
        self += (
            rows.GSP_SEQ_BUF_OPCODE_REG_POLL,
            address,
            mask,
            value,
            TIMEOUT,
            rows.GSP_SEQUENCER_BUFFER_ERR_TIMEOUT1,
        )

    def delay(self, time_us: int) -> None:
        """Wait."""
        self += (rows.GSP_SEQ_BUF_OPCODE_DELAY_US, time_us)

    def core_reset(self) -> None:
        """Reset the GSP's core."""
        self.append(rows.GSP_SEQ_BUF_OPCODE_CORE_RESET)

    def core_resume(self) -> None:
        """Reset the GSP into RISC-V, give it its arguments again, start SEC2, and wait until GSP-RM goes on."""
        self.append(rows.GSP_SEQ_BUF_OPCODE_CORE_RESUME)
