"""What differs between generations of the graphics core: its compute pipes, settings that the header does not explain
("golden" ones), parts that it has or lacks, and the words of a wave.

Source: amdgpu gfx_v11_0.c, gfx_v12_0.c and gfx_v9_4_3.c (sw_init, init_golden_registers, config_gfx_rs64,
cp_compute_enable, read_wave_data), soc21.c, soc24.c; amdkfd kfd_device_queue_manager_v9.c, update_qpd_v9.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from ringup.autogen.amd import gc as words
from ringup.autogen.amd import gc_cp, gc_pipe, gc_sq, gc_ucode
from ringup.autogen.layout import Word
from ringup.drivers.amd.bus.registers import Version
from ringup.errors import NotSupported


class Golden(NamedTuple):
    """A setting from the kernel's table: the bits of `mask` are made those of `bits`."""

    word: type[Word]
    mask: int
    bits: int


_RS64_STATUS: tuple[type[Word], ...] = (
    words.GRBM_STATUS3,
    gc_cp.CP_MEC_RS64_CNTL,
    gc_cp.CP_MEC_RS64_INSTR_PNTR,
)


class MicroEngine(NamedTuple):
    """How the compute micro engine is controlled. `run` and `halt`: fields of `control`; `whole`: the register is
    written whole. `starts`: the registers that hold where a pipe's program begins, and the pipes that are told; None:
    its firmware begins at its first byte.
    """

    control: type[Word]
    halted: str
    run: Mapping[str, int]
    halt: Mapping[str, int]
    whole: bool
    starts: tuple[tuple[type[Word], type[Word]], int] | None


def _rs64(pipes: int) -> MicroEngine:
    resets, active = ([f"mec_pipe{pipe}_{what}" for pipe in range(pipes)] for what in ("reset", "active"))
    both = ("mec_invalidate_icache", "mec_halt", *resets)
    return MicroEngine(
        gc_cp.CP_MEC_RS64_CNTL,
        halted="mec_halt",
        run={**dict.fromkeys(both, 0), **dict.fromkeys(active, 1)},
        halt={**dict.fromkeys(both, 1), **dict.fromkeys(active, 0)},
        whole=False,
        starts=((gc_ucode.CP_MEC_RS64_PRGRM_CNTR_START, gc_ucode.CP_MEC_RS64_PRGRM_CNTR_START_HI), pipes),
    )


# gfx_v9_4_3_xcc_cp_compute_enable
_F32_HALT = (
    "mec_invalidate_icache", "mec_me1_pipe0_reset", "mec_me1_pipe1_reset", "mec_me1_pipe2_reset", "mec_me1_pipe3_reset",
    "mec_me2_pipe0_reset", "mec_me2_pipe1_reset", "mec_me1_halt", "mec_me2_halt",
)  # fmt: skip


class CoreRow(NamedTuple):
    """One generation.

    `pipes`: of the compute micro engine, which have `queues` queues each. `front_ends`: whether the engines of the
    graphics ring are given their programs too. `golden_first`: of the first silicon (revision 0) only, `golden_later`:
    of later silicon. `data_share`: whether VMIDs have a global data share. `shader_memory`: fields of SH_MEM_CONFIG
    that this generation has. `autoload`: whether the run-list controller loads the engines, so that the driver waits
    for it. `read_timeout`: whether the driver sets one. `restarts_by_reset`: whether the command processor must be
    reset before its micro engine is started again. `vmid_reset`: whether a soft reset resets VMIDs too. `sa_disable`:
    what arrays are switched off, by fuses and by the driver; None: arrays are not. `cus_off`: the field of
    CC_GC_SHADER_ARRAY_CONFIG that says which units of an array are off, each of `cus_of_unit` compute units. `arrays`:
    what the selector calls an array. `wave_owner`: the word of a wave that tells whose it is. `wave_words`: words of a
    wave that are shown beside its status. `active`: the word with a bit for each wave of a SIMD; None: each wave's
    status tells. `waves`: slots of a SIMD for waves. `captures_clock`: whether the time is held in registers of the
    run-list controller. `post_mortem`: registers of this generation alone.
    """

    pipes: int
    queues: int
    micro_engine: MicroEngine
    front_ends: bool
    golden: tuple[Golden, ...]
    golden_first: tuple[Golden, ...]
    data_share: bool
    restarts_by_reset: bool
    wave_words: tuple[type[Word], ...]
    sa_disable: (
        tuple[
            type[words.CC_GC_SA_UNIT_DISABLE | words.GRBM_CC_GC_SA_UNIT_DISABLE],
            type[words.GC_USER_SA_UNIT_DISABLE | words.GRBM_GC_USER_SA_UNIT_DISABLE],
        ]
        | None
    )
    golden_later: tuple[Golden, ...] = ()
    shader_memory: Mapping[str, int] = MappingProxyType({"initial_inst_prefetch": 3})
    autoload: bool = True
    read_timeout: bool = True
    vmid_reset: bool = True
    cus_off: str = "inactive_wgps"
    cus_of_unit: int = 2
    arrays: str = "sa"
    wave_owner: type[gc_sq.SQ_WAVE_HW_ID2 | gc_sq.SQ_WAVE_HW_ID] = gc_sq.SQ_WAVE_HW_ID2
    active: type[Word] | None = gc_sq.SQ_WAVE_ACTIVE
    waves: int = 16
    captures_clock: bool = False
    post_mortem: tuple[type[Word], ...] = _RS64_STATUS


ROWS: dict[int, CoreRow] = {
    9: CoreRow(
        pipes=4,
        queues=8,
        micro_engine=MicroEngine(
            gc_cp.CP_MEC_CNTL, "mec_me1_halt", {}, dict.fromkeys(_F32_HALT, 1), whole=True, starts=None
        ),
        front_ends=False,
        # GOLDEN_GB_ADDR_CONFIG of gfx_v9_4_3.c
        golden=(Golden(words.GB_ADDR_CONFIG, 0xFFFF_FFFF, 0x2A11_4042),),
        # REDUCE_FIFO_DEPTH_BY_2 and SPARE
        golden_first=(Golden(gc_pipe.TCP_UTCL1_CNTL1, 0x3000_0000, 0x2000_0000),),
        golden_later=(Golden(gc_pipe.TCP_UTCL1_CNTL2, 0xFF, 0x1),),
        data_share=True,
        # no access is tried again after a fault, since no page comes later
        shader_memory=MappingProxyType({"retry_disable": 1, "f8_mode": 1}),
        autoload=False,
        read_timeout=False,
        restarts_by_reset=True,
        vmid_reset=False,
        sa_disable=None,
        cus_off="inactive_cus",
        cus_of_unit=1,
        arrays="sh",
        wave_owner=gc_sq.SQ_WAVE_HW_ID,
        active=None,
        # LLVM's AMDGPUBaseInfo.cpp, getMaxWavesPerEU of gfx90a and later
        waves=8,
        captures_clock=True,
        wave_words=(gc_sq.SQ_WAVE_TRAPSTS,),
        post_mortem=(gc_cp.CP_MEC_CNTL, gc_cp.CP_MEC1_INSTR_PNTR),
    ),
    11: CoreRow(
        pipes=4,
        queues=4,
        micro_engine=_rs64(4),
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
        queues=4,
        # amdgpu starts all pipes that the control register knows
        micro_engine=_rs64(4),
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
