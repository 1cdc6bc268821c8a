"""The memory controllers of MI300X: registers of their channels, which count errors. The model's memory has none.

Source: umc_v12_0.c, umc_v12_0.h (distances), amdgpu_umc.h. The block's header names those of the first channel.
"""

from __future__ import annotations

from ringup.silicon.amd.common.parts import Board

# in bytes. GUESS: the base, which is that of the database's first instance
BASE = 0x5_0000
INSTANCES, INSTANCE_BYTES = 8, 0x10_0000
CHANNELS, CHANNEL_BYTES = 4, 0x1000
# where a host finds the blocks of another I/O die: amdgpu's aqua_vanjaram_encode_ext_smn_addressing
OTHER_DIE, DIE_SHIFT = 1 << 34, 32


class Channels:
    """The registers of all channels of all dies. What a driver writes is kept and means nothing: counters read as they
    were set.
    """

    def __init__(self, board: Board, dies: int) -> None:
        self._values: dict[int, int] = {}
        for die in range(dies):
            other = OTHER_DIE | die << DIE_SHIFT if die else 0
            for instance in range(INSTANCES):
                first = (BASE + instance * INSTANCE_BYTES) | other
                board.space.door(first, CHANNELS * CHANNEL_BYTES, self._read, self._write)

    def reset(self) -> None:
        """Forget what was written."""
        self._values.clear()

    def _read(self, address: int) -> int:
        return self._values.get(address, 0)

    def _write(self, address: int, value: int) -> None:
        self._values[address] = value
