"""Waves that are on the graphics core, seen through the sequencers' index registers: where each stands and how it is.

Source: amdgpu gfx_v11_0.c (wave_read_ind, gfx_v11_0_read_wave_data), gfx_v12_0.c, gfx_v9_4_3.c.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ringup.autogen.amd import gc_sq
from ringup.autogen.layout import Field, Word
from ringup.drivers.amd.bus.registers import Block
from ringup.drivers.amd.gfx.rows import core_row
from ringup.drivers.amd.gfx.shape import Shape, instance

SIMDS = 4  # of a work group processor, of a compute unit of GFX9
VALID = 1 << 16  # SQ_WAVE_STATUS.valid of gc_9_4_3_sh_mask.h


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

    `wgp`: the work-group processor, or the compute unit of GFX9. `xcc`: the die, of a core of several. `more`: the
    words that its generation has beside the status, exceptions among them.
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
    xcc: int | None = None

    def __str__(self) -> str:
        """Say it in one line."""
        more = "".join(f", {word!r}" for word in self.more if int(word))
        die = "" if self.xcc is None else f"XCC {self.xcc} "
        return (
            f"wave {die}{self.engine}.{self.array}.{self.wgp}.{self.simd}.{self.slot} vmid {self.vmid} queue 1.{self.pipe}.{self.queue} "
            f"at {self.pc:#x}, exec {self.exec_mask:#x}, {self.status!r}{more}"
        )


def waves(gc: Block, shape: Shape, limit: int, xcc: int | None = None) -> list[Wave]:
    """Return at most `limit` waves; the core must be awake. One read for each SIMD, or each slot where no register has
    a bit for every wave, and some for each wave.
    """
    found: list[Wave] = []
    size = core_row(gc.version).cus_of_unit
    for engine, array in shape.arrays:
        for wgp in range(shape.design.cus_per_array // size):
            if shape.cu_masks[engine][array] >> size * wgp & (1 << size) - 1:
                for simd in range(SIMDS):
                    found.extend(_of_simd(gc, engine, array, wgp, simd, xcc))
                    if len(found) >= limit:
                        return found[:limit]
    return found


def _of_simd(gc: Block, engine: int, array: int, wgp: int, simd: int, xcc: int | None) -> Iterator[Wave]:
    row = core_row(gc.version)
    # where the index selects the SIMD, the instance is the unit alone
    unit = wgp if row.active is None else int(Unit(wgp=wgp, simd=simd))
    with instance(gc, engine, array, unit):
        if row.active is None:
            there = [slot for slot in range(row.waves) if int(_read(gc, slot, gc_sq.SQ_WAVE_STATUS, simd)) & VALID]
        else:
            active = int(_read(gc, 0, row.active))
            there = [slot for slot in range(row.waves) if active >> slot & 1]
        for slot in there:
            yield _one(gc, engine, array, wgp, simd, slot, xcc)


def _one(gc: Block, engine: int, array: int, wgp: int, simd: int, slot: int, xcc: int | None) -> Wave:
    row = core_row(gc.version)

    def read(word: type[Word]) -> Word:
        return _read(gc, slot, word, simd if row.active is None else None)

    owner = row.wave_owner.at(gc.version)(int(read(row.wave_owner)))
    return Wave(
        engine=engine,
        array=array,
        wgp=wgp,
        simd=simd,
        slot=slot,
        vmid=owner.vm_id,
        pipe=owner.pipe_id,
        queue=owner.queue_id,
        pc=int(read(gc_sq.SQ_WAVE_PC_LO)) | int(read(gc_sq.SQ_WAVE_PC_HI)) << 32,
        exec_mask=int(read(gc_sq.SQ_WAVE_EXEC_LO)) | int(read(gc_sq.SQ_WAVE_EXEC_HI)) << 32,
        status=read(gc_sq.SQ_WAVE_STATUS),
        more=tuple(read(word) for word in row.wave_words),
        xcc=xcc,
    )


def _read(gc: Block, slot: int, word: type[Word], simd: int | None = None) -> Word:
    """Read a word of a wave of the selected SIMD; `simd`: select it, where the index does that."""
    index, _ = word.place(gc.version)
    select = {} if simd is None else {"simd_id": simd, "force_read": 1}
    gc.write(gc.make(gc_sq.SQ_IND_INDEX, wave_id=slot, index=index, **select))
    return word.at(gc.version)(int(gc.read(gc_sq.SQ_IND_DATA)))
