"""What differs between generations of the graphics core: its compute pipes, settings that the header does not explain
("golden" ones), parts that it has or lacks, and the words of a wave.

Source: amdgpu gfx_v11_0.c and gfx_v12_0.c (sw_init, init_golden_registers, config_gfx_rs64, cp_compute_enable,
read_wave_data), soc21.c, soc24.c.
"""

from __future__ import annotations

from typing import NamedTuple

from ringup.autogen.amd import gc as words
from ringup.autogen.amd import gc_pipe, gc_sq
from ringup.autogen.layout import Word
from ringup.drivers.amd.bus.registers import Version
from ringup.errors import NotSupported


class Golden(NamedTuple):
    """A setting from the kernel's table: the bits of `mask` are made those of `bits`."""

    word: type[Word]
    mask: int
    bits: int


class CoreRow(NamedTuple):
    """One generation.

    `pipes`: of the compute micro engine, which have queues. `started_pipes`: those that are given their program and
    started with it; amdgpu does so for all that the control register knows. `front_ends`: whether the engines of the
    graphics ring are given their programs too. `golden_first`: of the first silicon (revision 0) only. `data_share`:
    whether VMIDs have a global data share. `restarts_by_reset`: whether the command processor must be reset before its
    micro engine is started again. `sa_disable`: what is switched off, by fuses and by the driver. `wave_words`: words
    of a wave that are shown beside its status.
    """

    pipes: int
    started_pipes: int
    front_ends: bool
    golden: tuple[Golden, ...]
    golden_first: tuple[Golden, ...]
    data_share: bool
    restarts_by_reset: bool
    sa_disable: tuple[
        type[words.CC_GC_SA_UNIT_DISABLE | words.GRBM_CC_GC_SA_UNIT_DISABLE],
        type[words.GC_USER_SA_UNIT_DISABLE | words.GRBM_GC_USER_SA_UNIT_DISABLE],
    ]
    wave_words: tuple[type[Word], ...]


ROWS: dict[int, CoreRow] = {
    11: CoreRow(
        pipes=4,
        started_pipes=4,
        # the graphics ring is not used, and its engines stay halted
        front_ends=False,
        # no header names the bit
        golden=(Golden(gc_pipe.TCP_CNTL, 0x2000_0000, 0x2000_0000),),
        golden_first=(),
        data_share=True,
        restarts_by_reset=True,
        sa_disable=(words.CC_GC_SA_UNIT_DISABLE, words.GC_USER_SA_UNIT_DISABLE),
        wave_words=(gc_sq.SQ_WAVE_TRAPSTS,),
    ),
    12: CoreRow(
        pipes=2,
        started_pipes=4,
        # UNKNOWN: whether compute needs it. amdgpu does it, and so does tinygrad, which leaves it out for gfx11
        front_ends=True,
        golden=(Golden(gc_pipe.DB_MEM_CONFIG, 0x8000, 0x8000),),
        golden_first=(
            Golden(gc_pipe.DB_MEM_CONFIG, 0xF, 0xF),
            Golden(gc_pipe.CB_HW_CONTROL_1, 0x0300_0000, 0x0300_0000),
            Golden(gc_pipe.GL2C_CTRL5, 0x70, 0x20),
        ),
        data_share=False,
        # tinygrad, AM_GFX.reset_mec: the reset of the pipes is enough
        restarts_by_reset=False,
        sa_disable=(words.GRBM_CC_GC_SA_UNIT_DISABLE, words.GRBM_GC_USER_SA_UNIT_DISABLE),
        wave_words=(gc_sq.SQ_WAVE_STATE_PRIV, gc_sq.SQ_WAVE_EXCP_FLAG_PRIV, gc_sq.SQ_WAVE_EXCP_FLAG_USER),
    ),
}


def core_row(version: Version) -> CoreRow:
    """Return the row of a graphics core. Raises `NotSupported` for a generation without one."""
    if version[0] not in ROWS:
        known = ", ".join(map(str, ROWS))
        raise NotSupported(f"the graphics core is version {'.'.join(map(str, version))}; {known} are known")
    return ROWS[version[0]]
