"""The generations of the graphics core: layouts of queue descriptors and scheduler frames, and the boot firmware.

Source: amdgpu v9_structs.h, v11_structs.h, v12_structs.h, mes_v11_api_def.h, mes_v12_api_def.h, gfx_v11_0.c and
gfx_v12_0.c (init_microcode), gfx_v9_4_3.c (cp_compute_enable, mec_init), psp_gfx_if.h (firmware types).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ringup.autogen.amd import mes_v11, mes_v12, mqd, psp
from ringup.autogen.layout import Struct


@dataclass(frozen=True, slots=True)
class MecControl:
    """A register that halts and resets micro engines, and its fields by engine and pipe. `active`: the field that
    starts a pipe; empty if a pipe runs unless it is halted or reset.
    """

    name: str
    halt: str
    reset: str
    active: str = ""


@dataclass(frozen=True, slots=True)
class Generation:
    """What all chips of a generation share.

    `mes`: the module of the scheduler's frames; None without a scheduler. `boot`: firmware types that the RLC needs to
    boot; the other engines' are the same in all generations. `reset_unmaps`: the scheduler's RESET of a kernel's
    graphics queue leaves the queue unmapped: gfx_v12_0.c, reset_kgq, maps it again, gfx_v11_0.c does not.
    `microengines`: the compute micro engines, by their number in registers. `autoload`: the PSP's AUTOLOAD_RLC boots
    the core; otherwise the RLC runs as soon as its own firmware is loaded. `hubs`: blocks with a VM hub, and the
    prefixes of their registers. `packet_engines`: `me` of a compute queue in packets of the KIQ, and its number in
    registers. `shared_doorbells`: every core of a partition hears all doorbells of its queues, and the range of the
    compute micro engines keeps none from them. `gfx9_waves`: the sequencers show waves by GFX9's words, and
    SQ_IND_INDEX selects the SIMD.
    """

    compute_mqd: type[Struct]
    graphics_mqd: type[Struct] | None
    sdma_mqd: type[Struct]
    mes: Any
    boot: tuple[int, ...]
    reset_unmaps: bool
    microengines: tuple[int, ...] = (1,)
    mec: MecControl = MecControl("CP_MEC_RS64_CNTL", "mec_halt", "mec_pipe{pipe}_reset", "mec_pipe{pipe}_active")
    autoload: bool = True
    hubs: tuple[tuple[str, str], ...] = (("gc", "GC"), ("mmhub", "MM"))
    packet_engines: tuple[tuple[int, int], ...] = ((1, 1), (2, 2))
    shared_doorbells: bool = False
    gfx9_waves: bool = False


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
# compute only, with the micro engines before RS64; the KIQ is a queue of the second one. Source: gfx_v9_4_3.c
# (kiq_map_queues), amdgpu_gfx.c (amdgpu_gfx_kiq_acquire)
CDNA3 = Generation(
    mqd.v9_mqd, None, mqd.v9_sdma_mqd, None, (psp.GFX_FW_TYPE_RLC_G,), False,
    microengines=(1, 2), mec=MecControl("CP_MEC_CNTL", "mec_me{me}_halt", "mec_me{me}_pipe{pipe}_reset"), autoload=False,
    hubs=(("gc", ""), ("mmhub", "")), packet_engines=((0, 1), (1, 2)),
    shared_doorbells=True, gfx9_waves=True,
)  # fmt: skip
