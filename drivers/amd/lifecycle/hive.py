"""Cards that are linked by XGMI (a hive): a reset of the whole card takes all that are open here at the same time, and
none while others use a member.

Links are trained by both ends: amdgpu sends the reset to every member before it waits for the first. Source: amdgpu
amdgpu_device.c, amdgpu_do_asic_reset; amdgpu_xgmi.c. GUESS: members that nobody uses may stay as they are, since ringup
sends nothing over the links; amdgpu resets all.
"""

from __future__ import annotations

from collections.abc import Sequence

from ringup.drivers.amd.board.wiring import Blocks
from ringup.drivers.amd.smu.reset import begin, end
from ringup.drivers.transport.seam import TellsLinked


def check(blocks: Blocks, others: Sequence[Blocks]) -> None:
    """Raise `ValueError` for cards that are not linked with one, or are named twice."""
    hive = blocks.gmc.apertures.hive
    for one in others:
        if hive is None or one.gmc.apertures.hive != hive:
            raise ValueError(f"{one.device.name} is not linked with {blocks.device.name} (XGMI)")
    if len({id(one) for one in (blocks, *others)}) <= len(others):
        raise ValueError("a card is named twice among those that are reset together")


def used_by_others(blocks: Blocks) -> str:
    """Say which linked cards a reset of the whole card would break the links of; empty if there are none."""
    device = blocks.device
    if blocks.gmc.apertures.hive is None or not isinstance(device, TellsLinked):
        return ""
    return ", ".join(device.linked_holders())


def mode1_reset(members: Sequence[Blocks]) -> None:
    """Reset cards by mode 1 as `smu.reset.mode1_reset` does one: all are told before the first is waited for."""
    away = [(one, begin(one.device, one.nbio, one.smu)) for one in members]
    for one, gone in away:
        end(one.device, one.nbio, one.psp, gone)
