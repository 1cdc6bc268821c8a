"""What dispatches share that differ only in PC and user SGPRs: memory sizes and the first words of waves."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from ringup.silicon.shader.amd.interpreter.engine import resident_limit
from ringup.silicon.shader.amd.strict.code import shadow_slots
from ringup.silicon.shader.common import launch, state
from ringup.silicon.shader.common.state import Dispatch
from ringup.silicon.shader.host.context import CONTEXT_WORDS, GROUP_WORDS, SPARE_WORD, Word
from ringup.silicon.shader.host.scheduler import LDS_SPARE_BYTES, REGION_WORDS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ringup.silicon.shader.common.launch import Start

OWN = ("pc", "user_sgprs")  # differ for each dispatch
# Instructions in a wave's turn. Waves that wait for others use up whole turns, so this bounds the cost of spinning.
QUANTUM = 16384
_shared: Any = attrgetter(*(name for name in Dispatch._fields if name not in OWN))


def key_of(dispatch: Dispatch) -> tuple[object, ...]:
    """Return the key of a dispatch's plan: dispatches with equal keys share one."""
    shared: tuple[object, ...] = _shared(dispatch)
    return len(dispatch.user_sgprs), shared


class Part(IntEnum):
    """The parts of a run's memory, each at a multiple of 64 bytes."""

    STATES = 0  # of waves
    LDS = 1
    GROUPS = 2  # group slots
    REGIONS = 3
    TABLE = 4  # addresses of templates
    TEMPLATES = 5


@dataclass(frozen=True, slots=True, eq=False)
class Template:
    """The first words of a group's waves, up to VGPR 1, as (wave, word), without PC and user SGPRs.

    `full` says which waves begin with all lanes active.
    """

    words: NDArray[np.uint32]
    full: tuple[bool, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """The layout of a run's memory; sizes are in bytes unless noted."""

    group_waves: int
    slots: int  # group slots: resident groups, at most those of the grid
    row_words: int  # of a wave's registers
    wave_bytes: int
    lds_shadow: int
    lds_stride: int
    scalars: int  # SGPRs that are written at the start
    head_bytes: int
    mode: int
    ids: NDArray[np.uint32]  # HW_ID1 and HW_ID2 of each wave slot
    # By the axes, as bits, along which a group is the last and partial one.
    templates: dict[int, Template]
    context: NDArray[np.int64]  # initial contents, without addresses
    places: list[tuple[int, int]]  # by `Part`: first byte and end in a run's memory

    @property
    def memory_bytes(self) -> int:
        """How many bytes a run needs."""
        return self.places[-1][1]

    def template_bytes(self, template: Template) -> int:
        """Return the size of a template: the number of its waves, and their words."""
        return 64 + self.head_bytes * len(template.full)

    @classmethod
    def of(cls, dispatch: Dispatch, *, strict: bool, wgp_count: int, start: Start = launch.RDNA3_START) -> Plan:
        """Make the plan of a dispatch. Raises `ValueError` for groups that do not fit."""
        fitting = launch.occupancy(dispatch, start)
        if not fitting:
            raise ValueError(launch.does_not_fit(dispatch))
        lanes, rows = dispatch.wave_size, state.register_rows(max(dispatch.vgpr_count, 1), dispatch.acc_count)
        slots = max(1, min(resident_limit(dispatch, fitting, wgp_count), launch.local_groups(dispatch)))
        group_waves = launch.waves_in_group(dispatch)
        row_words = state.RESERVED_WORDS + rows * lanes
        lds_shadow = -(-dispatch.lds_size_bytes // 64) * 64 + LDS_SPARE_BYTES
        head_words = state.RESERVED_WORDS + lanes
        templates = _templates(dispatch, head_words, start)
        made = next(iter(templates.values()), None)
        plan = cls(
            group_waves,
            slots,
            row_words,
            4 * row_words + -(-8 * shadow_slots(rows) // 64) * 64 * strict,
            lds_shadow,
            lds_shadow * (1 + strict),
            len(launch.scalar_start(dispatch, (0, 0, 0), 0, 1, start)),
            4 * head_words,
            0 if made is None else int(made.words[0, state.MODE]),
            np.array([launch.hardware_ids(dispatch, one) for one in range(slots * group_waves)], np.uint32),
            templates,
            np.zeros(CONTEXT_WORDS, np.int64),
            [],
        )
        plan._fill_context(dispatch, start)
        plan._lay_out()
        return plan

    def _lay_out(self) -> None:
        # By `Part`.
        sizes = (
            self.slots * self.group_waves * self.wave_bytes,
            self.slots * self.lds_stride,
            8 * GROUP_WORDS * self.slots,
            8 * REGION_WORDS,
            64,
            sum(map(self.template_bytes, self.templates.values())),
        )
        at = 0
        for size in sizes:
            self.places.append((at, at + size))
            at += -(-size // 64) * 64

    def _fill_context(self, dispatch: Dispatch, start: Start) -> None:
        words = self.context
        values = {
            Word.SHARED: dispatch.shared_aperture, Word.PRIVATE: dispatch.private_aperture, Word.LDS_SIZE: dispatch.lds_size_bytes,
            Word.UNALIGNED: dispatch.mtype_unaligned, Word.QUANTUM: QUANTUM, Word.LAST: launch.local_groups(dispatch),
            Word.SLOTS: self.slots, Word.GROUP_WAVES: self.group_waves, Word.WAVE_BYTES: self.wave_bytes,
            Word.LDS_STRIDE: self.lds_stride, Word.LDS_SHADOW: self.lds_shadow, Word.SCRATCH_BASE: dispatch.scratch_base,
            Word.SCRATCH_BYTES: dispatch.scratch_wave_bytes, Word.HARDWARE_IDS: self.ids.ctypes.data,
            Word.HEAD_BYTES: self.head_bytes, Word.PARTIAL: _partial(dispatch),
        }  # fmt: skip
        for word, value in values.items():
            words[word] = value
        words[Word.COUNT_X : Word.COUNT_Z + 1] = dispatch.group_count
        words[Word.START_X : Word.START_Z + 1] = dispatch.group_start
        words[Word.SHARE_OWN : Word.SHARE_CHUNK + 1] = dispatch.share
        words[Word.PLACE_SCRATCH] = 4 * start.flat_scratch
        words[Word.PLACE_X : Word.PLACE_Z + 1] = words[Word.PLACE_YZ] = 4 * SPARE_WORD
        if start.numbers_in_ttmp:
            words[Word.PLACE_X] = 4 * (state.TTMP0 + launch.TTMP_GROUP_X)
            if any(dispatch.enable_group_id[1:]):
                words[Word.PLACE_YZ] = 4 * (state.TTMP0 + launch.TTMP_GROUP_YZ)
            return
        place = len(dispatch.user_sgprs)
        for axis, enabled in enumerate(dispatch.enable_group_id):
            if enabled:
                words[Word.PLACE_X + axis] = 4 * place
            place += enabled


def _partial(dispatch: Dispatch) -> int:
    """Return the axes along which the last group is partial, as bits."""
    partial = 0
    for axis in range(3):
        count, size = dispatch.group_count[axis], dispatch.partial_size[axis]
        partial |= (1 << axis) * bool(size and count and size != dispatch.group_size[axis])
    return partial


def _templates(dispatch: Dispatch, head_words: int, start: Start) -> dict[int, Template]:
    """Make the first words of every wave of a group, full or partial along each axis."""
    partial = _partial(dispatch)
    templates = {}
    for shape in range(8):
        if shape & ~partial:
            continue
        only = [axis for axis in range(3) if (partial & ~shape) >> axis & 1 and dispatch.group_count[axis] == 1]
        # The only group along that axis is the partial one.
        if only:
            continue
        x, y, z = (
            first + (count - 1) * (shape >> axis & 1)
            for axis, (first, count) in enumerate(zip(dispatch.group_start, dispatch.group_count, strict=True))
        )
        waves = launch.start_group(dispatch, (x, y, z), 0, start).waves
        all_lanes = (1 << dispatch.wave_size) - 1
        templates[shape] = Template(
            np.array([wave.words[:head_words] for wave in waves], np.uint32).reshape(-1, head_words),
            tuple(wave.exec_mask == all_lanes for wave in waves),
        )
    return templates
