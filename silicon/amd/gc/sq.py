"""Waves as the sequencers show them: GRBM_GFX_INDEX selects a SIMD, SQ_IND_INDEX a wave slot and a word, SQ_IND_DATA
reads it.

SQ_CMD sends commands to waves. Each grid of the model numbers wave slots on its own, so two concurrent grids may use
the same slot; the older one is shown. Source: amdgpu gfx_v11_0.c, wave_read_ind, gfx_v11_0_read_wave_data and
gfx_v11_0_ring_soft_recovery; gfx_v9_4_3.c, the same; gc_11_0_0_offset.h, ixSQ_WAVE_*; soc21_enum.h, SQ_IND_CMD_*.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ringup.autogen.amd import gc_sq
from ringup.autogen.layout import Field, Word
from ringup.errors import Unmodelled
from ringup.silicon.amd.gc.grbm import Grbm, Slot
from ringup.silicon.common.cells import Cells
from ringup.silicon.shader.common.launch import gfx9_place
from ringup.silicon.shader.common.state import (
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

OF_WAVE: dict[type[Word], int] = {  # the part of a wave's state that a word shows
    gc_sq.SQ_WAVE_MODE: MODE,
    gc_sq.SQ_WAVE_STATUS: STATUS,
    gc_sq.SQ_WAVE_TRAPSTS: TRAPSTS,
    gc_sq.SQ_WAVE_PC_LO: PC_LO,
    gc_sq.SQ_WAVE_PC_HI: PC_HI,
    gc_sq.SQ_WAVE_EXEC_LO: EXEC_LO,
    gc_sq.SQ_WAVE_EXEC_HI: EXEC_HI,
    gc_sq.SQ_WAVE_HW_ID1: HW_ID1,
}


NOTHING, KILL = 0, 3  # SQ_IND_CMD_CMD
# SQ_IND_CMD_MODE: to every wave of the selected sequencers
BROADCAST = 1


class Instance(Word):
    """GRBM_GFX_INDEX.instance_index of a sequencer. GUESS: laid out as in the sequencer's interrupt words
    (kfd_int_process_v11.c).
    """

    simd = Field(1, 0)
    wgp = Field(5, 2)


class Gfx9Index(Word):
    """The field that SQ_IND_INDEX of GFX9 has besides. Source: gc_9_4_3_sh_mask.h."""

    simd_id = Field(5, 4)


class Sequencers:
    """The index registers of all sequencers, and their commands.

    `waves` yields the running waves with their queues; `kill` ends the waves of a VMID, or all for None.
    """

    def __init__(
        self,
        cells: Cells,
        grbm: Grbm,
        waves: Callable[[], Iterable[tuple[Slot, WaveState]]],
        kill: Callable[[int | None], None],
    ) -> None:
        self._cells, self._grbm, self._waves, self._kill = cells, grbm, waves, kill
        version = grbm.row.version
        self._is_gfx9 = grbm.row.generation.gfx9_waves
        self._index, self._order = gc_sq.SQ_IND_INDEX.at(version), gc_sq.SQ_CMD.at(version)
        # the trap state is another word since 12.0
        known = gc_sq.PLACES[version]
        self._words = {word.place(version)[0]: place for word, place in OF_WAVE.items() if word in known}
        # GFX9 has no word of all waves, and one that says where a wave runs and for whom.
        self._active = None if self._is_gfx9 else gc_sq.SQ_WAVE_ACTIVE.place(version)[0]
        self._owner = (gc_sq.SQ_WAVE_HW_ID if self._is_gfx9 else gc_sq.SQ_WAVE_HW_ID2).place(version)[0]
        cells.on_read("SQ_IND_DATA", self._data)
        cells.on_write("SQ_CMD", self._command)

    def _command(self, value: int) -> None:
        """End waves. On metal, groups that have not begun may follow, so drivers repeat the command. Here they end with
        their grid.
        """
        order = self._order(value)
        if order.cmd == NOTHING:
            return
        chosen = self._grbm.index()
        everywhere = chosen.se_broadcast_writes and chosen.sa_broadcast_writes and chosen.instance_broadcast_writes
        if (order.cmd, order.mode) != (KILL, BROADCAST) or not everywhere:
            raise Unmodelled(f"{order!r} to the waves that {chosen!r} selects")
        self._kill(order.vm_id if order.check_vmid else None)

    def _data(self) -> int:
        index = self._index(self._cells["SQ_IND_INDEX"])
        here = self._selected_gfx9(Gfx9Index(int(index)).simd_id) if self._is_gfx9 else self._selected()
        if index.index == self._active:
            return sum(1 << number for number in here)
        if index.wave_id not in here:
            return 0
        slot, wave = here[index.wave_id]
        if index.index == self._owner and self._is_gfx9:
            number, simd, unit, engine = gfx9_place(int(wave.words[HW_ID1]))
            return int(
                gc_sq.SQ_WAVE_HW_ID(
                    wave_id=number,
                    simd_id=simd,
                    pipe_id=slot.pipe,
                    cu_id=unit,
                    se_id=engine,
                    vm_id=gc_sq.SQ_WAVE_HW_ID2(int(wave.words[HW_ID2])).vm_id,
                    queue_id=slot.queue,
                    me_id=slot.me,
                )
            )
        if index.index == self._owner:
            seen = gc_sq.SQ_WAVE_HW_ID2(int(wave.words[HW_ID2]))
            return int(seen.replace(me_id=slot.me, pipe_id=slot.pipe, queue_id=slot.queue))
        place = self._words.get(index.index)
        return 0 if place is None else int(wave.words[place])

    def _selected(self) -> dict[int, tuple[Slot, WaveState]]:
        """Return the waves of the selected SIMD by slot."""
        chosen = self._grbm.index()
        unit = Instance(chosen.instance_index & 0x3F)
        found: dict[int, tuple[Slot, WaveState]] = {}
        for slot, wave in self._waves():
            at = gc_sq.SQ_WAVE_HW_ID1(int(wave.words[HW_ID1]))
            if (at.se_id, at.sa_id, at.wgp_id, at.simd_id) == (chosen.se_index, chosen.sa_index, unit.wgp, unit.simd):
                found.setdefault(at.wave_id, (slot, wave))
        return found

    def _selected_gfx9(self, simd: int) -> dict[int, tuple[Slot, WaveState]]:
        """The same on GFX9, where GRBM_GFX_INDEX selects a compute unit, and SQ_IND_INDEX its SIMD. Source:
        gfx_v9_4_3.c, wave_read_ind.
        """
        chosen = self._grbm.index()
        found: dict[int, tuple[Slot, WaveState]] = {}
        for slot, wave in self._waves():
            at = gfx9_place(int(wave.words[HW_ID1]))
            if (at.engine, at.unit, at.simd) == (chosen.se_index, chosen.instance_index, simd):
                found.setdefault(at.wave, (slot, wave))
        return found
