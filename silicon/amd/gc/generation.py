"""The generations of the graphics core: layouts of queue descriptors and scheduler frames, and the boot firmware.

Source: amdgpu v11_structs.h, v12_structs.h, mes_v11_api_def.h, mes_v12_api_def.h, gfx_v11_0.c and gfx_v12_0.c
(init_microcode), psp_gfx_if.h (firmware types).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ringup.autogen.amd import mes_v11, mes_v12, mqd, psp
from ringup.autogen.layout import Struct


@dataclass(frozen=True, slots=True)
class Generation:
    """What all chips of a generation share.

    `mes`: the module of the scheduler's frames. `boot`: firmware types that the RLC needs to boot; the other engines'
    are the same in all generations. `reset_unmaps`: the scheduler's RESET of a kernel's graphics queue leaves the queue
    unmapped: gfx_v12_0.c, reset_kgq, maps it again, gfx_v11_0.c does not.
    """

    compute_mqd: type[Struct]
    graphics_mqd: type[Struct]
    sdma_mqd: type[Struct]
    mes: Any
    boot: tuple[int, ...]
    reset_unmaps: bool


RDNA3 = Generation(
    mqd.v11_compute_mqd, mqd.v11_gfx_mqd, mqd.v11_sdma_mqd, mes_v11,
    (psp.GFX_FW_TYPE_RLC_IRAM, psp.GFX_FW_TYPE_RLC_DRAM_BOOT, psp.GFX_FW_TYPE_RLC_P, psp.GFX_FW_TYPE_RLC_V),
    False,
)  # fmt: skip
# its RLC files have header version 2.2, without RLC_P and RLC_V
RDNA4 = Generation(
    mqd.v12_compute_mqd, mqd.v12_gfx_mqd, mqd.v12_sdma_mqd, mes_v12,
    (psp.GFX_FW_TYPE_RLC_IRAM, psp.GFX_FW_TYPE_RLC_DRAM_BOOT), True,
)  # fmt: skip
