"""Waves that are on the graphics core, seen through the sequencers' index registers: where each stands and how it is.

Source: amdgpu gfx_v11_0.c (wave_read_ind, gfx_v11_0_read_wave_data), gfx_v12_0.c.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ringup.autogen.amd import gc_sq
from ringup.autogen.layout import Field, Word
from ringup.drivers.amd.bus.registers import Block
from ringup.drivers.amd.gfx.rows import core_row
from ringup.drivers.amd.gfx.shape import CUS_OF_WGP, Shape, instance

SIMDS = 4  # of a work group processor
SLOTS = 16  # waves of a SIMD. Source: gc_info_v1_0 of navi3x, gc_max_waves_per_simd


class Unit(Word):
    """GRBM_GFX_INDEX.instance_index of a sequencer: the SIMD is part of it. Source: gfx_v11_0_read_wave_data.

    GUESS: which bits hold it; the interrupt words of the sequencer lie so (kfd_int_process_v11.c,
    SQ_INTERRUPT_WORD_WAVE_CTXID1).
    """

    simd = Field(1, 0)
    wgp = Field(5, 2)


@dataclass(frozen=True, slots=True)
class Wave:
    """A wave: its place, the queue and VMID it belongs to, the address of its next instruction and its status.

    `more`: the words that its generation has beside the status, exceptions among them.
    """

    engine: int
    array: int
    wgp: int
    simd: int
    slot: int
    vmid: int
    pipe: int
    queue: int
    pc: int
    exec_mask: int
    status: Word
    more: tuple[Word, ...]

    def __str__(self) -> str:
        """Say it in one line."""
        more = "".join(f", {word!r}" for word in self.more if int(word))
        return (
            f"wave {self.engine}.{self.array}.{self.wgp}.{self.simd}.{self.slot} vmid {self.vmid} queue 1.{self.pipe}.{self.queue} "
            f"at {self.pc:#x}, exec {self.exec_mask:#x}, {self.status!r}{more}"
        )


def waves(gc: Block, shape: Shape, limit: int) -> list[Wave]:
    """Return at most `limit` waves; the core must be awake. One read for each SIMD and some for each wave."""
    found: list[Wave] = []
    for engine, array in shape.arrays:
        for wgp in range(shape.design.cus_per_array // CUS_OF_WGP):
            if shape.cu_masks[engine][array] >> CUS_OF_WGP * wgp & 0b11:
                for simd in range(SIMDS):
                    found.extend(_of_simd(gc, engine, array, wgp, simd))
                    if len(found) >= limit:
                        return found[:limit]
    return found


def _of_simd(gc: Block, engine: int, array: int, wgp: int, simd: int) -> Iterator[Wave]:
    with instance(gc, engine, array, int(Unit(wgp=wgp, simd=simd))):
        active = int(_read(gc, 0, gc_sq.SQ_WAVE_ACTIVE))
        for slot in range(SLOTS):
            if active >> slot & 1:
                yield _one(gc, engine, array, wgp, simd, slot)


def _one(gc: Block, engine: int, array: int, wgp: int, simd: int, slot: int) -> Wave:
    owner = gc_sq.SQ_WAVE_HW_ID2.at(gc.version)(int(_read(gc, slot, gc_sq.SQ_WAVE_HW_ID2)))
    return Wave(
        engine=engine,
        array=array,
        wgp=wgp,
        simd=simd,
        slot=slot,
        vmid=owner.vm_id,
        pipe=owner.pipe_id,
        queue=owner.queue_id,
        pc=int(_read(gc, slot, gc_sq.SQ_WAVE_PC_LO)) | int(_read(gc, slot, gc_sq.SQ_WAVE_PC_HI)) << 32,
        exec_mask=int(_read(gc, slot, gc_sq.SQ_WAVE_EXEC_LO)) | int(_read(gc, slot, gc_sq.SQ_WAVE_EXEC_HI)) << 32,
        status=_read(gc, slot, gc_sq.SQ_WAVE_STATUS),
        more=tuple(_read(gc, slot, word) for word in core_row(gc.version).wave_words),
    )


def _read(gc: Block, slot: int, word: type[Word]) -> Word:
    """Read a word of a wave of the selected SIMD."""
    index, _ = word.place(gc.version)
    gc.write(gc.make(gc_sq.SQ_IND_INDEX, wave_id=slot, index=index))
    return word.at(gc.version)(int(gc.read(gc_sq.SQ_IND_DATA)))
