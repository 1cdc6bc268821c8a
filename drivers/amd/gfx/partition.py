"""Whether the dies of a graphics core (XCCs) work together as the driver wants them: all in one partition, so that one
queue spans all of them.

Each die knows how many dies its partition has, and its own number among them. Source: amdgpu gfx_v9_4_3.c,
gfx_v9_4_3_switch_compute_partition and gfx_v9_4_3_get_xccs_per_xcp; gfx_v9_4_3_get_cu_info.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from ringup.autogen.amd.gc_cp import CP_CPC_DEBUG, CP_HYP_XCP_CTL
from ringup.drivers.amd.gfx.core import Gfx
from ringup.errors import FirmwareError

LOG = logging.getLogger(__name__)
WHOLE = 1  # one partition


def join(cores: Sequence[Gfx], partition: Callable[[int], None]) -> None:
    """See to it that all dies are in one partition. `partition(parts)` splits them into equal parts anew.

    Raises `FirmwareError` when the dies that the discovery table lists are not those that the card's firmware has
    joined.
    """
    if len(cores) == 1 or not _apart(cores):
        return
    LOG.info("the dies of the graphics core are not one partition: %s", "; ".join(_apart(cores)))
    partition(WHOLE)
    left = _apart(cores)
    if left:
        raise FirmwareError(
            f"the card's discovery table lists {len(cores)} dies of the graphics core (XCCs), and the card's firmware contradicts it: "
            f"{'; '.join(left)}; reset the card, or update its firmware"
        )


def _apart(cores: Sequence[Gfx]) -> list[str]:
    """Say which dies are not what they are in one partition of all."""
    seen = [core.block.read(CP_HYP_XCP_CTL) for core in cores]
    counts = {word.num_xcc_in_xcp for word in seen}
    if [word.virtual_xcc_id for word in seen] == [core.xcc for core in cores] and len(counts) == 1:
        count = counts.pop()
        return [] if count == len(cores) else [f"each says that it is one of {count}"]
    return [
        f"XCC {core.xcc} says that it is {word.virtual_xcc_id} of {word.num_xcc_in_xcp}"
        for core, word in zip(cores, seen, strict=True)
        if (word.virtual_xcc_id, word.num_xcc_in_xcp) != (core.xcc, len(cores))
    ]


def share_evenly(cores: Sequence[Gfx]) -> None:
    """Tell dies whose arrays all have the same units so: then a dispatch needs not be given out again."""
    for core in cores:
        shape = core.shape
        assert shape is not None  # the core is up
        even = len({mask.bit_count() for engine in shape.cu_masks for mask in engine}) == 1
        if even:
            core.block.update(CP_CPC_DEBUG, cpc_harvesting_relaunch_disable=1, cpc_harvesting_dispatch_disable=1)
