"""Waves as the sequencers show them: GRBM_GFX_INDEX selects a SIMD, SQ_IND_INDEX a wave slot and a word of it, SQ_IND_DATA reads it.

A model's grid counts wave slots by itself, so two grids at once may claim the same slot; the older one is shown.
Source: amdgpu gfx_v11_0.c, wave_read_ind and gfx_v11_0_read_wave_data; gc_11_0_0_offset.h, ixSQ_WAVE_*.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ringup.autogen.amd import gc, gc_sq
from ringup.autogen.layout import Field, Word
from ringup.silicon.amd.grbm import Slot
from ringup.silicon.cells import Cells
from ringup.silicon.shader.state import (
    EXEC_HI,
    EXEC_LO,
    HW_ID1,
    HW_ID2,
    MODE,
    PC_HI,
    PC_LO,
    STATUS,
    TRAPSTS,
    WaveState,
)

OF_WAVE: dict[type[Word], int] = {  # what of a wave's state a word shows
    gc_sq.SQ_WAVE_MODE: MODE,
    gc_sq.SQ_WAVE_STATUS: STATUS,
    gc_sq.SQ_WAVE_TRAPSTS: TRAPSTS,
    gc_sq.SQ_WAVE_PC_LO: PC_LO,
    gc_sq.SQ_WAVE_PC_HI: PC_HI,
    gc_sq.SQ_WAVE_EXEC_LO: EXEC_LO,
    gc_sq.SQ_WAVE_EXEC_HI: EXEC_HI,
    gc_sq.SQ_WAVE_HW_ID1: HW_ID1,
}


class Instance(Word):
    """GRBM_GFX_INDEX.instance_index of a sequencer. GUESS: laid out as in the sequencer's interrupt words (kfd_int_process_v11.c)."""

    simd = Field(1, 0)
    wgp = Field(5, 2)


class Sequencers:
    """The index registers of all sequencers. `waves` gives what runs now, with the queue it came from."""

    def __init__(
        self, cells: Cells, version: tuple[int, int, int], waves: Callable[[], Iterable[tuple[Slot, WaveState]]]
    ) -> None:
        self._cells, self._waves = cells, waves
        self._words = {word.place(version)[0]: place for word, place in OF_WAVE.items()}
        self._active = gc_sq.SQ_WAVE_ACTIVE.place(version)[0]
        self._owner = gc_sq.SQ_WAVE_HW_ID2.place(version)[0]
        cells.on_read("SQ_IND_DATA", self._data)

    def _data(self) -> int:
        index = gc_sq.SQ_IND_INDEX(self._cells["SQ_IND_INDEX"])
        here = self._selected()
        if index.index == self._active:
            return sum(1 << number for number in here)
        if index.wave_id not in here:
            return 0
        slot, wave = here[index.wave_id]
        if index.index == self._owner:
            seen = gc_sq.SQ_WAVE_HW_ID2(int(wave.words[HW_ID2]))
            return int(seen.replace(me_id=slot.me, pipe_id=slot.pipe, queue_id=slot.queue))
        place = self._words.get(index.index)
        return 0 if place is None else int(wave.words[place])

    def _selected(self) -> dict[int, tuple[Slot, WaveState]]:
        """Return the waves of the selected SIMD by slot."""
        chosen = gc.GRBM_GFX_INDEX(self._cells["GRBM_GFX_INDEX"])
        unit = Instance(chosen.instance_index & 0x3F)
        found: dict[int, tuple[Slot, WaveState]] = {}
        for slot, wave in self._waves():
            at = gc_sq.SQ_WAVE_HW_ID1(int(wave.words[HW_ID1]))
            if (at.se_id, at.sa_id, at.wgp_id, at.simd_id) == (chosen.se_index, chosen.sa_index, unit.wgp, unit.simd):
                found.setdefault(at.wave_id, (slot, wave))
        return found
