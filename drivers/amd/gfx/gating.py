"""Clock gating: idle parts of the graphics core and the memory hub get no clock. This saves power and changes nothing
else.

Switched on when all else is up, and off before anything is stopped. Source: amdgpu soc21.c and soc24.c (cg_flags of
each chip), gfx_v11_0_update_gfx_clock_gating, gfx_v12_0_update_gfx_clock_gating, mmhub_v3_0_set_clockgating,
mmhub_v4_1_0_set_clockgating.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ringup.autogen.amd import gc_cp, gc_rlc, sdma
from ringup.autogen.amd.gc_hqd import CP_RB_WPTR_POLL_CNTL
from ringup.autogen.amd.mmhub import DAGB0_CNTL_MISC2, DAGB1_CNTL_MISC2, MM_ATC_L2_MISC_CG
from ringup.autogen.layout import Word
from ringup.drivers.amd.bus.registers import Block, Version
from ringup.drivers.amd.gfx.core import Gfx, awake
from ringup.drivers.amd.gfx.sdma import SdmaEngine

IDLE_THRESHOLD, SLEEP_DELAY = 0x36, 0xF  # Source: gfx_v11_0_update_coarse_grain_clock_gating, as the next line's
POLL_FREQUENCY, IDLE_POLLS = 0x100, 0x90
_COARSE = ("gfxip_cgcg_override", "gfxip_cgls_override")
_MEDIUM = ("grbm_cgtt_sclk_override", "rlc_cgtt_sclk_override", "gfxip_mgcg_override")
_REPEATERS, _MEMORIES, _COUNTERS = "gfxip_repeater_fgcg_override", "gfxip_fgcg_override", "perfmon_clock_state"
_GRAPHICS_3D, _RLC_REPEATERS = "gfxip_gfx3d_cg_override", "rlc_repeater_fgcg_override"
_IDLE_INTERRUPTS = ("cntx_busy_int_enable", "cntx_empty_int_enable", "cmp_busy_int_enable", "gfx_idle_int_enable")


class Gate(NamedTuple):
    """A register of the memory hub, and which of its one-bit fields are 1 and which are 0 while clocks are gated."""

    word: type[Word]
    set: tuple[str, ...] = ()
    cleared: tuple[str, ...] = ()


class GatingRow(NamedTuple):
    """What a chip may gate: the overrides to clear, the controls of coarse gating, and what of its memory hub.
    `threshold`, `polls`: how long an idle core waits. `tells_idle`: whether the RLC learns from interrupts that the
    core and its copy engines are idle.
    """

    overrides: tuple[str, ...]
    memory_hub: Sequence[Gate] = ()
    coarse: tuple[type[gc_rlc.RLC_CGCG_CGLS_CTRL | gc_rlc.RLC_CGCG_CGLS_CTRL_3D], ...] = (gc_rlc.RLC_CGCG_CGLS_CTRL,)
    threshold: int = IDLE_THRESHOLD
    polls: int = IDLE_POLLS
    tells_idle: bool = True


_ALL = (*_COARSE, *_MEDIUM, _REPEATERS, _MEMORIES, _COUNTERS)
_RETURNS = ("disable_rdret_tap_chain_fgcg", "disable_wrret_tap_chain_fgcg")
_GFX12 = GatingRow(
    (*_ALL, _GRAPHICS_3D, _RLC_REPEATERS),
    # amdgpu leaves MM_ATC_L2_MISC_CG alone here
    (Gate(DAGB0_CNTL_MISC2, cleared=_RETURNS), Gate(DAGB1_CNTL_MISC2, cleared=_RETURNS)),
    (gc_rlc.RLC_CGCG_CGLS_CTRL, gc_rlc.RLC_CGCG_CGLS_CTRL_3D),
)
_ROWS: dict[Version, GatingRow] = {
    # gfx_v9_4_3_xcc_update_gfx_clock_gating; cg_flags of soc15.c
    (9, 4, 3): GatingRow(
        (*_COARSE, *_MEDIUM, _MEMORIES, "gfxip_mgls_override", "gfxip_rep_fgcg_override"),
        threshold=0x2710,
        polls=0x3345,
        tells_idle=False,
    ),
    (11, 0, 0): GatingRow(_ALL, (Gate(MM_ATC_L2_MISC_CG, set=("enable", "mem_ls_enable")),)),
    (11, 0, 2): GatingRow((*_COARSE, _REPEATERS)),
    (11, 0, 3): GatingRow((*_COARSE, *_MEDIUM, _REPEATERS)),
    (12, 0, 0): _GFX12,
    (12, 0, 1): _GFX12,
}


def set_gating(cores: Sequence[Gfx], mmhub: Block, engines: tuple[SdmaEngine, ...], on: bool) -> None:
    """Let idle clocks stop, or keep all on. A chip without a row keeps its firmware's settings."""
    row = _ROWS.get(cores[0].block.version)
    if row is None:
        return
    with awake(cores):
        for core in cores:
            _gate_core(core.block, row, on)
            if row.tells_idle:
                for engine in engines:
                    idle = (sdma.SDMA0_RLC_CGCG_CTRL, sdma.SDMA1_RLC_CGCG_CTRL)[engine.index]
                    engine.block.ensure(idle, cgcg_int_enable=on)
    for gate in row.memory_hub:
        mmhub.ensure(gate.word, **dict.fromkeys(gate.set, int(on)), **dict.fromkeys(gate.cleared, int(not on)))


def _gate_core(gc: Block, row: GatingRow, on: bool) -> None:
    gc.ensure(gc_rlc.RLC_CGTT_MGCG_OVERRIDE, **dict.fromkeys(row.overrides, int(not on)))
    for control in row.coarse:
        gc.ensure(
            control,
            cgcg_gfx_idle_threshold=row.threshold,
            cgls_rep_compansat_delay=SLEEP_DELAY,
            cgcg_en=on,
            cgls_en=on,
        )
    gc.ensure(CP_RB_WPTR_POLL_CNTL, poll_frequency=POLL_FREQUENCY, idle_poll_count=row.polls)
    if row.tells_idle:
        for word in (gc_cp.CP_INT_CNTL, gc_cp.CP_INT_CNTL_RING0):
            gc.ensure(word, **dict.fromkeys(_IDLE_INTERRUPTS, int(on)))
